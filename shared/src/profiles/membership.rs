//! Memberships: the visitors that a person admits, and its recent cuts.
//!
//! A join cannot retract a visitor, so epochs decide. Every decision about a person's visitors has an epoch from one
//! counter of the origin, and the highest epoch that names a visitor wins.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{Epoch, Millis, VisitorId};
use crate::base::planted::{self, PlantedBug};

/// One decision about the visitors of a person.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// The epoch, which orders all decisions.
    pub epoch: Epoch,
    /// Number of visitors of the person. A truncated snapshot has more devices than visitors in `admits`.
    pub devices: u32,
    /// Visitors that belong to the person.
    pub admits: BTreeSet<VisitorId>,
    /// Visitors of `admits` that belong to the person less surely than by a login, such as by an id that a page named
    /// without a proof. Decisions count them, but their data is never shown to another visitor.
    pub unsure: BTreeSet<VisitorId>,
    /// Visitors that were cut recently.
    pub cuts: BTreeMap<VisitorId, VisitorCut>,
}

/// The cut of one visitor from a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VisitorCut {
    /// Time of the decision.
    pub at: Millis,
    /// Whether the visitor withdrew or was erased, so that it counts for no other visitor. Otherwise it only stops
    /// belonging to the visitors that the same decision admits.
    pub gone: bool,
}

impl Membership {
    fn admits(&self, visitor: VisitorId) -> bool {
        self.admits.contains(&visitor)
    }

    /// Whether this decision counts two visitors as one person; `None` unless it admits one and names the other.
    fn pairs(&self, own: VisitorId, other: VisitorId) -> Option<bool> {
        match (self.admits(own), self.admits(other)) {
            (true, true) => Some(true),
            (true, false) => self.cuts.get(&other).map(|_| false),
            (false, true) => self.cuts.get(&own).map(|_| false),
            (false, false) => None,
        }
    }

    /// Whether this decision admits a visitor; `None` if it does not name it.
    fn says(&self, visitor: VisitorId) -> Option<bool> {
        if self.admits(visitor) { Some(true) } else { self.cuts.get(&visitor).map(|_| false) }
    }
}

/// All decisions that a reader has read, by epoch. The join is the union. Two parts of one decision count as one: the
/// snapshots of a large person name different visitors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memberships(BTreeMap<Epoch, Membership>);

impl Memberships {
    /// Adds a decision.
    pub fn add(&mut self, membership: Membership) {
        let Some(known) = self.0.get_mut(&membership.epoch) else {
            self.0.insert(membership.epoch, membership);
            return;
        };
        known.devices = known.devices.max(membership.devices);
        known.admits.extend(membership.admits);
        known.unsure.extend(membership.unsure);
        for (visitor, cut) in membership.cuts {
            let there = known.cuts.get(&visitor).copied();
            known.cuts.insert(visitor, there.map_or(cut, |there| cut.max(there)));
        }
    }

    /// Whether `other` counts in the view of `own`.
    ///
    /// 1. `own` itself always counts, and another visitor that withdrew or was erased never does.
    /// 2. Otherwise the highest epoch that names both visitors decides.
    /// 3. If no decision names both, the highest epoch that names `other` decides.
    /// 4. If no decision names `other`, it counts.
    ///
    /// A cut concerns the visitors that the same decision admits. After a person was split, each half's decision cuts
    /// the other half, and neither removes a visitor from its own half.
    #[must_use]
    pub fn counts(&self, own: VisitorId, other: VisitorId) -> bool {
        // Most people have no cuts; then no lookup in `admits` is needed.
        let cut = |visitor| self.0.values().any(|m| m.cuts.contains_key(&visitor));
        if own == other || !(cut(other) || cut(own)) {
            return true;
        }
        let newest_first = || self.0.values().rev();
        let gone = || newest_first().any(|m| m.cuts.get(&other).is_some_and(|cut| cut.gone));
        let pair = || newest_first().find_map(|m| m.pairs(own, other));
        let alone = || newest_first().find_map(|m| m.says(other));
        planted::is_active(PlantedBug::JoinWithoutTheCuts) || (!gone() && pair().or_else(alone).unwrap_or(true))
    }

    /// Visitors that any decision cut.
    pub fn cuts(&self) -> impl Iterator<Item = VisitorId> + '_ {
        self.0.values().flat_map(|membership| membership.cuts.keys().copied())
    }

    /// Whether any decision names a visitor.
    #[must_use]
    pub fn names(&self, visitor: VisitorId) -> bool {
        self.0.values().any(|m| m.says(visitor).is_some())
    }

    /// Whether no decision names any visitor.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.0.values().all(|m| m.admits.is_empty() && m.cuts.is_empty())
    }

    /// The highest epoch of a decision that names a visitor; 0 if there is none.
    #[must_use]
    pub fn epoch_of(&self, visitor: VisitorId) -> Epoch {
        let naming = self.0.values().rev().find(|m| m.says(visitor).is_some());
        naming.map(|m| m.epoch).unwrap_or_default()
    }

    /// Number of devices of a person, at least the number of `members`. It is taken from the newest decision that
    /// admits `own`. Without one, it is one more than in the newest decision that admits another member.
    #[must_use]
    pub fn devices(&self, own: VisitorId, members: &[VisitorId]) -> u32 {
        let newest = |visitor| self.0.values().rev().find(|m| m.admits(visitor)).map(|m| m.devices);
        if let Some(devices) = newest(own).filter(|_| self.0.len() == 1) {
            return devices;
        }
        let others = || members.iter().filter_map(|v| newest(*v)).max().map(|n| n.saturating_add(1));
        let counted = u32::try_from(members.len()).unwrap_or(u32::MAX);
        newest(own).or_else(others).unwrap_or(1).max(counted)
    }
}
