//! `causeway audience`: reads the store directly, also while the origin serves. It reads the file of columns that an origin left
//! there, and puts into them whoever changed since; without a file everybody, which takes a while for millions. A serving origin
//! has them ready, and answers the same over HTTP.

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
use causeway_shared::base::ids::Millis;
use causeway_shared::facts::segments::SegmentId;
use clap::Subcommand;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::audience_parts::{FilterOptions, OutputFormat, OutputTarget, PEOPLE, load_columns, parse_filter};
use super::output::{print_line, progress_bar};
use super::{CommonOptions, ReadableStore, UsageError, WritableStore, job, named_tenant, send};

#[derive(Debug, Subcommand)]
pub(super) enum AudienceCommand {
    /// How many, by a sample that grows until it is precise enough, with an interval of 95 %.
    Estimate {
        #[command(flatten)]
        of: FilterOptions,
        /// Half the interval's width, as a share of all people.
        #[arg(long, default_value_t = query::PRECISION, allow_negative_numbers = true)]
        precision: f64,
        /// Also sum up and average over them: revenue_micros, purchases, pages, sessions, devices, attributes.NAME.
        #[arg(long)]
        measure: Option<String>,
    },
    /// How many, exactly.
    Members(FilterOptions),
    /// Who, a line each: by the oldest visitor of each person.
    Export {
        #[command(flatten)]
        of: FilterOptions,
        #[command(flatten)]
        to: OutputTarget,
    },
    /// Keep them as a segment, which targetings and snapshots have: now, and as often as is said.
    Materialise {
        #[command(flatten)]
        of: FilterOptions,
        /// The segment's number.
        #[arg(long)]
        segment: u32,
        /// For how many hours a member is in it: should refreshes stop, it ends by itself.
        #[arg(long, default_value_t = 168)]
        hours: u32,
        /// How often it is made what the filter means then, in hours; 0: when this is run again.
        #[arg(long, default_value_t = 0)]
        every: u32,
        /// Say who would come and go, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// The audiences that are kept as segments.
    List {
        /// Whose. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Let a kept audience go: its members leave the segment now.
    Drop {
        /// The segment's number.
        segment: u32,
        /// Whose. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Tell exactly so many of them, drawn at random, once each.
    #[command(subcommand)]
    Send(send::SendCommand),
    /// When each is best reached within a window: by its own habits, or where little is known of them by everybody's.
    Schedule {
        #[command(flatten)]
        of: FilterOptions,
        /// When the window begins: RFC 3339, or milliseconds since 1970. Left out: now.
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// How many hours it has.
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
            let told: Vec<Value> = found.iter().map(|kept| kept.told(&tenants)).collect();
            common
                .output
                .list(&["segment", "filter", "hours", "every_hours", "refreshed_ms", "due_ms", "members"], &told)
        }
        AudienceCommand::Drop { segment, tenant } => {
            let mut opened = WritableStore::new(common)?;
            let no = named_tenant(&opened.rules.tenants, tenant.as_deref())?.no;
            carry_out(&mut opened, common, |conn| {
                let there = MaterializedAudience::drop(conn, no, SegmentId(*segment), clock::now())?;
                ensure!(there, "no audience is kept as segment {segment}: `causeway audience list` names them");
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
        let kept = MaterializedAudience::new((tenant.no, segment), (&filter, &document), hours, now)?;
        let columns = load_columns(&config.data, now)?;
        let matching = query::list_members(&columns, &conn, tenant.no, &filter, now)?;
        let holding = materialise::members_filter(&conn, tenant, segment)?;
        let holders = query::list_members(&columns, &conn, tenant.no, &holding, now)?;
        let unreadable = matching.unreadable.max(holders.unreadable);
        let people = AudiencePeople::new(matching.members, holders.members);
        let tenant_name = tenant.config.name.clone();
        let mut plan =
            RefreshReport { tenant: tenant_name, segment: segment.0, unreadable, ..RefreshReport::default() };
        materialise::compare_members(&mut conn, &kept, &people, now, &mut plan, |_, _, _| Ok(()))?;
        return common.output.one(&serde_json::to_value(plan)?);
    }
    let mut opened = WritableStore::new(common)?;
    let tenant = named_tenant(&opened.rules.tenants, of.tenant.as_deref())?.clone();
    let (filter, document) = parse_filter(of, &opened.conn, &tenant)?;
    let kept = MaterializedAudience::new((tenant.no, segment), (&filter, &document), hours, now)?;
    carry_out(&mut opened, common, |conn| Ok(kept.keep(conn, &tenant)?))
}

/// Changes what is kept, and runs the job here and now: a serving origin's does not come between.
fn carry_out(
    opened: &mut WritableStore,
    common: &CommonOptions,
    change: impl FnOnce(&Connection) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let asked = RunRequest { job: JobKind::Materialise, tenant: None, woken: Trigger::Command, dry_run: false };
    job::report_run(&job::carry_out(opened, asked, &Options::default(), change)?, common)
}

fn ask_audience(command: &AudienceCommand, of: &FilterOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let ReadableStore { config, conn, tenants, .. } = ReadableStore::new(common)?;
    let tenant = named_tenant(&tenants, of.tenant.as_deref())?;
    let (filter, _) = parse_filter(of, &conn, tenant)?;
    let (now, started) = (clock::now(), Instant::now());
    // Before everybody is read, which may take a while.
    let window = match command {
        AudienceCommand::Schedule { from, hours, .. } => parse_window(from.as_deref(), *hours, now)?,
        _ => now..now,
    };
    let columns = load_columns(&config.data, now)?;
    match command {
        AudienceCommand::Estimate { precision, measure, .. } => {
            let of = measure.as_deref().map(|name| query::find_measure(&conn, tenant.no, name)).transpose()?;
            let of = of
                .map(|of| of.ok_or_else(|| UsageError(format!("--measure takes {}", query::MEASURES))))
                .transpose()?;
            let random = u64::from_be_bytes(clock::random_bytes()?);
            let sampling = SampleRequest { precision: *precision, measure: of, random };
            let mut last = None;
            query::estimate_count(&columns, &conn, tenant.no, &filter, &sampling, now, |report| last = Some(report))?;
            let last = last.context("nobody was looked at")?;
            common.output.one(&last.to_json(measure.as_deref(), started.elapsed()))
        }
        AudienceCommand::Members(_) => {
            let exact = query::count_exactly(&columns, &conn, tenant.no, &filter, now)?;
            common.output.one(&exact.to_json(started.elapsed()))
        }
        AudienceCommand::Export { to, .. } => {
            let AllMembers { members, .. } =
                note_unreadable(query::list_members(&columns, &conn, tenant.no, &filter, now)?);
            if to.form == OutputFormat::Parquet {
                let file =
                    to.to.as_ref().ok_or_else(|| UsageError("Parquet is written into a file: --to FILE".to_owned()))?;
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
                note_unreadable(query::list_members(&columns, &conn, tenant.no, &filter, now)?);
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

/// Says on standard error how many people are left out of what is written, as they cannot be read.
fn note_unreadable(everyone: AllMembers) -> AllMembers {
    if everyone.unreadable > 0 {
        let unreadable = everyone.unreadable;
        print_line(&format!(
            "{unreadable} people cannot be read and are left out: `causeway job run scrub` names them"
        ));
    }
    everyone
}

fn parse_window(from: Option<&str>, hours: u32, now: Millis) -> anyhow::Result<Range<Millis>> {
    let time = |text: &str| {
        time_zones::parse_time(text).ok_or_else(|| {
            UsageError(format!(
                "--from takes a time such as 2027-03-28T20:00:00+01:00, or milliseconds since 1970: `{text}` is none"
            ))
        })
    };
    schedule::checked_window(from.map_or(Ok(now), time)?, hours, now).map_err(|wrong| UsageError(wrong).into())
}
