//! All visitors and all evidence of a store, by numbers.

use std::collections::BTreeMap;

use causeway_shared::base::ids::{AltHash, AlternateId, KindCode, VisitorId};
use causeway_shared::facts::evidence::{EvidenceWeight, LinkClass};
use causeway_shared::identity::people::{FlagReason, NONE, SightingClaim, combine_evidence};
use rusqlite::Connection;

use crate::identity::link::EvidenceRow;
use crate::store::tenants::{TenantContext, Tenants};
use crate::store::{StoreError, TenantNo, visitor_at};

/// How often progress is told, in rows.
const TOLD: u64 = 100_000;

/// A visitor, and the row of its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VisitorPosition {
    pub(super) tenant: u32,
    pub(super) visitor: VisitorId,
    pub(super) person: u32,
    pub(super) weight: EvidenceWeight,
}

impl VisitorPosition {
    pub(super) fn tenant(&self) -> TenantNo {
        TenantNo(self.tenant.into())
    }
}

/// What decides who belongs together, and what was decided.
#[derive(Debug, Default)]
pub(super) struct GatheredEvidence {
    /// In order of tenant and id; the place of one is its number.
    pub(super) visitors: Vec<VisitorPosition>,
    /// What is as sure as a login, of each visitor and id.
    pub(super) claims: Vec<SightingClaim>,
    /// What is sure enough.
    pub(super) unsure: Vec<(EvidenceWeight, SightingClaim)>,
    /// How ids link, by their numbers.
    pub(super) classes: Vec<LinkClass>,
    /// Evidence that is flagged: the visitor, the id ([`NONE`] for one that no claim names), and why.
    pub(super) flagged: Vec<(u32, u32, FlagReason)>,
}

/// In a claim's place: among the unsure ones.
const UNSURE: u32 = 1 << 31;

/// An id, in the order in which of two the first one counts.
type Id = (u32, AltHash, KindCode);

/// Reads them in the order in which the store has them.
pub(super) fn gather_evidence(
    conn: &Connection,
    tenants: &Tenants,
    progress: super::Progress<'_>,
) -> Result<GatheredEvidence, StoreError> {
    let of = |known: &TenantContext| Ok((known.no.0, (small_number(known.no.0)?, known.config.threshold())));
    let known: BTreeMap<i64, (u32, EvidenceWeight)> = tenants.iter().map(of).collect::<Result<_, StoreError>>()?;
    // The highest rows: counting them would read them all.
    let all = conn.query_row("SELECT ifnull(max(row), 0) FROM visitors", [], |row| row.get::<_, i64>(0))?;
    let all = all.unsigned_abs();
    let mut gathered =
        GatheredEvidence { visitors: gather_visitors(conn, &known, all, progress)?, ..GatheredEvidence::default() };
    let class = |(tenant, _, kind): &Id, rows: usize| {
        let config = tenants.by_no(TenantNo(i64::from(*tenant))).map(|known| &known.config);
        config.map_or(LinkClass::Shared, |config| config.class(*kind, rows > config.crowd(*kind) as usize))
    };
    gather_rows(conn, &known, &mut gathered, class, || progress(all, all))?;
    Ok(gathered)
}

/// A number of this store's as it is kept here.
///
/// # Errors
/// [`StoreError::Corrupt`] for one of more than 32 bits.
fn small_number(number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| StoreError::Corrupt { what: "number above 4294967295" })
}

pub(super) fn short_length(length: usize) -> Result<u32, StoreError> {
    u32::try_from(length).map_err(|_| StoreError::Corrupt { what: "number above 4294967295" })
}

fn gather_visitors(
    conn: &Connection,
    known: &BTreeMap<i64, (u32, EvidenceWeight)>,
    all: u64,
    progress: super::Progress<'_>,
) -> Result<Vec<VisitorPosition>, StoreError> {
    let mut found = Vec::new();
    const READ: &str =
        "SELECT tenant, visitor, person, weight FROM visitors INDEXED BY visitors_by_id ORDER BY tenant, visitor";
    let mut statement = conn.prepare(READ)?;
    let mut rows = statement.query([])?;
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += 1;
        if seen % TOLD == 0 {
            progress(seen, 2 * all)?;
        }
        if let Some((tenant, _)) = known.get(&row.get(0)?) {
            // No row has the last number: whatever does not fit is not there either.
            let person = u32::try_from(row.get::<_, i64>(2)?).unwrap_or(u32::MAX);
            found.push(VisitorPosition {
                tenant: *tenant,
                visitor: visitor_at(row, 1)?,
                person,
                weight: EvidenceWeight(row.get(3)?),
            });
        }
    }
    Ok(found)
}

/// Evidence lies in the order of visitors: one walk over both.
fn gather_rows(
    conn: &Connection,
    known: &BTreeMap<i64, (u32, EvidenceWeight)>,
    gathered: &mut GatheredEvidence,
    class: impl Fn(&Id, usize) -> LinkClass,
    told: impl Fn() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let (mut ids, mut number) = (IdTable::default(), 0_usize);
    let mut tie: Vec<EvidenceRow> = Vec::new();
    let mut of = None;
    let mut note = |of: Option<(TenantNo, VisitorId, AlternateId)>, rows: &[EvidenceRow]| {
        let Some((tenant, visitor, id)) = of else { return Ok(()) };
        let Some(&(tenant, threshold)) = known.get(&tenant.0) else { return Ok(()) };
        while gathered.visitors.get(number).is_some_and(|at| (at.tenant, at.visitor) < (tenant, visitor)) {
            number += 1;
        }
        let is_there = gathered.visitors.get(number).is_some_and(|at| (at.tenant, at.visitor) == (tenant, visitor));
        let visitor = if is_there { Some(short_length(number)?) } else { None };
        gathered.tie((tenant, id.hash, id.kind), visitor, rows, threshold, &mut ids)
    };
    EvidenceRow::for_each_row(conn, |tenant, row| {
        let next = Some((tenant, row.evidence.visitor, row.evidence.id));
        if next != of {
            note(of, &tie)?;
            (of, tie) = (next, Vec::new());
        }
        tie.push(*row);
        Ok(())
    })?;
    note(of, &tie)?;
    told()?;
    gathered.number(ids, class)
}

/// Where ids are said.
#[derive(Default)]
struct IdTable {
    /// With the places of what ties visitors to them; [`NONE`] of what ties nobody.
    all: Vec<(Id, u32)>,
    flagged: Vec<(u32, Id, FlagReason)>,
}

impl GatheredEvidence {
    fn claim(&mut self, place: u32) -> Option<&mut SightingClaim> {
        match place & UNSURE {
            0 => self.claims.get_mut(place as usize),
            _ => self.unsure.get_mut((place & !UNSURE) as usize).map(|(_, claim)| claim),
        }
    }

    /// Adds all evidence of a visitor, if it is there, and an id.
    fn tie(
        &mut self,
        id: Id,
        visitor: Option<u32>,
        rows: &[EvidenceRow],
        threshold: EvidenceWeight,
        ids: &mut IdTable,
    ) -> Result<(), StoreError> {
        let said = || rows.iter().filter(|row| row.evidence.weight > EvidenceWeight::NOTHING);
        // Who is linked by none of it is one of those that the id was seen with all the same, but for what anyone may say.
        let mut is_other = said().any(|row| row.evidence.stands());
        if let Some(visitor) = visitor {
            ids.flagged.extend(said().filter_map(|row| Some((visitor, id, row.flag?))));
            let sure = combine_evidence(rows.iter().map(|row| row.evidence)).filter(|(weight, _)| *weight >= threshold);
            if let Some((weight, since)) = sure {
                let claim = SightingClaim { since, visitor, id: NONE };
                if weight >= EvidenceWeight::LOGIN {
                    ids.all.push((id, short_length(self.claims.len())?));
                    self.claims.push(claim);
                } else {
                    ids.all.push((id, UNSURE | short_length(self.unsure.len())?));
                    self.unsure.push((weight, claim));
                }
                is_other = false;
            }
        }
        ids.all.extend(is_other.then_some((id, NONE)));
        Ok(())
    }

    /// Gives ids their numbers, and their class by how much was said of each.
    fn number(
        &mut self,
        IdTable { all: mut ids, flagged }: IdTable,
        class: impl Fn(&Id, usize) -> LinkClass,
    ) -> Result<(), StoreError> {
        ids.sort_unstable();
        for same in ids.chunk_by(|one, next| one.0 == next.0) {
            let number = short_length(self.classes.len())?;
            self.classes.extend(same.first().map(|(id, _)| class(id, same.len())));
            for (_, claim) in same {
                if let Some(claim) = self.claim(*claim) {
                    claim.id = number;
                }
            }
        }
        let mut number = |id: &Id| {
            let (_, claim) = ids.get(ids.partition_point(|(known, _)| known < id)).filter(|(known, _)| known == id)?;
            self.claim(*claim).map(|claim| claim.id)
        };
        let flagged = flagged.into_iter().map(|(visitor, id, reason)| (visitor, number(&id).unwrap_or(NONE), reason));
        self.flagged = flagged.collect();
        Ok(())
    }
}
