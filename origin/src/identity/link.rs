//! Link: alias facts become evidence, evidence becomes people and lookups.
//!
//! Evidence is kept whatever it says; which of it links is decided by `causeway_shared::identity::people` from the
//! evidence as a set. Work is done only where evidence changed: a page view costs nothing here.

use crate::erasures::sweep::PersonChange;
use crate::identity::alternates;
pub(crate) use crate::identity::changes::LinkChanges;
pub(crate) use crate::identity::changes::TouchedEvidence;
use crate::identity::{evidence, people};
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
use crate::profiles::fold::Linking;
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo};

/// A visitor that was seen with an alternate id in this group.
#[derive(Debug)]
pub struct VisitorSighting {
    /// The evidence.
    pub(crate) seen: evidence::EvidenceSighting,
    /// The id's hashes under all keys, as the fact named them.
    pub(crate) hashes: Vec<AltHash>,
    /// When the fact was received.
    pub(crate) received: Millis,
}

/// Records the evidence of the new facts, and computes the people around it again. Lookups are not written yet: erasures may
/// change what they say. Gives the sightings, which an earlier erasure of the id may concern.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub(crate) fn link_visitors(
    group: &mut WriteTxn<'_>,
    fresh: &[Linking<'_>],
    linked: &mut LinkChanges,
    touched: &mut TouchedEvidence,
) -> Result<Vec<VisitorSighting>, StoreError> {
    let mut seen_now = Vec::new();
    // Withdrawals first: evidence that comes in the same group must not outlive them.
    withdraw_visitors(group, fresh, linked, touched)?;
    for Linking { tenant, visitor, facts } in fresh {
        for fact in facts {
            if let FactKind::Cancellation { id } = &fact.what
                && !planted::is_active(PlantedBug::CancellationForgotten)
            {
                let id = known_visitors(group, *tenant, *id, &[], touched)?;
                evidence::cancel_evidence(group, *tenant, *visitor, id, fact.received, touched)?;
            }
            if let FactKind::Evidence { id, also, weight, source } = &fact.what {
                let id = known_visitors(group, *tenant, *id, also, touched)?;
                let by = SightingSource::Other(*source, *weight);
                let seen = evidence::EvidenceSighting { tenant: *tenant, visitor: *visitor, id, by };
                evidence::record_sighting(group, seen, fact.received, touched)?;
            }
            if let FactKind::Alias { id, also, proven } = &fact.what {
                let said = &id.hash;
                let also: &[AltHash] = if planted::is_active(PlantedBug::NamesOfRotationLost) { &[] } else { also };
                let by = SightingSource::Page { proven: *proven };
                // Before anything of the id is kept.
                if evidence::is_over(group, *tenant, *visitor, id.kind, by)?
                    && canonical_of(group.tx, *tenant, id.kind, also.iter().copied().chain([*said]))?.is_none()
                {
                    group.ids_over.add(1);
                    continue;
                }
                let id = alternates::resolve_ids(group, *tenant, *id, also, touched)?;
                let seen = evidence::EvidenceSighting { tenant: *tenant, visitor: *visitor, id, by };
                evidence::record_sighting(group, seen, fact.received, touched)?;
                let hashes: Vec<AltHash> = also.iter().copied().chain([*said]).collect();
                seen_now.push(VisitorSighting { seen, hashes, received: fact.received });
            }
        }
    }
    people::recompute(group, touched, linked)?;
    Ok(seen_now)
}

/// An id as it is kept.
fn known_visitors(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    id: AlternateId,
    also: &[AltHash],
    touched: &mut TouchedEvidence,
) -> Result<AlternateId, StoreError> {
    // What two visitors have in common has one name, and nobody looks it up.
    if id.kind == KindCode::PAIR { Ok(id) } else { alternates::resolve_ids(group, tenant, id, also, touched) }
}

/// What may be wrong with people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuspectPeople {
    /// Visitors of theirs.
    pub visitors: BTreeSet<(TenantNo, VisitorId)>,
    /// Rows that nobody points to.
    pub empty: Vec<PersonNo>,
    /// Of people with a large id, a visitor each whose row is right, or is not (`false`) but will be.
    pub speakers: BTreeSet<(TenantNo, VisitorId, bool)>,
}

/// Marks visitors that withdrew and ends their evidence for ever (invariant 10).
fn withdraw_visitors(
    group: &mut WriteTxn<'_>,
    fresh: &[Linking<'_>],
    linked: &mut LinkChanges,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    const MARK: &str = "UPDATE visitors SET withdrawn = ?3 WHERE tenant = ?1 AND visitor = ?2 AND withdrawn IS NULL";
    for Linking { tenant, visitor, facts } in fresh {
        let Some(fact) = facts.iter().find(|f| f.what == FactKind::Withdrawal) else {
            continue;
        };
        let place = (tenant.0, visitor.as_bytes(), signed(fact.received));
        if group.tx.prepare_cached(MARK)?.execute(place)? == 1 {
            if !planted::is_active(PlantedBug::WithdrawalKeepsItsLinks) {
                evidence::end_evidence(group, *tenant, *visitor, touched)?;
            }
            linked.withdrawn.insert((*tenant, *visitor));
            linked.people.extend(former_people(group, *tenant, *visitor)?);
        }
    }
    Ok(())
}

/// The people that a visitor was cut from before: their snapshots say that it is another's, and not yet that it is gone.
pub(crate) fn former_people(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
) -> Result<Vec<PersonChange>, StoreError> {
    const FORMER: &str = "SELECT c.person FROM cuts c JOIN people p ON p.person = c.person
        WHERE c.visitor = ?2 AND p.tenant = ?1";
    // Above what is being written now.
    group.next_version();
    let mut statement = group.tx.prepare_cached(FORMER)?;
    let rows = statement.query_map((tenant.0, visitor.as_bytes()), |row| {
        Ok(PersonChange { person: PersonNo(row.get(0)?), cut: true })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
#[path = "link/tests.rs"]
mod tests;
