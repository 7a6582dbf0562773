//! The table of open connections: how many there are, what each is doing, and which is closed for a newcomer.
//!
//! Anybody can open a connection, and what it is for is known only once its head was read. Therefore none is refused:
//! where all are taken, the one that has gone longest without an answer is closed, and the newcomer has its room. A caller
//! that sends its head at once needs a round trip; whoever fills the table must open all its connections again within that
//! time to displace it.
//!
//! A request that proved its sender keeps its connection until it is answered: syncs have room of their own, and so have
//! callers with a token. Each room is bounded, and a fourth of the table is in neither, so that there always is a connection
//! to close. A request that finds its room full is served as one without a proof.
//!
//! There is no bound by address: all callers come from the address of the proxy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::RequestProof;
use crate::base::metrics::Metrics;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// It waits for a request.
    Idle,
    /// Some of a head has come.
    Head,
    /// A request is read, worked on, or answered.
    Request,
}

/// What the table knows of one connection.
#[derive(Debug)]
pub(super) struct ConnectionEntry {
    /// What the request under way proved, where its room was not full.
    pub(super) proof: Option<RequestProof>,
    state: Arc<ConnectionState>,
    is_closing: bool,
}

/// What a connection shares with its entry in the table.
#[derive(Debug)]
struct ConnectionState {
    /// With the time when it began.
    phase: Mutex<(ConnectionPhase, Instant)>,
    /// Wakes the connection's task to close it.
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
    /// By a number that grows: a connection gets a new one with each answer, thus the first is without one for longest.
    by_age: BTreeMap<u64, ConnectionEntry>,
    tokens: usize,
    syncs: usize,
}

/// An open connection; it leaves the table when dropped.
#[derive(Debug)]
pub(super) struct OpenConnection {
    shared: Arc<SharedTable>,
    age: Mutex<u64>,
    state: Arc<ConnectionState>,
}

/// A request under way on a connection, until it is dropped.
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

    /// Adds a connection, which the caller has made room for.
    pub(super) fn open(&self) -> OpenConnection {
        let phase = Mutex::new((ConnectionPhase::Idle, Instant::now()));
        let state = Arc::new(ConnectionState { phase, close: Notify::new() });
        let mut entries = self.shared.entries();
        let age = entries.insert(ConnectionEntry { proof: None, state: Arc::clone(&state), is_closing: false });
        self.shared.metrics.connections.set(entries.by_age.len() as u64);
        drop(entries);
        OpenConnection { shared: Arc::clone(&self.shared), age: Mutex::new(age), state }
    }

    /// Closes the connection that has gone longest without an answer, of those that proved nothing.
    pub(super) fn displace(&self) {
        let mut entries = self.shared.entries();
        let mut unproven = entries.by_age.values_mut().filter(|entry| entry.proof.is_none() && !entry.is_closing);
        if let Some(oldest) = unproven.next() {
            oldest.close();
            self.shared.metrics.connections_displaced.add(1);
        }
    }

    /// Closes all that are so.
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

    /// How many connections a proof keeps open at most.
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

    /// Bytes came: where no request is under way they are a head's.
    pub(super) fn note_read(&self) {
        let mut phase = self.state.phase();
        if phase.0 == ConnectionPhase::Idle {
            *phase = (ConnectionPhase::Head, Instant::now());
        }
    }

    /// Since when it is in that phase; `None` in another.
    pub(super) fn in_phase_since(&self, phase: ConnectionPhase) -> Option<Instant> {
        let (current, since) = *self.state.phase();
        (current == phase).then_some(since)
    }

    /// A whole head came.
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestUnderWay {
        self.state.enter(ConnectionPhase::Request);
        RequestUnderWay(Arc::clone(self))
    }

    /// The request under way proved its sender: the connection is kept until it is answered, where there is room.
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
