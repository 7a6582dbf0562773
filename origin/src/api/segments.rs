//! Segments on the admin side: by visitor, and by the alternate id whose visitor was last seen.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::facts::segments::SegmentMap;
use serde::Deserialize;
use serde_json::json;

use super::asked::{Answer, ById, ByLookup, PathParts, admit, admit_to, read_json, segment_id, visitor_id};
use super::{ApiError, ApiState, random_bytes};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::store::tenants::TenantContext;
use crate::store::{self, StoreError, StoreLock};
use crate::views::read::{StoreView, VisitorView};
use crate::views::segments::{self, SegmentOwner, SegmentTest, SegmentWrite};

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/admin/v1/visitors/{id}/segments", get(show_visitor).put(write_visitor))
        .route("/admin/v1/visitors/{id}/segments/query", post(query_visitor))
        .route("/admin/v1/visitors/{id}/segments/{segment}/extend", post(extend_visitor))
        .route("/admin/v1/lookups/{kind}/{value}/segments", get(show_lookup).put(write_lookup))
        .route("/admin/v1/lookups/{kind}/{value}/segments/query", post(query_lookup))
        .route("/admin/v1/lookups/{kind}/{value}/segments/{segment}/extend", post(extend_lookup))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentRequest {
    hours: u32,
}

/// Whom a path means. What is wrong with it is told to who was let in.
pub(super) type Meant = Result<SegmentOwner, ApiError>;

pub(super) fn visitor_owner(id: &str) -> Meant {
    visitor_id("id", id).map(SegmentOwner::Visitor)
}

async fn show_visitor(State(app): State<Arc<ApiState>>, PathParts(id): ById, request: Request) -> Answer {
    show_segments(&app, visitor_owner(&id), request).await
}

async fn show_lookup(State(app): State<Arc<ApiState>>, PathParts((kind, value)): ByLookup, request: Request) -> Answer {
    show_segments(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

async fn write_visitor(State(app): State<Arc<ApiState>>, PathParts(id): ById, request: Request) -> Answer {
    write(&app, visitor_owner(&id), request).await
}

async fn write_lookup(
    State(app): State<Arc<ApiState>>,
    PathParts((kind, value)): ByLookup,
    request: Request,
) -> Answer {
    write(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

async fn query_visitor(State(app): State<Arc<ApiState>>, PathParts(id): ById, request: Request) -> Answer {
    query_segments(&app, visitor_owner(&id), request).await
}

async fn query_lookup(
    State(app): State<Arc<ApiState>>,
    PathParts((kind, value)): ByLookup,
    request: Request,
) -> Answer {
    query_segments(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

async fn extend_visitor(
    State(app): State<Arc<ApiState>>,
    PathParts((id, segment)): ByLookup,
    request: Request,
) -> Answer {
    extend_segment(&app, visitor_owner(&id), &segment, request).await
}

async fn extend_lookup(
    State(app): State<Arc<ApiState>>,
    PathParts((kind, value, segment)): PathParts<(String, String, String)>,
    request: Request,
) -> Answer {
    extend_segment(&app, Ok(SegmentOwner::Lookup(kind, value)), &segment, request).await
}

async fn show_segments(app: &ApiState, whose: Meant, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let now = clock::now();
    let describe = move |view: &StoreView<'_>, visitor: &VisitorView| segments::describe_segments(view, visitor, now);
    let (_, _, answer) = read_owner(app, &parts, TokenRole::Viewer, whose, describe).await?;
    Ok(axum::Json(answer).into_response())
}

async fn query_segments(app: &ApiState, whose: Meant, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (_, _, map) = find_owner(app, &parts, TokenRole::Viewer, whose).await?;
    let query: SegmentTest = read_json(body).await?;
    Ok(axum::Json(segments::answer_query(&map, &query, clock::now())).into_response())
}

async fn write(app: &ApiState, whose: Meant, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    admit(app, &parts, TokenRole::Operator).await?;
    let write: SegmentWrite = read_json(body).await?;
    // An extension that began before, a command's too, does not write what it read over this.
    let (_many, _beside) = (app.extending.read().await, extension_lock(app, false).await?);
    let (tenant, visitor, map) = find_owner(app, &parts, TokenRole::Operator, whose).await?;
    take_write(app, &tenant, visitor, &write, app.dated()?.max(segments::stamp_after(&map, &write))).await?;
    let written = write.set.len() + write.remove.len();
    Ok(axum::Json(json!({ "visitor": visitor.to_string(), "written": written })).into_response())
}

async fn extend_segment(app: &ApiState, whose: Meant, segment: &str, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    admit(app, &parts, TokenRole::Operator).await?;
    let segment = segment_id(segment)?;
    let SegmentRequest { hours } = read_json(body).await?;
    // From reading the expiry until the new one is acknowledged: two extensions add up, by the command too.
    let (_one, _alone) = (app.extending.write().await, extension_lock(app, true).await?);
    let (tenant, visitor, map) = find_owner(app, &parts, TokenRole::Operator, whose).await?;
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_segment", "the visitor is not in that segment");
    let now = app.dated()?;
    let (write, after) = segments::extended_expiry(&map, segment, hours, now).ok_or_else(unknown)?;
    take_write(app, &tenant, visitor, &write, now.max(after)).await?;
    Ok(axum::Json(json!({ "visitor": visitor.to_string(), "extended": segment.0 })).into_response())
}

async fn extension_lock(app: &ApiState, alone: bool) -> Result<StoreLock, ApiError> {
    let data = app.config.data.clone();
    let lock = tokio::task::spawn_blocking(move || store::lock_extension(&data, alone)).await;
    lock.map_err(|e| ApiError::unwritten(&e))?.map_err(|e| ApiError::unwritten(&e))
}

/// The caller let in, and the segments meant.
async fn find_owner(
    app: &ApiState,
    parts: &Parts,
    role: TokenRole,
    whose: Meant,
) -> Result<(TenantContext, VisitorId, SegmentMap), ApiError> {
    let by = whose.as_ref().ok().cloned();
    let read = move |view: &StoreView<'_>, visitor: &VisitorView| {
        by.as_ref().map(|whose| whose.segments(view, visitor)).transpose().map(Option::unwrap_or_default)
    };
    read_owner(app, parts, role, whose, read).await
}

/// The caller let in: the tenant, the visitor meant, and what is read of it.
pub(super) async fn read_owner<T: Send + 'static>(
    app: &ApiState,
    parts: &Parts,
    role: TokenRole,
    whose: Meant,
    of: impl Fn(&StoreView<'_>, &VisitorView) -> Result<T, StoreError> + Send + 'static,
) -> Result<(TenantContext, VisitorId, T), ApiError> {
    let (live, tenant) = admit_to(app, parts, role).await?;
    let (known, whose) = (tenant.clone(), whose?);
    let found = live.readers.read(move |view| {
        let found = segments::find_visitor(view, &known, &whose)?;
        found.map(|visitor| Ok((visitor.visitor, of(view, &visitor)?))).transpose()
    });
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", "no visitor is known by that id");
    let (visitor, of) = found.await?.ok_or_else(unknown)?;
    Ok((tenant, visitor, of))
}

/// Takes the write as a fact of its own, durably.
async fn take_write(
    app: &ApiState,
    tenant: &TenantContext,
    visitor: VisitorId,
    write: &SegmentWrite,
    at: Millis,
) -> Result<(), ApiError> {
    let fact = segments::segment_fact(visitor, write, at, random_bytes()?)
        .map_err(|e| ApiError::field("set", e.code(), e.to_string()))?;
    app.take(tenant, fact).await
}
