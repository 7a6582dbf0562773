//! Jobs over the whole store: which there are, and when the next one is due. Each is idempotent and takes no input; it works
//! in short transactions and may be cut between any two of them.
//!
//! A run is a row of the store ([`runs`]): asked for by a timer, by a call of the admin side or by a command, it waits there,
//! tells how far it is, and stays as history. [`tasks`] has the jobs, [`runner`] takes one run to its end,
//! [`thread`] is a serving origin's thread for them. One run goes on at a time, in whatever process.

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

/// After a run that did not end well the next one waits so long, or as long as between two where that is less.
const RETRY_MS: Millis = HOUR_MS;
/// And a job that runs when its work is due so long.
const AGAIN_MS: Millis = 1_000;

/// The newest run of a job that was to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// When it began.
    pub started: Millis,
    /// When it ended; where it goes on, when it began.
    pub ended: Millis,
    /// How; `None` where it goes on.
    pub outcome: Option<RunOutcome>,
}

/// A job that has a timer, for a tenant where it is by tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// The job.
    pub job: JobKind,
    /// Whose, of a job by tenant.
    pub tenant: Option<TenantNo>,
    /// When it runs.
    pub when: When,
    /// Its newest run.
    pub last: Option<Last>,
}

/// When a job runs by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// So often, in milliseconds; 0: never.
    Every(Millis),
    /// From this time on; `None` for never.
    At(Option<Millis>),
}

impl Timer {
    /// When the next run is due; `None` for never. A job that never ran is due at once, and so is one whose last run is of
    /// a time still to come: the clock went back.
    fn due(&self, now: Millis) -> Option<Millis> {
        let every = match self.when {
            When::Every(0) => return None,
            When::Every(every) => every,
            When::At(at) => {
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

/// What the timers say now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This one is due: the longest of all.
    Due(JobKind, Option<TenantNo>),
    /// Nothing is due before that time.
    At(Millis),
    /// No timer is set.
    Never,
}

/// Which job is due now, or when the first will be.
#[must_use]
pub fn next(timers: &[Timer], now: Millis) -> Next {
    let due = timers.iter().filter_map(|timer| Some((timer.due(now)?, timer)));
    match due.min_by_key(|(at, timer)| (*at, timer.job, timer.tenant)) {
        Some((at, timer)) if at <= now => Next::Due(timer.job, timer.tenant),
        Some((at, _)) => Next::At(at),
        None => Next::Never,
    }
}
