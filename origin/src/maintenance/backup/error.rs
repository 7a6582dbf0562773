//! The errors of taking, reading and restoring a backup.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::{LockError, OpenError, StoreError};

/// The reason why a backup was not taken or not restored. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The data directory is locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store or the log.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or folder could not be read or written.
    #[error("{what} {}", path.display())]
    File {
        /// The failed operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A copy failed: the source is damaged, or the disk is full.
    #[error("cannot copy {} to {}", from.display(), to.display())]
    Copy {
        /// The source.
        from: PathBuf,
        /// The destination.
        to: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// Another process writes to that folder.
    #[error("another backup is being written to {}: wait until it ends", .0.display())]
    Taking(PathBuf),
    /// The folder is not empty, and a backup never replaces one.
    #[error("{} exists and is not empty: choose another folder", .0.display())]
    NotEmpty(PathBuf),
    /// The folder holds no backup.
    #[error("there is no backup in {}", .0.display())]
    None(PathBuf),
    /// A file of the backup is not intact.
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    /// The backup was taken by a later release.
    #[error("the backup in {} was taken by a later release: restore it with that release", .0.display())]
    Later(PathBuf),
}

impl From<rusqlite::Error> for BackupError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

pub(super) fn io_failure<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> BackupError + 'a {
    move |source| BackupError::File { what, path: path.to_owned(), source }
}
