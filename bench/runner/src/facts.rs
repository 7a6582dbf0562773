//! `facts`: the rate of events from `POST /v1/events` through the queue and the sync to the store, in a world of
//! `cargo xtask dev`: the worker in workerd with its queue, and the origin on SQLite with durable commits.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::environment::path;
use crate::report::{self, Line};
use crate::stop::Stop;

const BENCH: &str = "facts";
/// Events of one call, which is the bound of a call.
const CALL: usize = 200;
/// The longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of events, over all connections.
    #[arg(long, default_value_t = 100_000)]
    events: usize,
    /// Number of connections, each with its own visitor and one call in flight.
    #[arg(long, default_value_t = 8)]
    connections: usize,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let world = World::start(stop)?;
    let calls = options.events.div_ceil(CALL * options.connections).max(1);
    let visitors = (0..options.connections).map(|n| world.visitor(n)).collect::<Result<Vec<_>>>()?;
    let events = calls * CALL * options.connections;
    let before = world.settled(stop)?;
    eprintln!("{events} events of {} visitors, {CALL} a call", visitors.len());
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work: Vec<_> = visitors.iter().map(|v| scope.spawn(|| world.send(v, calls, stop))).collect();
        work.into_iter().try_for_each(|thread| match thread.join() {
            Ok(sent) => sent,
            Err(_) => bail!("a thread of the load panicked"),
        })
    })?;
    let acknowledged = start.elapsed();
    world.until(stop, "all events are in the store", |accepted| accepted - before >= events as f64)?;
    let stored = start.elapsed();
    for visitor in &visitors {
        world.check(visitor, calls * CALL)?;
    }
    let rate = |time: Duration| events as f64 / time.as_secs_f64();
    let line =
        |case: &str, value, unit, peer| Line { bench: BENCH, case: case.to_owned(), value, unit, peer, bar: None };
    let peer = Some(("acknowledged".to_owned(), rate(acknowledged)));
    report::print(&line("stored", rate(stored), "facts/s", peer), json);
    report::print(&line("lag", (stored - acknowledged).as_secs_f64(), "s", None), json);
    Ok(())
}

/// One browser: its visitor and its cookies.
struct Visitor {
    id: String,
    cookies: String,
}

/// A development world; a drop ends it and removes its folder.
struct World {
    dev: Child,
    edge: String,
    origin: String,
    token: String,
    agent: ureq::Agent,
    _folder: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        // The program ends its children itself; an error here cannot be handled.
        let _ = kill_process(Pid::from_child(&self.dev), Signal::INT);
        let _ = self.dev.wait();
    }
}

impl World {
    fn start(stop: &Stop) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let ready = folder.path().join("ready.json");
        let xtask = path("CAUSEWAY_XTASK")?;
        let dev = Command::new(&xtask)
            .args(["dev", "--edge-port", "0", "--origin-port", "0", "--data"])
            .arg(folder.path().join("data"))
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", xtask.display()))?;
        let agent = ureq::Agent::config_builder().proxy(None).timeout_global(Some(PATIENCE)).build().into();
        let mut world =
            Self { dev, edge: String::new(), origin: String::new(), token: String::new(), agent, _folder: folder };
        let told = wait(stop, "the world answers", || read(&ready))?;
        let text = |name: &str| told.get(name).and_then(Value::as_str).map(str::to_owned);
        world.edge = text("edge_url").context("no edge_url")?.replace("127.0.0.1", "localhost");
        world.origin = text("origin_url").context("no origin_url")?;
        world.token = text("admin_token").context("no admin_token")?;
        Ok(world)
    }

    /// Mints a visitor on its own client network.
    fn visitor(&self, n: usize) -> Result<Visitor> {
        let body = json!({ "placements": [{ "id": "top" }] }).to_string();
        let request = self.agent.post(format!("{}/v1/decide", self.edge));
        let mut answer = request.header("cf-connecting-ip", format!("10.1.{n}.1")).send(body)?;
        let pairs =
            answer.headers().get_all("set-cookie").iter().filter_map(|line| line.to_str().ok()?.split(';').next());
        let cookies = pairs.collect::<Vec<_>>().join("; ");
        let value: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
        let id = value.get("visitor").and_then(Value::as_str).context("no visitor was minted")?.to_owned();
        Ok(Visitor { id, cookies })
    }

    /// Sends the calls of a visitor one after the other. A call without an acknowledgement is repeated with the same
    /// ids.
    fn send(&self, visitor: &Visitor, calls: usize, stop: &Stop) -> Result<()> {
        for call in 0..calls {
            let event = |n| json!({ "type": "track", "id": format!("{call}-{n}"), "name": "purchase", "properties": { "value_micros": 1 } });
            let body = Value::Array((0..CALL).map(event).collect()).to_string();
            wait(stop, "an answer that acknowledges", || {
                let request = self.agent.post(format!("{}/v1/events", self.edge)).header("cookie", &visitor.cookies);
                let mut answer = request.send(&body).ok()?;
                let value: Value = serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok()?;
                (value.get("accepted") == Some(&CALL.into())).then_some(())
            })?;
        }
        Ok(())
    }

    /// Number of facts that the origin has accepted.
    fn accepted(&self) -> Option<f64> {
        let text = self.agent.get(format!("{}/metrics", self.origin)).call().ok()?.body_mut().read_to_string().ok()?;
        text.lines().find_map(|line| line.strip_prefix("causeway_facts_accepted_total "))?.parse().ok()
    }

    fn until(&self, stop: &Stop, what: &str, reached: impl Fn(f64) -> bool) -> Result<f64> {
        wait(stop, what, || self.accepted().filter(|accepted| reached(*accepted)))
    }

    /// Number of accepted facts when no more arrive, so that the page views of the visitors are included.
    fn settled(&self, stop: &Stop) -> Result<f64> {
        let mut last = -1.0;
        loop {
            let now = self.until(stop, "the origin answers", |_| true)?;
            if now > 0.0 && now.total_cmp(&last).is_eq() {
                return Ok(now);
            }
            last = now;
            std::thread::sleep(Duration::from_secs(3));
        }
    }

    /// Checks that each event was counted once.
    fn check(&self, visitor: &Visitor, events: usize) -> Result<()> {
        let request = self.agent.get(format!("{}/admin/v1/visitors/{}?tenant=demo", self.origin, visitor.id));
        let mut answer = request.header("authorization", format!("Bearer {}", self.token)).call()?;
        let value: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
        let purchases = value.pointer("/own/purchases");
        ensure!(purchases == Some(&events.into()), "{events} events of a visitor became {purchases:?} purchases");
        Ok(())
    }
}

fn read(file: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Repeats `ask` until it returns a value.
fn wait<T>(stop: &Stop, what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        stop.check()?;
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        ensure!(start.elapsed() < PATIENCE, "waited {} s until {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
