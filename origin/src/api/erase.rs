//! Erasure on the admin side.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use causeway_shared::base::ids::FactId;
use causeway_shared::facts::fact::ErasureScope;
use serde::Deserialize;
use serde_json::json;

use super::asked::{Answer, ById, PathParts, admit_as, admit_to, checked_reason, read_json, visitor_id};
use super::{ApiError, ApiState, random_bytes};
use crate::api::tokens::TokenRole;
use crate::privacy::erase::{self, ErasureTarget};
use crate::store::id_error::IdError;
use crate::store::tenants::TenantContext;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/admin/v1/erase", post(request_erasure)).route("/admin/v1/erase/{receipt}", get(show_progress))
}

/// A visitor, or an alternate id.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErasureRequest {
    visitor: Option<String>,
    kind: Option<String>,
    value: Option<String>,
    #[serde(default)]
    person: bool,
    reason: Option<String>,
}

impl ErasureRequest {
    fn whom(&self, tenant: &TenantContext) -> Result<ErasureTarget, ApiError> {
        match (&self.visitor, &self.kind, &self.value) {
            (Some(visitor), None, None) => visitor_id("visitor", visitor).map(ErasureTarget::Visitor),
            (None, Some(kind), Some(value)) => {
                let bad = |e: IdError| match e {
                    IdError::Kind => ApiError::field("kind", "unknown_kind", e.to_string()),
                    IdError::Length | IdError::Placeholder => ApiError::field("value", "bad_id", e.to_string()),
                };
                tenant.alternate(kind, value).map(|(kind, hashes)| ErasureTarget::Id(kind, hashes)).map_err(bad)
            }
            _ => Err(ApiError::field("visitor", "bad_json", "either `visitor`, or `kind` and `value`, is needed")),
        }
    }
}

/// Takes an erasure, durably, and answers once it is folded: who reads next sees nothing of whom it names.
async fn request_erasure(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, tenant, token) = admit_as(&app, &parts, TokenRole::Privacy).await?;
    let mut asked: ErasureRequest = read_json(body).await?;
    let said = token.attribution(checked_reason(asked.reason.take())?);
    let scope = if asked.person { ErasureScope::Person } else { ErasureScope::Visitor };
    let whom = asked.whom(&tenant)?;
    let (known, of, now) = (tenant.clone(), whom.clone(), app.dated()?);
    // What ties whom it names may be acknowledged and not stored yet.
    app.fold_before(&tenant).await;
    let now = live.readers.read(move |view| erase::erasure_moment(view.conn, &known, &of, scope, now)).await?;
    let fact = whom.fact(scope, now, random_bytes()?);
    let answer = json!({"receipt": fact.id.receipt(), "scope": scope.name()});
    match app.take_folded(&tenant, vec![fact], said).await {
        // It is durable, and the receipt says when it is done.
        Err(e) if e.is(super::UNFOLDED) => {}
        taken => taken?,
    }
    Ok((StatusCode::ACCEPTED, axum::Json(answer)).into_response())
}

async fn show_progress(State(app): State<Arc<ApiState>>, PathParts(receipt): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, tenant) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = |_| ApiError::field("receipt", "bad_id", "a receipt is a UUID");
    let receipt = FactId::from_receipt(&receipt).map_err(bad)?;
    let found = live
        .readers
        .read(move |view| crate::erasures::registry::erasure_progress(view.conn, tenant.no, receipt))
        .await?;
    let unknown = || {
        let message = "no erasure of that receipt has come; one asked for at the edge may still be in its queue";
        ApiError::new(StatusCode::NOT_FOUND, "unknown_receipt", message)
    };
    Ok(axum::Json(found.ok_or_else(unknown)?).into_response())
}
