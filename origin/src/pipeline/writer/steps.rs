//! The steps of the two writing threads on open files, without threads, channels or a clock. A failed step has stored
//! nothing and may be repeated.

use std::collections::BTreeSet;
use std::sync::Arc;

use causeway_shared::base::ids::Millis;
use rusqlite::{Connection, TransactionBehavior};

use crate::base::metrics::Metrics;
use crate::ingest::backlog::Backlog;
use crate::ingest::intake::{IncomingSync, LogRecord, OutboxRequest};
use crate::ingest::log::FactLog;
use crate::kv::bulk::lease::{self, BulkAnswer, BulkRequest};
use crate::kv::publish;
use crate::pipeline::commit::{self, CommitSummary};
use crate::store::write_txn::{self, TxnInputs, TxnRules};
use crate::store::{self, StoreCounters, StoreError};

/// Most facts that one transaction folds; a record that would exceed it waits for the next one. An edge's drain waits
/// for the current transaction and its own: two seconds each, for facts of new visitors on two cores. Small in tests,
/// which need several transactions.
const FOLD_FACTS: usize = if cfg!(test) { 1_000 } else { 50_000 };

/// Most facts in the log for which it is rewritten: 12 MB, a tenth of a second.
const WIPED_FACTS: usize = 50_000;

/// The reason why syncs were not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// Too many facts wait already.
    #[error("too many facts wait to be folded: try again in a second")]
    Busy,
    /// The log failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Accepts facts: appends syncs to the log; then they are acknowledged and visible to readers.
#[derive(Debug)]
pub struct IntakeSteps {
    log: FactLog,
    backlog: Backlog,
    most_waiting: usize,
    truncated: u64,
}

impl IntakeSteps {
    /// Steps on an open log and its unfolded records. At most `most_waiting` facts may wait to be folded.
    #[must_use]
    pub fn of(log: FactLog, backlog: Backlog, most_waiting: usize) -> Self {
        let truncated = backlog.folded();
        Self { log, backlog, most_waiting, truncated }
    }

    /// Appends one record for each sync in one durable transaction.
    ///
    /// # Errors
    /// [`TakeError`]; then nothing was accepted, and nothing may be acknowledged.
    pub fn append(&mut self, syncs: Vec<IncomingSync>) -> Result<(), TakeError> {
        if self.backlog.weight() >= self.most_waiting {
            return Err(TakeError::Busy);
        }
        let folded = self.backlog.folded();
        let first = self.log.append(&syncs, folded)?;
        self.truncated = folded;
        for (seq, IncomingSync { facts, batches, admin, attribution: said, .. }) in (first..).zip(syncs) {
            let bytes = batches.iter().map(Vec::len).sum();
            self.backlog.push(LogRecord { seq, facts, admin, attribution: said, bytes, in_log: 0, bulk: false });
        }
        Ok(())
    }

    /// Records up to this number are deleted from the log.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Whether the log still holds folded records.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.backlog.folded() > self.truncated
    }

    /// Deletes folded records. It always writes, which shows whether the log works.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn truncate(&mut self) -> Result<(), StoreError> {
        let folded = self.backlog.folded();
        self.log.truncate(folded)?;
        self.truncated = folded;
        Ok(())
    }

    /// Overwrites the log's deleted records. Returns `false` while too many facts wait in it, or another connection
    /// reads it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn wipe(&self) -> Result<bool, StoreError> {
        Ok(self.backlog.weight() <= WIPED_FACTS && self.log.wipe()?)
    }

    /// Moves the write-ahead log into the file.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.log.checkpoint()
    }
}

/// Folds the backlog into the store and serves the outbox.
#[derive(Debug)]
pub struct FoldSteps {
    conn: Connection,
    backlog: Backlog,
    rules: Arc<TxnRules>,
    metrics: Arc<Metrics>,
    /// Latest time of a transaction.
    latest: Millis,
}

impl FoldSteps {
    /// Steps on an open store and the log's unfolded records.
    #[must_use]
    pub fn of(conn: Connection, backlog: Backlog, rules: Arc<TxnRules>, metrics: Arc<Metrics>) -> Self {
        // The clock's earlier times are unknown.
        let latest = Millis::MAX;
        Self { conn, backlog, rules, metrics, latest }
    }

    /// Whether unfolded records exist.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Number of the newest record that the store has at least after the next [`FoldSteps::fold`].
    #[must_use]
    pub fn reach(&self) -> u64 {
        self.backlog.next(FOLD_FACTS).last().map_or_else(|| self.backlog.folded(), |record| record.seq)
    }

    /// Folds the oldest waiting records and serves the calls, in one durable transaction. Returns `None` if there was
    /// nothing to do.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing was stored, and the records keep waiting.
    pub fn fold(&mut self, given: TxnInputs, calls: &[OutboxRequest]) -> Result<Option<CommitSummary>, StoreError> {
        let records = self.backlog.next(FOLD_FACTS);
        if records.is_empty() && calls.is_empty() {
            return Ok(None);
        }
        self.check_clock(given.now)?;
        let mut unreadable = BTreeSet::new();
        let done = loop {
            match commit::commit_group(&mut self.conn, &self.rules, &self.metrics, given, &records, calls) {
                // The row is in quarantine now; the facts of all other rows are folded.
                Err(StoreError::Visitor { row, .. }) if unreadable.insert(row) => {}
                done => break done?,
            }
        };
        let (new, all) = (done.new.iter().sum(), records.iter().map(|r| r.facts.len() as u64).sum::<u64>());
        done.refused.iter().for_each(|code| self.metrics.reject(code));
        self.metrics.accepted.inc_by(new);
        (0..done.erased).for_each(|_| self.metrics.reject("erased"));
        self.metrics.duplicate.inc_by(all.saturating_sub(new + done.erased + done.quarantined));
        if let Some(last) = records.last() {
            self.backlog.fold_to(last.seq);
        }
        Ok(Some(done))
    }

    /// Settles and leases rows of the outbox for the bulk publisher, in one durable transaction.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing was stored.
    pub fn publish(&mut self, given: TxnInputs, request: &BulkRequest) -> Result<BulkAnswer, StoreError> {
        self.check_clock(given.now)?;
        let Self { conn, rules, metrics, .. } = self;
        let answer = write_txn::within_txn(conn, rules, metrics, given, |group| lease::serve_request(group, request))?;
        metrics.applied.inc_by(answer.settled);
        Ok(answer)
    }

    /// Caps the outbox's times if the clock was set back.
    fn check_clock(&mut self, now: Millis) -> Result<(), StoreError> {
        let TxnRules { sibling_publish_ms, kv_settled_ms, .. } = *self.rules;
        if self.latest > now.saturating_add(crate::outbox::queue::STEP_MS)
            || publish::is_ahead(&self.conn, now, sibling_publish_ms, kv_settled_ms)?
        {
            publish::set_back(&self.conn, now, sibling_publish_ms, kv_settled_ms)?;
            self.latest = 0;
        }
        self.latest = self.latest.max(now);
        Ok(())
    }

    /// Records for the waiting erasures that the log is overwritten up to `upto`, once the store's write-ahead log is
    /// empty too. Returns `false` while another connection reads an older state.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn left_log(&self, upto: u64, now: Millis) -> Result<bool, StoreError> {
        if !crate::erasures::registry::waits_for_log(&self.conn, upto)? {
            return Ok(true);
        }
        let empty = store::empty_wal(&self.conn)?;
        if empty {
            crate::erasures::registry::left_log(&self.conn, upto, now)?;
        }
        Ok(empty)
    }

    /// Number of the newest record whose removal from the log an erasure waits for; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn in_log(&self) -> Result<Option<u64>, StoreError> {
        crate::erasures::registry::in_log(&self.conn)
    }

    /// Writes without a change, which shows whether the store works.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn probe(&mut self) -> Result<(), StoreError> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        StoreCounters::load(&tx)?.save(&tx)?;
        Ok(tx.commit()?)
    }

    /// The store, for jobs and for reads of folded data.
    pub fn store(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// Moves the write-ahead log into the file.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        Ok(self.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::ingest::intake;
    use crate::profiles::quarantine;
    use crate::store;
    use crate::testing::{NOW, Origin, fact, page, visitor, withdrawal};
    use crate::views::read::{self, StoreView};
    use causeway_shared::facts::fact::{ErasureScope, FactKind};
    use causeway_shared::facts::segments::{SegmentId, SegmentState};
    use causeway_shared::wire::sync::SyncRequest;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn open(data: &Path, rules: &Arc<TxnRules>, most_waiting: usize) -> (IntakeSteps, FoldSteps, Backlog) {
        let conn = store::open(data).unwrap();
        let folded = StoreCounters::load(&conn).unwrap().folded();
        let log = FactLog::open(data, folded).unwrap();
        let backlog = Backlog::of(folded, log.unfolded_records(folded, &rules.tenants).unwrap());
        let folding = FoldSteps::of(conn, backlog.clone(), Arc::clone(rules), Arc::default());
        (IntakeSteps::of(log, backlog.clone(), most_waiting), folding, backlog)
    }

    #[test]
    fn a_row_that_cannot_be_read_holds_nobody_else_up_and_what_came_for_it_waits_until_it_can() {
        let origin = Origin::new();
        let facts = |n| [page(visitor(1), n, NOW), page(visitor(2), n, NOW)];
        let [first, second, third, last] = [1, 2, 3, 4].map(|n| origin.batch("demo", &facts(n)));
        let [more, gone] =
            [page(visitor(1), 9, NOW), withdrawal(visitor(1), NOW)].map(|one| origin.batch("demo", &[one]));
        let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
        let erasure = origin.batch("demo", &[fact(visitor(1), 77, NOW + 1, what)]);
        let tenant = origin.tenant("demo").no;
        let rules = Arc::new(origin.rules);
        let folder = tempfile::tempdir().unwrap();
        let given = || Ok(TxnInputs { now: NOW + 1, random: [5; 32] });
        let (mut taking, mut folding, _) = open(folder.path(), &rules, 1_000);
        let mut take = |folding: &mut FoldSteps, batch: &Vec<u8>| {
            let request = SyncRequest { facts: vec![batch.clone()], ..SyncRequest::default() };
            taking.append(vec![intake::read(request, &rules.tenants, NOW)]).unwrap();
            let done = folding.fold(given().unwrap(), &[]).unwrap().unwrap();
            (done.new.iter().sum::<u64>(), done.quarantined)
        };
        let pages = |folding: &FoldSteps, v| {
            let view = StoreView::folded(&folding.conn);
            let row = read::load_visitor(&view, tenant, visitor(v)).unwrap().unwrap();
            read::whole(&view, &row, Default::default()).unwrap().totals().pages
        };
        let profile = |folding: &FoldSteps, to: Option<Vec<u8>>| -> Vec<u8> {
            let read = "SELECT profile FROM visitors WHERE visitor = ?1";
            let there = folding.conn.query_row(read, [visitor(1).as_bytes()], |row| row.get(0)).unwrap();
            if let Some(to) = to {
                let put = "UPDATE visitors SET profile = ?2 WHERE visitor = ?1";
                folding.conn.execute(put, (visitor(1).as_bytes(), to)).unwrap();
            }
            there
        };
        assert_eq!(take(&mut folding, &first), (2, 0));
        let sound = profile(&folding, Some(vec![0xff]));
        assert_eq!(take(&mut folding, &second), (1, 1));
        assert_eq!([take(&mut folding, &third), take(&mut folding, &third)], [(1, 1), (0, 0)], "each once");
        assert_eq!(pages(&folding, 2), 3);
        crate::pipeline::take_up::take_up(&mut folding.conn, &rules, given).unwrap();
        assert_eq!(quarantine::count_facts(&folding.conn).unwrap(), 2, "it still cannot be read");
        profile(&folding, Some(sound));
        assert_eq!(take(&mut folding, &last), (1, 1), "the row was not examined again");
        crate::pipeline::take_up::take_up(&mut folding.conn, &rules, given).unwrap();
        assert_eq!(
            (quarantine::count_facts(&folding.conn).unwrap(), pages(&folding, 1), pages(&folding, 2)),
            (0, 4, 4)
        );
        assert_eq!(take(&mut folding, &last), (0, 0));

        // A withdrawal does not wait, and an erasure needs no data of the row.
        profile(&folding, Some(vec![0xff]));
        assert_eq!(take(&mut folding, &more), (0, 1));
        assert_eq!(take(&mut folding, &gone), (0, 1));
        let given = TxnInputs { now: NOW + 900_000, random: [6; 32] };
        let drain = OutboxRequest { drain: 10, ..OutboxRequest::default() };
        let handed = folding.fold(given, &[drain]).unwrap().unwrap().handed.remove(0).publish;
        let of_it = handed.iter().find(|write| write.key == format!("v:demo:{}", visitor(1)));
        assert!(of_it.unwrap().value.as_ref().unwrap().starts_with("t1"), "its tombstone");
        take(&mut folding, &erasure);
        let left = "SELECT (SELECT count(*) FROM unreadable) + (SELECT count(*) FROM quarantined_facts)";
        assert_eq!(folding.conn.query_row(left, [], |row| row.get(0)), Ok(0));
        assert_ne!(profile(&folding, None), [0xff]);
    }

    #[test]
    fn what_was_taken_is_folded_once_by_whoever_opens_the_files_next() {
        let origin = Origin::new();
        let batch = origin.batch("demo", &[page(visitor(1), 1, NOW), page(visitor(1), 2, NOW)]);
        let rules = Arc::new(origin.rules);
        let folder = tempfile::tempdir().unwrap();
        let sync = || {
            let request = SyncRequest { facts: vec![batch.clone()], drain: 10, ..SyncRequest::default() };
            intake::read(request, &rules.tenants, NOW)
        };
        let given = |n| TxnInputs { now: NOW + 1, random: [n; 32] };
        {
            let (mut taking, ..) = open(folder.path(), &rules, 2);
            taking.append(vec![sync()]).unwrap();
            assert!(matches!(taking.append(vec![sync()]), Err(TakeError::Busy)));
        }
        let (mut taking, mut folding, backlog) = open(folder.path(), &rules, 2);
        assert_eq!((backlog.facts(), folding.is_behind(), taking.is_due()), (2, true, false));
        let done = folding.fold(given(1), &[sync().outbox]).unwrap().unwrap();
        assert_eq!((done.new, done.handed[0].publish.len()), (vec![2], 1));
        assert_eq!(folding.fold(given(2), &[]).unwrap(), None);
        let tenant = rules.tenants.by_name("demo").unwrap().no;
        let found = read::load_visitor(&StoreView::folded(folding.store()), tenant, visitor(1)).unwrap();
        assert!(found.is_some() && taking.is_due());
        taking.truncate().unwrap();
        drop((taking, folding));
        let (taking, folding, backlog) = open(folder.path(), &rules, 2);
        assert_eq!((backlog.facts(), folding.is_behind(), taking.is_due()), (0, false, false));
    }

    #[test]
    fn what_another_connection_notes_by_a_clock_that_runs_ahead_is_handed_out_once_that_is_set_back() {
        let segment = FactKind::Segments { writes: vec![(SegmentId(7), SegmentState::Removed)] };
        let erasure = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
        for what in [segment, erasure] {
            let mut origin = Origin::new();
            let logins = [1, 2].map(|v| origin.login(visitor(v), 1, NOW, "ann"));
            origin.send("demo", &logins);
            origin.settle(&mut BTreeMap::new());
            let (data, now) = (origin.data().to_owned(), origin.now);
            let ahead = now + 60 * 86_400_000;
            let said = intake::CheckedFact { tenant: origin.tenant("demo").no, fact: fact(visitor(1), 2, ahead, what) };
            let rules = Arc::new(origin.rules);
            let (_, mut folding, _) = open(&data, &rules, 10);
            let drain = [OutboxRequest { drain: 100, ..OutboxRequest::default() }];
            let given = |now| TxnInputs { now, random: [1; 32] };
            folding.fold(given(now), &drain).unwrap();
            let record = Arc::new(LogRecord::of(vec![said]));
            commit::commit_group(&mut origin.conn, &rules, &origin.metrics, given(ahead), &[record], &[]).unwrap();
            let done = folding.fold(given(now + 1_000), &drain).unwrap().unwrap();
            let handed: BTreeSet<String> = done.handed[0].publish.iter().map(|write| write.key.clone()).collect();
            let keys = [1, 2].map(|v| format!("v:demo:{}", visitor(v)));
            assert!(keys.iter().all(|key| handed.contains(key)), "{handed:?}");
        }
    }

    #[test]
    fn the_same_facts_and_seeds_make_the_same_store() {
        let people = |seed: u8| {
            let mut origin = Origin::new();
            let login = origin.login(visitor(1), 1, NOW, "ann");
            let request = SyncRequest { facts: vec![origin.batch("demo", &[login])], ..SyncRequest::default() };
            let records = [Arc::new(LogRecord::of(intake::read(request, &origin.rules.tenants, NOW).facts))];
            let given = TxnInputs { now: NOW, random: [seed; 32] };
            commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, given, &records, &[]).unwrap();
            origin.conn.query_row("SELECT random FROM people", [], |row| row.get::<_, [u8; 16]>(0)).unwrap()
        };
        assert_eq!(people(1), people(1));
        assert_ne!(people(1), people(2));
    }
}
