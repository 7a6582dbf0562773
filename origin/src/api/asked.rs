//! What routes of the admin side have in common: who is let in, to which tenant, and what a path, a query and a body say.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::json::{self, JsonError};
use causeway_shared::base::limits;
use causeway_shared::facts::segments::SegmentId;
use rusqlite::Connection;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::listener::{RequestProof, record_proof};
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::{self, AdminToken, TokenRole};
use crate::base::clock;
use crate::store::tenants::{TenantContext, Tenants};
use crate::store::{self, StoreError};

pub(super) type Answer = Result<Response, ApiError>;
pub(super) type ById = PathParts<String>;
pub(super) type ByLookup = PathParts<(String, String)>;

/// Names to take back.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForgetNames {
    pub(super) names: BTreeSet<String>,
    /// Gives the plan alone.
    #[serde(default)]
    pub(super) dry_run: bool,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// What a path names. That a part is no UTF-8 is told as any other error, and like them only to who has a token.
pub(super) struct PathParts<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<ApiState>> for PathParts<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<ApiState>) -> Result<Self, ApiError> {
        let refused = match Path::from_request_parts(parts, app).await {
            Ok(Path(named)) => return Ok(Self(named)),
            Err(PathRejection::FailedToDeserializePathParams(e)) => e.into_kind(),
            Err(e) => ErrorKind::Message(e.body_text()),
        };
        admit(app, parts, TokenRole::Viewer).await?;
        let ErrorKind::InvalidUtf8InPathParam { key } = refused else {
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_id", refused.to_string()));
        };
        Err(ApiError::field(key, "bad_id", "it is not UTF-8"))
    }
}

/// Lets a caller in whose token may do what is asked, to the tenant that is meant.
pub(super) async fn admit_to<'a>(
    app: &'a ApiState,
    parts: &Parts,
    needed: TokenRole,
) -> Result<(&'a OpenStore, TenantContext), ApiError> {
    let (live, tenant, _) = admit_as(app, parts, needed).await?;
    Ok((live, tenant))
}

/// The same, with the token.
pub(super) async fn admit_as<'a>(
    app: &'a ApiState,
    parts: &Parts,
    needed: TokenRole,
) -> Result<(&'a OpenStore, TenantContext, AdminToken), ApiError> {
    let (live, token) = admit_token(app, parts, needed).await?;
    Ok((live, named_tenant(&live.rules.tenants, &token, &parts.uri)?, token))
}

/// Lets a caller in for what concerns all tenants.
pub(super) async fn admit_to_all<'a>(
    app: &'a ApiState,
    parts: &Parts,
    needed: TokenRole,
) -> Result<&'a OpenStore, ApiError> {
    let (live, token) = admit_token(app, parts, needed).await?;
    require_all_tenants(&live.rules.tenants, &token)?;
    Ok(live)
}

/// Refuses a token that is for one of several tenants.
pub(super) fn require_all_tenants(tenants: &Tenants, token: &AdminToken) -> Result<(), ApiError> {
    match &token.tenant {
        // Of one tenant, that is all there is.
        Some(only) if tenants.named(None).is_none_or(|known| known.config.name != *only) => Err(of_one_tenant(only)),
        _ => Ok(()),
    }
}

fn of_one_tenant(only: &str) -> ApiError {
    let message = format!("the token is for the tenant `{only}` alone: make one with --tenant, or --all-tenants");
    ApiError::new(StatusCode::FORBIDDEN, "other_tenant", message)
}

/// Refuses a token that is for another tenant.
pub(super) fn require_tenant(token: &AdminToken, tenant: &str) -> Result<(), ApiError> {
    match &token.tenant {
        Some(only) if !token.is_for(tenant) => Err(of_one_tenant(only)),
        _ => Ok(()),
    }
}

/// Lets a caller in before it is known which tenant is meant.
pub(super) async fn admit<'a>(app: &'a ApiState, parts: &Parts, needed: TokenRole) -> Result<&'a OpenStore, ApiError> {
    Ok(admit_token(app, parts, needed).await?.0)
}

pub(super) async fn admit_token<'a>(
    app: &'a ApiState,
    parts: &Parts,
    needed: TokenRole,
) -> Result<(&'a OpenStore, AdminToken), ApiError> {
    let (live, token) = bearer_token(app, &parts.headers)?;
    let now = clock::now();
    let found = live.readers.read(move |view| tokens::find_token(view.conn, &token, now)).await?;
    let token = check_role(found, needed)?;
    record_proof(parts, RequestProof::Token);
    note_use(app, &token, now);
    Ok((live, token))
}

/// Has the use of a token noted, once an hour; the caller does not wait for it.
pub(super) fn note_use(app: &ApiState, token: &AdminToken, now: Millis) {
    if tokens::is_use_due(token, now) {
        let (data, id) = (app.config.data.clone(), token.id);
        tokio::task::spawn_blocking(move || {
            let noted = store::open(&data).and_then(|conn| tokens::note_use(&conn, id, now));
            if let Err(e) = noted {
                tracing::warn!(error = %crate::base::error_chain(&e), "the use of a token is not noted");
            }
        });
    }
}

/// The store, and the token as it came.
pub(super) fn bearer_token<'a>(app: &'a ApiState, headers: &HeaderMap) -> Result<(&'a OpenStore, String), ApiError> {
    let live = app.opened()?;
    let header = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    // The scheme is the same in any case (RFC 9110 §11.1).
    let token = header.and_then(|v| v.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let (_, token) = token.ok_or_else(unauthorized_error)?;
    Ok((live, token.to_owned()))
}

/// The token, if it may.
pub(super) fn check_role(token: Option<AdminToken>, needed: TokenRole) -> Result<AdminToken, ApiError> {
    let token = token.ok_or_else(unauthorized_error)?;
    if token.role.may(needed) {
        return Ok(token);
    }
    let message = format!("the role {} is needed", needed.as_str());
    Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message))
}

fn unauthorized_error() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", "a valid bearer token is needed")
}

/// Which tenant is meant; with one tenant configured it need not be said.
#[derive(Debug, Deserialize)]
struct TenantQuery {
    tenant: Option<String>,
}

/// The tenant that a query names; without a name that of the token, or the only one there is.
pub(super) fn named_tenant(tenants: &Tenants, token: &AdminToken, uri: &Uri) -> Result<TenantContext, ApiError> {
    let bad = |_| ApiError::field("tenant", "bad_query", "the query is not understood");
    let Query(TenantQuery { tenant }) = Query::try_from_uri(uri).map_err(bad)?;
    if let Some(name) = &tenant {
        require_tenant(token, name)?;
    }
    let known = tenants.named(tenant.as_deref().or(token.tenant.as_deref())).cloned();
    known.ok_or_else(|| match tenant {
        Some(_) => ApiError::field("tenant", "unknown_tenant", "there is no tenant of that name"),
        None => ApiError::field("tenant", "tenant_needed", "there are several tenants: add ?tenant=NAME"),
    })
}

/// The visitor that a field names.
pub(super) fn visitor_id(field: &'static str, text: &str) -> Result<VisitorId, ApiError> {
    text.parse().map_err(|_| ApiError::field(field, "bad_id", "a visitor id is a UUID of version 7"))
}

/// The segment that a path names.
pub(super) fn segment_id(text: &str) -> Result<SegmentId, ApiError> {
    let bad = |_| ApiError::field("segment", "bad_id", "a segment is a number from 0 to 4294967295");
    text.parse().map(SegmentId).map_err(bad)
}

/// Why a change is asked for, as it came.
pub(super) fn checked_reason(text: Option<String>) -> Result<Option<String>, ApiError> {
    let reason = text.as_deref().map(crate::base::attribution::checked_reason).transpose();
    reason.map_err(|e| ApiError::field("reason", "bad_reason", e.to_string()))
}

/// A body, bounded in size and time.
pub(super) async fn read_body(body: Body) -> Result<Bytes, ApiError> {
    super::read_body(body, "the body", limits::BODY_BYTES).await
}

pub(super) async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let bytes = read_body(body).await?;
    read(&bytes)
}

/// A body's JSON, of the form wanted.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // Editors of some systems begin a file with the byte order mark of UTF-8.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if let Err(JsonError::Repeated(path)) = json::check_keys(bytes) {
        return Err(ApiError::repeated(path));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|e| ApiError::json(&e))?;
    let behind = |e: serde_json::Error| ApiError::new(StatusCode::BAD_REQUEST, "bad_json", e.to_string());
    json.end().map(|()| read).map_err(behind)
}

/// Writes what is no fact, by a connection of its own, as the command line does: its transaction and those of the thread
/// that folds wait for one another.
pub(super) async fn write<T: Send + 'static, E: From<StoreError> + Send + 'static>(
    app: &ApiState,
    run: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
) -> Result<Result<T, E>, ApiError> {
    let data = app.config.data.clone();
    let done = tokio::task::spawn_blocking(move || run(&mut store::open(&data)?)).await;
    done.map_err(|e| ApiError::unwritten(&e))
}
