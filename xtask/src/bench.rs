//! `cargo xtask bench NAME`: builds the measured programs and the bench's own program, and runs it.
//!
//! The benches' programs are the workspace in `bench/`. A bench measures the release build from outside, and prints one
//! JSON object a line with `--json`: `{"bench","case","value","unit","peer","peer_value","ratio"}`.

mod peers;

use anyhow::Result;

use crate::project::Project;
use crate::stop::Stop;
use crate::{edge_build, steps, test, tools};

/// What has Rust workers to compare with.
const EDGE: &str = "edge";
const FACTS: &str = "facts";
/// What runs in Node too, and needs nothing else.
const IN_WASM: [&str; 2] = ["decide", "wasm"];
/// What has a Python library to compare with.
const GRAPH: &str = "graph";
const AUDIENCE: &str = "audience";
/// What is simulated, not measured.
const BANDIT: &str = "bandit";
/// What a program of its own plays, and by which of its commands.
const PLAYED: [(&str, &str); 2] = [("market", "compare"), ("budgets", "budgets")];

pub(crate) fn names() -> Vec<&'static str> {
    vec![
        EDGE,
        "memory",
        FACTS,
        "ingest",
        "publish",
        "counting",
        "counting-store",
        "counting-api",
        "segments",
        "segments-load",
        "filters",
        AUDIENCE,
        GRAPH,
        "train",
        BANDIT,
        PLAYED[0].0,
        PLAYED[1].0,
        IN_WASM[0],
        IN_WASM[1],
    ]
}

pub(crate) fn run(project: &Project, name: &str, json: bool, rocksdb: bool, stop: &Stop) -> Result<()> {
    if let Some((_, command)) = PLAYED.iter().find(|(played, _)| *played == name) {
        let mut build = project.bench_cargo();
        steps::run("building the market", build.args(["build", "--release", "--package", "causeway-market"]), stop)?;
        let mut market = project.command(project.target.join("release/causeway-market"));
        market.arg(command).args(json.then_some("--json"));
        return test::shown(&mut market, stop);
    }
    let mut env = match name {
        // A simulation of its own needs no program of ours.
        BANDIT => Vec::new(),
        name if IN_WASM.contains(&name) => {
            tools::ensure_all(project, stop)?;
            let mut env = tools::env(project)?;
            env.push(("CAUSEWAY_BENCH_WASM", edge_build::bench(project, stop)?.into()));
            env
        }
        _ => test::built(project, stop)?,
    };
    if name == EDGE {
        tools::ensure_worker_build(project, stop)?;
        env.push(("CAUSEWAY_PEERS", peers::build(project, &env, stop)?.into()));
    }
    if name == AUDIENCE {
        env.extend(peers::duckdb(project, stop)?.map(|python| ("CAUSEWAY_DUCKDB", python.into())));
    }
    if name == GRAPH {
        env.extend(peers::scipy(project, stop)?.map(|python| ("CAUSEWAY_SCIPY", python.into())));
    }
    let mut build = project.bench_cargo();
    build.args(["build", "--release", "--package", "causeway-bench"]);
    if rocksdb {
        build.args(["--features", "rocksdb"]);
    }
    steps::run("building the bench", &mut build, stop)?;
    // What the edge costs is told with how many facts go through it.
    let all = if name == EDGE { &[EDGE, FACTS][..] } else { &[name] };
    for name in all {
        let mut bench = project.command(project.target.join("release/causeway-bench"));
        bench.envs(env.iter().cloned()).arg(name).args(json.then_some("--json"));
        test::shown(&mut bench, stop)?;
    }
    Ok(())
}
