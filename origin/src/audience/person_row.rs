//! One person as the store has it, for its row in columns, and to ask a filter of it.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::actions::{PackedActions, Verb};
use causeway_shared::attributes::{AttributeMap, Token, Value};
use causeway_shared::bucket::{PersonRandom, Purpose};
use causeway_shared::columns::{Measure, Row};
use causeway_shared::events::{self, Events};
use causeway_shared::fact::PURCHASE;
use causeway_shared::filter::{Filter, History, Person, Subject, Told};
use causeway_shared::ids::{Millis, VisitorId};
use causeway_shared::orders::find_repeats;
use causeway_shared::profile::{MissingParts, Totals};
use causeway_shared::segments::{self, PackedSegments};
use causeway_shared::time::{HourStamp, Minute};
use causeway_shared::wire::profile;
use rusqlite::{Connection, OptionalExtension as _};

use crate::base::integers::unsigned;
use crate::profiles::buckets;
use crate::profiles::fold;
use crate::store::CheckedBytes;
use crate::store::PersonNo;
use crate::store::StoreError;
use crate::store::TenantNo;
use crate::store::visitor_at;

/// Visitors of one person that are read: the last active.
const VISITORS: u32 = 1_000;

/// A person, and what is known of its visitors together. Who withdrew or was erased is not among them.
#[derive(Debug)]
pub struct Someone {
    /// Whose identity space it belongs to.
    pub tenant: TenantNo,
    /// Its row in the store.
    pub person: PersonNo,
    /// Its oldest visitor.
    pub master: VisitorId,
    random: PersonRandom,
    devices: u32,
    totals: Totals,
    seen: Option<(Millis, Millis)>,
    attributes: Vec<(Token, Value)>,
    /// Packed, by visitor.
    segments: Vec<Vec<u8>>,
    actions: Vec<Vec<u8>>,
    events: Vec<Events>,
}

/// Reads one; `None` where there is none, or nobody of it is left.
///
/// # Errors
/// [`StoreError`].
pub fn read(conn: &Connection, person: PersonNo) -> Result<Option<Someone>, StoreError> {
    const PERSON: &str = "SELECT tenant, master, devices, random FROM people WHERE person = ?1";
    // The last active: of nearly everybody all. Bound, a limit has SQLite plan the statement anew each time.
    let visitors_of = format!(
        "SELECT row, profile, segments, attributes, actions, events, last_seen, visitor FROM visitors
        WHERE person = ?1 AND withdrawn IS NULL ORDER BY last_seen DESC LIMIT {VISITORS}"
    );
    let one = |row: &rusqlite::Row<'_>| {
        let (tenant, master) = (TenantNo(row.get(0)?), visitor_at(row, 1)?);
        Ok((tenant, master, row.get(2)?, PersonRandom(row.get(3)?)))
    };
    let found = conn.prepare_cached(PERSON)?.query_row([person.0], one).optional()?;
    let Some((tenant, master, devices, random)) = found else { return Ok(None) };
    let (mut totals, mut seen, mut attributes) = (Totals::default(), None::<(Millis, Millis)>, AttributeMap::default());
    let (mut segments, mut actions, mut events, mut orders) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut statement = conn.prepare_cached(&visitors_of)?;
    let mut rows = statement.query([person.0])?;
    let mut is_empty = true;
    while let Some(row) = rows.next()? {
        is_empty = false;
        let core = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let profile = profile::decode(visitor_at(row, 7)?, core)?;
        totals = totals.plus(profile.totals());
        orders.push(profile.orders().clone());
        let both = |(first, last): (Millis, Millis)| {
            seen.map_or((first, last), |(a, b): (Millis, Millis)| (a.min(first), b.max(last)))
        };
        seen = profile.seen().map(both).or(seen);
        segments.push(row.get::<_, CheckedBytes>(2)?.0);
        attributes = attributes.join(profile::attributes(CheckedBytes::open_column(row.get_ref(3)?)?)?);
        let bytes = CheckedBytes::open_column(row.get_ref(5)?)?;
        events.push(fold::stored_events(bytes, unsigned(row.get(6)?))?);
        if row.get::<_, i64>(4)? > 0 {
            actions.extend(buckets::within(conn, row.get(0)?, Minute(0), Minute(u32::MAX))?);
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
    let attributes = attributes.iter().map(|(token, value)| (token, value.clone())).collect();
    Ok(Some(Someone { tenant, person, master, random, devices, totals, seen, attributes, segments, actions, events }))
}

impl Someone {
    /// Its row in columns.
    pub fn row<T>(&self, now: Millis, put: impl FnOnce(&Row<'_>) -> T) -> T {
        let hour = HourStamp::at(now);
        let packed: Vec<PackedSegments<'_>> = self.packed_segments();
        let segments = segments::live(&packed, hour);
        let ends = packed.iter().flat_map(|one| one.iter()).filter(|(_, expiry)| *expiry > hour);
        let mut acted: BTreeMap<Verb, Minute> = BTreeMap::new();
        for action in self
            .actions
            .iter()
            .filter_map(|bytes| PackedActions::read(bytes))
            .flat_map(|one| one.iter().collect::<Vec<_>>())
        {
            let last = acted.entry(action.verb).or_default();
            *last = action.minute.max(*last);
        }
        let actions: Vec<(Verb, Minute)> = acted.into_iter().collect();
        let (events, more_events) = self.events();
        put(&Row {
            person: unsigned(self.person.0),
            master: self.master,
            bucket: self.random.bucket(Purpose::Sampling),
            devices: self.devices,
            seen: self.seen,
            totals: self.totals,
            attributes: &self.attributes,
            segments: &segments,
            expires: ends.map(|(_, expiry)| expiry).min(),
            events: &events,
            more_events,
            actions: &actions,
        })
    }

    /// What it did: how often in all, and when last; and whether there is more that these do not name.
    fn events(&self) -> (Vec<(&str, u64, Minute)>, bool) {
        let visitors: Vec<&Events> = self.events.iter().collect();
        let names: BTreeSet<&str> = visitors.iter().flat_map(|one| one.iter()).map(|(name, _)| name).collect();
        let known = names.iter().filter_map(|name| {
            let last = visitors.iter().filter_map(|one| one.last(name)).max()?;
            Some((*name, events::total(&visitors, name).exact()?, last))
        });
        let known: Vec<_> = known.collect();
        let is_whole = visitors.iter().all(|one| one.gaps() == (Minute(0), false)) && known.len() == names.len();
        (known, !is_whole)
    }

    /// Whether a filter means it.
    #[must_use]
    pub fn is_meant(&self, filter: &Filter, now: Millis) -> bool {
        let segments = segments::live(&self.packed_segments(), HourStamp::at(now));
        let actions: Vec<PackedActions<'_>> =
            self.actions.iter().filter_map(|bytes| PackedActions::read(bytes)).collect();
        let events: Vec<&Events> = self.events.iter().collect();
        let missing = self.missing();
        let history = History { totals: self.totals, actions: &actions, events: Told::Events(&events), missing };
        let person = Person {
            attributes: &self.attributes,
            segments: &segments,
            devices: self.devices,
            seen: self.seen,
            best_now: None,
            gaps: (!missing.is_empty()).then_some(Person::UNREAD.gaps).flatten(),
        };
        let counts = filter.answers(&history, Minute::at(now));
        filter.matches(&Subject { person: Some(person), counts: &counts, ..Subject::default() })
    }

    /// What it comes to; `None` where that is not there.
    #[must_use]
    pub fn measure(&self, of: Measure) -> Option<i64> {
        let Totals { pages, sessions, purchases, revenue } = self.totals;
        let count = |count: u64| Some(i64::try_from(count).unwrap_or(i64::MAX));
        match of {
            Measure::Revenue => Some(revenue),
            Measure::Purchases => count(purchases),
            Measure::Pages => count(pages),
            Measure::Sessions => count(sessions),
            Measure::Devices => Some(self.devices.into()),
            Measure::Attribute(token) => {
                let at = self.attributes.binary_search_by_key(&token, |(token, _)| *token).ok()?;
                match self.attributes.get(at)? {
                    (_, Value::Bool(yes)) => Some((*yes).into()),
                    (_, Value::Integer(whole)) => Some(*whole),
                    // Sums are of whole numbers.
                    (_, Value::Float(finite)) => Some(finite.get().round() as i64),
                    _ => None,
                }
            }
        }
    }

    /// What may be missing of it: of a person with more visitors than are read here, some are.
    fn missing(&self) -> MissingParts {
        let read = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        MissingParts::ALL.when(read >= VISITORS && self.devices > read)
    }

    fn packed_segments(&self) -> Vec<PackedSegments<'_>> {
        self.segments.iter().filter_map(|bytes| PackedSegments::read(bytes)).collect()
    }
}
