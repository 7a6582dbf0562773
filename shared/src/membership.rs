//! Memberships: which visitors a person admits, and which were lately cut from it.
//!
//! A join cannot retract, so what was taken away is governed by epochs: every decision about a person's
//! visitors has one, from a single counter at the origin, and the highest epoch that names a visitor wins.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{Epoch, Millis, VisitorId};

/// One decision about who belongs to a person.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Its place in the order of all such decisions.
    pub epoch: Epoch,
    /// How many visitors the person has; more than `admits` names when a snapshot is truncated.
    pub devices: u32,
    /// Visitors that belong to the person.
    pub admits: BTreeSet<VisitorId>,
    /// Visitors lately unlinked, withdrawn or erased, and when.
    pub cuts: BTreeMap<VisitorId, Millis>,
}

impl Membership {
    /// What this decision says of a visitor: `None` when it does not name it.
    fn says(&self, visitor: VisitorId) -> Option<Verdict> {
        if self.cuts.contains_key(&visitor) {
            Some(Verdict::Cut)
        } else {
            self.admits.contains(&visitor).then_some(Verdict::Admitted)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Admitted,
    Cut,
}

/// All decisions a reader met, by epoch. The union is the join; two parts of one decision (the snapshots of
/// a large person name different visitors) are one decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memberships(BTreeMap<Epoch, Membership>);

impl Memberships {
    /// Adds a decision.
    pub fn add(&mut self, membership: Membership) {
        match self.0.entry(membership.epoch) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(membership);
            }
            std::collections::btree_map::Entry::Occupied(mut there) => {
                let known = there.get_mut();
                known.devices = known.devices.max(membership.devices);
                known.admits.extend(membership.admits);
                for (visitor, at) in membership.cuts {
                    let cut = known.cuts.entry(visitor).or_insert(at);
                    *cut = at.max(*cut);
                }
            }
        }
    }

    /// The join with what another reader met.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        other.0.into_values().for_each(|m| self.add(m));
        self
    }

    /// Whether `other` counts in the view of `own`: unless the highest epoch that names it has cut it, or
    /// the highest epoch that names both has set them apart. A visitor that no epoch names counts.
    #[must_use]
    pub fn counts(&self, own: VisitorId, other: VisitorId) -> bool {
        if own == other {
            return true;
        }
        let newest_first = || self.0.values().rev();
        if newest_first().find_map(|m| m.says(other)) == Some(Verdict::Cut) {
            return false;
        }
        let together = newest_first().find_map(|m| match (m.says(own)?, m.says(other)?) {
            (Verdict::Cut, Verdict::Cut) => None,
            (a, b) => Some(a == b),
        });
        together != Some(false)
    }

    /// Devices of the person that these visitors make: as many as the largest decision about one of them
    /// says, one more where it does not yet know `own`.
    #[must_use]
    pub fn devices(&self, own: VisitorId, members: &BTreeSet<VisitorId>) -> u32 {
        let counted = u32::try_from(members.len()).unwrap_or(u32::MAX);
        self.0
            .values()
            .filter(|m| m.says(own) != Some(Verdict::Cut) && m.admits.iter().any(|v| members.contains(v)))
            .map(|m| m.devices.saturating_add(u32::from(!m.admits.contains(&own))))
            .fold(counted, u32::max)
    }
}
