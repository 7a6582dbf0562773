//! Evaluation of many filters at once: an inverted index, so that the cost of a request depends on the subject's values
//! and not on the number of filters.
//!
//! Each filter is split into conjunctions; one matching conjunction makes the filter match. Each conjunction has a
//! counter, which starts at its number of conditions. A posting leads from each value in a condition to the
//! conjunctions with that condition. Comparisons are sorted by their bounds, so that the true ones are adjacent. The
//! subject's values are looked up one by one and decrement the counters; a conjunction whose counter is zero matches. A
//! negated condition is not part of the initial number, and increments the counter if it is violated.
//!
//! The method is that of Whang et al., "Indexing Boolean Expressions" (VLDB 2009), without its order of postings by
//! size: decrementing bytes, even more than necessary, is faster than merging sorted lists. A filter with too many
//! conjunctions is evaluated on its own.

mod build;
mod postings;

use std::collections::BTreeSet;

use self::postings::{BoundList, PostingLists, SegmentPostings};
use super::count::{ByAction, CountQuestion, PersonHistory};
use super::field::FilterField;
use super::subject::{FieldReading, FilterSubject, PersonGaps};
use super::{FieldCondition, Filter, FilterNode};
use crate::base::time::Minute;
use crate::facts::events::EventCount;

/// An index of a list of filters.
#[derive(Debug, Clone)]
pub struct FilterIndex {
    counts: Vec<CountQuestion>,
    by_action: ByAction,
    /// Number of required conditions of each conjunction, padded with ones to a multiple of eight.
    needed: Vec<u8>,
    /// Filter of each conjunction.
    filter_of: Vec<u32>,
    /// List conditions on fields with several values; each condition counts once.
    repeated: Vec<Entry>,
    /// Segment id → indexes in `repeated`.
    segments: SegmentPostings,
    numbers: PostingLists<(FilterField, i64)>,
    /// Text of a field → conjunctions; for fields with several texts, indexes in `repeated`.
    texts: PostingLists<(FilterField, String)>,
    compared: Vec<(FilterField, FieldComparisons)>,
    /// Negated conditions on a person's fields, except counts and segments: they fail if the field is uncertain.
    negated: Vec<(FilterField, Entry)>,
    /// Negated conditions on a person's segments.
    negated_segments: Vec<NegatedSegments>,
    /// Negated conditions on a page's address and keywords: they fail if some of these were left out.
    negated_of_page: Vec<(FilterField, Entry)>,
    /// Conditions that are evaluated directly on the subject.
    others: Vec<(FieldCondition, Entry)>,
    /// All filters, with the count indexes of this index; `None` matches everyone.
    roots: Vec<Option<FilterNode>>,
    /// Indexes in `roots` of the filters that are evaluated on their own.
    whole: Vec<u32>,
}

/// A negated condition on segments.
#[derive(Debug, Clone, Copy)]
struct NegatedSegments {
    entry: Entry,
    /// Index in `repeated` and number of listed segments; `None` if the condition tests whether there is any segment.
    listed: Option<(u32, u32)>,
}

/// A conjunction's index, with a lowest bit that states whether the condition is negated.
type Entry = u32;

/// Conditions on one field other than lists.
#[derive(Debug, Clone, Default)]
struct FieldComparisons {
    exists: Vec<Entry>,
    at_least: BoundList,
    at_most: BoundList,
    /// Negated conditions on a field of which only a lower bound may be known, by the greatest number for which each
    /// test can be true.
    negated: BoundList,
}

/// The filters that match a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterMatches(Vec<u64>);

impl FilterMatches {
    /// Whether the filter with this index matches.
    #[must_use]
    pub fn contains(&self, filter: usize) -> bool {
        self.0.get(filter / 64).is_some_and(|word| word >> (filter % 64) & 1 == 1)
    }

    /// Indexes of the matching filters, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(word, bits)| ones(*bits).map(move |bit| word * 64 + bit))
    }
}

impl Default for FilterIndex {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl FilterIndex {
    /// Builds an index of filters; `None` matches everyone. Equal filters should be passed once.
    #[must_use]
    pub fn new(filters: &[Option<Filter>]) -> Self {
        build::build(filters)
    }

    /// Distinct counts that all filters together need from a person's history, in order.
    #[must_use]
    pub fn counts(&self) -> &[CountQuestion] {
        &self.counts
    }

    /// Answers to [`Self::counts`], in order; `None` if no source covers the event.
    #[must_use]
    pub fn answers(&self, history: &PersonHistory<'_>, now: Minute) -> Vec<Option<EventCount>> {
        self.by_action.answers(&self.counts, history, now)
    }

    /// Number of filters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Whether there are no filters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// The filters for which [`Filter::matches`] is true. The subject's counts must be [`Self::answers`].
    #[must_use]
    pub fn matching(&self, subject: &FilterSubject<'_>) -> FilterMatches {
        if self.is_empty() {
            return FilterMatches(Vec::new());
        }
        let seen = vec![0; self.repeated.len().div_ceil(64)];
        let mut lookup = SubjectLookup { index: self, left: self.needed.clone(), seen };
        subject.each(|field, read| lookup.add(field, read));
        for (field, compared) in self.compared.iter().filter(|(field, _)| matches!(field, FilterField::Count(_))) {
            match subject.read(*field) {
                FieldReading::Unknown => count(&mut lookup.left, compared.negated.from(i64::MIN)),
                read => lookup.add(*field, read),
            }
        }
        if let Some(gaps) = subject.gaps() {
            lookup.refuse_uncertain(subject, &gaps);
        }
        lookup.refuse_cut(subject);
        for (other, entry) in &self.others {
            if other.test.holds(subject.read(other.field)) {
                count(&mut lookup.left, &[*entry]);
            }
        }
        lookup.matches(subject)
    }

    /// Fields that leave it unknown whether a filter matches, in order; empty if the result is certain. The subject's
    /// counts must be [`Self::answers`]. The filter is evaluated on its own, for traces.
    #[must_use]
    pub fn unknown_fields(&self, filter: usize, subject: &FilterSubject<'_>) -> Vec<FilterField> {
        let mut fields = BTreeSet::new();
        if let Some(Some(root)) = self.roots.get(filter) {
            root.add_unknown_fields(subject, &mut fields);
        }
        fields.into_iter().collect()
    }
}

/// State of the lookup of one subject.
struct SubjectLookup<'a> {
    index: &'a FilterIndex,
    /// Remaining conditions of each conjunction.
    left: Vec<u8>,
    /// Bits of the repeated conditions that are true.
    seen: Vec<u64>,
}

impl SubjectLookup<'_> {
    fn add(&mut self, field: FilterField, read: FieldReading<'_>) {
        let FilterIndex { segments, numbers, texts, .. } = self.index;
        let text = |text: &str| texts.find(|(of, known)| of.cmp(&field).then_with(|| known.as_str().cmp(text)));
        match read {
            FieldReading::Number(number) => count(&mut self.left, numbers.find(|key| key.cmp(&(field, number)))),
            FieldReading::Text(one) => count(&mut self.left, text(one)),
            FieldReading::Segments(held) => held.iter().for_each(|id| self.once(segments.find(id.0))),
            FieldReading::Strings(all) => all.iter().for_each(|one| self.once(text(one))),
            FieldReading::Keywords(all) => all.iter().for_each(|one| self.once(text(one))),
            FieldReading::Unknown | FieldReading::AtLeast(_) | FieldReading::AtMost(_) | FieldReading::Absent => {}
        }
        self.compare(field, read);
    }

    fn compare(&mut self, field: FilterField, read: FieldReading<'_>) {
        let Ok(place) = self.index.compared.binary_search_by(|(of, _)| of.cmp(&field)) else { return };
        let Some((_, compared)) = self.index.compared.get(place) else { return };
        count(&mut self.left, &compared.exists);
        match read {
            FieldReading::Number(number) => {
                count(&mut self.left, compared.at_least.up_to(number));
                count(&mut self.left, compared.at_most.from(number));
            }
            FieldReading::AtLeast(least) => {
                count(&mut self.left, compared.at_least.up_to(least));
                count(&mut self.left, compared.negated.from(least));
            }
            FieldReading::AtMost(most) => count(&mut self.left, compared.at_most.from(most)),
            _ => {}
        }
    }

    /// Makes negated conditions fail if missing data may violate them. A condition that is already violated counts
    /// twice, which never leads to zero.
    fn refuse_uncertain(&mut self, subject: &FilterSubject<'_>, gaps: &PersonGaps<'_>) {
        for (field, entry) in &self.index.negated {
            let is_bounded = matches!(subject.read(*field), FieldReading::AtLeast(_));
            if !is_bounded && !gaps.is_certain(*field) {
                count(&mut self.left, &[*entry]);
            }
        }
        let Some(absent) = gaps.segments else { return };
        let mut found = vec![0_u32; self.index.repeated.len()];
        for place in absent.iter().flat_map(|id| self.index.segments.find(id.0)) {
            found.iter_mut().skip(*place as usize).take(1).for_each(|found| *found += 1);
        }
        for NegatedSegments { entry, listed } in &self.index.negated_segments {
            let is_settled =
                listed.is_some_and(|(place, named)| found.get(place as usize).is_some_and(|found| *found >= named));
            if !is_settled {
                count(&mut self.left, &[*entry]);
            }
        }
    }

    /// Makes negated conditions on the page fail if some of its data was left out.
    fn refuse_cut(&mut self, subject: &FilterSubject<'_>) {
        for (_, entry) in self.index.negated_of_page.iter().filter(|(field, _)| subject.has_page_gap(*field)) {
            count(&mut self.left, &[*entry]);
        }
    }

    fn once(&mut self, repeated: &[u32]) {
        for place in repeated {
            if set_bit(&mut self.seen, *place)
                && let Some(entry) = self.index.repeated.get(*place as usize)
            {
                count(&mut self.left, &[*entry]);
            }
        }
    }

    fn matches(&self, subject: &FilterSubject<'_>) -> FilterMatches {
        let mut matches = vec![0; self.index.roots.len().div_ceil(64)];
        let (eights, _) = self.left.as_chunks::<8>();
        for (place, eight) in eights.iter().enumerate().filter(|(_, eight)| has_zero_byte(**eight)) {
            for (byte, _) in eight.iter().enumerate().filter(|(_, left)| **left == 0) {
                if let Some(filter) = self.index.filter_of.get(place * 8 + byte) {
                    set_bit(&mut matches, *filter);
                }
            }
        }
        for filter in &self.index.whole {
            if let Some(Some(root)) = self.index.roots.get(*filter as usize)
                && root.holds(subject)
            {
                set_bit(&mut matches, *filter);
            }
        }
        FilterMatches(matches)
    }
}

/// Counts satisfied conditions. A filter has at most 64 conditions, so that no byte wraps around to zero.
fn count(left: &mut [u8], entries: &[Entry]) {
    for entry in entries {
        if let Some(left) = left.get_mut((entry >> 1) as usize) {
            *left = left.wrapping_add(if entry & 1 == 0 { u8::MAX } else { 1 });
        }
    }
}

/// Whether any byte is zero: subtracting one from each byte borrows there (Warren, Hacker's Delight, 6-1).
fn has_zero_byte(eight: [u8; 8]) -> bool {
    let bits = u64::from_ne_bytes(eight);
    bits.wrapping_sub(u64::from_ne_bytes([1; 8])) & !bits & u64::from_ne_bytes([0x80; 8]) != 0
}

/// Sets a bit; returns whether it was not set before.
fn set_bit(words: &mut [u64], bit: u32) -> bool {
    let Some(word) = words.get_mut(bit as usize / 64) else { return false };
    let mask = 1 << (bit % 64);
    let is_new = *word & mask == 0;
    *word |= mask;
    is_new
}

/// Positions of the ones of a word.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}
