//! The job `trim`: deletes data of visitors that is no longer needed.

use crate::campaigns::spend;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, SOME, clock_warning, count_visitors, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::maintenance::forget_names;
use crate::maintenance::trim::{self, TrimReport, lookups};
use crate::store::VisitorRow;
use crate::store::job_error::JobError;
use crate::store::priority::Priority;
use rusqlite::TransactionBehavior;
use serde_json::json;
use std::sync::atomic::Ordering;

/// The job `trim`: deletes data of visitors that is no longer needed.
#[derive(Debug)]
pub(crate) struct TrimJob;

impl BackgroundJob for TrimJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        trim_store(context, run)
    }
}

/// A dry run does the same work in transactions that are rolled back. Its counts can be too low, because a sibling
/// still has the data that an earlier transaction would have deleted.
fn trim_store(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let (all, now) = (count_visitors(context.conn)?, run.since());
    let (mut trimmed, mut cursor): (TrimReport, VisitorRow) = (so_far(run), run.visitor_cursor());
    let step = |trimmed: &TrimReport| (context.report_progress)(trimmed.visitors, all).map(|()| (context.pause)());
    loop {
        if let failed @ Some(_) = clock_warning(run, (context.draw_inputs)()?.now) {
            return Ok(JobReport { report: json!(trimmed), failed });
        }
        let tx = context.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let Some((last, unforgotten)) = trim::trim_page(&tx, cursor, SOME, now, &mut trimmed)? else { break };
        cursor = last;
        if run.request.dry_run {
            tx.rollback()?;
        } else {
            runs::save_cursor(&tx, run.no, cursor.number(), &json!(trimmed))?;
            tx.commit()?;
            trim::forget_more_ids(context.conn, &unforgotten, now, &|| step(&trimmed))?;
        }
        step(&trimmed)?;
    }
    if !run.request.dry_run {
        // The traffic allocation deletes some of these each minute, which is not enough after very many anonymous
        // impressions.
        for tenant in context.rules.tenants.iter() {
            while spend::forget_orphan_actions(context.conn, tenant.no, now)? > 0 {
                step(&trimmed)?;
            }
        }
        trimmed.names +=
            forget_names::sweep_names(context.conn, context.rules, context.metrics, context.draw_inputs, &|| {
                step(&trimmed)
            })?;
        forget_names::release_names(context.conn, context.rules, context.metrics, (context.draw_inputs)()?)?;
    }
    context.non_preemptible.store(true, Ordering::Relaxed);
    // The serving origin may use other keys: it would write these lookups again although they are recorded as deleted.
    if context.hands_out {
        old_lookups(context, run, cursor, &mut trimmed)?;
    }
    Ok(json!(trimmed).into())
}

/// Deletes lookups under retired keys and republishes those under restored keys. A key's lookups are counted after all
/// of them are in the outbox; a resumed run puts them there again.
pub(crate) fn old_lookups(
    context: &mut JobContext<'_>,
    run: &JobRun,
    cursor: VisitorRow,
    trimmed: &mut TrimReport,
) -> Result<(), JobError> {
    let restored = lookups::restored_keys(context.conn, &context.rules.tenants)?;
    for retired in restored.into_iter().chain(lookups::retired_keys(context.conn, &context.rules.tenants)?) {
        let (mut after, mut count) = (None, 0);
        loop {
            let hashes = retired.some(context.conn, after, SOME)?;
            count += hashes.len() as u64;
            after = hashes.last().copied();
            let is_over = hashes.len() < SOME as usize;
            trimmed.lookups += if is_over && !retired.again { count } else { 0 };
            if !run.request.dry_run {
                crate::store::write_txn::within_txn(
                    context.conn,
                    context.rules,
                    context.metrics,
                    (context.draw_inputs)()?,
                    |group| {
                        group.priority = Priority::Bulk;
                        retired.write(group, &hashes)?;
                        if is_over {
                            retired.done(group)?;
                        }
                        runs::save_cursor(group.tx, run.no, cursor.number(), &json!(trimmed))
                    },
                )?;
            }
            (context.report_progress)(trimmed.visitors, trimmed.visitors)?;
            (context.pause)();
            if is_over {
                break;
            }
        }
    }
    Ok(())
}
