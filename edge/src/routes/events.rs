//! `POST /v1/events`: events of a page. An invalid event refuses no other, and an invalid attribute refuses no other of
//! its event. The answer leaves once the queue or the origin has accepted the valid events.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::actions::Verb;
use causeway_shared::fact::{Fact, FactError, PURCHASE, What};
use causeway_shared::ids::{FactId, Micros, Millis, SessionId, VisitorId};
use causeway_shared::ledger::Ledger;
use causeway_shared::random::Random;
use causeway_shared::segments::{SegmentId, State};
use causeway_shared::time::HourStamp;
use causeway_shared::{limits, token, wire};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::http::answer::Answer;
use crate::http::attributes::{AttributeWrites, RefusedAttribute};
use crate::http::cookies;
use crate::http::incoming::Incoming;
use crate::http::permission;
use crate::routes::{AnonymousRoute, CatalogueNeed, NamesNeed, Progress, Route, Routed, pixel};
use crate::site::Site;
use crate::state::request_state::RequestState;

/// One event of the call.
#[derive(Deserialize)]
struct EventBody<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    at_ms: Option<u64>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    properties: Option<Map<String, Value>>,
    #[serde(borrow, default)]
    insertion: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    action: Option<Cow<'a, str>>,
    /// Values to set: an array for segments, an object by name for attributes.
    #[serde(borrow, default)]
    set: Option<&'a RawValue>,
    #[serde(borrow, default)]
    remove: Option<&'a RawValue>,
}

/// A segment to set.
#[derive(Deserialize)]
struct SegmentBody {
    segment: u32,
    expires_ms: Millis,
    #[serde(default)]
    attributes: BTreeMap<u16, i32>,
}

/// The answer's body.
#[derive(Default, Serialize)]
struct EventsAnswer {
    accepted: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    consent: Option<&'static str>,
    rejected: Vec<RejectedEvent>,
}

/// An event that was refused.
#[derive(Serialize)]
struct RejectedEvent {
    index: usize,
    code: &'static str,
    message: String,
}

/// The code and the message of a refused event.
type Refusal = (&'static str, String);

/// An event that was read. The writes of an attribute event are checked when the attribute names are known.
type ReadEvent = Result<(Fact, Option<AttributeWrites>), Refusal>;

/// A call of events.
#[derive(Debug)]
pub(crate) struct EventsRoute(Vec<ReadEvent>);

impl Route for EventsRoute {
    /// The catalogue says whether the caps of a shown ad are strict.
    fn catalogue_need(&self) -> CatalogueNeed {
        let has_impressions = self.0.iter().flatten().any(|(fact, _)| shown_ad(fact).is_some_and(|ad| ad != 0));
        if has_impressions { CatalogueNeed::WhenDue } else { CatalogueNeed::None }
    }

    fn names_need(&self) -> NamesNeed {
        let has_values =
            self.0.iter().flatten().filter_map(|(_, writes)| writes.as_ref()).any(AttributeWrites::has_values);
        if has_values { NamesNeed::Cached } else { NamesNeed::None }
    }
}

/// The code of the ad that a fact is an impression of.
fn shown_ad(fact: &Fact) -> Option<u32> {
    match &fact.what {
        What::Action { verb: Verb::IMPRESSION, entity, .. } => Some(entity.ad),
        _ => None,
    }
}

fn strict_refusal() -> Refusal {
    ("strict", "the impression of an ad under strict caps counts by its impression_url".to_owned())
}

/// Reads the call.
pub(crate) fn begin(incoming: Incoming<'_>) -> Routed {
    match read_call(&incoming) {
        Ok((state, route)) => Routed::Anonymous(state, Box::new(route)),
        Err(answer) => Routed::Answer(answer.with_headers(incoming.cors)),
    }
}

fn read_call(incoming: &Incoming<'_>) -> Result<(RequestState, EventsRoute), Box<Answer>> {
    let texts = split_events(incoming.body)?;
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    // A permission given before stands: to the cookie, or to the decision that placed an action's ad.
    let permission = permission::standing(incoming.request, true, site);
    let is_counted = incoming.request.uncounted().is_none();
    if !permission.is_full() {
        let reader = EventReader { site, visitor: None, ledger: None, now, random: incoming.random.clone() };
        let (facts, body) = read_without_visitor(&texts, reader, is_counted);
        let answer = Answer::json(202, &EventsAnswer { consent: Some(permission.code()), ..body });
        return Err(Box::new(permission::withdraw(answer, facts, &jar, site, now)));
    }
    if !is_counted {
        let refuse = |index| rejected(index, "not_counted", "bots and prefetches are not counted");
        let body = EventsAnswer { accepted: 0, consent: None, rejected: (0..texts.len()).map(refuse).collect() };
        return Err(Box::new(Answer::json(202, &body)));
    }
    let visitor = jar.identity.as_ref().map(|cookie| cookie.visitor);
    let ledger = jar.ledger.as_ref().filter(|ledger| Some(ledger.visitor) == visitor);
    let mut reader = EventReader { site, visitor, ledger, now, random: incoming.random.clone() };
    let route = EventsRoute(texts.into_iter().map(|text| reader.event(text)).collect());
    Ok((RequestState::begin(incoming, &jar, Vec::new()), route))
}

impl AnonymousRoute for EventsRoute {
    fn answer_anonymous(self: Box<Self>, state: RequestState) -> Progress {
        let mut accepted = AcceptedEvents::new();
        for (index, event) in self.0.into_iter().enumerate() {
            accepted.add(&state, index, event);
        }
        let AcceptedEvents { facts, accepted, rejected, .. } = accepted;
        let answer = state.complete(Answer::json(202, &EventsAnswer { accepted, consent: None, rejected }));
        // An action may belong to any visitor or to none; every other fact belongs to the cookie's visitor.
        let own = facts.iter().find(|fact| !matches!(fact.what, What::Action { .. }));
        let limited = own.or_else(|| facts.iter().find(|fact| fact.visitor != VisitorId::NOBODY));
        let limit = limited.map(|fact| state.site.events_limit(fact.visitor));
        Progress::Answer(answer.with_awaited_facts(&state.site, facts, limit))
    }
}

/// The events of a call that were accepted so far, within the bounds of a call.
struct AcceptedEvents {
    facts: Vec<Fact>,
    ids: BTreeSet<FactId>,
    accepted: usize,
    rejected: Vec<RejectedEvent>,
    /// Attribute names that the call may still add.
    new_names: usize,
    /// Bytes of facts that the call may still bring.
    bytes: usize,
}

impl AcceptedEvents {
    fn new() -> Self {
        Self {
            facts: Vec::new(),
            ids: BTreeSet::new(),
            accepted: 0,
            rejected: Vec::new(),
            new_names: limits::ATTRIBUTE_NAMES_A_CALL,
            bytes: limits::EVENTS_FACT_BYTES,
        }
    }

    fn add(&mut self, state: &RequestState, index: usize, event: ReadEvent) {
        match event {
            Ok((fact, writes)) => self.add_fact(state, index, fact, writes),
            Err((code, message)) => self.reject(index, code, message),
        }
    }

    fn add_fact(&mut self, state: &RequestState, index: usize, mut fact: Fact, writes: Option<AttributeWrites>) {
        if shown_ad(&fact).is_some_and(|ad| state.catalogue.is_strict(ad)) {
            let (code, message) = strict_refusal();
            return self.reject(index, code, message);
        }
        if let Some(mut writes) = writes {
            writes.check_names(&state.names, state.site.tenant.attribute_names, &mut self.new_names);
            for RefusedAttribute { code, message, .. } in writes.refused {
                self.reject(index, code, message);
            }
            if writes.writes.is_empty() {
                return;
            }
            fact.what = What::Attributes { writes: writes.writes };
        }
        if !self.ids.contains(&fact.id) {
            let Some(left) = self.bytes.checked_sub(wire::facts::bytes_of(&fact)) else {
                let message = format!("{} bytes of facts at most in one call", limits::EVENTS_FACT_BYTES);
                return self.reject(index, "out_of_bounds", message);
            };
            self.bytes = left;
            self.ids.insert(fact.id);
            self.facts.push(fact);
        }
        self.accepted += 1;
    }

    /// Names the first refusal of an event in any case, and more of them while the answer names fewer than
    /// [`limits::EVENTS`].
    fn reject(&mut self, index: usize, code: &'static str, message: String) {
        let is_first = self.rejected.last().is_none_or(|last| last.index != index);
        if is_first || self.rejected.len() < limits::EVENTS {
            self.rejected.push(RejectedEvent { index, code, message });
        }
    }
}

/// Reads a call without permission: actions without a visitor count for their campaigns (invariant 10), each once.
fn read_without_visitor(texts: &[&str], mut reader: EventReader<'_>, is_counted: bool) -> (Vec<Fact>, EventsAnswer) {
    let (mut facts, mut answer) = (Vec::new(), EventsAnswer::default());
    for (index, text) in texts.iter().enumerate() {
        match reader.event(text) {
            Ok((fact, _)) if is_counted && fact.visitor == VisitorId::NOBODY => {
                answer.accepted += 1;
                if !facts.contains(&fact) {
                    facts.push(fact);
                }
            }
            _ => {
                let message = "there is no permission to count this visitor";
                answer.rejected.push(rejected(index, "no_consent", message));
            }
        }
    }
    (facts, answer)
}

fn rejected(index: usize, code: &'static str, message: &str) -> RejectedEvent {
    RejectedEvent { index, code, message: message.to_owned() }
}

/// The texts of the events, from a JSON array or from one event per line.
fn split_events(body: &[u8]) -> Result<Vec<&str>, Box<Answer>> {
    if body.len() > limits::BODY_BYTES {
        return Err(Box::new(Answer::too_large()));
    }
    let malformed = |message: &str| Box::new(Answer::error(400, "malformed", message, None));
    let texts: Vec<&str> = if body.trim_ascii_start().starts_with(b"[") {
        let text = std::str::from_utf8(body).map_err(|_| malformed("the body is not UTF-8"))?;
        let events: Vec<&RawValue> =
            serde_json::from_str(text).map_err(|error| malformed(&format!("the body is not a JSON array: {error}")))?;
        events.into_iter().map(RawValue::get).collect()
    } else {
        // A line that is not UTF-8 is refused as an invalid event.
        let lines = body.split(|byte| *byte == b'\n').map(|line| std::str::from_utf8(line).unwrap_or("?").trim());
        lines.filter(|line| !line.is_empty()).collect()
    };
    match texts.len() {
        0 => Err(malformed("there is no event in the body")),
        n if n > limits::EVENTS => {
            let message = format!("{n} events; {} at most in one call", limits::EVENTS);
            Err(Box::new(Answer::error(400, "out_of_bounds", &message, None)))
        }
        _ => Ok(texts),
    }
}

/// Reads the events of one call.
struct EventReader<'a> {
    site: &'a Site,
    /// The visitor of the cookie.
    visitor: Option<VisitorId>,
    ledger: Option<&'a Ledger>,
    now: Millis,
    random: Random,
}

impl EventReader<'_> {
    fn event(&mut self, text: &str) -> ReadEvent {
        if !text.starts_with('{') {
            return Err(("malformed", "an event is a JSON object".to_owned()));
        }
        let event: EventBody<'_> = serde_json::from_str(text).map_err(|error| ("malformed", error.to_string()))?;
        if event.id.as_deref().is_some_and(|id| !(1..=limits::MESSAGE_ID_BYTES).contains(&id.len())) {
            return Err(("too_long", format!("an event's id has 1 to {} bytes", limits::MESSAGE_ID_BYTES)));
        }
        if event.kind == "action" {
            return Ok((self.action(&event)?, None));
        }
        let no_visitor =
            || ("no_visitor", "only /v1/decide mints a visitor: call it first, and send its cookie".to_owned());
        let (visitor, received) = (self.visitor.ok_or_else(no_visitor)?, self.now);
        let given = if event.kind == "attributes" { Some(attributes(&event)?) } else { None };
        let id = match event.id.as_deref() {
            None => FactId::from_bytes(self.random.draw()),
            Some(id) => FactId::of_message(visitor, id),
        };
        let at = event.at_ms.unwrap_or(received);
        if at > received.saturating_add(limits::FACT_AHEAD_MS) {
            return Err((FactError::At.code(), FactError::At.to_string()));
        }
        let fact = Fact { id, visitor, received, at: at.min(received), what: self.what(event, visitor)? };
        match fact.check(received) {
            // The writes are added when their names are known.
            Err(FactError::Attributes) if given.is_some() => {}
            checked => checked.map_err(|error| (error.code(), error.to_string()))?,
        }
        Ok((fact, given))
    }

    /// An action counts for the visitor that its insertion names. Its id follows from the insertion, because a client's
    /// message id would count a repeat twice.
    fn action(&self, event: &EventBody<'_>) -> Result<Fact, Refusal> {
        let missing = || ("malformed", "an action names its `insertion` and its `action`".to_owned());
        let (insertion, name) = event.insertion.as_deref().zip(event.action.as_deref()).ok_or_else(missing)?;
        let unknown = || ("unknown_action", "the tenant's words have no such verb".to_owned());
        let verb = self.site.tenant.vocabulary.verb(name).ok_or_else(unknown)?;
        let token = token::open(&self.site.keys.cookie, &self.site.id, insertion, self.now);
        let token = token.map_err(|error| (error.code(), error.to_string()))?;
        if token.strict && verb == Verb::IMPRESSION {
            return Err(strict_refusal());
        }
        Ok(pixel::action_fact(&token, verb, self.now))
    }

    fn what(&self, event: EventBody<'_>, visitor: VisitorId) -> Result<What, Refusal> {
        match event.kind.as_ref() {
            "page" => Ok(What::Page { session: self.session(visitor) }),
            "track" => track(event, self.site.tenant.most_value_micros.unwrap_or(limits::VALUE_MICROS)),
            "segments" => segments(&event),
            "attributes" => Ok(What::Attributes { writes: Vec::new() }),
            _ => Err(("unknown_type", "the types are page, track, action, attributes, segments".to_owned())),
        }
    }

    /// The session of a page event: the running one of the ledger. Without one, all page events of a half hour share a
    /// session, because the answer sets no cookie that could store a new one.
    fn session(&self, visitor: VisitorId) -> SessionId {
        let running = self.ledger.and_then(|ledger| ledger.running(self.now));
        running.unwrap_or_else(|| {
            let began = self.now - self.now % limits::SESSION_IDLE_MS;
            let [a, b, c, d, ..] = *FactId::of_message(visitor, &format!("session {began}")).as_bytes();
            SessionId::mint(began, [a, b, c, d])
        })
    }
}

/// What an event sets or removes, in the form of its type; the default if it is absent.
fn read_part<T: Default + DeserializeOwned>(raw: Option<&RawValue>) -> Result<T, Refusal> {
    let read = raw.map(|raw| serde_json::from_str(raw.get())).transpose();
    Ok(read.map_err(|error| ("malformed", error.to_string()))?.unwrap_or_default())
}

fn attributes(event: &EventBody<'_>) -> Result<AttributeWrites, Refusal> {
    let given = AttributeWrites::read(event.set, event.remove);
    if given.writes.is_empty() && given.refused.is_empty() {
        return Err((FactError::Attributes.code(), FactError::Attributes.to_string()));
    }
    Ok(given)
}

fn segments(event: &EventBody<'_>) -> Result<What, Refusal> {
    let (set, remove): (Vec<SegmentBody>, Vec<u32>) = (read_part(event.set)?, read_part(event.remove)?);
    let written = set.len() + remove.len();
    if written == 0 || written > limits::SEGMENT_WRITES {
        return Err((FactError::Segments.code(), FactError::Segments.to_string()));
    }
    let held = |set: &SegmentBody| {
        if set.attributes.len() > limits::SEGMENT_ATTRIBUTES
            || set.expires_ms > HourStamp(limits::EXPIRY_HOURS).start_ms()
        {
            return Err((FactError::Expiry.code(), FactError::Expiry.to_string()));
        }
        // An expiry within an hour holds to that hour's end.
        let expiry = HourStamp::at(set.expires_ms.saturating_add(3_599_999));
        Ok((SegmentId(set.segment), State::held(expiry, set.attributes.iter().map(|(token, value)| (*token, *value)))))
    };
    let removed = remove.iter().map(|id| Ok((SegmentId(*id), State::Removed)));
    Ok(What::Segments { writes: set.iter().map(held).chain(removed).collect::<Result<_, _>>()? })
}

fn track(event: EventBody<'_>, most: Micros) -> Result<What, Refusal> {
    let name = event.name.ok_or_else(|| ("malformed", "a track event has a name".to_owned()))?.into_owned();
    let mut properties = event.properties.unwrap_or_default();
    let value = match properties.remove("value_micros") {
        None => None,
        Some(value) => Some(amount(&value, most)?),
    };
    if name == PURCHASE && value.is_none() {
        return Err(("malformed", "a purchase has properties.value_micros".to_owned()));
    }
    let properties = (!properties.is_empty()).then(|| Value::Object(properties).to_string());
    Ok(What::Track { name, value, properties })
}

fn amount(value: &Value, most: Micros) -> Result<Micros, Refusal> {
    let amount = value.as_i64().filter(|amount| (0..=most).contains(amount));
    amount.ok_or_else(|| (FactError::Value.code(), format!("a value is 0 to {most} micros")))
}
