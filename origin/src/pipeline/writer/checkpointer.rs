//! Moves what was committed from the store's write-ahead log into its file, beside the thread that folds: for what that
//! thread moves itself, all facts that come next would wait.
//!
//! SQLite's passive checkpoint goes on beside readers and writers, and moves what is there when it begins. The log begins
//! again from the start only when all is moved between two transactions and nobody reads what was in it, which under
//! load is seldom so: reads overlap. Once it is [`RESTART`] long this thread has it begun again, for which writers wait
//! a moment; once it is [`LONG`] the thread that folds moves the rest of it after all.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::store::{self, StoreError};

/// Facts folded between two checkpoints: 20 MB of pages where each is of somebody else.
const FACTS: u64 = 5_000;
/// Pages of a write-ahead log that is long: 256 MB.
const LONG: u32 = 64_000;
/// Pages of a write-ahead log that is begun from the start: 64 MB.
const RESTART: i64 = if cfg!(test) { 10 } else { 16_000 };
/// How long writers wait for those who read what is in it. Who reads later needs nothing of it.
const RESTART_WAIT: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(2) };
/// How long it is left alone after a try that found too many readers.
const RESTART_PAUSE: Duration = Duration::from_secs(30);

/// The way to the thread.
#[derive(Debug)]
pub struct Checkpointer {
    due: SyncSender<()>,
    thread: JoinHandle<()>,
    /// Facts folded since it was asked last.
    facts: u64,
}

impl Checkpointer {
    /// Starts the thread over the store in `data`, for the connection that folds.
    ///
    /// # Errors
    /// [`StoreError`], or when the operating system gives no thread.
    pub fn start(folding: &Connection, data: &Path) -> Result<Self, StoreError> {
        let conn = store::open(data)?;
        folding.pragma_update(None, "wal_autocheckpoint", LONG)?;
        let (due, asked) = sync_channel(1);
        let spawned = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(move || run(&conn, &asked));
        let thread = spawned.map_err(|source| StoreError::Directory { path: data.to_owned(), source })?;
        Ok(Self { due, thread, facts: 0 })
    }

    /// So many facts more were folded.
    pub fn folded(&mut self, facts: u64) {
        self.facts += facts;
        if self.facts >= FACTS {
            // One that waits already is for these too.
            self.due.try_send(()).unwrap_or_default();
            self.facts = 0;
        }
    }

    /// Ends the thread, once it is done with what it was asked for.
    pub fn end(self) {
        drop(self.due);
        self.thread.join().unwrap_or_default();
    }
}

fn run(conn: &Connection, asked: &Receiver<()>) {
    let mut not_before = None;
    while asked.recv().is_ok() {
        let done = checkpoint(conn, not_before.is_none_or(|at| Instant::now() >= at));
        match done {
            Ok(CheckpointResult::Busy) => not_before = Instant::now().checked_add(RESTART_PAUSE),
            Ok(CheckpointResult::Moved | CheckpointResult::Restarted) => {}
            Err(e) => {
                tracing::warn!(error = %crate::base::error_chain(&e), "a checkpoint failed; the next one does it")
            }
        }
    }
}

/// What a checkpoint came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointResult {
    /// What was there is in the file.
    Moved,
    /// The log begins from the start with the next write.
    Restarted,
    /// It is long, and somebody reads from it for too long.
    Busy,
}

/// Moves what is in the write-ahead log, and has a long one begun from the start.
fn checkpoint(conn: &Connection, may_restart: bool) -> Result<CheckpointResult, StoreError> {
    let pages = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(1))?;
    if pages < RESTART || !may_restart {
        return Ok(CheckpointResult::Moved);
    }
    conn.busy_timeout(RESTART_WAIT)?;
    let busy = conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, bool>(0));
    conn.busy_timeout(store::LOCKED)?;
    Ok(if busy? { CheckpointResult::Busy } else { CheckpointResult::Restarted })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::store::TenantNo;

    #[test]
    fn what_was_committed_is_in_the_file_once_enough_was_folded() {
        let folder = tempfile::tempdir().unwrap();
        let folding = store::open(folder.path()).unwrap();
        // The file alone, as if the write-ahead log were lost.
        let in_file = || {
            let copy = tempfile::tempdir().unwrap();
            std::fs::copy(store::store_file(folder.path()), store::store_file(copy.path())).unwrap();
            Connection::open(store::store_file(copy.path())).and_then(|conn| {
                conn.query_row("SELECT tenant FROM tenants WHERE name = 'demo'", [], |row| row.get(0).map(TenantNo))
            })
        };
        let given = |facts: &[u64]| {
            let mut checkpointer = Checkpointer::start(&folding, folder.path()).unwrap();
            facts.iter().for_each(|facts| checkpointer.folded(*facts));
            checkpointer.end();
        };
        let tenant = store::tenant_no(&folding, "demo").unwrap();
        given(&[FACTS - 1]);
        assert!(in_file().is_err());
        given(&[FACTS - 1, 1]);
        assert_eq!(in_file(), Ok(tenant));
    }

    #[test]
    fn a_long_write_ahead_log_begins_from_the_start_though_there_is_always_somebody_who_reads() {
        let folder = tempfile::tempdir().unwrap();
        let (writing, moving) = (store::open(folder.path()).unwrap(), store::open(folder.path()).unwrap());
        writing.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        writing.execute_batch("CREATE TABLE filled (bytes BLOB)").unwrap();
        let read = || {
            let conn = store::open_readonly(folder.path()).unwrap();
            conn.execute_batch("BEGIN; SELECT count(*) FROM filled").unwrap();
            conn
        };
        let (mut reading, mut longest) = (read(), 0);
        for _ in 0..20 {
            writing.execute_batch("INSERT INTO filled VALUES (randomblob(60000))").unwrap();
            // Each begins before the one before it ends.
            drop(std::mem::replace(&mut reading, read()));
            assert_eq!(checkpoint(&moving, true).unwrap(), CheckpointResult::Busy, "it reads from the log");
            assert_eq!(checkpoint(&moving, false).unwrap(), CheckpointResult::Moved);
            drop(std::mem::replace(&mut reading, read()));
            assert_eq!(checkpoint(&moving, true).unwrap(), CheckpointResult::Restarted);
            longest = longest.max(store::wal_bytes(folder.path()));
        }
        assert!((40_000..1 << 20).contains(&longest), "{longest}");
    }
}
