//! A catalogue's bytes on their way to the edge.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests end at the first thing that is not so")]

use bytes::Bytes;
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

fn read(bytes: &[u8]) -> Result<Flat, WireError> {
    flat::decode(&Bytes::copy_from_slice(bytes))
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
        "01025b5d",       // the form; no experiments
        "02030202010102", // hide over two days, impression over two hours
        &format!("01{:02x}{}", filter.len(), hex(&filter)),
        "03010001010105010104", // one of hide; five impressions; four
        "01010302",             // three by two
        "01017609000001",       // the advertiser repeats
        "0101630801000001e807d00f01d804020100",
        "0101670702000000",
        "02",
        "01610503000001077b2274223a317d1268747470733a2f2f622e6578616d706c652f",
        "056c696768740600000000027b7d1268747470733a2f2f612e6578616d706c652f",
    ];
    assert_eq!(hex(&flat::encode(&flat)), golden.concat());
    assert_eq!(read(&flat::encode(&flat)).unwrap(), flat);
}

fn tested() -> Value {
    let arm = |id: &str, code: u8| json!({ "id": id, "code": code, "share": 5_000 });
    let mut document = document();
    document["experiment"] = json!([
        { "id": "first", "code": 3, "starts": 0, "arm": [arm("a", 1)] },
        { "id": "second", "code": 4, "starts": 0, "arm": [arm("a", 7), arm("b", 9)] },
    ]);
    document["campaign"][0]["arm"] = json!("first/a");
    document["ad"][0]["arm"] = json!("second/b");
    document
}

#[test]
fn s4_06_an_arm_travels_as_its_experiments_place_and_its_code() {
    let (with, without) = (made(tested()), made(document()));
    let bytes = flat::encode(&with);
    assert_eq!(read(&bytes).unwrap(), with);
    assert_eq!(
        (with.campaigns[0].head.arm, with.ads[1].head.arm, with.ads[0].head.arm),
        (Some((0, 1)), Some((1, 9)), None)
    );
    // In the place of a zero the place and one, and the code.
    let experiments =
        serde_json::to_string(&with.experiments).unwrap().len() + if with.experiments.is_empty() { 0 } else { 1 };
    assert_eq!(bytes.len(), flat::encode(&without).len() - "[]".len() + experiments + 2);
    let compiled = Compiled::of(with);
    let groups: Vec<_> = compiled.groups.iter().map(|group| (group.arms.clone(), group.offers.clone())).collect();
    assert_eq!(groups, [(vec![(0, 1)], vec![0]), (vec![(0, 1), (1, 9)], vec![1])], "one ad group, two arms");
    assert_eq!(
        [vec![Some(1), Some(9)], vec![Some(1), None], vec![None, Some(9)], vec![]]
            .map(|arms| compiled.groups[1].outside(&arms)),
        [None, Some(1), Some(0), Some(0)]
    );
    let mut further = bytes;
    let at = further.windows(4).position(|four| four == [1, 1, 1, 0]).unwrap();
    further[at + 1] = 3;
    assert!(read(&further).is_err(), "a third experiment is not there");
}

#[test]
fn s4_08_what_is_compiled_of_it_is_the_catalogue() {
    let bytes = flat::encode(&made(document()));
    let compiled = Compiled::of(read(&bytes).unwrap());
    let [first, second] = &compiled.offers[..] else { unreachable!("two ads") };
    assert_eq!((&*first.ids[0], &*second.ids[0], &*first.ids[3]), ("a", "light", "v"));
    assert_eq!((&*first.creative, &*first.landing, first.strict), (r#"{"t":1}"#, "https://b.example/", true));
    assert_eq!((compiled.bounds(first).count(), compiled.bounds(second).count(), compiled.questions.len()), (3, 2, 2));
    let [group] = &compiled.groups[..] else { unreachable!("one group") };
    assert_eq!((compiled.targets.len(), group.targets, group.offers.len()), (1, [Some(0), None], 2));
    assert_eq!((compiled.terms[0].runs.clone(), compiled.terms[0].repeats), (1_000..2_000, true));
}

#[test]
fn cut_anywhere_it_is_refused_and_another_form_is_unknown() {
    let bytes = flat::encode(&made(document()));
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "{end}");
    }
    assert_eq!(read(&[&bytes[..], &[0]].concat()), Err(WireError::Malformed));
    let mut later = bytes;
    later[0] = 2;
    assert_eq!(read(&later), Err(WireError::UnknownForm));
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
        if let Ok(flat) = read(&bytes) {
            let compiled = Compiled::of(flat);
            prop_assert!(compiled.offers.iter().all(|offer| compiled.groups[offer.group].terms == offer.terms));
        }
    }
}
