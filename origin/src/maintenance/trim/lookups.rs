//! Deletes the lookups of retired keys from the KV. No edge reads or writes them, and they name visitors under hashes
//! of a key that may have leaked. The store retains the hashes, so that a late fact under one still finds its id.

use causeway_shared::base::ids::{AltHash, KindCode};
use rusqlite::Connection;

use crate::outbox::kv_key::KvKey;
use crate::store::tables::{lookups, retired_keys};
use crate::store::tenants::Tenants;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo, hash_at};

/// The ids of one kind under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredKeys {
    tenant: TenantNo,
    kind: KindCode,
    key: u8,
    /// Whether the key was configured again and is read again.
    pub again: bool,
}

/// Keys that are no longer configured and whose lookups are not deleted yet. A tenant without any key is skipped,
/// because that indicates an error in the key file.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn retired_keys(conn: &Connection, tenants: &Tenants) -> Result<Vec<RetiredKeys>, StoreError> {
    let mut found = Vec::new();
    for known in tenants.iter().filter(|known| !known.keys.alternate.0.is_empty()) {
        for kind in known.config.kinds.iter().map(|kind| kind.code()) {
            for key in 0..=u8::MAX {
                let retired = RetiredKeys { tenant: known.no, kind, key, again: false };
                let is_read = known.keys.alternate.by_id(key).is_some();
                if !is_read
                    && !conn.prepare_cached(retired_keys::RETIRED_KEYS_EXISTS)?.exists((known.no.0, kind.0, key))?
                    && !retired.some(conn, None, 1)?.is_empty()
                {
                    found.push(retired);
                }
            }
        }
    }
    Ok(found)
}

impl RetiredKeys {
    /// At most `most` hashes after the given one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn some(&self, conn: &Connection, after: Option<AltHash>, most: u32) -> Result<Vec<AltHash>, StoreError> {
        // The byte of a key id sorts before all hashes that begin with it, and the next key's byte after them.
        let from = after.map_or_else(|| vec![self.key], |after| after.0.to_vec());
        let to = self.key.checked_add(1).map_or_else(|| vec![u8::MAX; 17], |next| vec![next]);
        let mut statement = conn.prepare_cached(lookups::LOOKUPS_HASHES_IN_RANGE_WITH_ALTERNATES)?;
        let rows = statement.query_map((self.tenant.0, self.kind.0, from, to, most), |row| hash_at(row, 0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Makes the lookups due: they are deleted, or written again if the key is read again.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing of the group may be committed.
    pub fn write(&self, group: &mut WriteTxn<'_>, hashes: &[AltHash]) -> Result<(), StoreError> {
        // A version above that of a write in progress.
        group.next_version();
        let lookup = |hash: &AltHash| KvKey::Lookup(self.kind, *hash);
        hashes.iter().try_for_each(|hash| crate::outbox::queue::put_key(group, self.tenant, lookup(hash), group.now))
    }

    /// Records that all lookups of the key are deleted, or that none is because the key is read again.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing of the group may be committed.
    pub fn done(&self, group: &WriteTxn<'_>) -> Result<(), StoreError> {
        let note = if self.again { retired_keys::RETIRED_KEYS_DELETE } else { retired_keys::RETIRED_KEYS_INSERT };
        group.tx.prepare_cached(note)?.execute((self.tenant.0, self.kind.0, self.key))?;
        Ok(())
    }
}

/// Keys that are configured again, whose deleted lookups must come back.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn restored_keys(conn: &Connection, tenants: &Tenants) -> Result<Vec<RetiredKeys>, StoreError> {
    let mut statement = conn.prepare_cached(retired_keys::RETIRED_KEYS_ALL)?;
    let rows = statement.query_map([], |row| {
        let (tenant, kind) = (TenantNo(row.get(0)?), KindCode(row.get(1)?));
        Ok(RetiredKeys { tenant, kind, key: row.get(2)?, again: true })
    })?;
    let mut all = rows.collect::<Result<Vec<_>, _>>()?;
    let is_read =
        |one: &RetiredKeys| tenants.by_no(one.tenant).is_ok_and(|known| known.keys.alternate.by_id(one.key).is_some());
    all.retain(is_read);
    Ok(all)
}
