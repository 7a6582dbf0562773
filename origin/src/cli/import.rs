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

/// Exit code after Ctrl-C, the same as in shells.
const INTERRUPTED: i32 = 130;
/// Bad lines that are printed one by one. All bad lines are counted.
const PRINTED_LINES: usize = 20;

#[derive(Debug, Args)]
pub(super) struct ImportOptions {
    /// Content of the file.
    #[arg(value_enum)]
    kind: KindArg,
    /// The file: .parquet, .csv, .ndjson or .jsonl. The last three may have .gz or .zst appended if compressed. For
    /// `everything`, the folder of an export.
    file: PathBuf,
    /// The visitors' tenant. Optional if only one tenant is configured. An export names its tenants itself.
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    why: ReasonOptions,
    /// Succeed with at most this many bad lines. Bad lines are left out; the others are imported in any case.
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_bad: u64,
    /// Load an export without asking.
    #[arg(long)]
    yes: bool,
    /// Number of threads that parse lines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
}

/// A file of links.
#[derive(Debug, Clone, Args)]
pub(super) struct LinkFile {
    /// The file: .parquet, .csv, .ndjson or .jsonl. The last three may have .gz or .zst appended if compressed.
    file: PathBuf,
    /// The visitors' tenant. Optional if only one tenant is configured.
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    why: ReasonOptions,
    /// Succeed with at most this many bad lines. Bad lines are left out; the others are imported in any case.
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_bad: u64,
    /// Number of threads that parse lines.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArg {
    /// Segment memberships: visitor, and its segments.
    Segments,
    /// Events: visitor, and a page, track or action.
    Events,
    /// Links: visitor, other (or kind and value), weight, source.
    Links,
    /// A whole export of `causeway export`, into an empty store.
    Everything,
}

impl ImportOptions {
    /// The import of a file of links.
    pub(super) fn links(LinkFile { file, tenant, why, max_bad, workers }: LinkFile) -> Self {
        Self { kind: KindArg::Links, file, tenant, why, max_bad, yes: false, workers }
    }
}

/// A flag that the first Ctrl-C sets, and the runtime that waits for it. The import then ends after the current
/// transaction, and committed lines stay imported. The second Ctrl-C ends the process at once.
fn stop_on_ctrl_c() -> anyhow::Result<(tokio::runtime::Runtime, Arc<AtomicBool>)> {
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    let signals = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    signals.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(INTERRUPTED);
        }
    });
    Ok((signals, stopped))
}

pub(super) fn run(command: &ImportOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let kind = match command.kind {
        KindArg::Segments => ImportKind::Segments,
        KindArg::Events => ImportKind::Events,
        KindArg::Links => ImportKind::Links,
        KindArg::Everything => return super::export::import_folder(&command.file, command.yes, common),
    };
    // Checked before a store is created for the import.
    let file = std::fs::metadata(&command.file);
    let size = file.with_context(|| format!("cannot read {}", command.file.display()))?.len();
    let WritableStore { _writing, config, mut conn, rules } = WritableStore::or_made(common.load()?)?;
    let tenant = named_tenant(&rules.tenants, command.tenant.as_deref())?.no;
    if matches!(kind, ImportKind::Links) {
        // A line's visitor, or a cancellation of evidence, may be acknowledged but not folded yet.
        fold_before(&config, &conn)?;
    }
    let (workers, attribution) = (usize::from(command.workers), command.why.attribution());
    let served = || is_served(&config);
    let job = import::ImportRequest { rules: &rules, tenant, kind, workers, attribution, served: &served };
    let (_signals, stopped) = stop_on_ctrl_c()?;
    let bar = progress_bar(size, "{bytes} of {total_bytes}, {msg}");
    let mut found_bad = 0;
    let tell = |progress: &ImportProgress, bad: &[BadLine]| {
        bar.set_position(progress.bytes);
        bar.set_message(format!("{} lines, {} bad", progress.lines, progress.bad));
        for BadLine { line, code, message } in bad.iter().take(PRINTED_LINES.saturating_sub(found_bad)) {
            let text = match common.output {
                Format::Table => format!("line {line}: {code}: {message}"),
                Format::Json => json!({ "line": line, "code": code, "message": message }).to_string(),
            };
            bar.suspend(|| print_line(&text));
        }
        found_bad += bad.len();
        !stopped.load(Ordering::Relaxed)
    };
    let done = import::run(&mut conn, &job, &command.file, tell);
    bar.finish_and_clear();
    let done = done.with_context(|| format!("importing {}", command.file.display()))?;
    if found_bad > PRINTED_LINES && common.output == Format::Table {
        print_line(&format!("{} more lines are bad", found_bad - PRINTED_LINES));
    }
    common.output.one(&json!({
        "lines": done.lines, "lines_before": done.before, "facts": done.facts, "repeats": done.repeats, "erased": done.erased,
        "bad_lines": done.bad, "bad_lines_before": done.bad_before,
    }))?;
    let (name, bad) = (command.file.display(), done.bad + done.bad_before);
    ensure!(bad == 0 || done.before + done.facts + done.repeats + done.erased > 0, "no line of {name} was imported");
    let max = command.max_bad;
    ensure!(
        bad <= max,
        "bad lines in {name}: {bad}, and --max-bad is {max}. The other lines are imported. Once the cause is mended, the same \
         command takes them"
    );
    Ok(())
}
