//! Links on the admin side.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::{delete, get, post};
use causeway_shared::base::ids::FactId;
use causeway_shared::facts::fact::Fact;
use serde::Deserialize;
use serde_json::json;

use super::asked::{Answer, ByLookup, PathParts, admit_as, admit_to, checked_reason, read_json, visitor_id};
use super::{ApiError, ApiState, random_bytes};
use crate::api::tokens::TokenRole;
use crate::base::attribution::Attribution;
use crate::identity::connections::{self, LinkError, VisitorLink};
use crate::store::tenants::TenantContext;
use crate::views::describe;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/admin/v1/links", post(add))
        .route("/admin/v1/links/{a}/{b}", delete(unlink))
        .route("/admin/v1/links/check", get(check_link))
}

/// The two of a check.
#[derive(Debug, Deserialize)]
struct LinkPair {
    a: String,
    b: String,
}

async fn check_link(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, TenantContext { no, .. }) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = || ApiError::field("a", "bad_query", "two visitors are needed: ?a=ID&b=ID");
    let Query(LinkPair { a, b }) = Query::try_from_uri(&parts.uri).map_err(|_| bad())?;
    let (a, b) = (visitor_id("a", &a)?, visitor_id("b", &b)?);
    let found = live.readers.read(move |view| connections::check_pair(view.conn, no, a, b)).await?;
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", "the store does not have both visitors");
    Ok(axum::Json(describe::describe_check(found.ok_or_else(unknown)?)).into_response())
}

/// A link: the visitor, and what it is tied to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkRequest {
    visitor: String,
    reason: Option<String>,
    other: Option<String>,
    kind: Option<String>,
    value: Option<String>,
    weight: Option<f64>,
    source: Option<String>,
}

/// Why an unlink is asked for.
#[derive(Debug, Deserialize)]
struct UnlinkQuery {
    reason: Option<String>,
}

/// Adds evidence that is no login. Answered once it is folded.
async fn add(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, tenant, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let LinkRequest { visitor: of, reason: why, other, kind, value, weight, source } = read_json(body).await?;
    let tie = VisitorLink { other, kind, value, weight, source };
    let said = token.attribution(checked_reason(why)?);
    let bad = |e: LinkError| ApiError::field(e.field(), e.code(), e.to_string());
    let of = connections::parse_link(&tenant, visitor_id("visitor", &of)?, &tie).map_err(bad)?;
    let now = app.dated()?;
    let mut facts = Vec::new();
    for (visitor, what) in of.into_iter().flatten() {
        facts.push(Fact {
            position: 0,
            id: FactId::from_bytes(random_bytes()?),
            visitor,
            received: now,
            at: now,
            what,
        });
    }
    let no = tenant.no;
    // Whom it names, and what ended the tie, may be acknowledged and not stored yet.
    app.fold_before(&tenant).await;
    let facts = live.readers.read(move |view| connections::date_evidence(view.conn, no, facts)).await?;
    let unknown = |visitor| {
        let message = format!("the tenant's store does not have the visitor {visitor}");
        ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", message)
    };
    let facts = facts.map_err(unknown)?;
    app.take_folded(&tenant, facts, said).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Ends the first visitor's evidence with each id that connects the two. Answered once it is folded: who reads next sees
/// two people, unless others connect them.
async fn unlink(State(app): State<Arc<ApiState>>, PathParts((a, b)): ByLookup, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, tenant, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let bad = |_| ApiError::field("reason", "bad_query", "the query is not understood");
    let Query(UnlinkQuery { reason: why }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    let said = Attribution { other: Some(b.clone()), ..token.attribution(checked_reason(why)?) };
    let (a, b) = (visitor_id("a", &a)?, visitor_id("b", &b)?);
    let known = tenant.clone();
    // What it ends may be acknowledged, and not stored yet.
    app.fold_before(&tenant).await;
    let shared = live.readers.read(move |view| connections::connecting_evidence(view.conn, &known, a, b)).await?;
    if a == b || shared.is_empty() {
        let message = "the two visitors were not seen with the same id; look at `links` of each";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_linked", message));
    }
    let now = app.dated()?;
    let mut facts = Vec::with_capacity(shared.len());
    for (id, last) in &shared {
        facts.push(connections::cancellation_fact(a, *id, *last, now, random_bytes()?));
    }
    app.take_folded(&tenant, facts, said).await?;
    let cancelled: Vec<_> = shared.keys().map(|id| describe::describe_id(&tenant, *id)).collect();
    // By evidence of others they may be one person still.
    let no = tenant.no;
    let now = live.readers.read(move |view| connections::check_pair(view.conn, no, a, b)).await?;
    let connected = now.is_some_and(|checked| checked.connected);
    let told = json!({"visitor": a.to_string(), "from": b.to_string(), "cancelled": cancelled, "connected": connected});
    Ok(axum::Json(told).into_response())
}
