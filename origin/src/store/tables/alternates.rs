//! Statements of the table `alternates`: other hashes of an alternate id, and the canonical one.

/// Hashes of a canonical hash, in the order of the hashes. `?1` tenant, `?2` kind, `?3` canonical hash.
pub(crate) const ALTERNATES_OF_CANONICAL: &str =
    "SELECT hash FROM alternates WHERE tenant = ?1 AND kind = ?2 AND canonical = ?3 ORDER BY hash";

/// Canonical hash of a hash: the stored one, otherwise the hash itself if it has a lookup. `?1` tenant, `?2` kind, `?3`
/// hash.
pub(crate) const ALTERNATES_CANONICAL_OF_HASH: &str =
    "SELECT canonical FROM alternates WHERE tenant = ?1 AND kind = ?2 AND hash = ?3
    UNION ALL SELECT hash FROM lookups WHERE tenant = ?1 AND kind = ?2 AND hash = ?3 LIMIT 1";

/// Tenant, kind and hash of all alternate hashes of all tenants.
pub(crate) const ALTERNATES_KEYS: &str = "SELECT tenant, kind, hash FROM alternates";

/// Inserts a hash with its canonical hash; an existing hash keeps its canonical hash.
pub(crate) const ALTERNATES_INSERT_NEW: &str = "INSERT OR IGNORE INTO alternates (tenant, kind, hash, canonical)
    VALUES (?1, ?2, ?3, ?4)";

/// Points the hashes of one canonical hash to another one. `?1` tenant, `?2` kind, `?3` previous and `?4` new canonical
/// hash.
pub(crate) const ALTERNATES_REPOINT: &str =
    "UPDATE alternates SET canonical = ?4 WHERE tenant = ?1 AND kind = ?2 AND canonical = ?3";
