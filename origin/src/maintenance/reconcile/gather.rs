//! Reads all visitors and all evidence of a store, and numbers them.

use std::collections::BTreeMap;

use causeway_shared::base::ids::{AltHash, AlternateId, KindCode, VisitorId};
use causeway_shared::facts::evidence::{EvidenceWeight, LinkClass};
use causeway_shared::identity::people::{FlagReason, NONE, SightingClaim, combine_evidence};
use rusqlite::Connection;

use crate::identity::link::EvidenceRow;
use crate::store::job_error::JobError;
use crate::store::tables::visitors;
use crate::store::tenants::{TenantContext, Tenants};
use crate::store::{TenantNo, visitor_at};

/// Rows between two calls of the progress callback.
const PROGRESS_ROWS: u64 = 100_000;

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

/// The input of the decision, and the stored flags.
#[derive(Debug, Default)]
pub(super) struct GatheredEvidence {
    /// Sorted by tenant and id. A visitor's index is its number.
    pub(super) visitors: Vec<VisitorPosition>,
    /// Evidence as strong as a login, one claim per visitor and id.
    pub(super) claims: Vec<SightingClaim>,
    /// Weaker evidence at or above the threshold.
    pub(super) unsure: Vec<(EvidenceWeight, SightingClaim)>,
    /// The link class of each id, by the id's number.
    pub(super) classes: Vec<LinkClass>,
    /// Flagged evidence: the visitor, the id ([`NONE`] if no claim names it), and the reason.
    pub(super) flagged: Vec<(u32, u32, FlagReason)>,
}

/// Bit of a claim's index that marks an unsure claim.
const UNSURE: u32 = 1 << 31;

/// An id of a tenant, in its order of precedence.
type Id = (u32, AltHash, KindCode);

/// Reads visitors and evidence in the store's order.
pub(super) fn gather_evidence(
    conn: &Connection,
    tenants: &Tenants,
    progress: super::Progress<'_>,
) -> Result<GatheredEvidence, JobError> {
    let of = |known: &TenantContext| Ok((known.no.0, (small_number(known.no.0)?, known.config.threshold())));
    let known: BTreeMap<i64, (u32, EvidenceWeight)> = tenants.iter().map(of).collect::<Result<_, JobError>>()?;
    // The highest row number, because counting would read every row.
    let all = conn.query_row(visitors::VISITORS_LAST_ROW, [], |row| row.get::<_, i64>(0))?;
    let all = all.unsigned_abs();
    let mut gathered =
        GatheredEvidence { visitors: gather_visitors(conn, &known, all, progress)?, ..GatheredEvidence::default() };
    let class = |(tenant, _, kind): &Id, rows: usize| {
        let config = tenants.by_no(TenantNo(i64::from(*tenant))).map(|known| &known.config);
        config.map_or(LinkClass::Shared, |config| config.class(*kind, rows > config.group_limit(*kind) as usize))
    };
    gather_rows(conn, &known, &mut gathered, class, || progress(all, all))?;
    Ok(gathered)
}

/// A number of this store in 32 bits.
///
/// # Errors
/// [`JobError::TooMany`] if it needs more than 32 bits.
fn small_number(number: i64) -> Result<u32, JobError> {
    u32::try_from(number).map_err(|_| JobError::TooMany)
}

pub(super) fn short_length(length: usize) -> Result<u32, JobError> {
    u32::try_from(length).map_err(|_| JobError::TooMany)
}

fn gather_visitors(
    conn: &Connection,
    known: &BTreeMap<i64, (u32, EvidenceWeight)>,
    all: u64,
    progress: super::Progress<'_>,
) -> Result<Vec<VisitorPosition>, JobError> {
    let mut found = Vec::new();
    let mut statement = conn.prepare(visitors::VISITORS_ALL_BY_ID)?;
    let mut rows = statement.query([])?;
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += 1;
        if seen % PROGRESS_ROWS == 0 {
            progress(seen, 2 * all)?;
        }
        if let Some((tenant, _)) = known.get(&row.get(0)?) {
            // No row of `people` has the highest number, so a number that does not fit counts as a missing row.
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

/// Reads the evidence, which is sorted by visitor, together with the sorted visitors in one pass.
fn gather_rows(
    conn: &Connection,
    known: &BTreeMap<i64, (u32, EvidenceWeight)>,
    gathered: &mut GatheredEvidence,
    class: impl Fn(&Id, usize) -> LinkClass,
    report: impl Fn() -> Result<(), JobError>,
) -> Result<(), JobError> {
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
        Ok::<_, JobError>(())
    })?;
    note(of, &tie)?;
    report()?;
    gathered.number(ids, class)
}

/// The occurrences of ids.
#[derive(Default)]
struct IdTable {
    /// Each id with the index of its claim; [`NONE`] if the evidence links no visitor.
    all: Vec<(Id, u32)>,
    flagged: Vec<(u32, Id, FlagReason)>,
}

impl GatheredEvidence {
    fn claim(&mut self, index: u32) -> Option<&mut SightingClaim> {
        match index & UNSURE {
            0 => self.claims.get_mut(index as usize),
            _ => self.unsure.get_mut((index & !UNSURE) as usize).map(|(_, claim)| claim),
        }
    }

    /// Adds all evidence that ties an id to a visitor; `None` for a visitor that the store does not have.
    fn tie(
        &mut self,
        id: Id,
        visitor: Option<u32>,
        rows: &[EvidenceRow],
        threshold: EvidenceWeight,
        ids: &mut IdTable,
    ) -> Result<(), JobError> {
        let weighted = || rows.iter().filter(|row| row.evidence.weight > EvidenceWeight::NOTHING);
        // A visitor that this evidence does not link still counts for the size of the id's group, unless the evidence
        // is unproven.
        let mut is_other = weighted().any(|row| row.evidence.stands());
        if let Some(visitor) = visitor {
            ids.flagged.extend(weighted().filter_map(|row| Some((visitor, id, row.flag?))));
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

    /// Numbers the ids, and gives each its class from the number of its occurrences.
    fn number(
        &mut self,
        IdTable { all: mut ids, flagged }: IdTable,
        class: impl Fn(&Id, usize) -> LinkClass,
    ) -> Result<(), JobError> {
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
