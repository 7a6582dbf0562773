//! Acknowledged facts survive every failure (invariant 6), and count once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::fact::Fact;

use crate::support::{Origin, Place, cases, hold, impression, page, purchase, request, visitor, within};

const VISITORS: u32 = 200;
const EACH: u32 = 25;
/// Kills anywhere in the intake and the folding, short and long.
const KILLS: [u64; 2] = [50, 200];

/// 5,000 events of 200 visitors, in batches of 10.
fn burst() -> Vec<Vec<Fact>> {
    let event = |i: u32| {
        let v = visitor(i % VISITORS);
        if i.is_multiple_of(5) { purchase(v, i, 1_000_000) } else { page(v, i) }
    };
    let all: Vec<Fact> = (0..VISITORS * EACH).map(event).collect();
    all.chunks(10).map(<[Fact]>::to_vec).collect()
}

/// Posts each batch once, from several threads; returns the indexes of the acknowledged batches.
fn post(origin: &Origin, batches: &[Vec<Fact>], done: &AtomicUsize) -> Vec<usize> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut acknowledged = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(place) else {
                return acknowledged;
            };
            if origin.try_sync(&request(batch)).is_some() {
                done.fetch_add(1, Ordering::Relaxed);
                acknowledged.push(place);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    })
}

/// Waits until a condition holds.
fn until(mut holds: impl FnMut() -> bool) {
    within(Duration::from_secs(60), "the condition holds", || holds().then_some(()).ok_or("not yet"));
}

/// (pages, purchases) of each visitor of these facts.
fn expected<'a>(facts: impl Iterator<Item = &'a Fact>) -> BTreeMap<String, (u64, u64)> {
    let mut totals = BTreeMap::new();
    for fact in facts {
        let entry: &mut (u64, u64) = totals.entry(fact.visitor.to_string()).or_default();
        if matches!(fact.what, causeway_shared::facts::fact::FactKind::Page { .. }) {
            entry.0 += 1
        } else {
            entry.1 += 1
        }
    }
    totals
}

fn stored(origin: &Origin, token: &str) -> BTreeMap<String, (u64, u64)> {
    let mut totals = BTreeMap::new();
    for v in (0..VISITORS).map(visitor) {
        let answer = origin.admin(token, &format!("visitors/{v}?tenant=demo"));
        if answer.status == 200 {
            let own = &answer.json()["own"];
            totals.insert(v.to_string(), (own["pages"].as_u64().unwrap(), own["purchases"].as_u64().unwrap()));
        }
    }
    totals
}

#[test]
fn killed_in_a_burst_nothing_acknowledged_is_lost_and_nothing_counts_twice() {
    let place = Place::new();
    let token = place.token("viewer");
    let batches = burst();
    let origin = place.serve();
    let done = AtomicUsize::new(0);
    let acknowledged = std::thread::scope(|scope| {
        let posting = scope.spawn(|| post(&origin, &batches, &done));
        until(|| done.load(Ordering::Relaxed) >= batches.len() / 3);
        origin.signal("-KILL");
        posting.join().unwrap()
    });
    assert!(acknowledged.len() < batches.len(), "the kill was too late to test anything");
    drop(origin);

    let origin = place.serve();
    let sums = expected(acknowledged.iter().flat_map(|i| &batches[*i]));
    let found = stored(&origin, &token);
    for (visitor, (pages, purchases)) in &sums {
        let (p, b) = found[visitor];
        assert!(p >= *pages && b >= *purchases, "an acknowledged fact is lost");
    }
    // The edge repeats the batches without an acknowledgement, and some that have one.
    let rest: Vec<Vec<Fact>> = batches.iter().rev().chain(batches.iter().take(100)).cloned().collect();
    assert_eq!(post(&origin, &rest, &AtomicUsize::new(0)).len(), rest.len());
    assert_eq!(stored(&origin, &token), expected(batches.iter().flatten()));
}

/// Numbers without order (Marsaglia's xorshift), the same in every run.
fn shuffled(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn killed_again_and_again_anywhere_in_intake_and_folding_nothing_is_missing_or_doubled() {
    let rounds = cases(KILLS);
    let place = Place::new();
    let token = place.token("viewer");
    let mut seed = 88_172_645_463_325_252;
    let mut waiting: Vec<Vec<Fact>> = Vec::new();
    let (mut acknowledged, mut cut_short) = (Vec::new(), 0_u64);
    for round in 0..rounds {
        let event = |i: u32| {
            let n = u32::try_from(round).unwrap() * 1_000 + i;
            let v = visitor(n * 7 % VISITORS);
            if i.is_multiple_of(5) { purchase(v, n, 1_000_000) } else { page(v, n) }
        };
        let new: Vec<Fact> = (0..200).map(event).collect();
        waiting.extend(new.chunks(4).map(<[Fact]>::to_vec));
        let origin = place.serve();
        let done = AtomicUsize::new(0);
        // The kill comes after a number of acknowledgements, at a pseudo-random moment.
        let kill_after = usize::try_from(shuffled(&mut seed)).unwrap() % (waiting.len() * 3 / 4);
        let spins = shuffled(&mut seed) % 100_000;
        let taken = std::thread::scope(|scope| {
            let posting = scope.spawn(|| post(&origin, &waiting, &done));
            until(|| done.load(Ordering::Relaxed) >= kill_after);
            (0..spins).for_each(|_| std::hint::spin_loop());
            origin.signal("-KILL");
            posting.join().unwrap()
        });
        drop(origin);
        cut_short += u64::from(taken.len() < waiting.len());
        let of_round = std::mem::take(&mut waiting);
        for (i, batch) in of_round.into_iter().enumerate() {
            // An acknowledged batch is not sent again, so that a loss of it shows.
            if taken.contains(&i) { acknowledged.push(batch) } else { waiting.push(batch) }
        }
    }
    assert!(cut_short > rounds / 4, "the kills were too late to test anything: {cut_short}");

    let origin = place.serve();
    let barrier = causeway_shared::wire::sync::SyncRequest { applied: vec![0], ..request(&[]) };
    origin.sync(&barrier);
    let found = stored(&origin, &token);
    for (visitor, (pages, purchases)) in expected(acknowledged.iter().flatten()) {
        let (p, b) = found[&visitor];
        assert!(p >= pages && b >= purchases, "an acknowledged fact is lost");
    }
    let all: Vec<Vec<Fact>> = acknowledged.into_iter().chain(waiting).collect();
    assert_eq!(post(&origin, &all, &AtomicUsize::new(0)).len(), all.len());
    origin.sync(&barrier);
    assert_eq!(stored(&origin, &token), expected(all.iter().flatten()));
}

#[test]
fn a_stop_finishes_what_is_under_way_and_ends_well() {
    let place = Place::new();
    let token = place.token("viewer");
    let batches = burst();
    let mut origin = place.serve();
    let done = AtomicUsize::new(0);
    let acknowledged = std::thread::scope(|scope| {
        let posting = scope.spawn(|| post(&origin, &batches, &done));
        until(|| done.load(Ordering::Relaxed) >= batches.len() / 3);
        origin.signal("-TERM");
        posting.join().unwrap()
    });
    assert_eq!(origin.wait(), Some(0), "{}", place.log());
    assert!(acknowledged.len() < batches.len(), "the stop was too late to test anything");
    let wal = place.path().join("data/causeway.db-wal");
    assert!(std::fs::metadata(wal).map_or(0, |m| m.len()) == 0, "a stopped store is one file");

    // The origin drained: it stored exactly the acknowledged facts.
    let origin = place.serve();
    let sums = expected(acknowledged.iter().flat_map(|i| &batches[*i]));
    assert_eq!(stored(&origin, &token), sums);
}

#[test]
fn two_origins_never_share_a_store() {
    let place = Place::new();
    let _origin = place.serve();
    let second = place.run(&["serve"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("stop it first"));
}

#[test]
fn when_the_store_takes_nothing_nothing_is_acknowledged_and_it_recovers() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    // Another writer locks the log for longer than the origin waits.
    let held = hold(&place, "log.db");
    let body = causeway_shared::wire::sync::encode_request(&request(&[page(visitor(1), 2)]));
    let answer = origin.post_signed(&body);
    assert_eq!((answer.status, answer.code().as_str()), (503, "store"));
    assert!(answer.head.contains("retry-after: 1"));
    assert_eq!(origin.get("/readyz").status, 503);
    assert_eq!(origin.metric("causeway_ready"), "0");
    drop(held);
    until(|| origin.get("/readyz").status == 200);
    assert_eq!(origin.send(&[page(visitor(1), 2)]).accepted, 1);
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 2);
}

#[test]
fn acknowledged_facts_are_readable_while_the_store_cannot_be_written() {
    let place = Place::new();
    let token = place.token("viewer");
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1), impression(visitor(1), 1)]);
    let held = hold(&place, "causeway.db");
    let facts = [page(visitor(1), 1), page(visitor(1), 2), impression(visitor(1), 1), impression(visitor(1), 2)];
    assert_eq!(origin.sync(&request(&facts)).accepted, 4);
    assert_eq!(origin.sync(&request(&[page(visitor(2), 1)])).accepted, 1);
    let pages = |visitor: VisitorId| {
        origin.admin(&token, &format!("visitors/{visitor}?tenant=demo")).json()["own"]["pages"].clone()
    };
    assert_eq!((pages(visitor(1)), pages(visitor(2))), (2.into(), 1.into()));
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 2, "another process reads the log too");
    let ask = serde_json::json!({ "visitor": visitor(1).to_string(), "actions": ["impression"], "level": "ad",
        "last": { "interval": 2, "unit": "days" }, "ids": [4] });
    let counts = || {
        let header = [("authorization", format!("Bearer {token}"))];
        origin.call("POST", "/admin/v1/counts?tenant=demo", &header, ask.to_string().as_bytes()).json()
    };
    assert_eq!(counts(), serde_json::json!({ "counts": { "4": 2 } }));
    drop(held);
    until(|| origin.metric("causeway_unfolded_facts") == "0");
    assert_eq!((pages(visitor(1)), counts()["counts"]["4"].clone()), (2.into(), 2.into()));
}

#[test]
fn a_process_that_ends_before_it_folds_leaves_its_facts_to_the_next() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let held = hold(&place, "causeway.db");
    assert_eq!(origin.sync(&request(&[page(visitor(1), 1), page(visitor(1), 2)])).accepted, 2);
    origin.kill();
    drop(held);
    let origin = place.serve();
    until(|| origin.metric("causeway_unfolded_facts") == "0" && origin.metric("causeway_facts_accepted_total") == "1");
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 2);
}

#[test]
fn a_full_disk_refuses_loses_nothing_and_is_left_behind_by_itself() {
    let place = Place::new();
    let token = place.token("viewer");
    let origin = place.serve();
    origin.send(&[page(visitor(0), 999_999)]);
    // Log and store may grow by at most 300 KB.
    let largest = std::fs::read_dir(place.path().join("data")).unwrap();
    let largest = largest.map(|file| file.unwrap().metadata().unwrap().len()).max().unwrap();
    origin.limit_files(Some(largest + 300_000));
    let batches = burst();
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    for batch in &batches {
        let body = causeway_shared::wire::sync::encode_request(&request(batch));
        match origin.post_signed(&body).status {
            200 => acknowledged.push(batch),
            503 => refused.push(batch.clone()),
            other => unreachable!("{other}"),
        }
    }
    assert!(!acknowledged.is_empty() && refused.len() > 10, "{} and {}", acknowledged.len(), refused.len());
    assert_eq!(origin.get("/readyz").status, 503);
    origin.limit_files(None);
    until(|| origin.get("/readyz").status == 200 && origin.metric("causeway_unfolded_facts") == "0");
    let first = page(visitor(0), 999_999);
    let facts = acknowledged.iter().flat_map(|batch| batch.iter()).chain([&first]);
    assert_eq!(stored(&origin, &token), expected(facts), "exactly the acknowledged facts");
    assert_eq!(post(&origin, &refused, &AtomicUsize::new(0)).len(), refused.len());
    origin.send(&[page(visitor(0), 999_999)]);
    assert_eq!(stored(&origin, &token), expected(batches.iter().flatten().chain([&first])));
}
