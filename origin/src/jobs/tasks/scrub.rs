//! The job `scrub`: searches the whole store for damage, in pages, and goes on from where it was cut.

use crate::base::integers::unsigned;
use crate::base::job_kinds::JobKind;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::{self, JobRun};
use crate::maintenance::scrub::{
    CheckedPage, ScrubReport, check_experiment_people, check_lookups, check_tenant_values, check_visitors,
    mend_lookups, quarantine_visitors,
};
use crate::store::StoreError;
use rusqlite::{Connection, TransactionBehavior};
use serde::Deserialize as _;
use serde_json::json;

/// The job `scrub`: searches the whole store for damage.
#[derive(Debug)]
pub(crate) struct ScrubJob;

impl BackgroundJob for ScrubJob {
    fn kind(&self) -> JobKind {
        JobKind::Scrub
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        scrub_store(place, run)
    }
}

/// Takes a run of `scrub` to its end: visitors first, from where it was cut, then lookups, experiments and tenants. A dry run
/// sets nothing aside and mends nothing.
///
/// # Errors
/// [`StoreError`], but not of a value.
fn scrub_store(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    const COUNT: &str = "SELECT count(*) FROM visitors";
    let all: u64 = place.conn.query_row(COUNT, [], |row| row.get(0).map(unsigned))?;
    let mut scrubbed: ScrubReport = ScrubReport::deserialize(&run.report).unwrap_or_default();
    let mut cursor = run.cursor;
    while let Some(CheckedPage { last, damaged }) = read(place, |tx| check_visitors(tx, cursor, SOME, &mut scrubbed))? {
        cursor = last;
        if !run.asked.dry_run {
            let now = (place.given)()?.now;
            let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            quarantine_visitors(&tx, &damaged, now)?;
            runs::save_cursor(&tx, run.no, cursor, &json!(scrubbed))?;
            tx.commit()?;
        }
        (place.told)(scrubbed.visitors, all)?;
        (place.pause)();
    }
    scrub_lookups(place, run, &mut scrubbed, all)?;
    let mut after = (i64::MIN, 0);
    while let Some(last) = read(place, |tx| check_experiment_people(tx, after, SOME, &mut scrubbed))? {
        after = last;
        (place.told)(all, all)?;
    }
    read(place, |tx| check_tenant_values(tx, &mut scrubbed))?;
    let failed = scrubbed.failure();
    Ok(JobReport { report: json!(scrubbed), failed })
}

/// Reads in one transaction, which ends before anything is written.
pub(crate) fn read<T>(
    place: &mut JobContext<'_>,
    check: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    check(&*place.conn.transaction()?)
}

pub(crate) fn scrub_lookups(
    place: &mut JobContext<'_>,
    run: &JobRun,
    scrubbed: &mut ScrubReport,
    all: u64,
) -> Result<(), StoreError> {
    let mut after = None;
    while let Some(CheckedPage { last, damaged }) = read(place, |tx| check_lookups(tx, after, SOME, scrubbed))? {
        after = Some(last);
        if !run.asked.dry_run && !damaged.is_empty() {
            let given = (place.given)()?;
            crate::store::write_txn::within_txn(place.conn, place.rules, place.metrics, given, |group| {
                mend_lookups(group, &damaged)
            })?;
        }
        (place.told)(all, all)?;
        (place.pause)();
    }
    Ok(())
}

/// Rows read in one transaction.
pub(crate) const SOME: u32 = 500;
