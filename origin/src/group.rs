//! One transaction of the writer, over the calls of several edges: intake → fold → link → publish.

use causeway_shared::ids::{Epoch, Millis, Version};
use causeway_shared::wire::sync::SyncResponse;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::intake::Incoming;
use crate::metrics::Metrics;
use crate::store::{Counters, StoreError};
use crate::tenants::Tenants;
use crate::{fold, intake, link, publish, segments};

/// What all groups of one process have in common.
#[derive(Debug)]
pub struct Rules {
    /// The tenants served.
    pub tenants: Tenants,
    /// How long a person's siblings wait for news of one another.
    pub sibling_publish_ms: Millis,
}

/// The transaction under way, and what its steps need.
#[derive(Debug)]
pub struct Group<'a> {
    /// The transaction.
    pub tx: &'a Transaction<'a>,
    /// What all groups have in common.
    pub rules: &'a Rules,
    /// What is counted. Only things that stay true should the transaction fail are counted within it.
    pub metrics: &'a Metrics,
    /// The time of the whole group.
    pub now: Millis,
    counters: Counters,
}

impl Group<'_> {
    /// A version that was never issued.
    pub fn next_version(&mut self) -> Version {
        self.counters.next_version()
    }

    /// The version issued last.
    #[must_use]
    pub fn version(&self) -> Version {
        self.counters.version()
    }

    /// An epoch that was never issued.
    pub fn next_epoch(&mut self) -> Epoch {
        self.counters.next_epoch()
    }
}

/// Takes all calls into the store, durably, and gives their answers in order.
///
/// # Errors
/// [`StoreError`]; then nothing at all was kept, and no call may be acknowledged.
pub fn commit(
    conn: &mut Connection,
    rules: &Rules,
    metrics: &Metrics,
    now: Millis,
    calls: &[Incoming],
) -> Result<Vec<SyncResponse>, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let calls = &segments::resolve(&tx, now, calls)?;
    let counters = Counters::load(&tx)?;
    let mut group = Group { tx: &tx, rules, metrics, now, counters };
    let (fresh, mut answers) = intake::take(&group, calls)?;
    let changed = fold::fold(&mut group, &fresh)?;
    let linked = link::link(&mut group, &fresh)?;
    publish::note(&mut group, &changed, &linked)?;
    for (call, answer) in calls.iter().zip(&mut answers) {
        publish::acknowledge(&group, &call.applied)?;
        answer.publish = publish::hand_out(&mut group, call.drain)?;
    }
    let pending = publish::pending(&group)?;
    answers.iter_mut().for_each(|answer| answer.pending = pending);
    group.counters.save(&tx)?;
    tx.commit()?;
    Ok(answers)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, page, visitor};
    use causeway_shared::wire::sync::SyncRequest;

    #[test]
    fn a_full_disk_keeps_nothing_of_the_group_and_takes_all_of_it_later() {
        let mut origin = Origin::new();
        let facts: Vec<_> = (0..2_000).map(|n| page(visitor(n), n, NOW)).collect();
        let request = SyncRequest { facts: vec![origin.batch("demo", &facts)], ..SyncRequest::default() };
        let calls = [intake::read(request, &origin.rules.tenants, NOW)];
        let pages: i64 = origin.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let limit = |conn: &Connection, most: i64| {
            conn.pragma_update_and_check(None, "max_page_count", most, |_| Ok(())).unwrap();
        };
        limit(&origin.conn, pages + 10);
        let failed = commit(&mut origin.conn, &origin.rules, &origin.metrics, NOW, &calls).unwrap_err();
        assert!(crate::chain(&failed).contains("full"), "{failed:?}");
        let kept =
            "SELECT (SELECT count(*) FROM facts) + (SELECT count(*) FROM visitors) + (SELECT count(*) FROM outbox)";
        assert_eq!(origin.conn.query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap(), 0);

        limit(&origin.conn, i64::from(u32::MAX / 2));
        let answers = commit(&mut origin.conn, &origin.rules, &origin.metrics, NOW, &calls).unwrap();
        assert_eq!((answers[0].accepted, answers[0].duplicate), (2_000, 0));
    }

    #[test]
    fn field_15_calls_of_one_group_do_not_count_a_fact_twice() {
        let mut origin = Origin::new();
        let facts = vec![origin.batch("demo", &[page(visitor(1), 1, NOW)])];
        let request = SyncRequest { facts, ..SyncRequest::default() };
        let answers = origin.sync_all(vec![request.clone(), request]);
        let counts: Vec<(u64, u64)> = answers.iter().map(|a| (a.accepted, a.duplicate)).collect();
        assert_eq!(counts, [(1, 0), (0, 1)]);
        assert_eq!(origin.profile("demo", visitor(1)).totals().pages, 1);
    }
}
