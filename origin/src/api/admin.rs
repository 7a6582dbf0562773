//! The admin side, under `/admin/v1`: visitors, lookups, counts, and proofs for tests.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::keys::proof;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::asked::{
    Answer, ById, ByLookup, PathParts, admit, admit_to, admit_token, bearer_token, check_role, named_tenant, read,
    read_body, read_json, require_tenant, visitor_id,
};
use super::listener::{RequestProof, record_proof};
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::{self, TokenRole};
use crate::base::clock;
use crate::store::id_error::IdError;
use crate::store::tenants::TenantContext;
use crate::views::count::{self, CountError};
use crate::views::describe::{self, LookupError};
use crate::views::read::StoreView;

/// Life of a test proof when none is asked for, in seconds.
const DEFAULT_PROOF_LIFE_S: u64 = 3_600;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/admin/v1/visitors/{id}", get(show_visitor))
        .route("/admin/v1/lookups/{kind}/{value}", get(show_lookup))
        .route("/admin/v1/counts", post(count_actions))
        .route("/admin/v1/counts/groups", post(group_actions))
        .route("/admin/v1/proofs", post(sign_proof))
        .route("/admin/v1/openapi.json", get(show_openapi))
}

async fn show_visitor(State(app): State<Arc<ApiState>>, PathParts(id): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, token) = admit_token(&app, &parts, TokenRole::Viewer).await?;
    let (id, tenant) = (visitor_id("id", &id)?, named_tenant(&live.rules.tenants, &token, &parts.uri)?);
    let found = live.readers.read(move |view| describe::describe_visitor(view, &tenant, id)).await?;
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", "no fact of that visitor ever came");
    Ok(axum::Json(found.ok_or_else(unknown)?).into_response())
}

async fn show_lookup(State(app): State<Arc<ApiState>>, PathParts((kind, value)): ByLookup, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, tenant) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let found = live.readers.read(move |view| match describe::describe_lookup(view.conn, &tenant, &kind, &value) {
        Err(LookupError::Store(e)) => Err(e),
        found => Ok(found),
    });
    match found.await? {
        Ok(found) => Ok(axum::Json(found).into_response()),
        Err(e @ LookupError::Id(IdError::Length | IdError::Placeholder)) => {
            Err(ApiError::field("value", "bad_id", e.to_string()))
        }
        Err(e @ LookupError::Id(IdError::Kind)) => {
            Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_kind", e.to_string()))
        }
        Err(e) => Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_lookup", e.to_string())),
    }
}

async fn count_actions(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    answer_count(&app, request, |view, tenant, ask, now| {
        count::count_actions(view, tenant, ask, now).map(|counts| json!({ "counts": counts }))
    })
    .await
}

async fn group_actions(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    answer_count(&app, request, |view, tenant, ask, now| {
        count::list_groups(view, tenant, ask, now).map(|groups| json!({ "groups": groups }))
    })
    .await
}

/// Reads a question and lets it be answered from the store. The token is checked by the same read: a count takes less
/// time than to begin another one.
async fn answer_count<T: DeserializeOwned + Send + 'static>(
    app: &ApiState,
    request: Request,
    answer: impl Fn(&StoreView<'_>, &TenantContext, &T, Millis) -> Result<Value, CountError> + Send + 'static,
) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, token) = bearer_token(app, &parts.headers)?;
    let bytes = read_body(body).await?;
    let now = clock::now();
    let rules = Arc::clone(&live.rules);
    let found = live.readers.read(move |view| {
        let token = tokens::find_token(view.conn, &token, now)?;
        let token = check_role(token, TokenRole::Viewer).inspect(|_| record_proof(&parts, RequestProof::Token));
        let tenant = token.and_then(|token| named_tenant(&rules.tenants, &token, &parts.uri));
        let admitted = tenant.and_then(|tenant| Ok((tenant, read(&bytes)?)));
        let (tenant, ask) = match admitted {
            Ok(admitted) => admitted,
            Err(refused) => return Ok(Err(refused)),
        };
        match answer(view, &tenant, &ask, now) {
            Err(CountError::Store(e)) => Err(e),
            Err(CountError::Field(name, message)) => Ok(Err(ApiError::field(name, "out_of_bounds", message))),
            Err(e) => Ok(Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", e.to_string()))),
            Ok(found) => Ok(Ok(found)),
        }
    });
    Ok(axum::Json(found.await??).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProofRequest {
    tenant: String,
    sub: String,
    #[serde(default)]
    ttl_s: Option<u64>,
}

/// Signs a member proof for tests, as the publisher of a dev tenant would.
async fn sign_proof(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, token) = admit_token(&app, &parts, TokenRole::Operator).await?;
    let wanted: ProofRequest = read_json(body).await?;
    require_tenant(&token, &wanted.tenant)?;
    proof_for(live, &wanted).map(|answer| axum::Json(answer).into_response())
}

fn proof_for(live: &OpenStore, wanted: &ProofRequest) -> Result<Value, ApiError> {
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
        Some(json!({"proof": proof, "kid": key.kid, "expires_ms": (iat + ttl) * 1_000}))
    });
    signed.ok_or_else(|| {
        let message = "the tenant has no HS256 proof key: run `causeway keys init`";
        ApiError::new(StatusCode::CONFLICT, "no_proof_key", message)
    })
}

async fn show_openapi(State(app): State<Arc<ApiState>>, parts: Parts) -> Answer {
    admit(&app, &parts, TokenRole::Viewer).await?;
    let document = include_str!("openapi.json");
    Ok(([(header::CONTENT_TYPE, "application/json")], document).into_response())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_every_route() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let mut described: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
        described.sort();
        let files = [
            include_str!("admin.rs"),
            include_str!("segments.rs"),
            include_str!("attributes.rs"),
            include_str!("events.rs"),
            include_str!("audience.rs"),
            include_str!("sends.rs"),
            include_str!("audit.rs"),
            include_str!("catalogue.rs"),
            include_str!("dashboard.rs"),
            include_str!("erase.rs"),
            include_str!("experiments.rs"),
            include_str!("jobs.rs"),
            include_str!("links.rs"),
            include_str!("people.rs"),
            include_str!("../api.rs"),
        ];
        let code = files.concat();
        let mut routes: Vec<&str> =
            code.split(".route(\"").skip(1).filter_map(|after| after.split('"').next()).collect();
        routes.sort_unstable();
        assert_eq!(described, routes);
    }

    #[test]
    fn the_document_says_of_every_body_that_it_may_be_late() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let operations = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap());
        let bounded: Vec<_> = operations.filter(|(_, of)| of["responses"]["413"].is_object()).collect();
        assert!(bounded.len() > 10 && bounded.iter().all(|(_, of)| of["responses"]["408"].is_object()));
    }

    #[test]
    fn the_document_says_what_any_route_of_the_admin_side_may_refuse() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let tenant = serde_json::json!("#/components/parameters/tenant");
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, of) in operations.as_object().unwrap() {
                let parameters = of["parameters"].as_array().into_iter().flatten();
                let of_tenant = parameters.into_iter().any(|parameter| parameter["$ref"] == tenant);
                let says = |status: &str| of["responses"][status].is_object();
                assert!(!of_tenant || says("400"), "{method} {path}: which tenant");
                assert!(!path.starts_with("/admin/v1/") || says("401") && says("503"), "{method} {path}: whose token");
            }
        }
    }

    #[test]
    fn the_document_names_every_job() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let job = &document["paths"]["/admin/v1/jobs/{job}"]["post"]["parameters"][0];
        for named in [&job["schema"], &document["components"]["schemas"]["run"]["properties"]["job"]] {
            assert_eq!(named["enum"], serde_json::json!(crate::base::job_kinds::JobKind::names()));
        }
    }
}
