//! People: recomputes the people around changed evidence and compares them with the store.
//!
//! Gather (`gather_evidence`) → decide (`causeway_shared::identity::people::people`, `plan_people`) → apply (`apply`).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AlternateId, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::identity::people::{Evidence, FlagReason, LinkedPeople, LinkedPerson, link_people};

use crate::base::integers::signed;
use crate::erasures::sweep::{self, PersonChange};
use crate::identity::changes::{GroupRepresentative, LinkChanges, TouchedEvidence};
use crate::identity::evidence;
use crate::identity::neighbourhood::{
    ComputedPeople, EvidenceNeighbourhood, StoredVisitor, gather_evidence, oldest_visitors, stored_visitor,
};
use crate::identity::planned::{LeftRow, PlannedPerson, plan_people};
use crate::identity::stored_person::{StoredPerson, load_person};
use crate::store::tables::{cuts, people, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo};

/// Recomputes the people around every visitor whose evidence changed.
pub(crate) fn recompute(
    group: &mut WriteTxn<'_>,
    touched: &mut TouchedEvidence,
    linked: &mut LinkChanges,
) -> Result<(), StoreError> {
    let mut course = ComputedPeople::new(touched.representatives.clone());
    let (mut passed, mut large_rows) = (BTreeSet::new(), BTreeSet::new());
    for (tenant, visitor) in touched.visitors.clone() {
        if course.done.contains(&(tenant, visitor)) || passed.contains(&(tenant, visitor)) {
            continue;
        }
        // A visitor that withdrew leaves a person that is known to be too large at once: no evidence links it any more,
        // and the walk around each one would be as long.
        if linked.withdrawn.contains(&(tenant, visitor))
            && stored_visitor(group, tenant, visitor)?.is_some_and(|stored| large_rows.contains(&stored.person))
        {
            separate(group, tenant, visitor, linked)?;
            continue;
        }
        let around = gather_evidence(group, tenant, visitor, touched, &mut course)?;
        if around.is_too_large {
            // The person stays as it is, and `reconcile` reports it. Withdrawn visitors must leave it now, even if the
            // person is first found here.
            group.people_too_large.inc();
            tracing::warn!(limit = limits::AROUND_VISITORS, "a person is too large to be linked in one transaction");
            large_rows.extend(around.stored.values().map(|stored| stored.person));
            for visitor in around.stored.keys() {
                if passed.insert((tenant, *visitor)) && linked.withdrawn.contains(&(tenant, *visitor)) {
                    separate(group, tenant, *visitor, linked)?;
                }
            }
            continue;
        }
        course.done.extend(around.stored.keys().map(|v| (tenant, *v)));
        let found = decide(group, tenant, &around)?;
        for (visitor, id) in found.unique.iter().filter(|(_, id)| around.large.contains(id)) {
            let representative = course
                .representatives
                .entry((tenant, *id))
                .or_insert(GroupRepresentative { visitor: *visitor, keeps_row: true });
            representative.keeps_row = true;
        }
        keep_flags(group, tenant, &around, &found, touched)?;
        let (planned, left) = plan_people(group, tenant, &around, &found, touched.of_rows)?;
        for planned in planned {
            linked.rows.extend(&planned.from);
            let change = apply(group, tenant, planned)?;
            linked.rows.insert(change.person);
            linked.people.push(change);
        }
        for (row, left) in left {
            linked.rows.insert(row);
            linked.people.push(shrink(group, row, &left)?);
        }
    }
    Ok(())
}

fn decide(group: &WriteTxn<'_>, tenant: TenantNo, around: &EvidenceNeighbourhood) -> Result<LinkedPeople, StoreError> {
    let config = &group.rules.tenants.by_no(tenant)?.config;
    let evidence: Vec<Evidence> = around.rows.values().flatten().map(|row| row.evidence).collect();
    let class = |id: AlternateId| config.class(id.kind, around.oversized.contains(&id));
    let mut found = link_people(&evidence, class, config.threshold());
    let known: BTreeSet<VisitorId> = evidence.iter().map(|evidence| evidence.visitor).collect();
    let without = around.stored.keys().filter(|visitor| !known.contains(visitor));
    found.people.extend(without.map(|visitor| LinkedPerson { master: *visitor, members: [*visitor].into() }));
    Ok(found)
}

fn keep_flags(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    around: &EvidenceNeighbourhood,
    found: &LinkedPeople,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    let reasons: BTreeMap<(VisitorId, AlternateId), FlagReason> =
        found.flags.iter().map(|f| ((f.visitor, f.id), f.reason)).collect();
    for ((visitor, id), rows) in &around.rows {
        let reason = reasons.get(&(*visitor, *id)).copied();
        if rows.iter().any(|row| row.flag != reason) {
            evidence::flag_row(group, tenant, *visitor, *id, reason)?;
            touched.ids.insert((tenant, *id));
        }
    }
    Ok(())
}

/// Writes one person: its row, the pointers of its visitors, and its cuts. Removes rows without visitors.
fn apply(group: &mut WriteTxn<'_>, tenant: TenantNo, planned: PlannedPerson) -> Result<PersonChange, StoreError> {
    let members = &planned.person.members;
    let cuts = cuts(group, &planned.from, &planned.left, |visitor| members.contains(visitor))?;
    let swept = sweep::unswept_people(group, &planned.from)?;
    let person = write_row(group, tenant, &planned)?;
    for visitor in members {
        let weight = planned.weights.get(visitor).copied().unwrap_or(EvidenceWeight::LOGIN);
        group.tx.prepare_cached(visitors::VISITORS_POINT_TO_PERSON)?.execute((
            tenant.0,
            visitor.as_bytes(),
            person.0,
            weight.0,
        ))?;
    }
    group.tx.prepare_cached(people::PEOPLE_TAKE_WEIGHT_OF_MASTER)?.execute((person.0, tenant.0))?;
    write_cuts(group, person, &cuts)?;
    let awaited = sweep::await_with(group, &planned.from, person)?;
    for row in planned.from.iter().filter(|row| **row != person) {
        remove_if_empty(group, *row)?;
    }
    let cut =
        awaited || !planned.left.is_empty() || planned.from.iter().any(|row| *row != person && swept.contains(row));
    Ok(PersonChange { person, cut })
}

fn write_row(group: &mut WriteTxn<'_>, tenant: TenantNo, planned: &PlannedPerson) -> Result<PersonNo, StoreError> {
    let (epoch, version) = (group.next_epoch(), group.next_version());
    let devices = signed(planned.person.members.len() as u64 + planned.unseen);
    let (epoch, version) = (signed(epoch.0), signed(version.counter));
    let (master, row) = (planned.person.master.as_bytes(), planned.row.map(|row| row.0));
    let heir_of = planned.heir_of.map(|heir| heir.0).or(row);
    let values = (row, tenant.0, master, devices, epoch, version, heir_of);
    if let Some(row) = planned.row
        && group.tx.prepare_cached(people::PEOPLE_UPDATE)?.execute(values)? == 1
    {
        return Ok(row);
    }
    let values = (row, tenant.0, master, devices, epoch, version, group.random.draw::<16>());
    group.tx.prepare_cached(people::PEOPLE_INSERT)?.execute(values)?;
    Ok(PersonNo(group.tx.last_insert_rowid()))
}

/// Removes visitors, which now belong to other rows, from a row whose other visitors were not examined.
fn shrink(
    group: &mut WriteTxn<'_>,
    row: PersonNo,
    LeftRow { master, devices, gone }: &LeftRow,
) -> Result<PersonChange, StoreError> {
    let cuts = cuts(group, &[row].into(), gone, |_| false)?;
    let (epoch, version) = (group.next_epoch(), group.next_version());
    let values = (row.0, signed(*devices), master.as_bytes(), signed(epoch.0), signed(version.counter));
    group.tx.prepare_cached(people::PEOPLE_SHRINK)?.execute(values)?;
    write_cuts(group, row, &cuts)?;
    Ok(PersonChange { person: row, cut: true })
}

/// A person's cuts: those of its previous rows and of visitors that left now, without visitors that came back.
fn cuts(
    group: &WriteTxn<'_>,
    from: &BTreeSet<PersonNo>,
    left: &[VisitorId],
    is_back: impl Fn(&VisitorId) -> bool,
) -> Result<Vec<(VisitorId, Millis)>, StoreError> {
    let mut all: BTreeMap<VisitorId, Millis> = BTreeMap::new();
    for row in from {
        for (visitor, cut) in crate::identity::cuts::load_cuts(group.tx, *row)? {
            let known = all.entry(visitor).or_insert(cut.at);
            *known = cut.at.max(*known);
        }
    }
    all.extend(left.iter().take(limits::CUTS).map(|v| (*v, group.now)));
    all.retain(|visitor, _| !is_back(visitor));
    let mut newest: Vec<(VisitorId, Millis)> = all.into_iter().collect();
    newest.sort_by_key(|(visitor, at)| (std::cmp::Reverse(*at), *visitor));
    newest.truncate(limits::CUTS);
    Ok(newest)
}

fn write_cuts(group: &WriteTxn<'_>, person: PersonNo, cuts: &[(VisitorId, Millis)]) -> Result<(), StoreError> {
    group.tx.prepare_cached(cuts::CUTS_DELETE_OF_PERSON)?.execute([person.0])?;
    for (visitor, at) in cuts {
        group.tx.prepare_cached(cuts::CUTS_INSERT)?.execute((person.0, visitor.as_bytes(), signed(*at)))?;
    }
    Ok(())
}

pub(crate) fn remove_if_empty(group: &WriteTxn<'_>, person: PersonNo) -> Result<(), StoreError> {
    if group.tx.prepare_cached(people::PEOPLE_DELETE_IF_EMPTY)?.execute([person.0])? == 1 {
        group.tx.prepare_cached(cuts::CUTS_DELETE_OF_PERSON)?.execute([person.0])?;
    }
    Ok(())
}

/// Removes a visitor from a person that is too large to be recomputed.
fn separate(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    linked: &mut LinkChanges,
) -> Result<(), StoreError> {
    let Some(StoredVisitor { person: row, .. }) = stored_visitor(group, tenant, visitor)? else { return Ok(()) };
    let Some(StoredPerson { master, devices, .. }) = load_person(group, tenant, row)?.filter(|known| known.devices > 1)
    else {
        return Ok(());
    };
    let person = LinkedPerson { master: visitor, members: BTreeSet::from([visitor]) };
    let (from, left, weights) = (BTreeSet::new(), Vec::new(), BTreeMap::new());
    let planned = PlannedPerson { person, weights, unseen: 0, from, row: None, heir_of: None, left };
    let mut alone = apply(group, tenant, planned)?;
    // Its own snapshot may also name visitors that were erased before.
    alone.cut |= sweep::await_with(group, &[row].into(), alone.person)?;
    linked.rows.extend([alone.person, row]);
    linked.people.push(alone);
    let master = if master == visitor {
        oldest_visitors(group, tenant, row, Some(visitor), devices, |_| false)?
    } else {
        Some(master)
    };
    if let Some(master) = master {
        let left = LeftRow { master, devices: devices.saturating_sub(1), gone: vec![visitor] };
        linked.people.push(shrink(group, row, &left)?);
    }
    Ok(())
}
