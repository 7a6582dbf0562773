//! The jobs by name, how often each runs, what triggers a run and how it ends.

use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::HOUR_MS;
use serde::Deserialize;

/// A job by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// What is no longer needed of visitors goes.
    Trim,
    /// Visitors that were not seen for as long as their tenant says are erased.
    Retention,
    /// People as all evidence makes them.
    Reconcile,
    /// A tenant's model, learned anew.
    Train,
    /// Every key of the KV, written anew.
    Publish,
    /// What the visitors of a person do not know of one another yet is published to all of them now.
    Compact,
    /// Sums that are kept are counted anew from what they add up.
    Rollup,
    /// Every key of the KV read back, and mended.
    Verify,
    /// The columns of audiences, built anew.
    Columns,
    /// Audiences kept as segments, those that are due.
    Materialise,
    /// When all people are active, summed up.
    Rhythm,
    /// People drawn for sends are told, those sends that are due.
    Send,
    /// Damage of the store is searched for.
    Scrub,
}

impl JobKind {
    /// All of them; of two that are due at once the first goes first.
    pub const ALL: [Self; 13] = [
        Self::Trim,
        Self::Retention,
        Self::Reconcile,
        Self::Train,
        Self::Publish,
        Self::Compact,
        Self::Rollup,
        Self::Verify,
        Self::Columns,
        Self::Materialise,
        Self::Rhythm,
        Self::Send,
        Self::Scrub,
    ];

    /// Their names, in the same order.
    #[must_use]
    pub fn names() -> [&'static str; 13] {
        Self::ALL.map(Self::name)
    }

    /// Its name.
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
            Self::Columns => "columns",
            Self::Materialise => "materialise",
            Self::Rhythm => "rhythm",
            Self::Send => "send",
            Self::Scrub => "scrub",
        }
    }

    /// The job of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|job| job.name() == name)
    }

    /// Whether its timer waits for a date that a sync vouches for, or one that none says is wrong: what goes for good by what
    /// it takes to be old waits for the first, and who is told, and exposed by that, for the other.
    #[must_use]
    pub fn is_held(self, vouched: Option<bool>) -> bool {
        match self {
            Self::Trim | Self::Retention | Self::Rollup => vouched != Some(true),
            Self::Send => vouched == Some(false),
            _ => false,
        }
    }

    /// Whether it is due when somebody set it: what may take hours gives way to it.
    #[must_use]
    pub fn is_on_time(self) -> bool {
        matches!(self, Self::Materialise | Self::Send)
    }

    /// Whether a run that is cut goes on where it was, as far as it says so; others begin anew.
    #[must_use]
    pub fn keeps_its_place(self) -> bool {
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

/// What woke a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// It was due.
    Timer,
    /// A call of the admin side.
    Signal,
    /// `causeway job run`.
    Command,
}

impl Trigger {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Timer, Self::Signal, Self::Command];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Signal => "signal",
            Self::Command => "command",
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// All was done.
    Done,
    /// Something must be looked at: the report says what.
    Failed,
    /// It was cut; what it had done is kept.
    Interrupted,
}

impl RunOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Done, Self::Failed, Self::Interrupted];

    /// Their names, in the same order.
    #[must_use]
    pub fn names() -> [&'static str; 3] {
        Self::ALL.map(Self::name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How often each job runs by itself, in hours; 0: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct JobIntervals {
    /// `trim`.
    pub trim_hours: u32,
    /// `retention`.
    pub retention_hours: u32,
    /// `reconcile`.
    pub reconcile_hours: u32,
    /// `train`, for each tenant.
    pub train_hours: u32,
    /// `compact`.
    pub compact_hours: u32,
    /// `rollup`.
    pub rollup_hours: u32,
    /// `verify`.
    pub verify_hours: u32,
    /// `publish`.
    pub publish_hours: u32,
    /// `columns`.
    pub columns_hours: u32,
    /// `rhythm`.
    pub rhythm_hours: u32,
    /// `scrub`.
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
            columns_hours: 0,
            rhythm_hours: 24,
            scrub_hours: 168,
        }
    }
}

impl JobIntervals {
    /// How often, in milliseconds; 0: never.
    #[must_use]
    pub fn of(&self, job: JobKind) -> Millis {
        let hours = match job {
            JobKind::Trim => self.trim_hours,
            JobKind::Retention => self.retention_hours,
            JobKind::Reconcile => self.reconcile_hours,
            JobKind::Train => self.train_hours,
            JobKind::Compact => self.compact_hours,
            JobKind::Rollup => self.rollup_hours,
            JobKind::Verify => self.verify_hours,
            JobKind::Publish => self.publish_hours,
            JobKind::Columns => self.columns_hours,
            JobKind::Rhythm => self.rhythm_hours,
            JobKind::Scrub => self.scrub_hours,
            // Each audience and each send says when.
            JobKind::Materialise | JobKind::Send => 0,
        };
        Millis::from(hours) * HOUR_MS
    }
}
