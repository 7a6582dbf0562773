//! One transaction of the store, over records of the log and calls of the outbox: fold → link → publish.

use crate::campaigns::rules::CampaignRules;
use crate::identity::lookups;
use crate::pipeline::campaign_step::{CampaignChanges, record_campaigns};
use crate::pipeline::commit::link::{LinkChanges, TouchedEvidence};
use crate::privacy::erasure;
use crate::profiles::fold::FoldResult;
use crate::store::write_txn::{TxnInputs, TxnRules, WriteTxn};

use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::wire::sync::{KvWrite, VerifyRequest};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::audience;
use crate::base::metrics::Metrics;
use crate::campaigns::{allocation, catalogue, experiment};
use crate::identity::link;
use crate::ingest::intake::{LogRecord, OutboxRequest};
use crate::kv::publish::{self, Priority};
use crate::kv::verify;
use crate::privacy::audit;
use crate::profiles::{fold, quarantine};
use crate::store::StoreError;

/// The answer to a call of the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutboxBatch {
    /// Keys to write.
    pub publish: Vec<KvWrite>,
    /// Keys to read back.
    pub verify: Vec<VerifyRequest>,
}

/// The result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitSummary {
    /// Facts of each record that were never counted before.
    pub new: Vec<u64>,
    /// Number of facts refused because their visitor is erased.
    pub erased: u64,
    /// Number of facts that wait because their visitor's row or their tenant's catalogue cannot be read.
    pub quarantined: u64,
    /// Reason codes of refused attributes.
    pub refused: Vec<&'static str>,
    /// The answer to each call of the outbox.
    pub handed: Vec<OutboxBatch>,
    /// Number of due and unleased outbox entries, up to a bound, plus keys to read back.
    pub pending: u64,
    /// The catalogue version that came into force last.
    pub catalogue: Option<String>,
}

/// Folds the records into the store and serves the calls, durably. A repeated record changes nothing.
///
/// # Errors
/// [`StoreError`]; then nothing was stored.
pub fn commit_group(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    given: TxnInputs,
    records: &[impl AsRef<LogRecord>],
    calls: &[OutboxRequest],
) -> Result<CommitSummary, StoreError> {
    commit_with(conn, rules, metrics, given, |_| Ok(records), calls, |_| Ok(()))
}

/// A transaction as in [`commit_group`], with records that are made inside it, and a further step `more` at its end.
///
/// # Errors
/// [`StoreError`]; then nothing was stored.
pub fn commit_with<T: AsRef<[R]>, R: AsRef<LogRecord>>(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    given: TxnInputs,
    records: impl FnOnce(&Connection) -> Result<T, StoreError>,
    calls: &[OutboxRequest],
    more: impl FnOnce(&Connection) -> Result<(), StoreError>,
) -> Result<CommitSummary, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = records(&tx).and_then(|records| commit_steps(tx, rules, metrics, given, records.as_ref(), calls, more));
    if let Err(StoreError::Visitor { row, source }) = &done {
        quarantine::quarantine_visitor(conn, *row, source, given.now)?;
    }
    done
}

fn commit_steps(
    tx: Transaction<'_>,
    rules: &TxnRules,
    metrics: &Metrics,
    given: TxnInputs,
    records: &[impl AsRef<LogRecord>],
    calls: &[OutboxRequest],
    more: impl FnOnce(&Connection) -> Result<(), StoreError>,
) -> Result<CommitSummary, StoreError> {
    let mut group = WriteTxn::new(&tx, rules, metrics, given)?;
    if records.iter().any(|record| record.as_ref().bulk) {
        group.priority = Priority::Bulk;
    }
    let campaigns = CampaignRules::load(&group)?;
    let mut folded = fold::fold(&mut group, records, &campaigns.held)?;
    let CampaignChanges { mut bills, tested } = record_campaigns(&group, &campaigns, &mut folded)?;
    bills.before_linking(&group)?;
    let linked = link_facts(&mut group, &folded)?;
    let asked = audit::record_rows(&group, records, &folded.new, &linked)?;
    bills.keep(&group, &campaigns.budgets, &linked)?;
    experiment::person_results::refresh_people(&group, &campaigns.counted, &tested, &linked)?;
    publish::note_changes(&mut group, &folded.changed, &linked)?;
    audience::note(&group, &folded.changed, &linked)?;
    if calls.iter().any(|call| call.drain > 0) {
        allocation::refresh_allocation(&mut group, &campaigns)?;
    }
    let refused = std::mem::take(&mut group.names.refused);
    let (new, erased, quarantined) = (folded.new, folded.erased, folded.quarantined);
    let mut done = CommitSummary { new, refused, erased, quarantined, ..CommitSummary::default() };
    let mut applied = 0;
    for call in calls {
        applied += publish::acknowledge_rows(&group, &call.applied)?;
        verify::note_reads(&group, &call.read)?;
        let publish = publish::hand_out(&mut group, call.drain)?;
        done.handed.push(OutboxBatch { publish, verify: verify::hand_out(&group, call.drain)? });
    }
    done.pending = publish::pending_rows(&group)? + verify::pending_reads(&group)?;
    done.catalogue = catalogue::in_force(&tx, &rules.tenants)?;
    let folded = if planted::is_active(PlantedBug::FoldTwiceAfterACrash) { &[] } else { records };
    group.counters.fold_to(folded.iter().map(|record| record.as_ref().seq).max().unwrap_or(0));
    group.counters.save(&tx)?;
    more(&tx)?;
    let (over, large) = (group.ids_over.get(), group.people_too_large.get());
    let uncounted = group.event_names.uncounted;
    let keep = || rules.journal.keep(&linked.erased, &asked);
    if !records.is_empty() && records.iter().all(|record| record.as_ref().is_by_retention()) {
        // No request is behind these erasures, so the journal must not name a visitor that was not erased after all.
        // The next start adds missing entries.
        tx.commit()?;
        if let Err(e) = keep() {
            tracing::warn!(error = %crate::base::error_chain(&e), "the journal of erasures lacks entries until the next start");
        }
    } else {
        // The journal comes first, so that no erasure is in the store alone; one that is in the journal alone is
        // applied at the next start.
        keep()?;
        if planted::is_active(PlantedBug::PublishBeforeCommit) && !calls.is_empty() {
            drop(tx.commit());
            return Ok(done);
        }
        tx.commit()?;
    }
    metrics.applied.inc_by(applied);
    metrics.ids_over.inc_by(over);
    metrics.people_too_large.inc_by(large);
    metrics.events_uncounted.inc_by(uncounted);
    Ok(done)
}

/// Links the folded facts, removes erased visitors, and writes the lookups that follow.
fn link_facts(group: &mut WriteTxn<'_>, folded: &FoldResult<'_>) -> Result<LinkChanges, StoreError> {
    let (mut linked, mut touched) = (LinkChanges::default(), TouchedEvidence::default());
    let sightings = link::link_visitors(group, &folded.linking, &mut linked, &mut touched)?;
    erasure::apply_erasures(group, &folded.erasing, sightings, &mut linked, &mut touched)?;
    lookups::recompute_lookups(group, &touched, &mut linked)?;
    Ok(linked)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ingest::intake;
    use crate::store::StoreCounters;
    use crate::testing::{NOW, Origin, page, visitor};
    use causeway_shared::wire::sync::SyncRequest;

    #[test]
    fn what_a_transaction_refused_is_counted_once_it_is_durable() {
        let mut origin = Origin::new();
        let most = u32::try_from(causeway_shared::base::limits::VISITOR_IDS).unwrap();
        let seen = |n: u32| {
            let id = origin.id("demo", causeway_shared::base::ids::KindCode(2), &format!("p{n}"));
            crate::testing::alias(visitor(1), n, NOW, id)
        };
        let facts: Vec<_> = (0..=most).map(seen).collect();
        let request = SyncRequest { facts: vec![origin.batch("demo", &facts)], ..SyncRequest::default() };
        let records =
            [Arc::new(LogRecord { seq: 7, ..LogRecord::of(intake::read(request, &origin.rules.tenants, NOW).facts) })];
        for (fails, counted) in [(true, 0), (true, 0), (false, 1)] {
            let given = origin.given();
            let more = |_: &Connection| if fails { Err(rusqlite::Error::InvalidQuery.into()) } else { Ok(()) };
            let Origin { conn, rules, metrics, .. } = &mut origin;
            let done = commit_with(conn, rules, metrics, given, |_| Ok(&records), &[], more);
            assert_eq!((done.is_err(), metrics.ids_over.get()), (fails, counted));
        }
    }

    #[test]
    fn a_full_disk_keeps_nothing_of_the_group_and_takes_all_of_it_later() {
        let mut origin = Origin::new();
        let facts: Vec<_> = (0..2_000).map(|n| page(visitor(n), n, NOW)).collect();
        let request = SyncRequest { facts: vec![origin.batch("demo", &facts)], ..SyncRequest::default() };
        let records =
            [Arc::new(LogRecord { seq: 7, ..LogRecord::of(intake::read(request, &origin.rules.tenants, NOW).facts) })];
        let pages: i64 = origin.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let limit = |conn: &Connection, most: i64| {
            conn.pragma_update_and_check(None, "max_page_count", most, |_| Ok(())).unwrap();
        };
        limit(&origin.conn, pages + 10);
        let given = origin.given();
        let failed = commit_group(&mut origin.conn, &origin.rules, &origin.metrics, given, &records, &[]).unwrap_err();
        assert!(crate::base::error_chain(&failed).contains("full"), "{failed:?}");
        let stored =
            "SELECT (SELECT count(*) FROM fact_ids) + (SELECT count(*) FROM visitors) + (SELECT count(*) FROM outbox)";
        assert_eq!(origin.conn.query_row(stored, [], |row| row.get::<_, i64>(0)).unwrap(), 0);

        limit(&origin.conn, i64::from(u32::MAX / 2));
        assert_eq!(StoreCounters::load(&origin.conn).unwrap().folded(), 0);
        let done = commit_group(&mut origin.conn, &origin.rules, &origin.metrics, given, &records, &[]).unwrap();
        assert_eq!((done.new, StoreCounters::load(&origin.conn).unwrap().folded()), (vec![2_000], 7));
        let again = commit_group(&mut origin.conn, &origin.rules, &origin.metrics, given, &records, &[]).unwrap();
        assert_eq!(again.new, [0], "a record that is folded twice counts once");
    }

    #[test]
    fn calls_of_one_group_do_not_count_a_fact_twice() {
        let mut origin = Origin::new();
        let facts = vec![origin.batch("demo", &[page(visitor(1), 1, NOW)])];
        let request = SyncRequest { facts, ..SyncRequest::default() };
        let answers = origin.sync_all(vec![request.clone(), request]);
        let counts: Vec<(u64, u64)> = answers.iter().map(|a| (a.accepted, a.duplicate)).collect();
        assert_eq!(counts, [(1, 0), (0, 1)]);
        assert_eq!(origin.profile("demo", visitor(1)).totals().pages, 1);
    }
}
