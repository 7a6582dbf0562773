//! The runs of jobs as the store has them.

use causeway_shared::base::ids::Millis;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::Last;
use crate::base::integers::{signed, unsigned};
use crate::base::job_kinds::{JobKind, RunOutcome, Trigger};
use crate::base::metrics::Metrics;
use crate::kv::verify::VerifyReport;
use crate::store::tenants::Tenants;
use crate::store::{StoreError, TenantNo};

/// Runs kept of a job, the newest: so many that changed something, and as many that were dry; of each tenant, where a job is
/// by tenant.
const KEPT: i64 = 100;
/// Runs on one page.
pub const PAGE: usize = 1_000;
/// Longest report, in bytes as JSON. A job keeps its lists short.
const REPORT_BYTES: usize = 64 * 1_024;
/// A run that was begun so often and never ended in order is given up: it may be what ends the process.
const STARTS: u32 = 3;

const COLUMNS: &str =
    "run, job, tenant, woken, dry_run, asked, started, ended, done, total, cursor, outcome, report, starts";
/// That goes on by itself when nobody runs it: a training and a dry run begin anew where they are wanted, a command is
/// given again by whoever gave it.
const WAITS: &str = "(outcome IS NULL AND started IS NULL
    OR outcome = 'interrupted' AND dry_run = 0 AND job <> 'train') AND woken <> 'command'";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRequest {
    /// The job.
    pub job: JobKind,
    /// Whose, of a job by tenant.
    pub tenant: Option<TenantNo>,
    /// What woke it.
    pub woken: Trigger,
    /// Whether it is only to say what it would do.
    pub dry_run: bool,
}

/// A run of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRun {
    /// Its number.
    pub no: i64,
    /// What was asked for.
    pub asked: RunRequest,
    /// When.
    pub asked_at: Millis,
    /// When it began; `None` while it waits.
    pub started: Option<Millis>,
    /// When it ended.
    pub ended: Option<Millis>,
    /// What is done.
    pub done: u64,
    /// Of how much.
    pub all: u64,
    /// From where it goes on.
    pub cursor: i64,
    /// How it ended.
    pub outcome: Option<RunOutcome>,
    /// What it came to, or would; so far.
    pub report: Value,
    starts: u32,
}

impl JobRun {
    /// As callers and commands are told.
    #[must_use]
    pub fn told(&self, tenants: &Tenants) -> Value {
        let RunRequest { job, tenant, woken, dry_run } = self.asked;
        let tenant = tenant.and_then(|no| tenants.by_no(no).ok()).map(|known| known.config.name.clone());
        json!({
            "run": self.no, "job": job.name(), "tenant": tenant, "woken": woken.name(), "dry_run": dry_run,
            "asked_ms": self.asked_at, "started_ms": self.started, "ended_ms": self.ended,
            "done": self.done, "all": self.all, "outcome": self.outcome.map(RunOutcome::name), "report": self.report,
        })
    }

    /// When it began, or was asked for.
    #[must_use]
    pub fn since(&self) -> Millis {
        self.started.unwrap_or(self.asked_at)
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let bad = |column| rusqlite::Error::InvalidColumnType(column, String::new(), Type::Text);
        let name = |column| row.get::<_, String>(column);
        let (job, woken) = (name(1)?, name(3)?);
        let outcome = |name: String| RunOutcome::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| bad(11));
        let asked = RunRequest {
            job: JobKind::named(&job).ok_or_else(|| bad(1))?,
            tenant: row.get::<_, Option<i64>>(2)?.map(TenantNo),
            woken: Trigger::ALL.into_iter().find(|one| one.name() == woken).ok_or_else(|| bad(3))?,
            dry_run: row.get(4)?,
        };
        Ok(Self {
            no: row.get(0)?,
            asked,
            asked_at: unsigned(row.get(5)?),
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

/// The runs that `rest` of a statement finds.
fn read(conn: &Connection, rest: &str, values: impl rusqlite::Params) -> Result<Vec<JobRun>, StoreError> {
    let mut statement = conn.prepare(&format!("SELECT {COLUMNS} FROM runs {rest}"))?;
    let rows = statement.query_map(values, JobRun::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A run by its number.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn find_run(conn: &Connection, no: i64) -> Result<Option<JobRun>, StoreError> {
    Ok(read(conn, "WHERE run = ?1", [no])?.pop())
}

fn load_run(conn: &Connection, no: i64) -> Result<JobRun, StoreError> {
    find_run(conn, no)?.ok_or(StoreError::Corrupt { what: "run" })
}

/// The newest runs, of one job or of all, up to [`PAGE`].
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn list_runs(conn: &Connection, job: Option<JobKind>, limit: usize) -> Result<Vec<JobRun>, StoreError> {
    let limit = signed(limit.min(PAGE) as u64);
    match job {
        Some(job) => read(conn, "WHERE job = ?1 ORDER BY run DESC LIMIT ?2", (job.name(), limit)),
        None => read(conn, "ORDER BY run DESC LIMIT ?1", [limit]),
    }
}

/// Notes what is asked for, and gives the run, be it one that waited as a timer's; or as an error the one of the same job that
/// somebody asked for before or that is under way. A dry run does nothing of what is asked for, and a run that does it waits
/// beside it.
///
/// # Errors
/// [`StoreError::Sqlite`]; then nothing was kept.
pub fn request_run(
    conn: &mut Connection,
    asked: RunRequest,
    now: Millis,
) -> Result<Result<JobRun, JobRun>, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let open = format!(
        "WHERE job = ?1 AND tenant IS ?2 AND dry_run <= ?3 AND (outcome IS NULL OR {WAITS}) ORDER BY run DESC LIMIT 1"
    );
    if let Some(open) = read(&tx, &open, (asked.job.name(), asked.tenant.map(|no| no.0), asked.dry_run))?.pop() {
        // What a timer holds back for a date goes ahead once somebody asks for it.
        let takes = format!("UPDATE runs SET woken = ?2 WHERE run = ?1 AND woken = 'timer' AND {WAITS}");
        let by_hand = !asked.dry_run && asked.woken != Trigger::Timer;
        if by_hand && tx.execute(&takes, (open.no, asked.woken.name()))? == 1 {
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

fn insert(conn: &Connection, asked: RunRequest, now: Millis) -> Result<i64, StoreError> {
    const PUT: &str = "INSERT INTO runs (job, tenant, woken, dry_run, asked) VALUES (?1, ?2, ?3, ?4, ?5)";
    let RunRequest { job, tenant, woken, dry_run } = asked;
    conn.execute(PUT, (job.name(), tenant.map(|no| no.0), woken.name(), dry_run, signed(now)))?;
    Ok(conn.last_insert_rowid())
}

/// Begins what a command asks for: the run of before goes on where it was cut. The caller holds the job's lock.
///
/// # Errors
/// [`StoreError::Sqlite`]; then nothing was kept.
pub fn begin_asked(conn: &mut Connection, asked: RunRequest, now: Millis) -> Result<JobRun, StoreError> {
    // One that another came behind does not go on: what it had done is not as it left it.
    const CUT: &str = "WHERE outcome = 'interrupted' AND ?3 = 0 AND job <> 'train' AND run = (SELECT max(run) FROM runs
        WHERE job = ?1 AND tenant IS ?2 AND dry_run = 0 AND started IS NOT NULL)";
    settle_runs(conn, now)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let cut = read(&tx, CUT, (asked.job.name(), asked.tenant.map(|no| no.0), asked.dry_run))?.pop();
    let no = cut.map_or_else(|| insert(&tx, asked, now), |cut| Ok(cut.no))?;
    begin_run(&tx, no, now)?;
    let run = load_run(&tx, no)?;
    tx.commit()?;
    Ok(run)
}

/// Begins the run that waits longest, if one does, of those on time before all others; none of a timer that is held. The caller
/// holds the job's lock.
///
/// # Errors
/// [`StoreError::Sqlite`]; then nothing was kept.
pub fn begin_waiting(conn: &mut Connection, now: Millis, vouched: Option<bool>) -> Result<Option<JobRun>, StoreError> {
    settle_runs(conn, now)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let waits = read(&tx, &format!("WHERE {WAITS}"), [])?;
    let is_held = |run: &JobRun| run.asked.woken == Trigger::Timer && run.asked.job.is_held(vouched);
    let first = waits.iter().filter(|run| !is_held(run)).min_by_key(|run| (!run.asked.job.is_on_time(), run.no));
    let Some(no) = first.map(|run| run.no) else { return Ok(None) };
    begin_run(&tx, no, now)?;
    let run = load_run(&tx, no)?;
    tx.commit()?;
    Ok(Some(run))
}

fn begin_run(conn: &Connection, no: i64, now: Millis) -> Result<(), StoreError> {
    const BEGIN: &str =
        "UPDATE runs SET started = ifnull(started, ?2), starts = starts + 1, ended = NULL, outcome = NULL
        WHERE run = ?1";
    conn.execute(BEGIN, [no, signed(now)])?;
    Ok(())
}

/// Nobody runs what has no outcome while the caller holds the job's lock: its process ended. What was begun too often is
/// given up.
fn settle_runs(conn: &Connection, now: Millis) -> Result<(), StoreError> {
    const CUT: &str = "UPDATE runs SET ended = ?1, outcome = iif(starts >= ?2, 'failed', 'interrupted'),
            report = iif(starts >= ?2, json_set(report, '$.error', ?3), report)
        WHERE outcome IS NULL AND started IS NOT NULL";
    const WHY: &str = "its process ended each time: look at the log of then, and at the machine's memory";
    conn.execute(CUT, (signed(now), STARTS, WHY))?;
    Ok(())
}

/// Whether another run of the same job began after it.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn is_behind(conn: &Connection, run: &JobRun) -> Result<bool, StoreError> {
    const LATER: &str = "SELECT 1 FROM runs WHERE job = ?1 AND tenant IS ?2 AND run > ?3 AND started IS NOT NULL";
    let RunRequest { job, tenant, .. } = run.asked;
    Ok(conn.prepare_cached(LATER)?.exists((job.name(), tenant.map(|no| no.0), run.no))?)
}

/// Says from where a run goes on, and what it came to so far: within the transaction that took it there.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn save_cursor(tx: &Connection, no: i64, cursor: i64, report: &Value) -> Result<(), StoreError> {
    const KEEP: &str = "UPDATE runs SET cursor = ?2, report = ?3 WHERE run = ?1";
    tx.prepare_cached(KEEP)?.execute((no, cursor, report.to_string()))?;
    Ok(())
}

/// Says how far a run is.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn note_progress(conn: &Connection, no: i64, done: u64, all: u64) -> Result<(), StoreError> {
    const NOTE: &str = "UPDATE runs SET done = ?2, total = ?3 WHERE run = ?1";
    conn.prepare_cached(NOTE)?.execute([no, signed(done), signed(all)])?;
    Ok(())
}

/// Ends a run, and lets go of the oldest of its kind. `report` is kept as it is where none is given.
///
/// # Errors
/// [`StoreError::Sqlite`]; then nothing was kept.
pub fn end_run(
    conn: &mut Connection,
    no: i64,
    outcome: RunOutcome,
    report: Option<&Value>,
    now: Millis,
) -> Result<JobRun, StoreError> {
    const END: &str = "UPDATE runs SET ended = ?2, outcome = ?3, report = ifnull(?4, report), starts = 0,
            done = iif(?3 = 'done', total, done) WHERE run = ?1";
    const OLD: &str = "DELETE FROM runs WHERE outcome IS NOT NULL AND job = ?1 AND tenant IS ?2 AND dry_run = ?3
        AND run <= (SELECT run FROM runs WHERE job = ?1 AND tenant IS ?2 AND dry_run = ?3
            ORDER BY run DESC LIMIT 1 OFFSET ?4)";
    let text = report.map(|report| match report.to_string() {
        long if long.len() > REPORT_BYTES => {
            json!({"error": "the report is too long", "bytes": long.len()}).to_string()
        }
        text => text,
    });
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute(END, (no, signed(now), outcome.name(), text))?;
    let run = load_run(&tx, no)?;
    let RunRequest { job, tenant, dry_run, .. } = run.asked;
    tx.execute(OLD, (job.name(), tenant.map(|no| no.0), dry_run, KEPT))?;
    tx.commit()?;
    Ok(run)
}

/// The newest run of a job that was to change something, and began.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn last_run(conn: &Connection, job: JobKind, tenant: Option<TenantNo>) -> Result<Option<Last>, StoreError> {
    const LAST: &str =
        "WHERE job = ?1 AND tenant IS ?2 AND dry_run = 0 AND started IS NOT NULL ORDER BY run DESC LIMIT 1";
    let last = read(conn, LAST, (job.name(), tenant.map(|no| no.0)))?.pop();
    Ok(last.map(|run| Last { started: run.since(), ended: run.ended.unwrap_or(run.since()), outcome: run.outcome }))
}

/// Tells the metrics of each job how long its last run took, when it last ended well, and how far the one under way is; dry
/// runs apart.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn measure_runs(conn: &Connection, metrics: &Metrics) -> Result<(), StoreError> {
    const ENDED: &str = "SELECT ended - started FROM runs
        WHERE job = ?1 AND dry_run = 0 AND outcome IS NOT NULL AND started IS NOT NULL ORDER BY run DESC LIMIT 1";
    // The newest, not the latest: one of a clock that was ahead would stay that for long.
    const WELL: &str = "SELECT ifnull((SELECT ended FROM runs WHERE job = ?1 AND dry_run = 0 AND outcome = 'done'
        ORDER BY run DESC LIMIT 1), 0)";
    const NOW: &str = "SELECT done, total FROM runs WHERE job = ?1 AND outcome IS NULL AND started IS NOT NULL
        ORDER BY run DESC LIMIT 1";
    for (job, gauges) in JobKind::ALL.into_iter().zip(&metrics.jobs) {
        let name = job.name();
        let took: Option<i64> = conn.prepare_cached(ENDED)?.query_row([name], |row| row.get(0)).optional()?;
        gauges.last_ms.set(unsigned(took.unwrap_or(0)));
        gauges.well_ms.set(conn.prepare_cached(WELL)?.query_row([name], |row| row.get(0).map(unsigned))?);
        let now = conn.prepare_cached(NOW)?.query_row([name], |row| Ok([row.get(0)?, row.get(1)?].map(unsigned)));
        let [done, all] = now.optional()?.unwrap_or_default();
        gauges.done.set(done);
        gauges.all.set(all);
    }
    let newest = read(conn, "WHERE job = 'verify' AND started IS NOT NULL ORDER BY run DESC LIMIT 1", [])?.pop();
    let verified = newest.and_then(|run| VerifyReport::deserialize(&run.report).ok()).unwrap_or_default();
    metrics.verified.iter().zip(verified.found()).for_each(|(gauge, keys)| gauge.set(keys));
    Ok(())
}
