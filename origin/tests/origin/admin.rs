//! The admin API.

use std::time::Duration;

use causeway_origin::store;
use causeway_shared::facts::fact::Fact;
use causeway_shared::keys::proof;
use serde_json::json;

use crate::support::{Answer, Origin, Place, SOON, now, once, page, visitor, within};

fn post_proof(origin: &Origin, token: &str, body: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    origin.call("POST", "/admin/v1/proofs", &[("authorization", authorization)], body.as_bytes())
}

#[test]
fn nobody_reads_without_a_valid_token() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let path = format!("visitors/{}?tenant=demo", visitor(1));
    let token = place.token("viewer");
    assert_eq!(origin.admin(&token, &path).status, 200);
    let none = origin.get(&format!("/admin/v1/{path}"));
    assert_eq!((none.status, none.code().as_str()), (401, "unauthorized"));
    assert!(none.head.contains("www-authenticate: bearer"));
    for bad in ["", "x", &token[1..], &format!("{token}x"), &"A".repeat(8_000)] {
        assert_eq!(origin.admin(bad, &path).status, 401);
    }
    let list = place.json(&["token", "list"]);
    assert_eq!(list[0]["role"], "viewer");
    assert!(!list.to_string().contains(&token));
    place.json(&["token", "revoke", &list[0]["id"].to_string()]);
    assert_eq!(origin.admin(&token, &path).status, 401);
}

#[test]
fn ids_are_checked_and_unknown_ones_are_not_found() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1), origin.login(visitor(1), 2, "a/b c")]);
    let token = place.token("privacy");
    let code = |path: &str| {
        let answer = origin.admin(&token, path);
        (answer.status, answer.code())
    };
    let status = |path: &str| origin.admin(&token, path).status;
    assert_eq!(code(&format!("visitors/{}?tenant=demo", visitor(2))), (404, "unknown_visitor".into()));
    assert_eq!(code("visitors/abc?tenant=demo"), (400, "bad_id".into()));
    assert_eq!(code(&format!("visitors/{}?tenant=demo", "a".repeat(5_000))), (400, "bad_id".into()));
    assert_eq!(code("visitors/%ff?tenant=demo"), (400, "bad_id".into()));
    assert_eq!(code(&format!("visitors/{}", visitor(1))), (400, "tenant_needed".into()));
    assert_eq!(code(&format!("visitors/{}?tenant=no", visitor(1))), (400, "unknown_tenant".into()));
    assert_eq!(code(&format!("visitors/{}?tenant=demo&tenant=pub", visitor(1))), (400, "bad_query".into()));
    assert_eq!(status("lookups/member/a%2Fb%20c?tenant=demo"), 200);
    assert_eq!(code("lookups/member/zzz?tenant=demo"), (404, "unknown_lookup".into()));
    assert_eq!(code("lookups/nokind/a?tenant=demo"), (404, "unknown_kind".into()));
    let long = format!("lookups/member/{}?tenant=demo", "a".repeat(257));
    assert_eq!(code(&long), (400, "bad_id".into()));
    // Another tenant does not see it.
    assert_eq!(status("lookups/member/a%2Fb%20c?tenant=pub"), 404);
}

#[test]
fn a_test_proof_verifies_and_only_operators_of_dev_tenants_get_one() {
    let place = Place::new();
    let origin = place.serve();
    let operator = place.token("operator");
    let answer = post_proof(&origin, &operator, &json!({"tenant": "demo", "sub": "m-1"}).to_string());
    assert_eq!(answer.status, 200);
    let keys = &place.keys().tenants["demo"].proof;
    let token = answer.json()["proof"].as_str().unwrap().to_owned();
    let claims = proof::verify_proof(&token, keys, &"demo".parse().unwrap(), now()).unwrap();
    assert_eq!(claims.sub, "m-1");

    for (body, code) in [
        (r#"{"tenant":"pub","sub":"m"}"#, "not_dev"),
        (r#"{"tenant":"no","sub":"m"}"#, "unknown_tenant"),
        (r#"{"tenant":"demo","sub":""}"#, "bad_id"),
        (r#"{"tenant":"demo","sub":"m","ttl_s":86401}"#, "bad_ttl"),
        (r#"{"tenant":"demo"}"#, "bad_json"),
        (r#"{"tenant":"demo","sub":"m","sub":"n"}"#, "repeated_key"),
        ("[[[[", "bad_json"),
    ] {
        assert_eq!(post_proof(&origin, &operator, body).code(), code, "{body}");
    }
    let large = format!(r#"{{"tenant":"demo","sub":"{}"}}"#, "m".repeat(70_000));
    assert_eq!(post_proof(&origin, &operator, &large).status, 413);
    let viewer = place.token("viewer");
    let refused = post_proof(&origin, &viewer, r#"{"tenant":"demo","sub":"m"}"#);
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"));
}

#[test]
fn the_openapi_document_is_served() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("viewer");
    let document = origin.admin(&token, "openapi.json").json();
    assert!(document["paths"]["/admin/v1/visitors/{id}"].is_object());
    assert_eq!(origin.get("/admin/v1/openapi.json").status, 401);
}

#[test]
fn a_write_waits_for_an_extension_of_another_process_and_is_not_undone_by_it() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let operator = place.token("operator");
    let path = format!("visitors/{}/segments", visitor(1));
    let expires = (now() / 3_600_000 + 10) * 3_600_000;
    let set = json!({ "set": [{ "segment": 7, "expires_ms": expires }] });
    assert_eq!(origin.asked(&operator, "PUT", &path, &set).status, 200);
    let removed = r#"{"remove":[7]}"#;
    for by_command in [false, true] {
        let extending = store::lock_extension(&place.path().join("data"), true).unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if by_command {
                    place.json(&["segments", "put", &visitor(1).to_string(), removed, "--tenant", "demo"]);
                } else {
                    let answer = origin.asked(&operator, "PUT", &path, &serde_json::from_str(removed).unwrap());
                    assert_eq!(answer.status, 200);
                }
                sender.send(()).unwrap();
            });
            assert!(ended.recv_timeout(Duration::from_millis(500)).is_err(), "the call does not wait, {by_command}");
            drop(extending);
        });
    }
}

#[test]
fn segments_are_written_extended_and_read_by_any_id() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1), origin.login(visitor(1), 2, "a/b c")]);
    let (operator, viewer) = (place.token("operator"), place.token("viewer"));
    let call = |token: &str, method: &str, path: &str, body: &str| {
        let authorization = format!("Bearer {token}");
        origin.call(
            method,
            &format!("/admin/v1/{path}?tenant=demo"),
            &[("authorization", authorization)],
            body.as_bytes(),
        )
    };
    let own = format!("visitors/{}/segments", visitor(1));
    let by_member = "lookups/member/a%2Fb%20c/segments";
    let expires = (now() / 3_600_000 + 10) * 3_600_000;
    let set = json!({ "set": [{ "segment": 8457, "expires_ms": expires, "attributes": { "2": 4 } }] }).to_string();
    assert_eq!(call(&viewer, "PUT", by_member, &set).status, 403);
    assert_eq!(call(&operator, "PUT", by_member, &set).json()["written"], 1);
    let held = json!([{ "segment": 8457, "expires_ms": expires, "attributes": { "2": 4 } }]);
    for path in [own.as_str(), by_member] {
        let shown = call(&viewer, "GET", path, "").json();
        assert_eq!((&shown["own"], &shown["view"]), (&held, &held), "{path}");
    }
    let extend = |segment: &str, body: &str| call(&operator, "POST", &format!("{own}/{segment}/extend"), body);
    assert_eq!(extend("8457", r#"{"hours": 2}"#).status, 200);
    assert_eq!(call(&viewer, "GET", &own, "").json()["own"][0]["expires_ms"], expires + 2 * 3_600_000);
    assert_eq!(
        (extend("9", r#"{"hours": 2}"#).code(), extend("x", "{}").code()),
        ("unknown_segment".into(), "bad_id".into())
    );
    let query = |body: &str| call(&viewer, "POST", &format!("{own}/query"), body);
    assert_eq!(query(r#"{"count": {"from": 8000, "to": 9000}}"#).json(), json!({ "count": 1 }));
    assert_eq!(query(r#"{"newest": 3}"#).json(), json!({ "segments": [8457] }));
    let unknown = query(r#"{"newest": 3, "note": "a field that no query has"}"#);
    assert_eq!((unknown.status, unknown.code().as_str()), (400, "bad_json"));
    assert_eq!([r#"{"newest": 3, "count": {"from": 1, "to": 2}}"#, "{}"].map(|both| query(both).status), [400, 400]);
    assert_eq!(query(r#"{"oldest": 3}"#).code(), "bad_json");
    let field = |path: &str, body: &str| call(&operator, "POST", path, body).json()["error"]["field"].clone();
    assert_eq!(field(&format!("{own}/query"), r#"{"count": {"from": "x", "to": 1}}"#), "count.from");
    assert_eq!(field(&format!("{own}/8457/extend"), "{}"), "hours");
    let counts =
        r#"{"visitor": "x", "actions": [], "level": "ad", "ids": [], "last": {"interval": 1, "unit": "weeks"}}"#;
    assert_eq!(field("counts", counts), "last");
    let codes = [r#"{"set": [{"segment": 1, "expires_ms": 5}]}"#, "{}", "[", r#"{"remove": ["x"]}"#];
    let expected = ["expiry_out_of_range", "out_of_bounds", "bad_json", "bad_json"];
    assert_eq!(codes.map(|body| call(&operator, "PUT", &own, body).code()), expected);
    assert_eq!(call(&operator, "PUT", &format!("visitors/{}/segments", visitor(2)), &set).status, 404);
    assert_eq!(call(&operator, "PUT", &own, r#"{"remove": [8457]}"#).status, 200);
    assert_eq!(call(&viewer, "GET", by_member, "").json()["view"], json!([]));
}

#[test]
fn counts_are_answered_at_once_and_a_wrong_request_is_explained() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let authorization = format!("Bearer {}", place.token("viewer"));
    let ask = |body: &serde_json::Value| {
        let headers = [("authorization", authorization.clone())];
        origin.call("POST", "/admin/v1/counts?tenant=demo", &headers, body.to_string().as_bytes())
    };
    let good = json!({ "visitor": visitor(1).to_string(), "actions": ["impression", "click"], "last": { "interval": 7, "unit": "days" }, "level": "ad_group", "ids": [1, 2] });
    assert_eq!(ask(&good).json(), json!({ "counts": { "1": 0, "2": 0 } }));
    let with = |name: &str, value: serde_json::Value| {
        let mut changed = good.clone();
        changed[name] = value;
        ask(&changed)
    };
    assert_eq!(with("last", json!({ "from_ms": 0, "to_ms": now() })).status, 200);
    assert_eq!(with("visitor", json!(visitor(2).to_string())).status, 404);
    for (name, value) in
        [("actions", json!(["frown"])), ("last", json!({ "interval": 0, "unit": "days" })), ("visitor", json!("x"))]
    {
        let answer = with(name, value);
        assert_eq!((answer.status, answer.json()["error"]["field"].clone()), (400, json!(name)));
    }
    for (name, value) in [("level", json!("planet")), ("ids", json!([-1])), ("last", json!({ "unit": "years" }))] {
        assert_eq!(with(name, value).code(), "bad_json");
    }
}

#[test]
fn attributes_are_written_and_read_by_any_id_and_a_bad_one_is_refused_alone() {
    let place = Place::new();
    let token = place.token("operator");
    let origin = place.serve();
    let (a, b) = (visitor(1), visitor(2));
    let of_a = origin.login(a, 2, "ann");
    let of_b = Fact { received: of_a.received + 1, ..origin.login(b, 2, "ann") };
    origin.send(&[page(a, 1), page(b, 1), of_a, of_b]);
    let put = |path: &str, body: serde_json::Value| {
        let header = [("authorization", format!("Bearer {token}"))];
        origin.call("PUT", &format!("/admin/v1/{path}?tenant=demo"), &header, body.to_string().as_bytes())
    };
    let of_a = format!("visitors/{a}/attributes");
    let first = put(&of_a, json!({ "set": { "shoe_size": 42, "vip": true, "9 bad": 1, "deep": {"x": 1} } })).json();
    assert_eq!((&first["written"], first["rejected"].as_array().unwrap().len()), (&json!(2), 2));
    let second = put("lookups/member/ann/attributes", json!({ "set": { "shoe_size": "big", "city": "Oslo" } })).json();
    assert_eq!(second["written"], 1);
    let refused = &second["rejected"][0];
    assert_eq!((&refused["name"], &refused["code"]), (&json!("shoe_size"), &json!("type_mismatch")));
    assert_eq!(refused["message"], "attribute `shoe_size` is a float, a string was given");
    let alone = put(&of_a, json!({ "set": { "vip": 7 } }));
    assert_eq!((alone.status, alone.code()), (400, "refused".to_owned()));
    let shown = origin.admin(&token, "lookups/member/ann/attributes?tenant=demo").json();
    assert_eq!(shown["view"], json!({ "shoe_size": 42, "vip": true, "city": "Oslo" }));
    assert_eq!(shown["own"], json!({ "city": "Oslo" }), "the visitor last seen has its own alone");
    let names = origin.admin(&token, "attributes?tenant=demo").json();
    assert_eq!(names["names"][2], json!({ "token": 2, "name": "city", "type": "string" }));
    assert_eq!(origin.admin(&token, "attributes?tenant=demo&page=9").json()["names"], json!([]));
    let put = [r#"{"set": {"born": "1999-12-31"}, "remove": ["vip"]}"#, "--tenant", "demo"];
    place.json(&[&["attributes", "put", &a.to_string()][..], &put].concat());
    let shown = place.json(&["attributes", "get", "member:ann", "--tenant", "demo"]);
    assert_eq!(shown["view"], json!({ "shoe_size": 42, "born": "1999-12-31", "city": "Oslo" }));
    assert_eq!(place.json(&["attributes", "names", "--tenant", "demo"]).as_array().unwrap().len(), 4);
}

#[test]
fn names_of_attributes_are_taken_back_over_http_and_by_a_command_that_shows_its_plan_first() {
    let place = Place::new();
    let token = place.token("operator");
    let origin = place.serve();
    let a = visitor(1);
    origin.send(&[page(a, 1)]);
    let header = [("authorization", format!("Bearer {token}"))];
    let call = |method: &str, path: &str, body: serde_json::Value| {
        origin.call(method, &format!("/admin/v1/{path}?tenant=demo"), &header, body.to_string().as_bytes())
    };
    let of_a = format!("visitors/{a}/attributes");
    let set = json!({ "set": { "junk": true, "more": 7, "audience": true, "city": "Oslo" } });
    assert_eq!(call("PUT", &of_a, set).json()["written"], 4);
    let audience = json!({ "filter": { "attributes.audience": true }, "hours": 48 });
    assert_eq!(call("PUT", "audiences/7", audience).status, 202);
    let names = || origin.admin(&token, "attributes?tenant=demo").json()["names"].to_string();

    let plan = call("POST", "attributes/forget", json!({ "names": ["junk"], "dry_run": true })).json();
    let junk = json!([{ "attribute": "junk", "type": "bool", "visitors": 1 }]);
    assert_eq!((&plan["names"], &plan["done"]), (&junk, &json!(false)));
    let used = call("POST", "attributes/forget", json!({ "names": ["junk", "audience"] }));
    assert_eq!((used.status, used.code()), (409, "in_use".to_owned()));
    for bad in [json!({ "names": [] }), json!({ "names": ["nobodys"] })] {
        assert_eq!(call("POST", "attributes/forget", bad).code(), "bad_names");
    }
    assert!(names().contains("junk"), "nothing was changed");
    let done = call("POST", "attributes/forget", json!({ "names": ["junk"], "reason": "strangers' name" }));
    assert_eq!((done.status, &done.json()["run"]["job"]), (202, &json!("trim")));
    assert!(!names().contains("junk"));

    let args = ["attributes", "forget", "more", "--tenant", "demo"];
    let plan = place.json(&args);
    assert_eq!((&plan["done"], names().contains("more")), (&json!(false), true));
    let done = place.json(&[&args[..], &["--yes"]].concat());
    assert_eq!((&done["done"], names().contains("more")), (&json!(true), false));
    let shown = origin.admin(&token, &format!("visitors/{a}/attributes?tenant=demo")).json();
    assert_eq!(shown["own"], json!({ "audience": true, "city": "Oslo" }));
    let trail = place.json(&["audit", "--tenant", "demo"]);
    let audited = |n: usize| [&trail[n]["what"], &trail[n]["object"], &trail[n]["reason"]];
    assert_eq!(audited(1), [&json!("forget_attribute"), &json!("junk"), &json!("strangers' name")]);
    assert_eq!(audited(0)[1], &json!("more"));
}

#[test]
fn names_of_events_are_listed_declared_and_taken_back_over_http_and_by_commands() {
    let place = Place::new();
    let token = place.token("operator");
    let origin = place.serve();
    let header = [("authorization", format!("Bearer {token}"))];
    let call = |method: &str, path: &str, body: serde_json::Value| {
        origin.call(method, &format!("/admin/v1/{path}?tenant=demo"), &header, body.to_string().as_bytes())
    };
    let names = || {
        let reply = origin.admin(&token, "events?tenant=demo").json();
        reply["names"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| format!("{} {}", one["name"], one["source"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), [""; 0]);
    assert_eq!(call("POST", "events/declare", json!({ "names": ["signup", "saved"] })).json()["done"], true);
    assert_eq!(call("POST", "events/declare", json!({ "names": ["page"] })).code(), "bad_names");
    let audience = json!({ "filter": { "events.bought": { "$count": { "$gte": 1 } } }, "hours": 48 });
    assert_eq!(call("PUT", "audiences/7", audience).status, 202);
    let all = ["\"bought\" \"declared\"", "\"saved\" \"declared\"", "\"signup\" \"declared\""];
    assert_eq!(names(), all);
    let used = call("POST", "events/forget", json!({ "names": ["signup", "bought"] }));
    assert_eq!((used.status, used.code()), (409, "in_use".to_owned()));
    let plan = call("POST", "events/forget", json!({ "names": ["signup"], "dry_run": true })).json();
    assert_eq!((&plan["done"], names().len()), (&json!(false), 3));
    let done = call("POST", "events/forget", json!({ "names": ["signup"], "reason": "strangers' name" })).json();
    assert_eq!((&done["done"], names()), (&json!(true), all[..2].iter().map(|name| (*name).to_owned()).collect()));
    let args = ["events", "forget", "saved", "--tenant", "demo"];
    assert_eq!((&place.json(&args)["done"], names().len()), (&json!(false), 2));
    assert_eq!(place.json(&[&args[..], &["--yes"]].concat())["done"], true);
    place.json(&["events", "declare", "again", "--tenant", "demo"]);
    let listed = place.json(&["events", "names", "--tenant", "demo"]);
    assert_eq!([&listed[0]["name"], &listed[1]["name"]], [&json!("again"), &json!("bought")]);
    let trail = place.json(&["audit", "--tenant", "demo"]);
    assert_eq!([&trail[1]["what"], &trail[1]["object"]], [&json!("forget_event"), &json!("signup")]);
}

#[test]
fn of_two_who_write_a_new_attribute_at_once_one_is_told_that_the_other_was_first() {
    let place = Place::new();
    let token = place.token("operator");
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let path = format!("/admin/v1/visitors/{}/attributes?tenant=demo", visitor(1));
    let header = [("authorization", format!("Bearer {token}"))];
    let both = std::sync::Barrier::new(2);
    let put = |name: &str, value: serde_json::Value| {
        let body = json!({ "set": { name: value } }).to_string();
        both.wait();
        origin.call("PUT", &path, &header, body.as_bytes()).status
    };
    for name in (0..20).map(|n| format!("n{n}")) {
        let mut statuses: [u16; 2] = std::thread::scope(|scope| {
            [json!(1), json!("one")].map(|value| scope.spawn(|| put(&name, value))).map(|call| call.join().unwrap())
        });
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 400], "{name}");
    }
}

#[test]
fn a_catalogue_is_put_as_a_whole_and_its_way_to_the_kv_begins_with_its_value() {
    let place = Place::new();
    let (token, viewer) = (place.token("operator"), place.token("viewer"));
    let origin = place.serve();
    let call = |token: &str, method: &str, path: &str, body: &serde_json::Value| {
        let header = [("authorization", format!("Bearer {token}"))];
        origin.call(method, &format!("/admin/v1/catalogue{path}?tenant=demo"), &header, body.to_string().as_bytes())
    };
    let good = json!({
        "advertiser": [{ "id": "v" }], "campaign": [{ "id": "c", "advertiser": "v" }],
        "ad_group": [{ "id": "g", "campaign": "c" }],
        "ad": [{ "id": "a", "ad_group": "g", "creative": {}, "landing": "https://x.example/" }],
    });
    assert_eq!(call(&viewer, "GET", "", &json!(null)).code(), "unknown_version");
    assert_eq!(call(&viewer, "PUT", "", &good).code(), "forbidden");
    assert_eq!(call(&viewer, "POST", "/check", &good).json()["plan"]["changes"]["ad"]["added"], json!(["a"]));
    let mut bad = good.clone();
    bad["ad"][0]["landing"] = json!("javascript:x");
    bad["ad_group"][0]["campaign"] = json!("none");
    for (method, path) in [("PUT", ""), ("POST", "/check")] {
        let refused = call(&token, method, path, &bad);
        let error = &refused.json()["error"];
        assert_eq!((refused.status, error["code"].as_str()), (400, Some("invalid_catalogue")));
        let paths: Vec<&str> =
            error["problems"].as_array().unwrap().iter().filter_map(|p| p["path"].as_str()).collect();
        assert_eq!(paths, ["ad_group[0].campaign", "ad[0].landing"]);
    }
    assert_eq!(call(&token, "PUT", "", &good).json()["version"], 1);
    let mut second = good.clone();
    second["ad"][0]["weight"] = json!(7);
    assert_eq!(call(&token, "PUT", "", &second).json()["version"], 2);
    assert_eq!(call(&token, "POST", "/rollback", &json!({ "version": 1 })).json()["changed"], true);
    assert_eq!(call(&token, "POST", "/rollback", &json!({ "version": 9 })).code(), "unknown_version");
    assert_eq!(call(&token, "POST", "/rollback", &json!({})).status, 400);
    let shown = call(&viewer, "GET", "", &json!(null)).json();
    assert_eq!((&shown["version"], &shown["catalogue"]["ad"][0]["code"]), (&json!(1), &json!(1)));
    let versions = call(&viewer, "GET", "/versions", &json!(null)).json();
    assert_eq!((&versions["versions"][0]["version"], &versions["versions"][1]["by"]), (&json!(2), &json!("token")));
    second["campaign"][0]["budget_micros"] = json!(5_000_000);
    assert_eq!(call(&token, "PUT", "", &second).status, 200);
    let budget = &call(&viewer, "GET", "/budgets", &json!(null)).json()["budgets"][0];
    assert_eq!((&budget["left_micros"], &budget["daily_budget_micros"]), (&json!(5_000_000), &json!(null)));
}

#[test]
fn connections_and_people_are_read_over_http_and_by_the_command() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("viewer");
    for v in 1..=3 {
        origin.send(&[page(visitor(v), 1), origin.login(visitor(v), 2, "ann")]);
    }
    origin.send(&[page(visitor(4), 1)]);
    let id = |v: u32| visitor(v).to_string();
    let check = |a: &str, b: &str| origin.admin(&token, &format!("links/check?tenant=demo&a={a}&b={b}"));
    let connected = json!({ "connected": true, "weight": 1.0, "path": 2, "reads": 2 });
    // An acknowledged fact is folded a moment later.
    assert!((0..10_000).any(|_| check(&id(4), &id(4)).status == 200), "the link is not folded");
    assert_eq!(check(&id(2), &id(3)).json(), connected);
    assert_eq!(place.json(&["links", "check", &id(2), &id(3), "--tenant", "demo"]), connected);
    let apart = json!({ "connected": false, "weight": null, "path": null, "reads": 2 });
    assert_eq!(check(&id(1), &id(4)).json(), apart);
    for (a, b, status, code) in [("x", &*id(1), 400, "bad_id"), (&*id(1), &*id(9), 404, "unknown_visitor")] {
        let answer = check(a, b);
        assert_eq!((answer.status, answer.code().as_str()), (status, code));
    }
    let people = |path: &str| origin.admin(&token, &format!("people{path}"));
    let listed = |v: u32, devices: u32| json!({ "master": id(v), "devices": devices });
    assert_eq!(people("?tenant=demo&limit=1").json(), json!({ "people": [listed(1, 3)], "next": id(1) }));
    let rest = people(&format!("?tenant=demo&after={}", id(1))).json();
    assert_eq!(rest, json!({ "people": [listed(4, 1)], "next": null }));
    let one = people(&format!("/{}?tenant=demo&limit=2", id(2))).json();
    assert_eq!(
        (&one["master"], &one["devices"], one["members"].as_array().unwrap().len()),
        (&json!(id(1)), &json!(3), 2)
    );
    let last = people(&format!("/{}?tenant=demo&after={}", id(2), one["next"].as_str().unwrap())).json();
    assert_eq!((last["members"].as_array().unwrap().len(), &last["next"]), (1, &json!(null)));
    for (path, status) in [
        ("?tenant=demo&limit=0", 400),
        ("?tenant=demo&after=x", 400),
        ("?tenant=demo&after=&limit=", 200),
        ("/x?tenant=demo", 400),
    ] {
        assert_eq!(people(path).status, status, "{path}");
    }
    assert_eq!(people(&format!("/{}?tenant=demo", id(9))).status, 404);
}

#[test]
fn what_the_admin_side_says_is_no_edge_s_sync() {
    let place = Place::new();
    let token = place.token("operator");
    let origin = place.serve();
    let late = Fact { received: now() - 600_000, at: now() - 600_000, ..page(visitor(1), 1) };
    origin.send(&[late]);
    let metrics = || ["causeway_syncs_total", "causeway_queue_age_seconds"].map(|name| origin.metric(name));
    let before = metrics();
    assert!(before[1].starts_with("600"), "{before:?}");
    let set = json!({ "set": [{ "segment": 1, "expires_ms": now() + 3_600_000 }] });
    let path = format!("visitors/{}/segments", visitor(1));
    assert_eq!(origin.asked(&token, "PUT", &path, &set).status, 200);
    assert_eq!(metrics(), before);
}

#[test]
fn a_token_is_for_its_tenant_alone_and_its_use_is_noted() {
    let place = Place::new();
    let origin = place.serve();
    let made = place.json(&["token", "create", "--role", "operator", "--tenant", "pub", "--days", "30"]);
    let token = made["token"].as_str().unwrap();
    assert_eq!(made["tenant"], "pub");
    let lives = made["expires_ms"].as_u64().unwrap() - now();
    assert!(lives.abs_diff(30 * 86_400_000) < 600_000, "{lives}");
    let asks = |path: &str| origin.admin(token, path);
    for path in ["catalogue/versions?tenant=demo", "attributes?tenant=demo", "audiences?tenant=demo", "jobs"] {
        let answer = asks(path);
        assert_eq!((answer.status, answer.code().as_str()), (403, "other_tenant"), "{path}");
    }
    let refused = post_proof(&origin, token, r#"{"tenant":"demo","sub":"m"}"#);
    assert_eq!((refused.status, refused.code().as_str()), (403, "other_tenant"));
    assert_eq!([asks("attributes").status, asks("attributes?tenant=pub").status], [200, 200]);
    within(SOON, "the use of the token is noted", || {
        let tokens = place.json(&["token", "list"]);
        let used = tokens.as_array().unwrap().iter().find(|one| one["id"] == made["id"]).unwrap()["used_ms"].as_u64();
        once(used, Option::is_some).map_err(|_| "not used yet")
    });
    let refused = place.run(&["token", "create"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--all-tenants"), "{refused:?}");
}

#[test]
fn a_catalogue_without_rows_needs_a_word_more() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("operator");
    let bearer = [("authorization", format!("Bearer {token}"))];
    let put = |path: &str, body: &str| origin.call("PUT", &format!("/admin/v1/{path}"), &bearer, body.as_bytes());
    let rows = r#"{"advertiser":[{"id":"a"}]}"#;
    assert_eq!(put("catalogue?tenant=demo", rows).status, 200);
    let refused = put("catalogue?tenant=demo", "{}");
    assert_eq!((refused.status, refused.code().as_str()), (400, "empty_catalogue"));
    let message = String::from_utf8_lossy(&refused.body);
    assert!(message.contains("1 of `advertiser`"), "{message}");
    assert_eq!(put("catalogue?tenant=demo&empty=true", "{}").status, 200);
}
