//! `POST /v1/events`: events of a page. An invalid event refuses no other, and an invalid attribute refuses no other of
//! its event. The answer leaves once the queue or the origin has accepted the valid events.

use std::collections::BTreeSet;

use causeway_shared::base::ids::{FactId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::actions::ActionType;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::SegmentId;
use causeway_shared::profiles::ledger::RunningSession;
use causeway_shared::wire;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::http::answer::HttpAnswer;
use crate::http::attributes::{AttributeWrites, RefusedAttribute};
use crate::http::body_text::read_text;
use crate::http::incoming::TenantRequest;
use crate::http::{cookies, permission};
use crate::routes::event_reader::{EventReader, INVALID, ReadEvent, Refusal, strict_refusal};
use crate::routes::{AnonymousRoute, CatalogueNeed, NamesNeed, Route, RouteOutcome, RouteProgress};
use crate::state::request_state::RequestState;

/// The answer's body.
#[derive(Default, Serialize)]
struct EventsAnswer {
    /// Present if no event of the body is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<NoValidEvent>,
    accepted: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    consent: Option<&'static str>,
    rejected: Vec<EventNote>,
    /// Events that count at the time of their receipt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    adjusted: Vec<EventNote>,
    /// Fields without effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<EventNote>,
}

/// The error of a body without a valid event.
#[derive(Serialize)]
struct NoValidEvent {
    code: &'static str,
    message: &'static str,
}

impl EventsAnswer {
    /// The answer: status 400 if no event of the body is valid, otherwise 202.
    fn into_answer(mut self) -> HttpAnswer {
        let is_invalid = |note: &EventNote| INVALID.contains(&note.code);
        if self.accepted > 0 || self.rejected.is_empty() || !self.rejected.iter().all(is_invalid) {
            return HttpAnswer::json(202, &self);
        }
        let message = "no event of the body is valid: see `rejected` for the reasons";
        self.error = Some(NoValidEvent { code: "no_valid_event", message });
        HttpAnswer::json(400, &self)
    }
}

/// A note about one event.
#[derive(Serialize)]
struct EventNote {
    index: usize,
    code: &'static str,
    message: String,
}

/// The events of a call, read for the visitor of one identity cookie.
#[derive(Debug)]
struct EventsReading {
    /// The cookie's visitor.
    own: Option<VisitorId>,
    events: Vec<Result<ReadEvent, Refusal>>,
}

/// A call of events.
#[derive(Debug)]
pub(crate) struct EventsRoute {
    /// The reading for the identity cookie that counts.
    first: EventsReading,
    /// Readings for the other identity cookies. One counts if the visitors of all cookies before it were erased.
    others: Vec<EventsReading>,
    /// Visitors of the events that may have been erased: visitors that tokens name, and visitors of the identity
    /// cookies.
    named: BTreeSet<VisitorId>,
}

impl Route for EventsRoute {
    /// The catalogue tells whether the caps of a shown ad are strict. The allocation value published with it lists the
    /// segments that a page cannot write.
    fn catalogue_need(&self) -> CatalogueNeed {
        let needs =
            |fact: &Fact| shown_ad(fact).is_some_and(|ad| ad != 0) || matches!(fact.what, FactKind::Segments { .. });
        if self.first.events.iter().flatten().any(|event| needs(&event.fact)) {
            CatalogueNeed::WhenDue
        } else {
            CatalogueNeed::None
        }
    }

    fn names_need(&self) -> NamesNeed {
        let mut writes = self.first.events.iter().flatten().filter_map(|event| event.writes.as_ref());
        if writes.any(AttributeWrites::has_values) { NamesNeed::Cached } else { NamesNeed::None }
    }
}

/// The code of the ad that a fact is an impression of.
fn shown_ad(fact: &Fact) -> Option<u32> {
    match &fact.what {
        FactKind::Action { action_type: ActionType::IMPRESSION, entity, .. } => Some(entity.ad),
        _ => None,
    }
}

/// Reads the call.
pub(crate) fn begin_events(incoming: TenantRequest<'_>) -> RouteOutcome {
    match read_call(&incoming) {
        Ok((state, route)) => RouteOutcome::Anonymous(state, Box::new(route)),
        Err(answer) => RouteOutcome::Answer(answer.with_headers(incoming.cors)),
    }
}

fn read_call(incoming: &TenantRequest<'_>) -> Result<(RequestState, EventsRoute), Box<HttpAnswer>> {
    if incoming.body.len() > limits::BODY_BYTES {
        return Err(Box::new(HttpAnswer::too_large()));
    }
    let body = read_text(incoming.body);
    let texts = split_events(&body)?;
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    // An earlier permission still applies: the cookie's, or that of the decision that placed an action's ad.
    let permission = permission::standing_permission(incoming.request, true, site);
    let is_counted = incoming.uncounted().is_none();
    if !permission.is_full() {
        let reader = EventReader { site, visitor: None, ledger: None, now, random: incoming.random.clone() };
        let (facts, body) = read_without_visitor(&texts, reader, is_counted);
        let answer = EventsAnswer { consent: Some(permission.code()), ..body }.into_answer();
        return Err(Box::new(permission::withdraw_permission(answer, permission, facts, &jar, site, now)));
    }
    if !is_counted {
        let refuse = |index| rejection_note(index, "not_counted", "bots and prefetches are not counted");
        let body = EventsAnswer { rejected: (0..texts.len()).map(refuse).collect(), ..EventsAnswer::default() };
        return Err(Box::new(body.into_answer()));
    }
    let read = |own: Option<VisitorId>| {
        let ledger = jar.ledger.as_ref().filter(|ledger| Some(ledger.visitor) == own);
        let mut reader = EventReader { site, visitor: own, ledger, now, random: incoming.random.clone() };
        let events = (0..).zip(&texts).map(|(position, text)| reader.read_event(position, text)).collect();
        EventsReading { own, events }
    };
    let first = read(jar.identity.as_ref().map(|cookie| cookie.visitor));
    let others = jar.others.iter().map(|cookie| read(Some(cookie.visitor))).collect();
    let route = EventsRoute::new(first, others, &jar.published_visitors(site, now));
    Ok((RequestState::begin(incoming, &jar, Vec::new()), route))
}

impl EventsReading {
    /// Adds the visitors that the events' tokens name, without the visitors of the cookies. Events of more than
    /// [`limits::EVENTS_VISITORS`] visitors are refused.
    fn name_visitors(&mut self, cookies: &BTreeSet<VisitorId>, named: &mut BTreeSet<VisitorId>) {
        for event in &mut self.events {
            let Some(visitor) = event.as_ref().ok().and_then(ReadEvent::owner) else { continue };
            if cookies.contains(&visitor) || named.contains(&visitor) {
                continue;
            }
            if named.len() < limits::EVENTS_VISITORS {
                named.insert(visitor);
            } else {
                let message = format!("events of at most {} visitors are allowed in one call", limits::EVENTS_VISITORS);
                *event = Err(("out_of_bounds", message));
            }
        }
    }

    /// Whether an event happened to one of these visitors.
    fn has_event_of(&self, visitors: &BTreeSet<VisitorId>) -> bool {
        self.events.iter().flatten().filter_map(ReadEvent::owner).any(|visitor| visitors.contains(&visitor))
    }

    fn is_erased(&self, state: &RequestState) -> bool {
        self.own.is_some_and(|own| state.erased.contains(&own))
    }
}

impl EventsRoute {
    /// `published` are the visitors of the identity cookies whose erasure the KV may report.
    fn new(mut first: EventsReading, mut others: Vec<EventsReading>, published: &[VisitorId]) -> Self {
        let cookies: BTreeSet<VisitorId> =
            [&first].into_iter().chain(&others).filter_map(|reading| reading.own).collect();
        let mut named = BTreeSet::new();
        for reading in [&mut first].into_iter().chain(&mut others) {
            reading.name_visitors(&cookies, &mut named);
        }
        if first.has_event_of(&cookies) {
            named.extend(published);
        }
        Self { first, others, named }
    }

    /// The reading for the identity cookie that counts, as visitor recognition chooses it.
    fn into_living(self, state: &RequestState) -> EventsReading {
        let Self { first, others, .. } = self;
        let other =
            if first.is_erased(state) { others.into_iter().find(|other| !other.is_erased(state)) } else { None };
        other.unwrap_or(first)
    }
}

impl AnonymousRoute for EventsRoute {
    fn named_visitors(&self) -> Vec<VisitorId> {
        self.named.iter().copied().collect()
    }

    fn answer_anonymous(self: Box<Self>, state: RequestState) -> RouteProgress {
        let reading = self.into_living(&state);
        // The cookies of an erased visitor expire, as after a decide call.
        let expired = reading.is_erased(&state).then(|| cookies::expire_cookies(&state.site, state.secure));
        let mut accepted = AcceptedEvents::new();
        for (index, event) in reading.events.into_iter().enumerate() {
            accepted.add(&state, index, event.and_then(|event| refuse_erased(&state, event)));
        }
        let AcceptedEvents { facts, answer, .. } = accepted;
        let session = running_session(&facts, reading.own);
        let session = session.and_then(|session| cookies::write_session(&state.site, state.secure, &session));
        let headers = session.into_iter().chain(expired.into_iter().flatten());
        let answer = state.complete(answer.into_answer()).with_headers(headers);
        // An action may belong to any visitor or to none. The other events belong to the cookie's visitor or to a
        // token's.
        let own = facts.iter().find(|fact| !matches!(fact.what, FactKind::Action { .. }));
        let limited = own.or_else(|| facts.iter().find(|fact| fact.visitor != VisitorId::ANONYMOUS));
        let limit = limited.map(|fact| state.site.events_limit(fact.visitor));
        RouteProgress::Answer(answer.with_awaited_facts(&state.site, facts, limit))
    }
}

/// The session of the newest page view of the cookie's visitor, which the next call continues.
fn running_session(facts: &[Fact], own: Option<VisitorId>) -> Option<RunningSession> {
    facts.iter().rev().filter(|fact| Some(fact.visitor) == own).find_map(|fact| match fact.what {
        FactKind::Page { session } => Some(RunningSession { visitor: fact.visitor, session, last: fact.received }),
        _ => None,
    })
}

/// Refuses an event of a visitor that was erased or withdrew its consent. It counts for no other visitor.
fn refuse_erased(state: &RequestState, event: ReadEvent) -> Result<ReadEvent, Refusal> {
    if event.owner().is_none_or(|visitor| !state.erased.contains(&visitor)) {
        return Ok(event);
    }
    Err(("erased", "the visitor of the event was erased or withdrew its consent: the event is dropped".to_owned()))
}

/// The accepted events of a call so far, within the bounds of a call.
struct AcceptedEvents {
    facts: Vec<Fact>,
    ids: BTreeSet<FactId>,
    answer: EventsAnswer,
    /// Attribute names that the call may still add.
    new_names: usize,
    /// Bytes of facts that the call may still add.
    bytes: usize,
}

impl AcceptedEvents {
    fn new() -> Self {
        Self {
            facts: Vec::new(),
            ids: BTreeSet::new(),
            answer: EventsAnswer::default(),
            new_names: limits::ATTRIBUTE_NAMES_A_CALL,
            bytes: limits::EVENTS_FACT_BYTES,
        }
    }

    fn add(&mut self, state: &RequestState, index: usize, event: Result<ReadEvent, Refusal>) {
        match event {
            Ok(ReadEvent { fact, writes, adjusted, warnings }) => {
                let notes = warnings.into_iter().map(|(code, message)| EventNote { index, code, message });
                self.answer.warnings.extend(notes);
                if let Some(message) = adjusted {
                    self.answer.adjusted.push(EventNote { index, code: "at", message });
                }
                self.add_fact(state, index, fact, writes);
            }
            Err((code, message)) => self.reject(index, code, message),
        }
    }

    fn add_fact(&mut self, state: &RequestState, index: usize, mut fact: Fact, writes: Option<AttributeWrites>) {
        if shown_ad(&fact).is_some_and(|ad| state.catalogue.is_strict(ad)) {
            let (code, message) = strict_refusal();
            return self.reject(index, code, message);
        }
        if !self.allow_segments(state, index, &mut fact) {
            return;
        }
        if let Some(mut writes) = writes {
            writes.check_names(&state.names, state.site.tenant.attribute_names, &mut self.new_names);
            for RefusedAttribute { code, message, .. } in writes.refused {
                self.reject(index, code, message);
            }
            if writes.writes.is_empty() {
                return;
            }
            fact.what = FactKind::Attributes { writes: writes.writes };
        }
        if !self.ids.contains(&fact.id) {
            let Some(left) = self.bytes.checked_sub(wire::facts::bytes_of(&fact)) else {
                let message = format!("at most {} bytes of facts are allowed in one call", limits::EVENTS_FACT_BYTES);
                return self.reject(index, "out_of_bounds", message);
            };
            self.bytes = left;
            self.ids.insert(fact.id);
            self.facts.push(fact);
        }
        self.answer.accepted += 1;
    }

    /// Removes writes of materialised segments from an event, and refuses each by name. Returns whether the event has
    /// writes left.
    fn allow_segments(&mut self, state: &RequestState, index: usize, fact: &mut Fact) -> bool {
        let FactKind::Segments { writes } = &mut fact.what else { return true };
        let is_materialised = |id: SegmentId| state.catalogue.allocation.materialised.contains(&id.0);
        let (refused, allowed): (Vec<_>, Vec<_>) =
            std::mem::take(writes).into_iter().partition(|(id, _)| is_materialised(*id));
        *writes = allowed;
        let is_left = refused.is_empty() || !writes.is_empty();
        for (SegmentId(id), _) in refused {
            let message = format!("segment {id} is a materialised audience: a page cannot write it");
            self.reject(index, "materialised_segment", message);
        }
        is_left
    }

    /// Reports a refusal. The first refusal of an event is always reported, further ones only while the answer has
    /// fewer than [`limits::EVENTS`].
    fn reject(&mut self, index: usize, code: &'static str, message: String) {
        let rejected = &mut self.answer.rejected;
        let is_first = rejected.last().is_none_or(|last| last.index != index);
        if is_first || rejected.len() < limits::EVENTS {
            rejected.push(EventNote { index, code, message });
        }
    }
}

/// Reads a call without permission. Actions without a visitor count for their campaigns (invariant 10), each once.
fn read_without_visitor(texts: &[&str], mut reader: EventReader<'_>, is_counted: bool) -> (Vec<Fact>, EventsAnswer) {
    let (mut facts, mut answer) = (Vec::new(), EventsAnswer::default());
    for ((index, position), text) in (0..).zip(0..).zip(texts) {
        match reader.read_event(position, text) {
            Ok(ReadEvent { fact, .. }) if is_counted && fact.visitor == VisitorId::ANONYMOUS => {
                answer.accepted += 1;
                let is_same = |other: &Fact| other.id == fact.id;
                if !facts.iter().any(is_same) {
                    facts.push(fact);
                }
            }
            Err((code, message)) if INVALID.contains(&code) => {
                answer.rejected.push(EventNote { index, code, message });
            }
            _ => {
                let message = "the visitor gave no permission to be counted";
                answer.rejected.push(rejection_note(index, "no_consent", message));
            }
        }
    }
    (facts, answer)
}

fn rejection_note(index: usize, code: &'static str, message: &str) -> EventNote {
    EventNote { index, code, message: message.to_owned() }
}

/// The texts of the events, from a JSON array or from one event per line.
fn split_events(body: &str) -> Result<Vec<&str>, Box<HttpAnswer>> {
    let malformed = |message: &str| Box::new(HttpAnswer::error(400, "malformed", message, None));
    let texts: Vec<&str> = if body.trim_start().starts_with('[') {
        let events: Vec<&RawValue> =
            serde_json::from_str(body).map_err(|error| malformed(&format!("the body is not a JSON array: {error}")))?;
        events.into_iter().map(RawValue::get).collect()
    } else {
        body.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect()
    };
    match texts.len() {
        0 => Err(malformed("the body contains no event")),
        n if n > limits::EVENTS => {
            let message = format!("{n} events: at most {} are allowed in one call", limits::EVENTS);
            Err(Box::new(HttpAnswer::error(400, "out_of_bounds", &message, None)))
        }
        _ => Ok(texts),
    }
}
