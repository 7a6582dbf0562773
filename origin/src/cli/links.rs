//! `causeway links`: works on the store directly, also while the origin serves.

use anyhow::{Context as _, anyhow, ensure};
use causeway_origin::{clock, describe, links as of};
use causeway_shared::fact::Fact;
use causeway_shared::ids::{AlternateId, Millis, VisitorId};
use causeway_shared::limits;
use clap::Subcommand;
use serde_json::json;

use super::segments::put_facts;
use super::{Common, Opened, Reading, confirmed, named};

#[derive(Debug, Subcommand)]
pub(super) enum Links {
    /// Whether two visitors are one person.
    Check {
        /// A visitor.
        a: String,
        /// Another one.
        b: String,
        /// Whose visitors. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
    #[command(flatten)]
    End(End),
}

/// What ends evidence.
#[derive(Debug, Subcommand)]
pub(super) enum End {
    /// Undo the link of two visitors: the first one's evidence with each id that both were seen with ends, until newer comes.
    Remove {
        /// The visitor whose evidence ends.
        a: String,
        /// The other one, whose stays.
        b: String,
        /// Whose visitors. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
        /// Do it; without, the plan is shown, and on a terminal it is asked.
        #[arg(long)]
        yes: bool,
    },
    /// This visitor was seen with this id by mistake: evidence of it until now does not count, also what comes late.
    Cancel {
        /// The visitor.
        #[arg(long)]
        visitor: String,
        /// The kind, such as `member`.
        #[arg(long)]
        kind: String,
        /// The raw id; it is hashed with the tenant's key here.
        #[arg(long)]
        value: String,
        /// Whose visitor. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
        /// Do it; without, the plan is shown, and on a terminal it is asked.
        #[arg(long)]
        yes: bool,
    },
}

pub(super) fn run(command: &Links, common: &Common) -> anyhow::Result<()> {
    match command {
        Links::Check { a, b, tenant } => check(a, b, tenant.as_deref(), common),
        Links::End(command) => end(command, common),
    }
}

fn end(command: &End, common: &Common) -> anyhow::Result<()> {
    let mut opened = Opened::new(common)?;
    let (End::Remove { tenant, yes, .. } | End::Cancel { tenant, yes, .. }) = command;
    let tenant = named(&opened.rules.tenants, tenant.as_deref())?.clone();
    let conn = &opened.conn;
    let (whose, ids): (VisitorId, Vec<(AlternateId, Millis)>) = match command {
        End::Remove { a, b, .. } => {
            let (a, b) = (visitor(a)?, visitor(b)?);
            let shared = of::connecting(conn, &tenant, a, b)?;
            ensure!(a != b && !shared.is_empty(), "the two visitors were not seen with the same id");
            (a, shared.into_iter().collect())
        }
        End::Cancel { visitor: whose, kind, value, .. } => {
            let whose = visitor(whose)?;
            let kind = tenant.config.kind(kind).context("the tenant has no kind of alternate id of that name")?;
            let fits = !value.is_empty() && value.len() <= limits::ALTERNATE_ID_BYTES;
            ensure!(fits, "an alternate id has 1 to {} bytes", limits::ALTERNATE_ID_BYTES);
            let id =
                of::id_of(conn, &tenant, kind.code(), value)?.context("the tenant has no key for alternate ids")?;
            (whose, vec![(id, of::last_seen(conn, &tenant, whose, id)?)])
        }
    };
    let cancelled: Vec<_> = ids.iter().map(|(id, _)| describe::named(&tenant, *id)).collect();
    let plan = json!({"visitor": whose.to_string(), "cancelled": cancelled, "done": false});
    if !confirmed(*yes, &plan, common)? {
        return Ok(());
    }
    let now = clock::now();
    let facts: anyhow::Result<Vec<Fact>> =
        ids.iter().map(|(id, last)| Ok(of::cancellation(whose, *id, *last, now, random()?))).collect();
    put_facts(&mut opened, &tenant, facts?)?;
    common.output.one(&json!({"visitor": whose.to_string(), "cancelled": cancelled, "done": true}))
}

fn check(a: &str, b: &str, tenant: Option<&str>, common: &Common) -> anyhow::Result<()> {
    let opened = Reading::new(common)?;
    let tenant = named(&opened.tenants, tenant)?.no;
    let found = of::check(&opened.conn, tenant, visitor(a)?, visitor(b)?)?;
    common.output.one(&describe::checked(found.context("the store does not have both visitors")?))
}

fn visitor(text: &str) -> anyhow::Result<VisitorId> {
    text.parse().map_err(|e| anyhow!("the visitor's id has {e}"))
}

fn random() -> anyhow::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("the operating system gives no random bytes")?;
    Ok(bytes)
}
