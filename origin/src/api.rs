//! The HTTP side of the origin: its state, its router, and the steps that all routes share.

pub mod serve;
pub mod tokens;

mod admission;
mod attributes;
mod audience;
mod audiences;
mod audit;
mod catalogue;
mod counts;
mod dashboard;
mod erase;
mod error;
mod events;
mod experiments;
mod health;
mod jobs;
mod links;
pub(crate) mod listener;
mod openapi;
mod people;
mod proofs;
mod request_log;
mod segments;
mod sends;
mod sync;
mod visitors;

use std::error::Error;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use causeway_shared::base::ids::Millis;
use causeway_shared::facts::fact::Fact;
use causeway_shared::keys::key_ring::KeySet;
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::sync::SyncRequest;
use tower::ServiceBuilder;
use tower::util::MapRequestLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate as _, SizeAbove};
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::{RequestBodyDeadlineLayer, TimeoutError};
use tower_http::trace::TraceLayer;
use utoipa_axum::router::OpenApiRouter;

pub use crate::base::config::HttpLimits;
pub use error::ApiError;

use crate::audience::Audience;
use crate::base::attribution::Attribution;
use crate::base::clock;
use crate::base::config::Config;
use crate::base::metrics::{ConnectionLimit, Metrics};
use crate::ingest::intake::{self, IncomingSync};
use crate::jobs::runs;
use crate::jobs::thread::JobsHandle;
use crate::kv::publish;
use crate::pipeline::writer::{WriteError, Writer};
use crate::profiles::quarantine;
use crate::store;
use crate::store::tenants::TenantContext;
use crate::store::write_txn::TxnRules;
use crate::views::readers::ReaderPool;

/// Acknowledgement of a write that is to be answered after its fold: the outbox answers an acknowledgement after
/// everything that came earlier, and it never hands out the entry 0.
const AFTER_ALL: &[u64] = &[0];

/// Browsers and proxies must not store an answer, because most answers are about people.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Browsers must not guess another media type than the answer's.
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Least length of an answer that is compressed, in bytes: a shorter one fits one packet anyway.
const LEAST_COMPRESSED: u64 = 1024;

/// Code of the error for a write that is durable and not folded yet.
const UNFOLDED: &str = "not_folded";

/// Reads a body of at most `most` bytes; [`router`] bounds its time. `what` names the body in the message.
async fn read_body(body: Body, what: &str, most: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, most).await.map_err(|e| {
        if is_caused_by_timeout(&e) {
            return ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", format!("{what} did not come in time"));
        }
        // The only other cause is a caller that closed the connection, which reads no answer.
        ApiError::too_large(what, most)
    })
}

fn is_caused_by_timeout(e: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(e), |&e| e.source()).any(|e| e.is::<TimeoutError>())
}

/// State that all requests share.
#[derive(Debug)]
pub struct ApiState {
    /// Configuration of the origin.
    pub config: Config,
    /// Keys of the origin and its tenants.
    pub keys: KeySet,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    live: OnceLock<OpenStore>,
    writer: Mutex<Option<Writer>>,
    /// Permits for the long bodies of syncs, which are in memory before their signature is checked.
    long_bodies: tokio::sync::Semaphore,
    /// Held exclusively from the read of a segment's expiry to its write, and shared by writes of segments.
    extending: tokio::sync::RwLock<()>,
}

/// The store and its threads, after the store was opened.
#[derive(Debug)]
pub struct OpenStore {
    /// Rules of all write transactions.
    pub rules: Arc<TxnRules>,
    /// Read-only connections for requests.
    pub readers: ReaderPool,
    /// A read-only connection for metrics alone, so that they are readable while requests hold all others.
    pub measuring: ReaderPool,
    /// Handle of the jobs' thread.
    pub jobs: JobsHandle,
    /// Audience index of all people.
    pub audience: Audience,
}

impl ApiState {
    /// The state before the store is open.
    #[must_use]
    pub fn new(config: Config, keys: KeySet) -> Self {
        Self {
            config,
            keys,
            metrics: Arc::default(),
            live: OnceLock::new(),
            writer: Mutex::new(None),
            long_bodies: tokio::sync::Semaphore::new(sync::LONG_BODIES),
            extending: tokio::sync::RwLock::default(),
        }
    }

    /// Takes syncs from now on.
    pub fn go_live(&self, live: OpenStore, writer: Writer) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        // A second store would be a bug of the caller; the first one stays.
        drop(self.live.set(live));
    }

    /// Takes no sync and starts no job from now on. A sync in progress is finished; a job ends between two
    /// transactions.
    pub fn drain(&self) {
        if let Some(live) = self.live() {
            live.jobs.stop();
            live.audience.stop();
        }
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The store; `None` before it is open.
    #[must_use]
    pub fn live(&self) -> Option<&OpenStore> {
        self.live.get()
    }

    /// The store; a 503 before it is open.
    fn opened(&self) -> Result<&OpenStore, ApiError> {
        self.live().ok_or_else(|| ApiError::unavailable("not_ready", "the store is being opened"))
    }

    fn writer(&self) -> Option<Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The time for a change that ends all earlier facts, such as an erasure; a 503 while the clock may be wrong. Under
    /// a clock that is ahead, such a change would also end later facts, and no command could undo it. A sync confirms
    /// the clock. Before the first sync nothing contradicts the clock, and the time is used.
    fn dated(&self) -> Result<Millis, ApiError> {
        let now = clock::now();
        if self.metrics.vouches(now) == Some(false) {
            let message = "no sync vouches for the origin's date: see to its clock and to the edge, which syncs each \
                minute, and say it again";
            return Err(ApiError::unavailable("clock", message));
        }
        Ok(now)
    }

    /// Takes one fact of the admin side; it is durable afterwards.
    async fn take(&self, tenant: &TenantContext, fact: Fact) -> Result<(), ApiError> {
        self.take_with(tenant, vec![fact], None, &[]).await
    }

    /// Takes facts of the admin side with their attribution, and waits until they are folded.
    async fn take_folded(&self, tenant: &TenantContext, facts: Vec<Fact>, said: Attribution) -> Result<(), ApiError> {
        self.take_with(tenant, facts, Some(said), AFTER_ALL).await
    }

    /// Waits until all earlier facts are folded. A failure is ignored: the later steps report it.
    async fn fold_before(&self, tenant: &TenantContext) {
        drop(self.take_with(tenant, Vec::new(), None, AFTER_ALL).await);
    }

    async fn take_with(
        &self,
        tenant: &TenantContext,
        facts: Vec<Fact>,
        said: Option<Attribution>,
        applied: &[u64],
    ) -> Result<(), ApiError> {
        let (Some(live), Some(writer)) = (self.live(), self.writer()) else {
            return Err(ApiError::unavailable("not_ready", self.not_ready().unwrap_or("not ready")));
        };
        let batch = facts::encode_batch(&FactBatch { tenant: tenant.id.clone(), facts });
        let request = SyncRequest { facts: vec![batch], applied: applied.to_vec(), ..SyncRequest::default() };
        let read = intake::read_admins(request, &live.rules.tenants, clock::now());
        let answer =
            writer.sync(IncomingSync { attribution: said, ..read }).await.map_err(|e| unavailable_error(&e))?;
        match answer.rejected.into_iter().next() {
            Some(refused) => Err(ApiError::new(StatusCode::BAD_REQUEST, "refused", refused.message)),
            None => Ok(()),
        }
    }

    /// Reason for which the origin takes no sync now; `None` where it takes syncs.
    #[must_use]
    pub fn not_ready(&self) -> Option<&'static str> {
        match (self.live(), self.writer()) {
            (None, _) => Some("the store is being opened"),
            (Some(_), None) => Some("the origin is stopping"),
            (Some(_), Some(writer)) if !writer.is_healthy() => Some("the last transaction failed"),
            _ => None,
        }
    }
}

/// All routes with the layers that apply to each of them.
pub fn router(app: Arc<ApiState>) -> Router {
    let nosniff = SetResponseHeaderLayer::overriding(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    let no_store = SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, NO_STORE);
    let compressed = SizeAbove::new(LEAST_COMPRESSED)
        // The edge's answers are packed already.
        .and(NotForContentType::const_new("application/cbor"))
        // Its lines report progress, and an encoder would hold them back.
        .and(NotForContentType::const_new("application/x-ndjson"));
    let layers = ServiceBuilder::new()
        .layer(MapRequestLayer::new(request_log::drop_invalid_id))
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        // A handler logs the cause of a failure, inside of the span.
        .layer(TraceLayer::new_for_http().make_span_with(request_log::request_span).on_failure(()))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(CompressionLayer::new().compress_when(compressed))
        .layer(nosniff)
        // The files of the dashboard, which contain no data, set their own.
        .layer(no_store)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), check_request))
        .layer(RequestBodyDeadlineLayer::new(app.config.http.body_time));
    routes(app).layer(layers)
}

/// Refuses a request without exactly one valid host, and counts a body that was late.
async fn check_request(State(app): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    if !has_valid_host(&request) {
        let message = "one Host header is needed: a name or an address, and a port";
        // The meaning of the bytes that follow is as uncertain as the host.
        let close = (header::CONNECTION, HeaderValue::from_static("close"));
        return ([close], ApiError::new(StatusCode::BAD_REQUEST, "bad_host", message)).into_response();
    }
    let answer = next.run(request).await;
    if answer.status() == StatusCode::REQUEST_TIMEOUT {
        app.metrics.count_timeout(ConnectionLimit::Body);
    }
    answer
}

/// Whether the Host header is as RFC 9112 §3.2 demands: with two headers, a proxy and the origin could read different
/// ones. A request before HTTP/1.1 may have none.
fn has_valid_host(request: &Request) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => request.version() < Version::HTTP_11,
        (Some(host), None) => host.is_empty() || Authority::try_from(host.as_bytes()).is_ok(),
        (Some(_), Some(_)) => false,
    }
}

/// All routes with their descriptions.
fn described_routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new()
        .merge(health::routes())
        .merge(sync::routes())
        .merge(dashboard::routes())
        .merge(openapi::routes())
        .merge(attributes::routes())
        .merge(audience::routes())
        .merge(audiences::routes())
        .merge(audit::routes())
        .merge(catalogue::routes())
        .merge(counts::routes())
        .merge(erase::routes())
        .merge(events::routes())
        .merge(experiments::routes())
        .merge(jobs::routes())
        .merge(links::routes())
        .merge(people::routes())
        .merge(proofs::routes())
        .merge(segments::routes())
        .merge(sends::routes())
        .merge(visitors::routes())
}

fn routes(app: Arc<ApiState>) -> Router {
    Router::from(described_routes())
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing here") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path takes another method")
        })
        .with_state(app)
}

/// The answer for facts that were not taken.
fn unavailable_error(e: &WriteError) -> ApiError {
    let code = match e {
        WriteError::Busy => "busy",
        WriteError::Failed => "store",
        WriteError::Stopping => "not_ready",
        WriteError::Unfolded => UNFOLDED,
    };
    ApiError::unavailable(code, e.to_string())
}

/// Random bytes, for the id of a fact and similar uses.
fn random_bytes<const N: usize>() -> Result<[u8; N], ApiError> {
    clock::random_bytes().map_err(|e| ApiError::unavailable("random", e.to_string()))
}

/// Updates the metrics that change without a request: backlog, outbox, quarantine and the runs of jobs.
pub async fn measure_process(app: &ApiState) {
    if let Some(live) = app.live() {
        app.metrics.unfolded.set(live.readers.unfolded() as u64);
        app.metrics.wal_bytes.set(store::wal_bytes(&app.config.data));
        let metrics = Arc::clone(&app.metrics);
        let counted = live.measuring.read(move |view| {
            let (depth, oldest) = publish::queue_depth(view.conn)?;
            metrics.set_outbox(depth, oldest);
            metrics.quarantined_facts.set(quarantine::count_facts(view.conn)?);
            runs::measure_runs(view.conn, &metrics)
        });
        if let Err(e) = counted.await {
            tracing::warn!(error = %e, "the outbox and the jobs' runs cannot be counted");
        }
    }
}

#[cfg(test)]
mod tests;
