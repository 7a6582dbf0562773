//! Health and metrics of the origin.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use prometheus_client::encoding::prometheus_text;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ApiState, measure_process};
use crate::base::clock;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(show_metrics))
}

/// The health of the process.
#[derive(Debug, Serialize, ToSchema)]
struct HealthAnswer {
    /// Always `ok`.
    status: &'static str,
    /// Version of the program.
    version: &'static str,
    /// Age of the last sync in milliseconds; null before the first.
    last_sync_age_ms: Option<u64>,
}

/// Whether the origin takes syncs.
#[derive(Debug, Serialize, ToSchema)]
struct ReadinessAnswer {
    /// Whether the origin takes syncs.
    ready: bool,
    /// Reason for which it takes none. Absent where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    reason: Option<&'static str>,
}

/// Shows that the process answers. The store may be closed.
#[utoipa::path(
    get,
    path = "/healthz",
    responses((status = 200, description = "The process answers.", body = HealthAnswer))
)]
async fn healthz(State(app): State<Arc<ApiState>>) -> Json<HealthAnswer> {
    let last = app.metrics.last_sync_ms.get();
    let last_sync_age_ms = (last > 0).then(|| clock::steady_now().saturating_sub(last));
    Json(HealthAnswer { status: "ok", version: env!("CARGO_PKG_VERSION"), last_sync_age_ms })
}

/// Shows whether the origin takes syncs, for a load balancer.
#[utoipa::path(
    get,
    path = "/readyz",
    responses(
        (status = 200, description = "The origin takes syncs.", body = ReadinessAnswer),
        (status = 503, description = "The origin takes no sync; `reason` says why.", body = ReadinessAnswer),
    )
)]
async fn readyz(State(app): State<Arc<ApiState>>) -> (StatusCode, Json<ReadinessAnswer>) {
    let reason = app.not_ready();
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ReadinessAnswer { ready: reason.is_none(), reason }))
}

/// Shows the metrics in the text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain"))
)]
async fn show_metrics(State(app): State<Arc<ApiState>>) -> impl IntoResponse {
    measure_process(&app).await;
    let page = app.metrics.render(clock::now(), clock::steady_now(), app.not_ready().is_none());
    ([(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], page)
}
