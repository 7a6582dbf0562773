//! People on the admin side, a page at a time.

use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::routing::get;
use causeway_shared::base::ids::VisitorId;
use serde::Deserialize;
use serde_json::json;

use super::asked::{Answer, ById, PathParts, admit_to, visitor_id};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::identity::directory;
use crate::store::tenants::TenantContext;
use crate::views::read::StoreView;

/// People or visitors on one page.
const PAGE: usize = 1_000;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/admin/v1/people", get(list_people)).route("/admin/v1/people/{id}", get(show_person))
}

/// From where on, and how many.
#[derive(Debug, Deserialize)]
struct PeopleQuery {
    after: Option<String>,
    limit: Option<String>,
}

impl PeopleQuery {
    fn of<T: FromStr>(uri: &Uri) -> Result<(Option<T>, usize), ApiError> {
        let paged: Result<Query<Self>, QueryRejection> = Query::try_from_uri(uri);
        let bad = |what| {
            ApiError::field(
                what,
                "bad_query",
                format!("`after` is `next` of the page before, or a visitor id, `limit` 1 to {PAGE}"),
            )
        };
        let Query(Self { after, limit }) = paged.map_err(|_| bad("limit"))?;
        // What is empty is not said.
        let said = |text: &String| !text.is_empty();
        let after = after.filter(said).map(|after| after.parse()).transpose().map_err(|_| bad("after"))?;
        let limit =
            limit.filter(said).map(|limit| limit.parse()).transpose().map_err(|_| bad("limit"))?.unwrap_or(PAGE);
        if (1..=PAGE).contains(&limit) { Ok((after, limit)) } else { Err(bad("limit")) }
    }
}

async fn list_people(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, TenantContext { no, .. }) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let (after, limit) = PeopleQuery::of::<VisitorId>(&parts.uri)?;
    let read = move |view: &StoreView<'_>| directory::list_people(view.conn, no, after, limit, directory::LOOKED);
    let (people, next) = live.readers.read(read).await?;
    Ok(axum::Json(json!({ "people": people, "next": next })).into_response())
}

async fn show_person(State(app): State<Arc<ApiState>>, PathParts(id): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, TenantContext { no, .. }) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let (after, limit) = PeopleQuery::of(&parts.uri)?;
    let of = visitor_id("id", &id)?;
    let found = live.readers.read(move |view| directory::list_visitors(view.conn, no, of, after, limit)).await?;
    let unknown = || {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "unknown_visitor",
            "the store has no such visitor, or `after` is another's",
        )
    };
    Ok(axum::Json(found.ok_or_else(unknown)?).into_response())
}
