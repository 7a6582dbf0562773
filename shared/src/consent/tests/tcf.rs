use super::build::{Tcf, Vendors, Writer, canadian, gpp, segment};
use super::*;

#[test]
fn consent_to_all_that_is_asked_permits() {
    let text = Tcf::consenting().text();
    assert_eq!(with_tcf(&text, &tenant("")), Permission::Full);
    assert_eq!(with_tcf(&text, &vendor()), Permission::Full);
    assert_eq!(with_tcf(&text, &tenant(r#""tcf_purposes":[5]"#)), no(Refusal::Tcf));
}

#[test]
fn a_string_that_refuses_everything_is_no_consent() {
    let text = Tcf { purposes: &[], vendors: Vendors::Field(vec![]), ..Tcf::consenting() }.text();
    assert_eq!(with_tcf(&text, &allowing()), no(Refusal::Tcf));
    // IAB's own example, in which all purposes are withheld.
    let example = "CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA";
    assert_eq!(with_tcf(example, &allowing()), no(Refusal::Tcf));
}

#[test]
fn legitimate_interest_is_no_consent() {
    let text = Tcf {
        purposes: &[],
        interests: &[1, 2, 3, 4],
        vendor_interests: Vendors::Field(vec![755]),
        ..Tcf::consenting()
    }
    .text();
    assert_eq!(with_tcf(&text, &allowing()), no(Refusal::Tcf));
}

#[test]
fn one_missing_purpose_refuses() {
    for purposes in [&[3, 4][..], &[1, 4], &[1, 3], &[2, 5, 6, 7]] {
        let text = Tcf { purposes, ..Tcf::consenting() }.text();
        assert_eq!(with_tcf(&text, &allowing()), no(Refusal::Tcf));
    }
}

#[test]
fn a_string_that_cannot_be_decoded_is_no_consent() {
    let whole = Tcf::consenting().text();
    let long = format!("{}.{}", Tcf::consenting().core(), "A".repeat(4_096));
    let v1 = "BOEFEAyOEFEAyAHABDENAI4AAAB9vABAASA";
    let global = Tcf { service_specific: 0, ..Tcf::consenting() };
    let version = |version| Tcf { version, ..Tcf::consenting() }.text();
    for text in [
        "",
        " ",
        ".",
        "~",
        "C",
        "yes",
        "1YNN",
        "DBABTA~1YNN",
        "\u{1F36A}",
        v1,
        &long,
        &global.text(),
        &version(1),
        &version(3),
        &format!("{whole}."),
        &format!("{whole}="),
        &format!(" {whole}"),
        &format!("{whole}.IA!A"),
        &format!("{whole}%2E"),
    ] {
        assert_eq!(with_tcf(text, &allowing()), no(Refusal::Undecodable), "{text}");
    }
}

#[test]
fn a_string_cut_anywhere_is_no_consent() {
    let text = Tcf::consenting().text();
    for end in 0..text.len() {
        let cut = with_tcf(&text[..end], &allowing());
        assert_eq!(cut, no(Refusal::Undecodable), "cut at {end}");
    }
    assert_eq!(with_tcf(&text, &allowing()), Permission::Full);
}

#[test]
fn the_vendor_needs_consent_when_it_is_configured() {
    for vendors in [
        Vendors::Field(vec![]),
        Vendors::Field(vec![754, 756, 65_000 / 100]),
        Vendors::Ranges(vec![(1, 754), (756, 900)]),
    ] {
        let text = Tcf { vendors, ..Tcf::consenting() }.text();
        assert_eq!(with_tcf(&text, &vendor()), no(Refusal::Tcf));
        assert_eq!(with_tcf(&text, &tenant("")), Permission::Full);
    }
    for vendors in [
        Vendors::Field(vec![755]),
        Vendors::Ranges(vec![(755, 755)]),
        // "Note: items may not be in sorted order."
        Vendors::Ranges(vec![(900, 900), (700, 800), (3, 7)]),
        Vendors::Ranges(vec![(1, u16::MAX)]),
    ] {
        let text = Tcf { vendors, ..Tcf::consenting() }.text();
        assert_eq!(with_tcf(&text, &vendor()), Permission::Full);
    }
}

#[test]
fn tcf_2_3_needs_the_vendors_that_were_disclosed() {
    // Created before March 2026.
    let string = |policy, disclosed| Tcf { policy, disclosed, created: 17_700_000_000, ..Tcf::consenting() }.text();
    for tenant in [tenant(""), vendor()] {
        assert_eq!(with_tcf(&string(5, None), &tenant), no(Refusal::Undecodable));
        assert_eq!(with_tcf(&string(4, None), &tenant), Permission::Full);
    }
    let others = || Some(Vendors::Field(vec![1, 2, 3]));
    assert_eq!(with_tcf(&string(5, others()), &vendor()), no(Refusal::Tcf));
    assert_eq!(with_tcf(&string(6, others()), &vendor()), no(Refusal::Tcf));
    assert_eq!(with_tcf(&string(4, others()), &vendor()), Permission::Full);
    assert_eq!(with_tcf(&string(5, others()), &tenant("")), Permission::Full);
}

#[test]
fn publisher_restrictions_keep_the_vendor_away() {
    let string = |restrictions| Tcf { restrictions, ..Tcf::consenting() }.text();
    let named = || vec![(10, 20), (755, 755)];
    for (kind, refused) in [(0, true), (1, false), (2, true), (3, true)] {
        let text = string(vec![(7, 0, named()), (3, kind, named())]);
        let expected = if refused { no(Refusal::Tcf) } else { Permission::Full };
        assert_eq!(with_tcf(&text, &vendor()), expected, "type {kind}");
        assert_eq!(with_tcf(&text, &tenant("")), Permission::Full);
    }
    let others = string(vec![(3, 0, vec![(10, 20), (756, 900)]), (4, 0, vec![])]);
    assert_eq!(with_tcf(&others, &vendor()), Permission::Full);
}

#[test]
fn ranges_that_make_no_sense_cannot_be_decoded() {
    for ranges in [vec![(0, 5)], vec![(9, 3)], vec![(0, 0)]] {
        let text = Tcf { vendors: Vendors::Ranges(ranges), ..Tcf::consenting() }.text();
        assert_eq!(with_tcf(&text, &allowing()), no(Refusal::Undecodable));
    }
}

#[test]
fn segments_may_come_in_any_order_and_once() {
    let core = Tcf::consenting().core();
    let disclosed = segment(1, &Vendors::Ranges(vec![(1, 900)]));
    let allowed = segment(2, &Vendors::Field(vec![7]));
    let publisher = Writer::default().put(3, 3).put(0, 48).put(2, 6).put(5, 4).text();
    let ask = |segments: &[&str]| {
        let text = [&[core.as_str()], segments].concat().join(".");
        with_tcf(&text, &vendor())
    };
    assert_eq!(ask(&[&disclosed, &publisher]), Permission::Full);
    assert_eq!(ask(&[&publisher, &allowed, &disclosed]), Permission::Full);
    for segments in [
        &[disclosed.as_str(), &disclosed][..],
        &[&disclosed, "AAAA"],
        &[&disclosed, "gAAA"],
        &[&disclosed, &publisher[..8]],
        &[&disclosed, ""],
    ] {
        assert_eq!(ask(segments), no(Refusal::Undecodable), "{segments:?}");
    }
}

#[test]
fn examples_with_every_segment_are_read() {
    // From the test data of iab_gpp. IsServiceSpecific is set here, because TCF 2.2 calls the string invalid without
    // it.
    let core = "COvFyGBOvFyGBAbAAAENAPCgAOAAAAAAAAAAAEEUACCKAAA";
    let disclosed = "IFoEUQQgAIQwgIwQABAEAAAAOIAACAIAAAAQAIAgEAACEAAAAAgAQBAAAAAAAGBAAgAAAAAAAFAAECAAAgAAQARAEQAAAAAJAAIAAgAAAYQEAAAQmAgBC3ZAYzUw";
    let asks = |purposes: &str, vendor: u16| tenant(&format!(r#""tcf_purposes":{purposes},"tcf_vendor":{vendor}"#));
    for text in
        [core.to_owned(), format!("{core}.{disclosed}.ZAAgH9794ulA"), format!("{core}.ZAAgH9794ulA.{disclosed}")]
    {
        // Purposes 1 to 3 and the vendors 2, 6 and 8 have consent.
        assert_eq!(with_tcf(&text, &asks("[1,2,3]", 6)), Permission::Full);
        assert_eq!(with_tcf(&text, &asks("[1,2,3]", 7)), no(Refusal::Tcf));
        assert_eq!(with_tcf(&text, &asks("[1,3,4]", 6)), no(Refusal::Tcf));
    }
}

#[test]
fn canada_asks_for_express_or_implied_consent() {
    let ask = |text: &str, tenant: &TenantConfig| with_gpp(&gpp(&[(5, text)]), Some(&[5]), tenant);
    // Purpose 1 is not used in Canada.
    let mixed = canadian(&[3], &[4], [&[755], &[]]);
    assert_eq!(ask(&mixed, &tenant("")), Permission::Full);
    assert_eq!(ask(&mixed, &vendor()), Permission::Full);
    let implied = canadian(&[], &[3, 4], [&[9], &[755]]);
    assert_eq!(ask(&implied, &vendor()), Permission::Full);
    let less = canadian(&[3], &[5], [&[755], &[755]]);
    assert_eq!(ask(&less, &tenant("")), no(Refusal::Gpp));
    let other_vendor = canadian(&[3, 4], &[], [&[9], &[10]]);
    assert_eq!(ask(&other_vendor, &vendor()), no(Refusal::Gpp));
    assert_eq!(ask(&other_vendor, &tenant("")), Permission::Full);
    // A tenant with purpose 1 alone has no purpose that Canada uses, and therefore gets no permission.
    let first = tenant(r#""tcf_purposes":[1]"#);
    assert_eq!(ask(&mixed, &first), no(Refusal::Gpp));
    for end in 0..mixed.len() {
        assert_eq!(ask(&mixed[..end], &vendor()), no(Refusal::Undecodable));
    }
}

#[test]
fn an_example_from_canada_is_read() {
    let example = "DBABDA~BQMC4oAQMC4oAPoABABGB0CYAf8AAf8AAAqdA-AAUABwAFQALQAaABLACgAF0ANoAdwA_QCCAIQARQAnwBWgC3AGUANMAc4A7gCAQElASYAnYBPwDFAGaAM6AZ8A14B_AEngJyAT-Ao8BUQCpQFvALhAXQAvcBf4DBwGYANNAbUA3EBxoDxAHmgPkAgIBCQCNwEpYJgAmCBNUCa4E5gJ-AUmApYBU4FToHwACgAOAAqABaADQAJYAUAAugBtADuAH6AQQBCACKAE-AK0AW4AygBpgDnAHcAQCAkoCTAE7AJ-AYoAzQBnQDPgGvAP4Ak8BOQCfwFHgKiAVKAt4BcIC6AF7gL_AYOAzABpoDagG4gONAeIA80B8gEBAISARuAlLBMAEwQJqgTXAnMBPwCkwFLAKnAAAA.YAAAAAAAAAA";
    let asks = |purposes: &str, vendor: u16| tenant(&format!(r#""tcf_purposes":{purposes},"tcf_vendor":{vendor}"#));
    let ask = |tenant: &TenantConfig| with_gpp(example, None, tenant);
    assert_eq!(ask(&asks("[1,3,4,9]", 1_358)), Permission::Full);
    assert_eq!(ask(&asks("[1,3,4,10]", 1_358)), no(Refusal::Gpp));
    assert_eq!(ask(&asks("[1,3,4,9]", 1_357)), no(Refusal::Gpp));
}

#[test]
fn strings_of_march_2026_on_name_the_vendors_that_were_disclosed() {
    const DAY: u64 = 864_000;
    const MARCH: u64 = 17_723_232_000;
    for (policy, created, permits) in [
        (2, MARCH - DAY, true),
        (4, MARCH - 1, true),
        (4, MARCH, false),
        (2, MARCH + 30 * DAY, false),
        (3, MARCH + 30 * DAY, false),
        (5, MARCH - 30 * DAY, false),
    ] {
        let consenting = Tcf { policy, created, ..Tcf::consenting() };
        let expected = if permits { Permission::Full } else { no(Refusal::Undecodable) };
        assert_eq!(with_tcf(&consenting.core(), &allowing()), expected, "{policy} {created}");
        assert_eq!(with_tcf(&consenting.text(), &allowing()), Permission::Full, "it names them: {policy} {created}");
    }
}
