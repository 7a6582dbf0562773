//! Audiences on the admin side: how many a filter means, by a sample and exactly, who they are, and when each is best reached.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use causeway_shared::audience::index::PeopleMeasure;
use causeway_shared::base::ids::Millis;
use causeway_shared::targeting::filter::Filter;
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::asked::{Answer, ById, PathParts, admit_to, read_json, segment_id, write};
use super::{ApiError, ApiState, OpenStore};
use crate::api::tokens::TokenRole;
use crate::audience::materialized::{self, MaterialiseError, MaterializedAudience};
use crate::audience::query::{self, AllMembers, AnswerError, MemberFormat, SampleRequest};
use crate::audience::schedule;
use crate::base::clock;
use crate::base::job_kinds::{JobKind, Trigger};
use crate::jobs::runs::RunRequest;
use crate::store::tenants::TenantContext;

/// Members in one piece of a streamed answer.
const PIECE: usize = 2_000;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/admin/v1/audience/estimate", post(estimate_audience))
        .route("/admin/v1/audience/members", post(list_members))
        .route("/admin/v1/audiences", get(list_audiences))
        .route("/admin/v1/audiences/{segment}", get(show_audience).put(materialise_audience).delete(let_go))
        .route("/admin/v1/audience/schedule", post(show_schedule))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EstimateRequest {
    filter: Value,
    precision: Option<f64>,
    measure: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MembersRequest {
    filter: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleRequest {
    filter: Value,
    from_ms: Option<Millis>,
    #[serde(default = "week_hours")]
    hours: u32,
}

fn week_hours() -> u32 {
    168
}

/// Looks at a sample until it is precise enough. Each look is a line where the caller takes NDJSON, else the last one alone
/// is told.
async fn estimate_audience(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let asked: EstimateRequest = read_json(body).await?;
    let filter = read_filter(live, &known, asked.filter).await?;
    let measure = match &asked.measure {
        Some(name) => Some(read_measure(live, &known, name).await?),
        None => None,
    };
    let random = u64::from_be_bytes(super::random_bytes()?);
    let sampling = SampleRequest { precision: asked.precision.unwrap_or(query::PRECISION), measure, random };
    let (audience, now) = (live.audience.clone(), clock::now());
    let (told, mut reports) = mpsc::unbounded_channel();
    let mut looking = Box::pin(live.readers.read_heavy(move |view| {
        let tell = |report| told.send(report).unwrap_or_default();
        Ok(query::estimate_count(&audience, view.conn, known.no, &filter, &sampling, now, tell))
    }));
    let (name, takes_lines) = (asked.measure, accepted_format(&parts.headers) == Some(MemberFormat::Ndjson));
    let said = move |report: &query::SampleReport| report.to_json(name.as_deref(), started.elapsed());
    if !takes_lines {
        looking.await?.map_err(query_error)?;
        let mut last = None;
        while let Ok(report) = reports.try_recv() {
            last = Some(said(&report));
        }
        return Ok(axum::Json(last).into_response());
    }
    // What is refused at once is an error; after the first line a stream can only end.
    let first = tokio::select! {
        biased;
        Some(first) = reports.recv() => Some(first),
        ended = &mut looking => {
            ended?.map_err(query_error)?;
            None
        }
    };
    let lines = stream::unfold((first, reports, said), |(first, mut reports, said)| async move {
        let report = match first {
            Some(first) => first,
            None => reports.recv().await?,
        };
        let line = format!("{}\n", said(&report));
        Some((Ok::<_, Infallible>(Bytes::from(line)), (None, reports, said)))
    });
    Ok(([(header::CONTENT_TYPE, MemberFormat::Ndjson.media_type())], Body::from_stream(lines)).into_response())
}

/// Counts who is meant, or streams them where the caller takes NDJSON or CSV.
async fn list_members(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let MembersRequest { filter: document } = read_json(body).await?;
    let filter = read_filter(live, &known, document).await?;
    let (audience, now, lines) = (live.audience.clone(), clock::now(), accepted_format(&parts.headers));
    let Some(lines) = lines else {
        let count =
            live.readers.read_heavy(move |view| Ok(query::count_exactly(&audience, view.conn, known.no, &filter, now)));
        let exact = count.await?.map_err(query_error)?;
        return Ok(axum::Json(exact.to_json(started.elapsed())).into_response());
    };
    let permit = live.readers.open_stream().await?;
    let all =
        live.readers.read_heavy(move |view| Ok(query::list_members(&audience, view.conn, known.no, &filter, now)));
    let AllMembers { members, unreadable, as_of } = all.await?.map_err(query_error)?;
    let head = std::iter::once(lines.head().to_owned());
    let pieces = (0..members.len().div_ceil(PIECE)).map(move |piece| {
        let some = members.iter().skip(piece * PIECE).take(PIECE);
        some.fold(String::with_capacity(PIECE * 52), |text, member| lines.one(text, *member))
    });
    let pieces = head.chain(pieces).map(move |text| {
        let _held_until_written = &permit;
        Ok::<_, Infallible>(Bytes::from(text))
    });
    Ok((answer_headers(lines, as_of, unreadable), Body::from_stream(stream::iter(pieces))).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AudienceRequest {
    filter: Value,
    hours: u32,
    #[serde(default)]
    every_hours: u32,
}

async fn list_audiences(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let found = live.readers.read(move |view| materialized::list_audiences(view.conn, Some(known.no))).await?;
    let told: Vec<Value> = found.iter().map(|kept| kept.describe(&live.rules.tenants)).collect();
    Ok(axum::Json(json!({ "audiences": told })).into_response())
}

async fn show_audience(State(app): State<Arc<ApiState>>, PathParts(segment): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let segment = segment_id(&segment)?;
    let found = live.readers.read(move |view| materialized::list_audiences(view.conn, Some(known.no))).await?;
    let kept = found.iter().find(|kept| kept.segment == segment).ok_or_else(unknown_audience)?;
    Ok(axum::Json(kept.describe(&live.rules.tenants)).into_response())
}

fn unknown_audience() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown_audience", "no audience is kept as that segment")
}

/// Keeps an audience as a segment from now on; the job writes it.
async fn materialise_audience(State(app): State<Arc<ApiState>>, PathParts(segment): ById, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let segment = segment_id(&segment)?;
    let AudienceRequest { filter: document, hours, every_hours } = read_json(body).await?;
    let filter = read_filter(live, &known, document.clone()).await?;
    let kept = MaterializedAudience::new((known.no, segment), (&filter, &document), (hours, every_hours), clock::now());
    let kept = kept.map_err(|e| materialise_error(&e))?;
    let told = kept.describe(&live.rules.tenants);
    write(&app, move |conn| kept.keep(conn, &known)).await?.map_err(|e| materialise_error(&e))?;
    Ok((
        StatusCode::ACCEPTED,
        axum::Json(json!({ "audience": told, "run": start_run(live, JobKind::Materialise).await? })),
    )
        .into_response())
}

/// Lets one go; the job takes its members out.
async fn let_go(State(app): State<Arc<ApiState>>, PathParts(segment): ById, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Operator).await?;
    let segment = segment_id(&segment)?;
    let dropped =
        write(&app, move |conn| Ok(MaterializedAudience::drop(conn, known.no, segment, clock::now())?)).await?;
    if !dropped.map_err(|e| materialise_error(&e))? {
        return Err(unknown_audience());
    }
    Ok((StatusCode::ACCEPTED, axum::Json(json!({ "run": start_run(live, JobKind::Materialise).await? })))
        .into_response())
}

fn materialise_error(e: &MaterialiseError) -> ApiError {
    match e {
        MaterialiseError::Hours => ApiError::field("hours", "bad_hours", e.to_string()),
        MaterialiseError::Every(_) => ApiError::field("every_hours", "bad_hours", e.to_string()),
        MaterialiseError::Itself(_) | MaterialiseError::Circle(_) => {
            ApiError::field("filter", "asks_itself", e.to_string())
        }
        MaterialiseError::TooMany | MaterialiseError::Events(_) => {
            ApiError::new(StatusCode::CONFLICT, "too_many", e.to_string())
        }
        MaterialiseError::Store(e) => ApiError::unwritten(e),
    }
}

/// The run of a job that does what is due: one that waits or is under way takes it along.
pub(super) async fn start_run(live: &OpenStore, job: JobKind) -> Result<Value, ApiError> {
    let asked = RunRequest { job, tenant: None, trigger: Trigger::Signal, dry_run: false };
    let jobs = live.jobs.clone();
    let run = tokio::task::spawn_blocking(move || jobs.ask(asked, clock::now())).await;
    let run = run.ok().and_then(Result::ok).map(|run| run.unwrap_or_else(|run| run));
    let failed = || ApiError::unavailable("store", "it is kept, and done with the job's next run");
    Ok(run.ok_or_else(failed)?.describe(&live.rules.tenants))
}

/// Streams the next best moment of each who is meant. Each piece is read by itself: nobody waits for a reader meanwhile.
async fn show_schedule(State(app): State<Arc<ApiState>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let (live, known) = admit_to(&app, &parts, TokenRole::Viewer).await?;
    let asked: ScheduleRequest = read_json(body).await?;
    let filter = read_filter(live, &known, asked.filter).await?;
    let now = clock::now();
    let window = schedule::checked_window(asked.from_ms.unwrap_or(now), asked.hours, now)
        .map_err(|message| ApiError::field("hours", "bad_window", message))?;
    let (audience, no) = (live.audience.clone(), known.no);
    let permit = live.readers.open_stream().await?;
    let all = live.readers.read_heavy(move |view| Ok(query::list_members(&audience, view.conn, no, &filter, now)));
    let AllMembers { members, unreadable, as_of } = all.await?.map_err(query_error)?;
    let lines = accepted_format(&parts.headers).unwrap_or(MemberFormat::Ndjson);
    let given = (live.readers.clone(), Arc::new((known, members, window, permit)));
    let pieces = stream::try_unfold((given, 0), move |((readers, asked), from)| async move {
        let read = Arc::clone(&asked);
        if from >= read.1.len() {
            return Ok(None);
        }
        let piece = readers.read_on(move |view| {
            let (known, members, window, _) = &*read;
            let some = members.get(from..members.len().min(from + PIECE)).unwrap_or_default();
            schedule::send_moments(view.conn, known, some, window, now)
        });
        let text = schedule::format_moments(lines, &piece.await.map_err(std::io::Error::other)?);
        Ok::<_, std::io::Error>(Some((Bytes::from(text), ((readers, asked), from + PIECE))))
    });
    let pieces = stream::iter([Ok(Bytes::from(schedule::format_head(lines)))]).chain(pieces);
    Ok((answer_headers(lines, as_of, unreadable), Body::from_stream(pieces)).into_response())
}

fn answer_headers(lines: MemberFormat, as_of: Millis, unreadable: u64) -> [(header::HeaderName, String); 3] {
    let as_of = (header::HeaderName::from_static("x-as-of-ms"), as_of.to_string());
    let unreadable = (header::HeaderName::from_static("x-unreadable"), unreadable.to_string());
    [(header::CONTENT_TYPE, lines.media_type().to_owned()), as_of, unreadable]
}

/// In which form a caller takes many; `None` for a caller that takes one answer.
pub(super) fn accepted_format(headers: &HeaderMap) -> Option<MemberFormat> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    [MemberFormat::Ndjson, MemberFormat::Csv].into_iter().find(|lines| accept.contains(lines.media_type()))
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
    }
}
