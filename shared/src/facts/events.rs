//! Events by name: how often and when each event of a visitor occurred. Page views and purchases are included.
//!
//! The stored data is bounded, and depends only on the set of facts, not on their order or batches:
//! - The first [`limits::EVENT_NAMES`] names are stored: `page` and `purchase`, then shorter before longer ones, then
//!   in byte order. The order uses the names and not their frequency, because a name that was dropped once could not
//!   come back complete. Shorter names come first because names that a page generates without end, from a word and an
//!   id, are longer than words.
//! - For each name, the counts of its newest minutes and of its newest UTC days are stored, with the time from which
//!   they are complete. Minutes answer windows of minutes and hours; days answer windows of days.
//!
//! For data that is not stored, the answer is [`EventCount::AtLeast`], which is never too high.

mod packed;
mod recent;

use std::collections::BTreeMap;

use crate::base::limits;
use crate::base::time::{DAY_MINUTES, Minute};
use crate::facts::fact::{PAGE, PURCHASE};

pub use recent::within as recent_within;

/// The events of one visitor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisitorEvents {
    /// Events before this minute are not stored.
    since: Minute,
    /// Whether names after the last stored one were dropped.
    left_out: bool,
    /// Names in the order of [`name_rank`], with their counts.
    names: Vec<(String, EventTimes)>,
}

/// Counts of one event name over time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventTimes {
    /// Number of events before the stored minutes; 0 if the visitor's history is incomplete.
    pub earlier: u64,
    /// Counts of the newest [`limits::EVENT_MINUTES`] minutes with events.
    pub minutes: NewestTimes,
    /// Counts of the newest [`limits::EVENT_DAYS`] UTC days with events.
    pub days: NewestTimes,
}

/// Counts of an event in the newest minutes or days.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewestTimes {
    floor: u32,
    counts: BTreeMap<u32, u64>,
}

/// Number of events, as far as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventCount {
    /// Exactly this many.
    Exactly(u64),
    /// This many, and possibly more that are not stored.
    AtLeast(u64),
}

impl EventCount {
    /// The number, if it is exact.
    #[must_use]
    pub fn exact(self) -> Option<u64> {
        match self {
            Self::Exactly(count) => Some(count),
            Self::AtLeast(_) => None,
        }
    }

    /// Lower bound of the number.
    #[must_use]
    pub fn least(self) -> u64 {
        match self {
            Self::Exactly(count) | Self::AtLeast(count) => count,
        }
    }

    /// Sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = self.least().saturating_add(other.least());
        if self.exact().is_some() && other.exact().is_some() { Self::Exactly(sum) } else { Self::AtLeast(sum) }
    }

    /// The number less `times`.
    #[must_use]
    pub fn minus(self, times: u64) -> Self {
        match self {
            Self::Exactly(count) => Self::Exactly(count.saturating_sub(times)),
            Self::AtLeast(count) => Self::AtLeast(count.saturating_sub(times)),
        }
    }
}

/// Stored data of one name.
enum HeldEvents<'a> {
    Times(&'a EventTimes),
    /// The event never occurred in the stored time.
    Never,
    /// The name may have been dropped.
    LeftOut,
}

/// Sort key of names: the least are stored first.
fn name_rank(name: &str) -> (bool, usize, &str) {
    (name != PAGE && name != PURCHASE, name.len(), name)
}

impl VisitorEvents {
    /// Empty events of a visitor whose events before a minute are not stored.
    #[must_use]
    pub fn since(minute: Minute) -> Self {
        Self { since: minute, ..Self::default() }
    }

    /// The same events; `left_out` states whether names after the last one may have been dropped.
    #[must_use]
    pub fn leaving_out(self, left_out: bool) -> Self {
        Self { left_out, ..self }
    }

    /// Adds one event. A name that is empty or too long is ignored.
    pub fn add(&mut self, name: &str, at: Minute) {
        self.at_name(name, |times| times.add(at));
    }

    /// Removes one event that was added before.
    pub fn remove(&mut self, name: &str, at: Minute) {
        let Ok(place) = self.find(name) else { return };
        if let Some((_, times)) = self.names.get_mut(place) {
            times.remove(at);
        }
    }

    /// Adds the counts of one name.
    pub fn add_times(&mut self, name: &str, times: EventTimes) {
        self.at_name(name, |own| own.plus(times));
    }

    fn at_name(&mut self, name: &str, change: impl FnOnce(&mut EventTimes)) {
        if name.is_empty() || name.len() > limits::NAME_BYTES {
            return;
        }
        let place = self.find(name).unwrap_or_else(|place| {
            self.names.insert(place, (name.to_owned(), EventTimes::since(self.since)));
            place
        });
        if let Some((_, times)) = self.names.get_mut(place) {
            change(times);
            if self.since > Minute(0) {
                times.earlier = 0;
            }
        }
        if self.names.len() > limits::EVENT_NAMES {
            self.names.truncate(limits::EVENT_NAMES);
            self.left_out = true;
        }
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.names.binary_search_by(|(there, _)| name_rank(there).cmp(&name_rank(name)))
    }

    /// The events of both, which must come from different facts. Commutative and associative.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        let since = self.since.max(other.since);
        if self.since < since {
            let own = std::mem::replace(&mut self, Self::since(since));
            self.left_out = own.left_out;
            own.names.into_iter().for_each(|(name, times)| self.add_times(&name, times));
        }
        self.left_out |= other.left_out;
        other.names.into_iter().for_each(|(name, times)| self.add_times(&name, times));
        self
    }

    /// Minute from which events are stored, and whether names after the last one were dropped.
    #[must_use]
    pub fn gaps(&self) -> (Minute, bool) {
        (self.since, self.left_out)
    }

    /// Names and their counts: `page` and `purchase` first, then shorter before longer ones.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &EventTimes)> {
        self.names.iter().map(|(name, times)| (name.as_str(), times))
    }

    /// Whether no event is stored and none can be missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn held(&self, name: &str) -> HeldEvents<'_> {
        match self.find(name) {
            Ok(place) => self.names.get(place).map_or(HeldEvents::Never, |(_, times)| HeldEvents::Times(times)),
            // No name before the last stored one is ever dropped.
            Err(place) if self.left_out && place == self.names.len() => HeldEvents::LeftOut,
            Err(_) => HeldEvents::Never,
        }
    }

    /// Total number of events of a name.
    #[must_use]
    pub fn total_events(&self, name: &str) -> EventCount {
        match self.held(name) {
            HeldEvents::Times(times) if self.since == Minute(0) => EventCount::Exactly(times.count()),
            HeldEvents::Times(times) => EventCount::AtLeast(times.count()),
            HeldEvents::Never if self.since == Minute(0) => EventCount::Exactly(0),
            HeldEvents::Never | HeldEvents::LeftOut => EventCount::AtLeast(0),
        }
    }

    /// Number of events of a name from minute `from` up to `to`, exclusive.
    #[must_use]
    pub fn events_within(&self, name: &str, from: Minute, to: Minute) -> EventCount {
        match self.held(name) {
            HeldEvents::Times(times) => times.within(from, to),
            HeldEvents::Never if from >= self.since => EventCount::Exactly(0),
            HeldEvents::Never | HeldEvents::LeftOut => EventCount::AtLeast(0),
        }
    }

    /// Time of the last event of a name; `None` if unknown.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<Minute> {
        match self.held(name) {
            HeldEvents::Times(times) => times.minutes.counts.last_key_value().map(|(minute, _)| Minute(*minute)),
            HeldEvents::Never | HeldEvents::LeftOut => None,
        }
    }
}

/// Total number of events of a name, over different visitors.
#[must_use]
pub fn total(visitors: &[&VisitorEvents], name: &str) -> EventCount {
    visitors.iter().fold(EventCount::Exactly(0), |sum, of| sum.plus(of.total_events(name)))
}

/// Number of events of a name from minute `from` up to `to` (exclusive), over different visitors.
#[must_use]
pub fn within(visitors: &[&VisitorEvents], name: &str, from: Minute, to: Minute) -> EventCount {
    visitors.iter().fold(EventCount::Exactly(0), |sum, of| sum.plus(of.events_within(name, from, to)))
}

impl EventTimes {
    /// Empty counts that are complete from a minute on. A day is complete only if it begins at or after that minute.
    fn since(minute: Minute) -> Self {
        let newest = |floor| NewestTimes { floor, counts: BTreeMap::new() };
        Self { earlier: 0, minutes: newest(minute.0), days: newest(minute.0.div_ceil(DAY_MINUTES)) }
    }

    fn add(&mut self, at: Minute) {
        self.days.add(at.0 / DAY_MINUTES, 1, limits::EVENT_DAYS);
        let before = self.minutes.add(at.0, 1, limits::EVENT_MINUTES);
        self.earlier = self.earlier.saturating_add(before);
    }

    fn remove(&mut self, at: Minute) {
        self.days.remove(at.0 / DAY_MINUTES);
        if !self.minutes.remove(at.0) {
            self.earlier = self.earlier.saturating_sub(1);
        }
    }

    fn plus(&mut self, other: Self) {
        self.days.plus(other.days, limits::EVENT_DAYS);
        let before = self.minutes.plus(other.minutes, limits::EVENT_MINUTES);
        self.earlier = self.earlier.saturating_add(other.earlier).saturating_add(before);
    }

    /// Number of events, as far as they are stored.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.minutes.sum(..).saturating_add(self.earlier)
    }

    fn within(&self, from: Minute, to: Minute) -> EventCount {
        let whole = |at: Minute| at.0.is_multiple_of(DAY_MINUTES);
        // The days that lie completely in the range.
        let days = self.days.within(from.0.div_ceil(DAY_MINUTES), to.0 / DAY_MINUTES);
        match (self.minutes.within(from.0, to.0), days) {
            (exact @ EventCount::Exactly(_), _) => exact,
            (_, exact @ EventCount::Exactly(_)) if whole(from) && whole(to) => exact,
            (EventCount::AtLeast(a), EventCount::Exactly(b) | EventCount::AtLeast(b)) => EventCount::AtLeast(a.max(b)),
        }
    }
}

impl NewestTimes {
    /// Counts from their parts: the first minute or day of complete data, and the counts. `None` if a count is 0 or
    /// lies before the floor.
    #[must_use]
    pub fn from_parts(floor: u32, counts: impl IntoIterator<Item = (u32, u64)>) -> Option<Self> {
        let counts: BTreeMap<u32, u64> = counts.into_iter().collect();
        let sound = counts.iter().all(|(at, count)| *at >= floor && *count > 0);
        sound.then_some(Self { floor, counts })
    }

    /// First minute or day from which the counts are complete.
    #[must_use]
    pub fn floor(&self) -> u32 {
        self.floor
    }

    /// Minutes or days in order, each with its count.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u64)> {
        self.counts.iter().map(|(at, count)| (*at, *count))
    }

    /// Adds events at one minute or day; returns the number of events that now lie before the floor.
    fn add(&mut self, at: u32, times: u64, most: usize) -> u64 {
        if at < self.floor {
            return times;
        }
        match self.counts.get_mut(&at) {
            Some(count) => *count = count.saturating_add(times),
            None => drop(self.counts.insert(at, times)),
        }
        let oldest = self.counts.first_key_value().filter(|_| self.counts.len() > most).map(|(oldest, _)| *oldest);
        oldest.map_or(0, |oldest| self.raise(oldest.saturating_add(1)))
    }

    /// Removes one event; returns whether its minute or day is still stored.
    fn remove(&mut self, at: u32) -> bool {
        if let Some(count) = self.counts.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&at);
            }
        }
        at >= self.floor
    }

    /// Removes everything before a new floor; returns the number of events removed.
    fn raise(&mut self, floor: u32) -> u64 {
        let before = self.sum(..floor);
        self.floor = self.floor.max(floor);
        self.counts.retain(|at, _| *at >= floor);
        before
    }

    fn plus(&mut self, other: Self, most: usize) -> u64 {
        let mut before = self.raise(other.floor);
        for (at, times) in other.iter() {
            before = before.saturating_add(self.add(at, times, most));
        }
        before
    }

    fn within(&self, from: u32, to: u32) -> EventCount {
        let sum = self.sum(from..to);
        if from >= self.floor { EventCount::Exactly(sum) } else { EventCount::AtLeast(sum) }
    }

    fn sum(&self, range: impl std::ops::RangeBounds<u32>) -> u64 {
        let within = self.iter().filter(|(at, _)| range.contains(at));
        within.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }
}
