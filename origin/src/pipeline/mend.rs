//! Brings people and lookups in line with the evidence, with all consequences in other rooms.

use std::collections::BTreeSet;

use causeway_shared::base::ids::AlternateId;

use crate::audience;
use crate::campaigns::experiment;
use crate::campaigns::rules::CampaignRules;
use crate::campaigns::spend::GroupBills;
use crate::identity::changes::{LinkChanges, TouchedEvidence};
use crate::identity::link::SuspectPeople;
use crate::identity::{evidence, lookups, people};
use crate::kv::publish;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};

/// Recomputes the suspect people and lookups from the evidence, and returns the number of changed people.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn mend_people(group: &mut WriteTxn<'_>, wrong: &SuspectPeople) -> Result<u64, StoreError> {
    let SuspectPeople { visitors, empty, representatives: speakers } = wrong;
    let mut linked = LinkChanges::default();
    let mut touched = TouchedEvidence { visitors: visitors.clone(), of_rows: true, ..TouchedEvidence::default() };
    for (tenant, visitor, keeps_row) in speakers {
        let config = &group.rules.tenants.by_no(*tenant)?.config;
        if let Some(id) = evidence::first_unique(group.tx, *tenant, *visitor, |kind| config.is_unique(kind))? {
            touched.representatives.insert(
                (*tenant, id),
                crate::identity::changes::GroupRepresentative { visitor: *visitor, keeps_row: *keeps_row },
            );
        }
    }
    people::recompute(group, &mut touched, &mut linked)?;
    empty.iter().try_for_each(|row| people::remove_if_empty(group, *row))?;
    linked.rows.extend(empty);
    lookups::recompute_lookups(group, &touched, &mut linked)?;
    let campaigns = CampaignRules::load(group)?;
    GroupBills::default().keep(group, &campaigns.budgets, &linked)?;
    experiment::person_results::refresh_people(group, &campaigns.counted, &[], &linked)?;
    publish::note_changes(group, &[], &linked)?;
    audience::note(group, &[], &linked)?;
    // A visitor that is alone has no siblings whose publication includes it.
    for (tenant, visitor) in visitors {
        crate::outbox::queue::put_key(group, *tenant, crate::outbox::kv_key::KvKey::Snapshot(*visitor), group.now)?;
    }
    Ok(linked.people.len() as u64)
}

/// Writes lookups of canonical ids again, if their evidence gives another value.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn write_lookups(group: &mut WriteTxn<'_>, ids: BTreeSet<(TenantNo, AlternateId)>) -> Result<(), StoreError> {
    let mut linked = LinkChanges::default();
    lookups::recompute_lookups(group, &TouchedEvidence { ids, ..TouchedEvidence::default() }, &mut linked)?;
    publish::note_changes(group, &[], &linked)
}
