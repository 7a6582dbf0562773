//! Starting, stopping and calling a real origin.

use std::fmt::Display;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use causeway_shared::base::ids::{
    AltHash, AlternateId, FactId, InsertionId, KindCode, Micros, Millis, SessionId, VisitorId,
};
use causeway_shared::facts::actions::{ActionType, AdEntity, ViewType};
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::keys::key_ring::{KeySet, KeyStage};
use causeway_shared::keys::sync_auth::{self, KEY_HEADER, MAC_HEADER, TIME_HEADER};
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::sync::{SyncRequest, SyncResponse, decode_response, encode_request};
use serde_json::Value;

pub(crate) const TENANTS: &str = r#"
[[tenant]]
name = "demo"
hosts = ["localhost"]
dev = true
kinds = [{ name = "member", code = 1, unique = true }, { name = "partner", code = 2 }]

[[tenant]]
name = "pub"
hosts = ["ads.pub.example"]
"#;

pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Millis::try_from(since.as_millis()).unwrap()
}

/// Number of cases of a test, short and long: the long one if the variable `CAUSEWAY_LONG` is set, as
/// `cargo xtask test full` does.
pub(crate) fn cases([short, long]: [u64; 2]) -> u64 {
    if std::env::var_os("CAUSEWAY_LONG").is_some() { long } else { short }
}

/// Variable that leaves out the tests that need Python or Spark.
const NO_SPARK: &str = "CAUSEWAY_NO_SPARK";
/// Variable that lets these tests fail where they cannot run; `cargo xtask test` sets it where Java and Python are
/// there.
const DEMAND_SPARK: &str = "CAUSEWAY_DEMAND_SPARK";

/// The longest wait for an effect without a request.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Repeats `condition` until it returns a value. Panics after `limit`, with `what` and the last error.
pub(crate) fn within<T, E: Display>(limit: Duration, what: &str, mut condition: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + limit;
    loop {
        match condition() {
            Ok(value) => return value,
            Err(last) => assert!(Instant::now() < end, "not within {limit:?}: {what}: {last}"),
        }
        // No longer pause, because some tests must act between two short steps of the origin.
        std::thread::yield_now();
    }
}

/// `Ok` with a value that fulfils the condition, otherwise `Err` with it, for [`within`].
pub(crate) fn once<T>(found: T, is_so: impl Fn(&T) -> bool) -> Result<T, T> {
    if is_so(&found) { Ok(found) } else { Err(found) }
}

/// A folder with a configuration and keys.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(TENANTS)
    }

    pub(crate) fn with(tenants: &str) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let settings = "listen = \"127.0.0.1:0\"\nsibling_publish_s = 1\n";
        std::fs::write(place.config(), format!("{settings}{tenants}")).unwrap();
        place.json(&["keys", "init"]);
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("causeway.toml")
    }

    pub(crate) fn keys(&self) -> KeySet {
        causeway_origin::base::key_file::load_keys(&self.path().join("keys.json")).unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.arg("--config").arg(self.config()).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed; returns its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn token(&self, role: &str) -> String {
        let token = self.json(&["token", "create", "--role", role, "--all-tenants"]);
        token["token"].as_str().unwrap().to_owned()
    }

    /// Starts the origin and waits until it is ready.
    pub(crate) fn serve(&self) -> Origin {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path().join("log")).unwrap();
        self.serve_with_log("debug", log)
    }

    /// Starts the origin with this log level, its log on `stderr`, and waits until it is ready.
    pub(crate) fn serve_with_log(&self, level: &str, stderr: impl Into<Stdio>) -> Origin {
        self.serve_with_output(level, Stdio::null(), stderr)
    }

    /// Like [`Self::serve_with_log`], with a standard output.
    pub(crate) fn serve_with_output(&self, level: &str, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Origin {
        let ready = self.path().join("ready.json");
        drop(std::fs::remove_file(&ready));
        let mut command = self.command(&["serve", "--ready-file"]);
        command.arg(&ready).env("CAUSEWAY_LOG", level).stdout(stdout).stderr(stderr);
        let keys = self.keys();
        // `Origin` kills the process when it is dropped, even if it never becomes ready.
        let mut origin = Origin { child: command.spawn().unwrap(), address: String::new(), keys };
        within(SOON, "the origin is ready", || {
            assert!(origin.child.try_wait().unwrap().is_none(), "the origin ended: {}", self.log());
            ready.exists().then_some(()).ok_or_else(|| self.log())
        });
        let announced: Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();
        announced["url"].as_str().unwrap().strip_prefix("http://").unwrap().clone_into(&mut origin.address);
        origin
    }

    /// Makes the job of activity histograms due in two seconds, in a store that no origin serves. Returns its last run,
    /// for [`Self::looked`].
    pub(crate) fn activity_due(&self) -> i64 {
        const RAN: &str = "INSERT INTO runs (job, trigger, dry_run, requested, started, ended, outcome)
            VALUES ('activity', 'timer', 0, ?1, ?1, ?1, 'done')";
        let store = rusqlite::Connection::open(self.path().join("data/causeway.db")).unwrap();
        store.execute(RAN, [i64::try_from(now() - 24 * 3_600_000 + 2_000).unwrap()]).unwrap();
        store.last_insert_rowid()
    }

    /// Waits until the job of activity histograms has run again. Jobs that were due before it have also run,
    /// because the runner begins the oldest due job first.
    pub(crate) fn looked(&self, before: i64) {
        within(SOON, "the job of activity histograms ran again", || {
            let last = self.json(&["job", "list", "--job", "activity"])[0].clone();
            once(last, |last| last["run"].as_i64() > Some(before) && last["outcome"] == "done")
        });
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// The output of `causeway inspect visitor`.
    pub(crate) fn inspect(&self, visitor: VisitorId) -> Value {
        self.json(&["inspect", "visitor", &visitor.to_string(), "--tenant", "demo"])
    }
}

/// A running origin; killed when dropped.
pub(crate) struct Origin {
    child: Child,
    pub(crate) address: String,
    pub(crate) keys: KeySet,
}

/// The HTTP answer of an origin.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| unreachable!("not JSON: {self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

impl Origin {
    /// Sends a request; `None` if the connection failed before the complete answer.
    pub(crate) fn try_call(&self, method: &str, path: &str, headers: &[(&str, String)], body: &[u8]) -> Option<Answer> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        self.try_bytes(method, path, &headers, body)
    }

    /// Like [`Self::try_call`], with headers that may be no text.
    pub(crate) fn try_bytes(&self, method: &str, path: &str, headers: &[(&str, &[u8])], body: &[u8]) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: origin\r\nconnection: close\r\n").into_bytes();
        for (name, value) in headers {
            head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        let is_chunked = headers.iter().any(|(name, _)| *name == "transfer-encoding");
        let length = if is_chunked { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        head.extend([length.as_bytes(), b"\r\n"].concat());
        stream.write_all(&head).ok()?;
        // An origin that refuses early does not read the rest.
        if is_chunked {
            drop(stream.write_all(&[format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat()));
        } else {
            drop(stream.write_all(body));
        }
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes));
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let body = bytes[end + 4..].to_vec();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
        if length.is_some_and(|length: usize| length != body.len()) {
            return None;
        }
        let body = if head.contains("transfer-encoding: chunked") { unchunked(&body)? } else { body };
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head, body })
    }

    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, String)], body: &[u8]) -> Answer {
        self.try_call(method, path, headers, body).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], b"")
    }

    pub(crate) fn admin(&self, token: &str, path: &str) -> Answer {
        self.call("GET", &format!("/admin/v1/{path}"), &[("authorization", format!("Bearer {token}"))], b"")
    }

    /// A call of the admin API for the tenant `demo`.
    pub(crate) fn asked(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = [("authorization", format!("Bearer {token}"))];
        let both = if path.contains('?') { '&' } else { '?' };
        self.call(method, &format!("/admin/v1/{path}{both}tenant=demo"), &bearer, body.to_string().as_bytes())
    }

    /// Waits until a run of a job has ended; returns the run.
    pub(crate) fn ended(&self, token: &str, no: &Value) -> Value {
        within(SOON, "the run has ended", || {
            once(self.admin(token, &format!("jobs/{no}")).json(), |run| !run["outcome"].is_null())
        })
    }

    /// The three headers that sign a body.
    pub(crate) fn signed(&self, time: Millis, body: &[u8]) -> Vec<(&'static str, String)> {
        let key = self.keys.sync.0.iter().find(|k| k.stage == KeyStage::Active).unwrap();
        let mac = sync_auth::sign_sync(key, time, body);
        vec![(KEY_HEADER, key.id.to_string()), (TIME_HEADER, time.to_string()), (MAC_HEADER, mac)]
    }

    pub(crate) fn post_signed(&self, body: &[u8]) -> Answer {
        self.call("POST", "/v1/sync", &self.signed(now(), body), body)
    }

    pub(crate) fn try_sync(&self, request: &SyncRequest) -> Option<SyncResponse> {
        let body = encode_request(request);
        let answer = self.try_call("POST", "/v1/sync", &self.signed(now(), &body), &body)?;
        (answer.status == 200).then(|| decode_response(&answer.body).unwrap())
    }

    pub(crate) fn sync(&self, request: &SyncRequest) -> SyncResponse {
        self.try_sync(request).unwrap()
    }

    /// Sends facts and waits until they are folded, because a sync that drains the outbox waits for earlier facts.
    pub(crate) fn send(&self, facts: &[Fact]) -> SyncResponse {
        self.sync(&SyncRequest { applied: vec![0], ..request(facts) })
    }

    pub(crate) fn member(&self, value: &str) -> AlternateId {
        let kind = KindCode(1);
        let hash: AltHash = self.keys.tenants["demo"].alternate.hash_alternate(kind, value)[0];
        AlternateId { kind, hash }
    }

    pub(crate) fn login(&self, visitor: VisitorId, n: u32, member: &str) -> Fact {
        let id = self.member(member);
        fact(visitor, n, FactKind::Alias { id, also: Vec::new(), proven: true })
    }

    /// One value of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> String {
        let page = self.get("/metrics").text();
        let line = page.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| unreachable!("no {name} in\n{page}")).to_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Limits the number of open files of the process, sockets included.
    pub(crate) fn limit_open_files(&self, files: u64) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let limit = rustix::process::Rlimit { current: Some(files), maximum: Some(files) };
        rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).unwrap();
    }

    /// Limits the size in bytes of each file that the process writes; `None` lifts the limit.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let limit = rustix::process::Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    }

    /// Waits for the end; returns the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Stops the origin as an operator does, with `SIGTERM`.
    pub(crate) fn stop(mut self) {
        self.signal("-TERM");
        assert_eq!(self.wait(), Some(0));
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Decodes a chunked body (RFC 9112, 7.1); `None` if its end is missing.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        let chunk = rest.get(end + 2..end + 2 + length)?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunk);
        rest = rest.get(end + 2 + length + 2..)?;
    }
}

pub(crate) fn batch(tenant: &str, facts: &[Fact]) -> Vec<u8> {
    facts::encode_batch(&FactBatch { tenant: tenant.parse().unwrap(), facts: facts.to_vec() })
}

pub(crate) fn request(facts: &[Fact]) -> SyncRequest {
    SyncRequest { edge: "test".to_owned(), facts: vec![batch("demo", facts)], ..SyncRequest::default() }
}

pub(crate) fn visitor(n: u32) -> VisitorId {
    let [a, b, c, d] = n.to_be_bytes();
    VisitorId::mint(1_790_000_000_000 + u64::from(n), [0, 0, 0, 0, 0, 0, a, b, c, d])
}

/// A fact received a second ago; the same visitor and number name the same fact.
pub(crate) fn fact(visitor: VisitorId, n: u32, what: FactKind) -> Fact {
    let received = now() - 1_000;
    Fact { position: 0, id: FactId::of_message(visitor, &n.to_string()), visitor, received, at: received, what }
}

pub(crate) fn page(visitor: VisitorId, n: u32) -> Fact {
    fact(visitor, n, FactKind::Page { session: SessionId(7) })
}

pub(crate) fn purchase(visitor: VisitorId, n: u32, micros: i64) -> Fact {
    let value = Some(Micros::new(micros));
    let what = FactKind::Track { name: PURCHASE.to_owned(), value, properties: None, order: None };
    fact(visitor, n, what)
}

/// An impression of the `n`th insertion, of ad 4.
pub(crate) fn impression(visitor: VisitorId, n: u32) -> Fact {
    let insertion = InsertionId(u128::from(n).to_be_bytes());
    let entity = AdEntity { ad: 4, ad_group: 3, campaign: 2, advertiser: 1 };
    let what = FactKind::Action { insertion, action_type: ActionType::IMPRESSION, view_type: ViewType(1), entity };
    Fact { id: FactId::of_message(visitor, &format!("impression {n}")), ..fact(visitor, n, what) }
}

/// A connection that holds a file's write lock until it is dropped.
pub(crate) fn hold(place: &Place, file: &str) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(place.path().join("data").join(file)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

/// A Python with these packages, in a folder of this name below the target folder. `None` where the test is left out:
/// the user asked for it, or a program or a package cannot be had and [`DEMAND_SPARK`] is not set. The reason goes to
/// standard error.
pub(crate) fn python_with(name: &str, packages: &[&str], programs: &[&str]) -> Option<PathBuf> {
    let result = if std::env::var_os(NO_SPARK).is_some() {
        Err(format!("{NO_SPARK} is set"))
    } else {
        let missing = programs.iter().find(|program| !succeeds(Command::new(program).arg("-version")));
        missing.map_or_else(|| make_python(name, packages), |program| Err(format!("there is no {program}")))
    };
    if let Err(reason) = &result {
        let is_demanded = std::env::var_os(DEMAND_SPARK).is_some() && std::env::var_os(NO_SPARK).is_none();
        assert!(!is_demanded, "{reason}; {NO_SPARK}=1 leaves out the tests that need {name}");
        // The test's own output is shown only if the test fails.
        let line = format!("LEFT OUT: a test that needs {name}: {reason}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    result.ok()
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Makes the Python unless it is there. The error says which command failed.
fn make_python(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(name);
    let (python, stamp) = (folder.join("bin/python"), folder.join("stamp"));
    if std::fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == packages.join(" ")) {
        return Ok(python);
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet"]).args(packages);
    for command in [Command::new("python3").args(["-m", "venv"]).arg(&folder), &mut install] {
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
    }
    std::fs::write(&stamp, packages.join(" ")).unwrap();
    Ok(python)
}
