//! The values of a bulk batch, built from a read connection, and the bodies of its calls.

use std::collections::HashSet;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::planted::{self, PlantedBug};
use rusqlite::Connection;
use serde::Serialize;

use crate::audience::best_send_times::BestSendTimeCache;
use crate::base::error_chain;
use crate::base::metrics::Metrics;
use crate::kv::bulk::client::BulkOutcome;
use crate::kv::bulk::lease::{BulkLease, LeasedRow, PublishedValue, RowResult, SettledRow};
use crate::kv::snapshot::SnapshotBestSendTime;
use crate::kv::value::{self, KvValue};
use crate::kv::value_error::ValueError;
use crate::outbox::kv_key::KvKey;
use crate::store::StoreError;
use crate::store::tenants::{TenantContext, Tenants};

/// Size from which a body takes no further value, in bytes. The platform accepts 100 MB; a smaller body bounds the
/// memory of the origin.
const BODY_BYTES: usize = 32 << 20;
/// Rows that one read transaction builds. A long one would keep the write-ahead log from being emptied.
const TXN_ROWS: usize = 500;

/// A pair of the platform's bulk call.
#[derive(Serialize)]
struct KvPair<'a> {
    key: &'a str,
    value: &'a str,
}

/// The calls of a batch.
#[derive(Debug, Default)]
pub struct BulkBatch {
    /// Keys to write.
    pub puts: BulkBody,
    /// Keys to delete.
    pub deletes: BulkBody,
    /// Rows that are in neither call.
    pub unsent: Vec<SettledRow>,
}

/// The body of one call, and its rows.
#[derive(Debug, Default)]
pub struct BulkBody {
    /// A JSON array: pairs of key and value, or keys.
    pub json: Vec<u8>,
    /// The rows, in the order of the array.
    pub rows: Vec<SentRow>,
}

/// A row of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRow {
    /// The row.
    pub row: LeasedRow,
    /// Text of its key.
    pub key: String,
    /// What the store records once the value is acknowledged.
    pub value: PublishedValue,
}

impl BulkBody {
    fn push(&mut self, row: SentRow, element: &impl Serialize) -> Result<(), serde_json::Error> {
        self.json.push(if self.rows.is_empty() { b'[' } else { b',' });
        serde_json::to_writer(&mut self.json, element)?;
        self.rows.push(row);
        Ok(())
    }

    /// The results of the call's rows: none if the outcome is unknown, so that their lease expires.
    #[must_use]
    pub fn settled_rows(&self, outcome: &BulkOutcome) -> Vec<SettledRow> {
        let unsuccessful: &[String] = match outcome {
            BulkOutcome::Written { unsuccessful } => unsuccessful,
            BulkOutcome::Busy { .. } | BulkOutcome::Refused(_) => return self.unsent_rows(),
            BulkOutcome::Unknown(_) => return Vec::new(),
        };
        let failed: HashSet<&str> = if planted::is_active(PlantedBug::SettleUnsuccessfulKeys) {
            HashSet::new()
        } else {
            unsuccessful.iter().map(String::as_str).collect()
        };
        let result = |sent: &SentRow| match failed.contains(sent.key.as_str()) {
            true => RowResult::Failed,
            false => RowResult::Written(sent.value),
        };
        self.rows.iter().map(|sent| SettledRow { row: sent.row, result: result(sent) }).collect()
    }

    /// The results of a call that was not made.
    #[must_use]
    pub fn unsent_rows(&self) -> Vec<SettledRow> {
        self.rows.iter().map(|sent| SettledRow { row: sent.row, result: RowResult::Unsent }).collect()
    }

    /// Ends the array.
    fn close(&mut self) {
        if !self.rows.is_empty() {
            self.json.push(b']');
        }
    }
}

/// Builds the values of a lease. All have the lease's version, whatever changed since: a row that changed is due again.
///
/// # Errors
/// [`StoreError`], if the store cannot be read; then no value may be sent.
pub fn build_batch(
    conn: &mut Connection,
    tenants: &Tenants,
    metrics: &Metrics,
    lease: &BulkLease,
    now: Millis,
) -> Result<BulkBatch, StoreError> {
    let (mut batch, mut best) = (BulkBatch::default(), BestSendTimeCache::default());
    for rows in lease.rows.chunks(TXN_ROWS) {
        let txn = conn.transaction()?;
        for row in rows {
            if batch.puts.json.len() > BODY_BYTES {
                batch.unsent.push(SettledRow { row: *row, result: RowResult::Unsent });
                continue;
            }
            match build_row(&txn, tenants.by_no(row.tenant)?, lease, row, &mut best, now) {
                Ok(built) => batch.add(*row, built)?,
                Err(ValueError::Store(e)) if !e.is_of_a_value() => return Err(e),
                Err(e) => {
                    metrics.bad_values.inc();
                    tracing::error!(error = %error_chain(&e), "a KV value cannot be built, or failed its check, and is retried later");
                    batch.unsent.push(SettledRow { row: *row, result: RowResult::Postponed });
                }
            }
        }
    }
    batch.puts.close();
    batch.deletes.close();
    Ok(batch)
}

/// The value of a row, and its best send time.
fn build_row(
    conn: &Connection,
    tenant: &TenantContext,
    lease: &BulkLease,
    row: &LeasedRow,
    best: &mut BestSendTimeCache,
    now: Millis,
) -> Result<(KvValue, Option<u16>), ValueError> {
    let best = match row.key {
        KvKey::Snapshot(visitor) => best.compute_best_send_time(conn, tenant, visitor, now)?,
        _ => None,
    };
    let new = SnapshotBestSendTime::New(best);
    Ok((value::build_with_best_send_time(conn, tenant, row.key, lease.version, new, now)?, best))
}

impl BulkBatch {
    fn add(&mut self, row: LeasedRow, (built, best): (KvValue, Option<u16>)) -> Result<(), StoreError> {
        let KvValue { key, value, is_truncated } = built;
        let sent = SentRow { row, key: key.clone(), value: PublishedValue { is_truncated, best } };
        let pushed = match &value {
            Some(value) => self.puts.push(sent, &KvPair { key: &key, value }),
            None => self.deletes.push(sent, &key),
        };
        pushed.map_err(|_| StoreError::Corrupt { what: "text of a KV value" })
    }
}
