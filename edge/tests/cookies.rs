//! Our cookies: their flags, their age, the key that signs them, and what is no cookie of ours.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;

use browser::{Browser, key};
use causeway_edge::Outcome;
use causeway_shared::cookie::{self, IDENTITY, LEDGER};
use causeway_shared::ids::TenantId;
use causeway_shared::keys::{KeyRing, Stage};
use causeway_shared::limits;
use serde_json::{Value, json};

const PAGE: &str = r#"{"page":{"url":"https://pub.example/"}}"#;

/// The Set-Cookie headers of an answer, by name: the value, and what stands behind it.
fn set(outcome: &Outcome) -> Vec<(String, String, String)> {
    let headers = outcome.head.headers.iter().filter(|(name, _)| *name == "set-cookie");
    let parts = headers.map(|(_, set)| {
        let (pair, attributes) = set.split_once("; ").unwrap();
        let (name, value) = pair.split_once('=').unwrap();
        (name.to_owned(), value.to_owned(), attributes.to_owned())
    });
    parts.collect()
}

fn body(outcome: &Outcome) -> Value {
    serde_json::from_slice(&outcome.body).unwrap()
}

#[test]
fn s1_01_every_cookie_is_secure_but_of_a_tenant_in_development_over_http() {
    for (dev, scheme, secure) in
        [(true, "http", ""), (true, "https", "Secure; "), (false, "http", "Secure; "), (false, "https", "Secure; ")]
    {
        let mut browser = Browser::of("allow", &json!({ "dev": dev }));
        browser.scheme = scheme;
        let first = browser.send("POST", "/v1/decide", PAGE);
        browser.keep(&first);
        let flags = |life: u64| format!("Max-Age={life}; Path=/; {secure}HttpOnly; SameSite=Lax");
        let written = [(IDENTITY, limits::IDENTITY_LIFE_MS / 1_000), (LEDGER, limits::LEDGER_LIFE_MS / 1_000)];
        let found: Vec<_> = set(&first).into_iter().map(|(name, _, flags)| (name, flags)).collect();
        assert_eq!(found, written.map(|(name, life)| (name.to_owned(), flags(life))));
        browser.gpc = "1";
        let expired = [IDENTITY, LEDGER].map(|name| (name.to_owned(), String::new(), flags(0)));
        assert_eq!(set(&browser.send("POST", "/v1/decide", PAGE)), expired, "{dev} {scheme}");
    }
}

#[test]
fn the_demonstration_is_for_tenants_in_development_alone() {
    for (dev, there) in [(true, true), (false, false)] {
        let mut browser = Browser::of("allow", &json!({ "dev": dev }));
        for path in ["/demo", "/demo/proof?member=ann", "/demo/state", "/demo/x"] {
            let outcome = browser.send("GET", path, "");
            assert_eq!((outcome.head.demo, outcome.head.status == 404), (there, !there), "{path}");
        }
        for host in ["localhost", "LocalHost"] {
            assert_eq!(browser.engine.dev_proof(host, "ann", browser.now).is_empty(), !there, "{host}");
        }
        assert_eq!(browser.engine.dev_proof("another.host", "ann", browser.now), "");
    }
}

#[test]
fn s1_01_a_cookie_is_believed_for_400_days_from_when_it_was_written() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    let written = browser.now;
    let cookies = browser.cookies.clone();
    // Each call takes place a second after the one before.
    for (age, same) in [(limits::IDENTITY_LIFE_MS, true), (limits::IDENTITY_LIFE_MS + 1, false)] {
        browser.cookies.clone_from(&cookies);
        browser.now = written + age - 1_000;
        let outcome = browser.send("POST", "/v1/decide", PAGE);
        assert_eq!(body(&outcome)["visitor"] == visitor.to_string(), same);
        assert_eq!(outcome.head.notes.contains(&"cookie_expired"), !same);
        assert_eq!(body(&outcome)["person"]["new_visitor"], !same);
    }
}

#[test]
fn s1_01_a_cookie_of_an_older_key_is_signed_anew_and_one_of_a_retired_key_is_nobody_s() {
    let old = key(1, Stage::Active, 1);
    let mut before = Browser::keyed("allow", &json!({}), KeyRing(vec![old.clone()]));
    let visitor = before.visit();
    let rotated = KeyRing(vec![key(1, Stage::Old, 1), key(2, Stage::Active, 9)]);
    let mut browser = Browser::keyed("allow", &json!({}), rotated);
    browser.cookies.clone_from(&before.cookies);
    browser.now = before.now;
    // Nothing of its content changes: it is written for its key alone, and once.
    let outcome = browser.send("POST", "/v1/decide", PAGE);
    let (_, value, _) = set(&outcome).into_iter().find(|(name, ..)| name == IDENTITY).unwrap();
    assert!(value.starts_with("v1.2."), "{value}");
    assert_eq!(body(&outcome)["visitor"], visitor.to_string());
    browser.keep(&outcome);
    assert!(set(&browser.send("POST", "/v1/decide", PAGE)).iter().all(|(name, ..)| name != IDENTITY));

    let mut retired = Browser::keyed("allow", &json!({}), KeyRing(vec![key(2, Stage::Active, 9)]));
    retired.cookies.clone_from(&before.cookies);
    // Ids are drawn by the time here.
    retired.now = browser.now;
    let outcome = retired.send("POST", "/v1/decide", PAGE);
    assert!(body(&outcome)["visitor"] != visitor.to_string() && body(&outcome)["person"]["new_visitor"] == true);
}

#[test]
fn a_ledger_cookie_that_is_none_of_ours_leaves_the_visitor_and_its_ledger_begins_anew() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    let [identity, ledger] = [IDENTITY, LEDGER]
        .map(|name| browser.cookies.iter().find_map(|c| c.strip_prefix(&format!("{name}="))).unwrap().to_owned());
    let tenant: TenantId = "demo".parse().unwrap();
    let seal = |name, tenant, payload: &[u8]| cookie::seal(&browser.cookie_ring, name, tenant, payload).unwrap();
    let (rest, mac) = ledger.rsplit_once('.').unwrap();
    let changed = if mac.starts_with('A') { 'B' } else { 'A' };
    let bad = [
        ledger[..ledger.len() - 1].to_owned(),
        String::new(),
        format!("{rest}.{changed}{}", &mac[1..]),
        ledger.replacen("v1.1.", "v1.200.", 1),
        identity.clone(),
        seal(LEDGER, &"other".parse().unwrap(), b"\x80"),
        seal(LEDGER, &tenant, b"\xff\xff"),
        seal(LEDGER, &tenant, &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        "v1.1.\u{1f980}.AA".to_owned(),
    ];
    let pages = |browser: &mut Browser, ledger: &str| {
        browser.cookies = vec![format!("{IDENTITY}={identity}"), format!("{LEDGER}={ledger}")];
        let me = body(&browser.send("GET", "/v1/me", ""));
        assert_eq!(me["visitor"], visitor.to_string(), "{ledger}");
        me["own"]["pages"].clone()
    };
    assert_eq!(pages(&mut browser, &ledger), 1);
    for ledger in bad {
        assert_eq!(pages(&mut browser, &ledger), 0, "{ledger}");
        // The next answer brings one of ours.
        let outcome = browser.send("POST", "/v1/decide", PAGE);
        browser.keep(&outcome);
        assert_eq!(body(&browser.send("GET", "/v1/me", ""))["own"]["pages"], 1, "{ledger}");
    }
}
