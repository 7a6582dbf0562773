//! Which of the edge's addresses a request is of, and by which method.

use crate::answer::{Head, Outcome};
use crate::engine::{Incoming, Routed};
use crate::{cors, decide, events, me, pixel};

/// Begins what the request asks for.
pub(crate) fn route(incoming: Incoming<'_>) -> Routed {
    let Incoming { request, site, .. } = &incoming;
    let outcome = match (request.method, request.path) {
        ("POST", "/v1/decide") => return decide::begin(incoming),
        ("GET", "/v1/me") => return me::begin(incoming),
        ("DELETE", "/v1/me") => me::erase(&incoming),
        ("POST", "/v1/events") => return events::begin(incoming),
        ("GET" | "HEAD", path) if path.starts_with("/v1/i/") => {
            return pixel::impression(&incoming, path.trim_start_matches("/v1/i/"));
        }
        ("GET" | "HEAD", path) if path.starts_with("/v1/c/") => {
            return pixel::click(&incoming, path.trim_start_matches("/v1/c/"));
        }
        ("GET" | "HEAD", "/causeway.js") => {
            Outcome { head: Head { tag: true, ..Head::default() }, ..Outcome::default() }
        }
        ("OPTIONS", "/v1/decide" | "/v1/events" | "/v1/me") => cors::preflight(site),
        (_, path) if site.tenant.dev && path.starts_with("/demo") => {
            let body = site.tenant.name.clone().into_bytes();
            Outcome { head: Head { demo: true, ..Head::default() }, body, ..Outcome::default() }
        }
        (_, path) => match allowed(path) {
            Some(methods) => Outcome::error(405, "method", "this path does not take that method", None)
                .with_headers([("allow", methods.to_owned())]),
            None => Outcome::error(404, "not_found", "there is nothing at this path", None),
        },
    };
    Routed::Answer(outcome.with_headers(incoming.cors))
}

/// What methods a path takes; `None` for none of ours.
fn allowed(path: &str) -> Option<&'static str> {
    match path {
        "/v1/decide" | "/v1/events" => Some("POST, OPTIONS"),
        "/v1/me" => Some("GET, DELETE, OPTIONS"),
        "/causeway.js" | "/healthz" => Some("GET, HEAD"),
        _ if path.starts_with("/v1/i/") || path.starts_with("/v1/c/") => Some("GET, HEAD"),
        _ => None,
    }
}
