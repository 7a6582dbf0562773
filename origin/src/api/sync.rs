//! `POST /v1/sync` of an edge: authenticated by HMAC, and answered after all facts in it are durable.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::keys::sync_auth::{self, SignedHead, SyncAuthError};
use causeway_shared::wire::sync as wire;
use tokio::sync::{Semaphore, SemaphorePermit};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::listener::{RequestProof, record_proof};
use super::{ApiError, ApiState, unavailable_error};
use crate::base::clock;
use crate::ingest::intake;

/// Long bodies that are read in parallel: at most 64, together 256 MB.
pub(super) const LONG_BODIES: usize = 64;
/// Longest wait for a permit. The sync of an edge times out after ten seconds.
const PLACE_TIME: Duration = Duration::from_secs(2);
/// Longest short body in bytes. A sync without facts is short: its acknowledgements are a few kilobytes.
const SHORT_BYTES: u64 = 64 * 1024;

pub(super) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new().routes(routes!(answer_sync))
}

/// The headers that sign a sync. The origin checks them before it reads the body.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the headers that `verify_head` reads")]
struct SyncHeaders {
    /// Id of the sync key.
    #[param(rename = "x-causeway-key")]
    key: u32,
    /// Time of the signature in milliseconds since the Unix epoch, at most 5 minutes from the origin's clock.
    #[param(rename = "x-causeway-time")]
    time: u64,
    /// SHA-256 of the body, a dot, and the MAC over time and digest; both in base64url without padding.
    #[param(rename = "x-causeway-mac")]
    mac: String,
}

/// A sync or its answer: a CBOR document.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "describes the bytes of a sync")]
struct CborDocument(Vec<u8>);

/// Takes facts and acknowledgements of an edge, and hands out KV writes. The bodies are CBOR.
#[utoipa::path(
    post,
    path = "/v1/sync",
    params(SyncHeaders),
    request_body(content = CborDocument, content_type = "application/cbor", description = "A sync, at most 4 MiB."),
    responses(
        (
            status = 200,
            description = "All facts of the sync are durable.",
            body = CborDocument,
            content_type = "application/cbor"
        ),
        (status = 400, description = "The body is not a sync."),
        (status = 401, description = "The signature is missing, unknown, or more than 5 minutes off."),
        (status = 408, description = "The body did not arrive in time."),
        (status = 413, description = "The body has more than 4 MiB."),
        (status = 503, description = "The edge must send the sync again. Facts that are already stored count once."),
    )
)]
async fn answer_sync(State(app): State<Arc<ApiState>>, request: Request) -> Response {
    match take_sync(&app, request).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/cbor")], answer).into_response(),
        Err(refused) => {
            app.metrics.refuse(refused.status().as_u16());
            refused.into_response()
        }
    }
}

async fn take_sync(app: &ApiState, request: Request) -> Result<Vec<u8>, ApiError> {
    let (Some(live), Some(writer)) = (app.live(), app.writer()) else {
        return Err(ApiError::unavailable("not_ready", app.not_ready().unwrap_or("not ready")));
    };
    let (parts, body) = request.into_parts();
    // The signed head proves that the sender has the key, before the origin reads the body or takes a permit.
    match verify_head(app, clock::now(), &parts.headers) {
        Ok(_) => record_proof(&parts, RequestProof::Sync),
        Err(e) => {
            if e == SyncAuthError::Time && app.metrics.dated_ms.get() == 0 {
                note_clock_contradiction(app, &parts.headers, body).await;
            }
            return Err(auth_error(e));
        }
    }
    let (now, body) = {
        let _place = acquire_permit(&app.long_bodies, announced_length(&parts.headers), PLACE_TIME).await?;
        let body = read_body(&parts.headers, body).await?;
        // The body may have taken long: from here on this time counts, and the head is checked against it again.
        let now = clock::now();
        verify_head(app, now, &parts.headers).and_then(|head| head.verify_body(&body)).map_err(auth_error)?;
        let is_first = app.metrics.dated_ms.get() == 0;
        app.metrics.dated_ms.set(now);
        app.metrics.contradicted_ms.set(0);
        if is_first {
            live.jobs.wake();
        }
        (now, body)
    };
    let request = wire::decode_request(&body)
        .map_err(|e| ApiError::new(StatusCode::BAD_REQUEST, e.code(), format!("the body is not a sync: {e}")))?;
    drop(body);
    tracing::debug!(batches = request.facts.len(), applied = request.applied.len(), drain = request.drain, "sync");
    let incoming = intake::read(request, &live.rules.tenants, now);
    let answer = writer.sync(incoming).await.map_err(|e| unavailable_error(&e))?;
    Ok(wire::encode_response(&answer))
}

/// Notes that a validly signed sync has another time than this clock. Until a sync confirms the clock, no change is
/// dated by it. A replayed sync has this effect until the next valid sync only.
async fn note_clock_contradiction(app: &ApiState, headers: &HeaderMap, body: axum::body::Body) {
    let time = headers.get(sync_auth::TIME_HEADER).and_then(|v| v.to_str().ok()?.parse().ok());
    let is_short = announced_length(headers).is_some_and(|length| length <= SHORT_BYTES);
    let (Some(time), true) = (time, is_short) else { return };
    let Ok(head) = verify_head(app, time, headers) else { return };
    let Ok(body) = read_body(headers, body).await else { return };
    if head.verify_body(&body).is_ok() && app.metrics.dated_ms.get() == 0 {
        app.metrics.contradicted_ms.set(time);
        tracing::error!(
            time,
            now = clock::now(),
            "a sync is signed at a time that contradicts this clock: check the clocks of this machine and of the edge"
        );
    }
}

/// Checks the signature in the headers, which covers the digest of the body. Only a holder of the key passes, or of a
/// head that was sent within the last minutes; TLS protects the head up to the proxy in front of the origin.
fn verify_head(app: &ApiState, now: Millis, headers: &HeaderMap) -> Result<SignedHead, SyncAuthError> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).ok_or(SyncAuthError::Malformed);
    let (key, time) = (text(sync_auth::KEY_HEADER)?, text(sync_auth::TIME_HEADER)?);
    sync_auth::verify_head(&app.keys.sync, now, key, time, text(sync_auth::MAC_HEADER)?)
}

fn auth_error(e: SyncAuthError) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", e.to_string())
}

/// Length of the body according to its header.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok())
}

/// A permit for a body that may be long. A short body needs none, so that the outbox is drained while all permits are
/// taken.
async fn acquire_permit(
    places: &Semaphore,
    announced: Option<u64>,
    wait: Duration,
) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
    if announced.is_some_and(|length| length <= SHORT_BYTES) {
        return Ok(None);
    }
    match tokio::time::timeout(wait, places.acquire()).await {
        Ok(Ok(place)) => Ok(Some(place)),
        _ => Err(ApiError::unavailable(
            "busy",
            "too many long syncs are in progress: send the sync again after a second",
        )),
    }
}

async fn read_body(headers: &HeaderMap, body: axum::body::Body) -> Result<Bytes, ApiError> {
    if announced_length(headers).is_some_and(|length| length > limits::SYNC_BYTES as u64) {
        return Err(ApiError::too_large("a sync", limits::SYNC_BYTES));
    }
    super::read_body(body, "a sync", limits::SYNC_BYTES).await
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_long_bodies_a_few_are_read_at_a_time_and_short_ones_always() {
        let places = Semaphore::new(1);
        let held = acquire_permit(&places, None, Duration::ZERO).await.unwrap();
        assert!(held.is_some(), "one that says nothing may be long");
        let refused = acquire_permit(&places, Some(SHORT_BYTES + 1), Duration::ZERO).await.unwrap_err();
        assert!(refused.is("busy") && refused.status() == StatusCode::SERVICE_UNAVAILABLE);
        assert!(acquire_permit(&places, Some(SHORT_BYTES), Duration::ZERO).await.unwrap().is_none());
        drop(held);
        assert!(acquire_permit(&places, Some(SHORT_BYTES + 1), Duration::ZERO).await.unwrap().is_some());
    }
}
