//! Jobs that write the KV again.

use std::collections::BTreeSet;

use causeway_shared::base::ids::{AltHash, AlternateId};
use causeway_shared::keys::key_ring::RingKey;
use causeway_shared::wire::kv_keys::{catalogue_key, pointer_key};
use causeway_shared::wire::sync::KvWrite;

use super::*;
use crate::campaigns::catalogue;
use crate::testing::{snapshot, withdrawal};

#[test]
fn what_the_kv_lost_is_published_anew_and_a_run_that_was_cut_goes_on() {
    let mut world = World::with(0);
    let pages: Vec<_> = (0..2_300).map(|v| page(visitor(v), 1, NOW)).collect();
    world.origin.send("demo", &pages);
    let logins = [1, 2, 900].map(|v| world.origin.login(visitor(v), 2, NOW, "ann"));
    world.origin.send("demo", &logins);
    world.origin.send("demo", &[super::materialised::lives_in(3, 3, NOW, "Oslo")]);
    let mut kv = BTreeMap::new();
    // The newest three versions stay, the first two are due for deletion.
    for n in 0..5 {
        apply(&mut world, n);
        world.origin.settle(&mut kv);
    }
    let before = world.dump();
    let dry = world.all(JobKind::Publish, true);
    assert_eq!(dry.report, json!({ "snapshots": 2_300, "lookups": 1, "of_tenants": 5 }));
    assert_eq!(world.dump(), before, "a dry run changes nothing");
    let run = world.begin(JobKind::Publish, false);
    assert_eq!(world.run(&run, 1).outcome, Some(RunOutcome::Interrupted));
    let again = runs::begin_waiting(&mut world.origin.conn, world.origin.now, Some(true)).unwrap().unwrap();
    assert_eq!((again.no, again.cursor), (run.no, 500));
    assert_eq!(world.run(&again, u64::MAX).report, dry.report);
    let first = world.origin.drain(50);
    let is_first = |key: String| first.iter().any(|write| write.key == key);
    let demo = "demo".parse().unwrap();
    assert_eq!(
        [catalogue_key(&demo, 5), pointer_key(&demo)].map(is_first),
        [true, false],
        "nothing is pointed to that is not there"
    );
    world.origin.acknowledge(&first);
    let mut lost: BTreeMap<String, String> = first.into_iter().filter_map(|w| Some((w.key, w.value?))).collect();
    world.origin.settle(&mut lost);
    let leave = [1, 2].map(|version| catalogue_key(&demo, version));
    let is_wanted = |key: &&String| !leave.contains(key);
    assert_eq!(lost.keys().collect::<Vec<_>>(), kv.keys().filter(is_wanted).collect::<Vec<_>>());
    let of = |kv: &BTreeMap<String, String>| match stored(kv, visitor(900)) {
        StoredValue::Snapshot(snapshot) => (snapshot.membership.devices, snapshot.profiles.len()),
        StoredValue::Tombstone => (0, 0),
    };
    assert_eq!((of(&lost), of(&kv)), ((3, 3), (3, 3)));
}

/// Applies the next version of a catalogue.
fn apply(world: &mut World, n: u32) {
    let (tenant, given) = (world.origin.tenant("demo").clone(), world.origin.given());
    let document = json!({ "advertiser": [{ "id": n.to_string(), "code": 1 + n }] });
    catalogue::apply(&mut world.origin.conn, &world.origin.rules, given, &tenant, document, "tests").unwrap();
}

#[test]
fn a_catalogue_on_its_way_when_all_is_written_anew_is_pointed_to_all_the_same() {
    let mut world = World::with(0);
    let mut kv = BTreeMap::new();
    apply(&mut world, 0);
    world.origin.settle(&mut kv);
    // Entries that were handed out are acknowledged after the job, including the job's own.
    apply(&mut world, 1);
    for _ in 0..3 {
        let on_its_way = world.origin.drain(10);
        world.all(JobKind::Publish, false);
        world.origin.acknowledge(&on_its_way);
    }
    world.origin.settle(&mut kv);
    let key = pointer_key(&"demo".parse().unwrap());
    let pointer = causeway_shared::wire::catalogue::decode_pointer(&key, kv[&key].as_bytes()).unwrap();
    assert_eq!(pointer.version, 2);
}

#[test]
fn cuts_and_new_facts_are_published_before_a_complete_republish() {
    let mut world = World::with(0);
    let pages: Vec<_> = (0..2_300).map(|v| page(visitor(v), 1, NOW)).collect();
    world.origin.send("demo", &pages);
    world.origin.settle(&mut BTreeMap::new());
    world.all(JobKind::Publish, false);
    let keys = |writes: &[KvWrite]| writes.iter().map(|write| write.key.clone()).collect::<BTreeSet<_>>();
    let key = |v| format!("v:demo:{}", visitor(v));
    let pages: Vec<_> = (0..85).map(|v| page(visitor(1_000 + v), 2, NOW)).collect();
    world.origin.now += 5_000;
    world
        .origin
        .send("demo", &[&[withdrawal(visitor(2_200), NOW + 5), page(visitor(9_999), 1, NOW)], &pages[..]].concat());
    let first = world.origin.drain(100);
    assert!([2_200, 9_999, 1_000, 1_084].iter().all(|v| keys(&first).contains(&key(*v))));
    // Keys of bulk priority get a tenth of each batch, however many news there are.
    assert_eq!(keys(&first).len(), 100);
    world.origin.acknowledge(&first);
    let pages: Vec<_> = (0..200).map(|v| page(visitor(1_500 + v), 2, NOW)).collect();
    world.origin.send("demo", &pages);
    let next = world.origin.drain(100);
    let news = (1_500..1_700).filter(|v| keys(&next).contains(&key(*v))).count();
    assert_eq!((next.len(), news), (100, 90));
}

#[test]
fn new_segments_of_a_visitor_reach_its_siblings_snapshots_and_no_others_are_read() {
    let mut world = World::with(0);
    // People with three visitors each, published long ago.
    let logins = |v: u32| (0..3).map(move |n| (3 * v + n, format!("m{v}")));
    let all: Vec<Fact> =
        (0..1_200).flat_map(logins).map(|(v, member)| world.origin.login(visitor(v), 1, NOW, &member)).collect();
    world.origin.send("demo", &all);
    let mut kv = BTreeMap::new();
    world.origin.settle(&mut kv);
    let held = SegmentState::held(HourStamp::at(world.origin.now + 9 * HOUR_MS), []);
    let write =
        |v, id| fact(visitor(v), id, NOW + 5, FactKind::Segments { writes: vec![(SegmentId(id), held.clone())] });
    let new: Vec<_> = (0..1_100).flat_map(|v| [write(3 * v, 7), write(3 * v + 1, 8)]).collect();
    world.origin.send("demo", &new);
    let written = |world: &mut World, kv: &mut BTreeMap<String, String>| {
        let mut count = 0;
        loop {
            let writes = world.origin.drain(500);
            count += writes.len();
            kv.extend(writes.iter().filter_map(|write| Some((write.key.clone(), write.value.clone()?))));
            world.origin.acknowledge(&writes);
            if writes.is_empty() {
                return count;
            }
        }
    };
    assert_eq!(written(&mut world, &mut kv), 2_200, "their own, at once");
    let before = world.dump();
    assert_eq!(world.all(JobKind::Compact, true).report, json!({ "people": 1_100 }));
    assert_eq!(world.dump(), before, "a dry run changes nothing");
    let run = world.begin(JobKind::Compact, false);
    assert_eq!(world.run(&run, 1).outcome, Some(RunOutcome::Interrupted));
    let again = runs::begin_waiting(&mut world.origin.conn, world.origin.now, Some(true)).unwrap().unwrap();
    let run = world.run(&again, u64::MAX);
    assert_eq!(run.report, json!({ "people": 1_100, "snapshots": 1_100 }));
    world.origin.now += 1_000;
    assert_eq!(written(&mut world, &mut kv), 1_100, "siblings without news of their own, long before their pauses end");
    for v in [0, 1, 2, 3_297, 3_298, 3_299, 3_300] {
        let snapshot = snapshot(&kv, visitor(v));
        let union: Vec<_> = snapshot
            .profiles
            .values()
            .filter_map(|of| of.segments())
            .flat_map(|of| of.iter())
            .map(|(id, _)| id)
            .collect();
        let expected: &[SegmentId] = if v < 3_300 { &[SegmentId(7), SegmentId(8)] } else { &[] };
        assert_eq!(union, expected, "{v}");
    }
    assert_eq!(world.all(JobKind::Compact, false).report, json!({ "people": 0, "snapshots": 0 }));
}

#[test]
fn lookups_under_a_key_that_is_no_longer_read_leave_the_kv_once() {
    let mut world = World::with(0);
    let old = world.origin.member("demo", "ann");
    let [first, ..] = old.hash.0;
    let new = AltHash([first + 1; 16]);
    world.origin.change_keys("demo", |keys| keys.push(RingKey { id: first + 1, ..keys[0].clone() }));
    let seen = fact(visitor(1), 1, NOW, FactKind::Alias { id: old, also: vec![new], proven: true });
    let logins = (2..700).map(|v| world.origin.login(visitor(v), 1, NOW, &format!("m{v}")));
    let all: Vec<Fact> = std::iter::once(seen).chain(logins).collect();
    world.origin.send("demo", &all);
    let mut kv = BTreeMap::new();
    world.origin.settle(&mut kv);
    let lookups = |kv: &BTreeMap<String, String>| kv.keys().filter(|key| key.starts_with("a:")).count();
    assert_eq!(lookups(&kv), 700, "under both keys where both are known");
    assert_eq!(world.all(JobKind::Trim, false).report["lookups"], 0);
    world.origin.change_keys("demo", |keys| keys.retain(|key| key.id != first));
    let before = world.dump();
    assert_eq!(world.all(JobKind::Trim, true).report["lookups"], 699);
    assert_eq!(world.dump(), before, "a dry run changes nothing");
    world.beside = true;
    assert_eq!(
        world.all(JobKind::Trim, false).report["lookups"],
        0,
        "an origin that has the key still would write them"
    );
    world.beside = false;
    let run = world.begin(JobKind::Trim, false);
    assert_eq!(world.run(&run, 4).outcome, Some(RunOutcome::Interrupted), "between two of its transactions");
    let again = runs::begin_waiting(&mut world.origin.conn, world.origin.now, Some(true)).unwrap().unwrap();
    assert_eq!(world.run(&again, u64::MAX).report["lookups"], 699);
    world.origin.settle(&mut kv);
    assert_eq!(lookups(&kv), 1);
    assert_eq!(world.all(JobKind::Trim, false).report["lookups"], 0, "once");
    // A login under the new key finds the same member.
    let id = AlternateId { hash: new, ..old };
    world
        .origin
        .send("demo", &[fact(visitor(9_000), 1, NOW + 5, FactKind::Alias { id, also: Vec::new(), proven: true })]);
    world.origin.settle(&mut kv);
    assert_eq!((world.origin.person("demo", visitor(9_000)).devices, lookups(&kv)), (2, 1));
    // After the key is restored, its deleted lookups are published again.
    world.origin.change_keys("demo", |keys| keys.push(RingKey { id: first, ..keys[0].clone() }));
    assert_eq!(world.all(JobKind::Trim, true).report["lookups"], 0);
    world.origin.settle(&mut kv);
    assert_eq!(lookups(&kv), 1, "a dry run changes nothing");
    for _ in 0..2 {
        assert_eq!(world.all(JobKind::Trim, false).report["lookups"], 0);
        world.origin.settle(&mut kv);
        assert_eq!(lookups(&kv), 700);
    }
    world.origin.change_keys("demo", |keys| keys.retain(|key| key.id != first));
    assert_eq!(world.all(JobKind::Trim, false).report["lookups"], 699, "and may be taken away once more");
}
