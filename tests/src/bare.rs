//! The worker in bare workerd, with a [`StandIn`] behind its bindings: for faults that no local platform plays.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use causeway_shared::attributes::Dictionary;
use causeway_shared::catalogue::Catalogue;
use causeway_shared::config::EdgeConfig;
use causeway_shared::identity::IdentityCookie;
use causeway_shared::ids::{Millis, TenantId, Version, VisitorId};
use causeway_shared::keys::{Key, KeyRing, Keys, ProofAlg, ProofKey, Stage, TenantKeys};
use causeway_shared::vocabulary::Vocabulary;
use causeway_shared::{cookie, kv, proof, wire};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::Process;
use crate::browser::Browser;
use crate::standin::StandIn;

/// A running worker. Dropped, it is ended and its folder removed.
#[derive(Debug)]
pub struct Bare {
    pub edge: String,
    queues: String,
    pub standin: StandIn,
    pub keys: Keys,
    _workerd: Process,
    networks: AtomicU32,
    _folder: TempDir,
}

impl Bare {
    /// Starts one; the tenant is `demo` on every loopback name, and silence means consent.
    ///
    /// # Panics
    /// When workerd does not say where it listens.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts one whose tenant has no keys.
    ///
    /// # Panics
    /// When workerd does not say where it listens.
    #[must_use]
    pub fn misconfigured() -> Self {
        Self::started(None, Keys { tenants: [].into(), ..keys() }, "allow")
    }

    /// The same as [`Self::start`], but silence means refusal.
    ///
    /// # Panics
    /// When workerd does not say where it listens.
    #[must_use]
    pub fn denying() -> Self {
        Self::started(None, keys(), "deny")
    }

    /// Starts one whose KV holds a catalogue of these ads.
    ///
    /// # Panics
    /// When workerd does not say where it listens.
    #[must_use]
    pub fn with(ads: &serde_json::Value) -> Self {
        let bare = Self::start();
        bare.standin.held().kv.extend(catalogue(1, ads));
        bare
    }

    /// The same as [`Self::start`] with a real origin at this address.
    ///
    /// # Panics
    /// When workerd does not say where it listens.
    #[must_use]
    pub fn start_with(origin: Option<&str>) -> Self {
        Self::started(origin, keys(), "allow")
    }

    fn started(origin: Option<&str>, keys: Keys, no_signal: &str) -> Self {
        let standin = StandIn::start();
        let origin = origin.map_or_else(|| format!("http://{}", standin.address), str::to_owned);
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.capnp");
        let objects = folder.path().join("objects");
        std::fs::create_dir(&objects).unwrap();
        std::fs::write(&config, capnp(&standin.address, &origin, &keys, &objects, no_signal)).unwrap();
        let mut workerd = Command::new(std::env::var("CAUSEWAY_WORKERD").expect("run through `cargo xtask test e2e`"))
            .args(["serve", "--experimental", "--control-fd=1"])
            .arg(&config)
            .arg(format!("--import-path={}", bundle().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(workerd.stdout.take().unwrap()).lines();
        let workerd = Process::new(workerd, Signal::KILL);
        let mut port = || {
            lines.by_ref().find_map(|line| {
                let told: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
                told["port"].as_u64().map(|port| (told["socket"] == "http", port))
            })
        };
        let mut ports: Vec<(bool, u64)> = [port(), port()].into_iter().flatten().collect();
        ports.sort_unstable();
        let [(_, queues), (_, edge)] = ports[..] else { panic!("workerd tells its ports: {ports:?}") };
        // The worker's log goes to the same pipe: it is read to its end, so that it never fills.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("edge: {line}")));
        let [edge, queues] = [edge, queues].map(|port| format!("http://localhost:{port}"));
        Self { edge, queues, standin, keys, _workerd: workerd, networks: AtomicU32::new(1), _folder: folder }
    }

    /// A browser without cookies on a client network of its own.
    #[must_use]
    pub fn browser(&self) -> Browser {
        Browser::new(&self.edge, self.networks.fetch_add(1, Ordering::Relaxed) << 8)
    }

    /// A browser with an identity cookie, an hour old, and its visitor.
    #[must_use]
    pub fn returning(&self) -> (Browser, VisitorId) {
        let number = self.networks.fetch_add(1, Ordering::Relaxed);
        let browser = Browser::new(&self.edge, number << 8);
        let [_, a, b, c] = number.to_be_bytes();
        let visitor = VisitorId::mint(now() - 3_600_000, [a, b, c, 0, 0, 0, 0, 0, 0, 0]);
        let cookie = IdentityCookie {
            visitor,
            written: now() - 3_600_000,
            tag: None,
            covered: Vec::new(),
            earlier: Vec::new(),
            pending: Vec::new(),
            login: None,
        };
        let ring = &self.keys.tenants["demo"].cookie;
        let payload = wire::cookies::encode_identity(&cookie);
        browser.set_cookie(cookie::IDENTITY, &cookie::seal(ring, cookie::IDENTITY, &tenant(), &payload).unwrap());
        (browser, visitor)
    }

    /// Hands messages to the worker as the platform's queue does, each with how often it was handed out (1 at least);
    /// gives the places of those that are to come again.
    pub fn deliver(&self, queue: &str, messages: &[(u32, Vec<u8>)]) -> Vec<usize> {
        let told = self.handed(queue, messages);
        if told["outcome"] != "ok" || told["retryBatch"]["retry"] == true {
            return (0..messages.len()).collect();
        }
        let again = told["retryMessages"].as_array().cloned().unwrap_or_default();
        again.iter().map(|m| m["msgId"].as_str().unwrap().parse().unwrap()).collect()
    }

    /// The same, and what the platform is told.
    #[must_use]
    pub fn handed(&self, queue: &str, messages: &[(u32, Vec<u8>)]) -> serde_json::Value {
        use base64::Engine as _;
        let body = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let message = |(n, (attempts, bytes)): (usize, &(u32, Vec<u8>))| json!({ "id": n.to_string(), "attempts": attempts, "body": body(bytes) });
        let messages: Vec<_> = messages.iter().enumerate().map(message).collect();
        let call = json!({ "queue": queue, "messages": messages }).to_string();
        crate::browser::call("POST", &self.queues, &[], call.as_bytes()).json()
    }

    /// A member's proof.
    #[must_use]
    pub fn proof(&self, member: &str) -> String {
        let now_s = now() / 1000;
        proof::sign_hs256(&self.keys.tenants["demo"].proof[0], member, &tenant(), now_s, now_s + 600).unwrap()
    }
}

/// The tenant's id.
#[must_use]
pub fn tenant() -> TenantId {
    "demo".parse().unwrap()
}

/// What the KV holds of a catalogue's version that is current, as the origin publishes it.
///
/// # Panics
/// When the catalogue is none.
#[must_use]
pub fn catalogue(version: u32, ads: &serde_json::Value) -> [(String, String); 2] {
    let (tenant, digest) = (tenant(), [7; 16]);
    let published = Version { restore: 0, counter: version.into() };
    let pointer = wire::catalogue::Pointer { published, version, digest };
    let [at, current] = [kv::catalogue_key(&tenant, version), kv::pointer_key(&tenant)];
    let catalogue: Catalogue = serde_json::from_value(ads.clone()).unwrap();
    let flat = catalogue.flat(&Dictionary::default(), &Vocabulary::default()).unwrap();
    let value = wire::catalogue::encode_document(&at, &digest, &wire::flat::encode(&flat)).unwrap();
    let pointer = wire::catalogue::encode_pointer(&current, &pointer);
    [(at, value), (current, pointer)]
}

/// The wall clock, in milliseconds since the epoch.
#[must_use]
pub fn now() -> Millis {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// The keys of every worker here.
#[must_use]
pub fn keys() -> Keys {
    let ring = |seed: u8| {
        let mut secret = [0; 32];
        for (i, byte) in (0u8..).zip(secret.iter_mut()) {
            *byte = i.wrapping_mul(7) ^ seed;
        }
        KeyRing(vec![Key { id: 1, stage: Stage::Active, secret: secret.into() }])
    };
    let proof = ProofKey {
        kid: "dev-1".to_owned(),
        alg: ProofAlg::HS256,
        key: "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned(),
    };
    let demo = TenantKeys { cookie: ring(1), alternate: ring(2), proof: vec![proof], ..TenantKeys::default() };
    Keys { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() }
}

fn config(no_signal: &str) -> EdgeConfig {
    serde_json::from_value(json!({ "tenant": [{
        "name": "demo", "hosts": ["localhost"], "dev": true, "no_signal": no_signal, "proof_header": "x-causeway-proof",
        "origins": ["https://pub.example"], "publish_delay_s": 2,
        "kinds": [{ "name": "member", "code": 1, "unique": true }, { "name": "partner", "code": 2 }],
        "house_ad": { "id": "house" },
    }] }))
    .unwrap()
}

fn bundle() -> PathBuf {
    PathBuf::from(std::env::var("CAUSEWAY_EDGE_BUNDLE").expect("run through `cargo xtask test e2e`"))
}

/// The worker's modules as the bundle imports them.
fn modules(bundle: &Path) -> String {
    let mut modules = String::from("(name = \"worker.mjs\", esModule = embed \"/worker.js\")");
    for entry in std::fs::read_dir(bundle).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let kind = match name.rsplit('.').next() {
            Some("wasm") => "wasm",
            Some("html") => "text",
            _ => continue,
        };
        write!(modules, ", (name = \"./{name}\", {kind} = embed \"/{name}\")").unwrap();
    }
    modules
}

/// Calls the worker's queue handler, which nothing can from outside.
const DRIVER: &str = r#"export default {
  async fetch(request, env) {
    const { queue, messages } = await request.json();
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const all = messages.map(({ id, attempts, body }) => ({ id, attempts, timestamp: new Date(), body: bytes(body) }));
    return Response.json(await env.EDGE.queue(queue, all));
  },
};"#;

fn capnp(standin: &str, origin: &str, keys: &Keys, objects: &Path, no_signal: &str) -> String {
    let text = |json: String| serde_json::to_string(&json).unwrap();
    let (config, keys) =
        (text(serde_json::to_string(&config(no_signal)).unwrap()), text(serde_json::to_string(keys).unwrap()));
    let (modules, driver) = (modules(&bundle()), text(DRIVER.to_owned()));
    let objects = objects.display();
    format!(
        r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "edge", worker = .edge),
    (name = "queues", worker = .queues),
    (name = "standin", external = (address = "{standin}", http = ())),
    (name = "internet", network = (allow = ["public", "private", "local"])),
    (name = "objects", disk = (path = "{objects}", writable = true)),
  ],
  sockets = [
    (name = "http", address = "127.0.0.1:0", http = (), service = "edge"),
    (name = "queues", address = "127.0.0.1:0", http = (), service = "queues"),
  ],
);
const queues :Workerd.Worker = (
  compatibilityDate = "2026-11-01",
  compatibilityFlags = ["service_binding_extra_handlers"],
  modules = [(name = "driver.mjs", esModule = {driver})],
  bindings = [(name = "EDGE", service = "edge")],
);
const edge :Workerd.Worker = (
  compatibilityDate = "2026-11-01",
  modules = [{modules}],
  durableObjectNamespaces = [
    (className = "Person", uniqueKey = "causeway-person", enableSql = true),
    (className = "Units", uniqueKey = "causeway-units", enableSql = true),
  ],
  durableObjectStorage = (localDisk = "objects"),
  bindings = [
    (name = "PROFILES", kvNamespace = "standin"),
    (name = "FACTS", queue = "standin"),
    (name = "PUBLISH", queue = "standin"),
    (name = "PERSONS", durableObjectNamespace = "Person"),
    (name = "UNITS", durableObjectNamespace = "Units"),
    (name = "EDGE_NAME", text = "bare"),
    (name = "ORIGIN_URL", text = "{origin}"),
    (name = "CAUSEWAY_CONFIG", text = {config}),
    (name = "CAUSEWAY_KEYS", text = {keys}),
  ],
);
"#
    )
}
