//! Which visitors belong to which member. One answer never joins two members, even if a snapshot predates a login.

use std::collections::{BTreeMap, BTreeSet};

use super::IdClaim;
use crate::base::ids::{AltHash, SnapshotVersion, VisitorId};
use crate::profiles::membership::Membership;
use crate::profiles::profile::MissingParts;
use crate::profiles::view::{JoinedView, Snapshot, StoredValue};

/// The siblings whose snapshots may join, and the visitors of other members. A sibling may join if its unique id is
/// ours or if it has none. If `ours` is empty, the first id met becomes ours.
pub(super) fn may_join<'a>(
    mut ours: &'a [AltHash],
    siblings: &[VisitorId],
    stored: &'a BTreeMap<VisitorId, StoredValue>,
) -> (BTreeSet<VisitorId>, OtherMembers) {
    let (mut joining, mut others) = (BTreeSet::new(), OtherMembers::default());
    for sibling in siblings {
        let Some(StoredValue::Snapshot(snapshot)) = stored.get(sibling) else { continue };
        if ours.is_empty() {
            ours = &snapshot.unique;
        }
        match same_id(ours, &snapshot.unique) {
            _ if snapshot.unique.is_empty() => _ = joining.insert(*sibling),
            Some(true) => _ = joining.insert(*sibling),
            Some(false) => others.learn(snapshot),
            // Without a common key, the snapshot counts neither as another member's nor as ours.
            None => {}
        }
    }
    // The visitor that the browser was switched away from is no sibling, but its snapshot names the visitors of its
    // member.
    for (visitor, stored) in stored {
        if let StoredValue::Snapshot(snapshot) = stored
            && !siblings.contains(visitor)
            && same_id(ours, &snapshot.unique) == Some(false)
        {
            others.learn(snapshot);
        }
    }
    // A sibling's older snapshot may predate the evidence in a newer snapshot of another member.
    joining.retain(|v| !matches!(stored.get(v), Some(StoredValue::Snapshot(s)) if others.hold(*v, s.version)));
    (joining, others)
}

/// The visitors in their order, without repetitions.
pub(super) fn each_once(visitors: impl Iterator<Item = VisitorId>) -> Vec<VisitorId> {
    let mut seen = BTreeSet::new();
    visitors.filter(|v| seen.insert(*v)).collect()
}

/// The visitors, with the `named` ones moved to the front.
pub(super) fn first_of(visitors: Vec<VisitorId>, named: &[VisitorId]) -> Vec<VisitorId> {
    let (mut first, others): (Vec<_>, Vec<_>) = visitors.into_iter().partition(|v| named.contains(v));
    first.extend(others);
    first
}

/// Reduces snapshots older than the newest known version to the visitor's own facts, because the other members may have
/// been cut since.
pub(super) fn keep_own(stored: &mut BTreeMap<VisitorId, StoredValue>, newest: &BTreeMap<VisitorId, SnapshotVersion>) {
    for (visitor, newest) in newest {
        if let Some(StoredValue::Snapshot(snapshot)) = stored.get_mut(visitor)
            && snapshot.version < *newest
        {
            snapshot.keep_own();
        }
    }
}

/// Visitors of other members' persons, according to snapshots that did not join, with the newest such snapshot's
/// version.
#[derive(Debug, Default)]
pub(super) struct OtherMembers(BTreeMap<VisitorId, SnapshotVersion>);

impl OtherMembers {
    /// Adds the members that a snapshot is sure of, and the snapshot's own visitor even if unsure: its own snapshot
    /// does not join, so an older snapshot of another visitor must not bring it in either.
    fn learn(&mut self, snapshot: &Snapshot) {
        let Membership { admits, unsure, .. } = &snapshot.membership;
        for visitor in admits.difference(unsure).chain([&snapshot.visitor]) {
            let newest = self.0.entry(*visitor).or_insert(snapshot.version);
            *newest = snapshot.version.max(*newest);
        }
    }

    /// Whether a snapshot newer than `version` assigns the visitor to another member.
    pub(super) fn hold(&self, visitor: VisitorId, version: SnapshotVersion) -> bool {
        self.0.get(&visitor).is_some_and(|newest| *newest > version)
    }

    /// Removes the visitors that were assigned to another member after the snapshot was made.
    pub(super) fn keep_out_of(&self, mut snapshot: Snapshot) -> Snapshot {
        for visitor in self.0.keys().filter(|v| self.hold(**v, snapshot.version)) {
            snapshot.profiles.remove(visitor);
            if snapshot.membership.admits.remove(visitor) {
                snapshot.membership.unsure.remove(visitor);
                snapshot.membership.devices = snapshot.membership.devices.saturating_sub(1);
            }
        }
        snapshot
    }
}

/// Snapshots of the siblings of a request, and the siblings that could not be read.
#[derive(Debug, Default)]
pub(super) struct SiblingReads {
    joined: Vec<(VisitorId, Snapshot)>,
    pub(super) unread: Vec<VisitorId>,
}

impl SiblingReads {
    /// Adds the snapshot of a sibling. If it is older than `newest`, the sibling also counts as unread, because the
    /// snapshot was reduced to the visitor's own facts.
    pub(super) fn add(&mut self, sibling: VisitorId, snapshot: Snapshot, newest: Option<&SnapshotVersion>) {
        if newest.is_some_and(|newest| snapshot.version < *newest) {
            self.unread.push(sibling);
        }
        self.joined.push((sibling, snapshot));
    }

    /// Joins the snapshots into the view of `own`. The view lacks members if an unread sibling counts for `own`.
    pub(super) fn join_into(self, view: &mut JoinedView, own: VisitorId) {
        view.add_siblings(own, self.joined);
        let lacks_sibling = self.unread.iter().any(|sibling| view.memberships().counts(own, *sibling));
        view.note_missing(MissingParts::MEMBERS.when(lacks_sibling));
    }
}

/// The visitors that surely belong to the member that a request proves.
#[derive(Debug, Default)]
pub(super) struct ProvenMembers {
    /// The proven id, under every key; empty without a proof.
    member: Vec<AltHash>,
    sure: BTreeSet<VisitorId>,
    unsure: BTreeSet<VisitorId>,
}

impl ProvenMembers {
    pub(super) fn of(claims: &[IdClaim]) -> Self {
        let member = claims.iter().find(|claim| claim.unique && claim.proven).map(IdClaim::hashes).unwrap_or_default();
        Self { member, ..Self::default() }
    }

    /// Adds the members of a snapshot. A snapshot of another member, or without a unique id, adds nothing.
    pub(super) fn learn(&mut self, snapshot: &Snapshot) {
        if same_id(&self.member, &snapshot.unique) == Some(true) {
            self.sure.extend(snapshot.sure_members());
            self.unsure.extend(&snapshot.membership.unsure);
        }
    }

    /// The visitors that at least one snapshot is sure of and no snapshot is unsure of.
    pub(super) fn into_members(self) -> BTreeSet<VisitorId> {
        self.sure.difference(&self.unsure).copied().collect()
    }
}

/// Whether two unique ids have hashes under no common key, so that they cannot be compared.
pub(super) fn are_of_two_keys(a: &[AltHash], b: &[AltHash]) -> bool {
    !a.is_empty() && !b.is_empty() && same_id(a, b).is_none()
}

/// Whether two unique ids, each hashed under one or more keys, are equal. They are equal if they share a hash, and
/// different if they have different hashes under one key. Without a common key the result is `None`.
pub(super) fn same_id(a: &[AltHash], b: &[AltHash]) -> Option<bool> {
    let key = |hash: &AltHash| hash.0.first().copied();
    if a.iter().any(|hash| b.contains(hash)) {
        return Some(true);
    }
    a.iter().any(|x| b.iter().any(|y| key(x) == key(y))).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;
    /// Hashes of two members under one key.
    const ANN: AltHash = AltHash([1; 16]);
    const BERT: AltHash = AltHash([1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);

    fn visitor(n: u8) -> VisitorId {
        VisitorId::mint(NOW, [n; 10])
    }

    /// A stored snapshot of visitor `of`, with an optional member id and the admitted visitors.
    fn snapshot(of: u8, version: u64, unique: Option<AltHash>, admits: &[u8]) -> StoredValue {
        let admits: BTreeSet<VisitorId> = admits.iter().copied().map(visitor).collect();
        let devices = u32::try_from(admits.len()).unwrap_or(u32::MAX);
        StoredValue::Snapshot(Box::new(Snapshot {
            version: SnapshotVersion { restore: 0, counter: version },
            visitor: visitor(of),
            unique: unique.into_iter().collect(),
            membership: Membership { devices, admits, ..Membership::default() },
            profiles: BTreeMap::new(),
            best: None,
        }))
    }

    fn joining(of: &[(u8, StoredValue)], siblings: &[u8]) -> Vec<VisitorId> {
        let stored = of.iter().map(|(n, stored)| (visitor(*n), stored.clone())).collect();
        let siblings: Vec<VisitorId> = siblings.iter().copied().map(visitor).collect();
        may_join(&[ANN], &siblings, &stored).0.into_iter().collect()
    }

    #[test]
    fn a_snapshot_of_the_visitor_before_a_switch_names_siblings_of_the_other_member() {
        // Visitor 2 was of no member and became Bert's. Visitor 3 is Bert's, and this browser was switched away from
        // it.
        let [old, newer] = [4, 6].map(|version| (3, snapshot(3, version, Some(BERT), &[2, 3])));
        let sibling = (2, snapshot(2, 5, None, &[1, 2]));
        assert_eq!(joining(&[sibling.clone(), newer], &[2]), [], "the newer word stands");
        assert_eq!(joining(&[sibling.clone(), old], &[2]), [visitor(2)], "an older snapshot removes no visitor");
        let anns = (3, snapshot(3, 6, Some(ANN), &[2, 3]));
        assert_eq!(joining(&[sibling.clone(), anns], &[2]), [visitor(2)], "nor does one of our own member");
        assert_eq!(joining(&[sibling], &[2]), [visitor(2)]);
    }

    #[test]
    fn an_older_snapshot_does_not_bring_a_sibling_that_an_unproven_id_tied_to_another_member_since() {
        let StoredValue::Snapshot(own) = snapshot(1, 5, Some(ANN), &[1, 2]) else { unreachable!() };
        let StoredValue::Snapshot(mut berts) = snapshot(2, 6, Some(BERT), &[2, 3]) else { unreachable!() };
        berts.membership.unsure.insert(visitor(2));
        let stored = [(visitor(2), StoredValue::Snapshot(berts))].into();
        let (joining, others) = may_join(&[ANN], &[visitor(2)], &stored);
        assert!(joining.is_empty());
        assert_eq!(others.keep_out_of(*own).membership.admits, [visitor(1)].into());
    }

    #[test]
    fn a_sibling_of_another_member_does_not_join_and_says_who_is_with_it() {
        let [sibling, berts] = [(2, snapshot(2, 5, None, &[1, 2])), (3, snapshot(3, 6, Some(BERT), &[2, 3]))];
        assert_eq!(joining(&[sibling, berts], &[2, 3]), []);
    }
}
