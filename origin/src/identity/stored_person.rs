//! A person's row as the store has it.

use crate::base::integers::unsigned;
use crate::store::write_txn::Group;
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};
use causeway_shared::ids::VisitorId;
use causeway_shared::person::Weight;
use rusqlite::OptionalExtension as _;

/// A person's row as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) master: VisitorId,
    pub(crate) devices: u64,
    /// How surely the master belongs to it.
    pub(crate) weight: Weight,
}

pub(crate) fn known(group: &Group<'_>, tenant: TenantNo, person: PersonNo) -> Result<Option<Known>, StoreError> {
    const READ: &str = "SELECT master, devices, weight FROM people WHERE person = ?1 AND tenant = ?2";
    let mut statement = group.tx.prepare_cached(READ)?;
    let known = statement.query_row((person.0, tenant.0), |row| {
        Ok(Known { master: visitor_at(row, 0)?, devices: unsigned(row.get(1)?), weight: Weight(row.get(2)?) })
    });
    Ok(known.optional()?)
}
