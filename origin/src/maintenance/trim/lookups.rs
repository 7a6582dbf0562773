//! Old lookups: those under keys that are no longer read. Nobody asks for them, nobody writes them, and they name visitors
//! under hashes of a key that may have been lost: they go from the KV. The store keeps the hashes, so that a late fact under
//! one is still known to be of the same id.

use causeway_shared::base::ids::{AltHash, KindCode};
use rusqlite::Connection;

use crate::outbox::kv_key::KvKey;
use crate::store::tenants::Tenants;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo, hash_at};

/// Ids of one kind under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredKeys {
    tenant: TenantNo,
    kind: KindCode,
    key: u8,
    /// Whether the key is read again, since somebody put it back.
    pub again: bool,
}

/// What is no longer read and not deleted yet. A tenant without any key has no other to read by: that is a key file amiss.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn retired_keys(conn: &Connection, tenants: &Tenants) -> Result<Vec<RetiredKeys>, StoreError> {
    const DONE: &str = "SELECT 1 FROM retired_keys WHERE tenant = ?1 AND kind = ?2 AND key = ?3";
    let mut found = Vec::new();
    for known in tenants.iter().filter(|known| !known.keys.alternate.0.is_empty()) {
        for kind in known.config.kinds.iter().map(|kind| kind.code()) {
            for key in 0..=u8::MAX {
                let retired = RetiredKeys { tenant: known.no, kind, key, again: false };
                let is_read = known.keys.alternate.by_id(key).is_some();
                if !is_read
                    && !conn.prepare_cached(DONE)?.exists((known.no.0, kind.0, key))?
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
    /// The next ones after a hash.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn some(&self, conn: &Connection, after: Option<AltHash>, most: u32) -> Result<Vec<AltHash>, StoreError> {
        const READ: &str = "SELECT hash FROM lookups WHERE tenant = ?1 AND kind = ?2 AND hash > ?3 AND hash < ?4
            UNION SELECT hash FROM alternates WHERE tenant = ?1 AND kind = ?2 AND hash > ?3 AND hash < ?4
            ORDER BY 1 LIMIT ?5";
        // A key's id alone is before all hashes that begin with it; the next one's is behind them.
        let from = after.map_or_else(|| vec![self.key], |after| after.0.to_vec());
        let to = self.key.checked_add(1).map_or_else(|| vec![u8::MAX; 17], |next| vec![next]);
        let mut statement = conn.prepare_cached(READ)?;
        let rows = statement.query_map((self.tenant.0, self.kind.0, from, to, most), |row| hash_at(row, 0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Has them written as they are to be: deleted, or of a key that is read again what they were.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing of the group may be kept.
    pub fn write(&self, group: &mut WriteTxn<'_>, hashes: &[AltHash]) -> Result<(), StoreError> {
        // Above what is being written now.
        group.next_version();
        let lookup = |hash: &AltHash| KvKey::Lookup(self.kind, *hash);
        hashes.iter().try_for_each(|hash| crate::outbox::queue::put_key(group, self.tenant, lookup(hash), group.now))
    }

    /// Notes that all of them are deleted, or that none is as its key is read again.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing of the group may be kept.
    pub fn done(&self, group: &WriteTxn<'_>) -> Result<(), StoreError> {
        const PUT: &str = "INSERT OR IGNORE INTO retired_keys (tenant, kind, key) VALUES (?1, ?2, ?3)";
        const FORGET: &str = "DELETE FROM retired_keys WHERE tenant = ?1 AND kind = ?2 AND key = ?3";
        let note = if self.again { FORGET } else { PUT };
        group.tx.prepare_cached(note)?.execute((self.tenant.0, self.kind.0, self.key))?;
        Ok(())
    }
}

/// Keys that are read again: what was deleted under them is to come back.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn restored_keys(conn: &Connection, tenants: &Tenants) -> Result<Vec<RetiredKeys>, StoreError> {
    const READ: &str = "SELECT tenant, kind, key FROM retired_keys";
    let mut statement = conn.prepare_cached(READ)?;
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
