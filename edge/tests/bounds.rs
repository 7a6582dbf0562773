//! Bounds of an isolate: visitors minted for one network, events of one visitor, and pending requests.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use crate::browser::{Browser, answer, body, fact_count, facts, facts_limit, is_overloaded, object_call, read, seed};
use causeway_edge::{EngineStep, KvRead, ObjectClass, RateLimit, WorkerPage};
use causeway_shared::base::ids::{AlternateId, InsertionId, KindCode, VisitorId};
use causeway_shared::facts::actions::{AdEntity, ViewType};
use causeway_shared::facts::fact::FactKind;
use causeway_shared::keys::ad_token::{self, AdToken};
use causeway_shared::wire::{self, kv_keys};
use serde_json::{Value, json};

/// The most pending requests of an isolate.
const PENDING_REQUESTS: usize = 1_024;

/// A browser whose cookie names one member and whose request has the proof of another.
fn cookie_of_ann() -> Browser {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    browser.visit();
    // The visitor is old enough to have a snapshot.
    browser.now += 3_600_000;
    browser.prove("bert");
    browser
}

fn limit(binding: &str, key: &str) -> Option<RateLimit> {
    Some(RateLimit { binding: binding.to_owned(), key: key.to_owned() })
}

#[test]
fn another_member_at_an_old_cookie_mints_within_the_networks_limit() {
    let mut browser = cookie_of_ann();
    for _ in 0..3 {
        let begun = read(browser.begin("POST", "/v1/decide", "{}"));
        assert_eq!(begun.mint_limit, limit("MINT_LIMIT", "demo"), "every time");
        let refused = answer(browser.engine.refuse_mint(begun.pending));
        assert_eq!((&body(&refused)["visitor"], facts(&refused).len()), (&Value::Null, 0));
    }
}

#[test]
fn a_visitor_minted_after_its_snapshot_named_another_member_counts_for_the_networks_limit() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.now += 3_600_000;
    browser.prove("bert");
    let begun = read(browser.begin("POST", "/v1/decide", "{}"));
    assert_eq!(begun.mint_limit, None);
    let snapshot = browser.stored(visitor, "ann", 0);
    let second = read(browser.give(begun, |key| key.starts_with("v:").then_some(&snapshot)));
    assert_eq!(second.mint_limit, limit("MINT_LIMIT", "demo"));
    let refused = answer(browser.engine.refuse_mint(second.pending));
    assert_eq!(body(&refused)["visitor"], Value::Null);
}

#[test]
fn me_mints_no_visitor() {
    let mut browser = Browser::new("allow");
    browser.prove("bert");
    let visitor = browser.visit();
    browser.now += 3_600_000;
    let begun = read(browser.begin("GET", "/v1/me", ""));
    assert_eq!(begun.mint_limit, None);
    let snapshot = browser.stored(visitor, "ann", 0);
    let answer = answer(browser.give(begun, |key| key.starts_with("v:").then_some(&snapshot)));
    assert_eq!((answer.status, facts_limit(&answer), &body(&answer)["visitor"]), (200, None, &Value::Null));
}

/// Ann's lookup, which names another browser of hers.
fn lookup_of_ann(browser: &Browser) -> String {
    let kind = KindCode(1);
    let id = AlternateId { kind, hash: browser.ring.hash_alternate(kind, "ann")[0] };
    let other = VisitorId::mint(browser.now - 7_200_000, [9; 10]);
    wire::kv::encode_lookup(&kv_keys::lookup_key(&"demo".parse().unwrap(), id), &[other]).unwrap()
}

/// Continues a request of Ann's after its first read, which returns her snapshot and her lookup: the request then reads
/// the snapshot of her other browser.
fn read_snapshot(browser: &mut Browser, begun: KvRead, snapshot: &str, lookup: &str) -> EngineStep {
    browser.give(begun, |key| match key.split(':').next() {
        Some("v") => Some(snapshot),
        Some("a") => Some(lookup),
        _ => None,
    })
}

#[test]
fn a_visitors_events_have_a_limit_of_their_own_and_a_tenant_names_both_limits() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    let accepted = browser.send("POST", "/v1/events", r#"[{"type":"track","name":"stay"}]"#);
    assert_eq!(facts_limit(&accepted).cloned(), limit("EVENTS_LIMIT", &format!("demo {visitor}")));
    let refused = browser.send("POST", "/v1/events", r#"[{"type":"track"}]"#);
    assert_eq!(refused.facts, None, "without a fact no limit is checked");
    let mut own = Browser::of("allow", &json!({ "mint_limit": "MINT_NEWS", "events_limit": "EVENTS_NEWS" }));
    assert_eq!(read(own.begin("POST", "/v1/decide", "{}")).mint_limit, limit("MINT_NEWS", "demo"));
    let visitor = own.visit();
    let accepted = own.send("POST", "/v1/events", r#"[{"type":"page"}]"#);
    assert_eq!(facts_limit(&accepted).cloned(), limit("EVENTS_NEWS", &format!("demo {visitor}")));
}

#[test]
fn an_action_without_a_visitor_or_of_another_one_spares_a_visitors_events_no_limit() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    let earlier = VisitorId::mint(browser.now - 7_200_000, [9; 10]);
    for (of, alone) in [(VisitorId::ANONYMOUS, None), (earlier, limit("EVENTS_LIMIT", &format!("demo {earlier}")))] {
        let token = AdToken {
            visitor: of,
            insertion: InsertionId([2; 16]),
            entity: AdEntity { ad: 1, ad_group: 1, campaign: 1, advertiser: 1 },
            view_type: ViewType(0),
            placed: browser.now,
            strict: false,
        };
        let token = ad_token::seal_token(&browser.cookie_ring, &"demo".parse().unwrap(), &token).unwrap();
        let action = json!({ "type": "action", "action": "click", "insertion": token });
        let answer = browser.send("POST", "/v1/events", json!([action]).to_string());
        assert_eq!((fact_count(&answer), facts_limit(&answer).cloned()), (1, alone));
        let both = json!([action, { "type": "track", "name": "stay" }]).to_string();
        let answer = browser.send("POST", "/v1/events", both);
        let own = limit("EVENTS_LIMIT", &format!("demo {visitor}"));
        assert_eq!((fact_count(&answer), facts_limit(&answer).cloned()), (2, own));
    }
}

#[test]
fn what_waiting_requests_have_read_is_bounded_and_abandoned_ones_give_it_back() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.now += 3_600_000;
    browser.prove("ann");
    let lookup = lookup_of_ann(&browser);
    let wait = |browser: &mut Browser, snapshot: &str| -> Vec<EngineStep> {
        let second = |_| {
            let begun = read(browser.begin("POST", "/v1/decide", "{}"));
            read_snapshot(browser, begun, snapshot, &lookup)
        };
        (0..1_000).map(second).collect()
    };
    let large = browser.stored(visitor, "ann", 48_000);
    let steps = wait(&mut browser, &large);
    let (refused, waiting): (Vec<EngineStep>, Vec<EngineStep>) = steps.into_iter().partition(is_overloaded);
    assert!((200..=600).contains(&waiting.len()), "{} of a thousand, with 64 KB each", waiting.len());
    let waiting: Vec<KvRead> = waiting.into_iter().map(read).collect();
    assert!(waiting.iter().all(|second| second.keys.len() == 1), "the other browser's snapshot");
    assert_eq!(waiting.len() + refused.len(), 1_000);
    drop(waiting);
    let small = browser.stored(visitor, "ann", 5_000);
    let refused = wait(&mut browser, &small).iter().filter(|step| is_overloaded(step)).count();
    assert_eq!(refused, 0);
}

#[test]
fn a_request_over_the_bound_is_refused_and_those_that_wait_go_on_to_their_answer() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.now += 3_600_000;
    browser.prove("ann");
    let (snapshot, lookup) = (browser.stored(visitor, "ann", 0), lookup_of_ann(&browser));
    let mut waiting: Vec<KvRead> =
        (0..PENDING_REQUESTS).map(|_| read(browser.begin("POST", "/v1/decide", "{}"))).collect();
    assert!(is_overloaded(&browser.begin("POST", "/v1/decide", "{}")));
    // The second read of a request counts in place of its first.
    let begun = waiting.pop().unwrap();
    let second = read(read_snapshot(&mut browser, begun, &snapshot, &lookup));
    assert!(is_overloaded(&browser.begin("POST", "/v1/decide", "{}")));
    let shown = body(&answer(browser.give(second, |_| None)));
    assert_eq!(shown["visitor"], visitor.to_string());
    let next = read(browser.begin("POST", "/v1/decide", "{}"));
    assert!(is_overloaded(&browser.begin("POST", "/v1/decide", "{}")));
    drop(next);
    read(browser.begin("POST", "/v1/decide", "{}"));
}

#[test]
fn a_waiting_object_call_takes_a_place_and_its_answer_frees_it() {
    let mut browser = Browser::new("allow");
    let token = AdToken {
        visitor: VisitorId::mint(browser.now - 7_200_000, [9; 10]),
        insertion: InsertionId([2; 16]),
        entity: AdEntity { ad: 1, ad_group: 1, campaign: 1, advertiser: 1 },
        view_type: ViewType(0),
        placed: browser.now,
        strict: true,
    };
    let token = ad_token::seal_token(&browser.cookie_ring, &"demo".parse().unwrap(), &token).unwrap();
    let (impression, placed) = (format!("/v1/i/{token}"), browser.now);
    let begin = |browser: &mut Browser| {
        browser.now = placed;
        browser.begin("GET", &impression, "")
    };
    let mut waiting: Vec<EngineStep> = (0..PENDING_REQUESTS).map(|_| begin(&mut browser)).collect();
    assert!(waiting.iter().all(|step| object_call(step).is_some_and(|call| call.class == ObjectClass::StrictCaps)));
    assert!(is_overloaded(&begin(&mut browser)));
    let Some(EngineStep::Call(pending, _)) = waiting.pop() else { unreachable!("checked above") };
    let unanswered = answer(browser.engine.resume_call(pending, None));
    assert_eq!((unanswered.status, unanswered.notes), (200, vec!["strict_unanswered"]));
    assert!(object_call(&begin(&mut browser)).is_some());
}

#[test]
fn data_that_all_requests_share_is_charged_to_none() {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    let lookup = lookup_of_ann(&browser);
    // Requests that arrive together in a cold isolate: each reads a model of the greatest allowed length.
    let model = "x".repeat(400_000);
    let begun: Vec<KvRead> = (0..100).map(|_| read(browser.begin("POST", "/v1/decide", "{}"))).collect();
    let value = |key: &str| match key.split(':').collect::<Vec<_>>()[..] {
        ["a", ..] => Some(lookup.as_str()),
        ["c", _, "model"] => Some(model.as_str()),
        _ => None,
    };
    let second = |begun: KvRead| {
        assert!(begun.keys.iter().any(|key| key.ends_with(":model")), "{:?}", begun.keys);
        browser.give(begun, value)
    };
    let waiting: Vec<EngineStep> = begun.into_iter().map(second).collect();
    assert_eq!(waiting.iter().filter(|step| matches!(step, EngineStep::Read(_))).count(), 100);
    for second in waiting.into_iter().map(read) {
        answer(browser.give(second, |_| None));
    }
}

#[test]
fn a_kind_that_a_page_names_replaces_no_field_of_the_answer() {
    let mut browser = Browser::new("allow");
    let call = r#"{"placements":[{"id":"top"}],"user":{"ids":{"decisions":"x","visitor":"x","shoe":"x"}}}"#;
    let answer = body(&browser.send("POST", "/v1/decide", call));
    assert!(answer["visitor"].as_str().is_some_and(|visitor| visitor.len() == 36), "{answer}");
    assert_eq!((&answer["decisions"][0]["placement"], &answer["shoe"]), (&"top".into(), &"unknown".into()));
    for name in ["", &"k".repeat(129)] {
        let call = json!({ "user": { "ids": { name: "x" } } }).to_string();
        let answer = body(&browser.send("POST", "/v1/decide", &call));
        assert_eq!(answer["rejected"][0]["code"], "out_of_bounds", "{answer}");
    }
}

/// The field and the code of each note of an answer, in its array `of`.
fn notes(answer: &Value, of: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = answer[of].as_array().into_iter().flatten();
    all.map(|note| (text(&note["field"]), text(&note["code"]))).collect()
}

#[test]
fn a_bad_field_costs_only_itself_and_the_answer_names_it() {
    let long = "k".repeat(300);
    let wide = "\u{6f22}".repeat(60);
    let placements: Vec<Value> = (0..34).map(|n| json!({ "id": format!("p{n}") })).collect();
    let top = json!({ "id": "top" });
    for (call, of, field, code) in [
        (json!({ "placements": [top, { "id": 5 }] }), "rejected", "placements[1]", "malformed"),
        (json!({ "placements": [top, { "id": "a", "sizes": [[300, -1]] }] }), "rejected", "placements[1]", "malformed"),
        (json!({ "placements": [{ "sizes": [] }, top] }), "rejected", "placements[0]", "malformed"),
        (json!({ "placements": [top, 7] }), "rejected", "placements[1]", "malformed"),
        (json!({ "placements": [top, { "id": wide }] }), "rejected", "placements[1].id", "out_of_bounds"),
        (json!({ "placements": placements }), "rejected", "placements[32]", "out_of_bounds"),
        (json!({ "placements": [{ "id": "top", "size": [1, 1] }] }), "warnings", "placements[0].size", "unknown_field"),
        (
            json!({ "placements": [{ "id": "top", "view_type": "nowhere" }] }),
            "warnings",
            "placements[0].view_type",
            "unknown_view_type",
        ),
        (
            json!({ "placements": [top], "page": { "keywords": ["a", {}] } }),
            "warnings",
            "page.keywords",
            "out_of_bounds",
        ),
        (json!({ "placements": [top], "page": { "url": 5 } }), "warnings", "page.url", "out_of_bounds"),
        (json!({ "placements": [top], "page": 1 }), "warnings", "page", "malformed"),
        (json!({ "placements": [top], "user": { "ids": [] } }), "warnings", "user.ids", "malformed"),
        (json!({ "placements": [top], "user": { "ids": { "shoe": 5 } } }), "rejected", "user.ids.shoe", "malformed"),
        (json!({ "placements": [top], "page_view": "no" }), "warnings", "page_view", "malformed"),
        (json!({ "placements": [top], &long: 1 }), "warnings", &long[..128], "unknown_field"),
    ] {
        let answer = Browser::new("allow").send("POST", "/v1/decide", call.to_string());
        let reply = body(&answer);
        assert_eq!(answer.status, 200, "{call}: {reply}");
        assert!(reply["decisions"].as_array().is_some_and(|all| !all.is_empty()), "{call}: {reply}");
        assert!(notes(&reply, of).contains(&(field.to_owned(), code.to_owned())), "{call}: {reply}");
    }
}

#[test]
fn whole_numbers_of_a_call_may_be_written_as_floats() {
    let consent = json!({ "gpp": "DBAA", "gpp_sid": [2.0] });
    let top = json!({ "id": "top", "sizes": [[728.0, 90.0]], "floor_micros": 100_000.0 });
    for call in [json!({ "placements": [top] }), json!({ "placements": [top], "consent": consent })] {
        let reply = body(&Browser::new("allow").send("POST", "/v1/decide", call.to_string()));
        assert_eq!(reply["decisions"][0]["placement"], "top", "{reply}");
        assert_eq!((&reply["rejected"], &reply["warnings"]), (&Value::Null, &Value::Null), "{reply}");
    }
    for (name, value) in [("floor_micros", json!(0.5)), ("sizes", json!([[1.5, 1]])), ("floor_micros", json!(1e300))] {
        let call = json!({ "placements": [{ "id": "top", name: value }] });
        let reply = body(&Browser::new("allow").send("POST", "/v1/decide", call.to_string()));
        assert_eq!(notes(&reply, "rejected"), [("placements[0]".to_owned(), "malformed".to_owned())], "{reply}");
    }
}

#[test]
fn null_is_absent_in_every_field() {
    let call = json!({
        "placements": [{ "id": "top", "sizes": null, "view_type": null, "floor_micros": null }],
        "page": { "url": null, "referrer": null, "keywords": null },
        "user": { "ids": { "member": null }, "proofs": { "member": null }, "attributes": null },
        "consent": { "tcf": null, "gpp": null, "gpp_sid": null },
        "explain": null, "page_view": null,
    });
    let nulls = json!({ "placements": [{ "id": "top" }], "page": null, "user": null, "consent": null });
    for call in [call, nulls] {
        let answer = body(&Browser::new("allow").send("POST", "/v1/decide", call.to_string()));
        assert_eq!((&answer["consent"], &answer["decisions"][0]["placement"]), (&json!("full"), &json!("top")));
        assert_eq!((&answer["rejected"], &answer["warnings"]), (&Value::Null, &Value::Null), "{answer}");
    }
}

#[test]
fn an_id_that_stands_for_a_missing_one_is_refused_and_named() {
    for value in ["undefined", "null", "[object Object]", "0", "anonymous", "00000000-0000-0000-0000-000000000000", ""]
    {
        let mut browser = Browser::new("allow");
        let call = json!({ "placements": [{ "id": "top" }], "user": { "ids": { "member": value } } });
        let answer = browser.send("POST", "/v1/decide", call.to_string());
        let why = if value.is_empty() { "empty" } else { "placeholder" };
        let reply = body(&answer);
        assert_eq!(reply["member"], json!(why), "{reply}");
        assert!(!facts(&answer).iter().any(|fact| matches!(fact.what, FactKind::Alias { .. })), "{value}");
    }
}

#[test]
fn a_body_that_is_no_json_object_is_malformed() {
    let mut browser = Browser::new("allow");
    let deep = "[".repeat(10_000);
    for call in
        [r#"{"placements": [{"id": "to"#, r#"{"page": 1"#, "{nothing}", "[]", "7", "", &format!(r#"{{"other": {deep}"#)]
    {
        let refused = answer(browser.begin("POST", "/v1/decide", call));
        let reply = body(&refused);
        assert_eq!((refused.status, &reply["error"]["code"]), (400, &json!("malformed")), "{call:.80}");
    }
}

#[test]
fn a_health_check_by_a_hostname_of_no_tenant_shows_none() {
    let mut browser = Browser::new("allow");
    let own = browser.begin("GET", "/healthz", "");
    assert!(matches!(own, EngineStep::Page(WorkerPage::Health(Some(_)))), "{own:?}");
    let head = "GET\nhttp://other.example/healthz\n\n\n\n\n\n";
    let other = browser.engine.begin(head, b"", browser.now, seed(7, browser.now));
    assert!(matches!(other, EngineStep::Page(WorkerPage::Health(None))), "{other:?}");
    assert_eq!(browser.send("POST", "/healthz", "").status, 405);
}
