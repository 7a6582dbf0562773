//! The ledger: what a visitor's browser remembers of its own newest facts until a snapshot holds them.
//!
//! It lives in the cookie `cw_recent`, written by `decide` alone. An entry goes only when the snapshot holds
//! it *and* it is older than ten minutes, since the next location may still serve the older snapshot.
//!
//! It also holds the insertions that `decide` placed, as reserved: for [`limits::SERVE_WINDOW_MS`] each counts as its
//! impression, so that the next page's caps see this one's ads although the snapshots lag. Afterwards only what a
//! snapshot holds counts.
//!
//! And it holds the exposures to experiments, so that whose shares move while the snapshots lag keeps its arm, and the
//! units of limited offers, so that who has one gets no other.

pub(crate) mod reserved;

use crate::base::ids::{Millis, SessionId, SnapshotVersion, VisitorId};
use crate::base::limits;
use crate::base::planted::{self, PlantedBug};
use crate::facts::exposures::{Exposures, FirstExposure};
use crate::facts::offer_slots::{HeldSlot, HeldSlots};
use crate::profiles::profile::{KnownVisitor, LaterPage, SubProfile};

pub use reserved::PlacedInsertion;

/// The running session of a visitor, from the cookie `cw_session`: calls of events write it, because the ledger is written
/// by `decide` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningSession {
    /// Whose session it is.
    pub visitor: VisitorId,
    /// The session.
    pub session: SessionId,
    /// When it last had a page.
    pub last: Millis,
}

/// The visitor's own newest facts, and the insertions placed in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// Whose facts they are: a ledger beside another visitor's identity is not looked at.
    pub visitor: VisitorId,
    /// The newest snapshot this browser has seen; an older one is not believed about other visitors.
    pub highest: SnapshotVersion,
    /// The running session and when it last had a page.
    pub session: Option<(SessionId, Millis)>,
    /// Pages, oldest first.
    pub pages: Vec<LaterPage>,
    /// Insertions, in the order of their placing.
    pub reserved: Vec<PlacedInsertion>,
    /// Exposures to experiments, at most [`limits::LEDGER_EXPOSURES`].
    pub exposed: Exposures,
    /// Units of limited offers, at most [`limits::LEDGER_UNITS`].
    pub units: HeldSlots,
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub fn new(visitor: VisitorId) -> Self {
        let (highest, exposed, units) = (SnapshotVersion::default(), Exposures::default(), HeldSlots::default());
        Self { visitor, highest, session: None, pages: Vec::new(), reserved: Vec::new(), exposed, units }
    }

    /// The session of a page viewed now: the running one, or a new one of these random bytes after 30 idle
    /// minutes.
    #[must_use]
    pub fn session_at(&self, now: Millis, random: [u8; 4]) -> SessionId {
        self.running(now).unwrap_or_else(|| SessionId::mint(now, random))
    }

    /// The session that a page viewed now belongs to, as far as this browser knows; `None` after 30 idle minutes.
    #[must_use]
    pub fn running(&self, now: Millis) -> Option<SessionId> {
        self.session.filter(|(_, last)| now.saturating_sub(*last) < limits::SESSION_IDLE_MS).map(|(session, _)| session)
    }

    /// Goes on with a session of its visitor that had a page since the ledger was written.
    pub fn resume(&mut self, running: RunningSession) {
        let is_newer = self.session.is_none_or(|(_, last)| last < running.last);
        if is_newer && running.visitor == self.visitor {
            self.session = Some((running.session, running.last));
        }
    }

    /// Remembers a page.
    pub fn remember(&mut self, page: LaterPage) {
        self.session = Some((page.session, page.received));
        self.pages.push(page);
        if self.pages.len() > limits::LEDGER_ENTRIES {
            self.pages.remove(0);
        }
    }

    /// Remembers the insertions of a page, and leaves out the oldest over [`limits::RESERVATION_BYTES`].
    pub fn reserve(&mut self, placed: impl IntoIterator<Item = PlacedInsertion>) {
        if planted::is_active(PlantedBug::LoseTheLedger) {
            return;
        }
        self.reserved.extend(placed);
        let over = self.reserved.len() - reserved::fitting(&self.reserved);
        self.reserved.drain(..over);
    }

    /// Remembers an exposure, and leaves out the experiment of the smallest code over the bound.
    pub fn expose(&mut self, experiment: u32, exposure: FirstExposure) {
        self.exposed.insert(experiment, exposure);
        self.exposed.keep_newest(limits::LEDGER_EXPOSURES);
    }

    /// Remembers a unit, and leaves out the campaign of the smallest code over the bound.
    pub fn keep_unit(&mut self, campaign: u32, unit: HeldSlot) {
        self.units.insert(campaign, unit);
        self.units.keep_newest(limits::LEDGER_UNITS);
    }

    /// Drops what is no longer needed, given the visitor's own sub-profile as just read.
    pub fn settle(&mut self, now: Millis, sub: Option<&SubProfile>) {
        if planted::is_active(PlantedBug::DropALedgerEntryTooEarly) && sub.is_some() {
            self.pages.clear();
            self.reserved.clear();
        }
        let settled = |p: &LaterPage| now.saturating_sub(p.received) > limits::LEDGER_KEEP_MS;
        if let Some(names) = sub.filter(|_| self.pages.iter().any(settled)).and_then(SubProfile::names) {
            self.pages.retain(|p| !(settled(p) && names.newest.holds(p.received, p.short)));
        }
        self.pages.retain(|p| now.saturating_sub(p.received) <= limits::LEDGER_LIFE_MS);
        self.reserved.retain(|r| r.is_live(now));
        // Told and lost on the way, a later one may be held in its stead.
        let keeps = |at: Millis, held: Option<Millis>| {
            let (age, unheld) = (now.saturating_sub(at), held.is_none_or(|held| held > at));
            age <= limits::LEDGER_KEEP_MS || (unheld && age <= limits::LEDGER_LIFE_MS)
        };
        if !self.exposed.is_empty() {
            let held = sub.map(SubProfile::exposures).unwrap_or_default();
            self.exposed.retain(|code, exposure| keeps(exposure.at, held.get(code).map(|held| held.at)));
        }
        if !self.units.is_empty() {
            let held = sub.map(SubProfile::units).unwrap_or_default();
            self.units.retain(|code, unit| keeps(unit.at, held.get(code).map(|held| held.at)));
        }
    }

    /// What it says of its visitor.
    #[must_use]
    pub fn known(&self) -> KnownVisitor {
        let reserved = self.reserved.iter().map(PlacedInsertion::impression);
        KnownVisitor::from_beyond(self.pages.iter().copied())
            .reserving(reserved)
            .exposing(&self.exposed)
            .getting(&self.units)
    }
}
