//! Order of due keys: by priority, and by turns of the tenants within a priority, so that no tenant waits for another
//! one's flood.

use std::collections::VecDeque;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::planted::{self, PlantedBug};
use rusqlite::{Connection, OptionalExtension as _};

use crate::base::integers::{signed, unsigned};
use crate::outbox::kv_key::{CATALOGUE, KvKey};
use crate::outbox::queue::KEY_PAUSE_MS;
use crate::outbox::unconfigured_tenants;
use crate::store::priority::Priority;
use crate::store::tables::{outbox, people};
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};

/// Most waiting keys that are counted.
const COUNTED: u64 = 10_000;
/// One in this many keys of a hand-out has a lower priority, however many keys of higher priorities are due.
const LOWER_PART: usize = 10;

/// A due row of the outbox.
pub(crate) struct DueRow {
    pub(crate) row: i64,
    pub(crate) tenant: TenantNo,
    pub(crate) subject: KvKey,
    pub(crate) due: Millis,
}

/// Tenants with unsettled rows of a priority.
fn due_tenants(conn: &Connection, priority: Priority) -> Result<Vec<TenantNo>, StoreError> {
    let mut statement = conn.prepare_cached(outbox::OUTBOX_NEXT_WAITING_TENANT)?;
    let (mut all, mut after) = (Vec::new(), i64::MIN);
    while let Some(tenant) = statement.query_row((priority as u8, after), |row| row.get(0)).optional()? {
        all.push(TenantNo(tenant));
        after = tenant;
    }
    Ok(all)
}

/// Each pair of a priority and a tenant that has unsettled rows.
fn priority_tenants(conn: &Connection) -> Result<Vec<(u8, i64)>, StoreError> {
    let mut all = Vec::new();
    for priority in Priority::ALL {
        all.extend(due_tenants(conn, priority)?.into_iter().map(|tenant| (priority as u8, tenant.0)));
    }
    Ok(all)
}

/// At most `wanted` due keys of configured tenants with one of these priorities, which are in ascending order. A due
/// key of another tenant waits from now on until the tenant is configured.
pub(crate) fn due_rows(
    group: &mut WriteTxn<'_>,
    priorities: &[Priority],
    wanted: usize,
) -> Result<Vec<DueRow>, StoreError> {
    loop {
        let all = rows_by_priority(group, priorities, wanted)?;
        let is_known = |due: &DueRow| group.rules.tenants.by_no(due.tenant).is_ok();
        let (known, absent): (Vec<_>, Vec<_>) = all.into_iter().partition(is_known);
        if absent.is_empty() {
            return Ok(known);
        }
        for due in absent {
            put_off(group, &due, unconfigured_tenants::NEVER)?;
        }
    }
}

/// Due rows, the most urgent first; each lower priority has a guaranteed share.
fn rows_by_priority(
    group: &mut WriteTxn<'_>,
    priorities: &[Priority],
    wanted: usize,
) -> Result<Vec<DueRow>, StoreError> {
    let mut all = Vec::new();
    let mut of_each =
        priorities.iter().map(|priority| in_turn(group, *priority, wanted)).collect::<Result<VecDeque<_>, _>>()?;
    while let Some(mut rows) = of_each.pop_front() {
        let lower: usize = of_each.iter().map(|rows| rows.len().min(wanted / LOWER_PART)).sum();
        rows.truncate(wanted - all.len() - lower);
        all.append(&mut rows);
    }
    Ok(all)
}

/// At most `wanted` due rows of one priority, shared equally among the tenants that have enough. The first tenant is
/// drawn at random, because there may be more tenants than wanted rows.
fn in_turn(group: &mut WriteTxn<'_>, priority: Priority, wanted: usize) -> Result<Vec<DueRow>, StoreError> {
    let next = if planted::is_active(PlantedBug::HandOutWhatIsLeased) {
        outbox::OUTBOX_DUE_BY_TENANT_DESPITE_LEASE
    } else {
        outbox::OUTBOX_DUE_BY_TENANT
    };
    let mut tenants = due_tenants(group.tx, priority)?;
    if tenants.len() > 1 {
        let first = u64::from_le_bytes(group.random.draw()) % tenants.len() as u64;
        tenants.rotate_left(usize::try_from(first).unwrap_or_default());
    }
    let pause_over = signed(group.now.saturating_sub(KEY_PAUSE_MS));
    let mut statement = group.tx.prepare_cached(next)?;
    let mut read = |tenant: TenantNo, most: usize, after: usize| -> Result<Vec<DueRow>, StoreError> {
        let parameters =
            (priority as u8, tenant.0, signed(group.now), pause_over, signed(most as u64), signed(after as u64));
        let rows = statement.query_map(parameters, |row| {
            let subject = KvKey::of_columns(row.get(1)?, row, 2)?;
            Ok(DueRow { row: row.get(0)?, tenant, subject, due: unsigned(row.get(3)?) })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let (mut all, mut turns) = (Vec::new(), tenants.into_iter().map(|tenant| (tenant, 0)).collect::<VecDeque<_>>());
    // The share that a tenant does not use goes in equal parts to tenants with more rows.
    while all.len() < wanted && !turns.is_empty() {
        for left in (1..=turns.len()).rev() {
            let Some((tenant, had)) = turns.pop_front() else { break };
            let share = (wanted - all.len()).div_ceil(left);
            let rows = if share > 0 { read(tenant, share, had)? } else { Vec::new() };
            turns.extend((rows.len() == share).then_some((tenant, had + share)));
            all.extend(rows);
        }
    }
    Ok(all)
}

/// Number of due and unleased keys, plus people whose siblings are due; each counted up to a bound.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn pending_rows(group: &WriteTxn<'_>) -> Result<u64, StoreError> {
    let now = signed(group.now);
    let mut statement = group.tx.prepare_cached(people::PEOPLE_AND_SWEEPS_COUNT_PENDING)?;
    let people = statement.query_row((now, signed(COUNTED)), |row| row.get(0).map(unsigned))?;
    let mut statement = group.tx.prepare_cached(outbox::OUTBOX_COUNT_DUE_BY_TENANT)?;
    let mut keys = 0;
    for (priority, tenant) in priority_tenants(group.tx)? {
        if keys < COUNTED {
            let parameters = (priority, tenant, now, signed(COUNTED));
            keys += statement.query_row(parameters, |row| row.get(0).map(unsigned))?;
        }
    }
    Ok(keys.min(COUNTED) + people)
}

/// Number of keys that wait for a write, counted up to a bound, and the due time of the oldest. Keys of unconfigured
/// tenants are not counted.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn queue_depth(conn: &Connection) -> Result<(u64, Option<Millis>), StoreError> {
    let mut statement = conn.prepare_cached(outbox::OUTBOX_DEPTH_BY_TENANT)?;
    let (mut keys, mut oldest) = (0, None);
    for (priority, tenant) in priority_tenants(conn)? {
        // At least one row, for the age of the oldest.
        let parameters = (priority, tenant, unconfigured_tenants::NEVER, signed((COUNTED - keys).max(1)));
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0).map(unsigned)?, row.get::<_, Option<i64>>(1)?));
        let (count, first) = statement.query_row(parameters, read)?;
        keys = COUNTED.min(keys + count);
        oldest = oldest.into_iter().chain(first.map(unsigned)).min();
    }
    Ok((keys, oldest))
}

/// Whether a row is due after a time, except old versions of a catalogue and keys of unconfigured tenants.
pub(super) fn is_due_after(conn: &Connection, after: i64) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached(outbox::OUTBOX_ANY_DUE_BETWEEN)?;
    for (priority, tenant) in priority_tenants(conn)? {
        if statement.query_row((priority, tenant, after, unconfigured_tenants::NEVER, CATALOGUE), |row| row.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sets the due time of a row.
pub(crate) fn put_off(group: &WriteTxn<'_>, due: &DueRow, until: i64) -> Result<(), StoreError> {
    group.tx.prepare_cached(outbox::OUTBOX_SET_DUE)?.execute((due.row, until))?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeMap;

    use causeway_shared::base::ids::KindCode;
    use causeway_shared::facts::fact::ErasureScope;

    use crate::outbox::queue::KEY_PAUSE_MS;
    use crate::privacy::erasure_request::ErasureTarget;
    use crate::testing::{NOW, Origin, page, visitor, withdrawal};

    /// A page view of each of `visitors` visitors.
    fn flood(origin: &mut Origin, tenant: &str, first: u32, visitors: u32) {
        let pages: Vec<_> = (first..first + visitors).map(|v| page(visitor(v), 1, NOW)).collect();
        origin.send(tenant, &pages);
    }

    fn handed(origin: &mut Origin, wanted: u16) -> Vec<String> {
        let writes = origin.drain(wanted);
        origin.acknowledge(&writes);
        writes.into_iter().map(|write| write.key).collect()
    }

    fn of(tenant: &str, keys: &[String]) -> usize {
        keys.iter().filter(|key| key.starts_with(&format!("v:{tenant}:"))).count()
    }

    #[test]
    fn what_is_new_of_a_tenant_waits_behind_no_flood_of_another() {
        let mut origin = Origin::new();
        flood(&mut origin, "demo", 0, 1_000);
        origin.now += 60_000;
        flood(&mut origin, "other", 5_000, 80);
        let handed_100 = |origin: &mut Origin| {
            let keys = handed(origin, 100);
            (of("demo", &keys), of("other", &keys))
        };
        assert_eq!([(); 3].map(|()| handed_100(&mut origin)), [(50, 50), (70, 30), (100, 0)]);
        // Whichever tenant begins, the unused share of one goes to the other.
        for n in 1..7 {
            flood(&mut origin, "other", 5_000 + 100 * n, 10);
            assert_eq!(handed_100(&mut origin), (90, 10));
        }
        // This also holds for fewer keys than tenants.
        flood(&mut origin, "other", 6_000, 8);
        let until = (1..).find(|_| of("other", &handed(&mut origin, 1)) == 1).unwrap();
        assert!(until < 100, "{until} keys of the other tenant came first");
    }

    #[test]
    fn what_many_tenants_leave_goes_to_all_who_have_more_alike() {
        let mut origin = Origin::new();
        origin.beside(20);
        flood(&mut origin, "demo", 0, 500);
        flood(&mut origin, "other", 1_000, 500);
        for round in 0..4 {
            (0..20).for_each(|n| flood(&mut origin, &format!("t{n}"), 2_000 + round, 1));
            let keys = handed(&mut origin, 100);
            assert_eq!((keys.len(), of("demo", &keys), of("other", &keys)), (100, 40, 40));
        }
    }

    #[test]
    fn cuts_wait_for_no_other_update_and_updates_continue_meanwhile() {
        let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
        let logins = [1, 2].map(|v| origin.login(visitor(v), 1, NOW, "ann"));
        origin.send("demo", &[&logins[..], &[page(visitor(3), 1, NOW)]].concat());
        origin.settle(&mut kv);
        flood(&mut origin, "demo", 1_000, 1_000);
        origin.now += 60_000;
        let id = origin.id("demo", KindCode(1), "ann");
        origin.admin(
            "demo",
            &[ErasureTarget::Id(KindCode(1), vec![id.hash]).fact(ErasureScope::Person, origin.now, [9; 16])],
        );
        origin.send("demo", &[withdrawal(visitor(3), origin.now)]);
        let keys = handed(&mut origin, 100);
        let gone: Vec<_> = (1..=3).map(|v| format!("v:demo:{}", visitor(v))).collect();
        let missing: Vec<_> = gone.iter().filter(|key| !keys.contains(key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(keys.iter().any(|key| key.starts_with("a:demo:")));
        assert_eq!(keys.len(), 100);

        // Among very many leaving visitors, news keep their share of each hand-out.
        origin.now += KEY_PAUSE_MS;
        let leave: Vec<_> = (1_500..1_800).map(|v| withdrawal(visitor(v), origin.now)).collect();
        origin.send("demo", &leave);
        let keys = handed(&mut origin, 100);
        let leaving = (1_500..1_800).filter(|v| keys.contains(&format!("v:demo:{}", visitor(*v)))).count();
        assert_eq!((keys.len(), leaving), (100, 90));
    }
}
