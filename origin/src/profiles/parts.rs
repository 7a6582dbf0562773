//! Parts of a visitor's row that new data is joined with.

use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::{HOUR_MS, Minute};
use causeway_shared::facts::attributes::AttributeMap;
use causeway_shared::facts::events::VisitorEvents;
use causeway_shared::facts::segments::SegmentMap;
use causeway_shared::wire::profile;

use crate::base::integers::unsigned;
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

/// A visitor's events from its column. An empty column means that events up to the last receipt, which is known to the
/// hour, were folded by a release that stored none.
pub(crate) fn stored_events(bytes: &[u8], last_seen: Millis) -> Result<VisitorEvents, StoreError> {
    if bytes.is_empty() {
        return Ok(VisitorEvents::since(Minute::at(last_seen.saturating_add(HOUR_MS))));
    }
    Ok(profile::decode_events(bytes)?)
}

/// Joins a visitor's events with exported ones. Returns `false`, and stores nothing, if no facts have that result.
pub(crate) fn write_events(
    conn: &rusqlite::Connection,
    row: VisitorRow,
    new: VisitorEvents,
) -> Result<bool, StoreError> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, unsigned(row.get(1)?)));
    let (CheckedBytes(stored), last_seen): (CheckedBytes, Millis) =
        conn.prepare_cached(visitors::VISITORS_EVENTS_OF_ROW)?.query_row([row], read)?;
    let joined = stored_events(&stored, last_seen)?.plus(new);
    let packed = joined.pack();
    if VisitorEvents::read(&packed) != Some(joined) {
        return Ok(false);
    }
    conn.prepare_cached(visitors::VISITORS_SET_EVENTS)?.execute((row, CheckedBytes(packed)))?;
    Ok(true)
}
