//! Jobs over the whole store: the list of them and their timers. A job is idempotent, takes no input, works in short
//! transactions and may be interrupted between any two of them.
//!
//! A run is a row of the store ([`runs`]). A timer, a call of the admin API or a command requests it; the row waits,
//! shows the progress and remains as history. [`tasks`] contains the jobs, [`runner`] executes one run, and [`thread`]
//! is the thread of a serving origin that executes them. Only one run is active at a time, across all processes.

pub mod tasks;

pub mod context;
pub mod runner;
pub mod runs;
#[cfg(test)]
mod tests;
pub mod thread;

use crate::base::job_kinds::{JobKind, RunOutcome};
use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::HOUR_MS;

use crate::store::TenantNo;

/// Longest pause after a failed or interrupted run, in milliseconds. The pause is the job's interval if that is
/// shorter.
const RETRY_MS: u64 = HOUR_MS;
/// Pause after a failed run of a job that runs when its work is due, in milliseconds.
const AGAIN_MS: u64 = 1_000;

/// The newest run of a job, without dry runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRun {
    /// Time of the start.
    pub started: Millis,
    /// Time of the end; the start if the run is active.
    pub ended: Millis,
    /// Outcome; `None` if the run is active.
    pub outcome: Option<RunOutcome>,
}

/// Timer of a job, for one tenant if the job runs for each tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// The job.
    pub job: JobKind,
    /// Tenant of a job that runs for each tenant.
    pub tenant: Option<TenantNo>,
    /// Condition under which the job runs.
    pub when: TimerCondition,
    /// Newest run of the job.
    pub last: Option<LastRun>,
}

/// Condition under which a job runs by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerCondition {
    /// Interval between runs in milliseconds; `None` means never.
    Every(Option<u64>),
    /// Time from which the job is due; `None` means never.
    At(Option<Millis>),
}

impl Timer {
    /// Time at which the next run is due; `None` means never. A job without a run is due at once. So is a job whose
    /// last run lies in the future, because the clock was set back.
    fn due(&self, now: Millis) -> Option<Millis> {
        let every = match self.when {
            TimerCondition::Every(every) => every?,
            TimerCondition::At(at) => {
                let failed = self.last.filter(|last| last.outcome == Some(RunOutcome::Failed) && last.ended <= now);
                return Some(at?.max(failed.map_or(0, |last| last.ended.saturating_add(AGAIN_MS))));
            }
        };
        let due = match self.last {
            Some(last) if last.started.max(last.ended) <= now => match last.outcome {
                Some(RunOutcome::Done) | None => last.started.saturating_add(every),
                Some(RunOutcome::Failed | RunOutcome::Interrupted) => last.ended.saturating_add(every.min(RETRY_MS)),
            },
            _ => 0,
        };
        Some(due)
    }
}

/// What the timers require at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextDue {
    /// The job that has been due for the longest time.
    Due(JobKind, Option<TenantNo>),
    /// No job is due before this time.
    At(Millis),
    /// No timer is set.
    Never,
}

/// The job that is due, or the time at which the first one becomes due.
#[must_use]
pub fn next_due_job(timers: &[Timer], now: Millis) -> NextDue {
    let due = timers.iter().filter_map(|timer| Some((timer.due(now)?, timer)));
    match due.min_by_key(|(at, timer)| (*at, timer.job, timer.tenant)) {
        Some((at, timer)) if at <= now => NextDue::Due(timer.job, timer.tenant),
        Some((at, _)) => NextDue::At(at),
        None => NextDue::Never,
    }
}
