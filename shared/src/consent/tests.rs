//! The tests build consent strings field by field from the tables of the specifications, so that each test shows the
//! meaning of its string. Examples from IAB and from the test data of `iab_gpp` are checked in addition.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

mod build;
mod fuzz;
mod gpp;
mod tcf;

use super::{Permission, Refusal, Signals, permission, section_ids};
use crate::settings::config::TenantConfig;
use build::Tcf;

/// A tenant with purposes 1, 3 and 4 that denies identity without a signal; `more` are further JSON fields.
fn tenant(more: &str) -> TenantConfig {
    serde_json::from_str(&format!(
        r#"{{"name":"pub","hosts":["pub.example"]{}{more}}}"#,
        if more.is_empty() { "" } else { "," }
    ))
    .unwrap()
}

fn allowing() -> TenantConfig {
    tenant(r#""no_signal":"allow""#)
}

fn vendor() -> TenantConfig {
    tenant(r#""tcf_vendor":755"#)
}

fn with_tcf(text: &str, tenant: &TenantConfig) -> Permission {
    let signals = Signals { tcf: Some(text), ..Signals::default() };
    permission(&signals, tenant)
}

fn with_gpp(text: &str, sid: Option<&[i32]>, tenant: &TenantConfig) -> Permission {
    let signals = Signals { gpp: Some(text), gpp_sid: sid, ..Signals::default() };
    permission(&signals, tenant)
}

fn no(refusal: Refusal) -> Permission {
    Permission::None(refusal)
}

#[test]
fn without_a_signal_the_policy_decides() {
    let none = Signals::default();
    assert_eq!(permission(&none, &tenant("")), no(Refusal::Policy));
    assert_eq!(permission(&none, &allowing()), Permission::Full);
}

#[test]
fn gpc_refuses_whatever_the_other_signals_say() {
    let tcf = Tcf::consenting().text();
    let signals = Signals {
        gpc: true,
        tcf: Some(&tcf),
        gpp: Some("DBABTA~1YNN"),
        gpp_sid: Some(&[-1]),
        us_privacy: Some("1YNN"),
    };
    for tenant in [tenant(""), allowing(), vendor()] {
        assert_eq!(permission(&signals, &tenant), no(Refusal::Gpc));
    }
}

#[test]
fn every_signal_must_permit() {
    let yes = Tcf::consenting().text();
    let refusing = Tcf { purposes: &[], ..Tcf::consenting() }.text();
    let ask = |tcf: &str, gpp, us_privacy| {
        let signals = Signals { tcf: Some(tcf), gpp: Some(gpp), us_privacy: Some(us_privacy), ..Signals::default() };
        permission(&signals, &allowing())
    };
    assert_eq!(ask(&yes, "DBABTA~1YNN", "1YNN"), Permission::Full);
    assert_eq!(ask(&refusing, "DBABTA~1YNN", "1YNN"), no(Refusal::Tcf));
    assert_eq!(ask(&yes, "DBABTA~1YYN", "1YNN"), no(Refusal::Gpp));
    assert_eq!(ask(&yes, "DBABTA~1YNN", "1YYN"), no(Refusal::UsPrivacy));
    assert_eq!(ask(&yes, "DBABTA~1YNN", "1Y"), no(Refusal::Undecodable));
}

#[test]
fn the_older_us_string_opts_out_by_its_third_character() {
    let ask = |text, tenant: &TenantConfig| {
        let signals = Signals { us_privacy: Some(text), ..Signals::default() };
        permission(&signals, tenant)
    };
    let strict = tenant("");
    assert_eq!(ask("1YNN", &strict), Permission::Full);
    assert_eq!(ask("1YYY", &strict), no(Refusal::UsPrivacy));
    assert_eq!(ask("1---", &strict), no(Refusal::Policy));
    assert_eq!(ask("1---", &allowing()), Permission::Full);
    for odd in ["", "1", "1YN", "1YNNN", "2YNN", "1ynn", "1Y\u{e9}", "1YAN"] {
        assert_eq!(ask(odd, &allowing()), no(Refusal::Undecodable), "{odd}");
    }
}

#[test]
fn every_outcome_has_a_code_of_its_own() {
    let outcomes = [
        Permission::Full,
        no(Refusal::Gpc),
        no(Refusal::Tcf),
        no(Refusal::Gpp),
        no(Refusal::UsPrivacy),
        no(Refusal::Undecodable),
        no(Refusal::Policy),
    ];
    let codes: std::collections::BTreeSet<&str> = outcomes.iter().map(|o| o.code()).collect();
    assert_eq!(codes.len(), outcomes.len());
    assert!(codes.contains("full") && codes.contains("gpc"));
}

#[test]
fn the_cookie_of_applicable_sections_is_read() {
    assert_eq!(section_ids("2"), [2]);
    assert_eq!(section_ids("2,6"), [2, 6]);
    assert_eq!(section_ids("7_8"), [7, 8]);
    assert_eq!(section_ids(" -1 "), [-1]);
    assert!(section_ids("").is_empty());
    assert_eq!(section_ids("x,99999999999"), [0, 0]);
    assert_eq!(section_ids(&"1,".repeat(9_999)).len(), 33);
}
