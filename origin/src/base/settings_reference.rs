//! What can be configured: the list that the reference prints, and by which the environment's values are read.

/// What a setting's value is.
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
    /// What a value must be, for an error message.
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

/// One key of the file.
#[derive(Debug)]
pub struct Setting {
    /// The key.
    pub key: &'static str,
    /// The variable of the environment that wins over it.
    pub env: &'static str,
    /// What the value is.
    pub shape: SettingShape,
    /// The value when nothing is said.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// Every key but those of `[[tenant]]`; of `[http]` and `[jobs]` with their table.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "listen",
        env: "CAUSEWAY_LISTEN",
        shape: SettingShape::Text,
        default: "\"127.0.0.1:8788\"",
        meaning: "Address and port to listen on. Port 0 takes a free one; `serve --ready-file` tells which.",
    },
    Setting {
        key: "data",
        env: "CAUSEWAY_DATA",
        shape: SettingShape::Path,
        default: "\"data\"",
        meaning: "Directory of the store, causeway.db. Relative to this file; in the environment, to the working directory.",
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
        meaning: "Seconds, 1 to 3600, after which a person's other visitors get what one of them did; also the shortest time between two such publishes of a person. A cut does not wait.",
    },
    Setting {
        key: "kv_settled_s",
        env: "CAUSEWAY_KV_SETTLED_S",
        shape: SettingShape::Number,
        default: "120",
        meaning: "Seconds, 1 to 3600, until every location of the edge shows what the KV took: on Cloudflare a write takes a minute to get there, and a location keeps for a minute more what it read before. `verify` looks twice, so far apart.",
    },
    Setting {
        key: "log",
        env: "CAUSEWAY_LOG",
        shape: SettingShape::Text,
        default: "\"info\"",
        meaning: "What is logged: error, warn, info, debug or trace, or directives such as `info,causeway_origin=debug`.",
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
        meaning: "Facts, 10000 to 100000000, that may wait in the log to be folded, in some 200 bytes of memory each; above, syncs are told to come back.",
    },
    Setting {
        key: "drain_s",
        env: "CAUSEWAY_DRAIN_S",
        shape: SettingShape::Number,
        default: "10",
        meaning: "Seconds, up to 600, that a stop waits for the requests under way.",
    },
    Setting {
        key: "http.connections",
        env: "CAUSEWAY_HTTP_CONNECTIONS",
        shape: SettingShape::Number,
        default: "1024",
        meaning: "Connections, 16 to 65536, that may be open at once. Where all are, the one that has gone longest without an answer is closed for the next, but no more than a fourth of all while they carry syncs, and half of all while they carry requests with a valid token. Each takes a file descriptor, up to twice `head_bytes`, and up to 256 KB of the kernel's for a reader that is slow.",
    },
    Setting {
        key: "http.head_bytes",
        env: "CAUSEWAY_HTTP_HEAD_BYTES",
        shape: SettingShape::Number,
        default: "32768",
        meaning: "Bytes, 8192 to 1048576, of a request's line and headers that are taken in any case, as many as a proxy lets through by default. One with over twice as many, or with over 100 headers, is answered 431.",
    },
    Setting {
        key: "http.head_s",
        env: "CAUSEWAY_HTTP_HEAD_S",
        shape: SettingShape::Number,
        default: "15",
        meaning: "Seconds, 1 to 3600, that line and headers may take from the first byte on; then the connection is closed.",
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
        meaning: "Seconds, 1 to 3600, that a connection may wait for a request; then it is closed. More than the proxy in front leaves one unused (nginx: 60 s), which sends a request into a closing one else.",
    },
    Setting {
        key: "http.write_s",
        env: "CAUSEWAY_HTTP_WRITE_S",
        shape: SettingShape::Number,
        default: "60",
        meaning: "Seconds, 1 to 3600, in which a reader must take some of an answer, of which some 64 KB count as some; then the connection is closed. An answer that is taken slowly has no limit.",
    },
    Setting {
        key: "jobs.trim_hours",
        env: "CAUSEWAY_JOBS_TRIM_HOURS",
        shape: SettingShape::Number,
        default: "24",
        meaning: "Hours, up to 8760, between two runs of the job `trim` in a serving origin; 0: never by itself. A job that is due when the origin starts runs then.",
    },
    Setting {
        key: "jobs.retention_hours",
        env: "CAUSEWAY_JOBS_RETENTION_HOURS",
        shape: SettingShape::Number,
        default: "24",
        meaning: "The same of `retention`, which forgets visitors of tenants with `forget_after_days`.",
    },
    Setting {
        key: "jobs.reconcile_hours",
        env: "CAUSEWAY_JOBS_RECONCILE_HOURS",
        shape: SettingShape::Number,
        default: "168",
        meaning: "The same of `reconcile`. It takes some 60 bytes of memory for each visitor and each login while it runs.",
    },
    Setting {
        key: "jobs.train_hours",
        env: "CAUSEWAY_JOBS_TRAIN_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same of `train`, for each tenant: at a large store minutes of a processor and half a gigabyte of memory. A model is used for 14 days.",
    },
    Setting {
        key: "jobs.compact_hours",
        env: "CAUSEWAY_JOBS_COMPACT_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same of `compact`. Of use where `sibling_publish_s` is long: it publishes at once what waits for that.",
    },
    Setting {
        key: "jobs.rollup_hours",
        env: "CAUSEWAY_JOBS_ROLLUP_HOURS",
        shape: SettingShape::Number,
        default: "168",
        meaning: "The same of `rollup`, which counts the sums of experiments anew.",
    },
    Setting {
        key: "jobs.verify_hours",
        env: "CAUSEWAY_JOBS_VERIFY_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same of `verify`, which reads each key of the KV once through the edge: the platform bills a read a key, some half a dollar a million, and no other job runs meanwhile. Set it, to 168 say, once an edge of this release drains: without one a run waits ten minutes and fails.",
    },
    Setting {
        key: "jobs.publish_hours",
        env: "CAUSEWAY_JOBS_PUBLISH_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same of `publish`, which writes every key of the KV anew: the platform bills a write a key, some five dollars a million. Where the KV can be read, `verify` finds what is to be written for a tenth of that.",
    },
    Setting {
        key: "jobs.rhythm_hours",
        env: "CAUSEWAY_JOBS_RHYTHM_HOURS",
        shape: SettingShape::Number,
        default: "24",
        meaning: "The same of `rhythm`, which sums up in which hours of the week all people are active: it reads everybody.",
    },
    Setting {
        key: "jobs.scrub_hours",
        env: "CAUSEWAY_JOBS_SCRUB_HOURS",
        shape: SettingShape::Number,
        default: "168",
        meaning: "The same of `scrub`, which reads everything in the store once and reports what is damaged.",
    },
    Setting {
        key: "jobs.columns_hours",
        env: "CAUSEWAY_JOBS_COLUMNS_HOURS",
        shape: SettingShape::Number,
        default: "0",
        meaning: "The same of `columns`, which has the columns of audiences built anew: audiences do not answer until they are.",
    },
];

/// Keys of a `[[tenant]]` table: key, default, meaning.
const TENANT: &[(&str, &str, &str)] = &[
    ("name", "needed", "Name of the tenant: 1 to 32 of a-z, 0-9 and -. Part of every KV key: it never changes."),
    ("hosts", "needed", "Hostnames, without port, that select this tenant at the edge."),
    ("origins", "[]", "Origins such as https://www.pub.example whose pages may call the edge with credentials."),
    (
        "dev",
        "false",
        "Development only: the demo page answers, cookies work over plain HTTP, `POST /admin/v1/proofs` signs proofs. Never true where real people come by.",
    ),
    (
        "no_signal",
        "\"deny\"",
        "What the absence of every consent signal means: `deny` (no identity) or `allow` (full identity, for places where no law asks for a signal).",
    ),
    ("tcf_purposes", "[1, 3, 4]", "TCF purposes that must all be consented to before a visitor is recognised."),
    ("tcf_vendor", "none", "Own id in IAB's Global Vendor List; when set, that vendor needs consent too."),
    (
        "kinds",
        "[{ name = \"member\", code = 1, unique = true }]",
        "Kinds of alternate ids. `code` (1 to 255) is for ever: never change it, never give it to another kind. One kind at most is `unique`: it names the person. \
     An id of another kind that was seen with more visitors than its `crowd` (2 to 10,000, default 1,000) is nobody's and links no one: a shared address, a default value.",
    ),
    (
        "link_threshold",
        "1.0",
        "From which weight on evidence joins views: over 0, up to 1. A proven login and an imported match of weight 1 weigh 1; an id that a page names without a proof \
     (of a kind that is not `unique`) weighs 0.9, so that it links where this is 0.9 or less: for decisions alone. Such a link shows nobody's data in `/v1/me` and widens no \
     erasure. Evidence of one visitor and one id counts together as independent (noisy-or) and stays under 1 without a login. What comes to less is kept and reported. \
     After a change run `causeway job run reconcile`.",
    ),
    (
        "member_proof",
        "\"required\"",
        "How an id of a unique kind is proven. `required`: by a token the publisher signed. `trusted`: the page's word is taken. \
     The risk of `trusted`: anyone who knows or guesses a member id becomes that member in the eyes of the system - puts pages and purchases under it, moves its lookup, \
     links an own browser to the person for good, and sees ads chosen from that person's history. `/v1/me` then shows the visitor's own data alone, and erasure reaches no further. \
     Only for pages that cannot sign.",
    ),
    (
        "attribute_names",
        "\"pages\"",
        "Who may bring new names of attributes, of which a tenant has 10,000, each with the type of its first value. `pages`: pages too, but for the last 1,000; \
     whoever has a visitor cookie can use those up. `admin`: the admin side and imports alone; what pages say under another name is refused.",
    ),
    ("proof_header", "none", "Request header, in lower case, that may carry the proof."),
    ("proof_cookie", "none", "Cookie that may carry the proof: the publisher's own signed session."),
    (
        "forget_after_days",
        "0",
        "Days, up to 3650, after which a visitor that was not seen is erased by the job `retention`, as if it had asked for it: its tombstone stays in the KV, and a browser that \
     comes back after all begins anew. 0: never. What experiments counted of it goes too: no fewer days than an experiment takes.",
    ),
    (
        "time_zone",
        "\"UTC\"",
        "Time zone of the people, by its name in the time zone database, such as Europe/Berlin: when a person is most active, it is by this clock. A person whose attribute \
     `time_zone` is such a name has that one instead.",
    ),
    (
        "webhook",
        "none",
        "Where sends (`causeway audience send`) are told: an `https:` URL, or one of `http:` on this machine. What is posted there is signed with the key that \
     `causeway keys rotate webhook` makes, as Standard Webhooks says.",
    ),
    (
        "publish_delay_s",
        "10",
        "Seconds, up to 600, a snapshot takes to reach the KV; a younger visitor is not looked up.",
    ),
    (
        "caps_when_unknown",
        "\"count\"",
        "What becomes of an ad with caps while actions of the person may be missing, because its snapshot was not read or left some out. `count`: the known actions count, so \
     that it may be seen more often than its caps say. `hold`: it is not placed.",
    ),
    (
        "mint_limit",
        "none",
        "The worker's rate limit for new visitors, by network of clients: a name of `[[ratelimits]]` in its configuration. Without one MINT_LIMIT. What the worker is not \
     bound to limits nothing.",
    ),
    ("events_limit", "none", "The same for calls of /v1/events, by visitor. Without one EVENTS_LIMIT."),
    (
        "most_value_micros",
        "none",
        "What an event of a page may be worth, at most, in millionths of the currency: a purchase of more is refused. Whoever has a visitor cookie can say that it bought for \
     any amount, which campaigns by `share_ppm` pay a share of and experiments count: set it to more than anybody spends at once. Imports and the admin side are not asked.",
    ),
    ("house_ad", "none", "The ad shown while no catalogue decides: a table handed to the page as it is."),
    ("house_landing", "none", "Where a click on the house ad leads: an https or http address."),
    (
        "catalogue",
        "none",
        "File, beside this one, with the words of actions and placements: tables `[[verb]]` and `[[view_type]]`, each with a `name` and a `code` \
     (verbs 3 to 255, view types 1 to 255) that is for ever. `impression` (1) and `click` (2) are always there. \
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

/// The text as comment lines of 100 characters at most.
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
        let tables = ["http", "jobs"];
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
        // The edge is not told of these, of the last three where nothing is said.
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
