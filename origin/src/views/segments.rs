//! Segments of a visitor, as the admin API reads and writes them, by visitor id or by alternate id. A write is a fact
//! like any other: it is in the store once it is acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AlternateId, FactId, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::fact::{Fact, FactError, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentMap, SegmentState};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::identity::link::canonical_id;
use crate::store::StoreError;
use crate::store::tenants::TenantContext;
use crate::views::read::{self, StoreView};

/// Owner of the segments in a request.
#[derive(Debug, Clone)]
pub enum SegmentOwner {
    /// A visitor by its id.
    Visitor(VisitorId),
    /// The visitor last seen with an alternate id, given by the kind's name and the raw value.
    Lookup(String, String),
}

/// Changes of the segments of a visitor, at most 1,000.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SegmentWrite {
    /// Segments that the visitor is in from now on. A segment that the visitor has already gets the new expiry.
    #[serde(default)]
    pub set: Vec<HeldSegment>,
    /// Segments that the visitor leaves.
    #[serde(default)]
    pub remove: Vec<u32>,
}

/// A segment of a visitor.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldSegment {
    /// Number of the segment.
    pub segment: u32,
    /// Expiry, rounded up to a whole hour.
    #[schema(value_type = u64)]
    pub expires_ms: Millis,
    /// Small attributes by their numbers, at most four.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, i32>)]
    pub attributes: BTreeMap<u16, i32>,
}

/// A query in its JSON form: exactly one field is set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentQuery {
    expiring: Option<HourSpan>,
    not_expiring: Option<HourSpan>,
    newest: Option<usize>,
    count: Option<IdRange>,
}

impl TryFrom<SegmentQuery> for SegmentTest {
    type Error = &'static str;

    fn try_from(query: SegmentQuery) -> Result<Self, Self::Error> {
        match query {
            SegmentQuery { expiring: Some(span), not_expiring: None, newest: None, count: None } => {
                Ok(Self::Expiring(span))
            }
            SegmentQuery { expiring: None, not_expiring: Some(span), newest: None, count: None } => {
                Ok(Self::NotExpiring(span))
            }
            SegmentQuery { expiring: None, not_expiring: None, newest: Some(count), count: None } => {
                Ok(Self::Newest(count))
            }
            SegmentQuery { expiring: None, not_expiring: None, newest: None, count: Some(ids) } => Ok(Self::Count(ids)),
            _ => Err("expected exactly one of `expiring`, `not_expiring`, `newest` and `count`"),
        }
    }
}

/// A question about the segments of a visitor: one of these fields.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(try_from = "SegmentQuery")]
#[schema(rename_all = "snake_case")]
pub enum SegmentTest {
    /// Segments that expire within a span.
    Expiring(HourSpan),
    /// Segments that do not expire within a span.
    NotExpiring(HourSpan),
    /// The segments that were written last, at most this number.
    Newest(usize),
    /// Number of segments in a range.
    Count(IdRange),
}

/// A span of time in whole hours.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HourSpan {
    /// Start.
    #[schema(value_type = u64)]
    pub from_ms: Millis,
    /// End, which is not part of the span.
    #[schema(value_type = u64)]
    pub to_ms: Millis,
}

/// A range of segments.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdRange {
    /// First segment of the range.
    pub from: u32,
    /// Last segment of the range.
    pub to: u32,
}

/// Finds the visitor of a request; `None` if it does not exist or withdrew.
///
/// # Errors
/// [`StoreError`].
pub fn find_visitor(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    owner: &SegmentOwner,
) -> Result<Option<read::VisitorView>, StoreError> {
    let id = match owner {
        SegmentOwner::Visitor(id) => Some(*id),
        SegmentOwner::Lookup(kind, value) => by_alternate(view.conn, tenant, kind, value)?,
    };
    let found = id.map(|id| read::load_visitor(view, tenant.no, id)).transpose()?.flatten();
    Ok(found.filter(|visitor| visitor.withdrawn.is_none()))
}

fn by_alternate(
    conn: &Connection,
    tenant: &TenantContext,
    kind: &str,
    value: &str,
) -> Result<Option<VisitorId>, StoreError> {
    // An invalid id finds no visitor.
    let Ok((kind, hashes)) = tenant.alternate(kind, value) else { return Ok(None) };
    for hash in hashes {
        let Some(id) = canonical_id(conn, tenant.no, AlternateId { kind, hash })? else { continue };
        let newest = read::load_lookup(conn, tenant.no, id)?.and_then(|found| found.visitors.first().copied());
        if newest.is_some() {
            return Ok(newest);
        }
    }
    Ok(None)
}

impl SegmentOwner {
    /// Segments of the owner: a visitor's own, or with an alternate id those of its person.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn segments(&self, view: &StoreView<'_>, visitor: &read::VisitorView) -> Result<SegmentMap, StoreError> {
        match self {
            Self::Visitor(_) => read::load_segments(view, visitor),
            // At most the visitors that a snapshot contains, because no decision uses the others.
            Self::Lookup(..) => of_person(view, visitor, limits::SNAPSHOT_VISITORS),
        }
    }
}

pub(crate) fn of_person(
    view: &StoreView<'_>,
    visitor: &read::VisitorView,
    most: usize,
) -> Result<SegmentMap, StoreError> {
    let mut person = SegmentMap::default();
    for member in read::load_members(view, visitor, most)? {
        person = person.join(read::load_segments(view, &member)?);
    }
    Ok(person)
}

/// The current segments of a visitor and of its person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SegmentLists {
    /// Id of the visitor.
    #[schema(format = "uuid")]
    pub visitor: String,
    /// Segments of the visitor.
    pub own: Vec<SegmentAnswer>,
    /// Segments of the person.
    pub view: Vec<SegmentAnswer>,
}

/// A segment of a visitor or person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SegmentAnswer {
    /// Number of the segment.
    pub segment: u32,
    /// Expiry, a whole hour.
    pub expires_ms: u64,
    /// Small attributes by their numbers.
    pub attributes: BTreeMap<String, i32>,
}

/// The answer of a question about segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum SegmentSelection {
    /// The answer of `expiring` and `not_expiring`.
    Segments {
        /// The segments.
        segments: Vec<SegmentAnswer>,
    },
    /// The answer of `newest`.
    Newest {
        /// Numbers of the segments, the newest first.
        segments: Vec<u32>,
    },
    /// The answer of `count`.
    Count {
        /// Number of the segments.
        count: usize,
    },
}

/// The visitor's own segments and those of its person.
///
/// # Errors
/// [`StoreError`].
pub fn describe_segments(
    view: &StoreView<'_>,
    visitor: &read::VisitorView,
    now: Millis,
) -> Result<SegmentLists, StoreError> {
    Ok(SegmentLists {
        visitor: visitor.visitor.to_string(),
        own: list_segments(&read::load_segments(view, visitor)?, now),
        view: list_segments(&of_person(view, visitor, limits::PERSON_VISITORS)?, now),
    })
}

fn list_segments(map: &SegmentMap, now: Millis) -> Vec<SegmentAnswer> {
    live_segments(map, now).map(|(id, expiry)| describe_segment(map, id, expiry)).collect()
}

/// Segments that have not expired. Expired writes are stored for as long as an older write may arrive.
fn live_segments(map: &SegmentMap, now: Millis) -> impl Iterator<Item = (SegmentId, HourStamp)> + '_ {
    map.expiring(HourStamp(HourStamp::at(now).0 + 1)..HourStamp(u32::MAX))
}

fn describe_segment(map: &SegmentMap, id: SegmentId, expiry: HourStamp) -> SegmentAnswer {
    let attributes =
        map.get(id).into_iter().flat_map(|(_, of)| of).map(|(token, value)| (token.to_string(), *value)).collect();
    SegmentAnswer { segment: id.0, expires_ms: expiry.start_ms(), attributes }
}

/// Answers a query. Queries about hours include expired segments; queries about the newest segments and counts do not.
#[must_use]
pub fn answer_query(map: &SegmentMap, query: &SegmentTest, now: Millis) -> SegmentSelection {
    let hours = |span: &HourSpan| HourStamp::at(span.from_ms)..HourStamp::at(span.to_ms);
    match query {
        SegmentTest::Expiring(span) => {
            let found = map.expiring(hours(span)).map(|(id, expiry)| describe_segment(map, id, expiry));
            SegmentSelection::Segments { segments: found.collect() }
        }
        SegmentTest::NotExpiring(span) => {
            let found = map.not_expiring(hours(span)).map(|(id, expiry)| describe_segment(map, id, expiry));
            SegmentSelection::Segments { segments: found.collect() }
        }
        SegmentTest::Newest(count) => {
            let held: BTreeSet<SegmentId> = live_segments(map, now).map(|(id, _)| id).collect();
            let newest = map.newest(usize::MAX).into_iter().filter(|id| held.contains(id)).take(*count);
            SegmentSelection::Newest { segments: newest.map(|id| id.0).collect() }
        }
        SegmentTest::Count(ids) => {
            let within = |id: SegmentId| (ids.from..=ids.to).contains(&id.0);
            SegmentSelection::Count { count: live_segments(map, now).filter(|(id, _)| within(*id)).count() }
        }
    }
}

/// Converts a write to segment states.
///
/// # Errors
/// [`FactError`]: an expiry or attributes exceed their bounds.
pub fn segment_writes(write: &SegmentWrite) -> Result<Vec<(SegmentId, SegmentState)>, FactError> {
    let set = |set: &HeldSegment| {
        let expiry = HourStamp::at(set.expires_ms.saturating_add(3_599_999));
        let bounded = set.attributes.len() <= limits::SEGMENT_ATTRIBUTES && expiry.0 <= limits::EXPIRY_HOURS;
        let attributes = set.attributes.iter().map(|(token, value)| (*token, *value));
        bounded.then(|| (SegmentId(set.segment), SegmentState::held(expiry, attributes))).ok_or(FactError::Expiry)
    };
    let removed = write.remove.iter().map(|id| Ok((SegmentId(*id), SegmentState::Removed)));
    write.set.iter().map(set).chain(removed).collect()
}

/// The earliest time, in milliseconds since 1970, at which a write replaces the stored ones. It may lie in the future
/// if an edge's clock was ahead.
#[must_use]
pub fn stamp_after(segments: &SegmentMap, write: &SegmentWrite) -> Millis {
    let touched = write.set.iter().map(|set| set.segment).chain(write.remove.iter().copied());
    touched.filter_map(|segment| segments.written(SegmentId(segment))).max().map_or(0, |at| at + 1)
}

/// Converts a write to a checked fact. `id` is 16 random bytes.
///
/// # Errors
/// [`FactError`]: the write exceeds a bound.
pub fn segment_fact(visitor: VisitorId, write: &SegmentWrite, now: Millis, id: [u8; 16]) -> Result<Fact, FactError> {
    let what = FactKind::Segments { writes: segment_writes(write)? };
    let fact = Fact { position: 0, id: FactId::from_bytes(id), visitor, received: now, at: now, what };
    fact.check(now)?;
    Ok(fact)
}

/// The write that adds hours to a segment's expiry, and the earliest time of its fact, which is after the write that it
/// extends, so that two extensions within a millisecond add up. Returns `None` if the visitor is not in the segment.
/// The caller must prevent other extensions until the fact is acknowledged.
#[must_use]
pub fn extended_expiry(
    segments: &SegmentMap,
    segment: SegmentId,
    hours: u32,
    now: Millis,
) -> Option<(SegmentWrite, Millis)> {
    let (expiry, attributes) = segments.get(segment).filter(|(expiry, _)| *expiry > HourStamp::at(now))?;
    let expiry = HourStamp(expiry.0.saturating_add(hours).min(limits::EXPIRY_HOURS));
    let attributes = attributes.iter().copied().collect();
    let set = HeldSegment { segment: segment.0, expires_ms: expiry.start_ms(), attributes };
    let write = SegmentWrite { set: vec![set], remove: Vec::new() };
    let after = stamp_after(segments, &write);
    Some((write, after))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{NOW, Origin, page, visitor};

    const HOUR: u64 = 3_600_000;

    fn write(text: &str) -> SegmentWrite {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn segments_are_written_and_read_by_visitor_and_by_alternate_id() {
        let mut origin = Origin::new();
        let (a, b) = (visitor(1), visitor(2));
        let logins = [origin.login(a, 1, NOW - 2, "ann"), origin.login(b, 2, NOW - 1, "ann"), page(a, 3, NOW)];
        origin.send("demo", &logins);
        let known = origin.tenant("demo").clone();
        let set =
            format!(r#"{{"set": [{{"segment": 8457, "expires_ms": {}, "attributes": {{"3": 9}}}}]}}"#, NOW + HOUR);
        let fact = segment_fact(a, &write(&set), NOW, [1; 16]).unwrap();
        assert_eq!(origin.send("demo", &[fact]).accepted, 1);
        let view = StoreView::folded(&origin.conn);
        let by_member =
            find_visitor(&view, &known, &SegmentOwner::Lookup("member".to_owned(), "ann".to_owned())).unwrap().unwrap();
        assert_eq!(by_member.visitor, b);
        let shown = crate::testing::as_json(describe_segments(&view, &by_member, NOW).unwrap());
        assert_eq!((shown["own"].as_array().unwrap().len(), shown["view"][0]["segment"].clone()), (0, json!(8457)));
        assert_eq!(shown["view"][0]["attributes"], json!({ "3": 9 }));
        let own = find_visitor(&view, &known, &SegmentOwner::Visitor(a)).unwrap().unwrap();
        let own = read::load_segments(&view, &own).unwrap();
        let ask = |text: &str| crate::testing::as_json(answer_query(&own, &serde_json::from_str(text).unwrap(), NOW));
        assert_eq!(ask(r#"{"count": {"from": 8000, "to": 9000}}"#), json!({ "count": 1 }));
        assert_eq!(ask(r#"{"newest": 5}"#), json!({ "segments": [8457] }));
        let span = format!(r#"{{"from_ms": {NOW}, "to_ms": {}}}"#, NOW + 3 * HOUR);
        assert_eq!(ask(&format!(r#"{{"expiring": {span}}}"#))["segments"][0]["segment"], 8457);
        assert_eq!(ask(&format!(r#"{{"not_expiring": {span}}}"#)), json!({ "segments": [] }));
    }

    #[test]
    fn an_alternate_id_selects_its_persons_segments_and_a_visitor_its_own() {
        let mut origin = Origin::new();
        let (a, b) = (visitor(1), visitor(2));
        let set = write(&format!(r#"{{"set": [{{"segment": 8457, "expires_ms": {}}}]}}"#, NOW + HOUR));
        let held = segment_fact(a, &set, NOW - 9, [1; 16]).unwrap();
        origin.send("demo", &[held, origin.login(a, 1, NOW - 2, "ann"), origin.login(b, 2, NOW - 1, "ann")]);
        let known = origin.tenant("demo").clone();
        let member = SegmentOwner::Lookup("member".to_owned(), "ann".to_owned());
        let count: SegmentTest = serde_json::from_str(r#"{"count": {"from": 8000, "to": 9000}}"#).unwrap();
        let (more, after) = {
            let view = StoreView::folded(&origin.conn);
            let newest = find_visitor(&view, &known, &member).unwrap().unwrap();
            assert_eq!(newest.visitor, b);
            let [own, person] = [SegmentOwner::Visitor(b), member].map(|whose| whose.segments(&view, &newest).unwrap());
            assert_eq!(
                [&own, &person].map(|map| crate::testing::as_json(answer_query(map, &count, NOW))["count"].clone()),
                [json!(0), json!(1)]
            );
            assert!(extended_expiry(&own, SegmentId(8457), 24, NOW).is_none());
            extended_expiry(&person, SegmentId(8457), 24, NOW).unwrap()
        };
        origin.send("demo", &[segment_fact(b, &more, NOW.max(after), [2; 16]).unwrap()]);
        let view = StoreView::folded(&origin.conn);
        let shown = crate::testing::as_json(
            describe_segments(&view, &find_visitor(&view, &known, &SegmentOwner::Visitor(a)).unwrap().unwrap(), NOW)
                .unwrap(),
        );
        assert_eq!(shown["view"][0]["expires_ms"], HourStamp::at(NOW + 26 * HOUR - 1).start_ms(), "the person's own");
    }

    #[test]
    fn expired_segments_are_neither_listed_nor_counted() {
        let mut origin = Origin::new();
        let set = write(&format!(
            r#"{{"set": [{{"segment": 7, "expires_ms": {}}}, {{"segment": 8, "expires_ms": {}}}]}}"#,
            NOW + HOUR,
            NOW + 5 * HOUR
        ));
        origin.send("demo", &[segment_fact(visitor(1), &set, NOW, [1; 16]).unwrap()]);
        let view = StoreView::folded(&origin.conn);
        let of = read::load_visitor(&view, origin.tenant("demo").no, visitor(1)).unwrap().unwrap();
        let map = read::load_segments(&view, &of).unwrap();
        let ask =
            |text: &str, now| crate::testing::as_json(answer_query(&map, &serde_json::from_str(text).unwrap(), now));
        for (now, ids) in [(NOW, vec![8, 7]), (NOW + 2 * HOUR, vec![8]), (NOW + 6 * HOUR, vec![])] {
            let newest = ask(r#"{"newest": 5}"#, now)["segments"].clone();
            assert_eq!(newest.as_array().unwrap().len(), ids.len());
            assert_eq!(ask(r#"{"count": {"from": 0, "to": 9}}"#, now)["count"], ids.len());
            let shown = crate::testing::as_json(describe_segments(&view, &of, now).unwrap());
            assert_eq!((shown["own"].as_array().unwrap().len(), shown["view"] == shown["own"]), (ids.len(), true));
        }
    }

    #[test]
    fn hours_are_added_to_the_existing_expiry() {
        let mut origin = Origin::new();
        let set = format!(r#"{{"set": [{{"segment": 7, "expires_ms": {}, "attributes": {{"3": 9}}}}]}}"#, NOW + HOUR);
        let first = segment_fact(visitor(1), &write(&set), NOW - 1, [1; 16]).unwrap();
        origin.send("demo", &[first]);
        let before = origin.profile("demo", visitor(1)).segments().clone();
        let (more, after) = extended_expiry(&before, SegmentId(7), 24, NOW).unwrap();
        assert_eq!(before.written(SegmentId(7)), Some(after - 1), "it comes after the write that it goes on from");
        assert!(extended_expiry(&before, SegmentId(8), 24, NOW).is_none());
        // An expired segment is not extended.
        let expiry = before.get(SegmentId(7)).unwrap().0.start_ms();
        assert!(extended_expiry(&before, SegmentId(7), 24, expiry - 1).is_some());
        assert!(extended_expiry(&before, SegmentId(7), 24, expiry).is_none());
        let second = segment_fact(visitor(1), &more, after.max(NOW), [2; 16]).unwrap();
        origin.send("demo", &[second]);
        let profile = origin.profile("demo", visitor(1));
        let (expiry, attributes) = profile.segments().get(SegmentId(7)).unwrap();
        assert_eq!(expiry, HourStamp(before.get(SegmentId(7)).unwrap().0.0 + 24));
        assert_eq!(attributes, [(3, 9)]);
    }

    #[test]
    fn a_write_comes_after_that_of_a_clock_that_runs_ahead() {
        let mut origin = Origin::new();
        let ahead =
            segment_fact(visitor(1), &write(r#"{"set": [{"segment": 7, "expires_ms": 4102444800000}]}"#), NOW, [1; 16]);
        let at = NOW + 180_000;
        origin.send("demo", &[Fact { received: at, at, ..ahead.unwrap() }]);
        let map = origin.profile("demo", visitor(1)).segments().clone();
        let removal = write(r#"{"remove": [7, 9]}"#);
        assert_eq!((stamp_after(&map, &removal), stamp_after(&map, &write(r#"{"remove": [9]}"#))), (at + 1, 0));
        let removal = segment_fact(visitor(1), &removal, NOW.max(stamp_after(&map, &removal)), [2; 16]).unwrap();
        origin.admin("demo", &[removal]);
        assert!(origin.profile("demo", visitor(1)).segments().get(SegmentId(7)).is_none());
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let origin = Origin::new();
        let known = origin.tenant("demo");
        let refused = |text: &str| segment_fact(visitor(1), &write(text), NOW, [1; 16]).map(drop).unwrap_err();
        assert_eq!(refused("{}"), FactError::Segments);
        assert_eq!(refused(r#"{"set": [{"segment": 1, "expires_ms": 5}]}"#), FactError::Expiry);
        assert_eq!(refused(r#"{"set": [{"segment": 1, "expires_ms": 18446744073709551615}]}"#), FactError::Expiry);
        let view = StoreView::folded(&origin.conn);
        assert!(find_visitor(&view, known, &SegmentOwner::Visitor(visitor(9))).unwrap().is_none());
        assert!(
            find_visitor(&view, known, &SegmentOwner::Lookup("shoe".to_owned(), "x".to_owned())).unwrap().is_none()
        );
    }
}
