//! Calls of the origin's `/v1/sync`.

use causeway_shared::wire::outbox_drain::ORIGIN_TIMEOUT_MS;
use causeway_shared::wire::sync::{ReadResult, SyncRequest};
use js_sys::Uint8Array;
use serde_json::json;
use wasm_bindgen::JsCast as _;
use web_sys::{AbortSignal, Headers, RequestInit, Response};
use worker::Env;

use super::bindings::{bytes_of, fetch_url};
use super::isolate::{Isolate, now, read_variable};
use super::log::{CounterReport, LAST_SYNC, LOST, ReportedCounter, add, count, has_unreported_filtered, log_event};
use super::scope::{EventScope, WaitError};
use crate::sync::{SignedSync, SyncOutcome, read_sync_response};

/// Interval between two reports of losses, in milliseconds.
const LOSSES_MS: u64 = 60_000;
/// Interval between two reports of filtered requests, in milliseconds. Bots reach most isolates, and each report is a
/// sync.
const FILTERED_MS: u64 = 300_000;

/// The content of one sync to the origin.
#[derive(Debug, Default)]
pub(super) struct SyncCall {
    /// Queue messages.
    pub(super) messages: Vec<Vec<u8>>,
    /// Outbox entries whose write the KV acknowledged.
    pub(super) applied: Vec<u64>,
    /// KV content of the keys that the origin asked to read back.
    pub(super) read: Vec<ReadResult>,
    /// Number of outbox entries wanted.
    pub(super) drain: u16,
}

/// Calls the origin. An outcome means that everything in the call is durable, except for the messages to deliver again.
pub(super) async fn call_sync(env: &Env, scope: &EventScope, isolate: &Isolate, call: SyncCall) -> Option<SyncOutcome> {
    let report = CounterReport::begin();
    let messages = call.messages.len();
    let synced = try_sync(env, scope, isolate, call, &report).await;
    report.end(synced.is_ok());
    match synced {
        Ok(outcome) => {
            add(LAST_SYNC, now().saturating_sub(count(LAST_SYNC)));
            isolate.origin_catalogue.replace(outcome.response.catalogue.clone());
            let rejected = &outcome.response.rejected;
            if !rejected.is_empty() {
                let codes: std::collections::BTreeSet<&str> = rejected.iter().map(|one| one.code.as_str()).collect();
                log_event("facts_rejected", json!({ "facts": rejected.len(), "codes": codes }));
            }
            Some(outcome)
        }
        Err(error) => {
            log_event("sync_failed", json!({ "messages": messages, "message": error.to_string() }));
            None
        }
    }
}

async fn try_sync(
    env: &Env,
    scope: &EventScope,
    isolate: &Isolate,
    call: SyncCall,
    report: &CounterReport,
) -> Result<SyncOutcome, WaitError> {
    let failed = |message: &str| WaitError::Failed(message.to_owned());
    let edge = read_variable(env, "EDGE_NAME");
    let request = SyncRequest {
        edge: if edge.is_empty() { "edge".to_owned() } else { edge },
        batch: isolate.draw().map_err(|error| failed(&error.to_string()))?,
        facts: call.messages,
        applied: call.applied,
        drain: call.drain,
        lost: report.lost,
        dead: report.dead,
        filtered: report.filtered,
        read: call.read,
    };
    let signed = isolate.engine.borrow().sign_sync(&request, now()).ok_or_else(|| failed("no sync key is active"))?;
    let response = post_sync(env, scope, &signed).await?;
    if response.status() != 200 {
        return Err(failed(&format!("the origin answered {}", response.status())));
    }
    let body = bytes_of(&scope.within(&response.array_buffer()?, timeout_ms()).await?);
    read_sync_response(&body).map_err(|error| failed(&format!("cannot decode the origin's answer: {error}")))
}

#[expect(clippy::cast_precision_loss, reason = "a deadline of milliseconds")]
fn timeout_ms() -> f64 {
    ORIGIN_TIMEOUT_MS as f64
}

async fn post_sync(env: &Env, scope: &EventScope, signed: &SignedSync) -> Result<Response, WaitError> {
    let headers = Headers::new()?;
    headers.append("content-type", "application/cbor")?;
    signed.headers.iter().try_for_each(|(name, value)| headers.append(name, value))?;
    let init = RequestInit::new();
    init.set_method("POST");
    init.set_headers(&headers);
    init.set_body(&Uint8Array::from(signed.body.as_slice()));
    send_request(env, scope, "/v1/sync", init).await
}

/// Calls the origin at a path, within its deadline.
pub(super) async fn send_request(
    env: &Env,
    scope: &EventScope,
    path: &str,
    init: RequestInit,
) -> Result<Response, WaitError> {
    let url = format!("{}{path}", read_variable(env, "ORIGIN_URL").trim_end_matches('/'));
    init.set_signal(Some(&AbortSignal::timeout_with_f64(timeout_ms())));
    Ok(scope.within(&fetch_url(&url, &init)?, timeout_ms()).await?.unchecked_into())
}

/// Reports the counters after a request: losses at most once a minute, filtered requests at most every five minutes.
pub(super) fn report_counters(env: &Env, scope: &EventScope, isolate: &'static Isolate) {
    let interval_ms = if LOST.with(ReportedCounter::has_unreported) {
        LOSSES_MS
    } else if has_unreported_filtered() {
        FILTERED_MS
    } else {
        return;
    };
    let now = now();
    if now < isolate.counters_reported.get() + interval_ms {
        return;
    }
    isolate.counters_reported.set(now);
    let (env, own) = (env.clone(), scope.clone());
    scope.wait_until(async move {
        call_sync(&env, &own, isolate, SyncCall::default()).await;
    });
}
