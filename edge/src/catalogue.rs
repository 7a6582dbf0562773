//! The catalogues that an isolate has: one a tenant, as the pointer in the KV named it last. The pointer is read beside
//! what a request reads anyway, the version beside its second read. What is older than what was seen is not adopted; what
//! is bad or not there leaves the one at hand in use.

use std::collections::BTreeMap;
use std::rc::Rc;

use causeway_shared::catalogue::Compiled;
use causeway_shared::decision::Scores;
use causeway_shared::ids::{Millis, TenantId, Version};
use causeway_shared::model::Model;
use causeway_shared::steering::Steering;
use causeway_shared::wire::catalogue::{self as wire, Digest, Pointer};
use causeway_shared::wire::flat;
use causeway_shared::{delivery, kv, limits};
use serde_json::{Value, json};

use crate::engine::Site;

/// Characters of a value up to the end of its check.
const MARK: usize = 8;
/// Requests at once that look for the first catalogue: each may bring 4 MB of it, and an isolate has 128.
const FIRST: u32 = 6;

/// A version of a catalogue, ready for decisions. Number 0 is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    number: u32,
    digest: Digest,
    /// Bytes of its document.
    bytes: usize,
    pub(crate) compiled: Rc<Compiled>,
    /// The model that is at hand, made ready for its ads.
    pub(crate) scores: Option<Rc<Scores>>,
    /// How the origin steers its traffic.
    pub(crate) steering: Rc<Steering>,
}

impl Loaded {
    /// Its name in answers.
    pub(crate) fn name(&self) -> Option<String> {
        (self.number > 0).then(|| format!("c-{}", self.number))
    }

    /// Whether impressions of an ad count only with an object's word, as far as the catalogue at hand says: what was placed has
    /// it in its token.
    pub(crate) fn is_strict(&self, ad: u32) -> bool {
        self.compiled.ad(ad).is_some_and(|offer| offer.strict)
    }

    /// Whether it is any at all.
    pub(crate) fn is_there(&self) -> bool {
        self.number > 0
    }

    fn is(&self, pointer: &Pointer) -> bool {
        self.number == pointer.version && self.digest == pointer.digest
    }
}

#[derive(Debug, Default)]
struct Held {
    loaded: Rc<Loaded>,
    /// The newest model met, and its version.
    model: Option<(Version, Model)>,
    /// Of the value that was read as a model last: its length, and its first characters.
    marked: (usize, Vec<u8>),
    /// Of the newest steering met.
    steered: Version,
    /// Of the newest publication that was adopted.
    published: Version,
    /// When the pointer last named what is held.
    confirmed: Millis,
    /// When the pointer is read again.
    next: Millis,
    /// When a request was told last that it may, with others of that time, and how many these are.
    told: (Millis, u32),
}

/// What an isolate has of each tenant.
#[derive(Debug, Default)]
pub(crate) struct Shelf(BTreeMap<TenantId, Held>);

impl Shelf {
    /// What is at hand; nothing is number 0.
    pub(crate) fn of(&self, tenant: &TenantId) -> Rc<Loaded> {
        self.0.get(tenant).map(|held| Rc::clone(&held.loaded)).unwrap_or_default()
    }

    /// Whether filters may ask from where a request comes: also while no catalogue was looked for yet, or the first is on its
    /// way. A request that brings the first one with filters is too late to say so: it is from nowhere.
    pub(crate) fn asks_place(&self, tenant: &TenantId) -> bool {
        self.0.get(tenant).is_none_or(|held| held.next == 0 || !held.loaded.compiled.targets.is_empty())
    }

    /// Whether a request is to read the pointer: who comes while others do goes by what is at hand. Of one that never came
    /// back nobody waits longer than for a read.
    pub(crate) fn wants(&mut self, tenant: &TenantId, now: Millis) -> bool {
        let Some(held) = self.0.get_mut(tenant) else {
            self.0.insert(tenant.clone(), Held { told: (now, 1), ..Held::default() });
            return true;
        };
        // A clock that went back is no reason to wait for it.
        if now < held.next && held.next <= now + limits::CATALOGUE_FRESH_MS {
            return false;
        }
        let (since, many) = held.told;
        let anew = now < since || now >= since + delivery::KV_DEADLINE_MS;
        held.told = if anew { (now, 1) } else { (since, many + 1) };
        held.told.1 <= if held.loaded.is_there() { 1 } else { FIRST }
    }

    /// Takes in the pointer's value, empty where there is none: gives the version to read, if there is news, and a note.
    pub(crate) fn pointed(
        &mut self,
        tenant: &TenantId,
        value: &[u8],
        now: Millis,
    ) -> (Option<Pointer>, Option<&'static str>) {
        let held = self.0.entry(tenant.clone()).or_default();
        held.next = now + limits::CATALOGUE_FRESH_MS;
        if value.is_empty() {
            // A miss is not an order to forget: another location may have it. The first one is to be seen soon.
            if held.loaded.number == 0 {
                held.next = now + limits::CATALOGUE_RETRY_MS;
            }
            return (None, None);
        }
        let Ok(pointer) = wire::decode_pointer(&kv::pointer_key(tenant), value) else {
            held.next = now + limits::CATALOGUE_RETRY_MS;
            return (None, Some("catalogue_bad"));
        };
        if pointer.published < held.published {
            return (None, Some("catalogue_older"));
        }
        if held.loaded.is(&pointer) {
            (held.published, held.confirmed) = (pointer.published, now);
            return (None, None);
        }
        if held.loaded.number == 0 {
            // Whoever comes meanwhile needs it as much: some read too, and the first to come back unpacks it.
            held.next = 0;
        }
        (Some(pointer), None)
    }

    /// Takes in the model's value, empty where there is none; gives a note where it cannot be used. What is older than the
    /// model at hand is not adopted.
    pub(crate) fn predict(&mut self, tenant: &TenantId, value: &[u8]) -> Option<&'static str> {
        if value.is_empty() {
            return None;
        }
        let held = self.0.entry(tenant.clone()).or_default();
        // A model is long, and the same for days: its tag, its check and its length tell.
        let mark = (value.len(), value.iter().copied().take(MARK).collect());
        if held.marked == mark {
            return None;
        }
        let Ok((version, model)) = wire::decode_model(&kv::model_key(tenant), value) else { return Some("model_bad") };
        held.marked = mark;
        if held.model.as_ref().is_none_or(|(known, _)| version > *known) {
            let scores = Scores::new(&model, &held.loaded.compiled).map(Rc::new);
            held.loaded = Rc::new(Loaded { scores, ..(*held.loaded).clone() });
            held.model = Some((version, model));
        }
        None
    }

    /// Takes in the steering's value in the same way.
    pub(crate) fn steer(&mut self, tenant: &TenantId, value: &[u8]) -> Option<&'static str> {
        if value.is_empty() {
            return None;
        }
        let held = self.0.entry(tenant.clone()).or_default();
        let read = wire::decode_steering(&kv::steering_key(tenant), value);
        let Ok((version, steering)) = read else { return Some("steering_bad") };
        if version > held.steered {
            held.loaded = Rc::new(Loaded { steering: Rc::new(steering), ..(*held.loaded).clone() });
            held.steered = version;
        }
        None
    }

    /// Takes in the value of the version that a pointer named; gives a note where it cannot be used.
    pub(crate) fn bring(&mut self, site: &Site, pointer: &Pointer, value: &[u8], now: Millis) -> Option<&'static str> {
        let held = self.0.entry(site.id.clone()).or_default();
        if pointer.published < held.published {
            return None;
        }
        if !held.loaded.is(pointer) {
            let Some(loaded) = held.read(site, pointer, value) else {
                held.next = now + limits::CATALOGUE_RETRY_MS;
                return Some(if value.is_empty() { "catalogue_missing" } else { "catalogue_bad" });
            };
            held.loaded = Rc::new(loaded);
        }
        (held.published, held.confirmed) = (pointer.published, now);
        held.next = now + limits::CATALOGUE_FRESH_MS;
        self.make_room(&site.id);
        None
    }

    /// Lets the catalogues go that the pointer named longest ago, where there are too many: they come again when they are asked
    /// for, none older than was seen.
    fn make_room(&mut self, stays: &TenantId) {
        loop {
            let (mut all, mut oldest) = (0, None::<&mut Held>);
            for (id, held) in self.0.iter_mut() {
                all += held.loaded.bytes;
                let is_older = oldest.as_ref().is_none_or(|other| held.confirmed < other.confirmed);
                if id != stays && held.loaded.bytes > 0 && is_older {
                    oldest = Some(held);
                }
            }
            let Some(oldest) = oldest.filter(|_| all > limits::CATALOGUES_BYTES) else { return };
            // How traffic is steered is small, and older than was seen it would spend what is spent.
            let loaded = Rc::new(Loaded { steering: Rc::clone(&oldest.loaded.steering), ..Loaded::default() });
            *oldest = Held { loaded, published: oldest.published, steered: oldest.steered, ..Held::default() };
        }
    }

    /// A read failed. Who has a catalogue does not wait for the KV with each request.
    pub(crate) fn failed(&mut self, tenant: &TenantId, now: Millis) {
        if let Some(held) = self.0.get_mut(tenant).filter(|held| held.loaded.number > 0) {
            held.next = now + limits::CATALOGUE_RETRY_MS;
        }
    }

    /// What a health check says: the version, how long ago the pointer named it, and the model.
    pub(crate) fn health(&self, tenant: &TenantId, now: Millis) -> Value {
        let held = self.0.get(tenant).filter(|held| held.loaded.number > 0);
        let age = held.map(|held| now.saturating_sub(held.confirmed));
        let model = held.and_then(|held| held.model.as_ref()).map(|(version, _)| version.to_string());
        json!({ "version": held.and_then(|held| held.loaded.name()), "age_ms": age, "model": model })
    }
}

impl Held {
    fn read(&self, site: &Site, pointer: &Pointer, value: &[u8]) -> Option<Loaded> {
        let key = kv::catalogue_key(&site.id, pointer.version);
        let bytes = wire::decode_document(&key, &pointer.digest, value).ok()?;
        let compiled = Rc::new(Compiled::of(flat::decode(&bytes).ok()?));
        let scores = self.model.as_ref().and_then(|(_, model)| Scores::new(model, &compiled)).map(Rc::new);
        let steering = Rc::clone(&self.loaded.steering);
        Some(Loaded { number: pointer.version, digest: pointer.digest, bytes: bytes.len(), compiled, scores, steering })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn of_many_large_catalogues_the_one_named_longest_ago_goes() {
        let [a, b, c]: [TenantId; 3] = ["a", "b", "c"].map(|name| name.parse().unwrap());
        let mut shelf = Shelf::default();
        let published = Version { restore: 0, counter: 7 };
        for (confirmed, tenant) in [(2, &a), (1, &b), (0, &c)] {
            let steering = Rc::new(Steering { at: 5, ..Steering::default() });
            let loaded = Rc::new(Loaded { number: 1, bytes: limits::CATALOGUE_BYTES, steering, ..Loaded::default() });
            let steered = published;
            shelf.0.insert(tenant.clone(), Held { loaded, confirmed, published, steered, ..Held::default() });
        }
        let there = |shelf: &Shelf| [&a, &b, &c].map(|of| shelf.of(of).is_there());
        shelf.make_room(&c);
        assert_eq!(there(&shelf), [true, false, true], "what came last stays, whatever its time");
        let left = shelf.0.get(&b).map(|held| (held.published, held.steered, held.next));
        assert_eq!(left, Some((published, published, 0)));
        assert_eq!(shelf.of(&b).steering.at, 5, "none older than was seen");
        shelf.make_room(&a);
        assert_eq!(there(&shelf), [true, false, true]);
    }
}
