//! Offer codes assigned to a visitor, as rows in addition to its profile.

use crate::base::integers::{signed, unsigned};
use crate::store::StoreError;
use causeway_shared::facts::offer_slots::{HeldSlot, HeldSlots};
use rusqlite::{Connection, Row};

/// Joins new offer codes with the stored ones of a visitor's row.
///
/// # Errors
/// [`StoreError`].
pub fn keep_codes(conn: &Connection, visitor: i64, new: &HeldSlots) -> Result<(), StoreError> {
    const PUT: &str = "INSERT OR REPLACE INTO units (visitor, campaign, number, at) VALUES (?1, ?2, ?3, ?4)";
    const DROP: &str = "DELETE FROM units WHERE visitor = ?1 AND campaign < ?2";
    let joined = of_visitor(conn, visitor)?.join(new.clone());
    for (campaign, HeldSlot { number, at }) in joined.iter() {
        conn.prepare_cached(PUT)?.execute((visitor, campaign, number, signed(at)))?;
    }
    if let Some((oldest, _)) = joined.iter().next() {
        conn.prepare_cached(DROP)?.execute((visitor, oldest))?;
    }
    Ok(())
}

pub(crate) fn read_code(row: &Row<'_>) -> rusqlite::Result<(u32, HeldSlot)> {
    Ok((row.get(0)?, HeldSlot { number: row.get(1)?, at: unsigned(row.get(2)?) }))
}

/// The offer codes of a visitor's row.
///
/// # Errors
/// [`StoreError`].
pub fn of_visitor(conn: &Connection, visitor: i64) -> Result<HeldSlots, StoreError> {
    const READ: &str = "SELECT campaign, number, at FROM units WHERE visitor = ?1";
    let mut statement = conn.prepare_cached(READ)?;
    Ok(statement.query_map([visitor], read_code)?.collect::<Result<_, _>>()?)
}
