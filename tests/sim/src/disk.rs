//! An in-memory disk for SQLite with injected faults: it fails from the n-th write on, is full, or loses unsynced
//! writes when the power fails.
//!
//! Connections share no memory: each file has one connection at a time, in exclusive locking mode, and SQLite keeps the
//! index of the write-ahead log itself. Locks are always granted.

mod content;
#[cfg(test)]
mod tests;
mod vfs;

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rusqlite::{Connection, OpenFlags};

use content::{Change, Content};

/// The existing disks by number; SQLite knows a file by its path only.
static DISKS: Mutex<BTreeMap<u64, Weak<Mutex<Files>>>> = Mutex::new(BTreeMap::new());
static MADE: AtomicU64 = AtomicU64::new(0);

/// A disk. A clone is another handle to the same disk.
#[derive(Debug, Clone)]
pub struct Disk {
    number: u64,
    files: Arc<Mutex<Files>>,
}

/// The files of a disk and its injected faults.
#[derive(Debug, Default)]
struct Files {
    by_name: BTreeMap<String, File>,
    /// Open file handles of SQLite.
    open: u64,
    writes: u64,
    fails_from: Option<u64>,
    /// The first write that failed; a part of it may still reach the disk.
    cut: Option<(String, Change)>,
    limit: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct File {
    /// Content as the process sees it.
    now: Content,
    /// Content at the last sync.
    synced: Content,
    /// Changes since the last sync, in order.
    pending: Vec<Change>,
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::of(BTreeMap::new())
    }

    fn of(by_name: BTreeMap<String, File>) -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let files = Arc::new(Mutex::new(Files { by_name, ..Files::default() }));
        let mut disks = disks();
        disks.retain(|_, disk| disk.strong_count() > 0);
        disks.insert(number, Arc::downgrade(&files));
        Self { number, files }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        lock(&self.files)
    }

    /// A copy of the files on a new disk without faults; it contains synced and unsynced content.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self::of(self.files().by_name.clone())
    }

    /// The path by which SQLite opens a file of this disk.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.number)
    }

    /// Opens a database on this disk, for one connection at a time. Creates it if it is absent.
    ///
    /// # Errors
    /// The error of SQLite.
    pub fn open(&self, name: &str) -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags_and_vfs(self.path(name), OpenFlags::default(), vfs::name().as_str())?;
        conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        Ok(conn)
    }

    /// Number of writes, truncations, deletions and syncs so far, including failed ones.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.files().writes
    }

    /// Lets the `n`-th next write, truncation, deletion or sync fail, and all after it; 1 is the next one. `None`: none
    /// fails.
    pub fn fail_after(&self, n: Option<u64>) {
        let mut files = self.files();
        files.fails_from = n.map(|n| files.writes.saturating_add(n));
    }

    /// Limits the total size of the files; a write that would exceed it fails. `None`: no limit.
    pub fn limit(&self, bytes: Option<u64>) {
        self.files().limit = bytes;
    }

    /// Total size of the files in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files().bytes()
    }

    /// Ends the process while the machine keeps running: written data stays, synced or not, and a part of the write
    /// that failed first may be added. `random(n)` returns a number below `n`. Ends the injected fault.
    ///
    /// All connections must be closed, and closed while the disk failed; otherwise SQLite cleans up on closing.
    pub fn crash(&self, random: &mut impl FnMut(u64) -> u64) {
        let mut files = self.files();
        if let Some((name, change)) = files.end() {
            files.by_name.entry(name).or_default().change(change.part(random));
        }
    }

    /// Fails the power: a random selection of the unsynced writes reaches the disk, some of them in part. Ends the
    /// injected fault. All connections must be closed, as for [`Disk::crash`].
    pub fn power_loss(&self, random: &mut impl FnMut(u64) -> u64) {
        let mut files = self.files();
        if let Some((name, change)) = files.end() {
            files.by_name.entry(name).or_default().pending.push(change);
        }
        files.by_name.values_mut().for_each(|file| file.lose(random));
    }
}

impl Files {
    /// Ends the injected fault; returns the first write that failed.
    fn end(&mut self) -> Option<(String, Change)> {
        assert_eq!(self.open, 0, "a process that ended holds no files: drop its connections first");
        self.fails_from = None;
        self.cut.take()
    }

    fn bytes(&self) -> u64 {
        self.by_name.values().map(|file| file.now.len()).sum()
    }

    /// Counts a write; returns an error if it must fail.
    fn count(&mut self) -> Result<(), Error> {
        self.writes += 1;
        if self.fails_from.is_some_and(|from| self.writes >= from) { Err(ErrorKind::Other.into()) } else { Ok(()) }
    }

    fn file(&mut self, name: &str) -> Result<&mut File, Error> {
        self.by_name.get_mut(name).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn write(&mut self, name: &str, change: Change) -> Result<(), Error> {
        if let Err(e) = self.count() {
            // A part of the first failed write may still reach the disk.
            if self.fails_from == Some(self.writes) {
                self.cut = Some((name.to_owned(), change));
            }
            return Err(e);
        }
        let grows = change.end().saturating_sub(self.file(name)?.now.len());
        if grows > 0 && self.limit.is_some_and(|limit| self.bytes() + grows > limit) {
            // SQLite reports it as "database or disk is full".
            return Err(ErrorKind::WriteZero.into());
        }
        self.file(name)?.change(change);
        Ok(())
    }

    fn truncate(&mut self, name: &str, len: u64) -> Result<(), Error> {
        // A larger size is only a hint about future growth; a disk may ignore it.
        if len < self.file(name)?.now.len() {
            self.count()?;
            self.file(name)?.change(Change::Truncate(len));
        }
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Result<(), Error> {
        self.count()?;
        self.file(name)?.sync();
        Ok(())
    }

    /// A deletion is durable at once: SQLite deletes a file only when its content is no longer needed.
    fn delete(&mut self, name: &str) -> Result<(), Error> {
        self.count()?;
        self.by_name.remove(name).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl File {
    fn change(&mut self, change: Change) {
        self.now.apply(&change);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            self.synced.share(&self.now, &change);
        }
    }

    /// A disk writes sectors in any order, but the writes that survive keep their order.
    fn lose(&mut self, random: &mut impl FnMut(u64) -> u64) {
        let all = match random(4) {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        for change in self.pending.drain(..) {
            if all.unwrap_or_else(|| random(2) == 0) {
                let torn = all.is_none() && random(4) == 0;
                self.synced.apply(&if torn { change.part(random) } else { change });
            }
        }
        self.now = self.synced.clone();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn disks() -> MutexGuard<'static, BTreeMap<u64, Weak<Mutex<Files>>>> {
    lock(&DISKS)
}
