//! Consent in a browser's cookies, on calls whose body has none.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use crate::browser::{Browser, body, fact_count, facts, set_cookies};
use causeway_shared::facts::fact::FactKind;
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
        assert!(matches!(facts(&events)[0].what, FactKind::Page { .. }), "{silent}");
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
        assert_eq!(facts(&events)[0].what, FactKind::Withdrawal, "{refusal}");
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
        let (reply, sets) = (body(&answer), set_cookies(&answer).next().is_some());
        assert_eq!((reply["consent"] == "full", sets, fact_count(&answer) > 0), (full, full, full), "{reply}");
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
        let reply = body(&answer);
        assert_eq!(reply["reason"].as_str().unwrap_or_default(), reason, "{sections}");
        assert_eq!(reply["visitor"].is_null(), !reason.is_empty(), "{sections}");
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
        let withdrawn = facts(&events).iter().any(|fact| fact.what == FactKind::Withdrawal);
        assert!(!withdrawn, "{cookie} {tcf}");
        minted
    };
    let signals = ["", CONSENTS, REFUSES, "garbage"];
    let minted = signals.map(|cookie| signals.map(|tcf| decide(cookie, tcf)));
    let expected = [[false, true, false, false], [true, true, false, false], [false; 4], [false; 4]];
    assert_eq!(minted, expected);
}

/// The answer to a decide call of a new browser with this body.
fn decide_raw(body_text: &str) -> causeway_edge::HttpAnswer {
    Browser::new("allow").send("POST", "/v1/decide", body_text)
}

#[test]
fn a_repeated_consent_or_one_of_another_json_type_refuses_with_a_warning() {
    let yes = format!(r#""tcf":"{CONSENTS}""#);
    for (consent, field, code) in [
        (r#""consent":{"tcf":"garbage","tcf":null}"#.to_owned(), "consent.tcf", "repeated"),
        (format!(r#""consent":{{"tcf":"garbage",{yes}}}"#), "consent.tcf", "repeated"),
        (format!(r#""consent":{{{yes},{yes}}}"#), "consent.tcf", "repeated"),
        (r#""consent":{"tcf":null,"t\u0063f":null}"#.to_owned(), "consent.tcf", "repeated"),
        (r#""consent":{"tcf":"garbage"},"consent":{}"#.to_owned(), "consent", "repeated"),
        (r#""consent":null,"page":{},"consent":{}"#.to_owned(), "consent", "repeated"),
        (r#""consent":{"gpp_sid":[6],"gpp_sid":[-1]}"#.to_owned(), "consent.gpp_sid", "repeated"),
        (r#""consent":{"gpp":"x","gpp":"y","gpp_sid":[-1]}"#.to_owned(), "consent.gpp", "repeated"),
        (r#""consent":{"gpp":5,"gpp_sid":[-1]}"#.to_owned(), "consent.gpp", "malformed"),
        (r#""consent":[]"#.to_owned(), "consent", "malformed"),
        (format!(r#""consent":["{CONSENTS}"]"#), "consent", "malformed"),
        (r#""consent":"""#.to_owned(), "consent", "malformed"),
        (r#""consent":false"#.to_owned(), "consent", "malformed"),
    ] {
        let answer = decide_raw(&format!("{{{consent}}}"));
        let reply = body(&answer);
        assert_eq!((&reply["visitor"], &reply["reason"]), (&Value::Null, &json!("undecodable")), "{consent}");
        assert_eq!((set_cookies(&answer).count(), fact_count(&answer)), (0, 0), "{consent}");
        let warning = &reply["warnings"][0];
        assert_eq!((&warning["field"], &warning["code"]), (&json!(field), &json!(code)), "{consent} {reply}");
    }
    // A field that is no signal has no effect, even if it is repeated.
    let reply = body(&decide_raw(&format!(r#"{{"consent":{{{yes},"x":1,"x":2}}}}"#)));
    assert_eq!((&reply["consent"], &reply["warnings"][0]["code"]), (&json!("full"), &json!("unknown_field")));
}

#[test]
fn a_repeated_field_that_is_no_consent_is_named_and_its_last_value_counts() {
    let reply = body(&decide_raw(r#"{"placements":[],"placements":[{"id":"top"}]}"#));
    assert_eq!((reply["decisions"].as_array().map(Vec::len), &reply["consent"]), (Some(1), &json!("full")));
    assert_eq!(
        (&reply["warnings"][0]["field"], &reply["warnings"][0]["code"]),
        (&json!("placements"), &json!("repeated"))
    );
}

#[test]
fn parts_of_a_call_are_objects_and_no_arrays_of_their_values() {
    let reply = body(&decide_raw(r#"{"placements":[["top",[],"",0]],"page":["https://pub.example/"],"user":[{}]}"#));
    assert_eq!((&reply["decisions"], &reply["rejected"][0]["field"]), (&json!([]), &json!("placements[0]")), "{reply}");
    let warned: Vec<&Value> = reply["warnings"].as_array().unwrap().iter().map(|one| &one["field"]).collect();
    assert_eq!(warned, ["page", "user"]);
}

#[test]
fn each_source_with_an_applicable_section_must_bring_a_permitting_string() {
    let permits = "__gpp=DBABLA~BVQqAAAAAgA.QA";
    for (cookies, consent, reason) in [
        (vec!["__gpp_sid=-1"], json!({ "gpp_sid": [2] }), "undecodable"),
        (vec![permits, "__gpp_sid=7"], json!({ "gpp_sid": [2] }), "undecodable"),
        (vec![permits], json!({ "gpp_sid": [2] }), "undecodable"),
        (vec![permits, "__gpp_sid=7"], json!({ "gpp_sid": [28] }), "unknown_section"),
        (vec!["__gpp_sid=7"], json!({ "gpp": "DBABLA~BVQqAAAAAgA.QA", "gpp_sid": [7] }), "undecodable"),
        (vec![permits, "__gpp_sid=7"], json!({ "gpp_sid": [-1] }), ""),
        (vec![permits, "__gpp_sid=7"], json!({ "gpp": "DBABLA~BVQqAAAAAgA.QA", "gpp_sid": [7] }), ""),
    ] {
        let mut browser = Browser::new("allow");
        browser.cookies = cookies.iter().map(|cookie| (*cookie).to_owned()).collect();
        let answer = browser.send("POST", "/v1/decide", json!({ "consent": consent }).to_string());
        let reply = body(&answer);
        assert_eq!(reply["reason"].as_str().unwrap_or_default(), reason, "{cookies:?} {consent}");
        assert_eq!(reply["visitor"].is_null(), !reason.is_empty(), "{cookies:?} {consent}");
    }
}

#[test]
fn an_applicable_section_that_is_not_known_yet_leaves_a_returning_visitor_its_cookies() {
    let mut browser = Browser::new("allow");
    let visitor = browser.visit();
    for sections in [json!([28]), json!([7, 28])] {
        let consent = json!({ "consent": { "gpp": "DBABLA~BVQqAAAAAgA.QA", "gpp_sid": sections } });
        let answer = browser.send("POST", "/v1/decide", consent.to_string());
        let reply = body(&answer);
        assert_eq!((&reply["visitor"], &reply["reason"]), (&Value::Null, &json!("unknown_section")), "{sections}");
        assert_eq!((set_cookies(&answer).count(), fact_count(&answer)), (0, 0), "{sections}");
    }
    assert_eq!(browser.visit(), visitor);
}
