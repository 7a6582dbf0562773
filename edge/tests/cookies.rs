//! The edge's cookies: their attributes, their age, the key that signs them, and cookies that are not the edge's.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use crate::browser::{self, Browser, body, key, set_cookies};
use causeway_edge::{EngineStep, HttpAnswer, WorkerPage};
use causeway_shared::base::ids::TenantId;
use causeway_shared::base::limits;
use causeway_shared::keys::cookie::{self, IDENTITY, LEDGER, SESSION};
use causeway_shared::keys::key_ring::{KeyRing, KeyStage};
use serde_json::json;

const PAGE: &str = r#"{"page":{"url":"https://pub.example/"}}"#;

/// The `Set-Cookie` headers of an answer: name, value and attributes.
fn set(answer: &HttpAnswer) -> Vec<(String, String, String)> {
    let parts = set_cookies(answer).map(|set| {
        let (pair, attributes) = set.split_once("; ").unwrap();
        let (name, value) = pair.split_once('=').unwrap();
        (name.to_owned(), value.to_owned(), attributes.to_owned())
    });
    parts.collect()
}

#[test]
fn every_cookie_is_secure_except_over_http_at_a_tenant_in_development() {
    for (dev, scheme, secure) in
        [(true, "http", ""), (true, "https", "Secure; "), (false, "http", "Secure; "), (false, "https", "Secure; ")]
    {
        let mut browser = Browser::of("allow", &json!({ "dev": dev }));
        browser.scheme = scheme;
        let first = browser.send("POST", "/v1/decide", PAGE);
        browser.keep(&first);
        let flags = |life: u64| format!("Max-Age={life}; Path=/; {secure}HttpOnly; SameSite=Lax");
        let prefix = if dev { "" } else { "__Host-" };
        let [identity, ledger, session] = [IDENTITY, LEDGER, SESSION].map(|name| format!("{prefix}{name}"));
        let written = [(&identity, limits::IDENTITY_LIFE_MS / 1_000), (&ledger, limits::LEDGER_LIFE_MS / 1_000)];
        let found: Vec<_> = set(&first).into_iter().map(|(name, _, flags)| (name, flags)).collect();
        assert_eq!(found, written.map(|(name, life)| (name.to_owned(), flags(life))));
        browser.gpc = "1";
        let expired = [&identity, &ledger, &session].map(|name| (name.to_owned(), String::new(), flags(0)));
        assert_eq!(set(&browser.send("POST", "/v1/decide", PAGE)), expired, "{dev} {scheme}");
    }
}

#[test]
fn only_tenants_in_development_have_the_demonstration() {
    for (dev, there) in [(true, true), (false, false)] {
        let mut browser = Browser::of("allow", &json!({ "dev": dev }));
        for path in ["/demo", "/demo/proof?member=ann", "/demo/state", "/demo/x"] {
            let step = browser.begin("GET", path, "");
            let is_demo = matches!(&step, EngineStep::Page(WorkerPage::Demo(tenant)) if tenant == "demo");
            let is_unknown = matches!(&step, EngineStep::Answer(answer) if answer.status == 404);
            assert_eq!((is_demo, is_unknown), (there, !there), "{path}");
        }
        for host in ["localhost", "LocalHost"] {
            assert_eq!(browser.engine.sign_demo_proof(host, "ann", browser.now).is_some(), there, "{host}");
        }
        assert_eq!(browser.engine.sign_demo_proof("another.host", "ann", browser.now), None);
    }
}

#[test]
fn a_cookie_is_valid_for_400_days_after_it_was_written() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    let written = browser.now;
    let cookies = browser.cookies.clone();
    // Each call takes place a second after the previous one.
    for (age, same) in [(limits::IDENTITY_LIFE_MS, true), (limits::IDENTITY_LIFE_MS + 1, false)] {
        browser.cookies.clone_from(&cookies);
        browser.now = written + age - 1_000;
        let answer = browser.send("POST", "/v1/decide", PAGE);
        assert_eq!(body(&answer)["visitor"] == visitor.to_string(), same);
        assert_eq!(answer.notes.contains(&"cookie_expired"), !same);
        assert_eq!(body(&answer)["person"]["new_visitor"], !same);
    }
}

#[test]
fn a_cookie_of_an_older_key_is_signed_again_and_one_of_a_retired_key_is_refused() {
    let old = key(1, KeyStage::Active, 1);
    let mut before = Browser::keyed("allow", &json!({}), KeyRing(vec![old.clone()]));
    let visitor = before.visit();
    let rotated = KeyRing(vec![key(1, KeyStage::Old, 1), key(2, KeyStage::Active, 9)]);
    let mut browser = Browser::keyed("allow", &json!({}), rotated);
    browser.cookies.clone_from(&before.cookies);
    browser.now = before.now;
    // Its content is unchanged: the cookie is written once, for its key alone.
    let answer = browser.send("POST", "/v1/decide", PAGE);
    let (_, value, _) = set(&answer).into_iter().find(|(name, ..)| name == IDENTITY).unwrap();
    assert!(value.starts_with("v1.2."), "{value}");
    assert_eq!(body(&answer)["visitor"], visitor.to_string());
    browser.keep(&answer);
    assert!(set(&browser.send("POST", "/v1/decide", PAGE)).iter().all(|(name, ..)| name != IDENTITY));

    let mut retired = Browser::keyed("allow", &json!({}), KeyRing(vec![key(2, KeyStage::Active, 9)]));
    retired.cookies.clone_from(&before.cookies);
    // The time is the random seed of these requests.
    retired.now = browser.now;
    let answer = retired.send("POST", "/v1/decide", PAGE);
    assert!(body(&answer)["visitor"] != visitor.to_string() && body(&answer)["person"]["new_visitor"] == true);
}

#[test]
fn an_invalid_ledger_cookie_keeps_the_visitor_and_starts_an_empty_ledger() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    let [identity, ledger] = [IDENTITY, LEDGER]
        .map(|name| browser.cookies.iter().find_map(|c| c.strip_prefix(&format!("{name}="))).unwrap().to_owned());
    let tenant: TenantId = "demo".parse().unwrap();
    let seal = |name, tenant, payload: &[u8]| cookie::seal_cookie(&browser.cookie_ring, name, tenant, payload).unwrap();
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
        // The next answer sets a valid ledger.
        let answer = browser.send("POST", "/v1/decide", PAGE);
        browser.keep(&answer);
        assert_eq!(body(&browser.send("GET", "/v1/me", ""))["own"]["pages"], 1, "{ledger}");
    }
}

#[test]
fn a_shadow_cookie_of_a_sibling_host_is_not_served() {
    let (mut victim, mut attacker) =
        (Browser::of("allow", &json!({ "dev": false })), Browser::of("allow", &json!({ "dev": false })));
    attacker.now += 60_000;
    let (own, other) = (victim.visit(), attacker.visit());
    assert_ne!(own, other);
    // A sibling host cannot set a cookie with the prefix: it sets the plain name.
    let stolen = attacker.cookies[0].replace("__Host-", "");
    victim.cookies.insert(0, stolen);
    assert_eq!(victim.visit(), own);
}

#[test]
fn of_several_valid_cookies_the_one_of_our_path_counts_and_a_living_visitor_before_an_erased_one() {
    let mut browser = Browser::new("allow");
    let first = browser.visit();
    let old = browser.cookies.clone();
    browser.cookies.clear();
    let own = browser.visit();
    let new = browser.cookies.clone();
    for cookies in [[old.clone(), new.clone()].concat(), [new, old].concat()] {
        browser.cookies = cookies;
        browser.now += 600_000;
        let begun = browser::read(browser.begin("POST", "/v1/decide", "{}"));
        let key = causeway_shared::wire::kv_keys::snapshot_key(&"demo".parse().unwrap(), first);
        let tombstone =
            causeway_shared::wire::kv::encode_stored(&key, &causeway_shared::profiles::view::StoredValue::Tombstone)
                .unwrap();
        let mut step = browser.give(begun, |read| (*read == key).then_some(&tombstone));
        while let EngineStep::Read(next) = step {
            step = browser.give(*next, |read| (*read == key).then_some(&tombstone));
        }
        let answer = browser::answer(step);
        assert_eq!(body(&answer)["visitor"], json!(own.to_string()), "{}", body(&answer));
    }
}

#[test]
fn a_cookie_of_a_second_header_line_is_read() {
    let mut browser = Browser::new("allow");
    let own = browser.visit();
    // The platform joins the lines with a comma and a blank.
    browser.cookies = vec![format!("a=1, {}", browser.cookies.join(", b=2, "))];
    assert_eq!(browser.visit(), own);
    browser.cookies.push("c=3, usprivacy=1YYN".to_owned());
    assert_eq!(body(&browser.send("POST", "/v1/decide", PAGE))["reason"], "us_privacy");
}
