//! The visitors that an erasure reaches: by ids that they were surely seen with.

use crate::identity::evidence::{self, EvidenceRow, of_visitor};
use crate::identity::link::held_unique;
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo, visitor_at};
use causeway_shared::base::ids::{AlternateId, Millis, VisitorId};
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::identity::people::FlagReason;
use rusqlite::Connection;
use std::collections::BTreeSet;

/// The visitors of the person that some of its visitors were until a time, and the unique ids that these hold. `named` is the
/// id that named them, if one did.
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
        // A browser that only saw the member's proof leads to nobody: it is another's.
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

/// The visitors seen with an id until a time, and not by mistake: what was cancelled does not count, nor a unique id
/// without proof, which anyone may say, or on a browser that is another member's, nor evidence that is not sure. An id of
/// another kind counts as pages named it: only an administrator erases by such an id.
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
            // That of a withdrawal ends for another reason.
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

/// The visitors of some visitors' people that were surely them until a time: by ids that they were seen with, as links are made
/// of them; and since when the newest of these ties holds, 0 without any. What is unsure widens no erasure, nor does a login
/// of after it, in whatever group it comes.
///
/// # Errors
/// [`StoreError`].
pub fn sure_members(
    conn: &Connection,
    tenant: TenantNo,
    visitors: impl IntoIterator<Item = VisitorId>,
    until: Millis,
) -> Result<(BTreeSet<VisitorId>, Millis), StoreError> {
    let links = |row: &EvidenceRow| row.claims() && row.flag.is_none() && row.evidence.since() <= until;
    let mut found: BTreeSet<VisitorId> = visitors.into_iter().collect();
    let (mut members, mut ids, mut newest) = (BTreeSet::new(), BTreeSet::new(), 0);
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
                    newest = newest.max(row.evidence.since());
                    open.extend(found.insert(other).then_some(other));
                }
            }
        }
    }
    Ok((found, newest))
}

/// When an id was seen last, by evidence that says something; 0 for never.
///
/// # Errors
/// [`StoreError`].
pub fn last_seen(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Millis, StoreError> {
    let mut last = 0;
    evidence::each_newest(conn, tenant, id, |row| {
        last = row.evidence.last;
        false
    })?;
    Ok(last)
}

/// All visitors of a visitor's person, itself among them; none where it has no row.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn person_of(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Vec<VisitorId>, StoreError> {
    const READ: &str = "SELECT visitor FROM visitors
        WHERE person = (SELECT person FROM visitors WHERE tenant = ?1 AND visitor = ?2)";
    let mut statement = conn.prepare_cached(READ)?;
    let rows = statement.query_map((tenant.0, visitor.as_bytes()), |row| visitor_at(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
