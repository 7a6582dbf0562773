//! Locks of a data directory: locked files in it, which are released when the process ends.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::make_folder;

const READY: &str = "causeway.ready";
const SERVED: &str = "causeway.lock";
/// Longest wait for a process that only examines the lock.
const LOOKED_AT: Duration = Duration::from_millis(200);
/// Longest duration of an extension or of a write of segments.
const EXTENDED: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const LOOK: Duration = Duration::from_millis(5);

/// An error of locking a data directory.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
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
}

/// A held lock; dropping it releases the lock.
#[derive(Debug)]
pub struct StoreLock(#[expect(dead_code, reason = "the open file is the lock")] std::fs::File);

/// Locks the data directory for writing: shared with other writers, or exclusively for a restore (`alone`).
///
/// # Errors
/// [`LockError::Writing`] while a process holds the lock in a way that excludes this one, [`LockError::Directory`].
pub fn lock_writing(data: &Path, alone: bool) -> Result<StoreLock, LockError> {
    lock_file(data, "causeway.writing", alone, LockError::Writing)
}

/// Locks the data directory for one run of a job; over all processes, at most one run is active.
///
/// # Errors
/// [`LockError::Job`] while another run is active, [`LockError::Directory`].
pub fn lock_job(data: &Path) -> Result<StoreLock, LockError> {
    lock_file(data, "causeway.job", true, LockError::Job)
}

/// Locks the expiries of segments: exclusively (`alone`) to read an expiry and write a later one, or shared to write
/// segments.
///
/// # Errors
/// [`LockError::Writing`] if another process holds the lock for too long, [`LockError::Directory`].
pub fn lock_extension(data: &Path, alone: bool) -> Result<StoreLock, LockError> {
    try_lock(EXTENDED, || lock_file(data, "causeway.extending", alone, LockError::Writing))
}

/// Retries a lock for at most the time `most`.
fn try_lock(most: Duration, lock: impl Fn() -> Result<StoreLock, LockError>) -> Result<StoreLock, LockError> {
    let begun = Instant::now();
    loop {
        match lock() {
            Err(LockError::InUse(_) | LockError::Writing(_)) if begun.elapsed() < most => std::thread::sleep(LOOK),
            lock => return lock,
        }
    }
}

/// Marks this process as serving, with the journal of erasures read completely. Until the process ends, store and
/// journal agree.
///
/// # Errors
/// [`LockError::Directory`].
pub fn lock_ready(data: &Path) -> Result<StoreLock, LockError> {
    wait_lock(data, READY)
}

/// Whether a process holds the lock of [`lock_ready`].
#[must_use]
pub fn is_ready(data: &Path) -> bool {
    is_held(data, READY)
}

/// Whether a process holds the data directory exclusively ([`lock_folder`]).
#[must_use]
pub fn is_served(data: &Path) -> bool {
    is_held(data, SERVED)
}

/// Whether a process holds a file's lock exclusively. The examination takes a shared lock, so that two examinations do
/// not exclude each other.
fn is_held(data: &Path, name: &str) -> bool {
    data.is_dir() && matches!(lock_file(data, name, false, LockError::InUse), Err(LockError::InUse(_)))
}

/// Waits for a file's exclusive lock.
fn wait_lock(data: &Path, name: &str) -> Result<StoreLock, LockError> {
    let failed = |source| LockError::Directory { path: data.to_owned(), source };
    let file = open_lock(data, name).map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(StoreLock(file))
}

/// Locks the data directory for this process alone. Waits for a process that only examines the lock ([`is_served`]).
///
/// # Errors
/// [`LockError::InUse`], [`LockError::Directory`].
pub fn lock_folder(data: &Path) -> Result<StoreLock, LockError> {
    try_lock(LOOKED_AT, || lock_file(data, SERVED, true, LockError::InUse))
}

/// Opens a lock's file. A symbolic link is refused, because it could have another file created or emptied.
fn open_lock(data: &Path, name: &str) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(data.join(name))
}

fn lock_file(data: &Path, name: &str, alone: bool, taken: fn(PathBuf) -> LockError) -> Result<StoreLock, LockError> {
    let failed = |source| LockError::Directory { path: data.to_owned(), source };
    make_folder(data).map_err(failed)?;
    let file = open_lock(data, name).map_err(failed)?;
    let locked = if alone { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => Ok(StoreLock(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(taken(data.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}
