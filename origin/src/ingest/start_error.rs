//! Errors of starting a thread over the store.

use crate::ingest::log::LogError;
use crate::store::{OpenError, StoreError};

/// An error of starting a thread over the store.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The thread's connection cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The waiting records of the log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system starts no thread.
    #[error("the operating system starts no thread `{name}`")]
    Thread {
        /// Name of the thread.
        name: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Starts a thread with a name.
///
/// # Errors
/// [`StartError::Thread`].
pub(crate) fn spawn_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, StartError> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map_err(|source| StartError::Thread { name: name.to_owned(), source })
}
