//! `causeway audience`: reads the store directly, also while the origin serves. It reads the file of columns that an origin left
//! there, and puts into them whoever changed since; without a file everybody, which takes a while for millions. A serving origin
//! has them ready, and answers the same over HTTP.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, bail};
use causeway_origin::audience::Audience as Columns;
use causeway_origin::audience::answer::{self, Lines, Sampling};
use causeway_origin::audience::follow::Follower;
use causeway_origin::clock;
use causeway_shared::filter::Filter;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::output::{bar, shown};
use super::{Common, Reading, named};

#[derive(Debug, Subcommand)]
pub(super) enum Audience {
    /// How many, by a sample that grows until it is precise enough, with an interval of 95 %.
    Estimate {
        #[command(flatten)]
        of: Of,
        /// Half the interval's width, as a share of all people.
        #[arg(long, default_value_t = answer::PRECISION)]
        precision: f64,
        /// Also sum up and average over them: revenue_micros, purchases, pages, sessions, devices, attributes.NAME.
        #[arg(long)]
        measure: Option<String>,
    },
    /// How many, exactly.
    Members(Of),
    /// Who, a line each: by the oldest visitor of each person.
    Export {
        #[command(flatten)]
        of: Of,
        /// In which form.
        #[arg(long, value_enum, default_value_t = Form::Ndjson)]
        form: Form,
        /// Into this file, which must not be there yet; standard output where none is named.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(super) struct Of {
    /// The filter, as JSON: `{"segments": 7, "events.purchase": {"$count": {"$gte": 1}}}`; `{}` means everybody.
    filter: String,
    /// Whose people. With one tenant configured it need not be said.
    #[arg(long)]
    tenant: Option<String>,
}

/// A line each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// A JSON object each.
    Ndjson,
    /// One column.
    Csv,
}

pub(super) fn run(command: &Audience, common: &Common) -> anyhow::Result<()> {
    let (Audience::Estimate { of, .. } | Audience::Members(of) | Audience::Export { of, .. }) = command;
    let Reading { config, conn, tenants, .. } = Reading::new(common)?;
    let tenant = named(&tenants, of.tenant.as_deref())?;
    let document: Value = serde_json::from_str(&of.filter).context("the filter is not JSON")?;
    let filter: Filter = match answer::filter(&conn, tenant, &document)? {
        Ok(filter) => filter,
        Err(found) => {
            let all: Vec<String> = found.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
            bail!("{}", all.join("\n"));
        }
    };
    let (now, started) = (clock::now(), Instant::now());
    let columns = everybody(&config.data, now)?;
    match command {
        Audience::Estimate { precision, measure, .. } => {
            let of = measure.as_deref().map(|name| answer::measure(&conn, tenant.no, name)).transpose()?;
            let of = of.map(|of| of.with_context(|| format!("--measure takes {}", answer::MEASURES))).transpose()?;
            let mut random = [0; 8];
            getrandom::fill(&mut random)?;
            let sampling = Sampling { precision: *precision, measure: of, random: u64::from_be_bytes(random) };
            let mut last = None;
            answer::estimate(&columns, &conn, tenant.no, &filter, &sampling, now, |report| last = Some(report))?;
            let last = last.context("nobody was looked at")?;
            common.output.one(&last.to_json(measure.as_deref(), started.elapsed()))
        }
        Audience::Members(_) => {
            let (count, population, as_of) = answer::exact(&columns, &conn, tenant.no, &filter, now)?;
            let seconds = started.elapsed().as_secs_f64();
            common
                .output
                .one(&json!({ "count": count, "population": population, "as_of_ms": as_of, "seconds": seconds }))
        }
        Audience::Export { form, to, .. } => {
            let lines = if *form == Form::Csv { Lines::Csv } else { Lines::Ndjson };
            let (members, _) = answer::everyone(&columns, &conn, tenant.no, &filter, now)?;
            let mut out: Box<dyn std::io::Write> = match to {
                Some(path) => Box::new(std::fs::File::create_new(path).with_context(|| format!("{}", path.display()))?),
                None => Box::new(std::io::stdout().lock()),
            };
            out.write_all(lines.head().as_bytes())?;
            for some in members.chunks(1_000) {
                let text = some.iter().fold(String::new(), |text, member| lines.one(text, *member));
                out.write_all(text.as_bytes())?;
            }
            Ok(out.flush()?)
        }
    }
}

/// Everybody that the store holds, in columns.
fn everybody(data: &std::path::Path, now: u64) -> anyhow::Result<Columns> {
    let columns = Columns::default();
    let mut follower = Follower::new(data, columns.clone())?;
    let progress = bar(0, "{pos} of {len} people");
    let shown = shown(&progress);
    while follower.step(now)? {
        let (done, all) = columns.read().building;
        shown(done, all);
    }
    progress.finish_and_clear();
    Ok(columns)
}
