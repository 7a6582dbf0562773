#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, VisitorId};
use causeway_shared::base::time::Minute;
use causeway_shared::facts::events::EventCount;
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind, PURCHASE};
use causeway_shared::keys::key_ring::KeyStage;
use causeway_shared::profiles::view::{JoinedView, StoredValue};

use crate::identity::connections::{self, VisitorLink};
use crate::identity::link::of_visitor;
use crate::testing::{NOW, Origin, alias, fact, ordered, page, purchase, snapshot, stored, visitor, withdrawal};

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;

fn members(origin: &Origin, v: u32) -> Vec<VisitorId> {
    origin.person("demo", visitor(v)).members
}

fn visitors(of: &[u32]) -> Vec<VisitorId> {
    of.iter().map(|n| visitor(*n)).collect()
}

#[test]
fn a_login_on_a_second_browser_makes_one_person_and_changes_no_profile() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(B), 1, NOW), origin.login(visitor(B), 2, NOW, "m")]);
    let before = origin.profile("demo", visitor(B));
    origin.send("demo", &[page(visitor(A), 1, NOW + 1), origin.login(visitor(A), 2, NOW + 1, "m")]);
    assert_eq!(members(&origin, A), visitors(&[A, B]));
    let person = origin.person("demo", visitor(B));
    assert_eq!((person.master, person.devices, person.view.pages), (visitor(A), 2, 2));
    assert_eq!(origin.profile("demo", visitor(B)), before);
    assert_eq!(origin.lookup("demo", "m"), visitors(&[A, B]));
}

#[test]
fn two_logins_with_one_cookie_join_no_people() {
    let mut origin = Origin::new();
    let seen = [
        origin.login(visitor(A), 1, NOW, "anna"),
        origin.login(visitor(B), 1, NOW + 1, "anna"),
        origin.login(visitor(B), 2, NOW + 2, "bert"),
        origin.login(visitor(C), 1, NOW + 3, "bert"),
    ];
    origin.send("demo", &seen);
    assert_eq!(members(&origin, A), visitors(&[A, B]));
    assert_eq!(members(&origin, C), visitors(&[C]));
    // The lookup of the id that does not hold leaves the visitor out too.
    assert_eq!(origin.lookup("demo", "bert"), visitors(&[C]));
    assert_eq!(origin.lookup("demo", "anna"), visitors(&[B, A]));
    let rows = of_visitor(&origin.conn, origin.tenant("demo").no, visitor(B)).unwrap();
    assert_eq!(rows.iter().filter(|r| r.flag.is_some()).count(), 1);
}

#[test]
fn a_snapshot_names_the_member_of_its_person() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    let home = origin.id("demo", KindCode(2), "home");
    origin.send("demo", &[page(visitor(B), 1, NOW), alias(visitor(B), 2, NOW, home)]);
    origin.settle(&mut kv);
    assert_eq!(snapshot(&kv, visitor(B)).unique, []);
    origin.send("demo", &[origin.login(visitor(A), 1, NOW + 1, "anna"), alias(visitor(A), 2, NOW + 1, home)]);
    origin.settle(&mut kv);
    let [a, b] = [A, B].map(|v| snapshot(&kv, visitor(v)));
    assert_eq!(b.membership.admits.len(), 2);
    assert_eq!((a.unique.len(), &b.unique), (1, &a.unique), "the member whose history it shows");
    // The login is cancelled: the browser belongs to no member again.
    origin.admin("demo", &[fact(visitor(B), 9, NOW + 2, FactKind::Cancellation { id: home })]);
    origin.settle(&mut kv);
    assert_eq!(snapshot(&kv, visitor(B)).unique, []);
}

#[test]
fn an_order_of_two_browsers_counts_once_for_their_person_and_undoing_the_merge_restores_both() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    let later = NOW + 120_000;
    origin.send(
        "demo",
        &[ordered(visitor(A), "o-7", later, 9), ordered(visitor(A), "o-8", NOW, 1), purchase(visitor(A), 1, NOW, 2)],
    );
    origin.send("demo", &[ordered(visitor(B), "o-7", NOW, 8), page(visitor(B), 1, NOW)]);
    origin.now = later;
    origin.settle(&mut kv);
    let sums =
        |origin: &Origin, v| (origin.view("demo", visitor(v)).purchases, origin.view("demo", visitor(v)).revenue.get());
    let of_edge = |kv: &BTreeMap<_, _>, v| {
        let mut view = JoinedView::default();
        view.add_snapshot(snapshot(kv, visitor(v)));
        let counted = view.of(visitor(v));
        let bought = counted.within(PURCHASE, Minute(Minute::at(NOW).0 - 60), Minute(Minute::at(NOW).0 + 60));
        ((counted.totals().purchases, counted.totals().revenue.get()), bought.map(EventCount::least))
    };
    assert_eq!([A, B].map(|v| sums(&origin, v)), [(3, 12), (1, 8)]);
    origin.send("demo", &[origin.login(visitor(A), 5, later, "anna"), origin.login(visitor(B), 5, later, "anna")]);
    origin.settle(&mut kv);
    // The earliest purchase counts, and a repeated one adds nothing.
    origin.send("demo", &[ordered(visitor(B), "o-7", later + 1, 8)]);
    origin.settle(&mut kv);
    assert_eq!([A, B].map(|v| sums(&origin, v)), [(3, 11), (3, 11)]);
    assert_eq!([A, B].map(|v| of_edge(&kv, v)), [((3, 11), Some(3)), ((3, 11), Some(3))]);
    let member = origin.member("demo", "anna");
    origin.admin("demo", &[fact(visitor(B), 9, later + 2, FactKind::Cancellation { id: member })]);
    origin.settle(&mut kv);
    assert_eq!([A, B].map(|v| sums(&origin, v)), [(3, 12), (1, 8)]);
    assert_eq!([A, B].map(|v| of_edge(&kv, v)), [((3, 12), Some(3)), ((1, 8), Some(1))]);
}

/// Facts that share a device, come late, repeat and withdraw.
fn tangle(origin: &Origin) -> Vec<Fact> {
    vec![
        origin.login(visitor(A), 1, NOW + 10, "anna"),
        origin.login(visitor(B), 1, NOW + 20, "anna"),
        origin.login(visitor(B), 2, NOW + 15, "bert"),
        origin.login(visitor(C), 1, NOW + 5, "bert"),
        origin.login(visitor(4), 1, NOW + 30, "anna"),
        origin.login(visitor(5), 1, NOW + 1, "bert"),
        origin.login(visitor(5), 2, NOW + 2, "carl"),
        origin.login(visitor(6), 1, NOW + 2, "carl"),
        origin.login(visitor(6), 2, NOW + 50, "carl"),
        origin.login(visitor(7), 1, NOW + 8, "carl"),
        withdrawal(visitor(7), NOW + 40),
        origin.login(visitor(7), 2, NOW + 60, "carl"),
    ]
}

/// The people as sets of visitors, and the visitors of each lookup.
type World = (Vec<Vec<VisitorId>>, Vec<Vec<VisitorId>>);

fn world(origin: &Origin) -> World {
    let people = (1..=7).map(|v| members(origin, v)).collect();
    let lookups = ["anna", "bert", "carl"].map(|m| origin.lookup("demo", m)).to_vec();
    (people, lookups)
}

#[test]
fn the_result_does_not_depend_on_order_or_batch() {
    let mut whole = Origin::new();
    let facts = tangle(&whole);
    whole.send("demo", &facts);
    let expected = world(&whole);
    assert_eq!(expected.0[0], visitors(&[1, 4]));
    assert_eq!(expected.0[1], visitors(&[2, 3, 5]));
    assert_eq!(expected.0[5], visitors(&[6]));
    assert_eq!(expected.0[6], visitors(&[7]));
    assert_eq!(expected.1[2], visitors(&[6]));

    in_any_order(tangle, &expected);
}

/// Ids of kinds that are not unique also link, but never two people with different unique ids.
fn shared(origin: &Origin) -> Vec<Fact> {
    let partner = |v, n, at, value| alias(visitor(v), n, NOW + at, origin.id("demo", KindCode(2), value));
    let mut facts = tangle(origin);
    facts.extend([
        partner(A, 11, 3, "home"),
        partner(C, 11, 4, "home"),
        partner(6, 11, 2, "home"),
        partner(4, 11, 9, "work"),
        partner(5, 11, 7, "work"),
        partner(7, 11, 1, "work"),
        partner(2, 11, 6, "cafe"),
        partner(6, 12, 70, "cafe"),
    ]);
    facts
}

#[test]
fn shared_ids_do_not_depend_on_order_or_batch_either() {
    let mut whole = Origin::new();
    let facts = shared(&whole);
    whole.send("demo", &facts);
    let expected = world(&whole);
    for people in &expected.0 {
        let held = people.iter().filter_map(|v| holds(&whole, *v)).collect::<BTreeSet<_>>();
        assert!(held.len() <= 1, "two members in one person");
    }
    in_any_order(shared, &expected);
}

fn holds(origin: &Origin, visitor: VisitorId) -> Option<AlternateId> {
    let tenant = origin.tenant("demo");
    super::held_unique(&origin.conn, tenant.no, visitor, |kind| tenant.config.is_unique(kind)).unwrap()
}

/// Sends the facts in 60 orders, cut into batches of 1 to 4, from a fixed seed of a small generator (Knuth's MMIX).
fn in_any_order(facts: impl Fn(&Origin) -> Vec<Fact>, expected: &World) {
    let mut seed = 7u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for round in 0..60 {
        let mut origin = Origin::new();
        let mut facts = facts(&origin);
        for i in (1..facts.len()).rev() {
            facts.swap(i, draw(i + 1));
        }
        while !facts.is_empty() {
            let taken: Vec<Fact> = facts.drain(..facts.len().min(1 + draw(4))).collect();
            origin.admin("demo", &taken);
        }
        assert_eq!(world(&origin), *expected, "round {round}");
    }
}

/// Cancels a visitor's connection with a member: everything received of it so far does not count.
fn cancellation(v: u32, n: u32, at: u64, id: AlternateId) -> Fact {
    fact(visitor(v), n, at, FactKind::Cancellation { id })
}

/// The tangle with cancellations: of existing, late, renewed and never observed evidence.
fn undone(origin: &Origin) -> Vec<Fact> {
    let member = |name| origin.member("demo", name);
    let home = origin.id("demo", KindCode(2), "home");
    let mut facts = tangle(origin);
    facts.extend([
        cancellation(B, 21, NOW + 25, member("anna")),
        cancellation(6, 21, NOW + 10, member("carl")),
        cancellation(5, 21, NOW + 1, member("bert")),
        cancellation(5, 22, NOW, member("bert")),
        cancellation(C, 21, NOW + 99, member("nobody")),
        cancellation(7, 21, NOW + 9, member("carl")),
        alias(visitor(A), 22, NOW + 4, home),
        alias(visitor(C), 22, NOW + 5, home),
        cancellation(A, 23, NOW + 4, home),
    ]);
    facts
}

#[test]
fn cancelled_evidence_links_nothing_in_any_order() {
    let mut whole = Origin::new();
    let facts = undone(&whole);
    whole.admin("demo", &facts);
    let expected = world(&whole);
    // B was not anna's and becomes bert's, with whom it was seen as well. Visitors seen again afterwards are linked
    // again.
    assert_eq!(expected.0[0], visitors(&[1, 4]));
    assert_eq!(expected.0[1], visitors(&[2, 3]));
    assert_eq!(expected.0[4], visitors(&[5, 6]));
    assert_eq!(expected.1[0], visitors(&[4, 1]));
    in_any_order(undone, &expected);
}

#[test]
fn a_cancelled_link_gives_the_views_of_a_world_that_never_linked() {
    let mut seed = 11u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for round in 0..40 {
        let (mut undone, mut never) = (Origin::new(), Origin::new());
        // The same keys give ids the same hashes.
        never.rules.tenants = undone.rules.tenants.clone();
        let (wrong, at) = (undone.login(visitor(A), 1, NOW + 1, "m"), NOW + 50);
        let mut facts = vec![undone.login(visitor(B), 1, NOW, "m"), undone.login(visitor(C), 1, NOW + 2, "m")];
        for n in 2..14 {
            let (v, received) = (1 + u32::try_from(draw(3)).unwrap(), NOW + draw(100) as u64);
            facts.push(page(visitor(v), n, received));
        }
        if round % 2 == 0 {
            facts.push(undone.login(visitor(A), 20, at + 1, if round % 4 == 0 { "m" } else { "n" }));
        }
        let mut sent = facts.clone();
        sent.extend([wrong, cancellation(A, 30, at, undone.member("demo", "m"))]);
        for i in (1..sent.len()).rev() {
            sent.swap(i, draw(i + 1));
        }
        while !sent.is_empty() {
            let taken: Vec<Fact> = sent.drain(..sent.len().min(1 + draw(4))).collect();
            undone.admin("demo", &taken);
            if draw(3) == 0 {
                undone.now += 1;
            }
        }
        never.send("demo", &facts);
        let seen = |origin: &mut Origin| -> Vec<_> {
            let mut kv = BTreeMap::new();
            origin.settle(&mut kv);
            let view = |v: u32| {
                let snapshot = snapshot(&kv, visitor(v));
                let totals: Vec<_> = snapshot.profiles.iter().map(|(v, sub)| (*v, sub.totals())).collect();
                (totals, snapshot.unique, snapshot.membership.devices)
            };
            [A, B, C].map(view).to_vec()
        };
        assert_eq!(seen(&mut undone), seen(&mut never), "round {round}");
        let lookups = |origin: &Origin| ["m", "n"].map(|member| origin.lookup("demo", member));
        assert_eq!(lookups(&undone), lookups(&never), "round {round}");
    }
}

#[test]
fn a_cancelled_link_does_not_return_with_weaker_evidence_of_the_same_source() {
    let id = AlternateId::pair(visitor(A), visitor(B));
    let tie = |n, at, weight| {
        let what = || FactKind::Evidence {
            id,
            also: Vec::new(),
            weight: EvidenceWeight(weight),
            source: EvidenceSource::Match,
        };
        [A, B].map(|of| fact(visitor(of), n, at, what()))
    };
    let ended = cancellation(A, 9, NOW + 5, id);
    let before = tie(1, NOW, 900);
    for (since, together) in [(tie(2, NOW + 9, 300), false), (tie(3, NOW + 9, 800), true)] {
        let facts = [before.to_vec(), since.to_vec(), vec![ended.clone()]].concat();
        for turn in 0..facts.len() {
            let mut origin = Origin::of_threshold(100, 0.5);
            let (late, early) = facts.split_at(turn);
            origin.admin("demo", early);
            origin.admin("demo", late);
            assert_eq!(members(&origin, A).len() == 2, together, "from {turn} on first");
        }
    }
}

#[test]
fn an_oversized_group_is_counted_by_visitors_and_not_by_repeated_evidence() {
    let mut origin = Origin::of_threshold(2, 0.5);
    let id = origin.id("demo", KindCode(2), "home");
    let tie = |n: u32, weight| {
        let what = || FactKind::Evidence {
            id,
            also: Vec::new(),
            weight: EvidenceWeight(weight),
            source: EvidenceSource::Model,
        };
        [A, B].map(|of| fact(visitor(of), n, NOW + u64::from(n), what()))
    };
    for (n, weight) in [(1, 800), (2, 810), (3, 820)] {
        origin.admin("demo", &tie(n, weight));
        assert_eq!(members(&origin, A), visitors(&[A, B]), "{n}");
    }
    origin.admin(
        "demo",
        &[fact(
            visitor(C),
            4,
            NOW + 4,
            FactKind::Evidence { id, also: Vec::new(), weight: EvidenceWeight(800), source: EvidenceSource::Model },
        )],
    );
    assert_eq!(members(&origin, A), visitors(&[A]), "three are an oversized group");
}

/// Links a visitor with a raw partner id, as an operator does.
fn said_by_hand(origin: &mut Origin, of: u32, n: u32, at: causeway_shared::base::ids::Millis) {
    let [kind, value, source] = ["partner", "p", "match"].map(|text| Some(text.to_owned()));
    let tie = VisitorLink { other: None, kind, value, weight: Some(0.9), source };
    let tenant = origin.tenant("demo").clone();
    let [Some((visitor, what)), None] = connections::parse_link(&tenant, visitor(of), &tie).unwrap() else {
        unreachable!()
    };
    let facts = connections::date_evidence(&origin.conn, tenant.no, vec![fact(visitor, n, at, what)]).unwrap().unwrap();
    origin.admin("demo", &facts);
}

fn together(origin: &Origin, a: u32, b: u32) -> bool {
    let checked = connections::check_pair(&origin.conn, origin.tenant("demo").no, visitor(a), visitor(b)).unwrap();
    checked.is_some_and(|checked| checked.connected)
}

#[test]
fn a_link_by_an_id_that_was_seen_before_the_keys_were_rotated_finds_it() {
    let mut origin = Origin::of_threshold(100, 0.6);
    let id = origin.id("demo", KindCode(2), "p");
    origin.send("demo", &[page(visitor(A), 1, NOW), alias(visitor(A), 2, NOW, id), page(visitor(B), 1, NOW)]);
    origin.change_keys("demo", |ring| {
        let mut new = ring[0].clone();
        (ring[0].stage, new.stage, new.id) = (KeyStage::Old, KeyStage::Active, ring[0].id + 1);
        ring.push(new);
    });
    assert_ne!(origin.tenant("demo").keys.alternate.hash_alternate(KindCode(2), "p")[0], id.hash);
    said_by_hand(&mut origin, B, 9, NOW + 1);
    assert!(together(&origin, A, B));
}

#[test]
fn a_link_after_the_erasure_of_its_id_counts_even_if_a_fast_clock_dated_the_erasure() {
    let mut origin = Origin::of_threshold(100, 0.6);
    let id = origin.id("demo", KindCode(2), "p");
    origin.send("demo", &[page(visitor(A), 1, NOW), page(visitor(B), 1, NOW), alias(visitor(C), 1, NOW + 180_000, id)]);
    let whom = crate::privacy::erasure_request::ErasureTarget::Id(id.kind, vec![id.hash]);
    let scope = causeway_shared::facts::fact::ErasureScope::Visitor;
    let at = crate::privacy::erasure_request::erasure_moment(&origin.conn, origin.tenant("demo"), &whom, scope, NOW)
        .unwrap();
    assert_eq!(at, NOW + 180_000);
    origin.admin("demo", &[whom.fact(scope, at, [1; 16])]);
    for (n, of) in [(9, A), (10, B)] {
        said_by_hand(&mut origin, of, n, NOW + 30_000);
    }
    assert!(together(&origin, A, B));
}

#[test]
fn a_repeated_link_counts_even_if_a_fast_clock_dated_its_cancellation() {
    let mut origin = Origin::of_threshold(100, 0.6);
    let id = origin.id("demo", KindCode(2), "p");
    origin.send("demo", &[alias(visitor(A), 1, NOW + 180_000, id), alias(visitor(B), 1, NOW, id)]);
    let last = connections::last_seen(&origin.conn, origin.tenant("demo"), visitor(A), id).unwrap();
    origin.admin("demo", &[connections::cancellation_fact(visitor(A), id, last, NOW, [1; 16])]);
    assert!(!together(&origin, A, B));
    said_by_hand(&mut origin, A, 9, NOW + 30_000);
    assert!(together(&origin, A, B));
    // An erased visitor gets no new evidence.
    let erasure = crate::privacy::erasure_request::ErasureTarget::Visitor(visitor(A)).fact(
        causeway_shared::facts::fact::ErasureScope::Visitor,
        NOW + 40_000,
        [0; 16],
    );
    origin.admin("demo", &[erasure]);
    let what = FactKind::Evidence { id, also: Vec::new(), weight: EvidenceWeight(900), source: EvidenceSource::Match };
    let facts = vec![fact(visitor(A), 10, NOW + 50_000, what)];
    assert_eq!(connections::date_evidence(&origin.conn, origin.tenant("demo").no, facts).unwrap(), Err(visitor(A)));
}

#[test]
fn an_unlinked_visitor_is_cut_from_its_sibling_s_snapshot_at_once() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    for v in [A, B] {
        origin.send("demo", &[page(visitor(v), 1, NOW), origin.login(visitor(v), 2, NOW, "m")]);
    }
    origin.settle(&mut kv);
    let tenant = origin.tenant("demo").clone();
    let shared =
        crate::identity::connections::connecting_evidence(&origin.conn, &tenant, visitor(A), visitor(B)).unwrap();
    assert_eq!(shared.keys().copied().collect::<Vec<_>>(), [origin.member("demo", "m")]);
    let id = *shared.keys().next().unwrap();
    let fact = crate::identity::connections::cancellation_fact(visitor(A), id, Some(shared[&id]), NOW - 5, [9; 16]);
    assert_eq!(fact.received, NOW, "not before what it cancels");
    origin.admin("demo", &[fact]);
    // Without a pause: both are due now.
    let due: BTreeSet<String> = origin.drain(100).into_iter().map(|write| write.key).collect();
    assert!([A, B].iter().all(|v| due.contains(&format!("v:demo:{}", visitor(*v)))), "{due:?}");
    origin.settle(&mut kv);
    let stale = snapshot(&kv, visitor(B)).membership.cuts[&visitor(A)];
    assert!(!stale.gone);
    assert_eq!(members(&origin, A), visitors(&[A]));
    assert!(
        crate::identity::connections::connecting_evidence(&origin.conn, &tenant, visitor(A), visitor(B))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_cancellation_under_one_hash_ends_evidence_under_another_of_the_same_id() {
    let (one, two) = (AltHash([1; 16]), AltHash([2; 16]));
    let id = |hash| AlternateId { kind: KindCode(1), hash };
    let seen = |v: u32, n, hash, also: &[AltHash], at| {
        fact(visitor(v), n, at, FactKind::Alias { id: id(hash), also: also.to_vec(), proven: true })
    };
    let mut facts = [
        seen(A, 1, one, &[], NOW),
        cancellation(A, 2, NOW + 1, id(two)),
        seen(B, 1, one, &[], NOW),
        seen(C, 1, two, &[one], NOW),
    ];
    for _ in 0..facts.len() {
        facts.rotate_left(1);
        let mut origin = Origin::new();
        facts.iter().for_each(|fact| origin.admin("demo", std::slice::from_ref(fact)));
        assert_eq!(members(&origin, A), visitors(&[A]));
        assert_eq!(members(&origin, B), visitors(&[B, C]));
    }
}

#[test]
fn an_older_fact_never_moves_a_lookup_and_ties_go_by_visitor() {
    let mut origin = Origin::new();
    origin.send("demo", &[origin.login(visitor(B), 1, NOW, "m")]);
    origin.send("demo", &[origin.login(visitor(C), 1, NOW - 5, "m")]);
    assert_eq!(origin.lookup("demo", "m"), visitors(&[B, C]));
    origin.send("demo", &[origin.login(visitor(A), 1, NOW, "m")]);
    assert_eq!(origin.lookup("demo", "m"), visitors(&[A, B, C]));
    origin.send("demo", &[origin.login(visitor(4), 1, NOW + 1, "m")]);
    assert_eq!(origin.lookup("demo", "m"), visitors(&[4, A, B]));
}

#[test]
fn without_proof_a_unique_id_links_nothing_and_moves_no_lookup() {
    let mut origin = Origin::new();
    let unproven = |origin: &Origin, v, n| {
        let id = origin.member("demo", "m");
        fact(visitor(v), n, NOW + 9, FactKind::Alias { id, also: Vec::new(), proven: false })
    };
    origin.send("demo", &[origin.login(visitor(A), 1, NOW, "m"), unproven(&origin, B, 1)]);
    assert_eq!(members(&origin, B), visitors(&[B]));
    assert_eq!(origin.lookup("demo", "m"), visitors(&[A]));
}

#[test]
fn an_id_that_is_not_unique_has_a_lookup_and_joins_too() {
    let mut origin = Origin::new();
    let id = origin.id("demo", KindCode(2), "household");
    origin.send("demo", &[alias(visitor(A), 1, NOW, id), alias(visitor(B), 1, NOW + 1, id)]);
    assert_eq!(members(&origin, A), visitors(&[A, B]));
    let found = crate::views::read::load_lookup(&origin.conn, origin.tenant("demo").no, id).unwrap().unwrap();
    assert_eq!(found.visitors, visitors(&[B, A]));
    assert_eq!(found.since, NOW + 1);
}

#[test]
fn both_hashes_of_a_rotation_are_one_id_whichever_comes_first() {
    let (one, two) = (AltHash([1; 16]), AltHash([2; 16]));
    let seen = |v: u32, n, hash, also: &[AltHash]| {
        let id = AlternateId { kind: KindCode(1), hash };
        fact(visitor(v), n, NOW + u64::from(v), FactKind::Alias { id, also: also.to_vec(), proven: true })
    };
    let orders = [
        vec![seen(A, 1, one, &[]), seen(B, 1, one, &[two]), seen(C, 1, two, &[])],
        vec![seen(C, 1, two, &[]), seen(A, 1, one, &[]), seen(B, 1, one, &[two])],
        vec![seen(A, 1, one, &[]), seen(B, 1, two, &[one]), seen(C, 1, two, &[])],
    ];
    for facts in orders {
        let mut origin = Origin::new();
        for fact in &facts {
            origin.send("demo", std::slice::from_ref(fact));
        }
        assert_eq!(members(&origin, A), visitors(&[A, B, C]));
        let mut together = Origin::new();
        together.send("demo", &facts);
        assert_eq!(members(&together, C), visitors(&[A, B, C]));
    }
}

#[test]
fn a_snapshot_names_its_member_first_by_the_key_that_is_written() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    origin.change_keys("demo", |ring| {
        let mut next = ring[0].clone();
        (ring[0].stage, next.stage, next.id) = (KeyStage::Old, KeyStage::Active, ring[0].id + 1);
        ring.push(next);
    });
    let (old, written) = (AltHash([1; 16]), AltHash([2; 16]));
    let seen = |n, hash, also: &[AltHash]| {
        let id = AlternateId { kind: KindCode(1), hash };
        fact(visitor(A), n, NOW + u64::from(n), FactKind::Alias { id, also: also.to_vec(), proven: true })
    };
    origin.send("demo", &[page(visitor(A), 1, NOW), seen(2, old, &[])]);
    origin.send("demo", &[seen(3, written, &[old])]);
    origin.settle(&mut kv);
    assert_eq!(snapshot(&kv, visitor(A)).unique, [written, old]);
}

#[test]
fn people_whom_a_visitor_left_before_are_told_when_it_withdraws() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    for v in [A, B, C] {
        origin.send("demo", &[page(visitor(v), 1, NOW), origin.login(visitor(v), 2, NOW, "m")]);
    }
    let now = origin.now;
    origin.admin("demo", &[cancellation(B, 3, now, origin.member("demo", "m"))]);
    origin.settle(&mut kv);
    let cut =
        |kv: &BTreeMap<String, String>| snapshot(kv, visitor(A)).membership.cuts.get(&visitor(B)).map(|cut| cut.gone);
    assert_eq!(cut(&kv), Some(false), "it is another person's by now");
    let now = origin.now;
    origin.send("demo", &[withdrawal(visitor(B), now)]);
    origin.settle(&mut kv);
    assert_eq!(cut(&kv), Some(true));
}

#[test]
fn who_withdraws_is_cut_from_every_view_and_stays_out() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    for v in [A, B, C] {
        origin.send("demo", &[page(visitor(v), 1, NOW), origin.login(visitor(v), 2, NOW, "m")]);
    }
    origin.settle(&mut kv);
    assert!(snapshot(&kv, visitor(C)).profiles.contains_key(&visitor(B)));
    let before = snapshot(&kv, visitor(C)).membership.epoch;

    let now = origin.now;
    origin.send("demo", &[withdrawal(visitor(B), now)]);
    assert_eq!(members(&origin, A), visitors(&[A, C]));
    assert_eq!(origin.lookup("demo", "m"), visitors(&[A, C]));
    // A late login is stored and links nothing.
    origin.send("demo", &[page(visitor(B), 3, now), origin.login(visitor(B), 4, now + 1, "m")]);
    assert_eq!(members(&origin, A), visitors(&[A, C]));
    origin.settle(&mut kv);

    assert_eq!(stored(&kv, visitor(B)), StoredValue::Tombstone);
    for v in [A, C] {
        let snapshot = snapshot(&kv, visitor(v));
        assert!(!snapshot.profiles.contains_key(&visitor(B)));
        assert!(snapshot.membership.cuts[&visitor(B)].gone);
        assert!(snapshot.membership.epoch > before);
        assert_eq!(snapshot.membership.devices, 2);
    }
}

#[test]
fn an_earlier_login_that_comes_late_moves_the_visitor_and_cuts_both_sides() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    for (v, member) in [(A, "anna"), (B, "anna"), (C, "bert")] {
        origin.send("demo", &[page(visitor(v), 1, NOW), origin.login(visitor(v), 2, NOW, member)]);
    }
    origin.settle(&mut kv);
    origin.send("demo", &[origin.login(visitor(B), 3, NOW - 1, "bert")]);
    origin.settle(&mut kv);
    assert_eq!(members(&origin, A), visitors(&[A]));
    assert_eq!(members(&origin, C), visitors(&[B, C]));
    assert!(!snapshot(&kv, visitor(A)).membership.cuts[&visitor(B)].gone);
    assert!(snapshot(&kv, visitor(B)).membership.cuts.contains_key(&visitor(A)));
    assert_eq!(origin.lookup("demo", "anna"), visitors(&[A]));
    assert_eq!(origin.lookup("demo", "bert"), visitors(&[C, B]));
}

#[test]
fn an_earlier_sight_of_a_known_id_decides_anew_which_one_holds() {
    let mut origin = Origin::new();
    for (v, n, member, at) in [(A, 1, "anna", 0), (C, 1, "bert", 0), (B, 1, "anna", 10), (B, 2, "bert", 20)] {
        origin.send("demo", &[origin.login(visitor(v), n, NOW + at, member)]);
    }
    assert_eq!(members(&origin, B), visitors(&[A, B]));
    origin.send("demo", &[origin.login(visitor(B), 3, NOW + 5, "bert")]);
    assert_eq!(members(&origin, B), visitors(&[B, C]));
    assert_eq!(members(&origin, A), visitors(&[A]));
}

#[test]
fn hashes_found_to_be_one_id_link_those_seen_before_with_either() {
    let mut origin = Origin::new();
    let (one, two) = (AltHash([1; 16]), AltHash([2; 16]));
    let seen = |v: u32, hash, also: &[AltHash], proven| {
        let id = AlternateId { kind: KindCode(1), hash };
        fact(visitor(v), 1, NOW, FactKind::Alias { id, also: also.to_vec(), proven })
    };
    origin.send("demo", &[seen(A, one, &[], true), seen(B, two, &[], true)]);
    assert_eq!(members(&origin, A), visitors(&[A]));
    // The visitor that shows both hashes does not link by them.
    origin.send("demo", &[seen(C, two, &[one], false)]);
    assert_eq!(members(&origin, A), visitors(&[A, B]));
    assert_eq!(members(&origin, C), visitors(&[C]));
}

#[test]
fn a_page_view_reads_no_evidence() {
    let mut origin = Origin::new();
    for v in [A, B] {
        origin.send("demo", &[origin.login(visitor(v), 1, NOW, "m")]);
    }
    let epoch = |origin: &Origin| -> i64 {
        origin.conn.query_row("SELECT epoch_counter FROM meta", [], |row| row.get(0)).unwrap()
    };
    let before = epoch(&origin);
    // A read of evidence would show in the result.
    origin.conn.execute_batch("DELETE FROM evidence").unwrap();
    origin.send("demo", &[page(visitor(A), 2, NOW + 1)]);
    assert_eq!(members(&origin, A), visitors(&[A, B]));
    assert_eq!(epoch(&origin), before);
}

#[test]
fn the_random_bytes_of_a_person_are_drawn_once_and_a_merge_retains_the_earlier_ones() {
    let mut origin = Origin::new();
    // The younger visitors are met first; the oldest joins later and becomes the master.
    let (old, young, other) = (visitor(1), visitor(2), visitor(3));
    let first = [origin.login(young, 1, NOW, "ann"), origin.login(other, 2, NOW, "ann")];
    origin.send("demo", &first);
    let drawn = origin.person("demo", young).random;
    origin.send("demo", &[page(old, 3, NOW)]);
    assert_ne!(origin.person("demo", old).random, drawn);
    let login = origin.login(old, 4, NOW, "ann");
    origin.send("demo", &[login]);
    let person = origin.person("demo", old);
    assert_eq!((person.master, person.devices, person.random), (old, 3, drawn));
    // A visitor that leaves is another person, with random bytes of its own.
    origin.send("demo", &[withdrawal(other, NOW)]);
    assert_eq!(origin.person("demo", young).random, drawn);
    assert_ne!(origin.person("demo", other).random, drawn);
}

/// A page that names an id without a proof.
fn claim(v: u32, n: u32, at: u64, id: AlternateId) -> Fact {
    fact(visitor(v), n, at, FactKind::Alias { id, also: Vec::new(), proven: false })
}

#[test]
fn an_id_without_a_proof_links_less_surely_than_a_login_and_only_by_the_threshold() {
    for (threshold, devices) in [(0.9, 2), (1.0, 1)] {
        let (mut origin, mut kv) = (Origin::of_threshold(1_000, threshold), BTreeMap::new());
        let partner = origin.id("demo", KindCode(2), "p");
        let (victim, attacker) = (A, B);
        origin.send("demo", &[page(visitor(victim), 1, NOW), claim(victim, 2, NOW, partner)]);
        origin.send("demo", &[origin.login(visitor(attacker), 1, NOW + 1, "m"), claim(attacker, 2, NOW + 1, partner)]);
        origin.settle(&mut kv);
        assert_eq!(members(&origin, attacker).len(), devices, "{threshold}");
        let rows = of_visitor(&origin.conn, origin.tenant("demo").no, visitor(victim)).unwrap();
        let said = rows.iter().map(|row| (row.source_name(), row.proven, row.evidence.weight)).collect::<Vec<_>>();
        assert_eq!(said, [("page", false, EvidenceWeight::CLAIM)], "the admin side says what the evidence was");
        let snapshots = [victim, attacker].map(|v| snapshot(&kv, visitor(v)));
        let unsure = if devices == 2 { BTreeSet::from([visitor(victim)]) } else { BTreeSet::new() };
        assert_eq!(snapshots.map(|snapshot| snapshot.membership.unsure), [unsure.clone(), unsure]);
        assert_eq!(!kv.keys().any(|key| key.starts_with("a:demo:2:")), devices == 1, "no lookup without a link");
        // The erasure of the member's person does not reach the other visitor.
        let id = origin.member("demo", "m");
        let what = FactKind::Erasure { scope: ErasureScope::Person, id: Some(id), also: Vec::new() };
        origin.send("demo", &[fact(visitor(attacker), 9, origin.now, what)]);
        origin.settle(&mut kv);
        assert_eq!(stored(&kv, visitor(attacker)), StoredValue::Tombstone);
        assert_eq!(origin.row("demo", visitor(victim)).withdrawn, None);
        assert_eq!(origin.view("demo", visitor(victim)).pages, 1);
    }
}

#[test]
fn an_imported_match_of_full_weight_is_as_sure_as_a_login() {
    let (mut origin, mut kv) = (Origin::of_threshold(1_000, 0.5), BTreeMap::new());
    let pair = AlternateId { kind: KindCode::PAIR, hash: AltHash([9; 16]) };
    let tied = |v: u32, id, weight| {
        let what = FactKind::Evidence { id, also: Vec::new(), weight, source: EvidenceSource::Match };
        fact(visitor(v), 7 + v, NOW + 2, what)
    };
    origin.send("demo", &[origin.login(visitor(A), 1, NOW, "m"), page(visitor(B), 1, NOW), page(visitor(C), 1, NOW)]);
    let other = AlternateId { kind: KindCode::PAIR, hash: AltHash([8; 16]) };
    let certain = [tied(A, pair, EvidenceWeight::LOGIN), tied(B, pair, EvidenceWeight::LOGIN)];
    let likely = [A, C].map(|v| Fact { id: FactId::from_bytes([v as u8; 16]), ..tied(v, other, EvidenceWeight(800)) });
    origin.admin("demo", &certain);
    origin.admin("demo", &likely);
    origin.settle(&mut kv);
    assert_eq!(members(&origin, A), visitors(&[A, B, C]));
    assert_eq!(snapshot(&kv, visitor(A)).membership.unsure, [visitor(C)].into());
}
