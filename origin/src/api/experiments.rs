//! Experiments on the admin side.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{JsonAnswer, PathParts, TenantQuery, admit_to};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::base::clock;
use crate::campaigns::experiment::results::{self, ExperimentAnswer};

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(show_experiment))
}

/// The experiment that a call names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ExperimentPath {
    /// Id of the experiment in the catalogue.
    id: String,
}

/// Shows the results of an experiment: arms, traffic, conversions, and the uplift of each arm against the control.
#[utoipa::path(
    get,
    path = "/admin/v1/experiments/{id}",
    params(ExperimentPath, TenantQuery),
    responses(
        (status = 200, description = "The results until now.", body = ExperimentAnswer),
        (
            status = 404,
            description = "`unknown_experiment`: no version of the tenant's catalogue has an experiment of this id."
        ),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_experiment(
    State(app): State<Arc<ApiState>>,
    PathParts(ExperimentPath { id }): PathParts<ExperimentPath>,
    request: Request,
) -> JsonAnswer<ExperimentAnswer> {
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
    Ok(Json(found.ok_or_else(unknown)?))
}
