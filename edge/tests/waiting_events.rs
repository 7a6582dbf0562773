//! Events that a page sends long after they happened: with the visitor token of the decide answer.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;

use browser::{Browser, answer, body, complete, fact_count, facts, facts_limit, read, values};
use causeway_edge::{Answer, ReadFault};
use causeway_shared::ids::VisitorId;
use causeway_shared::view::Stored;
use causeway_shared::{kv, limits, visitor_token, wire};
use serde_json::{Value, json};

/// A page view of a member's: its visitor, and the token of its events.
fn visit_as(browser: &mut Browser, member: &str) -> (VisitorId, String) {
    browser.prove(member);
    let page = browser.send("POST", "/v1/decide", "{}");
    browser.keep(&page);
    let told = body(&page);
    (told["visitor"].as_str().unwrap().parse().unwrap(), told["visitor_token"].as_str().unwrap().to_owned())
}

fn purchase(token: &str) -> Value {
    let properties = json!({ "value_micros": 9_000_000 });
    json!({ "type": "track", "name": "purchase", "id": "m-7", "visitor_token": token, "properties": properties })
}

fn send(browser: &mut Browser, events: &[Value]) -> Answer {
    browser.send("POST", "/v1/events", json!(events).to_string())
}

/// The code that refuses the one event of a call.
fn refusal(answer: &Answer) -> Value {
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
    let key = kv::snapshot_key(&"demo".parse().unwrap(), ann);
    let tombstone = wire::kv::encode_stored(&key, &Stored::Tombstone).unwrap();
    let call = json!([purchase(&token), purchase(&of_bob)]).to_string();
    let waiting = read(browser.begin("POST", "/v1/events", &call));
    assert_eq!(
        waiting.keys.as_slice(),
        std::slice::from_ref(&key),
        "of the visitors that tokens name, without the cookie's"
    );
    let told = answer(browser.give(waiting, |asked| (asked == key).then_some(tombstone.as_str())));
    assert_eq!(facts(&told).iter().map(|fact| fact.visitor).collect::<Vec<_>>(), [bob]);
    let said = &body(&told)["rejected"];
    assert_eq!((&said[0]["index"], &said[0]["code"]), (&json!(0), &json!("erased")));
    // The isolate knows it from then on; a read that fails loses no event.
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
        let told = send(&mut browser, &[purchase(forged)]);
        assert_eq!((told.status, refusal(&told)), (400, json!("visitor_token_forged")), "{forged}");
    }
    let told = browser.send("POST", "/v1/events", r#"{"type":"page","visitor_token":7}"#);
    assert_eq!(refusal(&told), "malformed");
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
    let told = send(&mut browser, &events);
    let rejected = body(&told)["rejected"].as_array().unwrap().clone();
    assert_eq!((facts(&told).len(), rejected.len()), (limits::EVENTS_VISITORS, 20 - limits::EVENTS_VISITORS));
    assert!(rejected.iter().all(|one| one["code"] == "out_of_bounds"), "{rejected:?}");
    browser.gpc = "1";
    let refused = send(&mut browser, &events[..1]);
    assert_eq!(refusal(&refused), "no_consent");
    let step = browser.begin("POST", "/v1/events", json!(events[..1]).to_string());
    assert_eq!(fact_count(&answer(complete(&mut browser.engine, step, |keys| values(keys, |_| None)))), 0);
}
