//! Connections between two visitors: whether they are linked, evidence that links them in addition to logins, and
//! cancellations of that evidence (invariant 2).

use std::collections::BTreeMap;

use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::{Fact, FactKind};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::identity::link::{self, canonical_of};
use crate::store::id_error::IdError;
use crate::store::tables::visitors;
use crate::store::tenants::TenantContext;
use crate::store::{self, StoreError, TenantNo, visitor_at};

/// Result of a check whether two visitors are one person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairCheck {
    /// Whether they are one person.
    pub connected: bool,
    /// Weight of the connection through the person's master; only of connected visitors.
    pub weight: Option<EvidenceWeight>,
    /// Number of links between the two, 0 to 2: both are linked to the master. Only of connected visitors.
    pub path: Option<u8>,
    /// Number of visitor rows read: one if the older visitor is the master, whose row comes with the other's, otherwise
    /// two.
    pub reads: u8,
}

/// Checks whether two visitors are one person; `None` if either is unknown. The cost does not depend on the number of
/// visitors, because no list of visitors is read.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn check_pair(
    conn: &Connection,
    tenant: TenantNo,
    a: VisitorId,
    b: VisitorId,
) -> Result<Option<PairCheck>, StoreError> {
    let (older, younger) = (a.min(b), a.max(b));
    let mut statement = conn.prepare_cached(visitors::VISITORS_PAIR_WITH_PERSON)?;
    let mut rows = statement.query((tenant.0, younger.as_bytes(), older.as_bytes()))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (person, weight, of_older): (i64, u16, bool) = (row.get(0)?, row.get(1)?, row.get_ref(2)? == ValueRef::Null);
    if of_older {
        // The younger visitor is unknown.
        return Ok(None);
    }
    if older == younger || older == visitor_at(row, 2)? {
        let path = u8::from(older != younger);
        let weight = if older == younger { EvidenceWeight::LOGIN } else { EvidenceWeight(weight.min(row.get(3)?)) };
        return Ok(Some(PairCheck { connected: true, weight: Some(weight), path: Some(path), reads: 1 }));
    }
    let Some(row) = rows.next()? else { return Ok(None) };
    let connected = person == row.get::<_, i64>(0)?;
    let weight = EvidenceWeight(weight.min(row.get(1)?));
    Ok(Some(PairCheck { connected, weight: connected.then_some(weight), path: connected.then_some(2), reads: 2 }))
}

/// Ids that have valid evidence for both visitors, each with the time at which `a` was last seen with it.
///
/// # Errors
/// [`StoreError`].
pub fn connecting_evidence(
    conn: &Connection,
    tenant: &TenantContext,
    a: VisitorId,
    b: VisitorId,
) -> Result<BTreeMap<AlternateId, Millis>, StoreError> {
    let mut shared = standing_evidence(conn, tenant, a)?;
    let others = standing_evidence(conn, tenant, b)?;
    shared.retain(|id, _| others.contains_key(id));
    Ok(shared)
}

/// Ids with valid evidence for a visitor, each with the time at which the visitor was last seen with it.
fn standing_evidence(
    conn: &Connection,
    tenant: &TenantContext,
    of: VisitorId,
) -> Result<BTreeMap<AlternateId, Millis>, StoreError> {
    let mut found = BTreeMap::new();
    for row in link::of_visitor(conn, tenant.no, of)?.into_iter().filter(link::EvidenceRow::counts) {
        let last = found.entry(row.evidence.id).or_insert(row.evidence.last);
        *last = row.evidence.last.max(*last);
    }
    Ok(found)
}

/// The id of these hashes: the canonical one if it is known, otherwise the one under the active key. `None` for a
/// tenant without keys.
///
/// # Errors
/// [`StoreError`].
pub fn id_of(
    conn: &Connection,
    tenant: &TenantContext,
    kind: KindCode,
    hashes: &[AltHash],
) -> Result<Option<AlternateId>, StoreError> {
    let known = canonical_of(conn, tenant.no, kind, hashes.iter().copied())?;
    Ok(known.or_else(|| hashes.first().map(|hash| AlternateId { kind, hash: *hash })))
}

/// A link from outside: of a visitor with another visitor, or with an alternate id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VisitorLink {
    /// The other visitor.
    pub other: Option<String>,
    /// Kind of the alternate id.
    pub kind: Option<String>,
    /// The raw alternate id.
    pub value: Option<String>,
    /// Weight of the link: over 0, up to 1.
    pub weight: Option<f64>,
    /// Source of the link: `match`, `household`, `device`, `model`.
    pub source: Option<String>,
}

/// The reason why a link is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The link names neither a visitor nor an id, or both.
    #[error("a link needs either another visitor (`other`) or an id (`kind` and `value`)")]
    To,
    /// The other visitor's id is invalid.
    #[error("a visitor id is a UUID of version 7")]
    Other,
    /// The link connects a visitor with itself.
    #[error("a visitor cannot be linked to itself")]
    Itself,
    /// The alternate id is invalid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The tenant has no key for alternate ids.
    #[error("the tenant has no key for alternate ids")]
    Key,
    /// The weight is missing or out of range.
    #[error("a weight is a number over 0 and up to 1")]
    Weight,
    /// The source is missing or unknown.
    #[error("the sources are match, household, device and model")]
    Source,
}

impl LinkError {
    /// Machine-readable code for reports.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::To => "malformed",
            Self::Other => "bad_id",
            Self::Itself => "itself",
            Self::Id(IdError::Kind) => "unknown_kind",
            Self::Id(IdError::Length) => "too_long",
            Self::Id(IdError::Placeholder) => "placeholder",
            Self::Key => "no_key",
            Self::Weight => "bad_weight",
            Self::Source => "unknown_source",
        }
    }

    /// Name of the field that is wrong.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::To | Self::Other | Self::Itself => "other",
            Self::Id(IdError::Kind) | Self::Key => "kind",
            Self::Id(IdError::Length | IdError::Placeholder) => "value",
            Self::Weight => "weight",
            Self::Source => "source",
        }
    }
}

/// The facts of a link: one of the visitor, and one of the other visitor, if there is one. The weight stays below that
/// of a login.
///
/// # Errors
/// [`LinkError`].
pub fn parse_link(
    tenant: &TenantContext,
    visitor: VisitorId,
    tie: &VisitorLink,
) -> Result<[Option<(VisitorId, FactKind)>; 2], LinkError> {
    let weight = tie.weight.and_then(EvidenceWeight::new).ok_or(LinkError::Weight)?.min(EvidenceWeight::UNSURE);
    let source = EvidenceSource::ALL.into_iter().find(|source| tie.source.as_deref() == Some(source.name()));
    let source = source.ok_or(LinkError::Source)?;
    let what = |id, also| FactKind::Evidence { id, also, weight, source };
    match (tie.other.as_deref(), tie.kind.as_deref(), tie.value.as_deref()) {
        (Some(other), None, None) => {
            let other: VisitorId = other.parse().map_err(|_| LinkError::Other)?;
            if other == visitor {
                return Err(LinkError::Itself);
            }
            let id = AlternateId::pair(visitor, other);
            Ok([Some((visitor, what(id, Vec::new()))), Some((other, what(id, Vec::new())))])
        }
        (None, Some(kind), Some(value)) => {
            // Hashes under the active key and under all readable keys, because the store may know the id by any of
            // them.
            let (kind, hashes) = tenant.alternate(kind, value)?;
            let mut hashes = hashes.into_iter();
            let hash = hashes.next().ok_or(LinkError::Key)?;
            Ok([Some((visitor, what(AlternateId { kind, hash }, hashes.collect()))), None])
        }
        _ => Err(LinkError::To),
    }
}

/// Time at which a visitor was last seen with an id; `None` for never.
///
/// # Errors
/// [`StoreError`].
pub fn last_seen(
    conn: &Connection,
    tenant: &TenantContext,
    of: VisitorId,
    id: AlternateId,
) -> Result<Option<Millis>, StoreError> {
    Ok(standing_evidence(conn, tenant, of)?.get(&id).copied())
}

/// The facts with the time at which they count, or the first visitor that the store does not have.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn date_evidence(
    conn: &Connection,
    tenant: TenantNo,
    mut facts: Vec<Fact>,
) -> Result<Result<Vec<Fact>, VisitorId>, StoreError> {
    for fact in &mut facts {
        if !is_there(conn, tenant, fact.visitor)? {
            return Ok(Err(fact.visitor));
        }
        fact.received = evidence_moment(conn, tenant, fact)?;
        fact.at = fact.received;
    }
    Ok(Ok(facts))
}

/// Whether the store has a visitor that is not erased.
fn is_there(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<bool, StoreError> {
    Ok(store::find_visitor(conn, tenant, visitor)?.is_some()
        && !crate::erasures::registry::is_erased(conn, tenant, visitor)?)
}

/// Time from which a new fact of evidence counts: after the last cancellation of the connection and the last erasure of
/// the id, even if a fast clock dated those.
fn evidence_moment(conn: &Connection, tenant: TenantNo, fact: &Fact) -> Result<Millis, StoreError> {
    let FactKind::Evidence { id, also, .. } = &fact.what else { return Ok(fact.received) };
    let id = canonical_of(conn, tenant, id.kind, [id.hash].into_iter().chain(also.iter().copied()))?.unwrap_or(*id);
    let erased = match id.kind {
        KindCode::PAIR => None,
        kind => crate::erasures::registry::id_erased(conn, tenant, kind, link::id_family(conn, tenant, id)?)?
            .map(|(at, _)| at),
    };
    let ended = link::last_cancellation(conn, tenant, fact.visitor, id)?.max(erased);
    Ok(ended.map_or(fact.received, |at| fact.received.max(at.saturating_add(1))))
}

/// The fact that cancels a visitor's connection with an id. It counts at the last sighting if an edge's fast clock put
/// that after now.
#[must_use]
pub fn cancellation_fact(
    visitor: VisitorId,
    id: AlternateId,
    last: Option<Millis>,
    now: Millis,
    random: [u8; 16],
) -> Fact {
    let received = last.map_or(now, |last| now.max(last));
    let id_of_fact = FactId::from_bytes(random);
    Fact { position: 0, id: id_of_fact, visitor, received, at: received, what: FactKind::Cancellation { id } }
}
