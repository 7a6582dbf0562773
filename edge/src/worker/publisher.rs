//! The consumer of the publish queue. It drains the origin's outbox into the KV, and reads back the keys that the
//! origin verifies.

use causeway_shared::wire::outbox_drain::{self, DrainStep, OutboxDrain};
use causeway_shared::wire::sync::{KvWrite, ReadResult, SyncResponse, VerifyRequest};
use futures_util::future::join_all;
use js_sys::{JsString, Map};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use wasm_bindgen::{JsCast as _, JsValue};
use worker::Env;

use super::bindings::{Bindings, literal};
use super::delivery::SEND_MS;
use super::isolate::{Isolate, now};
use super::log::log_event;
use super::origin::{self, SyncCall};
use super::scope::{EventScope, WaitError};

/// Most parallel KV writes. The platform allows six connections.
const PARALLEL_WRITES: usize = 6;
/// Deadline of a KV operation, in milliseconds. The origin hands out an unacknowledged entry again.
const KV_MS: f64 = 30_000.0;

/// Triggers the publisher. If the message is lost, the next cron sends another.
pub(super) async fn wake_publisher(env: &Env, scope: &EventScope) {
    let queue = env.unchecked_ref::<Bindings>().publish();
    let sent = match queue.send(&"wake".into(), &literal("contentType", &"text".into())) {
        Ok(sending) => scope.within(&sending, SEND_MS).await.map(drop),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = sent {
        log_event("wake_failed", json!({ "message": error.to_string() }));
    }
}

/// Drains the origin's outbox into the KV.
pub(super) async fn drain_outbox(env: &Env, scope: &EventScope, isolate: &Isolate) {
    let mut drain = OutboxDrain::new(now());
    let (mut applied, mut read) = (Vec::new(), Vec::new());
    loop {
        let call = SyncCall { applied, read, drain: drain.wanted(now()), ..SyncCall::default() };
        let Some(outcome) = origin::call_sync(env, scope, isolate, call).await else { return };
        let SyncResponse { publish, verify, pending, .. } = outcome.response;
        match outbox_drain::next(publish.len() + verify.len(), pending) {
            DrainStep::Write => {}
            DrainStep::Done => return,
            DrainStep::WakeAgain => return wake_publisher(env, scope).await,
        }
        // A sync is one operation, and so is a bulk read.
        drain.operations += publish.len() + usize::from(!verify.is_empty()) + 1;
        applied = write_entries(env, scope, publish).await;
        read = if verify.is_empty() { Vec::new() } else { read_back(env, scope, verify).await };
        if !outbox_drain::goes_on(applied.len() + read.len()) {
            return;
        }
    }
}

/// The digests of the KV values of some keys. The origin asks again for keys that could not be read.
async fn read_back(env: &Env, scope: &EventScope, verify: Vec<VerifyRequest>) -> Vec<ReadResult> {
    let kv = env.unchecked_ref::<Bindings>().profiles();
    let keys = verify.iter().map(|verify| JsString::from(verify.key.as_str())).collect();
    let found = match kv.get_bulk(keys) {
        Ok(reading) => scope.within(&reading, KV_MS).await,
        Err(error) => Err(error.into()),
    };
    let is_map = |found: JsValue| {
        found.dyn_into::<Map>().map_err(|_| WaitError::Failed("the KV returned no map of values".to_owned()))
    };
    let found = match found.and_then(is_map) {
        Ok(found) => found,
        Err(error) => {
            log_event("kv_read_failed", json!({ "message": error.to_string() }));
            return Vec::new();
        }
    };
    let digest = |value: JsValue| value.as_string().map(|value| Sha256::digest(value).into());
    let read =
        |VerifyRequest { entry, key }: VerifyRequest| ReadResult { entry, sha256: digest(found.get(&key.into())) };
    verify.into_iter().map(read).collect()
}

/// Writes entries to the KV. Returns the entries whose write was acknowledged. After a late write no further write
/// begins.
async fn write_entries(env: &Env, scope: &EventScope, entries: Vec<KvWrite>) -> Vec<u64> {
    let mut applied = Vec::new();
    for some in entries.chunks(PARALLEL_WRITES) {
        let written = join_all(some.iter().map(|entry| write_entry(env, scope, entry))).await;
        let mut is_late = false;
        for (entry, written) in some.iter().zip(written) {
            match written {
                Ok(()) => applied.push(entry.entry),
                Err(error) => {
                    is_late |= error == WaitError::Late;
                    log_event("kv_write_failed", json!({ "message": error.to_string() }));
                }
            }
        }
        if is_late {
            break;
        }
    }
    applied
}

async fn write_entry(env: &Env, scope: &EventScope, entry: &KvWrite) -> Result<(), WaitError> {
    let kv = env.unchecked_ref::<Bindings>().profiles();
    let writing = match &entry.value {
        None => kv.delete(&entry.key)?,
        Some(value) => kv.put(&entry.key, value)?,
    };
    scope.within(&writing, KV_MS).await.map(drop)
}
