//! The two writing threads. One appends syncs to the log and acknowledges them; the other folds the log into the store
//! and serves the outbox. Calls wait in bounded channels, and each transaction takes all waiting calls, so that one
//! fsync serves many of them (group commit). The work of each thread is in [`steps`].

pub mod checkpointer;
mod fold_thread;
pub mod steps;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_shared::wire::sync::{FilterReason, SyncResponse};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::base::clock;
use crate::base::metrics::Metrics;
use crate::campaigns::catalogue;
use crate::ingest::backlog::Backlog;
use crate::ingest::intake::{IncomingSync, OutboxRequest};
use crate::ingest::log::FactLog;
use crate::ingest::start_error::{StartError, spawn_thread};
use crate::kv::bulk::lease::{BulkAnswer, BulkRequest};
use crate::pipeline::commit::OutboxBatch;
use crate::store::write_txn::TxnRules;
use crate::store::{StoreCounters, StoreError};
use checkpointer::Checkpointer;
use fold_thread::FoldThread;
use steps::{FoldSteps, IntakeSteps, TakeError};

/// Most calls that wait in a channel; more are refused with a retry.
const WAITING: usize = 64;
/// Number of facts after which an append takes no further sync.
const APPEND_FACTS: usize = 20_000;
/// Time after which a thread without calls looks around, and pause after a failure.
const IDLE: Duration = Duration::from_secs(1);

/// The reason why a call was refused or not completed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// Too many calls or facts wait already.
    #[error("too many facts wait to be folded: try again in a second")]
    Busy,
    /// The transaction failed; nothing of it was stored.
    #[error("the facts were not stored: send them again")]
    Failed,
    /// The origin is stopping.
    #[error("the origin is stopping")]
    Stopping,
    /// The facts are in the log and their fold failed; the next fold takes them.
    #[error("the change is accepted but not folded yet: do not send it again, and read it again in a few seconds")]
    Unfolded,
}

type Reply<T> = oneshot::Sender<Result<T, WriteError>>;

struct AppendCall {
    incoming: IncomingSync,
    reply: Reply<()>,
}

enum FoldTrigger {
    /// The backlog has grown.
    Facts,
    /// A call of the outbox.
    Outbox(OutboxCall),
    /// A call of the bulk publisher.
    Bulk(BulkCall),
}

struct BulkCall {
    request: BulkRequest,
    reply: Reply<BulkAnswer>,
}

struct OutboxCall {
    outbox: OutboxRequest,
    /// The call is answered once the records up to this number are folded.
    after: u64,
    reply: Reply<OutboxBatch>,
}

/// Handle to the writing threads. They end when the last handle is dropped and all waiting calls are done.
#[derive(Debug, Clone)]
pub struct Writer {
    appends: SyncSender<AppendCall>,
    wakes: SyncSender<FoldTrigger>,
    backlog: Backlog,
    shared: Arc<WriterState>,
}

#[derive(Debug)]
struct WriterState {
    metrics: Arc<Metrics>,
    /// Whether the folding thread was notified of new facts and has not looked yet.
    is_notified: AtomicBool,
    log_healthy: AtomicBool,
    store_healthy: AtomicBool,
    /// Number of due outbox entries at the last look.
    pending: AtomicU64,
    /// Newest log record that an erasure waits to have overwritten.
    erasing: AtomicU64,
    /// Records up to this number are deleted from the log and overwritten.
    wiped: AtomicU64,
    /// The catalogue version in force at the last look.
    catalogue: Mutex<Option<String>>,
}

impl WriterState {
    fn new(metrics: Arc<Metrics>, folded: u64, in_force: Option<String>) -> Self {
        Self {
            metrics,
            is_notified: AtomicBool::new(false),
            log_healthy: AtomicBool::new(true),
            store_healthy: AtomicBool::new(true),
            pending: AtomicU64::new(0),
            // An erasure while no process served did not touch the log, so each start overwrites it once.
            erasing: AtomicU64::new(folded),
            wiped: AtomicU64::new(0),
            catalogue: Mutex::new(in_force),
        }
    }

    fn catalogue(&self) -> MutexGuard<'_, Option<String>> {
        self.catalogue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Starts the threads on an open store and its log in `data`. Unfolded records of the log are folded first; readers
    /// see them at once. At most `most_waiting` facts may wait to be folded.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        mut conn: Connection,
        data: &Path,
        rules: Arc<TxnRules>,
        metrics: Arc<Metrics>,
        most_waiting: usize,
    ) -> Result<(Self, Backlog, [JoinHandle<()>; 2]), StartError> {
        let folded = StoreCounters::settled(&mut conn)?.folded();
        let in_force = catalogue::in_force(&conn, &rules.tenants)?;
        let log = FactLog::open(data, folded)?;
        let backlog = Backlog::of(folded, log.unfolded_records(folded, &rules.tenants)?);
        let (appends, to_append) = sync_channel(WAITING);
        let (wakes, to_fold) = sync_channel(WAITING);
        let taking = IntakeSteps::of(log, backlog.clone(), most_waiting);
        let checkpointer = Checkpointer::start(&conn, data)?;
        let folding = FoldSteps::of(conn, backlog.clone(), rules, Arc::clone(&metrics));
        let shared = Arc::new(WriterState::new(metrics, folded, in_force));
        let mut appender = AppendThread { taking, shared: Arc::clone(&shared), wakes: wakes.clone(), wiped: None };
        let folder = FoldThread {
            folding,
            shared: Arc::clone(&shared),
            checkpointer,
            calls: Vec::new(),
            bulk: VecDeque::new(),
            bulk_from: Instant::now(),
            in_vain: None,
        };
        let appending = spawn_thread("log", move || appender.run(&to_append))?;
        let folding = spawn_thread("store", move || folder.run(&to_fold))?;
        Ok((Self { appends, wakes, backlog: backlog.clone(), shared }, backlog, [appending, folding]))
    }

    /// Whether the last transactions of both threads succeeded.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.shared.log_healthy.load(Ordering::Relaxed) && self.shared.store_healthy.load(Ordering::Relaxed)
    }

    /// Whether accepted facts wait to be folded.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Serves a call of the bulk publisher, and answers once it is durable. Blocks the calling thread. While facts wait
    /// to be folded, such calls together take a tenth of the folding thread's time.
    ///
    /// # Errors
    /// [`WriteError`]; then nothing of the call was stored.
    pub fn publish_in_bulk(&self, request: BulkRequest) -> Result<BulkAnswer, WriteError> {
        let (reply, answered) = oneshot::channel();
        send_call(&self.wakes, FoldTrigger::Bulk(BulkCall { request, reply }))?;
        answered.blocking_recv().unwrap_or(Err(WriteError::Stopping))
    }

    /// Takes a call and answers once it is durable: its facts in the log, its acknowledgements in the store.
    ///
    /// # Errors
    /// [`WriteError`]; then the caller must not acknowledge anything.
    pub async fn sync(&self, mut incoming: IncomingSync) -> Result<SyncResponse, WriteError> {
        let metrics = &self.shared.metrics;
        let (outbox, admin) = (std::mem::take(&mut incoming.outbox), incoming.admin);
        let counters = SyncCounters::of(metrics, &incoming);
        let mut answer = incoming.answer();
        let is_durable = !incoming.facts.is_empty();
        if is_durable {
            let (reply, appended) = oneshot::channel();
            send_call(&self.appends, AppendCall { incoming, reply })?;
            appended.await.unwrap_or(Err(WriteError::Stopping))?;
        }
        if !outbox.is_empty() {
            let (reply, handed) = oneshot::channel();
            // The admin API reads its own writes, so it waits for the fold; an edge's drain does not wait for the
            // backlog.
            let after = if admin { self.backlog.newest() } else { 0 };
            let handed = async {
                send_call(&self.wakes, FoldTrigger::Outbox(OutboxCall { outbox, after, reply }))?;
                handed.await.unwrap_or(Err(WriteError::Stopping))
            }
            .await;
            // An edge may repeat its facts harmlessly; an administrator must not repeat a change.
            let handed = handed.map_err(|e| if admin && is_durable { WriteError::Unfolded } else { e });
            OutboxBatch { publish: answer.publish, verify: answer.verify } = handed?;
            metrics.handed_out.inc_by(answer.publish.len() as u64);
        }
        counters.count(metrics);
        if !admin {
            metrics.syncs.inc();
            metrics.last_sync_ms.set(clock::steady_now());
        }
        // Unfolded facts will cause writes.
        let unfolded = u64::from(!self.backlog.is_empty());
        answer.catalogue.clone_from(&self.shared.catalogue());
        answer.pending = self.shared.pending.load(Ordering::Relaxed) + unfolded;
        Ok(answer)
    }
}

fn send_call<T>(to: &SyncSender<T>, call: T) -> Result<(), WriteError> {
    to.try_send(call).map_err(|e| match e {
        TrySendError::Full(_) => WriteError::Busy,
        TrySendError::Disconnected(_) => WriteError::Stopping,
    })
}

/// Counters that a call reports in addition to its facts. They count once the call is accepted; until then the edge
/// reports them again.
struct SyncCounters {
    refused: Vec<String>,
    lost: u64,
    dead: u64,
    filtered: [u64; FilterReason::ALL.len()],
}

impl SyncCounters {
    fn of(metrics: &Metrics, call: &IncomingSync) -> Self {
        // Facts of the admin API do not pass a queue.
        if let Some(oldest) = call.facts.iter().map(|c| c.fact.received).min().filter(|_| !call.admin) {
            metrics.queue_age_ms.set(call.taken.saturating_sub(oldest));
            metrics.queue_aged_ms.set(call.taken);
        }
        Self {
            refused: call.rejected.iter().map(|r| r.code.clone()).collect(),
            lost: call.lost,
            dead: call.dead,
            filtered: call.filtered,
        }
    }

    fn count(&self, metrics: &Metrics) {
        self.refused.iter().for_each(|code| metrics.reject(code));
        metrics.lost.inc_by(self.lost);
        metrics.dead.inc_by(self.dead);
        for (reason, requests) in FilterReason::ALL.into_iter().zip(self.filtered) {
            metrics.filtered.get_or_create(&[("reason", reason.name())]).inc_by(requests);
        }
        if self.lost > 0 || self.dead > 0 {
            tracing::warn!(lost = self.lost, dead = self.dead, "an edge reports losses");
        }
    }
}

fn note_failure(healthy: &AtomicBool, metrics: &Metrics, error: &StoreError) {
    healthy.store(false, Ordering::Relaxed);
    metrics.commit_failures.inc();
    tracing::error!(error = %crate::base::error_chain(error), "a transaction failed and nothing of it was stored");
}

/// The first call and all other waiting calls, up to a transaction's size.
fn gather_calls<T>(first: T, waiting: &Receiver<T>, more: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut calls = vec![first];
    while more(&calls)
        && let Ok(call) = waiting.try_recv()
    {
        calls.push(call);
    }
    calls
}

/// The thread that appends to the log.
struct AppendThread {
    taking: IntakeSteps,
    shared: Arc<WriterState>,
    wakes: SyncSender<FoldTrigger>,
    /// Time of the last attempt to overwrite the log's deleted records.
    wiped: Option<Instant>,
}

impl AppendThread {
    fn run(&mut self, waiting: &Receiver<AppendCall>) {
        loop {
            let facts = |calls: &[AppendCall]| calls.iter().map(|call| call.incoming.facts.len()).sum::<usize>();
            match waiting.recv_timeout(IDLE) {
                Ok(first) => self.append(gather_calls(first, waiting, |calls| facts(calls) < APPEND_FACTS)),
                Err(RecvTimeoutError::Timeout) => self.look_around(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Err(e) = self.taking.checkpoint() {
            tracing::warn!(error = %crate::base::error_chain(&e), "the log's last checkpoint failed; the next start does it");
        }
    }

    fn append(&mut self, calls: Vec<AppendCall>) {
        let (syncs, replies): (Vec<IncomingSync>, Vec<Reply<()>>) =
            calls.into_iter().map(|AppendCall { incoming, reply }| (incoming, reply)).unzip();
        let begun = Instant::now();
        let taken = self.taking.append(syncs);
        let (healthy, metrics) = (&self.shared.log_healthy, &self.shared.metrics);
        if !matches!(taken, Err(TakeError::Busy)) {
            metrics.append.observe(begun.elapsed().as_secs_f64());
        }
        let answer = match taken {
            Ok(()) => {
                healthy.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(TakeError::Busy) => Err(WriteError::Busy),
            Err(TakeError::Store(e)) => {
                note_failure(healthy, metrics, &e);
                Err(WriteError::Failed)
            }
        };
        // A caller that left repeats the same facts, which count once.
        replies.into_iter().for_each(|reply| drop(reply.send(answer.clone())));
        if answer.is_ok() && !self.shared.is_notified.swap(true, Ordering::AcqRel) {
            // A full channel triggers the folding thread too.
            drop(self.wakes.try_send(FoldTrigger::Facts));
        }
        self.wipe();
    }

    /// Overwrites the log's deleted records if an erasure waits for that; after a failed attempt, at most once per
    /// [`IDLE`].
    fn wipe(&mut self) {
        let (erasing, wiped) = (&self.shared.erasing, &self.shared.wiped);
        let (erasing, truncated) = (erasing.load(Ordering::Relaxed), self.taking.truncated());
        let tried = self.wiped.is_some_and(|at| at.elapsed() < IDLE);
        if erasing <= wiped.load(Ordering::Relaxed) || erasing > truncated || tried {
            return;
        }
        self.wiped = Some(Instant::now());
        match self.taking.wipe() {
            Ok(true) => wiped.store(truncated, Ordering::Relaxed),
            Ok(false) => {}
            Err(e) => {
                tracing::warn!(error = %crate::base::error_chain(&e), "the log is not overwritten yet; erasures wait for it")
            }
        }
    }

    /// Deletes folded records. After a failure, its write shows whether the log works again.
    fn look_around(&mut self) {
        let healthy = &self.shared.log_healthy;
        if self.taking.is_due() || !healthy.load(Ordering::Relaxed) {
            match self.taking.truncate() {
                Ok(()) => healthy.store(true, Ordering::Relaxed),
                Err(e) => note_failure(healthy, &self.shared.metrics, &e),
            }
        }
        self.wipe();
    }
}

#[cfg(test)]
mod tests;
