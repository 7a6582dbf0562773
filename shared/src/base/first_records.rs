//! First records of a visitor or a person: the first arm it was exposed to in each experiment, and the first offer code
//! it got from each limited offer. Records are facts of visitors. Their join takes the earliest, so neither the order
//! of arrival nor the number of browsers of a person matters.

use std::collections::BTreeMap;

use crate::base::packed::{self, PackedReader};

/// A fact of which only a person's earliest one counts.
pub trait FirstRecord: Copy {
    /// The most codes a profile stores. The greatest codes stay: codes are append-only, so these are the newest.
    const MOST: usize;

    /// The earlier of the two. The operation is commutative, associative and idempotent.
    #[must_use]
    fn join(self, other: Self) -> Self;

    /// Appends the packed form.
    fn put(&self, to: &mut Vec<u8>);

    /// Reads the packed form; `None` if it is malformed.
    fn read(from: &mut PackedReader<'_>) -> Option<Self>;
}

/// The first record per code, for at most [`FirstRecord::MOST`] codes. Over the bound, the smallest codes are dropped.
///
/// The bound selects by code, which no join changes. A selection by time would depend on the order in which facts
/// arrive, because a join makes times earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstRecords<T>(BTreeMap<u32, T>);

impl<T> Default for FirstRecords<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: FirstRecord> FirstRecords<T> {
    /// Adds a record; an existing record of the code is joined with it.
    pub fn insert(&mut self, code: u32, value: T) {
        let joined = self.0.get(&code).map_or(value, |there| there.join(value));
        self.0.insert(code, joined);
        self.keep_newest(T::MOST);
    }

    /// Drops the smallest codes until at most `most` remain.
    pub fn keep_newest(&mut self, most: usize) {
        while self.0.len() > most {
            self.0.pop_first();
        }
    }

    /// Removes the records for which `keeps` is false.
    pub fn retain(&mut self, keeps: impl Fn(u32, &T) -> bool) {
        self.0.retain(|code, value| keeps(*code, value));
    }

    /// The records of both, joined per code. The operation is commutative, associative and idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        other.0.into_iter().for_each(|(code, value)| self.insert(code, value));
        self
    }

    /// The first record of a code.
    #[must_use]
    pub fn get(&self, code: u32) -> Option<T> {
        self.0.get(&code).copied()
    }

    /// All records, in ascending order of their codes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        self.0.iter().map(|(code, value)| (*code, *value))
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The packed form for a snapshot. Each record, in order of codes, is the distance from the previous code and the
    /// record's own bytes. No records pack to no bytes.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let mut before = 0;
        for (code, value) in self.iter() {
            packed::put(&mut to, u64::from(code - before));
            value.put(&mut to);
            before = code;
        }
        to
    }

    /// Reads the packed form; `None` if it is malformed or over the bound.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = PackedReader(bytes);
        let mut all = BTreeMap::new();
        let mut code = 0_u32;
        while !from.is_empty() {
            code = code.checked_add(u32::try_from(from.number()?).ok()?)?;
            if all.insert(code, T::read(&mut from)?).is_some() || all.len() > T::MOST {
                return None;
            }
        }
        Some(Self(all))
    }
}

impl<T: FirstRecord> FromIterator<(u32, T)> for FirstRecords<T> {
    fn from_iter<I: IntoIterator<Item = (u32, T)>>(all: I) -> Self {
        let mut firsts = Self::default();
        all.into_iter().for_each(|(code, value)| firsts.insert(code, value));
        firsts
    }
}
