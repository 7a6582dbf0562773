//! Statements of the table `orders_paid`: orders that a campaign has paid for.

/// A row if an order is paid. `?1` visitor row, `?2` hash of the order.
pub(crate) const ORDERS_PAID_HAS: &str = "SELECT 1 FROM orders_paid WHERE visitor = ?1 AND order_hash = ?2";

/// Inserts a paid order, unless it is stored or the visitor is erased. `?1` visitor row, `?2` hash of the order, `?3`
/// minute of the purchase.
pub(crate) const ORDERS_PAID_INSERT_NEW: &str = "INSERT OR IGNORE INTO orders_paid (visitor, order_hash, minute)
    SELECT v.row, ?2, ?3 FROM visitors v WHERE v.row = ?1
    AND NOT EXISTS (SELECT 1 FROM erased e WHERE e.tenant = v.tenant AND e.visitor = v.visitor)";

/// Deletes a visitor's paid orders from before a minute. `?1` visitor row, `?2` minute.
pub(crate) const ORDERS_PAID_DELETE_BEFORE: &str = "DELETE FROM orders_paid WHERE visitor = ?1 AND minute < ?2";

/// Deletes all paid orders of a visitor. `?1` visitor row.
pub(crate) const ORDERS_PAID_DELETE_OF_VISITOR: &str = "DELETE FROM orders_paid WHERE visitor = ?1";
