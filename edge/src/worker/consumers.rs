//! The consumers of the facts queues and of their dead letters.

use causeway_shared::wire::outbox_drain;
use futures_util::future::join_all;
use serde_json::json;
use wasm_bindgen::{JsCast as _, JsValue};
use worker::Env;
use worker::worker_sys::{Message, MessageBatch};

use super::bindings::{DeliveredMessage, bytes_of, literal};
use super::isolate::{Isolate, isolate};
use super::log::{DEAD, DEAD_LETTERS, count, log_event};
use super::origin::{self, SyncCall};
use super::scope::EventScope;
use super::{delivery as facts_delivery, publisher};

/// Pause before a dead letter that the facts queue refused is retried, in seconds. 100 retries then last at least the
/// 14 days for which the platform stores it.
const DEAD_PAUSE_S: u32 = 4 * 3_600;
/// Pause of the first retries of a dead letter, in seconds, and their number, because most refusals end within an hour.
const DEAD_FIRST_PAUSE_S: u32 = 300;
const DEAD_FIRST_TRIES: u32 = 12;

/// Handles a batch according to its queue.
pub(super) async fn consume_batch(batch: &MessageBatch, env: &Env, scope: &EventScope) {
    let queue = batch.queue().map(String::from).unwrap_or_default();
    let messages = messages_of(batch);
    if queue.ends_with("dead") {
        return redrive_messages(messages, env, scope).await;
    }
    match isolate(env) {
        Err(message) => {
            log_event("queue_failed", json!({ "message": message }));
            // Facts wait for a valid configuration as long as they wait for an origin that is down.
            if batch.retry_all(pause(outbox_drain::RETRY_MOST_S)).is_err() {
                log_event("retry_failed", json!({}));
            }
        }
        Ok(isolate) if queue.ends_with("publish") => publisher::drain_outbox(env, scope, isolate).await,
        Ok(isolate) => consume_facts(messages, env, scope, isolate).await,
    }
}

/// Hands facts to the origin. A message is acknowledged once the origin has accepted it or refused it permanently.
async fn consume_facts(messages: Vec<Message>, env: &Env, scope: &EventScope, isolate: &Isolate) {
    let mut pending = 0;
    for some in messages.chunks(outbox_drain::SYNC_MESSAGES) {
        let call = SyncCall { messages: some.iter().map(body_of).collect(), ..SyncCall::default() };
        let outcome = origin::call_sync(env, scope, isolate, call).await;
        for (index, message) in (0..).zip(some) {
            match &outcome {
                Some(outcome) if !outcome.redeliver.contains(&index) => acknowledge(message),
                _ => retry(message),
            }
        }
        pending += outcome.map_or(0, |outcome| outcome.response.pending);
    }
    if outbox_drain::wakes(pending) {
        publisher::wake_publisher(env, scope).await;
    }
}

/// Sends each dead letter to the first facts queue again, with a fresh number of retries. The origin refuses facts that
/// are too old. The visitor is not read from the message: the decoder of facts would add 30 KB to the module.
async fn redrive_messages(messages: Vec<Message>, env: &Env, scope: &EventScope) {
    join_all(messages.into_iter().map(|message| async move {
        let body = body_of(&message);
        let queue = facts_delivery::first_queue(env);
        match facts_delivery::send_to_queue(scope, &queue, std::iter::once(body.as_slice())).await {
            Ok(()) => acknowledge(&message),
            Err(error) => {
                let attempts = attempts_of(&message);
                log_event("redrive_failed", json!({ "attempts": attempts, "message": error.to_string() }));
                let is_early = attempts <= DEAD_FIRST_TRIES;
                retry_after(&message, if is_early { DEAD_FIRST_PAUSE_S } else { DEAD_PAUSE_S });
            }
        }
    }))
    .await;
}

fn messages_of(batch: &MessageBatch) -> Vec<Message> {
    batch.messages().map(|all| all.iter().map(JsValue::unchecked_into).collect()).unwrap_or_default()
}

fn body_of(message: &Message) -> Vec<u8> {
    bytes_of(&message.body().unwrap_or_default())
}

fn attempts_of(message: &Message) -> u32 {
    message.unchecked_ref::<DeliveredMessage>().attempts()
}

fn acknowledge(message: &Message) {
    if message.ack().is_err() {
        log_event("acknowledge_failed", json!({}));
    }
}

fn retry(message: &Message) {
    let attempts = attempts_of(message);
    if outbox_drain::is_dead(attempts) {
        DEAD.with(|counter| counter.add(1));
        log_event("dead_letter", json!({ "attempts": attempts, "dead_total": count(DEAD_LETTERS) }));
    }
    retry_after(message, outbox_drain::retry_delay_s(attempts));
}

fn retry_after(message: &Message, seconds: u32) {
    if message.retry(pause(seconds)).is_err() {
        log_event("retry_failed", json!({}));
    }
}

/// The options of a retry after a pause.
fn pause(seconds: u32) -> JsValue {
    literal("delaySeconds", &seconds.into())
}
