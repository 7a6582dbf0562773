//! `cargo xtask sim`: builds the simulator (`tests/sim`) and plays worlds; `cargo xtask sim mutants` shows that it would
//! see bugs of many kinds.
//!
//! | command | what |
//! |---|---|
//! | `cargo xtask sim` | 1,000 worlds; ends with 1 when one of them does not converge |
//! | `cargo xtask sim --seeds N --from S` | so many worlds, beginning with seed S |
//! | `cargo xtask sim --hours H` | fresh worlds for so long |
//! | `cargo xtask sim --seed S --events E --trace` | one world with so many events of faults, and what happens in it |
//! | `cargo xtask sim mutants [NAME…] [--seeds N]` | each planted bug of `tests/sim/mutants`, until a world shows it |
//!
//! All but the last are the simulator's own arguments; its exit code is this command's.

pub(crate) mod mutants;

use std::ffi::OsString;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::project::Project;
use crate::stop::Stop;
use crate::{steps, test};

/// Worlds that `cargo xtask test` plays.
const TESTED: &str = "1000";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// For the simulator: `--seed S --trace`, `--seeds N --from S`, `--hours H`, `--events E`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// Plays worlds with each planted bug until one fails; a bug that no world shows is a failure.
    Mutants(mutants::Options),
}

/// The simulator ended with this code, and has said why.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) u8);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the simulator ended with {}", self.0)
    }
}

impl std::error::Error for Ended {}

pub(crate) fn run(project: &Project, options: &Options, stop: &Stop) -> Result<()> {
    match &options.mode {
        Some(Mode::Mutants(options)) => mutants::run(project, options, stop),
        None => play(project, &options.arguments, stop),
    }
}

/// The step of `cargo xtask test`: worlds first, then the mutants.
pub(crate) fn tested(project: &Project, stop: &Stop) -> Result<()> {
    play(project, &["--seeds".into(), TESTED.into()], stop)?;
    mutants::run(project, &mutants::Options::default(), stop)
}

fn play(project: &Project, arguments: &[OsString], stop: &Stop) -> Result<()> {
    steps::run(
        "building the simulator",
        project.cargo().args(["build", "--quiet", "--package", "causeway-sim"]),
        stop,
    )?;
    let mut command = project.command(project.target.join("debug/causeway-sim"));
    let status = test::watched(command.args(arguments), stop)?;
    if status.success() {
        return Ok(());
    }
    // Ended by a signal: it has no code of its own.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(Ended(code).into())
}
