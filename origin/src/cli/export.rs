//! `causeway export`, and `causeway import everything`.

use std::path::{Path, PathBuf};

use causeway_origin::export::load;
use causeway_origin::export::{self, Form, Manifest};
use causeway_origin::{clock, log, store};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::output::{bar, say};
use super::{Common, confirmed};

#[derive(Debug, Args)]
pub(super) struct Export {
    /// A new or empty folder.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Form of the files.
    #[arg(long, value_enum, default_value_t = FormArg::Parquet)]
    form: FormArg,
    /// One tenant alone.
    #[arg(long)]
    tenant: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormArg {
    /// Columns, packed: for Spark and the like.
    Parquet,
    /// A JSON object a line.
    Ndjson,
    /// A line a row.
    Csv,
}

pub(super) fn run(command: &Export, common: &Common) -> anyhow::Result<()> {
    let config = common.load()?;
    let mut conn = store::open_readonly(&config.data)?;
    let form = match command.form {
        FormArg::Parquet => Form::Parquet,
        FormArg::Ndjson => Form::Ndjson,
        FormArg::Csv => Form::Csv,
    };
    let thresholds = export::thresholds(&config.edge);
    let (tenant, now) = (command.tenant.as_deref(), clock::now());
    let job = export::Job { to: &command.to, form, tenant, thresholds: &thresholds, now };
    let waits = log::waits(&config.data, store::Counters::load(&conn)?.folded())?;
    if waits {
        say("facts that the origin has not folded yet are not in it");
    }
    let mut step = steps("rows");
    let manifest = export::run(&mut conn, job, &mut step)?;
    common.output.one(&told(&command.to, &manifest))
}

/// Loads an export into the empty store, once its plan is confirmed.
pub(super) fn import(from: &Path, yes: bool, common: &Common) -> anyhow::Result<()> {
    let config = common.load()?;
    let manifest = load::manifest(from)?;
    load::check_empty(&config.data)?;
    let unknown = |name: &&String| !config.edge.tenants.iter().any(|tenant| tenant.name == **name);
    let unknown: Vec<&String> = manifest.tenants.iter().filter(unknown).collect();
    let mut plan = told(from, &manifest);
    plan["into"] = config.data.display().to_string().into();
    plan["not_configured"] = json!(unknown);
    if !confirmed(yes, &plan, common)? {
        return Ok(());
    }
    load::check(from, &manifest, &mut steps("bytes to check"))?;
    load::run(&config.data, from, &manifest, clock::now(), &mut steps("rows"))?;
    plan["done"] = true.into();
    common.output.one(&plan)
}

fn told(folder: &Path, manifest: &Manifest) -> Value {
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

/// Shows which table is at work, and how far it is.
fn steps(what: &'static str) -> impl FnMut(&str, u64) {
    let bar = bar(export::tables::TABLES.len() as u64, "{pos} of {len} tables, {msg}");
    let mut before = String::new();
    move |table, count| {
        if table != before {
            if !before.is_empty() {
                bar.inc(1);
            }
            table.clone_into(&mut before);
        }
        bar.set_message(format!("{table}: {count} {what}"));
    }
}
