//! The engine of one isolate: its configuration, its caches, and the path of a request from its head to its answer.
//!
//! The engine does no I/O. [`Engine::begin`] takes a request and returns an [`EngineStep`]. If the step is a read or a
//! call, the worker carries it out and passes the result to [`Engine::resume_read`] or [`Engine::resume_call`].

pub(crate) mod pending;

use std::collections::BTreeMap;
use std::rc::Rc;

use causeway_shared::base::ids::{Millis, SnapshotVersion};
use causeway_shared::base::json::{self, JsonError};
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::base::random::Random;
use causeway_shared::identity::{
    self, BegunIdentity, BulkRead, BulkResult, IdentityRequest, IdentityStep, RecognisedVisitor, SecondRead,
    SurvivingCookie,
};
use causeway_shared::keys::key_ring::KeySet;
use causeway_shared::keys::proof;
use causeway_shared::settings::config::{EdgeConfig, TenantConfig};
use causeway_shared::wire::newest_versions::NewestVersions;
use serde::de::DeserializeOwned;

use self::pending::{PendingBudget, PendingCall, PendingRead, ResumePoint};
use crate::cache::attribute_names::AttributeNameCache;
use crate::cache::catalogue::CatalogueCache;
use crate::http::answer::HttpAnswer;
use crate::http::incoming::TenantRequest;
use crate::http::request::{EXPLAIN, FETCH_DEST, FETCH_MODE, HEADERS, HttpRequest, PURPOSE};
use crate::http::unserved::UnservedReason;
use crate::http::{cookies, cors};
use crate::objects::object_call::ObjectCall;
use crate::objects::offers::SoldOutOffers;
use crate::routes::{
    AnonymousRoute, CatalogueNeed, NamesNeed, Route, RouteOutcome, RouteProgress, VisitorRoute, WorkerPage, table,
};
use crate::site::{RateLimit, Site};
use crate::state::extra_reads::ExtraReads;
use crate::state::request_state::{KvValues, ReadCaches, RequestState};

/// The engine of one isolate.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) keys: KeySet,
    sites: BTreeMap<String, Rc<Site>>,
    facts_queues: u32,
    /// Headers that the configuration asks for in addition to [`HEADERS`]: the key for explanations, tenants' proofs.
    further_headers: Vec<String>,
    names: AttributeNameCache,
    catalogues: CatalogueCache,
    seen: NewestVersions,
    pending: PendingBudget,
    sold_out: SoldOutOffers,
}

/// What a request needs next.
#[derive(Debug)]
pub enum EngineStep {
    /// A bulk read of the KV.
    Read(Box<KvRead>),
    /// A call of a Durable Object.
    Call(PendingCall, ObjectCall),
    /// The answer.
    Answer(HttpAnswer),
    /// A page that the worker serves itself.
    Page(WorkerPage),
    /// The request cannot be served.
    Unserved(UnservedReason),
}

/// A bulk read for one request.
#[derive(Debug)]
pub struct KvRead {
    /// The keys; values are returned in their order. Empty if only the rate limit must be checked.
    pub keys: Vec<String>,
    /// The rate limit of minted visitors, if the request minted one. If it refuses, [`Engine::refuse_mint`] continues.
    pub mint_limit: Option<RateLimit>,
    /// The request.
    pub pending: PendingRead,
}

/// The reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    /// One of the two documents is not JSON of the expected form.
    #[error("{0} cannot be parsed: line {line}, column {column}", line = .1.line(), column = .1.column())]
    Json(&'static str, serde_json::Error),
    /// Problems that the documents' own checks found, each with its path.
    #[error("{}", .0.join("; "))]
    Problems(Vec<String>),
}

fn read_document<T: DeserializeOwned>(name: &'static str, text: &str) -> Result<T, ConfigureError> {
    json::read(text.as_bytes()).map_err(|error| match error {
        JsonError::Repeated(_) => ConfigureError::Problems(vec![format!("{name}: {error}")]),
        JsonError::Form(error) => ConfigureError::Json(name, error),
    })
}

impl Engine {
    /// Reads the configuration and the keys, both JSON.
    ///
    /// # Errors
    /// [`ConfigureError`], which names every problem and no secret.
    pub fn configure(config: &str, keys: &str) -> Result<Self, ConfigureError> {
        let config: EdgeConfig = read_document("CAUSEWAY_CONFIG", config)?;
        let keys: KeySet = read_document("CAUSEWAY_KEYS", keys)?;
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
        let admits_explain = keys.tenants.values().map(|own| &own.explain).chain([&keys.explain]).any(Option::is_some);
        let further_headers = admits_explain.then(|| EXPLAIN.to_owned()).into_iter().collect();
        let mut engine = Self { keys, facts_queues: config.facts_queues, further_headers, ..Self::default() };
        for tenant in config.tenants {
            engine.add_site(tenant);
        }
        engine.further_headers.extend([PURPOSE, FETCH_MODE, FETCH_DEST].map(str::to_owned));
        Ok(engine)
    }

    fn add_site(&mut self, tenant: TenantConfig) {
        let (Some(id), Some(keys)) = (tenant.id(), self.keys.tenants.get(&tenant.name).cloned()) else { return };
        if let Some(name) = tenant.proof_header.clone().filter(|n| !self.further_headers.contains(n)) {
            self.further_headers.push(name);
        }
        let hosts = tenant.hosts.clone();
        let explain = keys.explain.clone().or_else(|| self.keys.explain.clone());
        let site = Rc::new(Site::new(tenant, id, keys, explain));
        self.sites.extend(hosts.into_iter().map(|host| (host.to_ascii_lowercase(), Rc::clone(&site))));
    }

    /// The headers that the head text of a request contains, in their order.
    #[must_use]
    pub fn header_names(&self) -> Vec<String> {
        HEADERS.into_iter().map(str::to_owned).chain(self.further_headers.iter().cloned()).collect()
    }

    /// Number of queues that take facts.
    #[must_use]
    pub fn facts_queues(&self) -> u32 {
        self.facts_queues
    }

    /// The site of a hostname.
    fn site(&self, host: &str) -> Option<&Rc<Site>> {
        // Most clients write hostnames in lower case.
        self.sites.get(host).or_else(|| self.sites.get(&host.to_ascii_lowercase()))
    }

    /// Begins a request. `head` is the head text: the method, the address, and the values of [`Self::header_names`],
    /// one per line. The client's country and region follow the method after spaces, if the platform has a location
    /// (only decide calls need it). `seed` is 32 random bytes.
    pub fn begin(&mut self, head: &str, body: &[u8], now: Millis, seed: [u8; 32]) -> EngineStep {
        let Some(request) = HttpRequest::parse(head) else {
            return EngineStep::Answer(HttpAnswer::error(400, "malformed", "the request's address is invalid", None));
        };
        if request.path == "/healthz" && matches!(request.method, "GET" | "HEAD") {
            // A platform's own probe may use another hostname; it learns nothing about a tenant.
            let health = self.site(request.host).map(|site| self.catalogues.health(&site.id, now));
            return EngineStep::Page(WorkerPage::Health(health));
        }
        let Some(site) = self.site(request.host).cloned() else {
            return EngineStep::Answer(HttpAnswer::error(
                404,
                "unknown_host",
                "no tenant is configured for this hostname",
                None,
            ));
        };
        let cors = match cors::cors_headers(request, &site) {
            Ok(cors) => cors,
            Err(refused) => return EngineStep::Answer(*refused),
        };
        let random = Random::new(seed);
        let incoming = TenantRequest { request, further_headers: &self.further_headers, body, now, random, site, cors };
        match table::begin_route(incoming) {
            RouteOutcome::Answer(answer) => EngineStep::Answer(answer),
            RouteOutcome::Page(page) => EngineStep::Page(page),
            RouteOutcome::Anonymous(mut state, route) => {
                let extra = self.extra_reads(&mut state, &*route, false);
                let reads = BulkRead { snapshots: route.named_visitors(), ..BulkRead::default() };
                self.continue_anonymous(state, route, extra, reads)
            }
            RouteOutcome::Recognise(state, route, arrival) => self.recognise(state, route, *arrival),
        }
    }

    /// Continues after a read.
    pub fn resume_read(&mut self, pending: PendingRead, values: &KvValues) -> EngineStep {
        let PendingRead { mut state, extra, resume, permit } = pending;
        // The request waits no longer. If it waits again, the budget counts it again.
        drop(permit);
        let mut caches = ReadCaches { seen: &mut self.seen, catalogues: &mut self.catalogues };
        let found = state.read_values(resume.reads(), &extra, values, &mut caches);
        if extra.names {
            self.names.store(&state.site.id, state.now, &state.names);
        }
        match resume {
            ResumePoint::Anonymous(route, _) => {
                let extra = ExtraReads { version: state.wanted_version.take(), ..ExtraReads::default() };
                state.note_erased(&found);
                self.continue_anonymous(state, route, extra, BulkRead::default())
            }
            ResumePoint::First(route, begun) => self.continue_after_first(state, route, *begun, found),
            ResumePoint::Second(route, second)
                if planted::is_active(PlantedBug::ThirdRead)
                    && state.kv_reads < 3
                    && found.stored.len() < second.reads().snapshots.len() =>
            {
                self.read(state, ExtraReads::default(), ResumePoint::Second(route, second), false)
            }
            ResumePoint::Second(route, second) => self.finish(state, route, second.finish(found)),
        }
    }

    /// Continues with an object's answer; `None` if no answer came in time.
    pub fn resume_call(&mut self, pending: PendingCall, answer: Option<&[u8]>) -> EngineStep {
        let PendingCall { wait, permit } = pending;
        drop(permit);
        let progress = wait.resume(answer, &mut self.sold_out);
        self.proceed(progress)
    }

    /// Continues without an identity, because the client's network minted too many visitors.
    pub fn refuse_mint(&mut self, pending: PendingRead) -> EngineStep {
        let PendingRead { state, resume, permit, .. } = pending;
        drop(permit);
        match resume {
            ResumePoint::Anonymous(route, _) => {
                let progress = route.answer_anonymous(self.with_catalogue(state));
                self.proceed(progress)
            }
            ResumePoint::First(route, _) | ResumePoint::Second(route, _) => {
                self.answer_unidentified(state, route, "mint_limited")
            }
        }
    }

    /// Reads the remaining keys of a request that recognises no visitor, or answers it.
    fn continue_anonymous(
        &mut self,
        state: RequestState,
        route: Box<dyn AnonymousRoute>,
        extra: ExtraReads,
        reads: BulkRead,
    ) -> EngineStep {
        if extra.count() > 0 || !reads.is_empty() {
            return self.read(state, extra, ResumePoint::Anonymous(route, reads), false);
        }
        let progress = route.answer_anonymous(self.with_catalogue(state));
        self.proceed(progress)
    }

    /// Fixes the catalogue that the whole answer uses.
    fn with_catalogue(&self, mut state: RequestState) -> RequestState {
        state.catalogue = self.catalogues.current(&state.site.id);
        state
    }

    /// The keys that are read in parallel with the first read. `reads_history` is whether that read exists.
    fn extra_reads(&mut self, state: &mut RequestState, route: &dyn Route, reads_history: bool) -> ExtraReads {
        let (tenant, now) = (&state.site.id, state.now);
        let pointer = match route.catalogue_need() {
            CatalogueNeed::None => false,
            CatalogueNeed::WithHistory => reads_history && self.catalogues.wants_pointer(tenant, now),
            CatalogueNeed::WhenDue => self.catalogues.wants_pointer(tenant, now),
            CatalogueNeed::Always => {
                !self.catalogues.current(tenant).is_loaded() || self.catalogues.wants_pointer(tenant, now)
            }
        };
        ExtraReads { pointer, version: None, names: self.reads_names(state, route) }
    }

    /// Whether the first read includes the attribute names. Fresh names from the cache are put into the state.
    fn reads_names(&self, state: &mut RequestState, route: &dyn Route) -> bool {
        match route.names_need() {
            NamesNeed::None => false,
            NamesNeed::Current => true,
            NamesNeed::Cached => match self.names.fresh(&state.site.id, state.now) {
                Some(names) => {
                    state.names = names;
                    false
                }
                None => true,
            },
        }
    }

    fn recognise(
        &mut self,
        mut state: RequestState,
        route: Box<dyn VisitorRoute>,
        arrival: IdentityRequest,
    ) -> EngineStep {
        let begun = identity::begin_identity(arrival, &mut state.random);
        let (reads_history, minted) = (!begun.reads().is_empty(), begun.minted());
        if minted && !route.mints_visitors() {
            return self.answer_unidentified(state, route, "another_member");
        }
        let mut extra = self.extra_reads(&mut state, &*route, reads_history);
        let reads = reads_history || extra.pointer;
        if !reads && !minted {
            return self.continue_after_first(state, route, begun, BulkResult::default());
        }
        // Attribute names alone cause no read: without them, only the origin checks the types.
        extra.names &= reads;
        self.read(state, extra, ResumePoint::First(route, Box::new(begun)), minted)
    }

    fn continue_after_first(
        &mut self,
        mut state: RequestState,
        route: Box<dyn VisitorRoute>,
        begun: BegunIdentity,
        found: BulkResult,
    ) -> EngineStep {
        match begun.after_first(found, &mut state.random) {
            IdentityStep::Forgotten(survivor) => self.answer_forgotten(state, route, survivor),
            IdentityStep::Second(second) => self.continue_before_second(state, route, second),
        }
    }

    fn continue_before_second(
        &mut self,
        mut state: RequestState,
        route: Box<dyn VisitorRoute>,
        second: Box<SecondRead>,
    ) -> EngineStep {
        let extra = ExtraReads { version: state.wanted_version.take(), ..ExtraReads::default() };
        let minted = second.minted();
        if minted && !route.mints_visitors() {
            return self.answer_unidentified(state, route, "another_member");
        }
        if second.reads().is_empty() && extra.count() == 0 && !minted {
            return self.finish(state, route, second.finish(BulkResult::default()));
        }
        self.read(state, extra, ResumePoint::Second(route, second), minted)
    }

    fn read(&mut self, state: RequestState, extra: ExtraReads, resume: ResumePoint, minted: bool) -> EngineStep {
        let Some(permit) = self.pending.admit(state.bytes) else {
            return EngineStep::Unserved(UnservedReason::Overloaded);
        };
        let mint_limit = minted.then(|| state.site.mint_limit());
        let pending = PendingRead { state, extra, resume, permit };
        EngineStep::Read(Box::new(KvRead { keys: pending.keys(), mint_limit, pending }))
    }

    /// Answers for the recognised visitor, or without identity if the visitor was erased.
    fn finish(
        &mut self,
        state: RequestState,
        route: Box<dyn VisitorRoute>,
        recognised: Result<RecognisedVisitor, SurvivingCookie>,
    ) -> EngineStep {
        let recognised = match recognised {
            Ok(recognised) => recognised,
            Err(survivor) => return self.answer_forgotten(state, route, survivor),
        };
        let mut state = self.with_catalogue(state);
        // The browser has seen a snapshot, but none was found: the KV of this location has older values.
        state.is_history_unread |=
            recognised.ledger.highest > SnapshotVersion::default() && recognised.view.is_silent();
        // Visitors of unread lookups may have exposures and offer codes.
        state.is_history_unread |= recognised.lacks_lookups;
        let progress = route.answer_visitor(state, recognised, &self.sold_out);
        self.proceed(progress)
    }

    /// Answers if the visitor was erased or withdrew its consent. Both cookies expire, and the next request mints a new
    /// visitor. If the visitor was an earlier one of this browser, the cookie of the present one survives.
    fn answer_forgotten(
        &self,
        state: RequestState,
        route: Box<dyn VisitorRoute>,
        survivor: SurvivingCookie,
    ) -> EngineStep {
        let headers: Vec<_> = match survivor {
            None => cookies::expire_cookies(&state.site, state.secure).into(),
            Some(cookie) if route.mints_visitors() => {
                cookies::write_identity(&state.site, state.secure, &cookie).into_iter().collect()
            }
            Some(_) => Vec::new(),
        };
        let answer = route.answer_unidentified(self.with_catalogue(state), "forgotten");
        EngineStep::Answer(answer.with_headers(headers))
    }

    fn answer_unidentified(
        &self,
        state: RequestState,
        route: Box<dyn VisitorRoute>,
        reason: &'static str,
    ) -> EngineStep {
        EngineStep::Answer(route.answer_unidentified(self.with_catalogue(state), reason))
    }

    fn proceed(&mut self, progress: RouteProgress) -> EngineStep {
        match progress {
            RouteProgress::Answer(answer) => EngineStep::Answer(answer),
            RouteProgress::Unserved(reason) => EngineStep::Unserved(reason),
            RouteProgress::Call(call, wait) => match self.pending.admit(wait.bytes()) {
                Some(permit) => EngineStep::Call(PendingCall { wait, permit }, call),
                None => EngineStep::Unserved(UnservedReason::Overloaded),
            },
        }
    }

    /// A member proof for the demonstration page; `None` unless the host's tenant is marked `dev` and has a proof key.
    #[must_use]
    pub fn sign_demo_proof(&self, host: &str, member: &str, now: Millis) -> Option<String> {
        let site = self.site(host).filter(|site| site.tenant.dev)?;
        let now_s = now / 1000;
        let sign = |key| proof::sign_hs256(key, member, &site.id, now_s, now_s + 3_600);
        site.keys.proof.iter().find_map(sign)
    }
}
