//! A backup's folder, which is there as a whole or not at all: it is filled under another name first.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::{BackupError, give_up, io_failure};

/// What the name of a folder that is not whole yet ends with.
const PART: &str = ".part";

/// Has `fill` write the files of a backup into a folder of their own, and puts it in the place of `to`, durably. What a run
/// left that was cut goes first; where `fill` fails, nothing stays.
pub(super) fn fill_part<T>(to: &Path, fill: impl FnOnce(&Path) -> Result<T, BackupError>) -> Result<T, BackupError> {
    // A folder that is there may be another disk's, or in one where nothing can be made: its files are moved, not it.
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
    // Some file systems have no locks of folders: there nothing keeps two apart.
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        return Err(BackupError::Taking(part));
    }
    let filled = fill(&part).and_then(|filled| move_part(&part, to, inside).map(|()| filled));
    if filled.is_err() && part.exists() {
        // Why it failed is the news.
        drop(give_up(&part));
    }
    filled
}

/// The folder's name, with an end to it.
fn part_path(to: &Path) -> PathBuf {
    let mut name = to.components().as_path().as_os_str().to_owned();
    name.push(PART);
    name.into()
}

/// Removes what a run left that was cut: nobody holds it, and nothing but a backup's files is in it.
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

/// Gives the files their place: the store's comes last, and without it a folder is no backup.
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
