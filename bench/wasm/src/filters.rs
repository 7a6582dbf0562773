//! Ten thousand different filters, and a person with a thousand segments to match them against.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use causeway_shared::facts::actions::ViewType;
use causeway_shared::facts::attributes::{AttributeValue, NameDictionary, NameToken, ValueKind};
use causeway_shared::facts::segments::SegmentId;
use causeway_shared::settings::vocabulary::{Vocabulary, VocabularyWord};
use causeway_shared::targeting::filter::{
    CountAnswerer, Entities, Filter, FilterIndex, FilterSubject, FilterWords, SubjectPerson, parse,
};
use serde_json::{Map, Value as Json, json};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::{scramble, segments};

/// Number of segments.
const SEGMENTS: u64 = 82_000;
/// Number of integer attributes.
const ATTRIBUTES: u64 = 20;
const COUNTRIES: [&str; 10] = ["DE", "AT", "CH", "FR", "NL", "BE", "DK", "PL", "IT", "ES"];
const VIEW_TYPES: [&str; 6] = ["home", "article", "search", "gallery", "video", "weather"];
const CLASSES: [&str; 3] = ["mobile", "desktop", "tablet"];

/// The kind of the generated filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Market {
    /// One to four conditions of all kinds; most filters have segments.
    Mixed,
    /// No filter has segments, and all have the country of all people: the worst case of an index.
    OneCountry,
}

/// The filters of a market, all different.
#[must_use]
pub fn filters(market: Market, count: usize) -> Vec<Option<Filter>> {
    let (attributes, vocabulary) = (names(), words());
    let entities: Entities<'_> = [const { BTreeMap::new() }; 4];
    let words = FilterWords {
        attributes: &attributes,
        vocabulary: &vocabulary,
        entities: &entities,
        answers: CountAnswerer::Snapshot,
    };
    let mut all = BTreeSet::new();
    for seed in 0.. {
        if all.len() == count {
            break;
        }
        all.extend(parse(&document(market, seed), "", &words));
    }
    // The filters of a real catalogue are not sorted.
    let mut all: Vec<Filter> = all.into_iter().collect();
    all.sort_by_cached_key(|filter| {
        scramble(causeway_shared::wire::filter::encode_filter(filter).iter().map(|b| u64::from(*b)).sum())
    });
    all.into_iter().map(Some).collect()
}

/// The attribute names that filters use.
#[must_use]
pub fn names() -> NameDictionary {
    let kinds = (0..ATTRIBUTES).map(|i| (format!("a{i}"), ValueKind::Integer));
    NameDictionary::from_entries(kinds).unwrap_or_default()
}

/// The dictionaries of the filters' names.
#[must_use]
pub fn words() -> Vocabulary {
    let word = |(code, name): (u8, &&str)| VocabularyWord { name: (*name).to_owned(), code };
    Vocabulary { action_types: Vec::new(), view_types: (1..).zip(&VIEW_TYPES).map(word).collect() }
}

/// The attributes of the person.
pub fn attributes() -> impl Iterator<Item = (NameToken, AttributeValue)> {
    let number = |token: u16| (NameToken(token), AttributeValue::Integer((scramble(token.into()) % 100).cast_signed()));
    (0..).take(ATTRIBUTES as usize).map(number)
}

/// A sequence of pseudo-random numbers from a seed.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = scramble(self.0);
        (self.0 >> 16) % most
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        let place = self.below(all.len() as u64) as usize;
        all.get(place).copied().unwrap_or_default()
    }

    fn some<T: Into<Json>>(&mut self, most: u64, mut one: impl FnMut(&mut Self) -> T) -> Json {
        (0..=self.below(most)).map(|_| one(self).into()).collect()
    }
}

/// One filter in the form of a catalogue.
#[must_use]
pub fn document(market: Market, seed: u64) -> Json {
    let mut dice = Dice(scramble(seed));
    let mut fields = Map::new();
    let conditions = 1 + dice.below(4);
    if market == Market::OneCountry {
        fields.insert("geo.country".to_owned(), "DE".into());
    }
    while (fields.len() as u64) < conditions {
        let (field, value) = condition(market, &mut dice);
        fields.insert(field, value);
    }
    Json::Object(fields)
}

fn condition(market: Market, dice: &mut Dice) -> (String, Json) {
    let (least, most) = (dice.below(80), dice.below(80));
    let attribute = format!("attributes.a{}", dice.below(ATTRIBUTES));
    let sort = dice.below(10);
    let (field, value) = match sort {
        0..=3 if market == Market::Mixed => ("segments", json!({ "$in": dice.some(5, |d| d.below(SEGMENTS)) })),
        4 if market == Market::Mixed => ("segments", json!({ "$nin": dice.some(3, |d| d.below(SEGMENTS)) })),
        0..=4 => (attribute.as_str(), json!({ "$gte": least, "$lt": least + most })),
        5 => ("geo.country", json!({ "$in": dice.some(4, |d| d.of(&COUNTRIES)) })),
        6 => ("page.view_type", dice.of(&VIEW_TYPES).into()),
        7 => ("device.class", dice.of(&CLASSES).into()),
        8 => (attribute.as_str(), json!({ "$gte": least })),
        _ => ("$or", json!([{ attribute.as_str(): { "$lt": least } }, { "devices": { "$gt": 1 + dice.below(3) } }])),
    };
    (field.to_owned(), value)
}

/// The person to match.
#[derive(Debug)]
pub struct Somebody {
    attributes: Vec<(NameToken, AttributeValue)>,
    segments: Vec<SegmentId>,
}

impl Default for Somebody {
    fn default() -> Self {
        Self { attributes: attributes().collect(), segments: segments::held().into_keys().map(SegmentId).collect() }
    }
}

impl Somebody {
    /// The person as filters see it.
    #[must_use]
    pub fn subject(&self) -> FilterSubject<'_> {
        let Self { attributes, segments } = self;
        FilterSubject {
            person: Some(SubjectPerson {
                attributes,
                segments,
                devices: 2,
                seen: Some((1, 2)),
                best_now: None,
                gaps: None,
            }),
            url: Some("https://pub.example/hotels"),
            keywords: &["hotel", "beach"],
            view_type: ViewType(2),
            country: Some("DE"),
            class: Some("mobile"),
            ..FilterSubject::default()
        }
    }
}

/// The index of the filters, and the person to match.
#[derive(Debug)]
#[wasm_bindgen]
pub struct Filters {
    index: FilterIndex,
    somebody: Somebody,
}

#[wasm_bindgen]
impl Filters {
    /// With this number of filters.
    #[must_use]
    #[wasm_bindgen(constructor)]
    pub fn new(count: u32) -> Self {
        Self { index: FilterIndex::new(&filters(Market::Mixed, count as usize)), somebody: Somebody::default() }
    }

    /// Matches `times` times; returns the sum of the indexes of the matching filters.
    #[must_use]
    pub fn run(&self, times: u32) -> u32 {
        let ask = || self.index.matching(black_box(&self.somebody.subject())).iter().sum::<usize>() as u32;
        (0..times).fold(0, |_, _| ask())
    }
}
