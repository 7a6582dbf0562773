//! Inputs and outcome of a run, and the trait of a job.

use crate::audience::Audience;
use crate::base::error_chain;
use crate::base::metrics::Metrics;
use crate::campaigns::train;
use crate::ingest::backlog::Backlog;
use crate::jobs::runs::JobRun;
use crate::store::StoreError;
use crate::store::job_error::JobError;
use crate::store::tables::visitors;
use crate::store::write_txn::{TxnInputs, TxnRules};
use causeway_shared::base::ids::Millis;
use rusqlite::Connection;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Inputs of a run.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct JobContext<'a> {
    /// The data directory.
    pub data: &'a Path,
    /// Whether this process's rules also hand out the outbox entries. A serving origin hands out by the rules of its
    /// start, so that the rules of a command that runs in parallel do not apply.
    pub hands_out: bool,
    /// The run's own writing connection.
    pub conn: &'a mut Connection,
    /// Rules of all transactions.
    pub rules: &'a TxnRules,
    /// Metrics to update.
    pub metrics: &'a Metrics,
    /// Reads the log's records that are not folded.
    pub backlog: &'a dyn Fn() -> Result<Backlog, StoreError>,
    /// Gives the audience index, up to date.
    pub audience: &'a dyn Fn() -> Result<Audience, JobError>,
    /// Options for training models.
    pub training: &'a train::Options,
    /// Draws the inputs of a transaction: the time and a random seed.
    pub draw_inputs: &'a dyn Fn() -> Result<TxnInputs, StoreError>,
    /// Pauses between two transactions.
    pub pause: &'a dyn Fn(),
    /// Waits for a time without work.
    pub wait: &'a dyn Fn(Duration),
    /// Monotonic clock.
    pub elapsed: &'a dyn Fn() -> Duration,
    /// Progress callback `(done, total)`. It returns [`JobError::Stopped`] if the run must end.
    pub report_progress: &'a (dyn Fn(u64, u64) -> Result<(), JobError> + Sync),
    /// Set once the run is in a phase that it cannot resume; it is no longer pre-empted.
    pub non_preemptible: &'a AtomicBool,
}

/// Outcome of a run that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct JobReport {
    /// The report as JSON.
    pub report: Value,
    /// Reason why the run counts as failed and needs an operator.
    pub failed: Option<String>,
}

impl From<Value> for JobReport {
    fn from(report: Value) -> Self {
        Self { report, failed: None }
    }
}

/// Isolates the failure of one item of a job, so that the job continues with the others. The inner error is the reason.
///
/// # Errors
/// [`JobError::Stopped`], because the run must end.
pub fn isolate_failure<T>(done: Result<T, JobError>) -> Result<Result<T, String>, JobError> {
    match done {
        Err(e) if !matches!(e, JobError::Stopped) => Ok(Err(error_chain(&e))),
        done => done.map(Ok),
    }
}

/// Pause between two transactions while an origin serves. It is longer than the longest sleep of SQLite's busy handler
/// (100 ms), so that waiting writers get their turn. Together with [`SOME`] it limits the rate of jobs.
pub const PAUSE: Duration = Duration::from_millis(120);

pub(crate) fn count_visitors(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.query_row(visitors::VISITORS_COUNT, [], |row| row.get(0).map(crate::base::integers::unsigned))?)
}

/// The report that an interrupted run stored.
pub(crate) fn so_far<T: serde::de::DeserializeOwned + Default>(run: &JobRun) -> T {
    T::deserialize(&run.report).unwrap_or_default()
}

/// Visitors in one transaction of a job. Other writers then wait for about 20 ms.
pub(crate) const SOME: u32 = 500;

/// People in one transaction of a job that publishes siblings or reads activity histograms.
pub(crate) const PEOPLE: u32 = 1_000;

/// Largest correction of a healthy clock, in milliseconds. A run that began further in the future was begun by a wrong
/// clock.
pub(crate) const AHEAD_MS: u64 = 10 * 60_000;

/// Reason why a run that deletes by age must not continue: its start lies in the future.
pub(crate) fn clock_warning(run: &JobRun, now: Millis) -> Option<String> {
    const WHY: &str = "the clock was set back after the run began, so that ages computed from its start are wrong: nothing more \
        is deleted; look at the clock, and check what the run has deleted so far";
    (run.since() > now.saturating_add(AHEAD_MS)).then(|| WHY.to_owned())
}

/// A job: idempotent, without input, in short transactions. `tasks` has one file for each.
pub(crate) trait BackgroundJob: Sync {
    /// Executes a run from its cursor.
    ///
    /// # Errors
    /// [`JobError`]; earlier transactions stay committed. [`JobError::Stopped`] reports an interruption, not a
    /// failure.
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError>;
}
