//! Actions packed in columns, as snapshots and stored profiles hold them; they are counted without being unpacked.
//!
//! The header has four LEB128 numbers: days, rows, kinds, entities. Columns of fixed width follow, in little-endian
//! order: for each day its number and the end of its rows (6 bytes); for each row, in order of time, its minute of the
//! day (2), its kind (1, or 2 if there are more than 256 kinds) and the hash of its insertion (6); for each kind its
//! entity, action type and view type (4); the entities (16). A row takes 9 bytes, and each column can be searched
//! without reading another one.

use std::ops::Range;

use super::{ActionList, ActionType, AdAction, AdEntity, InsertionHash, ViewType};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::time::{DAY_MINUTES, Day, Minute};

const DAY: usize = 6;
const HASH: usize = 6;
const KIND: usize = 4;
const ENTITY: usize = 16;

/// The part of a row that many rows share: everything except its insertion and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowKind {
    /// Index of the entity.
    pub(super) entity: u16,
    pub(super) action_type: ActionType,
    pub(super) view_type: ViewType,
}

/// Packed actions, borrowed from their bytes.
#[derive(Debug, Clone, Copy)]
pub struct PackedActions<'a> {
    days: &'a [u8],
    minutes: &'a [u8],
    kind_of_row: &'a [u8],
    wide: bool,
    hashes: &'a [u8],
    kinds: &'a [u8],
    entities: &'a [u8],
}

impl ActionList {
    /// Packed form: equal lists give equal bytes.
    #[must_use]
    pub fn pack_actions(&self) -> Vec<u8> {
        self.pack_from(Day(0))
    }

    /// Packed form of the actions on or after a day.
    #[must_use]
    pub fn pack_from(&self, day: Day) -> Vec<u8> {
        pack(self.iter().filter(|action| action.minute.day() >= day).collect())
    }
}

/// Packed form of distinct actions.
pub(super) fn pack(mut actions: Vec<AdAction>) -> Vec<u8> {
    actions.sort_unstable_by_key(|a| (a.minute, a.insertion, a.entity, a.action_type, a.view_type));
    let mut entities: Vec<AdEntity> = actions.iter().map(|action| action.entity).collect();
    sort_once(&mut entities);
    let kind = |a: &AdAction| RowKind {
        entity: place(&entities, &a.entity),
        action_type: a.action_type,
        view_type: a.view_type,
    };
    let mut kinds: Vec<RowKind> = actions.iter().map(kind).collect();
    sort_once(&mut kinds);
    let mut days: Vec<(Day, u32)> = Vec::new();
    for (end, action) in (1u32..).zip(&actions) {
        match days.last_mut() {
            Some((day, to)) if *day == action.minute.day() => *to = end,
            _ => days.push((action.minute.day(), end)),
        }
    }
    let mut to = Vec::with_capacity(actions.len() * 10 + kinds.len() * KIND + entities.len() * ENTITY + 16);
    for count in [days.len(), actions.len(), kinds.len(), entities.len()] {
        packed::put(&mut to, count as u64);
    }
    for (day, end) in days {
        to.extend(day.0.to_le_bytes());
        to.extend(end.to_le_bytes());
    }
    actions.iter().for_each(|a| to.extend(minute_of_day(a.minute).to_le_bytes()));
    let wide = is_wide(kinds.len());
    for action in &actions {
        let [low, high] = place(&kinds, &kind(action)).to_le_bytes();
        to.push(low);
        to.extend(wide.then_some(high));
    }
    actions.iter().for_each(|a| to.extend(a.insertion.0));
    for RowKind { entity, action_type, view_type } in kinds {
        to.extend(entity.to_le_bytes());
        to.extend([action_type.0, view_type.0]);
    }
    for AdEntity { ad, ad_group, campaign, advertiser } in entities {
        [ad, ad_group, campaign, advertiser].into_iter().for_each(|code| to.extend(code.to_le_bytes()));
    }
    to
}

fn sort_once<T: Ord>(list: &mut Vec<T>) {
    list.sort_unstable();
    list.dedup();
}

/// Index of an entry in a sorted list. It fits 16 bits because at most [`limits::ACTIONS`] actions are packed.
fn place<T: Ord>(list: &[T], of: &T) -> u16 {
    u16::try_from(list.binary_search(of).unwrap_or_default()).unwrap_or(u16::MAX)
}

fn minute_of_day(minute: Minute) -> u16 {
    u16::try_from(minute.0 % DAY_MINUTES).unwrap_or_default()
}

fn is_wide(kinds: usize) -> bool {
    kinds > 256
}

impl<'a> PackedActions<'a> {
    /// Reads packed bytes. `None` if they are truncated, too long or over a bound; single rows are not checked, see
    /// [`Self::is_whole`].
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self {
                days: &[],
                minutes: &[],
                kind_of_row: &[],
                wide: false,
                hashes: &[],
                kinds: &[],
                entities: &[],
            });
        }
        let mut from = PackedReader(bytes);
        let days = from.count(limits::ACTIONS)?;
        let rows = from.count(limits::ACTIONS)?;
        let kinds = from.count(rows)?;
        let entities = from.count(kinds)?;
        let wide = is_wide(kinds);
        let read = Self {
            days: from.take(days * DAY)?,
            minutes: from.take(rows * 2)?,
            kind_of_row: from.take(rows * if wide { 2 } else { 1 })?,
            wide,
            hashes: from.take(rows * HASH)?,
            kinds: from.take(kinds * KIND)?,
            entities: from.take(entities * ENTITY)?,
        };
        from.is_empty().then_some(read)
    }

    /// Whether these are exactly the bytes of [`ActionList::pack_actions`]: every row within its columns, in order,
    /// without repeats.
    #[must_use]
    pub fn is_whole(bytes: &'a [u8]) -> bool {
        let Some(read) = Self::read(bytes) else { return false };
        let actions: ActionList = read.iter().collect();
        bytes.is_empty() || (actions.len() == read.len() && actions.pack_actions() == bytes)
    }

    /// Number of actions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.minutes.len() / 2
    }

    /// Whether there are no actions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.minutes.is_empty()
    }

    /// Actions in order of time, without rows that refer outside their columns.
    pub fn iter(&self) -> impl Iterator<Item = AdAction> + '_ {
        self.rows(0..self.len())
    }

    /// Minute of the last action before `minute`.
    #[must_use]
    pub fn last_before(&self, minute: Minute) -> Option<Minute> {
        let row = self.first_from(minute).checked_sub(1)?;
        self.rows(row..row + 1).next().map(|action| action.minute)
    }

    /// Actions of these rows.
    pub(super) fn rows(&self, rows: Range<usize>) -> impl Iterator<Item = AdAction> + '_ {
        let mut days = self.days().peekable();
        let kinds = self.kinds_of(rows.clone());
        let hashes = chunks::<HASH>(self.hashes).get(rows.clone()).unwrap_or_default();
        rows.zip(kinds).zip(hashes).filter_map(move |((row, kind), hash)| {
            while days.next_if(|(_, end)| *end <= row).is_some() {}
            let (day, _) = days.peek()?;
            let minute = Minute(day.start().0.checked_add(u32::from(self.minute_of_day(row)?))?);
            let RowKind { entity, action_type, view_type } = self.kind(kind)?;
            let entity = self.entity(entity.into())?;
            Some(AdAction { insertion: InsertionHash(*hash), action_type, view_type, entity, minute })
        })
    }

    /// Rows from minute `from` up to `to`, exclusive.
    #[must_use]
    pub(super) fn within(&self, from: Minute, to: Minute) -> Range<usize> {
        let first = self.first_from(from);
        first..self.first_from(to).max(first)
    }

    /// First row at or after a minute.
    fn first_from(&self, minute: Minute) -> usize {
        let mut start = 0;
        for (day, end) in self.days() {
            if day == minute.day() {
                let end = end.min(self.len());
                let rows = chunks::<2>(self.minutes).get(start..end).unwrap_or_default();
                let wanted = minute_of_day(minute);
                return start + rows.partition_point(|of_row| u16::from_le_bytes(*of_row) < wanted);
            }
            if day > minute.day() {
                break;
            }
            start = end.min(self.len());
        }
        start
    }

    fn days(&self) -> impl Iterator<Item = (Day, usize)> + '_ {
        chunks::<DAY>(self.days).iter().map(|[a, b, c, d, e, f]| {
            let end = u32::from_le_bytes([*c, *d, *e, *f]);
            (Day(u16::from_le_bytes([*a, *b])), usize::try_from(end).unwrap_or(usize::MAX))
        })
    }

    /// Splits a range of rows by day.
    pub(super) fn days_within(&self, rows: Range<usize>) -> impl Iterator<Item = (Day, Range<usize>)> + '_ {
        let mut start = 0;
        self.days().filter_map(move |(day, end)| {
            let of_day = start.max(rows.start)..end.min(rows.end);
            start = start.max(end);
            (of_day.start < of_day.end).then_some((day, of_day))
        })
    }

    fn minute_of_day(&self, row: usize) -> Option<u16> {
        chunks::<2>(self.minutes).get(row).copied().map(u16::from_le_bytes)
    }

    /// Kinds of these rows, as indexes.
    pub(super) fn kinds_of(&self, rows: Range<usize>) -> KindsOf<'a> {
        if self.wide {
            KindsOf::Wide(chunks::<2>(self.kind_of_row).get(rows).unwrap_or_default().iter())
        } else {
            KindsOf::Narrow(self.kind_of_row.get(rows).unwrap_or_default().iter())
        }
    }

    /// Insertion hashes of these rows.
    pub(super) fn hashes_of(&self, rows: Range<usize>) -> &'a [[u8; HASH]] {
        chunks::<HASH>(self.hashes).get(rows).unwrap_or_default()
    }

    fn kind(&self, place: usize) -> Option<RowKind> {
        chunks(self.kinds).get(place).map(RowKind::from_bytes)
    }

    /// All kinds.
    pub(super) fn kinds(&self) -> impl ExactSizeIterator<Item = RowKind> + 'a {
        chunks(self.kinds).iter().map(RowKind::from_bytes)
    }

    /// All entities.
    pub(super) fn entities(&self) -> impl ExactSizeIterator<Item = AdEntity> + 'a {
        chunks(self.entities).iter().map(entity)
    }

    fn entity(&self, place: usize) -> Option<AdEntity> {
        chunks(self.entities).get(place).map(entity)
    }
}

impl RowKind {
    fn from_bytes([low, high, action_type, view_type]: &[u8; KIND]) -> Self {
        let entity = u16::from_le_bytes([*low, *high]);
        Self { entity, action_type: ActionType(*action_type), view_type: ViewType(*view_type) }
    }
}

fn entity(codes: &[u8; ENTITY]) -> AdEntity {
    let [ad, ad_group, campaign, advertiser] = [0, 1, 2, 3].map(|i| code(codes, i));
    AdEntity { ad, ad_group, campaign, advertiser }
}

fn code(codes: &[u8; ENTITY], i: usize) -> u32 {
    codes.get(4 * i..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

/// A column of `N` bytes per row.
fn chunks<const N: usize>(column: &[u8]) -> &[[u8; N]] {
    column.as_chunks().0
}

/// Indexes in the list of kinds, in one or two bytes.
#[derive(Debug, Clone)]
pub(super) enum KindsOf<'a> {
    Narrow(std::slice::Iter<'a, u8>),
    Wide(std::slice::Iter<'a, [u8; 2]>),
}

impl Iterator for KindsOf<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        match self {
            Self::Narrow(rows) => rows.next().map(|place| usize::from(*place)),
            Self::Wide(rows) => rows.next().map(|place| usize::from(u16::from_le_bytes(*place))),
        }
    }

    fn fold<B, F: FnMut(B, usize) -> B>(self, start: B, mut add: F) -> B {
        // Branches once for all rows, not once per row.
        match self {
            Self::Narrow(rows) => rows.fold(start, |so_far, place| add(so_far, usize::from(*place))),
            Self::Wide(rows) => rows.fold(start, |so_far, place| add(so_far, usize::from(u16::from_le_bytes(*place)))),
        }
    }
}
