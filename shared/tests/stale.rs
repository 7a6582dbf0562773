//! A stale snapshot never brings back who was taken away: what decisions say, met in any mix of old and new.

use std::collections::BTreeSet;

use crate::common::{law, membership, version, visitor};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::time::Minute;
use causeway_shared::facts::events::EventCount;
use causeway_shared::facts::fact::PURCHASE;
use causeway_shared::profiles::membership::{Membership, Memberships};
use causeway_shared::profiles::profile::{KnownVisitor, Profile};
use causeway_shared::profiles::view::{JoinedView, Snapshot};
use proptest::collection::vec;
use proptest::prelude::*;

const VISITORS: u8 = 6;

/// One decision of the origin.
#[derive(Debug, Clone)]
enum Decide {
    /// The people of two visitors become one.
    Link(u8, u8),
    /// The evidence that holds a person together is cancelled; the bits assign its visitors to two halves.
    Split(u8, u8),
    /// A visitor withdraws its permission.
    Withdraw(u8),
}

fn decide() -> impl Strategy<Value = Decide> {
    let any_visitor = || 0..VISITORS;
    prop_oneof![
        5 => (any_visitor(), any_visitor()).prop_map(|(a, b)| Decide::Link(a, b)),
        3 => (any_visitor(), any::<u8>()).prop_map(|(a, bits)| Decide::Split(a, bits)),
        1 => any_visitor().prop_map(Decide::Withdraw),
    ]
}

/// The origin: people, visitors that are gone, and all decisions published so far.
#[derive(Debug, Clone)]
struct Origin {
    persons: Vec<BTreeSet<VisitorId>>,
    gone: BTreeSet<VisitorId>,
    decisions: Vec<Membership>,
}

impl Origin {
    fn after(steps: &[Decide]) -> Self {
        let persons = (0..VISITORS).map(|v| BTreeSet::from([visitor(v)])).collect();
        let mut origin = Self { persons, gone: BTreeSet::new(), decisions: Vec::new() };
        for step in steps {
            match step {
                Decide::Link(a, b) => origin.link(visitor(*a), visitor(*b)),
                Decide::Split(a, bits) => origin.split(visitor(*a), *bits),
                Decide::Withdraw(v) => origin.withdraw(visitor(*v)),
            }
        }
        origin
    }

    fn person(&self, v: VisitorId) -> BTreeSet<VisitorId> {
        self.persons.iter().find(|p| p.contains(&v)).cloned().unwrap_or_default()
    }

    fn together(&self, a: VisitorId, b: VisitorId) -> bool {
        self.person(a).contains(&b)
    }

    /// Replaces people by others. Each new one is a decision with its own epoch, which cuts the former members.
    fn replace(&mut self, old: &[BTreeSet<VisitorId>], new: Vec<BTreeSet<VisitorId>>) {
        let before: BTreeSet<VisitorId> = old.iter().flatten().copied().collect();
        let cut_before = |person: &BTreeSet<VisitorId>, decisions: &[Membership]| -> BTreeSet<VisitorId> {
            let last = |v: &VisitorId| decisions.iter().rev().find(|m| m.admits.contains(v));
            person.iter().filter_map(last).flat_map(|m| m.cuts.keys().copied()).collect()
        };
        self.persons.retain(|p| !old.contains(p));
        for person in new {
            let remembered = cut_before(&person, &self.decisions);
            let cuts: BTreeSet<VisitorId> =
                before.union(&remembered).filter(|v| !person.contains(v)).copied().collect();
            let epoch = self.decisions.len() as u64 + 1;
            let mut decision = membership(epoch, person.iter().copied(), cuts);
            for (_, cut) in decision.cuts.iter_mut().filter(|(v, _)| self.gone.contains(v)) {
                cut.gone = true;
            }
            self.decisions.push(decision);
            self.persons.push(person);
        }
    }

    fn link(&mut self, a: VisitorId, b: VisitorId) {
        let old = [self.person(a), self.person(b)];
        if old[0] != old[1] && !old.iter().any(BTreeSet::is_empty) {
            let one = old.iter().flatten().copied().collect();
            self.replace(&old, vec![one]);
        }
    }

    fn split(&mut self, a: VisitorId, bits: u8) {
        let old = self.person(a);
        let (left, right): (BTreeSet<_>, BTreeSet<_>) = old.iter().enumerate().partition(|(i, _)| bits >> i & 1 == 1);
        let parts = [left, right].map(|part| part.into_iter().map(|(_, v)| *v).collect::<BTreeSet<_>>());
        if !parts.iter().any(BTreeSet::is_empty) {
            self.replace(&[old], parts.to_vec());
        }
    }

    fn withdraw(&mut self, v: VisitorId) {
        let old = self.person(v);
        if old.is_empty() {
            return;
        }
        let rest: BTreeSet<VisitorId> = old.iter().filter(|m| **m != v).copied().collect();
        self.gone.insert(v);
        self.replace(&[old], if rest.is_empty() { Vec::new() } else { vec![rest] });
    }

    /// The newest decision that admits a visitor.
    fn newest_of(&self, v: VisitorId) -> Option<&Membership> {
        self.decisions.iter().rev().find(|m| m.admits.contains(&v))
    }
}

fn met(decisions: impl IntoIterator<Item = Membership>) -> Memberships {
    let mut all = Memberships::default();
    decisions.into_iter().for_each(|m| all.add(m));
    all
}

fn some(origin: &Origin, bits: u32) -> Vec<Membership> {
    origin.decisions.iter().enumerate().filter(|(i, _)| bits >> (i % 32) & 1 == 1).map(|(_, m)| m.clone()).collect()
}

fn sets_apart(m: &Membership, a: VisitorId, b: VisitorId) -> bool {
    let cut = |v| m.cuts.contains_key(&v);
    let admitted = |v| m.admits.contains(&v) && !cut(v);
    (cut(a) && admitted(b)) || (admitted(a) && cut(b))
}

/// Whether a decision concerns two visitors: it admits at least one and names both.
fn names_both(m: &Membership, a: VisitorId, b: VisitorId) -> bool {
    sets_apart(m, a, b) || (m.admits.contains(&a) && m.admits.contains(&b))
}

fn everybody() -> impl Iterator<Item = (VisitorId, VisitorId)> {
    (0..VISITORS).flat_map(|a| (0..VISITORS).map(move |b| (visitor(a), visitor(b))))
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn a_pair_that_the_newest_membership_separates_is_joined_by_no_stale_one(
        steps in vec(decide(), 0..12), bits in any::<u32>()
    ) {
        let origin = Origin::after(&steps);
        for (own, other) in everybody().filter(|(a, b)| a != b) {
            let Some(newest) = origin.decisions.iter().rev().find(|m| names_both(m, own, other)) else { continue };
            if sets_apart(newest, own, other) {
                let mut mix = some(&origin, bits);
                mix.push(newest.clone());
                prop_assert!(!met(mix).counts(own, other), "{own} {other} in spite of {newest:?}");
            }
        }
    }

    #[test]
    fn a_withdrawn_visitor_never_comes_back(steps in vec(decide(), 0..12), bits in any::<u32>()) {
        let origin = Origin::after(&steps);
        for gone in &origin.gone {
            for decision in origin.decisions.iter().filter(|m| m.cuts.get(gone).is_some_and(|cut| cut.gone)) {
                let mut mix = some(&origin, bits);
                mix.push(decision.clone());
                let reader = met(mix);
                for own in (0..VISITORS).map(visitor).filter(|own| own != gone) {
                    prop_assert!(!reader.counts(own, *gone), "{own} sees {gone} in spite of {decision:?}");
                }
            }
        }
    }

    #[test]
    fn the_newest_memberships_of_two_visitors_decide_whether_they_count_together(
        steps in vec(decide(), 0..12), bits in any::<u32>()
    ) {
        let origin = Origin::after(&steps);
        for (own, other) in everybody().filter(|(a, b)| a != b) {
            let (Some(mine), Some(theirs)) = (origin.newest_of(own), origin.newest_of(other)) else { continue };
            if origin.gone.contains(&own) || !(mine.cuts.contains_key(&other) || mine.admits.contains(&other)) {
                continue;
            }
            let mut mix = some(&origin, bits);
            mix.extend([mine.clone(), theirs.clone()]);
            prop_assert_eq!(met(mix).counts(own, other), origin.together(own, other), "{} {} {:?} {:?}", own, other, mine, theirs);
        }
    }

    #[test]
    fn a_reader_of_every_membership_sees_exactly_the_person(steps in vec(decide(), 0..12)) {
        let origin = Origin::after(&steps);
        let reader = met(origin.decisions.iter().cloned());
        for (own, other) in everybody().filter(|(a, b)| a != b && !origin.gone.contains(a)) {
            let named = origin.decisions.iter().any(|m| names_both(m, own, other));
            prop_assert_eq!(reader.counts(own, other) && named, origin.together(own, other), "{} {}", own, other);
        }
    }

    #[test]
    fn own_always_counts_and_so_does_a_login_that_no_decision_names_yet(steps in vec(decide(), 0..12), bits in any::<u32>()) {
        let origin = Origin::after(&steps);
        let reader = met(some(&origin, bits));
        let new = visitor(VISITORS);
        for v in (0..VISITORS).map(visitor) {
            prop_assert!(reader.counts(v, v));
            prop_assert!(reader.counts(v, new), "a visitor that no decision names");
            // A new visitor's view contains every visitor that the newest decision about it does not cut.
            let last = origin.decisions.iter().enumerate().filter(|(i, _)| bits >> (i % 32) & 1 == 1);
            let says = last.map(|(_, m)| m).rev().find(|m| m.admits.contains(&v) || m.cuts.contains_key(&v));
            prop_assert_eq!(reader.counts(new, v), says.is_none_or(|m| !m.cuts.contains_key(&v)));
        }
    }

    #[test]
    fn a_view_of_old_and_new_snapshots_holds_only_the_person(steps in vec(decide(), 1..12), bits in any::<u32>()) {
        let origin = Origin::after(&steps);
        let snapshot = |m: &Membership, of: VisitorId| Snapshot {
            version: version(m.epoch.0),
            visitor: of,
            unique: Vec::new(),
            membership: m.clone(),
            profiles: m.admits.iter().map(|v| (*v, Profile::default().sub_profile(version(1), *v == of))).collect(),
            best: None,
        };
        for own in (0..VISITORS).map(visitor).filter(|v| !origin.gone.contains(v)) {
            let Some(newest) = origin.newest_of(own) else { continue };
            let mut view = JoinedView::default();
            let stale = some(&origin, bits).into_iter().filter(|m| newest.admits.iter().chain(newest.cuts.keys()).any(|v| m.admits.contains(v)));
            // Old snapshots of the visitors that the reader's newest decision names, and the reader's own newest one.
            for m in stale.filter(|m| m.epoch <= newest.epoch) {
                if let Some(of) = m.admits.iter().next() {
                    view.add_snapshot(snapshot(&m, *of));
                }
            }
            view.add_snapshot(snapshot(newest, own));
            view.add_known(own, KnownVisitor::default());
            let is_named = |v: &VisitorId| newest.admits.contains(v) || newest.cuts.contains_key(v);
            let named: BTreeSet<VisitorId> = view.of(own).members().iter().copied().filter(is_named).collect();
            prop_assert_eq!(named, origin.person(own), "for {} under {:?}", own, newest);
        }
    }
}

#[test]
fn the_two_halves_of_an_unlinked_person_retain_their_own_facts() {
    let [a, b, c, d] = [0, 1, 2, 3].map(visitor);
    for (left, right) in [(2, 3), (3, 2)] {
        let all =
            met([membership(1, [a, b, c, d], []), membership(left, [a, b], [c, d]), membership(right, [c, d], [a, b])]);
        for (own, other, together) in
            [(a, b, true), (b, a, true), (c, d, true), (a, c, false), (d, b, false), (c, a, false)]
        {
            assert_eq!(all.counts(own, other), together, "{own} {other}");
        }
    }
}

#[test]
fn devices_are_counted_under_the_newest_membership() {
    let [a, b, c] = [0, 1, 2].map(visitor);
    let all = met([membership(1, [a, b, c], []), membership(2, [a, b], [c]), membership(3, [c], [a, b])]);
    assert_eq!(all.devices(a, &[a, b]), 2);
    assert_eq!(all.devices(c, &[c]), 1);
    // A login that no decision includes yet adds one device.
    let new = visitor(9);
    assert_eq!(all.devices(new, &[a, b, new]), 3);
    // A truncated snapshot names fewer visitors than the person has.
    let mut large = membership(4, [a, b], []);
    large.devices = 60;
    assert_eq!(met([large]).devices(a, &[a, b]), 60);
}

#[test]
fn counts_are_only_lower_bounds_while_browsers_of_the_person_are_missing() {
    let [a, b] = [0, 1].map(visitor);
    let often = |devices| {
        let mut decision = membership(1, [a, b], []);
        decision.devices = devices;
        let profiles = [a, b].map(|of| (of, Profile::default().sub_profile(version(1), of == a)));
        let mut view = JoinedView::default();
        view.add_snapshot(Snapshot {
            version: version(1),
            visitor: a,
            unique: Vec::new(),
            membership: decision,
            profiles: profiles.into_iter().collect(),
            best: None,
        });
        view.of(a).within(PURCHASE, Minute(0), Minute(9))
    };
    assert_eq!([2, 60].map(often), [Some(EventCount::Exactly(0)), Some(EventCount::AtLeast(0))]);
}
