//! Sample-ratio test on simulated experiments with people on one or two browsers.

use causeway_shared::base::random;
use causeway_shared::targeting::experiment::Arm;
use statrs::function::gamma::ln_gamma;

use super::*;

/// Share of people on two browsers that were not linked when they were assigned.
const TWO_BROWSERS: f64 = 0.15;
/// Simulated experiments of each case.
const RUNS: u32 = 2_000;

/// Uniform random numbers between 0 and 1.
struct UniformDraws(u64);

impl UniformDraws {
    fn next(&mut self) -> f64 {
        (random::next(&mut self.0) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Draws from a binomial distribution by inversion, from the mode outwards.
    fn binomial(&mut self, n: u64, p: f64) -> u64 {
        if n == 0 || p <= 0.0 || p >= 1.0 {
            return if p >= 1.0 { n } else { 0 };
        }
        let (size, odds) = (n as f64, p / (1.0 - p));
        let mode = ((size + 1.0) * p).floor().min(size);
        let ln_choose = ln_gamma(size + 1.0) - ln_gamma(mode + 1.0) - ln_gamma(size - mode + 1.0);
        let likeliest = (ln_choose + mode * p.ln() + (size - mode) * (1.0 - p).ln()).exp();
        let mut left = self.next() - likeliest;
        let (mut low, mut high) = ((mode, likeliest), (mode, likeliest));
        while left > 0.0 && (low.1 > 0.0 || high.1 > 0.0) {
            low = (low.0 - 1.0, low.1 * low.0 / ((size - low.0 + 1.0) * odds));
            left -= low.1;
            if left <= 0.0 {
                return low.0 as u64;
            }
            high = (high.0 + 1.0, high.1 * (size - high.0) * odds / (high.0 + 1.0));
            left -= high.1;
        }
        high.0 as u64
    }

    /// Draws from a multinomial distribution; the probabilities sum to 1.
    fn multinomial(&mut self, mut n: u64, chances: &[f64]) -> Vec<u64> {
        let mut rest = 1.0;
        let mut draw = |chance: &f64| {
            let drawn = self.binomial(n, (chance / rest).min(1.0));
            (n, rest) = (n - drawn, rest - chance);
            drawn
        };
        chances.iter().map(&mut draw).collect()
    }
}

/// Simulates an experiment with `people` people and these shares of 10,000; the rest is outside the experiment.
fn experiment(people: u64, shares: [f64; 2], numbers: &mut UniformDraws) -> ArmHours {
    let [a, b] = shares.map(|share| share / 10_000.0);
    let chances = [a, b, 1.0 - a - b];
    let two = numbers.binomial(people, TWO_BROWSERS);
    let one = numbers.multinomial(people - two, &chances);
    let both: Vec<f64> = chances.iter().flat_map(|first| chances.map(|second| first * second)).collect();
    let both = numbers.multinomial(two, &both);
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    let mut count = |arm: i64, people: u64| *counts.entry(arm).or_default() += signed(people);
    count(1, one[0]);
    count(2, one[1]);
    for (at, people) in both.into_iter().enumerate() {
        match (at / 3 + 1, at % 3 + 1) {
            (3, 3) => {}
            (3, arm) | (arm, 3) => count(arm as i64, people),
            (first, second) if first == second => count(first as i64, people),
            (first, _) => count(person_results::mixed_arm(first as u8), people),
        }
    }
    let hour = |exposed| BTreeMap::from([(HourStamp(9), HourSums { exposed, ..HourSums::default() })]);
    let arms = counts.into_iter().map(|(arm, exposed)| (arm, hour(exposed))).collect();
    ArmHours { arms, due: ConversionDelays::new(&[]), now: HourStamp(99) }
}

/// Share of runs that report a mismatch with `shares` when people were assigned by `dealt`.
fn alarms(people: u64, shares: [u32; 2], dealt: [f64; 2], seed: u64) -> f64 {
    let arm = |code: u8, share| Arm { id: format!("arm-{code}"), code, share, control: code == 1 };
    let arms = vec![arm(1, shares[0]), arm(2, shares[1])];
    let conversion = "purchase".to_owned();
    let of = Experiment { id: "e".to_owned(), code: 4, arms, conversion, selection: false, starts: 0, ends: None };
    let mut numbers = UniformDraws(seed);
    let mut alarm = || experiment(people, dealt, &mut numbers).sample_ratio(&of, HourStamp(0)).unwrap().mismatch;
    f64::from((0..RUNS).map(|_| u32::from(alarm())).sum::<u32>()) / f64::from(RUNS)
}

const SHARES: [[u32; 2]; 3] = [[9_000, 1_000], [5_000, 1_500], [5_000, 5_000]];

#[test]
fn people_on_two_browsers_raise_no_false_alarm_about_the_split() {
    for shares in SHARES {
        for people in [5_000, 20_000, 100_000] {
            let found = alarms(people, shares, shares.map(f64::from), people);
            assert!(found <= 0.01, "{people} people, {shares:?}: {found}");
        }
    }
}

#[test]
fn a_split_that_is_wrong_by_a_twentieth_is_found_among_100_000_people() {
    for shares in SHARES {
        let [a, b] = shares.map(f64::from);
        for wrong in [0.95, 1.05] {
            let found = alarms(100_000, shares, [a + b - b * wrong, b * wrong], 7);
            assert!(found >= 0.95, "{shares:?} {wrong}: {found}");
        }
    }
}

#[test]
fn the_simulated_numbers_are_those_of_their_distribution() {
    let mut numbers = UniformDraws(3);
    for (n, p) in [(9_u64, 0.3), (15_000, 0.01), (85_000, 0.9)] {
        let drawn: Vec<f64> = (0..20_000).map(|_| numbers.binomial(n, p) as f64).collect();
        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        let (expected, spread) = (n as f64 * p, n as f64 * p * (1.0 - p));
        assert!((mean - expected).abs() < 4.0 * (spread / 20_000.0).sqrt(), "{n} {p}: {mean}");
        assert!((variance / spread - 1.0).abs() < 0.05, "{n} {p}: {variance}");
    }
}
