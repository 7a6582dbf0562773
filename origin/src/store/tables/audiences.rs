//! Statements of the table `audiences`: the materialised audiences.

/// Sets the next due time `?3` of an audience, unless the audience was changed during the refresh: `?4` and `?5` are
/// the filter and the due time at the start of the refresh.
pub(crate) const AUDIENCES_SET_DUE_IF_UNCHANGED: &str =
    "UPDATE audiences SET due = ?3 WHERE tenant = ?1 AND segment = ?2 AND filter IS ?4 AND due IS ?5";

/// Counts the audiences of tenant `?1` without segment `?2`.
pub(crate) const AUDIENCES_COUNT_OTHERS: &str = "SELECT count(*) FROM audiences WHERE tenant = ?1 AND segment <> ?2";

/// Inserts an audience without members, or replaces its filter, its times and its due time. The members stay until the
/// next refresh.
pub(crate) const AUDIENCES_UPSERT: &str =
    "INSERT INTO audiences (tenant, segment, filter, hours, every_hours, due, members)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)
    ON CONFLICT DO UPDATE SET filter = ?3, hours = ?4, every_hours = ?5, due = ?6";

/// Removes the filter of an audience and makes it due at `?3`. The refresh then removes all members.
pub(crate) const AUDIENCES_CLEAR_FILTER: &str =
    "UPDATE audiences SET filter = NULL, due = ?3 WHERE tenant = ?1 AND segment = ?2";

/// Reads all audiences, or the audiences of tenant `?1` if it is not NULL, in the order of the key.
pub(crate) const AUDIENCES_ALL_OR_OF_TENANT: &str =
    "SELECT tenant, segment, filter, hours, every_hours, due, refreshed, members FROM audiences
    WHERE ?1 IS NULL OR tenant = ?1 ORDER BY tenant, segment";

/// Deletes an audience if its filter was removed.
pub(crate) const AUDIENCES_DELETE_IF_CLEARED: &str =
    "DELETE FROM audiences WHERE tenant = ?1 AND segment = ?2 AND filter IS NULL";

/// Sets the time `?3` of the last refresh and the number `?4` of members.
pub(crate) const AUDIENCES_SET_REFRESHED: &str =
    "UPDATE audiences SET refreshed = ?3, members = ?4 WHERE tenant = ?1 AND segment = ?2";

/// Reads the segments of all audiences.
pub(crate) const AUDIENCES_SEGMENTS: &str = "SELECT tenant, segment FROM audiences";
