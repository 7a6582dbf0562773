//! `cargo xtask sim`: builds the simulator (`tests/sim`) and plays worlds; `cargo xtask sim bugs` shows that it finds
//! the planted bugs of `shared/src/base/planted.rs`.
//!
//! | command | effect |
//! |---|---|
//! | `cargo xtask sim` | plays 1,000 worlds; exits with 1 if one of them does not converge |
//! | `cargo xtask sim --seeds N --from S` | plays N worlds, beginning with seed S |
//! | `cargo xtask sim --hours H` | plays new worlds for H hours |
//! | `cargo xtask sim --seed S --events E --trace` | plays one world with E events of faults and prints what happens in it |
//! | `cargo xtask sim bugs [NAME…]` | plays worlds with each planted bug until one fails |
//!
//! The arguments are passed to the simulator unchanged; its exit code is the exit code of this command.

use std::ffi::OsString;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::project::Project;
use crate::stop::Stop;
use crate::test::TestTier;
use crate::{steps, test};

/// Number of worlds that `cargo xtask test` plays.
const WORLDS: &str = "1000";
/// Number of worlds that `cargo xtask test full` plays.
const LONG_WORLDS: &str = "5000";
/// Number of worlds within which each planted bug must be found.
const BUG_WORLDS: &str = "1500";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// Arguments of the simulator: `--seed S --trace`, `--seeds N --from S`, `--hours H`, `--events E`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// Play worlds with each planted bug until one fails; a bug that no world finds is a failure.
    Bugs {
        /// Names of bugs, as `shared/src/base/planted.rs` lists them. Without a name: all bugs.
        names: Vec<OsString>,
    },
}

/// The simulator ended with this code and has printed the reason.
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
        Some(Mode::Bugs { names }) => find_bugs(project, names, stop),
        None => play(project, &[], &options.arguments, stop),
    }
}

/// The step of `cargo xtask test`: plays worlds first, then the planted bugs.
pub(crate) fn test(project: &Project, tier: TestTier, stop: &Stop) -> Result<()> {
    let worlds = if tier == TestTier::Full { LONG_WORLDS } else { WORLDS };
    play(project, &[], &["--seeds".into(), worlds.into()], stop)?;
    find_bugs(project, &[], stop)
}

fn find_bugs(project: &Project, names: &[OsString], stop: &Stop) -> Result<()> {
    let mut arguments: Vec<OsString> = vec!["--seeds".into(), BUG_WORLDS.into(), "--bugs".into()];
    arguments.extend_from_slice(names);
    play(project, &["--features", "planted-bugs"], &arguments, stop)
}

fn play(project: &Project, features: &[&str], arguments: &[OsString], stop: &Stop) -> Result<()> {
    let mut cargo = project.cargo();
    steps::run(
        "building the simulator",
        cargo.args(["build", "--quiet", "--package", "causeway-sim"]).args(features),
        stop,
    )?;
    let mut command = project.command(project.target.join("debug/causeway-sim"));
    let status = test::watched(command.args(arguments), stop)?;
    if status.success() {
        return Ok(());
    }
    // A process that a signal ended has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(Ended(code).into())
}
