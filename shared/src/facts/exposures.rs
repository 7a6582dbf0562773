//! Exposures of a visitor or a person: for each experiment, the arm that was seen first.

use crate::base::first_records::{FirstRecord, FirstRecords};
use crate::base::ids::Millis;
use crate::base::limits;
use crate::base::packed::{self, PackedReader};

/// First exposure to an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FirstExposure {
    /// Code of the arm.
    pub arm: u8,
    /// Time at which the edge received the first exposure.
    pub at: Millis,
    /// Whether another arm was seen too. Results leave such a person out, because both arms may have had an effect.
    pub mixed: bool,
}

impl FirstRecord for FirstExposure {
    const MOST: usize = limits::EXPERIMENTS;

    /// The earlier exposure; at equal times that of the smaller arm code. It is mixed if the arms differ. Over a set of
    /// exposures, the result is the least (time, arm) and whether there was more than one arm.
    fn join(self, other: Self) -> Self {
        let first = if (other.at, other.arm) < (self.at, self.arm) { other } else { self };
        Self { mixed: self.mixed || other.mixed || self.arm != other.arm, ..first }
    }

    /// Packs the arm with the flag in its lowest bit, then the time.
    fn put(&self, to: &mut Vec<u8>) {
        packed::put(to, u64::from(self.arm) << 1 | u64::from(self.mixed));
        packed::put(to, self.at);
    }

    fn read(from: &mut PackedReader<'_>) -> Option<Self> {
        let arm = from.number()?;
        Some(Self { arm: u8::try_from(arm >> 1).ok()?, at: from.number()?, mixed: arm & 1 == 1 })
    }
}

/// First exposures by experiment code. If one is dropped, the visitor's arm is drawn again, and its person no longer
/// counts in the results of that experiment.
pub type Exposures = FirstRecords<FirstExposure>;
