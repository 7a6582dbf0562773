//! What the shell calls: thin exports over one [`Engine`] an isolate.

use std::cell::RefCell;

use wasm_bindgen::prelude::wasm_bindgen;

use crate::engine::Engine;

thread_local! {
    static ENGINE: RefCell<Engine> = RefCell::new(Engine::default());
}

/// Takes the configuration and the keys, both JSON; answers with JSON for the shell:
/// `{"headers": [...], "body_bytes": n, "value_chars": n}` or `{"error": "..."}`.
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
/// one a line; `now` is in milliseconds; `seed` is 32 random bytes. Gives an outcome's bytes.
#[wasm_bindgen]
pub fn begin(head: &str, body: &[u8], now: f64, seed: &[u8]) -> Vec<u8> {
    ENGINE.with_borrow_mut(|e| e.begin(head, body, millis(now), seed).into_bytes())
}

/// Goes on with a request after a KV read: the values' UTF-8, one a line, in the order of the keys, empty where there
/// is none; `fault` is empty, or says why the read gave nothing (`kv_late`, `kv_failed`).
#[wasm_bindgen]
pub fn resume(turn: u32, values: &[u8], fault: &str) -> Vec<u8> {
    ENGINE.with_borrow_mut(|e| e.resume(turn, values, fault).into_bytes())
}

/// Goes on with a request whose visitor may not be minted: its network has minted too many.
#[wasm_bindgen]
pub fn refuse_mint(turn: u32) -> Vec<u8> {
    ENGINE.with_borrow_mut(|e| e.refuse_mint(turn).into_bytes())
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
