//! Facts that are durable in the log and not folded yet, by visitor. Readers join them with the store's data, so that
//! an acknowledged fact counts at once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::fact::Fact;
use rusqlite::Connection;

use crate::ingest::intake::LogRecord;
use crate::ingest::log;
use crate::store::tenants::Tenants;
use crate::store::{StoreCounters, StoreError, TenantNo};

/// The records that wait to be folded. A clone is another handle to the same records.
#[derive(Debug, Clone, Default)]
pub struct Backlog(Arc<Mutex<BacklogState>>);

#[derive(Debug, Default)]
struct BacklogState {
    records: VecDeque<Arc<LogRecord>>,
    of_visitor: HashMap<(TenantNo, VisitorId), VecDeque<FactPosition>>,
    facts: usize,
    weight: usize,
    /// Highest record that is in the store.
    folded: u64,
    /// Values of `folded` at the start of active readers, with their number; such a reader may see an older store.
    readers: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct FactPosition {
    record: Arc<LogRecord>,
    fact: usize,
}

impl Backlog {
    /// The log's records in `data` that the store does not hold.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of_log(data: &Path, store: &Connection, tenants: &Tenants) -> Result<Self, StoreError> {
        let folded = StoreCounters::load(store)?.folded();
        Ok(Self::of(folded, log::unfolded(data, folded, tenants)?))
    }

    /// A backlog of `records`, for a store that holds all records up to `folded`.
    #[must_use]
    pub fn of(folded: u64, records: Vec<LogRecord>) -> Self {
        let backlog = Self::default();
        backlog.fold_to(folded);
        records.into_iter().for_each(|record| backlog.push(record));
        backlog
    }

    fn lock(&self) -> MutexGuard<'_, BacklogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a durable record.
    pub fn push(&self, record: LogRecord) {
        let record = Arc::new(record);
        let mut inner = self.lock();
        for (fact, checked) in record.facts.iter().enumerate() {
            let position = FactPosition { record: Arc::clone(&record), fact };
            inner.of_visitor.entry((checked.tenant, checked.fact.visitor)).or_default().push_back(position);
        }
        inner.facts += record.facts.len();
        inner.weight += record.weight();
        inner.records.push_back(record);
    }

    /// The oldest unfolded records, up to a number of facts; at least one record if there is any.
    #[must_use]
    pub fn next(&self, facts: usize) -> Vec<Arc<LogRecord>> {
        let inner = self.lock();
        let waiting = inner.records.iter().filter(|record| record.seq > inner.folded);
        let mut sum = 0;
        waiting
            .take_while(|record| {
                let before = sum;
                sum += record.facts.len();
                before == 0 || sum <= facts
            })
            .map(Arc::clone)
            .collect()
    }

    /// Number of facts held, including folded facts that a reader may still need.
    #[must_use]
    pub fn facts(&self) -> usize {
        self.lock().facts
    }

    /// Sum of the weights of the held records.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.lock().weight
    }

    /// Whether all records are folded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.records.back().is_none_or(|last| last.seq <= inner.folded)
    }

    /// Number of the newest record that is in the store.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.lock().folded
    }

    /// Number of the newest record, in the store or waiting.
    #[must_use]
    pub fn newest(&self) -> u64 {
        let inner = self.lock();
        inner.records.back().map_or(inner.folded, |last| last.seq.max(inner.folded))
    }

    /// Marks all records up to `seq` as folded.
    pub fn fold_to(&self, seq: u64) {
        let mut inner = self.lock();
        inner.folded = inner.folded.max(seq);
        inner.let_go();
    }

    /// Holds the unfolded records for a reader; called before the reader takes its snapshot of the store.
    #[must_use]
    pub fn reader(&self) -> BacklogReader {
        let mut inner = self.lock();
        let began = inner.folded;
        *inner.readers.entry(began).or_default() += 1;
        BacklogReader { backlog: self.clone(), began }
    }
}

impl BacklogState {
    /// Drops folded records that no reader needs.
    fn let_go(&mut self) {
        let upto = self.readers.keys().next().map_or(self.folded, |oldest| self.folded.min(*oldest));
        while let Some(record) = self.records.pop_front_if(|record| record.seq <= upto) {
            self.facts -= record.facts.len();
            self.weight -= record.weight();
            for checked in &record.facts {
                let owner = (checked.tenant, checked.fact.visitor);
                if let Some(positions) = self.of_visitor.get_mut(&owner) {
                    while positions.pop_front_if(|position| position.record.seq <= upto).is_some() {}
                    if positions.is_empty() {
                        self.of_visitor.remove(&owner);
                    }
                }
            }
        }
    }
}

/// A hold on the records that were unfolded when it was created.
#[derive(Debug)]
pub struct BacklogReader {
    backlog: Backlog,
    began: u64,
}

impl BacklogReader {
    /// A visitor's facts in records after `folded`, in order of arrival, repetitions included.
    #[must_use]
    pub fn facts(&self, tenant: TenantNo, visitor: VisitorId, folded: u64) -> Vec<Fact> {
        let inner = self.backlog.lock();
        let positions = inner.of_visitor.get(&(tenant, visitor)).into_iter().flatten();
        let after = positions.filter(|position| position.record.seq > folded);
        after.filter_map(|position| Some(position.record.facts.get(position.fact)?.fact.clone())).collect()
    }
}

impl Drop for BacklogReader {
    fn drop(&mut self) {
        let mut inner = self.backlog.lock();
        if let Some(count) = inner.readers.get_mut(&self.began) {
            *count -= 1;
            if *count == 0 {
                inner.readers.remove(&self.began);
            }
        }
        inner.let_go();
    }
}
