//! Questions about audiences on the admin side: the number of people who match a filter, by a sample and exactly, the
//! people, and the best send time of each.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse as _;
use causeway_shared::audience::index::PeopleMeasure;
use causeway_shared::base::ids::Millis;
use causeway_shared::targeting::filter::Filter;
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::{Answer, TenantQuery, admit_to, read_json};
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::TokenRole;
use crate::audience::answers::{EstimateAnswer, MemberCount, MemberLine, SendMomentLine};
use crate::audience::query::{self, AllMembers, AnswerError, MemberFormat, SampleReport, SampleRequest};
use crate::audience::schedule;
use crate::base::clock;
use crate::store::tenants::TenantContext;

/// Members in one piece of a streamed answer.
const PIECE: usize = 2_000;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(estimate_audience)).routes(routes!(list_members)).routes(routes!(show_schedule))
}

/// The estimate that a call wants.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EstimateRequest {
    /// Filter of the people, as in docs/CATALOGUE.md; `{}` matches all people.
    #[schema(value_type = Object)]
    filter: Value,
    /// Half the width of the interval at which the sample is large enough, as a share of all people.
    #[schema(minimum = 0.00001, maximum = 0.5, default = 0.002)]
    precision: Option<f64>,
    /// Measure that is summed up and averaged over the people who match: `revenue_micros`, `purchases`, `pages`,
    /// `sessions`, `devices`, or `attributes.NAME` of a bool or an integer.
    measure: Option<String>,
}

/// The people that a call wants.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MembersRequest {
    /// Filter of the people, as in docs/CATALOGUE.md; `{}` matches all people.
    #[schema(value_type = Object)]
    filter: Value,
}

/// The best send times that a call wants.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ScheduleRequest {
    /// Filter of the people, as in docs/CATALOGUE.md; `{}` matches all people.
    #[schema(value_type = Object)]
    filter: Value,
    /// Start of the window. Default: now.
    #[schema(value_type = Option<u64>)]
    from_ms: Option<Millis>,
    /// Hours of the window.
    #[serde(default = "week_hours")]
    #[schema(minimum = 1, maximum = 8784)]
    hours: u32,
}

fn week_hours() -> u32 {
    168
}

/// Estimates how many people match a filter, from a random sample that grows until the interval is narrow enough.
///
/// The answer is the last estimate. With `accept: application/x-ndjson` each step of the sample is a line.
#[utoipa::path(
    post,
    path = "/admin/v1/audience/estimate",
    params(TenantQuery),
    request_body(content = EstimateRequest, example = json!({
        "filter": {"attributes.language": "es", "events.beat_level_2": {"$count": 0}},
        "precision": 0.002,
        "measure": "revenue_micros"
    })),
    responses(
        (
            status = 200,
            description = "The last estimate, or a line for each.",
            content((EstimateAnswer = "application/json"), (EstimateAnswer = "application/x-ndjson"))
        ),
        (
            status = 400,
            description = "The filter, the precision or the measure is invalid; `field` and `message` say where and \
                why. `too_wide`: the store would have to read too many people."
        ),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn estimate_audience(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let wanted: EstimateRequest = read_json(body).await?;
    let filter = read_filter(live, &known, wanted.filter).await?;
    let measure = match &wanted.measure {
        Some(name) => Some(read_measure(live, &known, name).await?),
        None => None,
    };
    let random = u64::from_be_bytes(super::random_bytes()?);
    let sampling = SampleRequest { precision: wanted.precision.unwrap_or(query::PRECISION), measure, random };
    let (audience, now) = (live.audience.clone(), clock::now());
    let (sender, mut reports) = mpsc::unbounded_channel();
    let mut sample = Box::pin(live.readers.read_heavy(move |view| {
        let report = |report| sender.send(report).unwrap_or_default();
        Ok(query::estimate_count(&audience, view.conn, known.no, &filter, &sampling, now, report))
    }));
    let (name, wants_lines) = (wanted.measure, accepted_format(&parts.headers) == Some(MemberFormat::Ndjson));
    let answer = move |report: &SampleReport| report.to_answer(name.as_deref(), started.elapsed());
    if !wants_lines {
        sample.await?.map_err(query_error)?;
        let mut last = None;
        while let Ok(report) = reports.try_recv() {
            last = Some(answer(&report));
        }
        return Ok(Json(last).into_response());
    }
    // A refusal before the first line is an error; after it the stream can only end.
    let first = tokio::select! {
        biased;
        Some(first) = reports.recv() => Some(first),
        ended = &mut sample => {
            ended?.map_err(query_error)?;
            None
        }
    };
    let lines = stream::unfold((first, reports, answer), |(first, mut reports, answer)| async move {
        let report = match first {
            Some(first) => first,
            None => reports.recv().await?,
        };
        let line = serde_json::to_string(&answer(&report)).unwrap_or_default() + "\n";
        Some((Ok::<_, Infallible>(Bytes::from(line)), (None, reports, answer)))
    });
    Ok(([(header::CONTENT_TYPE, MemberFormat::Ndjson.media_type())], Body::from_stream(lines)).into_response())
}

/// Counts the people who match a filter, exactly.
///
/// With `accept: application/x-ndjson` or `text/csv` the answer is a line for each person.
#[utoipa::path(
    post,
    path = "/admin/v1/audience/members",
    params(TenantQuery),
    request_body(content = MembersRequest, example = json!({
        "filter": {"attributes.language": "es", "events.beat_level_2": {"$count": 0}}
    })),
    responses(
        (
            status = 200,
            description = "The count, or a line for each person.",
            content((MemberCount = "application/json"), (MemberLine = "application/x-ndjson"), (String = "text/csv"))
        ),
        (
            status = 400,
            description = "The filter is invalid; `field` and `message` say where and why. `too_wide`: the store \
                would have to read too many people."
        ),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn list_members(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let MembersRequest { filter: document } = read_json(body).await?;
    let filter = read_filter(live, &known, document).await?;
    let (audience, now) = (live.audience.clone(), clock::now());
    let Some(format) = accepted_format(&parts.headers) else {
        let count =
            live.readers.read_heavy(move |view| Ok(query::count_exactly(&audience, view.conn, known.no, &filter, now)));
        let exact = count.await?.map_err(query_error)?;
        return Ok(Json(exact.to_answer(started.elapsed())).into_response());
    };
    let permit = live.readers.open_stream().await?;
    let all =
        live.readers.read_heavy(move |view| Ok(query::list_members(&audience, view.conn, known.no, &filter, now)));
    let AllMembers { members, unreadable, as_of } = all.await?.map_err(query_error)?;
    let head = std::iter::once(format.head().to_owned());
    let pieces = (0..members.len().div_ceil(PIECE)).map(move |piece| {
        let part = members.iter().skip(piece * PIECE).take(PIECE);
        part.fold(String::with_capacity(PIECE * 52), |text, member| format.one(text, *member))
    });
    let pieces = head.chain(pieces).map(move |text| {
        let _held_until_written = &permit;
        Ok::<_, Infallible>(Bytes::from(text))
    });
    Ok((answer_headers(format, as_of, unreadable), Body::from_stream(stream::iter(pieces))).into_response())
}

/// Streams the best send time within a window of each person who matches a filter, a line each.
///
/// The moment is in the person's best hour of the week, on the person's own clock. Where little is known of a person,
/// the best hour is that of the whole population (docs/AUDIENCES.md). The lines are NDJSON, or CSV where `accept` names
/// `text/csv`.
// Each piece is read by a transaction of its own, so that the stream holds no reader while the caller reads slowly.
#[utoipa::path(
    post,
    path = "/admin/v1/audience/schedule",
    params(TenantQuery),
    request_body(content = ScheduleRequest, example = json!({"filter": {"attributes.language": "es"}, "hours": 48})),
    responses(
        (
            status = 200,
            description = "A line for each person.",
            content((SendMomentLine = "application/x-ndjson"), (String = "text/csv"))
        ),
        (
            status = 400,
            description = "The filter or the window is invalid; `field` and `message` say where and why. `too_wide`: \
                the store would have to read too many people."
        ),
    ),
    security(("bearer" = ["viewer"]))
)]
async fn show_schedule(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let wanted: ScheduleRequest = read_json(body).await?;
    let filter = read_filter(live, &known, wanted.filter).await?;
    let now = clock::now();
    let window = schedule::checked_window(wanted.from_ms.unwrap_or(now), wanted.hours, now)
        .map_err(|message| ApiError::field("hours", "bad_window", message))?;
    let (audience, no) = (live.audience.clone(), known.no);
    let permit = live.readers.open_stream().await?;
    let all = live.readers.read_heavy(move |view| Ok(query::list_members(&audience, view.conn, no, &filter, now)));
    let AllMembers { members, unreadable, as_of } = all.await?.map_err(query_error)?;
    let format = accepted_format(&parts.headers).unwrap_or(MemberFormat::Ndjson);
    let context = (live.readers.clone(), Arc::new((known, members, window, permit)));
    let pieces = stream::try_unfold((context, 0), move |((readers, context), from)| async move {
        let of = Arc::clone(&context);
        if from >= of.1.len() {
            return Ok(None);
        }
        let piece = readers.read_on(move |view| {
            let (known, members, window, _) = &*of;
            let part = members.get(from..members.len().min(from + PIECE)).unwrap_or_default();
            schedule::send_moments(view.conn, known, part, window, now)
        });
        let text = schedule::format_moments(format, &piece.await.map_err(std::io::Error::other)?);
        Ok::<_, std::io::Error>(Some((Bytes::from(text), ((readers, context), from + PIECE))))
    });
    let pieces = stream::iter([Ok(Bytes::from(schedule::format_head(format)))]).chain(pieces);
    Ok((answer_headers(format, as_of, unreadable), Body::from_stream(pieces)).into_response())
}

fn answer_headers(format: MemberFormat, as_of: Millis, unreadable: u64) -> [(header::HeaderName, String); 3] {
    let as_of = (header::HeaderName::from_static("x-as-of-ms"), as_of.to_string());
    let unreadable = (header::HeaderName::from_static("x-unreadable"), unreadable.to_string());
    [(header::CONTENT_TYPE, format.media_type().to_owned()), as_of, unreadable]
}

/// Format of the lines that `accept` names; `None` for a caller that wants one answer.
pub(super) fn accepted_format(headers: &HeaderMap) -> Option<MemberFormat> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    [MemberFormat::Ndjson, MemberFormat::Csv].into_iter().find(|format| accept.contains(format.media_type()))
}

pub(super) async fn read_filter(live: &OpenStore, known: &TenantContext, document: Value) -> Result<Filter, ApiError> {
    let tenant = known.clone();
    let read = live.readers.read(move |view| query::parse_filter(view.conn, &tenant, &document)).await?;
    read.map_err(|found| ApiError::field("filter", "bad_filter", query::all_wrong(&found)))
}

async fn read_measure(live: &OpenStore, known: &TenantContext, name: &str) -> Result<PeopleMeasure, ApiError> {
    let (no, named) = (known.no, name.to_owned());
    let found = live.readers.read(move |view| query::find_measure(view.conn, no, &named)).await?;
    found.ok_or_else(|| ApiError::field("measure", "bad_measure", query::MEASURES))
}

fn query_error(e: AnswerError) -> ApiError {
    let message = e.to_string();
    match e {
        AnswerError::Building { .. } => ApiError::unavailable("building", message),
        AnswerError::Uncounted(..) => ApiError::field("filter", "uncounted", message),
        AnswerError::TooMany(_) => ApiError::field("filter", "too_wide", message),
        AnswerError::Precision => ApiError::field("precision", "bad_precision", message),
        AnswerError::Store(e) => ApiError::unread(&e),
        AnswerError::Panicked => ApiError::unread(&e),
    }
}
