//! Parts of a visitor's row that new data is joined with.

use causeway_shared::facts::attributes::AttributeMap;
use causeway_shared::facts::segments::SegmentMap;
use causeway_shared::wire::profile;

use crate::store::tables::visitors;
use crate::store::{CheckedBytes, StoreError, VisitorRow};

/// Joins new segments with the stored ones of a visitor's row.
pub(crate) fn write_segments(conn: &rusqlite::Connection, row: VisitorRow, new: SegmentMap) -> Result<(), StoreError> {
    let CheckedBytes(stored) =
        conn.prepare_cached(visitors::VISITORS_SEGMENTS_OF_ROW)?.query_row([row], |row| row.get(0))?;
    let joined = profile::decode_segments(&stored)?.join(new);
    conn.prepare_cached(visitors::VISITORS_SET_SEGMENTS)?.execute((row, CheckedBytes(joined.pack())))?;
    Ok(())
}

/// Joins new attributes with the stored ones of a visitor's row.
pub(crate) fn write_attributes(
    conn: &rusqlite::Connection,
    row: VisitorRow,
    new: AttributeMap,
) -> Result<(), StoreError> {
    let CheckedBytes(stored) =
        conn.prepare_cached(visitors::VISITORS_ATTRIBUTES_OF_ROW)?.query_row([row], |row| row.get(0))?;
    let joined = profile::decode_attributes(&stored)?.join(new);
    conn.prepare_cached(visitors::VISITORS_SET_ATTRIBUTES)?.execute((row, CheckedBytes(joined.pack())))?;
    Ok(())
}
