//! Statements of the table `erased`: the erased visitors.

/// Reads the receipt of the erasure of visitor `?2`.
pub(crate) const ERASED_RECEIPT_OF_VISITOR: &str = "SELECT receipt FROM erased WHERE tenant = ?1 AND visitor = ?2";

/// Reads all erased visitors with the names of their tenants.
pub(crate) const ERASED_ALL_WITH_TENANT_NAMES: &str =
    "SELECT t.name, e.receipt, e.at, e.visitor FROM erased e JOIN tenants t USING (tenant)";

/// Inserts an erased visitor. The first erasure stays.
pub(crate) const ERASED_INSERT: &str =
    "INSERT OR IGNORE INTO erased (tenant, visitor, at, receipt) VALUES (?1, ?2, ?3, ?4)";
