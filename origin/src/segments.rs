//! A visitor's segments, as the admin side reads and writes them (seed 2; by any id, S5.1). A write is a fact like any
//! other: it is in the store once it is acknowledged.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use causeway_shared::fact::{Fact, FactError, What};
use causeway_shared::ids::{AlternateId, FactId, Millis, VisitorId};
use causeway_shared::limits;
use causeway_shared::segments::{SegmentId, SegmentMap, Stamp, State};
use causeway_shared::time::HourStamp;
use causeway_shared::wire::facts;
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::intake::{Checked, Incoming};
use crate::link::canonical;
use crate::read;
use crate::store::{StoreError, TenantNo};
use crate::tenants::Known;

/// Whose segments are meant.
#[derive(Debug, Clone)]
pub enum Whose {
    /// A visitor's.
    Visitor(VisitorId),
    /// The visitor's last seen with an alternate id: its kind's name and its raw value.
    Lookup(String, String),
}

/// What is written.
#[derive(Debug, Clone, Deserialize)]
pub struct Write {
    /// Segments the visitor is in from now on.
    #[serde(default)]
    pub set: Vec<Set>,
    /// Segments it is no longer in.
    #[serde(default)]
    pub remove: Vec<u32>,
}

/// A segment the visitor is in.
#[derive(Debug, Clone, Deserialize)]
pub struct Set {
    /// The segment.
    pub segment: u32,
    /// Until when; to the end of that hour.
    pub expires_ms: Millis,
    /// Up to four small attributes by token.
    #[serde(default)]
    pub attributes: BTreeMap<u16, i32>,
}

/// What is asked of the segments.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// Those that expire from a time to before another.
    Expiring(Span),
    /// Those that do not.
    NotExpiring(Span),
    /// Those written last.
    Newest(usize),
    /// How many there are of a range of ids, both ends among them.
    Count(Ids),
}

/// Two times in milliseconds since the Unix epoch, counted in whole hours.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Span {
    /// From.
    pub from_ms: Millis,
    /// To, not itself counted.
    pub to_ms: Millis,
}

/// A range of ids.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Ids {
    /// The first.
    pub from: u32,
    /// The last.
    pub to: u32,
}

/// The visitor meant; `None` when there is none, or it withdrew.
///
/// # Errors
/// [`StoreError`].
pub fn find(conn: &Connection, tenant: &Known, whose: &Whose) -> Result<Option<read::Visitor>, StoreError> {
    let id = match whose {
        Whose::Visitor(id) => Some(*id),
        Whose::Lookup(kind, value) => by_alternate(conn, tenant, kind, value)?,
    };
    let found = id.map(|id| read::visitor(conn, tenant.no, id)).transpose()?.flatten();
    Ok(found.filter(|visitor| visitor.withdrawn.is_none()))
}

fn by_alternate(conn: &Connection, tenant: &Known, kind: &str, value: &str) -> Result<Option<VisitorId>, StoreError> {
    let Some(kind) = tenant.config.kind(kind).filter(|_| value.len() <= limits::ALTERNATE_ID_BYTES) else {
        return Ok(None);
    };
    for hash in tenant.keys.alternate.hash_alternate(kind.code(), value) {
        let Some(id) = canonical(conn, tenant.no, AlternateId { kind: kind.code(), hash })? else { continue };
        let newest = read::lookup(conn, tenant.no, id)?.and_then(|found| found.visitors.first().copied());
        if newest.is_some() {
            return Ok(newest);
        }
    }
    Ok(None)
}

/// The visitor's own segments, and those of its person.
///
/// # Errors
/// [`StoreError`].
pub fn describe(conn: &Connection, visitor: &read::Visitor) -> Result<Value, StoreError> {
    let members = read::members(conn, visitor.person, limits::PERSON_VISITORS)?;
    let person =
        members.into_iter().map(|m| m.profile.segments().clone()).fold(SegmentMap::default(), SegmentMap::join);
    Ok(json!({
        "visitor": visitor.visitor.to_string(),
        "own": list(visitor.profile.segments()),
        "view": list(&person),
    }))
}

fn list(map: &SegmentMap) -> Vec<Value> {
    let all = map.not_expiring(HourStamp(0)..HourStamp(0));
    all.map(|(id, expiry)| one(map, id, expiry)).collect()
}

fn one(map: &SegmentMap, id: SegmentId, expiry: HourStamp) -> Value {
    let attributes: BTreeMap<String, i32> =
        map.get(id).into_iter().flat_map(|(_, of)| of).map(|(token, value)| (token.to_string(), *value)).collect();
    json!({ "segment": id.0, "expires_ms": expiry.start_ms(), "attributes": attributes })
}

/// Answers a query over the visitor's own segments.
#[must_use]
pub fn answer(map: &SegmentMap, query: &Query) -> Value {
    let hours = |span: &Span| HourStamp::at(span.from_ms)..HourStamp::at(span.to_ms);
    match query {
        Query::Expiring(span) => {
            json!({ "segments": map.expiring(hours(span)).map(|(id, e)| one(map, id, e)).collect::<Vec<_>>() })
        }
        Query::NotExpiring(span) => {
            json!({ "segments": map.not_expiring(hours(span)).map(|(id, e)| one(map, id, e)).collect::<Vec<_>>() })
        }
        Query::Newest(count) => {
            json!({ "segments": map.newest(*count).into_iter().map(|id| id.0).collect::<Vec<_>>() })
        }
        Query::Count(ids) => json!({ "count": map.count(SegmentId(ids.from)..=SegmentId(ids.to)) }),
    }
}

/// The write as a fact of its own, checked; `id` is 16 random bytes.
///
/// # Errors
/// The bound that it breaks.
pub fn fact(
    tenant: &Known,
    visitor: VisitorId,
    write: &Write,
    now: Millis,
    id: [u8; 16],
) -> Result<Checked, FactError> {
    let set = |set: &Set| {
        let expiry = HourStamp::at(set.expires_ms.saturating_add(3_599_999));
        let bounded = set.attributes.len() <= limits::SEGMENT_ATTRIBUTES && expiry.0 <= limits::EXPIRY_HOURS;
        let attributes = set.attributes.iter().map(|(token, value)| (*token, *value));
        bounded.then(|| (SegmentId(set.segment), State::held(expiry, attributes))).ok_or(FactError::Expiry)
    };
    let removed = write.remove.iter().map(|id| Ok((SegmentId(*id), State::Removed)));
    let writes = write.set.iter().map(set).chain(removed).collect::<Result<_, _>>()?;
    checked(tenant.no, visitor, writes, now, id)
}

fn checked(
    tenant: TenantNo,
    visitor: VisitorId,
    writes: Vec<(SegmentId, State)>,
    now: Millis,
    id: [u8; 16],
) -> Result<Checked, FactError> {
    let fact = Fact { id: FactId::from_bytes(id), visitor, received: now, at: now, what: What::Segments { writes } };
    fact.check(now)?;
    Ok(Checked { tenant, body: facts::encode_one(&fact), fact })
}

/// Hours to be added to a segment's expiry in place (S2.2).
#[derive(Debug, Clone)]
pub struct Extend {
    /// Whose identity space it is.
    pub tenant: TenantNo,
    /// The visitor.
    pub visitor: VisitorId,
    /// The segment.
    pub segment: SegmentId,
    /// How many hours.
    pub hours: u32,
    /// The FactId of the write: 16 random bytes.
    pub id: [u8; 16],
}

/// Turns extensions into the writes they come to, within the writer's transaction: one that another of the same group
/// went before builds on it. An extension of a segment that the visitor is not in comes to nothing.
///
/// # Errors
/// [`StoreError`].
pub fn resolve<'a>(conn: &Connection, now: Millis, calls: &'a [Incoming]) -> Result<Cow<'a, [Incoming]>, StoreError> {
    if calls.iter().all(|call| call.extends.is_empty()) {
        return Ok(Cow::Borrowed(calls));
    }
    let mut maps: BTreeMap<(TenantNo, VisitorId), SegmentMap> = BTreeMap::new();
    let mut resolved = calls.to_vec();
    for call in &mut resolved {
        for extend in std::mem::take(&mut call.extends) {
            let map = match maps.entry((extend.tenant, extend.visitor)) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => {
                    let found = read::visitor(conn, extend.tenant, extend.visitor)?;
                    place.insert(found.map(|visitor| visitor.profile.segments().clone()).unwrap_or_default())
                }
            };
            call.facts.extend(extended(map, &extend, now));
        }
    }
    Ok(Cow::Owned(resolved))
}

fn extended(map: &mut SegmentMap, extend: &Extend, now: Millis) -> Option<Checked> {
    let Extend { tenant, visitor, segment, hours, id } = *extend;
    let stamp = Stamp::of(FactId::from_bytes(id), now);
    if !map.extend(segment, hours, stamp) {
        return None;
    }
    let (expiry, attributes) = map.get(segment)?;
    let writes = vec![(segment, State::held(expiry, attributes.iter().copied()))];
    checked(tenant, visitor, writes, now, id).ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, page, visitor};

    const HOUR: u64 = 3_600_000;

    fn write(text: &str) -> Write {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn s5_01_segments_are_written_and_read_by_visitor_and_by_alternate_id() {
        let mut origin = Origin::new();
        let (a, b) = (visitor(1), visitor(2));
        let logins = [origin.login(a, 1, NOW - 2, "ann"), origin.login(b, 2, NOW - 1, "ann"), page(a, 3, NOW)];
        origin.send("demo", &logins);
        let known = origin.tenant("demo").clone();
        let set =
            format!(r#"{{"set": [{{"segment": 8457, "expires_ms": {}, "attributes": {{"3": 9}}}}]}}"#, NOW + HOUR);
        let fact = fact(&known, a, &write(&set), NOW, [1; 16]).unwrap();
        let answers = origin.take(&[Incoming { facts: vec![fact], ..Incoming::default() }]);
        assert_eq!(answers[0].accepted, 1);
        let by_member =
            find(&origin.conn, &known, &Whose::Lookup("member".to_owned(), "ann".to_owned())).unwrap().unwrap();
        assert_eq!(by_member.visitor, b);
        let shown = describe(&origin.conn, &by_member).unwrap();
        assert_eq!((shown["own"].as_array().unwrap().len(), shown["view"][0]["segment"].clone()), (0, json!(8457)));
        assert_eq!(shown["view"][0]["attributes"], json!({ "3": 9 }));
        let own = find(&origin.conn, &known, &Whose::Visitor(a)).unwrap().unwrap();
        let ask = |text: &str| answer(own.profile.segments(), &serde_json::from_str(text).unwrap());
        assert_eq!(ask(r#"{"count": {"from": 8000, "to": 9000}}"#), json!({ "count": 1 }));
        assert_eq!(ask(r#"{"newest": 5}"#), json!({ "segments": [8457] }));
        let span = format!(r#"{{"from_ms": {NOW}, "to_ms": {}}}"#, NOW + 3 * HOUR);
        assert_eq!(ask(&format!(r#"{{"expiring": {span}}}"#))["segments"][0]["segment"], 8457);
        assert_eq!(ask(&format!(r#"{{"not_expiring": {span}}}"#)), json!({ "segments": [] }));
    }

    #[test]
    fn s2_02_two_extensions_of_one_group_add_up() {
        let mut origin = Origin::new();
        let known = origin.tenant("demo").clone();
        let set = format!(r#"{{"set": [{{"segment": 7, "expires_ms": {}}}]}}"#, NOW + HOUR);
        let fact = fact(&known, visitor(1), &write(&set), NOW - 1, [1; 16]).unwrap();
        origin.take(&[Incoming { facts: vec![fact], ..Incoming::default() }]);
        let before = origin.profile("demo", visitor(1)).segments().get(SegmentId(7)).unwrap().0;
        let extend = |segment, hours, n| {
            let (tenant, visitor, segment) = (known.no, visitor(1), SegmentId(segment));
            Incoming { extends: vec![Extend { tenant, visitor, segment, hours, id: [n; 16] }], ..Incoming::default() }
        };
        let answers = origin.take(&[extend(7, 24, 2), extend(7, 24, 3), extend(8, 24, 4)]);
        assert_eq!(answers.iter().map(|a| a.accepted).collect::<Vec<_>>(), [1, 1, 0]);
        let profile = origin.profile("demo", visitor(1));
        assert_eq!(profile.segments().get(SegmentId(7)).unwrap().0, HourStamp(before.0 + 48));
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let origin = Origin::new();
        let known = origin.tenant("demo");
        let refused = |text: &str| fact(known, visitor(1), &write(text), NOW, [1; 16]).map(drop).unwrap_err();
        assert_eq!(refused("{}"), FactError::Segments);
        assert_eq!(refused(r#"{"set": [{"segment": 1, "expires_ms": 5}]}"#), FactError::Expiry);
        assert_eq!(refused(r#"{"set": [{"segment": 1, "expires_ms": 18446744073709551615}]}"#), FactError::Expiry);
        assert!(find(&origin.conn, known, &Whose::Visitor(visitor(9))).unwrap().is_none());
        assert!(find(&origin.conn, known, &Whose::Lookup("shoe".to_owned(), "x".to_owned())).unwrap().is_none());
    }
}
