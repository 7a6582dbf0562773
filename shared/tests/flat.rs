//! A catalogue's bytes on their way to the edge.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests end at the first thing that is not so")]

use causeway_shared::attributes::{Dictionary, Kind};
use causeway_shared::catalogue::{Catalogue, Compiled, Flat};
use causeway_shared::vocabulary::{Vocabulary, Word};
use causeway_shared::wire::{self, WireError, flat};
use proptest::prelude::*;
use serde_json::{Value, json};

fn words() -> Vocabulary {
    let word = |name: &str, code| Word { name: name.to_owned(), code };
    Vocabulary { verbs: vec![word("hide", 3)], view_types: vec![word("home", 1)] }
}

fn names() -> Dictionary {
    Dictionary::from_entries([("vip".to_owned(), Kind::Bool)]).unwrap()
}

fn cap(action: &str, limit: u32, unit: &str) -> Value {
    json!({ "action": action, "limit": limit, "window": { "interval": 2, "unit": unit } })
}

fn document() -> Value {
    json!({
        "advertiser": [{ "id": "v", "code": 9, "repeats": true }],
        "campaign": [{
            "id": "c", "code": 8, "advertiser": "v", "starts": "1970-01-01T00:00:01Z", "ends": "1970-01-01T00:00:02Z",
            "bid": { "cpc_micros": 300 }, "targeting": { "attributes.vip": true }, "categories": ["x"],
            "cap_mode": "strict", "caps": [cap("hide", 1, "days")],
        }],
        "ad_group": [{ "id": "g", "code": 7, "campaign": "c", "caps": [cap("impression", 5, "hours")] }],
        "ad": [
            { "id": "light", "code": 6, "ad_group": "g", "weight": 0, "creative": {}, "landing": "https://a.example/" },
            { "id": "a", "code": 5, "ad_group": "g", "sizes": [[3, 2]], "creative": { "t": 1 },
              "landing": "https://b.example/", "caps": [cap("impression", 4, "hours")] },
        ],
    })
}

fn made(document: Value) -> Flat {
    let catalogue: Catalogue = serde_json::from_value(document).unwrap();
    assert_eq!(catalogue.problems("", &words()), []);
    catalogue.flat(&names(), &words()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_catalogue_has_these_bytes() {
    let flat = made(document());
    // The filter has golden bytes of its own.
    let filter = wire::filter::encode(&flat.filters[0]);
    let golden = [
        "0102030202010102", // the form; hide over two days, impression over two hours
        &format!("01{:02x}{}", filter.len(), hex(&filter)),
        "010176090001", // the advertiser repeats
        "010163080100010001e807d00f01d804020100",
        "010167070101050000",
        "02",
        "01610501010400010302077b2274223a317d1268747470733a2f2f622e6578616d706c652f",
        "056c6967687406000000027b7d1268747470733a2f2f612e6578616d706c652f",
        "025b5d", // no experiments
    ];
    assert_eq!(hex(&flat::encode(&flat)), golden.concat());
    assert_eq!(flat::decode(&flat::encode(&flat)).unwrap(), flat);
}

#[test]
fn s4_08_what_is_compiled_of_it_is_the_catalogue() {
    let bytes = flat::encode(&made(document()));
    let compiled = Compiled::of(flat::decode(&bytes).unwrap());
    let [first, second] = &compiled.offers[..] else { unreachable!("two ads") };
    assert_eq!((&*first.ids[0], &*second.ids[0], first.ids[3].as_ref()), ("a", "light", "v"));
    assert_eq!(
        (first.creative.as_str(), first.landing.as_str(), first.strict),
        (r#"{"t":1}"#, "https://b.example/", true)
    );
    assert_eq!((first.bounds.len(), second.bounds.len(), compiled.questions.len()), (3, 2, 2));
    assert_eq!((compiled.targets.len(), compiled.groups[0].targets.len(), compiled.groups[0].offers.len()), (1, 1, 2));
    assert_eq!((compiled.terms[0].runs.clone(), compiled.terms[0].repeats), (1_000..2_000, true));
}

#[test]
fn cut_anywhere_it_is_refused_and_another_form_is_unknown() {
    let bytes = flat::encode(&made(document()));
    for end in 0..bytes.len() {
        assert!(flat::decode(&bytes[..end]).is_err(), "{end}");
    }
    assert_eq!(flat::decode(&[&bytes[..], &[0]].concat()), Err(WireError::Malformed));
    let mut later = bytes;
    later[0] = 2;
    assert_eq!(flat::decode(&later), Err(WireError::UnknownForm));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Whatever is in it, a reader ends, and what it takes compiles.
    #[test]
    fn field_17_no_bytes_break_a_reader(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = flat::encode(&made(document()));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(flat) = flat::decode(&bytes) {
            let compiled = Compiled::of(flat);
            prop_assert!(compiled.offers.iter().all(|offer| compiled.groups[offer.group].terms == offer.terms));
        }
    }
}
