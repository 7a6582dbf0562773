//! Statements of the table `exposures`: the first arm of an experiment that a visitor saw.

/// Exposures of a visitor. `?1` visitor row.
pub(crate) const EXPOSURES_OF_VISITOR: &str = "SELECT experiment, arm, at, mixed FROM exposures WHERE visitor = ?1";

/// Writes a visitor's exposure to an experiment, and replaces the stored one.
pub(crate) const EXPOSURES_REPLACE: &str =
    "INSERT OR REPLACE INTO exposures (visitor, experiment, arm, at, mixed) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Deletes all exposures of a visitor. `?1` visitor row.
pub(crate) const EXPOSURES_DELETE_OF_VISITOR: &str = "DELETE FROM exposures WHERE visitor = ?1";

/// Deletes a visitor's exposures to experiments below a code. `?1` visitor row, `?2` code.
pub(crate) const EXPOSURES_DELETE_BELOW: &str = "DELETE FROM exposures WHERE visitor = ?1 AND experiment < ?2";
