//! `causeway audience`: reads the store directly, also while the origin serves. It reads the file of columns that an origin left
//! there, and puts into them whoever changed since; without a file everybody, which takes a while for millions. A serving origin
//! has them ready, and answers the same over HTTP.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use causeway_origin::audience::materialized::{self, Kept, People};
use causeway_origin::audience::query::{self, Everyone, Lines, Sampling};
use causeway_origin::audience::schedule;
use causeway_origin::base::job_kinds::{Job, Woken};
use causeway_origin::base::{clock, time_zones};
use causeway_origin::campaigns::train::Options;
use causeway_origin::jobs::runs::Asked;
use causeway_origin::jobs::tasks::refresh::{self, Refreshed};
use causeway_origin::maintenance::export;
use causeway_shared::ids::Millis;
use causeway_shared::segments::SegmentId;
use clap::Subcommand;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::audience_parts::{Form, Of, PEOPLE, To, everybody, parsed};
use super::output::{bar, say};
use super::{Common, Opened, Reading, Usage, job, named, send};

#[derive(Debug, Subcommand)]
pub(super) enum Audience {
    /// How many, by a sample that grows until it is precise enough, with an interval of 95 %.
    Estimate {
        #[command(flatten)]
        of: Of,
        /// Half the interval's width, as a share of all people.
        #[arg(long, default_value_t = query::PRECISION, allow_negative_numbers = true)]
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
        #[command(flatten)]
        to: To,
    },
    /// Keep them as a segment, which targetings and snapshots have: now, and as often as is said.
    Materialise {
        #[command(flatten)]
        of: Of,
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
    Send(send::Send),
    /// When each is best reached within a window: by its own habits, or where little is known of them by everybody's.
    Schedule {
        #[command(flatten)]
        of: Of,
        /// When the window begins: RFC 3339, or milliseconds since 1970. Left out: now.
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// How many hours it has.
        #[arg(long, value_name = "N", default_value_t = 168)]
        hours: u32,
        #[command(flatten)]
        to: To,
    },
}

pub(super) fn run(command: &Audience, common: &Common) -> anyhow::Result<()> {
    match command {
        Audience::Estimate { of, .. }
        | Audience::Members(of)
        | Audience::Export { of, .. }
        | Audience::Schedule { of, .. } => ask(command, of, common),
        Audience::Materialise { of, segment, hours, every, dry_run } => {
            materialise(of, SegmentId(*segment), (*hours, *every), *dry_run, common)
        }
        Audience::Send(command) => send::run(command, common),
        Audience::List { tenant } => {
            let Reading { conn, tenants, .. } = Reading::new(common)?;
            let found = materialized::list(&conn, Some(named(&tenants, tenant.as_deref())?.no))?;
            let told: Vec<Value> = found.iter().map(|kept| kept.told(&tenants)).collect();
            common
                .output
                .list(&["segment", "filter", "hours", "every_hours", "refreshed_ms", "due_ms", "members"], &told)
        }
        Audience::Drop { segment, tenant } => {
            let mut opened = Opened::new(common)?;
            let no = named(&opened.rules.tenants, tenant.as_deref())?.no;
            carry_out(&mut opened, common, |conn| {
                let there = Kept::drop(conn, no, SegmentId(*segment), clock::now())?;
                ensure!(there, "no audience is kept as segment {segment}: `causeway audience list` names them");
                Ok(())
            })
        }
    }
}

fn materialise(of: &Of, segment: SegmentId, hours: (u32, u32), dry_run: bool, common: &Common) -> anyhow::Result<()> {
    let now = clock::now();
    if dry_run {
        let Reading { config, mut conn, tenants, .. } = Reading::new(common)?;
        let tenant = named(&tenants, of.tenant.as_deref())?;
        let (filter, document) = parsed(of, &conn, tenant)?;
        let kept = Kept::new((tenant.no, segment), (&filter, &document), hours, now)?;
        let columns = everybody(&config.data, now)?;
        let matching = query::everyone(&columns, &conn, tenant.no, &filter, now)?;
        let holding = refresh::holding(&conn, tenant, segment)?;
        let holders = query::everyone(&columns, &conn, tenant.no, &holding, now)?;
        let unreadable = matching.unreadable.max(holders.unreadable);
        let people = People::new(matching.members, holders.members);
        let tenant_name = tenant.config.name.clone();
        let mut plan = Refreshed { tenant: tenant_name, segment: segment.0, unreadable, ..Refreshed::default() };
        refresh::compare(&mut conn, &kept, &people, now, &mut plan, |_, _, _| Ok(()))?;
        return common.output.one(&serde_json::to_value(plan)?);
    }
    let mut opened = Opened::new(common)?;
    let tenant = named(&opened.rules.tenants, of.tenant.as_deref())?.clone();
    let (filter, document) = parsed(of, &opened.conn, &tenant)?;
    let kept = Kept::new((tenant.no, segment), (&filter, &document), hours, now)?;
    carry_out(&mut opened, common, |conn| Ok(kept.keep(conn, &tenant)?))
}

/// Changes what is kept, and runs the job here and now: a serving origin's does not come between.
fn carry_out(
    opened: &mut Opened,
    common: &Common,
    change: impl FnOnce(&Connection) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let asked = Asked { job: Job::Materialise, tenant: None, woken: Woken::Command, dry_run: false };
    job::report(&job::carry_out(opened, asked, &Options::default(), change)?, common)
}

fn ask(command: &Audience, of: &Of, common: &Common) -> anyhow::Result<()> {
    let Reading { config, conn, tenants, .. } = Reading::new(common)?;
    let tenant = named(&tenants, of.tenant.as_deref())?;
    let (filter, _) = parsed(of, &conn, tenant)?;
    let (now, started) = (clock::now(), Instant::now());
    // Before everybody is read, which may take a while.
    let window = match command {
        Audience::Schedule { from, hours, .. } => window(from.as_deref(), *hours, now)?,
        _ => now..now,
    };
    let columns = everybody(&config.data, now)?;
    match command {
        Audience::Estimate { precision, measure, .. } => {
            let of = measure.as_deref().map(|name| query::measure(&conn, tenant.no, name)).transpose()?;
            let of =
                of.map(|of| of.ok_or_else(|| Usage(format!("--measure takes {}", query::MEASURES)))).transpose()?;
            let random = u64::from_be_bytes(clock::random()?);
            let sampling = Sampling { precision: *precision, measure: of, random };
            let mut last = None;
            query::estimate(&columns, &conn, tenant.no, &filter, &sampling, now, |report| last = Some(report))?;
            let last = last.context("nobody was looked at")?;
            common.output.one(&last.to_json(measure.as_deref(), started.elapsed()))
        }
        Audience::Members(_) => {
            let exact = query::exact(&columns, &conn, tenant.no, &filter, now)?;
            common.output.one(&exact.to_json(started.elapsed()))
        }
        Audience::Export { to, .. } => {
            let Everyone { members, .. } = note_unreadable(query::everyone(&columns, &conn, tenant.no, &filter, now)?);
            if to.form == Form::Parquet {
                let file =
                    to.to.as_ref().ok_or_else(|| Usage("Parquet is written into a file: --to FILE".to_owned()))?;
                let rows = members.len();
                let progress = bar(rows as u64, PEOPLE);
                let people = progress.wrap_iter(members.into_iter());
                let written = export::whole(file, |to| export::people(to.try_clone()?, people));
                progress.finish_and_clear();
                written.with_context(|| file.display().to_string())?;
                return common.output.one(&json!({ "file": file.display().to_string(), "rows": rows }));
            }
            let text = |lines: Lines, some: &[_]| some.iter().fold(String::new(), |text, one| lines.one(text, *one));
            let mut some = members.chunks(1_000);
            to.write(members.len(), common.output, Lines::head, |lines| {
                Ok(some.next().map(|some| (some.len(), text(lines, some))))
            })
        }
        Audience::Schedule { to, .. } => {
            let Everyone { members, .. } = note_unreadable(query::everyone(&columns, &conn, tenant.no, &filter, now)?);
            let mut some = members.chunks(1_000);
            to.write(members.len(), common.output, schedule::head, |lines| {
                let Some(some) = some.next() else { return Ok(None) };
                let moments = schedule::moments(&conn, tenant, some, &window, now)?;
                Ok(Some((some.len(), schedule::text(lines, &moments))))
            })
        }
        Audience::Materialise { .. } | Audience::List { .. } | Audience::Drop { .. } | Audience::Send(_) => Ok(()),
    }
}

/// Says on standard error how many people are left out of what is written, as they cannot be read.
fn note_unreadable(everyone: Everyone) -> Everyone {
    if everyone.unreadable > 0 {
        let unreadable = everyone.unreadable;
        say(&format!("{unreadable} people cannot be read and are left out: `causeway job run scrub` names them"));
    }
    everyone
}

fn window(from: Option<&str>, hours: u32, now: Millis) -> anyhow::Result<Range<Millis>> {
    let time = |text: &str| {
        time_zones::time(text).ok_or_else(|| {
            Usage(format!(
                "--from takes a time such as 2027-03-28T20:00:00+01:00, or milliseconds since 1970: `{text}` is none"
            ))
        })
    };
    schedule::window(from.map_or(Ok(now), time)?, hours, now).map_err(|wrong| Usage(wrong).into())
}
