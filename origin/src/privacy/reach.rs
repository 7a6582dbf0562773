//! The visitors that an erasure reaches, by ids with sure evidence.

use crate::identity::evidence::{self, EvidenceRow, of_visitor};
use crate::identity::link::held_unique;
use crate::store::tables::visitors;
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo, visitor_at};
use causeway_shared::base::ids::{AlternateId, Millis, VisitorId};
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::identity::people::FlagReason;
use rusqlite::Connection;
use std::collections::BTreeSet;

/// Visitors of the person that the visitors `found` belonged to until a time, and the unique ids that these hold.
/// `named` is the id that the erasure names, if any.
///
/// # Errors
/// [`StoreError`].
pub fn person_reach(
    conn: &Connection,
    tenant: &TenantContext,
    found: &BTreeSet<VisitorId>,
    named: Option<AlternateId>,
    until: Millis,
) -> Result<(BTreeSet<VisitorId>, BTreeSet<AlternateId>), StoreError> {
    let named = named.filter(|id| tenant.config.is_unique(id.kind));
    let held_by = |visitor| held_unique(conn, tenant.no, visitor, |kind| tenant.config.is_unique(kind));
    let mut own = Vec::new();
    for visitor in found {
        // A browser that only saw the member's proof belongs to another member, so it leads no further.
        let held = held_by(*visitor)?;
        own.extend((named.is_none() || held.is_none() || held == named).then_some(*visitor));
    }
    let (members, _) = sure_members(conn, tenant.no, own, until)?;
    let mut held = BTreeSet::new();
    for member in &members {
        held.extend(held_by(*member)?);
    }
    Ok((members, held))
}

/// Visitors seen with an id until a time by valid evidence. Cancelled evidence does not count; neither does weaker
/// evidence than a login, an unproven unique id, or a unique id on a browser that belongs to another member. An id of
/// another kind counts if a page named it, because only an administrator erases by such an id.
///
/// # Errors
/// [`StoreError`].
pub fn seen_until(
    conn: &Connection,
    tenant: &TenantContext,
    id: AlternateId,
    until: Millis,
) -> Result<Vec<VisitorId>, StoreError> {
    let unique = tenant.config.is_unique(id.kind);
    let mut found = Vec::new();
    for row in evidence::of_id(conn, tenant.no, id)? {
        let mut evidence = row.evidence;
        if evidence.cancelled == Some(evidence::FOR_EVER) {
            // A withdrawal ended this evidence, which is no cancellation.
            evidence.cancelled = evidence::last_cancellation(conn, tenant.no, evidence.visitor, id)?;
        }
        let is_sure = row.evidence.weight >= EvidenceWeight::LOGIN || row.is_page_claim();
        let own = is_sure && (!unique || row.flag != Some(FlagReason::SecondUnique));
        if own && evidence.stands() && evidence.since() <= until {
            found.push(row.evidence.visitor);
        }
    }
    Ok(found)
}

/// Visitors that surely belonged to the people of `visitors` until a time, by their evidence; and the start of the
/// newest connection among them, `None` without any. Weaker evidence than a login, and logins after that time, do not
/// widen an erasure.
///
/// # Errors
/// [`StoreError`].
pub fn sure_members(
    conn: &Connection,
    tenant: TenantNo,
    visitors: impl IntoIterator<Item = VisitorId>,
    until: Millis,
) -> Result<(BTreeSet<VisitorId>, Option<Millis>), StoreError> {
    let links = |row: &EvidenceRow| row.claims() && row.flag.is_none() && row.evidence.since() <= until;
    let mut found: BTreeSet<VisitorId> = visitors.into_iter().collect();
    let (mut members, mut ids, mut newest) = (BTreeSet::new(), BTreeSet::new(), None);
    let mut open: Vec<VisitorId> = found.iter().copied().collect();
    while let Some(visitor) = open.pop() {
        // Each person is read once, however many of its visitors are named.
        if !members.contains(&visitor) {
            members.extend(crate::privacy::reach::person_of(conn, tenant, visitor)?);
        }
        let own = of_visitor(conn, tenant, visitor)?.into_iter().filter(links).map(|row| row.evidence.id);
        for id in own.filter(|id| ids.insert(*id)) {
            for row in evidence::of_id(conn, tenant, id)?.into_iter().filter(links) {
                let other = row.evidence.visitor;
                if found.contains(&other) || members.contains(&other) {
                    newest = newest.max(Some(row.evidence.since()));
                    open.extend(found.insert(other).then_some(other));
                }
            }
        }
    }
    Ok((found, newest))
}

/// Time of the last observation of an id by evidence with weight; `None` for never.
///
/// # Errors
/// [`StoreError`].
pub fn last_seen(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Option<Millis>, StoreError> {
    let mut last = None;
    evidence::each_newest(conn, tenant, id, |row| {
        last = Some(row.evidence.last);
        false
    })?;
    Ok(last)
}

/// All visitors of a visitor's person, including itself; empty if it has no row.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn person_of(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Vec<VisitorId>, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_OF_SAME_PERSON)?;
    let rows = statement.query_map((tenant.0, visitor.as_bytes()), |row| visitor_at(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
