//! One person on two browsers, through the real worker, KV, queues, origin and SQLite.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests end at the first thing that is not so")]

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
            ("s1_01_a_new_visitor_gets_a_first_party_cookie_with_a_new_uuid", cookie),
            ("s1_02_s1_11_the_lookups_table_and_the_sample_flow_step_by_step", sample_flow),
            ("s1_05_two_kinds_that_name_different_visitors_cost_two_reads", two_kinds),
            ("an_id_without_a_proof_shows_and_erases_nothing_of_another_visitor", claimed_id),
            ("s1_06_ten_alternations_lose_nothing_and_double_nothing", alternations),
            ("field_01_two_members_on_one_device_stay_two_people", shared_device),
            ("field_01_also_when_the_tagging_cookie_was_lost_to_a_parallel_answer", lost_tag),
            ("field_03_events_in_any_order_and_twice_give_the_same_totals", any_order),
            ("field_11_a_cookie_whose_snapshot_is_gone_keeps_its_id_and_the_row_comes_back", cookie_outlives),
            ("field_15_a_message_id_is_counted_once_the_first_time", message_ids),
            ("field_16_both_cookies_survive_and_only_decide_sets_them", both_cookies),
            ("field_19_a_member_id_without_its_proof_bridges_nothing", unproven),
            ("field_22_a_purchase_retried_counts_once_in_store_and_snapshot", purchase_retried),
            ("field_24_a_flood_of_cookieless_requests_mints_only_so_many", flood),
            ("field_24_a_flood_of_one_visitor_s_events_is_refused_and_counts_what_was_taken", stream),
            ("s1_another_tenant_never_meets_this_one", tenants),
        ],
    )
}

fn id(answer: &Value) -> String {
    answer["visitor"].as_str().unwrap_or_else(|| panic!("no visitor in {answer}")).to_owned()
}

/// (pages, purchases) that an answer's part holds.
fn sums(part: &Value) -> (u64, u64) {
    (part["pages"].as_u64().unwrap_or(u64::MAX), part["purchases"].as_u64().unwrap_or(u64::MAX))
}

/// Waits until the snapshot that the edge reads of this browser's visitor holds this view.
fn served(browser: &Browser, proof: &str, pages: u64, purchases: u64, devices: u64) {
    eventually(&format!("{pages} pages, {purchases} purchases on {devices} devices are served"), || {
        let me = browser.me(Some(proof));
        (sums(&me["view"]) == (pages, purchases) && me["person"]["devices"] == json!(devices)).then_some(())
    });
}

/// Waits until a visitor is older than the publish delay, so that its snapshot is read.
fn aged(browser: &Browser) {
    eventually("the visitor's own snapshot is read", || (browser.me(None)["kv_reads"] == json!(1)).then_some(()));
}

/// A new browser's first call, without a read of the KV: now and then one reads where the catalogue is.
fn unread(world: &World, body: &Value) -> (Browser, Answer) {
    eventually("a new browser's call reads nothing: asking for what is not there yet would cache the miss", || {
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
    assert!(!identity.contains("Domain"), "the publisher's own host alone: {identity}");
    let again = browser.view();
    assert_eq!((id(&again), again["person"]["new_visitor"].clone()), (visitor.to_string(), json!(false)));
    assert_ne!(id(&world.browser().view()), visitor.to_string());
}

fn sample_flow(world: &World) {
    let proof = world.proof("demo", "123");
    let (abc, def) = (world.browser(), world.browser());
    // User visits the site, gets cookie "abc".
    let a = id(&abc.view());
    assert_eq!(sums(&world.settles(&a, 1, 0)["own"]), (1, 0));
    assert_eq!(world.lookup("demo", "123"), Value::Null);
    // User logs in.
    assert_eq!(id(&abc.view_as("123", &proof)), a);
    world.settles(&a, 2, 0);
    assert_eq!(world.lookup("demo", "123"), json!(a));
    // User purchases.
    abc.buy("order-1", 49_900_000);
    world.settles(&a, 2, 1);
    assert_eq!(world.lookup("demo", "123"), json!(a));
    world.published();
    // User switches devices, gets cookie "def".
    let d = id(&def.view());
    world.settles(&d, 1, 0);
    assert_eq!(world.lookup("demo", "123"), json!(a));
    // User logs in there. The answer comes at once: it is bridged by what the KV holds, not by the origin.
    let bridging = def.view_as("123", &proof);
    assert_eq!(id(&bridging), d);
    assert_eq!(bridging["person"], json!({ "devices": 2, "new_visitor": false, "bridged": true }));
    assert_eq!(bridging["kv_reads"], 2);
    // From the next request on the primary store alone is read.
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
    // The old visitor's profile stays as it was.
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
    assert_eq!(answer["kv_reads"], 2, "one batch for all lookups, one for all profiles");
    assert_eq!(answer["person"], json!({ "devices": 3, "new_visitor": true, "bridged": true }));
    // The proof gives access to the member's two browsers; the id without a proof ties the third for decisions alone.
    served(&laptop, &proof, 2, 0, 2);
    let held = world.settles(&id(&answer), 1, 0);
    assert_eq!(held["person"]["devices"], 3);
}

/// A stranger names a visitor's partner id beside the stranger's own proven member.
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
    // The snapshots of both, published, name both; only then is anything to be hidden.
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
    // Nor is it shown on a browser that has no snapshot of its own yet.
    let other = world.browser();
    other.decide(&claims);
    let shown = other.me(Some(&proof));
    assert_eq!(shown["view"]["purchases"], 0, "{shown}");
    let erased = stranger.send("DELETE", "/v1/me", &[("x-causeway-proof", proof.as_str())], b"");
    assert_eq!((erased.status, &erased.json()["scope"]), (202, &json!("person")));
    eventually("the stranger is erased", || (world.visitor(&stranger_id)["tombstone"] == true).then_some(()));
    world.published();
    let kept = world.visitor(&victim_id);
    assert_eq!((sums(&kept["own"]), &kept["tombstone"]), ((1, 1), &json!(false)), "{kept}");
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
    // A parallel answer, begun before the login, ends after it: its cookies win.
    device.put_back(before);
    world.settles(&a, 2, 0);
    world.published();
    aged(&device);
    let answer = device.view_as("bob-2", &bob);
    let b = id(&answer);
    assert_ne!(a, b, "the snapshot names ann: a switch too");
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
    // This visitor's cookie names a visitor of whom the KV has never heard.
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
    let first = eventually("it has its row", is_snapshot);
    // The row goes, the cookie stays.
    world.published();
    world.lose(&key);
    assert_eq!(known(&browser.view()), (visitor.clone(), json!(false)));
    world.settles(&visitor, 2, 0);
    let again = eventually("it has its row again", is_snapshot);
    assert_ne!(again, first, "with the second page");
}

fn message_ids(world: &World) {
    let browser = world.browser();
    let visitor = id(&browser.view());
    let buy = |value: i64| json!({ "type": "track", "id": "same", "name": "purchase", "properties": { "value_micros": value } });
    let page = json!({ "type": "page", "id": "another" });
    let answer = browser.events(&json!([buy(100), page, buy(999)])).json();
    assert_eq!(answer["accepted"], 3, "{answer}");
    // Sent again, on another day's worth of server fields: the receive time differs, the fact does not.
    assert_eq!(browser.events(&json!([buy(555)])).status, 202);
    let held = world.settles(&visitor, 2, 1);
    assert_eq!(held["own"]["revenue_micros"], 100, "the first of a batch is the one that counts");
}

fn both_cookies(world: &World) {
    let browser = world.browser();
    let answer = browser.decide(&json!({}));
    let names: Vec<&str> = answer.set_cookies().iter().filter_map(|c| c.split('=').next()).collect();
    assert_eq!(names, ["cw_id", "cw_recent"]);
    // Where the running session goes on is in a cookie of its own.
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
        assert!(thief.me(Some(&proof)).get("view").is_none(), "a proof that this visitor never logged in with");
        world.settles(&id(&answer), 1, 0);
    }
    assert_eq!(world.lookup("demo", "victim"), json!(v));
    assert_eq!(world.visitor(&v)["person"]["devices"], 1);
}

/// `alg: none`, RFC 7519 §6.1.
fn unsigned(member: &str) -> String {
    let now = causeway_tests::bare::now() / 1000;
    let encode = |value: Value| causeway_tests::base64url(value.to_string().as_bytes());
    let claims = json!({ "sub": member, "aud": "demo", "iat": now, "exp": now + 600 });
    format!("{}.{}.", encode(json!({ "alg": "none" })), encode(claims))
}

/// A proof that was good until it ended.
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

/// A limit that has not answered after so long lets everybody through.
const LIMITED_WITHIN: Duration = Duration::from_millis(90);

fn flood(world: &World) {
    early_in_a_minute();
    let network = world.browser();
    let (mut minted, mut limited, mut slow) = (0, 0, 0);
    for host in 0..150 {
        let browser = world.browser();
        *browser.headers.borrow_mut() = network.headers.borrow().clone();
        // Addresses of one network are one client.
        let address = network.headers.borrow()[0].1.rsplit_once('.').unwrap().0.to_owned() + &format!(".{host}");
        browser.headers.borrow_mut()[0].1 = address;
        // What a client says of itself buys it nothing.
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
                let said = (answer.json()["error"]["code"].clone(), answer.header("retry-after").is_some());
                assert_eq!(said, (json!("rate_limited"), true));
            }
            status => panic!("{status}"),
        }
    }
    assert!((100..=100 + slow).contains(&taken), "{taken} taken, {refused} refused; the limit is 100 a minute");
    assert_eq!(other.events(&json!([{ "type": "page" }])).status, 202, "another visitor's limit is its own");
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
    // Silence refuses there, whoever it is: with consent it is still somebody else.
    let consents = with_its_cookie(json!({ "tcf": CONSENTS }));
    assert_ne!(id(&consents), visitor);
    assert_eq!(consents["person"], json!({ "devices": 1, "new_visitor": true, "bridged": false }));
    let unknown = world.browser_at("unknown.localhost").decide(&json!({}));
    assert_eq!((unknown.status, unknown.json()["error"]["code"].clone()), (404, json!("unknown_host")));
}
