//! Hostile input, and the agreement of the walking decoder with `iab_gpp` where the latter is right.

use std::collections::BTreeSet;

use bolero::{TypeGenerator, check};
use iab_gpp::sections::tcfeuv2::TcfEuV2;

use super::build::{Tcf, Vendors, Writer, canadian, gpp, segment};
use super::*;

/// Valid strings of every form, which the tests damage.
fn seeds() -> Vec<String> {
    let tcf = Tcf { restrictions: vec![(3, 1, vec![(1, 9)]), (7, 0, vec![(755, 755)])], ..Tcf::consenting() };
    let ca = canadian(&[3, 4], &[5], [&[755], &[7]]);
    let mut seeds = vec![
        tcf.text(),
        format!("{}.{}", tcf.text(), segment(2, &Vendors::Field(vec![3, 9]))),
        gpp(&[(2, &tcf.text()), (5, &ca), (6, "1YNN"), (8, "BqqqqqqA.QA")]),
        "1YNN".to_owned(),
        "DBABLA~CAAAAAAAAAWA.Q".to_owned(),
        "DBACNY~CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA~1YNN".to_owned(),
    ];
    for id in 7..=23 {
        seeds.push(gpp(&[(id, "BqqqqqqqqqqqqA.QA")]));
    }
    seeds
}

#[derive(Debug, Clone, TypeGenerator)]
enum Damage {
    Set(u16, u8),
    Cut(u16),
    Double(u16),
    Insert(u16, u8),
}

fn damage(text: &str, damages: &[Damage]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~=! \xff";
    let mut bytes = text.as_bytes().to_vec();
    for one in damages {
        let letter = |l: u8| LETTERS[usize::from(l) % LETTERS.len()];
        let place = |at: u16, len: usize| usize::from(at) % len.max(1);
        match one {
            Damage::Set(at, l) if !bytes.is_empty() => {
                let at = place(*at, bytes.len());
                bytes[at] = letter(*l);
            }
            Damage::Set(..) => {}
            Damage::Cut(at) => bytes.truncate(place(*at, bytes.len() + 1)),
            Damage::Double(at) if bytes.len() < 4_096 => {
                let tail = bytes[place(*at, bytes.len())..].to_vec();
                bytes.extend(tail);
            }
            Damage::Double(_) => {}
            Damage::Insert(at, l) => bytes.insert(place(*at, bytes.len() + 1), letter(*l)),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn every_way(text: &str) {
    for tenant in [tenant(""), allowing(), vendor()] {
        let tcf = with_tcf(text, &tenant);
        assert!(text.len() <= 4_096 || tcf == no(Refusal::Undecodable));
        assert!(tcf != no(Refusal::Gpp) && tcf != no(Refusal::Policy));
        for sid in [None, Some(&[2, 5, 8][..])] {
            let gpp = with_gpp(text, sid, &tenant);
            assert!(sid.is_none() || gpp != no(Refusal::Policy));
        }
        let signals = Signals { us_privacy: Some(text), ..Signals::default() };
        let us = permission(&signals, &tenant);
        assert!(text.len() == 4 || us == no(Refusal::Undecodable));
    }
    assert!(section_ids(text).len() <= 33);
}

#[test]
fn damaged_strings_never_panic() {
    let seeds = seeds();
    check!().with_type::<(u8, Vec<Damage>)>().with_iterations(20_000).for_each(|(seed, damages)| {
        every_way(&damage(&seeds[usize::from(*seed) % seeds.len()], damages));
    });
}

#[test]
fn random_bytes_never_panic() {
    check!().with_iterations(20_000).with_max_len(4_200).for_each(|bytes: &[u8]| {
        every_way(&String::from_utf8_lossy(bytes));
        let mut writer = Writer::default();
        for byte in bytes {
            writer.put(u64::from(*byte), 8);
        }
        let bits = writer.text();
        every_way(&bits);
        every_way(&format!("DBABM~C{bits}"));
        every_way(&format!("DBABDA~B{bits}.{bits}"));
    });
}

/// 700 ranges of 65,535 vendors each. Expanded, they are 46 million ids and more than a second of work per string, so
/// that this test would take half an hour; walked, they take no noticeable time.
#[test]
fn a_bomb_of_ranges_does_nothing() {
    let bomb = vec![(1, u16::MAX); 700];
    let restricted = vec![(3, 1, bomb.clone())];
    let in_vendors = Tcf {
        vendors: Vendors::Ranges(bomb.clone()),
        disclosed: Some(Vendors::Ranges(vec![(755, 755)])),
        ..Tcf::consenting()
    };
    let in_restrictions = Tcf { restrictions: restricted, ..Tcf::consenting() };
    let in_segment = format!("{}.{}", Tcf::consenting().core(), segment(1, &Vendors::Ranges(bomb)));
    for text in [in_vendors.text(), in_restrictions.text(), in_segment] {
        assert!(text.len() > 3_900 && text.len() <= 4_096, "{}", text.len());
        let whole = gpp(&[(2, &text)]);
        for _ in 0..300 {
            assert_eq!(with_tcf(&text, &vendor()), Permission::Full);
            assert_eq!(with_gpp(&whole, None, &vendor()), Permission::Full);
        }
    }
}

#[derive(Debug, Clone, TypeGenerator)]
struct Drawn {
    purposes: u32,
    policy: bool,
    is_new: bool,
    consents: Drawing,
    interests: Drawing,
    disclosed: Option<Drawing>,
    required: [u8; 3],
    vendor: Option<u8>,
}

#[derive(Debug, Clone, TypeGenerator)]
enum Drawing {
    Field(Vec<u8>),
    Ranges(Vec<(u8, u8)>),
}

impl Drawing {
    fn vendors(&self) -> Vendors {
        let id = |v: &u8| u16::from(*v) + 1;
        match self {
            Self::Field(ids) => Vendors::Field(ids.iter().map(id).collect()),
            Self::Ranges(ranges) => {
                Vendors::Ranges(ranges.iter().map(|(a, b)| (id(a).min(id(b)), id(a).max(id(b)))).collect())
            }
        }
    }
}

/// The expected result, computed from the whole string as `iab_gpp` expands it.
fn by_the_book(text: &str, tenant: &TenantConfig) -> Option<bool> {
    let tcf: TcfEuV2 = text.parse().ok()?;
    let needs_disclosure = tcf.core.policy_version >= 5 || tcf.core.created >= 1_772_323_200;
    if needs_disclosure && tcf.disclosed_vendors.is_none() {
        return None;
    }
    let purposes: BTreeSet<u16> = tenant.tcf_purposes.iter().map(|p| u16::from(*p)).collect();
    let vendor = tenant.tcf_vendor.is_none_or(|vendor| {
        let disclosed = tcf.disclosed_vendors.as_ref();
        tcf.core.vendor_consents.contains(&vendor)
            && (!needs_disclosure || disclosed.is_some_and(|d| d.contains(&vendor)))
    });
    Some(purposes.is_subset(&tcf.core.purpose_consents) && vendor)
}

#[test]
fn the_walk_agrees_with_the_expanding_decoder() {
    check!().with_type::<Drawn>().with_iterations(10_000).for_each(|drawn| {
        // Most purposes are present and few are required, so that all outcomes occur.
        let purposes: Vec<u8> =
            (1..=24).filter(|p| (drawn.purposes | drawn.purposes >> 8) >> (p - 1) & 1 == 1).collect();
        let text = Tcf {
            policy: if drawn.policy { 5 } else { 4 },
            created: if drawn.is_new { 17_900_000_000 } else { 17_700_000_000 },
            purposes: &purposes,
            vendors: drawn.consents.vendors(),
            vendor_interests: drawn.interests.vendors(),
            disclosed: drawn.disclosed.as_ref().map(Drawing::vendors),
            ..Tcf::consenting()
        }
        .text();
        let mut tenant = tenant("");
        tenant.tcf_purposes = drawn.required.iter().map(|p| p % 24 + 1).collect();
        tenant.tcf_vendor = drawn.vendor.map(|v| u16::from(v) + 1);
        if text.len() > 4_096 {
            return;
        }
        let expected = match by_the_book(&text, &tenant) {
            Some(true) => Permission::Full,
            Some(false) => no(Refusal::Tcf),
            None => no(Refusal::Undecodable),
        };
        assert_eq!(with_tcf(&text, &tenant), expected);
    });
}
