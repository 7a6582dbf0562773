//! Links on the admin side.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use causeway_shared::base::ids::FactId;
use causeway_shared::facts::fact::Fact;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{JsonAnswer, PathParts, TenantQuery, admit_as, admit_to, checked_reason, read_json, visitor_id};
use super::{ApiError, ApiState, random_bytes};
use crate::api::tokens::TokenRole;
use crate::base::attribution::Attribution;
use crate::identity::connections::{self, LinkError, VisitorLink};
use crate::store::tenants::TenantContext;
use crate::views::describe::{self, LinkCheck, NamedId};

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(add_link)).routes(routes!(unlink_visitors)).routes(routes!(check_link))
}

/// The two visitors of a check.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LinkPair {
    /// A visitor.
    #[param(format = "uuid")]
    a: String,
    /// Another visitor.
    #[param(format = "uuid")]
    b: String,
}

/// Shows whether two visitors are one person.
#[utoipa::path(
    get,
    path = "/admin/v1/links/check",
    params(LinkPair, TenantQuery),
    responses(
        (status = 200, description = "The connection of the two visitors.", body = LinkCheck),
        (status = 404, description = "`unknown_visitor`: the store does not have both visitors."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn check_link(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<LinkCheck> {
    let (parts, _) = request.into_parts();
    let (live, TenantContext { no, .. }) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = || ApiError::field("a", "bad_query", "two visitors are needed: ?a=ID&b=ID");
    let Query(LinkPair { a, b }) = Query::try_from_uri(&parts.uri).map_err(|_| bad())?;
    let (a, b) = (visitor_id("a", &a)?, visitor_id("b", &b)?);
    let found = live.readers.read(move |view| connections::check_pair(view.conn, no, a, b)).await?;
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", "the store does not have both visitors");
    Ok(Json(describe::describe_check(found.ok_or_else(unknown)?)))
}

/// Evidence that ties a visitor to another visitor, or to an alternate id.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LinkRequest {
    /// The visitor.
    #[schema(format = "uuid")]
    visitor: String,
    /// Reason on one line, which the audit trail retains without limit. Name a ticket, not a person or an id.
    #[schema(min_length = 1, max_length = 200)]
    reason: Option<String>,
    /// The other visitor. The alternative to `kind` and `value`.
    #[schema(format = "uuid")]
    other: Option<String>,
    /// Kind of the alternate id, with `value`.
    kind: Option<String>,
    /// Raw value of the alternate id. It is hashed on arrival and stored nowhere.
    value: Option<String>,
    /// Probability that the tie is right, over 0 and at most 1. Evidence that is no login counts as at most 0.999.
    #[schema(value_type = f64, minimum = 0, maximum = 1)]
    weight: Option<f64>,
    /// Source of the evidence: `match`, `household`, `device` or `model`.
    #[schema(value_type = String)]
    source: Option<String>,
}

/// Parameters of an unlink.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct UnlinkQuery {
    /// Reason on one line, which the audit trail retains without limit. Name a ticket, not a person or an id.
    #[param(min_length = 1, max_length = 200)]
    reason: Option<String>,
}

/// Adds evidence, other than a login, between a visitor and another visitor or an alternate id.
///
/// Evidence at or above `link_threshold` of the tenant joins the visitors. The answer comes after the evidence is
/// folded, so that a later read shows it.
#[utoipa::path(
    post,
    path = "/admin/v1/links",
    params(TenantQuery),
    request_body = LinkRequest,
    responses(
        (status = 204, description = "The evidence is folded."),
        (status = 404, description = "`unknown_visitor`: the store does not have a visitor that the call names."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn add_link(State(app): State<Arc<ApiState>>, request: Request) -> Result<StatusCode, ApiError> {
    let (parts, body) = request.into_parts();
    let (live, tenant, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let LinkRequest { visitor: of, reason, other, kind, value, weight, source } = read_json(body).await?;
    let tie = VisitorLink { other, kind, value, weight, source };
    let attribution = token.attribution(checked_reason(reason)?);
    let bad = |e: LinkError| ApiError::field(e.field(), e.code(), e.to_string());
    let of = connections::parse_link(&tenant, visitor_id("visitor", &of)?, &tie).map_err(bad)?;
    let now = app.dated()?;
    let mut facts = Vec::new();
    for (visitor, what) in of.into_iter().flatten() {
        let id = FactId::from_bytes(random_bytes()?);
        facts.push(Fact { position: 0, id, visitor, received: now, at: now, what });
    }
    let no = tenant.no;
    // The visitors, and cancellations of the same evidence, may be acknowledged and not folded yet.
    app.fold_before(&tenant).await;
    let facts = live.readers.read(move |view| connections::date_evidence(view.conn, no, facts)).await?;
    let unknown = |visitor| {
        let message = format!("the tenant's store does not have the visitor {visitor}");
        ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", message)
    };
    let facts = facts.map_err(unknown)?;
    app.take_folded(&tenant, facts, attribution).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The two visitors of an unlink.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct UnlinkPath {
    /// The visitor whose evidence ends.
    #[param(format = "uuid")]
    a: String,
    /// The other visitor, whose evidence stays.
    #[param(format = "uuid")]
    b: String,
}

/// The result of an unlink.
#[derive(Debug, Serialize, ToSchema)]
struct UnlinkAnswer {
    /// The visitor whose evidence ended.
    #[schema(format = "uuid")]
    visitor: String,
    /// The other visitor.
    #[schema(format = "uuid")]
    from: String,
    /// Ids whose evidence with the visitor was cancelled.
    cancelled: Vec<NamedId>,
    /// Whether the two visitors are still one person, through evidence of other visitors.
    connected: bool,
}

/// Unlinks two visitors: cancels the evidence of `a` with each id that both were seen with, until newer evidence
/// arrives.
///
/// The evidence of `b` stays, and with it its links to other visitors. The answer comes after the cancellations are
/// folded, so that a later read shows two people, unless other evidence connects them. The edge follows with the next
/// snapshots.
#[utoipa::path(
    delete,
    path = "/admin/v1/links/{a}/{b}",
    params(UnlinkPath, UnlinkQuery, TenantQuery),
    responses(
        (status = 200, description = "The evidence that linked the two visitors has ended.", body = UnlinkAnswer),
        (status = 404, description = "`not_linked`: the visitors share no id with current evidence."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn unlink_visitors(
    State(app): State<Arc<ApiState>>,
    PathParts(UnlinkPath { a, b }): PathParts<UnlinkPath>,
    request: Request,
) -> JsonAnswer<UnlinkAnswer> {
    let (parts, _) = request.into_parts();
    let (live, tenant, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let bad = |_| ApiError::field("reason", "bad_query", "invalid query: `reason` is one line of 1 to 200 characters");
    let Query(UnlinkQuery { reason }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    let attribution = Attribution { other: Some(b.clone()), ..token.attribution(checked_reason(reason)?) };
    let (a, b) = (visitor_id("a", &a)?, visitor_id("b", &b)?);
    let known = tenant.clone();
    // The evidence may be acknowledged and not folded yet.
    app.fold_before(&tenant).await;
    let shared = live.readers.read(move |view| connections::connecting_evidence(view.conn, &known, a, b)).await?;
    if a == b || shared.is_empty() {
        let message = "the two visitors were not seen with the same id; look at `links` of each";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_linked", message));
    }
    let now = app.dated()?;
    let mut facts = Vec::with_capacity(shared.len());
    for (id, last) in &shared {
        facts.push(connections::cancellation_fact(a, *id, Some(*last), now, random_bytes()?));
    }
    app.take_folded(&tenant, facts, attribution).await?;
    let cancelled = shared.keys().map(|id| describe::describe_id(&tenant, *id)).collect();
    // Evidence of other visitors may still connect the two.
    let no = tenant.no;
    let check = live.readers.read(move |view| connections::check_pair(view.conn, no, a, b)).await?;
    let connected = check.is_some_and(|checked| checked.connected);
    Ok(Json(UnlinkAnswer { visitor: a.to_string(), from: b.to_string(), cancelled, connected }))
}
