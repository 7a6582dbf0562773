//! Facts on their way: to the queue, and where the queue refuses, to the origin.

use js_sys::Uint8Array;
use serde_json::json;
use wasm_bindgen::JsCast as _;
use worker::Env;

use super::bindings::{Bindings, literal};
use super::isolate::Isolate;
use super::log::{FACTS_LOST, add, log_event};
use super::origin::{self, SyncCall};
use super::scope::{EventScope, WaitError};
use crate::http::answer::FactsMessage;

/// Deadline of a queue, in milliseconds. A queue that accepts a message later delivers it a second time, which counts once.
pub(super) const SEND_MS: f64 = 5_000.0;

/// Sends facts that an answer waits for. True once the queue or the origin has accepted them.
pub(super) async fn send_facts(env: &Env, scope: &EventScope, isolate: &'static Isolate, facts: &FactsMessage) -> bool {
    if let Err(error) = send_to_queue(env, scope, &facts.bytes).await {
        log_event("queue_refused", json!({ "message": error.to_string() }));
        let call = SyncCall { messages: vec![facts.bytes.clone()], ..SyncCall::default() };
        let outcome = origin::sync(env, scope, isolate, call).await;
        let is_accepted = outcome.is_some_and(|outcome| outcome.redeliver.is_empty());
        if !is_accepted {
            log_event("facts_refused", json!({ "facts": facts.count }));
        }
        return is_accepted;
    }
    true
}

/// Sends facts that no answer waits for. What neither the queue nor the origin accepts is counted as lost.
pub(super) fn send_after_answer(env: &Env, scope: &EventScope, isolate: &'static Isolate, facts: FactsMessage) {
    let (env, own) = (env.clone(), scope.clone());
    scope.wait_until(async move {
        if !send_facts(&env, &own, isolate, &facts).await {
            add(FACTS_LOST, facts.count.into());
            log_event("facts_lost", json!({ "facts": facts.count }));
        }
    });
}

/// Sends one message to the facts queue.
pub(super) async fn send_to_queue(env: &Env, scope: &EventScope, message: &[u8]) -> Result<(), WaitError> {
    let queue = env.unchecked_ref::<Bindings>().facts();
    let sending = queue.send(&Uint8Array::from(message), &literal("contentType", &"bytes".into()))?;
    scope.within(&sending, SEND_MS).await.map(drop)
}
