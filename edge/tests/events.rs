//! `POST /v1/events` at an edge with an empty KV.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::collections::BTreeSet;

use crate::browser::{Browser, answer, body, complete, fact_count, facts, values};
use causeway_edge::{EngineStep, HttpAnswer};
use causeway_shared::base::ids::{Micros, SessionId};
use causeway_shared::base::limits;
use causeway_shared::facts::fact::FactKind;
use causeway_shared::facts::segments::{SegmentId, SegmentState, WriteStamp};
use serde_json::{Value, json};

const MINUTE_MS: u64 = 60_000;

/// An event whose fact is longer than its text: numbers are written again, these with 18 bytes instead of 4.
fn growing_event() -> String {
    let properties: Vec<String> = (0..160).map(|n| format!(r#""{n:x}":1e15"#)).collect();
    format!(r#"{{"type":"track","name":"x","properties":{{{}}}}}"#, properties.join(","))
}

fn sessions(answer: &HttpAnswer) -> BTreeSet<SessionId> {
    let session = |what| if let FactKind::Page { session } = what { session } else { panic!("{what:?} is no page") };
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
    // That session has ended; half an hour later the next one has ended too.
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
fn a_page_that_sends_events_only_stays_in_one_session_until_thirty_idle_minutes() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let page = r#"[{"type":"page"}]"#;
    let send = |browser: &mut Browser| {
        let answer = browser.send("POST", "/v1/events", page);
        browser.keep(&answer);
        sessions(&answer)
    };
    let first = send(&mut browser);
    for _ in 0..20 {
        browser.now += 29 * MINUTE_MS;
        assert_eq!(send(&mut browser), first, "{}", browser.now);
    }
    // A decision continues the session of events, and events continue the session of a decision.
    let decided = browser.send("POST", "/v1/decide", r#"{"placements":[]}"#);
    browser.keep(&decided);
    assert_eq!(sessions(&decided), first);
    browser.now += 30 * MINUTE_MS;
    let second = send(&mut browser);
    assert!(second.is_disjoint(&first), "thirty idle minutes");
    browser.now += 29 * MINUTE_MS;
    assert_eq!(send(&mut browser), second);
    // An event that is no page writes no cookie, and the session of another visitor is not used.
    let track = browser.send("POST", "/v1/events", r#"[{"type":"track","name":"x"}]"#);
    assert!(track.headers.iter().all(|(name, _)| *name != "set-cookie"), "{:?}", track.headers);
    let stolen = browser.cookies.iter().find(|cookie| cookie.contains("cw_session=")).unwrap().clone();
    let mut other = Browser::new("allow");
    other.now = browser.now;
    other.visit();
    let own = sessions(&other.send("POST", "/v1/events", page));
    other.cookies.push(stolen);
    assert_eq!(sessions(&other.send("POST", "/v1/events", page)), own);
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
    let (reply, accepted) = (body(&answer), facts(&answer).len());
    let rejected = reply["rejected"].as_array().unwrap();
    assert_eq!((reply["accepted"].as_u64(), rejected.len()), (Some(accepted as u64), events.len() - accepted));
    assert!(accepted > 0 && !rejected.is_empty(), "{reply}");
    assert!(rejected.iter().all(|one| one["code"] == "out_of_bounds"), "{reply}");
}

#[test]
fn a_character_that_is_not_utf8_costs_only_itself() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let lines = b"{\"type\":\"page\"}\n{\"type\":\"track\",\"name\":\"\xff\"}\r\n\n{\"type\":\"page\"}\n";
    let answer = browser.send("POST", "/v1/events", lines);
    let reply = body(&answer);
    assert_eq!((&reply["accepted"], &reply["rejected"]), (&json!(3), &json!([])));
    assert!(matches!(&facts(&answer)[1].what, FactKind::Track { name, .. } if name == "\u{FFFD}"));
}

#[test]
fn a_purchase_above_the_tenants_largest_value_is_refused() {
    let mut browser = Browser::of("allow", &json!({ "most_value_micros": 500_000_000 }));
    browser.visit();
    let events = [500_000_000_i64, 500_000_001, -1, i64::MAX]
        .map(|value| json!({ "type": "track", "name": "purchase", "properties": { "value_micros": value } }));
    let answer = browser.send("POST", "/v1/events", json!(events).to_string());
    let reply = body(&answer);
    let refused: Vec<(u64, &str)> = reply["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["index"].as_u64().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    assert_eq!(refused, [(1, "value_out_of_range"), (2, "value_out_of_range"), (3, "value_out_of_range")], "{reply}");
    assert_eq!(reply["rejected"][0]["message"], "invalid value: expected a number from 0 to 500000000 micros");
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
    let recorded = facts(&answer);
    assert!(matches!(recorded.as_slice(), [fact] if matches!(fact.what, FactKind::Action { .. })), "{recorded:?}");
    assert_eq!(Value::from(recorded[0].visitor.to_string()), body(&decided)["visitor"]);
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
    let reply = body(&browser.send("POST", "/v1/events", json!(events).to_string()));
    let rejected = reply["rejected"].as_array().unwrap();
    let named: BTreeSet<u64> = rejected.iter().filter_map(|one| one["index"].as_u64()).collect();
    assert_eq!((reply["accepted"].as_u64(), named), (Some(0), (0..5).collect()));
    assert_eq!(rejected.len(), limits::EVENTS + 1, "one each up to the bound, one for the rest");
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
    let reply = body(&browser.send("POST", "/v1/events", format!("[{}]", events.join(","))));
    let rejected = reply["rejected"].as_array().unwrap();
    let last: Vec<&Value> = rejected.iter().filter(|one| one["index"] == 35).map(|one| &one["code"]).collect();
    assert_eq!((rejected.len(), last), (limits::EVENTS + 1, vec![&json!("bad_name")]), "{reply}");
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
        let is_limited = matches!(&step, EngineStep::Read(read) if read.mint_limit.is_some());
        let answer = answer(complete(&mut browser.engine, step, |keys| values(keys, |_| None)));
        let reply = body(&answer);
        assert_eq!((&reply["visitor"], &reply["reason"]), (&shown, &reason), "{member}");
        assert_eq!((fact_count(&answer), is_limited), (0, false), "{member}");
    }
}

/// The facts and the answer's body of one call of events.
fn call(browser: &mut Browser, events: &Value) -> (Vec<causeway_shared::facts::fact::Fact>, Value) {
    let answer = browser.send("POST", "/v1/events", events.to_string());
    (facts(&answer), body(&answer))
}

#[test]
fn a_write_later_in_a_call_is_later_and_so_is_a_call_received_later() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let set = |value: &str, at: Option<u64>| json!({ "type": "attributes", "set": { "v": value }, "at_ms": at });
    let at = browser.now - 5_000;
    let (one, _) = call(&mut browser, &json!((0..10).map(|n| set(&n.to_string(), Some(at))).collect::<Vec<_>>()));
    browser.now += 1;
    let (other, _) =
        call(&mut browser, &json!([set("later", Some(at)), { "type": "attributes", "remove": ["v"], "at_ms": at }]));
    let all: Vec<WriteStamp> = one.iter().chain(&other).map(causeway_shared::facts::fact::Fact::stamp).collect();
    assert_eq!(all.len(), 12);
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
}

#[test]
fn a_message_id_names_one_message_of_one_type_and_name() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let event =
        |name: &str| json!({ "type": "track", "name": name, "id": "order-7", "properties": { "value_micros": 5 } });
    let (facts, reply) = call(&mut browser, &json!([event("checkout"), event("purchase"), event("purchase")]));
    assert_eq!((facts.len(), &reply["accepted"]), (2, &json!(3)), "{reply}");
}

#[test]
fn an_amount_is_read_in_whichever_form_a_page_writes_it() {
    let value = |properties: Value| {
        let mut browser = Browser::new("allow");
        browser.visit();
        let event = json!([{ "type": "track", "name": "purchase", "properties": properties }]);
        match call(&mut browser, &event).0.first().map(|fact| fact.what.clone()) {
            Some(FactKind::Track { value, .. }) => value.map(Micros::get),
            _ => None,
        }
    };
    assert_eq!(value(json!({ "value_micros": 49_900_000.0 })), Some(49_900_000));
    assert_eq!(value(json!({ "value_micros": 8.2 * 1e6 })), Some(8_200_000));
    assert_eq!(value(json!({ "value": 8.2, "currency": "EUR" })), Some(8_200_000));
    assert_eq!(value(json!({ "value": 0.1 + 0.2 })), Some(300_000));
    assert_eq!(value(json!({ "value_micros": null, "value": 1 })), Some(1_000_000));
    for bad in [json!({}), json!({ "value": "8.2" }), json!({ "value_micros": 1.5 }), json!({ "value": 1e30 })] {
        assert_eq!(value(bad.clone()), None, "{bad}");
    }
}

#[test]
fn an_event_whose_time_cannot_be_trusted_counts_at_its_receipt() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let now = browser.now + 1_000;
    let day = 86_400_000;
    let times = [
        json!(now + 11 * MINUTE_MS),
        json!(now + 1),
        json!(now - 31 * day),
        json!(now / 1_000),
        json!(-1),
        json!("x"),
        json!(1.5),
    ];
    let events: Vec<Value> = times.iter().map(|at| json!({ "type": "page", "at_ms": at })).collect();
    let (facts, reply) = call(&mut browser, &json!(events));
    assert_eq!((facts.len(), &reply["rejected"]), (times.len(), &json!([])), "{reply}");
    assert!(facts.iter().all(|fact| fact.at == fact.received));
    let adjusted: Vec<&Value> = reply["adjusted"].as_array().unwrap().iter().map(|one| &one["index"]).collect();
    assert_eq!(adjusted, (0..times.len()).map(|n| json!(n)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    let (facts, reply) = call(&mut browser, &json!([{ "type": "page", "at_ms": (now - day) as f64 }]));
    assert_eq!((facts[0].at, &reply["adjusted"]), (now - day, &Value::Null));
}

#[test]
fn a_body_without_one_valid_event_is_refused_and_what_no_event_has_is_named() {
    let mut browser = Browser::new("allow");
    browser.visit();
    for bad in
        [json!([{ "type": "track" }]), json!([{ "type": "nothing" }, 7]), json!([{ "type": "track", "name": "page" }])]
    {
        let answer = browser.send("POST", "/v1/events", bad.to_string());
        assert_eq!((answer.status, &body(&answer)["error"]["code"]), (400, &json!("no_valid_event")), "{bad}");
    }
    let answer = browser.send("POST", "/v1/events", "\u{FEFF}[{\"type\":\"page\",\"when\":5}]");
    let reply = body(&answer);
    assert_eq!((answer.status, &reply["accepted"]), (202, &json!(1)), "a byte order mark is skipped");
    assert_eq!(reply["warnings"][0]["message"], "an event has no field `when`");
}

#[test]
fn an_order_is_one_fact_of_its_visitor_whatever_messages_say_it() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let buy = |order: Value| json!({ "type": "track", "name": "purchase", "order_id": order, "properties": { "value_micros": 5 } });
    let mut named = buy(json!("o-7"));
    named["id"] = json!("m-1");
    let (once, reply) =
        call(&mut browser, &json!([named, buy(json!("o-7")), buy(json!("o-8")), buy(json!(7)), buy(json!("7"))]));
    assert_eq!((once.len(), &reply["accepted"], &reply["warnings"]), (3, &json!(5), &Value::Null), "{reply}");
    // `properties.order_id` is the ecosystem's form; the event's own field `order_id` takes precedence.
    let property = json!({ "type": "track", "name": "purchase", "properties": { "value": 1, "order_id": "o-7" } });
    let mut both = property.clone();
    both["order_id"] = json!("o-9");
    let (again, _) = call(&mut browser, &json!([property, both]));
    assert_eq!((again[0].id, again.len()), (once[0].id, 2));
    // An invalid order id is ignored alone, and the order id of another event has no effect.
    for bad in [json!(""), json!("x".repeat(limits::MESSAGE_ID_BYTES + 1)), json!({}), json!(1.5), json!(-1)] {
        let (facts, reply) = call(&mut browser, &json!([buy(bad.clone())]));
        assert!(matches!(&facts[0].what, FactKind::Track { order: None, .. }), "{bad}");
        assert_eq!(reply["warnings"][0]["code"], "order_id", "{reply}");
    }
    let (facts, reply) = call(&mut browser, &json!([buy(Value::Null), { "type": "page", "order_id": "o-7" }]));
    assert_eq!((facts.len(), reply["warnings"].as_array().map(Vec::len)), (2, Some(1)), "{reply}");
}

#[test]
fn a_numeric_id_of_an_event_is_its_decimal_text_and_a_bad_one_costs_only_itself() {
    let mut browser = Browser::new("allow");
    browser.visit();
    let event = |id: Value| json!({ "type": "track", "name": "saved", "id": id });
    let (facts, reply) = call(&mut browser, &json!([event(json!(7)), event(json!("7")), event(json!(7.0))]));
    assert_eq!((facts.len(), &reply["accepted"], &reply["warnings"]), (1, &json!(3), &Value::Null), "{reply}");
    let largest = json!([event(json!(u64::MAX)), event(json!(u64::MAX.to_string()))]);
    assert_eq!(call(&mut browser, &largest).0.len(), 1);
    for bad in [json!(1.5), json!(-1), json!(1e30), json!(true), json!({}), json!([7])] {
        let (facts, reply) = call(&mut browser, &json!([event(bad.clone())]));
        assert_eq!((facts.len(), &reply["warnings"][0]["code"]), (1, &json!("id")), "{bad}");
    }
    let (facts, reply) = call(&mut browser, &json!([event(Value::Null)]));
    assert_eq!((facts.len(), &reply["warnings"]), (1, &Value::Null));
}

/// The segment writes of a call that sends one event.
fn segment_writes(event: &Value) -> (Vec<(SegmentId, SegmentState)>, Value) {
    let mut browser = Browser::new("allow");
    browser.visit();
    let answer = browser.send("POST", "/v1/events", json!([event]).to_string());
    let writes = facts(&answer).into_iter().find_map(|fact| match fact.what {
        FactKind::Segments { writes } => Some(writes),
        _ => None,
    });
    (writes.unwrap_or_default(), body(&answer))
}

#[test]
fn whole_numbers_of_events_may_be_written_as_floats() {
    let expires_ms = 1_893_456_000_000_u64;
    let event = |set: Value, remove: Value| json!({ "type": "segments", "set": [set], "remove": [remove] });
    let whole = event(json!({ "segment": 7, "expires_ms": expires_ms, "attributes": { "1": -5 } }), json!(8));
    let floats =
        event(json!({ "segment": 7.0, "expires_ms": 1_893_456_000_000.0, "attributes": { "1": -5.0 } }), json!(8.0));
    let ([written, same], reply) = ([&whole, &floats].map(|event| segment_writes(event).0), segment_writes(&floats).1);
    assert_eq!((written.len(), &written), (2, &same), "{reply}");
    let fraction = event(json!({ "segment": 7, "expires_ms": 1_893_456_000_000.5 }), json!(8));
    assert_eq!(segment_writes(&fraction).1["rejected"][0]["code"], "malformed");
    let order_ids = |order_id: Value| {
        let mut browser = Browser::new("allow");
        browser.visit();
        let event =
            json!([{ "type": "track", "name": "purchase", "order_id": order_id, "properties": { "value": 1 } }]);
        let answer = browser.send("POST", "/v1/events", event.to_string());
        facts(&answer).into_iter().map(|fact| fact.id).collect::<Vec<_>>()
    };
    assert_eq!(order_ids(json!(7.0)), order_ids(json!("7")));
}

#[test]
fn unknown_fields_of_a_segment_to_set_are_named_in_the_answer() {
    let set = json!([
        { "segment": 7, "expires_ms": 1_893_456_000_000_u64, "expires": 1 },
        { "segment": 8, "expires_ms": 1_893_456_000_000_u64, "expires": 1, "ttl": 5 },
    ]);
    let (writes, reply) = segment_writes(&json!({ "type": "segments", "set": set }));
    assert_eq!(writes.len(), 2, "{reply}");
    let messages: Vec<&str> =
        reply["warnings"].as_array().unwrap().iter().map(|one| one["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["a segment in `set` has no field `expires`", "a segment in `set` has no field `ttl`"]);
}
