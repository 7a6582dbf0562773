//! Erasure as it is kept outside facts and people (invariant 12): whether a visitor is erased, what an erasure would reach,
//! how far one is, and the [`journal`], from which a restored store learns of the erasures it does not know.
//!
//! Who goes is found, and taken out of the store, where evidence is linked (`crate::identity::link`).

use crate::erasures::registry::id_erased;
use crate::erasures::registry::is_erased;
use crate::erasures::registry::is_known;
use crate::store::journal;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use causeway_shared::fact::{Fact, Scope, What};
use causeway_shared::ids::{AltHash, AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::limits;
use causeway_shared::wire::facts;
use causeway_shared::wire::sync::decode_kept;
use rusqlite::{Connection, TransactionBehavior};

use crate::base::attribution::Said;
use crate::base::metrics::Metrics;
use crate::identity::link;
use crate::ingest::intake::{Checked, Record};
use crate::kv::publish::Rank;
use crate::outbox::queue::LATE_MS;
use crate::pipeline::group;
use crate::privacy::audit;
use crate::store::Counters;
use crate::store::StoreError;
use crate::store::TenantNo;
use crate::store::journal::Asked;
use crate::store::journal::Journal;
use crate::store::signed;
use crate::store::tenants::Known;
use crate::store::unsigned;
use crate::store::visitor_at;
use crate::store::write_txn::Given;
use crate::store::write_txn::Rules;

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

/// Whom an erasure is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whom {
    /// A visitor.
    Visitor(VisitorId),
    /// An alternate id: its hash under each readable key, the written one first.
    Id(KindCode, Vec<AltHash>),
}

impl Whom {
    /// The erasure as a fact; `random` names that of an alternate id, as each ends another part of its history.
    #[must_use]
    pub fn fact(&self, scope: Scope, now: Millis, random: [u8; 16]) -> Fact {
        let fact = |id, visitor, named: Option<AlternateId>, also| Fact {
            position: 0,
            id,
            visitor,
            received: now,
            at: now,
            what: What::Erasure { scope, id: named, also },
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
pub fn moment(conn: &Connection, tenant: &Known, whom: &Whom, scope: Scope, now: Millis) -> Result<Millis, StoreError> {
    let ahead = now.saturating_add(limits::FACT_AHEAD_MS);
    let mut last = now;
    if let Whom::Id(kind, hashes) = whom {
        for hash in hashes {
            if let Some(id) = link::canonical(conn, tenant.no, AlternateId { kind: *kind, hash: *hash })? {
                last = last.max(link::last_seen(conn, tenant.no, id)?);
            }
        }
    }
    if scope == Scope::Person {
        last = last.max(link::surely(conn, tenant.no, named(conn, tenant, whom, ahead)?, ahead)?.1);
    }
    Ok(last.min(ahead))
}

/// The visitors that an erasure names.
fn named(conn: &Connection, tenant: &Known, whom: &Whom, until: Millis) -> Result<BTreeSet<VisitorId>, StoreError> {
    let mut found = BTreeSet::new();
    match whom {
        Whom::Visitor(visitor) => drop(found.insert(*visitor)),
        Whom::Id(kind, hashes) => {
            for hash in hashes {
                if let Some(id) = link::canonical(conn, tenant.no, AlternateId { kind: *kind, hash: *hash })? {
                    found.extend(link::seen_until(conn, tenant, id, until)?);
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
pub fn reach(
    conn: &Connection,
    tenant: &Known,
    whom: &Whom,
    scope: Scope,
    now: Millis,
) -> Result<BTreeSet<VisitorId>, StoreError> {
    let mut found = named(conn, tenant, whom, now)?;
    if scope == Scope::Person {
        let id = match whom {
            Whom::Visitor(_) => None,
            Whom::Id(kind, hashes) => link::canonical_of(conn, tenant.no, *kind, hashes.iter().copied())?,
        };
        let (members, held) = link::person(conn, tenant, &found, id, now)?;
        found.extend(members);
        for id in held {
            found.extend(link::seen_until(conn, tenant, id, now)?);
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

/// Applies the journal's erasures that the store does not know – it came back from a backup, or the process ended between
/// the two – and gives how many there were. Keys that erasures wait for are put in the outbox where it lacks them. `in_log` is
/// the newest record that the log may hold of whom they take. To be called before anything is read or published.
///
/// # Errors
/// [`StoreError`].
pub fn replay(conn: &mut Connection, rules: &Rules, given: Given, in_log: u64) -> Result<usize, StoreError> {
    adopt(conn, rules)?;
    let (mut unknown, mut of_nobody) = (Vec::new(), 0_u64);
    rules.journal.each(|name, fact| {
        match rules.tenants.by_name(&name) {
            Some(tenant) if is_applied(conn, tenant.no, &fact)? => {}
            Some(tenant) => unknown.push(Checked { tenant: tenant.no, fact }),
            None => of_nobody += 1,
        }
        Ok(())
    })?;
    if of_nobody > 0 {
        tracing::warn!(of_nobody, "erasures of tenants that are no longer configured stay in the journal");
    }
    let count = unknown.len();
    if count > 0 {
        tracing::info!(count, "erasures that the store does not know are applied from the journal");
        // First, so that each keeps the row that it had.
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for asked in rules.journal.asked()? {
            if let Some(tenant) = rules.tenants.by_name(&asked.tenant) {
                audit::bring(&tx, tenant.no, &asked)?;
            }
        }
        tx.commit()?;
        let record = Record { in_log, ..Record::said(unknown, Said::by(journal::BY)) };
        group::commit(conn, rules, &Metrics::default(), given, &[Arc::new(record)], &[])?;
    }
    put_open(conn, rules, given.now)?;
    Ok(count)
}

/// Has the KV keys written that an erasure waits for and the outbox lacks: under a release before this one it let go of them
/// while their tenant was not configured. Somebody may still write what was handed out before that.
fn put_open(conn: &mut Connection, rules: &Rules, now: Millis) -> Result<(), StoreError> {
    const PUT: &str = "INSERT OR IGNORE INTO outbox
            (tenant, kind, subject, changed, due, lease_change, leased_until, handed, late, rank)
        SELECT DISTINCT tenant, kind, subject, ?2, ?3, 0, 0, 0, ?4, ?5
        FROM erasure_keys INDEXED BY erasure_keys_open WHERE tenant = ?1 AND written IS NULL";
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let changed = signed(Counters::load(&tx)?.version().counter);
    for tenant in rules.tenants.iter() {
        let late = signed(now.saturating_add(LATE_MS));
        tx.execute(PUT, (tenant.no.0, changed, signed(now), late, Rank::Leaving as u8))?;
    }
    Ok(tx.commit()?)
}

fn is_applied(conn: &Connection, tenant: TenantNo, fact: &Fact) -> Result<bool, StoreError> {
    let What::Erasure { id, .. } = &fact.what else { return Ok(true) };
    if !is_known(conn, tenant, fact.id)? {
        return Ok(false);
    }
    let visitor = fact.visitor == VisitorId::NOBODY || is_erased(conn, tenant, fact.visitor)?;
    let id = match id {
        Some(id) => id_erased(conn, tenant, id.kind, [id.hash])?.is_some_and(|(at, _)| at >= fact.received),
        None => true,
    };
    Ok(visitor && id)
}

/// So many entries are written into the journal in one transaction.
const ADOPTED: usize = 10_000;

/// Writes into the journal what the store knows and the journal does not: it was lost, or is of another machine.
fn adopt(conn: &Connection, rules: &Rules) -> Result<(), StoreError> {
    const VISITORS: &str = "SELECT t.name, e.receipt, e.at, e.visitor FROM erased e JOIN tenants t USING (tenant)";
    const IDS: &str = "SELECT t.name, e.receipt, e.at, e.kind, e.hash FROM erased_ids e JOIN tenants t USING (tenant)";
    let mut known = Vec::new();
    let mut visitors = conn.prepare(VISITORS)?;
    let mut rows = visitors.query([])?;
    while let Some(row) = rows.next()? {
        let entry = journal::visitor(FactId::from_bytes(row.get(1)?), visitor_at(row, 3)?, unsigned(row.get(2)?));
        known.push((row.get(0)?, entry));
        if known.len() == ADOPTED {
            rules.journal.keep(&known, &[])?;
            known.clear();
        }
    }
    let mut ids = conn.prepare(IDS)?;
    let mut rows = ids.query([])?;
    while let Some(row) = rows.next()? {
        let id = AlternateId { kind: KindCode(row.get(3)?), hash: AltHash(row.get(4)?) };
        known.push((row.get(0)?, journal::id(FactId::from_bytes(row.get(1)?), id, unsigned(row.get(2)?))));
    }
    rules.journal.keep(&known, &audit::erasures(conn)?)
}

/// Writes into the journal the erasures that a log holds beyond what its store has folded: the log is about to be replaced. Of
/// what is folded the journal has whom it took, and said again it would take whom it left.
///
/// # Errors
/// [`StoreError`]: why the first record could not be read. The others are kept.
pub fn keep_unfolded(data: &Path, folded: u64) -> Result<(), StoreError> {
    let path = data.join(crate::store::files::LOG);
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
            let erases = |fact: &Fact| matches!(fact.what, What::Erasure { .. }) && (admin || !fact.is_admins());
            for mut fact in facts.into_iter().flatten().filter(erases) {
                // With a hash beside its own an entry is still to reach whom it names.
                match &mut fact.what {
                    What::Erasure { id: Some(id), also, .. } if also.is_empty() => also.push(id.hash),
                    _ => {}
                }
                let said = Said::of(said.as_ref(), admin);
                asked.push(Asked { tenant: tenant.to_string(), receipt: fact.id, at: fact.received, said });
                erased.push((tenant.to_string(), fact));
            }
        }
    }
    if !erased.is_empty() {
        Journal::open(data)?.keep(&erased, &asked)?;
    }
    unread
}

#[cfg(test)]
#[path = "erase/tests.rs"]
mod tests;
