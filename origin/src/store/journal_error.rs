//! Errors of opening the journal of erasures.

use crate::store::error::StoreError;
use std::path::PathBuf;

/// The journal of erasures exists and cannot be read. Without it, erased visitors might come back.
#[derive(Debug, thiserror::Error)]
#[error("the journal of erasures {} cannot be read", path.display())]
pub struct JournalError {
    /// The journal's file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: StoreError,
}
