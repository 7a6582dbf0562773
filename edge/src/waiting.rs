//! Requests that wait for a read or for an object's answer: what each is in the middle of, and how many there may be.

use std::collections::BTreeMap;

use causeway_shared::identity::{Begun, Reads, Recognised, Second};
use causeway_shared::wire::catalogue::Pointer;
use causeway_shared::{kv, limits};

use crate::attributes;
use crate::visit::Visit;

/// Requests that may wait for a read at once. A client that goes away ends its request without a word, so
/// the oldest one makes room.
const WAITING: usize = 1_024;
/// Bytes of their bodies, which take some sixteen times as many while they wait: an isolate has 128 MB.
const WAITING_BYTES: usize = 2 * 1_024 * 1_024;

/// One of them.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) visit: Box<Visit>,
    pub(crate) beside: Beside,
    pub(crate) at: At,
}

/// What is read beside what names the visitor, in the same bulk.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// The pointer to the catalogue, the model, and how traffic is steered.
    pub(crate) pointer: bool,
    /// The version of the catalogue that it named.
    pub(crate) version: Option<Pointer>,
    /// The names of attributes.
    pub(crate) names: bool,
}

impl Beside {
    pub(crate) fn keys(&self) -> usize {
        let names = if self.names { limits::ATTRIBUTE_PAGES } else { 0 };
        kv::STANDING_KEYS * usize::from(self.pointer) + usize::from(self.version.is_some()) + names
    }
}

/// Where it goes on.
#[derive(Debug)]
pub(crate) enum At {
    /// Nobody is to be recognised.
    Alone,
    First(Box<Begun>),
    Second(Box<Second>),
    /// The person's object was asked which ads may be placed.
    Claim(Box<Recognised>),
    /// After it, with what it answered, an object of this limited offer was asked for a unit.
    Unit(Box<Recognised>, Vec<u8>, u32),
    /// The person's object was asked whether an impression counts.
    Confirm,
}

/// What is read where nobody's history is.
static NOTHING: Reads = Reads { snapshots: Vec::new(), lookups: Vec::new() };

impl At {
    /// What it waits for of what names the visitor.
    pub(crate) fn reads(&self) -> &Reads {
        match self {
            Self::First(begun) => begun.reads(),
            Self::Second(second) => second.reads(),
            Self::Alone | Self::Claim(_) | Self::Unit(..) | Self::Confirm => &NOTHING,
        }
    }
}

impl Waiting {
    /// The KV keys that it waits for.
    pub(crate) fn keys(&self) -> Vec<String> {
        let Self { visit, beside, at } = self;
        let (reads, tenant) = (at.reads(), &visit.site.id);
        let mut keys = Vec::with_capacity(reads.snapshots.len() + reads.lookups.len() + beside.keys());
        keys.extend(reads.snapshots.iter().map(|v| kv::snapshot_key(tenant, *v)));
        keys.extend(reads.lookups.iter().map(|id| kv::lookup_key(tenant, *id)));
        if beside.pointer {
            keys.extend(kv::standing_keys(tenant));
        }
        keys.extend(beside.version.map(|pointer| kv::catalogue_key(tenant, pointer.version)));
        if beside.names {
            keys.extend(attributes::keys(tenant));
        }
        keys
    }
}

/// All of an isolate's.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: BTreeMap<u32, Waiting>,
    bytes: usize,
    turn: u32,
}

impl Line {
    /// Gives the turn that it goes on with; 0 is none.
    pub(crate) fn add(&mut self, waiting: Waiting) -> u32 {
        self.turn = self.turn.wrapping_add(1).max(1);
        self.bytes += waiting.visit.bytes;
        self.waiting.insert(self.turn, waiting);
        while self.waiting.len() > WAITING || self.bytes > WAITING_BYTES {
            let Some((_, oldest)) = self.waiting.pop_first() else { break };
            self.bytes -= oldest.visit.bytes;
        }
        self.turn
    }

    pub(crate) fn take(&mut self, turn: u32) -> Option<Waiting> {
        let waiting = self.waiting.remove(&turn)?;
        self.bytes -= waiting.visit.bytes;
        Some(waiting)
    }
}
