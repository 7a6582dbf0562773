//! Consent in a browser's cookies, on calls whose body has none.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;

use browser::{Browser, body, fact_count, facts, set_cookies};
use causeway_shared::fact::What;
use serde_json::{Value, json};

/// TCF v2: the first consents to no purpose, the second to purposes 1, 3 and 4.
const REFUSES: &str = "CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA";
const CONSENTS: &str = "CPXxRfAPXxRfAAfKABENB-CgALAAAAAAAAYgAAAAAAAA";
const PAGE: &str = r#"[{"type":"page","id":"x"}]"#;

/// A visitor that consented by the body of its call, at a tenant where a missing signal refuses; and the address of the
/// impression that it was shown.
fn consenting() -> (Browser, String) {
    let mut browser = Browser::new("deny");
    let call = json!({ "placements": [{ "id": "top" }], "consent": { "tcf": CONSENTS } }).to_string();
    let placed = browser.send("POST", "/v1/decide", &call);
    browser.keep(&placed);
    assert_eq!(browser.cookies.len(), 2);
    (browser, body(&placed)["decisions"][0]["impression_url"].as_str().unwrap().to_owned())
}

#[test]
fn a_signal_without_a_decision_withdraws_no_consent() {
    for silent in ["usprivacy=1---", "__gpp_sid=-1", "__gpp_sid=-1; usprivacy=1---"] {
        let (mut browser, pixel) = consenting();
        browser.cookies.push(silent.to_owned());
        let events = browser.send("POST", "/v1/events", PAGE);
        let answer = body(&events);
        assert_eq!((&answer["accepted"], answer.get("consent")), (&json!(1), None), "{silent}");
        assert!(matches!(facts(&events)[0].what, What::Page { .. }), "{silent}");
        assert_eq!(fact_count(&browser.send("GET", "/v1/me", "")), 0, "{silent}");
        assert_eq!(fact_count(&browser.send("GET", &pixel, "")), 1, "{silent}");
    }
}

#[test]
fn a_refusal_counts_with_and_without_the_identity_cookie() {
    for refusal in [&format!("euconsent-v2={REFUSES}"), "usprivacy=1YYN", "__gpp=x"] {
        let (mut browser, pixel) = consenting();
        let own = std::mem::take(&mut browser.cookies);
        assert_eq!(fact_count(&browser.send("GET", &pixel, "")), 1, "a browser that sends no cookies with pictures");
        browser.cookies = vec![refusal.to_owned()];
        assert_eq!(fact_count(&browser.send("GET", &pixel, "")), 0, "{refusal}");
        browser.cookies.extend(own);
        assert_eq!(fact_count(&browser.send("GET", &pixel, "")), 0, "{refusal}");
        let events = browser.send("POST", "/v1/events", PAGE);
        assert_eq!(facts(&events)[0].what, What::Withdrawal, "{refusal}");
    }
}

#[test]
fn every_value_of_a_repeated_consent_cookie_must_permit() {
    let yes = format!("euconsent-v2={CONSENTS}");
    let no = format!("euconsent-v2={REFUSES}");
    let consent = |cookies: &[&String]| {
        let mut browser = Browser::new("allow");
        browser.cookies = cookies.iter().map(|cookie| (*cookie).clone()).collect();
        body(&browser.send("POST", "/v1/decide", "{}"))["consent"].clone()
    };
    assert_eq!(consent(&[&yes, &yes]), "full");
    for refusing in [&[&yes, &no][..], &[&no, &yes], &[&yes, &yes, &yes, &no], &[&yes; 5]] {
        assert_ne!(consent(refusing), "full", "{refusing:?}");
    }
}

#[test]
fn cookies_that_are_too_long_to_be_read_permit_nothing() {
    for (length, full) in [(10, true), (17_000, false)] {
        let mut browser = Browser::new("allow");
        browser.cookies = vec![format!("x={}", "x".repeat(length))];
        let answer = browser.send("POST", "/v1/decide", "{}");
        let (told, sets) = (body(&answer), set_cookies(&answer).next().is_some());
        assert_eq!((told["consent"] == "full", sets, fact_count(&answer) > 0), (full, full, full), "{told}");
    }
}

#[test]
fn a_refusing_cookie_counts_where_the_body_names_sections_alone() {
    let mut browser = Browser::new("allow");
    browser.cookies = vec!["__gpp=DBABL~BVVVVVVVVWA.YA".to_owned(), "__gpp_sid=7".to_owned()];
    for consent in [json!({}), json!({ "gpp_sid": [-1] }), json!({ "gpp_sid": [] })] {
        let answer = body(&browser.send("POST", "/v1/decide", json!({ "consent": consent }).to_string()));
        assert_eq!((&answer["visitor"], &answer["reason"]), (&Value::Null, &json!("gpp")), "{consent}");
    }
}

#[test]
fn applicable_sections_without_a_string_refuse_as_undecodable() {
    for (sections, reason) in [(json!([7]), "undecodable"), (json!([-1]), ""), (json!([]), "")] {
        let mut browser = Browser::new("allow");
        let answer = browser.send("POST", "/v1/decide", json!({ "consent": { "gpp_sid": sections } }).to_string());
        let told = body(&answer);
        assert_eq!(told["reason"].as_str().unwrap_or_default(), reason, "{sections}");
        assert_eq!(told["visitor"].is_null(), !reason.is_empty(), "{sections}");
        assert_eq!(fact_count(&answer), u16::from(reason.is_empty()), "{sections}");
    }
}

#[test]
fn body_and_cookies_must_both_permit_so_that_no_next_call_withdraws_a_minted_visitor() {
    let decide = |cookie: &str, tcf: &str| {
        let mut browser = Browser::new("deny");
        browser.cookies.extend((!cookie.is_empty()).then(|| format!("euconsent-v2={cookie}")));
        let consent = if tcf.is_empty() { json!({}) } else { json!({ "tcf": tcf }) };
        let answer = browser.send("POST", "/v1/decide", json!({ "consent": consent }).to_string());
        browser.keep(&answer);
        let minted = browser.cookies.iter().any(|cookie| cookie.starts_with("cw_id="));
        let events = browser.send("POST", "/v1/events", PAGE);
        let withdrawn = facts(&events).iter().any(|fact| fact.what == What::Withdrawal);
        assert!(!withdrawn, "{cookie} {tcf}");
        minted
    };
    let said = ["", CONSENTS, REFUSES, "garbage"];
    let minted = said.map(|cookie| said.map(|tcf| decide(cookie, tcf)));
    let expected = [[false, true, false, false], [true, true, false, false], [false; 4], [false; 4]];
    assert_eq!(minted, expected);
}
