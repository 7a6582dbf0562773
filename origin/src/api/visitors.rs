//! Visitors and lookups on the admin side.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{
    JsonAnswer, LookupPath, PathParts, TenantQuery, VisitorPath, admit_to, admit_token, named_tenant, visitor_id,
};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::store::id_error::IdError;
use crate::views::describe::{self, LookupAnswer, LookupError, VisitorAnswer};

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(show_visitor)).routes(routes!(show_lookup))
}

/// Shows everything that is stored about a visitor.
#[utoipa::path(
    get,
    path = "/admin/v1/visitors/{id}",
    params(VisitorPath, TenantQuery),
    responses(
        (status = 200, description = "The visitor.", body = VisitorAnswer),
        (status = 404, description = "`unknown_visitor`: no fact of the visitor ever arrived."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_visitor(
    State(app): State<Arc<ApiState>>,
    PathParts(VisitorPath { id }): PathParts<VisitorPath>,
    request: Request,
) -> JsonAnswer<VisitorAnswer> {
    let (parts, _) = request.into_parts();
    let (live, token) = admit_token(&app, &parts, TokenRole::Viewer).await?;
    let (id, tenant) = (visitor_id("id", &id)?, named_tenant(&live.rules.tenants, &token, &parts.uri)?);
    let found = live.readers.read(move |view| describe::describe_visitor(view, &tenant, id)).await?;
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", "no fact of that visitor ever came");
    Ok(Json(found.ok_or_else(unknown)?))
}

/// Shows the visitors that were last seen with an alternate id.
#[utoipa::path(
    get,
    path = "/admin/v1/lookups/{kind}/{value}",
    params(LookupPath, TenantQuery),
    responses(
        (status = 200, description = "The visitors of the alternate id.", body = LookupAnswer),
        (
            status = 404,
            description = "`unknown_kind`: the configuration has no such kind. `unknown_lookup`: no visitor was seen \
                with the id."
        ),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_lookup(
    State(app): State<Arc<ApiState>>,
    PathParts(LookupPath { kind, value }): PathParts<LookupPath>,
    request: Request,
) -> JsonAnswer<LookupAnswer> {
    let (parts, _) = request.into_parts();
    let (live, tenant) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let found = live.readers.read(move |view| match describe::describe_lookup(view.conn, &tenant, &kind, &value) {
        Err(LookupError::Store(e)) => Err(e),
        found => Ok(found),
    });
    match found.await? {
        Ok(found) => Ok(Json(found)),
        Err(e @ LookupError::Id(IdError::Length | IdError::Placeholder)) => {
            Err(ApiError::field("value", "bad_id", e.to_string()))
        }
        Err(e @ LookupError::Id(IdError::Kind)) => {
            Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_kind", e.to_string()))
        }
        Err(e) => Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_lookup", e.to_string())),
    }
}
