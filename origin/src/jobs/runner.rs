//! Executes one run: records its progress and its outcome.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;

use super::context::JobContext;
use super::runs::{self, JobRun};
use super::{RunOutcome, tasks};
use crate::store::StoreError;
use crate::store::job_error::JobError;

/// Interval between two records of the progress.
const NOTED: Duration = Duration::from_secs(1);
/// Attempts to record the end of a run. Each one waits for other writers.
const ENDS: u32 = 10;

/// Executes runs in one process.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct JobRunner<'a> {
    /// Inputs of the runs. Its progress callback is called too and may end a run.
    pub context: JobContext<'a>,
    /// Second connection, which records the progress while the run's own connection is in a transaction.
    pub notes: &'a Mutex<Connection>,
    /// Whether the run must end between two transactions.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl JobRunner<'_> {
    /// Executes a run that was begun and returns it with its outcome.
    ///
    /// # Errors
    /// [`StoreError`] if the outcome cannot be recorded. A failed job is not an error here.
    pub fn run(&mut self, run: &JobRun) -> Result<JobRun, StoreError> {
        let (begun, noted, notes) = (Instant::now(), AtomicU64::new(0), self.notes);
        let (report_progress, stop) = (self.context.report_progress, self.stop);
        let progress = |done, all| {
            report_progress(done, all)?;
            let now = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let before = noted.load(Relaxed);
            let due = before == 0 || u128::from(now - before.min(now)) >= NOTED.as_millis();
            // Only one of several threads records it.
            if due && noted.compare_exchange(before, now.max(1), Relaxed, Relaxed).is_ok() {
                let noted =
                    runs::note_progress(&notes.lock().unwrap_or_else(PoisonError::into_inner), run.no, done, all);
                // Progress is only informative: a busy store must not fail the run.
                noted.or_else(|e| if e.is_busy() { Ok(()) } else { Err(e) })?;
            }
            if stop() { Err(JobError::Stopped) } else { Ok(()) }
        };
        let mut context = JobContext { conn: self.context.conn, report_progress: &progress, ..self.context };
        let (outcome, report) = match tasks::run_job(&mut context, run) {
            Ok(crate::jobs::context::JobReport { report, failed: None }) => (RunOutcome::Done, Some(report)),
            Ok(crate::jobs::context::JobReport { mut report, failed: Some(why) }) => {
                report.as_object_mut().map(|report| report.insert("error".to_owned(), why.into()));
                (RunOutcome::Failed, Some(report))
            }
            Err(JobError::Stopped) => (RunOutcome::Interrupted, None),
            Err(e) if e.is_busy() && run.request.job.is_resumable() && !run.request.dry_run => {
                tracing::warn!(
                    run = run.no.number(),
                    job = run.request.job.name(),
                    "another connection wrote to the store for too long: the run is interrupted"
                );
                (RunOutcome::Interrupted, None)
            }
            Err(e) => (RunOutcome::Failed, Some(json!({ "error": crate::base::error_chain(&e) }))),
        };
        let now = (self.context.draw_inputs)()?.now;
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
        if let Some(outcome) = run.outcome {
            self.context.metrics.count_run(run.request.job, outcome);
        }
    }
}
