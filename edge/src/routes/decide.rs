//! `POST /v1/decide`: one call for all placements of a page.

use std::collections::BTreeMap;

use causeway_shared::ads::decision::Holding;
use causeway_shared::base::ids::{FactId, InsertionId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::exposures::FirstExposure;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::offer_codes::{GivenOfferCode, HeldOfferCode};
use causeway_shared::identity::{IdClaim, IdentityCookie, RecognisedVisitor, VisitorOrigin};
use causeway_shared::settings::config;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::http::answer::HttpAnswer;
use crate::http::attributes::AttributeWrites;
use crate::http::body_text::read_text;
use crate::http::incoming::TenantRequest;
use crate::http::json_object::JsonObject;
use crate::http::request::EXPLAIN;
use crate::http::{claims, cookies, permission};
use crate::objects::object_call::ObjectCall;
use crate::objects::offers::{self, OfferAnswer, OfferHoldings, SoldOutOffers};
use crate::objects::strict_caps;
use crate::routes::decide_body::{DecideBody, PlacementBody, read_exact};
use crate::routes::decide_repair::{BodyNotes, FieldNote, repair_body};
use crate::routes::placing::{self, DecideRoute, PageContext, PlacementAnswer, PlacementRequest};
use crate::routes::{
    AnonymousRoute, CatalogueNeed, NamesNeed, ObjectWait, Route, RouteOutcome, RouteProgress, VisitorRoute,
};
use crate::state::request_state::RequestState;

/// A decide call that recognises no visitor, because it has no permission or does not count.
#[derive(Debug)]
struct AnonymousDecide {
    route: DecideRoute,
    reason: &'static str,
    /// The headers and facts of a withdrawal; empty without one.
    withdrawal: HttpAnswer,
}

/// The answer's body.
#[derive(Serialize)]
struct DecideAnswer<'a> {
    visitor: Option<String>,
    /// The signed token of the visitor, which the page sends with its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    visitor_token: Option<String>,
    person: Option<PersonSummary>,
    decisions: Vec<PlacementAnswer<'a>>,
    catalogue: Option<String>,
    kv_reads: u8,
    consent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    degraded: &'a [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Value>,
    /// Attributes that were refused, each with the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'a str, &'static str>,
    /// Placements and ids that were left out.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rejected: &'a [FieldNote],
    /// Further fields that were left out or have no effect.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [FieldNote],
    #[serde(flatten)]
    refused: Map<String, Value>,
}

/// The answer's part about the person.
#[derive(Serialize)]
struct PersonSummary {
    devices: u32,
    new_visitor: bool,
    bridged: bool,
}

/// Reads the call, its consent and its ids.
pub(crate) fn begin_decide(incoming: TenantRequest<'_>) -> RouteOutcome {
    if incoming.body.len() > limits::BODY_BYTES {
        return RouteOutcome::Answer(HttpAnswer::too_large().with_headers(incoming.cors));
    }
    let text = read_text(incoming.body);
    if let Some(body) = read_exact(&text) {
        return begin_call(&incoming, body, BodyNotes::default());
    }
    match repair_body(&text) {
        Ok((mended, notes)) => match read_exact(&mended) {
            Some(body) => begin_call(&incoming, body, notes),
            None => {
                let answer = HttpAnswer::error(400, "malformed", "the body is not a valid decide call", None);
                RouteOutcome::Answer(answer.with_headers(incoming.cors))
            }
        },
        Err(refused) => RouteOutcome::Answer(refused.with_headers(incoming.cors)),
    }
}

fn begin_call(incoming: &TenantRequest<'_>, body: DecideBody<'_>, mut notes_of_body: BodyNotes) -> RouteOutcome {
    let TenantRequest { request, site, now, .. } = incoming;
    let permission = permission::of_call(*request, &body.consent.0, site);
    let jar = cookies::read(*request, site, *now);
    let uncounted = incoming.uncounted();
    let claims = claims::take_claims(incoming, &body.user.0);
    let vocabulary = &site.tenant.vocabulary;
    let anonymous = if !permission.is_full() {
        let withdrawal =
            permission::withdraw_permission(HttpAnswer::default(), permission, Vec::new(), &jar, site, *now);
        Some((permission.code(), withdrawal))
    } else if uncounted.is_some() && jar.identity.as_ref().is_none_or(|own| is_other_member(own, &claims.taken)) {
        Some(("not_counted", HttpAnswer::default()))
    } else {
        None
    };
    let mut random = incoming.random.clone();
    let placement = |JsonObject(p): JsonObject<PlacementBody<'_>>| PlacementRequest {
        id: p.id.into_owned(),
        sizes: p.sizes.into_iter().map(|size| size.map(|side| side.0)).collect(),
        view_type: vocabulary.view_type(&p.view_type).unwrap_or_default(),
        floor_micros: p.floor_micros.0,
        insertion: InsertionId(random.draw()),
    };
    for (i, JsonObject(placement)) in body.placements.iter().enumerate() {
        if !placement.view_type.is_empty() && vocabulary.view_type(&placement.view_type).is_none() {
            let message = "the tenant has no such view type";
            notes_of_body.warn(format!("placements[{i}].view_type"), "unknown_view_type", message);
        }
    }
    let placements = body.placements.into_iter().map(placement).collect();
    let JsonObject(page) = body.page;
    let shown = placing::read_shown(site, &body.shown, *now, &mut notes_of_body);
    let draw = u64::from_be_bytes(random.draw());
    let is_explained = || request.extra(incoming.further_headers, EXPLAIN).is_some_and(|key| site.admits_explain(key));
    let writes_attributes = permission.is_full() && uncounted.is_none();
    let route = DecideRoute {
        placements,
        page: PageContext {
            url: page.url.into_owned(),
            keywords: page.keywords,
            gaps: notes_of_body.page_gaps,
            location: request.location.to_owned(),
            agent: request.agent().to_owned(),
        },
        shown,
        is_permitted: permission.is_full(),
        is_counted: uncounted.is_none(),
        is_page_view: body.page_view && uncounted.is_none(),
        names_person: !claims.taken.is_empty(),
        wants_trace: body.explain && is_explained(),
        refused: claims.refused,
        body: notes_of_body,
        attributes: if writes_attributes {
            AttributeWrites::read(body.user.0.attributes, None)
        } else {
            AttributeWrites::default()
        },
        draw,
        holdings: OfferHoldings::default(),
        facts: Vec::new(),
    };
    let notes = jar.refused.into_iter().chain(claims.fault).collect();
    let state = RequestState { random, ..RequestState::begin(incoming, &jar, notes) };
    if let Some((reason, withdrawal)) = anonymous {
        return RouteOutcome::Anonymous(state, Box::new(AnonymousDecide { route, reason, withdrawal }));
    }
    let claims = if uncounted.is_some() { Vec::new() } else { claims.taken };
    RouteOutcome::Recognise(state, Box::new(route), Box::new(jar.arrival(site, *now, claims)))
}

/// Whether the request proves a member that is not known to be the cookie's. An uncounted call switches to no other
/// visitor.
fn is_other_member(own: &IdentityCookie, claims: &[IdClaim]) -> bool {
    let is_own = |claim: &IdClaim| own.tag.is_some_and(|tag| claim.is(tag) == Some(true));
    claims.iter().any(|claim| claim.unique && !is_own(claim))
}

impl Route for DecideRoute {
    fn catalogue_need(&self) -> CatalogueNeed {
        CatalogueNeed::WhenDue
    }

    fn names_need(&self) -> NamesNeed {
        if self.attributes.has_values() || self.wants_trace { NamesNeed::Cached } else { NamesNeed::None }
    }
}

impl VisitorRoute for DecideRoute {
    fn mints_visitors(&self) -> bool {
        true
    }

    fn answer_visitor(
        mut self: Box<Self>,
        mut state: RequestState,
        mut recognised: RecognisedVisitor,
        sold_out: &SoldOutOffers,
    ) -> RouteProgress {
        // The page view counts before any object is called, so that all decisions of a call use the same counts.
        self.facts = recognised.observe(self.is_page_view, &mut state.random);
        if self.is_counted {
            self.holdings = offers::find_holdings(&state, &recognised);
        }
        let call = self.ask_grants(&state, &recognised, sold_out);
        let visit = RecognisedCall { route: self, state, recognised };
        match call {
            Some(call) => RouteProgress::Call(call, Box::new(GrantsWait(visit))),
            None => visit.continue_with_grants(None, sold_out),
        }
    }

    fn answer_unidentified(self: Box<Self>, state: RequestState, reason: &'static str) -> HttpAnswer {
        self.answer_contextual(&state, reason)
    }
}

impl Route for AnonymousDecide {
    fn catalogue_need(&self) -> CatalogueNeed {
        self.route.catalogue_need()
    }
}

impl AnonymousRoute for AnonymousDecide {
    fn answer_anonymous(self: Box<Self>, state: RequestState) -> RouteProgress {
        let Self { route, reason, withdrawal } = *self;
        let answer = route.answer_contextual(&state, reason).with_headers(withdrawal.headers);
        RouteProgress::Answer(HttpAnswer { facts: withdrawal.facts, ..answer })
    }
}

impl DecideRoute {
    /// Whether a call that recognises no visitor belongs to a person that may have one. Everything about that person is
    /// then unknown. A call without permission belongs to no person.
    pub(crate) fn is_person_unread(&self) -> bool {
        self.is_permitted && self.names_person
    }

    /// The call to the person's object, if ads under strict caps may be placed.
    fn ask_grants(
        &self,
        state: &RequestState,
        recognised: &RecognisedVisitor,
        sold_out: &SoldOutOffers,
    ) -> Option<ObjectCall> {
        if !self.is_counted || !state.catalogue.compiled.has_strict() {
            return None;
        }
        let question = placing::build_question(state, self, Some(&recognised.counted()));
        let choices = question.strict(|campaign| sold_out.contains(state, campaign));
        let insertions: Vec<InsertionId> = self.placements.iter().map(|placement| placement.insertion).collect();
        let is_asked = choices.iter().any(|choices| !choices.is_empty());
        is_asked.then(|| strict_caps::ask_grants(state, recognised, &choices, &insertions))
    }

    /// The index of the granted ad for each placement; `None` if the object was not called or did not answer.
    fn granted_indices(&self, state: &RequestState, grants: Option<&[u8]>) -> Option<Vec<Option<usize>>> {
        let granted = strict_caps::read_grants(grants)?;
        Some(placing::granted_indices(state, &self.placements, &granted))
    }

    /// The limited offer whose code must be requested, if one would be placed. An offer in `sold_out` is requested only
    /// if no other would be placed, because a person that was given a code without receiving the answer still gets it.
    fn wanted_offer(
        &mut self,
        state: &RequestState,
        recognised: &RecognisedVisitor,
        grants: Option<&[u8]>,
        sold_out: &SoldOutOffers,
    ) -> Option<u32> {
        let first = self.first_wanted(state, recognised, grants)?;
        if !sold_out.contains(state, first) {
            return Some(first);
        }
        self.holdings.retain(|campaign, holding| *holding != Holding::May || !sold_out.contains(state, *campaign));
        Some(self.first_wanted(state, recognised, grants).unwrap_or(first))
    }

    fn first_wanted(&self, state: &RequestState, recognised: &RecognisedVisitor, grants: Option<&[u8]>) -> Option<u32> {
        if self.holdings.values().all(|holding| *holding != Holding::May) {
            return None;
        }
        let granted = self.granted_indices(state, grants);
        placing::build_question(state, self, Some(&recognised.counted())).wants_offer_code(granted.as_deref())
    }

    /// The accepted attribute writes as a fact.
    fn attribute_fact(&mut self, state: &mut RequestState, visitor: VisitorId) -> Option<Fact> {
        let policy = state.site.tenant.attribute_names;
        self.attributes.check_names(&state.names, policy, &mut { limits::ATTRIBUTE_NAMES_A_CALL });
        let writes = std::mem::take(&mut self.attributes.writes);
        (!writes.is_empty()).then(|| new_fact(state, visitor, FactKind::Attributes { writes }))
    }

    /// The answer without an identity.
    fn answer_contextual(&self, state: &RequestState, reason: &'static str) -> HttpAnswer {
        let question = placing::build_question(state, self, None);
        let decisions = placing::answer_placements(state, &self.placements, &question, &question.decide(None), None);
        let trace = self
            .wants_trace
            .then(|| placing::build_trace(state, &self.placements, &question, &question.outcomes(None), None));
        self.answer(state, None, Some(reason), decisions, trace)
    }

    fn answer(
        &self,
        state: &RequestState,
        visitor: Option<(VisitorId, PersonSummary)>,
        reason: Option<&'static str>,
        decisions: Vec<PlacementAnswer<'_>>,
        trace: Option<Value>,
    ) -> HttpAnswer {
        let (visitor, person) = visitor.unzip();
        let consent = if self.is_permitted { "full" } else { "none" };
        // A kind's name is chosen by the page, and never replaces a field of the answer.
        let refused = self.refused.iter().filter(|(kind, _)| !config::ANSWER_FIELDS.contains(&kind.as_str()));
        let answer = DecideAnswer {
            visitor: visitor.map(|visitor| visitor.to_string()),
            visitor_token: visitor.and_then(|visitor| state.site.seal_visitor(visitor, state.now)),
            person,
            decisions,
            catalogue: state.catalogue.name(),
            kv_reads: state.kv_reads,
            consent,
            reason,
            degraded: &state.notes,
            trace,
            rejected: &self.body.rejected,
            warnings: &self.body.warnings,
            attributes: self.attributes.refused.iter().map(|one| (one.name.as_str(), one.code)).collect(),
            refused: refused.map(|(kind, why)| (kind.clone(), Value::from(*why))).collect(),
        };
        state.complete(HttpAnswer::json(200, &answer))
    }
}

/// A decide call whose visitor is recognised.
#[derive(Debug)]
struct RecognisedCall {
    route: Box<DecideRoute>,
    state: RequestState,
    recognised: RecognisedVisitor,
}

/// The call waits for the person's object, which grants ads under strict caps.
#[derive(Debug)]
struct GrantsWait(RecognisedCall);

/// The call waits for an object of a limited offer, which gives a code.
#[derive(Debug)]
struct OfferWait {
    call: RecognisedCall,
    campaign: u32,
    /// The earlier answer of the person's object.
    grants: Option<Vec<u8>>,
}

impl ObjectWait for GrantsWait {
    fn bytes(&self) -> usize {
        self.0.state.bytes
    }

    fn resume(self: Box<Self>, answer: Option<&[u8]>, sold_out: &mut SoldOutOffers) -> RouteProgress {
        let mut call = self.0;
        call.state.notes.extend(answer.is_none().then_some("strict_unanswered"));
        call.continue_with_grants(answer, sold_out)
    }
}

impl ObjectWait for OfferWait {
    fn bytes(&self) -> usize {
        self.call.state.bytes
    }

    fn resume(self: Box<Self>, answer: Option<&[u8]>, sold_out: &mut SoldOutOffers) -> RouteProgress {
        let Self { mut call, campaign, grants } = *self;
        match offers::read_code(answer) {
            OfferAnswer::Code(given) => call.add_code(campaign, given),
            OfferAnswer::SoldOut => {
                call.route.holdings.remove(&campaign);
                sold_out.add(&call.state, campaign);
            }
            OfferAnswer::Missing => call.state.notes.push("offer_code_unanswered"),
        }
        RouteProgress::Answer(call.answer(grants.as_deref()))
    }
}

impl RecognisedCall {
    /// Answers, or first calls for the code of a limited offer.
    fn continue_with_grants(mut self, grants: Option<&[u8]>, sold_out: &SoldOutOffers) -> RouteProgress {
        let Self { route, state, recognised } = &mut self;
        let wanted = route.wanted_offer(state, recognised, grants, sold_out);
        let asked = wanted.and_then(|campaign| Some((campaign, offers::ask_code(state, recognised, campaign)?)));
        match asked {
            Some((campaign, call)) => {
                let wait = OfferWait { call: self, campaign, grants: grants.map(<[u8]>::to_vec) };
                RouteProgress::Call(call, Box::new(wait))
            }
            None => RouteProgress::Answer(self.answer(grants)),
        }
    }

    /// Adds the person's code. The fact belongs to the visitor to which the object assigned the code, so that it counts
    /// once, whichever browser of the person reports it.
    fn add_code(&mut self, campaign: u32, GivenOfferCode { number, holder }: GivenOfferCode) {
        let now = self.state.now;
        self.route.holdings.insert(campaign, Holding::Has(number));
        if holder == self.recognised.visitor {
            self.recognised.ledger.keep_offer_code(campaign, HeldOfferCode { number, at: now });
        }
        let (id, what) = (FactId::of_offer_code(holder, campaign, number), FactKind::OfferCode { campaign, number });
        self.route.facts.push(Fact { position: 0, id, visitor: holder, received: now, at: now, what });
    }

    /// The answer with an identity. `grants` is the answer of the person's object.
    fn answer(self, grants: Option<&[u8]>) -> HttpAnswer {
        let Self { mut route, mut state, mut recognised } = self;
        let mut facts = std::mem::take(&mut route.facts);
        facts.extend(route.attribute_fact(&mut state, recognised.visitor));
        let (answer, exposures) = route.answer_recognised(&state, &mut recognised, grants);
        for (experiment, exposure) in exposures {
            recognised.ledger.expose(experiment, exposure);
            facts.push(new_fact(&mut state, recognised.visitor, FactKind::Exposure { experiment, arm: exposure.arm }));
        }
        let identity = (recognised.cookie_changed || state.stale_key)
            .then(|| cookies::write_identity(&state.site, state.secure, &recognised.cookie))
            .flatten();
        let ledger = cookies::write_ledger(&state.site, state.secure, &recognised.ledger);
        answer.with_headers(identity.into_iter().chain(ledger)).with_facts(&state.site, facts)
    }
}

impl DecideRoute {
    /// Decides, reserves the placed ads in the ledger, and returns the answer with the new exposures.
    fn answer_recognised(
        &self,
        state: &RequestState,
        recognised: &mut RecognisedVisitor,
        grants: Option<&[u8]>,
    ) -> (HttpAnswer, Vec<(u32, FirstExposure)>) {
        let counted = recognised.view.of(recognised.visitor);
        let new_visitor = recognised.origin == VisitorOrigin::Minted;
        let person = PersonSummary { devices: counted.devices(), new_visitor, bridged: counted.is_bridged() };
        let granted = self.granted_indices(state, grants);
        let question = placing::build_question(state, self, Some(&counted));
        let decided = question.decide(granted.as_deref());
        let decisions =
            placing::answer_placements(state, &self.placements, &question, &decided, Some(recognised.visitor));
        let trace = self.wants_trace.then(|| {
            let outcomes = question.outcomes(granted.as_deref());
            placing::build_trace(state, &self.placements, &question, &outcomes, Some(&counted))
        });
        let exposures = placing::new_exposures(state, recognised, &question);
        if self.is_counted {
            recognised.ledger.reserve(decisions.iter().filter_map(|decision| decision.placed.as_ref()?.reserved));
        }
        (self.answer(state, Some((recognised.visitor, person)), None, decisions, trace), exposures)
    }
}

/// A fact of this request.
fn new_fact(state: &mut RequestState, visitor: VisitorId, what: FactKind) -> Fact {
    Fact { position: 0, id: FactId::from_bytes(state.random.draw()), visitor, received: state.now, at: state.now, what }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn no_kind_may_have_the_name_of_a_field() {
        let said = Some("x");
        let whole = DecideAnswer {
            visitor: said.map(str::to_owned),
            visitor_token: said.map(str::to_owned),
            person: None,
            decisions: Vec::new(),
            catalogue: None,
            kv_reads: 0,
            consent: "full",
            reason: said,
            degraded: &["x"],
            trace: said.map(Value::from),
            attributes: [("x", "x")].into(),
            rejected: &[FieldNote { field: "x".to_owned(), code: "x", message: String::new() }],
            warnings: &[FieldNote { field: "x".to_owned(), code: "x", message: String::new() }],
            refused: Map::new(),
        };
        let fields = serde_json::to_value(whole).unwrap();
        let mut named: Vec<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        let mut known = config::ANSWER_FIELDS.to_vec();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
