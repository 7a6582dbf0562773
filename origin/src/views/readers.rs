//! Pool of read-only connections, each used by one read at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ingest::backlog::Backlog;
use crate::store::{OpenError, StoreError, open_readonly};
use crate::views::read::StoreView;

/// Longest wait of a read for a connection. A caller has given up by then, and further reads queue up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest duration of a read. An open read stops SQLite from truncating its write-ahead log.
const LONGEST: Duration = Duration::from_secs(20);
/// Longest duration of a read over very many people.
const LONGEST_HEAVY: Duration = Duration::from_secs(60);
/// Most answers that hold a list of people in memory while they are written to slow callers. A list of a million people
/// takes 16 MB.
const STREAMS: usize = 16;
/// SQLite's virtual machine steps between two checks of the time, which take a few milliseconds.
const STEPS: i32 = 10_000;

/// The pool. Clones share the same connections.
#[derive(Debug, Clone)]
pub struct ReaderPool {
    data: PathBuf,
    backlog: Backlog,
    idle: Arc<Mutex<Vec<Connection>>>,
    places: Arc<Semaphore>,
    /// Semaphore of the connections that heavy reads may use. Cheap reads always find another one.
    heavy: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    patience: Duration,
    longest: [Duration; 2],
}

/// Cost class of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadClass {
    /// Reads a few rows.
    Cheap,
    /// Reads very many people.
    Heavy,
}

/// Permit of an answer to hold a list of people until it is written.
#[derive(Debug)]
pub struct StreamPermit(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit);

/// Reason why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No connection became free in time.
    #[error("too many reads are under way: try again in a second")]
    Busy,
    /// The read exceeded its time limit.
    #[error("the read exceeded its time limit: request less data, or try again when fewer reads are under way")]
    TooLong,
    /// The process is stopping.
    #[error("the origin is stopping")]
    Stopping,
}

impl ReaderPool {
    /// Creates a pool of at most `places` connections to the store in `data`, which are opened when first needed. Reads
    /// join the backlog's facts with the store.
    #[must_use]
    pub fn new(data: &Path, backlog: Backlog, places: usize) -> Self {
        let room = |places| Arc::new(Semaphore::new(places));
        Self {
            data: data.to_owned(),
            backlog,
            idle: Arc::default(),
            places: room(places),
            heavy: room((places / 2).max(1)),
            streams: room(STREAMS),
            patience: PATIENCE,
            longest: [LONGEST, LONGEST_HEAVY],
        }
    }

    /// Number of facts that are durable in the log but not folded.
    #[must_use]
    pub fn unfolded(&self) -> usize {
        if self.backlog.is_empty() { 0 } else { self.backlog.facts() }
    }

    /// Runs a read in a blocking thread, in one snapshot of the store.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StoreView<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let place = self.wait(&self.places).await?;
        self.read_at(vec![place], ReadClass::Cheap, read).await
    }

    /// Runs a read over very many people. Such reads may use only half of the connections; further ones wait.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_heavy<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StoreView<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let places = vec![self.wait(&self.heavy).await?, self.wait(&self.places).await?];
        self.read_at(places, ReadClass::Heavy, read).await
    }

    /// Runs a read for a further part of an answer. It waits for a connection without a limit.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_on<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StoreView<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let stopping = |_| ReadError::Stopping;
        let heavy = Arc::clone(&self.heavy).acquire_owned().await.map_err(stopping)?;
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(stopping)?;
        self.read_at(vec![heavy, place], ReadClass::Heavy, read).await
    }

    /// Permits an answer to hold a list of people while it is written.
    ///
    /// # Errors
    /// [`ReadError::Busy`] if too many answers hold a list.
    pub async fn open_stream(&self) -> Result<StreamPermit, ReadError> {
        self.wait(&self.streams).await.map(StreamPermit)
    }

    async fn wait(&self, room: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ReadError> {
        let place = tokio::time::timeout(self.patience, Arc::clone(room).acquire_owned()).await;
        place.map_err(|_| ReadError::Busy)?.map_err(|_| ReadError::Stopping)
    }

    async fn read_at<T: Send + 'static>(
        &self,
        places: Vec<OwnedSemaphorePermit>,
        class: ReadClass,
        read: impl FnOnce(&StoreView<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let readers = self.clone();
        let [cheap, heavy] = self.longest;
        let longest = if class == ReadClass::Heavy { heavy } else { cheap };
        let task = tokio::task::spawn_blocking(move || {
            let _places = places;
            let mut conn = readers.lend()?;
            let began = Instant::now();
            conn.progress_handler(STEPS, Some(move || began.elapsed() > longest)).map_err(StoreError::from)?;
            // The backlog is read before the snapshot: facts folded in between are then in the store.
            let reader = readers.backlog.reader();
            // One transaction, so that all statements of the read see the same state.
            let snapshot = conn.transaction().map_err(StoreError::from)?;
            let found = read(&StoreView::with_backlog(&snapshot, &reader)?)?;
            snapshot.commit().map_err(StoreError::from)?;
            readers.take_back(conn);
            Ok(found)
        });
        task.await.map_err(|_| ReadError::Stopping)?.map_err(|e: ReadError| {
            if matches!(&e, ReadError::Store(e) if e.is_interrupted()) { ReadError::TooLong } else { e }
        })
    }

    fn lend(&self) -> Result<Connection, OpenError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| open_readonly(&self.data), Ok)
    }

    /// Returns a connection to the pool. A connection whose read failed is dropped, and the next read opens a new one.
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
        let readers = ReaderPool::new(origin.data(), Backlog::default(), 1);
        let readers = ReaderPool { patience: Duration::from_millis(20), ..readers };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let place = Arc::clone(&readers.places).acquire_owned().await.unwrap();
            assert!(matches!(readers.read(|_| Ok(())).await, Err(ReadError::Busy)));
            drop(place);
            assert!(readers.read(|_| Ok(())).await.is_ok());
        });
    }

    #[test]
    fn heavy_reads_leave_connections_to_cheap_ones() {
        let origin = Origin::new();
        let readers = ReaderPool::new(origin.data(), Backlog::default(), 4);
        let readers = ReaderPool { patience: Duration::from_millis(20), ..readers };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let ends = Arc::new(Mutex::new(ends));
            let under_way: Vec<_> = (0..2)
                .map(|_| {
                    let (readers, begun, ends) = (readers.clone(), begun.clone(), Arc::clone(&ends));
                    tokio::spawn(async move {
                        let wait = move |_: &StoreView<'_>| {
                            begun.send(()).unwrap();
                            ends.lock().unwrap().recv().unwrap();
                            Ok(())
                        };
                        readers.read_heavy(wait).await
                    })
                })
                .collect();
            for _ in 0..2 {
                begins.recv().await.unwrap();
            }
            assert!(matches!(readers.read_heavy(|_| Ok(())).await, Err(ReadError::Busy)), "two of four are heavy");
            assert!(readers.read(|_| Ok(())).await.is_ok(), "a cheap one waits for none of them");
            (0..2).for_each(|_| end.send(()).unwrap());
            for read in under_way {
                read.await.unwrap().unwrap();
            }
        });
    }

    #[test]
    fn a_read_that_takes_too_long_is_ended_so_that_the_write_ahead_log_is_not_held() {
        let origin = Origin::new();
        let readers = ReaderPool::new(origin.data(), Backlog::default(), 1);
        let readers = ReaderPool { longest: [Duration::from_millis(20); 2], ..readers };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let endless = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT count(*) FROM n";
            let count = |view: &StoreView<'_>| Ok(view.conn.query_row(endless, [], |row| row.get::<_, i64>(0))?);
            assert!(matches!(readers.read(count).await, Err(ReadError::TooLong)));
            assert!(readers.read(|_| Ok(())).await.is_ok());
        });
    }
}
