//! Which arms a visitor, or a person, was exposed to: of each experiment the arm that was seen first.

use std::collections::BTreeMap;

use crate::ids::Millis;
use crate::limits;
use crate::packed::{self, Packed};

/// The arm of one experiment that was seen first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exposure {
    /// The arm's code.
    pub arm: u8,
    /// When the edge received the first exposure.
    pub at: Millis,
    /// Whether another arm was seen as well: then it says nothing about either, and the results leave it out.
    pub mixed: bool,
}

impl Exposure {
    /// The earlier of the two, at the same time the one of the smaller arm; mixed where the arms differ. Of a set of
    /// exposures it keeps the least (time, arm) and whether there was more than one arm: commutative, associative,
    /// idempotent.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let first = if (other.at, other.arm) < (self.at, self.arm) { other } else { self };
        Self { mixed: self.mixed || other.mixed || self.arm != other.arm, ..first }
    }
}

/// Exposures by the experiment's code: those of the [`limits::EXPERIMENTS`] greatest codes. Codes are append-only, so these
/// are the experiments made last. An exposure beyond is forgotten: the visitor would be drawn anew, and its person no
/// longer counts in that experiment's results.
///
/// The bound goes by the code, which no join moves, and not by a time, which a join makes earlier: else what is kept would
/// depend on the order in which facts come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exposures(BTreeMap<u32, Exposure>);

impl Exposures {
    /// Adds one exposure.
    pub fn insert(&mut self, experiment: u32, exposure: Exposure) {
        let joined = self.0.get(&experiment).map_or(exposure, |there| there.join(exposure));
        self.0.insert(experiment, joined);
        self.keep_newest(limits::EXPERIMENTS);
    }

    /// Keeps those of at most so many experiments, of the greatest codes.
    pub fn keep_newest(&mut self, most: usize) {
        while self.0.len() > most {
            self.0.pop_first();
        }
    }

    /// Keeps those of which this holds, given the experiment's code and the exposure.
    pub fn retain(&mut self, keeps: impl Fn(u32, &Exposure) -> bool) {
        self.0.retain(|experiment, exposure| keeps(*experiment, exposure));
    }

    /// Those of both: commutative, associative, idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        other.0.into_iter().for_each(|(experiment, exposure)| self.insert(experiment, exposure));
        self
    }

    /// The exposure to an experiment, by its code.
    #[must_use]
    pub fn get(&self, experiment: u32) -> Option<Exposure> {
        self.0.get(&experiment).copied()
    }

    /// Experiments' codes with their exposures, by code.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Exposure)> + '_ {
        self.0.iter().map(|(experiment, exposure)| (*experiment, *exposure))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a snapshot carries them: of each, by code, the code's distance from the one before, the arm with the flag in its
    /// lowest bit, the time. No bytes for none.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let mut before = 0;
        for (experiment, Exposure { arm, at, mixed }) in self.iter() {
            packed::put(&mut to, u64::from(experiment - before));
            packed::put(&mut to, u64::from(arm) << 1 | u64::from(mixed));
            packed::put(&mut to, at);
            before = experiment;
        }
        to
    }

    /// Reads what was packed; `None` where it is not of the form, or over the bound.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Packed(bytes);
        let mut exposures = BTreeMap::new();
        let mut code = 0_u32;
        while !from.is_empty() {
            code = code.checked_add(u32::try_from(from.number()?).ok()?)?;
            let arm = from.number()?;
            let exposure = Exposure { arm: u8::try_from(arm >> 1).ok()?, at: from.number()?, mixed: arm & 1 == 1 };
            if exposures.insert(code, exposure).is_some() || exposures.len() > limits::EXPERIMENTS {
                return None;
            }
        }
        Some(Self(exposures))
    }
}

impl FromIterator<(u32, Exposure)> for Exposures {
    fn from_iter<T: IntoIterator<Item = (u32, Exposure)>>(all: T) -> Self {
        let mut exposures = Self::default();
        all.into_iter().for_each(|(experiment, exposure)| exposures.insert(experiment, exposure));
        exposures
    }
}
