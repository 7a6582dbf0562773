//! Checks that all data of a visitor can be read, and that the indices of other reads find it.

use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::time::Minute;
use causeway_shared::wire::profile;
use rusqlite::Connection;

use crate::base::integers::unsigned;
use crate::profiles::buckets::{self, packed_actions};
use crate::profiles::dedup::FactIdRows;
use crate::profiles::parts::stored_events;
use crate::store::tables::{people, visitors};
use crate::store::{CheckedBytes, PersonNo, StoreError, TenantNo, VisitorRow, visitor_at};

/// Reads all data of one visitor.
///
/// # Errors
/// [`StoreError::Corrupt`] or [`StoreError::Form`] if any of it is damaged.
pub fn check_visitor(conn: &Connection, row: VisitorRow) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_CHECKED_COLUMNS)?;
    let mut rows = statement.query([row])?;
    let Some(found) = rows.next()? else { return Ok(()) };
    let (tenant, visitor) = (TenantNo(found.get(0)?), visitor_at(found, 1)?);
    let (person, last_seen): (i64, i64) = (found.get(2)?, found.get(3)?);
    check_indices(conn, row, (tenant, visitor), (PersonNo(person), last_seen))?;
    profile::decode_profile(visitor, found.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?)?;
    profile::decode_segments(CheckedBytes::open_column(found.get_ref(5)?)?)?;
    profile::decode_attributes(CheckedBytes::open_column(found.get_ref(6)?)?)?;
    stored_events(CheckedBytes::open_column(found.get_ref(7)?)?, unsigned(last_seen))?;
    for body in buckets::actions_within(conn, row, Minute(0), Minute(u32::MAX))? {
        packed_actions(&body)?;
    }
    FactIdRows::load(conn, row)?;
    Ok(())
}

/// Checks that the indices of other reads lead to the row.
fn check_indices(
    conn: &Connection,
    row: VisitorRow,
    (tenant, visitor): (TenantNo, VisitorId),
    (person, last_seen): (PersonNo, i64),
) -> Result<(), StoreError> {
    let by_id =
        conn.prepare_cached(visitors::VISITORS_ENTRY_BY_ID)?.exists((tenant.0, visitor.as_bytes(), person.0, row))?;
    let by_person = conn.prepare_cached(visitors::VISITORS_ENTRY_BY_PERSON)?.exists((person.0, last_seen, row))?;
    let has_person = conn.prepare_cached(people::PEOPLE_HAS)?.exists((person.0, tenant.0))?;
    let what = match (by_id, by_person, has_person) {
        (true, true, true) => return Ok(()),
        (false, ..) => "visitor's id or person that is another in its index",
        (true, false, _) => "visitor's last receipt that is another in its index",
        (true, true, false) => "visitor without a person",
    };
    Err(StoreError::Corrupt { what })
}
