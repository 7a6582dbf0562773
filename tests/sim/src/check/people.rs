//! Two members are never one person, in the store and in every answer. After the world has converged, people are those
//! of the model: in the store, in the KV and in the edge's answers.

use std::collections::{BTreeMap, BTreeSet};

use causeway_edge::HttpAnswer;
use causeway_origin::maintenance::reconcile;
use causeway_origin::views::read::{self, StoreView};
use causeway_shared::base::ids::{AltHash, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::facts::fact::{ErasureScope, FactKind};
use causeway_shared::keys::cookie::{self, IDENTITY, LEDGER, OpenedCookie};
use causeway_shared::profiles::ledger::Ledger;
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::{cookies, kv as form};
use serde_json::Value;

use super::facts::subject;
use crate::browser::Kind;
use crate::edge::Call;
use crate::model::{MEMBER, Person};
use crate::setup;
use crate::sync::facts_of_answer;
use crate::world::World;

/// The hashes of a member's id under every key of the rotation.
#[must_use]
pub fn hashes(tenant: usize, member: u64) -> BTreeSet<AltHash> {
    let name = setup::TENANTS.get(tenant).copied().unwrap_or_default();
    let of_stage = |stage| {
        let keys = setup::keys(stage);
        let ring = keys.tenants.get(name).map(|keys| keys.alternate.clone()).unwrap_or_default();
        ring.hash_alternate(MEMBER, &crate::browser::name_of(member))
    };
    [0, 2].into_iter().flat_map(of_stage).collect()
}

/// Facts of a call with a member's proof never go to a visitor that the cookie, or the snapshot that this call read,
/// assigns to another member.
pub fn emitted(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    let Some(member) = call.asked.member else { return Vec::new() };
    let facts = facts_of_answer(answer);
    let own = hashes(call.tenant, member);
    let mut seen = Vec::new();
    let mut held: Vec<(VisitorId, Vec<AltHash>)> =
        call.given.iter().map(|snapshot| (snapshot.visitor, snapshot.surely_held().to_vec())).collect();
    let tagged = call.jar.identity.as_deref().and_then(|value| tagged(call.tenant, value));
    held.extend(tagged.and_then(|(visitor, tag)| Some((visitor, vec![tag?]))));
    for (visitor, unique) in held.iter().filter(|(_, unique)| !unique.is_empty()) {
        let another = !unique.iter().any(|hash| own.contains(hash));
        // Without the hash's key, the member cannot be compared; anyone who holds the cookie may erase the visitor.
        let unknown = unique.iter().all(|hash| !setup::knows(call.stage, hash));
        // An offer code stays with the visitor to which an object gave it, whichever request reports it.
        let owed = |what: &FactKind| match what {
            FactKind::Withdrawal | FactKind::OfferCode { .. } => true,
            FactKind::Erasure { scope, .. } => unknown && *scope == ErasureScope::Visitor,
            _ => false,
        };
        let foreign = facts.iter().find(|fact| fact.visitor == *visitor && !owed(&fact.what));
        if let Some(fact) = foreign.filter(|_| another) {
            seen.push(format!("the call of member {member} sends {fact:?} for another member's visitor"));
        }
    }
    seen
}

/// An answer to a member's proof names and counts no visitor that the call's snapshots assign to another member.
pub fn shown(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    let Some(member) = call.asked.member.filter(|_| matches!(call.asked.kind, Kind::Decide | Kind::Me)) else {
        return Vec::new();
    };
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let Some(named) = body["visitor"].as_str().and_then(|text| text.parse().ok()) else { return Vec::new() };
    let own = hashes(call.tenant, member);
    let mut shown = counted(&body);
    shown.insert(named);
    // A visitor that only an unproven id ties to a member belongs to no member.
    let another = |of: &Snapshot| {
        let held = of.surely_held();
        !held.is_empty() && !held.iter().any(|hash| own.contains(hash))
    };
    // A visitor of another member that a later epoch assigns to this member's person.
    let moved = |of: &Snapshot| {
        let later = |given: &&Snapshot| !another(given) && given.membership.epoch > of.membership.epoch;
        call.given.iter().filter(later).any(|given| given.membership.admits.contains(&of.visitor))
    };
    let others = call.given.iter().filter(|of| shown.contains(&of.visitor) && another(of) && !moved(of));
    others.map(|of| format!("member {member} is shown {}, which is another member's", of.visitor)).collect()
}

/// The visitor of an identity cookie, and the hash of its member.
#[must_use]
pub fn tagged(tenant: usize, value: &str) -> Option<(VisitorId, Option<AltHash>)> {
    let identity = cookies::decode_identity(&open(tenant, IDENTITY, value)?.payload).ok()?;
    Some((identity.visitor, identity.tag))
}

/// The newest snapshot version that the call's browser has seen, according to its ledger cookie.
#[must_use]
pub fn highest(call: &Call) -> Option<SnapshotVersion> {
    Some(ledger(call)?.highest)
}

/// The ledger cookie of a call, if its location can read it.
#[must_use]
pub fn ledger(call: &Call) -> Option<Ledger> {
    let value = call.jar.ledger.as_deref().filter(|value| setup::reads(call.stage, value))?;
    cookies::decode_ledger(&open(call.tenant, LEDGER, value)?.payload).ok()
}

/// Opens a tenant's cookie with the keys of any stage.
fn open(tenant: usize, name: &str, value: &str) -> Option<OpenedCookie> {
    let of = setup::TENANTS.get(tenant)?;
    (0..setup::STAGES).find_map(|stage| {
        let ring = &setup::keys(stage).tenants.get(*of)?.cookie;
        cookie::open(ring, name, &setup::tenant(tenant), value).ok()
    })
}

/// No person in the store holds two members, and people are those that all evidence together gives.
pub fn in_store(world: &mut World) -> Vec<String> {
    const TWO: &str = "SELECT v.person FROM evidence e JOIN visitors v ON v.tenant = e.tenant AND v.visitor = e.visitor
        WHERE e.kind = 1 AND e.weight = 1000 AND e.flag IS NULL AND (e.cancelled IS NULL OR e.last > e.cancelled)
        GROUP BY v.person HAVING count(DISTINCT e.hash) > 1";
    let Some((conn, rules)) = world.origin.store() else { return Vec::new() };
    let Ok(mut read) = conn.prepare_cached(TWO) else { return Vec::new() };
    let people = read.query_map([], |row| row.get::<_, i64>(0)).map(|rows| rows.flatten().collect::<Vec<_>>());
    let two = people.unwrap_or_default().into_iter().map(|person| format!("person {person} holds two members"));
    let plan = reconcile::plan(conn, &rules.tenants, &|_, _| Ok(()));
    let differences = match plan {
        Ok(plan) => plan.differences.iter().map(|difference| format!("{difference:?}")).collect(),
        Err(error) => vec![causeway_origin::base::error_chain(&error)],
    };
    two.chain(differences.into_iter().map(|difference| format!("people are not reconciled: {difference}"))).collect()
}

/// Compares people with the model, in the store and in the KV.
pub fn converged(world: &mut World) -> Vec<String> {
    let mut seen = in_store(world);
    for tenant in (0..setup::TENANTS.len()).map(setup::tenant) {
        let expected = world.model.people(&tenant, &world.model.same_ids(&tenant));
        seen.extend(stored(world, &tenant, &expected));
        seen.extend(published(world, &tenant, &expected));
    }
    seen
}

fn stored(world: &mut World, tenant: &TenantId, expected: &[Person]) -> Vec<String> {
    let Some((conn, rules)) = world.origin.store() else { return Vec::new() };
    let Some(known) = rules.tenants.by_name(tenant.as_str()) else { return Vec::new() };
    let view = StoreView::folded(conn);
    let mut seen = Vec::new();
    for person in expected {
        let Some(first) = person.members.first() else { continue };
        let row = read::load_visitor(&view, known.no, *first).ok().flatten();
        let found = row.and_then(|row| read::load_person(&view, &row, 10_000).ok());
        let members: BTreeSet<VisitorId> = found.map(|found| found.members.into_iter().collect()).unwrap_or_default();
        if members != person.members {
            seen.push(format!("the store has {members:?} as one person; the model has {:?}", person.members));
        }
    }
    seen
}

/// Every snapshot admits the person's visitors and no others.
fn published(world: &World, tenant: &TenantId, expected: &[Person]) -> Vec<String> {
    let of: BTreeMap<VisitorId, &Person> =
        expected.iter().flat_map(|p| p.members.iter().map(move |v| (*v, p))).collect();
    let mut seen = Vec::new();
    for (key, value) in world.kv.values() {
        let Some((_, visitor)) = subject(key).filter(|(t, _)| t == tenant) else { continue };
        let Some(person) = of.get(&visitor) else {
            if world.model.erased.contains(&(tenant.clone(), visitor)) {
                continue;
            }
            seen.push(format!("{key} is of no known visitor"));
            continue;
        };
        let Ok(StoredValue::Snapshot(snapshot)) = form::decode_stored(key, visitor, value.as_bytes()) else { continue };
        let admits = &snapshot.membership.admits;
        if !admits.is_subset(&person.members) || (snapshot.missing().is_empty() && *admits != person.members) {
            seen.push(format!("{key} admits {admits:?}; the model has {:?}", person.members));
        }
    }
    seen.extend(of.keys().filter(|v| !world.model.is_gone(&(tenant.clone(), **v))).filter_map(|visitor| {
        let key = causeway_shared::wire::kv_keys::snapshot_key(tenant, *visitor);
        world.kv.value(&key).is_none().then(|| format!("{key} is not in the KV"))
    }));
    seen
}

/// The visitors that an answer's trace says it counted.
#[must_use]
pub fn counted(answer: &Value) -> BTreeSet<VisitorId> {
    let named = answer["trace"]["person"]["visitors"].as_array().into_iter().flatten();
    named.filter_map(|visitor| visitor.as_str()?.parse().ok()).collect()
}
