//! What a run of a job works with and what it comes to, and the trait of a job.

use crate::audience::Audience;
use crate::base::error_chain;
use crate::base::job_kinds::JobKind;
use crate::base::metrics::Metrics;
use crate::campaigns::train;
use crate::ingest::backlog::Backlog;
use crate::jobs::runs::JobRun;
use crate::store::StoreError;
use crate::store::write_txn::{TxnInputs, TxnRules};
use causeway_shared::base::ids::Millis;
use rusqlite::Connection;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What a run works on and with.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct JobContext<'a> {
    /// The data directory.
    pub data: &'a Path,
    /// Whether what goes into the outbox is handed out by these rules: an origin that serves beside a command has those of its start.
    pub hands_out: bool,
    /// A connection that writes, the run's own.
    pub conn: &'a mut Connection,
    /// What all transactions have in common.
    pub rules: &'a TxnRules,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// What the log holds beyond the store now.
    pub backlog: &'a dyn Fn() -> Result<Backlog, StoreError>,
    /// The columns of audiences, up to date.
    pub audience: &'a dyn Fn() -> Result<Audience, StoreError>,
    /// How models are trained.
    pub training: &'a train::Options,
    /// What each transaction is given.
    pub given: &'a dyn Fn() -> Result<TxnInputs, StoreError>,
    /// Called between two transactions.
    pub pause: &'a dyn Fn(),
    /// Called where nothing may be done for a time.
    pub wait: &'a dyn Fn(Duration),
    /// A clock that only goes on, whatever the date does.
    pub elapsed: &'a dyn Fn() -> Duration,
    /// Told what is done, of how much; says [`StoreError::Stopped`] where the run is to end.
    pub told: &'a (dyn Fn(u64, u64) -> Result<(), StoreError> + Sync),
    /// Set by a run that would do from the beginning what it does now: it gives way to no other any more.
    pub to_the_end: &'a AtomicBool,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct JobReport {
    /// Its report.
    pub report: Value,
    /// What somebody must look at.
    pub failed: Option<String>,
}

impl From<Value> for JobReport {
    fn from(report: Value) -> Self {
        Self { report, failed: None }
    }
}

/// What the store cannot give of one of several that a job goes through holds that one up, and no other: why, unless the run is
/// to end.
///
/// # Errors
/// [`StoreError::Stopped`].
pub fn isolate_failure<T>(done: Result<T, StoreError>) -> Result<Result<T, String>, StoreError> {
    match done {
        Err(e) if !matches!(e, StoreError::Stopped) => Ok(Err(error_chain(&e))),
        done => done.map(Ok),
    }
}

/// Between two transactions beside a serving origin: longer than it sleeps between two tries to write (SQLite's busy handler:
/// 100 ms at most). With [`SOME`] it is the jobs' rate limit.
pub const PAUSE: Duration = Duration::from_millis(120);

pub(crate) fn count_visitors(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.query_row("SELECT count(*) FROM visitors", [], |row| row.get(0).map(crate::base::integers::unsigned))?)
}

/// What the run kept when it was cut.
pub(crate) fn so_far<T: serde::de::DeserializeOwned + Default>(run: &JobRun) -> T {
    T::deserialize(&run.report).unwrap_or_default()
}

/// Visitors trimmed in one transaction: who waits to write waits some twenty milliseconds.
pub(crate) const SOME: u32 = 500;

/// People whose siblings are put in the outbox in one transaction, or whose rhythms are read in one.
pub(crate) const PEOPLE: u32 = 1_000;

/// A clock that is right is corrected by less, in milliseconds: a run that began later than that from now began by a wrong one.
pub(crate) const AHEAD_MS: Millis = 10 * 60_000;

/// Why a run that goes by the age that things had when it began does not go on: that time is still to come.
pub(crate) fn clock_warning(run: &JobRun, now: Millis) -> Option<String> {
    const WHY: &str = "the clock was set back since the run began, and what is old was told by its time of then: nothing more \
        is dropped by it; look at the clock, and at what the run came to until now";
    (run.since() > now.saturating_add(AHEAD_MS)).then(|| WHY.to_owned())
}

/// One job: idempotent, without input, in short transactions. `tasks` has one file for each.
pub(crate) trait BackgroundJob: Sync {
    /// Its kind, which names it and orders the jobs.
    fn kind(&self) -> JobKind;

    /// Does what a run asks for, from where it was.
    ///
    /// # Errors
    /// [`StoreError`]; what was committed before stays, and [`StoreError::Stopped`] says no more than that.
    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError>;
}
