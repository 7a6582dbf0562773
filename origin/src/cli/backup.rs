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
    /// Check a backup: the digests of its files, their structure, and the stored rows of each visitor. Changes nothing.
    Verify {
        /// The backup's folder.
        #[arg(long, value_name = "FOLDER")]
        from: PathBuf,
    },
}

pub(super) fn take_backup(to: &Path, common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let held = show_steps(&step_bar(backup::STEPS_OF_BACKUP), |step| backup::take_backup(&config.data, to, step))?;
    let mut report = describe_contents(&held);
    report["folder"] = to.display().to_string().into();
    common.output.one(&report)
}

/// Checks a backup; fails if a part of it cannot be read.
pub(super) fn verify_backup(from: &Path, common: &CommonOptions) -> anyhow::Result<()> {
    let (held, unreadable) = show_steps(&step_bar(1), |step| {
        step("checking");
        backup::verify_backup(from)
    })?;
    let mut report = describe_contents(&held);
    report["folder"] = from.display().to_string().into();
    report["unreadable_visitors"] = unreadable.into();
    common.output.one(&report)?;
    ensure!(unreadable == 0, "the stored rows of {unreadable} visitors cannot be read: restore an earlier backup");
    Ok(())
}

fn describe_contents(held: &BackupContents) -> Value {
    json!({
        "visitors": held.visitors, "people": held.people, "unfolded_records": held.records, "newest_ms": held.newest,
    })
}

/// Shows the current step and how many steps are complete. The duration of the remaining steps is unknown.
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
            print_line(&format!("the existing store cannot be read: {}", error_chain(&e)));
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
            print_line("an origin serves from this data directory: stop it first");
        }
        print_line("the existing files are moved to a folder `before-restore-…` in the data directory");
    }
    if !confirm_plan(yes, &plan, common)? {
        return Ok(());
    }
    let replaced = show_steps(&step_bar(backup::STEPS_OF_RESTORE), |step| {
        backup::restore_backup(&config.data, from, clock::now(), step)
    })?;
    plan["done"] = true.into();
    plan["moved_to"] = replaced.moved_to.map(|folder| folder.display().to_string()).into();
    plan["unread"] = replaced.unread.iter().map(|(part, _)| part).collect();
    for (part, why) in replaced.unread.iter() {
        print_line(&format!(
            "`{part}` of the replaced store cannot be read completely ({}): entries that the backup lacks may be lost",
            error_chain(why)
        ));
    }
    // Visitors that were erased after the backup are erased again before anything is read.
    if let Err(e) = WritableStore::new(common) {
        print_line(&format!("erasures since the backup are applied when `causeway serve` starts: {e:#}"));
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
