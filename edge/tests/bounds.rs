//! What an isolate lets one network, and requests that nobody waits for, take of it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;

use browser::{Browser, facts};
use causeway_edge::Limit;
use causeway_shared::actions::{Entity, ViewType};
use causeway_shared::ids::{AlternateId, InsertionId, KindCode, VisitorId};
use causeway_shared::token::{self, AdToken};
use causeway_shared::{kv, wire};
use serde_json::{Value, json};

/// A visitor whose cookie named a member, and what a login of another finds at it.
fn of_ann() -> Browser {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    browser.visit();
    // Old enough to have a snapshot.
    browser.now += 3_600_000;
    browser.prove("bert");
    browser
}

/// As the shell is asked.
fn limit(binding: &str, key: &str) -> Option<Limit> {
    Some(Limit { binding: binding.to_owned(), key: key.to_owned() })
}

#[test]
fn field_24_another_member_at_an_old_cookie_mints_within_the_network_s_limit() {
    let mut browser = of_ann();
    for _ in 0..3 {
        let begun = browser.begin("POST", "/v1/decide", "{}");
        assert_eq!(begun.head.limit, limit("MINT_LIMIT", "demo"), "each is asked for");
        let refused = browser.engine.refuse_mint(begun.head.turn.unwrap());
        let answer: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!((&answer["visitor"], facts(&refused).len()), (&Value::Null, 0));
    }
}

#[test]
fn field_24_so_does_one_whose_snapshot_alone_says_that_it_is_another_s() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.now += 3_600_000;
    browser.prove("bert");
    let begun = browser.begin("POST", "/v1/decide", "{}");
    assert_eq!(begun.head.limit, None);
    let snapshot = browser.stored(visitor, "ann", 0);
    let second = browser.give(begun, |key| if key.starts_with("v:") { &snapshot } else { "" });
    assert_eq!(second.head.limit, limit("MINT_LIMIT", "demo"));
    let turn = second.head.turn.unwrap();
    let answer: Value = serde_json::from_slice(&browser.engine.refuse_mint(turn).body).unwrap();
    assert_eq!(answer["visitor"], Value::Null);
}

#[test]
fn what_is_held_is_asked_without_minting_anybody() {
    let mut browser = Browser::new("allow");
    browser.prove("bert");
    let visitor = browser.visit();
    browser.now += 3_600_000;
    let begun = browser.begin("GET", "/v1/me", "");
    let snapshot = browser.stored(visitor, "ann", 0);
    let answer = browser.give(begun, |key| if key.starts_with("v:") { &snapshot } else { "" });
    let told: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.head.status, answer.head.limit, &told["visitor"]), (200, None, &Value::Null));
}

/// The lookup of Ann, which names another browser of hers.
fn lookup_of_ann(browser: &Browser) -> String {
    let kind = KindCode(1);
    let id = AlternateId { kind, hash: browser.ring.hash_alternate(kind, "ann")[0] };
    let other = VisitorId::mint(browser.now - 7_200_000, [9; 10]);
    wire::kv::encode_lookup(&kv::lookup_key(&"demo".parse().unwrap(), id), &[other]).unwrap()
}

/// Waiting with what was read: the first read named another browser of the member, whose snapshot is asked for.
fn waits_with_a_snapshot(browser: &mut Browser, snapshot: &str, lookup: &str) -> u32 {
    let begun = browser.begin("POST", "/v1/decide", "{}");
    let value = |key: &String| match key.split(':').next() {
        Some("v") => snapshot.to_owned(),
        Some("a") => lookup.to_owned(),
        _ => String::new(),
    };
    let values: Vec<String> = begun.head.read.iter().map(value).collect();
    let second = browser.engine.resume(begun.head.turn.unwrap(), values.join("\n").as_bytes(), "");
    assert_eq!(second.head.read.len(), 1, "the other browser's snapshot");
    second.head.turn.unwrap()
}

#[test]
fn a_visitor_s_events_are_taken_within_a_limit_of_its_own_and_a_tenant_names_both() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    let told = browser.send("POST", "/v1/events", r#"[{"type":"track","name":"stay"}]"#);
    assert_eq!(told.head.limit, limit("EVENTS_LIMIT", &format!("demo {visitor}")));
    let refused = browser.send("POST", "/v1/events", r#"[{"type":"track"}]"#);
    assert_eq!((refused.head.limit, refused.head.ack), (None, false), "nothing is to be taken");
    let mut own = Browser::of("allow", &json!({ "mint_limit": "MINT_NEWS", "events_limit": "EVENTS_NEWS" }));
    assert_eq!(own.begin("POST", "/v1/decide", "{}").head.limit, limit("MINT_NEWS", "demo"));
    let visitor = own.visit();
    let told = own.send("POST", "/v1/events", r#"[{"type":"page"}]"#);
    assert_eq!(told.head.limit, limit("EVENTS_NEWS", &format!("demo {visitor}")));
}

#[test]
fn an_action_of_nobody_or_of_another_before_a_visitor_s_events_spares_it_no_limit() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    let earlier = VisitorId::mint(browser.now - 7_200_000, [9; 10]);
    for (of, alone) in [(VisitorId::NOBODY, None), (earlier, limit("EVENTS_LIMIT", &format!("demo {earlier}")))] {
        let token = AdToken {
            visitor: of,
            insertion: InsertionId([2; 16]),
            entity: Entity { ad: 1, ad_group: 1, campaign: 1, advertiser: 1 },
            view_type: ViewType(0),
            placed: browser.now,
            strict: false,
        };
        let token = token::seal(&browser.cookie_ring, &"demo".parse().unwrap(), &token).unwrap();
        let action = json!({ "type": "action", "action": "click", "insertion": token });
        let told = browser.send("POST", "/v1/events", json!([action]).to_string());
        assert_eq!((told.head.facts, told.head.limit), (1, alone));
        let body = json!([action, { "type": "track", "name": "stay" }]).to_string();
        let told = browser.send("POST", "/v1/events", body);
        assert_eq!((told.head.facts, told.head.limit), (2, limit("EVENTS_LIMIT", &format!("demo {visitor}"))));
    }
}

#[test]
fn field_17_what_abandoned_requests_had_read_is_bounded_too() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.now += 3_600_000;
    browser.prove("ann");
    let lookup = lookup_of_ann(&browser);
    let large = browser.stored(visitor, "ann", 48_000);
    let waiting = |browser: &mut Browser, snapshot: &str| {
        let turns: Vec<u32> = (0..1_000).map(|_| waits_with_a_snapshot(browser, snapshot, &lookup)).collect();
        let mut answers = |turn: &u32| !browser.engine.resume(*turn, b"", "").head.gone;
        turns.iter().filter(|turn| answers(turn)).count()
    };
    let held = waiting(&mut browser, &large);
    assert!((200..=600).contains(&held), "{held} of a thousand, with 64 KB each");
    let small = browser.stored(visitor, "ann", 5_000);
    assert_eq!(waiting(&mut browser, &small), 1_000);
}

#[test]
fn field_17_what_all_requests_share_is_no_request_s_own() {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    let lookup = lookup_of_ann(&browser);
    // A wave in a cold isolate: each reads the model, which is as long as it may be.
    let model = "x".repeat(400_000);
    let begun: Vec<_> = (0..100).map(|_| browser.begin("POST", "/v1/decide", "{}").head).collect();
    let value = |key: &String| match key.split(':').collect::<Vec<_>>()[..] {
        ["a", ..] => lookup.as_str(),
        ["c", _, "model"] => model.as_str(),
        _ => "",
    };
    let mut second = |head: &causeway_edge::Head| {
        let values: Vec<&str> = head.read.iter().map(value).collect();
        assert!(values.contains(&model.as_str()), "{:?}", head.read);
        browser.engine.resume(head.turn.unwrap(), values.join("\n").as_bytes(), "").head.turn.unwrap()
    };
    let turns: Vec<u32> = begun.iter().map(&mut second).collect();
    let gone = turns.iter().filter(|turn| browser.engine.resume(**turn, b"", "").head.gone).count();
    assert_eq!(gone, 0, "of a hundred");
}

#[test]
fn a_kind_that_a_page_names_stands_in_no_field_s_place() {
    let mut browser = Browser::new("allow");
    let body = r#"{"placements":[{"id":"top"}],"user":{"ids":{"decisions":"x","visitor":"x","shoe":"x"}}}"#;
    let answer: Value = serde_json::from_slice(&browser.send("POST", "/v1/decide", body).body).unwrap();
    assert!(answer["visitor"].as_str().is_some_and(|visitor| visitor.len() == 36), "{answer}");
    assert_eq!((&answer["decisions"][0]["placement"], &answer["shoe"]), (&"top".into(), &"unknown".into()));
    for name in ["", &"k".repeat(129)] {
        let body = serde_json::json!({ "user": { "ids": { name: "x" } } }).to_string();
        let answer: Value = serde_json::from_slice(&browser.send("POST", "/v1/decide", &body).body).unwrap();
        assert_eq!(answer["error"]["code"], "out_of_bounds", "{answer}");
    }
}

#[test]
fn a_body_that_is_not_of_its_form_is_told_with_the_field() {
    let mut browser = Browser::new("allow");
    let long = "k".repeat(300);
    let deep = "[".repeat(10_000);
    for (body, field) in [
        (r#"{"placements": [{"id": "top"}, {"id": 5}]}"#, json!("placements[1].id")),
        (r#"{"placements": [{"id": "a", "sizes": [[728, 90], [300, -1]]}]}"#, json!("placements[0].sizes[1][1]")),
        (r#"{"placements": [{"sizes": []}, {}]}"#, json!("placements[0]")),
        (r#"{"placements": "top"}"#, json!("placements")),
        ("{\"page\": {\n \"url\": \"\u{e9}\\\"}, \",\n\"keywords\": [\"a\", {}]}}", json!("page.keywords[1]")),
        (r#"{"user": {"ids": []}}"#, json!("user.ids")),
        (r#"{"page_view": "no"}"#, json!("page_view")),
        (r#"{"placements": [{"id": "top", "floor_micros": NaN}]}"#, json!("placements[0].floor_micros")),
        (r#"{"placements": [{"id": "to"#, json!("placements[0].id")),
        (r#"{"page": 1"#, json!("page")),
        ("{nothing}", Value::Null),
        (&format!(r#"{{"{long}": nonsense}}"#), Value::Null),
        (&format!(r#"{{"other": {deep}"#), Value::Null),
    ] {
        let answer = browser.begin("POST", "/v1/decide", body);
        let told: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.head.status, &told["error"]["code"]), (400, &json!("malformed")), "{body:.80}");
        assert_eq!(told["error"]["field"], field, "{body:.80}: {told}");
    }
}

#[test]
fn a_health_check_by_a_name_that_is_no_tenant_s_tells_of_none() {
    let mut browser = Browser::new("allow");
    let own = browser.send("GET", "/healthz", "");
    assert!(own.head.health && !own.body.is_empty());
    let other = browser.engine.begin("GET\nhttp://other.example/healthz\n\n\n\n\n\n", b"", browser.now, &[7; 32]);
    assert!(other.head.health && other.body.is_empty());
    let wrong = browser.send("POST", "/healthz", "");
    assert_eq!((wrong.head.status, wrong.head.health), (405, false));
}
