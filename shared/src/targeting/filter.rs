//! Filters: one language for ad targeting and audiences. A JSON document in the style of Mongo queries is parsed once
//! ([`parse()`]) against the tenant's words and is then evaluated for subjects ([`Filter::matches`]). A [`FilterIndex`]
//! evaluates many filters at once.
//!
//! **Absent values.** A person, a page or a location may lack the value of a condition. As in Mongo, comparisons, `$eq`
//! and `$in` are then false, while `$ne`, `$nin`, `$exists: false` and a `$not` around a false condition are true. An
//! empty list is absent. In an anonymous request all properties of the person are absent.
//!
//! **Lists** (an attribute of strings, a page's keywords, a person's segments) match if any entry does; `$ne` and
//! `$nin` match if no entry does.
//!
//! **Unknown values.** Unknown is not absent (docs/adr/0004-unknown-is-not-absent.md). A condition on data that may be
//! missing ([`PersonGaps`], [`PageGaps`]), or on a count that is not stored, is neither true nor false, and neither is
//! its negation. A condition without negation is true if the data at hand already satisfies it. A filter matches if it
//! is true. The parser moves each `$not` down to the conditions, so that matching needs only two truth values above the
//! conditions; [`FilterIndex::unknown_fields`] distinguishes false from unknown. A targeting with a count that
//! snapshots cannot answer is refused when it is parsed ([`CountAnswerer::Snapshot`]).
//!
//! This module reads no clock, profile or catalogue: subjects and their counts are arguments.

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

/// A parsed filter. Filters that differ only in the order of their documents are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    pub(crate) counts: Vec<CountQuestion>,
    pub(crate) root: FilterNode,
}

impl Filter {
    /// Whether a subject matches.
    #[must_use]
    pub fn matches(&self, subject: &FilterSubject<'_>) -> bool {
        self.root.holds(subject)
    }

    /// Names of the events that the filter counts, without `page` and `purchase`.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        self.counts.iter().filter_map(|question| match &question.what {
            CountSource::Event(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Counts that the filter needs from a person's history, in order, each once. [`FilterSubject::counts`] holds the
    /// answers in this order.
    #[must_use]
    pub fn counts(&self) -> &[CountQuestion] {
        &self.counts
    }

    /// Calls `report` for each condition with its field, whether it is negated, and the segments that it names.
    pub(crate) fn each_field(&self, mut report: impl FnMut(FilterField, bool, Vec<u32>)) {
        self.root.each_condition(&mut |condition| {
            let named = match (&condition.test, condition.field) {
                (FieldTest::Numbers(all), FilterField::Segments) => {
                    all.iter().filter_map(|id| u32::try_from(*id).ok()).collect()
                }
                _ => Vec::new(),
            };
            report(condition.field, condition.negated, named);
        });
    }

    /// Whether the filter depends on membership in this segment.
    #[must_use]
    pub fn asks_segment(&self, id: SegmentId) -> bool {
        self.root.asks_segment(id)
    }
}

/// A tree of conditions; at most twice [`crate::base::limits::FILTER_DEPTH`] nested groups.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FilterNode {
    /// One condition.
    Leaf(FieldCondition),
    /// Two or more distinct nodes, in order, none of them a group of the same operator; or the empty filter, which
    /// matches everything.
    Group(GroupOperator, Vec<FilterNode>),
}

/// Operator that combines the entries of a group.
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
    fn each_condition(&self, report: &mut impl FnMut(&FieldCondition)) {
        match self {
            Self::Leaf(condition) => report(condition),
            Self::Group(_, nodes) => nodes.iter().for_each(|node| node.each_condition(report)),
        }
    }

    fn asks_segment(&self, id: SegmentId) -> bool {
        match self {
            Self::Group(_, nodes) => nodes.iter().any(|node| node.asks_segment(id)),
            Self::Leaf(FieldCondition { field: FilterField::Segments, test: FieldTest::Numbers(all), .. }) => {
                all.binary_search(&i64::from(id.0)).is_ok()
            }
            // The condition tests whether there are segments, or how many.
            Self::Leaf(condition) => condition.field == FilterField::Segments,
        }
    }

    /// Combines nodes into the canonical form.
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

    /// The negation, with `not` moved down to the conditions.
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

    /// Adds the fields of the conditions that leave the result unknown.
    fn add_unknown_fields(&self, subject: &FilterSubject<'_>, fields: &mut BTreeSet<FilterField>) {
        if self.truth(subject) != TruthValue::Unknown {
            return;
        }
        match self {
            Self::Leaf(condition) => _ = fields.insert(condition.field),
            Self::Group(_, nodes) => nodes.iter().for_each(|node| node.add_unknown_fields(subject, fields)),
        }
    }

    /// The same node with new indexes of its counts.
    fn with_counts(self, index: &impl Fn(u32) -> u32) -> Self {
        match self {
            Self::Leaf(condition) => Self::Leaf(condition.with_counts(index)),
            Self::Group(join, nodes) => Self::group(join, nodes.into_iter().map(|node| node.with_counts(index))),
        }
    }
}

/// A test of a field, possibly negated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldCondition {
    pub(crate) field: FilterField,
    pub(crate) negated: bool,
    pub(crate) test: FieldTest,
}

/// Truth values in the order in which `$and` takes the least and `$or` the greatest.
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

    /// Whether no missing data can change the result of the test.
    fn is_settled(&self, read: FieldReading<'_>, holds: bool, subject: &FilterSubject<'_>) -> bool {
        match read {
            FieldReading::AtLeast(least) => holds || self.test.last() < least,
            FieldReading::AtMost(_) => holds,
            _ if subject.has_page_gap(self.field) => holds,
            read => match subject.gaps() {
                Some(gaps) if self.field == FilterField::Segments => self.test.is_settled_by(gaps.segments),
                Some(gaps) if self.field.is_of_person() || self.field == FilterField::BestSendTime => {
                    !matches!(read, FieldReading::Unknown) && gaps.is_certain(self.field)
                }
                _ => !matches!(read, FieldReading::Unknown),
            },
        }
    }

    /// Number of values in its list; 0 if it has no list.
    fn values(&self) -> usize {
        match &self.test {
            FieldTest::Numbers(all) => all.len(),
            FieldTest::Texts(all) => all.len(),
            _ => 0,
        }
    }

    fn with_counts(self, index: &impl Fn(u32) -> u32) -> Self {
        match self.field {
            FilterField::Count(at) => Self { field: FilterField::Count(index(at)), ..self },
            _ => self,
        }
    }
}

/// Test of a field. Numbers are in the form of [`FilterField`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FieldTest {
    /// The value is present.
    Exists,
    /// The value is one of these, which are distinct and in order.
    Numbers(Vec<i64>),
    /// The value is one of these, which are distinct and in order.
    Texts(Vec<String>),
    /// The value is at least this.
    AtLeast(i64),
    /// The value is at most this.
    AtMost(i64),
    /// The value has this position relative to a text, in byte order.
    Text(TextOrder, String),
}

/// Position of a text relative to another one.
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
    /// The greatest number for which the test can be true.
    fn last(&self) -> i64 {
        match self {
            Self::AtMost(most) => *most,
            Self::Numbers(all) => all.last().copied().unwrap_or(i64::MIN),
            _ => i64::MAX,
        }
    }

    /// Whether a test of segments depends only on these, which the person is certainly not in; `None` stands for all
    /// segments.
    fn is_settled_by(&self, absent: Option<&[SegmentId]>) -> bool {
        match (self, absent) {
            (_, None) => true,
            (Self::Numbers(all), Some(absent)) => all.iter().all(|id| is_held(absent, *id)),
            (_, Some(_)) => false,
        }
    }

    /// Whether the test is true for what was read.
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
