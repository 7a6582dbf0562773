//! No location uses an older snapshot after it served a newer one; no key is handed to two publish consumers at once; at
//! the end the KV holds what the origin issued last.

use std::collections::BTreeMap;

use causeway_edge::Outcome;
use causeway_origin::publish::LEASE_MS;
use causeway_shared::ids::{Millis, Version, VisitorId};
use causeway_shared::wire::sync::Publish;
use serde_json::Value;

use super::facts::subject;
use crate::browser::Kind;
use crate::edge::Call;
use crate::world::World;

/// What was issued, and what was served.
#[derive(Debug, Default)]
pub struct Versions {
    issued: BTreeMap<String, (Version, Option<String>)>,
    read: BTreeMap<(usize, VisitorId), Version>,
    /// By key, the hand-out that is not acknowledged, and until when on the origin's clock nobody else has the key.
    leased: BTreeMap<String, (u64, Millis)>,
}

impl Versions {
    /// A write was handed out: its version is above all before it.
    pub fn issued(&mut self, write: &Publish) -> Vec<String> {
        let place = self.issued.entry(write.key.clone()).or_insert((write.version, None));
        let older = place.0 > write.version;
        let seen = format!("{} is issued at {:?} after {:?}", write.key, write.version, place.0);
        *place = (write.version, write.value.clone());
        if older { vec![seen] } else { Vec::new() }
    }

    /// The origin took what a sync says is written, and handed out more.
    pub fn handed_out(&mut self, now: Millis, applied: &[u64], publish: &[Publish]) -> Vec<String> {
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
    pub fn used(&mut self, call: &Call, outcome: &Outcome) -> Vec<String> {
        if call.asked.kind != Kind::Decide {
            return Vec::new();
        }
        let answer: Value = serde_json::from_slice(&outcome.body).unwrap_or_default();
        let mut seen = Vec::new();
        for (visitor, version) in answer["trace"]["person"]["snapshots"].as_object().into_iter().flatten() {
            let text = version.as_str().unwrap_or_default();
            let Some((restore, counter)) = text.split_once('.') else { continue };
            let used = Version { restore: restore.parse().unwrap_or(0), counter: counter.parse().unwrap_or(0) };
            let floor = visitor.parse().ok().and_then(|visitor| call.floor.get(&visitor));
            if floor.is_none_or(|floor| used < *floor) {
                seen.push(format!("location {} uses {visitor} at {used:?} after {floor:?}", call.location));
            }
        }
        seen
    }

    /// A location begins anew.
    pub fn forget(&mut self, location: usize) {
        self.read.retain(|(at, _), _| *at != location);
    }
}

/// Every key of the KV is as it was issued last.
pub fn converged(world: &mut World) -> Vec<String> {
    let issued = world.check.versions.issued.iter();
    let differ = issued.filter(|(key, (_, value))| world.kv.value(key) != value.as_deref());
    let seen = differ.map(|(key, (version, value))| {
        let there = if world.kv.value(key).is_some() { "another value" } else { "nothing" };
        format!(
            "{key} was issued at {version:?} ({} bytes) and the KV has {there}",
            value.as_ref().map_or(0, String::len)
        )
    });
    seen.collect()
}
