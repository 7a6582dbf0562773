//! The one thread that writes. Calls wait in a bounded channel; each transaction takes all that wait, so
//! that one fsync acknowledges many of them (group commit).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_shared::ids::Millis;
use causeway_shared::wire::sync::SyncResponse;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use crate::clock;
use crate::group::{self, Rules};
use crate::intake::{self, Incoming};
use crate::metrics::Metrics;
use crate::store::{Counters, StoreError};

/// Calls that may wait; more are told to come back.
const WAITING: usize = 64;
/// Facts of one transaction; the call that goes over it is still taken.
const GROUP_FACTS: usize = 20_000;
/// How often the thread looks around when nothing comes, and right after a failure.
const IDLE: Duration = Duration::from_secs(1);
/// Pause between two rounds of forgetting old FactIds, and how many go in one.
const FORGET_EVERY: Duration = Duration::from_secs(10);
const FORGET_MOST: u32 = 20_000;

/// Why a call was not taken.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Too many calls wait already.
    #[error("too many syncs wait: come back in a second")]
    Busy,
    /// The transaction failed; nothing of it was kept.
    #[error("the store did not take the facts: send them again")]
    Failed,
    /// The origin is stopping.
    #[error("the origin is stopping")]
    Stopping,
}

struct Work {
    incoming: Incoming,
    reply: oneshot::Sender<Result<SyncResponse, WriteError>>,
}

/// The way to the thread. The thread ends when the last handle is dropped and all that waited is done.
#[derive(Debug, Clone)]
pub struct Writer {
    calls: SyncSender<Work>,
    healthy: Arc<AtomicBool>,
}

impl Writer {
    /// Starts the thread on an open store.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(
        conn: Connection,
        rules: Arc<Rules>,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (calls, waiting) = sync_channel(WAITING);
        let healthy = Arc::new(AtomicBool::new(true));
        let state = State { conn, rules, metrics, healthy: Arc::clone(&healthy), forgot: Instant::now() };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(move || run(state, &waiting))?;
        Ok((Self { calls, healthy }, thread))
    }

    /// Whether the last transaction was kept.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// Takes a call and answers once it is durable.
    ///
    /// # Errors
    /// [`WriteError`]; then the caller must not acknowledge anything.
    pub async fn sync(&self, incoming: Incoming) -> Result<SyncResponse, WriteError> {
        let (reply, answer) = oneshot::channel();
        self.calls.try_send(Work { incoming, reply }).map_err(|e| match e {
            TrySendError::Full(_) => WriteError::Busy,
            TrySendError::Disconnected(_) => WriteError::Stopping,
        })?;
        answer.await.unwrap_or(Err(WriteError::Stopping))
    }
}

struct State {
    conn: Connection,
    rules: Arc<Rules>,
    metrics: Arc<Metrics>,
    healthy: Arc<AtomicBool>,
    forgot: Instant,
}

fn run(mut state: State, waiting: &Receiver<Work>) {
    let mut looked = Instant::now();
    loop {
        match waiting.recv_timeout(IDLE) {
            Ok(first) => state.commit(gather(first, waiting)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if looked.elapsed() >= IDLE {
            looked = Instant::now();
            state.look_around();
        }
    }
    // What is in the WAL moves into the file, so that a stopped store is one file.
    if let Err(e) = state.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(error = %e, "the last checkpoint failed; the next start does it");
    }
}

/// The first call and all others that wait, up to a transaction's size.
fn gather(first: Work, waiting: &Receiver<Work>) -> Vec<Work> {
    let mut facts = first.incoming.facts.len();
    let mut works = vec![first];
    while facts < GROUP_FACTS
        && let Ok(work) = waiting.try_recv()
    {
        facts += work.incoming.facts.len();
        works.push(work);
    }
    works
}

impl State {
    fn commit(&mut self, works: Vec<Work>) {
        let now = clock::now();
        let begun = Instant::now();
        let (calls, replies): (Vec<Incoming>, Vec<_>) = works.into_iter().map(|w| (w.incoming, w.reply)).unzip();
        let done = group::commit(&mut self.conn, &self.rules, &self.metrics, now, &calls);
        self.metrics.commit.record(begun.elapsed());
        match done {
            Ok(answers) => {
                self.healthy.store(true, Ordering::Relaxed);
                for ((call, answer), reply) in calls.iter().zip(answers).zip(replies) {
                    count(&self.metrics, now, call, &answer);
                    // A caller that left gets the same answer when it comes again: nothing counts twice.
                    drop(reply.send(Ok(answer)));
                }
            }
            Err(e) => {
                self.failed(&e);
                for reply in replies {
                    drop(reply.send(Err(WriteError::Failed)));
                }
            }
        }
    }

    fn failed(&mut self, error: &StoreError) {
        self.healthy.store(false, Ordering::Relaxed);
        self.metrics.commit_failures.add(1);
        tracing::error!(error = %crate::chain(error), "a transaction failed and nothing of it was kept");
    }

    /// Old FactIds, and after a failure a write that shows whether the store is well again.
    fn look_around(&mut self) {
        if !self.healthy.load(Ordering::Relaxed) {
            match probe(&mut self.conn) {
                Ok(()) => self.healthy.store(true, Ordering::Relaxed),
                Err(e) => return self.failed(&e),
            }
        }
        if self.forgot.elapsed() >= FORGET_EVERY {
            match intake::forget(&self.conn, clock::now(), FORGET_MOST) {
                // A full round: there may be more.
                Ok(gone) if gone >= FORGET_MOST as usize => {}
                Ok(_) => self.forgot = Instant::now(),
                Err(e) => self.failed(&e),
            }
        }
    }
}

/// A transaction that changes nothing and still has to be written.
fn probe(conn: &mut Connection) -> Result<(), StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    Counters::load(&tx)?.save(&tx)?;
    Ok(tx.commit()?)
}

fn count(metrics: &Metrics, now: Millis, call: &Incoming, answer: &SyncResponse) {
    metrics.syncs.add(1);
    metrics.accepted.add(answer.accepted);
    metrics.duplicate.add(answer.duplicate);
    call.rejected.iter().for_each(|r| metrics.reject(&r.code));
    metrics.lost.add(call.lost);
    metrics.dead.add(call.dead);
    metrics.handed_out.add(answer.publish.len() as u64);
    metrics.applied.add(call.applied.len() as u64);
    metrics.last_sync_ms.set(now);
    if let Some(oldest) = call.facts.iter().map(|c| c.fact.received).min() {
        metrics.queue_age_ms.set(now.saturating_sub(oldest));
    }
    if call.lost > 0 || call.dead > 0 {
        tracing::warn!(lost = call.lost, dead = call.dead, "an edge reports losses");
    }
}
