//! All visitors and all evidence of a store, by numbers.

use std::collections::BTreeMap;

use causeway_shared::ids::{AltHash, KindCode, VisitorId};
use causeway_shared::person::{Claim, Evidence, NONE, Reason, Weight};
use rusqlite::Connection;

use crate::link::Row;
use crate::store::{StoreError, TenantNo, visitor_at};
use crate::tenants::Tenants;

/// How often progress is told, in rows.
const TOLD: u64 = 100_000;

/// A visitor, and the row of its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) tenant: u32,
    pub(super) visitor: VisitorId,
    pub(super) person: u32,
}

impl At {
    pub(super) fn tenant(&self) -> TenantNo {
        TenantNo(self.tenant.into())
    }
}

/// What decides who belongs together, and what was decided.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// In order of tenant and id; the place of one is its number.
    pub(super) visitors: Vec<At>,
    /// Evidence that may link.
    pub(super) claims: Vec<Claim>,
    /// Which ids are unique, by their numbers.
    pub(super) unique: Vec<bool>,
    /// Evidence that is flagged: the visitor, the id ([`NONE`] for one that no claim names), and why.
    pub(super) flagged: Vec<(u32, u32, Reason)>,
}

/// An id, in the order in which of two the first one counts.
type Id = (u32, AltHash, KindCode);

/// Reads them in the order in which the store has them.
pub(super) fn gather(
    conn: &Connection,
    tenants: &Tenants,
    progress: super::Progress<'_>,
) -> Result<Gathered, StoreError> {
    let known: BTreeMap<i64, u32> =
        tenants.iter().map(|known| Ok((known.no.0, small(known.no.0)?))).collect::<Result<_, StoreError>>()?;
    // The highest rows: counting them would read them all.
    let all = conn.query_row("SELECT ifnull(max(row), 0) FROM visitors", [], |row| row.get::<_, i64>(0))?;
    let all = all.unsigned_abs();
    let mut gathered = Gathered { visitors: visitors(conn, &known, all, progress)?, ..Gathered::default() };
    let unique = |(tenant, _, kind): &Id| {
        tenants.by_no(TenantNo(i64::from(*tenant))).is_ok_and(|known| known.config.is_unique(*kind))
    };
    evidence(conn, &known, &mut gathered, unique, || progress(all, all))?;
    Ok(gathered)
}

/// A number of this store's as it is kept here.
///
/// # Errors
/// [`StoreError::Corrupt`] for one of more than 32 bits.
fn small(number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| StoreError::Corrupt { what: "number above 4294967295" })
}

pub(super) fn short(length: usize) -> Result<u32, StoreError> {
    u32::try_from(length).map_err(|_| StoreError::Corrupt { what: "number above 4294967295" })
}

fn visitors(
    conn: &Connection,
    known: &BTreeMap<i64, u32>,
    all: u64,
    progress: super::Progress<'_>,
) -> Result<Vec<At>, StoreError> {
    let mut found = Vec::new();
    const READ: &str =
        "SELECT tenant, visitor, person FROM visitors INDEXED BY visitors_by_id ORDER BY tenant, visitor";
    let mut statement = conn.prepare(READ)?;
    let mut rows = statement.query([])?;
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += 1;
        if seen % TOLD == 0 {
            progress(seen, 2 * all)?;
        }
        if let Some(tenant) = known.get(&row.get(0)?) {
            // No row has the last number: whatever does not fit is not there either.
            let person = u32::try_from(row.get::<_, i64>(2)?).unwrap_or(u32::MAX);
            found.push(At { tenant: *tenant, visitor: visitor_at(row, 1)?, person });
        }
    }
    Ok(found)
}

/// Evidence lies in the order of visitors: one walk over both.
fn evidence(
    conn: &Connection,
    known: &BTreeMap<i64, u32>,
    gathered: &mut Gathered,
    unique: impl Fn(&Id) -> bool,
    told: impl Fn() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut ids: Vec<(Id, u32)> = Vec::new();
    let mut flagged: Vec<(u32, Id, Reason)> = Vec::new();
    let mut number = 0_usize;
    Row::each(conn, |tenant, row| {
        let Some(tenant) = known.get(&tenant.0) else { return Ok(()) };
        let Evidence { visitor, id, .. } = row.evidence;
        while gathered.visitors.get(number).is_some_and(|at| (at.tenant, at.visitor) < (*tenant, visitor)) {
            number += 1;
        }
        let is_there = gathered.visitors.get(number).is_some_and(|at| (at.tenant, at.visitor) == (*tenant, visitor));
        if !is_there || row.evidence.weight < Weight::LOGIN {
            return Ok(());
        }
        let (visitor, id) = (short(number)?, (*tenant, id.hash, id.kind));
        flagged.extend(row.flag.map(|reason| (visitor, id, reason)));
        if row.claims() {
            ids.push((id, short(gathered.claims.len())?));
            gathered.claims.push(Claim { since: row.evidence.since(), visitor, id: NONE });
        }
        Ok(())
    })?;
    told()?;
    ids.sort_unstable();
    for same in ids.chunk_by(|one, next| one.0 == next.0) {
        let number = short(gathered.unique.len())?;
        gathered.unique.extend(same.first().map(|(id, _)| unique(id)));
        for (_, claim) in same {
            gathered.claims.iter_mut().skip(*claim as usize).take(1).for_each(|claim| claim.id = number);
        }
    }
    let number = |id: &Id| {
        let (_, claim) = ids.get(ids.partition_point(|(known, _)| known < id)).filter(|(known, _)| known == id)?;
        gathered.claims.get(*claim as usize).map(|claim| claim.id)
    };
    gathered.flagged =
        flagged.into_iter().map(|(visitor, id, reason)| (visitor, number(&id).unwrap_or(NONE), reason)).collect();
    Ok(())
}
