//! The write transaction of the store, with everything that its steps need: tenants, time, random bits, counters.

use crate::base::clock::{now, random_bytes};
use crate::base::config::Config;
use crate::base::metrics::{Counter, Metrics};
use crate::store::journal::ErasureJournal;
use crate::store::names::GroupNames;
use crate::store::names::events::EventNames;
use crate::store::priority::Priority;
use crate::store::tables::audiences;
use crate::store::tenants::Tenants;
use crate::store::{StoreCounters, StoreError, TenantNo};
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{Epoch, Millis, SnapshotVersion};
use causeway_shared::base::random::Random;
use causeway_shared::facts::segments::SegmentId;
use rusqlite::{Connection, Transaction, TransactionBehavior};

/// Inputs that all transactions of one process share.
#[derive(Debug)]
pub struct TxnRules {
    /// The configured tenants.
    pub tenants: Tenants,
    /// Pause before a change is published to the person's other visitors, in milliseconds.
    pub sibling_publish_ms: u64,
    /// Time until every location of the edge shows a KV write, in milliseconds.
    pub kv_settled_ms: u64,
    /// The journal of erasures, outside the store.
    pub journal: ErasureJournal,
}

impl TxnRules {
    /// The rules of a configuration.
    #[must_use]
    pub fn of(config: &Config, tenants: Tenants, journal: ErasureJournal) -> Self {
        let Config { sibling_publish_ms, kv_settled_ms, .. } = *config;
        Self { tenants, sibling_publish_ms, kv_settled_ms, journal }
    }
}

/// Inputs that a transaction must be given: the time and a random seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxnInputs {
    /// The time of the whole transaction.
    pub now: Millis,
    /// Seed of the transaction's random bits, never used twice.
    pub random: [u8; 32],
}

/// The current transaction and everything that its steps need.
#[derive(Debug)]
pub struct WriteTxn<'a> {
    /// The SQLite transaction.
    pub tx: &'a Transaction<'a>,
    /// Inputs that all transactions of the process share.
    pub rules: &'a TxnRules,
    /// The process's metrics. Inside the transaction, steps count only facts that stay true if it fails.
    pub metrics: &'a Metrics,
    /// The time of the whole transaction.
    pub now: Millis,
    /// The transaction's random bits.
    pub random: Random,
    /// Names of attributes that the facts use.
    pub names: GroupNames,
    /// Names of events that the facts use.
    pub event_names: EventNames,
    /// Segments of materialised audiences, by tenant; pages cannot write them.
    materialised: BTreeMap<TenantNo, BTreeSet<SegmentId>>,
    /// Priority of the keys that the transaction puts in the outbox.
    pub priority: Priority,
    /// Ids beyond the bound of their visitor; added to the metrics after the commit.
    pub ids_over: Counter,
    /// People too large to be linked in this transaction; added to the metrics after the commit.
    pub people_too_large: Counter,
    pub(crate) counters: StoreCounters,
}

impl<'a> WriteTxn<'a> {
    /// Begins the steps of a transaction.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn new(
        tx: &'a Transaction<'a>,
        rules: &'a TxnRules,
        metrics: &'a Metrics,
        inputs: TxnInputs,
    ) -> Result<Self, StoreError> {
        let TxnInputs { now, random } = inputs;
        let (random, names, counters) = (Random::new(random), GroupNames::default(), StoreCounters::load(tx)?);
        let (ids_over, people_too_large, priority) = Default::default();
        Ok(Self {
            tx,
            rules,
            metrics,
            now,
            random,
            names,
            event_names: EventNames::default(),
            materialised: materialized_segments(tx)?,
            priority,
            ids_over,
            people_too_large,
            counters,
        })
    }

    /// Segments of a tenant's materialised audiences.
    #[must_use]
    pub fn materialised_of(&self, tenant: TenantNo) -> &BTreeSet<SegmentId> {
        static NONE: BTreeSet<SegmentId> = BTreeSet::new();
        self.materialised.get(&tenant).unwrap_or(&NONE)
    }

    /// Issues the next version.
    pub fn next_version(&mut self) -> SnapshotVersion {
        self.counters.next_version()
    }

    /// The last issued version.
    #[must_use]
    pub fn version(&self) -> SnapshotVersion {
        self.counters.version()
    }

    /// Issues the next epoch.
    pub fn next_epoch(&mut self) -> Epoch {
        self.counters.next_epoch()
    }
}

/// Runs one transaction, outside the batches of facts and the outbox, and saves its counters.
///
/// # Errors
/// The error of `run`, and [`StoreError`]; then nothing was stored.
pub fn within_txn<T, E: From<StoreError>>(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    given: TxnInputs,
    run: impl FnOnce(&mut WriteTxn<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(StoreError::from)?;
    let mut txn = WriteTxn::new(&tx, rules, metrics, given)?;
    let done = run(&mut txn)?;
    txn.counters.save(&tx)?;
    tx.commit().map_err(StoreError::from)?;
    Ok(done)
}

/// Segments of materialised audiences, by tenant; includes audiences whose members are still being removed.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn materialized_segments(conn: &Connection) -> Result<BTreeMap<TenantNo, BTreeSet<SegmentId>>, StoreError> {
    let mut statement = conn.prepare_cached(audiences::AUDIENCES_SEGMENTS)?;
    let mut rows = statement.query([])?;
    let mut all: BTreeMap<TenantNo, BTreeSet<SegmentId>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        all.entry(TenantNo(row.get(0)?)).or_default().insert(SegmentId(row.get(1)?));
    }
    Ok(all)
}

/// Inputs for a transaction that starts now: the time, and fresh random bits.
///
/// # Errors
/// [`StoreError::Random`].
pub fn draw_inputs() -> Result<TxnInputs, StoreError> {
    Ok(TxnInputs { now: now(), random: random_bytes()? })
}
