//! Statistics of an experiment: rates and differences with their intervals, a check of the traffic split, and the
//! number of people needed to detect a difference. All functions are pure.

use statrs::distribution::{Beta, ChiSquared, ContinuousCDF as _, Gamma, Normal};

/// A split with a lower probability than this counts as a mismatch of the traffic with its shares (Fabijan et al. 2019,
/// "Diagnosing Sample Ratio Mismatch in Online Controlled Experiments", KDD).
pub const MISMATCH: f64 = 0.001;
/// 97.5th percentile of the standard normal distribution, for intervals of 95 %.
const Z95: f64 = 1.959_963_984_540_054;

/// Observed rate: `did` of `of` people, where `of` is not less than `did`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservedRate {
    /// People who converted.
    pub did: f64,
    /// All people.
    pub of: f64,
}

impl ObservedRate {
    /// Creates a rate from counts.
    #[must_use]
    pub fn new(did: u64, of: u64) -> Self {
        Self { did: did.min(of) as f64, of: of as f64 }
    }

    /// The rate; 0 without people.
    #[must_use]
    pub fn value(self) -> f64 {
        if self.of > 0.0 { self.did / self.of } else { 0.0 }
    }
}

/// A value with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct IntervalEstimate {
    /// The point estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Method of the interval: `Wilson`, `Newcombe` (difference), `Koopman` (uplift) or `beta` (posterior).
    pub method: &'static str,
}

/// A rate with Wilson's score interval (1927); `None` without people.
#[must_use]
pub fn wilson_interval(rate: ObservedRate) -> Option<IntervalEstimate> {
    if rate.of <= 0.0 {
        return None;
    }
    let (p, n, z2) = (rate.value(), rate.of, Z95 * Z95);
    let centre = p + z2 / (2.0 * n);
    let reach = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let end = |x: f64| (x / (1.0 + z2 / n)).clamp(0.0, 1.0);
    Some(IntervalEstimate { value: p, low: end(centre - reach), high: end(centre + reach), method: "Wilson" })
}

/// Difference of two rates with the interval from their Wilson intervals (Newcombe 1998, Statistics in Medicine
/// 17:873–890, method 10); `None` if a rate has no people.
#[must_use]
pub fn rate_difference(rate: ObservedRate, control: ObservedRate) -> Option<IntervalEstimate> {
    let (a, b) = (wilson_interval(rate)?, wilson_interval(control)?);
    let value = a.value - b.value;
    let low = value - (a.value - a.low).hypot(b.high - b.value);
    let high = value + (a.high - a.value).hypot(b.value - b.low);
    Some(IntervalEstimate { value, low, high, method: "Newcombe" })
}

/// Relative difference of two rates – 0.1 is ten percent more – with the score interval of their ratio (Koopman 1984,
/// Biometrics 40:513–517): the ratios that a score test at 5 % does not reject. The interval is valid for few people
/// too, and if no person or every person converted. Returns `None` if the control has no conversion: no ratio is too
/// high then.
#[must_use]
pub fn relative_difference(rate: ObservedRate, control: ObservedRate) -> Option<IntervalEstimate> {
    if rate.of <= 0.0 || control.did <= 0.0 {
        return None;
    }
    let found = rate.value() / control.value();
    let is_rejected = |ratio: f64| ratio_score(rate, control, ratio) > Z95 * Z95;
    let low = if rate.did > 0.0 { last_accepted(found, 0.5, is_rejected)? } else { 0.0 };
    // Without a conversion any start is valid. This one assumes one conversion among twice as many people.
    let start = if rate.did > 0.0 { found } else { 0.5 / rate.of / control.value() };
    let high = last_accepted(start, 2.0, is_rejected)?;
    Some(IntervalEstimate { value: found - 1.0, low: low - 1.0, high: high - 1.0, method: "Koopman" })
}

/// Score statistic of a ratio of two rates: the squared distance over its variance, with the most likely rates under
/// the ratio (Miettinen and Nurminen 1985, Statistics in Medicine 4:213–226, equation 10).
fn ratio_score(rate: ObservedRate, control: ObservedRate, ratio: f64) -> f64 {
    let (x, m, y, n) = (rate.did, rate.of, control.did, control.of);
    // Smaller root of (m + n) r p^2 - (u + v) p + x + y. Its discriminant is written as a sum of non-negative terms.
    let (u, v) = (ratio * (m + y), x + n);
    let discriminant = (u - v).powi(2) + 4.0 * ratio * (m - x) * (n - y);
    let p = (2.0 * (x + y) / (u + v + discriminant.sqrt())).min(1.0);
    let q = (ratio * p).min(1.0);
    let variance = q * (1.0 - q) / m + ratio * ratio * p * (1.0 - p) / n;
    let distance = (rate.value() - ratio * control.value()).powi(2);
    if distance > 0.0 { distance / variance } else { 0.0 }
}

/// The last value that is accepted on the way from `start` in steps of `factor`, where all later values are rejected.
fn last_accepted(start: f64, factor: f64, is_rejected: impl Fn(f64) -> bool) -> Option<f64> {
    const HALVINGS: usize = 60;
    let (mut accepted, mut end) = (start, start * factor);
    while !is_rejected(end) {
        (accepted, end) = (end, end * factor);
        if !(end.is_normal()) {
            return None;
        }
    }
    for _ in 0..HALVINGS {
        let middle = accepted.midpoint(end);
        *(if is_rejected(middle) { &mut end } else { &mut accepted }) = middle;
    }
    Some(accepted)
}

/// Comparison of the observed traffic split with the configured one.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, utoipa::ToSchema)]
pub struct SampleRatio {
    /// Pearson's statistic; null where it is infinite.
    #[schema(nullable)]
    pub chi_square: f64,
    /// Probability of a split that is at least as uneven.
    pub p: f64,
    /// Whether that probability is below the bound ([`MISMATCH`]), so that no result of the experiment is reliable.
    pub mismatch: bool,
}

/// Tests whether people were split in these proportions. Each group has its people, counted in the arm that they saw
/// first, and its share. Returns `None` without people or with fewer than two groups with a share. People in a group
/// without a share are a mismatch.
///
/// Reason for the first arm: two browsers of a person are assigned independently until they are linked, to arm `a` with
/// its share `s(a)` and to no arm with `o`. If people who saw several arms were left out, arm `a` would retain a part
/// of the people on two browsers in proportion to `s(a)^2 + 2 s(a) o`. That is too much for large arms: with unequal
/// shares, a correct split would look wrong. By the first arm, browser number `k` of a person is the first in an arm,
/// and that arm is `a`, with probability `o^(k-1) s(a)`. The sum over all `k` is in proportion to `s(a)`. All people by
/// their first arm are therefore a multinomial sample of the shares, as Pearson's test assumes, if the order of a
/// person's browsers does not depend on the arms. This is the rule to count units as they were assigned (Fabijan et al.
/// 2019, as above).
#[must_use]
pub fn sample_ratio(groups: &[(u64, u32)]) -> Option<SampleRatio> {
    let (people, shares) = groups.iter().fold((0, 0), |sum, (n, share)| (sum.0 + n, sum.1 + u64::from(*share)));
    let wanted = groups.iter().filter(|(_, share)| *share > 0).count();
    if groups.iter().any(|(n, share)| *n > 0 && *share == 0) {
        return Some(SampleRatio { chi_square: f64::INFINITY, p: 0.0, mismatch: true });
    }
    if people == 0 || wanted < 2 {
        return None;
    }
    let part = |(n, share): &(u64, u32)| {
        let expected = people as f64 * f64::from(*share) / shares as f64;
        (*n as f64 - expected).powi(2) / expected
    };
    let chi_square: f64 = groups.iter().filter(|(_, share)| *share > 0).map(part).sum();
    let p = ChiSquared::new(wanted as f64 - 1.0).ok()?.sf(chi_square);
    Some(SampleRatio { chi_square, p, mismatch: p < MISMATCH })
}

/// Posterior of a rate under a uniform prior: its mean and its central 95 % interval.
#[must_use]
pub fn posterior_interval(rate: ObservedRate) -> Option<IntervalEstimate> {
    let (a, b) = (1.0 + rate.did, 1.0 + (rate.of - rate.did).max(0.0));
    let [low, high] = [0.025, 0.975].map(|p| beta_quantile(a, b, p));
    Some(IntervalEstimate { value: a / (a + b), low: low?, high: high?, method: "beta" })
}

/// Number of people from which the beta distribution is replaced by an approximation.
const MANY: f64 = 2e6;
/// Number of people on the smaller side below which the approximation is a gamma distribution; otherwise it is a normal
/// distribution corrected for skewness (Cornish and Fisher 1938).
const FEW: f64 = 1e3;

/// Quantile of a beta distribution. The library's function does not terminate if one parameter is millions of times the
/// other.
fn beta_quantile(a: f64, b: f64, p: f64) -> Option<f64> {
    let n = a + b;
    if n < MANY {
        return Some(Beta::new(a, b).ok()?.inverse_cdf(p));
    }
    if b < a {
        return Some(1.0 - beta_quantile(b, a, 1.0 - p)?);
    }
    if a < FEW {
        return Some(Gamma::new(a, 1.0).ok()?.inverse_cdf(p) / (b + (a - 1.0) / 2.0));
    }
    let (mean, sd) = (a / n, (a * b / (n + 1.0)).sqrt() / n);
    let skewness = 2.0 * (b - a) * (n + 1.0).sqrt() / ((n + 2.0) * (a * b).sqrt());
    let z = Normal::standard().inverse_cdf(p);
    Some(mean + sd * (z + (z * z - 1.0) * skewness / 6.0))
}

/// Requirements of an experiment whose size is planned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerRequest {
    /// Rate of the control, between 0 and 1.
    pub base: f64,
    /// Least relative difference to detect: 0.1 is ten percent more.
    pub uplift: f64,
    /// Probability of reporting a difference that does not exist.
    pub alpha: f64,
    /// Probability of detecting a difference that exists.
    pub power: f64,
    /// Number of arms including the control, at least 2.
    pub arms: u32,
}

/// Reason why an experiment cannot be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The base rate, or the rate with the uplift, is not a valid rate.
    #[error(
        "invalid base rate or uplift: the base rate and the rate with its uplift must lie between 0 and 1, and differ"
    )]
    Rate,
    /// Alpha or power is out of range.
    #[error("invalid alpha or power: alpha must lie between 0 and 0.5, power between alpha and 1")]
    Chance,
    /// The number of arms is out of range.
    #[error(
        "invalid number of arms: expected 2 to {}, including the control",
        causeway_shared::base::limits::EXPERIMENT_ARMS
    )]
    Arms,
}

/// People needed in each arm to detect the difference from the control: two proportions, two-sided, normal
/// approximation (Fleiss, Levin, Paik 2003, "Statistical Methods for Rates and Proportions", section 4.3, without
/// continuity correction; R's `power.prop.test`). With several arms in addition to the control, alpha is divided among
/// them (Bonferroni).
///
/// # Errors
/// [`PlanError`].
pub fn people_an_arm(wanted: PowerRequest) -> Result<u64, PlanError> {
    let PowerRequest { base, uplift, alpha, power, arms } = wanted;
    let other = base * (1.0 + uplift);
    let is_rate = |p: f64| p > 0.0 && p < 1.0;
    if !is_rate(base) || !is_rate(other) || (other - base).abs() < 1e-12 {
        return Err(PlanError::Rate);
    }
    if !(alpha > 0.0 && alpha < 0.5 && power > alpha && power < 1.0) {
        return Err(PlanError::Chance);
    }
    if !(2..=causeway_shared::base::limits::EXPERIMENT_ARMS).contains(&(arms as usize)) {
        return Err(PlanError::Arms);
    }
    let z = |p: f64| Normal::standard().inverse_cdf(p);
    let each = alpha / f64::from(arms - 1);
    let spread = |p: f64| p * (1.0 - p);
    let (mean, both) = ((base + other) / 2.0, spread(base) + spread(other));
    let root = z(1.0 - each / 2.0) * (2.0 * spread(mean)).sqrt() + z(power) * both.sqrt();
    // The bound avoids integers that a float cannot represent.
    Ok(((root / (other - base)).powi(2)).ceil().min(9e15) as u64)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn near(found: IntervalEstimate, [value, low, high]: [f64; 3], within: f64) {
        for (found, published) in [(found.value, value), (found.low, low), (found.high, high)] {
            assert!((found - published).abs() <= within, "{found} for {published}");
        }
    }

    #[test]
    fn a_rate_over_many_millions_has_an_interval_too() {
        // Without a conversion the quantile is 1 - (1 - p)^(1 / b).
        let none = posterior_interval(ObservedRate::new(0, 8_000_000)).unwrap();
        let exact = |p: f64| 1.0 - (1.0 - p).powf(1.0 / 8_000_001.0);
        near(none, [1.25e-7, exact(0.025), exact(0.975)], 1e-12);
        let all = posterior_interval(ObservedRate::new(8_000_000, 8_000_000)).unwrap();
        near(all, [1.0 - 1.25e-7, 1.0 - exact(0.975), 1.0 - exact(0.025)], 1e-12);
        // The approximation continues the exact values. The library's quantile is accurate to 0.0005 of probability.
        for did in [0_u64, 3, 50, 300, 990, 1_100, 40_000, 900_000] {
            let ends = |of: u64| posterior_interval(ObservedRate::new(did, of)).map(|of| [of.low, of.high]).unwrap();
            let (below, above) = (ends(1_999_990), ends(2_000_010));
            let width = below[1] - below[0];
            for (below, above) in below.into_iter().zip(above) {
                assert!((below - above).abs() < width * 0.004, "{did}: {below} and {above} of {width}");
            }
        }
        for (did, of) in [(3, 8_000_000), (300, 90_000_000), (50_000_000, 100_000_000)] {
            let found = posterior_interval(ObservedRate::new(did, of)).unwrap();
            assert!(found.low < found.value && found.value < found.high && found.low > 0.0, "{found:?}");
        }
    }

    #[test]
    fn the_wilson_interval_is_that_of_newcombe_s_table() {
        // Newcombe 1998, Statistics in Medicine 17:857-872, table I, method 3.
        near(wilson_interval(ObservedRate::new(81, 263)).unwrap(), [81.0 / 263.0, 0.2553, 0.3662], 5e-5);
        near(wilson_interval(ObservedRate::new(15, 148)).unwrap(), [15.0 / 148.0, 0.0624, 0.1605], 5e-5);
        near(wilson_interval(ObservedRate::new(0, 20)).unwrap(), [0.0, 0.0, 0.1611], 5e-5);
        near(wilson_interval(ObservedRate::new(1, 29)).unwrap(), [1.0 / 29.0, 0.0061, 0.1718], 5e-5);
        assert_eq!(wilson_interval(ObservedRate::new(0, 0)), None);
    }

    #[test]
    fn the_interval_of_a_difference_equals_newcombes_table() {
        // Newcombe 1998, Statistics in Medicine 17:873-890, table II, method 10.
        let of = |a, m, b, n| rate_difference(ObservedRate::new(a, m), ObservedRate::new(b, n)).unwrap();
        near(of(56, 70, 48, 80), [0.2, 0.0524, 0.3339], 5e-5);
        near(of(9, 10, 3, 10), [0.6, 0.1705, 0.8090], 5e-5);
        near(of(6, 7, 2, 7), [4.0 / 7.0, 0.0582, 0.8062], 5e-5);
        near(of(5, 56, 0, 29), [5.0 / 56.0, -0.0381, 0.1926], 5e-5);
        near(of(0, 10, 0, 20), [0.0, -0.1611, 0.2775], 5e-5);
        near(of(10, 10, 0, 20), [1.0, 0.6791, 1.0], 5e-5);
    }

    #[test]
    fn the_relative_uplift_equals_the_published_example() {
        // Agresti, "Categorical Data Analysis", 2nd edition, 3.1.2: 189 of 11,034 against 104 of 11,037;
        // 1.82 (1.43, 2.30).
        let found = relative_difference(ObservedRate::new(189, 11_034), ObservedRate::new(104, 11_037)).unwrap();
        near(found, [0.82, 0.43, 1.30], 1e-2);
        // Koopman 1984: 36 of 40 against 16 of 80; 4.5 (2.94, 7.15).
        near(
            relative_difference(ObservedRate::new(36, 40), ObservedRate::new(16, 80)).unwrap(),
            [3.5, 1.94, 6.15],
            5e-3,
        );
        assert_eq!(found.method, "Koopman");
    }

    #[test]
    fn the_uplift_has_an_interval_where_all_convert_as_wide_as_few_people_make_it() {
        // If all people convert, the statistic is m (1 - r) / r below 1, and n (r - 1) above.
        let z2 = Z95 * Z95;
        for (m, n) in [(1_u64, 5_u64), (5, 1), (1, 1), (40, 90_000_000)] {
            let found = relative_difference(ObservedRate::new(m, m), ObservedRate::new(n, n)).unwrap();
            let (m, n) = (m as f64, n as f64);
            near(found, [0.0, m / (m + z2) - 1.0, z2 / n], 1e-9);
        }
        let one_sided = relative_difference(ObservedRate::new(5, 5), ObservedRate::new(2, 5)).unwrap();
        assert!(one_sided.low > 0.0 && one_sided.high > one_sided.value, "{one_sided:?}");
    }

    #[test]
    fn the_uplift_has_an_interval_where_nobody_converts_and_none_where_nobody_of_the_control_does() {
        let found = relative_difference(ObservedRate::new(0, 10), ObservedRate::new(5, 10)).unwrap();
        assert!(found.value == -1.0 && found.low == -1.0 && found.high > -0.7 && found.high < 0.1, "{found:?}");
        let many = relative_difference(ObservedRate::new(0, 1_000_000), ObservedRate::new(5_000, 1_000_000)).unwrap();
        assert!(many.high > -1.0 && many.high < -0.99, "{many:?}");
        for (rate, control) in [((1, 10), (0, 10)), ((0, 10), (0, 10)), ((0, 0), (1, 10)), ((1, 10), (0, 0))] {
            assert_eq!(
                relative_difference(ObservedRate::new(rate.0, rate.1), ObservedRate::new(control.0, control.1)),
                None
            );
        }
    }

    #[test]
    fn the_interval_of_the_uplift_holds_the_truth_in_about_95_of_100_experiments_with_few_people() {
        // Exact computation over all outcomes of two binomial distributions.
        let choose = |n: u64| {
            let next = |all: &mut Vec<f64>, k: u64| all.push(all[all.len() - 1] * (n - k) as f64 / (k + 1) as f64);
            (0..n).fold(vec![1.0], |mut all, k| {
                next(&mut all, k);
                all
            })
        };
        let chances = |n: u64, p: f64| -> Vec<f64> {
            let of = |(k, c): (usize, f64)| c * p.powi(k as i32) * (1.0 - p).powi((n as usize - k) as i32);
            choose(n).into_iter().enumerate().map(of).collect()
        };
        for (m, p, n, q) in [(10, 0.9, 12, 0.9), (8, 0.98, 20, 0.95), (15, 0.2, 30, 0.4), (30, 0.05, 30, 0.1)] {
            let (mut held, mut shown) = (0.0, 0.0);
            for (x, chance) in chances(m, p).into_iter().enumerate() {
                for (y, other) in chances(n, q).into_iter().enumerate() {
                    let Some(found) =
                        relative_difference(ObservedRate::new(x as u64, m), ObservedRate::new(y as u64, n))
                    else {
                        continue;
                    };
                    shown += chance * other;
                    held += if found.low <= p / q - 1.0 && p / q - 1.0 <= found.high { chance * other } else { 0.0 };
                }
            }
            assert!(held / shown > 0.92, "{m} {n}: {}", held / shown);
        }
    }

    #[test]
    fn an_uneven_split_is_detected_like_the_textbook_example() {
        // Kohavi, Tang, Xu, "Trustworthy Online Controlled Experiments", chapter 3: 821,588 against 815,482;
        // p = 1.8e-6.
        let found = sample_ratio(&[(821_588, 5_000), (815_482, 5_000)]).unwrap();
        assert!((found.p - 1.8e-6).abs() < 5e-8 && found.mismatch, "{found:?}");
        // The 99.9th percentile of two degrees of freedom is 13.816 (any table of the distribution).
        let found = sample_ratio(&[(1_000, 1), (1_000, 1), (1_210, 1)]).unwrap();
        assert!((found.chi_square - 27.48).abs() < 0.01 && found.mismatch);
        assert!(!sample_ratio(&[(5_050, 5_000), (4_950, 5_000)]).unwrap().mismatch);
        assert!(!sample_ratio(&[(1_010, 1_000), (8_990, 9_000)]).unwrap().mismatch);
        assert!(sample_ratio(&[(1, 0), (1_000, 5_000), (1_000, 5_000)]).unwrap().mismatch);
        assert_eq!([sample_ratio(&[]), sample_ratio(&[(5, 9)]), sample_ratio(&[(0, 9), (0, 9)])], [None; 3]);
    }

    #[test]
    fn the_posterior_is_the_beta_distribution_s() {
        // Beta(2, 2): F(x) = 3x^2 - 2x^3, whose 2.5th percentile is 0.09430.
        near(posterior_interval(ObservedRate::new(1, 2)).unwrap(), [0.5, 0.094_30, 0.905_70], 1e-5);
        // Beta(1, 4): 1 - (1 - x)^4.
        let end = |p: f64| 1.0 - (1.0 - p).powf(0.25);
        near(posterior_interval(ObservedRate::new(0, 3)).unwrap(), [0.2, end(0.025), end(0.975)], 1e-8);
    }

    #[test]
    fn the_sample_size_equals_power_prop_test() {
        let plan = |base, other: f64, power, arms| {
            people_an_arm(PowerRequest { base, uplift: other / base - 1.0, alpha: 0.05, power, arms })
        };
        // R, stats::power.prop.test, its own examples: n = 76.7 for 0.50 against 0.75 at power 0.90.
        assert_eq!(plan(0.5, 0.75, 0.9, 2), Ok(77));
        // The same function for 0.10 against 0.20 at power 0.80: n = 198.96.
        assert_eq!(plan(0.1, 0.2, 0.8, 2), Ok(199));
        assert!(plan(0.1, 0.2, 0.8, 3).unwrap() > 199, "alpha is shared among the arms");
        assert_eq!([plan(0.0, 0.1, 0.8, 2), plan(0.5, 0.5, 0.8, 2), plan(0.5, 1.5, 0.8, 2)], [Err(PlanError::Rate); 3]);
        assert_eq!([plan(0.1, 0.2, 1.0, 2), plan(0.1, 0.2, 0.01, 2)], [Err(PlanError::Chance); 2]);
        assert_eq!([plan(0.1, 0.2, 0.8, 1), plan(0.1, 0.2, 0.8, 17)], [Err(PlanError::Arms); 2]);
        assert_eq!(plan(f64::NAN, 0.2, 0.8, 2), Err(PlanError::Rate));
    }
}
