//! Attributes: what a publisher says of a visitor, by name (S4.8). A name stands for a token and has one kind of value
//! for ever. The last writer of an attribute wins, and removing it is a write too, so that neither order nor repeats of
//! facts change the outcome.

mod dictionary;
mod forgotten;
mod packed;
mod value;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::Millis;
use crate::base::limits;
use crate::facts::segments::WriteStamp;

pub use dictionary::{AttributeError, DictionaryError, NameDictionary, decode_page, encode_page};
pub use forgotten::{ForgottenName, name_is_reserved};
pub use packed::PackedAttributes;
pub use value::{AttributeValue, FiniteNumber, ValueError, ValueKind};

/// The small integer that stands for a name: its place in the tenant's [`NameDictionary`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NameToken(pub u16);

/// Whether this may be an attribute's name: 1 to [`limits::ATTRIBUTE_NAME_BYTES`] of `A-Z`, `a-z`, `0-9`, `_`, `-` and `.`, a
/// letter or `_` first.
#[must_use]
pub fn name_is_good(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    name.len() <= limits::ATTRIBUTE_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(fits)
}

/// One visitor's attributes: the [`limits::ATTRIBUTES`] written last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttributeMap(BTreeMap<NameToken, (WriteStamp, Option<AttributeValue>)>);

impl AttributeMap {
    /// Writes one attribute, `None` to remove it, unless a later write is there; of two writes under one stamp the
    /// greater value stands. A value over a bound ([`AttributeValue::check`]) is not written.
    pub fn write(&mut self, token: NameToken, stamp: WriteStamp, value: Option<AttributeValue>) {
        if value.as_ref().is_none_or(|value| value.check().is_ok()) {
            self.put(token, (stamp, value));
        }
    }

    /// The attributes of a person: of each the last write of any of its visitors. Unlike [`Self::join`] it has no bound, so
    /// that no attribute of a visitor seems absent because the others wrote many later ones.
    #[must_use]
    pub fn of_person(visitors: impl IntoIterator<Item = Self>) -> Self {
        let mut person = Self::default();
        let writes = visitors.into_iter().flat_map(|visitor| visitor.0);
        writes.for_each(|(token, write)| person.put_last(token, write));
        person
    }

    fn put_last(&mut self, token: NameToken, write: (WriteStamp, Option<AttributeValue>)) {
        match self.0.get_mut(&token) {
            Some(there) if *there >= write => {}
            Some(there) => *there = write,
            None => drop(self.0.insert(token, write)),
        }
    }

    fn put(&mut self, token: NameToken, write: (WriteStamp, Option<AttributeValue>)) {
        self.put_last(token, write);
        // A write only moves an attribute up, so that leaving out the lowest commutes with the join.
        if self.0.len() > limits::ATTRIBUTES {
            let lowest = self.0.iter().map(|(token, (stamp, _))| (*stamp, *token)).min();
            lowest.and_then(|(_, token)| self.0.remove(&token));
        }
    }

    /// All writes of both: commutative, associative, idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        other.0.into_iter().for_each(|(token, write)| self.put(token, write));
        self
    }

    /// The value of an attribute that the visitor has.
    #[must_use]
    pub fn get(&self, token: NameToken) -> Option<&AttributeValue> {
        self.0.get(&token)?.1.as_ref()
    }

    /// The attributes that the visitor has, in order of their tokens.
    pub fn iter(&self) -> impl Iterator<Item = (NameToken, &AttributeValue)> + '_ {
        self.0.iter().filter_map(|(token, (_, value))| Some((*token, value.as_ref()?)))
    }

    /// All writes, in order of their tokens; without a value where one was removed.
    pub fn writes(&self) -> impl Iterator<Item = (NameToken, WriteStamp, Option<&AttributeValue>)> + '_ {
        self.0.iter().map(|(token, (stamp, value))| (*token, *stamp, value.as_ref()))
    }

    /// What is kept of them where they may have at most so many bytes, packed; `None` where all fit. The attributes in
    /// `first` stay before others, then the newest writes do; one that is too long makes room for older ones, and some
    /// bytes may be left over. An attribute in `first` that was never written is kept as one that was removed before any
    /// write: so a reader knows that it is absent. Of a map that [`Self::is_full`] nobody knows that.
    #[must_use]
    pub fn kept_within(&self, bytes: usize, first: &BTreeSet<NameToken>) -> Option<Self> {
        if self.pack().len() <= bytes {
            return None;
        }
        let never = (WriteStamp::default(), None);
        let is_absent = |token: &&NameToken| !self.is_full() && !self.0.contains_key(token);
        let absent = first.iter().filter(is_absent).map(|token| (token, &never));
        let mut all: Vec<_> = self.0.iter().chain(absent).collect();
        all.sort_unstable_by_key(|(token, (stamp, _))| Reverse((first.contains(token), *stamp, **token)));
        let (mut kept, mut left, mut last) = (Self::default(), bytes.saturating_sub(packed::FRAME), None);
        for (token, (stamp, value)) in all {
            let of_stamp = if last == Some(*stamp) { 0 } else { packed::STAMP };
            let needed = packed::ROW + of_stamp + value.as_ref().map_or(0, |value| value.pack().len());
            if needed <= left && kept.0.len() < limits::ATTRIBUTES {
                (left, last) = (left - needed, Some(*stamp));
                kept.0.insert(*token, (*stamp, value.clone()));
            }
        }
        Some(kept)
    }

    /// The map without any write of some tokens; `None` where it has none. Of a map that [`Self::is_full`] they stay as
    /// removed before any write: a reader still knows that older writes may have been left out.
    #[must_use]
    pub fn without(&self, tokens: &BTreeSet<NameToken>) -> Option<Self> {
        if !self.0.iter().any(|(token, write)| tokens.contains(token) && *write != (WriteStamp::default(), None)) {
            return None;
        }
        let mut left = self.clone();
        if self.is_full() {
            let gone = left.0.iter_mut().filter(|(token, _)| tokens.contains(token));
            gone.for_each(|(_, write)| *write = (WriteStamp::default(), None));
        } else {
            left.0.retain(|token, _| !tokens.contains(token));
        }
        Some(left)
    }

    /// Whether older writes may have been left out for [`limits::ATTRIBUTES`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() >= limits::ATTRIBUTES
    }

    /// When an attribute was written or removed last.
    #[must_use]
    pub fn written(&self, token: NameToken) -> Option<Millis> {
        self.0.get(&token).map(|(stamp, _)| stamp.at)
    }

    /// Whether nothing was ever written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
