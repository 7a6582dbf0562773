//! The id of a request, and its span in the log. A log line names the method, the path's template and the status, and
//! never a path, a query or a header: these may name a visitor or hold a token.

use axum::extract::{MatchedPath, Request};
use axum::http::HeaderMap;
use tower_http::request_id::RequestId;
use tracing::Span;

/// Header with the id of a request, in the request and in its answer.
const REQUEST_ID: &str = "x-request-id";
/// Longest id that a caller may give, in bytes; a UUID has 36.
const LONGEST_ID: usize = 64;

/// Removes the caller's request id unless it is valid; a new id replaces it.
pub(super) fn drop_invalid_id(mut request: Request) -> Request {
    if !has_valid_id(request.headers()) {
        request.headers_mut().remove(REQUEST_ID);
    }
    request
}

/// Whether the caller gave exactly one id, of letters, digits, `-`, `_` and `.`, so that it cannot forge a log line.
fn has_valid_id(headers: &HeaderMap) -> bool {
    let mut ids = headers.get_all(REQUEST_ID).iter();
    let (Some(id), None) = (ids.next(), ids.next()) else { return false };
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=LONGEST_ID).contains(&id.len()) && id.as_bytes().iter().all(is_valid)
}

/// The span of a request. Log lines of the request are inside it.
pub(super) fn request_span(request: &Request) -> Span {
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    tracing::info_span!("request", id, method = %request.method(), route)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn only_one_short_plain_id_of_a_caller_is_used() {
        let is_used = |ids: &[&[u8]]| {
            let request = ids.iter().fold(Request::builder(), |request, id| request.header(REQUEST_ID, *id));
            drop_invalid_id(request.body(Body::empty()).unwrap()).headers().contains_key(REQUEST_ID)
        };
        assert!(is_used(&[b"0198c1f2-7a3e-7000-8000-000000000001"]) && is_used(&[&[b'a'; LONGEST_ID]]));
        let long = [b'a'; LONGEST_ID + 1];
        let invalid: [&[&[u8]]; 7] = [&[], &[b""], &[b"a b"], &[b"a\"b"], &[b"\xff"], &[b"a", b"b"], &[&long]];
        for invalid in invalid {
            assert!(!is_used(invalid), "{invalid:?}");
        }
    }
}
