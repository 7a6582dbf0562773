#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use super::features::{BUCKETS, CLICKED, ImpressionFeatures, bucket, windows};
use super::*;
use crate::base::time::Day;
use crate::facts::actions::AdLevel;
use crate::wire::{WireError, model as wire};

/// Pseudo-random numbers (Marsaglia's xorshift), equal in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(most)).unwrap()
    }

    fn counts(&mut self) -> Counts {
        [0; 4].map(|_| {
            let most = [1, 4, 50, 20_000][self.below(4) as usize];
            self.below(most)
        })
    }

    fn part(&mut self, places: usize) -> Part {
        let weights = (0..places).map(|_| i16::try_from(self.below(4_001)).unwrap() - 2_000).collect();
        let intercept = i32::try_from(self.below(400_000)).unwrap() - 200_000;
        Part { intercept, scale: 10, weights, quality: Some(Quality::default()) }
    }
}

fn model(numbers: &mut Numbers) -> Model {
    let [click, conversion, price] = [0; 3].map(|_| numbers.part(1 << 12));
    let segments = (0..100).map(|n| SegmentId(n * n)).collect();
    let price = Part { intercept: price.intercept + (16 << FRACTION), ..price };
    Model { bits: 12, trained_ms: 1, expires_ms: 2, segments, click, conversion, price, spread: 20_000 }
}

fn features() -> Vec<ModelFeature> {
    let small = 0..u8::try_from(BUCKETS).unwrap();
    let mut all: Vec<ModelFeature> = (0..168).map(ModelFeature::HourOfWeek).collect();
    all.extend((0..24).map(ModelFeature::HourOfDay));
    all.extend((1..=5).map(ModelFeature::Devices));
    all.extend(small.clone().map(ModelFeature::Recency));
    all.extend((0..=255).map(|code| ModelFeature::ViewType(ViewType(code))));
    for level in AdLevel::ALL {
        for bucket in small.clone() {
            all.extend((0..3).map(|window| ModelFeature::Impressions { window, level, bucket }));
            all.push(ModelFeature::Clicks { level, bucket });
        }
    }
    all
}

#[test]
fn features_of_few_values_have_places_of_their_own_and_the_others_spread_behind_them() {
    let places: BTreeSet<u16> = features().into_iter().map(|feature| feature.index(11)).collect();
    assert_eq!(places.len(), features().len());
    for bits in BITS {
        let hashed: Vec<u16> = (0..20_000).map(|code| ModelFeature::Entity(AdLevel::Ad, code).index(bits)).collect();
        let behind = (1usize << bits) - 1_024;
        assert!(hashed.iter().all(|place| (1_024..1u32 << bits).contains(&u32::from(*place))));
        assert!(hashed.iter().all(|place| !places.contains(place)));
        let used = hashed.into_iter().collect::<BTreeSet<_>>().len();
        assert!(used * 100 > behind * 66, "{used} of {behind}");
    }
}

#[test]
fn ten_thousand_scores_from_parts_equal_the_scores_from_single_weights() {
    let mut numbers = Numbers(88_172_645_463_325_252);
    let model = model(&mut numbers);
    let scorer = Scorer::new(&model).unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..10_000 {
        let now = Minute(Day(2_900).start().0 + numbers.below(60_000));
        let held: BTreeSet<SegmentId> = (0..numbers.below(60)).map(|_| SegmentId(numbers.below(9_900))).collect();
        let segments: Vec<SegmentId> = held.iter().copied().collect();
        let last = Some(Minute(now.0 - numbers.below(50_000))).filter(|_| numbers.below(3) > 0);
        let person = PersonFeatures { now, devices: numbers.below(8), segments: &segments, last };
        let [ad, ad_group, campaign, advertiser] = [10_000, 3_000, 1_000, 300].map(|most| numbers.below(most));
        let entity = AdEntity { ad, ad_group, campaign, advertiser };
        let view_type = ViewType(u8::try_from(numbers.below(256)).unwrap());
        let fatigue = match numbers.below(4) {
            0 => Fatigue::default(),
            _ => Fatigue { impressions: [0; 3].map(|_| numbers.counts()), clicks: numbers.counts() },
        };
        let score = scorer.score(scorer.person(&person), &scorer.ad(entity), view_type, &fatigue);

        let mut places = Vec::new();
        ImpressionFeatures::new(&person, view_type, &fatigue).places(entity, model.bits, &mut places);
        let known = held.iter().filter(|id| model.segments.contains(id));
        places.extend(known.map(|id| ModelFeature::Segment(*id).index(model.bits)));
        assert_eq!(score, scorer.score_places(&places));
        seen.insert((score.ctr_ppb(), score.cvr_ppb(), score.price_micros()));
    }
    assert!(seen.len() > 9_900, "{}", seen.len());
}

#[test]
fn a_model_without_weights_is_the_base_rate() {
    // The logarithms of the odds 1 to 99, and of 20 million micros.
    let [click, price] = [-301_146, 1_101_730].map(|intercept| Part { intercept, ..Part::default() });
    let model = Model { bits: 11, expires_ms: 1, click, price, ..Model::default() };
    let scorer = Scorer::new(&model).unwrap();
    let person = PersonFeatures { now: Minute(5), devices: 1, segments: &[], last: None };
    let score = scorer.score(scorer.person(&person), &AdScore::default(), ViewType(0), &Fatigue::default());
    assert_eq!((score.ctr_ppb() / 10_000, score.cvr_ppb()), (1_000, 500_000_000));
    assert_eq!(score.price_micros().get() / 10_000, 1_999);
}

#[test]
fn counts_fall_into_buckets_of_powers_of_two() {
    let buckets = [0, 1, 2, 3, 4, 7, 8, 16_383, 16_384, u32::MAX].map(bucket);
    assert_eq!(buckets, [0, 1, 2, 2, 3, 3, 4, 14, 15, 15]);
    let now = Minute(Day(100).start().0 + 125);
    assert_eq!(windows(now), [100, 94, 71].map(|day| (Day(day).start(), now)));
    assert_eq!(CLICKED, 2);
}

#[test]
fn a_model_of_the_future_and_an_expired_one_are_not_used() {
    let model = Model { trained_ms: 1_000_000, expires_ms: 2_000_000, ..Model::default() };
    let skew = limits::SYNC_SKEW_MS;
    let usable = [1_000_000 - skew - 1, 1_000_000 - skew, 1_999_999, 2_000_000].map(|now| model.used().contains(&now));
    assert_eq!(usable, [false, true, true, false]);
}

#[test]
fn what_is_written_is_read_again_and_what_is_no_model_is_refused() {
    let mut numbers = Numbers(4);
    let whole = model(&mut numbers);
    let mut sparse = whole.clone();
    sparse.click.weights.iter_mut().skip(3).step_by(2).for_each(|weight| *weight = 0);
    sparse.price = Part::default();
    for model in [&whole, &sparse] {
        assert_eq!(wire::decode_model(&wire::encode_model(model)).as_ref(), Ok(model));
    }
    let bytes = wire::encode_model(&whole);
    for cut in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        assert!(wire::decode_model(&bytes[..cut]).is_err());
    }
    assert_eq!(wire::decode_model(&[&bytes[..], &[0]].concat()), Err(WireError::Malformed));
    assert_eq!(wire::decode_model(&vec![1; limits::MODEL_BYTES + 1]), Err(WireError::TooLong));
    assert_eq!(wire::decode_model(&[&bytes[..3], &[2], &bytes[4..]].concat()), Err(WireError::UnknownForm));
    let refused = |change: fn(&mut Model)| {
        let mut model = whole.clone();
        change(&mut model);
        assert!(!model.is_sound() && Scorer::new(&model).is_none());
        assert_eq!(wire::decode_model(&wire::encode_model(&model)), Err(WireError::Range));
    };
    refused(|m| m.bits = 10);
    refused(|m| m.bits = 15);
    refused(|m| m.expires_ms = m.trained_ms);
    refused(|m| m.segments[5] = m.segments[4]);
    refused(|m| m.segments = (0..257).map(SegmentId).collect());
    refused(|m| m.spread = -1);
    refused(|m| m.click.scale = 17);
    refused(|m| m.click.scale = 2);
    refused(|m| m.click.intercept = INTERCEPT + 1);
    refused(|m| m.price.quality = Some(Quality { positives: 1, ..Quality::default() }));
}

#[test]
fn the_largest_model_has_room_and_its_sums_do_not_overflow() {
    let part = Part { intercept: INTERCEPT, scale: 10, weights: vec![i16::MIN + 1; 1 << 14], quality: None };
    let [click, conversion, price] = [0; 3].map(|_| part.clone());
    let segments: Vec<SegmentId> = (0..256).map(|n| SegmentId(n << 24)).collect();
    let model = Model {
        bits: 14,
        trained_ms: 0,
        expires_ms: u64::MAX,
        segments: segments.clone(),
        click,
        conversion,
        price,
        spread: WEIGHT,
    };
    let bytes = wire::encode_model(&model);
    assert!(bytes.len() < limits::MODEL_BYTES && wire::decode_model(&bytes).is_ok(), "{}", bytes.len());
    let scorer = Scorer::new(&model).unwrap();
    let person = PersonFeatures { now: Minute(9), devices: 9, segments: &segments, last: None };
    let score = scorer.score(scorer.person(&person), &scorer.ad(AdEntity::default()), ViewType(1), &Fatigue::default());
    assert_eq!([score.ctr_ppb(), score.cvr_ppb()], [0; 2], "far below, not wrapped to above");
    assert_eq!(score.price_micros(), Micros::new(0));
}
