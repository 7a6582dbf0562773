//! A world like that of `cargo xtask dev`: the worker in workerd with KV, queues and cron, and the origin on SQLite.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use causeway_shared::keys::key_ring::KeySet;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;

use crate::browser::{Answer, Browser, call};
use crate::{Process, base64url, eventually, within};

/// The folder in which wrangler stores the KV, relative to the world's data.
const KV: &str = "wrangler/v3/kv";

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())
}

/// The ready file of `xtask dev`, after edge and origin answer.
///
/// # Panics
/// If they do not answer within three minutes; `xtask dev` gives each of them one minute.
pub fn read_ready_file(dev: &mut Process, ready: &Path) -> Value {
    within(Duration::from_secs(180), "the world answers", || {
        assert_eq!(dev.ended(), None, "`xtask dev` ended before it was ready");
        serde_json::from_slice(&std::fs::read(ready).ok()?).ok()
    })
}

/// A running world. Dropping it stops the processes and removes its folder.
#[derive(Debug)]
pub struct World {
    pub edge: String,
    pub origin: String,
    pub token: String,
    pub explain: String,
    _dev: Process,
    origin_pid: Mutex<OriginProcess>,
    networks: AtomicU32,
    _folder: TempDir,
    /// Folder of the configuration and the store.
    pub data: PathBuf,
}

#[derive(Debug)]
enum OriginProcess {
    /// Started by `xtask dev`.
    Dev(i32),
    /// Started by a test, after the first process was ended.
    Own(Child),
    Down,
}

impl World {
    /// Starts a world in a new folder and waits until edge and origin answer.
    ///
    /// # Panics
    /// If it does not start within three minutes; `xtask dev` gives edge and origin one minute each.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (data, ready) = (folder.path().join("data"), folder.path().join("ready.json"));
        let xtask = std::env::var("CAUSEWAY_XTASK").expect("run these tests through `cargo xtask test e2e`");
        let dev = Command::new(xtask)
            .args(["dev", "--until-stdin-ends", "--edge-port", "0", "--origin-port", "0", "--data"])
            .arg(&data)
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("xtask starts");
        let mut dev = Process::new(dev, Signal::INT);
        let ready_file = read_ready_file(&mut dev, &ready);
        let text = |name: &str| ready_file[name].as_str().unwrap().to_owned();
        let pid = i32::try_from(ready_file["pids"]["origin"].as_i64().unwrap()).unwrap();
        Self {
            edge: text("edge_url").replace("127.0.0.1", "localhost"),
            origin: text("origin_url"),
            token: text("admin_token"),
            explain: text("explain_key"),
            _dev: dev,
            origin_pid: Mutex::new(OriginProcess::Dev(pid)),
            networks: AtomicU32::new(1),
            data,
            _folder: folder,
        }
    }

    /// A browser without cookies on a separate client network.
    #[must_use]
    pub fn browser(&self) -> Browser {
        Browser::new(&self.edge, self.networks.fetch_add(1, Ordering::Relaxed) << 8)
    }

    /// Like [`Self::browser`], on the hostname of another tenant.
    #[must_use]
    pub fn browser_at(&self, host: &str) -> Browser {
        Browser::new(&self.edge.replace("localhost", host), self.networks.fetch_add(1, Ordering::Relaxed) << 8)
    }

    /// A call of the admin API.
    #[must_use]
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> Answer {
        let headers = [
            ("authorization".to_owned(), format!("Bearer {}", self.token)),
            ("content-type".to_owned(), "application/json".to_owned()),
        ];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        call(method, &format!("{}/admin/v1/{path}", self.origin), &headers, body.as_bytes())
    }

    /// The origin's record of a visitor of the demo tenant; null if the visitor is unknown.
    #[must_use]
    pub fn visitor(&self, visitor: &str) -> Value {
        let answer = self.admin("GET", &format!("visitors/{visitor}?tenant=demo"), &Value::Null);
        if answer.status == 200 { answer.json() } else { Value::Null }
    }

    /// The visitor that the lookup of a member names; null if there is no lookup.
    #[must_use]
    pub fn lookup(&self, tenant: &str, member: &str) -> Value {
        let answer = self.admin("GET", &format!("lookups/member/{member}?tenant={tenant}"), &Value::Null);
        let body = answer.json();
        match answer.status {
            200 => body["visitor"].clone(),
            404 => Value::Null,
            status => panic!("{status}: {body}"),
        }
    }

    /// A member's proof, signed with the tenant's development key.
    #[must_use]
    pub fn proof(&self, tenant: &str, member: &str) -> String {
        let answer = self.admin("POST", "proofs", &json!({ "tenant": tenant, "sub": member }));
        answer.json()["proof"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }

    /// A token with any claims, signed with the demo tenant's development key.
    #[must_use]
    pub fn sign_dev(&self, claims: &Value) -> String {
        let keys: KeySet = serde_json::from_slice(&std::fs::read(self.data.join("keys.json")).unwrap()).unwrap();
        let key = &keys.tenants["demo"].proof[0];
        let signed = format!("{}.{}", base64url(br#"{"alg":"HS256"}"#), base64url(claims.to_string().as_bytes()));
        let mut hmac = Hmac::<Sha256>::new_from_slice(&key.bytes()).unwrap();
        hmac.update(signed.as_bytes());
        format!("{signed}.{}", base64url(&hmac.finalize().into_bytes()))
    }

    /// Runs a command of the origin with this JSON on its standard input; returns the JSON that it prints.
    #[must_use]
    pub fn causeway(&self, arguments: &[&str], input: &Value) -> Value {
        let mut child = Command::new(std::env::var("CAUSEWAY_ORIGIN_BIN").unwrap())
            .arg("--config")
            .arg(self.data.join("causeway.toml"))
            .args(["--output", "json"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until the origin holds these totals of the visitor's own facts: pages and purchases.
    pub fn settles(&self, visitor: &str, pages: u64, purchases: u64) -> Value {
        eventually(&format!("the origin holds {pages} pages and {purchases} purchases"), || {
            let own = &self.visitor(visitor)["own"];
            (own["pages"] == json!(pages) && own["purchases"] == json!(purchases)).then_some(())
        });
        // Reads see facts before they are folded; links follow after folding.
        eventually("all facts are folded", || (self.metric("causeway_unfolded_facts")? == 0.0).then_some(()));
        self.visitor(visitor)
    }

    /// Waits until the origin has no more keys to write to the KV.
    pub fn published(&self) {
        eventually("the outbox is empty", || (self.metric("causeway_outbox_depth")? == 0.0).then_some(()));
    }

    /// The value of an origin metric without labels.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        let answer = call("GET", &format!("{}/metrics", self.origin), &[], b"");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// The complete log of the edge.
    #[must_use]
    pub fn edge_log(&self) -> String {
        std::fs::read_to_string(self.data.join("edge.log")).unwrap()
    }

    /// Number of failed syncs with messages of the facts queue, from the edge's log.
    #[must_use]
    pub fn failed_syncs(&self) -> usize {
        let log = self.edge_log();
        let lines = log.lines().filter(|line| line.contains(r#""event":"sync_failed""#));
        lines.filter(|line| !line.contains(r#""messages":0"#)).count()
    }

    /// Number of acknowledged messages of the facts queue, each acknowledged once. It comes from wrangler's log of its
    /// batches, such as `QUEUE causeway-facts 98/100`.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        let log = self.edge_log();
        let batches = log.lines().filter_map(|line| line.split_once("QUEUE causeway-facts ")?.1.split_once('/'));
        batches.map(|(acknowledged, _)| acknowledged.parse::<u64>().unwrap()).sum()
    }

    /// The complete log of the origin.
    #[must_use]
    pub fn origin_log(&self) -> String {
        std::fs::read_to_string(self.data.join("origin.log")).unwrap()
    }

    /// The bytes of the origin's databases, to check that something is not in them.
    #[must_use]
    pub fn store_bytes(&self) -> Vec<u8> {
        let read = |name: &str| std::fs::read(self.data.join(name));
        let files = ["causeway.db", "causeway.db-wal", "log.db", "log.db-wal", "erasures.db"];
        let mut all: Vec<u8> = files.iter().flat_map(|name| read(name).unwrap()).collect();
        // A store this small may have no such file.
        all.extend(read("audience-index").unwrap_or_default());
        all
    }

    /// The KV value of a key. The local wrangler stores rows in SQLite, and each value in a separate file.
    #[must_use]
    pub fn kv(&self, key: &str) -> Option<Vec<u8>> {
        std::fs::read(self.blob(key)?).ok()
    }

    /// The file with a key's value.
    fn blob(&self, key: &str) -> Option<PathBuf> {
        let blob: String = self.kv_stores().find_map(|path| {
            let store = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
            store.busy_timeout(Duration::from_secs(5)).unwrap();
            let found = store.query_row("SELECT blob_id FROM _mf_entries WHERE key = ?1", [key], |row| row.get(0));
            found.optional().unwrap()
        })?;
        entries(&self.data.join(KV)).map(|namespace| namespace.join("blobs").join(&blob)).find(|path| path.exists())
    }

    fn kv_stores(&self) -> impl Iterator<Item = PathBuf> {
        entries(&self.data.join(KV).join("miniflare-KVNamespaceObject"))
            .filter(|path| path.extension().is_some_and(|end| end == "sqlite") && !path.ends_with("metadata.sqlite"))
    }

    /// Removes a key from the KV.
    pub fn lose(&self, key: &str) {
        let lost = self.kv_stores().map(|path| {
            let store = Connection::open(path).unwrap();
            store.busy_timeout(Duration::from_secs(5)).unwrap();
            store.execute("DELETE FROM _mf_entries WHERE key = ?1", [key]).unwrap_or_default()
        });
        assert_eq!(lost.sum::<usize>(), 1, "{key} was not in the KV");
    }

    /// Damages one byte of a KV value; its length stays.
    pub fn damage(&self, key: &str) {
        let path = self.blob(key).unwrap();
        let mut value = std::fs::read(&path).unwrap();
        let middle = value.len() / 2;
        value[middle] = if value[middle] == b'A' { b'B' } else { b'A' };
        std::fs::write(path, value).unwrap();
    }

    /// Ends the origin and waits until nothing answers at its address.
    pub fn end_origin(&self, signal: Signal) {
        let mut process = self.origin_pid.lock().unwrap();
        match std::mem::replace(&mut *process, OriginProcess::Down) {
            OriginProcess::Dev(pid) => kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap(),
            OriginProcess::Own(mut child) => {
                kill_process(Pid::from_child(&child), signal).unwrap();
                child.wait().unwrap();
            }
            OriginProcess::Down => {}
        }
        let address = self.origin.trim_start_matches("http://").to_owned();
        eventually("the origin is gone", || std::net::TcpStream::connect(&address).err().map(drop));
    }

    /// Calls `done` while the origin's process is stopped: its port accepts connections, but requests get no answer.
    ///
    /// # Panics
    /// If the origin does not run.
    pub fn while_origin_hangs<T>(&self, done: impl FnOnce() -> T) -> T {
        /// Continues the process, even if `done` panics: a stopped process does not end when it is asked to.
        struct Hung(Pid);
        impl Drop for Hung {
            fn drop(&mut self) {
                kill_process(self.0, Signal::CONT).unwrap();
            }
        }
        let pid = match &*self.origin_pid.lock().unwrap() {
            OriginProcess::Dev(pid) => Pid::from_raw(*pid).unwrap(),
            OriginProcess::Own(child) => Pid::from_child(child),
            OriginProcess::Down => panic!("the origin does not run"),
        };
        kill_process(pid, Signal::STOP).unwrap();
        let _hung = Hung(pid);
        done()
    }

    /// Starts the origin again, at the same address and on the same folder.
    pub fn start_origin(&self) {
        let log = std::fs::File::options().append(true).create(true).open(self.data.join("origin.log")).unwrap();
        let child = Command::new(std::env::var("CAUSEWAY_ORIGIN_BIN").unwrap())
            .env("CAUSEWAY_LISTEN", self.origin.trim_start_matches("http://"))
            .arg("--config")
            .arg(self.data.join("causeway.toml"))
            .arg("serve")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        *self.origin_pid.lock().unwrap() = OriginProcess::Own(child);
        let address = self.origin.trim_start_matches("http://").to_owned();
        eventually("the origin answers again", || std::net::TcpStream::connect(&address).ok().map(drop));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Prints the edge's log lines for a failed test; they are JSON and contain no ids.
        let edge = std::fs::read_to_string(self.data.join("edge.log")).unwrap_or_default();
        let lines = edge.lines().filter(|line| line.starts_with('{')).map(str::to_owned);
        lines.for_each(|line| eprintln!("edge: {line}"));
        if let Ok(OriginProcess::Own(child)) = self.origin_pid.get_mut() {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            let _ = child.wait();
        }
    }
}
