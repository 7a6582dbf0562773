//! Hashes of alternate ids. An id has one hash for each key that was readable when the id was seen. All of them lead to
//! the canonical hash, under which evidence and lookups are stored.

use std::collections::BTreeSet;

use causeway_shared::base::ids::{AltHash, AlternateId, KindCode};

use crate::identity::canonical::canonical_id;
use crate::identity::changes::TouchedEvidence;
use crate::identity::evidence;
use crate::store::tables::{alternates, lookups};
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};

/// Canonical form of an id that was just seen with the hashes `also` of other keys.
///
/// Hashes that counted as different ids until now are united.
pub(crate) fn resolve_ids(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    id: AlternateId,
    also: &[AltHash],
    touched: &mut TouchedEvidence,
) -> Result<AlternateId, StoreError> {
    let hashes: BTreeSet<AltHash> = also.iter().copied().chain([id.hash]).collect();
    let mut known = BTreeSet::new();
    for hash in &hashes {
        known.extend(canonical_id(group.tx, tenant, AlternateId { hash: *hash, ..id })?.map(|id| id.hash));
    }
    let canonical = AlternateId { hash: known.first().copied().unwrap_or(id.hash), ..id };
    if known.is_empty() {
        create_lookup(group, tenant, canonical)?;
    }
    for other in known.iter().filter(|hash| **hash != canonical.hash) {
        unite_ids(group, tenant, canonical, *other, touched)?;
    }
    let mut is_renamed = false;
    for hash in hashes.union(&known).filter(|hash| **hash != canonical.hash) {
        is_renamed |= record_hash(group, tenant, canonical, *hash)?;
    }
    if is_renamed && !known.is_empty() {
        touched.ids.insert((tenant, canonical));
        touched.renamed.insert((tenant, canonical));
    }
    Ok(canonical)
}

/// Creates a lookup without visitors, which makes the hash known.
fn create_lookup(group: &WriteTxn<'_>, tenant: TenantNo, id: AlternateId) -> Result<(), StoreError> {
    group.tx.prepare_cached(lookups::LOOKUPS_INSERT_EMPTY)?.execute((tenant.0, id.kind.0, &id.hash.0))?;
    Ok(())
}

/// Links a hash to its canonical hash. Returns whether the hash was unknown.
fn record_hash(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    canonical: AlternateId,
    hash: AltHash,
) -> Result<bool, StoreError> {
    let KindCode(kind) = canonical.kind;
    let row = (tenant.0, kind, &hash.0, &canonical.hash.0);
    Ok(group.tx.prepare_cached(alternates::ALTERNATES_INSERT_NEW)?.execute(row)? == 1)
}

/// Moves everything stored under `other` to the canonical hash.
fn unite_ids(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    canonical: AlternateId,
    other: AltHash,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    let KindCode(kind) = canonical.kind;
    evidence::rename_id(group, tenant, AlternateId { hash: other, ..canonical }, canonical, touched)?;
    group.tx.prepare_cached(lookups::LOOKUPS_DELETE)?.execute((tenant.0, kind, &other.0))?;
    group.tx.prepare_cached(alternates::ALTERNATES_REPOINT)?.execute((tenant.0, kind, &other.0, &canonical.hash.0))?;
    Ok(())
}

#[cfg(test)]
#[path = "alternates/tests.rs"]
mod tests;
