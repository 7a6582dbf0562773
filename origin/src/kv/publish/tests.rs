#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use causeway_shared::base::limits;
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::events::EventCount;
use causeway_shared::facts::fact::{Fact, FactKind, PAGE, PURCHASE};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::wire::kv;
use causeway_shared::wire::sync::KvWrite;

use crate::outbox::fair_queue::queue_depth;
use crate::outbox::queue::{KEY_PAUSE_MS, LATE_MS, LEASE_MS};
use crate::testing::{NOW, Origin, fact, impression, page, snapshot, visitor, withdrawal};

fn keys(writes: &[KvWrite]) -> Vec<&str> {
    writes.iter().map(|w| w.key.as_str()).collect()
}

fn key(v: u32) -> String {
    format!("v:demo:{}", visitor(v))
}

#[test]
fn a_visitors_own_snapshot_is_due_at_once_and_names_its_newest_facts() {
    let mut origin = Origin::new();
    let fact = page(visitor(1), 1, NOW);
    assert_eq!(origin.send("demo", std::slice::from_ref(&fact)).pending, 1);
    let writes = origin.drain(10);
    assert_eq!(keys(&writes), [key(1)]);
    let mut store = BTreeMap::new();
    store.insert(writes[0].key.clone(), writes[0].value.clone().unwrap());
    let snapshot = snapshot(&store, visitor(1));
    assert_eq!(snapshot.version, writes[0].version);
    assert_eq!(snapshot.membership.devices, 1);
    let own = &snapshot.profiles[&visitor(1)];
    assert_eq!(own.totals().pages, 1);
    assert!(own.holds(NOW, fact.id.short()));
}

#[test]
fn a_snapshot_holds_the_times_of_its_visitors_pages_and_purchases_of_a_month() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    let day = |ago: u64| NOW - ago * 86_400_000;
    let bought = |v: u32, n: u32, at: u64| {
        let what = FactKind::Track { name: PURCHASE.to_owned(), value: None, properties: None, order: None };
        Fact { at, ..fact(visitor(v), n, NOW, what) }
    };
    let logins = [1, 2].map(|v| origin.login(visitor(v), 1, NOW, "ann"));
    origin.send("demo", &logins);
    origin.send("demo", &[bought(1, 2, day(29)), bought(1, 3, day(6)), bought(2, 4, day(1)), page(visitor(2), 5, NOW)]);
    origin.settle(&mut kv);
    for own in [1, 2] {
        let snapshot = snapshot(&kv, visitor(own));
        let often = |name: &str, days: u64| {
            let (from, to) = (Minute::at(day(days)), Minute::at(NOW + 60_000));
            let each = snapshot.profiles.values().map(|sub| sub.within(name, from, to).unwrap());
            each.fold(EventCount::Exactly(0), EventCount::plus)
        };
        let purchases = [0, 1, 7, 30].map(|days| often(PURCHASE, days));
        assert_eq!(purchases, [0, 1, 2, 3].map(EventCount::Exactly));
        assert_eq!(often(PURCHASE, 35), EventCount::AtLeast(3), "what is older is counted in all alone");
        assert_eq!((often(PAGE, 0), often(PAGE, 30)), (EventCount::Exactly(1), EventCount::Exactly(1)));
    }
}

#[test]
fn changes_of_a_key_are_one_write_and_an_acknowledged_one_does_not_come_back() {
    let mut origin = Origin::new();
    let changed = |origin: &Origin| origin.conn.query_row("SELECT changed FROM outbox", [], |row| row.get::<_, i64>(0));
    for n in 0..5 {
        origin.send("demo", &[page(visitor(1), n, NOW)]);
        assert_eq!(changed(&origin), Ok(1), "what waits is not written again");
    }
    let writes = origin.drain(10);
    assert_eq!(writes.len(), 1);
    origin.acknowledge(&writes);
    origin.now += 10 * LEASE_MS;
    assert!(origin.drain(10).is_empty());
}

#[test]
fn what_changed_since_it_was_handed_out_is_written_again() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let first = origin.drain(10);
    origin.send("demo", &[page(visitor(1), 2, NOW)]);
    origin.acknowledge(&first);
    origin.now += KEY_PAUSE_MS;
    let second = origin.drain(10);
    assert_eq!(keys(&second), [key(1)]);
    assert!(second[0].version > first[0].version);
}

#[test]
fn a_clock_that_is_set_back_holds_no_write_up() {
    for acknowledged in [true, false] {
        let mut origin = Origin::new();
        // The clock is an hour ahead.
        origin.now = NOW + 3_600_000;
        origin.send("demo", &[page(visitor(1), 1, NOW)]);
        let writes = origin.drain(10);
        if acknowledged {
            origin.acknowledge(&writes);
        }
        origin.send("demo", &[page(visitor(2), 1, NOW)]);
        origin.now = NOW;
        super::set_back(&origin.conn, NOW, 60_000, 120_000).unwrap();
        assert_eq!(origin.send("demo", &[withdrawal(visitor(1), NOW)]).pending, if acknowledged { 2 } else { 1 });
        // The first key waits for its pause or its lease, because the time of its hand-out is unknown.
        assert_eq!(keys(&origin.drain(10)), [key(2)]);
        origin.now += if acknowledged { KEY_PAUSE_MS } else { LEASE_MS } - 1;
        assert!(!keys(&origin.drain(10)).contains(&&*key(1)), "acknowledged: {acknowledged}");
        origin.now += 1;
        assert!(keys(&origin.drain(10)).contains(&&*key(1)), "acknowledged: {acknowledged}");
    }
}

#[test]
fn what_is_due_of_a_tenant_that_is_not_configured_waits_for_it_and_is_in_nobodys_way() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    origin.send("demo", &[origin.login(visitor(1), 1, NOW, "ann"), origin.login(visitor(2), 1, NOW, "ann")]);
    origin.settle(&mut kv);
    let now = origin.now;
    let news =
        [page(visitor(1), 2, now), page(visitor(3), 1, now), page(visitor(4), 1, now), withdrawal(visitor(4), now)];
    origin.send("demo", &news);
    origin.send("other", &[page(visitor(7), 1, now)]);
    let before = kv.clone();

    origin.start_with(&["other"]);
    assert_eq!(queue_depth(&origin.conn).unwrap(), (1, Some(now)));
    origin.now += KEY_PAUSE_MS;
    let writes = origin.drain(1);
    assert_eq!(keys(&writes), [format!("v:other:{}", visitor(7))]);
    origin.acknowledge(&writes);
    // The pause of the sibling ends while its tenant is not configured.
    origin.now += 2 * 60_000;
    origin.send("other", &[page(visitor(8), 1, now)]);
    let writes = origin.drain(1);
    assert_eq!(keys(&writes), [format!("v:other:{}", visitor(8))]);
    origin.acknowledge(&writes);
    super::set_back(&origin.conn, origin.now, 60_000, 120_000).unwrap();
    origin.settle(&mut kv);
    assert_eq!(queue_depth(&origin.conn).unwrap(), (0, None));
    assert_eq!(origin.sync(Default::default()).pending, 0);
    kv.retain(|key, _| !key.starts_with("v:other:"));
    assert!(kv == before, "nothing of it is written");

    origin.start_with(&["demo", "other"]);
    assert_eq!(queue_depth(&origin.conn).unwrap().0, 4);
    let mut writes = BTreeMap::new();
    origin.settle(&mut writes);
    assert_eq!(writes.into_keys().collect::<Vec<_>>(), [key(1), key(2), key(3), key(4)]);
}

#[test]
fn a_leased_key_goes_to_nobody_else_until_the_lease_ends() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let first = origin.drain(10);
    origin.send("demo", &[page(visitor(1), 2, NOW)]);
    origin.now += LEASE_MS - 1;
    assert!(origin.drain(10).is_empty());
    assert_eq!(origin.sync(Default::default()).pending, 0);
    origin.now += 1;
    let second = origin.drain(10);
    assert_eq!(keys(&second), [key(1)]);
    // The first consumer is late, so its acknowledgement settles nothing.
    origin.acknowledge(&first);
    origin.now += LEASE_MS;
    let third = origin.drain(10);
    assert_eq!(keys(&third), [key(1)]);
    origin.acknowledge(&third);
    origin.now += LEASE_MS;
    assert!(origin.drain(10).is_empty());
}

#[test]
fn a_key_is_written_at_most_once_a_second() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let first = origin.drain(10);
    origin.acknowledge(&first);
    for n in 2..10 {
        origin.send("demo", &[page(visitor(1), n, NOW)]);
        assert!(origin.drain(10).is_empty());
        origin.now += KEY_PAUSE_MS / 10;
    }
    origin.now += KEY_PAUSE_MS;
    assert_eq!(origin.drain(10).len(), 1);
}

#[test]
fn the_pause_of_a_key_also_follows_a_write_late_in_its_drain() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let first = origin.drain(10);
    origin.send("demo", &[page(visitor(1), 2, NOW)]);
    origin.now += KEY_PAUSE_MS;
    origin.acknowledge(&first);
    assert!(origin.drain(10).is_empty(), "the write may have been a moment ago");
    origin.now += KEY_PAUSE_MS;
    assert_eq!(keys(&origin.drain(10)), [key(1)]);
}

#[test]
fn a_key_that_changes_at_every_write_is_not_told_to_wait_since_the_first() {
    let mut origin = Origin::new();
    for n in 0..200 {
        origin.send("demo", &[page(visitor(1), 2 * n, origin.now)]);
        let writes = origin.drain(10);
        assert_eq!(keys(&writes), [key(1)]);
        origin.send("demo", &[page(visitor(1), 2 * n + 1, origin.now)]);
        origin.acknowledge(&writes);
        origin.now += KEY_PAUSE_MS;
        let (waiting, oldest) = queue_depth(&origin.conn).unwrap();
        assert_eq!(waiting, 1);
        assert!(oldest.unwrap() + 2 * KEY_PAUSE_MS >= origin.now, "{oldest:?}");
    }
    // A key that no consumer writes shows its waiting time.
    origin.now += 10 * KEY_PAUSE_MS;
    assert!(queue_depth(&origin.conn).unwrap().1.unwrap() + 10 * KEY_PAUSE_MS < origin.now);
}

#[test]
fn siblings_wait_for_their_persons_pause_and_are_written_once_in_it() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    for v in [1, 2] {
        origin.send("demo", &[origin.login(visitor(v), 1, NOW, "m")]);
    }
    origin.settle(&mut kv);
    for n in 2..6 {
        let now = origin.now;
        origin.send("demo", &[page(visitor(1), n, now)]);
        let writes = origin.drain(10);
        assert_eq!(keys(&writes), [key(1)], "only the own snapshot goes at once");
        origin.acknowledge(&writes);
        origin.now += 10_000;
    }
    origin.now += 20_000;
    let late = origin.drain(10);
    assert_eq!(keys(&late), [key(2)], "the own one is newer than the person's last change already");
    let mut store = BTreeMap::new();
    store.insert(late[0].key.clone(), late[0].value.clone().unwrap());
    assert_eq!(snapshot(&store, visitor(2)).profiles[&visitor(1)].totals().pages, 4);
    origin.acknowledge(&late);
    origin.now += 600_000;
    assert!(origin.drain(10).is_empty());
}

#[test]
fn snapshots_come_before_the_lookups_that_name_them() {
    let mut origin = Origin::new();
    origin.send("demo", &[origin.login(visitor(1), 1, NOW, "m"), page(visitor(2), 1, NOW)]);
    let writes = origin.drain(10);
    assert_eq!(writes.len(), 3);
    assert!(writes[2].key.starts_with("a:demo:1:"));
    let named = kv::decode_lookup(&writes[2].key, writes[2].value.as_ref().unwrap().as_bytes()).unwrap();
    assert_eq!(named, [visitor(1)]);
    let ordered = writes.windows(2).all(|w| w[0].version < w[1].version);
    assert!(ordered, "versions only grow");
}

#[test]
fn a_large_person_is_truncated_to_the_visitors_last_active_and_still_counted() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    let many = u32::try_from(limits::SNAPSHOT_VISITORS).unwrap() + 9;
    let facts: Vec<_> = (0..many)
        .flat_map(|v| {
            let at = NOW - 3_600_000 * u64::from(many - v);
            [page(visitor(v), 1, at), origin.login(visitor(v), 2, at, "m")]
        })
        .collect();
    origin.send("demo", &facts);
    origin.settle(&mut kv);
    let own = snapshot(&kv, visitor(0));
    assert_eq!(own.profiles.len(), limits::SNAPSHOT_VISITORS);
    assert!(!own.missing().is_empty());
    assert_eq!(own.membership.devices, many);
    assert!(own.profiles.contains_key(&visitor(0)), "the own profile is always there");
    assert!(own.profiles.contains_key(&visitor(many - 1)) && !own.profiles.contains_key(&visitor(1)));
    assert_eq!(
        snapshot(&kv, visitor(many - 1)).profiles.len(),
        limits::SNAPSHOT_VISITORS,
        "its own profile is one of them"
    );
    assert_eq!(origin.view("demo", visitor(0)).pages, u64::from(many));
}

#[test]
fn what_one_call_is_handed_is_bounded() {
    let mut origin = Origin::new();
    let facts: Vec<_> = (0..250).map(|v| page(visitor(v), 1, NOW)).collect();
    origin.send("demo", &facts);
    assert_eq!(origin.drain(u16::MAX).len(), limits::SYNC_PUBLISH);
    assert_eq!(origin.drain(7).len(), 7);
    let rest = origin.sync(Default::default()).pending;
    assert_eq!(rest, 250 - 7 - limits::SYNC_PUBLISH as u64);
}

#[test]
fn a_visitor_with_more_segments_than_a_snapshot_holds_is_published_with_the_newest() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    let held = |id: u32| {
        let attributes = (0..4).map(|token| (token, i32::MAX - i32::from(token)));
        (SegmentId(id * 4_000), SegmentState::held(HourStamp(184_104), attributes))
    };
    let facts: Vec<_> = (0..10)
        .map(|n| {
            let writes = (0..1_000).map(|i| held(n * 1_000 + i)).collect();
            fact(visitor(1), n, NOW + u64::from(n), FactKind::Segments { writes })
        })
        .collect();
    origin.send("demo", &facts);
    origin.settle(&mut kv);
    let own = snapshot(&kv, visitor(1));
    let packed = own.profiles[&visitor(1)].segments().unwrap();
    assert!(!own.missing().is_empty() && (1_000..10_000).contains(&packed.len()), "{}", packed.len());
    assert!(packed.iter().any(|(id, _)| id == SegmentId(9_999 * 4_000)), "the newest are there");
    assert_eq!(origin.profile("demo", visitor(1)).segments().len(), 10_000);
}

#[test]
fn a_write_of_an_abandoned_consumer_is_overwritten() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let late = origin.drain(10);
    origin.now += LEASE_MS;
    let again = origin.drain(10);
    origin.acknowledge(&again);
    assert!(late[0].version < again[0].version, "and may be written after it");
    origin.now += LATE_MS;
    let last = origin.drain(10);
    assert_eq!(keys(&last), [key(1)]);
    assert!(last[0].version > again[0].version);
    origin.acknowledge(&last);
    origin.now += LATE_MS;
    assert!(origin.drain(10).is_empty(), "no write can be late any more");
}

#[test]
fn a_snapshot_that_segments_make_too_long_still_has_its_actions() {
    let mut origin = Origin::new();
    let logins: Vec<_> = (1..=8).map(|v| origin.login(visitor(v), 1, NOW, "ann")).collect();
    origin.send("demo", &logins);
    let hour = HourStamp::at(NOW).0;
    for n in 0..1_000 {
        // Written one by one, each at another time, which gives the longest segments.
        let write = |v: u32| {
            let state = SegmentState::held(HourStamp(hour + 100 + (n * 7 + v) % 5_000), []);
            let what = FactKind::Segments { writes: vec![(SegmentId(n * 1_000 + v), state)] };
            fact(visitor(v), 10 + n, NOW + u64::from(n) * 1_700 + u64::from(v), what)
        };
        origin.now = NOW + u64::from(n) * 1_700 + 100;
        origin.send("demo", &(1..=8).map(write).collect::<Vec<_>>());
    }
    let seen: Vec<_> =
        (1..=8).map(|v| impression(visitor(v), 5_000 + v, origin.now + u64::from(v) * 3_600_000)).collect();
    origin.now += 9 * 3_600_000;
    origin.send("demo", &seen);
    let mut kv = BTreeMap::new();
    origin.settle(&mut kv);
    let snapshot = snapshot(&kv, visitor(1));
    assert!(!snapshot.missing().is_empty() && kv[&key(1)].len() > limits::KV_VALUE_CHARS / 2);
    let actions =
        |sub: &causeway_shared::profiles::profile::SubProfile| sub.actions().is_some_and(|all| all.iter().count() == 1);
    assert!(snapshot.profiles.values().all(actions), "a cap counts what is shown");
    let all = (1..=8).map(|v| self::snapshot(&kv, visitor(v)));
    let bare = all.filter(|snapshot| {
        assert_eq!(snapshot.membership.admits.iter().next(), Some(&visitor(1)), "all find the same object");
        !snapshot.profiles.values().all(actions)
    });
    assert!(bare.count() > 0, "some by name alone");
}

#[test]
fn a_row_that_cannot_be_read_keeps_back_its_own_person_alone() {
    let mut origin = Origin::new();
    let logins = [1, 2].map(|v| origin.login(visitor(v), 1, NOW, "ann"));
    origin.send("demo", &logins);
    origin.settle(&mut BTreeMap::new());
    let damage = "UPDATE visitors SET profile = x'ff' WHERE visitor = ?1";
    origin.conn.execute(damage, [visitor(1).as_bytes()]).unwrap();
    origin.now += 10_000;
    origin.send("demo", &[page(visitor(2), 2, origin.now), page(visitor(3), 1, origin.now)]);
    assert_eq!(keys(&origin.drain(10)), [key(3)]);
    assert_eq!(origin.metrics.bad_values.get(), 1);
}

#[test]
fn all_browsers_of_a_large_person_use_the_same_object() {
    let mut origin = Origin::new();
    let logins: Vec<_> = (1..=60).map(|v| origin.login(visitor(v), 1, NOW + u64::from(v), "ann")).collect();
    origin.send("demo", &logins);
    let mut kv = BTreeMap::new();
    origin.settle(&mut kv);
    for v in 1..=60 {
        let snapshot = snapshot(&kv, visitor(v));
        let named: Vec<_> = snapshot.membership.admits.iter().copied().collect();
        assert_eq!((named.len(), named[0], snapshot.membership.devices), (limits::SNAPSHOT_VISITORS, visitor(1), 60));
        assert!(named.contains(&visitor(v)) && !snapshot.missing().is_empty());
    }
}
