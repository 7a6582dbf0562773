//! The listener: accepts connections, serves HTTP/1.1 on them within time limits and bounds, and stops.
//!
//! - Time: an idle connection, a head, a body and a write each have a limit ([`HttpLimits`]). [`super::router`]
//!   enforces the limit of a body, hyper that of an idle connection, and [`LimitedStream`] those of a head and a write.
//! - Space: [`ConnectionTable`] bounds the connections and chooses the one that is closed for a new one. A connection
//!   has one buffer of a head's size, and a send buffer of [`SEND_BUFFER_BYTES`] in the kernel.
//! - HTTP/2 is not compiled in: a proxy speaks HTTP/1.1 to the origin, and one connection is one request at a time.

mod answer;
mod stream;
mod table;
#[cfg(test)]
pub(super) mod tests;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::http::request::Parts;
use axum::{BoxError, Router};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt as _;

use self::answer::AnswerBody;
use self::stream::LimitedStream;
use self::table::{ConnectionPhase, ConnectionTable, OpenConnection};
use crate::base::config::HttpLimits;
use crate::base::metrics::{ConnectionLimit, Metrics};

/// Send buffer of a connection in bytes; the kernel doubles it for its own records. Without this bound, the kernel
/// would store up to 4 MB per connection for a stalled reader. A reader counts as live after each third of the buffer,
/// which is 1 KB/s under a limit of one minute.
const SEND_BUFFER_BYTES: usize = 128 * 1024;
/// Pause after the system refused a connection, mostly because of too few file descriptors: other connections must
/// close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait of a stop for requests without a proof. The origin answers such requests within milliseconds.
const UNPROVEN_DRAIN: Duration = Duration::from_secs(1);

/// Proof of a request's sender, which comes before any large work for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestProof {
    /// A valid token of the admin side.
    Token,
    /// A head of a sync, signed with a sync key.
    Sync,
}

/// Records the proof of a request until its answer is sent. It has no effect on a request without a listener.
pub(super) fn record_proof(parts: &Parts, proof: RequestProof) {
    if let Some(connection) = parts.extensions.get::<Arc<OpenConnection>>() {
        connection.prove(proof);
    }
}

/// Accepts connections and serves them.
#[derive(Debug)]
pub(crate) struct HttpListener {
    listener: TcpListener,
    limits: HttpLimits,
    metrics: Arc<Metrics>,
    table: Arc<ConnectionTable>,
    /// One permit per connection, until its socket is closed.
    sockets: Arc<Semaphore>,
}

impl HttpListener {
    pub(crate) fn new(listener: TcpListener, limits: HttpLimits, metrics: Arc<Metrics>) -> Self {
        let table = ConnectionTable::new(limits.connections, Arc::clone(&metrics));
        let sockets = Arc::new(Semaphore::new(limits.connections));
        Self { listener, limits, metrics, table: Arc::new(table), sockets }
    }

    /// Serves until `stopping` is true, and then finishes the requests in progress: for at most `drain`, and requests
    /// without a proof for at most [`UNPROVEN_DRAIN`]. Later connections are cut. Returns false if `drain` cut a
    /// connection.
    pub(crate) async fn serve(self, router: Router, mut stopping: watch::Receiver<bool>, drain: Duration) -> bool {
        let watched = stopping.clone();
        tokio::select! {
            never = self.accept_all(&router, &watched) => match never {},
            // An error means that the sender was dropped, which is a stop too.
            _ = stopping.wait_for(|stop| *stop) => {}
        }
        let Self { listener, limits, table, sockets, .. } = self;
        drop(listener);
        // hyper closes idle connections; connections with a part of a head are closed here.
        table.close_where(|connection| connection.phase() == ConnectionPhase::Head);
        let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        let all_closed = async |within| tokio::time::timeout(within, sockets.acquire_many(all)).await.is_ok();
        if all_closed(drain.min(UNPROVEN_DRAIN)).await {
            return true;
        }
        table.close_where(|connection| connection.proof.is_none());
        if all_closed(drain.saturating_sub(UNPROVEN_DRAIN)).await {
            return true;
        }
        table.close_where(|_| true);
        false
    }

    async fn accept_all(&self, router: &Router, stopping: &watch::Receiver<bool>) -> Infallible {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(e) => {
                    self.note_refused(&e).await;
                    continue;
                }
            };
            // The new connection waits a moment for the socket of the closed one.
            let permit = match Arc::clone(&self.sockets).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    self.table.displace();
                    let Ok(permit) = Arc::clone(&self.sockets).acquire_owned().await else { continue };
                    permit
                }
            };
            prepare(&stream);
            tokio::spawn(self.serve_connection(stream, permit, router.clone(), stopping.clone()));
        }
    }

    /// Handles a failed accept. A connection that closed before it was accepted is ignored; other causes pass after
    /// connections have closed.
    async fn note_refused(&self, e: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        tracing::error!(error = %e, "a connection cannot be accepted");
        self.table.displace();
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn serve_connection(
        &self,
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
        router: Router,
        mut stopping: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (limits, metrics) = (self.limits.clone(), Arc::clone(&self.metrics));
        let connection = Arc::new(self.table.open());
        let builder = builder(&limits);
        async move {
            let stream = LimitedStream::new(stream, &limits, Arc::clone(&connection), Arc::clone(&metrics));
            let service = service_fn(|request: Request<Incoming>| answer(router.clone(), &connection, request));
            {
                let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
                let mut is_stopping = false;
                loop {
                    tokio::select! {
                        result = served.as_mut() => {
                            note_end(result, &connection, &metrics);
                            break;
                        }
                        () = connection.closed() => break,
                        _ = stopping.wait_for(|stop| *stop), if !is_stopping => {
                            is_stopping = true;
                            served.as_mut().graceful_shutdown();
                        }
                    }
                }
            }
            // The permit is released after the end of the block above, which closes the socket.
            drop(permit);
        }
    }
}

/// The limits that hyper enforces.
fn builder(limits: &HttpLimits) -> Builder<TokioExecutor> {
    // Otherwise hyper would wait without limit for the first bytes of a connection, to detect the version.
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .keep_alive(true)
        // The time runs from the previous answer to the last byte of the head.
        .header_read_timeout(limits.idle_time)
        // A head over this bound, or with more than 100 headers, is answered with 431. hyper may read up to twice the
        // bound, because it fills the whole capacity of its buffer.
        .max_buf_size(limits.head_bytes);
    builder
}

/// Sends answers without delay, and bounds the kernel's send buffer.
fn prepare(stream: &TcpStream) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(error = %e, "a connection stays with Nagle's delay");
    }
    if let Err(e) = sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES) {
        tracing::debug!(error = %e, "a connection stays with the system's send buffer");
    }
}

/// Answers one request of a connection.
fn answer(
    router: Router,
    connection: &Arc<OpenConnection>,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<axum::http::Response<AnswerBody>, Infallible>> + Send + use<> {
    let under_way = connection.begin_request();
    request.extensions_mut().insert(Arc::clone(connection));
    let answered = router.oneshot(request.map(Body::new));
    async move { answered.await.map(|answer| answer.map(|body| AnswerBody::new(body, under_way))) }
}

/// Counts a connection that hyper closed as idle. [`LimitedStream`] counts its own limits.
fn note_end(result: Result<(), BoxError>, connection: &OpenConnection, metrics: &Metrics) {
    let Err(e) = result else { return };
    if e.downcast_ref().is_some_and(hyper::Error::is_timeout) {
        let is_idle = connection.in_phase_since(ConnectionPhase::Idle).is_some();
        metrics.count_timeout(if is_idle { ConnectionLimit::Idle } else { ConnectionLimit::Head });
    }
    tracing::debug!(error = %e, "a connection ended early");
}
