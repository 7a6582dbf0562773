//! Who was not seen for as long as its tenant says is forgotten: erased, as if it had asked for it itself (invariant 12).
//!
//! The visitor alone: a sibling that was seen stays, and so do alternate ids, under which the person may come back. The
//! tombstone stays for good, so that a browser which comes back after all begins anew.

use crate::base::job_kinds::JobKind;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, clock_warning, count_visitors, so_far};
use crate::jobs::runs::{self, JobRun};
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
use crate::store::{StoreCounters, StoreError, TenantNo, visitor_at};

/// Visitors looked at in one read.
const LOOKED_AT: u64 = 20_000;
/// Visitors erased in one transaction.
const AT_ONCE: usize = 250;

/// What a run came to so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RetentionReport {
    /// Visitors looked at.
    pub visitors: u64,
    /// Those that were not seen for too long.
    pub forgotten: u64,
}

/// Of each tenant that forgets: who was not seen since is forgotten.
pub type Policy = BTreeMap<TenantNo, Millis>;

/// The policy of the configured tenants.
#[must_use]
pub fn retention_policy(tenants: &Tenants, now: Millis) -> Policy {
    let days = tenants.iter().map(|known| (known.no, Millis::from(known.config.forget_after_days)));
    days.filter(|(_, days)| *days > 0).map(|(no, days)| (no, now.saturating_sub(days * DAY_MS))).collect()
}

/// Some visitors that were not seen for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenVisitors {
    /// The last row looked at.
    pub last: i64,
    /// How many were.
    pub looked_at: u64,
    /// Who is to be forgotten, [`AT_ONCE`] at most.
    pub visitors: Vec<(TenantNo, VisitorId)>,
}

/// Looks at the visitors after a row; `None` behind the last of all. Of whom the log holds something, or something is set aside,
/// is seen; `log` is a hold of before, so that nothing is missed that is folded meanwhile.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn unseen_visitors(
    conn: &Connection,
    log: &BacklogReader,
    policy: &Policy,
    after: i64,
) -> Result<Option<UnseenVisitors>, StoreError> {
    const READ: &str = "SELECT row, tenant, visitor, last_seen FROM visitors WHERE row > ?1 ORDER BY row LIMIT ?2";
    let mut statement = conn.prepare_cached(READ)?;
    let mut rows = statement.query([after, signed(LOOKED_AT)])?;
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

/// Whether a visitor was not seen for too long, nor told of where it never was; `seen` as its row says.
fn is_unseen(
    conn: &Connection,
    log: &BacklogReader,
    policy: &Policy,
    (tenant, visitor): (TenantNo, VisitorId),
    seen: Millis,
) -> Result<bool, StoreError> {
    let Some(since) = policy.get(&tenant).filter(|since| seen < **since) else { return Ok(false) };
    let last = if seen > 0 { Some(seen) } else { told_of(conn, tenant, visitor)? };
    let is_old = last.is_some_and(|last| last < *since) && log.facts(tenant, visitor, 0).is_empty();
    // Who withdrew is not seen by what comes late.
    let is_held = || {
        Ok::<_, StoreError>(
            quarantine::is_quarantined(conn, tenant, visitor)?
                && !crate::identity::changes::has_withdrawn(conn, tenant, visitor)?,
        )
    };
    Ok(is_old && !is_held()?)
}

/// When evidence told last of a visitor that was never seen; `None` where nothing is left to forget, as of a tombstone.
fn told_of(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Option<Millis>, StoreError> {
    Ok(link::of_visitor(conn, tenant, visitor)?.iter().map(|row| row.evidence.last).max())
}

/// The receipt of one transaction: the same for the same rows of the same run.
#[must_use]
pub fn erasure_receipt(run: i64, started: Millis, last: i64) -> FactId {
    FactId::of_message(VisitorId::NOBODY, &format!("retention {run} {started} {last}"))
}

/// Those that were not seen to this day: others may have come back since they were looked at. To be asked within the
/// transaction that erases them.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn still_unseen(
    tx: &Connection,
    log: &BacklogReader,
    policy: &Policy,
    visitors: &[(TenantNo, VisitorId)],
) -> Result<Vec<(TenantNo, VisitorId)>, StoreError> {
    const SEEN: &str = "SELECT last_seen FROM visitors WHERE tenant = ?1 AND visitor = ?2";
    let mut statement = tx.prepare_cached(SEEN)?;
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

/// Erases visitors under one receipt, and does something `more` in the same transaction, told how many they were.
///
/// # Errors
/// [`StoreError`]; then nothing was kept.
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
        // Nothing of them waits in the log; what is folded may still lie there.
        let in_log = StoreCounters::load(tx)?.folded();
        let record = LogRecord::bulk(visitors.iter().map(erasure).collect(), Attribution::by(RETENTION));
        Ok([Arc::new(LogRecord { in_log, ..record })])
    };
    commit::commit_with(conn, rules, metrics, given, records, &[], |tx| more(tx, count.get())).map(drop)
}

/// The job `retention`: erases visitors that were not seen for as long as their tenant says.
#[derive(Debug)]
pub(crate) struct RetentionJob;

impl BackgroundJob for RetentionJob {
    fn kind(&self) -> JobKind {
        JobKind::Retention
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        enforce_retention(place, run)
    }
}

fn enforce_retention(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    let policy = retention_policy(&place.rules.tenants, run.since());
    let all = count_visitors(place.conn)?;
    let (mut forgotten, mut cursor): (RetentionReport, i64) = (so_far(run), run.cursor);
    while !policy.is_empty() {
        let log = (place.backlog)()?.reader();
        let Some(unseen) = unseen_visitors(place.conn, &log, &policy, cursor)? else { break };
        cursor = unseen.last;
        forgotten.visitors += unseen.looked_at;
        if run.asked.dry_run {
            forgotten.forgotten += unseen.visitors.len() as u64;
        } else if !unseen.visitors.is_empty() {
            let receipt = erasure_receipt(run.no, run.since(), cursor);
            let (given, backlog) = ((place.given)()?, place.backlog);
            if let failed @ Some(_) = clock_warning(run, given.now) {
                return Ok(JobReport { report: json!(forgotten), failed });
            }
            let still = |tx: &Connection| still_unseen(tx, &backlog()?.reader(), &policy, &unseen.visitors);
            let keep = |tx: &Connection, erased| {
                forgotten.forgotten += erased;
                runs::save_cursor(tx, run.no, cursor, &json!(forgotten))
            };
            forget_visitors(place.conn, place.rules, place.metrics, given, receipt, still, keep)?;
            (place.pause)();
        } else {
            runs::save_cursor(place.conn, run.no, cursor, &json!(forgotten))?;
        }
        (place.told)(forgotten.visitors, all)?;
    }
    Ok(json!(forgotten).into())
}
