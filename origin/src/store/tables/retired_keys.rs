//! Statements of the table `retired_keys`: keys of alternate ids with deleted lookups.

/// Reads whether the lookups of a retired key were deleted.
pub(crate) const RETIRED_KEYS_EXISTS: &str = "SELECT 1 FROM retired_keys WHERE tenant = ?1 AND kind = ?2 AND key = ?3";

/// Inserts a retired key with deleted lookups, unless it is there.
pub(crate) const RETIRED_KEYS_INSERT: &str =
    "INSERT OR IGNORE INTO retired_keys (tenant, kind, key) VALUES (?1, ?2, ?3)";

/// Deletes a key that is read again, after its lookups became due.
pub(crate) const RETIRED_KEYS_DELETE: &str = "DELETE FROM retired_keys WHERE tenant = ?1 AND kind = ?2 AND key = ?3";

/// Reads all retired keys.
pub(crate) const RETIRED_KEYS_ALL: &str = "SELECT tenant, kind, key FROM retired_keys";
