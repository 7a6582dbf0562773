//! Statements of the table `unreadable`: rows that cannot be read.

/// All rows that cannot be read.
pub(crate) const UNREADABLE_ROWS: &str = "SELECT row FROM unreadable";

/// Records that a row cannot be read, unless it is recorded. `?1` visitor row, `?2` time.
pub(crate) const UNREADABLE_INSERT_NEW: &str = "INSERT OR IGNORE INTO unreadable (row, since) VALUES (?1, ?2)";

/// Deletes one row. `?1` visitor row.
pub(crate) const UNREADABLE_DELETE: &str = "DELETE FROM unreadable WHERE row = ?1";
