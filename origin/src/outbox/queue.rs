//! The outbox: one row per KV key that must be written, however often its value changed since the last write.
//!
//! A row is leased to the publish consumer or to a lane of the bulk publisher, and stays until the write is
//! acknowledged (invariant 5).

use crate::base::integers::{signed, unsigned};
use crate::outbox::kv_key::KvKey;
use crate::store::priority::Priority;
use crate::store::tables::{outbox, people, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::planted::{self, PlantedBug};

/// Time in which a consumer must acknowledge its leased keys, in milliseconds.
pub const LEASE_MS: u64 = 60_000;

/// Time after its hand-out in which an unacknowledged write may still arrive, in milliseconds: the platform ends a
/// consumer after 15 minutes.
pub const LATE_MS: u64 = 15 * 60_000;

/// Shortest time between two writes of a key, in milliseconds (the platform allows one a second).
pub const KEY_PAUSE_MS: u64 = 1_000;

/// A clock that was set back by less is waited for, in milliseconds, because it may be right again before its times are
/// over.
pub const STEP_MS: u64 = LATE_MS;

/// Most people whose siblings one call puts in the outbox.
pub(crate) const TIMERS: u32 = 64;

/// Puts a key in the outbox, to be written by `due` at the latest.
pub(crate) fn put_key(group: &WriteTxn<'_>, tenant: TenantNo, subject: KvKey, due: Millis) -> Result<(), StoreError> {
    put_as(group, tenant, subject, due, group.priority)
}

/// Puts a key that may name a leaving visitor in the outbox, due now. It has priority over news, except in a bulk
/// operation.
pub(crate) fn put_leaving(group: &WriteTxn<'_>, tenant: TenantNo, subject: KvKey) -> Result<(), StoreError> {
    let priority = if group.priority == Priority::Bulk { Priority::Bulk } else { Priority::Leaving };
    put_as(group, tenant, subject, group.now, priority)
}

pub(crate) fn put_as(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    subject: KvKey,
    due: Millis,
    priority: Priority,
) -> Result<(), StoreError> {
    let (kind, subject) = subject.columns();
    let (due, priority) = (signed(due), priority.of(kind) as u8);
    if group.tx.prepare_cached(outbox::OUTBOX_IS_DUE_UNLEASED)?.exists((tenant.0, kind, subject, due, priority))? {
        return Ok(());
    }
    let version = signed(group.version().counter);
    let values = (tenant.0, kind, subject, version, due, priority);
    if group.tx.prepare_cached(outbox::OUTBOX_SET_CHANGED_IF_DUE)?.execute(values)? == 0 {
        group.tx.prepare_cached(outbox::OUTBOX_UPSERT)?.execute(values)?;
    }
    Ok(())
}

/// Puts all truncated snapshots of a tenant in the outbox, with a lower priority than news.
pub(crate) fn put_truncated(group: &WriteTxn<'_>, tenant: TenantNo) -> Result<(), StoreError> {
    let mut statement = group.tx.prepare_cached(visitors::VISITORS_TRUNCATED_OF_TENANT)?;
    for visitor in statement.query_map([tenant.0], |row| visitor_at(row, 0))? {
        put_as(group, tenant, KvKey::Snapshot(visitor?), group.now, Priority::Bulk)?;
    }
    Ok(())
}

/// Whether a key waits for a write, now or later.
pub(crate) fn is_waiting(group: &WriteTxn<'_>, tenant: TenantNo, subject: KvKey) -> Result<bool, StoreError> {
    let (kind, subject) = subject.columns();
    Ok(group.tx.prepare_cached(outbox::OUTBOX_IS_WAITING)?.exists((tenant.0, kind, subject))?)
}

/// Schedules the publication of a person's siblings after the pause, unless it is already scheduled.
pub(crate) fn schedule_siblings(group: &WriteTxn<'_>, person: PersonNo) -> Result<(), StoreError> {
    let due = group.now.saturating_add(group.rules.sibling_publish_ms);
    let values = (person.0, signed(group.version().counter), signed(due));
    group.tx.prepare_cached(people::PEOPLE_SCHEDULE_SIBLINGS)?.execute(values)?;
    Ok(())
}

/// Deletes settled rows once the key's pause is over.
pub(crate) fn forget_settled(group: &WriteTxn<'_>) -> Result<(), StoreError> {
    let pause_over = signed(group.now.saturating_sub(KEY_PAUSE_MS));
    group.tx.prepare_cached(outbox::OUTBOX_DELETE_SETTLED)?.execute([pause_over])?;
    Ok(())
}

/// Number of people whose siblings wait for a publication.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn count_waiting(conn: &rusqlite::Connection) -> Result<u64, StoreError> {
    Ok(conn.query_row(people::PEOPLE_COUNT_SIBLINGS_DUE, [], |row| row.get(0).map(unsigned))?)
}

/// Number of keys of bulk operations that wait for a write. Takes about a second for ten million keys.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn count_bulk_keys(conn: &rusqlite::Connection) -> Result<u64, StoreError> {
    let count = outbox::OUTBOX_COUNT_WAITING_OF_PRIORITY;
    Ok(conn.query_row(count, [Priority::Bulk as u8], |row| row.get(0).map(unsigned))?)
}

/// Puts siblings of people whose pause is over by `until` in the outbox: each person's most recently active visitors,
/// if their snapshot is older than the person's last change. Returns the number of people and of snapshots.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn fire_timers(group: &WriteTxn<'_>, until: Millis, most: u32) -> Result<(u64, u64), StoreError> {
    let siblings = visitors::visitors_outdated_of_person(limits::SNAPSHOT_VISITORS);
    let people: Vec<(i64, i64)> = {
        let mut statement = group.tx.prepare_cached(people::PEOPLE_SIBLINGS_DUE_BY_TIME)?;
        let rows = statement.query_map((signed(until), most), |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let (fired, mut put_now) = (people.len() as u64, 0);
    for (person, tenant) in people {
        let mut statement = group.tx.prepare_cached(&siblings)?;
        let siblings: Vec<VisitorId> =
            statement.query_map([person], |row| visitor_at(row, 0))?.collect::<Result<_, _>>()?;
        put_now += siblings.len() as u64;
        for visitor in siblings {
            if planted::is_active(PlantedBug::ForgetTheSiblings) {
                continue;
            }
            put_key(group, TenantNo(tenant), KvKey::Snapshot(visitor), group.now)?;
        }
        group.tx.prepare_cached(people::PEOPLE_CLEAR_SIBLINGS_DUE)?.execute([person])?;
    }
    Ok((fired, put_now))
}
