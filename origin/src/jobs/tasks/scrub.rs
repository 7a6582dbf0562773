//! The job `scrub`: searches the whole store for damaged values, in pages. An interrupted run continues at its page.

use crate::base::integers::unsigned;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::{self, JobRun};
use crate::maintenance::scrub::{
    CheckedPage, ScrubReport, check_experiment_people, check_lookups, check_tenant_values, check_visitors,
    mend_lookups, quarantine_visitors,
};
use crate::store::StoreError;
use crate::store::job_error::JobError;
use crate::store::tables::visitors;
use rusqlite::{Connection, TransactionBehavior};
use serde::Deserialize as _;
use serde_json::json;

/// The job `scrub`: searches the whole store for damaged values.
#[derive(Debug)]
pub(crate) struct ScrubJob;

impl BackgroundJob for ScrubJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        scrub_store(context, run)
    }
}

/// Checks visitors from the cursor on, then lookups, experiments and tenants. A dry run quarantines and repairs
/// nothing.
///
/// # Errors
/// [`JobError`], except damaged values, which the report counts.
fn scrub_store(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let all: u64 = context.conn.query_row(visitors::VISITORS_COUNT, [], |row| row.get(0).map(unsigned))?;
    let mut scrubbed: ScrubReport = ScrubReport::deserialize(&run.report).unwrap_or_default();
    let mut cursor = run.visitor_cursor();
    while let Some(CheckedPage { last, damaged }) = read(context, |tx| check_visitors(tx, cursor, SOME, &mut scrubbed))?
    {
        cursor = last;
        if !run.request.dry_run {
            let now = (context.draw_inputs)()?.now;
            let tx = context.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            quarantine_visitors(&tx, &damaged, now)?;
            runs::save_cursor(&tx, run.no, cursor.number(), &json!(scrubbed))?;
            tx.commit()?;
        }
        (context.report_progress)(scrubbed.visitors, all)?;
        (context.pause)();
    }
    scrub_lookups(context, run, &mut scrubbed, all)?;
    let mut after = (i64::MIN, 0);
    while let Some(last) = read(context, |tx| check_experiment_people(tx, after, SOME, &mut scrubbed))? {
        after = last;
        (context.report_progress)(all, all)?;
    }
    read(context, |tx| check_tenant_values(tx, &mut scrubbed))?;
    let failed = scrubbed.failure();
    Ok(JobReport { report: json!(scrubbed), failed })
}

/// Reads in a transaction of its own, which ends before the next write.
pub(crate) fn read<T>(
    context: &mut JobContext<'_>,
    check: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    check(&*context.conn.transaction()?)
}

pub(crate) fn scrub_lookups(
    context: &mut JobContext<'_>,
    run: &JobRun,
    scrubbed: &mut ScrubReport,
    all: u64,
) -> Result<(), JobError> {
    let mut after = None;
    while let Some(CheckedPage { last, damaged }) = read(context, |tx| check_lookups(tx, after, SOME, scrubbed))? {
        after = Some(last);
        if !run.request.dry_run && !damaged.is_empty() {
            let given = (context.draw_inputs)()?;
            crate::store::write_txn::within_txn(context.conn, context.rules, context.metrics, given, |group| {
                mend_lookups(group, &damaged)
            })?;
        }
        (context.report_progress)(all, all)?;
        (context.pause)();
    }
    Ok(())
}

/// Rows read in one transaction.
pub(crate) const SOME: u32 = 500;
