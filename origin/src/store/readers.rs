//! A few read-only connections, lent out one at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{StoreError, open_readonly};
use crate::backlog::Backlog;
use crate::read::View;

/// The connections. Cloning gives another handle to the same ones.
#[derive(Debug, Clone)]
pub struct Readers {
    data: PathBuf,
    backlog: Backlog,
    idle: Arc<Mutex<Vec<Connection>>>,
    places: Arc<Semaphore>,
}

/// Why a read gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process is ending.
    #[error("the origin is stopping")]
    Stopping,
}

impl Readers {
    /// At most `places` connections to the store in `data`, opened when first needed; facts of the backlog are joined
    /// with what it holds.
    #[must_use]
    pub fn new(data: &Path, backlog: Backlog, places: usize) -> Self {
        Self { data: data.to_owned(), backlog, idle: Arc::default(), places: Arc::new(Semaphore::new(places)) }
    }

    /// Facts that are durable in the log and not folded yet.
    #[must_use]
    pub fn unfolded(&self) -> usize {
        if self.backlog.is_empty() { 0 } else { self.backlog.facts() }
    }

    /// Runs one read in a thread that may block, in one snapshot of the store.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&View<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let places = Arc::clone(&self.places);
        let place = places.acquire_owned().await.map_err(|_| ReadError::Stopping)?;
        let readers = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let _place = place;
            let mut conn = readers.lend()?;
            // Before the snapshot: what is folded in between is seen in the store.
            let reader = readers.backlog.reader();
            // One transaction, so that all statements of the read see the same state.
            let snapshot = conn.transaction()?;
            let found = read(&View::whole(&snapshot, &reader)?)?;
            snapshot.commit()?;
            readers.take_back(conn);
            Ok(found)
        });
        task.await.map_err(|_| ReadError::Stopping)?.map_err(ReadError::Store)
    }

    fn lend(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| open_readonly(&self.data), Ok)
    }

    /// A connection whose read failed does not come back: the next read opens a fresh one.
    fn take_back(&self, conn: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
    }
}
