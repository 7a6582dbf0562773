//! Erasure outside facts and people (invariant 12): whether a visitor is erased, which visitors an erasure would reach,
//! its progress, and the [journal](crate::store::journal), from which a restored store learns of erasures that it
//! lacks.
//!
//! [`crate::privacy::erasure`] finds the erased visitors and removes them from the store.

use std::collections::BTreeSet;
use std::path::Path;

use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::wire::facts;
use causeway_shared::wire::sync::decode_stored;
use rusqlite::Connection;

use crate::base::attribution::Attribution;
use crate::base::integers::signed;
use crate::erasures::registry::is_erased;
use crate::identity::link;
use crate::store::journal::{ErasureJournal, RequestedErasure};
use crate::store::tables::log;
use crate::store::tenants::TenantContext;
use crate::store::{OpenError, StoreError};

/// The target of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureTarget {
    /// A visitor.
    Visitor(VisitorId),
    /// An alternate id: its hash under each readable key, the active key first.
    Id(KindCode, Vec<AltHash>),
}

impl ErasureTarget {
    /// The erasure as a fact. `random` names the erasure of an alternate id, because each ends another part of the id's
    /// history.
    #[must_use]
    pub fn fact(&self, scope: ErasureScope, now: Millis, random: [u8; 16]) -> Fact {
        let fact = |id, visitor, named: Option<AlternateId>, also| Fact {
            position: 0,
            id,
            visitor,
            received: now,
            at: now,
            what: FactKind::Erasure { scope, id: named, also },
        };
        match self {
            Self::Visitor(visitor) => fact(FactId::of_erasure(*visitor), *visitor, None, Vec::new()),
            Self::Id(kind, hashes) => {
                let named = hashes.first().map(|hash| AlternateId { kind: *kind, hash: *hash });
                let also = hashes.iter().skip(1).copied().collect();
                fact(FactId::from_bytes(random), VisitorId::ANONYMOUS, named, also)
            }
        }
    }
}

/// Time of an erasure: after everything that connects the target, even if a fast clock of an edge dated some of it
/// after now. Everything known counts as earlier.
///
/// # Errors
/// [`StoreError`].
pub fn erasure_moment(
    conn: &Connection,
    tenant: &TenantContext,
    whom: &ErasureTarget,
    scope: ErasureScope,
    now: Millis,
) -> Result<Millis, StoreError> {
    let ahead = now.saturating_add(limits::FACT_AHEAD_MS);
    let mut last = now;
    if let ErasureTarget::Id(kind, hashes) = whom {
        for hash in hashes {
            if let Some(id) = link::canonical_id(conn, tenant.no, AlternateId { kind: *kind, hash: *hash })? {
                last = last.max(crate::privacy::reach::last_seen(conn, tenant.no, id)?.unwrap_or(now));
            }
        }
    }
    if scope == ErasureScope::Person {
        let named = named_visitors(conn, tenant, whom, ahead)?;
        let (_, newest) = crate::privacy::reach::sure_members(conn, tenant.no, named, ahead)?;
        last = last.max(newest.unwrap_or(now));
    }
    Ok(last.min(ahead))
}

/// The visitors that an erasure names.
fn named_visitors(
    conn: &Connection,
    tenant: &TenantContext,
    whom: &ErasureTarget,
    until: Millis,
) -> Result<BTreeSet<VisitorId>, StoreError> {
    let mut found = BTreeSet::new();
    match whom {
        ErasureTarget::Visitor(visitor) => drop(found.insert(*visitor)),
        ErasureTarget::Id(kind, hashes) => {
            for hash in hashes {
                if let Some(id) = link::canonical_id(conn, tenant.no, AlternateId { kind: *kind, hash: *hash })? {
                    found.extend(crate::privacy::reach::seen_until(conn, tenant, id, until)?);
                }
            }
        }
    }
    Ok(found)
}

/// The known visitors, not erased yet, that an erasure would reach now.
///
/// # Errors
/// [`StoreError`].
pub fn erasure_reach(
    conn: &Connection,
    tenant: &TenantContext,
    whom: &ErasureTarget,
    scope: ErasureScope,
    now: Millis,
) -> Result<BTreeSet<VisitorId>, StoreError> {
    let mut found = named_visitors(conn, tenant, whom, now)?;
    if scope == ErasureScope::Person {
        let id = match whom {
            ErasureTarget::Visitor(_) => None,
            ErasureTarget::Id(kind, hashes) => link::canonical_of(conn, tenant.no, *kind, hashes.iter().copied())?,
        };
        let (members, held) = crate::privacy::reach::person_reach(conn, tenant, &found, id, now)?;
        found.extend(members);
        for id in held {
            found.extend(crate::privacy::reach::seen_until(conn, tenant, id, now)?);
        }
    }
    let mut left = BTreeSet::new();
    for visitor in found {
        let known = crate::store::find_visitor(conn, tenant.no, visitor)?.is_some();
        if known && !is_erased(conn, tenant.no, visitor)? {
            left.insert(visitor);
        }
    }
    Ok(left)
}

/// Writes the erasures of a log that its store has not folded into the journal, before the log is replaced. Folded
/// erasures are left out: the journal has the visitors that they erased, and a repetition would reach visitors that
/// they spared.
///
/// # Errors
/// [`OpenError`]: the first record that could not be read; the other records are written all the same.
pub fn keep_unfolded(data: &Path, folded: u64) -> Result<(), OpenError> {
    let path = data.join(crate::store::data_fault::LOG);
    if !path.exists() {
        return Ok(());
    }
    let log = Connection::open(path)?;
    if !log.table_exists(None, "log")? {
        return Ok(());
    }
    let mut statement = log.prepare(log::LOG_BODIES_AFTER)?;
    let (mut erased, mut asked, mut unread) = (Vec::new(), Vec::new(), Ok(()));
    // An unreadable page or record does not affect the erasures of other records.
    for row in statement.query_map([signed(folded)], |row| {
        Ok((row.get::<_, Vec<u8>>(0)?, crate::store::journal::attribution_at(row, 1)?))
    })? {
        let (request, said) =
            match row.map_err(StoreError::from).and_then(|(body, said)| Ok((decode_stored(&body)?, said))) {
                Ok(record) => record,
                Err(why) => {
                    unread = unread.and(Err(why));
                    continue;
                }
            };
        for batch in request.facts {
            // Unreadable facts were refused at their arrival.
            let Ok((tenant, facts)) = facts::decode_each(&batch) else { continue };
            let admin = request.edge == crate::ingest::log::ADMIN;
            let erases = |fact: &Fact| matches!(fact.what, FactKind::Erasure { .. }) && (admin || !fact.is_admins());
            for mut fact in facts.into_iter().flatten().filter(erases) {
                // A hash in `also` marks an entry as an erasure that must still reach its visitors.
                match &mut fact.what {
                    FactKind::Erasure { id: Some(id), also, .. } if also.is_empty() => also.push(id.hash),
                    _ => {}
                }
                let said = Attribution::of(said.as_ref(), admin);
                asked.push(RequestedErasure {
                    tenant: tenant.to_string(),
                    receipt: fact.id,
                    at: fact.received,
                    attribution: said,
                });
                erased.push((tenant.to_string(), fact));
            }
        }
    }
    if !erased.is_empty() {
        ErasureJournal::open(data)?.keep(&erased, &asked)?;
    }
    Ok(unread?)
}

#[cfg(test)]
#[path = "erasure_request/tests.rs"]
mod tests;
