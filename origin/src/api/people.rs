//! People on the admin side, a page at a time.

use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, Uri};
use causeway_shared::base::ids::VisitorId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{JsonAnswer, PathParts, TenantQuery, VisitorPath, admit_to, visitor_id};
use super::{ApiError, ApiState};
use crate::api::tokens::TokenRole;
use crate::identity::directory::{self, ListedPerson, PersonVisitors};
use crate::store::tenants::TenantContext;
use crate::views::read::StoreView;

/// Most people or visitors on one page.
const PAGE: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(list_people)).routes(routes!(show_person))
}

/// The page that a call reads.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PeopleQuery {
    /// `next` of the previous page.
    after: Option<String>,
    /// Most people or visitors on the page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<String>,
}

impl PeopleQuery {
    fn of<T: FromStr>(uri: &Uri) -> Result<(Option<T>, usize), ApiError> {
        let paged: Result<Query<Self>, QueryRejection> = Query::try_from_uri(uri);
        let bad = |what| {
            ApiError::field(
                what,
                "bad_query",
                format!("`after` is `next` of the previous page or a visitor id, `limit` 1 to {PAGE}"),
            )
        };
        let Query(Self { after, limit }) = paged.map_err(|_| bad("limit"))?;
        // An empty parameter counts as absent.
        let is_given = |text: &String| !text.is_empty();
        let after = after.filter(is_given).map(|after| after.parse()).transpose().map_err(|_| bad("after"))?;
        let limit =
            limit.filter(is_given).map(|limit| limit.parse()).transpose().map_err(|_| bad("limit"))?.unwrap_or(PAGE);
        if (1..=PAGE).contains(&limit) { Ok((after, limit)) } else { Err(bad("limit")) }
    }
}

/// A page of people.
#[derive(Debug, Serialize, ToSchema)]
struct PeoplePage {
    /// The people, in the order of their masters. A page may have fewer people than `limit`, or none, where many were
    /// erased.
    people: Vec<ListedPerson>,
    /// Value of `after` for the next page; null on the last page.
    #[schema(format = "uuid")]
    next: Option<String>,
}

/// Lists all people by their masters, the oldest first.
///
/// A visitor that withdrew its permission is a person of its own. An erased visitor is not listed.
#[utoipa::path(
    get,
    path = "/admin/v1/people",
    params(PeopleQuery, TenantQuery),
    responses((status = 200, description = "A page of people.", body = PeoplePage)),
    security(("bearer" = ["viewer"]))
)]
async fn list_people(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<PeoplePage> {
    let (parts, _) = request.into_parts();
    let (live, TenantContext { no, .. }) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let (after, limit) = PeopleQuery::of::<VisitorId>(&parts.uri)?;
    let read = move |view: &StoreView<'_>| directory::list_people(view.conn, no, after, limit, directory::LOOKED);
    let (people, next) = live.readers.read(read).await?;
    Ok(Json(PeoplePage { people, next }))
}

/// Shows the person of a visitor, with a page of its visitors.
#[utoipa::path(
    get,
    path = "/admin/v1/people/{id}",
    params(VisitorPath, PeopleQuery, TenantQuery),
    responses(
        (status = 200, description = "The person, with a page of its visitors.", body = PersonVisitors),
        (status = 404, description = "`unknown_visitor`: the store has no such visitor, or `after` is of another \
        person."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_person(
    State(app): State<Arc<ApiState>>,
    PathParts(VisitorPath { id }): PathParts<VisitorPath>,
    request: Request,
) -> JsonAnswer<PersonVisitors> {
    let (parts, _) = request.into_parts();
    let (live, TenantContext { no, .. }) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let (after, limit) = PeopleQuery::of(&parts.uri)?;
    let of = visitor_id("id", &id)?;
    let found = live.readers.read(move |view| directory::list_visitors(view.conn, no, of, after, limit)).await?;
    let unknown = || {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "unknown_visitor",
            "visitor not found, or `after` belongs to another person",
        )
    };
    Ok(Json(found.ok_or_else(unknown)?))
}
