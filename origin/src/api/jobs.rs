//! Jobs on the admin side: start one, look at runs.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{Answer, ById, PathParts, admit_to_all, admit_token, named_tenant, require_all_tenants};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::base::job_kinds::{JobKind, Trigger};
use crate::jobs::runs::{self, RunRequest};

/// Runs told when no `limit` is said.
const LISTED: usize = 20;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/admin/v1/jobs", get(list_runs)).route("/admin/v1/jobs/{job}", get(show_run).post(start_job))
}

/// What a query says, of a list and of a start.
#[derive(Debug, Deserialize)]
struct JobQuery {
    job: Option<String>,
    limit: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

fn read_query(uri: &Uri) -> Result<JobQuery, ApiError> {
    let bad = |_| {
        let message = format!("`job` is a job's name, `limit` 1 to {}, `dry_run` true or false", runs::PAGE);
        ApiError::field("dry_run", "bad_query", message)
    };
    Query::try_from_uri(uri).map(|Query(said)| said).map_err(bad)
}

fn named_job(name: &str) -> Result<JobKind, ApiError> {
    let unknown = || {
        let message = format!("there are the jobs {}", JobKind::names().join(", "));
        ApiError::new(StatusCode::NOT_FOUND, "unknown_job", message)
    };
    JobKind::named(name).ok_or_else(unknown)
}

/// Answers with the run that was asked for: it is begun once no other is under way.
async fn start_job(State(app): State<Arc<ApiState>>, PathParts(job): ById, request: Request) -> Answer {
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
    let asked = RunRequest { job, tenant, trigger: Trigger::Signal, dry_run };
    let jobs = live.jobs.clone();
    let asking = tokio::task::spawn_blocking(move || jobs.ask(asked, clock::now()));
    match asking.await.map_err(|e| ApiError::unwritten(&e))?.map_err(|e| ApiError::unwritten(&e))? {
        Ok(run) => Ok((StatusCode::ACCEPTED, axum::Json(run.describe(&live.rules.tenants))).into_response()),
        Err(run) => {
            let message = format!("run {} of it waits or is under way", run.no);
            let error = json!({"code": "under_way", "message": message});
            let body = json!({"error": error, "run": run.describe(&live.rules.tenants)});
            Ok((StatusCode::CONFLICT, axum::Json(body)).into_response())
        }
    }
}

async fn show_run(State(app): State<Arc<ApiState>>, PathParts(no): ById, parts: Parts) -> Answer {
    let live = admit_to_all(&app, &parts, TokenRole::Viewer).await?;
    let no: i64 = no.parse().map_err(|_| ApiError::field("run", "bad_id", "a run is a whole number"))?;
    let run = live.readers.read(move |view| runs::find_run(view.conn, no)).await?;
    let message = "there is no run of that number; of each job the newest are kept";
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_run", message);
    Ok(axum::Json(run.ok_or_else(unknown)?.describe(&live.rules.tenants)).into_response())
}

async fn list_runs(State(app): State<Arc<ApiState>>, parts: Parts) -> Answer {
    let live = admit_to_all(&app, &parts, TokenRole::Viewer).await?;
    let JobQuery { job, limit, .. } = read_query(&parts.uri)?;
    let job = job.as_deref().map(named_job).transpose()?;
    let bad = || ApiError::field("limit", "bad_query", format!("`limit` is 1 to {}", runs::PAGE));
    let limit = limit.map_or(Ok(LISTED), |limit| limit.parse()).ok().filter(|limit| (1..=runs::PAGE).contains(limit));
    let limit = limit.ok_or_else(bad)?;
    let found = live.readers.read(move |view| runs::list_runs(view.conn, job, limit)).await?;
    let told: Vec<Value> = found.iter().map(|run| run.describe(&live.rules.tenants)).collect();
    Ok(axum::Json(json!({ "runs": told })).into_response())
}
