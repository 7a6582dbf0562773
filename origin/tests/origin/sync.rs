//! The effects of a sync, over HTTP.

use causeway_shared::base::ids::SnapshotVersion;
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::sync::SyncRequest;
use causeway_shared::wire::{kv, sync};
use serde_json::json;

use crate::support::{Place, batch, now, page, purchase, request, visitor};

#[test]
fn the_same_batch_posted_three_times_changes_nothing() {
    let place = Place::new();
    let origin = place.serve();
    let facts = [page(visitor(1), 1), page(visitor(1), 2), page(visitor(2), 1)];
    let first = origin.send(&facts);
    assert_eq!((first.accepted, first.duplicate), (3, 0));
    let before = (place.inspect(visitor(1)), place.inspect(visitor(2)));
    for _ in 0..2 {
        origin.send(&facts);
    }
    assert_eq!(origin.metric("causeway_facts_accepted_total"), "3");
    assert_eq!(origin.metric("causeway_facts_duplicate_total"), "6");
    let twice = origin.send(&[page(visitor(3), 1), page(visitor(3), 1)]);
    assert_eq!((twice.accepted, twice.duplicate), (1, 1), "a repeat within a sync is known at once");
    assert_eq!((place.inspect(visitor(1)), place.inspect(visitor(2))), before);
    assert_eq!(before.0["own"]["pages"], 2);
}

#[test]
fn a_purchase_in_two_syncs_counts_once_in_own_and_view() {
    let place = Place::new();
    let origin = place.serve();
    let buy = purchase(visitor(1), 1, 5_000_000);
    origin.send(&[buy.clone(), origin.login(visitor(1), 2, "m")]);
    origin.send(&[buy, origin.login(visitor(2), 1, "m")]);
    let found = place.inspect(visitor(2));
    assert_eq!(found["own"]["purchases"], 0);
    assert_eq!(found["view"]["purchases"], 1);
    assert_eq!(found["view"]["revenue_micros"], 5_000_000);
    assert_eq!(found["person"]["devices"], 2);
}

/// The sample flow of one person on two browsers (docs/CONCEPTS.md), as the origin sees it.
#[test]
fn the_sample_flow() {
    let place = Place::new();
    let origin = place.serve();
    let (abc, def) = (visitor(1), visitor(2));
    origin.send(&[page(abc, 1)]);
    origin.send(&[page(abc, 2), origin.login(abc, 3, "123")]);
    origin.send(&[purchase(abc, 4, 9_000_000)]);
    origin.send(&[page(def, 1)]);
    origin.send(&[page(def, 2), origin.login(def, 3, "123")]);

    let token = place.token("viewer");
    let lookup = origin.admin(&token, "lookups/member/123?tenant=demo").json();
    assert_eq!(lookup["visitor"], def.to_string());
    let found = origin.admin(&token, &format!("visitors/{abc}?tenant=demo")).json();
    assert_eq!((&found["own"]["pages"], &found["own"]["purchases"]), (&2.into(), &1.into()));
    let found = origin.admin(&token, &format!("visitors/{def}?tenant=demo")).json();
    assert_eq!((&found["own"]["pages"], &found["own"]["purchases"]), (&2.into(), &0.into()));
    assert_eq!((&found["view"]["pages"], &found["view"]["purchases"]), (&4.into(), &1.into()));
    assert_eq!(found["person"]["master"], abc.to_string());
    assert_eq!(found["person"]["devices"], 2);

    let writes = origin.sync(&SyncRequest { drain: 50, ..SyncRequest::default() }).publish;
    let key = format!("v:demo:{def}");
    let write = writes.iter().find(|w| w.key == key).unwrap();
    let value = write.value.as_ref().unwrap();
    let StoredValue::Snapshot(snapshot) = kv::decode_stored(&key, def, value.as_bytes()).unwrap() else {
        unreachable!("a tombstone");
    };
    assert_eq!(snapshot.profiles[&abc].totals().purchases, 1);
    assert_eq!(snapshot.membership.devices, 2);
    assert_eq!(snapshot.unique, [origin.member("123").hash]);
}

#[test]
fn versions_grow_over_a_restart() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let drain = SyncRequest { drain: 1, ..SyncRequest::default() };
    let first = origin.sync(&drain).publish.remove(0);
    origin.kill();
    let origin = place.serve();
    origin.send(&[page(visitor(2), 1)]);
    let second = origin.sync(&drain).publish.remove(0);
    assert!(second.version > first.version && first.version > SnapshotVersion::default());
}

#[test]
fn a_bad_fact_or_batch_does_not_sink_its_neighbours() {
    let place = Place::new();
    let origin = place.serve();
    let mut old = page(visitor(1), 1);
    (old.received, old.at) = (1, 1);
    let mut ahead = page(visitor(1), 2);
    ahead.received = 4_102_444_800_000;
    let negative = purchase(visitor(1), 3, -1);
    let facts = vec![
        batch("demo", &[old, page(visitor(1), 4), ahead, negative]),
        b"garbage".to_vec(),
        batch("nobody", &[page(visitor(1), 5)]),
        batch("demo", &[page(visitor(1), 6)]),
    ];
    let answer = origin.sync(&SyncRequest { facts, ..SyncRequest::default() });
    assert_eq!((answer.accepted, answer.duplicate), (2, 0));
    let mut reported: Vec<(u32, Option<u32>, &str)> =
        answer.rejected.iter().map(|r| (r.batch, r.index, r.code.as_str())).collect();
    reported.sort_unstable();
    let expected = [
        (0, Some(0), "too_old"),
        (0, Some(2), "ahead"),
        (0, Some(3), "value_out_of_range"),
        (1, None, "malformed"),
        (2, None, "unknown_tenant"),
    ];
    assert_eq!(reported, expected);
    assert_eq!(origin.metric("causeway_facts_rejected_total{reason=\"ahead\"}"), "1");
}

#[test]
fn what_edges_lost_and_how_old_the_queue_is_can_be_seen() {
    let place = Place::new();
    let origin = place.serve();
    let mut facts = [page(visitor(1), 1), page(visitor(1), 2)];
    facts[0].received -= 119_000;
    facts[0].at -= 119_000;
    let mut request = crate::support::request(&facts);
    (request.lost, request.dead, request.applied, request.filtered) = (3, 2, vec![0], [40, 5, 6]);
    origin.sync(&request);
    origin.sync(&SyncRequest { filtered: [1, 0, 0], ..SyncRequest::default() });
    let filtered =
        |reason: &str| origin.metric(&format!("causeway_edge_filtered_requests_total{{reason=\"{reason}\"}}"));
    assert_eq!(["bot", "prefetch", "head"].map(filtered), ["41", "5", "6"]);
    assert_eq!(origin.metric("causeway_edge_facts_lost_total"), "3");
    assert_eq!(origin.metric("causeway_edge_dead_letters_total"), "2");
    assert_eq!(origin.metric("causeway_facts_accepted_total"), "2");
    let age: f64 = origin.metric("causeway_queue_age_seconds").parse().unwrap();
    assert!((120.0..180.0).contains(&age), "{age}");
    assert!(place.log().contains("an edge reports losses"));
}

#[test]
fn no_id_is_in_the_log_or_the_metrics() {
    let place = Place::new();
    let origin = place.serve();
    let v = visitor(1);
    origin.send(&[page(v, 1), origin.login(v, 2, "m-secret")]);
    let token = place.token("viewer");
    origin.admin(&token, &format!("visitors/{v}?tenant=demo"));
    origin.admin(&token, "lookups/member/m-secret?tenant=demo");
    origin.sync(&SyncRequest { drain: 50, ..SyncRequest::default() });
    let hash = origin.member("m-secret").hash.to_string();
    let all = place.log() + &origin.get("/metrics").text();
    assert!(all.contains("sync"), "the log is empty");
    for id in [v.to_string(), hash, "m-secret".to_owned(), token] {
        assert!(!all.contains(&id), "{id} is in\n{all}");
    }
}

#[test]
fn a_sync_signed_at_another_date_reports_a_wrong_clock_until_a_sync_agrees() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("privacy");
    let erase = |member: &str| origin.asked(&token, "POST", "erase", &json!({ "kind": "member", "value": member }));
    let body = sync::encode_request(&request(&[]));
    // The time of an edge whose clock is half a day late.
    let other = now() - 12 * 3_600_000;
    // A sync with a wrong signature does not report a date.
    let forged = origin.call("POST", "/v1/sync", &origin.signed(other, b"another"), &body);
    assert_eq!((forged.status, erase("ann").status), (401, 202));
    let refused = origin.call("POST", "/v1/sync", &origin.signed(other, &body), &body);
    assert_eq!(refused.status, 401);
    let held = erase("bob");
    assert_eq!((held.status, held.code().as_str()), (503, "clock"));
    assert_eq!(origin.post_signed(&body).status, 200);
    assert_eq!(erase("bob").status, 202);
    let again = origin.call("POST", "/v1/sync", &origin.signed(other, &body), &body);
    assert_eq!((again.status, erase("eve").status), (401, 202), "a replayed sync has no effect after one that agrees");
}
