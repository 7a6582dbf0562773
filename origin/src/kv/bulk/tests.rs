#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::facts::fact::ErasureScope;

use crate::kv::bulk::lease::{BulkLease, BulkRequest, BulkSettlement, RowResult, SettledRow};
use crate::kv::bulk::values::{BulkBatch, SentRow};
use crate::kv::value;
use crate::outbox::kv_key::KvKey;
use crate::outbox::queue::{KEY_PAUSE_MS, LATE_MS, LEASE_MS};
use crate::privacy::erasure_request::ErasureTarget;
use crate::testing::{NOW, Origin, page, visitor, withdrawal};

const MANY: usize = 10_000;

/// The keys and values of the calls of a batch; no value is a deletion.
fn writes(batch: &BulkBatch) -> BTreeMap<String, Option<String>> {
    let pairs: Vec<BTreeMap<String, String>> =
        if batch.puts.json.is_empty() { Vec::new() } else { serde_json::from_slice(&batch.puts.json).unwrap() };
    let deleted: Vec<String> =
        if batch.deletes.json.is_empty() { Vec::new() } else { serde_json::from_slice(&batch.deletes.json).unwrap() };
    let puts = pairs.into_iter().map(|mut pair| (pair.remove("key").unwrap(), pair.remove("value")));
    puts.chain(deleted.into_iter().map(|key| (key, None))).collect()
}

fn settlement(lease: &BulkLease, batch: &BulkBatch, result: impl Fn(&SentRow) -> RowResult) -> BulkSettlement {
    let sent = batch.puts.rows.iter().chain(&batch.deletes.rows);
    let rows = sent.map(|sent| SettledRow { row: sent.row, result: result(sent) }).chain(batch.unsent.clone());
    BulkSettlement { version: lease.version, rows: rows.collect() }
}

fn settle(origin: &mut Origin, settlement: BulkSettlement) -> u64 {
    origin.bulk(&BulkRequest { settlement: Some(settlement), ..BulkRequest::default() }).settled
}

/// Writes all rows of a batch and settles them.
fn write(origin: &mut Origin, (lease, batch): &(BulkLease, BulkBatch)) -> u64 {
    settle(origin, settlement(lease, batch, |sent| RowResult::Written(sent.value)))
}

fn key(v: u32) -> String {
    format!("v:demo:{}", visitor(v))
}

/// A store with the first page of some visitors, and a login of the first.
fn visited(visitors: u32) -> Origin {
    let mut origin = Origin::new();
    let mut facts: Vec<_> = (0..visitors).map(|v| page(visitor(v), v, NOW)).collect();
    facts.push(origin.login(visitor(0), 9_999, NOW, "ann"));
    origin.send("demo", &facts);
    origin
}

#[test]
fn one_batch_has_every_due_key_with_the_value_that_verify_expects() {
    let mut origin = visited(50);
    let batch = origin.bulk_batch(MANY).unwrap();
    let written = writes(&batch.1);
    assert_eq!(written.len(), 51, "50 snapshots and a lookup");
    assert!(origin.drain(100).is_empty(), "leased keys have no other writer");
    assert_eq!(write(&mut origin, &batch), 51);
    origin.now += KEY_PAUSE_MS;
    assert!(origin.bulk_batch(MANY).is_none() && origin.drain(100).is_empty());
    for row in &batch.0.rows {
        let tenant = origin.tenant("demo");
        let built = value::build(&origin.conn, tenant, row.key, batch.0.version, origin.now).unwrap();
        assert_eq!(written[&built.key], built.value);
    }
    assert_eq!(origin.row("demo", visitor(7)).published, Some(batch.0.version.counter));
}

#[test]
fn a_key_that_changes_during_a_call_is_written_again_and_never_twice_in_a_second() {
    let mut origin = visited(3);
    let batch = origin.bulk_batch(MANY).unwrap();
    origin.send("demo", &[page(visitor(1), 77, NOW)]);
    origin.now += 5_000;
    assert_eq!(write(&mut origin, &batch), 4);
    assert!(origin.bulk_batch(MANY).is_none(), "its key was written in this second");
    origin.now += KEY_PAUSE_MS;
    let again = origin.bulk_batch(MANY).unwrap();
    assert_eq!(writes(&again.1).into_keys().collect::<Vec<_>>(), [key(1)]);
    assert!(again.0.version > batch.0.version);
}

#[test]
fn a_batch_without_an_answer_is_written_after_its_lease_and_once_more_after_late_writers() {
    let mut origin = visited(2);
    let lost = origin.bulk_batch(MANY).unwrap();
    origin.now += LEASE_MS - 1;
    assert!(origin.bulk_batch(MANY).is_none());
    origin.now += 1;
    let second = origin.bulk_batch(MANY).unwrap();
    assert_eq!(writes(&second.1).len(), 3);
    assert_eq!(write(&mut origin, &lost), 0, "a settlement after the lease settles nothing");
    assert_eq!(write(&mut origin, &second), 3);
    // The values of the lost call may still arrive.
    origin.now += LATE_MS;
    let last = origin.bulk_batch(MANY).unwrap();
    assert_eq!(writes(&last.1).len(), 3);
    assert_eq!(write(&mut origin, &last), 3);
    origin.now += LATE_MS + LEASE_MS;
    assert!(origin.bulk_batch(MANY).is_none());
}

#[test]
fn values_are_sent_only_while_their_call_can_end_within_the_lease() {
    let mut origin = visited(1);
    let (lease, _) = origin.bulk_batch(MANY).unwrap();
    let call_ms = 30_000;
    assert!(lease.is_sendable(lease.since) && lease.is_sendable(lease.since + LEASE_MS / 3));
    assert!(!lease.is_sendable(lease.since + LEASE_MS - call_ms));
}

#[test]
fn only_the_keys_that_the_platform_did_not_write_are_written_again() {
    let mut origin = visited(3);
    let (lease, batch) = origin.bulk_batch(MANY).unwrap();
    let result = |sent: &SentRow| if sent.key == key(1) { RowResult::Failed } else { RowResult::Written(sent.value) };
    let settlement = settlement(&lease, &batch, result);
    assert_eq!(settle(&mut origin, settlement), 3);
    origin.now += 30_000;
    assert!(origin.bulk_batch(MANY).is_none());
    origin.now += 30_000;
    let again = origin.bulk_batch(MANY).unwrap();
    assert_eq!(writes(&again.1).into_keys().collect::<Vec<_>>(), [key(1)]);
}

#[test]
fn rows_that_were_not_sent_are_due_at_once_and_have_no_late_writer() {
    let mut origin = visited(2);
    let (lease, batch) = origin.bulk_batch(MANY).unwrap();
    let settlement = settlement(&lease, &batch, |_| RowResult::Unsent);
    assert_eq!(settle(&mut origin, settlement), 0);
    origin.now += KEY_PAUSE_MS;
    let again = origin.bulk_batch(MANY).unwrap();
    assert_eq!(write(&mut origin, &again), 3);
    origin.now += LATE_MS + LEASE_MS;
    assert!(origin.bulk_batch(MANY).is_none(), "nothing was sent that could arrive late");
}

#[test]
fn a_value_that_cannot_be_built_delays_no_other_and_is_tried_again() {
    let mut origin = visited(3);
    let damage = "UPDATE visitors SET profile = ?2 WHERE visitor = ?1";
    origin.conn.execute(damage, (visitor(1).as_bytes(), [0xff])).unwrap();
    let batch = origin.bulk_batch(MANY).unwrap();
    assert_eq!(write(&mut origin, &batch), 3);
    assert_eq!(origin.metrics.bad_values.get(), 1);
    origin.now += 59_000;
    assert!(origin.bulk_batch(MANY).is_none());
    origin.now += 1_000;
    assert_eq!(origin.bulk_batch(MANY).unwrap().0.rows.len(), 1);
}

#[test]
fn a_withdrawn_visitor_gets_a_tombstone_and_an_empty_lookup_is_deleted() {
    let mut origin = visited(3);
    let batch = origin.bulk_batch(MANY).unwrap();
    write(&mut origin, &batch);
    origin.now += 60_000;
    origin.send("demo", &[withdrawal(visitor(0), origin.now)]);
    let gone = origin.bulk_batch(MANY).unwrap();
    let written = writes(&gone.1);
    assert!(written[&key(0)].as_ref().unwrap().starts_with("t1"));
    assert_eq!(written.values().filter(|value| value.is_none()).count(), 1, "its member's lookup");
}

#[test]
fn an_erasure_is_done_by_a_bulk_write_that_began_after_it_and_by_no_other() {
    let mut origin = visited(2);
    let early = origin.bulk_batch(MANY).unwrap();
    let erased = ErasureTarget::Visitor(visitor(1)).fact(ErasureScope::Visitor, origin.now, [9; 16]);
    let receipt = erased.id;
    origin.admin("demo", &[erased]);
    let unwritten = |origin: &Origin| {
        let progress = crate::erasures::registry::erasure_progress(&origin.conn, origin.tenant("demo").no, receipt);
        let keys = progress.unwrap().unwrap().keys;
        keys.all - keys.written
    };
    write(&mut origin, &early);
    assert_eq!(unwritten(&origin), 1, "its value was built before the erasure, or may have been");
    origin.now += KEY_PAUSE_MS;
    let late = origin.bulk_batch(MANY).unwrap();
    assert!(writes(&late.1)[&key(1)].as_ref().unwrap().starts_with("t1"));
    write(&mut origin, &late);
    assert_eq!(unwritten(&origin), 0);
}

#[test]
fn few_keys_and_keys_of_whole_tenants_are_left_to_the_publish_consumer() {
    let mut origin = visited(5);
    let few = BulkRequest { wanted: MANY, fewest: 7, ..BulkRequest::default() };
    assert_eq!(origin.bulk(&few).lease, None);
    let enough = BulkRequest { fewest: 6, ..few };
    assert_eq!(origin.bulk(&enough).lease.unwrap().rows.len(), 6);

    let mut origin = Origin::new();
    let writes = vec![("vip".to_owned(), Some(causeway_shared::facts::attributes::AttributeValue::Bool(true)))];
    let named = causeway_shared::facts::fact::FactKind::Attributes { writes };
    origin.send("demo", &[crate::testing::fact(visitor(1), 1, NOW, named)]);
    let leased: BTreeSet<KvKey> = origin.bulk_batch(MANY).unwrap().0.rows.iter().map(|row| row.key).collect();
    assert_eq!(leased, BTreeSet::from([KvKey::Snapshot(visitor(1))]));
    let names = causeway_shared::wire::kv_keys::attributes_key(&"demo".parse().unwrap(), 0);
    assert!(origin.drain(10).iter().any(|write| write.key == names));
}

#[test]
fn a_person_of_many_browsers_has_its_best_send_time_in_every_snapshot() {
    let mut origin = visited(1);
    let hour = 3_600_000;
    let facts: Vec<_> = (0..60).map(|n| page(visitor(0), 100 + n, NOW - u64::from(n) * 24 * hour)).collect();
    origin.send("demo", &facts);
    let batch = origin.bulk_batch(MANY).unwrap();
    let kv: BTreeMap<String, String> =
        writes(&batch.1).into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let best = crate::testing::snapshot(&kv, visitor(0)).best;
    assert!(best.is_some());
    write(&mut origin, &batch);
    let stored: Option<u16> = origin.conn.query_row("SELECT best FROM visitors", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, best.map(causeway_shared::profiles::activity::BestSendTime::pack));
}
