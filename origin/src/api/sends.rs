//! Sends on the admin side: begun, looked at, stopped, and who was told.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::{get, put};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{Answer, ById, PathParts, admit_to, read_json, write};
use super::audience::{accepted_format, read_filter, start_run};
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::TokenRole;
use crate::audience::query::MemberFormat;
use crate::audience::send::{self, ArmNames, Send, SendError, SendTerms};
use crate::base::clock;
use crate::base::job_kinds::JobKind;
use crate::store::StoreError;
use crate::store::tenants::TenantContext;

/// Places in one piece of a streamed answer.
const PIECE: u32 = 2_000;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/admin/v1/sends", get(list_sends))
        .route("/admin/v1/sends/{name}", put(start_send).get(show_send).delete(stop_send))
        .route("/admin/v1/sends/{name}/recipients", get(list_recipients))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SendRequest {
    filter: Value,
    count: u32,
    experiment: Option<String>,
    #[serde(default)]
    webhook: bool,
    #[serde(default)]
    per_second: u32,
}

/// From which place on.
#[derive(Debug, Deserialize)]
struct SendQuery {
    #[serde(default)]
    from: u32,
}

/// Begins a send, or goes on with it; the job draws and tells its people.
async fn start_send(State(app): State<Arc<ApiState>>, PathParts(name): ById, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let SendRequest { filter: document, count, experiment, webhook, per_second } = read_json(body).await?;
    read_filter(live, &known, document.clone()).await?;
    let terms = SendTerms { filter: document.to_string(), count, experiment, webhook, per_second };
    let random = u64::from_be_bytes(super::random_bytes()?);
    let send = write(&app, move |conn| Send::begin(conn, &known, &name, &terms, random, clock::now()));
    let told = send.await?.map_err(|e| send_error(&e))?.describe(&live.rules.tenants);
    Ok((StatusCode::ACCEPTED, axum::Json(json!({ "send": told, "run": start_run(live, JobKind::Send).await? })))
        .into_response())
}

async fn list_sends(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let found = live.readers.read(move |view| send::list_sends(view.conn, Some(known.no))).await?;
    let told: Vec<Value> = found.iter().map(|send| send.describe(&live.rules.tenants)).collect();
    Ok(axum::Json(json!({ "sends": told })).into_response())
}

async fn show_send(State(app): State<Arc<ApiState>>, PathParts(name): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    Ok(axum::Json(find_send(live, &known, name).await?.describe(&live.rules.tenants)).into_response())
}

/// Ends a send; who was not told yet is not.
async fn stop_send(State(app): State<Arc<ApiState>>, PathParts(name): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    find_send(live, &known, name.clone()).await?;
    let (no, of) = (known.no, name.clone());
    let stopped = write(&app, move |conn| send::stop_send(conn, no, &of)).await?;
    if !stopped.map_err(|e: StoreError| ApiError::unwritten(&e))? {
        return Err(ApiError::new(StatusCode::CONFLICT, "over", "the send is over already"));
    }
    Ok(axum::Json(find_send(live, &known, name).await?.describe(&live.rules.tenants)).into_response())
}

/// Streams who was told, from a place on. Each piece is read by itself: nobody waits for a reader meanwhile.
async fn list_recipients(State(app): State<Arc<ApiState>>, PathParts(name): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = |_| ApiError::field("from", "bad_place", "a place is a number from 0 to 4294967295");
    let Query(SendQuery { from }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    let send = find_send(live, &known, name).await?;
    let asked = (send.clone(), live.readers.read(move |view| ArmNames::of(view.conn, &send)).await?);
    let lines = accepted_format(&parts.headers).unwrap_or(MemberFormat::Ndjson);
    let given = (live.readers.clone(), Arc::new((known, asked.0, asked.1)));
    let pieces = stream::try_unfold((given, Some(from)), move |((readers, asked), next)| async move {
        let Some(from) = next else { return Ok(None) };
        let read = Arc::clone(&asked);
        let piece = readers.read_on(move |view| send::list_recipients(view.conn, &read.1, from, PIECE));
        let (some, next) = piece.await.map_err(std::io::Error::other)?;
        let text = send::format_recipients(lines, &asked.0.config.name, &asked.1, &asked.2, &some);
        Ok::<_, std::io::Error>(Some((Bytes::from(text), ((readers, asked), next))))
    });
    let pieces = stream::iter([Ok(Bytes::from(send::format_head(lines)))]).chain(pieces);
    Ok(([(header::CONTENT_TYPE, lines.media_type())], Body::from_stream(pieces)).into_response())
}

async fn find_send(live: &OpenStore, known: &TenantContext, name: String) -> Result<Send, ApiError> {
    let no = known.no;
    let found = live.readers.read(move |view| send::find_send(view.conn, no, &name)).await?;
    found.ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "unknown_send", "there is no send of that name"))
}

fn send_error(e: &SendError) -> ApiError {
    let message = e.to_string();
    match e {
        SendError::Name => ApiError::field("name", "bad_name", message),
        SendError::Count => ApiError::field("count", "bad_count", message),
        SendError::PerSecond => ApiError::field("per_second", "bad_rate", message),
        SendError::Experiment(_) => ApiError::field("experiment", "unknown_experiment", message),
        SendError::Webhook => ApiError::field("webhook", "no_webhook", message),
        SendError::Other(_) => ApiError::new(StatusCode::CONFLICT, "other_terms", message),
        SendError::TooMany | SendError::Events(_) => ApiError::new(StatusCode::CONFLICT, "too_many", message),
        SendError::Store(e) => ApiError::unwritten(e),
    }
}
