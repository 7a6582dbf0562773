//! The audit trail: each way to link, unlink and erase records the author and the reason.

use causeway_shared::wire::sync::SyncRequest;
use serde_json::{Value, json};

use crate::support::{Answer, Origin, Place, SOON, hold, page, visitor, within};

fn ask(origin: &Origin, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let headers = [("authorization", format!("Bearer {token}"))];
    origin.call(method, &format!("/admin/v1/{path}"), &headers, body.to_string().as_bytes())
}

fn id(n: u32) -> String {
    visitor(n).to_string()
}

fn called(place: &Place, role: &str, name: &str) -> (String, String) {
    let token = place.json(&["token", "create", "--role", role, "--name", name, "--all-tenants"]);
    (token["token"].as_str().unwrap().to_owned(), format!("token:{}", token["id"]))
}

/// Runs a command that must succeed, as a user.
fn run_as(place: &Place, user: &str, arguments: &[&str]) {
    let output = place.command(arguments).env("USER", user).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Action, author, name of the author and reason of each row, the oldest first.
fn trail(rows: &Value) -> Vec<[Value; 4]> {
    let rows = rows.as_array().unwrap().iter().rev();
    rows.map(|row| ["what", "by", "name", "reason"].map(|field| row[field].clone())).collect()
}

/// Links, unlinks and erases in every way, over HTTP and by commands; returns the answer of the erasure over HTTP.
fn every_way(place: &Place, origin: &Origin, operator: &str, privacy: &str) -> Answer {
    let link = json!({ "visitor": id(1), "other": id(2), "weight": 0.7, "source": "match", "reason": "h1" });
    assert_eq!(ask(origin, operator, "POST", "links?tenant=demo", &link).status, 204);
    let path = format!("links/{}/{}?tenant=demo&reason=h%202%3F", id(1), id(2));
    assert_eq!(ask(origin, operator, "DELETE", &path, &Value::Null).status, 200);
    let erase = json!({ "visitor": id(1), "reason": "h3" });
    let erased = ask(origin, privacy, "POST", "erase?tenant=demo", &erase);
    assert_eq!(erased.status, 202);
    let silent = json!({ "visitor": id(3), "kind": "partner", "value": "p", "weight": 0.7, "source": "match" });
    assert_eq!(ask(origin, operator, "POST", "links?tenant=demo", &silent).status, 204);

    let file = place.path().join("links.csv");
    let lines = [(4, 5), (5, 6), (6, 6), (6, 7)].map(|(a, b)| format!("{},{},0.7,match", id(a), id(b)));
    std::fs::write(&file, format!("visitor,other,weight,source\n{}\n", lines.join("\n"))).unwrap();
    let demo = ["--tenant", "demo", "--reason"];
    let (weight, member) = (["--weight", "0.7", "--source", "match"], ["--kind", "member", "--value", "ann"]);
    run_as(place, "bea", &[&["links", "add", &id(8), &id(9)], &weight[..], &demo, &["c1"]].concat());
    run_as(place, "bea", &[&["links", "remove", &id(8), &id(9), "--yes"], &demo[..], &["c2"]].concat());
    run_as(place, "bea", &[&["links", "cancel", "--visitor", &id(8), "--yes"], &member[..], &demo, &["c3"]].concat());
    for _ in 0..2 {
        run_as(
            place,
            "bea",
            &[&["links", "import", file.to_str().unwrap(), "--max-bad", "1"], &demo[..], &["c4"]].concat(),
        );
    }
    run_as(place, "bea", &[&["erase", "--visitor", &id(9), "--yes"], &demo[..], &["c5"]].concat());
    erased
}

#[test]
fn each_way_to_link_unlink_and_erase_records_its_author_and_reason() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&(1..=9).map(|n| page(visitor(n), n)).collect::<Vec<_>>());
    let (operator, by_operator) = called(&place, "operator", "the desk");
    let (privacy, by_privacy) = called(&place, "privacy", "dpo");
    let erased = every_way(&place, &origin, &operator, &privacy);
    let rows = ask(&origin, &privacy, "GET", "audit?tenant=demo", &Value::Null).json();
    let rows = &rows["audit"];
    let (desk, dpo, bea) = ("the desk", "dpo", "bea");
    let http = |what: &str, by: &String, name: &str, why: &str| [json!(what), json!(by), json!(name), json!(why)];
    let cli = |what: &str, why: &str| [json!(what), json!("cli"), json!(bea), json!(why)];
    let expected = [
        http("link", &by_operator, desk, "h1"),
        http("unlink", &by_operator, desk, "h 2?"),
        http("erase", &by_privacy, dpo, "h3"),
        [json!("link"), json!(by_operator), json!(desk), Value::Null],
        cli("link", "c1"),
        cli("unlink", "c2"),
        cli("unlink", "c3"),
        cli("link", "c4"),
        cli("erase", "c5"),
    ];
    assert_eq!(trail(rows), expected);
    let newest = |n: usize| &rows[expected.len() - 1 - n];
    assert_eq!(
        [&newest(1)["role"], &newest(2)["role"], &newest(4)["role"]],
        [&json!("operator"), &json!("privacy"), &Value::Null]
    );
    assert_eq!(newest(2)["receipt"], erased.json()["receipt"]);
    assert_eq!((&newest(7)["count"], &newest(7)["visitor"]), (&json!(6), &Value::Null), "one row for an import");
    // The trail names no erased visitor.
    assert_eq!([&newest(1)["visitor"], &newest(1)["other"]], [&Value::Null, &json!(id(2))]);
    assert_eq!([&newest(5)["visitor"], &newest(5)["other"]], [&json!(id(8)), &Value::Null]);
    assert!(!rows.to_string().contains(&id(1)) && !rows.to_string().contains(&id(9)));
    // The command returns the same rows; both return pages.
    assert_eq!(place.json(&["audit", "--tenant", "demo"]), *rows);
    let after = newest(2)["row"].to_string();
    let page = ["audit", "--tenant", "demo", "--after", &after, "--limit", "1"];
    assert_eq!(trail(&place.json(&page)), expected[1..2]);
    let first = ask(&origin, &privacy, "GET", &format!("audit?tenant=demo&limit=2&after={after}"), &Value::Null).json();
    assert_eq!((trail(&first["audit"]), &first["next"]), (expected[..2].to_vec(), &Value::Null));
    let first = ask(&origin, &privacy, "GET", "audit?tenant=demo&limit=4", &Value::Null).json();
    assert_eq!((first["audit"].as_array().unwrap().len(), &first["next"]), (4, &newest(5)["row"]));
    assert_eq!(trail(&place.json(&["audit", "--tenant", "demo", "--visitor", &id(9)])), expected[8..]);
    let table = place.run(&["audit", "--tenant", "demo"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("h 2?"));
    assert_eq!(place.json(&["audit", "--tenant", "pub"]), json!([]));
}

#[test]
fn the_audit_row_of_an_acknowledged_change_survives_a_crash() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&(1..=2).map(|n| page(visitor(n), n)).collect::<Vec<_>>());
    let (operator, by) = called(&place, "operator", "desk");
    // The link is in the log alone when the process ends, because another connection holds the store's lock.
    let held = hold(&place, "causeway.db");
    let link = json!({ "visitor": id(1), "other": id(2), "weight": 0.7, "source": "match", "reason": "why" });
    std::thread::scope(|scope| {
        // The call is answered when the link is folded, which never happens.
        scope.spawn(|| {
            let headers = [("authorization", format!("Bearer {operator}"))];
            origin.try_call("POST", "/admin/v1/links?tenant=demo", &headers, link.to_string().as_bytes())
        });
        let log = rusqlite::Connection::open(place.path().join("data/log.db")).unwrap();
        within(SOON, "the link is in the log", || {
            let waits: rusqlite::Result<bool> =
                log.query_row("SELECT EXISTS (SELECT 1 FROM log WHERE said IS NOT NULL)", [], |row| row.get(0));
            waits.unwrap().then_some(()).ok_or("it is not")
        });
        origin.signal("-KILL");
    });
    drop((held, origin));
    assert_eq!(place.json(&["audit", "--tenant", "demo"]), json!([]));
    let expected = vec![[json!("link"), json!(by), json!("desk"), json!("why")]];
    for _ in 0..2 {
        let origin = place.serve();
        // The answer follows the fold of the whole log.
        origin.sync(&SyncRequest { applied: vec![0], ..SyncRequest::default() });
        let rows = place.json(&["audit", "--tenant", "demo"]);
        assert_eq!(trail(&rows), expected);
        origin.kill();
    }
}

#[test]
fn a_reason_out_of_bounds_is_refused_and_only_the_privacy_role_reads_the_trail() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1), page(visitor(2), 2)]);
    let [operator, privacy, viewer] = ["operator", "privacy", "viewer"].map(|role| place.token(role));
    let long = "x".repeat(201);
    for bad in [long.as_str(), "two\nlines", "\u{1b}[2J", "", "  "] {
        let link = json!({ "visitor": id(1), "other": id(2), "weight": 0.7, "source": "match", "reason": bad });
        let linked = ask(&origin, &operator, "POST", "links?tenant=demo", &link);
        let erased = ask(&origin, &privacy, "POST", "erase?tenant=demo", &json!({ "visitor": id(1), "reason": bad }));
        let escaped: String = bad.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let path = format!("links/{}/{}?tenant=demo&reason={escaped}", id(1), id(2));
        let unlinked = ask(&origin, &operator, "DELETE", &path, &Value::Null);
        for answer in [linked, erased, unlinked] {
            assert_eq!((answer.status, answer.code().as_str()), (400, "bad_reason"));
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains("1 to 200 characters") && message.contains("shorten it"), "{message}");
        }
        let refused = place.run(&["erase", "--visitor", &id(1), "--yes", "--reason", bad, "--tenant", "demo"]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && message.contains("shorten it"), "{message}");
    }
    assert_eq!(place.json(&["audit", "--tenant", "demo"]), json!([]));
    let read = |token: &str, path: &str| ask(&origin, token, "GET", path, &Value::Null);
    assert_eq!([&viewer, &operator].map(|token| read(token, "audit?tenant=demo").status), [403, 403]);
    assert_eq!(read(&privacy, "audit?tenant=demo").json(), json!({ "audit": [], "next": null }));
    assert_eq!(read(&privacy, "audit?tenant=nobody").code(), "unknown_tenant");
    assert_eq!(read(&privacy, "audit?tenant=demo&visitor=x").code(), "bad_id");
    for query in ["limit=0", "limit=1001", "limit=x", "after=x"] {
        assert_eq!(read(&privacy, &format!("audit?tenant=demo&{query}")).code(), "bad_query");
    }
}
