//! The routing table: the route of a request, by its method and path.

use causeway_shared::wire::sync::FilterReason;

use crate::http::answer::HttpAnswer;
use crate::http::cors;
use crate::http::incoming::TenantRequest;
use crate::routes::{RouteOutcome, WorkerPage, decide, erase, events, me, pixel};

const IMPRESSION_PATH: &str = "/v1/i/";
const CLICK_PATH: &str = "/v1/c/";

/// Begins the route of a request.
pub(crate) fn begin_route(incoming: TenantRequest<'_>) -> RouteOutcome {
    let TenantRequest { request, site, .. } = &incoming;
    let reason = incoming.uncounted();
    let answer = match (request.method, request.path) {
        ("POST", "/v1/decide") => return note_filtered(decide::begin_decide(incoming), reason),
        ("GET", "/v1/me") => return me::begin_me(incoming),
        ("POST", "/v1/events") => return note_filtered(events::begin_events(incoming), reason),
        ("DELETE", "/v1/me") => return erase::begin_erasure(&incoming),
        ("GET" | "HEAD", path) if path.starts_with(IMPRESSION_PATH) => {
            let route = pixel::begin_impression(&incoming, path.trim_start_matches(IMPRESSION_PATH));
            return note_filtered(route, reason);
        }
        ("GET" | "HEAD", path) if path.starts_with(CLICK_PATH) => {
            let route = pixel::begin_click(&incoming, path.trim_start_matches(CLICK_PATH));
            return note_filtered(route, reason);
        }
        ("GET" | "HEAD", "/causeway.js") => return RouteOutcome::Page(WorkerPage::PageTag(incoming.cors)),
        ("OPTIONS", "/v1/decide" | "/v1/events" | "/v1/me") => cors::answer_preflight(site),
        (_, path) if site.tenant.dev && path.starts_with("/demo") => {
            return RouteOutcome::Page(WorkerPage::Demo(site.tenant.name.clone()));
        }
        (_, path) => match allowed_methods(path) {
            Some(methods) => {
                HttpAnswer::error(405, "method", "the path does not support the method: see the header `allow`", None)
                    .with_headers([("allow", methods.to_owned())])
            }
            None => HttpAnswer::error(404, "not_found", "unknown path", None),
        },
    };
    RouteOutcome::Answer(answer.with_headers(incoming.cors))
}

/// Adds a note to the answer if a request of a counting route is not counted. The worker counts the notes.
fn note_filtered(mut routed: RouteOutcome, reason: Option<FilterReason>) -> RouteOutcome {
    let notes = match &mut routed {
        RouteOutcome::Answer(answer) => &mut answer.notes,
        RouteOutcome::Anonymous(state, _) | RouteOutcome::Recognise(state, ..) => &mut state.notes,
        RouteOutcome::Page(_) => return routed,
    };
    notes.extend(reason.map(FilterReason::name));
    routed
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
