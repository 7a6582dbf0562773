//! The catalogues of an isolate: one per tenant, the version that the KV pointer named last.
//!
//! The pointer is read in parallel with the request's first read, a new version in parallel with the second. A value
//! that is older than one seen before is not adopted. A value that is absent or invalid leaves the cached catalogue in
//! use.

use std::collections::BTreeMap;
use std::rc::Rc;

use causeway_shared::ads::allocation::TrafficAllocation;
use causeway_shared::ads::catalogue::CompiledCatalogue;
use causeway_shared::ads::decision::ModelScores;
use causeway_shared::ads::model::Model;
use causeway_shared::base::ids::{Millis, SnapshotVersion, TenantId};
use causeway_shared::base::limits;
use causeway_shared::wire::catalogue as wire;
use causeway_shared::wire::catalogue::{CataloguePointer, Digest};
use causeway_shared::wire::flat;
use causeway_shared::wire::{kv_keys, outbox_drain};
use serde_json::{Value, json};

use crate::site::Site;

/// Number of characters at the start of a value that contain its tag and checksum.
const MARK: usize = 8;
/// Most concurrent requests that read the first catalogue. Each may hold 4 MB of it, and an isolate has 128 MB.
const FIRST: u32 = 6;

/// A catalogue version that is loaded.
#[derive(Debug, Clone, Copy)]
struct LoadedVersion {
    number: u32,
    digest: Digest,
    /// Bytes of its document.
    bytes: usize,
}

/// A catalogue version, compiled for decisions.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadedCatalogue {
    /// `None` until a version is loaded, and after it was dropped.
    version: Option<LoadedVersion>,
    pub(crate) compiled: Rc<CompiledCatalogue>,
    /// The current model, prepared for the catalogue's ads.
    pub(crate) scores: Option<Rc<ModelScores>>,
    /// Traffic allocation and pacing from the origin.
    pub(crate) allocation: Rc<TrafficAllocation>,
}

impl LoadedCatalogue {
    /// The version's name in answers.
    pub(crate) fn name(&self) -> Option<String> {
        self.version.map(|version| format!("c-{}", version.number))
    }

    /// Whether an ad is under strict caps in this version. The token of a placed ad carries its own flag.
    pub(crate) fn is_strict(&self, ad: u32) -> bool {
        self.compiled.ad(ad).is_some_and(|offer| offer.strict)
    }

    /// Whether a version is loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.version.is_some()
    }

    fn is(&self, pointer: &CataloguePointer) -> bool {
        self.version.is_some_and(|version| version.number == pointer.version && version.digest == pointer.digest)
    }
}

#[derive(Debug, Default)]
struct CachedCatalogue {
    loaded: Rc<LoadedCatalogue>,
    /// The newest model and its version.
    model: Option<(SnapshotVersion, Model)>,
    /// Length and first characters of the value that was last read as a model.
    marked: Option<(usize, Vec<u8>)>,
    /// Version of the newest traffic allocation.
    allocation_version: SnapshotVersion,
    /// Version of the newest publication that was adopted.
    published: SnapshotVersion,
    /// Time at which the pointer last named the loaded version.
    confirmed: Millis,
    /// Time from which the pointer is read again.
    next: Millis,
    /// Time at which a request was last allowed to read the pointer, and the number of requests allowed since then.
    allowed: (Millis, u32),
}

/// Catalogues by tenant.
#[derive(Debug, Default)]
pub(crate) struct CatalogueCache(BTreeMap<TenantId, CachedCatalogue>);

impl CatalogueCache {
    /// The tenant's catalogue, which is empty if no version is loaded.
    pub(crate) fn current(&self, tenant: &TenantId) -> Rc<LoadedCatalogue> {
        self.0.get(tenant).map(|held| Rc::clone(&held.loaded)).unwrap_or_default()
    }

    /// Whether a request should read the pointer. While one request reads it, others use the cached catalogue. A read
    /// that never ends blocks the next read for at most the KV deadline.
    pub(crate) fn wants_pointer(&mut self, tenant: &TenantId, now: Millis) -> bool {
        let Some(held) = self.0.get_mut(tenant) else {
            self.0.insert(tenant.clone(), CachedCatalogue { allowed: (now, 1), ..CachedCatalogue::default() });
            return true;
        };
        // A clock that was set back does not postpone the read.
        if now < held.next && held.next <= now + limits::CATALOGUE_FRESH_MS {
            return false;
        }
        let (since, many) = held.allowed;
        let is_over = now < since || now >= since + outbox_drain::KV_DEADLINE_MS;
        held.allowed = if is_over { (now, 1) } else { (since, many + 1) };
        held.allowed.1 <= if held.loaded.is_loaded() { 1 } else { FIRST }
    }

    /// Adopts the pointer's value. Returns the version to read, if it is a new one, and a note.
    pub(crate) fn adopt_pointer(
        &mut self,
        tenant: &TenantId,
        value: Option<&[u8]>,
        now: Millis,
    ) -> (Option<CataloguePointer>, Option<&'static str>) {
        let held = self.0.entry(tenant.clone()).or_default();
        held.next = now + limits::CATALOGUE_FRESH_MS;
        let Some(value) = value else {
            // A miss leaves the cached catalogue in use, because another location may have the pointer.
            if !held.loaded.is_loaded() {
                held.next = now + limits::CATALOGUE_RETRY_MS;
            }
            return (None, None);
        };
        let Ok(pointer) = wire::decode_pointer(&kv_keys::pointer_key(tenant), value) else {
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
        if !held.loaded.is_loaded() {
            // Concurrent requests read the first version too; the first one to return unpacks it.
            held.next = 0;
        }
        (Some(pointer), None)
    }

    /// Adopts the model's value, unless it is older than the current model. Returns a note if the value is invalid.
    pub(crate) fn adopt_model(&mut self, tenant: &TenantId, value: Option<&[u8]>) -> Option<&'static str> {
        let value = value?;
        let held = self.0.entry(tenant.clone()).or_default();
        // A model is long and stays the same for days. Its tag, checksum and length identify it.
        let mark = Some((value.len(), value.iter().copied().take(MARK).collect()));
        if held.marked == mark {
            return None;
        }
        let Ok((version, model)) = wire::decode_model(&kv_keys::model_key(tenant), value) else {
            return Some("model_bad");
        };
        held.marked = mark;
        if held.model.as_ref().is_none_or(|(known, _)| version > *known) {
            let scores = ModelScores::new(&model, &held.loaded.compiled).map(Rc::new);
            held.loaded = Rc::new(LoadedCatalogue { scores, ..(*held.loaded).clone() });
            held.model = Some((version, model));
        }
        None
    }

    /// Adopts the value of traffic allocation and pacing, unless it is older than the current one. Returns a note if
    /// the value is invalid.
    pub(crate) fn adopt_allocation(&mut self, tenant: &TenantId, value: Option<&[u8]>) -> Option<&'static str> {
        let value = value?;
        let held = self.0.entry(tenant.clone()).or_default();
        let read = wire::decode_allocation(&kv_keys::allocation_key(tenant), value);
        let Ok((version, allocation)) = read else { return Some("allocation_bad") };
        if version > held.allocation_version {
            held.loaded = Rc::new(LoadedCatalogue { allocation: Rc::new(allocation), ..(*held.loaded).clone() });
            held.allocation_version = version;
        }
        None
    }

    /// Adopts the version that a pointer named. Returns a note if the value is absent or invalid.
    pub(crate) fn adopt_version(
        &mut self,
        site: &Site,
        pointer: &CataloguePointer,
        value: Option<&[u8]>,
        now: Millis,
    ) -> Option<&'static str> {
        let held = self.0.entry(site.id.clone()).or_default();
        if pointer.published < held.published {
            return None;
        }
        if !held.loaded.is(pointer) {
            let Some(loaded) = value.and_then(|value| held.read(site, pointer, value)) else {
                held.next = now + limits::CATALOGUE_RETRY_MS;
                return Some(if value.is_none() { "catalogue_missing" } else { "catalogue_bad" });
            };
            held.loaded = Rc::new(loaded);
        }
        (held.published, held.confirmed) = (pointer.published, now);
        held.next = now + limits::CATALOGUE_FRESH_MS;
        self.make_room(&site.id);
        None
    }

    /// Drops catalogues while all together exceed [`limits::CATALOGUES_BYTES`], beginning with the one whose pointer
    /// was read longest ago. A dropped catalogue is read again on demand, and no version older than the dropped one is
    /// adopted.
    fn make_room(&mut self, stays: &TenantId) {
        loop {
            let (mut all, mut oldest) = (0, None::<&mut CachedCatalogue>);
            for (id, held) in self.0.iter_mut() {
                let Some(version) = held.loaded.version else { continue };
                all += version.bytes;
                let is_older = oldest.as_ref().is_none_or(|other| held.confirmed < other.confirmed);
                if id != stays && is_older {
                    oldest = Some(held);
                }
            }
            let Some(oldest) = oldest.filter(|_| all > limits::CATALOGUES_BYTES) else { return };
            // Pacing data stays, because it is small and adopting older data would spend budget twice.
            let loaded = Rc::new(LoadedCatalogue {
                allocation: Rc::clone(&oldest.loaded.allocation),
                ..LoadedCatalogue::default()
            });
            *oldest = CachedCatalogue {
                loaded,
                published: oldest.published,
                allocation_version: oldest.allocation_version,
                ..CachedCatalogue::default()
            };
        }
    }

    /// Notes a failed read. With a cached catalogue, the next read waits for the retry time.
    pub(crate) fn note_failed_read(&mut self, tenant: &TenantId, now: Millis) {
        if let Some(held) = self.0.get_mut(tenant).filter(|held| held.loaded.is_loaded()) {
            held.next = now + limits::CATALOGUE_RETRY_MS;
        }
    }

    /// The catalogue's part of the health check: the version, milliseconds since a pointer last named it, and the
    /// model's version.
    pub(crate) fn health(&self, tenant: &TenantId, now: Millis) -> Value {
        let held = self.0.get(tenant).filter(|held| held.loaded.is_loaded());
        let age = held.map(|held| now.saturating_sub(held.confirmed));
        let model = held.and_then(|held| held.model.as_ref()).map(|(version, _)| version.to_string());
        json!({ "version": held.and_then(|held| held.loaded.name()), "age_ms": age, "model": model })
    }
}

impl CachedCatalogue {
    fn read(&self, site: &Site, pointer: &CataloguePointer, value: &[u8]) -> Option<LoadedCatalogue> {
        let key = kv_keys::catalogue_key(&site.id, pointer.version);
        let bytes = wire::decode_document(&key, &pointer.digest, value).ok()?;
        let compiled = Rc::new(CompiledCatalogue::of(flat::decode_catalogue(&bytes).ok()?));
        let scores = self.model.as_ref().and_then(|(_, model)| ModelScores::new(model, &compiled)).map(Rc::new);
        let allocation = Rc::clone(&self.loaded.allocation);
        Some(LoadedCatalogue {
            version: Some(LoadedVersion { number: pointer.version, digest: pointer.digest, bytes: bytes.len() }),
            compiled,
            scores,
            allocation,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn of_many_large_catalogues_the_one_confirmed_longest_ago_is_dropped() {
        let [a, b, c]: [TenantId; 3] = ["a", "b", "c"].map(|name| name.parse().unwrap());
        let mut cache = CatalogueCache::default();
        let published = SnapshotVersion { restore: 0, counter: 7 };
        for (confirmed, tenant) in [(2, &a), (1, &b), (0, &c)] {
            let allocation = Rc::new(TrafficAllocation { at: 5, ..TrafficAllocation::default() });
            let loaded = Rc::new(LoadedCatalogue {
                version: Some(LoadedVersion { number: 1, digest: Digest::default(), bytes: limits::CATALOGUE_BYTES }),
                allocation,
                ..LoadedCatalogue::default()
            });
            let allocation_version = published;
            cache.0.insert(
                tenant.clone(),
                CachedCatalogue { loaded, confirmed, published, allocation_version, ..CachedCatalogue::default() },
            );
        }
        let there = |cache: &CatalogueCache| [&a, &b, &c].map(|of| cache.current(of).is_loaded());
        cache.make_room(&c);
        assert_eq!(there(&cache), [true, false, true], "the latest catalogue stays, whatever its time");
        let left = cache.0.get(&b).map(|held| (held.published, held.allocation_version, held.next));
        assert_eq!(left, Some((published, published, 0)));
        assert_eq!(cache.current(&b).allocation.at, 5, "no older pacing data is adopted");
        cache.make_room(&a);
        assert_eq!(there(&cache), [true, false, true]);
    }
}
