//! Answers of the edge: no answer counts a visitor that the snapshots it was given cut. After the world has converged,
//! an answer has exactly the visitors and sums of the person in the model.

use std::collections::{BTreeMap, BTreeSet};

use causeway_edge::HttpAnswer;
use causeway_shared::base::ids::{Epoch, VisitorId};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::view::Snapshot;
use serde_json::Value;

use crate::browser::{self, Kind};
use crate::edge::{Call, answer_at_centre};
use crate::model::Person;
use crate::setup;
use crate::world::World;

/// Reports a visitor that an answer counts although the highest epoch that the call was given cuts it.
pub fn emitted(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    if call.asked.kind != Kind::Decide {
        return Vec::new();
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let Some(own) = body["visitor"].as_str().and_then(|text| text.parse().ok()) else { return Vec::new() };
    let counted = super::people::counted(&body);
    let given = &call.given;
    // A location that had read a newer snapshot earlier uses that one instead of the one it was given.
    let used = body["trace"]["person"]["snapshots"].as_object().into_iter().flatten();
    let is_given = |visitor: &str| given.iter().any(|s| s.visitor.to_string() == visitor && is_used(&body, s));
    if used.into_iter().any(|(visitor, _)| !is_given(visitor)) || given.iter().any(|s| !is_used(&body, s)) {
        return Vec::new();
    }
    // If the snapshot is older than the browser has seen, the edge uses only the visitor's own facts from it.
    let highest = super::people::highest(call).unwrap_or_default();
    if given.iter().any(|s| s.visitor == own && s.version < highest) {
        return Vec::new();
    }
    let memberships: Vec<&Membership> =
        given.iter().filter(|s| counted.contains(&s.visitor)).map(|s| &s.membership).collect();
    let cut = counted.iter().filter(|v| **v != own && says(&memberships, own, **v) == Some(false));
    cut.map(|v| format!("{own} counts {v}, which is cut from it")).collect()
}

/// Whether an answer used a snapshot as it was given. If the location had read a newer one, it used that one or less,
/// and the given snapshot proves nothing.
pub fn is_used(answer: &Value, given: &Snapshot) -> bool {
    let used = &answer["trace"]["person"]["snapshots"][given.visitor.to_string()];
    *used == format!("{}.{}", given.version.restore, given.version.counter)
}

/// Whether two visitors count together, by the highest epoch that admits one of them and names the other.
fn says(memberships: &[&Membership], a: VisitorId, b: VisitorId) -> Option<bool> {
    let mut newest: Option<(Epoch, bool)> = None;
    for m in memberships {
        let admits = |v| m.admits.contains(&v);
        let cuts = |v| m.cuts.contains_key(&v);
        let together = match (admits(a), admits(b)) {
            (true, true) => Some(true),
            (true, false) if cuts(b) => Some(false),
            (false, true) if cuts(a) => Some(false),
            _ => None,
        };
        if let Some(together) = together.filter(|_| newest.is_none_or(|(epoch, _)| m.epoch > epoch)) {
            newest = Some((m.epoch, together));
        }
    }
    newest.map(|(_, together)| together)
}

/// Requests `/v1/me` for every browser with an identity cookie, with that cookie and the proof of its member.
pub fn converged(world: &mut World) -> Vec<String> {
    let mut seen = Vec::new();
    for index in 0..setup::TENANTS.len() {
        let tenant = setup::tenant(index);
        let people = world.model.sure_people(&tenant, &world.model.same_ids(&tenant));
        let of: BTreeMap<VisitorId, &Person> =
            people.iter().flat_map(|p| p.members.iter().map(move |v| (*v, p))).collect();
        let cookies: BTreeSet<String> =
            world.browsers.iter().filter(|b| b.tenant == index).filter_map(|b| b.jar.identity.clone()).collect();
        for cookie in cookies {
            seen.extend(ask(world, index, &cookie, &of));
        }
    }
    seen
}

fn ask(world: &mut World, tenant: usize, cookie: &str, of: &BTreeMap<VisitorId, &Person>) -> Option<String> {
    let (visitor, tag) = super::people::tagged(tenant, cookie)?;
    let person = of.get(&visitor)?;
    let owner = (setup::tenant(tenant), visitor);
    if world.model.lost_logins.contains(&owner) {
        return None;
    }
    let unique = person.unique?;
    // Only the first 20 members are tried; a kiosk has thousands.
    let member = (0..world.plan.members.min(20)).find(|m| super::people::hashes(tenant, *m).contains(&unique.hash))?;
    let body = me(world, tenant, cookie, member)?;
    // A visitor that no proof at this browser has named, under a key that is still read, sees only its own data.
    let is_proven = !world.plan.rotation && tag.is_some_and(|tag| super::people::hashes(tenant, member).contains(&tag));
    if (body["view"].is_null() && !is_proven) || person.members.len() > 40 {
        return None;
    }
    let sum = |field: fn(&crate::model::Sums) -> i64| -> i64 {
        person.members.iter().map(|v| field(&world.model.sums(&(setup::tenant(tenant), *v)))).sum()
    };
    let expected = (sum(|s| s.pages.cast_signed()), sum(|s| s.purchases.cast_signed()), sum(|s| s.revenue.get()));
    let number = |name: &str| body["view"][name].as_i64().unwrap_or(-1);
    let found = (number("pages"), number("purchases"), number("revenue_micros"));
    (found != expected).then(|| format!("{visitor} gets {found:?} for its person; the model says {expected:?}"))
}

/// One call of `/v1/me` at the first location, with the values of the central store.
fn me(world: &mut World, tenant: usize, cookie: &str, member: u64) -> Option<Value> {
    let host = setup::TENANTS.get(tenant)?;
    let proof = browser::proof_of(member, tenant, world.now);
    let head = format!("GET\nhttps://{host}.example/v1/me\n__Host-cw_id={cookie}\n\n\n\nMozilla/5.0\n\n{proof}");
    let now = world.edge_clock(0);
    let (kv, engine) = (&world.kv, &mut world.locations.first_mut()?.engine);
    let answer = answer_at_centre(engine, kv, &head, b"", now)?;
    serde_json::from_slice(&answer.body).ok()
}
