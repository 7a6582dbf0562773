//! The catalogue on the admin side. A catalogue is no fact: a connection of its own writes it in its own transaction,
//! as on the command line.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use causeway_shared::base::json::{self, JsonError};
use causeway_shared::base::limits;
use causeway_shared::base::problems::ConfigProblem;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{Answer, JsonAnswer, TenantQuery, admit_as, admit_to, read_json, write};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::campaigns::allocation::{self, BudgetAnswer};
use crate::campaigns::catalogue::document::CataloguePlan;
use crate::campaigns::catalogue::versions::{self, CatalogueVersion};
use crate::campaigns::catalogue::{self, AppliedCatalogue, ApplyError, CheckError};
use crate::campaigns::offers::{self, OfferAnswer};
use crate::store::write_txn;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new()
        .routes(routes!(show_catalogue, apply_catalogue))
        .routes(routes!(list_budgets))
        .routes(routes!(check_catalogue))
        .routes(routes!(list_offers))
        .routes(routes!(roll_back_catalogue))
        .routes(routes!(list_catalogue_versions))
}

/// The version that a call reads.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct VersionQuery {
    /// Number of the version. Default: the current one.
    #[param(minimum = 1)]
    version: Option<u32>,
}

/// A version of the catalogue with its document.
#[derive(Debug, Serialize, ToSchema)]
struct CatalogueAnswer {
    /// Number of the version.
    version: u32,
    /// The document, with all codes.
    #[schema(value_type = Object)]
    catalogue: Value,
}

/// The versions of a catalogue.
#[derive(Debug, Serialize, ToSchema)]
struct VersionList {
    /// The versions, the newest first.
    versions: Vec<CatalogueVersion>,
}

/// The budgets of the current catalogue.
#[derive(Debug, Serialize, ToSchema)]
struct BudgetList {
    /// The campaigns with a budget.
    budgets: Vec<BudgetAnswer>,
}

/// The limited offers of the current catalogue.
#[derive(Debug, Serialize, ToSchema)]
struct OfferList {
    /// The limited offers.
    recipients: Vec<OfferAnswer>,
}

/// The check of a catalogue without a problem.
#[derive(Debug, Serialize, ToSchema)]
struct CatalogueCheck {
    /// Problems of the document: none. A document with problems is answered with 400.
    problems: Vec<CatalogueProblem>,
    /// Changes that applying the document would make.
    plan: CataloguePlan,
}

/// A problem of a catalogue.
#[derive(Debug, Serialize, ToSchema)]
struct CatalogueProblem {
    /// Path of the fault in the document.
    path: String,
    /// What is wrong, in English.
    message: String,
}

/// The refusal of a catalogue with all problems of the document.
#[derive(Debug, Serialize, ToSchema)]
struct ProblemsAnswer {
    error: ProblemDetail,
}

/// An error with all problems of a catalogue.
#[derive(Debug, Serialize, ToSchema)]
struct ProblemDetail {
    /// `invalid_catalogue`, or another code without `problems`.
    #[schema(value_type = String)]
    code: &'static str,
    /// What was wrong, in English.
    message: String,
    /// Path of the first problem.
    field: Option<String>,
    /// All problems.
    problems: Vec<CatalogueProblem>,
}

/// Shows a version of the catalogue.
#[utoipa::path(
    get,
    path = "/admin/v1/catalogue",
    params(VersionQuery, TenantQuery),
    responses(
        (status = 200, description = "The version.", body = CatalogueAnswer),
        (status = 404, description = "`unknown_version`: the tenant has no such version."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_catalogue(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<CatalogueAnswer> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = |_| ApiError::field("version", "bad_query", "a version is a number from 1 on");
    let Query(VersionQuery { version }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    let found = live.readers.read(move |view| catalogue::stored_version(view.conn, known.no, version)).await?;
    let found = found.ok_or_else(no_version)?;
    let catalogue = serde_json::from_str(&found.document).map_err(|e| ApiError::unread(&e))?;
    Ok(Json(CatalogueAnswer { version: found.version, catalogue }))
}

/// Lists the versions of the catalogue.
#[utoipa::path(
    get,
    path = "/admin/v1/catalogue/versions",
    params(TenantQuery),
    responses((status = 200, description = "All versions.", body = VersionList)),
    security(("bearer" = ["viewer"]))
)]
async fn list_catalogue_versions(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<VersionList> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let versions = live.readers.read(move |view| versions::list_versions(view.conn, known.no)).await?;
    Ok(Json(VersionList { versions }))
}

/// Lists the campaigns of the current catalogue that have a budget, with spend, rest and pacing.
#[utoipa::path(
    get,
    path = "/admin/v1/catalogue/budgets",
    params(TenantQuery),
    responses((status = 200, description = "The budgets.", body = BudgetList)),
    security(("bearer" = ["viewer"]))
)]
async fn list_budgets(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<BudgetList> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let budgets = live.readers.read(move |view| allocation::report_budgets(view.conn, known.no, clock::now())).await?;
    Ok(Json(BudgetList { budgets }))
}

/// Lists the limited offers of the current catalogue, with the offer codes given and the people who have one.
#[utoipa::path(
    get,
    path = "/admin/v1/catalogue/recipients",
    params(TenantQuery),
    responses((status = 200, description = "The limited offers.", body = OfferList)),
    security(("bearer" = ["viewer"]))
)]
async fn list_offers(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<OfferList> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let recipients = live.readers.read(move |view| offers::report_offers(view.conn, known.no)).await?;
    Ok(Json(OfferList { recipients }))
}

/// Checks a catalogue: reports all problems, or the changes that applying it would make. Nothing is changed.
#[utoipa::path(
    post,
    path = "/admin/v1/catalogue/check",
    params(TenantQuery),
    request_body(content = Object, description = "A catalogue as `causeway catalogue schema` describes it, at most 8 \
    MiB."),
    responses(
        (status = 200, description = "The catalogue has no problem.", body = CatalogueCheck),
        (status = 400, description = "`invalid_catalogue` with all problems, or `bad_json`.", body = ProblemsAnswer),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn check_catalogue(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let document = read(body).await?;
    let checked = live.readers.read(move |view| match catalogue::check(view.conn, &known, document) {
        Err(ApplyError::Store(e)) => Err(e),
        checked => Ok(checked),
    });
    match checked.await? {
        Ok(checked) => Ok(Json(CatalogueCheck { problems: Vec::new(), plan: checked.plan }).into_response()),
        Err(e) => refused_answer(e),
    }
}

/// The confirmation of an empty document.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ReplaceQuery {
    /// Accept a document without any row, which removes all rows of the current version.
    #[serde(default)]
    empty: bool,
}

/// Applies a catalogue: checks it as a whole, stores it as a new version, and publishes that as the current one.
#[utoipa::path(
    put,
    path = "/admin/v1/catalogue",
    params(ReplaceQuery, TenantQuery),
    request_body(content = Object, description = "A catalogue as `causeway catalogue schema` describes it, at most 8 \
    MiB."),
    responses(
        (status = 200, description = "The current version.", body = AppliedCatalogue),
        (
            status = 400,
            description = "`invalid_catalogue` with all problems, `empty_catalogue`, or `bad_json`.",
            body = ProblemsAnswer
        ),
    ),
    security(("bearer" = ["operator"]))
)]
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
        catalogue::apply(conn, &rules, write_txn::draw_inputs()?, &known, document, &by)
    };
    applied_answer(write(&app, run).await?)
}

/// A rollback.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RollbackRequest {
    /// Version that becomes the current one.
    #[schema(minimum = 1)]
    version: u32,
}

/// Makes an earlier version of the catalogue the current one again.
#[utoipa::path(
    post,
    path = "/admin/v1/catalogue/rollback",
    params(TenantQuery),
    request_body = RollbackRequest,
    responses(
        (status = 200, description = "The current version.", body = AppliedCatalogue),
        (status = 404, description = "`unknown_version`: the tenant has no such version."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn roll_back_catalogue(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let RollbackRequest { version } = read_json(body).await?;
    let rules = Arc::clone(&live.rules);
    let run =
        move |conn: &mut Connection| catalogue::rollback(conn, &rules, write_txn::draw_inputs()?, &known, version);
    applied_answer(write(&app, run).await?)
}

fn applied_answer(done: Result<AppliedCatalogue, ApplyError>) -> Answer {
    match done {
        Ok(applied) => Ok(Json(applied).into_response()),
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
        ApplyError::Check(CheckError::Problems(problems)) => Ok(list_problems(problems)),
        ApplyError::Store(e) => Err(ApiError::unwritten(&e)),
    }
}

/// All problems of a document; the field is the path of the first.
fn list_problems(problems: Vec<ConfigProblem>) -> Response {
    let message = format!("{} problems in the catalogue", problems.len());
    let field = problems.first().map(|problem| problem.path.clone());
    let problems = problems.into_iter().map(|ConfigProblem { path, message }| CatalogueProblem { path, message });
    let error = ProblemDetail { code: "invalid_catalogue", message, field, problems: problems.collect() };
    (StatusCode::BAD_REQUEST, Json(ProblemsAnswer { error })).into_response()
}

fn no_version() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown_version", "there is no such version of the catalogue")
}
