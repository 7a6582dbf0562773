//! One person as the store has it: the source of its row in the audience index, and the subject of an exact filter
//! check.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::audience::index::{IndexRow, PeopleMeasure};
use causeway_shared::base::bucket::{BucketPurpose, PersonRandom};
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::actions::{ActionType, PackedActions};
use causeway_shared::facts::attributes::{AttributeMap, AttributeValue, NameToken};
use causeway_shared::facts::events::{self, VisitorEvents};
use causeway_shared::facts::fact::PURCHASE;
use causeway_shared::facts::orders::find_repeats;
use causeway_shared::facts::segments::{self, PackedSegments, SegmentId};
use causeway_shared::profiles::profile::{MissingParts, ProfileTotals};
use causeway_shared::targeting::filter::{
    EventEvidence, Filter, FilterSubject, PersonGaps, PersonHistory, SubjectPerson,
};
use causeway_shared::wire::profile;
use rusqlite::{Connection, OptionalExtension as _};

use crate::base::integers::unsigned;
use crate::profiles::{buckets, parts};
use crate::store::tables::{people, visitors};
use crate::store::{CheckedBytes, PersonNo, StoreError, TenantNo, visitor_at};

/// Visitors of one person that are read: the most recently active.
const VISITORS: u32 = 1_000;

/// A person, with the joined data of its visitors. Withdrawn and erased visitors are left out.
#[derive(Debug)]
pub struct PersonRow {
    /// Tenant of the person.
    pub tenant: TenantNo,
    /// Its row in the store.
    pub person: PersonNo,
    /// Its oldest visitor.
    pub master: VisitorId,
    random: PersonRandom,
    devices: u32,
    totals: ProfileTotals,
    seen: Option<(Millis, Millis)>,
    attributes: Vec<(NameToken, AttributeValue)>,
    /// Packed segments, one entry for each visitor.
    segments: Vec<Vec<u8>>,
    actions: Vec<Vec<u8>>,
    events: Vec<VisitorEvents>,
    missing: MissingParts,
    /// Attributes whose values are certain, sorted; `None` if all are.
    certain_attributes: Option<Vec<NameToken>>,
}

/// Reads a person. Returns `None` if it does not exist or has no visitor left.
///
/// # Errors
/// [`StoreError`].
pub fn read(conn: &Connection, person: PersonNo) -> Result<Option<PersonRow>, StoreError> {
    // The limit covers all visitors of nearly every person.
    let visitors_of = visitors::visitors_content_of_person(VISITORS);
    let Some((tenant, master, devices, random)) = find_person(conn, person)? else { return Ok(None) };
    let (mut totals, mut seen, mut attributes) =
        (ProfileTotals::default(), None::<(Millis, Millis)>, AttributeMap::default());
    let (mut segments, mut actions, mut events, mut orders) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut certain = None;
    let mut statement = conn.prepare_cached(&visitors_of)?;
    let mut rows = statement.query([person.0])?;
    let mut is_empty = true;
    while let Some(row) = rows.next()? {
        is_empty = false;
        let core = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let profile = profile::decode_profile(visitor_at(row, 7)?, core)?;
        totals = totals.plus(profile.totals());
        orders.push(profile.orders().clone());
        let both = |(first, last): (Millis, Millis)| {
            seen.map_or((first, last), |(a, b): (Millis, Millis)| (a.min(first), b.max(last)))
        };
        seen = profile.seen().map(both).or(seen);
        segments.push(row.get::<_, CheckedBytes>(2)?.0);
        let own = profile::decode_attributes(CheckedBytes::open_column(row.get_ref(3)?)?)?;
        certain = intersect_sets(certain, own.is_full().then(|| own.writes().map(|(token, ..)| token).collect()));
        attributes = attributes.join(own);
        let bytes = CheckedBytes::open_column(row.get_ref(5)?)?;
        events.push(parts::stored_events(bytes, unsigned(row.get(6)?))?);
        if row.get::<_, i64>(4)? > 0 {
            actions.extend(buckets::actions_within(conn, row.get(0)?, Minute(0), Minute(u32::MAX))?);
        }
    }
    if is_empty {
        return Ok(None);
    }
    let repeats = find_repeats(&orders);
    totals = totals.without(repeats.iter().map(|(_, repeat)| repeat));
    for (place, repeat) in repeats {
        events.iter_mut().skip(place).take(1).for_each(|events| events.remove(PURCHASE, repeat.at));
    }
    // The joined map can be full although no visitor's map is.
    certain =
        intersect_sets(certain, attributes.is_full().then(|| attributes.writes().map(|(token, ..)| token).collect()));
    let missing = missing_parts(&segments, certain.is_some(), devices);
    let certain_attributes = certain.map(|certain| certain.into_iter().collect());
    let attributes = attributes.iter().map(|(token, value)| (token, value.clone())).collect();
    Ok(Some(PersonRow {
        tenant,
        person,
        master,
        random,
        devices,
        totals,
        seen,
        attributes,
        segments,
        actions,
        events,
        missing,
        certain_attributes,
    }))
}

/// Reads a person's tenant, oldest visitor, number of visitors, and random bits.
fn find_person(
    conn: &Connection,
    person: PersonNo,
) -> Result<Option<(TenantNo, VisitorId, u32, PersonRandom)>, StoreError> {
    let one = |row: &rusqlite::Row<'_>| {
        let (tenant, master) = (TenantNo(row.get(0)?), visitor_at(row, 1)?);
        Ok((tenant, master, row.get(2)?, PersonRandom(row.get(3)?)))
    };
    Ok(conn.prepare_cached(people::PEOPLE_TENANT_MASTER_AND_RANDOM)?.query_row([person.0], one).optional()?)
}

/// Reads a person whose stored values may be damaged. Such a person is left out and counted in `unreadable`, so that
/// answers about all other people continue.
///
/// # Errors
/// [`StoreError`] if the store itself failed.
pub fn read_if_whole(
    conn: &Connection,
    person: PersonNo,
    unreadable: &mut u64,
) -> Result<Option<PersonRow>, StoreError> {
    match read(conn, person) {
        Err(e) if e.is_of_a_value() => {
            tracing::error!(person = person.0, error = %crate::base::error_chain(&e), "a person cannot be read and is left out of audiences");
            *unreadable += 1;
            Ok(None)
        }
        read => read,
    }
}

/// The parts of a person that the store may lack. `is_full` says whether attributes may be among them.
fn missing_parts(segments: &[Vec<u8>], is_full: bool, devices: u32) -> MissingParts {
    MissingParts::ATTRIBUTES
        .when(is_full)
        .union(MissingParts::SEGMENTS.when(may_lack_segments(segments)))
        .union(MissingParts::ALL.when(segments.len() >= VISITORS as usize && devices > VISITORS))
}

/// Intersection of two sets, where `None` stands for all elements.
fn intersect_sets<T: Ord>(one: Option<BTreeSet<T>>, other: Option<BTreeSet<T>>) -> Option<BTreeSet<T>> {
    match (one, other) {
        (Some(one), Some(mut other)) => {
            other.retain(|name| one.contains(name));
            Some(other)
        }
        (one, other) => one.or(other),
    }
}

/// Whether older segment writes may have been dropped because of [`limits::SEGMENTS`], of one visitor or of the joined
/// person.
fn may_lack_segments(visitors: &[Vec<u8>]) -> bool {
    let packed: Vec<PackedSegments<'_>> = visitors.iter().filter_map(|bytes| PackedSegments::read(bytes)).collect();
    let written = || packed.iter().flat_map(|one| one.ids()).collect::<BTreeSet<_>>().len();
    packed.iter().any(|one| one.len() >= limits::SEGMENTS)
        || packed.iter().map(PackedSegments::len).sum::<usize>() >= limits::SEGMENTS && written() >= limits::SEGMENTS
}

impl PersonRow {
    /// Builds the person's row for the audience index and passes it to `put`.
    pub fn row<T>(&self, now: Millis, put: impl FnOnce(&IndexRow<'_>) -> T) -> T {
        let hour = HourStamp::at(now);
        let packed: Vec<PackedSegments<'_>> = self.packed_segments();
        let segments = segments::live_segments(&packed, hour);
        let ends = packed.iter().flat_map(|one| one.iter()).filter(|(_, expiry)| *expiry > hour);
        let mut acted: BTreeMap<ActionType, Minute> = BTreeMap::new();
        for action in self
            .actions
            .iter()
            .filter_map(|bytes| PackedActions::read(bytes))
            .flat_map(|one| one.iter().collect::<Vec<_>>())
        {
            let last = acted.entry(action.action_type).or_default();
            *last = action.minute.max(*last);
        }
        let actions: Vec<(ActionType, Minute)> = acted.into_iter().collect();
        let (events, more_events) = self.events();
        put(&IndexRow {
            person: unsigned(self.person.0),
            master: self.master,
            bucket: self.random.bucket(BucketPurpose::Sampling),
            devices: self.devices,
            seen: self.seen,
            totals: self.totals,
            attributes: &self.attributes,
            segments: &segments,
            expires: ends.map(|(_, expiry)| expiry).min(),
            events: &events,
            more_events,
            actions: &actions,
            missing: self.missing,
        })
    }

    /// The person's events with their total count and last time, and whether events exist that this list does not name.
    fn events(&self) -> (Vec<(&str, u64, Minute)>, bool) {
        let visitors: Vec<&VisitorEvents> = self.events.iter().collect();
        let names: BTreeSet<&str> = visitors.iter().flat_map(|one| one.iter()).map(|(name, _)| name).collect();
        let known = names.iter().filter_map(|name| {
            let last = visitors.iter().filter_map(|one| one.last(name)).max()?;
            Some((*name, events::total(&visitors, name).exact()?, last))
        });
        let known: Vec<_> = known.collect();
        let is_whole = visitors.iter().all(|one| one.gaps() == (Minute(0), false)) && known.len() == names.len();
        (known, !is_whole)
    }

    /// Whether the person matches a filter.
    #[must_use]
    pub fn matches_filter(&self, filter: &Filter, now: Millis) -> bool {
        let segments = segments::live_segments(&self.packed_segments(), HourStamp::at(now));
        let actions: Vec<PackedActions<'_>> =
            self.actions.iter().filter_map(|bytes| PackedActions::read(bytes)).collect();
        let events: Vec<&VisitorEvents> = self.events.iter().collect();
        let missing = self.missing;
        let history =
            PersonHistory { totals: self.totals, actions: &actions, events: EventEvidence::Events(&events), missing };
        let not_in = self.certainly_not_in(&segments);
        let person = SubjectPerson {
            attributes: &self.attributes,
            segments: &segments,
            devices: self.devices,
            seen: self.seen,
            best_now: None,
            gaps: (!missing.is_empty()).then(|| self.gaps(not_in.as_deref())),
        };
        let counts = filter.answers(&history, Minute::at(now));
        filter.matches(&FilterSubject { person: Some(person), counts: &counts, ..FilterSubject::default() })
    }

    /// The person's value of a measure; `None` if the person has none.
    #[must_use]
    pub fn measure(&self, of: PeopleMeasure) -> Option<i64> {
        let ProfileTotals { pages, sessions, purchases, revenue } = self.totals;
        let count = |count: u64| Some(i64::try_from(count).unwrap_or(i64::MAX));
        match of {
            PeopleMeasure::Revenue => Some(revenue.get()),
            PeopleMeasure::Purchases => count(purchases),
            PeopleMeasure::Pages => count(pages),
            PeopleMeasure::Sessions => count(sessions),
            PeopleMeasure::Devices => Some(self.devices.into()),
            PeopleMeasure::Attribute(token) => {
                let at = self.attributes.binary_search_by_key(&token, |(token, _)| *token).ok()?;
                match self.attributes.get(at)? {
                    (_, AttributeValue::Bool(yes)) => Some((*yes).into()),
                    (_, AttributeValue::Integer(whole)) => Some(*whole),
                    // Measures are sums of integers.
                    (_, AttributeValue::Float(finite)) => Some(finite.get().round() as i64),
                    _ => None,
                }
            }
        }
    }

    /// The data that is certain although parts are missing. `not_in` are the segments that the person is certainly not
    /// in.
    fn gaps<'a>(&'a self, not_in: Option<&'a [SegmentId]>) -> PersonGaps<'a> {
        if self.missing.overlaps(MissingParts::MEMBERS) {
            return PersonGaps { attributes: Some(&[]), segments: Some(&[]), members: true };
        }
        PersonGaps { attributes: self.certain_attributes.as_deref(), segments: not_in, members: false }
    }

    /// The segments that the person is certainly not in, sorted; `None` if that is every segment not in `held`. A
    /// visitor with dropped segment writes is still certain about the segments that it has a write of.
    fn certainly_not_in(&self, held: &[SegmentId]) -> Option<Vec<SegmentId>> {
        if !self.missing.overlaps(MissingParts::SEGMENTS) {
            return None;
        }
        let packed = self.packed_segments();
        let full = packed.iter().filter(|one| one.len() >= limits::SEGMENTS);
        let certain = full.fold(None, |certain, one| intersect_sets(certain, Some(one.ids().collect::<BTreeSet<_>>())));
        // No single visitor is full, but the joined person is: any segment may have been dropped.
        let certain = certain.unwrap_or_default();
        Some(certain.into_iter().filter(|id| held.binary_search(id).is_err()).collect())
    }

    fn packed_segments(&self) -> Vec<PackedSegments<'_>> {
        self.segments.iter().filter_map(|bytes| PackedSegments::read(bytes)).collect()
    }
}
