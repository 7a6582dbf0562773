//! Errors of the store.

use crate::store::data_fault::DataFault;
use crate::store::id_error::IdError;
use causeway_shared::base::ids::TenantId;
use causeway_shared::wire::WireError;
use std::path::{Path, PathBuf};

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data directory or a lock in it cannot be used.
    #[error("cannot use the data directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another process serves from this directory.
    #[error("another `causeway serve` uses {}: stop it first", .0.display())]
    InUse(PathBuf),
    /// A restore is running, or a restore cannot start while another command writes.
    #[error("another command is writing to {}: let it end first", .0.display())]
    Writing(PathBuf),
    /// A job is running over the store.
    #[error("a job is running over {}: let it end first; `causeway job list` shows it", .0.display())]
    Job(PathBuf),
    /// A job was stopped between two transactions.
    #[error("the run was stopped")]
    Stopped,
    /// A restore, or the import of an export, was interrupted.
    #[error("a restore or import of {} was interrupted: run `causeway restore` again, or `causeway import everything`", .0.display())]
    HalfRestored(PathBuf),
    /// The store does not exist yet.
    #[error("there is no store at {}: has `causeway serve` run?", .0.display())]
    Missing(PathBuf),
    /// The files of the data directory do not belong together, or one is missing.
    #[error(
        "the data directory {} is not whole: {fault}{}", path.display(),
        if fault.is_acceptable() { ". If it is lost, `causeway data accept-loss` goes on without" } else { "" }
    )]
    Data {
        /// The directory.
        path: PathBuf,
        /// The fault.
        fault: DataFault,
    },
    /// The journal of erasures exists and cannot be read. Without it, erased visitors might come back.
    #[error("the journal of erasures {} cannot be read: {why}", path.display())]
    Journal {
        /// The journal's file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// A file of another program has the store's name.
    #[error("the store's file is another program's: this release knows none of its tables")]
    Foreign,
    /// A later release wrote the store.
    #[error("a later release wrote the store {}: use that release, or restore an earlier backup with `causeway restore`", .0.display())]
    Later(PathBuf),
    /// An earlier release serves from the store; after a migration it could not start again.
    #[error("the origin that serves from {} is of an earlier release: restart it with this one first", .0.display())]
    Earlier(PathBuf),
    /// The store's file cannot be used.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<Self>,
    },
    /// SQLite reported an error.
    #[error("the store failed")]
    Sqlite(#[source] rusqlite::Error),
    /// The schema could not be brought up to date.
    #[error("the store's schema cannot be brought up to date")]
    Migration(#[from] rusqlite_migration::Error),
    /// No random bytes are available.
    #[error("the operating system gives no random bytes")]
    Random(#[from] getrandom::Error),
    /// A stored value does not have the form that this release writes.
    #[error("the store holds a {what} that cannot be read")]
    Corrupt {
        /// Which value.
        what: &'static str,
    },
    /// Facts wait to be folded for a tenant that is not configured.
    #[error(
        "the log holds acknowledged facts of the tenant `{0}`, which the configuration lacks: configure it as it was and \
         start; after one start and stop of the origin the tenant may be removed"
    )]
    NoTenant(TenantId),
    /// A stored form cannot be read.
    #[error("the store holds a form that cannot be read")]
    Form(#[from] WireError),
    /// Stored data of a visitor cannot be read; its facts wait.
    #[error("the stored data of the visitor in row {row} of `visitors` cannot be read")]
    Visitor {
        /// The row.
        row: i64,
        /// The cause.
        #[source]
        source: Box<Self>,
    },
}

impl From<rusqlite::Error> for StoreError {
    /// A column that `CheckedBytes` or [`crate::store::visitor_at`] refused is an error of its value.
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::FromSqlConversionFailure(_, _, why) if why.is::<IdError>() => {
                Self::Corrupt { what: "visitor's id" }
            }
            rusqlite::Error::FromSqlConversionFailure(column, kind, why) => match why.downcast::<WireError>() {
                Ok(form) => Self::Form(*form),
                Err(why) => Self::Sqlite(rusqlite::Error::FromSqlConversionFailure(column, kind, why)),
            },
            other => Self::Sqlite(other),
        }
    }
}

impl StoreError {
    /// Adds the file's path, if the error does not contain it.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        match self {
            Self::Foreign | Self::Sqlite(_) | Self::Migration(_) => {
                Self::File { path: path.to_owned(), source: Box::new(self) }
            }
            other => other,
        }
    }

    /// Whether another connection wrote or read for longer than this one waits.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        match self {
            Self::Sqlite(e) => matches!(e.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked)),
            Self::File { source, .. } | Self::Visitor { source, .. } => source.is_busy(),
            _ => false,
        }
    }

    /// Whether a statement was interrupted because it took too long.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Sqlite(e) => e.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted),
            Self::File { source, .. } | Self::Visitor { source, .. } => source.is_interrupted(),
            _ => false,
        }
    }

    /// Whether a single stored value cannot be read; the store may hold all others.
    #[must_use]
    pub fn is_of_a_value(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Form(_) | Self::Visitor { .. })
    }

    /// Adds the visitor's row, if the error concerns a stored value.
    #[must_use]
    pub fn of_visitor(self, row: i64) -> Self {
        match self {
            Self::Corrupt { .. } | Self::Form(_) => Self::Visitor { row, source: Box::new(self) },
            other => other,
        }
    }
}
