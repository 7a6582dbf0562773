//! What a reader at the edge knows of one visitor: the sub-profiles it met, and what happened beyond them.

use std::collections::BTreeSet;

use litemap::LiteMap;

use super::{SubProfile, Totals};
use crate::actions::{Action, Actions, PackedActions};
use crate::attributes::PackedAttributes;
use crate::experiment::Exposures;
use crate::ids::{Millis, SessionId};
use crate::order;
use crate::segments::PackedSegments;
use crate::units::Units;

/// A page view that a reader knows of itself, beyond what a sub-profile holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Beyond {
    /// When the edge received it.
    pub received: Millis,
    /// The FactId's first eight bytes.
    pub short: u64,
    /// Its session.
    pub session: SessionId,
}

/// What a reader knows of one visitor: the newest sub-profile it met that names its facts, the newest that does not, and
/// pages, impressions, exposures and units of which it cannot be sure that either holds them. Kept side by side, so that
/// the join is a product of joins; what is held already is sorted out when the sums are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    unnamed: Option<SubProfile>,
    named: Option<SubProfile>,
    beyond: LiteMap<(Millis, u64), SessionId>,
    reserved: Actions,
    exposed: Exposures,
    got: Units,
}

impl Known {
    /// From a sub-profile alone.
    #[must_use]
    pub fn from_sub(sub: SubProfile) -> Self {
        if sub.is_named() {
            Self { named: Some(sub), ..Self::default() }
        } else {
            Self { unnamed: Some(sub), ..Self::default() }
        }
    }

    /// From pages alone.
    #[must_use]
    pub fn from_beyond(pages: impl IntoIterator<Item = Beyond>) -> Self {
        let beyond = order::flat(pages.into_iter().map(|p| ((p.received, p.short), p.session)));
        Self { beyond, ..Self::default() }
    }

    /// The same with impressions that are to come, of insertions placed.
    #[must_use]
    pub fn reserving(mut self, impressions: impl IntoIterator<Item = Action>) -> Self {
        impressions.into_iter().for_each(|action| self.reserved.insert(action));
        self
    }

    /// The same with exposures.
    #[must_use]
    pub fn exposing(mut self, exposures: &Exposures) -> Self {
        self.exposed = self.exposed.join(exposures.clone());
        self
    }

    /// The same with units.
    #[must_use]
    pub fn getting(mut self, units: &Units) -> Self {
        self.got = self.got.join(units.clone());
        self
    }

    /// The newest sub-profile met that names its facts.
    #[must_use]
    pub fn named(&self) -> Option<&SubProfile> {
        self.named.as_ref()
    }

    /// The actions of the newest sub-profile met.
    #[must_use]
    pub fn actions(&self) -> Option<PackedActions<'_>> {
        self.newest().and_then(SubProfile::actions)
    }

    /// Impressions that are to come, without those that the newest sub-profile met holds already.
    #[must_use]
    pub fn reserved(&self) -> Actions {
        let mut reserved = self.reserved.clone();
        if let Some(held) = self.actions() {
            reserved.leave_out(&held);
        }
        reserved
    }

    /// When the first and the last facts of the newest sub-profile met happened.
    #[must_use]
    pub fn seen(&self) -> Option<(Millis, Millis)> {
        self.newest().and_then(SubProfile::seen)
    }

    /// The segments of the newest sub-profile met.
    #[must_use]
    pub fn segments(&self) -> Option<PackedSegments<'_>> {
        self.newest().and_then(SubProfile::segments)
    }

    /// The attributes of the newest sub-profile met.
    #[must_use]
    pub fn attributes(&self) -> Option<PackedAttributes<'_>> {
        self.newest().and_then(SubProfile::attributes)
    }

    /// The exposures of the newest sub-profile met, none where they are not of the form, and those beyond it.
    #[must_use]
    pub fn exposures(&self) -> Exposures {
        self.newest().map(SubProfile::exposures).unwrap_or_default().join(self.exposed.clone())
    }

    /// The units of the newest sub-profile met, none where they are not of the form, and those beyond it.
    #[must_use]
    pub fn units(&self) -> Units {
        self.newest().map(SubProfile::units).unwrap_or_default().join(self.got.clone())
    }

    fn newest(&self) -> Option<&SubProfile> {
        self.unnamed.iter().chain(&self.named).max_by_key(|sub| sub.version())
    }

    /// The join: commutative, associative, idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.unnamed = newer(self.unnamed, other.unnamed);
        self.named = newer(self.named, other.named);
        for (fact, session) in other.beyond {
            self.beyond.insert(fact, session);
        }
        self.reserved = self.reserved.join(other.reserved);
        self.exposed = self.exposed.join(other.exposed);
        self.got = self.got.join(other.got);
        self
    }

    /// The sums: those of the newest sub-profile, or of the newest named one with the pages it does not hold,
    /// whichever is more. Both are sums over facts of this visitor, so that neither is ever too much. One of
    /// before a restore says nothing beside one of after it.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let restore = |sub: &SubProfile| sub.version().restore;
        let latest = self.unnamed.as_ref().map(restore).max(self.named().map(restore));
        let of_latest = |sub: &&SubProfile| Some(restore(sub)) == latest;
        let sums = |sub: Option<&SubProfile>| sub.filter(of_latest).map(SubProfile::totals).unwrap_or_default();
        let (base, unnamed) = (sums(self.named()), sums(self.unnamed.as_ref()));
        if self.beyond.is_empty() {
            return base.most(unnamed);
        }
        let names = self.named().filter(of_latest).and_then(SubProfile::names);
        let unheld = || {
            self.beyond.iter().filter(|((at, short), _)| !names.as_ref().is_some_and(|n| n.newest.holds(*at, *short)))
        };
        let counted = |s: &SessionId| names.as_ref().is_some_and(|n| n.hold_session(*s, base.sessions));
        let sessions: BTreeSet<SessionId> = order::all(unheld().map(|(_, session)| *session).filter(|s| !counted(s)));
        let beyond = Totals { pages: unheld().count() as u64, sessions: sessions.len() as u64, ..Totals::default() };
        base.plus(beyond).most(unnamed)
    }
}

fn newer(a: Option<SubProfile>, b: Option<SubProfile>) -> Option<SubProfile> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.join(b)),
        (a, b) => a.or(b),
    }
}
