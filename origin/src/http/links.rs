//! Links on the admin side.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::delete;
use causeway_shared::ids::VisitorId;
use serde_json::json;

use super::admin::{admit, tenant, which};
use super::segments::{Answer, ByLookup};
use super::{ApiError, App, random};
use crate::tokens::Role;
use crate::{clock, describe, links};

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/admin/v1/links/{a}/{b}", delete(unlink))
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
