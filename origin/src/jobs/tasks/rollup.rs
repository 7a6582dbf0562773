//! The job `rollup`: verifies the sums of experiments and corrects them.

use crate::campaigns::experiment::rollup::{self, RollupReport};
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, SOME, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::store::PersonNo;
use crate::store::job_error::JobError;
use crate::store::tables::people;
use rusqlite::TransactionBehavior;
use serde_json::json;
use std::sync::atomic::Ordering;

/// The job `rollup`: verifies the sums of experiments and corrects them.
#[derive(Debug)]
pub(crate) struct RollupJob;

impl BackgroundJob for RollupJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        rebuild_sums(context, run)
    }
}

/// A dry run does the same work in transactions that are rolled back.
fn rebuild_sums(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let all =
        context.conn.query_row(people::PEOPLE_LAST_ROW_WITH_EXPERIMENT_PEOPLE, [], |row| row.get(0).map(PersonNo))?;
    let (mut rolled, mut cursor): (RollupReport, PersonNo) = (so_far(run), PersonNo(run.cursor));
    while cursor < all {
        // The current time is used because `trim` may have deleted conversions since the run began.
        let now = (context.draw_inputs)()?.now;
        let tx = context.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        cursor = rollup::rebuild_people(&tx, cursor, SOME, now, &mut rolled)?.unwrap_or(all);
        if run.request.dry_run {
            tx.rollback()?;
        } else {
            runs::save_cursor(&tx, run.no, cursor.0, &json!(rolled))?;
            tx.commit()?;
        }
        (context.report_progress)(crate::base::integers::unsigned(cursor.0), crate::base::integers::unsigned(all.0))?;
        (context.pause)();
    }
    context.non_preemptible.store(true, Ordering::Relaxed);
    let report =
        || (context.report_progress)(crate::base::integers::unsigned(all.0), crate::base::integers::unsigned(all.0));
    let snapshot = context.conn.transaction()?;
    let mut wrong = rollup::find_corrections(&snapshot, &report)?;
    drop(snapshot);
    rolled.sums += if run.request.dry_run { wrong.len() as u64 } else { 0 };
    while !run.request.dry_run && !wrong.is_empty() {
        let tx = context.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rolled.sums += wrong.mend(&tx, SOME as usize)?;
        runs::save_cursor(&tx, run.no, cursor.0, &json!(rolled))?;
        tx.commit()?;
        report()?;
        (context.pause)();
    }
    Ok(json!(rolled).into())
}
