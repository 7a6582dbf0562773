//! Statements of the table `quarantined_facts`: facts that wait because a row cannot be read.

/// A row if facts wait for a row. `?1` visitor row.
pub(crate) const QUARANTINED_FACTS_HAS_OF_ROW: &str = "SELECT 1 FROM quarantined_facts WHERE row = ?1 LIMIT 1";

/// Number of waiting facts.
pub(crate) const QUARANTINED_FACTS_COUNT: &str = "SELECT count(*) FROM quarantined_facts";

/// Facts that wait for a row, with their tenant, in the order of their arrival. `?1` visitor row, or the negated tenant
/// for facts without a visitor.
pub(crate) const QUARANTINED_FACTS_OF_ROW: &str = "SELECT ifnull(v.tenant, -a.row), a.fact, a.admin, a.said
    FROM quarantined_facts a LEFT JOIN visitors v USING (row) WHERE a.row = ?1 ORDER BY a.rowid";

/// Inserts a waiting fact, unless it is stored.
pub(crate) const QUARANTINED_FACTS_INSERT_NEW: &str =
    "INSERT OR IGNORE INTO quarantined_facts (row, id, fact, admin, said) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Deletes the facts that wait for a row. `?1` visitor row.
pub(crate) const QUARANTINED_FACTS_DELETE_OF_ROW: &str = "DELETE FROM quarantined_facts WHERE row = ?1";
