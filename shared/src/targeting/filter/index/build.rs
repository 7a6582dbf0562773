//! Construction of the index of a list of filters.

use std::collections::{BTreeMap, BTreeSet};

use super::postings::{BoundList, PostingLists, SegmentPostings, short};
use super::{Entry, FieldComparisons, FilterIndex, NegatedSegments};
use crate::facts::attributes::ValueKind;
use crate::targeting::filter::count::{self, ByAction, CountQuestion};
use crate::targeting::filter::field::FilterField;
use crate::targeting::filter::{FieldCondition, FieldTest, Filter, FilterNode, GroupOperator};

/// Most conjunctions of one filter; a filter with more is evaluated on its own.
const CONJUNCTIONS: usize = 16;
/// Most values in all conjunctions of a filter with several; a filter with more is evaluated on its own. A list next to
/// an `$or` is repeated in each conjunction, and a catalogue of such filters would exceed an isolate's memory.
const VALUES: usize = 1_024;

pub(super) fn build(filters: &[Option<Filter>]) -> FilterIndex {
    let questions: BTreeSet<&CountQuestion> = filters.iter().flatten().flat_map(|filter| &filter.counts).collect();
    let counts: Vec<CountQuestion> = questions.into_iter().cloned().collect();
    let mut builder = IndexBuilder::default();
    for (place, filter) in (0..).zip(filters) {
        let place_of = |filter: &Filter, at: u32| count::question_index(&counts, filter.counts.get(at as usize));
        match filter.as_ref().map(|filter| (filter, conjunctions(&filter.root))) {
            None => builder.conjunction(place, &[], |at| at),
            Some((filter, Some(all))) => {
                all.iter().for_each(|one| builder.conjunction(place, one, |at| place_of(filter, at)));
            }
            Some((_, None)) => builder.whole.push(place),
        }
        let placed = |filter: &Filter| filter.root.clone().with_counts(&|at| place_of(filter, at));
        builder.roots.push(filter.as_ref().map(placed));
    }
    builder.built(counts)
}

type Conjunction<'a> = Vec<&'a FieldCondition>;

/// Conjunctions of which any one makes a node true, each with distinct conditions; `None` if there are too many.
fn conjunctions(node: &FilterNode) -> Option<Vec<Conjunction<'_>>> {
    let all = match node {
        FilterNode::Leaf(condition) => vec![vec![condition]],
        FilterNode::Group(GroupOperator::Any, nodes) => {
            nodes.iter().map(conjunctions).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect()
        }
        FilterNode::Group(GroupOperator::All, nodes) => {
            let mut all = vec![Vec::with_capacity(nodes.len())];
            for node in nodes {
                all = joined(all, node)?;
            }
            all
        }
    };
    let values = || all.iter().flatten().map(|condition| condition.values()).sum::<usize>();
    (all.len() == 1 || all.len() <= CONJUNCTIONS && values() <= VALUES).then_some(all)
}

fn joined<'a>(mut all: Vec<Conjunction<'a>>, node: &'a FilterNode) -> Option<Vec<Conjunction<'a>>> {
    if let FilterNode::Leaf(condition) = node {
        all.iter_mut().filter(|one| !one.contains(&condition)).for_each(|one| one.push(condition));
        return Some(all);
    }
    let more = conjunctions(node)?;
    if all.len() * more.len() > CONJUNCTIONS {
        return None;
    }
    let both = |one: &Conjunction<'a>, other: &Conjunction<'a>| {
        let new = other.iter().filter(|condition| !one.contains(condition));
        one.iter().chain(new).copied().collect()
    };
    Some(all.iter().flat_map(|one| more.iter().map(move |other| both(one, other))).collect())
}

/// Entries in the order of their arrival.
#[derive(Default)]
struct IndexBuilder<'a> {
    needed: Vec<u8>,
    filter_of: Vec<u32>,
    repeated: Vec<Entry>,
    segments: Vec<(u32, u32)>,
    numbers: Vec<((FilterField, i64), u32)>,
    texts: Vec<((FilterField, &'a str), u32)>,
    compared: BTreeMap<FilterField, UnsortedPostings>,
    others: Vec<(FieldCondition, Entry)>,
    negated: Vec<(FilterField, Entry)>,
    negated_segments: Vec<NegatedSegments>,
    negated_of_page: Vec<(FilterField, Entry)>,
    roots: Vec<Option<FilterNode>>,
    whole: Vec<u32>,
}

#[derive(Default)]
struct UnsortedPostings {
    exists: Vec<Entry>,
    at_least: Vec<(i64, Entry)>,
    at_most: Vec<(i64, Entry)>,
    negated: Vec<(i64, Entry)>,
}

impl<'a> IndexBuilder<'a> {
    /// Adds a conjunction of a filter; `place` maps the filter's count indexes to those of the index.
    fn conjunction(&mut self, filter: u32, conditions: &[&'a FieldCondition], place: impl Fn(u32) -> u32) {
        let conjunction = short(self.needed.len());
        for condition in conditions {
            let field = match condition.field {
                FilterField::Count(at) => FilterField::Count(place(at)),
                field => field,
            };
            self.condition(field, condition, conjunction << 1 | u32::from(condition.negated));
        }
        let needed = conditions.iter().filter(|condition| !condition.negated).count();
        self.needed.push(u8::try_from(needed).unwrap_or(u8::MAX));
        self.filter_of.push(filter);
    }

    fn condition(&mut self, field: FilterField, condition: &'a FieldCondition, entry: Entry) {
        let target = match &condition.test {
            FieldTest::Numbers(_) | FieldTest::Texts(_) if has_several(field) => {
                self.repeated.push(entry);
                short(self.repeated.len() - 1)
            }
            _ => entry,
        };
        if condition.negated {
            self.negated(field, condition, entry, target);
        }
        match &condition.test {
            FieldTest::Numbers(all) if field == FilterField::Segments => {
                self.segments.extend(all.iter().filter_map(|id| Some((u32::try_from(*id).ok()?, target))));
            }
            FieldTest::Numbers(all) => {
                self.numbers.extend(all.iter().map(|number| ((field, *number), target)));
                if matches!(field, FilterField::Count(_)) {
                    // An entry in `compared` makes the lookup read the count.
                    self.compared.entry(field).or_default();
                }
            }
            FieldTest::Texts(all) => self.texts.extend(all.iter().map(|text| ((field, text.as_str()), target))),
            FieldTest::Exists => self.compared.entry(field).or_default().exists.push(entry),
            FieldTest::AtLeast(least) => self.compared.entry(field).or_default().at_least.push((*least, entry)),
            FieldTest::AtMost(most) => self.compared.entry(field).or_default().at_most.push((*most, entry)),
            FieldTest::Text(..) => self.others.push((FieldCondition { field, ..condition.clone() }, entry)),
        }
    }

    /// Adds a negated condition; `target` as in [`Self::condition`].
    fn negated(&mut self, field: FilterField, condition: &FieldCondition, entry: Entry, target: u32) {
        if matches!(field, FilterField::Count(_) | FilterField::Devices | FilterField::LastSeen) {
            self.compared.entry(field).or_default().negated.push((condition.test.last(), entry));
        }
        match field {
            FilterField::Count(_) => {}
            FilterField::Segments => {
                let listed =
                    matches!(condition.test, FieldTest::Numbers(_)).then(|| (target, short(condition.values())));
                self.negated_segments.push(NegatedSegments { entry, listed });
            }
            FilterField::Url | FilterField::Keywords => self.negated_of_page.push((field, entry)),
            field if field.is_of_person() || field == FilterField::BestSendTime => self.negated.push((field, entry)),
            _ => {}
        }
    }

    fn built(mut self, counts: Vec<CountQuestion>) -> FilterIndex {
        self.needed.resize(self.needed.len().next_multiple_of(8), 1);
        let compared =
            self.compared.into_iter().map(|(field, UnsortedPostings { exists, at_least, at_most, negated })| {
                let [at_least, at_most, negated] = [at_least, at_most, negated].map(BoundList::new);
                (field, FieldComparisons { exists, at_least, at_most, negated })
            });
        FilterIndex {
            by_action: ByAction::of(&counts),
            counts,
            needed: self.needed,
            filter_of: self.filter_of,
            repeated: self.repeated,
            segments: SegmentPostings::new(self.segments),
            numbers: PostingLists::new(self.numbers, |key| key),
            texts: PostingLists::new(self.texts, |(field, text)| (field, text.to_owned())),
            compared: compared.collect(),
            others: self.others,
            negated: self.negated,
            negated_segments: self.negated_segments,
            negated_of_page: self.negated_of_page,
            roots: self.roots,
            whole: self.whole,
        }
    }
}

/// Whether a subject may have several values of the field.
fn has_several(field: FilterField) -> bool {
    matches!(field, FilterField::Segments | FilterField::Keywords | FilterField::Attribute(_, ValueKind::Strings))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter with a list of `values` numbers and, next to it, `alternatives` alternatives.
    fn filter(values: i64, alternatives: i64) -> Filter {
        let leaf = |field, test| FilterNode::Leaf(FieldCondition { field, negated: false, test });
        let any = (0..alternatives).map(|n| leaf(FilterField::Devices, FieldTest::AtLeast(n))).collect();
        let list = leaf(
            FilterField::Attribute(crate::facts::attributes::NameToken(1), ValueKind::Integer),
            FieldTest::Numbers((0..values).collect()),
        );
        Filter {
            root: FilterNode::Group(GroupOperator::All, vec![list, FilterNode::Group(GroupOperator::Any, any)]),
            counts: Vec::new(),
        }
    }

    #[test]
    fn a_long_list_beside_alternatives_is_not_held_once_for_each() {
        let held = |values, alternatives| {
            let index = build(&[Some(filter(values, alternatives))]);
            let of = |number| index.numbers.find(|(_, key)| key.cmp(&number)).len();
            ((0..values).map(of).sum::<usize>(), index.whole.len())
        };
        assert_eq!(held(250, 1), (250, 0));
        assert_eq!(held(64, 16), (1_024, 0));
        assert_eq!(held(65, 16), (0, 1));
        assert_eq!(held(5_000, 1), (5_000, 0), "once it may be of any length");
    }
}
