//! Jobs: their names, intervals, triggers and outcomes.

use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::HOUR_MS;
use serde::Deserialize;

/// A job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// Deletes data of visitors that is no longer needed.
    Trim,
    /// Erases visitors that were not seen for their tenant's `forget_after_days`.
    Retention,
    /// Recomputes all people from all evidence.
    Reconcile,
    /// Trains a tenant's model.
    Train,
    /// Writes every KV key again.
    Publish,
    /// Publishes waiting changes to all visitors of a person at once, without the pause for siblings.
    Compact,
    /// Recomputes stored sums from the rows that they add up.
    Rollup,
    /// Reads every KV key back and repairs differences.
    Verify,
    /// Rebuilds the audience index.
    Index,
    /// Materialises the audiences that are due.
    Materialise,
    /// Sums up the activity histograms of all people.
    Activity,
    /// Runs the sends that are due and reports the drawn people to the webhook.
    Send,
    /// Searches the store for damage.
    Scrub,
}

impl JobKind {
    /// All jobs; of two jobs that are due together, the earlier one in this list runs first.
    pub const ALL: [Self; 13] = [
        Self::Trim,
        Self::Retention,
        Self::Reconcile,
        Self::Train,
        Self::Publish,
        Self::Compact,
        Self::Rollup,
        Self::Verify,
        Self::Index,
        Self::Materialise,
        Self::Activity,
        Self::Send,
        Self::Scrub,
    ];

    /// Names of all jobs, in the order of [`Self::ALL`].
    #[must_use]
    pub fn names() -> [&'static str; 13] {
        Self::ALL.map(Self::name)
    }

    /// Name of the job on the command line, in the API and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Trim => "trim",
            Self::Retention => "retention",
            Self::Reconcile => "reconcile",
            Self::Train => "train",
            Self::Publish => "publish",
            Self::Compact => "compact",
            Self::Rollup => "rollup",
            Self::Verify => "verify",
            Self::Index => "index",
            Self::Materialise => "materialise",
            Self::Activity => "activity",
            Self::Send => "send",
            Self::Scrub => "scrub",
        }
    }

    /// The job with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|job| job.name() == name)
    }

    /// Whether the timer must wait for a trustworthy date. Jobs that delete by age wait for a date that a sync
    /// confirms; `send` waits only while a sync contradicts the date. `vouched` is the result of
    /// [`crate::base::metrics::Metrics::vouches`].
    #[must_use]
    pub fn is_held(self, vouched: Option<bool>) -> bool {
        match self {
            Self::Trim | Self::Retention | Self::Rollup => vouched != Some(true),
            Self::Send => vouched == Some(false),
            _ => false,
        }
    }

    /// Whether the job runs at times that a user chose; long jobs are interrupted for it.
    #[must_use]
    pub fn is_on_time(self) -> bool {
        matches!(self, Self::Materialise | Self::Send)
    }

    /// Whether an interrupted run continues where it stopped; other jobs start again.
    #[must_use]
    pub fn is_resumable(self) -> bool {
        matches!(
            self,
            Self::Trim | Self::Retention | Self::Publish | Self::Compact | Self::Rollup | Self::Verify | Self::Scrub
        )
    }

    /// Whether each tenant has runs of its own.
    #[must_use]
    pub fn is_by_tenant(self) -> bool {
        self == Self::Train
    }
}

/// The cause of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The job was due.
    Timer,
    /// A call of the admin API.
    Signal,
    /// `causeway job run`.
    Command,
}

impl Trigger {
    /// All triggers.
    pub const ALL: [Self; 3] = [Self::Timer, Self::Signal, Self::Command];

    /// Name of the trigger in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Signal => "signal",
            Self::Command => "command",
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// The run completed.
    Done,
    /// The run failed or found a fault; the report names it.
    Failed,
    /// The run was stopped; its completed steps remain.
    Interrupted,
}

impl RunOutcome {
    /// All outcomes.
    pub const ALL: [Self; 3] = [Self::Done, Self::Failed, Self::Interrupted];

    /// Names of all outcomes, in the order of [`Self::ALL`].
    #[must_use]
    pub fn names() -> [&'static str; 3] {
        Self::ALL.map(Self::name)
    }

    /// Name of the outcome in reports and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Hours between two runs of each job by its timer; 0: the timer never starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct JobIntervals {
    /// Hours between runs of `trim`; 0: never.
    pub trim_hours: u32,
    /// Hours between runs of `retention`; 0: never.
    pub retention_hours: u32,
    /// Hours between runs of `reconcile`; 0: never.
    pub reconcile_hours: u32,
    /// Hours between runs of `train` for each tenant; 0: never.
    pub train_hours: u32,
    /// Hours between runs of `compact`; 0: never.
    pub compact_hours: u32,
    /// Hours between runs of `rollup`; 0: never.
    pub rollup_hours: u32,
    /// Hours between runs of `verify`; 0: never.
    pub verify_hours: u32,
    /// Hours between runs of `publish`; 0: never.
    pub publish_hours: u32,
    /// Hours between runs of `index`; 0: never.
    pub index_hours: u32,
    /// Hours between runs of `activity`; 0: never.
    pub activity_hours: u32,
    /// Hours between runs of `scrub`; 0: never.
    pub scrub_hours: u32,
}

impl Default for JobIntervals {
    fn default() -> Self {
        Self {
            trim_hours: 24,
            retention_hours: 24,
            reconcile_hours: 168,
            train_hours: 0,
            compact_hours: 0,
            rollup_hours: 168,
            verify_hours: 0,
            publish_hours: 0,
            index_hours: 0,
            activity_hours: 24,
            scrub_hours: 168,
        }
    }
}

impl JobIntervals {
    /// Interval of a job in milliseconds; `None`: the timer never starts it.
    #[must_use]
    pub fn of(&self, job: JobKind) -> Option<u64> {
        let hours = match job {
            JobKind::Trim => self.trim_hours,
            JobKind::Retention => self.retention_hours,
            JobKind::Reconcile => self.reconcile_hours,
            JobKind::Train => self.train_hours,
            JobKind::Compact => self.compact_hours,
            JobKind::Rollup => self.rollup_hours,
            JobKind::Verify => self.verify_hours,
            JobKind::Publish => self.publish_hours,
            JobKind::Index => self.index_hours,
            JobKind::Activity => self.activity_hours,
            JobKind::Scrub => self.scrub_hours,
            // Each audience and each send has its own schedule.
            JobKind::Materialise | JobKind::Send => 0,
        };
        (hours > 0).then(|| Millis::from(hours) * HOUR_MS)
    }
}
