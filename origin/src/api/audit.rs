//! The audit trail on the admin side, a page at a time.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::response::IntoResponse as _;
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;

use super::asked::{Answer, admit_to, visitor_id};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::privacy::audit;

/// Rows on one page.
const PAGE: usize = 1_000;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/admin/v1/audit", get(list_audit))
}

/// Whose, from where on, and how many.
#[derive(Debug, Deserialize)]
struct AuditQuery {
    visitor: Option<String>,
    after: Option<String>,
    limit: Option<String>,
}

async fn list_audit(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, tenant) = admit_to(&app, &parts, TokenRole::Privacy).await?;
    let bad = |what| ApiError::field(what, "bad_query", format!("`after` is a row's number, `limit` 1 to {PAGE}"));
    let Query(AuditQuery { visitor, after, limit }) = Query::try_from_uri(&parts.uri).map_err(|_| bad("visitor"))?;
    let after: Option<i64> = after.map(|after| after.parse()).transpose().map_err(|_| bad("after"))?;
    let of = visitor.map(|visitor| visitor_id("visitor", &visitor)).transpose()?;
    let limit = limit.map_or(Ok(PAGE), |limit| limit.parse()).ok().filter(|limit| (1..=PAGE).contains(limit));
    let limit = limit.ok_or_else(|| bad("limit"))?;
    let mut rows = live.readers.read(move |view| audit::list_rows(view.conn, &tenant, of, after, limit + 1)).await?;
    let is_last = rows.len() <= limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| !is_last).map(|last| last["row"].clone());
    Ok(axum::Json(json!({ "audit": rows, "next": next })).into_response())
}
