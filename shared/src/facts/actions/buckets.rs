//! Actions of one visitor in time buckets, as the origin stores them: `[visitor][bucket]` → packed actions.
//!
//! A day with few actions is one bucket. A day with more than 128 actions is split into its hours, and an hour with
//! more into its minutes. A write therefore touches few bytes, a time range reads only its own buckets, and a visitor
//! with few actions has one row per day.

use super::packed::pack;
use super::{ActionList, AdAction};
use crate::base::time::{DAY_MINUTES, Minute};

/// Largest number of actions in a day's or an hour's bucket; a larger bucket is split. A minute is never split.
const FULL: usize = 128;
const HOUR_MINUTES: u32 = 60;

/// Length of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BucketSpan {
    /// One minute.
    Minute,
    /// One hour of UTC.
    Hour,
    /// One day of UTC.
    Day,
}

impl BucketSpan {
    /// Length in minutes.
    #[must_use]
    pub fn minutes(self) -> u32 {
        match self {
            Self::Minute => 1,
            Self::Hour => HOUR_MINUTES,
            Self::Day => DAY_MINUTES,
        }
    }

    fn shorter(self) -> Option<Self> {
        match self {
            Self::Minute => None,
            Self::Hour => Some(Self::Minute),
            Self::Day => Some(Self::Hour),
        }
    }
}

/// The actions of one span of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionBucket {
    /// First minute of the bucket.
    pub start: Minute,
    /// Length of the bucket.
    pub span: BucketSpan,
    /// Number of actions in `packed`.
    pub count: u32,
    /// The actions, as [`ActionList::pack_actions`] packs them.
    pub packed: Vec<u8>,
}

impl ActionList {
    /// All actions in buckets, in order of time. Equal lists give equal buckets.
    #[must_use]
    pub fn buckets(&self) -> Vec<ActionBucket> {
        let mut buckets = Vec::new();
        cut_buckets(self.iter().collect(), BucketSpan::Day, &mut buckets);
        buckets
    }
}

/// Splits the actions into buckets of a span; a part with more than [`FULL`] actions is split by the next shorter span.
fn cut_buckets(mut actions: Vec<AdAction>, span: BucketSpan, to: &mut Vec<ActionBucket>) {
    let start = |action: &AdAction| action.minute.0 - action.minute.0 % span.minutes();
    actions.sort_unstable_by_key(|action| action.minute);
    for part in actions.chunk_by(|a, b| start(a) == start(b)) {
        match span.shorter() {
            Some(shorter) if part.len() > FULL => cut_buckets(part.to_vec(), shorter, to),
            _ => to.extend(part.first().map(|first| ActionBucket {
                start: Minute(start(first)),
                span,
                count: u32::try_from(part.len()).unwrap_or(u32::MAX),
                packed: pack(part.to_vec()),
            })),
        }
    }
}
