//! `causeway backup` and `causeway restore`.

use std::path::Path;

use causeway_origin::backup::{self, Held};
use causeway_origin::{chain, clock};
use serde_json::{Value, json};

use super::output::{bar, say};
use super::{Common, Opened, confirmed, is_served};

pub(super) fn take(to: &Path, common: &Common) -> anyhow::Result<()> {
    let config = common.load()?;
    let held = with_bar(|step| backup::take(&config.data, to, step))?;
    let mut said = told(&held);
    said["folder"] = to.display().to_string().into();
    common.output.one(&said)
}

fn told(held: &Held) -> Value {
    json!({
        "visitors": held.visitors, "people": held.people, "unfolded_records": held.records, "newest_ms": held.newest,
    })
}

/// Shows the file that is copied.
fn with_bar<T>(copy: impl FnOnce(&mut dyn FnMut(&'static str)) -> T) -> T {
    let bar = bar(2, "{pos} of {len} files, {msg}");
    let copied = copy(&mut |file| {
        bar.set_message(file);
        bar.inc(1);
    });
    bar.finish_and_clear();
    copied
}

pub(super) fn restore(from: &Path, yes: bool, common: &Common) -> anyhow::Result<()> {
    let config = common.load()?;
    let held = backup::inspect(from)?;
    let replaces = match backup::replaced(&config.data) {
        Ok(replaces) => replaces.as_ref().map(told).into(),
        Err(e) => {
            say(&format!("what is there cannot be read: {}", chain(&e)));
            "cannot be read".into()
        }
    };
    let mut plan = told(&held);
    plan["from"] = from.display().to_string().into();
    plan["into"] = config.data.display().to_string().into();
    plan["replaces"] = replaces;
    plan["done"] = false.into();
    if !yes {
        if is_served(&config) {
            say("the origin serves from that folder: stop it first");
        }
        say("what is there now is kept beside it");
    }
    if !confirmed(yes, &plan, common)? {
        return Ok(());
    }
    let replaced = with_bar(|step| backup::restore(&config.data, from, clock::now(), step))?;
    plan["done"] = true.into();
    plan["kept"] = replaced.kept.map(|kept| kept.display().to_string()).into();
    plan["unread"] = replaced.unread.iter().map(|(part, _)| part).collect();
    for (part, why) in replaced.unread.iter() {
        say(&format!(
            "`{part}` of what was replaced cannot be read ({}): only what the backup has of it is there",
            chain(why)
        ));
    }
    // Who was erased since the backup is erased again, before anybody reads.
    if let Err(e) = Opened::new(common) {
        say(&format!("erasures of after the backup are applied when `causeway serve` starts: {e:#}"));
    }
    common.output.one(&plan)
}
