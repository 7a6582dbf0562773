//! Faults of the platform, with the worker in workerd: a trap, a killed process, a KV that does not answer, a client
//! that leaves, and thousands of overlapping requests.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at its first failure")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_shared::base::ids::VisitorId;
use causeway_tests::bare::{Bare, TRAP, catalogue};
use causeway_tests::browser::{Answer, Browser};
use causeway_tests::standin::Reads;
use causeway_tests::{cases, eventually};
use serde_json::{Value, json};

/// Requests that overlap, each with a mark of its own; short and long.
const INTERLEAVED: [u64; 2] = [2_500, 10_000];
/// Requests at once around a trap.
const CONCURRENT: usize = 200;

fn restarts(bare: &Bare) -> u64 {
    bare.browser().send("GET", "/healthz", &[], b"").json()["module_restarts"].as_u64().unwrap()
}

/// A call that traps during the request.
fn trap(browser: &Browser) -> Answer {
    browser.send("POST", &format!("/v1/decide?{TRAP}"), &[], b"{}")
}

#[test]
fn a_trap_costs_no_other_request_its_answer() {
    let bare = Bare::trapping();
    let browsers: Vec<(Browser, VisitorId)> = (0..CONCURRENT).map(|_| bare.returning()).collect();
    browsers.iter().for_each(|(browser, _)| drop(browser.view()));
    bare.standin.held().reads = Reads::Late(Duration::from_millis(60));
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let call = |number: usize, browser: Browser| {
            if number == CONCURRENT / 2 { trap(&browser) } else { browser.decide(&json!({})) }
        };
        let each = browsers.iter().enumerate().map(|(number, (browser, _))| (number, browser.clone()));
        let calls: Vec<_> = each.map(|(number, browser)| scope.spawn(move || call(number, browser))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let mut restarted = 0;
    for (number, (answer, (_, visitor))) in answers.iter().zip(&browsers).enumerate() {
        let body = answer.json();
        assert!(answer.status == 200 && answer.took < Duration::from_secs(5), "{number}: {answer:?}");
        if body["reason"] == "restarted" {
            assert_eq!((&body["decisions"], &body["visitor"]), (&json!([]), &Value::Null), "{number}");
            restarted += 1;
        } else {
            assert_eq!(body["visitor"], json!(visitor.to_string()), "{number}: {body}");
        }
    }
    assert_eq!(answers[CONCURRENT / 2].json()["reason"], "restarted");
    assert!(restarted >= 1, "the trapped request is among them");
    assert_eq!(restarts(&bare), 1, "the counter outlives the instance");
    bare.standin.held().reads = Reads::Well;
    let (browser, visitor) = &browsers[0];
    let after = browser.view();
    assert_eq!((after["visitor"].as_str(), &after["reason"]), (Some(visitor.to_string().as_str()), &Value::Null));
}

#[test]
fn events_under_way_at_a_trap_are_accepted_or_to_be_sent_again() {
    let bare = Bare::trapping();
    let browsers: Vec<(Browser, VisitorId)> = (0..20).map(|_| bare.returning()).collect();
    browsers.iter().for_each(|(browser, _)| drop(browser.view()));
    let views = |held: &mut causeway_tests::standin::Held| (held.queued.len() >= 20).then_some(());
    bare.standin.wait("the page views are queued", views);
    bare.standin.held().queue_takes = Duration::from_millis(400);
    let event = json!([{ "type": "track", "name": "signup", "id": "one" }]);
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let event = &event;
        let each = browsers.iter().map(|(browser, _)| browser.clone());
        let calls: Vec<_> = each.map(|browser| scope.spawn(move || browser.events(event))).collect();
        let waits = |held: &mut causeway_tests::standin::Held| (held.queue_waiting == 20).then_some(());
        bare.standin.wait("all events wait for the queue", waits);
        assert_eq!(trap(&bare.returning().0).json()["reason"], "restarted");
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let mut again = 0;
    for (answer, (browser, _)) in answers.iter().zip(&browsers) {
        match answer.status {
            202 => {}
            503 => {
                assert_eq!(
                    (&answer.json()["error"]["code"], answer.header("retry-after")),
                    (&json!("retry"), Some("1"))
                );
                assert_eq!(browser.events(&event).json()["accepted"], 1);
                again += 1;
            }
            status => panic!("{status}: {answer:?}"),
        }
    }
    assert_eq!(again, 20, "all were waiting in the instance that trapped");
    let held = bare.standin.held();
    for (_, visitor) in &browsers {
        let ids: BTreeSet<_> = held.facts_of(*visitor).into_iter().map(|fact| fact.id).collect();
        assert_eq!(ids.len(), 2, "a page view and one event, however often it was sent");
    }
}

fn strict_ad() -> Value {
    let cap = json!([{ "action": "impression", "limit": 1, "window": { "interval": 1, "unit": "days" } }]);
    json!({
        "advertiser": [{ "id": "shoes", "code": 1 }],
        "campaign": [{ "id": "once", "code": 1, "advertiser": "shoes", "cap_mode": "strict", "caps": cap }],
        "ad_group": [{ "id": "one", "code": 1, "campaign": "once" }],
        "ad": [{ "id": "red", "code": 1, "ad_group": "one", "creative": {}, "landing": "https://red.example/" }],
    })
}

/// Places the strict ad for a new visitor; returns its browser with the cookies from before the placement.
fn place_strict_ad(bare: &Bare) -> Browser {
    eventually("the object grants the ad", || {
        let (browser, _) = bare.returning();
        let before = browser.cookies();
        let is_placed = browser.decide(&json!({})).json()["decisions"][0]["ad"]["id"] == "red";
        browser.put_back(before);
        is_placed.then_some(browser)
    })
}

/// Whether the cap holds for cookies that do not name the first placement, so that only the object knows it.
fn is_capped(browser: &Browser) -> bool {
    let before = browser.cookies();
    let answer = browser.decide(&json!({})).json();
    browser.put_back(before);
    answer["decisions"][0]["ad"]["id"] == "house" && answer["degraded"] == Value::Null
}

#[test]
fn durable_objects_keep_their_state_over_a_trap_and_a_killed_process() {
    let mut bare = Bare::trapping();
    bare.standin.held().kv.extend(catalogue(1, &strict_ad()));
    let browser = place_strict_ad(&bare);
    assert_eq!(trap(&bare.returning().0).json()["reason"], "restarted");
    assert_eq!(restarts(&bare), 1);
    eventually("the object answers in the new instance", || is_capped(&browser).then_some(()));
    bare.restart();
    let browser = bare.same_browser(&browser);
    eventually("the object answers in the new process", || is_capped(&browser).then_some(()));
}

#[test]
fn no_acknowledged_event_is_lost_with_a_killed_process() {
    let mut bare = Bare::trapping();
    let browsers: Vec<(Browser, VisitorId)> = (0..8).map(|_| bare.returning()).collect();
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let acknowledged = &acknowledged;
        for browser in browsers.iter().map(|(browser, _)| browser.clone()) {
            scope.spawn(move || {
                for number in 0_u64.. {
                    let event = json!([{ "type": "track", "name": "signup", "id": number.to_string() }]);
                    match browser.try_send("POST", "/v1/events", &[], event.to_string().as_bytes()) {
                        Ok(answer) if answer.status == 202 => acknowledged.fetch_add(1, Ordering::Relaxed),
                        _ => return,
                    };
                }
            });
        }
        eventually("a hundred are acknowledged", || (acknowledged.load(Ordering::Relaxed) > 100).then_some(()));
        bare.kill();
    });
    let held = bare.standin.held();
    let stored: usize = browsers.iter().map(|(_, visitor)| held.facts_of(*visitor).len()).sum();
    drop(held);
    let acknowledged = acknowledged.into_inner();
    assert!(stored as u64 >= acknowledged, "{stored} of {acknowledged}");
    bare.restart();
    assert!(bare.browser().view()["visitor"].is_string());
}

#[test]
fn a_kv_that_answers_after_ten_seconds_delays_no_answer() {
    let bare = Bare::start();
    let (browser, visitor) = bare.returning();
    browser.view();
    bare.standin.held().reads = Reads::Late(Duration::from_secs(10));
    let times: Vec<Duration> = (0..20)
        .map(|_| {
            let answer = browser.decide(&json!({}));
            assert_eq!(answer.json()["degraded"], json!(["kv_late"]));
            assert_eq!(answer.json()["visitor"], json!(visitor.to_string()));
            answer.took
        })
        .collect();
    let slowest = times.iter().max().unwrap();
    assert!(*slowest < Duration::from_secs(1), "{times:?}");
    bare.standin.held().reads = Reads::Well;
    assert_eq!(browser.view()["degraded"], Value::Null);
}

#[test]
fn the_facts_of_a_client_that_left_are_sent() {
    let bare = Bare::start();
    let (browser, visitor) = bare.returning();
    bare.standin.held().reads = Reads::Late(Duration::from_millis(80));
    let mut stream = TcpStream::connect(bare.edge.trim_start_matches("http://")).unwrap();
    let cookie: Vec<String> = browser.cookies().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let cookie = cookie.join("; ");
    let agent = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";
    let request = format!(
        "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncookie: {cookie}\r\nuser-agent: {agent}\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let has_read = |held: &mut causeway_tests::standin::Held| (!held.asked.is_empty()).then_some(());
    bare.standin.wait("the request reads the KV", has_read);
    drop(stream);
    let queued = |held: &mut causeway_tests::standin::Held| (!held.facts_of(visitor).is_empty()).then_some(());
    bare.standin.wait("its page view is queued", queued);
}

#[test]
fn overlapping_requests_get_their_own_answers() {
    let requests = cases(INTERLEAVED);
    let bare = Bare::start();
    bare.standin.held().reads = Reads::Varying(Duration::from_millis(130));
    let next = AtomicU64::new(0);
    let late = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut own = bare.returning();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        return;
                    }
                    if number.is_multiple_of(8) {
                        own = bare.returning();
                    }
                    let (browser, visitor) = &own;
                    let mark = format!("mark-{number}");
                    let answer = browser.decide(&json!({ "placements": [{ "id": mark }] }));
                    let body = answer.json();
                    assert_eq!(answer.status, 200, "{body}");
                    assert_eq!(body["visitor"], json!(visitor.to_string()), "{mark}");
                    assert_eq!(body["decisions"][0]["placement"], json!(mark));
                    late.fetch_add(u64::from(body["degraded"] == json!(["kv_late"])), Ordering::Relaxed);
                }
            });
        }
    });
    let late = late.into_inner();
    assert!(late > requests / 100, "{late} of {requests} reads were late: the test needs late reads and reads in time");
    assert_eq!(restarts(&bare), 0);
}
