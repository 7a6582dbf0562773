//! Activity histograms: the hours of the week at which a person is active, from the store, and those of all people of a
//! tenant, which the job `activity` sums. The statistics are in `causeway_shared::profiles::activity`, the time zones
//! in [`crate::base::time_zones`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::facts::attributes::{AttributeMap, AttributeValue, NameToken, ValueKind};
use causeway_shared::facts::segments::WriteStamp;
use causeway_shared::profiles::activity::{
    ActivityHistogram, BestSendTime, BestSendTimeSource, HOURS, PersonHabits, PopulationActivity, PriorActivity,
    UtcOffset, ZoneOffsets,
};
use causeway_shared::profiles::profile::Profile;
use causeway_shared::wire::profile;
use jiff::tz::TimeZone;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::base::integers::signed;
use crate::base::time_zones;
use crate::store::tables::{activity_histograms, attribute_names, people, visitors};
use crate::store::tenants::{TenantContext, Tenants};
use crate::store::{CheckedBytes, PersonNo, StoreError, TenantNo, visitor_at};

/// Attribute that names a person's time zone.
pub const ZONE: &str = "time_zone";

/// Activity of a person, joined from its visitors.
#[derive(Debug, Clone, Default)]
pub struct PersonActivity {
    activity: ActivityHistogram,
    seen: Option<(Millis, Millis)>,
    /// Newest write of the person's time zone.
    zone: Option<(WriteStamp, Option<AttributeValue>)>,
}

impl PersonActivity {
    /// Adds a visitor. `zone` is the token of [`ZONE`].
    pub fn add(&mut self, profile: &Profile, attributes: &AttributeMap, zone: Option<NameToken>) {
        self.activity = self.activity.plus(profile.activity());
        let both =
            |(first, last): (Millis, Millis)| self.seen.map_or((first, last), |(a, b)| (a.min(first), b.max(last)));
        self.seen = profile.seen().map(both).or(self.seen);
        let written = attributes.writes().find(|(token, ..)| Some(*token) == zone);
        let written = written.map(|(_, stamp, value)| (stamp, value.cloned()));
        self.zone = self.zone.take().max(written);
    }

    /// Time range of the person's facts; `now` if it has none.
    fn recorded(&self, now: Millis) -> Range<Millis> {
        self.seen.map_or(now..now.saturating_add(1), |(first, last)| first..last.saturating_add(1))
    }
}

/// Reads a person's activity from its most recently active visitors. Returns `None` if no visitor is left.
///
/// # Errors
/// [`StoreError`].
pub fn read(
    conn: &Connection,
    person: PersonNo,
    everybody: &TenantHabits,
) -> Result<Option<PersonActivity>, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_ACTIVITY_OF_PERSON)?;
    let mut rows = statement.query([person.0])?;
    let mut found = None;
    while let Some(row) = rows.next()? {
        let core = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        let profile = profile::decode_profile(visitor_at(row, 2)?, core)?;
        let attributes = profile::decode_attributes(CheckedBytes::open_column(row.get_ref(1)?)?)?;
        found.get_or_insert_with(PersonActivity::default).add(&profile, &attributes, everybody.zone);
    }
    Ok(found)
}

/// Data for best send times that all people of a tenant share.
#[derive(Debug)]
pub struct TenantHabits {
    /// Token of [`ZONE`] if that is a string attribute.
    pub zone: Option<NameToken>,
    of_tenant: TimeZone,
    population: PopulationActivity,
    priors: BTreeMap<UtcOffset, PriorActivity>,
}

impl TenantHabits {
    /// Loads a tenant's data as the job stored it. The histogram is empty before the job's first run.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn load(conn: &Connection, tenant: &TenantContext) -> Result<Self, StoreError> {
        let hours = conn
            .prepare_cached(activity_histograms::ACTIVITY_HISTOGRAMS_HOURS_OF_TENANT)?
            .query_row([tenant.no.0], |row| row.get(0));
        let population = match hours.optional()? {
            Some(CheckedBytes(bytes)) => {
                decode_population(&bytes).ok_or(StoreError::Corrupt { what: "activity histogram of all people" })?
            }
            None => PopulationActivity::default(),
        };
        let place = (tenant.no.0, ZONE, ValueKind::String.code());
        let zone = conn
            .prepare_cached(attribute_names::ATTRIBUTE_NAMES_TOKEN_OF_NAME)?
            .query_row(place, |row| row.get(0).map(NameToken))
            .optional()?;
        let of_tenant = time_zones::find_zone(&tenant.config.time_zone).unwrap_or(TimeZone::UTC);
        Ok(Self { zone, of_tenant, population, priors: BTreeMap::new() })
    }

    /// The time zone that the person's attribute names, or the tenant's zone if there is no valid one.
    #[must_use]
    pub fn zone_of(&self, of: &PersonActivity) -> TimeZone {
        let named = match &of.zone {
            Some((_, Some(AttributeValue::String(name)))) => time_zones::find_zone(name),
            _ => None,
        };
        named.unwrap_or_else(|| self.of_tenant.clone())
    }

    /// A person's habits by hour of the week, and its zone's offsets from its first fact until `until`.
    pub fn habits(
        &mut self,
        of: &PersonActivity,
        zone: &TimeZone,
        now: Millis,
        until: Millis,
    ) -> (PersonHabits, ZoneOffsets) {
        let recorded = of.recorded(now);
        let offsets = time_zones::zone_offsets(zone, recorded.start.min(now)..recorded.end.max(until));
        let usual = offsets.usual(recorded);
        let prior = self.priors.entry(usual).or_insert_with(|| self.population.prior(usual));
        (prior.habits(&of.activity), offsets)
    }

    /// The person's own best send time at its current UTC offset, for its snapshot; `None` if only the histogram of all
    /// people would answer.
    pub fn best(&mut self, of: &PersonActivity, now: Millis) -> Option<BestSendTime> {
        let zone = self.zone_of(of);
        let (habits, offsets) = self.habits(of, &zone, now, now.saturating_add(1));
        let best = habits.best();
        (best.source == BestSendTimeSource::Person).then(|| best.edge(offsets.at(now)))
    }
}

/// Cache of best send times for the snapshots of one hand-out: each person and tenant is computed once.
#[derive(Debug, Default)]
pub struct BestSendTimeCache {
    tenants: BTreeMap<TenantNo, TenantHabits>,
    people: BTreeMap<PersonNo, Option<u16>>,
}

impl BestSendTimeCache {
    /// Stores the best send time that the visitor's next snapshot contains.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn store_best_send_time(
        &mut self,
        conn: &Connection,
        tenant: &TenantContext,
        visitor: VisitorId,
        now: Millis,
    ) -> Result<(), StoreError> {
        let Some((row, person, published)) = published_best(conn, tenant, visitor)? else { return Ok(()) };
        let best = self.best_of_person(conn, tenant, person, now)?;
        if best != published {
            conn.prepare_cached(visitors::VISITORS_SET_BEST)?.execute((row, best))?;
        }
        Ok(())
    }

    /// The best send time that the visitor's next snapshot contains, packed; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn compute_best_send_time(
        &mut self,
        conn: &Connection,
        tenant: &TenantContext,
        visitor: VisitorId,
        now: Millis,
    ) -> Result<Option<u16>, StoreError> {
        let Some((_, person, _)) = published_best(conn, tenant, visitor)? else { return Ok(None) };
        self.best_of_person(conn, tenant, person, now)
    }

    fn best_of_person(
        &mut self,
        conn: &Connection,
        tenant: &TenantContext,
        person: PersonNo,
        now: Millis,
    ) -> Result<Option<u16>, StoreError> {
        if let Some(best) = self.people.get(&person) {
            return Ok(*best);
        }
        let everybody = match self.tenants.entry(tenant.no) {
            Entry::Occupied(everybody) => everybody.into_mut(),
            Entry::Vacant(place) => place.insert(TenantHabits::load(conn, tenant)?),
        };
        let best = read(conn, person, everybody)?.and_then(|of| everybody.best(&of, now)).map(BestSendTime::pack);
        self.people.insert(person, best);
        Ok(best)
    }
}

/// Row and person of a visitor, and the best send time of its last snapshot; `None` for an unknown visitor.
fn published_best(
    conn: &Connection,
    tenant: &TenantContext,
    visitor: VisitorId,
) -> Result<Option<(i64, PersonNo, Option<u16>)>, StoreError> {
    let read = |row: &Row<'_>| Ok((row.get(0)?, PersonNo(row.get(1)?), row.get(2)?));
    let mut statement = conn.prepare_cached(visitors::VISITORS_BEST_OF_ID)?;
    Ok(statement.query_row((tenant.no.0, visitor.as_bytes()), read).optional()?)
}

fn decode_population(bytes: &[u8]) -> Option<PopulationActivity> {
    let (hours, rest) = bytes.as_chunks::<8>();
    let hours: Vec<u64> = hours.iter().map(|eight| u64::from_be_bytes(*eight)).collect();
    let hours: [u64; HOURS] = hours.try_into().ok()?;
    rest.is_empty().then(|| PopulationActivity::new(hours))
}

/// Activity of all people, while the job sums it.
#[derive(Debug, Default)]
pub struct ActivitySums {
    /// Number of people left out because their stored values cannot be read.
    pub unreadable: u64,
    /// Number of people read.
    pub people: u64,
    tenants: BTreeMap<TenantNo, TenantActivity>,
}

#[derive(Debug)]
struct TenantActivity {
    everybody: TenantHabits,
    population: PopulationActivity,
    people: u64,
}

impl ActivitySums {
    /// Adds at most `most` people after one. Returns the last person added; `None` after the last of all.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add(
        &mut self,
        conn: &Connection,
        tenants: &Tenants,
        after: PersonNo,
        most: u32,
    ) -> Result<Option<PersonNo>, StoreError> {
        let mut statement = conn.prepare_cached(people::PEOPLE_PAGE_WITH_TENANTS)?;
        let mut rows = statement.query((after.0, most))?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (person, no) = (PersonNo(row.get(0)?), TenantNo(row.get(1)?));
            last = Some(person);
            let Ok(tenant) = tenants.by_no(no) else { continue };
            let sum = match self.tenants.entry(no) {
                Entry::Occupied(sum) => sum.into_mut(),
                Entry::Vacant(place) => {
                    let everybody = TenantHabits::load(conn, tenant)?;
                    place.insert(TenantActivity { everybody, population: PopulationActivity::default(), people: 0 })
                }
            };
            self.people += 1;
            let of = match read(conn, person, &sum.everybody) {
                Err(e) if e.is_of_a_value() => {
                    tracing::error!(person = person.0, error = %crate::base::error_chain(&e), "a person cannot be read");
                    self.unreadable += 1;
                    continue;
                }
                of => of?,
            };
            if let Some(of) = of.filter(|of| of.seen.is_some()) {
                let recorded = of.recorded(0);
                let offsets = time_zones::zone_offsets(&sum.everybody.zone_of(&of), recorded.clone());
                sum.population.add(&of.activity, offsets.usual(recorded));
                sum.people += 1;
            }
        }
        Ok(last)
    }

    /// The job's report: the number of people, and the number of unreadable people if there are any.
    #[must_use]
    pub fn describe(&self) -> serde_json::Value {
        let mut report = serde_json::json!({ "people": self.people });
        if self.unreadable > 0 {
            report["unreadable"] = self.unreadable.into();
        }
        report
    }

    /// Stores the sums, and replaces the previous ones.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`]; the caller must roll the transaction back.
    pub fn keep(&self, tx: &Connection, now: Millis) -> Result<(), StoreError> {
        tx.execute(activity_histograms::ACTIVITY_HISTOGRAMS_DELETE_ALL, [])?;
        for (tenant, TenantActivity { population, people, .. }) in &self.tenants {
            let hours: Vec<u8> = population.hours().iter().flat_map(|hour| hour.to_be_bytes()).collect();
            tx.execute(
                activity_histograms::ACTIVITY_HISTOGRAMS_INSERT,
                (tenant.0, signed(*people), signed(now), CheckedBytes(hours)),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
