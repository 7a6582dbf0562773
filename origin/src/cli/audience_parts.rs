//! Arguments and steps that the commands of audiences, sends and jobs share.

use super::output::{Format, progress_bar, show_progress};
use super::{UsageError, parse_argument};
use anyhow::{Context as _, bail};
use causeway_origin::audience::Audience as Columns;
use causeway_origin::audience::index_follower::StoreFollower;
use causeway_origin::audience::query::{self, MemberFormat};
use causeway_origin::maintenance::export;
use causeway_origin::store::StoreError;
use causeway_origin::store::tenants::TenantContext;
use causeway_shared::targeting::filter::Filter;
use clap::{Args, ValueEnum};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What a bar over people says.
pub(super) const PEOPLE: &str = "{pos} of {len} people";

/// In which form members are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// A JSON object each.
    Ndjson,
    /// Values apart by commas, under their names.
    Csv,
    /// Columns, packed; of `audience export` alone, and into a file.
    Parquet,
}

#[derive(Debug, Args)]
pub(super) struct OutputTarget {
    /// In which form.
    #[arg(long, value_enum, default_value_t = OutputFormat::Ndjson)]
    pub(super) form: OutputFormat,
    /// Into this file, which must not be there yet; standard output where none is named.
    #[arg(long, value_name = "FILE")]
    pub(super) to: Option<PathBuf>,
}

impl OutputTarget {
    /// Writes the lines of so many people, those of some at a time, until there are no more. Of a file it tells how many rows
    /// it has.
    pub(super) fn write(
        &self,
        people: usize,
        output: Format,
        head: fn(MemberFormat) -> &'static str,
        mut next: impl FnMut(MemberFormat) -> anyhow::Result<Option<(usize, String)>>,
    ) -> anyhow::Result<()> {
        let lines = match self.form {
            OutputFormat::Csv => MemberFormat::Csv,
            OutputFormat::Ndjson => MemberFormat::Ndjson,
            OutputFormat::Parquet => bail!(UsageError("`audience export` alone writes Parquet".to_owned())),
        };
        let mut all = |out: &mut dyn std::io::Write, written: &dyn Fn(usize)| {
            let mut rows = 0;
            out.write_all(head(lines).as_bytes())?;
            while let Some((some, text)) = next(lines)? {
                out.write_all(text.as_bytes())?;
                rows += text.lines().count();
                written(some);
            }
            out.flush()?;
            anyhow::Ok(rows)
        };
        match &self.to {
            // The lines themselves show how far it is.
            None => all(&mut std::io::stdout().lock(), &|_| ()).map(drop),
            Some(path) => {
                let progress = progress_bar(people as u64, PEOPLE);
                let done = export::whole(path, |mut file| all(&mut file, &|some| progress.inc(some as u64)));
                progress.finish_and_clear();
                let rows = done.with_context(|| format!("{}", path.display()))?;
                output.one(&json!({ "file": path.display().to_string(), "rows": rows }))
            }
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct FilterOptions {
    /// The filter, as JSON: `{"segments": 7, "events.purchase": {"$count": {"$gte": 1}}}`; `{}` means everybody.
    filter: String,
    /// Whose people. With one tenant configured it need not be said.
    #[arg(long)]
    pub(super) tenant: Option<String>,
}

pub(super) fn parse_filter(
    of: &FilterOptions,
    conn: &Connection,
    tenant: &TenantContext,
) -> anyhow::Result<(Filter, Value)> {
    let document: Value = parse_argument(&of.filter, "the filter")?;
    match query::parse_filter(conn, tenant, &document)? {
        Ok(filter) => Ok((filter, document)),
        Err(found) => bail!(UsageError(query::all_wrong(&found))),
    }
}

/// Everybody that the store holds, in columns.
pub(super) fn load_columns(data: &std::path::Path, now: u64) -> Result<Columns, StoreError> {
    let columns = Columns::default();
    let mut follower = StoreFollower::new(data, columns.clone())?;
    let progress = progress_bar(0, PEOPLE);
    let shown = show_progress(&progress);
    while follower.step(now)? {
        let (done, all) = columns.read().building;
        shown(done, all);
    }
    progress.finish_and_clear();
    Ok(columns)
}
