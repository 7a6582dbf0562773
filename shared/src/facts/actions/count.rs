//! Counts for a request's candidates. One pass over the rows of the window counts for all candidates, at all four
//! levels of the catalogue. No counter is stored: a count is the number of distinct actions.

use super::packed::PackedActions;
use super::{ActionType, AdEntity, AdLevel, ViewType};
use crate::base::time::Minute;

/// The view types whose actions count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ViewTypes<'a> {
    /// All view types.
    #[default]
    All,
    /// These view types only.
    Only(&'a [ViewType]),
}

/// The actions to count: types, placements and a range of minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionQuestion<'a> {
    /// Action types that count.
    pub action_types: &'a [ActionType],
    /// View types that count.
    pub view_types: ViewTypes<'a>,
    /// First minute of the range.
    pub from: Minute,
    /// End of the range, exclusive.
    pub to: Minute,
}

impl ActionQuestion<'_> {
    fn counts(&self, action_type: ActionType, view_type: ViewType) -> bool {
        let seen = match self.view_types {
            ViewTypes::All => true,
            ViewTypes::Only(types) => types.contains(&view_type),
        };
        seen && self.action_types.contains(&action_type)
    }
}

/// Counts of one candidate: of its ad, ad group, campaign and advertiser.
pub type Counts = [u32; 4];

/// Counts actions for a list of candidates; one counter answers many questions.
///
/// Each distinct ad, ad group, campaign or advertiser has one index, which all its candidates share.
#[derive(Debug, Clone)]
pub struct ActionCounter {
    /// Indexes of each candidate's ad, ad group, campaign and advertiser.
    candidates: Vec<[u32; 4]>,
    /// Hash table with open addressing: (level, code) → index. Keys come from the catalogue only, never from a request,
    /// so that a visitor cannot cause collisions.
    keys: Vec<(u64, u32)>,
    places: u32,
    shift: u32,
}

impl Default for ActionCounter {
    fn default() -> Self {
        Self::new(std::iter::empty())
    }
}

impl ActionCounter {
    /// Counter for these candidates, in this order.
    #[must_use]
    pub fn new(candidates: impl ExactSizeIterator<Item = AdEntity>) -> Self {
        let mut counter = Self::with_room(candidates.len());
        for entity in candidates {
            counter.add(entity);
        }
        counter
    }

    /// Empty counter with room for exactly `candidates` candidates.
    #[must_use]
    pub fn with_room(candidates: usize) -> Self {
        let room = (candidates * 8).next_power_of_two().max(16);
        let shift = 64 - room.trailing_zeros();
        Self { candidates: Vec::with_capacity(candidates), keys: vec![(0, 0); room], places: 0, shift }
    }

    /// Adds the next candidate and returns the indexes of its ad, ad group, campaign and advertiser.
    pub fn add(&mut self, entity: AdEntity) -> [u32; 4] {
        let places = AdLevel::ALL.map(|level| self.claim(key(level, entity.at(level))));
        self.candidates.push(places);
        places
    }

    /// Indexes of a candidate's entities in the answer of [`Self::tally_rows`]; `None` for an unknown candidate.
    #[must_use]
    pub fn places(&self, candidate: usize) -> Option<[u32; 4]> {
        self.candidates.get(candidate).copied()
    }

    /// Number of actions on each candidate's entities, over all visitors of a person. An insertion that several
    /// visitors hold counts once.
    pub fn count(
        &self,
        visitors: &[PackedActions<'_>],
        question: &ActionQuestion<'_>,
    ) -> impl Iterator<Item = Counts> + '_ {
        self.counted(self.tally_rows(visitors, question))
    }

    /// Like [`Self::count`], but one number for each index instead of each candidate.
    #[must_use]
    pub fn tally_rows(&self, visitors: &[PackedActions<'_>], question: &ActionQuestion<'_>) -> Vec<u32> {
        let mut counts = vec![0; self.places as usize];
        by_kind(visitors, question.from, question.to, |actions, counted| {
            self.add_kinds(&mut counts, actions, question, counted);
        });
        counts
    }

    /// Like [`Self::count`], for parts that share no action, such as the buckets of one visitor.
    pub fn count_disjoint(
        &self,
        parts: &[PackedActions<'_>],
        question: &ActionQuestion<'_>,
    ) -> impl Iterator<Item = Counts> + '_ {
        let mut counts = vec![0; self.places as usize];
        for part in parts {
            let counted = kinds_within(part, question.from, question.to);
            self.add_kinds(&mut counts, part, question, &counted);
        }
        self.counted(counts)
    }

    fn counted(&self, counts: Vec<u32>) -> impl Iterator<Item = Counts> + '_ {
        let at = move |place: u32| counts.get(place as usize).copied().unwrap_or_default();
        self.candidates.iter().map(move |places| places.map(&at))
    }

    fn add_kinds(
        &self,
        counts: &mut [u32],
        actions: &PackedActions<'_>,
        question: &ActionQuestion<'_>,
        by_kind: &[u32],
    ) {
        let mut by_entity = vec![0u32; actions.entities().len()];
        for (kind, count) in actions.kinds().zip(by_kind) {
            if *count > 0
                && question.counts(kind.action_type, kind.view_type)
                && let Some(sum) = by_entity.get_mut(usize::from(kind.entity))
            {
                *sum += count;
            }
        }
        for (entity, by) in actions.entities().zip(by_entity).filter(|(_, by)| *by > 0) {
            for level in AdLevel::ALL {
                if let Some(count) =
                    self.row_index(key(level, entity.at(level))).and_then(|at| counts.get_mut(at as usize))
                {
                    *count += by;
                }
            }
        }
    }

    /// Returns the index of a key, and assigns the next index to a new key. The table is at most half full, so that the
    /// search ends.
    fn claim(&mut self, key: u64) -> u32 {
        let mask = self.keys.len() - 1;
        let mut at = self.start(key);
        while let Some((there, place)) = self.keys.get_mut(at & mask) {
            if *there == key {
                return *place;
            }
            if *there == 0 {
                (*there, *place) = (key, self.places);
                self.places += 1;
                return *place;
            }
            at += 1;
        }
        0
    }

    fn row_index(&self, key: u64) -> Option<u32> {
        let mask = self.keys.len() - 1;
        let mut at = self.start(key);
        while let Some((there, place)) = self.keys.get(at & mask).filter(|(there, _)| *there != 0) {
            if *there == key {
                return Some(*place);
            }
            at += 1;
        }
        None
    }

    fn start(&self, key: u64) -> usize {
        scatter(key, self.shift)
    }
}

/// Counts the rows of each kind within a window, visitor by visitor, and calls `each` with the counts of each visitor.
/// An insertion that several visitors hold counts with the first of them.
fn by_kind<'a>(
    visitors: &[PackedActions<'a>],
    from: Minute,
    to: Minute,
    mut each: impl FnMut(&PackedActions<'a>, &[u32]),
) {
    if let [one] = visitors {
        return each(one, &kinds_within(one, from, to));
    }
    let mut seen = CountedRows::for_rows(visitors.iter().map(|actions| actions.within(from, to).len()).sum());
    for actions in visitors {
        each(actions, &kinds_once(actions, from, to, &mut seen));
    }
}

/// Counts the rows of each kind for one visitor, whose rows are distinct.
fn kinds_within(actions: &PackedActions<'_>, from: Minute, to: Minute) -> Vec<u32> {
    let mut counted = vec![0u32; actions.kinds().len()];
    actions.kinds_of(actions.within(from, to)).for_each(|kind| {
        if let Some(count) = counted.get_mut(kind) {
            *count += 1;
        }
    });
    counted
}

/// Counts the rows of each kind that no earlier visitor of the person holds; `seen` collects the counted rows.
fn kinds_once(actions: &PackedActions<'_>, from: Minute, to: Minute, seen: &mut CountedRows) -> Vec<u32> {
    let kinds: Vec<_> = actions.kinds().collect();
    let ads: Vec<u32> = actions.entities().map(|entity| entity.ad).collect();
    let mut counted = vec![0u32; kinds.len()];
    for (day, rows) in actions.days_within(actions.within(from, to)) {
        for (place, hash) in actions.kinds_of(rows.clone()).zip(actions.hashes_of(rows)) {
            let (Some(kind), Some(count)) = (kinds.get(place), counted.get_mut(place)) else { continue };
            let ad = ads.get(usize::from(kind.entity)).copied().unwrap_or_default();
            let [a, b, c, d, e, f] = *hash;
            let what = u64::from_le_bytes([a, b, c, d, e, f, kind.action_type.0, kind.view_type.0]);
            *count += u32::from(seen.is_new(what, u64::from(ad) << 16 | u64::from(day.0)));
        }
    }
    counted
}

/// Calls `report` with the action type, the ad and the number of a person's actions within a window. An insertion that
/// several visitors hold counts once. The same action type and ad may be reported more than once.
pub(crate) fn tally(
    visitors: &[PackedActions<'_>],
    from: Minute,
    to: Minute,
    mut report: impl FnMut(ActionType, AdEntity, u32),
) {
    by_kind(visitors, from, to, |actions, counted| {
        let entities: Vec<AdEntity> = actions.entities().collect();
        for (kind, count) in actions.kinds().zip(counted).filter(|(_, count)| **count > 0) {
            let entity = entities.get(usize::from(kind.entity)).copied().unwrap_or_default();
            report(kind.action_type, entity, *count);
        }
    });
}

/// Key of the hash table; never 0, because 0 marks a free entry.
fn key(level: AdLevel, code: u32) -> u64 {
    (level as u64 + 1) << 32 | u64::from(code)
}

/// Multiplicative hashing (Knuth, TAOCP 3, 6.4) with the golden ratio's bits.
fn scatter(key: u64, shift: u32) -> usize {
    usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift).unwrap_or_default()
}

/// Set of rows that were counted, each as 64 bits of hash: as collision-free as the 48 bits of the insertion itself.
struct CountedRows {
    places: Vec<u64>,
    shift: u32,
}

impl CountedRows {
    fn for_rows(rows: usize) -> Self {
        let places = (rows * 2).next_power_of_two().max(16);
        Self { places: vec![0; places], shift: 64 - places.trailing_zeros() }
    }

    fn is_new(&mut self, what: u64, of: u64) -> bool {
        let mask = self.places.len() - 1;
        // 0 marks a free entry.
        let bits = (what.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ of.wrapping_mul(0xa076_1d64_78bd_642f)).max(1);
        let mut place = scatter(bits, self.shift);
        while let Some(there) = self.places.get_mut(place & mask) {
            if *there == bits {
                return false;
            }
            if *there == 0 {
                *there = bits;
                return true;
            }
            place += 1;
        }
        false
    }
}
