//! Statements of the table `asked` in the erasure journal's file: the authors and reasons of erasures.

/// Inserts the author and reason of an erasure, unless they are there.
pub(crate) const ASKED_INSERT: &str = "INSERT OR IGNORE INTO asked (tenant, receipt, at, said) VALUES (?1, ?2, ?3, ?4)";

/// Reads all rows, in the order of tenant and time.
pub(crate) const ASKED_ALL: &str = "SELECT tenant, receipt, at, said FROM asked ORDER BY tenant, at, receipt";
