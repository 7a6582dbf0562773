//! The write transaction of the store, with what every step in it needs: tenants, time, random bits, counters.

use crate::base::clock::{now, random_bytes};
use crate::base::config::Config;
use crate::base::metrics::{Counter, Metrics};
use crate::store::journal::ErasureJournal;
use crate::store::names::GroupNames;
use crate::store::names::events::EventNames;
use crate::store::priority::Priority;
use crate::store::tenants::Tenants;
use crate::store::{StoreCounters, StoreError, TenantNo};
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{Epoch, Millis, SnapshotVersion};
use causeway_shared::base::random::Random;
use causeway_shared::facts::segments::SegmentId;
use rusqlite::{Connection, Transaction, TransactionBehavior};

/// What all groups of one process have in common.
#[derive(Debug)]
pub struct TxnRules {
    /// The tenants served.
    pub tenants: Tenants,
    /// How long a person's siblings wait for news of one another.
    pub sibling_publish_ms: Millis,
    /// Until every location of the edge shows what the KV took, in milliseconds.
    pub kv_settled_ms: Millis,
    /// What was erased, outside the store.
    pub journal: ErasureJournal,
}

impl TxnRules {
    /// As a configuration says.
    #[must_use]
    pub fn of(config: &Config, tenants: Tenants, journal: ErasureJournal) -> Self {
        let Config { sibling_publish_ms, kv_settled_ms, .. } = *config;
        Self { tenants, sibling_publish_ms, kv_settled_ms, journal }
    }
}

/// What a transaction does not find by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxnInputs {
    /// The time of all that it does.
    pub now: Millis,
    /// The seed of its random bits, never given to another.
    pub random: [u8; 32],
}

/// The transaction under way, and what its steps need.
#[derive(Debug)]
pub struct WriteTxn<'a> {
    /// The transaction.
    pub tx: &'a Transaction<'a>,
    /// What all groups have in common.
    pub rules: &'a TxnRules,
    /// What is counted. Only things that stay true should the transaction fail are counted within it.
    pub metrics: &'a Metrics,
    /// The time of the whole group.
    pub now: Millis,
    /// Its random bits.
    pub random: Random,
    /// Names of attributes that its facts use.
    pub names: GroupNames,
    /// Names of events that its facts use.
    pub event_names: EventNames,
    /// Segments that audiences fill, by tenant: pages cannot write them.
    materialised: BTreeMap<TenantNo, BTreeSet<SegmentId>>,
    /// How urgent the keys are that it puts in the outbox.
    pub rank: Priority,
    /// Ids that were one too many for their visitor; as below for the metrics, once the transaction is durable.
    pub ids_over: Counter,
    /// People that are too large to be linked at once.
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
        given: TxnInputs,
    ) -> Result<Self, StoreError> {
        let TxnInputs { now, random } = given;
        let (random, names, counters) = (Random::new(random), GroupNames::default(), StoreCounters::load(tx)?);
        let (ids_over, people_too_large, rank) = Default::default();
        Ok(Self {
            tx,
            rules,
            metrics,
            now,
            random,
            names,
            event_names: EventNames::default(),
            materialised: materialized_segments(tx)?,
            rank,
            ids_over,
            people_too_large,
            counters,
        })
    }

    /// The segments of a tenant that audiences fill.
    #[must_use]
    pub fn materialised_of(&self, tenant: TenantNo) -> &BTreeSet<SegmentId> {
        static NONE: BTreeSet<SegmentId> = BTreeSet::new();
        self.materialised.get(&tenant).unwrap_or(&NONE)
    }

    /// A version that was never issued.
    pub fn next_version(&mut self) -> SnapshotVersion {
        self.counters.next_version()
    }

    /// The version issued last.
    #[must_use]
    pub fn version(&self) -> SnapshotVersion {
        self.counters.version()
    }

    /// An epoch that was never issued.
    pub fn next_epoch(&mut self) -> Epoch {
        self.counters.next_epoch()
    }
}

/// One transaction of something else than facts and the outbox, with all that a group's steps need.
///
/// # Errors
/// What `run` gives, and [`StoreError`]; then nothing at all was kept.
pub fn within_txn<T, E: From<StoreError>>(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    given: TxnInputs,
    run: impl FnOnce(&mut WriteTxn<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(StoreError::from)?;
    let mut group = WriteTxn::new(&tx, rules, metrics, given)?;
    let done = run(&mut group)?;
    group.counters.save(&tx)?;
    tx.commit().map_err(StoreError::from)?;
    Ok(done)
}

/// The segments that audiences fill, by tenant; also those whose members are still to leave.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn materialized_segments(conn: &Connection) -> Result<BTreeMap<TenantNo, BTreeSet<SegmentId>>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT tenant, segment FROM audiences")?;
    let mut rows = statement.query([])?;
    let mut all: BTreeMap<TenantNo, BTreeSet<SegmentId>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        all.entry(TenantNo(row.get(0)?)).or_default().insert(SegmentId(row.get(1)?));
    }
    Ok(all)
}

/// What a transaction is given now: the time, and random bits that nobody else has.
///
/// # Errors
/// [`StoreError::Random`].
pub fn draw_inputs() -> Result<TxnInputs, StoreError> {
    Ok(TxnInputs { now: now(), random: random_bytes()? })
}
