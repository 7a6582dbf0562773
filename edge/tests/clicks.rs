//! Click addresses: which requests count as a click.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use crate::browser::{Browser, answer, body, complete, facts, header, seed, values};
use causeway_edge::HttpAnswer;
use serde_json::json;

/// A request for the click address of a house ad with these headers: `Sec-Purpose`, `Purpose` and `Sec-Fetch-Mode`.
fn request(headers: [&str; 3]) -> HttpAnswer {
    request_for(headers, "")
}

/// The same with `Sec-Fetch-Dest`.
fn request_for([sec_purpose, purpose, mode]: [&str; 3], dest: &str) -> HttpAnswer {
    let mut browser = Browser::of("allow", &json!({ "house_landing": "https://shop.example/" }));
    let placed = body(&browser.send("POST", "/v1/decide", r#"{"placements":[{"id":"top"}]}"#));
    let path = placed["decisions"][0]["click_url"].as_str().unwrap();
    let agent = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";
    let head = format!("GET\nhttp://localhost{path}\n\n\n\n{sec_purpose}\n{agent}\n\n{purpose}\n{mode}\n{dest}");
    let step = browser.engine.begin(&head, b"", browser.now, seed(7, browser.now));
    answer(complete(&mut browser.engine, step, |keys| values(keys, |_| None)))
}

#[test]
fn a_prefetch_of_a_click_address_is_refused_so_that_the_real_click_counts() {
    for headers in
        [["prefetch", "", ""], ["prefetch;prerender", "", "navigate"], ["", "prefetch", ""], ["", "Prefetch", ""]]
    {
        let refused = request(headers);
        assert_eq!((refused.status, header(&refused, "cache-control")), (503, Some("no-store")), "{headers:?}");
        assert!(facts(&refused).is_empty(), "{headers:?}");
    }
}

#[test]
fn a_click_counts_where_it_is_navigated_to() {
    for (mode, counts) in [("navigate", 1), ("", 1), ("no-cors", 0), ("cors", 0), ("same-origin", 0)] {
        let clicked = request(["", "", mode]);
        assert_eq!((clicked.status, header(&clicked, "location")), (302, Some("https://shop.example/")), "{mode}");
        assert_eq!(facts(&clicked).len(), counts, "{mode}");
    }
}

#[test]
fn a_click_counts_where_a_whole_page_is_navigated_to_and_not_in_a_frame() {
    let cases = [
        ("navigate", "document", 1),
        ("navigate", "", 1),
        ("", "document", 1),
        ("", "", 1),
        ("navigate", "iframe", 0),
        ("navigate", "frame", 0),
        ("navigate", "fencedframe", 0),
        ("navigate", "embed", 0),
        ("navigate", "object", 0),
        ("", "image", 0),
        ("no-cors", "document", 0),
    ];
    for (mode, dest, counts) in cases {
        let clicked = request_for(["", "", mode], dest);
        assert_eq!((clicked.status, facts(&clicked).len()), (302, counts), "{mode} {dest}");
    }
}

/// The notes of the answers of all counting routes, with this method for pixels, this `Sec-Purpose` and this user
/// agent.
fn filtered(method: &str, purpose: &str, agent: &str) -> Vec<Vec<&'static str>> {
    let mut browser = Browser::of("allow", &json!({ "house_landing": "https://shop.example/" }));
    let placed = body(&browser.send("POST", "/v1/decide", r#"{"placements":[{"id":"top"}]}"#));
    let path = |name: &str| placed["decisions"][0][name].as_str().unwrap();
    let calls = [
        ("POST", "/v1/decide", r#"{"placements":[{"id":"top"}]}"#),
        ("POST", "/v1/events", r#"{"type":"page","messageId":"m-1"}"#),
        (method, path("impression_url"), ""),
        (method, path("click_url"), ""),
    ];
    let send = |(method, path, body): (&str, &str, &str)| {
        let head = format!("{method}\nhttp://localhost{path}\n\n\n\n{purpose}\n{agent}\n\n\n");
        let step = browser.engine.begin(&head, body.as_bytes(), browser.now, seed(7, browser.now));
        answer(complete(&mut browser.engine, step, |keys| values(keys, |_| None))).notes
    };
    calls.map(send).into()
}

#[test]
fn each_request_that_is_not_counted_is_noted_once_with_its_reason() {
    let (browser, bot) = ("Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "Mozilla/5.0 (compatible; Googlebot/2.1)");
    assert_eq!(filtered("GET", "", browser), [[""; 0]; 4]);
    assert_eq!(filtered("GET", "", bot), [["bot"]; 4]);
    assert_eq!(filtered("GET", "prefetch", browser), [["prefetch"]; 4]);
    assert_eq!(filtered("GET", "prefetch", bot), [["prefetch"]; 4]);
    assert_eq!(filtered("HEAD", "", bot), [["bot"], ["bot"], ["head"], ["head"]]);
}
