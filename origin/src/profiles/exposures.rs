//! The arms of experiments that a visitor was exposed to, as rows in addition to its profile.

use crate::base::integers::{signed, unsigned};
use crate::store::tables::exposures;
use crate::store::{StoreError, VisitorRow};
use causeway_shared::facts::exposures::{Exposures, FirstExposure};
use rusqlite::{Connection, Row};

/// Joins new exposures with the stored ones of a visitor's row.
///
/// # Errors
/// [`StoreError`].
pub fn record_exposures(conn: &Connection, visitor: VisitorRow, new: Exposures) -> Result<(), StoreError> {
    let joined = load_exposures(conn, visitor)?.join(new);
    for (experiment, FirstExposure { arm, at, mixed }) in joined.iter() {
        conn.prepare_cached(exposures::EXPOSURES_REPLACE)?.execute((visitor, experiment, arm, signed(at), mixed))?;
    }
    if let Some((oldest, _)) = joined.iter().next() {
        conn.prepare_cached(exposures::EXPOSURES_DELETE_BELOW)?.execute((visitor, oldest))?;
    }
    Ok(())
}

pub(crate) fn read_exposure(row: &Row<'_>) -> rusqlite::Result<(u32, FirstExposure)> {
    Ok((row.get(0)?, FirstExposure { arm: row.get(1)?, at: unsigned(row.get(2)?), mixed: row.get(3)? }))
}

/// The exposures of a visitor's row.
///
/// # Errors
/// [`StoreError`].
pub fn load_exposures(conn: &Connection, visitor: VisitorRow) -> Result<Exposures, StoreError> {
    let mut statement = conn.prepare_cached(exposures::EXPOSURES_OF_VISITOR)?;
    Ok(statement.query_map([visitor], read_exposure)?.collect::<Result<_, _>>()?)
}
