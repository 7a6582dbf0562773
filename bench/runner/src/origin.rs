//! A real origin, a release build, in its own folder.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use causeway_shared::base::ids::{Millis, TenantId};
use causeway_shared::keys::key_ring::{KeySet, KeyStage, RingKey};
use causeway_shared::keys::sync_auth::{self, KEY_HEADER, MAC_HEADER, TIME_HEADER};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::environment::path;
use crate::stop::Stop;

/// The longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(900);
pub(crate) const TENANT: &str = "demo";
/// File of the folder that the origin writes once it is ready.
const READY: &str = "ready.json";

#[derive(Debug)]
pub(crate) struct Origin {
    serving: Child,
    url: String,
    address: SocketAddr,
    key: RingKey,
    tenant: TenantId,
    token: String,
    agent: ureq::Agent,
    folder: TempDir,
}

impl Drop for Origin {
    fn drop(&mut self) {
        // An error here cannot be handled.
        let _ = kill_process(Pid::from_child(&self.serving), Signal::KILL);
        let _ = self.serving.wait();
    }
}

/// Writes a configuration and keys into a folder; returns the path of the configuration.
pub(crate) fn prepare(folder: &Path, settings: &str) -> Result<PathBuf> {
    let config = folder.join("causeway.toml");
    let tenant = format!("[[tenant]]\nname = \"{TENANT}\"\nhosts = [\"localhost\"]\ndev = true\n");
    std::fs::write(&config, format!("listen = \"127.0.0.1:0\"\n{settings}{tenant}"))?;
    said(&config, &["keys", "init"])?;
    Ok(config)
}

/// Starts the origin of a folder, which writes [`READY`] once it is ready.
fn serve(config: &Path, folder: &Path) -> Result<Child> {
    let ready = folder.join(READY);
    if ready.exists() {
        std::fs::remove_file(&ready)?;
    }
    let mut serve = Command::new(path("CAUSEWAY_ORIGIN_BIN")?);
    let serve = serve.arg("--config").arg(config).args(["serve", "--ready-file"]).arg(ready);
    Ok(serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// Runs a command of the origin with a text on its standard input.
pub(crate) fn run_with_input(config: &Path, arguments: &[&str], input: &str) -> Result<()> {
    let mut command = Command::new(path("CAUSEWAY_ORIGIN_BIN")?);
    let command = command.arg("--config").arg(config).args(arguments).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    child.stdin.take().context("no standard input")?.write_all(input.as_bytes())?;
    ensure!(child.wait()?.success(), "{arguments:?} failed");
    Ok(())
}

/// The JSON output of a command of the origin.
pub(crate) fn said(config: &Path, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(path("CAUSEWAY_ORIGIN_BIN")?);
    let output = command.arg("--config").arg(config).args(arguments).args(["--output", "json"]).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

impl Origin {
    /// Starts an origin with the tenant `demo` and these additional lines of configuration, over a store that `fill`
    /// fills; `fill` gets the path of the configuration.
    pub(crate) fn start(settings: &str, stop: &Stop, fill: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let config = prepare(folder.path(), settings)?;
        let token = said(&config, &["token", "create", "--role", "operator"])?;
        let token = token.get("token").and_then(Value::as_str).context("no token")?.to_owned();
        let keys: KeySet = serde_json::from_slice(&std::fs::read(folder.path().join("keys.json"))?)?;
        let key = keys.sync.0.into_iter().find(|key| key.stage == KeyStage::Active).context("no key to sync with")?;
        fill(&config)?;
        let serving = serve(&config, folder.path())?;
        let agent = ureq::Agent::config_builder().proxy(None).timeout_global(Some(PATIENCE)).build().into();
        let (url, address) = (String::new(), SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut origin = Self { serving, url, address, key, tenant: TENANT.parse()?, token, agent, folder };
        origin.await_ready(stop)?;
        Ok(origin)
    }

    /// Stops the origin, runs `between` with the path of the configuration, and starts it again.
    pub(crate) fn restart(&mut self, stop: &Stop, between: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        kill_process(Pid::from_child(&self.serving), Signal::TERM)?;
        ensure!(self.serving.wait()?.success(), "the origin did not stop in order");
        let config = self.folder.path().join("causeway.toml");
        between(&config)?;
        self.serving = serve(&config, self.folder.path())?;
        self.await_ready(stop)
    }

    fn await_ready(&mut self, stop: &Stop) -> Result<()> {
        let ready = self.folder.path().join(READY);
        self.until(stop, "the origin is ready", || Ok(ready.exists()))?;
        let told: Value = serde_json::from_slice(&std::fs::read(&ready)?)?;
        self.url = told.get("url").and_then(Value::as_str).context("no url")?.to_owned();
        self.address = self.url.trim_start_matches("http://").parse()?;
        Ok(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A token with the role operator.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    pub(crate) fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
    }

    /// A complete request to `/v1/sync`, signed at the current time.
    pub(crate) fn signed_sync(&self, body: &[u8]) -> Vec<u8> {
        let time = self.now();
        let mac = sync_auth::sign_sync(&self.key, time, body);
        let head = format!(
            "POST /v1/sync HTTP/1.1\r\nhost: origin\r\n{KEY_HEADER}: {}\r\n{TIME_HEADER}: {time}\r\n{MAC_HEADER}: {mac}\r\ncontent-length: {}\r\n\r\n",
            self.key.id,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    /// The answer of the admin API to a GET.
    pub(crate) fn admin(&self, route: &str) -> Result<Value> {
        let request = self.agent.get(format!("{}/admin/v1/{route}", self.url));
        let mut answer = request.header("authorization", format!("Bearer {}", self.token)).call()?;
        Ok(serde_json::from_str(&answer.body_mut().read_to_string()?)?)
    }

    /// The answer of the admin API to a POST without a body.
    pub(crate) fn post(&self, route: &str) -> Result<Value> {
        let request = self.agent.post(format!("{}/admin/v1/{route}", self.url));
        let mut answer = request.header("authorization", format!("Bearer {}", self.token)).send_empty()?;
        Ok(serde_json::from_str(&answer.body_mut().read_to_string()?)?)
    }

    /// The answer of the admin API to a POST, even if it is an error.
    pub(crate) fn ask(&self, route: &str, body: &Value) -> Result<Value> {
        let request = self.agent.post(format!("{}/admin/v1/{route}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let request = request.header("content-type", "application/json").config().http_status_as_error(false).build();
        Ok(serde_json::from_str(&request.send(body.to_string())?.body_mut().read_to_string()?)?)
    }

    fn metrics(&self) -> Result<String> {
        Ok(self.agent.get(format!("{}/metrics", self.url)).call()?.body_mut().read_to_string()?)
    }

    /// One value of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let page = self.metrics()?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no {name}"))?.parse()?)
    }

    /// The mean of a histogram of seconds, in milliseconds.
    pub(crate) fn mean_ms(&self, name: &str) -> Result<f64> {
        let (sum, count) = (self.metric(&format!("{name}_sum"))?, self.metric(&format!("{name}_count"))?);
        Ok(1_000.0 * sum / count.max(1.0))
    }

    /// Peak memory of the process in MB (Linux's VmHWM).
    pub(crate) fn memory_peak_mb(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.serving.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1_024.0)
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Bytes of the store and the log.
    pub(crate) fn data_bytes(&self) -> Result<f64> {
        let files = std::fs::read_dir(self.data())?;
        files.map(|file| Ok(file?.metadata()?.len() as f64)).sum()
    }

    /// Waits until `holds` returns true.
    pub(crate) fn until(&self, stop: &Stop, what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        while !holds()? {
            stop.check()?;
            ensure!(start.elapsed() < PATIENCE, "waited {} s until {what}", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}
