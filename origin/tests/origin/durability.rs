//! What was acknowledged is there after anything (invariant 6), and counts once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_shared::fact::Fact;

use crate::support::{Origin, Place, page, purchase, request, visitor};

const VISITORS: u32 = 200;
const EACH: u32 = 25;

/// 5,000 events of 200 visitors, in batches of 10.
fn burst() -> Vec<Vec<Fact>> {
    let event = |i: u32| {
        let v = visitor(i % VISITORS);
        if i.is_multiple_of(5) { purchase(v, i, 1_000_000) } else { page(v, i) }
    };
    let all: Vec<Fact> = (0..VISITORS * EACH).map(event).collect();
    all.chunks(10).map(<[Fact]>::to_vec).collect()
}

/// Posts batches from several threads until all were tried; gives those that were acknowledged.
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

/// Waits until a condition holds, without a pause: the other side works meanwhile.
fn until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::yield_now();
    }
}

/// (pages, purchases) of every visitor that these facts make.
fn expected<'a>(facts: impl Iterator<Item = &'a Fact>) -> BTreeMap<String, (u64, u64)> {
    let mut totals = BTreeMap::new();
    for fact in facts {
        let entry: &mut (u64, u64) = totals.entry(fact.visitor.to_string()).or_default();
        if matches!(fact.what, causeway_shared::fact::What::Page { .. }) { entry.0 += 1 } else { entry.1 += 1 }
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
    assert!(acknowledged.len() < batches.len(), "the kill came too late to show anything");
    drop(origin);

    let origin = place.serve();
    let kept = expected(acknowledged.iter().flat_map(|i| &batches[*i]));
    let found = stored(&origin, &token);
    for (visitor, (pages, purchases)) in &kept {
        let (p, b) = found[visitor];
        assert!(p >= *pages && b >= *purchases, "an acknowledged fact is gone");
    }
    // The edge sends again what was not acknowledged, and a good part of what was.
    let rest: Vec<Vec<Fact>> = batches.iter().rev().chain(batches.iter().take(100)).cloned().collect();
    assert_eq!(post(&origin, &rest, &AtomicUsize::new(0)).len(), rest.len());
    assert_eq!(stored(&origin, &token), expected(batches.iter().flatten()));
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
    assert!(acknowledged.len() < batches.len(), "the stop came too late to show anything");
    let wal = place.path().join("data/causeway.db-wal");
    assert!(std::fs::metadata(wal).map_or(0, |m| m.len()) == 0, "a stopped store is one file");

    // Drained, not cut: what was kept is what was acknowledged, no more and no less.
    let origin = place.serve();
    let kept = expected(acknowledged.iter().flat_map(|i| &batches[*i]));
    assert_eq!(stored(&origin, &token), kept);
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
    // Another writer holds the store for longer than the origin waits.
    let mut other = rusqlite::Connection::open(place.path().join("data/causeway.db")).unwrap();
    let held = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
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
