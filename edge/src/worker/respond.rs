//! Turns answers of the engine into responses of the platform.

use serde::Serialize;
use serde_json::json;
use wasm_bindgen::UnwrapThrowExt as _;
use web_sys::{Request, Response};

use super::bindings;
use super::log::log_event;
use crate::http::answer::HttpAnswer;
use crate::http::request::RequestTarget;
use crate::http::unserved::{UnservedReason, answer_unserved};

const JSON_HEADERS: [(&str, &str); 2] =
    [("content-type", "application/json; charset=utf-8"), ("cache-control", "no-store")];

/// The answer to a request that was not served.
pub(super) fn respond_unserved(request: &Request, reason: UnservedReason) -> Response {
    let (method, url) = (request.method(), request.url());
    with_target(request, &method, &url, |target| respond(answer_unserved(target, reason)))
}

/// Runs `answer` with the request's address and the headers that an unserved answer depends on.
pub(super) fn with_target(
    request: &Request,
    method: &str,
    url: &str,
    answer: impl FnOnce(&RequestTarget<'_>) -> Response,
) -> Response {
    let header = |name: &str| request.headers().get(name).ok().flatten();
    let (origin, requested) = (header("origin"), header("access-control-request-headers"));
    let nothing = RequestTarget { method, path: "/", query: "", origin: None, requested_headers: None };
    let target = RequestTarget::parse(method, url).unwrap_or(nothing);
    answer(&RequestTarget { origin: origin.as_deref(), requested_headers: requested.as_deref(), ..target })
}

/// Turns an answer into the platform's response.
pub(super) fn respond(answer: HttpAnswer) -> Response {
    let HttpAnswer { status, is_json, headers, body, .. } = answer;
    let json = JSON_HEADERS.into_iter().filter(|_| is_json);
    let headers = json.chain(headers.iter().map(|(name, value)| (*name, value.as_str())));
    make_response(status, headers, (!body.is_empty()).then_some(&body))
}

/// Creates a response of the platform. A header that the platform would refuse is left out.
pub(super) fn make_response<'a>(
    status: u16,
    headers: impl Iterator<Item = (&'a str, &'a str)>,
    body: Option<&[u8]>,
) -> Response {
    #[derive(Serialize)]
    struct Init<'a> {
        status: u16,
        headers: Vec<(&'a str, &'a str)>,
    }
    // All values of the edge are printable ASCII.
    let is_valid = |(name, value): &(&str, &str)| {
        let is_valid = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if !is_valid {
            log_event("header_refused", json!({ "name": name }));
        }
        is_valid
    };
    let init = Init { status, headers: headers.filter(is_valid).collect() };
    bindings::make_response(&serde_json::to_string(&init).unwrap_throw(), body)
}
