//! The command line. Exit codes: 0 success, 1 failure, 2 invalid arguments.

mod attributes;
mod audience;
mod audience_parts;
mod audit;
mod backup;
mod catalogue;
mod config;
mod count;
mod data;
mod erase;
mod events;
mod experiment;
mod explain;
mod export;
mod import;
mod inspect;
mod job;
mod keys;
mod links;
mod output;
mod publish_progress;
mod segments;
mod send;
mod token;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use causeway_origin::api::serve;
use causeway_origin::audience::materialized::MaterialiseError;
use causeway_origin::audience::query::AnswerError;
use causeway_origin::audience::send::SendError;
use causeway_origin::base::config::{Config, LogFormat};
use causeway_origin::base::key_file;
use causeway_origin::base::log_output::{self, LogOutput};
use causeway_origin::campaigns::experiment::statistics::PlanError;
use causeway_origin::identity::connections::LinkError;
use causeway_origin::ingest::{log, marker};
use causeway_origin::kv::explain::ExplainError;
use causeway_origin::maintenance::import::{ImportError, file::FileError};
use causeway_origin::pipeline::replay::replay_journal;
use causeway_origin::store::id_error::IdError;
use causeway_origin::store::journal::ErasureJournal;
use causeway_origin::store::tenants::{TenantContext, Tenants};
use causeway_origin::store::write_txn::TxnRules;
use causeway_origin::store::{self, StoreCounters};
use causeway_origin::views::count::CountError;
use causeway_origin::views::describe::LookupError;
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::json;
use causeway_shared::facts::fact::FactError;
use causeway_shared::keys::key_ring::KeySet;
use clap::{Args, Parser, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::json;

use self::output::{Format, print_line};

/// How long a command waits for the serving origin to fold earlier syncs, and the interval between two looks.
const FOLD: Duration = Duration::from_secs(10);
const FOLD_LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Parser)]
#[command(name = "causeway", version, about = "The origin of Causeway: links browsers into people.")]
struct Cli {
    #[command(flatten)]
    common: CommonOptions,
    #[command(subcommand)]
    command: OriginCommand,
}

#[derive(Debug, Args)]
struct CommonOptions {
    /// Path of the configuration file.
    #[arg(long, global = true, env = "CAUSEWAY_CONFIG_FILE", default_value = "causeway.toml", value_name = "FILE")]
    config: PathBuf,
    /// Output format: a table for people, or JSON for programs.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl CommonOptions {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&self.config, |name| std::env::var_os(name))?)
    }
}

/// The store opened for writing, with the configured tenants. Works in parallel with a serving origin.
struct WritableStore {
    _writing: store::StoreLock,
    config: Config,
    conn: rusqlite::Connection,
    rules: TxnRules,
}

impl WritableStore {
    /// Opens an existing store. A mistyped folder is an error; it must not look like an empty store.
    fn new(common: &CommonOptions) -> anyhow::Result<Self> {
        let config = common.load()?;
        store::existing_file(&config.data)?;
        Self::or_made(config)
    }

    /// Opens the store and creates it if it is missing.
    fn or_made(config: Config) -> anyhow::Result<Self> {
        let keys = key_file::load_checked(&config.keys, &config.edge)?;
        let writing = store::lock_writing(&config.data, false)?;
        let mut conn = store::open(&config.data)?;
        let tenants = Tenants::open(&conn, &config.edge, &keys)?;
        // A serving origin has replayed the journal and maintains store and journal together.
        let ready = store::is_ready(&config.data);
        let journal = if ready { ErasureJournal::open_in(&config.data) } else { ErasureJournal::open(&config.data) }?;
        let rules = TxnRules::of(&config, tenants, journal);
        if !ready {
            marker::tie_files(&config.data, &conn)?;
            let in_log = log::newest_record(&config.data, &conn)?;
            replay_journal(&mut conn, &rules, causeway_origin::store::write_txn::draw_inputs()?, in_log)?;
        }
        Ok(Self { _writing: writing, config, conn, rules })
    }

    fn read_source(&mut self) -> ReadSource<'_> {
        ReadSource { data: &self.config.data, conn: &mut self.conn, tenants: &self.rules.tenants }
    }
}

/// The inputs of a read: the data directory with its log, the store, and the tenants.
struct ReadSource<'a> {
    data: &'a Path,
    conn: &'a mut rusqlite::Connection,
    tenants: &'a Tenants,
}

/// The store opened for reading, with the tenants that it knows. Works in parallel with a serving origin. It creates
/// nothing and migrates no schema, so that reading with a newer release does not prevent a return to the older one.
struct ReadableStore {
    config: Config,
    keys: KeySet,
    conn: rusqlite::Connection,
    tenants: Tenants,
}

impl ReadableStore {
    fn new(common: &CommonOptions) -> anyhow::Result<Self> {
        let config = common.load()?;
        let keys = key_file::load_checked(&config.keys, &config.edge)?;
        let conn = store::open_readonly(&config.data)?;
        let tenants = Tenants::find(&conn, &config.edge, &keys)?;
        Ok(Self { config, keys, conn, tenants })
    }

    fn read_source(&mut self) -> ReadSource<'_> {
        ReadSource { data: &self.config.data, conn: &mut self.conn, tenants: &self.tenants }
    }
}

/// The tenant of that name. The name may be absent if exactly one tenant is configured.
fn named_tenant<'t>(tenants: &'t Tenants, name: Option<&str>) -> anyhow::Result<&'t TenantContext> {
    tenants.named(name).ok_or_else(|| match name {
        Some(name) => anyhow::anyhow!("tenant `{name}` not found in the store"),
        None if tenants.iter().next().is_none() => {
            anyhow::anyhow!("the store has no tenant yet: start the origin once with `causeway serve`")
        }
        None => UsageError("several tenants are configured: add --tenant NAME".to_owned()).into(),
    })
}

/// An invalid argument.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// Parses a visitor id from an argument.
fn parse_visitor(text: &str) -> anyhow::Result<VisitorId> {
    text.parse().map_err(|_| UsageError(format!("invalid visitor id `{text}`: expected a UUID of version 7")).into())
}

/// Parses an argument that is JSON. `what` names the argument in the error.
fn parse_argument<T: DeserializeOwned>(text: &str, what: &str) -> anyhow::Result<T> {
    json::read(text.as_bytes()).map_err(|e| UsageError(format!("cannot parse {what}: {e}")).into())
}

/// Whether the plan may be carried out: `--yes` is set, or the user agrees on a terminal. Otherwise the plan is printed
/// as the command's result.
fn confirm_plan(yes: bool, plan: &serde_json::Value, common: &CommonOptions) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    if std::io::stdin().is_terminal() {
        // Standard output may go to a file, so the plan for the question is shown on standard error.
        print_line(&output::object_lines(plan));
        print_line("apply this plan? [y/N]");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "yes") {
            return Ok(true);
        }
    }
    common.output.one(plan)?;
    if common.output == Format::Table {
        print_line("nothing was changed: add --yes to apply the plan");
    }
    Ok(false)
}

/// Whether a process serves from the data directory.
fn is_served(config: &Config) -> bool {
    store::is_served(&config.data)
}

/// Waits until a serving origin has folded the syncs that it acknowledged so far, because they may hold facts or
/// evidence that the command must see.
fn fold_before(config: &Config, conn: &rusqlite::Connection) -> anyhow::Result<()> {
    let (newest, first, began) =
        (log::newest_record(&config.data, conn)?, StoreCounters::load(conn)?.folded(), Instant::now());
    let bar = output::progress_bar(newest.saturating_sub(first), "{pos} of {len} earlier syncs folded");
    while is_served(config) {
        let folded = StoreCounters::load(conn)?.folded();
        if folded >= newest {
            break;
        }
        bar.set_position(folded.saturating_sub(first));
        if began.elapsed() > FOLD {
            print_line("the origin has not folded all earlier syncs: this command does not see the rest");
            break;
        }
        std::thread::sleep(FOLD_LOOK);
    }
    bar.finish_and_clear();
    Ok(())
}

#[derive(Debug, Subcommand)]
enum OriginCommand {
    /// Run the origin.
    Serve {
        /// File that is written once the origin answers: {"url": …}.
        #[arg(long, value_name = "FILE")]
        ready_file: Option<PathBuf>,
    },
    /// Look up a visitor, a person or an alternate id.
    #[command(subcommand)]
    Inspect(inspect::InspectCommand),
    /// Count the actions of a person, or of one visitor, on ads. The question is JSON, as in the admin API.
    Count(count::CountOptions),
    /// Read or write a visitor's segments.
    #[command(subcommand)]
    Segments(segments::SegmentsCommand),
    /// Read or write a visitor's attributes, and manage the attribute names.
    #[command(subcommand)]
    Attributes(attributes::AttributesCommand),
    /// Manage the event names that audiences count.
    #[command(subcommand)]
    Events(events::EventsCommand),
    /// Manage the catalogue: check a file, apply it, list versions, roll back.
    #[command(subcommand)]
    Catalogue(catalogue::CatalogueCommand),
    /// Import facts from a Parquet, CSV or NDJSON file; CSV and NDJSON may be compressed with gzip or zstd. An
    /// interrupted import continues at the next call. `import everything` loads a whole export.
    Import(import::ImportOptions),
    /// Export the whole store to a new folder as Parquet, NDJSON or CSV, also while the origin serves.
    Export(export::ExportOptions),
    /// Run and list background jobs over the whole store.
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Check whether two visitors are one person, add evidence, or cancel it.
    #[command(subcommand)]
    Links(links::LinksCommand),
    /// Erase a visitor, or every visitor seen with an alternate id until now. Shows its plan first.
    Erase(erase::EraseOptions),
    /// Estimate, count or list the people who match a filter; materialise an audience; send to it.
    #[command(subcommand)]
    Audience(audience::AudienceCommand),
    /// List linking, unlinking and erasure with their author and reason, newest first.
    Audit(audit::AuditOptions),
    /// Plan an experiment, or show its results.
    #[command(subcommand)]
    Experiment(experiment::ExperimentCommand),
    /// Explain the ads that a visitor gets: repeats the edge's decision with the store's data and counts nothing.
    Explain(explain::ExplainOptions),
    /// Copy store and log to a new folder, also while the origin serves. Keys and configuration are not included.
    #[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
    Backup {
        /// A new folder for the backup.
        #[arg(long, value_name = "FOLDER", required = true)]
        to: Option<PathBuf>,
        #[command(subcommand)]
        command: Option<backup::BackupCommand>,
    },
    /// Replace store and log with a backup. The replaced files stay in a folder `before-restore-…`, and every KV key is
    /// published again.
    Restore {
        /// The backup's folder.
        #[arg(long, value_name = "FOLDER")]
        from: PathBuf,
        /// Apply the plan without asking. Without this option, the plan is shown; on a terminal, the command asks.
        #[arg(long)]
        yes: bool,
    },
    /// Check that the files of the data directory belong together, or continue without a lost one.
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Create, list and revoke bearer tokens of the admin API.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Manage the key file: create, list, rotate, retire.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Check the configuration, print its reference, or print the edge's part of it.
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

/// Parses the arguments, runs the command, and returns its exit code.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // `--help` and `--version` arrive as errors but are successes.
        Err(e) if e.use_stderr() && asks_for_json(std::env::args_os()) => {
            let text = e.to_string();
            say_json(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            return ExitCode::from(2);
        }
        Err(e) => e.exit(),
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe, such as `head`.
        Err(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            match cli.common.output {
                Format::Table => print_line(&format!("causeway: {e:#}")),
                Format::Json => say_json(&format!("{e:#}")),
            }
            ExitCode::from(if is_usage(&e) { 2 } else { 1 })
        }
    }
}

/// Whether the error is a usage error, which the HTTP API answers with status 400.
fn is_usage(e: &anyhow::Error) -> bool {
    e.is::<UsageError>()
        || e.is::<IdError>()
        || e.is::<PlanError>()
        || e.is::<FactError>()
        || e.downcast_ref().is_some_and(|e: &LinkError| *e != LinkError::Key)
        || matches!(e.downcast_ref(), Some(LookupError::Id(_)))
        || matches!(e.downcast_ref(), Some(CountError::Field(..)))
        || matches!(e.downcast_ref(), Some(ExplainError::Refused(_)))
        || matches!(e.downcast_ref(), Some(ImportError::File(FileError::Name(_))))
        || matches!(e.downcast_ref(), Some(AnswerError::Uncounted(..) | AnswerError::Precision))
        || matches!(e.downcast_ref(), Some(SendError::Name | SendError::Count | SendError::PerSecond))
        || matches!(
            e.downcast_ref(),
            Some(MaterialiseError::Hours | MaterialiseError::Every(_) | MaterialiseError::Itself(_))
        )
}

fn say_json(message: &str) {
    print_line(&json!({ "error": { "message": message } }).to_string());
}

/// Whether arguments that cannot be parsed ask for JSON output.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut before = OsString::new();
    for argument in arguments {
        if argument == "--output=json" || before == "--output" && argument == "json" {
            return true;
        }
        before = argument;
    }
    false
}

fn is_closed_pipe(e: &anyhow::Error) -> bool {
    e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let common = &cli.common;
    match &cli.command {
        OriginCommand::Serve { ready_file } => {
            let config = common.load()?;
            let _log = start_log(&config)?;
            let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
            let served = runtime.block_on(serve::serve(config, ready_file.as_deref()));
            // Tasks that missed the shutdown deadline are not waited for a second time.
            runtime.shutdown_background();
            Ok(served?)
        }
        OriginCommand::Inspect(command) => inspect::run(command, common),
        OriginCommand::Count(command) => count::run(command, common),
        OriginCommand::Segments(command) => segments::run(command, common),
        OriginCommand::Attributes(command) => attributes::run(command, common),
        OriginCommand::Events(command) => events::run(command, common),
        OriginCommand::Catalogue(command) => catalogue::run(command, common),
        OriginCommand::Import(command) => import::run(command, common),
        OriginCommand::Export(command) => export::run(command, common),
        OriginCommand::Job(command) => job::run(command, common),
        OriginCommand::Links(command) => links::run(command, common),
        OriginCommand::Erase(command) => erase::run(command, common),
        OriginCommand::Audience(command) => audience::run(command, common),
        OriginCommand::Audit(command) => audit::run(command, common),
        OriginCommand::Experiment(command) => experiment::run(command, common),
        OriginCommand::Explain(command) => explain::run(command, common),
        OriginCommand::Backup { command: Some(backup::BackupCommand::Verify { from }), .. } => {
            backup::verify_backup(from, common)
        }
        OriginCommand::Backup { to, .. } => backup::take_backup(to.as_deref().unwrap_or(Path::new("")), common),
        OriginCommand::Restore { from, yes } => backup::restore_backup(from, *yes, common),
        OriginCommand::Data(command) => command.run(common),
        OriginCommand::Token(command) => token::run(command, common),
        OriginCommand::Keys(command) => keys::run(command, common),
        OriginCommand::Config(command) => config::run(command, common),
    }
}

/// Starts the log output.
fn start_log(config: &Config) -> anyhow::Result<LogOutput> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log)
        .with_context(|| format!("invalid log filter in `log`: {}", config.log))?;
    let (lines, guard) = log_output::start_output();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    match config.log_format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
    // A panic is logged too: a direct write to standard error would block on a reader that has stopped.
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a thread panicked")));
    Ok(guard)
}
