//! Columns: all people of a tenant, a row each, for questions about everybody (S4.1–S4.5). A visitor alone is a person of
//! one. Rows lie in partitions by the bucket of sampling, so that a sample is a few partitions; a partition's columns are
//! tested whole, one after the other, without branches (MonetDB/X100, Boncz et al. 2005); segments are sets of rows.
//!
//! Columns know less than the store: of a history only how often in all, and when last, and that of the events under
//! names that are counted ([`AudienceIndex::count_events`]). Where that does not decide, a row is *unsure* and the store is asked; the answers are then those of [`crate::targeting::filter::Filter::matches`], whose tests run here too.
//!
//! A row whose segments changed is written anew at the partition's end, and the old one is dead until the partition is
//! packed: no segment is ever searched for a row.

mod evaluate;
mod form;
mod numbers;
mod partition;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::base::bucket::BUCKETS;
use crate::base::ids::{Millis, VisitorId};
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

/// Rows of a partition on average, when it is laid out: it may grow to more than double.
const ROWS: u64 = 25_000;
/// Dead rows, beside half of the living ones, before a partition is packed.
const DEAD: usize = 1_024;
/// In the place of a row's partition and slot: there is none.
const NOWHERE: u32 = u32::MAX;

/// What is known of one person.
#[derive(Debug, Clone, Copy)]
pub struct IndexRow<'a> {
    /// Its number in the store.
    pub person: u64,
    /// Its oldest visitor.
    pub master: VisitorId,
    /// Its bucket of [`crate::base::bucket::Purpose::Sampling`].
    pub bucket: u16,
    /// How many browsers it has.
    pub devices: u32,
    /// When its first and last fact happened.
    pub seen: Option<(Millis, Millis)>,
    /// The sums over all its visitors.
    pub totals: ProfileTotals,
    /// Its attributes, by token, each once.
    pub attributes: &'a [(NameToken, AttributeValue)],
    /// The segments that it is in now, in order, each once.
    pub segments: &'a [SegmentId],
    /// The first hour in which one of them is over.
    pub expires: Option<HourStamp>,
    /// What it did, by name: how often in all, and when last.
    pub events: &'a [(&'a str, u64, Minute)],
    /// Whether it did more than `events` names.
    pub more_events: bool,
    /// When it last did something with an ad, by verb.
    pub actions: &'a [(ActionType, Minute)],
    /// The parts of its data that the store may lack: what a filter asks of them is unsure.
    pub missing: MissingParts,
}

/// A column's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ColumnKey {
    Devices,
    FirstSeen,
    LastSeen,
    Pages,
    Sessions,
    Purchases,
    Revenue,
    /// In how many segments it is.
    Segments,
    /// The first hour in which it is in one less.
    Expires,
    MoreEvents,
    /// Whether it did something under a name that is not counted.
    UncountedEvents,
    Attribute(NameToken),
    /// How often an event happened, by the name's place.
    Count(u16),
    /// When it last did, in minutes.
    Last(u16),
    /// When an action was last done, in minutes.
    Acted(ActionType),
    /// Whether the store may lack some of its attributes.
    LacksAttributes,
    /// Whether the store may lack some of its segments.
    LacksSegments,
    /// Whether the row is not of all visitors of the person.
    LacksMembers,
}

impl ColumnKey {
    /// The columns of the parts that a row may lack.
    const LACKING: [(Self, MissingParts); 3] = [
        (Self::LacksAttributes, MissingParts::ATTRIBUTES),
        (Self::LacksSegments, MissingParts::SEGMENTS),
        (Self::LacksMembers, MissingParts::MEMBERS),
    ];
}

/// A number of people that can be summed up and averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeopleMeasure {
    /// Micros spent.
    Revenue,
    /// Purchases made.
    Purchases,
    /// Pages viewed.
    Pages,
    /// Sessions.
    Sessions,
    /// Browsers.
    Devices,
    /// An attribute that is a bool or an integer, over who has it.
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

    /// What counts for who has no number: sums are 0, an attribute is not there.
    #[must_use]
    pub fn absent(self) -> Option<i64> {
        if matches!(self, Self::Attribute(_)) { None } else { Some(0) }
    }
}

/// The different values of an attribute of texts, each by its place. Those that came when it was full are one.
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

/// A tenant's people in columns.
#[derive(Debug, Clone)]
pub struct AudienceIndex {
    partitions: Vec<IndexPartition>,
    columns: BTreeMap<ColumnKey, usize>,
    texts: BTreeMap<NameToken, TextTable>,
    /// Names of events that are counted, with the number of each. `page` and `purchase` always are.
    events: BTreeMap<String, u16>,
    /// Numbers given to names so far: none is given twice, as a row may still have a count under it.
    event_numbers: u16,
    /// Counted names that came after some rows were written: rows with uncounted events may lack their counts.
    unsettled: BTreeSet<String>,
    places: RowPlaces,
}

/// Where each person's row lies, by pages of numbers that follow each other, as the store gives them.
#[derive(Debug, Clone, Default)]
struct RowPlaces(BTreeMap<u64, Box<[u32; PAGE]>>);

/// Places of one page.
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

/// Whether an event is counted whatever others are.
fn is_always_counted(name: &str) -> bool {
    name == fact::PAGE || name == fact::PURCHASE
}

/// Gives a name the next number, if one is left.
fn number_event(events: &mut BTreeMap<String, u16>, numbers: &mut u16, name: &str) -> bool {
    let Some(next) = numbers.checked_add(1) else { return false };
    events.insert(name.to_owned(), *numbers);
    *numbers = next;
    true
}

/// A partition has no room: all of them are to be laid out anew, for more people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a partition is full")]
pub struct PartitionFull;

impl AudienceIndex {
    /// Nobody yet, laid out for so many: some more have room as well.
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

    /// How many people there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.live() as u64).sum()
    }

    /// Whether there is nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In how many partitions they lie: threads may share them.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The partitions in which people of some buckets lie.
    #[must_use]
    pub fn partitions_of(&self, buckets: &Range<u16>) -> Range<usize> {
        let width = self.width();
        usize::from(buckets.start) / width..usize::from(buckets.end).div_ceil(width).min(self.partitions.len())
    }

    fn width(&self) -> usize {
        usize::from(BUCKETS) / self.partitions.len().max(1)
    }

    /// Writes a person's row, over the one that is there.
    ///
    /// # Errors
    /// [`PartitionFull`]; then the person has no row.
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

    /// Takes a person's row out, if it has one.
    pub fn remove(&mut self, person: u64) {
        let Some((at, slot)) = self.places.get(person) else { return };
        self.places.put(person, None);
        let Some(partition) = self.partitions.get_mut(at) else { return };
        partition.kill(slot);
        if partition.rows() - partition.live() > partition.live() / 2 + DEAD {
            self.pack(at);
        }
    }

    /// Leaves dead rows out of a partition.
    fn pack(&mut self, at: usize) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        partition.pack();
        for (slot, person) in partition.people().enumerate() {
            self.places.put(person, Some((at, slot)));
        }
    }

    /// What a row says in each column that it says something in, by the columns' places.
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
        if revenue != 0 {
            say(columns, ColumnKey::Revenue, revenue);
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
        for (verb, last) in row.actions {
            say(columns, ColumnKey::Acted(*verb), last.0.into());
        }
        all.sort_unstable();
        all
    }

    /// People of some partitions who are in a segment that is over at an hour: their rows are to be written anew.
    #[must_use]
    pub fn expired(&self, hour: HourStamp) -> Vec<u64> {
        let Some(column) = self.columns.get(&ColumnKey::Expires) else { return Vec::new() };
        self.partitions.iter().flat_map(|partition| partition.at_most(*column, hour.0.into())).collect()
    }

    /// Counts these names of events from now on, and no others but `page` and `purchase`; whether that changes anything.
    /// Until [`Self::settle`], a new name is unsure for people with uncounted events ([`Self::uncounted`]): write their
    /// rows again.
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

    /// A name's counts leave; its people have uncounted events from now on.
    fn stop_counting(&mut self, name: &str) {
        self.unsettled.remove(name);
        let Some(number) = self.events.remove(name) else { return };
        let counts = [ColumnKey::Count(number), ColumnKey::Last(number)].map(|key| self.columns.get(&key).copied());
        let [Some(count), Some(last)] = counts else { return };
        let next = self.columns.len();
        let uncounted = *self.columns.entry(ColumnKey::UncountedEvents).or_insert(next);
        self.partitions.iter_mut().for_each(|partition| partition.stop_counting(count, last, uncounted));
    }

    /// People with events under names that are not counted, while a name is unsettled; nobody else.
    #[must_use]
    pub fn uncounted(&self) -> Vec<u64> {
        let Some(column) = self.columns.get(&ColumnKey::UncountedEvents).filter(|_| !self.unsettled.is_empty()) else {
            return Vec::new();
        };
        self.partitions.iter().flat_map(|partition| partition.at_most(*column, i64::MAX)).collect()
    }

    /// Ends the doubt about new names, once the rows of [`Self::uncounted`] were written again.
    pub fn settle(&mut self) {
        self.unsettled.clear();
    }

    /// An event that a filter counts and these people do not, or not yet; `None` where all are counted.
    #[must_use]
    pub fn uncounted_of<'f>(&self, filter: &'f Filter) -> Option<&'f str> {
        filter.events().find(|name| !self.events.contains_key(*name) || self.unsettled.contains(*name))
    }

    /// Bytes that they take, nearly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let partitions: usize = self.partitions.iter().map(IndexPartition::bytes).sum();
        partitions + self.places.0.len() * PAGE * size_of::<u32>()
    }
}
