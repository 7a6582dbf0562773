//! KV keys by subject, and the columns that name them in the outbox.

use crate::store::visitor_at;
use causeway_shared::base::ids::{AltHash, KindCode, VisitorId};

/// Value of `outbox.kind` for a snapshot; a lookup has its own kind, which is never 0.
pub(crate) const SNAPSHOT: u16 = 0;

/// Value of `outbox.kind` for a page of attribute names; above all kinds of alternate ids.
pub(crate) const NAMES: u16 = 256;

/// Values of `outbox.kind` for a version of the catalogue, and for the pointer to the current version.
pub(crate) const CATALOGUE: u16 = 257;

pub(crate) const POINTER: u16 = 258;

/// Value of `outbox.kind` for the newest model.
pub(crate) const MODEL: u16 = 259;

/// Value of `outbox.kind` for the traffic allocation.
pub(crate) const ALLOCATION: u16 = 260;

/// Columns `kind` and `subject` of a page of attribute names.
#[must_use]
pub fn names_subject(page: u16) -> (u16, [u8; 16]) {
    (NAMES, u128::from(page).to_be_bytes())
}

/// A KV key by its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KvKey {
    /// A visitor's snapshot or tombstone.
    Snapshot(VisitorId),
    /// A lookup, under one of the id's hashes.
    Lookup(KindCode, AltHash),
    /// A page of the tenant's attribute names.
    Names(u16),
    /// A version of the tenant's catalogue.
    Catalogue(u32),
    /// The pointer to the current version of the catalogue.
    Pointer,
    /// The tenant's newest model.
    Model,
    /// The traffic allocation of the tenant's experiments.
    Allocation,
}

impl KvKey {
    pub(crate) fn columns(&self) -> (u16, [u8; 16]) {
        match self {
            Self::Snapshot(visitor) => (SNAPSHOT, *visitor.as_bytes()),
            Self::Lookup(kind, hash) => (kind.0.into(), hash.0),
            Self::Names(page) => names_subject(*page),
            Self::Catalogue(version) => (CATALOGUE, u128::from(*version).to_be_bytes()),
            Self::Pointer => (POINTER, [0; 16]),
            Self::Model => (MODEL, [0; 16]),
            Self::Allocation => (ALLOCATION, [0; 16]),
        }
    }

    pub(crate) fn of_columns(kind: u16, row: &rusqlite::Row<'_>, subject: usize) -> rusqlite::Result<Self> {
        match (kind, u8::try_from(kind)) {
            (SNAPSHOT, _) => visitor_at(row, subject).map(Self::Snapshot),
            (_, Ok(kind)) => Ok(Self::Lookup(KindCode(kind), AltHash(row.get(subject)?))),
            (CATALOGUE, _) => {
                let [.., a, b, c, d]: [u8; 16] = row.get(subject)?;
                Ok(Self::Catalogue(u32::from_be_bytes([a, b, c, d])))
            }
            (POINTER, _) => Ok(Self::Pointer),
            (MODEL, _) => Ok(Self::Model),
            (ALLOCATION, _) => Ok(Self::Allocation),
            (_, Err(_)) => {
                let [.., high, low]: [u8; 16] = row.get(subject)?;
                Ok(Self::Names(u16::from_be_bytes([high, low])))
            }
        }
    }
}

impl KvKey {
    /// A key of a whole tenant; `number` is that of a page of names or of a catalogue version.
    pub(crate) fn of_tenant(kind: u16, number: u32) -> Option<Self> {
        match kind {
            NAMES => u16::try_from(number).ok().map(Self::Names),
            CATALOGUE => Some(Self::Catalogue(number)),
            POINTER => Some(Self::Pointer),
            MODEL => Some(Self::Model),
            ALLOCATION => Some(Self::Allocation),
            _ => None,
        }
    }
}
