//! What a visitor, or a person, was first: of each experiment the arm that it was exposed to first, of each limited offer
//! the unit that it got first. Facts of visitors, joined earliest-first, so that it does not matter in which order they
//! come, nor which browsers turn out to be of one person.

use std::collections::BTreeMap;

use crate::base::packed::{self, PackedReader};

/// Something of which a person's first counts.
pub trait FirstRecord: Copy {
    /// Of so many codes one is kept: the greatest. Codes are append-only, so these are the ones made last.
    const MOST: usize;

    /// The earlier of the two: commutative, associative, idempotent.
    #[must_use]
    fn join(self, other: Self) -> Self;

    /// Adds its bytes.
    fn put(&self, to: &mut Vec<u8>);

    /// Reads what was put; `None` where it is not of the form.
    fn read(from: &mut PackedReader<'_>) -> Option<Self>;
}

/// The first by the code of what it is of: those of the [`FirstRecord::MOST`] greatest codes. One beyond is forgotten.
///
/// The bound goes by the code, which no join moves, and not by a time, which a join makes earlier: else what is kept would
/// depend on the order in which facts come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstRecords<T>(BTreeMap<u32, T>);

impl<T> Default for FirstRecords<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: FirstRecord> FirstRecords<T> {
    /// Adds one.
    pub fn insert(&mut self, code: u32, value: T) {
        let joined = self.0.get(&code).map_or(value, |there| there.join(value));
        self.0.insert(code, joined);
        self.keep_newest(T::MOST);
    }

    /// Keeps those of at most so many codes, the greatest.
    pub fn keep_newest(&mut self, most: usize) {
        while self.0.len() > most {
            self.0.pop_first();
        }
    }

    /// Keeps those of which this holds.
    pub fn retain(&mut self, keeps: impl Fn(u32, &T) -> bool) {
        self.0.retain(|code, value| keeps(*code, value));
    }

    /// Those of both: commutative, associative, idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        other.0.into_iter().for_each(|(code, value)| self.insert(code, value));
        self
    }

    /// The first of a code.
    #[must_use]
    pub fn get(&self, code: u32) -> Option<T> {
        self.0.get(&code).copied()
    }

    /// All of them, by code.
    pub fn iter(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        self.0.iter().map(|(code, value)| (*code, *value))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a snapshot carries them: of each, by code, the code's distance from the one before, and its own bytes. No bytes
    /// for none.
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

    /// Reads what was packed; `None` where it is not of the form, or over the bound.
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
