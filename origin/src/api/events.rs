//! Names of the events that audiences count: listed, declared and forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{ForgetNames, JsonAnswer, TenantQuery, admit_as, admit_to, checked_reason, read_json, write};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::maintenance::forget_event_names::{self, ForgottenEventName};
use crate::store::names::events::{self, EventNameError, EventNameRow};
use crate::store::write_txn;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new()
        .routes(routes!(list_event_names))
        .routes(routes!(declare_event_names))
        .routes(routes!(forget_event_names))
}

/// The names of events that audiences count.
#[derive(Debug, Serialize, ToSchema)]
struct EventNameList {
    /// The names in alphabetical order.
    names: Vec<EventNameRow>,
}

/// Names of events that audiences count permanently.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DeclareRequest {
    /// The names, each of at most 128 bytes.
    #[schema(min_items = 1, max_items = 1000)]
    names: BTreeSet<String>,
}

/// Names of events that are declared.
#[derive(Debug, Serialize, ToSchema)]
struct DeclaredEventNames {
    /// The names.
    names: BTreeSet<String>,
    /// Whether the change was made: always true.
    done: bool,
}

/// Names of events that are forgotten, or would be by a dry run.
#[derive(Debug, Serialize, ToSchema)]
struct ForgottenEventNames {
    /// The names.
    names: Vec<ForgottenEventName>,
    /// Whether the change was made: false for a dry run.
    done: bool,
}

/// Lists the names of events that audiences count: at most 1,000, in addition to `page` and `purchase`.
#[utoipa::path(
    get,
    path = "/admin/v1/events",
    params(TenantQuery),
    responses((status = 200, description = "The names.", body = EventNameList)),
    security(("bearer" = ["viewer"]))
)]
async fn list_event_names(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<EventNameList> {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let names = live.readers.read(move |view| events::list_names(view.conn, known.no)).await?;
    Ok(Json(EventNameList { names }))
}

/// Declares names of events, so that audiences count them permanently.
///
/// Where all places are taken, a declared name replaces a name that a page brought.
#[utoipa::path(
    post,
    path = "/admin/v1/events/declare",
    params(TenantQuery),
    request_body = DeclareRequest,
    responses(
        (status = 200, description = "The names are declared.", body = DeclaredEventNames),
        (
            status = 400,
            description = "`bad_json`, or `bad_names`: no name, too many names, or a name that no event can have."
        ),
        (status = 409, description = "`too_many`: declared names take all places. Nothing was changed."),
    ),
    security(("bearer" = ["operator"]))
)]
async fn declare_event_names(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<DeclaredEventNames> {
    let (parts, body) = request.into_parts();
    let (_, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let DeclareRequest { names } = read_json(body).await?;
    let declared = DeclaredEventNames { names: names.clone(), done: true };
    write(&app, move |conn| events::declare_names(conn, known.no, &names, clock::now()))
        .await?
        .map_err(event_name_error)?;
    Ok(Json(declared))
}

/// Forgets names of events, for example names that strangers used up.
///
/// A name that an audience, a send or an experiment uses is refused. The events stay stored; an audience that counts
/// such a name reads the store.
#[utoipa::path(
    post,
    path = "/admin/v1/events/forget",
    params(TenantQuery),
    request_body = ForgetNames,
    responses(
        (status = 200, description = "The forgotten names, or the plan of a dry run.", body = ForgottenEventNames),
        (
            status = 400,
            description = "`bad_json`, `bad_reason`, or `bad_names`: a name is not counted, or no name or too many \
                names are given."
        ),
        (
            status = 409,
            description = "`in_use`: an audience, a send or an experiment uses a name, which the message names. \
                Nothing was changed."
        ),
    ),
    security(("bearer" = ["operator"]))
)]
async fn forget_event_names(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<ForgottenEventNames> {
    let (parts, body) = request.into_parts();
    let (live, known, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let ForgetNames { names, dry_run, reason } = read_json(body).await?;
    let attribution = token.attribution(checked_reason(reason)?);
    // Events may be acknowledged and not folded yet: their fold would bring the names again.
    app.fold_before(&known).await;
    let rules = Arc::clone(&live.rules);
    let run = move |conn: &mut Connection| {
        let plan = forget_event_names::plan_forget(conn, &known, &names)?;
        if !dry_run {
            let inputs = write_txn::draw_inputs()?;
            forget_event_names::forget_names(conn, &rules, inputs, &known, &names, &attribution)?;
        }
        Ok(plan)
    };
    let names = write(&app, run).await?.map_err(event_name_error)?;
    Ok(Json(ForgottenEventNames { names, done: !dry_run }))
}

fn event_name_error(e: EventNameError) -> ApiError {
    let message = e.to_string();
    match e {
        EventNameError::Number | EventNameError::BadName | EventNameError::Unknown(_) => {
            ApiError::field("names", "bad_names", message)
        }
        EventNameError::Used { .. } => ApiError::new(StatusCode::CONFLICT, "in_use", message),
        EventNameError::Full(_) => ApiError::new(StatusCode::CONFLICT, "too_many", message),
        EventNameError::Store(e) => ApiError::unwritten(&e),
    }
}
