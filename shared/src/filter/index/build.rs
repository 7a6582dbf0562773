//! The index of a list of filters.

use std::collections::{BTreeMap, BTreeSet};

use super::postings::{Bounds, Postings, SegmentPostings, short};
use super::{Compared, Entry, Index, NegatedSegments};
use crate::attributes::Kind;
use crate::filter::count::{self, ByAction, CountQuestion};
use crate::filter::field::Field;
use crate::filter::{Condition, Filter, Join, Node, Test};

/// Conjunctions of one filter; one of more is evaluated by itself.
const CONJUNCTIONS: usize = 16;
/// Values in all conjunctions of a filter that has several: one of more is evaluated by itself. A list beside an `$or` stands in
/// each, and a catalogue of such filters would take more memory than an isolate has.
const VALUES: usize = 1_024;

pub(super) fn build(filters: &[Option<Filter>]) -> Index {
    let asked: BTreeSet<&CountQuestion> = filters.iter().flatten().flat_map(|filter| &filter.counts).collect();
    let counts: Vec<CountQuestion> = asked.into_iter().cloned().collect();
    let mut builder = Builder::default();
    for (place, filter) in (0..).zip(filters) {
        let place_of = |filter: &Filter, at: u32| count::place(&counts, filter.counts.get(at as usize));
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

type Conjunction<'a> = Vec<&'a Condition>;

/// Conjunctions any of which makes a node hold, each condition of one once; `None` for too many.
fn conjunctions(node: &Node) -> Option<Vec<Conjunction<'_>>> {
    let all = match node {
        Node::Leaf(condition) => vec![vec![condition]],
        Node::Group(Join::Any, nodes) => {
            nodes.iter().map(conjunctions).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect()
        }
        Node::Group(Join::All, nodes) => {
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

fn joined<'a>(mut all: Vec<Conjunction<'a>>, node: &'a Node) -> Option<Vec<Conjunction<'a>>> {
    if let Node::Leaf(condition) = node {
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

/// Entries as they come, in no order.
#[derive(Default)]
struct Builder<'a> {
    needed: Vec<u8>,
    filter_of: Vec<u32>,
    repeated: Vec<Entry>,
    segments: Vec<(u32, u32)>,
    numbers: Vec<((Field, i64), u32)>,
    texts: Vec<((Field, &'a str), u32)>,
    compared: BTreeMap<Field, Unsorted>,
    others: Vec<(Condition, Entry)>,
    negated: Vec<(Field, Entry)>,
    negated_segments: Vec<NegatedSegments>,
    negated_of_page: Vec<(Field, Entry)>,
    roots: Vec<Option<Node>>,
    whole: Vec<u32>,
}

#[derive(Default)]
struct Unsorted {
    exists: Vec<Entry>,
    at_least: Vec<(i64, Entry)>,
    at_most: Vec<(i64, Entry)>,
    negated: Vec<(i64, Entry)>,
}

impl<'a> Builder<'a> {
    /// Adds a conjunction of a filter, whose counts have other places in the index.
    fn conjunction(&mut self, filter: u32, conditions: &[&'a Condition], place: impl Fn(u32) -> u32) {
        let conjunction = short(self.needed.len());
        for condition in conditions {
            let field = match condition.field {
                Field::Count(at) => Field::Count(place(at)),
                field => field,
            };
            self.condition(field, condition, conjunction << 1 | u32::from(condition.negated));
        }
        let needed = conditions.iter().filter(|condition| !condition.negated).count();
        self.needed.push(u8::try_from(needed).unwrap_or(u8::MAX));
        self.filter_of.push(filter);
    }

    fn condition(&mut self, field: Field, condition: &'a Condition, entry: Entry) {
        let target = match &condition.test {
            Test::Numbers(_) | Test::Texts(_) if has_several(field) => {
                self.repeated.push(entry);
                short(self.repeated.len() - 1)
            }
            _ => entry,
        };
        if condition.negated {
            self.negated(field, condition, entry, target);
        }
        match &condition.test {
            Test::Numbers(all) if field == Field::Segments => {
                self.segments.extend(all.iter().filter_map(|id| Some((u32::try_from(*id).ok()?, target))));
            }
            Test::Numbers(all) => {
                self.numbers.extend(all.iter().map(|number| ((field, *number), target)));
                if matches!(field, Field::Count(_)) {
                    // Its answer is looked up because it is here.
                    self.compared.entry(field).or_default();
                }
            }
            Test::Texts(all) => self.texts.extend(all.iter().map(|text| ((field, text.as_str()), target))),
            Test::Exists => self.compared.entry(field).or_default().exists.push(entry),
            Test::AtLeast(least) => self.compared.entry(field).or_default().at_least.push((*least, entry)),
            Test::AtMost(most) => self.compared.entry(field).or_default().at_most.push((*most, entry)),
            Test::Text(..) => self.others.push((Condition { field, ..condition.clone() }, entry)),
        }
    }

    /// A condition that must not hold; `target` as [`Self::condition`] has it.
    fn negated(&mut self, field: Field, condition: &Condition, entry: Entry, target: u32) {
        if matches!(field, Field::Count(_) | Field::Devices | Field::LastSeen) {
            self.compared.entry(field).or_default().negated.push((condition.test.last(), entry));
        }
        match field {
            Field::Count(_) => {}
            Field::Segments => {
                let listed = matches!(condition.test, Test::Numbers(_)).then(|| (target, short(condition.values())));
                self.negated_segments.push(NegatedSegments { entry, listed });
            }
            Field::Url | Field::Keywords => self.negated_of_page.push((field, entry)),
            field if field.is_of_person() || field == Field::BestTime => self.negated.push((field, entry)),
            _ => {}
        }
    }

    fn built(mut self, counts: Vec<CountQuestion>) -> Index {
        self.needed.resize(self.needed.len().next_multiple_of(8), 1);
        let compared = self.compared.into_iter().map(|(field, Unsorted { exists, at_least, at_most, negated })| {
            let [at_least, at_most, negated] = [at_least, at_most, negated].map(Bounds::new);
            (field, Compared { exists, at_least, at_most, negated })
        });
        Index {
            by_action: ByAction::of(&counts),
            counts,
            needed: self.needed,
            filter_of: self.filter_of,
            repeated: self.repeated,
            segments: SegmentPostings::new(self.segments),
            numbers: Postings::new(self.numbers, |key| key),
            texts: Postings::new(self.texts, |(field, text)| (field, text.to_owned())),
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

/// Whether a subject may have several values there.
fn has_several(field: Field) -> bool {
    matches!(field, Field::Segments | Field::Keywords | Field::Attribute(_, Kind::Strings))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of so many numbers, beside so many alternatives.
    fn filter(values: i64, alternatives: i64) -> Filter {
        let leaf = |field, test| Node::Leaf(Condition { field, negated: false, test });
        let any = (0..alternatives).map(|n| leaf(Field::Devices, Test::AtLeast(n))).collect();
        let list =
            leaf(Field::Attribute(crate::attributes::Token(1), Kind::Integer), Test::Numbers((0..values).collect()));
        Filter { root: Node::Group(Join::All, vec![list, Node::Group(Join::Any, any)]), counts: Vec::new() }
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
