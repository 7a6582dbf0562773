//! Errors of a job's run.

use crate::store::error::StoreError;
use crate::store::open_error::OpenError;

/// An error of a job's run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The run was stopped between two transactions. It reports an interruption, not a failure.
    #[error("the run was stopped")]
    Stopped,
    /// A bug ended a thread of the run.
    #[error("a thread of the run ended because of a bug: report the log of the origin")]
    Panicked,
    /// The store has more rows of a kind than the job numbers.
    #[error("the job numbers at most {} rows of a kind, and the store has more", u32::MAX)]
    TooMany,
    /// A value that the run computed does not read back as it was written.
    #[error("the {0} failed its check: it does not read back as it was written")]
    Check(&'static str),
    /// A further connection to the store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for JobError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

impl JobError {
    /// Whether another connection wrote or read for longer than this one waits.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Stopped | Self::Panicked | Self::TooMany | Self::Check(_) => false,
            Self::Open(source) => source.is_busy(),
            Self::Store(source) => source.is_busy(),
        }
    }
}
