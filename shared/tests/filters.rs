//! Filters: compared with a naive model over the documents; the filter index compared with single filters; the wire
//! form in both directions; the audience index compared with single people; and the problems of invalid documents.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use causeway_shared::audience::index::{AudienceIndex, IndexReader, IndexRow, UsedTexts};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use causeway_shared::base::random;
use causeway_shared::base::time::{DAY_MINUTES, Day, HourStamp, Minute};
use causeway_shared::facts::actions::{
    ActionList, ActionType, AdAction, AdEntity, AdLevel, InsertionHash, PackedActions, TimeWindow, ViewType, WindowUnit,
};
use causeway_shared::facts::attributes::{AttributeValue, FiniteNumber, NameDictionary, NameToken, ValueKind};
use causeway_shared::facts::events::EventCount;
use causeway_shared::facts::segments::SegmentId;
use causeway_shared::profiles::profile::{MissingParts, ProfileTotals};
use causeway_shared::settings::vocabulary::{Vocabulary, VocabularyWord};
use causeway_shared::targeting::filter::{
    CountAnswerer, CountQuestion, CountSource, Entities, EventEvidence, Filter, FilterIndex, FilterSubject,
    FilterWords, PageGaps, PersonGaps, PersonHistory, SubjectPerson, parse,
};
use causeway_shared::wire::{self, WireError};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;
use serde_json::{Map, Value as Json, json};

/// The tenant of these tests.
struct Tenant {
    attributes: NameDictionary,
    vocabulary: Vocabulary,
    entities: Entities<'static>,
}

static TENANT: LazyLock<Tenant> = LazyLock::new(new_tenant);

fn tenant() -> &'static Tenant {
    &TENANT
}

fn new_tenant() -> Tenant {
    let attributes = [
        ("shoe_size", ValueKind::Integer),
        ("score", ValueKind::Float),
        ("vip", ValueKind::Bool),
        ("city", ValueKind::String),
        ("born", ValueKind::Date),
        ("tags", ValueKind::Strings),
    ];
    let word = |name: &str, code| VocabularyWord { name: name.to_owned(), code };
    Tenant {
        attributes: NameDictionary::from_entries(attributes.map(|(name, kind)| (name.to_owned(), kind))).unwrap(),
        vocabulary: Vocabulary {
            action_types: vec![word("hide", 3)],
            view_types: vec![word("home", 1), word("article", 2), word("search", 3)],
        },
        entities: [
            BTreeMap::from([("a-1", 1), ("a-2", 2)]),
            BTreeMap::from([("g-1", 1)]),
            BTreeMap::from([("c-1", 1), ("c-2", 2)]),
            BTreeMap::from([("v-1", 1)]),
        ],
    }
}

impl Tenant {
    fn words(&self, answers: CountAnswerer) -> FilterWords<'_> {
        FilterWords { attributes: &self.attributes, vocabulary: &self.vocabulary, entities: &self.entities, answers }
    }

    fn parse(&self, document: &Json) -> Filter {
        parse(document, "targeting", &self.words(CountAnswerer::Origin))
            .unwrap_or_else(|found| panic!("{found:?} {document}"))
    }
}

/// The problems of a targeting, as `path: message`.
fn problems(document: &Json) -> Vec<String> {
    match parse(document, "targeting", &tenant().words(CountAnswerer::Snapshot)) {
        Ok(filter) => panic!("{filter:?} was taken"),
        Err(found) => found.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect(),
    }
}

/// The data of a subject of these tests.
#[derive(Debug, Clone, Default)]
struct Someone {
    is_known: bool,
    is_unread: bool,
    attributes: Vec<(NameToken, AttributeValue)>,
    segments: Vec<SegmentId>,
    devices: u32,
    seen: Option<(u64, u64)>,
    best_now: Option<bool>,
    url: Option<&'static str>,
    keywords: Vec<&'static str>,
    view_type: u8,
    country: Option<&'static str>,
    class: Option<&'static str>,
    /// The counts that [`Someone::count`] distinguishes.
    counted: Vec<Option<u64>>,
    /// Whether these counts are only lower bounds.
    in_part: bool,
    /// The certain parts, if data is missing.
    gaps: Option<Gaps>,
    page_gaps: PageGaps,
}

/// An owned [`PersonGaps`].
#[derive(Debug, Clone, Default)]
struct Gaps {
    attributes: Option<Vec<NameToken>>,
    segments: Option<Vec<SegmentId>>,
    members: bool,
}

impl Someone {
    fn counts(&self, questions: &[CountQuestion]) -> Vec<Option<EventCount>> {
        let often = if self.in_part { EventCount::AtLeast } else { EventCount::Exactly };
        questions.iter().map(|question| self.count(question).map(often)).collect()
    }

    fn count(&self, question: &CountQuestion) -> Option<u64> {
        let place = match &question.what {
            CountSource::Pages => 0,
            CountSource::Purchases => 1,
            CountSource::Event(_) => 2,
            CountSource::Action { action_type, .. } => usize::from(action_type.0) + 2,
        };
        let place = place + if question.within.is_some() { 1 } else { 0 };
        self.counted.get(place).copied().flatten()
    }

    fn ask<T>(&self, questions: &[CountQuestion], ask: impl FnOnce(&FilterSubject<'_>) -> T) -> T {
        self.ask_of(&self.counts(questions), ask)
    }

    fn ask_of<T>(&self, counts: &[Option<EventCount>], ask: impl FnOnce(&FilterSubject<'_>) -> T) -> T {
        let person = SubjectPerson {
            attributes: &self.attributes,
            segments: &self.segments,
            devices: self.devices,
            seen: self.seen,
            best_now: self.best_now,
            gaps: self.gaps.as_ref().map(|gaps| PersonGaps {
                attributes: gaps.attributes.as_deref(),
                segments: gaps.segments.as_deref(),
                members: gaps.members,
            }),
        };
        let person = if self.is_unread { SubjectPerson::UNREAD } else { person };
        ask(&FilterSubject {
            person: (self.is_known || self.is_unread).then_some(person),
            url: self.url,
            keywords: &self.keywords,
            view_type: ViewType(self.view_type),
            country: self.country,
            class: self.class,
            page_gaps: self.page_gaps,
            counts,
            ..FilterSubject::default()
        })
    }

    fn matches_filter(&self, filter: &Filter) -> bool {
        self.ask(filter.counts(), |subject| filter.matches(subject))
    }
}

/// A subject with complete data.
fn ann() -> Someone {
    Someone {
        is_known: true,
        is_unread: false,
        attributes: vec![
            (NameToken(0), AttributeValue::Integer(42)),
            (NameToken(1), AttributeValue::Float(FiniteNumber::new(-0.5).unwrap())),
            (NameToken(2), AttributeValue::Bool(true)),
            (NameToken(3), AttributeValue::String("Bonn".to_owned())),
            (NameToken(4), AttributeValue::String("1990-05-01".to_owned()).fit(ValueKind::Date).unwrap()),
            (NameToken(5), AttributeValue::Strings(["a", "b"].map(str::to_owned).into())),
        ],
        segments: vec![SegmentId(7), SegmentId(8457)],
        devices: 2,
        seen: Some((1_700_000_000_000, 1_700_000_360_500)),
        best_now: None,
        url: Some("https://pub.example/hotels"),
        keywords: vec!["hotel", "beach"],
        view_type: 1,
        country: Some("DE"),
        class: Some("mobile"),
        counted: vec![Some(3), None, Some(1), Some(5), None, Some(0), Some(2)],
        in_part: false,
        gaps: None,
        page_gaps: PageGaps::default(),
    }
}

fn check(someone: &Someone, document: Json, expected: bool) {
    assert_eq!(someone.matches_filter(&tenant().parse(&document)), expected, "{document}");
}

#[test]
fn filter_operators_work_as_in_mongo() {
    let holds = |document| check(&ann(), document, true);
    let fails = |document| check(&ann(), document, false);
    holds(json!({}));
    holds(json!({"attributes.shoe_size": 42}));
    holds(json!({"attributes.shoe_size": {"$gt": 41, "$lte": 42}, "segments": {"$in": [1, 8457]}}));
    fails(json!({"attributes.shoe_size": {"$gt": 42}}));
    holds(json!({"attributes.score": {"$gt": -1, "$lt": 0}}));
    fails(json!({"attributes.score": {"$gte": 0}}));
    holds(json!({"attributes.vip": true, "attributes.city": {"$gte": "Bonn", "$lt": "Bonns"}}));
    holds(json!({"attributes.born": {"$lt": "1990-05-02", "$gte": "1990-05-01"}}));
    // A condition holds for any entry of a list; `$ne` and `$nin` hold if no entry matches.
    holds(json!({"attributes.tags": "b", "page.keywords": {"$in": ["ski", "beach"]}}));
    fails(json!({"attributes.tags": {"$ne": "b"}}));
    holds(json!({"attributes.tags": {"$nin": ["c", "d"]}, "segments": {"$ne": 8}}));
    fails(json!({"segments": {"$nin": [7]}}));
    holds(json!({"$or": [{"devices": 1}, {"$and": [{"devices": {"$in": [2, 3]}}, {"geo.country": "DE"}]}]}));
    fails(json!({"$not": {"devices": 2, "geo.country": "DE"}}));
    holds(json!({"$not": {"devices": 2, "geo.country": "AT"}}));
    holds(json!({"devices": {"$not": {"$gt": 2}}, "page.view_type": "home", "device.class": {"$ne": "desktop"}}));
    holds(json!({"first_seen": {"$lt": "2023-11-14T22:13:20.001Z", "$gte": "2023-11-15T00:13:20+02:00"}}));
    holds(json!({"last_seen": {"$eq": 1_700_000_360_500_i64}}));
    holds(json!({"page.url": {"$in": ["https://pub.example/hotels"]}}));
    fails(json!({"page.url": "https://pub.example/"}));
}

#[test]
fn absent_fields_match_as_in_mongo() {
    for someone in [Someone { is_known: true, ..Someone::default() }, Someone::default()] {
        for field in ["attributes.shoe_size", "attributes.tags", "segments", "page.url", "geo.country", "first_seen"] {
            let value = match field {
                "attributes.shoe_size" | "segments" | "first_seen" => json!(1),
                "geo.country" => json!("DE"),
                _ => json!("a"),
            };
            for operator in ["$ne", "$nin", "$eq", "$in"] {
                let value = if operator.ends_with("in") { json!([value]) } else { value.clone() };
                check(&someone, json!({field: {operator: value}}), operator.starts_with("$n"));
            }
            check(&someone, json!({field: {"$exists": false}}), true);
            check(&someone, json!({field: {"$exists": true}}), false);
        }
        check(&someone, json!({"attributes.shoe_size": {"$gte": 0}}), false);
        check(&someone, json!({"attributes.shoe_size": {"$not": {"$gte": 0}}}), true);
        check(&someone, json!({"$not": {"attributes.shoe_size": {"$gte": 0}}}), true);
    }
}

#[test]
fn fields_of_a_person_are_absent_in_an_anonymous_request() {
    let nobody = Someone { is_known: false, ..ann() };
    check(&nobody, json!({"devices": 2}), false);
    check(&nobody, json!({"segments": {"$exists": false}, "last_seen": {"$exists": false}}), true);
    check(&nobody, json!({"events.page": {"$count": {"$gte": 0}}}), false);
    check(&nobody, json!({"geo.country": "DE", "page.keywords": "hotel"}), true);
}

#[test]
fn what_was_left_out_of_a_page_is_unknown() {
    let cut = Someone { page_gaps: PageGaps { url: true, keywords: true }, url: None, keywords: vec!["ski"], ..ann() };
    for (document, expected) in [
        (json!({"page.keywords": "ski"}), true),
        (json!({"page.keywords": {"$exists": true}}), true),
        (json!({"page.keywords": {"$nin": ["gambling"]}}), false),
        (json!({"page.keywords": {"$ne": "gambling"}}), false),
        (json!({"$not": {"page.keywords": {"$nin": ["gambling"]}}}), false),
        (json!({"page.keywords": "gambling"}), false),
        (json!({"page.keywords": {"$nin": ["ski"]}}), false),
        (json!({"page.keywords": {"$exists": false}}), false),
        (json!({"page.url": {"$ne": "https://a.example/"}}), false),
        (json!({"page.url": {"$exists": false}}), false),
        (json!({"page.url": {"$exists": true}}), false),
        (json!({"$or": [{"page.url": {"$exists": false}}, {"page.keywords": "ski"}]}), true),
    ] {
        check(&cut, document, expected);
    }
    let empty = Someone { keywords: Vec::new(), ..cut };
    check(&empty, json!({"page.keywords": {"$exists": false}}), false);
    check(&empty, json!({"page.keywords": {"$nin": ["gambling"]}}), false);
}

#[test]
fn targeting_may_use_the_best_send_time_and_an_audience_may_not() {
    let now = json!({"best_send_time.now": true});
    for (best_now, [is_now, is_not, is_known]) in
        [(Some(true), [true, false, true]), (Some(false), [false, true, true]), (None, [false, true, false])]
    {
        let someone = Someone { best_now, ..ann() };
        check(&someone, now.clone(), is_now);
        check(&someone, json!({"best_send_time.now": {"$ne": true}}), is_not);
        check(&someone, json!({"best_send_time.now": {"$exists": true}}), is_known);
    }
    let refused = |document: &Json, answers| {
        let found = parse(document, "", &tenant().words(answers)).unwrap_err();
        format!("{}: {}", found[0].path, found[0].message)
    };
    assert!(refused(&now, CountAnswerer::Audience).contains("time of a request"));
    assert!(refused(&json!({"best_send_time.now": 20}), CountAnswerer::Origin).contains("true or false is needed"));
    assert!(
        refused(&json!({"best_send_time.now": {"$gt": false}}), CountAnswerer::Origin).contains("best_send_time.now")
    );
}

#[test]
fn a_condition_on_an_unknown_count_is_neither_true_nor_false() {
    check(&ann(), json!({"events.page": {"$count": 3}}), true);
    check(&ann(), json!({"events.page": {"$count": {"$gt": 1, "$lt": 3}}}), false);
    check(&ann(), json!({"$not": {"events.page": {"$count": {"$lt": 3}}}}), true);
    let week = json!({"interval": 7, "unit": "days"});
    for count in [json!({"$gte": 1}), json!({"$lt": 1}), json!({"$ne": 1}), json!(1), json!({"$nin": [1]})] {
        let bought = json!({"events.page": {"$count": count, "within": week}});
        check(&ann(), bought.clone(), false);
        check(&ann(), json!({"$not": bought}), false);
        check(&ann(), json!({"$or": [bought, {"devices": 2}]}), true);
    }
}

#[test]
fn actions_are_counted_by_window_and_by_ad() {
    let now = Minute(Day(100).start().0 + 600);
    let action = |n: u8, action_type, campaign, days: u32| AdAction {
        insertion: InsertionHash([n; 6]),
        action_type,
        view_type: ViewType(1),
        entity: AdEntity { ad: u32::from(n), ad_group: 1, campaign, advertiser: 1 },
        minute: Minute(now.0 - days * 1_440),
    };
    let one: ActionList =
        [action(1, ActionType::CLICK, 1, 0), action(2, ActionType::CLICK, 2, 3), action(3, ActionType(3), 1, 0)]
            .into_iter()
            .collect();
    let two: ActionList =
        [action(1, ActionType::CLICK, 1, 0), action(4, ActionType::CLICK, 1, 20)].into_iter().collect();
    let packed = [one.pack_actions(), two.pack_actions()];
    let actions: Vec<PackedActions<'_>> = packed.iter().map(|bytes| PackedActions::read(bytes).unwrap()).collect();
    let history = PersonHistory {
        totals: ProfileTotals { pages: 4, purchases: 1, ..ProfileTotals::default() },
        actions: &actions,
        events: EventEvidence::Nothing,
        missing: MissingParts::NONE,
    };
    let ask = |document: Json| {
        let filter = tenant().parse(&document);
        let index = FilterIndex::new(&[Some(filter.clone())]);
        assert_eq!(index.counts(), filter.counts());
        let answers = index.answers(&history, now).into_iter();
        answers.map(|answer| answer.and_then(EventCount::exact)).collect::<Vec<_>>()
    };
    let week = json!({"interval": 7, "unit": "days"});
    assert_eq!(ask(json!({"actions.click": {"$count": 0, "within": week}})), [Some(2)]);
    assert_eq!(ask(json!({"actions.click": {"$count": 0}})), [Some(3)]);
    assert_eq!(ask(json!({"actions.click": {"$count": 0, "within": week, "campaign": "c-1"}})), [Some(1)]);
    assert_eq!(ask(json!({"actions.click": {"$count": 0, "campaign": ["c-1", "c-2"]}})), [Some(3)]);
    assert_eq!(ask(json!({"actions.hide": {"$count": 0, "advertiser": "v-1"}})), [Some(1)]);
    let events = json!({"$and": [{"events.page": {"$count": 0}}, {"events.purchase": {"$count": 0}},
        {"events.saved": {"$count": 0}}, {"events.page": {"$count": 0, "within": week}}]});
    assert_eq!(ask(events), [Some(4), None, Some(1), None]);
}

#[test]
fn many_counts_in_one_pass_equal_separate_counts() {
    let now = Minute(Day(100).start().0 + 600);
    let mut state = 7;
    let mut draw = |below: u64| u32::try_from(random::next(&mut state) % below).unwrap();
    let parts: Vec<Vec<u8>> = (0..3)
        .map(|_| {
            let actions = (0..200).map(|_| {
                // An insertion has one ad.
                let insertion = draw(150);
                let ad = insertion % 5;
                AdAction {
                    insertion: InsertionHash([u8::try_from(insertion).unwrap(); 6]),
                    action_type: [ActionType::IMPRESSION, ActionType::CLICK, ActionType(3)][draw(3) as usize],
                    view_type: ViewType(1),
                    entity: AdEntity { ad, ad_group: ad % 3, campaign: ad % 4, advertiser: 1 },
                    minute: Minute(now.0 - draw(30 * 1_440)),
                }
            });
            actions.collect::<ActionList>().pack_actions()
        })
        .collect();
    let actions: Vec<PackedActions<'_>> = parts.iter().map(|bytes| PackedActions::read(bytes).unwrap()).collect();
    let history = PersonHistory {
        totals: ProfileTotals::default(),
        actions: &actions,
        events: EventEvidence::Nothing,
        missing: MissingParts::NONE,
    };
    let levels = [("campaign", "c", 2), ("ad_group", "g", 1), ("ad", "a", 2)];
    let filters: Vec<Filter> = (0..300)
        .map(|_| {
            let within = json!({ "interval": 1 + draw(30), "unit": "days" });
            let mut count = json!({ "$count": { "$gte": 1 } });
            if draw(4) > 0 {
                count["within"] = within;
            }
            if draw(4) > 0 {
                let (level, letter, most) = levels[draw(3) as usize];
                let ids: BTreeSet<String> = (0..3).map(|_| format!("{letter}-{}", 1 + draw(most))).collect();
                count[level] = json!(ids);
            }
            tenant()
                .parse(&json!({ (["actions.impression", "actions.click", "actions.hide"][draw(3) as usize]): count }))
        })
        .collect();
    let all: Vec<Option<Filter>> = filters.iter().cloned().map(Some).collect();
    let index = FilterIndex::new(&all);
    let together = index.answers(&history, now);
    assert!(index.counts().len() > 150, "{}", index.counts().len());
    for filter in &filters {
        let alone = FilterIndex::new(&[Some(filter.clone())]).answers(&history, now);
        for (question, answer) in filter.counts().iter().zip(&alone) {
            let place = index.counts().binary_search(question).unwrap();
            let CountSource::Action { action_type, of } = &question.what else { unreachable!("{question:?}") };
            let (from, to) = question.within.map_or((Minute(0), Minute(u32::MAX)), |window| window.range(now));
            let mut counted: BTreeSet<(InsertionHash, u32, u32)> = BTreeSet::new();
            for action in actions.iter().flat_map(|packed| packed.iter()) {
                let of_them = of.as_ref().is_none_or(|(level, codes)| codes.contains(&action.entity.at(*level)));
                if action.action_type == *action_type && of_them && (from..=to).contains(&action.minute) {
                    counted.insert((action.insertion, action.entity.ad, action.minute.0 / 1_440));
                }
            }
            assert_eq!(
                (together[place], *answer),
                (*answer, Some(EventCount::Exactly(counted.len() as u64))),
                "{question:?}"
            );
        }
    }
}

#[test]
fn one_question_is_asked_once_and_the_order_of_a_document_is_nothing() {
    let tenant = tenant();
    let one = json!({"$or": [{"events.purchase": {"$count": 1}}, {"events.page": {"$count": {"$gt": 1, "$lt": 5}}}],
        "segments": {"$in": [3, 1, 3]}, "events.page": {"$count": 2}});
    let two = json!({"events.page": {"$count": 2}, "segments": {"$in": [1, 3]},
        "$and": [{"$or": [{"events.page": {"$count": {"$lt": 5, "$gt": 1}}}, {"events.purchase": {"$count": 1}}]}]});
    assert_eq!(tenant.parse(&one), tenant.parse(&two));
    assert_eq!(tenant.parse(&one).counts().len(), 2);
}

#[test]
fn everything_wrong_is_named_with_its_path() {
    let document = json!({
        "$or": [
            {"attributes.shoe_size": {"$gt": "big", "$lt": 35.5}},
            {"attributes.shoe": 1},
            {"devices": {"$regex": ".*"}, "segments": {"$gt": 1}},
        ],
        "$nor": [],
        "actions.save": {"$count": 1, "within": {"interval": 1, "unit": "days"}},
        "attributes.tags": ["a"],
        "attributes.vip": {"$exists": 1, "$in": [true, null]},
        "devices": {},
        "first_seen": {"$gt": "2026-02-30T00:00:00Z"},
        "geo.country": "de",
        "page.view_type": {"$nin": ["home", "hme"]},
        "pages": 1,
    });
    assert_eq!(
        problems(&document),
        [
            "targeting.$nor: there is no field `$nor`",
            "targeting.$or[0].attributes.shoe_size.$gt: attribute `shoe_size` is an integer, a string was given",
            "targeting.$or[0].attributes.shoe_size.$lt: attribute `shoe_size` is an integer, a float was given",
            "targeting.$or[1].attributes.shoe: there is no attribute `shoe`",
            "targeting.$or[2].devices.$regex: there is no operator `$regex` here",
            "targeting.$or[2].segments.$gt: `segments` has no order: use $eq, $ne, $in or $nin",
            "targeting.actions.save: there is no action type `save`",
            "targeting.attributes.tags: an array was given: `tags` takes one value, and matches when any of them is; use \
             $in for several",
            "targeting.attributes.vip.$exists: a number was given: true or false is needed",
            "targeting.attributes.vip.$in[1]: null was given: a bool, a number, a string or an array of strings is needed",
            "targeting.devices: an operator is needed",
            "targeting.first_seen.$gt: `2026-02-30T00:00:00Z` was given: an RFC 3339 time or whole milliseconds since \
             1970 is needed",
            "targeting.geo.country: `de` was given: a country as two capital letters of ISO 3166-1 is needed",
            "targeting.page.view_type.$nin[1]: there is no view type `hme`",
            "targeting.pages: there is no field `pages`",
        ]
    );
}

#[test]
fn a_value_of_another_type_is_an_error_and_not_false() {
    let good = [json!(1), json!(1.5), json!(true), json!("x"), json!("2020-01-01")];
    let fits = |name: &str, value: &Json| {
        let document = json!({format!("attributes.{name}"): {"$in": [value]}});
        parse(&document, "", &tenant().words(CountAnswerer::Origin)).is_ok()
    };
    // An integer is a float too, and a date is a string.
    for (name, taken) in [
        ("shoe_size", [true, false, false, false, false]),
        ("score", [true, true, false, false, false]),
        ("vip", [false, false, true, false, false]),
        ("city", [false, false, false, true, true]),
        ("born", [false, false, false, false, true]),
        ("tags", [false, false, false, true, true]),
    ] {
        assert_eq!(good.each_ref().map(|value| fits(name, value)), taken, "{name}");
    }
}

#[test]
fn what_a_snapshot_does_not_keep_is_refused_in_a_targeting() {
    let day = json!({"interval": 1, "unit": "days"});
    let both = |document: &Json| {
        tenant().parse(document);
        problems(document)
    };
    assert!(
        both(&json!({"events.saved": {"$count": 1}}))[0].starts_with("targeting.events.saved: snapshots count only")
    );
    let ever = json!({"actions.click": {"$count": 1}});
    assert_eq!(
        both(&ever),
        ["targeting.actions.click.within: 1 or more minutes, hours or days, 30 days at most, are needed"]
    );
    for field in ["actions.click", "events.purchase"] {
        let long = json!({field: {"$count": 1, "within": {"interval": 31, "unit": "days"}}});
        assert_eq!(both(&long).len(), 1);
    }
    let kept = json!({"actions.click": {"$count": 1, "within": day}, "events.page": {"$count": 1}});
    parse(&kept, "targeting", &tenant().words(CountAnswerer::Snapshot)).unwrap();
}

#[test]
fn the_sample_filter_is_valid_for_targeting_and_for_audiences() {
    let sample = json!({"attributes.shoe_size": {"$gt": 35}, "segments": {"$in": [8457]},
        "events.purchase": {"$count": {"$gte": 1}, "within": {"interval": 7, "unit": "days"}}});
    let [targeting, audience] = [CountAnswerer::Snapshot, CountAnswerer::Audience]
        .map(|answers| parse(&sample, "targeting", &tenant().words(answers)).unwrap());
    assert_eq!(targeting, audience);
}

#[test]
fn a_filter_1000_deep_is_refused() {
    let deep = |levels, wrap: &dyn Fn(Json) -> Json| (1..levels).fold(json!({"devices": 1}), |inner, _| wrap(inner));
    let not = |inner| json!({"$not": inner});
    let and = |inner| json!({"$and": [inner]});
    let within = |inner: Json| json!({"devices": {"$not": inner["devices"]}});
    for wrap in [&not as &dyn Fn(Json) -> Json, &and] {
        tenant().parse(&deep(limits::FILTER_DEPTH, wrap));
        let found = problems(&deep(limits::FILTER_DEPTH + 1, wrap));
        assert_eq!(problems(&deep(1_000, wrap)), found);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with(": 8 levels at most"), "{found:?}");
    }
    assert!(
        problems(&deep(1_000, &|inner| if inner["devices"].is_object() {
            within(inner)
        } else {
            json!({"devices": {"$gt": 1}})
        }))[0]
            .ends_with(": 8 levels at most")
    );
}

#[test]
fn a_filter_may_have_all_its_conditions_at_its_deepest() {
    let deep = |_| (2..limits::FILTER_DEPTH).fold(json!({"$gt": 1}), |inner, _| json!({"$not": inner}));
    let fields: Map<String, Json> =
        (0..limits::FILTER_CONDITIONS).map(|i| (format!("events.e{i}"), json!({"$count": deep(i)}))).collect();
    tenant().parse(&Json::Object(fields));
}

#[test]
fn a_filter_of_a_million_parts_is_refused() {
    let million = 1_000_000;
    let only = |document: &Json, message: &str| assert_eq!(problems(document), [message]);
    let fields: Map<String, Json> = (0..million).map(|i| (format!("attributes.a{i}"), json!(1))).collect();
    assert_eq!(problems(&Json::Object(fields)).len(), limits::FILTER_CONDITIONS + 1);
    only(
        &json!({"$and": vec![json!({"devices": 1}); million]}),
        "targeting.$and: an array of 1 to 64 documents is needed",
    );
    only(
        &json!({"segments": {"$in": vec![1; million]}}),
        "targeting.segments.$in: an array of 1 to 256 values is needed",
    );
    let operators: Map<String, Json> = (0..million).map(|i| (format!("$eq{i}"), json!(1))).collect();
    assert_eq!(problems(&json!({"devices": operators})).len(), limits::FILTER_CONDITIONS + 1);
    // 64 by 64 by 64 conditions, where no single list is over its bound.
    let wide = |inner: Json| json!({"$or": vec![inner; 64]});
    only(&wide(wide(wide(json!({"devices": 1})))), "targeting: 64 conditions at most");
    let empty = wide(wide(wide(json!({"$and": [{}]}))));
    assert!(problems(&empty).len() <= limits::FILTER_CONDITIONS * limits::FILTER_DEPTH + 1);
    let nothing: Map<String, Json> = (0..million).map(|i| (format!("events.e{i}"), json!({"$count": {}}))).collect();
    assert!(problems(&Json::Object(nothing)).len() < 3_000);
}

#[test]
fn texts_and_names_too_long_are_refused_and_not_repeated() {
    let long = "ä".repeat(500_000);
    for document in [
        json!({"page.url": long}),
        json!({long.as_str(): 1}),
        json!({"devices": {long.as_str(): 1}}),
        json!({"geo.country": long}),
        json!({format!("events.{long}"): {"$count": 1}}),
        json!({format!("actions.{long}"): {"$count": 1, "within": {"interval": 1, "unit": "days"}}}),
        json!({"attributes.city": long}),
        json!({"first_seen": long}),
    ] {
        let found = problems(&document);
        assert!(found.iter().all(|problem| problem.len() < 400), "{found:?}");
    }
    let urls: Vec<String> = (0..9).map(|i| format!("https://pub.example/{i}{}", "x".repeat(2_000))).collect();
    let found = problems(&json!({"page.url": {"$in": urls}, "devices": {"$regex": 1}}));
    assert_eq!(
        found,
        [
            "targeting.devices.$regex: there is no operator `$regex` here",
            "targeting.page.url.$in[8]: 16384 bytes of texts at most in one filter"
        ]
    );
}

#[test]
fn numbers_that_are_none_are_refused() {
    for value in ["NaN", "Infinity", "1e999", "0x1"] {
        assert_eq!(problems(&json!({"attributes.score": {"$gt": value}})).len(), 1);
        assert_eq!(problems(&json!({"devices": {"$gt": value}})).len(), 1);
    }
    for value in [json!(-1), json!(1.5), json!(1e30), json!(u64::MAX), json!([1]), json!({"$numberLong": "1"})] {
        assert!(!problems(&json!({"devices": value})).is_empty());
        assert!(!problems(&json!({"segments": {"$in": [value]}})).is_empty());
    }
    assert_eq!(
        problems(&json!({"attributes.shoe_size": {"$gt": i64::MAX}})),
        ["targeting.attributes.shoe_size.$gt: no number can satisfy this comparison"]
    );
    assert_eq!(problems(&json!({"segments": 4_294_967_296_u64})).len(), 1);
    tenant().parse(&json!({"attributes.score": {"$gt": f64::MAX, "$lt": f64::MIN, "$ne": -0.0}}));
}

#[test]
fn what_is_no_document_is_refused() {
    for document in [
        json!(null),
        json!([]),
        json!("devices"),
        json!({"$and": {}}),
        json!({"$or": []}),
        json!({"$not": []}),
        json!({"$not": {}}),
        json!({"$and": [1]}),
        json!({"$and": [{}]}),
        json!({"devices": {"$in": 1}}),
        json!({"devices": null}),
        json!({"devices": {"$not": 2}}),
        json!({"devices": {"$not": {}}}),
        json!({"devices": {"$in": []}}),
        json!({"": 1}),
        json!({"events.": {"$count": 1}}),
        json!({"events.page": 1}),
        json!({"events.page": {}}),
        json!({"events.page": {"$count": {"$exists": true}}}),
        json!({"events.page": {"$count": 1, "campaign": "c-1"}}),
        json!({"actions.click": {"$count": 1, "within": 7}}),
    ] {
        assert_eq!(problems(&document).len(), 1, "{document} {:?}", problems(&document));
    }
}

#[test]
fn times_are_read_as_rfc_3339_says() {
    let at = |text: &str| {
        let filter = parse(&json!({"first_seen": {"$eq": text}}), "", &tenant().words(CountAnswerer::Origin)).ok()?;
        let time = |time| Someone { is_known: true, seen: Some((time, time)), ..Someone::default() };
        [0, 951_827_696_789, 1_482_323_696_000, 1_483_228_800_000]
            .into_iter()
            .find(|ms| time(*ms).matches_filter(&filter))
    };
    assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
    assert_eq!(at("2000-02-29T12:34:56.789123Z"), Some(951_827_696_789));
    assert_eq!(at("2016-12-21t13:34:56+01:00"), Some(1_482_323_696_000));
    assert_eq!(at("2016-12-31T23:59:60Z"), Some(1_483_228_800_000));
    for bad in [
        "2016-12-21",
        "2016-12-21T12:34:56",
        "2016-12-21 12:34:56Z",
        "2016-12-21T24:00:00Z",
        "2016-12-21T12:34:56.Z",
        "2016-12-21T12:34:56+0100",
        "2016-13-21T12:34:56Z",
        "2016-12-21T12:60:56Z",
        "ä",
    ] {
        assert!(parse(&json!({"first_seen": bad}), "", &tenant().words(CountAnswerer::Origin)).is_err(), "{bad}");
    }
}

/// A naive evaluation of documents.
mod naive {
    use super::*;

    /// Whether the document matches; `None` if that is unknown.
    pub(super) fn holds(document: &Json, someone: &Someone) -> Option<bool> {
        all(document.as_object().unwrap().iter().map(|(key, value)| match key.as_str() {
            "$and" => all(value.as_array().unwrap().iter().map(|inner| holds(inner, someone))),
            "$or" => not(all(value.as_array().unwrap().iter().map(|inner| not(holds(inner, someone))))),
            "$not" => not(holds(value, someone)),
            _ if key.starts_with("events.") || key.starts_with("actions.") => counted(key, value, someone),
            _ => operators(&values(key, someone), value),
        }))
    }

    fn not(value: Option<bool>) -> Option<bool> {
        value.map(|holds| !holds)
    }

    fn all(values: impl Iterator<Item = Option<bool>>) -> Option<bool> {
        let values: Vec<Option<bool>> = values.collect();
        if values.contains(&Some(false)) {
            Some(false)
        } else {
            values.into_iter().all(|v| v.is_some()).then_some(true)
        }
    }

    fn counted(key: &str, value: &Json, someone: &Someone) -> Option<bool> {
        let question = tenant().parse(&json!({key: value})).counts()[0].clone();
        let count = someone.count(&question).filter(|_| someone.is_known)?;
        operators(&[json!(count)], &value["$count"])
    }

    /// The values of a field as in a filter; empty if the field is absent.
    fn values(field: &str, someone: &Someone) -> Vec<Json> {
        let text = |text: Option<&str>| text.map(|text| json!(text)).into_iter().collect();
        match field {
            "page.url" => return text(someone.url),
            "page.keywords" => return someone.keywords.iter().map(|word| json!(word)).collect(),
            "geo.country" => return text(someone.country),
            "device.class" => return text(someone.class),
            "page.view_type" => {
                return text(
                    ["home", "article", "search"].get(usize::from(someone.view_type).wrapping_sub(1)).copied(),
                );
            }
            _ if !someone.is_known => return Vec::new(),
            "best_send_time.now" => return someone.best_now.map(|now| json!(now)).into_iter().collect(),
            "segments" => return someone.segments.iter().map(|id| json!(id.0)).collect(),
            "devices" => return vec![json!(someone.devices)],
            "first_seen" => return someone.seen.map(|(first, _)| json!(first)).into_iter().collect(),
            "last_seen" => return someone.seen.map(|(_, last)| json!(last)).into_iter().collect(),
            _ => {}
        }
        let (token, _) = tenant().attributes.find(field.strip_prefix("attributes.").unwrap()).unwrap();
        match someone.attributes.iter().find(|(at, _)| *at == token) {
            Some((_, AttributeValue::Strings(all))) => all.iter().map(|text| json!(text)).collect(),
            Some((_, value)) => vec![value.to_json()],
            None => Vec::new(),
        }
    }

    fn operators(values: &[Json], operators: &Json) -> Option<bool> {
        let Some(operators) = operators.as_object() else { return operator(values, "$eq", operators) };
        all(operators.iter().map(|(key, operand)| operator(values, key, operand)))
    }

    fn operator(values: &[Json], key: &str, operand: &Json) -> Option<bool> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let any = |orders: &[std::cmp::Ordering]| values.iter().any(|value| orders.contains(&compare(value, operand)));
        let one_of =
            || values.iter().any(|value| operand.as_array().unwrap().iter().any(|one| compare(value, one) == Equal));
        match key {
            "$eq" => Some(any(&[Equal])),
            "$ne" => Some(!any(&[Equal])),
            "$gt" => Some(any(&[Greater])),
            "$gte" => Some(any(&[Greater, Equal])),
            "$lt" => Some(any(&[Less])),
            "$lte" => Some(any(&[Less, Equal])),
            "$in" => Some(one_of()),
            "$nin" => Some(!one_of()),
            "$exists" => Some(operand.as_bool().unwrap() != values.is_empty()),
            "$not" => not(operators(values, operand)),
            _ => panic!("{key}"),
        }
    }

    fn compare(value: &Json, operand: &Json) -> std::cmp::Ordering {
        match (value, operand) {
            (Json::String(value), Json::String(operand)) => value.cmp(operand),
            (Json::Bool(value), Json::Bool(operand)) => value.cmp(operand),
            _ => value.as_f64().unwrap().partial_cmp(&operand.as_f64().unwrap()).unwrap(),
        }
    }
}

/// A field, whether it is ordered, and values that often match those of [`someone`].
fn a_field() -> impl Strategy<Value = (&'static str, bool, Vec<Json>)> {
    select(vec![
        ("attributes.shoe_size", true, vec![json!(40), json!(41), json!(42)]),
        ("attributes.score", true, vec![json!(-1.5), json!(0), json!(0.25), json!(7)]),
        ("attributes.vip", false, vec![json!(true), json!(false)]),
        ("attributes.city", true, vec![json!("Bonn"), json!("Ulm"), json!("")]),
        ("attributes.born", true, vec![json!("1990-05-01"), json!("2001-01-01")]),
        ("attributes.tags", true, vec![json!("a"), json!("b"), json!("c")]),
        ("segments", false, vec![json!(1), json!(2), json!(3), json!(70_000), json!(u32::MAX)]),
        ("devices", true, vec![json!(1), json!(2), json!(3)]),
        ("first_seen", true, vec![json!(10), json!(20)]),
        ("last_seen", true, vec![json!(20), json!(30)]),
        ("best_send_time.now", false, vec![json!(true), json!(false)]),
        ("page.url", false, vec![json!("https://a.example/"), json!("https://b.example/")]),
        ("page.keywords", false, vec![json!("ski"), json!("beach"), json!("hotel")]),
        ("page.view_type", false, vec![json!("home"), json!("article")]),
        ("geo.country", false, vec![json!("DE"), json!("AT"), json!("FR")]),
        ("device.class", false, vec![json!("mobile"), json!("desktop")]),
        ("#count", true, vec![json!(0), json!(1), json!(2)]),
    ])
}

fn operators(ordered: bool, exists: bool, values: Vec<Json>) -> impl Strategy<Value = Json> {
    let value = select(values.clone());
    let list = vec(select(values), 1..4);
    let mut ways: Vec<BoxedStrategy<(&'static str, Json)>> = vec![
        (select(vec!["$eq", "$ne"]), value.clone()).boxed(),
        (select(vec!["$in", "$nin"]), list.prop_map(Json::from)).boxed(),
    ];
    if ordered {
        ways.push((select(vec!["$gt", "$gte", "$lt", "$lte"]), value.clone()).boxed());
    }
    if exists {
        ways.push((Just("$exists"), any::<bool>().prop_map(Json::from)).boxed());
    }
    let some = vec(proptest::strategy::Union::new(ways), 1..3)
        .prop_map(|all| Json::Object(all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()));
    prop_oneof![1 => value, 4 => some.clone(), 1 => some.prop_map(|inner| json!({"$not": inner}))]
}

fn condition() -> impl Strategy<Value = (String, Json)> {
    let question = select(vec!["events.page", "events.purchase", "events.saved", "actions.click", "actions.hide"]);
    (a_field(), question, any::<bool>()).prop_flat_map(|((name, ordered, values), question, within)| {
        let is_count = name == "#count";
        operators(ordered, !is_count, values).prop_map(move |value| match (is_count, within) {
            (false, _) => (name.to_owned(), value),
            (true, false) => (question.to_owned(), json!({"$count": value})),
            (true, true) => (question.to_owned(), json!({"$count": value, "within": {"interval": 2, "unit": "hours"}})),
        })
    })
}

fn document() -> impl Strategy<Value = Json> {
    let leaf = vec(condition(), 1..4).prop_map(|all| Json::Object(all.into_iter().collect()));
    leaf.prop_recursive(4, 24, 3, |inner| {
        let entries = vec(inner.clone(), 1..3);
        let group = prop_oneof![(select(vec!["$and", "$or"]), entries.prop_map(Json::from)), (Just("$not"), inner),];
        (vec(condition(), 0..2), vec(group, 1..3)).prop_map(|(conditions, groups)| {
            let groups = groups.into_iter().map(|(key, value)| (key.to_owned(), value));
            Json::Object(conditions.into_iter().chain(groups).collect())
        })
    })
}

prop_compose! {
    fn someone()(
        is_known in prop::bool::weighted(0.9),
        attributes in (
            prop::option::of(select(vec![40, 41, 42, 43])),
            prop::option::of(select(vec![-1.5, 0.0, 0.25, 1e300])),
            prop::option::of(any::<bool>()),
            prop::option::of(select(vec!["", "Bonn", "Köln", "Ulm"])),
            prop::option::of(select(vec!["1990-05-01", "2020-01-01"])),
            prop::option::of(prop::sample::subsequence(vec!["a", "b", "c"], 0..=3)),
        ),
        segments in prop::sample::subsequence(vec![1, 2, 3, 4, 70_000, u32::MAX], 0..=4),
        devices in 1..4_u32,
        seen in prop::option::of(select(vec![(10, 20), (20, 30)])),
        best_now in prop::option::of(any::<bool>()),
        url in prop::option::of(select(vec!["https://a.example/", "https://c.example/"])),
        keywords in prop::sample::subsequence(vec!["beach", "hotel", "ski"], 0..=2),
        view_type in 0..4_u8,
        country in prop::option::of(select(vec!["DE", "AT", "IT"])),
        class in prop::option::of(select(vec!["mobile", "tablet"])),
        counted in vec(prop::option::of(0..3_u64), 7),
    ) -> Someone {
        let (size, score, vip, city, born, tags) = attributes;
        let values = [
            size.map(AttributeValue::Integer),
            score.map(|score| AttributeValue::Float(FiniteNumber::new(score).unwrap())),
            vip.map(AttributeValue::Bool),
            city.map(|city| AttributeValue::String(city.to_owned())),
            born.map(|born| AttributeValue::String(born.to_owned()).fit(ValueKind::Date).unwrap()),
            tags.map(|tags| AttributeValue::Strings(tags.into_iter().map(str::to_owned).collect())),
        ];
        let attributes = (0..).map(NameToken).zip(values).filter_map(|(token, value)| Some((token, value?))).collect();
        let segments = segments.into_iter().map(SegmentId).collect();
        Someone { is_known, is_unread: false, attributes, segments, devices, seen, best_now, url, keywords, view_type, country, class, counted, in_part: false, gaps: None, page_gaps: PageGaps::default() }
    }
}

/// Data that is hidden from a reader. For each attribute and segment: 0 hides it, 1 makes it uncertain, 2 leaves it. Of
/// the page: whether its address is hidden, and the number of keywords that are left.
type Hidden = (Vec<u8>, Vec<u8>, bool, bool, (bool, Option<usize>));

fn hidden() -> impl Strategy<Value = Hidden> {
    let page = (any::<bool>(), prop::option::of(0..3_usize));
    (vec(0..3_u8, 6), vec(0..3_u8, 10), any::<bool>(), any::<bool>(), page)
}

impl Someone {
    /// The same person for a reader that lacks some of its data.
    fn without(&self, (attributes, segments, members, counts, (url, keywords)): &Hidden) -> Self {
        let mut part = self.clone();
        let of = |token: &NameToken| attributes[usize::from(token.0)];
        part.attributes.retain(|(token, _)| of(token) > 0);
        let certain = (0..6).map(NameToken).filter(|token| of(token) == 2 && !members).collect();
        let of = |id: &SegmentId| segments[id.0 as usize % segments.len()];
        part.segments.retain(|id| of(id) > 0);
        let absent = (0..10_000).map(SegmentId).filter(|id| of(id) == 2 && !self.segments.contains(id) && !members);
        if *members {
            part.devices = 1;
            part.seen = part.seen.map(|(first, last)| (first + 5, last - 5)).filter(|_| *counts);
            part.best_now = part.best_now.filter(|_| *counts);
        }
        part.url = part.url.filter(|_| !url);
        part.keywords.truncate(keywords.unwrap_or(usize::MAX));
        part.page_gaps = PageGaps { url: *url, keywords: keywords.is_some() };
        part.in_part = *members || *counts;
        part.gaps = Some(Gaps { attributes: Some(certain), segments: Some(absent.collect()), members: *members });
        part
    }
}

fn law() -> Config {
    Config { cases: 10_000, failure_persistence: None, ..Config::default() }
}

/// Parses a document; `None` if it is over a bound, which the generator does not know.
fn filter_of(document: &Json) -> Option<Filter> {
    match parse(document, "targeting", &tenant().words(CountAnswerer::Origin)) {
        Ok(filter) => Some(filter),
        Err(found) => {
            assert!(found.iter().all(|problem| problem.message.ends_with("at most")), "{found:?} of {document}");
            None
        }
    }
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn a_filter_evaluates_like_its_document(document in document(), people in vec(someone(), 4)) {
        if let Some(filter) = filter_of(&document) {
            for someone in people {
                prop_assert_eq!(someone.matches_filter(&filter), naive::holds(&document, &someone) == Some(true), "{} {:?}", document, someone);
            }
        }
    }

    #[test]
    fn a_lower_bound_matches_only_if_every_possible_count_matches(document in document(), mut someone in someone(), more in vec(0..4_u64, 8)) {
        let Some(filter) = filter_of(&document) else { return Ok(()) };
        someone.is_known = true;
        let ask = |counts: Vec<Option<EventCount>>| someone.ask_of(&counts, |subject| filter.matches(subject));
        let least: Vec<u64> = someone.counts(filter.counts()).into_iter().map(|of| of.and_then(EventCount::exact).unwrap_or(0)).collect();
        let more = |by: u64| least.iter().zip(more.iter().cycle()).map(move |(least, more)| least + more * by);
        let exactly = |by| ask(more(by).map(|count| Some(EventCount::Exactly(count))).collect());
        let in_part = ask(least.iter().map(|least| Some(EventCount::AtLeast(*least))).collect());
        prop_assert!(!in_part || [0, 1, 2, 1_000].into_iter().all(exactly), "{document}");
        // No targeting matches because of missing data.
        prop_assert!(in_part || !ask(vec![None; least.len()]), "{document}");
    }

    #[test]
    fn a_filter_that_is_false_for_the_whole_person_is_never_true_for_a_part_of_it(
        document in document(),
        mut someone in someone(),
        hidden in hidden(),
    ) {
        let Some(filter) = filter_of(&document) else { return Ok(()) };
        someone.is_known = true;
        let part = someone.without(&hidden);
        let index = FilterIndex::new(&[Some(filter.clone())]);
        let unknown = part.ask(index.counts(), |subject| index.unknown_fields(0, subject));
        if part.matches_filter(&filter) {
            prop_assert!(someone.matches_filter(&filter), "{document} {part:?}");
            prop_assert_eq!(unknown, []);
        } else if someone.matches_filter(&filter) {
            prop_assert!(!unknown.is_empty(), "{document} {part:?}: surely false, and true for the whole person");
        }
    }

    #[test]
    fn the_wire_gives_every_filter_again(document in document()) {
        if let Some(filter) = filter_of(&document) {
            let bytes = wire::filter::encode_filter(&filter);
            prop_assert_eq!(wire::filter::decode_filter(&bytes), Ok(filter));
        }
    }

    #[test]
    fn bytes_of_anybody_are_refused_or_are_of_a_filter(
        document in document(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let Some(filter) = filter_of(&document) else { return Ok(()) };
        let mut bytes = wire::filter::encode_filter(&filter);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(filter) = wire::filter::decode_filter(&bytes) {
            prop_assert_eq!(wire::filter::decode_filter(&wire::filter::encode_filter(&filter)), Ok(filter));
        }
    }
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn an_index_gives_what_one_filter_after_the_other_gives(
        documents in prop_oneof![
            9 => vec(prop::option::weighted(0.95, document()), 0..6),
            1 => vec(prop::option::weighted(0.95, document()), 0..90),
        ],
        people in vec(someone(), 2),
        hidden in hidden(),
    ) {
        let filters: Vec<Option<Filter>> = documents.iter().map(|document| filter_of(document.as_ref()?)).collect();
        let index = FilterIndex::new(&filters);
        let each = |one: Someone| {
            let whole = [(false, false), (true, false), (false, true)];
            let whole = whole.map(|(is_unread, in_part)| Someone { is_unread, in_part, ..one.clone() });
            whole.into_iter().chain([one.without(&hidden)])
        };
        for someone in people.into_iter().flat_map(each) {
            let expected: Vec<usize> = (0..filters.len()).filter(|i| filters[*i].as_ref().is_none_or(|filter| someone.matches_filter(filter))).collect();
            let matching = someone.ask(index.counts(), |subject| index.matching(subject));
            prop_assert_eq!(matching.iter().collect::<Vec<_>>(), expected.clone());
            for i in 0..filters.len() + 70 {
                prop_assert_eq!(matching.contains(i), expected.contains(&i));
            }
        }
    }
}

#[test]
fn of_whom_nothing_could_be_read_neither_a_condition_nor_its_opposite_holds() {
    let unread = Someone { is_unread: true, ..ann() };
    for document in [
        json!({"segments": 7}),
        json!({"segments": {"$nin": [9]}}),
        json!({"segments": {"$exists": false}}),
        json!({"$not": {"devices": 9}}),
        json!({"attributes.city": {"$ne": "Rome"}}),
        json!({"first_seen": {"$exists": false}}),
        json!({"best_send_time.now": {"$exists": false}}),
        json!({"events.purchase": {"$count": {"$lt": 1_000}}}),
    ] {
        let filter = tenant().parse(&document);
        assert!(!unread.matches_filter(&filter), "{document}");
    }
    let filter = tenant().parse(&json!({"$or": [{"segments": {"$nin": [9]}}, {"geo.country": "DE"}]}));
    assert!(unread.matches_filter(&filter), "what is not of a person is known");
}

/// Minutes of a person's actions in the audience index: pages, purchases, `saved`, clicks and hides.
type Acts = [Vec<u32>; 5];

const ACTS: [&str; 3] = ["page", "purchase", "saved"];
/// The time of these tests, in the middle of an hour.
const AT: Minute = Minute(100 * DAY_MINUTES + 90);

prop_compose! {
    fn acts()(acts in prop::array::uniform5(prop_oneof![
        2 => Just(Vec::new()),
        3 => vec(prop_oneof![AT.0 - 200..AT.0 + 3, 0..AT.0 + 100], 1..4),
    ])) -> Acts {
        acts
    }
}

fn count(question: &CountQuestion, acts: &Acts) -> Option<u64> {
    let place = match &question.what {
        CountSource::Pages => 0,
        CountSource::Purchases => 1,
        CountSource::Event(name) => ACTS.iter().position(|known| known == name)?,
        CountSource::Action { action_type, .. } => usize::from(action_type.0),
    };
    let (from, to) = question.within.map_or((Minute(0), Minute(u32::MAX)), |within| within.range(AT));
    Some(acts[place].iter().filter(|minute| (from.0..to.0).contains(minute)).count() as u64)
}

impl Someone {
    /// Whether the filter matches a single person.
    fn is_found(&self, filter: &Filter, acts: &Acts) -> bool {
        let counts: Vec<Option<EventCount>> =
            filter.counts().iter().map(|question| count(question, acts).map(EventCount::Exactly)).collect();
        let person = SubjectPerson {
            attributes: &self.attributes,
            segments: &self.segments,
            devices: self.devices,
            seen: self.seen,
            best_now: None,
            gaps: None,
        };
        filter.matches(&FilterSubject { person: Some(person), counts: &counts, ..FilterSubject::default() })
    }

    fn put(&self, people: &mut AudienceIndex, person: u64, bucket: u16, acts: &Acts) {
        let last = |minutes: &Vec<u32>| minutes.iter().max().map(|last| Minute(*last));
        let event = |(name, minutes)| Some((name, Vec::len(minutes) as u64, last(minutes)?));
        let events: Vec<_> = ACTS.into_iter().zip(acts).filter_map(event).collect();
        let action = |(action_type, minutes)| Some((ActionType(action_type), last(minutes)?));
        let actions: Vec<_> = (0..).zip(acts).skip(2).filter_map(action).collect();
        let sum = |place: usize| acts[place].len() as u64;
        let row = IndexRow {
            person,
            master: VisitorId::mint(person, [1; 10]),
            bucket,
            devices: self.devices,
            seen: self.seen,
            totals: ProfileTotals { pages: sum(0), purchases: sum(1), ..ProfileTotals::default() },
            attributes: &self.attributes,
            segments: &self.segments,
            expires: self.segments.first().map(|_| HourStamp(person as u32)),
            events: &events,
            more_events: false,
            missing: MissingParts::NONE,
            actions: &actions,
        };
        people.put(&row).unwrap();
    }
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn the_audience_index_matches_the_same_people_as_the_filter(
        documents in vec(document(), 3),
        writes in vec((0..9_u64, select(vec![0, 1, 24, 25, 5_000, 9_999]), prop::option::weighted(0.9, (someone(), acts()))), 1..20),
        from in select(vec![0, 1, 25]),
        to in select(vec![1, 25, 5_001, 10_000]),
        kept in (0..20_usize, 0..20_usize, 0..400_usize),
        counted in (0..=ACTS.len(), 0..=ACTS.len()),
    ) {
        let mut people = AudienceIndex::laid_out_for(10_000_000);
        people.count_events(&first_acts(counted.0));
        people.settle();
        let mut plain: BTreeMap<u64, (u16, Someone, Acts)> = BTreeMap::new();
        // Partitions are stored after different numbers of writes; people written since then are written again.
        let (began, ended, cut) = (kept.0.min(kept.1), kept.0.max(kept.1), kept.2);
        let (mut blocks, mut used, mut since) = (Vec::new(), UsedTexts::default(), BTreeSet::new());
        let mut names = people.pack_names(&used);
        for (n, (person, bucket, said)) in writes.into_iter().enumerate() {
            if n == began {
                blocks.extend((0..cut).map(|at| people.pack_partition(at, &mut used)));
            }
            if n == ended {
                blocks.extend((cut..people.partitions()).map(|at| people.pack_partition(at, &mut used)));
                names = people.pack_names(&used);
            }
            if n >= began {
                since.insert(person);
            }
            match said {
                Some((someone, acts)) => {
                    someone.put(&mut people, person, bucket, &acts);
                    plain.insert(person, (bucket, someone, acts));
                }
                None => {
                    people.remove(person);
                    plain.remove(&person);
                }
            }
        }
        if blocks.len() == people.partitions() {
            people = unpack(&blocks, &names).unwrap();
            for person in since {
                match plain.get(&person) {
                    Some((bucket, someone, acts)) => someone.put(&mut people, person, *bucket, acts),
                    None => people.remove(person),
                }
            }
        }
        count_other_names(&mut people, &plain, counted.1, from == 0);
        let buckets = from..to.max(from);
        let sampled = |bucket: &u16| buckets.contains(bucket);
        let over = |(person, (_, someone, _)): (&u64, &(u16, Someone, Acts))| (*person <= 4 && !someone.segments.is_empty()).then_some(*person);
        prop_assert_eq!(BTreeSet::from_iter(people.expired(HourStamp(4))), plain.iter().filter_map(over).collect());
        prop_assert_eq!(people.len(), plain.len() as u64);
        for filter in documents.iter().filter_map(filter_of) {
            let asked = people.ask(&filter, AT);
            let found = asked.count(people.partitions_of(&buckets), &buckets, None);
            let (mut sure, mut unsure) = (BTreeSet::new(), BTreeSet::new());
            asked.each(people.partitions_of(&buckets), &buckets, |person, master, is_sure| {
                assert_eq!(master, VisitorId::mint(person, [1; 10]));
                assert!(if is_sure { sure.insert(person) } else { unsure.insert(person) });
            });
            prop_assert_eq!(found.people, plain.values().filter(|(bucket, ..)| sampled(bucket)).count() as u64);
            prop_assert_eq!((found.sure, found.unsure.into_iter().collect::<BTreeSet<u64>>()), (sure.len() as u64, unsure.clone()));
            for (person, (bucket, someone, acts)) in &plain {
                let is_found = sampled(bucket) && someone.is_found(&filter, acts);
                let said = (sure.contains(person), unsure.contains(person));
                prop_assert!(said == (is_found, false) || said == (false, true) && sampled(bucket), "{said:?} {is_found} {filter:?} {someone:?} {acts:?}");
            }
        }
    }
}

/// Counts other event names from now on. Some or all rows that may lack their counts are written again.
fn count_other_names(people: &mut AudienceIndex, plain: &BTreeMap<u64, (u16, Someone, Acts)>, most: usize, all: bool) {
    people.count_events(&first_acts(most));
    for (n, person) in people.uncounted().into_iter().enumerate() {
        if let Some((bucket, someone, acts)) = plain.get(&person).filter(|_| all || n % 2 == 0) {
            someone.put(people, person, *bucket, acts);
        }
    }
    if all {
        people.settle();
    }
}

/// The first names of [`ACTS`].
fn first_acts(most: usize) -> BTreeSet<String> {
    ACTS.iter().take(most).map(|name| (*name).to_owned()).collect()
}

#[test]
fn only_people_with_uncounted_events_are_unsure_of_a_name_and_none_once_it_is_counted() {
    let mut people = AudienceIndex::laid_out_for(0);
    let once =
        |name: &str| -> Acts { std::array::from_fn(|n| vec![AT.0 - 5; usize::from(ACTS.get(n) == Some(&name))]) };
    let saved = BTreeSet::from(["saved".to_owned()]);
    let put = |people: &mut AudienceIndex, person: u64, name: &str| ann().put(people, person, 9, &once(name));
    put(&mut people, 0, "saved");
    put(&mut people, 1, "page");
    let asked = |people: &AudienceIndex, name: &str| {
        let day = json!({"interval": 1, "unit": "days"});
        let filter = tenant().parse(&json!({ format!("events.{name}"): {"$count": {"$gte": 1}, "within": day} }));
        let found = people.ask(&filter, AT).count(0..people.partitions(), &(0..10_000), None);
        (found.sure, found.unsure, people.uncounted_of(&filter).map(str::to_owned))
    };
    let in_doubt = (0, vec![0], Some("saved".to_owned()));
    assert_eq!((asked(&people, "saved"), asked(&people, "page")), (in_doubt.clone(), (1, vec![], None)));
    assert_eq!(people.uncounted(), [0; 0], "no name waits for it");
    for _ in 0..2 {
        assert!(people.count_events(&saved) && !people.count_events(&saved));
        assert_eq!((asked(&people, "saved"), people.uncounted()), (in_doubt.clone(), vec![0]));
        put(&mut people, 0, "saved");
        people.settle();
        assert_eq!((asked(&people, "saved"), people.uncounted()), ((1, vec![], None), vec![]));
        // The people of a name that is no longer counted are in doubt, even when the name is counted again.
        assert!(people.count_events(&BTreeSet::new()));
        assert_eq!(asked(&people, "saved"), in_doubt);
    }
}

#[test]
fn a_condition_that_the_audience_index_holds_is_never_unknown() {
    let mut people = AudienceIndex::laid_out_for(0);
    people.count_events(&first_acts(ACTS.len()));
    let acts = [vec![AT.0 - 9_000, AT.0 - 5], vec![AT.0], vec![], vec![AT.0 - 7 * DAY_MINUTES], vec![]];
    (0..100).for_each(|person| ann().put(&mut people, person, person as u16 * 99, &acts));
    let week = json!({"interval": 7, "unit": "days"});
    for (document, everybody) in [
        (json!({"events.page": {"$count": {"$gte": 2}}, "events.purchase": {"$count": 1}}), true),
        (json!({"events.page": {"$count": {"$gte": 1}, "within": week}}), true),
        (json!({"events.saved": {"$count": 0, "within": week}}), true),
        (json!({"actions.click": {"$count": {"$gt": 0}, "within": week}}), false),
        (json!({"actions.hide": {"$count": {"$lt": 1}, "within": week}}), true),
        (
            json!({"attributes.city": {"$in": ["Bonn", "Ulm"]}, "attributes.tags": "a", "segments": {"$nin": [1, 2]}}),
            true,
        ),
        (json!({"page.url": "https://pub.example/hotels"}), false),
    ] {
        let filter = tenant().parse(&document);
        let asked = people.ask(&filter, AT);
        let found = asked.count(0..people.partitions(), &(0..10_000), None);
        assert_eq!(
            (found.people, found.sure, found.unsure.len()),
            (100, if everybody { 100 } else { 0 }, 0),
            "{document}"
        );
    }
}

#[test]
fn a_person_with_events_in_the_future_is_unknown_to_the_audience_index() {
    let mut people = AudienceIndex::laid_out_for(0);
    people.count_events(&first_acts(ACTS.len()));
    let later = || vec![AT.0 + 2 * DAY_MINUTES];
    ann().put(&mut people, 1, 1, &[later(), vec![], later(), vec![], vec![]]);
    let day = json!({"interval": 1, "unit": "days"});
    for document in [
        json!({"events.page": {"$count": {"$gte": 1}, "within": day}}),
        json!({"events.page": {"$count": {"$lt": 1}, "within": day}}),
        json!({"$not": {"events.page": {"$count": {"$in": [0]}, "within": day}}}),
        json!({"events.saved": {"$count": {"$gt": 0}, "within": day}}),
    ] {
        let filter = tenant().parse(&document);
        let found = people.ask(&filter, AT).count(0..people.partitions(), &(0..10_000), None);
        assert_eq!((found.people, found.sure, found.unsure), (1, 0, vec![1]), "{document}");
    }
}

fn unpack<B: AsRef<[u8]>>(blocks: &[B], names: &[u8]) -> Option<AudienceIndex> {
    let mut unpacking = IndexReader::default();
    blocks.iter().try_for_each(|block| unpacking.partition(block.as_ref()))?;
    unpacking.names(names)
}

#[test]
fn columns_of_damaged_bytes_are_none() {
    let mut people = AudienceIndex::laid_out_for(0);
    (0..20).for_each(|person| {
        ann().put(&mut people, person, person as u16 * 99, &[vec![AT.0], vec![], vec![], vec![], vec![]])
    });
    let mut used = UsedTexts::default();
    let block = people.pack_partition(0, &mut used);
    let names = people.pack_names(&used);
    assert_eq!(unpack(&[&block], &names).map(|people| people.len()), Some(20));
    for end in 0..block.len() {
        assert!(unpack(&[&block[..end]], &names).is_none(), "{end}");
    }
    for end in 0..names.len() {
        assert!(unpack(&[&block], &names[..end]).is_none(), "{end}");
    }
    assert!(unpack(&[&block, &block], &names).is_none() && unpack::<Vec<u8>>(&[], &names).is_none());
    // Changed bytes cost at most their length, and never panic.
    for (at, bit) in (0..block.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut other = block.clone();
        other[at] ^= 1 << bit;
        let Some(mut people) = unpack(&[other], &names) else { continue };
        ann().put(&mut people, 3, 5, &[vec![], vec![AT.0], vec![], vec![], vec![]]);
        let filter = tenant().parse(&json!({"segments": {"$in": [1, 2]}, "attributes.city": "Bonn"}));
        assert!(people.ask(&filter, AT).count(0..1, &(0..10_000), None).sure <= 20);
    }
}

/// A filter's form with this root.
fn filter_form(root: &[u8]) -> Vec<u8> {
    [b"\xa2\x61f\x01\x61r", root].concat()
}

#[test]
fn another_form_of_a_filter_is_refused_by_its_name() {
    let bytes = wire::filter::encode_filter(&tenant().parse(&json!({"devices": 1})));
    assert_eq!(bytes[..4], *b"\xa2\x61f\x01");
    assert_eq!(wire::filter::decode_filter(&[&bytes[..3], &[2], &bytes[4..]].concat()), Err(WireError::UnknownForm));
    assert_eq!(wire::filter::decode_filter(&[&bytes[..], &[0]].concat()), Err(WireError::Malformed));
    assert_eq!(wire::filter::decode_filter(&[]), Err(WireError::Malformed));
}

#[test]
fn a_part_of_a_filter_that_is_not_known_is_not_passed_over() {
    let known = filter_form(b"\xa1\x61c\xa2\x61f\x61d\x61t\xa1\x61n\x81\x01");
    assert_eq!(wire::filter::decode_filter(&known), Ok(tenant().parse(&json!({"devices": 1}))));
    // An unknown key of the condition and of the filter; an unknown field, test and group.
    for later in [
        filter_form(b"\xa1\x61c\xa3\x61f\x61d\x61t\xa1\x61n\x81\x01\x61z\x01"),
        [b"\xa3", &known[1..], b"\x61z\x01"].concat(),
        filter_form(b"\xa1\x61c\xa2\x61f\x61z\x61t\xa1\x61n\x81\x01"),
        filter_form(b"\xa1\x61c\xa2\x61f\x61d\x61t\xa1\x61z\x81\x01"),
        filter_form(b"\xa1\x61z\x80"),
    ] {
        assert_eq!(wire::filter::decode_filter(&later), Err(WireError::Malformed), "{later:x?}");
    }
}

#[test]
fn hostile_bytes_are_refused_before_they_cost_anything() {
    let leaf = |devices: u8| [b"\xa1\x61c\xa2\x61f\x61d\x61t\xa1\x61n\x81", &[devices][..]].concat();
    // Nested groups of alternating kinds, each with a condition of its own; otherwise a group would merge with its
    // parent.
    let nested = |levels: usize| {
        (0..levels).fold(leaf(2), |inner, level| {
            let head: &[u8] = if level % 2 == 0 { b"\xa1\x61l\x82" } else { b"\xa1\x61y\x82" };
            [head, &leaf(1), &inner].concat()
        })
    };
    assert!(wire::filter::decode_filter(&filter_form(&nested(2 * limits::FILTER_DEPTH))).is_ok());
    for levels in [2 * limits::FILTER_DEPTH + 1, 1_000] {
        assert_eq!(wire::filter::decode_filter(&filter_form(&nested(levels))), Err(WireError::Range), "{levels}");
    }
    // A list that declares more items than are present.
    let claims = filter_form(&[b"\xa1\x61l\x9b".as_slice(), &[0x7f; 8]].concat());
    assert_eq!(wire::filter::decode_filter(&claims), Err(WireError::Malformed));
    let questions =
        [b"\xa3\x61f\x01\x61q\x98\x41".as_slice(), &b"\xa1\x61c\x61p".repeat(65), b"\x61r\xa1\x61l\x80"].concat();
    assert_eq!(wire::filter::decode_filter(&questions), Err(WireError::Range));
}

#[test]
fn an_empty_index_matches_nothing_and_none_matches_all() {
    assert!(FilterIndex::new(&[]).is_empty());
    let index =
        FilterIndex::new(&[None, Some(tenant().parse(&json!({}))), Some(tenant().parse(&json!({"devices": 9})))]);
    assert_eq!(index.matching(&FilterSubject::default()).iter().collect::<Vec<_>>(), [0, 1]);
    assert_eq!((index.len(), index.counts()), (3, &[][..]));
}

#[test]
fn windows_and_levels_are_part_of_a_question() {
    let ask = |document: Json| tenant().parse(&document).counts()[0].clone();
    let of = Some((AdLevel::Campaign, vec![1, 2]));
    let within = Some(TimeWindow { interval: 2, unit: WindowUnit::Hours });
    let document =
        json!({"actions.click": {"$count": 1, "campaign": ["c-2", "c-1"], "within": {"interval": 2, "unit": "hours"}}});
    assert_eq!(
        ask(document),
        CountQuestion { what: CountSource::Action { action_type: ActionType::CLICK, of }, within }
    );
    for bad in [
        json!({"$count": 1, "campaign": "c-9"}),
        json!({"$count": 1, "campaign": []}),
        json!({"$count": 1, "campaign": [1]}),
        json!({"$count": 1, "ad": "a-1", "campaign": "c-1"}),
    ] {
        let document = json!({"actions.click": bad});
        assert_eq!(parse(&document, "", &tenant().words(CountAnswerer::Origin)).unwrap_err().len(), 1, "{document}");
    }
}

/// Made from the form's description by another encoder.
#[test]
fn golden_bytes_of_filters() {
    let and =
        json!({"segments": {"$in": [8457, 7]}, "geo.country": {"$ne": "DE"}, "events.page": {"$count": {"$gte": 2}}});
    let clicks = json!({"$count": 0, "campaign": ["c-1", "c-2"], "within": {"interval": 7, "unit": "days"}});
    let or = json!({"$or": [{"attributes.city": {"$lt": "M"}}, {"actions.click": clicks}]});
    for (document, golden) in [
        (json!({}), "a26166016172a1616c80"),
        (
            and,
            "a3616601617181a1616361706172a1616c83a16163a2616661736174a1616e8207192109a16163a26166a1616e006174a1616702a16163a361666163616ef56174a1617481624445",
        ),
        (
            or,
            "a3616601617181a26163a16161a2617602616fa2616c0261638201026177a26175026169076172a1617982a16163a26166a16161a2617403616b046174a16163614da16163a26166a1616e006174a1616e8100",
        ),
        (json!({"best_send_time.now": true}), "a26166016172a16163a2616661626174a1616e8101"),
    ] {
        let filter = tenant().parse(&document);
        let bytes = wire::filter::encode_filter(&filter);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden, "{document}");
        assert_eq!(wire::filter::decode_filter(&bytes), Ok(filter));
        for end in 0..bytes.len() {
            assert!(wire::filter::decode_filter(&bytes[..end]).is_err(), "{document} cut at {end}");
        }
    }
}
