//! Whether two visitors are linked; adding evidence that they are, which is no login; and undoing that: which evidence connects
//! two visitors, and the facts that end it (invariant 2).

use std::collections::BTreeMap;

use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::{Fact, FactKind};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::identity::link::{self, canonical_of};
use crate::store::id_error::IdError;
use crate::store::tenants::TenantContext;
use crate::store::{self, StoreError, TenantNo, visitor_at};

/// How two visitors stand to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairCheck {
    /// Whether they are one person.
    pub connected: bool,
    /// How surely, over the middle of its star. Only of connected ones.
    pub weight: Option<EvidenceWeight>,
    /// Links from one to the other: a star has two at most, over its master. Only of connected ones.
    pub path: Option<u8>,
    /// Visitors read: one where the older of the two is the master that the other is read with, else two.
    pub reads: u8,
}

/// Whether two visitors are one person (S5.4); `None` if either is not known. It costs as much for a person of a million
/// visitors as for one of two: no list of visitors is read.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn check_pair(
    conn: &Connection,
    tenant: TenantNo,
    a: VisitorId,
    b: VisitorId,
) -> Result<Option<PairCheck>, StoreError> {
    // The second half, which has no master, is not read before its row is asked for.
    const READ: &str =
        "SELECT v.person, v.weight, p.master, p.weight FROM visitors v INDEXED BY visitors_by_id JOIN people p USING (person)
            WHERE v.tenant = ?1 AND v.visitor = ?2
        UNION ALL
        SELECT person, weight, NULL, NULL FROM visitors INDEXED BY visitors_by_id WHERE tenant = ?1 AND visitor = ?3";
    let (older, younger) = (a.min(b), a.max(b));
    let mut statement = conn.prepare_cached(READ)?;
    let mut rows = statement.query((tenant.0, younger.as_bytes(), older.as_bytes()))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (person, weight, of_older): (i64, u16, bool) = (row.get(0)?, row.get(1)?, row.get_ref(2)? == ValueRef::Null);
    if of_older {
        // The younger one is not known.
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

/// The ids that both visitors were seen with, where the evidence of each stands, and when the first of the two was last.
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

/// The ids that a visitor is tied to, and when it was last seen with each.
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

/// The id of these hashes: as it is known, else under the key that is written. `None` for a tenant without keys.
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

/// What links a visitor, as it is said from outside: to another visitor or to an alternate id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VisitorLink {
    /// The other visitor.
    pub other: Option<String>,
    /// The kind of the id.
    pub kind: Option<String>,
    /// The raw id.
    pub value: Option<String>,
    /// How sure it is: over 0, up to 1.
    pub weight: Option<f64>,
    /// Where it comes from: `match`, `household`, `device`, `model`.
    pub source: Option<String>,
}

/// Why a link is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Neither a visitor nor an id, or both.
    #[error("a link leads to another visitor (`other`), or to an id (`kind` and `value`)")]
    To,
    /// The other visitor's id.
    #[error("a visitor id is a UUID of version 7")]
    Other,
    /// A visitor and itself.
    #[error("a visitor is not linked to itself")]
    Itself,
    /// What names the id.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The tenant's keys.
    #[error("the tenant has no key for alternate ids")]
    Key,
    /// The weight.
    #[error("a weight is a number over 0 and up to 1")]
    Weight,
    /// The source.
    #[error("the sources are match, household, device and model")]
    Source,
}

impl LinkError {
    /// A stable name for reports.
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

    /// Which field it is about.
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

/// The facts that say it: one of the visitor, and one of the other. What is not a login is never quite sure.
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
            // Under the key that is written, and under all that are read: the store may have it by one of them.
            let (kind, hashes) = tenant.alternate(kind, value)?;
            let mut hashes = hashes.into_iter();
            let hash = hashes.next().ok_or(LinkError::Key)?;
            Ok([Some((visitor, what(AlternateId { kind, hash }, hashes.collect()))), None])
        }
        _ => Err(LinkError::To),
    }
}

/// When a visitor was last seen with an id; 0 for never.
///
/// # Errors
/// [`StoreError`].
pub fn last_seen(
    conn: &Connection,
    tenant: &TenantContext,
    of: VisitorId,
    id: AlternateId,
) -> Result<Millis, StoreError> {
    Ok(standing_evidence(conn, tenant, of)?.get(&id).copied().unwrap_or(0))
}

/// Evidence that is said now, each fact with its moment; or the first of whom the store has nothing.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn describe_evidence(
    conn: &Connection,
    tenant: TenantNo,
    mut facts: Vec<Fact>,
) -> Result<Result<Vec<Fact>, VisitorId>, StoreError> {
    for fact in &mut facts {
        if !is_there(conn, tenant, fact.visitor)? {
            return Ok(Err(fact.visitor));
        }
        fact.received = cancellation_moment(conn, tenant, fact)?;
        fact.at = fact.received;
    }
    Ok(Ok(facts))
}

/// Whether the store has a visitor: of one who is erased it has nothing.
fn is_there(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<bool, StoreError> {
    Ok(store::find_visitor(conn, tenant, visitor)?.is_some()
        && !crate::erasures::registry::is_erased(conn, tenant, visitor)?)
}

/// The moment that a fact of evidence counts from when it is said now: after what ended the tie, or all of the id's, last,
/// whatever clock that was by.
fn cancellation_moment(conn: &Connection, tenant: TenantNo, fact: &Fact) -> Result<Millis, StoreError> {
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

/// The fact that ends what ties a visitor to an id. It counts from the last sighting on, where an edge's clock that runs
/// ahead has put that after now.
#[must_use]
pub fn cancellation_fact(visitor: VisitorId, id: AlternateId, last: Millis, now: Millis, random: [u8; 16]) -> Fact {
    let received = now.max(last);
    let id_of_fact = FactId::from_bytes(random);
    Fact { position: 0, id: id_of_fact, visitor, received, at: received, what: FactKind::Cancellation { id } }
}
