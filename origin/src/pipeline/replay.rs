//! Replays the journal of erasures into a store that lacks some of them, because it was restored from a backup or the
//! process ended between the two writes.

use crate::base::attribution::Attribution;
use crate::base::integers::{signed, unsigned};
use crate::base::metrics::Metrics;
use crate::erasures::registry::{id_erased, is_erased, is_known};
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::outbox::queue::LATE_MS;
use crate::pipeline::commit;
use crate::privacy::audit;
use crate::store::priority::Priority;
use crate::store::tables::{erased, erased_ids, outbox};
use crate::store::write_txn::{TxnInputs, TxnRules};
use crate::store::{StoreCounters, StoreError, TenantNo, journal, visitor_at};
use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::facts::fact::{Fact, FactKind};
use rusqlite::{Connection, TransactionBehavior};
use std::sync::Arc;

/// Applies the journal's erasures that the store lacks, and returns their number. Puts keys that erasures wait for in
/// the outbox, if it lacks them. `in_log` is the newest log record that may hold data of the erased visitors. Called
/// before anything is read or published.
///
/// # Errors
/// [`StoreError`].
pub fn replay_journal(
    conn: &mut Connection,
    rules: &TxnRules,
    given: TxnInputs,
    in_log: u64,
) -> Result<usize, StoreError> {
    adopt_erasures(conn, rules)?;
    let (mut unknown, mut unconfigured) = (Vec::new(), 0_u64);
    rules.journal.each(|name, fact| {
        match rules.tenants.by_name(&name) {
            Some(tenant) if is_applied(conn, tenant.no, &fact)? => {}
            Some(tenant) => unknown.push(CheckedFact { tenant: tenant.no, fact }),
            None => unconfigured += 1,
        }
        Ok(())
    })?;
    if unconfigured > 0 {
        tracing::warn!(unconfigured, "erasures of tenants that are no longer configured stay in the journal");
    }
    let count = unknown.len();
    if count > 0 {
        tracing::info!(count, "applying erasures from the journal that the store lacks");
        // The audit rows first, so that each keeps its author and reason.
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for asked in rules.journal.requested_erasures()? {
            if let Some(tenant) = rules.tenants.by_name(&asked.tenant) {
                audit::carry_erasures(&tx, tenant.no, &asked)?;
            }
        }
        tx.commit()?;
        let record = LogRecord { in_log, ..LogRecord::with_attribution(unknown, Attribution::by(journal::BY)) };
        commit::commit_group(conn, rules, &Metrics::default(), given, &[Arc::new(record)], &[])?;
    }
    put_open(conn, rules, given.now)?;
    Ok(count)
}

/// Puts KV keys that an erasure waits for in the outbox, if it lacks them: an earlier release deleted them while their
/// tenant was not configured. A value that was handed out before may still be written late.
pub(crate) fn put_open(conn: &mut Connection, rules: &TxnRules, now: Millis) -> Result<(), StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let changed = signed(StoreCounters::load(&tx)?.version().counter);
    for tenant in rules.tenants.iter() {
        let late = signed(now.saturating_add(LATE_MS));
        tx.execute(
            outbox::OUTBOX_INSERT_UNWRITTEN_OF_ERASURES,
            (tenant.no.0, changed, signed(now), late, Priority::Leaving as u8),
        )?;
    }
    Ok(tx.commit()?)
}

pub(crate) fn is_applied(conn: &Connection, tenant: TenantNo, fact: &Fact) -> Result<bool, StoreError> {
    let FactKind::Erasure { id, .. } = &fact.what else { return Ok(true) };
    if !is_known(conn, tenant, fact.id)? {
        return Ok(false);
    }
    let visitor = fact.visitor == VisitorId::ANONYMOUS || is_erased(conn, tenant, fact.visitor)?;
    let id = match id {
        Some(id) => id_erased(conn, tenant, id.kind, [id.hash])?.is_some_and(|(at, _)| at >= fact.received),
        None => true,
    };
    Ok(visitor && id)
}

/// Most entries written into the journal in one transaction.
pub(crate) const ADOPTED: usize = 10_000;

/// Writes erasures that only the store has into the journal, which was lost or comes from another machine.
pub(crate) fn adopt_erasures(conn: &Connection, rules: &TxnRules) -> Result<(), StoreError> {
    let mut known = Vec::new();
    let mut visitors = conn.prepare(erased::ERASED_ALL_WITH_TENANT_NAMES)?;
    let mut rows = visitors.query([])?;
    while let Some(row) = rows.next()? {
        let entry = journal::visitor_fact(FactId::from_bytes(row.get(1)?), visitor_at(row, 3)?, unsigned(row.get(2)?));
        known.push((row.get(0)?, entry));
        if known.len() == ADOPTED {
            rules.journal.keep(&known, &[])?;
            known.clear();
        }
    }
    let mut ids = conn.prepare(erased_ids::ERASED_IDS_ALL_WITH_TENANT_NAMES)?;
    let mut rows = ids.query([])?;
    while let Some(row) = rows.next()? {
        let id = AlternateId { kind: KindCode(row.get(3)?), hash: AltHash(row.get(4)?) };
        known.push((row.get(0)?, journal::id_fact(FactId::from_bytes(row.get(1)?), id, unsigned(row.get(2)?))));
    }
    rules.journal.keep(&known, &audit::list_erasures(conn)?)
}
