//! Attributes: laws of the map, values, packed forms and the dictionary, compared with naive models.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{NOW, law, scramble, version, visitor};
use causeway_shared::base::ids::FactId;
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::{
    AttributeError, AttributeMap, AttributeValue, DictionaryError, FiniteNumber, ForgottenName, NameDictionary,
    NameToken, PackedAttributes, ValueError, ValueKind, decode_page, encode_page, name_is_good,
};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::WriteStamp;
use causeway_shared::profiles::profile::Profile;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use serde_json::json;

type Write = (NameToken, WriteStamp, Option<AttributeValue>);

const KINDS: [ValueKind; 6] =
    [ValueKind::Bool, ValueKind::Integer, ValueKind::Float, ValueKind::String, ValueKind::Date, ValueKind::Strings];

fn float(number: f64) -> AttributeValue {
    AttributeValue::Float(FiniteNumber::new(number).unwrap())
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::String(text.to_owned())
}

fn strings(all: &[&str]) -> AttributeValue {
    AttributeValue::Strings(all.iter().map(|text| (*text).to_owned()).collect())
}

/// Any value within its bounds.
fn value() -> impl Strategy<Value = AttributeValue> {
    let short = || "[a-c]{0,2}|\\PC{0,20}";
    prop_oneof![
        any::<bool>().prop_map(AttributeValue::Bool),
        prop_oneof![any::<i64>(), -2i64..2].prop_map(AttributeValue::Integer),
        any::<f64>().prop_filter_map("finite", FiniteNumber::new).prop_map(AttributeValue::Float),
        (-3i32..3).prop_map(|n| float(f64::from(n) / 2.0)),
        short().prop_map(AttributeValue::String),
        limits::DATE_DAYS.prop_map(AttributeValue::Date),
        btree_set(short(), 0..5).prop_map(AttributeValue::Strings),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    let value = prop_oneof![4 => value().prop_map(Some), 1 => Just(None)];
    // Few tokens and stamps, so that writes collide, even under one stamp.
    (0u16..12, 0u64..8, 0u64..2, value)
        .prop_map(|(token, at, order, value)| (NameToken(token * 301), WriteStamp { at: NOW + at, order }, value))
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    vec(write(), 0..30)
}

fn map(writes: &[Write]) -> AttributeMap {
    let mut map = AttributeMap::default();
    writes.iter().cloned().for_each(|(token, stamp, value)| map.write(token, stamp, value));
    map
}

/// The greatest write per attribute; of these the writes stored by a map, which are the last ones.
fn naive(writes: &[Write]) -> BTreeMap<NameToken, (WriteStamp, Option<AttributeValue>)> {
    let mut all: BTreeMap<NameToken, Vec<(WriteStamp, Option<AttributeValue>)>> = BTreeMap::new();
    writes.iter().cloned().for_each(|(token, stamp, value)| all.entry(token).or_default().push((stamp, value)));
    let greatest = all.into_iter().map(|(token, writes)| (token, writes.into_iter().max().unwrap()));
    let mut newest: Vec<_> = greatest.collect();
    newest.sort_by_key(|(token, (stamp, _))| std::cmp::Reverse((*stamp, *token)));
    newest.into_iter().take(limits::ATTRIBUTES).collect()
}

fn held(writes: &[Write]) -> BTreeMap<NameToken, AttributeValue> {
    naive(writes).into_iter().filter_map(|(token, (_, value))| Some((token, value?))).collect()
}

fn held_of(map: &AttributeMap) -> BTreeMap<NameToken, AttributeValue> {
    map.iter().map(|(token, value)| (token, value.clone())).collect()
}

/// Random writes from a seed, possibly more than a map stores.
fn many(seed: u64, count: u64) -> Vec<Write> {
    (0..count)
        .map(|n| {
            let bits = scramble(seed ^ scramble(n));
            let value = (!bits.is_multiple_of(5)).then_some(AttributeValue::Bool(bits & 1 == 0));
            let token = u16::try_from((bits >> 8) % 400).unwrap();
            (NameToken(token), WriteStamp { at: NOW + (bits >> 32) % 64, order: 1 }, value)
        })
        .collect()
}

fn shuffled(writes: &[Write], seed: u64) -> Vec<Write> {
    let mut all: Vec<(u64, Write)> =
        (0..).zip(writes).map(|(n, write)| (scramble(seed ^ scramble(n)), write.clone())).collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, write)| write).collect()
}

/// Reading never panics and accepts only canonical bytes as a map.
fn refused_or_canonical(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Some(read) = PackedAttributes::read(bytes) else { return Ok(()) };
    let seen: Vec<(NameToken, AttributeValue)> = read.iter().collect();
    prop_assert!(seen.len() <= limits::ATTRIBUTES && seen.is_sorted_by(|(a, _), (b, _)| a < b));
    for (token, value) in &seen {
        prop_assert_eq!(value.check(), Ok(()));
        prop_assert_eq!(read.get(*token), Some(value.clone()));
    }
    if let Some(map) = read.to_map() {
        prop_assert_eq!(map.pack(), bytes);
        prop_assert_eq!(held_of(&map), seen.into_iter().collect());
    }
    Ok(())
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn join_of_attributes_is_commutative_associative_idempotent(a in writes(), b in writes(), c in writes()) {
        let [a, b, c] = [map(&a), map(&b), map(&c)];
        prop_assert_eq!(a.clone().join(b.clone()), b.clone().join(a.clone()));
        prop_assert_eq!(a.clone().join(b.clone()).join(c.clone()), a.clone().join(b.join(c)));
        prop_assert_eq!(a.clone().join(a.clone()), a);
    }

    #[test]
    fn the_last_writer_wins_in_any_order_and_batch(all in writes(), seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let mixed = shuffled(&all, seed);
        let (first, second) = mixed.split_at(cut.index(mixed.len() + 1));
        let joined = map(first).join(map(second));
        prop_assert_eq!(&joined, &map(&all));
        prop_assert_eq!(held_of(&joined), held(&all));
        for (token, (_, value)) in naive(&all) {
            prop_assert_eq!(joined.get(token), value.as_ref());
        }
        prop_assert_eq!(joined.is_empty(), all.is_empty());
    }

    #[test]
    fn only_those_written_last_are_kept_and_leaving_out_commutes_with_the_join(seed in any::<u64>(), count in 0u64..700, cut in any::<prop::sample::Index>()) {
        let all = many(seed, count);
        let mixed = shuffled(&all, !seed);
        let (first, second) = mixed.split_at(cut.index(mixed.len() + 1));
        let at_once = map(&all);
        prop_assert_eq!(held_of(&at_once), held(&all));
        prop_assert_eq!(&map(first).join(map(second)), &at_once);
        prop_assert_eq!(&map(second).join(map(first)), &at_once);
        prop_assert_eq!(PackedAttributes::read(&at_once.pack()).unwrap().to_map(), Some(at_once));
    }

    #[test]
    fn a_packed_map_reads_back_and_equal_maps_pack_to_equal_bytes(all in writes(), seed in any::<u64>()) {
        let map_of_all = map(&all);
        let bytes = map_of_all.pack();
        prop_assert_eq!(&map(&shuffled(&all, seed)).pack(), &bytes);
        let read = PackedAttributes::read(&bytes).unwrap();
        prop_assert_eq!(read.to_map().unwrap(), map_of_all);
        prop_assert_eq!(read.iter().collect::<BTreeMap<_, _>>(), held(&all));
        for token in (0..14).map(|n| NameToken(n * 301)).chain([NameToken(1), NameToken(u16::MAX)]) {
            prop_assert_eq!(read.get(token), held(&all).get(&token).cloned());
        }
    }

    #[test]
    fn bytes_that_are_not_ours_are_refused_or_canonical(all in writes(), flip in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(), noise in vec(any::<u8>(), 0..60)) {
        let bytes = map(&all).pack();
        refused_or_canonical(&noise)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut flipped = bytes.clone();
        flipped[flip.index(bytes.len())] ^= 1 << bit;
        refused_or_canonical(&flipped)?;
        let short = &bytes[..cut.index(bytes.len())];
        refused_or_canonical(short)?;
        prop_assert!(short.is_empty() || PackedAttributes::read(short).and_then(|read| read.to_map()).is_none());
        let long = [&bytes[..], &[0]].concat();
        prop_assert!(PackedAttributes::read(&long).and_then(|read| read.to_map()).is_none());
    }

    #[test]
    fn a_value_survives_json_and_packed_bytes(value in value(), flip in any::<prop::sample::Index>(), bit in 0u8..8) {
        let again = AttributeValue::from_json(&value.to_json()).unwrap().fit(value.kind());
        prop_assert_eq!(again.as_ref(), Ok(&value));
        let bytes = value.pack();
        prop_assert_eq!(AttributeValue::read(&bytes), Some(value));
        let mut flipped = bytes.clone();
        flipped[flip.index(bytes.len())] ^= 1 << bit;
        for bytes in [&flipped[..], &bytes[..flip.index(bytes.len())]] {
            if let Some(value) = AttributeValue::read(bytes) {
                prop_assert_eq!((value.check(), &value.pack()[..]), (Ok(()), bytes));
            }
        }
    }

    #[test]
    fn a_snapshot_holds_the_newest_attributes_that_fit(writes in writes(), seed in any::<u64>(), bytes in 0usize..400) {
        for map in [map(&writes), map(&many(seed, 300))] {
            let none = BTreeSet::new();
            let reduced = map.trim_to_bytes(bytes, &none);
            prop_assert_eq!(reduced.is_none(), map.pack().len() <= bytes);
            let reduced = reduced.unwrap_or_else(|| map.clone());
            prop_assert!(reduced.pack().len() <= bytes);
            prop_assert_eq!(reduced.join(map.clone()), map.clone());
            // The newest attribute is stored if a map of it alone would certainly fit.
            let mut more = map.clone();
            more.write(NameToken(5), stamp(1_000), Some(AttributeValue::Bool(true)));
            let reduced = more.trim_to_bytes(bytes, &none).unwrap_or(more);
            prop_assert!(bytes < 60 || reduced.get(NameToken(5)).is_some());
        }
    }

    #[test]
    fn what_filters_name_stays_before_newer_attributes_and_its_absence_is_said(seed in any::<u64>(), bytes in 100usize..400) {
        let mut map = map(&many(seed, 300));
        map.write(NameToken(5), stamp(1), Some(AttributeValue::Bool(true)));
        let first = BTreeSet::from([NameToken(5), NameToken(60_000)]);
        let Some(reduced) = map.trim_to_bytes(bytes, &first) else { return Ok(()) };
        prop_assert!(reduced.pack().len() <= bytes);
        prop_assert_eq!(reduced.get(NameToken(5)), map.get(NameToken(5)));
        prop_assert!(reduced.writes().any(|(token, _, value)| token == NameToken(60_000) && value.is_none()));
        prop_assert_eq!(PackedAttributes::read(&reduced.pack()).unwrap().to_map(), Some(reduced));
    }

    #[test]
    fn a_date_equals_a_naive_count_of_days_from_year_one(days in limits::DATE_DAYS) {
        let AttributeValue::String(text) = AttributeValue::Date(days).fit(ValueKind::String).unwrap() else { unreachable!() };
        prop_assert_eq!(AttributeValue::String(text.clone()).fit(ValueKind::Date), Ok(AttributeValue::Date(days)));
        let (year, month, day): (i32, usize, i32) =
            (text[..4].parse().unwrap(), text[5..7].parse().unwrap(), text[8..].parse().unwrap());
        let leap = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let months = [31, 28 + i32::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let of_years: i32 = (1..year).map(|year| 365 + i32::from(leap(year))).sum();
        let counted = of_years + months[..month - 1].iter().sum::<i32>() + day - 1;
        prop_assert_eq!(counted + limits::DATE_DAYS.start(), days);
        prop_assert!((1..=months[month - 1]).contains(&day));
    }

    #[test]
    fn a_dictionary_equals_the_naive_model(all in vec(("[a-d$]{0,2}", value()), 0..40)) {
        let mut dictionary = NameDictionary::default();
        let mut model: Vec<(String, ValueKind)> = Vec::new();
        for (name, value) in all {
            let before = dictionary.clone();
            let checked = dictionary.check(&name, &value);
            let accepted = dictionary.accept(&name, value.clone());
            prop_assert_eq!(checked.err(), accepted.clone().err());
            let there = model.iter().position(|(known, _)| *known == name);
            let expected = match there {
                Some(place) => {
                    let (kind, found) = (model[place].1, value.kind());
                    let mismatch = |value| match (value, kind) {
                        (AttributeValue::Integer(_), ValueKind::Float) => AttributeError::Inexact { name: name.clone() },
                        _ => AttributeError::Type { name: name.clone(), expected: kind, found },
                    };
                    value.fit(kind).map(|value| (place, value)).map_err(mismatch)
                }
                None if name.is_empty() || name.contains('$') => Err(DictionaryError::BadName.into()),
                None => match value.clone().fit(value.first_kind()) {
                    Ok(value) => {
                        model.push((name, value.kind()));
                        Ok((model.len() - 1, value))
                    }
                    Err(_) => Err(AttributeError::Inexact { name: name.clone() }),
                },
            };
            prop_assert!(accepted.is_ok() || dictionary == before, "a refusal records nothing");
            prop_assert_eq!(accepted.map(|(token, value)| (usize::from(token.0), value)), expected);
        }
        prop_assert_eq!(NameDictionary::from_entries(model.clone()), Some(dictionary.clone()));
        prop_assert_eq!(dictionary.page(0), &model[..]);
        for (place, (name, kind)) in (0u16..).zip(&model) {
            prop_assert_eq!(dictionary.get(NameToken(place)), Some((name.as_str(), *kind)));
            prop_assert_eq!(dictionary.find(name), Some((NameToken(place), *kind)));
        }
    }

    #[test]
    fn a_page_of_names_reads_back_and_damaged_bytes_are_refused(names in btree_set("[a-z][a-z0-9_.]{0,9}", 0..12), seed in any::<u64>(), flip in any::<prop::sample::Index>(), bit in 0u8..8, noise in vec(any::<u8>(), 0..40)) {
        let mut page: Vec<(String, ValueKind)> =
            (0..).zip(names).map(|(n, name)| (name, KINDS[usize::try_from(scramble(seed ^ n) % 6).unwrap()])).collect();
        page.sort_by_key(|(name, _)| scramble(seed ^ u64::from(name.as_bytes()[0])));
        let bytes = encode_page(&page);
        prop_assert_eq!(decode_page(&bytes), Some(page));
        prop_assert_eq!(decode_page(&bytes[..flip.index(bytes.len())]), None);
        prop_assert_eq!(decode_page(&[&bytes[..], &[0]].concat()), None);
        let mut flipped = bytes.clone();
        flipped[flip.index(bytes.len())] ^= 1 << bit;
        for bytes in [flipped, noise] {
            if let Some(page) = decode_page(&bytes) {
                prop_assert_eq!(encode_page(&page), bytes);
                prop_assert_eq!(NameDictionary::from_entries(page.clone()).map(|all| all.len()), Some(page.len()));
            }
        }
    }
}

fn stamp(at: u64) -> WriteStamp {
    WriteStamp { at: NOW + at, order: 1 }
}

#[test]
fn attribute_values_have_their_json_types() {
    let cases = [
        (json!(true), AttributeValue::Bool(true)),
        (json!(0), AttributeValue::Integer(0)),
        (json!(i64::MIN), AttributeValue::Integer(i64::MIN)),
        (json!(i64::MAX), AttributeValue::Integer(i64::MAX)),
        (json!(2.0), float(2.0)),
        (json!(-0.0), float(0.0)),
        (json!(-1.5e300), float(-1.5e300)),
        (json!(""), text("")),
        (json!("2026-10-16"), text("2026-10-16")),
        (json!("x".repeat(limits::ATTRIBUTE_BYTES)), text(&"x".repeat(limits::ATTRIBUTE_BYTES))),
        (json!([]), strings(&[])),
        (json!(["b", "a", "b"]), strings(&["a", "b"])),
        (json!(["2026-10-16"]), strings(&["2026-10-16"])),
    ];
    for (json, value) in cases {
        assert_eq!(AttributeValue::from_json(&json), Ok(value), "{json}");
    }
    assert_eq!(strings(&["b", "a"]).to_json(), json!(["a", "b"]));
    assert_eq!(AttributeValue::Date(0).to_json(), json!("1970-01-01"));
    assert_eq!(float(-0.0).to_json().to_string(), "0");
    assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(FiniteNumber::new), [None; 3]);
    assert!(float(-1.0) < float(-0.5) && float(-0.5) < float(0.0) && float(0.0) < float(1e-300));
}

#[test]
fn a_whole_number_that_is_not_kept_exactly_is_refused_however_long_it_is() {
    let digits = "123456789012345678901234567890";
    for text in ["9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775809", digits]
    {
        assert_eq!(AttributeValue::from_text(text).unwrap(), Err(ValueError::Inexact), "{text}");
        assert_eq!(AttributeValue::from_text(&format!(" {text}\n")).unwrap(), Err(ValueError::Inexact), "{text}");
    }
    for (text, value) in [
        ("9223372036854775807", AttributeValue::Integer(i64::MAX)),
        ("-0", float(0.0)),
        ("1e30", float(1e30)),
        ("12.5", float(12.5)),
        ("\"18446744073709551615\"", AttributeValue::String("18446744073709551615".to_owned())),
    ] {
        assert_eq!(AttributeValue::from_text(text).unwrap(), Ok(value), "{text}");
    }
    assert!(AttributeValue::from_text("00").is_err());
    // A stored text becomes the nearest number if its attribute is retyped to numbers.
    assert_eq!(AttributeValue::String(digits.to_owned()).convert(ValueKind::Float), Some(float(1.2345678901234568e29)));
}

#[test]
fn an_invalid_value_is_refused_and_the_error_names_the_valid_form() {
    let long = "x".repeat(limits::ATTRIBUTE_BYTES + 1);
    let many = vec!["x"; limits::ATTRIBUTE_STRINGS + 1];
    let needed = "was given: a bool, a number, a string or an array of strings is needed";
    let cases = [
        (json!(null), "malformed", format!("null {needed}")),
        (json!({"a": 1}), "malformed", format!("an object {needed}")),
        (json!(["a", 1]), "malformed", format!("an array of more than strings {needed}")),
        (json!([["a"]]), "malformed", format!("an array of more than strings {needed}")),
        (json!(long), "too_long", "a string of 257 bytes was given: at most 256 are allowed".to_owned()),
        (json!(["a", long]), "too_long", "a string of 257 bytes was given: at most 256 are allowed".to_owned()),
        (
            json!(9_223_372_036_854_775_808_u64),
            "out_of_bounds",
            "a whole number outside of 64 bits was given: it is not stored exactly, send it as a string".to_owned(),
        ),
        (json!(many), "out_of_bounds", "33 strings were given: at most 32 are allowed".to_owned()),
    ];
    for (json, code, message) in cases {
        let error = AttributeValue::from_json(&json).unwrap_err();
        assert_eq!((error.code(), error.to_string()), (code, message), "{json}");
    }
    let beyond = ValueError::Date(limits::DATE_DAYS.end() + 1);
    assert_eq!(AttributeValue::Date(limits::DATE_DAYS.end() + 1).check(), Err(beyond));
    assert_eq!(beyond.code(), "out_of_bounds");
}

#[test]
fn only_calendar_days_are_dates() {
    let days = [
        ("0001-01-01", -719_162),
        ("1900-03-01", -25_508),
        ("1969-12-31", -1),
        ("1970-01-01", 0),
        ("2000-02-29", 11_016),
        ("2024-02-29", 19_782),
        ("9999-12-31", 2_932_896),
    ];
    for (date, days) in days {
        assert_eq!(text(date).fit(ValueKind::Date), Ok(AttributeValue::Date(days)));
        assert_eq!(AttributeValue::Date(days).to_json(), json!(date));
    }
    let none = "0000-12-31 1900-02-29 2023-02-29 2024-02-30 2024-04-31 2024-00-10 2024-13-01 2024-01-00 2024-01-32 \
                2024-1-01 +024-01-01 20240-1-01 2024/01/01 2024-01-01T 2024-01-0x ２024-01-1";
    for date in none.split(' ') {
        assert_eq!(text(date).fit(ValueKind::Date), Err(text(date)));
    }
}

#[test]
fn a_text_of_the_form_of_a_date_is_a_date_only_where_the_attribute_is_declared_as_one() {
    let mut dictionary = NameDictionary::default();
    dictionary.record("born", ValueKind::Date).unwrap();
    let given = AttributeValue::from_json(&json!("2026-01-01")).unwrap();
    assert_eq!(dictionary.accept("coupon", given.clone()), Ok((NameToken(1), text("2026-01-01"))));
    assert_eq!(dictionary.accept("coupon", text("SPRING")), Ok((NameToken(1), text("SPRING"))));
    assert_eq!(dictionary.accept("born", given), Ok((NameToken(0), AttributeValue::Date(20_454))));
}

#[test]
fn numbers_are_one_kind_whichever_comes_first() {
    for first in [json!(20), json!(20.0), json!(19.99)] {
        let mut dictionary = NameDictionary::default();
        for number in [first, json!(42.0), json!(42), json!(19.99)] {
            let (_, taken) = dictionary.accept("price", AttributeValue::from_json(&number).unwrap()).unwrap();
            assert_eq!((taken.kind(), taken.to_json().as_f64()), (ValueKind::Float, number.as_f64()));
        }
    }
    assert_eq!([float(42.0).to_json(), float(0.5).to_json()], [json!(42), json!(0.5)]);
    assert_eq!(float(42.0).fit(ValueKind::Integer), Ok(AttributeValue::Integer(42)), "where it is declared as one");
    let over = NameDictionary::default().accept("id", AttributeValue::Integer((1 << 53) + 1)).unwrap_err();
    assert_eq!(
        over.to_string(),
        "attribute `id` is a float: a whole number above 2^53 is not stored exactly, send it as a string"
    );
}

#[test]
fn a_change_of_kind_keeps_what_the_new_kind_can_say() {
    let made = |value: AttributeValue| KINDS.map(|kind| value.clone().convert(kind).map(|value| value.to_json()));
    let [none, yes, five] = [None, Some(json!(true)), Some(json!(5))];
    assert_eq!(
        made(AttributeValue::Integer(5)),
        [&none, &five, &five, &Some(json!("5")), &none, &none].map(Clone::clone)
    );
    assert_eq!(made(text(" 5.0 "))[1..3], [five.clone(), five]);
    assert_eq!(made(text("true"))[0], yes);
    assert_eq!(made(text("2026-01-01"))[4], Some(json!("2026-01-01")));
    assert_eq!(made(text("a"))[5], Some(json!(["a"])));
    assert_eq!(made(strings(&["a"]))[3], Some(json!("a")));
    assert_eq!(made(strings(&["a", "b"]))[3], none);
    assert_eq!(made(float(0.5))[1], none);
    assert_eq!(AttributeValue::Integer((1 << 53) + 1).convert(ValueKind::Float), Some(float(9_007_199_254_740_992.0)));
}

#[test]
fn a_value_fits_its_own_type_and_compatible_types() {
    let exact = 1_i64 << 53;
    let values = [
        AttributeValue::Bool(true),
        AttributeValue::Integer(-exact),
        float(1.0),
        text("a"),
        AttributeValue::Date(19_782),
        strings(&["a"]),
    ];
    for value in &values {
        for kind in KINDS {
            let expected = match (value, kind) {
                (AttributeValue::Integer(_), ValueKind::Float) => Ok(float(-9_007_199_254_740_992.0)),
                (AttributeValue::Float(_), ValueKind::Integer) => Ok(AttributeValue::Integer(1)),
                (AttributeValue::Date(_), ValueKind::String) => Ok(text("2024-02-29")),
                _ if value.kind() == kind => Ok(value.clone()),
                _ => Err(value.clone()),
            };
            assert_eq!(value.clone().fit(kind), expected, "{value:?} as {kind:?}");
        }
    }
    assert_eq!(AttributeValue::Integer(exact + 1).fit(ValueKind::Float), Err(AttributeValue::Integer(exact + 1)));
    assert_eq!(AttributeValue::Integer(i64::MIN).fit(ValueKind::Float), Err(AttributeValue::Integer(i64::MIN)));
}

#[test]
fn a_type_mismatch_names_the_type_and_the_other_attributes_are_accepted() {
    let mut dictionary = NameDictionary::default();
    assert_eq!(dictionary.accept("age", AttributeValue::Integer(40)), Ok((NameToken(0), float(40.0))));
    let given = [("age", json!("forty")), ("9 ages", json!(1)), ("size", json!(41.5)), ("size", json!(42))];
    let taken = given.map(|(name, json)| dictionary.accept(name, AttributeValue::from_json(&json).unwrap()));
    let [mismatch, bad, first, second] = taken;
    let (mismatch, bad) = (mismatch.unwrap_err(), bad.unwrap_err());
    assert_eq!(mismatch.to_string(), "attribute `age` is a float, a string was given");
    assert_eq!(
        bad.to_string(),
        "an attribute's name has 1 to 64 of A-Z, a-z, 0-9, _, - and ., and begins with a letter or _"
    );
    assert_eq!((mismatch.code(), bad.code()), ("type_mismatch", "bad_name"));
    assert_eq!((first, second), (Ok((NameToken(1), float(41.5))), Ok((NameToken(1), float(42.0)))));
    assert_eq!(dictionary.get(NameToken(0)), Some(("age", ValueKind::Float)));
    assert_eq!(dictionary.record("age", ValueKind::Date), Ok(NameToken(0)), "its kind stays");
    assert_eq!(dictionary.find("age"), Some((NameToken(0), ValueKind::Float)));
}

#[test]
fn names_and_codes_have_one_form() {
    let long = "n".repeat(limits::ATTRIBUTE_NAME_BYTES);
    for good in ["a", "shoe_size", "crm.loyalty.tier_2", "a..", "A", "favouriteColour", "_id", "a-b", &long] {
        assert!(name_is_good(good), "{good}");
    }
    for bad in ["", "1a", "-a", ".a", "a b", "a$", "ä", "aä", &format!("{long}n")] {
        assert!(!name_is_good(bad), "{bad}");
    }
    assert_eq!(KINDS.map(ValueKind::name), ["bool", "integer", "float", "string", "date", "strings"]);
    assert_eq!(KINDS.map(ValueKind::code), [1, 2, 3, 4, 5, 6]);
    assert_eq!(KINDS.map(|kind| ValueKind::from_code(kind.code())), KINDS.map(Some));
    assert_eq!([0, 7, 255].map(ValueKind::from_code), [None; 3]);
}

#[test]
fn the_list_of_names_is_bounded_and_published_in_pages() {
    let entries = || (0..limits::ATTRIBUTE_NAMES).map(|n| (format!("name_{n}"), KINDS[n % 6]));
    let mut full = NameDictionary::from_entries(entries()).unwrap();
    let error = full.accept("one_more", AttributeValue::Bool(true)).unwrap_err();
    assert_eq!(error.to_string(), "the tenant already has 10000 attribute names: no new name is accepted");
    assert_eq!((error.code(), full.check("one_more", &AttributeValue::Bool(true))), ("too_many_names", Err(error)));
    assert_eq!(
        full.accept("name_0", AttributeValue::Bool(true)),
        Ok((NameToken(0), AttributeValue::Bool(true))),
        "known ones still are"
    );
    assert_eq!((full.len(), full.pages()), (limits::ATTRIBUTE_NAMES, 10));
    let pages = (0..full.pages()).map(|n| decode_page(&encode_page(full.page(n))).unwrap());
    assert_eq!(NameDictionary::from_entries(pages.flatten()), Some(full.clone()));
    assert!(full.page(10).is_empty() && full.get(NameToken(10_000)).is_none());
    assert_eq!(NameDictionary::from_entries(entries().chain([("one_more".to_owned(), ValueKind::Bool)])), None);
    let of = |names: [&str; 2]| NameDictionary::from_entries(names.map(|name| (name.to_owned(), ValueKind::Bool)));
    assert!(of(["a", "b"]).is_some() && of(["a", "a"]).is_none() && of(["a", "-b"]).is_none());
    let over: Vec<_> = entries().take(limits::ATTRIBUTE_PAGE + 1).collect();
    assert_eq!(decode_page(&encode_page(&over)), None);
    assert_eq!(
        (NameDictionary::default().pages(), NameDictionary::default().is_empty(), full.is_empty()),
        (0, true, false)
    );
}

#[test]
fn a_value_over_a_bound_is_not_written_and_not_read() {
    let over: Vec<String> = (0..=limits::ATTRIBUTE_STRINGS).map(|n| format!("{n:02}")).collect();
    let over: Vec<&str> = over.iter().map(String::as_str).collect();
    let long = "x".repeat(limits::ATTRIBUTE_BYTES + 1);
    let beyond =
        [limits::DATE_DAYS.start() - 1, limits::DATE_DAYS.end() + 1, i32::MIN, i32::MAX].map(AttributeValue::Date);
    for bad in [text(&long), strings(&[&long]), strings(&over)].into_iter().chain(beyond) {
        assert!(bad.check().is_err() && AttributeValue::read(&bad.pack()).is_none(), "{bad:?}");
        let mut map = map(&[(NameToken(1), stamp(0), Some(AttributeValue::Bool(true)))]);
        map.write(NameToken(1), stamp(1), Some(bad));
        assert_eq!(map.get(NameToken(1)), Some(&AttributeValue::Bool(true)));
    }
    let full = strings(&over[1..]);
    assert_eq!(AttributeValue::read(&full.pack()), Some(full));
}

#[test]
fn the_attributes_of_a_visitor_displace_nothing_else_in_a_snapshot() {
    let long = || text(&"x".repeat(limits::ATTRIBUTE_BYTES));
    let tags: Vec<String> = (10..10 + limits::ATTRIBUTE_STRINGS).map(|n| format!("{n}{}", "x".repeat(254))).collect();
    let most = strings(&tags.iter().map(String::as_str).collect::<Vec<_>>());
    let mut writes: Vec<Write> = (0..255).map(|n| (NameToken(n), stamp(u64::from(n)), Some(long()))).collect();
    writes.push((NameToken(255), stamp(255), Some(most)));
    let mut profile = Profile::default();
    for (token, at, value) in &writes {
        let what = FactKind::Attributes { writes: Vec::new() };
        let id = FactId::from_bytes([0; 16]);
        let fact = Fact { position: 1, id, visitor: visitor(1), received: at.at, at: at.at, what };
        profile.assign(&fact, [(*token, value.clone())]);
    }
    assert_eq!(profile.attributes(), &map(&writes));
    let sub = profile.sub_profile(version(1), false);
    let reduced: Vec<NameToken> = sub.attributes().unwrap().iter().map(|(token, _)| token).collect();
    // The value that is too long is left out, and the newest of the others fill the room: 29 of 256 bytes each.
    assert_eq!(reduced, (226..255).map(NameToken).collect::<Vec<_>>());
    assert!(sub.packed().len() <= limits::SNAPSHOT_ATTRIBUTES + 64);
}

#[test]
fn packed_bytes_have_one_form() {
    let one = map(&[(NameToken(5), stamp(0), Some(AttributeValue::Bool(true)))]);
    assert_eq!(one.pack(), [1, 4, 5, 2, 1, 1, 1, 0x80, 0xa0, 0xf1, 0xc2, 0xb1, 0x34, 1]);
    assert_eq!(AttributeMap::default().pack(), [0u8; 0]);
    let empty = PackedAttributes::read(&[]).unwrap();
    assert_eq!((empty.to_map(), empty.get(NameToken(0))), (Some(AttributeMap::default()), None));
    let to_map = |bytes: &[u8]| PackedAttributes::read(bytes).and_then(|read| read.to_map());
    // Two booleans, written at times 1 and 2.
    assert!(to_map(&[2, 8, 0, 2, 1, 1, 0, 2, 1, 0, 2, 1, 0, 1, 0, 0, 1]).is_some());
    let bad: [&[u8]; 7] = [
        &[0, 0],
        &[2, 8, 0, 2, 1, 1, 0, 2, 1, 0, 2, 1, 0, 0, 0, 0, 1],
        &[2, 8, 0, 2, 1, 1, 0, 2, 1, 0, 2, 1, 0, 1, 0, 0, 0],
        &[2, 8, 0, 2, 1, 1, 0, 2, 1, 0, 2, 1, 0, 1, 0, 0, 2],
        &[2, 8, 0, 2, 1, 1, 0, 2, 1, 2, 2, 1, 0, 1, 0, 0, 1],
        &[1, 6, 0xff, 0xff, 0x03, 2, 1, 1, 1, 0, 0, 0],
        &[1, 6, 0x80, 0x80, 0x04, 2, 1, 1, 1, 0, 0],
    ];
    for bytes in bad {
        assert!(to_map(bytes).is_none(), "{bytes:?}");
    }
    assert!(to_map(&[1, 6, 0xff, 0xff, 0x03, 2, 1, 1, 1, 0, 0]).is_some(), "the last token");
    let values: [&[u8]; 8] = [
        &[],
        &[0],
        &[7, 1],
        &[1, 2],
        &[3, 0x80, 0, 0, 0, 0, 0, 0, 0],
        &[3, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0],
        &[4, 0xff],
        &[6, 1, b'b', 1, b'a'],
    ];
    assert_eq!(values.map(AttributeValue::read), [const { None }; 8]);
}

#[test]
fn a_few_attributes_written_at_once_take_few_bytes() {
    let values = [
        AttributeValue::Bool(true),
        AttributeValue::Integer(42),
        text("gold"),
        AttributeValue::Date(20_742),
        strings(&["run", "trail"]),
    ];
    let writes: Vec<Write> = (0..).zip(values).map(|(n, value)| (NameToken(n * 20), stamp(0), Some(value))).collect();
    assert_eq!(map(&writes).pack().len(), 44);
}

#[test]
fn a_new_name_gets_a_free_token_and_names_in_other_states_are_nobodys() {
    let (leaving, resting) =
        (ForgottenName::Leaving.name(NameToken(0)), ForgottenName::Resting(NOW).name(NameToken(1)));
    let free = ForgottenName::Free.name(NameToken(2));
    let entries = [leaving.clone(), resting, "city".to_owned(), free].map(|name| (name, ValueKind::String));
    assert_eq!(
        NameDictionary::from_entries(entries.iter().cloned().chain([("city".to_owned(), ValueKind::Bool)])),
        None
    );
    let mut names = NameDictionary::from_entries(entries.clone()).unwrap();
    assert_eq!((names.len(), names.used(), names.find(&leaving)), (4, 3, None));
    assert_eq!(names.accept("vip", AttributeValue::Bool(true)).unwrap(), (NameToken(3), AttributeValue::Bool(true)));
    assert_eq!(names.accept("age", AttributeValue::Bool(true)).unwrap().0, NameToken(4));
    assert_eq!((names.used(), names.get(NameToken(3))), (5, Some(("vip", ValueKind::Bool))));
    for reserved in [leaving.as_str(), "_forgotten.free.9", "_retired.0.age"] {
        let refused = AttributeError::Name(DictionaryError::BadName);
        assert_eq!(names.check(reserved, &text("x")), Err(refused.clone()), "{reserved}");
        assert_eq!(names.accept(reserved, text("x")), Err(refused), "{reserved}");
    }
    // A retired name can be found, so that its values can be removed, but accepts no new value.
    let retired = NameDictionary::from_entries([("_retired.0.age".to_owned(), ValueKind::Bool)]).unwrap();
    assert!(
        retired.find("_retired.0.age").is_some()
            && retired.check("_retired.0.age", &AttributeValue::Bool(true)).is_err()
    );
}

#[test]
fn a_full_map_without_a_token_still_says_that_writes_may_have_been_left_out() {
    let stamp = |at| WriteStamp { at: NOW + at, order: 1 };
    let map = |tokens: u16| {
        let mut map = AttributeMap::default();
        (0..tokens)
            .for_each(|token| map.write(NameToken(token), stamp(token.into()), Some(AttributeValue::Bool(true))));
        map
    };
    let gone = BTreeSet::from([NameToken(3), NameToken(4)]);
    let few = map(6).without(&gone).unwrap();
    assert_eq!((few.writes().count(), few.written(NameToken(3)), few.without(&gone)), (4, None, None));
    let full = map(u16::try_from(limits::ATTRIBUTES).unwrap()).without(&gone).unwrap();
    assert!(full.is_full() && full.get(NameToken(3)).is_none() && full.get(NameToken(5)).is_some());
    assert_eq!(full.without(&gone), None, "nothing more of them goes");
    let mut again = full.clone();
    again.write(NameToken(3), stamp(0), Some(AttributeValue::Bool(false)));
    assert_eq!(again.get(NameToken(3)), Some(&AttributeValue::Bool(false)), "any write is newer than the removal");
    assert_eq!(map(3).without(&gone), None);
}
