//! One run, from its row to its end: progress noted while it goes on, and how it ended.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use std::path::Path;

use rusqlite::Connection;
use serde_json::json;

use super::runs::{self, Run};
use super::work::{self, Place};
use super::{Job, Outcome};
use crate::audience::Audience;
use crate::backlog::Backlog;
use crate::group::{Given, Rules};
use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::train;

/// How often progress is noted.
const NOTED: Duration = Duration::from_secs(1);

/// What runs are run with, in one process.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct Runner<'a> {
    /// The data directory.
    pub data: &'a Path,
    /// Works.
    pub conn: &'a mut Connection,
    /// Notes: a second connection, as the other may be within a transaction.
    pub notes: &'a Mutex<Connection>,
    /// What all transactions have in common.
    pub rules: &'a Rules,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// What the log holds beyond the store now.
    pub backlog: &'a dyn Fn() -> Result<Backlog, StoreError>,
    /// The columns of audiences, up to date.
    pub audience: &'a dyn Fn() -> Result<Audience, StoreError>,
    /// How models are trained.
    pub training: &'a train::Options,
    /// What each transaction is given.
    pub given: &'a dyn Fn() -> Result<Given, StoreError>,
    /// Called between two transactions.
    pub pause: &'a dyn Fn(),
    /// Called where nothing may be done for a time.
    pub wait: &'a dyn Fn(Duration),
    /// Whether it is to end between two transactions.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Told what is done, of how much.
    pub told: &'a (dyn Fn(u64, u64) + Sync),
}

impl Runner<'_> {
    /// Takes a run that was begun to its end, and gives it as it ended.
    ///
    /// # Errors
    /// [`StoreError`]: its end cannot be kept. A job that failed is no error here.
    pub fn run(&mut self, run: &Run) -> Result<Run, StoreError> {
        let (begun, noted, notes) = (Instant::now(), AtomicU64::new(0), self.notes);
        let told = |done, all| {
            (self.told)(done, all);
            let now = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let before = noted.load(Relaxed);
            let due = before == 0 || u128::from(now - before.min(now)) >= NOTED.as_millis();
            // Of several threads one notes it.
            if due && noted.compare_exchange(before, now.max(1), Relaxed, Relaxed).is_ok() {
                runs::note(&notes.lock().unwrap_or_else(PoisonError::into_inner), run.no, done, all)?;
            }
            if (self.stop)() { Err(StoreError::Stopped) } else { Ok(()) }
        };
        let mut place = Place {
            data: self.data,
            conn: self.conn,
            rules: self.rules,
            metrics: self.metrics,
            backlog: self.backlog,
            audience: self.audience,
            training: self.training,
            given: self.given,
            pause: self.pause,
            wait: self.wait,
            told: &told,
        };
        let (outcome, report) = match work::run(&mut place, run) {
            Ok(work::Ended { report, failed: None }) => (Outcome::Done, Some(report)),
            Ok(work::Ended { mut report, failed: Some(why) }) => {
                report.as_object_mut().map(|report| report.insert("error".to_owned(), why.into()));
                (Outcome::Failed, Some(report))
            }
            Err(StoreError::Stopped) => (Outcome::Interrupted, None),
            Err(e) => (Outcome::Failed, Some(json!({ "error": crate::chain(&e) }))),
        };
        let now = (self.given)()?.now;
        let ended = runs::end(
            &mut notes.lock().unwrap_or_else(PoisonError::into_inner),
            run.no,
            outcome,
            report.as_ref(),
            now,
        )?;
        self.count(&ended);
        Ok(ended)
    }

    fn count(&self, run: &Run) {
        let places = (
            Job::ALL.iter().position(|job| *job == run.asked.job),
            Outcome::ALL.iter().position(|outcome| Some(*outcome) == run.outcome),
        );
        if let (Some(job), Some(outcome)) = places
            && let Some(counter) = self.metrics.jobs.get(job).and_then(|job| job.runs.get(outcome))
        {
            counter.add(1);
        }
    }
}
