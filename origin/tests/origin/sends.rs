//! Sends over the admin API and by the command, to a webhook on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_shared::facts::attributes::AttributeValue as Attribute;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::wire::sync::SyncRequest;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{Origin, Place, SOON, TENANTS, batch, fact, now, once, visitor, within};

/// A call of the webhook, and a channel for its answer: a status, or 0 to hang up.
struct WebhookCall {
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    answer: SyncSender<u16>,
}

impl WebhookCall {
    fn id(&self) -> String {
        self.headers["webhook-id"].clone()
    }

    fn people(&self) -> Vec<(String, Value, String)> {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let people = body["people"].as_array().unwrap().iter();
        people.map(|one| (text(&one["person"]), one["arm"].clone(), text(&one["key"]))).collect()
    }
}

/// A webhook on a free port, with a receiver of its calls. It ends with its process.
fn webhook() -> (u16, Receiver<WebhookCall>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, calls) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let sender = sender.clone();
            std::thread::spawn(move || {
                while let Some((headers, body)) = request(&mut stream) {
                    let (answer, answered) = sync_channel(1);
                    sender.send(WebhookCall { headers, body, answer }).unwrap();
                    let Ok(status @ 1..) = answered.recv() else { return };
                    let line = format!("HTTP/1.1 {status} As Told\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n");
                    stream.get_mut().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
    (port, calls)
}

fn request(stream: &mut impl std::io::BufRead) -> Option<(BTreeMap<String, String>, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
    assert_eq!(line, "POST /sends HTTP/1.1\r\n");
    let mut headers = BTreeMap::new();
    for line in stream.lines() {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    Some((headers, body))
}

/// HMAC-SHA-256 (RFC 2104), independent of the origin's code, as a receiver computes it.
fn hmac(secret: &[u8; 32], message: &[u8]) -> Vec<u8> {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(secret).for_each(|(to, key)| *to ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

fn lives_in(n: u32, city: &str) -> Fact {
    let writes = vec![("city".to_owned(), Some(Attribute::String(city.to_owned())))];
    fact(visitor(n), 9, FactKind::Attributes { writes })
}

fn bonn() -> Value {
    json!({"attributes.city": "Bonn"})
}

fn people(place: &Place, origin: &Origin, count: u32) {
    let facts: Vec<Fact> = (0..count).map(|n| lives_in(n, "Bonn")).collect();
    origin.send(&facts);
    let token = place.token("viewer");
    within(SOON, "the audience index has them", || {
        let reply = origin.asked(&token, "POST", "audience/members", &json!({"filter": bonn()})).json();
        once(reply, |reply| reply["count"] == count)
    });
}

/// Waits until a send fulfils the condition; returns the send.
fn until(origin: &Origin, token: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    within(Duration::from_secs(60), "the send fulfils the condition", || {
        once(origin.asked(token, "GET", &format!("sends/{name}"), &Value::Null).json(), &is_so)
    })
}

#[test]
fn a_webhook_counts_each_person_once_whatever_it_answers_and_whichever_process_is_killed() {
    const WAIT: Duration = Duration::from_secs(60);
    let (port, calls) = webhook();
    let line = format!("dev = true\nwebhook = \"http://127.0.0.1:{port}/sends\"");
    let place = Place::with(&TENANTS.replacen("dev = true", &line, 1));
    let origin = place.serve();
    people(&place, &origin, 250);
    let operator = place.token("operator");
    let body = json!({"filter": bonn(), "count": 230, "webhook": true});
    let refused = origin.asked(&operator, "PUT", "sends/may", &body);
    assert_eq!((refused.status, refused.code().as_str()), (400, "no_webhook"), "{}", refused.text());
    place.json(&["keys", "rotate", "webhook", "--tenant", "demo"]);
    place.json(&["keys", "rotate", "webhook", "--tenant", "demo"]);
    origin.kill();
    let origin = place.serve();
    let begun = origin.asked(&operator, "PUT", "sends/may", &body);
    assert_eq!(begun.status, 202, "{}", begun.text());

    // The webhook answers 500; then the origin is killed before the answer; then the webhook hangs up.
    let first = calls.recv_timeout(WAIT).unwrap();
    first.answer.send(500).unwrap();
    let second = calls.recv_timeout(WAIT).unwrap();
    let down = until(&origin, &operator, "may", |send| !send["error"].is_null());
    assert!(down["error"].as_str().unwrap().contains("500"), "{down}");
    origin.kill();
    let origin = place.serve();
    let third = calls.recv_timeout(WAIT).unwrap();
    third.answer.send(0).unwrap();
    assert_eq!((first.id(), &first.body), (second.id(), &second.body));
    assert_eq!((first.id(), &first.body), (third.id(), &third.body));
    let mut keys = BTreeSet::new();
    let mut persons = BTreeSet::new();
    for batch in [100, 100, 30] {
        let call = calls.recv_timeout(WAIT).unwrap();
        assert!(batch < 100 || call.id() == first.id() || keys.len() == 100);
        assert_eq!(call.people().len(), batch);
        for (person, arm, key) in call.people() {
            assert!(persons.insert(person) && arm.is_null() && key.starts_with("demo/may/") && keys.insert(key));
        }
        // Signed with both keys, because a receiver may have either.
        let secrets = &place.keys().tenants["demo"].webhook.0;
        let time = &call.headers["webhook-timestamp"];
        assert!(time.parse::<u64>().unwrap().abs_diff(now() / 1_000) < 60);
        let message = [format!("{}.{time}.", call.id()).as_bytes(), &call.body].concat();
        let signed: Vec<String> =
            secrets.iter().map(|key| format!("v1,{}", STANDARD.encode(hmac(key.secret.bytes(), &message)))).collect();
        assert_eq!((signed.len(), call.headers["webhook-signature"].clone()), (2, signed.join(" ")));
        call.answer.send(204).unwrap();
    }
    let send = until(&origin, &operator, "may", |send| send["due_ms"].is_null());
    assert_eq!((&send["delivered"], &send["waits"], &send["error"]), (&json!(230), &json!(0), &Value::Null), "{send}");
    assert!(calls.try_recv().is_err(), "and no more");

    // A webhook that answers 410 gets no more calls until the send is requested again.
    origin.asked(&operator, "PUT", "sends/june", &json!({"filter": bonn(), "count": 5, "webhook": true}));
    calls.recv_timeout(WAIT).unwrap().answer.send(410).unwrap();
    let gone = until(&origin, &operator, "june", |send| send["due_ms"].is_null());
    assert!(gone["error"].as_str().unwrap().contains("410") && gone["delivered"] == 0, "{gone}");
    origin.asked(&operator, "PUT", "sends/june", &json!({"filter": bonn(), "count": 5, "webhook": true}));
    calls.recv_timeout(WAIT).unwrap().answer.send(200).unwrap();
    until(&origin, &operator, "june", |send| send["delivered"] == 5 && send["error"].is_null());
}

#[test]
fn a_webhook_that_asks_to_wait_is_waited_for_and_no_run_fails() {
    const WAIT: Duration = Duration::from_secs(60);
    let (port, calls) = webhook();
    let line = format!("dev = true\nwebhook = \"http://127.0.0.1:{port}/sends\"");
    let place = Place::with(&TENANTS.replacen("dev = true", &line, 1));
    place.json(&["keys", "rotate", "webhook", "--tenant", "demo"]);
    let origin = place.serve();
    people(&place, &origin, 5);
    let operator = place.token("operator");
    let body = json!({"filter": bonn(), "count": 5, "webhook": true});
    assert_eq!(origin.asked(&operator, "PUT", "sends/may", &body).status, 202);
    let mut ids = BTreeSet::new();
    for status in [429, 503] {
        let call = calls.recv_timeout(WAIT).unwrap();
        ids.insert(call.id());
        call.answer.send(status).unwrap();
    }
    let last = calls.recv_timeout(WAIT).unwrap();
    ids.insert(last.id());
    let held = origin.asked(&operator, "GET", "sends/may", &Value::Null).json();
    assert_eq!((&held["error"], &held["waits"], &held["delivered"]), (&Value::Null, &json!(5), &json!(0)), "{held}");
    last.answer.send(204).unwrap();
    until(&origin, &operator, "may", |send| send["due_ms"].is_null() && send["delivered"] == 5);
    assert_eq!(ids.len(), 1, "the same people, with the same id");
    let runs = place.json(&["job", "list"]).to_string();
    assert!(!runs.contains("failed"), "{runs}");
}

#[test]
fn a_silent_webhook_delays_no_other_tenants_send() {
    const WAIT: Duration = Duration::from_secs(60);
    let ([(port, calls), (other_port, other_calls)], hook) =
        ([webhook(), webhook()], |port| format!("webhook = \"http://127.0.0.1:{port}/sends\"\n"));
    let tenants = TENANTS.replacen("dev = true\n", &format!("dev = true\n{}", hook(port)), 1) + &hook(other_port);
    let place = Place::with(&tenants);
    for tenant in ["demo", "pub"] {
        place.json(&["keys", "rotate", "webhook", "--tenant", tenant]);
    }
    let origin = place.serve();
    let facts: Vec<Fact> = (0..40).map(|n| lives_in(n, "Bonn")).collect();
    origin.sync(&SyncRequest { facts: vec![batch("pub", &facts)], applied: vec![0], ..SyncRequest::default() });
    people(&place, &origin, 250);
    let operator = place.token("operator");
    let bearer = [("authorization", format!("Bearer {operator}"))];
    let put = json!({"filter": bonn(), "count": 30, "webhook": true}).to_string();
    let begun = origin.call("PUT", "/admin/v1/sends/may?tenant=pub", &bearer, put.as_bytes());
    assert_eq!(begun.status, 202, "{}", begun.text());
    let silent = other_calls.recv_timeout(WAIT).unwrap();

    // This send begins while the other webhook does not answer; both runs continue in parallel.
    let asked = std::time::Instant::now();
    origin.asked(&operator, "PUT", "sends/june", &json!({"filter": bonn(), "count": 230, "webhook": true}));
    for batch in [100, 100, 30] {
        let call = calls.recv_timeout(WAIT).unwrap();
        assert_eq!(call.people().len(), batch);
        call.answer.send(200).unwrap();
    }
    let send = until(&origin, &operator, "june", |send| send["due_ms"].is_null());
    assert_eq!((&send["delivered"], &send["error"]), (&json!(230), &Value::Null), "{send}");
    // The timeout of the silent webhook is thirty seconds: this send did not wait for it.
    assert!(asked.elapsed() < Duration::from_secs(25), "{:?}", asked.elapsed());

    silent.answer.send(200).unwrap();
    let send = within(SOON, "the delivery after the pause is recorded", || {
        let reply = origin.call("GET", "/admin/v1/sends/may?tenant=pub", &bearer, b"").json();
        once(reply, |send| send["due_ms"].is_null())
    });
    assert_eq!((&send["delivered"], &send["error"]), (&json!(30), &Value::Null), "{send}");
    assert!(other_calls.try_recv().is_err() && calls.try_recv().is_err(), "each once");
}

#[test]
fn a_send_is_started_stopped_and_read_by_the_admin_api_and_by_the_command() {
    let place = Place::new();
    let origin = place.serve();
    people(&place, &origin, 60);
    let (viewer, operator) = (place.token("viewer"), place.token("operator"));
    let filter = bonn().to_string();
    let start = |name: &str, more: &[&str]| {
        let command = ["audience", "send", "start", name, &filter, "--tenant", "demo", "--output", "json"];
        place.run(&[&command[..], more].concat())
    };
    let done = start("may", &["--count", "50"]);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(done.status.success() && report["delivered"] == 50 && report["chosen"] == 50, "{report}");
    let other = start("may", &["--count", "51"]);
    assert!(!other.status.success() && String::from_utf8_lossy(&other.stderr).contains("other terms"));
    let file = place.path().join("may.csv");
    let recipients = ["audience", "send", "recipients", "may", "--tenant", "demo"];
    place.run(&[&recipients[..], &["--form", "csv", "--to", file.to_str().unwrap()]].concat());
    let csv = std::fs::read_to_string(&file).unwrap();
    assert!(csv.starts_with("place,person,arm,at_ms,key\n0,") && csv.lines().count() == 51, "{csv}");

    // The recipients as lines from an index on, over HTTP and by the command.
    let some = origin.asked(&viewer, "GET", "sends/may/recipients?from=48", &Value::Null).text();
    let lines: Vec<Value> = some.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[1]["key"]), (2, &json!("demo/may/49")));
    let printed = place.run(&[&recipients[..], &["--from", "48"]].concat());
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), some);
    let listed = origin.asked(&viewer, "GET", "sends", &Value::Null).json();
    assert_eq!(listed["sends"].as_array().unwrap().len(), 1);

    // A slow send is stopped.
    let slow = json!({"filter": bonn(), "count": 60, "per_second": 1});
    assert_eq!(origin.asked(&viewer, "PUT", "sends/slow", &slow).status, 403);
    assert_eq!(origin.asked(&operator, "PUT", "sends/slow", &slow).status, 202);
    until(&origin, &viewer, "slow", |send| send["delivered"].as_u64() > Some(0));
    let stopped = origin.asked(&operator, "DELETE", "sends/slow", &Value::Null);
    assert_eq!((stopped.status, &stopped.json()["error"]), (200, &json!("stopped")), "{}", stopped.text());
    assert_eq!(origin.asked(&operator, "DELETE", "sends/slow", &Value::Null).code(), "over");
    let listed = place.json(&["audience", "send", "list", "--tenant", "demo"]);
    assert!(listed[1]["waits"].as_u64().unwrap() > 50, "{listed}");
    for (method, path, body, status, code) in [
        ("PUT", "sends/May", json!({"filter": {}, "count": 5}), 400, "bad_name"),
        ("PUT", "sends/a", json!({"filter": {}, "count": 0}), 400, "bad_count"),
        ("PUT", "sends/a", json!({"filter": {}, "count": 5, "per_second": 1_000_000}), 400, "bad_rate"),
        ("PUT", "sends/a", json!({"filter": {"attributes.none": 1}, "count": 5}), 400, "bad_filter"),
        ("PUT", "sends/a", json!({"filter": {}, "count": 5, "experiment": "e-1"}), 400, "unknown_experiment"),
        ("PUT", "sends/may", json!({"filter": {}, "count": 5}), 409, "other_terms"),
        ("DELETE", "sends/b", Value::Null, 404, "unknown_send"),
        ("GET", "sends/b/recipients", Value::Null, 404, "unknown_send"),
        ("GET", "sends/may/recipients?from=x", Value::Null, 400, "bad_place"),
    ] {
        let answer = origin.asked(&operator, method, path, &body);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{method} {path}: {}", answer.text());
    }
}
