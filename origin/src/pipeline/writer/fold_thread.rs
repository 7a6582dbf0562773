//! The thread that folds the log into the store, and serves the outbox and the bulk publisher.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::checkpointer::Checkpointer;
use super::steps::FoldSteps;
use super::{
    BulkCall, FoldTrigger, IDLE, OutboxCall, Reply, WAITING, WriteError, WriterState, gather_calls, note_failure,
};
use crate::base::clock;
use crate::ingest::intake::OutboxRequest;
use crate::pipeline::commit::OutboxBatch;

/// Pause of bulk calls after one of them, in multiples of its duration, while facts wait to be folded.
const BULK_PAUSES: u32 = 9;

/// The thread that folds.
pub(super) struct FoldThread {
    pub(super) folding: FoldSteps,
    pub(super) shared: Arc<WriterState>,
    pub(super) checkpointer: Checkpointer,
    /// Calls that wait for records that are not folded yet.
    pub(super) calls: Vec<OutboxCall>,
    /// Calls of the bulk publisher that wait for their turn.
    pub(super) bulk: VecDeque<BulkCall>,
    /// Earliest time of the next bulk call while facts wait to be folded.
    pub(super) bulk_from: Instant,
    /// Time of the last failed attempt to empty the store's write-ahead log, which another connection was reading.
    pub(super) in_vain: Option<Instant>,
}

impl FoldThread {
    pub(super) fn run(mut self, waiting: &Receiver<FoldTrigger>) {
        // Records that the log held at the start wait for no call.
        self.fold(Vec::new());
        loop {
            match waiting.recv_timeout(if self.is_behind() { Duration::ZERO } else { IDLE }) {
                Ok(first) => self.fold(gather_calls(first, waiting, |calls| calls.len() < WAITING)),
                Err(RecvTimeoutError::Timeout) => self.look_around(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.serve_bulk();
        }
        while self.is_behind() {
            self.fold(Vec::new());
        }
        self.checkpointer.end();
        // Moves the write-ahead log into the file, so that a stopped store is one file.
        if let Err(e) = self.folding.checkpoint() {
            tracing::warn!(error = %crate::base::error_chain(&e), "the last checkpoint failed; the next start does it");
        }
    }

    /// Whether unfolded records exist and the store accepts writes.
    pub(super) fn is_behind(&self) -> bool {
        self.shared.store_healthy.load(Ordering::Relaxed) && self.folding.is_behind()
    }

    pub(super) fn fold(&mut self, wakes: Vec<FoldTrigger>) {
        for wake in wakes {
            match wake {
                FoldTrigger::Facts => {}
                FoldTrigger::Outbox(call) => self.calls.push(call),
                FoldTrigger::Bulk(call) => self.bulk.push_back(call),
            }
        }
        let reach = self.folding.reach();
        let due = self.calls.extract_if(.., |call| call.after <= reach);
        let (calls, replies): (Vec<OutboxRequest>, Vec<Reply<OutboxBatch>>) =
            due.map(|call| (call.outbox, call.reply)).unzip();
        let (shared, begun) = (&self.shared, Instant::now());
        shared.is_notified.store(false, Ordering::Release);
        let done = crate::store::write_txn::draw_inputs().and_then(|given| self.folding.fold(given, &calls));
        if matches!(done, Ok(None)) {
            return;
        }
        shared.metrics.commit.observe(begun.elapsed().as_secs_f64());
        match done {
            Ok(done) => {
                let done = done.unwrap_or_default();
                self.checkpointer.folded(done.new.iter().sum());
                shared.store_healthy.store(true, Ordering::Relaxed);
                shared.pending.store(done.pending, Ordering::Relaxed);
                *shared.catalogue() = done.catalogue;
                replies.into_iter().zip(done.handed).for_each(|(reply, handed)| drop(reply.send(Ok(handed))));
            }
            Err(e) => {
                note_failure(&shared.store_healthy, &shared.metrics, &e);
                let waiting = self.calls.drain(..).map(|call| call.reply);
                replies.into_iter().chain(waiting).for_each(|reply| drop(reply.send(Err(WriteError::Failed))));
            }
        }
        // Not at every fold after a failed attempt, because each attempt would move all folded pages.
        if self.in_vain.is_none_or(|at| at.elapsed() >= IDLE) {
            self.note_wiped();
        }
    }

    /// Serves the waiting calls of the bulk publisher whose turn has come.
    pub(super) fn serve_bulk(&mut self) {
        while self.bulk_from <= Instant::now() || !self.is_behind() {
            let Some(BulkCall { request, reply }) = self.bulk.pop_front() else { return };
            let begun = Instant::now();
            let done = crate::store::write_txn::draw_inputs().and_then(|given| self.folding.publish(given, &request));
            self.bulk_from = Instant::now() + begun.elapsed() * BULK_PAUSES;
            self.shared.metrics.commit.observe(begun.elapsed().as_secs_f64());
            let done = done.map_err(|e| {
                note_failure(&self.shared.store_healthy, &self.shared.metrics, &e);
                WriteError::Failed
            });
            // A publisher that has ended leaves its lease to expire.
            drop(reply.send(done));
        }
    }

    /// After a failure, writes to see whether the store works again; then folds waiting records.
    pub(super) fn look_around(&mut self) {
        if !self.shared.store_healthy.load(Ordering::Relaxed) {
            match self.folding.probe() {
                Ok(()) => self.shared.store_healthy.store(true, Ordering::Relaxed),
                Err(e) => return note_failure(&self.shared.store_healthy, &self.shared.metrics, &e),
            }
        }
        self.note_wiped();
        self.fold(Vec::new());
    }

    /// Records for the waiting erasures how far the log is overwritten, and tells the appending thread how far it must
    /// be.
    pub(super) fn note_wiped(&mut self) {
        let wiped = self.shared.wiped.load(Ordering::Relaxed);
        let left = self.folding.left_log(wiped, clock::now());
        match left.and_then(|left| Ok((left, self.folding.in_log()?))) {
            Ok((left, erasing)) => {
                self.in_vain = (!left).then(Instant::now);
                if let Some(erasing) = erasing {
                    self.shared.erasing.fetch_max(erasing, Ordering::Relaxed);
                }
            }
            Err(e) => note_failure(&self.shared.store_healthy, &self.shared.metrics, &e),
        }
    }
}
