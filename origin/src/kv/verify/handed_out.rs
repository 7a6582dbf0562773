//! The part of a verification in a sync: keys for a consumer to read, and the results of its reads.

use causeway_shared::base::limits;
use causeway_shared::wire::sync::{ReadResult, VerifyRequest};

use super::DONE;
use crate::base::integers::{signed, unsigned};
use crate::kv::value;
use crate::outbox::kv_key::KvKey;
use crate::outbox::queue::LEASE_MS;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};

/// Most keys of catalogues, models and the like in one read: each may have megabytes, and a bulk read may have 25 MB.
const LARGE: u16 = 2;

/// Leases keys to a consumer that drains the outbox, each key to one consumer for a minute.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn hand_out(group: &WriteTxn<'_>, drain: u16) -> Result<Vec<VerifyRequest>, StoreError> {
    const LARGE_ONES: &str = "SELECT entry, tenant, kind, subject FROM verifications WHERE answered IS NULL
        AND due <= ?1 AND leased_until <= ?1 AND kind > 255 ORDER BY due, entry LIMIT ?2";
    const OTHERS: &str = "SELECT entry, tenant, kind, subject FROM verifications WHERE answered IS NULL
        AND due <= ?1 AND leased_until <= ?1 AND kind <= 255 ORDER BY due, entry LIMIT ?2";
    const LEASE: &str = "UPDATE verifications SET leased_until = ?2, asked = ifnull(asked, ?3) WHERE entry = ?1";
    if drain == 0 {
        return Ok(Vec::new());
    }
    let mut keys = Vec::new();
    let rest = u16::try_from(limits::KV_KEYS).unwrap_or(u16::MAX) - LARGE;
    for (read, most) in [(LARGE_ONES, LARGE), (OTHERS, rest)] {
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
                Err(_) => drop(group.tx.prepare_cached(DONE)?.execute([entry])?),
            }
        }
    }
    let until = signed(group.now.saturating_add(LEASE_MS));
    for VerifyRequest { entry, .. } in &keys {
        group.tx.prepare_cached(LEASE)?.execute((signed(*entry), until, signed(group.now)))?;
    }
    Ok(keys)
}

/// Stores an edge's results. A late or unrequested result is ignored.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn note_reads(group: &WriteTxn<'_>, read: &[ReadResult]) -> Result<(), StoreError> {
    const ANSWER: &str = "UPDATE verifications SET answered = ?2, sha256 = ?3
        WHERE entry = ?1 AND asked IS NOT NULL AND answered IS NULL";
    for ReadResult { entry, sha256 } in read {
        group.tx.prepare_cached(ANSWER)?.execute((signed(*entry), signed(group.now), sha256))?;
    }
    Ok(())
}

/// Number of keys that could be handed out now.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn pending_reads(group: &WriteTxn<'_>) -> Result<u64, StoreError> {
    const COUNT: &str = "SELECT count(*) FROM verifications
        WHERE answered IS NULL AND due <= ?1 AND leased_until <= ?1";
    Ok(group.tx.prepare_cached(COUNT)?.query_row([signed(group.now)], |row| row.get(0).map(unsigned))?)
}
