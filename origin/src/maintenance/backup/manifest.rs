//! The digests of a backup's files, computed when it was taken, so that a flipped bit is detected before a restore.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{BackupError, COPYING, io_failure};
use crate::maintenance::file_digest::file_digest;

/// File name of the manifest.
pub(super) const FILE: &str = "manifest.json";

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct BackupManifest {
    /// Length and SHA-256 (hexadecimal) of each file.
    files: BTreeMap<String, (u64, String)>,
}

/// Writes the digests of a backup's files.
pub(super) fn write(folder: &Path) -> Result<(), BackupError> {
    let path = folder.join(FILE);
    let text = serde_json::to_string_pretty(&BackupManifest::of(folder)?).unwrap_or_default();
    std::fs::write(&path, text).map_err(io_failure("cannot write", &path))
}

/// Compares a backup with its digests; `false` if it has none.
pub(super) fn check_folder(folder: &Path) -> Result<bool, BackupError> {
    let path = folder.join(FILE);
    let text = match std::fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        text => text.map_err(io_failure("cannot read", &path))?,
    };
    let noted: BackupManifest =
        serde_json::from_slice(&text).map_err(|e| BackupError::Damaged(format!("{}: {e}", path.display())))?;
    let found = BackupManifest::of(folder)?;
    for (file, digest) in &noted.files {
        if found.files.get(file) != Some(digest) {
            let path = folder.join(file);
            return Err(BackupError::Damaged(format!("{} differs from the file that was backed up", path.display())));
        }
    }
    Ok(true)
}

impl BackupManifest {
    fn of(folder: &Path) -> Result<Self, BackupError> {
        let mut files = BTreeMap::new();
        for (file, _) in COPYING {
            let path = folder.join(file);
            if path.exists() {
                files.insert(file.to_owned(), file_digest(&path).map_err(io_failure("cannot read", &path))?);
            }
        }
        Ok(Self { files })
    }
}
