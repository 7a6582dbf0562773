//! `causeway-market`: simulates markets and prints their results.

use std::process::ExitCode;
use std::time::Instant;

use causeway_market::budgets::{self, Day};
use causeway_market::compare::{Size, Way, play};
use causeway_market::world::Failed;
use clap::{Parser, Subcommand};
use serde_json::json;

/// Simulate markets, two in parallel.
#[derive(Debug, Parser)]
struct Options {
    /// Print one JSON object per line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    play: Play,
}

#[derive(Debug, Subcommand)]
enum Play {
    /// Simulate the market once for each way to choose ads.
    Compare {
        /// Number of people.
        #[arg(long, default_value_t = 50_000)]
        people: usize,
        /// Number of days with random choices, from which the model learns.
        #[arg(long, default_value_t = 5)]
        before: u64,
        /// Number of days with the way's own choices.
        #[arg(long, default_value_t = 5)]
        days: u64,
        /// Seed of all random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Simulate a day of a campaign with a budget, over 1, 10 and 100 locations.
    Budgets {
        /// Number of calls on the day.
        #[arg(long, default_value_t = 100_000)]
        calls: u64,
        /// Number of impressions that the budget pays for.
        #[arg(long, default_value_t = 20_000)]
        budget: u64,
        /// Seed of all random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    let Options { json, play } = Options::parse();
    let played = match play {
        Play::Compare { people, before, days, seed } => compared(Size { people, before, days, seed }, json),
        Play::Budgets { calls, budget, seed } => budgeted(calls, budget, seed, json),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all items, two in parallel; returns the results in the order of the items.
fn two_at_a_time<T: Sync, R: Send>(all: &[T], run: impl Fn(&T) -> Result<R, Failed> + Sync) -> Result<Vec<R>, Failed> {
    let mut done = Vec::new();
    for two in all.chunks(2) {
        let run = &run;
        done.extend(std::thread::scope(|scope| {
            let started: Vec<_> = two.iter().map(|one| scope.spawn(move || run(one))).collect();
            let joined = started.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("it panicked".into())));
            joined.collect::<Result<Vec<R>, Failed>>()
        })?);
    }
    Ok(done)
}

fn compared(size: Size, json: bool) -> Result<(), Failed> {
    let began = Instant::now();
    let came = two_at_a_time(&Way::ALL, |way| {
        let (name, all) = (way.name(), size.before + size.days);
        play(*way, size, &|day| eprintln!("{name}: day {day} of {all}, {} s", began.elapsed().as_secs()))
    })?;
    let Some(own) = came.first() else { return Ok(()) };
    for (way, came) in Way::ALL.iter().zip(&came) {
        for (case, value, unit, own) in [
            ("revenue", came.rpm(), "a thousand impressions", own.rpm()),
            ("clicks", came.ctr() * 100.0, "% of impressions", own.ctr() * 100.0),
        ] {
            let (name, ratio) = (way.name(), own / value);
            if json {
                println!(
                    "{}",
                    json!({ "bench": "market", "case": case, "value": round(own), "unit": unit, "peer": name, "peer_value": round(value), "ratio": round(ratio) })
                );
            } else {
                println!("{name:>17} {case:>8}: {value:.3} {unit}; causeway has {ratio:.2} times as much");
            }
        }
    }
    Ok(())
}

fn budgeted(calls: u64, budget: u64, seed: u64, json: bool) -> Result<(), Failed> {
    // The third budget runs out during the burst, when the rate of calls rises five times within a minute.
    let ways = [("even", true, budget), ("asap", false, budget), ("asap, to the burst", false, calls * 93 / 100)];
    let of = |(_, even, budget)| [1, 10, 100].map(|locations| Day { locations, calls, budget, even, seed });
    let days: Vec<Day> = ways.into_iter().flat_map(of).collect();
    let names = ways.iter().flat_map(|(name, ..)| [name; 3]);
    let came = two_at_a_time(&days, budgets::play)?;
    for ((day, name), came) in days.iter().zip(names).zip(came) {
        let (case, budget) = (format!("{name}, {} locations", day.locations), day.budget);
        let over = round(came.over(budget));
        if json {
            println!(
                "{}",
                json!({ "bench": "budgets", "case": case, "value": over, "unit": "% beyond the budget", "peer": null, "peer_value": null, "ratio": null })
            );
        } else {
            println!("{case:>33}: {} of {budget}, {over:+.2} %; by hour {:?}", came.spent, came.hours);
        }
    }
    Ok(())
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
