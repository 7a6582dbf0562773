//! Jobs on the admin side: the start of a run, and the list of runs.

use crate::store::RunNo;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{
    Answer, JsonAnswer, PathParts, TenantQuery, admit_to_all, admit_token, named_tenant, require_all_tenants,
};
use super::error::{ErrorAnswer, ErrorDetail};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::base::job_kinds::{JobKind, Trigger};
use crate::jobs::runs::{self, RunAnswer, RunRequest};

/// Runs on a page without a `limit`.
const LISTED: usize = 20;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(list_runs)).routes(routes!(show_run, start_job))
}

/// Parameters of a list of runs and of a start.
#[derive(Debug, Deserialize)]
struct JobQuery {
    job: Option<String>,
    limit: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

/// The runs that a call lists.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the part of `JobQuery` that a list reads")]
struct RunListParams {
    /// Only the runs of this job.
    job: Option<JobKind>,
    /// Most runs on the page. The store retains the newest 100 runs of each job, or of each tenant's trainings, and in
    /// addition 100 dry runs.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: Option<u32>,
}

/// How a run is started.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the part of `JobQuery` that a start reads")]
struct StartParams {
    /// Report the plan and change nothing.
    #[param(default = false)]
    dry_run: Option<bool>,
}

/// The job that a start names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct JobPath {
    /// Name of the job.
    #[param(value_type = JobKind)]
    job: String,
}

/// The run that a call shows. The route has the parameter's name from the start of a job.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct RunPath {
    /// Number of the run.
    #[param(value_type = i64)]
    job: String,
}

/// Runs of jobs.
#[derive(Debug, Serialize, ToSchema)]
struct RunList {
    /// The runs, the newest first.
    runs: Vec<RunAnswer>,
}

/// The refusal of a start while a run of the same job waits or works.
#[derive(Debug, Serialize, ToSchema)]
struct RunConflict {
    #[serde(flatten)]
    error: ErrorAnswer,
    /// The run that waits or works.
    run: RunAnswer,
}

fn read_query(uri: &Uri) -> Result<JobQuery, ApiError> {
    let bad = |_| {
        let message = format!("`job` is a job's name, `limit` 1 to {}, `dry_run` true or false", runs::PAGE);
        ApiError::field("dry_run", "bad_query", message)
    };
    Query::try_from_uri(uri).map(|Query(query)| query).map_err(bad)
}

fn named_job(name: &str) -> Result<JobKind, ApiError> {
    let unknown = || {
        let message = format!("there are the jobs {}", JobKind::names().join(", "));
        ApiError::new(StatusCode::NOT_FOUND, "unknown_job", message)
    };
    JobKind::named(name).ok_or_else(unknown)
}

/// Starts a job.
///
/// A job has no input and may be started at any time. The run begins when no other run works.
///
/// `trim` deletes data of visitors that is no longer needed. `retention` erases visitors that were not seen for
/// `forget_after_days` of their tenant. `reconcile` compares people with all evidence and corrects them. `train` trains
/// the model of a tenant. `publish` writes every KV key again. `compact` publishes the newest data of each visitor to
/// all visitors of its person. `rollup` counts the sums of experiments again. `verify` reads every KV key through the
/// edge, compares it with the store and writes a different one again. `index` rebuilds the audience index.
/// `materialise` refreshes the materialised audiences that are due. `activity` sums up the activity histogram of all
/// people. `send` draws the people of the sends that are due and delivers to them. `scrub` reads the whole store and
/// reports damage.
#[utoipa::path(
    post,
    path = "/admin/v1/jobs/{job}",
    params(JobPath, StartParams, TenantQuery),
    responses(
        (status = 202, description = "The run, which waits or has begun.", body = RunAnswer),
        (status = 404, description = "`unknown_job`: no job has this name."),
        (status = 409, description = "`under_way`: a run of this job waits or works.", body = RunConflict),
    ),
    security(("bearer" = ["operator"]))
)]
async fn start_job(
    State(app): State<Arc<ApiState>>,
    PathParts(JobPath { job }): PathParts<JobPath>,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, token) = admit_token(&app, &parts, TokenRole::Operator).await?;
    if !axum::body::to_bytes(body, 0).await.is_ok_and(|bytes| bytes.is_empty()) {
        let message = "a run has no body: its parameters are in the query, as in `?dry_run=true`";
        return Err(ApiError::field("body", "unexpected_body", message));
    }
    let (job, JobQuery { dry_run, .. }) = (named_job(&job)?, read_query(&parts.uri)?);
    let tenants = &live.rules.tenants;
    let tenant = if job.is_by_tenant() { Some(named_tenant(tenants, &token, &parts.uri)?.no) } else { None };
    if tenant.is_none() {
        require_all_tenants(tenants, &token)?;
    }
    if live.jobs.is_stopping() {
        return Err(ApiError::unavailable("not_ready", "the origin is stopping"));
    }
    let request = RunRequest { job, tenant, trigger: Trigger::Signal, dry_run };
    let jobs = live.jobs.clone();
    let starting = tokio::task::spawn_blocking(move || jobs.ask(request, clock::now()));
    match starting.await.map_err(|e| ApiError::unwritten(&e))?.map_err(|e| ApiError::unwritten(&e))? {
        Ok(run) => Ok((StatusCode::ACCEPTED, Json(run.describe(&live.rules.tenants))).into_response()),
        Err(run) => {
            let message = format!("run {} of this job is waiting or active: wait until it ends", run.no);
            let error = ErrorAnswer { error: ErrorDetail { code: "under_way", message, field: None } };
            let body = RunConflict { error, run: run.describe(&live.rules.tenants) };
            Ok((StatusCode::CONFLICT, Json(body)).into_response())
        }
    }
}

/// Shows a run: its progress, counts or plan, and outcome.
#[utoipa::path(
    get,
    path = "/admin/v1/jobs/{job}",
    params(RunPath),
    responses(
        (status = 200, description = "The run.", body = RunAnswer),
        (status = 404, description = "`unknown_run`: no run has this number, or the run is no longer retained."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_run(
    State(app): State<Arc<ApiState>>,
    PathParts(RunPath { job: no }): PathParts<RunPath>,
    parts: Parts,
) -> JsonAnswer<RunAnswer> {
    let live = admit_to_all(&app, &parts, TokenRole::Viewer).await?;
    let no =
        no.parse().map(RunNo::from_number).map_err(|_| ApiError::field("run", "bad_id", "a run is a whole number"))?;
    let run = live.readers.read(move |view| runs::find_run(view.conn, no)).await?;
    let message = "run not found: the store has the newest runs of each job";
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_run", message);
    Ok(Json(run.ok_or_else(unknown)?.describe(&live.rules.tenants)))
}

/// Lists the newest runs of jobs.
#[utoipa::path(
    get,
    path = "/admin/v1/jobs",
    params(RunListParams),
    responses(
        (status = 200, description = "The runs.", body = RunList),
        (status = 404, description = "`unknown_job`: no job has this name."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn list_runs(State(app): State<Arc<ApiState>>, parts: Parts) -> JsonAnswer<RunList> {
    let live = admit_to_all(&app, &parts, TokenRole::Viewer).await?;
    let JobQuery { job, limit, .. } = read_query(&parts.uri)?;
    let job = job.as_deref().map(named_job).transpose()?;
    let bad = || ApiError::field("limit", "bad_query", format!("`limit` is 1 to {}", runs::PAGE));
    let limit = limit.map_or(Ok(LISTED), |limit| limit.parse()).ok().filter(|limit| (1..=runs::PAGE).contains(limit));
    let limit = limit.ok_or_else(bad)?;
    let found = live.readers.read(move |view| runs::list_runs(view.conn, job, limit)).await?;
    Ok(Json(RunList { runs: found.iter().map(|run| run.describe(&live.rules.tenants)).collect() }))
}
