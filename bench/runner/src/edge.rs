//! `edge`: the cost of `/v1/decide` in workerd, compared with workers that do less, and with one that does the same in
//! JavaScript. All peers run in parallel, each in its own process. Each gets load in turn, round by round, so that
//! other work of the machine affects all of them alike. Two processes of the same code differ more than rounds of one
//! process; all are started several times, and a ratio is the median over the starts.

mod fixture;
mod market;
pub(crate) mod memory;
mod peers;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::environment::path;
use crate::load::{self, Call, Pressure, Window};
use crate::report::{self, Bar, Line, median};
use crate::stop::Stop;
use crate::store::{Queued, Store};
use crate::workerd::Workerd;
use fixture::Fixture;
use peers::{DECIDE, Peer};

const BENCH: &str = "edge";
/// Targets of the ratio of requests per second, by peer.
const BARS: [(&str, Bar); 1] = [("js", Bar::AtLeast(0.9))];
/// Targets with a message for the queue in each request.
const QUEUE_BARS: [(&str, Bar); 1] = [("js", Bar::AtLeast(1.0))];
/// Targets of decisions on a thousand ads.
const ADS_BARS: [(&str, Bar); 1] = [("js", Bar::AtLeast(2.4))];
/// Target of the module's size with gzip, in KB. The platform accepts 3 to 10 MB.
const WASM_KB: Bar = Bar::AtMost(1_000.0);
/// Requests of the warm-up of each case. Code that runs once in a request is optimised after about ten thousand
/// requests.
const WARM_REQUESTS: u64 = 20_000;
/// Time of a message from the answer to the queue.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of starts of all peers; the start with the median ratio is reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Number of rounds of a start; its figures are medians over the rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of the measurement of each peer in each case of a round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of connections, each with one request in flight.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Number of ads to decide on, for a person with a thousand segments and a thousand actions; 0 for a house ad only.
    #[arg(long, default_values_t = [0, 1_000])]
    ads: Vec<u64>,
    /// Another bundled build of the edge to measure too.
    #[arg(long, value_name = "NAME=DIR", value_parser = named)]
    beside: Vec<(String, PathBuf)>,
    /// Measure only these peers and the edge.
    #[arg(long, value_name = "PEER")]
    only: Vec<String>,
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = text.split_once('=').ok_or("expected NAME=DIR")?;
    Ok((name.to_owned(), folder.into()))
}

/// Whether each request also sends a fact to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Plain,
    Queue,
}

impl Case {
    const ALL: [Self; 2] = [Self::Plain, Self::Queue];

    fn title(self) -> &'static str {
        match self {
            Self::Plain => "decide",
            Self::Queue => "decide+queue",
        }
    }
}

struct Running {
    peer: Peer,
    workerd: Workerd,
    /// Time from the start of the process to its first answer: loads the modules, creates an isolate, serves one
    /// request.
    cold: Duration,
    /// The call of each case.
    calls: Vec<Call>,
    windows: [Vec<Window>; 2],
}

/// The measurements of one start of a peer.
struct Measured {
    peer: String,
    cold: Duration,
    windows: [Vec<Window>; 2],
}

impl Measured {
    fn median(&self, case: Case, value: fn(&Window) -> f64) -> f64 {
        let [plain, queue] = &self.windows;
        let windows = if case == Case::Plain { plain } else { queue };
        median(windows.iter().map(value).collect())
    }
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    for ads in &options.ads {
        compare(*ads, options, json, stop)?;
    }
    let kb = Line {
        bench: BENCH,
        case: "wasm".to_owned(),
        value: gzipped()? as f64 / 1000.0,
        unit: "KB gzipped",
        peer: None,
        bar: Some(WASM_KB),
    };
    report::print(&kb, json);
    Ok(())
}

fn compare(ads: u64, options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let mut starts = Vec::new();
    for number in 1..=options.starts {
        eprintln!("start {number} of {}", options.starts);
        starts.push(start(ads, options, stop)?);
    }
    tell_cold(ads, &starts, json);
    for case in Case::ALL {
        tell(case, ads, &starts, json);
    }
    Ok(())
}

/// Reports the time from the start of a process to its first answer, compared with each peer: medians over the starts.
fn tell_cold(ads: u64, starts: &[Vec<Measured>], json: bool) {
    let Some((edge, peers)) = starts.first().and_then(|start| start.split_last()) else { return };
    let ms = |peer: &str| {
        let of = |start: &Vec<Measured>| start.iter().find(|measured| measured.peer == peer).map(|one| one.cold);
        median(starts.iter().filter_map(of).map(|cold| cold.as_secs_f64() * 1e3).collect())
    };
    let case = format!("cold start to first answer, {ads} ads");
    for Measured { peer, .. } in peers {
        let peer = Some((peer.clone(), ms(peer)));
        let line = Line { bench: BENCH, case: case.clone(), value: ms(&edge.peer), unit: "ms", peer, bar: None };
        report::print(&line, json);
    }
}

/// Starts all peers, checks their answers and measures them; the edge is the last.
fn start(ads: u64, options: &Options, stop: &Stop) -> Result<Vec<Measured>> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let fixture = Fixture::new(u64::try_from(now.as_millis())?, ads)?;
    let store = Store::serve(fixture.values())?;
    let workerd = path("CAUSEWAY_WORKERD")?;
    let mut all = Vec::new();
    for peer in peers::all(&fixture, ads > 0, &options.beside)? {
        let beside = options.beside.iter().any(|(name, _)| *name == peer.name);
        if options.only.is_empty() || options.only.contains(&peer.name) || beside || peer.name == DECIDE {
            let began = Instant::now();
            let process = Workerd::start(&workerd, &peer.services, store.port)?;
            let port = process.ports.first().copied().context("a process without a port")?;
            load::connect(port)?.exchange(&fixture.request(false))?;
            let cold = began.elapsed();
            all.push(Running { peer, workerd: process, cold, calls: Vec::new(), windows: [Vec::new(), Vec::new()] });
        }
    }
    for running in &mut all {
        let checked = check(running, &fixture, &store);
        running.calls = checked.with_context(|| format!("the answer of `{}`", running.peer.name))?;
    }
    measure(&mut all, &store, options, stop)?;
    let measured = |Running { peer, cold, windows, .. }: Running| Measured { peer: peer.name, cold, windows };
    Ok(all.into_iter().map(measured).collect())
}

/// Checks that a peer answers correctly and sends nothing, or one message of the length of the edge's. Returns the
/// calls of the load, by case.
fn check(running: &Running, fixture: &Fixture, store: &Store) -> Result<Vec<Call>> {
    let ports = &running.workerd.ports;
    let mut calls = Vec::new();
    for case in Case::ALL {
        let port = *ports.get(case as usize).or(ports.first()).context("a process without a port")?;
        let mut connection = load::connect(port)?;
        running.peer.says.check_forged(&connection.exchange(&fixture.forged())?)?;
        let before = settled(store);
        let mut call = Call { port, request: fixture.request(case == Case::Queue), body_bytes: 0 };
        // Two calls, because the first answer of an isolate may take another path.
        for _ in 0..2 {
            let answer = connection.exchange(&call.request)?;
            running.peer.says.check(&answer, fixture)?;
            call.body_bytes = answer.body.len();
        }
        let messages = if case == Case::Queue { 2 } else { 0 };
        let wanted = Queued {
            messages: before.messages + messages,
            bytes: before.bytes + messages * fixture.message_bytes as u64,
        };
        let start = Instant::now();
        while store.queued().messages < wanted.messages && start.elapsed() < QUEUE_PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let queued = settled(store);
        ensure!(queued == wanted, "in the case {} the queue holds {queued:?} instead of {wanted:?}", case.title());
        calls.push(call);
    }
    Ok(calls)
}

/// The state of the queue when no more messages arrive.
fn settled(store: &Store) -> Queued {
    loop {
        let before = store.queued();
        std::thread::sleep(Duration::from_millis(100));
        if store.queued() == before {
            return before;
        }
    }
}

fn measure(all: &mut [Running], store: &Store, options: &Options, stop: &Stop) -> Result<()> {
    let measured = Duration::from_secs_f64(options.seconds.clamp(0.1, 600.0));
    let connections = options.connections;
    let mut pressure =
        Pressure { connections, warm_up: Duration::from_secs(3), warm_requests: WARM_REQUESTS, measured };
    for round in 1..=options.rounds {
        for case in Case::ALL {
            for running in &mut *all {
                let name = &running.peer.name;
                let call = running.calls.get(case as usize).context("a peer without a call")?;
                let before = store.queued().messages;
                let window = load::press(call, pressure, running.workerd.cpu(), stop)
                    .with_context(|| format!("`{name}` under load"))?;
                let sent = settled(store).messages - before;
                let wanted = if case == Case::Queue { window.answered } else { 0 };
                // A peer may send no message with an answer of another length, which had no snapshot.
                let fewest = wanted.saturating_sub(window.odd_of_all);
                ensure!((fewest..=wanted).contains(&sent), "`{name}` sent {sent} messages for {wanted} answers");
                eprintln!(
                    "round {round} {:<12} {name:<11} {:>6.0} req/s {:>6.1} CPU us/request{}",
                    case.title(),
                    window.rate(),
                    window.cpu_a_request(),
                    if window.odd > 0 { format!(", {} other answers", window.odd) } else { String::new() }
                );
                let [plain, queue] = &mut running.windows;
                if case == Case::Plain { plain.push(window) } else { queue.push(window) }
            }
        }
        // Only the first round has to wait for the compilers inside workerd.
        (pressure.warm_up, pressure.warm_requests) = (Duration::from_millis(200), 0);
    }
    Ok(())
}

/// Reports the edge compared with each peer: requests per second, then CPU.
fn tell(case: Case, ads: u64, starts: &[Vec<Measured>], json: bool) {
    let (title, bars) = match ads {
        0 => (case.title().to_owned(), if case == Case::Queue { QUEUE_BARS } else { BARS }),
        ads => (format!("{}, {ads} ads", case.title()), ADS_BARS),
    };
    let line = |value, unit, peer, bar| Line { bench: BENCH, case: title.clone(), value, unit, peer, bar };
    let Some((_, peers)) = starts.first().and_then(|start| start.split_last()) else { return };
    let rate: (_, fn(&Window) -> f64, _) = ("req/s", Window::rate, &bars[..]);
    for (unit, value, bars) in [rate, ("CPU us/request", Window::cpu_a_request, &[])] {
        for Measured { peer, .. } in peers {
            let bar = bars.iter().find(|(barred, _)| barred == peer).map(|(_, bar)| *bar);
            if let Some((own, theirs, ratios)) = middle(case, starts, peer, value) {
                eprintln!("{title}, {unit}, ratio to {peer} in each start: {ratios}");
                report::print(&line(own, unit, Some((peer.clone(), theirs)), bar), json);
            }
        }
    }
    let loads = starts.iter().filter_map(|start| Some(start.last()?.median(case, Window::own_cpu_a_request)));
    let line = Line {
        case: format!("{title}, load and stores"),
        ..line(median(loads.collect()), "CPU us/request", None, None)
    };
    report::print(&line, json);
}

/// The figures of the edge and of a peer in the start with the median ratio, and all ratios.
fn middle(case: Case, starts: &[Vec<Measured>], peer: &str, value: fn(&Window) -> f64) -> Option<(f64, f64, String)> {
    let pair = |start: &Vec<Measured>| {
        let (edge, peers) = start.split_last()?;
        let theirs = peers.iter().find(|measured| measured.peer == peer)?;
        Some((edge.median(case, value), theirs.median(case, value)))
    };
    let mut pairs: Vec<_> = starts.iter().filter_map(pair).collect();
    pairs.sort_by(|(a, b), (c, d)| (a / b).total_cmp(&(c / d)));
    let ratios: Vec<_> = pairs.iter().map(|(own, theirs)| format!("{:.2}", own / theirs)).collect();
    let (own, theirs) = pairs.get(pairs.len().saturating_sub(1) / 2)?;
    Some((*own, *theirs, ratios.join(" ")))
}

/// Bytes of the module after `gzip -9`.
fn gzipped() -> Result<usize> {
    let module = path("CAUSEWAY_EDGE_BUILD")?.join("engine_bg.wasm");
    let output = Command::new("gzip").args(["-9", "-n", "-c"]).arg(&module).stdin(Stdio::null()).output();
    let output = output.context("cannot run gzip")?;
    ensure!(output.status.success(), "gzip {}: {}", module.display(), String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout.len())
}
