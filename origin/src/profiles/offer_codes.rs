//! Offer codes assigned to a visitor, as rows in addition to its profile.

use crate::base::integers::{signed, unsigned};
use crate::store::StoreError;
use crate::store::VisitorRow;
use crate::store::tables::offer_codes;
use causeway_shared::facts::offer_codes::{HeldOfferCode, HeldOfferCodes};
use rusqlite::{Connection, Row};

/// Joins new offer codes with the stored ones of a visitor's row.
///
/// # Errors
/// [`StoreError`].
pub fn keep_codes(conn: &Connection, visitor: VisitorRow, new: &HeldOfferCodes) -> Result<(), StoreError> {
    let joined = of_visitor(conn, visitor)?.join(new.clone());
    for (campaign, HeldOfferCode { number, at }) in joined.iter() {
        conn.prepare_cached(offer_codes::OFFER_CODES_REPLACE)?.execute((visitor, campaign, number, signed(at)))?;
    }
    if let Some((oldest, _)) = joined.iter().next() {
        conn.prepare_cached(offer_codes::OFFER_CODES_DELETE_BELOW)?.execute((visitor, oldest))?;
    }
    Ok(())
}

pub(crate) fn read_code(row: &Row<'_>) -> rusqlite::Result<(u32, HeldOfferCode)> {
    Ok((row.get(0)?, HeldOfferCode { number: row.get(1)?, at: unsigned(row.get(2)?) }))
}

/// The offer codes of a visitor's row.
///
/// # Errors
/// [`StoreError`].
pub fn of_visitor(conn: &Connection, visitor: VisitorRow) -> Result<HeldOfferCodes, StoreError> {
    let mut statement = conn.prepare_cached(offer_codes::OFFER_CODES_OF_VISITOR)?;
    Ok(statement.query_map([visitor], read_code)?.collect::<Result<_, _>>()?)
}
