//! The dashboard: one page for people over the routes that there are for programs. It has no data and no rights of its own: who
//! looks at it gives a token, which the browser keeps as long as the tab is open.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

use super::ApiState;

/// Nothing from elsewhere runs, is loaded, or has it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/", get(|| static_file("text/html; charset=utf-8", include_str!("dashboard/dashboard.html"))))
        .route(
            "/dashboard.css",
            get(|| static_file("text/css; charset=utf-8", include_str!("dashboard/dashboard.css"))),
        )
        .route(
            "/dashboard.js",
            get(|| static_file("text/javascript; charset=utf-8", include_str!("dashboard/dashboard.js"))),
        )
}

async fn static_file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-cache"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text)
}
