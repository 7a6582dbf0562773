//! Tenant configuration, as the origin and the edge read it.
//!
//! The origin reads one TOML file. `causeway config edge` prints the part that the edge needs, as the JSON form of
//! [`EdgeConfig`]. [`EdgeConfig::problems`] checks both.

use crate::base::problems::{ConfigProblem, ProblemList};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::base::ids::{KindCode, Micros, TenantId};
use crate::base::limits;
use crate::facts::evidence::{EvidenceWeight, LinkClass};
use crate::settings::vocabulary::Vocabulary;

/// Fields of an answer of `/v1/decide`, apart from those named after a kind of id. No kind may have one of these names.
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

/// Configuration of the edge worker: the variable `CAUSEWAY_CONFIG`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeConfig {
    /// Number of queues that take facts, 1 to [`limits::FACTS_QUEUES`]. Each is a binding of the worker, named as
    /// [`binding_of`](super::facts_queues::binding_of) says. Default 1.
    #[serde(default = "default_facts_queues", skip_serializing_if = "is_default_facts_queues")]
    pub facts_queues: u32,
    /// The tenants; each hostname belongs to one of them.
    #[serde(rename = "tenant", default)]
    pub tenants: Vec<TenantConfig>,
}

/// A tenant: a publisher whose sites share one identity space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Name: 1 to 32 of `a-z`, `0-9`, `-`. It is part of every KV key and must never change.
    pub name: String,
    /// Hostnames that select the tenant, without port.
    pub hosts: Vec<String>,
    /// Origins (`https://www.pub.example`) whose pages may call the edge with credentials.
    #[serde(default)]
    pub origins: Vec<String>,
    /// For development only: enables the demo page and its helpers, and lets cookies work over plain HTTP.
    #[serde(default)]
    pub dev: bool,
    /// Policy for a request without any consent signal.
    #[serde(default)]
    pub no_signal: NoSignal,
    /// TCF purposes that all need consent before a visitor is recognised. Default 1, 3, 4.
    #[serde(default = "default_purposes")]
    pub tcf_purposes: Vec<u8>,
    /// The publisher's id in IAB's Global Vendor List. If set, this vendor needs consent in addition to the purposes.
    #[serde(default)]
    pub tcf_vendor: Option<u16>,
    /// Kinds of alternate ids. Default: only `member`, with code 1, unique.
    #[serde(default = "default_kinds")]
    pub kinds: Vec<IdKind>,
    /// Smallest weight at which evidence other than a login links visitors: over 0, up to 1. Lighter evidence is only
    /// reported. An id that a page names without a proof has the weight [`EvidenceWeight::CLAIM`]. Default 1: only
    /// logins link. Not part of the edge's configuration.
    #[serde(default = "default_threshold", skip_serializing)]
    pub link_threshold: f64,
    /// Proof that an id of a unique kind requires. Default `required`.
    #[serde(default)]
    pub member_proof: ProofPolicy,
    /// Request header (lower case) that may carry the member's proof, in addition to `user.proofs`.
    #[serde(default)]
    pub proof_header: Option<String>,
    /// Cookie that may carry the member's proof, such as the publisher's signed session.
    #[serde(default)]
    pub proof_cookie: Option<String>,
    /// Seconds until a new snapshot is in the KV; a younger visitor is not looked up. Default 10.
    #[serde(default = "default_publish_delay")]
    pub publish_delay_s: u32,
    /// Days after which a visitor without new facts is erased; 0: never. Not part of the edge's configuration.
    #[serde(default, skip_serializing)]
    pub forget_after_days: u32,
    /// Time zone of people who do not report their own, as a name of the IANA database. Default UTC. Not part of the
    /// edge's configuration.
    #[serde(default = "default_time_zone", skip_serializing)]
    pub time_zone: String,
    /// Webhook that receives the deliveries of sends: an `https:` URL, or an `http:` URL on this machine. Not
    /// part of the edge's configuration.
    #[serde(default, skip_serializing)]
    pub webhook: Option<String>,
    /// Callers that may add new attribute names. Default `pages`.
    #[serde(default)]
    pub attribute_names: NamePolicy,
    /// Binding of the worker's rate limit for new visitors, keyed by client network: a name of `[[ratelimits]]` in the
    /// worker's configuration. A name without a binding limits nothing. Default `MINT_LIMIT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mint_limit: Option<String>,
    /// Binding of the rate limit for calls of `/v1/events`, keyed by visitor. Default `EVENTS_LIMIT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_limit: Option<String>,
    /// Largest value of an event from a page, in millionths of the currency. Any holder of a visitor cookie can claim a
    /// purchase of any amount, which `share_ppm` campaigns pay for and experiments count. Imports and the admin API are
    /// not bound by it. Default [`limits::VALUE_MICROS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_value_micros: Option<Micros>,
    /// Treatment of an ad with caps while the number of its impressions is unknown, because part of the person's data
    /// could not be read. Default `count`.
    #[serde(default)]
    pub caps_when_unknown: UnknownCaps,
    /// Ad shown while no catalogue is available: an opaque JSON object for the page. Default: none, `"ad": null`.
    #[serde(default)]
    pub house_ad: Option<serde_json::Value>,
    /// Landing page of the house ad: an `https` or `http` address. Default: none, and the house ad gets no click
    /// address.
    #[serde(default)]
    pub house_landing: Option<String>,
    /// File with the tenant's action types and view types, relative to the configuration file. Default: none.
    #[serde(default)]
    pub catalogue: Option<String>,
    /// Contents of that file; the origin reads it, and the edge receives it with its configuration.
    #[serde(default, skip_serializing_if = "Vocabulary::is_empty")]
    pub vocabulary: Vocabulary,
}

/// Policy for a request without any consent signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoSignal {
    /// No identity.
    #[default]
    Deny,
    /// Full identity, for regions and pages where no law requires a signal.
    Allow,
}

/// Treatment of an ad with caps while some counted actions may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownCaps {
    /// The known actions count; a cap may be exceeded.
    #[default]
    Count,
    /// The ad is not placed.
    Hold,
}

/// Callers that may add new attribute names. A tenant has at most [`limits::ATTRIBUTE_NAMES`] of them in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamePolicy {
    /// Pages and the admin API; the last [`limits::ATTRIBUTE_NAMES_RESERVED`] names are reserved for the admin API. Any
    /// holder of a visitor cookie can use up the others and can set the type of a new name.
    #[default]
    Pages,
    /// Only the admin API and imported files; an attribute from a page under an unknown name is refused.
    Admin,
}

impl NamePolicy {
    /// Whether a page may add a name to a dictionary of `names` names.
    #[must_use]
    pub fn lets_pages(self, names: usize) -> bool {
        self == Self::Pages && names < limits::ATTRIBUTE_NAMES - limits::ATTRIBUTE_NAMES_RESERVED
    }
}

/// Proof that an id of a unique kind requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofPolicy {
    /// Only a token signed by the publisher is accepted.
    #[default]
    Required,
    /// A page's claim is accepted without proof, for pages that cannot sign. Any caller that knows a member id can then
    /// write facts under it, move its lookup, and see ads chosen from its history. `/v1/me` shows only `own`.
    Trusted,
}

/// A kind of alternate id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdKind {
    /// Name in requests: 1 to 32 of `a-z`, `0-9`, `_`.
    pub name: String,
    /// Code in keys and facts, 1 to 255; never reused for another kind.
    pub code: u8,
    /// Whether a visitor, and a person, has at most one id of this kind.
    #[serde(default)]
    pub unique: bool,
    /// Most visitors that an id of a kind that is not unique may have; an id seen with more belongs to no person and
    /// links nothing. 2 to 10,000; default 1,000. The visitors of a unique id are always one person.
    #[serde(default = "default_group_limit", skip_serializing)]
    pub group_limit: u32,
}

impl IdKind {
    /// The code in the form that facts use.
    #[must_use]
    pub fn code(&self) -> KindCode {
        KindCode(self.code)
    }
}

fn default_facts_queues() -> u32 {
    1
}

/// Whether the edge's configuration omits the number: a worker of an earlier release refuses the key.
fn is_default_facts_queues(queues: &u32) -> bool {
    *queues == default_facts_queues()
}

fn default_purposes() -> Vec<u8> {
    vec![1, 3, 4]
}

fn default_kinds() -> Vec<IdKind> {
    vec![IdKind { name: "member".to_owned(), code: 1, unique: true, group_limit: default_group_limit() }]
}

fn default_group_limit() -> u32 {
    limits::GROUP_LIMIT
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
    /// Tenant with this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&TenantConfig> {
        self.tenants.iter().find(|t| t.name == name)
    }

    /// All problems of the configuration; empty if it can be used.
    #[must_use]
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = ProblemList::default();
        if self.tenants.is_empty() || self.tenants.len() > limits::TENANTS {
            found.say("tenant", format!("between 1 and {} tenants are needed", limits::TENANTS));
        }
        if !(1..=limits::FACTS_QUEUES).contains(&self.facts_queues) {
            found.say("facts_queues", format!("between 1 and {} queues are needed", limits::FACTS_QUEUES));
        }
        let mut names: Vec<&str> = Vec::new();
        // Browsers send hostnames in lower case, whatever the configuration says.
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

/// Whether a host is on this machine or in a private network, so that it cannot be reached from the internet under this
/// name.
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

    /// Kind with this name.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<&IdKind> {
        self.kinds.iter().find(|k| k.name == name)
    }

    /// Kind with this code.
    #[must_use]
    pub fn kind_of(&self, code: KindCode) -> Option<&IdKind> {
        self.kinds.iter().find(|k| k.code() == code)
    }

    /// Whether ids of this kind are unique; `false` for an unconfigured kind.
    #[must_use]
    pub fn is_unique(&self, code: KindCode) -> bool {
        self.kind_of(code).is_some_and(|k| k.unique)
    }

    /// Most visitors of an id of this kind before its group is oversized; for a unique kind, before a representative
    /// stands for all.
    #[must_use]
    pub fn group_limit(&self, code: KindCode) -> u32 {
        let most = if self.is_unique(code) { limits::LARGE } else { limits::GROUP_LIMIT_MOST };
        self.kind_of(code).map_or(limits::GROUP_LIMIT, |k| k.group_limit).min(most)
    }

    /// Smallest weight at which evidence links; a login's weight if the configured threshold is invalid.
    #[must_use]
    pub fn threshold(&self) -> EvidenceWeight {
        EvidenceWeight::new(self.link_threshold).unwrap_or(EvidenceWeight::LOGIN)
    }

    /// The largest such bound of all kinds.
    #[must_use]
    pub fn largest_group_limit(&self) -> u32 {
        self.kinds.iter().map(|kind| kind.group_limit).max().unwrap_or(limits::GROUP_LIMIT)
    }

    /// How an id of this kind links visitors; `is_over`: it was seen with more visitors than its bound.
    #[must_use]
    pub fn class(&self, code: KindCode, is_over: bool) -> LinkClass {
        match (self.is_unique(code), is_over) {
            (true, _) => LinkClass::Unique,
            (false, true) => LinkClass::OversizedGroup,
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
        if self.most_value_micros.is_some_and(|most| !(Micros::new(1)..=limits::VALUE_MICROS).contains(&most)) {
            found.say(format!("{at}.most_value_micros"), format!("1 to {} micros are needed", limits::VALUE_MICROS));
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
            found.say(format!("{at}.kinds"), "at most one kind may be unique: it identifies the person");
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
            if !(2..=limits::GROUP_LIMIT_MOST).contains(&kind.group_limit) {
                found.say(
                    format!("{here}.group_limit"),
                    format!("a number from 2 to {} is needed", limits::GROUP_LIMIT_MOST),
                );
            }
            found.unique(&here, "name", &mut names, &kind.name);
            codes.push(kind.code);
        }
    }
}

/// Message for an address that [`is_landing`] refuses.
pub(crate) const LANDING: &str = "an https or http address of 2048 visible ASCII characters at most is needed";
const _: () = assert!(limits::URL_BYTES == 2_048, "LANDING says it");

/// Whether an address may be used unchanged in a `Location` header.
pub(crate) fn is_landing(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(has_host) && url.len() <= limits::URL_BYTES && url.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether the text after an address's scheme begins with a host and an optional port. A user name before the host is
/// refused, because it makes an address look like another host's.
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

/// Whether an origin has the form that browsers send: lower case, other alphabets as punycode, no default port.
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
    fn the_number_of_queues_is_checked_and_omitted_where_it_is_one() {
        let of = |key: &str| config(&format!(r#"{{{key}"tenant":[{{"name":"pub","hosts":["ads.pub.example"]}}]}}"#));
        assert_eq!(of("").facts_queues, 1);
        assert!(!serde_json::to_string(&of("")).unwrap().contains("facts_queues"));
        assert_eq!(of(r#""facts_queues":16,"#).problems(), []);
        assert!(serde_json::to_string(&of(r#""facts_queues":3,"#)).unwrap().contains(r#""facts_queues":3"#));
        for wrong in [r#""facts_queues":0,"#, r#""facts_queues":17,"#] {
            assert_eq!(of(wrong).problems().first().map(|problem| problem.path.as_str()), Some("facts_queues"));
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
               "kinds":[{"name":"member","code":0,"unique":true},{"name":"member","code":0,"unique":true,"group_limit":1},
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
            "tenant[0].kinds[1].group_limit",
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
