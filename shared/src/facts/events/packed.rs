//! Packed form of events, as the store holds them.
//!
//! All numbers are LEB128: the minute from which events are complete; the number of names, with a lowest bit that
//! states whether names were dropped; for each name its text with a length prefix, then its minutes. If the oldest
//! minutes of a name were dropped, the number of earlier events and the days follow; otherwise the days follow from the
//! minutes.
//!
//! Minutes and days have the same form: the distance of their floor from the lowest possible one, the number of
//! entries, and for each entry the distance from the previous one (or the floor), with a lowest bit that states whether
//! the count is above 1; in that case the count less two follows.

use std::collections::BTreeMap;

use super::{EventTimes, NewestTimes, VisitorEvents, name_rank};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::time::{DAY_MINUTES, Minute};

impl VisitorEvents {
    /// Packed form: equal events give equal bytes, never none.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(64);
        packed::put(&mut to, self.since.0.into());
        packed::put(&mut to, (self.names.len() as u64) << 1 | u64::from(self.left_out));
        let lowest = EventTimes::since(self.since);
        for (name, times) in &self.names {
            packed::put_row(&mut to, name.as_bytes());
            times.minutes.put(&mut to, lowest.minutes.floor);
            if times.minutes.floor > lowest.minutes.floor {
                packed::put(&mut to, times.earlier);
                times.days.put(&mut to, lowest.days.floor);
            }
        }
        to
    }

    /// Reads the packed form; `None` unless the bytes have the form of [`VisitorEvents::pack`].
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = PackedReader(bytes);
        let since = Minute(u32::try_from(from.number()?).ok()?);
        let names = from.count(limits::EVENT_NAMES << 1 | 1)?;
        let mut events = Self::since(since).leaving_out(names & 1 == 1);
        for _ in 0..names >> 1 {
            let name = std::str::from_utf8(from.row()?).ok()?;
            let fits = !name.is_empty() && name.len() <= limits::NAME_BYTES;
            let follows = events.names.last().is_none_or(|(before, _)| name_rank(before) < name_rank(name));
            let times = EventTimes::read(&mut from, since).filter(|_| fits && follows)?;
            events.names.push((name.to_owned(), times));
        }
        from.is_empty().then_some(events)
    }
}

impl EventTimes {
    fn read(from: &mut PackedReader<'_>, since: Minute) -> Option<Self> {
        let mut times = Self::since(since);
        let lowest = since.0;
        times.minutes = NewestTimes::read(from, lowest, limits::EVENT_MINUTES)?;
        if times.minutes.floor > lowest {
            times.earlier = from.number().filter(|earlier| (*earlier > 0) == (lowest == 0))?;
            times.days = NewestTimes::read(from, times.days.floor, limits::EVENT_DAYS)?;
        } else {
            for (at, count) in times.minutes.iter() {
                times.days.add(at / DAY_MINUTES, count, limits::EVENT_DAYS);
            }
        }
        // With a complete history, a stored name has at least one event.
        (lowest > 0 || !times.minutes.counts.is_empty()).then_some(times)
    }
}

impl NewestTimes {
    pub(super) fn put(&self, to: &mut Vec<u8>, lowest: u32) {
        packed::put(to, (self.floor - lowest).into());
        packed::put(to, self.counts.len() as u64);
        let mut next = self.floor;
        for (at, count) in self.iter() {
            packed::put(to, u64::from(at - next) << 1 | u64::from(count > 1));
            if count > 1 {
                packed::put(to, count - 2);
            }
            next = at.saturating_add(1);
        }
    }

    /// The list must be full if older entries were dropped.
    fn read(from: &mut PackedReader<'_>, lowest: u32, most: usize) -> Option<Self> {
        let floor = u32::try_from(from.number()?.checked_add(lowest.into())?).ok()?;
        let length = from.count(most).filter(|length| floor == lowest || *length == most)?;
        let (mut counts, mut next) = (BTreeMap::new(), u64::from(floor));
        for _ in 0..length {
            let (at, count) = entry(from, next)?;
            counts.insert(u32::try_from(at).ok()?, count);
            next = at.checked_add(1)?;
        }
        Some(Self { floor, counts })
    }
}

/// Next minute or day, at or after `next`, with its count.
pub(super) fn entry(from: &mut PackedReader<'_>, next: u64) -> Option<(u64, u64)> {
    let gap = from.number()?;
    let count = if gap & 1 == 0 { 1 } else { from.number()?.checked_add(2)? };
    Some((next.checked_add(gap >> 1)?, count))
}
