//! `DELETE /v1/me`: the facts that leave for the queue, and the cookies that the browser has afterwards.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use crate::browser::{Browser, awaits_facts, body, fact_count, facts, facts_limit, set_cookies};
use causeway_shared::base::ids::{AlternateId, FactId, KindCode};
use causeway_shared::facts::fact::{ErasureScope, FactKind};
use serde_json::json;

const MEMBER: KindCode = KindCode(1);

#[test]
fn an_erasure_waits_for_the_queue_and_expires_the_cookies() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    assert_eq!(browser.cookies.len(), 2);
    let first = browser.send("DELETE", "/v1/me", "");
    let again = browser.send("DELETE", "/v1/me", "");
    assert_eq!((first.status, awaits_facts(&first), fact_count(&first)), (202, true, 1));
    // Every erasure is stored permanently.
    assert_eq!(facts_limit(&first).unwrap().binding, "EVENTS_LIMIT");
    let receipt = FactId::of_erasure(visitor);
    assert_eq!(body(&first), json!({ "receipt": receipt.receipt(), "scope": "visitor" }));
    assert_eq!(first.body, again.body, "a request sent again has the same receipt");
    let fact = &facts(&first)[0];
    assert_eq!((fact.id, fact.visitor, fact.check(browser.now)), (receipt, visitor, Ok(())));
    assert_eq!(fact.what, FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() });
    browser.keep(&first);
    assert_eq!(browser.cookies, [""; 0]);
    let without_cookie = browser.send("DELETE", "/v1/me", "");
    assert_eq!((without_cookie.status, facts(&without_cookie).len()), (404, 0));
    assert_ne!(browser.visit(), visitor);
}

#[test]
fn only_the_visitors_own_member_erases_the_person() {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    browser.visit();
    browser.prove("bert");
    let other = browser.send("DELETE", "/v1/me", "");
    assert_eq!((other.status, facts(&other).len()), (404, 0), "sharing a browser erases no other member");
    browser.prove("ann");
    let own = browser.send("DELETE", "/v1/me", "");
    assert_eq!(body(&own)["scope"], "person");
    let id = AlternateId { kind: MEMBER, hash: browser.ring.hash_alternate(MEMBER, "ann")[0] };
    assert_eq!(facts(&own)[0].what, FactKind::Erasure { scope: ErasureScope::Person, id: Some(id), also: Vec::new() });
}

#[test]
fn a_visitor_without_permission_is_erased_too_and_pages_may_send_the_call() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.gpc = "1";
    let erased = browser.send("DELETE", "/v1/me", "");
    assert_eq!((erased.status, facts(&erased)[0].visitor), (202, visitor));
    browser.cookies = vec!["cw_id=v1.1.x.y".to_owned()];
    let refused = browser.send("DELETE", "/v1/me", "");
    assert_eq!(refused.status, 404);
    assert!(set_cookies(&refused).any(|cookie| cookie.contains("Max-Age=0")));
    let preflight = browser.send("OPTIONS", "/v1/me", "");
    assert!(preflight.headers.contains(&("access-control-allow-methods", "GET, POST, DELETE".to_owned())));
}
