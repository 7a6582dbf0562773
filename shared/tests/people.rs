//! People are a function of the evidence as a set.
#![expect(clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{MEMBER, PARTNER, alternate, law, scramble, visitor};
use causeway_shared::base::ids::{AlternateId, KindCode, Millis, VisitorId};
use causeway_shared::facts::evidence::{EvidenceWeight, LinkClass};
use causeway_shared::identity::people::{Evidence, FlagReason, LinkedPeople, combine_evidence, link_people};
use proptest::collection::vec;
use proptest::prelude::*;

const SIGNAL: KindCode = KindCode(3);

fn unique(kind: KindCode) -> bool {
    kind == MEMBER
}

fn class(id: AlternateId) -> LinkClass {
    if unique(id.kind) { LinkClass::Unique } else { LinkClass::Shared }
}

fn found(evidence: &[Evidence]) -> LinkedPeople {
    link_people(evidence, class, EvidenceWeight::LOGIN)
}

/// Evidence about nine visitors, three members, and ids of two other kinds: one row per visitor and id, as in the
/// origin.
fn evidence() -> impl Strategy<Value = Vec<Evidence>> {
    let row = (0u8..9, 1u8..4, 0u8..3, prop_oneof![4 => Just(1_000u16), 1 => 1u16..1_000], 0u64..12, 0u64..4, 0u8..8);
    vec(row, 0..16).prop_map(|rows| {
        let rows = rows.into_iter().map(|(owner, kind, n, weight, first, lasts, cancel)| Evidence {
            visitor: visitor(owner),
            id: alternate(KindCode(kind), n),
            source: 1,
            weight: EvidenceWeight(weight),
            first,
            last: first + lasts,
            cancelled: (cancel < 2).then(|| first + u64::from(cancel) * 3),
        });
        let by_pair: BTreeMap<(VisitorId, AlternateId), Evidence> = rows.map(|e| ((e.visitor, e.id), e)).collect();
        by_pair.into_values().collect()
    })
}

fn counts(e: &Evidence) -> bool {
    e.stands() && e.weight >= EvidenceWeight::LOGIN
}

/// Components by brute force: each visitor's group grows until nothing changes.
fn components(evidence: &[Evidence]) -> BTreeSet<BTreeSet<VisitorId>> {
    let mut groups: Vec<BTreeSet<VisitorId>> = evidence.iter().map(|e| BTreeSet::from([e.visitor])).collect();
    for id in evidence.iter().filter(|e| counts(e)).map(|e| e.id) {
        let holders: BTreeSet<VisitorId> =
            evidence.iter().filter(|e| counts(e) && e.id == id).map(|e| e.visitor).collect();
        let (touched, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(|g| !g.is_disjoint(&holders));
        groups = apart;
        groups.push(touched.into_iter().flatten().collect());
    }
    groups.into_iter().filter(|g| !g.is_empty()).collect()
}

fn groups(people: &LinkedPeople) -> BTreeSet<BTreeSet<VisitorId>> {
    people.people.iter().map(|p| p.members.clone()).collect()
}

/// Whether no visitor and no component has two ids of the unique kind.
fn without_conflict(evidence: &[Evidence]) -> bool {
    components(evidence).iter().all(|group| {
        let ids = evidence.iter().filter(|e| counts(e) && unique(e.id.kind) && group.contains(&e.visitor));
        ids.map(|e| e.id).collect::<BTreeSet<_>>().len() <= 1
    })
}

/// The groups of visitors, and the flags.
type Linked = (BTreeSet<BTreeSet<VisitorId>>, Vec<(VisitorId, AlternateId, FlagReason)>);

/// People without singles: a visitor whose evidence is all cancelled is still a person of one.
fn linked(found: &LinkedPeople) -> Linked {
    let together = groups(found).into_iter().filter(|g| g.len() > 1).collect();
    (together, found.flags.iter().map(|f| (f.visitor, f.id, f.reason)).collect())
}

fn shuffled(evidence: &[Evidence], by: u64) -> Vec<Evidence> {
    let mut other: Vec<(usize, Evidence)> = evidence.iter().copied().enumerate().collect();
    other.sort_by_key(|(i, _)| scramble(*i as u64 ^ by));
    other.into_iter().map(|(_, e)| e).collect()
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn people_do_not_depend_on_the_order_of_evidence_or_on_repeats(rows in evidence(), by in any::<u64>()) {
        let mut other = shuffled(&rows, by);
        prop_assert_eq!(found(&other), found(&rows));
        other.extend(shuffled(&rows, !by).into_iter().step_by(2));
        prop_assert_eq!(found(&other), found(&rows));
    }

    #[test]
    fn without_conflicts_people_are_the_connected_components(rows in evidence()) {
        let people = found(&rows);
        if without_conflict(&rows) {
            prop_assert_eq!(groups(&people), components(&rows));
            prop_assert!(people.flags.is_empty(), "{:?}", people.flags);
        }
        // With conflicts, people are subsets of the components.
        let whole = components(&rows);
        prop_assert!(groups(&people).iter().all(|g| whole.iter().any(|w| g.is_subset(w))));
    }

    #[test]
    fn every_visitor_is_in_one_person_whose_master_is_the_smallest(rows in evidence()) {
        let people = found(&rows);
        let everybody: Vec<VisitorId> = people.people.iter().flat_map(|p| p.members.iter().copied()).collect();
        let once: BTreeSet<VisitorId> = everybody.iter().copied().collect();
        prop_assert_eq!(everybody.len(), once.len());
        prop_assert_eq!(once, rows.iter().map(|e| e.visitor).collect::<BTreeSet<_>>());
        for person in &people.people {
            prop_assert_eq!(Some(&person.master), person.members.first());
            let oldest = person.members.iter().min_by_key(|v| v.minted_ms());
            prop_assert_eq!(Some(&person.master), oldest);
        }
    }

    #[test]
    fn no_person_holds_two_ids_of_the_unique_kind(rows in evidence()) {
        let people = found(&rows);
        let flagged = |e: &Evidence| people.flags.iter().any(|f| (f.visitor, f.id) == (e.visitor, e.id));
        for person in &people.people {
            let held: BTreeSet<_> = person.members.iter().filter_map(|v| people.unique.get(v)).collect();
            prop_assert!(held.len() <= 1, "{held:?}");
            let standing = rows.iter().filter(|e| counts(e) && unique(e.id.kind) && person.members.contains(&e.visitor));
            let linking: BTreeSet<AlternateId> = standing.filter(|e| !flagged(e)).map(|e| e.id).collect();
            prop_assert!(linking.len() <= 1, "{linking:?}");
        }
        // Two visitors of one member are one person, whatever other evidence they have.
        for (a, id) in &people.unique {
            for (b, _) in people.unique.iter().filter(|(_, other)| *other == id) {
                let of = |v| people.people.iter().find(|p| p.members.contains(v)).map(|p| p.master);
                prop_assert_eq!(of(a), of(b));
            }
        }
    }

    #[test]
    fn flagged_evidence_never_links(rows in evidence()) {
        let people = found(&rows);
        let flagged = |e: &&Evidence| people.flags.iter().any(|f| (f.visitor, f.id) == (e.visitor, e.id));
        let rest: Vec<Evidence> = rows.iter().filter(|e| !flagged(e)).copied().collect();
        prop_assert_eq!(linked(&found(&rest)).0, linked(&people).0);
        prop_assert!(people.flags.iter().all(|f| rows.iter().any(|e| counts(e) && (e.visitor, e.id) == (f.visitor, f.id))));
    }

    #[test]
    fn of_two_unique_ids_the_first_received_then_the_smaller_hash_wins_and_the_other_is_flagged(rows in evidence()) {
        let people = found(&rows);
        for owner in rows.iter().map(|e| e.visitor) {
            let mine: Vec<&Evidence> = rows.iter().filter(|e| e.visitor == owner && counts(e) && unique(e.id.kind)).collect();
            let winner = mine.iter().min_by_key(|e| (e.since(), e.id.hash)).map(|e| e.id);
            prop_assert_eq!(people.unique.get(&owner).copied(), winner);
            let lost: BTreeSet<AlternateId> = mine.iter().map(|e| e.id).filter(|id| Some(*id) != winner).collect();
            let second = people.flags.iter().filter(|f| f.visitor == owner && f.reason == FlagReason::SecondUnique);
            prop_assert_eq!(second.map(|f| f.id).collect::<BTreeSet<_>>(), lost);
        }
    }

    #[test]
    fn who_wins_depends_on_nothing_but_receipt_and_hash(rows in evidence(), others in evidence(), later in any::<[u8; 16]>()) {
        let people = found(&rows);
        // Later repeats, and evidence about other visitors, change nothing.
        let mut more: Vec<Evidence> = rows.clone();
        for (e, by) in more.iter_mut().zip(later).filter(|(e, _)| e.stands()) {
            e.last += u64::from(by);
        }
        let strangers = others.iter().map(|e| {
            let stranger = visitor(100 + e.visitor.as_bytes()[15]);
            Evidence { visitor: stranger, id: e.id, ..*e }
        });
        more.extend(strangers.filter(|e| e.id.kind == MEMBER));
        let again = found(&more);
        for owner in rows.iter().map(|e| e.visitor) {
            prop_assert_eq!(again.unique.get(&owner), people.unique.get(&owner));
        }
    }

    #[test]
    fn cancelled_evidence_gives_the_people_of_a_world_without_it(rows in evidence(), which in any::<u16>()) {
        let chosen = |i: usize| which >> i & 1 == 1;
        let cancel = |(i, e): (usize, &Evidence)| {
            let cancelled = if chosen(i) { Some(e.last + u64::from(which % 3)) } else { e.cancelled };
            Evidence { cancelled, ..*e }
        };
        let cancelled: Vec<Evidence> = rows.iter().enumerate().map(cancel).collect();
        let never: Vec<Evidence> = rows.iter().enumerate().filter(|(i, _)| !chosen(*i)).map(|(_, e)| *e).collect();
        let (undone, without) = (found(&cancelled), found(&never));
        prop_assert_eq!(linked(&undone), linked(&without));
        prop_assert_eq!(&undone.unique, &without.unique);
        // Newer evidence restores the links; evidence that merely arrived late does not.
        let renew = |e: &Evidence, by: Millis| Evidence { last: e.last.max(e.cancelled.unwrap_or(0) + by), ..*e };
        let late: Vec<Evidence> = cancelled.iter().map(|e| renew(e, 0)).collect();
        let renewed: Vec<Evidence> = cancelled.iter().map(|e| renew(e, 1)).collect();
        prop_assert_eq!(linked(&found(&late)), linked(&without));
        // It counts from then on: an id seen with the visitor in the meantime comes first.
        let begin = |e: &Evidence| Evidence { first: e.since(), cancelled: None, ..*e };
        let begun: Vec<Evidence> = renewed.iter().map(begin).collect();
        prop_assert!(renewed.iter().all(|e| e.cancelled.is_none_or(|at| e.since() > at)));
        prop_assert_eq!(found(&renewed), found(&begun));
    }

    #[test]
    fn concurrent_merges_give_one_result_in_any_order(logins in vec((0u8..6, 1u8..4, 0u8..3, 0u64..8), 0..20), by in any::<[u64; 2]>()) {
        // Each edge's logins arrive in its own order and twice; the rows keep first and last receipt.
        let rows = |order: u64| {
            let mut arriving: Vec<_> = logins.iter().chain(&logins).enumerate().collect();
            arriving.sort_by_key(|(i, _)| scramble(*i as u64 ^ order));
            let mut rows: BTreeMap<(VisitorId, AlternateId), Evidence> = BTreeMap::new();
            for (_, (owner, kind, n, received)) in arriving {
                let (owner, id) = (visitor(*owner), alternate(KindCode(*kind), *n));
                let row = rows.entry((owner, id)).or_insert(Evidence {
                    visitor: owner, id, source: 1, weight: EvidenceWeight::LOGIN, first: *received, last: *received, cancelled: None,
                });
                row.first = row.first.min(*received);
                row.last = row.last.max(*received);
            }
            let rows: Vec<Evidence> = rows.into_values().collect();
            found(&shuffled(&rows, order))
        };
        let [a, b] = by.map(rows);
        prop_assert_eq!(a, b);
    }

    #[test]
    fn evidence_under_the_threshold_links_nothing(rows in evidence(), threshold in 1u16..=1_000) {
        let strong: Vec<Evidence> = rows.iter().filter(|e| e.weight >= EvidenceWeight(threshold)).copied().collect();
        prop_assert_eq!(
            linked(&link_people(&rows, class, EvidenceWeight(threshold))),
            linked(&link_people(&strong, class, EvidenceWeight(threshold)))
        );
    }
}

fn login(owner: u8, kind: KindCode, n: u8, at: Millis) -> Evidence {
    let (visitor, id) = (visitor(owner), alternate(kind, n));
    Evidence { visitor, id, source: 1, weight: EvidenceWeight::LOGIN, first: at, last: at, cancelled: None }
}

#[test]
fn a_shared_device_does_not_join_its_two_members() {
    // Member 1 has a phone and the shared device, member 2 a laptop and the shared device.
    let rows = [login(1, MEMBER, 1, 10), login(2, MEMBER, 1, 20), login(2, MEMBER, 2, 30), login(3, MEMBER, 2, 5)];
    let people = found(&rows);
    assert_eq!(
        groups(&people),
        BTreeSet::from([BTreeSet::from([visitor(1), visitor(2)]), BTreeSet::from([visitor(3)])])
    );
    assert_eq!(linked(&people).1, [(visitor(2), alternate(MEMBER, 2), FlagReason::SecondUnique)]);
}

#[test]
fn a_household_id_does_not_join_two_members() {
    let rows = [
        login(1, MEMBER, 1, 10),
        login(2, MEMBER, 2, 20),
        login(1, PARTNER, 9, 30),
        login(2, PARTNER, 9, 40),
        login(3, PARTNER, 9, 50),
        login(3, SIGNAL, 7, 60),
        login(2, SIGNAL, 7, 70),
    ];
    let people = found(&rows);
    assert_eq!(
        groups(&people),
        BTreeSet::from([BTreeSet::from([visitor(1), visitor(3)]), BTreeSet::from([visitor(2)])])
    );
    let flags = linked(&people).1;
    assert!(flags.contains(&(visitor(2), alternate(PARTNER, 9), FlagReason::JoinsTwoPeople)), "{flags:?}");
    assert_eq!(flags.len(), 2, "{flags:?}");
}

#[test]
fn a_chain_of_a_hundred_thousand_is_one_person_in_a_moment() {
    let id =
        |n: u32| AlternateId { kind: PARTNER, hash: causeway_shared::base::ids::AltHash(u128::from(n).to_be_bytes()) };
    let at = |n: u32| VisitorId::mint(u64::from(100_000 - n), [0; 10]);
    let link = |n: u32, v: VisitorId| Evidence { visitor: v, id: id(n), ..login(1, PARTNER, 1, u64::from(n)) };
    let rows: Vec<Evidence> = (0..100_000).flat_map(|n| [link(n, at(n)), link(n, at(n + 1))]).collect();
    let people = found(&rows);
    assert_eq!(people.people.len(), 1);
    assert_eq!(people.people[0].members.len(), 100_001);
    assert_eq!(people.people[0].master, at(100_000));
}

/// Evidence of all weights about nine visitors, three members, and ids of two other kinds, with several sources.
fn unsure() -> impl Strategy<Value = Vec<Evidence>> {
    let row = (0u8..9, 1u8..4, 0u8..3, prop_oneof![2 => Just(1_000u16), 5 => 100u16..1_000], 0u64..12, 3u8..7);
    vec(row, 0..24).prop_map(|rows| {
        let rows = rows.into_iter().map(|(owner, kind, n, weight, first, source)| Evidence {
            visitor: visitor(owner),
            id: alternate(KindCode(kind), n),
            source,
            weight: EvidenceWeight(weight),
            first,
            last: first,
            cancelled: None,
        });
        rows.collect()
    })
}

/// The path of greatest weight between two of a person's visitors and ids, by brute force. Ids tied by a login are
/// merged with their visitors.
fn surest(
    rows: &[Evidence],
    found: &LinkedPeople,
    from: VisitorId,
    to: VisitorId,
    threshold: EvidenceWeight,
) -> EvidenceWeight {
    let mut ties: BTreeMap<(VisitorId, AlternateId), Vec<Evidence>> = BTreeMap::new();
    rows.iter().for_each(|e| ties.entry((e.visitor, e.id)).or_default().push(*e));
    let flagged: BTreeSet<(VisitorId, AlternateId)> = found.flags.iter().map(|f| (f.visitor, f.id)).collect();
    let ties = ties.into_iter().filter(|(tie, _)| !flagged.contains(tie));
    let ties: Vec<((VisitorId, AlternateId), EvidenceWeight)> = ties
        .filter_map(|(tie, rows)| Some((tie, combine_evidence(rows)?.0)))
        .filter(|(_, weight)| *weight >= threshold)
        .collect();
    let mut known: BTreeMap<VisitorId, EvidenceWeight> = [(from, EvidenceWeight::LOGIN)].into();
    for _ in 0..rows.len() {
        for ((a, id), one) in &ties {
            for ((b, other), two) in &ties {
                if let Some(at) = known.get(a).copied().filter(|_| id == other) {
                    let way = at.min(*one).min(*two);
                    let best = known.entry(*b).or_insert(way);
                    *best = way.max(*best);
                }
            }
        }
    }
    known.get(&to).copied().unwrap_or(EvidenceWeight::NOTHING)
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn a_link_below_full_weight_joins_no_visitor_with_another_unique_id_in_any_order(
        rows in unsure(), by in any::<u64>(), threshold in 100u16..=1_000,
    ) {
        let people_of = |rows: &[Evidence]| link_people(rows, class, EvidenceWeight(threshold));
        let found = people_of(&rows);
        prop_assert_eq!(people_of(&shuffled(&rows, by)), found.clone());
        for person in &found.people {
            let held: BTreeSet<_> = person.members.iter().filter_map(|v| found.unique.get(v)).collect();
            prop_assert!(held.len() <= 1, "{:?}", held);
            // Of the ids that tie a person, including unsure ones, at most one is of the unique kind.
            let ties = rows.iter().filter(|e| person.members.contains(&e.visitor) && unique(e.id.kind));
            let sure = ties.filter(|e| {
                let all = rows.iter().filter(|other| (other.visitor, other.id) == (e.visitor, e.id)).copied();
                combine_evidence(all).is_some_and(|(weight, _)| weight >= EvidenceWeight(threshold))
                    && !found.flags.iter().any(|flag| (flag.visitor, flag.id) == (e.visitor, e.id))
            });
            prop_assert!(sure.map(|e| e.id).collect::<BTreeSet<_>>().len() <= 1);
        }
        // The people of logins alone stay together.
        let logins: Vec<Evidence> = rows.iter().filter(|e| e.weight >= EvidenceWeight::LOGIN).copied().collect();
        let alone = self::found(&logins);
        for person in &alone.people {
            prop_assert!(found.people.iter().any(|other| person.members.is_subset(&other.members)));
        }
    }

    #[test]
    fn the_weight_of_a_visitor_is_the_weakest_link_on_the_surest_path(rows in unsure(), threshold in 100u16..=1_000) {
        let found = link_people(&rows, class, EvidenceWeight(threshold));
        for person in &found.people {
            let holder = person.members.iter().find(|v| found.unique.contains_key(v));
            let Some(centre) = holder else { continue };
            for member in &person.members {
                let weight = found.weights.get(member).copied().unwrap_or(EvidenceWeight::LOGIN);
                prop_assert_eq!(weight, surest(&rows, &found, *centre, *member, EvidenceWeight(threshold)), "{:?}", member);
            }
        }
    }

    #[test]
    fn evidence_of_several_sources_is_combined_as_independent(
        weights in vec(1u16..1_000, 1..6), at in any::<prop::sample::Index>(),
    ) {
        let of = |weights: &[u16]| {
            let row = |(w, source): (&u16, u8)| Evidence { source, weight: EvidenceWeight(*w), ..login(1, PARTNER, 1, 5) };
            combine_evidence(weights.iter().zip(0..).map(row)).map_or(EvidenceWeight::NOTHING, |(weight, _)| weight)
        };
        let all = of(&weights);
        let wrong: f64 = weights.iter().map(|w| 1.0 - f64::from(*w) / 1_000.0).product();
        prop_assert!((all.as_f64() - (1.0 - wrong)).abs() <= 0.001 + 1e-9, "{:?} beside {}", all, 1.0 - wrong);
        prop_assert!(all <= EvidenceWeight::UNSURE && all >= *weights.iter().max().map(|w| EvidenceWeight(*w)).iter().next().unwrap_or(&all));
        // Additional evidence never lowers the weight, and the order does not matter.
        let mut fewer = weights.clone();
        fewer.remove(at.index(weights.len()));
        prop_assert!(of(&fewer) <= all);
        fewer = weights.iter().rev().copied().collect();
        prop_assert_eq!(of(&fewer), all);
        fewer.push(1_000);
        prop_assert_eq!(of(&fewer), EvidenceWeight::LOGIN);
    }
}

#[test]
fn only_the_surest_evidence_of_one_source_counts() {
    let row = |source, weight| Evidence { source, weight: EvidenceWeight(weight), ..login(1, PARTNER, 1, 5) };
    let weight = |rows: &[Evidence]| combine_evidence(rows.iter().copied()).map(|(weight, _)| weight);
    assert_eq!(weight(&[row(3, 500), row(3, 400), row(3, 100)]), Some(EvidenceWeight(500)));
    assert_eq!(weight(&[row(3, 500), row(4, 500), row(3, 100)]), Some(EvidenceWeight(750)));
}

#[test]
fn the_weakest_link_of_a_chain_between_two_members_is_left_out() {
    let row = |owner: u8, id: AlternateId, weight: u16, first: u64| Evidence {
        visitor: visitor(owner),
        id,
        source: 3,
        weight: EvidenceWeight(weight),
        first,
        last: first,
        cancelled: None,
    };
    let pair = |a: u8, b: u8, weight: u16, first: u64| {
        let id = AlternateId::pair(visitor(a), visitor(b));
        [row(a, id, weight, first), row(b, id, weight, first)]
    };
    let logins = [row(1, alternate(MEMBER, 1), 1_000, 1), row(5, alternate(MEMBER, 2), 1_000, 1)];
    let chain = [pair(1, 2, 900, 1), pair(2, 3, 600, 2), pair(3, 4, 700, 3), pair(4, 5, 950, 4)].concat();
    let rows = [logins.to_vec(), chain].concat();
    let found = link_people(&rows, class, EvidenceWeight(500));
    let parts: Vec<Vec<VisitorId>> = found.people.iter().map(|p| p.members.iter().copied().collect()).collect();
    assert_eq!(parts, [vec![visitor(1), visitor(2)], vec![visitor(3), visitor(4), visitor(5)]]);
    let weak = AlternateId::pair(visitor(2), visitor(3));
    assert!(
        found.flags.iter().all(|flag| flag.id == weak && flag.reason == FlagReason::JoinsTwoPeople),
        "{:?}",
        found.flags
    );
    assert_eq!(found.flags.len(), 1, "of the two halves of the link one is enough");
    assert_eq!(
        found.weights,
        [(visitor(2), EvidenceWeight(900)), (visitor(3), EvidenceWeight(700)), (visitor(4), EvidenceWeight(950))]
            .into()
    );
    // With a higher threshold, the weaker links are left out.
    let found = link_people(&rows, class, EvidenceWeight(800));
    assert_eq!(found.people.len(), 3);
    assert_eq!(found.flags.len(), 0);
}
