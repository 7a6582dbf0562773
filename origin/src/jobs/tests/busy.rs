//! A job in parallel with another connection that writes for longer than the job waits.

use super::*;
use crate::store::StoreError;
use crate::store::job_error::JobError;

/// Executes a run with connections that do not wait for locks.
fn run_with(
    world: &mut World,
    run: &JobRun,
    given: &dyn Fn() -> Result<TxnInputs, StoreError>,
    pause: &dyn Fn(),
    told: &(dyn Fn(u64, u64) -> Result<(), JobError> + Sync),
) -> JobRun {
    let data = world.origin.data().to_owned();
    for conn in [&world.origin.conn, &*world.notes.lock().unwrap()] {
        conn.busy_timeout(Duration::ZERO).unwrap();
    }
    let Origin { conn, rules, metrics, .. } = &mut world.origin;
    let place = JobContext { report_progress: told, ..testing::place(&data, conn, rules, metrics, given, pause) };
    JobRunner { context: place, notes: &world.notes, stop: &|| false }.run(run).unwrap()
}

/// Executes a run while another connection writes, from the run's first pause until its second transaction has failed.
fn beside_a_writer(world: &mut World, run: &JobRun) -> JobRun {
    let other = store::open(world.origin.data()).unwrap();
    let now = world.origin.now;
    // Number of times that the time was requested since the other connection began to write.
    let asked = Cell::new(None);
    let pause = || {
        if asked.get().is_none() {
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            asked.set(Some(0));
        }
    };
    let given = || {
        if let Some(times) = asked.get() {
            asked.set(Some(times + 1));
            // Once for the failing transaction, and once for the end of the run.
            if times == 1 {
                other.execute_batch("ROLLBACK").unwrap();
            }
        }
        Ok(TxnInputs { now, random: [9; 32] })
    };
    run_with(world, run, &given, &pause, &|_, _| Ok(()))
}

#[test]
fn a_job_beside_one_that_writes_for_too_long_goes_on_later_where_it_was() {
    let [mut whole, mut world] = [(); 2].map(|()| {
        let mut world = World::with(0);
        old(&mut world, 1_500);
        world
    });
    let run = world.begin(JobKind::Trim, false);
    let cut = beside_a_writer(&mut world, &run);
    assert_eq!(cut.outcome, Some(RunOutcome::Interrupted));
    assert!(cut.cursor > 0, "what it had done stays done");
    let again = runs::begin_waiting(&mut world.origin.conn, world.origin.now, Some(true)).unwrap().unwrap();
    let done = world.run(&again, u64::MAX);
    assert_eq!((done.no, done.outcome), (run.no, Some(RunOutcome::Done)));
    assert_eq!(done.report, whole.all(JobKind::Trim, false).report);
    assert_eq!(world.dump(), whole.dump());
}

#[test]
fn what_begins_anew_fails_beside_one_that_writes_for_too_long_and_says_why() {
    for (job, dry_run, outcome) in [
        (JobKind::Trim, false, RunOutcome::Interrupted),
        (JobKind::Trim, true, RunOutcome::Failed),
        (JobKind::Activity, false, RunOutcome::Failed),
    ] {
        let mut world = World::with(0);
        old(&mut world, 10);
        let (run, now) = (world.begin(job, dry_run), world.origin.now);
        let busy = |_, _| {
            let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            Err(rusqlite::Error::SqliteFailure(busy, None).into())
        };
        let ended = run_with(&mut world, &run, &|| Ok(TxnInputs { now, random: [9; 32] }), &|| {}, &busy);
        assert_eq!(ended.outcome, Some(outcome), "{} {dry_run}", job.name());
        assert_eq!(ended.report.get("error").is_some(), outcome == RunOutcome::Failed, "{}", ended.report);
    }
}
