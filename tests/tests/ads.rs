//! Placed ads: their impressions and clicks, with the real worker, queues and origin.
#![expect(clippy::unwrap_used, reason = "a test ends at its first failure")]

use causeway_tests::browser::{Browser, CONSENTS};
use causeway_tests::world::World;
use causeway_tests::{eventually, run, well_before_midnight};
use serde_json::{Value, json};

fn main() {
    run(
        World::start,
        &[
            ("impressions_clicks_and_configured_actions_count_once_a_day", count_once_a_day),
            ("the_origin_counts_acknowledged_actions_over_the_person", over_the_person),
            ("segments_are_written_and_removed_by_events", segments),
            ("attributes_are_set_by_name_and_a_type_mismatch_is_refused_alone", attributes),
            ("parallel_placements_count_each_and_set_no_cookie", slots),
            ("forged_late_and_foreign_tokens_count_nothing", forged),
            ("actions_without_permission_are_not_counted", no_permission),
            ("an_offline_explanation_equals_the_live_decision", explained),
            ("the_sample_filter_targets_buyers_of_the_last_week", sample),
        ],
    )
}

/// Requests a page with this many slots; returns its visitor and decisions.
fn page(browser: &Browser, slots: usize) -> (String, Vec<Value>) {
    let placements: Vec<Value> =
        (0..slots).map(|n| json!({ "id": format!("slot-{n}"), "view_type": "article" })).collect();
    let body = browser.decide(&json!({ "placements": placements })).json();
    (body["visitor"].as_str().unwrap().to_owned(), body["decisions"].as_array().unwrap().clone())
}

fn text(decision: &Value, name: &str) -> String {
    decision[name].as_str().unwrap_or_else(|| unreachable!("no {name} in {decision}")).to_owned()
}

/// The origin's count of actions on the house ad, whose codes are 0. It covers two days, because a test may begin
/// before midnight.
fn count(world: &World, visitor: &str, over: &Value) -> u64 {
    let mut query = json!({ "visitor": visitor, "actions": ["impression"], "last": { "interval": 2, "unit": "days" }, "level": "ad", "ids": [0] });
    if let (Some(query), Some(over)) = (query.as_object_mut(), over.as_object()) {
        query.extend(over.clone());
    }
    let answer = world.admin("POST", "counts?tenant=demo", &query);
    if answer.status == 404 { 0 } else { answer.json()["counts"]["0"].as_u64().unwrap() }
}

fn counted(world: &World, visitor: &str, over: &Value, wanted: u64) {
    eventually(&format!("{over} counts {wanted}"), || (count(world, visitor, over) == wanted).then_some(()));
}

fn count_once_a_day(world: &World) {
    well_before_midnight();
    let browser = world.browser();
    let (visitor, decisions) = page(&browser, 1);
    let [decision] = decisions.as_slice() else { unreachable!() };
    for _ in 0..2 {
        let pixel = browser.send("GET", &text(decision, "impression_url"), &[], b"");
        assert_eq!(
            (pixel.status, pixel.header("content-type"), pixel.header("cache-control")),
            (200, Some("image/gif"), Some("no-store"))
        );
        assert!(pixel.body.starts_with(b"GIF89a"));
    }
    let click = browser.send("GET", &text(decision, "click_url"), &[], b"");
    assert_eq!((click.status, click.header("location")), (302, Some("https://example.com/landing")));
    let insertion = text(decision, "insertion");
    let answer = browser.events(&json!([
        { "type": "action", "insertion": insertion, "action": "hide" },
        { "type": "action", "insertion": insertion, "action": "hide", "id": "another name, the same action" },
        { "type": "action", "insertion": insertion, "action": "frown" },
        { "type": "action", "insertion": "v1.1.x.y", "action": "hide" },
        { "type": "action", "action": "hide" },
    ]));
    let body = answer.json();
    let codes: Vec<&str> = body["rejected"].as_array().unwrap().iter().map(|r| r["code"].as_str().unwrap()).collect();
    assert_eq!((body["accepted"].clone(), codes), (json!(2), vec!["unknown_action", "token_forged", "malformed"]));
    for (action, times) in [("impression", 1), ("click", 1), ("hide", 1)] {
        counted(world, &visitor, &json!({ "actions": [action] }), times);
    }
    assert_eq!(count(world, &visitor, &json!({ "view_types": ["article"] })), 1);
    assert_eq!(count(world, &visitor, &json!({ "view_types": ["home"] })), 0);
    assert_eq!(count(world, &visitor, &json!({ "level": "advertiser" })), 1);
    let expected = json!([{ "action": "impression", "count": 1 }, { "action": "click", "count": 1 }, { "action": "hide", "count": 1 }]);
    eventually("the visitor is shown its actions", || (browser.me(None)["actions"] == expected).then_some(()));
}

fn over_the_person(world: &World) {
    let proof = world.proof("demo", "ads-ann");
    let (first, second) = (world.browser(), world.browser());
    for browser in [&first, &second] {
        browser.view_as("ads-ann", &proof);
    }
    let (a, one) = page(&first, 1);
    let (b, two) = page(&second, 2);
    for (browser, decision) in [(&first, &one[0]), (&second, &two[0]), (&second, &two[1])] {
        browser.send("GET", &text(decision, "impression_url"), &[], b"");
    }
    counted(world, &a, &json!({}), 3);
    assert_eq!(count(world, &b, &json!({})), 3);
    assert_eq!(count(world, &a, &json!({ "own": true })), 1);
    assert_eq!(count(world, &b, &json!({ "own": true })), 2);
}

fn segments(world: &World) {
    const HOUR: u64 = 3_600_000;
    let now = u64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let browser = world.browser();
    page(&browser, 1);
    let expires = (now / HOUR + 48) * HOUR;
    let answer = browser.events(&json!([
        { "type": "segments", "set": [
            { "segment": 8457, "expires_ms": expires, "attributes": { "3": -7 } },
            { "segment": 12, "expires_ms": expires - 1 },
            { "segment": 4, "expires_ms": now + HOUR },
        ] },
        { "type": "segments", "set": [{ "segment": 1, "expires_ms": now - HOUR }] },
        { "type": "segments", "set": [{ "segment": 1, "expires_ms": 4_133_984_400_000u64 }] },
        { "type": "segments" },
        { "type": "segments", "set": [{ "segment": -1, "expires_ms": expires }] },
    ]));
    let body = answer.json();
    let codes: Vec<&str> = body["rejected"].as_array().unwrap().iter().map(|r| r["code"].as_str().unwrap()).collect();
    assert_eq!(
        (body["accepted"].clone(), codes),
        (json!(1), vec!["expiry_out_of_range", "expiry_out_of_range", "out_of_bounds", "malformed"])
    );
    let shown = |ids: &[u64]| {
        let held = browser.me(None)["segments"].as_array().unwrap().clone();
        let found: Vec<u64> = held.iter().map(|s| s["segment"].as_u64().unwrap()).collect();
        (found == ids).then_some(held)
    };
    let held = eventually("three segments are shown", || shown(&[4, 12, 8457]));
    assert_eq!(
        (&held[1]["expires_ms"], &held[2]["expires_ms"]),
        (&json!(expires), &json!(expires)),
        "an expiry counts to the end of its hour"
    );
    let removed = browser.events(&json!([{ "type": "segments", "remove": [12, 99] }]));
    assert_eq!(removed.json()["accepted"], 1);
    eventually("one is gone", || shown(&[4, 8457]));
}

fn attributes(world: &World) {
    let browser = world.browser();
    let (visitor, _) = page(&browser, 1);
    let event = |set: Value| json!([{ "type": "attributes", "set": set }]);
    let first = browser.send(
        "POST",
        "/v1/events",
        &[],
        event(json!({ "shoe_size": 42, "city": "Oslo" })).to_string().as_bytes(),
    );
    assert_eq!((first.status, first.json()["accepted"].clone()), (202, json!(1)));
    let own = || {
        world.admin("GET", &format!("visitors/{visitor}/attributes?tenant=demo"), &Value::Null).json()["own"].clone()
    };
    eventually("the origin has both attributes", || {
        (own() == json!({ "shoe_size": 42, "city": "Oslo" })).then_some(())
    });
    // The names have reached the edge: it refuses a value of another type and accepts the other attribute of the event.
    let second = event(json!({ "shoe_size": "big", "vip": true }));
    let refused = eventually("the edge knows the names", || {
        let answer = browser.send("POST", "/v1/events", &[], second.to_string().as_bytes()).json();
        answer["rejected"].get(0).cloned()
    });
    assert_eq!(refused["code"], "type_mismatch");
    assert_eq!(refused["message"], "attribute `shoe_size` is a float, a string was given");
    let body = json!({ "placements": [], "user": { "attributes": { "city": 7, "born": "2001-02-03" } } });
    assert_eq!(browser.decide(&body).json()["attributes"], json!({ "city": "type_mismatch" }));
    let all = json!({ "shoe_size": 42, "city": "Oslo", "vip": true, "born": "2001-02-03" });
    eventually("the origin has all attributes", || (own() == all).then_some(()));
    eventually("the visitor sees all attributes", || {
        (browser.send("GET", "/v1/me", &[], b"").json()["attributes"] == all).then_some(())
    });
}

fn slots(world: &World) {
    let browser = world.browser();
    let (visitor, decisions) = page(&browser, 8);
    std::thread::scope(|scope| {
        for decision in &decisions {
            let url = format!("{}{}", world.edge, text(decision, "impression_url"));
            scope.spawn(move || {
                let answer = causeway_tests::browser::call("GET", &url, &[], b"");
                assert_eq!((answer.status, answer.set_cookies().len()), (200, 0));
            });
        }
    });
    counted(world, &visitor, &json!({}), 8);
}

fn forged(world: &World) {
    let browser = world.browser();
    let (visitor, decisions) = page(&browser, 3);
    // Each call uses another placement, because a repeated action on one placement counts once in any case.
    let [address, second, third] = [0, 1, 2].map(|n| text(&decisions[n], "impression_url"));
    let changed = format!("{}{}", &second[..second.len() - 1], if second.ends_with('A') { "B" } else { "A" });
    let foreign = world.edge.replace("localhost", "strict.localhost");
    for url in [
        format!("{}{changed}", world.edge),
        format!("{foreign}{third}"),
        format!("{}/v1/i/{}", world.edge, "x".repeat(5_000)),
        format!("{}/v1/i/", world.edge),
    ] {
        assert_eq!(
            causeway_tests::browser::call("GET", &url, &[], b"").status,
            200,
            "a page never shows a broken picture"
        );
    }
    let click = browser.send("GET", "/v1/c/https://evil.example/", &[], b"");
    assert_eq!((click.status, click.header("location")), (404, None));
    // The last impression and its click are valid: facts are counted in order, so nothing before them was counted.
    browser.send("GET", &address, &[], b"");
    browser.send("GET", &text(&decisions[0], "click_url"), &[], b"");
    counted(world, &visitor, &json!({ "actions": ["click"] }), 1);
    assert_eq!(count(world, &visitor, &json!({})), 1);
    let elsewhere = world.admin("GET", &format!("visitors/{visitor}?tenant=strict"), &Value::Null);
    assert_eq!(elsewhere.status, 404, "{}", elsewhere.json());
}

fn no_permission(world: &World) {
    let browser = world.browser();
    let (visitor, decisions) = page(&browser, 2);
    browser.send("GET", &text(&decisions[0], "impression_url"), &[("sec-gpc", "1")], b"");
    browser.send("GET", &text(&decisions[1], "impression_url"), &[], b"");
    counted(world, &visitor, &json!({}), 1);
    let refused =
        world.browser().send("POST", "/v1/decide", &[("sec-gpc", "1")], br#"{"placements": [{"id": "top"}]}"#).json();
    assert!(refused["decisions"][0].get("impression_url").is_none(), "{refused}");
}

fn explained(world: &World) {
    well_before_midnight();
    let cap = json!([{ "action": "impression", "limit": 1, "window": { "interval": 1, "unit": "days" } }]);
    let ad = |id: &str| json!({ "id": id, "ad_group": id, "creative": {}, "landing": "https://shop.example/" });
    let campaign = |id: &str, caps: Value| json!({ "id": id, "advertiser": "shop", "caps": caps });
    let group = |id: &str| json!({ "id": id, "campaign": id });
    let mut large = ad("large");
    (large["sizes"], large["ad_group"]) = (json!([[970, 250]]), json!("plain"));
    let applied = world.admin(
        "PUT",
        "catalogue?tenant=strict",
        &json!({
            "advertiser": [{ "id": "shop" }], "campaign": [campaign("once", cap), campaign("plain", json!([]))],
            "ad_group": [group("once"), group("plain")], "ad": [ad("once"), ad("plain"), large],
        }),
    );
    assert_eq!(applied.status, 200, "{}", String::from_utf8_lossy(&applied.body));
    let browser = world.browser_at("strict.localhost");
    browser.send_header("x-causeway-explain", &world.explain);
    let page = || browser.decide(&json!({ "consent": { "tcf": CONSENTS }, "explain": true })).json();
    let first = eventually("the catalogue is in the KV", || {
        let answer = page();
        (answer["decisions"][0]["ad"]["id"] == "once").then_some(answer)
    });
    browser.send("GET", &text(&first["decisions"][0], "impression_url"), &[], b"");
    let of = |answer: &Value| -> Value {
        let candidates = answer["trace"]["placements"][0]["candidates"].as_array().unwrap().iter();
        candidates.map(|one| (one["ad"].as_str().unwrap().to_owned(), one["outcome"].clone())).collect()
    };
    let visitor = text(&first, "visitor");
    let explain = |live: &Value| {
        let arguments = [
            "explain",
            "--tenant",
            "strict",
            "--visitor",
            &visitor,
            "--placements",
            "top:728x90:home",
            "--url",
            "https://pub.example/hotels",
            "--keywords",
            "hotel",
            "--live",
            "-",
        ];
        world.causeway(&arguments, live)
    };
    let (live, offline) = eventually("the origin has the impression, and so has the edge", || {
        let live = page();
        let offline = explain(&live);
        (offline["answer"]["trace"]["placements"][0]["candidates"][0]["cap"]["counted"] == 1).then_some((live, offline))
    });
    assert_eq!(of(&offline["answer"]), json!({ "once": "capped", "plain": "won", "large": "size" }));
    assert_eq!((of(&live), &offline["differences"]), (of(&offline["answer"]), &json!([])));
    // The answer from before the impression differs, and the command names the difference.
    let before = json!({ "placement": "top", "ad": "once", "live": "won", "offline": "capped" });
    let differences = explain(&first)["differences"].clone();
    assert!(differences.as_array().unwrap().contains(&before), "{differences}");
}

fn sample(world: &World) {
    let browser = world.browser();
    let hour = u64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap() / 3_600_000;
    let (visitor, _) = page(&browser, 1);
    let answer = browser.events(&json!([
        { "type": "attributes", "set": { "shoe_size": 42 } },
        { "type": "segments", "set": [{ "segment": 8457, "expires_ms": (hour + 48) * 3_600_000 }] },
    ]));
    assert_eq!((answer.status, answer.json()["accepted"].clone()), (202, json!(2)));
    let own = || {
        world.admin("GET", &format!("visitors/{visitor}/attributes?tenant=demo"), &Value::Null).json()["own"].clone()
    };
    eventually("the attribute is known, so that a filter may name it", || {
        (own() == json!({ "shoe_size": 42 })).then_some(())
    });
    let targeting = json!({ "attributes.shoe_size": { "$gt": 35 }, "segments": { "$in": [8457] },
        "events.purchase": { "$count": { "$gte": 1 }, "within": { "interval": 7, "unit": "days" } } });
    let group = |id: &str, targeting: &Value| json!({ "id": id, "campaign": id, "targeting": targeting });
    let campaign = |id: &str, cpm: u64| json!({ "id": id, "advertiser": "shop", "bid": { "cpm_micros": cpm } });
    let ad = |id: &str| json!({ "id": id, "ad_group": id, "creative": {}, "landing": "https://shop.example/" });
    let applied = world.admin(
        "PUT",
        "catalogue?tenant=demo",
        &json!({
            "advertiser": [{ "id": "shop" }], "campaign": [campaign("sample", 2_000), campaign("plain", 1_000)],
            "ad_group": [group("sample", &targeting), group("plain", &json!({}))], "ad": [ad("sample"), ad("plain")],
        }),
    );
    assert_eq!(applied.status, 200, "{}", String::from_utf8_lossy(&applied.body));
    let shown = |id: &str| (page(&browser, 1).1[0]["ad"]["id"] == id).then_some(());
    eventually("the catalogue is in the KV", || shown("plain"));
    browser.buy("shoes", 59_000_000);
    eventually("the purchase is in the snapshot", || shown("sample"));
    let other = world.browser();
    assert_eq!(page(&other, 1).1[0]["ad"]["id"], "plain", "a visitor without a purchase");
}
