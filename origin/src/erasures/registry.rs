//! The registry of erasures: the erased visitors and alternate ids, and the KV keys and log records that each erasure
//! still waits for.

use crate::base::integers::{signed, unsigned};
use crate::outbox::kv_key::KvKey;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};
use causeway_shared::base::ids::{AltHash, FactId, KindCode, Millis, VisitorId};
use rusqlite::{Connection, OptionalExtension as _};
use serde_json::Value;
use serde_json::json;

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
    const READ: &str = "SELECT receipt FROM erased WHERE tenant = ?1 AND visitor = ?2";
    let mut statement = conn.prepare_cached(READ)?;
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
    const READ: &str = "SELECT at, receipt FROM erased_ids WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";
    let mut newest = None;
    let mut statement = conn.prepare_cached(READ)?;
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
    // The statements name their indices, because SQLite without statistics assumes ten rows per tenant.
    const OPEN: &str = "SELECT EXISTS (SELECT 1 FROM erasure_keys INDEXED BY erasure_keys_open WHERE written IS NULL)";
    const KEY: &str = "SELECT tenant, kind, subject FROM outbox WHERE lease = ?1 AND late <= ?2";
    const DONE: &str = "UPDATE erasure_keys INDEXED BY erasure_keys_open SET written = ?5
        WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND written IS NULL AND after < ?4";
    if applied.is_empty() || !group.tx.prepare_cached(OPEN)?.query_row([], |row| row.get::<_, bool>(0))? {
        return Ok(());
    }
    for entry in applied {
        let key = group.tx.prepare_cached(KEY)?.query_row([signed(*entry), signed(group.now)], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, u16>(1)?, row.get::<_, [u8; 16]>(2)?))
        });
        if let Some((tenant, kind, subject)) = key.optional()? {
            let now = signed(group.now);
            group.tx.prepare_cached(DONE)?.execute((tenant, kind, subject, signed(*entry), now))?;
        }
    }
    Ok(())
}

/// Adds a KV key to an erasure. The key is done once a value newer than the current version is written.
pub(crate) fn note_key(group: &WriteTxn<'_>, tenant: TenantNo, receipt: FactId, key: KvKey) -> Result<(), StoreError> {
    const PUT: &str = "INSERT INTO erasure_keys (tenant, receipt, kind, subject, after) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT DO UPDATE SET after = excluded.after, written = NULL, verified = NULL";
    let after = signed(group.version().counter);
    let (kind, subject) = key.columns();
    group.tx.prepare_cached(PUT)?.execute((tenant.0, receipt.as_bytes(), kind, subject, after))?;
    Ok(())
}

/// Makes an unfinished erasure wait for everything that an earlier erasure of the same people still waits for.
pub(crate) fn wait_for(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    receipt: FactId,
    earlier: FactId,
) -> Result<(), StoreError> {
    const COPY: &str = "INSERT OR IGNORE INTO erasure_keys (tenant, receipt, kind, subject, after, written)
        SELECT tenant, ?2, kind, subject, after, written FROM erasure_keys
        WHERE tenant = ?1 AND receipt = ?3 AND verified IS NULL AND ifnull(written, ?4) > ?5";
    // A running sweep adds its remaining keys to both erasures.
    const SWEPT: &str = "INSERT INTO erasure_sweeps (tenant, receipt, person, rounds)
        SELECT tenant, ?2, person, rounds FROM erasure_sweeps WHERE tenant = ?1 AND receipt = ?3
        ON CONFLICT DO UPDATE SET rounds = max(rounds, excluded.rounds)";
    // A write of long ago is visible at every location.
    let settled = signed(group.now.saturating_sub(group.rules.kv_settled_ms));
    let parameters = (tenant.0, receipt.as_bytes(), earlier.as_bytes(), signed(group.now).saturating_add(1), settled);
    group.tx.prepare_cached(COPY)?.execute(parameters)?;
    group.tx.prepare_cached(SWEPT)?.execute((tenant.0, receipt.as_bytes(), earlier.as_bytes()))?;
    Ok(())
}

/// Records that a key was read back with the store's value. This proves the erasures whose write of the key was visible
/// everywhere at the time `asked` of the read.
///
/// # Errors
/// [`StoreError::Sqlite`]; the caller must then roll back the transaction.
pub fn note_verified(group: &WriteTxn<'_>, tenant: TenantNo, key: KvKey, asked: Millis) -> Result<(), StoreError> {
    const PROVEN: &str = "UPDATE erasure_keys INDEXED BY erasure_keys_unverified SET verified = ?4
        WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND verified IS NULL AND written <= ?5";
    let (kind, subject) = key.columns();
    let settled = signed(asked.saturating_sub(group.rules.kv_settled_ms));
    group.tx.prepare_cached(PROVEN)?.execute((tenant.0, kind, subject, signed(group.now), settled))?;
    Ok(())
}

/// Records that a key lost its written value: erasures without proof of the key wait for it again.
///
/// # Errors
/// [`StoreError::Sqlite`]; the caller must then roll back the transaction.
pub fn note_unwritten(group: &WriteTxn<'_>, tenant: TenantNo, key: KvKey) -> Result<(), StoreError> {
    const AGAIN: &str = "UPDATE erasure_keys INDEXED BY erasure_keys_unverified SET written = NULL, after = ?4
        WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND verified IS NULL";
    let (kind, subject) = key.columns();
    let after = signed(group.version().counter);
    group.tx.prepare_cached(AGAIN)?.execute((tenant.0, kind, subject, after))?;
    Ok(())
}

/// Whether an erasure has this key and the key was not read back yet.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn is_unverified(conn: &Connection, tenant: TenantNo, key: KvKey) -> Result<bool, StoreError> {
    const READ: &str = "SELECT EXISTS (SELECT 1 FROM erasure_keys INDEXED BY erasure_keys_unverified
        WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND verified IS NULL)";
    let (kind, subject) = key.columns();
    Ok(conn.prepare_cached(READ)?.query_row((tenant.0, kind, subject), |row| row.get(0))?)
}

/// Whether an erasure waits for the removal of log records up to `upto`.
///
/// # Errors
/// [`StoreError`].
pub fn waits_for_log(conn: &Connection, upto: u64) -> Result<bool, StoreError> {
    const WAITING: &str = "SELECT EXISTS (SELECT 1 FROM erasures WHERE log IS NULL AND log_seq <= ?1)";
    Ok(conn.prepare_cached(WAITING)?.query_row([signed(upto)], |row| row.get(0))?)
}

/// Records that the log no longer holds records up to `upto`, for the erasures that wait for it.
///
/// # Errors
/// [`StoreError`].
pub fn left_log(conn: &Connection, upto: u64, now: Millis) -> Result<(), StoreError> {
    const GONE: &str = "UPDATE erasures SET log = ?2 WHERE log IS NULL AND log_seq <= ?1";
    conn.prepare_cached(GONE)?.execute([signed(upto), signed(now)])?;
    Ok(())
}

/// Number of the newest log record whose removal an erasure waits for; 0 if there is none.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn in_log(conn: &Connection) -> Result<u64, StoreError> {
    const NEWEST: &str = "SELECT ifnull(max(log_seq), 0) FROM erasures WHERE log IS NULL";
    Ok(conn.prepare_cached(NEWEST)?.query_row([], |row| row.get(0).map(unsigned))?)
}

/// Progress of an erasure as JSON; `None` for an unknown receipt.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn erasure_progress(conn: &Connection, tenant: TenantNo, receipt: FactId) -> Result<Option<Value>, StoreError> {
    const READ: &str = "SELECT asked, stored, log, EXISTS
            (SELECT 1 FROM erasure_sweeps s WHERE s.tenant = e.tenant AND s.receipt = e.receipt)
        FROM erasures e WHERE tenant = ?1 AND receipt = ?2";
    const KEYS: &str = "SELECT count(*), count(written), ifnull(max(written), 0), count(verified),
            ifnull(max(verified), 0) FROM erasure_keys
        WHERE tenant = ?1 AND receipt = ?2";
    let key = (tenant.0, receipt.as_bytes());
    let read = |row: &rusqlite::Row<'_>| {
        let log: Option<i64> = row.get(2)?;
        Ok((unsigned(row.get(0)?), unsigned(row.get(1)?), log.map(unsigned), row.get::<_, bool>(3)?))
    };
    let Some((asked, stored, log, is_swept)) = conn.prepare_cached(READ)?.query_row(key, read).optional()? else {
        return Ok(None);
    };
    let counts = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]);
    let [all, written, last, verified, proven] = conn.prepare_cached(KEYS)?.query_row(key, counts)?.map(unsigned);
    // Not all keys are known while a sweep runs.
    let done = log.filter(|_| !is_swept && all == written).map(|log| log.max(last).max(stored));
    Ok(Some(json!({
        "receipt": receipt.receipt(), "asked_ms": asked, "stored_ms": stored, "log_ms": log,
        "keys": {"all": all, "written": written, "verified": verified}, "done_ms": done,
        "verified_ms": done.filter(|_| all == verified).map(|done| done.max(proven)),
    })))
}

/// Whether an erasure with this receipt was ever requested.
pub(crate) fn is_known(conn: &Connection, tenant: TenantNo, receipt: FactId) -> Result<bool, StoreError> {
    const KNOWN: &str = "SELECT EXISTS (SELECT 1 FROM erasures WHERE tenant = ?1 AND receipt = ?2)";
    Ok(conn.prepare_cached(KNOWN)?.query_row((tenant.0, receipt.as_bytes()), |row| row.get(0))?)
}
