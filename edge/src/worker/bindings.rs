//! Bindings of the platform's JavaScript that the crate `worker` lacks: the exports of `platform.mjs`, and bindings of
//! `Env` whose promises the worker hands to [`super::scope::EventScope`].

use js_sys::{Array, JsString, Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use web_sys::{Request, RequestInit, Response};

#[wasm_bindgen(module = "platform")]
extern "C" {
    #[wasm_bindgen(js_name = setHeaderNames)]
    pub(super) fn set_header_names(names: &str);
    #[wasm_bindgen(js_name = readHead)]
    pub(super) fn read_head(request: &Request) -> String;
    #[wasm_bindgen(js_name = makeResponse)]
    pub(super) fn make_response(init: &str, body: Option<&[u8]>) -> Response;
    /// Sends all bodies in one call of a queue.
    #[wasm_bindgen(catch, js_name = sendMessages)]
    pub(super) fn send_messages(queue: &MessageQueue, bodies: &Array) -> Result<Promise, JsValue>;
    #[wasm_bindgen(js_name = addCount)]
    pub(super) fn add_count(name: &str, by: f64);
    #[wasm_bindgen(js_name = readCount)]
    pub(super) fn read_count(name: &str) -> f64;
    #[wasm_bindgen(js_name = listCounts)]
    pub(super) fn list_counts() -> String;
    #[wasm_bindgen(js_name = readPageTag)]
    pub(super) fn read_page_tag() -> String;
    #[wasm_bindgen(js_name = readDemoPage)]
    pub(super) fn read_demo_page() -> String;
}

#[wasm_bindgen]
extern "C" {
    /// The scope that `platform.mjs` hands to an event instead of the platform's context.
    #[derive(Clone)]
    pub(super) type JsScope;
    #[wasm_bindgen(method, js_name = waitUntil)]
    pub(super) fn wait_until(this: &JsScope, promise: &Promise);
    #[wasm_bindgen(method)]
    pub(super) fn within(this: &JsScope, promise: &Promise, ms: f64) -> Promise;

    /// The bindings of `wrangler.toml` that the request path uses.
    pub(super) type Bindings;
    #[wasm_bindgen(method, getter, js_name = PROFILES)]
    pub(super) fn profiles(this: &Bindings) -> KvNamespace;
    #[wasm_bindgen(method, getter, js_name = FACTS)]
    pub(super) fn facts(this: &Bindings) -> MessageQueue;
    #[wasm_bindgen(method, getter, js_name = PUBLISH)]
    pub(super) fn publish(this: &Bindings) -> MessageQueue;

    pub(super) type KvNamespace;
    #[wasm_bindgen(method, catch)]
    pub(super) fn get(this: &KvNamespace, key: &str, kind: &str) -> Result<Promise, JsValue>;
    /// Reads several keys at once; the values are texts.
    #[wasm_bindgen(method, catch, js_name = get)]
    pub(super) fn get_bulk(this: &KvNamespace, keys: Vec<JsString>) -> Result<Promise, JsValue>;
    #[wasm_bindgen(method, catch)]
    pub(super) fn put(this: &KvNamespace, key: &str, value: &str) -> Result<Promise, JsValue>;
    #[wasm_bindgen(method, catch)]
    pub(super) fn delete(this: &KvNamespace, key: &str) -> Result<Promise, JsValue>;

    pub(super) type MessageQueue;
    #[wasm_bindgen(method, catch)]
    pub(super) fn send(this: &MessageQueue, message: &JsValue, options: &JsValue) -> Result<Promise, JsValue>;

    pub(super) type Limiter;
    #[wasm_bindgen(method, catch)]
    pub(super) fn limit(this: &Limiter, options: &JsValue) -> Result<Promise, JsValue>;

    /// A queue message with the number of its deliveries, including the current one.
    pub(super) type DeliveredMessage;
    #[wasm_bindgen(method, getter)]
    pub(super) fn attempts(this: &DeliveredMessage) -> u32;

    #[wasm_bindgen(catch, js_name = fetch)]
    pub(super) fn fetch_url(url: &str, init: &RequestInit) -> Result<Promise, JsValue>;
}

/// An object literal with one property.
pub(super) fn literal(name: &str, value: &JsValue) -> JsValue {
    let object = js_sys::Object::new();
    // Setting a property of a new object cannot fail.
    let _ = js_sys::Reflect::set(&object, &name.into(), value);
    object.into()
}

/// A property of a JavaScript value; `undefined` if it has none.
pub(super) fn property(of: &JsValue, name: &str) -> JsValue {
    js_sys::Reflect::get(of, &name.into()).unwrap_or_default()
}

/// The bytes of an `ArrayBuffer` or a typed array.
pub(super) fn bytes_of(value: &JsValue) -> Vec<u8> {
    Uint8Array::new(value).to_vec()
}

/// A thrown value as a text for the log.
pub(super) fn message_of(error: &JsValue) -> String {
    property(error, "message").as_string().or_else(|| error.as_string()).unwrap_or_else(|| "unknown".to_owned())
}
