//! No acknowledged fact is missing and none is counted twice, in the store and in every snapshot, after the world has
//! converged. The reference is the model, which holds every fact in a list.

use std::collections::BTreeMap;

use causeway_origin::store;
use causeway_origin::views::read::{self, StoreView};
use causeway_shared::base::ids::{TenantId, VisitorId};
use causeway_shared::base::time::{Day, Minute};
use causeway_shared::facts::fact::Fact;
use causeway_shared::facts::segments::SegmentState;
use causeway_shared::profiles::profile::{Profile, ProfileTotals};
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::kv as form;
use rusqlite::Connection;

use crate::model::{Owner, Sums};
use crate::setup;
use crate::world::World;

/// Whether the store records that it has counted a fact.
fn holds(conn: &Connection, tenant: store::TenantNo, fact: &Fact) -> bool {
    const IDS: &str =
        "SELECT f.ids FROM fact_ids f JOIN visitors v ON v.row = f.visitor WHERE v.tenant = ?1 AND v.visitor = ?2";
    const OVER: &str = "SELECT count(*) FROM fact_ids_over f JOIN visitors v ON v.row = f.visitor
        WHERE v.tenant = ?1 AND v.visitor = ?2 AND f.id = ?3";
    const ANONYMOUS: &str = "SELECT count(*) FROM anonymous_facts WHERE tenant = ?1 AND id = ?2";
    if fact.visitor == VisitorId::ANONYMOUS {
        let id = fact.id.short().cast_signed();
        return conn.query_row(ANONYMOUS, (tenant.0, id), |row| row.get::<_, i64>(0)).is_ok_and(|count| count > 0);
    }
    let wanted = fact.id.short().to_be_bytes();
    let Ok(mut read) = conn.prepare_cached(IDS) else { return false };
    let Ok(rows) = read.query_map((tenant.0, fact.visitor.as_bytes()), |row| row.get::<_, store::CheckedBytes>(0))
    else {
        return false;
    };
    let over = || {
        let of = (tenant.0, fact.visitor.as_bytes(), fact.id.short().cast_signed());
        conn.query_row(OVER, of, |row| row.get::<_, i64>(0)).is_ok_and(|count| count > 0)
    };
    rows.flatten().any(|ids| ids.0.chunks(8).any(|id| id == wanted)) || over()
}

/// Compares the store and the KV with the model.
pub fn converged(world: &mut World) -> Vec<String> {
    world.model.erased = super::erasure::owners(world);
    world.model.ended = super::erasure::ended(world);
    let World { origin, model, kv, .. } = world;
    let Some((conn, rules)) = origin.store() else { return vec!["the origin is down".to_owned()] };
    model
        .settle(|tenant, fact| rules.tenants.by_name(tenant.as_str()).is_some_and(|known| holds(conn, known.no, fact)));
    let mut seen = Vec::new();
    let mut expected: BTreeMap<Owner, Sums> = BTreeMap::new();
    for owner in model.owners() {
        let mut sums = model.sums(&owner);
        let Some(known) = rules.tenants.by_name(owner.0.as_str()) else { continue };
        let view = StoreView::folded(conn);
        let found = read::load_visitor(&view, known.no, owner.1).ok().flatten();
        match found.and_then(|row| read::whole(&view, &row, Day(0)).ok()) {
            Some(profile) => {
                if !model.knows_sessions(&owner) {
                    sums.sessions = profile.totals().sessions;
                }
                seen.extend(compare("the store", &owner, &sums, &profile));
            }
            None => seen.push(format!("{owner:?} is not in the store")),
        }
        expected.insert(owner, sums);
    }
    for (key, value) in kv.values() {
        seen.extend(snapshot(key, value, &expected));
    }
    seen
}

fn compare(place: &str, owner: &Owner, expected: &Sums, profile: &Profile) -> Option<String> {
    let segments: BTreeMap<u32, &SegmentState> =
        profile.segments().writes().map(|(id, _, state)| (id.0, state)).collect();
    let same_segment = |(id, last): (&u32, &Option<SegmentState>)| {
        segments.get(id).is_some_and(|state| last.as_ref().is_none_or(|last| last == *state))
    };
    let actions = profile.actions().len();
    let fits = totals(expected) == profile.totals() && expected.actions.len() == actions;
    let fits = fits && expected.segments.len() == segments.len() && expected.segments.iter().all(same_segment);
    let events = profile.events();
    let same_event = |(name, (count, last)): (&String, &(u64, [u64; 2]))| {
        let [least, most] = last.map(Minute::at);
        events.total_events(name).exact() == Some(*count)
            && events.last(name).is_some_and(|last| (least..=most).contains(&last))
    };
    let fits = fits && events.iter().count() == expected.events.len() && expected.events.iter().all(same_event);
    (!fits).then(|| {
        format!(
            "{place} has {:?} for {owner:?}, {actions} actions, segments {segments:?}, {events:?}; the model has {expected:?}",
            profile.totals()
        )
    })
}

fn totals(sums: &Sums) -> ProfileTotals {
    let Sums { pages, sessions, purchases, revenue, .. } = sums;
    ProfileTotals { pages: *pages, sessions: *sessions, purchases: *purchases, revenue: *revenue }
}

/// Compares the sums of each visitor in a snapshot with the model.
fn snapshot(key: &str, value: &str, expected: &BTreeMap<Owner, Sums>) -> Vec<String> {
    let Some((tenant, visitor)) = subject(key) else { return Vec::new() };
    let snapshot = match form::decode_stored(key, visitor, value.as_bytes()) {
        Ok(StoredValue::Snapshot(snapshot)) => snapshot,
        Ok(StoredValue::Tombstone) => return Vec::new(),
        Err(error) => return vec![format!("{key} cannot be read: {error}")],
    };
    let of = |(visitor, sub): (&VisitorId, &causeway_shared::profiles::profile::SubProfile)| {
        let owner = (tenant.clone(), *visitor);
        let Some(sums) = expected.get(&owner) else {
            return Some(format!("{key} holds {visitor}, which has no fact"));
        };
        let fits = sub.totals() == totals(sums) && sub.actions().map_or(0, |a| a.iter().count()) == sums.actions.len();
        (!fits).then(|| format!("{key} has {:?} for {visitor}; the model has {sums:?}", sub.totals()))
    };
    snapshot.profiles.iter().filter_map(of).collect()
}

/// The tenant and the visitor that a snapshot's key names.
#[must_use]
pub fn subject(key: &str) -> Option<(TenantId, VisitorId)> {
    let (name, visitor) = key.strip_prefix("v:")?.split_once(':')?;
    let tenant = (0..setup::TENANTS.len()).map(setup::tenant).find(|t| t.as_str() == name)?;
    Some((tenant, visitor.parse().ok()?))
}
