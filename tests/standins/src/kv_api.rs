//! The bulk part of the platform's KV REST API (Cloudflare API, "Workers KV Namespace", 2026): `PUT …/bulk`,
//! `POST …/bulk/delete`, and the properties of a namespace. Limits: 10,000 keys and 100 MB a call, 1,200 calls in five
//! minutes, one write of a key a second.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Deserialize;
use serde_json::json;

use crate::http::{self, HttpRequest};

/// Id of the account that the stand-in knows.
pub const ACCOUNT: &str = "0123456789abcdef0123456789abcdef";
/// Id of the namespace that the stand-in knows.
pub const NAMESPACE: &str = "fedcba9876543210fedcba9876543210";
/// The token that the stand-in accepts.
pub const TOKEN: &str = "stand-in-token-of-the-kv-api";

/// Most keys of a call.
const MOST_KEYS: usize = 10_000;
/// Largest body in bytes.
const BODY_BYTES: usize = 100_000_000;
/// Longest key in bytes.
const KEY_BYTES: usize = 512;
/// Longest value in bytes.
const VALUE_BYTES: usize = 25 << 20;
/// Most calls in [`CALLS_TIME`].
const MOST_CALLS: usize = 1_200;
const CALLS_TIME: Duration = Duration::from_secs(300);
/// Shortest time between two writes of a key.
const KEY_PAUSE: Duration = Duration::from_secs(1);

/// A failure of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// Status 429 with a delay in seconds; nothing is written.
    Busy(u64),
    /// The first keys of the call are not written, and the answer names them.
    Partial(usize),
    /// The answer comes after a time.
    Slow(Duration),
    /// The connection breaks before anything is written.
    LostBefore,
    /// The connection breaks after everything was written.
    LostAfter,
    /// Another status; nothing is written.
    Status(u16),
}

/// Number of calls and keys so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCounts {
    /// Bulk calls, including failed ones.
    pub calls: u64,
    /// Keys written.
    pub written: u64,
    /// Keys deleted.
    pub deleted: u64,
    /// Keys refused because they were written less than a second before.
    pub too_soon: u64,
    /// Calls refused because of the number of calls.
    pub too_many: u64,
}

#[derive(Debug, Default)]
struct ApiState {
    values: HashMap<String, (Option<String>, Instant)>,
    faults: VecDeque<CallFault>,
    calls: VecDeque<Instant>,
    counts: CallCounts,
}

/// The running service.
#[derive(Debug, Clone)]
pub struct KvApi {
    address: SocketAddr,
    state: Arc<Mutex<ApiState>>,
}

/// A pair of a call.
#[derive(Deserialize)]
struct KvPair<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

impl KvApi {
    /// Starts the service.
    ///
    /// # Errors
    /// No port is free.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let api = Self { address: listener.local_addr()?, state: Arc::default() };
        let service = api.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let service = service.clone();
                std::thread::spawn(move || service.serve(stream));
            }
        });
        Ok(api)
    }

    /// Base address, as the configuration names it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/client/v4", self.address)
    }

    /// Lets the next calls fail, one for each fault.
    pub fn fail_next(&self, faults: impl IntoIterator<Item = CallFault>) {
        self.state().faults.extend(faults);
    }

    /// Number of faults that no call has met yet.
    #[must_use]
    pub fn faults_left(&self) -> usize {
        self.state().faults.len()
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> CallCounts {
        self.state().counts
    }

    /// All keys with a value.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, String> {
        let state = self.state();
        state.values.iter().filter_map(|(key, (value, _))| Some((key.clone(), value.clone()?))).collect()
    }

    fn state(&self) -> MutexGuard<'_, ApiState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::with_capacity(256 * 1024, stream);
        while let Some(request) = http::read_request(&mut stream, BODY_BYTES)? {
            let Some(ApiAnswer { status, headers, json }) = self.answer(&request) else { return Ok(()) };
            http::write_answer(stream.get_mut(), status, &headers, &json)?;
        }
        Ok(())
    }

    /// The answer to a request; `None` if the connection breaks.
    fn answer(&self, request: &HttpRequest) -> Option<ApiAnswer> {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return Some(ApiAnswer::error(403, "Authentication error"));
        }
        let base = format!("/client/v4/accounts/{ACCOUNT}/storage/kv/namespaces/{NAMESPACE}");
        match (request.method.as_str(), request.target.strip_prefix(&base)) {
            ("GET", Some("")) => Some(ApiAnswer::success(json!({ "id": NAMESPACE, "title": "profiles" }))),
            ("PUT", Some("/bulk")) => self.call(|state, refused| state.put(&request.body, refused)),
            ("POST", Some("/bulk/delete")) => self.call(|state, refused| state.delete(&request.body, refused)),
            _ => Some(ApiAnswer::error(404, "namespace not found")),
        }
    }

    fn call(&self, run: impl FnOnce(&mut ApiState, usize) -> ApiAnswer) -> Option<ApiAnswer> {
        let fault = {
            let mut state = self.state();
            state.counts.calls += 1;
            let now = Instant::now();
            while state.calls.front().is_some_and(|at| now - *at > CALLS_TIME) {
                state.calls.pop_front();
            }
            if state.calls.len() >= MOST_CALLS {
                state.counts.too_many += 1;
                return Some(ApiAnswer::busy(10));
            }
            state.calls.push_back(now);
            state.faults.pop_front()
        };
        match fault {
            Some(CallFault::Busy(seconds)) => return Some(ApiAnswer::busy(seconds)),
            Some(CallFault::Status(status)) => return Some(ApiAnswer::error(status, "a failure on demand")),
            Some(CallFault::LostBefore) => return None,
            Some(CallFault::Slow(time)) => std::thread::sleep(time),
            Some(CallFault::Partial(_) | CallFault::LostAfter) | None => {}
        }
        let refused = if let Some(CallFault::Partial(keys)) = fault { keys } else { 0 };
        let answer = run(&mut self.state(), refused);
        (fault != Some(CallFault::LostAfter)).then_some(answer)
    }
}

impl ApiState {
    fn put(&mut self, body: &[u8], refused: usize) -> ApiAnswer {
        let Ok(pairs) = serde_json::from_slice::<Vec<KvPair<'_>>>(body) else {
            return ApiAnswer::error(400, "the body is not an array of pairs");
        };
        let is_long = |pair: &KvPair<'_>| pair.key.len() > KEY_BYTES || pair.value.len() > VALUE_BYTES;
        if pairs.len() > MOST_KEYS || pairs.iter().any(is_long) {
            return ApiAnswer::error(400, "too many pairs, or a pair is too long");
        }
        let pairs = pairs.into_iter().map(|KvPair { key, value }| (key.into_owned(), Some(value.into_owned())));
        self.write(pairs, refused)
    }

    fn delete(&mut self, body: &[u8], refused: usize) -> ApiAnswer {
        match serde_json::from_slice::<Vec<String>>(body) {
            Ok(keys) if keys.len() <= MOST_KEYS => self.write(keys.into_iter().map(|key| (key, None)), refused),
            _ => ApiAnswer::error(400, "the body is not an array of at most 10,000 keys"),
        }
    }

    fn write(&mut self, pairs: impl Iterator<Item = (String, Option<String>)>, refused: usize) -> ApiAnswer {
        let (now, mut unsuccessful, mut successful) = (Instant::now(), Vec::new(), 0);
        for (index, (key, value)) in pairs.enumerate() {
            let is_soon = self.values.get(&key).is_some_and(|(_, at)| now - *at < KEY_PAUSE);
            self.counts.too_soon += u64::from(is_soon);
            if is_soon || index < refused {
                unsuccessful.push(key);
                continue;
            }
            successful += 1;
            *if value.is_some() { &mut self.counts.written } else { &mut self.counts.deleted } += 1;
            self.values.insert(key, (value, now));
        }
        ApiAnswer::success(json!({ "successful_key_count": successful, "unsuccessful_keys": unsuccessful }))
    }
}

/// An answer of the service.
struct ApiAnswer {
    status: u16,
    headers: String,
    json: String,
}

impl ApiAnswer {
    fn success(result: serde_json::Value) -> Self {
        let json = json!({ "success": true, "errors": [], "messages": [], "result": result }).to_string();
        Self { status: 200, headers: String::new(), json }
    }

    fn error(status: u16, message: &str) -> Self {
        let json = json!({ "success": false, "errors": [{ "code": status, "message": message }], "result": null });
        Self { status, headers: String::new(), json: json.to_string() }
    }

    fn busy(seconds: u64) -> Self {
        let headers = format!("retry-after: {seconds}\r\n");
        Self { headers, ..Self::error(429, "too many requests") }
    }
}
