//! Errors of opening a data directory or a store in it.

use crate::store::data_fault::DataFault;
use crate::store::error::StoreError;
use crate::store::journal_error::JournalError;
use std::path::{Path, PathBuf};

/// An error of opening a data directory or a store in it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory or a file in it cannot be used.
    #[error("cannot use the data directory {}", path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
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
    /// The journal of erasures cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
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
    /// The schema could not be brought up to date.
    #[error("the store's schema cannot be brought up to date")]
    Migration(#[from] rusqlite_migration::Error),
    /// The opened store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

impl OpenError {
    /// Adds the file's path, if the error does not contain it.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        match self {
            Self::Foreign | Self::Store(StoreError::Sqlite(_)) | Self::Migration(_) => {
                Self::File { path: path.to_owned(), source: Box::new(self) }
            }
            other => other,
        }
    }

    /// Whether another connection wrote or read for longer than this one waits.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Store(source) | Self::Journal(JournalError { source, .. }) => source.is_busy(),
            Self::File { source, .. } => source.is_busy(),
            _ => false,
        }
    }
}
