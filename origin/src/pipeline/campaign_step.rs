//! The campaigns' part of a transaction: the costs, offer codes and conversions of new facts.

use causeway_shared::facts::fact::{Fact, FactKind};

use crate::campaigns::rules::CampaignRules;
use crate::campaigns::spend::GroupBills;
use crate::campaigns::{experiment, offers};
use crate::profiles::fold::{FoldResult, FoldedVisitor};
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, VisitorRow};

/// The results of new facts for campaigns.
#[derive(Debug, Default)]
pub(crate) struct CampaignChanges {
    /// Bills of campaigns with budgets.
    pub(crate) bills: GroupBills,
    /// Rows of visitors that were exposed to an arm, or converted.
    pub(crate) tested: Vec<VisitorRow>,
}

/// Records the costs, offer codes and conversions of folded facts. New facts without a visitor are added to the count
/// of their record.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub(crate) fn record_campaigns(
    group: &WriteTxn<'_>,
    campaigns: &CampaignRules,
    folded: &mut FoldResult<'_>,
) -> Result<CampaignChanges, StoreError> {
    let mut changes = CampaignChanges::default();
    for (record, tenant, fact) in std::mem::take(&mut folded.anonymous) {
        if changes.bills.add_anonymous(group, &campaigns.budgets, tenant, fact)? {
            folded.new.iter_mut().skip(record).take(1).for_each(|new| *new += 1);
        }
    }
    for (tenant, fact) in &folded.of_erased {
        offers::keep_given(group.tx, *tenant, std::iter::once(*fact))?;
    }
    for visitor in &folded.visitors {
        record_visitor(group, campaigns, visitor, &mut changes).map_err(|e| e.of_visitor(visitor.row))?;
    }
    Ok(changes)
}

fn record_visitor(
    group: &WriteTxn<'_>,
    campaigns: &CampaignRules,
    visitor: &FoldedVisitor<'_>,
    changes: &mut CampaignChanges,
) -> Result<(), StoreError> {
    let FoldedVisitor { tenant, row, facts } = visitor;
    let billed = facts.iter().filter(|placed| placed.is_billed()).map(|placed| (placed.happened(), placed.fact));
    changes.bills.add(&campaigns.budgets, *tenant, *row, billed);
    offers::keep_given(group.tx, *tenant, facts.iter().map(|placed| placed.fact))?;
    let vocabulary = &group.rules.tenants.by_no(*tenant)?.config.vocabulary;
    let names = &campaigns.counted.of(*tenant).names;
    let dated = facts.iter().map(|placed| (placed.converted(), placed.fact));
    let has_converted = experiment::keep_conversions(group.tx, names, vocabulary, *row, dated)?;
    let is_exposure = |fact: &Fact| matches!(fact.what, FactKind::Exposure { .. });
    if has_converted || facts.iter().any(|placed| is_exposure(placed.fact)) {
        changes.tested.push(*row);
    }
    Ok(())
}
