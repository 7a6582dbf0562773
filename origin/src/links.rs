//! Whether two visitors are linked; and undoing that: which evidence connects two visitors, and the facts that end it (invariant 2).

use std::collections::BTreeMap;

use causeway_shared::fact::{Fact, What};
use causeway_shared::ids::{AlternateId, FactId, KindCode, Millis, VisitorId};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::link::{self, canonical};
use crate::store::{StoreError, TenantNo, visitor_at};
use crate::tenants::Known;

/// How two visitors stand to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Whether they are one person.
    pub connected: bool,
    /// Links from one to the other: a star has two at most, over its master. Only of connected ones.
    pub path: Option<u8>,
    /// Visitors read: one where the older of the two is the master that the other is read with, else two.
    pub reads: u8,
}

/// Whether two visitors are one person (S5.4); `None` if either is not known. It costs as much for a person of a million
/// visitors as for one of two: no list of visitors is read.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn check(conn: &Connection, tenant: TenantNo, a: VisitorId, b: VisitorId) -> Result<Option<Checked>, StoreError> {
    // The second half, which has no master, is not read before its row is asked for.
    const READ: &str =
        "SELECT v.person, p.master FROM visitors v INDEXED BY visitors_by_id JOIN people p USING (person)
            WHERE v.tenant = ?1 AND v.visitor = ?2
        UNION ALL
        SELECT person, NULL FROM visitors INDEXED BY visitors_by_id WHERE tenant = ?1 AND visitor = ?3";
    let (older, younger) = (a.min(b), a.max(b));
    let mut statement = conn.prepare_cached(READ)?;
    let mut rows = statement.query((tenant.0, younger.as_bytes(), older.as_bytes()))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (person, of_older): (i64, bool) = (row.get(0)?, row.get_ref(1)? == ValueRef::Null);
    if of_older {
        // The younger one is not known.
        return Ok(None);
    }
    if older == younger || older == visitor_at(row, 1)? {
        let path = u8::from(older != younger);
        return Ok(Some(Checked { connected: true, path: Some(path), reads: 1 }));
    }
    let Some(row) = rows.next()? else { return Ok(None) };
    let connected = person == row.get::<_, i64>(0)?;
    Ok(Some(Checked { connected, path: connected.then_some(2), reads: 2 }))
}

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
