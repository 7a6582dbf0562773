//! The benches' own programs, started by `cargo xtask bench NAME`, which builds what is measured and says in the
//! environment where it is. They are apart from xtask because load must be a release build: its own CPU time must
//! not be what is measured.
//!
//! Each result is one line: a table's row, or with `--json` an object
//! `{"bench","case","value","unit","peer","peer_value","ratio"}`, and `"bar"` where the project sets one.
//!
//! Exit codes: 0 done, 1 failed (an answer was wrong, or nothing could be measured; never for a bar), 2 usage.

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
    /// JSON lines instead of a table.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// What /v1/decide costs in workerd, beside its peers.
    Edge(edge::Options),
    /// How much memory the edge's module has, and whether that grows.
    Memory(edge::memory::Options),
    /// Counts of a request's candidates from packed actions, beside Redis.
    Counting(counting::Options),
    /// The same with the read from SQLite, beside RocksDB.
    CountingStore(counting_store::Options),
    /// Counts over HTTP at rising rates, and from memory.
    CountingApi(counting_api::Options),
    /// Counting and segments in WebAssembly, beside native.
    Wasm(wasm::Options),
    /// A thousand segments, packed and filtered.
    Segments(segments::Options),
    /// Half a million users of a thousand segments, imported and read.
    SegmentsLoad(segments_load::Options),
    /// Three placements decided in front of somebody, natively and in WebAssembly, and a catalogue loaded.
    Decide(decide::Options),
    /// Ten million people in columns: a sample, and all of them.
    Audience(audience::Options),
    /// Which of ten thousand filters mean somebody, beside one filter after the other.
    Filters(filters::Options),
    /// Connected components in memory, and `reconcile` on a store of millions.
    Graph(graph::Options),
    /// Ten million stored actions into a model.
    Train(train::Options),
    /// Syncs a real origin acknowledges, and how fast it folds them.
    Ingest(ingest::Options),
    /// What intelligent selection loses against the best arm, beside other policies.
    Bandit(bandit::Options),
    /// Facts a second, from /v1/events to the store.
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
