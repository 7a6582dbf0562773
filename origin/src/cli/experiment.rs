//! `causeway experiment`: plans an experiment or shows its results. Reads the store directly, also while the origin
//! serves.

use anyhow::Context as _;
use causeway_origin::base::clock;
use causeway_origin::campaigns::experiment::results;
use causeway_origin::campaigns::experiment::statistics::{PowerRequest, people_an_arm};
use clap::Subcommand;
use serde_json::json;

use super::{CommonOptions, ReadableStore, named_tenant};

#[derive(Debug, Subcommand)]
pub(super) enum ExperimentCommand {
    /// Compute the number of people that an experiment needs, and its duration at a given traffic.
    Plan {
        /// Conversion rate of the control: 0.02 is two of a hundred people.
        #[arg(long, allow_negative_numbers = true)]
        base: f64,
        /// Smallest detectable difference, relative to the base rate: 0.1 is ten per cent more.
        #[arg(long, allow_negative_numbers = true)]
        uplift: f64,
        /// Number of arms, including the control.
        #[arg(long, default_value_t = 2)]
        arms: u32,
        /// Probability of detecting a difference that exists.
        #[arg(long, default_value_t = 0.8)]
        power: f64,
        /// Probability of reporting a difference that does not exist.
        #[arg(long, default_value_t = 0.05)]
        alpha: f64,
        /// New people per day in the whole experiment.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        traffic: Option<u64>,
    },
    /// Show arms, traffic, conversions, uplift, and whether the traffic was split as planned. Also for an experiment
    /// that was removed from the catalogue.
    Show {
        /// The experiment's id.
        id: String,
        /// The experiment's tenant. Optional if only one tenant is configured.
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
