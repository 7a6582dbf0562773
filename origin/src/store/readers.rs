//! A few read-only connections, lent out one at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::{StoreError, open_readonly};
use crate::backlog::Backlog;
use crate::read::View;

/// How long a read may wait for a connection: whoever asks has given up by then, and others wait behind it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The connections. Cloning gives another handle to the same ones.
#[derive(Debug, Clone)]
pub struct Readers {
    data: PathBuf,
    backlog: Backlog,
    idle: Arc<Mutex<Vec<Connection>>>,
    places: Arc<Semaphore>,
    patience: Duration,
}

/// Why a read gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// All connections were busy for too long.
    #[error("too many reads are under way: come back in a second")]
    Busy,
    /// The process is ending.
    #[error("the origin is stopping")]
    Stopping,
}

impl Readers {
    /// At most `places` connections to the store in `data`, opened when first needed; facts of the backlog are joined
    /// with what it holds.
    #[must_use]
    pub fn new(data: &Path, backlog: Backlog, places: usize) -> Self {
        let (data, places) = (data.to_owned(), Arc::new(Semaphore::new(places)));
        Self { data, backlog, idle: Arc::default(), places, patience: PATIENCE }
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
        let place = tokio::time::timeout(self.patience, Arc::clone(&self.places).acquire_owned()).await;
        self.read_at(place.map_err(|_| ReadError::Busy)?, read).await
    }

    /// The same for a further piece of an answer that is under way, which waits as long as it must.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_on<T: Send + 'static>(
        &self,
        read: impl FnOnce(&View<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        self.read_at(Arc::clone(&self.places).acquire_owned().await, read).await
    }

    async fn read_at<T: Send + 'static>(
        &self,
        place: Result<OwnedSemaphorePermit, AcquireError>,
        read: impl FnOnce(&View<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let place = place.map_err(|_| ReadError::Stopping)?;
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::Origin;

    #[test]
    fn a_read_waits_for_a_connection_for_a_while_and_no_longer() {
        let origin = Origin::new();
        let readers = Readers::new(origin.data(), Backlog::default(), 1);
        let readers = Readers { patience: Duration::from_millis(20), ..readers };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let place = Arc::clone(&readers.places).acquire_owned().await.unwrap();
            assert!(matches!(readers.read(|_| Ok(())).await, Err(ReadError::Busy)));
            drop(place);
            assert!(readers.read(|_| Ok(())).await.is_ok());
        });
    }
}
