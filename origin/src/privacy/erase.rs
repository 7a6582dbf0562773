//! Erasure as it is kept outside facts and people (invariant 12): whether a visitor is erased, what an erasure would reach,
//! how far one is, and the [`journal`], from which a restored store learns of the erasures it does not know.
//!
//! Who goes is found, and taken out of the store, where evidence is linked (`crate::identity::link`).

use crate::erasures::registry::is_erased;
use std::collections::BTreeSet;
use std::path::Path;

use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::wire::facts;
use causeway_shared::wire::sync::decode_kept;
use rusqlite::Connection;

use crate::base::attribution::Attribution;
use crate::base::integers::signed;
use crate::identity::link;
use crate::store::StoreError;
use crate::store::journal::{ErasureJournal, RequestedErasure};
use crate::store::tenants::TenantContext;

/// Whom an erasure is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureTarget {
    /// A visitor.
    Visitor(VisitorId),
    /// An alternate id: its hash under each readable key, the written one first.
    Id(KindCode, Vec<AltHash>),
}

impl ErasureTarget {
    /// The erasure as a fact; `random` names that of an alternate id, as each ends another part of its history.
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
                fact(FactId::from_bytes(random), VisitorId::NOBODY, named, also)
            }
        }
    }
}

/// The time of an erasure: after all that ties whom it names, where an edge's clock that runs ahead has put some of that after
/// now. What is known was before it.
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
                last = last.max(crate::privacy::reach::last_seen(conn, tenant.no, id)?);
            }
        }
    }
    if scope == ErasureScope::Person {
        last = last.max(
            crate::privacy::reach::sure_members(conn, tenant.no, named_visitors(conn, tenant, whom, ahead)?, ahead)?.1,
        );
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

/// The visitors that an erasure would reach now, of those that are known and not erased yet.
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

/// Writes into the journal the erasures that a log holds beyond what its store has folded: the log is about to be replaced. Of
/// what is folded the journal has whom it took, and said again it would take whom it left.
///
/// # Errors
/// [`StoreError`]: why the first record could not be read. The others are kept.
pub fn keep_unfolded(data: &Path, folded: u64) -> Result<(), StoreError> {
    let path = data.join(crate::store::data_fault::LOG);
    if !path.exists() {
        return Ok(());
    }
    let log = Connection::open(path)?;
    if !log.table_exists(None, "log")? {
        return Ok(());
    }
    let mut statement = log.prepare("SELECT body, said FROM log WHERE seq > ?1 ORDER BY seq")?;
    let (mut erased, mut asked, mut unread) = (Vec::new(), Vec::new(), Ok(()));
    // A page or a record that cannot be read takes no other's erasures with it.
    for row in statement
        .query_map([signed(folded)], |row| Ok((row.get::<_, Vec<u8>>(0)?, crate::store::journal::said_at(row, 1)?)))?
    {
        let (request, said) =
            match row.map_err(StoreError::from).and_then(|(body, said)| Ok((decode_kept(&body)?, said))) {
                Ok(record) => record,
                Err(why) => {
                    unread = unread.and(Err(why));
                    continue;
                }
            };
        for batch in request.facts {
            // What cannot be read was refused when it came.
            let Ok((tenant, facts)) = facts::decode_each(&batch) else { continue };
            let admin = request.edge == crate::ingest::log::ADMIN;
            let erases = |fact: &Fact| matches!(fact.what, FactKind::Erasure { .. }) && (admin || !fact.is_admins());
            for mut fact in facts.into_iter().flatten().filter(erases) {
                // With a hash beside its own an entry is still to reach whom it names.
                match &mut fact.what {
                    FactKind::Erasure { id: Some(id), also, .. } if also.is_empty() => also.push(id.hash),
                    _ => {}
                }
                let said = Attribution::of(said.as_ref(), admin);
                asked.push(RequestedErasure { tenant: tenant.to_string(), receipt: fact.id, at: fact.received, said });
                erased.push((tenant.to_string(), fact));
            }
        }
    }
    if !erased.is_empty() {
        ErasureJournal::open(data)?.keep(&erased, &asked)?;
    }
    unread
}

#[cfg(test)]
#[path = "erase/tests.rs"]
mod tests;
