//! Coarse times since 2019-01-01T00:00Z, small enough to be stored by the thousand, and the lengths of time units.

/// A point in time: milliseconds since the Unix epoch. A length of time is a `u64` whose name ends with `_ms`.
pub type Millis = u64;

/// 2019-01-01T00:00:00Z in milliseconds since the Unix epoch.
pub const EPOCH_MS: Millis = 1_546_300_800_000;

/// Milliseconds of a minute.
pub const MINUTE_MS: u64 = 60_000;
/// Milliseconds of an hour.
pub const HOUR_MS: u64 = 60 * MINUTE_MS;
/// Milliseconds of a day of 24 hours.
pub const DAY_MS: u64 = 24 * HOUR_MS;
/// Minutes of a UTC day.
pub const DAY_MINUTES: u32 = 1_440;

/// Whole hours since [`EPOCH_MS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HourStamp(pub u32);

impl HourStamp {
    /// The hour that contains a time; 0 before the epoch.
    #[must_use]
    pub fn at(time: Millis) -> Self {
        Self(whole(time, HOUR_MS))
    }

    /// Its first millisecond.
    #[must_use]
    pub fn start_ms(self) -> Millis {
        EPOCH_MS + u64::from(self.0) * HOUR_MS
    }
}

/// Whole minutes since [`EPOCH_MS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Minute(pub u32);

impl Minute {
    /// The minute that contains a time; 0 before the epoch.
    #[must_use]
    pub fn at(time: Millis) -> Self {
        Self(whole(time, MINUTE_MS))
    }

    /// The UTC day that contains it.
    #[must_use]
    pub fn day(self) -> Day {
        Day(u16::try_from(self.0 / DAY_MINUTES).unwrap_or(u16::MAX))
    }
}

/// UTC days since [`EPOCH_MS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Day(pub u16);

impl Day {
    /// Its first minute.
    #[must_use]
    pub fn start(self) -> Minute {
        Minute(u32::from(self.0) * DAY_MINUTES)
    }
}

fn whole(time: Millis, unit: u64) -> u32 {
    u32::try_from(time.saturating_sub(EPOCH_MS) / unit).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_begin_at_midnight_utc() {
        let noon = EPOCH_MS + 36 * HOUR_MS;
        assert_eq!(Minute::at(noon).day(), Day(1));
        assert_eq!(Minute::at(EPOCH_MS + 24 * HOUR_MS - 1).day(), Day(0));
        assert_eq!(Day(1).start(), Minute::at(EPOCH_MS + 24 * HOUR_MS));
        assert_eq!((HourStamp::at(noon), HourStamp::at(0)), (HourStamp(36), HourStamp(0)));
        assert_eq!(Minute::at(u64::MAX).day(), Day(u16::MAX));
    }
}
