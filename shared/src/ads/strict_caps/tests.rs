#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::base::time::Day;
use crate::facts::actions::WindowUnit;
use crate::wire::strict_caps as wire;

const DAY: TimeWindow = TimeWindow { interval: 1, unit: WindowUnit::Days };

fn noon() -> Minute {
    Minute(Day(100).start().0 + 720)
}

fn visitor(n: usize) -> VisitorId {
    VisitorId::mint(1_800_000_000_000 + n as u64, [1; 10])
}

fn ad(code: u32) -> AdEntity {
    AdEntity { ad: code, ad_group: 1, campaign: 1, advertiser: 1 }
}

fn insertion(n: u32) -> InsertionHash {
    let [a, b, c, d] = n.to_be_bytes();
    InsertionHash([a, b, c, d, 0, 0])
}

fn claim(limit: u32, insertions: &[u32], seen: &[u32]) -> CapClaim {
    let caps = vec![StrictCap { level: AdLevel::Campaign, limit, window: DAY }];
    let seen = seen.iter().map(|n| SeenImpression { insertion: insertion(*n), entity: ad(9), minute: noon() });
    CapClaim {
        candidates: vec![Candidate { entity: ad(1), caps: caps.clone() }, Candidate { entity: ad(2), caps }],
        wanted: insertions.iter().map(|n| WantedPlacement { insertion: insertion(*n), choices: vec![0, 1] }).collect(),
        seen: seen.collect(),
    }
}

/// The objects of a person's visitors, called as by the worker: every state and call is encoded and decoded.
#[derive(Default)]
struct World {
    stored: BTreeMap<VisitorId, Vec<u8>>,
}

impl World {
    fn call(&mut self, call: &CapCall, now: Minute) -> Answer {
        let tenant = "pub".parse().unwrap();
        let (_, call) = wire::decode_call(&wire::encode_call(&tenant, call)).unwrap();
        let to = call.to;
        let mut object = self.object(to);
        let step = object.call(call, now);
        self.stored.insert(to, wire::encode_object(&object));
        let forwarded = match step {
            CapStep::Answer(answer) => return wire::decode_answer(&wire::encode_answer(&answer)).unwrap(),
            CapStep::Forward(forwarded) => forwarded,
        };
        assert!(forwarded.to < to, "ids only get smaller");
        let answer = self.call(&forwarded, now);
        let mut object = self.object(to);
        object.passed(&forwarded, &answer, now);
        self.stored.insert(to, wire::encode_object(&object));
        answer
    }

    fn object(&self, of: VisitorId) -> CapObject {
        wire::decode_object(self.stored.get(&of).map_or(&[], Vec::as_slice)).unwrap()
    }

    fn claim(&mut self, of: usize, epoch: u64, members: &[usize], claim: CapClaim, now: Minute) -> Vec<u32> {
        let members = members.iter().map(|n| visitor(*n)).collect();
        let links = Some(KnownLinks { epoch: Epoch(epoch), members });
        let call = CapCall { to: visitor(of), links, entries: Entries::new(), ask: CapRequest::Claim(claim) };
        self.call(&call, now).granted.values().map(|entry| entry.entity.ad).collect()
    }

    fn confirm(&mut self, of: usize, n: u32, now: Minute) -> bool {
        let ask = CapRequest::Confirm(insertion(n));
        let call = CapCall { to: visitor(of), links: None, entries: Entries::new(), ask };
        !self.call(&call, now).granted.is_empty()
    }
}

#[test]
fn a_reservation_counts_until_the_serve_window_ends_and_an_impression_until_its_own_window_ends() {
    let mut world = World::default();
    let [later, over] = [10, 11].map(|minutes| Minute(noon().0 + minutes));
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[1, 2], &[]), noon()), [1]);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[3], &[]), later), [0; 0]);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[4], &[]), over), [1]);
    assert!(!world.confirm(1, 1, over), "its place went to another");
    assert!(world.confirm(1, 4, over) && !world.confirm(1, 4, over), "once");
    let evening = Minute(Day(101).start().0 - 1);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[5], &[]), evening), [0; 0]);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[6], &[]), Minute(evening.0 + 1)), [1]);
}

#[test]
fn a_clock_that_goes_back_releases_and_confirms_nothing() {
    let mut world = World::default();
    let over = Minute(noon().0 + 11);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[1], &[]), noon()), [1]);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[2], &[]), over), [1]);
    assert!(!world.confirm(1, 1, noon()));
}

#[test]
fn an_impression_seen_after_midnight_counts_on_its_own_day() {
    let mut world = World::default();
    let midnight = Day(101).start();
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[1], &[]), Minute(midnight.0 - 2)), [1]);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[2], &[]), midnight), [0; 0], "it may still be seen today");
    assert!(world.confirm(1, 1, midnight));
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[3], &[]), Minute(midnight.0 + 1_439)), [0; 0]);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[4], &[]), Minute(midnight.0 + 1_440)), [1]);
}

#[test]
fn histories_are_united_by_insertion() {
    let mut world = World::default();
    assert_eq!(world.claim(1, 0, &[1], claim(3, &[1], &[7, 7, 8]), noon()), [1], "two were seen");
    assert!(world.confirm(1, 1, noon()));
    // The snapshot includes it by now: still three.
    assert_eq!(world.claim(1, 0, &[1], claim(4, &[2, 3], &[7, 8, 1]), noon()), [1]);
}

#[test]
fn one_call_places_no_ad_twice_and_uses_the_next_choice() {
    let mut world = World::default();
    assert_eq!(world.claim(1, 0, &[1], claim(9, &[1, 2, 3], &[]), noon()), [1, 2]);
}

#[test]
fn an_ad_placed_before_a_link_counts_after_it() {
    let mut world = World::default();
    assert_eq!(world.claim(3, 0, &[3], claim(3, &[1], &[]), noon()), [1]);
    assert_eq!(world.claim(2, 0, &[2], claim(3, &[2], &[]), noon()), [1]);
    assert_eq!(world.claim(3, 1, &[2, 3], claim(3, &[3], &[]), noon()), [1]);
    assert!(world.confirm(3, 1, noon()), "its reservation went with it");
    assert_eq!(world.claim(2, 2, &[1, 2], claim(3, &[4], &[]), noon()), [0; 0], "three of the three are placed");
    assert_eq!(world.claim(3, 1, &[2, 3], claim(4, &[5], &[]), noon()), [1]);
    assert_eq!(world.claim(1, 0, &[1], claim(4, &[6], &[]), noon()), [0; 0]);
}

#[test]
fn a_person_whose_smallest_visitor_was_cut_uses_the_object_of_the_next_one() {
    let mut world = World::default();
    assert_eq!(world.claim(2, 3, &[1, 2], claim(2, &[], &[]), noon()), [0; 0]);
    // The first is cut; the third browser learns of it before the second.
    assert_eq!(world.claim(3, 8, &[2, 3], claim(2, &[1], &[]), noon()), [1]);
    assert_eq!(world.claim(2, 8, &[2, 3], claim(2, &[2], &[]), noon()), [1]);
    assert_eq!(world.claim(3, 8, &[2, 3], claim(2, &[3], &[]), noon()), [0; 0], "both decide at the second");
    assert_eq!(world.object(visitor(3)).forward, Some(visitor(2)));
}

#[test]
fn a_new_login_links_before_any_membership_names_it() {
    let mut world = World::default();
    assert_eq!(world.claim(2, 3, &[2], claim(1, &[1], &[]), noon()), [1]);
    assert_eq!(world.claim(2, 3, &[1, 2], claim(2, &[2], &[]), noon()), [1]);
    assert_eq!(world.object(visitor(2)).forward, Some(visitor(1)));
    assert_eq!(world.claim(2, 3, &[2], claim(2, &[3], &[]), noon()), [0; 0], "a failed read cuts no visitor");
}

#[test]
fn a_newer_membership_cuts_and_an_older_one_restores_nothing() {
    let mut world = World::default();
    assert_eq!(world.claim(2, 5, &[1, 2], claim(1, &[1], &[]), noon()), [1]);
    assert!(world.confirm(2, 1, noon()));
    assert_eq!(world.claim(2, 6, &[2], claim(1, &[2], &[]), noon()), [0; 0], "its own stays its own");
    assert_eq!(world.object(visitor(2)).forward, None);
    world.claim(2, 5, &[1, 2], claim(1, &[3], &[]), noon());
    assert_eq!(world.object(visitor(2)).forward, None);
}

#[test]
fn no_ad_is_granted_while_an_older_membership_names_a_smaller_visitor() {
    let mut world = World::default();
    assert_eq!(world.claim(2, 4, &[2], claim(2, &[1], &[]), noon()), [1]);
    assert_eq!(world.claim(1, 4, &[1], claim(2, &[2], &[]), noon()), [1]);
    // A login at a location with an outdated snapshot: it names the first visitor without a decision.
    assert_eq!(world.claim(2, 0, &[1, 2], claim(3, &[3], &[]), noon()), [0; 0], "cut, or linked since?");
    assert!(world.confirm(2, 1, noon()), "what was placed counts");
    assert_eq!(
        world.claim(2, 0, &[2], claim(3, &[4], &[]), noon()),
        [1],
        "an outdated list that names no other visitor"
    );
    assert_eq!(
        world.claim(2, 5, &[1, 2], claim(3, &[5], &[]), noon()),
        [0; 0],
        "linked: three of the three are placed"
    );
    assert_eq!(world.claim(2, 0, &[1, 2], claim(4, &[6], &[]), noon()), [1], "it decides at the first already");
}

#[test]
fn a_full_object_grants_nothing() {
    let mut world = World::default();
    let entry = CapEntry { entity: ad(5), minute: noon(), confirmed: true, keep: 60 };
    let many = u32::try_from(limits::STRICT_ENTRIES).unwrap() + 1;
    let entries: Entries = (1..=many).map(|n| (insertion(n), entry)).collect();
    let ask = CapRequest::Claim(claim(u32::MAX, &[0], &[]));
    let links = Some(KnownLinks { epoch: Epoch(0), members: vec![visitor(1)] });
    let call = CapCall { to: visitor(1), links, entries, ask };
    assert_eq!(world.call(&call, noon()).granted, Entries::new());
    assert_eq!(world.object(visitor(1)).entries.len(), limits::STRICT_ENTRIES);
    let at = |minutes| Minute(noon().0 + minutes);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[1], &[]), at(60)), [0; 0], "some did not fit");
    assert_eq!(world.claim(1, 0, &[1], claim(9_999, &[1], &[]), at(61)), [1]);
}

#[test]
fn an_impression_confirmed_a_day_early_by_a_slow_clock_counts_on_the_day_it_was_seen() {
    let mut world = World::default();
    let midnight = Day(101).start();
    let before = Minute(midnight.0 - 1);
    assert_eq!(world.claim(1, 0, &[1], claim(1, &[1], &[]), before), [1]);
    assert!(world.confirm(1, 1, before), "the edge has it at midnight");
    let seen_claim = |n, seen| {
        let seen = vec![SeenImpression { insertion: insertion(seen), entity: ad(1), minute: midnight }];
        CapClaim { seen, ..claim(1, &[n], &[]) }
    };
    assert_eq!(world.claim(1, 0, &[1], seen_claim(2, 1), Minute(midnight.0 + 60)), [0; 0], "the day's one was seen");
    assert_eq!(
        world.claim(1, 0, &[1], claim(1, &[3], &[]), Minute(midnight.0 + 60)),
        [1],
        "because no snapshot contains it"
    );
}

/// A claim of a browser that knows the person or only itself; a placed ad is seen or not.
#[derive(Debug, Clone)]
enum Event {
    Claim { of: usize, knows: bool, placements: usize },
    See { index: usize },
    Wait { minutes: u32 },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..=3usize, any::<bool>(), 1..=2usize)
            .prop_map(|(of, knows, placements)| Event::Claim { of, knows, placements }),
        4 => any::<prop::sample::Index>().prop_map(|index| Event::See { index: index.index(1_000) }),
        1 => (0..8u32).prop_map(|minutes| Event::Wait { minutes }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Once every object knows the person, placements that are seen never exceed the limit. Neither do those that one
    /// object decides, whatever it knows.
    #[test]
    fn no_interleaving_exceeds_the_limit_after_all_browsers_are_linked(limit in 1..4u32, events in vec(event(), 1..60)) {
        let mut world = World::default();
        let (mut now, mut next) = (Minute(Day(100).start().0), 0);
        let mut placed: Vec<(u32, usize, bool)> = Vec::new();
        let mut seen: BTreeMap<u32, bool> = BTreeMap::new();
        let mut knowing = [false; 3];
        for event in events {
            match event {
                Event::Wait { minutes } => now = Minute(now.0 + minutes),
                Event::Claim { of, knows, placements } => {
                    knowing[of - 1] |= knows;
                    let names: Vec<u32> = (0..placements).map(|_| { next += 1; next }).collect();
                    let (epoch, members) = if knows { (1, vec![1, 2, 3]) } else { (0, vec![of]) };
                    let call = CapCall {
                        to: visitor(of),
                        links: Some(KnownLinks { epoch: Epoch(epoch), members: members.into_iter().map(visitor).collect() }),
                        entries: Entries::new(),
                        ask: CapRequest::Claim(claim(limit, &names, &[])),
                    };
                    let granted = world.call(&call, now).granted;
                    let all_know = knowing.iter().all(|knows| *knows);
                    placed.extend(names.iter().filter(|n| granted.contains_key(&insertion(**n))).map(|n| (*n, of, all_know)));
                }
                Event::See { index } => {
                    let Some((n, of, all_knew)) = placed.get(index % placed.len().max(1)).copied() else { continue };
                    if world.confirm(of, n, now) {
                        prop_assert_eq!(seen.insert(n, all_knew), None, "an insertion counted twice");
                    }
                }
            }
        }
        let after = seen.values().filter(|all_knew| **all_knew).count();
        prop_assert!(after <= limit as usize, "{after} over {limit}");
        prop_assert!(seen.len() <= 3 * limit as usize);
    }
}

#[test]
fn who_is_between_two_objects_keeps_what_it_passes_on() {
    let mut world = World::default();
    let (c, b, a) = (visitor(1), visitor(2), visitor(3));
    let mut granted = |to, epoch, members: &[VisitorId], n: u32, minute: u32| {
        let links = Some(KnownLinks { epoch: Epoch(epoch), members: members.to_vec() });
        let call = CapCall { to, links, entries: Entries::new(), ask: CapRequest::Claim(claim(2, &[n], &[])) };
        world.call(&call, Minute(noon().0 + minute)).granted.len()
    };
    assert_eq!([granted(a, 0, &[a], 1, 0), granted(a, 0, &[a], 2, 0)], [1, 1], "alone, two of two");
    assert_eq!(granted(b, 5, &[b, c], 3, 1), 1, "c decides, and has no entries of others");
    assert_eq!(granted(a, 6, &[a, b], 4, 1), 0, "by b, c hears of a's two");
    // c is cut.
    assert_eq!([granted(b, 7, &[a, b], 5, 2), granted(a, 7, &[a, b], 6, 2)], [0, 0], "b knows of a's two");
}
