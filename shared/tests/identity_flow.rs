//! The identity steps, driven as by the edge, with a naive origin: the example of two browsers in docs/CONCEPTS.md, and
//! known failures of identity systems.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{MEMBER, NOW, PARTNER, alternate, hash, membership, version, visitor};
use crate::world::{self, Browser, Visit, World};
use causeway_shared::base::ids::{AltHash, AlternateId, FactId, SnapshotVersion, VisitorId};
use causeway_shared::base::random::Random;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::identity::{
    BulkRead, BulkResult, IdClaim, IdentityCookie, IdentityRequest, IdentityStep, RecognisedVisitor, SurvivingCookie,
    VisitorOrigin as Came, begin_identity,
};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{MissingParts, Profile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};

const A: u8 = 10;
const B: u8 = 20;

/// The world after browser `abc` logged in as 123 and purchased, and all of it was published.
fn after_purchase() -> (World, Browser, VisitorId) {
    let mut world = World::new();
    let mut abc = Browser::default();
    let first = world.visit(&mut abc, &Visit::anonymous()).unwrap();
    assert_eq!((first.shown(), first.came, first.reads), ((1, 0), Came::Minted, 0));
    world.wait(20_000);
    let login = world.visit(&mut abc, &Visit::member(123)).unwrap();
    assert_eq!((login.shown(), login.visitor), ((2, 0), first.visitor));
    assert!(login.reads <= 1);
    world.settle();
    assert_eq!(world.origin.lookup(alternate(MEMBER, 123)), [first.visitor]);
    world.purchase(&abc, 250_000_000);
    world.settle();
    assert_eq!((world.origin.own(first.visitor).pages, world.origin.own(first.visitor).purchases), (2, 1));
    (world, abc, first.visitor)
}

#[test]
fn the_sample_flow_has_the_expected_lookups_and_profiles_at_each_step() {
    let (mut world, mut abc, abc_id) = after_purchase();
    let mut def = Browser::default();
    let first = world.visit(&mut def, &Visit::anonymous()).unwrap();
    assert_eq!((first.shown(), first.reads, first.came), ((1, 0), 0, Came::Minted));
    let login = world.visit(&mut def, &Visit::member(123)).unwrap();
    assert_eq!(login.shown(), (4, 1), "the bridged answer comes at once");
    assert_eq!((login.reads, login.devices(), login.bridged), (2, 2, true));
    assert_eq!(login.visitor, first.visitor);
    world.settle();
    assert_eq!(world.origin.lookup(alternate(MEMBER, 123)), [login.visitor, abc_id], "123 maps to def");
    let abc_totals = world.origin.own(abc_id);
    assert_eq!((abc_totals.pages, abc_totals.purchases), (2, 1), "abc keeps its own");
    world.wait(20_000);
    let next = world.visit(&mut def, &Visit::member(123)).unwrap();
    assert_eq!((next.shown(), next.reads, next.devices()), ((5, 1), 1, 2));
    let on_abc = world.visit(&mut abc, &Visit::member(123)).unwrap();
    assert_eq!((on_abc.reads, on_abc.devices()), (1, 2));
    // def's third page is only in its ledger, so abc sees the four published pages and its own new one.
    assert_eq!(on_abc.shown(), (5, 1));
}

#[test]
fn a_first_request_with_a_login_is_bridged_at_once() {
    let (mut world, _, _) = after_purchase();
    let mut def = Browser::default();
    let answer = world.visit(&mut def, &Visit::member(123)).unwrap();
    assert_eq!((answer.shown(), answer.reads, answer.devices()), ((3, 1), 2, 2));
}

#[test]
fn after_the_bridge_one_read_is_enough_before_the_origin_has_published() {
    let (mut world, _, _) = after_purchase();
    let mut def = Browser::default();
    world.visit(&mut def, &Visit::anonymous()).unwrap();
    world.visit(&mut def, &Visit::member(123)).unwrap();
    for page in 5..12 {
        let next = world.visit(&mut def, &Visit::member(123)).unwrap();
        assert_eq!((next.shown(), next.reads, next.devices()), ((page, 1), 1, 2));
        world.wait(5_000);
    }
    world.settle();
    let next = world.visit(&mut def, &Visit::anonymous()).unwrap();
    assert_eq!((next.shown(), next.reads, next.devices()), ((12, 1), 1, 2));
}

#[test]
fn the_next_request_makes_up_for_a_second_read_that_was_late() {
    let (mut world, _, _) = after_purchase();
    let mut def = Browser::default();
    let late = Visit { fail_second: true, ..Visit::member(123) };
    let first = world.visit(&mut def, &late).unwrap();
    assert_eq!((first.shown(), first.bridged), ((1, 0), false));
    let next = world.visit(&mut def, &Visit::member(123)).unwrap();
    assert_eq!((next.shown(), next.reads, next.bridged), ((4, 1), 1, true));
}

#[test]
fn the_next_request_makes_up_for_a_first_read_that_failed() {
    let (mut world, _, _) = after_purchase();
    let mut def = Browser::default();
    let failed = Visit { fail_first: true, ..Visit::member(123) };
    assert_eq!(world.visit(&mut def, &failed).unwrap().shown(), (1, 0));
    let next = world.visit(&mut def, &Visit::member(123)).unwrap();
    assert_eq!((next.shown(), next.reads, next.bridged), ((4, 1), 2, true));
}

#[test]
fn ten_alternations_between_two_browsers_lose_and_double_no_fact() {
    let (mut world, mut abc, _) = after_purchase();
    let mut def = Browser::default();
    for pages in (3..23).step_by(2) {
        let on_def = world.visit(&mut def, &Visit::member(123)).unwrap();
        assert_eq!(on_def.shown(), (pages, 1));
        world.settle();
        world.wait(20_000);
        let on_abc = world.visit(&mut abc, &Visit::member(123)).unwrap();
        assert_eq!(on_abc.shown(), (pages + 1, 1));
        world.settle();
        world.wait(20_000);
    }
    assert_eq!(world.minted, 2);
    // Without further publications, each browser knows all of its own pages.
    for more in 1..11 {
        let on_def = world.visit(&mut def, &Visit::member(123)).unwrap();
        let on_abc = world.visit(&mut abc, &Visit::member(123)).unwrap();
        assert_eq!((on_def.shown(), on_abc.shown()), ((22 + more, 1), (22 + more, 1)));
    }
    world.settle();
    assert_eq!(world.visit(&mut def, &Visit::anonymous()).unwrap().shown(), (43, 1));
}

/// The histories of A and B on browsers of their own, and the device that they share.
fn household() -> (World, Browser) {
    let mut world = World::new();
    for member in [A, B] {
        let mut own = Browser::default();
        for _ in 0..3 {
            world.visit(&mut own, &Visit::member(member)).unwrap();
        }
        world.settle();
    }
    world.wait(60_000);
    (world, Browser::default())
}

#[test]
fn two_members_on_a_shared_device_stay_two_people() {
    let (mut world, mut shared) = household();
    let a = world.visit(&mut shared, &Visit::member(A)).unwrap();
    assert_eq!((a.shown(), a.devices()), ((4, 0), 2));
    world.settle();
    world.wait(20_000);
    let b = world.visit(&mut shared, &Visit::member(B)).unwrap();
    assert_ne!(b.visitor, a.visitor);
    assert_eq!((b.shown(), b.devices(), b.came), ((4, 0), 2, Came::Minted));
    assert!(b.reads <= 2);
    assert!(a.members().is_disjoint(&b.members()));
    world.settle();
    world.wait(20_000);
    let again = world.visit(&mut shared, &Visit::member(A)).unwrap();
    assert_eq!((again.visitor, again.came, again.shown()), (a.visitor, Came::Switched, (5, 0)));
    assert!(again.reads <= 2);
    let minted = world.minted;
    for round in 0..10 {
        for (member, visitor) in [(B, b.visitor), (A, a.visitor)] {
            let answer = world.visit(&mut shared, &Visit::member(member)).unwrap();
            assert_eq!(answer.visitor, visitor);
            assert!(answer.reads <= 2);
            world.settle();
            world.wait(20_000 * (round % 2));
        }
    }
    assert_eq!(world.minted, minted, "ten alternations mint nothing more");
    let last = world.visit(&mut shared, &Visit { no_page: true, ..Visit::member(B) }).unwrap();
    assert_eq!(last.shown(), (14, 0));
}

#[test]
fn the_snapshot_makes_up_for_a_lost_cookie_with_the_members_tag() {
    let (mut world, mut shared) = household();
    let visitor = world.visit(&mut shared, &Visit::anonymous()).unwrap().visitor;
    // A parallel answer overwrites the cookie, which therefore never records A's login.
    let lost = Visit { lose_cookies: true, ..Visit::member(A) };
    assert_eq!(world.visit(&mut shared, &lost).unwrap().visitor, visitor);
    world.settle();
    world.wait(20_000);
    let b = world.visit(&mut shared, &Visit::member(B)).unwrap();
    assert_ne!(b.visitor, visitor);
    assert_eq!((b.shown(), b.devices(), b.reads), ((4, 0), 2, 2));
    world.settle();
    world.wait(20_000);
    let a = world.visit(&mut shared, &Visit::member(A)).unwrap();
    assert_eq!((a.visitor, a.shown()), (visitor, (6, 0)));
    let minted = world.minted;
    for member in [B, A, B, A, B, A, B, A, B, A, B, A, B, A, B, A, B, A, B, A] {
        let answer = world.visit(&mut shared, &Visit::member(member)).unwrap();
        assert_eq!(answer.visitor, if member == A { visitor } else { b.visitor });
        world.settle();
    }
    assert_eq!(world.minted, minted);
}

#[test]
fn a_member_switched_away_from_anothers_visitor_is_bridged_in_its_next_request() {
    let (mut world, mut shared) = household();
    let visitor = world.visit(&mut shared, &Visit::anonymous()).unwrap().visitor;
    world.visit(&mut shared, &Visit { lose_cookies: true, ..Visit::member(A) }).unwrap();
    // B comes before A's login is published, and is taken for the visitor's member.
    assert_eq!(world.visit(&mut shared, &Visit::member(B)).unwrap().visitor, visitor);
    world.settle();
    world.wait(20_000);
    let moved = world.visit(&mut shared, &Visit::member(B)).unwrap();
    assert_ne!(moved.visitor, visitor, "the snapshot says that A holds it");
    let next = world.visit(&mut shared, &Visit::member(B)).unwrap();
    assert_eq!((next.visitor, next.shown(), next.bridged), (moved.visitor, (5, 0), true));
    assert!(next.reads <= 2);
}

#[test]
fn a_partner_id_shows_no_member_the_history_of_another_one() {
    let (mut world, mut shared) = household();
    // The shared device has a partner's id that A's own browser has too.
    let mut of_a = Browser::default();
    let with_partner = |member: Option<u8>| Visit { member, partner: Some(5), ..Visit::default() };
    world.visit(&mut of_a, &with_partner(Some(A))).unwrap();
    world.settle();
    let tied = world.visit(&mut shared, &with_partner(None)).unwrap();
    assert!(tied.bridged, "without a member of its own it joins A's person");
    world.settle();
    world.wait(20_000);
    let b = world.visit(&mut shared, &Visit::member(B)).unwrap();
    assert_eq!(b.shown(), (4, 0), "B's three pages and this one");
    assert!(b.members().is_disjoint(&tied.members()));
}

#[test]
fn a_visitor_tied_without_a_proof_belongs_to_no_member_after_the_tie_ends() {
    let (mut world, mut shared) = (World::new(), Browser::default());
    let with_partner = |member: Option<u8>| Visit { member, partner: Some(5), ..Visit::default() };
    world.visit(&mut Browser::default(), &with_partner(Some(A))).unwrap();
    world.settle();
    let tied = world.visit(&mut shared, &with_partner(None)).unwrap();
    world.settle();
    world.wait(20_000);
    let shown = world.visit(&mut shared, &Visit::anonymous()).unwrap();
    assert_eq!((shown.bridged, shown.unique), (true, None), "no request had a proof");
    let now = world.now;
    world.origin.cancel(tied.visitor, alternate(PARTNER, 5), now);
    world.settle();
    world.wait(20_000);
    let b = world.visit(&mut shared, &Visit::member(B)).unwrap();
    assert_eq!((b.visitor, b.came, b.shown()), (tied.visitor, Came::Returning, (3, 0)));
}

#[test]
fn a_newer_snapshot_with_another_member_overrules_an_older_siblings() {
    let mut world = World::new();
    let (mut left, mut right, mut third) = (Browser::default(), Browser::default(), Browser::default());
    let partner = Visit { partner: Some(2), ..Visit::anonymous() };
    let a = world.visit(&mut left, &partner).unwrap().visitor;
    let b = world.visit(&mut right, &partner).unwrap().visitor;
    world.deliver();
    world.publish();
    // One of the two belongs to member 1, but only the other one's snapshot shows it so far.
    world.visit(&mut right, &Visit { lose_cookies: true, ..Visit::member(1) }).unwrap();
    world.deliver();
    world.publish_one(a);
    let answer = world.visit(&mut third, &Visit { member: Some(2), ..partner }).unwrap();
    assert_eq!(answer.read.iter().map(|s| s.visitor).collect::<BTreeSet<_>>(), BTreeSet::from([a, b]));
    assert_eq!(answer.members(), BTreeSet::from([answer.visitor]));
    assert_eq!((answer.shown(), answer.devices()), ((1, 0), 1));
}

#[test]
fn two_kinds_that_name_different_visitors_are_joined_with_two_reads_at_most() {
    let mut world = World::new();
    let (mut by_member, mut by_partner, mut new) = (Browser::default(), Browser::default(), Browser::default());
    world.visit(&mut by_member, &Visit::member(A)).unwrap();
    world.visit(&mut by_partner, &Visit { partner: Some(5), ..Visit::default() }).unwrap();
    world.purchase(&by_partner, 1);
    world.settle();
    world.wait(20_000);
    let both = Visit { partner: Some(5), ..Visit::member(A) };
    let answer = world.visit(&mut new, &both).unwrap();
    assert_eq!((answer.shown(), answer.reads, answer.devices()), ((3, 1), 2, 3));
    world.settle();
    world.wait(20_000);
    let later = world.visit(&mut new, &both).unwrap();
    assert_eq!((later.shown(), later.reads, later.devices()), ((4, 1), 1, 3));
}

#[test]
fn a_visitor_tied_by_a_second_login_counts_until_the_snapshots_name_it() {
    let mut world = World::new();
    let partner = Visit { partner: Some(5), ..Visit::default() };
    let both = Visit { partner: Some(5), ..Visit::member(A) };
    let [mut by_member, mut by_partner, mut new] = [Browser::default(), Browser::default(), Browser::default()];
    world.visit(&mut by_member, &Visit::member(A));
    world.visit(&mut by_partner, &partner);
    world.settle();
    world.wait(20_000);
    world.visit(&mut new, &partner);
    world.settle();
    world.wait(20_000);
    // The snapshot contains the first login by now.
    assert_eq!(world.visit(&mut new, &both).unwrap().shown().0, 4);
    world.wait(5_000);
    assert_eq!(world.visit(&mut new, &both).unwrap().shown().0, 5, "nothing was published since");
    world.settle();
    world.wait(20_000);
    assert_eq!(world.visit(&mut new, &both).unwrap().shown().0, 6);
}

#[test]
fn visitors_tied_by_a_proof_are_pending_before_those_of_an_earlier_id() {
    let mut world = World::new();
    let with_partner = |member| Visit { member, partner: Some(5), ..Visit::default() };
    for _ in 0..3 {
        world.visit(&mut Browser::default(), &with_partner(None)).unwrap();
    }
    world.visit(&mut Browser::default(), &Visit::member(A)).unwrap();
    world.settle();
    world.wait(20_000);
    let mut fresh = Browser::default();
    let tied = world.visit(&mut fresh, &with_partner(None)).unwrap();
    assert_eq!(tied.shown(), (4, 0));
    for pages in 6..8 {
        let answer = world.visit(&mut fresh, &with_partner(Some(A))).unwrap();
        assert_eq!(answer.shown(), (pages, 0), "A's own page too");
    }
}

#[test]
fn a_merge_rewrites_no_profile_and_cancelling_it_gives_the_old_views_back() {
    let (mut world, mut abc, abc_id) = after_purchase();
    let mut def = Browser::default();
    let def_id = world.visit(&mut def, &Visit::member(123)).unwrap().visitor;
    world.settle();
    assert_eq!(world.origin.own(abc_id).pages, 2);
    assert_eq!(world.origin.own(def_id).pages, 1);
    assert_eq!(world.origin.person(abc_id), BTreeSet::from([abc_id, def_id]));
    let now = world.now;
    world.origin.cancel(def_id, alternate(MEMBER, 123), now);
    world.settle();
    world.wait(20_000);
    let on_abc = world.visit(&mut abc, &Visit::anonymous()).unwrap();
    assert_eq!((on_abc.shown(), on_abc.devices(), on_abc.bridged), ((3, 1), 1, false));
    // def's cookie still names the sibling of the login, but the origin's cut wins.
    let on_def = world.visit(&mut def, &Visit::anonymous()).unwrap();
    assert_eq!((on_def.shown(), on_def.devices(), on_def.bridged), ((2, 0), 1, false));
}

#[test]
fn the_number_of_devices_is_the_number_of_visitors_of_the_person() {
    let mut world = World::new();
    for devices in 1..=8 {
        let mut browser = Browser::default();
        let answer = world.visit(&mut browser, &Visit::member(A)).unwrap();
        assert_eq!((answer.devices(), answer.shown().0), (devices, u64::from(devices)));
        world.settle();
        world.wait(20_000);
        let again = world.visit(&mut browser, &Visit { no_page: true, ..Visit::anonymous() }).unwrap();
        assert_eq!((again.devices(), again.reads), (devices, 1));
    }
}

#[test]
fn a_visitor_minted_seconds_ago_is_not_looked_up() {
    let mut world = World::new();
    let mut browser = Browser::default();
    let minted = world.visit(&mut browser, &Visit::anonymous()).unwrap();
    assert_eq!((minted.reads, minted.came), (0, Came::Minted));
    for page in 2..=9 {
        let answer = world.visit(&mut browser, &Visit::anonymous()).unwrap();
        assert_eq!((answer.reads, answer.visitor, answer.shown().0), (0, minted.visitor, page));
    }
    world.wait(world::PUBLISH_DELAY_MS);
    assert_eq!(world.visit(&mut browser, &Visit::anonymous()).unwrap().reads, 1);
}

#[test]
fn a_cookie_that_outlives_its_row_keeps_its_id_and_its_row_comes_back() {
    let mut world = World::new();
    let mut browser = Browser::default();
    let minted = world.visit(&mut browser, &Visit::member(A)).unwrap();
    world.settle();
    world.wait(300 * 86_400_000);
    world.expire(minted.visitor);
    let answer = world.visit(&mut browser, &Visit::anonymous()).unwrap();
    assert_eq!((answer.visitor, answer.came, answer.shown().0), (minted.visitor, Came::Returning, 1));
    world.settle();
    assert_eq!(world.visit(&mut browser, &Visit::anonymous()).unwrap().shown().0, 3);
}

#[test]
fn a_tombstone_is_forgotten_and_cut_from_its_siblings_views() {
    let (mut world, mut abc, abc_id) = after_purchase();
    let mut def = Browser::default();
    world.visit(&mut def, &Visit::member(123)).unwrap();
    world.settle();
    world.wait(20_000);
    let mut copied = abc.clone();
    world.withdraw(&mut abc);
    world.settle();
    assert!(world.visit(&mut copied, &Visit::member(123)).is_none());
    assert!(copied.identity.is_none());
    let on_def = world.visit(&mut def, &Visit::member(123)).unwrap();
    assert_eq!((on_def.shown(), on_def.devices()), ((2, 0), 1));
    let mut new = Browser::default();
    let answer = world.visit(&mut new, &Visit::member(123)).unwrap();
    assert_eq!(answer.shown(), (2, 0), "def's published page and this one");
    assert!(!answer.members().contains(&abc_id));
    assert_eq!(world.cookie_of(&new).unwrap().pending, [on_def.visitor], "a visitor that is gone is not read again");
    // The browser that withdrew returns as a new visitor.
    let back = world.visit(&mut copied, &Visit::anonymous()).unwrap();
    assert_eq!((back.came, back.shown()), (Came::Minted, (1, 0)));
}

#[test]
fn an_erased_visitor_that_a_lookup_still_names_is_not_read_again() {
    let (mut world, mut abc, _) = after_purchase();
    world.withdraw(&mut abc);
    world.settle();
    let mut new = Browser::default();
    let answer = world.visit(&mut new, &Visit::member(123)).unwrap();
    assert_eq!((answer.shown(), answer.devices()), ((1, 0), 1));
    assert!(world.cookie_of(&new).unwrap().pending.is_empty());
}

#[test]
fn a_snapshot_older_than_the_browser_has_seen_counts_only_for_its_own_visitor() {
    let (mut world, _, abc_id) = after_purchase();
    let mut def = Browser::default();
    let def_id = world.visit(&mut def, &Visit::member(123)).unwrap().visitor;
    world.settle();
    world.wait(20_000);
    assert!(world.visit(&mut def, &Visit::anonymous()).unwrap().bridged);
    let now = world.now;
    world.origin.cancel(def_id, alternate(MEMBER, 123), now);
    world.settle();
    assert!(!world.visit(&mut def, &Visit::anonymous()).unwrap().bridged);
    // The next location still has the previous snapshot.
    let stale = world.visit(&mut def, &Visit { stale: 1, ..Visit::anonymous() }).unwrap();
    assert_eq!((stale.shown(), stale.bridged), ((4, 0), false));
    assert!(!stale.members().contains(&abc_id));
}

/// Performs one request of a browser with this cookie, step by step, on the content of the KV.
fn steps(
    cookie: IdentityCookie,
    claims: Vec<IdClaim>,
    kv: &BTreeMap<VisitorId, StoredValue>,
) -> Result<RecognisedVisitor, SurvivingCookie> {
    let mut random = Random::new([9; 32]);
    let found = |reads: &BulkRead| {
        let stored = reads.snapshots.iter().filter_map(|v| Some((*v, kv.get(v)?.clone()))).collect();
        BulkResult { stored, ..BulkResult::default() }
    };
    let arrival = IdentityRequest {
        now: NOW,
        cookie: Some(cookie),
        others: Vec::new(),
        ledger: None,
        claims,
        publish_delay_ms: 10_000,
    };
    let begun = begin_identity(arrival, &mut random);
    let (own, first) = (begun.reads().snapshots.first().copied(), found(begun.reads()));
    let forgotten = own.is_some_and(|own| kv.get(&own) == Some(&StoredValue::Tombstone));
    let second = match begun.after_first(first, &mut random) {
        IdentityStep::Second(second) => second,
        IdentityStep::Forgotten(surviving) => {
            assert!(forgotten);
            return Err(surviving);
        }
    };
    assert!(!forgotten, "no second read for a visitor that is gone");
    let last = found(second.reads());
    second.finish(last)
}

fn cookie_of(of: VisitorId, tag: Option<AltHash>, earlier: Vec<(AltHash, VisitorId)>) -> IdentityCookie {
    IdentityCookie {
        visitor: of,
        written: NOW - 1_000,
        tag,
        covered: Vec::new(),
        earlier,
        pending: Vec::new(),
        login: None,
    }
}

fn snapshot_of(of: VisitorId, unique: Vec<AltHash>) -> (VisitorId, StoredValue) {
    let profiles = BTreeMap::from([(of, Profile::default().sub_profile(version(1), true))]);
    let membership = membership(1, [of], []);
    (
        of,
        StoredValue::Snapshot(Box::new(Snapshot {
            version: version(1),
            visitor: of,
            unique,
            membership,
            profiles,
            best: None,
        })),
    )
}

fn proven(hashes: &[AltHash]) -> IdClaim {
    let (first, also) = hashes.split_first().unwrap();
    IdClaim { id: AlternateId { kind: MEMBER, hash: *first }, also: also.to_vec(), unique: true, proven: true }
}

#[test]
fn a_rotation_of_keys_splits_no_member() {
    let v = visitor(1);
    let (old, new) = (hash(1, 5), hash(2, 5));
    let cases = [
        // The cookie has the member under the old key, and the login has both keys.
        (Some(old), vec![proven(&[new, old])], vec![old]),
        // The cookie is under the new key, the snapshot is older, and the request has no proof.
        (Some(new), vec![], vec![old]),
        (Some(new), vec![proven(&[new, old])], vec![old]),
        (Some(new), vec![proven(&[new])], vec![new, old]),
        (None, vec![proven(&[new, old])], vec![old]),
    ];
    for (tag, claims, unique) in cases {
        let kv = BTreeMap::from([snapshot_of(v, unique.clone())]);
        let recognised = steps(cookie_of(v, tag, Vec::new()), claims.clone(), &kv).unwrap();
        assert_eq!((recognised.visitor, recognised.origin), (v, Came::Returning), "{tag:?} {claims:?} {unique:?}");
    }
}

#[test]
fn a_tag_of_a_retired_key_lets_no_other_member_in() {
    let v = visitor(1);
    let kv = BTreeMap::from([snapshot_of(v, vec![hash(1, 5)])]);
    let recognised = steps(cookie_of(v, Some(hash(1, 5)), Vec::new()), vec![proven(&[hash(2, 6)])], &kv).unwrap();
    assert_ne!(recognised.visitor, v);
    assert_eq!(recognised.unique, Some(hash(2, 6)));
}

#[test]
fn members_are_unknown_where_the_lookup_of_a_proof_was_read_for_another_visitor_alone() {
    let (here, there) = (visitor(1), visitor(2));
    let (ann, bob) = (hash(1, 5), hash(1, 6));
    let claim = proven(&[bob]);
    // Two logins raced: the cookie has Bob's tag and his lookup as read, but the visitor became Ann's.
    let cookie = |earlier| {
        let cookie = cookie_of(here, Some(bob), earlier);
        steps(cookie, vec![claim.clone()], &BTreeMap::new()).unwrap().cookie
    };
    let kv = BTreeMap::from([snapshot_of(here, vec![ann]), snapshot_of(there, vec![bob])]);
    for (earlier, origin) in [(Vec::new(), Came::Minted), (vec![(bob, there)], Came::Switched)] {
        let recognised = steps(cookie(earlier), vec![claim.clone()], &kv).unwrap();
        assert_eq!((recognised.origin, recognised.lacks_lookups), (origin, true));
        assert!(recognised.counted().missing().overlaps(MissingParts::MEMBERS), "{origin:?}");
        // The next request reads the lookup.
        let next = steps(recognised.cookie, vec![claim.clone()], &kv).unwrap();
        assert!(!next.lacks_lookups, "{origin:?}");
    }
}

#[test]
fn a_switch_to_an_erased_visitor_or_to_another_members_ends_without_identity() {
    let (here, there) = (visitor(1), visitor(2));
    let (a, b, c) = (hash(1, 5), hash(1, 6), hash(1, 7));
    let cookie = || cookie_of(here, None, vec![(b, there)]);
    let claims = || vec![proven(&[b])];
    let kv = BTreeMap::from([snapshot_of(here, vec![a]), snapshot_of(there, vec![b])]);
    assert_eq!(steps(cookie(), claims(), &kv).unwrap().visitor, there);
    let gone = BTreeMap::from([snapshot_of(here, vec![a]), (there, StoredValue::Tombstone)]);
    let anothers = BTreeMap::from([snapshot_of(here, vec![a]), snapshot_of(there, vec![c])]);
    for kv in [gone, anothers] {
        let left = steps(cookie(), claims(), &kv).unwrap_err().map(|cookie| *cookie);
        assert_eq!(
            left,
            Some(cookie_of(here, None, Vec::new())),
            "the browser's own cookie stays, without the other visitor"
        );
        assert_eq!(steps(left.unwrap(), claims(), &kv).unwrap().origin, Came::Minted);
    }
    let forgotten = BTreeMap::from([(here, StoredValue::Tombstone)]);
    assert_eq!(steps(cookie(), claims(), &forgotten).unwrap_err(), None, "and takes its own cookies along");
}

#[test]
fn a_member_whose_earlier_visitor_was_erased_removes_no_cookie_of_the_current_member() {
    let (here, there) = (visitor(1), visitor(2));
    let (a, b) = (hash(1, 5), hash(1, 6));
    let cookie = cookie_of(here, Some(a), vec![(b, there)]);
    let kv = BTreeMap::from([snapshot_of(here, vec![a]), (there, StoredValue::Tombstone)]);
    let left = steps(cookie, vec![proven(&[b])], &kv).unwrap_err().unwrap();
    assert_eq!((left.visitor, left.tag, left.earlier.as_slice()), (here, Some(a), &[][..]));
    let back = steps(*left, Vec::new(), &kv).unwrap();
    assert_eq!((back.visitor, back.origin), (here, Came::Returning));
}

#[test]
fn a_sibling_under_the_previous_key_waits_for_a_snapshot_with_both_hashes() {
    let (own, sibling) = (visitor(1), visitor(2));
    let (old, new) = (hash(1, 5), hash(2, 5));
    let first = BTreeMap::from([snapshot_of(sibling, vec![old])]);
    let cookie = IdentityCookie { pending: vec![sibling], ..cookie_of(own, Some(new), Vec::new()) };
    let recognised = steps(cookie.clone(), Vec::new(), &first).unwrap();
    assert_eq!(recognised.cookie.pending, [sibling], "its member is not known");
    // Its own snapshot from before that login has its member under the previous key, too.
    let of_old = |mut held: (VisitorId, StoredValue), version| {
        let StoredValue::Snapshot(snapshot) = &mut held.1 else { unreachable!() };
        snapshot.version = version;
        snapshot.membership.admits.insert(own);
        held
    };
    let newer = SnapshotVersion { restore: 0, counter: 90 };
    let admitting = BTreeMap::from([snapshot_of(own, Vec::new()), of_old(snapshot_of(sibling, vec![old]), newer)]);
    assert_eq!(steps(cookie.clone(), Vec::new(), &admitting).unwrap().visitor, own, "nor is it another member's");
    let both = BTreeMap::from([snapshot_of(sibling, vec![new, old])]);
    assert!(steps(recognised.cookie, Vec::new(), &both).unwrap().counted().is_bridged());
    let anothers = BTreeMap::from([snapshot_of(sibling, vec![hash(2, 6)])]);
    assert!(steps(cookie, Vec::new(), &anothers).unwrap().cookie.pending.is_empty());
}

#[test]
fn without_any_read_the_answer_comes_from_the_cookies() {
    let mut world = World::new();
    let mut browser = Browser::default();
    for page in 1..=5 {
        let dead = Visit { fail_first: true, fail_second: true, ..Visit::member(A) };
        let answer = world.visit(&mut browser, &dead).unwrap();
        assert_eq!((answer.shown(), answer.devices(), world.minted), ((page, 0), 1, 1));
        world.wait(20_000);
    }
}

#[test]
fn a_pending_sibling_that_the_snapshot_after_the_login_does_not_name_is_dropped() {
    let (own, other) = (visitor(1), visitor(2));
    let id = AlternateId { kind: MEMBER, hash: hash(1, 5) };
    let what = FactKind::Alias { id, also: Vec::new(), proven: true };
    let login =
        Fact { position: 0, id: FactId::from_bytes([5; 16]), visitor: own, received: NOW - 500, at: NOW - 500, what };
    let (_, StoredValue::Snapshot(mut snapshot)) = snapshot_of(own, Vec::new()) else { unreachable!() };
    snapshot.profiles.insert(own, Profile::of([&login]).sub_profile(version(1), true));
    let kv = BTreeMap::from([(own, StoredValue::Snapshot(snapshot)), snapshot_of(other, Vec::new())]);
    let cookie = |login| IdentityCookie { pending: vec![other], login, ..cookie_of(own, None, Vec::new()) };
    // A later login is not in the snapshot yet, so the siblings that it ties count.
    let waits = steps(cookie(Some((NOW - 400, 7))), Vec::new(), &kv).unwrap();
    assert!(
        waits.view.memberships().counts(own, other)
            && waits.cookie.pending == [other]
            && waits.view.of(own).members().contains(&other)
    );
    // The login was cancelled before it was linked, so no cut names the two.
    let unlinked = steps(cookie(Some((login.received, login.id.short()))), Vec::new(), &kv).unwrap();
    assert_eq!(
        (unlinked.view.of(own).members(), unlinked.cookie.pending, unlinked.cookie.login),
        (&[own][..], Vec::new(), None)
    );
}

#[test]
fn a_sibling_that_the_own_snapshot_cuts_adds_no_visitors() {
    let (own, cut, friend) = (visitor(1), visitor(2), visitor(3));
    let with = |of, decision: Membership, others: &[VisitorId]| {
        let (_, StoredValue::Snapshot(mut snapshot)) = snapshot_of(of, Vec::new()) else { unreachable!() };
        let sub = || Profile::default().sub_profile(version(1), true);
        snapshot.profiles.extend(others.iter().map(|v| (*v, sub())));
        snapshot.membership = decision;
        (of, StoredValue::Snapshot(snapshot))
    };
    // A partner id tied both when they were one person. Since then each half has a decision of its own, and the other
    // half's does not name a visitor that came later.
    let mine = with(own, membership(4, [own], [cut]), &[]);
    let theirs = with(cut, membership(5, [cut, friend], []), &[friend]);
    let cookie = IdentityCookie { pending: vec![cut], ..cookie_of(own, None, Vec::new()) };
    let known = steps(cookie, Vec::new(), &BTreeMap::from([mine, theirs])).unwrap();
    assert_eq!((known.view.of(own).members(), known.cookie.pending), (&[own][..], Vec::new()));
}

#[test]
fn a_tag_follows_the_key_that_is_written_and_its_member_stays_the_same_when_the_old_one_is_retired() {
    let own = visitor(1);
    let both = BTreeMap::from([snapshot_of(own, vec![hash(2, 5), hash(1, 5)])]);
    let seen = steps(cookie_of(own, Some(hash(1, 5)), Vec::new()), Vec::new(), &both).unwrap();
    assert_eq!((seen.cookie.tag, seen.cookie_changed), (Some(hash(2, 5)), true));
    // The first key is retired: proof and snapshots only have the second key.
    let one = BTreeMap::from([snapshot_of(own, vec![hash(2, 5)])]);
    let again = steps(seen.cookie, vec![proven(&[hash(2, 5)])], &one).unwrap();
    assert_eq!((again.visitor, again.origin), (own, Came::Returning));
}

#[test]
fn a_tag_of_a_retired_key_makes_no_stranger_of_the_own_person() {
    let (own, sibling) = (visitor(1), visitor(2));
    let with = |of, counter| {
        let (_, StoredValue::Snapshot(mut snapshot)) = snapshot_of(of, vec![hash(2, 5)]) else { unreachable!() };
        let sub = |visitor| Profile::default().sub_profile(version(1), visitor == of);
        snapshot.version = version(counter);
        snapshot.profiles = [own, sibling].into_iter().map(|visitor| (visitor, sub(visitor))).collect();
        snapshot.membership = membership(1, [own, sibling], []);
        (of, StoredValue::Snapshot(snapshot))
    };
    let kv = BTreeMap::from([with(own, 1), with(sibling, 2)]);
    let cookie = IdentityCookie { pending: vec![sibling], ..cookie_of(own, Some(hash(1, 5)), Vec::new()) };
    let recognised = steps(cookie, Vec::new(), &kv).unwrap();
    assert_eq!((recognised.view.of(own).members(), recognised.cookie.tag), (&[own, sibling][..], Some(hash(2, 5))));
}
