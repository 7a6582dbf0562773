//! The program of the benches. `cargo xtask bench NAME` starts it, builds the measured programs, and passes their paths
//! in environment variables. It is a crate of its own, because the load generator must be a release build: its CPU time
//! must not dominate.
//!
//! Each result is one line: a row of a table, or with `--json` an object
//! `{"bench","case","value","unit","peer","peer_value","ratio"}`, with `"bar"` if the project has a target.
//!
//! Exit codes: 0 done, 1 failed (a wrong answer, or no measurement; a missed target does not fail), 2 usage.

mod asked;
mod audience;
mod bandit;
mod counting;
mod counting_api;
mod counting_store;
mod cpu;
mod decide;
mod edge;
mod environment;
mod facts;
mod filters;
mod graph;
mod http1;
mod ingest;
mod load;
mod origin;
mod publish;
mod random;
mod report;
mod segments;
mod segments_load;
mod stop;
mod store;
mod train;
mod wasm;
mod workerd;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::stop::Stop;

#[derive(Debug, Parser)]
#[command(name = "causeway-bench", about = "Causeway's benches.")]
struct Cli {
    /// Print JSON lines instead of a table.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Cost of /v1/decide in workerd, compared with peers.
    Edge(edge::Options),
    /// Memory of the edge's module, and its growth.
    Memory(edge::memory::Options),
    /// Counts of a request's candidates from packed actions, compared with Redis.
    Counting(counting::Options),
    /// Counts with the read from SQLite, compared with RocksDB.
    CountingStore(counting_store::Options),
    /// Counts over HTTP at rising rates, and from memory.
    CountingApi(counting_api::Options),
    /// Counting, segments and filters in WebAssembly, compared with native code.
    Wasm(wasm::Options),
    /// A thousand segments, packed and filtered.
    Segments(segments::Options),
    /// Import and reads of half a million users with a thousand segments each.
    SegmentsLoad(segments_load::Options),
    /// Decisions on three placements, native and in WebAssembly, and the load of a catalogue.
    Decide(decide::Options),
    /// Counts in an audience index of ten million people: of a sample, and of all.
    Audience(audience::Options),
    /// Matching filters of ten thousand by the index, compared with a check of each filter.
    Filters(filters::Options),
    /// Connected components in memory, and `reconcile` on a store of millions.
    Graph(graph::Options),
    /// Training of a model from ten million stored actions.
    Train(train::Options),
    /// Rate at which a real origin acknowledges and folds syncs.
    Ingest(ingest::Options),
    /// Regret of intelligent selection, compared with other policies.
    Bandit(bandit::Options),
    /// Keys per second that the origin publishes in bulk after a restore, and its fold meanwhile.
    Publish(publish::Options),
    /// Facts per second from /v1/events to the store.
    Facts(facts::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let run = || {
        let stop = Stop::on_signals()?;
        match &cli.bench {
            Bench::Edge(options) => edge::run(options, cli.json, &stop),
            Bench::Memory(options) => edge::memory::run(options, cli.json, &stop),
            Bench::Counting(options) => counting::run(options, cli.json, &stop),
            Bench::CountingStore(options) => counting_store::run(options, cli.json, &stop),
            Bench::CountingApi(options) => counting_api::run(options, cli.json, &stop),
            Bench::Wasm(options) => wasm::run(options, cli.json, &stop),
            Bench::Segments(options) => segments::run(options, cli.json, &stop),
            Bench::SegmentsLoad(options) => segments_load::run(options, cli.json, &stop),
            Bench::Decide(options) => decide::run(options, cli.json, &stop),
            Bench::Audience(options) => audience::run(options, cli.json, &stop),
            Bench::Filters(options) => filters::run(options, cli.json, &stop),
            Bench::Graph(options) => graph::run(options, cli.json, &stop),
            Bench::Train(options) => train::run(options, cli.json, &stop),
            Bench::Ingest(options) => ingest::run(options, cli.json, &stop),
            Bench::Bandit(options) => bandit::run(options, cli.json, &stop),
            Bench::Publish(options) => publish::run(options, cli.json, &stop),
            Bench::Facts(options) => facts::run(options, cli.json, &stop),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
