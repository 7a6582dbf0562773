#![expect(clippy::unwrap_used, reason = "tests")]

use crate::erasures::registry::{erasure_progress, id_erased, in_log, left_log};
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::pipeline::commit;
use crate::store::journal_error::JournalError;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_shared::facts::actions::InsertionHash;
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::ErasureScope;
use causeway_shared::profiles::profile::ProfileTotals;
use causeway_shared::profiles::view::StoredValue;

use super::*;
use crate::store::write_txn::TxnInputs;
use crate::testing::{
    NOW, Origin, alias, exposure, fact, impression, page, purchase, snapshot, stored, visitor, withdrawal,
};
use crate::views::read::{self, StoreView};

type Kv = BTreeMap<String, String>;

fn of_visitor(v: u32, scope: ErasureScope, at: Millis) -> Fact {
    let what = FactKind::Erasure { scope, id: None, also: Vec::new() };
    Fact { id: FactId::of_erasure(visitor(v)), ..fact(visitor(v), 0, at, what) }
}

fn of_member(origin: &Origin, member: &str, at: Millis) -> Fact {
    let id = origin.member("demo", member);
    ErasureTarget::Id(id.kind, vec![id.hash]).fact(ErasureScope::Visitor, at, [7; 16])
}

/// Three browsers of one member, with a page and a purchase each.
fn person(origin: &mut Origin, kv: &mut Kv) {
    for v in 1..=3 {
        let facts = [
            page(visitor(v), 1, NOW),
            purchase(visitor(v), 2, NOW, 5),
            impression(visitor(v), 3, NOW),
            exposure(visitor(v), 5, NOW, 1, 2),
            fact(visitor(v), 6, NOW, FactKind::OfferCode { campaign: 1, number: v }),
            origin.login(visitor(v), 4, NOW, "ann"),
        ];
        origin.send("demo", &facts);
    }
    origin.settle(kv);
}

/// Number of rows of the store that name a visitor, by table.
fn traces(origin: &Origin, v: u32) -> Vec<(&'static str, i64)> {
    let row = "(SELECT row FROM visitors WHERE visitor = ?1)";
    let counts = [
        ("evidence", "SELECT count(*) FROM evidence WHERE visitor = ?1".to_owned()),
        ("cancellations", "SELECT count(*) FROM cancellations WHERE visitor = ?1".to_owned()),
        ("fact_ids", format!("SELECT count(*) FROM fact_ids WHERE visitor = {row}")),
        ("fact_ids_over", format!("SELECT count(*) FROM fact_ids_over WHERE visitor = {row}")),
        ("actions", format!("SELECT count(*) FROM actions WHERE place >> 32 = {row}")),
        ("exposures", format!("SELECT count(*) FROM exposures WHERE visitor = {row}")),
        ("offer_codes", format!("SELECT count(*) FROM offer_codes WHERE visitor = {row}")),
        ("conversions", format!("SELECT count(*) FROM conversions WHERE visitor = {row}")),
        (
            "experiment_people",
            "SELECT count(*) FROM experiment_people JOIN visitors USING (person)
            WHERE visitor = ?1"
                .to_owned(),
        ),
        ("lookups", "SELECT count(*) FROM lookups WHERE instr(visitors, ?1) > 0".to_owned()),
        (
            "parts",
            "SELECT count(*) FROM visitors WHERE visitor = ?1 AND (last_seen > 0 OR actions > 0
            OR length(segments) > 0 OR length(attributes) > 0 OR length(events) > 0)"
                .to_owned(),
        ),
    ];
    let count = |sql: &str| origin.conn.query_row(sql, [visitor(v).as_bytes()], |row| row.get(0)).unwrap();
    counts.into_iter().map(|(table, sql)| (table, count(&sql))).filter(|(_, n)| *n > 0).collect()
}

fn assert_gone(origin: &Origin, kv: &Kv, v: u32) {
    assert_eq!(traces(origin, v), []);
    assert_eq!(origin.profile("demo", visitor(v)).totals(), ProfileTotals::default());
    assert_eq!(stored(kv, visitor(v)), StoredValue::Tombstone);
    assert!(is_erased(&origin.conn, origin.tenant("demo").no, visitor(v)).unwrap());
}

const GIVEN: TxnInputs = TxnInputs { now: NOW, random: [9; 32] };

#[test]
fn an_erased_visitor_leaves_nothing_but_its_tombstone_and_no_sibling_shows_it() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    person(&mut origin, &mut kv);
    let before = snapshot(&kv, visitor(1)).membership.epoch;
    let now = origin.now;
    assert_eq!(origin.send("demo", &[of_visitor(2, ErasureScope::Visitor, now)]).accepted, 1);
    origin.settle(&mut kv);
    assert_gone(&origin, &kv, 2);
    for v in [1, 3] {
        let snapshot = snapshot(&kv, visitor(v));
        assert!(!snapshot.profiles.contains_key(&visitor(2)));
        assert!(snapshot.membership.cuts[&visitor(2)].gone);
        assert!(snapshot.membership.epoch > before);
        assert_eq!(origin.view("demo", visitor(v)).purchases, 2);
    }
    assert_eq!(origin.lookup("demo", "ann"), [visitor(1), visitor(3)]);
}

#[test]
fn facts_of_an_erased_visitor_are_refused_in_any_order() {
    for order in 0..6 {
        let (mut origin, mut kv) = (Origin::new(), Kv::new());
        let erasure = of_visitor(1, ErasureScope::Visitor, NOW);
        let login = origin.login(visitor(1), 2, NOW - 5, "ann");
        let late = [page(visitor(1), 1, NOW - 5), login, impression(visitor(1), 3, NOW + 5)];
        let other = [origin.login(visitor(2), 1, NOW - 9, "ann"), page(visitor(2), 2, NOW)];
        origin.send("demo", &other);
        match order {
            0 => drop([late.to_vec(), vec![erasure]].map(|facts| origin.send("demo", &facts))),
            1 => drop([vec![erasure], late.to_vec()].map(|facts| origin.send("demo", &facts))),
            2 => drop(origin.send("demo", &[late.to_vec(), vec![erasure]].concat())),
            3 => drop(origin.send("demo", &[vec![erasure], late.to_vec()].concat())),
            4 => {
                origin.send("demo", &[withdrawal(visitor(1), NOW)]);
                origin.send("demo", &late);
                origin.send("demo", &[erasure]);
            }
            _ => drop([vec![erasure.clone()], vec![erasure], late.to_vec()].map(|facts| origin.send("demo", &facts))),
        }
        origin.settle(&mut kv);
        assert_gone(&origin, &kv, 1);
        assert_eq!(origin.send("demo", &late).accepted, 0, "order {order}");
        assert_eq!(origin.person("demo", visitor(2)).members, [visitor(2)]);
        assert_eq!(origin.lookup("demo", "ann"), [visitor(2)]);
    }
}

#[test]
fn a_person_is_erased_as_a_whole_and_the_member_may_return_as_a_new_person() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    person(&mut origin, &mut kv);
    let at = origin.now;
    origin.send("demo", &[page(visitor(9), 1, NOW), of_visitor(2, ErasureScope::Person, at)]);
    origin.settle(&mut kv);
    (1..=3).for_each(|v| assert_gone(&origin, &kv, v));
    assert_eq!(origin.lookup("demo", "ann"), []);
    // A late login from before the erasure erases its visitor too, with all of its data.
    let (before, after) = (origin.login(visitor(4), 2, at, "ann"), origin.login(visitor(5), 2, at + 1, "ann"));
    origin.send("demo", &[page(visitor(4), 1, at), before]);
    origin.send("demo", &[page(visitor(5), 1, at + 1), after]);
    origin.settle(&mut kv);
    assert_gone(&origin, &kv, 4);
    assert_eq!(origin.view("demo", visitor(5)), ProfileTotals { pages: 1, sessions: 1, ..ProfileTotals::default() });
    assert_eq!(origin.lookup("demo", "ann"), [visitor(5)]);
    assert_eq!(origin.row("demo", visitor(9)).withdrawn, None);
}

#[test]
fn erasing_an_alternate_id_takes_visitors_seen_with_it_before_and_no_others() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    let ann = origin.member("demo", "ann");
    let claimed = FactKind::Alias { id: ann, also: Vec::new(), proven: false };
    let facts = [
        origin.login(visitor(1), 1, NOW, "ann"),
        origin.login(visitor(2), 1, NOW + 20, "ann"),
        fact(visitor(3), 1, NOW, claimed),
        origin.login(visitor(4), 1, NOW, "ann"),
        origin.login(visitor(5), 1, NOW, "bert"),
    ];
    origin.send("demo", &facts);
    origin.admin("demo", &[fact(visitor(4), 2, NOW + 1, FactKind::Cancellation { id: ann })]);
    let erasure = of_member(&origin, "ann", NOW + 10);
    let reached = erasure_reach(
        &origin.conn,
        origin.tenant("demo"),
        &ErasureTarget::Id(ann.kind, vec![ann.hash]),
        ErasureScope::Visitor,
        NOW + 10,
    );
    assert_eq!(reached.unwrap().into_iter().collect::<Vec<_>>(), [visitor(1)]);
    origin.admin("demo", std::slice::from_ref(&erasure));
    origin.settle(&mut kv);
    assert_gone(&origin, &kv, 1);
    for v in 2..=5 {
        assert_eq!(origin.row("demo", visitor(v)).withdrawn, None, "{v}");
    }
    let progress =
        crate::testing::as_json(erasure_progress(&origin.conn, origin.tenant("demo").no, erasure.id).unwrap().unwrap());
    assert_eq!(progress["requested_ms"], NOW + 10);
    assert_eq!(progress["keys"]["all"], progress["keys"]["written"]);
}

#[test]
fn a_household_s_id_does_not_take_the_others_of_the_house_along() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    let home = origin.id("demo", KindCode(2), "home");
    let facts = [
        origin.login(visitor(1), 1, NOW, "ann"),
        origin.login(visitor(2), 1, NOW, "bert"),
        alias(visitor(1), 2, NOW, home),
        alias(visitor(2), 2, NOW, home),
    ];
    origin.send("demo", &facts);
    let at = origin.now;
    origin.send("demo", &[of_visitor(1, ErasureScope::Person, at)]);
    origin.settle(&mut kv);
    assert_gone(&origin, &kv, 1);
    assert_eq!(origin.row("demo", visitor(2)).withdrawn, None);
}

#[test]
fn a_receipt_is_done_once_every_key_that_named_the_visitor_was_written() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    person(&mut origin, &mut kv);
    // Keys that were handed out before the erasure hold values from before it.
    origin.send("demo", &[page(visitor(2), 9, NOW + 1)]);
    let under_way = origin.drain(100);
    assert!(!under_way.is_empty());
    let erasure = of_visitor(2, ErasureScope::Visitor, NOW);
    let tenant = origin.tenant("demo").no;
    origin.send("demo", std::slice::from_ref(&erasure));
    let said = |origin: &Origin| {
        let said = crate::testing::as_json(erasure_progress(&origin.conn, tenant, erasure.id).unwrap().unwrap());
        (said["keys"]["all"].as_u64().unwrap(), said["keys"]["written"].as_u64().unwrap(), !said["done_ms"].is_null())
    };
    // Three snapshots and the lookup.
    assert_eq!(said(&origin), (4, 0, false));
    origin.acknowledge(&under_way);
    assert_eq!(said(&origin), (4, 0, false), "a value from before the erasure proves nothing");
    origin.now += 120_000;
    let writes = origin.drain(100);
    assert_eq!(writes.len(), 4);
    origin.acknowledge(&writes[..3]);
    assert_eq!(said(&origin), (4, 3, false));
    origin.acknowledge(&writes[3..]);
    assert_eq!(said(&origin), (4, 4, true));
    assert_eq!(erasure_progress(&origin.conn, tenant, FactId::from_bytes([1; 16])).unwrap(), None);
    // A repetition does not change the receipt.
    assert_eq!(origin.send("demo", std::slice::from_ref(&erasure)).accepted, 0);
    assert_eq!(said(&origin), (4, 4, true));
}

#[test]
fn keys_of_an_erasure_are_written_after_its_tenant_is_configured_again() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    person(&mut origin, &mut kv);
    let erasure = of_visitor(2, ErasureScope::Visitor, NOW);
    origin.send("demo", std::slice::from_ref(&erasure));
    let tenant = origin.tenant("demo").no;
    origin.start_with(&["other"]);
    origin.settle(&mut kv);
    // An earlier release deleted these rows.
    origin.conn.execute("DELETE FROM outbox", []).unwrap();
    let written = |origin: &Origin| {
        crate::testing::as_json(erasure_progress(&origin.conn, tenant, erasure.id).unwrap().unwrap())["keys"]["written"]
            .clone()
    };
    assert_eq!(written(&origin), 0, "no consumer writes them");
    origin.start_with(&["demo", "other"]);
    origin.settle(&mut kv);
    assert_gone(&origin, &kv, 2);
    assert_eq!(written(&origin), 0, "what was handed out before may still be written");
    origin.now += crate::outbox::queue::LATE_MS;
    origin.settle(&mut kv);
    assert_eq!(written(&origin), 4);
}

#[test]
fn hashes_that_turn_out_to_be_of_an_erased_id_take_their_earlier_visitors_along() {
    let (one, two) = (AltHash([1; 16]), AltHash([2; 16]));
    let seen = |v: u32, at, hash, also: &[AltHash]| {
        let id = AlternateId { kind: KindCode(1), hash };
        fact(visitor(v), 1, at, FactKind::Alias { id, also: also.to_vec(), proven: true })
    };
    for (erased, other) in [(one, two), (two, one)] {
        let (mut origin, mut kv) = (Origin::new(), Kv::new());
        origin.send("demo", &[seen(1, NOW, other, &[]), seen(2, NOW + 20, other, &[])]);
        let erasure = ErasureTarget::Id(KindCode(1), vec![erased]).fact(ErasureScope::Visitor, NOW + 10, [7; 16]);
        origin.admin("demo", &[erasure]);
        assert_eq!(origin.row("demo", visitor(1)).withdrawn, None);
        origin.send("demo", &[seen(3, NOW + 30, erased, &[other])]);
        origin.settle(&mut kv);
        assert_gone(&origin, &kv, 1);
        assert_eq!(origin.person("demo", visitor(3)).members, [visitor(2), visitor(3)]);
    }
}

#[test]
fn the_log_is_waited_for() {
    let mut origin = Origin::new();
    let facts = vec![CheckedFact { tenant: origin.tenant("demo").no, fact: of_visitor(1, ErasureScope::Visitor, NOW) }];
    let record = Arc::new(LogRecord { seq: 7, ..LogRecord::of(facts) });
    commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, GIVEN, &[record], &[]).unwrap();
    let log = |origin: &Origin| {
        let receipt = FactId::of_erasure(visitor(1));
        crate::testing::as_json(erasure_progress(&origin.conn, origin.tenant("demo").no, receipt).unwrap().unwrap())["log_ms"].clone()
    };
    left_log(&origin.conn, 6, NOW + 1).unwrap();
    assert!(log(&origin).is_null());
    left_log(&origin.conn, 7, NOW + 2).unwrap();
    assert_eq!(log(&origin), NOW + 2);
}

#[test]
fn a_store_older_than_the_erasure_learns_of_it_from_the_journal() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    // Two visitors are not linked yet at the time of the backup.
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = [1, 2].map(|v| origin.login(visitor(v), 2, NOW, "ann"));
    origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW), first]);
    origin.copy_to(folder.path());
    origin.send("demo", &[second, of_visitor(1, ErasureScope::Person, NOW)]);
    assert_eq!(origin.erasures(), 3, "two visitors and the member");
    assert_eq!(origin.replay(GIVEN).unwrap(), 0);

    // The backup replaces the store; the journal stays.
    let mut old = Origin::within(folder);
    old.rules.journal = std::mem::replace(&mut origin.rules.journal, old.rules.journal);
    assert_eq!(old.profile("demo", visitor(2)).totals().pages, 1);
    assert_eq!(old.replay(GIVEN).unwrap(), 3);
    assert_eq!(old.replay(GIVEN).unwrap(), 0);
    old.settle(&mut kv);
    (1..=2).for_each(|v| assert_gone(&old, &kv, v));
    let again = [page(visitor(1), 1, NOW), page(visitor(2), 5, NOW)];
    assert_eq!(old.send("demo", &again).accepted, 0);
    let late = old.rules.tenants.by_name("demo").unwrap().no;
    let id = origin.member("demo", "ann");
    assert!(id_erased(&old.conn, late, id.kind, [id.hash]).unwrap().is_some());
    // A lost journal is completed from the store.
    let empty = tempfile::tempdir().unwrap();
    old.rules.journal = ErasureJournal::open(empty.path()).unwrap();
    assert_eq!(old.replay(GIVEN).unwrap(), 0);
    assert_eq!(old.erasures(), 3);
}

#[test]
fn a_restored_store_erases_no_visitor_that_the_erasure_spared() {
    let mut origin = Origin::new();
    let folder = tempfile::tempdir().unwrap();
    let logins = [1, 2].map(|v| origin.login(visitor(v), 2, NOW, "ann"));
    origin.send("demo", &[&[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)], &logins[..]].concat());
    origin.copy_to(folder.path());
    // The second browser was never hers; only the lost store knows it.
    let id = origin.member("demo", "ann");
    origin.admin("demo", &[fact(visitor(2), 5, NOW + 1, FactKind::Cancellation { id })]);
    let erasure = of_member(&origin, "ann", NOW + 2);
    origin.admin("demo", &[erasure]);
    let gone = |origin: &Origin| [1, 2].map(|v| is_erased(&origin.conn, origin.tenant("demo").no, visitor(v)).unwrap());
    assert_eq!(gone(&origin), [true, false]);
    let mut old = Origin::within(folder);
    old.rules.journal = std::mem::replace(&mut origin.rules.journal, old.rules.journal);
    assert_eq!(old.replay(GIVEN).unwrap(), 2);
    assert_eq!(gone(&old), [true, false]);
    assert_eq!(old.profile("demo", visitor(2)).totals().pages, 1);
    let no = old.tenant("demo").no;
    assert!(id_erased(&old.conn, no, id.kind, [id.hash]).unwrap().is_some());
    assert_eq!(old.replay(GIVEN).unwrap(), 0);
}

/// Appends a fact of the admin API to the log without folding it.
fn append(origin: &Origin, fact: &Fact) {
    let facts = vec![origin.batch("demo", std::slice::from_ref(fact))];
    let request = causeway_shared::wire::sync::SyncRequest { facts, ..Default::default() };
    let incoming = crate::ingest::intake::read_admins(request, &origin.rules.tenants, NOW + 2);
    crate::ingest::log::FactLog::open(origin.data(), 0).unwrap().append(&[incoming], 0).unwrap();
}

#[test]
fn a_folded_erasure_in_the_old_log_takes_no_visitor_that_it_spared() {
    let mut origin = Origin::new();
    let folder = tempfile::tempdir().unwrap();
    let logins = [1, 2].map(|v| origin.login(visitor(v), 2, NOW, "ann"));
    origin.send("demo", &logins);
    origin.copy_to(folder.path());
    let id = origin.member("demo", "ann");
    origin.admin("demo", &[fact(visitor(2), 5, NOW + 1, FactKind::Cancellation { id })]);
    let erasure = of_member(&origin, "ann", NOW + 2);
    // Appended and folded, but not deleted from the log when the origin ends.
    append(&origin, &erasure);
    origin.admin("demo", &[erasure]);
    keep_unfolded(origin.data(), 1).unwrap();
    let mut old = Origin::within(folder);
    old.rules.journal = std::mem::replace(&mut origin.rules.journal, old.rules.journal);
    old.replay(GIVEN).unwrap();
    let no = old.tenant("demo").no;
    assert_eq!([1, 2].map(|v| is_erased(&old.conn, no, visitor(v)).unwrap()), [true, false]);
}

#[test]
fn an_erasure_in_the_old_log_alone_reaches_the_visitors_of_the_restored_store() {
    let mut origin = Origin::new();
    let folder = tempfile::tempdir().unwrap();
    let logins = [1, 2].map(|v| origin.login(visitor(v), 2, NOW, "ann"));
    origin.send("demo", &logins);
    origin.copy_to(folder.path());
    let erasure = of_member(&origin, "ann", NOW + 2);
    append(&origin, &erasure);
    keep_unfolded(origin.data(), 0).unwrap();
    let mut old = Origin::within(folder);
    old.rules.journal = std::mem::replace(&mut origin.rules.journal, old.rules.journal);
    assert_eq!(old.replay(GIVEN).unwrap(), 1);
    let no = old.tenant("demo").no;
    assert_eq!([1, 2].map(|v| is_erased(&old.conn, no, visitor(v)).unwrap()), [true; 2]);
    assert_eq!(old.replay(GIVEN).unwrap(), 0);
}

#[test]
fn a_journal_that_cannot_be_read_is_no_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(crate::store::data_fault::JOURNAL);
    std::fs::write(&path, vec![0x55; 9_000]).unwrap();
    assert!(matches!(ErasureJournal::open(folder.path()), Err(JournalError { .. })));
    std::fs::remove_file(&path).unwrap();
    ErasureJournal::open(folder.path()).unwrap();
    Connection::open(&path).unwrap().execute("INSERT INTO erasures VALUES ('demo', x'00')", []).unwrap();
    assert!(matches!(ErasureJournal::open(folder.path()), Err(JournalError { .. })));
}

#[test]
fn each_start_commits_to_the_journal_once() {
    let folder = tempfile::tempdir().unwrap();
    // SQLite's file change counter.
    let commits = || {
        ErasureJournal::open(folder.path()).unwrap();
        u32::from_be_bytes(
            std::fs::read(folder.path().join(crate::store::data_fault::JOURNAL)).unwrap()[24..28].try_into().unwrap(),
        )
    };
    let first = commits();
    assert_eq!(commits(), first + 1);
}

#[test]
fn what_waits_to_be_folded_of_who_is_to_be_erased_is_not_shown() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW), impression(visitor(1), 2, NOW)]);
    let tenant = origin.tenant("demo").no;
    let backlog = crate::ingest::backlog::Backlog::default();
    let waiting = [page(visitor(1), 3, NOW), of_visitor(1, ErasureScope::Visitor, NOW), page(visitor(1), 4, NOW)];
    let facts = waiting.into_iter().map(|fact| CheckedFact { tenant, fact }).collect();
    let record = LogRecord { seq: 1, ..LogRecord::of(facts) };
    let shown = |origin: &Origin, backlog: &crate::ingest::backlog::Backlog| {
        let reader = backlog.reader();
        let view = StoreView::with_backlog(&origin.conn, &reader).unwrap();
        let found = read::load_visitor(&view, tenant, visitor(1)).unwrap().unwrap();
        let actions = read::whole(&view, &found, causeway_shared::base::time::Day(0)).unwrap();
        let actions: Vec<InsertionHash> = actions.actions().iter().map(|action| action.insertion).collect();
        (found.profile.totals().pages, actions.len(), found.withdrawn.is_some())
    };
    assert_eq!(shown(&origin, &backlog), (1, 1, false));
    backlog.push(record.clone());
    assert_eq!(shown(&origin, &backlog), (0, 0, true));
    let done = commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, GIVEN, &[Arc::new(record)], &[])
        .unwrap();
    assert_eq!(done.erased, 0, "what came with the erasure is folded, and goes with the rest");
    backlog.fold_to(1);
    let late = LogRecord { seq: 2, ..LogRecord::of(vec![CheckedFact { tenant, fact: page(visitor(1), 5, NOW) }]) };
    backlog.push(late.clone());
    assert_eq!(shown(&origin, &backlog), (0, 0, true));
    let done =
        commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, GIVEN, &[Arc::new(late)], &[]).unwrap();
    assert_eq!((done.erased, done.new), (1, vec![0]));
}

#[test]
fn a_member_that_shared_a_browser_erases_no_other_member() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    person(&mut origin, &mut kv);
    // Bert proved to be at one of Ann's browsers after her, and has one of his own.
    let bert = [origin.login(visitor(1), 9, NOW + 1, "bert"), origin.login(visitor(7), 1, NOW + 2, "bert")];
    origin.send("demo", &bert);
    origin.settle(&mut kv);
    let id = origin.member("demo", "bert");
    let erasure = ErasureTarget::Id(id.kind, vec![id.hash]).fact(ErasureScope::Person, origin.now, [8; 16]);
    let record = LogRecord::of(vec![CheckedFact { tenant: origin.tenant("demo").no, fact: erasure }]);
    let given = origin.given();
    commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, given, &[Arc::new(record)], &[]).unwrap();
    origin.settle(&mut kv);
    assert_gone(&origin, &kv, 7);
    assert_eq!(origin.person("demo", visitor(1)).members, (1..=3).map(visitor).collect::<Vec<_>>());
    assert_eq!(origin.profile("demo", visitor(1)).totals().pages, 1);
}

#[test]
fn a_late_first_login_of_an_erased_member_takes_the_browser_from_the_next_member() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    let (first, second) = (origin.login(visitor(1), 1, NOW - 9, "ann"), origin.login(visitor(1), 2, NOW - 5, "bob"));
    origin.send("demo", &[second, page(visitor(1), 3, NOW - 5)]);
    let erasure = of_member(&origin, "ann", NOW);
    origin.admin("demo", &[erasure]);
    origin.settle(&mut kv);
    assert_eq!(origin.lookup("demo", "bob"), [visitor(1)]);
    origin.send("demo", &[first]);
    origin.settle(&mut kv);
    assert_gone(&origin, &kv, 1);
}

#[test]
fn the_id_of_a_pair_is_erased_with_either_visitor() {
    let mut origin = Origin::new();
    origin.send("demo", &[1, 2, 3].map(|v| page(visitor(v), 1, NOW)));
    let what =
        |id| FactKind::Evidence { id, also: Vec::new(), weight: EvidenceWeight::UNSURE, source: EvidenceSource::Match };
    for (a, b) in [(1, 2), (2, 3)] {
        let id = AlternateId::pair(visitor(a), visitor(b));
        origin.admin("demo", &[a, b].map(|v| fact(visitor(v), 10 + a, NOW, what(id))));
        origin.admin("demo", &[a, b].map(|v| fact(visitor(v), 20 + a, NOW + 1, FactKind::Cancellation { id })));
    }
    origin.admin("demo", &[of_visitor(1, ErasureScope::Visitor, NOW + 9)]);
    for table in ["evidence", "cancellations"] {
        let read = format!("SELECT count(*) FROM {table} WHERE hash = ?1");
        let left = |a, b| {
            let id = AlternateId::pair(visitor(a), visitor(b));
            origin.conn.query_row(&read, [&id.hash.0], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!((left(1, 2), left(2, 3)), (0, 2), "{table}");
    }
}

/// Whether the store's file contains these bytes.
fn holds(origin: &Origin, said: &[u8]) -> bool {
    origin.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let file = std::fs::read(crate::store::store_file(origin.data())).unwrap();
    file.windows(said.len()).any(|bytes| bytes == said)
}

#[test]
fn what_a_lookup_said_is_overwritten_in_the_file() {
    let mut origin = Origin::new();
    let logins: Vec<_> = (1..=3).map(|v| origin.login(visitor(v), 1, NOW, "ann")).collect();
    origin.send("demo", &logins);
    let first = *origin.lookup("demo", "ann")[0].as_bytes();
    let said = [origin.member("demo", "ann").hash.0.as_slice(), &first].concat();
    assert!(holds(&origin, &said));
    origin.send("demo", &[of_visitor(1, ErasureScope::Person, NOW)]);
    origin.settle(&mut Kv::new());
    assert!(!holds(&origin, &said));
}

#[test]
fn what_a_visitor_once_said_is_overwritten_in_the_file_too() {
    let mut origin = Origin::new();
    let said = |n: u32, at: Millis, text: &str| {
        let value = causeway_shared::facts::attributes::AttributeValue::String(text.to_owned());
        let writes = (0..40).map(|name| (format!("name{name}"), Some(value.clone()))).collect();
        fact(visitor(1), n, at, FactKind::Attributes { writes })
    };
    // First longer than a page together, then shorter: deleted bytes come from updates too, not only from erasures.
    let earlier = "earlier-words-".repeat(16);
    origin.send("demo", &[said(1, NOW, &earlier), page(visitor(2), 1, NOW)]);
    assert!(holds(&origin, earlier.as_bytes()));
    origin.send("demo", &[said(2, NOW + 1, "short")]);
    origin.send("demo", &[of_visitor(1, ErasureScope::Visitor, NOW + 2)]);
    origin.settle(&mut Kv::new());
    assert!(!holds(&origin, b"earlier-words-"));
}

#[test]
fn a_report_of_a_job_names_nobody_who_is_erased() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    for v in [1, 2] {
        let report = json!({ "people": 2, "first": [{ "master": visitor(v).to_string(), "visitors": 1 }] });
        let row = (report.to_string(), NOW.cast_signed());
        let put =
            "INSERT INTO runs (job, trigger, dry_run, requested, report) VALUES ('reconcile', 'timer', 0, ?2, ?1)";
        origin.conn.execute(put, row).unwrap();
    }
    origin.send("demo", &[of_visitor(1, ErasureScope::Visitor, NOW)]);
    let read = "SELECT report FROM runs ORDER BY run";
    let mut statement = origin.conn.prepare(read).unwrap();
    let left: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(left[0], r#"{"people":2}"#);
    assert!(left[1].contains(&visitor(2).to_string()), "another's stays");
}

fn by_member(origin: &Origin, v: u32, member: &str, at: Millis) -> Fact {
    let what =
        FactKind::Erasure { scope: ErasureScope::Person, id: Some(origin.member("demo", member)), also: Vec::new() };
    Fact { id: FactId::of_erasure(visitor(v)), ..fact(visitor(v), 0, at, what) }
}

#[test]
fn what_is_not_sure_widens_no_erasure() {
    for by_admin in [false, true] {
        let mut origin = Origin::of_threshold(1_000, 0.8);
        let logins = [origin.login(visitor(1), 2, NOW, "ann"), origin.login(visitor(3), 2, NOW, "ann")];
        origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW), page(visitor(3), 1, NOW)]);
        origin.send("demo", &logins);
        let pair = AlternateId::pair(visitor(1), visitor(2));
        let household = |v: u32| {
            let what = FactKind::Evidence {
                id: pair,
                also: Vec::new(),
                weight: EvidenceWeight(900),
                source: EvidenceSource::Household,
            };
            fact(visitor(v), 10, NOW + 1, what)
        };
        origin.admin("demo", &[household(1), household(2)]);
        assert_eq!(origin.person("demo", visitor(2)).devices, 3);
        origin.now = NOW + 10;
        if by_admin {
            let ann = origin.member("demo", "ann");
            let whom = ErasureTarget::Id(ann.kind, vec![ann.hash]);
            let reached =
                erasure_reach(&origin.conn, origin.tenant("demo"), &whom, ErasureScope::Person, origin.now).unwrap();
            assert_eq!(reached, [visitor(1), visitor(3)].into());
            origin.admin("demo", &[whom.fact(ErasureScope::Person, origin.now, [9; 16])]);
        } else {
            let erasure = by_member(&origin, 1, "ann", NOW + 10);
            origin.send("demo", &[erasure]);
        }
        let gone = [1, 2, 3].map(|v| origin.row("demo", visitor(v)).withdrawn.is_some());
        assert_eq!(gone, [true, false, true], "the other browser of the house stays");
        assert_eq!(origin.profile("demo", visitor(2)).totals().pages, 1);
    }
}

#[test]
fn who_logs_in_after_an_erasure_is_not_erased_by_it_in_whatever_group_both_come() {
    for together in [false, true] {
        let mut origin = Origin::new();
        origin.send("demo", &[page(visitor(1), 1, NOW - 9_000), origin.login(visitor(1), 2, NOW - 9_000, "ann")]);
        let erasure = by_member(&origin, 1, "ann", NOW);
        let after = [page(visitor(2), 1, NOW + 1_000), origin.login(visitor(2), 2, NOW + 1_000, "ann")];
        origin.now = NOW + 2_000;
        if together {
            origin.send("demo", &[vec![erasure], after.to_vec()].concat());
        } else {
            origin.send("demo", &[erasure]);
            origin.send("demo", &after);
        }
        let gone = [1, 2].map(|v| origin.row("demo", visitor(v)).withdrawn.is_some());
        assert_eq!(gone, [true, false]);
    }
}

#[test]
fn an_erasure_by_an_id_reaches_whom_a_clock_that_runs_ahead_saw_with_it() {
    let mut origin = Origin::new();
    let ahead = NOW + 180_000;
    origin.send("demo", &[page(visitor(1), 1, ahead), origin.login(visitor(1), 2, ahead, "ann")]);
    origin.now = NOW + 60_000;
    let ann = origin.member("demo", "ann");
    let whom = ErasureTarget::Id(ann.kind, vec![ann.hash]);
    let at = |origin: &Origin, now| {
        erasure_moment(&origin.conn, origin.tenant("demo"), &whom, ErasureScope::Visitor, now).unwrap()
    };
    assert_eq!(at(&origin, origin.now), ahead);
    origin.admin("demo", &[whom.fact(ErasureScope::Visitor, ahead, [9; 16])]);
    assert!(origin.row("demo", visitor(1)).withdrawn.is_some());
    assert_eq!(at(&origin, NOW), NOW, "no visitor is seen with it now");
}

#[test]
fn an_erasure_of_a_person_reaches_whom_a_clock_that_runs_ahead_tied_to_it() {
    let mut origin = Origin::new();
    let ahead = NOW + 180_000;
    origin.send("demo", &[page(visitor(1), 1, NOW), origin.login(visitor(1), 2, NOW, "ann")]);
    origin.send("demo", &[page(visitor(2), 1, ahead), origin.login(visitor(2), 2, ahead, "ann")]);
    origin.now = NOW + 60_000;
    let whom = ErasureTarget::Visitor(visitor(1));
    let at = erasure_moment(&origin.conn, origin.tenant("demo"), &whom, ErasureScope::Person, origin.now).unwrap();
    assert_eq!(at, ahead);
    let reached = erasure_reach(&origin.conn, origin.tenant("demo"), &whom, ErasureScope::Person, at).unwrap();
    assert_eq!(reached, [visitor(1), visitor(2)].into());
    origin.admin("demo", &[whom.fact(ErasureScope::Person, at, [9; 16])]);
    assert!(origin.row("demo", visitor(2)).withdrawn.is_some());
}

#[test]
fn a_person_of_thousands_is_erased_by_one_walk() {
    let mut origin = Origin::new();
    let logins: Vec<Fact> = (1..=4_000).map(|v| origin.login(visitor(v), v, NOW, "shop")).collect();
    origin.admin("demo", &logins);
    let shop = origin.member("demo", "shop");
    let whom = ErasureTarget::Id(shop.kind, vec![shop.hash]);
    origin.now = NOW + 20;
    // SQLite calls back after each thousand steps of its machine; one walk takes some hundred steps per visitor.
    let steps = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&steps);
    let count = move || counted.fetch_add(1, Ordering::Relaxed) == u64::MAX;
    origin.conn.progress_handler(1_000, Some(count)).unwrap();
    let reached = erasure_reach(&origin.conn, origin.tenant("demo"), &whom, ErasureScope::Person, NOW + 20).unwrap();
    let walked = steps.swap(0, Ordering::Relaxed);
    origin.admin("demo", &[whom.fact(ErasureScope::Person, NOW + 20, [7; 16])]);
    let erased = steps.load(Ordering::Relaxed);
    assert!(reached.len() == 4_000 && walked < 4_000 && erased < 200_000, "{walked} and {erased} thousand steps");
    assert!([1, 2_000, 4_000].iter().all(|v| origin.row("demo", visitor(*v)).withdrawn.is_some()));
}

#[test]
fn an_erasure_that_the_journal_told_of_first_waits_for_the_log_too() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let erasure = of_visitor(1, ErasureScope::Visitor, NOW);
    origin.rules.journal.keep(&[("demo".to_owned(), erasure.clone())], &[]).unwrap();
    assert_eq!(origin.replay(GIVEN).unwrap(), 1);
    // The process ended between the two: the log's record is folded now.
    let facts = vec![CheckedFact { tenant: origin.tenant("demo").no, fact: erasure }];
    let record = Arc::new(LogRecord { seq: 7, ..LogRecord::of(facts) });
    commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, GIVEN, &[record], &[]).unwrap();
    let receipt = FactId::of_erasure(visitor(1));
    let log = crate::testing::as_json(
        erasure_progress(&origin.conn, origin.tenant("demo").no, receipt).unwrap().unwrap(),
    )["log_ms"]
        .clone();
    assert_eq!((log.is_null(), in_log(&origin.conn).unwrap()), (true, Some(7)));
}

#[test]
fn a_second_receipt_is_not_done_before_the_first_one() {
    let said = |origin: &Origin, receipt: FactId| {
        let said = crate::testing::as_json(
            erasure_progress(&origin.conn, origin.tenant("demo").no, receipt).unwrap().unwrap(),
        );
        (said["keys"]["all"].as_u64().unwrap(), !said["done_ms"].is_null(), !said["verified_ms"].is_null())
    };
    for together in [false, true] {
        for by_id in [false, true] {
            let (mut origin, mut kv) = (Origin::new(), Kv::new());
            person(&mut origin, &mut kv);
            let at = origin.now;
            let asked = match by_id {
                false => [1, 2].map(|v| by_member(&origin, v, "ann", at)),
                true => [7, 8].map(|n| Fact { id: FactId::from_bytes([n; 16]), ..of_member(&origin, "ann", at) }),
            };
            let send = |origin: &mut Origin, facts: &[Fact]| match by_id {
                false => drop(origin.send("demo", facts)),
                true => origin.admin("demo", facts),
            };
            match together {
                false => asked.each_ref().into_iter().for_each(|fact| send(&mut origin, std::slice::from_ref(fact))),
                true => send(&mut origin, &asked),
            }
            let [first, second] = asked.map(|fact| fact.id);
            let (all, is_done, _) = said(&origin, first);
            assert!(all >= 4 && !is_done);
            assert_eq!(said(&origin, second), (all, false, false), "together {together}, by an id {by_id}");
            origin.now += 120_000;
            let writes = origin.drain(100);
            origin.acknowledge(&writes);
            assert_eq!([first, second].map(|receipt| said(&origin, receipt)), [(all, true, false); 2]);
        }
    }
}

#[test]
fn erased_evidence_leads_no_later_visitor_back_to_an_erased_one() {
    for order in 0..3 {
        let mut origin = Origin::of_threshold(1_000, 0.8);
        let ann = origin.member("demo", "ann");
        let what = FactKind::Evidence {
            id: ann,
            also: Vec::new(),
            weight: EvidenceWeight(900),
            source: EvidenceSource::Match,
        };
        let tie = fact(visitor(1), 9, NOW, what);
        origin.send("demo", &[page(visitor(1), 1, NOW), origin.login(visitor(2), 1, NOW, "ann")]);
        // Bob's browser, at which Ann was too; his own login was a mistake, as a cancellation shows later.
        let at_bob_s = origin.login(visitor(4), 2, NOW + 1, "ann");
        origin.send("demo", &[origin.login(visitor(4), 1, NOW, "bob")]);
        let erasure = of_member(&origin, "ann", NOW + 10);
        let back = origin.login(visitor(3), 1, NOW + 20, "ann");
        let again = Fact { id: FactId::from_bytes([8; 16]), ..erasure.clone() };
        let steps = [[tie.clone(), at_bob_s].to_vec(), vec![erasure.clone()], vec![back]];
        for step in [[0, 1, 2], [1, 0, 2], [1, 2, 0]][order] {
            origin.admin("demo", &steps[step]);
        }
        // The queue repeats the erasure, and it is requested again: the browser is still Bob's.
        origin.admin("demo", &[erasure]);
        origin.admin("demo", &[again]);
        let bob = origin.member("demo", "bob");
        origin.admin("demo", &[fact(visitor(4), 3, NOW + 30, FactKind::Cancellation { id: bob })]);
        assert_eq!(origin.person("demo", visitor(3)).members, [visitor(3)], "order {order}");
        assert_eq!([1, 2, 4].map(|v| origin.row("demo", visitor(v)).withdrawn.is_some()), [false, true, false]);
        // New evidence from after the erasure counts.
        origin.admin("demo", &[Fact { id: FactId::from_bytes([5; 16]), received: NOW + 40, at: NOW + 40, ..tie }]);
        assert_eq!(origin.person("demo", visitor(3)).members, [visitor(1), visitor(3)]);
    }
}

#[test]
fn the_plan_of_a_person_s_erasure_names_who_withdrew_too() {
    let (mut origin, mut kv) = (Origin::new(), Kv::new());
    person(&mut origin, &mut kv);
    origin.send("demo", &[withdrawal(visitor(1), NOW + 1)]);
    let plan = |origin: &Origin| {
        erasure_reach(
            &origin.conn,
            origin.tenant("demo"),
            &ErasureTarget::Visitor(visitor(2)),
            ErasureScope::Person,
            NOW + 2,
        )
        .unwrap()
    };
    assert_eq!(plan(&origin), (1..=3).map(visitor).collect());
    origin.send("demo", &[of_visitor(2, ErasureScope::Person, NOW + 2)]);
    let no = origin.tenant("demo").no;
    assert_eq!([1, 2, 3].map(|v| is_erased(&origin.conn, no, visitor(v)).unwrap()), [true; 3]);
    assert!(plan(&origin).is_empty());
}

#[test]
fn what_comes_after_an_erasure_says_no_more_than_what_came_before_it() {
    for erased_first in [false, true] {
        let mut origin = Origin::new();
        origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
        let id = AlternateId::pair(visitor(1), visitor(2));
        let what =
            FactKind::Evidence { id, also: Vec::new(), weight: EvidenceWeight::UNSURE, source: EvidenceSource::Match };
        let facts = || {
            let offer_code = fact(visitor(1), 3, NOW, FactKind::OfferCode { campaign: 1, number: 0 });
            [fact(visitor(1), 2, NOW, what.clone()), fact(visitor(2), 2, NOW, what.clone()), offer_code]
        };
        let erasure = || [of_visitor(1, ErasureScope::Visitor, NOW + 9)];
        match erased_first {
            false => [facts().to_vec(), erasure().to_vec()].iter().for_each(|facts| origin.admin("demo", facts)),
            true => [erasure().to_vec(), facts().to_vec()].iter().for_each(|facts| origin.admin("demo", facts)),
        }
        let count = |sql: &str| origin.conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        // The offer code stays assigned, and no evidence of the pair is left.
        let left = ["SELECT count(*) FROM offer_codes_given", "SELECT count(*) FROM evidence"].map(count);
        assert_eq!(left, [1, 0], "erased first: {erased_first}");
    }
}

#[test]
fn an_erasure_from_the_journal_waits_for_its_visitors_facts_in_the_log() {
    let mut origin = Origin::new();
    let erasure = of_visitor(1, ErasureScope::Visitor, NOW);
    origin.rules.journal.keep(&[("demo".to_owned(), erasure.clone())], &[]).unwrap();
    // A fact from before the restore that the journal survived.
    let batches = vec![origin.batch("demo", &[page(visitor(1), 1, NOW - 9)])];
    let request = causeway_shared::wire::sync::SyncRequest { facts: batches, ..Default::default() };
    let incoming = crate::ingest::intake::read(request, &origin.rules.tenants, NOW);
    let mut log = crate::ingest::log::FactLog::open(origin.data(), 0).unwrap();
    let seq = log.append(&[incoming], 0).unwrap();
    assert_eq!(origin.replay(GIVEN).unwrap(), 1);
    let said =
        crate::testing::as_json(erasure_progress(&origin.conn, origin.tenant("demo").no, erasure.id).unwrap().unwrap());
    assert_eq!((said["log_ms"].is_null(), in_log(&origin.conn).unwrap()), (true, Some(seq)));
}
