//! The project's own commands: `cargo xtask dev`, `test`, `build`, `lint`, `bench`, `sim`.
//!
//! A machine with rustup, Node and a C compiler needs nothing else: what is missing is installed into the
//! project's own folders (`.tools/`, `node_modules/`), at the versions that the two lockfiles name.
//! This crate never decides anything about the product; it starts other programs and waits for them.
//!
//! Exit codes: 0 done, 1 failed, 2 usage, 130 stopped by a signal during a step; of `sim` the simulator's own.
//!
//! # What tests and benches find in the environment
//! `cargo xtask test` and `cargo xtask bench` set these for the programs they start, all absolute paths:
//!
//! | variable | what |
//! |---|---|
//! | `CAUSEWAY_ROOT` | the checkout |
//! | `CAUSEWAY_XTASK` | this program; `$CAUSEWAY_XTASK dev --ready-file F …` starts a world |
//! | `CAUSEWAY_ORIGIN_BIN` | the `causeway` binary, release profile |
//! | `CAUSEWAY_EDGE_BUILD` | the folder with `engine.js` and `engine_bg.wasm` |
//! | `CAUSEWAY_EDGE_BUNDLE` | the folder with `platform.js` and the modules it imports, as `wrangler deploy` would upload them |
//! | `CAUSEWAY_BENCH_WASM` | for the bench `wasm`: the folder with its module and glue |
//! | `CAUSEWAY_NODE` | a Node 22 |
//! | `CAUSEWAY_WORKERD` | the `workerd` binary |
//! | `CAUSEWAY_WRANGLER` | wrangler's entry, to be run by that Node |
//! | `CAUSEWAY_CHROMIUM` | Chromium, for `tests/browser/` |
//! | `CAUSEWAY_NO_SPARK` | leaves out the tests that need Python or Spark; set by a user, or where Java or Python is missing |
//! | `CAUSEWAY_DEMAND_SPARK` | set where the machine has Java and Python: these tests fail where they cannot run |
//! | `CAUSEWAY_LONG` | set by `cargo xtask test full`: every case of a test in its long form |
//! | `WASM_BINDGEN_BIN`, `WASM_OPT_BIN`, `ESBUILD_BIN` | what worker-build would download |
//!
//! `node_modules/.bin` is first on their `PATH`. `cargo xtask dev` installs and builds nothing when both
//! `CAUSEWAY_ORIGIN_BIN` and `CAUSEWAY_EDGE_BUILD` are set, so that many worlds can be started at once.

mod bench;
mod dev;
mod edge_build;
mod http;
mod lint;
mod npm;
mod origin_build;
mod process;
mod project;
mod sim;
mod steps;
mod stop;
mod test;
mod tools;
mod world;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::project::Project;
use crate::stop::Stop;
use crate::test::{TestArgument, TestStep};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Causeway's own commands.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what is missing, build, and run the origin and the edge on this machine until Ctrl-C.
    Dev(dev::Options),
    /// Check and test the project: all steps, or the named steps, or a tier (quick, full).
    Test {
        /// A tier, or steps, or both. Without one: all steps, their long cases in a short form.
        #[arg(value_enum)]
        arguments: Vec<TestArgument>,
    },
    /// Build the edge, the origin, or both.
    Build {
        /// What to build; both without it.
        #[arg(value_enum)]
        part: Option<Part>,
    },
    /// The step `lint` of `test`.
    Lint,
    /// Run a bench.
    Bench {
        /// Its name.
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(bench::names()))]
        name: String,
        /// JSON lines instead of a table.
        #[arg(long)]
        json: bool,
        /// With RocksDB as a peer of `counting-store`: it is built once, for minutes, and needs libclang.
        #[arg(long)]
        rocksdb: bool,
    },
    /// Play simulated worlds, each from one seed; or show that planted bugs are found.
    Sim(sim::Options),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Edge,
    Origin,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let stop = match Stop::on_signals() {
        Ok(stop) => stop,
        Err(error) => return failed(&error),
    };
    match run(cli.command, &stop) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<stop::Stopped>() => {
            eprintln!("stopped");
            ExitCode::from(130)
        }
        Err(error) => match error.downcast_ref() {
            Some(sim::Ended(code)) => ExitCode::from(*code),
            None => failed(&error),
        },
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

fn run(command: Command, stop: &Stop) -> anyhow::Result<()> {
    let project = Project::find()?;
    match command {
        Command::Dev(options) => dev::run(&project, &options, stop),
        Command::Test { arguments } => test::run(&project, &arguments, stop),
        Command::Build { part } => build(&project, part, stop),
        Command::Lint => test::run(&project, &[TestArgument::Step(TestStep::Lint)], stop),
        Command::Bench { name, json, rocksdb } => bench::run(&project, &name, json, rocksdb, stop),
        Command::Sim(options) => sim::run(&project, &options, stop),
    }
}

fn build(project: &Project, part: Option<Part>, stop: &Stop) -> anyhow::Result<()> {
    tools::check_machine()?;
    if part != Some(Part::Edge) {
        println!("{}", origin_build::build(project, stop)?.display());
    }
    if part != Some(Part::Origin) {
        tools::ensure_all(project, stop)?;
        println!("{}", edge_build::build(project, stop)?.display());
    }
    Ok(())
}
