//! The state of a request between its steps, and the reading of KV values into it.

use std::collections::BTreeSet;
use std::rc::Rc;

use causeway_shared::base::bucket::PersonRandom;
use causeway_shared::base::ids::{Millis, SnapshotVersion, VisitorId};
use causeway_shared::base::random::Random;
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::identity::{BulkRead, BulkResult};
use causeway_shared::profiles::view::{PersonView, StoredValue};
use causeway_shared::wire::catalogue::CataloguePointer;
use causeway_shared::wire::kv::OpenedValue;
use causeway_shared::wire::newest_versions::{NewestVersions, SnapshotVerdict};
use causeway_shared::wire::{self, kv_keys};

use crate::cache::attribute_names;
use crate::cache::catalogue::{CatalogueCache, LoadedCatalogue};
use crate::http::answer::HttpAnswer;
use crate::http::cookies::CookieJar;
use crate::http::incoming::TenantRequest;
use crate::site::Site;
use crate::state::extra_reads::ExtraReads;

/// A parsed body uses about this many times its bytes while its request waits.
const BODY_FACTOR: usize = 16;

/// The state of one request.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub(crate) site: Rc<Site>,
    /// Time of receipt, by the edge's clock.
    pub(crate) now: Millis,
    pub(crate) random: Random,
    /// Whether cookies are written with `Secure`.
    pub(crate) secure: bool,
    /// Whether the identity cookie is signed with a key that is no longer active.
    pub(crate) stale_key: bool,
    pub(crate) cors: Vec<(&'static str, String)>,
    /// Sequential KV reads so far.
    pub(crate) kv_reads: u8,
    /// Memory of the waiting request, in bytes of a body.
    pub(crate) bytes: usize,
    /// The tenant's attribute names, as far as they were read.
    pub(crate) names: Rc<NameDictionary>,
    /// The catalogue of the answer, fixed when the reads are complete.
    pub(crate) catalogue: Rc<LoadedCatalogue>,
    /// The catalogue version that the pointer named and the isolate lacks.
    pub(crate) wanted_version: Option<CataloguePointer>,
    /// Whether the person's history may be in the KV but was not read. Exposures and offer codes are then unknown.
    pub(crate) is_history_unread: bool,
    /// Visitors named by the route that were erased or withdrew their consent.
    pub(crate) erased: BTreeSet<VisitorId>,
    /// Versions of the snapshots that were read, for the trace.
    pub(crate) snapshots: Vec<(VisitorId, SnapshotVersion)>,
    /// Stable names of the causes that degraded the answer.
    pub(crate) notes: Vec<&'static str>,
}

/// The reason why a read returned no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFault {
    /// The KV did not answer within the deadline.
    Late,
    /// The KV failed.
    Failed,
}

/// Random bytes of a person, the same for all its browsers that are linked.
pub(crate) fn person_random(counted: &PersonView<'_>) -> PersonRandom {
    PersonRandom::of_visitor(counted.smallest())
}

/// The values of a bulk read in the order of its keys; `None` for a key without a value.
pub type KvValues = Result<Vec<Option<Vec<u8>>>, ReadFault>;

/// The caches of an isolate that a read updates.
pub(crate) struct ReadCaches<'a> {
    pub(crate) seen: &'a mut NewestVersions,
    pub(crate) catalogues: &'a mut CatalogueCache,
}

impl RequestState {
    /// The state of a request that begins.
    pub(crate) fn begin(incoming: &TenantRequest<'_>, jar: &CookieJar, notes: Vec<&'static str>) -> Self {
        Self {
            site: Rc::clone(&incoming.site),
            now: incoming.now,
            random: incoming.random.clone(),
            secure: jar.secure,
            stale_key: jar.stale_key,
            cors: incoming.cors.clone(),
            kv_reads: 0,
            bytes: incoming.body.len(),
            names: Rc::default(),
            catalogue: Rc::default(),
            wanted_version: None,
            is_history_unread: false,
            erased: BTreeSet::new(),
            snapshots: Vec::new(),
            notes,
        }
    }

    /// Reads the values that the KV returned. An invalid value counts as one that was not read, and a note records it.
    pub(crate) fn read_values(
        &mut self,
        reads: &BulkRead,
        extra: &ExtraReads,
        values: &KvValues,
        caches: &mut ReadCaches<'_>,
    ) -> BulkResult {
        let is_failed = values.is_err();
        let mut found = BulkResult { failed: is_failed && !reads.is_empty(), ..BulkResult::default() };
        self.is_history_unread |= found.failed;
        if reads.snapshots.len() + reads.lookups.len() + extra.count() == 0 {
            return found;
        }
        self.kv_reads += 1;
        let values = match values {
            Ok(values) => values.as_slice(),
            Err(ReadFault::Late) => {
                self.notes.push("kv_late");
                &[]
            }
            Err(ReadFault::Failed) => {
                self.notes.push("kv_failed");
                &[]
            }
        };
        let mut values = values.iter().map(Option::as_deref);
        for visitor in &reads.snapshots {
            let value = values.next().flatten();
            // A snapshot uses about its own bytes. Caches that requests share are not charged.
            self.bytes += value.map_or(0, <[u8]>::len) / BODY_FACTOR;
            let stored = value.and_then(|value| self.read_stored(*visitor, value));
            self.add_stored(&mut found, *visitor, caches.seen.meet(&self.site.id, *visitor, stored, self.now));
        }
        for id in &reads.lookups {
            let Some(value) = values.next().flatten() else { continue };
            match wire::kv::decode_lookup(&kv_keys::lookup_key(&self.site.id, *id), value) {
                Ok(visitors) => found.lookups.extend(visitors),
                Err(_) => {
                    self.notes.push("lookup_bad");
                    found.has_bad_lookup = true;
                }
            }
        }
        if is_failed {
            if extra.reads_catalogue() {
                caches.catalogues.note_failed_read(&self.site.id, self.now);
            }
            return found;
        }
        self.read_catalogue(extra, &mut values, caches.catalogues);
        if extra.names {
            match attribute_names::read_names(&self.site.id, values) {
                Ok(names) => self.names = Rc::new(names),
                Err(_) => self.notes.push("names_bad"),
            }
        }
        found
    }

    /// Notes the visitors that were erased or withdrew their consent.
    pub(crate) fn note_erased(&mut self, found: &BulkResult) {
        let erased = found.stored.iter().filter(|(_, stored)| matches!(stored, StoredValue::Tombstone));
        self.erased.extend(erased.map(|(visitor, _)| *visitor));
    }

    /// Adds the headers and notes that every answer of the request has.
    pub(crate) fn complete(&self, answer: HttpAnswer) -> HttpAnswer {
        let mut answer = answer.with_headers(self.cors.iter().cloned());
        answer.notes.clone_from(&self.notes);
        answer
    }

    fn read_catalogue<'v>(
        &mut self,
        extra: &ExtraReads,
        values: &mut impl Iterator<Item = Option<&'v [u8]>>,
        catalogues: &mut CatalogueCache,
    ) {
        let mut next = || values.next().flatten();
        if extra.pointer {
            let (wanted, note) = catalogues.adopt_pointer(&self.site.id, next(), self.now);
            self.wanted_version = wanted;
            self.notes.extend(note);
            self.notes.extend(catalogues.adopt_model(&self.site.id, next()));
            self.notes.extend(catalogues.adopt_allocation(&self.site.id, next()));
        }
        if let Some(pointer) = &extra.version {
            self.notes.extend(catalogues.adopt_version(&self.site, pointer, next(), self.now));
        }
    }

    /// Reads the value of a visitor's key. Also returns the opened value, which the isolate may cache.
    fn read_stored(&mut self, visitor: VisitorId, value: &[u8]) -> Option<(StoredValue, OpenedValue)> {
        let opened = wire::kv::open_stored(&kv_keys::snapshot_key(&self.site.id, visitor), value);
        let read = opened.and_then(|opened| Ok((opened.read(visitor)?, opened)));
        self.notes.extend(read.is_err().then_some("snapshot_bad"));
        read.ok()
    }

    fn add_stored(&mut self, found: &mut BulkResult, visitor: VisitorId, met: SnapshotVerdict) {
        let stored = match met {
            SnapshotVerdict::AsRead(stored) => stored,
            SnapshotVerdict::Gone => Some(StoredValue::Tombstone),
            // After a failed read, the present state is unknown.
            SnapshotVerdict::Instead(_) if found.failed => None,
            SnapshotVerdict::Instead(newest) => {
                self.notes.push("snapshot_older");
                Some(newest)
            }
            SnapshotVerdict::Older(stored, newest) => {
                self.notes.push("snapshot_older");
                found.newest.insert(visitor, newest);
                Some(stored)
            }
        };
        if let Some(StoredValue::Snapshot(snapshot)) = stored.as_ref().filter(|_| !found.newest.contains_key(&visitor))
        {
            self.snapshots.push((visitor, snapshot.version));
        }
        if let Some(stored) = stored {
            found.stored.insert(visitor, stored);
        }
    }
}
