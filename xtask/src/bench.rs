//! `cargo xtask bench NAME`: a table of benches, one line each.
//!
//! A bench measures the release build from outside, and prints one JSON object a line with `--json`:
//! `{"bench","case","value","unit","peer","peer_value","ratio"}`.

mod edge;

use std::ffi::OsString;

use anyhow::{Context as _, Result};

use crate::project::Project;
use crate::stop::Stop;
use crate::{test, tools};

/// What runs a bench: given the checkout, what the programs it starts find in their environment (see the
/// crate's documentation), whether JSON lines are wanted, and the flag that ends it early.
type Run = fn(&Project, &[(&'static str, OsString)], bool, &Stop) -> Result<()>;

/// One bench: its name, whether its peers are Rust workers (made by worker-build), and what runs it.
struct Bench {
    name: &'static str,
    rust_peers: bool,
    run: Run,
}

const BENCHES: &[Bench] = &[Bench { name: "edge", rust_peers: true, run: edge::run }];

pub(crate) fn names() -> Vec<&'static str> {
    BENCHES.iter().map(|bench| bench.name).collect()
}

pub(crate) fn run(project: &Project, name: &str, json: bool, stop: &Stop) -> Result<()> {
    let bench = BENCHES.iter().find(|bench| bench.name == name).context("no such bench")?;
    let env = test::built(project, stop)?;
    if bench.rust_peers {
        tools::ensure_worker_build(project, stop)?;
    }
    (bench.run)(project, &env, json, stop)
}
