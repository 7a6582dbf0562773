//! Publish: chooses the KV keys that must be written, leases them, and settles them.
//!
//! The outbox holds one row per key, however often its value changed since the last write. A value is built at its
//! hand-out from the newest state ([`value`]). A row is leased to one consumer and stays until the write is
//! acknowledged (invariant 5).

use crate::outbox::fair_queue::{self, put_off};
use crate::outbox::kv_key::KvKey;
pub(crate) use crate::outbox::queue::put_key;
use crate::outbox::queue::put_leaving;
use crate::outbox::queue::{LATE_MS, LEASE_MS, TIMERS, fire_timers, forget_settled, schedule_siblings};
use crate::store::tables::{outbox, standing, visitors};
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::wire::sync::KvWrite;

use crate::audience::best_send_times::BestSendTimeCache;
use crate::base::error_chain;
use crate::base::integers::signed;
use crate::campaigns::catalogue;
use crate::erasures::sweep::{self, PersonChange};
use crate::identity::changes::LinkChanges;
use crate::identity::link::{id_family, of_visitor};
pub use crate::kv::republish::{RepublishCounts, keys_of_visitor, of_tenants, visitor_page};
use crate::kv::value::{self, KvValue};
use crate::kv::value_error::ValueError;
pub use crate::outbox::clock_rollback::{is_ahead, set_back};
use crate::outbox::fair_queue::DueRow;
pub use crate::outbox::fair_queue::pending_rows;
pub use crate::outbox::fair_queue::queue_depth;
use crate::profiles::fold::ChangedVisitor;
pub use crate::store::priority::Priority;
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo};

/// Pause before a value that could not be built is tried again, in milliseconds.
const RETRY_MS: u64 = 60_000;

/// Puts the changes of this transaction in the outbox: a visitor's own snapshot now, its siblings' after their person's
/// pause, and all snapshots of a person now if a visitor left it.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn note_changes(
    group: &mut WriteTxn<'_>,
    changed: &[ChangedVisitor],
    linked: &LinkChanges,
) -> Result<(), StoreError> {
    let now = group.now;
    for (tenant, page) in std::mem::take(&mut group.names.changed) {
        put_key(group, tenant, KvKey::Names(page), now)?;
    }
    for (tenant, visitor) in &linked.withdrawn {
        put_leaving(group, *tenant, KvKey::Snapshot(*visitor))?;
    }
    for c in changed.iter().filter(|c| !c.withdrawn) {
        put_key(group, c.tenant, KvKey::Snapshot(c.visitor), now)?;
        if c.devices > 1 {
            schedule_siblings(group, c.person)?;
        }
    }
    // The snapshots of a person are announced once, however many visitors leave it in this transaction.
    let mut people: BTreeMap<PersonNo, bool> = BTreeMap::new();
    linked.people.iter().for_each(|change| *people.entry(change.person).or_default() |= change.cut);
    for (person, cut) in people {
        sweep::announce_change(group, PersonChange { person, cut })?;
    }
    sweep::note_moved(group, changed.iter().map(|of| (of.tenant, of.visitor)))?;
    let mut leaves = BTreeSet::new();
    for (tenant, visitor) in &linked.withdrawn {
        leaves.extend(of_visitor(group.tx, *tenant, *visitor)?.into_iter().map(|row| (*tenant, row.evidence.id)));
    }
    for (tenant, id) in &linked.lookups {
        let known = group.rules.tenants.by_no(*tenant)?;
        for hash in id_family(group.tx, *tenant, *id)? {
            let key = KvKey::Lookup(id.kind, hash);
            match known.is_readable(hash) {
                true if leaves.contains(&(*tenant, *id)) => put_leaving(group, *tenant, key)?,
                true => put_key(group, *tenant, key, now)?,
                false => {}
            }
        }
    }
    Ok(())
}

/// Settles the rows whose writes the KV acknowledged, and returns their number. A row stays due if its value changed
/// after its hand-out; it then waits since the hand-out, not since its first change (`causeway_outbox_age_seconds`). If
/// an earlier consumer may still write an older value, the row is written again once that is impossible. The key's
/// pause starts again, because the platform counts from the write, which may be long after the hand-out. A repeated or
/// unknown acknowledgement settles nothing.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn acknowledge_rows(group: &WriteTxn<'_>, applied: &[u64]) -> Result<u64, StoreError> {
    let settle = if planted::is_active(PlantedBug::LoseAcknowledgedOutboxChange) {
        outbox::OUTBOX_SETTLE_LEASE_DESPITE_CHANGE
    } else {
        outbox::OUTBOX_SETTLE_LEASE
    };
    crate::erasures::registry::note_written(group, applied)?;
    catalogue::written(group, applied)?;
    let mut settled = 0;
    for entry in applied {
        settled += group.tx.prepare_cached(settle)?.execute([signed(*entry), signed(group.now)])? as u64;
    }
    Ok(settled)
}

/// Leases at most `wanted` due keys to one consumer; snapshots come before the lookups that name them.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn hand_out(group: &mut WriteTxn<'_>, wanted: u16) -> Result<Vec<KvWrite>, StoreError> {
    if wanted == 0 {
        return Ok(Vec::new());
    }
    let all = collect_due_rows(group, &Priority::ALL, usize::from(wanted).min(limits::SYNC_PUBLISH))?;
    let mut writes = Vec::new();
    let (mut best, mut bytes) = (BestSendTimeCache::default(), 0);
    for due in all {
        if bytes > limits::PUBLISH_BYTES {
            break;
        }
        if let Some(write) = lease_row(group, &due, &mut best)? {
            bytes += write.value.as_ref().map_or(0, String::len);
            writes.push((matches!(due.subject, KvKey::Lookup(..)), write));
        }
    }
    writes.sort_by_key(|(is_lookup, write)| (*is_lookup, write.entry));
    Ok(writes.into_iter().map(|(_, write)| write).collect())
}

/// At most `wanted` due rows with one of these priorities, after the timers that are due put their keys in the outbox.
/// A sweep continues if fewer rows are due, or if it has waited for too long.
pub(crate) fn collect_due_rows(
    group: &mut WriteTxn<'_>,
    priorities: &[Priority],
    wanted: usize,
) -> Result<Vec<DueRow>, StoreError> {
    forget_settled(group)?;
    fire_timers(group, group.now, TIMERS)?;
    let due = fair_queue::due_rows(group, priorities, wanted)?;
    if due.len() == wanted && !sweep::is_overdue(group)? {
        return Ok(due);
    }
    sweep::go_on(group)?;
    fair_queue::due_rows(group, priorities, wanted)
}

/// Builds a row's value and leases the row under the value's version. `None` if the value could not be built.
fn lease_row(
    group: &mut WriteTxn<'_>,
    due: &DueRow,
    best: &mut BestSendTimeCache,
) -> Result<Option<KvWrite>, StoreError> {
    let rules = group.rules;
    let tenant = rules.tenants.by_no(due.tenant)?;
    let refreshed = match due.subject {
        KvKey::Snapshot(visitor) => best.store_best_send_time(group.tx, tenant, visitor, group.now),
        _ => Ok(()),
    };
    let version = group.next_version();
    let retry = signed(group.now.saturating_add(RETRY_MS));
    let built = refreshed
        .map_err(ValueError::from)
        .and_then(|()| value::build(group.tx, tenant, due.subject, version, group.now));
    let KvValue { key, value, is_truncated } = match built {
        Ok(built) => built,
        Err(ValueError::NotYet) => {
            put_off(group, due, retry)?;
            return Ok(None);
        }
        // An unreadable value of one person must not delay the values of others.
        Err(ValueError::Store(e)) if !e.is_of_a_value() => return Err(e),
        Err(e) => {
            group.metrics.bad_values.inc();
            tracing::error!(error = %error_chain(&e), "a KV value cannot be built, or failed its check, and is retried later");
            put_off(group, due, retry)?;
            return Ok(None);
        }
    };
    let late = if planted::is_active(PlantedBug::ForgetLateWrites) { 0 } else { LATE_MS };
    let [until, late] = [LEASE_MS, late].map(|after| signed(group.now.saturating_add(after)));
    let row = (due.row, signed(version.counter), until, signed(group.now), late);
    group.tx.prepare_cached(outbox::OUTBOX_LEASE)?.execute(row)?;
    match due.subject {
        KvKey::Snapshot(visitor) => note_published(group, due.tenant, visitor, version.counter, is_truncated)?,
        KvKey::Catalogue(number) => {
            let entry = value.is_some().then_some(version.counter);
            catalogue::handed(group, due.tenant, number, entry)?;
        }
        KvKey::Pointer | KvKey::Model | KvKey::Allocation => note_version(group, due, version.counter)?,
        KvKey::Lookup(..) | KvKey::Names(_) => {}
    }
    Ok(Some(KvWrite { entry: version.counter, key, version, value, due: due.due }))
}

fn note_published(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    counter: u64,
    is_truncated: bool,
) -> Result<(), StoreError> {
    group.tx.prepare_cached(visitors::VISITORS_MARK_PUBLISHED)?.execute((
        tenant.0,
        visitor.as_bytes(),
        signed(counter),
        is_truncated,
    ))?;
    Ok(())
}

/// Stores the version of a value with which it was handed out, because the version is part of the value.
fn note_version(group: &WriteTxn<'_>, due: &DueRow, counter: u64) -> Result<(), StoreError> {
    let (kind, _) = due.subject.columns();
    group.tx.prepare_cached(standing::STANDING_UPSERT)?.execute((due.tenant.0, kind, signed(counter)))?;
    Ok(())
}

#[cfg(test)]
#[path = "publish/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "publish/unknown_tests.rs"]
mod unknown_tests;
