//! Activity histograms: a visitor's activity by hour of the week, as one small counter per hour. Each fact adds one. A
//! person's histogram is the sum of its visitors' histograms.

mod best;
mod offset;

use crate::base::ids::Millis;
use crate::base::packed::{self, PackedReader};
use crate::base::time::HOUR_MS;

pub use best::{
    BestHour, BestSendTime, BestSendTimeSource, LEAST_FACTS, PersonHabits, PopulationActivity, PriorActivity,
};
pub use offset::{UtcOffset, ZoneOffsets};

/// Hours of a week in UTC, from Monday 00:00.
pub const HOURS: usize = 168;

/// Counts of activity by hour of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityHistogram([u16; HOURS]);

impl Default for ActivityHistogram {
    fn default() -> Self {
        Self([0; HOURS])
    }
}

/// The hour of the week of a time: 0 is Monday 00:00 to 00:59 UTC.
#[must_use]
pub fn hour_of_week(time: Millis) -> usize {
    // 1970 began on a Thursday.
    let hours = time / HOUR_MS + 3 * 24;
    usize::try_from(hours % HOURS as u64).unwrap_or_default()
}

impl ActivityHistogram {
    /// Adds one at a time. Counters saturate.
    pub fn add(&mut self, time: Millis) {
        if let Some(count) = self.0.get_mut(hour_of_week(time)) {
            *count = count.saturating_add(1);
        }
    }

    /// The sum of two histograms.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.0.iter_mut().zip(other.0).for_each(|(count, more)| *count = count.saturating_add(more));
        sum
    }

    /// The counters, from Monday 00:00.
    #[must_use]
    pub fn counts(&self) -> &[u16; HOURS] {
        &self.0
    }

    /// The packed form: for each counter above 0, the number of zero counters before it, and its value.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let mut gap = 0;
        for count in self.0 {
            if count == 0 {
                gap += 1;
                continue;
            }
            packed::put(&mut to, gap);
            packed::put(&mut to, count.into());
            gap = 0;
        }
        to
    }

    /// Reads the packed form; `None` if it is malformed.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (mut from, mut histogram, mut hour) = (PackedReader(bytes), Self::default(), 0);
        while !from.is_empty() {
            hour += from.count(HOURS)?;
            *histogram.0.get_mut(hour)? = u16::try_from(from.number()?).ok().filter(|count| *count > 0)?;
            hour += 1;
        }
        Some(histogram)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn weeks_begin_on_monday() {
        // 2027-01-15T08:00:00Z, a Friday.
        let friday = 1_800_000_000_000;
        assert_eq!(hour_of_week(friday), 4 * 24 + 8);
        assert_eq!(hour_of_week(friday + 64 * HOUR), 0, "Monday's first hour");
        assert_eq!(hour_of_week(friday + 64 * HOUR - 1), 167);
        assert_eq!(hour_of_week(0), 3 * 24);
    }

    #[test]
    fn what_is_packed_is_read_again() {
        let mut histogram = ActivityHistogram::default();
        assert_eq!((histogram.pack().len(), ActivityHistogram::read(&[])), (0, Some(ActivityHistogram::default())));
        (0..400).for_each(|n| histogram.add(n * n * HOUR));
        (0..70_000).for_each(|_| histogram.add(5 * HOUR));
        assert_eq!(histogram.counts()[hour_of_week(5 * HOUR)], u16::MAX, "full");
        assert_eq!(ActivityHistogram::read(&histogram.pack()).unwrap(), histogram);
        let twice = histogram.plus(&histogram);
        assert!(twice.counts().iter().zip(histogram.counts()).all(|(two, one)| *two == one.saturating_mul(2)));
        for bad in [&[0][..], &[0, 0], &[168, 1, 1], &[0, 0x80, 0x80, 4], &[167, 1, 0, 1]] {
            assert_eq!(ActivityHistogram::read(bad), None, "{bad:?}");
        }
    }
}
