//! The origin and the KV of a market: the origin's transactions on a store in a temporary folder, and a map as the KV.

use std::collections::HashMap;
use std::sync::Arc;

use causeway_edge::{Engine, FactsMessage};
use causeway_origin::base::metrics::Metrics;
use causeway_origin::campaigns::catalogue;
use causeway_origin::campaigns::train::Outcome;
use causeway_origin::campaigns::train::{self, Options};
use causeway_origin::ingest::intake::{self, LogRecord, OutboxRequest};
use causeway_origin::pipeline::commit;
use causeway_origin::store;
use causeway_origin::store::journal::ErasureJournal;
use causeway_origin::store::tenants::{TenantContext, Tenants};
use causeway_origin::store::write_txn::TxnInputs;
use causeway_origin::store::write_txn::TxnRules;
use causeway_shared::base::ids::{Millis, TenantId};
use causeway_shared::base::limits;
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::settings::config::EdgeConfig;
use causeway_shared::wire::sync::SyncRequest;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::dice::Dice;

/// Time at which a market begins: a Monday at midnight, UTC.
pub const BEGIN: Millis = 1_800_230_400_000;
/// The only tenant.
pub const TENANT: &str = "market";
/// Number of facts in one transaction.
const FOLD: usize = 20_000;

/// The error of a simulation.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The configuration of edge and origin.
#[must_use]
pub fn config() -> Value {
    json!({ "tenant": [{
        "name": TENANT, "hosts": ["market.example"], "no_signal": "allow", "member_proof": "trusted",
        "kinds": [{ "name": "member", "code": 1, "unique": true }],
    }] })
}

/// The keys of edge and origin.
#[must_use]
pub fn keys() -> KeySet {
    let ring = |seed: u8| {
        let secret = std::array::from_fn::<u8, 32, _>(|i| u8::try_from(i * 7 % 256).unwrap_or_default() ^ seed);
        KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret.into() }])
    };
    let tenant = TenantKeys { cookie: ring(1), alternate: ring(2), proof: Vec::new(), ..TenantKeys::default() };
    KeySet { sync: ring(3), explain: None, tenants: [(TENANT.to_owned(), tenant)].into() }
}

/// The engine of a new isolate.
///
/// # Errors
/// The configuration is refused.
pub fn engine() -> Result<Engine, Failed> {
    Ok(Engine::configure(&config().to_string(), &serde_json::to_string(&keys())?)?)
}

/// The origin and its KV.
pub struct World {
    /// The current time.
    pub now: Millis,
    /// The values of the KV by key.
    pub kv: HashMap<String, String>,
    conn: Connection,
    rules: TxnRules,
    tenant: TenantContext,
    metrics: Metrics,
    dice: Dice,
    queued: Vec<Vec<u8>>,
    folder: tempfile::TempDir,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a market at {} with {} keys", self.now, self.kv.len())
    }
}

impl World {
    /// An empty world.
    ///
    /// # Errors
    /// The store cannot be created.
    pub fn new(seed: u64) -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let edge: EdgeConfig = serde_json::from_value(config())?;
        let conn = store::open(folder.path())?;
        // Durability is off, because a lost market can be simulated again.
        conn.pragma_update(None, "synchronous", "OFF")?;
        let tenants = Tenants::open(&conn, &edge, &keys())?;
        let tenant = tenants.by_name(TENANT).ok_or("the tenant is configured")?.clone();
        let rules = TxnRules {
            tenants,
            sibling_publish_ms: 60_000,
            kv_settled_ms: 120_000,
            journal: ErasureJournal::open(folder.path())?,
        };
        let (metrics, dice, now) = (Metrics::default(), Dice::new(seed), BEGIN);
        Ok(Self { now, kv: HashMap::new(), conn, rules, tenant, metrics, dice, queued: Vec::new(), folder })
    }

    /// The tenant's id.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant.id
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> (&Connection, &TenantContext) {
        (&self.conn, &self.tenant)
    }

    fn given(&mut self) -> TxnInputs {
        TxnInputs { now: self.now, random: self.dice.seed() }
    }

    /// Applies a catalogue.
    ///
    /// # Errors
    /// The catalogue is refused, or the store failed.
    pub fn apply(&mut self, document: Value) -> Result<(), Failed> {
        let (given, tenant) = (self.given(), self.tenant.clone());
        catalogue::apply(&mut self.conn, &self.rules, given, &tenant, document, "market")?;
        Ok(())
    }

    /// Queues facts of an answer for the next [`Self::sync`].
    pub fn queue_facts(&mut self, message: FactsMessage) {
        self.queued.push(message.bytes);
    }

    /// Folds the queued facts.
    ///
    /// # Errors
    /// The store failed.
    pub fn sync(&mut self) -> Result<(), Failed> {
        let queued = std::mem::take(&mut self.queued);
        for facts in queued.chunks(FOLD / 4) {
            let request = SyncRequest { facts: facts.to_vec(), ..SyncRequest::default() };
            let incoming = intake::read(request, &self.rules.tenants, self.now);
            if let Some(refused) = incoming.rejected.first() {
                return Err(format!("the origin refuses a fact: {refused:?}").into());
            }
            let records = [Arc::new(LogRecord { admin: incoming.admin, ..LogRecord::of(incoming.facts) })];
            let given = self.given();
            commit::commit_group(&mut self.conn, &self.rules, &self.metrics, given, &records, &[])?;
        }
        Ok(())
    }

    /// Writes all due keys to the KV.
    ///
    /// # Errors
    /// The store failed.
    pub fn publish(&mut self) -> Result<(), Failed> {
        let none: [Arc<LogRecord>; 0] = [];
        let mut applied = Vec::new();
        loop {
            let drain = u16::try_from(limits::SYNC_PUBLISH)?;
            let (given, call) = (self.given(), OutboxRequest { applied, drain, ..OutboxRequest::default() });
            let done = commit::commit_group(&mut self.conn, &self.rules, &self.metrics, given, &none, &[call])?;
            let writes = done.handed.into_iter().next().unwrap_or_default().publish;
            if writes.is_empty() {
                return Ok(());
            }
            applied = writes.iter().map(|write| write.entry).collect();
            for write in writes {
                match write.value {
                    Some(value) => drop(self.kv.insert(write.key, value)),
                    None => drop(self.kv.remove(&write.key)),
                }
            }
        }
    }

    /// Trains a model, and publishes it if it is better than the base rate.
    ///
    /// # Errors
    /// The store failed.
    pub fn train(&mut self) -> Result<(), Failed> {
        let trained = train::run(self.folder.path(), self.tenant.no, self.now, &Options::default(), &|_, _| Ok(()))?;
        if let Outcome::Trained(bytes, report) = &trained {
            let (given, no) = (self.given(), self.tenant.no);
            train::keep(&mut self.conn, &self.rules, given, no, bytes, report)?;
        }
        Ok(())
    }
}
