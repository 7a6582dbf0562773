//! Erasures and cancelled links, over HTTP and by the command.

use causeway_shared::base::ids::{FactId, VisitorId};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::wire::sync::SyncRequest;
use serde_json::{Value, json};

use crate::support::{Answer, Origin, Place, SOON, fact, hold, impression, now, page, request, visitor, within};

fn ask(origin: &Origin, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let headers = [("authorization", format!("Bearer {token}"))];
    origin.call(method, &format!("/admin/v1/{path}"), &headers, body.to_string().as_bytes())
}

fn erasure(v: u32, scope: ErasureScope) -> Fact {
    let what = FactKind::Erasure { scope, id: None, also: Vec::new() };
    Fact { id: FactId::of_erasure(visitor(v)), received: now(), at: now(), ..fact(visitor(v), 0, what) }
}

/// Drains the outbox; appends each key and its value to `written`.
fn publish(origin: &Origin, written: &mut Vec<(String, String)>) {
    let mut applied = Vec::new();
    loop {
        let writes = origin.sync(&SyncRequest { drain: 100, applied, ..SyncRequest::default() }).publish;
        if writes.is_empty() {
            return;
        }
        applied = writes.iter().map(|write| write.entry).collect();
        written.extend(writes.into_iter().map(|write| (write.key, write.value.unwrap_or_default())));
    }
}

fn tombstone(place: &Place, v: u32) -> bool {
    let found = place.inspect(visitor(v));
    assert!(found["tombstone"] == json!(false) || (found["own"]["pages"] == json!(0) && found["links"] == json!([])));
    found["tombstone"] == json!(true)
}

fn person(origin: &Origin, visitors: impl Iterator<Item = u32>) {
    for v in visitors {
        origin.send(&[page(visitor(v), 1), impression(visitor(v), 2), origin.login(visitor(v), 3, "ann")]);
    }
}

#[test]
fn the_privacy_role_erases_a_member_and_follows_the_erasure_to_its_end() {
    let place = Place::new();
    let origin = place.serve();
    person(&origin, 1..=3);
    origin.send(&[page(visitor(4), 1)]);
    let mut written = Vec::new();
    publish(&origin, &mut written);
    let (privacy, operator) = (place.token("privacy"), place.token("operator"));
    let member = json!({"kind": "member", "value": "ann"});
    assert_eq!(ask(&origin, &operator, "POST", "erase?tenant=demo", &member).status, 403);
    for (body, code) in [
        (json!({}), "bad_json"),
        (json!({"visitor": "x"}), "bad_id"),
        (json!({"kind": "shoe", "value": "x"}), "unknown_kind"),
        (json!({"kind": "member", "value": ""}), "bad_id"),
        (json!({"visitor": visitor(1).to_string(), "kind": "member", "value": "ann"}), "bad_json"),
    ] {
        let answer = ask(&origin, &privacy, "POST", "erase?tenant=demo", &body);
        assert_eq!((answer.status, answer.code().as_str()), (400, code));
    }
    let answer = ask(&origin, &privacy, "POST", "erase?tenant=demo", &member);
    assert_eq!((answer.status, &answer.json()["scope"]), (202, &json!("visitor")));
    // Reads find no data from now on.
    assert!((1..=3).all(|v| tombstone(&place, v)) && !tombstone(&place, 4));
    let receipt = answer.json()["receipt"].as_str().unwrap().to_owned();
    let path = format!("erase/{receipt}?tenant=demo");
    let progress = || ask(&origin, &operator, "GET", &path, &Value::Null).json();
    let (stored, done) = (progress()["stored_ms"].as_u64(), progress()["done_ms"].clone());
    assert!(stored.unwrap() >= progress()["requested_ms"].as_u64().unwrap() && done.is_null());
    assert_eq!(progress()["keys"], json!({"all": 4, "written": 0, "verified": 0}), "three snapshots and a lookup");
    let mut after = Vec::new();
    // The log drops its records with the next append, or within a second.
    let mut n = 10;
    within(SOON, "the erasure is done", || {
        publish(&origin, &mut after);
        n += 1;
        origin.send(&[page(visitor(4), n)]);
        if progress()["done_ms"].is_null() { Err("it is not done".to_owned()) } else { Ok(()) }
    });
    assert_eq!(progress()["keys"], json!({"all": 4, "written": 4, "verified": 0}));
    let of = |v: u32| format!("v:demo:{}", visitor(v));
    assert!((1..=3).all(|v| after.iter().any(|(key, value)| *key == of(v) && value.starts_with("t1"))));
    assert_eq!(ask(&origin, &operator, "GET", "erase/x?tenant=demo", &Value::Null).code(), "bad_id");
    let unknown = format!("erase/{}?tenant=demo", FactId::from_bytes([3; 16]).receipt());
    assert_eq!(ask(&origin, &operator, "GET", &unknown, &Value::Null).code(), "unknown_receipt");
    // Late facts are refused and counted; the member returns as a new person.
    origin.send(&[page(visitor(1), 20), page(visitor(2), 20)]);
    assert_eq!(origin.metric("causeway_facts_rejected_total{reason=\"erased\"}"), "2");
    let login = Fact { received: now(), at: now(), ..origin.login(visitor(5), 1, "ann") };
    origin.send(&[login]);
    assert!(!tombstone(&place, 5));
    assert_eq!(
        place.json(&["inspect", "lookup", "member", "ann", "--tenant", "demo"])["visitor"],
        visitor(5).to_string()
    );
}

#[test]
fn a_restore_brings_no_erased_visitor_back() {
    let place = Place::new();
    let origin = place.serve();
    person(&origin, 1..=2);
    origin.send(&[page(visitor(3), 1), page(visitor(4), 1)]);
    let to = place.path().join("backup");
    let to = to.to_str().unwrap();
    place.json(&["backup", "--to", to]);
    assert!(!std::path::Path::new(to).join("erasures.db").exists());
    origin.send(&[erasure(1, ErasureScope::Person), erasure(3, ErasureScope::Visitor)]);
    // The erasure is acknowledged, and in the log alone when the disk is lost.
    let held = hold(&place, "causeway.db");
    origin.sync(&request(&[erasure(4, ErasureScope::Visitor)]));
    origin.kill();
    drop(held);
    place.json(&["restore", "--from", to, "--yes"]);
    assert!((1..=4).all(|v| tombstone(&place, v)), "before the origin serves");
    let origin = place.serve();
    let mut written = Vec::new();
    publish(&origin, &mut written);
    assert!(written.iter().all(|(key, value)| !key.starts_with("v:") || value.starts_with("t1")), "{written:?}");
    origin.send(&[page(visitor(1), 9), page(visitor(4), 9)]);
    assert!((1..=4).all(|v| tombstone(&place, v)));
    origin.kill();

    std::fs::write(place.path().join("data/erasures.db"), vec![0x55; 9_000]).unwrap();
    let refused = place.run(&["serve"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("journal of erasures"), "{refused:?}");
}

#[test]
fn the_command_shows_its_plan_and_erases_with_yes() {
    let place = Place::new();
    let origin = place.serve();
    person(&origin, 1..=2);
    let one = visitor(1).to_string();
    let arguments = ["erase", "--visitor", &one, "--person", "--tenant", "demo"];
    let plan = place.json(&arguments);
    assert_eq!((plan["visitors"].as_array().unwrap().len(), &plan["done"]), (2, &json!(false)));
    assert!(!tombstone(&place, 1));
    let done = place.json(&[&arguments[..], &["--yes"]].concat());
    assert_eq!((&done["done"], &done["receipt"]), (&json!(true), &json!(FactId::of_erasure(visitor(1)).receipt())));
    assert!(tombstone(&place, 1) && tombstone(&place, 2));
    publish(&origin, &mut Vec::new());
    let again = place.json(&[&arguments[..], &["--yes", "--wait"]].concat());
    assert!(!again["done_ms"].is_null(), "{again}");
    assert_eq!(place.run(&["erase", "--kind", "member"]).status.code(), Some(2));
    assert_eq!(place.run(&["erase"]).status.code(), Some(2));
}

#[test]
fn a_wrong_link_is_undone_over_http_and_by_the_command() {
    let place = Place::new();
    let origin = place.serve();
    person(&origin, 1..=3);
    let devices = |v| place.inspect(visitor(v))["person"]["devices"].as_u64().unwrap();
    assert_eq!(devices(1), 3);
    let token = place.token("operator");
    let path = |a: VisitorId, b: VisitorId| format!("links/{a}/{b}?tenant=demo");
    let answer = ask(&origin, &token, "DELETE", &path(visitor(1), visitor(2)), &Value::Null);
    assert_eq!((answer.status, answer.json()["cancelled"].as_array().unwrap().len()), (200, 1));
    assert_eq!(answer.json()["connected"], false);
    assert_eq!([1, 2, 3].map(devices), [1, 2, 2]);
    let again = ask(&origin, &token, "DELETE", &path(visitor(1), visitor(2)), &Value::Null);
    assert_eq!((again.status, again.code().as_str()), (404, "not_linked"));
    assert_eq!(ask(&origin, &token, "DELETE", "links/x/y?tenant=demo", &Value::Null).code(), "bad_id");
    let viewer = place.token("viewer");
    assert_eq!(ask(&origin, &viewer, "DELETE", &path(visitor(3), visitor(2)), &Value::Null).status, 403);

    let (two, three, four) = (visitor(2).to_string(), visitor(3).to_string(), visitor(4).to_string());
    let remove = ["links", "remove", &three, &two, "--tenant", "demo"];
    assert_eq!(place.json(&remove)["done"], false);
    assert_eq!(devices(3), 2);
    assert_eq!(place.json(&[&remove[..], &["--yes"]].concat())["done"], true);
    assert_eq!([1, 2, 3].map(devices), [1, 1, 1]);
    assert_eq!(place.run(&[&remove[..], &["--yes"]].concat()).status.code(), Some(1));
    // The evidence is cancelled before it arrives.
    let cancel =
        ["links", "cancel", "--visitor", &four, "--kind", "member", "--value", "ann", "--tenant", "demo", "--yes"];
    place.json(&cancel);
    person(&origin, 4..=4);
    assert_eq!(devices(4), 1);
    // A new login links the visitor again.
    let again = |v| Fact { received: now(), at: now(), ..origin.login(visitor(v), 7, "ann") };
    origin.send(&[again(3), again(2)]);
    assert_eq!([2, 3].map(devices), [2, 2]);
}

#[test]
fn an_erasure_reaches_acknowledged_facts_that_are_not_folded_even_with_a_fast_clock() {
    let place = Place::new();
    let origin = place.serve();
    let privacy = place.token("privacy");
    let member = json!({"kind": "member", "value": "ann"});
    let acknowledged = |v: u32| {
        let held = hold(&place, "causeway.db");
        let ahead = now() + 120_000;
        let login = Fact { received: ahead, at: ahead, ..origin.login(visitor(v), 3, "ann") };
        origin.sync(&request(&[login]));
        held
    };
    let held = acknowledged(1);
    let answer = std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (origin, privacy, member) = (&origin, &privacy, &member);
        let asked = move || sender.send(ask(origin, privacy, "POST", "erase?tenant=demo", member)).unwrap();
        scope.spawn(asked);
        let early = receiver.recv_timeout(std::time::Duration::from_millis(500));
        assert!(early.is_err(), "nothing can be folded now");
        drop(held);
        receiver.recv().unwrap()
    });
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert!(tombstone(&place, 1));

    let held = acknowledged(2);
    let done = std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (place, command) = (&place, ["erase", "--kind", "member", "--value", "ann", "--tenant", "demo", "--yes"]);
        scope.spawn(move || sender.send(place.json(&command)).unwrap());
        assert!(receiver.recv_timeout(std::time::Duration::from_millis(500)).is_err());
        drop(held);
        receiver.recv().unwrap()
    });
    assert_eq!((&done["done"], &done["visitors"]), (&json!(true), &json!([visitor(2).to_string()])));
    assert!(tombstone(&place, 2));
}

#[test]
fn a_durable_erasure_has_its_receipt_while_the_store_is_locked() {
    let place = Place::new();
    let origin = place.serve();
    person(&origin, 1..=1);
    let privacy = place.token("privacy");
    let held = hold(&place, "causeway.db");
    let answer = ask(&origin, &privacy, "POST", "erase?tenant=demo", &json!({"kind": "member", "value": "ann"}));
    drop(held);
    assert_eq!(answer.status, 202, "{}", answer.text());
    let receipt = answer.json()["receipt"].as_str().unwrap().to_owned();
    // The backlog is folded with the next record.
    origin.send(&[page(visitor(4), 1)]);
    assert!(tombstone(&place, 1));
    let progress = ask(&origin, &privacy, "GET", &format!("erase/{receipt}?tenant=demo"), &Value::Null);
    assert_eq!(progress.status, 200);
}
