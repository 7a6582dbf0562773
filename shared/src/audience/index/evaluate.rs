//! Filter queries over the audience index: planned once for all partitions, then run on one partition after the other.
//! A row matches, does not match, or is unsure; Kleene's three-valued logic combines conditions.

use std::ops::{Range, RangeInclusive};

use super::numbers::NumberColumn;
use super::partition::IndexPartition;
use super::{AudienceIndex, ColumnKey, PeopleMeasure, is_always_counted};
use crate::audience::estimate::Moments;
use crate::base::ids::VisitorId;
use crate::base::limits;
use crate::base::time::Minute;
use crate::facts::segments::SegmentId;
use crate::targeting::filter::{
    CountQuestion, CountSource, FieldCondition, FieldReading, FieldTest, Filter, FilterField, FilterNode,
    GroupOperator, read_value,
};

/// Result of a condition for a row: no, yes, or unsure, in which case the store must be asked.
const NO: u8 = 0;
const YES: u8 = 1;
const UNSURE: u8 = 2;

/// A planned filter, ready to run on partitions.
#[derive(Debug)]
pub struct IndexQuery<'p> {
    people: &'p AudienceIndex,
    plan: QueryPlan<'p>,
}

/// Result over the people of some partitions and buckets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatchedRows {
    /// Number of people examined.
    pub people: u64,
    /// Number of people who match for sure.
    pub sure: u64,
    /// People who may match; the store decides.
    pub unsure: Vec<u64>,
    /// Moments of the measure over the people who match for sure.
    pub moments: Moments,
}

#[derive(Debug)]
enum QueryPlan<'p> {
    /// The same result for every row.
    All(u8),
    /// Whether the number lies in a range; `absent` is the result without a number, and `negated` inverts both.
    Within {
        column: usize,
        range: RangeInclusive<i64>,
        absent: bool,
        negated: bool,
    },
    /// Whether the number is one of a list; `absent` and `negated` as in `Within`.
    Listed {
        column: usize,
        all: &'p [i64],
        absent: bool,
        negated: bool,
    },
    /// The result for each code of a text; `absent` is the result without a text.
    Coded {
        column: usize,
        says: Vec<u8>,
        absent: u8,
    },
    /// Result by the time of the last event: `never` before `from`, `happened` from there up to `to`, unsure after.
    Last {
        column: usize,
        from: i64,
        to: i64,
        never: u8,
        happened: u8,
    },
    /// Whether the row is in one of the segments.
    In {
        segments: Vec<SegmentId>,
        negated: bool,
    },
    /// Unsure if this column has a number, otherwise the result of `then`.
    Unless {
        column: usize,
        then: Box<Self>,
    },
    Group(GroupOperator, Vec<Self>),
}

/// Result for each row of a partition. `maybe` is 1 wherever `sure` is 1 and wherever a row is unsure.
#[derive(Debug, Default)]
struct RowMasks {
    sure: Vec<u8>,
    /// Empty if no row is unsure.
    maybe: Vec<u8>,
}

impl AudienceIndex {
    /// Plans a filter for a time.
    #[must_use]
    pub fn ask<'p>(&'p self, filter: &'p Filter, now: Minute) -> IndexQuery<'p> {
        IndexQuery { people: self, plan: self.plan(&filter.root, &filter.counts, now) }
    }

    fn plan<'p>(&'p self, node: &'p FilterNode, counts: &'p [CountQuestion], now: Minute) -> QueryPlan<'p> {
        match node {
            FilterNode::Leaf(condition) => self.leaf(condition, counts, now),
            FilterNode::Group(join, nodes) => {
                QueryPlan::Group(*join, nodes.iter().map(|node| self.plan(node, counts, now)).collect())
            }
        }
    }

    /// Plan of a condition; rows that may lack the data of the condition are unsure.
    fn leaf<'p>(&'p self, condition: &'p FieldCondition, counts: &'p [CountQuestion], now: Minute) -> QueryPlan<'p> {
        let lacking: &[ColumnKey] = match condition.field {
            FilterField::Attribute(..) => &[ColumnKey::LacksAttributes, ColumnKey::LacksMembers],
            FilterField::Segments => &[ColumnKey::LacksSegments, ColumnKey::LacksMembers],
            FilterField::Devices | FilterField::FirstSeen | FilterField::LastSeen | FilterField::Count(_) => {
                &[ColumnKey::LacksMembers]
            }
            _ => &[],
        };
        let columns = lacking.iter().filter_map(|key| self.columns.get(key).copied());
        let plan = self.settled_leaf(condition, counts, now);
        columns.fold(plan, |plan, column| QueryPlan::Unless { column, then: Box::new(plan) })
    }

    /// Plan of a condition for rows that lack no data.
    fn settled_leaf<'p>(
        &'p self,
        condition: &'p FieldCondition,
        counts: &'p [CountQuestion],
        now: Minute,
    ) -> QueryPlan<'p> {
        let FieldCondition { field, negated, test } = condition;
        match (*field, test) {
            (FilterField::Attribute(token, _), _) if field.is_text() => self.coded(token, test, *negated),
            (FilterField::Attribute(token, _), _) => self.number(ColumnKey::Attribute(token), test, false, *negated),
            (FilterField::Segments, FieldTest::Numbers(all)) => {
                let id = |id: &i64| u32::try_from(*id).ok().map(SegmentId);
                QueryPlan::In { segments: all.iter().filter_map(id).collect(), negated: *negated }
            }
            (FilterField::Segments, _) => self.number(ColumnKey::Segments, test, false, *negated),
            (FilterField::Devices, _) => self.number(ColumnKey::Devices, test, false, *negated),
            (FilterField::FirstSeen, _) => self.number(ColumnKey::FirstSeen, test, false, *negated),
            (FilterField::LastSeen, _) => self.number(ColumnKey::LastSeen, test, false, *negated),
            (FilterField::Count(at), _) => match counts.get(at as usize) {
                Some(question) => self.count(question, test, *negated, now),
                None => QueryPlan::All(NO),
            },
            // Conditions on a page, a location or a device match no person: an audience has none.
            _ => QueryPlan::All((*negated).into()),
        }
    }

    /// Plan of a condition on a number. With `absent`, a row without a number counts as 0.
    fn number<'p>(&'p self, key: ColumnKey, test: &'p FieldTest, absent: bool, negated: bool) -> QueryPlan<'p> {
        let absent = absent && test.holds(FieldReading::Number(0));
        let Some(column) = self.columns.get(&key).copied() else { return QueryPlan::All((absent != negated).into()) };
        let range = match test {
            FieldTest::Exists => i64::MIN..=i64::MAX,
            FieldTest::AtLeast(least) => *least..=i64::MAX,
            FieldTest::AtMost(most) => i64::MIN..=*most,
            FieldTest::Numbers(all) => match all.as_slice() {
                [one] => *one..=*one,
                all => return QueryPlan::Listed { column, all, absent, negated },
            },
            FieldTest::Texts(_) | FieldTest::Text(..) => return QueryPlan::All((absent != negated).into()),
        };
        QueryPlan::Within { column, range, absent, negated }
    }

    fn coded(&self, token: crate::facts::attributes::NameToken, test: &FieldTest, negated: bool) -> QueryPlan<'_> {
        let (Some(column), Some(texts)) = (self.columns.get(&ColumnKey::Attribute(token)), self.texts.get(&token))
        else {
            return QueryPlan::All(negated.into());
        };
        let says = |value| u8::from(test.holds(read_value(value)) != negated);
        let mut says: Vec<u8> = texts.values.iter().map(says).collect();
        let mut yes = says.iter().zip(0..).filter(|(says, _)| **says == YES).map(|(_, code)| code);
        // Most filters ask for a single text.
        if let (Some(one), None, false) =
            (yes.next(), yes.next(), negated || texts.values.len() >= limits::AUDIENCE_TEXTS)
        {
            return QueryPlan::Within { column: *column, range: one..=one, absent: false, negated };
        }
        says.resize(limits::AUDIENCE_TEXTS + 1, UNSURE);
        QueryPlan::Coded { column: *column, says, absent: negated.into() }
    }

    fn count<'p>(
        &'p self,
        question: &'p CountQuestion,
        test: &'p FieldTest,
        negated: bool,
        now: Minute,
    ) -> QueryPlan<'p> {
        let name = match (&question.what, question.within) {
            (CountSource::Pages, None) => return self.number(ColumnKey::Pages, test, true, negated),
            (CountSource::Purchases, None) => return self.number(ColumnKey::Purchases, test, true, negated),
            (CountSource::Action { action_type, of }, within) => {
                let from = within.map_or(0, |within| within.range(now).0.0);
                // Only the store knows the number, the ads, and whether old actions were trimmed since.
                let some = if of.is_none() && within.is_some() { mask_with_event(test, negated) } else { UNSURE };
                let to = within.map_or(0, |within| within.range(now).1.0);
                return self.last(ColumnKey::Acted(*action_type), from, to, test, negated, some);
            }
            (CountSource::Pages, Some(_)) => "page",
            (CountSource::Purchases, Some(_)) => crate::facts::fact::PURCHASE,
            (CountSource::Event(name), _) => name,
        };
        let plan = match (self.events.get(name), question.within) {
            (None, _) => QueryPlan::All(mask_without_event(test, negated)),
            (Some(place), None) => self.number(ColumnKey::Count(*place), test, true, negated),
            (Some(place), Some(within)) => {
                let (from, to) = within.range(now);
                self.last(ColumnKey::Last(*place), from.0, to.0, test, negated, mask_with_event(test, negated))
            }
        };
        let is_counted = self.events.contains_key(name) && !self.unsettled.contains(name);
        // A name that is always counted gets its column with the first such event, so that rows with uncounted events
        // never lack its counts.
        let in_doubt = (!is_counted && !is_always_counted(name)).then_some(ColumnKey::UncountedEvents);
        let columns = [Some(ColumnKey::MoreEvents), in_doubt].into_iter().flatten();
        let columns = columns.filter_map(|key| self.columns.get(&key).copied());
        columns.fold(plan, |plan, column| QueryPlan::Unless { column, then: Box::new(plan) })
    }

    fn last(&self, key: ColumnKey, from: u32, to: u32, test: &FieldTest, negated: bool, happened: u8) -> QueryPlan<'_> {
        let never = mask_without_event(test, negated);
        match self.columns.get(&key) {
            Some(column) => QueryPlan::Last { column: *column, from: from.into(), to: to.into(), never, happened },
            None => QueryPlan::All(never),
        }
    }
}

/// Result for a row without any such event.
fn mask_without_event(test: &FieldTest, negated: bool) -> u8 {
    u8::from(test.holds(FieldReading::Number(0)) != negated)
}

/// Result for a row with at least one such event, whose number is unknown.
fn mask_with_event(test: &FieldTest, negated: bool) -> u8 {
    let holds = match test {
        FieldTest::Exists => true,
        FieldTest::AtLeast(least) if *least <= 1 => true,
        FieldTest::AtMost(most) if *most < 1 => false,
        FieldTest::Numbers(all) if all.iter().all(|number| *number < 1) => false,
        _ => return UNSURE,
    };
    u8::from(holds != negated)
}

impl IndexQuery<'_> {
    /// Counts the people of some buckets in some partitions and those who match, with the moments of a measure over the
    /// matches.
    #[must_use]
    pub fn count(&self, partitions: Range<usize>, buckets: &Range<u16>, measure: Option<PeopleMeasure>) -> MatchedRows {
        let mut found = MatchedRows::default();
        let column = measure.and_then(|measure| self.people.columns.get(&measure.key()));
        self.each_partition(partitions, buckets, |partition, masks, people| {
            found.people += people;
            found.sure += sum(&masks.sure);
            found.unsure.extend(unsure_rows(masks).filter_map(|slot| Some(partition.person_at(slot)?.0)));
            let Some(measure) = measure else { return };
            let column = column.and_then(|column| partition.column(*column)).unwrap_or(&EMPTY);
            let sure = masks.sure.iter().enumerate().filter(|(_, sure)| **sure == YES);
            let numbers = sure.filter_map(|(slot, _)| column.get(slot).or(measure.absent()));
            numbers.for_each(|number| found.moments.add(number));
        });
        found
    }

    /// Calls `report` with each person who matches or may match, the person's oldest visitor, and whether the match is
    /// sure.
    pub fn each(&self, partitions: Range<usize>, buckets: &Range<u16>, mut report: impl FnMut(u64, VisitorId, bool)) {
        self.each_partition(partitions, buckets, |partition, masks, _| {
            for (slot, sure) in masks.sure.iter().enumerate() {
                let maybe = masks.maybe.get(slot).is_some_and(|maybe| *maybe == YES);
                if (*sure == YES || maybe)
                    && let Some((person, master)) = partition.person_at(slot)
                {
                    report(person, master, *sure == YES);
                }
            }
        });
    }

    fn each_partition(
        &self,
        partitions: Range<usize>,
        buckets: &Range<u16>,
        mut report: impl FnMut(&IndexPartition, &RowMasks, u64),
    ) {
        let (mut pool, mut there) = (Vec::new(), Vec::new());
        for partition in self.people.partitions.get(partitions).unwrap_or_default() {
            let mut masks = run_plan(&self.plan, partition, &mut pool);
            let mut people = partition.rows() as u64;
            if partition.has_dead() || !partition.lies_in(buckets) {
                there.clear();
                let living = |bucket: &u16| u8::from(*bucket >= buckets.start) & u8::from(*bucket < buckets.end);
                there.extend(partition.buckets().iter().map(living));
                and(&mut masks.sure, &there);
                and(&mut masks.maybe, &there);
                people = sum(&there);
            }
            report(partition, &masks, people);
            pool.push(masks);
        }
    }
}

fn run_plan(plan: &QueryPlan<'_>, partition: &IndexPartition, pool: &mut Vec<RowMasks>) -> RowMasks {
    let mut masks = pool.pop().unwrap_or_default();
    masks.maybe.clear();
    masks.sure.resize(partition.rows(), NO);
    let column = |place: &usize| partition.column(*place).unwrap_or(&EMPTY);
    match plan {
        QueryPlan::All(says) => masks.sure.fill(*says),
        QueryPlan::Within { column: place, range, absent, negated } => {
            column(place).within(range, *absent, &mut masks.sure);
            turn(&mut masks.sure, *negated);
        }
        QueryPlan::Listed { column: place, all, absent, negated } => {
            let holds = |number: Option<i64>| number.map_or(*absent, |number| all.binary_search(&number).is_ok());
            column(place).each(|number| u8::from(holds(number) != *negated), &mut masks.sure);
        }
        QueryPlan::Coded { column: place, says, absent } => {
            let of = |code: i64| usize::try_from(code).ok().and_then(|code| says.get(code)).copied();
            column(place).each(|code| code.map_or(*absent, |code| of(code).unwrap_or(UNSURE)), &mut masks.sure);
        }
        QueryPlan::Last { column: place, from, to, never, happened } => {
            // Two passes without branches: 1 from time `from` on, and 1 from time `to` on.
            column(place).within(&(*from..=i64::MAX), false, &mut masks.sure);
            masks.maybe.resize(partition.rows(), NO);
            column(place).within(&(*to..=i64::MAX), false, &mut masks.maybe);
            let (never, change) = (*never, *never ^ *happened);
            for (sure, later) in masks.sure.iter_mut().zip(&masks.maybe) {
                // All bits set, or no bit if the event is later than the window.
                let not_later = later.wrapping_sub(1);
                *sure = ((never ^ (*sure * change)) & not_later) | (*later * UNSURE);
            }
            masks.maybe.clear();
        }
        QueryPlan::In { segments, negated } => {
            masks.sure.fill(NO);
            segments.iter().filter_map(|id| partition.segment(*id)).for_each(|rows| rows.mark(&mut masks.sure));
            turn(&mut masks.sure, *negated);
        }
        QueryPlan::Unless { column: place, then } => {
            pool.push(masks);
            masks = run_plan(then, partition, pool);
            masks.open();
            let mut more = vec![NO; partition.rows()];
            column(place).within(&(i64::MIN..=i64::MAX), false, &mut more);
            for ((sure, maybe), more) in masks.sure.iter_mut().zip(&mut masks.maybe).zip(&more) {
                *sure &= 1 - more;
                *maybe |= more;
            }
            return masks;
        }
        QueryPlan::Group(join, plans) => {
            masks.sure.fill((*join == GroupOperator::All).into());
            for plan in plans {
                let one = run_plan(plan, partition, pool);
                masks.join(*join, &one);
                pool.push(one);
            }
            return masks;
        }
    }
    if matches!(plan, QueryPlan::Coded { .. } | QueryPlan::Last { .. }) {
        masks.part();
    }
    masks
}

static EMPTY: NumberColumn = NumberColumn::NONE;

impl RowMasks {
    /// Moves unsure rows into `maybe`.
    fn part(&mut self) {
        if self.sure.contains(&UNSURE) {
            self.maybe.clear();
            self.maybe.extend(self.sure.iter().map(|says| u8::from(*says != NO)));
            self.sure.iter_mut().for_each(|says| *says = u8::from(*says == YES));
        }
    }

    /// Fills `maybe` if it is empty.
    fn open(&mut self) {
        if self.maybe.is_empty() {
            self.maybe.extend_from_slice(&self.sure);
        }
    }

    fn join(&mut self, join: GroupOperator, other: &Self) {
        if !other.maybe.is_empty() {
            self.open();
        }
        let with = if join == GroupOperator::All { and } else { or };
        if !self.maybe.is_empty() {
            with(&mut self.maybe, if other.maybe.is_empty() { &other.sure } else { &other.maybe });
        }
        with(&mut self.sure, &other.sure);
    }
}

fn unsure_rows(masks: &RowMasks) -> impl Iterator<Item = usize> + '_ {
    let rows = masks.sure.iter().zip(&masks.maybe).enumerate();
    rows.filter(|(_, (sure, maybe))| **sure == NO && **maybe == YES).map(|(slot, _)| slot)
}

fn and(all: &mut [u8], with: &[u8]) {
    all.iter_mut().zip(with).for_each(|(one, with)| *one &= with);
}

fn or(all: &mut [u8], with: &[u8]) {
    all.iter_mut().zip(with).for_each(|(one, with)| *one |= with);
}

fn turn(all: &mut [u8], negated: bool) {
    if negated {
        all.iter_mut().for_each(|one| *one ^= YES);
    }
}

/// Number of ones.
fn sum(all: &[u8]) -> u64 {
    // Adds up to 255 ones per byte lane, which processors do for many lanes at once.
    all.chunks(255 * 32).map(sum_of_some).sum()
}

fn sum_of_some(some: &[u8]) -> u64 {
    let mut lanes = [0_u8; 32];
    let (chunks, rest) = some.as_chunks::<32>();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, one)| *lane = lane.wrapping_add(*one));
    }
    lanes.iter().chain(rest).map(|one| u64::from(*one)).sum()
}
