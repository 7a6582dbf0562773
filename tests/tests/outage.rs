//! The origin stopped, killed and started again, in the middle of everything.
#![expect(clippy::unwrap_used, reason = "tests end at the first thing that is not so")]

use std::time::{Duration, Instant};

use causeway_tests::browser::Browser;
use causeway_tests::run;
use causeway_tests::world::World;
use rustix::process::Signal;
use serde_json::{Value, json};

fn main() {
    run(
        World::start,
        &[("the_origin_goes_and_comes_and_is_killed_and_nothing_acknowledged_is_lost", |world| {
            stopped(world);
            killed_in_a_burst(world);
        })],
    )
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

fn stopped(world: &World) {
    let browser = world.browser();
    let visitor = browser.view()["visitor"].as_str().unwrap().to_owned();
    world.settles(&visitor, 1, 0);
    let timed = |browser: &Browser| -> Vec<Duration> { (0..40).map(|_| browser.decide(&json!({})).took).collect() };
    let up = median(timed(&browser));
    world.end_origin(Signal::TERM);
    let down = median(timed(&browser));
    browser.buy("while-down", 3_000_000);
    assert!(down < up * 3 + Duration::from_millis(20), "with the origin {up:?}, without {down:?}");
    world.start_origin();
    let held = world.settles(&visitor, 81, 1);
    assert_eq!(held["own"]["revenue_micros"], 3_000_000);
}

/// 5,000 events from 200 visitors, the origin killed twice in between.
fn killed_in_a_burst(world: &World) {
    let browsers: Vec<Browser> = (0..200).map(|_| world.browser()).collect();
    let visitors: Vec<String> = browsers.iter().map(|b| b.view()["visitor"].as_str().unwrap().to_owned()).collect();
    let start = Instant::now();
    for round in 0..5 {
        for browser in &browsers {
            let events: Vec<Value> = (0..5)
                .map(|n| json!({ "type": "track", "id": format!("{round}-{n}"), "name": "purchase", "properties": { "value_micros": 1_000 } }))
                .collect();
            let answer = browser.events(&json!(events));
            assert_eq!((answer.status, answer.json()["accepted"].clone()), (202, json!(5)));
        }
        match round {
            1 | 3 => {
                world.end_origin(Signal::KILL);
                world.start_origin();
            }
            _ => {}
        }
    }
    eprintln!("5,000 events acknowledged in {:?}", start.elapsed());
    for visitor in &visitors {
        let held = world.settles(visitor, 1, 25);
        assert_eq!(held["own"]["revenue_micros"], 25_000);
    }
}
