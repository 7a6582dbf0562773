#![expect(clippy::unwrap_used, reason = "tests")]

use crate::store::VisitorRow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use causeway_shared::base::ids::{FactId, VisitorId};
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState as Held};
use causeway_shared::keys::key_ring::RingKey;
use causeway_shared::wire::kv_keys;
use causeway_shared::wire::sync::{KvWrite, ReadResult, SyncRequest, VerifyRequest};
use serde_json::{Value, json};

use super::*;
use crate::base::job_kinds::{JobKind, RunOutcome, Trigger};
use crate::campaigns::catalogue;
use crate::ingest::intake::{LogRecord, OutboxRequest};
use crate::jobs::runner::JobRunner;
use crate::jobs::runs::{self, JobRun, RunRequest as Run_};
use crate::outbox::queue::LEASE_MS;
use crate::pipeline::commit;
use crate::store;
use crate::testing::{self, NOW, Origin, fact, page, stored, visitor};

/// Time between two steps of a run, in which an edge syncs once.
const TICK_MS: u64 = 5_000;

/// Behaviour of the publish consumer during a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Edge {
    /// It reads and writes.
    Well,
    /// It reads, and the KV accepts no write.
    Reads,
    /// It comes from an earlier release: it writes, and reads nothing back.
    Before,
    /// It never syncs.
    Silent,
}

/// A store, and a KV with everything that was published from it.
struct World {
    origin: Origin,
    kv: BTreeMap<String, String>,
    edge: Edge,
    /// Keys that the edge was handed for writing during runs.
    written: Vec<String>,
}

impl World {
    fn new(facts: impl Fn(&Origin) -> Vec<Fact>) -> Self {
        let mut origin = Origin::new();
        let facts = facts(&origin);
        facts.chunks(2_000).for_each(|some| drop(origin.send("demo", some)));
        let mut world = Self { origin, kv: BTreeMap::new(), edge: Edge::Well, written: Vec::new() };
        world.settle();
        world
    }

    /// Visitors 1 to 3 are Ann, visitor 4 is alone.
    fn of_people() -> Self {
        Self::new(|origin| {
            let mut facts: Vec<Fact> = (1..5).map(|v| page(visitor(v), 1, NOW)).collect();
            facts.extend((1..4).map(|v| origin.login(visitor(v), 2, NOW, "ann")));
            facts
        })
    }

    /// Writes everything that is due, and waits until it is visible everywhere.
    fn settle(&mut self) {
        self.origin.settle(&mut self.kv);
        self.origin.now += 2 * self.origin.rules.kv_settled_ms;
    }

    fn begin(&mut self, dry_run: bool) -> JobRun {
        let asked = Run_ { job: JobKind::Verify, tenant: None, trigger: Trigger::Signal, dry_run };
        runs::request_run(&mut self.origin.conn, asked, self.origin.now).unwrap().unwrap();
        runs::begin_waiting(&mut self.origin.conn, self.origin.now, Some(true)).unwrap().unwrap()
    }

    /// Continues a run in parallel with the edge, until it reported its progress `most` times.
    fn run(&mut self, run: &JobRun, most: u64) -> JobRun {
        let data = self.origin.data().to_owned();
        let (edge, notes) = (RefCell::new(store::open(&data).unwrap()), Mutex::new(store::open(&data).unwrap()));
        let Origin { conn, rules, metrics, now, .. } = &mut self.origin;
        let (rules, metrics): (&TxnRules, &Metrics) = (rules, metrics);
        let (time, reports) = (Cell::new(*now), AtomicU64::new(0));
        let said = RefCell::new(OutboxRequest { drain: 100, ..OutboxRequest::default() });
        let (kv, written, how) = (RefCell::new(&mut self.kv), RefCell::new(&mut self.written), self.edge);
        let given = || Ok(TxnInputs { now: time.get(), random: [9; 32] });
        let sync = || {
            time.set(time.get() + TICK_MS);
            if how == Edge::Silent {
                return;
            }
            let call = said.take();
            let done = commit::commit_group(
                &mut edge.borrow_mut(),
                rules,
                metrics,
                given().unwrap(),
                &[] as &[Arc<LogRecord>],
                &[call],
            );
            let handed = done.unwrap().handed.remove(0);
            written.borrow_mut().extend(handed.publish.iter().map(|write| write.key.clone()));
            let applied = if how == Edge::Reads { Vec::new() } else { write(&mut kv.borrow_mut(), &handed.publish) };
            let kv = kv.borrow();
            let digest = |key: &String| kv.get(key).map(|value| Sha256::digest(value).into());
            let read = handed
                .verify
                .iter()
                .map(|VerifyRequest { entry, key }| ReadResult { entry: *entry, sha256: digest(key) });
            let read = if how == Edge::Before { Vec::new() } else { read.collect() };
            said.replace(OutboxRequest { applied, drain: 100, read });
        };
        let place = testing::place(&data, conn, rules, metrics, &given, &sync);
        let stop = || reports.fetch_add(1, Relaxed) + 1 >= most;
        let ended = JobRunner { context: place, notes: &notes, stop: &stop }.run(run);
        *now = time.get();
        ended.unwrap()
    }

    fn all(&mut self, dry_run: bool) -> JobRun {
        let run = self.begin(dry_run);
        self.run(&run, u64::MAX)
    }

    /// The counts of a run, without zeros.
    fn verify(&mut self, dry_run: bool) -> Value {
        let run = self.all(dry_run);
        assert_eq!(run.outcome, Some(RunOutcome::Done), "{}", run.report);
        let mut report = run.report;
        report.as_object_mut().unwrap().retain(|_, count| *count != 0);
        report
    }

    fn count(&self, rows: &str) -> i64 {
        self.origin.conn.query_row(&format!("SELECT count(*) FROM {rows}"), [], |row| row.get(0)).unwrap()
    }

    fn lookup(&self, member: &str) -> String {
        let origin = &self.origin;
        kv_keys::lookup_key(&origin.tenant("demo").id, origin.member("demo", member))
    }

    fn progress(&self, receipt: FactId) -> Value {
        crate::testing::as_json(
            crate::erasures::registry::erasure_progress(&self.origin.conn, self.origin.tenant("demo").no, receipt)
                .unwrap()
                .unwrap(),
        )
    }
}

fn write(kv: &mut BTreeMap<String, String>, writes: &[KvWrite]) -> Vec<u64> {
    for write in writes {
        match &write.value {
            Some(value) => kv.insert(write.key.clone(), value.clone()),
            None => kv.remove(&write.key),
        };
    }
    writes.iter().map(|write| write.entry).collect()
}

fn snapshot(v: u32) -> String {
    format!("v:demo:{}", visitor(v))
}

fn erasure(visitor: VisitorId, received: Millis) -> Fact {
    let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
    Fact { id: FactId::of_erasure(visitor), ..fact(visitor, 0, received, what) }
}

#[test]
fn what_is_right_is_left_alone() {
    let mut world = World::of_people();
    let (before, version) = (world.kv.clone(), StoreCounters::load(&world.origin.conn).unwrap().version());
    assert_eq!(world.verify(false), json!({ "keys": 5, "right": 5 }), "four snapshots and a lookup");
    assert_eq!((world.kv == before, &world.written, world.count("verifications")), (true, &Vec::new(), 0));
    assert!(StoreCounters::load(&world.origin.conn).unwrap().version() > version, "each look has a number of its own");
}

#[test]
fn lost_stale_and_damaged_kv_values_are_found_and_mended() {
    let mut world = World::of_people();
    let older = world.kv[&snapshot(4)].clone();
    let now = world.origin.now;
    world.origin.send("demo", &[page(visitor(4), 3, now), page(visitor(5), 1, now)]);
    let receipt = erasure(visitor(6), now).id;
    world.origin.send("demo", &[page(visitor(6), 1, now), erasure(visitor(6), now)]);
    world.settle();
    let right = world.kv.clone();

    world.kv.remove(&snapshot(1));
    // A late publisher's write of an earlier version.
    world.kv.insert(snapshot(4), older);
    world.kv.get_mut(&snapshot(5)).unwrap().push('A');
    world.kv.insert(snapshot(6), right[&snapshot(5)].clone());
    let key = world.lookup("ann");
    world.kv.remove(&key);
    let found = json!({ "keys": 7, "right": 2, "missing": 2, "differs": 2, "not_erased": 1 });

    let damaged = world.kv.clone();
    assert_eq!(world.verify(true), found);
    assert_eq!((world.kv == damaged, world.count("outbox")), (true, 0), "a dry run changes nothing");
    assert!(world.progress(receipt)["done_ms"].is_null() == world.progress(receipt)["log_ms"].is_null());

    let mut expected = found;
    expected["put"] = json!(5);
    assert_eq!(world.verify(false), expected);
    world.settle();
    assert_eq!(world.kv.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
    assert!(matches!(stored(&world.kv, visitor(6)), causeway_shared::profiles::view::StoredValue::Tombstone));
    assert_eq!(world.verify(false), json!({ "keys": 7, "right": 7 }));

    runs::measure_runs(&world.origin.conn, &world.origin.metrics).unwrap();
    let page = world.origin.metrics.render(world.origin.now, world.origin.now, true);
    for line in ["causeway_verify_keys{found=\"right\"} 7", "causeway_verify_keys{found=\"differs\"} 0"] {
        assert!(page.lines().any(|one| one == line), "{line} is missing in\n{page}");
    }
}

#[test]
fn a_write_that_shows_late_is_no_difference() {
    let mut world = World::of_people();
    let lost = world.kv.remove(&snapshot(4)).unwrap();
    let run = world.begin(false);
    // Requested, read and compared once.
    let cut = world.run(&run, 4);
    assert_eq!((cut.outcome, world.count("verifications WHERE looks = 1")), (Some(RunOutcome::Interrupted), 1));
    world.kv.insert(snapshot(4), lost);
    let again = runs::begin_waiting(&mut world.origin.conn, world.origin.now, Some(true)).unwrap().unwrap();
    let done = world.run(&again, u64::MAX);
    assert_eq!((done.outcome, done.report["right"].as_u64()), (Some(RunOutcome::Done), Some(5)), "{}", done.report);
    assert_eq!(world.written, Vec::<String>::new());
}

#[test]
fn what_changes_between_two_looks_is_no_difference_and_what_waits_is_passed_over() {
    let mut world = World::of_people();
    // A change of visitor 4 that the KV does not accept: its value is older, and a write is due.
    let now = world.origin.now;
    world.origin.send("demo", &[page(visitor(4), 9, now)]);
    world.edge = Edge::Reads;
    assert_eq!(world.verify(false), json!({ "keys": 5, "right": 4, "waiting": 1 }));
    world.edge = Edge::Well;
    assert_eq!(world.verify(false), json!({ "keys": 5, "right": 5 }), "written before the second look");
}

#[test]
fn who_is_trimmed_is_older_by_design_and_rewritten_only_when_it_is_lost() {
    let held = Held::held(HourStamp(HourStamp::at(NOW).0 + 1), []);
    let mut world = World::new(|_| {
        let segment = |v| fact(visitor(v), 1, NOW, FactKind::Segments { writes: vec![(SegmentId(7), held.clone())] });
        vec![segment(1), segment(2)]
    });
    world.origin.now = NOW + 120 * 86_400_000;
    let now = world.origin.now;
    let tx = world.origin.conn.transaction().unwrap();
    crate::maintenance::trim::trim_page(
        &tx,
        VisitorRow::default(),
        10,
        now,
        &mut crate::maintenance::trim::TrimReport::default(),
    )
    .unwrap();
    tx.commit().unwrap();
    world.kv.remove(&snapshot(2));
    assert_eq!(world.verify(false), json!({ "keys": 2, "older": 1, "missing": 1, "put": 1 }));
    world.settle();
    assert_eq!(world.verify(false), json!({ "keys": 2, "older": 1, "right": 1 }));
}

#[test]
fn a_key_that_an_erasure_waits_for_is_never_excused_as_stale() {
    let held = Held::held(HourStamp(HourStamp::at(NOW).0 + 1), []);
    let mut world = World::new(|origin| {
        let segment = |v| fact(visitor(v), 1, NOW, FactKind::Segments { writes: vec![(SegmentId(7), held.clone())] });
        let of_one = |v| [segment(v), origin.login(visitor(v), 2, NOW, "ann")];
        (1..4).flat_map(of_one).collect()
    });
    let gone = erasure(visitor(3), world.origin.now);
    let receipt = gone.id;
    world.origin.send("demo", &[gone]);
    world.settle();
    // The siblings are trimmed before they are read back.
    world.origin.now = NOW + 120 * 86_400_000;
    let now = world.origin.now;
    let tx = world.origin.conn.transaction().unwrap();
    crate::maintenance::trim::trim_page(
        &tx,
        VisitorRow::default(),
        10,
        now,
        &mut crate::maintenance::trim::TrimReport::default(),
    )
    .unwrap();
    tx.commit().unwrap();
    assert_eq!(world.verify(false), json!({ "keys": 4, "right": 2, "differs": 2, "put": 2 }));
    assert!(world.progress(receipt)["verified_ms"].is_null());
    world.settle();
    // The consumer that held the lease at the end of the run may still write late.
    world.origin.now += crate::outbox::queue::LATE_MS;
    world.settle();
    assert_eq!(world.verify(false), json!({ "keys": 4, "right": 4 }));
    assert!(world.progress(receipt)["verified_ms"].is_number(), "{}", world.progress(receipt));
}

#[test]
fn a_run_that_is_cut_goes_on_and_looks_at_every_key_once() {
    let mut world = World::new(|origin| {
        let member = |v: u32| origin.login(visitor(v), 2, NOW, &format!("member {v}"));
        (0..2_500).map(member).collect()
    });
    let lost: Vec<String> = [snapshot(7), snapshot(2_400), world.lookup("member 1200")].to_vec();
    lost.iter().for_each(|key| drop(world.kv.remove(key)));
    let mut run = world.begin(false);
    let mut cuts = 0;
    while run.outcome != Some(RunOutcome::Done) {
        assert!(run.outcome.is_none_or(|outcome| outcome == RunOutcome::Interrupted), "{}", run.report);
        if run.outcome.is_some() {
            run = runs::begin_waiting(&mut world.origin.conn, world.origin.now, Some(true)).unwrap().unwrap();
        }
        // Runs of varying length, because reads lost with an interruption are repeated after their lease.
        run = world.run(&run, 3 + cuts % 4);
        cuts += 1;
        assert!(cuts < 200, "{}", run.report);
    }
    assert!(cuts > 5, "{cuts} cuts");
    let VerifyReport { keys, right, missing, put, .. } = serde_json::from_value(run.report).unwrap();
    assert_eq!((keys, right, missing, put), (5_000, 4_997, 3, 3));
    world.settle();
    assert!(lost.iter().all(|key| world.kv.contains_key(key)));
}

#[test]
fn a_run_that_was_cut_begins_anew_where_a_dry_one_forgot_what_it_had_asked_for() {
    let mut world = World::of_people();
    world.kv.remove(&snapshot(4));
    let asked = |dry_run| Run_ { job: JobKind::Verify, tenant: None, trigger: Trigger::Command, dry_run };
    let command = |world: &mut World, dry_run, most| {
        let run = runs::begin_requested(&mut world.origin.conn, asked(dry_run), world.origin.now).unwrap();
        world.run(&run, most)
    };
    let cut = command(&mut world, false, 4);
    assert_eq!((cut.outcome, world.count("verifications WHERE looks = 1")), (Some(RunOutcome::Interrupted), 1));
    let came = |run: &JobRun| ["keys", "right", "missing", "put"].map(|name| run.report[name].as_u64().unwrap());
    assert_eq!(came(&command(&mut world, true, u64::MAX)), [5, 4, 1, 0]);
    let done = command(&mut world, false, u64::MAX);
    assert_eq!((done.no, came(&done)), (cut.no, [5, 4, 1, 1]));
}

#[test]
fn where_nobody_answers_the_run_ends_and_says_what_to_look_at() {
    for edge in [Edge::Silent, Edge::Before] {
        let mut world = World::of_people();
        world.edge = edge;
        let begun = world.origin.now;
        let run = world.all(false);
        assert_eq!(run.outcome, Some(RunOutcome::Failed), "{edge:?}");
        let why = run.report["error"].as_str().unwrap();
        assert!(why.contains("no edge reported") && why.contains("causeway_last_sync_age_seconds"), "{why}");
        assert!(world.origin.now > begun + 600_000 && world.origin.now < begun + 700_000);
        assert_eq!(world.count("verifications"), 0, "an edge that comes back reads nothing in vain");
        world.edge = Edge::Well;
        assert_eq!(world.verify(false), json!({ "keys": 5, "right": 5 }));
    }
}

#[test]
fn a_receipt_is_proven_after_every_key_was_read_back() {
    let mut world = World::of_people();
    let now = world.origin.now;
    let gone = erasure(visitor(2), now);
    let receipt = gone.id;
    world.origin.send("demo", &[gone]);
    let steps = |world: &World| {
        let progress = world.progress(receipt);
        (progress["keys"].clone(), !progress["done_ms"].is_null(), progress["verified_ms"].as_u64())
    };
    let keys = |written, verified| json!({ "all": 4, "written": written, "verified": verified });
    world.origin.settle(&mut world.kv);
    assert_eq!(steps(&world), (keys(4, 0), true, None), "three snapshots and a lookup");
    // The KV loses the tombstone: an older snapshot is back.
    let lost = world.kv.insert(snapshot(2), world.kv[&snapshot(4)].clone()).unwrap();
    assert_eq!(world.verify(true)["not_erased"], 1);
    assert_eq!(steps(&world), (keys(4, 0), true, None), "a dry run proves nothing");
    world.edge = Edge::Reads;
    assert_eq!(world.verify(false)["not_erased"], 1);
    assert_eq!(steps(&world), (keys(3, 3), false, None), "it is not done after all");
    world.edge = Edge::Well;
    world.settle();
    // A consumer that was leased the write earlier and never acknowledged it may still write late.
    world.origin.now += crate::outbox::queue::LATE_MS;
    world.settle();
    assert_eq!((world.kv[&snapshot(2)] == lost, steps(&world)), (true, (keys(4, 3), true, None)));
    let before = world.origin.now;
    assert_eq!(world.verify(false)["right"], 5);
    let (counts, done, verified) = steps(&world);
    assert_eq!((counts, done), (keys(4, 4), true));
    assert!(verified.unwrap() > before);
}

#[test]
fn a_lookup_under_a_retired_key_counts_as_not_erased_only_if_it_names_no_visitor() {
    for (erased, found) in [(1..2, None), (1..4, Some(json!(1)))] {
        let mut world = World::of_people();
        let key = world.lookup("ann");
        let before = world.kv[&key].clone();
        let now = world.origin.now;
        let gone: Vec<Fact> = erased.map(|v| erasure(visitor(v), now)).collect();
        world.origin.send("demo", &gone);
        world.settle();
        // The deletion does not last, and the key is retired before it is read back.
        world.kv.entry(key.clone()).or_insert(before);
        let keys = |keys: &mut Vec<RingKey>| *keys = vec![RingKey { id: keys[0].id + 1, ..keys[0].clone() }];
        world.origin.change_keys("demo", keys);
        let counts = world.verify(false);
        assert_eq!(counts.get("not_erased"), found.as_ref(), "{counts}");
        world.settle();
        assert_eq!((world.verify(false).get("put"), world.kv.get(&key)), (None, None));
    }
}

#[test]
fn a_key_read_before_its_write_showed_everywhere_proves_nothing() {
    let mut world = World::of_people();
    let gone = erasure(visitor(4), world.origin.now);
    let receipt = gone.id;
    world.origin.send("demo", &[gone]);
    let writes = world.origin.drain(100);
    write(&mut world.kv, &writes);
    world.origin.acknowledge(&writes);
    assert_eq!(world.verify(false), json!({ "keys": 5, "right": 5 }));
    assert_eq!(world.progress(receipt)["verified_ms"], Value::Null);
    world.origin.now += world.origin.rules.kv_settled_ms;
    world.verify(false);
    assert!(world.progress(receipt)["verified_ms"].is_number());
}

#[test]
fn what_tenants_have_is_read_back_too() {
    let mut world = World::new(|_| vec![page(visitor(1), 1, NOW)]);
    let (given, known) = (world.origin.given(), world.origin.tenant("demo").clone());
    let Origin { conn, rules, .. } = &mut world.origin;
    catalogue::apply(conn, rules, given, &known, json!({ "advertiser": [{ "id": "v" }] }), "test").unwrap();
    world.settle();
    let keys: Vec<&String> = world.kv.keys().filter(|key| key.starts_with("c:")).collect();
    let all = keys.len() as u64 + 1;
    assert!(keys.contains(&&"c:demo:1".to_owned()) && keys.contains(&&"c:demo:current".to_owned()), "{keys:?}");
    assert_eq!(world.verify(false), json!({ "keys": all, "right": all }));
    world.kv.insert("c:demo:1".to_owned(), "damaged".to_owned());
    world.kv.remove("c:demo:current");
    assert_eq!(world.verify(false), json!({ "keys": all, "right": all - 2, "differs": 1, "missing": 1, "put": 2 }));
    world.settle();
    assert_eq!(world.verify(false), json!({ "keys": all, "right": all }));
}

#[test]
fn only_a_consumer_that_drains_is_asked_and_a_key_goes_to_one_at_a_time() {
    let mut world = World::of_people();
    let given = world.origin.given();
    let Origin { conn, rules, metrics, .. } = &mut world.origin;
    let mut walk = VerifyPosition::default();
    assert_eq!(verify_step(conn, rules, metrics, given, &mut walk, false, &|_, _| Ok(())).unwrap(), VerifyStep::Asked);
    let origin = &mut world.origin;
    assert_eq!(origin.sync(SyncRequest::default()).verify, Vec::new());
    let first = origin.sync(SyncRequest { drain: 1, ..SyncRequest::default() });
    assert_eq!((first.verify.len(), first.pending), (4, 0));
    assert_eq!(origin.sync(SyncRequest { drain: 1, ..SyncRequest::default() }).verify, Vec::new(), "leased");
    origin.now += LEASE_MS;
    let again = origin.sync(SyncRequest { drain: 1, ..SyncRequest::default() });
    assert_eq!(again.verify, first.verify);
    // An unrequested result, and a repeated one, change nothing.
    let entry = first.verify[0].entry;
    for (entry, sha256) in [(entry, Some([1; 32])), (entry, None), (999_999, None)] {
        origin.sync(SyncRequest { read: vec![ReadResult { entry, sha256 }], ..SyncRequest::default() });
    }
    let answered = "verifications WHERE answered IS NOT NULL AND sha256 IS NOT NULL";
    assert_eq!(world.count(answered), 1);
}
