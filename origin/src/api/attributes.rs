//! Attributes on the admin side: by visitor, by alternate id, and the names of a tenant.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use causeway_shared::facts::attributes::NameDictionary;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{
    Answer, ForgetNames, JsonAnswer, LookupPath, PathParts, TenantQuery, VisitorPath, admit, admit_as, admit_to,
    checked_reason, read_json, write as write_store,
};
use super::audiences::start_run;
use super::segments::{PathOwner, read_owner, visitor_owner};
use super::{AFTER_ALL, ApiError, ApiState, random_bytes};
use crate::api::tokens::TokenRole;
use crate::base::job_kinds::JobKind;
use crate::jobs::runs::RunAnswer;
use crate::maintenance::forget_names::{self, ForgetError, ForgetPlanAnswer};
use crate::store::names;
use crate::store::tenants::TenantContext;
use crate::store::write_txn;
use crate::views::attributes::{self, AttributeLists, AttributeNamePage, AttributeWrite, RefusedAttribute};
use crate::views::read::{StoreView, VisitorView};
use crate::views::segments::SegmentOwner;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new()
        .routes(routes!(list_attribute_names))
        .routes(routes!(forget_attribute_names))
        .routes(routes!(show_visitor_attributes, write_visitor_attributes))
        .routes(routes!(show_lookup_attributes, write_lookup_attributes))
}

/// The result of a write of attributes.
#[derive(Debug, Serialize, ToSchema)]
struct WrittenAttributes {
    /// Id of the visitor.
    #[schema(format = "uuid")]
    visitor: String,
    /// Number of written and removed attributes.
    written: usize,
    /// The refused attributes.
    rejected: Vec<RefusedAttribute>,
}

/// Attribute names that are forgotten.
#[derive(Debug, Serialize, ToSchema)]
struct ForgottenAttributes {
    /// The names.
    names: Vec<String>,
    /// The run of the job `trim` that removes the values.
    run: RunAnswer,
}

/// Lists the attributes of a visitor and of its person.
#[utoipa::path(
    get,
    path = "/admin/v1/visitors/{id}/attributes",
    params(VisitorPath, TenantQuery),
    responses(
        (status = 200, description = "The attributes.", body = AttributeLists),
        (status = 404, description = "`unknown_visitor`: the store has no such visitor."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_visitor_attributes(
    State(app): State<Arc<ApiState>>,
    PathParts(VisitorPath { id }): PathParts<VisitorPath>,
    request: Request,
) -> JsonAnswer<AttributeLists> {
    show_attributes(&app, visitor_owner(&id), request).await
}

/// Lists the attributes of the visitor of an alternate id and of its person.
#[utoipa::path(
    get,
    path = "/admin/v1/lookups/{kind}/{value}/attributes",
    params(LookupPath, TenantQuery),
    responses(
        (status = 200, description = "The attributes.", body = AttributeLists),
        (status = 404, description = "`unknown_visitor`: no visitor was seen with the id."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_lookup_attributes(
    State(app): State<Arc<ApiState>>,
    PathParts(LookupPath { kind, value }): PathParts<LookupPath>,
    request: Request,
) -> JsonAnswer<AttributeLists> {
    show_attributes(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

/// Writes attributes of a visitor. An invalid attribute is refused alone.
#[utoipa::path(
    put,
    path = "/admin/v1/visitors/{id}/attributes",
    params(VisitorPath, TenantQuery),
    request_body = AttributeWrite,
    responses(
        (status = 200, description = "The written and the refused attributes.", body = WrittenAttributes),
        (
            status = 400,
            description = "`refused`: nothing was written; `field` is the name of the first refused attribute. \
                `bad_json`: the body is invalid."
        ),
        (status = 404, description = "`unknown_visitor`: the store has no such visitor."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn write_visitor_attributes(
    State(app): State<Arc<ApiState>>,
    PathParts(VisitorPath { id }): PathParts<VisitorPath>,
    request: Request,
) -> JsonAnswer<WrittenAttributes> {
    write(&app, visitor_owner(&id), request).await
}

/// Writes attributes of the visitor of an alternate id. An invalid attribute is refused alone.
#[utoipa::path(
    put,
    path = "/admin/v1/lookups/{kind}/{value}/attributes",
    params(LookupPath, TenantQuery),
    request_body = AttributeWrite,
    responses(
        (status = 200, description = "The written and the refused attributes.", body = WrittenAttributes),
        (
            status = 400,
            description = "`refused`: nothing was written; `field` is the name of the first refused attribute. \
                `bad_json`: the body is invalid."
        ),
        (status = 404, description = "`unknown_visitor`: no visitor was seen with the id."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn write_lookup_attributes(
    State(app): State<Arc<ApiState>>,
    PathParts(LookupPath { kind, value }): PathParts<LookupPath>,
    request: Request,
) -> JsonAnswer<WrittenAttributes> {
    write(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

async fn show_attributes(app: &ApiState, owner: PathOwner, request: Request) -> JsonAnswer<AttributeLists> {
    let (parts, _) = request.into_parts();
    let (_, _, answer) = read_owner(app, &parts, TokenRole::Viewer, owner, attributes::describe_attributes).await?;
    Ok(Json(answer))
}

async fn write(app: &ApiState, owner: PathOwner, request: Request) -> JsonAnswer<WrittenAttributes> {
    let (parts, body) = request.into_parts();
    admit(app, &parts, TokenRole::Operator).await?;
    let write: AttributeWrite = read_json(body).await?;
    let wanted = write.clone();
    let after = move |view: &StoreView<'_>, of: &VisitorView| attributes::stamp_after(view, of, &wanted);
    let (tenant, visitor, after) = read_owner(app, &parts, TokenRole::Operator, owner, after).await?;
    let (now, id) = (app.dated()?.max(after), random_bytes()?);
    let checked = |names: &NameDictionary| attributes::attribute_facts(names, visitor, &write, now, id);
    let (facts, mut rejected) = checked(&names_of(app, &tenant).await?);
    if !facts.is_empty() {
        // The answer uses the names after the fold: of two calls that write a new name at once, the first decides its
        // type.
        app.take_with(&tenant, facts, None, AFTER_ALL).await?;
        rejected = checked(&names_of(app, &tenant).await?).1;
    }
    let written = write.set.len() + write.remove.len() - rejected.len();
    if written == 0 {
        let refused = rejected.into_iter().next();
        let (name, message) =
            refused.map_or(("set".to_owned(), "nothing is written".to_owned()), |r| (r.name, r.message));
        return Err(ApiError::field(name, "refused", message));
    }
    Ok(Json(WrittenAttributes { visitor: visitor.to_string(), written, rejected }))
}

async fn names_of(app: &ApiState, tenant: &TenantContext) -> Result<NameDictionary, ApiError> {
    let no = tenant.no;
    Ok(app.opened()?.readers.read(move |view| names::load_dictionary(view.conn, no)).await?)
}

/// The page of names that a call reads.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct NamesQuery {
    /// Number of the page, from 0. A page has 1,000 names.
    #[serde(default)]
    page: usize,
}

/// Lists the attribute names of a tenant in the order of their first use, 1,000 a page.
#[utoipa::path(
    get,
    path = "/admin/v1/attributes",
    params(NamesQuery, TenantQuery),
    responses((status = 200, description = "A page of names.", body = AttributeNamePage)),
    security(("bearer" = ["viewer"]))
)]
async fn list_attribute_names(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<AttributeNamePage> {
    let (parts, _) = request.into_parts();
    let (_, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = |_| ApiError::field("page", "bad_query", "a page is a number from 0 on");
    let Query(NamesQuery { page }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    Ok(Json(attributes::names_page(&names_of(&app, &known).await?, page)))
}

/// Forgets attribute names, for example names that strangers used up.
///
/// A name that the catalogue, an audience or a send uses is refused. The job `trim` removes the values, and a day later
/// new names can use the room.
#[utoipa::path(
    post,
    path = "/admin/v1/attributes/forget",
    params(TenantQuery),
    request_body = ForgetNames,
    responses(
        (status = 200, description = "The plan of a dry run.", body = ForgetPlanAnswer),
        (
            status = 202,
            description = "The names are forgotten, and the run removes the values.",
            body = ForgottenAttributes
        ),
        (
            status = 400,
            description = "`bad_json`, `bad_reason`, or `bad_names`: no attribute has one of the names, or no name or \
                too many names are given."
        ),
        (
            status = 409,
            description = "`in_use`: the catalogue, an audience or a send uses a name, which the message names. \
                Nothing was changed."
        ),
    ),
    security(("bearer" = ["operator"]))
)]
async fn forget_attribute_names(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, tenant, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let ForgetNames { names, dry_run, reason } = read_json(body).await?;
    let attribution = token.attribution(checked_reason(reason)?);
    // Values may be acknowledged and not folded yet: their fold would bring the names again.
    app.fold_before(&tenant).await;
    if dry_run {
        let plan =
            live.readers.read_heavy(move |view| match forget_names::plan_forgetting(view.conn, &tenant, &names) {
                Err(ForgetError::Store(e)) => Err(e),
                plan => Ok(plan),
            });
        return Ok(Json(plan.await?.map_err(forget_error)?.to_answer(false)).into_response());
    }
    let rules = Arc::clone(&live.rules);
    let forgotten = names.iter().cloned().collect();
    let run = move |conn: &mut Connection| {
        forget_names::mark_names(conn, &rules, write_txn::draw_inputs()?, &tenant, &names, &attribution)
    };
    write_store(&app, run).await?.map_err(forget_error)?;
    let answer = ForgottenAttributes { names: forgotten, run: start_run(live, JobKind::Trim).await? };
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

fn forget_error(e: ForgetError) -> ApiError {
    let message = e.to_string();
    match e {
        ForgetError::Number | ForgetError::Unknown(_) => ApiError::field("names", "bad_names", message),
        ForgetError::Used { .. } => ApiError::new(StatusCode::CONFLICT, "in_use", message),
        ForgetError::Store(e) => ApiError::unwritten(&e),
    }
}
