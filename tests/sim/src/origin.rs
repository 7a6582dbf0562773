//! The origin's process: the product's steps over a real SQLite on a disk that may lose writes, be full or lose power.
//! The process may die at any write, and starts again from the data on the disk.

use std::sync::Arc;

use causeway_origin::base::metrics::Metrics;
use causeway_origin::campaigns::catalogue;
use causeway_origin::ingest::backlog::Backlog;
use causeway_origin::ingest::intake::{self, OutboxRequest};
use causeway_origin::ingest::log::FactLog;
use causeway_origin::ingest::start_error::StartError;
use causeway_origin::kv::bulk::lease::{BulkAnswer, BulkLease, BulkRequest};
use causeway_origin::kv::bulk::values::{self, BulkBatch};
use causeway_origin::kv::verify::{self, VerifyPosition, VerifyReport, VerifyStep};
use causeway_origin::maintenance::backup::{self, ReplacedStore};
use causeway_origin::maintenance::trim::{self, TrimReport};
use causeway_origin::pipeline::commit::OutboxBatch;
use causeway_origin::pipeline::writer::steps::{FoldSteps, IntakeSteps};
use causeway_origin::store::StoreError;
use causeway_origin::store::journal::ErasureJournal;
use causeway_origin::store::tenants::Tenants;
use causeway_origin::store::write_txn::TxnInputs;
use causeway_origin::store::write_txn::TxnRules;
use causeway_origin::store::{self, StoreCounters, VisitorRow};
use causeway_shared::base::ids::{Millis, TenantId};
use causeway_shared::facts::fact::Fact;
use causeway_shared::keys::key_ring::KeyRing;
use causeway_shared::keys::sync_auth;
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::sync as wire;
use causeway_shared::wire::sync::SyncResponse;
use rusqlite::Connection;

use crate::dice::Dice;
use crate::disk::Disk;
use crate::setup;

/// Maximum number of facts that wait to be folded.
const MAX_UNFOLDED: usize = 20_000;

/// A call of `/v1/sync`: three headers and a body.
#[derive(Debug, Clone)]
pub struct SyncCall {
    /// Key id, time and signature.
    pub headers: [String; 3],
    /// The body in CBOR.
    pub body: Vec<u8>,
}

/// The reason for which a call got no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// The process does not run.
    Down,
    /// A write failed, and the process must end.
    Died(String),
    /// The process answered with an error and stored nothing.
    Refused(String),
}

/// A running process.
#[derive(Debug)]
struct Life {
    taking: IntakeSteps,
    folding: FoldSteps,
    rules: Arc<TxnRules>,
    sync_keys: KeyRing,
    pending: u64,
}

/// The origin, running or not.
#[derive(Debug)]
pub struct Origin {
    disk: Disk,
    /// The disk of the journal of erasures: no backup contains it and no restore replaces it.
    journal: Disk,
    life: Option<Life>,
    backup: Option<Disk>,
    /// Position and report of the current verification.
    walk: VerifyPosition,
    dice: Dice,
    /// Milliseconds by which the origin's clock is behind.
    pub behind_ms: Millis,
    /// The stage of the key rotation in its key file.
    pub stage: usize,
    /// Whether the process is about to be killed; an error of the disk then ends it.
    pub dying: bool,
    /// Number of starts of the process. A lease of an earlier process is not settled.
    pub starts: u64,
}

/// The disk of an unused store, made once per process, because the schema migration takes longer than the start of a
/// world may.
fn template() -> Disk {
    static FRESH: std::sync::OnceLock<Disk> = std::sync::OnceLock::new();
    let fresh = FRESH.get_or_init(|| {
        let disk = Disk::new();
        let inputs = TxnInputs { now: setup::BEGIN, random: [0; 32] };
        if let Err(error) = open(&disk, &Disk::new(), 0, inputs) {
            unreachable!("a store opens on an empty disk: {error}");
        }
        disk
    });
    fresh.copy()
}

impl Origin {
    /// A running origin with an empty store and a catalogue for each tenant.
    #[must_use]
    pub fn new(dice: Dice) -> Self {
        let mut origin = Self {
            disk: template(),
            journal: Disk::new(),
            life: None,
            backup: None,
            walk: VerifyPosition::default(),
            dice,
            behind_ms: 0,
            stage: 0,
            dying: false,
            starts: 0,
        };
        origin.start(setup::BEGIN).unwrap_or_else(|error| unreachable!("a store opens on an empty disk: {error}"));
        for tenant in setup::TENANTS {
            let applied = origin.apply(setup::BEGIN, tenant, setup::ads(0));
            applied.unwrap_or_else(|error| unreachable!("the catalogue can be used: {error:?}"));
        }
        origin
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.life.is_some()
    }

    /// Starts the process on the data of the disk.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(&mut self, now: Millis) -> Result<(), StartError> {
        let inputs = self.inputs(now);
        self.starts += 1;
        self.life = Some(open(&self.disk, &self.journal, self.stage, inputs)?);
        Ok(())
    }

    /// Lets a disk fail at one of the next writes, which ends the process.
    pub fn kill_soon(&mut self) {
        // Either disk may fail first: a transaction that erases writes to both.
        self.disk.fail_after(Some(self.dice.between(1, 30)));
        self.journal.fail_after(Some(self.dice.between(1, 60)));
        self.dying = true;
    }

    /// Ends the process. With `power`, a part of the unsynced data is lost too.
    pub fn die(&mut self, power: bool) {
        // Closing a file must not clean up.
        for disk in [&self.disk, &self.journal] {
            disk.fail_after(Some(1));
        }
        self.life = None;
        // An interrupted verification continues from its stored row.
        self.walk = VerifyPosition::from(self.walk.cursor, self.verified());
        let dice = &mut self.dice;
        let mut random = |n| dice.below(n);
        for disk in [&self.disk, &self.journal] {
            if power {
                disk.power_loss(&mut random);
            } else {
                disk.crash(&mut random);
            }
        }
        self.dying = false;
    }

    /// Ends the process in an orderly way.
    pub fn stop(&mut self) {
        self.life = None;
    }

    /// Limits the disk to `more` bytes above its current size; `None` removes the limit.
    pub fn fill_disk(&mut self, more: Option<u64>) {
        let used = self.disk.bytes();
        self.disk.limit(more.map(|more| used + more));
    }

    pub fn clock(&self, now: Millis) -> Millis {
        now.saturating_sub(self.behind_ms)
    }

    fn inputs(&mut self, now: Millis) -> TxnInputs {
        TxnInputs { now: self.clock(now), random: self.dice.bytes() }
    }

    fn failed(&self, error: &dyn std::error::Error) -> NoAnswer {
        let text = causeway_origin::base::error_chain(error);
        if self.dying { NoAnswer::Died(text) } else { NoAnswer::Refused(text) }
    }

    /// Handles a sync like the product's HTTP route: signature, intake, log, outbox.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn sync(&mut self, now: Millis, call: &SyncCall) -> Result<SyncResponse, NoAnswer> {
        let inputs = self.inputs(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let [key, time, mac] = &call.headers;
        sync_auth::verify_sync(&life.sync_keys, inputs.now, &call.body, key, time, mac)
            .map_err(|error| NoAnswer::Refused(error.to_string()))?;
        let request = wire::decode_request(&call.body).map_err(|error| NoAnswer::Refused(error.to_string()))?;
        let mut incoming = intake::read(request, &life.rules.tenants, inputs.now);
        let outbox = std::mem::take(&mut incoming.outbox);
        let mut answer = incoming.answer();
        if !incoming.facts.is_empty() {
            let taken = life.taking.append(vec![incoming]);
            taken.map_err(|error| self.failed(&error))?;
        }
        if !outbox.is_empty() {
            let handed = self.fold_with(inputs, &[outbox])?.into_iter().next().unwrap_or_default();
            (answer.publish, answer.verify) = (handed.publish, handed.verify);
        }
        if let Some(life) = &self.life {
            answer.pending = life.pending + u64::from(life.folding.is_behind());
        }
        // The answer passes through its wire format.
        wire::decode_response(&wire::encode_response(&answer)).map_err(|error| NoAnswer::Refused(error.to_string()))
    }

    /// Stores a fact of the admin API.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn admin(&mut self, now: Millis, tenant: &TenantId, fact: &Fact) -> Result<(), NoAnswer> {
        let now = self.clock(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let batch = facts::encode_batch(&FactBatch { tenant: tenant.clone(), facts: vec![fact.clone()] });
        let request = wire::SyncRequest { facts: vec![batch], ..wire::SyncRequest::default() };
        let incoming = intake::read_admins(request, &life.rules.tenants, now);
        if let Some(refused) = incoming.rejected.first() {
            return Err(NoAnswer::Refused(refused.code.clone()));
        }
        let taken = life.taking.append(vec![incoming]);
        taken.map_err(|error| self.failed(&error))
    }

    /// Applies a catalogue, like the command line.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn apply(&mut self, now: Millis, tenant: &str, document: serde_json::Value) -> Result<(), NoAnswer> {
        let inputs = self.inputs(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let Some(known) = life.rules.tenants.by_name(tenant).cloned() else { return Err(NoAnswer::Down) };
        let applied = catalogue::apply(life.folding.store(), &life.rules, inputs, &known, document, "sim");
        applied.map(drop).map_err(|error| self.failed(&error))
    }

    /// Makes the previous version of the catalogue current again.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn roll_back(&mut self, now: Millis, tenant: &str) -> Result<(), NoAnswer> {
        let inputs = self.inputs(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let Some(known) = life.rules.tenants.by_name(tenant).cloned() else { return Err(NoAnswer::Down) };
        let current = catalogue::current(life.folding.store(), known.no).map_err(|error| self.failed(&error))?;
        let Some(before) = current.filter(|version| *version > 1).map(|version| version - 1) else { return Ok(()) };
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let applied = catalogue::rollback(life.folding.store(), &life.rules, inputs, &known, before);
        applied.map(drop).map_err(|error| self.failed(&error))
    }

    fn fold_with(&mut self, inputs: TxnInputs, calls: &[OutboxRequest]) -> Result<Vec<OutboxBatch>, NoAnswer> {
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        match life.folding.fold(inputs, calls) {
            Ok(None) => Ok(Vec::new()),
            Ok(Some(done)) => {
                life.pending = done.pending;
                Ok(done.handed)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Serves a call of the bulk publisher.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn publish_in_bulk(&mut self, now: Millis, request: &BulkRequest) -> Result<BulkAnswer, NoAnswer> {
        let inputs = self.inputs(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        life.folding.publish(inputs, request).map_err(|error| self.failed(&error))
    }

    /// Builds the values of a bulk lease.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn build_bulk(&mut self, now: Millis, lease: &BulkLease) -> Result<BulkBatch, NoAnswer> {
        let now = self.clock(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let (store, tenants) = (life.folding.store(), &life.rules.tenants);
        let built = values::build_batch(store, tenants, &Metrics::default(), lease, now);
        built.map_err(|error| self.failed(&error))
    }

    /// One round of the folding thread.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn fold(&mut self, now: Millis) -> Result<(), NoAnswer> {
        let inputs = self.inputs(now);
        self.fold_with(inputs, &[])?;
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        if life.taking.is_due() && self.dice.chance(300) {
            let truncated = life.taking.truncate();
            truncated.map_err(|error| self.failed(&error))?;
        }
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let noted = life.folding.left_log(life.taking.truncated(), inputs.now);
        noted.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    /// Whether records wait to be folded.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.folding.is_behind())
    }

    /// The job `trim` over all visitors.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn trim(&mut self, now: Millis) -> Result<(), NoAnswer> {
        let now = self.clock(now);
        let (mut after, mut trimmed) = (Some(VisitorRow::default()), TrimReport::default());
        while let Some(row) = after {
            let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
            let some = life.folding.store().transaction().map_err(StoreError::from).and_then(|tx| {
                let some = trim::trim_page(&tx, row, 5, now, &mut trimmed)?;
                tx.commit()?;
                Ok(some.map(|(last, _)| last))
            });
            after = some.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// One step of the job `verify`; the first one begins a verification.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn verify(&mut self, now: Millis) -> Result<VerifyStep, NoAnswer> {
        let inputs = self.inputs(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let store = life.folding.store();
        let begun = if self.walk == VerifyPosition::default() { verify::forget_reads(store) } else { Ok(()) };
        let metrics = Metrics::default();
        let keep = |_: &Connection, _: &VerifyPosition| Ok(());
        let next = begun
            .and_then(|()| verify::verify_step(store, &life.rules, &metrics, inputs, &mut self.walk, false, &keep));
        next.map_err(|error| self.failed(&error))
    }

    /// Ends a verification and returns its report.
    pub fn verified(&mut self) -> VerifyReport {
        std::mem::take(&mut self.walk).verified
    }

    /// Copies the disk with the store and the log.
    pub fn back_up(&mut self) {
        self.backup = Some(self.disk.copy());
    }

    /// Restores the backup like `causeway restore` with a stopped process. Facts that came since are not sent again, so
    /// the caller must remove them from the model. Returns whether there was a backup.
    ///
    /// # Errors
    /// The text of the failure.
    pub fn restore(&mut self, now: Millis) -> Result<bool, String> {
        let Some(copy) = self.backup.take() else { return Ok(false) };
        let text = |error: &dyn std::error::Error| causeway_origin::base::error_chain(error);
        self.life = None;
        let before = {
            let conn = self.disk.open(causeway_origin::store::data_fault::STORE).map_err(|e| text(&e))?;
            ReplacedStore::of_conn(&conn).map_err(|e| text(&e))?
        };
        self.disk = copy;
        self.walk = VerifyPosition::default();
        let mut conn = self.disk.open(causeway_origin::store::data_fault::STORE).map_err(|e| text(&e))?;
        store::prepare_store(&mut conn).map_err(|e| text(&e))?;
        backup::renew_store(&mut conn, &before, self.clock(now)).map_err(|e| text(&e))?;
        drop(conn);
        self.start(now).map_err(|e| text(&e))?;
        Ok(true)
    }

    /// The store, and the rules of its transactions.
    pub fn store(&mut self) -> Option<(&Connection, &TxnRules)> {
        let life = self.life.as_mut()?;
        Some((life.folding.store(), &life.rules))
    }
}

/// Opens the store, the log and the journal with the product's code, like `causeway serve`.
fn open(disk: &Disk, journal: &Disk, stage: usize, inputs: TxnInputs) -> Result<Life, StartError> {
    let (edge, keys) = (setup::config(), setup::keys(stage));
    let mut conn = disk.open(causeway_origin::store::data_fault::STORE).map_err(StoreError::from)?;
    store::prepare_store(&mut conn)?;
    let tenants = Tenants::open(&conn, &edge, keys)?;
    let journal =
        ErasureJournal::new(journal.open(causeway_origin::store::data_fault::JOURNAL).map_err(StoreError::from)?)?;
    let rules = Arc::new(TxnRules { tenants, sibling_publish_ms: 60_000, kv_settled_ms: 120_000, journal });
    let folded = StoreCounters::load(&conn)?.folded();
    let log = FactLog::of(disk.open(causeway_origin::store::data_fault::LOG).map_err(StoreError::from)?, folded)?;
    let unfolded = log.unfolded_records(folded, &rules.tenants)?;
    let in_log = unfolded.last().map_or(folded, |record| record.seq);
    causeway_origin::pipeline::replay::replay_journal(&mut conn, &rules, inputs, in_log)?;
    let folded = StoreCounters::settled(&mut conn)?.folded();
    let backlog = Backlog::of(folded, unfolded);
    let taking = IntakeSteps::of(log, backlog.clone(), MAX_UNFOLDED);
    let folding = FoldSteps::of(conn, backlog, Arc::clone(&rules), Arc::new(Metrics::default()));
    Ok(Life { taking, folding, rules, sync_keys: keys.sync.clone(), pending: 0 })
}
