//! Unknown is not absent: data left out of a snapshot makes no filter match, and data that filters name stays in it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::common::{NOW, law, membership, version, visitor};
use causeway_shared::ads::decision::DescribedPerson;
use causeway_shared::base::ids::{FactId, InsertionId, Micros, SessionId, VisitorId};
use causeway_shared::base::time::{Day, HourStamp, Minute};
use causeway_shared::facts::actions::{ActionType, AdEntity, AdLevel, ViewType};
use causeway_shared::facts::attributes::{AttributeValue, NameDictionary, NameToken, ValueKind};
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{KnownVisitor, MissingParts, Profile, QueriedNames, SnapshotRoom};
use causeway_shared::profiles::view::{JoinedView, PersonView, Snapshot};
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::targeting::filter::{
    CountAnswerer, Entities, EventEvidence, Filter, FilterSubject, FilterWords, PersonHistory, parse,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value as Json, json};

const NAMES: u16 = 10;
const DAY: u64 = 86_400_000;

static NAMED: LazyLock<NameDictionary> =
    LazyLock::new(|| NameDictionary::from_entries((0..NAMES).map(|n| (format!("a{n}"), ValueKind::Integer))).unwrap());
static ENTITIES: LazyLock<Entities<'static>> =
    LazyLock::new(|| [BTreeMap::new(), BTreeMap::new(), BTreeMap::from([("c-1", 1), ("c-2", 2)]), BTreeMap::new()]);

fn parsed(document: &Json) -> Filter {
    let vocabulary = Vocabulary::default();
    let (attributes, entities) = (&*NAMED, &*ENTITIES);
    let words = FilterWords { attributes, vocabulary: &vocabulary, entities, answers: CountAnswerer::Snapshot };
    parse(document, "targeting", &words).unwrap_or_else(|found| panic!("{found:?} {document}"))
}

fn condition() -> impl Strategy<Value = Json> {
    let window = json!({"interval": 7, "unit": "days"});
    let counted = move |name: &str, count: Json| json!({ name: {"$count": count, "within": window} });
    let pages = counted.clone();
    let test = prop_oneof![
        (0..4_i64).prop_map(|n| json!({"$eq": n})),
        (0..4_i64).prop_map(|n| json!({"$ne": n})),
        (0..4_i64).prop_map(|n| json!({"$gte": n})),
        vec(0..4_i64, 1..3).prop_map(|all| json!({"$nin": all})),
        any::<bool>().prop_map(|there| json!({"$exists": there})),
    ];
    let number = prop_oneof![
        (0..3_u64).prop_map(|n| json!(n)),
        (0..3_u64).prop_map(|n| json!({"$lt": n})),
        (0..3_u64).prop_map(|n| json!({"$gte": n})),
    ];
    let numbers = number.clone();
    prop_oneof![
        (0..NAMES, test).prop_map(|(n, test)| json!({ format!("attributes.a{n}"): test })),
        (select(vec!["$in", "$nin"]), btree_set(0..12_u32, 1..4)).prop_map(|(of, ids)| json!({"segments": {of: ids}})),
        any::<bool>().prop_map(|there| json!({"segments": {"$exists": there}})),
        (select(vec!["events.page", "events.purchase"]), number).prop_map(move |(name, count)| pages(name, count)),
        numbers.prop_map(move |count| counted("actions.impression", count)),
        (1..4_u32, select(vec!["$gte", "$lte", "$ne"])).prop_map(|(n, of)| json!({"devices": {of: n}})),
        (0..9_u64, select(vec!["first_seen", "last_seen"]), select(vec!["$gte", "$lt"])).prop_map(
            |(days, name, of)| {
                json!({name: {of: "2027-01-05T00:00:00Z".replace("05", &format!("{:02}", 7 + days))}})
            }
        ),
    ]
}

fn document() -> impl Strategy<Value = Json> {
    condition().prop_recursive(2, 8, 3, |inner| {
        let all = vec(inner.clone(), 1..4);
        prop_oneof![
            all.clone().prop_map(|all| json!({"$and": all})),
            all.clone().prop_map(|all| json!({"$or": all})),
            all.prop_map(|all| json!({"$not": {"$or": all}})),
        ]
    })
}

/// One visitor's facts: kind, name, and age in hours.
fn facts() -> impl Strategy<Value = Vec<(u8, u32, u64)>> {
    vec((0..6_u8, 0..12_u32, 0..300_u64), 0..14)
}

/// The profile of a visitor. All visitors have the same values for a name, so the last write counts, whichever visitor
/// is missing.
fn profile(of: VisitorId, facts: &[(u8, u32, u64)]) -> Profile {
    let mut profile = Profile::default();
    for (n, (kind, name, hours)) in (0..).zip(facts) {
        let at = NOW - hours * 3_600_000;
        let entity = AdEntity { ad: 1, ad_group: 1, campaign: name % 3, advertiser: 1 };
        let mut writes = Vec::new();
        let what = match kind {
            0 => FactKind::Page { session: SessionId(u64::from(*name)) },
            1 => FactKind::Track {
                name: PURCHASE.to_owned(),
                value: Some(Micros::new(5)),
                properties: None,
                order: None,
            },
            2 => FactKind::Action {
                insertion: InsertionId([n; 16]),
                action_type: ActionType::IMPRESSION,
                view_type: ViewType(0),
                entity,
            },
            3 | 4 => {
                let expiry = if name % 4 == 0 { NOW - DAY } else { NOW + DAY };
                FactKind::Segments { writes: vec![(SegmentId(*name), SegmentState::held(HourStamp::at(expiry), []))] }
            }
            _ => {
                let token = u16::try_from(*name).unwrap() % NAMES;
                writes.push((NameToken(token), Some(AttributeValue::Integer(i64::from(token % 4)))));
                FactKind::Attributes { writes: Vec::new() }
            }
        };
        let mut id = [n; 16];
        id[15] = of.as_bytes()[15];
        profile.assign(&Fact { position: 0, id: FactId::from_bytes(id), visitor: of, received: at, at, what }, writes);
    }
    profile
}

/// The view of the first visitor, from `profiles`, of a person with `devices` visitors.
fn view(profiles: &[Profile], devices: usize, room: &SnapshotRoom<'_>) -> JoinedView {
    let all = (0..).map(visitor).zip(profiles);
    let profiles: BTreeMap<_, _> =
        all.map(|(of, profile)| (of, profile.sub_profile_within(version(1), of == visitor(0), room))).collect();
    let membership = membership(1, profiles.keys().copied(), []);
    let membership = Membership { devices: u32::try_from(devices).unwrap(), ..membership };
    let mut view = JoinedView::default();
    let (unique, visitor) = (Vec::new(), visitor(0));
    view.add_snapshot(Snapshot { version: version(1), visitor, unique, membership, profiles, best: None });
    view
}

fn matches_filter(filter: &Filter, counted: &PersonView<'_>) -> bool {
    let described = DescribedPerson::of(counted, NOW);
    let actions = counted.actions();
    let (totals, events, missing) = (counted.totals(), EventEvidence::Snapshots(counted), counted.missing());
    let counts = filter.answers(&PersonHistory { totals, actions: &actions, events, missing }, Minute::at(NOW));
    filter.matches(&FilterSubject { person: Some(described.person()), counts: &counts, ..FilterSubject::default() })
}

fn queried(attributes: BTreeSet<u16>, segments: BTreeSet<u32>) -> QueriedNames {
    let mut queried = QueriedNames { attributes, segments, caps: Vec::new() };
    queried.add_cap(ActionType::IMPRESSION, AdLevel::Campaign, 1);
    queried
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn a_filter_that_is_false_for_the_complete_profile_is_never_true_for_the_truncated_snapshot(
        document in document(),
        visitors in vec(facts(), 1..4),
        names in (btree_set(0..NAMES, 0..3), btree_set(0..12_u32, 0..4)),
        (days, capped, events) in (prop::option::of(0..12_u64), prop::option::of(0..12_u64), any::<bool>()),
        (segments, attributes, members) in (0..4_usize, 0..90_usize, 1..4_usize),
    ) {
        let filter = parsed(&document);
        let profiles: Vec<Profile> = (0..).zip(&visitors).map(|(n, facts)| profile(visitor(n), facts)).collect();
        let queried = queried(names.0, names.1);
        let since = Day(Minute::at(NOW).day().0 - 31);
        let whole = SnapshotRoom::whole(since, &queried);
        let day = |days: u64| Minute::at(NOW - days * DAY).day();
        let room = SnapshotRoom { actions: days.map(day), capped: capped.map(day), events, segments, attributes, ..whole };
        let complete = view(&profiles, profiles.len(), &whole);
        let truncated = view(&profiles[..members.min(profiles.len())], profiles.len(), &room);
        let (complete, truncated) = (complete.of(visitor(0)), truncated.of(visitor(0)));
        prop_assert!(complete.missing().is_empty());
        if matches_filter(&filter, &truncated) {
            prop_assert!(matches_filter(&filter, &complete), "{document} {truncated:?}");
        } else if truncated.missing().is_empty() {
            prop_assert!(!matches_filter(&filter, &complete), "{document}");
        }
    }
}

#[test]
fn what_filters_name_is_certain_in_a_truncated_snapshot_and_the_rest_is_unknown() {
    let facts: Vec<_> = (0..12)
        .map(|name| (3, name, 1))
        .chain((0..10).filter(|n| *n != 5).map(|name| (5, name, 1 + u64::from(name))))
        .collect();
    let queried = queried([3, 5].into(), [1, 50].into());
    let room = SnapshotRoom { segments: 0, attributes: 70, ..SnapshotRoom::whole(Day(0), &queried) };
    let view = view(&[profile(visitor(0), &facts)], 1, &room);
    let counted = view.of(visitor(0));
    assert_eq!(counted.missing().names().collect::<Vec<_>>(), ["attributes", "segments"]);
    for (document, expected) in [
        (json!({"segments": 1}), true),
        (json!({"segments": {"$nin": [1]}}), false),
        (json!({"segments": {"$nin": [50]}}), true),
        (json!({"segments": {"$nin": [50, 2]}}), false),
        (json!({"segments": {"$nin": [90]}}), false),
        (json!({"attributes.a3": 3}), true),
        (json!({"attributes.a3": {"$ne": 4}}), true),
        (json!({"attributes.a5": {"$exists": false}}), true),
        (json!({"attributes.a0": {"$exists": false}}), false),
        (json!({"events.page": {"$count": 0}}), true),
    ] {
        assert_eq!(matches_filter(&parsed(&document), &counted), expected, "{document}");
    }
}

#[test]
fn a_visitor_that_was_minted_just_now_has_nothing_and_of_any_other_without_a_snapshot_nothing_is_known() {
    let suppressed = parsed(&json!({"segments": {"$nin": [4_242]}}));
    for (known, missing) in
        [(KnownVisitor::default().of_new_visitor(), MissingParts::NONE), (KnownVisitor::default(), MissingParts::ALL)]
    {
        let mut view = JoinedView::default();
        view.add_known(visitor(0), known);
        let counted = view.of(visitor(0));
        assert_eq!(counted.missing(), missing);
        assert_eq!(matches_filter(&suppressed, &counted), missing.is_empty());
    }
    assert_eq!(JoinedView::default().of(visitor(0)).missing(), MissingParts::ALL);
}

#[test]
fn no_attribute_or_segment_of_one_browser_falls_out_because_another_one_wrote_many_later() {
    let profile_of = |visitor, at, tokens: std::ops::Range<u16>, segments: std::ops::Range<u32>| {
        let state = SegmentState::held(HourStamp::at(NOW + DAY), []);
        let what = FactKind::Segments { writes: segments.map(|id| (SegmentId(id), state.clone())).collect() };
        let mut profile = Profile::default();
        let fact = Fact { position: 0, id: FactId::from_bytes([0; 16]), visitor, received: at, at, what };
        profile.assign(&fact, tokens.map(|token| (NameToken(token), Some(AttributeValue::Integer(1)))));
        profile
    };
    let profiles = [
        profile_of(visitor(0), NOW - DAY, 0..200, 0..6_000),
        profile_of(visitor(1), NOW, 1_000..1_200, 100_000..106_000),
    ];
    let queried = QueriedNames::default();
    let view = view(&profiles, 2, &SnapshotRoom::whole(Day(0), &queried));
    let counted = view.of(visitor(0));
    assert_eq!(counted.missing(), MissingParts::NONE);
    assert_eq!((counted.attributes().iter().count(), counted.segments(NOW).len()), (400, 12_000));
    for (document, expected) in [
        (json!({"attributes.a0": {"$exists": false}}), false),
        (json!({"segments": {"$nin": [0]}}), false),
        (json!({"segments": {"$nin": [50_000]}}), true),
    ] {
        assert_eq!(matches_filter(&parsed(&document), &counted), expected, "{document}");
    }
}

#[test]
fn a_segment_that_was_evicted_stays_unknown_after_later_ones_have_expired() {
    let hour = |days: u64| HourStamp::at(NOW + days * DAY);
    let (mut profile, mut at) = (Profile::default(), NOW);
    for (ids, expiry) in [(4_242..4_243, hour(300)), (100_000..110_000, hour(1))] {
        at += 1;
        let what =
            FactKind::Segments { writes: ids.map(|id| (SegmentId(id), SegmentState::held(expiry, []))).collect() };
        let (id, visitor) = (FactId::from_bytes([0; 16]), visitor(0));
        profile.fold(&Fact { position: 0, id, visitor, received: at, at, what });
    }
    let mut parts = profile.take_parts();
    parts.segments.trim(NOW + 100 * DAY, &BTreeSet::new());
    assert_eq!(parts.segments.len(), 0);
    let profile = profile.with_parts(parts);
    let queried = queried(BTreeSet::new(), [4_242].into());
    let view = view(std::slice::from_ref(&profile), 1, &SnapshotRoom::whole(Day(0), &queried));
    let counted = view.of(visitor(0));
    assert_eq!(counted.missing(), MissingParts::SEGMENTS);
    assert!(!matches_filter(&parsed(&json!({"segments": {"$nin": [4_242]}})), &counted));
}

#[test]
fn of_a_visitor_in_as_many_segments_as_are_kept_it_is_unknown_in_which_others_it_was() {
    let mut profile = Profile::default();
    let mut at = NOW - DAY;
    let mut write = |ids: std::ops::Range<u32>| {
        at += 1;
        let state = SegmentState::held(HourStamp::at(NOW + DAY), []);
        let what = FactKind::Segments { writes: ids.map(|id| (SegmentId(id), state.clone())).collect() };
        let (id, visitor) = (FactId::from_bytes([0; 16]), visitor(0));
        profile.fold(&Fact { position: 0, id, visitor, received: at, at, what });
    };
    write(4_242..4_243);
    write(100_000..110_000);
    let queried = queried(BTreeSet::new(), [4_242, 4_243, 100_001].into());
    for segments in [10_000, 100] {
        let room = SnapshotRoom { segments, ..SnapshotRoom::whole(Day(0), &queried) };
        let view = view(std::slice::from_ref(&profile), 1, &room);
        let counted = view.of(visitor(0));
        assert_eq!(counted.missing(), MissingParts::SEGMENTS);
        assert!(
            !matches_filter(&parsed(&json!({"segments": {"$nin": [4_242]}})), &counted),
            "it was left out long ago"
        );
        assert!(matches_filter(&parsed(&json!({"segments": 100_001})), &counted));
    }
}
