//! Rules of all tenants' current catalogues that a transaction applies.

use std::collections::BTreeSet;

use rusqlite::Connection;

use crate::base::metrics::Metrics;
use crate::campaigns::catalogue::{self, CountedConversions, CurrentBudgets, CurrentExperiments};
use crate::store::write_txn::{TxnRules, WriteTxn};
use crate::store::{StoreError, TenantNo};

/// Experiments, conversions and budgets of all tenants' current catalogues.
#[derive(Debug, Clone)]
pub struct CampaignRules {
    /// Running experiments.
    pub experiments: CurrentExperiments,
    /// Event names that count as conversions.
    pub counted: CountedConversions,
    /// Budgets of campaigns.
    pub budgets: CurrentBudgets,
    /// Tenants with an unreadable part of the current catalogue. Their facts are quarantined until it can be read.
    pub held: BTreeSet<TenantNo>,
}

impl CampaignRules {
    /// Loads the rules of a transaction and reports the tenants with an unreadable catalogue.
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

/// Tenants with an unreadable part of the current catalogue.
///
/// # Errors
/// [`StoreError`].
pub fn held_tenants(conn: &Connection) -> Result<BTreeSet<TenantNo>, StoreError> {
    let (experiments, budgets) = (catalogue::load_experiments(conn)?, catalogue::load_budgets(conn)?);
    Ok(experiments.unreadable().union(budgets.unreadable()).copied().collect())
}

/// Logs the quarantined tenants when their number changes, and sets the metric.
fn report_held(metrics: &Metrics, rules: &TxnRules, held: &BTreeSet<TenantNo>) {
    let number = held.len() as u64;
    if metrics.held_tenants.get() != number {
        metrics.held_tenants.set(number);
        for known in rules.tenants.iter().filter(|known| held.contains(&known.no)) {
            let tenant = &known.config.name;
            tracing::error!(tenant, "the stored catalogue of a tenant cannot be read: its facts are quarantined");
        }
    }
}
