//! The real origin in a separate folder; a test decides what stands in front of it.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use causeway_shared::keys::key_ring::KeySet;
use serde_json::Value;
use tempfile::TempDir;

use crate::browser::call;
use crate::eventually;

/// Configuration with the tenant of [`crate::bare`].
const CONFIGURATION: &str = r#"data = "."
keys = "keys.json"
sibling_publish_s = 1

[[tenant]]
name = "demo"
hosts = ["localhost"]
dev = true
no_signal = "allow"
publish_delay_s = 2
link_threshold = 0.9

[[tenant.kinds]]
name = "member"
code = 1
unique = true

[[tenant.kinds]]
name = "partner"
code = 2

[tenant.house_ad]
id = "house"
"#;

/// A running origin. Dropping it ends the process and removes its folder.
#[derive(Debug)]
pub struct Origin {
    pub url: String,
    token: String,
    child: Mutex<Option<Child>>,
    folder: TempDir,
}

impl Origin {
    /// Starts an origin with these keys.
    #[must_use]
    pub fn start(keys: &KeySet) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("causeway.toml"), CONFIGURATION).unwrap();
        std::fs::write(folder.path().join("keys.json"), serde_json::to_string(keys).unwrap()).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}");
        let mut origin = Self { url, token: String::new(), child: Mutex::default(), folder };
        assert!(origin.command(&["keys", "init"]).status().unwrap().success());
        let token = ["token", "create", "--role", "operator", "--name", "test", "--all-tenants", "--output", "json"];
        let created: Value =
            serde_json::from_slice(&origin.command(&token).stdout(Stdio::piped()).output().unwrap().stdout).unwrap();
        created["token"].as_str().unwrap().clone_into(&mut origin.token);
        origin.again();
        origin
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command =
            Command::new(std::env::var("CAUSEWAY_ORIGIN_BIN").expect("run through `cargo xtask test e2e`"));
        let log = std::fs::File::options().append(true).create(true).open(self.folder.path().join("log")).unwrap();
        command.env("CAUSEWAY_LISTEN", self.url.trim_start_matches("http://"));
        command.arg("--config").arg(self.folder.path().join("causeway.toml")).args(arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    /// Kills the process, like a power cut.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the process again on the same folder, and waits until it answers.
    pub fn again(&self) {
        *self.child.lock().unwrap() = Some(self.command(&["serve"]).spawn().unwrap());
        let address = self.url.trim_start_matches("http://");
        eventually("the origin answers", || std::net::TcpStream::connect(address).ok().map(drop));
    }

    /// The origin's record of a visitor; null if the visitor is unknown.
    #[must_use]
    pub fn visitor(&self, visitor: &str) -> Value {
        let headers = [("authorization".to_owned(), format!("Bearer {}", self.token))];
        let answer = call("GET", &format!("{}/admin/v1/visitors/{visitor}?tenant=demo", self.url), &headers, b"");
        if answer.status == 200 { answer.json() } else { Value::Null }
    }

    /// Ends all leases, and the quarter of an hour in which a previous consumer may still write: keys that are written
    /// once more for that reason become due.
    pub fn leases_end(&self) {
        const END: &str = "UPDATE outbox SET leased_until = 0, due = iif(due = late, 0, due), late = 0
            WHERE leased_until > 0 OR late > 0";
        self.store().execute(END, []).unwrap();
    }

    /// Number of keys and people that wait to be published.
    #[must_use]
    pub fn unpublished(&self) -> u32 {
        const OPEN: &str = "SELECT (SELECT count(*) FROM outbox WHERE due IS NOT NULL)
            + (SELECT count(*) FROM people WHERE siblings_due IS NOT NULL)";
        self.store().query_row(OPEN, [], |row| row.get(0)).unwrap()
    }

    fn store(&self) -> rusqlite::Connection {
        let store = rusqlite::Connection::open(self.folder.path().join("causeway.db")).unwrap();
        store.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        store
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.kill();
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("ERROR")).for_each(|line| eprintln!("origin: {line}"));
    }
}
