//! One person on two browsers, with the real worker, KV, queues, origin and SQLite.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at its first failure")]

use std::time::Duration;

use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::{self, kv_keys};
use causeway_tests::bare::tenant;
use causeway_tests::browser::{Answer, Browser, CONSENTS};
use causeway_tests::world::World;
use causeway_tests::{early_in_a_minute, eventually, run};
use serde_json::{Value, json};

fn main() {
    run(
        World::start,
        &[
            ("a_new_visitor_gets_a_first_party_cookie_with_a_new_uuid", cookie),
            ("the_sample_flow_has_the_expected_lookup_and_profiles_at_each_step", sample_flow),
            ("two_kinds_that_name_different_visitors_cost_two_reads", two_kinds),
            ("an_id_without_a_proof_shows_and_erases_nothing_of_another_visitor", claimed_id),
            ("ten_alternations_lose_and_double_no_fact", alternations),
            ("two_members_on_one_device_stay_two_people", shared_device),
            ("two_members_stay_two_people_after_a_parallel_answer_overwrote_the_tag", lost_tag),
            ("events_in_any_order_and_twice_give_the_same_totals", any_order),
            ("a_cookie_without_a_snapshot_keeps_its_id_and_the_snapshot_returns", cookie_outlives),
            ("a_message_id_counts_once_with_its_first_event", message_ids),
            ("only_decide_sets_the_two_long_lived_cookies", both_cookies),
            ("a_member_id_without_its_proof_bridges_no_visitor", unproven),
            ("a_purchase_retried_counts_once_in_store_and_snapshot", purchase_retried),
            ("a_flood_of_cookieless_requests_mints_a_bounded_number", flood),
            ("a_flood_of_one_visitors_events_is_refused_over_the_limit_and_accepted_events_count", stream),
            ("a_cookie_means_nothing_to_another_tenant", tenants),
        ],
    )
}

fn id(answer: &Value) -> String {
    answer["visitor"].as_str().unwrap_or_else(|| panic!("no visitor in {answer}")).to_owned()
}

/// Pages and purchases in a part of an answer.
fn sums(part: &Value) -> (u64, u64) {
    (part["pages"].as_u64().unwrap_or(u64::MAX), part["purchases"].as_u64().unwrap_or(u64::MAX))
}

/// Waits until the snapshot that the edge reads for this browser's visitor holds these sums and devices.
fn served(browser: &Browser, proof: &str, pages: u64, purchases: u64, devices: u64) {
    eventually(&format!("{pages} pages, {purchases} purchases on {devices} devices are served"), || {
        let me = browser.me(Some(proof));
        (sums(&me["view"]) == (pages, purchases) && me["person"]["devices"] == json!(devices)).then_some(())
    });
}

/// Waits until the visitor is older than the publish delay, so that the edge reads its snapshot.
fn aged(browser: &Browser) {
    eventually("the visitor's own snapshot is read", || (browser.me(None)["kv_reads"] == json!(1)).then_some(()));
}

/// The first call of a new browser that needs no KV read; a call that must read the catalogue is repeated with another
/// browser.
fn unread(world: &World, body: &Value) -> (Browser, Answer) {
    eventually("a new browser's call reads no key, so that no miss is cached", || {
        let browser = world.browser();
        let answer = browser.decide(body);
        (answer.json()["kv_reads"] == 0).then_some((browser, answer))
    })
}

fn cookie(world: &World) {
    let (browser, answer) = unread(world, &json!({}));
    let body = answer.json();
    let visitor: causeway_shared::base::ids::VisitorId = id(&body).parse().unwrap();
    assert_eq!(body["person"], json!({ "devices": 1, "new_visitor": true, "bridged": false }));
    assert_eq!(body["decisions"][0]["ad"]["id"], "house");
    let identity = answer.set_cookies().into_iter().find(|c| c.starts_with("cw_id=")).unwrap().to_owned();
    assert!(identity.contains("; HttpOnly") && identity.contains("; SameSite=Lax") && identity.contains("; Path=/"));
    assert!(identity.contains("Max-Age=34560000"), "400 days: {identity}");
    assert!(!identity.contains("Domain"), "only the publisher's host: {identity}");
    let again = browser.view();
    assert_eq!((id(&again), again["person"]["new_visitor"].clone()), (visitor.to_string(), json!(false)));
    assert_ne!(id(&world.browser().view()), visitor.to_string());
}

fn sample_flow(world: &World) {
    let proof = world.proof("demo", "123");
    let (abc, def) = (world.browser(), world.browser());
    // The user visits the site and gets the cookie "abc".
    let a = id(&abc.view());
    assert_eq!(sums(&world.settles(&a, 1, 0)["own"]), (1, 0));
    assert_eq!(world.lookup("demo", "123"), Value::Null);
    // The user logs in.
    assert_eq!(id(&abc.view_as("123", &proof)), a);
    world.settles(&a, 2, 0);
    assert_eq!(world.lookup("demo", "123"), json!(a));
    // The user makes a purchase.
    abc.buy("order-1", 49_900_000);
    world.settles(&a, 2, 1);
    assert_eq!(world.lookup("demo", "123"), json!(a));
    world.published();
    // The user changes devices and gets the cookie "def".
    let d = id(&def.view());
    world.settles(&d, 1, 0);
    assert_eq!(world.lookup("demo", "123"), json!(a));
    // The user logs in there. The answer is bridged at once, from the KV and without the origin.
    let bridging = def.view_as("123", &proof);
    assert_eq!(id(&bridging), d);
    assert_eq!(bridging["person"], json!({ "devices": 2, "new_visitor": false, "bridged": true }));
    assert_eq!(bridging["kv_reads"], 2);
    // From the next request on, the edge reads only the visitor's own snapshot.
    let me = def.me(Some(&proof));
    assert_eq!(
        (sums(&me["view"]), me["kv_reads"].clone(), me["person"]["devices"].clone()),
        ((4, 1), json!(1), json!(2))
    );
    assert_eq!(sums(&me["own"]), (2, 0));
    let held = world.settles(&d, 2, 0);
    eventually("123 maps to def", || (world.lookup("demo", "123") == json!(d)).then_some(()));
    assert_eq!(sums(&held["view"]), (4, 1));
    assert_eq!(held["person"]["devices"], 2);
    assert_eq!(held["person"]["master"], json!(a), "the oldest visitor");
    // The profile of the old visitor has not changed.
    assert_eq!(sums(&world.visitor(&a)["own"]), (2, 1));
    let next = def.view();
    assert_eq!((next["kv_reads"].clone(), next["person"]["bridged"].clone()), (json!(1), json!(true)));
    served(&def, &proof, 5, 1, 2);
}

fn two_kinds(world: &World) {
    let proof = world.proof("demo", "two-kinds");
    let (phone, tablet, laptop) = (world.browser(), world.browser(), world.browser());
    let as_partner = |browser: &Browser| browser.decide(&json!({ "user": { "ids": { "partner": "p-77" } } })).json();
    let first = id(&phone.view_as("two-kinds", &proof));
    let second = id(&as_partner(&tablet));
    world.settles(&first, 1, 0);
    world.settles(&second, 1, 0);
    world.published();
    let both =
        json!({ "user": { "ids": { "member": "two-kinds", "partner": "p-77" }, "proofs": { "member": proof } } });
    let answer = laptop.decide(&both).json();
    assert_eq!(answer["kv_reads"], 2, "one read for all lookups, one for all snapshots");
    assert_eq!(answer["person"], json!({ "devices": 3, "new_visitor": true, "bridged": true }));
    // The proof gives access to the member's two browsers. The id without a proof adds the third one for decisions
    // only.
    served(&laptop, &proof, 2, 0, 2);
    let held = world.settles(&id(&answer), 1, 0);
    assert_eq!(held["person"]["devices"], 3);
}

/// A stranger sends the partner id of another visitor together with its own proven member id.
fn claimed_id(world: &World) {
    let proof = world.proof("demo", "stranger");
    let (victim, stranger) = (world.browser(), world.browser());
    let shared_id = json!({ "user": { "ids": { "partner": "p-stolen" } } });
    let victim_id = id(&victim.decide(&shared_id).json());
    victim.buy("victims-order", 49_900_000);
    let set = json!([{ "type": "attributes", "set": { "secret": "of the victim" } }]);
    assert_eq!(victim.events(&set).json()["accepted"], 1);
    world.settles(&victim_id, 1, 1);
    world.published();
    let claims =
        json!({ "user": { "ids": { "member": "stranger", "partner": "p-stolen" }, "proofs": { "member": proof } } });
    // The published snapshots of both visitors must name both before the test can show that data stays hidden.
    eventually("the id links both for decisions", || {
        let answer = stranger.decide(&claims).json();
        (answer["person"]["devices"] == 2).then_some(())
    });
    let stranger_id = id(&stranger.view());
    eventually("the origin links both", || (world.visitor(&stranger_id)["person"]["devices"] == 2).then_some(()));
    world.published();
    aged(&stranger);
    let shown = stranger.me(Some(&proof));
    assert_eq!((&shown["view"]["purchases"], &shown["view"]["revenue_micros"]), (&json!(0), &json!(0)), "{shown}");
    assert_eq!((&shown["person"]["devices"], &shown["attributes"]), (&json!(1), &json!({})), "{shown}");
    // The data is also hidden on a browser without a snapshot of its own.
    let other = world.browser();
    other.decide(&claims);
    let shown = other.me(Some(&proof));
    assert_eq!(shown["view"]["purchases"], 0, "{shown}");
    let erased = stranger.send("DELETE", "/v1/me", &[("x-causeway-proof", proof.as_str())], b"");
    assert_eq!((erased.status, &erased.json()["scope"]), (202, &json!("person")));
    eventually("the stranger is erased", || (world.visitor(&stranger_id)["tombstone"] == true).then_some(()));
    world.published();
    let victim_row = world.visitor(&victim_id);
    assert_eq!((sums(&victim_row["own"]), &victim_row["tombstone"]), ((1, 1), &json!(false)), "{victim_row}");
    assert_eq!(id(&victim.view()), victim_id);
}

fn alternations(world: &World) {
    let proof = world.proof("demo", "alternating");
    let (abc, def) = (world.browser(), world.browser());
    let (a, d) = (id(&abc.view_as("alternating", &proof)), id(&def.view_as("alternating", &proof)));
    for round in 0..10 {
        let (x, y) = (abc.view_as("alternating", &proof), def.view_as("alternating", &proof));
        assert_eq!((id(&x), id(&y)), (a.clone(), d.clone()), "round {round}");
        abc.buy(&format!("order-{round}"), 1_000_000);
    }
    let held = world.settles(&a, 11, 10);
    assert_eq!(held["own"]["revenue_micros"], 10_000_000);
    world.settles(&d, 11, 0);
    served(&abc, &proof, 22, 10, 2);
    served(&def, &proof, 22, 10, 2);
    assert_eq!(world.lookup("demo", "alternating"), json!(d), "the last browser seen");
}

fn shared_device(world: &World) {
    let (ann, bob) = (world.proof("demo", "ann"), world.proof("demo", "bob"));
    let device = world.browser();
    let a = id(&device.view_as("ann", &ann));
    device.buy("anns-order", 5_000_000);
    let answer = device.view_as("bob", &bob);
    let b = id(&answer);
    assert_ne!(a, b, "the browser has a new visitor");
    assert_eq!(answer["person"], json!({ "devices": 1, "new_visitor": true, "bridged": false }));
    let me = device.me(Some(&bob));
    assert_eq!(sums(&me["view"]), (1, 0), "bob sees nothing of ann's");
    assert_eq!(id(&device.view_as("ann", &ann)), a, "ann again, as her earlier visitor");
    for round in 0..10 {
        assert_eq!(id(&device.view_as("bob", &bob)), b, "round {round}");
        assert_eq!(id(&device.view_as("ann", &ann)), a, "round {round}");
    }
    let (held_a, held_b) = (world.settles(&a, 12, 1), world.settles(&b, 11, 0));
    for held in [held_a, held_b] {
        assert_eq!(
            (held["person"]["devices"].clone(), held["person"]["members"].as_array().unwrap().len()),
            (json!(1), 1)
        );
    }
    served(&device, &ann, 12, 1, 1);
}

fn lost_tag(world: &World) {
    let (ann, bob) = (world.proof("demo", "ann-2"), world.proof("demo", "bob-2"));
    let device = world.browser();
    let a = id(&device.view());
    let before = device.cookies();
    device.view_as("ann-2", &ann);
    // A parallel answer that began before the login arrives after it and overwrites the cookies.
    device.put_back(before);
    world.settles(&a, 2, 0);
    world.published();
    aged(&device);
    let answer = device.view_as("bob-2", &bob);
    let b = id(&answer);
    assert_ne!(a, b, "the snapshot names ann, so the browser switches");
    assert_eq!(answer["person"]["bridged"], false);
    assert_eq!(sums(&device.me(Some(&bob))["view"]), (1, 0));
    assert_eq!(id(&device.view_as("ann-2", &ann)), a);
    for _ in 0..10 {
        assert_eq!(id(&device.view_as("bob-2", &bob)), b);
        assert_eq!(id(&device.view_as("ann-2", &ann)), a);
    }
    assert_eq!(world.settles(&a, 13, 0)["person"]["devices"], 1);
    assert_eq!(world.settles(&b, 11, 0)["person"]["devices"], 1);
}

fn any_order(world: &World) {
    let browser = world.browser();
    let visitor = id(&browser.view());
    let event = |n: u32| json!({ "type": "track", "id": format!("e-{n}"), "name": "purchase", "properties": { "value_micros": 10 } });
    let order = [3, 1, 2, 5, 4, 1, 5, 3];
    for n in order {
        assert_eq!(browser.events(&json!([event(n), event(n)])).json()["accepted"], 2);
    }
    let held = world.settles(&visitor, 1, 5);
    assert_eq!(held["own"]["revenue_micros"], 50);
}

fn cookie_outlives(world: &World) {
    // The cookie names a visitor that the KV has never stored.
    let browser = world.browser();
    let visitor = id(&browser.decide(&json!({ "page_view": false })).json());
    let key = kv_keys::snapshot_key(&tenant(), visitor.parse().unwrap());
    let row = || Some(wire::kv::decode_stored(&key, visitor.parse().unwrap(), &world.kv(&key)?).unwrap());
    aged(&browser);
    assert_eq!(row(), None);
    let known = |answer: &Value| (id(answer), answer["person"]["new_visitor"].clone());
    assert_eq!(known(&browser.view()), (visitor.clone(), json!(false)));
    world.settles(&visitor, 1, 0);
    let is_snapshot = || row().filter(|stored| matches!(stored, StoredValue::Snapshot(_)));
    let first = eventually("the KV has its snapshot", is_snapshot);
    // The KV loses the snapshot; the cookie stays.
    world.published();
    world.lose(&key);
    assert_eq!(known(&browser.view()), (visitor.clone(), json!(false)));
    world.settles(&visitor, 2, 0);
    let again = eventually("the KV has its snapshot again", is_snapshot);
    assert_ne!(again, first, "with the second page");
}

fn message_ids(world: &World) {
    let browser = world.browser();
    let visitor = id(&browser.view());
    let buy = |value: i64| json!({ "type": "track", "id": "same", "name": "purchase", "properties": { "value_micros": value } });
    let page = json!({ "type": "page", "id": "another" });
    let answer = browser.events(&json!([buy(100), page, buy(999)])).json();
    assert_eq!(answer["accepted"], 3, "{answer}");
    // The event is sent again with another receipt time; it is the same fact.
    assert_eq!(browser.events(&json!([buy(555)])).status, 202);
    let held = world.settles(&visitor, 2, 1);
    assert_eq!(held["own"]["revenue_micros"], 100, "the first event of a batch with this id counts");
}

fn both_cookies(world: &World) {
    let browser = world.browser();
    let answer = browser.decide(&json!({}));
    let names: Vec<&str> = answer.set_cookies().iter().filter_map(|c| c.split('=').next()).collect();
    assert_eq!(names, ["cw_id", "cw_recent"]);
    // The cookie `cw_session` holds the state of the running session.
    let events = browser.events(&json!([{ "type": "page" }]));
    assert!(events.set_cookies().iter().all(|cookie| cookie.starts_with("cw_session=")), "{:?}", events.set_cookies());
    assert!(browser.events(&json!([{ "type": "track", "name": "signup" }])).set_cookies().is_empty());
    assert!(browser.send("GET", "/v1/me", &[], b"").set_cookies().is_empty());
    let tracked = browser.send("GET", "/healthz", &[("x-forwarded-for", "203.0.113.9")], b"");
    assert_eq!((tracked.status, tracked.set_cookies().len()), (200, 0));
}

fn unproven(world: &World) {
    let proof = world.proof("demo", "victim");
    let victim = world.browser();
    let v = id(&victim.view_as("victim", &proof));
    victim.buy("victims-order", 1_000_000);
    world.settles(&v, 1, 1);
    world.published();
    let tries = [
        json!({ "ids": { "member": "victim" } }),
        json!({ "ids": { "member": "victim" }, "proofs": { "member": "" } }),
        json!({ "ids": { "member": "victim" }, "proofs": { "member": world.proof("demo", "thief") } }),
        json!({ "ids": { "member": "victim" }, "proofs": { "member": world.proof("strict", "victim") } }),
        json!({ "ids": { "member": "victim" }, "proofs": { "member": unsigned("victim") } }),
        json!({ "ids": { "member": "victim" }, "proofs": { "member": expired(world, "victim") } }),
    ];
    for user in tries {
        let (thief, answer) = unread(world, &json!({ "user": user }));
        let answer = answer.json();
        assert_eq!((&answer["member"], &answer["person"]["bridged"]), (&json!("unproven"), &json!(false)), "{user}");
        assert!(thief.me(None).get("view").is_none());
        assert!(thief.me(Some(&proof)).get("view").is_none(), "a proof with which this visitor never logged in");
        world.settles(&id(&answer), 1, 0);
    }
    assert_eq!(world.lookup("demo", "victim"), json!(v));
    assert_eq!(world.visitor(&v)["person"]["devices"], 1);
}

/// A token with `alg: none` (RFC 7519 §6.1).
fn unsigned(member: &str) -> String {
    let now = causeway_tests::bare::now() / 1000;
    let encode = |value: Value| causeway_tests::base64url(value.to_string().as_bytes());
    let claims = json!({ "sub": member, "aud": "demo", "iat": now, "exp": now + 600 });
    format!("{}.{}.", encode(json!({ "alg": "none" })), encode(claims))
}

/// A proof that has expired.
fn expired(world: &World, member: &str) -> String {
    let now = causeway_tests::bare::now() / 1000;
    let claims = json!({ "sub": member, "aud": "demo", "iat": now - 7_200, "exp": now - 3_600 });
    world.sign_dev(&claims)
}

fn purchase_retried(world: &World) {
    let proof = world.proof("demo", "retrier");
    let browser = world.browser();
    let visitor = id(&browser.view_as("retrier", &proof));
    for _ in 0..3 {
        browser.buy("the-only-order", 7_000_000);
    }
    let held = world.settles(&visitor, 1, 1);
    assert_eq!(held["own"]["revenue_micros"], 7_000_000);
    served(&browser, &proof, 1, 1, 1);
}

/// A limit that has not answered within this time lets the request through.
const LIMITED_WITHIN: Duration = Duration::from_millis(90);

fn flood(world: &World) {
    early_in_a_minute();
    let network = world.browser();
    let (mut minted, mut limited, mut slow) = (0, 0, 0);
    for host in 0..150 {
        let browser = world.browser();
        *browser.headers.borrow_mut() = network.headers.borrow().clone();
        // All addresses of one network count as one client.
        let address = network.headers.borrow()[0].1.rsplit_once('.').unwrap().0.to_owned() + &format!(".{host}");
        browser.headers.borrow_mut()[0].1 = address;
        // A header that the client sets itself changes nothing.
        browser.send_header("x-forwarded-for", &format!("198.51.100.{host}"));
        let answer = browser.decide(&json!({}));
        slow += u64::from(answer.took >= LIMITED_WITHIN);
        let answer = answer.json();
        match answer["visitor"].as_str() {
            Some(_) => minted += 1,
            None => {
                limited += 1;
                assert_eq!(
                    (answer["reason"].clone(), answer["decisions"][0]["ad"]["id"].clone()),
                    (json!("mint_limited"), json!("house"))
                );
            }
        }
    }
    assert!((60..=60 + slow).contains(&minted), "{minted} minted, {limited} limited; the limit is 60 a minute");
}

fn stream(world: &World) {
    let [browser, other] = [world.browser(), world.browser()];
    let visitor = id(&browser.view());
    other.view();
    early_in_a_minute();
    let (mut taken, mut refused, mut slow) = (0, 0, 0);
    for n in 0..250 {
        let answer = browser.events(&json!([{ "type": "page", "id": format!("flood-{n}") }]));
        slow += u64::from(answer.took >= LIMITED_WITHIN);
        match answer.status {
            202 => taken += 1,
            429 => {
                refused += 1;
                let refusal = (answer.json()["error"]["code"].clone(), answer.header("retry-after").is_some());
                assert_eq!(refusal, (json!("rate_limited"), true));
            }
            status => panic!("{status}"),
        }
    }
    assert!((100..=100 + slow).contains(&taken), "{taken} taken, {refused} refused; the limit is 100 a minute");
    assert_eq!(other.events(&json!([{ "type": "page" }])).status, 202, "each visitor has a separate limit");
    world.settles(&visitor, 1 + taken, 0);
}

fn tenants(world: &World) {
    let browser = world.browser();
    let visitor = id(&browser.view());
    let with_its_cookie = |consent: Value| {
        let other = world.browser_at("strict.localhost");
        other.set_cookie("cw_id", &browser.cookie("cw_id").unwrap());
        let answer = other.decide(&json!({ "consent": consent }));
        assert_eq!(answer.status, 200);
        answer.json()
    };
    assert_eq!(with_its_cookie(json!({}))["visitor"], Value::Null);
    // This tenant treats a missing signal as a refusal; with consent, the browser gets another visitor.
    let consents = with_its_cookie(json!({ "tcf": CONSENTS }));
    assert_ne!(id(&consents), visitor);
    assert_eq!(consents["person"], json!({ "devices": 1, "new_visitor": true, "bridged": false }));
    let unknown = world.browser_at("unknown.localhost").decide(&json!({}));
    assert_eq!((unknown.status, unknown.json()["error"]["code"].clone()), (404, json!("unknown_host")));
}
