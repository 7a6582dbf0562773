//! The job `rhythm`: sums up in which hours of the week people are active.

use crate::audience::best_times::ActivitySums;
use crate::base::job_kinds::JobKind;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, PEOPLE};
use crate::jobs::runs::JobRun;
use crate::store::StoreError;
use rusqlite::TransactionBehavior;

/// The job `rhythm`: sums up in which hours of the week people are active.
#[derive(Debug)]
pub(crate) struct RhythmJob;

impl BackgroundJob for RhythmJob {
    fn kind(&self) -> JobKind {
        JobKind::Rhythm
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        sum_activity(place, run)
    }
}

/// Nobody waits for what only reads; a run that was cut begins anew. A dry run keeps nothing.
fn sum_activity(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    let all: u64 = place
        .conn
        .query_row("SELECT count(*) FROM people", [], |row| row.get(0).map(crate::base::integers::unsigned))?;
    let (mut sums, mut cursor) = (ActivitySums::default(), 0);
    loop {
        let snapshot = place.conn.transaction()?;
        let Some(last) = sums.add(&snapshot, &place.rules.tenants, cursor, PEOPLE)? else { break };
        cursor = last;
        drop(snapshot);
        (place.told)(sums.people, all)?;
    }
    if !run.asked.dry_run {
        let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        sums.keep(&tx, run.since())?;
        tx.commit()?;
    }
    Ok(sums.told().into())
}
