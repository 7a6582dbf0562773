//! Rows of people, as the store has them.

use crate::base::integers::unsigned;
use crate::store::tables::people;
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::evidence::EvidenceWeight;
use rusqlite::OptionalExtension as _;

/// The row of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredPerson {
    pub(crate) master: VisitorId,
    pub(crate) devices: u64,
    /// Weight of the master's connection with the person.
    pub(crate) weight: EvidenceWeight,
}

pub(crate) fn load_person(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    person: PersonNo,
) -> Result<Option<StoredPerson>, StoreError> {
    let mut statement = group.tx.prepare_cached(people::PEOPLE_MASTER_DEVICES_AND_WEIGHT)?;
    let known = statement.query_row((person.0, tenant.0), |row| {
        Ok(StoredPerson {
            master: visitor_at(row, 0)?,
            devices: unsigned(row.get(1)?),
            weight: EvidenceWeight(row.get(2)?),
        })
    });
    Ok(known.optional()?)
}
