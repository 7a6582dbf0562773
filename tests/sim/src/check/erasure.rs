//! After a receipt says done, no data of the erased visitor is served, stored or in the KV: its key holds a tombstone,
//! and no snapshot or lookup names it except as a cut. A restored backup does not bring it back.

use std::collections::{BTreeMap, BTreeSet};

use causeway_origin::store::TenantNo;
use causeway_origin::store::visitor_at;
use causeway_shared::base::ids::{AltHash, AlternateId, KindCode, Millis, TenantId, VisitorId};
use causeway_shared::facts::fact::FactKind;
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::kv as form;
use rusqlite::Connection;

use super::facts::subject;
use crate::model::Owner;
use crate::setup;
use crate::world::World;

/// Erased visitors of a tenant; with `done`, only those whose receipt says done.
fn erased(conn: &Connection, tenant: TenantNo, done: bool) -> Vec<VisitorId> {
    const ALL: &str = "SELECT e.visitor FROM erased e JOIN erasures r ON r.tenant = e.tenant AND r.receipt = e.receipt
        WHERE e.tenant = ?1 AND (NOT ?2 OR (r.log IS NOT NULL AND NOT EXISTS (SELECT 1 FROM erasure_keys k
            WHERE k.tenant = r.tenant AND k.receipt = r.receipt AND k.written IS NULL) AND NOT EXISTS
            (SELECT 1 FROM erasure_sweeps s WHERE s.tenant = r.tenant AND s.receipt = r.receipt)))";
    let Ok(mut read) = conn.prepare_cached(ALL) else { return Vec::new() };
    let rows = read.query_map((tenant.0, done), |row| visitor_at(row, 0)).map(|rows| rows.flatten().collect());
    rows.unwrap_or_default()
}

/// All erased visitors according to the store.
pub fn owners(world: &mut World) -> BTreeSet<Owner> {
    let Some((conn, rules)) = world.origin.store() else { return BTreeSet::new() };
    let mut all = BTreeSet::new();
    for tenant in (0..setup::TENANTS.len()).map(setup::tenant) {
        if let Some(known) = rules.tenants.by_name(tenant.as_str()) {
            all.extend(erased(conn, known.no, false).into_iter().map(|visitor| (tenant.clone(), visitor)));
        }
    }
    all
}

/// For each erased id, the time up to which its evidence is erased, according to the store.
pub fn ended(world: &mut World) -> BTreeMap<(TenantId, AlternateId), Millis> {
    const ALL: &str = "SELECT kind, hash, at FROM erased_ids WHERE tenant = ?1";
    let Some((conn, rules)) = world.origin.store() else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for tenant in (0..setup::TENANTS.len()).map(setup::tenant) {
        let (Some(known), Ok(mut read)) = (rules.tenants.by_name(tenant.as_str()), conn.prepare_cached(ALL)) else {
            continue;
        };
        let row = |row: &rusqlite::Row<'_>| {
            let id = AlternateId { kind: KindCode(row.get(0)?), hash: AltHash(row.get(1)?) };
            Ok(((tenant.clone(), id), row.get::<_, i64>(2)?.unsigned_abs()))
        };
        all.extend(read.query_map([known.no.0], row).into_iter().flatten().flatten());
    }
    all
}

/// Data that remains of visitors whose receipts say done.
pub fn done(world: &mut World) -> Vec<String> {
    let mut seen = Vec::new();
    for tenant in (0..setup::TENANTS.len()).map(setup::tenant) {
        let Some((conn, rules)) = world.origin.store() else { return seen };
        let Some(known) = rules.tenants.by_name(tenant.as_str()) else { continue };
        let gone: BTreeSet<VisitorId> = erased(conn, known.no, true).into_iter().collect();
        for visitor in &gone {
            seen.extend(stored(conn, known.no, *visitor));
        }
        if !gone.is_empty() {
            seen.extend(published(world, &tenant, &gone));
        }
    }
    seen
}

/// Rows that hold more of a visitor than its tombstone.
fn stored(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Option<String> {
    const LEFT: &str = "SELECT (SELECT count(*) FROM evidence WHERE tenant = ?1 AND visitor = ?2)
        + (SELECT count(*) FROM fact_ids f JOIN visitors v ON v.row = f.visitor WHERE v.tenant = ?1 AND v.visitor = ?2)
        + (SELECT count(*) FROM fact_ids_over f JOIN visitors v ON v.row = f.visitor
            WHERE v.tenant = ?1 AND v.visitor = ?2)
        + (SELECT count(*) FROM visitors v WHERE v.tenant = ?1 AND v.visitor = ?2
            AND (v.actions > 0 OR length(v.segments) > 0 OR length(v.attributes) > 0))
        + (SELECT count(*) FROM visitors v JOIN actions a ON a.place >> 32 = v.row
            WHERE v.tenant = ?1 AND v.visitor = ?2)";
    let left = conn
        .prepare_cached(LEFT)
        .and_then(|mut read| read.query_row((tenant.0, visitor.as_bytes()), |row| row.get::<_, i64>(0)));
    match left {
        Ok(0) => None,
        Ok(left) => Some(format!("the store has {left} rows of {visitor}, whose erasure is done")),
        Err(error) => Some(format!("the rows of {visitor} cannot be read: {error}")),
    }
}

/// KV values that name an erased visitor other than as a cut, and missing tombstones.
fn published(world: &World, tenant: &TenantId, gone: &BTreeSet<VisitorId>) -> Vec<String> {
    let mut seen = Vec::new();
    for (key, value) in world.kv.values() {
        if let Some((of, visitor)) = subject(key).filter(|(of, _)| of == tenant) {
            match form::decode_stored(key, visitor, value.as_bytes()) {
                Ok(StoredValue::Snapshot(snapshot)) => {
                    let named = snapshot.profiles.keys().chain(snapshot.membership.admits.iter());
                    let named = named.filter(|v| gone.contains(v)).map(|v| format!("{key} of {of:?} still holds {v}"));
                    seen.extend(named.take(1));
                }
                Ok(StoredValue::Tombstone) | Err(_) => {}
            }
        } else if key.starts_with(&format!("a:{tenant}:")) {
            let visitors = form::decode_lookup(key, value.as_bytes()).unwrap_or_default();
            seen.extend(visitors.iter().filter(|v| gone.contains(v)).map(|v| format!("{key} still names {v}")));
        }
    }
    for visitor in gone {
        let key = causeway_shared::wire::kv_keys::snapshot_key(tenant, *visitor);
        let value = world.kv.value(&key).map(|value| form::decode_stored(&key, *visitor, value.as_bytes()));
        if !matches!(value, Some(Ok(StoredValue::Tombstone))) {
            seen.push(format!("{key} holds no tombstone, and the erasure is done"));
        }
    }
    seen
}

/// Every visitor that an erasure names is erased, and all erasures are done.
pub fn converged(world: &mut World) -> Vec<String> {
    let gone = owners(world);
    let mut seen = done(world);
    for (tenant, record) in world.model.facts() {
        let named = matches!(record.fact.what, FactKind::Erasure { .. }) && record.fact.visitor != VisitorId::ANONYMOUS;
        if named && record.at_origin && !gone.contains(&(tenant.clone(), record.fact.visitor)) {
            seen.push(format!("{} of {tenant:?} has an erasure fact and is not erased", record.fact.visitor));
        }
    }
    let late = world.model.named_by_erasures().into_iter().filter(|owner| !gone.contains(owner));
    seen.extend(late.map(|owner| format!("{owner:?} was seen with an id before the id was erased, and is not erased")));
    let Some((conn, _)) = world.origin.store() else { return seen };
    let open = "SELECT count(*) FROM erasure_keys WHERE written IS NULL";
    let open: i64 = conn.query_row(open, [], |row| row.get(0)).unwrap_or(-1);
    if open != 0 {
        seen.push(format!("{open} keys of erasures were never overwritten"));
    }
    let swept: i64 = conn.query_row("SELECT count(*) FROM erasure_sweeps", [], |row| row.get(0)).unwrap_or(-1);
    if swept != 0 {
        seen.push(format!("{swept} sweeps of erasures never ended"));
    }
    seen
}
