//! The digests of a backup's files, computed when it was taken, so that a flipped bit is detected before a restore.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{BackupError, COPYING, io_failure};

/// File name of the manifest.
pub(super) const FILE: &str = "manifest.json";
/// Bytes read at a time.
const PIECE: usize = 1 << 20;

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

fn file_digest(path: &Path) -> io::Result<(u64, String)> {
    let (mut file, mut hash, mut length) = (File::open(path)?, Sha256::new(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            let hex = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok((length, hex));
        }
        length += read as u64;
        hash.update(piece.get(..read).unwrap_or_default());
    }
}
