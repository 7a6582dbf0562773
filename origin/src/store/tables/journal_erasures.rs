//! Statements of the table `erasures` in the erasure journal's file: the facts of all erasures.

/// Inserts an erasure, unless it is there.
pub(crate) const JOURNAL_ERASURES_INSERT: &str = "INSERT OR IGNORE INTO erasures (tenant, fact) VALUES (?1, ?2)";

/// Reads all erasures, in the order of the key.
pub(crate) const JOURNAL_ERASURES_ALL: &str = "SELECT tenant, fact FROM erasures ORDER BY tenant, fact";
