//! Linking: alias facts become evidence; evidence becomes people and lookups.
//!
//! All evidence is stored. `causeway_shared::identity::people` decides from the evidence as a set which part links.
//! Only changed evidence causes work, so a page view costs nothing here.

use crate::erasures::sweep::PersonChange;
use crate::identity::alternates;
pub(crate) use crate::identity::changes::LinkChanges;
pub(crate) use crate::identity::changes::TouchedEvidence;
use crate::identity::{evidence, people};
use crate::store::tables::{cuts, visitors};
use std::collections::BTreeSet;

use causeway_shared::base::ids::{AltHash, AlternateId, KindCode, Millis, VisitorId};
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::facts::fact::FactKind;

pub use crate::identity::canonical::canonical_id;
pub use crate::identity::canonical::canonical_of;
pub use crate::identity::canonical::id_family;
use crate::identity::evidence::SightingSource;
pub use crate::identity::evidence::{EvidenceRow, held_unique, last_cancellation, of_visitor, other_of_pair};

use crate::base::integers::signed;
use crate::profiles::fold::IdentityFacts;
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo};

/// An observation of a visitor with an alternate id in this transaction.
#[derive(Debug)]
pub struct VisitorSighting {
    /// The observation.
    pub(crate) seen: evidence::EvidenceSighting,
    /// Hashes of the id under all keys, as in the fact.
    pub(crate) hashes: Vec<AltHash>,
    /// Time at which the fact was received.
    pub(crate) received: Millis,
}

/// Records the evidence of new facts and recomputes the people around it. Does not write lookups, because erasures of
/// this transaction may change them. Returns the observations, which an earlier erasure of their id may affect.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub(crate) fn link_visitors(
    group: &mut WriteTxn<'_>,
    fresh: &[IdentityFacts<'_>],
    linked: &mut LinkChanges,
    touched: &mut TouchedEvidence,
) -> Result<Vec<VisitorSighting>, StoreError> {
    let mut seen_now = Vec::new();
    // Withdrawals first, because evidence of the same transaction must not outlive them.
    withdraw_visitors(group, fresh, linked, touched)?;
    for IdentityFacts { tenant, visitor, facts } in fresh {
        for fact in facts {
            if let FactKind::Cancellation { id } = &fact.what
                && !planted::is_active(PlantedBug::CancellationForgotten)
            {
                let id = canonical_form(group, *tenant, *id, &[], touched)?;
                evidence::cancel_evidence(group, *tenant, *visitor, id, fact.received, touched)?;
            }
            if let FactKind::Evidence { id, also, weight, source } = &fact.what {
                let id = canonical_form(group, *tenant, *id, also, touched)?;
                let by = SightingSource::Other(*source, *weight);
                let seen = evidence::EvidenceSighting { tenant: *tenant, visitor: *visitor, id, by };
                evidence::record_sighting(group, seen, fact.received, touched)?;
            }
            if let FactKind::Alias { id, also, proven } = &fact.what {
                let named = &id.hash;
                let also: &[AltHash] = if planted::is_active(PlantedBug::NamesOfRotationLost) { &[] } else { also };
                let by = SightingSource::Page { proven: *proven };
                // Checked before anything of the id is stored.
                if evidence::is_over(group, *tenant, *visitor, id.kind, by)?
                    && canonical_of(group.tx, *tenant, id.kind, also.iter().copied().chain([*named]))?.is_none()
                {
                    group.ids_over.inc();
                    continue;
                }
                let id = alternates::resolve_ids(group, *tenant, *id, also, touched)?;
                let seen = evidence::EvidenceSighting { tenant: *tenant, visitor: *visitor, id, by };
                evidence::record_sighting(group, seen, fact.received, touched)?;
                let hashes: Vec<AltHash> = also.iter().copied().chain([*named]).collect();
                seen_now.push(VisitorSighting { seen, hashes, received: fact.received });
            }
        }
    }
    people::recompute(group, touched, linked)?;
    Ok(seen_now)
}

/// The canonical form of an id.
fn canonical_form(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    id: AlternateId,
    also: &[AltHash],
    touched: &mut TouchedEvidence,
) -> Result<AlternateId, StoreError> {
    // The id of a pair has one hash and no lookup.
    if id.kind == KindCode::PAIR { Ok(id) } else { alternates::resolve_ids(group, tenant, id, also, touched) }
}

/// People and rows that may be inconsistent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuspectPeople {
    /// Visitors of such people.
    pub visitors: BTreeSet<(TenantNo, VisitorId)>,
    /// Rows of people without visitors.
    pub empty: Vec<PersonNo>,
    /// A representative for each large id of such people, with whether its row is right already.
    pub representatives: BTreeSet<(TenantNo, VisitorId, bool)>,
}

/// Marks withdrawn visitors and cancels their evidence permanently (invariant 10).
fn withdraw_visitors(
    group: &mut WriteTxn<'_>,
    fresh: &[IdentityFacts<'_>],
    linked: &mut LinkChanges,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    for IdentityFacts { tenant, visitor, facts } in fresh {
        let Some(fact) = facts.iter().find(|f| f.what == FactKind::Withdrawal) else {
            continue;
        };
        let values = (tenant.0, visitor.as_bytes(), signed(fact.received));
        if group.tx.prepare_cached(visitors::VISITORS_WITHDRAW)?.execute(values)? == 1 {
            if !planted::is_active(PlantedBug::WithdrawalKeepsItsLinks) {
                evidence::end_evidence(group, *tenant, *visitor, touched)?;
            }
            linked.withdrawn.insert((*tenant, *visitor));
            linked.people.extend(former_people(group, *tenant, *visitor)?);
        }
    }
    Ok(())
}

/// People that a visitor was cut from earlier: their snapshots do not show yet that the visitor is gone.
pub(crate) fn former_people(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
) -> Result<Vec<PersonChange>, StoreError> {
    // A version above the one that is being written now.
    group.next_version();
    let mut statement = group.tx.prepare_cached(cuts::CUTS_PEOPLE_OF_VISITOR)?;
    let rows = statement.query_map((tenant.0, visitor.as_bytes()), |row| {
        Ok(PersonChange { person: PersonNo(row.get(0)?), cut: true })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
#[path = "link/tests.rs"]
mod tests;
