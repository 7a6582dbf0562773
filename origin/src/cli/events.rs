//! `causeway events`: the names of events that audiences count. Works on the store directly, also while the origin serves.

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
    /// The names that audiences count, with who brought each: a page, the admin side or a file, or a declaration.
    Names {
        /// Whose names. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Have names counted for good, in the place of names that pages brought where no place is left. What an audience, a
    /// send or an experiment uses is declared by that.
    Declare {
        /// The events' names.
        #[arg(required = true)]
        names: Vec<String>,
        /// Whose names. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Take names back, such as those that strangers used up. Shows its plan first. A name that an audience, a send or an
    /// experiment uses is refused. What visitors did stays.
    Forget {
        /// The events' names.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        why: ReasonOptions,
        /// Whose names. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
        /// Do it; without, the plan is shown, and on a terminal it is asked.
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
            // Events may be acknowledged, and not stored yet: with them the names would come back.
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
                &why.said(),
            )
            .map_err(usage)?;
            common.output.one(&json!({ "names": plan, "done": true }))
        }
    }
}
