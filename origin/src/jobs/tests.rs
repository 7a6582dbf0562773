#![expect(clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causeway_shared::base::ids::{AlternateId, VisitorId};
use causeway_shared::base::time::{DAY_MS, HourStamp};
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::profiles::view::StoredValue;
use rusqlite::Connection;
use serde_json::json;

use super::context::JobContext;
use super::runner::JobRunner;
use super::runs::{self, JobRun, RunRequest};
use super::*;
use crate::audience::Audience;
use crate::base::job_kinds::{JobIntervals, Trigger};
use crate::base::metrics::seconds;
use crate::ingest::backlog::Backlog;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::jobs::tasks::retention;
use crate::pipeline::commit;
use crate::store::write_txn::TxnInputs;
use crate::store::{self, RunNo, StoreError, VisitorRow};
use crate::testing::{self, NOW, Origin, fact, impression, page, purchase, stored, visitor};

mod busy;
mod materialised;
mod published;
mod scrubbed;
mod sent;

fn timer(job: JobKind, every: impl Into<Option<u64>>, last: Option<(Millis, Millis, Option<RunOutcome>)>) -> Timer {
    let last = last.map(|(started, ended, outcome)| LastRun { started, ended, outcome });
    Timer { job, tenant: None, when: TimerCondition::Every(every.into()), last }
}

#[test]
fn a_job_is_due_by_its_interval_its_last_run_and_the_clock() {
    let at = |every: Millis, last| next_due_job(&[timer(JobKind::Trim, every, last)], NOW);
    let never = |last| next_due_job(&[timer(JobKind::Trim, None, last)], NOW);
    let due = NextDue::Due(JobKind::Trim, None);
    let done = Some(RunOutcome::Done);
    assert_eq!(never(None), NextDue::Never);
    assert_eq!(never(Some((0, 0, done))), NextDue::Never);
    assert_eq!(at(DAY_MS, None), due, "it never ran");
    assert_eq!(at(DAY_MS, Some((NOW - DAY_MS, NOW - 5, done))), due, "from begin to begin");
    assert_eq!(at(DAY_MS, Some((NOW - DAY_MS + 1, NOW - 5, done))), NextDue::At(NOW + 1));
    assert_eq!(at(DAY_MS, Some((NOW + 7, NOW + 8, done))), due, "the clock went back");
    for bad in [RunOutcome::Failed, RunOutcome::Interrupted] {
        assert_eq!(at(DAY_MS, Some((NOW - 9, NOW + 7, Some(bad)))), due, "the clock was ahead when it ended");
        assert_eq!(at(DAY_MS, Some((NOW - 9, NOW - HOUR_MS, Some(bad)))), due);
        assert_eq!(at(DAY_MS, Some((NOW - 9, NOW - 4, Some(bad)))), NextDue::At(NOW - 4 + HOUR_MS));
        assert_eq!(
            at(1_000, Some((NOW - 9, NOW - 4, Some(bad)))),
            NextDue::At(NOW + 996),
            "never later than by its interval"
        );
    }
}

#[test]
fn each_job_has_a_timer_of_its_own() {
    for job in JobKind::ALL.into_iter().filter(|job| !matches!(job, JobKind::Materialise | JobKind::Send)) {
        let every: JobIntervals = toml::from_str(&format!("{}_hours = 3", job.name())).unwrap();
        assert_eq!(every.of(job), Some(3 * HOUR_MS), "{}", job.name());
        assert!(
            JobKind::ALL.iter().all(|other| *other == job || every.of(*other) == JobIntervals::default().of(*other))
        );
    }
}

#[test]
fn of_several_timers_the_one_that_waits_longest_goes_first() {
    let done = |at| Some((at, at, Some(RunOutcome::Done)));
    let two = [timer(JobKind::Trim, 10, done(NOW - 11)), timer(JobKind::Reconcile, 10, done(NOW - 12))];
    assert_eq!(next_due_job(&two, NOW), NextDue::Due(JobKind::Reconcile, None));
    let same = [timer(JobKind::Reconcile, 10, None), timer(JobKind::Trim, 10, None), timer(JobKind::Train, 0, None)];
    assert_eq!(next_due_job(&same, NOW), NextDue::Due(JobKind::Trim, None));
    let later = [timer(JobKind::Trim, 10, done(NOW - 2)), timer(JobKind::Reconcile, 10, done(NOW - 5))];
    assert_eq!(next_due_job(&later, NOW), NextDue::At(NOW + 5));
    assert_eq!(next_due_job(&[], NOW), NextDue::Never);
}

#[test]
fn a_job_is_found_by_its_name() {
    assert!(JobKind::ALL.into_iter().all(|job| JobKind::named(job.name()) == Some(job)));
    assert_eq!(JobKind::named("everything"), None);
}

/// A store, and the connection that records progress.
struct World {
    origin: Origin,
    notes: Mutex<Connection>,
    backlog: Backlog,
    audience: Audience,
    /// Total time that runs waited.
    waited: Cell<Duration>,
    /// Whether another process with rules of its own hands out the outbox.
    beside: bool,
    /// Facts that another connection folds while a job runs, and the number of opportunities that it lets pass before.
    meanwhile: Cell<(u32, Vec<Fact>)>,
}

impl World {
    fn of(origin: Origin) -> Self {
        let notes = Mutex::new(store::open(origin.data()).unwrap());
        let (backlog, audience) = Default::default();
        Self { origin, notes, backlog, audience, waited: Cell::default(), beside: false, meanwhile: Cell::default() }
    }

    fn with(forget_after_days: u32) -> Self {
        let mut origin = Origin::new();
        origin.forget_after("demo", forget_after_days);
        Self::of(origin)
    }

    fn begin(&mut self, job: JobKind, dry_run: bool) -> JobRun {
        let asked = RunRequest { job, tenant: None, trigger: Trigger::Signal, dry_run };
        runs::request_run(&mut self.origin.conn, asked, self.origin.now).unwrap().unwrap();
        runs::begin_waiting(&mut self.origin.conn, self.origin.now, Some(true)).unwrap().unwrap()
    }

    /// Continues a run until it has reported its progress `most` times.
    fn run(&mut self, run: &JobRun, most: u64) -> JobRun {
        let data = self.origin.data().to_owned();
        let no = self.origin.tenant("demo").no;
        let Origin { conn, rules, metrics, now, .. } = &mut self.origin;
        let (rules, metrics, now) = (&*rules, &*metrics, *now);
        let (told, waited, begun) = (AtomicU64::new(0), &self.waited, Instant::now());
        let meanwhile = || match self.meanwhile.take() {
            (0, facts) if facts.is_empty() => {}
            (0, facts) => {
                let checked = facts.into_iter().map(|fact| CheckedFact { tenant: no, fact }).collect();
                let (mut conn, records) = (self.notes.lock().unwrap(), [Arc::new(LogRecord::of(checked))]);
                commit::commit_group(&mut conn, rules, metrics, TxnInputs { now, random: [8; 32] }, &records, &[])
                    .unwrap();
            }
            (moments, facts) => self.meanwhile.set((moments - 1, facts)),
        };
        let given = || {
            meanwhile();
            Ok(TxnInputs { now, random: [9; 32] })
        };
        let place = JobContext {
            hands_out: !self.beside,
            backlog: &|| Ok(self.backlog.clone()),
            audience: &|| Ok(self.audience.clone()),
            wait: &|time| waited.set(waited.get() + time),
            elapsed: &|| waited.get() + begun.elapsed(),
            ..testing::place(&data, conn, rules, metrics, &given, &meanwhile)
        };
        let stop = || told.fetch_add(1, Relaxed) + 1 >= most;
        JobRunner { context: place, notes: &self.notes, stop: &stop }.run(run).unwrap()
    }

    fn all(&mut self, job: JobKind, dry_run: bool) -> JobRun {
        let run = self.begin(job, dry_run);
        self.run(&run, u64::MAX)
    }

    /// Another connection folds an erasure of a visitor alone, after this number of opportunities in the next run.
    fn erased_meanwhile(&self, moments: u32, visitor: VisitorId) {
        let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
        self.meanwhile.set((moments, vec![fact(visitor, 1_000, self.origin.now, what)]));
    }

    /// All rows of the tables that a job over visitors may change, sorted.
    fn dump(&self) -> Vec<String> {
        const TABLES: [&str; 16] = [
            "visitors",
            "actions",
            "fact_ids",
            "fact_ids_over",
            "purchases",
            "purchases_unpaid",
            "orders_paid",
            "evidence",
            "people",
            "cuts",
            "outbox",
            "erased",
            "erasures",
            "erasure_keys",
            "erasure_sweeps",
            "meta",
        ];
        let mut lines = Vec::new();
        for table in TABLES {
            let mut statement = self.origin.conn.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2, 3")).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let values: Vec<_> = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect();
                lines.push(format!("{table} {}", values.join(" ")));
            }
        }
        lines
    }
}

/// Visitors with an expired segment and an expired action each, enough for more than two transactions of a trim.
fn old(world: &mut World, visitors: u32) {
    let held = SegmentState::held(HourStamp(HourStamp::at(NOW).0 + 1), []);
    let facts: Vec<_> = (0..visitors)
        .flat_map(|v| {
            let writes = vec![(SegmentId(7), held.clone())];
            [impression(visitor(v), 1, NOW), fact(visitor(v), 2, NOW, FactKind::Segments { writes })]
        })
        .collect();
    facts.chunks(4_000).for_each(|some| drop(world.origin.send("demo", some)));
    world.origin.now = NOW + 120 * DAY_MS;
}

#[test]
fn an_interrupted_trim_continues_and_ends_with_the_same_store() {
    let mut whole = World::with(0);
    old(&mut whole, 4_500);
    let mut cut = World::with(0);
    old(&mut cut, 4_500);
    assert_eq!(whole.dump(), cut.dump());

    let dry = whole.all(JobKind::Trim, true);
    let came = json!({ "visitors": 4_500, "changed": 4_500, "segments": 4_500, "actions": 4_500, "lookups": 0 });
    assert_eq!((&dry.report, dry.outcome), (&came, Some(RunOutcome::Done)));
    assert_eq!(whole.dump(), cut.dump(), "a dry run changes nothing");
    let done = whole.all(JobKind::Trim, false);
    assert_eq!((&done.report, done.done, done.all), (&came, 4_500, 4_500));

    let run = cut.begin(JobKind::Trim, false);
    let first = cut.run(&run, 1);
    assert_eq!((first.outcome, first.report["visitors"].as_u64()), (Some(RunOutcome::Interrupted), Some(500)));
    assert_ne!(whole.dump(), cut.dump());
    // A day later the run continues with the time of its start.
    cut.origin.now += DAY_MS;
    let again = runs::begin_waiting(&mut cut.origin.conn, cut.origin.now, Some(true)).unwrap().unwrap();
    assert_eq!((again.no, again.cursor, again.outcome), (run.no, 500, None));
    let last = cut.run(&again, u64::MAX);
    assert_eq!((last.outcome, &last.report, last.started), (Some(RunOutcome::Done), &came, run.started));
    assert_eq!(whole.dump(), cut.dump());
}

#[test]
fn one_visitor_that_cannot_be_read_keeps_no_other_from_being_trimmed() {
    let mut world = World::with(0);
    old(&mut world, 700);
    // Actions of a linked visitor are deleted too.
    let logins = [3, 5].map(|v| world.origin.login(visitor(v), 9, NOW, "ann"));
    world.origin.send("demo", &logins);
    let rows = [3, 5].map(|v| world.origin.row("demo", visitor(v)).row.unwrap());
    let damage = "UPDATE visitors SET segments = x'ff' WHERE row = ?1";
    assert_eq!(world.origin.conn.execute(damage, [rows[0]]).unwrap(), 1);
    let run = world.all(JobKind::Trim, false);
    let of = ["visitors", "changed", "actions", "unreadable"].map(|name| run.report[name].as_u64());
    assert_eq!((run.outcome, of), (Some(RunOutcome::Done), [700, 699, 699, 1].map(Some)));
    let actions = rows.map(|row| {
        let both =
            "SELECT actions, (SELECT count(*) FROM actions a WHERE a.place >> 32 = v.row) FROM visitors v WHERE row = ?1";
        world.origin.conn.query_row(both, [row], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?))).unwrap()
    });
    assert_eq!(actions, [(1, 1), (0, 0)], "all of it, or nothing");
}

/// A visitor with 40,000 facts in a day: 16,384 FactIds are packed, and the others are rows of their own, of which a
/// transaction deletes 10,000.
fn visitor_of_many_facts() -> World {
    let mut world = World::with(0);
    let facts: Vec<_> = (0..40_000).map(|n| page(visitor(1), n, NOW)).collect();
    facts.chunks(5_000).for_each(|some| drop(world.origin.send("demo", some)));
    world
}

/// FactIds in rows of their own, and packed rows.
fn fact_ids(world: &World) -> (i64, i64) {
    let both = "SELECT (SELECT count(*) FROM fact_ids_over), (SELECT count(*) FROM fact_ids)";
    world.origin.conn.query_row(both, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[test]
fn a_trim_forgets_all_fact_ids_of_one_who_brought_very_many_and_never_comes_back() {
    let mut world = visitor_of_many_facts();
    world.origin.now = NOW + 40 * DAY_MS;
    assert_eq!(world.all(JobKind::Trim, true).outcome, Some(RunOutcome::Done));
    assert_eq!(fact_ids(&world), (23_616, 4), "a dry run changes nothing");
    assert_eq!(world.all(JobKind::Trim, false).outcome, Some(RunOutcome::Done));
    assert_eq!(fact_ids(&world), (0, 0));
}

#[test]
fn an_erasure_of_one_who_brought_very_many_takes_some_and_a_trim_the_others() {
    let mut world = visitor_of_many_facts();
    let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
    let erasure = fact(visitor(1), 50_000, NOW, what);
    world.origin.send("demo", &[erasure]);
    assert_eq!(fact_ids(&world), (13_616, 0), "no other writer waits for all of them");
    assert_eq!(world.all(JobKind::Trim, false).outcome, Some(RunOutcome::Done));
    assert_eq!(fact_ids(&world), (0, 0), "however new they are");
}

/// Visitors 0 to 599 of `demo` were seen long ago, and every third of them again now.
fn seen(world: &mut World) {
    let early: Vec<_> = (0..600).flat_map(|v| [page(visitor(v), 1, NOW), purchase(visitor(v), 2, NOW, 5)]).collect();
    world.origin.send("demo", &early);
    world.origin.send("other", &early);
    let login = |v, n, at| world.origin.login(visitor(v), n, at, "ann");
    let logins = [login(1, 3, NOW), login(3, 3, NOW)];
    world.origin.send("demo", &logins);
    world.origin.now = NOW + 40 * DAY_MS;
    let late: Vec<_> = (0..600).step_by(3).map(|v| page(visitor(v), 4, world.origin.now)).collect();
    world.origin.send("demo", &late);
}

#[test]
fn retention_forgets_exactly_those_not_seen_and_a_dry_run_changes_nothing() {
    let mut world = World::with(30);
    seen(&mut world);
    let mut kv = BTreeMap::new();
    world.origin.settle(&mut kv);
    let before = world.dump();
    let came = json!({ "visitors": 1_200, "forgotten": 400 });
    let dry = world.all(JobKind::Retention, true);
    assert_eq!((&dry.report, dry.outcome), (&came, Some(RunOutcome::Done)));
    assert_eq!(world.dump(), before);

    let done = world.all(JobKind::Retention, false);
    assert_eq!((&done.report, done.outcome), (&came, Some(RunOutcome::Done)));
    assert_eq!(world.origin.erasures(), 400, "a restored store learns of it");
    world.origin.settle(&mut kv);
    for v in 0..600 {
        let is_tombstone = matches!(stored(&kv, visitor(v)), StoredValue::Tombstone);
        assert_eq!(is_tombstone, v % 3 != 0, "visitor {v} in the KV");
        let (here, other) = (world.origin.profile("demo", visitor(v)), world.origin.profile("other", visitor(v)));
        assert_eq!((here.totals().pages, other.totals().pages), (if v % 3 == 0 { 2 } else { 0 }, 1), "visitor {v}");
    }
    assert_eq!(world.origin.lookup("demo", "ann"), [visitor(3)], "the sibling that was seen stays");
    let again = world.all(JobKind::Retention, false);
    assert_eq!(again.report, json!({ "visitors": 1_200, "forgotten": 0 }), "no visitor is erased twice");
}

#[test]
fn what_began_by_a_clock_that_was_ahead_drops_nothing_once_it_is_right() {
    let mut world = World::with(30);
    old(&mut world, 600);
    world.origin.now = NOW;
    let before = world.dump();
    for job in [JobKind::Trim, JobKind::Retention] {
        world.origin.now = NOW + 365 * DAY_MS;
        let run = world.begin(job, false);
        world.origin.now = NOW;
        let ended = world.run(&run, u64::MAX);
        assert_eq!(ended.outcome, Some(RunOutcome::Failed), "{}", ended.report);
        assert!(ended.report["error"].as_str().unwrap().contains("look at the clock"), "{}", ended.report);
        assert_eq!(world.dump(), before);
    }
    // A clock that NTP corrects by a usual amount does not stop the run.
    world.origin.now = NOW + 60_000;
    let run = world.begin(JobKind::Retention, false);
    world.origin.now = NOW;
    assert_eq!(world.run(&run, u64::MAX).outcome, Some(RunOutcome::Done));
}

#[test]
fn whom_a_transaction_that_failed_was_to_forget_no_later_start_forgets() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let tables = "PRAGMA foreign_keys = ON; CREATE TABLE parents (no INTEGER PRIMARY KEY);
        CREATE TABLE children (parent INTEGER REFERENCES parents (no) DEFERRABLE INITIALLY DEFERRED)";
    origin.conn.execute_batch(tables).unwrap();
    let (no, given) = (origin.tenant("demo").no, origin.given());
    let (receipt, visitors) =
        (retention::erasure_receipt(RunNo::from_number(1), NOW, VisitorRow::from_number(1)), |_: &Connection| {
            Ok(vec![(no, visitor(1))])
        });
    // The commit detects that the last statement of the transaction is invalid.
    let fails = |tx: &Connection, _| Ok(tx.execute("INSERT INTO children VALUES (1)", []).map(|_| ())?);
    retention::forget_visitors(&mut origin.conn, &origin.rules, &origin.metrics, given, receipt, visitors, fails)
        .unwrap_err();
    assert_eq!(origin.erasures(), 0, "the journal");
    origin.send("demo", &[page(visitor(1), 2, NOW + 1)]);
    assert_eq!(origin.replay(given).unwrap(), 0);
    assert_eq!(origin.profile("demo", visitor(1)).totals().pages, 2);
    retention::forget_visitors(&mut origin.conn, &origin.rules, &origin.metrics, given, receipt, visitors, |_, _| {
        Ok(())
    })
    .unwrap();
    assert_eq!((origin.erasures(), origin.replay(given).unwrap()), (1, 0));
}

#[test]
fn who_was_told_of_and_never_seen_is_forgotten_too() {
    let mut world = World::with(30);
    let pair = AlternateId::pair(visitor(1), visitor(2));
    let what =
        FactKind::Evidence { id: pair, also: Vec::new(), weight: EvidenceWeight(500), source: EvidenceSource::Match };
    let tied = |v: u32, at| fact(visitor(v), 1, at, what.clone());
    world.origin.admin("demo", &[tied(1, NOW), tied(2, NOW + 35 * DAY_MS)]);
    world.origin.now = NOW + 40 * DAY_MS;
    // Evidence of a visitor that arrives between the check and the erasure preserves it.
    let (origin, log) = (&world.origin, Backlog::default());
    let policy = retention::retention_policy(&origin.rules.tenants, origin.now);
    let both = [1, 2].map(|v| (origin.tenant("demo").no, visitor(v)));
    let still = retention::still_unseen(&origin.conn, &log.reader(), &policy, &both).unwrap();
    assert_eq!(still, both[..1]);
    assert_eq!(world.all(JobKind::Retention, false).report, json!({ "visitors": 2, "forgotten": 1 }));
    assert_eq!(
        world.all(JobKind::Retention, false).report,
        json!({ "visitors": 2, "forgotten": 0 }),
        "nothing is left of it"
    );
    let gone = [1, 2].map(|v| world.origin.row("demo", visitor(v)).withdrawn.is_some());
    assert_eq!(gone, [true, false]);
}

#[test]
fn a_retention_that_is_cut_goes_on_and_ends_with_the_same_store() {
    let [mut whole, mut cut] = [30, 30].map(World::with);
    // The same keys give the same hashes of ids.
    cut.origin.keys = whole.origin.keys.clone();
    cut.origin.forget_after("demo", 30);
    for world in [&mut whole, &mut cut] {
        seen(world);
    }
    let done = whole.all(JobKind::Retention, false);
    let run = cut.begin(JobKind::Retention, false);
    let first = cut.run(&run, 1);
    assert_eq!((first.outcome, first.report["forgotten"].as_u64()), (Some(RunOutcome::Interrupted), Some(250)));
    let again = runs::begin_waiting(&mut cut.origin.conn, cut.origin.now, Some(true)).unwrap().unwrap();
    let last = cut.run(&again, u64::MAX);
    assert_eq!((last.no, &last.report, last.outcome), (run.no, &done.report, done.outcome));
    let differs: Vec<_> = cut.dump().into_iter().zip(whole.dump()).filter(|(cut, whole)| cut != whole).collect();
    assert_eq!(differs, []);
}

#[test]
fn who_is_seen_in_the_log_alone_is_not_forgotten() {
    let mut world = World::with(30);
    world.origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    world.origin.now = NOW + 40 * DAY_MS;
    let back = page(visitor(2), 2, world.origin.now);
    let record = LogRecord::of(vec![CheckedFact { tenant: world.origin.tenant("demo").no, fact: back }]);
    world.backlog = Backlog::of(0, vec![LogRecord { seq: 1, ..record }]);
    assert_eq!(world.all(JobKind::Retention, false).report["forgotten"], 1);
    let pages = [1, 2].map(|v| world.origin.profile("demo", visitor(v)).totals().pages);
    assert_eq!(pages, [0, 1]);
}

#[test]
fn who_comes_back_while_it_is_looked_for_is_not_forgotten() {
    let mut world = World::with(30);
    world.origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    world.origin.now = NOW + 40 * DAY_MS;
    // Between the check and the transaction that erases.
    world.meanwhile.set((0, vec![page(visitor(2), 2, world.origin.now)]));
    assert_eq!(world.all(JobKind::Retention, false).report["forgotten"], 1);
    let pages = [1, 2].map(|v| world.origin.profile("demo", visitor(v)).totals().pages);
    assert_eq!(pages, [0, 2]);
}

#[test]
fn without_a_policy_nobody_is_forgotten() {
    let mut world = World::with(0);
    seen(&mut world);
    let before = world.dump();
    assert_eq!(world.all(JobKind::Retention, false).report, json!({ "visitors": 0, "forgotten": 0 }));
    assert_eq!(world.dump(), before);
}

#[test]
fn an_interrupted_reconcile_is_planned_again_and_mends_the_rest() {
    let mut world = World::with(0);
    let facts: Vec<_> =
        (0..3_000).map(|v| world.origin.login(visitor(v), 1, NOW, &format!("member {}", v / 2))).collect();
    world.origin.send("demo", &facts);
    world.origin.conn.execute("UPDATE people SET devices = 9", []).unwrap();
    let dry = world.all(JobKind::Reconcile, true);
    assert_eq!(dry.report["differences"], json!({ "devices": 1_500 }));
    let run = world.begin(JobKind::Reconcile, false);
    // Progress is reported twice while planning, then after a transaction of corrections.
    let cut = world.run(&run, 2);
    assert_eq!(cut.outcome, Some(RunOutcome::Interrupted));
    let left: i64 =
        world.origin.conn.query_row("SELECT count(*) FROM people WHERE devices = 9", [], |row| row.get(0)).unwrap();
    assert!((1..1_500).contains(&left), "{left} are left");
    let again = runs::begin_waiting(&mut world.origin.conn, NOW, Some(true)).unwrap().unwrap();
    let done = world.run(&again, u64::MAX);
    assert_eq!(
        (done.outcome, done.report["mended"].as_u64()),
        (Some(RunOutcome::Done), Some(left.unsigned_abs())),
        "{}",
        done.report
    );
    assert_eq!((done.no, &done.report["left"]), (run.no, &json!({})));
}

fn last_success(world: &World, job: JobKind) -> f64 {
    world.origin.metrics.jobs.last_success.get_or_create(&[("job", job.name())]).get()
}

#[test]
fn a_job_that_fails_says_why_and_is_counted() {
    let mut world = World::with(0);
    world.origin.send("demo", &[page(visitor(1), 1, NOW)]);
    world.origin.conn.execute("ALTER TABLE activity_histograms RENAME TO elsewhere", []).unwrap();
    let run = world.all(JobKind::Activity, false);
    assert_eq!(run.outcome, Some(RunOutcome::Failed));
    assert!(run.report["error"].as_str().unwrap().contains("no such table"), "{}", run.report);
    let runs = |outcome: RunOutcome| {
        let labels = [("job", "activity"), ("outcome", outcome.name())];
        world.origin.metrics.jobs.runs.get_or_create(&labels).get()
    };
    assert_eq!(RunOutcome::ALL.map(runs), [0, 1, 0]);
    runs::measure_runs(&world.origin.conn, &world.origin.metrics).unwrap();
    assert_eq!(last_success(&world, JobKind::Activity), 0.0);
    assert_eq!(world.all(JobKind::Retention, false).outcome, Some(RunOutcome::Done));
    runs::measure_runs(&world.origin.conn, &world.origin.metrics).unwrap();
    assert_eq!(last_success(&world, JobKind::Retention), seconds(NOW));
    let page = world.origin.metrics.render(NOW, NOW, true);
    for line in [
        "causeway_job_runs_total{job=\"activity\",outcome=\"failed\"} 1".to_owned(),
        format!("causeway_job_last_success_seconds{{job=\"retention\"}} {:?}", seconds(NOW)),
    ] {
        assert!(page.lines().any(|one| one == line), "{line} is missing in\n{page}");
    }
}

fn asked(job: JobKind, trigger: Trigger, dry_run: bool) -> RunRequest {
    RunRequest { job, tenant: None, trigger, dry_run }
}

#[test]
fn the_same_job_waits_once_and_another_beside_it() {
    let Origin { mut conn, .. } = Origin::new();
    let ask = |conn: &mut Connection, job, dry_run| {
        let run = runs::request_run(conn, asked(job, Trigger::Signal, dry_run), NOW).unwrap();
        run.map(|run| run.no).map_err(|run| run.no)
    };
    let first = ask(&mut conn, JobKind::Trim, false).unwrap();
    assert_eq!(ask(&mut conn, JobKind::Trim, true), Err(first));
    assert!(ask(&mut conn, JobKind::Reconcile, false).unwrap() > first);
    let begun = runs::begin_waiting(&mut conn, NOW + 1, Some(true)).unwrap().unwrap();
    assert_eq!((begun.no, begun.started), (first, Some(NOW + 1)));
    assert_eq!(ask(&mut conn, JobKind::Trim, false), Err(first), "it is under way");
    runs::end_run(&mut conn, first, RunOutcome::Done, None, NOW + 2).unwrap();
    let dry = ask(&mut conn, JobKind::Trim, true).unwrap();
    assert!(dry > first);
    assert_eq!(ask(&mut conn, JobKind::Trim, true), Err(dry));
    // A dry run does not replace a real run.
    let real = ask(&mut conn, JobKind::Trim, false).unwrap();
    assert!(real > dry);
    assert_eq!([true, false].map(|dry_run| ask(&mut conn, JobKind::Trim, dry_run)), [Err(real); 2]);
}

#[test]
fn what_ended_with_its_process_goes_on_but_not_for_ever() {
    let Origin { mut conn, .. } = Origin::new();
    let no = runs::request_run(&mut conn, asked(JobKind::Trim, Trigger::Timer, false), NOW).unwrap().unwrap().no;
    for _ in 0..3 {
        assert_eq!(runs::begin_waiting(&mut conn, NOW, Some(true)).unwrap().unwrap().no, no);
    }
    assert_eq!(runs::begin_waiting(&mut conn, NOW, Some(true)).unwrap(), None);
    let given_up = runs::find_run(&conn, no).unwrap().unwrap();
    assert_eq!(given_up.outcome, Some(RunOutcome::Failed));
    assert!(given_up.report["error"].as_str().unwrap().contains("its process ended"));
}

#[test]
fn a_dry_run_and_a_command_that_were_cut_do_not_go_on_by_themselves() {
    let Origin { mut conn, .. } = Origin::new();
    let dry = runs::request_run(&mut conn, asked(JobKind::Trim, Trigger::Signal, true), NOW).unwrap().unwrap().no;
    assert_eq!(runs::begin_waiting(&mut conn, NOW, Some(true)).unwrap().unwrap().no, dry);
    let command = asked(JobKind::Retention, Trigger::Command, false);
    let by_hand = runs::begin_requested(&mut conn, command, NOW).unwrap().no;
    assert_eq!(runs::begin_waiting(&mut conn, NOW, Some(true)).unwrap(), None);
    let outcome = |conn: &Connection, no| runs::find_run(conn, no).unwrap().unwrap().outcome;
    assert_eq!([dry, by_hand].map(|no| outcome(&conn, no)), [Some(RunOutcome::Interrupted); 2]);
    let given = |conn: &mut Connection| runs::begin_requested(conn, command, NOW).unwrap();
    assert_eq!(given(&mut conn).no, by_hand, "given again it goes on");
    assert_eq!(runs::begin_waiting(&mut conn, NOW, Some(true)).unwrap(), None);
    let newer =
        runs::request_run(&mut conn, asked(JobKind::Retention, Trigger::Timer, false), NOW).unwrap().unwrap().no;
    assert_eq!(runs::begin_waiting(&mut conn, NOW, Some(true)).unwrap().unwrap().no, newer);
    runs::end_run(&mut conn, newer, RunOutcome::Done, None, NOW).unwrap();
    assert!(given(&mut conn).no > newer, "not after another that did it all");
}

#[test]
fn of_each_job_the_newest_runs_are_kept() {
    let Origin { mut conn, .. } = Origin::new();
    let mut end = |job, dry_run| {
        let run = runs::request_run(&mut conn, asked(job, Trigger::Signal, dry_run), NOW).unwrap().unwrap();
        runs::end_run(&mut conn, run.no, RunOutcome::Done, None, NOW).unwrap().no
    };
    let real = end(JobKind::Trim, false);
    let other = end(JobKind::Reconcile, false);
    let dry: Vec<RunNo> = (0..130).map(|_| end(JobKind::Trim, true)).collect();
    let kept: Vec<RunNo> =
        runs::list_runs(&conn, Some(JobKind::Trim), 1_000).unwrap().iter().map(|run| run.no).collect();
    let mut newest = dry[30..].to_vec();
    newest.reverse();
    newest.push(real);
    assert_eq!(kept, newest, "dry ones take no other's place");
    assert!(runs::find_run(&conn, other).unwrap().is_some());
    assert_eq!(runs::list_runs(&conn, None, 7).unwrap().len(), 7);
}

#[test]
fn of_quarantined_visitors_nothing_is_forgotten() {
    let mut world = World::with(30);
    world.origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    let row = world.origin.row("demo", visitor(1)).row.unwrap();
    world.origin.conn.execute("UPDATE visitors SET profile = x'ff' WHERE row = ?1", [row]).unwrap();
    // The first job or import that meets the damaged row fails; the next one quarantines its facts.
    world.origin.now = NOW + 20 * DAY_MS;
    let facts = [1, 2].map(|v| CheckedFact { tenant: world.origin.tenant("demo").no, fact: page(visitor(v), 2, NOW) });
    let tries = [(); 2].map(|()| {
        let (records, given) = ([Arc::new(LogRecord::of(facts.to_vec()))], world.origin.given());
        let Origin { conn, rules, metrics, .. } = &mut world.origin;
        commit::commit_group(conn, rules, metrics, given, &records, &[]).map(|done| (done.new, done.quarantined))
    });
    assert!(
        matches!(&tries, [Err(StoreError::Visitor { row: of, .. }), Ok((new, 1))] if (*of, &new[..]) == (row, &[1]))
    );
    world.origin.now = NOW + 45 * DAY_MS;
    let run = world.all(JobKind::Retention, false);
    assert_eq!(run.report["forgotten"], 1);
    let erased = |world: &World, v| {
        crate::erasures::registry::is_erased(&world.origin.conn, facts[0].tenant, visitor(v)).unwrap()
    };
    assert_eq!([1, 2].map(|v| erased(&world, v)), [false, true]);
    // Late facts of a withdrawn visitor do not count as seen.
    world.origin.send("demo", &[crate::testing::withdrawal(visitor(1), world.origin.now)]);
    assert_eq!(world.all(JobKind::Retention, false).report["forgotten"], 1);
    assert!(erased(&world, 1));
}

#[test]
fn of_whom_the_store_cannot_read_no_activity_counts_and_all_others_do() {
    let mut world = World::with(0);
    world.origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    let damage = "UPDATE visitors SET profile = x'ff' WHERE visitor = ?1";
    world.origin.conn.execute(damage, [visitor(1).as_bytes()]).unwrap();
    let run = world.all(JobKind::Activity, false);
    assert_eq!((run.outcome, run.report), (Some(RunOutcome::Done), json!({ "people": 2, "unreadable": 1 })));
    let kept = world.origin.conn.query_row("SELECT people FROM activity_histograms", [], |row| row.get(0));
    assert_eq!(kept, Ok(1));
}

#[test]
fn a_run_that_a_clock_put_far_off_is_not_the_last_that_ended_well_for_long() {
    let mut world = World::with(0);
    world.origin.now = NOW + 4_000 * DAY_MS;
    world.all(JobKind::Activity, false);
    world.origin.now = NOW;
    world.all(JobKind::Activity, false);
    runs::measure_runs(&world.origin.conn, &world.origin.metrics).unwrap();
    assert_eq!(last_success(&world, JobKind::Activity), seconds(NOW));
}

#[test]
fn a_report_that_is_too_long_is_not_kept() {
    let Origin { mut conn, .. } = Origin::new();
    let run = runs::request_run(&mut conn, asked(JobKind::Trim, Trigger::Signal, false), NOW).unwrap().unwrap();
    let long = json!({ "first": "x".repeat(70_000) });
    let kept = runs::end_run(&mut conn, run.no, RunOutcome::Done, Some(&long), NOW).unwrap();
    assert_eq!(kept.report["error"], "the report is too long");
}
