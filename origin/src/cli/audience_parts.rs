//! Arguments and steps that the commands of audiences, sends and jobs share.

use super::output::{Format, progress_bar, show_progress};
use super::{UsageError, parse_argument};
use anyhow::{Context as _, bail};
use causeway_origin::audience::Audience;
use causeway_origin::audience::index_follower::StoreFollower;
use causeway_origin::audience::query::{self, MemberFormat};
use causeway_origin::maintenance::export;
use causeway_origin::store::job_error::JobError;
use causeway_origin::store::tenants::TenantContext;
use causeway_shared::targeting::filter::Filter;
use clap::{Args, ValueEnum};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Text of a progress bar over people.
pub(super) const PEOPLE: &str = "{pos} of {len} people";

/// The file format of listed members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// One JSON object per line.
    Ndjson,
    /// Comma-separated values with a header line.
    Csv,
    /// Parquet. Only `audience export` writes it, and only to a file.
    Parquet,
}

#[derive(Debug, Args)]
pub(super) struct OutputTarget {
    /// Format of the lines.
    #[arg(long, value_enum, default_value_t = OutputFormat::Ndjson)]
    pub(super) form: OutputFormat,
    /// File to write, which must not exist yet. Default: standard output.
    #[arg(long, value_name = "FILE")]
    pub(super) to: Option<PathBuf>,
}

impl OutputTarget {
    /// Writes the lines of `people` people. `next` gives a page of lines and the number of people on it, until `None`.
    /// For a file, the command prints how many rows it has.
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
            OutputFormat::Parquet => {
                bail!(UsageError("only `audience export` writes Parquet: use another --form".to_owned()))
            }
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
            // On standard output the lines themselves show the progress.
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
    /// The filter, as JSON: `{"segments": 7, "events.purchase": {"$count": {"$gte": 1}}}`; `{}` matches all people.
    filter: String,
    /// The people's tenant. Optional if only one tenant is configured.
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

/// Loads the audience index: all people in the store.
pub(super) fn load_indexes(data: &std::path::Path, now: u64) -> Result<Audience, JobError> {
    let audience = Audience::default();
    let mut follower = StoreFollower::new(data, audience.clone())?;
    let progress = progress_bar(0, PEOPLE);
    let shown = show_progress(&progress);
    while follower.step(now)? {
        let (done, all) = audience.read().building;
        shown(done, all);
    }
    progress.finish_and_clear();
    Ok(audience)
}
