//! A serving origin's thread for jobs. It sleeps until a timer is due or somebody calls, and runs what waits, one after
//! the other. A command that runs a job meanwhile goes first.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_shared::ids::Millis;
use rusqlite::Connection;

use super::runner::Runner;
use super::runs::{self, Asked, Run};
use super::work::{self, Place};
use super::{Every, Job, Next, Outcome, Timer, When, Woken, next};
use crate::audience::{Audience, kept, send};
use crate::backlog::Backlog;
use crate::clock;
use crate::group::Rules;
use crate::metrics::Metrics;
use crate::store::{self, StoreError};
use crate::train;

/// How long it sleeps at most, and after a failure: by then a run that ended with its process is found.
const LOOK: Duration = Duration::from_secs(30);
/// How far the thread stands behind all others, in steps of Unix's nice.
const BEHIND: i32 = 10;
/// How long while a command runs a job.
pub const BUSY: Duration = Duration::from_secs(2);

/// The way to the thread. It ends when it is told to.
#[derive(Debug, Clone)]
pub struct Jobs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    notes: Mutex<Connection>,
    stopping: AtomicBool,
    wake: SyncSender<()>,
}

impl Jobs {
    /// Starts the thread over the store in `data`.
    ///
    /// # Errors
    /// [`StoreError`], or when the operating system gives no thread.
    pub fn start(
        data: &Path,
        rules: Arc<Rules>,
        metrics: Arc<Metrics>,
        backlog: Backlog,
        audience: Audience,
        every: Every,
    ) -> Result<(Self, JoinHandle<()>), StoreError> {
        let (wake, wakes) = sync_channel(1);
        let notes = Mutex::new(store::open(data)?);
        let jobs = Self(Arc::new(Shared { notes, stopping: AtomicBool::new(false), wake }));
        let conn = store::open(data)?;
        let mut thread = Thread {
            data: data.to_owned(),
            conn,
            jobs: jobs.clone(),
            rules,
            metrics,
            backlog,
            audience,
            every,
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
    pub fn ask(&self, asked: Asked, now: Millis) -> Result<Result<Run, Run>, StoreError> {
        let answer = runs::ask(&mut self.0.notes.lock().unwrap_or_else(PoisonError::into_inner), asked, now);
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

struct Thread {
    data: PathBuf,
    conn: Connection,
    jobs: Jobs,
    rules: Arc<Rules>,
    metrics: Arc<Metrics>,
    backlog: Backlog,
    audience: Audience,
    every: Every,
    /// What goes by age waits for a sync, and the log was told so.
    held: bool,
}

impl Thread {
    fn live(&mut self, wakes: &Receiver<()>) {
        // Of this thread alone, where the operating system has it so: who waits for an answer goes first.
        if let Err(e) = rustix::process::nice(BEHIND) {
            tracing::warn!(error = %e, "jobs run at the same priority as everything else");
        }
        while !self.jobs.is_stopping() {
            let sleep = self.look().unwrap_or_else(|e| {
                tracing::error!(error = %crate::chain(&e), "the jobs' runs cannot be kept");
                LOOK
            });
            wakes.recv_timeout(sleep).unwrap_or_default();
        }
    }

    /// Runs all that waits or is due; gives how long nothing else will be.
    fn look(&mut self) -> Result<Duration, StoreError> {
        let _alone = match store::job(&self.data) {
            Ok(lock) => lock,
            Err(StoreError::Job(_)) => return Ok(BUSY),
            Err(e) => return Err(e),
        };
        while !self.jobs.is_stopping() {
            let now = clock::now();
            let is_vouched = self.is_vouched(now);
            if let Some(run) = runs::begin_waiting(&mut self.conn, now, is_vouched)? {
                self.run(&run)?;
                continue;
            }
            match next(&self.timers(is_vouched)?, now) {
                Next::Due(job, tenant) => {
                    let asked = Asked { job, tenant, woken: Woken::Timer, dry_run: false };
                    // One that waits already is begun next.
                    drop(runs::ask(&mut self.conn, asked, now)?);
                }
                Next::At(at) => return Ok(LOOK.min(Duration::from_millis(at - now))),
                Next::Never => break,
            }
        }
        Ok(LOOK)
    }

    /// Whether a sync vouches for the date. Said once, where one came before and none does any longer.
    fn is_vouched(&mut self, now: Millis) -> bool {
        let vouched = self.metrics.vouches(now);
        let held = vouched == Some(false);
        if held && !self.held {
            tracing::warn!(
                now,
                last = self.metrics.dated_ms.get(),
                "no sync vouches for the clock's date: trim, retention and rollup wait, unless given by hand"
            );
        }
        self.held = held;
        vouched == Some(true)
    }

    fn timers(&self, is_vouched: bool) -> Result<Vec<Timer>, StoreError> {
        let mut timers = Vec::new();
        for job in Job::ALL.into_iter().filter(|job| is_vouched || !job.is_by_age()) {
            let all = job.is_by_tenant().then(|| self.rules.tenants.iter().map(|known| Some(known.no)).collect());
            for tenant in all.unwrap_or_else(|| vec![None]) {
                let last = runs::last(&self.conn, job, tenant)?;
                let when = match job {
                    Job::Materialise => When::At(kept::next_due(&self.conn, clock::now())?),
                    Job::Send => When::At(send::next_due(&self.conn, clock::now())?),
                    _ => When::Every(self.every.of(job)),
                };
                timers.push(Timer { job, tenant, when, last });
            }
        }
        Ok(timers)
    }

    fn run(&mut self, run: &Run) -> Result<(), StoreError> {
        let stop = || self.jobs.is_stopping();
        let place = Place {
            data: &self.data,
            hands_out: true,
            conn: &mut self.conn,
            rules: &self.rules,
            metrics: &self.metrics,
            backlog: &|| Ok(self.backlog.clone()),
            audience: &|| Ok(self.audience.clone()),
            training: &train::Options::default(),
            given: &clock::given,
            pause: &|| std::thread::sleep(work::PAUSE),
            wait: &std::thread::sleep,
            told: &|_, _| Ok(()),
        };
        let ended = Runner { place, notes: &self.jobs.0.notes, stop: &stop }.run(run)?;
        let (job, outcome) = (run.asked.job.name(), ended.outcome.map(Outcome::name));
        match ended.outcome {
            Some(Outcome::Failed) => tracing::error!(run = run.no, job, error = %ended.report["error"], "a job failed"),
            _ => tracing::info!(run = run.no, job, outcome, "a job ended"),
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/dated.rs"]
mod tests;
