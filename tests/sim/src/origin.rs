//! The origin's process: its real steps over a real SQLite on a disk that can be cut, full, or without power. It dies at
//! any write, and starts again from what the disk kept.

use std::sync::Arc;

use causeway_origin::base::metrics::Metrics;
use causeway_origin::campaigns::catalogue;
use causeway_origin::ingest::backlog::Backlog;
use causeway_origin::ingest::intake::{self, OutboxRequest};
use causeway_origin::ingest::log::FactLog;
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
use causeway_origin::store::{self, StoreCounters};
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

/// Facts that may wait to be folded.
const MOST_WAITING: usize = 20_000;

/// A call of `/v1/sync`: three headers and a body.
#[derive(Debug, Clone)]
pub struct SyncCall {
    /// Key id, time and signature.
    pub headers: [String; 3],
    /// CBOR.
    pub body: Vec<u8>,
}

/// What ended a call without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// Nobody listens.
    Down,
    /// The process is to die: a write failed under it.
    Died(String),
    /// It answered with an error, and took nothing.
    Refused(String),
}

/// A process that runs.
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
    /// The journal of erasures has one to itself: no backup holds it and no restore replaces it.
    journal: Disk,
    life: Option<Life>,
    backup: Option<Disk>,
    /// Where a verification is, and what it came to so far.
    walk: VerifyPosition,
    dice: Dice,
    /// How far its clock is behind.
    pub behind_ms: Millis,
    /// The stage of the key rotation in its key file.
    pub stage: usize,
    /// Whether a kill is on its way: an error of the disk is then the process's end.
    pub dying: bool,
}

/// The disk of a store that was never used, made once a process: bringing a schema up to date takes longer than a world's
/// beginning may.
fn template() -> Disk {
    static FRESH: std::sync::OnceLock<Disk> = std::sync::OnceLock::new();
    let fresh = FRESH.get_or_init(|| {
        let disk = Disk::new();
        let given = TxnInputs { now: setup::BEGIN, random: [0; 32] };
        if let Err(error) = open(&disk, &Disk::new(), 0, given) {
            unreachable!("an empty disk takes a store: {error}");
        }
        disk
    });
    fresh.copy()
}

impl Origin {
    /// Running, on an empty store.
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
        };
        origin.start(setup::BEGIN).unwrap_or_else(|error| unreachable!("an empty disk takes a store: {error}"));
        for tenant in setup::TENANTS {
            let applied = origin.apply(setup::BEGIN, tenant, setup::ads(0));
            applied.unwrap_or_else(|error| unreachable!("the catalogue can be used: {error:?}"));
        }
        origin
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.life.is_some()
    }

    /// Starts it on what the disk holds.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn start(&mut self, now: Millis) -> Result<(), StoreError> {
        let given = self.given(now);
        self.life = Some(open(&self.disk, &self.journal, self.stage, given)?);
        Ok(())
    }

    /// Ends it with a disk that fails from one of the next writes on.
    pub fn kill_soon(&mut self) {
        // One of them fails first: a transaction that erases writes to both.
        self.disk.fail_after(Some(self.dice.between(1, 30)));
        self.journal.fail_after(Some(self.dice.between(1, 60)));
        self.dying = true;
    }

    /// The process is gone; with the power, what was not synced is gone too, in part.
    pub fn die(&mut self, power: bool) {
        // What closes its files must not tidy up.
        for disk in [&self.disk, &self.journal] {
            disk.fail_after(Some(1));
        }
        self.life = None;
        // A run that is cut goes on from its row.
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

    /// The process ends in peace.
    pub fn stop(&mut self) {
        self.life = None;
    }

    /// The disk takes only so many bytes more, or any number again.
    pub fn fill_disk(&mut self, more: Option<u64>) {
        let used = self.disk.bytes();
        self.disk.limit(more.map(|more| used + more));
    }

    pub fn clock(&self, now: Millis) -> Millis {
        now.saturating_sub(self.behind_ms)
    }

    fn given(&mut self, now: Millis) -> TxnInputs {
        TxnInputs { now: self.clock(now), random: self.dice.bytes() }
    }

    fn failed(&self, error: &dyn std::error::Error) -> NoAnswer {
        let text = causeway_origin::base::error_chain(error);
        if self.dying { NoAnswer::Died(text) } else { NoAnswer::Refused(text) }
    }

    /// Takes a sync as its HTTP side does: signature, intake, log, outbox.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn sync(&mut self, now: Millis, call: &SyncCall) -> Result<SyncResponse, NoAnswer> {
        let given = self.given(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let [key, time, mac] = &call.headers;
        sync_auth::verify_sync(&life.sync_keys, given.now, &call.body, key, time, mac)
            .map_err(|error| NoAnswer::Refused(error.to_string()))?;
        let request = wire::decode_request(&call.body).map_err(|error| NoAnswer::Refused(error.to_string()))?;
        let mut incoming = intake::read(request, &life.rules.tenants, given.now);
        let outbox = std::mem::take(&mut incoming.outbox);
        let mut answer = incoming.answer();
        if !incoming.facts.is_empty() {
            let taken = life.taking.append(vec![incoming]);
            taken.map_err(|error| self.failed(&error))?;
        }
        if !outbox.is_empty() {
            let handed = self.fold_with(given, &[outbox])?.into_iter().next().unwrap_or_default();
            (answer.publish, answer.verify) = (handed.publish, handed.verify);
        }
        if let Some(life) = &self.life {
            answer.pending = life.pending + u64::from(life.folding.is_behind());
        }
        // It crosses the wire.
        wire::decode_response(&wire::encode_response(&answer)).map_err(|error| NoAnswer::Refused(error.to_string()))
    }

    /// Takes a fact of the admin side.
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

    /// Applies a catalogue, as the command line does.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn apply(&mut self, now: Millis, tenant: &str, document: serde_json::Value) -> Result<(), NoAnswer> {
        let given = self.given(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let Some(known) = life.rules.tenants.by_name(tenant).cloned() else { return Err(NoAnswer::Down) };
        let applied = catalogue::apply(life.folding.store(), &life.rules, given, &known, document, "sim");
        applied.map(drop).map_err(|error| self.failed(&error))
    }

    /// Makes the version before the current one the current one again.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn roll_back(&mut self, now: Millis, tenant: &str) -> Result<(), NoAnswer> {
        let given = self.given(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let Some(known) = life.rules.tenants.by_name(tenant).cloned() else { return Err(NoAnswer::Down) };
        let current = catalogue::current(life.folding.store(), known.no).map_err(|error| self.failed(&error))?;
        let Some(before) = current.filter(|version| *version > 1).map(|version| version - 1) else { return Ok(()) };
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let applied = catalogue::rollback(life.folding.store(), &life.rules, given, &known, before);
        applied.map(drop).map_err(|error| self.failed(&error))
    }

    fn fold_with(&mut self, given: TxnInputs, calls: &[OutboxRequest]) -> Result<Vec<OutboxBatch>, NoAnswer> {
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        match life.folding.fold(given, calls) {
            Ok(None) => Ok(Vec::new()),
            Ok(Some(done)) => {
                life.pending = done.pending;
                Ok(done.handed)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// What its second thread does when it is woken.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn fold(&mut self, now: Millis) -> Result<(), NoAnswer> {
        let given = self.given(now);
        self.fold_with(given, &[])?;
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        if life.taking.is_due() && self.dice.chance(300) {
            let truncated = life.taking.truncate();
            truncated.map_err(|error| self.failed(&error))?;
        }
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let noted = life.folding.left_log(life.taking.truncated(), given.now);
        noted.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    /// Whether records wait to be folded.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.folding.is_behind())
    }

    /// The job `trim`, over everybody.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn trim(&mut self, now: Millis) -> Result<(), NoAnswer> {
        let now = self.clock(now);
        let (mut after, mut trimmed) = (Some(0), TrimReport::default());
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

    /// A step of the job `verify`; the first begins it.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn verify(&mut self, now: Millis) -> Result<VerifyStep, NoAnswer> {
        let given = self.given(now);
        let Some(life) = &mut self.life else { return Err(NoAnswer::Down) };
        let store = life.folding.store();
        let begun = if self.walk == VerifyPosition::default() { verify::forget_reads(store) } else { Ok(()) };
        let metrics = Metrics::default();
        let keep = |_: &Connection, _: &VerifyPosition| Ok(());
        let next =
            begun.and_then(|()| verify::verify_step(store, &life.rules, &metrics, given, &mut self.walk, false, &keep));
        next.map_err(|error| self.failed(&error))
    }

    /// Ends a verification: what it came to.
    pub fn verified(&mut self) -> VerifyReport {
        std::mem::take(&mut self.walk).verified
    }

    /// Keeps a copy of both files, as they lie.
    pub fn back_up(&mut self) {
        self.backup = Some(self.disk.copy());
    }

    /// Brings the copy back, as `causeway restore` does with the process stopped. What came since is sent again by
    /// nobody: the caller has its model forget it. Gives whether there was a copy.
    ///
    /// # Errors
    /// What failed, as text.
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

    /// The store, with everything that waited folded into it.
    pub fn store(&mut self) -> Option<(&Connection, &TxnRules)> {
        let life = self.life.as_mut()?;
        Some((life.folding.store(), &life.rules))
    }
}

/// Opens both files with the product's own code, as `causeway serve` does.
fn open(disk: &Disk, journal: &Disk, stage: usize, given: TxnInputs) -> Result<Life, StoreError> {
    let (edge, keys) = (setup::config(), setup::keys(stage));
    let mut conn = disk.open(causeway_origin::store::data_fault::STORE)?;
    store::prepare_store(&mut conn)?;
    let tenants = Tenants::open(&conn, &edge, keys)?;
    let journal = ErasureJournal::new(journal.open(causeway_origin::store::data_fault::JOURNAL)?)?;
    let rules = Arc::new(TxnRules { tenants, sibling_publish_ms: 60_000, kv_settled_ms: 120_000, journal });
    let folded = StoreCounters::load(&conn)?.folded();
    let log = FactLog::of(disk.open(causeway_origin::store::data_fault::LOG)?, folded)?;
    let unfolded = log.unfolded_records(folded, &rules.tenants)?;
    let in_log = unfolded.last().map_or(folded, |record| record.seq);
    causeway_origin::pipeline::replay::replay_journal(&mut conn, &rules, given, in_log)?;
    let folded = StoreCounters::settled(&mut conn)?.folded();
    let backlog = Backlog::of(folded, unfolded);
    let taking = IntakeSteps::of(log, backlog.clone(), MOST_WAITING);
    let folding = FoldSteps::of(conn, backlog, Arc::clone(&rules), Arc::new(Metrics::default()));
    Ok(Life { taking, folding, rules, sync_keys: keys.sync.clone(), pending: 0 })
}
