//! Statements of the table `fact_ids_over`: FactIds of days that filled their rows in `fact_ids`.

/// A row if a FactId is stored. `?1` visitor row, `?2` day, `?3` first eight bytes of the FactId.
pub(crate) const FACT_IDS_OVER_HAS: &str = "SELECT 1 FROM fact_ids_over WHERE visitor = ?1 AND day = ?2 AND id = ?3";

/// Inserts one FactId, unless it is stored.
pub(crate) const FACT_IDS_OVER_INSERT_NEW: &str =
    "INSERT OR IGNORE INTO fact_ids_over (visitor, day, id) VALUES (?1, ?2, ?3)";

/// Deletes a bounded number of a visitor's FactIds of earlier days. `?1` visitor row, `?2` first day that remains, `?3`
/// maximum rows.
pub(crate) const FACT_IDS_OVER_DELETE_SOME_BEFORE: &str = "DELETE FROM fact_ids_over WHERE (visitor, day, id) IN
    (SELECT visitor, day, id FROM fact_ids_over WHERE visitor = ?1 AND day < ?2 LIMIT ?3)";
