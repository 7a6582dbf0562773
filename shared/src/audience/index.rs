//! The audience index: all people of a tenant in memory, one row per person, for questions about all of them. A visitor
//! without links is a person with one visitor. Rows are partitioned by sampling bucket, so that a sample reads few
//! partitions. Conditions are tested on whole columns of a partition, one after the other, without branches
//! (MonetDB/X100, Boncz et al. 2005); segments are sets of rows.
//!
//! The index knows less than the store. Of a history it has the total number and the last time only, and this only for
//! events under counted names ([`AudienceIndex::count_events`]). Where this does not decide a condition, the row is
//! *unsure*, and the store must be asked. The final answers equal those of
//! [`crate::targeting::filter::Filter::matches`], whose tests also run against the index.
//!
//! If a person's segments change, a new row is appended to the partition and the old row is dead until the partition is
//! packed: no segment is searched for a row.

mod evaluate;
mod form;
mod numbers;
mod partition;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::base::bucket::BUCKETS;
use crate::base::ids::{Micros, Millis, VisitorId};
use crate::base::limits;
use crate::base::time::{HourStamp, Minute};
use crate::facts::actions::ActionType;
use crate::facts::attributes::{AttributeValue, NameToken};
use crate::facts::fact;
use crate::facts::segments::SegmentId;
use crate::profiles::profile::{MissingParts, ProfileTotals};
use crate::targeting::filter::Filter;

pub use evaluate::{IndexQuery, MatchedRows};
pub use form::{IndexReader, UsedTexts};
use partition::IndexPartition;

/// Average number of rows of a partition when it is laid out; it may grow to more than twice that.
const ROWS: u64 = 25_000;
/// A partition is packed if its dead rows exceed this number plus half of its live rows.
const DEAD: usize = 1_024;
/// Marks that a person has no row.
const NOWHERE: u32 = u32::MAX;

/// Input row of one person.
#[derive(Debug, Clone, Copy)]
pub struct IndexRow<'a> {
    /// The person's number in the store.
    pub person: u64,
    /// Oldest visitor of the person.
    pub master: VisitorId,
    /// Bucket for [`crate::base::bucket::BucketPurpose::Sampling`].
    pub bucket: u16,
    /// Number of browsers.
    pub devices: u32,
    /// Times of the first and the last fact.
    pub seen: Option<(Millis, Millis)>,
    /// Sums over all visitors of the person.
    pub totals: ProfileTotals,
    /// Attributes by token, each once.
    pub attributes: &'a [(NameToken, AttributeValue)],
    /// Current segments, in order, each once.
    pub segments: &'a [SegmentId],
    /// First hour in which one of the segments expires.
    pub expires: Option<HourStamp>,
    /// Events by name: total number, and time of the last one.
    pub events: &'a [(&'a str, u64, Minute)],
    /// Whether there are events under names that `events` does not list.
    pub more_events: bool,
    /// Time of the last ad action of each type.
    pub actions: &'a [(ActionType, Minute)],
    /// Parts of the person's data that the store may lack; conditions on them are unsure.
    pub missing: MissingParts,
}

/// Identifies a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ColumnKey {
    Devices,
    FirstSeen,
    LastSeen,
    Pages,
    Sessions,
    Purchases,
    Revenue,
    /// Number of segments.
    Segments,
    /// First hour in which a segment expires.
    Expires,
    /// Whether there are events under names that the person's row does not list.
    MoreEvents,
    /// Whether there are events under names that the index does not count.
    UncountedEvents,
    Attribute(NameToken),
    /// Number of events, by the number of the event's name.
    Count(u16),
    /// Time of the last such event, in minutes.
    Last(u16),
    /// Time of the last action of a type, in minutes.
    Acted(ActionType),
    /// Whether the store may lack some attributes.
    LacksAttributes,
    /// Whether the store may lack some segments.
    LacksSegments,
    /// Whether the row lacks visitors of the person.
    LacksMembers,
}

impl ColumnKey {
    /// Columns that mark missing parts of a row.
    const LACKING: [(Self, MissingParts); 3] = [
        (Self::LacksAttributes, MissingParts::ATTRIBUTES),
        (Self::LacksSegments, MissingParts::SEGMENTS),
        (Self::LacksMembers, MissingParts::MEMBERS),
    ];
}

/// Measure of people that can be summed and averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeopleMeasure {
    /// Revenue in micros.
    Revenue,
    /// Number of purchases.
    Purchases,
    /// Number of page views.
    Pages,
    /// Number of sessions.
    Sessions,
    /// Number of browsers.
    Devices,
    /// Attribute of kind bool or integer, over the people who have it.
    Attribute(NameToken),
}

impl PeopleMeasure {
    fn key(self) -> ColumnKey {
        match self {
            Self::Revenue => ColumnKey::Revenue,
            Self::Purchases => ColumnKey::Purchases,
            Self::Pages => ColumnKey::Pages,
            Self::Sessions => ColumnKey::Sessions,
            Self::Devices => ColumnKey::Devices,
            Self::Attribute(token) => ColumnKey::Attribute(token),
        }
    }

    /// Value of a person without a number: sums are 0; an attribute stays absent (`None`).
    #[must_use]
    pub fn absent(self) -> Option<i64> {
        if matches!(self, Self::Attribute(_)) { None } else { Some(0) }
    }
}

/// Distinct values of a text attribute, each with its index. Once the table is full, all further values share one code.
#[derive(Debug, Clone, Default)]
struct TextTable {
    values: Vec<AttributeValue>,
    places: BTreeMap<AttributeValue, u32>,
}

impl TextTable {
    fn code(&mut self, value: &AttributeValue) -> i64 {
        if let Some(place) = self.places.get(value) {
            return (*place).into();
        }
        let place = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        if self.values.len() < limits::AUDIENCE_TEXTS {
            self.values.push(value.clone());
            self.places.insert(value.clone(), place);
        }
        place.into()
    }
}

/// The people of one tenant, in partitions of columns.
#[derive(Debug, Clone)]
pub struct AudienceIndex {
    partitions: Vec<IndexPartition>,
    columns: BTreeMap<ColumnKey, usize>,
    texts: BTreeMap<NameToken, TextTable>,
    /// Counted event names, each with its number. `page` and `purchase` are always counted.
    events: BTreeMap<String, u16>,
    /// Numbers assigned to names so far. A number is never reused, because a row may still have a count under it.
    event_numbers: u16,
    /// Counted names added after some rows were written; rows with uncounted events may lack their counts.
    unsettled: BTreeSet<String>,
    places: RowPlaces,
}

/// Partition and slot of each person's row, in pages of consecutive person numbers.
#[derive(Debug, Clone, Default)]
struct RowPlaces(BTreeMap<u64, Box<[u32; PAGE]>>);

/// Persons per page.
const PAGE: usize = 4_096;

impl RowPlaces {
    fn get(&self, person: u64) -> Option<(usize, usize)> {
        let row = *self.0.get(&(person / PAGE as u64))?.get(person as usize % PAGE)?;
        (row != NOWHERE).then_some(((row >> 16) as usize, (row & 0xffff) as usize))
    }

    fn put(&mut self, person: u64, place: Option<(usize, usize)>) {
        let row = place.map_or(NOWHERE, |(partition, slot)| (partition as u32) << 16 | (slot as u32 & 0xffff));
        let page = self.0.entry(person / PAGE as u64).or_insert_with(|| Box::new([NOWHERE; PAGE]));
        page.iter_mut().skip(person as usize % PAGE).take(1).for_each(|place| *place = row);
    }
}

/// Whether an event name is always counted.
fn is_always_counted(name: &str) -> bool {
    name == fact::PAGE || name == fact::PURCHASE
}

/// Assigns the next number to a name; `false` if all numbers are used up.
fn number_event(events: &mut BTreeMap<String, u16>, numbers: &mut u16, name: &str) -> bool {
    let Some(next) = numbers.checked_add(1) else { return false };
    events.insert(name.to_owned(), *numbers);
    *numbers = next;
    true
}

/// A partition is full: the index must be rebuilt with a layout for more people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a partition of the audience index is full: lay the index out for more people")]
pub struct PartitionFull;

impl AudienceIndex {
    /// Empty index, laid out for this number of people; it has room for some more.
    #[must_use]
    pub fn laid_out_for(people: u64) -> Self {
        let wanted = people.div_ceil(ROWS);
        let divides = |partitions: &u16| BUCKETS.is_multiple_of(*partitions) && u64::from(*partitions) >= wanted;
        let width = BUCKETS / (1..=BUCKETS).find(divides).unwrap_or(BUCKETS);
        let starts = (0..BUCKETS).step_by(width.into());
        Self {
            partitions: starts.map(|start| IndexPartition::of(start..start + width)).collect(),
            columns: BTreeMap::new(),
            texts: BTreeMap::new(),
            events: BTreeMap::new(),
            event_numbers: 0,
            unsettled: BTreeSet::new(),
            places: RowPlaces::default(),
        }
    }

    /// Number of people.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.live() as u64).sum()
    }

    /// Whether the index is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of partitions; threads may work on them in parallel.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Partitions that hold people of these buckets.
    #[must_use]
    pub fn partitions_of(&self, buckets: &Range<u16>) -> Range<usize> {
        let width = self.width();
        usize::from(buckets.start) / width..usize::from(buckets.end).div_ceil(width).min(self.partitions.len())
    }

    fn width(&self) -> usize {
        usize::from(BUCKETS) / self.partitions.len().max(1)
    }

    /// Writes a person's row in place of its previous one.
    ///
    /// # Errors
    /// [`PartitionFull`]; the person then has no row.
    pub fn put(&mut self, row: &IndexRow<'_>) -> Result<(), PartitionFull> {
        let at = usize::from(row.bucket) / self.width();
        let says = self.says(row);
        let place = match self.places.get(row.person) {
            Some((there, slot)) if there == at && self.is_as_before(at, slot, row) => slot,
            there => {
                if there.is_some() {
                    self.remove(row.person);
                }
                self.append(at, row)?
            }
        };
        let Some(partition) = self.partitions.get_mut(at) else { return Err(PartitionFull) };
        partition.write(place, row.master, &says);
        Ok(())
    }

    fn is_as_before(&self, partition: usize, slot: usize, row: &IndexRow<'_>) -> bool {
        self.partitions.get(partition).is_some_and(|partition| partition.is(slot, row.bucket, row.segments))
    }

    fn append(&mut self, at: usize, row: &IndexRow<'_>) -> Result<usize, PartitionFull> {
        let is_full = |partition: &IndexPartition| partition.rows() > usize::from(u16::MAX);
        if self.partitions.get(at).is_some_and(is_full) {
            self.pack(at);
        }
        let Some(partition) = self.partitions.get_mut(at).filter(|partition| !is_full(partition)) else {
            return Err(PartitionFull);
        };
        let slot = partition.append(row.person, row.bucket, row.segments);
        self.places.put(row.person, Some((at, slot)));
        Ok(slot)
    }

    /// Removes a person's row, if there is one.
    pub fn remove(&mut self, person: u64) {
        let Some((at, slot)) = self.places.get(person) else { return };
        self.places.put(person, None);
        let Some(partition) = self.partitions.get_mut(at) else { return };
        partition.kill(slot);
        if partition.rows() - partition.live() > partition.live() / 2 + DEAD {
            self.pack(at);
        }
    }

    /// Removes the dead rows of a partition.
    fn pack(&mut self, at: usize) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        partition.pack();
        for (slot, person) in partition.people().enumerate() {
            self.places.put(person, Some((at, slot)));
        }
    }

    /// Numbers of a row, each with the index of its column, in order.
    fn says(&mut self, row: &IndexRow<'_>) -> Vec<(usize, i64)> {
        let mut all = Vec::new();
        let mut say = |columns: &mut BTreeMap<ColumnKey, usize>, key: ColumnKey, number: i64| {
            let next = columns.len();
            all.push((*columns.entry(key).or_insert(next), number));
        };
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let columns = &mut self.columns;
        say(columns, ColumnKey::Devices, row.devices.into());
        if let Some((first, last)) = row.seen {
            say(columns, ColumnKey::FirstSeen, count(first));
            say(columns, ColumnKey::LastSeen, count(last));
        }
        let ProfileTotals { pages, sessions, purchases, revenue } = row.totals;
        let sums = [(ColumnKey::Pages, pages), (ColumnKey::Sessions, sessions), (ColumnKey::Purchases, purchases)];
        for (key, number) in sums.into_iter().chain([(ColumnKey::Segments, row.segments.len() as u64)]) {
            if number > 0 {
                say(columns, key, count(number));
            }
        }
        if revenue != Micros::ZERO {
            say(columns, ColumnKey::Revenue, revenue.get());
        }
        if let Some(hour) = row.expires {
            say(columns, ColumnKey::Expires, hour.0.into());
        }
        if row.more_events {
            say(columns, ColumnKey::MoreEvents, 1);
        }
        for (key, _) in ColumnKey::LACKING.into_iter().filter(|(_, part)| row.missing.overlaps(*part)) {
            say(columns, key, 1);
        }
        for (token, value) in row.attributes {
            let number = crate::targeting::filter::number_of(value);
            let number = number.unwrap_or_else(|| self.texts.entry(*token).or_default().code(value));
            say(columns, ColumnKey::Attribute(*token), number);
        }
        let mut uncounted = false;
        for (name, how_often, last) in row.events {
            if is_always_counted(name) && !self.events.contains_key(*name) {
                number_event(&mut self.events, &mut self.event_numbers, name);
            }
            match self.events.get(*name) {
                Some(number) => {
                    say(columns, ColumnKey::Count(*number), count(*how_often));
                    say(columns, ColumnKey::Last(*number), last.0.into());
                }
                None => uncounted = true,
            }
        }
        if uncounted {
            say(columns, ColumnKey::UncountedEvents, 1);
        }
        for (action_type, last) in row.actions {
            say(columns, ColumnKey::Acted(*action_type), last.0.into());
        }
        all.sort_unstable();
        all
    }

    /// People in a segment that has expired by an hour: their rows must be written again.
    #[must_use]
    pub fn expired(&self, hour: HourStamp) -> Vec<u64> {
        let Some(column) = self.columns.get(&ColumnKey::Expires) else { return Vec::new() };
        self.partitions.iter().flat_map(|partition| partition.at_most(*column, hour.0.into())).collect()
    }

    /// Counts exactly these event names, `page` and `purchase` from now on; returns whether that is a change. Until
    /// [`Self::settle`], a new name is unsure for people with uncounted events ([`Self::uncounted`]), whose rows must
    /// be written again.
    pub fn count_events(&mut self, names: &BTreeSet<String>) -> bool {
        let is_gone = |name: &&String| !names.contains(*name) && !is_always_counted(name);
        let gone: Vec<String> = self.events.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|name| self.stop_counting(name));
        let mut changed = !gone.is_empty();
        for name in names.iter().filter(|name| !is_always_counted(name)) {
            if !self.events.contains_key(name) && number_event(&mut self.events, &mut self.event_numbers, name) {
                self.unsettled.insert(name.clone());
                changed = true;
            }
        }
        changed
    }

    /// Removes the counts of a name; people who had some have uncounted events from now on.
    fn stop_counting(&mut self, name: &str) {
        self.unsettled.remove(name);
        let Some(number) = self.events.remove(name) else { return };
        let counts = [ColumnKey::Count(number), ColumnKey::Last(number)].map(|key| self.columns.get(&key).copied());
        let [Some(count), Some(last)] = counts else { return };
        let next = self.columns.len();
        let uncounted = *self.columns.entry(ColumnKey::UncountedEvents).or_insert(next);
        self.partitions.iter_mut().for_each(|partition| partition.stop_counting(count, last, uncounted));
    }

    /// People with uncounted events while a name is unsettled; otherwise empty.
    #[must_use]
    pub fn uncounted(&self) -> Vec<u64> {
        let Some(column) = self.columns.get(&ColumnKey::UncountedEvents).filter(|_| !self.unsettled.is_empty()) else {
            return Vec::new();
        };
        self.partitions.iter().flat_map(|partition| partition.at_most(*column, i64::MAX)).collect()
    }

    /// Marks all new names as settled, after the rows of [`Self::uncounted`] were written again.
    pub fn settle(&mut self) {
        self.unsettled.clear();
    }

    /// Name of an event that the filter counts and the index does not, or not for all rows yet; `None` if all are
    /// counted.
    #[must_use]
    pub fn uncounted_of<'f>(&self, filter: &'f Filter) -> Option<&'f str> {
        filter.events().find(|name| !self.events.contains_key(*name) || self.unsettled.contains(*name))
    }

    /// Approximate memory use in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let partitions: usize = self.partitions.iter().map(IndexPartition::bytes).sum();
        partitions + self.places.0.len() * PAGE * size_of::<u32>()
    }
}
