//! Experiments on the admin side.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::get;

use super::asked::{Answer, ById, Place, admit_to};
use super::{ApiError, App};
use crate::api::tokens::Role;
use crate::base::clock;
use crate::campaigns::experiment::results;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/admin/v1/experiments/{id}", get(show))
}

async fn show(State(app): State<Arc<App>>, Place(id): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, tenant) = admit_to(&app, &parts, Role::Viewer).await?;
    let now = clock::now();
    let found = live.readers.read(move |view| results::show(view.conn, &tenant, &id, now)).await?;
    let unknown = || {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "unknown_experiment",
            "the tenant's catalogue has no experiment of that id",
        )
    };
    Ok(axum::Json(found.ok_or_else(unknown)?).into_response())
}
