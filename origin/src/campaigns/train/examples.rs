//! Training examples in a compact form, because there are millions of them: one impression each, with the data known
//! before it and its outcome.

use std::collections::HashMap;

use causeway_shared::ads::decision::PRICE_MICROS;
use causeway_shared::ads::model::features::ImpressionFeatures;
use causeway_shared::base::ids::Micros;
use causeway_shared::base::time::{DAY_MINUTES, Minute};
use causeway_shared::facts::actions::AdEntity;

/// Largest value of a purchase that is learned from, as a multiple of the median.
const MOST_OF_USUAL: i64 = 100;

/// Minutes after an impression in which a click is expected. Most clicks come at once.
const CLICK_MINUTES: u32 = 60;

/// Outcome of an impression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ImpressionResult {
    pub(super) clicked: bool,
    pub(super) converted: bool,
}

#[derive(Debug, Clone, Copy)]
struct TrainingExample {
    moment: ImpressionFeatures,
    entity: u32,
    set: u32,
    came: ImpressionResult,
}

/// One thread's share of the examples.
#[derive(Debug, Default)]
pub(super) struct ExampleShard {
    bits: u8,
    examples: Vec<TrainingExample>,
    entities: Vec<AdEntity>,
    numbers: HashMap<AdEntity, u32>,
    /// Feature numbers of segments, set after set. A set is stored as its end and begins where the previous one ends.
    places: Vec<u16>,
    ends: Vec<u32>,
    /// Values of conversions, by example.
    values: Vec<(u32, Micros)>,
}

impl ExampleShard {
    /// Creates a shard with capacity for `room` examples. Unused capacity costs no physical memory.
    pub(super) fn new(bits: u8, room: usize) -> Self {
        Self { bits, examples: Vec::with_capacity(room), ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.examples.len()
    }

    /// Adds an impression of a person that is in segments with these feature numbers.
    pub(super) fn push(
        &mut self,
        moment: ImpressionFeatures,
        entity: AdEntity,
        segments: &[u16],
        came: ImpressionResult,
        value: Option<Micros>,
    ) {
        let next = u32::try_from(self.entities.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(entity).or_insert(next);
        if number == next {
            self.entities.push(entity);
        }
        if self.ends.is_empty() || self.set(self.ends.len() - 1) != segments {
            self.places.extend(segments);
            self.ends.push(u32::try_from(self.places.len()).unwrap_or(u32::MAX));
        }
        let set = u32::try_from(self.ends.len() - 1).unwrap_or(u32::MAX);
        let place = u32::try_from(self.examples.len()).unwrap_or(u32::MAX);
        self.values.extend(value.map(|value| (place, value)));
        self.examples.push(TrainingExample { moment, entity: number, set, came });
    }

    fn set(&self, number: usize) -> &[u16] {
        let at = |number: usize| self.ends.get(number).map_or(0, |end| *end as usize);
        let start = number.checked_sub(1).map_or(0, at);
        self.places.get(start..at(number)).unwrap_or_default()
    }
}

/// All examples of the shards, numbered from 0.
#[derive(Debug)]
pub(super) struct Examples {
    shards: Vec<ExampleShard>,
    values: HashMap<u32, Micros>,
}

impl Examples {
    pub(super) fn new(mut shards: Vec<ExampleShard>) -> Self {
        let (mut first, mut values) = (0, HashMap::new());
        for shard in &mut shards {
            values.extend(std::mem::take(&mut shard.values).into_iter().map(|(place, value)| (first + place, value)));
            shard.numbers = HashMap::new();
            first += u32::try_from(shard.len()).unwrap_or(u32::MAX);
        }
        bound_values(&mut values);
        Self { shards, values }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(ExampleShard::len).sum()
    }

    /// Writes the feature numbers of an example to `to`.
    pub(super) fn places(&self, number: u32, to: &mut Vec<u16>) {
        to.clear();
        let Some((shard, example)) = self.find(number) else { return };
        let entity = shard.entities.get(example.entity as usize).copied().unwrap_or_default();
        example.moment.places(entity, shard.bits, to);
        to.extend_from_slice(shard.set(example.set as usize));
    }

    pub(super) fn minute(&self, number: u32) -> Minute {
        self.find(number).map(|(_, example)| example.moment.minute).unwrap_or_default()
    }

    pub(super) fn result_of(&self, number: u32) -> ImpressionResult {
        self.find(number).map(|(_, example)| example.came).unwrap_or_default()
    }

    /// Value of an example's conversion if it is known, at most [`MOST_OF_USUAL`] times the median.
    pub(super) fn value(&self, number: u32) -> Option<Micros> {
        self.values.get(&number).copied()
    }

    /// Examples that are old enough to have their click.
    pub(super) fn settled(&self, now: Minute) -> Vec<u32> {
        self.old_enough(now, CLICK_MINUTES).map(|(number, _)| number).collect()
    }

    /// Clicked examples that are old enough to have their conversion.
    pub(super) fn clicked(&self, now: Minute) -> Vec<u32> {
        let settled = self.old_enough(now, CLICK_MINUTES + DAY_MINUTES);
        settled.filter(|(_, example)| example.came.clicked).map(|(number, _)| number).collect()
    }

    fn old_enough(&self, now: Minute, minutes: u32) -> impl Iterator<Item = (u32, &TrainingExample)> + '_ {
        let examples = self.shards.iter().flat_map(|shard| &shard.examples);
        (0..).zip(examples).filter(move |(_, example)| example.moment.minute.0.saturating_add(minutes) <= now.0)
    }

    fn find(&self, number: u32) -> Option<(&ExampleShard, &TrainingExample)> {
        let mut place = number as usize;
        for shard in &self.shards {
            match shard.examples.get(place) {
                Some(example) => return Some((shard, example)),
                None => place -= shard.len(),
            }
        }
        None
    }
}

/// Bounds values by [`MOST_OF_USUAL`] times the median, which includes the assumed values. Pages report values: without
/// the bound, one wrong value would distort the price of all examples.
fn bound_values(values: &mut HashMap<u32, Micros>) {
    let assumed = std::iter::repeat_n(PRICE_MICROS, ASSUMED as usize);
    let mut all: Vec<Micros> = values.values().copied().chain(assumed).collect();
    let middle = all.len() / 2;
    let (_, median, _) = all.select_nth_unstable(middle);
    let most = median.part(MOST_OF_USUAL, 1);
    values.values_mut().for_each(|value| *value = (*value).min(most));
}

/// Number of examples that the default prediction counts for.
pub(crate) const ASSUMED: f64 = 100.0;
