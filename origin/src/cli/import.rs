//! `causeway import`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use causeway_origin::maintenance::import::rows::BadLine;
use causeway_origin::maintenance::import::{self, ImportKind, ImportProgress};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::audit::ReasonOptions;
use super::output::{Format, print_line, progress_bar};
use super::{CommonOptions, WritableStore, fold_before, is_served, named_tenant};

/// Exit code of who was interrupted by Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;
/// Bad lines told one by one; all are counted.
const TOLD: usize = 20;

#[derive(Debug, Args)]
pub(super) struct ImportOptions {
    /// What the lines say.
    #[arg(value_enum)]
    kind: KindArg,
    /// .parquet, .csv, .ndjson or .jsonl, the last three with .gz or .zst behind them if packed; of everything, the folder of an export.
    file: PathBuf,
    /// Whose visitors. With one tenant configured it need not be said. An export says it itself.
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    why: ReasonOptions,
    /// Succeed with up to this many bad lines. They are left out, and the others are imported in any case.
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_bad: u64,
    /// Load an export without asking.
    #[arg(long)]
    yes: bool,
    /// Threads that read lines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
}

/// A file of links.
#[derive(Debug, Clone, Args)]
pub(super) struct LinkFile {
    /// .parquet, .csv, .ndjson or .jsonl, the last three with .gz or .zst behind them if packed.
    file: PathBuf,
    /// Whose visitors. With one tenant configured it need not be said.
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    why: ReasonOptions,
    /// Succeed with up to this many bad lines. They are left out, and the others are imported in any case.
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_bad: u64,
    /// Threads that read lines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArg {
    /// visitor, and the segments it is in.
    Segments,
    /// visitor, and a page, track or action.
    Events,
    /// visitor, other (or kind and value), weight, source.
    Links,
    /// All that `causeway export` wrote, into an empty store.
    Everything,
}

impl ImportOptions {
    /// Links of a file.
    pub(super) fn links(LinkFile { file, tenant, why, max_bad, workers }: LinkFile) -> Self {
        Self { kind: KindArg::Links, file, tenant, why, max_bad, yes: false, workers }
    }
}

pub(super) fn run(command: &ImportOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let kind = match command.kind {
        KindArg::Segments => ImportKind::Segments,
        KindArg::Events => ImportKind::Events,
        KindArg::Links => ImportKind::Links,
        KindArg::Everything => return super::export::import_folder(&command.file, command.yes, common),
    };
    // Before a store is made for it.
    let file = std::fs::metadata(&command.file);
    let size = file.with_context(|| format!("cannot read {}", command.file.display()))?.len();
    let WritableStore { _writing, config, mut conn, rules } = WritableStore::or_made(common.load()?)?;
    let tenant = named_tenant(&rules.tenants, command.tenant.as_deref())?.no;
    if matches!(kind, ImportKind::Links) {
        // Whom a line names, and what ended a tie, may be acknowledged and not stored yet.
        fold_before(&config, &conn)?;
    }
    let (workers, said) = (usize::from(command.workers), command.why.said());
    let job = import::ImportRequest { rules: &rules, tenant, kind, workers, said, served: &|| is_served(&config) };
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    let signals = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // The first Ctrl-C ends the import after the transaction under way, the second at once: what it took is taken.
    signals.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(INTERRUPTED);
        }
    });
    let bar = progress_bar(size, "{bytes} of {total_bytes}, {msg}");
    let mut told = 0;
    let tell = |progress: &ImportProgress, bad: &[BadLine]| {
        bar.set_position(progress.bytes);
        bar.set_message(format!("{} lines, {} bad", progress.lines, progress.bad));
        for BadLine { line, code, message } in bad.iter().take(TOLD.saturating_sub(told)) {
            let text = match common.output {
                Format::Table => format!("line {line}: {code}: {message}"),
                Format::Json => json!({ "line": line, "code": code, "message": message }).to_string(),
            };
            bar.suspend(|| print_line(&text));
        }
        told += bad.len();
        !stopped.load(Ordering::Relaxed)
    };
    let done = import::run(&mut conn, &job, &command.file, tell);
    bar.finish_and_clear();
    let done = done.with_context(|| format!("importing {}", command.file.display()))?;
    if told > TOLD && common.output == Format::Table {
        print_line(&format!("{} more lines are bad", told - TOLD));
    }
    common.output.one(&json!({
        "lines": done.lines, "lines_before": done.before, "facts": done.facts, "repeats": done.repeats, "erased": done.erased,
        "bad_lines": done.bad, "bad_lines_before": done.bad_before,
    }))?;
    let (name, bad) = (command.file.display(), done.bad + done.bad_before);
    ensure!(bad == 0 || done.before + done.facts + done.repeats + done.erased > 0, "no line of {name} was taken");
    let max = command.max_bad;
    ensure!(
        bad <= max,
        "bad lines in {name}: {bad}, and --max-bad is {max}. The other lines are imported. Once the cause is mended, the same \
         command takes them"
    );
    Ok(())
}
