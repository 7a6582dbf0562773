//! KV reads and rate limits of a request.

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use js_sys::{JsString, Map, Uint8Array};
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::Request;
use worker::Env;

use super::bindings::{Bindings, Limiter, bytes_of, literal, property};
use super::isolate::{Isolate, now};
use super::log::count_notes;
use super::scope::{EventScope, WaitError};
use crate::{KvValues, ReadFault};

/// The longest value that the edge reads, in characters; all are ASCII.
const VALUE_CHARS: usize =
    if limits::KV_VALUE_CHARS > limits::CATALOGUE_CHARS { limits::KV_VALUE_CHARS } else { limits::CATALOGUE_CHARS };

/// The end of the waits of a request, in milliseconds since the epoch.
pub(super) struct ReadDeadline {
    /// All KV reads together.
    pub(super) reads: Millis,
    /// All waits of a decision together.
    pub(super) all: Millis,
}

impl ReadDeadline {
    /// Milliseconds left for KV reads.
    pub(super) fn left_of_reads(&self) -> f64 {
        left_until(self.reads)
    }

    /// Milliseconds left for all waits of a decision.
    pub(super) fn left_of_all(&self) -> f64 {
        left_until(self.all)
    }
}

/// Milliseconds left until a time.
#[expect(clippy::cast_precision_loss, reason = "a deadline of milliseconds")]
pub(super) fn left_until(until: Millis) -> f64 {
    until.saturating_sub(now()) as f64
}

/// Reads keys in one bulk read, within `ms` milliseconds.
pub(super) async fn read_values(
    env: &Env,
    scope: &EventScope,
    isolate: &Isolate,
    keys: &[String],
    ms: f64,
) -> KvValues {
    let kv = env.unchecked_ref::<Bindings>().profiles();
    // One key is read as bytes. A bulk read returns texts; the platform offers no other form.
    let reading = match keys {
        [] => return Ok(Vec::new()),
        [key] => kv.get(key, "arrayBuffer"),
        keys => kv.get_bulk(keys.iter().map(|key| JsString::from(key.as_str())).collect()),
    };
    let reading = reading.map_err(|_| ReadFault::Failed)?;
    match scope.within(&reading, ms).await {
        Ok(value) if keys.len() == 1 => Ok(vec![read_bytes(&value)]),
        Ok(values) => {
            let values: Map = values.dyn_into().map_err(|_| ReadFault::Failed)?;
            Ok(keys.iter().map(|key| read_text(&values.get(&key.into()))).collect())
        }
        Err(WaitError::Late) => {
            // The read continues after the answer, so that the location has the value for the next request. The
            // platform would otherwise end it.
            if isolate.admits_late_read(now()) {
                scope.wait_until_settled(reading);
            }
            Err(ReadFault::Late)
        }
        Err(WaitError::Failed(_)) => Err(ReadFault::Failed),
    }
}

/// The bytes of a value. A value over the bound becomes an empty one, which is invalid too.
fn read_bytes(value: &JsValue) -> Option<Vec<u8>> {
    if value.is_null() {
        return None;
    }
    let is_readable = Uint8Array::new(value).length() as usize <= VALUE_CHARS;
    Some(if is_readable { bytes_of(value) } else { Vec::new() })
}

fn read_text(value: &JsValue) -> Option<Vec<u8>> {
    let value = value.dyn_ref::<JsString>()?;
    let is_readable = value.length() as usize <= VALUE_CHARS;
    Some(if is_readable { String::from(value).into_bytes() } else { Vec::new() })
}

/// Whether a rate limit admits a key. A limit that is not bound, fails or is late admits every key.
pub(super) async fn admits_read(env: &Env, scope: &EventScope, binding: &str, key: &str, ms: f64) -> bool {
    let limiter = property(env, binding);
    if limiter.is_undefined() {
        count_notes(&["limit_unbound"]);
        return true;
    }
    let Ok(asking) = limiter.unchecked_into::<Limiter>().limit(&literal("key", &key.into())) else {
        count_notes(&["limit_failed"]);
        return true;
    };
    match scope.within(&asking, ms).await {
        Ok(outcome) => property(&outcome, "success").is_truthy(),
        Err(WaitError::Late) => true,
        Err(WaitError::Failed(_)) => {
            count_notes(&["limit_failed"]);
            true
        }
    }
}

/// The network of the client's address: an IPv4 /24 or an IPv6 /48, as the platform gives the address.
pub(super) fn client_network(request: &Request) -> String {
    let address = request.headers().get("cf-connecting-ip").ok().flatten().unwrap_or_default();
    crate::http::client::network_of(&address)
}
