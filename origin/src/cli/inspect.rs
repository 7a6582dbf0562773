//! `causeway inspect`: reads the store directly, also while the origin serves.

use anyhow::{Context as _, anyhow};
use causeway_origin::backlog::Backlog;
use causeway_origin::describe;
use causeway_origin::read::View;
use causeway_shared::ids::VisitorId;
use clap::Subcommand;
use serde_json::Value;

use super::{Common, Reading, named};

#[derive(Debug, Subcommand)]
pub(super) enum Inspect {
    /// A visitor: its own sums, its person's, what links it.
    Visitor {
        /// The visitor's id.
        id: String,
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

pub(super) fn run(command: &Inspect, common: &Common) -> anyhow::Result<()> {
    let (Inspect::Visitor { tenant, .. } | Inspect::Lookup { tenant, .. }) = command;
    let Reading { config, mut conn, tenants, .. } = Reading::new(common)?;
    let known = named(&tenants, tenant.as_deref())?;
    let reader = Backlog::of_log(&config.data, &conn, &tenants)?.reader();
    let snapshot = conn.transaction()?;
    let found: Value = match command {
        Inspect::Visitor { id, .. } => {
            let id: VisitorId = id.parse().map_err(|e| anyhow!("the visitor's id has {e}"))?;
            describe::visitor(&View::whole(&snapshot, &reader)?, known, id)?
                .context("no fact of that visitor ever came")?
        }
        Inspect::Lookup { kind, value, .. } => describe::lookup(&snapshot, known, kind, value)?,
    };
    common.output.one(&found)
}
