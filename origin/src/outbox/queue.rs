//! The outbox: one row for each KV key that must be written, however often its value changed since the last write.
//!
//! A row is leased to one publish consumer, and stays until the write is acknowledged (invariant 5).

use crate::base::integers::{signed, unsigned};
use crate::outbox::kv_key::KvKey;
use crate::store::priority::Priority;
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::planted::{self, PlantedBug};

/// How long a consumer may take to acknowledge what it was handed, in milliseconds.
pub const LEASE_MS: Millis = 60_000;

/// How long after it was handed out a write that nobody acknowledged may still land, in milliseconds: the platform ends
/// a consumer after 15 minutes.
pub const LATE_MS: Millis = 15 * 60_000;

/// Shortest time between two writes of a key, in milliseconds (the platform allows one a second).
pub const KEY_PAUSE_MS: Millis = 1_000;

/// A clock that is set back by less is waited for, in milliseconds: it may be right again before what it noted is over.
pub const STEP_MS: Millis = LATE_MS;

/// People whose siblings are put in the outbox in one call at most.
pub(crate) const TIMERS: u32 = 64;

/// Has a key written by `due` at the latest, in its turn.
pub(crate) fn put_key(group: &WriteTxn<'_>, tenant: TenantNo, subject: KvKey, due: Millis) -> Result<(), StoreError> {
    put_as(group, tenant, subject, due, group.rank)
}

/// The same, at once, of what may name who left: it waits behind no news, but where it is one of very many.
pub(crate) fn put_leaving(group: &WriteTxn<'_>, tenant: TenantNo, subject: KvKey) -> Result<(), StoreError> {
    let rank = if group.rank == Priority::Bulk { Priority::Bulk } else { Priority::Leaving };
    put_as(group, tenant, subject, group.now, rank)
}

pub(crate) fn put_as(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    subject: KvKey,
    due: Millis,
    rank: Priority,
) -> Result<(), StoreError> {
    const PUT: &str =
        "INSERT INTO outbox (tenant, kind, subject, changed, due, lease_change, leased_until, handed, rank)
        VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, 0, ?6)
        ON CONFLICT (tenant, kind, subject) DO UPDATE SET changed = excluded.changed,
            rank = iif(due IS NULL, excluded.rank, min(rank, excluded.rank)),
            due = min(ifnull(due, excluded.due), excluded.due)";
    // One that is due and handed to nobody is written as all is by then: nothing is touched.
    const WAITS: &str = "SELECT 1 FROM outbox
        WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due <= ?4 AND rank <= ?5 AND lease IS NULL";
    // A row that is due already stays where it is: no index is touched.
    const AGAIN: &str = "UPDATE outbox SET changed = ?4
        WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due <= ?5 AND rank <= ?6";
    let (kind, subject) = subject.columns();
    let (due, rank) = (signed(due), rank.of(kind) as u8);
    if group.tx.prepare_cached(WAITS)?.exists((tenant.0, kind, subject, due, rank))? {
        return Ok(());
    }
    let version = signed(group.version().counter);
    let values = (tenant.0, kind, subject, version, due, rank);
    if group.tx.prepare_cached(AGAIN)?.execute(values)? == 0 {
        group.tx.prepare_cached(PUT)?.execute(values)?;
    }
    Ok(())
}

/// Has all snapshots of a tenant that left something out written again, behind news.
pub(crate) fn put_truncated(group: &WriteTxn<'_>, tenant: TenantNo) -> Result<(), StoreError> {
    const READ: &str = "SELECT visitor FROM visitors INDEXED BY visitors_truncated WHERE tenant = ?1 AND truncated";
    let mut statement = group.tx.prepare_cached(READ)?;
    for visitor in statement.query_map([tenant.0], |row| visitor_at(row, 0))? {
        put_as(group, tenant, KvKey::Snapshot(visitor?), group.now, Priority::Bulk)?;
    }
    Ok(())
}

/// Whether a key is to be written, now or later.
pub(crate) fn is_waiting(group: &WriteTxn<'_>, tenant: TenantNo, subject: KvKey) -> Result<bool, StoreError> {
    const READ: &str = "SELECT 1 FROM outbox WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due IS NOT NULL";
    let (kind, subject) = subject.columns();
    Ok(group.tx.prepare_cached(READ)?.exists((tenant.0, kind, subject))?)
}

/// Has a person's siblings published when the pause is over, unless that is planned already.
pub(crate) fn schedule_siblings(group: &WriteTxn<'_>, person: PersonNo) -> Result<(), StoreError> {
    const LATER: &str = "UPDATE people SET changed = ?2, siblings_due = ifnull(siblings_due, ?3)
        WHERE person = ?1 AND devices > 1";
    let due = group.now.saturating_add(group.rules.sibling_publish_ms);
    let values = (person.0, signed(group.version().counter), signed(due));
    group.tx.prepare_cached(LATER)?.execute(values)?;
    Ok(())
}

/// Settled rows are kept for the key's pause only.
pub(crate) fn forget_settled(group: &WriteTxn<'_>) -> Result<(), StoreError> {
    const FORGET: &str = "DELETE FROM outbox WHERE due IS NULL AND handed <= ?1";
    let pause_over = signed(group.now.saturating_sub(KEY_PAUSE_MS));
    group.tx.prepare_cached(FORGET)?.execute([pause_over])?;
    Ok(())
}

/// People whose siblings wait for news of one another.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn count_waiting(conn: &rusqlite::Connection) -> Result<u64, StoreError> {
    const COUNT: &str = "SELECT count(*) FROM people WHERE siblings_due IS NOT NULL";
    Ok(conn.query_row(COUNT, [], |row| row.get(0).map(unsigned))?)
}

/// Puts in the outbox the siblings of people whose pause is over by a time: of each the visitors last active, where
/// their snapshot is older than the person's last change. Gives how many people and snapshots these were.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn fire_timers(group: &WriteTxn<'_>, until: Millis, most: u32) -> Result<(u64, u64), StoreError> {
    const READ: &str = "SELECT person, tenant FROM people WHERE siblings_due <= ?1
        ORDER BY siblings_due LIMIT ?2";
    // Bound, the limit has SQLite plan the statement anew each time.
    let siblings = format!(
        "SELECT v.visitor FROM
            (SELECT visitor, published FROM visitors WHERE person = ?1 ORDER BY last_seen DESC LIMIT {}) v
        WHERE v.published < (SELECT changed FROM people WHERE person = ?1)",
        limits::SNAPSHOT_VISITORS
    );
    const DONE: &str = "UPDATE people SET siblings_due = NULL WHERE person = ?1";
    let people: Vec<(i64, i64)> = {
        let mut statement = group.tx.prepare_cached(READ)?;
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
        group.tx.prepare_cached(DONE)?.execute([person])?;
    }
    Ok((fired, put_now))
}
