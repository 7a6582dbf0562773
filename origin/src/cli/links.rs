//! `causeway links`: works on the store directly, also while the origin serves.

use anyhow::{Context as _, bail, ensure};
use causeway_origin::base::attribution::Attribution;
use causeway_origin::base::clock;
use causeway_origin::identity::connections::{self as of, VisitorLink};
use causeway_origin::views::describe;
use causeway_shared::base::ids::{AlternateId, FactId, Millis, VisitorId};
use causeway_shared::facts::fact::Fact;
use clap::{Args, Subcommand};
use serde_json::json;

use super::audit::ReasonOptions;
use super::import::{self, ImportOptions, LinkFile};
use super::segments::put_facts;
use super::{
    CommonOptions, ReadableStore, UsageError, WritableStore, confirm_plan, fold_before, named_tenant, parse_visitor,
};

#[derive(Debug, Subcommand)]
pub(super) enum LinksCommand {
    /// Check whether two visitors are one person.
    Check {
        /// The first visitor.
        a: String,
        /// The second visitor.
        b: String,
        /// The visitors' tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Add evidence other than a login. It joins views if its weight reaches the tenant's `link_threshold`.
    Add(AddOptions),
    /// Add the links of a file: Parquet, CSV or NDJSON with visitor, other (or kind and value), weight and source.
    Import(LinkFile),
    #[command(flatten)]
    End(EndOptions),
}

#[derive(Debug, Args)]
pub(super) struct AddOptions {
    /// The first visitor.
    visitor: String,
    /// The second visitor; alternatively, --kind and --value name an id.
    other: Option<String>,
    /// The kind of an alternate id, such as `household`.
    #[arg(long)]
    kind: Option<String>,
    /// The raw id. It is hashed with the tenant's key here.
    #[arg(long)]
    value: Option<String>,
    /// Confidence in the evidence: over 0, at most 1.
    #[arg(long, allow_negative_numbers = true)]
    weight: f64,
    /// Source of the evidence: match, household, device, model.
    #[arg(long)]
    source: String,
    #[command(flatten)]
    why: ReasonOptions,
    /// The visitors' tenant. Optional if only one tenant is configured.
    #[arg(long)]
    tenant: Option<String>,
}

/// Commands that cancel evidence.
#[derive(Debug, Subcommand)]
pub(super) enum EndOptions {
    /// Undo the link of two visitors. Cancels the first visitor's evidence with each id that both were seen with, until
    /// newer evidence arrives.
    Remove {
        /// The visitor whose evidence is cancelled.
        a: String,
        /// The other visitor, whose evidence is unchanged.
        b: String,
        #[command(flatten)]
        why: ReasonOptions,
        /// The visitors' tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
        /// Apply the plan without asking. Without this option, the plan is shown; on a terminal, the command asks.
        #[arg(long)]
        yes: bool,
    },
    /// Cancel the evidence of a visitor with an id until now, including evidence that arrives late.
    Cancel {
        /// The visitor.
        #[arg(long)]
        visitor: String,
        /// The kind of the id, such as `member`.
        #[arg(long)]
        kind: String,
        /// The raw id. It is hashed with the tenant's key here.
        #[arg(long)]
        value: String,
        #[command(flatten)]
        why: ReasonOptions,
        /// The visitor's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
        /// Apply the plan without asking. Without this option, the plan is shown; on a terminal, the command asks.
        #[arg(long)]
        yes: bool,
    },
}

pub(super) fn run(command: &LinksCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        LinksCommand::Check { a, b, tenant } => check_link(a, b, tenant.as_deref(), common),
        LinksCommand::Add(command) => add(command, common),
        LinksCommand::Import(file) => import::run(&ImportOptions::links(file.clone()), common),
        LinksCommand::End(command) => end_evidence(command, common),
    }
}

fn end_evidence(command: &EndOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let mut opened = WritableStore::new(common)?;
    let (EndOptions::Remove { tenant, yes, why, .. } | EndOptions::Cancel { tenant, yes, why, .. }) = command;
    let tenant = named_tenant(&opened.rules.tenants, tenant.as_deref())?.clone();
    // The evidence to cancel may be acknowledged but not folded yet.
    fold_before(&opened.config, &opened.conn)?;
    let conn = &opened.conn;
    let (whose, ids): (VisitorId, Vec<(AlternateId, Option<Millis>)>) = match command {
        EndOptions::Remove { a, b, .. } => {
            let (a, b) = (parse_visitor(a)?, parse_visitor(b)?);
            if a == b {
                bail!(UsageError("the two visitors are the same: name two different ones".to_owned()));
            }
            let shared = of::connecting_evidence(conn, &tenant, a, b)?;
            ensure!(!shared.is_empty(), "the two visitors were not seen with the same id");
            (a, shared.into_iter().map(|(id, last)| (id, Some(last))).collect())
        }
        EndOptions::Cancel { visitor: whose, kind, value, .. } => {
            let whose = parse_visitor(whose)?;
            let (kind, hashes) = tenant.alternate(kind, value)?;
            let id = of::id_of(conn, &tenant, kind, &hashes)?.context("the tenant has no key for alternate ids")?;
            (whose, vec![(id, of::last_seen(conn, &tenant, whose, id)?)])
        }
    };
    let cancelled: Vec<_> = ids.iter().map(|(id, _)| describe::describe_id(&tenant, *id)).collect();
    let plan = json!({"visitor": whose.to_string(), "cancelled": cancelled, "done": false});
    if !confirm_plan(*yes, &plan, common)? {
        return Ok(());
    }
    let now = clock::now();
    let facts: anyhow::Result<Vec<Fact>> = ids
        .iter()
        .map(|(id, last)| Ok(of::cancellation_fact(whose, *id, *last, now, clock::random_bytes()?)))
        .collect();
    let other = if let EndOptions::Remove { b, .. } = command { Some(b.clone()) } else { None };
    put_facts(&mut opened, &tenant, facts?, Some(Attribution { other, ..why.attribution() }))?;
    common.output.one(&json!({"visitor": whose.to_string(), "cancelled": cancelled, "done": true}))
}

fn add(command: &AddOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let mut opened = WritableStore::new(common)?;
    let tenant = named_tenant(&opened.rules.tenants, command.tenant.as_deref())?.clone();
    let AddOptions { other, kind, value, weight, source, .. } = command;
    let (other, kind, value) = (other.clone(), kind.clone(), value.clone());
    let tie = VisitorLink { other, kind, value, weight: Some(*weight), source: Some(source.clone()) };
    let now = clock::now();
    let mut facts = Vec::new();
    for (visitor, what) in of::parse_link(&tenant, parse_visitor(&command.visitor)?, &tie)?.into_iter().flatten() {
        facts.push(Fact {
            position: 0,
            id: FactId::from_bytes(clock::random_bytes()?),
            visitor,
            received: now,
            at: now,
            what,
        });
    }
    fold_before(&opened.config, &opened.conn)?;
    let unknown = |visitor| anyhow::anyhow!("visitor {visitor} not found");
    let facts = of::date_evidence(&opened.conn, tenant.no, facts)?.map_err(unknown)?;
    put_facts(&mut opened, &tenant, facts, Some(command.why.attribution()))?;
    let pair = |other: &String| {
        of::check_pair(&opened.conn, tenant.no, parse_visitor(&command.visitor).ok()?, parse_visitor(other).ok()?)
            .ok()?
    };
    match tie.other.as_ref().and_then(pair) {
        Some(checked) => common.output.one(&describe::describe_check(checked)),
        None => common.output.one(&json!({"visitor": command.visitor, "added": true})),
    }
}

fn check_link(a: &str, b: &str, tenant: Option<&str>, common: &CommonOptions) -> anyhow::Result<()> {
    let opened = ReadableStore::new(common)?;
    let tenant = named_tenant(&opened.tenants, tenant)?.no;
    let found = of::check_pair(&opened.conn, tenant, parse_visitor(a)?, parse_visitor(b)?)?;
    common.output.one(&describe::describe_check(found.context("at least one of the two visitors was not found")?))
}
