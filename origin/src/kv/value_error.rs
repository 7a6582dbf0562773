//! Why the value of a KV key could not be built.

use crate::store::StoreError;

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The value could not be read back as what it was built from, or has no place in its form.
    #[error("the value failed its check: {0}")]
    Check(&'static str),
    /// What it points to is not known to be in the KV.
    #[error("the KV has not acknowledged what it points to")]
    NotYet,
}

impl From<rusqlite::Error> for ValueError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}
