//! Statements of the table `fact_ids`: packed FactIds that were counted, by visitor and day.

/// FactIds of a visitor, by day and part. `?1` visitor row.
pub(crate) const FACT_IDS_OF_VISITOR: &str = "SELECT day, part, ids FROM fact_ids WHERE visitor = ?1";

/// Writes one part of a day, and replaces its stored FactIds.
pub(crate) const FACT_IDS_UPSERT: &str = "INSERT INTO fact_ids (visitor, day, part, ids) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (visitor, day, part) DO UPDATE SET ids = excluded.ids";

/// Deletes all rows of a visitor. `?1` visitor row.
pub(crate) const FACT_IDS_DELETE_OF_VISITOR: &str = "DELETE FROM fact_ids WHERE visitor = ?1";

/// Deletes a visitor's rows of earlier days. `?1` visitor row, `?2` first day that remains.
pub(crate) const FACT_IDS_DELETE_BEFORE: &str = "DELETE FROM fact_ids WHERE visitor = ?1 AND day < ?2";
