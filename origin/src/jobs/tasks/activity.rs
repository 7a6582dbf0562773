//! The job `activity`: sums the activity histograms of all people.

use crate::audience::best_send_times::ActivitySums;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, PEOPLE};
use crate::jobs::runs::JobRun;
use crate::store::PersonNo;
use crate::store::job_error::JobError;
use crate::store::tables::people;
use rusqlite::TransactionBehavior;

/// The job `activity`: sums the activity histograms of all people.
#[derive(Debug)]
pub(crate) struct ActivityJob;

impl BackgroundJob for ActivityJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        sum_activity(context, run)
    }
}

/// Reads without pauses, because readers block no writer. An interrupted run starts again. A dry run stores nothing.
fn sum_activity(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let all: u64 =
        context.conn.query_row(people::PEOPLE_COUNT, [], |row| row.get(0).map(crate::base::integers::unsigned))?;
    let (mut sums, mut cursor) = (ActivitySums::default(), PersonNo(0));
    loop {
        let snapshot = context.conn.transaction()?;
        let Some(last) = sums.add(&snapshot, &context.rules.tenants, cursor, PEOPLE)? else { break };
        cursor = last;
        drop(snapshot);
        (context.report_progress)(sums.people, all)?;
    }
    if !run.request.dry_run {
        let tx = context.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        sums.keep(&tx, run.since())?;
        tx.commit()?;
    }
    Ok(sums.describe().into())
}
