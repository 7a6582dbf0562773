//! `causeway events`: the event names that audiences count. Works on the store directly, also while the origin serves.

use std::collections::BTreeSet;

use causeway_origin::base::clock;
use causeway_origin::maintenance::forget_event_names;
use causeway_origin::store::names::events::{self as of, EventNameError};
use clap::Subcommand;
use serde_json::json;

use super::audit::ReasonOptions;
use super::{CommonOptions, ReadableStore, UsageError, WritableStore, confirm_plan, fold_before, named_tenant};

#[derive(Debug, Subcommand)]
pub(super) enum EventsCommand {
    /// List the names that audiences count, each with its source: a page, the admin API, a file, or a declaration.
    Names {
        /// The names' tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Declare names that are always counted. If the list is full, a declared name replaces one that came from a page.
    /// A name that an audience, a send or an experiment uses is declared automatically.
    Declare {
        /// The events' names.
        #[arg(required = true)]
        names: Vec<String>,
        /// The names' tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Remove event names, such as names that unknown clients used up. Shows its plan first. A name that an audience, a
    /// send or an experiment uses is refused. The visitors' events are not changed.
    Forget {
        /// The events' names.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        why: ReasonOptions,
        /// The names' tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
        /// Apply the plan without asking. Without this option, the plan is shown; on a terminal, the command asks.
        #[arg(long)]
        yes: bool,
    },
}

pub(super) fn run(command: &EventsCommand, common: &CommonOptions) -> anyhow::Result<()> {
    let usage = |e| match e {
        EventNameError::Store(e) => anyhow::Error::from(e),
        e => UsageError(e.to_string()).into(),
    };
    match command {
        EventsCommand::Names { tenant } => {
            let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
            let tenant = named_tenant(&tenants, tenant.as_deref())?;
            common.output.list(&["name", "source", "since_ms"], &of::list_names(&conn, tenant.no)?)
        }
        EventsCommand::Declare { names, tenant } => {
            let mut opened = WritableStore::new(common)?;
            let tenant = named_tenant(&opened.rules.tenants, tenant.as_deref())?.no;
            let names: BTreeSet<String> = names.iter().cloned().collect();
            of::declare_names(&mut opened.conn, tenant, &names, clock::now()).map_err(usage)?;
            common.output.one(&json!({ "names": names, "done": true }))
        }
        EventsCommand::Forget { names, why, tenant, yes } => {
            let mut opened = WritableStore::new(common)?;
            let tenant = named_tenant(&opened.rules.tenants, tenant.as_deref())?.clone();
            let names: BTreeSet<String> = names.iter().cloned().collect();
            // Events may be acknowledged but not folded yet; folded later, they would bring the names back.
            fold_before(&opened.config, &opened.conn)?;
            let plan = forget_event_names::plan_forget(&opened.conn, &tenant, &names).map_err(usage)?;
            if !confirm_plan(*yes, &json!({ "names": plan, "done": false }), common)? {
                return Ok(());
            }
            let WritableStore { conn, rules, .. } = &mut opened;
            forget_event_names::forget_names(
                conn,
                rules,
                causeway_origin::store::write_txn::draw_inputs()?,
                &tenant,
                &names,
                &why.attribution(),
            )
            .map_err(usage)?;
            common.output.one(&json!({ "names": plan, "done": true }))
        }
    }
}
