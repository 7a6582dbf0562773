#![expect(clippy::unwrap_used, reason = "tests")]

use causeway_shared::base::time::DAY_MS;
use causeway_shared::facts::attributes::AttributeValue;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::SegmentId;
use causeway_shared::wire::kv;
use serde_json::{Value as Json, json};

use super::*;
use crate::audience::{materialized, query};
use crate::campaigns::catalogue;
use crate::testing::{NOW, Origin, fact, visitor};

/// A fact that writes some attributes.
fn written(of: VisitorId, n: u32, at: Millis, writes: impl IntoIterator<Item = (String, AttributeValue)>) -> Fact {
    let writes = writes.into_iter().map(|(name, value)| (name, Some(value))).collect();
    fact(of, n, at, FactKind::Attributes { writes })
}

/// A call of a page with 64 names that no other call uses.
fn call(of: VisitorId, n: u32, at: Millis) -> Fact {
    written(of, n, at, (0..64).map(|name| (format!("junk_{n}_{name}"), AttributeValue::Bool(true))))
}

fn has(origin: &Origin, n: u32) -> Json {
    let view = crate::views::read::StoreView::folded(&origin.conn);
    crate::testing::as_json(
        crate::views::attributes::describe_attributes(&view, &origin.row("demo", visitor(n))).unwrap(),
    )["own"]
        .clone()
}

fn dictionary(origin: &Origin) -> NameDictionary {
    load_dictionary(&origin.conn, origin.tenant("demo").no).unwrap()
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

/// Marks names and removes their values, as the command does.
fn forget(origin: &mut Origin, names: &BTreeSet<String>) -> Result<ForgetPlan, ForgetError> {
    let tenant = origin.tenant("demo").clone();
    let plan = plan_forgetting(&origin.conn, &tenant, names)?;
    let (given, said) = (origin.given(), Attribution::by("cli"));
    mark_names(&mut origin.conn, &origin.rules, given, &tenant, names, &said)?;
    swept(origin);
    Ok(plan)
}

fn swept(origin: &mut Origin) -> u64 {
    let given = origin.given();
    let Origin { conn, rules, metrics, .. } = origin;
    sweep_names(conn, rules, metrics, &|| Ok(given), &|| Ok(())).unwrap()
}

fn released(origin: &mut Origin) -> u64 {
    let given = origin.given();
    let Origin { conn, rules, metrics, .. } = origin;
    release_names(conn, rules, metrics, given).unwrap()
}

#[test]
fn a_visitor_with_154_calls_brings_its_share_and_a_tenant_gets_used_up_names_back() {
    let mut origin = Origin::new();
    let calls: Vec<Fact> = (0..154).map(|n| call(visitor(1), n, NOW)).collect();
    origin.send("demo", &calls);
    assert_eq!(dictionary(&origin).used(), limits::ATTRIBUTE_NAMES_A_VISITOR);
    // Many visitors on many days use up the names that pages may bring.
    let most = limits::ATTRIBUTE_NAMES - limits::ATTRIBUTE_NAMES_RESERVED;
    for n in 1_000..1_160 {
        origin.now += DAY_MS / 30;
        origin.send("demo", &[call(visitor(n), n, origin.now)]);
    }
    assert_eq!(dictionary(&origin).used(), most);
    let wanted = |origin: &mut Origin, n| {
        let now = origin.now;
        origin.send("demo", &[written(visitor(2), n, now, [("vip".to_owned(), AttributeValue::Bool(true))])]);
        has(origin, 2)
    };
    assert_eq!(wanted(&mut origin, 2), json!({}), "the page's name is refused");

    let junk: BTreeSet<String> = (0..64).map(|n| format!("junk_1000_{n}")).collect();
    let plan = forget(&mut origin, &junk).unwrap();
    assert!(plan.names.len() == 64 && plan.names.values().all(|of| *of == (ValueKind::Bool, 1)), "{plan:?}");
    let mut values = BTreeMap::new();
    origin.settle(&mut values);
    origin.now += limits::ATTRIBUTE_REST_MS;
    assert_eq!((released(&mut origin), dictionary(&origin).used()), (64, most - 64));
    assert_eq!(wanted(&mut origin, 3), json!({ "vip": true }));
    assert_eq!(dictionary(&origin).len(), most, "the name got a token that was freed");
}

#[test]
fn a_token_that_was_taken_back_shows_no_old_value_under_its_new_name() {
    let mut origin = Origin::new();
    let text = |text: &str| AttributeValue::String(text.to_owned());
    let both = [("coupon".to_owned(), text("SPRING")), ("city".to_owned(), text("Oslo"))];
    origin.send("demo", &[written(visitor(1), 1, NOW, both), call(visitor(2), 2, NOW)]);
    let token = dictionary(&origin).find("coupon").unwrap().0;
    let plan = forget(&mut origin, &names(&["coupon"])).unwrap();
    assert_eq!(plan.names, BTreeMap::from([("coupon".to_owned(), (ValueKind::String, 1))]));
    assert_eq!((has(&origin, 1), dictionary(&origin).find("coupon")), (json!({ "city": "Oslo" }), None));
    let rows = audit::list_rows(&origin.conn, origin.tenant("demo"), None, None, 10).unwrap();
    assert_eq!((rows[0].what.as_str(), rows[0].object.as_deref()), ("forget_attribute", Some("coupon")));

    // While the token rests, the same name gets another token.
    origin.send("demo", &[written(visitor(3), 3, NOW, [("coupon".to_owned(), AttributeValue::Bool(true))])]);
    assert_ne!(dictionary(&origin).find("coupon").unwrap().0, token);
    assert_eq!(released(&mut origin), 0, "it rests");
    origin.now += limits::ATTRIBUTE_REST_MS;
    assert_eq!(released(&mut origin), 0, "its snapshots are not written yet");
    let mut values = BTreeMap::new();
    origin.settle(&mut values);
    assert_eq!(released(&mut origin), 1);
    let later = written(visitor(3), 4, NOW - DAY_MS, [("size".to_owned(), AttributeValue::Integer(42))]);
    origin.admin("demo", &[later.clone(), Fact { visitor: visitor(1), ..later }]);
    assert_eq!(dictionary(&origin).find("size"), Some((token, ValueKind::Float)));
    assert_eq!(has(&origin, 3), json!({ "coupon": true, "size": 42 }));
    assert_eq!(has(&origin, 1), json!({ "city": "Oslo", "size": 42 }), "a write from before the removal counts too");
    origin.settle(&mut values);
    let page = kv::decode_names("c:demo:attributes:0", values["c:demo:attributes:0"].as_bytes()).unwrap();
    assert_eq!(page[usize::from(token.0)], ("size".to_owned(), ValueKind::Float));
}

#[test]
fn names_that_the_catalogue_an_audience_or_a_send_uses_stay() {
    let mut origin = Origin::new();
    let all = ["in_catalogue", "in_audience", "unused", "time_zone"];
    origin.send("demo", &[written(visitor(1), 1, NOW, all.map(|name| (name.to_owned(), AttributeValue::Bool(true))))]);
    let tenant = origin.tenant("demo").clone();
    for targeting in [json!({ "attributes.in_catalogue": true }), json!({})] {
        let document = json!({ "advertiser": [{ "id": "a" }], "campaign": [{ "id": "c", "advertiser": "a" }],
            "ad_group": [{ "id": "g", "campaign": "c", "targeting": targeting }] });
        let given = origin.given();
        catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document, "tests").unwrap();
    }
    let document = json!({ "attributes.in_audience": true });
    let filter = query::parse_filter(&origin.conn, &tenant, &document).unwrap().unwrap();
    let of = ((tenant.no, SegmentId(7)), (&filter, &document), (48, 0));
    materialized::MaterializedAudience::new(of.0, of.1, of.2, NOW).unwrap().keep(&origin.conn, &tenant).unwrap();
    let refused = |origin: &mut Origin, name: &str| forget(origin, &names(&["unused", name])).unwrap_err().to_string();
    let places = [
        ("in_catalogue", "version 1 of the catalogue"),
        ("in_audience", "the audience of segment 7"),
        ("time_zone", "the best send times of visitors"),
        ("nobodys", "attribute `nobodys` not found"),
        ("_forgotten.free.0", "not found"),
    ];
    for (name, place) in places {
        let refused = refused(&mut origin, name);
        assert!(refused.contains(place), "{refused}");
    }
    assert!(all.iter().all(|name| dictionary(&origin).find(name).is_some()), "nothing was changed");
    assert!(matches!(forget(&mut origin, &BTreeSet::new()), Err(ForgetError::Number)));
    assert_eq!(forget(&mut origin, &names(&["unused"])).unwrap().names.len(), 1);
}

#[test]
fn names_that_only_the_origin_gives_cannot_be_written() {
    let mut origin = Origin::new();
    origin.send("demo", &[written(visitor(1), 1, NOW, [("age".to_owned(), AttributeValue::Bool(true))])]);
    forget(&mut origin, &names(&["age"])).unwrap();
    let reserved = dictionary(&origin).get(NameToken(0)).unwrap().0.to_owned();
    let others = ["_forgotten.free.7", "_forgotten.leaving.0", "_retired.0.age"].map(str::to_owned);
    for (n, name) in (2..).zip(std::iter::once(reserved).chain(others)) {
        origin.send("demo", &[written(visitor(1), n, NOW, [(name, AttributeValue::Bool(true))])]);
    }
    assert_eq!((has(&origin, 1), dictionary(&origin).len()), (json!({}), 1));
}

#[test]
fn a_visitor_who_cannot_be_read_keeps_a_token_in_use_until_it_can() {
    let mut origin = Origin::new();
    let age = |v, n| written(visitor(v), n, NOW, [("age".to_owned(), AttributeValue::Bool(true))]);
    origin.send("demo", &[age(1, 1), age(2, 2)]);
    let of = (visitor(2).as_bytes().to_vec(),);
    let read = "SELECT attributes FROM visitors WHERE visitor = ?1";
    let whole: Vec<u8> = origin.conn.query_row(read, of.clone(), |row| row.get(0)).unwrap();
    let write = "UPDATE visitors SET attributes = ?2 WHERE visitor = ?1";
    origin.conn.execute(write, (&of.0, b"damaged".to_vec())).unwrap();
    assert_eq!(forget(&mut origin, &names(&["age"])).unwrap().unreadable, 1);
    assert_eq!(swept(&mut origin), 0);
    origin.conn.execute(write, (&of.0, whole)).unwrap();
    assert_eq!((swept(&mut origin), swept(&mut origin)), (1, 0));
    assert_eq!(has(&origin, 2), json!({}));
}
