//! Materialised audiences on the admin side.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{AcceptedAnswer, JsonAnswer, PathParts, TenantQuery, admit_to, read_json, segment_id, write};
use super::audience::read_filter;
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::TokenRole;
use crate::audience::answers::AudienceAnswer;
use crate::audience::materialized::{self, MaterialiseError, MaterializedAudience};
use crate::base::clock;
use crate::base::job_kinds::{JobKind, Trigger};
use crate::jobs::runs::{RunAnswer, RunRequest};

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(list_audiences)).routes(routes!(
        show_audience,
        materialise_audience,
        drop_audience
    ))
}

/// The segment of a materialised audience.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AudiencePath {
    /// Segment that stores the audience, from 0 to 4294967295.
    #[param(value_type = u32)]
    segment: String,
}

/// The terms of a materialised audience.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AudienceRequest {
    /// Filter of the people, as in docs/CATALOGUE.md; `{}` matches all people.
    #[schema(value_type = Object)]
    filter: Value,
    /// Hours for which a write keeps a member in the segment: without refreshes the membership ends by itself.
    #[schema(minimum = 1, maximum = 8784)]
    hours: u32,
    /// Hours between two refreshes, at most half of `hours`; 0 for refreshes by this call only.
    #[serde(default)]
    every_hours: u32,
}

/// The materialised audiences of a tenant.
#[derive(Debug, Serialize, ToSchema)]
struct AudienceList {
    /// The audiences, in the order of their segments.
    audiences: Vec<AudienceAnswer>,
}

/// A materialised audience whose segment is about to be written.
#[derive(Debug, Serialize, ToSchema)]
struct StartedAudience {
    audience: AudienceAnswer,
    /// The run of the job `materialise` that writes the segment.
    run: RunAnswer,
}

/// A dropped audience whose members are about to leave the segment.
#[derive(Debug, Serialize, ToSchema)]
struct DroppedAudience {
    /// The run of the job `materialise` that removes the members.
    run: RunAnswer,
}

/// Lists the materialised audiences.
#[utoipa::path(
    get,
    path = "/admin/v1/audiences",
    params(TenantQuery),
    responses((status = 200, description = "All materialised audiences of the tenant.", body = AudienceList)),
    security(("bearer" = ["viewer"]))
)]
async fn list_audiences(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<AudienceList> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let found = live.readers.read(move |view| materialized::list_audiences(view.conn, Some(known.no))).await?;
    let audiences = found.iter().map(|audience| audience.describe(&live.rules.tenants)).collect();
    Ok(Json(AudienceList { audiences }))
}

/// Shows a materialised audience.
#[utoipa::path(
    get,
    path = "/admin/v1/audiences/{segment}",
    params(AudiencePath, TenantQuery),
    responses(
        (status = 200, description = "The audience.", body = AudienceAnswer),
        (status = 404, description = "`unknown_audience`: the segment stores no audience."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_audience(
    State(app): State<Arc<ApiState>>,
    PathParts(AudiencePath { segment }): PathParts<AudiencePath>,
    request: Request,
) -> JsonAnswer<AudienceAnswer> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let segment = segment_id(&segment)?;
    let found = live.readers.read(move |view| materialized::list_audiences(view.conn, Some(known.no))).await?;
    let audience = found.iter().find(|audience| audience.segment == segment).ok_or_else(unknown_audience)?;
    Ok(Json(audience.describe(&live.rules.tenants)))
}

fn unknown_audience() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown_audience",
        "no audience is materialised as this segment: see `GET /admin/v1/audiences`",
    )
}

/// Materialises an audience: the job `materialise` writes the people who match a filter as a segment, and updates the
/// segment at each refresh.
#[utoipa::path(
    put,
    path = "/admin/v1/audiences/{segment}",
    params(AudiencePath, TenantQuery),
    request_body(content = AudienceRequest, example = json!({
        "filter": {"attributes.language": "es", "events.beat_level_2": {"$count": 0}}, "hours": 168, "every_hours": 24
    })),
    responses(
        (status = 202, description = "The audience is stored, and the run writes the segment.", body = StartedAudience),
        (
            status = 400,
            description = "The filter, the hours or the segment is invalid; `field` and `message` say where and why. \
                `asks_itself`: the filter reads the segment that it would write."
        ),
        (status = 409, description = "`too_many`: the tenant has 100 materialised audiences."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn materialise_audience(
    State(app): State<Arc<ApiState>>,
    PathParts(AudiencePath { segment }): PathParts<AudiencePath>,
    request: Request,
) -> AcceptedAnswer<StartedAudience> {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let segment = segment_id(&segment)?;
    let AudienceRequest { filter: document, hours, every_hours } = read_json(body).await?;
    let filter = read_filter(live, &known, document.clone()).await?;
    let terms = ((known.no, segment), (&filter, &document), (hours, every_hours));
    let stored = MaterializedAudience::new(terms.0, terms.1, terms.2, clock::now());
    let stored = stored.map_err(|e| materialise_error(&e))?;
    let audience = stored.describe(&live.rules.tenants);
    write(&app, move |conn| stored.keep(conn, &known)).await?.map_err(|e| materialise_error(&e))?;
    let run = start_run(live, JobKind::Materialise).await?;
    Ok((StatusCode::ACCEPTED, Json(StartedAudience { audience, run })))
}

/// Drops a materialised audience: the job `materialise` removes its members from the segment.
#[utoipa::path(
    delete,
    path = "/admin/v1/audiences/{segment}",
    params(AudiencePath, TenantQuery),
    responses(
        (
            status = 202,
            description = "The audience is dropped, and the run removes its members.",
            body = DroppedAudience
        ),
        (status = 404, description = "`unknown_audience`: the segment stores no audience."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn drop_audience(
    State(app): State<Arc<ApiState>>,
    PathParts(AudiencePath { segment }): PathParts<AudiencePath>,
    request: Request,
) -> AcceptedAnswer<DroppedAudience> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let segment = segment_id(&segment)?;
    let dropped =
        write(&app, move |conn| Ok(MaterializedAudience::drop(conn, known.no, segment, clock::now())?)).await?;
    if !dropped.map_err(|e| materialise_error(&e))? {
        return Err(unknown_audience());
    }
    Ok((StatusCode::ACCEPTED, Json(DroppedAudience { run: start_run(live, JobKind::Materialise).await? })))
}

fn materialise_error(e: &MaterialiseError) -> ApiError {
    match e {
        MaterialiseError::Hours => ApiError::field("hours", "bad_hours", e.to_string()),
        MaterialiseError::Every(_) => ApiError::field("every_hours", "bad_hours", e.to_string()),
        MaterialiseError::Itself(_) | MaterialiseError::Circle(_) => {
            ApiError::field("filter", "asks_itself", e.to_string())
        }
        MaterialiseError::TooMany | MaterialiseError::Events(_) => {
            ApiError::new(StatusCode::CONFLICT, "too_many", e.to_string())
        }
        MaterialiseError::Store(e) => ApiError::unwritten(e),
    }
}

/// Starts a run of a job that does the work that is due. A run that waits or works already does it instead.
pub(super) async fn start_run(live: &OpenStore, job: JobKind) -> Result<RunAnswer, ApiError> {
    let request = RunRequest { job, tenant: None, trigger: Trigger::Signal, dry_run: false };
    let jobs = live.jobs.clone();
    let run = tokio::task::spawn_blocking(move || jobs.ask(request, clock::now())).await;
    let run = run.ok().and_then(Result::ok).map(|run| run.unwrap_or_else(|run| run));
    let failed = || ApiError::unavailable("store", "the change is stored, and the next run of the job applies it");
    Ok(run.ok_or_else(failed)?.describe(&live.rules.tenants))
}
