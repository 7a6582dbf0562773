//! The job `rollup`: counts the sums of experiments again from what they add up.

use crate::base::job_kinds::JobKind;
use crate::campaigns::experiment::rollup::{self, RollupReport};
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, SOME, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::store::StoreError;
use rusqlite::TransactionBehavior;
use serde_json::json;
use std::sync::atomic::Ordering;

/// The job `rollup`: counts the sums of experiments again from what they add up.
#[derive(Debug)]
pub(crate) struct RollupJob;

impl BackgroundJob for RollupJob {
    fn kind(&self) -> JobKind {
        JobKind::Rollup
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        rebuild_sums(place, run)
    }
}

/// A dry run does the same in transactions that are taken back.
fn rebuild_sums(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    // Where nobody ever saw an experiment, nobody is looked at.
    const ALL: &str = "SELECT ifnull(max(person), 0)
        FROM (SELECT max(person) AS person FROM people UNION ALL SELECT max(person) FROM experiment_people)
        WHERE EXISTS (SELECT 1 FROM exposures) OR EXISTS (SELECT 1 FROM experiment_people)";
    let all: i64 = place.conn.query_row(ALL, [], |row| row.get(0))?;
    let (mut rolled, mut cursor): (RollupReport, i64) = (so_far(run), run.cursor);
    while cursor < all {
        // By the time that it is: what `trim` took since the run began is not looked for.
        let now = (place.given)()?.now;
        let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        cursor = rollup::rebuild_people(&tx, cursor, SOME, now, &mut rolled)?.unwrap_or(all);
        if run.asked.dry_run {
            tx.rollback()?;
        } else {
            runs::save_cursor(&tx, run.no, cursor, &json!(rolled))?;
            tx.commit()?;
        }
        (place.told)(crate::base::integers::unsigned(cursor), crate::base::integers::unsigned(all))?;
        (place.pause)();
    }
    place.to_the_end.store(true, Ordering::Relaxed);
    let told = || (place.told)(crate::base::integers::unsigned(all), crate::base::integers::unsigned(all));
    let snapshot = place.conn.transaction()?;
    let mut wrong = rollup::find_corrections(&snapshot, &told)?;
    drop(snapshot);
    rolled.sums += if run.asked.dry_run { wrong.len() as u64 } else { 0 };
    while !run.asked.dry_run && !wrong.is_empty() {
        let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rolled.sums += wrong.mend(&tx, SOME as usize)?;
        runs::save_cursor(&tx, run.no, cursor, &json!(rolled))?;
        tx.commit()?;
        told()?;
        (place.pause)();
    }
    Ok(json!(rolled).into())
}
