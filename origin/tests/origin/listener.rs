//! Slow, many or large connections: each ends within its limit, and syncs continue.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use causeway_shared::base::limits;
use causeway_shared::keys::key_ring::RingKey;
use causeway_shared::keys::sync_auth::{self, KEY_HEADER, MAC_HEADER, TIME_HEADER};
use causeway_shared::wire::sync::{SyncRequest, encode_request};
use serde_json::json;

use crate::support::{Origin, Place, SOON, TENANTS, now, once, page, request, visitor, within};

/// A folder whose origin has these settings of `[http]`, and a drain timeout that no test reaches.
fn place(http: &str) -> Place {
    Place::with(&format!("drain_s = 600\n[http]\n{http}\n{TENANTS}"))
}

fn connect(origin: &Origin) -> TcpStream {
    let stream = TcpStream::connect(&origin.address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream
}

fn open(origin: &Origin, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(origin);
    stream.write_all(bytes).unwrap();
    stream
}

/// The bytes until the origin closes the connection; a connection that stays open fails the test.
fn read_to_close(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(e) = stream.read_to_end(&mut bytes) {
        assert!(!matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "the connection stays open");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a byte each tenth of a second until the origin closes the connection; returns the received bytes.
fn trickle(stream: &mut TcpStream, byte: u8) -> String {
    let end = Instant::now() + SOON;
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut came, mut some) = (Vec::new(), [0; 1024]);
    loop {
        assert!(Instant::now() < end, "the connection stays open");
        drop(stream.write(&[byte]));
        match stream.read(&mut some) {
            Ok(0) => break,
            Ok(n) => came.extend_from_slice(&some[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&came).into_owned()
}

/// The head of a sync with a body of this length.
fn sync_head(headers: &[(&str, String)], length: usize, more: &str) -> String {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("POST /v1/sync HTTP/1.1\r\nhost: origin\r\ncontent-length: {length}\r\n{lines}{more}\r\n")
}

/// A sync whose body is longer than 64 KiB.
fn long_sync() -> SyncRequest {
    let facts: Vec<_> = (0..4_000).map(|n| page(visitor(100_000 + n), 1)).collect();
    let request = request(&facts);
    assert!(encode_request(&request).len() > 64 * 1024);
    request
}

/// A figure of the process, such as `VmRSS`, in KB.
fn memory_kb(origin: &Origin, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", origin.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The number of open sockets of the process.
fn sockets(origin: &Origin) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", origin.pid())).unwrap().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

fn timeouts(origin: &Origin, limit: &str) -> String {
    origin.metric(&format!("causeway_connection_timeouts_total{{limit=\"{limit}\"}}"))
}

#[test]
fn half_a_head_is_closed_within_its_limit_however_it_comes() {
    let place = place("head_s = 1\nidle_s = 3");
    let origin = place.serve();
    let half = b"GET /healthz HTTP/1.1\r\nhost: origin\r\nx-long: ";
    let mut still = open(&origin, half);
    assert_eq!(trickle(&mut open(&origin, half), b'a'), "");
    assert_eq!(read_to_close(&mut still), "");
    // The start of an HTTP/2 preface has the same limit.
    assert_eq!(read_to_close(&mut open(&origin, b"PRI * HT")), "");
    // So has a second request, sent with the first one or after its answer.
    let mut next = open(&origin, &[&b"GET /healthz HTTP/1.1\r\nhost: origin\r\n\r\n"[..], half].concat());
    assert!(read_to_close(&mut next).starts_with("HTTP/1.1 200 OK"));
    let mut another = open(&origin, b"GET /healthz HTTP/1.1\r\nhost: origin\r\n\r\n");
    let mut answer = [0; 12];
    another.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    another.write_all(half).unwrap();
    assert!(read_to_close(&mut another).contains("\"status\":\"ok\""));
    let late: u32 = timeouts(&origin, "head").parse().unwrap();
    assert!(late >= 4, "{late}");
}

#[test]
fn half_a_body_is_answered_408_and_its_connection_closed() {
    let place = place("body_s = 1");
    let origin = place.serve();
    let token = place.token("viewer");
    let body = encode_request(&request(&[page(visitor(1), 1)]));
    let sync = sync_head(&origin.signed(now(), &body), body.len(), "");
    let counts = format!(
        "POST /admin/v1/counts HTTP/1.1\r\nhost: origin\r\nauthorization: Bearer {token}\r\ncontent-length: 1000\r\n\r\n"
    );
    for head in [sync, counts] {
        let mut still = open(&origin, head.as_bytes());
        for came in [trickle(&mut open(&origin, head.as_bytes()), b' '), read_to_close(&mut still)] {
            assert!(came.starts_with("HTTP/1.1 408") && came.contains("\"code\":\"timeout\""), "{came}");
        }
    }
    assert_eq!(timeouts(&origin, "body"), "4");
    assert_eq!(origin.metric("causeway_syncs_refused_total{status=\"408\"}"), "2");
    assert_eq!(origin.send(&[page(visitor(1), 2)]).accepted, 1);
}

#[test]
fn an_idle_connection_is_closed_and_one_that_is_used_stays() {
    let place = place("idle_s = 1");
    let origin = place.serve();
    assert_eq!(read_to_close(&mut connect(&origin)), "");
    let ask = b"GET /healthz HTTP/1.1\r\nhost: origin\r\n\r\n";
    let mut used = open(&origin, ask);
    let (end, mut asked) = (Instant::now() + Duration::from_secs(2), 1);
    while Instant::now() < end {
        within(SOON, "an answer", || {
            let mut some = [0; 4_096];
            let n = used.read(&mut some).unwrap();
            once(String::from_utf8_lossy(&some[..n]).into_owned(), |came| came.contains("\"status\":\"ok\""))
        });
        used.write_all(ask).unwrap();
        asked += 1;
    }
    assert!(asked > 2);
    assert!(read_to_close(&mut used).starts_with("HTTP/1.1 200 OK"), "the last answer");
    assert_eq!(timeouts(&origin, "idle"), "2");
}

#[test]
fn a_reader_that_stalls_is_closed() {
    let place = place("write_s = 1");
    let origin = place.serve();
    let mut stream = connect(&origin);
    // Requests without reads of their answers, until both sides wait for each other.
    let ask = b"GET /dashboard.js HTTP/1.1\r\nhost: origin\r\n\r\n".repeat(100);
    let failed = loop {
        if let Err(e) = stream.write_all(&ask) {
            break e.kind();
        }
    };
    assert!(matches!(failed, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{failed}");
    assert_eq!(timeouts(&origin, "write"), "1");
}

#[test]
fn a_large_head_is_answered_431() {
    let place = Place::new();
    let origin = place.serve();
    let large = [("x-large", "a".repeat(70_000))];
    let many: Vec<_> = (0..101).map(|_| ("x-many", "a".to_owned())).collect();
    for headers in [&large[..], &many] {
        assert_eq!(origin.call("GET", "/healthz", headers, b"").status, 431);
    }
    assert_eq!(origin.call("GET", "/healthz", &[("x-large", "a".repeat(30_000))], b"").status, 200);
}

#[test]
fn a_thousand_half_requests_hold_up_no_sync() {
    let place = place("connections = 256");
    let origin = place.serve();
    // The usual limit of a shell.
    origin.limit_open_files(1_024);
    let half = b"POST /v1/sync HTTP/1.1\r\nhost: origin\r\n";
    let counts =
        b"POST /admin/v1/counts HTTP/1.1\r\nhost: origin\r\nauthorization: Bearer x\r\ncontent-length: 9\r\n\r\n";
    let mut held = Vec::new();
    for n in 0..1_024_u32 {
        held.push(open(&origin, if n % 2 == 0 { half } else { counts }));
        if n % 128 == 127 {
            assert_eq!(origin.send(&[page(visitor(n), 1)]).accepted, 1);
        }
    }
    assert_eq!(origin.sync(&long_sync()).accepted, 4_000);
    let displaced: u32 = origin.metric("causeway_connections_displaced_total").parse().unwrap();
    assert!(displaced >= 1_024 - 256, "{displaced}");
}

#[test]
fn a_sync_under_way_outlasts_any_number_of_newcomers() {
    let place = place("connections = 64");
    let origin = place.serve();
    let body = encode_request(&long_sync());
    let (first, rest) = body.split_at(1_000);
    let head = sync_head(&origin.signed(now(), &body), body.len(), "expect: 100-continue\r\nconnection: close\r\n");
    let mut sync = open(&origin, head.as_bytes());
    // The origin answers 100 after it has verified the signature in the head.
    let mut interim = [0; 25];
    sync.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    sync.write_all(first).unwrap();
    let held: Vec<_> = (0..300).map(|_| open(&origin, b"GET / HT")).collect();
    within(SOON, "all newcomers were accepted", || {
        let displaced: usize = origin.metric("causeway_connections_displaced_total").parse().unwrap();
        once(displaced, |displaced| *displaced >= held.len() - 64)
    });
    sync.write_all(rest).unwrap();
    assert!(read_to_close(&mut sync).starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn ten_thousand_connections_stay_within_the_bound() {
    let place = place("connections = 512");
    let origin = place.serve();
    let before = memory_kb(&origin, "VmRSS");
    let mut held = Vec::new();
    // A head without its end.
    let head = format!("GET /healthz HTTP/1.1\r\nhost: origin\r\nx-large: {}", "a".repeat(28_000));
    for n in 0..10_000 {
        let mut stream = connect(&origin);
        drop(stream.write_all(head.as_bytes()));
        held.push(stream);
        if n % 500 == 0 {
            assert!(sockets(&origin) < 512 + 32, "{}", sockets(&origin));
        }
    }
    assert_eq!(origin.send(&[page(visitor(1), 1)]).accepted, 1);
    let open: usize = origin.metric("causeway_connections").parse().unwrap();
    assert!(open <= 512 && sockets(&origin) < 512 + 32, "{open} {}", sockets(&origin));
    let grown = memory_kb(&origin, "VmHWM") - before;
    assert!(grown < 100_000, "{grown} KB more");
}

#[test]
fn heads_that_never_end_take_little_memory() {
    let place = Place::new();
    let origin = place.serve();
    let before = memory_kb(&origin, "VmRSS");
    let head = format!("GET /healthz HTTP/1.1\r\nhost: origin\r\nx-large: {}", "a".repeat(300_000));
    let mut held: Vec<_> = (0..800).map(|_| connect(&origin)).collect();
    for stream in &mut held {
        // The origin refuses the request before all is sent.
        drop(stream.write_all(head.as_bytes()));
    }
    let refused = read_to_close(&mut held[799]);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431"), "{refused}");
    let grown = memory_kb(&origin, "VmHWM") - before;
    assert!(grown < 100_000, "{grown} KB more");
}

#[test]
fn long_bodies_under_a_wrong_mac_are_refused_unread_and_hold_up_no_sync() {
    let place = Place::new();
    let origin = place.serve();
    let active = origin.keys.sync.active().unwrap();
    let other = RingKey { secret: [7; 32].into(), ..active.clone() };
    let time = now();
    let forged = [
        (KEY_HEADER, active.id.to_string()),
        (TIME_HEADER, time.to_string()),
        (MAC_HEADER, sync_auth::sign_sync(&other, time, b"a body")),
    ];
    let head = sync_head(&forged, limits::SYNC_BYTES, "") + "some of it";
    let mut long: Vec<_> = (0..64).map(|_| open(&origin, head.as_bytes())).collect();
    let sync = long_sync();
    assert_eq!(origin.sync(&sync).accepted, 4_000);
    for stream in &mut long {
        let response = read_to_close(stream);
        assert!(response.starts_with("HTTP/1.1 401"), "{response}");
    }
    assert_eq!(origin.metric("causeway_syncs_refused_total{status=\"401\"}"), "64");
}

#[test]
fn a_stop_waits_for_no_half_request_and_for_a_sync_under_way() {
    let place = place("");
    let mut origin = place.serve();
    let body = encode_request(&request(&[page(visitor(1), 1)]));
    let head = sync_head(&origin.signed(now(), &body), body.len(), "expect: 100-continue\r\n");
    let halves = ["", "GET /healthz HT", "GET /healthz HTTP/1.1\r\nhost: origin\r\n"];
    let counts =
        "POST /admin/v1/counts HTTP/1.1\r\nhost: origin\r\nauthorization: Bearer x\r\ncontent-length: 9\r\n\r\n1";
    let halves = [&halves[..], &[counts]].concat();
    let mut held: Vec<_> = halves.iter().map(|half| open(&origin, half.as_bytes())).collect();
    let mut sync = open(&origin, head.as_bytes());
    sync.read_exact(&mut [0; 25]).unwrap();
    let began = Instant::now();
    origin.signal("-TERM");
    for stream in &mut held {
        assert_eq!(read_to_close(stream), "");
    }
    sync.write_all(&body).unwrap();
    assert!(read_to_close(&mut sync).starts_with("HTTP/1.1 200 OK"));
    assert_eq!(origin.wait(), Some(0));
    assert!(began.elapsed() < SOON, "of 600 seconds that a drain may take");
    let origin = place.serve();
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 1, "{}", place.log());
    drop(origin);
}

#[test]
fn a_request_without_one_valid_host_is_refused() {
    let place = Place::new();
    let origin = place.serve();
    let answered =
        |head: &str| read_to_close(&mut open(&origin, format!("{head}connection: close\r\n\r\n").as_bytes()));
    for hosts in
        ["host: a\r\nhost: a\r\n", "host: a\r\nHOST: b\r\n", "", "host: a b\r\n", "host: a/b\r\n", "host: \u{e9}\r\n"]
    {
        for path in ["/healthz", "/admin/v1/jobs", "/v1/sync", "/nowhere"] {
            let response = answered(&format!("GET {path} HTTP/1.1\r\n{hosts}"));
            let is_refused = response.starts_with("HTTP/1.1 400") && response.contains("\"code\":\"bad_host\"");
            assert!(is_refused && response.contains("connection: close"), "{hosts:?} {path}: {response}");
        }
    }
    for hosts in ["host: a\r\n", "host: a:80\r\n", "host: [::1]:8788\r\n", "host:\r\n"] {
        let response = answered(&format!("GET /healthz HTTP/1.1\r\n{hosts}"));
        assert!(response.starts_with("HTTP/1.1 200"), "{hosts:?}: {response}");
    }
    assert!(answered("GET /healthz HTTP/1.0\r\n").starts_with("HTTP/1.0 200"));
}

#[test]
fn no_answer_may_be_stored_or_taken_for_anything_else() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("operator");
    let bearer = vec![("authorization", format!("Bearer {token}"))];
    let lines = [bearer.clone(), vec![("accept", "application/x-ndjson".to_owned())]].concat();
    let members = json!({ "filter": {} }).to_string();
    origin.send(&[page(visitor(1), 1)]);
    let cases = [
        ("GET", "/admin/v1/jobs".to_owned(), &bearer, "", 200),
        ("GET", format!("/admin/v1/visitors/{}?tenant=demo", visitor(1)), &bearer, "", 200),
        ("POST", "/admin/v1/audience/members?tenant=demo".to_owned(), &lines, &*members, 200),
        ("GET", "/admin/v1/openapi.json".to_owned(), &bearer, "", 200),
        ("GET", "/admin/v1/jobs".to_owned(), &Vec::new(), "", 401),
        ("GET", "/admin/v1/nowhere".to_owned(), &bearer, "", 404),
        ("DELETE", "/admin/v1/jobs".to_owned(), &bearer, "", 405),
    ];
    for (method, path, headers, body, status) in cases {
        let answer = within(SOON, "the audience index is loaded", || {
            let answer = origin.call(method, &path, headers, body.as_bytes());
            if answer.status == 503 { Err(answer.text()) } else { Ok(answer) }
        });
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        for header in ["cache-control: no-store", "x-content-type-options: nosniff"] {
            assert!(answer.head.lines().any(|line| line == header), "{method} {path}: {}", answer.head);
        }
    }
    let page = origin.get("/");
    assert!(page.head.contains("cache-control: no-cache") && page.head.contains("x-content-type-options: nosniff"));
}
