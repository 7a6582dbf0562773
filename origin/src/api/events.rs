//! Names of events that audiences count: listed, declared, and taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;

use super::asked::{Answer, ForgetNames, admit_as, admit_to, checked_reason, read_json, write};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::store::names::events::{self, EventNameError};

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/admin/v1/events", get(list_names))
        .route("/admin/v1/events/declare", post(declare_names))
        .route("/admin/v1/events/forget", post(forget_names))
}

async fn list_names(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let names = live.readers.read(move |view| events::list_names(view.conn, known.no)).await?;
    Ok(axum::Json(json!({ "names": names })).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclareRequest {
    names: BTreeSet<String>,
}

async fn declare_names(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (_, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let DeclareRequest { names } = read_json(body).await?;
    let declared = json!({ "names": names, "done": true });
    write(&app, move |conn| events::declare_names(conn, known.no, &names, clock::now()))
        .await?
        .map_err(event_name_error)?;
    Ok(axum::Json(declared).into_response())
}

async fn forget_names(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known, token) = admit_as(&app, &parts, TokenRole::Operator).await?;
    let ForgetNames { names, dry_run, reason: why } = read_json(body).await?;
    let said = token.attribution(checked_reason(why)?);
    // Events may be acknowledged and not stored yet: with them the names would come back.
    app.fold_before(&known).await;
    let rules = Arc::clone(&live.rules);
    let run = move |conn: &mut rusqlite::Connection| {
        let plan = crate::maintenance::forget_event_names::plan_forget(conn, &known, &names)?;
        if !dry_run {
            crate::maintenance::forget_event_names::forget_names(
                conn,
                &rules,
                crate::store::write_txn::draw_inputs()?,
                &known,
                &names,
                &said,
            )?;
        }
        Ok(plan)
    };
    let plan = write(&app, run).await?.map_err(event_name_error)?;
    Ok(axum::Json(json!({ "names": plan, "done": !dry_run })).into_response())
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
