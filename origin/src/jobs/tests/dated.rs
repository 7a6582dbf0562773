#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::base::metrics::{BACK_MS, VOUCHED_MS};
use crate::testing::{Origin, page, visitor};

/// A jobs thread over an origin's store. Nothing runs until a test calls `look`.
fn thread(origin: &Origin) -> JobThread {
    let data = origin.data().to_owned();
    let (wake, _) = sync_channel(1);
    let notes = Mutex::new(store::open(&data).unwrap());
    let jobs = JobsHandle(Arc::new(HandleState { notes, stopping: AtomicBool::new(false), wake }));
    let rules = TxnRules {
        tenants: origin.rules.tenants.clone(),
        journal: crate::store::journal::ErasureJournal::open(&data).unwrap(),
        ..origin.rules
    };
    JobThread {
        conn: store::open(&data).unwrap(),
        data,
        jobs,
        rules: Arc::new(rules),
        metrics: Arc::default(),
        backlog: Backlog::default(),
        audience: Audience::default(),
        every: JobIntervals::default(),
        turn: TURN,
        held: false,
    }
}

fn ran(thread: &JobThread, job: JobKind) -> Vec<(Trigger, Option<RunOutcome>)> {
    let runs = runs::list_runs(&thread.conn, Some(job), 10).unwrap();
    runs.iter().map(|run| (run.request.trigger, run.outcome)).collect()
}

#[test]
fn a_timer_begins_nothing_that_goes_by_age_on_a_date_that_no_sync_vouches_for() {
    let mut thread = thread(&Origin::new());
    // A run that was requested before the clock went wrong, or was interrupted by a stop, waits too.
    let cut = RunRequest { job: JobKind::Trim, tenant: None, trigger: Trigger::Timer, dry_run: false };
    runs::request_run(&mut thread.conn, cut, clock::now()).unwrap().unwrap();
    for last in [0, clock::now() - VOUCHED_MS - 60_000, clock::now() + BACK_MS + 60_000] {
        thread.metrics.dated_ms.set(last);
        assert!(thread.run_due_jobs().unwrap() <= LOOK);
        assert_eq!(ran(&thread, JobKind::Trim), [(Trigger::Timer, None)]);
        assert_eq!([JobKind::Retention, JobKind::Rollup].map(|job| ran(&thread, job)), [[], []]);
        assert_eq!(ran(&thread, JobKind::Activity), [(Trigger::Timer, Some(RunOutcome::Done))], "others run");
    }
    let by_call = RunRequest { job: JobKind::Retention, tenant: None, trigger: Trigger::Signal, dry_run: false };
    let cut = runs::request_run(&mut thread.conn, RunRequest { trigger: Trigger::Timer, ..by_call }, clock::now())
        .unwrap()
        .unwrap();
    let asked = runs::request_run(&mut thread.conn, by_call, clock::now()).unwrap().unwrap();
    assert_eq!((asked.no, asked.request.trigger), (cut.no, Trigger::Signal), "the one that waits");
    thread.run_due_jobs().unwrap();
    assert_eq!(
        ran(&thread, JobKind::Retention),
        [(Trigger::Signal, Some(RunOutcome::Done))],
        "a run on request is not held"
    );
    thread.metrics.dated_ms.set(clock::now() - VOUCHED_MS + 60_000);
    thread.run_due_jobs().unwrap();
    assert_eq!(ran(&thread, JobKind::Trim), [(Trigger::Timer, Some(RunOutcome::Done))]);
}

/// A send that cannot continue, which is recorded once.
const SEND: &str =
    "INSERT INTO sends (send, tenant, name, filter, count, experiment, webhook, per_second, random, requested, due,
    chosen, next) VALUES (1, ?1, 'may', '{}', 2, 'none', 0, 1, 7, ?2, ?2, NULL, 0)";

#[test]
fn a_timer_on_a_date_known_to_be_wrong_delivers_and_exposes_nothing() {
    let origin = Origin::new();
    let mut thread = thread(&origin);
    thread.conn.execute(SEND, (origin.tenant("demo").no.0, store::signed(clock::now()))).unwrap();
    for wrong in [clock::now() - VOUCHED_MS - 60_000, clock::now() + BACK_MS + 60_000] {
        thread.metrics.dated_ms.set(wrong);
        thread.run_due_jobs().unwrap();
        assert_eq!(ran(&thread, JobKind::Send), []);
    }
    // If no edge ever synced, nothing can confirm or deny the date.
    thread.metrics.dated_ms.set(0);
    thread.run_due_jobs().unwrap();
    assert_eq!(ran(&thread, JobKind::Send), [(Trigger::Timer, Some(RunOutcome::Failed))]);
}

#[test]
fn what_takes_long_gives_way_to_a_send_that_is_due_and_goes_on_behind_it() {
    let gave_way = |turn: Duration| {
        let mut origin = Origin::new();
        let facts: Vec<_> = (0..1_200).map(|v| page(visitor(v), 1, origin.now)).collect();
        origin.send("demo", &facts);
        let no = origin.tenant("demo").no.0;
        let mut thread = thread(&origin);
        thread.turn = turn;
        thread.metrics.dated_ms.set(clock::now());
        let trim = RunRequest { job: JobKind::Trim, tenant: None, trigger: Trigger::Signal, dry_run: false };
        let trim = runs::request_run(&mut thread.conn, trim, clock::now()).unwrap().unwrap();
        let trim =
            runs::begin_waiting(&mut thread.conn, clock::now(), Some(true)).unwrap().filter(|run| run.no == trim.no);
        // The send becomes due while the other job is active.
        thread.conn.execute(SEND, (no, store::signed(clock::now()))).unwrap();
        thread.run(&trim.unwrap()).unwrap();
        let cut = ran(&thread, JobKind::Trim) == [(Trigger::Signal, Some(RunOutcome::Interrupted))];
        assert_eq!(ran(&thread, JobKind::Send), if cut { vec![(Trigger::Timer, None)] } else { vec![] });
        thread.run_due_jobs().unwrap();
        let ended = |job| runs::list_runs(&thread.conn, Some(job), 10).unwrap().pop().unwrap();
        assert_eq!(ended(JobKind::Send).outcome, Some(RunOutcome::Failed));
        assert_eq!(
            (ended(JobKind::Trim).outcome, &ended(JobKind::Trim).report["visitors"]),
            (Some(RunOutcome::Done), &1_200.into())
        );
        cut.then(|| ended(JobKind::Send).ended <= ended(JobKind::Trim).ended)
    };
    assert_eq!(gave_way(Duration::ZERO), Some(true));
    assert_eq!(gave_way(TURN), None, "each has a turn");
}
