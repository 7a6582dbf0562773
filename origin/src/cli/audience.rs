//! `causeway audience`: reads the store directly, also while the origin serves. It loads the file of the audience index
//! that an origin wrote, and applies the changes since then. Without that file it reads the whole store, which takes
//! minutes for millions of people. A serving origin has the index in memory and gives the same answers over HTTP.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use causeway_origin::audience::materialized::{self, AudiencePeople, MaterializedAudience};
use causeway_origin::audience::query::{self, AllMembers, MemberFormat, SampleRequest};
use causeway_origin::audience::schedule;
use causeway_origin::base::job_kinds::{JobKind, Trigger};
use causeway_origin::base::{clock, time_zones};
use causeway_origin::campaigns::train::Options;
use causeway_origin::jobs::runs::RunRequest;
use causeway_origin::jobs::tasks::materialise::{self, RefreshReport};
use causeway_origin::maintenance::export;
use causeway_origin::store::StoreError;
use causeway_shared::base::ids::Millis;
use causeway_shared::facts::segments::SegmentId;
use clap::Subcommand;
use rusqlite::Connection;
use serde_json::json;

use super::audience_parts::{FilterOptions, OutputFormat, OutputTarget, PEOPLE, load_indexes, parse_filter};
use super::output::{print_line, progress_bar};
use super::{CommonOptions, ReadableStore, UsageError, WritableStore, job, named_tenant, send};

#[derive(Debug, Subcommand)]
pub(super) enum AudienceCommand {
    /// Estimate how many people match the filter. A random sample grows until the 95 % interval is narrow enough.
    Estimate {
        #[command(flatten)]
        of: FilterOptions,
        /// Half the width of the interval, as a share of all people.
        #[arg(long, default_value_t = query::PRECISION, allow_negative_numbers = true)]
        precision: f64,
        /// Also estimate the sum and the average of a measure: revenue_micros, purchases, pages, sessions, devices,
        /// attributes.NAME.
        #[arg(long)]
        measure: Option<String>,
    },
    /// Count exactly how many people match the filter.
    Members(FilterOptions),
    /// List the people who match the filter, one line per person. The person's oldest visitor names it.
    Export {
        #[command(flatten)]
        of: FilterOptions,
        #[command(flatten)]
        to: OutputTarget,
    },
    /// Materialise the audience as a segment for targeting and snapshots, once or at an interval.
    Materialise {
        #[command(flatten)]
        of: FilterOptions,
        /// The segment's number.
        #[arg(long)]
        segment: u32,
        /// Hours for which a member stays in the segment. If refreshes stop, membership ends by itself.
        #[arg(long, default_value_t = 168)]
        hours: u32,
        /// Hours between two refreshes. 0: the audience is refreshed only when this command is run again.
        #[arg(long, default_value_t = 0)]
        every: u32,
        /// Show which people would enter or leave, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// List the materialised audiences.
    List {
        /// The audiences' tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Drop a materialised audience. Its members leave the segment now.
    Drop {
        /// The segment's number.
        segment: u32,
        /// The audience's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Send to an exact number of people, drawn at random, each once.
    #[command(subcommand)]
    Send(send::SendCommand),
    /// Show the best send time of each person within a window, from the person's activity histogram, or from everyone's
    /// if too little is known about the person.
    Schedule {
        #[command(flatten)]
        of: FilterOptions,
        /// Start of the window: RFC 3339, or milliseconds since 1970. Default: now.
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Length of the window in hours.
        #[arg(long, value_name = "N", default_value_t = 168)]
        hours: u32,
        #[command(flatten)]
        to: OutputTarget,
    },
}

pub(super) fn run(command: &AudienceCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        AudienceCommand::Estimate { of, .. }
        | AudienceCommand::Members(of)
        | AudienceCommand::Export { of, .. }
        | AudienceCommand::Schedule { of, .. } => ask_audience(command, of, common),
        AudienceCommand::Materialise { of, segment, hours, every, dry_run } => {
            materialise_audience(of, SegmentId(*segment), (*hours, *every), *dry_run, common)
        }
        AudienceCommand::Send(command) => send::run(command, common),
        AudienceCommand::List { tenant } => {
            let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
            let found = materialized::list_audiences(&conn, Some(named_tenant(&tenants, tenant.as_deref())?.no))?;
            let rows: Vec<_> = found.iter().map(|audience| audience.describe(&tenants)).collect();
            common
                .output
                .list(&["segment", "filter", "hours", "every_hours", "refreshed_ms", "due_ms", "members"], &rows)
        }
        AudienceCommand::Drop { segment, tenant } => {
            let mut opened = WritableStore::new(common)?;
            let no = named_tenant(&opened.rules.tenants, tenant.as_deref())?.no;
            carry_out(&mut opened, common, |conn| {
                let there = MaterializedAudience::drop(conn, no, SegmentId(*segment), clock::now())?;
                ensure!(there, "no audience is materialised as segment {segment}: see `causeway audience list`");
                Ok(())
            })
        }
    }
}

fn materialise_audience(
    of: &FilterOptions,
    segment: SegmentId,
    hours: (u32, u32),
    dry_run: bool,
    common: &CommonOptions,
) -> anyhow::Result<()> {
    let now = clock::now();
    if dry_run {
        let ReadableStore { config, mut conn, tenants, .. } = ReadableStore::new(common)?;
        let tenant = named_tenant(&tenants, of.tenant.as_deref())?;
        let (filter, document) = parse_filter(of, &conn, tenant)?;
        let audience = MaterializedAudience::new((tenant.no, segment), (&filter, &document), hours, now)?;
        let indexes = load_indexes(&config.data, now)?;
        let matching = query::list_members(&indexes, &conn, tenant.no, &filter, now)?;
        let holding = materialise::members_filter(&conn, tenant, segment)?;
        let holders = query::list_members(&indexes, &conn, tenant.no, &holding, now)?;
        let unreadable = matching.unreadable.max(holders.unreadable);
        let people = AudiencePeople::new(matching.members, holders.members);
        let tenant_name = tenant.config.name.clone();
        let mut plan =
            RefreshReport { tenant: tenant_name, segment: segment.0, unreadable, ..RefreshReport::default() };
        materialise::compare_members(&mut conn, &audience, &people, now, &mut plan, |_, _, _| Ok::<_, StoreError>(()))?;
        return common.output.one(&serde_json::to_value(plan)?);
    }
    let mut opened = WritableStore::new(common)?;
    let tenant = named_tenant(&opened.rules.tenants, of.tenant.as_deref())?.clone();
    let (filter, document) = parse_filter(of, &opened.conn, &tenant)?;
    let audience = MaterializedAudience::new((tenant.no, segment), (&filter, &document), hours, now)?;
    carry_out(&mut opened, common, |conn| Ok(audience.keep(conn, &tenant)?))
}

/// Changes the materialised audiences and runs the job in this process. The lock of the jobs prevents a run of a
/// serving origin in between.
fn carry_out(
    opened: &mut WritableStore,
    common: &CommonOptions,
    change: impl FnOnce(&Connection) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let asked = RunRequest { job: JobKind::Materialise, tenant: None, trigger: Trigger::Command, dry_run: false };
    job::report_run(&job::carry_out(opened, asked, &Options::default(), change)?, common)
}

fn ask_audience(command: &AudienceCommand, of: &FilterOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let ReadableStore { config, conn, tenants, .. } = ReadableStore::new(common)?;
    let tenant = named_tenant(&tenants, of.tenant.as_deref())?;
    let (filter, _) = parse_filter(of, &conn, tenant)?;
    let (now, started) = (clock::now(), Instant::now());
    // Checked before the index is loaded, which may take minutes.
    let window = match command {
        AudienceCommand::Schedule { from, hours, .. } => parse_window(from.as_deref(), *hours, now)?,
        _ => now..now,
    };
    let indexes = load_indexes(&config.data, now)?;
    match command {
        AudienceCommand::Estimate { precision, measure, .. } => {
            let of = measure.as_deref().map(|name| query::find_measure(&conn, tenant.no, name)).transpose()?;
            let of = of
                .map(|of| of.ok_or_else(|| UsageError(format!("--measure takes {}", query::MEASURES))))
                .transpose()?;
            let random = u64::from_be_bytes(clock::random_bytes()?);
            let sampling = SampleRequest { precision: *precision, measure: of, random };
            let mut last = None;
            query::estimate_count(&indexes, &conn, tenant.no, &filter, &sampling, now, |report| last = Some(report))?;
            let last = last.context("the sample reported no estimate")?;
            common.output.one(&last.to_answer(measure.as_deref(), started.elapsed()))
        }
        AudienceCommand::Members(_) => {
            let exact = query::count_exactly(&indexes, &conn, tenant.no, &filter, now)?;
            common.output.one(&exact.to_answer(started.elapsed()))
        }
        AudienceCommand::Export { to, .. } => {
            let AllMembers { members, .. } =
                note_unreadable(query::list_members(&indexes, &conn, tenant.no, &filter, now)?);
            if to.form == OutputFormat::Parquet {
                let file = to
                    .to
                    .as_ref()
                    .ok_or_else(|| UsageError("Parquet needs an output file: add --to FILE".to_owned()))?;
                let rows = members.len();
                let progress = progress_bar(rows as u64, PEOPLE);
                let people = progress.wrap_iter(members.into_iter());
                let written = export::whole(file, |to| export::people(to.try_clone()?, people));
                progress.finish_and_clear();
                written.with_context(|| file.display().to_string())?;
                return common.output.one(&json!({ "file": file.display().to_string(), "rows": rows }));
            }
            let text =
                |lines: MemberFormat, some: &[_]| some.iter().fold(String::new(), |text, one| lines.one(text, *one));
            let mut some = members.chunks(1_000);
            to.write(members.len(), common.output, MemberFormat::head, |lines| {
                Ok(some.next().map(|some| (some.len(), text(lines, some))))
            })
        }
        AudienceCommand::Schedule { to, .. } => {
            let AllMembers { members, .. } =
                note_unreadable(query::list_members(&indexes, &conn, tenant.no, &filter, now)?);
            let mut some = members.chunks(1_000);
            to.write(members.len(), common.output, schedule::format_head, |lines| {
                let Some(some) = some.next() else { return Ok(None) };
                let moments = schedule::send_moments(&conn, tenant, some, &window, now)?;
                Ok(Some((some.len(), schedule::format_moments(lines, &moments))))
            })
        }
        AudienceCommand::Materialise { .. }
        | AudienceCommand::List { .. }
        | AudienceCommand::Drop { .. }
        | AudienceCommand::Send(_) => Ok(()),
    }
}

/// Reports on standard error how many people are left out of the output because their rows cannot be read.
fn note_unreadable(everyone: AllMembers) -> AllMembers {
    if everyone.unreadable > 0 {
        let unreadable = everyone.unreadable;
        print_line(&format!(
            "{unreadable} people cannot be read and are left out: `causeway job run scrub` lists them"
        ));
    }
    everyone
}

fn parse_window(from: Option<&str>, hours: u32, now: Millis) -> anyhow::Result<Range<Millis>> {
    let time = |text: &str| {
        time_zones::parse_time(text).ok_or_else(|| {
            UsageError(format!(
                "invalid --from `{text}`: expected a time such as 2027-03-28T20:00:00+01:00, or milliseconds since 1970"
            ))
        })
    };
    schedule::checked_window(from.map_or(Ok(now), time)?, hours, now).map_err(|wrong| UsageError(wrong).into())
}
