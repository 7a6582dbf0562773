//! Lookups: the visitors last seen with an alternate id, by the edge's time of receipt. They follow from the last
//! receipts of the evidence, so an older fact never moves one.

use causeway_shared::base::ids::{AlternateId, KindCode, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::planted::{self, PlantedBug};

use crate::base::integers::signed;
use crate::identity::changes::{LinkChanges, TouchedEvidence};
use crate::identity::evidence;
use crate::store::tables::lookups;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};

/// Writes the changed lookups of ids, and lookups of ids with a new hash.
pub(crate) fn recompute_lookups(
    group: &mut WriteTxn<'_>,
    touched: &TouchedEvidence,
    linked: &mut LinkChanges,
) -> Result<(), StoreError> {
    for (tenant, id) in touched.ids.iter().filter(|(_, id)| id.kind != KindCode::PAIR) {
        let (visitors, last) = newest_visitors(group, *tenant, *id)?;
        let is_renamed =
            touched.renamed.contains(&(*tenant, *id)) && !planted::is_active(PlantedBug::LeaveTheNewHashUnwritten);
        if write(group, *tenant, *id, &visitors, last)? || is_renamed {
            linked.lookups.insert((*tenant, *id));
        }
    }
    Ok(())
}

/// The visitors last seen with an id, ties by visitor, and the time of the first one. A unique id counts only for
/// visitors that effectively hold it; an unproven id counts only if the tenant's threshold lets it link.
fn newest_visitors(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    id: AlternateId,
) -> Result<(Vec<VisitorId>, Millis), StoreError> {
    let config = &group.rules.tenants.by_no(tenant)?.config;
    let threshold = config.threshold();
    if !config.is_unique(id.kind) && evidence::is_oversized(group.tx, tenant, id, config.group_limit(id.kind))? {
        return Ok((Vec::new(), group.now));
    }
    let mut visitors: Vec<VisitorId> = Vec::with_capacity(limits::LOOKUP_VISITORS);
    let mut last = None;
    evidence::each_newest(group.tx, tenant, id, |row| {
        let is_claim = row.is_page_claim() && row.evidence.stands() && row.evidence.weight >= threshold;
        let counts = (row.claims() || is_claim) && row.flag.is_none();
        if counts && !visitors.contains(&row.evidence.visitor) {
            visitors.push(row.evidence.visitor);
            last.get_or_insert(row.evidence.last);
        }
        visitors.len() < limits::LOOKUP_VISITORS
    })?;
    Ok((visitors, last.unwrap_or(group.now)))
}

/// Writes a lookup and returns whether it changed. `last` is the receipt that put the first visitor first.
fn write(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    id: AlternateId,
    visitors: &[VisitorId],
    last: Millis,
) -> Result<bool, StoreError> {
    let bytes: Vec<u8> = visitors.iter().flat_map(|v| *v.as_bytes()).collect();
    let KindCode(kind) = id.kind;
    let version = group.next_version();
    let changed = group.tx.prepare_cached(lookups::LOOKUPS_SET_VISITORS)?.execute((
        tenant.0,
        kind,
        &id.hash.0,
        bytes,
        signed(last),
        signed(version.counter),
    ))?;
    Ok(changed > 0)
}
