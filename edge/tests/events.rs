//! `POST /v1/events` at an edge with an empty KV.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod browser;

use std::collections::BTreeSet;

use browser::{Browser, answer, body, complete, fact_count, facts, values};
use causeway_edge::{Answer, Step};
use causeway_shared::fact::What;
use causeway_shared::ids::SessionId;
use causeway_shared::limits;
use serde_json::{Value, json};

const MINUTE_MS: u64 = 60_000;

/// An event whose fact is longer than its text: numbers are written again, these with 18 bytes instead of 4.
fn growing_event() -> String {
    let properties: Vec<String> = (0..160).map(|n| format!(r#""{n:x}":1e15"#)).collect();
    format!(r#"{{"type":"track","name":"x","properties":{{{}}}}}"#, properties.join(","))
}

fn sessions(answer: &Answer) -> BTreeSet<SessionId> {
    let session = |what| if let What::Page { session } = what { session } else { panic!("{what:?} is no page") };
    facts(answer).into_iter().map(|fact| session(fact.what)).collect()
}

#[test]
fn pages_of_one_half_hour_are_one_session_even_where_no_cookie_stores_it() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let page = r#"[{"type":"page"},{"type":"page"},{"type":"page"}]"#;
    // The session of the decision continues.
    browser.now += 20 * MINUTE_MS;
    let running = sessions(&browser.send("POST", "/v1/events", page));
    assert_eq!(running.len(), 1);
    // It has ended; half an hour later the next one has ended too.
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
fn the_facts_of_one_call_fit_one_message_of_the_queue() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let event = growing_event();
    let events = vec![event.as_str(); limits::BODY_BYTES / (event.len() + 1) - 1];
    let answer = browser.send("POST", "/v1/events", format!("[{}]", events.join(",")));
    let bytes = answer.facts.as_ref().unwrap().bytes.len();
    assert!((100_000..128_000).contains(&bytes), "{bytes} bytes");
    let (told, accepted) = (body(&answer), facts(&answer).len());
    let rejected = told["rejected"].as_array().unwrap();
    assert_eq!((told["accepted"].as_u64(), rejected.len()), (Some(accepted as u64), events.len() - accepted));
    assert!(accepted > 0 && !rejected.is_empty(), "{told}");
    assert!(rejected.iter().all(|one| one["code"] == "out_of_bounds"), "{told}");
}

#[test]
fn a_line_that_is_not_utf8_refuses_no_other_line() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let lines = b"{\"type\":\"page\"}\n{\"type\":\"track\",\"name\":\"\xff\"}\r\n\n{\"type\":\"page\"}\n";
    let told = body(&browser.send("POST", "/v1/events", lines));
    let rejected = json!([{ "index": 1, "code": "malformed", "message": "an event is a JSON object" }]);
    assert_eq!((&told["accepted"], &told["rejected"]), (&json!(2), &rejected));
}

#[test]
fn a_purchase_above_the_tenants_largest_value_is_refused() {
    let mut browser = Browser::of("allow", &json!({ "most_value_micros": 500_000_000 }));
    browser.visit();
    let events = [500_000_000_i64, 500_000_001, -1, i64::MAX]
        .map(|value| json!({ "type": "track", "name": "purchase", "properties": { "value_micros": value } }));
    let answer = browser.send("POST", "/v1/events", json!(events).to_string());
    let told = body(&answer);
    let refused: Vec<(u64, &str)> = told["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["index"].as_u64().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    assert_eq!(refused, [(1, "value_out_of_range"), (2, "value_out_of_range"), (3, "value_out_of_range")], "{told}");
    assert_eq!(told["rejected"][0]["message"], "a value is 0 to 500000000 micros");
    assert_eq!(facts(&answer).len(), 1);
}

#[test]
fn an_action_needs_no_cookie_because_its_insertion_names_the_visitor() {
    let mut browser = Browser::new("allow");
    let decided = browser.send("POST", "/v1/decide", r#"{"placements":[{"id":"top"}]}"#);
    let insertion = body(&decided)["decisions"][0]["insertion"].clone();
    let events =
        json!([{ "type": "action", "insertion": insertion, "action": "click" }, { "type": "page" }]).to_string();
    // An id that is too long is refused for every type of event.
    let long = json!([{ "type": "action", "insertion": insertion, "action": "click", "id": "x".repeat(5_000) }]);
    assert_eq!(body(&browser.send("POST", "/v1/events", long.to_string()))["rejected"][0]["code"], "too_long");
    // The decision's cookies were not stored: the browser has none.
    let answer = browser.send("POST", "/v1/events", &events);
    let told = facts(&answer);
    assert!(matches!(told.as_slice(), [fact] if matches!(fact.what, What::Action { .. })), "{told:?}");
    assert_eq!(Value::from(told[0].visitor.to_string()), body(&decided)["visitor"]);
    assert_eq!(body(&answer)["rejected"][0]["code"], "no_visitor");
    // A visitor that refuses leaves no fact.
    browser.gpc = "1";
    let refused = browser.send("POST", "/v1/events", &events);
    assert_eq!((facts(&refused).len(), body(&refused)["consent"].as_str()), (0, Some("gpc")));
}

#[test]
fn every_invalid_event_is_named_even_after_many_invalid_attributes() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let bad: serde_json::Map<String, Value> = (0..64).map(|n| (format!("{n}a"), json!(1))).collect();
    let mut events = vec![json!({ "type": "attributes", "set": bad }); 4];
    events.push(json!({ "type": "nonsense" }));
    let told = body(&browser.send("POST", "/v1/events", json!(events).to_string()));
    let rejected = told["rejected"].as_array().unwrap();
    let named: BTreeSet<u64> = rejected.iter().filter_map(|one| one["index"].as_u64()).collect();
    assert_eq!((told["accepted"].as_u64(), named), (Some(0), (0..5).collect()));
    assert_eq!(rejected.len(), limits::EVENTS + 1, "as many as a call may have events, and the last one");
}

#[test]
fn of_an_event_that_is_refused_twice_the_first_refusal_is_named_after_many_others() {
    let mut browser = Browser::new("allow");
    browser.visit();
    // Facts up to the bound of a call, and refusals up to the bound of an answer.
    let fills = growing_event();
    let bad: serde_json::Map<String, Value> = (0..64).map(|n| (format!("{n}a"), json!(1))).collect();
    let refused = json!({ "type": "attributes", "set": bad }).to_string();
    // An invalid name, and valid values that exceed the bound of a call's facts.
    let mut both: serde_json::Map<String, Value> = (0..20).map(|n| (format!("a{n}"), json!("x".repeat(250)))).collect();
    both.insert("9a".to_owned(), json!(1));
    let twice = json!({ "type": "attributes", "set": both }).to_string();
    let events = [vec![fills; 31], vec![refused; 4], vec![twice]].concat();
    let told = body(&browser.send("POST", "/v1/events", format!("[{}]", events.join(","))));
    let rejected = told["rejected"].as_array().unwrap();
    let last: Vec<&Value> = rejected.iter().filter(|one| one["index"] == 35).map(|one| &one["code"]).collect();
    assert_eq!((rejected.len(), last), (limits::EVENTS + 1, vec![&json!("bad_name")]), "{told}");
}

#[test]
fn a_prefetch_that_proves_another_member_is_answered_without_a_visitor() {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    let visitor = browser.visit();
    browser.purpose = "prefetch;prerender";
    for (member, shown, reason) in
        [("ann", json!(visitor.to_string()), Value::Null), ("bert", Value::Null, json!("not_counted"))]
    {
        browser.prove(member);
        let step = browser.begin("POST", "/v1/decide", "{}");
        let is_limited = matches!(&step, Step::Read(read) if read.mint_limit.is_some());
        let answer = answer(complete(&mut browser.engine, step, |keys| values(keys, |_| None)));
        let told = body(&answer);
        assert_eq!((&told["visitor"], &told["reason"]), (&shown, &reason), "{member}");
        assert_eq!((fact_count(&answer), is_limited), (0, false), "{member}");
    }
}
