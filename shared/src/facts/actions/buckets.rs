//! A day's actions in buckets, as the origin stores them: `[visitor][bucket]` → packed actions (seed 3, S3.8).
//!
//! A day that few actions fell into is one bucket; a fuller one is cut into its hours, and a fuller hour into its
//! minutes. So a write touches little, a time range reads only what it needs, and a visitor of few actions, as most are,
//! pays one row a day.

use super::packed::pack;
use super::{ActionList, AdAction};
use crate::base::time::{DAY_MINUTES, Minute};

/// Actions in one bucket before it is cut; a minute is never cut.
const FULL: usize = 128;
const HOUR_MINUTES: u32 = 60;

/// What time a bucket stands for.
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
    /// How many minutes.
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
    /// Its first minute.
    pub start: Minute,
    /// Its length.
    pub span: BucketSpan,
    /// How many actions there are.
    pub count: u32,
    /// The actions.
    pub packed: Vec<u8>,
}

impl ActionList {
    /// All actions in buckets, by time: equal actions give equal buckets.
    #[must_use]
    pub fn buckets(&self) -> Vec<ActionBucket> {
        let mut buckets = Vec::new();
        cut_buckets(self.iter().collect(), BucketSpan::Day, &mut buckets);
        buckets
    }
}

/// Splits actions by a span, and what is too full of it by the next shorter one.
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
