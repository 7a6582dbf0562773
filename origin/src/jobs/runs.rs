//! Rows of runs in the store.

use causeway_shared::base::ids::Millis;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior};
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type as SchemaType};
use utoipa::{PartialSchema, ToSchema};

use super::LastRun;
use crate::base::integers::{signed, unsigned};
use crate::base::job_kinds::{JobKind, RunOutcome, Trigger};
use crate::base::metrics::{FOUND, Metrics, seconds};
use crate::kv::verify::VerifyReport;
use crate::store::tables::runs;
use crate::store::tenants::Tenants;
use crate::store::{RunNo, StoreError, TenantNo, VisitorRow};

/// Newest runs that are stored for each job, and for each tenant of a job that runs for each tenant. Dry runs are
/// counted separately.
const KEPT: i64 = 100;
/// Most runs on one page.
pub const PAGE: usize = 1_000;
/// Longest report in bytes of JSON. Jobs bound the lists in their reports.
const REPORT_BYTES: usize = 64 * 1_024;
/// Number of starts without an orderly end after which a run is given up, because it may be the cause of the ends.
const STARTS: u32 = 3;

/// Request of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRequest {
    /// The job.
    pub job: JobKind,
    /// Tenant of a job that runs for each tenant.
    pub tenant: Option<TenantNo>,
    /// Trigger of the run.
    pub trigger: Trigger,
    /// Whether the run only reports what it would do.
    pub dry_run: bool,
}

/// A run of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRun {
    /// Number of the run.
    pub no: RunNo,
    /// The request.
    pub request: RunRequest,
    /// Time of the request.
    pub requested_at: Millis,
    /// Time of the start; `None` while the run waits.
    pub started: Option<Millis>,
    /// Time of the end.
    pub ended: Option<Millis>,
    /// Completed units of work.
    pub done: u64,
    /// All units of work.
    pub all: u64,
    /// Position from which the run continues.
    pub cursor: i64,
    /// Outcome of the run.
    pub outcome: Option<RunOutcome>,
    /// Report of the results so far. A dry run reports what it would do.
    pub report: Value,
    starts: u32,
}

/// A run of a job, as the admin side and the command line report it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RunAnswer {
    /// Number of the run.
    pub run: i64,
    /// The job.
    #[schema(value_type = JobKind)]
    pub job: &'static str,
    /// Tenant of a training; null for a job over all tenants.
    pub tenant: Option<String>,
    /// Trigger: the job was due (`timer`), a call of the admin side (`signal`), or `causeway job run` (`command`).
    #[schema(value_type = Trigger)]
    pub trigger: &'static str,
    /// Whether the run reports its plan and changes nothing.
    pub dry_run: bool,
    /// Time of the request.
    pub requested_ms: u64,
    /// Time of the start; null while the run waits.
    pub started_ms: Option<u64>,
    /// Time of the end; null before it.
    pub ended_ms: Option<u64>,
    /// Visitors, rows, people or differences that are done, depending on the job.
    pub done: u64,
    /// Visitors, rows, people or differences that there are in all.
    pub all: u64,
    /// Outcome; null while the run waits or works. An interrupted run continues at its position, unless it is a dry
    /// run, a training or a run of a command.
    #[schema(value_type = Option<RunOutcome>)]
    pub outcome: Option<&'static str>,
    /// Counts until now; the plan of a dry run; `error` of a failed run.
    #[schema(value_type = Object)]
    pub report: Value,
}

/// Describes a type as a string that is one of its names.
macro_rules! schema_of_names {
    ($named:ident, $names:expr) => {
        impl PartialSchema for $named {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new().schema_type(SchemaType::String).enum_values(Some($names)).into()
            }
        }

        impl ToSchema for $named {}
    };
}

schema_of_names!(JobKind, JobKind::names());
schema_of_names!(Trigger, Trigger::ALL.map(Trigger::name));
schema_of_names!(RunOutcome, RunOutcome::ALL.map(RunOutcome::name));

impl JobRun {
    /// The run as the admin side and the command line report it.
    #[must_use]
    pub fn describe(&self, tenants: &Tenants) -> RunAnswer {
        let RunRequest { job, tenant, trigger, dry_run } = self.request;
        RunAnswer {
            run: self.no.number(),
            job: job.name(),
            tenant: tenant.and_then(|no| tenants.by_no(no).ok()).map(|known| known.config.name.clone()),
            trigger: trigger.name(),
            dry_run,
            requested_ms: self.requested_at,
            started_ms: self.started,
            ended_ms: self.ended,
            done: self.done,
            all: self.all,
            outcome: self.outcome.map(RunOutcome::name),
            report: self.report.clone(),
        }
    }

    /// Row of the last visitor that a run over visitors completed.
    pub(super) fn visitor_cursor(&self) -> VisitorRow {
        VisitorRow::from_number(self.cursor)
    }

    /// Time of the start, or of the request while the run waits.
    #[must_use]
    pub fn since(&self) -> Millis {
        self.started.unwrap_or(self.requested_at)
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let bad = |column| rusqlite::Error::InvalidColumnType(column, String::new(), Type::Text);
        let name = |column| row.get::<_, String>(column);
        let (job, trigger) = (name(1)?, name(3)?);
        let outcome = |name: String| RunOutcome::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| bad(11));
        let asked = RunRequest {
            job: JobKind::named(&job).ok_or_else(|| bad(1))?,
            tenant: row.get::<_, Option<i64>>(2)?.map(TenantNo),
            trigger: Trigger::ALL.into_iter().find(|one| one.name() == trigger).ok_or_else(|| bad(3))?,
            dry_run: row.get(4)?,
        };
        Ok(Self {
            no: row.get(0)?,
            request: asked,
            requested_at: unsigned(row.get(5)?),
            started: row.get::<_, Option<i64>>(6)?.map(unsigned),
            ended: row.get::<_, Option<i64>>(7)?.map(unsigned),
            done: unsigned(row.get(8)?),
            all: unsigned(row.get(9)?),
            cursor: row.get(10)?,
            outcome: row.get::<_, Option<String>>(11)?.map(outcome).transpose()?,
            report: serde_json::from_str(&name(12)?).map_err(|_| bad(12))?,
            starts: row.get(13)?,
        })
    }
}

/// Loads the runs that a statement selects.
fn read(conn: &Connection, select: &str, values: impl rusqlite::Params) -> Result<Vec<JobRun>, StoreError> {
    let mut statement = conn.prepare(select)?;
    let rows = statement.query_map(values, JobRun::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Loads a run by its number.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn find_run(conn: &Connection, no: RunNo) -> Result<Option<JobRun>, StoreError> {
    Ok(read(conn, runs::RUNS_BY_NUMBER, [no])?.pop())
}

fn load_run(conn: &Connection, no: RunNo) -> Result<JobRun, StoreError> {
    find_run(conn, no)?.ok_or(StoreError::Corrupt { what: "run" })
}

/// The newest runs of one job or of all jobs, at most [`PAGE`].
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn list_runs(conn: &Connection, job: Option<JobKind>, limit: usize) -> Result<Vec<JobRun>, StoreError> {
    let limit = signed(limit.min(PAGE) as u64);
    match job {
        Some(job) => read(conn, runs::RUNS_NEWEST_OF_JOB, (job.name(), limit)),
        None => read(conn, runs::RUNS_NEWEST, [limit]),
    }
}

/// Requests a run and returns it; a waiting run of a timer is taken over. The inner error is a run of the same job that
/// was requested before or is active. A dry run does not replace a real run: a real run may be requested while one
/// waits.
///
/// # Errors
/// [`StoreError::Sqlite`]; nothing was stored.
pub fn request_run(
    conn: &mut Connection,
    asked: RunRequest,
    now: Millis,
) -> Result<Result<JobRun, JobRun>, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let same = (asked.job.name(), asked.tenant.map(|no| no.0), asked.dry_run);
    if let Some(open) = read(&tx, runs::RUNS_NEWEST_OPEN, same)?.pop() {
        // A run of a timer may be held until the date is confirmed. A request by hand releases it.
        let by_hand = !asked.dry_run && asked.trigger != Trigger::Timer;
        if by_hand && tx.execute(runs::RUNS_TAKE_OVER_TIMER, (open.no, asked.trigger.name()))? == 1 {
            let run = load_run(&tx, open.no)?;
            tx.commit()?;
            return Ok(Ok(run));
        }
        return Ok(Err(open));
    }
    let run = load_run(&tx, insert(&tx, asked, now)?)?;
    tx.commit()?;
    Ok(Ok(run))
}

fn insert(conn: &Connection, asked: RunRequest, now: Millis) -> Result<RunNo, StoreError> {
    let RunRequest { job, tenant, trigger, dry_run } = asked;
    conn.execute(runs::RUNS_INSERT, (job.name(), tenant.map(|no| no.0), trigger.name(), dry_run, signed(now)))?;
    Ok(RunNo::from_number(conn.last_insert_rowid()))
}

/// Begins the run that a command requests, or resumes the previous interrupted one. The caller holds the lock for jobs.
///
/// # Errors
/// [`StoreError::Sqlite`]; nothing was stored.
pub fn begin_requested(conn: &mut Connection, asked: RunRequest, now: Millis) -> Result<JobRun, StoreError> {
    settle_runs(conn, now)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let cut = read(&tx, runs::RUNS_RESUMABLE, (asked.job.name(), asked.tenant.map(|no| no.0), asked.dry_run))?.pop();
    let no = cut.map_or_else(|| insert(&tx, asked, now), |cut| Ok(cut.no))?;
    begin_run(&tx, no, now)?;
    let run = load_run(&tx, no)?;
    tx.commit()?;
    Ok(run)
}

/// Begins the run that has waited longest, if one waits. Runs of jobs with due times come first, and runs of held
/// timers are skipped. `vouched` says whether a sync confirms the date. The caller holds the lock for jobs.
///
/// # Errors
/// [`StoreError::Sqlite`]; nothing was stored.
pub fn begin_waiting(conn: &mut Connection, now: Millis, vouched: Option<bool>) -> Result<Option<JobRun>, StoreError> {
    settle_runs(conn, now)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let waits = read(&tx, runs::RUNS_WAITING, [])?;
    let is_held = |run: &JobRun| run.request.trigger == Trigger::Timer && run.request.job.is_held(vouched);
    let first = waits.iter().filter(|run| !is_held(run)).min_by_key(|run| (!run.request.job.is_on_time(), run.no));
    let Some(no) = first.map(|run| run.no) else { return Ok(None) };
    begin_run(&tx, no, now)?;
    let run = load_run(&tx, no)?;
    tx.commit()?;
    Ok(Some(run))
}

fn begin_run(conn: &Connection, no: RunNo, now: Millis) -> Result<(), StoreError> {
    conn.execute(runs::RUNS_BEGIN, (no, signed(now)))?;
    Ok(())
}

/// Marks active runs as interrupted: the caller holds the lock for jobs, so that their processes have ended. A run that
/// was started too often is marked as failed.
fn settle_runs(conn: &Connection, now: Millis) -> Result<(), StoreError> {
    const WHY: &str = "its process ended each time: check the log of that time and the machine's memory";
    conn.execute(runs::RUNS_END_INTERRUPTED, (signed(now), STARTS, WHY))?;
    Ok(())
}

/// Whether another run of the same job began after this one.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn is_behind(conn: &Connection, run: &JobRun) -> Result<bool, StoreError> {
    let RunRequest { job, tenant, .. } = run.request;
    Ok(conn.prepare_cached(runs::RUNS_ANY_LATER)?.exists((job.name(), tenant.map(|no| no.0), run.no))?)
}

/// Stores the position from which a run continues and its report so far, in the transaction that did the work.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn save_cursor(tx: &Connection, no: RunNo, cursor: i64, report: &Value) -> Result<(), StoreError> {
    tx.prepare_cached(runs::RUNS_SET_CURSOR)?.execute((no, cursor, report.to_string()))?;
    Ok(())
}

/// Stores the progress of a run.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn note_progress(conn: &Connection, no: RunNo, done: u64, all: u64) -> Result<(), StoreError> {
    conn.prepare_cached(runs::RUNS_SET_PROGRESS)?.execute((no, signed(done), signed(all)))?;
    Ok(())
}

/// Ends a run and deletes the oldest runs of its kind. The stored report remains if `report` is `None`.
///
/// # Errors
/// [`StoreError::Sqlite`]; nothing was stored.
pub fn end_run(
    conn: &mut Connection,
    no: RunNo,
    outcome: RunOutcome,
    report: Option<&Value>,
    now: Millis,
) -> Result<JobRun, StoreError> {
    let text = report.map(|report| match report.to_string() {
        long if long.len() > REPORT_BYTES => {
            json!({"error": "the report is too long", "bytes": long.len()}).to_string()
        }
        text => text,
    });
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute(runs::RUNS_END, (no, signed(now), outcome.name(), text))?;
    let run = load_run(&tx, no)?;
    let RunRequest { job, tenant, dry_run, .. } = run.request;
    tx.execute(runs::RUNS_DELETE_OLD, (job.name(), tenant.map(|no| no.0), dry_run, KEPT))?;
    tx.commit()?;
    Ok(run)
}

/// The newest run of a job that began, without dry runs.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn last_run(conn: &Connection, job: JobKind, tenant: Option<TenantNo>) -> Result<Option<LastRun>, StoreError> {
    let last = read(conn, runs::RUNS_LAST_STARTED, (job.name(), tenant.map(|no| no.0)))?.pop();
    Ok(last.map(|run| LastRun { started: run.since(), ended: run.ended.unwrap_or(run.since()), outcome: run.outcome }))
}

/// Updates the metrics of each job: the duration of its last run, the end of its last successful run, and the progress
/// of the active one. Dry runs count only as active.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn measure_runs(conn: &Connection, metrics: &Metrics) -> Result<(), StoreError> {
    for name in JobKind::names() {
        let label = [("job", name)];
        let took: Option<i64> =
            conn.prepare_cached(runs::RUNS_LAST_DURATION)?.query_row([name], |row| row.get(0)).optional()?;
        metrics.jobs.duration.get_or_create(&label).set(seconds(unsigned(took.unwrap_or(0))));
        let success =
            conn.prepare_cached(runs::RUNS_LAST_SUCCESS)?.query_row([name], |row| row.get(0).map(unsigned))?;
        metrics.jobs.last_success.get_or_create(&label).set(seconds(success));
        let now = conn
            .prepare_cached(runs::RUNS_PROGRESS_OF_ACTIVE)?
            .query_row([name], |row| Ok([row.get(0)?, row.get(1)?].map(unsigned)));
        let [done, all] = now.optional()?.unwrap_or_default();
        metrics.jobs.done.get_or_create(&label).set(done);
        metrics.jobs.all.get_or_create(&label).set(all);
    }
    let newest = read(conn, runs::RUNS_LAST_VERIFY, [])?.pop();
    let verified = newest.and_then(|run| VerifyReport::deserialize(&run.report).ok()).unwrap_or_default();
    for (found, keys) in FOUND.into_iter().zip(verified.found()) {
        metrics.jobs.verified.get_or_create(&[("found", found)]).set(keys);
    }
    Ok(())
}
