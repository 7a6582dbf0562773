//! `GET /v1/me` at a browser that members share.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use crate::browser::{Browser, answer, body, facts, read, set_cookies};
use causeway_edge::HttpAnswer;
use causeway_shared::base::ids::{Epoch, KindCode, Micros, SnapshotVersion, VisitorId};
use causeway_shared::facts::fact::{ErasureScope, FactKind};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{ProfileTotals, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::{self, kv_keys};
use serde_json::{Value, json};

/// The visitor that `GET /v1/me` shows, and whether it shows the person.
fn shown(browser: &mut Browser) -> (Option<VisitorId>, bool) {
    let body = body(&browser.send("GET", "/v1/me", ""));
    (body["visitor"].as_str().map(|visitor| visitor.parse().unwrap()), body["view"].is_object())
}

/// A browser with the visitors of two members: the cookie names the second, and the proof names the first.
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
fn on_a_shared_browser_a_member_sees_its_own_visitor_or_none() {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    let ann = browser.visit();
    assert_eq!(shown(&mut browser), (Some(ann), true));
    browser.prove("bert");
    assert_eq!(shown(&mut browser), (None, false), "the member has no visitor yet");
    let bert = browser.visit();
    assert_eq!(shown(&mut browser), (Some(bert), true));
    browser.prove("ann");
    assert_eq!(shown(&mut browser), (Some(ann), true), "the member's own visitor, though the cookie is bert's");
    browser.proof.clear();
    assert_eq!(shown(&mut browser), (Some(bert), false));
}

#[test]
fn the_snapshot_names_the_member_where_the_cookie_does_not() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.prove("bert");
    assert_eq!(shown(&mut browser), (Some(visitor), false));
    // The visitor is old enough to have a snapshot, which names its member.
    browser.now += 600_000;
    let value = browser.stored(visitor, "ann", 0);
    let begun = read(browser.begin("GET", "/v1/me", ""));
    let shown = body(&answer(browser.give(begun, |key| key.starts_with("v:").then_some(&value))));
    assert_eq!((&shown["visitor"], &shown["own"]["pages"]), (&Value::Null, &json!(0)));
}

/// A call of such a browser after one of its visitors was erased: the answer and its body.
fn without(browser: &mut Browser, gone: VisitorId, method: &str, path: &str, text: &str) -> (HttpAnswer, Value) {
    browser.now += 600_000;
    let begun = read(browser.begin(method, path, text));
    let key = kv_keys::snapshot_key(&"demo".parse().unwrap(), gone);
    let tombstone = wire::kv::encode_stored(&key, &StoredValue::Tombstone).unwrap();
    let answer = answer(browser.give(begun, |read| (*read == key).then_some(&tombstone)));
    let reply = body(&answer);
    (answer, reply)
}

#[test]
fn the_erasure_of_an_earlier_visitor_expires_no_cookie_of_the_present_one() {
    let (mut browser, ann, _) = shared();
    let (answer, body) = without(&mut browser, ann, "GET", "/v1/me", "");
    assert_eq!(body["visitor"], Value::Null);
    assert!(set_cookies(&answer).next().is_none(), "{:?}", answer.headers);
}

#[test]
fn a_switch_to_an_erased_visitor_leaves_the_present_one() {
    let (mut browser, ann, bert) = shared();
    let (answer, body) = without(&mut browser, ann, "POST", "/v1/decide", "{}");
    assert_eq!((&body["visitor"], &body["reason"]), (&Value::Null, &json!("forgotten")));
    browser.keep(&answer);
    assert!(![ann, bert].contains(&browser.visit()), "ann gets a new visitor");
    browser.prove("bert");
    assert_eq!((shown(&mut browser), browser.visit()), ((Some(bert), true), bert));
}

#[test]
fn a_member_that_erases_its_earlier_visitor_leaves_the_present_one() {
    let (mut browser, ann, bert) = shared();
    browser.gpc = "1";
    let refusing = browser.send("DELETE", "/v1/me", "");
    assert!(set_cookies(&refusing).next().is_none(), "bert's cookie stays, for its withdrawal");
    browser.gpc = "";
    let erased = browser.send("DELETE", "/v1/me", "");
    assert_eq!((erased.status, facts(&erased)[0].visitor), (202, ann));
    browser.keep(&erased);
    browser.prove("bert");
    assert_eq!((shown(&mut browser), browser.visit()), ((Some(bert), true), bert));
    browser.prove("ann");
    assert_eq!(shown(&mut browser), (None, false));
    assert!(![ann, bert].contains(&browser.visit()), "no erased visitor comes back");
    // The erasure of the cookie's own visitor expires both cookies.
    let erased = browser.send("DELETE", "/v1/me", "");
    browser.keep(&erased);
    assert!(browser.cookies.is_empty());
}

#[test]
fn where_pages_are_trusted_a_proof_shows_and_erases_no_person() {
    let mut browser = Browser::of("allow", &json!({ "dev": false, "member_proof": "trusted" }));
    let call = br#"{"user":{"ids":{"member":"ann"}}}"#;
    let page = browser.send("POST", "/v1/decide", call);
    browser.keep(&page);
    let visitor = body(&page)["visitor"].as_str().map(|visitor| visitor.parse().unwrap());
    assert!(visitor.is_some() && facts(&page).iter().any(|fact| matches!(fact.what, FactKind::Alias { .. })));
    // Without a proof, and with one that the publisher signed.
    let mut signs = Browser::new("allow");
    signs.prove("ann");
    for proof in [String::new(), signs.proof] {
        browser.proof = proof;
        assert_eq!(shown(&mut browser), (visitor, false));
    }
    let erased = facts(&browser.send("DELETE", "/v1/me", ""));
    assert!(matches!(erased[0].what, FactKind::Erasure { scope: ErasureScope::Visitor, id: None, .. }), "{erased:?}");
}

/// The KV value of a visitor of member ann, whose person has another visitor, one of the two unsure.
fn stored_pair(browser: &Browser, own: VisitorId, other: VisitorId, unsure: &[VisitorId]) -> String {
    let version = SnapshotVersion { restore: 0, counter: 5 };
    let sub = |pages: u64| {
        let totals = ProfileTotals { pages, revenue: Micros::new(7_000_000), ..ProfileTotals::default() };
        SubProfile::pack(version, &SubContent { totals, ..SubContent::default() })
    };
    let membership = Membership {
        epoch: Epoch(3),
        devices: 2,
        admits: [own, other].into(),
        unsure: unsure.iter().copied().collect(),
        cuts: Default::default(),
    };
    let snapshot = Snapshot {
        version,
        visitor: own,
        unique: browser.ring.hash_alternate(KindCode(1), "ann"),
        membership,
        profiles: [(own, sub(1)), (other, sub(10))].into(),
        best: None,
    };
    let key = kv_keys::snapshot_key(&"demo".parse().unwrap(), own);
    wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot))).unwrap()
}

#[test]
fn the_person_is_shown_over_the_visitors_that_the_proven_id_surely_ties() {
    let other = VisitorId::mint(1_700_000_000_000, [9; 10]);
    // Whether an id without a proof ties this browser's visitor, and whether it ties the other one.
    for (is_own_unsure, is_other_unsure, pages, devices) in
        [(false, false, 11, 2), (false, true, 1, 1), (true, false, 1, 1)]
    {
        let mut browser = Browser::new("allow");
        browser.prove("ann");
        let own = browser.visit();
        browser.now += 600_000;
        let unsure: Vec<VisitorId> = [(own, is_own_unsure), (other, is_other_unsure)]
            .into_iter()
            .filter(|(_, is)| *is)
            .map(|(v, _)| v)
            .collect();
        let value = stored_pair(&browser, own, other, &unsure);
        let begun = read(browser.begin("GET", "/v1/me", ""));
        let shown = body(&answer(browser.give(begun, |key| key.starts_with("v:").then_some(&value))));
        let held = (&shown["view"]["pages"], &shown["person"]["devices"]);
        assert_eq!(held, (&json!(pages), &json!(devices)), "{shown}");
    }
}

#[test]
fn a_visitor_that_an_unproven_id_ties_to_a_member_stays_when_another_member_logs_in() {
    let other = VisitorId::mint(1_700_000_000_000, [9; 10]);
    let mut browser = Browser::new("allow");
    let own = browser.visit();
    browser.now += 600_000;
    let value = stored_pair(&browser, own, other, &[own]);
    browser.prove("bert");
    let begun = read(browser.begin("POST", "/v1/decide", "{}"));
    let keys = |key: &str| key.contains(&own.to_string());
    let mut step = browser.give(begun, |key| keys(key).then_some(&value));
    while let causeway_edge::EngineStep::Read(next) = step {
        step = browser.give(*next, |key| keys(key).then_some(&value));
    }
    let shown = body(&answer(step));
    assert_eq!(shown["visitor"], json!(own.to_string()));
    assert_eq!(shown["person"]["bridged"], json!(false), "no data of ann joins: {shown}");
}
