#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::f64::consts::TAU;

use super::*;
use crate::base::bucket::{BucketPurpose, PersonRandom};
use crate::base::random;

const CASES: u32 = 10_000;
/// The size classes of the table in the module's documentation, by true share.
const CLASSES: [(f64, f64); 5] = [(0.000_1, 0.001), (0.001, 0.01), (0.01, 0.1), (0.1, 0.9), (0.9, 0.99)];

struct Draw(u64);

impl Draw {
    /// Uniform between 0 and 1, both excluded.
    fn unit(&mut self) -> f64 {
        ((random::next(&mut self.0) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// Log-uniform: each decade has the same probability.
    fn decades(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (TAU * self.unit()).cos()
    }

    /// Gamma distribution of a shape of at least 1 (Marsaglia and Tsang 2000).
    fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        loop {
            let x = self.normal();
            let v = (1.0 + x / (9.0 * d).sqrt()).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// Binomial distribution: how many of `n` are drawn with probability `p`. Exact, by halving `n` at the median of as
    /// many uniform numbers (Devroye, Non-Uniform Random Variate Generation, 1986, §X.4.4).
    fn binomial(&mut self, mut n: u64, mut p: f64) -> u64 {
        let mut drawn = 0;
        while n > 30 {
            let a = 1 + n / 2;
            let (x, y) = (self.gamma(a as f64), self.gamma((n - a + 1) as f64));
            let median = x / (x + y);
            if median >= p {
                n = a - 1;
                p /= median;
            } else {
                drawn += a;
                n -= a;
                p = (p - median) / (1.0 - median);
            }
        }
        drawn + (0..n).filter(|_| self.unit() < p).count() as u64
    }

    /// A population and the number of its people who match a filter of the class.
    fn filter(&mut self, (low, high): (f64, f64)) -> (u64, u64) {
        loop {
            let all = self.decades(1e4, 1e7) as u64;
            let share = if high < 0.5 { self.decades(low, high) } else { self.between(low, high) };
            let meant = (share * all as f64).round() as u64;
            if (low..high).contains(&(meant as f64 / all as f64)) {
                return (all, meant);
            }
        }
    }
}

fn look(all: u64, sampled: u64, found: u64) -> SampleResult {
    SampleResult::new(all, sampled, found).unwrap()
}

/// Wilson's interval as in textbooks, in whole people; without its `z`² terms it is Wald's.
fn textbook(look: &SampleResult, wilson: bool) -> (u64, u64) {
    let (all, n) = (look.population as f64, look.sampled as f64);
    let (p, m) = (look.found as f64 / n, n * (all - 1.0) / (all - n));
    let weight = if wilson { Z95 * Z95 / m } else { 0.0 };
    let reach = Z95 * (p * (1.0 - p) / m + weight / (4.0 * m)).sqrt();
    let end = |side: f64| (p + weight / 2.0 + side * reach) / (1.0 + weight) * all;
    (end(-1.0).max(0.0).floor() as u64, end(1.0).ceil() as u64)
}

fn holds(size: &AudienceSize, meant: u64) -> bool {
    (size.least..=size.most).contains(&meant)
}

#[test]
fn ten_million_people_are_estimated_from_a_sample_of_one_per_cent() {
    let size = look(10_000_000, 100_000, 11_302).size();
    assert_eq!(
        format!("{:.1} % ± {:.1} %", size.share.value * 100.0, size.share.half_width() * 100.0),
        "11.3 % ± 0.2 %"
    );
    assert_eq!((size.people, size.least, size.most), (1_130_200, 1_110_821, 1_149_873));
}

#[test]
fn the_interval_contains_the_true_count_in_every_size_class() {
    for (class, bounds) in CLASSES.into_iter().enumerate() {
        let mut draw = Draw(7);
        let (mut held, mut wald) = (0, 0);
        for _ in 0..CASES {
            let look = loop {
                let (all, meant) = draw.filter(bounds);
                let part = draw.decades(100.0, 5_000.0).round() / f64::from(BUCKETS);
                let found = draw.binomial(meant, part);
                let sampled = found + draw.binomial(all - meant, part);
                if sampled >= 100 {
                    break (look(all, sampled, found), meant);
                }
            };
            held += u32::from(holds(&look.0.size(), look.1));
            let (least, most) = textbook(&look.0, false);
            wald += u32::from((least..=most).contains(&look.1));
        }
        println!("class {class}: {:.1} %, Wald {:.1} %", f64::from(held) / 100.0, f64::from(wald) / 100.0);
        assert!((9_400..=9_700).contains(&held), "class {class}: {held} of {CASES}");
        assert!(class > 0 || wald < 8_500, "p ± 1.96 s would do as well: {wald} of {CASES}");
    }
}

/// The probability that the interval contains the truth, as the minimum over many true numbers.
fn least_coverage(all: u64, sampled: u64, logs: &[f64], interval: impl Fn(u64) -> (u64, u64)) -> f64 {
    let choose = |n: u64, k: u64| logs[n as usize] - logs[k as usize] - logs[(n - k) as usize];
    let intervals: Vec<_> = (0..=sampled).map(interval).collect();
    let (mut least, mut meant) = (1.0f64, 1u64);
    while meant < all {
        let expected = (u128::from(meant) * u128::from(sampled) / u128::from(all)) as u64;
        let reach = (8.0 * (expected as f64).sqrt()) as u64 + 20;
        let first = (meant + sampled).saturating_sub(all).max(expected.saturating_sub(reach));
        let held: f64 = (first..=(expected + reach).min(meant).min(sampled))
            .filter(|found| (intervals[*found as usize].0..=intervals[*found as usize].1).contains(&meant))
            .map(|found| (choose(meant, found) + choose(all - meant, sampled - found) - choose(all, sampled)).exp())
            .sum();
        least = least.min(held);
        meant += 1 + meant / 200;
    }
    least
}

#[test]
fn every_share_is_in_the_interval_of_at_least_93_per_cent_of_samples() {
    let mut logs = vec![0.0; 1_000_001];
    for n in 1..logs.len() {
        logs[n] = logs[n - 1] + (n as f64).ln();
    }
    for (all, samples) in [
        (10_000, vec![100, 200, 500, 1_000, 2_000, 5_000, 8_000]),
        (100_000, vec![100, 300, 1_000, 3_000, 10_000, 30_000, 80_000]),
        (1_000_000, vec![100, 1_000, 10_000, 100_000]),
    ] {
        for sampled in samples {
            let least = least_coverage(all, sampled, &logs, |found| {
                let size = look(all, sampled, found).size();
                (size.least, size.most)
            });
            assert!(least >= 0.93, "{sampled} of {all}: {least}");
        }
    }
    let wilson = least_coverage(1_000_000, 10_000, &logs, |found| textbook(&look(1_000_000, 10_000, found), true));
    assert!((0.84..0.86).contains(&wilson), "{wilson}");
}

/// Looks until the plan stops; returns the last look and the number of looks.
fn run(draw: &mut Draw, plan: &Plan, all: u64, meant: u64) -> (SampleResult, u32) {
    let (mut buckets, mut before, mut looks) = (plan.first(), 0, 0);
    let (mut found, mut others) = (0, 0);
    loop {
        let part = f64::from(buckets - before) / f64::from(BUCKETS - before);
        found += draw.binomial(meant - found, part);
        others += draw.binomial(all - meant - others, part);
        looks += 1;
        let look = look(all, found + others, found);
        match plan.next(buckets, &look) {
            Next::Stop => return (look, looks),
            Next::Grow { buckets: more } => {
                assert!(more > buckets && more <= BUCKETS);
                (before, buckets) = (buckets, more);
            }
        }
    }
}

#[test]
fn the_interval_contains_the_true_count_under_the_stopping_rule_too() {
    for (class, bounds) in CLASSES.into_iter().enumerate() {
        let mut draw = Draw(11);
        let (mut held, mut looks) = (0, 0);
        for _ in 0..CASES {
            let (all, meant) = draw.filter(bounds);
            let precision = draw.decades(0.000_5, 0.01);
            let (last, times) = run(&mut draw, &Plan::new(all, precision).unwrap(), all, meant);
            let size = last.size();
            assert!(size.share.half_width() <= precision);
            held += u32::from(holds(&size, meant));
            looks += times;
        }
        println!("class {class}: {:.1} %, {:.1} looks", f64::from(held) / 100.0, f64::from(looks) / f64::from(CASES));
        assert!((9_400..=9_700).contains(&held), "class {class}: {held} of {CASES}");
    }
}

#[test]
fn a_share_near_the_stopping_bound_is_in_the_interval_as_often() {
    let mut draw = Draw(13);
    let (all, plan) = (1_000_000, Plan::new(1_000_000, 0.002).unwrap());
    let mut least = usize::MAX;
    for step in 0..24 {
        let meant = (1_000.0 * 1.3f64.powi(step)) as u64;
        let held = (0..4_000).filter(|_| holds(&run(&mut draw, &plan, all, meant).0.size(), meant)).count();
        assert!(held >= 3_720, "{meant}: {held} of 4000");
        least = least.min(held);
    }
    println!("least {least} of 4000");
}

#[test]
fn a_plan_begins_with_one_per_cent_and_ends_with_everybody() {
    let plan = Plan::new(10_000_000, 0.002).unwrap();
    assert_eq!(plan.first(), 100);
    assert_eq!(plan.next(100, &look(10_000_000, 100_000, 11_302)), Next::Stop);
    assert_eq!(plan.next(100, &look(10_000_000, 100_000, 50_000)), Next::Grow { buckets: 200 });
    assert_eq!(plan.next(100, &look(10_000_000, 0, 0)), Next::Grow { buckets: 200 });
    // Enough buckets for 10,000 people, or all buckets for a smaller population.
    assert_eq!(Plan::new(40_000, 0.002).unwrap().first(), 2_500);
    assert_eq!(Plan::new(3_000, 0.002).unwrap().first(), BUCKETS);
    assert_eq!(Plan::new(0, 0.002).unwrap().first(), BUCKETS);
    let finest = Plan::new(10_000_000, *limits::PRECISION.start()).unwrap();
    assert_eq!(finest.next(6_400, &look(10_000_000, 6_400_000, 3_200_000)), Next::Grow { buckets: BUCKETS });
    assert_eq!(finest.next(BUCKETS, &look(10_000_000, 10_000_000, 5_000_000)), Next::Stop);
    for wrong in [0.0, -1.0, 0.000_009, 0.6, f64::NAN, f64::INFINITY] {
        assert_eq!(Plan::new(1_000, wrong), None, "{wrong}");
    }
}

#[test]
fn a_look_at_everybody_is_the_count_and_one_at_nobody_says_nothing() {
    let size = look(1_000, 1_000, 17).size();
    assert_eq!((size.least, size.people, size.most, size.share), (17, 17, 17, IntervalValue::exact(0.017)));
    let size = look(1_000, 0, 0).size();
    assert_eq!((size.least, size.most, size.share.low, size.share.high), (0, 1_000, 0.0, 1.0));
    assert_eq!(look(0, 0, 0).size().share, IntervalValue::exact(0.0));
    assert_eq!(SampleResult::new(10, 11, 0), None);
    assert_eq!(SampleResult::new(10, 5, 6), None);
}

#[test]
fn an_interval_leaves_out_nobody_who_was_seen() {
    let mut draw = Draw(3);
    for _ in 0..100_000 {
        let all = draw.decades(1.0, 1e12) as u64;
        let sampled = (draw.unit() * (all + 1) as f64) as u64;
        let found = (draw.unit() * (sampled + 1) as f64) as u64;
        let size = look(all, sampled, found).size();
        assert!(found <= size.least && size.least <= size.people, "{all} {sampled} {found}: {size:?}");
        assert!(size.people <= size.most && size.most <= all - (sampled - found), "{all} {sampled} {found}: {size:?}");
        assert!(size.share.low <= size.share.high && size.share.high <= 1.0);
        // The people who do not match are the mirror image.
        let others = look(all, sampled, sampled - found).size();
        assert!(sampled == 0 || (all - others.most).abs_diff(size.least) <= 1 + all / 1_000_000_000);
    }
}

/// The shares of cases in which the intervals of average and total contain the truth. The filter matches one of twenty
/// people, and a quarter of the population is sampled.
fn values(found: u64, cases: u32, mut value: impl FnMut(&mut Draw) -> i64) -> (f64, f64) {
    let mut draw = Draw(found);
    let (meant, part) = (found * 4, 0.25);
    let (mut means, mut totals) = (0, 0);
    for _ in 0..cases {
        let (mut moments, mut truth) = (Moments::default(), 0);
        for _ in 0..meant {
            let of = value(&mut draw);
            truth += i128::from(of);
            if draw.unit() < part {
                moments.add(of);
            }
        }
        let sampled = moments.found + draw.binomial(meant * 19, part);
        let look = look(meant * 20, sampled, moments.found);
        let within =
            |figure: Option<IntervalValue>, truth: f64| figure.is_some_and(|of| of.low <= truth && truth <= of.high);
        means += u32::from(within(look.mean(&moments), truth as f64 / meant as f64));
        totals += u32::from(within(look.total(&moments), truth as f64));
    }
    println!("{found} found: mean {means}, total {totals} of {cases}");
    (f64::from(means) / f64::from(cases), f64::from(totals) / f64::from(cases))
}

#[test]
fn averages_and_totals_of_spend_hold_the_truth() {
    let spend = |sigma: f64| move |draw: &mut Draw| ((sigma * draw.normal()).exp() * 20e6) as i64;
    for (sigma, found, cases, mean, total) in [
        (1.0, 10, 4_000, 0.83, 0.92),
        (1.0, 30, 4_000, 0.87, 0.92),
        (1.0, 100, 3_000, 0.90, 0.92),
        (1.0, 1_000, 600, 0.92, 0.92),
        (1.5, 10, 4_000, 0.73, 0.83),
        (1.5, 100, 3_000, 0.84, 0.87),
        (1.5, 1_000, 600, 0.90, 0.91),
    ] {
        let (means, totals) = values(found, cases, spend(sigma));
        assert!(means >= mean && totals >= total, "{sigma} {found}: {means} {totals}");
    }
    // Values of both signs that nearly cancel out.
    let (means, totals) = values(30, 4_000, |draw| (draw.normal() * 1e6) as i64 + 50_000);
    assert!((0.93..0.97).contains(&means) && (0.93..0.97).contains(&totals), "{means} {totals}");
}

#[test]
fn a_total_of_ones_is_the_number_of_people() {
    let mut moments = Moments::default();
    (0..11_302).for_each(|_| moments.add(1));
    let look = look(10_000_000, 100_000, 11_302);
    let (total, size) = (look.total(&moments).unwrap(), look.size());
    assert!((total.value - 1_130_200.0).abs() < 1e-3);
    assert!((total.low - size.least as f64).abs() < 5.0 && (total.high - size.most as f64).abs() < 5.0, "{total:?}");
    let mean = look.mean(&moments).unwrap();
    assert!((mean.value - 1.0).abs() < 1e-9 && mean.half_width() < 1e-6);
    // Negative values give the mirrored total.
    let mut debts = Moments::default();
    (0..11_302).for_each(|_| debts.add(-1));
    let owed = look.total(&debts).unwrap();
    assert_eq!((owed.value, owed.low, owed.high), (-total.value, -total.high, -total.low));
}

#[test]
fn too_little_gives_no_interval() {
    let of = |values: &[i64]| {
        let mut moments = Moments::default();
        values.iter().for_each(|value| moments.add(*value));
        moments
    };
    let some = look(1_000, 100, 2);
    for few in [of(&[]), of(&[5]), of(&[1, 2, 3])] {
        assert_eq!((some.mean(&few), some.total(&few)), (None, None), "{few:?}");
    }
    // Two values give a very wide interval.
    let two = some.total(&of(&[5, 9])).unwrap();
    assert!(two.value == 140.0 && two.low < 30.0 && two.high > 1_000.0, "{two:?}");
    let nought = some.total(&of(&[0, 0])).unwrap();
    assert_eq!(nought, IntervalValue::exact(0.0));
    // The largest values, and squares that overflow.
    assert!(some.mean(&of(&[i64::MAX, i64::MIN])).is_some_and(|mean| mean.half_width().is_finite()));
    assert_eq!(some.mean(&Moments { squares: u128::MAX, ..of(&[5, 9]) }), None);
    // The sample is the whole population.
    let all = look(100, 100, 1);
    assert_eq!(
        (all.mean(&of(&[5])), all.total(&of(&[5]))),
        (Some(IntervalValue::exact(5.0)), Some(IntervalValue::exact(5.0)))
    );
    assert_eq!((all.mean(&of(&[])), all.total(&of(&[]))), (None, Some(IntervalValue::exact(0.0))));
}

#[test]
fn the_share_reachable_among_members_holds_the_truth() {
    let mut draw = Draw(5);
    let mut held = 0;
    for _ in 0..CASES {
        let meant = draw.decades(100.0, 1e5) as u64;
        let reachable = draw.binomial(meant, draw.0 as f64 / u64::MAX as f64);
        let part = draw.decades(0.05, 0.5);
        let both = draw.binomial(reachable, part);
        let found = both + draw.binomial(meant - reachable, part);
        let others = draw.binomial(1_000_000, part);
        let truth = reachable as f64 / meant as f64;
        let ratio = look(1_000_000 + meant, found + others, found).ratio(both);
        held += u32::from(ratio.is_some_and(|of| of.low <= truth && truth <= of.high));
    }
    assert!((9_400..=9_750).contains(&held), "{held} of {CASES}");
    assert_eq!(look(1_000, 100, 0).ratio(0), None);
    assert_eq!(look(1_000, 100, 5).ratio(6), None);
    assert_eq!(look(1_000, 1_000, 5).ratio(1), Some(IntervalValue::exact(0.2)));
    assert!(look(1_000, 999, 1).ratio(1).unwrap().half_width() > 0.0);
}

#[test]
fn student_is_as_in_the_tables() {
    for (freedom, table) in
        [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (30, 2.042), (1_000_000, 1.960)]
    {
        assert!((student(freedom).unwrap() / table - 1.0).abs() < 0.001_5, "{freedom}");
    }
    assert_eq!(student(0), None);
}

/// One person of ten buys; a message, sent to one of twenty by the buckets of `purpose`, makes it two of ten. Returns
/// how many tenths of the sampling buckets give an interval that contains the true number of buyers.
fn tenths_that_hold(purpose: BucketPurpose<'_>) -> usize {
    let mut draw = Draw(17);
    let (all, mut buyers) = (100_000, 0);
    let mut tenths = [(0, 0); 10];
    for n in 0..all {
        let person = PersonRandom(u128::from(n).to_be_bytes());
        let sent = person.bucket(purpose) < 500;
        let buys = u64::from(draw.unit() < if sent { 0.2 } else { 0.1 });
        let tenth = &mut tenths[usize::from(person.bucket(BucketPurpose::Sampling)) / 1_000];
        *tenth = (tenth.0 + 1, tenth.1 + buys);
        buyers += buys;
    }
    let held = tenths.map(|(sampled, found)| holds(&look(all, sampled, found).size(), buyers));
    // All recipients of the message are in the first tenth.
    assert_eq!(held[0], purpose != BucketPurpose::Sampling);
    held.into_iter().filter(|held| *held).count()
}

#[test]
fn sends_that_draw_by_the_sampling_bucket_would_bias_every_estimate() {
    assert!(tenths_that_hold(BucketPurpose::Send("e-1")) >= 9);
    assert!(tenths_that_hold(BucketPurpose::Sampling) <= 7);
}
