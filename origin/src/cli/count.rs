//! `causeway count`: reads store and log directly, also while the origin serves.

use causeway_origin::base::clock;
use causeway_origin::ingest::backlog::Backlog;
use causeway_origin::views::count::{self, CountRequest, GroupRequest};
use causeway_origin::views::read::StoreView;
use clap::Args;
use serde_json::{Value, json};

use super::{CommonOptions, ReadableStore, named_tenant, parse_argument};

#[derive(Debug, Args)]
pub(super) struct CountOptions {
    /// The question, as JSON: `{"visitor": …, "actions": ["impression"], "last": {"interval": 7, "unit": "days"},
    /// "level": "campaign", "ids": [42]}`. With `by` instead of `level` and `ids`, the answer has groups.
    question: String,
    /// Whose visitor. With one tenant configured it need not be said.
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) fn run(command: &CountOptions, common: &CommonOptions) -> anyhow::Result<()> {
    let ReadableStore { config, mut conn, tenants, .. } = ReadableStore::new(common)?;
    let known = named_tenant(&tenants, command.tenant.as_deref())?;
    let question: Value = parse_argument(&command.question, "the question")?;
    let reader = Backlog::of_log(&config.data, &conn, &tenants)?.reader();
    let snapshot = conn.transaction()?;
    let view = StoreView::with_backlog(&snapshot, &reader)?;
    if question.get("by").is_some() {
        let ask: GroupRequest = parse_argument(&command.question, "the question")?;
        let groups = count::list_groups(&view, known, &ask, clock::now())?;
        return common.output.one(&json!({ "groups": groups }));
    }
    let ask: CountRequest = parse_argument(&command.question, "the question")?;
    let counts = count::count_actions(&view, known, &ask, clock::now())?;
    common.output.one(&json!({ "counts": counts }))
}
