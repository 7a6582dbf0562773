//! The worker: the only room that knows the platform. It gathers the engine's inputs and carries out its steps.
//!
//! `platform.mjs` is the entry: it starts the WebAssembly instance and replaces it after a trap.

mod bindings;
mod consumers;
mod delivery;
mod fetch;
mod gathered;
mod isolate;
mod log;
mod objects;
mod origin;
mod pages;
mod publisher;
mod reads;
mod respond;
mod scope;

use wasm_bindgen::prelude::*;
use web_sys::{Request, Response};
use worker::{Context, Env, event, wasm_bindgen_futures};

use self::scope::EventScope;

#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> worker::Result<Response> {
    Ok(fetch::answer_request(request, env, EventScope::of(&context)).await)
}

/// The answer to a request whose instance was replaced.
#[wasm_bindgen]
#[must_use]
pub fn answer_restarted(request: &Request) -> Response {
    log::log_event("restarted", serde_json::json!({ "restarts": log::count(log::RESTARTS) }));
    respond::respond_unserved(request, crate::UnservedReason::Restarted)
}

/// Handles a batch of a queue. The crate's own batch type lacks the number of deliveries, on which the pause depends.
///
/// # Errors
/// None: a message that is not acknowledged is delivered again.
#[wasm_bindgen]
pub async fn queue(batch: worker::worker_sys::MessageBatch, env: Env, context: JsValue) -> Result<(), JsValue> {
    consumers::consume_batch(&batch, &env, &EventScope::of_raw(&context)).await;
    Ok(())
}

/// Handles a cron event. The crate's own context of a cron gives no access to the event's scope.
///
/// # Errors
/// None: a failed wake-up is logged, and the next cron sends another.
#[wasm_bindgen]
pub async fn scheduled(_event: JsValue, env: Env, context: JsValue) -> Result<(), JsValue> {
    publisher::wake_publisher(&env, &EventScope::of_raw(&context)).await;
    Ok(())
}
