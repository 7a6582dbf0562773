//! The command line. Exit codes: 0 done, 1 failed, 2 not understood.

mod config;
mod inspect;
mod keys;
mod output;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use causeway_origin::config::{Config, LogFormat};
use causeway_origin::serve;
use clap::{Args, Parser, Subcommand};

use self::output::Format;

#[derive(Debug, Parser)]
#[command(name = "causeway", version, about = "Recognises one person on many browsers: the origin.")]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Common {
    /// The configuration file.
    #[arg(long, global = true, env = "CAUSEWAY_CONFIG_FILE", default_value = "causeway.toml", value_name = "FILE")]
    config: PathBuf,
    /// Form of what is printed.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl Common {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&self.config, |name| std::env::var(name).ok())?)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the origin.
    Serve {
        /// Written once the origin answers: {"url": …}.
        #[arg(long, value_name = "FILE")]
        ready_file: Option<PathBuf>,
    },
    /// What the store holds.
    #[command(subcommand)]
    Inspect(inspect::Inspect),
    /// Bearer tokens of the admin side.
    #[command(subcommand)]
    Token(token::Token),
    /// The key file: make, list, rotate, retire.
    #[command(subcommand)]
    Keys(keys::Keys),
    /// The configuration: check it, explain it, print the edge's part.
    #[command(subcommand)]
    Config(config::Config),
}

/// Reads the arguments, does what they say, and tells how it went.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has enough, such as `head`.
        Err(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("causeway: {e:#}");
            ExitCode::from(1)
        }
    }
}

fn is_closed_pipe(e: &anyhow::Error) -> bool {
    e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let common = &cli.common;
    match &cli.command {
        Command::Serve { ready_file } => {
            let config = common.load()?;
            start_log(&config)?;
            let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
            runtime.block_on(serve::serve(config, ready_file.as_deref()))?;
            // A connection that did not end in time is not waited for again.
            runtime.shutdown_background();
            Ok(())
        }
        Command::Inspect(command) => inspect::run(command, common),
        Command::Token(command) => token::run(command, common),
        Command::Keys(command) => keys::run(command, common),
        Command::Config(command) => config::run(command, common),
    }
}

fn start_log(config: &Config) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log)
        .with_context(|| format!("`log` is not understood: {}", config.log))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
