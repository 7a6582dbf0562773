//! Changes of one transaction to people and lookups.

use crate::erasures::sweep::PersonChange;
use crate::store::tables::visitors;
use crate::store::{PersonNo, StoreError, TenantNo};
use causeway_shared::base::ids::{AlternateId, FactId, Millis, VisitorId};
use causeway_shared::facts::fact::Fact;
use rusqlite::OptionalExtension as _;
use std::collections::{BTreeMap, BTreeSet};

/// Changes of one transaction to people and lookups.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkChanges {
    /// People with a changed membership.
    pub people: Vec<PersonChange>,
    /// Rows of the people before and after the change.
    pub rows: BTreeSet<PersonNo>,
    /// Alternate ids (canonical) with a changed lookup.
    pub lookups: BTreeSet<(TenantNo, AlternateId)>,
    /// Visitors that withdrew or were erased in this transaction.
    pub withdrawn: BTreeSet<(TenantNo, VisitorId)>,
    /// Erased visitors and ids with the tenant's name, for the journal.
    pub erased: Vec<(String, Fact)>,
    /// Alternate ids (canonical) whose history ended, each with the time up to which it ended.
    pub(crate) ended: BTreeSet<(TenantNo, AlternateId, Millis)>,
    /// Pairs of erasures that cover the same visitor or id, with their tenant: the first one waits for the second one.
    pub(crate) behind: Vec<(TenantNo, FactId, FactId)>,
}

/// Visitors and ids with changed evidence in this transaction.
#[derive(Debug, Default)]
pub(crate) struct TouchedEvidence {
    pub(crate) visitors: BTreeSet<(TenantNo, VisitorId)>,
    pub(crate) ids: BTreeSet<(TenantNo, AlternateId)>,
    /// Ids among them (canonical) with a further hash, under which no lookup, or another id's lookup, was written.
    pub(crate) renamed: BTreeSet<(TenantNo, AlternateId)>,
    /// Whether rows of people may be wrong; then all visitors that point to such a row are examined too.
    pub(crate) of_rows: bool,
    /// Known representatives of ids with very many visitors.
    pub(crate) representatives: BTreeMap<(TenantNo, AlternateId), GroupRepresentative>,
}

/// Whether a visitor has withdrawn or is erased; no other column of its row is read.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn has_withdrawn(conn: &rusqlite::Connection, tenant: TenantNo, visitor: VisitorId) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_IS_WITHDRAWN)?;
    let found = statement.query_row((tenant.0, visitor.as_bytes()), |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(false))
}

/// Representative of all visitors of a unique id that has too many to read. They are one person whatever changes around
/// a few of them, because unique ids join first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupRepresentative {
    pub(crate) visitor: VisitorId,
    /// Whether its row is right, so that visitors that are not read stay in that row.
    pub(crate) keeps_row: bool,
}
