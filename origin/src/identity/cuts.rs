//! The cuts of a person: visitors that its views leave out from a given time on.

use crate::base::integers::unsigned;
use crate::store::tables::cuts;
use crate::store::{PersonNo, StoreError, visitor_at};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::profiles::membership::VisitorCut;
use rusqlite::Connection;

/// A person's cuts. A withdrawn visitor is gone for every person, whatever the reason of its cut.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn load_cuts(conn: &Connection, person: PersonNo) -> Result<Vec<(VisitorId, VisitorCut)>, StoreError> {
    let mut statement = conn.prepare_cached(cuts::CUTS_OF_PERSON)?;
    let found = statement.query_map([person.0], |row| {
        Ok((visitor_at(row, 0)?, VisitorCut { at: unsigned(row.get(1)?), gone: row.get(2)? }))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
