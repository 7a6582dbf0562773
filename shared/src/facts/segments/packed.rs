//! Segments packed in columns, read in place.
//!
//! First four LEB128 numbers: the number of segments, the bytes of the id column, the smallest expiry, and the bits per
//! expiry. Then the columns:
//! * ids, as LEB128 differences
//! * expiries relative to the smallest, plus 1, in fixed bits; 0 for a removed segment
//! * attributes of the segments that have any: the distance of the index from the previous one, the number of
//!   attributes, then tokens and values
//! * stamps without repetition, then runs over them: an import gives all its segments one stamp
//! * if the bits have [`EVICTED`] added: the hour from which no evicted write holds

use super::{Attribute, SegmentId, SegmentMap, SegmentState, WriteStamp};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::time::HourStamp;

/// Most bits of an expiry, which lies before 2101.
const WIDTH: u64 = 20;
/// Added to the bits per expiry if writes were evicted.
const EVICTED: u64 = 32;
/// Zero bytes after the expiries, so that reads of several bytes stay in bounds.
const PADDING: usize = 8;

/// A visitor's last write of a segment, without attributes. Of two writes of one segment the greater wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SegmentWrite {
    id: SegmentId,
    stamp: WriteStamp,
    /// `None` for a removed segment.
    expiry: Option<HourStamp>,
}

/// The segments of a person at an hour, in order: of each segment the last write of any of its visitors counts. Unlike
/// [`SegmentMap::join`] it has no bound, so that a visitor's segment is not lost because other visitors wrote many
/// later ones.
#[must_use]
pub fn live_segments(visitors: &[PackedSegments<'_>], hour: HourStamp) -> Vec<SegmentId> {
    if let [one] = visitors {
        return one.iter().filter(|(_, expiry)| *expiry > hour).map(|(id, _)| id).collect();
    }
    let writes = visitors.iter().filter_map(|one| one.writes()).fold(Vec::new(), merge_writes);
    let held = writes.into_iter().filter(|write| write.expiry.is_some_and(|expiry| expiry > hour));
    held.map(|write| write.id).collect()
}

/// Merges two lists in order of their ids; of two writes of one segment the greater stays.
fn merge_writes(all: Vec<SegmentWrite>, more: impl Iterator<Item = SegmentWrite>) -> Vec<SegmentWrite> {
    let mut merged = Vec::with_capacity(all.len() + more.size_hint().1.unwrap_or_default());
    let mut all = all.into_iter().peekable();
    for write in more {
        while let Some(before) = all.next_if(|before| before.id < write.id) {
            merged.push(before);
        }
        let same = all.next_if(|same| same.id == write.id);
        merged.push(same.map_or(write, |same| same.max(write)));
    }
    merged.extend(all);
    merged
}

/// Packed segments, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct PackedSegments<'a> {
    whole: &'a [u8],
    count: usize,
    ids: &'a [u8],
    least: u32,
    width: u32,
    expiries: &'a [u8],
    attributes: PackedReader<'a>,
    evicted: bool,
}

impl SegmentMap {
    /// The packed form. Equal maps give equal bytes.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let least = self.writes.values().filter_map(|(_, state)| state.expiry()).min().unwrap_or_default().0;
        let above = |state: &SegmentState| state.expiry().map_or(0, |expiry| (expiry.0 - least).saturating_add(1));
        let most = self.writes.values().map(|(_, state)| above(state)).max().unwrap_or(0);
        let width = u32::BITS - most.leading_zeros();
        let mut ids = Vec::new();
        let mut before = 0;
        for id in self.writes.keys() {
            packed::put(&mut ids, u64::from(id.0 - before));
            before = id.0;
        }
        let mut to = Vec::new();
        for number in [self.writes.len() as u64, ids.len() as u64, least.into()] {
            packed::put(&mut to, number);
        }
        packed::put(&mut to, u64::from(width) | if self.evicted { EVICTED } else { 0 });
        to.append(&mut ids);
        put_bits(&mut to, self.writes.values().map(|(_, state)| above(state)), width);
        self.put_attributes(&mut to);
        self.put_stamps(&mut to);
        if let Some(until) = self.evicted_until() {
            packed::put(&mut to, until.0.into());
        }
        to
    }

    fn put_attributes(&self, to: &mut Vec<u8>) {
        let mut rows = Vec::new();
        let (mut count, mut before) = (0u64, 0);
        for (index, (_, state)) in (0u64..).zip(self.writes.values()) {
            let SegmentState::Held { attributes, .. } = state else { continue };
            if attributes.is_empty() {
                continue;
            }
            packed::put(&mut rows, index - before);
            packed::put(&mut rows, attributes.len() as u64);
            for (token, value) in attributes {
                packed::put(&mut rows, (*token).into());
                packed::put_signed(&mut rows, (*value).into());
            }
            (count, before) = (count + 1, index);
        }
        packed::put(to, count);
        packed::put_row(to, &rows);
    }

    fn put_stamps(&self, to: &mut Vec<u8>) {
        let mut stamps: Vec<WriteStamp> = self.writes.values().map(|(stamp, _)| *stamp).collect();
        stamps.sort_unstable();
        stamps.dedup();
        packed::put(to, stamps.len() as u64);
        let mut before = 0;
        for stamp in &stamps {
            packed::put(to, stamp.at - before);
            packed::put(to, stamp.order);
            before = stamp.at;
        }
        let mut runs: Vec<(usize, u64)> = Vec::new();
        for (stamp, _) in self.writes.values() {
            let index = stamps.binary_search(stamp).unwrap_or_default();
            match runs.last_mut() {
                Some((of, length)) if *of == index => *length += 1,
                _ => runs.push((index, 1)),
            }
        }
        for (index, length) in runs {
            packed::put(to, index as u64);
            packed::put(to, length);
        }
    }
}

fn put_bits(to: &mut Vec<u8>, values: impl Iterator<Item = u32>, width: u32) {
    let (mut bits, mut filled) = (0u64, 0);
    for value in values {
        bits |= u64::from(value) << filled;
        filled += width;
        while filled >= 8 {
            let [low, ..] = bits.to_le_bytes();
            to.push(low);
            bits >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        let [low, ..] = bits.to_le_bytes();
        to.push(low);
    }
    to.extend([0; PADDING]);
}

/// An iterator over the id and expiry columns. Written by hand, because a chain of closures is too slow in WebAssembly.
struct SegmentEntries<'a> {
    left: usize,
    ids: PackedReader<'a>,
    id: u32,
    expiries: &'a [u8],
    bit: usize,
    least: u32,
    width: u32,
}

impl Iterator for SegmentEntries<'_> {
    type Item = (SegmentId, Option<HourStamp>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Differences of a thousand ids out of a hundred thousand take one byte, sometimes two.
        let more = match self.ids.0 {
            [one @ ..0x80, rest @ ..] => {
                self.ids.0 = rest;
                u32::from(*one)
            }
            [low, high @ 1..0x80, rest @ ..] => {
                self.ids.0 = rest;
                u32::from(low & 0x7f) | u32::from(*high) << 7
            }
            _ => u32::try_from(self.ids.number()?).ok()?,
        };
        self.id = self.id.wrapping_add(more);
        // The widest expiry and the bits before it in its byte fit into four bytes.
        let four = self.expiries.get(self.bit / 8..)?.first_chunk()?;
        let above = u32::from_le_bytes(*four) >> (self.bit % 8) & ((1 << self.width) - 1);
        self.bit += self.width as usize;
        let expiry = above.checked_sub(1).map(|above| HourStamp(self.least.saturating_add(above)));
        Some((SegmentId(self.id), expiry))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

impl<'a> PackedSegments<'a> {
    /// Wraps packed bytes; `None` if they are cut or over a bound. Single entries are checked when they are read.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut from = PackedReader(bytes);
        let count = from.count(limits::SEGMENTS)?;
        let id_bytes = from.count(5 * limits::SEGMENTS)?;
        let least = u32::try_from(from.number()?).ok()?;
        let width = from.number().filter(|width| *width < 2 * EVICTED)?;
        let (width, evicted) = (width % EVICTED, width >= EVICTED);
        let width = u32::try_from(Some(width).filter(|width| *width <= WIDTH)?).ok()?;
        let ids = from.take(id_bytes)?;
        let expiries = from.take((count * width as usize).div_ceil(8) + PADDING)?;
        Some(Self { whole: bytes, count, ids, least, width, expiries, attributes: from, evicted })
    }

    /// The number of segments, removed ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no segments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The held segments with their expiries, in order of their ids.
    pub fn iter(self) -> impl Iterator<Item = (SegmentId, HourStamp)> + 'a {
        self.all().filter_map(|(id, expiry)| Some((id, expiry?)))
    }

    /// All segments written, removed ones included, in order of their ids.
    pub fn ids(self) -> impl Iterator<Item = SegmentId> + 'a {
        self.all().map(|(id, _)| id)
    }

    /// All segments written; the expiry is `None` for a removed one.
    fn all(self) -> SegmentEntries<'a> {
        let Self { count, ids, least, width, expiries, .. } = self;
        SegmentEntries { left: count, ids: PackedReader(ids), id: 0, expiries, bit: 0, least, width }
    }

    /// All segments written, with the stamps of their last writes; `None` if the stamps are malformed.
    fn writes(self) -> Option<impl Iterator<Item = SegmentWrite> + 'a> {
        let mut from = self.attributes;
        from.count(self.count)?;
        from.row()?;
        let stamps = self.read_stamps(&mut from)?;
        Some(self.all().zip(stamps).map(|((id, expiry), stamp)| SegmentWrite { id, stamp, expiry }))
    }

    /// The map with stamps and attributes; `None` unless the bytes are exactly those of [`SegmentMap::pack`].
    #[must_use]
    pub fn to_map(&self) -> Option<SegmentMap> {
        let mut from = self.attributes;
        let attributes = self.read_attributes(&mut from)?;
        let mut attributes = attributes.into_iter().peekable();
        let stamps = self.read_stamps(&mut from)?;
        let mut map = SegmentMap::default();
        for (index, ((id, expiry), stamp)) in self.all().zip(stamps).enumerate() {
            let of = attributes.next_if(|(at, _)| *at == index).map(|(_, of)| of).unwrap_or_default();
            let state = match expiry {
                Some(expiry) => SegmentState::Held { expiry, attributes: of },
                None => SegmentState::Removed,
            };
            map.writes.insert(id, (stamp, state));
        }
        map.last_expiry = map.last_expiry_held();
        if self.evicted {
            (map.evicted, map.last_expiry) = (true, HourStamp(u32::try_from(from.number()?).ok()?));
        }
        // Each map has one packed form; other forms are refused.
        (map.writes.len() == self.count && from.is_empty() && map.pack() == self.whole).then_some(map)
    }

    fn read_attributes(&self, from: &mut PackedReader<'a>) -> Option<Vec<(usize, Vec<Attribute>)>> {
        let count = from.count(self.count)?;
        let mut rows = PackedReader(from.row()?);
        let mut index = 0;
        let read = (0..count).map(|_| {
            index += rows.count(self.count)?;
            let pairs = 0..rows.count(limits::SEGMENT_ATTRIBUTES)?;
            let pair = |_| Some((u16::try_from(rows.number()?).ok()?, i32::try_from(rows.signed()?).ok()?));
            Some((index, pairs.map(pair).collect::<Option<_>>()?))
        });
        let read: Vec<_> = read.collect::<Option<_>>()?;
        rows.is_empty().then_some(read)
    }

    fn read_stamps(&self, from: &mut PackedReader<'a>) -> Option<Vec<WriteStamp>> {
        let mut at = 0u64;
        let stamps = (0..from.count(self.count)?).map(|_| {
            at = at.checked_add(from.number()?)?;
            Some(WriteStamp { at, order: from.number()? })
        });
        let stamps: Vec<WriteStamp> = stamps.collect::<Option<_>>()?;
        let mut all = Vec::with_capacity(self.count);
        while all.len() < self.count {
            let stamp = *stamps.get(from.count(self.count)?)?;
            let length = from.count(self.count - all.len()).filter(|length| *length > 0)?;
            all.extend(std::iter::repeat_n(stamp, length));
        }
        Some(all)
    }
}
