//! Verification of the sums of experiments: people are computed again from their visitors, and sums from the people.
//! Both are already correct unless another program wrote the store.

use std::collections::BTreeMap;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::base::time::{DAY_MS, HourStamp};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::person_results::{self, Delay, HourSums, Place};
use crate::campaigns::catalogue;
use crate::store::job_error::JobError;
use crate::store::tables::people;
use crate::store::{PersonNo, StoreError};

/// People compared between two calls of `step`.
const STEP: u64 = 10_000;

/// Progress of a rollup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RollupReport {
    /// People checked.
    pub people: u64,
    /// People whose rows were corrected.
    pub changed: u64,
    /// Sums that were corrected.
    pub sums: u64,
}

/// Computes the rows of people after one again, within a transaction. Returns the last person; `None` after the last of
/// all. People with conversions that are older than the stored ones are skipped.
///
/// # Errors
/// [`StoreError`]; the caller must roll the transaction back.
pub fn rebuild_people(
    tx: &Connection,
    after: PersonNo,
    most: u32,
    now: Millis,
    rolled: &mut RollupReport,
) -> Result<Option<PersonNo>, StoreError> {
    let mut statement = tx.prepare_cached(people::PEOPLE_PAGE_WITH_EXPERIMENT_PEOPLE)?;
    let next: Vec<PersonNo> =
        statement.query_map((after.0, most), |row| row.get(0).map(PersonNo))?.collect::<Result<_, _>>()?;
    let counted = catalogue::load_conversions(tx, &catalogue::load_experiments(tx)?, now)?;
    let stored_from = HourStamp::at(now.saturating_sub(limits::CONVERSION_DAYS * DAY_MS));
    for person in next.iter().copied() {
        rolled.people += 1;
        let rows = person_results::stored_results(tx, person)?;
        if rows.values().flat_map(|row| row.hours.keys()).all(|hour| *hour > stored_from)
            && person_results::person_changed(tx, &counted, person)?
        {
            rolled.changed += 1;
        }
    }
    Ok(next.last().copied())
}

/// Differences between the stored sums and the sums over people, as amounts to add.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SumCorrections {
    hours: BTreeMap<Place, HourSums>,
    delays: BTreeMap<Delay, i64>,
}

/// Compares all sums with the people in one snapshot of the store. `step` is called every 10,000 people.
///
/// # Errors
/// [`JobError`], including errors of `step`.
pub fn find_corrections(
    snapshot: &Connection,
    step: &dyn Fn() -> Result<(), JobError>,
) -> Result<SumCorrections, JobError> {
    let (mut wrong, mut seen) = (SumCorrections::default(), 0_u64);
    person_results::for_each_person(snapshot, |(tenant, experiment), row| {
        seen += 1;
        if seen.is_multiple_of(STEP) {
            step()?;
        }
        let (hours, delay) = row.adds(tenant, experiment);
        for (place, sums) in hours {
            let sum = wrong.hours.entry(place).or_default();
            *sum = sum.plus(1, sums);
        }
        if let Some(delay) = delay {
            *wrong.delays.entry(delay).or_default() += 1;
        }
        Ok::<_, JobError>(())
    })?;
    person_results::each_sum(snapshot, |place, stored| {
        let sum = wrong.hours.entry(place).or_default();
        *sum = sum.plus(-1, stored);
    })?;
    person_results::each_delay(snapshot, |delay, stored| *wrong.delays.entry(delay).or_default() -= stored)?;
    wrong.hours.retain(|_, sums| *sums != HourSums::default());
    wrong.delays.retain(|_, people| *people != 0);
    Ok(wrong)
}

impl SumCorrections {
    /// Number of wrong sums.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hours.len() + self.delays.len()
    }

    /// Whether no sum is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies at most `most` corrections within a transaction and removes them from the list. They are amounts to add,
    /// so that changes since the comparison are preserved. Returns the number of applied corrections.
    ///
    /// # Errors
    /// [`StoreError`]; the caller must roll the transaction back.
    pub fn mend(&mut self, tx: &Connection, most: usize) -> Result<u64, StoreError> {
        let before = self.len();
        for _ in 0..most {
            if let Some((place, sums)) = self.hours.pop_first() {
                person_results::add_hour(tx, place, sums, 1)?;
            } else if let Some((place, people)) = self.delays.pop_first() {
                person_results::add_delay(tx, place, people)?;
            } else {
                break;
            }
        }
        Ok((before - self.len()) as u64)
    }
}
