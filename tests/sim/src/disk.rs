//! A disk for SQLite in memory, which fails as it is told: at the n-th write, when it is full, and by losing what was not
//! synced when the power goes.
//!
//! It has no memory that connections share: each file has one connection at a time, in exclusive locking mode, and SQLite
//! keeps the index of the write-ahead log by itself. Locks are always granted.

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

/// The disks there are, for SQLite, which knows a file by its path only.
static DISKS: Mutex<BTreeMap<u64, Weak<Mutex<Files>>>> = Mutex::new(BTreeMap::new());
static MADE: AtomicU64 = AtomicU64::new(0);

/// A disk. Cloning gives another handle to the same one.
#[derive(Debug, Clone)]
pub struct Disk {
    number: u64,
    files: Arc<Mutex<Files>>,
}

/// What is on a disk, and how it is to fail.
#[derive(Debug, Default)]
struct Files {
    by_name: BTreeMap<String, File>,
    /// Handles that SQLite holds.
    open: u64,
    writes: u64,
    fails_from: Option<u64>,
    /// The write at which it began to fail.
    cut: Option<(String, Change)>,
    limit: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct File {
    /// As the process sees it.
    now: Content,
    /// As it was when it was synced last.
    synced: Content,
    /// What lies between the two, in order.
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

    /// The same files on a disk of its own, which does not fail: what the process sees, and what of it is synced.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self::of(self.files().by_name.clone())
    }

    /// The path by which SQLite knows a file of this disk.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.number)
    }

    /// Opens a database on this disk, made if need be, for one connection at a time.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(&self, name: &str) -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags_and_vfs(self.path(name), OpenFlags::default(), vfs::name().as_str())?;
        conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        Ok(conn)
    }

    /// Writes, truncations, deletions and syncs so far, failed ones among them.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.files().writes
    }

    /// Has the `n`-th of these from now fail, and all after it; 1 is the next. `None`: none fails.
    pub fn fail_after(&self, n: Option<u64>) {
        let mut files = self.files();
        files.fails_from = n.map(|n| files.writes.saturating_add(n));
    }

    /// Lets the files take no more than this many bytes in all: what would make them larger fails. `None`: no limit.
    pub fn limit(&self, bytes: Option<u64>) {
        self.files().limit = bytes;
    }

    /// Bytes that the files take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files().bytes()
    }

    /// The process died, and the machine goes on: what was written is there, synced or not, and of the write at which it
    /// began to fail a part. `random(n)` gives a number below `n`. It fails no longer.
    ///
    /// The connections must be gone, and gone while the disk failed, or SQLite tidied up in passing.
    pub fn crash(&self, random: &mut impl FnMut(u64) -> u64) {
        let mut files = self.files();
        if let Some((name, change)) = files.end() {
            files.by_name.entry(name).or_default().change(change.part(random));
        }
    }

    /// The power went: of what was not synced a random part is there, of some writes a part. It fails no longer. The
    /// connections must be gone, as for [`Disk::crash`].
    pub fn power_loss(&self, random: &mut impl FnMut(u64) -> u64) {
        let mut files = self.files();
        if let Some((name, change)) = files.end() {
            files.by_name.entry(name).or_default().pending.push(change);
        }
        files.by_name.values_mut().for_each(|file| file.lose(random));
    }
}

impl Files {
    /// Forgets how to fail; gives the write at which it began to.
    fn end(&mut self) -> Option<(String, Change)> {
        assert_eq!(self.open, 0, "a process that is gone holds no files: drop its connections first");
        self.fails_from = None;
        self.cut.take()
    }

    fn bytes(&self) -> u64 {
        self.by_name.values().map(|file| file.now.len()).sum()
    }

    /// Counts a write, which fails if it is to.
    fn count(&mut self) -> Result<(), Error> {
        self.writes += 1;
        if self.fails_from.is_some_and(|from| self.writes >= from) { Err(ErrorKind::Other.into()) } else { Ok(()) }
    }

    fn file(&mut self, name: &str) -> Result<&mut File, Error> {
        self.by_name.get_mut(name).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn write(&mut self, name: &str, change: Change) -> Result<(), Error> {
        if let Err(e) = self.count() {
            // Of the first that fails, some may still arrive.
            if self.fails_from == Some(self.writes) {
                self.cut = Some((name.to_owned(), change));
            }
            return Err(e);
        }
        let grows = change.end().saturating_sub(self.file(name)?.now.len());
        if grows > 0 && self.limit.is_some_and(|limit| self.bytes() + grows > limit) {
            // SQLite's words for it are "database or disk is full".
            return Err(ErrorKind::WriteZero.into());
        }
        self.file(name)?.change(change);
        Ok(())
    }

    fn truncate(&mut self, name: &str, len: u64) -> Result<(), Error> {
        // Longer is a hint of how large the file will be, which a disk may leave alone.
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

    /// Durable at once: what a deleted file held was needed no longer, or SQLite would not have deleted it.
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

    /// Sectors of a disk are written in any order, but none goes back: what is kept is kept in order.
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
