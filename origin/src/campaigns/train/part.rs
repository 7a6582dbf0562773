//! One part of a model: learned from the earlier examples, rounded to integers, and measured on the later ones by the
//! integers alone.

pub(crate) use crate::campaigns::train::examples::ASSUMED;
use causeway_shared::ads::decision::{CTR_PPB, CVR_PPB, PRICE_MICROS};
use causeway_shared::ads::model::{FRACTION, INTERCEPT, Model, Part, Scorer, WEIGHT};
use causeway_shared::base::time::Minute;
use serde::Serialize;

use super::examples::Examples;
use super::ftrl::{FtrlModel, LearningRates, LinkFunction};
use super::measure::{self, ModelQuality};

/// Bits behind the point of a stored weight: a thousandth of a logit.
const SCALE: u8 = 10;
/// The share of examples, the newest, that are held out, in percent.
const HELD_OUT: usize = 20;
/// Fewer positives are too few to learn from.
const LEARNED: usize = 100;
/// And fewer too few to measure on.
const MEASURED: usize = 25;
/// How often it goes through all examples.
const ROUNDS: usize = 2;
const RATES: LearningRates = LearningRates { alpha: 0.05, beta: 1.0, l1: 1.0, l2: 2.0 };

/// Which of the three.
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

/// What became of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartVerdict {
    /// It is surely better than the base rate.
    Trained,
    /// It is not: the base rate stands in its place.
    NotBetter,
    /// There are too few examples to say: what is decided by without a model stands in its place, mended by those there are.
    TooFew,
}

/// How a part was trained and how good it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartReport {
    /// Which part.
    pub part: ModelKind,
    /// What became of it.
    pub outcome: PartVerdict,
    /// Examples it learned from.
    pub learned_from: usize,
    /// How many of them had what is predicted.
    pub positives: usize,
    /// Examples held out, the newest: all below is measured on them, with the integers that are published.
    pub held_out: u32,
    /// How many of them had what is predicted.
    pub held_out_positives: u32,
    /// Mean log loss in nats, or of the price the mean squared error of its logarithm.
    pub loss: f64,
    /// The same of the base rate.
    pub base_loss: f64,
    /// The loss before weights were rounded.
    pub unrounded_loss: f64,
    /// Area under the ROC curve; of the price 0.
    pub auc: f64,
    /// Expected calibration error; of the price the error of the sum, as a share of it.
    pub calibration_error: f64,
    /// Weights that are not 0.
    pub weights: usize,
}

/// A part, of the price what its mean is above the mean of its logarithm, and its report.
pub(super) struct TrainedPart {
    pub(super) part: Part,
    pub(super) spread: i32,
    pub(super) report: PartReport,
}

/// Examples for one part, in the order they are learned in, and those held out.
struct ExampleSplit {
    learn: Vec<u32>,
    held_out: Vec<u32>,
}

/// Trains one part from these examples.
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

/// What is added to a logarithm that is predicted to expect the value: of what came above or below the predictions, as
/// logarithms, the mean of the factors (Duan 1983, the smearing estimate). By the variance alone, as of log-normal values, a
/// few purchases of next to nothing would make all others worth millions.
fn spread(kind: ModelKind, above: impl Iterator<Item = f64>) -> i32 {
    if kind == ModelKind::Price { to_fixed(mean(above.map(f64::exp)).ln(), WEIGHT).max(0) } else { 0 }
}

fn example_target(kind: ModelKind, examples: &Examples, number: u32) -> f64 {
    match kind {
        ModelKind::Click => f64::from(u8::from(examples.came(number).clicked)),
        ModelKind::Conversion => f64::from(u8::from(examples.came(number).converted)),
        ModelKind::Price => examples.value(number).map_or(0.0, |value| (value as f64).max(1.0).ln()),
    }
}

/// The newest are held out, whole minutes of them; the others are shuffled, with the same numbers every time.
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

/// What the scorer of both sides makes of the examples held out.
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
                (price, (price as f64).max(1.0).ln() - above, examples.value(*number).unwrap_or_default())
            });
            measure::measure_prices(&scored.collect::<Vec<_>>(), base)
        }
    }
}

/// A kind's place in a model.
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

/// What is expected, as an intercept says it, where there are too few examples to tell by them alone: what is decided by without
/// a model counts as [`ASSUMED`] of them. A campaign that pays for what nobody had yet would else be worth nothing, never be
/// shown, and nobody ever have it.
fn expected(kind: ModelKind, mean: f64, examples: usize) -> f64 {
    let without = without(kind);
    let seen = examples as f64;
    let sum = if examples == 0 { 0.0 } else { mean * seen };
    let both = (sum + without * ASSUMED) / (seen + ASSUMED);
    if kind == ModelKind::Price { both } else { logit(both) }
}

/// What is decided by without a model: a rate, or a price's logarithm.
fn without(kind: ModelKind) -> f64 {
    match kind {
        ModelKind::Click => f64::from(CTR_PPB) / 1e9,
        ModelKind::Conversion => f64::from(CVR_PPB) / 1e9,
        ModelKind::Price => (PRICE_MICROS as f64).ln(),
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

/// Not a number of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}
