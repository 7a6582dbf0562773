//! Statements of the table `anonymous_facts`: FactIds of counted actions without a visitor.

/// Inserts the FactId of an action without a visitor, unless it is stored.
pub(crate) const ANONYMOUS_FACTS_INSERT_NEW: &str =
    "INSERT OR IGNORE INTO anonymous_facts (tenant, day, id) VALUES (?1, ?2, ?3)";

/// Deletes at most 10000 FactIds of a tenant's earlier days. `?1` tenant, `?2` first day that remains.
pub(crate) const ANONYMOUS_FACTS_DELETE_SOME_BEFORE: &str = "DELETE FROM anonymous_facts WHERE (tenant, day, id) IN
    (SELECT tenant, day, id FROM anonymous_facts WHERE tenant = ?1 AND day < ?2 LIMIT 10000)";
