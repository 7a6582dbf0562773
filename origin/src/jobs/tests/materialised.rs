//! Materialised audiences.

use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::attributes::AttributeValue;
use serde_json::Value as Json;

use super::*;
use crate::audience::index_follower::StoreFollower;
use crate::audience::materialized::{self, MaterialiseError, MaterializedAudience};
use crate::audience::query;

const SEGMENT: SegmentId = SegmentId(9);

impl World {
    /// Builds the audience index of the current store.
    pub(super) fn follow(&mut self) {
        self.audience = Audience::default();
        let mut follower = StoreFollower::new(self.origin.data(), self.audience.clone()).unwrap();
        while follower.step(self.origin.now).unwrap() {}
    }

    fn keep(&self, segment: SegmentId, document: &Json, hours: u32, every: u32) -> Result<(), MaterialiseError> {
        let known = self.origin.tenant("demo");
        let filter = query::parse_filter(&self.origin.conn, known, document).unwrap().unwrap();
        MaterializedAudience::new((known.no, segment), (&filter, document), (hours, every), self.origin.now)?
            .keep(&self.origin.conn, known)
    }

    /// Refreshes due audiences; returns members, added, removed and renewed of the first one.
    fn refresh(&mut self) -> [u64; 4] {
        self.follow();
        let ended = self.all(JobKind::Materialise, false);
        assert_eq!(ended.outcome, Some(RunOutcome::Done), "{}", ended.report);
        sums(&ended.report)
    }

    /// The first visitors that are in a segment, according to the store.
    fn held(&self, segment: SegmentId, visitors: u32) -> Vec<u32> {
        (0..visitors).filter(|v| self.is_held(segment, *v)).collect()
    }

    fn is_held(&self, segment: SegmentId, v: u32) -> bool {
        let segments = self.origin.profile("demo", visitor(v)).segments().clone();
        segments.get(segment).is_some_and(|(expiry, _)| expiry > HourStamp::at(self.origin.now))
    }

    /// Publishes all waiting keys and returns their number.
    fn published(&mut self) -> usize {
        let mut kv = BTreeMap::new();
        self.origin.settle(&mut kv);
        kv.keys().filter(|key| key.starts_with("v:")).count()
    }
}

fn sums(report: &Json) -> [u64; 4] {
    ["members", "added", "removed", "renewed"].map(|name| report["refreshed"][0][name].as_u64().unwrap_or(u64::MAX))
}

pub(super) fn lives_in(v: u32, n: u32, at: u64, city: &str) -> Fact {
    let writes = vec![("city".to_owned(), Some(AttributeValue::String(city.to_owned())))];
    fact(visitor(v), n, at, FactKind::Attributes { writes })
}

/// `all` people; the first `bonn` live in Bonn, the others in Ulm.
fn of_two_cities(bonn: u32, all: u32) -> World {
    let mut world = World::with(0);
    let city = |v: u32| if v < bonn { "Bonn" } else { "Ulm" };
    let facts: Vec<Fact> = (0..all).map(|v| lives_in(v, 1, NOW, city(v))).collect();
    world.origin.send("demo", &facts);
    world
}

pub(super) fn bonn() -> Json {
    json!({ "attributes.city": "Bonn" })
}

#[test]
fn an_audience_is_stored_as_a_segment_and_only_changed_members_are_written() {
    let mut world = of_two_cities(700, 1_300);
    world.keep(SEGMENT, &bonn(), 72, 24).unwrap();
    world.follow();
    let dry = world.all(JobKind::Materialise, true);
    assert_eq!((sums(&dry.report), world.held(SEGMENT, 1_300).len()), ([700, 700, 0, 0], 0));
    world.published();
    assert_eq!(world.refresh(), [700, 700, 0, 0]);
    assert_eq!(world.held(SEGMENT, 1_300), (0..700).collect::<Vec<_>>());
    assert_eq!(world.published(), 700);
    // The audience is not due, so that nothing is compared.
    assert_eq!(world.all(JobKind::Materialise, false).report["audiences"], 0);

    world.origin.now += 24 * HOUR_MS;
    let at = world.origin.now;
    world.origin.send("demo", &[lives_in(3, 2, at, "Ulm"), lives_in(900, 2, at, "Bonn"), lives_in(901, 2, at, "Bonn")]);
    world.published();
    assert_eq!(world.refresh(), [701, 2, 1, 0]);
    assert_eq!(world.published(), 3, "the differences alone are published");
    let expected: Vec<u32> = (0..1_300).filter(|v| *v < 700 && *v != 3 || [900, 901].contains(v)).collect();
    assert_eq!(world.held(SEGMENT, 1_300), expected);

    // Remaining members are renewed before they expire.
    world.origin.now += 24 * HOUR_MS;
    assert_eq!(world.refresh(), [701, 0, 0, 699]);
    for _ in 0..5 {
        world.origin.now += 24 * HOUR_MS;
        assert_eq!(world.held(SEGMENT, 1_300), expected);
        world.refresh();
    }
    let no = world.origin.tenant("demo").no;
    assert!(MaterializedAudience::drop(&world.origin.conn, no, SEGMENT, world.origin.now).unwrap());
    assert_eq!(world.refresh(), [0, 0, 701, 0]);
    assert_eq!(
        (world.held(SEGMENT, 1_300), materialized::list_audiences(&world.origin.conn, None).unwrap()),
        (vec![], vec![])
    );
    assert!(!MaterializedAudience::drop(&world.origin.conn, no, SEGMENT, world.origin.now).unwrap());
}

#[test]
fn after_a_refresh_exactly_the_people_who_match_are_in_the_segment_whatever_others_wrote() {
    let mut world = of_two_cities(3, 6);
    let write = |v: u32, n: u32, at: u64, is_in: bool| {
        let until = HourStamp::at(at + 500 * HOUR_MS);
        let state = if is_in { SegmentState::held(until, []) } else { SegmentState::Removed };
        fact(visitor(v), n, at, FactKind::Segments { writes: vec![(SEGMENT, state)] })
    };
    // The page of another visitor, before the segment belongs to an audience.
    world.origin.send("demo", &[write(5, 50, NOW, true)]);
    world.origin.now += 1_000;
    world.keep(SEGMENT, &bonn(), 72, 24).unwrap();
    assert_eq!((world.refresh(), world.held(SEGMENT, 6)), ([3, 3, 1, 0], vec![0, 1, 2]));
    world.origin.drain(10);
    let allocation =
        crate::campaigns::allocation::load_newest(&world.origin.conn, world.origin.tenant("demo").no).unwrap().unwrap();
    assert_eq!(allocation.materialised, [SEGMENT.0].into(), "edges are notified");

    // Pages must not write the segment even if they do not know of the audience.
    world.origin.now += HOUR_MS;
    let at = world.origin.now;
    world.origin.send("demo", &[write(0, 51, at, false), write(4, 52, at, true)]);
    assert_eq!(world.held(SEGMENT, 6), [0, 1, 2]);
    // Writes by the admin side stay until the refresh.
    world.origin.admin("demo", &[write(0, 53, at, false), write(4, 54, at, true)]);
    assert_eq!(world.held(SEGMENT, 6), [1, 2, 4]);
    world.origin.now += 23 * HOUR_MS;
    assert_eq!((world.refresh(), world.held(SEGMENT, 6)), ([3, 1, 1, 0], vec![0, 1, 2]));
    world.origin.now += 24 * HOUR_MS;
    let at = world.origin.now;
    world.origin.admin("demo", &[write(4, 55, at, true)]);
    world.origin.now += 1_000;
    let no = world.origin.tenant("demo").no;
    assert!(MaterializedAudience::drop(&world.origin.conn, no, SEGMENT, world.origin.now).unwrap());
    world.refresh();
    assert_eq!(world.held(SEGMENT, 6), [0_u32; 0]);
}

#[test]
fn a_refresh_that_was_cut_goes_on_and_one_that_is_changed_meanwhile_stays_due() {
    let mut world = of_two_cities(1_600, 1_600);
    world.keep(SEGMENT, &bonn(), 10, 5).unwrap();
    world.follow();
    let run = world.begin(JobKind::Materialise, false);
    assert_eq!(world.run(&run, 2).outcome, Some(RunOutcome::Interrupted));
    let some = world.held(SEGMENT, 1_600).len();
    assert!(some > 0 && some < 1_600, "{some}");
    let again = runs::begin_waiting(&mut world.origin.conn, world.origin.now, Some(true)).unwrap().unwrap();
    assert_eq!(sums(&world.run(&again, u64::MAX).report), [1_600, 1_600 - some as u64, 0, 0]);
    let [one] = materialized::list_audiences(&world.origin.conn, None).unwrap().try_into().unwrap();
    assert_eq!((one.members, one.refreshed, one.due), (1_600, Some(NOW), Some(NOW + 5 * HOUR_MS)));
    // A change by another connection between the two.
    world.origin.now += 1;
    world.keep(SEGMENT, &json!({}), 10, 0).unwrap();
    materialized::note_refreshed(&world.origin.conn, &one, 1_600, (NOW, NOW)).unwrap();
    assert_eq!(materialized::list_audiences(&world.origin.conn, None).unwrap()[0].due, Some(NOW + 1));
}

#[test]
fn merged_people_are_in_an_audience_once_and_an_erasure_leaves_no_row() {
    let mut world = World::with(0);
    world.origin.send("demo", &[lives_in(1, 1, NOW, "Bonn"), lives_in(2, 1, NOW, "Bonn"), lives_in(3, 1, NOW, "Bonn")]);
    world.keep(SEGMENT, &bonn(), 48, 1).unwrap();
    assert_eq!(world.refresh(), [3, 3, 0, 0]);
    let logins = [1, 2].map(|v| world.origin.login(visitor(v), 2, NOW, "ann"));
    world.origin.send("demo", &logins);
    world.origin.now += HOUR_MS;
    assert_eq!(world.refresh(), [2, 0, 0, 0]);
    // A visitor that was joined with a member is not removed, because that would remove the whole person.
    let maps = |world: &World| [1, 2].map(|v| world.origin.profile("demo", visitor(v)).segments().clone());
    let is_in = |world: &World| {
        let [one, other] = maps(world);
        one.join(other).get(SEGMENT).is_some_and(|(expiry, _)| expiry > HourStamp::at(world.origin.now))
    };
    assert!(is_in(&world));
    world.origin.now += 24 * HOUR_MS;
    assert_eq!((world.refresh(), is_in(&world)), ([2, 0, 0, 3], true));
    let id = world.origin.member("demo", "ann");
    world.origin.admin("demo", &[fact(visitor(2), 3, world.origin.now, FactKind::Cancellation { id })]);
    world.origin.now += HOUR_MS;
    assert_eq!(world.refresh(), [3, 0, 0, 0]);
    let rows = |world: &World, of: VisitorId| -> i64 {
        let count = "SELECT count(*) FROM audience_members WHERE visitor = ?1";
        world.origin.conn.query_row(count, [of.as_bytes()], |row| row.get(0)).unwrap()
    };
    assert_eq!(rows(&world, visitor(3)), 1);
    let what =
        FactKind::Erasure { scope: causeway_shared::facts::fact::ErasureScope::Visitor, id: None, also: Vec::new() };
    world.origin.admin("demo", &[fact(visitor(3), 4, world.origin.now, what)]);
    assert_eq!(rows(&world, visitor(3)), 0);
    world.origin.now += HOUR_MS;
    assert_eq!(world.refresh(), [2, 0, 0, 0]);
}

#[test]
fn an_audience_that_cannot_be_kept_says_why_and_one_that_fails_lets_others_go_on() {
    let mut world = World::with(0);
    world.origin.send("demo", &[lives_in(1, 1, NOW, "Bonn")]);
    let said = |made: Result<(), MaterialiseError>| made.unwrap_err().to_string();
    assert!(said(world.keep(SEGMENT, &bonn(), 0, 0)).contains("for 1 to 8784 hours"));
    assert!(said(world.keep(SEGMENT, &bonn(), 48, 25)).contains("every 1 to 24 hours"));
    for itself in
        [json!({"segments": 9}), json!({"$not": {"segments": {"$in": [1, 9]}}}), json!({"segments": {"$exists": true}})]
    {
        assert!(said(world.keep(SEGMENT, &itself, 48, 0)).contains("segment 9 itself"), "{itself}");
    }
    world.keep(SEGMENT, &json!({"segments": 8}), 48, 0).unwrap();
    // Indirect references are refused too.
    world.keep(SegmentId(7), &json!({"segments": 9}), 48, 0).unwrap();
    for way in [json!({"segments": 7}), json!({"$not": {"segments": {"$in": [3, 7]}}})] {
        assert!(said(world.keep(SegmentId(8), &way, 48, 0)).contains("lead to segment 9"), "{way}");
    }
    assert!(said(world.keep(SEGMENT, &json!({"segments": 7}), 48, 0)).contains("segment 7, which refers to this one"));
    world.keep(SegmentId(7), &bonn(), 48, 0).unwrap();
    world.keep(SegmentId(8), &json!({"segments": 7}), 48, 0).unwrap();
    world.origin.conn.execute("DELETE FROM audiences WHERE segment = 7", []).unwrap();
    world.keep(SegmentId(8), &bonn(), 48, 0).unwrap();
    for n in 100..198 {
        world.keep(SegmentId(n), &json!({"devices": 3}), 48, 0).unwrap();
    }
    assert!(said(world.keep(SegmentId(7), &bonn(), 48, 0)).contains("100 audiences at most"));
    let broken = "UPDATE audiences SET filter = '{\"attributes.gone\": 1}' WHERE segment = 8";
    world.origin.conn.execute(broken, []).unwrap();
    world.follow();
    let ended = world.all(JobKind::Materialise, false);
    assert_eq!((ended.outcome, &ended.report["audiences"]), (Some(RunOutcome::Failed), &json!(100)));
    assert!(
        ended.report["error"].as_str().unwrap().contains("segment 8 of demo: filter.attributes.gone"),
        "{}",
        ended.report
    );
    let again = NOW + HOUR_MS;
    let due = |world: &World| materialized::next_due(&world.origin.conn, world.origin.now).unwrap();
    assert_eq!(due(&world), Some(again), "it is tried again by itself");
    assert_eq!(world.all(JobKind::Materialise, false).report["audiences"], 0);
    world.origin.now = again;
    assert_eq!(world.all(JobKind::Materialise, true).outcome, Some(RunOutcome::Failed));
    assert_eq!(due(&world), Some(again), "a dry run changes nothing");
    world.origin.conn.execute("UPDATE audiences SET filter = '{\"devices\": 3}' WHERE segment = 8", []).unwrap();
    assert_eq!(world.all(JobKind::Materialise, false).outcome, Some(RunOutcome::Done));
    assert_eq!(due(&world), None);
}

#[test]
fn an_audience_is_no_sign_of_life_of_who_is_in_it() {
    let mut world = World::with(30);
    world.origin.send("demo", &[lives_in(0, 1, NOW, "Bonn"), lives_in(1, 1, NOW, "Bonn"), lives_in(2, 1, NOW, "Ulm")]);
    world.keep(SEGMENT, &bonn(), 48, 24).unwrap();
    // People who were not seen for a week stay in the audience although the job writes facts of them again and again.
    let quiet = SegmentId(10);
    world.keep(quiet, &json!({ "last_seen": { "$lt": NOW + HOUR_MS } }), 48, 24).unwrap();
    for _ in 0..29 {
        world.origin.now += DAY_MS;
        world.refresh();
        assert_eq!((world.held(SEGMENT, 3), world.held(quiet, 3)), (vec![0, 1], vec![0, 1, 2]));
    }
    world.origin.send("demo", &[page(visitor(1), 2, world.origin.now)]);
    world.origin.now += 2 * DAY_MS;
    world.refresh();
    assert_eq!((world.held(SEGMENT, 3), world.held(quiet, 3)), (vec![0, 1], vec![0, 2]));
    assert_eq!(world.all(JobKind::Retention, false).report["forgotten"], 2);
    world.refresh();
    assert_eq!((world.held(SEGMENT, 3), world.held(quiet, 3)), (vec![1], vec![]));
}

#[test]
fn a_visitor_erased_while_an_audience_is_written_leaves_no_row() {
    let mut moments = 0;
    loop {
        let mut world = World::with(0);
        world.origin.send("demo", &[lives_in(0, 1, NOW, "Bonn"), lives_in(1, 1, NOW, "Bonn")]);
        world.keep(SEGMENT, &bonn(), 48, 1).unwrap();
        world.erased_meanwhile(moments, visitor(0));
        world.refresh();
        let rows: u32 =
            world.origin.conn.query_row("SELECT count(*) FROM audience_members", [], |row| row.get(0)).unwrap();
        let (_, left) = world.meanwhile.take();
        if !left.is_empty() {
            assert_eq!((rows, moments > 3), (2, true), "it was over before");
            return;
        }
        assert_eq!((rows, world.held(SEGMENT, 2)), (1, vec![1]), "{moments}");
        moments += 1;
    }
}

#[test]
fn an_audience_goes_on_where_a_refresh_is_a_little_late() {
    for (hours, minute) in (2..7).flat_map(|hours| [0, 30, 58].map(|minute| (hours, minute))) {
        let mut world = World::with(0);
        world.origin.now = NOW - NOW % HOUR_MS + minute * 60_000;
        world.origin.send("demo", &[lives_in(1, 1, NOW, "Bonn")]);
        world.keep(SEGMENT, &bonn(), hours, hours / 2).unwrap();
        world.refresh();
        for late in [0, 3, 1, 0, 0, 2, 0, 3] {
            let due = materialized::next_due(&world.origin.conn, world.origin.now).unwrap().unwrap();
            world.origin.now = due + late * 60_000;
            assert!(world.is_held(SEGMENT, 1), "for {hours} hours, {late} minutes late");
            world.refresh();
        }
    }
}

#[test]
fn an_audience_is_refreshed_again_when_the_clock_is_right() {
    let mut world = World::with(0);
    world.origin.send("demo", &[lives_in(0, 1, NOW, "Ulm"), lives_in(1, 1, NOW, "Bonn"), lives_in(2, 1, NOW, "Ulm")]);
    world.origin.now = NOW + 300 * DAY_MS;
    world.keep(SEGMENT, &bonn(), 48, 1).unwrap();
    assert_eq!(world.refresh(), [1, 1, 0, 0]);
    world.origin.now = NOW + HOUR_MS;
    let facts = [lives_in(1, 2, NOW + HOUR_MS, "Ulm"), lives_in(2, 2, NOW + HOUR_MS, "Bonn")];
    world.origin.send("demo", &facts);
    assert_eq!(materialized::next_due(&world.origin.conn, world.origin.now).unwrap(), Some(world.origin.now));
    assert_eq!(world.refresh()[..3], [1, 1, 1], "one added and one removed");
    world.origin.now = NOW + 3 * HOUR_MS;
    let at = world.origin.now;
    world.origin.send("demo", &[lives_in(1, 3, at, "Bonn"), lives_in(2, 3, at, "Ulm")]);
    assert_eq!(world.refresh()[..3], [1, 1, 1]);
    assert_eq!(world.held(SEGMENT, 3), [1], "the second after the clock writes later than the first, too");
}

#[test]
fn one_that_is_due_takes_its_turn_beside_a_send_that_goes_on() {
    let world = World::with(0);
    world.keep(SEGMENT, &json!({ "devices": 3 }), 10, 5).unwrap();
    let now = NOW + HOUR_MS;
    let due = materialized::next_due(&world.origin.conn, now).unwrap();
    assert_eq!(due, Some(NOW));
    let at = |job, at| Timer { job, tenant: None, when: TimerCondition::At(at), last: None };
    assert_eq!(
        next_due_job(&[at(JobKind::Send, Some(now - 120)), at(JobKind::Materialise, due)], now),
        NextDue::Due(JobKind::Materialise, None)
    );
}

#[test]
fn two_callers_at_once_keep_no_circle() {
    let world = World::with(0);
    let known = world.origin.tenant("demo").clone();
    let kept = |conn: &rusqlite::Connection, segment, asks: u32| {
        let document = json!({ "segments": asks });
        let filter = query::parse_filter(conn, &known, &document).unwrap().unwrap();
        MaterializedAudience::new((known.no, SegmentId(segment)), (&filter, &document), (48, 0), NOW).unwrap()
    };
    let path = world.origin.data().to_owned();
    let first = kept(&world.origin.conn, 1, 2);
    let second = kept(&world.origin.conn, 2, 1);
    world.origin.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let values = (known.no.0, 2, &second.filter);
    let put = "INSERT INTO audiences (tenant, segment, filter, hours, every_hours, due, members) VALUES (?1, ?2, ?3, 48, 0, 0, 0)";
    world.origin.conn.execute(put, values).unwrap();
    /// Whether the other thread waits for the store.
    static WAITS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let other = std::thread::spawn({
        let known = known.clone();
        move || {
            let conn = crate::store::open(&path).unwrap();
            let waits = |_| {
                WAITS.store(true, Relaxed);
                std::thread::yield_now();
                true
            };
            conn.busy_handler(Some(waits)).unwrap();
            first.keep(&conn, &known).map_err(|e| e.to_string())
        }
    });
    // The other thread has read its inputs before it waits.
    while !WAITS.load(Relaxed) && !other.is_finished() {
        std::thread::yield_now();
    }
    world.origin.conn.execute_batch("COMMIT").unwrap();
    let said = other.join().unwrap();
    assert!(said.as_ref().is_err_and(|said| said.contains("refers to this one")), "{said:?}");
}

#[test]
fn what_the_store_cannot_give_of_one_audience_holds_no_other_up() {
    let mut world = of_two_cities(10, 20);
    world.keep(SEGMENT, &bonn(), 72, 24).unwrap();
    world.keep(SegmentId(10), &json!({ "attributes.city": "Ulm" }), 72, 24).unwrap();
    world.follow();
    let damage = "UPDATE visitors SET segments = x'ffff' WHERE visitor = ?1";
    world.origin.conn.execute(damage, [visitor(3).as_bytes()]).unwrap();
    let run = world.begin(JobKind::Materialise, false);
    let ended = world.run(&run, u64::MAX);
    assert_eq!(ended.outcome, Some(RunOutcome::Failed));
    assert!((10..20).all(|v| world.is_held(SegmentId(10), v)), "{}", ended.report);
    let error = ended.report["refreshed"][0]["error"].as_str().unwrap();
    assert!(error.contains("read") && ended.report["refreshed"][1]["error"].is_null(), "{}", ended.report);
    let due: Vec<bool> =
        materialized::list_audiences(&world.origin.conn, None).unwrap().iter().map(|one| one.is_due(NOW)).collect();
    assert_eq!(due, [false, false], "tried again later");
}
