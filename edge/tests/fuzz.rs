//! Hostile bodies for the calls of a page: none makes the engine panic, each is answered, and a refusal names its code.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::browser::{Browser, body, facts};
use crate::hostile::Hostile;
use bolero::check;
use serde_json::{Value, json};

const ITERATIONS: usize = 150_000;
/// Time of the fuzzing of one route.
const TIME: Duration = Duration::from_secs(5);

/// A browser with a visitor, so that its events are read completely, and the insertion of an ad that was placed for it.
fn visiting() -> (Browser, String) {
    let mut browser = Browser::new("allow");
    browser.visit();
    let placed = browser.send("POST", "/v1/decide", r#"{"placements":[{"id":"top"}]}"#);
    (browser, body(&placed)["decisions"][0]["insertion"].as_str().unwrap().to_owned())
}

/// Calls with valid bodies, with hostile ones and with damaged ones.
fn answers(mut browser: Browser, path: &str, seeds: &[Vec<u8>]) {
    for seed in seeds {
        let status = browser.send("POST", path, seed).status;
        assert!((200..300).contains(&status), "{status} for {}", String::from_utf8_lossy(seed));
    }
    // A lock, because a failing input is called again while it is shrunk.
    let browser = Mutex::new(browser);
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let mut browser = browser.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = browser.send("POST", path, hostile.bytes(seeds));
        let reply = body(&answer);
        match answer.status {
            200 | 202 => assert!(reply["error"].is_null(), "{reply}"),
            400 | 413 => {
                assert!(reply["error"]["code"].is_string() && reply["error"]["message"].is_string(), "{reply}");
                assert!(reply["error"].get("field").is_none_or(Value::is_string), "{reply}");
                assert_eq!(answer.facts, None, "{reply}");
            }
            status => unreachable!("{status}: {reply}"),
        }
        // Checks the number of facts of the message.
        facts(&answer);
    });
}

#[test]
fn damaged_bodies_of_decide_are_answered_and_a_refusal_names_its_code() {
    let (browser, _) = visiting();
    let full = json!({
        "placements": [
            { "id": "top", "sizes": [[728, 90], [300, 250]], "view_type": "home", "floor_micros": 5 }, { "id": "\u{e9}\"\\" },
        ],
        "page": { "url": "https://pub.example/a?b=c#d", "referrer": "https://x.example/", "keywords": ["hotel", "\u{1F980}"] },
        "user": {
            "ids": { "member": "ann" }, "proofs": { "member": "a.b.c" },
            "attributes": { "age": 7, "vip": true, "city": "Oslo", "born": "2001-02-03", "gone": null },
        },
        "explain": true, "page_view": false,
    });
    let consenting = json!({
        "placements": [{ "id": "a" }], "user": { "ids": {}, "attributes": { "x": [1, { "y": 1e300 }] } },
        "consent": { "tcf": "CPXxRfAPXxRfAAfKABENB-CgALAAAAAAAAYgAAAAAAAA", "gpp": "DBAA", "gpp_sid": [7, -1] },
    });
    let lines = "{\n \"page\": {\"url\": \"\"},\r\n\t\"placements\":\n[ ] }\n".as_bytes().to_vec();
    answers(browser, "/v1/decide", &[full.to_string().into(), consenting.to_string().into(), lines, b"{}".to_vec()]);
}

#[test]
fn damaged_bodies_of_events_are_answered_and_a_refusal_names_its_code() {
    let (browser, insertion) = visiting();
    let now = browser.now;
    let events = [
        json!({ "type": "page", "id": "p", "at_ms": now }),
        json!({ "type": "track", "name": "purchase", "properties": { "value_micros": 5_000_000, "sku": ["\u{e9}", { "a": null }] } }),
        json!({ "type": "action", "action": "click", "insertion": insertion }),
        json!({ "type": "segments", "set": [{ "segment": 7, "expires_ms": now + 90_000_000, "attributes": { "3": -7 } }], "remove": [9] }),
        json!({ "type": "attributes", "set": { "age": 7, "vip": true, "city": "Oslo" }, "remove": ["born"] }),
    ];
    let lines = events.each_ref().map(Value::to_string).join("\n");
    answers(
        browser,
        "/v1/events",
        &[json!(events).to_string().into(), lines.into(), b"[{\"type\":\"page\"}]".to_vec()],
    );
}
