//! The job `trim`: drops what is no longer needed of visitors.

use crate::base::job_kinds::JobKind;
use crate::campaigns::spend;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, SOME, clock_warning, count_visitors, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::maintenance::forget_names;
use crate::maintenance::trim::{self, TrimReport, lookups};
use crate::store::StoreError;
use crate::store::priority::Priority;
use rusqlite::TransactionBehavior;
use serde_json::json;
use std::sync::atomic::Ordering;

/// The job `trim`: drops what is no longer needed of visitors.
#[derive(Debug)]
pub(crate) struct TrimJob;

impl BackgroundJob for TrimJob {
    fn kind(&self) -> JobKind {
        JobKind::Trim
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        trim_store(place, run)
    }
}

/// A dry run does the same in transactions that are taken back. What a sibling would have lost in one before, it still has.
fn trim_store(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    let (all, now) = (count_visitors(place.conn)?, run.since());
    let (mut trimmed, mut cursor): (TrimReport, i64) = (so_far(run), run.cursor);
    let step = |trimmed: &TrimReport| (place.told)(trimmed.visitors, all).map(|()| (place.pause)());
    loop {
        if let failed @ Some(_) = clock_warning(run, (place.given)()?.now) {
            return Ok(JobReport { report: json!(trimmed), failed });
        }
        let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let Some((last, unforgotten)) = trim::trim_page(&tx, cursor, SOME, now, &mut trimmed)? else { break };
        cursor = last;
        if run.asked.dry_run {
            tx.rollback()?;
        } else {
            runs::save_cursor(&tx, run.no, cursor, &json!(trimmed))?;
            tx.commit()?;
            trim::forget_more_ids(place.conn, &unforgotten, now, &|| step(&trimmed))?;
        }
        step(&trimmed)?;
    }
    if !run.asked.dry_run {
        // What `steering` forgets some of each minute: of very many impressions without a visitor it leaves most.
        for tenant in place.rules.tenants.iter() {
            while spend::forget_orphan_actions(place.conn, tenant.no, now)? > 0 {
                step(&trimmed)?;
            }
        }
        trimmed.names +=
            forget_names::sweep_names(place.conn, place.rules, place.metrics, place.given, &|| step(&trimmed))?;
        forget_names::release_names(place.conn, place.rules, place.metrics, (place.given)()?)?;
    }
    place.to_the_end.store(true, Ordering::Relaxed);
    // By another's keys they would be written, and be noted as gone.
    if place.hands_out {
        old_lookups(place, run, cursor, &mut trimmed)?;
    }
    Ok(json!(trimmed).into())
}

/// Those of a key are counted when all of them are in the outbox: what a run that was cut put there is put there again.
pub(crate) fn old_lookups(
    place: &mut JobContext<'_>,
    run: &JobRun,
    cursor: i64,
    trimmed: &mut TrimReport,
) -> Result<(), StoreError> {
    let restored = lookups::restored_keys(place.conn, &place.rules.tenants)?;
    for retired in restored.into_iter().chain(lookups::retired_keys(place.conn, &place.rules.tenants)?) {
        let (mut after, mut count) = (None, 0);
        loop {
            let hashes = retired.some(place.conn, after, SOME)?;
            count += hashes.len() as u64;
            after = hashes.last().copied();
            let is_over = hashes.len() < SOME as usize;
            trimmed.lookups += if is_over && !retired.again { count } else { 0 };
            if !run.asked.dry_run {
                crate::store::write_txn::within_txn(
                    place.conn,
                    place.rules,
                    place.metrics,
                    (place.given)()?,
                    |group| {
                        group.rank = Priority::Bulk;
                        retired.write(group, &hashes)?;
                        if is_over {
                            retired.done(group)?;
                        }
                        runs::save_cursor(group.tx, run.no, cursor, &json!(trimmed))
                    },
                )?;
            }
            (place.told)(trimmed.visitors, trimmed.visitors)?;
            (place.pause)();
            if is_over {
                break;
            }
        }
    }
    Ok(())
}
