//! The job `retention`: erases visitors that were not seen for the tenant's retention period, in the same way as on
//! request (invariant 12).
//!
//! Only the visitor itself is erased. Its active siblings stay, and so do alternate ids, under which the person may
//! return. The tombstone is permanent: a browser that returns gets a new visitor.

use crate::jobs::context::{BackgroundJob, JobContext, JobReport, clock_warning, count_visitors, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::store::job_error::JobError;
use crate::store::tables::visitors;
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_shared::base::ids::{FactId, Millis, VisitorId};
use causeway_shared::base::time::DAY_MS;
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};

use crate::base::attribution::{Attribution, RETENTION};
use crate::base::integers::{signed, unsigned};
use crate::base::metrics::Metrics;
use crate::identity::link;
use crate::ingest::backlog::BacklogReader;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::pipeline::commit;
use crate::profiles::quarantine;
use crate::store::tenants::Tenants;
use crate::store::write_txn::{TxnInputs, TxnRules};
use crate::store::{RunNo, StoreCounters, StoreError, TenantNo, VisitorRow, visitor_at};

/// Most visitors checked in one read.
const LOOKED_AT: u64 = 20_000;
/// Most visitors erased in one transaction.
const AT_ONCE: usize = 250;

/// Report of a run so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RetentionReport {
    /// Visitors checked.
    pub visitors: u64,
    /// Visitors erased.
    pub forgotten: u64,
}

/// For each tenant with a retention period: the time before which a visitor must have been seen last to be erased.
pub type Policy = BTreeMap<TenantNo, Millis>;

/// The retention policy of the configured tenants.
#[must_use]
pub fn retention_policy(tenants: &Tenants, now: Millis) -> Policy {
    let days = tenants.iter().map(|known| (known.no, Millis::from(known.config.forget_after_days)));
    days.filter(|(_, days)| *days > 0).map(|(no, days)| (no, now.saturating_sub(days * DAY_MS))).collect()
}

/// Visitors to erase from one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenVisitors {
    /// The last row checked.
    pub last: VisitorRow,
    /// Number of rows checked.
    pub looked_at: u64,
    /// Visitors to erase, at most [`AT_ONCE`].
    pub visitors: Vec<(TenantNo, VisitorId)>,
}

/// Finds visitors to erase after a row; `None` after the last row. A visitor with facts in the log or in quarantine
/// counts as seen. `log` must be taken before the read, so that facts folded in between are not missed.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn unseen_visitors(
    conn: &Connection,
    log: &BacklogReader,
    policy: &Policy,
    after: VisitorRow,
) -> Result<Option<UnseenVisitors>, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_PAGE_WITH_LAST_SEEN)?;
    let mut rows = statement.query((after, signed(LOOKED_AT)))?;
    let mut found = UnseenVisitors { last: after, looked_at: 0, visitors: Vec::new() };
    while let Some(row) = rows.next()? {
        let (of, seen) = ((TenantNo(row.get(1)?), visitor_at(row, 2)?), unsigned(row.get(3)?));
        found.last = row.get(0)?;
        found.looked_at += 1;
        if is_unseen(conn, log, policy, of, seen)? {
            found.visitors.push(of);
        }
        if found.visitors.len() == AT_ONCE {
            break;
        }
    }
    Ok((found.looked_at > 0).then_some(found))
}

/// Whether a visitor was not seen within the retention period. A visitor that was never seen counts by its newest
/// evidence. `seen` is the time in its row.
fn is_unseen(
    conn: &Connection,
    log: &BacklogReader,
    policy: &Policy,
    (tenant, visitor): (TenantNo, VisitorId),
    seen: Millis,
) -> Result<bool, StoreError> {
    let Some(since) = policy.get(&tenant).filter(|since| seen < **since) else { return Ok(false) };
    let last = if seen > 0 { Some(seen) } else { last_evidence(conn, tenant, visitor)? };
    let is_old = last.is_some_and(|last| last < *since) && log.facts(tenant, visitor, 0).is_empty();
    // Late facts of a withdrawn visitor do not count as seen.
    let is_held = || {
        Ok::<_, StoreError>(
            quarantine::is_quarantined(conn, tenant, visitor)?
                && !crate::identity::changes::has_withdrawn(conn, tenant, visitor)?,
        )
    };
    Ok(is_old && !is_held()?)
}

/// Time of the newest evidence of a visitor that was never seen; `None` if there is none, as for a tombstone.
fn last_evidence(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Option<Millis>, StoreError> {
    Ok(link::of_visitor(conn, tenant, visitor)?.iter().map(|row| row.evidence.last).max())
}

/// Receipt of one transaction. It is the same for the same rows of the same run.
#[must_use]
pub fn erasure_receipt(run: RunNo, started: Millis, last: VisitorRow) -> FactId {
    FactId::of_message(VisitorId::ANONYMOUS, &format!("retention {run} {started} {last}"))
}

/// The visitors that still were not seen. To be called in the transaction that erases them, because some may have
/// returned since they were found.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn still_unseen(
    tx: &Connection,
    log: &BacklogReader,
    policy: &Policy,
    visitors: &[(TenantNo, VisitorId)],
) -> Result<Vec<(TenantNo, VisitorId)>, StoreError> {
    let mut statement = tx.prepare_cached(visitors::VISITORS_LAST_SEEN_OF_ID)?;
    let mut still = Vec::new();
    for (tenant, visitor) in visitors {
        let seen: Option<i64> = statement.query_row((tenant.0, visitor.as_bytes()), |row| row.get(0)).optional()?;
        if let Some(seen) = seen.map(unsigned)
            && is_unseen(tx, log, policy, (*tenant, *visitor), seen)?
        {
            still.push((*tenant, *visitor));
        }
    }
    Ok(still)
}

/// Erases visitors under one receipt, and calls `more` in the same transaction with their number.
///
/// # Errors
/// [`StoreError`]; nothing was stored.
pub fn forget_visitors(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    given: TxnInputs,
    receipt: FactId,
    visitors: impl FnOnce(&Connection) -> Result<Vec<(TenantNo, VisitorId)>, StoreError>,
    more: impl FnOnce(&Connection, u64) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let count = Cell::new(0);
    let erasure = |(tenant, visitor): &(TenantNo, VisitorId)| {
        let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
        let fact = Fact { position: 0, id: receipt, visitor: *visitor, received: given.now, at: given.now, what };
        CheckedFact { tenant: *tenant, fact }
    };
    let records = |tx: &Connection| {
        let visitors = visitors(tx)?;
        count.set(visitors.len() as u64);
        // The log holds no unfolded facts of these visitors, but may still hold folded ones.
        let in_log = StoreCounters::load(tx)?.folded();
        let record = LogRecord::bulk(visitors.iter().map(erasure).collect(), Attribution::by(RETENTION));
        Ok([Arc::new(LogRecord { in_log, ..record })])
    };
    commit::commit_with(conn, rules, metrics, given, records, &[], |tx| more(tx, count.get())).map(drop)
}

/// The job `retention`: erases visitors that were not seen within the retention period.
#[derive(Debug)]
pub(crate) struct RetentionJob;

impl BackgroundJob for RetentionJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        enforce_retention(context, run)
    }
}

fn enforce_retention(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let policy = retention_policy(&context.rules.tenants, run.since());
    let all = count_visitors(context.conn)?;
    let (mut forgotten, mut cursor): (RetentionReport, VisitorRow) = (so_far(run), run.visitor_cursor());
    while !policy.is_empty() {
        let log = (context.backlog)()?.reader();
        let Some(unseen) = unseen_visitors(context.conn, &log, &policy, cursor)? else { break };
        cursor = unseen.last;
        forgotten.visitors += unseen.looked_at;
        if run.request.dry_run {
            forgotten.forgotten += unseen.visitors.len() as u64;
        } else if !unseen.visitors.is_empty() {
            let receipt = erasure_receipt(run.no, run.since(), cursor);
            let (given, backlog) = ((context.draw_inputs)()?, context.backlog);
            if let failed @ Some(_) = clock_warning(run, given.now) {
                return Ok(JobReport { report: json!(forgotten), failed });
            }
            let still = |tx: &Connection| still_unseen(tx, &backlog()?.reader(), &policy, &unseen.visitors);
            let keep = |tx: &Connection, erased| {
                forgotten.forgotten += erased;
                runs::save_cursor(tx, run.no, cursor.number(), &json!(forgotten))
            };
            forget_visitors(context.conn, context.rules, context.metrics, given, receipt, still, keep)?;
            (context.pause)();
        } else {
            runs::save_cursor(context.conn, run.no, cursor.number(), &json!(forgotten))?;
        }
        (context.report_progress)(forgotten.visitors, all)?;
    }
    Ok(json!(forgotten).into())
}
