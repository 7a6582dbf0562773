//! One run, from its row to its end: progress noted while it goes on, and how it ended.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;

use super::context::JobContext;
use super::runs::{self, JobRun};
use super::{JobKind, RunOutcome, tasks};
use crate::store::StoreError;

/// How often progress is noted.
const NOTED: Duration = Duration::from_secs(1);
/// How often it is tried again to keep a run's end, which waits for others that write each time.
const ENDS: u32 = 10;

/// What runs are run with, in one process.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct JobRunner<'a> {
    /// What they work on and with; it is told what is done, and may end a run, as the runner may.
    pub place: JobContext<'a>,
    /// Notes: a second connection, as the place's may be within a transaction.
    pub notes: &'a Mutex<Connection>,
    /// Whether it is to end between two transactions.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl JobRunner<'_> {
    /// Takes a run that was begun to its end, and gives it as it ended.
    ///
    /// # Errors
    /// [`StoreError`]: its end cannot be kept. A job that failed is no error here.
    pub fn run(&mut self, run: &JobRun) -> Result<JobRun, StoreError> {
        let (begun, noted, notes) = (Instant::now(), AtomicU64::new(0), self.notes);
        let (tell, stop) = (self.place.told, self.stop);
        let told = |done, all| {
            tell(done, all)?;
            let now = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let before = noted.load(Relaxed);
            let due = before == 0 || u128::from(now - before.min(now)) >= NOTED.as_millis();
            // Of several threads one notes it.
            if due && noted.compare_exchange(before, now.max(1), Relaxed, Relaxed).is_ok() {
                let noted =
                    runs::note_progress(&notes.lock().unwrap_or_else(PoisonError::into_inner), run.no, done, all);
                // It is only told.
                noted.or_else(|e| if e.is_busy() { Ok(()) } else { Err(e) })?;
            }
            if stop() { Err(StoreError::Stopped) } else { Ok(()) }
        };
        let mut place = JobContext { conn: self.place.conn, told: &told, ..self.place };
        let (outcome, report) = match tasks::run_job(&mut place, run) {
            Ok(crate::jobs::context::JobReport { report, failed: None }) => (RunOutcome::Done, Some(report)),
            Ok(crate::jobs::context::JobReport { mut report, failed: Some(why) }) => {
                report.as_object_mut().map(|report| report.insert("error".to_owned(), why.into()));
                (RunOutcome::Failed, Some(report))
            }
            Err(StoreError::Stopped) => (RunOutcome::Interrupted, None),
            Err(e) if e.is_busy() && run.asked.job.keeps_its_place() && !run.asked.dry_run => {
                tracing::warn!(
                    run = run.no,
                    job = run.asked.job.name(),
                    "another writes to the store for too long: the run is cut"
                );
                (RunOutcome::Interrupted, None)
            }
            Err(e) => (RunOutcome::Failed, Some(json!({ "error": crate::base::error_chain(&e) }))),
        };
        let now = (self.place.given)()?.now;
        let mut tries = 0;
        let ended = loop {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            match runs::end_run(&mut notes, run.no, outcome, report.as_ref(), now) {
                Err(e) if e.is_busy() && tries < ENDS => tries += 1,
                ended => break ended?,
            }
        };
        self.count(&ended);
        Ok(ended)
    }

    fn count(&self, run: &JobRun) {
        let places = (
            JobKind::ALL.iter().position(|job| *job == run.asked.job),
            RunOutcome::ALL.iter().position(|outcome| Some(*outcome) == run.outcome),
        );
        if let (Some(job), Some(outcome)) = places
            && let Some(counter) = self.place.metrics.jobs.get(job).and_then(|job| job.runs.get(outcome))
        {
            counter.add(1);
        }
    }
}
