//! Statements of the table `cancellations`: evidence that the admin side ended.

/// Time of the newest cancellation of a visitor's evidence. `?1` tenant, `?2` visitor, `?3` kind, `?4` hash.
pub(crate) const CANCELLATIONS_TIME_OF_EVIDENCE: &str =
    "SELECT at FROM cancellations WHERE tenant = ?1 AND visitor = ?2 AND kind = ?3 AND hash = ?4";

/// Visitors with a cancellation for an id. `?1` tenant, `?2` kind, `?3` hash. The index reads the rows of the id; the
/// primary key would read those of the tenant.
pub(crate) const CANCELLATIONS_OF_ID: &str = "SELECT visitor, at FROM cancellations INDEXED BY cancellations_by_id
    WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";

/// Records a cancellation; of two, the newer one remains.
pub(crate) const CANCELLATIONS_UPSERT: &str =
    "INSERT INTO cancellations (tenant, visitor, kind, hash, at) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET at = max(at, excluded.at)";

/// Deletes the cancellations for an id. `?1` tenant, `?2` kind, `?3` hash. The index is named for the same reason as in
/// [`CANCELLATIONS_OF_ID`].
pub(crate) const CANCELLATIONS_DELETE_OF_ID: &str = "DELETE FROM cancellations INDEXED BY cancellations_by_id
    WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";

/// Deletes the cancellations of the ids of a visitor's pairs, of both visitors, because the id of a pair identifies
/// both. `?1` tenant, `?2` visitor, `?3` kind of pairs. The index reads the rows of these ids only.
pub(crate) const CANCELLATIONS_DELETE_PAIRS_OF_VISITOR: &str =
    "DELETE FROM cancellations INDEXED BY cancellations_by_id WHERE true AND tenant = ?1 AND kind = ?3
    AND hash IN (SELECT hash FROM cancellations WHERE tenant = ?1 AND visitor = ?2 AND kind = ?3)";

/// Deletes all cancellations of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const CANCELLATIONS_DELETE_OF_VISITOR: &str = "DELETE FROM cancellations WHERE tenant = ?1 AND visitor = ?2";
