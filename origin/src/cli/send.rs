//! `causeway audience send`.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use causeway_origin::audience::send::{self, ArmNames, Send as Row, SendTerms};
use causeway_origin::base::clock;
use causeway_origin::base::job_kinds::{JobKind, Trigger};
use causeway_origin::campaigns::train::Options;
use causeway_origin::jobs::runs::RunRequest;
use causeway_origin::jobs::thread::BUSY;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::audience_parts::{FilterOptions, OutputTarget, PEOPLE, parse_filter};
use super::output::progress_bar;
use super::{CommonOptions, ReadableStore, WritableStore, is_served, job, named_tenant};

/// Recipients read at once.
const PAGE: u32 = 1_000;
/// How often it looks how far another process is.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, Subcommand)]
pub(super) enum SendCommand {
    /// Draw so many people at random, and tell them. Run again, it goes on where it was.
    Start {
        /// Its name. Whoever is told by it is told once, and another name is another send.
        name: String,
        #[command(flatten)]
        of: FilterOptions,
        /// How many people.
        #[arg(long, value_name = "N")]
        count: u32,
        /// Deal them to the arms of this experiment, in proportion to their shares. The control is not told; who was exposed
        /// to it before is not drawn.
        #[arg(long, value_name = "ID")]
        experiment: Option<String>,
        /// Tell the tenant's webhook. Without it `recipients` says who they are.
        #[arg(long)]
        webhook: bool,
        /// How many a second at most; 0: as fast as it goes.
        #[arg(long, value_name = "N", default_value_t = 0)]
        per_second: u32,
        /// Leave it to the serving origin.
        #[arg(long)]
        no_wait: bool,
    },
    /// The sends, and how far each is.
    List(TenantOption),
    /// Who was told, a line each.
    Recipients {
        /// The send's name.
        name: String,
        /// From this place on: that behind the last line that is had.
        #[arg(long, value_name = "PLACE", default_value_t = 0)]
        from: u32,
        #[command(flatten)]
        whose: TenantOption,
        #[command(flatten)]
        to: OutputTarget,
    },
    /// End a send: who was not told yet is not. `start` goes on with it.
    Stop {
        /// The send's name.
        name: String,
        #[command(flatten)]
        whose: TenantOption,
    },
}

#[derive(Debug, Args)]
pub(super) struct TenantOption {
    /// Whose. With one tenant configured it need not be said.
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
                per_second: *per_second,
            };
            let random = u64::from_be_bytes(clock::random_bytes()?);
            let begun = Row::begin(&mut opened.conn, &known, name, &terms, random, clock::now())?;
            let ended = if *no_wait { begun } else { follow_run(&mut opened, begun)? };
            common.output.one(&ended.told(&opened.rules.tenants))?;
            ensure!(ended.is_done() || *no_wait, "send {name} is not done: {}", ended.error.unwrap_or_default());
            Ok(())
        }
        SendCommand::List(whose) => {
            let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
            let found = send::list_sends(&conn, Some(named_tenant(&tenants, whose.tenant.as_deref())?.no))?;
            let told: Vec<Value> = found.iter().map(|send| send.told(&tenants)).collect();
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
            common.output.list(&columns, &told)
        }
        SendCommand::Recipients { name, from, whose, to } => {
            let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
            let known = named_tenant(&tenants, whose.tenant.as_deref())?;
            let send = send::find_send(&conn, known.no, name)?.with_context(|| unknown_send(name))?;
            let (arms, mut next) = (ArmNames::of(&conn, &send)?, Some(*from));
            // Places are people; of some nothing is told.
            let left = send.next.saturating_sub(*from);
            to.write(usize::try_from(left)?, common.output, send::format_head, |lines| {
                let Some(from) = next else { return Ok(None) };
                let (some, behind) = send::list_recipients(&conn, &send, from, PAGE)?;
                next = behind;
                let places = behind.unwrap_or(send.next).saturating_sub(from);
                Ok(Some((
                    usize::try_from(places)?,
                    send::format_recipients(lines, &known.config.name, &send, &arms, &some),
                )))
            })
        }
        SendCommand::Stop { name, whose } => {
            let opened = WritableStore::new(common)?;
            let known = named_tenant(&opened.rules.tenants, whose.tenant.as_deref())?;
            let stopped = send::stop_send(&opened.conn, known.no, name)?;
            let send = send::find_send(&opened.conn, known.no, name)?.with_context(|| unknown_send(name))?;
            ensure!(stopped, "send {name} is over already");
            common.output.one(&send.told(&opened.rules.tenants))
        }
    }
}

fn unknown_send(name: &str) -> String {
    format!("there is no send `{name}`: `causeway audience send list` names them")
}

/// Tells its people here, or looks on while another process does, until it is over or something is in the way.
fn follow_run(opened: &mut WritableStore, begun: Row) -> anyhow::Result<Row> {
    let asked = RunRequest { job: JobKind::Send, tenant: None, woken: Trigger::Command, dry_run: false };
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
        // Its receiver asked to wait.
        if send.due.is_some_and(|due| due > clock::now()) {
            std::thread::sleep(LOOK);
            continue;
        }
        match job::try_carry_out(opened, asked, &Options::default())? {
            None => std::thread::sleep(LOOK),
            // A serving origin's jobs wait for this one, and look from time to time.
            Some(_) if is_served(&opened.config) => std::thread::sleep(BUSY + LOOK),
            Some(_) => {}
        }
    }
}
