//! Brings people and lookups to what the evidence says, with everything that follows in other rooms.

use std::collections::BTreeSet;

use causeway_shared::ids::AlternateId;

use crate::audience;
use crate::campaigns::experiment;
use crate::campaigns::rules::CampaignRules;
use crate::campaigns::spend::Bills;
use crate::identity::changes::{Linked, Touched};
use crate::identity::link::Wrong;
use crate::identity::{evidence, lookups, people};
use crate::kv::publish;
use crate::store::write_txn::Group;
use crate::store::{StoreError, TenantNo};

/// Brings what is wrong to what the evidence says; gives how many people are others now.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn mend(group: &mut Group<'_>, wrong: &Wrong) -> Result<u64, StoreError> {
    let Wrong { visitors, empty, speakers } = wrong;
    let mut linked = Linked::default();
    let mut touched = Touched { visitors: visitors.clone(), of_rows: true, ..Touched::default() };
    for (tenant, visitor, keeps_row) in speakers {
        let config = &group.rules.tenants.by_no(*tenant)?.config;
        if let Some(id) = evidence::first_unique(group.tx, *tenant, *visitor, |kind| config.is_unique(kind))? {
            touched
                .speakers
                .insert((*tenant, id), crate::identity::changes::Speaker { visitor: *visitor, keeps_row: *keeps_row });
        }
    }
    people::recompute(group, &mut touched, &mut linked)?;
    empty.iter().try_for_each(|row| people::remove_if_empty(group, *row))?;
    linked.rows.extend(empty);
    lookups::recompute(group, &touched, &mut linked)?;
    let campaigns = CampaignRules::load(group)?;
    Bills::default().keep(group, &campaigns.budgets, &linked)?;
    experiment::people::refresh(group, &campaigns.counted, &[], &linked)?;
    publish::note(group, &[], &linked)?;
    audience::note(group, &[], &linked)?;
    // Who is alone has no siblings to wait with.
    for (tenant, visitor) in visitors {
        crate::outbox::queue::put(group, *tenant, crate::outbox::kv_key::Subject::Snapshot(*visitor), group.now)?;
    }
    Ok(linked.people.len() as u64)
}

/// Writes the lookups of ids (canonical) again from their evidence, where it says something else.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn write_lookups(group: &mut Group<'_>, ids: BTreeSet<(TenantNo, AlternateId)>) -> Result<(), StoreError> {
    let mut linked = Linked::default();
    lookups::recompute(group, &Touched { ids, ..Touched::default() }, &mut linked)?;
    publish::note(group, &[], &linked)
}
