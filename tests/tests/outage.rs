//! The origin is stopped, killed and started again while requests and events arrive.
#![expect(clippy::unwrap_used, reason = "a test ends at its first failure")]

use std::time::{Duration, Instant};

use causeway_tests::browser::Browser;
use causeway_tests::world::World;
use causeway_tests::{cases, eventually, run_in_turn, within};
use rustix::process::Signal;
use serde_json::{Value, json};

fn main() {
    // Each test has its own world: a killed origin leaves outbox entries leased for a minute, and every message is
    // counted.
    run_in_turn(
        || (),
        &[
            ("no_acknowledged_fact_is_lost_while_the_origin_is_stopped_and_killed", |()| {
                let world = World::start();
                stopped(&world);
                killed_in_a_burst(&world);
            }),
            ("a_bridging_answer_does_not_wait_for_the_origin", |()| bridges_alone(&World::start())),
        ],
    )
}

/// The median and the 90th percentile.
fn half_and_most(mut all: Vec<Duration>) -> [Duration; 2] {
    all.sort();
    [all[all.len() / 2], all[all.len() * 9 / 10]]
}

/// Messages of the facts queue that each part sends: one for each page and each call of `/v1/events`.
const STOPPED: u64 = 1 + 3 * 40 + 1;
/// Rounds of a burst, short and long: the origin is killed in each second one.
const ROUNDS: [u64; 2] = [5, 41];
/// Visitors of a burst, each of which buys five times in a round.
const VISITORS: u64 = 200;

fn stopped(world: &World) {
    let browser = world.browser();
    let visitor = browser.view()["visitor"].as_str().unwrap().to_owned();
    world.settles(&visitor, 1, 0);
    let timed = || {
        let call = |_| {
            let answer = browser.decide(&json!({}));
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.took
        };
        half_and_most((0..40).map(call).collect())
    };
    let all_up = timed();
    // A closed port refuses within a millisecond; an open port without an answer shows whether a request waits for the
    // origin.
    let all_hanging = world.while_origin_hangs(timed);
    world.end_origin(Signal::TERM);
    let all_down = timed();
    browser.buy("while-down", 3_000_000);
    for ((up, hanging), down) in all_up.into_iter().zip(all_hanging).zip(all_down) {
        let limit = up * 3 + Duration::from_millis(20);
        assert!(down < limit, "with the origin {up:?}, without {down:?}");
        assert!(hanging < limit.min(Duration::from_millis(150)), "with the origin {up:?}, while it hangs {hanging:?}");
    }
    world.start_origin();
    let held = world.settles(&visitor, 121, 1);
    assert_eq!(held["own"]["revenue_micros"], 3_000_000);
}

fn buys_five(browser: &Browser, round: u64) {
    let events: Vec<Value> = (0..5)
        .map(|n| json!({ "type": "track", "id": format!("{round}-{n}"), "name": "purchase", "properties": { "value_micros": 1_000 } }))
        .collect();
    let answer = browser.events(&json!(events));
    assert_eq!((answer.status, answer.json()["accepted"].clone()), (202, json!(5)));
}

/// Events from 200 visitors while the origin is killed, twice or twenty times.
fn killed_in_a_burst(world: &World) {
    let rounds = cases(ROUNDS);
    let browsers: Vec<Browser> = (0..VISITORS).map(|_| world.browser()).collect();
    let visitors: Vec<String> = browsers.iter().map(|b| b.view()["visitor"].as_str().unwrap().to_owned()).collect();
    let start = Instant::now();
    for round in 0..rounds {
        let (first, second) = browsers.split_at(browsers.len() / 2);
        first.iter().for_each(|browser| buys_five(browser, round));
        let failed = world.failed_syncs();
        let kill = round % 2 == 1;
        if kill {
            world.end_origin(Signal::KILL);
        }
        second.iter().for_each(|browser| buys_five(browser, round));
        if kill {
            eventually("syncs found the origin down", || (world.failed_syncs() > failed).then_some(()));
            world.start_origin();
        }
    }
    eprintln!("{} events acknowledged in {:?}", rounds * VISITORS * 5, start.elapsed());
    let held = |visitor: &str| {
        let own = world.visitor(visitor)["own"].take();
        ["pages", "purchases", "revenue_micros"].map(|name| own[name].as_u64())
    };
    // What came while the origin was dead comes again later and later. What had come was perhaps sent again too, as its
    // answer died with the origin: until nothing is left to send, and what comes behind it is folded, a fact may still
    // count twice.
    within(Duration::from_secs(120 + 15 * rounds), "every message is acknowledged", || {
        (world.acknowledged() == STOPPED + VISITORS + rounds * VISITORS).then_some(())
    });
    let last = world.browser();
    world.settles(last.view()["visitor"].as_str().unwrap(), 1, 0);
    for visitor in &visitors {
        assert_eq!(held(visitor), [Some(1), Some(rounds * 5), Some(rounds * 5_000)]);
    }
}

/// The bridge comes from the KV: the answer is complete while the origin does not respond.
fn bridges_alone(world: &World) {
    let proof = world.proof("demo", "hung");
    let user = json!({ "user": { "ids": { "member": "hung" }, "proofs": { "member": proof } } });
    let [phone, laptop] = [world.browser(), world.browser()];
    let known = [phone.decide(&user), laptop.decide(&json!({}))].map(|answer| answer.json()["visitor"].clone());
    for visitor in &known {
        world.settles(visitor.as_str().unwrap(), 1, 0);
    }
    world.published();
    eventually("the laptop's own snapshot is read", || (laptop.me(None)["kv_reads"] == json!(1)).then_some(()));
    let bridging = world.while_origin_hangs(|| laptop.decide(&user));
    let reply = bridging.json();
    assert_eq!((bridging.status, &reply["visitor"]), (200, &known[1]), "{reply}");
    assert_eq!(reply["person"], json!({ "devices": 2, "new_visitor": false, "bridged": true }));
    assert_eq!((&reply["kv_reads"], reply.get("degraded")), (&json!(2), None));
    assert!(bridging.took < Duration::from_millis(500), "{:?}", bridging.took);
}
