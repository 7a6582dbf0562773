//! The list of a catalogue's versions.

use rusqlite::Connection;
use serde::Serialize;
use utoipa::ToSchema;

use crate::base::integers::unsigned;
use crate::store::tables::catalogues;
use crate::store::{StoreError, TenantNo};

/// A version of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CatalogueVersion {
    /// Number of the version.
    pub version: u32,
    /// Time at which the version was applied.
    pub applied_ms: u64,
    /// Name of the token that applied the version, or `cli`.
    pub by: String,
    /// SHA-256 of the document, in hexadecimal digits.
    pub sha256: String,
    /// Length of the document in bytes.
    pub bytes: i64,
    /// Whether the version is the current one.
    pub current: bool,
    /// Whether the KV has the version.
    pub published: bool,
}

/// All versions of a tenant's catalogue, the newest first.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn list_versions(conn: &Connection, tenant: TenantNo) -> Result<Vec<CatalogueVersion>, StoreError> {
    let current = super::current(conn, tenant)?;
    let mut statement = conn.prepare_cached(catalogues::CATALOGUES_OF_TENANT)?;
    let rows = statement.query_map([tenant.0], |row| {
        let version = row.get(0)?;
        Ok(CatalogueVersion {
            version,
            applied_ms: unsigned(row.get(1)?),
            by: row.get(2)?,
            sha256: row.get(3)?,
            bytes: row.get(5)?,
            current: Some(version) == current,
            published: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
