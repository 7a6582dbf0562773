//! `causeway count`: reads store and log directly, also while the origin serves.

use causeway_origin::base::clock;
use causeway_origin::ingest::backlog::Backlog;
use causeway_origin::views::count::{self, Ask, AskGroups};
use causeway_origin::views::read::View;
use clap::Args;
use serde_json::{Value, json};

use super::{Common, Reading, argument, named};

#[derive(Debug, Args)]
pub(super) struct Count {
    /// `{"visitor": …, "actions": ["impression"], "last": {"interval": 7, "unit": "days"}, "level": "campaign", "ids": [42]}`;
    /// with `by` in place of `level` and `ids`, groups.
    question: String,
    /// Whose visitor. With one tenant configured it need not be said.
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) fn run(command: &Count, common: &Common) -> anyhow::Result<()> {
    let Reading { config, mut conn, tenants, .. } = Reading::new(common)?;
    let known = named(&tenants, command.tenant.as_deref())?;
    let question: Value = argument(&command.question, "the question")?;
    let reader = Backlog::of_log(&config.data, &conn, &tenants)?.reader();
    let snapshot = conn.transaction()?;
    let view = View::whole(&snapshot, &reader)?;
    if question.get("by").is_some() {
        let ask: AskGroups = argument(&command.question, "the question")?;
        let groups = count::groups(&view, known, &ask, clock::now())?;
        return common.output.one(&json!({ "groups": groups }));
    }
    let ask: Ask = argument(&command.question, "the question")?;
    let counts = count::counts(&view, known, &ask, clock::now())?;
    common.output.one(&json!({ "counts": counts }))
}
