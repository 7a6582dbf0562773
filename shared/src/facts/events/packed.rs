//! Events packed, as the store keeps them.
//!
//! LEB128 numbers: the minute that all is kept from; how many names, and in the lowest bit whether some were left out.
//! Of each name its text behind its length, then its minutes; where the oldest of those were left out also how often it
//! was before, and its days. Else the days follow from the minutes.
//!
//! Minutes, and days: how far their floor is above the lowest there can be, how many, and of each how many lie between it
//! and the one before (or the floor), in the lowest bit whether it was more than once there; how often then, less two.

use std::collections::BTreeMap;

use super::{EventTimes, NewestTimes, VisitorEvents, name_rank};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::time::{DAY_MINUTES, Minute};

impl VisitorEvents {
    /// The packed form: equal events give equal bytes. There are always some.
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

    /// Reads the packed form; `None` when the bytes are not what [`VisitorEvents::pack`] gives.
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
        // A name is there since it was.
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

    /// All of them are there once some were left out.
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

/// The next minute or day, which lies at `next` or behind, and how often it was there.
pub(super) fn entry(from: &mut PackedReader<'_>, next: u64) -> Option<(u64, u64)> {
    let gap = from.number()?;
    let count = if gap & 1 == 0 { 1 } else { from.number()?.checked_add(2)? };
    Some((next.checked_add(gap >> 1)?, count))
}
