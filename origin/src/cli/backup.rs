//! `causeway backup` and `causeway restore`.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use causeway_origin::base::{clock, error_chain};
use causeway_origin::maintenance::backup::{self, BackupContents};
use clap::Subcommand;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::output::{print_line, step_bar};
use super::{CommonOptions, WritableStore, confirm_plan, is_served};

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

pub(super) fn take_backup(to: &Path, common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let held = show_steps(&step_bar(backup::STEPS_OF_BACKUP), |step| backup::take_backup(&config.data, to, step))?;
    let mut said = describe_contents(&held);
    said["folder"] = to.display().to_string().into();
    common.output.one(&said)
}

/// Checks a backup, and fails where something in it cannot be read.
pub(super) fn verify_backup(from: &Path, common: &CommonOptions) -> anyhow::Result<()> {
    let (held, unreadable) = show_steps(&step_bar(1), |step| {
        step("checking");
        backup::verify_backup(from)
    })?;
    let mut said = describe_contents(&held);
    said["folder"] = from.display().to_string().into();
    said["unreadable_visitors"] = unreadable.into();
    common.output.one(&said)?;
    ensure!(unreadable == 0, "what is stored of {unreadable} visitors cannot be read: restore an earlier backup");
    Ok(())
}

fn describe_contents(held: &BackupContents) -> Value {
    json!({
        "visitors": held.visitors, "people": held.people, "unfolded_records": held.records, "newest_ms": held.newest,
    })
}

/// Shows which step goes on, and how many are over: how long the others take nobody can say.
fn show_steps<T>(bar: &ProgressBar, work: impl FnOnce(&mut dyn FnMut(&'static str)) -> T) -> T {
    let mut begun = 0;
    let done = work(&mut |step| {
        bar.set_message(step);
        bar.set_position(begun);
        begun += 1;
    });
    bar.finish_and_clear();
    done
}

pub(super) fn restore_backup(from: &Path, yes: bool, common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let held = show_steps(&step_bar(1), |step| {
        step("checking");
        backup::inspect_backup(from)
    })?;
    let replaces = match backup::replaced_contents(&config.data) {
        Ok(replaces) => replaces.as_ref().map(describe_contents).into(),
        Err(e) => {
            print_line(&format!("what is there cannot be read: {}", error_chain(&e)));
            "cannot be read".into()
        }
    };
    let mut plan = describe_contents(&held);
    plan["from"] = from.display().to_string().into();
    plan["into"] = config.data.display().to_string().into();
    plan["replaces"] = replaces;
    plan["done"] = false.into();
    if !yes {
        if is_served(&config) {
            print_line("the origin serves from that folder: stop it first");
        }
        print_line("what is there now is kept beside it");
    }
    if !confirm_plan(yes, &plan, common)? {
        return Ok(());
    }
    let replaced = show_steps(&step_bar(backup::STEPS_OF_RESTORE), |step| {
        backup::restore_backup(&config.data, from, clock::now(), step)
    })?;
    plan["done"] = true.into();
    plan["kept"] = replaced.kept.map(|kept| kept.display().to_string()).into();
    plan["unread"] = replaced.unread.iter().map(|(part, _)| part).collect();
    for (part, why) in replaced.unread.iter() {
        print_line(&format!(
            "`{part}` of what was replaced cannot be read whole ({}): what the backup lacks of it may be lost",
            error_chain(why)
        ));
    }
    // Who was erased since the backup is erased again, before anybody reads.
    if let Err(e) = WritableStore::new(common) {
        print_line(&format!("erasures of after the backup are applied when `causeway serve` starts: {e:#}"));
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
        show_steps(&bar, |step| {
            for name in ["copying", "checking", "renewing"] {
                step(name);
                seen.push((bar.position(), bar.message()));
            }
        });
        assert_eq!(seen, [(0, "copying".to_owned()), (1, "checking".to_owned()), (2, "renewing".to_owned())]);
    }
}
