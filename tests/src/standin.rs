//! A stand-in for the services that the worker's bindings call in plain workerd: the KV, the queues and the origin over
//! HTTP, with faults on demand. It records the requests that it gets. Its queue delivers nothing on its own: a test
//! takes the messages and passes them to [`crate::bare::Bare::deliver`].

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::fact::Fact;
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::sync::{self, SyncRequest, SyncResponse};
use serde_json::{Value, json};

use crate::hostile::Hostile;

/// How the KV answers reads.
#[derive(Debug, Clone, Default)]
pub enum Reads {
    #[default]
    Well,
    /// Each read after this time.
    Late(Duration),
    /// Each read of one key after this time.
    LateOf(String, Duration),
    /// Each read after a time up to this one, which depends on its keys.
    Varying(Duration),
    /// Each read with 503.
    Failing,
    /// Each key of people with this value.
    Garbage(String),
    /// Each key of people as absent, like a cached miss.
    Missing,
}

/// The state of the stand-in, and the requests that it got.
#[derive(Debug, Default)]
pub struct Held {
    pub kv: BTreeMap<String, String>,
    pub reads: Reads,
    /// A writable KV with faults, which replaces `kv` and `reads`.
    pub hostile: Option<Hostile>,
    /// The keys of people in each read; catalogue keys, which are read in parallel, are left out.
    pub asked: Vec<Vec<String>>,
    /// Time that a queue takes to accept a call.
    pub queue_takes: Duration,
    /// Number of queue calls in progress.
    pub queue_waiting: u64,
    /// Whether the queues refuse; `origin_refuses` does the same for the origin.
    pub queue_refuses: bool,
    pub origin_refuses: bool,
    /// Number of KV writes.
    pub writes: u64,
    /// Number of queue calls.
    pub queue_calls: u64,
    /// Batches that the facts queue accepted.
    pub queued: Vec<FactBatch>,
    /// The same batches as bytes, until a test takes them to deliver them.
    pub messages: Vec<Vec<u8>>,
    /// Whether the publish consumer was triggered.
    pub woken: bool,
    /// Syncs that the origin accepted, with their headers.
    pub synced: Vec<(SyncRequest, BTreeMap<String, String>)>,
}

/// A running stand-in.
#[derive(Debug)]
pub struct StandIn {
    pub address: String,
    shared: Arc<(Mutex<Held>, Condvar)>,
    closing: Arc<AtomicBool>,
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl StandIn {
    /// Starts a stand-in on a free loopback port.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared: Arc<(Mutex<Held>, Condvar)> = Arc::default();
        let closing = Arc::new(AtomicBool::new(false));
        let (held, close) = (Arc::clone(&shared), Arc::clone(&closing));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if close.load(Ordering::Relaxed) {
                    return;
                }
                let held = Arc::clone(&held);
                std::thread::spawn(move || stream.map(|stream| serve(stream, &held)));
            }
        });
        Self { address, shared, closing }
    }

    /// Clears the state and ends all faults.
    pub fn reset(&self) {
        *self.held() = Held::default();
    }

    /// The state, for reading and changing.
    pub fn held(&self) -> MutexGuard<'_, Held> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `condition` returns a value, for at most 30 seconds.
    pub fn wait<T>(&self, what: &str, mut condition: impl FnMut(&mut Held) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(30);
        let mut held = self.held();
        loop {
            if let Some(value) = condition(&mut held) {
                return value;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "after 30 seconds this still does not hold: {what}");
            held = self.shared.1.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Held {
    /// The facts of one visitor that the queue accepted.
    #[must_use]
    pub fn facts_of(&self, visitor: VisitorId) -> Vec<Fact> {
        self.queued.iter().flat_map(|batch| &batch.facts).filter(|fact| fact.visitor == visitor).cloned().collect()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

fn serve(stream: TcpStream, shared: &(Mutex<Held>, Condvar)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(request) = read(&mut reader) {
        let (status, body) = answer(&request, shared);
        shared.1.notify_all();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n", body.len());
        if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(&body)).is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|t| t.contains("chunked")) {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        body = vec![0; headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
    }
    Some(Request { method, path, headers, body })
}

fn answer(request: &Request, shared: &(Mutex<Held>, Condvar)) -> (u16, Vec<u8>) {
    let path = request.path.split('?').next().unwrap_or_default();
    match (request.method.as_str(), path) {
        ("POST", "/message") => take_messages(shared, std::iter::once(request.body.clone())),
        ("POST", "/batch") => {
            let batch: Value = serde_json::from_slice(&request.body).unwrap();
            let bodies = batch["messages"].as_array().unwrap().iter().map(|message| message["body"].as_str().unwrap());
            take_messages(shared, bodies.map(|body| BASE64_STANDARD.decode(body).unwrap()))
        }
        ("POST", "/v1/sync") => take_sync(request, &mut shared.0.lock().unwrap_or_else(PoisonError::into_inner)),
        ("POST", "/bulk/get") => {
            let asked: Value = serde_json::from_slice(&request.body).unwrap();
            let keys = asked["keys"].as_array().unwrap().iter().map(|k| k.as_str().unwrap().to_owned()).collect();
            match lookup(keys, shared) {
                Err(status) => (status, Vec::new()),
                Ok(found) => (200, json!(found).to_string().into_bytes()),
            }
        }
        ("GET", key) => match lookup(vec![unescape(key.trim_start_matches('/'))], shared) {
            Err(status) => (status, Vec::new()),
            Ok(found) => match found.into_values().next().flatten() {
                Some(value) => (200, value.into_bytes()),
                None => (404, Vec::new()),
            },
        },
        (method, key) => {
            let mut held = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            held.writes += 1;
            let value = (method == "PUT").then(|| String::from_utf8(request.body.clone()).unwrap());
            let status = held.hostile.as_mut().map(|kv| kv.write(unescape(key.trim_start_matches('/')), value));
            (status.unwrap_or(405), Vec::new())
        }
    }
}

fn lookup(keys: Vec<String>, shared: &(Mutex<Held>, Condvar)) -> Result<BTreeMap<String, Option<String>>, u16> {
    let mut held = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let of_people: Vec<String> = keys.iter().filter(|key| !is_of_catalogue(key)).cloned().collect();
    held.asked.extend((!of_people.is_empty()).then_some(of_people));
    if let Some(kv) = &mut held.hostile {
        return kv.read(keys);
    }
    let reads = held.reads.clone();
    let value = |held: &Held, key: &String| match &reads {
        Reads::Garbage(value) if !is_of_catalogue(key) => Some(value.clone()),
        Reads::Missing if !is_of_catalogue(key) => None,
        _ => held.kv.get(key).cloned(),
    };
    let found = keys.iter().map(|key| (key.clone(), value(&held, key))).collect();
    drop(held);
    match reads {
        Reads::Failing => Err(503),
        Reads::Late(by) => Ok(after(by, found)),
        Reads::LateOf(key, by) if keys.contains(&key) => Ok(after(by, found)),
        Reads::Varying(limit) => {
            let share = crc32fast::hash(keys.concat().as_bytes()) % 1_000;
            Ok(after(limit * share / 1_000, found))
        }
        _ => Ok(found),
    }
}

fn after<T>(by: Duration, found: T) -> T {
    std::thread::park_timeout(by);
    found
}

/// Whether every isolate reads the key regularly, or the key is a catalogue version.
fn is_of_catalogue(key: &str) -> bool {
    let last = key.rsplit(':').next().unwrap_or_default();
    key.starts_with("c:")
        && !key.contains(":attributes:")
        && (matches!(last, "current" | "model" | "allocation") || last.parse::<u32>().is_ok())
}

fn take_messages(shared: &(Mutex<Held>, Condvar), bodies: impl Iterator<Item = Vec<u8>>) -> (u16, Vec<u8>) {
    let takes = {
        let mut held = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.queue_waiting += 1;
        held.queue_takes
    };
    shared.1.notify_all();
    let mut held = after(takes, shared).0.lock().unwrap_or_else(PoisonError::into_inner);
    // A test may have reset the stand-in meanwhile.
    held.queue_waiting = held.queue_waiting.saturating_sub(1);
    held.queue_calls += 1;
    if held.queue_refuses {
        return (503, Vec::new());
    }
    for body in bodies {
        if let Ok(batch) = facts::decode_batch(&body) {
            held.queued.push(batch);
            held.messages.push(body);
        } else {
            held.woken = true;
        }
    }
    (200, json!({ "metadata": { "metrics": { "backlogCount": 0, "backlogBytes": 0 } } }).to_string().into_bytes())
}

fn take_sync(request: &Request, held: &mut Held) -> (u16, Vec<u8>) {
    if held.origin_refuses {
        return (503, Vec::new());
    }
    let Ok(sync) = sync::decode_request(&request.body) else { return (400, Vec::new()) };
    let accepted = sync.facts.len() as u64;
    held.synced.push((sync, request.headers.clone()));
    (200, sync::encode_response(&SyncResponse { accepted, ..SyncResponse::default() }))
}

fn unescape(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [a, b, after @ ..]) => {
                let hex = [*a, *b];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).unwrap()
}
