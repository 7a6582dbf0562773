//! The disk as SQLite calls it.

use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlite_vfs::{DatabaseHandle, LockKind, OpenAccess, OpenOptions, Vfs, WalDisabled};

use super::content::Change;
use super::{Files, disks, lock};

/// Path prefix of files that exist only as long as their handle.
const TEMPORARY: &str = "/temporary/";

/// The name under which SQLite knows the disks of this thread. Each thread registers its own, because the library does
/// not guard the data of a name.
pub(super) fn name() -> String {
    static REGISTERED: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NAME: String = {
            let name = format!("disk{}", REGISTERED.fetch_add(1, Ordering::Relaxed));
            let registered = sqlite_vfs::register(&name, Disks, false);
            assert!(registered.is_ok(), "SQLite accepts the file system: {registered:?}");
            name
        };
    }
    NAME.with(String::clone)
}

struct Disks;

/// An open file.
struct Handle {
    files: Arc<Mutex<Files>>,
    name: String,
}

fn find(path: &str) -> Result<(Arc<Mutex<Files>>, String), Error> {
    let not_found = || Error::from(ErrorKind::NotFound);
    let (number, name) = path.trim_start_matches('/').split_once('/').ok_or_else(not_found)?;
    let number = number.parse().map_err(|_| not_found())?;
    let files = disks().get(&number).and_then(std::sync::Weak::upgrade).ok_or_else(not_found)?;
    Ok((files, name.to_owned()))
}

impl Vfs for Disks {
    type Handle = Handle;

    fn open(&self, path: &str, options: OpenOptions) -> Result<Handle, Error> {
        // Temporary files belong to the process and never fail.
        let (files, name) = if path.starts_with(TEMPORARY) { (Arc::default(), path.to_owned()) } else { find(path)? };
        let mut on_disk = lock(&files);
        let makes = matches!(options.access, OpenAccess::Create | OpenAccess::CreateNew);
        if makes {
            on_disk.by_name.entry(name.clone()).or_default();
        }
        on_disk.file(&name)?;
        on_disk.open += 1;
        drop(on_disk);
        Ok(Handle { files, name })
    }

    fn delete(&self, path: &str) -> Result<(), Error> {
        if path.starts_with(TEMPORARY) {
            return Ok(());
        }
        let (files, name) = find(path)?;
        lock(&files).delete(&name)
    }

    fn exists(&self, path: &str) -> Result<bool, Error> {
        let (files, name) = find(path)?;
        Ok(lock(&files).by_name.contains_key(&name))
    }

    fn temporary_name(&self) -> String {
        format!("{TEMPORARY}file")
    }

    /// SQLite calls this only for the default file system, which this is not.
    fn random(&self, buffer: &mut [i8]) {
        buffer.fill(0);
    }

    /// No other connection holds a file, so there is nothing to wait for.
    fn sleep(&self, duration: Duration) -> Duration {
        duration
    }
}

impl DatabaseHandle for Handle {
    type WalIndex = WalDisabled;

    fn size(&self) -> Result<u64, Error> {
        Ok(lock(&self.files).file(&self.name)?.now.len())
    }

    fn read_exact_at(&mut self, to: &mut [u8], at: u64) -> Result<(), Error> {
        let whole = lock(&self.files).file(&self.name)?.now.read(at, to);
        if whole { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn write_all_at(&mut self, bytes: &[u8], at: u64) -> Result<(), Error> {
        lock(&self.files).write(&self.name, Change::Write(at, bytes.to_vec()))
    }

    fn sync(&mut self, _data_only: bool) -> Result<(), Error> {
        lock(&self.files).sync(&self.name)
    }

    fn set_len(&mut self, len: u64) -> Result<(), Error> {
        lock(&self.files).truncate(&self.name, len)
    }

    fn lock(&mut self, _lock: LockKind) -> Result<bool, Error> {
        Ok(true)
    }

    fn reserved(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    fn current_lock(&self) -> Result<LockKind, Error> {
        Ok(LockKind::None)
    }

    fn wal_index(&self, _readonly: bool) -> Result<WalDisabled, Error> {
        Ok(WalDisabled)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.files).open -= 1;
    }
}
