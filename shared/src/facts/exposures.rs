//! Which arms a visitor, or a person, was exposed to: of each experiment the arm that was seen first.

use crate::base::first_records::{FirstRecord, FirstRecords};
use crate::base::ids::Millis;
use crate::base::limits;
use crate::base::packed::{self, PackedReader};

/// The arm of one experiment that was seen first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FirstExposure {
    /// The arm's code.
    pub arm: u8,
    /// When the edge received the first exposure.
    pub at: Millis,
    /// Whether another arm was seen as well: then it says nothing about either, and the results leave it out.
    pub mixed: bool,
}

impl FirstRecord for FirstExposure {
    const MOST: usize = limits::EXPERIMENTS;

    /// The earlier of the two, at the same time the one of the smaller arm; mixed where the arms differ. Of a set of
    /// exposures it keeps the least (time, arm) and whether there was more than one arm.
    fn join(self, other: Self) -> Self {
        let first = if (other.at, other.arm) < (self.at, self.arm) { other } else { self };
        Self { mixed: self.mixed || other.mixed || self.arm != other.arm, ..first }
    }

    /// The arm with the flag in its lowest bit, the time.
    fn put(&self, to: &mut Vec<u8>) {
        packed::put(to, u64::from(self.arm) << 1 | u64::from(self.mixed));
        packed::put(to, self.at);
    }

    fn read(from: &mut PackedReader<'_>) -> Option<Self> {
        let arm = from.number()?;
        Some(Self { arm: u8::try_from(arm >> 1).ok()?, at: from.number()?, mixed: arm & 1 == 1 })
    }
}

/// Exposures by the experiment's code. Of one that is forgotten the visitor would be drawn anew, and its person no longer
/// counts in that experiment's results.
pub type Exposures = FirstRecords<FirstExposure>;
