//! Strict caps: the state of one visitor's object, which exists exactly once in the world, and the calls that it takes.
//!
//! One object decides about the strict campaigns of a person: that of the smallest visitor that the person's other
//! objects know of. Every other object forwards to it, together with its own earlier decisions. A count is the union,
//! by insertion, of placements that this object granted or received and of impressions in the calling edge's snapshot.
//! A placement is reserved for [`limits::SERVE_WINDOW_MS`]. Within that time its impression may be confirmed once, and
//! only a confirmed impression is ever counted. Therefore grants never lead to more impressions than a cap allows,
//! whatever a snapshot misses.
//!
//! The time is the object's own and never goes back. Nothing here waits or stores.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{Epoch, VisitorId};
use crate::base::limits;
use crate::base::time::Minute;
use crate::facts::actions::{AdEntity, AdLevel, InsertionHash, TimeWindow};

/// One placement that a strict cap counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapEntry {
    /// The ad with its ad group, campaign and advertiser.
    pub entity: AdEntity,
    /// The minute of the placement; after a confirmation, the minute of the confirmation.
    pub minute: Minute,
    /// Whether its impression was confirmed. Until then it is a reservation.
    pub confirmed: bool,
    /// Minutes after its confirmation in which a cap may count it.
    pub keep: u32,
}

/// Placements by insertion.
pub type Entries = BTreeMap<InsertionHash, CapEntry>;

/// The state of one visitor's object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapObject {
    /// The newest minute that the object has seen.
    pub latest: Minute,
    /// The highest epoch that the object has received.
    pub epoch: Epoch,
    /// The visitor whose object decides instead; always a smaller visitor.
    pub forward: Option<VisitorId>,
    /// Whether the object of `forward` has the entries of this one.
    pub has_entries: bool,
    /// Placements, at most [`limits::STRICT_ENTRIES`].
    pub entries: Entries,
    /// Until this minute nothing is granted, because entries that may count until then did not fit.
    pub full_until: Minute,
}

/// The edge's knowledge of the object's own visitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLinks {
    /// The highest known epoch of a decision about it; 0 if there is none, as after a new login.
    pub epoch: Epoch,
    /// The visitors that count for it.
    pub members: Vec<VisitorId>,
}

/// An impression cap of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrictCap {
    /// The level of the catalogue at which it counts.
    pub level: AdLevel,
    /// The most impressions.
    pub limit: u32,
    /// The window in which it counts.
    pub window: TimeWindow,
}

/// An ad that could be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The ad with its ad group, campaign and advertiser.
    pub entity: AdEntity,
    /// All impression caps of the ad and its parents.
    pub caps: Vec<StrictCap>,
}

/// A placement of the calling page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPlacement {
    /// The insertion that a grant will have.
    pub insertion: InsertionHash,
    /// The ads that could be placed, best first, as indexes into [`CapClaim::candidates`].
    pub choices: Vec<usize>,
}

/// An impression in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenImpression {
    /// The insertion.
    pub insertion: InsertionHash,
    /// The ad with its ad group, campaign and advertiser.
    pub entity: AdEntity,
    /// The minute of the impression.
    pub minute: Minute,
}

/// The placements that one call asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapClaim {
    /// All ads that the placements name.
    pub candidates: Vec<Candidate>,
    /// Its placements.
    pub wanted: Vec<WantedPlacement>,
    /// The snapshot's impressions of the candidates: the newest [`limits::STRICT_SEEN`].
    pub seen: Vec<SeenImpression>,
}

/// The request of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapRequest {
    /// Asks for placements.
    Claim(CapClaim),
    /// Asks whether this insertion's impression counts.
    Confirm(InsertionHash),
}

/// A call of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapCall {
    /// The visitor whose object is called.
    pub to: VisitorId,
    /// The edge's knowledge of that visitor; `None` if another object forwards.
    pub links: Option<KnownLinks>,
    /// Entries of the objects on the way that this one may lack.
    pub entries: Entries,
    /// The request.
    pub ask: CapRequest,
}

/// The answer of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The granted placements, or the confirmed impression. Anything else is refused.
    pub granted: Entries,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapStep {
    /// The final answer.
    Answer(Answer),
    /// Another object decides. The caller must call it and pass its answer to [`CapObject::passed`].
    Forward(CapCall),
}

impl CapObject {
    /// Takes a call at the object's own time.
    pub fn call(&mut self, call: CapCall, now: Minute) -> CapStep {
        let CapCall { to: own, links, mut entries, ask } = call;
        self.release(now);
        if let Some(links) = links {
            self.learn(own, &links);
            // An outdated list names a smaller visitor whose object is unknown here: a link newer than the decision, or
            // one that was cut. Until the edge knows which, nothing is granted.
            if links.members.iter().any(|member| *member < self.forward.unwrap_or(own))
                && matches!(ask, CapRequest::Claim(_))
            {
                return CapStep::Answer(Answer { granted: Entries::new() });
            }
        }
        if let Some(to) = self.forward {
            if !self.has_entries {
                join(&mut entries, &self.entries);
            }
            return CapStep::Forward(CapCall { to, links: None, entries, ask });
        }
        self.absorb(&entries);
        let granted = match ask {
            CapRequest::Claim(claim) => self.claim(&claim),
            CapRequest::Confirm(insertion) => self.confirm(insertion),
        };
        CapStep::Answer(Answer { granted })
    }

    /// Takes the answer of the object that a call was forwarded to. This object stores the grants too, in case its
    /// visitor is cut from the other one later.
    pub fn passed(&mut self, forwarded: &CapCall, answer: &Answer, now: Minute) {
        self.release(now);
        // Calls keep going through that object rather than directly to the deciding one. If the deciding visitor is cut
        // from the person, the object in between learns of it first.
        self.has_entries |= self.forward == Some(forwarded.to);
        // No later call reports these entries again.
        self.absorb(&forwarded.entries);
        self.absorb(&answer.granted);
    }

    /// Drops entries that no longer count: reservations not seen in time, and impressions older than every window.
    fn release(&mut self, now: Minute) {
        self.latest = self.latest.max(now);
        let latest = self.latest;
        self.entries.retain(|_, entry| latest <= entry.last());
    }

    /// Learns which object decides: that of the smallest visitor in the newest decision. Lists of the same epoch add
    /// visitors. Lists of older epochs are ignored, because they may name visitors that were cut since.
    fn learn(&mut self, own: VisitorId, KnownLinks { epoch, members }: &KnownLinks) {
        let smallest = members.iter().copied().filter(|member| *member < own).min();
        let forward = match epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Less => self.forward,
            std::cmp::Ordering::Equal => self.forward.into_iter().chain(smallest).min(),
            std::cmp::Ordering::Greater => smallest,
        };
        self.epoch = self.epoch.max(*epoch);
        if forward != self.forward {
            (self.forward, self.has_entries) = (forward, false);
        }
    }

    /// Adds the entries of another object. If entries do not fit, the time until which they may count is stored.
    fn absorb(&mut self, entries: &Entries) {
        join(&mut self.entries, entries);
        self.release(self.latest);
        while self.entries.len() > limits::STRICT_ENTRIES
            && let Some((_, entry)) = self.entries.pop_first()
        {
            // A reservation may still be confirmed in its last minute, and counts from then on.
            let later = if entry.confirmed { 0 } else { entry.keep };
            self.full_until = self.full_until.max(Minute(entry.last().0.saturating_add(later)));
        }
    }

    fn claim(&mut self, claim: &CapClaim) -> Entries {
        let mut granted = Entries::new();
        for WantedPlacement { insertion, choices } in &claim.wanted {
            let choices = choices.iter().filter_map(|index| claim.candidates.get(*index));
            let fits = |candidate: &&Candidate| {
                granted.values().all(|entry: &CapEntry| entry.entity != candidate.entity)
                    && self.admits(candidate, &claim.seen)
            };
            let Some(candidate) = { choices }.find(fits) else { continue };
            let keep = candidate.caps.iter().map(|cap| cap.window.minutes()).max().unwrap_or_default();
            let entry = CapEntry { entity: candidate.entity, minute: self.latest, confirmed: false, keep };
            granted.insert(*insertion, entry);
            self.entries.insert(*insertion, entry);
        }
        granted
    }

    fn admits(&self, candidate: &Candidate, seen: &[SeenImpression]) -> bool {
        let room =
            self.entries.len() < limits::STRICT_ENTRIES && (self.full_until.0 == 0 || self.full_until < self.latest);
        room && candidate.caps.iter().all(|cap| self.count(candidate.entity, cap, seen) < cap.limit)
    }

    /// The count for a cap. A reservation counts in every window, because its impression is yet to come.
    fn count(&self, entity: AdEntity, StrictCap { level, window, .. }: &StrictCap, seen: &[SeenImpression]) -> u32 {
        let (from, _) = window.range(self.latest);
        let same = |other: AdEntity| other.at(*level) == entity.at(*level);
        let counts = |entry: &&CapEntry| same(entry.entity) && (!entry.confirmed || entry.minute >= from);
        let here = self.entries.values().filter(counts).count();
        let beyond = seen.iter().filter(|s| same(s.entity) && s.minute >= from);
        // A snapshot may name an insertion twice: on two days or under two visitors. An impression confirmed here
        // before the window, but seen in the window according to the snapshot, counts.
        let unknown = |insertion: &InsertionHash| self.entries.get(insertion).filter(counts).is_none();
        let beyond: BTreeSet<InsertionHash> = beyond.map(|s| s.insertion).filter(unknown).collect();
        u32::try_from(here + beyond.len()).unwrap_or(u32::MAX)
    }

    /// Confirms an impression once, while it is reserved. A second confirmation might count on another day.
    fn confirm(&mut self, insertion: InsertionHash) -> Entries {
        let latest = self.latest;
        let Some(entry) = self.entries.get_mut(&insertion).filter(|entry| !entry.confirmed) else {
            return Entries::new();
        };
        (entry.confirmed, entry.minute) = (true, latest);
        Entries::from([(insertion, *entry)])
    }
}

impl CapEntry {
    /// The last minute in which it may count.
    fn last(&self) -> Minute {
        let window = u32::try_from(limits::SERVE_WINDOW_MS / 60_000).unwrap_or(u32::MAX);
        Minute(self.minute.0.saturating_add(if self.confirmed { self.keep } else { window }))
    }
}

/// The union by insertion. Of two entries of one insertion the confirmed one stays, then the earlier one, then the one
/// with the longer `keep`.
fn join(to: &mut Entries, from: &Entries) {
    let order = |entry: &CapEntry| (!entry.confirmed, entry.minute, std::cmp::Reverse(entry.keep), entry.entity);
    for (insertion, entry) in from {
        let there = to.entry(*insertion).or_insert(*entry);
        if order(entry) < order(there) {
            *there = *entry;
        }
    }
}
