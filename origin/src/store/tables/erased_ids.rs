//! Statements of the table `erased_ids`: the erased alternate ids.

/// Reads the newest erasure of the alternate id with hash `?3` of kind `?2`.
pub(crate) const ERASED_IDS_BY_HASH: &str =
    "SELECT at, receipt FROM erased_ids WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";

/// Reads all erased ids with the names of their tenants.
pub(crate) const ERASED_IDS_ALL_WITH_TENANT_NAMES: &str =
    "SELECT t.name, e.receipt, e.at, e.kind, e.hash FROM erased_ids e JOIN tenants t USING (tenant)";

/// Inserts an erased alternate id; a newer erasure replaces an older one.
pub(crate) const ERASED_IDS_UPSERT_NEWER: &str =
    "INSERT INTO erased_ids (tenant, kind, hash, at, receipt) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET at = excluded.at, receipt = excluded.receipt WHERE excluded.at > at";
