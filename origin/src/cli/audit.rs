//! `causeway audit`: reads the store directly, also while the origin serves.

use causeway_origin::base::attribution::{self, Attribution};
use causeway_origin::privacy::audit as of;
use clap::Args;

use super::{CommonOptions, ReadableStore, named_tenant};

/// The reason of a change, for the audit trail.
#[derive(Debug, Clone, Args)]
pub(super) struct ReasonOptions {
    /// Reason of the change, one line, stored in the audit trail for ever. Give a ticket number, no personal name and
    /// no id.
    #[arg(long, value_name = "TEXT", value_parser = attribution::checked_reason)]
    reason: Option<String>,
}

impl ReasonOptions {
    /// Attribution to the operating system's user, as the environment names it.
    pub(super) fn attribution(&self) -> Attribution {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        Attribution::cli(user.as_deref(), self.reason.clone())
    }
}

#[derive(Debug, Args)]
pub(super) struct AuditOptions {
    /// Only changes that name this visitor, and the erasure that removed it.
    #[arg(long)]
    visitor: Option<String>,
    /// Rows older than this row number: the last row of the previous page.
    #[arg(long, value_name = "ROW")]
    after: Option<i64>,
    /// Largest number of rows.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// The visitors' tenant. Optional if only one tenant is configured.
    #[arg(long)]
    tenant: Option<String>,
}

const COLUMNS: [&str; 13] =
    ["row", "at_ms", "what", "by", "name", "role", "reason", "receipt", "visitor", "other", "id", "object", "count"];

pub(super) fn run(command: &AuditOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
    let tenant = named_tenant(&tenants, command.tenant.as_deref())?;
    let visitor = command.visitor.as_deref().map(super::parse_visitor).transpose()?;
    let rows = of::list_rows(&conn, tenant, visitor, command.after, command.limit.into())?;
    common.output.list(&COLUMNS, &rows)
}
