//! Evidence rows: connections of visitors with alternate ids. Only the times of a row change.

use causeway_shared::base::ids::{AltHash, AlternateId, KindCode, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::identity::people::{Evidence, FlagReason};
use causeway_shared::settings::config::ProofPolicy;
use rusqlite::{Connection, OptionalExtension as _};

use crate::base::integers::{signed, unsigned};
use crate::erasures::registry::id_erased;
use crate::identity::canonical::id_family;
use crate::identity::changes::{TouchedEvidence, has_withdrawn};
use crate::store::tables::{cancellations, evidence};
use crate::store::tenants::Tenants;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo, hash_at, visitor_at};

/// Time of a cancellation that no newer evidence lifts.
pub(crate) const FOR_EVER: Millis = i64::MAX.unsigned_abs();

/// Column values of `source`.
const LOGIN: u8 = 1;
const CLAIM: u8 = 2;

/// An observation of a visitor with an alternate id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvidenceSighting {
    pub(crate) tenant: TenantNo,
    pub(crate) visitor: VisitorId,
    pub(crate) id: AlternateId,
    pub(crate) by: SightingSource,
}

/// The source of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SightingSource {
    /// A page, with or without a proof.
    Page { proven: bool },
    /// Evidence other than a page's.
    Other(EvidenceSource, EvidenceWeight),
}

impl EvidenceSighting {
    /// Weight of the observation. A proven id is a login. Any page may name an unproven id. Such an id of a unique kind
    /// has no weight unless the tenant trusts its pages; of another kind it weighs [`EvidenceWeight::CLAIM`].
    fn weight(&self, tenants: &Tenants) -> Result<EvidenceWeight, StoreError> {
        let config = &tenants.by_no(self.tenant)?.config;
        Ok(match self.by {
            SightingSource::Other(_, weight) => weight,
            SightingSource::Page { proven: true } => EvidenceWeight::LOGIN,
            SightingSource::Page { proven: false } if !config.is_unique(self.id.kind) => EvidenceWeight::CLAIM,
            SightingSource::Page { proven: false } if config.member_proof == ProofPolicy::Trusted => {
                EvidenceWeight::LOGIN
            }
            SightingSource::Page { proven: false } => EvidenceWeight::NOTHING,
        })
    }

    fn source(&self) -> u8 {
        match self.by {
            SightingSource::Page { proven: true } => LOGIN,
            SightingSource::Page { proven: false } => CLAIM,
            SightingSource::Other(source, _) => source.code(),
        }
    }
}

/// An evidence row with the decision about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvidenceRow {
    /// The evidence.
    pub evidence: Evidence,
    /// Whether a proof came with it.
    pub proven: bool,
    /// The reason why the row does not link although its weight would.
    pub flag: Option<FlagReason>,
}

impl EvidenceRow {
    /// Calls `each` for all evidence of a store, in order of tenant and visitor.
    ///
    /// # Errors
    /// [`StoreError`], or an error of `each`.
    pub fn for_each_row<E: From<StoreError>>(
        conn: &Connection,
        mut each: impl FnMut(TenantNo, &Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut statement = conn.prepare(evidence::EVIDENCE_ALL).map_err(StoreError::from)?;
        let mut rows = statement.query([]).map_err(StoreError::from)?;
        while let Some(found) = rows.next().map_err(StoreError::from)? {
            let tenant = TenantNo(found.get(9).map_err(StoreError::from)?);
            each(tenant, &read_row(found).map_err(StoreError::from)?)?;
        }
        Ok(())
    }

    /// Whether the row is valid and has the weight of a login.
    #[must_use]
    pub fn claims(&self) -> bool {
        self.evidence.stands() && self.evidence.weight >= EvidenceWeight::LOGIN
    }

    /// Whether the row is valid and has any weight.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.evidence.stands() && self.evidence.weight > EvidenceWeight::NOTHING
    }

    /// Whether a page named the id without a proof.
    #[must_use]
    pub fn is_page_claim(&self) -> bool {
        self.evidence.source == CLAIM && self.evidence.weight > EvidenceWeight::NOTHING
    }

    /// Name of the source in reports and the API.
    #[must_use]
    pub fn source_name(&self) -> &'static str {
        match EvidenceSource::of_code(self.evidence.source) {
            Some(source) => source.name(),
            None if self.proven => "login",
            None => "page",
        }
    }
}

/// Adds or extends the row of an observation that was received at `received`.
pub(super) fn record_sighting(
    group: &WriteTxn<'_>,
    seen: EvidenceSighting,
    received: Millis,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    let (source, weight) = (seen.source(), seen.weight(&group.rules.tenants)?);
    let KindCode(kind) = seen.id.kind;
    let key = (seen.tenant.0, seen.visitor.as_bytes(), kind, &seen.id.hash.0, source, weight.0);
    let known = group
        .tx
        .prepare_cached(evidence::EVIDENCE_TIMES_OF_ROW)?
        .query_row(key, |row| {
            let cancelled: Option<i64> = row.get(2)?;
            Ok((unsigned(row.get(0)?), unsigned(row.get(1)?), cancelled.map(unsigned)))
        })
        .optional()?;
    let EvidenceSighting { visitor, id, .. } = seen;
    let evidence = |first, last, cancelled| Evidence { visitor, id, source, weight, first, last, cancelled };
    let before = known.map(|(first, last, cancelled)| evidence(first, last, cancelled));
    // A login from before an erasure of the id may be part of it, so it is not ended here. A pair's id is no person's.
    let ended = match seen.by {
        SightingSource::Other(..) if id.kind != KindCode::PAIR => {
            id_erased(group.tx, seen.tenant, id.kind, id_family(group.tx, seen.tenant, id)?)?.map(|(at, _)| at)
        }
        SightingSource::Page { .. } | SightingSource::Other(..) => None,
    };
    let after = match before {
        Some(e) => evidence(e.first.min(received), e.last.max(received), e.cancelled.max(ended)),
        None if is_over(group, seen.tenant, seen.visitor, seen.id.kind, seen.by)? => {
            group.ids_over.inc();
            return Ok(());
        }
        None => {
            let gone = has_withdrawn(group.tx, seen.tenant, seen.visitor)?;
            let cancelled = last_cancellation(group.tx, seen.tenant, seen.visitor, seen.id)?;
            evidence(received, received, if gone { Some(FOR_EVER) } else { cancelled.max(ended) })
        }
    };
    if before == Some(after) {
        return Ok(());
    }
    put_row(group, seen.tenant, &after, None)?;
    if after.weight == EvidenceWeight::NOTHING {
        // An unproven unique id changes nothing, and costs the same however often it is sent.
        return Ok(());
    }
    touched.ids.insert((seen.tenant, seen.id));
    // A later observation of a known connection links nothing new.
    let linking = |e: &Evidence| e.stands().then_some(e.since());
    let is_new = before.is_none() || before.as_ref().and_then(linking) != linking(&after);
    if is_new {
        touched.visitors.insert((seen.tenant, seen.visitor));
    }
    Ok(())
}

/// Whether a visitor has too many ids for a further one from a page. A login is always stored, as it cannot be forged.
pub(super) fn is_over(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    kind: KindCode,
    by: SightingSource,
) -> Result<bool, StoreError> {
    let SightingSource::Page { proven } = by else { return Ok(false) };
    if proven && group.rules.tenants.by_no(tenant)?.config.is_unique(kind) {
        return Ok(false);
    }
    let mut statement = group.tx.prepare_cached(evidence::EVIDENCE_BEYOND_BOUND_OF_VISITOR)?;
    Ok(statement.exists((tenant.0, visitor.as_bytes(), signed(limits::VISITOR_IDS as u64 - 1)))?)
}

fn put_row(group: &WriteTxn<'_>, tenant: TenantNo, e: &Evidence, flag: Option<u8>) -> Result<(), StoreError> {
    let KindCode(kind) = e.id.kind;
    group.tx.prepare_cached(evidence::EVIDENCE_UPSERT)?.execute((
        tenant.0,
        e.visitor.as_bytes(),
        kind,
        &e.id.hash.0,
        e.source,
        e.weight.0,
        signed(e.first),
        signed(e.last),
        e.cancelled.map(signed),
        flag,
    ))?;
    Ok(())
}

/// Cancels a visitor's connection with an id until newer evidence arrives; also applies to evidence that arrives late.
pub(super) fn cancel_evidence(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    id: AlternateId,
    at: Millis,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    let key = (tenant.0, visitor.as_bytes(), id.kind.0, &id.hash.0, signed(at));
    group.tx.prepare_cached(cancellations::CANCELLATIONS_UPSERT)?.execute(key)?;
    if group.tx.prepare_cached(evidence::EVIDENCE_CANCEL_OF_VISITOR_AND_ID)?.execute(key)? > 0 {
        touched.ids.insert((tenant, id));
        touched.visitors.insert((tenant, visitor));
    }
    Ok(())
}

/// Cancels all connections with an id up to a time, because the id's history was erased.
pub(crate) fn end_until(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    id: AlternateId,
    until: Millis,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    let mut statement = group.tx.prepare_cached(evidence::EVIDENCE_CANCEL_OF_ID_UNTIL)?;
    let key = (tenant.0, id.kind.0, &id.hash.0, signed(until));
    for visitor in statement.query_map(key, |row| visitor_at(row, 0))? {
        touched.visitors.insert((tenant, visitor?));
        touched.ids.insert((tenant, id));
    }
    Ok(())
}

/// Time of the last cancellation of a visitor's connection with a canonical id; `None` if there is none.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn last_cancellation(
    conn: &Connection,
    tenant: TenantNo,
    visitor: VisitorId,
    id: AlternateId,
) -> Result<Option<Millis>, StoreError> {
    let mut statement = conn.prepare_cached(cancellations::CANCELLATIONS_TIME_OF_EVIDENCE)?;
    let found =
        statement.query_row((tenant.0, visitor.as_bytes(), id.kind.0, &id.hash.0), |row| row.get(0).map(unsigned));
    Ok(found.optional()?)
}

/// Moves cancellations from one hash of an id to another, and applies those of both to the evidence.
fn rename_cancelled(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    from: AlternateId,
    to: AlternateId,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    for id in [from, to] {
        let known: Vec<(VisitorId, Millis)> = {
            let mut statement = group.tx.prepare_cached(cancellations::CANCELLATIONS_OF_ID)?;
            let key = (tenant.0, id.kind.0, &id.hash.0);
            let rows = statement.query_map(key, |row| Ok((visitor_at(row, 0)?, unsigned(row.get(1)?))))?;
            rows.collect::<Result<_, _>>()?
        };
        for (visitor, at) in known {
            cancel_evidence(group, tenant, visitor, to, at, touched)?;
        }
    }
    group.tx.prepare_cached(cancellations::CANCELLATIONS_DELETE_OF_ID)?.execute((
        tenant.0,
        from.kind.0,
        &from.hash.0,
    ))?;
    Ok(())
}

/// Cancels all evidence of a visitor permanently.
pub(crate) fn end_evidence(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    for row in of_visitor(group.tx, tenant, visitor)? {
        touched.ids.insert((tenant, row.evidence.id));
        touched.visitors.insert((tenant, visitor));
    }
    let key = (tenant.0, visitor.as_bytes(), signed(FOR_EVER));
    group.tx.prepare_cached(evidence::EVIDENCE_CANCEL_OF_VISITOR)?.execute(key)?;
    Ok(())
}

/// Moves evidence from one hash of an id to another.
pub(super) fn rename_id(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    from: AlternateId,
    to: AlternateId,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    let mut all = of_id(group.tx, tenant, from)?;
    each(group.tx, evidence::EVIDENCE_CLAIMS_OF_ID, tenant, from, |row| {
        all.push(*row);
        true
    })?;
    for row in all {
        let visitor = row.evidence.visitor;
        put_row(group, tenant, &Evidence { id: to, ..row.evidence }, row.flag.map(FlagReason::number))?;
        if row.evidence.weight > EvidenceWeight::NOTHING {
            touched.visitors.insert((tenant, visitor));
        }
        let KindCode(kind) = from.kind;
        let key = (tenant.0, visitor.as_bytes(), kind, &from.hash.0);
        group.tx.prepare_cached(evidence::EVIDENCE_DELETE_OF_VISITOR_AND_ID)?.execute(key)?;
    }
    rename_cancelled(group, tenant, from, to, touched)
}

/// Stores the decision about a visitor's evidence for an id.
pub(super) fn flag_row(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    id: AlternateId,
    reason: Option<FlagReason>,
) -> Result<(), StoreError> {
    let KindCode(kind) = id.kind;
    let key = (tenant.0, visitor.as_bytes(), kind, &id.hash.0, reason.map(FlagReason::number));
    group.tx.prepare_cached(evidence::EVIDENCE_FLAG)?.execute(key)?;
    Ok(())
}

/// All evidence of a visitor.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn of_visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Vec<EvidenceRow>, StoreError> {
    let mut statement = conn.prepare_cached(evidence::EVIDENCE_OF_VISITOR)?;
    let rows = statement.query_map((tenant.0, visitor.as_bytes()), read_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether more than `most` visitors have valid evidence with weight for an id.
pub(super) fn is_oversized(
    conn: &Connection,
    tenant: TenantNo,
    id: AlternateId,
    most: u32,
) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached(evidence::EVIDENCE_BEYOND_BOUND_OF_ID)?;
    let key = (tenant.0, id.kind.0, &id.hash.0, most);
    Ok(statement.query_row(key, |_| Ok(())).optional()?.is_some())
}

/// All evidence with weight for an id, the most recently seen visitor first.
pub(crate) fn of_id(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Vec<EvidenceRow>, StoreError> {
    let mut rows = Vec::new();
    each_newest(conn, tenant, id, |row| {
        rows.push(*row);
        true
    })?;
    Ok(rows)
}

/// The other visitor of a pair's id, if it has evidence too.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn other_of_pair(
    conn: &Connection,
    tenant: TenantNo,
    pair: AlternateId,
    of: VisitorId,
) -> Result<Option<VisitorId>, StoreError> {
    let visitors = of_id(conn, tenant, pair)?.into_iter().map(|row| row.evidence.visitor);
    Ok(visitors.into_iter().find(|visitor| *visitor != of))
}

/// Calls `more` for the evidence with weight for an id, the most recently seen visitor first, until it returns `false`.
/// An id that a million visitors share, or name without a proof, therefore costs as little as any other.
pub(crate) fn each_newest(
    conn: &Connection,
    tenant: TenantNo,
    id: AlternateId,
    more: impl FnMut(&EvidenceRow) -> bool,
) -> Result<(), StoreError> {
    each(conn, evidence::EVIDENCE_OF_ID, tenant, id, more)
}

fn each(
    conn: &Connection,
    read: &str,
    tenant: TenantNo,
    id: AlternateId,
    mut more: impl FnMut(&EvidenceRow) -> bool,
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(read)?;
    let KindCode(kind) = id.kind;
    for found in statement.query_map((tenant.0, kind, &id.hash.0), read_row)? {
        if !more(&found?) {
            break;
        }
    }
    Ok(())
}

/// The unique id that a visitor effectively holds, canonical.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn held_unique(
    conn: &Connection,
    tenant: TenantNo,
    visitor: VisitorId,
    unique: impl Fn(KindCode) -> bool,
) -> Result<Option<AlternateId>, StoreError> {
    let rows = of_visitor(conn, tenant, visitor)?;
    let held = rows.iter().find(|r| r.claims() && r.flag.is_none() && unique(r.evidence.id.kind));
    Ok(held.map(|r| r.evidence.id))
}

/// The unique id that a visitor's evidence gives it, ignoring flags.
pub(crate) fn first_unique(
    conn: &Connection,
    tenant: TenantNo,
    visitor: VisitorId,
    unique: impl Fn(KindCode) -> bool,
) -> Result<Option<AlternateId>, StoreError> {
    let rows = of_visitor(conn, tenant, visitor)?;
    let claims = rows.iter().filter(|row| row.claims() && unique(row.evidence.id.kind)).map(|row| row.evidence);
    Ok(claims.min_by_key(|claim| (claim.since(), claim.id.hash)).map(|claim| claim.id))
}

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<EvidenceRow> {
    let hash: AltHash = hash_at(row, 2)?;
    let source: u8 = row.get(3)?;
    let cancelled: Option<i64> = row.get(7)?;
    let flag: Option<u8> = row.get(8)?;
    Ok(EvidenceRow {
        evidence: Evidence {
            visitor: visitor_at(row, 0)?,
            id: AlternateId { kind: KindCode(row.get(1)?), hash },
            source,
            weight: EvidenceWeight(row.get(4)?),
            first: unsigned(row.get(5)?),
            last: unsigned(row.get(6)?),
            cancelled: cancelled.map(unsigned),
        },
        proven: source == LOGIN,
        flag: flag.map(FlagReason::from_number),
    })
}
