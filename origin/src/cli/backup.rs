//! `causeway backup` and `causeway restore`.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use causeway_origin::base::{chain, clock};
use causeway_origin::maintenance::backup::{self, BackupContents};
use clap::Subcommand;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::output::{say, steps};
use super::{CommonOptions, WritableStore, confirmed, is_served};

#[derive(Debug, Subcommand)]
pub(super) enum BackupCommand {
    /// Check a backup: its files against their digests, their structure, and what is stored of each visitor. Changes
    /// nothing.
    Verify {
        /// The backup's folder.
        #[arg(long, value_name = "FOLDER")]
        from: PathBuf,
    },
}

pub(super) fn take(to: &Path, common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let held = shown(&steps(backup::STEPS_OF_BACKUP), |step| backup::take(&config.data, to, step))?;
    let mut said = told(&held);
    said["folder"] = to.display().to_string().into();
    common.output.one(&said)
}

/// Checks a backup, and fails where something in it cannot be read.
pub(super) fn verify(from: &Path, common: &CommonOptions) -> anyhow::Result<()> {
    let (held, unreadable) = shown(&steps(1), |step| {
        step("checking");
        backup::verify(from)
    })?;
    let mut said = told(&held);
    said["folder"] = from.display().to_string().into();
    said["unreadable_visitors"] = unreadable.into();
    common.output.one(&said)?;
    ensure!(unreadable == 0, "what is stored of {unreadable} visitors cannot be read: restore an earlier backup");
    Ok(())
}

fn told(held: &BackupContents) -> Value {
    json!({
        "visitors": held.visitors, "people": held.people, "unfolded_records": held.records, "newest_ms": held.newest,
    })
}

/// Shows which step goes on, and how many are over: how long the others take nobody can say.
fn shown<T>(bar: &ProgressBar, work: impl FnOnce(&mut dyn FnMut(&'static str)) -> T) -> T {
    let mut begun = 0;
    let done = work(&mut |step| {
        bar.set_message(step);
        bar.set_position(begun);
        begun += 1;
    });
    bar.finish_and_clear();
    done
}

pub(super) fn restore(from: &Path, yes: bool, common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let held = shown(&steps(1), |step| {
        step("checking");
        backup::inspect(from)
    })?;
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
    let replaced =
        shown(&steps(backup::STEPS_OF_RESTORE), |step| backup::restore(&config.data, from, clock::now(), step))?;
    plan["done"] = true.into();
    plan["kept"] = replaced.kept.map(|kept| kept.display().to_string()).into();
    plan["unread"] = replaced.unread.iter().map(|(part, _)| part).collect();
    for (part, why) in replaced.unread.iter() {
        say(&format!(
            "`{part}` of what was replaced cannot be read whole ({}): what the backup lacks of it may be lost",
            chain(why)
        ));
    }
    // Who was erased since the backup is erased again, before anybody reads.
    if let Err(e) = WritableStore::new(common) {
        say(&format!("erasures of after the backup are applied when `causeway serve` starts: {e:#}"));
    }
    common.output.one(&plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_once_it_is_over() {
        let bar = ProgressBar::hidden();
        let mut seen = Vec::new();
        shown(&bar, |step| {
            for name in ["copying", "checking", "renewing"] {
                step(name);
                seen.push((bar.position(), bar.message()));
            }
        });
        assert_eq!(seen, [(0, "copying".to_owned()), (1, "checking".to_owned()), (2, "renewing".to_owned())]);
    }
}
