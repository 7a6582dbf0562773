//! `causeway inspect`: reads the store directly, also while the origin serves.

use anyhow::Context as _;
use causeway_origin::identity::directory;
use causeway_origin::ingest::backlog::Backlog;
use causeway_origin::views::describe;
use causeway_origin::views::read::StoreView;
use clap::Subcommand;
use serde_json::Value;

use super::{CommonOptions, ReadableStore, UsageError, named_tenant, parse_visitor};

/// Visitors on one page.
const PAGE: usize = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum InspectCommand {
    /// A visitor: its own sums, its person's, what links it.
    Visitor {
        /// The visitor's id.
        id: String,
        /// Whose visitor. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// The person that a visitor belongs to: its master, and all its visitors, a page at a time.
    Person {
        /// A visitor of it.
        id: String,
        /// The page after the one that ended with this visitor, as `next` said.
        #[arg(long, value_name = "VISITOR")]
        after: Option<String>,
        /// Whose visitor. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Who was last seen with an alternate id.
    Lookup {
        /// The kind, such as `member`.
        kind: String,
        /// The raw id; it is hashed with the tenant's key here.
        value: String,
        /// Whose id. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
}

pub(super) fn run(command: &InspectCommand, common: &CommonOptions) -> anyhow::Result<()> {
    let (InspectCommand::Visitor { tenant, .. }
    | InspectCommand::Person { tenant, .. }
    | InspectCommand::Lookup { tenant, .. }) = command;
    let ReadableStore { config, mut conn, tenants, .. } = ReadableStore::new(common)?;
    let known = named_tenant(&tenants, tenant.as_deref())?;
    let reader = Backlog::of_log(&config.data, &conn, &tenants)?.reader();
    let snapshot = conn.transaction()?;
    let found: Value = match command {
        InspectCommand::Visitor { id, .. } => {
            describe::describe_visitor(&StoreView::load_profile(&snapshot, &reader)?, known, parse_visitor(id)?)?
                .context("no fact of that visitor ever came")?
        }
        InspectCommand::Person { id, after, .. } => {
            let usage = |()| UsageError("--after is `next` of the page before, or a visitor's id".to_owned());
            let after = after.as_deref().map(str::parse).transpose().map_err(usage)?;
            let found = directory::list_visitors(&snapshot, known.no, parse_visitor(id)?, after, PAGE)?;
            serde_json::to_value(found.context("the store has no such visitor, or --after is another person's")?)?
        }
        InspectCommand::Lookup { kind, value, .. } => describe::describe_lookup(&snapshot, known, kind, value)?,
    };
    common.output.one(&found)
}
