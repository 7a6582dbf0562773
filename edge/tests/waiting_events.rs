//! Events that a page sends long after they happened: with the visitor token of the decide answer.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use crate::browser::{Browser, answer, body, complete, fact_count, facts, facts_limit, read, values};
use causeway_edge::{HttpAnswer, ReadFault};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use causeway_shared::keys::visitor_token;
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::{self, kv_keys};
use serde_json::{Value, json};

/// Makes a page view as a member; returns its visitor and the visitor token for events.
fn visit_as(browser: &mut Browser, member: &str) -> (VisitorId, String) {
    browser.prove(member);
    let page = browser.send("POST", "/v1/decide", "{}");
    browser.keep(&page);
    let reply = body(&page);
    (reply["visitor"].as_str().unwrap().parse().unwrap(), reply["visitor_token"].as_str().unwrap().to_owned())
}

fn purchase(token: &str) -> Value {
    let properties = json!({ "value_micros": 9_000_000 });
    json!({ "type": "track", "name": "purchase", "id": "m-7", "visitor_token": token, "properties": properties })
}

fn send(browser: &mut Browser, events: &[Value]) -> HttpAnswer {
    browser.send("POST", "/v1/events", json!(events).to_string())
}

/// The code that refuses the one event of a call.
fn refusal(answer: &HttpAnswer) -> Value {
    assert_eq!((fact_count(answer), &body(answer)["accepted"]), (0, &json!(0)));
    body(answer)["rejected"][0]["code"].clone()
}

#[test]
fn an_event_counts_once_for_the_visitor_of_its_token_whoever_is_at_the_browser_by_then() {
    let mut browser = Browser::new("allow");
    let (ann, token) = visit_as(&mut browser, "ann");
    let first = facts(&send(&mut browser, &[purchase(&token)]));
    let (bob, of_bob) = visit_as(&mut browser, "bob");
    assert_ne!(ann, bob);
    // The answer was lost, and the tag sends it again; what happens to Bob counts for Bob.
    let both = facts(&send(&mut browser, &[purchase(&token), purchase(&of_bob)]));
    assert_eq!(both.iter().map(|fact| fact.visitor).collect::<Vec<_>>(), [ann, bob]);
    assert_eq!(both[0].id, first[0].id, "a repeat is the same fact");
    assert_ne!(both[1].id, first[0].id);
    browser.cookies.clear();
    let without_cookie = send(&mut browser, &[purchase(&token)]);
    assert_eq!(facts(&without_cookie)[0].id, first[0].id);
    assert!(facts_limit(&without_cookie).unwrap().key.ends_with(&ann.to_string()));
}

#[test]
fn every_type_of_event_counts_for_the_visitor_of_its_token() {
    let mut browser = Browser::new("allow");
    let (ann, token) = visit_as(&mut browser, "ann");
    visit_as(&mut browser, "bob");
    let day = browser.now + 86_400_000;
    let events = [
        json!({ "type": "page", "visitor_token": token }),
        json!({ "type": "track", "name": "saved", "visitor_token": token }),
        json!({ "type": "segments", "set": [{ "segment": 7, "expires_ms": day }], "visitor_token": token }),
        json!({ "type": "attributes", "set": { "plan": "pro" }, "visitor_token": token }),
    ];
    let owners: Vec<VisitorId> = facts(&send(&mut browser, &events)).iter().map(|fact| fact.visitor).collect();
    assert_eq!(owners, [ann; 4]);
}

#[test]
fn an_event_of_an_erased_visitor_is_dropped_and_named_and_counts_for_nobody() {
    let mut browser = Browser::new("allow");
    let (ann, token) = visit_as(&mut browser, "ann");
    browser.cookies.clear();
    let (bob, of_bob) = visit_as(&mut browser, "bob");
    let key = kv_keys::snapshot_key(&"demo".parse().unwrap(), ann);
    let tombstone = wire::kv::encode_stored(&key, &StoredValue::Tombstone).unwrap();
    let call = json!([purchase(&token), purchase(&of_bob)]).to_string();
    let waiting = read(browser.begin("POST", "/v1/events", &call));
    assert_eq!(
        waiting.keys.as_slice(),
        std::slice::from_ref(&key),
        "of the visitors that tokens name, without the cookie's"
    );
    let response = answer(browser.give(waiting, |read| (read == key).then_some(tombstone.as_str())));
    assert_eq!(facts(&response).iter().map(|fact| fact.visitor).collect::<Vec<_>>(), [bob]);
    let rejected = &body(&response)["rejected"];
    assert_eq!((&rejected[0]["index"], &rejected[0]["code"]), (&json!(0), &json!("erased")));
    // The isolate remembers the erasure; a read that fails loses no event.
    let again = send(&mut browser, &[purchase(&token)]);
    assert_eq!((again.status, refusal(&again)), (202, json!("erased")));
    let (cid, of_cid) = visit_as(&mut browser, "cid");
    visit_as(&mut browser, "bob");
    let step = browser.begin("POST", "/v1/events", json!([purchase(&of_cid)]).to_string());
    let taken = answer(complete(&mut browser.engine, step, |_| Err(ReadFault::Failed)));
    assert_eq!(facts(&taken)[0].visitor, cid);
}

#[test]
fn a_token_that_names_no_visitor_never_falls_back_to_the_cookies() {
    let mut browser = Browser::new("allow");
    let (ann, token) = visit_as(&mut browser, "ann");
    let other = visitor_token::seal_visitor(&browser.cookie_ring, &"other".parse().unwrap(), ann, browser.now).unwrap();
    let cookie = browser.cookies[0].split_once('=').unwrap().1.to_owned();
    for forged in ["", "x", &other, &cookie, &token[..token.len() - 1], &"v".repeat(5_000)] {
        let response = send(&mut browser, &[purchase(forged)]);
        assert_eq!((response.status, refusal(&response)), (400, json!("visitor_token_forged")), "{forged}");
    }
    let response = browser.send("POST", "/v1/events", r#"{"type":"page","visitor_token":7}"#);
    assert_eq!(refusal(&response), "malformed");
    // Null is absent, as everywhere.
    let own = browser.send("POST", "/v1/events", r#"{"type":"page","visitor_token":null}"#);
    assert_eq!(facts(&own)[0].visitor, ann);
    browser.now += limits::VISITOR_TOKEN_LIFE_MS;
    let late = send(&mut browser, &[purchase(&token)]);
    assert_eq!((late.status, refusal(&late)), (400, json!("visitor_token_late")));
}

#[test]
fn a_call_names_only_so_many_visitors_and_a_refusal_of_consent_holds_for_tokens() {
    let mut browser = Browser::new("allow");
    let seal = |browser: &Browser, n: u8| {
        let visitor = VisitorId::mint(browser.now, [n; 10]);
        visitor_token::seal_visitor(&browser.cookie_ring, &"demo".parse().unwrap(), visitor, browser.now).unwrap()
    };
    let events: Vec<Value> = (1..=20).map(|n| purchase(&seal(&browser, n))).collect();
    let response = send(&mut browser, &events);
    let rejected = body(&response)["rejected"].as_array().unwrap().clone();
    assert_eq!((facts(&response).len(), rejected.len()), (limits::EVENTS_VISITORS, 20 - limits::EVENTS_VISITORS));
    assert!(rejected.iter().all(|one| one["code"] == "out_of_bounds"), "{rejected:?}");
    browser.gpc = "1";
    let refused = send(&mut browser, &events[..1]);
    assert_eq!(refusal(&refused), "no_consent");
    let step = browser.begin("POST", "/v1/events", json!(events[..1]).to_string());
    assert_eq!(fact_count(&answer(complete(&mut browser.engine, step, |keys| values(keys, |_| None)))), 0);
}

/// A browser with the cookies of its visitors in this order; returns the visitors, each old enough to have a snapshot.
fn with_cookies_of(order: [usize; 2]) -> (Browser, [VisitorId; 2]) {
    let mut browser = Browser::new("allow");
    let visitors = [(); 2].map(|()| {
        browser.cookies.clear();
        (browser.visit(), browser.cookies.clone())
    });
    browser.cookies = order.into_iter().flat_map(|at| visitors[at].1.clone()).collect();
    browser.now += 600_000;
    (browser, visitors.map(|(visitor, _)| visitor))
}

/// The answer of a call at an edge whose KV has tombstones of these visitors.
fn send_after_erasure(browser: &mut Browser, gone: &[VisitorId], method: &str, path: &str, text: &str) -> HttpAnswer {
    let stored: Vec<(String, String)> = gone
        .iter()
        .map(|visitor| {
            let key = kv_keys::snapshot_key(&"demo".parse().unwrap(), *visitor);
            let tombstone = wire::kv::encode_stored(&key, &StoredValue::Tombstone).unwrap();
            (key, tombstone)
        })
        .collect();
    let value = |asked: &str| stored.iter().find(|(key, _)| key == asked).map(|(_, value)| value.as_str());
    let step = browser.begin(method, path, text);
    answer(complete(&mut browser.engine, step, |keys| values(keys, value)))
}

const PAGE: &str = r#"[{"type":"page"}]"#;

#[test]
fn an_event_of_an_erased_visitor_is_refused_where_its_cookie_names_it_and_the_cookies_expire() {
    let (mut browser, [gone, _]) = with_cookies_of([1, 0]);
    browser.cookies.drain(..2);
    let response = send_after_erasure(&mut browser, &[gone], "POST", "/v1/events", PAGE);
    assert_eq!((response.status, refusal(&response)), (202, json!("erased")));
    browser.keep(&response);
    assert_eq!(browser.cookies, [""; 0]);
    // Events of a visitor without a tombstone count, even if the read fails; events without a token need no read.
    let (mut browser, [_, living]) = with_cookies_of([0, 1]);
    browser.cookies.drain(..2);
    assert_ne!(living, gone);
    let response = send_after_erasure(&mut browser, &[gone], "POST", "/v1/events", PAGE);
    assert_eq!(facts(&response)[0].visitor, living);
    let step = browser.begin("POST", "/v1/events", PAGE);
    let taken = answer(complete(&mut browser.engine, step, |_| Err(ReadFault::Late)));
    assert_eq!(facts(&taken)[0].visitor, living);
    let invalid = browser.begin("POST", "/v1/events", r#"[{"type":"nothing"}]"#);
    assert_eq!(answer(invalid).status, 400);
}

#[test]
fn each_route_takes_the_same_of_several_identity_cookies() {
    for order in [[0, 1], [1, 0]] {
        let call = |method: &str, path: &str, text: &str| {
            let (mut browser, [gone, own]) = with_cookies_of(order);
            (send_after_erasure(&mut browser, &[gone], method, path, text), own)
        };
        for (method, path) in [("POST", "/v1/decide"), ("GET", "/v1/me")] {
            let (shown, own) = call(method, path, "{}");
            assert_eq!(body(&shown)["visitor"], json!(own.to_string()), "{method} {path} {order:?}");
        }
        let (events, own) = call("POST", "/v1/events", PAGE);
        assert_eq!((&body(&events)["accepted"], facts(&events)[0].visitor), (&json!(1), own), "{order:?}");
        let (erased, own) = call("DELETE", "/v1/me", "");
        assert_eq!((erased.status, facts(&erased)[0].visitor), (202, own), "{order:?}");
    }
}

#[test]
fn where_the_visitors_of_all_identity_cookies_were_erased_no_event_counts() {
    let (mut browser, gone) = with_cookies_of([0, 1]);
    let events = send_after_erasure(&mut browser, &gone, "POST", "/v1/events", PAGE);
    assert_eq!(refusal(&events), "erased");
    let again = send_after_erasure(&mut browser, &gone, "DELETE", "/v1/me", "");
    assert_eq!(
        (again.status, facts(&again)[0].visitor),
        (202, gone[1]),
        "the erasure of the first visitor is answered again"
    );
    browser.keep(&again);
    assert_eq!(browser.cookies, [""; 0]);
}
