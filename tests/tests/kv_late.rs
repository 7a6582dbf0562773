//! The worker with a late KV: every answer is complete and in time.
#![expect(clippy::unwrap_used, reason = "a test ends at its first failure")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use causeway_shared::base::ids::{AlternateId, InsertionId, KindCode, VisitorId};
use causeway_shared::facts::actions::{AdEntity, ViewType};
use causeway_shared::keys::ad_token::{self, AdToken};
use causeway_shared::wire::{self, kv_keys};
use causeway_tests::bare::{Bare, now, tenant};
use causeway_tests::browser::{Answer, Browser};
use causeway_tests::run_in_turn;
use causeway_tests::standin::Reads;
use serde_json::json;

fn main() {
    run_in_turn(
        Bare::start,
        &[
            ("a_request_with_reads_a_second_late_is_answered_within_150_ms", late),
            ("parallel_requests_with_late_reads_are_answered_within_150_ms", late_together),
            ("a_request_with_a_late_read_is_answered_within_150_ms_after_earlier_ones_ended", late_after_others),
            (
                "a_request_with_a_late_read_is_answered_within_150_ms_after_the_first_client_left",
                late_after_the_first_left,
            ),
            ("every_route_with_a_late_read_answers_within_150_ms", late_elsewhere),
            ("a_new_visitor_with_a_late_lookup_is_minted_within_150_ms", late_for_a_stranger),
            ("a_late_second_read_leaves_the_result_of_the_first_one", late_second),
            ("a_warm_isolate_answers_in_time_with_late_reads", late_and_warm),
            ("the_first_request_of_an_isolate_is_answered_with_late_reads", late_and_cold),
        ],
    )
}

fn late(bare: &Bare) {
    bare.standin.reset();
    let proof = bare.proof("late");
    let (browser, visitor) = bare.returning();
    browser.view();
    bare.standin.held().reads = Reads::Late(Duration::from_secs(1));
    let call = || {
        let answer = browser
            .decide(&json!({ "user": { "ids": { "member": "late", "partner": "p" }, "proofs": { "member": proof } } }));
        assert_eq!(answer.json()["visitor"], json!(visitor.to_string()));
        assert_eq!(answer.json()["degraded"], json!(["kv_late"]));
        answer.took
    };
    within_150_ms((0..20).map(|_| call()).collect());
}

/// Checks the distribution of answer times: half of them below 120 ms and three quarters below 150 ms. On a machine
/// with two busy cores a few of twenty wait for a core: a correct worker had 16 answers of 103 to 115 ms and four of
/// 152 to 242 ms. A worker that waits for a read or for another call moves the median. No correct answer, on however
/// busy a machine, comes near the second that a read takes.
fn within_150_ms(mut took: Vec<Duration>) {
    took.sort();
    let [half, three_quarters, all] = [took[took.len() / 2], took[took.len() * 3 / 4], took[took.len() - 1]];
    assert!(half < Duration::from_millis(120) && three_quarters < Duration::from_millis(150), "{took:?}");
    assert!(all < Duration::from_millis(500), "{took:?}");
}

/// The result of `slow`, and the longest time of a `quick` call meanwhile.
fn meanwhile<T: Send>(slow: impl FnOnce() -> T + Send, quick: impl Fn() -> Answer) -> (T, Duration) {
    std::thread::scope(|scope| {
        let slow = scope.spawn(slow);
        let mut longest = Duration::ZERO;
        while !slow.is_finished() {
            longest = longest.max(quick().took);
        }
        (slow.join().unwrap(), longest)
    })
}

fn late_together(bare: &Bare) {
    // A pause of a busy machine delays all twenty; only the round with the shortest pause counts.
    let rounds = (0..5).map(|_| twenty_late_together(bare));
    let (took, pause) = rounds.min_by_key(|(_, pause)| *pause).unwrap();
    within_150_ms(took.into_iter().map(|took| took.saturating_sub(pause)).collect());
}

/// The time of each request, and the longest time of a parallel request that reads nothing.
fn twenty_late_together(bare: &Bare) -> (Vec<Duration>, Duration) {
    bare.standin.reset();
    let browsers: Vec<_> = (0..20).map(|_| bare.returning()).collect();
    browsers.iter().for_each(|(browser, _)| drop(browser.view()));
    bare.standin.held().reads = Reads::Late(Duration::from_secs(1));
    let call = |(browser, visitor): (Browser, VisitorId)| {
        let answer = browser.decide(&json!({}));
        assert_eq!(answer.json()["visitor"], json!(visitor.to_string()));
        assert_eq!(answer.json()["degraded"], json!(["kv_late"]));
        answer.took
    };
    let together = || {
        std::thread::scope(|scope| {
            let calls: Vec<_> = browsers.into_iter().map(|browser| scope.spawn(move || call(browser))).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let health = bare.browser();
    meanwhile(together, || health.send("GET", "/healthz", &[], b""))
}

/// A new visitor with an id: its lookup is read in parallel with the limit on minting.
fn late_for_a_stranger(bare: &Bare) {
    bare.standin.reset();
    bare.returning().0.view();
    bare.standin.held().reads = Reads::Late(Duration::from_secs(1));
    let call = |n: usize| {
        let answer = bare.browser().decide(&json!({ "user": { "ids": { "partner": format!("stranger-{n}") } } }));
        assert!(answer.json()["visitor"].is_string());
        assert_eq!(answer.json()["degraded"], json!(["kv_late"]));
        answer.took
    };
    within_150_ms((0..20).map(call).collect());
}

fn late_after_others(bare: &Bare) {
    bare.standin.reset();
    let ((slow, visitor), (quick, _)) = (bare.returning(), bare.returning());
    quick.view();
    let key = kv_keys::snapshot_key(&tenant(), visitor);
    bare.standin.held().reads = Reads::LateOf(key, Duration::from_secs(1));
    let late = |slow: Browser| {
        let answer = slow.decide(&json!({}));
        assert_eq!(answer.json()["degraded"], json!(["kv_late"]));
        answer.took
    };
    let quick_call = || {
        let answer = quick.decide(&json!({}));
        assert_eq!(answer.json().get("degraded"), None);
        answer
    };
    let took = || {
        let slow = slow.clone();
        meanwhile(move || late(slow), quick_call).0
    };
    within_150_ms((0..20).map(|_| took()).collect());
}

/// The timer of all pending requests belongs to the first one, whose client leaves before the answer.
fn late_after_the_first_left(bare: &Bare) {
    bare.standin.reset();
    let ((leaves, _), (stays, _)) = (bare.returning(), bare.returning());
    leaves.view();
    bare.standin.held().reads = Reads::Late(Duration::from_secs(1));
    let took = || {
        let before = bare.standin.held().asked.len();
        let mut connection = TcpStream::connect(host(bare)).unwrap();
        connection.write_all(request(bare, &leaves).as_bytes()).unwrap();
        bare.standin.wait("the read of the client that leaves", |held| (held.asked.len() > before).then_some(()));
        drop(connection);
        let answer = stays.decide(&json!({}));
        assert_eq!(answer.json()["degraded"], json!(["kv_late"]));
        answer.took
    };
    within_150_ms((0..20).map(|_| took()).collect());
}

fn host(bare: &Bare) -> &str {
    bare.edge.strip_prefix("http://").unwrap()
}

/// A request without placements, as sent over the wire.
fn request(bare: &Bare, browser: &Browser) -> String {
    let cookies: Vec<_> = browser.cookies().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let (host, cookies) = (host(bare), cookies.join("; "));
    format!("POST /v1/decide HTTP/1.1\r\nhost: {host}\r\ncookie: {cookies}\r\ncontent-length: 2\r\n\r\n{{}}")
}

fn late_elsewhere(bare: &Bare) {
    bare.standin.reset();
    let (browser, visitor) = bare.returning();
    browser.view();
    // The token belongs to a catalogue that the isolate does not have, so it is read each time.
    let token = AdToken {
        visitor,
        insertion: InsertionId([7; 16]),
        entity: AdEntity { ad: 1, ad_group: 1, campaign: 1, advertiser: 1 },
        view_type: ViewType(1),
        placed: now(),
        strict: false,
    };
    let sealed = ad_token::seal_token(&bare.keys.tenants["demo"].cookie, &tenant(), &token).unwrap();
    let [click, pixel] = [format!("/v1/c/{sealed}?again"), format!("/v1/i/{sealed}")];
    bare.standin.held().reads = Reads::Late(Duration::from_secs(1));
    let attributes = json!([{ "type": "attributes", "set": { "late": 1 } }]);
    let calls: [&dyn Fn() -> Answer; 3] =
        [&|| browser.send("GET", "/v1/me", &[], b""), &|| browser.events(&attributes), &|| {
            browser.send("GET", &click, &[], b"")
        }];
    for call in calls {
        let took = || {
            let answer = call();
            assert!(answer.status < 400 && answer.took >= Duration::from_millis(90), "it waited: {answer:?}");
            answer.took
        };
        within_150_ms((0..20).map(|_| took()).collect());
    }
    // An impression counts by its token alone and reads nothing.
    let seen = || browser.send("GET", &pixel, &[], b"").took;
    let mut took: Vec<Duration> = (0..20).map(|_| seen()).collect();
    took.sort_unstable();
    assert!(took[10] < Duration::from_millis(90), "{took:?}");
    assert_eq!(browser.me(None)["visitor"], json!(visitor.to_string()));
}

/// Both reads share one deadline: the lookup is found, and the snapshot that it names comes too late.
fn late_second(bare: &Bare) {
    bare.standin.reset();
    let proof = bare.proof("second");
    let (_, sibling) = bare.returning();
    let unique = bare.keys.tenants["demo"].alternate.hash_alternate(KindCode(1), "second")[0];
    let key = kv_keys::lookup_key(&tenant(), AlternateId { kind: KindCode(1), hash: unique });
    let value = wire::kv::encode_lookup(&key, &[sibling]).unwrap();
    bare.standin.held().kv.insert(key, value);
    bare.standin.held().reads = Reads::LateOf(kv_keys::snapshot_key(&tenant(), sibling), Duration::from_secs(1));
    let call = || {
        let (browser, visitor) = bare.returning();
        let member = json!({ "ids": { "member": "second" }, "proofs": { "member": proof } });
        let answer = browser.decide(&json!({ "user": member }));
        let reply = answer.json();
        assert_eq!((&reply["visitor"], &reply["kv_reads"]), (&json!(visitor.to_string()), &json!(2)), "{reply}");
        assert_eq!(reply["degraded"], json!(["kv_late"]), "{reply}");
        answer.took
    };
    within_150_ms((0..20).map(|_| call()).collect());
}

/// The first request of an isolate also waits for the module to be configured, which takes longer than the reads may.
/// The fastest of three new isolates counts, because a pause of the machine may delay one; a worker that waits for the
/// read takes a second in all of them.
fn late_and_cold(_: &Bare) {
    let took = || {
        let bare = Bare::start();
        bare.standin.held().reads = Reads::Late(Duration::from_secs(1));
        let (browser, visitor) = bare.returning();
        let answer = browser.decide(&json!({}));
        let reply = answer.json();
        assert_eq!(
            (&reply["visitor"], &reply["degraded"]),
            (&json!(visitor.to_string()), &json!(["kv_late"])),
            "{reply}"
        );
        answer.took
    };
    let took = [took(), took(), took()];
    assert!(took.iter().any(|took| *took < Duration::from_millis(500)), "{took:?}");
}

/// The platform compiles code again that is called often, and may then handle a promise differently.
fn late_and_warm(bare: &Bare) {
    const CALLS: usize = 32_000;
    const CONNECTIONS: usize = 8;
    bare.standin.reset();
    let (browser, _) = bare.returning();
    browser.view();
    let request = request(bare, &browser);
    let press = || {
        let mut connection = BufReader::new(TcpStream::connect(host(bare)).unwrap());
        (0..CALLS / CONNECTIONS).for_each(|_| exchange(&mut connection, &request));
    };
    std::thread::scope(|scope| (0..CONNECTIONS).for_each(|_| drop(scope.spawn(press))));
    late_together(bare);
}

/// Sends one request on an open connection and reads the answer.
fn exchange(connection: &mut BufReader<TcpStream>, request: &str) {
    connection.get_mut().write_all(request.as_bytes()).unwrap();
    let (mut length, mut line) = (0, String::new());
    connection.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    while line != "\r\n" {
        line.clear();
        connection.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    connection.read_exact(&mut vec![0; length]).unwrap();
}
