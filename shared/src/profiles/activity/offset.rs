//! UTC offsets of wall clocks and their changes. The caller knows the zone and its rules.

use std::ops::Range;

use crate::base::ids::Millis;
use crate::base::time::{HOUR_MS, MINUTE_MS};

/// Milliseconds of a week.
pub(super) const WEEK_MS: u64 = 168 * HOUR_MS;

/// The minutes by which a clock is ahead of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UtcOffset(i16);

impl UtcOffset {
    /// UTC itself.
    pub const UTC: Self = Self(0);

    /// The offset of a clock this many minutes ahead of UTC; `None` for a day or more.
    #[must_use]
    pub fn minutes(minutes: i32) -> Option<Self> {
        i16::try_from(minutes).ok().filter(|minutes| minutes.unsigned_abs() < 1_440).map(Self)
    }

    /// The offset as whole hours (rounded down) and the remaining minutes, 0 to 59.
    pub(super) fn parts(self) -> (i16, u16) {
        (self.0.div_euclid(60), self.0.rem_euclid(60).unsigned_abs())
    }

    /// Milliseconds from the last Monday 00:00 of this clock to a time.
    pub(super) fn into_week(self, time: Millis) -> u64 {
        // 1970 began on a Thursday.
        let utc = i64::try_from(time % WEEK_MS + 72 * HOUR_MS).unwrap_or_default();
        (utc + i64::from(self.0) * MINUTE_MS.cast_signed()).rem_euclid(WEEK_MS.cast_signed()).cast_unsigned()
    }
}

/// The UTC offset of a zone over time: the first offset, and its changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneOffsets {
    first: UtcOffset,
    changes: Vec<(Millis, UtcOffset)>,
}

impl From<UtcOffset> for ZoneOffsets {
    fn from(offset: UtcOffset) -> Self {
        Self::new(offset, Vec::new())
    }
}

impl ZoneOffsets {
    /// Makes the value from the offset before all changes and the changes (begin, new offset), in any order.
    #[must_use]
    pub fn new(first: UtcOffset, mut changes: Vec<(Millis, UtcOffset)>) -> Self {
        changes.sort_unstable();
        Self { first, changes }
    }

    /// The offset at a time.
    #[must_use]
    pub fn at(&self, time: Millis) -> UtcOffset {
        let past = self.changes.partition_point(|(from, _)| *from <= time);
        past.checked_sub(1).and_then(|last| self.changes.get(last)).map_or(self.first, |(_, offset)| *offset)
    }

    /// The offset that was in force longest in the time in which a person's facts were recorded; of equal ones the
    /// earlier. It is the one to read the person's histogram with. The histogram counts UTC hours without dates, so
    /// today's offset would move every habit by an hour when the clocks change.
    #[must_use]
    pub fn usual(&self, recorded: Range<Millis>) -> UtcOffset {
        let mut longest = (self.at(recorded.start), 0);
        for (_, offset) in self.pieces(recorded.clone()) {
            let same = self.pieces(recorded.clone()).filter(|(_, other)| *other == offset);
            let length = same.fold(0_u64, |sum, (piece, _)| sum.saturating_add(piece.end - piece.start));
            if length > longest.1 {
                longest = (offset, length);
            }
        }
        longest.0
    }

    /// The non-empty pieces of a time range with their offsets, in order.
    pub(super) fn pieces(&self, whole: Range<Millis>) -> impl Iterator<Item = (Range<Millis>, UtcOffset)> + '_ {
        let starts = std::iter::once((0, self.first)).chain(self.changes.iter().copied());
        let ends = self.changes.iter().map(|(from, _)| *from).chain([Millis::MAX]);
        let clipped = move |((from, offset), to): ((Millis, UtcOffset), Millis)| {
            (from.max(whole.start)..to.min(whole.end), offset)
        };
        starts.zip(ends).map(clipped).filter(|(piece, _)| !piece.is_empty())
    }
}
