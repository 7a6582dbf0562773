//! Statements of the table `audience_members`: the visitors in the segments of materialised audiences.

/// Reads at most `?4` members of segment `?2` after visitor `?3`, in the order of the key; the caller continues after
/// the last one.
pub(crate) const AUDIENCE_MEMBERS_PAGE: &str = "SELECT visitor, until FROM audience_members
    WHERE tenant = ?1 AND segment = ?2 AND visitor > ?3 ORDER BY visitor LIMIT ?4";

/// Inserts or replaces a member with the hour `?4` of its expiry, unless the visitor is erased.
pub(crate) const AUDIENCE_MEMBERS_REPLACE_UNLESS_ERASED: &str =
    "INSERT OR REPLACE INTO audience_members (tenant, segment, visitor, until)
    SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM erased WHERE tenant = ?1 AND visitor = ?3)";

/// Deletes visitor `?3` from segment `?2`.
pub(crate) const AUDIENCE_MEMBERS_DELETE: &str =
    "DELETE FROM audience_members WHERE tenant = ?1 AND segment = ?2 AND visitor = ?3";

/// Deletes visitor `?2` from all segments of tenant `?1`. The list of segments lets SQLite search by the primary key.
pub(crate) const AUDIENCE_MEMBERS_DELETE_VISITOR: &str = "DELETE FROM audience_members WHERE tenant = ?1
    AND segment IN (SELECT segment FROM audiences WHERE tenant = ?1) AND visitor = ?2";
