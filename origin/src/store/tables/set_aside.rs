//! Statements of the table `set_aside`: facts that wait because a row cannot be read.

/// A row if facts wait for a row. `?1` visitor row.
pub(crate) const SET_ASIDE_HAS_OF_ROW: &str = "SELECT 1 FROM set_aside WHERE row = ?1 LIMIT 1";

/// Number of waiting facts.
pub(crate) const SET_ASIDE_COUNT: &str = "SELECT count(*) FROM set_aside";

/// Facts that wait for a row, with their tenant, in the order of their arrival. `?1` visitor row, or the negated tenant
/// for facts without a visitor.
pub(crate) const SET_ASIDE_OF_ROW: &str = "SELECT ifnull(v.tenant, -a.row), a.fact, a.admin, a.said
    FROM set_aside a LEFT JOIN visitors v USING (row) WHERE a.row = ?1 ORDER BY a.rowid";

/// Inserts a waiting fact, unless it is stored.
pub(crate) const SET_ASIDE_INSERT_NEW: &str =
    "INSERT OR IGNORE INTO set_aside (row, id, fact, admin, said) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Deletes the facts that wait for a row. `?1` visitor row.
pub(crate) const SET_ASIDE_DELETE_OF_ROW: &str = "DELETE FROM set_aside WHERE row = ?1";
