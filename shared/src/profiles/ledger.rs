//! The ledger: a browser's record of its visitor's newest facts, until a snapshot contains them.
//!
//! The ledger is the cookie `cw_recent`; only `decide` writes it. A page is removed when the snapshot contains it *and*
//! it is older than ten minutes, because another KV location may still serve an older snapshot.
//!
//! Insertions that `decide` placed are stored as reserved. For [`limits::SERVE_WINDOW_MS`] each counts as its
//! impression, so that the caps of the next page include this page's ads although snapshots lag. After that, only a
//! snapshot's impressions count.
//!
//! Exposures to experiments are stored so that a visitor stays in its arm when the shares change before a snapshot has
//! the exposure. Offer codes are stored so that a visitor gets no second code of one offer.

pub(crate) mod reserved;

use crate::base::ids::{Millis, SessionId, SnapshotVersion, VisitorId};
use crate::base::limits;
use crate::base::planted::{self, PlantedBug};
use crate::facts::exposures::{Exposures, FirstExposure};
use crate::facts::offer_codes::{HeldOfferCode, HeldOfferCodes};
use crate::profiles::profile::{KnownVisitor, LaterPage, SubProfile};

pub use reserved::PlacedInsertion;

/// The running session of a visitor, from the cookie `cw_session`. Event calls write that cookie, because only `decide`
/// writes the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningSession {
    /// The visitor of the session.
    pub visitor: VisitorId,
    /// The session.
    pub session: SessionId,
    /// Time of the session's last page.
    pub last: Millis,
}

/// The visitor's own newest facts, and the insertions placed in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// The visitor of the facts. A ledger that arrives with another visitor's identity is ignored.
    pub visitor: VisitorId,
    /// The newest snapshot version that this browser has seen. An older snapshot is not used for other visitors.
    pub highest: SnapshotVersion,
    /// The running session, and the time of its last page.
    pub session: Option<(SessionId, Millis)>,
    /// Pages, oldest first.
    pub pages: Vec<LaterPage>,
    /// Insertions, in the order of their placement.
    pub reserved: Vec<PlacedInsertion>,
    /// Exposures to experiments, at most [`limits::LEDGER_EXPOSURES`].
    pub exposed: Exposures,
    /// Offer codes, at most [`limits::LEDGER_OFFER_CODES`].
    pub offer_codes: HeldOfferCodes,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(visitor: VisitorId) -> Self {
        let (highest, exposed, offer_codes) =
            (SnapshotVersion::default(), Exposures::default(), HeldOfferCodes::default());
        Self { visitor, highest, session: None, pages: Vec::new(), reserved: Vec::new(), exposed, offer_codes }
    }

    /// The session of a page viewed now: the running session, or after 30 idle minutes a new one from the random bytes.
    #[must_use]
    pub fn session_at(&self, now: Millis, random: [u8; 4]) -> SessionId {
        self.running(now).unwrap_or_else(|| SessionId::mint(now, random))
    }

    /// The running session, as far as this browser knows; `None` after 30 idle minutes.
    #[must_use]
    pub fn running(&self, now: Millis) -> Option<SessionId> {
        self.session.filter(|(_, last)| now.saturating_sub(*last) < limits::SESSION_IDLE_MS).map(|(session, _)| session)
    }

    /// Takes over a session of the same visitor that had a page after the ledger was written.
    pub fn resume(&mut self, running: RunningSession) {
        let is_newer = self.session.is_none_or(|(_, last)| last < running.last);
        if is_newer && running.visitor == self.visitor {
            self.session = Some((running.session, running.last));
        }
    }

    /// Adds a page. Over the bound, the oldest is dropped.
    pub fn remember(&mut self, page: LaterPage) {
        self.session = Some((page.session, page.received));
        self.pages.push(page);
        if self.pages.len() > limits::LEDGER_ENTRIES {
            self.pages.remove(0);
        }
    }

    /// Adds the insertions of a page. Over [`limits::RESERVATION_BYTES`], the oldest are dropped.
    pub fn reserve(&mut self, placed: impl IntoIterator<Item = PlacedInsertion>) {
        if planted::is_active(PlantedBug::LoseTheLedger) {
            return;
        }
        self.reserved.extend(placed);
        let over = self.reserved.len() - reserved::fitting(&self.reserved);
        self.reserved.drain(..over);
    }

    /// Adds an exposure. Over the bound, the experiment with the smallest code is dropped.
    pub fn expose(&mut self, experiment: u32, exposure: FirstExposure) {
        self.exposed.insert(experiment, exposure);
        self.exposed.keep_newest(limits::LEDGER_EXPOSURES);
    }

    /// Adds an offer code. Over the bound, the campaign with the smallest code is dropped.
    pub fn keep_offer_code(&mut self, campaign: u32, offer_code: HeldOfferCode) {
        self.offer_codes.insert(campaign, offer_code);
        self.offer_codes.keep_newest(limits::LEDGER_OFFER_CODES);
    }

    /// Drops entries that are no longer needed. `sub`: the visitor's own sub-profile, as just read.
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
        // If the fact was lost on its way, the snapshot may hold a later one instead; the entry then stays for a day.
        let keeps = |at: Millis, held: Option<Millis>| {
            let (age, unheld) = (now.saturating_sub(at), held.is_none_or(|held| held > at));
            age <= limits::LEDGER_KEEP_MS || (unheld && age <= limits::LEDGER_LIFE_MS)
        };
        if !self.exposed.is_empty() {
            let held = sub.map(SubProfile::exposures).unwrap_or_default();
            self.exposed.retain(|code, exposure| keeps(exposure.at, held.get(code).map(|held| held.at)));
        }
        if !self.offer_codes.is_empty() {
            let held = sub.map(SubProfile::offer_codes).unwrap_or_default();
            self.offer_codes.retain(|code, offer_code| keeps(offer_code.at, held.get(code).map(|held| held.at)));
        }
    }

    /// The facts of its visitor, as an addition to a profile.
    #[must_use]
    pub fn known(&self) -> KnownVisitor {
        let reserved = self.reserved.iter().map(PlacedInsertion::impression);
        KnownVisitor::from_beyond(self.pages.iter().copied())
            .reserving(reserved)
            .exposing(&self.exposed)
            .getting(&self.offer_codes)
    }
}
