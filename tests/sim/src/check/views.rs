//! A reader that joins KV values counts each visitor of a person once, and no visitor that was cut from it. Checked
//! after the world has converged, for every snapshot together with the snapshots of all visitors that it names.

use std::collections::BTreeMap;

use causeway_shared::base::ids::{TenantId, VisitorId};
use causeway_shared::profiles::profile::ProfileTotals;
use causeway_shared::profiles::view::{JoinedView, Snapshot, StoredValue};
use causeway_shared::wire::kv as form;

use super::facts::subject;
use crate::world::World;

type Snapshots = BTreeMap<(TenantId, VisitorId), Snapshot>;

/// Joins every snapshot in the KV with the snapshots that it names.
pub fn converged(world: &mut World) -> Vec<String> {
    let mut all = Snapshots::new();
    for (key, value) in world.kv.values() {
        let Some((tenant, visitor)) = subject(key) else { continue };
        if let Ok(StoredValue::Snapshot(snapshot)) = form::decode_stored(key, visitor, value.as_bytes()) {
            all.insert((tenant, visitor), *snapshot);
        }
    }
    all.iter()
        .filter(|(_, own)| own.missing().is_empty())
        .filter_map(|((tenant, _), own)| joined(&all, tenant, own))
        .collect()
}

fn joined(all: &Snapshots, tenant: &TenantId, own: &Snapshot) -> Option<String> {
    let of = |visitor: &VisitorId| all.get(&(tenant.clone(), *visitor));
    let mut view = JoinedView::default();
    view.add_snapshot(own.clone());
    own.membership.admits.iter().filter_map(of).for_each(|other| view.add_snapshot(other.clone()));
    // A reader may still hold the own profile of a visitor that was cut; the other members in that snapshot belong to
    // another person.
    for mut cut in own.membership.cuts.keys().filter_map(of).cloned() {
        cut.keep_own();
        view.add_snapshot(cut);
    }
    let admits = &own.membership.admits;
    let each = admits.iter().filter_map(|v| Some(of(v)?.profiles.get(v)?.totals()));
    let counted = view.of(own.visitor);
    let (members, sums) = (counted.members(), counted.totals());
    let expected = each.fold(ProfileTotals::default(), ProfileTotals::plus);
    (!members.iter().eq(admits) || sums != expected).then(|| {
        format!("the view of {} counts {members:?} of {admits:?}, with {sums:?} instead of {expected:?}", own.visitor)
    })
}
