//! `POST /v1/events`, as an edge with an empty KV takes it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod browser;

use std::collections::BTreeSet;

use browser::{Browser, facts};
use causeway_edge::Outcome;
use causeway_shared::fact::What;
use causeway_shared::ids::SessionId;
use causeway_shared::limits;
use serde_json::{Value, json};

const MINUTE_MS: u64 = 60_000;

fn sessions(outcome: &Outcome) -> BTreeSet<SessionId> {
    let session = |what| if let What::Page { session } = what { session } else { panic!("{what:?} is no page") };
    facts(outcome).into_iter().map(|fact| session(fact.what)).collect()
}

fn answer(outcome: &Outcome) -> Value {
    serde_json::from_slice(&outcome.body).unwrap()
}

#[test]
fn pages_of_one_half_hour_are_one_session_also_where_no_cookie_keeps_it() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let page = r#"[{"type":"page"},{"type":"page"},{"type":"page"}]"#;
    // The session of the decision goes on.
    browser.now += 20 * MINUTE_MS;
    let running = sessions(&browser.send("POST", "/v1/events", page));
    assert_eq!(running.len(), 1);
    // It is over; a half hour later so is the next.
    browser.now = (browser.now / limits::SESSION_IDLE_MS + 3) * limits::SESSION_IDLE_MS;
    let mut later = sessions(&browser.send("POST", "/v1/events", page));
    browser.now += 20 * MINUTE_MS;
    later.extend(sessions(&browser.send("POST", "/v1/events", page)));
    assert_eq!((later.len(), later.is_disjoint(&running)), (1, true));
    browser.now += 20 * MINUTE_MS;
    later.extend(sessions(&browser.send("POST", "/v1/events", page)));
    assert_eq!(later.len(), 2);
}

#[test]
fn field_17_the_facts_of_one_call_fit_one_message_of_the_queue() {
    let mut browser = Browser::new("allow");
    browser.visit();
    // Numbers are written anew: these take 18 bytes instead of 4.
    let properties: Vec<String> = (0..160).map(|n| format!(r#""{n:x}":1e15"#)).collect();
    let event = format!(r#"{{"type":"track","name":"x","properties":{{{}}}}}"#, properties.join(","));
    let events = vec![event.as_str(); limits::BODY_BYTES / (event.len() + 1) - 1];
    let body = format!("[{}]", events.join(","));
    let outcome = browser.send("POST", "/v1/events", &body);
    assert!((100_000..128_000).contains(&outcome.facts.len()), "{} bytes", outcome.facts.len());
    let (answer, taken) = (answer(&outcome), facts(&outcome).len());
    let rejected = answer["rejected"].as_array().unwrap();
    assert_eq!((answer["accepted"].as_u64(), rejected.len()), (Some(taken as u64), events.len() - taken));
    assert!(taken > 0 && !rejected.is_empty() && rejected.iter().all(|one| one["code"] == "out_of_bounds"), "{answer}");
}

#[test]
fn a_line_that_is_no_text_sinks_no_other() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let body = b"{\"type\":\"page\"}\n{\"type\":\"track\",\"name\":\"\xff\"}\r\n\n{\"type\":\"page\"}\n";
    let answer = answer(&browser.send("POST", "/v1/events", body));
    let rejected = json!([{ "index": 1, "code": "malformed", "message": "an event is a JSON object" }]);
    assert_eq!((&answer["accepted"], &answer["rejected"]), (&json!(2), &rejected));
}

#[test]
fn a_page_says_of_no_purchase_more_than_the_tenant_s_largest() {
    let mut browser = Browser::of("allow", &json!({ "most_value_micros": 500_000_000 }));
    browser.visit();
    let events = [500_000_000_i64, 500_000_001, -1, i64::MAX]
        .map(|value| json!({ "type": "track", "name": "purchase", "properties": { "value_micros": value } }));
    let outcome = browser.send("POST", "/v1/events", json!(events).to_string());
    let told = answer(&outcome);
    let refused: Vec<(u64, &str)> = told["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["index"].as_u64().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    assert_eq!(refused, [(1, "value_out_of_range"), (2, "value_out_of_range"), (3, "value_out_of_range")], "{told}");
    assert_eq!(told["rejected"][0]["message"], "a value is 0 to 500000000 micros");
    assert_eq!(facts(&outcome).len(), 1);
}

#[test]
fn an_action_needs_no_cookie_since_its_insertion_names_the_visitor() {
    let mut browser = Browser::new("allow");
    let decided = browser.send("POST", "/v1/decide", r#"{"placements":[{"id":"top"}]}"#);
    let insertion = answer(&decided)["decisions"][0]["insertion"].clone();
    let events =
        json!([{ "type": "action", "insertion": insertion, "action": "click" }, { "type": "page" }]).to_string();
    // An id that is too long is refused of whatever it is.
    let long = json!([{ "type": "action", "insertion": insertion, "action": "click", "id": "x".repeat(5_000) }]);
    assert_eq!(answer(&browser.send("POST", "/v1/events", long.to_string()))["rejected"][0]["code"], "too_long");
    // Nothing is kept of the answer: the browser has no cookie.
    let outcome = browser.send("POST", "/v1/events", &events);
    let told = facts(&outcome);
    assert!(matches!(told.as_slice(), [fact] if matches!(fact.what, What::Action { .. })), "{told:?}");
    assert_eq!(Value::from(told[0].visitor.to_string()), answer(&decided)["visitor"]);
    assert_eq!(answer(&outcome)["rejected"][0]["code"], "no_visitor");
    // Who refuses is told of in no form.
    browser.gpc = "1";
    let refused = browser.send("POST", "/v1/events", &events);
    assert_eq!((facts(&refused).len(), answer(&refused)["consent"].as_str()), (0, Some("gpc")));
}

#[test]
fn every_bad_event_is_named_also_behind_many_bad_attributes() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let bad: serde_json::Map<String, Value> = (0..64).map(|n| (format!("{n}a"), json!(1))).collect();
    let mut events = vec![json!({ "type": "attributes", "set": bad }); 4];
    events.push(json!({ "type": "nonsense" }));
    let told = answer(&browser.send("POST", "/v1/events", json!(events).to_string()));
    let rejected = told["rejected"].as_array().unwrap();
    let named: BTreeSet<u64> = rejected.iter().filter_map(|one| one["index"].as_u64()).collect();
    assert_eq!((told["accepted"].as_u64(), named), (Some(0), (0..5).collect()));
    assert_eq!(rejected.len(), limits::EVENTS + 1, "as many as there can be events, and the last");
}

#[test]
fn field_01_a_prefetch_that_proves_another_member_is_answered_to_nobody() {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    let visitor = browser.visit();
    browser.purpose = "prefetch;prerender";
    for (member, shown, reason) in
        [("ann", json!(visitor.to_string()), Value::Null), ("bert", Value::Null, json!("not_counted"))]
    {
        browser.prove(member);
        let outcome = browser.send("POST", "/v1/decide", "{}");
        let told = answer(&outcome);
        assert_eq!((&told["visitor"], &told["reason"]), (&shown, &reason), "{member}");
        assert_eq!((outcome.head.facts, outcome.head.limit.is_some()), (0, false), "{member}");
    }
}
