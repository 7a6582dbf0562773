//! `causeway erase`: works on the store directly, also while the origin serves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use causeway_origin::base::clock;
use causeway_origin::base::metrics::Metrics;
use causeway_origin::erasures::registry::{self, ErasureProgress};
use causeway_origin::ingest::intake::{CheckedFact, LogRecord};
use causeway_origin::ingest::log;
use causeway_origin::pipeline::commit;
use causeway_origin::privacy::erasure_request as of;
use causeway_origin::privacy::erasure_request::ErasureTarget;
use causeway_origin::store::tenants::TenantContext;
use causeway_shared::facts::fact::ErasureScope;
use clap::{ArgGroup, Args};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::audit::ReasonOptions;
use super::output::{print_line, progress_bar, show_progress};
use super::{CommonOptions, WritableStore, confirm_plan, fold_before, is_served, named_tenant, parse_visitor};

/// Interval between two looks at the receipt while the command waits for it.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whom").required(true).args(["visitor", "kind"])))]
pub(super) struct EraseOptions {
    /// The id of the visitor to erase.
    #[arg(long, conflicts_with_all = ["kind", "value"])]
    visitor: Option<String>,
    /// The kind of an alternate id, such as `member`. Every visitor seen with the id until now is erased.
    #[arg(long, requires = "value")]
    kind: Option<String>,
    /// The raw alternate id. It is hashed with the tenant's key here.
    #[arg(long, requires = "kind")]
    value: Option<String>,
    /// Also erase all other visitors of the same person.
    #[arg(long)]
    person: bool,
    #[command(flatten)]
    why: ReasonOptions,
    /// The visitors' tenant. Optional if only one tenant is configured.
    #[arg(long)]
    tenant: Option<String>,
    /// Apply the plan without asking. Without this option, the plan is shown; on a terminal, the command asks.
    #[arg(long)]
    yes: bool,
    /// Wait until store, log and every KV key no longer contain the visitors.
    #[arg(long)]
    wait: bool,
}

impl EraseOptions {
    fn target(&self, tenant: &TenantContext) -> anyhow::Result<ErasureTarget> {
        match (&self.visitor, &self.kind, &self.value) {
            (Some(target), ..) => Ok(ErasureTarget::Visitor(parse_visitor(target)?)),
            (None, Some(kind), Some(value)) => {
                let (kind, hashes) = tenant.alternate(kind, value)?;
                Ok(ErasureTarget::Id(kind, hashes))
            }
            _ => bail!("add --visitor, or --kind and --value"),
        }
    }
}

pub(super) fn run(command: &EraseOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let mut opened = WritableStore::new(common)?;
    let tenant = named_tenant(&opened.rules.tenants, command.tenant.as_deref())?.clone();
    let target = command.target(&tenant)?;
    let scope = if command.person { ErasureScope::Person } else { ErasureScope::Visitor };
    // Evidence that ties visitors to the target may be acknowledged but not folded yet.
    fold_before(&opened.config, &opened.conn)?;
    let now = of::erasure_moment(&opened.conn, &tenant, &target, scope, clock::now())?;
    let reached = of::erasure_reach(&opened.conn, &tenant, &target, scope, now)?;
    let visitors: Vec<String> = reached.iter().map(ToString::to_string).collect();
    let plan = json!({"scope": scope.name(), "visitors": visitors, "done": false});
    if !confirm_plan(command.yes, &plan, common)? {
        return Ok(());
    }
    let fact = target.fact(scope, now, clock::random_bytes()?);
    let receipt = fact.id;
    let WritableStore { config, conn, rules, .. } = &mut opened;
    let record = LogRecord::with_attribution(vec![CheckedFact { tenant: tenant.no, fact }], command.why.attribution());
    // A serving origin may have the visitors' facts in its log. It folds nothing while this transaction reads the
    // record number.
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
    let mut result = json!({"scope": scope.name(), "visitors": visitors, "done": true});
    if let (Some(result), Value::Object(progress)) = (result.as_object_mut(), json!(progress)) {
        result.extend(progress);
    }
    common.output.one(&result)
}

fn read_progress(
    opened: &WritableStore,
    tenant: &TenantContext,
    receipt: causeway_shared::base::ids::FactId,
) -> anyhow::Result<ErasureProgress> {
    registry::erasure_progress(&opened.conn, tenant.no, receipt)?.context("the erasure was not stored")
}

fn wait_for_erasure(
    opened: &WritableStore,
    tenant: &TenantContext,
    receipt: causeway_shared::base::ids::FactId,
) -> anyhow::Result<ErasureProgress> {
    let bar = progress_bar(0, "{pos} of {len} keys written");
    let shown = show_progress(&bar);
    loop {
        let progress = read_progress(opened, tenant, receipt)?;
        shown(progress.keys.written, progress.keys.all);
        let is_done = progress.done_ms.is_some();
        if is_done || !is_served(&opened.config) {
            bar.finish_and_clear();
            if !is_done {
                print_line(
                    "no origin serves from this data directory: the KV is written after `causeway serve` starts",
                );
            }
            return Ok(progress);
        }
        std::thread::sleep(LOOK);
    }
}
