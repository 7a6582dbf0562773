//! No location uses an older snapshot or catalogue after it served a newer one, and no key is leased to two publish
//! consumers at once. At the end the KV holds the values that the origin issued last, and every location uses the
//! current catalogue.

use std::collections::BTreeMap;

use causeway_edge::HttpAnswer;
use causeway_origin::outbox::queue::LEASE_MS;
use causeway_shared::base::ids::{Millis, SnapshotVersion, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::wire::catalogue::{self, CataloguePointer};
use causeway_shared::wire::sync::KvWrite;
use serde_json::Value;

use super::facts::subject;
use crate::browser::Kind;
use crate::edge::{Call, answer_at_centre};
use crate::setup;
use crate::world::World;

/// Issued and served versions.
#[derive(Debug, Default)]
pub struct Versions {
    issued: BTreeMap<String, (SnapshotVersion, Option<String>)>,
    read: BTreeMap<(usize, VisitorId), SnapshotVersion>,
    /// By key: the outbox entry that is handed out but not acknowledged, and the end of its lease on the origin's
    /// clock.
    leased: BTreeMap<String, (u64, Millis)>,
    /// By tenant: catalogue versions by the publication that made each one current.
    catalogues: BTreeMap<String, BTreeMap<SnapshotVersion, u32>>,
    /// By location and tenant: the earliest publication that the location may have used last.
    used: BTreeMap<(usize, usize), SnapshotVersion>,
}

impl Versions {
    /// Records a write that was handed out; its version must not be below the previous one of the key.
    pub fn issued(&mut self, write: &KvWrite) -> Vec<String> {
        let last = self.issued.entry(write.key.clone()).or_insert((write.version, None));
        if let Some((tenant, pointer)) = pointer(write) {
            self.catalogues.entry(tenant).or_default().insert(pointer.published, pointer.version);
        }
        let older = last.0 > write.version;
        let seen = format!("{} is issued at {:?} after {:?}", write.key, write.version, last.0);
        *last = (write.version, write.value.clone());
        if older { vec![seen] } else { Vec::new() }
    }

    /// Removes the leases of acknowledged entries, and reports keys that are handed out again while leased.
    pub fn handed_out(&mut self, now: Millis, applied: &[u64], publish: &[KvWrite]) -> Vec<String> {
        self.leased.retain(|_, (entry, until)| !applied.contains(entry) && *until > now);
        let each = publish.iter().filter_map(|write| {
            let before = self.leased.insert(write.key.clone(), (write.entry, now + LEASE_MS));
            before.map(|(entry, _)| format!("{} is handed out again while {entry} has it", write.key))
        });
        each.collect()
    }

    /// Removes the leases of settled keys.
    pub fn settled(&mut self, entry: u64, keys: &[String]) {
        self.leased.retain(|key, (of, _)| *of != entry || !keys.contains(key));
    }

    /// Forgets all leases: the origin may have lost its record of them.
    pub fn nothing_leased(&mut self) {
        self.leased.clear();
    }

    /// A call's read has ended: from now on, the location must not use older snapshots than it has read.
    pub fn read(&mut self, call: &mut Call) {
        for (_, visitor) in call.wanted.iter().filter_map(|key| subject(key)) {
            call.floor.insert(visitor, self.read.get(&(call.location, visitor)).copied().unwrap_or_default());
        }
        for snapshot in &call.coming {
            let newest = self.read.entry((call.location, snapshot.visitor)).or_default();
            *newest = snapshot.version.max(*newest);
        }
    }

    /// Checks the versions of the snapshots that a decision used.
    pub fn used(&mut self, call: &Call, answer: &HttpAnswer) -> Vec<String> {
        if call.asked.kind != Kind::Decide {
            return Vec::new();
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let mut seen = Vec::new();
        for (visitor, version) in body["trace"]["person"]["snapshots"].as_object().into_iter().flatten() {
            let text = version.as_str().unwrap_or_default();
            let Some((restore, counter)) = text.split_once('.') else { continue };
            let used = SnapshotVersion { restore: restore.parse().unwrap_or(0), counter: counter.parse().unwrap_or(0) };
            let floor = visitor.parse().ok().and_then(|visitor| call.floor.get(&visitor));
            if floor.is_none_or(|floor| used < *floor) {
                seen.push(format!("location {} uses {visitor} at {used:?} after {floor:?}", call.location));
            }
        }
        seen
    }

    /// The publication that a call's location used last.
    pub fn published_to(&self, call: &Call) -> SnapshotVersion {
        self.used.get(&(call.location, call.tenant)).copied().unwrap_or_default()
    }

    /// Checks the catalogue that a decision names: not from an earlier publication than the location used last.
    pub fn decided(&mut self, call: &Call, answer: &HttpAnswer) -> Vec<String> {
        if call.asked.kind != Kind::Decide {
            return Vec::new();
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let name = body["catalogue"].as_str();
        let last = self.published_to(call);
        let from = call.settled.unwrap_or(last);
        let Some(number) = name.and_then(|name| name.strip_prefix("c-")?.parse::<u32>().ok()) else {
            let lost = from > SnapshotVersion::default() && name.is_none();
            return if lost {
                vec![format!("location {} has no catalogue after {from:?}", call.location)]
            } else {
                Vec::new()
            };
        };
        let of_tenant = setup::TENANTS.get(call.tenant).and_then(|tenant| self.catalogues.get(*tenant));
        let mut later = of_tenant.into_iter().flat_map(|all| all.range(from..));
        match later.find(|(_, version)| **version == number) {
            Some((published, _)) => {
                self.used.insert((call.location, call.tenant), last.max(*published));
                Vec::new()
            }
            None => vec![format!("location {} uses c-{number} after {from:?}", call.location)],
        }
    }

    /// Forgets what a location used: its isolate was replaced.
    pub fn forget(&mut self, location: usize) {
        self.used.retain(|(at, _), _| *at != location);
        self.read.retain(|(at, _), _| *at != location);
    }
}

/// The tenant and content of a write of the catalogue pointer.
fn pointer(write: &KvWrite) -> Option<(String, CataloguePointer)> {
    let tenant = write.key.strip_prefix("c:")?.strip_suffix(":current")?;
    let pointer = catalogue::decode_pointer(&write.key, write.value.as_ref()?.as_bytes()).ok()?;
    Some((tenant.to_owned(), pointer))
}

/// Every location decides by the catalogue that the origin calls current.
fn current(world: &mut World) -> Vec<String> {
    let mut seen = Vec::new();
    for name in setup::TENANTS {
        let Some((conn, rules)) = world.origin.store() else { return vec!["the origin is down".to_owned()] };
        let Some(known) = rules.tenants.by_name(name) else { continue };
        let current = causeway_origin::campaigns::catalogue::current(conn, known.no).ok().flatten();
        let expected = current.map(|version| Value::from(format!("c-{version}"))).unwrap_or_default();
        for location in 0..world.locations.len() {
            let used = decide(world, location, name);
            if used != Some(expected.clone()) {
                seen.push(format!("location {location} decides by {used:?} for {name}; {expected} is current"));
            }
        }
    }
    seen
}

/// The catalogue of an anonymous decision, with the values of the central store, after the location's cached catalogue
/// has expired.
fn decide(world: &mut World, location: usize, name: &str) -> Option<Value> {
    let now = world.edge_clock(location) + limits::CATALOGUE_FRESH_MS;
    let (kv, engine) = (&world.kv, &mut world.locations.get_mut(location)?.engine);
    let head = format!("POST\nhttps://{name}.example/v1/decide\n\n\n1\n\nMozilla/5.0\n\n");
    let answer = answer_at_centre(engine, kv, &head, b"{}", now)?;
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(body["catalogue"].clone())
}

/// Every KV key has the value that was issued last, and every location uses the current catalogue.
pub fn converged(world: &mut World) -> Vec<String> {
    let mut seen = as_issued(world);
    seen.extend(current(world));
    seen
}

fn as_issued(world: &World) -> Vec<String> {
    let issued = world.check.versions.issued.iter();
    let differ = issued.filter(|(key, (_, value))| world.kv.value(key) != value.as_deref());
    // A catalogue version that was not written before a restore may be missing. The check of the current catalogue
    // covers the version that the pointer names.
    let is_version = |key: &str| {
        let mut parts = key.split(':');
        parts.next() == Some("c") && parts.nth(1).is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let differ = differ.filter(|(key, _)| world.kv.value(key).is_some() || !is_version(key));
    // The pacing is published every minute, so it may be in transit.
    let differ = differ.filter(|(key, _)| !key.ends_with(":allocation"));
    let seen = differ.map(|(key, (version, value))| {
        let there = if world.kv.value(key).is_some() { "another value" } else { "nothing" };
        format!(
            "{key} was issued at {version:?} ({} bytes) and the KV has {there}",
            value.as_ref().map_or(0, String::len)
        )
    });
    seen.collect()
}
