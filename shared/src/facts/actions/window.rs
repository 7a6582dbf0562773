//! Time windows and frequency caps. A window `{interval, unit}` is a number of whole buckets of `unit`, as in the AdCP
//! convention.

use serde::{Deserialize, Serialize};

use super::ActionType;
use crate::base::time::{DAY_MINUTES, Minute};

/// Size of a window's buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WindowUnit {
    /// Minutes.
    Minutes,
    /// Hours of UTC.
    Hours,
    /// Days of UTC.
    Days,
}

impl WindowUnit {
    /// All units, in the order of their codes in stored forms.
    pub const ALL: [Self; 3] = [Self::Minutes, Self::Hours, Self::Days];

    fn minutes(self) -> u32 {
        match self {
            Self::Minutes => 1,
            Self::Hours => 60,
            Self::Days => DAY_MINUTES,
        }
    }
}

/// The last `interval` buckets of a unit, including the current one: the last 7 days are today and the 6 days before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TimeWindow {
    /// Number of buckets, at least 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub interval: u32,
    /// Size of a bucket.
    pub unit: WindowUnit,
}

impl TimeWindow {
    /// Length in minutes, with the current bucket counted in full.
    #[must_use]
    pub fn minutes(self) -> u32 {
        self.interval.saturating_mul(self.unit.minutes())
    }

    /// The window's minutes at time `now`: its first minute, and its end (exclusive).
    #[must_use]
    pub fn range(self, now: Minute) -> (Minute, Minute) {
        let size = self.unit.minutes();
        let running = now.0 / size;
        let first = running.saturating_sub(self.interval.saturating_sub(1));
        (Minute(first.saturating_mul(size)), Minute(running.saturating_add(1).saturating_mul(size)))
    }
}

/// Frequency cap: at most `limit` actions of a type within a window. A candidate must satisfy all caps of its entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrequencyCap {
    /// Action type that is counted.
    pub action_type: ActionType,
    /// Largest number of actions in the window.
    pub limit: u32,
    /// Window in which actions are counted.
    pub window: TimeWindow,
}

impl FrequencyCap {
    /// Whether one more action is allowed after `counted` actions.
    #[must_use]
    pub fn admits(&self, counted: u32) -> bool {
        counted < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Day;

    #[test]
    fn a_window_is_whole_buckets_including_the_current_one() {
        let now = Minute(Day(100).start().0 + 125);
        let range = |interval, unit| TimeWindow { interval, unit }.range(now);
        assert_eq!(range(7, WindowUnit::Days), (Day(94).start(), Day(101).start()));
        assert_eq!(range(1, WindowUnit::Days), (Day(100).start(), Day(101).start()));
        assert_eq!(range(1, WindowUnit::Hours), (Minute(now.0 - 5), Minute(now.0 + 55)));
        assert_eq!(range(3, WindowUnit::Minutes), (Minute(now.0 - 2), Minute(now.0 + 1)));
        assert_eq!(range(u32::MAX, WindowUnit::Days), (Minute(0), Day(101).start()));
    }

    #[test]
    fn a_cap_binds_at_its_limit() {
        let cap = FrequencyCap {
            action_type: ActionType::IMPRESSION,
            limit: 3,
            window: TimeWindow { interval: 1, unit: WindowUnit::Days },
        };
        assert!(cap.admits(2) && !cap.admits(3));
    }
}
