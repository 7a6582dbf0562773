//! A development world on disk: its data folder, configuration, keys and first token.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::steps;
use crate::stop::Stop;

/// The file that says that the folder is ours to empty, and whose lock says that it is in use.
const MARKER: &str = ".causeway-dev";
const MARKER_TEXT: &str = "Made by `cargo xtask dev`; with --fresh it empties this folder.\n";

/// Written once; edit it as you like, it stays. Ports come from the command's flags.
const CONFIGURATION: &str = r#"# A development origin, made by `cargo xtask dev`. See `causeway config reference`.
data = "."
keys = "keys.json"
# Siblings' snapshots follow after 2 seconds, so that you need not wait a minute to see them.
sibling_publish_s = 2
# The KV of this machine shows at once what was written.
kv_settled_s = 2

# The demo page's publisher: no consent signal means yes.
[[tenant]]
name = "demo"
hosts = ["localhost", "127.0.0.1"]
origins = ["http://pub.localhost"]
dev = true
no_signal = "allow"
publish_delay_s = 2
proof_header = "x-causeway-proof"
# Ids that pages name without a proof (partner) link for decisions too. The default, 1, leaves that to logins.
link_threshold = 0.9
house_landing = "https://example.com/landing"
catalogue = "catalogue.toml"

[[tenant.kinds]]
name = "member"
code = 1
unique = true

[[tenant.kinds]]
name = "partner"
code = 2

[tenant.house_ad]
id = "house"
[tenant.house_ad.creative]
title = "Your own advertisement"
text = "Shown while no campaign bids for this place."
url = "https://example.com/"

# Another publisher, with every default: no consent signal means no.
[[tenant]]
name = "strict"
hosts = ["strict.localhost"]
dev = true
"#;

/// The words of the demo tenant's actions and placements.
const CATALOGUE: &str = r#"# Codes are for ever: never change one, never give it to another word.
[[verb]]
name = "hide"
code = 3

[[view_type]]
name = "home"
code = 1

[[view_type]]
name = "article"
code = 2
"#;

/// The folder, held by this process until it is dropped.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) folder: PathBuf,
    lock: File,
}

impl Drop for Data {
    /// Closing it is not enough: a child that is being started has it open for a moment.
    fn drop(&mut self) {
        self.lock.unlock().unwrap_or_default();
    }
}

impl Data {
    /// Makes the folder or takes the one that is there; `fresh` empties it, if an earlier run made it.
    pub(crate) fn open(folder: &Path, fresh: bool) -> Result<Self> {
        let shown = folder.display();
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {shown}"))?;
        let folder = folder.canonicalize().with_context(|| format!("cannot open {shown}"))?;
        let marker = folder.join(MARKER);
        if !marker.is_file() && std::fs::read_dir(&folder)?.next().is_some() {
            bail!("{shown} holds files that `cargo xtask dev` did not make: choose another folder with --data");
        }
        let mut lock = OpenOptions::new().create(true).append(true).open(&marker)?;
        if lock.try_lock().is_err() {
            bail!(
                "{shown} is in use by another `cargo xtask dev`: stop that one, or choose another folder with --data"
            );
        }
        if lock.metadata()?.len() == 0 {
            lock.write_all(MARKER_TEXT.as_bytes())?;
        }
        if fresh {
            empty(&folder)?;
        }
        Ok(Self { folder, lock })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The origin's configuration, written if there is none.
    pub(crate) fn configuration(&self) -> Result<PathBuf> {
        let path = self.path("causeway.toml");
        if !path.exists() {
            write_private(&self.path("catalogue.toml"), CATALOGUE)?;
            write_private(&path, CONFIGURATION)?;
        }
        Ok(path)
    }

    /// Makes what keys are missing, and the first admin token; returns the token.
    pub(crate) fn keys_and_token(&self, causeway: &dyn Fn() -> Command, stop: &Stop) -> Result<String> {
        steps::run("making keys", causeway().args(["keys", "init"]), stop)?;
        let path = self.path("admin-token");
        // The store knows the token; one without the other is of no use.
        if self.path("causeway.db").exists()
            && let Ok(token) = std::fs::read_to_string(&path)
        {
            return Ok(token.trim().to_owned());
        }
        let mut create = causeway();
        create.args(["token", "create", "--role", "operator", "--name", "dev", "--all-tenants", "--output", "json"]);
        let answer = steps::run("making an admin token", &mut create, stop)?;
        let token = text(&parse("causeway token create", &answer)?, "token")?;
        write_private(&path, &token)?;
        Ok(token)
    }

    /// The demo tenant's ads become the current catalogue, if the folder holds a file of them.
    pub(crate) fn apply_ads(&self, causeway: &dyn Fn() -> Command, stop: &Stop) -> Result<()> {
        let path = self.path("ads.toml");
        if path.exists() {
            let mut apply = causeway();
            apply.args(["catalogue", "apply", "--tenant", "demo"]).arg(path);
            steps::run("applying ads.toml", &mut apply, stop)?;
        }
        Ok(())
    }

    /// What the worker is configured with, as a file of variables; returns it and the explain key.
    pub(crate) fn edge_variables(
        &self,
        causeway: &dyn Fn() -> Command,
        own: &[(&str, &str)],
        stop: &Stop,
    ) -> Result<(PathBuf, String)> {
        let answer = steps::run("reading the edge's configuration", causeway().args(["config", "edge"]), stop)?;
        let answer = parse("causeway config edge", &answer)?;
        let (config, keys) = (text(&answer, "CAUSEWAY_CONFIG")?, text(&answer, "CAUSEWAY_KEYS")?);
        let explain = text(&parse("CAUSEWAY_KEYS", &keys)?, "explain")?;
        let mut file = String::new();
        for (name, value) in own.iter().copied().chain([("CAUSEWAY_CONFIG", &*config), ("CAUSEWAY_KEYS", &*keys)]) {
            file.push_str(&variable(name, value));
        }
        let path = self.path("edge.env");
        write_private(&path, &file)?;
        Ok((path, explain))
    }
}

/// One line of a variables file. In single quotes the quote itself is special, and to the worker's command `$` too; in our values
/// they stand in JSON strings alone and can be escaped there.
fn variable(name: &str, value: &str) -> String {
    format!("{name}='{}'\n", value.replace('\'', "\\u0027").replace('$', "\\u0024").replace('\n', " "))
}

/// For files with secrets in them: readable by their owner alone, and complete or not there.
pub(crate) fn write_private(path: &Path, content: &str) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let fresh = path.with_file_name(name);
    let mut options = OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(&fresh).with_context(context)?;
    file.write_all(content.as_bytes()).with_context(context)?;
    std::fs::rename(&fresh, path).with_context(context)
}

fn empty(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == MARKER {
            continue;
        }
        let path = entry.path();
        let removed =
            if entry.file_type()?.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn parse(what: &str, json: &str) -> Result<Value> {
    serde_json::from_str(json).with_context(|| format!("`{what}` gave no JSON"))
}

fn text(value: &Value, name: &str) -> Result<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned).with_context(|| format!("the answer holds no `{name}`"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("causeway-xtask-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn only_a_folder_of_ours_is_emptied() {
        let folder = scratch("foreign");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("thesis.tex"), "years of work").unwrap();
        let error = Data::open(&folder, true).unwrap_err().to_string();
        assert!(error.contains("did not make"), "{error}");
        assert!(folder.join("thesis.tex").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn fresh_empties_and_one_process_holds_a_folder() {
        let folder = scratch("own");
        let data = Data::open(&folder, false).unwrap();
        std::fs::write(data.path("causeway.db"), "x").unwrap();
        std::fs::create_dir(data.path("wrangler")).unwrap();
        let error = Data::open(&folder, true).unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        assert!(data.path("causeway.db").exists());
        drop(data);
        let data = Data::open(&folder, true).unwrap();
        let left: Vec<_> = std::fs::read_dir(&data.folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, [MARKER]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_quote_in_a_value_stays_inside_it() {
        assert_eq!(variable("A", r#"{"t":"It's"}"#), "A='{\"t\":\"It\\u0027s\"}'\n");
    }
}
