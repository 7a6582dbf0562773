//! What one transaction changes about people and lookups.

use crate::erasures::sweep::PersonChange;
use crate::store::{PersonNo, StoreError, TenantNo};
use causeway_shared::base::ids::{AlternateId, FactId, Millis, VisitorId};
use causeway_shared::facts::fact::Fact;
use rusqlite::OptionalExtension as _;
use std::collections::{BTreeMap, BTreeSet};

/// What this group changed about who belongs together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkChanges {
    /// People whose membership is another now.
    pub people: Vec<PersonChange>,
    /// Rows of people that these were or are.
    pub rows: BTreeSet<PersonNo>,
    /// Alternate ids (canonical) whose lookup is another now.
    pub lookups: BTreeSet<(TenantNo, AlternateId)>,
    /// Visitors that withdrew or were erased in this group.
    pub withdrawn: BTreeSet<(TenantNo, VisitorId)>,
    /// What was erased, by the tenant's name: for the journal.
    pub erased: Vec<(String, Fact)>,
    /// Alternate ids (canonical) whose history ended, and until when.
    pub(crate) ended: BTreeSet<(TenantNo, AlternateId, Millis)>,
    /// Erasures that name whom, or what, an earlier one took, with that one: neither is done before it.
    pub(crate) behind: Vec<(TenantNo, FactId, FactId)>,
}

/// Where evidence changed in this group.
#[derive(Debug, Default)]
pub(crate) struct TouchedEvidence {
    pub(crate) visitors: BTreeSet<(TenantNo, VisitorId)>,
    pub(crate) ids: BTreeSet<(TenantNo, AlternateId)>,
    /// Ids among them (canonical) that go by another hash too: under that one no lookup was written, or another id's was.
    pub(crate) renamed: BTreeSet<(TenantNo, AlternateId)>,
    /// Whether the rows of people may be wrong: then all who point to one are looked at too.
    pub(crate) of_rows: bool,
    /// Who speaks for large ids, where that is known.
    pub(crate) speakers: BTreeMap<(TenantNo, AlternateId), GroupRepresentative>,
}

/// Whether a visitor has withdrawn, or is erased: what else its row holds is not read.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn has_withdrawn(conn: &rusqlite::Connection, tenant: TenantNo, visitor: VisitorId) -> Result<bool, StoreError> {
    const READ: &str = "SELECT withdrawn IS NOT NULL FROM visitors WHERE tenant = ?1 AND visitor = ?2";
    let mut statement = conn.prepare_cached(READ)?;
    let found = statement.query_row((tenant.0, visitor.as_bytes()), |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(false))
}

/// Stands for all visitors of a unique id that has too many to be walked through: they are one person whatever happens
/// around a few of them, since unique ids join first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupRepresentative {
    pub(crate) visitor: VisitorId,
    /// Whether its row is right, so that who is not seen stays there with it.
    pub(crate) keeps_row: bool,
}
