//! The command line. Exit codes: 0 done, 1 failed, 2 not understood.

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
use causeway_origin::audience::materialized::KeepError;
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

/// How long a serving origin has to store what it took before, and how often that is looked at.
const FOLD: Duration = Duration::from_secs(10);
const FOLD_LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Parser)]
#[command(name = "causeway", version, about = "Recognises one person on many browsers: the origin.")]
struct Cli {
    #[command(flatten)]
    common: CommonOptions,
    #[command(subcommand)]
    command: OriginCommand,
}

#[derive(Debug, Args)]
struct CommonOptions {
    /// The configuration file.
    #[arg(long, global = true, env = "CAUSEWAY_CONFIG_FILE", default_value = "causeway.toml", value_name = "FILE")]
    config: PathBuf,
    /// Form of what is printed.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl CommonOptions {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&self.config, |name| std::env::var_os(name))?)
    }
}

/// The store opened for writing, beside a serving origin too, with the configured tenants.
struct WritableStore {
    _writing: store::StoreLock,
    config: Config,
    conn: rusqlite::Connection,
    rules: TxnRules,
}

impl WritableStore {
    /// The store that is there: a mistaken folder is not to look like one of which nobody is known.
    fn new(common: &CommonOptions) -> anyhow::Result<Self> {
        let config = common.load()?;
        store::existing_file(&config.data)?;
        Self::or_made(config)
    }

    /// The same, made where there is none.
    fn or_made(config: Config) -> anyhow::Result<Self> {
        let keys = key_file::load_checked(&config.keys, &config.edge)?;
        let writing = store::lock_writing(&config.data, false)?;
        let mut conn = store::open(&config.data)?;
        let tenants = Tenants::open(&conn, &config.edge, &keys)?;
        // Who serves has read the journal whole, and keeps store and journal together.
        let ready = store::is_ready(&config.data);
        let journal = if ready { ErasureJournal::beside(&config.data) } else { ErasureJournal::open(&config.data) }?;
        let rules = TxnRules::of(&config, tenants, journal);
        if !ready {
            marker::tie_files(&config.data, &conn)?;
            let in_log = log::newest_record(&config.data, &conn)?;
            replay_journal(&mut conn, &rules, causeway_origin::store::write_txn::draw_inputs()?, in_log)?;
        }
        Ok(Self { _writing: writing, config, conn, rules })
    }

    fn place(&mut self) -> ReadSource<'_> {
        ReadSource { data: &self.config.data, conn: &mut self.conn, tenants: &self.rules.tenants }
    }
}

/// Where is read from: the store, what its log has beyond it, and whose they are.
struct ReadSource<'a> {
    data: &'a Path,
    conn: &'a mut rusqlite::Connection,
    tenants: &'a Tenants,
}

/// The store opened for reading, beside a serving origin too, with the tenants that it knows: nothing is made, and no schema
/// changed, so that a look by a later release bars no way back.
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

    fn place(&mut self) -> ReadSource<'_> {
        ReadSource { data: &self.config.data, conn: &mut self.conn, tenants: &self.tenants }
    }
}

/// The tenant of that name; with one configured it need not be said.
fn named_tenant<'t>(tenants: &'t Tenants, name: Option<&str>) -> anyhow::Result<&'t TenantContext> {
    tenants.named(name).ok_or_else(|| match name {
        Some(name) => anyhow::anyhow!("the store has no tenant `{name}`"),
        None if tenants.iter().next().is_none() => {
            anyhow::anyhow!("the store knows no tenant yet: it learns of them when the origin serves")
        }
        None => UsageError("there are several tenants: say --tenant NAME".to_owned()).into(),
    })
}

/// An argument that is not understood.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// A visitor's id, as an argument says it.
fn parse_visitor(text: &str) -> anyhow::Result<VisitorId> {
    text.parse().map_err(|_| UsageError(format!("`{text}` is no visitor id: one is a UUID of version 7")).into())
}

/// An argument that is JSON.
fn parse_argument<T: DeserializeOwned>(text: &str, what: &str) -> anyhow::Result<T> {
    json::read(text.as_bytes()).map_err(|e| UsageError(format!("{what} is not understood: {e}")).into())
}

/// Whether a plan is to be carried out: as said, or as answered on a terminal, where it is shown. Else it is what is printed.
fn confirm_plan(yes: bool, plan: &serde_json::Value, common: &CommonOptions) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    if std::io::stdin().is_terminal() {
        // What is printed may go to a file: who answers is to see what is asked.
        print_line(&output::object_lines(plan));
        print_line("do it? [y/N]");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "yes") {
            return Ok(true);
        }
    }
    common.output.one(plan)?;
    if common.output == Format::Table {
        print_line("nothing was changed: add --yes to do it");
    }
    Ok(false)
}

/// Whether a process serves from the data directory.
fn is_served(config: &Config) -> bool {
    store::is_served(&config.data)
}

/// Waits until an origin that serves has stored what it acknowledged before: what a command ends or ties may be of that.
fn fold_before(config: &Config, conn: &rusqlite::Connection) -> anyhow::Result<()> {
    let (newest, first, began) =
        (log::newest_record(&config.data, conn)?, StoreCounters::load(conn)?.folded(), Instant::now());
    let bar =
        output::progress_bar(newest.saturating_sub(first), "{pos} of {len} syncs stored that the origin took before");
    while is_served(config) {
        let folded = StoreCounters::load(conn)?.folded();
        if folded >= newest {
            break;
        }
        bar.set_position(folded.saturating_sub(first));
        if began.elapsed() > FOLD {
            print_line("the origin does not store what it took before: of that this command does not know");
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
        /// Written once the origin answers: {"url": …}.
        #[arg(long, value_name = "FILE")]
        ready_file: Option<PathBuf>,
    },
    /// What the store holds.
    #[command(subcommand)]
    Inspect(inspect::InspectCommand),
    /// How often a person, or one visitor, acted on ads: the question as JSON, as the admin side takes it.
    Count(count::CountOptions),
    /// A visitor's segments.
    #[command(subcommand)]
    Segments(segments::SegmentsCommand),
    /// A visitor's attributes, and the names there are.
    #[command(subcommand)]
    Attributes(attributes::AttributesCommand),
    /// The names of events that audiences count.
    #[command(subcommand)]
    Events(events::EventsCommand),
    /// The catalogue: check a file, apply it, list the versions, go back to one.
    #[command(subcommand)]
    Catalogue(catalogue::CatalogueCommand),
    /// Facts from files: Parquet, CSV or NDJSON, the last two plain, gzip or zstd. Goes on where it was interrupted. Or everything of an export.
    Import(import::ImportOptions),
    /// Everything the store knows into a new folder, as Parquet, NDJSON or CSV, also while the origin serves.
    Export(export::ExportOptions),
    /// Jobs over the whole store.
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Links: check whether two visitors are one person, add evidence that they are, undo it.
    #[command(subcommand)]
    Links(links::LinksCommand),
    /// Erase a visitor, or everybody who was seen with an alternate id until now. Shows its plan first.
    Erase(erase::EraseOptions),
    /// How many people a filter means, by a sample and exactly, and who they are.
    #[command(subcommand)]
    Audience(audience::AudienceCommand),
    /// Who linked, unlinked and erased, and why: the newest first.
    Audit(audit::AuditOptions),
    /// Experiments: plan one, show what one came to.
    #[command(subcommand)]
    Experiment(experiment::ExperimentCommand),
    /// Why a visitor gets the ads it gets: the edge's decision with what the store knows, nothing counted.
    Explain(explain::ExplainOptions),
    /// Copy store and log into a new folder, also while the origin serves. Keys and configuration are not in it.
    #[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
    Backup {
        /// The folder.
        #[arg(long, value_name = "FOLDER", required = true)]
        to: Option<PathBuf>,
        #[command(subcommand)]
        command: Option<backup::BackupCommand>,
    },
    /// Put a backup in the place of store and log, which are kept beside it; everything is published anew.
    Restore {
        /// The backup's folder.
        #[arg(long, value_name = "FOLDER")]
        from: PathBuf,
        /// Do it; without, the plan is shown, and on a terminal it is asked.
        #[arg(long)]
        yes: bool,
    },
    /// The files of the data directory: check that they belong together, go on without one that is lost.
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Bearer tokens of the admin side.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// The key file: make, list, rotate, retire.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// The configuration: check it, explain it, print the edge's part.
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

/// Reads the arguments, does what they say, and tells how it went.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and the version are no failures.
        Err(e) if e.use_stderr() && asks_for_json(std::env::args_os()) => {
            let text = e.to_string();
            say_json(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            return ExitCode::from(2);
        }
        Err(e) => e.exit(),
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has enough, such as `head`.
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

/// Whether the arguments were wrong: what HTTP answers with a 400.
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
        || matches!(e.downcast_ref(), Some(KeepError::Hours | KeepError::Every(_) | KeepError::Itself(_)))
}

fn say_json(message: &str) {
    print_line(&json!({ "error": { "message": message } }).to_string());
}

/// Whether arguments that are not understood ask for JSON.
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
            let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
            let served = runtime.block_on(serve::serve(config, ready_file.as_deref()));
            // What did not end in time is not waited for again.
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

/// Starts the log.
fn start_log(config: &Config) -> anyhow::Result<LogOutput> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log)
        .with_context(|| format!("`log` is not understood: {}", config.log))?;
    let (lines, guard) = log_output::start_output();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    match config.log_format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
    // A panic is a line of the log too: written to standard error directly, it would wait for a reader that stopped.
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a fault of the program ends a thread")));
    Ok(guard)
}
