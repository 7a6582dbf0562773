//! `causeway attributes`: works on the store directly, also while the origin serves.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use causeway_origin::base::clock;
use causeway_origin::base::config::Config;
use causeway_origin::base::metrics::Metrics;
use causeway_origin::maintenance::forget_names::{self, ForgetError};
use causeway_origin::maintenance::retype_attribute;
use causeway_origin::store::names;
use causeway_origin::views::attributes::{self as of, AttributeWrite};
use causeway_origin::views::read::{StoreView, VisitorView};
use causeway_shared::facts::attributes::{NameDictionary, ValueKind};
use clap::Subcommand;
use serde_json::json;

use super::audit::ReasonOptions;
use super::segments::{WhoseArgs, put_facts, read_owner};
use super::{
    CommonOptions, ReadableStore, UsageError, WritableStore, confirm_plan, fold_before, is_served, named_tenant,
    parse_argument,
};

/// Interval between two looks at the publishing progress of a type change.
const PUBLISH_LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(super) enum AttributesCommand {
    /// Show the visitor's own attributes and its person's.
    Get {
        #[command(flatten)]
        whose: WhoseArgs,
    },
    /// Write attributes: `{"set": {"shoe_size": 42}, "remove": ["vip"]}`. An invalid one is rejected; the others are
    /// written.
    Put {
        #[command(flatten)]
        whose: WhoseArgs,
        /// The write, as JSON.
        write: String,
    },
    /// Declare or change the type of an attribute. Shows its plan first: how many stored values can be converted, and
    /// how many are removed. If the catalogue names the attribute, the type changes after a serving origin has
    /// published the converted values, which takes some minutes.
    Retype {
        /// The attribute's name.
        name: String,
        /// The new type: bool, integer, float, string, date or strings.
        #[arg(long = "type", value_name = "TYPE", value_parser = parse_kind)]
        to: ValueKind,
        /// The attribute's tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
        /// Apply the plan without asking. Without this option, the plan is shown; on a terminal, the command asks.
        #[arg(long)]
        yes: bool,
    },
    /// Remove attribute names, such as names that unknown clients used up. Shows its plan first: how many visitors have
    /// a value of each name. A name that the catalogue, an audience or a send uses is refused. The name's token is free
    /// a day after the last value is removed.
    Forget {
        /// The attributes' names.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        why: ReasonOptions,
        /// The attributes' tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
        /// Apply the plan without asking. Without this option, the plan is shown; on a terminal, the command asks.
        #[arg(long)]
        yes: bool,
    },
    /// List the tenant's attribute names, in the order of their first use.
    Names {
        /// The names' tenant. Optional if only one tenant is configured.
        #[arg(long)]
        tenant: Option<String>,
    },
}

fn parse_kind(text: &str) -> Result<ValueKind, String> {
    ValueKind::from_name(text).ok_or_else(|| "expected one of bool, integer, float, string, date, strings".to_owned())
}

pub(super) fn run(command: &AttributesCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        AttributesCommand::Get { whose } => {
            let mut opened = ReadableStore::new(common)?;
            let tenant = named_tenant(&opened.tenants, whose.tenant())?.clone();
            let found = read_owner(opened.read_source(), &tenant, whose, of::describe_attributes)?;
            common.output.one(&found)
        }
        AttributesCommand::Put { whose, write } => {
            let mut opened = WritableStore::new(common)?;
            let tenant = named_tenant(&opened.rules.tenants, whose.tenant())?.clone();
            let write: AttributeWrite = parse_argument(write, "the write")?;
            let read = |view: &StoreView<'_>, visitor: &VisitorView| {
                Ok((visitor.visitor, of::stamp_after(view, visitor, &write)?))
            };
            let (visitor, after) = read_owner(opened.read_source(), &tenant, whose, read)?;
            let (now, id) = (clock::now().max(after), clock::random_bytes()?);
            let checked = |names: &NameDictionary| of::attribute_facts(names, visitor, &write, now, id);
            let (facts, mut refused) = checked(&names::load_dictionary(&opened.conn, tenant.no)?);
            if !facts.is_empty() {
                // Rejections are reported against the dictionary after the fold, as over HTTP.
                put_facts(&mut opened, &tenant, facts, None)?;
                refused = checked(&names::load_dictionary(&opened.conn, tenant.no)?).1;
            }
            let written = write.set.len() + write.remove.len() - refused.len();
            if written == 0 {
                let why = refused.first().map_or("the write is empty", |r| r.message.as_str());
                bail!(UsageError(format!("nothing was written: {why}")));
            }
            common.output.one(&json!({ "visitor": visitor.to_string(), "written": written, "rejected": refused }))
        }
        AttributesCommand::Retype { name, to, tenant, yes } => {
            let mut opened = WritableStore::new(common)?;
            let tenant = named_tenant(&opened.rules.tenants, tenant.as_deref())?.clone();
            // Values may be acknowledged but not folded yet.
            fold_before(&opened.config, &opened.conn)?;
            let plan = retype_attribute::plan_retype(&mut opened.conn, &tenant, name, *to)?;
            if !confirm_plan(*yes, &plan.to_json(name, *to, false), common)? {
                return Ok(());
            }
            let WritableStore { config, conn, rules, .. } = &mut opened;
            let wait = |keys| wait_for_publishing(config, keys);
            retype_attribute::apply_retype(
                conn,
                rules,
                causeway_origin::store::write_txn::draw_inputs,
                &tenant,
                name,
                *to,
                wait,
            )?;
            common.output.one(&plan.to_json(name, *to, true))
        }
        AttributesCommand::Forget { names, why, tenant, yes } => {
            forget_names(names, why, tenant.as_deref(), *yes, common)
        }
        AttributesCommand::Names { tenant } => {
            let ReadableStore { conn, tenants, .. } = ReadableStore::new(common)?;
            let tenant = named_tenant(&tenants, tenant.as_deref())?;
            let names = names::load_dictionary(&conn, tenant.no)?;
            let rows: Vec<_> = (0..names.pages()).flat_map(|page| of::names_page(&names, page).names).collect();
            common.output.list(&["token", "name", "type"], &rows)
        }
    }
}

/// Waits for a moment, in which a serving origin can publish the converted keys. `false` if keys remain and no origin
/// serves.
fn wait_for_publishing(config: &Config, keys: u64) -> bool {
    if keys == 0 || is_served(config) {
        std::thread::sleep(PUBLISH_LOOK);
        return true;
    }
    false
}

fn forget_names(
    names: &[String],
    why: &ReasonOptions,
    tenant: Option<&str>,
    yes: bool,
    common: &CommonOptions,
) -> anyhow::Result<()> {
    let mut opened = WritableStore::new(common)?;
    let tenant = named_tenant(&opened.rules.tenants, tenant)?.clone();
    let names: BTreeSet<String> = names.iter().cloned().collect();
    // Values may be acknowledged but not folded yet; folded later, they would bring the names back.
    fold_before(&opened.config, &opened.conn)?;
    let usage = |e| match e {
        ForgetError::Store(e) => anyhow::Error::from(e),
        e => UsageError(e.to_string()).into(),
    };
    let plan = forget_names::plan_forgetting(&opened.conn, &tenant, &names).map_err(usage)?;
    if !confirm_plan(yes, &json!(plan.to_answer(false)), common)? {
        return Ok(());
    }
    let WritableStore { conn, rules, .. } = &mut opened;
    forget_names::mark_names(
        conn,
        rules,
        causeway_origin::store::write_txn::draw_inputs()?,
        &tenant,
        &names,
        &why.attribution(),
    )
    .map_err(usage)?;
    forget_names::sweep_names(
        conn,
        rules,
        &Metrics::default(),
        &causeway_origin::store::write_txn::draw_inputs,
        &|| Ok(()),
    )?;
    common.output.one(&plan.to_answer(true))
}
