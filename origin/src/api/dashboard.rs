//! The dashboard: a web page over the routes of the admin side. The page has no data and no rights of its own. It asks
//! for a token, which the browser stores until the tab is closed.

use std::sync::Arc;

use axum::http::header;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;

/// Content security policy: the page loads and runs its own files only, and no page can show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(show_page)).routes(routes!(show_style)).routes(routes!(show_script))
}

/// The dashboard.
#[utoipa::path(
    get,
    path = "/",
    responses((status = 200, description = "The page. It asks for a token.", body = String, content_type = "text/html"))
)]
async fn show_page() -> impl IntoResponse {
    static_file("text/html; charset=utf-8", include_str!("dashboard/dashboard.html"))
}

/// The style of the dashboard.
#[utoipa::path(
    get,
    path = "/dashboard.css",
    responses((status = 200, description = "The style sheet.", body = String, content_type = "text/css"))
)]
async fn show_style() -> impl IntoResponse {
    static_file("text/css; charset=utf-8", include_str!("dashboard/dashboard.css"))
}

/// The script of the dashboard.
#[utoipa::path(
    get,
    path = "/dashboard.js",
    responses((status = 200, description = "The script.", body = String, content_type = "text/javascript"))
)]
async fn show_script() -> impl IntoResponse {
    static_file("text/javascript; charset=utf-8", include_str!("dashboard/dashboard.js"))
}

fn static_file(media_type: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-cache"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text)
}
