//! Segments: the audiences of a visitor, each with an expiry. The last write of a segment wins, and a removal is a
//! write too, so neither order nor repetition of facts changes the outcome.

mod packed;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use crate::base::ids::Millis;
use crate::base::limits;
use crate::base::planted::{self, PlantedBug};
use crate::base::time::HourStamp;

pub use packed::{PackedSegments, live_segments};

/// The number of an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentId(pub u32);

/// Time, receipt and position of a write. Of two writes, the one with the greater stamp wins
/// (docs/adr/0002-order-of-writes.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WriteStamp {
    /// Time of the write.
    pub at: Millis,
    /// Decides between writes of one time: the later receipt is greater, then the later position in the call.
    pub order: u64,
}

impl WriteStamp {
    /// Bits of the position in `order`. A receipt is at most 2³² ms after the write.
    const POSITION_BITS: u32 = 31;

    /// The stamp of a write at `at`, received at `received`, at this position in its call.
    #[must_use]
    pub fn new(at: Millis, received: Millis, position: u32) -> Self {
        let delay = received.saturating_sub(at).min(u64::from(u32::MAX));
        let mut position = u64::from(position).min((1 << Self::POSITION_BITS) - 1);
        if planted::is_active(PlantedBug::OrderOfACallForgotten) {
            position = 0;
        }
        Self { at, order: delay << Self::POSITION_BITS | position }
    }

    /// The receipt and the position of the fact with this stamp.
    #[must_use]
    pub fn receipt(self) -> (Millis, u32) {
        let position = self.order & ((1 << Self::POSITION_BITS) - 1);
        (self.at.saturating_add(self.order >> Self::POSITION_BITS), u32::try_from(position).unwrap_or(u32::MAX))
    }
}

/// One of a segment's small attributes: a token and a number.
pub type Attribute = (u16, i32);

/// The state that a write gives a segment. It is ordered, so that two writes with one stamp have one outcome.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentState {
    /// The visitor is not in the segment.
    Removed,
    /// The visitor is in the segment until the expiry.
    Held {
        /// The first hour in which the visitor is no longer in it.
        expiry: HourStamp,
        /// At most [`limits::SEGMENT_ATTRIBUTES`], ordered by token, without repetition.
        attributes: Vec<Attribute>,
    },
}

impl SegmentState {
    /// A held segment with its expiry limited to the end of 2100. Of a repeated token the greatest value counts, and
    /// attributes over the bound are dropped.
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
/// The map records whether writes were evicted, and until when an evicted one may hold. Both depend only on the set of
/// all writes, not on their order: a write is evicted exactly if more segments were written than fit.
#[derive(Debug, Clone, Default)]
pub struct SegmentMap {
    writes: BTreeMap<SegmentId, (WriteStamp, SegmentState)>,
    /// Whether writes were evicted that may still hold.
    evicted: bool,
    /// The last expiry of all writes, including evicted and replaced ones; from then on no evicted write holds. It has
    /// no meaning while `evicted` is false, and the packed form omits it then: a later eviction only affects writes
    /// that are present.
    last_expiry: HourStamp,
}

impl PartialEq for SegmentMap {
    fn eq(&self, other: &Self) -> bool {
        self.writes == other.writes && self.evicted_until() == other.evicted_until()
    }
}

impl Eq for SegmentMap {}

impl SegmentMap {
    /// Writes one segment, unless a later write is present.
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

    /// The hour from which no evicted write holds; `None` if none was evicted.
    fn evicted_until(&self) -> Option<HourStamp> {
        self.evicted.then_some(self.last_expiry)
    }

    /// The last expiry of the present writes.
    fn last_expiry_held(&self) -> HourStamp {
        self.writes.values().filter_map(|(_, state)| state.expiry()).max().unwrap_or_default()
    }

    /// Writes many segments with one stamp, with the same result as single writes in any order.
    pub fn write_all(&mut self, stamp: WriteStamp, writes: impl IntoIterator<Item = (SegmentId, SegmentState)>) {
        let mut writes: Vec<(SegmentId, SegmentState)> = writes.into_iter().collect();
        if self.writes.is_empty() {
            writes.iter().for_each(|(_, state)| self.note_expiry(state));
            // A map is built at once from a sorted list. Of repeats the last stays, which is the greatest and would win
            // anyway.
            writes.sort_unstable();
            self.writes = writes.into_iter().map(|(id, state)| (id, (stamp, state))).collect();
        } else {
            writes.into_iter().for_each(|(id, state)| self.put(id, (stamp, state)));
        }
        self.keep(limits::SEGMENTS);
    }

    /// Adds hours to a segment's expiry; `false` if the visitor is not in it. The result depends on the present expiry,
    /// so only the origin's single writer may call it.
    pub fn extend(&mut self, id: SegmentId, hours: u32, stamp: WriteStamp) -> bool {
        let Some((_, SegmentState::Held { expiry, attributes })) = self.writes.get(&id) else { return false };
        let expiry = HourStamp(expiry.0.saturating_add(hours).min(limits::EXPIRY_HOURS));
        let state = SegmentState::Held { expiry, attributes: attributes.clone() };
        self.write(id, stamp, state);
        true
    }

    /// All writes of both. The join is commutative, associative and idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.evicted |= other.evicted;
        self.last_expiry = self.last_expiry.max(other.last_expiry);
        other.writes.into_iter().for_each(|(id, write)| self.put(id, write));
        self.keep(limits::SEGMENTS);
        self
    }

    /// The expiry and attributes of a segment that the visitor is in.
    #[must_use]
    pub fn get(&self, id: SegmentId) -> Option<(HourStamp, &[Attribute])> {
        match self.writes.get(&id)? {
            (_, SegmentState::Held { expiry, attributes }) => Some((*expiry, attributes)),
            (_, SegmentState::Removed) => None,
        }
    }

    /// Time of a segment's last write.
    #[must_use]
    pub fn written(&self, id: SegmentId) -> Option<Millis> {
        self.writes.get(&id).map(|(stamp, _)| stamp.at)
    }

    /// Segments that expire within these hours, in order of their ids.
    pub fn expiring(&self, hours: Range<HourStamp>) -> impl Iterator<Item = (SegmentId, HourStamp)> + '_ {
        self.held().filter(move |(_, expiry)| hours.contains(expiry))
    }

    /// Held segments that do not expire within these hours, in order of their ids.
    pub fn not_expiring(&self, hours: Range<HourStamp>) -> impl Iterator<Item = (SegmentId, HourStamp)> + '_ {
        self.held().filter(move |(_, expiry)| !hours.contains(expiry))
    }

    /// The held segments written last, newest first.
    #[must_use]
    pub fn newest(&self, count: usize) -> Vec<SegmentId> {
        let held = self.writes.iter().filter(|(_, (_, state))| state.expiry().is_some());
        let mut by_stamp: Vec<(WriteStamp, SegmentId)> = held.map(|(id, (stamp, _))| (*stamp, *id)).collect();
        by_stamp.sort_unstable_by(|a, b| b.cmp(a));
        by_stamp.into_iter().take(count).map(|(_, id)| id).collect()
    }

    /// Evicts all but the `count` segments written last. A write only moves a segment up, so eviction commutes with the
    /// join. It scans all writes, so it runs once for many writes.
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

    /// A copy with at most `count` segments; `None` if all fit. Segments in `first` stay in addition, at most
    /// [`limits::SNAPSHOT_QUERIED`]. One of `first` that was never written is stored as removed, so that a reader knows
    /// that the visitor is not in it, unless the map [`Self::is_full`].
    #[must_use]
    pub fn trim_to_count(&self, count: usize, first: impl Iterator<Item = SegmentId>) -> Option<Self> {
        if self.writes.len() <= count {
            return None;
        }
        let first = first.take(limits::SNAPSHOT_QUERIED);
        let never = (WriteStamp::default(), SegmentState::Removed);
        let written =
            |id: SegmentId| Some((id, self.writes.get(&id).or(Some(&never).filter(|_| !self.is_full()))?.clone()));
        let queried: BTreeMap<_, _> = first.filter_map(written).collect();
        let mut reduced = self.clone();
        reduced.keep(count.min(limits::SEGMENTS - queried.len()));
        reduced.writes.extend(queried);
        // The snapshot itself says that it lacks segments.
        let last_expiry = reduced.last_expiry_held();
        Some(Self { evicted: false, last_expiry, ..reduced })
    }

    /// Whether writes that still hold may have been dropped because of [`limits::SEGMENTS`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.evicted || self.writes.len() >= limits::SEGMENTS
    }

    /// The number of held segments in a range of ids.
    #[must_use]
    pub fn count(&self, ids: RangeInclusive<SegmentId>) -> usize {
        if ids.is_empty() {
            return 0;
        }
        self.writes.range(ids).filter(|(_, (_, state))| state.expiry().is_some()).count()
    }

    /// Drops expired and removed segments, once no fact older than their write is accepted. A segment in `of_siblings`
    /// stays, because a sibling may have an older write that would count again. Forgets that writes were evicted once
    /// all of them have expired.
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

    /// The number of segments written, removed ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// All writes in order of their segments, removed ones included.
    pub fn writes(&self) -> impl Iterator<Item = (SegmentId, WriteStamp, &SegmentState)> + '_ {
        self.writes.iter().map(|(id, (stamp, state))| (*id, *stamp, state))
    }

    /// All segments written, removed ones included.
    pub fn ids(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.writes.keys().copied()
    }

    /// Whether there is no write, not even an evicted one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && !self.evicted
    }
}
