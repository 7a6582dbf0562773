//! The laws of the join, over states that can really occur. A join is commutative, associative and idempotent, and its
//! values equal those of a list of all facts.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::BTreeMap;

use crate::common::{
    History, NOW, Picked, Published, beyond, fold, history, known, law, naive, picked, profile_of, published, restored,
    scramble, tokens, version, visitor,
};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use causeway_shared::base::time::Minute;
use causeway_shared::facts::attributes::{AttributeValue, NameToken};
use causeway_shared::facts::events::EventCount;
use causeway_shared::facts::exposures::{Exposures, FirstExposure};
use causeway_shared::facts::fact::{Fact, FactKind, PAGE, PURCHASE};
use causeway_shared::facts::segments::WriteStamp;
use causeway_shared::profiles::ledger::Ledger;
use causeway_shared::profiles::membership::{Membership, Memberships};
use causeway_shared::profiles::profile::{KnownVisitor, Profile, ProfileParts, ProfileTotals, SubProfile};
use causeway_shared::profiles::view::{JoinedView, Snapshot, StoredValue};
use causeway_shared::wire::{self, kv_keys};
use proptest::prelude::*;

/// The snapshots that a reader has read.
fn chosen(of: &Published, snapshots: u8) -> Vec<&Snapshot> {
    of.snapshots.iter().enumerate().filter(|(i, _)| snapshots >> i & 1 == 1).map(|(_, s)| s).collect()
}

/// All pieces in a random order, some of them twice.
fn met<T: Clone>(pieces: &[T], order: u64) -> Vec<T> {
    let twice =
        pieces.iter().enumerate().filter(|(i, _)| scramble(!order ^ *i as u64) & 1 == 1).map(|(_, piece)| piece);
    let mut all: Vec<(usize, &T)> = pieces.iter().chain(twice).enumerate().collect();
    all.sort_by_key(|(i, _)| scramble(order ^ *i as u64));
    all.into_iter().map(|(_, piece)| piece.clone()).collect()
}

/// One input of a reader's view.
#[derive(Clone)]
enum Piece<'a> {
    Snapshot(&'a Snapshot),
    Known(VisitorId, KnownVisitor),
}

/// A reader's view of some snapshots, and of its other knowledge of each visitor.
fn view(of: &Published, snapshots: u8, additions: &[Picked], order: u64) -> JoinedView {
    let each = of.histories.iter().flat_map(|history| additions.iter().map(move |picked| (history, *picked)));
    let additions = each.map(|(history, picked)| Piece::Known(history.visitor, known(history, picked)));
    let pieces: Vec<Piece> = chosen(of, snapshots).into_iter().map(Piece::Snapshot).chain(additions).collect();
    let mut view = JoinedView::default();
    for piece in met(&pieces, order) {
        match piece {
            Piece::Snapshot(snapshot) => view.add_snapshot(snapshot.clone()),
            Piece::Known(visitor, known) => view.add_known(visitor, known),
        }
    }
    view
}

/// Whether a fact is a page or a purchase, by event name.
fn is_of(fact: &Fact, name: &str) -> bool {
    match &fact.what {
        FactKind::Page { .. } => name == PAGE,
        FactKind::Track { name: of, .. } => name == PURCHASE && of == name,
        _ => false,
    }
}

/// The facts without repeated purchases of an order. The facts of each visitor are adjacent.
fn each_order_once(facts: Vec<&Fact>) -> Vec<&Fact> {
    let order = |fact: &Fact| if let FactKind::Track { order, .. } = fact.what { order } else { None };
    let is_first = |(index, fact): &(usize, &&Fact)| {
        let same = facts.iter().enumerate().filter(|(_, other)| order(other) == order(fact));
        order(fact).is_none()
            || same.map(|(index, other)| (Minute::at(other.at), index)).min() == Some((Minute::at(fact.at), *index))
    };
    facts.iter().enumerate().filter(is_first).map(|(_, fact)| *fact).collect()
}

/// The newest version of a history, with pages of a ledger in addition.
fn with_ledger(history: &History, extra: u64) -> KnownVisitor {
    let ledger_facts = history.newest().iter().enumerate().filter(|(i, _)| scramble(extra ^ *i as u64) & 1 == 1);
    let pages = ledger_facts.map(|(_, f)| f).chain(history.pending()).filter_map(beyond);
    KnownVisitor::from_beyond(pages).join(KnownVisitor::from_sub(history.sub(usize::MAX, true)))
}

/// A profile after a round trip through the store.
fn stored(mut profile: Profile) -> Profile {
    let visitor = VisitorId::mint(NOW, [1; 10]);
    let core = wire::profile::decode_profile(visitor, &wire::profile::encode_profile(visitor, &profile)).unwrap();
    let ProfileParts { attributes, exposures, events, .. } = profile.take_parts();
    let attributes = wire::profile::decode_attributes(&attributes.pack()).unwrap();
    let exposures = Exposures::read(&exposures.pack()).unwrap();
    let events = wire::profile::decode_events(&events.pack()).unwrap();
    core.with_parts(ProfileParts { attributes, exposures, events, ..ProfileParts::default() })
}

/// The greatest write of each attribute.
fn attribute_values(facts: &[&Fact]) -> BTreeMap<NameToken, AttributeValue> {
    let mut last: BTreeMap<NameToken, (WriteStamp, Option<AttributeValue>)> = BTreeMap::new();
    for fact in facts {
        let FactKind::Attributes { writes } = &fact.what else { continue };
        for (token, value) in tokens(writes) {
            let write = (fact.stamp(), value);
            let there = last.entry(token).or_insert(write.clone());
            *there = write.max(there.clone());
        }
    }
    last.into_iter().filter_map(|(token, (_, value))| Some((token, value?))).collect()
}

/// For each experiment the least (receipt, arm), and whether there is another arm.
fn exposed(facts: &[&Fact]) -> BTreeMap<u32, FirstExposure> {
    let mut seen: BTreeMap<u32, Vec<(u64, u8)>> = BTreeMap::new();
    for fact in facts {
        if let FactKind::Exposure { experiment, arm } = fact.what {
            seen.entry(experiment).or_default().push((fact.received, arm));
        }
    }
    let first = |all: Vec<(u64, u8)>| {
        let (at, arm) = *all.iter().min().unwrap();
        FirstExposure { arm, at, mixed: all.iter().any(|(_, other)| *other != arm) }
    };
    seen.into_iter().map(|(experiment, all)| (experiment, first(all))).collect()
}

fn at_most(part: ProfileTotals, whole: ProfileTotals) -> bool {
    part.pages <= whole.pages
        && part.sessions <= whole.sessions
        && part.purchases <= whole.purchases
        && part.revenue <= whole.revenue
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn join_of_sub_profiles_is_commutative_associative_idempotent(h in history(1), picks in any::<[(u8, bool); 3]>()) {
        let [a, b, c]: [SubProfile; 3] = picks.map(|(i, named)| h.sub(usize::from(i % 5), named));
        prop_assert_eq!(a.clone().join(b.clone()), b.clone().join(a.clone()));
        prop_assert_eq!(a.clone().join(b.clone()).join(c.clone()), a.clone().join(b.join(c)));
        prop_assert_eq!(a.clone().join(a.clone()), a);
    }

    #[test]
    fn join_of_what_is_known_is_commutative_associative_idempotent(h in history(1), p in [picked(), picked(), picked()]) {
        let [a, b, c] = p.map(|p| known(&h, p));
        prop_assert_eq!(a.clone().join(b.clone()), b.clone().join(a.clone()));
        prop_assert_eq!(a.clone().join(b.clone()).join(c.clone()), a.clone().join(b.join(c)));
        prop_assert_eq!(a.clone().join(a.clone()), a);
    }

    #[test]
    fn memberships_do_not_depend_on_the_order_of_decisions_or_on_repeats(of in published(), snapshots in any::<u8>(), orders in any::<[u64; 2]>()) {
        let [a, b] = orders.map(|order| {
            let mut all = Memberships::default();
            met(&chosen(&of, snapshots), order).into_iter().for_each(|s| all.add(s.membership.clone()));
            all
        });
        prop_assert_eq!(a, b);
    }

    #[test]
    fn a_view_does_not_depend_on_the_order_of_what_was_met_or_on_repeats(of in published(), snapshots in any::<u8>(), additions in [picked(), picked()], orders in any::<[u64; 2]>()) {
        let [a, b] = orders.map(|order| view(&of, snapshots, &additions, order));
        prop_assert_eq!(a, b);
    }

    #[test]
    fn a_view_does_not_depend_on_the_order_of_its_siblings_or_on_repeats(of in published(), snapshots in any::<u8>(), own in 0u8..3, orders in any::<[u64; 2]>()) {
        let own = visitor(own);
        let (mine, siblings): (Vec<_>, Vec<_>) = chosen(&of, snapshots).into_iter().partition(|s| s.visitor == own);
        let [a, b] = orders.map(|order| {
            let siblings = || met(&siblings, order).into_iter().map(|s| (s.visitor, s.clone())).collect();
            let mut view = JoinedView::default();
            met(&mine, order).into_iter().for_each(|s| view.add_snapshot(s.clone()));
            view.add_siblings(own, siblings());
            let once = view.clone();
            view.add_siblings(own, siblings());
            assert_eq!(view, once);
            view
        });
        prop_assert_eq!(a, b);
    }

    #[test]
    fn the_fold_does_not_depend_on_order_batches_or_repeats(h in history(1), shuffle in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let at_once = profile_of(&h.facts);
        let mut shuffled = h.facts.clone();
        shuffled.sort_by_key(|f| scramble(f.id.short() ^ shuffle));
        prop_assert_eq!(&profile_of(&shuffled), &at_once);
        let repeated: Vec<_> = h.arrived.iter().chain(&shuffled).chain(&h.facts).collect();
        prop_assert_eq!(&profile_of(repeated), &at_once);
        let (first, second) = shuffled.split_at(cut.index(shuffled.len() + 1));
        let mut in_batches = stored(profile_of(first));
        second.iter().for_each(|f| fold(&mut in_batches, f));
        prop_assert_eq!(&in_batches, &at_once);
        // As in the store: parts from other rows are joined with the newer ones.
        let mut since = stored(profile_of(first));
        let parts = since.take_parts();
        second.iter().for_each(|f| fold(&mut since, f));
        let in_batches = since.with_parts(parts);
        prop_assert_eq!(&in_batches, &at_once);
        prop_assert_eq!(at_once.totals(), naive(&h.facts.iter().collect::<Vec<_>>()));
    }

    #[test]
    fn the_newest_version_and_the_ledger_of_all_since_give_the_exact_count(h in history(1), extra in any::<u64>()) {
        let read = with_ledger(&h, extra).totals();
        let pages = h.pending().iter().filter(|f| beyond(f).is_some());
        let exact = naive(&h.newest().iter().chain(pages).collect::<Vec<_>>());
        let sub = h.sub(usize::MAX, true);
        // A page that more than 64 newer facts overtook is counted at the next version only.
        let floor = sub.names().map_or(0, |n| n.newest.floor());
        let overtaken = |f: &&causeway_shared::facts::fact::Fact| beyond(f).is_some() && f.received < floor;
        let late = h.pending().iter().filter(overtaken).count() as u64;
        prop_assert_eq!(read.pages, exact.pages - late);
        prop_assert_eq!((read.purchases, read.revenue), (exact.purchases, exact.revenue));
        prop_assert!(read.sessions <= exact.sessions);
        // The newest eight sessions are named, so fewer than eight are counted exactly.
        if late == 0 && exact.sessions < 8 {
            prop_assert_eq!(read.sessions, exact.sessions);
        }
    }

    #[test]
    fn no_mix_of_versions_and_ledgers_counts_a_page_twice(h in history(1), p in [picked(), picked()]) {
        let [a, b] = p.map(|p| known(&h, p));
        let least = a.named().map(SubProfile::totals).unwrap_or_default();
        let read = a.clone().join(b).totals();
        prop_assert!(at_most(read, naive(&h.facts.iter().collect::<Vec<_>>())), "{read:?}");
        // A store restored from a backup may have less than before, in versions that are newer.
        let restored = p.iter().any(|(named, unnamed, _)| *named == 255 || *unnamed == 255);
        prop_assert!(restored || at_most(least, read), "{least:?} {read:?}");
    }

    #[test]
    fn facts_lost_by_a_restore_do_not_count(h in history(1), named in any::<[bool; 3]>(), i in 0usize..5) {
        let before = KnownVisitor::from_sub(h.sub(usize::MAX, named[0])).join(KnownVisitor::from_sub(h.sub(i, named[1])));
        let restored = restored(&h.sub(0, named[2]));
        let totals = restored.totals();
        let after = KnownVisitor::from_sub(restored);
        prop_assert_eq!(before.clone().join(after.clone()).totals(), totals);
        prop_assert_eq!(after.join(before).totals(), totals);
    }

    #[test]
    fn what_a_version_holds_every_later_one_holds(h in history(1)) {
        for (earlier, later) in (0..h.published.len()).zip(1..h.published.len()) {
            let (earlier, later) = (h.sub(earlier, true), h.sub(later, true));
            for fact in &h.facts {
                let held = |s: &SubProfile| s.holds(fact.received, fact.id.short());
                prop_assert!(!held(&earlier) || held(&later), "{fact:?}");
            }
        }
    }

    #[test]
    fn what_was_folded_is_held(h in history(1), i in 0usize..5) {
        let sub = h.sub(i, true);
        let folded = &h.arrived[..h.published[i.min(h.published.len() - 1)]];
        prop_assert!(folded.iter().all(|f| sub.holds(f.received, f.id.short())));
    }

    #[test]
    fn a_merge_loses_no_fact_and_counts_no_visit_twice(a in history(0), b in history(1), c in history(2), extra in any::<u64>()) {
        let histories = [a, b, c];
        let mut parts: Vec<(VisitorId, SubProfile)> = Vec::new();
        for history in &histories {
            parts.push((history.visitor, history.sub(usize::MAX, true)));
            // The same sub-profile from a sibling's snapshot, and an older one.
            parts.push((history.visitor, history.sub(usize::MAX, false)));
            parts.push((history.visitor, history.sub((extra % 4) as usize, true)));
        }
        let mut all = JoinedView::default();
        met(&parts, extra).into_iter().for_each(|(of, sub)| all.add_known(of, KnownVisitor::from_sub(sub)));
        let facts: Vec<_> = histories.iter().flat_map(History::newest).collect();
        prop_assert_eq!(all.of(visitor(0)).totals(), naive(&facts));
        prop_assert_eq!(all.of(visitor(2)).totals(), naive(&facts));
        for history in &histories {
            prop_assert_eq!(all.own(history.visitor), naive(&history.newest().iter().collect::<Vec<_>>()));
        }
    }

    #[test]
    fn the_times_of_a_persons_pages_and_purchases_equal_those_of_its_facts(
        a in history(0), b in history(1), c in history(2), extra in any::<u64>(), minutes in [0..60_u32, 0..60_u32], ago in 0..3_000_u32,
    ) {
        let histories = [a, b, c];
        let (from, to) = (Minute(Minute::at(NOW).0 - ago - minutes[0]), Minute(Minute::at(NOW).0 - ago + minutes[1]));
        for own in 0..3 {
            let mut view = JoinedView::default();
            for (index, history) in histories.iter().enumerate() {
                let known = if index == own { with_ledger(history, extra) } else { KnownVisitor::from_sub(history.sub(usize::MAX, false)) };
                view.add_known(history.visitor, known);
            }
            for name in [PAGE, PURCHASE] {
                let is_within = |at: u64| (from..to).contains(&Minute::at(at));
                let held = each_order_once(histories.iter().flat_map(History::newest).collect());
                let sub = histories[own].sub(usize::MAX, true);
                let floor = sub.names().map_or(0, |names| names.newest.floor());
                let pending = histories[own].pending().iter().filter(|fact| beyond(fact).is_some() && fact.received >= floor);
                // A ledger knows the receive time of a page, which is the time of the page.
                let held = held.iter().filter(|fact| is_of(fact, name)).filter(|fact| is_within(fact.at)).count();
                let exact = (held + pending.filter(|fact| is_of(fact, name) && is_within(fact.received)).count()) as u64;
                let count = view.of(histories[own].visitor).within(name, from, to).unwrap();
                prop_assert!(count.least() <= exact && count.exact().is_none_or(|count| count == exact), "{name}: {count:?} of {exact}");
                // Each snapshot has all minutes of its visitor.
                if histories.iter().all(|h| h.facts.len() <= limits::SNAPSHOT_EVENT_MINUTES) {
                    prop_assert_eq!(count, EventCount::Exactly(exact), "{}", name);
                }
            }
        }
    }

    #[test]
    fn every_mix_of_versions_and_ledgers_counts_at_least_the_facts_that_it_holds(
        h in history(1), p in picked(), minutes in [0..60_u32, 0..60_u32], ago in 0..3_000_u32,
    ) {
        let (from, to) = (Minute(Minute::at(NOW).0 - ago - minutes[0]), Minute(Minute::at(NOW).0 - ago + minutes[1]));
        let known = known(&h, p);
        let restored = p.0 == 255 || p.1 == 255;
        let is_met = |i: &usize| p.0 >> i & 1 == 1 || p.1 >> i & 1 == 1 || scramble(p.2 ^ 77 ^ *i as u64) & 4 == 4;
        let newest = if restored { Some(0) } else { (0..h.published.len()).filter(is_met).max() };
        let held: BTreeMap<_, _> = h.arrived[..newest.map_or(0, |i| h.published[i])].iter().map(|fact| (fact.id, fact)).collect();
        let ledger: Vec<&Fact> =
            h.facts.iter().enumerate().filter(|(i, f)| scramble(p.2 ^ *i as u64) & 1 == 1 && beyond(f).is_some()).map(|(_, f)| f).collect();
        // A page that newer ones overtook counts as contained.
        let floor = known.named().and_then(SubProfile::names).map_or(0, |names| names.newest.floor());
        let overtaken = ledger.iter().any(|fact| fact.received < floor && !held.contains_key(&fact.id));
        let is_within = |at: u64| (from..to).contains(&Minute::at(at));
        for name in [PAGE, PURCHASE] {
            let of_held = held.values().filter(|fact| is_of(fact, name) && is_within(fact.at)).count();
            let additions = ledger.iter().filter(|fact| is_of(fact, name) && !held.contains_key(&fact.id) && is_within(fact.received)).count();
            let count = known.within(name, from, to).unwrap();
            let all = h.facts.iter().filter(|fact| is_of(fact, name) && (is_within(fact.at) || is_within(fact.received))).count();
            prop_assert!(count.least() <= all as u64, "{name}: {count:?} of {all}");
            let exact = (of_held + additions) as u64;
            prop_assert!(overtaken || count.exact().is_none_or(|count| count == exact), "{name}: {count:?} of {exact}");
        }
    }

    #[test]
    fn a_person_s_attributes_are_the_last_writes_of_its_visitors(a in history(0), b in history(1), c in history(2)) {
        let histories = [a, b, c];
        let mut view = JoinedView::default();
        histories.iter().for_each(|h| view.add_known(h.visitor, KnownVisitor::from_sub(h.sub(usize::MAX, false))));
        let facts: Vec<&Fact> = histories.iter().flat_map(History::newest).collect();
        prop_assert_eq!(view.of(visitor(1)).attributes().iter().map(|(t, v)| (t, v.clone())).collect::<BTreeMap<_, _>>(), attribute_values(&facts));
        for history in &histories {
            let own = view.attributes_of(history.visitor).map(|packed| packed.iter().collect::<BTreeMap<_, _>>());
            prop_assert_eq!(own.unwrap_or_default(), attribute_values(&history.newest().iter().collect::<Vec<_>>()));
        }
    }

    #[test]
    fn join_of_exposures_is_commutative_associative_idempotent(h in [history(0), history(1), history(2)]) {
        let [a, b, c] = h.map(|h| profile_of(&h.facts).exposures().clone());
        prop_assert_eq!(a.clone().join(b.clone()), b.clone().join(a.clone()));
        prop_assert_eq!(a.clone().join(b.clone()).join(c.clone()), a.clone().join(b.join(c)));
        prop_assert_eq!(a.clone().join(a.clone()), a);
    }

    #[test]
    fn a_person_s_arm_is_the_one_that_any_of_its_visitors_saw_first(a in history(0), b in history(1), c in history(2)) {
        let histories = [a, b, c];
        let mut view = JoinedView::default();
        histories.iter().for_each(|h| view.add_known(h.visitor, KnownVisitor::from_sub(h.sub(usize::MAX, false))));
        let facts: Vec<&Fact> = histories.iter().flat_map(History::newest).collect();
        for own in histories.iter().map(|h| h.visitor) {
            prop_assert_eq!(view.of(own).exposures().iter().collect::<BTreeMap<_, _>>(), exposed(&facts));
            prop_assert_eq!(view.of(own).exposures().get(2), exposed(&facts).get(&2).copied());
        }
        for history in &histories {
            let own = view.exposures_of(history.visitor).iter().collect::<BTreeMap<_, _>>();
            prop_assert_eq!(own, exposed(&history.newest().iter().collect::<Vec<_>>()));
        }
    }

    #[test]
    fn a_wire_between_changes_no_join(of in published(), snapshots in any::<u8>(), order in any::<u64>()) {
        let tenant = "pub".parse().unwrap();
        let mut over_wire = of.clone();
        for snapshot in &mut over_wire.snapshots {
            let key = kv_keys::snapshot_key(&tenant, snapshot.visitor);
            let text = wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot.clone()))).unwrap();
            let back = wire::kv::decode_stored(&key, snapshot.visitor, text.as_bytes()).unwrap();
            prop_assert_eq!(&back, &StoredValue::Snapshot(Box::new(snapshot.clone())));
            if let StoredValue::Snapshot(back) = back {
                *snapshot = *back;
            }
        }
        prop_assert_eq!(view(&over_wire, snapshots, &[], order), view(&of, snapshots, &[], order));
    }

    #[test]
    fn a_ledger_is_the_same_after_its_cookie(h in history(1), counter in any::<u64>(), first in any::<prop::sample::Index>()) {
        let mut ledger = Ledger::new(h.visitor);
        ledger.highest = version(counter);
        h.facts.iter().skip(first.index(h.facts.len() + 1)).filter_map(beyond).for_each(|p| ledger.remember(p));
        let back = wire::cookies::decode_ledger(&wire::cookies::encode_ledger(&ledger)).unwrap();
        prop_assert_eq!(back.known(), ledger.known());
        prop_assert_eq!(back, ledger);
    }
}

/// A snapshot that is older than the tie to a sibling states one device.
#[test]
fn a_person_has_at_least_the_browsers_that_count() {
    let alone = Membership { devices: 1, admits: [visitor(1)].into(), ..Membership::default() };
    let mut view = JoinedView::default();
    view.add_known(visitor(1), KnownVisitor::default());
    view.add_snapshot(Snapshot {
        version: version(1),
        visitor: visitor(1),
        unique: Vec::new(),
        membership: alone,
        profiles: BTreeMap::new(),
        best: None,
    });
    view.add_known(visitor(2), KnownVisitor::default());
    view.add_known(visitor(3), KnownVisitor::default());
    for these in [&[1_u8][..], &[1, 2], &[1, 2, 3]] {
        let sure = these.iter().map(|owner| visitor(*owner)).collect();
        assert_eq!(view.of_these(visitor(1), &sure).devices(), these.len() as u32);
    }
}
