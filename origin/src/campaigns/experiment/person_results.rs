//! One row for each person and experiment, and the sums over these rows. A person's row is computed again from its
//! visitors whenever one of them or the membership changes; the old row is subtracted from the sums and the new one
//! added. A merge therefore turns two recipients into one, and an unlink turns one into two, at once and exactly.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{Micros, Millis};
use causeway_shared::base::limits;
use causeway_shared::base::packed::{self, PackedReader};
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::base::time::{DAY_MS, HOUR_MS, HourStamp};
use causeway_shared::facts::exposures::FirstExposure;
use causeway_shared::facts::fact::PURCHASE;
use rusqlite::{Connection, OptionalExtension as _};

use super::of_person;
use crate::base::integers::{signed, unsigned};
use crate::campaigns::catalogue::CountedConversions;
use crate::identity::changes::LinkChanges;
use crate::store::tables::{experiment_delays, experiment_hours, experiment_people, people, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{CheckedBytes, PersonNo, StoreError, TenantNo, VisitorRow};

/// Stored in place of an arm's code for people who saw several arms, by the arm that they saw first; results leave
/// these people out. Codes of arms are positive, these values negative.
#[must_use]
pub const fn mixed_arm(first: u8) -> i64 {
    -1 - first as i64
}

/// Whether a stored arm is a value of [`mixed_arm`].
#[must_use]
pub const fn is_mixed(arm: i64) -> bool {
    arm < 0
}

/// Delays of this number of hours (30 days) or more are counted together.
pub const DELAY_HOURS: u64 = 720;

/// Result of a person in one experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PersonResult {
    arm: i64,
    exposed: Millis,
    converted: Option<Millis>,
    /// Number and revenue of conversions, by hour.
    pub(super) hours: BTreeMap<HourStamp, (i64, Micros)>,
}

/// Updates the people that changed in this transaction: the people of the visitors in `tested` (rows with new exposures
/// or conversions), and the people in `linked`.
///
/// # Errors
/// [`StoreError`]; the caller must roll the transaction back.
pub fn refresh_people(
    group: &WriteTxn<'_>,
    counted: &CountedConversions,
    tested: &[VisitorRow],
    linked: &LinkChanges,
) -> Result<(), StoreError> {
    let merged = planted::is_active(PlantedBug::AMergeKeepsTwoRecipients);
    let mut changed: BTreeSet<PersonNo> = if merged { BTreeSet::new() } else { linked.rows.clone() };
    for row in tested {
        changed.insert(PersonNo(
            group.tx.prepare_cached(visitors::VISITORS_PERSON_OF_ROW)?.query_row([row], |row| row.get(0))?,
        ));
    }
    for (tenant, visitor) in &linked.withdrawn {
        let key = (tenant.0, visitor.as_bytes());
        changed.extend(
            group
                .tx
                .prepare_cached(visitors::VISITORS_PERSON_OF_ID)?
                .query_row(key, |row| row.get(0).map(PersonNo))
                .optional()?,
        );
    }
    changed.into_iter().try_for_each(|person| person_changed(group.tx, counted, person).map(drop))
}

/// Computes a person's rows again and corrects the sums. Returns whether a row changed.
pub(super) fn person_changed(
    conn: &Connection,
    counted: &CountedConversions,
    person: PersonNo,
) -> Result<bool, StoreError> {
    let before = stored_results(conn, person)?;
    let row = |row: &rusqlite::Row<'_>| Ok((TenantNo(row.get(0)?), row.get::<_, u32>(1)?));
    let found = conn.prepare_cached(people::PEOPLE_TENANT_AND_DEVICES)?.query_row([person.0], row).optional()?;
    let tenant = found.map(|(tenant, _)| tenant);
    if tenant.is_some_and(|tenant| counted.is_unreadable(tenant)) {
        // The tenant's conversions are unknown. The job `rollup` computes the row when they can be read.
        return Ok(false);
    }
    let after = match found {
        // An oversized group is a shared login whose arms say nothing about a person.
        Some((tenant, devices)) if devices <= limits::GROUP_LIMIT => {
            compute_results(conn, &counted.of(tenant).of, person)?
        }
        _ => BTreeMap::new(),
    };
    for ((tenant, experiment), row) in &before {
        if after.get(experiment) != Some(row) {
            add(conn, *tenant, *experiment, row, -1)?;
            conn.prepare_cached(experiment_people::EXPERIMENT_PEOPLE_DELETE)?.execute((person.0, experiment))?;
        }
    }
    let Some(tenant) = tenant else { return Ok(!before.is_empty()) };
    let same = |(experiment, row): &(&u32, &PersonResult)| before.get(&(tenant, **experiment)) == Some(row);
    let is_changed = before.len() != after.len() || !after.iter().all(|of| same(&of));
    for (experiment, row) in &after {
        if !same(&(experiment, row)) {
            add(conn, tenant, *experiment, row, 1)?;
            let PersonResult { arm, exposed, converted, hours } = row;
            let converted = converted.map(signed);
            let values =
                (person.0, experiment, tenant.0, arm, signed(*exposed), converted, CheckedBytes(pack_hours(hours)));
            conn.prepare_cached(experiment_people::EXPERIMENT_PEOPLE_REPLACE)?.execute(values)?;
        }
    }
    Ok(is_changed)
}

/// A person's stored results, by tenant and experiment.
pub(super) fn stored_results(
    conn: &Connection,
    person: PersonNo,
) -> Result<BTreeMap<(TenantNo, u32), PersonResult>, StoreError> {
    let mut statement = conn.prepare_cached(experiment_people::EXPERIMENT_PEOPLE_OF_PERSON)?;
    let mut rows = statement.query([person.0])?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (key, of) = row_of(row)?;
        found.insert(key, of);
    }
    Ok(found)
}

/// Passes all stored rows to `each`.
pub(super) fn for_each_person<E: From<StoreError>>(
    conn: &Connection,
    mut each: impl FnMut((TenantNo, u32), &PersonResult) -> Result<(), E>,
) -> Result<(), E> {
    let mut statement = conn.prepare(experiment_people::EXPERIMENT_PEOPLE_ALL).map_err(StoreError::from)?;
    let mut rows = statement.query([]).map_err(StoreError::from)?;
    while let Some(row) = rows.next().map_err(StoreError::from)? {
        let (key, of) = row_of(row)?;
        each(key, &of)?;
    }
    Ok(())
}

fn row_of(row: &rusqlite::Row<'_>) -> Result<((TenantNo, u32), PersonResult), StoreError> {
    // The row is computed again with the person's next fact, and the job `rollup` corrects the sums.
    let hours = CheckedBytes::open_column(row.get_ref(5)?).ok().and_then(unpack_hours).unwrap_or_else(|| {
        tracing::error!("a person's stored conversions cannot be read and are counted again");
        BTreeMap::new()
    });
    let converted: Option<i64> = row.get(4)?;
    let exposed = unsigned(row.get(3)?);
    let of = PersonResult { arm: row.get(2)?, exposed, converted: converted.map(unsigned), hours };
    Ok(((TenantNo(row.get(0)?), row.get(1)?), of))
}

/// Computes a person's results from the event that each experiment counts. A conversion counts once, by its earliest
/// event: see [`conversions_of`].
fn compute_results(
    conn: &Connection,
    counted: &BTreeMap<u32, String>,
    person: PersonNo,
) -> Result<BTreeMap<u32, PersonResult>, StoreError> {
    let row = |FirstExposure { arm, at, mixed: is_in_several }| PersonResult {
        arm: if is_in_several { mixed_arm(arm) } else { i64::from(arm) },
        exposed: at,
        converted: None,
        hours: BTreeMap::new(),
    };
    let exposures = of_person(conn, person)?;
    let mut found: BTreeMap<u32, PersonResult> =
        exposures.iter().map(|(code, exposure)| (code, row(exposure))).collect();
    if found.is_empty() {
        return Ok(found);
    }
    for Conversion { received, name, value } in conversions_of(conn, person)? {
        let counts = |code: &u32, row: &PersonResult| {
            counted.get(code).is_some_and(|of| *of == name) && !is_mixed(row.arm) && received >= row.exposed
        };
        for (_, row) in found.iter_mut().filter(|(code, row)| counts(code, row)) {
            row.converted = Some(row.converted.map_or(received, |there| there.min(received)));
            let (count, revenue) = row.hours.entry(HourStamp::at(received)).or_default();
            (*count, *revenue) = (*count + 1, revenue.saturating_add(value));
        }
    }
    Ok(found)
}

/// A conversion of a person.
struct Conversion {
    received: Millis,
    name: String,
    value: Micros,
}

/// The conversions of a person in order of receipt, including those before an exposure. Events with the same name and
/// number are one conversion, which counts at its earliest event. For purchases of one order this holds for ever, for
/// other events within a UTC day.
fn conversions_of(conn: &Connection, person: PersonNo) -> Result<Vec<Conversion>, StoreError> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut statement = conn.prepare_cached(visitors::VISITORS_CONVERSIONS_OF_PERSON)?;
    let mut rows = statement.query([person.0])?;
    while let Some(row) = rows.next()? {
        let (received, name): (Millis, String) = (unsigned(row.get(0)?), row.get(1)?);
        let day = (name != PURCHASE).then_some(received / DAY_MS);
        if seen.insert((name.clone(), row.get::<_, i64>(3)?, day)) {
            found.push(Conversion { received, name, value: Micros::new(row.get(2)?) });
        }
    }
    Ok(found)
}

/// Sums of one hour, in the order of the columns of `experiment_hours`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HourSums {
    /// People whose first exposure is in the hour: the cohort.
    pub exposed: i64,
    /// People of the cohort who converted at any time.
    pub cohort_converted: i64,
    /// Conversions of the cohort.
    pub cohort_conversions: i64,
    /// Revenue of the cohort's conversions.
    pub cohort_revenue: Micros,
    /// People whose first conversion is in the hour.
    pub converted: i64,
    /// Conversions in the hour.
    pub conversions: i64,
    /// Revenue of the conversions in the hour.
    pub revenue: Micros,
}

impl HourSums {
    /// Adds the other sums, or subtracts them if `sign` is -1. Overflow wraps, so that a subtraction always undoes an
    /// addition, even with absurd revenues.
    #[must_use]
    pub fn plus(self, sign: i64, other: Self) -> Self {
        let plus = |a: i64, b: i64| a.wrapping_add(b.wrapping_mul(sign));
        let revenue = |a: Micros, b: Micros| Micros::new(plus(a.get(), b.get()));
        Self {
            exposed: plus(self.exposed, other.exposed),
            cohort_converted: plus(self.cohort_converted, other.cohort_converted),
            cohort_conversions: plus(self.cohort_conversions, other.cohort_conversions),
            cohort_revenue: revenue(self.cohort_revenue, other.cohort_revenue),
            converted: plus(self.converted, other.converted),
            conversions: plus(self.conversions, other.conversions),
            revenue: revenue(self.revenue, other.revenue),
        }
    }
}

/// Adds a person's row to the sums, or subtracts it.
fn add(conn: &Connection, tenant: TenantNo, experiment: u32, row: &PersonResult, sign: i64) -> Result<(), StoreError> {
    let (hours, delay) = row.adds(tenant, experiment);
    hours.into_iter().try_for_each(|(place, sums)| add_hour(conn, place, sums, sign))?;
    delay.map_or(Ok(()), |delay| add_delay(conn, delay, sign))
}

/// Key of a sum: tenant, experiment, arm, hour.
pub(super) type Place = (i64, u32, i64, u32);
/// Key of a delay count: tenant, experiment, hour of the first exposure, hours until the conversion.
pub(super) type Delay = (i64, u32, u32, i64);

impl PersonResult {
    /// The contributions of a person to the sums.
    pub(super) fn adds(
        &self,
        TenantNo(tenant): TenantNo,
        experiment: u32,
    ) -> (BTreeMap<Place, HourSums>, Option<Delay>) {
        let mut hours: BTreeMap<HourStamp, HourSums> = BTreeMap::new();
        for (hour, (conversions, revenue)) in &self.hours {
            hours.insert(*hour, HourSums { conversions: *conversions, revenue: *revenue, ..HourSums::default() });
        }
        let exposed = HourStamp::at(self.exposed);
        let cohort = hours.entry(exposed).or_default();
        cohort.exposed = 1;
        cohort.cohort_converted = i64::from(self.converted.is_some());
        cohort.cohort_conversions = self.hours.values().map(|(count, _)| count).sum();
        cohort.cohort_revenue = self.hours.values().fold(Micros::ZERO, |sum, (_, revenue)| sum.wrapping_add(*revenue));
        let delay = self.converted.map(|at| {
            hours.entry(HourStamp::at(at)).or_default().converted = 1;
            let delay = (at.saturating_sub(self.exposed) / HOUR_MS).min(DELAY_HOURS);
            (tenant, experiment, exposed.0, signed(delay))
        });
        let places = hours.into_iter().map(|(HourStamp(hour), sums)| ((tenant, experiment, self.arm, hour), sums));
        (places.collect(), delay)
    }
}

/// Adds to the sums of an hour. A row that becomes zero is deleted.
pub(super) fn add_hour(conn: &Connection, place: Place, sums: HourSums, sign: i64) -> Result<(), StoreError> {
    let before = conn
        .prepare_cached(experiment_hours::EXPERIMENT_HOURS_BY_KEY)?
        .query_row(place, sums_of)
        .optional()?
        .unwrap_or_default();
    let after = before.plus(sign, sums);
    if after == HourSums::default() {
        conn.prepare_cached(experiment_hours::EXPERIMENT_HOURS_DELETE)?.execute(place)?;
        return Ok(());
    }
    let ((tenant, experiment, arm, hour), of) = (place, after);
    conn.prepare_cached(experiment_hours::EXPERIMENT_HOURS_REPLACE)?.execute((
        tenant,
        experiment,
        arm,
        hour,
        of.exposed,
        of.cohort_converted,
        of.cohort_conversions,
        of.cohort_revenue.get(),
        of.converted,
        of.conversions,
        of.revenue.get(),
    ))?;
    Ok(())
}

fn sums_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<HourSums> {
    Ok(HourSums {
        exposed: row.get(0)?,
        cohort_converted: row.get(1)?,
        cohort_conversions: row.get(2)?,
        cohort_revenue: Micros::new(row.get(3)?),
        converted: row.get(4)?,
        conversions: row.get(5)?,
        revenue: Micros::new(row.get(6)?),
    })
}

/// The sums of an experiment, by arm (with [`mixed_arm`] values) and hour.
///
/// # Errors
/// [`StoreError`].
pub fn load_sums(
    conn: &Connection,
    tenant: TenantNo,
    experiment: u32,
) -> Result<BTreeMap<i64, BTreeMap<HourStamp, HourSums>>, StoreError> {
    let mut statement = conn.prepare_cached(experiment_hours::EXPERIMENT_HOURS_OF_EXPERIMENT)?;
    let mut rows = statement.query((tenant.0, experiment))?;
    let mut found: BTreeMap<i64, BTreeMap<HourStamp, HourSums>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        found.entry(row.get(7)?).or_default().insert(HourStamp(row.get(8)?), sums_of(row)?);
    }
    Ok(found)
}

/// Passes all sums to `each`.
pub(super) fn each_sum(conn: &Connection, mut each: impl FnMut(Place, HourSums)) -> Result<(), StoreError> {
    let mut statement = conn.prepare(experiment_hours::EXPERIMENT_HOURS_ALL)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each((row.get(7)?, row.get(8)?, row.get(9)?, row.get(10)?), sums_of(row)?);
    }
    Ok(())
}

/// Passes all delay counts to `each`.
pub(super) fn each_delay(conn: &Connection, mut each: impl FnMut(Delay, i64)) -> Result<(), StoreError> {
    let mut statement = conn.prepare(experiment_delays::EXPERIMENT_DELAYS_ALL)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?), row.get(4)?);
    }
    Ok(())
}

/// Adds people to a delay count. A row that becomes zero is deleted.
pub(super) fn add_delay(conn: &Connection, place: Delay, people: i64) -> Result<(), StoreError> {
    let (tenant, experiment, hour, delay) = place;
    conn.prepare_cached(experiment_delays::EXPERIMENT_DELAYS_ADD_PEOPLE)?
        .execute((tenant, experiment, hour, delay, people))?;
    conn.prepare_cached(experiment_delays::EXPERIMENT_DELAYS_DELETE_IF_ZERO)?.execute(place)?;
    Ok(())
}

/// Packs each hour's distance from the previous one, number of conversions, and revenue.
fn pack_hours(hours: &BTreeMap<HourStamp, (i64, Micros)>) -> Vec<u8> {
    let mut to = Vec::new();
    let mut before = 0;
    for (HourStamp(hour), (count, revenue)) in hours {
        packed::put(&mut to, u64::from(hour - before));
        packed::put(&mut to, unsigned(*count));
        packed::put_signed(&mut to, revenue.get());
        before = *hour;
    }
    to
}

fn unpack_hours(bytes: &[u8]) -> Option<BTreeMap<HourStamp, (i64, Micros)>> {
    let mut from = PackedReader(bytes);
    let mut hours = BTreeMap::new();
    let mut hour = 0_u32;
    while !from.is_empty() {
        hour = hour.checked_add(u32::try_from(from.number()?).ok()?)?;
        hours.insert(HourStamp(hour), (i64::try_from(from.number()?).ok()?, Micros::new(from.signed()?)));
    }
    Some(hours)
}
