//! The part of a verification in a sync: keys for a consumer to read, and the results of its reads.

use causeway_shared::base::limits;
use causeway_shared::wire::sync::{ReadResult, VerifyRequest};

use crate::base::integers::{signed, unsigned};
use crate::kv::value;
use crate::outbox::kv_key::KvKey;
use crate::outbox::queue::LEASE_MS;
use crate::store::tables::verifications;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};

/// Most keys of catalogues, models and the like in one read: each may have megabytes, and a bulk read may have 25 MB.
const LARGE: u16 = 2;

/// Leases keys to a consumer that drains the outbox, each key to one consumer for a minute.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn hand_out(group: &WriteTxn<'_>, drain: u16) -> Result<Vec<VerifyRequest>, StoreError> {
    if drain == 0 {
        return Ok(Vec::new());
    }
    let mut keys = Vec::new();
    let rest = u16::try_from(limits::KV_KEYS).unwrap_or(u16::MAX) - LARGE;
    for (read, most) in
        [(verifications::VERIFICATIONS_DUE_LARGE, LARGE), (verifications::VERIFICATIONS_DUE_SMALL, rest)]
    {
        let mut statement = group.tx.prepare_cached(read)?;
        let mut rows = statement.query((signed(group.now), most))?;
        while let Some(row) = rows.next()? {
            let entry: i64 = row.get(0)?;
            let subject = KvKey::of_columns(row.get(2)?, row, 3)?;
            match group.rules.tenants.by_no(TenantNo(row.get(1)?)) {
                Ok(tenant) => {
                    keys.push(VerifyRequest { entry: unsigned(entry), key: value::key_text(tenant, subject) })
                }
                // The tenant is no longer configured.
                Err(_) => drop(group.tx.prepare_cached(verifications::VERIFICATIONS_DELETE)?.execute([entry])?),
            }
        }
    }
    let until = signed(group.now.saturating_add(LEASE_MS));
    for VerifyRequest { entry, .. } in &keys {
        group.tx.prepare_cached(verifications::VERIFICATIONS_LEASE)?.execute((
            signed(*entry),
            until,
            signed(group.now),
        ))?;
    }
    Ok(keys)
}

/// Stores an edge's results. A late or unrequested result is ignored.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn note_reads(group: &WriteTxn<'_>, read: &[ReadResult]) -> Result<(), StoreError> {
    for ReadResult { entry, sha256 } in read {
        group.tx.prepare_cached(verifications::VERIFICATIONS_SET_ANSWER)?.execute((
            signed(*entry),
            signed(group.now),
            sha256,
        ))?;
    }
    Ok(())
}

/// Number of keys that could be handed out now.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn pending_reads(group: &WriteTxn<'_>) -> Result<u64, StoreError> {
    Ok(group
        .tx
        .prepare_cached(verifications::VERIFICATIONS_COUNT_DUE)?
        .query_row([signed(group.now)], |row| row.get(0).map(unsigned))?)
}
