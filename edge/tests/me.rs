//! `GET /v1/me` at a browser that members share.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;

use browser::{Browser, facts};
use causeway_edge::Outcome;
use causeway_shared::fact::{Scope, What};
use causeway_shared::ids::VisitorId;
use causeway_shared::view::Stored;
use causeway_shared::{kv, wire};
use serde_json::{Value, json};

/// What `GET /v1/me` shows: who it is, and whether its person.
fn shown(browser: &mut Browser) -> (Option<VisitorId>, bool) {
    let body: Value = serde_json::from_slice(&browser.send("GET", "/v1/me", "").body).unwrap();
    (body["visitor"].as_str().map(|visitor| visitor.parse().unwrap()), body["view"].is_object())
}

/// A browser of two members' visitors, whose cookie is the second's, with the proof of the first.
fn shared() -> (Browser, VisitorId, VisitorId) {
    let mut browser = Browser::new("allow");
    let [ann, bert] = ["ann", "bert"].map(|member| {
        browser.prove(member);
        browser.visit()
    });
    browser.prove("ann");
    (browser, ann, bert)
}

#[test]
fn s1_shared_device_a_member_sees_its_own_visitor_of_the_browser_or_nobody_s() {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    let ann = browser.visit();
    assert_eq!(shown(&mut browser), (Some(ann), true));
    browser.prove("bert");
    assert_eq!(shown(&mut browser), (None, false), "who is here is nobody yet");
    let bert = browser.visit();
    assert_eq!(shown(&mut browser), (Some(bert), true));
    browser.prove("ann");
    assert_eq!(shown(&mut browser), (Some(ann), true), "its own visitor, though the cookie is bert's");
    browser.proof.clear();
    assert_eq!(shown(&mut browser), (Some(bert), false));
}

#[test]
fn s1_shared_device_whose_tag_was_lost_the_snapshot_tells() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.prove("bert");
    assert_eq!(shown(&mut browser), (Some(visitor), false));
    // Old enough to have a snapshot, which names its member.
    browser.now += 600_000;
    let value = browser.stored(visitor, "ann", 0);
    let asked = browser.begin("GET", "/v1/me", "");
    let outcome = browser.give(asked, |key| if key.starts_with("v:") { &value } else { "" });
    let body: Value = serde_json::from_slice(&outcome.body).unwrap();
    assert_eq!((&body["visitor"], &body["own"]["pages"]), (&Value::Null, &json!(0)));
}

/// A call of such a browser once one of its visitors was erased, and what it is told.
fn without(browser: &mut Browser, gone: VisitorId, method: &str, path: &str, body: &str) -> (Outcome, Value) {
    browser.now += 600_000;
    let asked = browser.begin(method, path, body);
    let key = kv::snapshot_key(&"demo".parse().unwrap(), gone);
    let tombstone = wire::kv::encode_stored(&key, &Stored::Tombstone).unwrap();
    let outcome = browser.give(asked, |asked| if *asked == key { &tombstone } else { "" });
    let told = serde_json::from_slice(&outcome.body).unwrap();
    (outcome, told)
}

#[test]
fn an_earlier_visitor_who_is_gone_takes_no_cookie_of_who_is_there_along() {
    let (mut browser, ann, _) = shared();
    let (outcome, body) = without(&mut browser, ann, "GET", "/v1/me", "");
    assert_eq!(body["visitor"], Value::Null);
    assert!(outcome.head.headers.iter().all(|(name, _)| *name != "set-cookie"), "{:?}", outcome.head.headers);
}

#[test]
fn field_12_a_switch_to_a_visitor_that_was_erased_leaves_who_is_there() {
    let (mut browser, ann, bert) = shared();
    let (outcome, body) = without(&mut browser, ann, "POST", "/v1/decide", "{}");
    assert_eq!((&body["visitor"], &body["reason"]), (&Value::Null, &json!("forgotten")));
    browser.keep(&outcome);
    assert!(![ann, bert].contains(&browser.visit()), "ann is somebody new");
    browser.prove("bert");
    assert_eq!((shown(&mut browser), browser.visit()), ((Some(bert), true), bert));
}

#[test]
fn s1_shared_device_who_erases_an_earlier_visitor_of_the_browser_leaves_who_is_there() {
    let (mut browser, ann, bert) = shared();
    browser.gpc = "1";
    let refusing = browser.send("DELETE", "/v1/me", "");
    assert!(refusing.head.headers.iter().all(|(name, _)| *name != "set-cookie"), "bert's is there to be withdrawn");
    browser.gpc = "";
    let outcome = browser.send("DELETE", "/v1/me", "");
    assert_eq!((outcome.head.status, facts(&outcome)[0].visitor), (202, ann));
    browser.keep(&outcome);
    browser.prove("bert");
    assert_eq!((shown(&mut browser), browser.visit()), ((Some(bert), true), bert));
    browser.prove("ann");
    assert_eq!(shown(&mut browser), (None, false));
    assert!(![ann, bert].contains(&browser.visit()), "nobody comes back");
    // Whose cookie it is takes both along.
    let outcome = browser.send("DELETE", "/v1/me", "");
    browser.keep(&outcome);
    assert!(browser.cookies.is_empty());
}

#[test]
fn s1_05_where_a_page_s_word_is_taken_a_proof_shows_and_erases_no_person() {
    let mut browser = Browser::of("allow", &json!({ "dev": false, "member_proof": "trusted" }));
    let said = br#"{"user":{"ids":{"member":"ann"}}}"#;
    let outcome = browser.send("POST", "/v1/decide", said);
    browser.keep(&outcome);
    let body: Value = serde_json::from_slice(&outcome.body).unwrap();
    let visitor = body["visitor"].as_str().map(|visitor| visitor.parse().unwrap());
    assert!(visitor.is_some() && facts(&outcome).iter().any(|fact| matches!(fact.what, What::Alias { .. })));
    // Signed by the publisher all the same.
    let mut signs = Browser::new("allow");
    signs.prove("ann");
    for proof in [String::new(), signs.proof] {
        browser.proof = proof;
        assert_eq!(shown(&mut browser), (visitor, false));
    }
    let erased = facts(&browser.send("DELETE", "/v1/me", ""));
    assert!(matches!(erased[0].what, What::Erasure { scope: Scope::Visitor, id: None, .. }), "{erased:?}");
}
