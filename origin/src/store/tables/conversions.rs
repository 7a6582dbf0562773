//! Statements of the table `conversions`: events that an experiment counts as conversions.

/// Writes one conversion, and replaces the same conversion.
pub(crate) const CONVERSIONS_REPLACE: &str =
    "INSERT OR REPLACE INTO conversions (visitor, received, id, name, value) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Deletes a visitor's oldest conversions of one name. `?1` visitor row, `?2` number of retained conversions, `?3`
/// name. The bound holds for each name, so that one experiment's events do not displace another's.
pub(crate) const CONVERSIONS_TRIM_NAME: &str =
    "DELETE FROM conversions WHERE visitor = ?1 AND name = ?3 AND (received, id) <= (SELECT received, id
    FROM conversions WHERE visitor = ?1 AND name = ?3 ORDER BY received DESC, id DESC LIMIT 1 OFFSET ?2)";

/// Deletes a visitor's conversions that were received before a time. `?1` visitor row, `?2` time.
pub(crate) const CONVERSIONS_DELETE_BEFORE: &str = "DELETE FROM conversions WHERE visitor = ?1 AND received < ?2";

/// Deletes all conversions of a visitor. `?1` visitor row.
pub(crate) const CONVERSIONS_DELETE_OF_VISITOR: &str = "DELETE FROM conversions WHERE visitor = ?1";
