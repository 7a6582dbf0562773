//! A request that recognises its visitor, from step to step: what it was given from the KV, and who answers it.

use std::collections::BTreeMap;
use std::rc::Rc;

use causeway_shared::attributes::Dictionary;
use causeway_shared::decision::Holding;
use causeway_shared::fact::Fact;
use causeway_shared::identity::{Found, Met, Reads, Recognised, Seen, Stays};
use causeway_shared::ids::{Millis, Version, VisitorId};
use causeway_shared::random::Random;
use causeway_shared::view::Stored;
use causeway_shared::wire::catalogue::Pointer;
use causeway_shared::wire::kv::Opened;
use causeway_shared::{kv, wire};

use crate::answer::Outcome;
use crate::catalogue::{Loaded, Shelf};
use crate::engine::{Call, Site};
use crate::hop::Hop;
use crate::waiting::Beside;
use crate::{attributes, cookies, decide, events, me, pixel};

/// What a request that recognises its visitor carries from step to step.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) site: Rc<Site>,
    pub(crate) now: Millis,
    pub(crate) random: Random,
    /// Random bits that all decisions of the call go by.
    pub(crate) draw: u64,
    pub(crate) secure: bool,
    pub(crate) stale_key: bool,
    pub(crate) cors: Vec<(&'static str, String)>,
    pub(crate) kv_reads: u8,
    /// What it takes while it waits, told in bytes of a body.
    pub(crate) bytes: usize,
    /// The tenant's names of attributes as far as they are known, if the call asks for them.
    pub(crate) names: Rc<Dictionary>,
    /// The catalogue that its answer goes by, from when its reads are over.
    pub(crate) catalogue: Rc<Loaded>,
    /// The version of it that the pointer named and this isolate does not have.
    pub(crate) wanted: Option<Pointer>,
    /// Whether what the KV may have of its person was not read: who was exposed to what, and got which units, is not known.
    pub(crate) missed: bool,
    /// How its person stands to limited offers, from when its reads are over.
    pub(crate) units: BTreeMap<u32, Holding>,
    /// What a decision has observed of its visitor so far.
    pub(crate) facts: Vec<Fact>,
    /// The snapshots read, for the trace.
    pub(crate) snapshots: Vec<(VisitorId, Version)>,
    pub(crate) notes: Vec<&'static str>,
    pub(crate) call: Call,
}

/// So many times its bytes a body takes while its request waits.
const TIMES_A_BODY: usize = 16;

/// What comes of a call that recognises nobody.
pub(crate) enum Alone {
    Answer(Box<Outcome>),
    /// An object is to be asked whether an impression counts.
    Confirm(Box<Visit>, Hop),
}

impl Visit {
    /// Reads what came from the KV. What is bad is not there, with a note.
    pub(crate) fn read(
        &mut self,
        reads: &Reads,
        beside: &Beside,
        values: &[u8],
        fault: &str,
        seen: &mut Seen,
        shelf: &mut Shelf,
    ) -> Found {
        let failed = !fault.is_empty();
        let mut found = Found { failed: failed && !reads.is_empty(), ..Found::default() };
        self.missed |= found.failed;
        let keys = reads.snapshots.len() + reads.lookups.len() + beside.keys();
        if keys == 0 {
            return found;
        }
        self.kv_reads += 1;
        match fault {
            "" => {}
            "kv_late" => self.notes.push("kv_late"),
            _ => self.notes.push("kv_failed"),
        }
        // One value is all there is; of many, none has a line break.
        let mut lines = values.split(|byte| *byte == b'\n' && keys > 1);
        for visitor in &reads.snapshots {
            let value = lines.next().unwrap_or_default();
            // It takes about as many bytes as it has, a body so many times as many. What all requests share is no request's.
            self.bytes += value.len() / TIMES_A_BODY;
            let stored = self.stored(*visitor, value);
            self.keep(&mut found, *visitor, seen.meet(&self.site.id, *visitor, stored, self.now));
        }
        for id in &reads.lookups {
            let Some(value) = lines.next().filter(|v| !v.is_empty()) else { continue };
            match wire::kv::decode_lookup(&kv::lookup_key(&self.site.id, *id), value) {
                Ok(visitors) => found.lookups.extend(visitors),
                Err(_) => self.notes.push("lookup_bad"),
            }
        }
        self.stock(beside, &mut lines, failed, shelf);
        if beside.names {
            let (names, bad) = attributes::names(&self.site.id, lines);
            self.names = Rc::new(names);
            self.notes.extend(bad.then_some("names_bad"));
        }
        found
    }

    /// An answer with what the visit has for every one.
    pub(crate) fn answer(&self, outcome: Outcome) -> Outcome {
        let mut outcome = outcome.with_headers(self.cors.iter().cloned());
        outcome.head.notes.clone_from(&self.notes);
        outcome
    }

    /// Whether it is a decision that counts for its visitor.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(&self.call, Call::Decide(call) if call.counted)
    }

    /// Counts the page of a decision, before anybody is asked what may be placed on it: all of a call goes by the same counts.
    pub(crate) fn observe(&mut self, who: &mut Recognised) {
        if let Call::Decide(call) = &self.call {
            self.facts = who.observe(call.page_view, &mut self.random);
        }
    }

    /// Takes in what was read of the catalogue.
    fn stock<'a>(
        &mut self,
        beside: &Beside,
        lines: &mut impl Iterator<Item = &'a [u8]>,
        failed: bool,
        shelf: &mut Shelf,
    ) {
        if failed && (beside.pointer || beside.version.is_some()) {
            shelf.failed(&self.site.id, self.now);
            return;
        }
        if beside.pointer {
            let (wanted, note) = shelf.pointed(&self.site.id, lines.next().unwrap_or_default(), self.now);
            self.wanted = wanted;
            self.notes.extend(note);
            self.notes.extend(shelf.predict(&self.site.id, lines.next().unwrap_or_default()));
            self.notes.extend(shelf.steer(&self.site.id, lines.next().unwrap_or_default()));
        }
        if let Some(pointer) = &beside.version {
            let value = lines.next().unwrap_or_default();
            self.notes.extend(shelf.bring(&self.site, pointer, value, self.now));
        }
    }

    /// What a visitor's key holds, and from what it was read.
    fn stored(&mut self, visitor: VisitorId, value: &[u8]) -> Option<(Stored, Opened)> {
        if value.is_empty() {
            return None;
        }
        let opened = wire::kv::open_stored(&kv::snapshot_key(&self.site.id, visitor), value);
        let read = opened.and_then(|opened| Ok((opened.read(visitor)?, opened)));
        self.notes.extend(read.is_err().then_some("snapshot_bad"));
        read.ok()
    }

    fn keep(&mut self, found: &mut Found, visitor: VisitorId, met: Met) {
        let stored = match met {
            Met::AsRead(stored) => stored,
            Met::Gone => Some(Stored::Tombstone),
            // After a read that failed nothing is known of what there is now.
            Met::Instead(_) if found.failed => None,
            Met::Instead(newest) => {
                self.notes.push("snapshot_older");
                Some(newest)
            }
            Met::Older(stored, newest) => {
                self.notes.push("snapshot_older");
                found.newest.insert(visitor, newest);
                Some(stored)
            }
        };
        if let Some(Stored::Snapshot(snapshot)) = stored.as_ref().filter(|_| !found.newest.contains_key(&visitor)) {
            self.snapshots.push((visitor, snapshot.version));
        }
        if let Some(stored) = stored {
            found.stored.insert(visitor, stored);
        }
    }

    /// Answers; `granted` is what the person's object answered, empty for nothing.
    pub(crate) fn finish(self: Box<Self>, who: Recognised, granted: &[u8]) -> Outcome {
        match &self.call {
            Call::Decide(_) => decide::finish(self, who, granted),
            Call::Me(_) => me::finish(self, &who),
            Call::Events(_) => events::finish(self),
            Call::Pixel(_) => pixel::finish(self, granted),
        }
    }

    /// Answers a call that recognises nobody, or says what an object is to be asked first.
    pub(crate) fn alone(self: Box<Self>) -> Alone {
        match &self.call {
            Call::Decide(_) => Alone::Answer(Box::new(decide::alone(self))),
            Call::Me(_) => Alone::Answer(Box::new(me::nobody(&self))),
            Call::Events(_) => Alone::Answer(Box::new(events::finish(self))),
            Call::Pixel(_) => pixel::settle(self),
        }
    }

    /// The visitor was erased or withdrew: its cookies go, and the next request is a new visitor's. Where it was an earlier
    /// one of the browser, who is there now stays; decisions alone change anything.
    pub(crate) fn forgotten(self: Box<Self>, stays: Stays) -> Outcome {
        let headers: Vec<_> = match stays {
            None => cookies::expire(self.secure).into(),
            Some(cookie) if matches!(self.call, Call::Decide(_)) => {
                cookies::write_identity(&self.site, self.secure, &cookie).into_iter().collect()
            }
            Some(_) => Vec::new(),
        };
        self.without_identity("forgotten").with_headers(headers)
    }

    pub(crate) fn without_identity(self: Box<Self>, reason: &'static str) -> Outcome {
        match &self.call {
            Call::Decide(_) => decide::contextual(&self, reason),
            Call::Me(_) => me::nobody(&self),
            Call::Events(_) => events::finish(self),
            Call::Pixel(_) => pixel::finish(self, &[]),
        }
    }
}
