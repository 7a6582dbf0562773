//! Undoing links: which evidence connects two visitors, and the facts that end it (invariant 2).

use std::collections::BTreeMap;

use causeway_shared::fact::{Fact, What};
use causeway_shared::ids::{AlternateId, FactId, KindCode, Millis, VisitorId};
use rusqlite::Connection;

use crate::link::{self, canonical};
use crate::store::StoreError;
use crate::tenants::Known;

/// The ids that both visitors were seen with, where the evidence of each stands, and when the first of the two was last.
///
/// # Errors
/// [`StoreError`].
pub fn connecting(
    conn: &Connection,
    tenant: &Known,
    a: VisitorId,
    b: VisitorId,
) -> Result<BTreeMap<AlternateId, Millis>, StoreError> {
    let mut shared = standing(conn, tenant, a)?;
    let others = standing(conn, tenant, b)?;
    shared.retain(|id, _| others.contains_key(id));
    Ok(shared)
}

/// The ids that a visitor is tied to, and when it was last seen with each.
fn standing(conn: &Connection, tenant: &Known, of: VisitorId) -> Result<BTreeMap<AlternateId, Millis>, StoreError> {
    let mut found = BTreeMap::new();
    for row in link::of_visitor(conn, tenant.no, of)?.into_iter().filter(link::Row::claims) {
        let last = found.entry(row.evidence.id).or_insert(row.evidence.last);
        *last = row.evidence.last.max(*last);
    }
    Ok(found)
}

/// The id of a raw value: as it is known, else under the key that is written. `None` for a tenant without keys.
///
/// # Errors
/// [`StoreError`].
pub fn id_of(
    conn: &Connection,
    tenant: &Known,
    kind: KindCode,
    value: &str,
) -> Result<Option<AlternateId>, StoreError> {
    let hashes = tenant.keys.alternate.hash_alternate(kind, value);
    for hash in &hashes {
        if let Some(id) = canonical(conn, tenant.no, AlternateId { kind, hash: *hash })? {
            return Ok(Some(id));
        }
    }
    Ok(hashes.first().map(|hash| AlternateId { kind, hash: *hash }))
}

/// When a visitor was last seen with an id; 0 for never.
///
/// # Errors
/// [`StoreError`].
pub fn last_seen(conn: &Connection, tenant: &Known, of: VisitorId, id: AlternateId) -> Result<Millis, StoreError> {
    Ok(standing(conn, tenant, of)?.get(&id).copied().unwrap_or(0))
}

/// The fact that ends what ties a visitor to an id. It counts from the last sighting on, where an edge's clock that runs
/// ahead has put that after now.
#[must_use]
pub fn cancellation(visitor: VisitorId, id: AlternateId, last: Millis, now: Millis, random: [u8; 16]) -> Fact {
    let received = now.max(last);
    let id_of_fact = FactId::from_bytes(random);
    Fact { id: id_of_fact, visitor, received, at: received, what: What::Cancellation { id } }
}
