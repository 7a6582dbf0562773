//! The best send time of a person: the hour of the week in which the person is most active by its own clock. If the
//! person has few facts, it is the hour in which all people are most active.
//!
//! **Hours.** A histogram counts hours that begin with UTC's hours, so these are the candidates; in a zone at +5:30
//! they begin at half past. A person's facts are therefore never split between hours. Only the population's hours,
//! which are hours of wall clocks, are split between two candidates, in proportion to the overlap.
//!
//! **Score.** `√count + own + population`, where the first two are smoothed 1 : 2 : 1 with the neighbouring hours,
//! because a habit at 20:00 falls into two hours. *Own* is the person's activity at this time on any day: [`OWN`] times
//! its share of the person's activity, spread over the days. *Population* is [`EVERYBODY`] times the population's share
//! of the hour. Up to a factor, the score is the posterior mean of a Dirichlet-multinomial whose prior is itself
//! learned from the person's days and from all people (Gelman et al., Bayesian Data Analysis, 3.4 and 5.3). Roots
//! replace counts because facts come in bursts: one visit adds many to one hour, and the variance of the root of a
//! count does not depend on the count (Anscombe 1948).
//!
//! **Confidence.** The probability that the person is more active at this time of the day than at any other at least
//! two hours away, over all days. With `a` and `b` the roots at the found time and at the most active other time, it is
//! `Φ((a − b) / √(a + b + 1))`, in a Beta posterior under Jeffreys' prior. It makes no statement about the day.
//! Repeated facts never lower a confidence of at least 50 %. It is conservative: for people with known habits, the hour
//! is right (at least half as active as their best) more often than stated, from 5 to 150 facts. It is 0 if the hour is
//! the population's.
//!
//! This module has no clock and no time zone rules: offsets and times are arguments.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::offset::{UtcOffset, WEEK_MS, ZoneOffsets};
use super::{ActivityHistogram, HOURS};
use crate::base::ids::Millis;
use crate::base::time::{HOUR_MS, MINUTE_MS};

/// Fewest facts of a person for a best hour of its own. Fewer could all come from one visit.
pub const LEAST_FACTS: u32 = 5;
/// Weight of the person's times of the day, in roots of own activity. With 30, fewer habits are found among few facts;
/// with 100, more facts are needed to tell one day from another. A test measures the effect against counts and the
/// population's shares alone: the hour found among ten facts is 93 % as active as the best (88 % without), and on a
/// given day 81 % (66 % without).
const OWN: f32 = 60.0;
/// Weight of the population's hours, in roots of own activity. Values from 3 to 30 find the same hours for people with
/// habits. It decides between equal hours, and on days without facts.
const EVERYBODY: f32 = 20.0;
/// Hours of a day.
const DAY: usize = 24;

/// Activity of all people of a tenant by hour of the week on their wall clocks, in sixtieths of a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PopulationActivity([u64; HOURS]);

impl Default for PopulationActivity {
    fn default() -> Self {
        Self([0; HOURS])
    }
}

impl PopulationActivity {
    /// Makes the value from the result of [`PopulationActivity::hours`].
    #[must_use]
    pub fn new(hours: [u64; HOURS]) -> Self {
        Self(hours)
    }

    /// Adds a person. `offset` is the UTC offset at which its facts were recorded ([`ZoneOffsets::usual`]).
    pub fn add(&mut self, histogram: &ActivityHistogram, offset: UtcOffset) {
        let (ahead, past) = offset.parts();
        let (first, second) = (turn_week(histogram.counts(), ahead), turn_week(histogram.counts(), ahead + 1));
        for ((hour, first), second) in self.0.iter_mut().zip(first).zip(second) {
            let more = u64::from(first) * u64::from(60 - past) + u64::from(second) * u64::from(past);
            *hour = hour.saturating_add(more);
        }
    }

    /// Adds another population.
    pub fn join(&mut self, others: &Self) {
        self.0.iter_mut().zip(others.0).for_each(|(hour, more)| *hour = hour.saturating_add(more));
    }

    /// Sixtieths of a fact per hour, from Monday 00:00.
    #[must_use]
    pub fn hours(&self) -> &[u64; HOURS] {
        &self.0
    }

    /// The expected activity of a person without facts at an offset. One value per offset serves all people.
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

/// The population's activity, as expected of a person at one UTC offset.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorActivity {
    offset: UtcOffset,
    week: [f32; HOURS],
}

impl PriorActivity {
    /// The scored week of a person with this histogram (the sum of its visitors'). The prior's offset must be the one
    /// at which its facts were recorded.
    #[must_use]
    pub fn habits(&self, histogram: &ActivityHistogram) -> PersonHabits {
        let (ahead, past) = self.offset.parts();
        let facts = histogram.counts().iter().map(|count| u32::from(*count)).sum::<u32>();
        let mut habits =
            PersonHabits { past, source: BestSendTimeSource::Population, week: self.week, day: [0.0; DAY] };
        if facts < LEAST_FACTS {
            return habits;
        }
        let roots = turn_week(histogram.counts(), ahead).map(|count| f32::from(count).sqrt());
        for day in roots.as_chunks::<DAY>().0 {
            habits.day.iter_mut().zip(day).for_each(|(sum, root)| *sum += root);
        }
        let own = OWN / (7.0 * habits.day.iter().sum::<f32>());
        habits.source = BestSendTimeSource::Person;
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

/// The scored week of a person.
#[derive(Debug, Clone, PartialEq)]
pub struct PersonHabits {
    /// Minutes past the hour at which its hours begin, by the person's clock.
    past: u16,
    source: BestSendTimeSource,
    /// Scores of the hours, from Monday 00:00.
    week: [f32; HOURS],
    /// Roots of the person's own facts at each hour of the day, smoothed.
    day: [f32; DAY],
}

/// The data that a best hour is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BestSendTimeSource {
    /// All people: the person has too few facts.
    Population,
    /// The person's own facts.
    Person,
}

/// The best hour of a person's week, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BestHour {
    /// The minute of the week at which the hour begins: 0 is Monday 00:00.
    pub minute: u16,
    /// The data that it is based on.
    pub source: BestSendTimeSource,
    /// Probability in per cent, 1 to 99, that the person is not more active at another time of the day; 0 if the hour
    /// is the population's.
    pub confidence: u8,
}

/// The best hour for an edge without time zones. It is valid while the person's UTC offset stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BestSendTime {
    /// The hour of the week in UTC: 0 is Monday 00:00.
    pub utc_hour_of_week: u8,
    /// See [`BestHour::confidence`].
    pub confidence: u8,
}

impl PersonHabits {
    /// The best hour; of equal hours the first of the week.
    #[must_use]
    pub fn best(&self) -> BestHour {
        let (mut hour, mut most) = (0, f32::MIN);
        for (at, score) in (0_u16..).zip(self.week) {
            if score > most {
                (hour, most) = (at, score);
            }
        }
        let confidence = match self.source {
            BestSendTimeSource::Population => 0,
            BestSendTimeSource::Person => self.confidence(usize::from(hour) % DAY),
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

    /// The best moment from now on within a window; `None` if the window is over. It is the first moment of the window
    /// that lies in the best hour. If there is none, it is the first moment of the hour with the highest score in the
    /// window.
    #[must_use]
    pub fn next(&self, now: Millis, window: Range<Millis>, offsets: &ZoneOffsets) -> Option<Millis> {
        let ahead = window.start.max(now)..window.end;
        let best = self.best();
        let within = offsets.pieces(ahead.clone()).find_map(|(piece, offset)| {
            let elapsed = best.elapsed(piece.start, offset);
            let wait = if elapsed < HOUR_MS { 0 } else { WEEK_MS - elapsed };
            piece.start.checked_add(wait).filter(|at| *at < piece.end)
        });
        // A window without the best hour has only pieces shorter than a week.
        within.or_else(|| self.second_best(offsets.pieces(ahead)))
    }

    fn second_best(&self, pieces: impl Iterator<Item = (Range<Millis>, UtcOffset)>) -> Option<Millis> {
        let (mut found, mut most) = (None, f32::MIN);
        for (piece, offset) in pieces {
            let mut at = piece.start;
            while at < piece.end {
                let elapsed = since_minute(at, offset, self.past);
                let score = usize::try_from(elapsed / HOUR_MS).ok().and_then(|hour| self.week.get(hour));
                if let Some(score) = score.filter(|score| **score > most) {
                    (found, most) = (Some(at), *score);
                }
                at = at.saturating_add(HOUR_MS - elapsed % HOUR_MS);
            }
        }
        found
    }
}

impl BestHour {
    /// Whether a time lies in the best hour, at the UTC offset of that time.
    #[must_use]
    pub fn is_now(&self, now: Millis, offset: UtcOffset) -> bool {
        self.elapsed(now, offset) < HOUR_MS
    }

    /// The best hour in UTC, while the person's clock is at this offset. If a clock changed by half an hour since the
    /// facts were recorded (only Lord Howe Island's does), it is the hour that begins half an hour later.
    #[must_use]
    pub fn edge(&self, offset: UtcOffset) -> BestSendTime {
        let minute = WEEK_MS - self.elapsed(0, offset) + 72 * HOUR_MS;
        let hour = (minute + HOUR_MS / 2) / HOUR_MS % HOURS as u64;
        BestSendTime { utc_hour_of_week: u8::try_from(hour).unwrap_or_default(), confidence: self.confidence }
    }

    /// Milliseconds since the hour's last beginning.
    fn elapsed(&self, time: Millis, offset: UtcOffset) -> u64 {
        since_minute(time, offset, self.minute)
    }
}

impl BestSendTime {
    /// The value as one number: 256 times the hour, plus the confidence.
    #[must_use]
    pub fn pack(self) -> u16 {
        u16::from_be_bytes([self.utc_hour_of_week, self.confidence])
    }

    /// Reads the form of [`BestSendTime::pack`]; `None` if the hour or the confidence is out of range.
    #[must_use]
    pub fn read(packed: u16) -> Option<Self> {
        let [utc_hour_of_week, confidence] = packed.to_be_bytes();
        let is_one = usize::from(utc_hour_of_week) < HOURS && (1..=99).contains(&confidence);
        is_one.then_some(Self { utc_hour_of_week, confidence })
    }

    /// Whether a time lies in the best hour; the value of `best_send_time.now` in filters.
    #[must_use]
    pub fn is_now(&self, now: Millis) -> bool {
        super::hour_of_week(now) == usize::from(self.utc_hour_of_week)
    }
}

/// Milliseconds since a clock at this offset last showed this minute of the week.
fn since_minute(time: Millis, offset: UtcOffset, minute: u16) -> u64 {
    (offset.into_week(time) + WEEK_MS - u64::from(minute) * MINUTE_MS % WEEK_MS) % WEEK_MS
}

/// The week rotated forward by `hours`.
fn turn_week<T: Copy>(week: &[T; HOURS], hours: i16) -> [T; HOURS] {
    let mut turned = *week;
    turned.rotate_right(usize::from(hours.rem_euclid(HOURS as i16).unsigned_abs()));
    turned
}

/// Each value averaged 1 : 2 : 1 with its neighbours, cyclically.
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

/// The normal distribution function with an error of at most 0.0003, by operations with identical results on every
/// machine (Abramowitz and Stegun 26.2.18).
fn normal(deviations: f64) -> f64 {
    let x = deviations.abs();
    let sum = 1.0 + x * (0.196_854 + x * (0.115_194 + x * (0.000_344 + x * 0.019_527)));
    let tail = 0.5 / (sum * sum * sum * sum);
    if deviations < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests;
