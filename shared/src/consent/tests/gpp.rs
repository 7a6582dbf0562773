use super::build::{Tcf, Writer, gpp};
use super::*;

/// US sections by their specification: id, version, number of two-bit fields in the core, the fields that are opt-outs
/// or consents for a known child, and whether a GPC segment may follow.
const SECTIONS: [(u32, u64, usize, &[usize], bool); 22] = [
    (7, 1, 27, &[6, 7, 8, 21, 22], true),
    (7, 2, 32, &[6, 7, 8, 25, 26, 27], true),
    (8, 1, 20, &[3, 4, 14, 15], true),
    (9, 1, 17, &[3, 4, 13], false),
    (10, 1, 16, &[3, 4, 12], true),
    (11, 1, 18, &[4, 5, 14], false),
    (12, 1, 19, &[3, 4, 13, 14, 15], true),
    (13, 1, 20, &[3, 4, 13, 14, 15], false),
    (14, 1, 20, &[3, 4, 13, 14, 15], true),
    (15, 1, 23, &[3, 4, 16, 17, 18], true),
    (16, 1, 18, &[3, 4, 13], true),
    (17, 1, 23, &[3, 4, 14, 15, 16, 17, 18], true),
    (18, 1, 18, &[4, 5, 14], true),
    (19, 1, 18, &[3, 4, 13], true),
    (20, 1, 20, &[3, 4, 13, 14, 15], true),
    (21, 1, 24, &[3, 4, 15, 16, 17, 18, 19], true),
    (22, 1, 18, &[3, 4, 13], true),
    (23, 1, 18, &[3, 4, 13], true),
    (24, 1, 8, &[5, 6], true),
    (25, 1, 9, &[5, 6, 7], false),
    (26, 1, 9, &[5, 6, 7], false),
    (27, 1, 9, &[5, 6, 7], false),
];

/// A section whose fields are all 2 ("no", "did not opt out", "consent"), except for one given field.
fn section(version: u64, fields: usize, odd: Option<(usize, u64)>) -> String {
    let mut core = Writer::default();
    core.put(version, 6);
    for at in 0..fields {
        let value = odd.filter(|(odd, _)| *odd == at).map_or(2, |(_, v)| v);
        core.put(value, 2);
    }
    core.text()
}

#[test]
fn every_us_section_refuses_by_its_own_fields() {
    for (id, version, fields, opt_outs, _) in SECTIONS {
        let ask = |odd| {
            let text = gpp(&[(id, &section(version, fields, odd))]);
            with_gpp(&text, Some(&[i32::try_from(id).unwrap()]), &tenant(""))
        };
        assert_eq!(ask(None), Permission::Full, "section {id}");
        for at in 0..fields {
            let expected = if opt_outs.contains(&at) { no(Refusal::Gpp) } else { Permission::Full };
            assert_eq!(ask(Some((at, 1))), expected, "section {id}, field {at}");
            let undefined = ask(Some((at, 3)));
            assert_eq!(undefined, no(Refusal::Undecodable), "section {id}");
        }
    }
}

#[test]
fn the_gpc_segment_of_a_us_section_refuses() {
    // The last three sections have a second segment of sensitive data, which is not read.
    for (id, version, fields, _, has_gpc) in SECTIONS.into_iter().filter(|(id, ..)| *id < 25) {
        let ask = |segments: &str| {
            let text = section(version, fields, None) + segments;
            with_gpp(&gpp(&[(id, &text)]), None, &tenant(""))
        };
        if has_gpc {
            assert_eq!(ask(".YA"), no(Refusal::Gpp), "section {id}");
            assert_eq!(ask(".QA"), Permission::Full, "section {id}");
        }
        let odd: &[&str] =
            if has_gpc { &[".", ".YA.YA", ".QA.YA", ".AA", ".Y!", "=", ".oA"] } else { &[".", ".YA", ".QA", "="] };
        for segments in odd {
            let answer = ask(segments);
            assert_eq!(answer, no(Refusal::Undecodable), "{id}{segments}");
        }
    }
}

#[test]
fn a_us_section_cut_anywhere_is_no_consent() {
    for (id, version, fields, opt_outs, _) in SECTIONS {
        let ask = |text: &str| with_gpp(&gpp(&[(id, text)]), None, &allowing());
        let whole = section(version, fields, None);
        let opted_out = section(version, fields, Some((opt_outs[0], 1)));
        for end in 0..whole.len() {
            assert_ne!(ask(&opted_out[..end]), Permission::Full, "{id} at {end}");
            // The decoder pads the last byte, which can stand for the MSPA fields at the very end.
            if end + 1 < whole.len() {
                let cut = ask(&whole[..end]);
                assert_eq!(cut, no(Refusal::Undecodable), "{id} at {end}");
            }
        }
    }
}

#[test]
fn published_examples_come_out_as_they_say() {
    for (text, opted_out) in [
        ("DBABBg~BAAAAACA", false),
        ("DBABBg~BVVVVVVY", true),
        ("DBABBg~BVqqqqpY.YA", true),
        ("DBABJg~BAAAAEA", false),
        ("DBABJg~BVVVVVg", true),
        ("DBABJg~BVVVVVg.YA", true),
        ("DBABVg~BAAAAAEA", false),
        ("DBABVg~BVVVVVVg", true),
        ("DBABLA~BAAAAAAAAQA", false),
        ("DBABLA~BVVVVVVVVWA", true),
        ("DBABLA~BVVVVVVVVWA.YA", true),
        // Consent for a known child is withheld.
        ("DBABLA~CAAAAAAAAAWA.Q", true),
        ("DBABFg~BAAAAAQA", false),
        ("DBABFg~BVVVVVmA", true),
        ("DBABRg~BAAAABA", false),
        ("DBABRg~BVVVVWY", true),
        ("DBABTA~1YNN", false),
        ("DBABTA~1YYN", true),
        // All purposes are withheld in the next two strings.
        ("DBABM~CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA", true),
        ("DBACNY~CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA~1YNN", true),
        ("DBABDA~BPXuQIAPXuQIAAfKABENB-CgAAAAAAAAAAAAAAAA", true),
    ] {
        let expected = if opted_out { no(Refusal::Gpp) } else { Permission::Full };
        assert_eq!(with_gpp(text, None, &tenant("")), expected, "{text}");
    }
    let v1 = "DBABYA~BOEFEAyOEFEAyAHABDENAI4AAAB9vABAASA";
    assert_eq!(with_gpp(v1, None, &allowing()), no(Refusal::UnknownSection));
}

#[test]
fn a_section_that_is_not_known_yet_permits_nothing_and_withdraws_nothing() {
    let known = section(1, 18, None);
    for (sections, expected) in [
        (vec![(28, "BAAAAA")], no(Refusal::UnknownSection)),
        (vec![(3, "BAAAAA")], no(Refusal::UnknownSection)),
        (vec![(16, known.as_str()), (28, "BAAAAA")], no(Refusal::UnknownSection)),
        (vec![(16, "!"), (28, "BAAAAA")], no(Refusal::Undecodable)),
    ] {
        assert_eq!(with_gpp(&gpp(&sections), None, &allowing()), expected, "{sections:?}");
        assert_eq!(expected.is_withdrawal(), expected == no(Refusal::Undecodable));
    }
    // An unknown section that does not apply has no influence.
    let both = gpp(&[(16, &known), (28, "BAAAAA")]);
    assert_eq!(with_gpp(&both, Some(&[16]), &allowing()), Permission::Full);
}

#[test]
fn the_published_string_of_maryland_permits_and_its_opt_outs_refuse() {
    assert_eq!(with_gpp("DBABEYA~BhWg.QA", Some(&[24]), &tenant("")), Permission::Full);
    assert_eq!(with_gpp("DBABEYA~BhWg.YA", Some(&[24]), &tenant("")), no(Refusal::Gpp));
}

#[test]
fn only_the_sections_that_apply_are_asked() {
    let tcf = Tcf::consenting().text();
    let opted_out = section(1, 20, Some((3, 1)));
    let text = gpp(&[(2, &tcf), (6, "1YNN"), (8, &opted_out)]);
    let ask = |sid: Option<&[i32]>| with_gpp(&text, sid, &tenant(""));
    assert_eq!(ask(Some(&[2])), Permission::Full);
    assert_eq!(ask(Some(&[2, 6])), Permission::Full);
    assert_eq!(ask(Some(&[8])), no(Refusal::Gpp));
    assert_eq!(ask(Some(&[6, 8])), no(Refusal::Gpp));
    assert_eq!(ask(Some(&[-1, 8])), no(Refusal::Gpp));
    assert_eq!(ask(None), no(Refusal::Gpp));
    for sid in [&[7][..], &[0], &[2, 7], &[7, 99], &[-2], &[i32::MIN], &[6; 33]] {
        assert_eq!(ask(Some(sid)), no(Refusal::Undecodable), "{sid:?}");
    }
}

#[test]
fn an_applicable_section_that_is_not_known_yet_withdraws_nothing_where_the_string_lacks_it() {
    let tcf = Tcf::consenting().text();
    let opted_out = section(1, 20, Some((3, 1)));
    let text = gpp(&[(2, &tcf), (8, &opted_out)]);
    for (string, sid, expected) in [
        (Some(text.as_str()), &[28][..], Refusal::UnknownSection),
        (Some(text.as_str()), &[2, 28], Refusal::UnknownSection),
        (Some(text.as_str()), &[-1, 1, 3, 4, i32::MAX], Refusal::UnknownSection),
        (None, &[28], Refusal::UnknownSection),
        // A known section decides.
        (Some(text.as_str()), &[8, 28], Refusal::Gpp),
        (Some(text.as_str()), &[7, 28], Refusal::Undecodable),
        (Some("!"), &[28], Refusal::Undecodable),
        (None, &[7, 28], Refusal::Undecodable),
        (None, &[28; 33], Refusal::Undecodable),
    ] {
        let signals = Signals { gpp: string, gpp_sid: Some(sid), ..Signals::default() };
        let said = permission(&signals, &allowing());
        assert_eq!(said, no(expected), "{string:?} {sid:?}");
        assert_eq!(said.is_withdrawal(), expected != Refusal::UnknownSection, "{string:?} {sid:?}");
    }
}

#[test]
fn no_section_that_applies_is_no_signal() {
    let opted_out = gpp(&[(8, &section(1, 20, Some((3, 1))))]);
    assert_eq!(with_gpp(&opted_out, Some(&[]), &allowing()), no(Refusal::Gpp), "not known yet: all sections are read");
    for (text, sid) in [(opted_out.as_str(), Some(&[-1][..])), ("", Some(&[-1])), ("DBAA", None), ("DBAA", Some(&[]))] {
        assert_eq!(with_gpp(text, sid, &tenant("")), no(Refusal::Policy));
        assert_eq!(with_gpp(text, sid, &allowing()), Permission::Full);
    }
    let ids_alone = Signals { gpp_sid: Some(&[8]), ..Signals::default() };
    assert_eq!(permission(&ids_alone, &allowing()), no(Refusal::Undecodable));
}

#[test]
fn headers_of_many_sections_name_the_right_ones() {
    // Ids are distances from the previous id. Colorado has opted out, California has not.
    let fine = section(1, 20, None);
    let colorado = section(1, 16, Some((3, 1)));
    let text = gpp(&[(6, "1YNN"), (8, &fine), (10, &colorado)]);
    assert_eq!(with_gpp(&text, Some(&[8]), &tenant("")), Permission::Full);
    assert_eq!(with_gpp(&text, Some(&[10]), &tenant("")), no(Refusal::Gpp));
    // The same ids as one single id and one group: 6, then 8 to 9.
    let mut header = Writer::default();
    header.put(3, 6).put(1, 6).put(2, 12);
    header.put(0, 1).fibonacci(6).put(1, 1).fibonacci(2).fibonacci(1);
    let virginia = section(1, 17, Some((4, 1)));
    let text = format!("{}~1YNN~{fine}~{virginia}", header.text());
    assert_eq!(with_gpp(&text, Some(&[6, 8]), &tenant("")), Permission::Full);
    assert_eq!(with_gpp(&text, Some(&[9]), &tenant("")), no(Refusal::Gpp));
}

#[test]
fn a_gpp_header_that_does_not_match_its_sections_is_no_consent() {
    let fine = section(1, 20, None);
    let header = |kind, version, count, items: &[u32]| {
        let mut header = Writer::default();
        header.put(kind, 6).put(version, 6).put(count, 12);
        for item in items {
            header.put(0, 1).fibonacci(*item);
        }
        header.text()
    };
    let mut group = Writer::default();
    group.put(3, 6).put(1, 6).put(1, 12).put(1, 1);
    group.fibonacci(1).fibonacci(60_000);
    for text in [
        String::new(),
        "~".to_owned(),
        "D".to_owned(),
        "DBABBg".to_owned(),
        format!("DBABBg~{fine}~{fine}"),
        format!("DBABB~{fine}"),
        format!("DBAC~{fine}"),
        format!("{}~{fine}", header(2, 1, 1, &[8])),
        format!("{}~{fine}", header(3, 2, 1, &[8])),
        format!("{}~{fine}", header(3, 1, 4_095, &[8])),
        format!("{}~{fine}", header(3, 1, 1, &[65_535])),
        format!("{}~{fine}", group.text()),
        format!("{}{}", group.text(), "~".repeat(3_000)),
        gpp(&(1..=40).map(|id| (id, "A")).collect::<Vec<_>>()),
        format!("DBABBg~{}", "B".repeat(4_096)),
    ] {
        let answer = with_gpp(&text, None, &allowing());
        assert_eq!(answer, no(Refusal::Undecodable), "{text}");
    }
}
