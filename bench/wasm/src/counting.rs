//! Visitors with many actions, and the candidates of a request.

use std::hint::black_box;

use causeway_shared::base::ids::InsertionId;
use causeway_shared::base::time::{DAY_MINUTES, Day, Minute};
use causeway_shared::facts::actions::{
    ActionCounter, ActionList, ActionQuestion, ActionType, AdAction, AdEntity, Counts, InsertionHash, PackedActions,
    TimeWindow, ViewType, ViewTypes, WindowUnit,
};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::scramble;

/// The last day of the actions.
pub const TODAY: Day = Day(2_880);
/// Number of ads that one person meets, of a catalogue ten times as large.
const MET: u64 = 200;
const ACTION_TYPES: [ActionType; 1] = [ActionType::IMPRESSION];

/// The question for impressions of the last days, today included.
#[must_use]
pub fn question(days: u32) -> ActionQuestion<'static> {
    let (from, to) = TimeWindow { interval: days, unit: WindowUnit::Days }.range(Minute(TODAY.start().0 + 1_000));
    ActionQuestion { action_types: &ACTION_TYPES, view_types: ViewTypes::All, from, to }
}

/// The entity of an ad: four ads per group, five groups per campaign, five campaigns per advertiser.
#[must_use]
pub fn entity(ad: u64) -> AdEntity {
    let ad = ad as u32;
    AdEntity { ad: 1 + ad, ad_group: 1 + ad / 4, campaign: 1 + ad / 20, advertiser: 1 + ad / 100 }
}

/// The candidates of a request; a visitor has met a part of them.
#[must_use]
pub fn candidates(count: u64) -> Vec<AdEntity> {
    (0..count).map(|n| entity(n * 7 % (10 * MET))).collect()
}

/// This number of actions over 30 days, without repeats.
#[must_use]
pub fn visitor(actions: u64, seed: u64) -> ActionList {
    events(actions, seed).into_iter().collect()
}

/// This number of actions over 30 days: a tenth are repeats, four fifths are impressions.
#[must_use]
pub fn events(actions: u64, seed: u64) -> Vec<AdAction> {
    let mut made: Vec<AdAction> = Vec::new();
    for n in 0..actions {
        let bits = scramble(seed << 32 | n);
        let earlier = (bits >> 8) % (made.len() as u64).max(1);
        let again = made.get(earlier as usize).filter(|_| bits.is_multiple_of(10));
        let fresh = AdAction {
            insertion: InsertionHash::of(InsertionId(u128::from(seed << 32 | n).to_be_bytes())),
            action_type: if (bits / 10).is_multiple_of(5) { ActionType::CLICK } else { ActionType::IMPRESSION },
            view_type: ViewType((bits / 50 % 3) as u8),
            entity: entity(scramble(bits) % MET * 7 % (10 * MET)),
            minute: Minute(TODAY.start().0 + DAY_MINUTES - 1 - (bits / 150 % u64::from(30 * DAY_MINUTES)) as u32),
        };
        made.push(again.copied().unwrap_or(fresh));
    }
    made
}

/// Counts of a hundred candidates at four levels, over the last 7 days of one visitor's packed actions.
#[derive(Debug)]
#[wasm_bindgen]
pub struct Counting {
    packed: Vec<u8>,
    candidates: Vec<AdEntity>,
}

#[wasm_bindgen]
impl Counting {
    /// For a visitor with this number of actions.
    #[must_use]
    #[wasm_bindgen(constructor)]
    pub fn new(actions: u32) -> Self {
        Self { packed: visitor(actions.into(), 1).pack_actions(), candidates: candidates(100) }
    }

    /// Counts `times` times; returns a checksum of the counts.
    #[must_use]
    pub fn run(&self, times: u32) -> u32 {
        let question = question(7);
        let mut counts: Vec<Counts> = Vec::with_capacity(self.candidates.len());
        for _ in 0..times {
            counts.clear();
            if let Some(read) = PackedActions::read(black_box(&self.packed)) {
                counts.extend(ActionCounter::new(self.candidates.iter().copied()).count(&[read], &question));
            }
            black_box(&counts);
        }
        counts.iter().flatten().fold(0, |sum: u32, count| sum.wrapping_mul(31).wrapping_add(*count))
    }
}
