//! The audit trail on the admin side.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, Request, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{JsonAnswer, TenantQuery, admit_to, visitor_id};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::privacy::audit::{self, AuditRow};

/// Most rows on one page.
const PAGE: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(list_audit))
}

/// The page of the audit trail that a call reads.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// Only the changes that name this visitor, and the erasure that removed it.
    #[param(format = "uuid")]
    visitor: Option<String>,
    /// `next` of the previous page.
    #[param(value_type = Option<i64>)]
    after: Option<String>,
    /// Most rows on the page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<String>,
}

/// A page of the audit trail.
#[derive(Debug, Serialize, ToSchema)]
struct AuditPage {
    /// The rows, the newest first.
    audit: Vec<AuditRow>,
    /// Value of `after` for the next page; null on the last page.
    next: Option<i64>,
}

/// Lists the audit trail: the links, unlinks, erasures and forgotten names, with author and reason, the newest first.
#[utoipa::path(
    get,
    path = "/admin/v1/audit",
    params(AuditQuery, TenantQuery),
    responses((status = 200, description = "A page of the audit trail.", body = AuditPage)),
    security(("bearer" = ["privacy"]))
)]
async fn list_audit(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<AuditPage> {
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
    let next = rows.last().filter(|_| !is_last).map(|last| last.row);
    Ok(Json(AuditPage { audit: rows, next }))
}
