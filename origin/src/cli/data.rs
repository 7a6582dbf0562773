//! `causeway data`: whether the files of the data directory belong together, and going on without one that is lost.

use causeway_origin::ingest::marker;
use causeway_origin::store;
use causeway_origin::store::data_fault::DataFault;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{CommonOptions, confirm_plan};

/// What to do with the data directory.
#[derive(Debug, Subcommand)]
pub(super) enum DataCommand {
    /// Check that store, log and journal of erasures belong together. Exits with 1 where they do not.
    Check,
    /// Go on without a log, or the end of one, that is lost. What is left of it is kept. Shows its plan first.
    AcceptLoss {
        /// Do it; without, the plan is shown, and on a terminal it is asked.
        #[arg(long)]
        yes: bool,
    },
}

impl DataCommand {
    pub(super) fn run(&self, common: &CommonOptions) -> anyhow::Result<()> {
        let config = common.load()?;
        let faults = marker::inspect_folder(&config.data)?;
        let mut report = json!({
            "data": config.data.display().to_string(),
            "faults": faults.iter().map(describe_fault).collect::<Vec<_>>(),
        });
        match self {
            Self::Check => {
                common.output.one(&report)?;
                anyhow::ensure!(faults.is_empty(), "the data directory is not whole");
            }
            Self::AcceptLoss { yes } => {
                report["done"] = false.into();
                if faults.is_empty() {
                    return common.output.one(&report);
                }
                if !confirm_plan(*yes, &report, common)? {
                    return Ok(());
                }
                let _lock = store::lock_folder(&config.data)?;
                marker::accept_loss(&config.data)?;
                report["done"] = true.into();
                common.output.one(&report)?;
            }
        }
        Ok(())
    }
}

fn describe_fault(fault: &DataFault) -> Value {
    json!({ "fault": fault.to_string(), "can_be_accepted": fault.is_acceptable() })
}
