//! Links on the admin side.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::{delete, get};
use causeway_shared::ids::VisitorId;
use serde::Deserialize;
use serde_json::json;

use super::admin::{admit, tenant, which};
use super::segments::{Answer, ByLookup};
use super::{ApiError, App, random};
use crate::tokens::Role;
use crate::{clock, describe, links};

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/admin/v1/links/{a}/{b}", delete(unlink)).route("/admin/v1/links/check", get(check))
}

/// The two of a check.
#[derive(Debug, Deserialize)]
struct Both {
    a: String,
    b: String,
}

async fn check(State(app): State<Arc<App>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let live = admit(&app, &parts.headers, Role::Viewer).await?;
    let no = tenant(live, which(&parts.uri))?.no;
    let bad = || ApiError::field("a", "bad_query", "two visitors are needed: ?a=ID&b=ID");
    let Query(Both { a, b }) = Query::try_from_uri(&parts.uri).map_err(|_| bad())?;
    let (a, b) = (visitor("a", &a)?, visitor("b", &b)?);
    let found = live.readers.read(move |view| links::check(view.conn, no, a, b)).await?;
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", "the store does not have both visitors");
    Ok(axum::Json(describe::checked(found.ok_or_else(unknown)?)).into_response())
}

/// Ends the first visitor's evidence with each id that connects the two. Answered once it is folded: who reads next sees
/// two people.
async fn unlink(State(app): State<Arc<App>>, Path((a, b)): ByLookup, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let live = admit(&app, &parts.headers, Role::Operator).await?;
    let tenant = tenant(live, which(&parts.uri))?;
    let (a, b) = (visitor("a", &a)?, visitor("b", &b)?);
    let known = tenant.clone();
    let shared = live.readers.read(move |view| links::connecting(view.conn, &known, a, b)).await?;
    if a == b || shared.is_empty() {
        let message = "the two visitors were not seen with the same id; look at `links` of each";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_linked", message));
    }
    let now = clock::now();
    let mut facts = Vec::with_capacity(shared.len());
    for (id, last) in &shared {
        facts.push(links::cancellation(a, *id, *last, now, random()?));
    }
    app.take_folded(&tenant, facts).await?;
    let cancelled: Vec<_> = shared.keys().map(|id| describe::named(&tenant, *id)).collect();
    Ok(axum::Json(json!({"visitor": a.to_string(), "from": b.to_string(), "cancelled": cancelled})).into_response())
}

fn visitor(field: &'static str, text: &str) -> Result<VisitorId, ApiError> {
    text.parse().map_err(|_| ApiError::field(field, "bad_id", "a visitor id is a UUID of version 7"))
}
