//! Intelligent selection (S4.11): Thompson sampling by probability matching. Of the traffic that is not the control's each
//! arm gets the share that equals its probability of being the best, as its Beta posterior says, and never less than a
//! floor.
//!
//! A conversion comes later than its exposure. Who was exposed a short while ago and has not converted says little, and
//! counts only in part: by the share of conversions that are due at that age, as observed ([`ConversionDelays`]). Otherwise the arm that
//! was given more traffic last would look the worst.
//!
//! Counts in, shares out: the same counts give the same shares. No random bits are needed, as the probabilities are
//! integrated and not drawn.

use causeway_shared::base::bucket::BUCKETS;

use super::person_results::DELAY_HOURS;
use super::statistics::ObservedRate;

/// What is known of one arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmState {
    /// Its share of 10,000 by the file.
    pub share: u32,
    /// Whether it is the control: its share is not touched.
    pub control: bool,
    /// People exposed, the recent ones in part ([`ConversionDelays::effective`]), and those of them who converted.
    pub rate: ObservedRate,
}

/// How shares are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BanditOptions {
    /// The least that an arm gets of what the arms without the control have together, in parts of 10,000.
    pub floor: u32,
}

impl Default for BanditOptions {
    /// A floor of one per cent: an arm that came out badly by chance is found again.
    fn default() -> Self {
        Self { floor: 100 }
    }
}

/// The shares from now on, one an arm in their order, of 10,000. The control's is that of the file, and so is the sum of
/// the others. An arm whose share in the file is 0 is out of the test and gets nothing.
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

/// Whole numbers of this sum, as near as can be: what is left after rounding down goes to the largest remainders, of equal
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

/// Points of the integral for each arm.
const POINTS: u32 = 64;
/// How far to either side of an arm's mean they reach, in its standard deviations.
const REACH: f64 = 6.0;

/// How probable each arm is the best: the integral of its posterior density times the other arms' distributions. Their sum
/// is 1.
///
/// It is taken over the union of points around each arm's mean (trapezoids), so that wide and narrow posteriors are both
/// met. Densities are normalised on these points.
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
    // Without any arm there is no sum; a sum of zero would need arms without a density.
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

/// A posterior on the points: how much of it lies below each.
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

    /// Between the point before and this one.
    fn mass(&self, k: usize) -> f64 {
        self.below(k) - self.below(k - 1)
    }
}

/// Which share of those who will convert have done so by which age, in whole hours, as observed.
///
/// Young exposures show only early conversions, so that a plain count of delays would take conversions for faster than they
/// are. This is the product-limit estimate for what is cut off on the right, in reverse time (Lagakos, Barraj, De Gruttola
/// 1988, Biometrika 75:515–523): of a delay it asks only those exposures that are old enough to have shown it. What takes
/// longer than the oldest exposure's age is unknown to it, and to anybody; of a delay that fewer than [`ASKED`] could have
/// shown nothing is known either: by the first alone, who had it, nobody would convert sooner.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversionDelays(Vec<f64>);

/// So many say how frequent a delay is.
const ASKED: u64 = 20;

impl ConversionDelays {
    /// From people who converted: hours since their exposure, hours from it to the conversion, how many people. Delays are
    /// [`DELAY_HOURS`] at most.
    #[must_use]
    pub fn new(converted: &[(u64, u64, u64)]) -> Self {
        let last = usize::try_from(DELAY_HOURS).unwrap_or(usize::MAX);
        let within = |hours: u64| usize::try_from(hours).map_or(last, |hours| hours.min(last));
        // How many had each delay; and of each delay, how many whose age reaches it had none longer.
        let (mut had, mut begin, mut end) = (vec![0_u64; last + 1], vec![0_u64; last + 2], vec![0_u64; last + 2]);
        for (age, delay, people) in converted {
            let (age, delay) = (within((*age).max(*delay)), within(*delay));
            let add = |to: &mut Vec<u64>, i: usize| to.iter_mut().skip(i).take(1).for_each(|n| *n += people);
            add(&mut had, delay);
            add(&mut begin, delay);
            add(&mut end, age + 1);
        }
        let mut asked = 0_u64;
        let asked: Vec<u64> = begin
            .iter()
            .zip(&end)
            .map(|(b, e)| {
                asked = asked + b - e;
                asked
            })
            .collect();
        let mut due = vec![1.0; last + 1];
        let mut above = 1.0;
        for ((due, had), asked) in due.iter_mut().zip(&had).zip(&asked).rev() {
            *due = above;
            if *asked >= ASKED {
                above *= 1.0 - *had as f64 / *asked as f64;
            }
        }
        Self(due)
    }

    /// The share due at an age in hours; 1 while nothing is known.
    #[must_use]
    pub fn at(&self, age: u64) -> f64 {
        usize::try_from(age).ok().and_then(|age| self.0.get(age)).copied().unwrap_or(1.0)
    }

    /// How many recipients the exposed of these ages count for: hours since the exposure, people, and how many of them
    /// converted. Who converted counts whole.
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
