#![expect(clippy::unwrap_used, reason = "tests")]

use crate::base::attribution::{BadReason, checked_reason};
use causeway_shared::base::limits;
use std::sync::Arc;

use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::ErasureScope;
use causeway_shared::wire::sync::SyncRequest;

use serde_json::{Value, json};

use super::*;
use crate::base::metrics::Metrics;
use crate::ingest::backlog::Backlog;
use crate::ingest::intake::{self, IncomingSync};
use crate::ingest::log::{self, FactLog};
use crate::jobs::tasks::retention;
use crate::pipeline::commit;
use crate::pipeline::writer::steps::{FoldSteps, IntakeSteps};
use crate::privacy::erasure_request::ErasureTarget;
use crate::store::journal::ErasureJournal;
use crate::store::write_txn::TxnInputs;
use crate::store::{self, RunNo, StoreCounters, VisitorRow};
use crate::testing::{NOW, Origin, fact, page, visitor};

const GIVEN: TxnInputs = TxnInputs { now: NOW, random: [3; 32] };

fn tie(v: u32, n: u32, at: Millis, id: AlternateId) -> Fact {
    fact(
        visitor(v),
        n,
        at,
        FactKind::Evidence { id, also: Vec::new(), weight: EvidenceWeight(700), source: EvidenceSource::Match },
    )
}

fn pair(a: u32, b: u32, n: u32, at: Millis) -> Vec<Fact> {
    let id = AlternateId::pair(visitor(a), visitor(b));
    vec![tie(a, n, at, id), tie(b, n, at, id)]
}

fn erasure(v: u32, at: Millis) -> Fact {
    ErasureTarget::Visitor(visitor(v)).fact(ErasureScope::Visitor, at, [0; 16])
}

fn why(text: &str) -> Attribution {
    Attribution::cli(Some("ann"), Some(text.to_owned()))
}

fn record(origin: &Origin, said: Attribution, facts: Vec<Fact>) -> Arc<LogRecord> {
    let tenant = origin.tenant("demo").no;
    Arc::new(LogRecord::with_attribution(facts.into_iter().map(|fact| CheckedFact { tenant, fact }).collect(), said))
}

fn commit(origin: &mut Origin, records: &[Arc<LogRecord>]) {
    let given = origin.given();
    commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, given, records, &[]).unwrap();
}

fn say(origin: &mut Origin, said: Attribution, facts: Vec<Fact>) {
    let record = record(origin, said, facts);
    commit(origin, &[record]);
}

/// The rows as callers read them.
fn as_rows(rows: &[AuditRow]) -> Vec<Value> {
    rows.iter().map(|row| json!(row)).collect()
}

fn trail(origin: &Origin) -> Vec<Value> {
    as_rows(&list_rows(&origin.conn, origin.tenant("demo"), None, None, 1_000).unwrap())
}

/// Type, author, reason and count of each row, the oldest first.
fn summaries(rows: &[Value]) -> Vec<(String, String, String, u64)> {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or("-").to_owned();
    let of = |row: &Value| (text(row, "what"), text(row, "by"), text(row, "reason"), row["count"].as_u64().unwrap());
    rows.iter().rev().map(of).collect()
}

fn row(what: &str, by: &str, reason: &str, count: u64) -> (String, String, String, u64) {
    (what.to_owned(), by.to_owned(), reason.to_owned(), count)
}

/// Every byte of the table, as hexadecimal digits.
fn bytes(origin: &Origin) -> String {
    let mut statement = origin.conn.prepare("SELECT * FROM audit").unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        (0..columns).map(|at| row.get::<_, rusqlite::types::Value>(at)).collect::<Result<Vec<_>, _>>()
    });
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = |value: rusqlite::types::Value| match value {
        rusqlite::types::Value::Blob(bytes) => hex(&bytes),
        rusqlite::types::Value::Text(text) => format!("{text} {}", hex(text.as_bytes())),
        other => format!("{other:?}"),
    };
    rows.unwrap().flat_map(Result::unwrap).map(text).collect::<Vec<_>>().join("\n")
}

fn names(origin: &Origin, v: u32) -> bool {
    let visitor = visitor(v);
    let hex: String = visitor.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = bytes(origin);
    bytes.contains(&hex) || bytes.contains(&visitor.to_string())
}

#[test]
fn a_reason_is_one_bounded_line() {
    assert_eq!(checked_reason(" ticket 4711 ").as_deref(), Ok("ticket 4711"));
    assert!(checked_reason(&"\u{fc}".repeat(limits::REASON_CHARS)).is_ok());
    for bad in [
        "",
        "  ",
        "two\nlines",
        "a\ttab",
        "\u{1b}[31m",
        "a\u{2028}b",
        "bell\u{7}",
        &"x".repeat(limits::REASON_CHARS + 1),
    ] {
        assert_eq!(checked_reason(bad), Err(BadReason), "{bad:?}");
    }
    let said = BadReason.to_string();
    assert!(said.contains("1 to 200 characters") && said.contains("shorten it"), "{said}");
    assert_eq!(Attribution::cli(Some("a\nb\u{1b}"), None).name.as_deref(), Some("ab"));
}

#[test]
fn an_audit_row_names_the_tied_visitors_and_the_kind_of_tie() {
    let mut origin = Origin::new();
    origin.send("demo", &(1..=4).map(|v| page(visitor(v), 1, NOW)).collect::<Vec<_>>());
    let partner = origin.id("demo", KindCode(2), "p");
    say(&mut origin, why("a pair"), pair(1, 2, 2, NOW + 1));
    say(&mut origin, why("an id"), vec![tie(3, 2, NOW + 2, partner)]);
    let unlink = fact(visitor(3), 3, NOW + 3, FactKind::Cancellation { id: partner });
    let other = Some(visitor(4).to_string());
    say(&mut origin, Attribution { other, ..why("apart") }, vec![unlink.clone()]);
    say(&mut origin, why("again"), vec![unlink]);
    let rows = trail(&origin);
    let expected = [row("link", "cli", "a pair", 2), row("link", "cli", "an id", 1), row("unlink", "cli", "apart", 1)];
    assert_eq!(summaries(&rows), expected, "what was there already changes nothing");
    let name = |v: u32| json!(visitor(v).to_string());
    let id = json!({ "kind": "partner", "hash": partner.hash.to_string() });
    let named: Vec<_> = rows.iter().rev().map(|row| [&row["visitor"], &row["other"], &row["id"]]).collect();
    assert_eq!(named[0], [&name(1), &name(2), &Value::Null]);
    assert_eq!(named[1], [&name(3), &Value::Null, &id]);
    assert_eq!(named[2], [&name(3), &name(4), &id]);
    assert_eq!(
        (&rows[0]["at_ms"], &rows[0]["name"], &rows[0]["receipt"]),
        (&json!(NOW + 3), &json!("ann"), &json!(null))
    );
    let of = |v: u32| {
        summaries(&as_rows(&list_rows(&origin.conn, origin.tenant("demo"), Some(visitor(v)), None, 9).unwrap()))
    };
    assert_eq!([of(1), of(2)], [&expected[..1], &expected[..1]]);
    assert_eq!([of(3), of(4)], [&expected[1..], &expected[2..]]);
    assert_eq!(
        list_rows(&origin.conn, origin.tenant("other"), Some(visitor(1)), None, 9).unwrap(),
        Vec::<AuditRow>::new()
    );
}

#[test]
fn an_import_in_many_transactions_is_one_audit_row_for_each_run() {
    let mut origin = Origin::new();
    origin.send("demo", &(1..=6).map(|v| page(visitor(v), 1, NOW)).collect::<Vec<_>>());
    let run = |n: u8| Attribution { run: Some(FactId::from_bytes([n; 16]).receipt()), ..why("matches") };
    say(&mut origin, run(1), [pair(1, 2, 2, NOW), pair(2, 3, 3, NOW)].concat());
    say(&mut origin, run(1), pair(3, 4, 4, NOW));
    say(&mut origin, run(1), pair(3, 4, 4, NOW));
    say(&mut origin, run(2), [pair(3, 4, 4, NOW), pair(5, 6, 5, NOW)].concat());
    say(&mut origin, run(3), pair(5, 6, 5, NOW));
    assert_eq!(summaries(&trail(&origin)), [row("link", "cli", "matches", 6), row("link", "cli", "matches", 2)]);
    assert!((1..=6).all(|v| !names(&origin, v)));
}

#[test]
fn a_replayed_log_gives_each_audit_row_once() {
    let origin = Origin::new();
    let rules = Arc::new(origin.rules);
    let folder = tempfile::tempdir().unwrap();
    let batch = |facts: &[Fact]| {
        let tenant = "demo".parse().unwrap();
        let batch = causeway_shared::wire::facts::FactBatch { tenant, facts: facts.to_vec() };
        SyncRequest { facts: vec![causeway_shared::wire::facts::encode_batch(&batch)], ..SyncRequest::default() }
    };
    let admin = |facts: &[Fact], said: Attribution| IncomingSync {
        attribution: Some(said),
        ..intake::read_admins(batch(facts), &rules.tenants, NOW)
    };
    let open = || {
        let conn = store::open(folder.path()).unwrap();
        store::tenant_no(&conn, "demo").unwrap();
        let folded = StoreCounters::load(&conn).unwrap().folded();
        let log = FactLog::open(folder.path(), folded).unwrap();
        let backlog = Backlog::of(folded, log.unfolded_records(folded, &rules.tenants).unwrap());
        let folding = FoldSteps::of(conn, backlog.clone(), Arc::clone(&rules), Arc::default());
        (IntakeSteps::of(log, backlog.clone(), 1_000), folding, backlog)
    };
    let rows = |conn: &Connection| {
        summaries(&as_rows(&list_rows(conn, rules.tenants.by_name("demo").unwrap(), None, None, 99).unwrap()))
    };
    let syncs = vec![
        intake::read(
            batch(&[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW), page(visitor(3), 1, NOW)]),
            &rules.tenants,
            NOW,
        ),
        admin(&pair(1, 2, 2, NOW), why("a match")),
        admin(&[erasure(3, NOW)], why("asked for")),
        intake::read(batch(&[erasure(1, NOW + 1)]), &rules.tenants, NOW),
    ];
    {
        let (mut taking, mut folding, _) = open();
        taking.append(syncs).unwrap();
        assert_eq!(rows(folding.store()), [], "killed before it is folded");
    }
    let records = log::unfolded(folder.path(), 0, &rules.tenants).unwrap();
    let (_, mut folding, _) = open();
    folding.fold(GIVEN, &[]).unwrap().unwrap();
    let expected =
        [row("link", "cli", "a match", 2), row("erase", "cli", "asked for", 1), row("erase", "visitor", "-", 1)];
    assert_eq!(rows(folding.store()), expected);
    // Killed before the log deleted the record, and folded again by a process that does not know.
    drop(folding);
    let (_, mut folding, backlog) = open();
    assert!(backlog.is_empty());
    let records: Vec<_> = records.into_iter().map(Arc::new).collect();
    commit::commit_group(folding.store(), &rules, &Metrics::default(), GIVEN, &records, &[]).unwrap();
    assert_eq!(rows(folding.store()), expected);
}

#[test]
fn a_record_of_the_admin_side_that_names_nobody_is_read_and_its_row_says_so() {
    let mut origin = Origin::new();
    let folder = tempfile::tempdir().unwrap();
    origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    let request = SyncRequest {
        edge: log::ADMIN.to_owned(),
        facts: vec![origin.batch("demo", &pair(1, 2, 2, NOW))],
        ..SyncRequest::default()
    };
    let mut log = FactLog::open(folder.path(), 0).unwrap();
    log.append([&intake::read_admins(request, &origin.rules.tenants, NOW)], 0).unwrap();
    let beside = log::unfolded(folder.path(), 0, &origin.rules.tenants).unwrap();
    let opened = log.unfolded_records(0, &origin.rules.tenants).unwrap();
    assert_eq!([beside.len(), opened.len()], [1, 1]);
    let records: Vec<_> = opened.into_iter().map(Arc::new).collect();
    commit(&mut origin, &records);
    assert_eq!(summaries(&trail(&origin)), [row("link", "admin", "-", 2)]);
}

#[test]
fn no_audit_row_names_an_erased_visitor() {
    let mut origin = Origin::new();
    origin.send("demo", &(1..=6).map(|v| page(visitor(v), 1, NOW)).collect::<Vec<_>>());
    let ann = origin.member("demo", "ann");
    origin.send("demo", &[origin.login(visitor(5), 2, NOW, "ann")]);
    let hash = ann.hash.to_string();
    let unlink = |v: u32, n| fact(visitor(v), n, NOW + 2, FactKind::Cancellation { id: ann });
    say(&mut origin, why("one"), pair(1, 2, 2, NOW + 1));
    say(&mut origin, why("two"), pair(2, 1, 3, NOW + 1));
    say(&mut origin, why("three"), vec![tie(3, 2, NOW + 1, ann)]);
    say(&mut origin, Attribution { other: Some(visitor(1).to_string()), ..why("four") }, vec![unlink(4, 2)]);
    assert!([1, 2, 3, 4].map(|v| names(&origin, v)).iter().all(|named| *named) && bytes(&origin).contains(&hash));
    let before = summaries(&trail(&origin));
    // Removed with the visitor, also if it was the other visitor of a change.
    say(&mut origin, why("request 1"), vec![erasure(1, NOW + 3)]);
    assert!(!names(&origin, 1) && names(&origin, 2) && names(&origin, 4));
    assert_eq!(summaries(&trail(&origin)), [&before[..], &[row("erase", "cli", "request 1", 1)]].concat());
    // Removed with the alternate id, under any visitor; other visitors stay named.
    let member = ErasureTarget::Id(ann.kind, vec![ann.hash]).fact(ErasureScope::Visitor, NOW + 4, [9; 16]);
    say(&mut origin, why("request 2"), vec![member]);
    assert!(!bytes(&origin).contains(&hash) && names(&origin, 3) && !names(&origin, 5));
    // Changes that waited in the log after the erasure, and changes in one transaction with it.
    let late = [Attribution { other: Some(visitor(1).to_string()), ..why("five") }, why("six"), why("seven")];
    let facts = [vec![unlink(6, 2)], pair(1, 6, 4, NOW + 5), vec![tie(6, 5, NOW + 3, ann)]];
    let together: Vec<_> = late.into_iter().zip(facts).map(|(said, facts)| record(&origin, said, facts)).collect();
    let two = record(&origin, why("request 3"), vec![erasure(2, NOW + 6)]);
    let last = record(&origin, why("eight"), pair(2, 3, 6, NOW + 6));
    commit(&mut origin, &[together, vec![two, last]].concat());
    assert!(![1, 2, 5].map(|v| names(&origin, v)).contains(&true), "{}", bytes(&origin));
    assert!(!bytes(&origin).contains(&hash));
    let rows = trail(&origin).len();
    say(&mut origin, why("too late"), pair(1, 2, 9, NOW + 7));
    assert_eq!(trail(&origin).len(), rows, "a link of an erased visitor changes nothing");
    // A visitor that returns with the id is a new one.
    say(&mut origin, why("nine"), vec![tie(6, 7, NOW + 9, ann)]);
    assert!(bytes(&origin).contains(&hash));
    // A request with the erased id still gets the erasure.
    let of =
        |v| summaries(&as_rows(&list_rows(&origin.conn, origin.tenant("demo"), Some(visitor(v)), None, 9).unwrap()));
    assert_eq!([of(1), of(5)], [[row("erase", "cli", "request 1", 1)], [row("erase", "cli", "request 2", 1)]]);
}

#[test]
fn a_repeated_erasure_fact_is_one_audit_row_and_a_new_request_another() {
    let mut origin = Origin::new();
    let people: Vec<_> = (1..=2).map(|v| origin.login(visitor(v), 1, NOW, "ann")).collect();
    origin.send("demo", &people);
    for _ in 0..2 {
        origin.send("demo", &[erasure(1, NOW + 1)]);
    }
    assert_eq!(summaries(&trail(&origin)), [row("erase", "visitor", "-", 1)]);
    // The same receipt, with a wider scope.
    origin.send("demo", &[origin.login(visitor(3), 1, NOW, "bob")]);
    say(
        &mut origin,
        why("all of it"),
        vec![ErasureTarget::Visitor(visitor(1)).fact(ErasureScope::Visitor, NOW + 2, [0; 16])],
    );
    let expected = [row("erase", "visitor", "-", 1), row("erase", "cli", "all of it", 0)];
    assert_eq!(summaries(&trail(&origin)), expected);
    assert_eq!(trail(&origin)[0]["receipt"], trail(&origin)[1]["receipt"]);
}

#[test]
fn a_store_older_than_an_erasure_learns_its_author_from_the_journal() {
    let mut origin = Origin::new();
    origin.send("demo", &(1..=3).map(|v| page(visitor(v), 1, NOW)).collect::<Vec<_>>());
    say(&mut origin, why("before"), pair(2, 3, 2, NOW));
    let folder = tempfile::tempdir().unwrap();
    origin.copy_to(folder.path());
    say(&mut origin, why("request 1"), vec![erasure(1, NOW + 1)]);
    origin.send("demo", &[erasure(2, NOW + 2)]);
    let whole = summaries(&trail(&origin));
    assert_eq!(whole.len(), 3);
    let mut old = Origin::within(folder);
    old.rules.journal = std::mem::replace(&mut origin.rules.journal, old.rules.journal);
    assert_eq!(summaries(&trail(&old)), whole[..1]);
    for _ in 0..2 {
        old.replay(GIVEN).unwrap();
        assert_eq!(summaries(&trail(&old)), whole);
        assert!(!names(&old, 1) && !names(&old, 2) && names(&old, 3));
    }
    // A lost journal is completed from the store.
    let empty = tempfile::tempdir().unwrap();
    let before = old.rules.journal.requested_erasures().unwrap();
    old.rules.journal = ErasureJournal::open(empty.path()).unwrap();
    old.replay(GIVEN).unwrap();
    assert_eq!((old.rules.journal.requested_erasures().unwrap(), before.len()), (before, 2));
}

#[test]
fn who_is_forgotten_went_by_the_job() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    let receipt = retention::erasure_receipt(RunNo::from_number(1), NOW, VisitorRow::from_number(2));
    let tenant = origin.tenant("demo").no;
    let visitors = [1, 2].map(|v| (tenant, visitor(v)));
    let (visitors, metrics) = (|_: &_| Ok(visitors.to_vec()), Metrics::default());
    retention::forget_visitors(&mut origin.conn, &origin.rules, &metrics, GIVEN, receipt, visitors, |_, _| Ok(()))
        .unwrap();
    assert_eq!(summaries(&trail(&origin)), [row("erase", "job:retention", "-", 2)]);
    assert_eq!(trail(&origin)[0]["receipt"], receipt.receipt());
}

#[test]
fn logins_withdrawals_and_what_pages_say_leave_no_row() {
    let mut origin = Origin::new();
    let login = origin.login(visitor(1), 1, NOW, "ann");
    origin.send("demo", &[login, page(visitor(1), 2, NOW), crate::testing::withdrawal(visitor(1), NOW)]);
    assert_eq!(trail(&origin), [Value::Null; 0]);
}
