//! Statements of the table `audit`: the audit trail.

/// Start of the statements that read rows of tenant `?1` before row `?2`.
macro_rules! before_row {
    () => {
        "SELECT row, at, what, by, name, role, reason, id, count, visitor, other, kind, hash, object FROM audit
        WHERE tenant = ?1 AND row < ?2"
    };
}

/// Reads at most `?3` rows of tenant `?1` before row `?2`, the newest first. `?4` is NULL: both statements of a page
/// have the same parameters.
pub(crate) const AUDIT_BEFORE_ROW: &str = concat!(before_row!(), " AND ?4 IS NULL ORDER BY row DESC LIMIT ?3");

/// Reads at most `?3` rows of tenant `?1` before row `?2` that name visitor `?4` or belong to its erasure, the newest
/// first. Each part of the `UNION` has an index of its own.
pub(crate) const AUDIT_BEFORE_ROW_OF_VISITOR: &str = concat!(
    before_row!(),
    " AND row IN (SELECT row FROM audit WHERE tenant = ?1 AND visitor = ?4
        UNION SELECT row FROM audit WHERE tenant = ?1 AND other = ?4
        UNION SELECT row FROM audit WHERE tenant = ?1
            AND id = (SELECT receipt FROM erased WHERE tenant = ?1 AND visitor = ?4)) ORDER BY row DESC LIMIT ?3"
);

/// Inserts a row, or adds to the count of the row with the same id and time.
pub(crate) const AUDIT_INSERT_OR_COUNT: &str = "INSERT INTO audit
        (tenant, id, at, what, by, name, role, reason, visitor, other, kind, hash, count)
    VALUES (:tenant, :id, :at, :what, :by, :name, :role, :reason, :visitor, :other, :kind, :hash, :count)
    ON CONFLICT (tenant, id, at) DO UPDATE SET count = count + excluded.count";

/// Inserts the row of a name (`:object`) that was taken back.
pub(crate) const AUDIT_INSERT_NAME: &str =
    "INSERT INTO audit (tenant, id, at, what, by, name, role, reason, object, count)
    VALUES (:tenant, :id, :at, :what, :by, :name, :role, :reason, :object, 1)";

/// Removes visitor `?2` from the rows that name it first, and the id of these rows.
pub(crate) const AUDIT_CLEAR_VISITOR: &str =
    "UPDATE audit SET visitor = NULL, kind = NULL, hash = NULL WHERE tenant = ?1 AND visitor = ?2";

/// Removes visitor `?2` from the rows that name it as the other visitor, and the id of these rows.
pub(crate) const AUDIT_CLEAR_OTHER: &str =
    "UPDATE audit SET other = NULL, kind = NULL, hash = NULL WHERE tenant = ?1 AND other = ?2";

/// Removes an alternate id from the rows with a time up to `?4`.
pub(crate) const AUDIT_CLEAR_ID: &str =
    "UPDATE audit SET kind = NULL, hash = NULL WHERE tenant = ?1 AND kind = ?2 AND hash = ?3 AND at <= ?4";

/// Reads all requested erasures with the names of their tenants.
pub(crate) const AUDIT_ERASURES: &str = "SELECT t.name, a.id, a.at, a.by, a.name, a.role, a.reason FROM audit a
    JOIN tenants t USING (tenant) WHERE a.what = 'erase'";
