//! Which route a request belongs to, by its method and path.

use crate::http::answer::Answer;
use crate::http::cors;
use crate::http::incoming::Incoming;
use crate::routes::{Routed, WorkerPage, decide, erase, events, me, pixel};

const IMPRESSION_PATH: &str = "/v1/i/";
const CLICK_PATH: &str = "/v1/c/";

/// Begins the route of a request.
pub(crate) fn begin_route(incoming: Incoming<'_>) -> Routed {
    let Incoming { request, site, .. } = &incoming;
    let answer = match (request.method, request.path) {
        ("POST", "/v1/decide") => return decide::begin(incoming),
        ("GET", "/v1/me") => return me::begin(incoming),
        ("POST", "/v1/events") => return events::begin(incoming),
        ("DELETE", "/v1/me") => erase::answer_erasure(&incoming),
        ("GET" | "HEAD", path) if path.starts_with(IMPRESSION_PATH) => {
            return pixel::begin_impression(&incoming, path.trim_start_matches(IMPRESSION_PATH));
        }
        ("GET" | "HEAD", path) if path.starts_with(CLICK_PATH) => {
            return pixel::begin_click(&incoming, path.trim_start_matches(CLICK_PATH));
        }
        ("GET" | "HEAD", "/causeway.js") => return Routed::Page(WorkerPage::PageTag(incoming.cors)),
        ("OPTIONS", "/v1/decide" | "/v1/events" | "/v1/me") => cors::answer_preflight(site),
        (_, path) if site.tenant.dev && path.starts_with("/demo") => {
            return Routed::Page(WorkerPage::Demo(site.tenant.name.clone()));
        }
        (_, path) => match allowed_methods(path) {
            Some(methods) => Answer::error(405, "method", "this path does not take that method", None)
                .with_headers([("allow", methods.to_owned())]),
            None => Answer::error(404, "not_found", "there is nothing at this path", None),
        },
    };
    Routed::Answer(answer.with_headers(incoming.cors))
}

/// The methods of a path; `None` for an unknown path.
fn allowed_methods(path: &str) -> Option<&'static str> {
    match path {
        "/v1/decide" | "/v1/events" => Some("POST, OPTIONS"),
        "/v1/me" => Some("GET, DELETE, OPTIONS"),
        "/causeway.js" | "/healthz" => Some("GET, HEAD"),
        _ if path.starts_with(IMPRESSION_PATH) || path.starts_with(CLICK_PATH) => Some("GET, HEAD"),
        _ => None,
    }
}
