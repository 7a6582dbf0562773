//! Examples from one person's history: each impression with the data known in the minutes before it, and its outcome.

use std::collections::HashMap;

use causeway_shared::ads::model::features::{CLICKED, IMPRESSIONS, ImpressionFeatures, windows};
use causeway_shared::ads::model::{Fatigue, PersonFeatures};
use causeway_shared::base::ids::Micros;
use causeway_shared::base::time::{DAY_MINUTES, HourStamp, Minute};
use causeway_shared::facts::actions::{ActionType, AdAction, AdEntity, AdLevel, InsertionHash};

use super::examples::{ExampleShard, ImpressionResult};
use crate::profiles::purchases::MinutePurchases;

/// Membership in a segment, from a minute until the first hour after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentStay {
    pub(super) place: u16,
    pub(super) from: Minute,
    pub(super) until: HourStamp,
}

/// A person's history, joined over its visitors.
#[derive(Debug, Default)]
pub(super) struct PersonHistory {
    pub(super) actions: Vec<AdAction>,
    /// Times at which the person's visitors were minted.
    pub(super) minted: Vec<Minute>,
    pub(super) purchases: Vec<MinutePurchases>,
    pub(super) segments: Vec<SegmentStay>,
}

/// Outcome of one insertion.
#[derive(Debug, Clone, Copy, Default)]
struct InsertionOutcome {
    came: ImpressionResult,
    /// Number of purchases and the sum of their values.
    bought: Option<(u32, Micros)>,
}

type Insertion = (InsertionHash, u32);

/// Impressions and clicks of an entity, with the first index inside each window.
#[derive(Debug, Default)]
struct EntityTrack {
    seen: Vec<Minute>,
    from: [usize; IMPRESSIONS],
    clicks: Vec<Minute>,
    clicks_from: usize,
}

impl EntityTrack {
    fn clear(&mut self) {
        self.seen.clear();
        self.clicks.clear();
        (self.from, self.clicks_from) = ([0; IMPRESSIONS], 0);
    }
}

/// Walks through the history of a person. One instance serves many people, so that its memory is reused.
#[derive(Debug, Default)]
pub(super) struct HistoryReplay {
    entities: HashMap<AdEntity, [u32; 4]>,
    levels: HashMap<(AdLevel, u32), u32>,
    tracks: Vec<EntityTrack>,
    used: usize,
    outcomes: HashMap<Insertion, InsertionOutcome>,
    set: Vec<u16>,
}

impl HistoryReplay {
    /// Adds the person's examples. Conversions are purchases within a day after a click, and actions with one of
    /// `action_types`.
    pub(super) fn walk(&mut self, mut person: PersonHistory, action_types: &[ActionType], to: &mut ExampleShard) {
        if person.minted.len() > 1 {
            keep_first(&mut person.actions);
        }
        person
            .actions
            .sort_unstable_by_key(|action| (action.minute, action.insertion, action.entity, action.action_type));
        self.entities.clear();
        self.levels.clear();
        self.used = 0;
        self.find_outcomes(&person, action_types);
        let (actions, mut last) = (std::mem::take(&mut person.actions), None);
        for of_minute in actions.chunk_by(|a, b| a.minute == b.minute) {
            let Some(AdAction { minute: now, .. }) = of_minute.first().copied() else { continue };
            self.live(&person.segments, now);
            let devices = person.minted.iter().filter(|minted| **minted <= now).count();
            let devices = u32::try_from(devices).unwrap_or(u32::MAX);
            let features = PersonFeatures { now, devices, segments: &[], last };
            // A house ad was placed without a choice.
            let chosen = |action: &&AdAction| action.action_type == ActionType::IMPRESSION && action.entity.ad != 0;
            for action in of_minute.iter().filter(chosen) {
                let fatigue = self.fatigue(action.entity, now);
                let outcome = self.outcomes.get(&insertion_of(action)).copied().unwrap_or_default();
                let value = outcome.bought.map(|(count, value)| value.part(1, count.max(1).into()));
                let moment = ImpressionFeatures::new(&features, action.view_type, &fatigue);
                to.push(moment, action.entity, &self.set, outcome.came, value.filter(|value| *value > Micros::ZERO));
            }
            of_minute.iter().for_each(|action| self.note(action));
            last = Some(now);
        }
    }

    /// Collects the feature numbers of the segments that the person is in at a time.
    fn live(&mut self, segments: &[SegmentStay], now: Minute) {
        let hour = HourStamp(now.0 / 60);
        let live = segments.iter().filter(|held| held.from <= now && hour < held.until);
        self.set.clear();
        self.set.extend(live.map(|held| held.place));
    }

    fn find_outcomes(&mut self, person: &PersonHistory, action_types: &[ActionType]) {
        self.outcomes.clear();
        let mut clicks = Vec::new();
        for action in &person.actions {
            let (click, conversion) =
                (action.action_type == ActionType::CLICK, action_types.contains(&action.action_type));
            if click || conversion {
                let came = &mut self.outcomes.entry(insertion_of(action)).or_default().came;
                came.clicked |= click;
                came.converted |= conversion;
            }
            if click {
                clicks.push((action.minute, insertion_of(action)));
            }
        }
        for bought in &person.purchases {
            let before = clicks.partition_point(|(minute, _)| *minute <= bought.minute);
            let last = before.checked_sub(1).and_then(|place| clicks.get(place));
            let Some((clicked, insertion)) = last else { continue };
            if bought.minute.0 - clicked.0 > DAY_MINUTES {
                continue;
            }
            let outcome = self.outcomes.entry(*insertion).or_default();
            outcome.came.converted = true;
            let (count, value) = outcome.bought.unwrap_or_default();
            outcome.bought = Some((count.saturating_add(bought.count), value.saturating_add(bought.value)));
        }
    }

    /// Impressions and clicks of the person before a minute, at each level of the catalogue.
    fn fatigue(&mut self, entity: AdEntity, now: Minute) -> Fatigue {
        let starts = windows(now).map(|(from, _)| from);
        let mut fatigue = Fatigue::default();
        for (level, number) in self.tracks_of(entity).into_iter().enumerate() {
            let Some(track) = self.tracks.get_mut(number as usize) else { continue };
            for ((start, first), counts) in starts.iter().zip(&mut track.from).zip(&mut fatigue.impressions) {
                pass_minutes(&track.seen, first, *start);
                put_count(counts, level, track.seen.len() - *first);
            }
            pass_minutes(&track.clicks, &mut track.clicks_from, starts[CLICKED]);
            put_count(&mut fatigue.clicks, level, track.clicks.len() - track.clicks_from);
        }
        fatigue
    }

    fn note(&mut self, action: &AdAction) {
        if action.action_type != ActionType::IMPRESSION && action.action_type != ActionType::CLICK {
            return;
        }
        for number in self.tracks_of(action.entity) {
            let Some(track) = self.tracks.get_mut(number as usize) else { continue };
            let minutes = if action.action_type == ActionType::CLICK { &mut track.clicks } else { &mut track.seen };
            minutes.push(action.minute);
        }
    }

    /// Numbers of the tracks of an entity's four levels.
    fn tracks_of(&mut self, entity: AdEntity) -> [u32; 4] {
        if let Some(numbers) = self.entities.get(&entity) {
            return *numbers;
        }
        let numbers = AdLevel::ALL.map(|level| {
            let next = u32::try_from(self.used).unwrap_or(u32::MAX);
            let number = *self.levels.entry((level, entity.at(level))).or_insert(next);
            if number == next {
                match self.tracks.get_mut(self.used) {
                    Some(track) => track.clear(),
                    None => self.tracks.push(EntityTrack::default()),
                }
                self.used += 1;
            }
            number
        });
        self.entities.insert(entity, numbers);
        numbers
    }
}

fn insertion_of(action: &AdAction) -> Insertion {
    (action.insertion, action.entity.ad)
}

/// Advances `first` to the start of a window.
fn pass_minutes(minutes: &[Minute], first: &mut usize, start: Minute) {
    while minutes.get(*first).is_some_and(|minute| *minute < start) {
        *first += 1;
    }
}

fn put_count(counts: &mut [u32; 4], level: usize, count: usize) {
    if let Some(there) = counts.get_mut(level) {
        *there = u32::try_from(count).unwrap_or(u32::MAX);
    }
}

/// Of an action that several visitors hold, only the earliest is retained.
fn keep_first(actions: &mut Vec<AdAction>) {
    actions.sort_unstable_by_key(|a| (a.minute.day(), a.insertion, a.entity.ad, a.action_type, a.view_type, a.minute));
    actions.dedup_by(|a, b| a.repeats(b));
}
