//! Attributes on the admin side: by visitor, by alternate id, and the tenant's names.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use causeway_shared::facts::attributes::NameDictionary;
use serde::Deserialize;
use serde_json::json;

use super::asked::{
    Answer, ById, ByLookup, ForgetNames, PathParts, admit, admit_as, admit_to, checked_reason, read_json,
    write as write_store,
};
use super::audience::start_run;
use super::segments::{Meant, read_owner, visitor_owner};
use super::{AFTER_ALL, ApiError, ApiState, random_bytes};
use crate::api::tokens::TokenRole;
use crate::base::job_kinds::JobKind;
use crate::maintenance::forget_names::{self, ForgetError};
use crate::store::names;
use crate::store::tenants::TenantContext;
use crate::views::attributes::{self, AttributeWrite};
use crate::views::read::{StoreView, VisitorView};
use crate::views::segments::SegmentOwner;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/admin/v1/attributes", get(show_names))
        .route("/admin/v1/attributes/forget", post(forget_names))
        .route("/admin/v1/visitors/{id}/attributes", get(show_visitor).put(write_visitor))
        .route("/admin/v1/lookups/{kind}/{value}/attributes", get(show_lookup).put(write_lookup))
}

async fn show_visitor(State(app): State<Arc<ApiState>>, PathParts(id): ById, request: Request) -> Answer {
    show_attributes(&app, visitor_owner(&id), request).await
}

async fn show_lookup(State(app): State<Arc<ApiState>>, PathParts((kind, value)): ByLookup, request: Request) -> Answer {
    show_attributes(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

async fn write_visitor(State(app): State<Arc<ApiState>>, PathParts(id): ById, request: Request) -> Answer {
    write(&app, visitor_owner(&id), request).await
}

async fn write_lookup(
    State(app): State<Arc<ApiState>>,
    PathParts((kind, value)): ByLookup,
    request: Request,
) -> Answer {
    write(&app, Ok(SegmentOwner::Lookup(kind, value)), request).await
}

async fn show_attributes(app: &ApiState, whose: Meant, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (_, _, answer) = read_owner(app, &parts, TokenRole::Viewer, whose, attributes::describe_attributes).await?;
    Ok(axum::Json(answer).into_response())
}

async fn write(app: &ApiState, whose: Meant, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    admit(app, &parts, TokenRole::Operator).await?;
    let write: AttributeWrite = read_json(body).await?;
    let said = write.clone();
    let after = move |view: &StoreView<'_>, of: &VisitorView| attributes::stamp_after(view, of, &said);
    let (tenant, visitor, after) = read_owner(app, &parts, TokenRole::Operator, whose, after).await?;
    let (now, id) = (app.dated()?.max(after), random_bytes()?);
    let checked = |names: &NameDictionary| attributes::attribute_facts(names, visitor, &write, now, id);
    let (facts, mut refused) = checked(&names_of(app, &tenant).await?);
    if !facts.is_empty() {
        // Answered once it is folded, by what the names are then: of two who write a new one at once, the first decides.
        app.take_with(&tenant, facts, None, AFTER_ALL).await?;
        refused = checked(&names_of(app, &tenant).await?).1;
    }
    let written = write.set.len() + write.remove.len() - refused.len();
    if written == 0 {
        let refused = refused.into_iter().next();
        let (name, message) =
            refused.map_or(("set".to_owned(), "nothing is written".to_owned()), |r| (r.name, r.message));
        return Err(ApiError::field(name, "refused", message));
    }
    let answer = json!({ "visitor": visitor.to_string(), "written": written, "rejected": refused });
    Ok(axum::Json(answer).into_response())
}

async fn names_of(app: &ApiState, tenant: &TenantContext) -> Result<NameDictionary, ApiError> {
    let no = tenant.no;
    Ok(app.opened()?.readers.read(move |view| names::load_dictionary(view.conn, no)).await?)
}

#[derive(Deserialize)]
struct NamesQuery {
    #[serde(default)]
    page: usize,
}

async fn show_names(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (_, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let bad = |_| ApiError::field("page", "bad_query", "a page is a number from 0 on");
    let Query(NamesQuery { page }) = Query::try_from_uri(&parts.uri).map_err(bad)?;
    Ok(axum::Json(attributes::names_page(&names_of(&app, &known).await?, page)).into_response())
}

/// Takes names back, and has the job remove their values; a dry run gives the plan alone.
async fn forget_names(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, tenant, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let ForgetNames { names, dry_run, reason: why } = read_json(body).await?;
    let said = token.attribution(checked_reason(why)?);
    // Values may be acknowledged and not stored yet: with them the names would come back.
    app.fold_before(&tenant).await;
    if dry_run {
        let plan =
            live.readers.read_heavy(move |view| match forget_names::plan_forgetting(view.conn, &tenant, &names) {
                Err(ForgetError::Store(e)) => Err(e),
                plan => Ok(plan),
            });
        return Ok(axum::Json(plan.await?.map_err(forget_error)?.to_json(false)).into_response());
    }
    let rules = Arc::clone(&live.rules);
    let forgotten: Vec<String> = names.iter().cloned().collect();
    let run = move |conn: &mut rusqlite::Connection| {
        forget_names::mark_names(conn, &rules, crate::store::write_txn::draw_inputs()?, &tenant, &names, &said)
    };
    write_store(&app, run).await?.map_err(forget_error)?;
    let answer = json!({ "names": forgotten, "run": start_run(live, JobKind::Trim).await? });
    Ok((StatusCode::ACCEPTED, axum::Json(answer)).into_response())
}

fn forget_error(e: ForgetError) -> ApiError {
    let message = e.to_string();
    match e {
        ForgetError::Number | ForgetError::Unknown(_) => ApiError::field("names", "bad_names", message),
        ForgetError::Used { .. } => ApiError::new(StatusCode::CONFLICT, "in_use", message),
        ForgetError::Store(e) => ApiError::unwritten(&e),
    }
}
