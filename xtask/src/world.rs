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

/// The file that marks a folder of `cargo xtask dev`, which may be emptied. Its lock marks a folder in use.
const MARKER: &str = ".causeway-dev";
const MARKER_TEXT: &str = "Created by `cargo xtask dev`, which empties this folder with --fresh.\n";

/// The initial configuration, which users may edit; it is not overwritten. The command's flags set the ports.
const CONFIGURATION: &str = r#"# A development origin of `cargo xtask dev`. See `causeway config reference`.
data = "."
keys = "keys.json"
# Snapshots of siblings are published after 2 seconds instead of a minute.
sibling_publish_s = 2
# The local KV shows a write at once.
kv_settled_s = 2

# The publisher of the demo page. Without a consent signal, identities are allowed.
[[tenant]]
name = "demo"
hosts = ["localhost", "127.0.0.1"]
origins = ["http://pub.localhost"]
dev = true
no_signal = "allow"
publish_delay_s = 2
proof_header = "x-causeway-proof"
# Ids without a proof (partner) link visitors for decisions too. With the default, 1, only logins do.
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
text = "Shown while no campaign bids for this placement."
url = "https://example.com/"

# Another publisher, with default settings. Without a consent signal, identities are refused.
[[tenant]]
name = "strict"
hosts = ["strict.localhost"]
dev = true
"#;

/// The action types and view types of the demo tenant.
const CATALOGUE: &str = r#"# Codes are permanent: never change a code, and never reuse it for another word.
[[action_type]]
name = "hide"
code = 3

[[view_type]]
name = "home"
code = 1

[[view_type]]
name = "article"
code = 2
"#;

/// The data folder; this process holds its lock until the drop.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) folder: PathBuf,
    lock: File,
}

impl Drop for Data {
    /// Unlocks the file. A close is not enough, because a starting child inherits the open file for a moment.
    fn drop(&mut self) {
        self.lock.unlock().unwrap_or_default();
    }
}

impl Data {
    /// Creates or opens the folder and takes its lock; `fresh` empties it.
    ///
    /// # Errors
    /// The folder has foreign files, or another process holds its lock.
    pub(crate) fn open(folder: &Path, fresh: bool) -> Result<Self> {
        let shown = folder.display();
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {shown}"))?;
        let folder = folder.canonicalize().with_context(|| format!("cannot open {shown}"))?;
        let marker = folder.join(MARKER);
        if !marker.is_file() && std::fs::read_dir(&folder)?.next().is_some() {
            bail!("{shown} has files that `cargo xtask dev` did not create: choose another folder with --data");
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

    /// The path of the origin's configuration, which is written if it is missing.
    pub(crate) fn configuration(&self) -> Result<PathBuf> {
        let path = self.path("causeway.toml");
        if !path.exists() {
            write_private(&self.path("catalogue.toml"), CATALOGUE)?;
            write_private(&path, CONFIGURATION)?;
        }
        Ok(path)
    }

    /// Creates missing keys and the first admin token; returns the token.
    pub(crate) fn keys_and_token(&self, causeway: &dyn Fn() -> Command, stop: &Stop) -> Result<String> {
        steps::run("making keys", causeway().args(["keys", "init"]), stop)?;
        let path = self.path("admin-token");
        // A stored token is valid only with the store that knows it.
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

    /// Applies `ads.toml` as the catalogue of the demo tenant, if the folder has this file.
    pub(crate) fn apply_ads(&self, causeway: &dyn Fn() -> Command, stop: &Stop) -> Result<()> {
        let path = self.path("ads.toml");
        if path.exists() {
            let mut apply = causeway();
            apply.args(["catalogue", "apply", "--tenant", "demo"]).arg(path);
            steps::run("applying ads.toml", &mut apply, stop)?;
        }
        Ok(())
    }

    /// Writes the worker's configuration as a file of variables; returns its path and the explain key.
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

/// One line of a variables file, in single quotes. The quote is special there, and `$` for the worker's command. Both
/// occur in JSON strings of the values only, so JSON escapes replace them.
fn variable(name: &str, value: &str) -> String {
    format!("{name}='{}'\n", value.replace('\'', "\\u0027").replace('$', "\\u0024").replace('\n', " "))
}

/// Writes a file with secrets: only its owner can read it, and it is complete or absent.
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
    serde_json::from_str(json).with_context(|| format!("the output of `{what}` is not JSON"))
}

fn text(value: &Value, name: &str) -> Result<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned).with_context(|| format!("the answer has no `{name}`"))
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
        assert!(error.contains("did not create"), "{error}");
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
