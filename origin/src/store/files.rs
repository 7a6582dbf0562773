//! Detection of a directory that had a store and lost it.

use std::path::Path;

use crate::store::data_fault::{AUDIENCE_INDEX, DataFault, JOURNAL, LOG, LOG_TAIL, LOG_WAL, MARKER};
use crate::store::open_error::OpenError;

pub(crate) fn data_fault(data: &Path, fault: DataFault) -> OpenError {
    OpenError::Data { path: data.to_owned(), fault }
}

/// Refuses to create a store in a directory that had one.
///
/// # Errors
/// [`OpenError::Data`].
pub(crate) fn check_new(data: &Path) -> Result<(), OpenError> {
    let had_one = [MARKER, LOG, LOG_TAIL, LOG_WAL, JOURNAL, AUDIENCE_INDEX].iter().any(|name| data.join(name).exists());
    if had_one { Err(data_fault(data, DataFault::StoreMissing)) } else { Ok(()) }
}
