//! `causeway segments`: works on the store directly, also while the origin serves.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use causeway_origin::base::attribution::Attribution;
use causeway_origin::base::clock;
use causeway_origin::base::metrics::Metrics;
use causeway_origin::ingest::backlog::Backlog;
use causeway_origin::ingest::intake::{CheckedFact, LogRecord};
use causeway_origin::maintenance::trim;
use causeway_origin::pipeline::commit;
use causeway_origin::store;
use causeway_origin::store::tenants::TenantContext;
use causeway_origin::views::read::{StoreView, VisitorView};
use causeway_origin::views::segments::{self as of, SegmentOwner, SegmentTest, SegmentWrite};
use causeway_shared::base::ids::Millis;
use causeway_shared::facts::fact::Fact;
use causeway_shared::facts::segments::{SegmentId, SegmentMap};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{CommonOptions, ReadSource, ReadableStore, WritableStore, named_tenant, parse_argument, parse_visitor};

#[derive(Debug, Subcommand)]
pub(super) enum SegmentsCommand {
    /// Show the visitor's own segments and its person's. With --query, the answer covers the visitor's own segments, or
    /// its person's if an alternate id names it.
    Get {
        #[command(flatten)]
        whose: WhoseArgs,
        /// The query, as JSON: `{"expiring": {"from_ms": …, "to_ms": …}}`, `{"not_expiring": …}`, `{"newest": 5}` or
        /// `{"count": {"from": 8000, "to": 9000}}`.
        #[arg(long)]
        query: Option<String>,
    },
    /// Write segments: `{"set": [{"segment": 8457, "expires_ms": …}], "remove": [7]}`.
    Put {
        #[command(flatten)]
        whose: WhoseArgs,
        /// The write, as JSON.
        write: String,
    },
    /// Add hours to the expiry of one segment.
    Extend {
        #[command(flatten)]
        whose: WhoseArgs,
        /// The segment's number.
        segment: u32,
        /// Number of hours.
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        hours: u32,
    },
    /// Delete expired segments and removals that no late fact can bring back.
    Trim {
        #[command(flatten)]
        whose: WhoseArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct WhoseArgs {
    /// A visitor id, or `KIND:VALUE` for the visitor last seen with an alternate id.
    of: String,
    /// The visitor's tenant. Optional if only one tenant is configured.
    #[arg(long)]
    tenant: Option<String>,
}

impl WhoseArgs {
    pub(super) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    fn owner(&self) -> anyhow::Result<SegmentOwner> {
        Ok(match self.of.split_once(':') {
            Some((kind, value)) => SegmentOwner::Lookup(kind.to_owned(), value.to_owned()),
            None => SegmentOwner::Visitor(parse_visitor(&self.of)?),
        })
    }
}

pub(super) fn run(command: &SegmentsCommand, common: &CommonOptions) -> anyhow::Result<()> {
    let opened = |whose: &WhoseArgs| {
        let opened = WritableStore::new(common)?;
        let tenant = named_tenant(&opened.rules.tenants, whose.tenant())?.clone();
        anyhow::Ok((opened, tenant))
    };
    match command {
        SegmentsCommand::Get { whose, query } => get(query.as_deref(), whose, common),
        SegmentsCommand::Put { whose, write } => {
            let (mut opened, tenant) = opened(whose)?;
            let write: SegmentWrite = parse_argument(write, "the write")?;
            // The lock prevents an extension that has already read the old expiry from overwriting this write.
            let _many = store::lock_extension(&opened.config.data, false)?;
            let (visitor, map) = find_owner(&mut opened, &tenant, whose)?;
            let at = clock::now().max(of::stamp_after(&map, &write));
            let written = put_segment(&mut opened, &tenant, &visitor, &write, at)?;
            common.output.one(&json!({ "visitor": visitor.visitor.to_string(), "written": written }))
        }
        SegmentsCommand::Extend { whose, segment, hours } => {
            let (mut opened, tenant) = opened(whose)?;
            // The lock lasts from the read of the expiry to the write of the new one, so that two extensions add up.
            let _one = store::lock_extension(&opened.config.data, true)?;
            let (visitor, map) = find_owner(&mut opened, &tenant, whose)?;
            let write = of::extended_expiry(&map, SegmentId(*segment), *hours, clock::now());
            let (write, after) = write.context("the visitor is not in this segment")?;
            put_segment(&mut opened, &tenant, &visitor, &write, clock::now().max(after))?;
            let until = write.set.first().map(|set| set.expires_ms);
            let visitor = visitor.visitor.to_string();
            common.output.one(&json!({ "visitor": visitor, "extended": segment, "expires_ms": until }))
        }
        SegmentsCommand::Trim { whose } => {
            let (mut opened, tenant) = opened(whose)?;
            let visitor = read_owner(opened.read_source(), &tenant, whose, |_, visitor| Ok(visitor.clone()))?;
            let row = visitor.row.context("the visitor's facts are not folded yet: try again")?;
            common.output.one(&json!(trim::trim_visitor(&mut opened.conn, row, clock::now())?))
        }
    }
}

fn get(query: Option<&str>, whose: &WhoseArgs, common: &CommonOptions) -> anyhow::Result<()> {
    let query: Option<SegmentTest> = query.map(|query| parse_argument(query, "the query")).transpose()?;
    let mut opened = ReadableStore::new(common)?;
    let tenant = named_tenant(&opened.tenants, whose.tenant.as_deref())?.clone();
    let by = whose.owner()?;
    let found = read_owner(opened.read_source(), &tenant, whose, |view, visitor| match &query {
        None => of::describe_segments(view, visitor, clock::now()).map(|found| json!(found)),
        Some(query) => Ok(json!(of::answer_query(&by.segments(view, visitor)?, query, clock::now()))),
    })?;
    common.output.one(&found)
}

/// The visitor, and the segments of the visitor or its person.
fn find_owner(
    opened: &mut WritableStore,
    tenant: &TenantContext,
    whose: &WhoseArgs,
) -> anyhow::Result<(VisitorView, SegmentMap)> {
    let by = whose.owner()?;
    read_owner(opened.read_source(), tenant, whose, |view, visitor| Ok((visitor.clone(), by.segments(view, visitor)?)))
}

/// Finds the visitor and reads from its view, over store and log.
pub(super) fn read_owner<T>(
    ReadSource { data, conn, tenants }: ReadSource<'_>,
    tenant: &TenantContext,
    whose: &WhoseArgs,
    read: impl FnOnce(&StoreView<'_>, &VisitorView) -> Result<T, causeway_origin::store::StoreError>,
) -> anyhow::Result<T> {
    let reader = Backlog::of_log(data, conn, tenants)?.reader();
    let snapshot = conn.transaction()?;
    let view = StoreView::with_backlog(&snapshot, &reader)?;
    let found = of::find_visitor(&view, tenant, &whose.owner()?)?;
    Ok(read(&view, &found.context("visitor not found")?)?)
}

fn put_segment(
    opened: &mut WritableStore,
    tenant: &TenantContext,
    visitor: &VisitorView,
    write: &SegmentWrite,
    at: Millis,
) -> anyhow::Result<usize> {
    put_facts(opened, tenant, vec![of::segment_fact(visitor.visitor, write, at, clock::random_bytes()?)?], None)?;
    Ok(write.set.len() + write.remove.len())
}

/// Folds new facts into the store in one transaction.
pub(super) fn put_facts(
    opened: &mut WritableStore,
    tenant: &TenantContext,
    facts: Vec<Fact>,
    said: Option<Attribution>,
) -> anyhow::Result<()> {
    let all = facts.len() as u64;
    let facts = facts.into_iter().map(|fact| CheckedFact { tenant: tenant.no, fact }).collect();
    let record = Arc::new(LogRecord { attribution: said, ..LogRecord::of(facts) });
    let WritableStore { conn, rules, .. } = opened;
    let done = commit::commit_group(
        conn,
        rules,
        &Metrics::default(),
        causeway_origin::store::write_txn::draw_inputs()?,
        &[record],
        &[],
    )?;
    ensure!(done.new == [all], "the write was not stored");
    Ok(())
}
