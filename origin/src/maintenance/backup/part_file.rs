//! The folder of a backup. It exists completely or not at all, because it is filled under a temporary name.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::{BackupError, give_up, io_failure};

/// Suffix of an incomplete folder.
const PART: &str = ".part";

/// Lets `fill` write a backup's files into a temporary folder, and then moves them to `to`, durably. The rest of an
/// interrupted run is removed first. If `fill` fails, nothing remains.
pub(super) fn fill_part<T>(to: &Path, fill: impl FnOnce(&Path) -> Result<T, BackupError>) -> Result<T, BackupError> {
    // An existing folder may be a mount point, or its parent may be read-only. Its files are moved then, not the
    // folder.
    let inside = to.exists();
    let part = if inside { to.join(PART) } else { part_path(to) };
    if inside {
        let entries = fs::read_dir(to).map_err(io_failure("cannot read", to))?;
        if entries.flatten().any(|entry| entry.file_name() != PART) {
            return Err(BackupError::NotEmpty(to.to_owned()));
        }
    }
    drop_cut(&part)?;
    crate::base::folders::make_folder(&part).map_err(io_failure("cannot make", &part))?;
    let lock = File::open(&part).map_err(io_failure("cannot read", &part))?;
    // Some file systems cannot lock a folder. There, two runs are not kept apart.
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        return Err(BackupError::Taking(part));
    }
    let filled = fill(&part).and_then(|filled| move_part(&part, to, inside).map(|()| filled));
    if filled.is_err() && part.exists() {
        // The original error is reported, not an error of the cleanup.
        drop(give_up(&part));
    }
    filled
}

/// The folder's name with the suffix.
fn part_path(to: &Path) -> PathBuf {
    let mut name = to.components().as_path().as_os_str().to_owned();
    name.push(PART);
    name.into()
}

/// Removes the rest of an interrupted run: a folder that is not locked and holds only a backup's files.
fn drop_cut(part: &Path) -> Result<(), BackupError> {
    if !part.exists() {
        return Ok(());
    }
    let folder = File::open(part).map_err(io_failure("cannot read", part))?;
    if let Err(TryLockError::WouldBlock) = folder.try_lock() {
        return Err(BackupError::Taking(part.to_owned()));
    }
    let ours = |name: &str| {
        [crate::store::data_fault::LOG, crate::store::data_fault::STORE].iter().any(|file| name.starts_with(file))
    };
    let entries = fs::read_dir(part).map_err(io_failure("cannot read", part))?;
    if entries.flatten().any(|entry| !entry.file_name().to_str().is_some_and(ours)) {
        return Err(BackupError::NotEmpty(part.to_owned()));
    }
    give_up(part)
}

/// Moves the files to their final paths. The store comes last, because a folder without it is no backup.
fn move_part(part: &Path, to: &Path, inside: bool) -> Result<(), BackupError> {
    let sync =
        |folder: &Path| File::open(folder).and_then(|f| f.sync_all()).map_err(io_failure("cannot write", folder));
    sync(part)?;
    if inside {
        for file in [crate::store::data_fault::LOG, crate::store::data_fault::STORE] {
            fs::rename(part.join(file), to.join(file)).map_err(io_failure("cannot write", &to.join(file)))?;
        }
        give_up(part)?;
        return sync(to);
    }
    fs::rename(part, to).map_err(io_failure("cannot write", to))?;
    match to.components().as_path().parent() {
        Some(parent) if parent != Path::new("") => sync(parent),
        _ => sync(Path::new(".")),
    }
}
