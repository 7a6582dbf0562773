//! The table of open connections: their number, their phases, and the choice of the one that is closed for a new one.
//!
//! A stranger can open a connection, and its purpose is unknown until its head was read. Therefore no connection is
//! refused: where the table is full, the connection with the longest time without an answer is closed for the new one.
//! A caller that sends its head at once needs one round trip; an attacker who fills the table must open all connections
//! again within that time to displace the caller.
//!
//! A request with a proof of its sender keeps its connection until the answer is sent. Syncs have a share of the table,
//! and callers with a token have another. A fourth of the table is in no share, so that there always is a connection to
//! close. A request whose share is full is served like one without a proof.
//!
//! There is no bound by address, because all callers have the address of the proxy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::RequestProof;
use crate::base::metrics::Metrics;

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// The connection waits for a request.
    Idle,
    /// A part of a head has arrived.
    Head,
    /// A request is read, processed or answered.
    Request,
}

/// Entry of a connection in the table.
#[derive(Debug)]
pub(super) struct ConnectionEntry {
    /// Proof of the request in progress; `None` without one, or where its share was full.
    pub(super) proof: Option<RequestProof>,
    state: Arc<ConnectionState>,
    is_closing: bool,
}

/// State that a connection shares with its entry.
#[derive(Debug)]
struct ConnectionState {
    /// The phase and its start.
    phase: Mutex<(ConnectionPhase, Instant)>,
    /// Wakes the task of the connection to close it.
    close: Notify,
}

/// All open connections.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    shared: Arc<SharedTable>,
}

#[derive(Debug)]
struct SharedTable {
    connections: usize,
    metrics: Arc<Metrics>,
    entries: Mutex<ConnectionEntries>,
}

#[derive(Debug, Default)]
struct ConnectionEntries {
    next: u64,
    /// Entries by a growing number. A connection gets a new number with each answer, so that the first entry has the
    /// longest time without an answer.
    by_age: BTreeMap<u64, ConnectionEntry>,
    tokens: usize,
    syncs: usize,
}

/// An open connection. It leaves the table when it is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection {
    shared: Arc<SharedTable>,
    age: Mutex<u64>,
    state: Arc<ConnectionState>,
}

/// A request in progress on a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestUnderWay(Arc<OpenConnection>);

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

impl ConnectionTable {
    pub(super) fn new(connections: usize, metrics: Arc<Metrics>) -> Self {
        Self { shared: Arc::new(SharedTable { connections, metrics, entries: Mutex::default() }) }
    }

    /// Adds a connection. The caller has made room for it.
    pub(super) fn open(&self) -> OpenConnection {
        let phase = Mutex::new((ConnectionPhase::Idle, Instant::now()));
        let state = Arc::new(ConnectionState { phase, close: Notify::new() });
        let mut entries = self.shared.entries();
        let age = entries.insert(ConnectionEntry { proof: None, state: Arc::clone(&state), is_closing: false });
        self.shared.metrics.connections.set(entries.by_age.len() as u64);
        drop(entries);
        OpenConnection { shared: Arc::clone(&self.shared), age: Mutex::new(age), state }
    }

    /// Closes the connection without a proof that has the longest time without an answer.
    pub(super) fn displace(&self) {
        let mut entries = self.shared.entries();
        let mut unproven = entries.by_age.values_mut().filter(|entry| entry.proof.is_none() && !entry.is_closing);
        if let Some(oldest) = unproven.next() {
            oldest.close();
            self.shared.metrics.connections_displaced.inc();
        }
    }

    /// Closes all connections that match.
    pub(super) fn close_where(&self, is_so: impl Fn(&ConnectionEntry) -> bool) {
        let mut entries = self.shared.entries();
        entries.by_age.values_mut().filter(|entry| is_so(entry)).for_each(ConnectionEntry::close);
    }
}

impl ConnectionEntry {
    pub(super) fn phase(&self) -> ConnectionPhase {
        self.state.phase().0
    }

    fn close(&mut self) {
        self.is_closing = true;
        self.state.close.notify_one();
    }
}

impl ConnectionState {
    fn phase(&self) -> MutexGuard<'_, (ConnectionPhase, Instant)> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: ConnectionPhase) {
        *self.phase() = (phase, Instant::now());
    }
}

impl SharedTable {
    fn entries(&self) -> MutexGuard<'_, ConnectionEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Share of a proof in the table: most connections that it keeps open.
    fn most(&self, proof: RequestProof) -> usize {
        match proof {
            RequestProof::Token => self.connections / 2,
            RequestProof::Sync => self.connections / 4,
        }
    }
}

impl ConnectionEntries {
    fn insert(&mut self, entry: ConnectionEntry) -> u64 {
        let age = self.next;
        self.next += 1;
        self.by_age.insert(age, entry);
        age
    }

    fn remove(&mut self, age: u64) -> Option<ConnectionEntry> {
        let mut entry = self.by_age.remove(&age)?;
        if let Some(proof) = entry.proof.take() {
            *self.proven(proof) -= 1;
        }
        Some(entry)
    }

    fn proven(&mut self, proof: RequestProof) -> &mut usize {
        match proof {
            RequestProof::Token => &mut self.tokens,
            RequestProof::Sync => &mut self.syncs,
        }
    }
}

impl OpenConnection {
    /// Waits until the table wants the connection closed.
    pub(super) async fn closed(&self) {
        self.state.close.notified().await;
    }

    /// Notes that bytes arrived. Without a request in progress they begin a head.
    pub(super) fn note_read(&self) {
        let mut phase = self.state.phase();
        if phase.0 == ConnectionPhase::Idle {
            *phase = (ConnectionPhase::Head, Instant::now());
        }
    }

    /// Start of the phase; `None` in another phase.
    pub(super) fn in_phase_since(&self, phase: ConnectionPhase) -> Option<Instant> {
        let (current, since) = *self.state.phase();
        (current == phase).then_some(since)
    }

    /// Notes that a whole head arrived.
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestUnderWay {
        self.state.enter(ConnectionPhase::Request);
        RequestUnderWay(Arc::clone(self))
    }

    /// Notes the proof of the request in progress. The connection stays open until the answer, where the share has
    /// room.
    pub(super) fn prove(&self, proof: RequestProof) {
        let mut entries = self.shared.entries();
        let has_room = *entries.proven(proof) < self.shared.most(proof);
        let unproven = entries.by_age.get_mut(&self.age()).filter(|entry| entry.proof.is_none() && has_room);
        if let Some(entry) = unproven {
            entry.proof = Some(proof);
            *entries.proven(proof) += 1;
        }
    }

    fn end_request(&self) {
        let mut entries = self.shared.entries();
        let mut age = self.age.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.remove(*age) {
            *age = entries.insert(entry);
        }
        self.state.enter(ConnectionPhase::Idle);
    }

    fn age(&self) -> u64 {
        *self.age.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut entries = self.shared.entries();
        entries.remove(self.age());
        self.shared.metrics.connections.set(entries.by_age.len() as u64);
    }
}
