//! Statements of the table `erasure_requests` in the erasure journal's file: the authors and reasons of erasures.

/// Inserts the author and reason of an erasure, unless they are there.
pub(crate) const ERASURE_REQUESTS_INSERT: &str =
    "INSERT OR IGNORE INTO erasure_requests (tenant, receipt, at, said) VALUES (?1, ?2, ?3, ?4)";

/// Reads all rows, in the order of tenant and time.
pub(crate) const ERASURE_REQUESTS_ALL: &str =
    "SELECT tenant, receipt, at, said FROM erasure_requests ORDER BY tenant, at, receipt";
