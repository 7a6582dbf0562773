//! Why the store did not do what was asked.

use crate::store::data_fault::DataFault;
use crate::store::id_error::IdError;
use causeway_shared::base::ids::TenantId;
use causeway_shared::wire::WireError;
use std::path::{Path, PathBuf};

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data directory or its lock cannot be had.
    #[error("cannot use the data directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another process serves from this directory.
    #[error("another `causeway serve` uses {}: stop it first", .0.display())]
    InUse(PathBuf),
    /// A restore goes on, or a command that writes while a restore is to begin.
    #[error("another command writes to {}: let it end first", .0.display())]
    Writing(PathBuf),
    /// A job runs over the store.
    #[error("a job runs over {}: let it end first; `causeway job list` shows it", .0.display())]
    Job(PathBuf),
    /// A job was told to stop between two transactions.
    #[error("it was told to stop")]
    Stopped,
    /// A restore, or the import of an export, was interrupted.
    #[error("a restore or import of {} was interrupted: run `causeway restore` again, or `causeway import everything`", .0.display())]
    HalfRestored(PathBuf),
    /// There is no store yet.
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
        /// What is wrong.
        fault: DataFault,
    },
    /// The journal of erasures is there and cannot be read: without it, who was erased might come back.
    #[error("the journal of erasures {} cannot be read: {why}", path.display())]
    Journal {
        /// Its file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Another program's file has the store's name.
    #[error("the store's file is another program's: this release knows none of its tables")]
    Foreign,
    /// A later release wrote it.
    #[error("a later release wrote the store {}: use that one, or `causeway restore` the backup of before", .0.display())]
    Later(PathBuf),
    /// An earlier release serves from it, which a schema that it does not know would bar from starting again.
    #[error("the origin that serves from {} is of an earlier release: restart it with this one first", .0.display())]
    Earlier(PathBuf),
    /// The store's file cannot be used.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<Self>,
    },
    /// SQLite refused.
    #[error("the store failed")]
    Sqlite(#[source] rusqlite::Error),
    /// The schema could not be brought up to date.
    #[error("the store's schema cannot be brought up to date")]
    Migration(#[from] rusqlite_migration::Error),
    /// No random bits can be had.
    #[error("the operating system gives no random bytes")]
    Random(#[from] getrandom::Error),
    /// A value in the store is not what this release writes.
    #[error("the store holds a {what} that cannot be read")]
    Corrupt {
        /// Which value.
        what: &'static str,
    },
    /// Facts of a tenant that is not configured wait to be folded.
    #[error(
        "the log holds acknowledged facts of the tenant `{0}`, which the configuration lacks: configure it as it was and \
         start; once the origin has started and stopped with it, it may go"
    )]
    NoTenant(TenantId),
    /// A stored form that cannot be read.
    #[error("the store holds a form that cannot be read")]
    Form(#[from] WireError),
    /// What a visitor's rows hold cannot be read: its facts wait.
    #[error("what is stored of the visitor in row {row} of `visitors` cannot be read")]
    Visitor {
        /// The row.
        row: i64,
        /// Why.
        #[source]
        source: Box<Self>,
    },
}

impl From<rusqlite::Error> for StoreError {
    /// A column that [`CheckedBytes`] or [`visitor_at`] refused is an error of its value.
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::FromSqlConversionFailure(_, _, why) if why.is::<IdError>() => {
                Self::Corrupt { what: "visitor's id" }
            }
            rusqlite::Error::FromSqlConversionFailure(place, kind, why) => match why.downcast::<WireError>() {
                Ok(form) => Self::Form(*form),
                Err(why) => Self::Sqlite(rusqlite::Error::FromSqlConversionFailure(place, kind, why)),
            },
            other => Self::Sqlite(other),
        }
    }
}

impl StoreError {
    /// Names the file, where the reason does not.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        match self {
            Self::Foreign | Self::Sqlite(_) | Self::Migration(_) => {
                Self::File { path: path.to_owned(), source: Box::new(self) }
            }
            other => other,
        }
    }

    /// Whether another connection wrote, or held what it read, for longer than this one waits.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        match self {
            Self::Sqlite(e) => matches!(e.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked)),
            Self::File { source, .. } | Self::Visitor { source, .. } => source.is_busy(),
            _ => false,
        }
    }

    /// Whether a statement was ended, as it took too long.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Sqlite(e) => e.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted),
            Self::File { source, .. } | Self::Visitor { source, .. } => source.is_interrupted(),
            _ => false,
        }
    }

    /// Whether it is what one value holds that cannot be read: the store may have all others.
    #[must_use]
    pub fn is_of_a_value(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Form(_) | Self::Visitor { .. })
    }

    /// Names the visitor's row, where the reason is what it holds.
    #[must_use]
    pub fn of_visitor(self, row: i64) -> Self {
        match self {
            Self::Corrupt { .. } | Self::Form(_) => Self::Visitor { row, source: Box::new(self) },
            other => other,
        }
    }
}
