//! The audience index as bytes for a file. Each partition is separate, so that one can be written while others change.
//! The part common to all partitions comes last, as it only grows.
//!
//! A partition is its first bucket and its end (exclusive); then lists of numbers of fixed width, each with a length
//! prefix: people, masters, buckets, fingerprints of segments; then the number of columns, and each column's base,
//! width and codes; then the number of segments, and each segment's id and rows, as a list (0) or as bits (1). Numbers
//! of fixed width are little-endian; all others are packed ([`crate::base::packed`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::numbers::{CodeColumn, NumberColumn};
use super::partition::IndexPartition;
use super::rows::RowSet;
use super::{AudienceIndex, ColumnKey, RowPlaces, TextTable};
use crate::base::bucket::BUCKETS;
use crate::base::ids::VisitorId;
use crate::base::packed::{self, PackedReader};
use crate::facts::actions::ActionType;
use crate::facts::attributes::{AttributeValue, NameToken};
use crate::facts::segments::SegmentId;

/// Largest number of entries in a list that a reader accepts; no list is ever written longer.
const MOST: usize = 1 << 20;

impl AudienceIndex {
    /// Bytes of one partition; adds the texts that its people have to `used`.
    #[must_use]
    pub fn pack_partition(&self, at: usize, used: &mut UsedTexts) -> Vec<u8> {
        let Some(partition) = self.partitions.get(at) else { return Vec::new() };
        for (token, texts) in &self.texts {
            let Some(column) = self.columns.get(&ColumnKey::Attribute(*token)) else { continue };
            let places = used.0.entry(*token).or_default();
            places.resize(texts.values.len().max(places.len()), false);
            for place in partition.numbers_of(*column) {
                if let Some(used) = usize::try_from(place).ok().and_then(|place| places.get_mut(place)) {
                    *used = true;
                }
            }
        }
        partition.to_bytes()
    }

    /// Bytes of the part common to all partitions, without unsettled names. Write it after the last partition, with the
    /// texts used by all of them. An unused text may belong to an erased person, so that its entry is left empty.
    #[must_use]
    pub fn pack_names(&self, UsedTexts(used): &UsedTexts) -> Vec<u8> {
        let mut to = Vec::new();
        let mut keys: Vec<(usize, ColumnKey)> = self.columns.iter().map(|(key, place)| (*place, *key)).collect();
        keys.sort_unstable();
        packed::put(&mut to, keys.len() as u64);
        keys.iter().for_each(|(_, key)| key.put(&mut to));
        packed::put(&mut to, self.texts.len() as u64);
        for (token, texts) in &self.texts {
            packed::put(&mut to, token.0.into());
            packed::put(&mut to, texts.values.len() as u64);
            let used = used.get(token).map_or(&[][..], Vec::as_slice);
            for (place, value) in texts.values.iter().enumerate() {
                let is_used = used.get(place).copied().unwrap_or_default();
                packed::put_row(&mut to, &if is_used { value.pack() } else { Vec::new() });
            }
        }
        let mut names: Vec<(u16, &String)> = self.events.iter().map(|(name, place)| (*place, name)).collect();
        names.sort_unstable();
        packed::put(&mut to, self.event_numbers.into());
        packed::put(&mut to, names.len() as u64);
        for (number, name) in names {
            packed::put(&mut to, number.into());
            packed::put_row(&mut to, name.as_bytes());
        }
        to
    }

    /// Rebuilds the position of each person. If a person has two live rows, the first is killed.
    fn find_places(&mut self) {
        for at in 0..self.partitions.len() {
            let living: Vec<(usize, u64)> = self.partitions.get(at).map(IndexPartition::living).unwrap_or_default();
            for (slot, person) in living {
                if let Some((other, slot)) = self.places.get(person) {
                    self.partitions.iter_mut().skip(other).take(1).for_each(|other| other.kill(slot));
                }
                self.places.put(person, Some((at, slot)));
            }
        }
    }
}

/// Texts that people of the packed partitions have, by attribute and index.
#[derive(Debug, Default)]
pub struct UsedTexts(BTreeMap<NameToken, Vec<bool>>);

/// Reads an index back: the partitions in order, then the common part. A person who moved between partitions during the
/// write is only in the later one, or in none, and must be written again.
#[derive(Debug, Default)]
pub struct IndexReader(Vec<IndexPartition>);

impl IndexReader {
    /// Reads one partition; `None` if the bytes are invalid.
    #[must_use]
    pub fn partition(&mut self, bytes: &[u8]) -> Option<()> {
        self.0.push(IndexPartition::from_bytes(bytes)?);
        Some(())
    }

    /// Reads the common part and completes the index; `None` if the bytes are invalid or do not fit the partitions.
    #[must_use]
    pub fn names(self, bytes: &[u8]) -> Option<AudienceIndex> {
        let mut from = PackedReader(bytes);
        let columns =
            (0..from.count(MOST)?).map(|place| Some((ColumnKey::take(&mut from)?, place))).collect::<Option<_>>()?;
        let mut texts: BTreeMap<NameToken, TextTable> = BTreeMap::new();
        for _ in 0..from.count(MOST)? {
            let of_token = texts.entry(NameToken(u16::try_from(from.number()?).ok()?)).or_default();
            for _ in 0..from.count(MOST)? {
                match from.row()? {
                    [] => of_token.values.push(AttributeValue::String(String::new())),
                    packed => drop(of_token.code(&AttributeValue::read(packed)?)),
                }
            }
        }
        let event_numbers = u16::try_from(from.number()?).ok()?;
        let mut events = BTreeMap::new();
        for _ in 0..from.count(event_numbers.into())? {
            let number = u16::try_from(from.number()?).ok().filter(|number| *number < event_numbers)?;
            events.insert(std::str::from_utf8(from.row()?).ok()?.to_owned(), number);
        }
        let unsettled = BTreeSet::new();
        let width = usize::from(BUCKETS).checked_div(self.0.len())?;
        let starts = (0..usize::from(BUCKETS)).step_by(width.max(1));
        let is_laid_out = self.0.iter().map(IndexPartition::first_bucket).eq(starts);
        let mut people = AudienceIndex {
            partitions: self.0,
            columns,
            texts,
            events,
            event_numbers,
            unsettled,
            places: RowPlaces::default(),
        };
        people.find_places();
        (from.is_empty() && is_laid_out).then_some(people)
    }
}

impl ColumnKey {
    fn put(self, to: &mut Vec<u8>) {
        let (code, of) = match self {
            Self::Devices => (0, 0),
            Self::FirstSeen => (1, 0),
            Self::LastSeen => (2, 0),
            Self::Pages => (3, 0),
            Self::Sessions => (4, 0),
            Self::Purchases => (5, 0),
            Self::Revenue => (6, 0),
            Self::Segments => (7, 0),
            Self::Expires => (8, 0),
            Self::MoreEvents => (9, 0),
            Self::Attribute(token) => (10, token.0),
            Self::Count(place) => (11, place),
            Self::Last(place) => (12, place),
            Self::Acted(action_type) => (13, action_type.0.into()),
            Self::UncountedEvents => (14, 0),
            Self::LacksAttributes => (15, 0),
            Self::LacksSegments => (16, 0),
            Self::LacksMembers => (17, 0),
        };
        to.push(code);
        packed::put(to, of.into());
    }

    fn take(from: &mut PackedReader<'_>) -> Option<Self> {
        let [code] = *from.take(1)? else { return None };
        let of = u16::try_from(from.number()?).ok()?;
        Some(match code {
            0 => Self::Devices,
            1 => Self::FirstSeen,
            2 => Self::LastSeen,
            3 => Self::Pages,
            4 => Self::Sessions,
            5 => Self::Purchases,
            6 => Self::Revenue,
            7 => Self::Segments,
            8 => Self::Expires,
            9 => Self::MoreEvents,
            10 => Self::Attribute(NameToken(of)),
            11 => Self::Count(of),
            12 => Self::Last(of),
            13 => Self::Acted(ActionType(u8::try_from(of).ok()?)),
            14 => Self::UncountedEvents,
            15 => Self::LacksAttributes,
            16 => Self::LacksSegments,
            17 => Self::LacksMembers,
            _ => return None,
        })
    }
}

impl IndexPartition {
    fn to_bytes(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(self.bytes() + self.bytes() / 8);
        self.of.start.put(&mut to);
        self.of.end.put(&mut to);
        put_all(&mut to, &self.people);
        put_all(&mut to, &self.masters);
        put_all(&mut to, &self.buckets);
        put_all(&mut to, &self.prints);
        packed::put(&mut to, self.columns.len() as u64);
        self.columns.iter().for_each(|column| column.put_to(&mut to));
        packed::put(&mut to, self.segments.len() as u64);
        for (id, rows) in &self.segments {
            packed::put(&mut to, id.0.into());
            match rows {
                RowSet::Few(rows) => {
                    to.push(0);
                    put_all(&mut to, rows);
                }
                RowSet::Many(bits) => {
                    to.push(1);
                    packed::put_row(&mut to, bits);
                }
            }
        }
        to
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = PackedReader(bytes);
        let of = take_one(&mut from)?..take_one(&mut from)?;
        let people: Vec<u64> = take_all(&mut from)?;
        let (masters, buckets, prints) = (take_all(&mut from)?, take_all(&mut from)?, take_all(&mut from)?);
        let rows = people.len();
        let columns = (0..from.count(MOST)?).map(|_| NumberColumn::take_from(&mut from)).collect::<Option<Vec<_>>>()?;
        let mut segments = HashMap::new();
        for _ in 0..from.count(bytes.len())? {
            let id = SegmentId(u32::try_from(from.number()?).ok()?);
            let [form] = *from.take(1)? else { return None };
            let rows = match form {
                0 => RowSet::Few(take_all(&mut from)?),
                1 => RowSet::Many(from.row()?.to_vec()),
                _ => return None,
            };
            segments.insert(id, rows);
        }
        let mut read = Self { people, masters, buckets, prints, columns, segments, dead: 0, of };
        read.dead = rows - read.living().len();
        let as_long = [read.masters.len(), read.buckets.len(), read.prints.len()] == [rows; 3];
        (from.is_empty() && as_long && rows <= usize::from(u16::MAX) + 1).then_some(read)
    }

    fn first_bucket(&self) -> usize {
        self.of.start.into()
    }
}

impl NumberColumn {
    fn put_to(&self, to: &mut Vec<u8>) {
        self.base.put(to);
        match &self.codes {
            CodeColumn::Nothing => to.push(0),
            CodeColumn::One(codes) => {
                to.push(1);
                packed::put_row(to, codes);
            }
            CodeColumn::Two(codes) => {
                to.push(2);
                put_all(to, codes);
            }
            CodeColumn::Four(codes) => {
                to.push(4);
                put_all(to, codes);
            }
            CodeColumn::Eight(numbers, there) => {
                to.push(8);
                put_all(to, numbers);
                packed::put_row(to, there);
            }
        }
    }

    fn take_from(from: &mut PackedReader<'_>) -> Option<Self> {
        let base = take_one(from)?;
        let [width] = *from.take(1)? else { return None };
        let codes = match width {
            0 => CodeColumn::Nothing,
            1 => CodeColumn::One(from.row()?.to_vec()),
            2 => CodeColumn::Two(take_all(from)?),
            4 => CodeColumn::Four(take_all(from)?),
            8 => CodeColumn::Eight(take_all(from)?, from.row()?.to_vec()),
            _ => return None,
        };
        Some(Self { base, codes })
    }
}

/// A number of a fixed width in bytes.
trait FixedWidth: Sized {
    fn put(&self, to: &mut Vec<u8>);
    /// Splits the first number off.
    fn split(from: &[u8]) -> Option<(Self, &[u8])>;
    const WIDTH: usize = size_of::<Self>();
}

macro_rules! fixed {
    ($($number:ty),*) => {$(
        impl FixedWidth for $number {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn split(from: &[u8]) -> Option<(Self, &[u8])> {
                let (bytes, rest) = from.split_first_chunk()?;
                Some((Self::from_le_bytes(*bytes), rest))
            }
        }
    )*};
}

fixed!(u16, u32, u64, i64);

impl FixedWidth for VisitorId {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.as_bytes());
    }

    fn split(from: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = from.split_first_chunk()?;
        Some((Self::from_bytes(*bytes).ok()?, rest))
    }
}

fn put_all<T: FixedWidth>(to: &mut Vec<u8>, all: &[T]) {
    packed::put(to, all.len() as u64);
    all.iter().for_each(|one| one.put(to));
}

fn take_one<T: FixedWidth>(from: &mut PackedReader<'_>) -> Option<T> {
    T::split(from.take(T::WIDTH)?).map(|(one, _)| one)
}

fn take_all<T: FixedWidth>(from: &mut PackedReader<'_>) -> Option<Vec<T>> {
    let length = from.count(MOST)?;
    let bytes = from.take(length * T::WIDTH)?;
    bytes.chunks_exact(T::WIDTH).map(|one| T::split(one).map(|(one, _)| one)).collect()
}
