//! `causeway data`: checks that the files of the data directory belong together, and continues without a lost one.

use causeway_origin::ingest::marker;
use causeway_origin::store;
use causeway_origin::store::data_fault::DataFault;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{CommonOptions, confirm_plan};

/// Commands on the files of the data directory.
#[derive(Debug, Subcommand)]
pub(super) enum DataCommand {
    /// Check that store, log and journal of erasures belong together. Exits with 1 if they do not.
    Check,
    /// Continue without a lost log, or without its lost end. The rest of the log is retained. Shows its plan first.
    AcceptLoss {
        /// Apply the plan without asking. Without this option, the plan is shown; on a terminal, the command asks.
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
                anyhow::ensure!(
                    faults.is_empty(),
                    "the files of the data directory do not belong together: see `faults`"
                );
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
