//! Facts that are durable in the log and not folded yet, by visitor: readers join them with what the store holds, so
//! that an acknowledged fact is countable at once (S3.10).

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

/// The records waiting to be folded. Cloning gives another handle to the same ones.
#[derive(Debug, Clone, Default)]
pub struct Backlog(Arc<Mutex<BacklogState>>);

#[derive(Debug, Default)]
struct BacklogState {
    records: VecDeque<Arc<LogRecord>>,
    of_visitor: HashMap<(TenantNo, VisitorId), VecDeque<FactPosition>>,
    facts: usize,
    weight: usize,
    /// Records up to here are in the store.
    folded: u64,
    /// What `folded` was when readers that still read began: they may see a store that is older than it is now.
    readers: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct FactPosition {
    record: Arc<LogRecord>,
    fact: usize,
}

impl Backlog {
    /// What the log in `data` holds beyond the store.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of_log(data: &Path, store: &Connection, tenants: &Tenants) -> Result<Self, StoreError> {
        let folded = StoreCounters::load(store)?.folded();
        Ok(Self::of(folded, log::unfolded(data, folded, tenants)?))
    }

    /// Records that a store does not hold, which holds all up to `folded`.
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
            let place = FactPosition { record: Arc::clone(&record), fact };
            inner.of_visitor.entry((checked.tenant, checked.fact.visitor)).or_default().push_back(place);
        }
        inner.facts += record.facts.len();
        inner.weight += record.weight();
        inner.records.push_back(record);
    }

    /// The oldest records that are not folded, up to a number of facts; at least one where there is any.
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

    /// Facts held, folded ones that a reader may still need among them.
    #[must_use]
    pub fn facts(&self) -> usize {
        self.lock().facts
    }

    /// The sum of the weights of the records held.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.lock().weight
    }

    /// Whether all is folded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.records.back().is_none_or(|last| last.seq <= inner.folded)
    }

    /// The newest record that is in the store.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.lock().folded
    }

    /// The newest record there is, in the store or waiting for it.
    #[must_use]
    pub fn newest(&self) -> u64 {
        let inner = self.lock();
        inner.records.back().map_or(inner.folded, |last| last.seq.max(inner.folded))
    }

    /// Says that all records up to this one are in the store.
    pub fn fold_to(&self, seq: u64) {
        let mut inner = self.lock();
        inner.folded = inner.folded.max(seq);
        inner.let_go();
    }

    /// Keeps what is not folded now until the reader is done. To be called before the store's snapshot is taken.
    #[must_use]
    pub fn reader(&self) -> BacklogReader {
        let mut inner = self.lock();
        let began = inner.folded;
        *inner.readers.entry(began).or_default() += 1;
        BacklogReader { backlog: self.clone(), began }
    }
}

impl BacklogState {
    /// Drops what is folded and no reader may miss.
    fn let_go(&mut self) {
        let upto = self.readers.keys().next().map_or(self.folded, |oldest| self.folded.min(*oldest));
        while let Some(record) = self.records.pop_front_if(|record| record.seq <= upto) {
            self.facts -= record.facts.len();
            self.weight -= record.weight();
            for checked in &record.facts {
                let owner = (checked.tenant, checked.fact.visitor);
                if let Some(places) = self.of_visitor.get_mut(&owner) {
                    while places.pop_front_if(|place| place.record.seq <= upto).is_some() {}
                    if places.is_empty() {
                        self.of_visitor.remove(&owner);
                    }
                }
            }
        }
    }
}

/// A hold on what was not folded when it was made.
#[derive(Debug)]
pub struct BacklogReader {
    backlog: Backlog,
    began: u64,
}

impl BacklogReader {
    /// A visitor's facts in records after `folded`, in the order they came, repeats among them.
    #[must_use]
    pub fn facts(&self, tenant: TenantNo, visitor: VisitorId, folded: u64) -> Vec<Fact> {
        let inner = self.backlog.lock();
        let places = inner.of_visitor.get(&(tenant, visitor)).into_iter().flatten();
        let after = places.filter(|place| place.record.seq > folded);
        after.filter_map(|place| Some(place.record.facts.get(place.fact)?.fact.clone())).collect()
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
