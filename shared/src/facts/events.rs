//! Events by name: how often each event of a visitor was, and when (S4.5). Page views and purchases are among them.
//!
//! What is kept is bounded, and depends on the set of facts alone, in whatever order and batches they come:
//! - Of names the first [`limits::EVENT_NAMES`]: `page` and `purchase`, then shorter before longer ones, then byte by byte.
//!   That is a matter of the names and not of their use, as what was left out once is gone: a name could not come back
//!   whole. Shorter ones first, since names that a page makes up without end, of a word and an id, are longer than words.
//! - Of a name how often it was in each of its newest minutes and in each of its newest UTC days, which answer windows of
//!   minutes and hours and windows of days; and from when on those are all.
//!
//! Of what is not kept the answer is only [`EventCount::AtLeast`], which is never too much.

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
    /// Events of before this minute are not kept.
    since: Minute,
    /// Whether there were names behind the last.
    left_out: bool,
    /// In the order of their [`rank`].
    names: Vec<(String, EventTimes)>,
}

/// How often an event was, and when.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventTimes {
    /// How often before the minutes; 0 where not all is kept since ever.
    pub earlier: u64,
    /// The newest [`limits::EVENT_MINUTES`] minutes in which it was.
    pub minutes: NewestTimes,
    /// The newest [`limits::EVENT_DAYS`] UTC days.
    pub days: NewestTimes,
}

/// How often an event was in the newest of some minutes or days.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewestTimes {
    floor: u32,
    counts: BTreeMap<u32, u64>,
}

/// How often something was, as far as that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventCount {
    /// So often.
    Exactly(u64),
    /// So often, and what is not kept.
    AtLeast(u64),
}

impl EventCount {
    /// How often, where all of it is kept.
    #[must_use]
    pub fn exact(self) -> Option<u64> {
        match self {
            Self::Exactly(count) => Some(count),
            Self::AtLeast(_) => None,
        }
    }

    /// How often at least.
    #[must_use]
    pub fn least(self) -> u64 {
        match self {
            Self::Exactly(count) | Self::AtLeast(count) => count,
        }
    }

    /// How often both were.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = self.least().saturating_add(other.least());
        if self.exact().is_some() && other.exact().is_some() { Self::Exactly(sum) } else { Self::AtLeast(sum) }
    }

    /// How often without so many of them.
    #[must_use]
    pub fn minus(self, times: u64) -> Self {
        match self {
            Self::Exactly(count) => Self::Exactly(count.saturating_sub(times)),
            Self::AtLeast(count) => Self::AtLeast(count.saturating_sub(times)),
        }
    }
}

/// What is held of a name.
enum HeldEvents<'a> {
    Times(&'a EventTimes),
    /// It never was, as far as events are kept.
    Never,
    /// It may be one that was left out.
    LeftOut,
}

/// Which names are kept first.
fn name_rank(name: &str) -> (bool, usize, &str) {
    (name != PAGE && name != PURCHASE, name.len(), name)
}

impl VisitorEvents {
    /// Without any, of a visitor whose events of before a minute were not kept.
    #[must_use]
    pub fn since(minute: Minute) -> Self {
        Self { since: minute, ..Self::default() }
    }

    /// The same, which may have left out names behind its last.
    #[must_use]
    pub fn leaving_out(self, left_out: bool) -> Self {
        Self { left_out, ..self }
    }

    /// Adds one event. A name of no or too many bytes is nobody's, and not kept.
    pub fn add(&mut self, name: &str, at: Minute) {
        self.at_name(name, |times| times.add(at));
    }

    /// Takes out one event that was added.
    pub fn remove(&mut self, name: &str, at: Minute) {
        let Ok(place) = self.find(name) else { return };
        if let Some((_, times)) = self.names.get_mut(place) {
            times.remove(at);
        }
    }

    /// Adds what is known of one name.
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

    /// The events of both, which must be of different facts. Commutative and associative.
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

    /// From which minute on its events are kept, and whether there were names behind the last.
    #[must_use]
    pub fn gaps(&self) -> (Minute, bool) {
        (self.since, self.left_out)
    }

    /// The names and what is known of each, `page` and `purchase` first, then shorter before longer ones.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &EventTimes)> {
        self.names.iter().map(|(name, times)| (name.as_str(), times))
    }

    /// Whether nothing happened, and nothing may have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn held(&self, name: &str) -> HeldEvents<'_> {
        match self.find(name) {
            Ok(place) => self.names.get(place).map_or(HeldEvents::Never, |(_, times)| HeldEvents::Times(times)),
            // Before the last name that is kept nothing was left out.
            Err(place) if self.left_out && place == self.names.len() => HeldEvents::LeftOut,
            Err(_) => HeldEvents::Never,
        }
    }

    /// How often an event ever was.
    #[must_use]
    pub fn total_events(&self, name: &str) -> EventCount {
        match self.held(name) {
            HeldEvents::Times(times) if self.since == Minute(0) => EventCount::Exactly(times.count()),
            HeldEvents::Times(times) => EventCount::AtLeast(times.count()),
            HeldEvents::Never if self.since == Minute(0) => EventCount::Exactly(0),
            HeldEvents::Never | HeldEvents::LeftOut => EventCount::AtLeast(0),
        }
    }

    /// How often an event was, from one minute to before another.
    #[must_use]
    pub fn events_within(&self, name: &str, from: Minute, to: Minute) -> EventCount {
        match self.held(name) {
            HeldEvents::Times(times) => times.within(from, to),
            HeldEvents::Never if from >= self.since => EventCount::Exactly(0),
            HeldEvents::Never | HeldEvents::LeftOut => EventCount::AtLeast(0),
        }
    }

    /// When an event was last; `None` where that is not known.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<Minute> {
        match self.held(name) {
            HeldEvents::Times(times) => times.minutes.counts.last_key_value().map(|(minute, _)| Minute(*minute)),
            HeldEvents::Never | HeldEvents::LeftOut => None,
        }
    }
}

/// How often an event ever was, over different visitors.
#[must_use]
pub fn total(visitors: &[&VisitorEvents], name: &str) -> EventCount {
    visitors.iter().fold(EventCount::Exactly(0), |sum, of| sum.plus(of.total_events(name)))
}

/// How often an event was, from one minute to before another, over different visitors.
#[must_use]
pub fn within(visitors: &[&VisitorEvents], name: &str, from: Minute, to: Minute) -> EventCount {
    visitors.iter().fold(EventCount::Exactly(0), |sum, of| sum.plus(of.events_within(name, from, to)))
}

impl EventTimes {
    /// Of what is kept from a minute on. The day that it lies in is whole only where it begins there.
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

    /// How often it was, as far as that is kept.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.minutes.sum(..).saturating_add(self.earlier)
    }

    fn within(&self, from: Minute, to: Minute) -> EventCount {
        let whole = |at: Minute| at.0.is_multiple_of(DAY_MINUTES);
        // The days that lie in it whole.
        let days = self.days.within(from.0.div_ceil(DAY_MINUTES), to.0 / DAY_MINUTES);
        match (self.minutes.within(from.0, to.0), days) {
            (exact @ EventCount::Exactly(_), _) => exact,
            (_, exact @ EventCount::Exactly(_)) if whole(from) && whole(to) => exact,
            (EventCount::AtLeast(a), EventCount::Exactly(b) | EventCount::AtLeast(b)) => EventCount::AtLeast(a.max(b)),
        }
    }
}

impl NewestTimes {
    /// From its parts: which are kept from where on, and how often in each. `None` where one lies before, or has none.
    #[must_use]
    pub fn from_parts(floor: u32, counts: impl IntoIterator<Item = (u32, u64)>) -> Option<Self> {
        let counts: BTreeMap<u32, u64> = counts.into_iter().collect();
        let sound = counts.iter().all(|(at, count)| *at >= floor && *count > 0);
        sound.then_some(Self { floor, counts })
    }

    /// From which minute or day on all are kept.
    #[must_use]
    pub fn floor(&self) -> u32 {
        self.floor
    }

    /// Minutes or days, in order, and how often it was in each.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u64)> {
        self.counts.iter().map(|(at, count)| (*at, *count))
    }

    /// Adds some at one; gives how many are before the floor by that.
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

    /// Takes one out at one; tells whether that one is kept.
    fn remove(&mut self, at: u32) -> bool {
        if let Some(count) = self.counts.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&at);
            }
        }
        at >= self.floor
    }

    /// Leaves out what is before a floor; gives how many those are.
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
