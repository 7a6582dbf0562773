//! The origin's configuration: one TOML file, overridden by environment variables and checked as a whole.

mod publish;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_shared::base::limits;
use causeway_shared::base::problems::ConfigProblem;
use causeway_shared::base::time::DAY_MS;
use causeway_shared::settings::config::{EdgeConfig, TenantConfig};
use causeway_shared::settings::vocabulary::Vocabulary;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;
use ureq::http::Uri;

pub use self::publish::PublishSettings;
use self::publish::PublishTable;
use crate::base::job_kinds::{JobIntervals, JobKind};
use crate::base::settings_reference::{SETTINGS, SettingShape};
use crate::base::time_zones;

/// The checked configuration of the origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: String,
    /// Directory of the store.
    pub data: PathBuf,
    /// The key file.
    pub keys: PathBuf,
    /// Pause before a change is published to the person's other visitors, in milliseconds.
    pub sibling_publish_ms: u64,
    /// Time until every location of the edge shows a KV write, in milliseconds.
    pub kv_settled_ms: u64,
    /// Log filter, in `tracing`'s directives.
    pub log: String,
    /// Form of the log lines.
    pub log_format: LogFormat,
    /// Read-only connections to the store, 1 to 64.
    pub readers: usize,
    /// Most facts that may wait in the log to be folded; above it, syncs are answered 503.
    pub most_unfolded: usize,
    /// Time that a stop waits for running requests.
    pub drain: Duration,
    /// Limits of HTTP connections.
    pub http: HttpLimits,
    /// Interval of each job's timer.
    pub jobs: JobIntervals,
    /// Publishing in bulk; `None` if the publish consumer alone writes the KV.
    pub publish: Option<PublishSettings>,
    /// The tenants, as in the edge's configuration.
    pub edge: EdgeConfig,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One line of text an event.
    Text,
    /// One JSON object an event.
    Json,
}

/// The reason why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration {}: name another with --config", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A tenant's vocabulary file could not be read.
    #[error("cannot read the vocabulary file {}: the tenant's `catalogue` names it, relative to the configuration", path.display())]
    Words {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key or an invalid value.
    #[error("the configuration {} is invalid: see `causeway config reference`", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Position and cause.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// An environment variable has an invalid value.
    #[error("{name} in the environment must be {expected}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Description of a valid value.
        expected: &'static str,
    },
    /// The file could be read, and some values are invalid.
    #[error("{} problems in the configuration:\n{}", .0.len(), problem_lines(.0))]
    Problems(Vec<ConfigProblem>),
}

/// One line for each problem: path of the key, then the fault.
#[must_use]
pub fn problem_lines(problems: &[ConfigProblem]) -> String {
    let line = |p: &ConfigProblem| format!("  {}: {}", p.path, p.message);
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    listen: String,
    data: PathBuf,
    keys: PathBuf,
    sibling_publish_s: u32,
    kv_settled_s: u32,
    log: String,
    log_format: LogFormat,
    readers: usize,
    most_unfolded: usize,
    drain_s: u32,
    facts_queues: u32,
    http: HttpTable,
    jobs: JobIntervals,
    publish: PublishTable,
    #[cfg_attr(test, serde(skip_serializing))]
    tenant: Vec<TenantConfig>,
}

impl Default for ConfigFile {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8788".to_owned(),
            data: "data".into(),
            keys: "keys.json".into(),
            sibling_publish_s: 60,
            kv_settled_s: 120,
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            readers: 4,
            most_unfolded: 4_000_000,
            drain_s: 10,
            facts_queues: 1,
            http: HttpTable::default(),
            jobs: JobIntervals::default(),
            publish: PublishTable::default(),
            tenant: Vec::new(),
        }
    }
}

/// Table `[http]`; [`SETTINGS`] documents the meaning, range and reason of each key.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
struct HttpTable {
    connections: u32,
    head_bytes: u32,
    head_s: u32,
    body_s: u32,
    idle_s: u32,
    write_s: u32,
}

impl Default for HttpTable {
    fn default() -> Self {
        Self { connections: 1_024, head_bytes: 32_768, head_s: 15, body_s: 30, idle_s: 75, write_s: 60 }
    }
}

impl HttpTable {
    fn checked(&self, mut say: impl FnMut(&str, &str)) -> HttpLimits {
        if !(16..=65_536).contains(&self.connections) {
            say("http.connections", "between 16 and 65536 connections are needed");
        }
        if !(8_192..=1_048_576).contains(&self.head_bytes) {
            say("http.head_bytes", "between 8192 and 1048576 bytes are needed");
        }
        let times = [
            ("http.head_s", self.head_s),
            ("http.body_s", self.body_s),
            ("http.idle_s", self.idle_s),
            ("http.write_s", self.write_s),
        ];
        let [head_time, body_time, idle_time, write_time] = times.map(|(path, seconds)| {
            if !(1..=3_600).contains(&seconds) {
                say(path, "between 1 and 3600 seconds are needed");
            }
            Duration::from_secs(u64::from(seconds))
        });
        let [connections, head_bytes] =
            [self.connections, self.head_bytes].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        HttpLimits { connections, head_bytes, head_time, body_time, idle_time, write_time }
    }
}

/// Longest interval of a job: one year.
const MOST_EVERY_MS: u64 = 365 * DAY_MS;

impl Config {
    /// Reads the file and applies environment variables over it.
    ///
    /// `env` returns the value of a variable. Paths in the file are relative to the file; paths in variables are
    /// relative to the working directory.
    ///
    /// # Errors
    /// [`ConfigError`]; [`ConfigError::Problems`] lists every invalid value.
    pub fn load(path: &Path, env: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let base = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, path, base, env)
    }

    fn parse(
        text: &str,
        path: &Path,
        base: &Path,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let not_understood =
            |source: toml::de::Error| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) };
        // Parsed before the overlay, so that an error in the file shows its line.
        toml::from_str::<ConfigFile>(text).map_err(not_understood)?;
        let mut table: toml::Table = toml::from_str(text).map_err(not_understood)?;
        // A default path is also relative to the file.
        let ConfigFile { data, keys, .. } = ConfigFile::default();
        for (key, default) in [("data", data), ("keys", keys)] {
            let default = || default.to_string_lossy().into_owned().into();
            if let toml::Value::String(relative) = table.entry(key).or_insert_with(default)
                && !relative.is_empty()
            {
                *relative = base.join(&*relative).to_string_lossy().into_owned();
            }
        }
        overlay_variables(&mut table, env)?;
        let mut document: ConfigFile = table.try_into().map_err(not_understood)?;
        for tenant in &mut document.tenant {
            if let Some(file) = &tenant.catalogue {
                tenant.vocabulary = load_vocabulary(&base.join(file))?;
            }
        }
        document.checked()
    }
}

/// Whether a URL is safe to send data to: `https:`, or `http:` to a loopback address, so that no data crosses a network
/// in clear text.
fn is_safe_url(url: &str) -> bool {
    let Some(uri) = url.parse::<Uri>().ok().filter(|_| url.len() <= limits::WEBHOOK_BYTES) else { return false };
    let is_local = |host: &str| {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    };
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(host)) => !host.is_empty(),
        (Some("http"), Some(host)) => is_local(host),
        _ => false,
    }
}

/// Reads a tenant's vocabulary of action types and view types.
fn load_vocabulary(path: &Path) -> Result<Vocabulary, ConfigError> {
    let unread = |source| ConfigError::Words { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unread)?;
    toml::from_str(&text).map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })
}

/// Replaces values of the file by values of environment variables.
fn overlay_variables(table: &mut toml::Table, env: impl Fn(&str) -> Option<OsString>) -> Result<(), ConfigError> {
    for setting in SETTINGS {
        let Some(text) = env(setting.env) else {
            continue;
        };
        let wrong = ConfigError::Environment { name: setting.env, expected: setting.shape.says() };
        let Ok(text) = text.into_string() else { return Err(wrong) };
        let value = match setting.shape {
            SettingShape::Number => match text.parse::<u32>() {
                Ok(number) => toml::Value::Integer(number.into()),
                Err(_) => return Err(wrong),
            },
            SettingShape::LogFormat if !matches!(text.as_str(), "text" | "json") => return Err(wrong),
            SettingShape::Text | SettingShape::Path | SettingShape::LogFormat => toml::Value::String(text),
        };
        match setting.key.split_once('.') {
            None => drop(table.insert(setting.key.to_owned(), value)),
            Some((group, key)) => {
                let group = table.entry(group).or_insert_with(|| toml::Table::new().into());
                group.as_table_mut().map(|group| group.insert(key.to_owned(), value));
            }
        }
    }
    Ok(())
}

impl ConfigFile {
    fn checked(self) -> Result<Config, ConfigError> {
        let edge = EdgeConfig { facts_queues: self.facts_queues, tenants: self.tenant };
        let mut problems = edge.problems();
        let mut say = |path: &str, message: &str| {
            problems.push(ConfigProblem { path: path.to_owned(), message: message.to_owned() });
        };
        let (host, port) = self.listen.rsplit_once(':').unwrap_or_default();
        if host.is_empty() || port.parse::<u16>().is_err() {
            say("listen", "an address and a port like 127.0.0.1:8788 are needed");
        }
        if let Err(e) = EnvFilter::try_new(&self.log) {
            say("log", &format!("levels like info or causeway_origin=debug are needed: {e}"));
        }
        for (key, path) in [("data", &self.data), ("keys", &self.keys)] {
            if path.as_os_str().is_empty() {
                say(key, "a path is needed");
            }
        }
        if !(1..=64).contains(&self.readers) {
            say("readers", "between 1 and 64 connections are needed");
        }
        if !(10_000..=100_000_000).contains(&self.most_unfolded) {
            say("most_unfolded", "between 10000 and 100000000 facts are needed");
        }
        if !(1..=3_600).contains(&self.sibling_publish_s) {
            say("sibling_publish_s", "between 1 and 3600 seconds are needed");
        }
        if !(1..=3_600).contains(&self.kv_settled_s) {
            say("kv_settled_s", "between 1 and 3600 seconds are needed");
        }
        if self.drain_s > 600 {
            say("drain_s", "600 seconds at most");
        }
        let http = self.http.checked(&mut say);
        let publish = self.publish.checked(&mut say);
        for job in JobKind::ALL {
            if self.jobs.of(job).is_some_and(|every| every > MOST_EVERY_MS) {
                say(&format!("jobs.{}_hours", job.name()), "8760 hours at most; 0: never");
            }
        }
        check_tenants(&edge, &mut say);
        if !problems.is_empty() {
            return Err(ConfigError::Problems(problems));
        }
        Ok(Config {
            listen: self.listen,
            data: self.data,
            keys: self.keys,
            sibling_publish_ms: u64::from(self.sibling_publish_s) * 1_000,
            kv_settled_ms: u64::from(self.kv_settled_s) * 1_000,
            log: self.log,
            log_format: self.log_format,
            readers: self.readers,
            most_unfolded: self.most_unfolded,
            drain: Duration::from_secs(u64::from(self.drain_s)),
            http,
            jobs: self.jobs,
            publish,
            edge,
        })
    }
}

/// Checks the parts of tenants that only the origin uses.
fn check_tenants(edge: &EdgeConfig, mut say: impl FnMut(&str, &str)) {
    for (i, tenant) in edge.tenants.iter().enumerate() {
        if tenant.webhook.as_ref().is_some_and(|url| !is_safe_url(url)) {
            let message = "an https: URL is needed, or one of http: whose host is localhost or a loopback address";
            say(&format!("tenant[{i}].webhook"), message);
        }
        if time_zones::find_zone(&tenant.time_zone).is_none() {
            let shown = tenant.time_zone.get(..tenant.time_zone.floor_char_boundary(64)).unwrap_or_default();
            let message =
                format!("`{shown}` is none: a name of the time zone database is needed, such as Europe/Berlin");
            say(&format!("tenant[{i}].time_zone"), &message);
        }
    }
}

/// Limits of a connection; documented under `[http]` in [`SETTINGS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLimits {
    /// Most connections that are open at the same time.
    pub connections: usize,
    /// Bytes of a request's head that are always accepted, at least 8,192; a head of more than twice the value is
    /// refused.
    pub head_bytes: usize,
    /// Time for a head, from its first byte to its last.
    pub head_time: Duration,
    /// Time for a body, from the head to its last byte.
    pub body_time: Duration,
    /// Time between an answer and the head of the next request, and between opening and the first head.
    pub idle_time: Duration,
    /// Time within which the reader must accept part of a waiting answer.
    pub write_time: Duration,
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    const SMALL: &str = "[[tenant]]\nname = \"pub\"\nhosts = [\"ads.pub.example\"]\n";

    fn parse(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let find = |name: &str| {
            let pair = env.iter().find(|(n, _)| *n == name)?;
            Some(pair.1.into())
        };
        Config::parse(text, Path::new("/etc/cw/causeway.toml"), Path::new("/etc/cw"), find)
    }

    #[test]
    fn what_the_origin_would_not_start_with_is_a_problem_of_the_configuration() {
        let set = "listen = \":8788\"\nlog = \"==\"\ndata = \"\"\n";
        let said = parse(&format!("{set}{SMALL}"), &[]).unwrap_err().to_string();
        for path in ["listen:", "log:", "data:"] {
            assert!(said.contains(path), "{path} is missing in {said}");
        }
        let text = |name: &str| (name == "CAUSEWAY_LISTEN").then(|| OsString::from_vec(vec![0xff]));
        let at = Path::new("/etc/cw");
        let said = Config::parse(SMALL, &at.join("causeway.toml"), at, text).unwrap_err().to_string();
        assert!(said.contains("CAUSEWAY_LISTEN"), "{said}");
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let config = parse(SMALL, &[]).unwrap();
        assert_eq!(config.data, Path::new("/etc/cw/data"));
        assert_eq!(config.keys, Path::new("/etc/cw/keys.json"));
        let config = parse(&format!("keys = \"/k\"\ndata = \"d\"\n{SMALL}"), &[]).unwrap();
        assert_eq!(config.data, Path::new("/etc/cw/d"));
        assert_eq!(config.keys, Path::new("/k"));
    }

    #[test]
    fn the_environment_wins() {
        let env = [
            ("CAUSEWAY_LISTEN", "0.0.0.0:9"),
            ("CAUSEWAY_DATA", "here"),
            ("CAUSEWAY_KEYS_FILE", "keys.json"),
            ("CAUSEWAY_READERS", "2"),
            ("CAUSEWAY_LOG_FORMAT", "json"),
        ];
        let config = parse(&format!("listen = \"127.0.0.1:1\"\n{SMALL}"), &env).unwrap();
        assert_eq!(config.listen, "0.0.0.0:9");
        // Relative to the working directory, even if the value equals the default.
        assert_eq!((config.data.as_path(), config.keys.as_path()), (Path::new("here"), Path::new("keys.json")));
        assert_eq!(config.readers, 2);
        assert_eq!(config.log_format, LogFormat::Json);
        let hours = |text: &str, env: &[(&str, &str)]| parse(&format!("{text}\n{SMALL}"), env).unwrap().jobs;
        let daily = JobIntervals { trim_hours: 1, ..JobIntervals::default() };
        assert_eq!(hours("", &[("CAUSEWAY_JOBS_TRIM_HOURS", "1")]), daily);
        let both = [("CAUSEWAY_JOBS_RETENTION_HOURS", "2")];
        assert_eq!(hours("[jobs]\ntrim_hours = 1", &both), JobIntervals { retention_hours: 2, ..daily });
        for wrong in ["many", "-1", "5000000000"] {
            let error = parse(SMALL, &[("CAUSEWAY_READERS", wrong)]).unwrap_err();
            assert_eq!(error.to_string(), "CAUSEWAY_READERS in the environment must be a whole number");
        }
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_refused() {
        assert!(matches!(parse(&format!("lissten = \"x\"\n{SMALL}"), &[]), Err(ConfigError::Parse { .. })));
        let text = "readers = 0\ndrain_s = 9999\nfacts_queues = 17\njobs.train_hours = 8761\n\
            http.connections = 15\nhttp.head_bytes = 8191\nhttp.head_s = 0\nhttp.write_s = 3601";
        let Err(ConfigError::Problems(problems)) = parse(text, &[]) else {
            unreachable!("it was taken");
        };
        let paths: Vec<&str> = problems.iter().map(|p| p.path.as_str()).collect();
        let http = ["http.connections", "http.head_bytes", "http.head_s", "http.write_s"];
        assert_eq!(
            paths,
            [&["tenant", "facts_queues", "readers", "drain_s"], &http[..], &["jobs.train_hours"]].concat()
        );
    }

    #[test]
    fn an_unknown_time_zone_is_reported_with_its_key() {
        let zone = |name: &str| parse(&format!("{SMALL}time_zone = \"{name}\""), &[]);
        assert_eq!(zone("Europe/Berlin").unwrap().edge.tenants[0].time_zone, "Europe/Berlin");
        assert_eq!(parse(SMALL, &[]).unwrap().edge.tenants[0].time_zone, "UTC");
        let said = zone("Mars/Olympus").unwrap_err().to_string();
        assert!(said.contains("tenant[0].time_zone: `Mars/Olympus` is none"), "{said}");
        assert!(zone("").is_err() && zone(&"é".repeat(500)).is_err());
    }

    #[test]
    fn a_webhook_uses_tls_or_the_loopback_interface() {
        let webhook = |url: &str| parse(&format!("{SMALL}webhook = \"{url}\""), &[]);
        for url in ["https://pub.example/sends?a=b", "http://localhost:8080/", "http://127.0.0.2/x", "http://[::1]:1/"]
        {
            assert_eq!(webhook(url).unwrap().edge.tenants[0].webhook.as_deref(), Some(url));
        }
        for url in
            ["http://pub.example/", "http://127.0.0.1.pub.example/", "ftp://localhost/", "/sends", "", "https://"]
        {
            let said = webhook(url).unwrap_err().to_string();
            assert!(said.contains("tenant[0].webhook: an https: URL"), "{url}: {said}");
        }
        assert!(webhook(&format!("https://pub.example/{}", "x".repeat(limits::WEBHOOK_BYTES))).is_err());
    }

    #[test]
    fn the_words_of_a_tenants_catalogue_come_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("causeway.toml");
        let load = |catalogue: &str| {
            std::fs::write(folder.path().join("words.toml"), catalogue).unwrap();
            Config::load(&path, |_| None)
        };
        std::fs::write(&path, format!("{SMALL}\ncatalogue = \"words.toml\"")).unwrap();
        assert!(matches!(Config::load(&path, |_| None), Err(ConfigError::Words { .. })), "it is not there yet");
        let config = load("[[action_type]]\nname = \"hide\"\ncode = 3").unwrap();
        assert!(config.edge.tenants.iter().all(|tenant| tenant.vocabulary.action_type("hide").is_some()));
        assert!(matches!(load("[[action_types]]"), Err(ConfigError::Parse { .. })));
        let Err(ConfigError::Problems(problems)) = load("[[action_type]]\nname = \"hide\"\ncode = 2") else {
            unreachable!("it was taken");
        };
        assert_eq!(
            problems.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(),
            ["tenant[0].catalogue.action_type[0].code"]
        );
    }
}
