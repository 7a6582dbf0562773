//! `wasm`: counting, segments and filters in WebAssembly under Node, compared with the same functions in native code.
//! The loops are inside the module, the clock outside; both sides generate their data from the same seeds.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_bench_wasm::counting::Counting;
use causeway_bench_wasm::filters::Filters;
use causeway_bench_wasm::segments::Segments;
use clap::Args;
use serde_json::{Value, json};

use crate::environment::path;
use crate::report::{self, Bar, Line, median};
use crate::stop::Stop;

/// Target: the greatest accepted ratio to native code.
const SLOWER: f64 = 2.0;
/// Number of filters.
const FILTERS: u32 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds, in which both sides take turns; medians over the rounds are reported.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Number of repetitions in a round.
    #[arg(long, default_value_t = 2_000)]
    times: u32,
}

/// One function: its native code and its name in the module.
struct Case {
    name: String,
    what: &'static str,
    count: u32,
    native: Box<dyn Fn(u32) -> u32>,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let mut node = Node::start()?;
    let counting = |actions| {
        let native = Counting::new(actions);
        let name = format!("counting, {actions} actions");
        Case { name, what: "counting", count: actions, native: Box::new(move |times| native.run(times)) }
    };
    let filters = Filters::new(FILTERS);
    let name = format!("filters, {FILTERS}");
    let filters = Case { name, what: "filters", count: FILTERS, native: Box::new(move |times| filters.run(times)) };
    let segments = Segments::new();
    let name = "segments, decode + filter".to_owned();
    let segments = Case { name, what: "segments", count: 0, native: Box::new(move |times| segments.run(times)) };
    for case in [counting(1_000), counting(10_000), segments, filters] {
        let (mut natives, mut wasms) = (Vec::new(), Vec::new());
        // The first round is not timed, because Node optimises hot code during it.
        for round in 0..=options.rounds {
            stop.check()?;
            let start = Instant::now();
            let answer = (case.native)(options.times);
            let native = start.elapsed().as_secs_f64() * 1e6 / f64::from(options.times);
            let (in_wasm, wasm) = node.ask(case.what, case.count, options.times)?;
            ensure!(answer != 0 && answer == in_wasm, "{}: {answer} natively, {in_wasm} in WebAssembly", case.name);
            if round > 0 {
                natives.push(native);
                wasms.push(wasm);
            }
        }
        let peer = Some(("native".to_owned(), median(natives)));
        let bar = Some(Bar::AtMost(SLOWER));
        report::print(&Line { bench: "wasm", case: case.name, value: median(wasms), unit: "us", peer, bar }, json);
    }
    Ok(())
}

/// A Node process with the module; a drop ends it.
pub(crate) struct Node {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    pub(crate) fn start() -> Result<Self> {
        let mut child = Command::new(path("CAUSEWAY_NODE")?)
            .arg(path("CAUSEWAY_ROOT")?.join("bench/wasm/run.mjs"))
            .arg(path("CAUSEWAY_BENCH_WASM")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start Node")?;
        let requests = child.stdin.take().context("no pipe to Node")?;
        let answers = BufReader::new(child.stdout.take().context("no pipe from Node")?);
        Ok(Self { child, requests, answers })
    }

    /// The module's answer, and the microseconds of one repetition.
    pub(crate) fn ask(&mut self, what: &str, count: u32, times: u32) -> Result<(u32, f64)> {
        writeln!(self.requests, "{}", json!({ "what": what, "count": count, "times": times }))?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line).context("Node ended without an answer")?;
        let answer = told.get("answer").and_then(Value::as_f64).context("no answer")?;
        let us = told.get("us").and_then(Value::as_f64).context("no time")?;
        // wasm-bindgen returns a u32 as a number of JavaScript, which may be negative.
        Ok((answer as i64 as u32, us))
    }
}
