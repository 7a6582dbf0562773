//! A person's best time (S4.13): the hour of the week in which it is most active by its own clock, as far as its facts
//! say; where they say little, the hour in which everybody is.
//!
//! **Hours.** A rhythm counts hours that begin with UTC's, so these are the hours that can be best: in a zone at +5:30
//! they begin at half past. Nothing of what a person did is split then; only the population's hours, which are those of
//! clocks, go to two of them, by how much of each they cover.
//!
//! **Score.** `√count + own + everybody's`, where the first two are averaged 1 : 2 : 1 with the hours beside them: a
//! habit at 20:00 falls into two hours. *Own* is what the person does at this time of any day: [`OWN`] times its share of
//! the person's activity, spread over the days. *Everybody's* is [`EVERYBODY`] times the population's share of the hour.
//! So the score is, but for a factor, the posterior mean of a Dirichlet-multinomial whose prior is itself learned from
//! the person's days and from all people (Gelman et al., Bayesian Data Analysis, 3.4 and 5.3), with roots in the counts'
//! place: facts come in bursts – one visit adds many to one hour – and the root of a count varies alike whatever the
//! count is (Anscombe 1948).
//!
//! **Confidence.** The probability that the person is more active at this time of the day than at any that is two hours
//! away or more, over all its days: with `a` and `b` the roots at the found time and at the most active other, in a Beta
//! posterior under Jeffreys' prior, `Φ((a − b) / √(a + b + 1))`. It says nothing of which day. The same facts twice never
//! lower one of 50 % or more. It is on the careful side: of people whose habits are known, the hour is right (at least half
//! as active as their best) for more than it states, at 5 facts as at 150. It is 0 where the hour is the population's.
//!
//! Nothing here knows a time zone's rules or a clock: offsets and times are given.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::offset::{UtcOffset, WEEK_MS, ZoneOffsets};
use super::{ActivityHistogram, HOURS};
use crate::base::ids::Millis;
use crate::base::time::{HOUR_MS, MINUTE_MS};

/// With fewer facts than these a person's best hour is the population's: as many can be one visit's.
pub const LEAST_FACTS: u32 = 5;
/// How many roots of own activity the person's times of the day weigh. 30 find less among few facts, 100 take longer to
/// tell one day from another. What they bring, measured by a test against counts and the population's shares alone: the
/// hour found among ten facts is 93 % as active as the best, not 88 %, and on a given day 81 %, not 66 %.
const OWN: f32 = 60.0;
/// How many roots of own activity the population's hours weigh. Anything from 3 to 30 finds the same hours of people with
/// habits; it decides between hours that are equal, and in which hour of an empty day to try.
const EVERYBODY: f32 = 20.0;
/// Hours of a day.
const DAY: usize = 24;

/// What all people of a tenant did, by the hour of the week that their clocks showed, in sixtieths of a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PopulationActivity([u64; HOURS]);

impl Default for PopulationActivity {
    fn default() -> Self {
        Self([0; HOURS])
    }
}

impl PopulationActivity {
    /// From what [`PopulationActivity::hours`] gave.
    #[must_use]
    pub fn new(hours: [u64; HOURS]) -> Self {
        Self(hours)
    }

    /// Adds a person, by the offset that its facts were recorded at ([`ZoneOffsets::usual`]).
    pub fn add(&mut self, rhythm: &ActivityHistogram, offset: UtcOffset) {
        let (ahead, past) = offset.parts();
        let (first, second) = (turn_week(rhythm.counts(), ahead), turn_week(rhythm.counts(), ahead + 1));
        for ((hour, first), second) in self.0.iter_mut().zip(first).zip(second) {
            let more = u64::from(first) * u64::from(60 - past) + u64::from(second) * u64::from(past);
            *hour = hour.saturating_add(more);
        }
    }

    /// Adds other people.
    pub fn join(&mut self, others: &Self) {
        self.0.iter_mut().zip(others.0).for_each(|(hour, more)| *hour = hour.saturating_add(more));
    }

    /// Sixtieths of a fact, Monday's first hour first.
    #[must_use]
    pub fn hours(&self) -> &[u64; HOURS] {
        &self.0
    }

    /// What is expected of a person at an offset of whom nothing is known. One for each offset serves all people.
    #[must_use]
    pub fn prior(&self, offset: UtcOffset) -> PriorActivity {
        let past = f64::from(offset.parts().1);
        let mut week = [0.0; HOURS];
        for ((to, hour), next) in week.iter_mut().zip(self.0).zip(turn_week(&self.0, -1)) {
            *to = hour as f64 * (60.0 - past) + next as f64 * past;
        }
        let whole = week.iter().sum::<f64>();
        let share = |part: f64| if whole > 0.0 { part / whole } else { 1.0 / HOURS as f64 };
        PriorActivity { offset, week: week.map(|part| EVERYBODY * share(part) as f32) }
    }
}

/// What everybody does, as a person at one offset is expected to.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorActivity {
    offset: UtcOffset,
    week: [f32; HOURS],
}

impl PriorActivity {
    /// What this says of a person with this rhythm, the sum of its visitors'. The prior's offset is to be the one that its
    /// facts were recorded at.
    #[must_use]
    pub fn habits(&self, rhythm: &ActivityHistogram) -> PersonHabits {
        let (ahead, past) = self.offset.parts();
        let facts = rhythm.counts().iter().map(|count| u32::from(*count)).sum::<u32>();
        let mut habits = PersonHabits { past, source: BestTimeSource::Population, week: self.week, day: [0.0; DAY] };
        if facts < LEAST_FACTS {
            return habits;
        }
        let roots = turn_week(rhythm.counts(), ahead).map(|count| f32::from(count).sqrt());
        for day in roots.as_chunks::<DAY>().0 {
            habits.day.iter_mut().zip(day).for_each(|(sum, root)| *sum += root);
        }
        let own = OWN / (7.0 * habits.day.iter().sum::<f32>());
        habits.source = BestTimeSource::Person;
        habits.day = smooth_week(&habits.day);
        habits.week = smooth_week(&roots);
        for (day, everybody) in habits.week.as_chunks_mut::<DAY>().0.iter_mut().zip(self.week.as_chunks::<DAY>().0) {
            for ((score, all_days), everybody) in day.iter_mut().zip(habits.day).zip(everybody) {
                *score += own * all_days + everybody;
            }
        }
        habits
    }
}

/// A person's week, scored.
#[derive(Debug, Clone, PartialEq)]
pub struct PersonHabits {
    /// Minutes past the hour at which its hours begin, by the person's clock.
    past: u16,
    source: BestTimeSource,
    /// The hours' scores, Monday's first hour first.
    week: [f32; HOURS],
    /// Roots of the person's own facts at each hour of the day, smoothed.
    day: [f32; DAY],
}

/// Whose best hour it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BestTimeSource {
    /// Everybody's: of the person too little is known.
    Population,
    /// The person's own.
    Person,
}

/// The best hour of a person's week, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BestHour {
    /// The minute of the week in which the hour begins: 0 is Monday 00:00.
    pub minute: u16,
    /// Whose it is.
    pub source: BestTimeSource,
    /// Per cent, 1 to 99, that the person is at no other time of the day more active; 0 where the hour is the population's.
    pub confidence: u8,
}

/// What an edge that knows no zones has to know, for as long as the person's offset stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BestTime {
    /// The hour of the week in UTC: 0 is Monday's first.
    pub utc_hour_of_week: u8,
    /// As [`BestHour::confidence`].
    pub confidence: u8,
}

impl PersonHabits {
    /// The best hour; of equal ones the week's first.
    #[must_use]
    pub fn best(&self) -> BestHour {
        let (mut hour, mut most) = (0, f32::MIN);
        for (at, score) in (0_u16..).zip(self.week) {
            if score > most {
                (hour, most) = (at, score);
            }
        }
        let confidence = match self.source {
            BestTimeSource::Population => 0,
            BestTimeSource::Person => self.confidence(usize::from(hour) % DAY),
        };
        BestHour { minute: hour * 60 + self.past, source: self.source, confidence }
    }

    fn confidence(&self, found: usize) -> u8 {
        let (mut here, mut elsewhere) = (0.0, 0.0_f32);
        for (hour, roots) in self.day.into_iter().enumerate() {
            match hour.abs_diff(found) {
                0 => here = roots,
                1 | 23 => {}
                _ => elsewhere = elsewhere.max(roots),
            }
        }
        let deviations = f64::from(here - elsewhere) / f64::from(here + elsewhere + 1.0).sqrt();
        (100.0 * normal(deviations)).clamp(1.0, 99.0) as u8
    }

    /// The best moment from now on within a window: the first at which the best hour begins, or in which it is; or, where
    /// the window holds none of it, the first of the hour with the highest score that it holds. `None` when it is over.
    #[must_use]
    pub fn next(&self, now: Millis, window: Range<Millis>, offsets: &ZoneOffsets) -> Option<Millis> {
        let ahead = window.start.max(now)..window.end;
        let best = self.best();
        let within = offsets.pieces(ahead.clone()).find_map(|(piece, offset)| {
            let gone = best.gone(piece.start, offset);
            let wait = if gone < HOUR_MS { 0 } else { WEEK_MS - gone };
            piece.start.checked_add(wait).filter(|at| *at < piece.end)
        });
        // Without it the pieces are shorter than a week each.
        within.or_else(|| self.second_best(offsets.pieces(ahead)))
    }

    fn second_best(&self, pieces: impl Iterator<Item = (Range<Millis>, UtcOffset)>) -> Option<Millis> {
        let (mut found, mut most) = (None, f32::MIN);
        for (piece, offset) in pieces {
            let mut at = piece.start;
            while at < piece.end {
                let gone = since_minute(at, offset, self.past);
                let score = usize::try_from(gone / HOUR_MS).ok().and_then(|hour| self.week.get(hour));
                if let Some(score) = score.filter(|score| **score > most) {
                    (found, most) = (Some(at), *score);
                }
                at = at.saturating_add(HOUR_MS - gone % HOUR_MS);
            }
        }
        found
    }
}

impl BestHour {
    /// Whether a time lies in the best hour, by a clock at the offset of that time.
    #[must_use]
    pub fn is_now(&self, now: Millis, offset: UtcOffset) -> bool {
        self.gone(now, offset) < HOUR_MS
    }

    /// For the edge, as long as the person's clock is at this offset. Where a clock went half an hour on since the facts
    /// were recorded (only Lord Howe's does) it is the hour that begins half an hour later.
    #[must_use]
    pub fn edge(&self, offset: UtcOffset) -> BestTime {
        let minute = WEEK_MS - self.gone(0, offset) + 72 * HOUR_MS;
        let hour = (minute + HOUR_MS / 2) / HOUR_MS % HOURS as u64;
        BestTime { utc_hour_of_week: u8::try_from(hour).unwrap_or_default(), confidence: self.confidence }
    }

    /// Milliseconds since the hour last began.
    fn gone(&self, time: Millis, offset: UtcOffset) -> Millis {
        since_minute(time, offset, self.minute)
    }
}

impl BestTime {
    /// As one number, to be kept: 256 times the hour, and the confidence.
    #[must_use]
    pub fn pack(self) -> u16 {
        u16::from_be_bytes([self.utc_hour_of_week, self.confidence])
    }

    /// From what [`BestTime::pack`] gave; `None` for no hour of a week, or no confidence.
    #[must_use]
    pub fn read(packed: u16) -> Option<Self> {
        let [utc_hour_of_week, confidence] = packed.to_be_bytes();
        let is_one = usize::from(utc_hour_of_week) < HOURS && (1..=99).contains(&confidence);
        is_one.then_some(Self { utc_hour_of_week, confidence })
    }

    /// Whether a time lies in the best hour: what a filter's `best_time.now` says.
    #[must_use]
    pub fn is_now(&self, now: Millis) -> bool {
        super::hour_of_week(now) == usize::from(self.utc_hour_of_week)
    }
}

/// Milliseconds since a clock at this offset last showed this minute of the week.
fn since_minute(time: Millis, offset: UtcOffset, minute: u16) -> Millis {
    (offset.into_week(time) + WEEK_MS - Millis::from(minute) * MINUTE_MS % WEEK_MS) % WEEK_MS
}

/// A week some hours later.
fn turn_week<T: Copy>(week: &[T; HOURS], hours: i16) -> [T; HOURS] {
    let mut turned = *week;
    turned.rotate_right(usize::from(hours.rem_euclid(HOURS as i16).unsigned_abs()));
    turned
}

/// Each averaged 1 : 2 : 1 with its neighbours, in a circle.
fn smooth_week<const N: usize>(of: &[f32; N]) -> [f32; N] {
    let (mut before, mut after) = (*of, *of);
    before.rotate_right(1);
    after.rotate_left(1);
    let mut smooth = *of;
    for ((to, before), after) in smooth.iter_mut().zip(before).zip(after) {
        *to = *to / 2.0 + (before + after) / 4.0;
    }
    smooth
}

/// The normal distribution function, to 0.0003, by what every machine calculates alike (Abramowitz and Stegun 26.2.18).
fn normal(deviations: f64) -> f64 {
    let x = deviations.abs();
    let sum = 1.0 + x * (0.196_854 + x * (0.115_194 + x * (0.000_344 + x * 0.019_527)));
    let tail = 0.5 / (sum * sum * sum * sum);
    if deviations < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests;
