#![expect(clippy::unwrap_used, reason = "tests")]

use causeway_shared::base::ids::{FactId, InsertionId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::DAY_MS;
use causeway_shared::facts::actions::ViewType;
use causeway_shared::wire::catalogue::decode_allocation;
use causeway_shared::wire::kv_keys;
use serde_json::{Value, json};

use super::*;
use crate::campaigns::{allocation, catalogue};
use crate::maintenance::reconcile;
use crate::profiles::quarantine;
use crate::testing::{NOW, Origin, ordered, page, purchase, visitor};

/// A campaign for each kind of bid, with its code, and one without a budget.
fn origin(change: impl FnOnce(&mut Value)) -> Origin {
    let mut origin = Origin::new();
    let campaign = |code: u32, bid: Value| json!({ "id": format!("c{code}"), "code": code, "advertiser": "v", "bid": bid, "daily_budget_micros": 1_000_000, "time_zone": "Europe/Berlin" });
    let mut document = json!({
        "advertiser": [{ "id": "v" }],
        "campaign": [
            campaign(1, json!({ "cpm_micros": 2_000_000 })), campaign(2, json!({ "cpc_micros": 300_000 })),
            campaign(3, json!({ "cpa_micros": 5_000_000 })), campaign(4, json!({ "share_ppm": 100_000 })),
            { "id": "c5", "code": 5, "advertiser": "v", "bid": { "cpm_micros": 1 } },
        ],
    });
    change(&mut document);
    let (tenant, given) = (origin.tenant("demo").clone(), origin.given());
    catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document, "tests").unwrap();
    origin
}

fn action(visitor: VisitorId, n: u32, received: Millis, action_type: ActionType, campaign: u32) -> Fact {
    let insertion = InsertionId(u128::from(n).to_be_bytes());
    let entity = AdEntity { ad: 1, ad_group: 1, campaign, advertiser: 1 };
    let id = FactId::of_action(visitor, insertion, action_type.0, 0, received);
    let what = FactKind::Action { insertion, action_type, view_type: ViewType(0), entity };
    Fact { position: 0, id, visitor, received, at: received, what }
}

fn of(origin: &Origin, campaign: u32, now: Millis) -> (Nanos, Nanos) {
    let (day, _) = billing_day("Europe/Berlin", now);
    let CampaignSpend { today, ever } = load_spend(&origin.conn, origin.tenant("demo").no, campaign, day).unwrap();
    (today, ever)
}

#[test]
fn what_is_counted_once_is_paid_for_once_on_the_day_of_the_campaigns_zone() {
    let mut origin = origin(|_| {});
    // 2027-01-15 08:00 UTC; the day began in Berlin at 23:00 UTC on the 14th.
    let midnight = NOW - 9 * 3_600_000;
    assert_eq!(billing_day("Europe/Berlin", midnight - 1).1, midnight);
    let (a, b) = (visitor(1), visitor(2));
    let facts = [
        action(a, 1, midnight - 1, ActionType::IMPRESSION, 1),
        action(a, 2, midnight, ActionType::IMPRESSION, 1),
        action(b, 3, NOW, ActionType::IMPRESSION, 1),
        action(b, 3, NOW, ActionType::CLICK, 1),
        action(b, 4, NOW, ActionType::IMPRESSION, 2),
        action(b, 4, NOW, ActionType::CLICK, 2),
        action(b, 5, NOW, ActionType::IMPRESSION, 5),
    ];
    for part in [&facts[..3], &facts, &facts] {
        origin.send("demo", part);
    }
    assert_eq!(of(&origin, 1, NOW), (4_000_000, 6_000_000));
    assert_eq!(of(&origin, 1, midnight - 1), (2_000_000, 6_000_000));
    assert_eq!(of(&origin, 2, NOW), (300_000_000, 300_000_000));
    assert_eq!(of(&origin, 5, NOW), (0, 0), "it has no budget");
}

#[test]
fn a_catalogue_part_that_cannot_be_read_holds_up_its_tenant_alone_until_the_file_is_applied_again() {
    let mut origin = origin(|_| {});
    let tenant = origin.tenant("demo").clone();
    let document: String = origin.conn.query_row("SELECT document FROM catalogues", [], |row| row.get(0)).unwrap();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    for (n, part) in [(10, "budgets"), (20, "experiments")] {
        origin.conn.execute(&format!("UPDATE catalogues SET {part} = '[{{'"), []).unwrap();
        let facts = [
            action(visitor(1), n, NOW, ActionType::IMPRESSION, 1),
            page(visitor(n), n + 1, NOW),
            action(VisitorId::ANONYMOUS, n + 2, NOW, ActionType::IMPRESSION, 1),
        ];
        let there = of(&origin, 1, NOW).1;
        assert_eq!(origin.send("demo", &facts).accepted, 0, "they wait");
        assert_eq!(origin.send("demo", &facts).accepted, 0);
        assert_eq!(origin.send("other", &[page(visitor(1), n, NOW)]).accepted, 1);
        let renewed = origin.drain(10).into_iter().any(|write| write.key.ends_with("allocation"));
        assert!(!renewed, "nothing of a tenant that waits is renewed");
        let rules = &origin.rules;
        let given = || Ok(crate::store::write_txn::TxnInputs { now: NOW, random: [u8::try_from(n).unwrap(); 32] });
        crate::pipeline::take_up::take_up(&mut origin.conn, rules, given).unwrap();
        assert_eq!((quarantine::count_facts(&origin.conn).unwrap(), origin.metrics.held_tenants.get()), (3, 1));

        let again = given().unwrap();
        let read = serde_json::from_str(&document).unwrap();
        catalogue::apply(&mut origin.conn, rules, again, &tenant, read, "tests").unwrap();
        crate::pipeline::take_up::take_up(&mut origin.conn, rules, given).unwrap();
        assert_eq!(quarantine::count_facts(&origin.conn).unwrap(), 0);
        assert_eq!(
            of(&origin, 1, NOW).1,
            there + 4_000_000,
            "the visitor's impression and the anonymous one, each once"
        );
        assert_eq!(origin.profile("demo", visitor(n)).totals().pages, 1);
    }
}

#[test]
fn stored_paces_that_cannot_be_read_are_made_from_the_start() {
    let mut origin = origin(|_| {});
    origin.drain(10);
    origin.conn.execute("UPDATE traffic_allocation SET value = '{'", []).unwrap();
    origin.now += 60_000;
    origin.drain(10);
    assert!(allocation::load_newest(&origin.conn, origin.tenant("demo").no).unwrap().unwrap().paces.contains_key(&1));
}

#[test]
fn a_purchase_is_paid_for_by_the_last_click_of_the_whole_person_within_a_day() {
    let mut origin = origin(|_| {});
    let (phone, laptop, other) = (visitor(1), visitor(2), visitor(3));
    let logins = [origin.login(phone, 1, NOW - DAY_MS, "ann"), origin.login(laptop, 2, NOW - DAY_MS, "ann")];
    origin.send("demo", &logins);
    origin.send(
        "demo",
        &[
            action(phone, 10, NOW - 120_000, ActionType::CLICK, 4),
            action(laptop, 11, NOW - 60_000, ActionType::CLICK, 3),
            purchase(phone, 12, NOW, 20_000_000),
            purchase(other, 13, NOW, 20_000_000),
        ],
    );
    assert_eq!((of(&origin, 3, NOW), of(&origin, 4, NOW)), ((5_000_000_000, 5_000_000_000), (0, 0)));
    // A tenth of the value; a click after the purchase does not pay for it.
    origin.now += 120_000;
    origin.send(
        "demo",
        &[
            action(phone, 14, NOW + 60_000, ActionType::CLICK, 4),
            purchase(laptop, 15, NOW + 60_000, 20_000_000),
            action(phone, 16, NOW + 120_000, ActionType::CLICK, 3),
        ],
    );
    assert_eq!(of(&origin, 4, NOW).1, 2_000_000_000);
    origin.now = NOW + 2 * DAY_MS;
    origin.send("demo", &[purchase(phone, 17, origin.now, 20_000_000)]);
    assert_eq!((of(&origin, 3, NOW).1, of(&origin, 4, NOW).1), (5_000_000_000, 2_000_000_000), "too late");
}

#[test]
fn purchases_of_one_day_are_each_paid_for_by_the_click_before_them() {
    let mut origin = origin(|_| {});
    let (phone, laptop) = (visitor(1), visitor(2));
    origin.send("demo", &[origin.login(phone, 1, NOW - DAY_MS, "ann"), origin.login(laptop, 2, NOW - DAY_MS, "ann")]);
    let facts = [
        purchase(phone, 3, NOW - 900_000, 20_000_000),
        action(laptop, 4, NOW - 600_000, ActionType::CLICK, 3),
        purchase(phone, 5, NOW - 600_000, 20_000_000),
        action(phone, 6, NOW - 120_000, ActionType::CLICK, 4),
        purchase(phone, 7, NOW, 20_000_000),
        purchase(laptop, 8, NOW - 180_000, 20_000_000),
    ];
    origin.send("demo", &facts);
    assert_eq!((of(&origin, 3, NOW).1, of(&origin, 4, NOW).1), (10_000_000_000, 2_000_000_000));
    assert_eq!(unpaid(&origin), 1);
}

fn unpaid(origin: &Origin) -> i64 {
    origin.conn.query_row("SELECT count(*) FROM purchases_unpaid", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_purchase_that_comes_before_its_click_is_paid_for_once_by_it() {
    let mut origin = origin(|_| {});
    let (phone, laptop) = (visitor(1), visitor(2));
    let bought = purchase(laptop, 1, NOW, 20_000_000);
    // A campaign that pays for clicks does not pay for purchases.
    origin.send("demo", &[action(laptop, 2, NOW - 600_000, ActionType::CLICK, 2), bought.clone()]);
    let logins = [origin.login(phone, 3, NOW, "ann"), origin.login(laptop, 4, NOW, "ann")];
    origin.send("demo", &logins);
    let late = |n, ago, campaign| action(phone, n, NOW - ago, ActionType::CLICK, campaign);
    for (click, why) in [
        (action(phone, 5, NOW + 60_000, ActionType::CLICK, 4), "it came after the purchase"),
        (late(6, DAY_MS + 60_000, 4), "more than a day before"),
        (late(7, 900_000, 4), "another click came after it"),
    ] {
        origin.now = NOW + 60_000;
        origin.send("demo", &[click]);
        assert_eq!((of(&origin, 3, NOW).1, of(&origin, 4, NOW).1, unpaid(&origin)), (0, 0, 1), "{why}");
    }
    let clicks = [late(8, 120_000, 4), late(9, 30_000, 3)];
    for facts in [&clicks[1..], &clicks, &[bought], &[late(10, 0, 4)]] {
        origin.send("demo", facts);
        assert_eq!((of(&origin, 3, NOW), of(&origin, 4, NOW).1), ((5_000_000_000, 5_000_000_000), 0));
    }
    assert_eq!(unpaid(&origin), 0);
}

#[test]
fn a_purchase_is_paid_for_once_whether_its_click_or_its_login_comes_last() {
    let (phone, laptop) = (visitor(1), visitor(2));
    let bought = purchase(phone, 1, NOW, 20_000_000);
    let click = action(laptop, 2, NOW - 600_000, ActionType::CLICK, 3);
    for apart in [false, true] {
        let mut origin = origin(|_| {});
        let logins = [origin.login(phone, 3, NOW, "ann"), origin.login(laptop, 4, NOW, "ann")];
        let facts = [[click.clone(), bought.clone()], logins].concat();
        for _ in 0..2 {
            facts.chunks(if apart { 1 } else { 4 }).for_each(|some| drop(origin.send("demo", some)));
            assert_eq!((of(&origin, 3, NOW).1, unpaid(&origin)), (5_000_000_000, 0), "{apart}");
        }
    }
    // A login is not a click, and a click after the purchase does not pay for it.
    let mut origin = origin(|_| {});
    let logins = [origin.login(phone, 3, NOW, "ann"), origin.login(laptop, 4, NOW, "ann")];
    origin.now += 60_000;
    origin.send("demo", &[action(laptop, 2, NOW + 60_000, ActionType::CLICK, 3), bought]);
    origin.send("demo", &logins);
    assert_eq!((of(&origin, 3, NOW).1, unpaid(&origin)), (0, 1));
}

#[test]
fn an_order_from_two_devices_of_a_person_is_billed_once_in_any_order() {
    let (phone, laptop) = (visitor(1), visitor(2));
    let [one, two] = [phone, laptop].map(|v| ordered(v, "A-100", NOW, 20_000_000));
    let click = action(phone, 2, NOW - 600_000, ActionType::CLICK, 3);
    for facts in [[&click, &one, &two], [&one, &click, &two], [&one, &two, &click], [&two, &one, &click]] {
        for together in [false, true] {
            let mut origin = origin(|_| {});
            origin.send("demo", &[origin.login(phone, 3, NOW, "ann"), origin.login(laptop, 4, NOW, "ann")]);
            let facts = facts.map(Clone::clone);
            facts.chunks(if together { 3 } else { 1 }).for_each(|some| drop(origin.send("demo", some)));
            assert_eq!((of(&origin, 3, NOW).1, unpaid(&origin)), (5_000_000_000, 0), "{together} {facts:?}");
            // Another order, and another person's order, are other purchases.
            origin.send("demo", &[ordered(laptop, "A-101", NOW, 20_000_000)]);
            let other = action(visitor(9), 5, NOW - 600_000, ActionType::CLICK, 3);
            origin.send("demo", &[other, ordered(visitor(9), "A-100", NOW, 20_000_000)]);
            assert_eq!(of(&origin, 3, NOW).1, 3 * 5_000_000_000);
        }
    }
}

#[test]
fn an_order_that_was_paid_for_is_forgotten_with_its_visitor_and_with_age() {
    let mut origin = origin(|_| {});
    let paid = |origin: &Origin| -> i64 {
        origin.conn.query_row("SELECT count(*) FROM orders_paid", [], |row| row.get(0)).unwrap()
    };
    for v in [1, 2] {
        let click = action(visitor(v), 2, NOW - 600_000, ActionType::CLICK, 3);
        origin.send("demo", &[click, ordered(visitor(v), "A-100", NOW, 20_000_000)]);
    }
    assert_eq!(paid(&origin), 2);
    origin.send("demo", &[erasure(visitor(1))]);
    assert_eq!(paid(&origin), 1);
    let row = origin.row("demo", visitor(2)).row.unwrap();
    crate::maintenance::trim::trim_visitor(&mut origin.conn, row, NOW + 91 * DAY_MS).unwrap();
    assert_eq!(paid(&origin), 0);
}

#[test]
fn of_a_visitors_purchases_few_wait_and_those_that_nobody_pays_for_do_not() {
    let mut origin = origin(|document| {
        let campaigns = document["campaign"].as_array_mut().unwrap();
        campaigns.retain(|campaign| campaign["code"] == 4);
    });
    let bought = |v: u32, value| (1..=120).map(move |n| purchase(visitor(v), n, NOW, value)).collect::<Vec<_>>();
    origin.send("demo", &bought(1, 0));
    assert_eq!(unpaid(&origin), 0, "a share of nothing");
    origin.send("demo", &bought(2, 10_000_000));
    assert_eq!(unpaid(&origin), 100);
    origin.send("demo", &[action(visitor(2), 200, NOW, ActionType::CLICK, 4)]);
    assert_eq!((unpaid(&origin), of(&origin, 4, NOW).1), (0, 100 * 1_000_000_000));
    origin.send("demo", &[purchase(visitor(2), 201, NOW, 10_000_000)]);
    assert_eq!((unpaid(&origin), of(&origin, 4, NOW).1), (0, 101 * 1_000_000_000), "its click is there");
}

#[test]
fn a_purchase_waits_a_day_for_its_click_and_not_beyond_its_visitor() {
    let mut origin = origin(|_| {});
    for (v, later, paid) in [(1, DAY_MS - 1, 1), (2, DAY_MS, 1)] {
        origin.now = NOW;
        origin.send("demo", &[purchase(visitor(v), 1, NOW, 20_000_000)]);
        origin.now = NOW + later;
        origin.send("demo", &[action(visitor(v), v, NOW - 30_000, ActionType::CLICK, 3)]);
        assert_eq!(of(&origin, 3, NOW).1, paid * 5_000_000_000, "{later}");
    }
    assert_eq!(unpaid(&origin), 1);
    let row = origin.row("demo", visitor(2)).row.unwrap();
    crate::maintenance::trim::trim_visitor(&mut origin.conn, row, NOW + DAY_MS).unwrap();
    assert_eq!(unpaid(&origin), 0);
    let bought = |v| purchase(visitor(v), 1, NOW, 20_000_000);
    origin.send("demo", &[bought(3), erasure(visitor(3))]);
    assert_eq!(unpaid(&origin), 0, "no data of an erased visitor is retained");
    origin.send("demo", &[bought(4)]);
    assert_eq!(unpaid(&origin), 1);
    origin.send("demo", &[erasure(visitor(4))]);
    assert_eq!(unpaid(&origin), 0);
}

#[test]
fn a_last_click_that_pays_for_no_purchase_is_the_last_one_all_the_same() {
    let (phone, laptop) = (visitor(1), visitor(2));
    let mut origin = origin(|_| {});
    let logins = [origin.login(phone, 1, NOW, "ann"), origin.login(laptop, 2, NOW, "ann")];
    origin.send(
        "demo",
        &[action(laptop, 3, NOW - 600_000, ActionType::CLICK, 3), action(phone, 4, NOW - 60_000, ActionType::CLICK, 2)],
    );
    let [phone_is, laptop_is] = logins;
    origin.send("demo", &[phone_is, laptop_is, purchase(laptop, 5, NOW, 20_000_000)]);
    assert_eq!((of(&origin, 3, NOW).1, unpaid(&origin)), (0, 1), "the phone's click came after it");
}

#[test]
fn a_purchase_that_waits_is_paid_for_once_its_person_is_mended() {
    let mut origin = origin(|_| {});
    let (phone, laptop) = (visitor(1), visitor(2));
    let logins = [origin.login(phone, 1, NOW, "ann"), origin.login(laptop, 2, NOW, "ann")];
    origin.send("demo", &logins);
    let apart = "INSERT INTO people SELECT 77, tenant, master, 1, 0, 0, NULL, random, 1000 FROM people";
    origin.conn.execute(apart, []).unwrap();
    origin.conn.execute("UPDATE visitors SET person = 77 WHERE visitor = ?1", [laptop.as_bytes()]).unwrap();
    origin.send("demo", &[action(phone, 3, NOW - 60_000, ActionType::CLICK, 3), purchase(laptop, 4, NOW, 20_000_000)]);
    assert_eq!((of(&origin, 3, NOW).1, unpaid(&origin)), (0, 1));
    let Origin { conn, rules, metrics, now, .. } = &mut origin;
    let quiet = |_: u64, _: u64| Ok(());
    let plan = reconcile::plan(conn, &rules.tenants, &quiet).unwrap();
    let given = || Ok(crate::store::write_txn::TxnInputs { now: *now, random: [1; 32] });
    reconcile::mend(conn, rules, metrics, given, &plan, &quiet).unwrap();
    assert_eq!((of(&origin, 3, NOW).1, unpaid(&origin)), (5_000_000_000, 0));
}

fn erasure(v: VisitorId) -> Fact {
    let what =
        FactKind::Erasure { scope: causeway_shared::facts::fact::ErasureScope::Visitor, id: None, also: Vec::new() };
    Fact { position: 0, id: FactId::of_erasure(v), visitor: v, received: NOW, at: NOW, what }
}

#[test]
fn what_a_click_pays_for_is_billed_though_an_erasure_or_an_unlink_comes_with_it() {
    let (phone, laptop) = (visitor(1), visitor(2));
    let click = action(phone, 1, NOW - 60_000, ActionType::CLICK, 3);
    for together in [false, true] {
        let size = if together { 2 } else { 1 };
        let mut origin = origin(|_| {});
        origin.send("demo", std::slice::from_ref(&click));
        let erased = [purchase(phone, 2, NOW, 20_000_000), erasure(phone)];
        erased.chunks(size).for_each(|some| drop(origin.send("demo", some)));
        assert_eq!(of(&origin, 3, NOW).1, 5_000_000_000, "{together}");

        // The purchase waits; the click arrives together with the erasure.
        let mut origin = self::origin(|_| {});
        origin.send("demo", &[purchase(phone, 2, NOW, 20_000_000)]);
        let clicked = [click.clone(), erasure(phone)];
        clicked.chunks(size).for_each(|some| drop(origin.send("demo", some)));
        assert_eq!((of(&origin, 3, NOW).1, unpaid(&origin)), (5_000_000_000, 0), "{together}");

        let mut origin = self::origin(|_| {});
        let logins = [origin.login(phone, 3, NOW - DAY_MS, "ann"), origin.login(laptop, 4, NOW - DAY_MS, "ann")];
        origin.send("demo", &logins);
        origin.send("demo", std::slice::from_ref(&click));
        let id = origin.member("demo", "ann");
        let unlink = crate::testing::fact(laptop, 5, NOW, FactKind::Cancellation { id });
        let facts = [purchase(laptop, 6, NOW, 20_000_000), unlink];
        for some in facts.chunks(size) {
            origin.admin("demo", some);
        }
        assert_eq!((of(&origin, 3, NOW).1, unpaid(&origin)), (5_000_000_000, 0), "{together}");
    }
}

#[test]
fn a_purchase_is_paid_for_by_when_it_was_received_whatever_the_browsers_clock_says() {
    let mut origin = origin(|_| {});
    let slow = Fact { at: NOW - 120_000, ..purchase(visitor(1), 1, NOW, 20_000_000) };
    origin.send("demo", &[action(visitor(1), 2, NOW - 60_000, ActionType::CLICK, 3), slow.clone()]);
    assert_eq!(of(&origin, 3, NOW).1, 5_000_000_000);
    // The admin API reports the action later.
    origin.send("demo", &[action(visitor(2), 3, NOW - 60_000, ActionType::CLICK, 3)]);
    origin.admin("demo", &[Fact { visitor: visitor(2), ..slow }]);
    assert_eq!(of(&origin, 3, NOW).1, 5_000_000_000);
}

#[test]
fn what_nobody_saw_is_paid_for_once_and_is_nobodys_history() {
    let mut origin = origin(|_| {});
    let seen = |n, campaign| action(VisitorId::ANONYMOUS, n, NOW, ActionType::IMPRESSION, campaign);
    for (facts, new) in [(vec![seen(1, 1), seen(2, 1), seen(1, 1)], 2), (vec![seen(2, 1), seen(3, 5)], 1)] {
        assert_eq!(origin.send("demo", &facts).accepted, new);
    }
    assert_eq!(of(&origin, 1, NOW), (4_000_000, 4_000_000));
    let count = |origin: &Origin, table: &str| {
        origin.conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((count(&origin, "visitors"), count(&origin, "anonymous_facts")), (0, 2));
    // The action is retained for as long as its fact could be repeated.
    for (later, retained) in [(limits::FACT_ID_KEEP_MS, 2), (limits::FACT_ID_KEEP_MS + DAY_MS, 0)] {
        origin.now = NOW + later;
        origin.drain(10);
        assert_eq!(count(&origin, "anonymous_facts"), retained, "{later}");
    }
}

#[test]
fn what_is_imported_was_paid_for_where_it_was_placed() {
    let mut origin = origin(|_| {});
    let seen = |v, action_type| action(visitor(v), v, NOW, action_type, 1);
    origin
        .admin("demo", &[seen(1, ActionType::IMPRESSION), seen(2, ActionType::IMPRESSION), seen(3, ActionType::CLICK)]);
    assert_eq!(of(&origin, 1, NOW), (0, 0));
    origin.send("demo", &[seen(4, ActionType::IMPRESSION)]);
    assert_eq!(of(&origin, 1, NOW), (2_000_000, 2_000_000));
}

#[test]
fn a_purchase_that_is_imported_more_than_a_day_later_is_nobodys_to_pay() {
    let mut origin = origin(|_| {});
    for (v, ago, paid) in [(1, DAY_MS + 1, 0), (2, DAY_MS, 1)] {
        let at = NOW - ago;
        origin.now = at;
        origin.send("demo", &[action(visitor(v), v, at - 60_000, ActionType::CLICK, 3)]);
        origin.now = NOW;
        origin.admin("demo", &[Fact { at, ..purchase(visitor(v), 10, NOW, 20_000_000) }]);
        assert_eq!(of(&origin, 3, NOW).1, paid * 5_000_000_000, "{ago}");
    }
}

#[test]
fn each_minute_the_paces_are_published_and_follow_what_was_spent() {
    let mut origin = origin(|_| {});
    let mut kv = std::collections::BTreeMap::new();
    let mut minute = |origin: &mut Origin| {
        let writes = origin.drain(100);
        kv.extend(writes.iter().filter_map(|write| Some((write.key.clone(), write.value.clone()?))));
        origin.acknowledge(&writes);
        let key = kv_keys::allocation_key(&origin.tenant("demo").id);
        let (_, allocation) = decode_allocation(&key, kv.get(&key)?.as_bytes()).unwrap();
        origin.now += limits::ALLOCATION_MS;
        Some((allocation.at, allocation.paces.get(&1).copied()?, allocation.paces.contains_key(&5)))
    };
    let first = minute(&mut origin).unwrap();
    assert_eq!((first.0, first.1.from, first.2), (NOW, 0, false), "one without a budget has no pace");
    let second = minute(&mut origin).unwrap();
    assert!(second.0 == NOW + limits::ALLOCATION_MS && second.1.to > first.1.to, "{second:?}");
    // 500 impressions are paid for in a day, and they came at once.
    let facts: Vec<Fact> = (0..500).map(|n| action(visitor(n), n, origin.now, ActionType::IMPRESSION, 1)).collect();
    origin.send("demo", &facts);
    assert_eq!(minute(&mut origin).unwrap().1.to, 0, "it is spent");
    let report = allocation::report_budgets(&origin.conn, origin.tenant("demo").no, origin.now).unwrap();
    let day_ends = billing_day("Europe/Berlin", NOW).1;
    assert_eq!(
        report.first().map(crate::testing::as_json),
        Some(json!({
            "campaign": "c1", "budget_micros": null, "daily_budget_micros": 1_000_000, "spent_micros": 1_000_000,
            "spent_today_micros": 1_000_000, "left_micros": 0, "day_ends_ms": day_ends, "pace_ppm": 0,
        }))
    );
    origin.now = day_ends;
    assert!(minute(&mut origin).unwrap().1.to > 0, "a new day");
}

#[test]
fn what_was_spent_since_a_backup_stays_spent() {
    let mut origin = origin(|_| {});
    let facts: Vec<Fact> = (0..4).map(|n| action(visitor(n), n, NOW, ActionType::IMPRESSION, 1)).collect();
    origin.send("demo", &facts);
    let before = catalogue::ReplacedRows::of(&origin.conn, &mut crate::maintenance::backup::UnreadParts::default());
    for (change, after) in [("nanos = 1", 8_000_000), ("nanos = 9000000", 9_000_000)] {
        origin.conn.execute(&format!("UPDATE spend SET {change}"), []).unwrap();
        before.bring(&origin.conn, &catalogue::TenantNumbers::default()).unwrap();
        assert_eq!(of(&origin, 1, NOW), (after, after), "{change}");
    }
    origin.conn.execute("DELETE FROM spend WHERE day = -1", []).unwrap();
    before.bring(&origin.conn, &catalogue::TenantNumbers::default()).unwrap();
    assert_eq!(of(&origin, 1, NOW), (9_000_000, 8_000_000));
}

#[test]
fn a_days_end_is_where_the_clocks_are() {
    // Berlin's clocks went back on 2026-10-25, which had 25 hours. Lord Howe's change by half an hour.
    let noon = 1_792_929_600_000;
    assert_eq!(billing_day("Europe/Berlin", noon), (20_751, noon + 11 * 3_600_000));
    assert_eq!(billing_day("Europe/Berlin", noon - DAY_MS), (20_750, noon - DAY_MS + 10 * 3_600_000));
    assert_eq!(billing_day("Australia/Lord_Howe", 0).0, 0);
    assert_eq!(billing_day("UTC", u64::MAX).0, 2_932_895);
}
