//! Removal of visitors from the reports of jobs.

use crate::store::StoreError;
use causeway_shared::base::ids::VisitorId;
use rusqlite::Connection;

/// Removes the list that contains a visitor from all reports of `reconcile`.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub(crate) fn forget_visitor(conn: &Connection, visitor: VisitorId) -> Result<(), StoreError> {
    const FORGET: &str = "UPDATE runs SET report = json_remove(report, '$.first')
        WHERE job = 'reconcile' AND instr(report, ?1) > 0";
    conn.prepare_cached(FORGET)?.execute([visitor.to_string()])?;
    Ok(())
}
