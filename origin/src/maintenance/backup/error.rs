//! Why a backup could not be taken, read or restored.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// Why a backup was not taken, or not restored. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store or the log.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or folder.
    #[error("{what} {}", path.display())]
    File {
        /// What failed.
        what: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A copy: from a damaged file, or to a full disk.
    #[error("cannot copy {} to {}", from.display(), to.display())]
    Copy {
        /// What was copied.
        from: PathBuf,
        /// Where to.
        to: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// Another run writes into that folder.
    #[error("another backup is being written to {}: let it end first", .0.display())]
    Taking(PathBuf),
    /// The folder is not empty, and a backup never replaces one.
    #[error("{} is there already and not empty: choose another folder", .0.display())]
    NotEmpty(PathBuf),
    /// The folder holds no backup.
    #[error("there is no backup in {}", .0.display())]
    None(PathBuf),
    /// The file in it is not whole.
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    /// A later release took it.
    #[error("the backup in {} was taken by a later release: restore it with that one", .0.display())]
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
