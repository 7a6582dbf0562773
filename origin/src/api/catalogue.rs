//! The catalogue on the admin side. It is written by a connection of its own, as by the command line: it is no fact, and
//! has its own transaction.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use causeway_shared::base::json::{self, JsonError};
use causeway_shared::base::limits;
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{Answer, admit_as, admit_to, read_json, write};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::campaigns::catalogue::{self, Applied, ApplyError, CheckError};
use crate::campaigns::{allocation, offers};

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/admin/v1/catalogue", get(show_catalogue).put(apply_catalogue))
        .route("/admin/v1/catalogue/budgets", get(list_budgets))
        .route("/admin/v1/catalogue/check", post(check_catalogue))
        .route("/admin/v1/catalogue/recipients", get(list_offers))
        .route("/admin/v1/catalogue/rollback", post(roll_back))
        .route("/admin/v1/catalogue/versions", get(list_versions))
}

#[derive(Deserialize)]
struct VersionQuery {
    version: Option<u32>,
}

async fn show_catalogue(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = |_| ApiError::field("version", "bad_query", "a version is a number from 1 on");
    let Query(VersionQuery { version }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    let found = live.readers.read(move |view| catalogue::stored_version(view.conn, known.no, version)).await?;
    let kept = found.ok_or_else(no_version)?;
    let document: Value = serde_json::from_str(&kept.document).map_err(|e| ApiError::unread(&e))?;
    Ok(axum::Json(json!({ "version": kept.version, "catalogue": document })).into_response())
}

async fn list_versions(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let versions = live.readers.read(move |view| catalogue::list(view.conn, known.no)).await?;
    Ok(axum::Json(json!({ "versions": versions })).into_response())
}

async fn list_budgets(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let budgets = live.readers.read(move |view| allocation::report_budgets(view.conn, known.no, clock::now())).await?;
    Ok(axum::Json(json!({ "budgets": budgets })).into_response())
}

async fn list_offers(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let recipients = live.readers.read(move |view| offers::report_offers(view.conn, known.no)).await?;
    Ok(axum::Json(json!({ "recipients": recipients })).into_response())
}

async fn check_catalogue(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let document = read(body).await?;
    let checked = live.readers.read(move |view| match catalogue::check(view.conn, &known, document) {
        Err(ApplyError::Store(e)) => Err(e),
        checked => Ok(checked),
    });
    match checked.await? {
        Ok(checked) => Ok(axum::Json(json!({ "problems": [], "plan": checked.plan })).into_response()),
        Err(e) => refused_answer(e),
    }
}

/// Whether a document without any row is meant.
#[derive(Deserialize)]
struct ReplaceQuery {
    #[serde(default)]
    empty: bool,
}

async fn apply_catalogue(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let by = if token.name.is_empty() { "token".to_owned() } else { token.name };
    let document = read(body).await?;
    let rules = Arc::clone(&live.rules);
    let bad = |_| ApiError::field("empty", "bad_query", "`empty` is true or false");
    let Query(ReplaceQuery { empty }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    let run = move |conn: &mut Connection| {
        if !empty {
            catalogue::refuse_empty(conn, known.no, &document)?;
        }
        catalogue::apply(conn, &rules, crate::store::write_txn::draw_inputs()?, &known, document, &by)
    };
    applied_answer(write(&app, run).await?)
}

/// The version that becomes the current one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollbackRequest {
    version: u32,
}

async fn roll_back(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let RollbackRequest { version } = read_json(body).await?;
    let rules = Arc::clone(&live.rules);
    let run = move |conn: &mut Connection| {
        catalogue::rollback(conn, &rules, crate::store::write_txn::draw_inputs()?, &known, version)
    };
    applied_answer(write(&app, run).await?)
}

fn applied_answer(done: Result<Applied, ApplyError>) -> Answer {
    match done {
        Ok(applied) => Ok(axum::Json(applied.to_json()).into_response()),
        Err(e) => refused_answer(e),
    }
}

async fn read(body: Body) -> Result<Value, ApiError> {
    let bytes = super::read_body(body, "a catalogue", limits::CATALOGUE_BYTES).await?;
    json::read(&bytes).map_err(|e| match e {
        JsonError::Repeated(path) => ApiError::repeated(path),
        JsonError::Form(e) => ApiError::new(StatusCode::BAD_REQUEST, "bad_json", format!("the body is not JSON: {e}")),
    })
}

fn refused_answer(e: ApplyError) -> Answer {
    match e {
        ApplyError::NoVersion(_) => Err(no_version()),
        ApplyError::Empties(_) => Err(ApiError::field("empty", "empty_catalogue", format!("{e} with ?empty=true"))),
        ApplyError::Check(CheckError::Form(_)) => {
            Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_json", e.to_string()))
        }
        ApplyError::Check(CheckError::Problems(problems)) => Ok(list_problems(&problems)),
        ApplyError::Store(e) => Err(ApiError::unwritten(&e)),
    }
}

/// All problems at once, the first one's path as the field.
fn list_problems(problems: &[causeway_shared::base::problems::ConfigProblem]) -> Response {
    let all: Vec<Value> = problems.iter().map(|p| json!({ "path": p.path, "message": p.message })).collect();
    let message = format!("{} problems in the catalogue", problems.len());
    let field = problems.first().map(|problem| &problem.path);
    let error = json!({ "code": "invalid_catalogue", "message": message, "field": field, "problems": all });
    (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": error }))).into_response()
}

fn no_version() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown_version", "there is no such version of the catalogue")
}
