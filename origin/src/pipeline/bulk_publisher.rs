//! The bulk publisher: lanes, each of which takes batches of the outbox one after the other: lease, build, send,
//! settle.
//!
//! Several lanes run, so that values are built on all cores and during the calls of other lanes. While facts wait to be
//! folded, one lane works and the others pause, because facts come before publishing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::base::metrics::Metrics;
use crate::base::{clock, error_chain};
use crate::ingest::start_error::{StartError, spawn_thread};
use crate::kv::bulk::client::{BulkClient, BulkOutcome};
use crate::kv::bulk::lease::{BulkLease, BulkRequest, BulkSettlement, FEWEST_KEYS, MOST_KEYS, SettledRow};
use crate::kv::bulk::values::{self, BulkBatch, BulkBody};
use crate::pipeline::writer::Writer;
use crate::store::write_txn::TxnRules;
use crate::store::{self, OpenError};

/// Pause of a lane that found too few due keys, or whose turn has not come.
const IDLE: Duration = Duration::from_secs(1);
/// Pause after a failure of the store or an error of the platform.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// Pause after the platform rejected a call, which an administrator must mend.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Shortest time between two calls. The platform allows 1,200 calls of an account in five minutes, one every 250 ms;
/// the margin is for other programs of the account.
const CALL_GAP: Duration = Duration::from_millis(300);

/// Access to the writing threads; `None` once the origin stops.
pub type WriterAccess = Arc<dyn Fn() -> Option<Writer> + Send + Sync>;

/// The order to stop, and the time of the next call.
#[derive(Debug, Default)]
struct LaneState {
    is_stopping: bool,
    /// Earliest time of the next call of any lane.
    next_call: Option<Instant>,
}

/// Handle to the bulk publisher.
#[derive(Debug, Clone, Default)]
pub struct BulkPublisher {
    state: Arc<(Mutex<LaneState>, Condvar)>,
}

impl BulkPublisher {
    /// Starts the lanes. Their thread ends after [`Self::stop`].
    ///
    /// # Errors
    /// [`StartError::Thread`].
    pub fn start(
        &self,
        data: &Path,
        (client, lanes): (BulkClient, usize),
        rules: Arc<TxnRules>,
        metrics: Arc<Metrics>,
        writer: WriterAccess,
    ) -> Result<JoinHandle<()>, StartError> {
        let lane = PublishLane { publisher: self.clone(), data: data.to_owned(), client, rules, metrics, writer };
        let run = move || {
            std::thread::scope(|scope| {
                for number in 0..lanes {
                    let lane = &lane;
                    scope.spawn(move || lane.run(number == 0));
                }
            });
        };
        spawn_thread("publish", run)
    }

    /// Orders the lanes to stop. A call under way is not waited for: its lease expires, and its keys are written again.
    pub fn stop(&self) {
        self.state().is_stopping = true;
        self.state.1.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a time. Returns `false` if the lanes must stop.
    fn pause(&self, pause: Duration) -> bool {
        let waited = self.state.1.wait_timeout_while(self.state(), pause, |state| !state.is_stopping);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_stopping
    }

    /// Waits for the turn of a call. Returns `false` if the lanes must stop.
    fn await_turn(&self) -> bool {
        let wait = {
            let (mut state, now) = (self.state(), Instant::now());
            let turn = state.next_call.map_or(now, |next| next.max(now));
            state.next_call = Some(turn + CALL_GAP);
            turn - now
        };
        self.pause(wait)
    }

    /// Delays all further calls.
    fn delay_calls(&self, delay: Duration) {
        let (mut state, until) = (self.state(), Instant::now() + delay);
        state.next_call = Some(state.next_call.map_or(until, |next| next.max(until)));
    }
}

/// The work of a lane.
struct PublishLane {
    publisher: BulkPublisher,
    data: PathBuf,
    client: BulkClient,
    rules: Arc<TxnRules>,
    metrics: Arc<Metrics>,
    writer: WriterAccess,
}

/// The next step of a lane.
enum LaneStep {
    /// Another batch may be due.
    Continue,
    /// A pause.
    Pause(Duration),
}

impl PublishLane {
    fn run(&self, is_first: bool) {
        if is_first {
            self.check_namespace();
        }
        let mut reader = None;
        let mut step = LaneStep::Continue;
        loop {
            let pause = match step {
                LaneStep::Continue => Duration::ZERO,
                LaneStep::Pause(pause) => pause,
            };
            if !self.publisher.pause(pause) {
                return;
            }
            let Some(writer) = (self.writer)() else { return };
            step = if is_first || !writer.is_behind() {
                self.publish_batch(&writer, &mut reader)
            } else {
                LaneStep::Pause(IDLE)
            };
        }
    }

    /// Logs at the start whether the platform accepts the account, the namespace and the token.
    fn check_namespace(&self) {
        match self.client.check_namespace() {
            BulkOutcome::Written { .. } | BulkOutcome::Busy { .. } => tracing::info!("keys are published in bulk"),
            BulkOutcome::Refused(refused) => tracing::error!(error = %refused, "keys are not published in bulk"),
            BulkOutcome::Unknown(why) => tracing::warn!(error = why, "the platform's API does not answer"),
        }
    }

    /// Publishes one batch, if enough keys are due.
    fn publish_batch(&self, writer: &Writer, reader: &mut Option<Connection>) -> LaneStep {
        let request = BulkRequest { wanted: MOST_KEYS, fewest: FEWEST_KEYS, ..BulkRequest::default() };
        let lease = match writer.publish_in_bulk(request) {
            Ok(answer) => answer.lease,
            Err(_) => return LaneStep::Pause(FAILURE_PAUSE),
        };
        let Some(lease) = lease else { return LaneStep::Pause(IDLE) };
        let batch = match self.build_batch(reader, &lease) {
            Ok(batch) => batch,
            Err(e) => {
                tracing::error!(error = %error_chain(&e), "a bulk batch cannot be built; its lease expires in a minute");
                *reader = None;
                return LaneStep::Pause(FAILURE_PAUSE);
            }
        };
        let BulkBatch { puts, deletes, unsent: mut rows } = batch;
        let mut step = LaneStep::Continue;
        for (body, is_put) in [(puts, true), (deletes, false)] {
            if body.rows.is_empty() {
                continue;
            }
            let (results, next) = self.send(&lease, &body, is_put);
            rows.extend(results);
            if let LaneStep::Pause(_) = next {
                step = next;
            }
        }
        let settlement = Some(BulkSettlement { version: lease.version, rows });
        match writer.publish_in_bulk(BulkRequest { settlement, ..BulkRequest::default() }) {
            Ok(_) => step,
            Err(_) => LaneStep::Pause(FAILURE_PAUSE),
        }
    }

    fn build_batch(&self, reader: &mut Option<Connection>, lease: &BulkLease) -> Result<BulkBatch, OpenError> {
        let conn = match reader {
            Some(conn) => conn,
            None => reader.insert(store::open_readonly(&self.data)?),
        };
        Ok(values::build_batch(conn, &self.rules.tenants, &self.metrics, lease, clock::now())?)
    }

    /// Sends a call. Returns the results of its rows, and the next step of the lane.
    fn send(&self, lease: &BulkLease, body: &BulkBody, is_put: bool) -> (Vec<SettledRow>, LaneStep) {
        if !self.publisher.await_turn() || !lease.is_sendable(clock::now()) {
            return (body.unsent_rows(), LaneStep::Continue);
        }
        let outcome = if is_put { self.client.put_pairs(&body.json) } else { self.client.delete_keys(&body.json) };
        self.metrics.bulk_calls.get_or_create(&[("outcome", outcome.name())]).inc();
        if matches!(outcome, BulkOutcome::Written { .. } | BulkOutcome::Unknown(_)) {
            self.metrics.handed_out.inc_by(body.rows.len() as u64);
        }
        let step = match &outcome {
            BulkOutcome::Written { unsuccessful } => {
                if !unsuccessful.is_empty() {
                    let keys = unsuccessful.len();
                    tracing::warn!(keys, "the platform did not write all keys of a bulk call; they are written again");
                }
                LaneStep::Continue
            }
            BulkOutcome::Busy { after } => {
                tracing::warn!(seconds = after.as_secs(), "the platform accepts no more bulk calls for now");
                self.publisher.delay_calls(*after);
                LaneStep::Pause(*after)
            }
            BulkOutcome::Refused(refused) => {
                tracing::error!(error = %refused, "keys are not published in bulk");
                self.publisher.delay_calls(REFUSED_PAUSE);
                LaneStep::Pause(REFUSED_PAUSE)
            }
            BulkOutcome::Unknown(why) => {
                tracing::warn!(error = why, "a bulk call has no answer; its keys are written again after their lease");
                LaneStep::Pause(FAILURE_PAUSE)
            }
        };
        (body.settled_rows(&outcome), step)
    }
}
