//! The configuration keys: printed as the reference, and used to read environment variables.

/// The shape of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingShape {
    /// Text.
    Text,
    /// A path.
    Path,
    /// A whole number, 0 or more.
    Number,
    /// `text` or `json`.
    LogFormat,
}

impl SettingShape {
    /// Description of a valid value, for an error message.
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Path => "a path",
            Self::Number => "a whole number",
            Self::LogFormat => "`text` or `json`",
        }
    }
}

/// One key of the configuration file.
#[derive(Debug)]
pub struct Setting {
    /// The key.
    pub key: &'static str,
    /// Environment variable that overrides the file's value.
    pub env: &'static str,
    /// Shape of the value.
    pub shape: SettingShape,
    /// Default value, as TOML text.
    pub default: &'static str,
    /// Unit, range and effect, for the reference.
    pub meaning: &'static str,
}

/// Every key except those of `[[tenant]]`; keys of `[http]` and `[jobs]` include their table.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "listen",
        env: "CAUSEWAY_LISTEN",
        shape: SettingShape::Text,
        default: "\"127.0.0.1:8788\"",
        meaning: "Address and port to listen on. Port 0 selects a free port; `serve --ready-file` reports it.",
    },
    Setting {
        key: "data",
        env: "CAUSEWAY_DATA",
        shape: SettingShape::Path,
        default: "\"data\"",
        meaning: "Directory of the store, causeway.db. Relative to this file; in the environment, relative to the working directory.",
    },
    Setting {
        key: "keys",
        env: "CAUSEWAY_KEYS_FILE",
        shape: SettingShape::Path,
        default: "\"keys.json\"",
        meaning: "The key file that `causeway keys` writes. Relative like `data`. Only its owner should be able to read it.",
    },
    Setting {
        key: "sibling_publish_s",
        env: "CAUSEWAY_SIBLING_PUBLISH_S",
        shape: SettingShape::Number,
        default: "60",
        meaning: "Seconds, 1 to 3600, after which a change of one visitor is published to the person's other visitors; also the shortest time between two such publications of a person. A cut does not wait.",
    },
    Setting {
        key: "kv_settled_s",
        env: "CAUSEWAY_KV_SETTLED_S",
        shape: SettingShape::Number,
        default: "120",
        meaning: "Seconds, 1 to 3600, until every location of the edge shows a KV write. On Cloudflare a write takes a minute to arrive, and a location caches the previous value for another minute. `verify` reads a key twice, with this pause between the reads.",
    },
    Setting {
        key: "log",
        env: "CAUSEWAY_LOG",
        shape: SettingShape::Text,
        default: "\"info\"",
        meaning: "Log level: error, warn, info, debug or trace, or directives such as `info,causeway_origin=debug`.",
    },
    Setting {
        key: "log_format",
        env: "CAUSEWAY_LOG_FORMAT",
        shape: SettingShape::LogFormat,
        default: "\"text\"",
        meaning: "Form of the log lines on stderr: text or json.",
    },
    Setting {
        key: "readers",
        env: "CAUSEWAY_READERS",
        shape: SettingShape::Number,
        default: "4",
        meaning: "Read-only connections to the store, 1 to 64.",
    },
    Setting {
        key: "most_unfolded",
        env: "CAUSEWAY_MOST_UNFOLDED",
        shape: SettingShape::Number,
        default: "4000000",
        meaning: "Facts, 10000 to 100000000, that may wait in the log to be folded; each takes about 200 bytes of memory. Above this number, syncs are answered 503 and retried later.",
    },
    Setting {
        key: "drain_s",
        env: "CAUSEWAY_DRAIN_S",
        shape: SettingShape::Number,
        default: "10",
        meaning: "Seconds, up to 600, that a stop waits for running requests.",
    },
    Setting {
        key: "facts_queues",
        env: "CAUSEWAY_FACTS_QUEUES",
        shape: SettingShape::Number,
        default: "1",
        meaning: "Queues, 1 to 16, over which the worker spreads the facts of its visitors; the platform's queue takes 5,000 messages a second. `causeway config edge` hands the number to the worker, and `causeway config check --wrangler FILE` compares it with the bindings and consumers of the worker's file. Add the queues before you raise it; before you lower it, see docs/DEPLOY.md.",
    },
    Setting {
        key: "publish.account",
        env: "CAUSEWAY_PUBLISH_ACCOUNT",
        shape: SettingShape::Text,
        default: "\"\"",
        meaning: "Id of the platform's account, 32 hexadecimal digits. With `publish.namespace`, the origin itself writes the KV where 1,000 keys or more are due, 10,000 keys with one call; the publish consumer still writes fewer keys, and the keys of whole tenants. The key file must hold the platform's token: see `causeway keys set-platform-token`. Empty: the publish consumer writes all keys, about 200 a second.",
    },
    Setting {
        key: "publish.namespace",
        env: "CAUSEWAY_PUBLISH_NAMESPACE",
        shape: SettingShape::Text,
        default: "\"\"",
        meaning: "Id of the KV namespace that the worker reads, 32 hexadecimal digits: the `id` of the binding PROFILES in wrangler.toml.",
    },
    Setting {
        key: "publish.api",
        env: "CAUSEWAY_PUBLISH_API",
        shape: SettingShape::Text,
        default: "\"https://api.cloudflare.com/client/v4\"",
        meaning: "Base address of the platform's REST API.",
    },
    Setting {
        key: "publish.lanes",
        env: "CAUSEWAY_PUBLISH_LANES",
        shape: SettingShape::Number,
        default: "4",
        meaning: "Bulk batches in progress at the same time, 1 to 16. Each takes a thread and up to 40 MB of memory. While facts wait to be folded, one batch is in progress.",
    },
    Setting {
        key: "http.connections",
        env: "CAUSEWAY_HTTP_CONNECTIONS",
        shape: SettingShape::Number,
        default: "1024",
        meaning: "Most open connections, 16 to 65536. If all are in use, a new connection replaces the one that has been without an answer for the longest time. Connections that carry syncs (up to a quarter of all) and requests with a valid token (up to half of all) are not replaced. Each connection takes a file descriptor, up to twice `head_bytes`, and up to 256 KB of kernel memory if its reader is slow.",
    },
    Setting {
        key: "http.head_bytes",
        env: "CAUSEWAY_HTTP_HEAD_BYTES",
        shape: SettingShape::Number,
        default: "32768",
        meaning: "Bytes, 8192 to 1048576, of a request's line and headers that are always accepted; the default is the usual limit of proxies. A request with over twice as many bytes, or with over 100 headers, is answered 431.",
    },
    Setting {
        key: "http.head_s",
        env: "CAUSEWAY_HTTP_HEAD_S",
        shape: SettingShape::Number,
        default: "15",
        meaning: "Seconds, 1 to 3600, that the request line and headers may take from the first byte on; then the connection is closed.",
    },
    Setting {
        key: "http.body_s",
        env: "CAUSEWAY_HTTP_BODY_S",
        shape: SettingShape::Number,
        default: "30",
        meaning: "Seconds, 1 to 3600, that a body may take; then the request is answered 408.",
    },
    Setting {
        key: "http.idle_s",
        env: "CAUSEWAY_HTTP_IDLE_S",
        shape: SettingShape::Number,
        default: "75",
        meaning: "Seconds, 1 to 3600, that a connection may wait for a request; then it is closed. Choose more than the idle time of the proxy in front (nginx: 60 s); otherwise the proxy sends requests into closing connections.",
    },
    Setting {
        key: "http.write_s",
        env: "CAUSEWAY_HTTP_WRITE_S",
        shape: SettingShape::Number,
        default: "60",
        meaning: "Seconds, 1 to 3600, within which the client must accept the next part of an answer, about 64 KB; then the connection is closed. The whole of an answer has no time limit.",
    },
    Setting {
        key: "jobs.trim_hours",
        env: "CAUSEWAY_JOBS_TRIM_HOURS",
        shape: SettingShape::Number,
        default: "24",
        meaning: "Hours, up to 8760, between two runs of the job `trim` in a serving origin; 0: never by timer. A job that is due when the origin starts runs then.",
    },
    Setting {
        key: "jobs.retention_hours",
        env: "CAUSEWAY_JOBS_RETENTION_HOURS",
        shape: SettingShape::Number,
        default: "24",
        meaning: "The same for `retention`, which erases visitors of tenants with `forget_after_days`.",
    },
    Setting {
        key: "jobs.reconcile_hours",
        env: "CAUSEWAY_JOBS_RECONCILE_HOURS",
        shape: SettingShape::Number,
        default: "168",
        meaning: "The same for `reconcile`. A run takes about 60 bytes of memory for each visitor and each login.",
    },
    Setting {
        key: "jobs.train_hours",
        env: "CAUSEWAY_JOBS_TRAIN_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same for `train`, for each tenant. On a large store a run takes minutes of one processor and half a gigabyte of memory. A model is used for 14 days.",
    },
    Setting {
        key: "jobs.compact_hours",
        env: "CAUSEWAY_JOBS_COMPACT_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same for `compact`, which publishes at once the changes that wait for `sibling_publish_s`. It is useful if that time is long.",
    },
    Setting {
        key: "jobs.rollup_hours",
        env: "CAUSEWAY_JOBS_ROLLUP_HOURS",
        shape: SettingShape::Number,
        default: "168",
        meaning: "The same for `rollup`, which recomputes the sums of experiments.",
    },
    Setting {
        key: "jobs.verify_hours",
        env: "CAUSEWAY_JOBS_VERIFY_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same for `verify`, which reads each key of the KV once through the edge. The platform bills one read per key, about half a dollar for a million, and no other job runs meanwhile. Set it, for example to 168, once an edge of this release drains the outbox; without such an edge a run waits ten minutes and fails.",
    },
    Setting {
        key: "jobs.publish_hours",
        env: "CAUSEWAY_JOBS_PUBLISH_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same for `publish`, which writes every key of the KV again. The platform bills one write per key, about five dollars for a million. If the KV can be read, `verify` finds the keys that need a write for a tenth of that.",
    },
    Setting {
        key: "jobs.activity_hours",
        env: "CAUSEWAY_JOBS_ACTIVITY_HOURS",
        shape: SettingShape::Number,
        default: "24",
        meaning: "The same for `activity`, which sums up in which hours of the week all people are active. It reads every person.",
    },
    Setting {
        key: "jobs.scrub_hours",
        env: "CAUSEWAY_JOBS_SCRUB_HOURS",
        shape: SettingShape::Number,
        default: "168",
        meaning: "The same for `scrub`, which reads the whole store once and reports damage.",
    },
    Setting {
        key: "jobs.index_hours",
        env: "CAUSEWAY_JOBS_INDEX_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same for `index`, which rebuilds the audience index. Audience queries are not answered until the index is complete.",
    },
];

/// Keys of a `[[tenant]]` table: key, default, meaning.
const TENANT: &[(&str, &str, &str)] = &[
    (
        "name",
        "needed",
        "Name of the tenant: 1 to 32 of a-z, 0-9 and -. It is part of every KV key, so it must never change.",
    ),
    ("hosts", "needed", "Hostnames, without port, that select this tenant at the edge."),
    ("origins", "[]", "Origins such as https://www.pub.example whose pages may call the edge with credentials."),
    (
        "dev",
        "false",
        "Development only: the demo page answers, cookies work over plain HTTP, `POST /admin/v1/proofs` signs proofs. Never set it for real visitors.",
    ),
    (
        "no_signal",
        "\"deny\"",
        "Meaning of a request without any consent signal: `deny` (no identity) or `allow` (full identity, for countries whose law requires no signal).",
    ),
    ("tcf_purposes", "[1, 3, 4]", "TCF purposes that all need consent before a visitor is recognised."),
    ("tcf_vendor", "none", "Own id in IAB's Global Vendor List; if set, this vendor needs consent too."),
    (
        "kinds",
        "[{ name = \"member\", code = 1, unique = true }]",
        "Kinds of alternate ids. `code` (1 to 255) is permanent: never change it, and never give it to another kind. At most one kind is `unique`: it names the person. \
     An id of another kind that was seen with more visitors than its `group_limit` (2 to 10,000, default 1,000) links nothing, because it is a shared address or a default value.",
    ),
    (
        "link_threshold",
        "1.0",
        "Weight from which evidence links visitors: over 0, up to 1. A proven login and an imported match of weight 1 weigh 1; an id that a page names without a proof \
     (of a kind that is not `unique`) weighs 0.9, so it links at a threshold of 0.9 or less, and for decisions only. Such a link shows no other visitor's data in `/v1/me` and widens no \
     erasure. Evidence of one visitor and one id is combined as independent (noisy-or) and stays under 1 without a login. Evidence below the threshold is stored and reported. \
     After a change run `causeway job run reconcile`.",
    ),
    (
        "member_proof",
        "\"required\"",
        "How an id of a unique kind is proven. `required`: by a token that the publisher signed. `trusted`: by the page's claim alone. \
     The risk of `trusted`: anyone who knows or guesses a member id becomes that member for the system: such a person records pages and purchases under it, moves its lookup, \
     links a browser to the person permanently, and sees ads chosen from the member's history. `/v1/me` then shows only the visitor's own data, and erasure reaches no further. \
     Use it only for pages that cannot sign.",
    ),
    (
        "attribute_names",
        "\"pages\"",
        "Source of new attribute names. A tenant has at most 10,000, each with the type of its first value. `pages`: pages too, except for the last 1,000 names; \
     any holder of a visitor cookie can use up the others. `admin`: only the admin API and imports; a page's value under another name is refused.",
    ),
    ("proof_header", "none", "Request header, in lower case, that may carry the proof."),
    ("proof_cookie", "none", "Cookie that may carry the proof: the publisher's own signed session."),
    (
        "forget_after_days",
        "0",
        "Days, up to 3650, after which the job `retention` erases a visitor that was not seen, as if the visitor had requested it: its tombstone stays in the KV, and a browser that \
     returns later is a new visitor. 0: never. The visitor's part in experiments is erased too, so choose at least the length of an experiment.",
    ),
    (
        "time_zone",
        "\"UTC\"",
        "Time zone of the tenant's people, by its name in the time zone database, such as Europe/Berlin; the hours in which a person is active are hours of this zone. A person whose attribute \
     `time_zone` is such a name has that zone instead.",
    ),
    (
        "webhook",
        "none",
        "URL to which sends (`causeway audience send`) are posted: `https:`, or `http:` on this machine. Posts are signed with the key that \
     `causeway keys rotate webhook` creates, as Standard Webhooks specifies.",
    ),
    (
        "publish_delay_s",
        "10",
        "Seconds, up to 600, that a snapshot takes to reach the KV; a younger visitor is not looked up.",
    ),
    (
        "caps_when_unknown",
        "\"count\"",
        "What happens to an ad with caps while actions of the person may be missing, because its snapshot was not read or was truncated. `count`: the known actions count, so \
     the ad may be shown more often than its caps allow. `hold`: the ad is not placed.",
    ),
    (
        "mint_limit",
        "none",
        "Name of the worker's rate limit for new visitors by client network, from `[[ratelimits]]` in its configuration; MINT_LIMIT if not set. A name without a binding \
     limits nothing.",
    ),
    ("events_limit", "none", "The same for calls of /v1/events, by visitor; EVENTS_LIMIT if not set."),
    (
        "most_value_micros",
        "none",
        "Largest value of an event from a page, in millionths of the currency; a purchase above it is refused. Any holder of a visitor cookie can report a purchase of \
     any amount; campaigns with `share_ppm` pay a share of it, and experiments count it. Set it above the largest real purchase. It does not bound imports and the admin API.",
    ),
    ("house_ad", "none", "The ad shown while no catalogue is available: a table that the page receives unchanged."),
    ("house_landing", "none", "Target of a click on the house ad: an https or http address."),
    (
        "catalogue",
        "none",
        "File, next to this one, with the names of action types and view types: tables `[[action_type]]` and `[[view_type]]`, each with a `name` and a `code` \
     (action types 3 to 255, view types 1 to 255) that never changes. `impression` (1) and `click` (2) always exist. \
     The ads come with `causeway catalogue apply`.",
    ),
];

/// The reference as text: a commented configuration file.
#[must_use]
pub fn reference_text() -> String {
    let mut out = String::from(
        "# Configuration of Causeway: every key, its default and its meaning.\n\
         # `causeway --config FILE` or CAUSEWAY_CONFIG_FILE names the file (default: causeway.toml).\n\
         # A variable of the environment wins over the file.\n",
    );
    for s in SETTINGS {
        out.push_str(&format!("\n{}# Environment: {}\n{} = {}\n", comment_lines(s.meaning), s.env, s.key, s.default));
    }
    out.push_str("\n# One table for each publisher; the edge gets these through `causeway config edge`.\n[[tenant]]\n");
    for (key, default, meaning) in TENANT {
        let line = match *default {
            "needed" | "none" => format!("# {key} = …   ({default})"),
            value => format!("{key} = {value}"),
        };
        out.push_str(&format!("\n{}{line}\n", comment_lines(meaning)));
    }
    out
}

/// The text as comment lines of at most 100 characters.
fn comment_lines(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > 100 {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
    out
}

/// The reference as JSON, for `--output json`.
#[must_use]
pub fn reference_json() -> serde_json::Value {
    let settings = SETTINGS
        .iter()
        .map(|s| serde_json::json!({"key": s.key, "env": s.env, "default": s.default, "meaning": s.meaning}));
    let tenant = TENANT.iter().map(|(key, default, meaning)| {
        serde_json::json!({"key": format!("tenant.{key}"), "default": default, "meaning": meaning})
    });
    settings.chain(tenant).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use causeway_shared::settings::config::TenantConfig;

    #[test]
    fn every_key_but_a_tenants_is_described() {
        let document = serde_json::to_value(crate::base::config::ConfigFile::default()).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let tables = ["http", "jobs", "publish"];
        let within = |table| keys(&document[table]).into_iter().map(move |key| format!("{table}.{key}"));
        let mut all: Vec<String> = keys(&document).into_iter().filter(|key| !tables.contains(&key.as_str())).collect();
        all.extend(tables.into_iter().flat_map(within));
        let mut described: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        all.sort_unstable();
        described.sort_unstable();
        assert_eq!(all, described);
    }

    #[test]
    fn every_key_of_a_tenant_is_described() {
        let tenant: TenantConfig = serde_json::from_str(r#"{"name":"pub","hosts":["ads.pub.example"]}"#).unwrap();
        let json = serde_json::to_value(tenant).unwrap();
        let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        // The edge's form omits these keys, the last three only if they are not set.
        keys.extend(["link_threshold", "forget_after_days", "time_zone", "webhook"]);
        keys.extend(["mint_limit", "events_limit", "most_value_micros"]);
        let mut described: Vec<&str> = TENANT.iter().map(|(key, ..)| *key).collect();
        keys.sort_unstable();
        described.sort_unstable();
        assert_eq!(keys, described);
    }

    #[test]
    fn what_the_reference_prints_is_a_configuration() {
        let text = reference_text()
            .replace("# name = …   (needed)", "name = \"pub\"")
            .replace("# hosts = …   (needed)", "hosts = [\"ads.pub.example\"]");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("causeway.toml");
        std::fs::write(&file, text).unwrap();
        let config = crate::base::config::Config::load(&file, |_| None).unwrap();
        std::fs::write(&file, "[[tenant]]\nname = \"pub\"\nhosts = [\"ads.pub.example\"]\n").unwrap();
        assert_eq!(config, crate::base::config::Config::load(&file, |_| None).unwrap());
    }

    #[test]
    fn the_risk_of_trusting_pages_is_said() {
        let text = reference_text().replace("\n#", "");
        assert!(text.contains("The risk of `trusted`: anyone who knows"));
    }
}
