//! Statements of the table `runs`: waiting, active and ended runs of jobs.

/// Start of the statements that read runs.
macro_rules! select {
    () => {
        "SELECT run, job, tenant, trigger, dry_run, requested, started, ended, done, total, cursor, outcome, report,
        starts FROM runs "
    };
}

/// Condition for runs that a serving origin begins or resumes. A training and a dry run start again only on request,
/// and the operator repeats a command.
macro_rules! waits {
    () => {
        "(outcome IS NULL AND started IS NULL
    OR outcome = 'interrupted' AND dry_run = 0 AND job <> 'train') AND trigger <> 'command'"
    };
}

/// Reads run `?1`.
pub(crate) const RUNS_BY_NUMBER: &str = concat!(select!(), "WHERE run = ?1");

/// Reads the newest `?2` runs of job `?1`, the newest first.
pub(crate) const RUNS_NEWEST_OF_JOB: &str = concat!(select!(), "WHERE job = ?1 ORDER BY run DESC LIMIT ?2");

/// Reads the newest `?1` runs of all jobs, the newest first.
pub(crate) const RUNS_NEWEST: &str = concat!(select!(), "ORDER BY run DESC LIMIT ?1");

/// Reads the newest active or waiting run of job `?1` and tenant `?2`. If `?3` is 0, a dry run is not read: it does not
/// replace a real run.
pub(crate) const RUNS_NEWEST_OPEN: &str = concat!(
    select!(),
    "WHERE job = ?1 AND tenant IS ?2 AND dry_run <= ?3 AND (outcome IS NULL OR ",
    waits!(),
    ") ORDER BY run DESC LIMIT 1"
);

/// Sets the trigger of run `?1` to `?2` if a timer requested it and it waits.
pub(crate) const RUNS_TAKE_OVER_TIMER: &str =
    concat!("UPDATE runs SET trigger = ?2 WHERE run = ?1 AND trigger = 'timer' AND ", waits!());

/// Reads the interrupted run of job `?1` and tenant `?2` that a request resumes; none if the request is a dry run
/// (`?3`). A run is not resumed after a later run of the job, which changed the data that it had processed.
pub(crate) const RUNS_RESUMABLE: &str = concat!(
    select!(),
    "WHERE outcome = 'interrupted' AND ?3 = 0 AND job <> 'train' AND run = (SELECT max(run) FROM runs
        WHERE job = ?1 AND tenant IS ?2 AND dry_run = 0 AND started IS NOT NULL)"
);

/// Reads all runs that a serving origin begins or resumes.
pub(crate) const RUNS_WAITING: &str = concat!(select!(), "WHERE ", waits!());

/// Reads the newest run of job `?1` and tenant `?2` that was started and is not a dry run.
pub(crate) const RUNS_LAST_STARTED: &str = concat!(
    select!(),
    "WHERE job = ?1 AND tenant IS ?2 AND dry_run = 0 AND started IS NOT NULL ORDER BY run DESC LIMIT 1"
);

/// Reads the newest run of the job `verify` that was started.
pub(crate) const RUNS_LAST_VERIFY: &str =
    concat!(select!(), "WHERE job = 'verify' AND started IS NOT NULL ORDER BY run DESC LIMIT 1");

/// Inserts a waiting run.
pub(crate) const RUNS_INSERT: &str =
    "INSERT INTO runs (job, tenant, trigger, dry_run, requested) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Begins run `?1` at `?2`. A run that is resumed keeps the time of its first start.
pub(crate) const RUNS_BEGIN: &str =
    "UPDATE runs SET started = ifnull(started, ?2), starts = starts + 1, ended = NULL, outcome = NULL
    WHERE run = ?1";

/// Ends all active runs at `?1` as interrupted. A run that was started `?2` times or more has failed, with error `?3`.
pub(crate) const RUNS_END_INTERRUPTED: &str =
    "UPDATE runs SET ended = ?1, outcome = iif(starts >= ?2, 'failed', 'interrupted'),
        report = iif(starts >= ?2, json_set(report, '$.error', ?3), report)
    WHERE outcome IS NULL AND started IS NOT NULL";

/// Reads whether a run of the same job and tenant was started after run `?3`.
pub(crate) const RUNS_ANY_LATER: &str =
    "SELECT 1 FROM runs WHERE job = ?1 AND tenant IS ?2 AND run > ?3 AND started IS NOT NULL";

/// Stores the cursor and the report of run `?1`.
pub(crate) const RUNS_SET_CURSOR: &str = "UPDATE runs SET cursor = ?2, report = ?3 WHERE run = ?1";

/// Stores the progress of run `?1`.
pub(crate) const RUNS_SET_PROGRESS: &str = "UPDATE runs SET done = ?2, total = ?3 WHERE run = ?1";

/// Ends run `?1` at `?2` with outcome `?3`, and with report `?4` unless it is NULL.
pub(crate) const RUNS_END: &str = "UPDATE runs SET ended = ?2, outcome = ?3, report = ifnull(?4, report), starts = 0,
    done = iif(?3 = 'done', total, done) WHERE run = ?1";

/// Deletes the ended runs of a job and tenant beyond the newest `?4`.
pub(crate) const RUNS_DELETE_OLD: &str =
    "DELETE FROM runs WHERE outcome IS NOT NULL AND job = ?1 AND tenant IS ?2 AND dry_run = ?3
    AND run <= (SELECT run FROM runs WHERE job = ?1 AND tenant IS ?2 AND dry_run = ?3
        ORDER BY run DESC LIMIT 1 OFFSET ?4)";

/// Reads the duration of the newest ended run of job `?1`.
pub(crate) const RUNS_LAST_DURATION: &str = "SELECT ended - started FROM runs
    WHERE job = ?1 AND dry_run = 0 AND outcome IS NOT NULL AND started IS NOT NULL ORDER BY run DESC LIMIT 1";

/// Reads the end of the newest successful run of job `?1`, or 0. The newest run counts, not the latest time: a run by a
/// clock that was ahead would remain the latest for long.
pub(crate) const RUNS_LAST_SUCCESS: &str =
    "SELECT ifnull((SELECT ended FROM runs WHERE job = ?1 AND dry_run = 0 AND outcome = 'done'
    ORDER BY run DESC LIMIT 1), 0)";

/// Reads the progress of the active run of job `?1`.
pub(crate) const RUNS_PROGRESS_OF_ACTIVE: &str =
    "SELECT done, total FROM runs WHERE job = ?1 AND outcome IS NULL AND started IS NOT NULL
    ORDER BY run DESC LIMIT 1";

/// Removes the first differences from the reports of `reconcile` that contain the text `?1`.
pub(crate) const RUNS_REMOVE_FROM_REPORTS: &str = "UPDATE runs SET report = json_remove(report, '$.first')
    WHERE job = 'reconcile' AND instr(report, ?1) > 0";
