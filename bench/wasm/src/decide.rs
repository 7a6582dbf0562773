//! A catalogue of many ads, a person of two browsers with a history, a model, and a page of three placements.

use std::hint::black_box;

use causeway_shared::ads::catalogue::{Catalogue, CompiledCatalogue, FlatCatalogue};
use causeway_shared::ads::decision::{
    DecidedPerson, DecisionInputs, DescribedPerson, ModelScores, PageDecision, Placement,
};
use causeway_shared::ads::model::{FRACTION, Model, Part};
use causeway_shared::base::ids::{Millis, SnapshotVersion, VisitorId};
use causeway_shared::base::time::{DAY_MINUTES, EPOCH_MS, Minute};
use causeway_shared::facts::actions::{ActionList, ActionType, AdAction, InsertionHash, ViewType};
use causeway_shared::facts::attributes::AttributeMap;
use causeway_shared::facts::segments::WriteStamp;
use causeway_shared::profiles::profile::{SubContent, SubProfile};
use causeway_shared::profiles::view::{JoinedView, Snapshot};
use causeway_shared::targeting::filter::FilterSubject;
use causeway_shared::wire::catalogue::{Digest, decode_document, encode_document};
use causeway_shared::wire::flat;
use serde_json::{Value as Json, json};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::counting::TODAY;
use crate::filters::{self, Dice, Market};
use crate::{scramble, segments};

/// Number of actions of the person.
const ACTIONS: u64 = 1_000;
/// Number of ads that the actions refer to.
const MET: u64 = 200;
const SIZES: [[u32; 2]; 4] = [[728, 90], [300, 250], [160, 600], [970, 250]];
const KEY: &str = "c:pub:1";
const DIGEST: Digest = [7; 16];

/// The time of the decision: today at noon.
#[must_use]
pub fn now() -> Millis {
    EPOCH_MS + u64::from(TODAY.start().0 + 720) * 60_000
}

/// A catalogue with three ads per ad group, three groups per campaign and three campaigns per advertiser. Each group
/// has targeting, each ad and campaign has caps, and bids are of all kinds.
#[must_use]
pub fn document(ads: u64) -> Json {
    let (groups, campaigns, advertisers) = (ads.div_ceil(3), ads.div_ceil(9), ads.div_ceil(27));
    let cap = |limit: u64, interval: u64, unit: &str| json!([{ "action": "impression", "limit": limit, "window": { "interval": interval, "unit": unit } }]);
    let bid = |n: u64| match n % 4 {
        0 | 1 => json!({ "cpm_micros": 100_000 + scramble(n) % 3_000_000 }),
        2 => json!({ "cpc_micros": 50_000 + scramble(n) % 1_000_000 }),
        _ => json!({ "cpa_micros": 1_000_000 + scramble(n) % 90_000_000 }),
    };
    let advertiser = |n: u64| json!({ "id": format!("v{n}"), "code": n + 1 });
    let campaign = |n: u64| {
        json!({ "id": format!("c{n}"), "code": n + 1, "advertiser": format!("v{}", n / 3), "bid": bid(n),
            "categories": [format!("k{}", n % 20)], "caps": cap(5 + n % 20, 7, "days") })
    };
    let group = |n: u64| {
        json!({ "id": format!("g{n}"), "code": n + 1, "campaign": format!("c{}", n / 3),
            "targeting": filters::document(Market::Mixed, n), "caps": cap(4 + n % 9, 24, "hours") })
    };
    let ad = |n: u64| {
        let size = SIZES.get(scramble(n) as usize % SIZES.len());
        json!({ "id": format!("a{n}"), "code": n + 1, "ad_group": format!("g{}", n / 3), "sizes": size.map(|size| [size]),
            "creative": { "image": format!("https://cdn.example/{n}.png"), "alt": "An ad" },
            "landing": format!("https://shop{}.example/{n}", n / 27), "caps": cap(1 + n % 3, 1, "days") })
    };
    let all = |count: u64, one: &dyn Fn(u64) -> Json| (0..count).map(one).collect::<Vec<_>>();
    json!({ "advertiser": all(advertisers, &advertiser), "campaign": all(campaigns, &campaign),
        "ad_group": all(groups, &group), "ad": all(ads, &ad) })
}

/// The catalogue of a document, ready for decisions.
///
/// # Panics
/// Never: the document is valid.
#[must_use]
pub fn compiled(document: &Json) -> CompiledCatalogue {
    CompiledCatalogue::of(flat(document))
}

fn flat(document: &Json) -> FlatCatalogue {
    let read: Result<Catalogue, _> = serde_json::from_value(document.clone());
    let flat = read.map(|catalogue| catalogue.flat(&filters::names(), &filters::words()));
    let Ok(Ok(flat)) = flat else { unreachable!("{flat:?}") };
    flat
}

/// A model with a weight for each feature.
#[must_use]
pub fn model() -> Model {
    let part = |seed: u64, intercept: i32| {
        let weight = |place: u64| (scramble(seed << 32 | place) % 512) as i16 - 256;
        Part { intercept: intercept << FRACTION, scale: 10, weights: (0..1 << 13).map(weight).collect(), quality: None }
    };
    let [click, conversion, price] = [part(1, -6), part(2, -4), part(3, 17)];
    Model { bits: 13, trained_ms: now() - 1, expires_ms: now() + 1, click, conversion, price, ..Model::default() }
}

/// The actions of the person, on a part of the ads.
#[must_use]
pub fn actions(catalogue: &CompiledCatalogue) -> ActionList {
    let ads = catalogue.offers.len() as u64;
    let action = |n: u64| {
        let bits = scramble(9 << 32 | n);
        let offer = catalogue.offers.get((scramble(bits % MET) % ads) as usize);
        let [a, b, c, d, e, f, ..] = scramble(bits).to_be_bytes();
        Some(AdAction {
            insertion: InsertionHash([a, b, c, d, e, f]),
            action_type: if bits.is_multiple_of(40) { ActionType::CLICK } else { ActionType::IMPRESSION },
            view_type: ViewType((bits / 40 % 3) as u8),
            entity: offer?.entity,
            minute: Minute(TODAY.start().0 + 700 - (bits / 150 % u64::from(29 * DAY_MINUTES)) as u32),
        })
    };
    (0..ACTIONS).filter_map(action).collect()
}

/// All inputs of a decision.
#[derive(Debug)]
#[wasm_bindgen]
pub struct Deciding {
    compiled: CompiledCatalogue,
    scores: Option<ModelScores>,
    view: JoinedView,
    visitor: VisitorId,
}

impl Deciding {
    /// The catalogue.
    #[must_use]
    pub fn catalogue(&self) -> &CompiledCatalogue {
        &self.compiled
    }

    /// The placements of the page.
    #[must_use]
    pub fn placements() -> [Placement<'static>; 3] {
        let [wide, square, tall, _] = [&SIZES[..1], &SIZES[1..2], &SIZES[2..3], &SIZES[3..]];
        let of = |sizes, view_type, floor_micros| Placement { sizes, view_type: ViewType(view_type), floor_micros };
        [of(wide, 1, 0), of(square, 2, 50_000), of(tall, 2, 0)]
    }

    /// The person and the page, as filters see them.
    #[must_use]
    pub fn subject(described: &DescribedPerson) -> FilterSubject<'_> {
        FilterSubject {
            person: Some(described.person()),
            url: Some("https://pub.example/hotels"),
            keywords: &["hotel", "beach"],
            country: Some("DE"),
            class: Some("mobile"),
            ..FilterSubject::default()
        }
    }

    /// The history of the person.
    #[must_use]
    pub fn described(&self) -> DescribedPerson {
        DescribedPerson::of(&self.view.of(self.visitor), now())
    }

    /// Decides once: the index and the value of each chosen ad.
    #[must_use]
    pub fn decide(&self) -> Vec<Option<(usize, u64)>> {
        let counted = self.view.of(self.visitor);
        let described = DescribedPerson::of(&counted, now());
        let person = DecidedPerson { actions: counted.actions(), totals: counted.totals(), ..DecidedPerson::default() };
        let (subject, placements) = (Self::subject(&described), Self::placements().to_vec());
        let given = DecisionInputs { now: now(), scores: self.scores.as_ref(), ..DecisionInputs::default() };
        let question = PageDecision::new(&self.compiled, Some(&person), &subject, placements, given);
        let decided = question.decide(None).into_iter().enumerate();
        decided.map(|(number, won)| won.ok().map(|place| (place, question.worth(number, place)))).collect()
    }
}

#[wasm_bindgen]
impl Deciding {
    /// With this number of ads.
    #[must_use]
    #[wasm_bindgen(constructor)]
    pub fn new(ads: u32) -> Self {
        let compiled = compiled(&document(ads.into()));
        let scores = ModelScores::new(&model(), &compiled);
        let mut attributes = AttributeMap::default();
        for (token, value) in filters::attributes() {
            attributes.write(token, WriteStamp { at: 1, order: 1 }, Some(value));
        }
        let (seen, [own_segments, segments]) = (Some((now() - 1_000, now() - 1)), segments::halves());
        let content = SubContent {
            seen,
            actions: actions(&compiled).pack_actions(),
            segments: own_segments,
            attributes: attributes.pack(),
            ..SubContent::default()
        };
        let sibling = SubContent { seen, segments, ..SubContent::default() };
        let [visitor, other] = [1, 2].map(|n| VisitorId::mint(now() - 1_000, [n; 10]));
        let profiles = [(visitor, content), (other, sibling)];
        let mut view = JoinedView::default();
        view.add_snapshot(Snapshot {
            version: SnapshotVersion::default(),
            visitor,
            unique: Vec::new(),
            membership: Default::default(),
            profiles: profiles
                .map(|(of, content)| (of, SubProfile::pack(SnapshotVersion::default(), &content)))
                .into_iter()
                .collect(),
            best: None,
        });
        Self { compiled, scores, view, visitor }
    }

    /// Decides `times` times; returns a checksum of the decisions.
    #[must_use]
    pub fn run(&self, times: u32) -> u32 {
        let mut dice = Dice(1);
        for _ in 0..times {
            let decided = black_box(self).decide();
            dice = Dice(
                decided.into_iter().flatten().fold(1, |sum, (place, worth)| scramble(sum ^ place as u64 ^ worth << 20)),
            );
        }
        dice.0 as u32
    }
}

/// The KV value of a catalogue.
#[derive(Debug)]
#[wasm_bindgen]
pub struct Loading {
    value: String,
}

#[wasm_bindgen]
impl Loading {
    /// With this number of ads.
    #[must_use]
    #[wasm_bindgen(constructor)]
    pub fn new(ads: u32) -> Self {
        let bytes = flat::encode_catalogue(&flat(&document(ads.into())));
        Self { value: encode_document(KEY, &DIGEST, &bytes).unwrap_or_default() }
    }

    /// Length of the value in characters.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.value.len() as u32
    }

    /// Reads and checks the catalogue `times` times; returns its number of ads.
    #[must_use]
    pub fn run(&self, times: u32) -> u32 {
        let mut offers = 0;
        for _ in 0..times {
            let read = decode_document(KEY, &DIGEST, black_box(self.value.as_bytes())).ok();
            let made = read.and_then(|bytes| flat::decode_catalogue(&bytes).ok()).map(CompiledCatalogue::of);
            offers = made.map_or(0, |made| made.offers.len() as u32);
        }
        offers
    }
}
