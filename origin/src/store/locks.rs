//! Who has a data directory, and for what: locks of files in it, which end with the process that holds them.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::{StoreError, make_folder};

const READY: &str = "causeway.ready";
const SERVED: &str = "causeway.lock";
/// Who looks at a lock has it for less.
const LOOKED_AT: Duration = Duration::from_millis(200);
/// How long an extension, or a write of segments, may take.
const EXTENDED: Duration = Duration::from_secs(5);
/// How often it is tried again.
const LOOK: Duration = Duration::from_millis(5);

/// A lock that is held; let go with it.
#[derive(Debug)]
pub struct StoreLock(#[expect(dead_code, reason = "the open file is the lock")] std::fs::File);

/// Takes the data directory for writing beside others that write, or for a restore alone.
///
/// # Errors
/// [`StoreError::Writing`] where one goes on that the other cannot be beside, [`StoreError::Directory`].
pub fn lock_writing(data: &Path, alone: bool) -> Result<StoreLock, StoreError> {
    lock_file(data, "causeway.writing", alone, StoreError::Writing)
}

/// Takes the data directory for one run of a job: there is never a second one, in whatever process.
///
/// # Errors
/// [`StoreError::Job`] where there is one already, [`StoreError::Directory`].
pub fn lock_job(data: &Path) -> Result<StoreLock, StoreError> {
    lock_file(data, "causeway.job", true, StoreError::Job)
}

/// Waits until nobody reads a segment's expiry to write a later one, nor, where this is to be done, writes segments.
///
/// # Errors
/// [`StoreError::Writing`] where that takes too long, [`StoreError::Directory`].
pub fn lock_extension(data: &Path, alone: bool) -> Result<StoreLock, StoreError> {
    try_lock(EXTENDED, || lock_file(data, "causeway.extending", alone, StoreError::Writing))
}

/// A lock that others have for no longer than a time.
fn try_lock(most: Duration, lock: impl Fn() -> Result<StoreLock, StoreError>) -> Result<StoreLock, StoreError> {
    let begun = Instant::now();
    loop {
        match lock() {
            Err(StoreError::InUse(_) | StoreError::Writing(_)) if begun.elapsed() < most => std::thread::sleep(LOOK),
            lock => return lock,
        }
    }
}

/// Says that this process serves, and has read the journal of erasures whole: until it ends store and journal are together.
///
/// # Errors
/// [`StoreError::Directory`].
pub fn lock_ready(data: &Path) -> Result<StoreLock, StoreError> {
    wait_lock(data, READY)
}

/// Whether a process is [`ready`].
#[must_use]
pub fn is_ready(data: &Path) -> bool {
    is_held(data, READY)
}

/// Whether a process has the data directory for itself ([`lock`]).
#[must_use]
pub fn is_served(data: &Path) -> bool {
    is_held(data, SERVED)
}

/// Whether a process has a file's lock alone. It is looked at beside others that look: none takes the other for one that has it.
fn is_held(data: &Path, name: &str) -> bool {
    data.is_dir() && matches!(lock_file(data, name, false, StoreError::InUse), Err(StoreError::InUse(_)))
}

/// Waits for a file's lock.
fn wait_lock(data: &Path, name: &str) -> Result<StoreLock, StoreError> {
    let failed = |source| StoreError::Directory { path: data.to_owned(), source };
    let file = open_lock(data, name).map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(StoreLock(file))
}

/// Takes the data directory for this process alone; who only looks whether one has it ([`is_served`]) is waited for.
///
/// # Errors
/// [`StoreError::InUse`], [`StoreError::Directory`].
pub fn lock_folder(data: &Path) -> Result<StoreLock, StoreError> {
    try_lock(LOOKED_AT, || lock_file(data, SERVED, true, StoreError::InUse))
}

/// Takes a file's lock, alone or beside others that share it, or says who has it.
/// Opens a lock's file. A link in its place is refused: it would have another file made or emptied.
fn open_lock(data: &Path, name: &str) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(data.join(name))
}

fn lock_file(data: &Path, name: &str, alone: bool, taken: fn(PathBuf) -> StoreError) -> Result<StoreLock, StoreError> {
    let failed = |source| StoreError::Directory { path: data.to_owned(), source };
    make_folder(data).map_err(failed)?;
    let file = open_lock(data, name).map_err(failed)?;
    let locked = if alone { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => Ok(StoreLock(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(taken(data.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}
