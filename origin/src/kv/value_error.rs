//! Errors of building the value of a KV key.

use crate::store::StoreError;

/// The reason why a value could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The value read back differs from its source, or does not fit its form.
    #[error("the value failed its check: {0}")]
    Check(&'static str),
    /// The KV may not have the value that it points to.
    #[error("the KV has not acknowledged what it points to")]
    NotYet,
}

impl From<rusqlite::Error> for ValueError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}
