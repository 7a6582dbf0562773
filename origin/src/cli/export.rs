//! `causeway export` and `causeway import everything`.

use std::path::{Path, PathBuf};

use causeway_origin::base::clock;
use causeway_origin::ingest::log;
use causeway_origin::maintenance::export::{self, Entry, ExportFormat, Manifest, load};
use causeway_origin::store;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::output::{print_line, progress_bar, step_bar};
use super::{CommonOptions, confirm_plan};

#[derive(Debug, Args)]
pub(super) struct ExportOptions {
    /// A new or empty folder.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Format of the files.
    #[arg(long, value_enum, default_value_t = FormArg::Parquet)]
    form: FormArg,
    /// Export only this tenant.
    #[arg(long)]
    tenant: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormArg {
    /// Parquet, for Spark and similar tools.
    Parquet,
    /// One JSON object per line.
    Ndjson,
    /// CSV with one line per row.
    Csv,
}

pub(super) fn run(command: &ExportOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let mut conn = store::open_readonly(&config.data)?;
    let form = match command.form {
        FormArg::Parquet => ExportFormat::Parquet,
        FormArg::Ndjson => ExportFormat::Ndjson,
        FormArg::Csv => ExportFormat::Csv,
    };
    let thresholds = export::thresholds(&config.edge);
    let (tenant, now) = (command.tenant.as_deref(), clock::now());
    let job = export::Job { to: &command.to, form, tenant, thresholds: &thresholds, now };
    let waits = log::has_unfolded(&config.data, store::StoreCounters::load(&conn)?.folded())?;
    if waits {
        print_line("facts that the origin has not folded yet are not exported");
    }
    let manifest = export::run(&mut conn, job, &mut show_written())?;
    common.output.one(&describe_export(&command.to, &manifest))
}

/// Loads an export into the empty store after its plan is confirmed.
pub(super) fn import_folder(from: &Path, yes: bool, common: &CommonOptions) -> anyhow::Result<()> {
    let config = common.load()?;
    let manifest = load::read_manifest(from)?;
    load::check_empty(&config.data)?;
    let unknown = |name: &&String| !config.edge.tenants.iter().any(|tenant| tenant.name == **name);
    let unknown: Vec<&String> = manifest.tenants.iter().filter(unknown).collect();
    let mut plan = describe_export(from, &manifest);
    plan["into"] = config.data.display().to_string().into();
    plan["not_configured"] = json!(unknown);
    if !confirm_plan(yes, &plan, common)? {
        return Ok(());
    }
    let mut checked = read(&manifest, |entry| entry.bytes, "{bytes} of {total_bytes} checked, {msg}");
    load::check_files(from, &manifest, &mut checked)?;
    drop(checked);
    let mut loaded = read(&manifest, |entry| entry.rows, "{pos} of {len} rows, {msg}");
    load::run(&config.data, from, &manifest, clock::now(), &mut loaded)?;
    drop(loaded);
    plan["done"] = true.into();
    common.output.one(&plan)
}

fn describe_export(folder: &Path, manifest: &Manifest) -> Value {
    let rows: serde_json::Map<String, Value> = manifest
        .tables
        .iter()
        .filter(|table| table.rows > 0)
        .map(|table| (table.name.clone(), table.rows.into()))
        .collect();
    let bytes: u64 = manifest.tables.iter().map(|table| table.bytes).sum();
    json!({
        "folder": folder.display().to_string(), "form": manifest.form, "made_ms": manifest.made_ms,
        "tenants": manifest.tenants, "rows": rows, "bytes": bytes,
    })
}

/// Shows the current table and its rows so far. The number of rows is not known in advance.
fn show_written() -> impl FnMut(&str, u64) {
    let bar = step_bar(export::tables::TABLES.len() as u64);
    move |table, rows| {
        bar.set_message(format!("{table}: {rows} rows"));
        bar.set_position(export::tables::TABLES.iter().take_while(|known| known.name != table).count() as u64);
    }
}

/// Shows the current table and the progress over the sizes in the manifest.
fn read<'m>(manifest: &'m Manifest, size: fn(&Entry) -> u64, form: &str) -> impl FnMut(&str, u64) + 'm {
    let bar = progress_bar(manifest.tables.iter().map(size).sum(), form);
    move |table, done| {
        let before: u64 = manifest.tables.iter().take_while(|entry| entry.name != table).map(size).sum();
        bar.set_message(table.to_owned());
        bar.set_position(before + done);
    }
}
