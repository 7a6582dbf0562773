//! The bytes of a catalogue for the edge.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests end at the first thing that is not so")]

use causeway_shared::ads::catalogue::{Catalogue, CompiledCatalogue, FlatCatalogue};
use causeway_shared::facts::attributes::{NameDictionary, ValueKind};
use causeway_shared::settings::vocabulary::{Vocabulary, VocabularyWord};
use causeway_shared::wire::{self, WireError, flat};
use proptest::prelude::*;
use serde_json::{Value, json};

fn words() -> Vocabulary {
    let word = |name: &str, code| VocabularyWord { name: name.to_owned(), code };
    Vocabulary { action_types: vec![word("hide", 3)], view_types: vec![word("home", 1)] }
}

fn names() -> NameDictionary {
    NameDictionary::from_entries([("vip".to_owned(), ValueKind::Bool)]).unwrap()
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

fn made(document: Value) -> FlatCatalogue {
    let catalogue: Catalogue = serde_json::from_value(document).unwrap();
    assert_eq!(catalogue.problems("", &words()), []);
    catalogue.flat(&names(), &words()).unwrap()
}

fn read(bytes: &[u8]) -> Result<FlatCatalogue, WireError> {
    flat::decode_catalogue(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Made from the form's description by another encoder.
#[test]
fn a_catalogue_has_these_bytes() {
    let flat = made(document());
    // The filter has golden bytes of its own.
    let filter = wire::filter::encode_filter(&flat.filters[0]);
    let golden = [
        "a9616601617182a26176036177a2617502616902a26176016177a2617501616902617481",
        &format!("58{:02x}{}", filter.len(), hex(&filter)),
        "616c8381a2617100616d0181a2617101616d0581a2617101616d0461738181a2617703616802617681a26168a2616961\
         766163096172f5616381a86168a361696163616308616c0061760061740061731903e861651907d06162a1616319012c\
         616bf561678100616781a26168a361696167616307616c01616300616182a56168a361696161616305616c0261670061\
         73006163677b2274223a317d616c7268747470733a2f2f622e6578616d706c652fa46168a26169656c69676874616306\
         6167006163627b7d616c7268747470733a2f2f612e6578616d706c652f",
    ];
    assert_eq!(hex(&flat::encode_catalogue(&flat)), golden.concat());
    assert_eq!(read(&flat::encode_catalogue(&flat)).unwrap(), flat);
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
fn an_arm_is_encoded_as_the_index_of_its_experiment_and_its_code() {
    let (with, without) = (made(tested()), made(document()));
    let bytes = flat::encode_catalogue(&with);
    assert_eq!(read(&bytes).unwrap(), with);
    assert_eq!(
        (with.campaigns[0].head.arm, with.ads[1].head.arm, with.ads[0].head.arm),
        (Some((0, 1)), Some((1, 9)), None)
    );
    let arms = |arm: [u8; 2]| [b"\x61x\xa2\x61x", &arm[..1], b"\x61a", &arm[1..]].concat();
    let has = |bytes: &[u8], arm| bytes.windows(9).any(|part| part == arms(arm));
    assert!(has(&bytes, [0, 1]) && has(&bytes, [1, 9]) && !has(&flat::encode_catalogue(&without), [0, 1]));
    let compiled = CompiledCatalogue::of(with);
    let groups: Vec<_> = compiled.groups.iter().map(|group| (group.arms.clone(), group.offers.clone())).collect();
    assert_eq!(groups, [(vec![(0, 1)], vec![0]), (vec![(0, 1), (1, 9)], vec![1])], "one ad group, two arms");
    assert_eq!(
        [vec![Some(1), Some(9)], vec![Some(1), None], vec![None, Some(9)], vec![]]
            .map(|arms| compiled.groups[1].outside(&arms)),
        [None, Some(1), Some(0), Some(0)]
    );
    let mut further = bytes;
    let at = further.windows(9).position(|part| part == arms([1, 9])).unwrap();
    further[at + 5] = 2;
    assert_eq!(read(&further), Err(WireError::Range), "a third experiment is not there");
}

#[test]
fn a_decoded_catalogue_compiles_to_the_same_ads_and_targeting() {
    let bytes = flat::encode_catalogue(&made(document()));
    let compiled = CompiledCatalogue::of(read(&bytes).unwrap());
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
    let bytes = flat::encode_catalogue(&made(document()));
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "{end}");
    }
    assert_eq!(read(&[&bytes[..], &[0]].concat()), Err(WireError::Malformed));
    let mut later = bytes;
    assert_eq!(later[1..4], *b"\x61f\x01");
    later[3] = 2;
    assert_eq!(read(&later), Err(WireError::UnknownForm));
    later[3] = 1;
    later[0] += 1;
    assert_eq!(
        read(&[&later[..], b"\x61z\x01"].concat()),
        Err(WireError::Malformed),
        "what limits ads is not passed over"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// For any bytes, the reader ends, and an accepted catalogue compiles.
    #[test]
    fn no_bytes_break_a_reader(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = flat::encode_catalogue(&made(document()));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(flat) = read(&bytes) {
            let compiled = CompiledCatalogue::of(flat);
            prop_assert!(compiled.offers.iter().all(|offer| compiled.groups[offer.group].terms == offer.terms));
        }
    }
}
