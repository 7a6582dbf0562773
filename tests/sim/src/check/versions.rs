//! No location uses an older snapshot or catalogue after it served a newer one; no key is handed to two publish consumers
//! at once; at the end the KV holds what the origin issued last, and every location goes by the current catalogue.

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

/// What was issued, and what was served.
#[derive(Debug, Default)]
pub struct Versions {
    issued: BTreeMap<String, (SnapshotVersion, Option<String>)>,
    read: BTreeMap<(usize, VisitorId), SnapshotVersion>,
    /// By key, the hand-out that is not acknowledged, and until when on the origin's clock nobody else has the key.
    leased: BTreeMap<String, (u64, Millis)>,
    /// Versions of a tenant's catalogue by the publication that made them current.
    catalogues: BTreeMap<String, BTreeMap<SnapshotVersion, u32>>,
    /// The earliest publication that each location may have used last, by tenant.
    used: BTreeMap<(usize, usize), SnapshotVersion>,
}

impl Versions {
    /// A write was handed out: its version is above all before it.
    pub fn issued(&mut self, write: &KvWrite) -> Vec<String> {
        let place = self.issued.entry(write.key.clone()).or_insert((write.version, None));
        if let Some((tenant, pointer)) = pointer(write) {
            self.catalogues.entry(tenant).or_default().insert(pointer.published, pointer.version);
        }
        let older = place.0 > write.version;
        let seen = format!("{} is issued at {:?} after {:?}", write.key, write.version, place.0);
        *place = (write.version, write.value.clone());
        if older { vec![seen] } else { Vec::new() }
    }

    /// The origin took what a sync says is written, and handed out more.
    pub fn handed_out(&mut self, now: Millis, applied: &[u64], publish: &[KvWrite]) -> Vec<String> {
        self.leased.retain(|_, (entry, until)| !applied.contains(entry) && *until > now);
        let each = publish.iter().filter_map(|write| {
            let before = self.leased.insert(write.key.clone(), (write.entry, now + LEASE_MS));
            before.map(|(entry, _)| format!("{} is handed out again while {entry} has it", write.key))
        });
        each.collect()
    }

    /// The origin may have lost what it handed out.
    pub fn nothing_leased(&mut self) {
        self.leased.clear();
    }

    /// A call's read has come: what it reads from now on is at least as new as what this location read before.
    pub fn read(&mut self, call: &mut Call) {
        for (_, visitor) in call.wanted.iter().filter_map(|key| subject(key)) {
            call.floor.insert(visitor, self.read.get(&(call.location, visitor)).copied().unwrap_or_default());
        }
        for snapshot in &call.coming {
            let newest = self.read.entry((call.location, snapshot.visitor)).or_default();
            *newest = snapshot.version.max(*newest);
        }
    }

    /// A decision names the snapshots it used.
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

    /// A decision names its catalogue: that of the same publication as the location used last, or of a later one.
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

    /// A location begins anew.
    pub fn forget(&mut self, location: usize) {
        self.used.retain(|(at, _), _| *at != location);
        self.read.retain(|(at, _), _| *at != location);
    }
}

/// What a write of the pointer says.
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
        for place in 0..world.locations.len() {
            let used = decide(world, place, name);
            if used != Some(expected.clone()) {
                seen.push(format!("location {place} decides by {used:?} for {name}; {expected} is current"));
            }
        }
    }
    seen
}

/// The catalogue of a decision in front of nobody, with the KV as it is at the centre, once what it read before is old.
fn decide(world: &mut World, place: usize, name: &str) -> Option<Value> {
    let now = world.edge_clock(place) + limits::CATALOGUE_FRESH_MS;
    let (kv, engine) = (&world.kv, &mut world.locations.get_mut(place)?.engine);
    let head = format!("POST\nhttps://{name}.example/v1/decide\n\n\n1\n\nMozilla/5.0\n\n");
    let answer = answer_at_centre(engine, kv, &head, b"{}", now)?;
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(body["catalogue"].clone())
}

/// Every key of the KV is as it was issued last, and every location uses the current catalogue.
pub fn converged(world: &mut World) -> Vec<String> {
    let mut seen = as_issued(world);
    seen.extend(current(world));
    seen
}

fn as_issued(world: &World) -> Vec<String> {
    let issued = world.check.versions.issued.iter();
    let differ = issued.filter(|(key, (_, value))| world.kv.value(key) != value.as_deref());
    // A version of a catalogue that was not written before a restore is missed by nobody; that the one pointed to is there
    // is seen by what locations decide by.
    let is_version = |key: &str| {
        let mut parts = key.split(':');
        parts.next() == Some("c") && parts.nth(1).is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let differ = differ.filter(|(key, _)| world.kv.value(key).is_some() || !is_version(key));
    // Paces are made anew each minute: something is always on its way.
    let differ = differ.filter(|(key, _)| !key.ends_with(":steering"));
    let seen = differ.map(|(key, (version, value))| {
        let there = if world.kv.value(key).is_some() { "another value" } else { "nothing" };
        format!(
            "{key} was issued at {version:?} ({} bytes) and the KV has {there}",
            value.as_ref().map_or(0, String::len)
        )
    });
    seen.collect()
}
