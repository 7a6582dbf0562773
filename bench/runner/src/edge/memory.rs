//! `memory`: the memory of the module with a large catalogue, and its growth over many requests.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::fixture::Fixture;
use crate::environment::path;
use crate::report::{self, Bar, Line};
use crate::stop::Stop;

const BENCH: &str = "memory";
/// Target of an isolate's memory in MB; the platform allows 128.
const MOST: Bar = Bar::AtMost(64.0);
const MB: f64 = 1_000_000.0;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of requests with a catalogue of a thousand ads.
    #[arg(long, default_value_t = 200_000)]
    requests: u32,
}

/// The results of one play.
#[derive(Debug)]
struct Told {
    /// Memory of the module after the first part of the requests, in bytes.
    early: f64,
    /// Memory of the module at the end, in bytes.
    late: f64,
    /// Number of requests with an ad.
    placed: f64,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let line =
        |case: String, value: f64, bar| Line { bench: BENCH, case, value, unit: "MB", peer: None, bar: Some(bar) };
    let large = play(10_000, 10_000, 20_000)?;
    report::print(&line("10000 ads, 20000 requests".to_owned(), large.late / MB, MOST), json);
    stop.check()?;
    let first = options.requests / 10;
    let many = play(1_000, first, options.requests)?;
    report::print(&line(format!("1000 ads, {} requests", options.requests), many.late / MB, MOST), json);
    let grown = format!("growth after the first {first} of them");
    report::print(&line(grown, (many.late - many.early) / MB, Bar::AtMost(0.0)), json);
    Ok(())
}

/// Plays requests of a returning visitor and of new visitors in turn.
fn play(ads: u64, first: u32, requests: u32) -> Result<Told> {
    let now = u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis())?;
    let fixture = Fixture::new(now, ads)?;
    let (cookies, body) = fixture.parts();
    let world = json!({
        "config": fixture.config, "keys": fixture.keys, "kv": fixture.values(), "cookies": [cookies, ""],
        "body": body, "now": now, "first": first, "requests": requests,
    });
    let mut node = Command::new(path("CAUSEWAY_NODE")?)
        .arg(path("CAUSEWAY_ROOT")?.join("bench/wasm/memory.mjs"))
        .arg(path("CAUSEWAY_EDGE_BUNDLE")?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start Node")?;
    node.stdin.take().context("no pipe to Node")?.write_all(world.to_string().as_bytes())?;
    let output = node.wait_with_output()?;
    ensure!(output.status.success(), "Node failed");
    let told: Value = serde_json::from_slice(&output.stdout).context("Node ended without an answer")?;
    let number = |name: &str| told[name].as_f64().with_context(|| format!("no `{name}` in {told}"));
    let told = Told { early: number("early")?, late: number("late")?, placed: number("placed")? };
    ensure!(told.placed > 0.9 * f64::from(requests), "of {requests} requests {} got an ad", told.placed);
    Ok(told)
}
