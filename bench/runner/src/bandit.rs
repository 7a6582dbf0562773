//! `bandit`: the regret of intelligent selection in simulated experiments, compared with an even split, epsilon-greedy
//! and UCB1 in the same experiments.
//!
//! One run has four arms with random conversion rates, lasts three days, and exposes new people every minute. A
//! conversion follows after six hours on average. Each policy chooses the traffic allocation once a minute from the
//! same state: the exposed people, recent ones in part, and the conversions until now. Regret is the expected number of
//! conversions that are lost because not all people were shown the best arm.

use anyhow::{Result, ensure};
use causeway_origin::campaigns::experiment::bandit::{
    ArmState, BanditOptions as Selection, ConversionDelays, choose_shares,
};
use causeway_origin::campaigns::experiment::statistics::ObservedRate;
use clap::Args;

use crate::random::Random;
use crate::report::{self, Bar, Line};
use crate::stop::Stop;

const BENCH: &str = "bandit";
const ARMS: usize = 4;
const HOUR: usize = 60;
const MINUTES: usize = 3 * 24 * HOUR;
/// New people per minute.
const PEOPLE: u64 = 40;
/// Mean of the exponential time from exposure to conversion, in minutes.
const DELAY: f64 = 360.0;
/// Range of the uniformly distributed conversion rate of an arm.
const RATES: (f64, f64) = (0.02, 0.06);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of simulated experiments.
    #[arg(long, default_value_t = 1_000)]
    runs: u64,
}

/// A policy that chooses the traffic allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Thompson,
    Even,
    EpsilonGreedy,
    Ucb1,
}

const PEERS: [(&str, Policy); 3] =
    [("even split", Policy::Even), ("epsilon-greedy", Policy::EpsilonGreedy), ("UCB1", Policy::Ucb1)];

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    ensure!(options.runs > 0, "no runs, no figures");
    let ours = simulated(Policy::Thompson, options.runs, stop)?;
    let line =
        |case: &str, value, unit, peer, bar| Line { bench: BENCH, case: case.to_owned(), value, unit, peer, bar };
    report::print(&line("regret", ours.regret, "/1000 people", None, None), json);
    for (name, policy) in PEERS {
        let theirs = simulated(policy, options.runs, stop)?;
        let peer = |value| Some((name.to_owned(), value));
        let bar = (policy == Policy::Even).then_some(Bar::AtMost(0.5));
        report::print(&line("regret", ours.regret, "/1000 people", peer(theirs.regret), bar), json);
        report::print(&line("best arm found", ours.found, "% of runs", peer(theirs.found), None), json);
    }
    Ok(())
}

/// Means over all runs.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    /// Lost conversions per thousand people.
    regret: f64,
    /// Share of runs that end with the best arm in front, in percent.
    found: f64,
}

fn simulated(policy: Policy, runs: u64, stop: &Stop) -> Result<Outcome> {
    let mut sum = Outcome::default();
    for run in 0..runs {
        stop.check()?;
        let one = World::new(run).play(policy);
        sum.regret += one.regret;
        sum.found += one.found;
    }
    Ok(Outcome { regret: sum.regret / runs as f64, found: 100.0 * sum.found / runs as f64 })
}

/// One simulated experiment, equal for all policies except for the allocation.
struct World {
    random: Random,
    rates: [f64; ARMS],
    /// Exposed people and conversions until now, by arm and hour of the exposure.
    cohorts: [Vec<(u64, u64)>; ARMS],
    /// Future conversions by minute, as (arm, minute of the exposure).
    coming: Vec<Vec<(usize, usize)>>,
    /// Conversions by hour of the exposure and delay in hours.
    delays: std::collections::BTreeMap<(usize, usize), u64>,
}

impl World {
    fn new(run: u64) -> Self {
        let mut random = Random::of(run);
        let (low, high) = RATES;
        let rates = std::array::from_fn(|_| low + (high - low) * random.unit());
        let cohorts = std::array::from_fn(|_| vec![(0, 0); MINUTES / HOUR]);
        Self { random, rates, cohorts, coming: vec![Vec::new(); MINUTES], delays: std::collections::BTreeMap::new() }
    }

    fn play(mut self, policy: Policy) -> Outcome {
        let best = self.rates.iter().copied().fold(0.0, f64::max);
        let (mut lost, mut people) = (0.0, 0.0);
        let mut due = ConversionDelays::new(&[]);
        for minute in 0..MINUTES {
            self.convert(minute);
            if minute % HOUR == 0 {
                due = self.due(minute / HOUR);
            }
            let state = self.state(&due, minute / HOUR);
            let chosen = self.choose(policy, &state);
            for _ in 0..PEOPLE {
                let arm = self.draw(&chosen);
                self.expose(arm, minute);
                lost += best - self.rates[arm];
                people += 1.0;
            }
        }
        let state = self.state(&due, MINUTES / HOUR);
        let value = |arm: &usize| state[*arm].rate.value();
        let ahead = (0..ARMS).max_by(|a, b| value(a).total_cmp(&value(b))).unwrap_or_default();
        let found = if self.rates[ahead] >= best { 1.0 } else { 0.0 };
        Outcome { regret: 1_000.0 * lost / people, found }
    }

    fn convert(&mut self, minute: usize) {
        for (arm, exposed) in std::mem::take(&mut self.coming[minute]) {
            self.cohorts[arm][exposed / HOUR].1 += 1;
            *self.delays.entry((exposed / HOUR, (minute - exposed) / HOUR)).or_default() += 1;
        }
    }

    fn due(&self, hour: usize) -> ConversionDelays {
        let delay =
            |((exposed, delay), people): (&(usize, usize), &u64)| ((hour - exposed) as u64, *delay as u64, *people);
        ConversionDelays::new(&self.delays.iter().map(delay).collect::<Vec<_>>())
    }

    fn state(&self, due: &ConversionDelays, hour: usize) -> Vec<ArmState> {
        let rate = |cohorts: &Vec<(u64, u64)>| {
            let so_far = cohorts.iter().enumerate().take(hour + 1);
            due.effective(so_far.map(|(exposed, (people, did))| ((hour - exposed) as u64, *people, *did)))
        };
        let share = 10_000 / ARMS as u32;
        self.cohorts.iter().map(|cohorts| ArmState { share, control: false, rate: rate(cohorts) }).collect()
    }

    fn choose(&mut self, policy: Policy, state: &[ArmState]) -> Vec<u32> {
        let only = |arm: usize, rest: u32| -> Vec<u32> {
            (0..ARMS).map(|i| rest / ARMS as u32 + if i == arm { 10_000 - rest } else { 0 }).collect()
        };
        let greatest = |value: &dyn Fn(ObservedRate) -> f64| {
            let value = |arm: &usize| value(state[*arm].rate);
            (0..ARMS).max_by(|a, b| value(a).total_cmp(&value(b)).then(b.cmp(a))).unwrap_or_default()
        };
        match policy {
            Policy::Thompson => choose_shares(state, &Selection::default()),
            Policy::Even => only(0, 10_000),
            // Auer, Cesa-Bianchi, Fischer 2002, "Finite-time Analysis of the Multiarmed Bandit Problem": one person in
            // ten explores.
            Policy::EpsilonGreedy => only(greatest(&ObservedRate::value), 1_000),
            // UCB1 of the same paper; an arm without exposures comes first.
            Policy::Ucb1 => {
                let all: f64 = state.iter().map(|arm| arm.rate.of).sum();
                let bound = |rate: ObservedRate| {
                    if rate.of < 1.0 {
                        f64::INFINITY
                    } else {
                        rate.value() + (2.0 * all.max(1.0).ln() / rate.of).sqrt()
                    }
                };
                only(greatest(&bound), 0)
            }
        }
    }

    fn draw(&mut self, shares: &[u32]) -> usize {
        let mut left = self.random.below(10_000);
        for (arm, share) in shares.iter().enumerate() {
            match left.checked_sub(u64::from(*share)) {
                Some(rest) => left = rest,
                None => return arm,
            }
        }
        ARMS - 1
    }

    fn expose(&mut self, arm: usize, minute: usize) {
        self.cohorts[arm][minute / HOUR].0 += 1;
        if self.random.unit() < self.rates[arm] {
            let delay = -DELAY * (1.0 - self.random.unit()).ln();
            let at = minute + 1 + delay as usize;
            if let Some(coming) = self.coming.get_mut(at) {
                coming.push((arm, minute));
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn selection_loses_less_than_half_of_what_an_even_split_loses_and_finds_the_best_arm() {
        let stop = Stop::on_signals().unwrap();
        let [ours, even] = [Policy::Thompson, Policy::Even].map(|policy| simulated(policy, 40, &stop).unwrap());
        assert!(ours.regret < 0.5 * even.regret, "{ours:?} {even:?}");
        assert!(ours.found > 80.0, "{ours:?}");
    }
}
