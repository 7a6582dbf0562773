//! `causeway audience send`.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use causeway_origin::audience::send::{self, ArmNames, Send as Row, SendTerms};
use causeway_origin::base::clock;
use causeway_origin::base::job_kinds::{JobKind, Trigger};
use causeway_origin::campaigns::train::Options;
use causeway_origin::jobs::runs::RunRequest;
use causeway_origin::jobs::thread::BUSY;
use clap::{Args, Subcommand};

use super::audience_parts::{FilterOptions, OutputTarget, PEOPLE, parse_filter};
use super::output::progress_bar;
use super::{CommonOptions, ReadableStore, WritableStore, is_served, job, named_tenant};

/// Recipients read in one query.
const PAGE: u32 = 1_000;
/// Interval between two looks at the progress of another process.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, Subcommand)]
pub(super) enum SendCommand {
    /// Draw an exact number of people at random, and deliver to them. If it is run again, it continues.
    Start {
        /// Name of the send. A send delivers to each person once; another name is another send.
        name: String,
        #[command(flatten)]
        of: FilterOptions,
        /// Number of people.
        #[arg(long, value_name = "N")]
        count: u32,
        /// Distribute the people over the arms of this experiment, in proportion to their shares. The control group
        /// gets no delivery. People with an earlier exposure to the experiment are not drawn.
        #[arg(long, value_name = "ID")]
        experiment: Option<String>,
        /// Deliver to the tenant's webhook. Without it, `recipients` lists the people.
        #[arg(long)]
        webhook: bool,
        /// Most people delivered per second. 0: no limit.
        #[arg(long, value_name = "N", default_value_t = 0)]
        per_second: u32,
        /// Leave the delivery to the serving origin.
        #[arg(long)]
        no_wait: bool,
    },
    /// List the sends and their progress.
    List(TenantOption),
    /// List the recipients, one line each.
    Recipients {
        /// The send's name.
        name: String,
        /// First position to list: the position after the last line already read.
        #[arg(long, value_name = "PLACE", default_value_t = 0)]
        from: u32,
        #[command(flatten)]
        whose: TenantOption,
        #[command(flatten)]
        to: OutputTarget,
    },
    /// Stop a send. The remaining people get no delivery; `start` continues the send.
    Stop {
        /// The send's name.
        name: String,
        #[command(flatten)]
        whose: TenantOption,
    },
}

#[derive(Debug, Args)]
pub(super) struct TenantOption {
    /// The send's tenant. Optional if only one tenant is configured.
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) fn run(command: &SendCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        SendCommand::Start { name, of, count, experiment, webhook, per_second, no_wait } => {
            let mut opened = WritableStore::new(common)?;
            let known = named_tenant(&opened.rules.tenants, of.tenant.as_deref())?.clone();
            let (_, document) = parse_filter(of, &opened.conn, &known)?;
            let terms = SendTerms {
                filter: document.to_string(),
                count: *count,
                experiment: experiment.clone(),
                webhook: *webhook,
                per_second: NonZeroU32::new(*per_second),
            };
            let random = u64::from_be_bytes(clock::random_bytes()?);
            let begun = Row::begin(&mut opened.conn, &known, name, &terms, random, clock::now())?;
            let ended = if *no_wait { begun } else { follow_run(&mut opened, begun)? };
            common.output.one(&ended.describe(&opened.rules.tenants))?;
            ensure!(ended.is_done() || *no_wait, "send {name} is not complete: {}", ended.error.unwrap_or_default());
            Ok(())
        }
        SendCommand::List(whose) => {
            let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
            let found = send::list_sends(&conn, Some(named_tenant(&tenants, whose.tenant.as_deref())?.no))?;
            let rows: Vec<_> = found.iter().map(|send| send.describe(&tenants)).collect();
            let columns = [
                "name",
                "count",
                "chosen",
                "delivered",
                "control",
                "gone",
                "merged",
                "left",
                "waits",
                "reason",
                "error",
            ];
            common.output.list(&columns, &rows)
        }
        SendCommand::Recipients { name, from, whose, to } => {
            let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
            let known = named_tenant(&tenants, whose.tenant.as_deref())?;
            let send = send::find_send(&conn, known.no, name)?.with_context(|| unknown_send(name))?;
            let (arms, mut next) = (ArmNames::of(&conn, &send)?, Some(*from));
            // Positions are people; some of them have no line.
            let left = send.next.saturating_sub(*from);
            to.write(usize::try_from(left)?, common.output, send::format_head, |lines| {
                let Some(from) = next else { return Ok(None) };
                let (some, after) = send::list_recipients(&conn, &send, from, PAGE)?;
                next = after;
                let positions = after.unwrap_or(send.next).saturating_sub(from);
                Ok(Some((
                    usize::try_from(positions)?,
                    send::format_recipients(lines, &known.config.name, &send, &arms, &some),
                )))
            })
        }
        SendCommand::Stop { name, whose } => {
            let opened = WritableStore::new(common)?;
            let known = named_tenant(&opened.rules.tenants, whose.tenant.as_deref())?;
            let stopped = send::stop_send(&opened.conn, known.no, name)?;
            let send = send::find_send(&opened.conn, known.no, name)?.with_context(|| unknown_send(name))?;
            ensure!(stopped, "send {name} has already ended");
            common.output.one(&send.describe(&opened.rules.tenants))
        }
    }
}

fn unknown_send(name: &str) -> String {
    format!("send `{name}` not found: see `causeway audience send list`")
}

/// Delivers the send in this process, or waits while another process does, until it is complete or fails.
fn follow_run(opened: &mut WritableStore, begun: Row) -> anyhow::Result<Row> {
    let asked = RunRequest { job: JobKind::Send, tenant: None, trigger: Trigger::Command, dry_run: false };
    let bar = progress_bar(u64::from(begun.terms.count), PEOPLE);
    loop {
        let Some(send) = send::find_send(&opened.conn, begun.tenant, &begun.name)? else {
            bail!(unknown_send(&begun.name))
        };
        bar.set_length(u64::from(send.chosen.unwrap_or(send.terms.count)));
        bar.set_position(send.next.into());
        if send.due.is_none() || send.error.is_some() {
            bar.finish_and_clear();
            return Ok(send);
        }
        // The webhook's receiver asked for a pause.
        if send.due.is_some_and(|due| due > clock::now()) {
            std::thread::sleep(LOOK);
            continue;
        }
        match job::try_carry_out(opened, asked, &Options::default())? {
            None => std::thread::sleep(LOOK),
            // A serving origin's jobs wait for the lock and retry at intervals, so this process leaves them a turn.
            Some(_) if is_served(&opened.config) => std::thread::sleep(BUSY + LOOK),
            Some(_) => {}
        }
    }
}
