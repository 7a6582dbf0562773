//! Moves commits from the store's write-ahead log into its file, in parallel with the folding thread, whose own
//! checkpoints would delay all following facts.
//!
//! SQLite's passive checkpoint runs in parallel with readers and writers, and moves the pages that exist at its begin.
//! The log restarts from its beginning only if all pages are moved between two transactions and no connection reads
//! them, which is rare under load, because reads overlap. Once the log has [`RESTART`] pages, this thread forces a
//! restart, for which writers wait briefly; once it has [`LONG`] pages, the folding thread moves the rest itself.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::ingest::start_error::{StartError, spawn_thread};
use crate::store::{self, StoreError};

/// Facts folded between two checkpoints: 20 MB of pages if each belongs to another visitor.
const FACTS: u64 = 5_000;
/// Pages of a write-ahead log at which the folding thread moves the rest: 256 MB.
const LONG: u32 = 64_000;
/// Pages of a write-ahead log at which it is restarted: 64 MB.
const RESTART: i64 = if cfg!(test) { 10 } else { 16_000 };
/// Longest wait of writers for current readers of the log. Later readers need none of its pages.
const RESTART_WAIT: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(2) };
/// Pause after an attempt that found too many readers.
const RESTART_PAUSE: Duration = Duration::from_secs(30);

/// Handle to the checkpoint thread.
#[derive(Debug)]
pub struct Checkpointer {
    due: SyncSender<()>,
    thread: JoinHandle<()>,
    /// Facts folded since the last request.
    facts: u64,
}

impl Checkpointer {
    /// Starts the thread on the store in `data`, for the connection that folds.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(folding: &Connection, data: &Path) -> Result<Self, StartError> {
        let conn = store::open(data)?;
        folding.pragma_update(None, "wal_autocheckpoint", LONG).map_err(StoreError::from)?;
        let (due, asked) = sync_channel(1);
        let thread = spawn_thread("checkpoint", move || run(&conn, &asked))?;
        Ok(Self { due, thread, facts: 0 })
    }

    /// Adds newly folded facts, and requests a checkpoint after enough of them.
    pub fn folded(&mut self, facts: u64) {
        self.facts += facts;
        if self.facts >= FACTS {
            // A waiting request covers these facts too.
            self.due.try_send(()).unwrap_or_default();
            self.facts = 0;
        }
    }

    /// Ends the thread after its requested checkpoint.
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

/// The result of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointResult {
    /// The pages that existed are in the file.
    Moved,
    /// The next write starts the log from its beginning.
    Restarted,
    /// The log is long, and another connection reads it for too long.
    Busy,
}

/// Moves the pages of the write-ahead log into the file, and restarts a long log.
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
        let fold = |facts: &[u64]| {
            let mut checkpointer = Checkpointer::start(&folding, folder.path()).unwrap();
            facts.iter().for_each(|facts| checkpointer.folded(*facts));
            checkpointer.end();
        };
        let tenant = store::tenant_no(&folding, "demo").unwrap();
        fold(&[FACTS - 1]);
        assert!(in_file().is_err());
        fold(&[FACTS - 1, 1]);
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
            // Each reader starts before the previous one ends.
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
