//! Statements of the table `evidence`: observations of a visitor with an alternate id.

/// Columns of an evidence row, in the order in which `identity::evidence` reads them.
macro_rules! columns {
    () => {
        "visitor, kind, hash, source, weight, first, last, cancelled, flag"
    };
}

/// All evidence of all tenants, in the order of the primary key.
pub(crate) const EVIDENCE_ALL: &str =
    concat!("SELECT ", columns!(), ", tenant FROM evidence ORDER BY tenant, visitor, kind, hash, source, weight");

/// Evidence of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const EVIDENCE_OF_VISITOR: &str =
    concat!("SELECT ", columns!(), " FROM evidence WHERE tenant = ?1 AND visitor = ?2");

/// Evidence with weight for an id, the most recently seen visitor first. `?1` tenant, `?2` kind, `?3` hash. The
/// condition on the weight selects the index `evidence_of_id`, which has this order.
pub(crate) const EVIDENCE_OF_ID: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM evidence WHERE tenant = ?1 AND kind = ?2 AND hash = ?3 AND weight > 0
    ORDER BY last DESC, visitor"
);

/// Evidence without weight for an id, the most recently seen visitor first. `?1` tenant, `?2` kind, `?3` hash. The
/// condition on the weight selects the index `claims_of_id`, which has this order.
pub(crate) const EVIDENCE_CLAIMS_OF_ID: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM evidence WHERE tenant = ?1 AND kind = ?2 AND hash = ?3 AND weight = 0
    ORDER BY last DESC, visitor"
);

/// First sight, last sight and cancellation of one evidence row, by its whole key.
pub(crate) const EVIDENCE_TIMES_OF_ROW: &str = "SELECT first, last, cancelled FROM evidence
    WHERE tenant = ?1 AND visitor = ?2 AND kind = ?3 AND hash = ?4 AND source = ?5 AND weight = ?6";

/// A row if a visitor has more evidence than a bound. `?1` tenant, `?2` visitor, `?3` bound.
pub(crate) const EVIDENCE_BEYOND_BOUND_OF_VISITOR: &str =
    "SELECT 1 FROM evidence WHERE tenant = ?1 AND visitor = ?2 LIMIT 1 OFFSET ?3";

/// A row if more visitors than a bound have valid evidence with weight for an id. `?1` tenant, `?2` kind, `?3` hash,
/// `?4` bound. The statement reads the index only.
pub(crate) const EVIDENCE_BEYOND_BOUND_OF_ID: &str = "SELECT DISTINCT visitor FROM evidence INDEXED BY evidence_of_id
    WHERE tenant = ?1 AND kind = ?2 AND hash = ?3 AND weight > 0 AND ifnull(cancelled, -1) < last LIMIT 1 OFFSET ?4";

/// Ids of a visitor's evidence with a lookup that has the visitor in the first place, in the order of kind and hash.
/// `?1` tenant, `?2` visitor.
pub(crate) const EVIDENCE_LOOKUPS_LED_BY_VISITOR: &str = "SELECT l.kind, l.hash FROM evidence e
    JOIN lookups l ON l.tenant = e.tenant AND l.kind = e.kind AND l.hash = e.hash
    WHERE e.tenant = ?1 AND e.visitor = ?2 AND substr(l.visitors, 1, 16) = ?2
    GROUP BY l.kind, l.hash ORDER BY l.kind, l.hash";

/// Inserts an evidence row; an existing row takes the earliest first sight, the latest last sight and the latest
/// cancellation.
pub(crate) const EVIDENCE_UPSERT: &str = "INSERT INTO evidence
        (tenant, visitor, kind, hash, source, weight, first, last, cancelled, flag)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT DO UPDATE SET first = min(first, excluded.first), last = max(last, excluded.last),
        cancelled = nullif(max(ifnull(cancelled, -1), ifnull(excluded.cancelled, -1)), -1)";

/// Cancels a visitor's evidence for an id, unless it has a later cancellation. `?1` tenant, `?2` visitor, `?3` kind,
/// `?4` hash, `?5` time of the cancellation.
pub(crate) const EVIDENCE_CANCEL_OF_VISITOR_AND_ID: &str = "UPDATE evidence SET cancelled = ?5
    WHERE tenant = ?1 AND visitor = ?2 AND kind = ?3 AND hash = ?4 AND ifnull(cancelled, -1) < ?5";

/// Cancels the evidence with weight for an id that begins by a time, and returns the visitors. `?1` tenant, `?2` kind,
/// `?3` hash, `?4` time. The index reads the rows of the id only.
pub(crate) const EVIDENCE_CANCEL_OF_ID_UNTIL: &str = "UPDATE evidence INDEXED BY evidence_of_id SET cancelled = ?4
    WHERE tenant = ?1 AND kind = ?2 AND hash = ?3 AND weight > 0 AND first <= ?4 AND ifnull(cancelled, -1) < ?4
    RETURNING visitor";

/// Cancels all evidence of a visitor. `?1` tenant, `?2` visitor, `?3` time of the cancellation.
pub(crate) const EVIDENCE_CANCEL_OF_VISITOR: &str =
    "UPDATE evidence SET cancelled = ?3 WHERE tenant = ?1 AND visitor = ?2";

/// Sets the flag of a visitor's evidence with weight for an id. `?1` tenant, `?2` visitor, `?3` kind, `?4` hash, `?5`
/// flag.
pub(crate) const EVIDENCE_FLAG: &str = "UPDATE evidence SET flag = ?5
    WHERE tenant = ?1 AND visitor = ?2 AND kind = ?3 AND hash = ?4 AND weight > 0";

/// Deletes a visitor's evidence for an id. `?1` tenant, `?2` visitor, `?3` kind, `?4` hash.
pub(crate) const EVIDENCE_DELETE_OF_VISITOR_AND_ID: &str =
    "DELETE FROM evidence WHERE tenant = ?1 AND visitor = ?2 AND kind = ?3 AND hash = ?4";

/// Deletes the evidence of the ids of a visitor's pairs, of both visitors, because the id of a pair identifies both.
/// `?1` tenant, `?2` visitor, `?3` kind of pairs. The index reads the rows of these ids only.
pub(crate) const EVIDENCE_DELETE_PAIRS_OF_VISITOR: &str =
    "DELETE FROM evidence INDEXED BY evidence_of_id WHERE weight > 0 AND tenant = ?1 AND kind = ?3
    AND hash IN (SELECT hash FROM evidence WHERE tenant = ?1 AND visitor = ?2 AND kind = ?3)";

/// Deletes all evidence of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const EVIDENCE_DELETE_OF_VISITOR: &str = "DELETE FROM evidence WHERE tenant = ?1 AND visitor = ?2";
