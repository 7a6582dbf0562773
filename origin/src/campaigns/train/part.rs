//! One part of a model: it is learned from the earlier examples, rounded to integers, and measured on the later ones
//! with the integers alone.

pub(crate) use crate::campaigns::train::examples::ASSUMED;
use causeway_shared::ads::decision::{CTR_PPB, CVR_PPB, PRICE_MICROS};
use causeway_shared::ads::model::{FRACTION, INTERCEPT, Model, Part, Scorer, WEIGHT};
use causeway_shared::base::time::Minute;
use serde::Serialize;

use super::examples::Examples;
use super::ftrl::{FtrlModel, LearningRates, LinkFunction};
use super::measure::{self, ModelQuality};

/// Fractional bits of a stored weight: a precision of a thousandth of a logit.
const SCALE: u8 = 10;
/// Share of the newest examples that are held out, in percent.
const HELD_OUT: usize = 20;
/// Least number of positives to learn from.
const LEARNED: usize = 100;
/// Least number of held-out positives to measure on.
const MEASURED: usize = 25;
/// Passes over all examples.
const ROUNDS: usize = 2;
const RATES: LearningRates = LearningRates { alpha: 0.05, beta: 1.0, l1: 1.0, l2: 2.0 };

/// Target of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// A click after an impression.
    Click,
    /// A conversion after a click.
    Conversion,
    /// What a conversion was worth.
    Price,
}

/// Outcome of training a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartVerdict {
    /// The part is significantly better than the base rate.
    Trained,
    /// The part is not better. The base rate is used instead.
    NotBetter,
    /// There are too few examples. The default prediction is used, adjusted by the available examples.
    TooFew,
}

/// Report of a trained part and its quality.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartReport {
    /// The part.
    pub part: ModelKind,
    /// Its outcome.
    pub outcome: PartVerdict,
    /// Number of examples learned from.
    pub learned_from: usize,
    /// Positives among the examples learned from.
    pub positives: usize,
    /// Number of the newest examples, which are held out. The following figures are measured on them with the published
    /// integers.
    pub held_out: u32,
    /// Positives among the held-out examples.
    pub held_out_positives: u32,
    /// Mean log loss in nats; for the price, the mean squared error of its logarithm.
    pub loss: f64,
    /// The same loss of the base rate.
    pub base_loss: f64,
    /// The loss before weights were rounded.
    pub unrounded_loss: f64,
    /// Area under the ROC curve; 0 for the price.
    pub auc: f64,
    /// Expected calibration error; for the price, the relative error of the sum.
    pub calibration_error: f64,
    /// Number of weights other than 0.
    pub weights: usize,
}

/// A part, its report, and for the price the logarithm's correction from [`spread`].
pub(super) struct TrainedPart {
    pub(super) part: Part,
    pub(super) spread: i32,
    pub(super) report: PartReport,
}

/// Examples of one part in learning order, and the held-out examples.
struct ExampleSplit {
    learn: Vec<u32>,
    held_out: Vec<u32>,
}

/// Trains one part from the examples with these numbers.
pub(super) fn train_part(kind: ModelKind, examples: &Examples, numbers: Vec<u32>, bits: u8) -> TrainedPart {
    let split = split_examples(examples, numbers);
    let target = |number: u32| example_target(kind, examples, number);
    let positive = |number: &&u32| kind == ModelKind::Price || target(**number) > 0.0;
    let positives = split.learn.iter().filter(positive).count();
    let held_out_positives = split.held_out.iter().filter(positive).count();
    let mean = mean(split.learn.iter().map(|number| target(*number)));
    let expected = expected(kind, mean, split.learn.len());
    let few = Part { intercept: to_fixed(expected, INTERCEPT), scale: SCALE, ..Part::default() };
    let base = if kind == ModelKind::Price { mean } else { logit(mean) };
    let mut report = PartReport {
        part: kind,
        outcome: PartVerdict::TooFew,
        learned_from: split.learn.len(),
        positives,
        held_out: u32::try_from(split.held_out.len()).unwrap_or(u32::MAX),
        held_out_positives: u32::try_from(held_out_positives).unwrap_or(u32::MAX),
        loss: 0.0,
        base_loss: 0.0,
        unrounded_loss: 0.0,
        auc: 0.0,
        calibration_error: 0.0,
        weights: 0,
    };
    let alone = Part { intercept: to_fixed(base, INTERCEPT), scale: SCALE, ..Part::default() };
    let above = |from: f64| split.learn.iter().map(move |number| target(*number) - from);
    let others = split.learn.len() - positives;
    if positives < LEARNED || held_out_positives < MEASURED || (kind != ModelKind::Price && others < LEARNED) {
        let assumed = std::iter::repeat_n(without(ModelKind::Price) - expected, ASSUMED as usize);
        return TrainedPart { part: few, spread: spread(kind, above(expected).chain(assumed)), report };
    }
    let learner = learn_examples(kind, examples, &split.learn, base, bits);
    let part = Part { weights: rounded_weights(&learner), ..alone.clone() };
    let rounded_spread = spread(kind, residuals(&learner, examples, &split.learn, &target));
    let measured = measure_part(kind, examples, &split.held_out, &part, rounded_spread, base, bits);
    let quality = measured.quality;
    report.loss = from_ppm(quality.loss_ppm);
    report.base_loss = from_ppm(quality.base_loss_ppm);
    report.unrounded_loss = unrounded_quality(kind, &learner, examples, &split.held_out, &target);
    report.auc = from_ppm(quality.auc_ppm);
    report.calibration_error = from_ppm(quality.calibration_error_ppm);
    report.weights = part.weights.iter().filter(|weight| **weight != 0).count();
    if measured.better {
        report.outcome = PartVerdict::Trained;
        TrainedPart { part: Part { quality: Some(quality), ..part }, spread: rounded_spread, report }
    } else {
        report.outcome = PartVerdict::NotBetter;
        TrainedPart { part: alone, spread: spread(kind, above(base)), report }
    }
}

/// Correction that is added to a predicted logarithm to obtain the expected value: the mean of the factors by which
/// actual values differ from predictions (Duan 1983, the smearing estimate). The correction for log-normal values, from
/// the variance alone, would let a few tiny purchases make all others worth millions.
fn spread(kind: ModelKind, above: impl Iterator<Item = f64>) -> i32 {
    if kind == ModelKind::Price { to_fixed(mean(above.map(f64::exp)).ln(), WEIGHT).max(0) } else { 0 }
}

fn example_target(kind: ModelKind, examples: &Examples, number: u32) -> f64 {
    match kind {
        ModelKind::Click => f64::from(u8::from(examples.result_of(number).clicked)),
        ModelKind::Conversion => f64::from(u8::from(examples.result_of(number).converted)),
        ModelKind::Price => examples.value(number).map_or(0.0, |value| (value.get() as f64).max(1.0).ln()),
    }
}

/// Holds out the newest examples, in whole minutes, and shuffles the others with a fixed seed.
fn split_examples(examples: &Examples, numbers: Vec<u32>) -> ExampleSplit {
    let mut minutes: Vec<Minute> = numbers.iter().map(|number| examples.minute(*number)).collect();
    let place = minutes.len() - minutes.len() * HELD_OUT / 100;
    let border = if place < minutes.len() { *minutes.select_nth_unstable(place).1 } else { Minute(u32::MAX) };
    let (mut learn, held_out): (Vec<u32>, Vec<u32>) =
        numbers.into_iter().partition(|number| examples.minute(*number) < border);
    // Fisher and Yates's shuffle with Marsaglia's xorshift.
    let mut state = 88_172_645_463_325_252u64;
    for last in (1..learn.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (last as u64 + 1)).unwrap_or_default();
        learn.swap(last, other);
    }
    ExampleSplit { learn, held_out }
}

fn learn_examples(kind: ModelKind, examples: &Examples, numbers: &[u32], base: f64, bits: u8) -> FtrlModel {
    let link = if kind == ModelKind::Price { LinkFunction::Identity } else { LinkFunction::Logistic };
    let mut learner = FtrlModel::new(link, RATES, base, 1 << bits);
    let mut places = Vec::new();
    for _ in 0..ROUNDS {
        for number in numbers {
            examples.places(*number, &mut places);
            learner.learn(&places, example_target(kind, examples, *number));
        }
    }
    learner
}

fn residuals<'a>(
    learner: &'a FtrlModel,
    examples: &'a Examples,
    numbers: &'a [u32],
    target: &'a impl Fn(u32) -> f64,
) -> impl Iterator<Item = f64> + 'a {
    let mut places = Vec::new();
    numbers.iter().map(move |number| {
        examples.places(*number, &mut places);
        target(*number) - learner.predict(&places)
    })
}

fn unrounded_quality(
    kind: ModelKind,
    learner: &FtrlModel,
    examples: &Examples,
    held_out: &[u32],
    target: &impl Fn(u32) -> f64,
) -> f64 {
    if kind == ModelKind::Price {
        return mean(residuals(learner, examples, held_out, target).map(|above| above.powi(2)));
    }
    let mut places = Vec::new();
    mean(held_out.iter().map(|number| {
        examples.places(*number, &mut places);
        let predicted = learner.predict(&places).clamp(1e-9, 1.0 - 1e-9);
        -if target(*number) > 0.0 { predicted } else { 1.0 - predicted }.ln()
    }))
}

/// Measures a part on the held-out examples with the scorer that the edge uses.
fn measure_part(
    kind: ModelKind,
    examples: &Examples,
    held_out: &[u32],
    part: &Part,
    spread: i32,
    base: f64,
    bits: u8,
) -> ModelQuality {
    let mut model = Model { bits, expires_ms: 1, spread, ..Model::default() };
    *model_part(&mut model, kind) = part.clone();
    let nothing = || measure::measure_probabilities(Vec::new(), 0.5);
    let Some(scorer) = Scorer::new(&model) else { return nothing() };
    let mut places = Vec::new();
    let mut score = |number: u32| {
        examples.places(number, &mut places);
        scorer.score_places(&places)
    };
    let above = f64::from(spread) / f64::from(1 << FRACTION);
    match kind {
        ModelKind::Click | ModelKind::Conversion => {
            let rate = 1.0 / (1.0 + (-base).exp());
            let scored = held_out.iter().map(|number| {
                let scores = score(*number);
                let ppb = if kind == ModelKind::Click { scores.ctr_ppb() } else { scores.cvr_ppb() };
                (ppb, example_target(kind, examples, *number) > 0.0)
            });
            measure::measure_probabilities(scored.collect(), rate)
        }
        ModelKind::Price => {
            let scored = held_out.iter().map(|number| {
                let price = score(*number).price_micros();
                (price, (price.get() as f64).max(1.0).ln() - above, examples.value(*number).unwrap_or_default())
            });
            measure::measure_prices(&scored.collect::<Vec<_>>(), base)
        }
    }
}

/// The part of a model for a kind.
pub(super) fn model_part(model: &mut Model, kind: ModelKind) -> &mut Part {
    match kind {
        ModelKind::Click => &mut model.click,
        ModelKind::Conversion => &mut model.conversion,
        ModelKind::Price => &mut model.price,
    }
}

fn rounded_weights(learner: &FtrlModel) -> Vec<i16> {
    let most = f64::from(WEIGHT >> (FRACTION - SCALE)).min(f64::from(i16::MAX));
    learner.weights().map(|weight| (weight * f64::from(1 << SCALE)).round().clamp(-most, most) as i16).collect()
}

/// Expected value, as an intercept, where examples alone are too few: the default prediction counts as [`ASSUMED`] of
/// them. Otherwise a campaign that pays for a rare event would be worth nothing, would never be shown, and could never
/// have that event.
fn expected(kind: ModelKind, mean: f64, examples: usize) -> f64 {
    let without = without(kind);
    let seen = examples as f64;
    let sum = if examples == 0 { 0.0 } else { mean * seen };
    let both = (sum + without * ASSUMED) / (seen + ASSUMED);
    if kind == ModelKind::Price { both } else { logit(both) }
}

/// Default prediction without a model: a rate, or the logarithm of a price.
fn without(kind: ModelKind) -> f64 {
    match kind {
        ModelKind::Click => f64::from(CTR_PPB) / 1e9,
        ModelKind::Conversion => f64::from(CVR_PPB) / 1e9,
        ModelKind::Price => (PRICE_MICROS.get() as f64).ln(),
    }
}

fn logit(rate: f64) -> f64 {
    (rate / (1.0 - rate)).ln()
}

fn to_fixed(value: f64, most: i32) -> i32 {
    (value * f64::from(1 << FRACTION)).round().clamp(f64::from(-most), f64::from(most)) as i32
}

fn from_ppm(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

/// The mean; NaN without values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}
