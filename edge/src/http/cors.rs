//! Checks the origin of the calling page, and sets the CORS headers for its browser.

use crate::http::answer::HttpAnswer;
use crate::http::request::{EXPLAIN, HttpRequest};
use crate::site::Site;

/// The headers that let a page read the answer. A page of an unconfigured origin is refused, so that no other site acts
/// in a visitor's name.
pub(crate) fn cors_headers(
    request: HttpRequest<'_>,
    site: &Site,
) -> Result<Vec<(&'static str, String)>, Box<HttpAnswer>> {
    match request.origin() {
        None => Ok(Vec::new()),
        Some(origin) if request.admits(origin, &site.tenant) => Ok(vec![
            ("access-control-allow-origin", origin.to_owned()),
            ("access-control-allow-credentials", "true".to_owned()),
            ("vary", "Origin".to_owned()),
        ]),
        Some(_) => {
            Err(Box::new(HttpAnswer::error(403, "origin", "this page's origin is not configured for the tenant", None)))
        }
    }
}

pub(crate) fn answer_preflight(site: &Site) -> HttpAnswer {
    let own = site.tenant.proof_header.as_deref().map(|h| format!(", {h}")).unwrap_or_default();
    HttpAnswer::empty(204).with_headers([
        ("access-control-allow-methods", "GET, POST, DELETE".to_owned()),
        ("access-control-allow-headers", format!("content-type, {EXPLAIN}{own}")),
        ("access-control-max-age", "86400".to_owned()),
    ])
}
