//! Filters: whom an ad's targeting or an audience means, in one language (API, "Filters"; S4.5). A JSON document in the
//! Mongo query style is parsed once ([`parse`]) against the tenant's words, and then asked of subjects
//! ([`Filter::matches`]); many filters are asked at once through an [`FilterIndex`].
//!
//! **Absent values.** A person, a page or a place may lack what a condition looks at. As in Mongo, comparisons,
//! `$eq` and `$in` do not hold then, and `$ne`, `$nin`, `$exists: false` and a `$not` around one that does not hold do.
//! A list without entries is absent. Without a person – no permission, nobody recognised – everything of a person is
//! absent.
//!
//! **Lists** – an attribute of strings, a page's keywords, a person's segments – match when any entry does, and `$ne` and
//! `$nin` when none does.
//!
//! **Unknown values.** Unknown is not absent (docs/adr/0004-unknown-is-not-absent.md). A condition on data that may be
//! missing ([`PersonGaps`], [`PageGaps`]), and on a count that nobody keeps, is neither true nor false, and neither is its
//! opposite. A condition that is not negated is true where it holds for what was read. A filter matches where it is true.
//! `$not` is carried down to the conditions when a filter is parsed, so that "is it true" needs two values above them;
//! [`FilterIndex::unknown_fields`] tells false from unknown. What a snapshot cannot count is refused when a targeting is
//! parsed ([`CountAnswerer::Snapshot`]).
//!
//! It never looks at a clock, a profile or a catalogue: what a subject is, and its counts, are given.

mod count;
mod field;
mod index;
mod parse;
mod subject;

use std::collections::BTreeSet;

use crate::facts::segments::SegmentId;

pub use count::{CountQuestion, CountSource, EventEvidence, PersonHistory, counts_problem};
pub use field::FilterField;
pub use index::{FilterIndex, FilterMatches};
pub use parse::{CountAnswerer, Entities, FilterWords, parse};
pub use subject::{FilterSubject, PageGaps, PersonGaps, SubjectPerson};

pub(crate) use subject::{FieldReading, number_of, read_value};

/// A parsed filter. Two that say the same in another order of their documents are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    pub(crate) counts: Vec<CountQuestion>,
    pub(crate) root: FilterNode,
}

impl Filter {
    /// Whether a subject is meant.
    #[must_use]
    pub fn matches(&self, subject: &FilterSubject<'_>) -> bool {
        self.root.holds(subject)
    }

    /// The names of the events that it counts, without `page` and `purchase`.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        self.counts.iter().filter_map(|question| match &question.what {
            CountSource::Event(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// What it asks of a person's history, in order, each once. [`FilterSubject::counts`] answers in this order.
    #[must_use]
    pub fn counts(&self) -> &[CountQuestion] {
        &self.counts
    }

    /// Tells the field of each condition, whether the condition is negated, and the segments that it names.
    pub(crate) fn each_field(&self, mut tell: impl FnMut(FilterField, bool, Vec<u32>)) {
        self.root.each_condition(&mut |condition| {
            let named = match (&condition.test, condition.field) {
                (FieldTest::Numbers(all), FilterField::Segments) => {
                    all.iter().filter_map(|id| u32::try_from(*id).ok()).collect()
                }
                _ => Vec::new(),
            };
            tell(condition.field, condition.negated, named);
        });
    }

    /// Whether it asks who is in a segment.
    #[must_use]
    pub fn asks_segment(&self, id: SegmentId) -> bool {
        self.root.asks_segment(id)
    }
}

/// Conditions put together: at most twice [`crate::base::limits::FILTER_DEPTH`] groups inside each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FilterNode {
    /// One condition.
    Leaf(FieldCondition),
    /// In order, each once, none a group of the same kind: two or more, or the filter that is empty and means all.
    Group(GroupOperator, Vec<FilterNode>),
}

/// How a group's entries go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupOperator {
    All,
    Any,
}

impl GroupOperator {
    fn other(self) -> Self {
        match self {
            Self::All => Self::Any,
            Self::Any => Self::All,
        }
    }
}

impl FilterNode {
    fn each_condition(&self, tell: &mut impl FnMut(&FieldCondition)) {
        match self {
            Self::Leaf(condition) => tell(condition),
            Self::Group(_, nodes) => nodes.iter().for_each(|node| node.each_condition(tell)),
        }
    }

    fn asks_segment(&self, id: SegmentId) -> bool {
        match self {
            Self::Group(_, nodes) => nodes.iter().any(|node| node.asks_segment(id)),
            Self::Leaf(FieldCondition { field: FilterField::Segments, test: FieldTest::Numbers(all), .. }) => {
                all.binary_search(&i64::from(id.0)).is_ok()
            }
            // Whether there are any, and how many.
            Self::Leaf(condition) => condition.field == FilterField::Segments,
        }
    }

    /// Puts nodes together in the one form that says it.
    fn group(join: GroupOperator, nodes: impl IntoIterator<Item = Self>) -> Self {
        let mut flat = BTreeSet::new();
        for node in nodes {
            match node {
                Self::Group(inner, nodes) if inner == join => flat.extend(nodes),
                node => drop(flat.insert(node)),
            }
        }
        if flat.len() == 1
            && let Some(one) = flat.pop_first()
        {
            return one;
        }
        Self::Group(join, flat.into_iter().collect())
    }

    /// The opposite, with the `not` at the conditions.
    fn negated(self) -> Self {
        match self {
            Self::Leaf(FieldCondition { field, negated, test }) => {
                Self::Leaf(FieldCondition { field, negated: !negated, test })
            }
            Self::Group(join, nodes) => Self::group(join.other(), nodes.into_iter().map(Self::negated)),
        }
    }

    fn holds(&self, subject: &FilterSubject<'_>) -> bool {
        match self {
            Self::Leaf(condition) => condition.holds(subject),
            Self::Group(GroupOperator::All, nodes) => nodes.iter().all(|node| node.holds(subject)),
            Self::Group(GroupOperator::Any, nodes) => nodes.iter().any(|node| node.holds(subject)),
        }
    }

    fn truth(&self, subject: &FilterSubject<'_>) -> TruthValue {
        match self {
            Self::Leaf(condition) => condition.truth(subject),
            Self::Group(GroupOperator::All, nodes) => {
                nodes.iter().map(|node| node.truth(subject)).min().unwrap_or(TruthValue::True)
            }
            Self::Group(GroupOperator::Any, nodes) => {
                nodes.iter().map(|node| node.truth(subject)).max().unwrap_or(TruthValue::False)
            }
        }
    }

    /// Adds the fields whose conditions leave it unknown.
    fn add_unknown_fields(&self, subject: &FilterSubject<'_>, fields: &mut BTreeSet<FilterField>) {
        if self.truth(subject) != TruthValue::Unknown {
            return;
        }
        match self {
            Self::Leaf(condition) => _ = fields.insert(condition.field),
            Self::Group(_, nodes) => nodes.iter().for_each(|node| node.add_unknown_fields(subject, fields)),
        }
    }

    /// The same with other places of the counts.
    fn with_counts(self, place: &impl Fn(u32) -> u32) -> Self {
        match self {
            Self::Leaf(condition) => Self::Leaf(condition.with_counts(place)),
            Self::Group(join, nodes) => Self::group(join, nodes.into_iter().map(|node| node.with_counts(place))),
        }
    }
}

/// A test of a field, or that it does not hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldCondition {
    pub(crate) field: FilterField,
    pub(crate) negated: bool,
    pub(crate) test: FieldTest,
}

/// The three values of a condition or of a filter, in the order in which `$and` takes the least and `$or` the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TruthValue {
    False,
    Unknown,
    True,
}

impl FieldCondition {
    fn holds(&self, subject: &FilterSubject<'_>) -> bool {
        self.truth(subject) == TruthValue::True
    }

    fn truth(&self, subject: &FilterSubject<'_>) -> TruthValue {
        let read = subject.read(self.field);
        match (self.negated, self.test.holds(read)) {
            (false, true) => TruthValue::True,
            (_, holds) if !self.is_settled(read, holds, subject) => TruthValue::Unknown,
            (negated, holds) if negated == holds => TruthValue::False,
            _ => TruthValue::True,
        }
    }

    /// Whether no missing data can change what the test says.
    fn is_settled(&self, read: FieldReading<'_>, holds: bool, subject: &FilterSubject<'_>) -> bool {
        match read {
            FieldReading::AtLeast(least) => holds || self.test.last() < least,
            FieldReading::AtMost(_) => holds,
            _ if subject.has_page_gap(self.field) => holds,
            read => match subject.gaps() {
                Some(gaps) if self.field == FilterField::Segments => self.test.is_settled_by(gaps.segments),
                Some(gaps) if self.field.is_of_person() || self.field == FilterField::BestTime => {
                    !matches!(read, FieldReading::Unknown) && gaps.is_certain(self.field)
                }
                _ => !matches!(read, FieldReading::Unknown),
            },
        }
    }

    /// The values of its list; 0 where it has none.
    fn values(&self) -> usize {
        match &self.test {
            FieldTest::Numbers(all) => all.len(),
            FieldTest::Texts(all) => all.len(),
            _ => 0,
        }
    }

    fn with_counts(self, place: &impl Fn(u32) -> u32) -> Self {
        match self.field {
            FilterField::Count(at) => Self { field: FilterField::Count(place(at)), ..self },
            _ => self,
        }
    }
}

/// What is asked of a field. Numbers are what [`FilterField`] makes of its values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FieldTest {
    /// It is there.
    Exists,
    /// It is one of these, which are in order, each once.
    Numbers(Vec<i64>),
    /// It is one of these, which are in order, each once.
    Texts(Vec<String>),
    /// It is this or more.
    AtLeast(i64),
    /// It is this or less.
    AtMost(i64),
    /// It comes, byte by byte, so to this text.
    Text(TextOrder, String),
}

/// How a text stands to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextOrder {
    After,
    AtOrAfter,
    Before,
    AtOrBefore,
}

impl TextOrder {
    fn holds(self, text: &str, to: &str) -> bool {
        match self {
            Self::After => text > to,
            Self::AtOrAfter => text >= to,
            Self::Before => text < to,
            Self::AtOrBefore => text <= to,
        }
    }
}

impl FieldTest {
    /// The last number that it may hold for.
    fn last(&self) -> i64 {
        match self {
            Self::AtMost(most) => *most,
            Self::Numbers(all) => all.last().copied().unwrap_or(i64::MIN),
            _ => i64::MAX,
        }
    }

    /// Whether a test of segments needs no other than these, which the person is certainly not in; `None` for all.
    fn is_settled_by(&self, absent: Option<&[SegmentId]>) -> bool {
        match (self, absent) {
            (_, None) => true,
            (Self::Numbers(all), Some(absent)) => all.iter().all(|id| is_held(absent, *id)),
            (_, Some(_)) => false,
        }
    }

    /// Whether it holds for what was read.
    pub(crate) fn holds(&self, read: FieldReading<'_>) -> bool {
        match (self, read) {
            (_, FieldReading::Absent | FieldReading::Unknown) => false,
            (Self::Exists, _) => true,
            (Self::Numbers(all), FieldReading::Number(number)) => all.binary_search(&number).is_ok(),
            (Self::Numbers(all), FieldReading::Segments(held)) => all.iter().any(|id| is_held(held, *id)),
            (Self::AtLeast(least), FieldReading::Number(number) | FieldReading::AtLeast(number)) => number >= *least,
            (Self::AtMost(most), FieldReading::Number(number) | FieldReading::AtMost(number)) => number <= *most,
            (Self::Texts(all), read) => read.any_text(|text| contains(all, text)),
            (Self::Text(order, to), read) => read.any_text(|text| order.holds(text, to)),
            _ => false,
        }
    }
}

fn is_held(held: &[SegmentId], id: i64) -> bool {
    u32::try_from(id).is_ok_and(|id| held.binary_search(&SegmentId(id)).is_ok())
}

fn contains(all: &[String], text: &str) -> bool {
    all.binary_search_by(|one| one.as_str().cmp(text)).is_ok()
}
