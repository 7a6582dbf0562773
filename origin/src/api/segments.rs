//! Segments on the admin side: by visitor, and by the alternate id that the visitor was last seen with.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::facts::segments::SegmentMap;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{
    JsonAnswer, LookupPath, PathParts, TenantQuery, VisitorPath, admit, admit_to, read_json, segment_id, visitor_id,
};
use super::{ApiError, ApiState, random_bytes};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::store::tenants::TenantContext;
use crate::store::{self, StoreError, StoreLock};
use crate::views::read::{StoreView, VisitorView};
use crate::views::segments::{self, SegmentLists, SegmentOwner, SegmentSelection, SegmentTest, SegmentWrite};

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new()
        .routes(routes!(show_visitor_segments, write_visitor_segments))
        .routes(routes!(query_visitor_segments))
        .routes(routes!(extend_visitor_segment))
        .routes(routes!(show_lookup_segments, write_lookup_segments))
        .routes(routes!(query_lookup_segments))
        .routes(routes!(extend_lookup_segment))
}

/// An extension of a segment.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SegmentRequest {
    /// Hours that are added to the expiry.
    hours: u32,
}

/// The visitor and the segment that a call names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct VisitorSegmentPath {
    /// Id of the visitor: a UUID of version 7.
    #[param(format = "uuid")]
    id: String,
    /// Number of the segment.
    #[param(value_type = u32)]
    segment: String,
}

/// The alternate id and the segment that a call names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct LookupSegmentPath {
    /// Kind of the alternate id, as the configuration names it.
    #[param(max_length = 32)]
    kind: String,
    /// Raw value of the alternate id: 1 to 256 bytes. It is hashed on arrival and stored nowhere.
    #[param(max_length = 256)]
    value: String,
    /// Number of the segment.
    #[param(value_type = u32)]
    segment: String,
}

/// The result of a write of segments.
#[derive(Debug, Serialize, ToSchema)]
struct WrittenSegments {
    /// Id of the visitor.
    #[schema(format = "uuid")]
    visitor: String,
    /// Number of segments in the write.
    written: usize,
}

/// The result of an extension.
#[derive(Debug, Serialize, ToSchema)]
struct ExtendedSegment {
    /// Id of the visitor.
    #[schema(format = "uuid")]
    visitor: String,
    /// Number of the segment.
    extended: u32,
}

/// The owner that a path names. An invalid path is reported to callers with a token only.
pub(super) type PathOwner = Result<SegmentOwner, ApiError>;

pub(super) fn visitor_owner(id: &str) -> PathOwner {
    visitor_id("id", id).map(SegmentOwner::Visitor)
}

/// Lists the current segments of a visitor and of its person.
#[utoipa::path(
    get,
    path = "/admin/v1/visitors/{id}/segments",
    params(VisitorPath, TenantQuery),
    responses(
        (status = 200, description = "The segments.", body = SegmentLists),
        (status = 404, description = "`unknown_visitor`: the store has no such visitor."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_visitor_segments(
    State(app): State<Arc<ApiState>>,
    PathParts(VisitorPath { id }): PathParts<VisitorPath>,
    request: Request,
) -> JsonAnswer<SegmentLists> {
    show_segments(&app, visitor_owner(&id), request).await
}

/// Lists the current segments of the visitor of an alternate id and of its person.
#[utoipa::path(
    get,
    path = "/admin/v1/lookups/{kind}/{value}/segments",
    params(LookupPath, TenantQuery),
    responses(
        (status = 200, description = "The segments.", body = SegmentLists),
        (status = 404, description = "`unknown_visitor`: no visitor was seen with the id."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_lookup_segments(
    State(app): State<Arc<ApiState>>,
    PathParts(LookupPath { kind, value }): PathParts<LookupPath>,
    request: Request,
) -> JsonAnswer<SegmentLists> {
    show_segments(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

/// Writes segments of a visitor, at most 1,000 per call. The last write of a segment counts.
#[utoipa::path(
    put,
    path = "/admin/v1/visitors/{id}/segments",
    params(VisitorPath, TenantQuery),
    request_body = SegmentWrite,
    responses(
        (status = 200, description = "The write is durable.", body = WrittenSegments),
        (status = 404, description = "`unknown_visitor`: the store has no such visitor."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn write_visitor_segments(
    State(app): State<Arc<ApiState>>,
    PathParts(VisitorPath { id }): PathParts<VisitorPath>,
    request: Request,
) -> JsonAnswer<WrittenSegments> {
    write(&app, visitor_owner(&id), request).await
}

/// Writes segments of the visitor of an alternate id, at most 1,000 per call. The last write of a segment counts.
#[utoipa::path(
    put,
    path = "/admin/v1/lookups/{kind}/{value}/segments",
    params(LookupPath, TenantQuery),
    request_body = SegmentWrite,
    responses(
        (status = 200, description = "The write is durable.", body = WrittenSegments),
        (status = 404, description = "`unknown_visitor`: no visitor was seen with the id."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn write_lookup_segments(
    State(app): State<Arc<ApiState>>,
    PathParts(LookupPath { kind, value }): PathParts<LookupPath>,
    request: Request,
) -> JsonAnswer<WrittenSegments> {
    write(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

/// Selects segments of a visitor by expiry, by time of writing, or by number.
#[utoipa::path(
    post,
    path = "/admin/v1/visitors/{id}/segments/query",
    params(VisitorPath, TenantQuery),
    request_body = SegmentTest,
    responses(
        (status = 200, description = "The segments, or their count.", body = SegmentSelection),
        (status = 404, description = "`unknown_visitor`: the store has no such visitor."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn query_visitor_segments(
    State(app): State<Arc<ApiState>>,
    PathParts(VisitorPath { id }): PathParts<VisitorPath>,
    request: Request,
) -> JsonAnswer<SegmentSelection> {
    query_segments(&app, visitor_owner(&id), request).await
}

/// Selects segments of the person of an alternate id by expiry, by time of writing, or by number.
#[utoipa::path(
    post,
    path = "/admin/v1/lookups/{kind}/{value}/segments/query",
    params(LookupPath, TenantQuery),
    request_body = SegmentTest,
    responses(
        (status = 200, description = "The segments, or their count.", body = SegmentSelection),
        (status = 404, description = "`unknown_visitor`: no visitor was seen with the id."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn query_lookup_segments(
    State(app): State<Arc<ApiState>>,
    PathParts(LookupPath { kind, value }): PathParts<LookupPath>,
    request: Request,
) -> JsonAnswer<SegmentSelection> {
    query_segments(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

/// Adds hours to the expiry of a segment of a visitor.
#[utoipa::path(
    post,
    path = "/admin/v1/visitors/{id}/segments/{segment}/extend",
    params(VisitorSegmentPath, TenantQuery),
    request_body = SegmentRequest,
    responses(
        (status = 200, description = "The new expiry is durable.", body = ExtendedSegment),
        (
            status = 404,
            description = "`unknown_visitor`: the store has no such visitor. `unknown_segment`: the visitor is not in \
                the segment."
        ),
    ),
    security(("bearer" = ["operator"]))
)]
async fn extend_visitor_segment(
    State(app): State<Arc<ApiState>>,
    PathParts(VisitorSegmentPath { id, segment }): PathParts<VisitorSegmentPath>,
    request: Request,
) -> JsonAnswer<ExtendedSegment> {
    extend_segment(&app, visitor_owner(&id), &segment, request).await
}

/// Adds hours to the expiry of a segment of the visitor of an alternate id.
#[utoipa::path(
    post,
    path = "/admin/v1/lookups/{kind}/{value}/segments/{segment}/extend",
    params(LookupSegmentPath, TenantQuery),
    request_body = SegmentRequest,
    responses(
        (status = 200, description = "The new expiry is durable.", body = ExtendedSegment),
        (
            status = 404,
            description = "`unknown_visitor`: no visitor was seen with the id. `unknown_segment`: the visitor is not \
                in the segment."
        ),
    ),
    security(("bearer" = ["operator"]))
)]
async fn extend_lookup_segment(
    State(app): State<Arc<ApiState>>,
    PathParts(LookupSegmentPath { kind, value, segment }): PathParts<LookupSegmentPath>,
    request: Request,
) -> JsonAnswer<ExtendedSegment> {
    extend_segment(&app, Ok(SegmentOwner::Lookup(kind, value)), &segment, request).await
}

async fn show_segments(app: &ApiState, owner: PathOwner, request: Request) -> JsonAnswer<SegmentLists> {
    let (parts, _) = request.into_parts();
    let now = clock::now();
    let describe = move |view: &StoreView<'_>, visitor: &VisitorView| segments::describe_segments(view, visitor, now);
    let (_, _, answer) = read_owner(app, &parts, TokenRole::Viewer, owner, describe).await?;
    Ok(Json(answer))
}

async fn query_segments(app: &ApiState, owner: PathOwner, request: Request) -> JsonAnswer<SegmentSelection> {
    let (parts, body) = request.into_parts();
    let (_, _, map) = find_owner(app, &parts, TokenRole::Viewer, owner).await?;
    let query: SegmentTest = read_json(body).await?;
    Ok(Json(segments::answer_query(&map, &query, clock::now())))
}

async fn write(app: &ApiState, owner: PathOwner, request: Request) -> JsonAnswer<WrittenSegments> {
    let (parts, body) = request.into_parts();
    admit(app, &parts, TokenRole::Operator).await?;
    let write: SegmentWrite = read_json(body).await?;
    // An extension that began earlier, also one of the command line, must not overwrite this with its older read.
    let _shared = (app.extending.read().await, extension_lock(app, false).await?);
    let (tenant, visitor, map) = find_owner(app, &parts, TokenRole::Operator, owner).await?;
    take_write(app, &tenant, visitor, &write, app.dated()?.max(segments::stamp_after(&map, &write))).await?;
    let written = write.set.len() + write.remove.len();
    Ok(Json(WrittenSegments { visitor: visitor.to_string(), written }))
}

async fn extend_segment(
    app: &ApiState,
    owner: PathOwner,
    segment: &str,
    request: Request,
) -> JsonAnswer<ExtendedSegment> {
    let (parts, body) = request.into_parts();
    admit(app, &parts, TokenRole::Operator).await?;
    let segment = segment_id(segment)?;
    let SegmentRequest { hours } = read_json(body).await?;
    // The lock is held from the read of the expiry to the acknowledged write, so that two extensions add up, also with
    // one of the command line.
    let _exclusive = (app.extending.write().await, extension_lock(app, true).await?);
    let (tenant, visitor, map) = find_owner(app, &parts, TokenRole::Operator, owner).await?;
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_segment", "the visitor is not in that segment");
    let now = app.dated()?;
    let (write, after) = segments::extended_expiry(&map, segment, hours, now).ok_or_else(unknown)?;
    take_write(app, &tenant, visitor, &write, now.max(after)).await?;
    Ok(Json(ExtendedSegment { visitor: visitor.to_string(), extended: segment.0 }))
}

async fn extension_lock(app: &ApiState, exclusive: bool) -> Result<StoreLock, ApiError> {
    let data = app.config.data.clone();
    let lock = tokio::task::spawn_blocking(move || store::lock_extension(&data, exclusive)).await;
    lock.map_err(|e| ApiError::unwritten(&e))?.map_err(|e| ApiError::unwritten(&e))
}

/// Admits the caller, and reads the segments of the owner.
async fn find_owner(
    app: &ApiState,
    parts: &Parts,
    role: TokenRole,
    owner: PathOwner,
) -> Result<(TenantContext, VisitorId, SegmentMap), ApiError> {
    let by = owner.as_ref().ok().cloned();
    let read = move |view: &StoreView<'_>, visitor: &VisitorView| {
        by.as_ref().map(|owner| owner.segments(view, visitor)).transpose().map(Option::unwrap_or_default)
    };
    read_owner(app, parts, role, owner, read).await
}

/// Admits the caller, and reads from the owner's visitor: returns the tenant, the visitor and the result of the read.
pub(super) async fn read_owner<T: Send + 'static>(
    app: &ApiState,
    parts: &Parts,
    role: TokenRole,
    owner: PathOwner,
    read: impl Fn(&StoreView<'_>, &VisitorView) -> Result<T, StoreError> + Send + 'static,
) -> Result<(TenantContext, VisitorId, T), ApiError> {
    let (live, tenant) = admit_to(app, parts, role).await?;
    let (known, owner) = (tenant.clone(), owner?);
    let found = live.readers.read(move |view| {
        let found = segments::find_visitor(view, &known, &owner)?;
        found.map(|visitor| Ok((visitor.visitor, read(view, &visitor)?))).transpose()
    });
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", "no visitor is known by that id");
    let (visitor, found) = found.await?.ok_or_else(unknown)?;
    Ok((tenant, visitor, found))
}

/// Takes the write as a durable fact.
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
