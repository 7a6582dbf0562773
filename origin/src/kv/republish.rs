//! Keys that the KV must have, to be written again after a loss.

use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::base::integers::signed;
use crate::identity::link::id_family;
use crate::outbox::kv_key::KvKey;
use crate::store::tables::{attribute_names, visitors};
use crate::store::tenants::Tenants;
use crate::store::{StoreError, TenantNo, VisitorRow, visitor_at};
use crate::views::read;

/// Number of keys that were put in the outbox to be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RepublishCounts {
    /// Snapshots and tombstones.
    pub snapshots: u64,
    /// Lookups, under each readable hash.
    pub lookups: u64,
    /// Keys of whole tenants: names of attributes, catalogues, pointers, models and traffic allocations.
    #[serde(default)]
    pub of_tenants: u64,
}

/// The keys of whole tenants that the KV must have: names of attributes, catalogues, pointers, models, traffic
/// allocations.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn of_tenants(conn: &Connection, tenants: &Tenants) -> Result<Vec<(TenantNo, KvKey)>, StoreError> {
    let mut statement = conn.prepare_cached(attribute_names::ATTRIBUTE_NAMES_KV_KEYS)?;
    let rows = statement.query_map([signed(limits::ATTRIBUTE_PAGE as u64)], |row| {
        let (tenant, kind, number) = (TenantNo(row.get(0)?), row.get(1)?, row.get(2)?);
        Ok(KvKey::of_tenant(kind, number).map(|subject| (tenant, subject)))
    })?;
    let all = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().flatten().filter(|(tenant, _)| tenants.by_no(*tenant).is_ok()).collect())
}

/// Visitors after a row, each with its row and tenant.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn visitor_page(
    conn: &Connection,
    after: VisitorRow,
    most: u32,
) -> Result<Vec<(VisitorRow, TenantNo, VisitorId)>, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_PAGE_WITH_IDS)?;
    let rows =
        statement.query_map((after, most), |row| Ok((row.get(0)?, TenantNo(row.get(1)?), visitor_at(row, 2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Keys of a visitor: its snapshot, and the lookups that name it first.
///
/// # Errors
/// [`StoreError`].
pub fn keys_of_visitor(
    conn: &Connection,
    tenants: &Tenants,
    tenant: TenantNo,
    visitor: VisitorId,
) -> Result<Vec<KvKey>, StoreError> {
    let Ok(known) = tenants.by_no(tenant) else { return Ok(Vec::new()) };
    let mut subjects = vec![KvKey::Snapshot(visitor)];
    for id in read::lookups_of(conn, tenant, visitor)? {
        let hashes = id_family(conn, tenant, id)?.into_iter().filter(|hash| known.is_readable(*hash));
        subjects.extend(hashes.map(|hash| KvKey::Lookup(id.kind, hash)));
    }
    Ok(subjects)
}

impl RepublishCounts {
    /// Adds the keys of one visitor.
    pub fn count(&mut self, subjects: &[KvKey]) {
        let snapshots = subjects.iter().filter(|subject| matches!(subject, KvKey::Snapshot(_))).count() as u64;
        self.snapshots += snapshots;
        self.lookups += subjects.len() as u64 - snapshots;
    }
}
