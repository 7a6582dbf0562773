#![expect(clippy::unwrap_used, reason = "tests")]

use causeway_shared::audience::index::PeopleMeasure;
use causeway_shared::base::bucket::BUCKETS;
use causeway_shared::base::ids::{FactId, Millis, VisitorId};
use causeway_shared::base::random::Random;
use causeway_shared::base::time::{HOUR_MS, HourStamp};
use causeway_shared::facts::attributes::AttributeValue;
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use serde_json::{Value as Json, json};

use super::index_follower::StoreFollower;
use crate::audience::query::{self, ExactCount, SampleRequest};
use crate::audience::{Audience, person_row};
use crate::store::PersonNo;
use crate::store::names::events;
use crate::testing::{NOW, Origin, fact, impression, ordered, page, purchase, tracked, visitor, withdrawal};

/// A store, and an audience index that follows it on request.
struct World {
    origin: Origin,
    follower: StoreFollower,
    audience: Audience,
}

impl World {
    fn new() -> Self {
        Self::of(Origin::new())
    }

    fn of(origin: Origin) -> Self {
        let audience = Audience::default();
        let follower = StoreFollower::new(origin.data(), audience.clone()).unwrap();
        Self { origin, follower, audience }
    }

    fn follow(&mut self) {
        while self.follower.step(self.origin.now).unwrap() {}
    }

    /// Writes the index file.
    fn keep(&mut self) {
        while self.follower.keep().unwrap() {}
    }

    /// The oldest visitors of the people in `demo` that match a filter, from the index and, where it cannot decide,
    /// from the store.
    fn members(&self, document: &Json) -> Vec<VisitorId> {
        let tenant = self.origin.tenant("demo");
        let filter = query::parse_filter(&self.origin.conn, tenant, document).unwrap().unwrap();
        let found = query::match_people(&self.audience, tenant.no, &filter, &(0..BUCKETS), self.origin.now).unwrap();
        let unsure = query::decide_unsure(&self.origin.conn, &filter, &found.unsure, self.origin.now).unwrap();
        let mut all: Vec<VisitorId> = found.sure.into_iter().chain(unsure.members).collect();
        all.sort_unstable();
        all
    }

    /// The same people from the store alone.
    fn members_in_store(&self, document: &Json) -> Vec<VisitorId> {
        let tenant = self.origin.tenant("demo");
        let filter = query::parse_filter(&self.origin.conn, tenant, document).unwrap().unwrap();
        let mut statement = self.origin.conn.prepare("SELECT person FROM people WHERE tenant = ?1").unwrap();
        let people = statement.query_map([tenant.no.0], |row| row.get(0).map(PersonNo)).unwrap();
        let someone = |no: PersonNo| person_row::read(&self.origin.conn, no).unwrap();
        let meant =
            people.filter_map(|no| someone(no.unwrap())).filter(|one| one.matches_filter(&filter, self.origin.now));
        let mut all: Vec<VisitorId> = meant.map(|one| one.master).collect();
        all.sort_unstable();
        all
    }

    fn count(&self, document: &Json) -> usize {
        let members = self.members(document);
        assert_eq!(members, self.members_in_store(document), "{document}");
        members.len()
    }
}

fn says(of: VisitorId, n: u32, at: Millis, name: &str, value: AttributeValue) -> Fact {
    fact(of, n, at, FactKind::Attributes { writes: vec![(name.to_owned(), Some(value))] })
}

fn joins(of: VisitorId, n: u32, at: Millis, segment: u32, hours: u32) -> Fact {
    let state = SegmentState::held(HourStamp(HourStamp::at(at).0 + hours), []);
    fact(of, n, at, FactKind::Segments { writes: vec![(SegmentId(segment), state)] })
}

#[test]
fn a_merge_and_an_unlink_change_an_audience_at_its_next_step() {
    let mut world = World::new();
    let (a, b) = (visitor(1), visitor(2));
    // The first visitor is the older one and therefore the master after the join. The second's segments must not stay
    // with it.
    world.origin.send("demo", &[page(a, 1, NOW), joins(a, 2, NOW, 7, 48), page(b, 1, NOW), purchase(b, 2, NOW, 5)]);
    world.origin.send("demo", &[joins(b, 5, NOW, 8, 48)]);
    world.follow();
    let (buyers, in_seven) = (json!({"events.purchase": {"$count": {"$gte": 1}}}), json!({"segments": 7}));
    let (in_eight, both) = (json!({"segments": 8}), json!({"$and": [buyers, in_seven, {"segments": 8}]}));
    assert_eq!((world.members(&buyers), world.members(&in_seven), world.count(&both)), (vec![b], vec![a], 0));
    assert_eq!((world.members(&in_eight), world.count(&in_eight)), (vec![b], 1));
    let logins = [world.origin.login(a, 3, NOW, "ann"), world.origin.login(b, 3, NOW, "ann")];
    world.origin.send("demo", &logins);
    world.follow();
    assert_eq!((world.members(&buyers), world.members(&both), world.count(&json!({}))), (vec![a], vec![a], 1));
    assert_eq!((world.members(&in_eight), world.count(&in_eight)), (vec![a], 1));
    assert_eq!(world.count(&json!({"devices": 2})), 1);
    let id = world.origin.member("demo", "ann");
    let over = fact(b, 4, NOW + 1, FactKind::Cancellation { id });
    world.origin.admin("demo", &[over]);
    world.follow();
    assert_eq!((world.members(&buyers), world.members(&in_seven), world.count(&both)), (vec![b], vec![a], 0));
    assert_eq!((world.members(&in_eight), world.count(&in_eight)), (vec![b], 1));
    world.origin.send("demo", &[withdrawal(a, NOW + 2)]);
    world.follow();
    assert_eq!((world.count(&in_seven), world.count(&in_eight), world.count(&json!({}))), (0, 1, 1));
}

#[test]
fn an_order_of_two_browsers_is_one_purchase_of_an_audience_s_person() {
    let mut world = World::new();
    let (a, b) = (visitor(1), visitor(2));
    world.origin.send("demo", &[ordered(a, "o-7", NOW, 9), ordered(b, "o-7", NOW, 9)]);
    world.follow();
    let twice = json!({"events.purchase": {"$count": {"$gte": 2}}});
    let lately = json!({"events.purchase": {"$count": {"$gte": 2}, "within": {"interval": 1, "unit": "days"}}});
    let once = json!({"events.purchase": {"$count": 1}});
    assert_eq!((world.count(&once), world.count(&twice)), (2, 0));
    let logins = [world.origin.login(a, 3, NOW, "ann"), world.origin.login(b, 3, NOW, "ann")];
    world.origin.send("demo", &logins);
    world.follow();
    assert_eq!((world.count(&once), world.count(&twice), world.count(&lately)), (1, 0, 0));
    world.origin.send("demo", &[ordered(b, "o-8", NOW, 1)]);
    world.follow();
    assert_eq!((world.count(&once), world.count(&twice), world.count(&lately)), (0, 1, 1));
}

#[test]
fn an_estimate_reads_a_growing_sample_and_its_interval_contains_the_count() {
    let mut world = World::new();
    // A third is in a segment. A sixth bought twice, which the index leaves to the store; another sixth bought once.
    let of = |n: u32| match n % 6 {
        0 | 2 => joins(visitor(n), 2, NOW, 7, 48),
        1 | 3 => page(visitor(n), 2, NOW),
        _ => purchase(visitor(n), 2, NOW - HOUR_MS, 5),
    };
    let again = |n: u32| purchase(visitor(n), 3, NOW - 2 * HOUR_MS, 5);
    let mut facts: Vec<Fact> = (0..3_000).flat_map(|n| [page(visitor(n), 1, NOW), of(n)]).collect();
    facts.extend((4..3_000).step_by(6).map(again));
    facts.chunks(500).for_each(|some| drop(world.origin.send("demo", some)));
    world.follow();
    let tenant = world.origin.tenant("demo");
    let (conn, audience, now) = (&world.origin.conn, &world.audience, world.origin.now);
    let bought = json!({"events.purchase": {"$count": {"$gte": 2}, "within": {"interval": 10, "unit": "hours"}}});
    let document = json!({"$or": [{"segments": 7}, bought]});
    let filter = query::parse_filter(conn, tenant, &document).unwrap().unwrap();
    let exact = query::count_exactly(audience, conn, tenant.no, &filter, now).unwrap();
    assert_eq!(exact, ExactCount { count: 1_500, population: 3_000, unreadable: 0, as_of: now });
    let whole = query::count_people(audience, tenant.no, &filter, &(0..BUCKETS), None, now).unwrap();
    assert_eq!((whole.sure, whole.unsure.len() >= 500), (1_000, true), "{}", whole.unsure.len());
    for random in [0, 5_000, 123_456_789, u64::MAX] {
        let (sampling, mut looks) =
            (SampleRequest { precision: 0.03, measure: Some(PeopleMeasure::Pages), random }, Vec::new());
        query::estimate_count(audience, conn, tenant.no, &filter, &sampling, now, |look| looks.push(look)).unwrap();
        let [.., last] = looks.as_slice() else { unreachable!() };
        assert!(looks.len() > 1 && last.look.sampled() < 3_000, "{random}: {looks:?}");
        assert!(looks.iter().rev().skip(1).all(|look| !look.is_last) && last.is_last, "{random}: {looks:?}");
        for (one, next) in looks.iter().zip(&looks[1..]) {
            let (inner, outer) = (one.buckets, next.buckets);
            assert!(outer.0 <= inner.0 && inner.1 <= outer.1 && outer.1 - outer.0 > inner.1 - inner.0, "{looks:?}");
            assert!(one.look.sampled() <= next.look.sampled() && one.look.found() <= next.look.found(), "{looks:?}");
        }
        let size = last.look.size();
        assert!((size.least..=size.most).contains(&1_500) && size.share.half_width() <= 0.03, "{random}: {size:?}");
        // Each matching person has exactly one page view.
        let total = last.look.total(&last.moments).unwrap();
        assert_eq!((last.moments.found, last.moments.sum), (last.look.found(), last.look.found().into()));
        assert!(total.low <= 1_500.0 && 1_500.0 <= total.high, "{random}: {total:?}");
    }
}

#[test]
fn a_segment_is_over_in_its_hour_though_nothing_happened() {
    let mut world = World::new();
    world.origin.send("demo", &[joins(visitor(1), 1, NOW, 7, 2), joins(visitor(1), 2, NOW, 8, 9)]);
    world.follow();
    assert_eq!((world.count(&json!({"segments": 7})), world.count(&json!({"segments": 8}))), (1, 1));
    world.origin.now += 2 * HOUR_MS;
    world.follow();
    assert_eq!((world.count(&json!({"segments": 7})), world.count(&json!({"segments": 8}))), (0, 1));
}

#[test]
fn segments_that_end_in_the_same_hour_hold_up_nothing_that_is_new() {
    let mut world = World::new();
    let all: Vec<Fact> = (0..2_500).map(|v| joins(visitor(v), 1, NOW, 7, 2)).collect();
    world.origin.send("demo", &all);
    world.origin.send("demo", &[joins(visitor(6_000), 1, NOW, 9, 3)]);
    world.follow();
    world.origin.now += 2 * HOUR_MS;
    let as_of = world.audience.read().as_of;
    world.origin.send("demo", &[joins(visitor(5_000), 1, world.origin.now, 8, 9)]);
    let now = world.origin.now;
    assert!(world.follower.step(now).unwrap());
    assert_eq!(world.count(&json!({"segments": 8})), 1);
    assert_eq!(world.audience.read().as_of, as_of, "they are not all read");
    // An hour that begins meanwhile is handled after it.
    world.origin.now += HOUR_MS;
    world.follow();
    assert_eq!(world.audience.read().as_of, Some(world.origin.now));
    assert_eq!((world.count(&json!({"segments": 7})), world.count(&json!({"segments": 9}))), (0, 0));
}

#[test]
fn a_segment_that_ended_by_a_clock_ahead_has_not_when_the_clock_is_right() {
    let mut world = World::new();
    world.origin.send("demo", &[joins(visitor(1), 1, NOW, 7, 24)]);
    world.follow();
    world.origin.now = NOW + 48 * HOUR_MS;
    world.follow();
    assert_eq!(world.count(&json!({"segments": 7})), 0);
    world.origin.now = NOW + HOUR_MS;
    world.follow();
    assert_eq!(world.count(&json!({"segments": 7})), 1);
}

#[test]
fn an_erased_visitor_is_in_no_file_of_the_audience_index() {
    let mut world = World::new();
    let mail = |of: &str| AttributeValue::String(of.to_owned());
    let (ann, bert) = ("ann@example.org", "bert@example.org");
    world
        .origin
        .send("demo", &[says(visitor(1), 1, NOW, "mail", mail(ann)), says(visitor(2), 1, NOW, "mail", mail(bert))]);
    world.follow();
    world.keep();
    let file = world.origin.data().join("audience-index");
    let holds = |what: &[u8]| std::fs::read(&file).unwrap().windows(what.len()).any(|bytes| bytes == what);
    assert!(holds(ann.as_bytes()) && holds(visitor(1).as_bytes()));
    // Half of the next file is written when the erasure arrives, so that the file must be written again.
    assert!(world.follower.keep().unwrap() && !world.follower.is_old());
    let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
    world.origin.send("demo", &[Fact { id: FactId::of_erasure(visitor(1)), ..fact(visitor(1), 9, NOW, what) }]);
    world.follow();
    world.keep();
    assert!(world.follower.is_old());
    // A directory blocks the path of the next file.
    let part = file.with_extension("part");
    std::fs::create_dir(&part).unwrap();
    assert!(!world.follower.keep_or_say());
    assert!(world.follower.is_old(), "the file must still be rewritten");
    std::fs::remove_dir(&part).unwrap();
    world.keep();
    assert!(!world.follower.is_old());
    assert!(!holds(ann.as_bytes()) && !holds(visitor(1).as_bytes()));
    assert!(holds(bert.as_bytes()));
    // The text numbers of the rows remain valid.
    let mut reopened =
        World { follower: StoreFollower::new(world.origin.data(), Audience::default()).unwrap(), ..World::new() };
    reopened.audience = Audience::default();
    reopened.follower = StoreFollower::new(world.origin.data(), reopened.audience.clone()).unwrap();
    reopened.origin = world.origin;
    reopened.follow();
    assert_eq!(
        (reopened.count(&json!({"attributes.mail": bert})), reopened.count(&json!({"attributes.mail": ann}))),
        (1, 0)
    );
}

#[test]
fn the_people_of_two_tenants_are_separate() {
    let mut world = World::new();
    world.origin.send("demo", &[page(visitor(1), 1, NOW)]);
    world.origin.send("other", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    world.follow();
    assert_eq!(world.count(&json!({})), 1);
    let other = world.origin.tenant("other").no;
    assert_eq!(world.audience.read().of_tenant[&other].len(), 2);
}

fn below(random: &mut Random, most: u64) -> u64 {
    u64::from_be_bytes(random.draw()) % most
}

/// One random fact of a few visitors: a view, a purchase, an attribute, a segment, a login or a cancellation.
fn random_facts(world: &mut World, random: &mut Random, n: u32) {
    let of = visitor(below(random, 12) as u32);
    let at = world.origin.now - below(random, 40) * HOUR_MS / 2;
    let member = format!("m{}", below(random, 5));
    let made = match below(random, 11) {
        0 | 1 => page(of, n, at),
        2 => purchase(of, n, at, 1_000),
        3 => impression(of, n, at),
        4 => says(of, n, at, "city", AttributeValue::String(format!("city {}", below(random, 3)))),
        5 => says(of, n, at, "age", AttributeValue::Integer(below(random, 60) as i64)),
        6 | 7 => joins(of, n, world.origin.now, below(random, 5) as u32, 1 + below(random, 30) as u32),
        8 => world.origin.login(of, n, at, &member),
        9 => {
            let id = world.origin.member("demo", &member);
            let over = fact(of, n, world.origin.now, FactKind::Cancellation { id });
            return world.origin.admin("demo", &[over]);
        }
        _ if below(random, 8) == 0 => withdrawal(of, at),
        _ => page(of, n, at),
    };
    world.origin.send("demo", &[made]);
}

#[test]
fn an_updated_audience_index_equals_the_store_and_a_rebuilt_index() {
    let filters = [
        json!({}),
        json!({"segments": {"$in": [1, 3]}}),
        json!({"attributes.city": {"$in": ["city 1", "city 2"]}, "attributes.age": {"$gt": 30}}),
        json!({"$or": [{"devices": {"$gte": 2}}, {"events.page": {"$count": {"$gte": 2}}}]}),
        json!({"actions.impression": {"$count": {"$gte": 1}, "within": {"interval": 8, "unit": "hours"}}}),
        json!({"events.purchase": {"$count": 0, "within": {"interval": 10, "unit": "hours"}}, "segments": {"$exists": true}}),
        json!({"$not": {"segments": 2, "last_seen": {"$gte": NOW}}}),
    ];
    for seed in 0..12 {
        let (mut world, random) = (World::new(), &mut Random::new([seed; 32]));
        for n in 0..150 {
            world.origin.now += below(random, HOUR_MS / 4);
            random_facts(&mut world, random, n);
            match below(random, 4) {
                0 => world.follow(),
                // Writes a part of the file, with changes in between.
                1 | 2 => drop(world.follower.keep().unwrap()),
                _ => {}
            }
        }
        world.follow();
        // Attribute names exist from their first use on.
        let known: Vec<&Json> = filters
            .iter()
            .filter(|one| query::parse_filter(&world.origin.conn, world.origin.tenant("demo"), one).unwrap().is_ok())
            .collect();
        assert!(known.len() >= 6, "{}", known.len());
        let followed: Vec<usize> = known.iter().map(|filter| world.count(filter)).collect();
        let mut from_file = World::of(world.origin);
        from_file.follow();
        assert_eq!(from_file.audience.read().building, (0, 0), "seed {seed}: there is a file");
        assert_eq!(followed, known.iter().map(|filter| from_file.count(filter)).collect::<Vec<_>>(), "seed {seed}");
        std::fs::remove_file(from_file.origin.data().join("audience-index")).unwrap();
        let mut reopened = World::of(from_file.origin);
        reopened.follow();
        assert_eq!(followed, known.iter().map(|filter| reopened.count(filter)).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn who_is_too_far_behind_begins_anew() {
    let mut world = World::new();
    world.origin.send("demo", &[page(visitor(1), 1, NOW)]);
    world.follow();
    world.origin.send("demo", &[page(visitor(2), 1, NOW)]);
    world.origin.send("demo", &[page(visitor(3), 1, NOW)]);
    super::forget(&world.origin.conn, 1).unwrap();
    world.follow();
    assert_eq!(world.count(&json!({})), 3);
    assert!(world.audience.read().as_of.is_some());
    assert_eq!(world.audience.read().building, (3, 3));
}

#[test]
fn columns_go_on_from_their_file_with_what_changed_since() {
    let mut world = World::new();
    world.origin.send("demo", &[page(visitor(1), 1, NOW), joins(visitor(2), 1, NOW, 7, 2)]);
    world.origin.send("other", &[page(visitor(1), 1, NOW)]);
    world.follow();
    world.keep();
    world.origin.send("demo", &[page(visitor(3), 1, NOW)]);
    world.origin.now += 2 * HOUR_MS;
    let mut reopened = World::of(world.origin);
    reopened.follow();
    // Only changed people were read.
    assert_eq!(reopened.audience.read().building, (0, 0));
    assert_eq!((reopened.count(&json!({})), reopened.count(&json!({"segments": 7}))), (3, 0));
    assert_eq!(reopened.audience.read().of_tenant.len(), 2);
}

#[test]
fn who_is_told_to_end_while_the_file_is_read_builds_nothing() {
    let mut world = World::new();
    world.origin.send("demo", &[page(visitor(1), 1, NOW)]);
    world.follow();
    world.keep();
    let mut reopened = World::of(world.origin);
    reopened.audience.stop();
    reopened.follower.step(NOW).unwrap();
    assert_eq!(reopened.audience.read().building, (0, 0));
}

#[test]
fn a_file_that_is_not_of_this_store_or_damaged_is_none() {
    let mut world = World::new();
    world.origin.send("demo", &(0..50).map(|n| page(visitor(n), 1, NOW)).collect::<Vec<_>>());
    world.follow();
    world.keep();
    let path = world.origin.data().join("audience-index");
    let bytes = std::fs::read(&path).unwrap();
    let is_used = |world: World| {
        let mut reopened = World::of(world.origin);
        reopened.follow();
        assert_eq!(reopened.count(&json!({})), 50);
        let built = reopened.audience.read().building.1;
        (built == 0, reopened)
    };
    let (used, mut world) = is_used(world);
    assert!(used);
    for at in [0, 5, 30, bytes.len() / 2, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 64;
        std::fs::write(&path, damaged).unwrap();
        let (used, next) = is_used(world);
        assert!(!used, "{at}");
        std::fs::write(&path, &bytes[..at]).unwrap();
        let (used, next) = is_used(next);
        assert!(!used, "cut at {at}");
        world = next;
    }
    for change in ["restore_epoch = restore_epoch + 1", "index_epoch = index_epoch + 1"] {
        std::fs::write(&path, &bytes).unwrap();
        world.origin.conn.execute(&format!("UPDATE meta SET {change}"), []).unwrap();
        let (used, next) = is_used(world);
        assert!(!used, "{change}");
        world = next;
    }
}

#[test]
fn columns_that_are_asked_to_be_are_built_anew_while_they_follow() {
    let mut world = World::new();
    world.origin.send("demo", &[page(visitor(1), 1, NOW)]);
    world.follow();
    world.keep();
    let mut follower = StoreFollower::new(world.origin.data(), world.audience.clone()).unwrap();
    while follower.step(NOW).unwrap() {}
    assert_eq!(world.audience.read().building, (1, 1), "the file was read, and tells of no building");
    world.origin.conn.execute("UPDATE meta SET index_epoch = index_epoch + 1", []).unwrap();
    assert!(follower.step(NOW).unwrap());
    assert_eq!((world.audience.read().as_of, world.audience.read().building), (None, (0, 1)));
    while follower.step(NOW).unwrap() {}
    assert_eq!((world.count(&json!({})), world.audience.read().as_of), (1, Some(NOW)));
}

#[test]
fn who_was_last_seen_before_events_were_kept_is_read_all_the_same() {
    let mut world = World::new();
    world.origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    // The row as an earlier release left it.
    world.origin.conn.execute("UPDATE visitors SET events = x''", []).unwrap();
    world.follow();
    assert_eq!(world.count(&json!({ "devices": 1 })), 2);
}

#[test]
fn strangers_who_use_up_the_names_of_events_keep_no_audience_from_its_answer() {
    let mut world = World::new();
    let asked = |name: &str| json!({ format!("events.{name}"): {"$count": {"$gte": 1}} });
    // 17 visitors send 64 names each, and the tenant's own event comes after them.
    for n in 0..17 {
        let junk = (0..64).map(|at| tracked(visitor(n), at, NOW, &format!("junk_{n}_{at}")));
        let facts: Vec<Fact> = junk.collect();
        world.origin.send("demo", &facts);
        world.follow();
    }
    let late = (100..130).map(|n| tracked(visitor(n), 1, NOW, "signup"));
    let facts: Vec<Fact> = late.chain((130..140).map(|n| page(visitor(n), 1, NOW))).collect();
    world.origin.send("demo", &facts);
    world.follow();
    assert_eq!((world.count(&asked("signup")), world.count(&asked("junk_16_63"))), (30, 1));
    let unsure = |world: &World, name: &str| {
        let tenant = world.origin.tenant("demo");
        let filter = query::parse_filter(&world.origin.conn, tenant, &asked(name)).unwrap().unwrap();
        query::match_people(&world.audience, tenant.no, &filter, &(0..BUCKETS), world.origin.now).unwrap().unsure.len()
    };
    assert_eq!(unsure(&world, "signup"), 17 + 30, "the store is asked of those with uncounted events alone");

    // A declared event is also counted for earlier occurrences, and the index file gives the same answer.
    let (tenant, now) = (world.origin.tenant("demo").no, world.origin.now);
    events::declare_names(&mut world.origin.conn, tenant, &["signup".to_owned()].into(), now).unwrap();
    world.follow();
    assert_eq!((world.count(&asked("signup")), unsure(&world, "signup")), (30, 0));
    world.keep();
    let mut again = World::of(world.origin);
    again.follow();
    assert_eq!((again.count(&asked("signup")), unsure(&again, "signup")), (30, 0));

    // A name that is forgotten while the file is written is not in any answer from the file.
    assert!(again.follower.keep().unwrap());
    let (given, of) = (again.origin.given(), again.origin.tenant("demo").clone());
    let said = crate::base::attribution::Attribution::by("cli");
    crate::maintenance::forget_event_names::forget_names(
        &mut again.origin.conn,
        &again.origin.rules,
        given,
        &of,
        &["signup".to_owned()].into(),
        &said,
    )
    .unwrap();
    again.follow();
    again.keep();
    assert_eq!((again.count(&asked("signup")), unsure(&again, "signup")), (30, 17 + 30));
    let mut last = World::of(again.origin);
    last.follow();
    assert_eq!((last.count(&asked("signup")), unsure(&last, "signup")), (30, 17 + 30));
}

/// Writes attributes of a visitor from the admin side, in as many facts as needed.
fn says_all(origin: &mut Origin, of: VisitorId, first: u32, at: Millis, names: std::ops::Range<u32>) {
    let writes: Vec<(String, Option<AttributeValue>)> =
        names.map(|n| (format!("n{n}"), Some(AttributeValue::Bool(true)))).collect();
    let chunks = (first..).zip(writes.chunks(causeway_shared::base::limits::ATTRIBUTE_WRITES));
    let facts: Vec<Fact> =
        chunks.map(|(n, writes)| fact(of, n, at, FactKind::Attributes { writes: writes.to_vec() })).collect();
    origin.admin("demo", &facts);
}

#[test]
fn who_may_have_lost_an_attribute_or_a_segment_is_in_no_audience_that_excludes_it() {
    let mut world = World::new();
    let most = u32::try_from(causeway_shared::base::limits::ATTRIBUTES).unwrap();
    let opted = json!({ "attributes.optout": { "$ne": true } });
    for v in [1, 2] {
        world
            .origin
            .admin("demo", &[says(visitor(v), 1, NOW, "optout", AttributeValue::Bool(true)), page(visitor(v), 2, NOW)]);
    }
    world.origin.send("demo", &[page(visitor(3), 1, NOW)]);
    world.follow();
    assert_eq!(world.count(&opted), 1);
    // The first visitor's opt-out is dropped because newer attributes fill the map.
    says_all(&mut world.origin, visitor(1), 10, NOW + 1, 0..most);
    world.follow();
    assert_eq!(world.members(&opted), [visitor(3)]);
    assert_eq!(world.count(&json!({ "attributes.n5": { "$ne": true } })), 2, "what is there is known");
    assert_eq!(world.count(&json!({ "attributes.n5": true })), 1);
    // The index file gives the same answer.
    world.keep();
    let mut again = World::of(world.origin);
    again.follow();
    assert_eq!(again.count(&opted), 1);

    // Each of two visitors of a person has room, but the joined person has none.
    let mut world = World::new();
    let logins = [1, 2].map(|v| world.origin.login(visitor(v), 9, NOW, "ann"));
    world.origin.send("demo", &logins);
    world.origin.admin("demo", &[says(visitor(1), 1, NOW, "optout", AttributeValue::Bool(true))]);
    says_all(&mut world.origin, visitor(1), 10, NOW + 1, 0..most - 6);
    says_all(&mut world.origin, visitor(2), 10, NOW + 2, most..most + 100);
    world.follow();
    assert_eq!(world.count(&opted), 0);

    let mut world = World::new();
    let segments = u32::try_from(causeway_shared::base::limits::SEGMENTS).unwrap();
    let state = || SegmentState::held(HourStamp::at(NOW + 9 * HOUR_MS), []);
    let set = |n: u32, at: Millis, ids: std::ops::Range<u32>| {
        fact(visitor(1), n, at, FactKind::Segments { writes: ids.map(|id| (SegmentId(id), state())).collect() })
    };
    world.origin.admin("demo", &[set(1, NOW, 70_000..70_001)]);
    let some = u32::try_from(causeway_shared::base::limits::SEGMENT_WRITES).unwrap();
    let full =
        (0..segments).step_by(some as usize).map(|from| set(2 + from, NOW + 1, from..(from + some).min(segments)));
    world.origin.admin("demo", &full.collect::<Vec<_>>());
    world.origin.send("demo", &[page(visitor(2), 1, NOW)]);
    world.follow();
    assert_eq!(world.members(&json!({ "segments": { "$nin": [70_000] } })), [visitor(2)]);
    assert_eq!(world.count(&json!({ "segments": 5 })), 1);
}

#[test]
fn a_visitor_that_cannot_be_read_is_left_out_and_counted_and_all_others_are_in() {
    let mut world = World::new();
    for v in 1..=3 {
        let facts = (0..3).map(|n| purchase(visitor(v), n, NOW + u64::from(n), 5));
        world.origin.send("demo", &facts.collect::<Vec<_>>());
    }
    world.follow();
    let damage = "UPDATE visitors SET attributes = x'00ff' WHERE visitor = ?1";
    world.origin.conn.execute(damage, [visitor(2).as_bytes()]).unwrap();
    // The index cannot decide about any of them, so that the store is read.
    let lately = json!({"events.purchase": {"$count": {"$gte": 2}, "within": {"interval": 10, "unit": "hours"}}});
    let (tenant, now) = (world.origin.tenant("demo").no, world.origin.now);
    let both = |world: &World| {
        let filter = query::parse_filter(&world.origin.conn, world.origin.tenant("demo"), &lately).unwrap().unwrap();
        let (audience, conn) = (&world.audience, &world.origin.conn);
        let mut everyone = query::list_members(audience, conn, tenant, &filter, now).unwrap();
        everyone.members.sort_unstable();
        let exact = query::count_exactly(audience, conn, tenant, &filter, now).unwrap();
        let sampling = SampleRequest { precision: 0.1, measure: Some(PeopleMeasure::Purchases), random: 0 };
        let mut last = None;
        query::estimate_count(audience, conn, tenant, &filter, &sampling, now, |report| last = Some(report)).unwrap();
        let last = last.unwrap();
        (everyone.members, everyone.unreadable, exact.count, exact.unreadable, last.look.found(), last.unreadable)
    };
    let expected = (vec![visitor(1), visitor(3)], 1, 2, 1, 2, 1);
    assert_eq!(both(&world), expected);
    // The person's row is rewritten after a change; the index then has no row for it.
    world.origin.conn.execute("INSERT INTO people_changed (person) SELECT person FROM people", []).unwrap();
    world.follow();
    assert_eq!(both(&world), expected);
    world.keep();
    let mut again = World::of(world.origin);
    again.follow();
    assert_eq!(both(&again), expected, "also from the file");
}
