//! Link: alias facts become evidence, evidence becomes people and lookups.
//!
//! Evidence is kept whatever it says; which of it links is decided by `causeway_shared::person` from the
//! evidence as a set. Work is done only where evidence changed: a page view costs nothing here.

use crate::identity::alternates;
use crate::identity::evidence;
use crate::identity::lookups;
use crate::identity::people;
use crate::privacy::erasure;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::config::ProofPolicy;
use causeway_shared::fact::{Fact, What};
use causeway_shared::ids::{AltHash, AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::planted::{self, PlantedBug};
use rusqlite::OptionalExtension as _;

pub use crate::identity::alternates::{canonical, canonical_of, family};
use crate::identity::evidence::By;
pub use crate::identity::evidence::{Row, cancelled, held_unique, of_visitor, other};
pub use crate::privacy::erasure::{last_seen, person, seen_until, surely};

use crate::audience;
use crate::campaigns::experiment;
use crate::campaigns::spend::Bills;
use crate::kv::publish;
use crate::pipeline::group::Group;
use crate::privacy::erase;
use crate::profiles::fold::Erasing;
use crate::profiles::fold::Linking;
use crate::store::PersonNo;
use crate::store::StoreError;
use crate::store::TenantNo;
use crate::store::signed;

/// What this group changed about who belongs together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Linked {
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

/// A person whose membership is another now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonChange {
    /// The person.
    pub person: PersonNo,
    /// Whether visitors left: then no snapshot may wait.
    pub cut: bool,
}

/// Where evidence changed in this group.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) visitors: BTreeSet<(TenantNo, VisitorId)>,
    pub(crate) ids: BTreeSet<(TenantNo, AlternateId)>,
    /// Ids among them (canonical) that go by another hash too: under that one no lookup was written, or another id's was.
    pub(crate) renamed: BTreeSet<(TenantNo, AlternateId)>,
    /// Whether the rows of people may be wrong: then all who point to one are looked at too.
    pub(crate) of_rows: bool,
    /// Who speaks for large ids, where that is known.
    pub(crate) speakers: BTreeMap<(TenantNo, AlternateId), people::Speaker>,
}

/// Links what the new facts say.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn link(group: &mut Group<'_>, fresh: &[Linking<'_>], erasing: &[Erasing<'_>]) -> Result<Linked, StoreError> {
    let mut linked = Linked::default();
    let mut touched = Touched::default();
    let mut seen_now = Vec::new();
    // Withdrawals first: evidence that comes in the same group must not outlive them.
    withdraw(group, fresh, &mut linked, &mut touched)?;
    for Linking { tenant, visitor, facts } in fresh {
        for fact in facts {
            if let What::Cancellation { id } = &fact.what
                && !planted::is_active(PlantedBug::CancellationForgotten)
            {
                let id = known(group, *tenant, *id, &[], &mut touched)?;
                evidence::cancel(group, *tenant, *visitor, id, fact.received, &mut touched)?;
            }
            if let What::Evidence { id, also, weight, source } = &fact.what {
                let id = known(group, *tenant, *id, also, &mut touched)?;
                let by = By::Other(*source, *weight);
                let seen = evidence::Seen { tenant: *tenant, visitor: *visitor, id, by };
                evidence::note(group, seen, fact.received, &mut touched)?;
            }
            if let What::Alias { id, also, proven } = &fact.what {
                let said = &id.hash;
                let also: &[AltHash] = if planted::is_active(PlantedBug::NamesOfRotationLost) { &[] } else { also };
                let by = By::Page { proven: *proven };
                // Before anything of the id is kept.
                if evidence::is_over(group, *tenant, *visitor, id.kind, by)?
                    && canonical_of(group.tx, *tenant, id.kind, also.iter().copied().chain([*said]))?.is_none()
                {
                    group.ids_over.add(1);
                    continue;
                }
                let id = alternates::resolve(group, *tenant, *id, also, &mut touched)?;
                let seen = evidence::Seen { tenant: *tenant, visitor: *visitor, id, by };
                evidence::note(group, seen, fact.received, &mut touched)?;
                let hashes: Vec<AltHash> = also.iter().copied().chain([*said]).collect();
                seen_now.push((seen, hashes, fact.received));
            }
        }
    }
    people::recompute(group, &mut touched, &mut linked)?;
    // Whose browser each is, is known now: of two members on one it may be another's than before.
    let mut going = BTreeMap::new();
    for (seen, hashes, received) in seen_now {
        erased_before(group, seen, &hashes, received, &mut going, &mut linked)?;
    }
    if !erasing.is_empty() || !going.is_empty() || !linked.ended.is_empty() {
        let erased = erasure::apply(group, erasing, going, &mut linked)?;
        touched.ids.extend(erased.ids);
        touched.renamed.extend(erased.renamed);
    }
    lookups::recompute(group, &touched, &mut linked)?;
    Ok(linked)
}

/// Writes the lookups of ids (canonical) again from their evidence, where it says something else.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn write_lookups(group: &mut Group<'_>, ids: BTreeSet<(TenantNo, AlternateId)>) -> Result<(), StoreError> {
    let mut linked = Linked::default();
    lookups::recompute(group, &Touched { ids, ..Touched::default() }, &mut linked)?;
    publish::note(group, &[], &linked)
}

/// An id as it is kept.
fn known(
    group: &Group<'_>,
    tenant: TenantNo,
    id: AlternateId,
    also: &[AltHash],
    touched: &mut Touched,
) -> Result<AlternateId, StoreError> {
    // What two visitors have in common has one name, and nobody looks it up.
    if id.kind == KindCode::PAIR { Ok(id) } else { alternates::resolve(group, tenant, id, also, touched) }
}

/// What may be wrong with people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Visitors of theirs.
    pub visitors: BTreeSet<(TenantNo, VisitorId)>,
    /// Rows that nobody points to.
    pub empty: Vec<PersonNo>,
    /// Of people with a large id, a visitor each whose row is right, or is not (`false`) but will be.
    pub speakers: BTreeSet<(TenantNo, VisitorId, bool)>,
}

/// Brings what is wrong to what the evidence says; gives how many people are others now.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn mend(group: &mut Group<'_>, wrong: &Wrong) -> Result<u64, StoreError> {
    let Wrong { visitors, empty, speakers } = wrong;
    let mut linked = Linked::default();
    let mut touched = Touched { visitors: visitors.clone(), of_rows: true, ..Touched::default() };
    for (tenant, visitor, keeps_row) in speakers {
        let config = &group.rules.tenants.by_no(*tenant)?.config;
        if let Some(id) = evidence::first_unique(group.tx, *tenant, *visitor, |kind| config.is_unique(kind))? {
            touched.speakers.insert((*tenant, id), people::Speaker { visitor: *visitor, keeps_row: *keeps_row });
        }
    }
    people::recompute(group, &mut touched, &mut linked)?;
    empty.iter().try_for_each(|row| people::remove_if_empty(group, *row))?;
    linked.rows.extend(empty);
    lookups::recompute(group, &touched, &mut linked)?;
    Bills::default().keep(group, &linked)?;
    experiment::people::refresh(group, &[], &linked)?;
    publish::note(group, &[], &linked)?;
    audience::note(group, &[], &linked)?;
    // Who is alone has no siblings to wait with.
    for (tenant, visitor) in visitors {
        publish::put(group, *tenant, publish::Subject::Snapshot(*visitor), group.now)?;
    }
    Ok(linked.people.len() as u64)
}

/// Whom an earlier erasure of the id takes along, now that a visitor was seen with it at `received`: that visitor, if the
/// sighting is of before and came late; and who was seen with a hash that is only now known to be the same id's.
fn erased_before(
    group: &Group<'_>,
    seen: evidence::Seen,
    also: &[AltHash],
    received: Millis,
    going: &mut erasure::Going,
    linked: &mut Linked,
) -> Result<(), StoreError> {
    let evidence::Seen { tenant, visitor, id, by } = seen;
    let proven = by == By::Page { proven: true };
    let hashes = || also.iter().copied().chain([id.hash]);
    let Some((at, receipt)) = erase::id_erased(group.tx, tenant, id.kind, hashes())? else { return Ok(()) };
    let by = erasure::By { at, receipt };
    let id = canonical(group.tx, tenant, id)?.unwrap_or(id);
    for hash in hashes() {
        if erase::id_erased(group.tx, tenant, id.kind, [hash])? != Some((at, receipt)) {
            for holder in erasure::end_id(group, tenant, id, hashes(), by, linked)? {
                going.entry((tenant, holder)).or_insert(by);
            }
            break;
        }
    }
    let unique = group.rules.tenants.by_no(tenant)?.config.is_unique(id.kind);
    let cancelled = evidence::cancelled(group.tx, tenant, visitor, id)?;
    // A browser that is another member's by now only saw the proof.
    let config = &group.rules.tenants.by_no(tenant)?.config;
    let trusted = config.member_proof == ProofPolicy::Trusted;
    let held = held_unique(group.tx, tenant, visitor, |kind| config.is_unique(kind))?;
    if received <= at {
        linked.ended.insert((tenant, id, at));
    }
    if unique && held.is_some_and(|held| held != id) {
        return Ok(());
    }
    if received <= at && (proven || !unique || trusted) && cancelled.is_none_or(|cancelled| received > cancelled) {
        going.entry((tenant, visitor)).or_insert(by);
    }
    Ok(())
}

/// Marks visitors that withdrew and ends their evidence for ever (invariant 10).
fn withdraw(
    group: &mut Group<'_>,
    fresh: &[Linking<'_>],
    linked: &mut Linked,
    touched: &mut Touched,
) -> Result<(), StoreError> {
    const MARK: &str = "UPDATE visitors SET withdrawn = ?3 WHERE tenant = ?1 AND visitor = ?2 AND withdrawn IS NULL";
    for Linking { tenant, visitor, facts } in fresh {
        let Some(fact) = facts.iter().find(|f| f.what == What::Withdrawal) else {
            continue;
        };
        let place = (tenant.0, visitor.as_bytes(), signed(fact.received));
        if group.tx.prepare_cached(MARK)?.execute(place)? == 1 {
            if !planted::is_active(PlantedBug::WithdrawalKeepsItsLinks) {
                evidence::end(group, *tenant, *visitor, touched)?;
            }
            linked.withdrawn.insert((*tenant, *visitor));
            linked.people.extend(former(group, *tenant, *visitor)?);
        }
    }
    Ok(())
}

/// The people that a visitor was cut from before: their snapshots say that it is another's, and not yet that it is gone.
pub(crate) fn former(
    group: &mut Group<'_>,
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

#[cfg(test)]
#[path = "link/tests.rs"]
mod tests;
