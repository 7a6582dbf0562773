//! Times of a visitor's page views and purchases in its snapshot. A snapshot has no times of other events.
//!
//! The form is the minute before which nothing is stated, then for pages and for purchases the newest minutes with
//! events, in the form of [`super::packed`].

use super::packed::entry;
use super::{EventCount, HeldEvents, NewestTimes, VisitorEvents};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::time::Minute;
use crate::facts::fact::{PAGE, PURCHASE};

/// The events that a snapshot covers, in their order.
const SAID: [&str; 2] = [PAGE, PURCHASE];

impl VisitorEvents {
    /// Packs the part for a snapshot: from minute `since` on, the newest [`limits::SNAPSHOT_EVENT_MINUTES`] minutes of
    /// each name.
    #[must_use]
    pub fn pack_recent(&self, since: Minute) -> Vec<u8> {
        let since = since.max(self.since);
        let mut to = Vec::new();
        packed::put(&mut to, since.0.into());
        for name in SAID {
            let mut minutes = match self.held(name) {
                HeldEvents::Times(times) => times.minutes.clone(),
                HeldEvents::Never => NewestTimes::default(),
                HeldEvents::LeftOut => NewestTimes { floor: u32::MAX, ..NewestTimes::default() },
            };
            minutes.raise(since.0);
            if let Some(over) = minutes.counts.len().checked_sub(limits::SNAPSHOT_EVENT_MINUTES + 1) {
                let last_over = minutes.iter().nth(over).map_or(0, |(at, _)| at);
                minutes.raise(last_over.saturating_add(1));
            }
            minutes.put(&mut to, since.0);
        }
        to
    }
}

/// Number of events of a name from minute `from` up to `to` (exclusive), from the bytes of a snapshot; `None` for a
/// name that snapshots do not cover. Empty or invalid bytes answer "at least 0": an older release wrote the snapshot.
#[must_use]
pub fn within(recent: &[u8], name: &str, from: Minute, to: Minute) -> Option<EventCount> {
    let place = SAID.iter().position(|said| *said == name)?;
    Some(read(PackedReader(recent), place, from.0, to.0).unwrap_or(EventCount::AtLeast(0)))
}

fn read(mut recent: PackedReader<'_>, place: usize, from: u32, to: u32) -> Option<EventCount> {
    let since = recent.number()?;
    let mut often = EventCount::AtLeast(0);
    for _ in 0..=place {
        let floor = since.checked_add(recent.number()?)?;
        let (mut next, mut sum) = (floor, 0_u64);
        for _ in 0..recent.count(limits::SNAPSHOT_EVENT_MINUTES)? {
            let (at, count) = entry(&mut recent, next)?;
            if (u64::from(from)..to.into()).contains(&at) {
                sum = sum.saturating_add(count);
            }
            next = at.checked_add(1)?;
        }
        often = if u64::from(from) >= floor { EventCount::Exactly(sum) } else { EventCount::AtLeast(sum) };
    }
    Some(often)
}
