//! Reservations: ads that `decide` placed count at once, count once, and fit into a small cookie.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use crate::common::{NOW, law, membership, scramble, version, visitor};
use causeway_shared::base::ids::{FactId, InsertionId, Millis, SessionId, SnapshotVersion, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::random::Random;
use causeway_shared::base::time::{DAY_MINUTES, Day, EPOCH_MS, Minute};
use causeway_shared::facts::actions::{
    ActionCounter, ActionQuestion, ActionType, AdEntity, InsertionHash, PackedActions, ViewType, ViewTypes,
};
use causeway_shared::facts::exposures::{Exposures, FirstExposure};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::offer_codes::{HeldOfferCode, HeldOfferCodes};
use causeway_shared::identity::{
    BulkResult, IdentityCookie, IdentityRequest, IdentityStep, RecognisedVisitor, begin_identity,
};
use causeway_shared::keys::ad_token::AdToken;
use causeway_shared::keys::cookie::{self, LEDGER};
use causeway_shared::keys::key_ring::{KeyRing, KeyStage, RingKey};
use causeway_shared::profiles::ledger::{Ledger, PlacedInsertion};
use causeway_shared::profiles::profile::{KnownVisitor, LaterPage, Profile};
use causeway_shared::profiles::view::{JoinedView, Snapshot};
use causeway_shared::wire;
use proptest::collection::vec;
use proptest::prelude::*;

const MINUTE_MS: u64 = 60_000;

fn insertion(n: u64) -> InsertionId {
    InsertionId((u128::from(scramble(n)) << 64 | u128::from(n)).to_be_bytes())
}

/// Ad `n` of one campaign.
fn entity(n: u32) -> AdEntity {
    AdEntity { ad: 1_000 + n, ad_group: 100 + n / 2, campaign: 10, advertiser: 1 }
}

fn reservation(n: u64, entity: AdEntity, minute: Minute) -> PlacedInsertion {
    PlacedInsertion { insertion: InsertionHash::of(insertion(n)), entity, view_type: ViewType(1), minute }
}

/// The time at which a minute begins.
fn at(minute: Minute) -> Millis {
    EPOCH_MS + u64::from(minute.0) * MINUTE_MS
}

/// The impression of insertion `n`, as a fact of a visitor.
fn impression(of: VisitorId, n: u64, entity: AdEntity, minute: Minute) -> Fact {
    let id = FactId::of_action(of, insertion(n), ActionType::IMPRESSION.0, 1, at(minute));
    let what = FactKind::Action {
        insertion: insertion(n),
        action_type: ActionType::IMPRESSION,
        view_type: ViewType(1),
        entity,
    };
    Fact { position: 0, id, visitor: of, received: at(minute), at: at(minute), what }
}

fn snapshot(of: &[(VisitorId, Vec<Fact>)]) -> Snapshot {
    let profiles =
        of.iter().zip([true, false]).map(|((v, facts), own)| (*v, Profile::of(facts).sub_profile(version(1), own)));
    Snapshot {
        version: version(1),
        visitor: of[0].0,
        unique: Vec::new(),
        membership: membership(1, of.iter().map(|(v, _)| *v), []),
        profiles: profiles.collect(),
        best: None,
    }
}

/// Impressions of an ad in the view within a window, including reservations; the current minute is the window's start.
fn seen(view: &JoinedView, own: VisitorId, entity: AdEntity, (from, to): (Minute, Minute)) -> u32 {
    let reserved = view.of(own).reserved(from);
    let mut all = view.of(own).actions();
    all.extend(reserved.as_deref().and_then(PackedActions::read));
    let question = ActionQuestion { action_types: &[ActionType::IMPRESSION], view_types: ViewTypes::All, from, to };
    ActionCounter::new([entity].into_iter()).count(&all, &question).next().unwrap()[0]
}

const ALL_TIME: (Minute, Minute) = (Minute(0), Minute(u32::MAX));

/// A request of this ledger's visitor, with nothing read from the KV.
fn recognised(visitor: VisitorId, ledger: &Ledger, now: Millis) -> RecognisedVisitor {
    let payload = wire::cookies::encode_ledger(ledger);
    let cookie = IdentityCookie {
        visitor,
        written: now,
        tag: None,
        covered: Vec::new(),
        earlier: Vec::new(),
        pending: Vec::new(),
        login: None,
    };
    let ledger = Some(wire::cookies::decode_ledger(&payload).unwrap());
    let arrival = IdentityRequest {
        now,
        cookie: Some(cookie),
        others: Vec::new(),
        ledger,
        claims: Vec::new(),
        publish_delay_ms: 0,
    };
    let mut random = Random::new([1; 32]);
    let IdentityStep::Second(second) =
        begin_identity(arrival, &mut random).after_first(BulkResult::default(), &mut random)
    else {
        unreachable!()
    };
    second.finish(BulkResult::default()).unwrap()
}

/// One placement: its ad and minute, the delay of its impression if there is one, and the records that contain it.
#[derive(Debug, Clone, Copy)]
struct Placing {
    n: u64,
    entity: AdEntity,
    placed: Minute,
    seen: Minute,
    reserved: bool,
    own: bool,
    sibling: bool,
}

fn placings() -> impl Strategy<Value = Vec<Placing>> {
    let later = prop_oneof![3 => 0u32..10, 1 => 0..=DAY_MINUTES];
    vec((0u32..3, 0..3 * DAY_MINUTES, later, any::<[bool; 3]>()), 0..16).prop_map(|all| {
        let placing = |(n, (ad, minute, later, [reserved, own, sibling])): (u64, (u32, u32, u32, [bool; 3]))| {
            let placed = Minute(Day(100).start().0 + minute);
            Placing { n, entity: entity(ad), placed, seen: Minute(placed.0 + later), reserved, own, sibling }
        };
        (0..).zip(all).map(placing).collect()
    })
}

/// The expected count of one placement in a window. A recorded impression counts at its minute, a reservation at the
/// current one.
fn naive(of: &Placing, (from, to): (Minute, Minute)) -> u32 {
    let within = |minute: Minute| from <= minute && minute < to;
    let known = of.own || of.sibling;
    u32::from((known && within(of.seen)) || (!known && of.reserved && within(from)))
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn no_placed_ad_counts_twice_whatever_histories_name_it(all in placings(), ends in any::<[prop::sample::Index; 2]>()) {
        let mut ends = ends.map(|end| Minute(Day(100).start().0 + u32::try_from(end.index(5 * 1_440)).unwrap()));
        ends.sort();
        let facts = |of: VisitorId, known: fn(&Placing) -> bool| -> Vec<Fact> {
            all.iter().filter(|p| known(p)).map(|p| impression(of, p.n, p.entity, p.seen)).collect()
        };
        let own = visitor(1);
        let mut ledger = Ledger::new(own);
        ledger.reserve(all.iter().filter(|p| p.reserved).map(|p| reservation(p.n, p.entity, p.placed)));
        let mut view = JoinedView::default();
        view.add_snapshot(snapshot(&[(own, facts(own, |p| p.own)), (visitor(2), facts(visitor(2), |p| p.sibling))]));
        view.add_known(own, ledger.known());
        for ad in 0..3 {
            for window in [ALL_TIME, (ends[0], ends[1])] {
                let expected: u32 = all.iter().filter(|p| p.entity == entity(ad)).map(|p| naive(p, window)).sum();
                prop_assert_eq!(seen(&view, own, entity(ad), window), expected, "ad {} {:?}", ad, window);
            }
        }
    }

    #[test]
    fn reservations_are_the_same_after_their_cookie(all in vec((any::<[u8; 6]>(), any::<u8>(), any::<[u32; 4]>(), 0u32..200, any::<bool>()), 0..80)) {
        let mut ledger = Ledger::new(visitor(1));
        let mut before = AdEntity::default();
        ledger.reserve(all.into_iter().map(|(hash, view_type, [ad, ad_group, campaign, advertiser], minute, repeats)| {
            if !repeats {
                before = AdEntity { ad, ad_group, campaign, advertiser };
            }
            let minute = Minute(Minute::at(NOW).0 + minute);
            PlacedInsertion { insertion: InsertionHash(hash), view_type: ViewType(view_type), entity: before, minute }
        }));
        let bytes = wire::cookies::encode_ledger(&ledger);
        prop_assert!(bytes.len() < 60 + limits::RESERVATION_BYTES);
        prop_assert_eq!(wire::cookies::decode_ledger(&bytes).unwrap(), ledger);
    }
}

#[test]
fn the_next_page_knows_the_ads_that_this_page_placed() {
    let own = visitor(1);
    let token = |n, placed| AdToken {
        visitor: own,
        insertion: insertion(n),
        entity: entity(0),
        view_type: ViewType(1),
        placed,
        strict: false,
    };
    let mut ledger = Ledger::new(own);
    for (page, placed) in (0..3).zip([NOW, NOW + 20_000, NOW + 40_000]) {
        let answer = recognised(own, &ledger, placed);
        assert_eq!(seen(&answer.view, own, entity(0), ALL_TIME), page, "each page before this one, no snapshot yet");
        ledger = answer.ledger;
        ledger.reserve([PlacedInsertion::from(&token(page.into(), placed))]);
    }
    // The first two impressions arrive; the third is still expected.
    let mut view = recognised(own, &ledger, NOW + 60_000).view;
    let facts = (0..2).map(|n| impression(own, n, entity(0), Minute::at(NOW + 90_000))).collect();
    view.add_snapshot(snapshot(&[(own, facts)]));
    assert_eq!(seen(&view, own, entity(0), ALL_TIME), 3);
    assert_eq!(view.actions_of(own).unwrap().len(), 2, "reservations are no facts");
}

#[test]
fn a_reservation_counts_for_the_serve_window_and_is_then_dropped() {
    let own = visitor(1);
    let mut ledger = Ledger::new(own);
    ledger.reserve([reservation(1, entity(0), Minute::at(NOW)), reservation(2, entity(0), Minute::at(NOW + 120_000))]);
    let after = |ms| {
        let answer = recognised(own, &ledger, at(Minute::at(NOW)) + ms);
        (seen(&answer.view, own, entity(0), ALL_TIME), answer.ledger.reserved.len())
    };
    let window = limits::SERVE_WINDOW_MS;
    assert_eq!([0, window, window + MINUTE_MS - 1].map(after), [(2, 2); 3], "a clock that is behind drops nothing");
    assert_eq!(after(window + MINUTE_MS), (1, 1));
    assert_eq!(after(window + 3 * MINUTE_MS), (0, 0));
}

#[test]
fn an_ad_placed_before_midnight_and_seen_after_it_counts_once() {
    let own = visitor(1);
    let midnight = Day(100).start();
    let view = |seen_at: Minute| {
        let mut ledger = Ledger::new(own);
        ledger.reserve([reservation(1, entity(0), Minute(midnight.0 - 1))]);
        let mut view = JoinedView::default();
        view.add_snapshot(snapshot(&[(own, vec![impression(own, 1, entity(0), seen_at)])]));
        view.add_known(own, ledger.known());
        view
    };
    for minute in [Minute(midnight.0 - 1), midnight, Minute(midnight.0 + 7)] {
        let view = view(minute);
        assert_eq!(
            (seen(&view, own, entity(0), ALL_TIME), view.of(own).reserved(Minute::at(NOW))),
            (1, None),
            "{minute:?}"
        );
    }
    assert_eq!(seen(&view(Minute(midnight.0 + DAY_MINUTES)), own, entity(0), ALL_TIME), 2, "the day after next");
}

#[test]
fn another_visitors_ledger_reserves_nothing() {
    let mut ledger = Ledger::new(visitor(2));
    ledger.reserve([reservation(1, entity(0), Minute::at(NOW))]);
    let answer = recognised(visitor(1), &ledger, NOW);
    assert_eq!(
        (answer.view.of(visitor(1)).reserved(Minute::at(NOW)), answer.view.of(visitor(2)).reserved(Minute::at(NOW))),
        (None, None)
    );
    assert_eq!(answer.ledger, Ledger::new(visitor(1)));
}

/// A full ledger, with each part at its greatest length.
fn brim(entity: impl Fn(u32) -> AdEntity) -> Ledger {
    let mut ledger = Ledger::new(visitor(1));
    ledger.highest = SnapshotVersion { restore: u32::MAX, counter: u64::MAX };
    for n in 0..50u8 {
        let received = NOW - limits::LEDGER_LIFE_MS + u64::from(n) * 100_000;
        ledger.remember(LaterPage { received, short: u64::MAX, session: SessionId::mint(received, [n; 4]) });
    }
    // The running session belongs to no stored page, and the newest time is a day after the others.
    ledger.session = Some((SessionId::mint(NOW, [99; 4]), NOW));
    for n in 0..80 {
        ledger.reserve([reservation(n, entity(u32::try_from(n).unwrap()), Minute(u32::MAX))]);
    }
    for n in 0..10 {
        ledger.expose((n + 1) * (u32::MAX / 10), FirstExposure { arm: u8::MAX, at: NOW, mixed: false });
        ledger.keep_offer_code((n + 1) * (u32::MAX / 10), HeldOfferCode { number: limits::RECIPIENTS - 1, at: NOW });
    }
    ledger
}

#[test]
fn a_full_ledger_cookie_stays_within_its_size() {
    let tenant = "pub".parse().unwrap();
    let ring = KeyRing(vec![RingKey { id: u8::MAX, stage: KeyStage::Active, secret: [3; 32].into() }]);
    let widest = |n| AdEntity { ad: u32::MAX - n, ad_group: u32::MAX, campaign: u32::MAX, advertiser: u32::MAX };
    // Entities that fill the reservations to the last byte.
    let one = AdEntity { ad: 300, ad_group: 300, campaign: 3, advertiser: 3 };
    let usual = |n| AdEntity { ad: 40_000 + n, ad_group: 9_000 + n, campaign: 700, advertiser: 90 };
    for (ledger, held) in [(brim(widest), 16), (brim(usual), 27), (brim(|_| one), 52)] {
        assert_eq!((ledger.pages.len(), ledger.reserved.len()), (limits::LEDGER_ENTRIES, held));
        assert_eq!(ledger.reserved.last().unwrap().insertion, InsertionHash::of(insertion(79)), "the newest");
        let (exposed, offer_codes) = (ledger.exposed.iter().count(), ledger.offer_codes.iter().count());
        assert_eq!((exposed, offer_codes), (limits::LEDGER_EXPOSURES, limits::LEDGER_OFFER_CODES));
        let payload = wire::cookies::encode_ledger(&ledger);
        let value = cookie::seal_cookie(&ring, LEDGER, &tenant, &payload).unwrap();
        let text = format!("{LEDGER}={value}");
        assert!(text.len() <= limits::LEDGER_COOKIE_BYTES, "{} bytes", text.len());
        let opened = cookie::open(&ring, LEDGER, &tenant, &value).unwrap();
        assert_eq!(wire::cookies::decode_ledger(&opened.payload).unwrap(), ledger);
    }
}

#[test]
fn a_list_that_is_empty_takes_no_byte_of_the_cookie() {
    let mut ledger = brim(entity);
    let mut lengths = vec![wire::cookies::encode_ledger(&ledger).len()];
    let mut record = |ledger: &Ledger, key: u8| {
        let bytes = wire::cookies::encode_ledger(ledger);
        assert_eq!(wire::cookies::decode_ledger(&bytes).as_ref(), Ok(ledger));
        assert!(!bytes.windows(3).any(|three| three == [0x61, key, 0x40]), "an empty byte string has a key");
        lengths.push(bytes.len());
    };
    ledger.reserved.clear();
    record(&ledger, b'r');
    ledger.exposed = Exposures::default();
    record(&ledger, b'x');
    ledger.offer_codes = HeldOfferCodes::default();
    record(&ledger, b'u');
    ledger.pages.clear();
    record(&ledger, b'p');
    assert!(lengths.is_sorted_by(|more, fewer| more > fewer), "{lengths:?}");
}

#[test]
fn the_ledger_holds_an_exposure_until_every_location_has_it_in_a_snapshot() {
    let (seen, own) = (FirstExposure { arm: 2, at: NOW, mixed: false }, visitor(1));
    let mut ledger = Ledger::new(own);
    ledger.expose(5, seen);
    assert_eq!(recognised(own, &ledger, NOW + 1).view.of(own).exposures().get(5), Some(seen));
    let what = FactKind::Exposure { experiment: 5, arm: 2 };
    let fact = Fact { position: 0, id: FactId::from_bytes([9; 16]), visitor: own, received: NOW, at: NOW, what };
    let late = Fact { received: NOW + 1, ..fact.clone() };
    let [sub, lost] = [fact, late].map(|fact| Profile::of(&[fact]).sub_profile(version(1), true));
    for (sub, after, held) in [
        (Some(&lost), limits::LEDGER_LIFE_MS, true),
        (None, limits::LEDGER_LIFE_MS, true),
        (None, limits::LEDGER_LIFE_MS + 1, false),
        (Some(&sub), limits::LEDGER_KEEP_MS, true),
        (Some(&sub), limits::LEDGER_KEEP_MS + 1, false),
    ] {
        let mut ledger = ledger.clone();
        ledger.settle(NOW + after, sub);
        assert_eq!(!ledger.exposed.is_empty(), held, "{after}");
    }
    let earlier = FirstExposure { arm: 1, at: NOW - 1, mixed: false };
    let joined =
        KnownVisitor::from_sub(sub).join(KnownVisitor::default().exposing(&[(5, earlier)].into_iter().collect()));
    assert_eq!(joined.exposures().get(5), Some(FirstExposure { mixed: true, ..earlier }));
}

#[test]
fn the_ledger_holds_an_offer_code_until_every_location_has_it_in_a_snapshot() {
    let (got, own) = (HeldOfferCode { number: 7, at: NOW }, visitor(1));
    let mut ledger = Ledger::new(own);
    ledger.keep_offer_code(5, got);
    assert_eq!(recognised(own, &ledger, NOW + 1).view.of(own).offer_codes().get(5), Some(got));
    let what = FactKind::OfferCode { campaign: 5, number: 7 };
    let fact = Fact { position: 0, id: FactId::from_bytes([9; 16]), visitor: own, received: NOW, at: NOW, what };
    let late = Fact { received: NOW + 1, ..fact.clone() };
    let [sub, lost] = [fact, late].map(|fact| Profile::of(&[fact]).sub_profile(version(1), true));
    for (sub, after, held) in [
        (Some(&lost), limits::LEDGER_LIFE_MS, true),
        (None, limits::LEDGER_LIFE_MS + 1, false),
        (Some(&sub), limits::LEDGER_KEEP_MS, true),
        (Some(&sub), limits::LEDGER_KEEP_MS + 1, false),
    ] {
        let mut ledger = ledger.clone();
        ledger.settle(NOW + after, sub);
        assert_eq!(!ledger.offer_codes.is_empty(), held, "{after}");
    }
    // The first code counts, whichever visitor got it.
    let earlier = HeldOfferCode { number: 9, at: NOW - 1 };
    let joined =
        KnownVisitor::from_sub(sub).join(KnownVisitor::default().getting(&[(5, earlier)].into_iter().collect()));
    assert_eq!(joined.offer_codes().get(5), Some(earlier));
}
