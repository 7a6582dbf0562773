//! Many filters asked at once: an inverted index, so that a request costs what holds of a subject and not what there is.
//!
//! A filter is taken apart into conjunctions, any of which makes it match, and each counts down from the number of its
//! conditions. From every value that conditions ask for, a posting leads to the conjunctions; conditions that compare
//! lie in the order of their bounds, so that those that hold lie side by side. A subject's values are looked up one by
//! one; a conjunction that is at nought matches. A condition that must not hold is none of the number and counts up.
//!
//! This is Whang et al., "Indexing Boolean Expressions" (VLDB 2009), but for its order of postings by size: bytes that are
//! counted down, some without need, are faster than sorted lists that are merged. A filter of too many conjunctions is
//! evaluated by itself each time.

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

/// An index over a list of filters.
#[derive(Debug, Clone)]
pub struct FilterIndex {
    counts: Vec<CountQuestion>,
    by_action: ByAction,
    /// Of each conjunction how many conditions must hold; behind them ones, to a multiple of eight.
    needed: Vec<u8>,
    /// Whose each conjunction is.
    filter_of: Vec<u32>,
    /// Conditions on fields of several values, each of which counts once.
    repeated: Vec<Entry>,
    /// To places in `repeated`.
    segments: SegmentPostings,
    numbers: PostingLists<(FilterField, i64)>,
    /// Of fields of several texts to places in `repeated`.
    texts: PostingLists<(FilterField, String)>,
    compared: Vec<(FilterField, FieldComparisons)>,
    /// What must not hold of a person's fields, but its counts and segments: it does not where the field is uncertain.
    negated: Vec<(FilterField, Entry)>,
    /// What must not hold of a person's segments.
    negated_segments: Vec<NegatedSegments>,
    /// What must not hold of a page's address and keywords: it does not where some were left out.
    negated_of_page: Vec<(FilterField, Entry)>,
    /// What is evaluated on the subject itself.
    others: Vec<(FieldCondition, Entry)>,
    /// All filters, with the places of the counts here; `None` means everybody.
    roots: Vec<Option<FilterNode>>,
    /// Places in `roots` of the filters that are evaluated by themselves.
    whole: Vec<u32>,
}

/// A condition on segments that must not hold.
#[derive(Debug, Clone, Copy)]
struct NegatedSegments {
    entry: Entry,
    /// Its place in `repeated`, and how many segments it names; `None` where it asks whether there is any.
    listed: Option<(u32, u32)>,
}

/// A conjunction's place, and in the lowest bit whether the condition must not hold.
type Entry = u32;

/// The conditions of a field that are not a list's.
#[derive(Debug, Clone, Default)]
struct FieldComparisons {
    exists: Vec<Entry>,
    at_least: BoundList,
    at_most: BoundList,
    /// All that must not hold, where only a lower bound of a field may be known, by the last number that each may hold for.
    negated: BoundList,
}

/// The filters that match a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterMatches(Vec<u64>);

impl FilterMatches {
    /// Whether the filter of this place does.
    #[must_use]
    pub fn contains(&self, filter: usize) -> bool {
        self.0.get(filter / 64).is_some_and(|word| word >> (filter % 64) & 1 == 1)
    }

    /// Their places, in order.
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
    /// Builds the index of filters; `None` means everybody. Equal filters are best given once.
    #[must_use]
    pub fn new(filters: &[Option<Filter>]) -> Self {
        build::build(filters)
    }

    /// What all filters together ask of a person's history, in order, each once.
    #[must_use]
    pub fn counts(&self) -> &[CountQuestion] {
        &self.counts
    }

    /// The answers to them, in their order; `None` where nothing tells of an event.
    #[must_use]
    pub fn answers(&self, history: &PersonHistory<'_>, now: Minute) -> Vec<Option<EventCount>> {
        self.by_action.answers(&self.counts, history, now)
    }

    /// How many filters there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// The filters that match: those whose [`Filter::matches`] does. The subject's counts are [`Self::answers`].
    #[must_use]
    pub fn matching(&self, subject: &FilterSubject<'_>) -> FilterMatches {
        if self.is_empty() {
            return FilterMatches(Vec::new());
        }
        let seen = vec![0; self.repeated.len().div_ceil(64)];
        let mut asked = SubjectLookup { index: self, left: self.needed.clone(), seen };
        subject.each(|field, read| asked.add(field, read));
        for (field, compared) in self.compared.iter().filter(|(field, _)| matches!(field, FilterField::Count(_))) {
            match subject.read(*field) {
                FieldReading::Unknown => count(&mut asked.left, compared.negated.from(i64::MIN)),
                read => asked.add(*field, read),
            }
        }
        if let Some(gaps) = subject.gaps() {
            asked.refuse_uncertain(subject, &gaps);
        }
        asked.refuse_cut(subject);
        for (other, entry) in &self.others {
            if other.test.holds(subject.read(other.field)) {
                count(&mut asked.left, &[*entry]);
            }
        }
        asked.matches(subject)
    }

    /// The fields that leave it unknown whether a filter matches, in order; none where it surely does or surely does not.
    /// The subject's counts are [`Self::answers`]. It evaluates the filter by itself: it is for traces.
    #[must_use]
    pub fn unknown_fields(&self, filter: usize, subject: &FilterSubject<'_>) -> Vec<FilterField> {
        let mut fields = BTreeSet::new();
        if let Some(Some(root)) = self.roots.get(filter) {
            root.add_unknown_fields(subject, &mut fields);
        }
        fields.into_iter().collect()
    }
}

/// One subject, while it is looked up.
struct SubjectLookup<'a> {
    index: &'a FilterIndex,
    /// Of each conjunction how many conditions are left.
    left: Vec<u8>,
    /// Which of the repeated conditions hold, as bits.
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

    /// Counts what must not hold as if it held where missing data may make it hold. What holds already counts twice, which
    /// is still not nought.
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

    /// The same for what must not hold of the page where data of it was left out.
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
        for (place, eight) in eights.iter().enumerate().filter(|(_, eight)| has_nought(**eight)) {
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

/// These conditions hold. A filter has 64 at most, so that no byte comes round to nought.
fn count(left: &mut [u8], entries: &[Entry]) {
    for entry in entries {
        if let Some(left) = left.get_mut((entry >> 1) as usize) {
            *left = left.wrapping_add(if entry & 1 == 0 { u8::MAX } else { 1 });
        }
    }
}

/// Whether any byte is nought: taking one from each borrows there (Warren, Hacker's Delight, 6-1).
fn has_nought(eight: [u8; 8]) -> bool {
    let bits = u64::from_ne_bytes(eight);
    bits.wrapping_sub(u64::from_ne_bytes([1; 8])) & !bits & u64::from_ne_bytes([0x80; 8]) != 0
}

/// Sets a bit; whether it was not set.
fn set_bit(words: &mut [u64], bit: u32) -> bool {
    let Some(word) = words.get_mut(bit as usize / 64) else { return false };
    let mask = 1 << (bit % 64);
    let is_new = *word & mask == 0;
    *word |= mask;
    is_new
}

/// The places of a word's ones.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}
