//! Erasure on the admin side.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use causeway_shared::base::ids::FactId;
use causeway_shared::facts::fact::ErasureScope;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{
    AcceptedAnswer, JsonAnswer, PathParts, TenantQuery, admit_as, admit_to, checked_reason, read_json, visitor_id,
};
use super::{ApiError, ApiState, random_bytes};
use crate::api::tokens::TokenRole;
use crate::erasures::registry::{self, ErasureProgress};
use crate::privacy::erasure_request::{self, ErasureTarget};
use crate::store::id_error::IdError;
use crate::store::tenants::TenantContext;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(request_erasure)).routes(routes!(show_erasure))
}

/// An erasure: of one visitor, or of all visitors that were seen with an alternate id.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ErasureRequest {
    /// The visitor to erase. The alternative to `kind` and `value`.
    #[schema(format = "uuid")]
    visitor: Option<String>,
    /// Kind of the alternate id, with `value`.
    #[schema(max_length = 32)]
    kind: Option<String>,
    /// Raw value of the alternate id. It is hashed on arrival and stored nowhere.
    #[schema(max_length = 256)]
    value: Option<String>,
    /// Erase all visitors of the person, as linked now, and the ids of unique kinds of the person.
    #[serde(default)]
    person: bool,
    /// Reason on one line, which the audit trail retains without limit. Name a ticket, not a person or an id.
    #[schema(min_length = 1, max_length = 200)]
    reason: Option<String>,
}

/// An accepted erasure.
#[derive(Debug, Serialize, ToSchema)]
struct ErasureReceipt {
    /// Receipt of the erasure. The receipt of a visitor is always the same; an alternate id has a new one for each
    /// call.
    #[schema(format = "uuid")]
    receipt: String,
    /// What is erased: `visitor` or `person`.
    #[schema(value_type = String)]
    scope: &'static str,
}

/// The erasure that a call asks about.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ReceiptPath {
    /// Receipt from `POST /admin/v1/erase`, from `DELETE /v1/me` of the edge, or from `causeway erase`.
    #[param(format = "uuid")]
    receipt: String,
}

impl ErasureRequest {
    fn target(&self, tenant: &TenantContext) -> Result<ErasureTarget, ApiError> {
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

/// Erases a visitor, or all visitors that were seen with an alternate id.
///
/// The answer comes after the store holds nothing of them any more, so that a later read does not show them. The
/// receipt shows when the log and the KV are clear too.
#[utoipa::path(
    post,
    path = "/admin/v1/erase",
    params(TenantQuery),
    request_body = ErasureRequest,
    responses((status = 202, description = "The erasure is durable.", body = ErasureReceipt)),
    security(("bearer" = ["privacy"]))
)]
async fn request_erasure(State(app): State<Arc<ApiState>>, request: Request) -> AcceptedAnswer<ErasureReceipt> {
    let (parts, body) = request.into_parts();
    let (live, tenant, token) = admit_as(&app, &parts, TokenRole::Privacy).await?;
    let mut wanted: ErasureRequest = read_json(body).await?;
    let attribution = token.attribution(checked_reason(wanted.reason.take())?);
    let scope = if wanted.person { ErasureScope::Person } else { ErasureScope::Visitor };
    let target = wanted.target(&tenant)?;
    let (known, of, now) = (tenant.clone(), target.clone(), app.dated()?);
    // Evidence about the target may be acknowledged and not folded yet.
    app.fold_before(&tenant).await;
    let now =
        live.readers.read(move |view| erasure_request::erasure_moment(view.conn, &known, &of, scope, now)).await?;
    let fact = target.fact(scope, now, random_bytes()?);
    let answer = ErasureReceipt { receipt: fact.id.receipt(), scope: scope.name() };
    match app.take_folded(&tenant, vec![fact], attribution).await {
        // The erasure is durable, and the receipt shows when it is done.
        Err(e) if e.is(super::UNFOLDED) => {}
        taken => taken?,
    }
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// Shows how far an erasure is, with the time of each step.
#[utoipa::path(
    get,
    path = "/admin/v1/erase/{receipt}",
    params(ReceiptPath, TenantQuery),
    responses(
        (status = 200, description = "The progress of the erasure.", body = ErasureProgress),
        (
            status = 404,
            description = "`unknown_receipt`: no erasure with this receipt has arrived. One that was requested at the \
                edge may still be in its queue."
        ),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_erasure(
    State(app): State<Arc<ApiState>>,
    PathParts(ReceiptPath { receipt }): PathParts<ReceiptPath>,
    request: Request,
) -> JsonAnswer<ErasureProgress> {
    let (parts, _) = request.into_parts();
    let (live, tenant) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = |_| ApiError::field("receipt", "bad_id", "a receipt is a UUID");
    let receipt = FactId::from_receipt(&receipt).map_err(bad)?;
    let found = live.readers.read(move |view| registry::erasure_progress(view.conn, tenant.no, receipt)).await?;
    let unknown = || {
        let message =
            "unknown receipt: no erasure with it has arrived. An erasure from the edge may still be in the queue";
        ApiError::new(StatusCode::NOT_FOUND, "unknown_receipt", message)
    };
    Ok(Json(found.ok_or_else(unknown)?))
}
