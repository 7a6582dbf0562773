//! People with more visitors than a neighbourhood examines.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_shared::base::ids::{AlternateId, FactId, KindCode, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::HOUR_MS;
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::sync::{KvWrite, SyncRequest};

use crate::identity::connections;
use crate::maintenance::export::tables::TABLES;
use crate::maintenance::reconcile;
use crate::testing::{NOW, Origin, alias, fact, page, snapshot, stored, visitor};

const MANY: u32 = 2_500;
/// Instructions of SQLite's machine between two calls of its progress handler.
const STEP: u64 = 50;

fn quiet(_: u64, _: u64) -> Result<(), crate::store::job_error::JobError> {
    Ok(())
}

/// A member with visitors 10, 20, … 10 × `visitors`, published.
fn origin(visitors: u32) -> (Origin, BTreeMap<String, String>) {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    let logins: Vec<Fact> = (1..=visitors).map(|v| origin.login(visitor(10 * v), v, NOW, "shop")).collect();
    // The first three link, then many at once, then one after the other.
    let (first, more) = logins.split_at(logins.len().min(3));
    let (many, last) = more.split_at(more.len().saturating_sub(5));
    [first, many].into_iter().chain(last.chunks(1)).for_each(|facts| drop(origin.send("demo", facts)));
    origin.settle(&mut kv);
    (origin, kv)
}

/// A large person whose master shares an id with a visitor that only the master connects to it.
fn with_a_household() -> (Origin, BTreeMap<String, String>) {
    let (mut origin, mut kv) = origin(MANY);
    let household = origin.id("demo", KindCode(2), "household");
    let shared = [10, 77_777].map(|v| alias(visitor(v), 900, NOW + 1, household));
    origin.send("demo", &shared);
    origin.settle(&mut kv);
    (origin, kv)
}

fn is_right(origin: &Origin) {
    assert_eq!(reconcile::plan(&origin.conn, &origin.rules.tenants, &quiet).unwrap().differences, []);
}

/// Cost of a step: instructions of SQLite's machine, and rows written.
fn cost(origin: &mut Origin, step: impl FnOnce(&mut Origin)) -> (u64, u64) {
    let (steps, rows) = (Arc::new(AtomicU64::new(0)), origin.conn.total_changes());
    let counted = Arc::clone(&steps);
    let count = move || {
        counted.fetch_add(STEP, Ordering::Relaxed);
        false
    };
    origin.conn.progress_handler(i32::try_from(STEP).unwrap(), Some(count)).unwrap();
    step(origin);
    origin.conn.progress_handler(0, None::<fn() -> bool>).unwrap();
    (steps.load(Ordering::Relaxed), origin.conn.total_changes() - rows)
}

#[test]
fn a_member_with_thousands_of_visitors_costs_as_much_as_one_with_three() {
    let each = |visitors| {
        let (mut origin, mut kv) = origin(visitors);
        let before = origin.person("demo", visitor(10));
        assert_eq!((before.devices, before.master), (visitors, visitor(10)));
        let login = cost(&mut origin, |origin| {
            let facts = [page(visitor(33_333), 1, NOW), origin.login(visitor(33_333), 2, NOW, "shop")];
            origin.send("demo", &facts);
        });
        // A visitor older than all others becomes the master.
        let master = cost(&mut origin, |origin| drop(origin.send("demo", &[origin.login(visitor(1), 1, NOW, "shop")])));
        let after = origin.person("demo", visitor(33_333));
        assert_eq!((after.devices, after.master), (visitors + 2, visitor(1)));
        assert_eq!(after.random, before.random);
        let view = cost(&mut origin, |origin| drop(origin.send("demo", &[page(visitor(10), 3, NOW)])));
        let publish = cost(&mut origin, |origin| origin.settle(&mut kv));
        let snapshot = snapshot(&kv, visitor(33_333));
        assert_eq!((snapshot.membership.devices, !snapshot.missing().is_empty()), (visitors + 2, visitors > 50));
        let tenant = origin.tenant("demo").no;
        let check = cost(&mut origin, |origin| {
            assert!(
                connections::check_pair(&origin.conn, tenant, visitor(20), visitor(33_333)).unwrap().unwrap().connected
            );
        });
        is_right(&origin);
        [login, master, view, publish, check]
    };
    let (few, many) = (each(60), each(MANY));
    for ((what, few), many) in ["login", "master", "view", "publish", "check"].into_iter().zip(few).zip(many) {
        assert!(many.0 <= 2 * few.0 + STEP && many.1 <= few.1 + 4, "{what}: {few:?}, then {many:?}");
    }
}

#[test]
fn a_visitor_that_leaves_a_large_person_is_cut_from_every_snapshot_in_steps() {
    let (mut origin, mut kv) = with_a_household();
    assert_eq!(origin.person("demo", visitor(77_777)).devices, MANY + 1);
    let before = named(&kv, visitor(10));
    assert!(before > 40, "{before}");
    let id = origin.member("demo", "shop");
    let (steps, rows) = cost(&mut origin, |origin| {
        origin.admin("demo", &[fact(visitor(10), 901, NOW + 2, FactKind::Cancellation { id })]);
    });
    assert!(rows < 3 * u64::from(limits::GROUP_LIMIT), "{steps} instructions, {rows} rows");
    is_right(&origin);
    let (left, rest) = (origin.person("demo", visitor(77_777)), origin.person("demo", visitor(20)));
    assert_eq!((left.devices, left.master, rest.devices, rest.master), (2, visitor(10), MANY - 1, visitor(20)));
    let mut calls = 0;
    loop {
        origin.now += 1_000;
        let writes = origin.drain(100);
        assert!(writes.len() <= 100);
        if writes.is_empty() {
            break;
        }
        calls += 1;
        kv.extend(writes.iter().filter_map(|write| Some((write.key.clone(), write.value.clone()?))));
        origin.acknowledge(&writes);
    }
    assert!((u64::from(MANY) / 100..100).contains(&calls), "{calls}");
    assert_eq!(named(&kv, visitor(10)), 1, "its own");
    assert_eq!(snapshot(&kv, visitor(10)).profiles.keys().count(), 2);
}

/// Number of visitors of the large person whose snapshot in a KV holds data of `who`.
fn named(kv: &BTreeMap<String, String>, who: VisitorId) -> usize {
    let holds =
        |v: &u32| matches!(stored(kv, visitor(10 * v)), StoredValue::Snapshot(of) if of.profiles.contains_key(&who));
    (1..=MANY).filter(holds).count()
}

fn erased(v: u32) -> Fact {
    crate::privacy::erasure_request::ErasureTarget::Visitor(visitor(v)).fact(ErasureScope::Visitor, NOW + 2, [0; 16])
}

fn is_done(origin: &Origin, receipt: FactId) -> bool {
    let progress = crate::testing::as_json(
        crate::erasures::registry::erasure_progress(&origin.conn, origin.tenant("demo").no, receipt).unwrap().unwrap(),
    );
    !progress["done_ms"].is_null()
}

/// One call of the consumer, a second after the previous one. Returns the written keys, without the keys that it still
/// holds.
fn written(origin: &mut Origin, kv: &mut BTreeMap<String, String>, is_held: impl Fn(&KvWrite) -> bool) -> Vec<KvWrite> {
    origin.now += 1_000;
    let (held, writes): (Vec<_>, Vec<_>) = origin.drain(100).into_iter().partition(is_held);
    kv.extend(writes.iter().filter_map(|write| Some((write.key.clone(), write.value.clone()?))));
    origin.acknowledge(&writes);
    held
}

/// The same call while as many other visitors change as are written, and some more at first.
fn written_beside_others(origin: &mut Origin, kv: &mut BTreeMap<String, String>, calls: &mut u32) {
    let others = if *calls == 0 { 300 } else { 100 };
    let seen = (0..others).map(|n| page(visitor(100_000 + 1_000 * *calls + n), 1, origin.now)).collect::<Vec<_>>();
    origin.send("demo", &seen);
    written(origin, kv, |_| false);
    *calls += 1;
    assert!(*calls < 300, "it comes to no end");
}

#[test]
fn erasing_a_visitor_of_a_large_person_costs_as_much_as_its_withdrawal() {
    let (mut origin, mut kv) = with_a_household();
    let holds = |kv: &_| matches!(stored(kv, visitor(77_777)), StoredValue::Snapshot(of) if of.profiles.len() > 1);
    assert!(named(&kv, visitor(10)) > 40 && holds(&kv));
    let receipt = erased(10).id;
    let (steps, rows) = cost(&mut origin, |origin| origin.admin("demo", &[erased(10)]));
    assert!(rows < 3 * u64::from(limits::GROUP_LIMIT), "{steps} instructions, {rows} rows");
    is_right(&origin);
    assert_eq!([20, 77_777].map(|v| origin.person("demo", visitor(v)).devices), [MANY - 1, 1]);
    let mut calls = 0;
    while !is_done(&origin, receipt) {
        written(&mut origin, &mut kv, |_| false);
        calls += 1;
        assert!(calls < 100, "it comes to no end");
    }
    assert!(calls >= MANY / 100, "{calls}");
    assert_eq!((named(&kv, visitor(10)), holds(&kv)), (0, false));
    let keys = number(&origin, "SELECT count(*) FROM erasure_keys WHERE kind = 0");
    assert_eq!(keys, i64::from(MANY) + 1);
    assert_eq!(number(&origin, "SELECT count(*) FROM sweeps"), 0);
}

#[test]
fn an_erasure_is_done_although_the_outbox_is_never_empty() {
    let (mut origin, mut kv) = origin(MANY);
    let receipt = erased(10).id;
    origin.admin("demo", &[erased(10)]);
    let mut calls = 0;
    while !is_done(&origin, receipt) {
        written_beside_others(&mut origin, &mut kv, &mut calls);
    }
    assert_eq!(named(&kv, visitor(10)), 0);
}

#[test]
fn a_withdrawn_visitor_is_cut_from_every_snapshot_although_the_outbox_is_never_empty() {
    let (mut origin, mut kv) = origin(MANY);
    origin.settle(&mut kv);
    assert!(named(&kv, visitor(10)) > 40);
    let withdrawn = crate::testing::withdrawal(visitor(10), origin.now);
    origin.send("demo", &[withdrawn]);
    let mut calls = 0;
    while named(&kv, visitor(10)) > 0 {
        written_beside_others(&mut origin, &mut kv, &mut calls);
    }
}

#[test]
fn a_person_is_swept_once_however_many_of_its_visitors_one_receipt_erases() {
    let receipt = FactId::from_bytes([7; 16]);
    let erase = |visitors| {
        let (mut origin, _) = origin(visitors);
        let all: Vec<Fact> = (101..=200).map(|v| Fact { id: receipt, ..erased(10 * v) }).collect();
        let cost = cost(&mut origin, |origin| origin.admin("demo", &all));
        assert_eq!(origin.person("demo", visitor(10)).devices, visitors - 100);
        cost
    };
    let (few, many) = (erase(1_250), erase(MANY));
    assert!(10 * many.0 < 11 * few.0 && many.1 <= few.1 + 4, "{few:?}, then {many:?}");
    let one = cost(&mut origin(MANY).0, |origin| origin.admin("demo", &[erased(1_010)]));
    // Each erasure takes its own cuts and evidence, and no keys of the others.
    assert!(
        many.0 < 10 * one.0 && many.1 < one.1 + 100 * (2 * limits::CUTS as u64 + 120),
        "{one:?}, then {few:?}, then {many:?}"
    );
}

#[test]
fn an_erasure_waits_for_visitors_that_move_during_its_sweep() {
    let (mut origin, mut kv) = origin(MANY);
    let receipt = erased(10).id;
    origin.now += 3 * HOUR_MS;
    origin.admin("demo", &[erased(10)]);
    written(&mut origin, &mut kv, |_| false);
    // The visitor that the sweep would reach last becomes active, one leaves, and one joins another person.
    let id = origin.member("demo", "shop");
    let [active, leaves, joins] = [0, 1, 2].map(|n| visitor(10 * (MANY - n)));
    origin.send("demo", &[page(active, 9_000, NOW + 2 * HOUR_MS)]);
    origin.admin("demo", &[leaves, joins].map(|v| fact(v, 9_001, NOW + 3, FactKind::Cancellation { id })));
    origin.send("demo", &[origin.login(visitor(7), 1, NOW + 4, "other"), origin.login(joins, 9_002, NOW + 5, "other")]);
    assert_eq!(origin.person("demo", joins).devices, 2);
    is_right(&origin);
    let demo = &origin.tenant("demo").id;
    let keys = [active, leaves, joins].map(|v| causeway_shared::wire::kv_keys::snapshot_key(demo, v));
    let mut held = Vec::new();
    for _ in 0..40 {
        held.extend(written(&mut origin, &mut kv, |write| keys.contains(&write.key)));
        assert!(!is_done(&origin, receipt), "{} of three are held", held.len());
    }
    assert_eq!(number(&origin, "SELECT count(*) FROM sweeps"), 0);
    let open = |origin: &Origin| number(origin, "SELECT count(*) FROM erasure_keys WHERE written IS NULL");
    assert_eq!((held.len(), open(&origin)), (3, 3));
    origin.acknowledge(&held);
    assert_eq!((open(&origin), is_done(&origin, receipt)), (0, true));
}

#[test]
fn erasures_during_the_sweep_of_others_are_each_done_in_time() {
    let (mut origin, mut kv) = origin(MANY);
    let mut calls = [0; 4];
    for call in 0..400 {
        // One erasure after the other, while the first one is not done.
        let n = call / 12;
        if call % 12 == 0 && n < 4 {
            origin.admin("demo", &[erased(10 * (n + 1))]);
            let exported = TABLES.iter().find(|table| table.name == "erasure_keys").unwrap().read().unwrap();
            let receipt = crate::maintenance::export::tables::to_hex(erased(10 * (n + 1)).id.as_bytes());
            let count =
                format!("SELECT count(DISTINCT subject) FROM ({exported}) WHERE kind = 0 AND receipt = x'{receipt}'");
            let keys: u32 = origin.conn.query_row(&count, [origin.tenant("demo").no.0], |row| row.get(0)).unwrap();
            assert_eq!(keys, MANY - n, "an export has those that are not noted yet");
        }
        written(&mut origin, &mut kv, |_| false);
        for (n, done) in (0..).zip(&mut calls).filter(|(n, done)| **done == 0 && call >= 12 * n) {
            if is_done(&origin, erased(10 * (n + 1)).id) {
                *done = call;
                assert_eq!(named(&kv, visitor(10 * (n + 1))), 0, "{n} at {call}");
            }
        }
    }
    let [first, .., last] = calls;
    assert!((25..100).contains(&first) && calls.is_sorted() && (1..300).contains(&last), "{calls:?}");
    assert_eq!(
        number(&origin, "SELECT count(*) FROM sweeps") + number(&origin, "SELECT count(*) FROM erasure_sweeps"),
        0
    );
}

#[test]
fn a_large_person_is_mended_at_the_cost_of_its_wrong_visitors() {
    let (mut origin, _) = origin(MANY);
    origin.send("demo", &(1..=3).map(|v| origin.login(visitor(10 * v + 5), 1, NOW, "other")).collect::<Vec<_>>());
    let row = |origin: &Origin, v: u32| origin.row("demo", visitor(v)).person.unwrap().0;
    let (large, small) = (row(&origin, 10), row(&origin, 15));
    let damage = [
        format!("UPDATE visitors SET person = {small} WHERE person = {large} AND row % 400 = 7"),
        format!("UPDATE visitors SET person = {large} WHERE visitor = x'{}'", hex(&visitor(25).as_bytes()[..])),
        format!("UPDATE visitors SET person = 700000 + row WHERE person = {large} AND row % 500 = 9"),
        format!(
            "UPDATE people SET devices = 7, master = x'{}' WHERE person = {large}",
            hex(&visitor(40).as_bytes()[..])
        ),
        format!("DELETE FROM people WHERE person = {large}"),
        format!("UPDATE people SET tenant = 3 - tenant WHERE person = {large}"),
        // Two large people in one row.
        format!("UPDATE visitors SET person = {small}"),
    ];
    for (n, damage) in (0..).zip(&damage) {
        origin.conn.execute(damage, []).unwrap();
        let plan = reconcile::plan(&origin.conn, &origin.rules.tenants, &quiet).unwrap();
        assert!(!plan.differences.is_empty(), "{n}");
        let Origin { conn, rules, metrics, now, .. } = &mut origin;
        let mut seed = 0;
        let given = || {
            seed += 1;
            Ok(crate::store::write_txn::TxnInputs { now: *now, random: [seed; 32] })
        };
        reconcile::mend(conn, rules, metrics, given, &plan, &quiet).unwrap();
        is_right(&origin);
        let people =
            [10, 15].map(|v| (origin.person("demo", visitor(v)).devices, origin.person("demo", visitor(v)).master));
        assert_eq!(people, [(MANY, visitor(10)), (3, visitor(15))], "{n}: {:?}", plan.causes());
    }
}

fn number(origin: &Origin, read: &str) -> i64 {
    origin.conn.query_row(read, [], |row| row.get(0)).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_id_of_an_oversized_group_links_no_visitors() {
    let mut origin = Origin::of_group_limit(20);
    let id = |origin: &Origin| origin.id("demo", KindCode(2), "0.0.0.0");
    let seen = |origin: &mut Origin, v: u32| {
        let facts = [page(visitor(v), 1, NOW), alias(visitor(v), 2, NOW + u64::from(v), id(origin))];
        origin.send("demo", &facts);
    };
    (1..=20).for_each(|v| seen(&mut origin, v));
    origin.send("demo", &[origin.login(visitor(2), 3, NOW, "ann"), origin.login(visitor(3), 3, NOW, "ann")]);
    assert_eq!(origin.person("demo", visitor(7)).devices, 20);
    assert_eq!(of(&origin, id(&origin)), 3, "its lookup names the newest");
    seen(&mut origin, 21);
    is_right(&origin);
    assert_eq!([1, 2, 3, 7, 21].map(|v| origin.person("demo", visitor(v)).devices), [1, 2, 2, 1, 1]);
    assert_eq!(of(&origin, id(&origin)), 0, "no visitor is found by it");
    (22..=60).for_each(|v| seen(&mut origin, v));
    is_right(&origin);
    // The id does not link again while it has that many visitors.
    origin.send("demo", &(1..=40).map(|v| crate::testing::withdrawal(visitor(v), NOW + 100)).collect::<Vec<_>>());
    is_right(&origin);
    assert_eq!(origin.person("demo", visitor(50)).devices, 20);
    assert_eq!(of(&origin, id(&origin)), 3);
}

#[test]
fn an_id_with_thousands_of_weak_ties_prevents_no_link() {
    let mut origin = Origin::of_group_limit(20);
    let id = origin.id("demo", KindCode(2), "unknown");
    let most = u32::try_from(limits::AROUND_VISITORS).unwrap() + 100;
    let pages: Vec<Fact> = (1..=most).map(|v| page(visitor(v), 1, NOW)).collect();
    pages.chunks(5_000).for_each(|some| drop(origin.send("demo", some)));
    let tie = |v| {
        let weight = EvidenceWeight(400);
        fact(
            visitor(v),
            2,
            NOW + u64::from(v),
            FactKind::Evidence { id, also: Vec::new(), weight, source: EvidenceSource::Match },
        )
    };
    let ties: Vec<Fact> = (1..=most).map(tie).collect();
    ties.chunks(5_000).for_each(|some| origin.admin("demo", some));
    origin.send("demo", &[page(visitor(90_000), 1, NOW), origin.login(visitor(90_000), 2, NOW, "ann")]);
    origin.send("demo", &[origin.login(visitor(7), 3, NOW + 1, "ann"), alias(visitor(7), 4, NOW + 99_999, id)]);
    assert_eq!(origin.person("demo", visitor(7)).devices, 2);
    assert_eq!(of(&origin, id), 0, "no visitor is found by it");
}

#[test]
fn an_id_that_thousands_bring_at_once_unlinks_its_earlier_visitors() {
    let mut origin = Origin::of_group_limit(100);
    let id = origin.id("demo", KindCode(2), "0.0.0.0");
    let seen = |v: u32| [page(visitor(v), 1, NOW), alias(visitor(v), 2, NOW + u64::from(v), id)];
    origin.send("demo", &(1..=90).flat_map(seen).collect::<Vec<_>>());
    assert_eq!(origin.person("demo", visitor(7)).devices, 90);
    let most = u32::try_from(limits::AROUND_VISITORS).unwrap() + 200;
    let all: Vec<Fact> = (100..=most).flat_map(seen).collect();
    let request = |some| SyncRequest { facts: vec![origin.batch("demo", some)], ..SyncRequest::default() };
    let requests: Vec<SyncRequest> = all.chunks(5_000).map(request).collect();
    origin.sync_all(requests);
    assert_eq!([1, 90, most].map(|v| origin.person("demo", visitor(v)).devices), [1; 3]);
    assert_eq!(of(&origin, id), 0);
}

fn of(origin: &Origin, id: AlternateId) -> usize {
    crate::views::read::load_lookup(&origin.conn, origin.tenant("demo").no, id)
        .unwrap()
        .map_or(0, |lookup| lookup.visitors.len())
}

#[test]
fn a_page_with_ever_new_ids_has_a_bounded_cost() {
    let each = |ids: u32| {
        let mut origin = Origin::new();
        let seen = |origin: &Origin, n: u32| {
            alias(visitor(1), n, NOW + u64::from(n), origin.id("demo", KindCode(2), &format!("p{n}")))
        };
        let facts: Vec<Fact> = (1..=ids).map(|n| seen(&origin, n)).collect();
        facts.chunks(5_000).for_each(|some| drop(origin.send("demo", some)));
        let next = seen(&origin, ids + 1);
        let cost = cost(&mut origin, |origin| drop(origin.send("demo", &[next])));
        let lookups = origin.conn.query_row("SELECT count(*) FROM lookups", [], |row| row.get::<_, u32>(0)).unwrap();
        assert!(lookups as usize <= limits::VISITOR_IDS, "{lookups}");
        // A login is stored, whatever came before it.
        let login = origin.login(visitor(1), ids + 2, NOW + 99_999, "ann");
        origin.send("demo", &[login, origin.login(visitor(2), 1, NOW, "ann")]);
        assert_eq!(origin.person("demo", visitor(1)).devices, 2);
        (cost, origin.metrics.ids_over.get())
    };
    let most = u32::try_from(limits::VISITOR_IDS).unwrap();
    let ((few, last), (many, over)) = (each(most), each(20 * most));
    assert_eq!((last, over), (1, u64::from(19 * most) + 1));
    assert!(many.0 <= 2 * few.0, "{many:?} compared with {few:?}");
}

#[test]
fn a_visitor_tied_below_full_weight_is_no_representative() {
    let mut origin = Origin::of_threshold(2, 0.5);
    let tie = |v: u32, n, id, weight| {
        fact(
            visitor(v),
            n,
            NOW + u64::from(n),
            FactKind::Evidence { id, also: Vec::new(), weight: EvidenceWeight(weight), source: EvidenceSource::Match },
        )
    };
    origin.send("demo", &[origin.login(visitor(1), 1, NOW, "shop"), origin.login(visitor(2), 1, NOW, "shop")]);
    origin.send("demo", &[page(visitor(3), 1, NOW), origin.login(visitor(5), 1, NOW, "other")]);
    let (shop, household) = (origin.member("demo", "shop"), origin.id("demo", KindCode(2), "household"));
    origin.admin("demo", &[tie(3, 2, shop, 600)]);
    origin.send("demo", &[3, 4].map(|v| alias(visitor(v), 3, NOW, household)));
    assert_eq!(origin.person("demo", visitor(4)).devices, 4);
    // Another visitor logs in, and stronger evidence takes away the one that was seen with the id last.
    let pair = AlternateId::pair(visitor(4), visitor(5));
    let login = origin.login(visitor(6), 4, NOW, "shop");
    origin.admin("demo", &[tie(4, 5, pair, 900), tie(5, 5, pair, 900), login]);
    is_right(&origin);
    assert_eq!([6, 5].map(|v| origin.person("demo", visitor(v)).devices), [3, 3]);
}

#[test]
fn visitors_that_withdraw_at_once_leave_a_chain_over_the_bound() {
    // Eleven households, each with a visitor in common with the next.
    let chain = |origin: &Origin| -> Vec<Fact> {
        let of = |n: u32| {
            let id = origin.id("demo", KindCode(2), &format!("household {n}"));
            (0..=limits::GROUP_LIMIT - 100)
                .map(move |v| alias(visitor(1 + n * (limits::GROUP_LIMIT - 100) + v), n, NOW, id))
        };
        (0..12).flat_map(of).collect()
    };
    let leave = |v: u32, how: u32| match how {
        0 => crate::testing::withdrawal(visitor(v), NOW + 9),
        _ => crate::privacy::erasure_request::ErasureTarget::Visitor(visitor(v)).fact(
            ErasureScope::Visitor,
            NOW + 9,
            [0; 16],
        ),
    };
    let mut origin = Origin::new();
    // The last visitors arrive one by one, so that all earlier ones are one person.
    let mut facts = chain(&origin);
    let far = facts.split_off(facts.len() - 2_000);
    origin.admin("demo", &facts);
    far.chunks(500).for_each(|facts| origin.admin("demo", facts));
    assert!(origin.metrics.people_too_large.get() > 0, "it is too long");
    let largest = origin.conn.query_row("SELECT max(devices) FROM people", [], |row| row.get::<_, u32>(0)).unwrap();
    assert!(
        largest <= u32::try_from(limits::AROUND_VISITORS).unwrap(),
        "{largest} were joined before it was seen how many there are"
    );
    for how in [0, 1] {
        origin.now += 10;
        let gone = [40, 1_200, 2_400, 50].map(|v| v + how);
        origin.admin("demo", &gone.map(|v| leave(v, how)));
        assert_eq!(gone.map(|v| origin.person("demo", visitor(v)).devices), [1; 4]);
        assert!(origin.person("demo", visitor(60)).devices > limits::GROUP_LIMIT);
    }
}

#[test]
fn the_neighbourhood_of_thousands_of_erased_visitors_is_read_once() {
    let mut origin = Origin::new();
    let visitors = u32::try_from(limits::AROUND_VISITORS).unwrap() + 60;
    let logins: Vec<Fact> = (1..=visitors).map(|v| origin.login(visitor(v), v, NOW, "shop")).collect();
    logins.chunks(5_000).for_each(|logins| origin.admin("demo", logins));
    let shop = origin.member("demo", "shop");
    let before = origin.metrics.people_too_large.get();
    let erasure = crate::privacy::erasure_request::ErasureTarget::Id(shop.kind, vec![shop.hash]).fact(
        ErasureScope::Visitor,
        NOW + 10,
        [7; 16],
    );
    origin.now = NOW + 20;
    origin.admin("demo", &[erasure]);
    assert!(origin.metrics.people_too_large.get() - before <= 1, "each way around takes as long as all do together");
    assert!([1, 2, visitors / 2, visitors].iter().all(|v| origin.row("demo", visitor(*v)).withdrawn.is_some()));
    assert_eq!(origin.person("demo", visitor(visitors)).devices, 1);
}

#[test]
fn thousands_of_claims_without_proof_cost_the_proven_member_nothing() {
    let each = |claims: u32| {
        let mut origin = Origin::new();
        let logins = [1, 2].map(|v| origin.login(visitor(v), v, NOW, "ann"));
        origin.send("demo", &logins);
        let claim = |origin: &Origin, v| {
            let id = origin.member("demo", "ann");
            fact(visitor(v), 1, NOW + 5, FactKind::Alias { id, also: Vec::new(), proven: false })
        };
        let claims: Vec<Fact> = (0..claims).map(|v| claim(&origin, 100 + v)).collect();
        claims.chunks(1_000).for_each(|claims| origin.admin("demo", claims));
        origin.settle(&mut BTreeMap::new());
        let one = cost(&mut origin, |origin| drop(origin.send("demo", &[claim(origin, 50)])));
        let login =
            cost(&mut origin, |origin| drop(origin.send("demo", &[origin.login(visitor(60), 1, NOW + 7, "ann")])));
        assert_eq!(origin.person("demo", visitor(60)).devices, 3);
        assert_eq!(of(&origin, origin.member("demo", "ann")), 3);
        is_right(&origin);
        [one, login]
    };
    for ((what, few), many) in ["claim", "login"].into_iter().zip(each(10)).zip(each(3_000)) {
        assert!(many.0 <= 2 * few.0 + STEP && many.1 <= few.1 + 4, "{what}: {few:?}, then {many:?}");
    }
}

#[test]
fn every_snapshot_of_two_large_people_is_written_while_visitors_keep_leaving() {
    let (mut origin, mut kv) = origin(MANY);
    let others: Vec<Fact> = (1..=MANY).map(|v| origin.login(visitor(10 * v + 5), v, NOW, "other")).collect();
    origin.send("demo", &others);
    origin.settle(&mut kv);
    let ids = ["shop", "other"].map(|name| origin.member("demo", name));
    let before = number(&origin, "SELECT max(published) FROM visitors");
    let old = |origin: &Origin| number(origin, &format!("SELECT count(*) FROM visitors WHERE published <= {before}"));
    let mut left = 0;
    let mut written = 0;
    while old(&origin) > 0 {
        left += 1;
        assert!(left < 60, "{} are left after {written} writes", old(&origin));
        let leaves = |(id, offset): (AlternateId, u32)| {
            fact(visitor(10 * left + offset), 9_000, NOW + 2, FactKind::Cancellation { id })
        };
        origin.admin("demo", &ids.into_iter().zip([0, 5]).map(leaves).collect::<Vec<_>>());
        for _ in 0..4 {
            origin.now += 1_000;
            let writes = origin.drain(100);
            written += writes.len();
            origin.acknowledge(&writes);
        }
    }
    // No further visitor leaves, so the sweeps end.
    for calls in 0.. {
        assert!(calls < 100);
        if origin.drain(100).is_empty() && number(&origin, "SELECT count(*) FROM sweeps") == 0 {
            break;
        }
        origin.now += 1_000;
    }
}

#[test]
fn many_visitors_that_leave_at_once_are_cut_in_one_update() {
    let leave = |many: u32| {
        let (mut origin, _) = origin(1_500);
        let all: Vec<Fact> = (1..=many).map(|v| crate::testing::withdrawal(visitor(10 * v), NOW + 9)).collect();
        cost(&mut origin, |origin| origin.admin("demo", &all)).1
    };
    let (one, many) = (leave(1), leave(100));
    assert!(many < one + 100 * (2 * limits::CUTS as u64 + 50), "{one} rows, then {many}");
}
