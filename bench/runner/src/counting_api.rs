//! `counting-api`: `POST /admin/v1/counts` over loopback at rising rates, up to the highest rate with a P99 below 8 ms;
//! and the same counting from memory, without HTTP. The load generator runs on the same machine and takes cores from
//! the server, so that a server alone would reach more.

mod fill;
mod load;
mod people;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use causeway_bench_wasm::counting::{candidates, question, visitor};
use causeway_bench_wasm::scramble;
use causeway_origin::base::clock;
use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::{Day, Minute};
use causeway_shared::facts::actions::{ActionList, ActionQuestion, ActionType, Counts, PackedActions, ViewTypes};
use clap::Args;
use serde_json::{Value, json};

use self::load::{Latency, Step};
use self::people::People;
use crate::asked::Asked;
use crate::origin::Origin;
use crate::report::{self, Bar, Line, median};
use crate::stop::Stop;

const BENCH: &str = "counting-api";
const ACTION_TYPES: [ActionType; 1] = [ActionType::IMPRESSION];
/// Target of the P99, in milliseconds.
const P99: f64 = 8.0;
/// Target of the rate without HTTP, in queries per second.
const IN_MEMORY: f64 = 200_000.0;
/// Number of visitors whose counts are compared with the reference.
const CHECKED: u32 = 200;
/// Number of prepared requests, of random visitors.
const REQUESTS: u64 = 20_000;
/// Number of threads that count in memory.
const THREADS: u64 = 2;
/// Factor from one rate to the next.
const FASTER: f64 = 1.25;
/// Steps of the search between the last good rate and the first bad one.
const NEARER: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of visitors, each with about twenty actions.
    #[arg(long, default_value_t = 100_000)]
    visitors: u32,
    /// Number of persistent connections, each with at most one request in flight.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// First rate, in requests per second.
    #[arg(long, default_value_t = 2_000.0)]
    from: f64,
    /// Seconds of the measurement of each rate.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let people = People { now: clock::now(), count: options.visitors };
    let day = Minute::at(people.now).day();
    let (from, to) = (Day(day.0 - 6).start(), Day(day.0 + 1).start());
    let asked = Asked {
        candidates: candidates(100),
        question: ActionQuestion { action_types: &ACTION_TYPES, view_types: ViewTypes::All, from, to },
    };
    let name = format!("in memory, {} visitors x 20 actions", people.count);
    in_memory(&name, &asked, people.count, |n| people.actions(n), json, stop)?;
    let many = Asked { candidates: candidates(100), question: question(7) };
    in_memory(
        "in memory, 2000 visitors x 1000 actions",
        &many,
        2_000,
        |n| visitor(1_000, u64::from(n) + 1),
        json,
        stop,
    )?;
    over_http(options, people, &asked, json, stop)
}

fn line(case: &str, value: f64, unit: &'static str, bar: Option<Bar>) -> Line {
    Line { bench: BENCH, case: case.to_owned(), value, unit, peer: None, bar }
}

/// Queries per second over packed actions, on threads that share only these.
fn in_memory(
    name: &str,
    asked: &Asked,
    visitors: u32,
    actions: impl Fn(u32) -> ActionList,
    json: bool,
    stop: &Stop,
) -> Result<()> {
    let packed: Vec<Vec<u8>> = (0..visitors).map(|n| actions(n).pack_actions()).collect();
    let count = |n: u64, counts: &mut Vec<Counts>| {
        counts.clear();
        let body = usize::try_from(n).ok().and_then(|n| packed.get(n)).map_or(&[][..], Vec::as_slice);
        if let Some(read) = PackedActions::read(body) {
            counts.extend(asked.counter().count(&[read], &asked.question));
        }
    };
    let mut counts = Vec::new();
    let mut sum = 0u64;
    for n in 0..visitors.min(CHECKED) {
        count(n.into(), &mut counts);
        ensure!(counts == asked.naive(&actions(n)), "visitor {n} has other counts than the reference");
        sum += counts.iter().flatten().map(|count| u64::from(*count)).sum::<u64>();
    }
    ensure!(sum > 0, "nothing to count");
    let mut rates = Vec::new();
    for round in 0..7u64 {
        stop.check()?;
        let done = AtomicU64::new(0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (done, count) = (&done, &count);
                scope.spawn(move || {
                    let mut counts = Vec::with_capacity(128);
                    let mut own = 0;
                    while start.elapsed() < Duration::from_millis(500) {
                        for _ in 0..256 {
                            count(scramble(round << 48 | thread << 40 | own) % u64::from(visitors), &mut counts);
                            black_box(&counts);
                            own += 1;
                        }
                    }
                    done.fetch_add(own, Ordering::Relaxed);
                });
            }
        });
        rates.push(done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64());
    }
    report::print(&line(name, median(rates), "queries/s", Some(Bar::AtLeast(IN_MEMORY))), json);
    Ok(())
}

fn over_http(options: &Options, people: People, asked: &Asked, json: bool, stop: &Stop) -> Result<()> {
    let server = Origin::start("log = \"warn\"\n", stop, |config| fill::fill(config, people, stop))?;
    check(&server, people, asked)?;
    let drawn = |n: u64| (scramble(n) % u64::from(people.count)) as u32;
    let requests: Vec<Vec<u8>> = (0..REQUESTS).map(|n| request(&server, people, asked, drawn(n))).collect();
    let pick = |n: u64| requests.get((n % REQUESTS) as usize).map_or(&[][..], Vec::as_slice);
    let measure = |rate: f64| -> Result<Latency> {
        let step = Step {
            rate,
            connections: options.connections,
            warm_up: Duration::from_millis(500),
            measured: Duration::from_secs_f64(options.seconds),
        };
        let mut latency = load::press(server.address().port(), &pick, step, stop)?;
        if latency.p99 >= P99 {
            // A second try, so that other work of the machine does not end the search.
            latency = load::press(server.address().port(), &pick, step, stop)?;
        }
        eprintln!("{rate:>8.0} req/s: P50 {:.3} ms, P99 {:.3} ms", latency.p50, latency.p99);
        Ok(latency)
    };
    let (mut best, mut rate) = (None, options.from);
    let too_fast = loop {
        let latency = measure(rate)?;
        if latency.p99 >= P99 {
            break rate;
        }
        best = Some((rate, latency));
        rate *= FASTER;
    };
    let (mut good, mut latency) = best.context("the first rate is too high: choose a lower one with --from")?;
    let mut bad = too_fast;
    for _ in 0..NEARER {
        let between = f64::midpoint(good, bad);
        let found = measure(between)?;
        if found.p99 < P99 {
            (good, latency) = (between, found);
        } else {
            bad = between;
        }
    }
    report::print(&line("highest rate with P99 < 8 ms", good, "req/s", None), json);
    report::print(&line("P50 at that rate", latency.p50, "ms", None), json);
    report::print(&line("P99 at that rate", latency.p99, "ms", Some(Bar::AtMost(P99))), json);
    Ok(())
}

/// A request for the impressions of a visitor on the ad of each candidate.
fn request(server: &Origin, people: People, asked: &Asked, n: u32) -> Vec<u8> {
    let ids: Vec<u32> = asked.candidates.iter().map(|entity| entity.ad).collect();
    let body = json!({
        "visitor": people.visitor(n).to_string(), "actions": ["impression"], "level": "ad", "ids": ids,
        "last": { "from_ms": start_ms(asked.question.from), "to_ms": start_ms(asked.question.to) },
    });
    let body = body.to_string();
    let head = format!(
        "POST /admin/v1/counts HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        server.token(),
        body.len()
    );
    [head, body].concat().into_bytes()
}

/// The time at which a minute begins.
fn start_ms(minute: Minute) -> Millis {
    let zero = causeway_shared::base::time::EPOCH_MS;
    zero + u64::from(minute.0) * 60_000
}

/// Compares the counts of the server with the reference.
fn check(server: &Origin, people: People, asked: &Asked) -> Result<()> {
    let mut connection = crate::load::connect(server.address().port())?;
    for n in 0..people.count.min(CHECKED) {
        let answer = connection.exchange(&request(server, people, asked, n))?;
        let told: Value = serde_json::from_slice(answer.body)?;
        let Some(told) = told.get("counts").and_then(Value::as_object) else {
            bail!("the server answers {told} instead of counts");
        };
        let expected = asked.naive(&people.actions(n));
        for (entity, counts) in asked.candidates.iter().zip(expected) {
            let counted = told.get(&entity.ad.to_string()).and_then(Value::as_u64);
            let [of_ad, ..] = counts;
            ensure!(counted == Some(of_ad.into()), "ad {} is counted {counted:?} times, not {of_ad}", entity.ad);
        }
    }
    Ok(())
}
