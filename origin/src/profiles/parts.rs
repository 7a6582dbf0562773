//! Parts of a visitor's row that new data is joined with.

use causeway_shared::facts::attributes::AttributeMap;
use causeway_shared::facts::segments::SegmentMap;
use causeway_shared::wire::profile;

use crate::store::{CheckedBytes, StoreError};

/// Joins new segments with the stored ones of a visitor's row.
pub(crate) fn write_segments(conn: &rusqlite::Connection, row: i64, new: SegmentMap) -> Result<(), StoreError> {
    const READ: &str = "SELECT segments FROM visitors WHERE row = ?1";
    const WRITE: &str = "UPDATE visitors SET segments = ?2 WHERE row = ?1";
    let CheckedBytes(stored) = conn.prepare_cached(READ)?.query_row([row], |row| row.get(0))?;
    let joined = profile::decode_segments(&stored)?.join(new);
    conn.prepare_cached(WRITE)?.execute((row, CheckedBytes(joined.pack())))?;
    Ok(())
}

/// Joins new attributes with the stored ones of a visitor's row.
pub(crate) fn write_attributes(conn: &rusqlite::Connection, row: i64, new: AttributeMap) -> Result<(), StoreError> {
    const READ: &str = "SELECT attributes FROM visitors WHERE row = ?1";
    const WRITE: &str = "UPDATE visitors SET attributes = ?2 WHERE row = ?1";
    let CheckedBytes(stored) = conn.prepare_cached(READ)?.query_row([row], |row| row.get(0))?;
    let joined = profile::decode_attributes(&stored)?.join(new);
    conn.prepare_cached(WRITE)?.execute((row, CheckedBytes(joined.pack())))?;
    Ok(())
}
