#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_shared::base::ids::{Micros, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::{DAY_MS, Day, Minute};
use causeway_shared::facts::actions::PackedActions;
use causeway_shared::facts::attributes::{AttributeMap, AttributeValue, NameToken};
use causeway_shared::facts::events::EventCount::{self, AtLeast, Exactly};
use causeway_shared::facts::events::VisitorEvents;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::profiles::profile::{MissingParts, Profile, ProfileTotals};
use causeway_shared::targeting::filter::{
    self, CountAnswerer, EventEvidence, Filter, FilterSubject, FilterWords, PersonHistory,
};
use serde_json::{Value as Json, json};

use crate::ingest::backlog::Backlog;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::pipeline::commit;
use crate::store::names;
use crate::testing::{NOW, Origin, fact, page, purchase, tracked, visitor};
use crate::views::read::{self, StoreView};

#[test]
fn repeats_and_order_change_nothing() {
    let facts: Vec<_> = (0..40)
        .map(|i| match i % 5 {
            0 => purchase(visitor(i % 3), i, NOW - 1_000 * u64::from(i), 2_500_000),
            _ => page(visitor(i % 3), i, NOW - 1_000 * u64::from(i)),
        })
        .collect();
    let mut forward = Origin::new();
    forward.send("demo", &facts);
    let mut backward = Origin::new();
    for fact in facts.iter().rev().chain(&facts) {
        backward.send("demo", std::slice::from_ref(fact));
    }
    for v in 0..3 {
        let profile = forward.profile("demo", visitor(v));
        assert_eq!(profile, backward.profile("demo", visitor(v)));
        assert!(profile.totals().pages > 0);
    }
}

#[test]
fn a_purchase_sent_twice_counts_once_everywhere() {
    let mut origin = Origin::new();
    let buy = purchase(visitor(1), 1, NOW, 19_990_000);
    origin.send("demo", std::slice::from_ref(&buy));
    origin.send("demo", &[buy.clone(), buy]);
    let expected = ProfileTotals { purchases: 1, revenue: Micros::new(19_990_000), ..ProfileTotals::default() };
    assert_eq!(origin.profile("demo", visitor(1)).totals(), expected);
    assert_eq!(origin.view("demo", visitor(1)), expected);
}

#[test]
fn a_repeated_purchase_counts_once_after_a_clock_ran_ahead() {
    let mut origin = Origin::new();
    let buy = purchase(visitor(1), 1, NOW, 19_990_000);
    origin.send("demo", std::slice::from_ref(&buy));
    origin.now = NOW + 60 * DAY_MS;
    let segment = FactKind::Segments { writes: vec![(SegmentId(7), SegmentState::Removed)] };
    origin.admin("demo", &[fact(visitor(1), 2, origin.now, segment)]);
    origin.now = NOW + 1;
    assert_eq!(origin.send("demo", &[buy]).accepted, 0);
    assert_eq!(origin.profile("demo", visitor(1)).totals().purchases, 1);
}

#[test]
fn of_a_profile_that_cannot_be_read_the_row_is_named() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 2, NOW)]);
    let broken = "UPDATE visitors SET profile = x'00' WHERE visitor = ?1";
    origin.conn.execute(broken, [visitor(2).as_bytes()]).unwrap();
    let of = "SELECT row FROM visitors WHERE visitor = ?1";
    let row: i64 = origin.conn.query_row(of, [visitor(2).as_bytes()], |row| row.get(0)).unwrap();
    let facts = [page(visitor(1), 3, NOW), page(visitor(2), 4, NOW)];
    let no = origin.tenant("demo").no;
    let record = LogRecord::of(facts.into_iter().map(|fact| CheckedFact { tenant: no, fact }).collect());
    let given = origin.given();
    let committed =
        commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, given, &[Arc::new(record)], &[]);
    let error = committed.err().unwrap();
    assert!(
        crate::base::error_chain(&error).contains(&format!("row {row} of `visitors`")),
        "{}",
        crate::base::error_chain(&error)
    );
}

fn said(of: VisitorId, n: u32, name: &str, value: &str) -> Fact {
    let writes = vec![(name.to_owned(), Some(AttributeValue::String(value.to_owned())))];
    fact(of, n, NOW - 20 * DAY_MS, FactKind::Attributes { writes })
}

/// Whether an audience's filter matches a visitor's person in the store, and the counts of events that it read.
fn matches_with_counts(origin: &Origin, document: &Json, of: VisitorId, now: Millis) -> (bool, Vec<EventCount>) {
    let (view, tenant) = (StoreView::folded(&origin.conn), origin.tenant("demo"));
    let mut names = names::load_dictionary(view.conn, tenant.no).unwrap();
    let entities = Default::default();
    let vocabulary = &tenant.config.vocabulary;
    let words = FilterWords { attributes: &names, vocabulary, entities: &entities, answers: CountAnswerer::Origin };
    let filter: Filter = filter::parse(document, "audience", &words).unwrap();
    let members = read::load_members(&view, &origin.row("demo", of), limits::PERSON_VISITORS).unwrap();
    let (mut map, mut wholes) = (AttributeMap::default(), Vec::<Profile>::new());
    for member in &members {
        map = map.join(read::attribute_map(&view, member, &mut names).unwrap());
        wholes.push(read::whole(&view, member, Day(0)).unwrap());
    }
    let actions: Vec<Vec<u8>> = wholes.iter().map(|whole| whole.actions().pack_actions()).collect();
    let actions: Vec<PackedActions<'_>> = actions.iter().filter_map(|bytes| PackedActions::read(bytes)).collect();
    let events: Vec<&VisitorEvents> = wholes.iter().map(Profile::events).collect();
    let totals = wholes.iter().fold(ProfileTotals::default(), |sum, whole| sum.plus(whole.totals()));
    let counts = filter.answers(
        &PersonHistory {
            totals,
            actions: &actions,
            events: EventEvidence::Events(&events),
            missing: MissingParts::NONE,
        },
        Minute::at(now),
    );
    let attributes: Vec<(NameToken, AttributeValue)> =
        map.iter().map(|(token, value)| (token, value.clone())).collect();
    let devices = u32::try_from(members.len()).unwrap();
    let person = filter::SubjectPerson { attributes: &attributes, devices, ..filter::SubjectPerson::default() };
    let matches_filter =
        filter.matches(&FilterSubject { person: Some(person), counts: &counts, ..FilterSubject::default() });
    (matches_filter, counts.into_iter().flatten().collect())
}

fn matches_filter(origin: &Origin, document: &Json, of: u32) -> bool {
    matches_with_counts(origin, document, visitor(of), NOW).0
}

#[test]
fn the_filter_of_ios_8_1_buyers_without_a_favourite_within_a_week_matches() {
    let filter = json!({
        "attributes.os": "iOS 8.1",
        "events.bought_shoes": { "$count": { "$gte": 1 } },
        "events.favourite": { "$count": 0, "within": { "interval": 7, "unit": "days" } },
    });
    let mut origin = Origin::new();
    let (phone, laptop) = (visitor(1), visitor(2));
    let facts = [
        said(phone, 1, "os", "iOS 8.1"),
        tracked(phone, 2, NOW - 20 * DAY_MS, "bought_shoes"),
        tracked(phone, 3, NOW - 7 * DAY_MS, "favourite"),
        said(laptop, 1, "os_before", "iOS 7"),
        tracked(laptop, 2, NOW - 2 * DAY_MS, "favourite"),
    ];
    origin.send("demo", &facts);
    assert_eq!([1, 2].map(|of| matches_filter(&origin, &filter, of)), [true, false]);
    // Both are one person: the favourite on the laptop counts for the phone.
    let logins = [phone, laptop].map(|of| origin.login(of, 9, NOW - DAY_MS, "ann"));
    origin.send("demo", &logins);
    assert_eq!([1, 2].map(|of| matches_filter(&origin, &filter, of)), [false, false]);
    assert_eq!(matches_with_counts(&origin, &filter, phone, NOW).1, [Exactly(1), Exactly(1)]);
    assert_eq!(matches_with_counts(&origin, &filter, laptop, NOW + 6 * DAY_MS), (true, vec![Exactly(1), Exactly(0)]));
    // The login on the laptop was a mistake.
    let id = origin.member("demo", "ann");
    origin.admin("demo", &[fact(laptop, 10, NOW, FactKind::Cancellation { id })]);
    assert_eq!([1, 2].map(|of| matches_filter(&origin, &filter, of)), [true, false]);
    // A repeated fact does not count twice, and a late fact counts at its own time.
    origin.send("demo", &facts);
    assert_eq!(matches_with_counts(&origin, &filter, phone, NOW), (true, vec![Exactly(1), Exactly(0)]));
    let late = tracked(phone, 11, NOW - 6 * DAY_MS, "favourite");
    assert_eq!(origin.send("demo", &[late.clone(), late]).accepted, 1);
    assert_eq!(matches_with_counts(&origin, &filter, phone, NOW), (false, vec![Exactly(1), Exactly(1)]));
    assert!(matches_with_counts(&origin, &filter, phone, NOW + DAY_MS).0);
}

#[test]
fn the_filter_of_spanish_speakers_below_level_2_matches() {
    let filter = json!({ "attributes.language": "es", "$not": { "events.beat_level_2": { "$count": { "$gte": 1 } } } });
    let mut origin = Origin::new();
    let facts = [
        said(visitor(1), 1, "language", "es"),
        tracked(visitor(1), 2, NOW - DAY_MS, "beat_level_1"),
        said(visitor(2), 1, "language", "en"),
        tracked(visitor(3), 1, NOW - 9 * DAY_MS, "beat_level_2"),
    ];
    origin.send("demo", &facts);
    assert_eq!([1, 2, 3].map(|of| matches_filter(&origin, &filter, of)), [true, false, false]);
    let logins = [1, 3].map(|of| origin.login(visitor(of), 9, NOW, "ann"));
    origin.send("demo", &logins);
    assert_eq!([1, 2, 3].map(|of| matches_filter(&origin, &filter, of)), [false; 3]);
    let id = origin.member("demo", "ann");
    origin.admin("demo", &[fact(visitor(3), 10, NOW, FactKind::Cancellation { id })]);
    assert_eq!([1, 2, 3].map(|of| matches_filter(&origin, &filter, of)), [true, false, false]);
}

#[test]
fn pages_and_purchases_are_counted_in_windows() {
    let mut origin = Origin::new();
    let (a, b) = (visitor(1), visitor(2));
    // On more days, and in more minutes, than the exact windows cover.
    let pages = (0..400).map(|n| page(a, n, NOW - u64::from(n) * 3_700_000 / 2));
    let facts: Vec<Fact> = pages.chain([purchase(a, 900, NOW - 2 * DAY_MS, 5), purchase(b, 901, NOW, 5)]).collect();
    for some in facts.chunks(37) {
        origin.send("demo", some);
    }
    let logins = [a, b].map(|of| origin.login(of, 999, NOW, "ann"));
    origin.send("demo", &logins);
    let count = |event: &str, interval: u32, unit: &str| {
        let window = json!({ "$count": 0, "within": { "interval": interval, "unit": unit } });
        matches_with_counts(&origin, &json!({ event: window }), a, NOW).1
    };
    let of_day = |days: u64| (0..400).filter(|n| n * 1_850_000 <= NOW % DAY_MS + (days - 1) * DAY_MS).count() as u64;
    assert_eq!(count("events.page", 1, "days"), [Exactly(of_day(1))]);
    assert_eq!(count("events.page", 8, "days"), [Exactly(of_day(8))]);
    assert_eq!(count("events.page", 90, "days"), [Exactly(400)]);
    assert_eq!(count("events.page", 1, "minutes"), [Exactly(1)]);
    assert_eq!(count("events.page", 48, "hours"), [AtLeast(64)], "older than the newest 64 minutes");
    assert_eq!(count("events.purchase", 2, "days"), [Exactly(1)]);
    assert_eq!(count("events.purchase", 3, "days"), [Exactly(2)]);
    assert_eq!(matches_with_counts(&origin, &json!({ "events.page": { "$count": 0 } }), a, NOW).1, [Exactly(400)]);
    // Partly known events answer the questions that they suffice for.
    let hours = |count: Json| {
        let within = json!({ "interval": 48, "unit": "hours" });
        matches_filter(&origin, &json!({ "events.page": { "$count": count, "within": within } }), 1)
    };
    for holds in [json!({ "$gte": 3 }), json!({ "$gt": 63 }), json!({ "$ne": 63 }), json!({ "$not": { "$lt": 64 } })] {
        assert!(hours(holds.clone()), "{holds}");
    }
    for holds_not in
        [json!({ "$gte": 65 }), json!({ "$lt": 64 }), json!({ "$lt": 500 }), json!(93), json!({ "$ne": 93 })]
    {
        assert!(!hours(holds_not.clone()), "{holds_not}");
    }
}

#[test]
fn a_condition_on_an_event_name_that_a_hostile_page_displaced_is_neither_true_nor_false() {
    let mut origin = Origin::new();
    let names = (0..100).map(|n| tracked(visitor(1), n, NOW, &format!("x{n:03}")));
    let facts: Vec<Fact> = names.chain([purchase(visitor(1), 900, NOW, 5), page(visitor(1), 901, NOW)]).collect();
    let mut backward = Origin::new();
    for (some, other) in facts.chunks(9).zip(facts.rchunks(7).chain(std::iter::repeat(&facts[..0]))) {
        origin.send("demo", some);
        backward.send("demo", other);
    }
    backward.send("demo", &facts);
    let [one, other] = [&origin, &backward].map(|origin| origin.profile("demo", visitor(1)).events().clone());
    assert_eq!((one.iter().count(), &one), (limits::EVENT_NAMES, &other));
    let count = |name: &str| {
        matches_with_counts(&origin, &json!({ (format!("events.{name}")): { "$count": 0 } }), visitor(1), NOW).1
    };
    assert_eq!(["page", "purchase", "x000"].map(count), [[Exactly(1)]; 3]);
    assert_eq!(["x", "like"].map(count), [[Exactly(0)]; 2], "they sort before the last stored name");
    assert_eq!(["x099", "favourite"].map(count), [[AtLeast(0)]; 2]);
    for document in [json!({ "$gte": 1 }), json!(0), json!({ "$not": { "$gte": 1 } })] {
        assert!(!matches_filter(&origin, &json!({ "events.favourite": { "$count": document } }), 1));
    }
}

#[test]
fn what_is_not_folded_yet_counts_and_what_is_erased_does_not() {
    let mut origin = Origin::new();
    let of = visitor(1);
    let [old, new] = [tracked(of, 1, NOW - 9_000_000, "saved"), tracked(of, 2, NOW, "saved")];
    origin.send("demo", std::slice::from_ref(&old));
    let tenant = origin.tenant("demo").no;
    // The first fact is repeated.
    let facts = [old, new].map(|fact| CheckedFact { tenant, fact }).to_vec();
    let reader = Backlog::of(0, vec![LogRecord { seq: 1, ..LogRecord::of(facts) }]).reader();
    let view = StoreView::with_backlog(&origin.conn, &reader).unwrap();
    let row = read::load_visitor(&view, tenant, of).unwrap().unwrap();
    let events = read::load_events(&view, &row).unwrap();
    assert_eq!((events.total_events("saved"), events.last("saved")), (Exactly(2), Some(Minute::at(NOW))));
    assert_eq!(read::whole(&view, &row, Day(0)).unwrap().events(), &events);
    let folded = read::load_events(&StoreView::folded(&origin.conn), &row).unwrap();
    assert_eq!(folded.last("saved"), Some(Minute::at(NOW)), "of the row as it was read");
    let folded = origin.profile("demo", of);
    assert_eq!(
        (folded.events().total_events("saved"), folded.events().total_events("other")),
        (Exactly(1), Exactly(0))
    );
    drop(reader);
    let erasure =
        FactKind::Erasure { scope: causeway_shared::facts::fact::ErasureScope::Visitor, id: None, also: Vec::new() };
    origin.send("demo", &[fact(of, 3, NOW, erasure)]);
    assert!(crate::erasures::registry::is_erased(&origin.conn, tenant, of).unwrap());
    assert!(origin.profile("demo", of).events().is_empty());
}

#[test]
fn events_of_before_the_store_kept_them_cannot_be_said() {
    let mut origin = Origin::new();
    let of = visitor(1);
    origin.send("demo", &[tracked(of, 1, NOW - 9 * DAY_MS, "saved"), page(of, 2, NOW - 9 * DAY_MS)]);
    // The state that an earlier release left.
    origin.conn.execute("UPDATE visitors SET events = x''", []).unwrap();
    let count = |origin: &Origin, event: &str, days: u32| {
        let within = if days > 0 { json!({ "interval": days, "unit": "days" }) } else { Json::Null };
        let mut counted = BTreeMap::from([("$count", json!(0)), ("within", within)]);
        counted.retain(|_, value| !value.is_null());
        matches_with_counts(origin, &json!({ event: counted }), of, NOW).1
    };
    let all = |origin: &Origin| {
        ["events.saved", "events.page"].map(|event| [0, 30, 7].map(|days| count(origin, event, days)[0]))
    };
    assert_eq!(all(&origin), [[AtLeast(0), AtLeast(0), Exactly(0)], [Exactly(1), AtLeast(0), Exactly(0)]]);
    origin.send("demo", &[tracked(of, 3, NOW, "saved"), page(of, 4, NOW - DAY_MS)]);
    let since = [[AtLeast(1), AtLeast(1), Exactly(1)], [Exactly(2), AtLeast(1), Exactly(1)]];
    assert_eq!(all(&origin), since);
    // A late fact from the time without stored events changes no answer.
    origin.send("demo", &[tracked(of, 5, NOW - 10 * DAY_MS, "saved")]);
    assert_eq!(all(&origin), since);
}
