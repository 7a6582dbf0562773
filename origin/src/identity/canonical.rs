//! Canonical hashes of alternate ids.

use crate::store::tables::alternates;
use crate::store::{StoreError, TenantNo, hash_at};
use causeway_shared::base::ids::{AltHash, AlternateId, KindCode};
use rusqlite::{Connection, OptionalExtension as _};

/// Every hash of an id, the canonical one first.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn id_family(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Vec<AltHash>, StoreError> {
    let mut statement = conn.prepare_cached(alternates::ALTERNATES_OF_CANONICAL)?;
    let others = statement.query_map((tenant.0, id.kind.0, &id.hash.0), |row| hash_at(row, 0))?;
    let mut hashes = vec![id.hash];
    for hash in others {
        hashes.push(hash?);
    }
    Ok(hashes)
}

/// Canonical id of a hash; `None` if the hash was never seen.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn canonical_id(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Option<AlternateId>, StoreError> {
    let mut statement = conn.prepare_cached(alternates::ALTERNATES_CANONICAL_OF_HASH)?;
    let found = statement.query_row((tenant.0, id.kind.0, &id.hash.0), |row| hash_at(row, 0)).optional()?;
    Ok(found.map(|hash| AlternateId { hash, ..id }))
}

/// Canonical id of the first known hash among several of one id; `None` if none is known.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn canonical_of(
    conn: &Connection,
    tenant: TenantNo,
    kind: KindCode,
    hashes: impl IntoIterator<Item = AltHash>,
) -> Result<Option<AlternateId>, StoreError> {
    for hash in hashes {
        if let Some(id) = canonical_id(conn, tenant, AlternateId { kind, hash })? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}
