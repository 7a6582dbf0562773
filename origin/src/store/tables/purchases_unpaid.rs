//! Statements of the table `purchases_unpaid`: purchases that no click pays for yet.

/// A row if any purchase is unpaid. The condition makes the statement a search of the key.
pub(crate) const PURCHASES_UNPAID_ANY: &str = "SELECT 1 FROM purchases_unpaid WHERE visitor > 0 LIMIT 1";

/// Unpaid purchases of a visitor in a range of minutes. `?1` visitor row, `?2` first and `?3` last minute, `?4` current
/// time.
pub(crate) const PURCHASES_UNPAID_OF_VISITOR_IN_MINUTES: &str =
    "SELECT visitor, id, minute, received, value, order_hash FROM purchases_unpaid
    WHERE visitor = ?1 AND minute BETWEEN ?2 AND ?3 AND until > ?4";

/// Inserts an unpaid purchase, unless it is stored, the visitor is erased, or the visitor has the maximum number of
/// them. `?1` visitor row, `?7` time, `?8` maximum rows that wait beyond that time.
pub(crate) const PURCHASES_UNPAID_INSERT_NEW: &str =
    "INSERT OR IGNORE INTO purchases_unpaid (visitor, id, minute, received, value, until, order_hash)
    SELECT v.row, ?2, ?3, ?4, ?5, ?6, ?9 FROM visitors v WHERE v.row = ?1
    AND NOT EXISTS (SELECT 1 FROM erased e WHERE e.tenant = v.tenant AND e.visitor = v.visitor)
    AND (SELECT count(*) FROM purchases_unpaid WHERE visitor = ?1 AND until > ?7) < ?8";

/// Deletes one unpaid purchase. `?1` visitor row, `?2` first eight bytes of the FactId.
pub(crate) const PURCHASES_UNPAID_DELETE: &str = "DELETE FROM purchases_unpaid WHERE visitor = ?1 AND id = ?2";

/// Deletes a visitor's unpaid purchases that wait no longer. `?1` visitor row, `?2` current time.
pub(crate) const PURCHASES_UNPAID_DELETE_EXPIRED: &str =
    "DELETE FROM purchases_unpaid WHERE visitor = ?1 AND until <= ?2";

/// Deletes all unpaid purchases of a visitor. `?1` visitor row.
pub(crate) const PURCHASES_UNPAID_DELETE_OF_VISITOR: &str = "DELETE FROM purchases_unpaid WHERE visitor = ?1";
