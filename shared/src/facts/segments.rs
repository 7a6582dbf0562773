//! Segments: which audiences a visitor belongs to, until when (seed 2). The last writer of a segment wins, and removing
//! it is a write too, so that neither order nor repeats of facts change the outcome.

mod packed;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use crate::base::ids::Millis;
use crate::base::limits;
use crate::base::planted::{self, PlantedBug};
use crate::base::time::HourStamp;

pub use packed::{PackedSegments, live_segments};

/// An audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentId(pub u32);

/// When a write was made and received: of two writes the greater one stands (docs/adr/0002-order-of-writes.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WriteStamp {
    /// When it was assigned.
    pub at: Millis,
    /// Of two writes of one time, the one received later is greater; of two of one receipt, the later one in its call.
    pub order: u64,
}

impl WriteStamp {
    /// Bits of the position in the order. A receipt is at most 2³² ms after the write.
    const POSITION_BITS: u32 = 31;

    /// The stamp of writes at a time, received at another, at a position in their call.
    #[must_use]
    pub fn new(at: Millis, received: Millis, position: u32) -> Self {
        let delay = received.saturating_sub(at).min(u64::from(u32::MAX));
        let mut position = u64::from(position).min((1 << Self::POSITION_BITS) - 1);
        if planted::is_active(PlantedBug::OrderOfACallForgotten) {
            position = 0;
        }
        Self { at, order: delay << Self::POSITION_BITS | position }
    }

    /// The receipt and the position of a fact whose writes have this stamp.
    #[must_use]
    pub fn receipt(self) -> (Millis, u32) {
        let position = self.order & ((1 << Self::POSITION_BITS) - 1);
        (self.at.saturating_add(self.order >> Self::POSITION_BITS), u32::try_from(position).unwrap_or(u32::MAX))
    }
}

/// A pair of a segment's small attributes: a token and a number.
pub type Attribute = (u16, i32);

/// What a write says of a segment. Ordered, so that two writes under one stamp have one outcome.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentState {
    /// Not in it.
    Removed,
    /// In it up to this hour.
    Held {
        /// The first hour it no longer holds.
        expiry: HourStamp,
        /// Up to [`limits::SEGMENT_ATTRIBUTES`], by token, each token once.
        attributes: Vec<Attribute>,
    },
}

impl SegmentState {
    /// Held, up to the end of 2100 at most, with its attributes in order; of a token named twice the greater value counts, and what is over the
    /// bound is left out.
    #[must_use]
    pub fn held(expiry: HourStamp, attributes: impl IntoIterator<Item = Attribute>) -> Self {
        let by_token: BTreeMap<u16, i32> = attributes.into_iter().fold(BTreeMap::new(), |mut all, (token, value)| {
            let there = all.entry(token).or_insert(value);
            *there = value.max(*there);
            all
        });
        let expiry = HourStamp(expiry.0.min(limits::EXPIRY_HOURS));
        Self::Held { expiry, attributes: by_token.into_iter().take(limits::SEGMENT_ATTRIBUTES).collect() }
    }

    fn expiry(&self) -> Option<HourStamp> {
        match self {
            Self::Held { expiry, .. } => Some(*expiry),
            Self::Removed => None,
        }
    }
}

/// One visitor's segments: the [`limits::SEGMENTS`] written last.
///
/// It says whether writes were evicted, and until when one of them may hold. Both are functions of the set of all writes,
/// whatever their order: a write is evicted at some time exactly if more segments were written than fit.
#[derive(Debug, Clone, Default)]
pub struct SegmentMap {
    writes: BTreeMap<SegmentId, (WriteStamp, SegmentState)>,
    /// Whether writes were evicted that may still hold.
    evicted: bool,
    /// The last expiry of any write, evicted and replaced ones among them: from that hour on no evicted write holds. While
    /// nothing was evicted it means nothing: no map says it, and the packed form leaves it out. What is evicted after
    /// unpacking is among the writes that are there.
    last_expiry: HourStamp,
}

impl PartialEq for SegmentMap {
    fn eq(&self, other: &Self) -> bool {
        self.writes == other.writes && self.evicted_until() == other.evicted_until()
    }
}

impl Eq for SegmentMap {}

impl SegmentMap {
    /// Writes one segment, unless a later write is there.
    pub fn write(&mut self, id: SegmentId, stamp: WriteStamp, state: SegmentState) {
        self.put(id, (stamp, state));
        self.keep(limits::SEGMENTS);
    }

    fn put(&mut self, id: SegmentId, write: (WriteStamp, SegmentState)) {
        self.note_expiry(&write.1);
        match self.writes.get_mut(&id) {
            Some(there) if *there >= write => {}
            Some(there) => *there = write,
            None => drop(self.writes.insert(id, write)),
        }
    }

    fn note_expiry(&mut self, state: &SegmentState) {
        self.last_expiry = self.last_expiry.max(state.expiry().unwrap_or_default());
    }

    /// From which hour on no evicted write holds; `None` where none was evicted.
    fn evicted_until(&self) -> Option<HourStamp> {
        self.evicted.then_some(self.last_expiry)
    }

    /// The last expiry of the writes that are there.
    fn last_expiry_held(&self) -> HourStamp {
        self.writes.values().filter_map(|(_, state)| state.expiry()).max().unwrap_or_default()
    }

    /// Writes many segments, as one write of each would, in any order.
    pub fn write_all(&mut self, stamp: WriteStamp, writes: impl IntoIterator<Item = (SegmentId, SegmentState)>) {
        let mut writes: Vec<(SegmentId, SegmentState)> = writes.into_iter().collect();
        if self.writes.is_empty() {
            writes.iter().for_each(|(_, state)| self.note_expiry(state));
            // A map is made of a sorted list at once, of repeats with the last: the greatest, as it would stand.
            writes.sort_unstable();
            self.writes = writes.into_iter().map(|(id, state)| (id, (stamp, state))).collect();
        } else {
            writes.into_iter().for_each(|(id, state)| self.put(id, (stamp, state)));
        }
        self.keep(limits::SEGMENTS);
    }

    /// Adds hours to a segment's expiry in place; `false` when the visitor is not in it. What it makes of the expiry
    /// depends on the one that is there, so only the origin's one writer may call it.
    pub fn extend(&mut self, id: SegmentId, hours: u32, stamp: WriteStamp) -> bool {
        let Some((_, SegmentState::Held { expiry, attributes })) = self.writes.get(&id) else { return false };
        let expiry = HourStamp(expiry.0.saturating_add(hours).min(limits::EXPIRY_HOURS));
        let state = SegmentState::Held { expiry, attributes: attributes.clone() };
        self.write(id, stamp, state);
        true
    }

    /// All writes of both: commutative, associative, idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.evicted |= other.evicted;
        self.last_expiry = self.last_expiry.max(other.last_expiry);
        other.writes.into_iter().for_each(|(id, write)| self.put(id, write));
        self.keep(limits::SEGMENTS);
        self
    }

    /// The expiry and attributes of a segment the visitor is in.
    #[must_use]
    pub fn get(&self, id: SegmentId) -> Option<(HourStamp, &[Attribute])> {
        match self.writes.get(&id)? {
            (_, SegmentState::Held { expiry, attributes }) => Some((*expiry, attributes)),
            (_, SegmentState::Removed) => None,
        }
    }

    /// When a segment was written last.
    #[must_use]
    pub fn written(&self, id: SegmentId) -> Option<Millis> {
        self.writes.get(&id).map(|(stamp, _)| stamp.at)
    }

    /// Segments that expire within these hours, in order.
    pub fn expiring(&self, hours: Range<HourStamp>) -> impl Iterator<Item = (SegmentId, HourStamp)> + '_ {
        self.held().filter(move |(_, expiry)| hours.contains(expiry))
    }

    /// Segments that do not.
    pub fn not_expiring(&self, hours: Range<HourStamp>) -> impl Iterator<Item = (SegmentId, HourStamp)> + '_ {
        self.held().filter(move |(_, expiry)| !hours.contains(expiry))
    }

    /// The segments written last, the newest first.
    #[must_use]
    pub fn newest(&self, count: usize) -> Vec<SegmentId> {
        let held = self.writes.iter().filter(|(_, (_, state))| state.expiry().is_some());
        let mut by_stamp: Vec<(WriteStamp, SegmentId)> = held.map(|(id, (stamp, _))| (*stamp, *id)).collect();
        by_stamp.sort_unstable_by(|a, b| b.cmp(a));
        by_stamp.into_iter().take(count).map(|(_, id)| id).collect()
    }

    /// Evicts all but those written last. A write only moves a segment up, so that this commutes with the join; it is
    /// done once for many writes, as it goes through them all.
    pub fn keep(&mut self, count: usize) {
        let gone = self.writes.len().saturating_sub(count);
        if gone == 0 {
            return;
        }
        self.evicted = true;
        let mut stamps: Vec<(WriteStamp, SegmentId)> =
            self.writes.iter().map(|(id, (stamp, _))| (*stamp, *id)).collect();
        stamps.select_nth_unstable(gone - 1);
        stamps.into_iter().take(gone).for_each(|(_, id)| drop(self.writes.remove(&id)));
    }

    /// What is kept of them where at most so many may stay; `None` where all do. The segments in `first` stay in addition,
    /// up to [`limits::SNAPSHOT_QUERIED`] of them. One of them that was never written is kept as one that was removed
    /// before any write: so a reader knows that the visitor is not in it. Of a map that [`Self::is_full`] nobody knows that.
    #[must_use]
    pub fn kept_within(&self, count: usize, first: impl Iterator<Item = SegmentId>) -> Option<Self> {
        if self.writes.len() <= count {
            return None;
        }
        let first = first.take(limits::SNAPSHOT_QUERIED);
        let never = (WriteStamp::default(), SegmentState::Removed);
        let written =
            |id: SegmentId| Some((id, self.writes.get(&id).or(Some(&never).filter(|_| !self.is_full()))?.clone()));
        let queried: BTreeMap<_, _> = first.filter_map(written).collect();
        let mut kept = self.clone();
        kept.keep(count.min(limits::SEGMENTS - queried.len()));
        kept.writes.extend(queried);
        // That it lacks segments, the snapshot says by itself.
        let last_expiry = kept.last_expiry_held();
        Some(Self { evicted: false, last_expiry, ..kept })
    }

    /// Whether older writes may have been left out for [`limits::SEGMENTS`], of which some may still hold.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.evicted || self.writes.len() >= limits::SEGMENTS
    }

    /// How many segments of a range of ids the visitor is in.
    #[must_use]
    pub fn count(&self, ids: RangeInclusive<SegmentId>) -> usize {
        if ids.is_empty() {
            return 0;
        }
        self.writes.range(ids).filter(|(_, (_, state))| state.expiry().is_some()).count()
    }

    /// Drops what has expired or was removed, once no fact that is older than its write is accepted any more; not where a
    /// sibling may hold an older write, which would stand again. That writes were evicted is forgotten once all have expired.
    pub fn trim(&mut self, now: Millis, of_siblings: &BTreeSet<SegmentId>) {
        let hour = HourStamp::at(now);
        let settled = |stamp: &WriteStamp| stamp.at.saturating_add(limits::FACT_AGE_MS + limits::EVENT_AGE_MS) < now;
        let gone = |state: &SegmentState| state.expiry().is_none_or(|expiry| expiry <= hour);
        self.writes.retain(|id, (stamp, state)| !(settled(stamp) && gone(state)) || of_siblings.contains(id));
        self.evicted &= self.last_expiry > hour;
        if !self.evicted {
            self.last_expiry = self.last_expiry_held();
        }
    }

    fn held(&self) -> impl Iterator<Item = (SegmentId, HourStamp)> + '_ {
        self.writes.iter().filter_map(|(id, (_, state))| Some((*id, state.expiry()?)))
    }

    /// How many there are, removed ones among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// All writes, in order of their segments, removed ones among them.
    pub fn writes(&self) -> impl Iterator<Item = (SegmentId, WriteStamp, &SegmentState)> + '_ {
        self.writes.iter().map(|(id, (stamp, state))| (*id, *stamp, state))
    }

    /// All segments written, removed ones among them.
    pub fn ids(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.writes.keys().copied()
    }

    /// Whether there is nothing to say: no write, and none that was evicted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && !self.evicted
    }
}
