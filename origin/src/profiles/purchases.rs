//! Purchases of a visitor by minute, stored as long as its actions; models learn conversions and prices from them. An
//! unpaid purchase is stored separately for a day, because its click may arrive late.

use causeway_shared::base::ids::{Micros, Millis, OrderHash};
use causeway_shared::base::limits;
use causeway_shared::base::time::{DAY_MINUTES, Day, Minute};
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use rusqlite::{Connection, Row};

use crate::base::integers::{signed, unsigned};
use crate::store::tables::{orders_paid, purchases, purchases_unpaid, visitors};
use crate::store::{PersonNo, StoreError, TenantNo, VisitorRow, minute_of_key};

/// Time that an unpaid purchase waits for its click, in milliseconds.
const WAIT_MS: u64 = 86_400_000;
/// Most waiting purchases of a visitor; a click reads those of the whole person.
const WAITING: u32 = 100;

/// The purchases of one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinutePurchases {
    /// The minute.
    pub minute: Minute,
    /// Number of purchases.
    pub count: u32,
    /// Sum of their values.
    pub value: Micros,
}

/// One purchase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purchase {
    /// Row of the visitor in `visitors`.
    pub visitor: VisitorRow,
    /// First eight bytes of the FactId.
    pub id: i64,
    /// Minute of the purchase.
    pub at: Minute,
    /// Time of receipt, in milliseconds since the epoch.
    pub received: Millis,
    /// Value of the purchase.
    pub value: Micros,
    /// Hash of the order, if the purchase names one.
    pub order: Option<OrderHash>,
}

impl Purchase {
    /// Reads the columns of `purchases_unpaid`, in the order of the fields.
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (visitor, id, at) = (row.get(0)?, row.get(1)?, Minute(row.get(2)?));
        let order: Option<i64> = row.get(5)?;
        let order = order.map(|order| OrderHash(order.cast_unsigned()));
        Ok(Self { visitor, id, at, received: unsigned(row.get(3)?), value: Micros::new(row.get(4)?), order })
    }
}

/// Adds the purchases among new facts of a visitor.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn add<'f>(
    conn: &Connection,
    visitor: VisitorRow,
    facts: impl IntoIterator<Item = &'f Fact>,
) -> Result<(), StoreError> {
    for fact in facts {
        if let FactKind::Track { name, value, .. } = &fact.what
            && name == PURCHASE
        {
            conn.prepare_cached(purchases::PURCHASES_ADD)?
                .execute((visitor.minute_key(Minute::at(fact.at)), value.unwrap_or_default().get()))?;
        }
    }
    Ok(())
}

/// A visitor's purchases by minute, in order.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn load_purchases(conn: &Connection, visitor: VisitorRow) -> Result<Vec<MinutePurchases>, StoreError> {
    let mut statement = conn.prepare_cached(purchases::PURCHASES_IN_RANGE)?;
    let rows = statement.query_map(visitor.minute_keys(), |row| {
        Ok(MinutePurchases { minute: minute_of_key(row.get(0)?), count: row.get(1)?, value: Micros::new(row.get(2)?) })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Stores an unpaid purchase, unless its visitor was erased meanwhile or has too many waiting.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn await_payment(conn: &Connection, bought: &Purchase, now: Millis) -> Result<(), StoreError> {
    let Purchase { visitor, id, at, received, value, order } = *bought;
    let order = order.map(|order| order.0.cast_signed());
    let until = signed(now.saturating_add(WAIT_MS));
    let row = (visitor, id, at.0, signed(received), value.get(), until, signed(now), WAITING, order);
    conn.prepare_cached(purchases_unpaid::PURCHASES_UNPAID_INSERT_NEW)?.execute(row)?;
    Ok(())
}

/// Whether any purchase waits for its click.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn any_waits(conn: &Connection) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(purchases_unpaid::PURCHASES_UNPAID_ANY)?.exists([])?)
}

/// A visitor's waiting purchases that a click at minute `click` may pay for.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn unpaid_purchases(
    conn: &Connection,
    visitor: VisitorRow,
    click: Minute,
    now: Millis,
) -> Result<Vec<Purchase>, StoreError> {
    let last = click.0.saturating_add(DAY_MINUTES);
    let mut statement = conn.prepare_cached(purchases_unpaid::PURCHASES_UNPAID_OF_VISITOR_IN_MINUTES)?;
    let rows = statement.query_map((visitor, click.0, last, signed(now)), Purchase::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Waiting purchases of a person's most recently seen visitors.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn unpaid_of(conn: &Connection, person: PersonNo, now: Millis) -> Result<Vec<(TenantNo, Purchase)>, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_UNPAID_PURCHASES_OF_PERSON)?;
    let rows = statement.query_map((person.0, limits::SNAPSHOT_VISITORS as i64, signed(now)), |row| {
        Ok((TenantNo(row.get(6)?), Purchase::read(row)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Removes a paid purchase from the waiting ones.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn mark_paid(conn: &Connection, bought: &Purchase) -> Result<(), StoreError> {
    conn.prepare_cached(purchases_unpaid::PURCHASES_UNPAID_DELETE)?.execute((bought.visitor, bought.id))?;
    Ok(())
}

/// Records that an order was paid for, unless its visitor was erased meanwhile.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn note_paid(conn: &Connection, bought: &Purchase) -> Result<(), StoreError> {
    if let Some(order) = bought.order {
        conn.prepare_cached(orders_paid::ORDERS_PAID_INSERT_NEW)?.execute((
            bought.visitor,
            order.0.cast_signed(),
            bought.at.0,
        ))?;
    }
    Ok(())
}

/// Whether an order was paid for through any of these visitors.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn is_paid(
    conn: &Connection,
    visitors: impl IntoIterator<Item = VisitorRow>,
    order: OrderHash,
) -> Result<bool, StoreError> {
    let mut has = conn.prepare_cached(orders_paid::ORDERS_PAID_HAS)?;
    for visitor in visitors {
        if has.exists((visitor, order.0.cast_signed()))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Deletes a visitor's purchases before a day, and waiting purchases whose time is over.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn trim_purchases(conn: &Connection, visitor: VisitorRow, before: Day, now: Millis) -> Result<(), StoreError> {
    conn.prepare_cached(purchases_unpaid::PURCHASES_UNPAID_DELETE_EXPIRED)?.execute((visitor, signed(now)))?;
    conn.prepare_cached(orders_paid::ORDERS_PAID_DELETE_BEFORE)?.execute((visitor, before.start().0))?;
    drop_within(conn, [visitor.minute_key(Minute(0)), visitor.minute_key(before.start())])
}

/// Deletes all purchases of a visitor.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn drop_all(conn: &Connection, visitor: VisitorRow) -> Result<(), StoreError> {
    conn.prepare_cached(purchases_unpaid::PURCHASES_UNPAID_DELETE_OF_VISITOR)?.execute([visitor])?;
    conn.prepare_cached(orders_paid::ORDERS_PAID_DELETE_OF_VISITOR)?.execute([visitor])?;
    drop_within(conn, visitor.minute_keys())
}

fn drop_within(conn: &Connection, keys: [i64; 2]) -> Result<(), StoreError> {
    conn.prepare_cached(purchases::PURCHASES_DELETE_IN_RANGE)?.execute(keys)?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::maintenance::trim;
    use crate::testing::{NOW, Origin, purchase, visitor};

    #[test]
    fn purchases_are_kept_once_by_minute_and_go_with_age() {
        let mut origin = Origin::new();
        let day = 86_400_000;
        let facts = [
            purchase(visitor(1), 1, NOW, 5),
            purchase(visitor(1), 2, NOW + 1, 7),
            purchase(visitor(1), 3, NOW - day, i64::MAX),
            purchase(visitor(1), 4, NOW - day, i64::MAX),
            purchase(visitor(2), 5, NOW, 1),
        ];
        for fact in facts.iter().chain(&facts) {
            origin.send("demo", std::slice::from_ref(fact));
        }
        let row = origin.row("demo", visitor(1)).row.unwrap();
        let minute = Minute::at(NOW);
        let today = MinutePurchases { minute, count: 2, value: Micros::new(12) };
        assert_eq!(load_purchases(&origin.conn, row).unwrap().last(), Some(&today));
        trim::trim_visitor(&mut origin.conn, row, NOW + 89 * day + 1_000).unwrap();
        assert_eq!(load_purchases(&origin.conn, row).unwrap(), [today]);
        drop_all(&origin.conn, row).unwrap();
        assert_eq!(load_purchases(&origin.conn, row).unwrap(), []);
        let other = origin.row("demo", visitor(2)).row.unwrap();
        assert_eq!(load_purchases(&origin.conn, other).unwrap().len(), 1);
    }
}
