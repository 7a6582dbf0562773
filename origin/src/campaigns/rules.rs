//! What one transaction applies of all tenants' current catalogues.

use std::collections::BTreeSet;

use rusqlite::Connection;

use crate::base::metrics::Metrics;
use crate::campaigns::catalogue::{self, CountedConversions, CurrentBudgets, CurrentExperiments};
use crate::store::write_txn::{TxnRules, WriteTxn};
use crate::store::{StoreError, TenantNo};

/// Experiments, conversions and budgets of all tenants' current catalogues.
#[derive(Debug, Clone)]
pub struct CampaignRules {
    /// The experiments that run.
    pub experiments: CurrentExperiments,
    /// The names of events that count as conversions.
    pub counted: CountedConversions,
    /// What campaigns may spend.
    pub budgets: CurrentBudgets,
    /// Tenants of which a stored part of the current catalogue cannot be read: their facts are set aside until it can.
    pub held: BTreeSet<TenantNo>,
}

impl CampaignRules {
    /// Reads the rules of a transaction, and reports tenants whose catalogue cannot be read.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn load(group: &WriteTxn<'_>) -> Result<Self, StoreError> {
        let (experiments, budgets) = (catalogue::load_experiments(group.tx)?, catalogue::load_budgets(group.tx)?);
        let counted = catalogue::load_conversions(group.tx, &experiments, group.now)?;
        let held = experiments.unreadable().union(budgets.unreadable()).copied().collect();
        report_held(group.metrics, group.rules, &held);
        Ok(Self { experiments, counted, budgets, held })
    }
}

/// The tenants of which a stored part of the current catalogue cannot be read.
///
/// # Errors
/// [`StoreError`].
pub fn held_tenants(conn: &Connection) -> Result<BTreeSet<TenantNo>, StoreError> {
    let (experiments, budgets) = (catalogue::load_experiments(conn)?, catalogue::load_budgets(conn)?);
    Ok(experiments.unreadable().union(budgets.unreadable()).copied().collect())
}

/// Says which tenants are held up, once for each change of their number.
fn report_held(metrics: &Metrics, rules: &TxnRules, held: &BTreeSet<TenantNo>) {
    let number = held.len() as u64;
    if metrics.held_tenants.get() != number {
        metrics.held_tenants.set(number);
        for known in rules.tenants.iter().filter(|known| held.contains(&known.no)) {
            let tenant = &known.config.name;
            tracing::error!(tenant, "the stored catalogue of a tenant cannot be read: its facts are set aside");
        }
    }
}
