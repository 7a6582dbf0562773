//! Admission to the admin side, and the input of its routes: token, role, tenant, path, query and body.

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
use utoipa::{IntoParams, ToSchema};

use super::listener::{RequestProof, record_proof};
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::{self, AdminToken, TokenRole};
use crate::base::clock;
use crate::store;
use crate::store::tenants::{TenantContext, Tenants};

pub(super) type Answer = Result<Response, ApiError>;
pub(super) type JsonAnswer<T> = Result<axum::Json<T>, ApiError>;
/// An answer with the status 202: a job does the rest.
pub(super) type AcceptedAnswer<T> = Result<(StatusCode, axum::Json<T>), ApiError>;

/// Names to forget.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForgetNames {
    /// The names.
    #[schema(min_items = 1, max_items = 1000)]
    pub(super) names: BTreeSet<String>,
    /// Report the plan and change nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// Reason on one line, which the audit trail retains without limit. Name a ticket, not a person or an id.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    pub(super) reason: Option<String>,
}

/// The visitor that a call names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct VisitorPath {
    /// Id of the visitor: a UUID of version 7.
    #[param(format = "uuid")]
    pub(super) id: String,
}

/// The alternate id that a call names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct LookupPath {
    /// Kind of the alternate id, as the configuration names it.
    #[param(max_length = 32)]
    pub(super) kind: String,
    /// Raw value of the alternate id: 1 to 256 bytes. It is hashed on arrival and stored nowhere.
    #[param(max_length = 256)]
    pub(super) value: String,
}

/// The parameters of a path. An error in them has the form of all errors, and is reported to callers with a token only.
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

/// Admits a caller whose token has the role, to the tenant that the request names.
pub(super) async fn admit_to<'a>(
    app: &'a ApiState,
    parts: &Parts,
    needed: TokenRole,
) -> Result<(&'a OpenStore, TenantContext), ApiError> {
    let (live, tenant, _) = admit_as(app, parts, needed).await?;
    Ok((live, tenant))
}

/// As [`admit_to`], and returns the token too.
pub(super) async fn admit_as<'a>(
    app: &'a ApiState,
    parts: &Parts,
    needed: TokenRole,
) -> Result<(&'a OpenStore, TenantContext, AdminToken), ApiError> {
    let (live, token) = admit_token(app, parts, needed).await?;
    Ok((live, named_tenant(&live.rules.tenants, &token, &parts.uri)?, token))
}

/// Admits a caller to a route over all tenants.
pub(super) async fn admit_to_all<'a>(
    app: &'a ApiState,
    parts: &Parts,
    needed: TokenRole,
) -> Result<&'a OpenStore, ApiError> {
    let (live, token) = admit_token(app, parts, needed).await?;
    require_all_tenants(&live.rules.tenants, &token)?;
    Ok(live)
}

/// Refuses a token for one of several tenants.
pub(super) fn require_all_tenants(tenants: &Tenants, token: &AdminToken) -> Result<(), ApiError> {
    match &token.tenant {
        // A token for the only tenant is a token for all tenants.
        Some(only) if tenants.named(None).is_none_or(|known| known.config.name != *only) => Err(of_one_tenant(only)),
        _ => Ok(()),
    }
}

fn of_one_tenant(only: &str) -> ApiError {
    let message = format!("the token is for the tenant `{only}` alone: make one with --tenant, or --all-tenants");
    ApiError::new(StatusCode::FORBIDDEN, "other_tenant", message)
}

/// Refuses a token for another tenant.
pub(super) fn require_tenant(token: &AdminToken, tenant: &str) -> Result<(), ApiError> {
    match &token.tenant {
        Some(only) if !token.is_for(tenant) => Err(of_one_tenant(only)),
        _ => Ok(()),
    }
}

/// Admits a caller before the tenant is known.
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

/// Records the use of a token at most once an hour, in the background.
pub(super) fn note_use(app: &ApiState, token: &AdminToken, now: Millis) {
    if tokens::is_use_due(token, now) {
        let (data, id) = (app.config.data.clone(), token.id);
        tokio::task::spawn_blocking(move || {
            let noted = store::open(&data).and_then(|conn| Ok(tokens::note_use(&conn, id, now)?));
            if let Err(e) = noted {
                tracing::warn!(error = %crate::base::error_chain(&e), "the use of a token is not noted");
            }
        });
    }
}

/// The store, and the unchecked text of the token.
pub(super) fn bearer_token<'a>(app: &'a ApiState, headers: &HeaderMap) -> Result<(&'a OpenStore, String), ApiError> {
    let live = app.opened()?;
    let header = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    // The name of the scheme is case-insensitive (RFC 9110 §11.1).
    let token = header.and_then(|v| v.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let (_, token) = token.ok_or_else(unauthorized_error)?;
    Ok((live, token.to_owned()))
}

/// The token, if it has the role.
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

/// The tenant of a call.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TenantQuery {
    /// Name of the tenant. Needed where several tenants are configured and the token is not for one of them.
    #[param(max_length = 32)]
    tenant: Option<String>,
}

/// The tenant that the query names. Default: the tenant of the token, or the only tenant of the configuration.
pub(super) fn named_tenant(tenants: &Tenants, token: &AdminToken, uri: &Uri) -> Result<TenantContext, ApiError> {
    let bad = |_| ApiError::field("tenant", "bad_query", "invalid query: expected `tenant=NAME`");
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

/// Parses the visitor id in a field.
pub(super) fn visitor_id(field: &'static str, text: &str) -> Result<VisitorId, ApiError> {
    text.parse().map_err(|_| ApiError::field(field, "bad_id", "a visitor id is a UUID of version 7"))
}

/// Parses the number of a segment.
pub(super) fn segment_id(text: &str) -> Result<SegmentId, ApiError> {
    let bad = |_| ApiError::field("segment", "bad_id", "a segment is a number from 0 to 4294967295");
    text.parse().map(SegmentId).map_err(bad)
}

/// Checks the reason of a change.
pub(super) fn checked_reason(text: Option<String>) -> Result<Option<String>, ApiError> {
    let reason = text.as_deref().map(crate::base::attribution::checked_reason).transpose();
    reason.map_err(|e| ApiError::field("reason", "bad_reason", e.to_string()))
}

/// Reads a body of at most 64 KiB.
pub(super) async fn read_body(body: Body) -> Result<Bytes, ApiError> {
    super::read_body(body, "the body", limits::BODY_BYTES).await
}

pub(super) async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let bytes = read_body(body).await?;
    read(&bytes)
}

/// Parses a body as JSON. A repeated key or an unknown field is an error with its path.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // Some editors begin a file with the byte order mark of UTF-8.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if let Err(JsonError::Repeated(path)) = json::check_keys(bytes) {
        return Err(ApiError::repeated(path));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|e| ApiError::json(&e))?;
    let trailing = |e: serde_json::Error| ApiError::new(StatusCode::BAD_REQUEST, "bad_json", e.to_string());
    json.end().map(|()| read).map_err(trailing)
}

/// Writes data that is no fact with a connection of its own, as the command line does. SQLite's lock orders the
/// transaction and those of the folding thread.
pub(super) async fn write<T: Send + 'static, E: Send + 'static>(
    app: &ApiState,
    run: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
) -> Result<Result<T, E>, ApiError> {
    let data = app.config.data.clone();
    let done = tokio::task::spawn_blocking(move || store::open(&data).map(|mut conn| run(&mut conn))).await;
    done.map_err(|e| ApiError::unwritten(&e))?.map_err(|e| ApiError::unwritten(&e))
}
