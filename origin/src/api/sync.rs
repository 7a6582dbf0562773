//! `POST /v1/sync`: from an edge, authenticated by HMAC, answered once everything in it is durable.

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

use super::listener::{RequestProof, record_proof};
use super::{ApiError, ApiState, unavailable_error};
use crate::base::clock;
use crate::ingest::intake;

/// Long bodies that are read at a time: together 256 MB at most.
pub(super) const LONG_BODIES: usize = 64;
/// How long one waits for a place: an edge gives its sync ten seconds.
const PLACE_TIME: Duration = Duration::from_secs(2);
/// A body of no more bytes is short, as that of a sync without facts: its entries are a few kilobytes.
const SHORT_BYTES: u64 = 64 * 1024;

pub(super) async fn answer_sync(State(app): State<Arc<ApiState>>, request: Request) -> Response {
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
    // Nothing of a body is read, and no place is taken, before the sender has proved that it has the key.
    match verify_head(app, clock::now(), &parts.headers) {
        Ok(_) => record_proof(&parts, RequestProof::Sync),
        Err(e) => {
            if e == SyncAuthError::Time && app.metrics.dated_ms.get() == 0 {
                contradict_length(app, &parts.headers, body).await;
            }
            return Err(auth_error(e));
        }
    }
    let (now, body) = {
        let _place = acquire_place(&app.long_bodies, announced_length(&parts.headers), PLACE_TIME).await?;
        let body = read_body(&parts.headers, body).await?;
        // The head again: the body may have taken a while, and from here on this time counts.
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

/// Until a sync has vouched for this clock one that an edge signed at another time says that it is wrong: nothing is dated by it
/// then. One that was heard and comes again says it no longer than until the next.
async fn contradict_length(app: &ApiState, headers: &HeaderMap, body: axum::body::Body) {
    let time = headers.get(sync_auth::TIME_HEADER).and_then(|v| v.to_str().ok()?.parse().ok());
    let is_short = announced_length(headers).is_some_and(|length| length <= SHORT_BYTES);
    let (Some(time), true) = (time, is_short) else { return };
    let Ok(head) = verify_head(app, time, headers) else { return };
    let Ok(body) = read_body(headers, body).await else { return };
    if head.verify_body(&body).is_ok() && app.metrics.dated_ms.get() == 0 {
        app.metrics.contradicted_ms.set(time);
        tracing::error!(time, now = clock::now(), "a sync is signed at another time than this clock's: see to it");
    }
}

/// Checks the signature in the headers. It holds the body's digest, thus only a holder of the key, or of a head that a holder
/// sent in the last minutes, gets further; the head is never outside TLS but on the last metres to the origin.
fn verify_head(app: &ApiState, now: Millis, headers: &HeaderMap) -> Result<SignedHead, SyncAuthError> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).ok_or(SyncAuthError::Malformed);
    let (key, time) = (text(sync_auth::KEY_HEADER)?, text(sync_auth::TIME_HEADER)?);
    sync_auth::verify_head(&app.keys.sync, now, key, time, text(sync_auth::MAC_HEADER)?)
}

fn auth_error(e: SyncAuthError) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", e.to_string())
}

/// How long the body says it is.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok())
}

/// A place for a body that may be long. Short ones need none, so that the outbox is drained whoever holds all places.
async fn acquire_place(
    places: &Semaphore,
    announced: Option<u64>,
    wait: Duration,
) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
    if announced.is_some_and(|length| length <= SHORT_BYTES) {
        return Ok(None);
    }
    match tokio::time::timeout(wait, places.acquire()).await {
        Ok(Ok(place)) => Ok(Some(place)),
        _ => Err(ApiError::unavailable("busy", "too many long syncs come at once: come back in a second")),
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
        let held = acquire_place(&places, None, Duration::ZERO).await.unwrap();
        assert!(held.is_some(), "one that says nothing may be long");
        let refused = acquire_place(&places, Some(SHORT_BYTES + 1), Duration::ZERO).await.unwrap_err();
        assert!(refused.is("busy") && refused.status() == StatusCode::SERVICE_UNAVAILABLE);
        assert!(acquire_place(&places, Some(SHORT_BYTES), Duration::ZERO).await.unwrap().is_none());
        drop(held);
        assert!(acquire_place(&places, Some(SHORT_BYTES + 1), Duration::ZERO).await.unwrap().is_some());
    }
}
