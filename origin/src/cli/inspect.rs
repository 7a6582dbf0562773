//! `causeway inspect`: reads the store directly, also while the origin serves.

use anyhow::Context as _;
use causeway_origin::identity::directory;
use causeway_origin::ingest::backlog::Backlog;
use causeway_origin::views::describe;
use causeway_origin::views::read::StoreView;
use clap::Subcommand;
use serde_json::Value;

use super::{CommonOptions, ReadableStore, UsageError, named_tenant, parse_visitor};

/// Visitors per page.
const PAGE: usize = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum InspectCommand {
    /// Show a visitor: its own sums, its person's, and its links.
    Visitor {
        /// The visitor's id.
        id: String,
        /// The visitor's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show the person of a visitor: its master, and all its visitors in pages.
    Person {
        /// A visitor of the person.
        id: String,
        /// Show the page after this visitor: the value of `next` from the previous page.
        #[arg(long, value_name = "VISITOR")]
        after: Option<String>,
        /// The visitor's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show the visitors last seen with an alternate id.
    Lookup {
        /// The kind, such as `member`.
        kind: String,
        /// The raw id. It is hashed with the tenant's key here.
        value: String,
        /// The id's tenant. Optional if only one tenant is configured.
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
            let view = StoreView::with_backlog(&snapshot, &reader)?;
            let found = describe::describe_visitor(&view, known, parse_visitor(id)?)?;
            serde_json::to_value(found.context("visitor not found: no fact of it was received")?)?
        }
        InspectCommand::Person { id, after, .. } => {
            let usage =
                |()| UsageError("invalid --after: expected `next` of the previous page, or a visitor's id".to_owned());
            let after = after.as_deref().map(str::parse).transpose().map_err(usage)?;
            let found = directory::list_visitors(&snapshot, known.no, parse_visitor(id)?, after, PAGE)?;
            serde_json::to_value(found.context("visitor not found, or --after belongs to another person")?)?
        }
        InspectCommand::Lookup { kind, value, .. } => {
            serde_json::to_value(describe::describe_lookup(&snapshot, known, kind, value)?)?
        }
    };
    common.output.one(&found)
}
