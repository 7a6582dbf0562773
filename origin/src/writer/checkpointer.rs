//! Moves what was committed from the store's write-ahead log into its file, beside the thread that folds: for what that
//! thread moves itself, all facts that come next would wait.
//!
//! SQLite's passive checkpoint goes on beside readers and writers, and moves what is there when it begins. The log begins
//! anew only when all is moved between two transactions, which under load is seldom so: once it is [`LONG`] the thread that
//! folds moves the rest of it after all.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::store::{self, StoreError};

/// Facts folded between two checkpoints: 20 MB of pages where each is of somebody else.
const FACTS: u64 = 5_000;
/// Pages of a write-ahead log that is long: 256 MB.
const LONG: u32 = 64_000;

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
    while asked.recv().is_ok() {
        if let Err(e) = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            tracing::warn!(error = %crate::chain(&e), "a checkpoint failed; the next one does it");
        }
    }
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
            std::fs::copy(store::file(folder.path()), store::file(copy.path())).unwrap();
            Connection::open(store::file(copy.path())).and_then(|conn| {
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
}
