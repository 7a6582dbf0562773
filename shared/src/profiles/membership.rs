//! Memberships: which visitors a person admits, and which were lately cut from it.
//!
//! A join cannot retract, so what was taken away is governed by epochs: every decision about a person's
//! visitors has one, from a single counter at the origin, and the highest epoch that names a visitor wins.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{Epoch, Millis, VisitorId};
use crate::base::planted::{self, PlantedBug};

/// One decision about who belongs to a person.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Its place in the order of all such decisions.
    pub epoch: Epoch,
    /// How many visitors the person has; more than `admits` names when a snapshot is truncated.
    pub devices: u32,
    /// Visitors that belong to the person.
    pub admits: BTreeSet<VisitorId>,
    /// Visitors of `admits` that belong to the person less surely than by a login, such as by an id that a page named without
    /// a proof: decisions count them, and nobody is shown their data.
    pub unsure: BTreeSet<VisitorId>,
    /// Visitors lately cut.
    pub cuts: BTreeMap<VisitorId, VisitorCut>,
}

/// One visitor's cut from a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VisitorCut {
    /// When it was decided.
    pub at: Millis,
    /// Whether the visitor withdrew or was erased: it counts for nobody any more. Else it only does not belong
    /// with the visitors that the same decision admits.
    pub gone: bool,
}

impl Membership {
    fn admits(&self, visitor: VisitorId) -> bool {
        self.admits.contains(&visitor)
    }

    /// What this decision says of the two together; `None` when it does not admit one and name the other.
    fn pairs(&self, own: VisitorId, other: VisitorId) -> Option<bool> {
        match (self.admits(own), self.admits(other)) {
            (true, true) => Some(true),
            (true, false) => self.cuts.get(&other).map(|_| false),
            (false, true) => self.cuts.get(&own).map(|_| false),
            (false, false) => None,
        }
    }

    /// What this decision says of one visitor alone.
    fn says(&self, visitor: VisitorId) -> Option<bool> {
        if self.admits(visitor) { Some(true) } else { self.cuts.get(&visitor).map(|_| false) }
    }
}

/// All decisions a reader met, by epoch. The union is the join; two parts of one decision (the snapshots of
/// a large person name different visitors) are one decision.
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

    /// Whether `other` counts in the view of `own`. Never once it is gone; else as the highest epoch says that
    /// names both; else, for an `own` that no decision puts beside it, as the highest epoch says that names it
    /// at all; and yes when none does. A cut is about those that the same decision admits: of two halves of a
    /// split person each decision cuts the other half, and neither takes anybody from their own.
    #[must_use]
    pub fn counts(&self, own: VisitorId, other: VisitorId) -> bool {
        // Most people were never cut: then nobody is looked up among those admitted.
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

    /// Whom any decision cut.
    pub fn cuts(&self) -> impl Iterator<Item = VisitorId> + '_ {
        self.0.values().flat_map(|membership| membership.cuts.keys().copied())
    }

    /// Whether any decision names a visitor.
    #[must_use]
    pub fn names(&self, visitor: VisitorId) -> bool {
        self.0.values().any(|m| m.says(visitor).is_some())
    }

    /// Whether no decision names anybody.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.0.values().all(|m| m.admits.is_empty() && m.cuts.is_empty())
    }

    /// The highest epoch met of a decision that names a visitor; 0 for none.
    #[must_use]
    pub fn epoch_of(&self, visitor: VisitorId) -> Epoch {
        let naming = self.0.values().rev().find(|m| m.says(visitor).is_some());
        naming.map(|m| m.epoch).unwrap_or_default()
    }

    /// Devices of a person: as many as the newest decision says that admits `own`; before any does, one more than
    /// the newest says that admits another of its members.
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
