//! What the operator configures for each tenant, as both sides read it.
//!
//! The origin reads one TOML file; `causeway config edge` prints the part the edge needs as the JSON that
//! [`EdgeConfig`] describes. One definition, checked by one function, [`EdgeConfig::problems`].

use crate::base::problems::{ConfigProblem, ProblemList};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::base::ids::{KindCode, Micros, TenantId};
use crate::base::limits;
use crate::facts::evidence::{EvidenceWeight, LinkClass};
use crate::settings::vocabulary::Vocabulary;

/// What an answer of `/v1/decide` says besides what became of each kind of id: no kind has such a name.
pub const ANSWER_FIELDS: [&str; 13] = [
    "visitor",
    "visitor_token",
    "person",
    "decisions",
    "catalogue",
    "kv_reads",
    "consent",
    "reason",
    "degraded",
    "trace",
    "attributes",
    "rejected",
    "warnings",
];

/// What the edge worker is configured with: the variable `CAUSEWAY_CONFIG`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeConfig {
    /// The publishers served, one a hostname.
    #[serde(rename = "tenant", default)]
    pub tenants: Vec<TenantConfig>,
}

/// One publisher whose sites share one identity space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Its name: 1 to 32 of `a-z`, `0-9`, `-`; part of every KV key, so it never changes.
    pub name: String,
    /// Hostnames that select it, without port.
    pub hosts: Vec<String>,
    /// Origins (`https://www.pub.example`) whose pages may call the edge with credentials.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Development only: the demo page and its helpers answer, cookies work over plain HTTP.
    #[serde(default)]
    pub dev: bool,
    /// What the absence of any consent signal means.
    #[serde(default)]
    pub no_signal: NoSignal,
    /// TCF purposes that must all be consented to before a visitor is recognised. Default 1, 3, 4.
    #[serde(default = "default_purposes")]
    pub tcf_purposes: Vec<u8>,
    /// Own id in IAB's Global Vendor List; when set, that vendor needs consent too.
    #[serde(default)]
    pub tcf_vendor: Option<u16>,
    /// Kinds of alternate ids. Default: `member` alone, with code 1, unique.
    #[serde(default = "default_kinds")]
    pub kinds: Vec<IdKind>,
    /// From which weight on evidence that is no login links: over 0, up to 1. What comes to less is only reported. Ids that
    /// pages name without a proof weigh [`EvidenceWeight::CLAIM`]. Default 1: logins alone link. The edge is not told of it.
    #[serde(default = "default_threshold", skip_serializing)]
    pub link_threshold: f64,
    /// How an id of a unique kind is proven. Default `required`.
    #[serde(default)]
    pub member_proof: ProofPolicy,
    /// Request header that may carry the member's proof (lower case), beside `user.proofs`.
    #[serde(default)]
    pub proof_header: Option<String>,
    /// Cookie that may carry the member's proof: the publisher's own signed session.
    #[serde(default)]
    pub proof_cookie: Option<String>,
    /// Seconds a snapshot takes to reach the KV: a visitor younger than this is not looked up. Default 10.
    #[serde(default = "default_publish_delay")]
    pub publish_delay_s: u32,
    /// Days after which a visitor that was not seen is erased; 0: never. The edge is not told of it.
    #[serde(default, skip_serializing)]
    pub forget_after_days: u32,
    /// The time zone of people who do not say theirs, by its name in the IANA's database. Default UTC. The edge is not told.
    #[serde(default = "default_time_zone", skip_serializing)]
    pub time_zone: String,
    /// Where sends are told: an `https:` URL, or one of `http:` on this machine. The edge is not told.
    #[serde(default, skip_serializing)]
    pub webhook: Option<String>,
    /// Who may bring new names of attributes. Default `pages`.
    #[serde(default)]
    pub attribute_names: NamePolicy,
    /// The worker's rate limit for new visitors, by network of clients: a name of `[[ratelimits]]` in its configuration. What
    /// the worker is not bound to limits nothing. Default `MINT_LIMIT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mint_limit: Option<String>,
    /// The one for calls of `/v1/events`, by visitor. Default `EVENTS_LIMIT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_limit: Option<String>,
    /// What an event of a page may be worth, at most, in millionths of the currency: whoever has a visitor cookie can say that
    /// it bought for any amount, which campaigns by `share_ppm` pay for and experiments count. Imports and the admin side are
    /// not asked. Default [`limits::VALUE_MICROS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_value_micros: Option<Micros>,
    /// What becomes of an ad with caps while it is unknown how often it was seen: part of the person's data could not be read.
    /// Default `count`.
    #[serde(default)]
    pub caps_when_unknown: UnknownCaps,
    /// The ad shown while no catalogue decides: an opaque JSON object for the page. Default: none, `"ad": null`.
    #[serde(default)]
    pub house_ad: Option<serde_json::Value>,
    /// Where a click on the house ad leads: an `https` or `http` address. Default: none, a click is not offered.
    #[serde(default)]
    pub house_landing: Option<String>,
    /// The file with the words of actions and placements, beside the configuration. Default: none.
    #[serde(default)]
    pub catalogue: Option<String>,
    /// The words in that file; the origin reads it, the edge is given it.
    #[serde(default, skip_serializing_if = "Vocabulary::is_empty")]
    pub vocabulary: Vocabulary,
}

/// What no consent signal at all means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoSignal {
    /// No identity.
    #[default]
    Deny,
    /// Full identity: for places and pages where no law asks for a signal.
    Allow,
}

/// What becomes of an ad with caps while actions that count for them may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownCaps {
    /// The known actions count: the ad may be seen more often than its caps say.
    #[default]
    Count,
    /// The ad is held back.
    Hold,
}

/// Who may bring new names of attributes, of which a tenant has [`limits::ATTRIBUTE_NAMES`] for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamePolicy {
    /// Pages too, but for the last [`limits::ATTRIBUTE_NAMES_RESERVED`]. Whoever has a visitor cookie can use the others up,
    /// and say first what type a name has.
    #[default]
    Pages,
    /// The admin side alone, and files imported: what pages say under another name is refused.
    Admin,
}

impl NamePolicy {
    /// Whether a page may bring a name to so many.
    #[must_use]
    pub fn lets_pages(self, names: usize) -> bool {
        self == Self::Pages && names < limits::ATTRIBUTE_NAMES - limits::ATTRIBUTE_NAMES_RESERVED
    }
}

/// How an id of a unique kind is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofPolicy {
    /// Only with a token signed by the publisher (API.md).
    #[default]
    Required,
    /// The page's word is taken: anyone who knows a member id can put facts under it and move its lookup,
    /// and sees ads chosen from its history. `/v1/me` then shows `own` alone. For pages that cannot sign.
    Trusted,
}

/// A kind of alternate id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdKind {
    /// Its name in requests: 1 to 32 of `a-z`, `0-9`, `_`.
    pub name: String,
    /// Its small integer in keys and facts, 1 to 255; never reused for another kind.
    pub code: u8,
    /// Whether a visitor holds at most one id of it, and a person too.
    #[serde(default)]
    pub unique: bool,
    /// An id of a kind that is not unique is nobody's, and links no one, once it was seen with more visitors than this.
    /// 2 to 10,000; default 1,000. Visitors of a unique id are one person's however many they are.
    #[serde(default = "default_crowd", skip_serializing)]
    pub crowd: u32,
}

impl IdKind {
    /// The code as facts carry it.
    #[must_use]
    pub fn code(&self) -> KindCode {
        KindCode(self.code)
    }
}

fn default_purposes() -> Vec<u8> {
    vec![1, 3, 4]
}

fn default_kinds() -> Vec<IdKind> {
    vec![IdKind { name: "member".to_owned(), code: 1, unique: true, crowd: default_crowd() }]
}

fn default_crowd() -> u32 {
    limits::CROWD
}

fn default_threshold() -> f64 {
    1.0
}

fn is_binding(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}

fn default_publish_delay() -> u32 {
    10
}

impl EdgeConfig {
    /// The tenant of a name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&TenantConfig> {
        self.tenants.iter().find(|t| t.name == name)
    }

    /// Everything wrong with the document, all at once; empty when it can be used.
    #[must_use]
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = ProblemList::default();
        if self.tenants.is_empty() || self.tenants.len() > limits::TENANTS {
            found.say("tenant", format!("between 1 and {} tenants are needed", limits::TENANTS));
        }
        let mut names: Vec<&str> = Vec::new();
        // A browser's hostname has no capitals, whatever is written here.
        let hosts: Vec<Vec<String>> = self
            .tenants
            .iter()
            .map(|tenant| tenant.hosts.iter().map(|host| host.to_ascii_lowercase()).collect())
            .collect();
        let mut seen: Vec<&str> = Vec::new();
        for (i, tenant) in self.tenants.iter().enumerate() {
            let at = format!("tenant[{i}]");
            found.unique(&at, "name", &mut names, &tenant.name);
            for (j, host) in hosts.get(i).into_iter().flatten().enumerate() {
                found.unique(&at, &format!("hosts[{j}]"), &mut seen, host);
            }
            tenant.problems(&at, &mut found);
        }
        found.0
    }
}

/// Whether a host is of this machine or of a private network: nobody on the internet reaches it by that name.
fn is_local(host: &str) -> bool {
    const ENDS: [&str; 5] = [".localhost", ".test", ".local", ".internal", ".home.arpa"];
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let name = if port.bytes().all(|b| b.is_ascii_digit()) { name } else { host };
    match name.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private(),
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.is_unique_local(),
        Err(_) => !name.contains('.') || ENDS.iter().any(|end| name.ends_with(end)),
    }
}

impl TenantConfig {
    /// The name as an id; `None` only for a configuration that [`EdgeConfig::problems`] refuses.
    #[must_use]
    pub fn id(&self) -> Option<TenantId> {
        self.name.parse().ok()
    }

    /// The kind of that name.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<&IdKind> {
        self.kinds.iter().find(|k| k.name == name)
    }

    /// The kind of that code.
    #[must_use]
    pub fn kind_of(&self, code: KindCode) -> Option<&IdKind> {
        self.kinds.iter().find(|k| k.code() == code)
    }

    /// Whether ids of this kind are unique; a kind that is not configured is not.
    #[must_use]
    pub fn is_unique(&self, code: KindCode) -> bool {
        self.kind_of(code).is_some_and(|k| k.unique)
    }

    /// How many visitors an id of this kind may have before it is crowded; of a unique kind, before one speaks for all.
    #[must_use]
    pub fn crowd(&self, code: KindCode) -> u32 {
        let most = if self.is_unique(code) { limits::LARGE } else { limits::CROWD_MOST };
        self.kind_of(code).map_or(limits::CROWD, |k| k.crowd).min(most)
    }

    /// From which weight on evidence links; of a threshold that [`EdgeConfig::problems`] refuses a login's.
    #[must_use]
    pub fn threshold(&self) -> EvidenceWeight {
        EvidenceWeight::new(self.link_threshold).unwrap_or(EvidenceWeight::LOGIN)
    }

    /// The largest crowd of its kinds.
    #[must_use]
    pub fn largest_crowd(&self) -> u32 {
        self.kinds.iter().map(|kind| kind.crowd).max().unwrap_or(limits::CROWD)
    }

    /// How an id of this kind links, seen with more visitors than its crowd or not.
    #[must_use]
    pub fn class(&self, code: KindCode, is_over: bool) -> LinkClass {
        match (self.is_unique(code), is_over) {
            (true, _) => LinkClass::Unique,
            (false, true) => LinkClass::Crowded,
            (false, false) => LinkClass::Shared,
        }
    }

    fn problems(&self, at: &str, found: &mut ProblemList) {
        if self.name.parse::<TenantId>().is_err() {
            found.say(format!("{at}.name"), "1 to 32 of a-z, 0-9 and - are needed");
        }
        if self.hosts.is_empty() || self.hosts.len() > limits::HOSTS {
            found.say(format!("{at}.hosts"), format!("between 1 and {} hostnames are needed", limits::HOSTS));
        }
        for (j, host) in self.hosts.iter().enumerate() {
            if host.is_empty() || host.contains(['/', ':', ' ']) {
                found.say(format!("{at}.hosts[{j}]"), "a hostname without scheme and port is needed");
            }
        }
        for (j, origin) in self.origins.iter().enumerate() {
            if !is_origin(origin) {
                found.say(
                    format!("{at}.origins[{j}]"),
                    "an origin like https://www.pub.example is needed, as browsers write it: small letters, no path, no \
                     default port",
                );
            }
        }
        if self.tcf_purposes.is_empty() || self.tcf_purposes.iter().any(|p| !(1..=24).contains(p)) {
            found.say(format!("{at}.tcf_purposes"), "at least one purpose is needed, each from 1 to 24");
        }
        if EvidenceWeight::new(self.link_threshold).is_none() {
            found.say(format!("{at}.link_threshold"), "a number over 0 and up to 1 is needed");
        }
        if self.publish_delay_s > 600 {
            found.say(format!("{at}.publish_delay_s"), "600 seconds at most");
        }
        if self.forget_after_days > 3_650 {
            found.say(format!("{at}.forget_after_days"), "3650 days at most; 0: never");
        }
        if self.proof_header.as_ref().is_some_and(|h| {
            h.is_empty() || h.chars().any(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
        }) {
            found.say(format!("{at}.proof_header"), "a header name in lower case is needed");
        }
        if self.most_value_micros.is_some_and(|most| !(1..=limits::VALUE_MICROS).contains(&most)) {
            found.say(format!("{at}.most_value_micros"), format!("1 to {} are possible", limits::VALUE_MICROS));
        }
        if self.house_landing.as_ref().is_some_and(|url| !is_landing(url)) {
            found.say(format!("{at}.house_landing"), LANDING);
        }
        for (name, binding) in [("mint_limit", &self.mint_limit), ("events_limit", &self.events_limit)] {
            if binding.as_ref().is_some_and(|binding| !is_binding(binding)) {
                found.say(format!("{at}.{name}"), "the name of a binding is needed: 1 to 64 of A-Z, a-z, 0-9 and _");
            }
        }
        if let Some(host) = self.hosts.iter().find(|host| self.dev && !is_local(host)) {
            let message = format!(
                "a dev tenant hands out proofs of any member, and `{host}` is public: use a local host, or leave `dev` out"
            );
            found.say(format!("{at}.dev"), message);
        }
        if self.member_proof == ProofPolicy::Trusted && self.dev {
            found.say(format!("{at}.member_proof"), "a dev tenant signs its own proofs: leave it `required`");
        }
        found.0.extend(self.vocabulary.problems(&format!("{at}.catalogue")));
        self.kind_problems(at, found);
    }

    fn kind_problems(&self, at: &str, found: &mut ProblemList) {
        if self.kinds.is_empty() || self.kinds.len() > limits::KINDS {
            found.say(format!("{at}.kinds"), format!("between 1 and {} kinds are needed", limits::KINDS));
        }
        if self.kinds.iter().filter(|k| k.unique).count() > 1 {
            found.say(format!("{at}.kinds"), "one unique kind at most: it is the one that names the person");
        }
        let mut names: Vec<&str> = Vec::new();
        let mut codes: Vec<u8> = Vec::new();
        for (j, kind) in self.kinds.iter().enumerate() {
            let here = format!("{at}.kinds[{j}]");
            let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            if kind.name.is_empty() || kind.name.len() > 32 || !kind.name.bytes().all(fits) {
                found.say(format!("{here}.name"), "1 to 32 of a-z, 0-9 and _ are needed");
            }
            if ANSWER_FIELDS.contains(&kind.name.as_str()) {
                found.say(format!("{here}.name"), "answers have a field of that name: choose another");
            }
            if kind.code == 0 || codes.contains(&kind.code) {
                found.say(format!("{here}.code"), "a number from 1 to 255 that no other kind has is needed");
            }
            if !(2..=limits::CROWD_MOST).contains(&kind.crowd) {
                found.say(format!("{here}.crowd"), format!("a number from 2 to {} is needed", limits::CROWD_MOST));
            }
            found.unique(&here, "name", &mut names, &kind.name);
            codes.push(kind.code);
        }
    }
}

/// What [`is_landing`] asks for.
pub(crate) const LANDING: &str = "an https or http address of 2048 visible ASCII characters at most is needed";
const _: () = assert!(limits::URL_BYTES == 2_048, "LANDING says it");

/// An address that may stand in a `Location` header as it is.
pub(crate) fn is_landing(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(has_host) && url.len() <= limits::URL_BYTES && url.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether what follows the scheme of an address begins with a host, and maybe a port. A user name before the host is refused:
/// it makes an address look like another host's.
fn has_host(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port),
        _ => (authority, "0"),
    };
    let is_literal = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    let is_name = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        && host.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    (is_literal || is_name) && port.parse::<u16>().is_ok()
}

/// As browsers write an origin: small letters, other alphabets as punycode, no port that is the scheme's own.
fn is_origin(text: &str) -> bool {
    let of = |scheme, own_port| text.strip_prefix(scheme).filter(|host| !host.ends_with(own_port));
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._:[]".contains(&b);
    let rest = of("https://", ":443").or_else(|| of("http://", ":80"));
    rest.is_some_and(|host| has_host(host) && host.bytes().all(fits))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn config(json: &str) -> EdgeConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_dev_tenant_is_refused_on_a_public_host() {
        let said = |host: &str| {
            config(&format!(r#"{{"tenant":[{{"name":"demo","hosts":["{host}"],"dev":true}}]}}"#)).problems()
        };
        for host in ["localhost", "demo.localhost", "127.0.0.1", "10.0.0.7", "edge", "ads.test"] {
            assert_eq!(said(host), [], "{host}");
        }
        for host in ["ads.pub.example", "8.8.8.8", "localhost.pub.example", "pub.workers.dev"] {
            let problem = said(host).into_iter().next().unwrap();
            assert_eq!(problem.path, "tenant[0].dev", "{host}");
            assert!(problem.message.contains(host), "{}", problem.message);
        }
    }

    #[test]
    fn the_smallest_configuration_denies_and_demands() {
        let config = config(r#"{"tenant":[{"name":"pub","hosts":["ads.pub.example"]}]}"#);
        assert_eq!(config.problems(), vec![]);
        let tenant = config.by_name("pub").unwrap();
        assert_eq!(tenant.no_signal, NoSignal::Deny);
        assert_eq!(tenant.member_proof, ProofPolicy::Required);
        assert!(tenant.is_unique(KindCode(1)));
        assert!(config.by_name("other").is_none());
    }

    #[test]
    fn every_problem_is_named_with_its_path() {
        let config = config(
            r#"{"tenant":[{"name":"Pub!","hosts":["a/b"],"origins":["pub.example"],"tcf_purposes":[0],"link_threshold":0.0,
               "kinds":[{"name":"member","code":0,"unique":true},{"name":"member","code":0,"unique":true,"crowd":1},
               {"name":"visitor","code":3}]},
               {"name":"Pub!","hosts":["A/b"],"proof_header":"","mint_limit":"a b","most_value_micros":0}]}"#,
        );
        let paths: Vec<String> = config.problems().into_iter().map(|p| p.path).collect();
        for path in [
            "tenant[0].name",
            "tenant[1].name",
            "tenant[1].hosts[0]",
            "tenant[1].proof_header",
            "tenant[1].mint_limit",
            "tenant[1].most_value_micros",
            "tenant[0].hosts[0]",
            "tenant[0].origins[0]",
            "tenant[0].tcf_purposes",
            "tenant[0].link_threshold",
            "tenant[0].kinds",
            "tenant[0].kinds[0].code",
            "tenant[0].kinds[1].name",
            "tenant[0].kinds[1].crowd",
            "tenant[0].kinds[2].name",
        ] {
            assert!(paths.iter().any(|p| p == path), "{path} is missing in {paths:?}");
        }
    }

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        let whole =
            ["https://www.pub.example", "http://localhost:8787", "https://xn--bcher-kva.example:8443", "http://[::1]"];
        assert_eq!(whole.map(is_origin), [true; 4]);
        let never_sent = ["https://WWW.pub.example", "https://pub.example:443", "http://pub.example:80"];
        assert_eq!(never_sent.map(is_origin), [false; 3]);
        let odd = ["https://bücher.example", "https://a.example?x", "https://a.example/", "https://u@a.example", "a"];
        assert_eq!(odd.map(is_origin), [false; 5]);
    }
}
