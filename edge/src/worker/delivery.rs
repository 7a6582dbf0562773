//! Delivery of facts: to one of the facts queues or, if it refuses, to the origin.

use causeway_shared::settings::facts_queues;
use futures_util::future::join_all;
use js_sys::{Array, Uint8Array};
use serde_json::json;
use wasm_bindgen::JsCast as _;
use worker::Env;

use super::bindings::{Bindings, MessageQueue, property, send_messages};
use super::isolate::{Isolate, now};
use super::log::{LOST, log_event};
use super::origin::{self, SyncCall};
use super::scope::{EventScope, WaitError};
use crate::http::answer::FactsMessage;

/// Deadline of a queue, in milliseconds. A queue that accepts a message later delivers it a second time, which counts
/// once.
pub(super) const SEND_MS: f64 = 5_000.0;
/// Time for which facts that no answer waits for are gathered, in milliseconds. One call of each queue then sends the
/// facts of all requests of that time, because a call costs more than the rest of a request's delivery.
const GATHER_MS: f64 = 5.0;

/// Sends facts that no answer waits for, together with facts of other requests. Facts that neither the queue nor the
/// origin accepts are counted as lost.
pub(super) fn send_after_answer(env: &Env, scope: &EventScope, isolate: &'static Isolate, facts: FactsMessage) {
    if !isolate.gathered.add(facts, now()) {
        return;
    }
    let (env, own) = (env.clone(), scope.clone());
    scope.wait_until(async move {
        own.pause(GATHER_MS).await;
        // The calls take all messages first, so that the next request starts a new batch.
        let take = || isolate.gathered.take_call(|hash| isolate.choose_queue(hash));
        let calls: Vec<_> = std::iter::from_fn(|| Some(take()).filter(|call| !call.is_empty())).collect();
        // In parallel, because sequential calls could exceed the 30 s that the platform gives after an answer.
        let lost: u64 =
            join_all(calls.iter().map(|call| send_facts(&env, &own, isolate, call))).await.into_iter().sum();
        if lost > 0 {
            LOST.with(|counter| counter.add(lost));
            log_event("facts_lost", json!({ "facts": lost }));
        }
    });
}

/// Sends messages of one queue. Returns the number of facts that neither the queue nor the origin accepted.
pub(super) async fn send_facts(env: &Env, scope: &EventScope, isolate: &Isolate, facts: &[FactsMessage]) -> u64 {
    let messages = || facts.iter().map(|facts| facts.bytes.as_slice());
    let queue = facts.first().map_or(0, |first| isolate.choose_queue(first.hash));
    let queue = bound_queue(env, isolate, queue);
    let Err(error) = send_to_queue(scope, &queue, messages()).await else { return 0 };
    log_event("queue_refused", json!({ "message": error.to_string() }));
    let call = SyncCall { messages: messages().map(<[u8]>::to_vec).collect(), ..SyncCall::default() };
    let outcome = origin::call_sync(env, scope, isolate, call).await;
    let is_refused = |index: usize| match &outcome {
        Some(outcome) => outcome.redeliver.iter().any(|refused| usize::try_from(*refused) == Ok(index)),
        None => true,
    };
    let refused = facts.iter().enumerate().filter(|(index, _)| is_refused(*index));
    refused.map(|(_, facts)| u64::from(facts.count)).sum()
}

/// The binding of a facts queue. A queue without a binding is noted once in the log, and the first queue takes its
/// facts.
pub(super) fn bound_queue(env: &Env, isolate: &Isolate, queue: u32) -> MessageQueue {
    if queue > 0 {
        let name = facts_queues::binding_of(queue);
        let bound = property(env.as_ref(), &name);
        if !bound.is_undefined() {
            return bound.unchecked_into();
        }
        if isolate.is_first_note(queue) {
            log_event("queue_unbound", json!({ "binding": name }));
        }
    }
    first_queue(env)
}

/// The binding of the first facts queue.
pub(super) fn first_queue(env: &Env) -> MessageQueue {
    env.unchecked_ref::<Bindings>().facts()
}

/// Sends messages to a facts queue in one call.
pub(super) async fn send_to_queue(
    scope: &EventScope,
    queue: &MessageQueue,
    messages: impl Iterator<Item = &[u8]>,
) -> Result<(), WaitError> {
    let messages: Array = messages.map(Uint8Array::from).collect();
    let sending = send_messages(queue, &messages)?;
    scope.within(&sending, SEND_MS).await.map(drop)
}
