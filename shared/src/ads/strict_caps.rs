//! Strict caps: the state of one visitor's object, of which there is exactly one in the world, and what may be asked of it.
//!
//! A person's decisions about strict campaigns are made by one object: that of the smallest visitor its own knows. Every
//! other object forwards to it, with what it decided before it knew. What is counted is the union, by insertion, of the
//! placings this object granted or was told of and of the impressions that the asking edge's snapshot names. A placing is
//! reserved for [`limits::SERVE_WINDOW_MS`]; within them its impression may be confirmed, once, and only a confirmed one
//! is ever counted. So what is granted never leads to more impressions than a cap allows, whatever a snapshot misses.
//!
//! Time is the object's own, and never goes back in it. Nothing here waits or stores.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{Epoch, VisitorId};
use crate::base::limits;
use crate::base::time::Minute;
use crate::facts::actions::{AdEntity, AdLevel, InsertionHash, TimeWindow};

/// One placing that a strict cap counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The ad, and what it belongs to.
    pub entity: AdEntity,
    /// When it was placed; once confirmed, when that was.
    pub minute: Minute,
    /// Whether its impression was confirmed. Before that it is a reservation.
    pub confirmed: bool,
    /// How many minutes after its confirmation a cap may still count it.
    pub keep: u32,
}

/// Placings by insertion.
pub type Entries = BTreeMap<InsertionHash, Entry>;

/// What one visitor's object holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object {
    /// The newest minute it has seen.
    pub latest: Minute,
    /// The highest epoch it was told of.
    pub epoch: Epoch,
    /// Which object decides in its place: that of a smaller visitor, always.
    pub forward: Option<VisitorId>,
    /// Whether that one knows of the entries here.
    pub told: bool,
    /// At most [`limits::STRICT_ENTRIES`].
    pub entries: Entries,
    /// Until this minute nothing is granted: entries that may count until then did not fit.
    pub full_until: Minute,
}

/// What an edge knows of the object's own visitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    /// The highest epoch of a decision about it that was met; 0 for none: a login just made is in no decision yet.
    pub epoch: Epoch,
    /// The visitors that count for it.
    pub members: Vec<VisitorId>,
}

/// A cap of a candidate, on impressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrictCap {
    /// Of what.
    pub level: AdLevel,
    /// How many there may be.
    pub limit: u32,
    /// Over which time.
    pub window: TimeWindow,
}

/// An ad that could be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The ad, and what it belongs to.
    pub entity: AdEntity,
    /// All its caps on impressions.
    pub caps: Vec<StrictCap>,
}

/// A placement that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What the placing will be called.
    pub insertion: InsertionHash,
    /// The ads that could be placed, the first choice first, as places in [`Claim::candidates`].
    pub choices: Vec<usize>,
}

/// An impression that a snapshot names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The placing.
    pub insertion: InsertionHash,
    /// The ad, and what it belongs to.
    pub entity: AdEntity,
    /// When it was seen.
    pub minute: Minute,
}

/// The placings that one call asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    /// All ads it names.
    pub candidates: Vec<Candidate>,
    /// Its placements.
    pub wanted: Vec<Wanted>,
    /// What the snapshot names of the candidates' impressions, the newest [`limits::STRICT_SEEN`].
    pub seen: Vec<Seen>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// May these be placed?
    Claim(Claim),
    /// Does this placing's impression count?
    Confirm(InsertionHash),
}

/// A call of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Whose object is called.
    pub to: VisitorId,
    /// What the edge knows of that visitor; `None` where another object forwards.
    pub links: Option<Links>,
    /// What the objects on the way hold that this one may not know.
    pub entries: Entries,
    /// What is asked.
    pub ask: Ask,
}

/// What an object answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// To a claim what was granted, to a confirmation the impression that counts; nothing else is.
    pub granted: Entries,
}

/// What comes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// This is the answer.
    Answer(Answer),
    /// Another object decides: it is to be called, and its answer to be given to [`Object::passed`].
    Forward(Call),
}

impl Object {
    /// Takes a call at the object's own time.
    pub fn call(&mut self, call: Call, now: Minute) -> Step {
        let Call { to: own, links, mut entries, ask } = call;
        self.release(now);
        if let Some(links) = links {
            self.learn(own, &links);
            // Older word than the newest met names somebody smaller, and what that one's object holds is not known: a link
            // that is newer than the decision, or one that was cut. Until the edge knows which, nothing is granted.
            if links.members.iter().any(|member| *member < self.forward.unwrap_or(own)) && matches!(ask, Ask::Claim(_))
            {
                return Step::Answer(Answer { granted: Entries::new() });
            }
        }
        if let Some(to) = self.forward {
            if !self.told {
                join(&mut entries, &self.entries);
            }
            return Step::Forward(Call { to, links: None, entries, ask });
        }
        self.absorb(&entries);
        let granted = match ask {
            Ask::Claim(claim) => self.claim(&claim),
            Ask::Confirm(insertion) => self.confirm(insertion),
        };
        Step::Answer(Answer { granted })
    }

    /// Takes the answer of the object that a call was forwarded to. What it granted stays this visitor's own, should it
    /// be cut from the other one day.
    pub fn passed(&mut self, forwarded: &Call, answer: &Answer, now: Minute) {
        self.release(now);
        // It goes on to that one, and not the shorter way: who decides in the end may be cut from the person, and the one
        // between hears of it first.
        self.told |= self.forward == Some(forwarded.to);
        // Nobody tells it of those again.
        self.absorb(&forwarded.entries);
        self.absorb(&answer.granted);
    }

    /// Drops what no longer counts: reservations of an ad that was not seen in time, impressions older than every window.
    fn release(&mut self, now: Minute) {
        self.latest = self.latest.max(now);
        let latest = self.latest;
        self.entries.retain(|_, entry| latest <= entry.last());
    }

    /// Who decides: the smallest visitor of the newest decision met. Word as old as that adds to it, older word does not
    /// count: it may name visitors that were cut since.
    fn learn(&mut self, own: VisitorId, Links { epoch, members }: &Links) {
        let smallest = members.iter().copied().filter(|member| *member < own).min();
        let forward = match epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Less => self.forward,
            std::cmp::Ordering::Equal => self.forward.into_iter().chain(smallest).min(),
            std::cmp::Ordering::Greater => smallest,
        };
        self.epoch = self.epoch.max(*epoch);
        if forward != self.forward {
            (self.forward, self.told) = (forward, false);
        }
    }

    /// The union with what another object holds. Of what does not fit it is remembered for how long it may count.
    fn absorb(&mut self, entries: &Entries) {
        join(&mut self.entries, entries);
        self.release(self.latest);
        while self.entries.len() > limits::STRICT_ENTRIES
            && let Some((_, entry)) = self.entries.pop_first()
        {
            // A reservation may still be seen in its last minute, and counts from then on.
            let later = if entry.confirmed { 0 } else { entry.keep };
            self.full_until = self.full_until.max(Minute(entry.last().0.saturating_add(later)));
        }
    }

    fn claim(&mut self, claim: &Claim) -> Entries {
        let mut granted = Entries::new();
        for Wanted { insertion, choices } in &claim.wanted {
            let choices = choices.iter().filter_map(|place| claim.candidates.get(*place));
            let fits = |candidate: &&Candidate| {
                granted.values().all(|entry: &Entry| entry.entity != candidate.entity)
                    && self.admits(candidate, &claim.seen)
            };
            let Some(candidate) = { choices }.find(fits) else { continue };
            let keep = candidate.caps.iter().map(|cap| cap.window.minutes()).max().unwrap_or_default();
            let entry = Entry { entity: candidate.entity, minute: self.latest, confirmed: false, keep };
            granted.insert(*insertion, entry);
            self.entries.insert(*insertion, entry);
        }
        granted
    }

    fn admits(&self, candidate: &Candidate, seen: &[Seen]) -> bool {
        let room =
            self.entries.len() < limits::STRICT_ENTRIES && (self.full_until.0 == 0 || self.full_until < self.latest);
        room && candidate.caps.iter().all(|cap| self.count(candidate.entity, cap, seen) < cap.limit)
    }

    /// A reservation counts in every window: its impression is yet to come.
    fn count(&self, entity: AdEntity, StrictCap { level, window, .. }: &StrictCap, seen: &[Seen]) -> u32 {
        let (from, _) = window.range(self.latest);
        let same = |other: AdEntity| other.at(*level) == entity.at(*level);
        let counts = |entry: &&Entry| same(entry.entity) && (!entry.confirmed || entry.minute >= from);
        let here = self.entries.values().filter(counts).count();
        let beyond = seen.iter().filter(|s| same(s.entity) && s.minute >= from);
        // A snapshot may name an insertion twice: on two days, or under two visitors. One that was confirmed before the window
        // began by the clock here, and was seen in it by another's, counts as it was seen.
        let unknown = |insertion: &InsertionHash| self.entries.get(insertion).filter(counts).is_none();
        let beyond: BTreeSet<InsertionHash> = beyond.map(|s| s.insertion).filter(unknown).collect();
        u32::try_from(here + beyond.len()).unwrap_or(u32::MAX)
    }

    /// Once, while it is reserved: a second time it might be counted on another day.
    fn confirm(&mut self, insertion: InsertionHash) -> Entries {
        let latest = self.latest;
        let Some(entry) = self.entries.get_mut(&insertion).filter(|entry| !entry.confirmed) else {
            return Entries::new();
        };
        (entry.confirmed, entry.minute) = (true, latest);
        Entries::from([(insertion, *entry)])
    }
}

impl Entry {
    /// The last minute at which it may count.
    fn last(&self) -> Minute {
        let window = u32::try_from(limits::SERVE_WINDOW_MS / 60_000).unwrap_or(u32::MAX);
        Minute(self.minute.0.saturating_add(if self.confirmed { self.keep } else { window }))
    }
}

/// The union by insertion; of two of one insertion a confirmed one, then the earlier, then the one kept longer.
fn join(to: &mut Entries, from: &Entries) {
    let rank = |entry: &Entry| (!entry.confirmed, entry.minute, std::cmp::Reverse(entry.keep), entry.entity);
    for (insertion, entry) in from {
        let there = to.entry(*insertion).or_insert(*entry);
        if rank(entry) < rank(there) {
            *there = *entry;
        }
    }
}
