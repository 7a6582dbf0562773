//! Models: the probability of a click after an impression, the probability of a conversion after a click, and the
//! expected value of a conversion, from features of the person, the ad and the moment ([`features`]).
//!
//! All arithmetic uses integers, so that the edge in WebAssembly and the origin in native code compute identical
//! scores. The origin trains a [`Model`]; a reader makes a [`Scorer`] of it once. The choice of an ad from scores is
//! made elsewhere.

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

/// Fractional bits of weight sums: a sum of 65,536 means 1.
pub const FRACTION: u8 = 16;
/// Largest absolute weight: 32.
pub const WEIGHT: i32 = 32 << FRACTION;
/// Largest absolute intercept: 64.
pub const INTERCEPT: i32 = 64 << FRACTION;
/// Number of weights of a part, as a power of two.
pub const BITS: std::ops::RangeInclusive<u8> = 11..=14;
/// Fractional bits of a part's stored weights.
pub const SCALES: std::ops::RangeInclusive<u8> = 0..=FRACTION;

/// Quality of a part on examples that it was not trained on: the last part of its training period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quality {
    /// Number of examples in the measurement.
    pub examples: u32,
    /// Number of positive examples; for the price, all examples.
    pub positives: u32,
    /// Mean log loss in millionths of a nat; for the price, the mean squared error of its natural logarithm in
    /// millionths.
    pub loss_ppm: u32,
    /// The same loss of the base rate: one prediction for all examples, from the period before them.
    pub base_loss_ppm: u32,
    /// Area under the ROC curve in millionths; 0 for the price.
    pub auc_ppm: u32,
    /// Expected calibration error in millionths, over 20 groups of equal size; for the price, the error of the
    /// predicted sum as a share of the sum.
    pub calibration_error_ppm: u32,
}

/// One linear part of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// The start of each sum, with [`FRACTION`] fractional bits, from -[`INTERCEPT`] to [`INTERCEPT`]. Alone it is the
    /// base rate.
    pub intercept: i32,
    /// Fractional bits of the weights, within [`SCALES`].
    pub scale: u8,
    /// One weight per index, as many as the model has; empty if the part is the base rate alone.
    pub weights: Vec<i16>,
    /// Quality of the part; `None` if it is the base rate alone.
    pub quality: Option<Quality>,
}

/// A trained model in its published form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// The number of weights of a part, as a power of two within [`BITS`].
    pub bits: u8,
    /// Time of the training.
    pub trained_ms: Millis,
    /// End of the time in which it may be used.
    pub expires_ms: Millis,
    /// Segments that are features, ascending and without repetition; at most [`limits::MODEL_SEGMENTS`].
    pub segments: Vec<SegmentId>,
    /// The logit of a click, given an impression.
    pub click: Part,
    /// The logit of a conversion, given a click.
    pub conversion: Part,
    /// The natural logarithm of a conversion's value in micros.
    pub price: Part,
    /// Correction from the mean logarithm to the logarithm of the mean value, with [`FRACTION`] fractional bits, 0 to
    /// [`WEIGHT`]. The mean of values exceeds the exponential of their mean logarithm.
    pub spread: i32,
}

impl Model {
    /// The time in which it may be used: from its training, less the clock skew, to its expiry.
    #[must_use]
    pub fn used(&self) -> std::ops::Range<Millis> {
        self.trained_ms.saturating_sub(limits::SYNC_SKEW_MS)..self.expires_ms
    }

    /// Whether all fields are within bounds, so that no sum of weights can overflow.
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

    /// The weight at an index, with [`FRACTION`] fractional bits.
    fn weight(&self, index: usize) -> i32 {
        let weight = self.weights.get(index).copied().unwrap_or_default();
        i32::from(weight) << FRACTION.saturating_sub(self.scale)
    }
}

impl Quality {
    fn is_sound(&self) -> bool {
        self.positives <= self.examples && self.auc_ppm <= 1_000_000
    }
}

/// Weight sums of the three parts, in the order of [`Model`]'s fields. The fourth is always 0, so that four are added
/// at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sum([i32; 4]);

impl Sum {
    /// A model's bounds keep every sum far from overflow.
    fn plus(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a.wrapping_add(e), b.wrapping_add(f), c.wrapping_add(g), d.wrapping_add(h)])
    }
}

/// A person's features at one moment. A request without a person has one device and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonFeatures<'a> {
    /// The moment.
    pub now: Minute,
    /// Number of the person's devices.
    pub devices: u32,
    /// The person's unexpired segments, ascending.
    pub segments: &'a [SegmentId],
    /// Minute of its last action before this minute, within the last 30 days.
    pub last: Option<Minute>,
}

/// A person's share of a score, computed once per request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PersonScore(Sum);

/// An ad's share of a score, computed once when the catalogue is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdScore {
    sum: Sum,
    campaign: u32,
}

/// Numbers of a person's impressions and clicks of an ad, its ad group, campaign and advertiser, all before the current
/// minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fatigue {
    /// Impressions in each of [`features::windows`].
    pub impressions: [Counts; IMPRESSIONS],
    /// Clicks in the longest of the windows.
    pub clicks: Counts,
}

/// Weight sums by window, level and bucket; those of clicks follow those of impressions. Every byte is a valid index.
type Table = [Sum; 256];
const _: () = assert!((IMPRESSIONS + 1) * 4 * features::BUCKETS == 256);

/// A model prepared for scoring.
#[derive(Debug, Clone)]
pub struct Scorer {
    bits: u8,
    start: Sum,
    spread: i32,
    weights: Vec<Sum>,
    segments: Vec<(SegmentId, Sum)>,
    fatigue: Box<Table>,
}

/// Sums for one ad in front of one person: two logits and the logarithm of a price. Each is converted on demand,
/// because the conversion costs more than the sum.
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
        Micros::new(fixed::exponential(price.saturating_add(self.spread))).min(limits::VALUE_MICROS)
    }
}

impl Scorer {
    /// Prepares a model; `None` if it is not sound.
    #[must_use]
    pub fn new(model: &Model) -> Option<Self> {
        if !model.is_sound() {
            return None;
        }
        let Model { bits, click, conversion, price, .. } = model;
        let weight = |index| Sum([click.weight(index), conversion.weight(index), price.weight(index), 0]);
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
        self.at(feature.index(self.bits))
    }

    fn at(&self, index: u16) -> Sum {
        self.weights.get(usize::from(index)).copied().unwrap_or_default()
    }

    /// A person's share of a score, intercepts included.
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

    /// An ad's share of a score.
    #[must_use]
    pub fn ad(&self, entity: AdEntity) -> AdScore {
        let sum = features::of_ad(entity).into_iter().fold(Sum::default(), |sum, feature| sum.plus(self.of(feature)));
        AdScore { sum, campaign: entity.campaign }
    }

    /// The score of an ad on a placement of a view type, in front of a person.
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

    /// The score from the weight indexes of all present features ([`ModelFeature::index`]).
    #[must_use]
    pub fn score_places(&self, places: &[u16]) -> Score {
        let sum = places.iter().fold(self.start, |sum, index| sum.plus(self.at(*index)));
        Score { sum, spread: self.spread }
    }
}

fn at(table: &Table, index: u8) -> Sum {
    table.get(usize::from(index)).copied().unwrap_or_default()
}
