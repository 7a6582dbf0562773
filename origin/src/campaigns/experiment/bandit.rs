//! Intelligent selection: Thompson sampling by probability matching. Each arm gets the share of the non-control traffic
//! that equals its probability of being the best arm according to its Beta posterior, but at least a floor.
//!
//! A conversion comes later than its exposure. A recently exposed person without a conversion is therefore weak
//! evidence, and counts only by the observed share of conversions that are due at that age ([`ConversionDelays`]).
//! Otherwise the arm with the most recent traffic would look worst.
//!
//! The same counts give the same shares: probabilities are integrated, not drawn, so no random bits are needed.

use causeway_shared::base::bucket::BUCKETS;

use super::person_results::DELAY_HOURS;
use super::statistics::ObservedRate;

/// State of one arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmState {
    /// The arm's configured share, in parts of 10,000.
    pub share: u32,
    /// Whether the arm is the control, whose share never changes.
    pub control: bool,
    /// Exposed people and converted people. Recent exposures count in part ([`ConversionDelays::effective`]).
    pub rate: ObservedRate,
}

/// Options of the selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BanditOptions {
    /// Least share of a non-control arm, in parts of 10,000 of the traffic of all non-control arms.
    pub floor: u32,
}

impl Default for BanditOptions {
    /// A floor of one percent, so that an arm with a bad start by chance can recover.
    fn default() -> Self {
        Self { floor: 100 }
    }
}

/// The new shares, one for each arm in order, in parts of 10,000. The control retains its configured share, and the
/// other arms together retain theirs. An arm with a configured share of 0 is out of the test and gets nothing.
#[must_use]
pub fn choose_shares(arms: &[ArmState], options: &BanditOptions) -> Vec<u32> {
    let plays = |arm: &&ArmState| !arm.control && arm.share > 0;
    let playing: Vec<ObservedRate> = arms.iter().filter(plays).map(|arm| arm.rate).collect();
    let total: u32 = arms.iter().filter(plays).fold(0, |sum, arm| sum.saturating_add(arm.share));
    let total = total.min(BUCKETS.into());
    let floor = (f64::from(options.floor) / f64::from(BUCKETS)).min(1.0 / playing.len().max(1) as f64);
    let rest = 1.0 - floor * playing.len() as f64;
    let wanted: Vec<f64> =
        best_chances(&playing).into_iter().map(|best| f64::from(total) * (floor + rest * best)).collect();
    let mut chosen = round_shares(&wanted, total).into_iter();
    arms.iter().map(|arm| if plays(&arm) { chosen.next().unwrap_or(0) } else { arm.share }).collect()
}

/// Rounds to integers with the given sum. The rest after rounding down goes to the largest remainders, and among equal
/// ones to the first.
fn round_shares(wanted: &[f64], total: u32) -> Vec<u32> {
    let mut down: Vec<u32> = wanted.iter().map(|share| share.floor().max(0.0) as u32).collect();
    let left = total.saturating_sub(down.iter().sum());
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let remainder = |i: &usize| wanted.get(*i).map_or(0.0, |share| share.fract());
    order.sort_by(|a, b| remainder(b).total_cmp(&remainder(a)));
    for i in order.into_iter().cycle().take(left as usize) {
        down.iter_mut().skip(i).take(1).for_each(|share| *share += 1);
    }
    down
}

/// Grid points for each arm.
const POINTS: u32 = 64;
/// Half width of an arm's grid around its mean, in standard deviations.
const REACH: f64 = 6.0;

/// Probability of each arm to be the best: the integral of its posterior density times the distribution functions of
/// the other arms. The probabilities sum to 1.
///
/// The integral uses the trapezoidal rule on the union of all arms' grids, so that it resolves narrow and wide
/// posteriors alike. Densities are normalised on this grid.
#[must_use]
pub fn best_chances(arms: &[ObservedRate]) -> Vec<f64> {
    let points = grid_points(arms);
    let curves: Vec<PosteriorCurve> = arms.iter().map(|arm| PosteriorCurve::of(*arm, &points)).collect();
    let mut found: Vec<f64> = Vec::with_capacity(arms.len());
    for (own, curve) in curves.iter().enumerate() {
        let others = || curves.iter().enumerate().filter(|(i, _)| *i != own).map(|(_, curve)| curve);
        let at = |k: usize| others().fold(1.0, |product, other| product * other.below(k));
        let steps = 1..points.len();
        found.push(steps.map(|k| curve.mass(k) * (at(k - 1) + at(k)) / 2.0).sum());
    }
    let sum: f64 = found.iter().sum();
    // The sum is 0 only without arms, or if no arm has a density on the grid.
    found.iter().map(|p| if sum > 0.0 { p / sum } else { 1.0 / found.len() as f64 }).collect()
}

fn beta_parameters(rate: ObservedRate) -> (f64, f64) {
    (1.0 + rate.did, 1.0 + (rate.of - rate.did).max(0.0))
}

fn grid_points(arms: &[ObservedRate]) -> Vec<f64> {
    let mut points = Vec::with_capacity(arms.len() * POINTS as usize);
    for (a, b) in arms.iter().map(|arm| beta_parameters(*arm)) {
        let (mean, sum) = (a / (a + b), a + b);
        let deviation = (mean * (1.0 - mean) / (sum + 1.0)).sqrt();
        for i in 0..=POINTS {
            let x = mean + (2.0 * f64::from(i) / f64::from(POINTS) - 1.0) * REACH * deviation;
            points.push(x.clamp(1e-12, 1.0 - 1e-12));
        }
    }
    points.sort_by(f64::total_cmp);
    points.dedup();
    points
}

/// Distribution function of a posterior at the grid points.
struct PosteriorCurve(Vec<f64>);

impl PosteriorCurve {
    fn of(arm: ObservedRate, points: &[f64]) -> Self {
        let (a, b) = beta_parameters(arm);
        let log = |x: &f64| (a - 1.0) * x.ln() + (b - 1.0) * (-x).ln_1p();
        let logs: Vec<f64> = points.iter().map(log).collect();
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut below = 0.0;
        let mut before: Option<(f64, f64)> = None;
        let mut sums: Vec<f64> = Vec::with_capacity(points.len());
        for (x, log) in points.iter().zip(logs) {
            let density = (log - top).exp();
            below += before.map_or(0.0, |(x0, d0)| (density + d0) / 2.0 * (x - x0));
            before = Some((*x, density));
            sums.push(below);
        }
        sums.iter_mut().for_each(|sum| *sum /= if below > 0.0 { below } else { 1.0 });
        Self(sums)
    }

    fn below(&self, k: usize) -> f64 {
        self.0.get(k).copied().unwrap_or(1.0)
    }

    /// Probability between the previous grid point and this one.
    fn mass(&self, k: usize) -> f64 {
        self.below(k) - self.below(k - 1)
    }
}

/// Observed share of converting people who have converted by an age, in whole hours.
///
/// Recent exposures show only early conversions, so that a plain count of delays would underestimate delays. This is
/// the product-limit estimate for right truncation, in reverse time (Lagakos, Barraj, De Gruttola 1988, Biometrika
/// 75:515–523): the frequency of a delay is estimated only from exposures that are old enough to show it. Delays longer
/// than the oldest exposure are unknown. A delay that fewer than [`ASKED`] exposures could show counts as unknown too:
/// if a single person decided, its long delay would make early conversions improbable.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversionDelays(Vec<f64>);

/// Least number of people from which the frequency of a delay is estimated.
const ASKED: u64 = 20;

impl ConversionDelays {
    /// Estimates from converted people: each entry has the hours since the exposure, the hours from the exposure to the
    /// conversion (at most [`DELAY_HOURS`]), and the number of people.
    #[must_use]
    pub fn new(converted: &[(u64, u64, u64)]) -> Self {
        let last = usize::try_from(DELAY_HOURS).unwrap_or(usize::MAX);
        let within = |hours: u64| usize::try_from(hours).map_or(last, |hours| hours.min(last));
        // People with each delay, and for each delay the people old enough to show it whose delay was not longer.
        let (mut had, mut begin, mut end) = (vec![0_u64; last + 1], vec![0_u64; last + 2], vec![0_u64; last + 2]);
        for (age, delay, people) in converted {
            let (age, delay) = (within((*age).max(*delay)), within(*delay));
            let add = |to: &mut Vec<u64>, i: usize| to.iter_mut().skip(i).take(1).for_each(|n| *n += people);
            add(&mut had, delay);
            add(&mut begin, delay);
            add(&mut end, age + 1);
        }
        let mut at_risk = 0_u64;
        let at_risk: Vec<u64> = begin
            .iter()
            .zip(&end)
            .map(|(b, e)| {
                at_risk = at_risk + b - e;
                at_risk
            })
            .collect();
        let mut due = vec![1.0; last + 1];
        let mut above = 1.0;
        for ((due, had), at_risk) in due.iter_mut().zip(&had).zip(&at_risk).rev() {
            *due = above;
            if *at_risk >= ASKED {
                above *= 1.0 - *had as f64 / *at_risk as f64;
            }
        }
        Self(due)
    }

    /// Share of conversions that are due at an age in hours; 1 if there is no data.
    #[must_use]
    pub fn at(&self, age: u64) -> f64 {
        usize::try_from(age).ok().and_then(|age| self.0.get(age)).copied().unwrap_or(1.0)
    }

    /// Effective number of recipients in cohorts: each has the hours since the exposure, the people, and the converted
    /// people. Converted people count fully.
    #[must_use]
    pub fn effective(&self, cohorts: impl IntoIterator<Item = (u64, u64, u64)>) -> ObservedRate {
        cohorts.into_iter().fold(ObservedRate { did: 0.0, of: 0.0 }, |sum, (age, people, converted)| {
            let did = converted.min(people) as f64;
            ObservedRate { did: sum.did + did, of: sum.of + did + (people as f64 - did) * self.at(age) }
        })
    }
}

#[cfg(test)]
mod tests;
