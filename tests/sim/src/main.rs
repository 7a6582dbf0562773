//! `causeway-sim`: plays worlds and reports which of them fail.

use std::io::{IsTerminal as _, Write as _};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_sim::check::Failure;
use causeway_sim::measure::{CASES, Case, Over, measure};
use causeway_sim::world::World;
use clap::Parser;

#[cfg(feature = "planted-bugs")]
mod planted;

/// Prints by how much ads exceed their caps, as the table of docs/CAPS.md.
fn caps() -> ExitCode {
    println!(
        "| KV lags up to | tabs | devices | copied cookies | by the ledger: people over, mean, most | strict: people over, mean, most |"
    );
    println!("|---|---|---|---|---|---|");
    for case in CASES {
        let over = match measure(case) {
            Ok(over) => over,
            Err(why) => {
                println!("{why}");
                return ExitCode::FAILURE;
            }
        };
        let shown = over.map(|Over { people, mean, most }| {
            format!("{}.{} %, {}.{:02}, {most}", people / 10, people % 10, mean / 1_000, mean % 1_000 / 10)
        });
        let Case { stale, tabs, devices, copied } = case;
        let lag = if stale > 0 { "10 min" } else { "1 min" };
        let copied = if copied { "yes" } else { "no" };
        println!("| {lag} | {tabs} | {devices} | {copied} | {} |", shown.join(" | "));
    }
    ExitCode::SUCCESS
}

/// Plays worlds, each from one seed: faults first, then the world must converge. Exits with 1 if a world does not.
#[derive(Debug, Parser)]
struct Args {
    /// Play only the world of this seed.
    #[arg(long, conflicts_with_all = ["seeds", "hours"])]
    seed: Option<u64>,
    /// Print each event of the world.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Number of worlds to play.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Seed of the first world.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Play worlds with new seeds for this many hours.
    #[arg(long, conflicts_with = "seeds")]
    hours: Option<f64>,
    /// Events before the faults end.
    #[arg(long, default_value_t = 3_000)]
    events: u64,
    /// Measure by how much ads exceed their caps, instead of playing worlds.
    #[arg(long)]
    caps: bool,
    /// Stop at the first world that fails.
    #[arg(long)]
    first: bool,
    /// Play worlds with each planted bug until one fails. Without names: all bugs.
    #[cfg(feature = "planted-bugs")]
    #[arg(long, num_args = 0.., value_name = "NAME")]
    bugs: Option<Vec<causeway_shared::base::planted::PlantedBug>>,
}

/// Plays one world; returns the number of its events and its outcome.
fn play(seed: u64, events: u64) -> (u64, Result<(), Failure>) {
    let mut world = World::new(seed, false);
    let ended = world.run(events);
    (world.count, ended)
}

/// The fewest events of faults after which the world still fails. A failure during the faults ends the world at once.
fn shortest(seed: u64, events: u64) -> u64 {
    let (mut good, mut bad) = (0, events);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if play(seed, middle).1.is_err() { bad = middle } else { good = middle }
    }
    bad
}

fn report(seed: u64, events: u64, failure: &Failure) {
    let Failure { checker, what } = failure;
    let prefix = shortest(seed, events);
    println!("seed {seed} fails: {checker}: {}", what.chars().take(1_500).collect::<String>());
    println!("  commit {}; plan {:?}", commit(), World::new(seed, false).plan);
    println!("  shortest prefix that still fails: cargo xtask sim --seed {seed} --events {prefix} --trace");
}

fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    output.map_or_else(|_| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn one(seed: u64, args: &Args) -> ExitCode {
    let mut world = World::new(seed, args.trace);
    let ended = world.run(args.events);
    world.trace().iter().for_each(|line| println!("{line}"));
    match ended {
        Ok(()) => {
            println!("seed {seed} converges after {} events", world.count);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            report(seed, args.events, &failure);
            ExitCode::FAILURE
        }
    }
}

/// State shared by the threads that play worlds.
struct Progress {
    next: AtomicU64,
    done: AtomicU64,
    events: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Vec<(u64, Failure)>>,
}

/// The result of many worlds.
struct Outcome {
    worlds: u64,
    events: u64,
    /// The failed worlds, ordered by seed.
    failed: Vec<(u64, Failure)>,
}

/// Plays the worlds from seed `from` on all processors, as long as `goes_on` is true for the next seed. With
/// `is_first_enough` it stops after the first failure.
fn play_worlds(from: u64, events: u64, is_first_enough: bool, goes_on: impl Fn(u64) -> bool + Sync) -> Outcome {
    let begun = Instant::now();
    let progress = Progress {
        next: AtomicU64::new(from),
        done: AtomicU64::new(0),
        events: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failed: Mutex::new(Vec::new()),
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while !progress.stop.load(Ordering::Relaxed) {
                    let seed = progress.next.fetch_add(1, Ordering::Relaxed);
                    if !goes_on(seed) {
                        break;
                    }
                    let (count, ended) = play(seed, events);
                    progress.events.fetch_add(count, Ordering::Relaxed);
                    let done = progress.done.fetch_add(1, Ordering::Relaxed) + 1;
                    if let (Err(failure), Ok(mut failed)) = (ended, progress.failed.lock()) {
                        failed.push((seed, failure));
                        progress.stop.fetch_or(is_first_enough, Ordering::Relaxed);
                    }
                    show_progress(&progress, done, begun);
                }
            });
        }
    });
    let mut failed = progress.failed.into_inner().unwrap_or_default();
    failed.sort_by_key(|(seed, _)| *seed);
    Outcome { worlds: progress.done.into_inner(), events: progress.events.into_inner(), failed }
}

fn many(args: &Args) -> ExitCode {
    let begun = Instant::now();
    let until = args.hours.map(|hours| begun + Duration::from_secs_f64(hours * 3_600.0));
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_secs() << 20);
    let from = if until.is_some() { fresh } else { args.from };
    let goes_on = |seed| until.map_or(seed < from + args.seeds, |until| Instant::now() < until);
    let Outcome { worlds, events, failed } = play_worlds(from, args.events, args.first, goes_on);
    failed.iter().take(5).for_each(|(seed, failure)| report(*seed, args.events, failure));
    failed.iter().skip(5).for_each(|(seed, f)| {
        println!("seed {seed} fails: {}: {}", f.checker, f.what.chars().take(160).collect::<String>())
    });
    let seconds = begun.elapsed().as_secs_f64();
    let rate = per_second(events, seconds);
    println!("{worlds} worlds from seed {from}, {events} events in {seconds:.0} s ({rate}/s): {} failed", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an approximate rate for display"
)]
fn per_second(events: u64, seconds: f64) -> u64 {
    (events as f64 / seconds.max(0.001)) as u64
}

fn show_progress(progress: &Progress, done: u64, begun: Instant) {
    if done.is_multiple_of(10) && std::io::stderr().is_terminal() {
        let events = progress.events.load(Ordering::Relaxed);
        let rate = per_second(events, begun.elapsed().as_secs_f64());
        eprint!("\r{done} worlds, {events} events, {rate}/s ");
        drop(std::io::stderr().flush());
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    #[cfg(feature = "planted-bugs")]
    if let Some(bugs) = &args.bugs {
        return planted::find_bugs(bugs, args.seeds, args.events);
    }
    if args.caps {
        return caps();
    }
    match args.seed {
        Some(seed) => one(seed, &args),
        None => many(&args),
    }
}
