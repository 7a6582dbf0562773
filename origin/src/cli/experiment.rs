//! `causeway experiment`: plans one, and shows what one came to; the store is read directly, also while the origin serves.

use anyhow::Context as _;
use causeway_origin::base::clock;
use causeway_origin::campaigns::experiment::results;
use causeway_origin::campaigns::experiment::statistics::{PowerRequest, people_an_arm};
use clap::Subcommand;
use serde_json::json;

use super::{CommonOptions, ReadableStore, named_tenant};

#[derive(Debug, Subcommand)]
pub(super) enum ExperimentCommand {
    /// How many people it takes to see a difference, and how long that is at some traffic.
    Plan {
        /// The rate without: 0.02 is two of a hundred people.
        #[arg(long, allow_negative_numbers = true)]
        base: f64,
        /// The least difference to be seen, as a part of the rate: 0.1 is ten per cent more.
        #[arg(long, allow_negative_numbers = true)]
        uplift: f64,
        /// Arms, the control among them.
        #[arg(long, default_value_t = 2)]
        arms: u32,
        /// How often the difference must be seen where there is one.
        #[arg(long, default_value_t = 0.8)]
        power: f64,
        /// How often one may be seen where there is none.
        #[arg(long, default_value_t = 0.05)]
        alpha: f64,
        /// New people a day in the whole experiment.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        traffic: Option<u64>,
    },
    /// Arms, traffic, conversions, uplift, and whether the traffic was split as it was to be. Also of one that was dropped.
    Show {
        /// The experiment's id.
        id: String,
        /// Whose experiment. With one tenant configured it need not be said.
        #[arg(long)]
        tenant: Option<String>,
    },
}

pub(super) fn run(command: &ExperimentCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        ExperimentCommand::Plan { base, uplift, arms, power, alpha, traffic } => {
            let wanted = PowerRequest { base: *base, uplift: *uplift, alpha: *alpha, power: *power, arms: *arms };
            let each = people_an_arm(wanted)?;
            let all = each.saturating_mul(u64::from(*arms));
            let plan = json!({
                "base": base, "with_uplift": base * (1.0 + uplift), "arms": arms, "alpha": alpha, "power": power,
                "people_an_arm": each, "people": all, "days": traffic.map(|traffic| all.div_ceil(traffic)),
            });
            common.output.one(&plan)
        }
        ExperimentCommand::Show { id, tenant } => {
            let ReadableStore { mut conn, tenants, .. } = ReadableStore::new(common)?;
            let known = named_tenant(&tenants, tenant.as_deref())?;
            let snapshot = conn.transaction()?;
            let found = results::describe_experiment(&snapshot, known, id, clock::now())?;
            common
                .output
                .one(&found.with_context(|| format!("no version of the tenant's catalogue has an experiment `{id}`"))?)
        }
    }
}
