//! Experiments on the admin side.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::get;

use super::asked::{Answer, ById, PathParts, admit_to};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::campaigns::experiment::results;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/admin/v1/experiments/{id}", get(show_experiment))
}

async fn show_experiment(State(app): State<Arc<ApiState>>, PathParts(id): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, tenant) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let now = clock::now();
    let found = live.readers.read(move |view| results::describe_experiment(view.conn, &tenant, &id, now)).await?;
    let unknown = || {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "unknown_experiment",
            "the tenant's catalogue has no experiment of that id",
        )
    };
    Ok(axum::Json(found.ok_or_else(unknown)?).into_response())
}
