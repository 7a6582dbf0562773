//! What a browser's own cookies say of consent, on calls that have no other place for it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;

use browser::{Browser, facts};
use causeway_shared::fact::What;
use serde_json::{Value, json};

/// TCF v2: the first consents to no purpose, the second to purposes 1, 3 and 4.
const REFUSES: &str = "CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA";
const CONSENTS: &str = "CPXxRfAPXxRfAAfKABENB-CgALAAAAAAAAYgAAAAAAAA";
const PAGE: &str = r#"[{"type":"page","id":"x"}]"#;

/// A visitor who consented by the body of its call, where no signal means no; and the address of the ad that it saw.
fn consenting() -> (Browser, String) {
    let mut browser = Browser::new("deny");
    let body = json!({ "placements": [{ "id": "top" }], "consent": { "tcf": CONSENTS } }).to_string();
    let placed = browser.send("POST", "/v1/decide", &body);
    browser.keep(&placed);
    assert_eq!(browser.cookies.len(), 2);
    let answer: Value = serde_json::from_slice(&placed.body).unwrap();
    (browser, answer["decisions"][0]["impression_url"].as_str().unwrap().to_owned())
}

#[test]
fn field_21_a_signal_that_says_nothing_withdraws_nobody() {
    for silent in ["usprivacy=1---", "__gpp_sid=-1", "__gpp_sid=-1; usprivacy=1---"] {
        let (mut browser, pixel) = consenting();
        browser.cookies.push(silent.to_owned());
        let events = browser.send("POST", "/v1/events", PAGE);
        let answer: Value = serde_json::from_slice(&events.body).unwrap();
        assert_eq!((&answer["accepted"], answer.get("consent")), (&json!(1), None), "{silent}");
        assert!(matches!(facts(&events)[0].what, What::Page { .. }), "{silent}");
        assert_eq!(browser.send("GET", "/v1/me", "").head.facts, 0, "{silent}");
        assert_eq!(browser.send("GET", &pixel, "").head.facts, 1, "{silent}");
    }
}

#[test]
fn field_21_a_refusal_counts_also_where_our_own_cookie_is_gone() {
    for refusal in [&format!("euconsent-v2={REFUSES}"), "usprivacy=1YYN", "__gpp=x"] {
        let (mut browser, pixel) = consenting();
        let own = std::mem::take(&mut browser.cookies);
        assert_eq!(browser.send("GET", &pixel, "").head.facts, 1, "a browser that sends no cookies with pictures");
        browser.cookies = vec![refusal.to_owned()];
        assert_eq!(browser.send("GET", &pixel, "").head.facts, 0, "{refusal}");
        browser.cookies.extend(own);
        assert_eq!(browser.send("GET", &pixel, "").head.facts, 0, "{refusal}");
        let events = browser.send("POST", "/v1/events", PAGE);
        assert_eq!(facts(&events)[0].what, What::Withdrawal, "{refusal}");
    }
}

#[test]
fn field_21_of_a_cookie_that_comes_several_times_each_must_permit() {
    let yes = format!("euconsent-v2={CONSENTS}");
    let no = format!("euconsent-v2={REFUSES}");
    let consent = |cookies: &[&String]| {
        let mut browser = Browser::new("allow");
        browser.cookies = cookies.iter().map(|cookie| (*cookie).clone()).collect();
        let answer: Value = serde_json::from_slice(&browser.send("POST", "/v1/decide", "{}").body).unwrap();
        answer["consent"].clone()
    };
    assert_eq!(consent(&[&yes, &yes]), "full");
    for refusing in [&[&yes, &no][..], &[&no, &yes], &[&yes, &yes, &yes, &no], &[&yes; 5]] {
        assert_ne!(consent(refusing), "full", "{refusing:?}");
    }
}

#[test]
fn field_21_cookies_that_are_too_long_to_be_read_permit_nothing() {
    for (length, full) in [(10, true), (17_000, false)] {
        let mut browser = Browser::new("allow");
        browser.cookies = vec![format!("x={}", "x".repeat(length))];
        let outcome = browser.send("POST", "/v1/decide", "{}");
        let answer: Value = serde_json::from_slice(&outcome.body).unwrap();
        let sets = outcome.head.headers.iter().any(|(name, _)| *name == "set-cookie");
        assert_eq!((answer["consent"] == "full", sets, outcome.head.facts > 0), (full, full, full), "{answer}");
    }
}

#[test]
fn field_21_a_refusing_cookie_is_heard_also_where_the_body_names_sections_alone() {
    let mut browser = Browser::new("allow");
    browser.cookies = vec!["__gpp=DBABL~BVVVVVVVVWA.YA".to_owned(), "__gpp_sid=7".to_owned()];
    for consent in [json!({}), json!({ "gpp_sid": [-1] }), json!({ "gpp_sid": [] })] {
        let outcome = browser.send("POST", "/v1/decide", json!({ "consent": consent }).to_string());
        let answer: Value = serde_json::from_slice(&outcome.body).unwrap();
        assert_eq!((&answer["visitor"], &answer["reason"]), (&Value::Null, &json!("gpp")), "{consent}");
    }
}

#[test]
fn field_21_sections_that_apply_without_any_string_are_a_word_that_nobody_can_read() {
    for (sections, reason) in [(json!([7]), "undecodable"), (json!([-1]), ""), (json!([]), "")] {
        let mut browser = Browser::new("allow");
        let outcome = browser.send("POST", "/v1/decide", json!({ "consent": { "gpp_sid": sections } }).to_string());
        let answer: Value = serde_json::from_slice(&outcome.body).unwrap();
        assert_eq!(answer["reason"].as_str().unwrap_or_default(), reason, "{sections}");
        assert_eq!(answer["visitor"].is_null(), !reason.is_empty(), "{sections}");
        assert_eq!(outcome.head.facts, u16::from(reason.is_empty()), "{sections}");
    }
}

#[test]
fn field_21_body_and_cookies_must_both_permit_so_that_no_call_mints_whom_the_next_one_withdraws() {
    let decide = |cookie: &str, tcf: &str| {
        let mut browser = Browser::new("deny");
        browser.cookies.extend((!cookie.is_empty()).then(|| format!("euconsent-v2={cookie}")));
        let consent = if tcf.is_empty() { json!({}) } else { json!({ "tcf": tcf }) };
        let outcome = browser.send("POST", "/v1/decide", json!({ "consent": consent }).to_string());
        browser.keep(&outcome);
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
