//! Quality of predictions, compared with the base rate, on held-out examples.

use causeway_shared::ads::model::Quality;
use causeway_shared::base::ids::Micros;

/// Groups of equal size for the calibration error.
const GROUPS: usize = 20;
/// Standard errors by which a model must be better. By chance, one of a thousand useless models is.
const SURE: f64 = 3.0;
/// Lower bound of a probability, so that its logarithm is finite.
const LEAST: f64 = 1e-9;

/// Quality figures, and whether the model is significantly better than the base rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModelQuality {
    pub(super) quality: Quality,
    pub(super) better: bool,
}

/// Losses of two predictions of the same examples.
#[derive(Debug, Default)]
struct LossComparison {
    count: f64,
    own: f64,
    base: f64,
    /// Sum of the squared differences.
    squares: f64,
}

impl LossComparison {
    fn add(&mut self, own: f64, base: f64) {
        self.count += 1.0;
        self.own += own;
        self.base += base;
        self.squares += (base - own) * (base - own);
    }

    fn better(&self) -> bool {
        let mean = (self.base - self.own) / self.count;
        let variance = (self.squares / self.count - mean * mean).max(0.0);
        mean > SURE * (variance / self.count).sqrt()
    }
}

/// Measures probabilities in parts of 1,000,000,000, each with whether the event came.
pub(super) fn measure_probabilities(mut scored: Vec<(u32, bool)>, base: f64) -> ModelQuality {
    let mut losses = LossComparison::default();
    for (ppb, came) in &scored {
        losses.add(log_loss(f64::from(*ppb) / 1e9, *came), log_loss(base, *came));
    }
    scored.sort_unstable_by_key(|(ppb, _)| *ppb);
    let positives = scored.iter().filter(|(_, came)| *came).count();
    let quality = Quality {
        examples: count(scored.len()),
        positives: count(positives),
        loss_ppm: ppm(losses.own / losses.count),
        base_loss_ppm: ppm(losses.base / losses.count),
        auc_ppm: ppm(auc(&scored, positives)).min(1_000_000),
        calibration_error_ppm: ppm(calibration_error(&scored)),
    };
    ModelQuality { quality, better: losses.better() }
}

/// Measures prices: each entry has the expected value in micros, the predicted mean of its logarithm, and the actual
/// value in micros. `base` is the mean of the logarithm over the training examples.
pub(super) fn measure_prices(scored: &[(Micros, f64, Micros)], base: f64) -> ModelQuality {
    let mut losses = LossComparison::default();
    let (mut expected, mut came) = (0.0, 0.0);
    for (price, mean, value) in scored {
        let log = (value.get() as f64).max(1.0).ln();
        losses.add((log - mean).powi(2), (log - base).powi(2));
        expected += price.get() as f64;
        came += value.get() as f64;
    }
    let quality = Quality {
        examples: count(scored.len()),
        positives: count(scored.len()),
        loss_ppm: ppm(losses.own / losses.count),
        base_loss_ppm: ppm(losses.base / losses.count),
        auc_ppm: 0,
        calibration_error_ppm: ppm((expected - came).abs() / came),
    };
    ModelQuality { quality, better: losses.better() }
}

fn log_loss(probability: f64, came: bool) -> f64 {
    let probability = probability.clamp(LEAST, 1.0 - LEAST);
    -if came { probability } else { 1.0 - probability }.ln()
}

/// Probability that a positive example is scored above a negative one; ties count half (Mann and Whitney 1947).
fn auc(sorted: &[(u32, bool)], positives: usize) -> f64 {
    let (mut below, mut sum) = (0.0, 0.0);
    for equal in sorted.chunk_by(|(a, _), (b, _)| a == b) {
        let came = equal.iter().filter(|(_, came)| *came).count() as f64;
        let not = equal.len() as f64 - came;
        sum += came * (below + not / 2.0);
        below += not;
    }
    sum / (positives as f64 * below)
}

fn calibration_error(sorted: &[(u32, bool)]) -> f64 {
    let groups = sorted.chunks(sorted.len().div_ceil(GROUPS).max(1));
    let errors = groups.map(|group| {
        let predicted: f64 = group.iter().map(|(ppb, _)| f64::from(*ppb) / 1e9).sum();
        (predicted - group.iter().filter(|(_, came)| *came).count() as f64).abs()
    });
    errors.sum::<f64>() / sorted.len() as f64
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Converts to millionths. NaN becomes 0 and larger values saturate.
fn ppm(value: f64) -> u32 {
    (value * 1e6).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_few_predictions_are_those_by_hand() {
        let scored = vec![(100_000_000, false), (400_000_000, true), (350_000_000, false), (800_000_000, true)];
        let ModelQuality { quality, .. } = measure_probabilities(scored, 0.5);
        // -(ln 0.9 + ln 0.4 + ln 0.65 + ln 0.8) / 4, and ln 2.
        assert_eq!((quality.examples, quality.positives), (4, 2));
        assert_eq!((quality.loss_ppm, quality.base_loss_ppm), (418_894, 693_147));
        assert_eq!(quality.auc_ppm, 1_000_000);
        assert_eq!(quality.calibration_error_ppm, (100_000 + 600_000 + 350_000 + 200_000) / 4);
        let tied = measure_probabilities(vec![(5, true), (5, false), (5, false), (9, true)], 0.5).quality.auc_ppm;
        assert_eq!(tied, 750_000);
    }

    #[test]
    fn better_is_more_than_chance() {
        let scored = |good: u32| (0..1_000u32).map(|n| (400_000_000 + (n % 2) * good, n % 2 == 1)).collect::<Vec<_>>();
        assert!(measure_probabilities(scored(200_000_000), 0.5).better);
        assert!(!measure_probabilities(scored(0), 0.5).better);
        let base: Vec<(u32, bool)> = (0..1_000).map(|n| (500_000_000, n % 2 == 1)).collect();
        assert!(!measure_probabilities(base, 0.5).better, "as good is not better");
        let prices = |scored: &[(i64, f64, i64)]| {
            let amounts = |(price, mean, value): &_| (Micros::new(*price), *mean, Micros::new(*value));
            measure_prices(&scored.iter().map(amounts).collect::<Vec<_>>(), 3.4)
        };
        assert!(prices(&[(11, 2.3, 10), (99, 4.6, 100), (10, 2.3, 10), (101, 4.6, 100)]).better);
        assert!(!prices(&[(10, 4.6, 10), (100, 2.3, 100), (10, 2.3, 10)]).better);
        assert!(!measure_probabilities(Vec::new(), 0.5).better);
    }
}
