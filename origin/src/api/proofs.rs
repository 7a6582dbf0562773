//! Member proofs for tests.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use causeway_shared::base::limits;
use causeway_shared::keys::proof;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{JsonAnswer, admit_token, read_json, require_tenant};
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::TokenRole;
use crate::base::clock;

/// Life of a proof without a `ttl_s`, in seconds.
const DEFAULT_PROOF_LIFE_S: u64 = 3_600;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(sign_proof))
}

/// A member proof to sign.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ProofRequest {
    /// Name of the tenant, whose configuration has `dev = true`.
    tenant: String,
    /// Member id that the proof is for.
    #[schema(min_length = 1, max_length = 256)]
    sub: String,
    /// Life of the proof in seconds.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 86400, default = 3600)]
    ttl_s: Option<u64>,
}

/// A signed member proof.
#[derive(Debug, Serialize, ToSchema)]
struct ProofAnswer {
    /// The proof: a compact JWS, signed with HS256.
    proof: String,
    /// Id of the signing key.
    kid: String,
    /// Time at which the proof expires.
    expires_ms: u64,
}

/// Signs a member proof for tests, as the publisher of a dev tenant would.
#[utoipa::path(
    post,
    path = "/admin/v1/proofs",
    request_body = ProofRequest,
    responses(
        (status = 200, description = "The proof.", body = ProofAnswer),
        (
            status = 403,
            description = "`not_dev`: the tenant is no dev tenant. `forbidden`: the role of the token does not allow \
                the call. `other_tenant`: the token is for another tenant."
        ),
        (status = 409, description = "`no_proof_key`: the tenant has no HS256 proof key."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn sign_proof(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<ProofAnswer> {
    let (parts, body) = request.into_parts();
    let (live, token) = admit_token(&app, &parts, TokenRole::Operator).await?;
    let wanted: ProofRequest = read_json(body).await?;
    require_tenant(&token, &wanted.tenant)?;
    proof_for(live, &wanted).map(Json)
}

fn proof_for(live: &OpenStore, wanted: &ProofRequest) -> Result<ProofAnswer, ApiError> {
    let unknown = || ApiError::field("tenant", "unknown_tenant", "there is no tenant of that name");
    let tenant = live.rules.tenants.by_name(&wanted.tenant).ok_or_else(unknown)?;
    if !tenant.config.dev {
        let message = "proofs are signed for dev tenants only: a publisher signs its own";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "not_dev", message));
    }
    if wanted.sub.is_empty() || wanted.sub.len() > limits::ALTERNATE_ID_BYTES {
        let message = format!("1 to {} bytes are needed", limits::ALTERNATE_ID_BYTES);
        return Err(ApiError::field("sub", "bad_id", message));
    }
    let ttl = wanted.ttl_s.unwrap_or(DEFAULT_PROOF_LIFE_S);
    if !(1..=limits::PROOF_LIFE_S).contains(&ttl) {
        let message = format!("1 to {} seconds are possible", limits::PROOF_LIFE_S);
        return Err(ApiError::field("ttl_s", "bad_ttl", message));
    }
    let iat = clock::now() / 1_000;
    let signed = tenant.keys.proof.iter().find_map(|key| {
        let proof = proof::sign_hs256(key, &wanted.sub, &tenant.id, iat, iat + ttl)?;
        Some(ProofAnswer { proof, kid: key.kid.clone(), expires_ms: (iat + ttl) * 1_000 })
    });
    signed.ok_or_else(|| {
        let message = "the tenant has no HS256 proof key: run `causeway keys init`";
        ApiError::new(StatusCode::CONFLICT, "no_proof_key", message)
    })
}
