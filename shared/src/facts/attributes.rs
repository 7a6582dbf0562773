//! Attributes: named values of a visitor, as the publisher states them. A name stands for a token and has one kind of
//! value permanently. The last write of an attribute wins, and a removal is a write too; neither the order nor the
//! repetition of facts changes the result.

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

/// Number that stands for an attribute name: its index in the tenant's [`NameDictionary`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NameToken(pub u16);

/// Whether `name` is a valid attribute name: 1 to [`limits::ATTRIBUTE_NAME_BYTES`] of `A-Z`, `a-z`, `0-9`, `_`, `-` and
/// `.`, with a letter or `_` first.
#[must_use]
pub fn name_is_good(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    name.len() <= limits::ATTRIBUTE_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(fits)
}

/// The attributes of one visitor: the [`limits::ATTRIBUTES`] written last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttributeMap(BTreeMap<NameToken, (WriteStamp, Option<AttributeValue>)>);

impl AttributeMap {
    /// Writes one attribute; `None` removes it. A write that is older than the stored one is ignored; under equal
    /// stamps the greater value wins. A value over a bound ([`AttributeValue::check`]) is not written.
    pub fn write(&mut self, token: NameToken, stamp: WriteStamp, value: Option<AttributeValue>) {
        if value.as_ref().is_none_or(|value| value.check().is_ok()) {
            self.put(token, (stamp, value));
        }
    }

    /// The attributes of a person: for each name the last write of any visitor. Unlike [`Self::join`] the result has no
    /// bound, so that many later writes of one visitor do not hide an attribute of another.
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
        // A write only moves an attribute up in the order, so that dropping the lowest commutes with the join.
        if self.0.len() > limits::ATTRIBUTES {
            let lowest = self.0.iter().map(|(token, (stamp, _))| (*stamp, *token)).min();
            lowest.and_then(|(_, token)| self.0.remove(&token));
        }
    }

    /// All writes of both maps: commutative, associative and idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        other.0.into_iter().for_each(|(token, write)| self.put(token, write));
        self
    }

    /// Value of an attribute; `None` if it is absent or removed.
    #[must_use]
    pub fn get(&self, token: NameToken) -> Option<&AttributeValue> {
        self.0.get(&token)?.1.as_ref()
    }

    /// The attributes with a value, in order of their tokens.
    pub fn iter(&self) -> impl Iterator<Item = (NameToken, &AttributeValue)> + '_ {
        self.0.iter().filter_map(|(token, (_, value))| Some((*token, value.as_ref()?)))
    }

    /// All writes in order of their tokens; a removal has no value.
    pub fn writes(&self) -> impl Iterator<Item = (NameToken, WriteStamp, Option<&AttributeValue>)> + '_ {
        self.0.iter().map(|(token, (stamp, value))| (*token, *stamp, value.as_ref()))
    }

    /// The part of the map that packs into at most `bytes`; `None` if the whole map fits.
    ///
    /// Attributes in `first` come before others, then newer writes before older ones. An attribute that does not fit is
    /// skipped, and older, smaller ones may still fit. An attribute in `first` that was never written is stored as
    /// removed with the oldest possible stamp, so that a reader knows that it is absent. A map that [`Self::is_full`]
    /// cannot tell whether it was written; then nothing is added.
    #[must_use]
    pub fn trim_to_bytes(&self, bytes: usize, first: &BTreeSet<NameToken>) -> Option<Self> {
        if self.pack().len() <= bytes {
            return None;
        }
        let never = (WriteStamp::default(), None);
        let is_absent = |token: &&NameToken| !self.is_full() && !self.0.contains_key(token);
        let absent = first.iter().filter(is_absent).map(|token| (token, &never));
        let mut all: Vec<_> = self.0.iter().chain(absent).collect();
        all.sort_unstable_by_key(|(token, (stamp, _))| Reverse((first.contains(token), *stamp, **token)));
        let (mut part, mut left, mut last) = (Self::default(), bytes.saturating_sub(packed::FRAME), None);
        for (token, (stamp, value)) in all {
            let of_stamp = if last == Some(*stamp) { 0 } else { packed::STAMP };
            let needed = packed::ROW + of_stamp + value.as_ref().map_or(0, |value| value.pack().len());
            if needed <= left && part.0.len() < limits::ATTRIBUTES {
                (left, last) = (left - needed, Some(*stamp));
                part.0.insert(*token, (*stamp, value.clone()));
            }
        }
        Some(part)
    }

    /// The map without the writes of `tokens`; `None` if it has none of them. In a map that [`Self::is_full`] these
    /// tokens remain, as removals with the oldest possible stamp, so that a reader still knows that older writes may be
    /// missing.
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

    /// Whether the map is at its bound of [`limits::ATTRIBUTES`], so that older writes may be missing.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() >= limits::ATTRIBUTES
    }

    /// Time of an attribute's last write or removal.
    #[must_use]
    pub fn written(&self, token: NameToken) -> Option<Millis> {
        self.0.get(&token).map(|(stamp, _)| stamp.at)
    }

    /// Whether the map has no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
