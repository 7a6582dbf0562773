//! The registry of erasures: the erased visitors and alternate ids, and the KV keys and log records that each erasure
//! still waits for.

use crate::base::integers::{signed, unsigned};
use crate::outbox::kv_key::KvKey;
use crate::store::tables::{erased, erased_ids, erasure_keys, erasure_sweeps, erasures, outbox};
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};
use causeway_shared::base::ids::{AltHash, FactId, KindCode, Millis, VisitorId};
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use utoipa::ToSchema;

/// Whether a visitor is erased.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn is_erased(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<bool, StoreError> {
    Ok(erased_by(conn, tenant, visitor)?.is_some())
}

/// Receipt of the erasure that erased a visitor; `None` if the visitor is not erased.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn erased_by(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Option<FactId>, StoreError> {
    let mut statement = conn.prepare_cached(erased::ERASED_RECEIPT_OF_VISITOR)?;
    let found = statement.query_row((tenant.0, visitor.as_bytes()), |row| row.get(0).map(FactId::from_bytes));
    Ok(found.optional()?)
}

/// Newest erasure of an id under any of these hashes: the time up to which the id is erased, and the receipt.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn id_erased(
    conn: &Connection,
    tenant: TenantNo,
    kind: KindCode,
    hashes: impl IntoIterator<Item = AltHash>,
) -> Result<Option<(Millis, FactId)>, StoreError> {
    let mut newest = None;
    let mut statement = conn.prepare_cached(erased_ids::ERASED_IDS_BY_HASH)?;
    for hash in hashes {
        let found = statement
            .query_row((tenant.0, kind.0, &hash.0), |row| Ok((unsigned(row.get(0)?), FactId::from_bytes(row.get(1)?))));
        newest = newest.max(found.optional()?);
    }
    Ok(newest)
}

/// Records that these leases were written to the KV. The erasure keys among them are done, except where an earlier
/// consumer may still write an older value.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn note_written(group: &WriteTxn<'_>, applied: &[u64]) -> Result<(), StoreError> {
    if applied.is_empty()
        || !group
            .tx
            .prepare_cached(erasure_keys::ERASURE_KEYS_ANY_UNWRITTEN)?
            .query_row([], |row| row.get::<_, bool>(0))?
    {
        return Ok(());
    }
    for entry in applied {
        mark_written(group, outbox::OUTBOX_KEY_OF_LEASE, (signed(*entry), signed(group.now)), *entry)?;
    }
    Ok(())
}

/// Records that these rows of the outbox were written to the KV under one version, as [`note_written`] does.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn note_rows_written(
    group: &WriteTxn<'_>,
    version: u64,
    rows: impl IntoIterator<Item = i64>,
) -> Result<(), StoreError> {
    if !group.tx.prepare_cached(erasure_keys::ERASURE_KEYS_ANY_UNWRITTEN)?.query_row([], |row| row.get(0))? {
        return Ok(());
    }
    for row in rows {
        mark_written(group, outbox::OUTBOX_KEY_OF_ROW, (row, signed(version), signed(group.now)), version)?;
    }
    Ok(())
}

/// Marks the key that a statement finds as written with a version.
fn mark_written(
    group: &WriteTxn<'_>,
    statement: &str,
    parameters: impl rusqlite::Params,
    version: u64,
) -> Result<(), StoreError> {
    let key = group
        .tx
        .prepare_cached(statement)?
        .query_row(parameters, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, u16>(1)?, row.get::<_, [u8; 16]>(2)?)));
    if let Some((tenant, kind, subject)) = key.optional()? {
        let values = (tenant, kind, subject, signed(version), signed(group.now));
        group.tx.prepare_cached(erasure_keys::ERASURE_KEYS_MARK_WRITTEN)?.execute(values)?;
    }
    Ok(())
}

/// Adds a KV key to an erasure. The key is done once a value newer than the current version is written.
pub(crate) fn note_key(group: &WriteTxn<'_>, tenant: TenantNo, receipt: FactId, key: KvKey) -> Result<(), StoreError> {
    let after = signed(group.version().counter);
    let (kind, subject) = key.columns();
    group.tx.prepare_cached(erasure_keys::ERASURE_KEYS_UPSERT)?.execute((
        tenant.0,
        receipt.as_bytes(),
        kind,
        subject,
        after,
    ))?;
    Ok(())
}

/// Makes an unfinished erasure wait for everything that an earlier erasure of the same people still waits for.
pub(crate) fn wait_for(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    receipt: FactId,
    earlier: FactId,
) -> Result<(), StoreError> {
    // A write of long ago is visible at every location.
    let settled = signed(group.now.saturating_sub(group.rules.kv_settled_ms));
    let parameters = (tenant.0, receipt.as_bytes(), earlier.as_bytes(), signed(group.now).saturating_add(1), settled);
    group.tx.prepare_cached(erasure_keys::ERASURE_KEYS_COPY_UNSETTLED)?.execute(parameters)?;
    group.tx.prepare_cached(erasure_sweeps::ERASURE_SWEEPS_COPY_OF_ERASURE)?.execute((
        tenant.0,
        receipt.as_bytes(),
        earlier.as_bytes(),
    ))?;
    Ok(())
}

/// Records that a key was read back with the store's value. This proves the erasures whose write of the key was visible
/// everywhere at the time `asked` of the read.
///
/// # Errors
/// [`StoreError::Sqlite`]; the caller must then roll back the transaction.
pub fn note_verified(group: &WriteTxn<'_>, tenant: TenantNo, key: KvKey, asked: Millis) -> Result<(), StoreError> {
    let (kind, subject) = key.columns();
    let settled = signed(asked.saturating_sub(group.rules.kv_settled_ms));
    group.tx.prepare_cached(erasure_keys::ERASURE_KEYS_MARK_VERIFIED)?.execute((
        tenant.0,
        kind,
        subject,
        signed(group.now),
        settled,
    ))?;
    Ok(())
}

/// Records that a key lost its written value: erasures without proof of the key wait for it again.
///
/// # Errors
/// [`StoreError::Sqlite`]; the caller must then roll back the transaction.
pub fn note_unwritten(group: &WriteTxn<'_>, tenant: TenantNo, key: KvKey) -> Result<(), StoreError> {
    let (kind, subject) = key.columns();
    let after = signed(group.version().counter);
    group.tx.prepare_cached(erasure_keys::ERASURE_KEYS_MARK_UNWRITTEN)?.execute((tenant.0, kind, subject, after))?;
    Ok(())
}

/// Whether an erasure has this key and the key was not read back yet.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn is_unverified(conn: &Connection, tenant: TenantNo, key: KvKey) -> Result<bool, StoreError> {
    let (kind, subject) = key.columns();
    Ok(conn
        .prepare_cached(erasure_keys::ERASURE_KEYS_IS_UNVERIFIED)?
        .query_row((tenant.0, kind, subject), |row| row.get(0))?)
}

/// Whether an erasure waits for the removal of log records up to `upto`.
///
/// # Errors
/// [`StoreError`].
pub fn waits_for_log(conn: &Connection, upto: u64) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(erasures::ERASURES_ANY_IN_LOG_UP_TO)?.query_row([signed(upto)], |row| row.get(0))?)
}

/// Records that the log no longer holds records up to `upto`, for the erasures that wait for it.
///
/// # Errors
/// [`StoreError`].
pub fn left_log(conn: &Connection, upto: u64, now: Millis) -> Result<(), StoreError> {
    conn.prepare_cached(erasures::ERASURES_MARK_OUT_OF_LOG)?.execute([signed(upto), signed(now)])?;
    Ok(())
}

/// Number of the newest log record whose removal an erasure waits for; `None` if there is none.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn in_log(conn: &Connection) -> Result<Option<u64>, StoreError> {
    let newest =
        conn.prepare_cached(erasures::ERASURES_LAST_LOG_RECORD)?.query_row([], |row| row.get(0).map(unsigned))?;
    // An erasure that waits for no record has the number 0.
    Ok(Some(newest).filter(|newest| *newest > 0))
}

/// The progress of an erasure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErasureProgress {
    /// Receipt of the erasure.
    #[schema(format = "uuid")]
    pub receipt: String,
    /// Time of the request.
    pub requested_ms: u64,
    /// Time at which the store held nothing of it any more.
    pub stored_ms: u64,
    /// Time at which its record left the log; null before.
    pub log_ms: Option<u64>,
    /// The KV keys that may name the erased visitors.
    pub keys: ErasureKeys,
    /// Time at which all steps were done; null before. A login from before the erasure that arrives late, or a key that
    /// the job `verify` finds different, makes it null again until that is erased too.
    pub done_ms: Option<u64>,
    /// Time at which the last key was read back, which proves that the erasure is done; null before.
    pub verified_ms: Option<u64>,
}

/// The KV keys that may name the erased visitors: their own, and the snapshots of siblings and the lookups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErasureKeys {
    /// Number of the keys.
    pub all: u64,
    /// Keys that were written again since the erasure, and acknowledged.
    pub written: u64,
    /// Keys that the job `verify` read back, at least two minutes after the write, and found equal to the store.
    pub verified: u64,
}

/// Progress of an erasure; `None` for an unknown receipt.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn erasure_progress(
    conn: &Connection,
    tenant: TenantNo,
    receipt: FactId,
) -> Result<Option<ErasureProgress>, StoreError> {
    let key = (tenant.0, receipt.as_bytes());
    let read = |row: &rusqlite::Row<'_>| {
        let log: Option<i64> = row.get(2)?;
        Ok((unsigned(row.get(0)?), unsigned(row.get(1)?), log.map(unsigned), row.get::<_, bool>(3)?))
    };
    let Some((asked, stored, log, is_swept)) =
        conn.prepare_cached(erasures::ERASURES_PROGRESS)?.query_row(key, read).optional()?
    else {
        return Ok(None);
    };
    let counts = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]);
    let [all, written, last, verified, proven] =
        conn.prepare_cached(erasure_keys::ERASURE_KEYS_PROGRESS_OF_ERASURE)?.query_row(key, counts)?.map(unsigned);
    // Not all keys are known while a sweep runs.
    let done = log.filter(|_| !is_swept && all == written).map(|log| log.max(last).max(stored));
    Ok(Some(ErasureProgress {
        receipt: receipt.receipt(),
        requested_ms: asked,
        stored_ms: stored,
        log_ms: log,
        keys: ErasureKeys { all, written, verified },
        done_ms: done,
        verified_ms: done.filter(|_| all == verified).map(|done| done.max(proven)),
    }))
}

/// Whether an erasure with this receipt was ever requested.
pub(crate) fn is_known(conn: &Connection, tenant: TenantNo, receipt: FactId) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(erasures::ERASURES_EXISTS)?.query_row((tenant.0, receipt.as_bytes()), |row| row.get(0))?)
}
