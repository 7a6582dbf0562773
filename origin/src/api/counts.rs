//! Counts of a person's actions on the admin side.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use causeway_shared::base::ids::Millis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{JsonAnswer, TenantQuery, bearer_token, check_role, named_tenant, read, read_body};
use super::listener::{RequestProof, record_proof};
use super::{ApiError, ApiState};
use crate::api::tokens::{self, TokenRole};
use crate::base::clock;
use crate::store::tenants::TenantContext;
use crate::views::count::{self, CountError, CountRequest, EntityName, GroupRequest, GroupRow};
use crate::views::read::StoreView;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(count_actions)).routes(routes!(group_actions))
}

/// Counts of actions.
#[derive(Debug, Serialize, ToSchema)]
struct CountAnswer {
    /// Number of actions by id, as the question names the ids.
    counts: BTreeMap<String, u32>,
}

/// Groups of actions with their counts.
#[derive(Debug, Serialize, ToSchema)]
struct GroupList {
    /// The groups in the order of their codes, at most 10,000.
    groups: Vec<GroupRow>,
}

/// Counts the actions of a person on ads, ad groups, campaigns or advertisers.
///
/// The counts contain every fact of an acknowledged sync.
#[utoipa::path(
    post,
    path = "/admin/v1/counts",
    params(TenantQuery),
    request_body(content = CountRequest, example = json!({
        "visitor": "01930000-0000-7000-8000-000000000001",
        "actions": ["impression"],
        "last": {"interval": 7, "unit": "days"},
        "level": "campaign",
        "ids": [1, 2]
    })),
    responses(
        (status = 200, description = "The count of each id.", body = CountAnswer),
        (status = 404, description = "`unknown_visitor`: no fact of the visitor ever arrived."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn count_actions(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<CountAnswer> {
    let counts = answer_count(&app, request, |view, tenant, question: &CountRequest, now| {
        count::count_actions(view, tenant, question, now)
    });
    // A code and an id may be the same text: an object has each key once.
    let text = |name| match name {
        EntityName::Code(code) => code.to_string(),
        EntityName::Id(id) => id,
    };
    let counts = counts.await?.into_iter().map(|(name, count)| (text(name), count)).collect();
    Ok(Json(CountAnswer { counts }))
}

/// Counts the actions of a person in groups, by any dimensions.
#[utoipa::path(
    post,
    path = "/admin/v1/counts/groups",
    params(TenantQuery),
    request_body(content = GroupRequest, example = json!({
        "visitor": "01930000-0000-7000-8000-000000000001",
        "by": ["campaign", "action"],
        "last": {"interval": 7, "unit": "days"}
    })),
    responses(
        (status = 200, description = "The groups with their counts.", body = GroupList),
        (status = 404, description = "`unknown_visitor`: no fact of the visitor ever arrived."),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn group_actions(State(app): State<Arc<ApiState>>, request: Request) -> JsonAnswer<GroupList> {
    let groups = answer_count(&app, request, |view, tenant, question: &GroupRequest, now| {
        count::list_groups(view, tenant, question, now)
    });
    Ok(Json(GroupList { groups: groups.await? }))
}

/// Reads a question and answers it from the store. The same read checks the token, because a count is faster than the
/// start of a second read.
async fn answer_count<Q: DeserializeOwned + Send + 'static, A: Send + 'static>(
    app: &ApiState,
    request: Request,
    answer: impl Fn(&StoreView<'_>, &TenantContext, &Q, Millis) -> Result<A, CountError> + Send + 'static,
) -> Result<A, ApiError> {
    let (parts, body) = request.into_parts();
    let (live, token) = bearer_token(app, &parts.headers)?;
    let bytes = read_body(body).await?;
    let now = clock::now();
    let rules = Arc::clone(&live.rules);
    let found = live.readers.read(move |view| {
        let token = tokens::find_token(view.conn, &token, now)?;
        let token = check_role(token, TokenRole::Viewer).inspect(|_| record_proof(&parts, RequestProof::Token));
        let tenant = token.and_then(|token| named_tenant(&rules.tenants, &token, &parts.uri));
        let admitted = tenant.and_then(|tenant| Ok((tenant, read(&bytes)?)));
        let (tenant, question) = match admitted {
            Ok(admitted) => admitted,
            Err(refused) => return Ok(Err(refused)),
        };
        match answer(view, &tenant, &question, now) {
            Err(CountError::Store(e)) => Err(e),
            Err(CountError::Field(name, message)) => Ok(Err(ApiError::field(name, "out_of_bounds", message))),
            Err(e) => Ok(Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_visitor", e.to_string()))),
            Ok(found) => Ok(Ok(found)),
        }
    });
    found.await?
}
