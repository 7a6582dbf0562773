//! Sends on the admin side: started, listed and stopped, and the people to whom they delivered.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{AcceptedAnswer, Answer, JsonAnswer, PathParts, TenantQuery, admit_to, read_json, write};
use super::audience::{accepted_format, read_filter};
use super::audiences::start_run;
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::TokenRole;
use crate::audience::answers::SendAnswer;
use crate::audience::query::MemberFormat;
use crate::audience::send::RecipientLine;
use crate::audience::send::{self, ArmNames, Send, SendError, SendTerms};
use crate::base::clock;
use crate::base::job_kinds::JobKind;
use crate::jobs::runs::RunAnswer;
use crate::store::StoreError;
use crate::store::tenants::TenantContext;

/// Recipients in one piece of a streamed answer.
const PIECE: u32 = 2_000;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new()
        .routes(routes!(list_sends))
        .routes(routes!(start_send, show_send, stop_send))
        .routes(routes!(list_recipients))
}

/// The send that a call names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct SendPath {
    /// Name of the send.
    #[param(pattern = "^[a-z0-9_-]{1,64}$")]
    name: String,
}

/// The terms of a send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SendRequest {
    /// Filter of the people, as in docs/CATALOGUE.md; `{}` matches all people.
    #[schema(value_type = Object)]
    filter: Value,
    /// People to draw.
    #[schema(minimum = 1, maximum = 1_000_000)]
    count: u32,
    /// Experiment of the catalogue to whose arms the people are assigned, in proportion to the shares. The control gets
    /// no delivery. A person that was exposed to the experiment before is not drawn.
    experiment: Option<String>,
    /// Whether the send calls the webhook that the tenant's configuration names.
    #[serde(default)]
    webhook: bool,
    /// Most people delivered per second; 0 without a limit.
    #[serde(default)]
    #[schema(maximum = 100_000)]
    per_second: u32,
}

/// The first recipient that a call reads.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SendQuery {
    /// First place of the answer: one more than the place of the last line that the caller has.
    #[serde(default)]
    from: u32,
}

/// A started send.
#[derive(Debug, Serialize, ToSchema)]
struct StartedSend {
    send: SendAnswer,
    /// The run of the job `send` that draws the people and delivers to them.
    run: RunAnswer,
}

/// The sends of a tenant.
#[derive(Debug, Serialize, ToSchema)]
struct SendList {
    /// The sends, in the order of their requests.
    sends: Vec<SendAnswer>,
}

/// Starts a send: draws exactly `count` random people who match a filter, and delivers to each person once.
///
/// A send with the same name and the same terms continues where it was stopped or failed. docs/AUDIENCES.md describes
/// the webhook.
#[utoipa::path(
    put,
    path = "/admin/v1/sends/{name}",
    params(SendPath, TenantQuery),
    request_body(content = SendRequest, example = json!({
        "filter": {"attributes.language": "es"}, "count": 50000, "per_second": 500
    })),
    responses(
        (
            status = 202,
            description = "The send has begun. The job `send` draws its people and delivers to them.",
            body = StartedSend
        ),
        (
            status = 400,
            description = "The filter, the name or a number is invalid, the catalogue has no such experiment, or the \
                tenant has no webhook; `field` and `message` say where and why."
        ),
        (status = 409, description = "`other_terms`: a send of this name has other terms. `too_many`: too many sends."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn start_send(
    State(app): State<Arc<ApiState>>,
    PathParts(SendPath { name }): PathParts<SendPath>,
    request: Request,
) -> AcceptedAnswer<StartedSend> {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let SendRequest { filter: document, count, experiment, webhook, per_second } = read_json(body).await?;
    read_filter(live, &known, document.clone()).await?;
    let per_second = NonZeroU32::new(per_second);
    let terms = SendTerms { filter: document.to_string(), count, experiment, webhook, per_second };
    let random = u64::from_be_bytes(super::random_bytes()?);
    let send = write(&app, move |conn| Send::begin(conn, &known, &name, &terms, random, clock::now()));
    let send = send.await?.map_err(|e| send_error(&e))?.describe(&live.rules.tenants);
    Ok((StatusCode::ACCEPTED, Json(StartedSend { send, run: start_run(live, JobKind::Send).await? })))
}

/// Lists the sends.
#[utoipa::path(
    get,
    path = "/admin/v1/sends",
    params(TenantQuery),
    responses((status = 200, description = "All sends of the tenant.", body = SendList)),
    security(("bearer" = ["viewer"]))
)]
async fn list_sends(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<SendList> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let found = live.readers.read(move |view| send::list_sends(view.conn, Some(known.no))).await?;
    Ok(Json(SendList { sends: found.iter().map(|send| send.describe(&live.rules.tenants)).collect() }))
}

/// Shows a send, and how far it is.
#[utoipa::path(
    get,
    path = "/admin/v1/sends/{name}",
    params(SendPath, TenantQuery),
    responses(
        (status = 200, description = "The send.", body = SendAnswer),
        (status = 404, description = "`unknown_send`: no send has this name."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_send(
    State(app): State<Arc<ApiState>>,
    PathParts(SendPath { name }): PathParts<SendPath>,
    request: Request,
) -> JsonAnswer<SendAnswer> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    Ok(Json(find_send(live, &known, name).await?.describe(&live.rules.tenants)))
}

/// Stops a send: the remaining people get no delivery.
#[utoipa::path(
    delete,
    path = "/admin/v1/sends/{name}",
    params(SendPath, TenantQuery),
    responses(
        (status = 200, description = "The stopped send.", body = SendAnswer),
        (status = 404, description = "`unknown_send`: no send has this name."),
        (status = 409, description = "`over`: the send has ended already."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn stop_send(
    State(app): State<Arc<ApiState>>,
    PathParts(SendPath { name }): PathParts<SendPath>,
    request: Request,
) -> JsonAnswer<SendAnswer> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    find_send(live, &known, name.clone()).await?;
    let (no, of) = (known.no, name.clone());
    let stopped = write(&app, move |conn| send::stop_send(conn, no, &of)).await?;
    if !stopped.map_err(|e: StoreError| ApiError::unwritten(&e))? {
        return Err(ApiError::new(StatusCode::CONFLICT, "over", "the send is over already"));
    }
    Ok(Json(find_send(live, &known, name).await?.describe(&live.rules.tenants)))
}

/// Streams the delivered people of a send, a line each, in the order of delivery.
///
/// The lines are NDJSON, or CSV where `accept` names `text/csv`.
// Each piece is read by a transaction of its own, so that the stream holds no reader while the caller reads slowly.
#[utoipa::path(
    get,
    path = "/admin/v1/sends/{name}/recipients",
    params(SendPath, SendQuery, TenantQuery),
    responses(
        (
            status = 200,
            description = "A line for each delivered person.",
            content((RecipientLine = "application/x-ndjson"), (String = "text/csv"))
        ),
        (status = 404, description = "`unknown_send`: no send has this name."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn list_recipients(
    State(app): State<Arc<ApiState>>,
    PathParts(SendPath { name }): PathParts<SendPath>,
    request: Request,
) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = |_| ApiError::field("from", "bad_place", "invalid `from`: expected a position from 0 to 4294967295");
    let Query(SendQuery { from }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    let send = find_send(live, &known, name).await?;
    let of = send.clone();
    let arms = live.readers.read(move |view| ArmNames::of(view.conn, &of)).await?;
    let format = accepted_format(&parts.headers).unwrap_or(MemberFormat::Ndjson);
    let context = (live.readers.clone(), Arc::new((known, send, arms)));
    let pieces = stream::try_unfold((context, Some(from)), move |((readers, context), next)| async move {
        let Some(from) = next else { return Ok(None) };
        let of = Arc::clone(&context);
        let piece = readers.read_on(move |view| send::list_recipients(view.conn, &of.1, from, PIECE));
        let (recipients, next) = piece.await.map_err(std::io::Error::other)?;
        let (known, send, arms) = &*context;
        let text = send::format_recipients(format, &known.config.name, send, arms, &recipients);
        Ok::<_, std::io::Error>(Some((Bytes::from(text), ((readers, context), next))))
    });
    let pieces = stream::iter([Ok(Bytes::from(send::format_head(format)))]).chain(pieces);
    Ok(([(header::CONTENT_TYPE, format.media_type())], Body::from_stream(pieces)).into_response())
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
