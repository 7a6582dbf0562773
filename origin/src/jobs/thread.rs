//! A serving origin's thread for jobs. It sleeps until a timer is due or somebody calls, and runs what waits, one after
//! the other; what may take hours gives way to audiences and sends that are due. A command that runs a job meanwhile goes first.

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
use super::{Next, Timer, When, next};
use crate::audience::{Audience, materialized, send};
use crate::base::clock;
use crate::base::job_kinds::{JobIntervals, JobKind, RunOutcome, Trigger};
use crate::base::metrics::Metrics;
use crate::campaigns::train;
use crate::ingest::backlog::Backlog;
use crate::store::write_txn::TxnRules;
use crate::store::{self, StoreError};

/// How long it sleeps at most, and after a failure: by then a run that ended with its process is found.
const LOOK: Duration = Duration::from_secs(30);
/// How far the thread stands behind all others, in steps of Unix's nice.
const BEHIND: i32 = 10;
/// How long while a command runs a job, or writes for long.
pub const BUSY: Duration = Duration::from_secs(2);
/// How long a run goes on at least before it gives way to what is due.
const TURN: Duration = Duration::from_secs(20);
/// How often it looks then.
const LOOKED: Duration = Duration::from_secs(1);

/// The way to the thread. It ends when it is told to.
#[derive(Debug, Clone)]
pub struct JobScheduler(Arc<SchedulerState>);

#[derive(Debug)]
struct SchedulerState {
    notes: Mutex<Connection>,
    stopping: AtomicBool,
    wake: SyncSender<()>,
}

impl JobScheduler {
    /// Starts the thread over the store in `data`.
    ///
    /// # Errors
    /// [`StoreError`], or when the operating system gives no thread.
    pub fn start(
        data: &Path,
        rules: Arc<TxnRules>,
        metrics: Arc<Metrics>,
        backlog: Backlog,
        audience: Audience,
        every: JobIntervals,
    ) -> Result<(Self, JoinHandle<()>), StoreError> {
        let (wake, wakes) = sync_channel(1);
        let notes = Mutex::new(store::open(data)?);
        let jobs = Self(Arc::new(SchedulerState { notes, stopping: AtomicBool::new(false), wake }));
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
        let spawned = std::thread::Builder::new().name("jobs".to_owned()).spawn(move || thread.live(&wakes));
        let thread = spawned.map_err(|source| StoreError::Directory { path: data.to_owned(), source })?;
        Ok((jobs, thread))
    }

    /// Asks for a run, and gives it; or as an error the one of the same job that waits or is under way. Blocks for as long
    /// as another writes.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing was asked for.
    pub fn ask(&self, asked: RunRequest, now: Millis) -> Result<Result<JobRun, JobRun>, StoreError> {
        let answer = runs::request_run(&mut self.0.notes.lock().unwrap_or_else(PoisonError::into_inner), asked, now);
        self.wake();
        answer
    }

    /// Ends the run under way between two of its transactions, and the thread.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether it was told to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Relaxed)
    }

    /// Has the thread look at once for what is to be run.
    pub fn wake(&self) {
        // A full channel wakes it too.
        self.0.wake.try_send(()).unwrap_or_default();
    }
}

struct JobThread {
    data: PathBuf,
    conn: Connection,
    jobs: JobScheduler,
    rules: Arc<TxnRules>,
    metrics: Arc<Metrics>,
    backlog: Backlog,
    audience: Audience,
    every: JobIntervals,
    turn: Duration,
    /// What goes by age waits for a sync, and the log was told so.
    held: bool,
}

impl JobThread {
    fn live(&mut self, wakes: &Receiver<()>) {
        // Of this thread alone, where the operating system has it so: who waits for an answer goes first.
        if let Err(e) = rustix::process::nice(BEHIND) {
            tracing::warn!(error = %e, "jobs run at the same priority as everything else");
        }
        while !self.jobs.is_stopping() {
            let sleep = self.look().unwrap_or_else(|e| {
                tracing::error!(error = %crate::base::error_chain(&e), "the jobs' runs cannot be kept");
                LOOK
            });
            wakes.recv_timeout(sleep).unwrap_or_default();
        }
    }

    /// Runs all that waits or is due; gives how long nothing else will be.
    fn look(&mut self) -> Result<Duration, StoreError> {
        let _alone = match store::lock_job(&self.data) {
            Ok(lock) => lock,
            Err(StoreError::Job(_)) => return Ok(BUSY),
            Err(e) => return Err(e),
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
            match next(&self.timers(vouched)?, now) {
                Next::Due(job, tenant) => {
                    let asked = RunRequest { job, tenant, woken: Trigger::Timer, dry_run: false };
                    // One that waits already is begun next.
                    drop(runs::request_run(&mut self.conn, asked, now)?);
                }
                Next::At(at) => return Ok(LOOK.min(Duration::from_millis(at - now))),
                Next::Never => break,
            }
        }
        Ok(LOOK)
    }

    /// Whether a sync vouches for the date. Said once, where one came before and none does any longer.
    fn vouched(&mut self, now: Millis) -> Option<bool> {
        let vouched = self.metrics.vouches(now);
        let held = vouched == Some(false);
        if held && !self.held {
            tracing::warn!(
                now,
                last = self.metrics.dated_ms.get(),
                "no sync vouches for the clock's date: trim, retention, rollup and send wait, unless given by hand"
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
                timers.push(Timer { job, tenant, when: When::Every(self.every.of(job)), last });
            }
        }
        Ok(timers)
    }

    /// Takes it to its end; whether it was cut by another that writes to the store.
    fn run(&mut self, run: &JobRun) -> Result<bool, StoreError> {
        let (of, next) = (run.asked.job, AtomicU64::new(millis(self.turn)));
        let turn = RunTurn { of, begun: Instant::now(), next, first: OnceLock::new() };
        let to_the_end = AtomicBool::new(!run.asked.job.keeps_its_place() || run.asked.dry_run);
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
            given: &crate::store::write_txn::draw_inputs,
            pause: &|| std::thread::sleep(crate::jobs::context::PAUSE),
            wait: &std::thread::sleep,
            elapsed: &|| turn.begun.elapsed(),
            told: &|_, _| Ok(()),
            to_the_end: &to_the_end,
        };
        let ended = JobRunner { place, notes: &self.jobs.0.notes, stop: &stop }.run(run)?;
        let (job, outcome) = (run.asked.job.name(), ended.outcome.map(RunOutcome::name));
        match (ended.outcome, turn.first.get()) {
            (Some(RunOutcome::Failed), _) => {
                tracing::error!(run = run.no, job, error = %ended.report["error"], "a job failed");
            }
            (Some(RunOutcome::Interrupted), Some(first)) => {
                tracing::info!(run = run.no, job, to = first.name(), "a job gives way");
                let asked = RunRequest { job: *first, tenant: None, woken: Trigger::Timer, dry_run: false };
                drop(runs::request_run(&mut self.conn, asked, clock::now())?);
            }
            _ => tracing::info!(run = run.no, job, outcome, "a job ended"),
        }
        let gave_way = turn.first.get().is_some() || self.jobs.is_stopping();
        Ok(ended.outcome == Some(RunOutcome::Interrupted) && !gave_way)
    }
}

/// The timers of what is due when somebody set it.
fn on_time(conn: &Connection, vouched: Option<bool>, now: Millis) -> Result<Vec<Timer>, StoreError> {
    let timer = |job, due| Ok(Timer { job, tenant: None, when: When::At(due), last: runs::last_run(conn, job, None)? });
    [(JobKind::Materialise, materialized::next_due(conn, now)?), (JobKind::Send, send::next_due(conn, now)?)]
        .into_iter()
        .filter(|(job, _)| !job.is_held(vouched))
        .map(|(job, due)| timer(job, due))
        .collect()
}

/// How long a run goes on, and what it gives way to.
struct RunTurn {
    /// Which it gives no way to: what is due of it is its own work.
    of: JobKind,
    begun: Instant,
    /// When it looks next, in milliseconds since it began.
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
        // What cannot be read here the run that waits tells.
        let mut timers: Vec<Timer> =
            on_time(&notes.lock().unwrap_or_else(PoisonError::into_inner), vouched(), now).unwrap_or_default();
        timers.retain(|timer| timer.job != self.of);
        if let Next::Due(job, _) = next(&timers, now) {
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
