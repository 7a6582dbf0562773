//! Consent, bad input and hostile callers: the effect on answers, on the store and on the log.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at its first failure")]

use std::io::{Read as _, Write as _};

use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::{self, kv_keys};
use causeway_tests::bare::tenant;
use causeway_tests::browser::{Browser, CONSENTS, CONSENTS_TO_NOTHING, call};
use causeway_tests::world::World;
use causeway_tests::{eventually, run};
use serde_json::{Value, json};

fn main() {
    run(
        World::start,
        &[
            ("no_permission_leaves_no_trace_on_any_route", no_trace),
            ("a_visitor_that_withdraws_is_cut_from_every_view", withdraws),
            ("an_erased_visitor_has_no_data_and_a_copy_of_its_cookie_is_not_recognised", erased),
            ("the_members_proof_erases_the_whole_person", erased_person),
            ("lost_and_damaged_kv_values_are_read_back_and_mended", loses_values),
            ("a_present_consent_string_that_refuses_is_a_refusal", refusing_strings),
            ("no_input_breaks_the_worker", bad_bodies),
            ("headers_of_any_bytes_are_answered", bad_headers),
            ("bad_events_are_reported_and_affect_no_other_event", bad_events),
            ("foreign_and_forged_cookies_are_not_accepted", bad_cookies),
            ("only_configured_origins_may_call_with_credentials", cors),
            ("the_admin_api_is_closed_without_a_token", closed_admin_api),
            ("the_sync_route_is_closed_without_a_signature", closed_sync_route),
            ("no_raw_id_reaches_the_store_or_a_log", no_raw_ids),
        ],
    )
}

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

fn visitor_of(answer: &Value) -> String {
    answer["visitor"].as_str().unwrap_or_else(|| panic!("no visitor in {answer}")).to_owned()
}

/// Checks that an answer has no visitor and sets no cookie.
fn assert_anonymous(browser: &Browser, method: &str, path: &str, body: &Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = browser.send(method, path, &[("content-type", "application/json")], text.as_bytes());
    assert!(answer.status < 300, "{path}: {}", answer.status);
    assert_eq!(answer.set_cookies(), Vec::<&str>::new(), "{path}");
    let reply = answer.json();
    assert_eq!(reply.get("visitor").unwrap_or(&Value::Null), &Value::Null, "{path}: {reply}");
    assert_eq!(reply.get("accepted").unwrap_or(&json!(0)), &json!(0), "{path}: {reply}");
    // The catalogue may be read, which is the same for all visitors; `kv_faults` checks that no other key is read.
    assert!(reply.get("kv_reads").is_none_or(|reads| reads.as_u64() <= Some(1)), "{path}: {reply}");
}

/// Calls every route with a browser that refuses, and the addresses of an ad that another browser was shown.
fn every_route(world: &World, browser: &Browser, tenant: &str, member: &str, shown: Option<&Value>) {
    let proof = world.proof(tenant, member);
    let user = json!({ "ids": { "member": member }, "proofs": { "member": proof } });
    assert_anonymous(browser, "POST", "/v1/decide", &json!({ "placements": [{ "id": "top" }], "user": user }));
    let action = json!({ "type": "action", "action": "hide", "insertion": shown.map(|shown| &shown["insertion"]) });
    assert_anonymous(browser, "POST", "/v1/events", &json!([{ "type": "page", "id": "trace-page" }, action]));
    assert_anonymous(browser, "GET", "/v1/me", &Value::Null);
    let erased = browser.send("DELETE", "/v1/me", &[("x-causeway-proof", &proof)], b"");
    assert_eq!((erased.status, erased.json()["error"]["code"].clone()), (404, json!("no_visitor")));
    assert_eq!(erased.set_cookies(), Vec::<&str>::new());
    for (address, status) in [("impression_url", 200), ("click_url", 302)] {
        let Some(address) = shown.and_then(|shown| shown[address].as_str()) else { continue };
        let answer = browser.send("GET", address, &[], b"");
        assert_eq!((answer.status, answer.set_cookies().len()), (status, 0), "{address}");
    }
}

fn no_trace(world: &World) {
    // The second string is valid and consents to no purpose; the last two are valid opt-outs.
    let cookies: [&[(&str, &str)]; 6] = [
        &[("euconsent-v2", "garbage")],
        &[("euconsent-v2", CONSENTS_TO_NOTHING)],
        &[("__gpp", "garbage")],
        &[("__gpp_sid", "7")],
        &[("usprivacy", "1YYN")],
        &[("__gpp", "DBABL~BVVVVVVVVWA.YA"), ("__gpp_sid", "7")],
    ];
    let shown: Vec<Value> = (0..=cookies.len()).map(|n| json!({ "id": n.to_string() })).collect();
    let watcher = world.browser();
    let placed = watcher.decide(&json!({ "placements": shown })).json();
    let visitor = visitor_of(&placed);
    let gpc = world.browser();
    gpc.send_header("sec-gpc", "1");
    every_route(world, &gpc, "demo", "traceless-gpc", Some(&placed["decisions"][cookies.len()]));
    // This tenant treats a missing signal as a refusal; the addresses are those of an ad for a visitor with consent.
    let consenting = json!({ "consent": { "tcf": CONSENTS }, "placements": [{ "id": "top" }] });
    let placed_there = world.browser_at("strict.localhost").decide(&consenting).json();
    assert!(placed_there["visitor"].is_string(), "{placed_there}");
    let silent = world.browser_at("strict.localhost");
    every_route(world, &silent, "strict", "traceless-policy", Some(&placed_there["decisions"][0]));
    for (n, refusal) in cookies.iter().enumerate() {
        let browser = world.browser();
        refusal.iter().for_each(|(name, value)| browser.set_cookie(name, value));
        every_route(world, &browser, "demo", &format!("traceless-{n}"), Some(&placed["decisions"][n]));
    }
    // A later, permitted call is found at both tenants; the earlier calls would be found too.
    watcher.view_as("traced", &world.proof("demo", "traced"));
    let user = json!({ "ids": { "member": "traced" }, "proofs": { "member": world.proof("strict", "traced") } });
    let consent = json!({ "tcf": CONSENTS });
    let strict = world.browser_at("strict.localhost").decide(&json!({ "user": user, "consent": consent })).json();
    for (tenant, visitor) in [("demo", &visitor), ("strict", &visitor_of(&strict))] {
        let found = || (world.lookup(tenant, "traced") == json!(visitor)).then_some(());
        eventually(&format!("the member of {tenant} is found"), found);
    }
    world.settles(&visitor, 2, 0);
    let members = (0..cookies.len()).map(|n| n.to_string()).chain(["gpc".to_owned()]);
    members.for_each(|of| assert_eq!(world.lookup("demo", &format!("traceless-{of}")), Value::Null, "{of}"));
    assert_eq!(world.lookup("strict", "traceless-policy"), Value::Null);
    let query = json!({ "visitor": visitor, "actions": ["impression", "click", "hide"], "last": { "interval": 2, "unit": "days" }, "level": "ad", "ids": [0] });
    assert_eq!(world.admin("POST", "counts?tenant=demo", &query).json()["counts"], json!({ "0": 0 }));
    let log = world.edge_log() + &world.origin_log();
    assert!(!log.contains("traceless") && !log.contains("trace-page"));
}

fn withdraws(world: &World) {
    let proof = world.proof("demo", "leaver");
    let (stays, leaves) = (world.browser(), world.browser());
    let s = visitor_of(&stays.view_as("leaver", &proof));
    let l = visitor_of(&leaves.view_as("leaver", &proof));
    leaves.buy("before-leaving", 1_000_000);
    world.settles(&l, 1, 1);
    let view = |browser: &Browser| {
        let me = browser.me(Some(&proof));
        (me["view"]["pages"].clone(), me["view"]["purchases"].clone(), me["person"]["devices"].clone())
    };
    eventually("both are seen together", || (view(&stays) == (json!(2), json!(1), json!(2))).then_some(()));
    leaves.send_header("sec-gpc", "1");
    let answer = leaves.decide(&json!({}));
    assert_eq!(answer.json()["consent"], "none");
    assert!(answer.set_cookies().iter().all(|c| c.contains("Max-Age=0")), "{:?}", answer.set_cookies());
    assert_eq!((leaves.cookie("cw_id"), leaves.cookie("cw_recent")), (None, None));
    eventually("the withdrawn visitor is cut from the other's view", || {
        (view(&stays) == (json!(1), json!(0), json!(1))).then_some(())
    });
    let held = world.visitor(&s);
    assert_eq!((held["person"]["devices"].clone(), held["view"]["purchases"].clone()), (json!(1), json!(0)));
    assert_eq!(world.lookup("demo", "leaver"), json!(s), "the lookup names the remaining visitor");
}

/// Requests an erasure and waits until it is done; returns its scope.
fn erase(world: &World, browser: &Browser, extra: &[(&str, &str)]) -> Value {
    let answer = browser.send("DELETE", "/v1/me", extra, b"");
    let reply = answer.json();
    assert_eq!(answer.status, 202, "{reply}");
    let cookies = answer.set_cookies();
    let expired = |name: &str| cookies.iter().any(|c| c.starts_with(name) && c.contains("Max-Age=0;"));
    assert!(cookies.len() == 3 && ["cw_id=;", "cw_recent=;", "cw_session=;"].into_iter().all(expired), "{cookies:?}");
    assert!(browser.cookies().is_empty());
    let path = format!("erase/{}?tenant=demo", reply["receipt"].as_str().unwrap());
    let done = eventually("the erasure is done", || {
        Some(world.admin("GET", &path, &Value::Null).json()).filter(|progress| progress["done_ms"].is_u64())
    });
    assert_eq!(done["keys"]["all"], done["keys"]["written"], "{done}");
    reply["scope"].clone()
}

fn assert_erased(world: &World, visitor: &str) {
    let id: VisitorId = visitor.parse().unwrap();
    let key = kv_keys::snapshot_key(&tenant(), id);
    let value = world.kv(&key).unwrap();
    assert_eq!(wire::kv::decode_stored(&key, id, &value).unwrap(), StoredValue::Tombstone);
    assert_eq!(world.visitor(visitor)["own"].get("pages").unwrap_or(&json!(0)), &json!(0), "the origin has no data");
}

/// The KV loses one value and damages another; a run of `verify` finds both through the edge.
fn loses_values(world: &World) {
    let visitors = [(); 2].map(|()| visitor_of(&world.browser().view()));
    visitors.iter().for_each(|visitor| drop(world.settles(visitor, 1, 0)));
    world.published();
    let keys = visitors.map(|visitor| kv_keys::snapshot_key(&tenant(), visitor.parse().unwrap()));
    let right = keys.each_ref().map(|key| world.kv(key).unwrap());
    world.lose(&keys[0]);
    world.damage(&keys[1]);
    let report = world.causeway(&["job", "run", "verify"], &Value::Null);
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("missing") >= 1 && count("differs") >= 1 && count("right") >= 1, "{report}");
    for (key, right) in keys.iter().zip(right) {
        // The repaired value has a version of its own.
        let mended = |value: &Vec<u8>| value.starts_with(b"s1") && value.len() >= right.len() - 8;
        eventually("the value is in the KV again", || world.kv(key).filter(mended));
    }
}

/// Returns the new visitor of a browser with an erased visitor's cookie: the first request expires it, the next one
/// mints.
fn next_visitor(browser: &Browser, erased: &str) -> String {
    eventually("the browser has a new visitor", || {
        browser.view()["visitor"].as_str().filter(|visitor| *visitor != erased).map(str::to_owned)
    })
}

fn erased(world: &World) {
    let browser = world.browser();
    let visitor = visitor_of(&browser.view());
    browser.buy("before-erasure", 1_000_000);
    world.settles(&visitor, 1, 1);
    world.published();
    let copy = world.browser();
    copy.put_back(browser.cookies());
    let asked = world.admin("POST", "erase?tenant=demo", &json!({ "visitor": visitor }));
    assert_eq!(asked.status, 403, "an operator may not erase");
    assert_eq!(erase(world, &browser, &[]), "visitor");
    assert_erased(world, &visitor);
    let minted = next_visitor(&copy, &visitor);
    world.settles(&minted, 1, 0);
    assert_erased(world, &visitor);
    let without_cookie = world.browser().send("DELETE", "/v1/me", &[], b"");
    assert_eq!((without_cookie.status, without_cookie.json()["error"]["code"].clone()), (404, json!("no_visitor")));
}

fn erased_person(world: &World) {
    let proof = world.proof("demo", "eraser");
    let (phone, laptop) = (world.browser(), world.browser());
    let p = visitor_of(&phone.view_as("eraser", &proof));
    let l = visitor_of(&laptop.view_as("eraser", &proof));
    laptop.buy("before-the-person-went", 1_000_000);
    world.settles(&p, 1, 0);
    world.settles(&l, 1, 1);
    world.published();
    assert_eq!(erase(world, &phone, &[("x-causeway-proof", &proof)]), "person");
    assert_erased(world, &p);
    assert_erased(world, &l);
    assert_eq!(world.lookup("demo", "eraser"), Value::Null);
    next_visitor(&laptop, &l);
    // The member may return as a new visitor without any data.
    let back = phone.view_as("eraser", &proof);
    assert_eq!(back["person"], json!({ "devices": 1, "new_visitor": true, "bridged": false }));
    assert_eq!(world.settles(&visitor_of(&back), 1, 0)["person"]["devices"], 1);
}

fn refusing_strings(world: &World) {
    // TCF v2 strings without consent to any purpose, and a GPP string whose US section opts out of sale.
    let refusals = [
        json!({ "tcf": CONSENTS_TO_NOTHING }),
        json!({ "tcf": "" }),
        json!({ "tcf": "CPXxRfAPXxRfAAfKABENB-Cg" }),
        json!({ "tcf": "BOEFEAyOEFEAyAHABDENAI4AAAB9vABAASA" }),
        json!({ "gpp": "DBABLA~BVVVVVVVVWA.AA", "gpp_sid": [7] }),
        json!({ "gpp": "DBAA", "gpp_sid": [7] }),
        json!({ "gpp": "nonsense" }),
        json!({ "tcf": "A".repeat(5_000) }),
    ];
    for consent in refusals {
        let answer = world.browser().decide(&json!({ "consent": consent }));
        let reply = answer.json();
        assert_eq!(
            (answer.status, reply["consent"].clone(), reply["visitor"].clone()),
            (200, json!("none"), Value::Null),
            "{consent}"
        );
        assert_eq!(answer.set_cookies(), Vec::<&str>::new(), "{consent}");
    }
}

fn bad_bodies(world: &World) {
    let post = |path: &str, body: &[u8]| world.browser().send("POST", path, &[("content-type", "text/plain")], body);
    let two_mb = vec![b'x'; 2 << 20];
    let deep = format!("{}{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    let placements: Vec<Value> = (0..10_000).map(|n| json!({ "id": n.to_string() })).collect();
    let long_id = json!({ "user": { "ids": { "partner": "x".repeat(1 << 20) } } }).to_string();
    let many = json!({ "placements": placements }).to_string();
    let cases: [(&[u8], u16); 6] = [
        (&two_mb, 413),
        (long_id.as_bytes(), 413),
        (many.as_bytes(), 413),
        (deep.as_bytes(), 400),
        (b"\xff\xfe{}", 400),
        (br#"{"placements":[{"id":"top","floor_micros":NaN}]}"#, 400),
    ];
    for (body, status) in cases {
        let answer = post("/v1/decide", body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        assert_eq!(answer.status, status, "{shown}: {}", answer.json());
        assert!(answer.json()["error"]["message"].is_string(), "{shown}");
    }
    // An invalid placement is refused alone.
    for bad in
        [json!({ "id": "top", "floor_micros": -1 }), json!({ "id": "top", "sizes": [[728]] }), json!({ "id": "" })]
    {
        let answer = world.browser().decide(&json!({ "placements": [bad, { "id": "good" }] }));
        let reply = answer.json();
        assert_eq!((answer.status, &reply["decisions"][0]["placement"]), (200, &json!("good")), "{reply}");
        assert!(reply["rejected"][0]["field"].as_str().unwrap().starts_with("placements[0]"), "{reply}");
    }
    let events = vec![json!({ "type": "page" }); limits::EVENTS + 1];
    for (body, status, code) in [
        (&two_mb[..], 413, "too_large"),
        (format!("[{deep}]").as_bytes(), 400, "malformed"),
        (b"[\xff\xfe]", 400, "malformed"),
        (b"[", 400, "malformed"),
        (b"", 400, "malformed"),
        (json!(events).to_string().as_bytes(), 400, "out_of_bounds"),
    ] {
        let answer = post("/v1/events", body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (status, Some(code)), "{shown}");
    }
    let over = json!({ "placements": (0..33).map(|n| json!({ "id": n.to_string() })).collect::<Vec<_>>() });
    assert_eq!(world.browser().decide(&over).json()["rejected"][0]["field"], "placements[32]");
    let id = json!({ "user": { "ids": { "partner": "x".repeat(300) } } });
    assert_eq!(world.browser().decide(&id).json()["partner"], "too_long");
    assert_eq!(world.browser().decide(&json!({})).status, 200);
    let health = call("GET", &format!("{}/healthz", world.edge), &[], b"").json();
    assert_eq!(health["module_restarts"], 0, "{health}");
}

/// A header with bytes that are not text counts as absent; the rest of the call is read.
fn bad_headers(world: &World) {
    let address = world.edge.trim_start_matches("http://").replace("localhost", "127.0.0.1");
    let send = |method: &str, path: &str, name: &str, value: &[u8]| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n{name}: "
        );
        stream.write_all(&[head.as_bytes(), value, b"\xff\xfe\x80\xc3(; \xf0\x9f\r\n\r\n{}"].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let reply = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str::<Value>(body).unwrap_or_default())
    };
    for (name, value, status, consent) in [
        ("cookie", "cw_id=", 200, "full"),
        ("cookie", "cw_recent=", 200, "full"),
        ("cookie", "euconsent-v2=", 200, "none"),
        ("cookie", "__gpp=", 200, "none"),
        ("cookie", "usprivacy=", 200, "none"),
        ("origin", "", 403, ""),
        ("sec-gpc", "", 200, "full"),
        ("sec-gpc", "1,", 200, "none"),
        ("sec-purpose", "", 200, "full"),
        ("user-agent", "", 200, "full"),
        ("x-causeway-explain", "", 200, "full"),
        ("x-causeway-proof", "", 200, "full"),
        ("cf-connecting-ip", "", 200, "full"),
    ] {
        let (actual, body) = send("POST", "/v1/decide", name, value.as_bytes());
        assert_eq!(
            (actual, body["consent"].as_str().unwrap_or_default()),
            (status, consent),
            "{name}: {value}: {body}"
        );
        assert_eq!(body["visitor"].is_string(), consent == "full", "{name}: {value}: {body}");
        for (method, path) in
            [("GET", "/v1/me"), ("POST", "/v1/events"), ("DELETE", "/v1/me"), ("GET", "/v1/i/x"), ("GET", "/v1/c/x")]
        {
            let (actual, body) = send(method, path, name, value.as_bytes());
            assert!(actual < 500 && body["reason"] != "internal", "{method} {path} {name}: {actual} {body}");
        }
    }
    let long = world.browser();
    long.set_cookie("cw_id", &"a".repeat(10_000));
    let answer = long.decide(&json!({}));
    assert_eq!(answer.status, 200);
    assert_ne!(answer.json()["reason"], json!("internal"));
    let health = call("GET", &format!("{}/healthz", world.edge), &[], b"").json();
    assert_eq!(health["module_restarts"], 0, "{health}");
}

fn bad_events(world: &World) {
    let browser = world.browser();
    let visitor = visitor_of(&browser.view());
    let purchase = |id: Value, at: Value, micros: Value| json!({ "type": "track", "id": id, "at_ms": at, "name": "purchase", "properties": { "value_micros": micros } });
    let now = causeway_tests::bare::now();
    let events = json!([
        purchase(json!("good-1"), json!(now), json!(1)),
        purchase(json!("x".repeat(200)), json!(now), json!(1)),
        purchase(json!("old"), json!(0), json!(1)),
        purchase(json!("far"), json!(4_102_444_800_000_u64), json!(1)),
        purchase(json!("negative"), json!(now), json!(-1)),
        purchase(json!("fraction"), json!(now), json!(1.5)),
        { "type": "nonsense" },
        { "type": "track" },
        "not an object",
        { "type": "track", "name": "n".repeat(500) },
        { "type": "track", "name": "noise", "properties": { "text": "y".repeat(5_000) } },
        purchase(json!("good-2"), json!(now - 1_000), json!(2)),
    ]);
    let answer = browser.events(&events);
    let reply = answer.json();
    assert_eq!((answer.status, reply["accepted"].clone()), (202, json!(4)), "{reply}");
    let adjusted: Vec<&Value> = reply["adjusted"].as_array().unwrap().iter().map(|one| &one["index"]).collect();
    assert_eq!(adjusted, [2, 3], "they count at their receipt time");
    let refused: Vec<(u64, String)> = reply["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["index"].as_u64().unwrap(), r["code"].as_str().unwrap().to_owned()))
        .collect();
    let expected = [
        (1, "too_long"),
        (4, "value_out_of_range"),
        (5, "value_out_of_range"),
        (6, "unknown_type"),
        (7, "malformed"),
        (8, "malformed"),
        (9, "too_long"),
        (10, "too_long"),
    ];
    assert_eq!(refused, expected.map(|(i, code)| (i, code.to_owned())));
    let lines = b"{\"type\":\"page\",\"id\":\"line-1\"}\n\n{broken\n{\"type\":\"page\",\"id\":\"line-2\"}\n";
    let answer = browser.send("POST", "/v1/events", &[("content-type", "text/plain")], lines).json();
    assert_eq!((answer["accepted"].clone(), answer["rejected"][0]["index"].clone()), (json!(2), json!(1)), "{answer}");
    let held = world.settles(&visitor, 3, 4);
    assert_eq!(held["own"]["revenue_micros"], 5);
    let stranger = world.browser().events(&json!([{ "type": "page" }])).json();
    assert_eq!(stranger["rejected"][0]["code"], "no_visitor");
}

fn bad_cookies(world: &World) {
    let donor = world.browser();
    let real = visitor_of(&donor.view());
    let good = donor.cookie("cw_id").unwrap();
    let parts: Vec<&str> = good.split('.').collect();
    let forged = format!("v1.{}.{}.{}", parts[1], parts[2], causeway_tests::base64url(&[7; 16]));
    let unknown_key = format!("v1.200.{}.{}", parts[2], parts[3]);
    let other = world.browser_at("strict.localhost");
    for value in [
        &good[..good.len() - 1],
        &good[..20],
        "",
        "v1",
        "v2.1.AA.AA",
        &forged,
        &unknown_key,
        "%00",
        &donor.cookie("cw_recent").unwrap(),
    ] {
        let browser = world.browser();
        browser.set_cookie("cw_id", value);
        let reply = browser.view();
        assert_ne!(visitor_of(&reply), real, "{value}");
        assert_eq!(reply["person"]["new_visitor"], true, "{value}");
    }
    other.set_cookie("cw_id", &good);
    assert_eq!(other.send("GET", "/v1/me", &[], b"").json()["visitor"], Value::Null, "another tenant's");
    // This tenant treats a missing signal as a refusal, so only a call with consent shows that the cookie is not
    // accepted.
    other.set_cookie("cw_id", &good);
    let reply = other.decide(&json!({ "consent": { "tcf": CONSENTS } })).json();
    assert_ne!(visitor_of(&reply), real, "another tenant's");
    assert_eq!(reply["person"]["new_visitor"], true, "another tenant's");
}

fn cors(world: &World) {
    let preflight = |origin: &str| {
        world.browser().send(
            "OPTIONS",
            "/v1/decide",
            &[("origin", origin), ("access-control-request-method", "POST")],
            b"",
        )
    };
    let good = preflight("http://pub.localhost");
    assert_eq!((good.status, good.header("access-control-allow-origin")), (204, Some("http://pub.localhost")));
    assert_eq!(good.header("access-control-allow-credentials"), Some("true"));
    let bad = preflight("https://evil.example");
    assert_eq!((bad.status, bad.header("access-control-allow-origin")), (403, None));
    let posted = world.browser().send("POST", "/v1/events", &[("origin", "null")], br#"[{"type":"page"}]"#);
    assert_eq!((posted.status, posted.json()["error"]["code"].clone()), (403, json!("origin")));
    assert_eq!(world.browser().send("PUT", "/v1/decide", &[], b"{}").status, 405);
    assert_eq!(world.browser().send("GET", "/nothing", &[], b"").status, 404);
}

fn closed_admin_api(world: &World) {
    let document = world.admin("GET", "openapi.json", &Value::Null).json();
    let admin = document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/admin/"));
    let every: Vec<(String, String)> = admin
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |m| (m.to_uppercase(), path)))
        .map(|(method, path)| (method, path.replace("{id}", "01920000-0000-7000-8000-000000000000")))
        .collect();
    assert!(every.len() > 40, "{every:?}");
    for authorization in ["", "Bearer", "Bearer cwt_wrong", "Basic YTpi"] {
        let headers = [("authorization".to_owned(), authorization.to_owned())];
        for (method, path) in &every {
            let path = path.replace(['{', '}'], "");
            let answer = call(method, &format!("{}{path}", world.origin), &headers, b"");
            let actual = (answer.status, answer.json()["error"]["code"].clone());
            assert_eq!(actual, (401, json!("unauthorized")), "{method} {path} with {authorization:?}");
        }
    }
    let unknown = world.admin("GET", "visitors/not-a-uuid?tenant=demo", &Value::Null);
    assert_eq!(unknown.status, 400, "{:?}", unknown.json());
    let absent = world.admin("GET", "visitors/01920000-0000-7000-8000-000000000000?tenant=demo", &Value::Null);
    assert_eq!(absent.status, 404);
}

fn closed_sync_route(world: &World) {
    let url = format!("{}/v1/sync", world.origin);
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let now = causeway_tests::bare::now().to_string();
    let forged = [
        header("x-causeway-key", "1"),
        header("x-causeway-time", &now),
        header("x-causeway-mac", &causeway_tests::base64url(&[1; 32])),
    ];
    // A CBOR array that claims 2^60 elements, and one nested 100,000 deep.
    let bombs = [vec![0x9b, 0x10, 0, 0, 0, 0, 0, 0, 0], vec![0x81; 100_000]];
    for bomb in bombs {
        for headers in [&[][..], &forged[..]] {
            let answer = call("POST", &url, headers, &bomb);
            assert!(answer.status == 401, "{}", answer.status);
        }
    }
}

fn no_raw_ids(world: &World) {
    let secret = "raw-member-4711";
    let proof = world.proof("demo", secret);
    let browser = world.browser();
    browser.headers.borrow_mut().push(("user-agent".to_owned(), FIREFOX.to_owned()));
    let visitor = visitor_of(&browser.view_as(secret, &proof));
    world.settles(&visitor, 1, 0);
    let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    let stored = world.store_bytes();
    let id: VisitorId = visitor.parse().unwrap();
    assert!(stored.windows(16).any(|w| w == id.as_bytes()), "the store has the visitor's row");
    assert!(!holds(&stored, secret), "the store holds a raw alternate id");
    for log in [world.edge_log(), world.origin_log()] {
        assert!(!log.is_empty());
        assert!(!log.contains(secret) && !log.contains(&visitor), "a log line carries an id");
    }
}
