//! Removal of visitors from the reports of jobs.

use crate::store::StoreError;
use crate::store::tables::runs;
use causeway_shared::base::ids::VisitorId;
use rusqlite::Connection;

/// Removes the list that contains a visitor from all reports of `reconcile`.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub(crate) fn forget_visitor(conn: &Connection, visitor: VisitorId) -> Result<(), StoreError> {
    conn.prepare_cached(runs::RUNS_REMOVE_FROM_REPORTS)?.execute([visitor.to_string()])?;
    Ok(())
}
