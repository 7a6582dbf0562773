//! One isolate's engine: its configuration, and the requests that wait for a KV read.

use std::collections::BTreeMap;
use std::rc::Rc;

use causeway_shared::attributes::Dictionary;
use causeway_shared::config::{EdgeConfig, Tenant};
use causeway_shared::fact::Fact;
use causeway_shared::identity::{self, Arrival, Begun, Found, Recognised, Seen, Stays, Step};
use causeway_shared::ids::{Millis, TenantId, Version, VisitorId};
use causeway_shared::keys::{self, Keys, TenantKeys};
use causeway_shared::random::Random;
use causeway_shared::wire::facts::FactBatch;
use causeway_shared::{delivery, limits, proof, wire};
use serde_json::value::{RawValue, to_raw_value};

use crate::answer::{Head, Limit, Outcome};
use crate::attributes::Kept;
use crate::catalogue::{Loaded, Shelf};
use crate::cookies::Jar;
use crate::cors;
use crate::decide::{self, DecideCall};
use crate::events::EventsCall;
use crate::hop::Hop;
use crate::me::MeCall;
use crate::pixel::{self, PixelCall};
use crate::request::{EXPLAIN, HEADERS, Request};
use crate::route::route;
use crate::units::{self, Empty};
use crate::visit::{Alone, Visit};
use crate::waiting::{At, Beside, Line, Waiting};

/// Why a configuration cannot be used.
#[derive(Debug)]
pub enum ConfigureError {
    /// One of the two documents is not the JSON it should be.
    Json(&'static str, serde_json::Error),
    /// The documents' own checks, each with its path.
    Problems(Vec<String>),
}

impl std::fmt::Display for ConfigureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(name, error) => {
                write!(f, "{name} is not of its form, line {} column {}", error.line(), error.column())
            }
            Self::Problems(all) => f.write_str(&all.join("; ")),
        }
    }
}

impl std::error::Error for ConfigureError {}

/// One tenant with its keys.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) tenant: Tenant,
    pub(crate) id: TenantId,
    pub(crate) keys: TenantKeys,
    explain: Option<String>,
    /// The tenant's, as it goes into answers.
    pub(crate) house_ad: Option<Box<RawValue>>,
    /// What a request has until it has more: made once.
    no_names: Rc<Dictionary>,
    no_catalogue: Rc<Loaded>,
}

impl Site {
    /// Whether this is the key that admits `"explain": true`.
    pub(crate) fn explains(&self, key: &str) -> bool {
        self.explain.as_deref().is_some_and(|own| keys::is_same(own, key))
    }

    /// Before a visitor is minted.
    pub(crate) fn mint_limit(&self) -> Limit {
        limit(&self.tenant.mint_limit, "MINT_LIMIT", self.id.as_str().to_owned())
    }

    /// Before events of a visitor are taken.
    pub(crate) fn events_limit(&self, visitor: VisitorId) -> Limit {
        let mut key = self.id.as_str().to_owned();
        key.push(' ');
        visitor.push_to(&mut key);
        limit(&self.tenant.events_limit, "EVENTS_LIMIT", key)
    }
}

fn limit(configured: &Option<String>, default: &str, key: String) -> Limit {
    Limit { binding: configured.as_deref().unwrap_or(default).to_owned(), key }
}

/// A request on its way to a route.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) further_headers: &'a [String],
    pub(crate) body: &'a [u8],
    pub(crate) now: Millis,
    pub(crate) random: Random,
    pub(crate) site: Rc<Site>,
    pub(crate) cors: Vec<(&'static str, String)>,
}

impl Incoming<'_> {
    pub(crate) fn visit(&self, jar: &Jar, notes: Vec<&'static str>, call: Call) -> Visit {
        Visit {
            site: Rc::clone(&self.site),
            now: self.now,
            random: self.random.clone(),
            draw: 0,
            secure: jar.secure,
            stale_key: jar.stale_key,
            cors: self.cors.clone(),
            kv_reads: 0,
            bytes: self.body.len(),
            names: Rc::clone(&self.site.no_names),
            catalogue: Rc::clone(&self.site.no_catalogue),
            wanted: None,
            missed: false,
            units: BTreeMap::new(),
            facts: Vec::new(),
            snapshots: Vec::new(),
            notes,
            call,
        }
    }
}

/// The engine.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) keys: Keys,
    sites: BTreeMap<String, Rc<Site>>,
    /// What the configuration asks for beside [`HEADERS`]: the key for explanations, tenants' proofs.
    further_headers: Vec<String>,
    names: Kept,
    shelf: Shelf,
    seen: Seen,
    waiting: Line,
    /// Limited offers of which an object said that no unit is left.
    empty: Empty,
    /// Whether requests to come are to say from where they are: filters alone ask, and the platform takes its time to tell.
    place: bool,
}

/// Which route, and what it needs to answer.
#[derive(Debug)]
pub(crate) enum Call {
    Decide(DecideCall),
    Me(MeCall),
    Events(EventsCall),
    Pixel(PixelCall),
}

impl Call {
    /// Only a decision mints a visitor: to all others who has none is nobody yet.
    fn mints(&self) -> bool {
        matches!(self, Self::Decide(_))
    }

    /// Whether the catalogue is needed: to place ads, to know of one that was placed, or to name what is tested.
    fn wants_catalogue(&self) -> bool {
        match self {
            Self::Decide(_) | Self::Me(_) => true,
            Self::Events(call) => call.has_impressions(),
            Self::Pixel(call) => call.wants_catalogue(),
        }
    }
}

/// What a route makes of a request: an answer at once, or without recognising anybody, or a visitor to recognise.
pub(crate) enum Routed {
    Answer(Outcome),
    Alone(Box<Visit>),
    Recognise(Box<Visit>, Box<Arrival>),
}

impl Engine {
    /// Reads the configuration and the keys.
    ///
    /// # Errors
    /// [`ConfigureError`], which names every problem and no secret.
    pub fn configure(config: &str, keys: &str) -> Result<Self, ConfigureError> {
        let config: EdgeConfig =
            serde_json::from_str(config).map_err(|e| ConfigureError::Json("CAUSEWAY_CONFIG", e))?;
        let keys: Keys = serde_json::from_str(keys).map_err(|e| ConfigureError::Json("CAUSEWAY_KEYS", e))?;
        let names = config.tenants.iter().map(|t| t.name.as_str());
        let problems: Vec<String> = config
            .problems()
            .into_iter()
            .chain(keys.problems(names))
            .map(|p| format!("{}: {}", p.path, p.message))
            .collect();
        if !problems.is_empty() {
            return Err(ConfigureError::Problems(problems));
        }
        let explained = keys.tenants.values().map(|own| &own.explain).chain([&keys.explain]).any(Option::is_some);
        let further_headers = explained.then(|| EXPLAIN.to_owned()).into_iter().collect();
        let mut engine = Self { keys, further_headers, place: true, ..Self::default() };
        for tenant in config.tenants {
            engine.add(tenant);
        }
        Ok(engine)
    }

    fn add(&mut self, tenant: Tenant) {
        let (Some(id), Some(keys)) = (tenant.id(), self.keys.tenants.get(&tenant.name).cloned()) else { return };
        if let Some(name) = tenant.proof_header.clone().filter(|n| !self.further_headers.contains(n)) {
            self.further_headers.push(name);
        }
        let hosts = tenant.hosts.clone();
        let explain = keys.explain.clone().or_else(|| self.keys.explain.clone());
        let (no_names, no_catalogue) = Default::default();
        let house_ad = tenant.house_ad.as_ref().and_then(|ad| to_raw_value(ad).ok());
        let site = Rc::new(Site { tenant, id, keys, explain, house_ad, no_names, no_catalogue });
        self.sites.extend(hosts.into_iter().map(|host| (host.to_ascii_lowercase(), Rc::clone(&site))));
    }

    /// What the shell needs to know: which headers to hand over, and the bounds it keeps while reading.
    #[must_use]
    pub fn for_shell(&self) -> String {
        let headers: Vec<&str> = HEADERS.into_iter().chain(self.further_headers.iter().map(String::as_str)).collect();
        serde_json::json!({
            "headers": headers,
            "body_bytes": limits::BODY_BYTES,
            "value_chars": limits::KV_VALUE_CHARS.max(limits::CATALOGUE_CHARS),
            "kv_deadline_ms": delivery::KV_DEADLINE_MS,
            "origin_timeout_ms": delivery::ORIGIN_TIMEOUT_MS,
            "sync_messages": delivery::SYNC_MESSAGES,
            "build": env!("CARGO_PKG_VERSION"),
        })
        .to_string()
    }

    /// Begins a request: gives its answer, or the KV keys to read.
    pub fn begin(&mut self, head: &str, body: &[u8], now: Millis, seed: &[u8]) -> Outcome {
        let outcome = self.begun(head, body, now, seed);
        self.told(outcome)
    }

    /// The tenant of a hostname, which most clients write in small letters.
    fn site(&self, host: &str) -> Option<&Rc<Site>> {
        self.sites.get(host).or_else(|| self.sites.get(&host.to_ascii_lowercase()))
    }

    /// What is told with each outcome.
    fn told(&self, mut outcome: Outcome) -> Outcome {
        outcome.head.place = self.place;
        outcome
    }

    fn begun(&mut self, head: &str, body: &[u8], now: Millis, seed: &[u8]) -> Outcome {
        let Some(request) = Request::parse(head) else {
            return Outcome::error(400, "malformed", "the request's address cannot be read", None);
        };
        if request.path == "/healthz" && matches!(request.method, "GET" | "HEAD") {
            // Asked by another name, as a platform's own probes do, it tells of no tenant.
            let site = self.site(request.host);
            let health = site.map(|site| self.shelf.health(&site.id, now).to_string()).unwrap_or_default();
            let head = Head { health: true, ..Head::default() };
            return Outcome { head, body: health.into_bytes(), ..Outcome::default() };
        }
        let Some(site) = self.site(request.host).cloned() else {
            return Outcome::error(404, "unknown_host", "no tenant is configured for this hostname", None);
        };
        let Ok(seed) = <[u8; 32]>::try_from(seed) else {
            return Outcome::error(400, "malformed", "a seed has 32 bytes", None);
        };
        let cors = match cors::headers(request, &site) {
            Ok(cors) => cors,
            Err(refused) => return *refused,
        };
        let random = Random::new(seed);
        match route(Incoming { request, further_headers: &self.further_headers, body, now, random, site, cors }) {
            Routed::Answer(outcome) => outcome,
            Routed::Alone(visit) => self.alone(visit),
            Routed::Recognise(visit, arrival) => self.recognise(visit, *arrival),
        }
    }

    /// Goes on with a call that recognises nobody: it reads only what others read beside.
    fn alone(&mut self, mut visit: Box<Visit>) -> Outcome {
        // Of nobody nothing is shown that has a name.
        let beside = if matches!(visit.call, Call::Me(_)) { Beside::default() } else { self.beside(&mut visit, false) };
        self.alone_with(visit, beside)
    }

    /// Reads what is still to be read, or answers.
    fn alone_with(&mut self, visit: Box<Visit>, beside: Beside) -> Outcome {
        if beside.keys() > 0 {
            return self.wait(Waiting { visit, beside, at: At::Alone }, false);
        }
        match self.stocked(visit).alone() {
            Alone::Answer(outcome) => *outcome,
            Alone::Confirm(visit, hop) => self.ask(visit, At::Confirm, hop),
        }
    }

    /// With the catalogue that is at hand now: the one that all of its answer goes by.
    fn stocked(&self, mut visit: Box<Visit>) -> Box<Visit> {
        visit.catalogue = self.shelf.of(&visit.site.id);
        visit
    }

    fn beside(&mut self, visit: &mut Visit, recalls: bool) -> Beside {
        let (tenant, now) = (&visit.site.id, visit.now);
        // What is tested has a name only for who was exposed to it, which a snapshot says.
        let of_use = recalls || !matches!(visit.call, Call::Me(_));
        // A click cannot go on without.
        let alone = matches!(visit.call, Call::Pixel(_)) && !self.shelf.of(tenant).is_there();
        let pointer = of_use && visit.call.wants_catalogue() && (alone || self.shelf.wants(tenant, now));
        Beside { pointer, version: None, names: self.wants_names(visit) }
    }

    /// Whether the call's first read is to bring the names of attributes; those of the last minute do for what a call
    /// brings, not for what it shows.
    fn wants_names(&self, visit: &mut Visit) -> bool {
        let brings = match &visit.call {
            Call::Me(_) => return true,
            Call::Decide(call) => call.attributes.has_values(),
            Call::Events(call) => call.has_values(),
            Call::Pixel(_) => false,
        };
        let known = brings.then(|| self.names.fresh(&visit.site.id, visit.now)).flatten();
        let wanted = brings && known.is_none();
        if let Some(known) = known {
            visit.names = known;
        }
        wanted
    }

    fn recognise(&mut self, mut visit: Box<Visit>, arrival: Arrival) -> Outcome {
        let begun = identity::begin(arrival, &mut visit.random);
        let (recalls, mint) = (!begun.reads().is_empty(), begun.minted());
        if mint && !visit.call.mints() {
            return self.stocked(visit).without_identity("another_member");
        }
        let mut beside = self.beside(&mut visit, recalls);
        let reading = recalls || beside.pointer;
        if !reading && !mint {
            return self.after_first(visit, begun, Found::default());
        }
        // They ride with what is read anyway: without them the origin alone refuses what does not match.
        beside.names &= reading;
        self.wait(Waiting { visit, beside, at: At::First(Box::new(begun)) }, mint)
    }

    fn after_first(&mut self, mut visit: Box<Visit>, begun: Begun, found: Found) -> Outcome {
        match begun.after_first(found, &mut visit.random) {
            Step::Forgotten(stays) => self.stocked(visit).forgotten(stays),
            Step::Second(second) => {
                let beside = Beside { version: visit.wanted.take(), ..Beside::default() };
                let mint = second.minted();
                if mint && !visit.call.mints() {
                    return self.stocked(visit).without_identity("another_member");
                }
                if second.reads().is_empty() && beside.keys() == 0 && !mint {
                    return self.finish(visit, second.finish(Found::default()));
                }
                self.wait(Waiting { visit, beside, at: At::Second(second) }, mint)
            }
        }
    }

    fn wait(&mut self, waiting: Waiting, mint: bool) -> Outcome {
        let read = waiting.keys();
        let limit = mint.then(|| waiting.visit.site.mint_limit());
        let turn = Some(self.waiting.add(waiting));
        Outcome { head: Head { turn, read, limit, ..Head::default() }, ..Outcome::default() }
    }

    /// Goes on after a read.
    pub fn resume(&mut self, turn: u32, values: &[u8], fault: &str) -> Outcome {
        let outcome = self.resumed(turn, values, fault);
        self.told(outcome)
    }

    fn resumed(&mut self, turn: u32, values: &[u8], fault: &str) -> Outcome {
        let Some(Waiting { mut visit, beside, at }) = self.waiting.take(turn) else { return gone() };
        let found = visit.read(at.reads(), &beside, values, fault, &mut self.seen, &mut self.shelf);
        if beside.pointer || beside.version.is_some() {
            self.place = self.sites.values().any(|site| self.shelf.asks_place(&site.id));
        }
        if beside.names {
            self.names.keep(&visit.site.id, visit.now, &visit.names);
        }
        match at {
            At::Alone => {
                let beside = Beside { version: visit.wanted.take(), ..Beside::default() };
                self.alone_with(visit, beside)
            }
            At::First(begun) => self.after_first(visit, *begun, found),
            At::Second(second) => self.finish(visit, second.finish(found)),
            At::Claim(who) => {
                visit.notes.extend(values.is_empty().then_some("strict_unanswered"));
                self.finish_granted(visit, *who, values)
            }
            At::Unit(mut who, granted, campaign) => {
                if decide::take_unit(&mut visit, &mut who, campaign, values) {
                    self.empty.keep(&visit, campaign);
                }
                visit.finish(*who, &granted)
            }
            At::Confirm => pixel::finish(visit, values),
        }
    }

    /// Answers, or asks the person's object first.
    fn finish(&mut self, visit: Box<Visit>, who: Result<Recognised, Stays>) -> Outcome {
        let mut visit = self.stocked(visit);
        let mut who = match who {
            Ok(who) => who,
            Err(stays) => return visit.forgotten(stays),
        };
        visit.observe(&mut who);
        // There is a snapshot, and the newest that was met could not be read: another location is behind.
        visit.missed |= who.ledger.highest > Version::default() && who.view.is_silent();
        visit.units = units::holdings(&visit, &who);
        match decide::asks(&visit, &who, &self.empty) {
            Some(hop) => self.ask(visit, At::Claim(Box::new(who)), hop),
            None => self.finish_granted(visit, who, &[]),
        }
    }

    /// Answers, or asks for a unit of a limited offer first.
    fn finish_granted(&mut self, mut visit: Box<Visit>, who: Recognised, granted: &[u8]) -> Outcome {
        match decide::wants_unit(&mut visit, &who, granted, &self.empty) {
            Some((campaign, hop)) => self.ask(visit, At::Unit(Box::new(who), granted.to_vec(), campaign), hop),
            None => visit.finish(who, granted),
        }
    }

    fn ask(&mut self, visit: Box<Visit>, at: At, hop: Hop) -> Outcome {
        let Hop { object, call, class } = hop;
        let mut outcome = self.wait(Waiting { visit, beside: Beside::default(), at }, false);
        (outcome.head.hop, outcome.head.class, outcome.body) = (Some(object), class, call);
        outcome
    }

    /// Goes on without an identity: the client's network has minted too many.
    pub fn refuse_mint(&mut self, turn: u32) -> Outcome {
        let waiting = self.waiting.take(turn);
        self.told(waiting.map_or_else(gone, |waiting| self.stocked(waiting.visit).without_identity("mint_limited")))
    }

    /// A member proof for the demonstration page; empty unless the host's tenant is marked `dev`.
    #[must_use]
    pub fn dev_proof(&self, host: &str, member: &str, now: Millis) -> String {
        let Some(site) = self.site(host).filter(|site| site.tenant.dev) else { return String::new() };
        let now_s = now / 1000;
        let sign = |key| proof::sign_hs256(key, member, &site.id, now_s, now_s + 3_600);
        site.keys.proof.iter().find_map(sign).unwrap_or_default()
    }
}

/// Puts facts into an outcome, for the queue.
pub(crate) fn pack(outcome: &mut Outcome, site: &Site, facts: Vec<Fact>) {
    if facts.is_empty() {
        return;
    }
    outcome.head.facts = u16::try_from(facts.len()).unwrap_or(u16::MAX);
    outcome.facts = wire::facts::encode(&FactBatch { tenant: site.id.clone(), facts });
}

/// The request gave its place to a newer one, the module began anew meanwhile, or what is needed was not at hand: the shell
/// answers.
pub(crate) fn gone() -> Outcome {
    Outcome { head: Head { gone: true, ..Head::default() }, ..Outcome::default() }
}
