//! A browser: a cookie jar, a network address, and the calls of a publisher's page.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// An HTTP answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub took: Duration,
}

impl Answer {
    /// The body as JSON; null if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    #[must_use]
    pub fn set_cookies(&self) -> Vec<&str> {
        self.headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value.as_str()).collect()
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// A TCF consent string that consents to every purpose that Causeway needs.
pub const CONSENTS: &str = "CPXxRfAPXxRfAAfKABENB-CgALAAAAAAAAYgAAAAAAAA";
/// A valid TCF consent string that consents to no purpose.
pub const CONSENTS_TO_NOTHING: &str = "CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA";

/// Sends one HTTP request with exactly these headers.
///
/// # Panics
/// If the server does not answer.
#[must_use]
pub fn call(method: &str, url: &str, headers: &[(String, String)], body: &[u8]) -> Answer {
    try_call(method, url, headers, body).unwrap_or_else(|e| panic!("{method} {url}: {e}"))
}

/// Like [`call`], but returns the error if the server does not answer.
///
/// # Errors
/// The reason for the missing answer.
pub fn try_call(method: &str, url: &str, headers: &[(String, String)], body: &[u8]) -> Result<Answer, ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        // Only this machine is called.
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(Duration::from_secs(30)))
        .build()
        .into();
    // Names under `localhost` mean this machine (RFC 6761 §6.3), but not every resolver knows that.
    let host = url.split('/').nth(2).unwrap_or_default();
    let dialled = match host.rsplit_once(':') {
        Some((name, port)) if name.ends_with(".localhost") => url.replacen(host, &format!("127.0.0.1:{port}"), 1),
        _ => url.to_owned(),
    };
    let mut request = ureq::http::Request::builder().method(method).uri(&dialled);
    if dialled != url {
        request = request.header("host", host);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let start = Instant::now();
    let mut response = agent.run(request.body(body).expect("a request"))?;
    let took = start.elapsed();
    let text = |value: &ureq::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Ok(Answer {
        status: response.status().as_u16(),
        headers: response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: response.body_mut().read_to_vec()?,
        took,
    })
}

/// One browser of one person.
#[derive(Debug, Clone)]
pub struct Browser {
    edge: String,
    jar: RefCell<BTreeMap<String, String>>,
    /// Headers sent with every request.
    pub headers: RefCell<Vec<(String, String)>>,
}

impl Browser {
    /// A browser without cookies on a separate client network.
    #[must_use]
    pub fn new(edge: &str, network: u32) -> Self {
        let [_, a, b, c] = network.to_be_bytes();
        let address = format!("{}.{a}.{b}.{c}", 11);
        let headers = vec![
            ("cf-connecting-ip".to_owned(), address),
            (
                "user-agent".to_owned(),
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0".to_owned(),
            ),
        ];
        Self { edge: edge.to_owned(), jar: RefCell::default(), headers: RefCell::new(headers) }
    }

    /// Adds a header to all later requests.
    pub fn send_header(&self, name: &str, value: &str) {
        self.headers.borrow_mut().push((name.to_owned(), value.to_owned()));
    }

    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.jar.borrow().get(name).cloned()
    }

    pub fn set_cookie(&self, name: &str, value: &str) {
        self.jar.borrow_mut().insert(name.to_owned(), value.to_owned());
    }

    /// All cookies, to be put back later, for example if a parallel answer overwrote them.
    #[must_use]
    pub fn cookies(&self) -> BTreeMap<String, String> {
        self.jar.borrow().clone()
    }

    pub fn put_back(&self, cookies: BTreeMap<String, String>) {
        *self.jar.borrow_mut() = cookies;
    }

    /// Sends a request with this browser's cookies and stores the cookies of the answer.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn send(&self, method: &str, path: &str, extra: &[(&str, &str)], body: &[u8]) -> Answer {
        self.try_send(method, path, extra, body).unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    /// Like [`Self::send`], but returns the error if the server does not answer.
    ///
    /// # Errors
    /// The reason for the missing answer.
    pub fn try_send(
        &self,
        method: &str,
        path: &str,
        extra: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, ureq::Error> {
        let mut headers = self.headers.borrow().clone();
        let cookies: Vec<String> = self.jar.borrow().iter().map(|(n, v)| format!("{n}={v}")).collect();
        if !cookies.is_empty() {
            headers.push(("cookie".to_owned(), cookies.join("; ")));
        }
        headers.extend(extra.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        let answer = try_call(method, &format!("{}{path}", self.edge), &headers, body)?;
        for line in answer.set_cookies() {
            let (pair, attributes) = line.split_once(';').unwrap_or((line, ""));
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if attributes.contains("Max-Age=0;") {
                self.jar.borrow_mut().remove(name);
            } else {
                self.set_cookie(name, value);
            }
        }
        Ok(answer)
    }

    /// `/v1/decide` with one placement; the fields of `over` replace the defaults.
    pub fn decide(&self, over: &Value) -> Answer {
        let mut body = json!({
            "placements": [{ "id": "top", "sizes": [[728, 90]], "view_type": "home", "floor_micros": 0 }],
            "page": { "url": "https://pub.example/hotels", "keywords": ["hotel"] },
        });
        if let (Some(body), Some(over)) = (body.as_object_mut(), over.as_object()) {
            body.extend(over.clone());
        }
        self.send("POST", "/v1/decide", &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// One page view without a login.
    pub fn view(&self) -> Value {
        self.ok(&json!({}))
    }

    /// One page view as a member with its proof.
    pub fn view_as(&self, member: &str, proof: &str) -> Value {
        self.ok(&json!({ "user": { "ids": { "member": member }, "proofs": { "member": proof } } }))
    }

    fn ok(&self, over: &Value) -> Value {
        let answer = self.decide(over);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// `/v1/events`.
    pub fn events(&self, events: &Value) -> Answer {
        self.send("POST", "/v1/events", &[("content-type", "application/json")], events.to_string().as_bytes())
    }

    /// Sends a purchase and checks that the edge acknowledged it.
    pub fn buy(&self, id: &str, value_micros: i64) {
        let event =
            json!([{ "type": "track", "id": id, "name": "purchase", "properties": { "value_micros": value_micros } }]);
        let answer = self.events(&event);
        assert_eq!((answer.status, answer.json()["accepted"].clone()), (202, json!(1)), "{:?}", answer.json());
    }

    /// `/v1/me`, with a proof or without.
    pub fn me(&self, proof: Option<&str>) -> Value {
        let extra: Vec<(&str, &str)> = proof.iter().map(|p| ("x-causeway-proof", *p)).collect();
        self.send("GET", "/v1/me", &extra, b"").json()
    }
}
