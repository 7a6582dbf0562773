//! Answers to requests that could not be served.

use serde_json::json;

use crate::http::answer::HttpAnswer;
use crate::http::request::RequestTarget;

/// A transparent picture of one pixel (GIF89a, section 20 ff.).
pub(crate) const PIXEL: [u8; 43] =
    *b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
pub(crate) const NO_STORE: (&str, &str) = ("cache-control", "no-store");
const ALLOWED_METHODS: &str = "GET, POST, DELETE";

/// The reason why a request could not be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnservedReason {
    /// The configuration cannot be used, or the platform failed.
    Internal,
    /// Too many requests wait for a read, or the catalogue that the answer needs is not available.
    Overloaded,
    /// The WebAssembly instance was restarted during the request.
    Restarted,
    /// Neither the queue nor the origin accepted the facts.
    Retry,
}

impl UnservedReason {
    /// The stable name, as answers and counters show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Overloaded => "overloaded",
            Self::Restarted => "restarted",
            Self::Retry => "retry",
        }
    }
}

/// Answers a request that could not be served.
///
/// The publisher's page never breaks (invariant 9): it gets an answer without ads and with the reason. A call that
/// writes, erases or shows data gets 503 and must be sent again. A click is redirected to its own address once, with
/// `again`, because a page cannot handle an error there.
#[must_use]
pub fn answer_unserved(target: &RequestTarget<'_>, reason: UnservedReason) -> HttpAnswer {
    let no_store = NO_STORE.1.to_owned();
    match (target.method, target.path) {
        ("OPTIONS", _) => {
            let allowed = target.requested_headers.unwrap_or_default().to_owned();
            let headers = [
                ("access-control-allow-methods", ALLOWED_METHODS.to_owned()),
                ("access-control-allow-headers", allowed),
            ];
            HttpAnswer::empty(204).with_headers(readable_headers(target)).with_headers(headers)
        }
        (_, "/healthz") => {
            HttpAnswer::error(503, "misconfigured", "the configuration cannot be used: see the worker's log", None)
        }
        // A page without the script works, one with a broken script may not.
        (_, "/causeway.js") => HttpAnswer::empty(503).with_headers([(NO_STORE.0, no_store)]),
        (_, "/v1/events" | "/v1/me") => answer_retry(target),
        (_, path) if path.starts_with("/v1/i/") => {
            let headers = [("content-type", "image/gif".to_owned()), (NO_STORE.0, no_store)];
            HttpAnswer { body: PIXEL.to_vec(), ..HttpAnswer::empty(200) }.with_headers(headers)
        }
        (_, path) if path.starts_with("/v1/c/") && !target.is_again() => {
            let separator = if target.query.is_empty() { "" } else { "&" };
            let location = format!("{path}?{}{separator}again", target.query);
            HttpAnswer::empty(302).with_headers([("location", location), (NO_STORE.0, no_store)])
        }
        _ => {
            let nothing = json!({
                "visitor": null, "person": null, "decisions": [], "catalogue": null, "kv_reads": 0, "consent": "none",
                "reason": reason.name(),
            });
            HttpAnswer::json(200, &nothing).with_headers(readable_headers(target))
        }
    }
}

/// Answers a call that wrote nothing and must be sent again.
#[must_use]
pub fn answer_retry(target: &RequestTarget<'_>) -> HttpAnswer {
    let message = "the call was not served: send it again, events with the same ids";
    refuse_target(target, 503, "retry", message, "1")
}

/// Answers a call over its visitor's rate limit. A limit counts over 10 or 60 seconds.
#[must_use]
pub fn answer_rate_limited(target: &RequestTarget<'_>) -> HttpAnswer {
    let message = "too many calls of this visitor: send the call again later, events with the same ids";
    refuse_target(target, 429, "rate_limited", message, "10")
}

fn refuse_target(
    target: &RequestTarget<'_>,
    status: u16,
    code: &str,
    message: &str,
    retry_after_s: &str,
) -> HttpAnswer {
    let headers = readable_headers(target).into_iter().chain([("retry-after", retry_after_s.to_owned())]);
    HttpAnswer::error(status, code, message, None).with_headers(headers)
}

/// Headers that let a page of any origin read the answer, which contains nothing about a visitor.
fn readable_headers(target: &RequestTarget<'_>) -> Vec<(&'static str, String)> {
    let headers = target.origin.map(|origin| {
        [
            ("access-control-allow-origin", origin.to_owned()),
            ("access-control-allow-credentials", "true".to_owned()),
            ("vary", "Origin".to_owned()),
        ]
    });
    headers.into_iter().flatten().collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn answered(method: &str, url: &str, origin: Option<&str>) -> HttpAnswer {
        let target =
            RequestTarget { origin, requested_headers: Some("x-a"), ..RequestTarget::parse(method, url).unwrap() };
        answer_unserved(&target, UnservedReason::Restarted)
    }

    fn header<'a>(answer: &'a HttpAnswer, name: &str) -> Option<&'a str> {
        answer.headers.iter().find(|(header, _)| *header == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn a_page_gets_no_ads_and_the_reason() {
        let answer = answered("POST", "https://ads.pub.example/v1/decide", Some("https://pub.example"));
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let nothing = json!({
            "visitor": null, "person": null, "decisions": [], "catalogue": null, "kv_reads": 0, "consent": "none",
            "reason": "restarted",
        });
        assert_eq!((answer.status, body), (200, nothing));
        assert_eq!(header(&answer, "access-control-allow-origin"), Some("https://pub.example"));
    }

    #[test]
    fn a_call_that_writes_or_shows_data_is_to_be_sent_again() {
        for (method, path) in [("POST", "/v1/events"), ("GET", "/v1/me"), ("DELETE", "/v1/me")] {
            let answer = answered(method, &format!("https://ads.pub.example{path}?x=1"), None);
            assert_eq!((answer.status, header(&answer, "retry-after")), (503, Some("1")), "{method} {path}");
        }
    }

    #[test]
    fn a_click_comes_again_once_and_an_impression_gets_its_picture() {
        let click = |query: &str| answered("GET", &format!("https://ads.pub.example/v1/c/token{query}"), None);
        assert_eq!(header(&click(""), "location"), Some("/v1/c/token?again"));
        assert_eq!(header(&click("?x=1"), "location"), Some("/v1/c/token?x=1&again"));
        assert_eq!((click("?x=1&again").status, header(&click("?again"), "location")), (200, None));
        let picture = answered("GET", "https://ads.pub.example/v1/i/token", None);
        assert_eq!((picture.status, picture.body.as_slice()), (200, PIXEL.as_slice()));
    }

    #[test]
    fn a_preflight_is_admitted_and_the_tag_and_health_are_unavailable() {
        let preflight = answered("OPTIONS", "https://ads.pub.example/v1/decide", Some("https://pub.example"));
        assert_eq!((preflight.status, header(&preflight, "access-control-allow-headers")), (204, Some("x-a")));
        let statuses =
            ["/healthz", "/causeway.js"].map(|path| answered("GET", &format!("https://a.example{path}"), None).status);
        assert_eq!(statuses, [503, 503]);
    }
}
