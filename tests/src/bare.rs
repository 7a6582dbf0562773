//! The worker in plain workerd, whose bindings talk to a [`StandIn`]: for faults that no local platform plays.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::ids::{Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::identity::IdentityCookie;
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, ProofAlg, ProofKey, RingKey, TenantKeys};
use causeway_shared::keys::{cookie, proof};
use causeway_shared::settings::config::EdgeConfig;
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::wire::{self, kv_keys};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::Process;
use crate::browser::Browser;
use crate::standin::StandIn;

/// Part of a request's address that makes the worker of [`Bare::trapping`] trap.
pub const TRAP: &str = "trap-here";

/// A running worker. Dropping it ends the process and removes its folder.
#[derive(Debug)]
pub struct Bare {
    pub edge: String,
    queues: String,
    pub standin: StandIn,
    pub keys: KeySet,
    workerd: Option<Process>,
    networks: AtomicU32,
    folder: TempDir,
}

impl Bare {
    /// Starts a worker with the tenant `demo` on `localhost`; a request without a consent signal counts as consent.
    ///
    /// # Panics
    /// If workerd does not report its ports.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts a worker whose tenant has no keys.
    ///
    /// # Panics
    /// If workerd does not report its ports.
    #[must_use]
    pub fn misconfigured() -> Self {
        Self::started(None, KeySet { tenants: [].into(), ..keys() }, "allow", &bundle())
    }

    /// Like [`Self::start`], but a request without a consent signal counts as a refusal.
    ///
    /// # Panics
    /// If workerd does not report its ports.
    #[must_use]
    pub fn denying() -> Self {
        Self::started(None, keys(), "deny", &bundle())
    }

    /// Starts a worker whose KV holds a catalogue with these ads.
    ///
    /// # Panics
    /// If workerd does not report its ports.
    #[must_use]
    pub fn with(ads: &serde_json::Value) -> Self {
        let bare = Self::start();
        bare.standin.held().kv.extend(catalogue(1, ads));
        bare
    }

    /// Like [`Self::start`], with a real origin at this address.
    ///
    /// # Panics
    /// If workerd does not report its ports.
    #[must_use]
    pub fn start_with(origin: Option<&str>) -> Self {
        Self::started(origin, keys(), "allow", &bundle())
    }

    /// Starts a worker whose module traps during a request whose address contains [`TRAP`]. An import of the module
    /// throws the error that V8 throws for a trap, and leaves the module's frames as a trap does.
    ///
    /// # Panics
    /// If workerd does not report its ports, or the bundle lacks that import.
    #[must_use]
    pub fn trapping() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(bundle()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        let (entry, import) = (folder.path().join("platform.js"), "function readHead(request) {");
        let script = std::fs::read_to_string(&entry).unwrap();
        let trap = format!(
            "{import} if (request.url.includes(\"{TRAP}\")) throw new WebAssembly.RuntimeError(\"unreachable\");"
        );
        assert_eq!(script.matches(import).count(), 1, "the import that reads a request's head");
        std::fs::write(&entry, script.replace(import, &trap)).unwrap();
        Self::started(None, keys(), "allow", folder.path())
    }

    fn started(origin: Option<&str>, keys: KeySet, no_signal: &str, bundle: &Path) -> Self {
        let standin = StandIn::start();
        let origin = origin.map_or_else(|| format!("http://{}", standin.address), str::to_owned);
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join("modules");
        std::fs::create_dir(&modules).unwrap();
        for entry in std::fs::read_dir(bundle).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), modules.join(entry.file_name())).unwrap();
        }
        let objects = folder.path().join("objects");
        std::fs::create_dir(&objects).unwrap();
        let config = capnp(&standin.address, &origin, &keys, &objects, no_signal, &modules);
        std::fs::write(folder.path().join("config.capnp"), config).unwrap();
        let mut bare = Self {
            edge: String::new(),
            queues: String::new(),
            standin,
            keys,
            workerd: None,
            networks: AtomicU32::new(1),
            folder,
        };
        bare.launch();
        bare
    }

    /// Kills workerd, which loses its memory, and starts it again with the stored objects.
    pub fn restart(&mut self) {
        self.workerd = None;
        self.launch();
    }

    /// Kills workerd.
    pub fn kill(&mut self) {
        self.workerd = None;
    }

    /// A browser with the cookies of another one, for the current address of the worker.
    #[must_use]
    pub fn same_browser(&self, other: &Browser) -> Browser {
        let browser = self.browser();
        browser.put_back(other.cookies());
        browser
    }

    fn launch(&mut self) {
        let folder = self.folder.path();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
        let mut workerd = Command::new(std::env::var("CAUSEWAY_WORKERD").expect("run through `cargo xtask test e2e`"))
            .args(["serve", "--experimental", "--control-fd=1"])
            .arg(folder.join("config.capnp"))
            .arg(format!("--import-path={}", folder.join("modules").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(workerd.stdout.take().unwrap()).lines();
        self.workerd = Some(Process::new(workerd, Signal::KILL));
        let mut port = || {
            lines.by_ref().find_map(|line| {
                let event: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
                event["port"].as_u64().map(|port| (event["socket"] == "http", port))
            })
        };
        let mut ports: Vec<(bool, u64)> = [port(), port()].into_iter().flatten().collect();
        ports.sort_unstable();
        let [(_, queues), (_, edge)] = ports[..] else { panic!("workerd did not report its ports: {ports:?}") };
        // The worker logs to the same pipe, which is read to its end so that it never fills.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("edge: {line}")));
        [self.edge, self.queues] = [edge, queues].map(|port| format!("http://localhost:{port}"));
    }

    /// A browser without cookies on a separate client network.
    #[must_use]
    pub fn browser(&self) -> Browser {
        Browser::new(&self.edge, self.networks.fetch_add(1, Ordering::Relaxed) << 8)
    }

    /// A browser with an identity cookie that is an hour old, and the cookie's visitor.
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
        browser
            .set_cookie(cookie::IDENTITY, &cookie::seal_cookie(ring, cookie::IDENTITY, &tenant(), &payload).unwrap());
        (browser, visitor)
    }

    /// Delivers messages to the worker like the platform's queue, each with its number of attempts (at least 1).
    /// Returns the indexes of the messages that must be delivered again.
    pub fn deliver(&self, queue: &str, messages: &[(u32, Vec<u8>)]) -> Vec<usize> {
        let outcome = self.handed(queue, messages);
        if outcome["outcome"] != "ok" || outcome["retryBatch"]["retry"] == true {
            return (0..messages.len()).collect();
        }
        let again = outcome["retryMessages"].as_array().cloned().unwrap_or_default();
        again.iter().map(|m| m["msgId"].as_str().unwrap().parse().unwrap()).collect()
    }

    /// Like [`Self::deliver`]; returns the worker's answer to the platform.
    #[must_use]
    pub fn handed(&self, queue: &str, messages: &[(u32, Vec<u8>)]) -> serde_json::Value {
        use base64::Engine as _;
        let body = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let message = |(n, (attempts, bytes)): (usize, &(u32, Vec<u8>))| json!({ "id": n.to_string(), "attempts": attempts, "body": body(bytes) });
        let messages: Vec<_> = messages.iter().enumerate().map(message).collect();
        let call = json!({ "queue": queue, "messages": messages }).to_string();
        crate::browser::call("POST", &self.queues, &[], call.as_bytes()).json()
    }

    /// A proof for a member.
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

/// The KV keys and values of a current catalogue version, as the origin publishes them.
///
/// # Panics
/// If the catalogue is invalid.
#[must_use]
pub fn catalogue(version: u32, ads: &serde_json::Value) -> [(String, String); 2] {
    let (tenant, digest) = (tenant(), [7; 16]);
    let published = SnapshotVersion { restore: 0, counter: version.into() };
    let pointer = wire::catalogue::CataloguePointer { published, version, digest };
    let [at, current] = [kv_keys::catalogue_key(&tenant, version), kv_keys::pointer_key(&tenant)];
    let catalogue: Catalogue = serde_json::from_value(ads.clone()).unwrap();
    let flat = catalogue.flat(&NameDictionary::default(), &Vocabulary::default()).unwrap();
    let value = wire::catalogue::encode_document(&at, &digest, &wire::flat::encode_catalogue(&flat)).unwrap();
    let pointer = wire::catalogue::encode_pointer(&current, &pointer);
    [(at, value), (current, pointer)]
}

/// The wall clock, in milliseconds since the epoch.
#[must_use]
pub fn now() -> Millis {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// The keys of all workers in these tests.
#[must_use]
pub fn keys() -> KeySet {
    let ring = |seed: u8| {
        let mut secret = [0; 32];
        for (i, byte) in (0u8..).zip(secret.iter_mut()) {
            *byte = i.wrapping_mul(7) ^ seed;
        }
        KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret.into() }])
    };
    let proof = ProofKey {
        kid: "dev-1".to_owned(),
        alg: ProofAlg::HS256,
        key: "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned(),
    };
    let demo = TenantKeys { cookie: ring(1), alternate: ring(2), proof: vec![proof], ..TenantKeys::default() };
    KeySet { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() }
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
    let mut modules = String::from("(name = \"worker.mjs\", esModule = embed \"/platform.js\")");
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

/// Calls the worker's queue handler, which cannot be called from outside.
const DRIVER: &str = r#"export default {
  async fetch(request, env) {
    const { queue, messages } = await request.json();
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const all = messages.map(({ id, attempts, body }) => ({ id, attempts, timestamp: new Date(), body: bytes(body) }));
    return Response.json(await env.EDGE.queue(queue, all));
  },
};"#;

fn capnp(standin: &str, origin: &str, keys: &KeySet, objects: &Path, no_signal: &str, bundle: &Path) -> String {
    let text = |json: String| serde_json::to_string(&json).unwrap();
    let (config, keys) =
        (text(serde_json::to_string(&config(no_signal)).unwrap()), text(serde_json::to_string(keys).unwrap()));
    let (modules, driver) = (modules(bundle), text(DRIVER.to_owned()));
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
    (className = "StrictCapObject", uniqueKey = "causeway-strict-caps", enableSql = true),
    (className = "OfferObject", uniqueKey = "causeway-offers", enableSql = true),
  ],
  durableObjectStorage = (localDisk = "objects"),
  bindings = [
    (name = "PROFILES", kvNamespace = "standin"),
    (name = "FACTS", queue = "standin"),
    (name = "PUBLISH", queue = "standin"),
    (name = "STRICT_CAPS", durableObjectNamespace = "StrictCapObject"),
    (name = "OFFERS", durableObjectNamespace = "OfferObject"),
    (name = "EDGE_NAME", text = "bare"),
    (name = "ORIGIN_URL", text = "{origin}"),
    (name = "CAUSEWAY_CONFIG", text = {config}),
    (name = "CAUSEWAY_KEYS", text = {keys}),
  ],
);
"#
    )
}
