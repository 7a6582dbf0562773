#![expect(clippy::unwrap_used, reason = "tests")]

use crate::base::attribution::Attribution;
use crate::campaigns::catalogue;
use crate::maintenance::forget_event_names::forget_names;
use crate::privacy::audit;
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::time::DAY_MS;
use causeway_shared::facts::segments::SegmentId;

use super::*;
use crate::audience::{materialized, query};
use crate::testing::{NOW, Origin, tracked, visitor};
use serde_json::json;

fn no(origin: &Origin) -> TenantNo {
    origin.tenant("demo").no
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn counted(origin: &Origin) -> BTreeSet<String> {
    load_names(&origin.conn).unwrap().remove(&no(origin)).unwrap_or_default()
}

fn source_of(origin: &Origin, name: &str) -> Option<NameSource> {
    name_source(&origin.conn, no(origin), name).unwrap()
}

/// A visitor sends 64 event names that no other visitor uses.
fn sends_64(origin: &mut Origin, of: VisitorId, n: u32) {
    let facts: Vec<Fact> = (0..64).map(|at| tracked(of, n * 64 + at, origin.now, &format!("junk_{n}_{at}"))).collect();
    origin.send("demo", &facts);
}

/// Fills the list of names with names from pages.
fn full(origin: &mut Origin) {
    for n in 0..100 {
        origin.now += DAY_MS / 10;
        sends_64(origin, visitor(n), n);
    }
    assert_eq!(counted(origin).len(), limits::AUDIENCE_EVENTS);
}

fn forgotten(origin: &mut Origin, all: &[&str]) -> Result<(), EventNameError> {
    let (given, tenant) = (origin.given(), origin.tenant("demo").clone());
    forget_names(&mut origin.conn, &origin.rules, given, &tenant, &names(all), &Attribution::by("cli"))
}

fn kept_audience(origin: &Origin, event: &str) {
    let tenant = origin.tenant("demo");
    let document = json!({ format!("events.{event}"): { "$count": { "$gte": 1 } } });
    let filter = query::parse_filter(&origin.conn, tenant, &document).unwrap().unwrap();
    let audience =
        materialized::MaterializedAudience::new((tenant.no, SegmentId(7)), (&filter, &document), (48, 0), NOW).unwrap();
    audience.keep(&origin.conn, tenant).unwrap();
}

#[test]
fn seventeen_visitors_with_64_names_each_bring_their_share_of_one_day() {
    let mut origin = Origin::new();
    for n in 0..17 {
        sends_64(&mut origin, visitor(n), n);
    }
    assert_eq!(counted(&origin).len(), limits::AUDIENCE_EVENTS_A_DAY);
    let all = 17 * 64;
    assert_eq!(origin.metrics.events_uncounted.get(), all - limits::AUDIENCE_EVENTS_A_DAY as u64);
    let mut one = Origin::new();
    sends_64(&mut one, visitor(1), 1);
    assert_eq!(counted(&one).len(), limits::AUDIENCE_EVENTS_A_VISITOR);
    // Names that are already counted, and the two that are always counted, use up no quota.
    let known = ["page", "purchase", "junk_1_0"].map(|name| tracked(visitor(2), 1, one.now, name));
    let other = tracked(visitor(2), 2, one.now, "signup");
    one.send("demo", &[known.to_vec(), vec![other]].concat());
    assert_eq!(source_of(&one, "signup"), Some(NameSource::Page));
    assert_eq!(counted(&one).len(), limits::AUDIENCE_EVENTS_A_VISITOR + 1);
    one.now += DAY_MS;
    sends_64(&mut one, visitor(1), 2);
    assert_eq!(counted(&one).len(), 2 * limits::AUDIENCE_EVENTS_A_VISITOR + 1, "another day");
}

#[test]
fn what_is_declared_or_in_use_is_counted_whatever_pages_brought() {
    let mut origin = Origin::new();
    full(&mut origin);
    let (tenant, now) = (no(&origin), origin.now);
    origin.send("demo", &[tracked(visitor(500), 1, now, "late")]);
    assert_eq!(source_of(&origin, "late"), None, "a page's name replaces no other page's name");
    origin.admin("demo", &[tracked(visitor(500), 2, now, "from_a_file")]);
    declare_names(&mut origin.conn, tenant, &names(&["signup", "junk_0_0"]), now).unwrap();
    kept_audience(&origin, "bought_twice");
    let document = json!({ "experiment": [{ "id": "e", "code": 1, "starts": 0, "conversion": "subscribed",
        "arm": [{ "id": "a", "code": 1, "share": 5_000 }, { "id": "b", "code": 2, "share": 5_000 }] }] });
    let (given, of) = (origin.given(), origin.tenant("demo").clone());
    catalogue::apply(&mut origin.conn, &origin.rules, given, &of, document, "tests").unwrap();
    let found = ["signup", "junk_0_0", "bought_twice", "subscribed"].map(|name| source_of(&origin, name));
    assert_eq!(found, [Some(NameSource::Declared); 4]);
    assert_eq!(source_of(&origin, "from_a_file"), Some(NameSource::Admin));
    assert_eq!(counted(&origin).len(), limits::AUDIENCE_EVENTS);
    // If all names are declared, the next one is refused by name, and none is removed.
    let many: BTreeSet<String> = (0..limits::AUDIENCE_EVENTS - 4).map(|n| format!("own_{n}")).collect();
    declare_names(&mut origin.conn, tenant, &many, now).unwrap();
    let refused = declare_names(&mut origin.conn, tenant, &names(&["one_more"]), now).unwrap_err();
    assert!(matches!(&refused, EventNameError::Full(name) if name == "one_more"), "{refused}");
    assert_eq!(source_of(&origin, "signup"), Some(NameSource::Declared));
    let long = "n".repeat(limits::NAME_BYTES + 1);
    for bad in ["", "page", &long] {
        let refused = declare_names(&mut origin.conn, tenant, &names(&[bad]), now).unwrap_err();
        assert!(matches!(refused, EventNameError::BadName), "{refused}");
    }
}

#[test]
fn a_name_is_taken_back_unless_something_uses_it() {
    let mut origin = Origin::new();
    full(&mut origin);
    kept_audience(&origin, "bought \"twice\"");
    let document = json!({ "experiment": [{ "id": "e", "code": 1, "starts": 0, "conversion": "subscribed",
        "arm": [{ "id": "a", "code": 1, "share": 5_000 }, { "id": "b", "code": 2, "share": 5_000 }] }] });
    let (given, of) = (origin.given(), origin.tenant("demo").clone());
    catalogue::apply(&mut origin.conn, &origin.rules, given, &of, document, "tests").unwrap();
    let before = counted(&origin);
    let used = [
        ("bought \"twice\"", "the audience of segment 7"),
        ("subscribed", "the experiment `e` of version 1"),
        ("nobodys", "is not counted"),
    ];
    for (name, place) in used {
        let refused = forgotten(&mut origin, &["junk_0_0", name]).unwrap_err().to_string();
        assert!(refused.contains(place), "{refused}");
    }
    assert!(matches!(forgotten(&mut origin, &[]), Err(EventNameError::Number)));
    assert_eq!(counted(&origin), before, "nothing was changed");
    forgotten(&mut origin, &["junk_0_0", "junk_0_1"]).unwrap();
    let rows = audit::list_rows(&origin.conn, origin.tenant("demo"), None, None, 2).unwrap();
    assert_eq!((rows[1].what.as_str(), rows[1].object.as_deref()), ("forget_event", Some("junk_0_0")));
    origin.now += DAY_MS;
    origin.send("demo", &[tracked(visitor(500), 1, origin.now, "late")]);
    assert_eq!(source_of(&origin, "late"), Some(NameSource::Page), "there is room again");
}
