//! The origin's HTTP side: what is shared by all routes, and the routes that say how the origin is.

pub mod serve;
pub mod tokens;

mod admin;
mod asked;
mod attributes;
mod audience;
mod audit;
mod catalogue;
mod dashboard;
mod erase;
mod error;
mod events;
mod experiments;
mod jobs;
mod links;
pub(crate) mod listener;
mod people;
mod segments;
mod sends;
mod sync;

use std::error::Error;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use causeway_shared::base::ids::Millis;
use causeway_shared::facts::fact::Fact;
use causeway_shared::keys::key_ring::KeySet;
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::sync::SyncRequest;
use serde_json::json;
use tower::ServiceBuilder;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::{RequestBodyDeadlineLayer, TimeoutError};

pub use crate::base::config::HttpLimits;
pub use error::ApiError;

use crate::audience::Audience;
use crate::base::attribution::Attribution;
use crate::base::clock;
use crate::base::config::Config;
use crate::base::metrics::{ConnectionLimit, Metrics};
use crate::ingest::intake::{self, IncomingSync};
use crate::jobs::runs;
use crate::jobs::thread::JobScheduler;
use crate::kv::publish;
use crate::pipeline::writer::{WriteError, Writer};
use crate::profiles::quarantine;
use crate::store;
use crate::store::tenants::TenantContext;
use crate::store::write_txn::TxnRules;
use crate::views::readers::ReaderPool;

/// What a write says that it has applied, to be answered once it is folded: the outbox answers after what came before it,
/// and an entry 0 was never handed out.
const AFTER_ALL: &[u64] = &[0];

/// No answer is kept by a browser or a proxy: most are about people.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// And none is taken for anything else than it says it is.
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// The error of what is durable and not folded yet.
const UNFOLDED: &str = "not_folded";

/// A body, bounded in size; [`router`] bounds its time.
async fn read_body(body: Body, what: &str, most: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, most).await.map_err(|e| {
        if is_caused_by_timeout(&e) {
            return ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", format!("{what} did not come in time"));
        }
        // The only other reason is a caller that left, who reads no answer.
        ApiError::too_large(what, most)
    })
}

fn is_caused_by_timeout(e: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(e), |&e| e.source()).any(|e| e.is::<TimeoutError>())
}

/// What every request sees.
#[derive(Debug)]
pub struct ApiState {
    /// The configuration.
    pub config: Config,
    /// The keys.
    pub keys: KeySet,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    live: OnceLock<OpenStore>,
    writer: Mutex<Option<Writer>>,
    /// Places for long bodies whose signature is not checked yet.
    long_bodies: tokio::sync::Semaphore,
    /// Held by one while a segment's expiry is read and written, by many while segments are written.
    extending: tokio::sync::RwLock<()>,
}

/// What there is once the store is open.
#[derive(Debug)]
pub struct OpenStore {
    /// What all transactions have in common.
    pub rules: Arc<TxnRules>,
    /// The read-only connections.
    pub readers: ReaderPool,
    /// One more for what is measured: that nothing else is answered is to be seen.
    pub measuring: ReaderPool,
    /// The way to the jobs.
    pub jobs: JobScheduler,
    /// All people in columns.
    pub audience: Audience,
}

impl ApiState {
    /// An origin whose store is not open yet.
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

    /// From now on, syncs are taken.
    pub fn go_live(&self, live: OpenStore, writer: Writer) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        // Once only: a second store would be a mistake of the caller, and is left alone.
        drop(self.live.set(live));
    }

    /// From now on, no sync is taken and no job begun; those under way are finished, the job between two transactions.
    pub fn drain(&self) {
        if let Some(live) = self.live() {
            live.jobs.stop();
            live.audience.stop();
        }
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The store, once it is open.
    #[must_use]
    pub fn live(&self) -> Option<&OpenStore> {
        self.live.get()
    }

    /// What requests read, once the store is open.
    fn opened(&self) -> Result<&OpenStore, ApiError> {
        self.live().ok_or_else(|| ApiError::unavailable("not_ready", "the store is being opened"))
    }

    fn writer(&self) -> Option<Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The time of what ends all that was until then. A clock that is wrong, which takes no sync, would have it end what
    /// is yet to come, and no command undoes that. Before the first sync, also one that is refused for its time, there is nothing to
    /// tell it by.
    fn dated(&self) -> Result<Millis, ApiError> {
        let now = clock::now();
        if self.metrics.vouches(now) == Some(false) {
            let message = "no sync vouches for the origin's date: see to its clock and to the edge, which syncs each \
                minute, and say it again";
            return Err(ApiError::unavailable("clock", message));
        }
        Ok(now)
    }

    /// Takes one fact of the admin side, durably.
    async fn take(&self, tenant: &TenantContext, fact: Fact) -> Result<(), ApiError> {
        self.take_with(tenant, vec![fact], None, &[]).await
    }

    /// Takes facts of the admin side, as somebody says them, and waits until the store holds what they come to.
    async fn take_folded(&self, tenant: &TenantContext, facts: Vec<Fact>, said: Attribution) -> Result<(), ApiError> {
        self.take_with(tenant, facts, Some(said), AFTER_ALL).await
    }

    /// Waits until what was taken before is folded, where it can be folded now.
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

    /// Why syncs are not taken now; `None` when they are.
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

/// All routes, and what holds for each of them.
pub fn router(app: Arc<ApiState>) -> Router {
    let nosniff = SetResponseHeaderLayer::overriding(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    let no_store = SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, NO_STORE);
    let layers = ServiceBuilder::new()
        .layer(nosniff)
        // But for the dashboard's files, which have no data.
        .layer(no_store)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), check_request))
        .layer(RequestBodyDeadlineLayer::new(app.config.http.body_time));
    routes(app).layer(layers)
}

/// Refuses a request without one host, and counts the one whose body was late.
async fn check_request(State(app): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    if !has_valid_host(&request) {
        let message = "one Host header is needed: a name or an address, and a port";
        // What such a sender means by the bytes that follow is as unsure.
        let close = (header::CONNECTION, HeaderValue::from_static("close"));
        return ([close], ApiError::new(StatusCode::BAD_REQUEST, "bad_host", message)).into_response();
    }
    let answer = next.run(request).await;
    if answer.status() == StatusCode::REQUEST_TIMEOUT {
        app.metrics.count_timeout(ConnectionLimit::Body);
    }
    answer
}

/// Whether the Host header is as RFC 9112 §3.2 demands: two parts of the way here that go by different ones of two would
/// see different requests. Before HTTP/1.1 there may be none.
fn has_valid_host(request: &Request) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => request.version() < Version::HTTP_11,
        (Some(host), None) => host.is_empty() || Authority::try_from(host.as_bytes()).is_ok(),
        (Some(_), Some(_)) => false,
    }
}

fn routes(app: Arc<ApiState>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(show_metrics))
        .route("/v1/sync", post(sync::answer_sync))
        .merge(dashboard::routes())
        .merge(admin::routes())
        .merge(segments::routes())
        .merge(experiments::routes())
        .merge(attributes::routes())
        .merge(events::routes())
        .merge(audience::routes())
        .merge(sends::routes())
        .merge(audit::routes())
        .merge(catalogue::routes())
        .merge(erase::routes())
        .merge(jobs::routes())
        .merge(links::routes())
        .merge(people::routes())
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing here") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path takes another method")
        })
        .with_state(app)
}

/// Why facts were not taken, as every route says it.
fn unavailable_error(e: &WriteError) -> ApiError {
    let code = match e {
        WriteError::Busy => "busy",
        WriteError::Failed => "store",
        WriteError::Stopping => "not_ready",
        WriteError::Unfolded => UNFOLDED,
    };
    ApiError::unavailable(code, e.to_string())
}

/// Random bytes, for a fact's id and the like.
fn random_bytes<const N: usize>() -> Result<[u8; N], ApiError> {
    clock::random_bytes().map_err(|e| ApiError::unavailable("random", e.to_string()))
}

/// The process answers: nothing is said of the store.
async fn healthz(State(app): State<Arc<ApiState>>) -> Response {
    let last = app.metrics.last_sync_ms.get();
    let age = (last > 0).then(|| clock::steady_now().saturating_sub(last));
    let body = json!({"status": "ok", "version": env!("CARGO_PKG_VERSION"), "last_sync_age_ms": age});
    axum::Json(body).into_response()
}

/// Whether syncs are taken: for load balancers.
async fn readyz(State(app): State<Arc<ApiState>>) -> Response {
    match app.not_ready() {
        None => axum::Json(json!({"ready": true})).into_response(),
        Some(reason) => {
            let body = axum::Json(json!({"ready": false, "reason": reason}));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn show_metrics(State(app): State<Arc<ApiState>>) -> Response {
    measure_process(&app).await;
    let page = app.metrics.render(clock::now(), clock::steady_now(), app.not_ready().is_none());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}

/// Counts what is told and changes by itself: what waits for being folded and for the KV, and the jobs' runs.
pub async fn measure_process(app: &ApiState) {
    if let Some(live) = app.live() {
        app.metrics.unfolded.set(live.readers.unfolded() as u64);
        app.metrics.wal_bytes.set(store::wal_bytes(&app.config.data));
        let metrics = Arc::clone(&app.metrics);
        let counted = live.measuring.read(move |view| {
            let (depth, oldest) = publish::queue_depth(view.conn)?;
            metrics.set_outbox(depth, oldest);
            metrics.set_aside.set(quarantine::count_facts(view.conn)?);
            runs::measure_runs(view.conn, &metrics)
        });
        if let Err(e) = counted.await {
            tracing::warn!(error = %e, "the outbox and the jobs' runs cannot be counted");
        }
    }
}

#[cfg(test)]
mod tests;
