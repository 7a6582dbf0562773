//! `DELETE /v1/me`: what the queue gets, and what the browser keeps.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;

use browser::{Browser, facts};
use causeway_shared::fact::{Scope, What};
use causeway_shared::ids::{AlternateId, FactId, KindCode};
use serde_json::{Value, json};

const MEMBER: KindCode = KindCode(1);

#[test]
fn an_erasure_is_acknowledged_once_the_queue_has_it_and_takes_the_cookies_along() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    assert_eq!(browser.cookies.len(), 2);
    let first = browser.send("DELETE", "/v1/me", "");
    let again = browser.send("DELETE", "/v1/me", "");
    assert_eq!((first.head.status, first.head.ack, first.head.facts), (202, true, 1));
    // Each that is taken is kept for ever.
    assert_eq!(first.head.limit.as_ref().unwrap().binding, "EVENTS_LIMIT");
    let receipt = FactId::of_erasure(visitor);
    assert_eq!(
        serde_json::from_slice::<Value>(&first.body).unwrap(),
        json!({ "receipt": receipt.receipt(), "scope": "visitor" })
    );
    assert_eq!(first.body, again.body, "a request sent again has the same receipt");
    let fact = &facts(&first)[0];
    assert_eq!((fact.id, fact.visitor, fact.check(browser.now)), (receipt, visitor, Ok(())));
    assert_eq!(fact.what, What::Erasure { scope: Scope::Visitor, id: None, also: Vec::new() });
    browser.keep(&first);
    assert_eq!(browser.cookies, [""; 0]);
    let nobody = browser.send("DELETE", "/v1/me", "");
    assert_eq!((nobody.head.status, facts(&nobody).len()), (404, 0));
    assert_ne!(browser.visit(), visitor);
}

#[test]
fn only_the_visitor_s_own_member_erases_the_person() {
    let mut browser = Browser::new("allow");
    browser.prove("ann");
    browser.visit();
    browser.prove("bert");
    let other = browser.send("DELETE", "/v1/me", "");
    assert_eq!((other.head.status, facts(&other).len()), (404, 0), "nobody erases somebody else by sharing a browser");
    browser.prove("ann");
    let own = browser.send("DELETE", "/v1/me", "");
    assert_eq!(serde_json::from_slice::<Value>(&own.body).unwrap()["scope"], "person");
    let id = AlternateId { kind: MEMBER, hash: browser.ring.hash_alternate(MEMBER, "ann")[0] };
    assert_eq!(facts(&own)[0].what, What::Erasure { scope: Scope::Person, id: Some(id), also: Vec::new() });
}

#[test]
fn who_gives_no_permission_is_erased_too_and_a_page_may_ask_for_it() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    browser.gpc = "1";
    let outcome = browser.send("DELETE", "/v1/me", "");
    assert_eq!((outcome.head.status, facts(&outcome)[0].visitor), (202, visitor));
    browser.cookies = vec!["cw_id=v1.1.x.y".to_owned()];
    let refused = browser.send("DELETE", "/v1/me", "");
    assert_eq!(refused.head.status, 404);
    assert!(refused.head.headers.iter().any(|(name, value)| *name == "set-cookie" && value.contains("Max-Age=0")));
    let preflight = browser.send("OPTIONS", "/v1/me", "");
    assert!(preflight.head.headers.contains(&("access-control-allow-methods", "GET, POST, DELETE".to_owned())));
}
