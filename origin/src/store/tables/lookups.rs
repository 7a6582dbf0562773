//! Statements of the table `lookups`: the visitors last seen with an alternate id.

/// Tenant, kind and hash of all lookups of all tenants.
pub(crate) const LOOKUPS_KEYS: &str = "SELECT tenant, kind, hash FROM lookups";

/// A page of all ids with a KV key: lookups, alternate hashes and erased ids. `?1` to `?3` tenant, kind and hash before
/// the page, `?4` maximum ids, `?5` skipped ids. SQLite merges the tables in the order of their primary keys, so that a
/// page costs the same at the end as at the beginning.
pub(crate) const LOOKUPS_PAGE_WITH_ALTERNATES_AND_ERASED: &str =
    "SELECT tenant, kind, hash FROM lookups WHERE (tenant, kind, hash) > (?1, ?2, ?3)
    UNION SELECT tenant, kind, hash FROM alternates WHERE (tenant, kind, hash) > (?1, ?2, ?3)
    UNION SELECT tenant, kind, hash FROM erased_ids WHERE (tenant, kind, hash) > (?1, ?2, ?3)
    ORDER BY 1, 2, 3 LIMIT ?4 OFFSET ?5";

/// A page of lookups of all tenants, in the order of the primary key. `?1` to `?3` tenant, kind and hash before the
/// page, `?4` maximum rows.
pub(crate) const LOOKUPS_PAGE: &str = "SELECT tenant, kind, hash FROM lookups WHERE (tenant, kind, hash) > (?1, ?2, ?3)
    ORDER BY tenant, kind, hash LIMIT ?4";

/// A page of the hashes of a tenant's kind, from lookups and alternate hashes, in their order. `?1` tenant, `?2` kind,
/// `?3` hash before the page, `?4` hash after the range, `?5` maximum hashes.
pub(crate) const LOOKUPS_HASHES_IN_RANGE_WITH_ALTERNATES: &str =
    "SELECT hash FROM lookups WHERE tenant = ?1 AND kind = ?2 AND hash > ?3 AND hash < ?4
    UNION SELECT hash FROM alternates WHERE tenant = ?1 AND kind = ?2 AND hash > ?3 AND hash < ?4
    ORDER BY 1 LIMIT ?5";

/// Visitors of a lookup, and the time since which its first visitor is the first. `?1` tenant, `?2` kind, `?3` hash.
pub(crate) const LOOKUPS_OF_ID: &str =
    "SELECT visitors, since FROM lookups WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";

/// Inserts a lookup without visitors, which makes its hash known. `?1` tenant, `?2` kind, `?3` hash.
pub(crate) const LOOKUPS_INSERT_EMPTY: &str = "INSERT INTO lookups (tenant, kind, hash, visitors, since, version)
    VALUES (?1, ?2, ?3, x'', 0, 0)";

/// Writes the visitors of a lookup if they differ. `?1` tenant, `?2` kind, `?3` hash, `?4` visitors, `?5` time, `?6`
/// version counter. `since` changes with the first visitor only.
pub(crate) const LOOKUPS_SET_VISITORS: &str = "UPDATE lookups SET visitors = ?4, version = ?6,
        since = CASE WHEN substr(visitors, 1, 16) = substr(?4, 1, 16) THEN since ELSE ?5 END
    WHERE tenant = ?1 AND kind = ?2 AND hash = ?3 AND visitors <> ?4";

/// Deletes one lookup. `?1` tenant, `?2` kind, `?3` hash.
pub(crate) const LOOKUPS_DELETE: &str = "DELETE FROM lookups WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";
