//! The transactions of a bulk batch: its lease, and the settlement of its rows.

use causeway_shared::base::ids::{Millis, SnapshotVersion, VisitorId};

use crate::base::integers::signed;
use crate::erasures::registry;
use crate::kv::publish::collect_due_rows;
use crate::outbox::fair_queue::DueRow;
use crate::outbox::kv_key::KvKey;
use crate::outbox::queue::{LATE_MS, LEASE_MS};
use crate::store::priority::Priority;
use crate::store::tables::{outbox, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};

/// Most keys of one bulk call, by the platform's documentation.
pub const MOST_KEYS: usize = 10_000;
/// Fewest due keys that make a batch; fewer keys are left to the publish consumer, which has them written sooner.
pub const FEWEST_KEYS: usize = 1_000;
/// Pause before a key that could not be built or written is tried again, in milliseconds.
const RETRY_MS: u64 = 60_000;
/// Age of a lease up to which its values are sent, in milliseconds. With the 30 s of a call it is below the time of a
/// lease.
const SEND_MS: u64 = 25_000;
/// Priorities of keys that are published in bulk: all but those of whole tenants.
const PRIORITIES: [Priority; 3] = [Priority::Leaving, Priority::News, Priority::Bulk];

/// A call of the bulk publisher, served in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BulkRequest {
    /// The result of an earlier batch.
    pub settlement: Option<BulkSettlement>,
    /// Most rows to lease, 0 to [`MOST_KEYS`].
    pub wanted: usize,
    /// Fewest due rows for which rows are leased at all.
    pub fewest: usize,
}

/// Rows that are leased together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkLease {
    /// The version of all values, and the number of the lease.
    pub version: SnapshotVersion,
    /// Time of the lease.
    pub since: Millis,
    /// The rows, the most urgent first.
    pub rows: Vec<LeasedRow>,
}

impl BulkLease {
    /// Whether the values may still be sent at `now`: a call that begins in time ends before the lease expires.
    #[must_use]
    pub fn is_sendable(&self, now: Millis) -> bool {
        now.saturating_sub(self.since) <= SEND_MS
    }
}

/// A leased row of the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasedRow {
    /// Number of the row.
    pub row: i64,
    /// Tenant of the key.
    pub tenant: TenantNo,
    /// The key.
    pub key: KvKey,
}

/// The result of a batch for each of its rows. A row that is left out stays leased until the lease expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkSettlement {
    /// The version of the lease.
    pub version: SnapshotVersion,
    /// The rows.
    pub rows: Vec<SettledRow>,
}

/// A row of a batch and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettledRow {
    /// The row.
    pub row: LeasedRow,
    /// Its result.
    pub result: RowResult,
}

/// The result for a row of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowResult {
    /// The platform acknowledged the value.
    Written(PublishedValue),
    /// The value was not sent; the row is due again at once.
    Unsent,
    /// The value could not be built and is tried again after a minute.
    Postponed,
    /// The platform reported the write as unsuccessful. It may have happened in part, so that the row is written again
    /// after a minute, and once more after the time of late writers.
    Failed,
}

/// The properties of a published value that the store records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublishedValue {
    /// Whether it is a truncated snapshot.
    pub is_truncated: bool,
    /// The best send time in the snapshot, packed.
    pub best: Option<u16>,
}

/// The answer to a call of the bulk publisher.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BulkAnswer {
    /// The leased rows; `None` if too few rows are due.
    pub lease: Option<BulkLease>,
    /// Number of rows that the settlement settled.
    pub settled: u64,
}

/// Settles an earlier batch and leases the next one.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn serve_request(group: &mut WriteTxn<'_>, request: &BulkRequest) -> Result<BulkAnswer, StoreError> {
    let settled = request.settlement.as_ref().map_or(Ok(0), |settlement| settle_rows(group, settlement))?;
    Ok(BulkAnswer { lease: lease_rows(group, request.wanted, request.fewest)?, settled })
}

/// Leases at most `wanted` due rows under one new version; `None` if fewer than `fewest` are due.
fn lease_rows(group: &mut WriteTxn<'_>, wanted: usize, fewest: usize) -> Result<Option<BulkLease>, StoreError> {
    if wanted == 0 {
        return Ok(None);
    }
    let due = collect_due_rows(group, &PRIORITIES, wanted.min(MOST_KEYS))?;
    if due.len() < fewest.max(1) {
        return Ok(None);
    }
    let version = group.next_version();
    let [until, late] = [LEASE_MS, LATE_MS].map(|after| signed(group.now.saturating_add(after)));
    let mut lease = group.tx.prepare_cached(outbox::OUTBOX_LEASE)?;
    for DueRow { row, .. } in &due {
        lease.execute((row, signed(version.counter), until, signed(group.now), late))?;
    }
    let rows = due.into_iter().map(|DueRow { row, tenant, subject, .. }| LeasedRow { row, tenant, key: subject });
    Ok(Some(BulkLease { version, since: group.now, rows: rows.collect() }))
}

/// Records the results of a batch, and returns the number of settled rows. A row whose lease has expired and that was
/// leased again is left as it is, because its next writer settles it.
fn settle_rows(group: &WriteTxn<'_>, settlement: &BulkSettlement) -> Result<u64, StoreError> {
    let version = settlement.version.counter;
    let written = settlement.rows.iter().filter(|row| matches!(row.result, RowResult::Written(_)));
    registry::note_rows_written(group, version, written.map(|row| row.row.row))?;
    let (now, retry) = (signed(group.now), signed(group.now.saturating_add(RETRY_MS)));
    let mut settled = 0;
    for SettledRow { row: LeasedRow { row, tenant, key }, result } in &settlement.rows {
        let (statement, time) = match result {
            RowResult::Written(_) => (outbox::OUTBOX_SETTLE_ROW, now),
            RowResult::Unsent => (outbox::OUTBOX_RELEASE_ROW, now),
            RowResult::Postponed => (outbox::OUTBOX_RELEASE_ROW, retry),
            RowResult::Failed => (outbox::OUTBOX_EXPIRE_ROW, retry),
        };
        let held = group.tx.prepare_cached(statement)?.execute((row, signed(version), time))?;
        if let (RowResult::Written(value), KvKey::Snapshot(visitor)) = (result, key) {
            note_published(group, *tenant, *visitor, version, *value)?;
        }
        settled += if matches!(result, RowResult::Written(_)) { held as u64 } else { 0 };
    }
    Ok(settled)
}

fn note_published(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    version: u64,
    value: PublishedValue,
) -> Result<(), StoreError> {
    let PublishedValue { is_truncated, best } = value;
    let values = (tenant.0, visitor.as_bytes(), signed(version), is_truncated, best);
    group.tx.prepare_cached(visitors::VISITORS_MARK_PUBLISHED_IN_BULK)?.execute(values)?;
    Ok(())
}
