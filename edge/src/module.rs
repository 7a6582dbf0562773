//! What the shell calls: thin exports over one [`Engine`] an isolate.

use std::cell::RefCell;

use causeway_shared::delivery::{self, Drain};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::answer::Outcome;
use crate::engine::Engine;

/// A request allocates some hundred times: the standard library's allocator takes it twice as long, and more of the module.
#[cfg(target_family = "wasm")]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

/// An outcome's room is kept for the next up to so many bytes.
const KEPT: usize = 64 * 1_024;

thread_local! {
    static ENGINE: RefCell<Engine> = RefCell::new(Engine::default());
    static OUTCOME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Gives where an outcome's bytes are, as [`Outcome::write`] puts them, until the next call of this module.
fn give(outcome: &Outcome) -> *const u8 {
    OUTCOME.with_borrow_mut(|bytes| {
        if bytes.capacity() > KEPT {
            *bytes = Vec::new();
        }
        outcome.write(bytes);
        bytes.as_ptr()
    })
}

/// The memory that outcomes are in.
#[wasm_bindgen]
pub fn linear_memory() -> JsValue {
    wasm_bindgen::memory()
}

/// Takes the configuration and the keys, both JSON; answers with JSON for the shell:
/// `{"headers": [...], "body_bytes": n, ...}`, the bounds it keeps, or `{"error": "..."}`.
#[wasm_bindgen]
pub fn configure(config: &str, keys: &str) -> String {
    match Engine::configure(config, keys) {
        Ok(engine) => {
            let answer = engine.for_shell();
            ENGINE.with_borrow_mut(|e| *e = engine);
            answer
        }
        Err(error) => serde_json::json!({ "error": error.to_string() }).to_string(),
    }
}

/// Begins a request. `head` is the method, the address and the values of the headers that [`configure`] named,
/// one a line; `now` is in milliseconds; `seed` is 32 random bytes. Gives where the outcome is.
#[wasm_bindgen]
pub fn begin(head: &str, body: &[u8], now: f64, seed: &[u8]) -> *const u8 {
    give(&ENGINE.with_borrow_mut(|e| e.begin(head, body, millis(now), seed)))
}

/// Goes on with a request after a KV read: the values' UTF-8, one a line, in the order of the keys, empty where there
/// is none; `fault` is empty, or says why the read gave nothing (`kv_late`, `kv_failed`). After the call of an object its
/// answer's bytes, empty for none.
#[wasm_bindgen]
pub fn resume(turn: u32, values: &[u8], fault: &str) -> *const u8 {
    give(&ENGINE.with_borrow_mut(|e| e.resume(turn, values, fault)))
}

/// One call of a visitor's object for strict caps, with what it stores. Gives where the outcome is: the answer, or the call
/// to forward and whose object gets it; in the place of facts what it is to store. Status 400 stores nothing.
#[wasm_bindgen]
pub fn object(state: &[u8], call: &[u8], now: f64) -> *const u8 {
    give(&crate::strict::object(state, call, millis(now)))
}

/// Gives such an object the answer to the call that it forwarded; where its outcome is, as [`object`].
#[wasm_bindgen]
pub fn object_passed(state: &[u8], forwarded: &[u8], answer: &[u8], now: f64) -> *const u8 {
    give(&crate::strict::passed(state, forwarded, answer, millis(now)))
}

/// What an object of a limited offer is to read for a call: where an outcome is, with the rows' keys. Status 400: the call is
/// not of its form.
#[wasm_bindgen]
pub fn unit_rows(call: &[u8]) -> *const u8 {
    give(&crate::units::unit_rows(call))
}

/// One call of such an object with its rows, one a line, empty where there is none. Gives where the outcome is: the answer, or
/// the call to forward and to whom; in the place of facts the rows to write, a key and its text a line, none for one to
/// drop. Status 400 writes nothing.
#[wasm_bindgen]
pub fn unit(rows: &[u8], call: &[u8]) -> *const u8 {
    give(&crate::units::unit(rows, call))
}

/// Gives such an object the answer to the call that it forwarded; where its outcome is, as [`unit`].
#[wasm_bindgen]
pub fn unit_passed(rows: &[u8], forwarded: &[u8], answer: &[u8]) -> *const u8 {
    give(&crate::units::unit_passed(rows, forwarded, answer))
}

/// Goes on with a request whose visitor may not be minted: its network has minted too many.
#[wasm_bindgen]
pub fn refuse_mint(turn: u32) -> *const u8 {
    give(&ENGINE.with_borrow_mut(|e| e.refuse_mint(turn)))
}

/// A sync's request: JSON of the three headers' values, a zero byte, the body. `call` is JSON, `messages` are
/// queue messages, each behind its length (4 bytes, little-endian).
#[wasm_bindgen]
pub fn sync_request(call: &str, messages: &[u8], now: f64) -> Vec<u8> {
    ENGINE.with_borrow(|e| e.sync_request(call, messages, millis(now)))
}

/// A sync's answer, as JSON; `{"error": "..."}` when it cannot be read.
#[wasm_bindgen]
pub fn sync_response(body: &[u8]) -> String {
    crate::sync::sync_response(body)
}

/// The pause before a queue message is tried again, in seconds.
#[wasm_bindgen]
pub fn retry_delay_s(attempts: u32) -> u32 {
    delivery::retry_delay_s(attempts)
}

/// Whether a queue message that is given back goes to the dead letters.
#[wasm_bindgen]
pub fn is_dead(attempts: u32) -> bool {
    delivery::is_dead(attempts)
}

/// Whether the publish consumer is woken after facts were delivered, with so many outbox entries due.
#[wasm_bindgen]
pub fn wakes(pending: f64) -> bool {
    delivery::wakes(millis(pending))
}

/// Outbox entries that a drain asks for: begun then (in milliseconds), with so many operations, now.
#[wasm_bindgen]
pub fn drain_wanted(began: f64, operations: u32, now: f64) -> u16 {
    Drain { began: millis(began), operations: operations as usize }.wanted(millis(now))
}

/// What a drain does with an answer: `write`, `done` or `wake_again`.
#[wasm_bindgen]
pub fn drain_next(handed: u32, pending: f64) -> String {
    delivery::next(handed as usize, millis(pending)).name().to_owned()
}

/// Whether a drain goes on after writes of which so many were acknowledged.
#[wasm_bindgen]
pub fn drain_goes_on(applied: u32) -> bool {
    delivery::goes_on(applied as usize)
}

/// A member proof for the demonstration page; empty unless the host's tenant is marked `dev`.
#[wasm_bindgen]
pub fn dev_proof(host: &str, member: &str, now: f64) -> String {
    ENGINE.with_borrow(|e| e.dev_proof(host, member, millis(now)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates: no time is out of range"
)]
fn millis(now: f64) -> u64 {
    now as u64
}
