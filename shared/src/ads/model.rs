//! Models (S1.9): how probable a click is after an impression, how probable a conversion is after a click, and what a
//! conversion may be worth, from features of the person, the ad and the moment ([`features`]).
//!
//! All of it is integers, so that the edge in WebAssembly and the origin in native code score alike to the last bit.
//! The origin trains a [`Model`]; a reader makes a [`Scorer`] of it once. Which ad follows from a score is decided
//! elsewhere.

pub mod features;
mod fixed;
#[cfg(test)]
mod tests;

use crate::base::ids::{Micros, Millis};
use crate::base::limits;
use crate::base::time::Minute;
use crate::facts::actions::{AdEntity, Counts, ViewType};
use crate::facts::segments::SegmentId;
use features::{IMPRESSIONS, ModelFeature, bucket};

/// Bits behind the point of weights' sums: a sum of 65,536 is 1.
pub const FRACTION: u8 = 16;
/// The largest weight, in either direction: 32.
pub const WEIGHT: i32 = 32 << FRACTION;
/// The largest intercept, in either direction: 64.
pub const INTERCEPT: i32 = 64 << FRACTION;
/// How many places for features a model may have, as powers of two.
pub const BITS: std::ops::RangeInclusive<u8> = 11..=14;
/// Bits behind the point of a part's stored weights.
pub const SCALES: std::ops::RangeInclusive<u8> = 0..=FRACTION;

/// How good a part is on examples that it was not trained on: the last of the time it looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quality {
    /// How many examples it was measured on.
    pub examples: u32,
    /// How many of them had what is predicted; of the price all.
    pub positives: u32,
    /// Mean log loss in millionths of a nat; of the price the mean squared error of its natural logarithm, in
    /// millionths.
    pub loss_ppm: u32,
    /// The same of the base rate: of one prediction for all, which the time before it gives.
    pub base_loss_ppm: u32,
    /// Area under the ROC curve in millionths; of the price 0.
    pub auc_ppm: u32,
    /// Expected calibration error in millionths, over 20 groups of as many examples each; of the price the error of the
    /// predicted sum as a share of the sum.
    pub calibration_error_ppm: u32,
}

/// One linear part of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// What everything is added to, with [`FRACTION`] bits behind the point, from -[`INTERCEPT`] to [`INTERCEPT`].
    /// Alone it is the base rate.
    pub intercept: i32,
    /// Bits behind the point of the weights, of [`SCALES`].
    pub scale: u8,
    /// A weight for each place: as many as the model has places, or none where the part is the base rate alone.
    pub weights: Vec<i16>,
    /// How good it is; `None` where it is the base rate alone.
    pub quality: Option<Quality>,
}

/// A trained model, as it is published.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// It has two to this power of places, of [`BITS`].
    pub bits: u8,
    /// When it was trained.
    pub trained_ms: Millis,
    /// From when on it is not used any more.
    pub expires_ms: Millis,
    /// The segments that are features, in order, each once; [`limits::MODEL_SEGMENTS`] at most.
    pub segments: Vec<SegmentId>,
    /// The logit of a click, given an impression.
    pub click: Part,
    /// The logit of a conversion, given a click.
    pub conversion: Part,
    /// The natural logarithm of a conversion's value in micros.
    pub price: Part,
    /// What is added to that logarithm to expect the value itself, whose mean is above the exponential of its logarithm's,
    /// with [`FRACTION`] bits behind the point, 0 to [`WEIGHT`].
    pub spread: i32,
}

impl Model {
    /// From when on it may be used, and from when on not any more: it is not from the future, as far as clocks agree, and
    /// has not expired.
    #[must_use]
    pub fn used(&self) -> std::ops::Range<Millis> {
        self.trained_ms.saturating_sub(limits::SYNC_SKEW_MS)..self.expires_ms
    }

    /// Whether everything in it is within its bounds, so that no sum of its weights can overflow.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let parts = [&self.click, &self.conversion, &self.price];
        BITS.contains(&self.bits)
            && self.trained_ms < self.expires_ms
            && self.segments.len() <= limits::MODEL_SEGMENTS
            && self.segments.is_sorted_by(|a, b| a < b)
            && (0..=WEIGHT).contains(&self.spread)
            && parts.into_iter().all(|part| part.is_sound(1 << self.bits))
    }
}

impl Part {
    fn is_sound(&self, places: usize) -> bool {
        let most = WEIGHT >> FRACTION.saturating_sub(self.scale);
        SCALES.contains(&self.scale)
            && (-INTERCEPT..=INTERCEPT).contains(&self.intercept)
            && (self.weights.is_empty() || self.weights.len() == places)
            && self.weights.iter().all(|weight| (-most..=most).contains(&i32::from(*weight)))
            && self.quality.is_none_or(|quality| quality.is_sound())
    }

    /// The weight of a place, with [`FRACTION`] bits behind the point.
    fn weight(&self, place: usize) -> i32 {
        let weight = self.weights.get(place).copied().unwrap_or_default();
        i32::from(weight) << FRACTION.saturating_sub(self.scale)
    }
}

impl Quality {
    fn is_sound(&self) -> bool {
        self.positives <= self.examples && self.auc_ppm <= 1_000_000
    }
}

/// Sums of weights of the three parts, in the order of [`Model`]'s fields; the fourth is always 0, as four are added at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sum([i32; 4]);

impl Sum {
    /// A model's bounds keep all sums of its weights far from overflow.
    fn plus(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a.wrapping_add(e), b.wrapping_add(f), c.wrapping_add(g), d.wrapping_add(h)])
    }
}

/// What a model looks at of a person at one moment. Of a request without a person: one device and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonFeatures<'a> {
    /// The moment.
    pub now: Minute,
    /// The person's browsers (S1.8).
    pub devices: u32,
    /// The segments it is in at the moment, in order.
    pub segments: &'a [SegmentId],
    /// The minute of its last action before this minute, of the last 30 days.
    pub last: Option<Minute>,
}

/// A person's share of a score: made once a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PersonScore(Sum);

/// An ad's share of a score: made once, when the catalogue is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdScore {
    sum: Sum,
    campaign: u32,
}

/// How often a person saw and clicked an ad, its group, its campaign and its advertiser (S3.6), all before the minute
/// of the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fatigue {
    /// Impressions in each of [`features::windows`].
    pub impressions: [Counts; IMPRESSIONS],
    /// Clicks in the longest of them.
    pub clicks: Counts,
}

/// Sums by window, level and bucket, the clicks' behind the impressions': a byte is always a place in it.
type Table = [Sum; 256];
const _: () = assert!((IMPRESSIONS + 1) * 4 * features::BUCKETS == 256);

/// A model made ready for scoring.
#[derive(Debug, Clone)]
pub struct Scorer {
    bits: u8,
    start: Sum,
    spread: i32,
    weights: Vec<Sum>,
    segments: Vec<(SegmentId, Sum)>,
    fatigue: Box<Table>,
}

/// What is added up for one ad in front of one person: logits, and the logarithm of a price. Each is made what it stands
/// for when it is asked for, as that costs more than the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score {
    sum: Sum,
    spread: i32,
}

impl Score {
    /// Probability of a click given an impression, in parts of 1,000,000,000.
    #[must_use]
    pub fn ctr_ppb(self) -> u32 {
        let Sum([click, ..]) = self.sum;
        fixed::probability(click)
    }

    /// Probability of a conversion given a click, in parts of 1,000,000,000.
    #[must_use]
    pub fn cvr_ppb(self) -> u32 {
        let Sum([_, conversion, ..]) = self.sum;
        fixed::probability(conversion)
    }

    /// Expected value of a conversion in micros, 0 to [`limits::VALUE_MICROS`].
    #[must_use]
    pub fn price_micros(self) -> Micros {
        let Sum([_, _, price, _]) = self.sum;
        fixed::exponential(price.saturating_add(self.spread)).min(limits::VALUE_MICROS)
    }
}

impl Scorer {
    /// Makes a model ready; `None` for one that is not sound.
    #[must_use]
    pub fn new(model: &Model) -> Option<Self> {
        if !model.is_sound() {
            return None;
        }
        let Model { bits, click, conversion, price, .. } = model;
        let weight = |place| Sum([click.weight(place), conversion.weight(place), price.weight(place), 0]);
        let mut scorer = Self {
            bits: *bits,
            start: Sum([click.intercept, conversion.intercept, price.intercept, 0]),
            spread: model.spread,
            weights: (0..1 << *bits).map(weight).collect(),
            segments: Vec::new(),
            fatigue: Box::new([Sum::default(); 256]),
        };
        let segment = |id: &SegmentId| (*id, scorer.of(ModelFeature::Segment(*id)));
        scorer.segments = model.segments.iter().map(segment).collect();
        let table: Vec<Sum> = features::fatigue().map(|feature| scorer.of(feature)).collect();
        scorer.fatigue.iter_mut().zip(table).for_each(|(to, sum)| *to = sum);
        Some(scorer)
    }

    fn of(&self, feature: ModelFeature) -> Sum {
        self.at(feature.place(self.bits))
    }

    fn at(&self, place: u16) -> Sum {
        self.weights.get(usize::from(place)).copied().unwrap_or_default()
    }

    /// A person's share, with the intercepts in it.
    #[must_use]
    pub fn person(&self, person: &PersonFeatures<'_>) -> PersonScore {
        let of_moment = features::of_moment(person.now).into_iter();
        let of_person = features::of_person(person.now, person.devices, person.last).into_iter();
        let sum = of_moment.chain(of_person).fold(self.start, |sum, feature| sum.plus(self.of(feature)));
        let mut held = person.segments.iter().peekable();
        let sum = self.segments.iter().fold(sum, |sum, (id, of)| {
            while held.next_if(|there| *there < id).is_some() {}
            if held.peek() == Some(&id) { sum.plus(*of) } else { sum }
        });
        PersonScore(sum)
    }

    /// An ad's share.
    #[must_use]
    pub fn ad(&self, entity: AdEntity) -> AdScore {
        let sum = features::of_ad(entity).into_iter().fold(Sum::default(), |sum, feature| sum.plus(self.of(feature)));
        AdScore { sum, campaign: entity.campaign }
    }

    /// What is predicted of an ad on a kind of placement in front of a person.
    #[must_use]
    pub fn score(&self, person: PersonScore, ad: &AdScore, view_type: ViewType, fatigue: &Fatigue) -> Score {
        let [kind, cross] = features::of_placement(view_type, ad.campaign);
        let mut sum = person.0.plus(ad.sum).plus(self.of(kind)).plus(self.of(cross));
        let [first, second, third] = &fatigue.impressions;
        for (counts, row) in [first, second, third, &fatigue.clicks].into_iter().zip([0, 64, 128, 192]) {
            let [a, b, c, d] = *counts;
            for (count, level) in [(a, 0), (b, 16), (c, 32), (d, 48)] {
                sum = sum.plus(at(&self.fatigue, row | level | bucket(count)));
            }
        }
        Score { sum, spread: self.spread }
    }

    /// What is predicted from the places of all features that are there ([`ModelFeature::place`]).
    #[must_use]
    pub fn score_places(&self, places: &[u16]) -> Score {
        let sum = places.iter().fold(self.start, |sum, place| sum.plus(self.at(*place)));
        Score { sum, spread: self.spread }
    }
}

fn at(table: &Table, place: u8) -> Sum {
    table.get(usize::from(place)).copied().unwrap_or_default()
}
