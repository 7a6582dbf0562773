//! The jobs thread of a serving origin. It sleeps until a timer is due or a request arrives, and executes waiting runs
//! one after the other. A long run is pre-empted by audiences and sends that are due. A command that runs a job takes
//! precedence.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_shared::base::ids::Millis;
use rusqlite::Connection;

use super::context::JobContext;
use super::runner::JobRunner;
use super::runs::{self, JobRun, RunRequest};
use super::{NextDue, Timer, TimerCondition, next_due_job};
use crate::audience::{Audience, materialized, send};
use crate::base::clock;
use crate::base::job_kinds::{JobIntervals, JobKind, RunOutcome, Trigger};
use crate::base::metrics::Metrics;
use crate::campaigns::train;
use crate::ingest::backlog::Backlog;
use crate::ingest::start_error::{StartError, spawn_thread};
use crate::store::write_txn::TxnRules;
use crate::store::{self, LockError, StoreError};

/// Longest sleep, also after a failure. A run whose process ended is found within this time.
const LOOK: Duration = Duration::from_secs(30);
/// Priority of the thread below all others, in steps of Unix's nice.
const BEHIND: i32 = 10;
/// Pause while a command runs a job or another connection writes for long.
pub const BUSY: Duration = Duration::from_secs(2);
/// Least time that a run is active before it is pre-empted.
const TURN: Duration = Duration::from_secs(20);
/// Interval at which an active run then checks for due work.
const LOOKED: Duration = Duration::from_secs(1);

/// Handle to the jobs thread. Clones refer to the same thread.
#[derive(Debug, Clone)]
pub struct JobsHandle(Arc<HandleState>);

#[derive(Debug)]
struct HandleState {
    notes: Mutex<Connection>,
    stopping: AtomicBool,
    wake: SyncSender<()>,
}

impl JobsHandle {
    /// Starts the thread over the store in `data`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        data: &Path,
        rules: Arc<TxnRules>,
        metrics: Arc<Metrics>,
        backlog: Backlog,
        audience: Audience,
        every: JobIntervals,
    ) -> Result<(Self, JoinHandle<()>), StartError> {
        let (wake, wakes) = sync_channel(1);
        let notes = Mutex::new(store::open(data)?);
        let jobs = Self(Arc::new(HandleState { notes, stopping: AtomicBool::new(false), wake }));
        let conn = store::open(data)?;
        let mut thread = JobThread {
            data: data.to_owned(),
            conn,
            jobs: jobs.clone(),
            rules,
            metrics,
            backlog,
            audience,
            every,
            turn: TURN,
            held: false,
        };
        let thread = spawn_thread("jobs", move || thread.live(&wakes))?;
        Ok((jobs, thread))
    }

    /// Requests a run and returns it. The inner error is the waiting or active run of the same job. Blocks while
    /// another connection writes.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was requested.
    pub fn ask(&self, request: RunRequest, now: Millis) -> Result<Result<JobRun, JobRun>, StoreError> {
        let answer = runs::request_run(&mut self.0.notes.lock().unwrap_or_else(PoisonError::into_inner), request, now);
        self.wake();
        answer
    }

    /// Interrupts the active run between two of its transactions, and ends the thread.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether the thread must end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Relaxed)
    }

    /// Makes the thread look for work at once.
    pub fn wake(&self) {
        // A full channel already triggers the thread.
        self.0.wake.try_send(()).unwrap_or_default();
    }
}

struct JobThread {
    data: PathBuf,
    conn: Connection,
    jobs: JobsHandle,
    rules: Arc<TxnRules>,
    metrics: Arc<Metrics>,
    backlog: Backlog,
    audience: Audience,
    every: JobIntervals,
    turn: Duration,
    /// Whether jobs that delete by age are held until a sync, and the log has reported it.
    held: bool,
}

impl JobThread {
    fn live(&mut self, wakes: &Receiver<()>) {
        // The priority is that of this thread alone, where the operating system supports it. Requests come first.
        if let Err(e) = rustix::process::nice(BEHIND) {
            tracing::warn!(error = %e, "jobs run at the same priority as everything else");
        }
        while !self.jobs.is_stopping() {
            let sleep = self.run_due_jobs().unwrap_or_else(|e| {
                tracing::error!(error = %crate::base::error_chain(e.as_ref()), "runs of jobs cannot be stored");
                LOOK
            });
            wakes.recv_timeout(sleep).unwrap_or_default();
        }
    }

    /// Executes everything that waits or is due. Returns the time until the next work.
    fn run_due_jobs(&mut self) -> anyhow::Result<Duration> {
        let _alone = match store::lock_job(&self.data) {
            Ok(lock) => lock,
            Err(LockError::Job(_)) => return Ok(BUSY),
            Err(e) => return Err(e.into()),
        };
        while !self.jobs.is_stopping() {
            let now = clock::now();
            let vouched = self.vouched(now);
            if let Some(run) = runs::begin_waiting(&mut self.conn, now, vouched)? {
                if self.run(&run)? {
                    return Ok(BUSY);
                }
                continue;
            }
            match next_due_job(&self.timers(vouched)?, now) {
                NextDue::Due(job, tenant) => {
                    let request = RunRequest { job, tenant, trigger: Trigger::Timer, dry_run: false };
                    // An already waiting run is begun next.
                    drop(runs::request_run(&mut self.conn, request, now)?);
                }
                NextDue::At(at) => return Ok(LOOK.min(Duration::from_millis(at - now))),
                NextDue::Never => break,
            }
        }
        Ok(LOOK)
    }

    /// Whether a sync confirms the date. Logged once when the confirmation ends.
    fn vouched(&mut self, now: Millis) -> Option<bool> {
        let vouched = self.metrics.vouches(now);
        let held = vouched == Some(false);
        if held && !self.held {
            tracing::warn!(
                now,
                last = self.metrics.dated_ms.get(),
                "no sync vouches for the clock's date: trim, retention, rollup and send wait unless started by hand"
            );
        }
        self.held = held;
        vouched
    }

    fn timers(&self, vouched: Option<bool>) -> Result<Vec<Timer>, StoreError> {
        let mut timers = on_time(&self.conn, vouched, clock::now())?;
        for job in JobKind::ALL.into_iter().filter(|job| !job.is_on_time() && !job.is_held(vouched)) {
            let all = job.is_by_tenant().then(|| self.rules.tenants.iter().map(|known| Some(known.no)).collect());
            for tenant in all.unwrap_or_else(|| vec![None]) {
                let last = runs::last_run(&self.conn, job, tenant)?;
                timers.push(Timer { job, tenant, when: TimerCondition::Every(self.every.of(job)), last });
            }
        }
        Ok(timers)
    }

    /// Executes a run. Returns whether it was interrupted because another connection wrote for too long.
    fn run(&mut self, run: &JobRun) -> Result<bool, StoreError> {
        let (of, next) = (run.request.job, AtomicU64::new(millis(self.turn)));
        let turn = RunTurn { of, begun: Instant::now(), next, first: OnceLock::new() };
        let to_the_end = AtomicBool::new(!run.request.job.is_resumable() || run.request.dry_run);
        let stop = || {
            let vouched = || self.metrics.vouches(clock::now());
            self.jobs.is_stopping() || !to_the_end.load(Ordering::Relaxed) && turn.is_over(&self.jobs.0.notes, vouched)
        };
        let place = JobContext {
            data: &self.data,
            hands_out: true,
            conn: &mut self.conn,
            rules: &self.rules,
            metrics: &self.metrics,
            backlog: &|| Ok(self.backlog.clone()),
            audience: &|| Ok(self.audience.clone()),
            training: &train::Options::default(),
            draw_inputs: &crate::store::write_txn::draw_inputs,
            pause: &|| std::thread::sleep(crate::jobs::context::PAUSE),
            wait: &std::thread::sleep,
            elapsed: &|| turn.begun.elapsed(),
            report_progress: &|_, _| Ok(()),
            non_preemptible: &to_the_end,
        };
        let ended = JobRunner { context: place, notes: &self.jobs.0.notes, stop: &stop }.run(run)?;
        let (job, outcome) = (run.request.job.name(), ended.outcome.map(RunOutcome::name));
        match (ended.outcome, turn.first.get()) {
            (Some(RunOutcome::Failed), _) => {
                tracing::error!(run = run.no.number(), job, error = %ended.report["error"], "a job failed");
            }
            (Some(RunOutcome::Interrupted), Some(first)) => {
                tracing::info!(run = run.no.number(), job, to = first.name(), "a job gives way");
                let request = RunRequest { job: *first, tenant: None, trigger: Trigger::Timer, dry_run: false };
                drop(runs::request_run(&mut self.conn, request, clock::now())?);
            }
            _ => tracing::info!(run = run.no.number(), job, outcome, "a job ended"),
        }
        let gave_way = turn.first.get().is_some() || self.jobs.is_stopping();
        Ok(ended.outcome == Some(RunOutcome::Interrupted) && !gave_way)
    }
}

/// Timers of jobs whose due time is set by users.
fn on_time(conn: &Connection, vouched: Option<bool>, now: Millis) -> Result<Vec<Timer>, StoreError> {
    let timer = |job, due| {
        Ok(Timer { job, tenant: None, when: TimerCondition::At(due), last: runs::last_run(conn, job, None)? })
    };
    [(JobKind::Materialise, materialized::next_due(conn, now)?), (JobKind::Send, send::next_due(conn, now)?)]
        .into_iter()
        .filter(|(job, _)| !job.is_held(vouched))
        .map(|(job, due)| timer(job, due))
        .collect()
}

/// Length of a run, and the job that pre-empts it.
struct RunTurn {
    /// The run's own job, which does not pre-empt it: the run itself does that work.
    of: JobKind,
    begun: Instant,
    /// Time of the next check, in milliseconds since the run began.
    next: AtomicU64,
    first: OnceLock<JobKind>,
}

impl RunTurn {
    fn is_over(&self, notes: &Mutex<Connection>, vouched: impl Fn() -> Option<bool>) -> bool {
        let since = millis(self.begun.elapsed());
        if since < self.next.load(Ordering::Relaxed) {
            return self.first.get().is_some();
        }
        self.next.store(since + millis(LOOKED), Ordering::Relaxed);
        let now = clock::now();
        // The next run reports a store that cannot be read.
        let mut timers: Vec<Timer> =
            on_time(&notes.lock().unwrap_or_else(PoisonError::into_inner), vouched(), now).unwrap_or_default();
        timers.retain(|timer| timer.job != self.of);
        if let NextDue::Due(job, _) = next_due_job(&timers, now) {
            self.first.get_or_init(|| job);
        }
        self.first.get().is_some()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "tests/dated.rs"]
mod tests;
