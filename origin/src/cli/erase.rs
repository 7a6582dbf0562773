//! `causeway erase`: works on the store directly, also while the origin serves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use causeway_origin::base::clock;
use causeway_origin::base::metrics::Metrics;
use causeway_origin::ingest::intake::{CheckedFact, LogRecord};
use causeway_origin::ingest::log;
use causeway_origin::pipeline::commit;
use causeway_origin::privacy::erase as of;
use causeway_origin::privacy::erase::ErasureTarget;
use causeway_origin::store::tenants::TenantContext;
use causeway_shared::facts::fact::ErasureScope;
use clap::{ArgGroup, Args};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::audit::ReasonOptions;
use super::output::{print_line, progress_bar, show_progress};
use super::{CommonOptions, WritableStore, confirm_plan, fold_before, is_served, named_tenant, parse_visitor};

/// How often a receipt is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whom").required(true).args(["visitor", "kind"])))]
pub(super) struct EraseOptions {
    /// A visitor id.
    #[arg(long, conflicts_with_all = ["kind", "value"])]
    visitor: Option<String>,
    /// The kind of an alternate id, such as `member`: everybody who was seen with it until now goes.
    #[arg(long, requires = "value")]
    kind: Option<String>,
    /// The raw alternate id; it is hashed with the tenant's key here.
    #[arg(long, requires = "kind")]
    value: Option<String>,
    /// All visitors of their people, too.
    #[arg(long)]
    person: bool,
    #[command(flatten)]
    why: ReasonOptions,
    /// Whose visitors. With one tenant configured it need not be said.
    #[arg(long)]
    tenant: Option<String>,
    /// Do it; without, the plan is shown, and on a terminal it is asked.
    #[arg(long)]
    yes: bool,
    /// Come back when it is gone from the store, the log and every key of the KV.
    #[arg(long)]
    wait: bool,
}

impl EraseOptions {
    fn whom(&self, tenant: &TenantContext) -> anyhow::Result<ErasureTarget> {
        match (&self.visitor, &self.kind, &self.value) {
            (Some(whom), ..) => Ok(ErasureTarget::Visitor(parse_visitor(whom)?)),
            (None, Some(kind), Some(value)) => {
                let (kind, hashes) = tenant.alternate(kind, value)?;
                Ok(ErasureTarget::Id(kind, hashes))
            }
            _ => bail!("say --visitor, or --kind and --value"),
        }
    }
}

pub(super) fn run(command: &EraseOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let mut opened = WritableStore::new(common)?;
    let tenant = named_tenant(&opened.rules.tenants, command.tenant.as_deref())?.clone();
    let whom = command.whom(&tenant)?;
    let scope = if command.person { ErasureScope::Person } else { ErasureScope::Visitor };
    // What ties whom it names may be acknowledged, and not stored yet.
    fold_before(&opened.config, &opened.conn)?;
    let now = of::erasure_moment(&opened.conn, &tenant, &whom, scope, clock::now())?;
    let reached = of::erasure_reach(&opened.conn, &tenant, &whom, scope, now)?;
    let visitors: Vec<String> = reached.iter().map(ToString::to_string).collect();
    let plan = json!({"scope": scope.name(), "visitors": visitors, "done": false});
    if !confirm_plan(command.yes, &plan, common)? {
        return Ok(());
    }
    let fact = whom.fact(scope, now, clock::random_bytes()?);
    let receipt = fact.id;
    let WritableStore { config, conn, rules, .. } = &mut opened;
    let record = LogRecord::said(vec![CheckedFact { tenant: tenant.no, fact }], command.why.said());
    // Beside an origin that serves, whose log may hold what goes; it folds nothing while this is asked.
    let records = |tx: &Connection| {
        let in_log = log::newest_record(&config.data, tx)?;
        Ok([Arc::new(LogRecord { in_log, ..record })])
    };
    commit::commit_with(
        conn,
        rules,
        &Metrics::default(),
        causeway_origin::store::write_txn::draw_inputs()?,
        records,
        &[],
        |_| Ok(()),
    )?;
    let progress = if command.wait {
        wait_for_erasure(&opened, &tenant, receipt)?
    } else {
        read_progress(&opened, &tenant, receipt)?
    };
    let mut said = json!({"scope": scope.name(), "visitors": visitors, "done": true});
    if let (Some(said), Value::Object(progress)) = (said.as_object_mut(), progress) {
        said.extend(progress);
    }
    common.output.one(&said)
}

fn read_progress(
    opened: &WritableStore,
    tenant: &TenantContext,
    receipt: causeway_shared::base::ids::FactId,
) -> anyhow::Result<Value> {
    causeway_origin::erasures::registry::erasure_progress(&opened.conn, tenant.no, receipt)?
        .context("the erasure was not kept")
}

fn wait_for_erasure(
    opened: &WritableStore,
    tenant: &TenantContext,
    receipt: causeway_shared::base::ids::FactId,
) -> anyhow::Result<Value> {
    let bar = progress_bar(0, "{pos} of {len} keys written");
    let shown = show_progress(&bar);
    loop {
        let progress = read_progress(opened, tenant, receipt)?;
        let keys = |name: &str| progress["keys"][name].as_u64().unwrap_or_default();
        shown(keys("written"), keys("all"));
        let is_done = !progress["done_ms"].is_null();
        if is_done || !is_served(&opened.config) {
            bar.finish_and_clear();
            if !is_done {
                print_line("no origin serves from that folder: the KV is written once one does");
            }
            return Ok(progress);
        }
        std::thread::sleep(LOOK);
    }
}
