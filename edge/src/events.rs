//! `POST /v1/events`: what happened on a page, one event beside the other. A bad event never sinks its
//! neighbours, nor a bad attribute the others of its event, and the answer comes once the queue has the good ones.

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

use crate::answer::{Outcome, too_large};
use crate::attributes::{Given, Refused};
use crate::cookies;
use crate::engine::{Call, Incoming, Routed, Site, pack};
use crate::visit::Visit;
use crate::{permission, pixel};

#[derive(Deserialize)]
struct Event<'a> {
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
    /// Segments in an array, attributes by name.
    #[serde(borrow, default)]
    set: Option<&'a RawValue>,
    #[serde(borrow, default)]
    remove: Option<&'a RawValue>,
}

/// A segment that the visitor is in from now on.
#[derive(Deserialize)]
struct Set {
    segment: u32,
    expires_ms: Millis,
    #[serde(default)]
    attributes: BTreeMap<u16, i32>,
}

#[derive(Default, Serialize)]
struct Answer {
    accepted: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    consent: Option<&'static str>,
    rejected: Vec<Rejected>,
}

#[derive(Serialize)]
struct Rejected {
    index: usize,
    code: &'static str,
    message: String,
}

type Refusal = (&'static str, String);

/// What is kept of a call until the names of attributes are known: of each event its fact, that of attributes still
/// without them.
#[derive(Debug)]
pub(crate) struct EventsCall(Vec<Result<(Fact, Option<Given>), Refusal>>);

impl EventsCall {
    /// Whether there is an attribute's value, whose kind the names decide on.
    pub(crate) fn has_values(&self) -> bool {
        self.0.iter().flatten().filter_map(|(_, given)| given.as_ref()).any(Given::has_values)
    }

    /// Whether there is an impression of an ad of the catalogue, which says whether its caps are strict.
    pub(crate) fn has_impressions(&self) -> bool {
        self.0.iter().flatten().any(|(fact, _)| shown(fact).is_some_and(|ad| ad != 0))
    }
}

/// The code of the ad that a fact is an impression of.
fn shown(fact: &Fact) -> Option<u32> {
    match &fact.what {
        What::Action { verb: Verb::IMPRESSION, entity, .. } => Some(entity.ad),
        _ => None,
    }
}

fn strict() -> Refusal {
    ("strict", "the impression of an ad under strict caps counts by its impression_url".to_owned())
}

/// Reads the call.
pub(crate) fn begin(incoming: Incoming<'_>) -> Routed {
    match read(&incoming) {
        Ok(visit) => Routed::Alone(Box::new(visit)),
        Err(answer) => Routed::Answer(answer.with_headers(incoming.cors)),
    }
}

fn read(incoming: &Incoming<'_>) -> Result<Visit, Box<Outcome>> {
    let texts = split(incoming.body)?;
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    // What was given before stands: to the cookie, or to the decision that made an action's insertion. Without either
    // nothing is taken.
    let permission = permission::standing(incoming.request, true, site);
    let is_counted = incoming.request.uncounted().is_none();
    if !permission.is_full() {
        let reader = Reader { site, visitor: None, ledger: None, now, random: incoming.random.clone() };
        let (facts, body) = of_nobody(&texts, reader, is_counted);
        let outcome = Outcome::json(202, &Answer { consent: Some(permission.code()), ..body });
        return Err(Box::new(permission::withdraw(outcome, facts, &jar, site, now)));
    }
    if !is_counted {
        let refuse = |index| rejected(index, "not_counted", "bots and prefetches are not counted");
        let body = Answer { accepted: 0, consent: None, rejected: (0..texts.len()).map(refuse).collect() };
        return Err(Box::new(Outcome::json(202, &body)));
    }
    let visitor = jar.identity.as_ref().map(|cookie| cookie.visitor);
    let ledger = jar.ledger.as_ref().filter(|ledger| Some(ledger.visitor) == visitor);
    let mut reader = Reader { site, visitor, ledger, now, random: incoming.random.clone() };
    let call = EventsCall(texts.into_iter().map(|text| reader.event(text)).collect());
    Ok(incoming.visit(&jar, Vec::new(), Call::Events(call)))
}

/// The answer, and the facts for the queue.
pub(crate) fn finish(mut visit: Box<Visit>) -> Outcome {
    let Call::Events(EventsCall(events)) = &mut visit.call else { return Outcome::empty(500) };
    let (mut facts, mut rejected, mut seen): (Vec<Fact>, Vec<Rejected>, BTreeSet<FactId>) = Default::default();
    let (mut accepted, mut new_names, mut room) = (0, limits::ATTRIBUTE_NAMES_A_CALL, limits::EVENTS_FACT_BYTES);
    let policy = visit.site.tenant.attribute_names;
    for (index, event) in std::mem::take(events).into_iter().enumerate() {
        // One of each event, and more of its attributes up to as many as there can be events.
        let mut is_named = false;
        let mut reject = |code, message| {
            if !is_named || rejected.len() < limits::EVENTS {
                rejected.push(Rejected { index, code, message });
            }
            is_named = true;
        };
        let (mut fact, given) = match event {
            Ok(read) => read,
            Err((code, message)) => {
                reject(code, message);
                continue;
            }
        };
        if shown(&fact).is_some_and(|ad| visit.catalogue.is_strict(ad)) {
            let (code, message) = strict();
            reject(code, message);
            continue;
        }
        if let Some(mut given) = given {
            given.settle(&visit.names, policy, &mut new_names);
            given.refused.into_iter().for_each(|Refused { code, message, .. }| reject(code, message));
            if given.writes.is_empty() {
                continue;
            }
            fact.what = What::Attributes { writes: given.writes };
        }
        if !seen.contains(&fact.id) {
            let Some(left) = room.checked_sub(wire::facts::bytes_of(&fact)) else {
                reject("out_of_bounds", format!("{} bytes of facts at most in one call", limits::EVENTS_FACT_BYTES));
                continue;
            };
            room = left;
            seen.insert(fact.id);
            facts.push(fact);
        }
        accepted += 1;
    }
    let mut outcome = visit.answer(Outcome::json(202, &Answer { accepted, consent: None, rejected }));
    outcome.head.ack = !facts.is_empty();
    // An action may name anybody, and nobody: all others are of the cookie's visitor.
    let own = facts.iter().find(|fact| !matches!(fact.what, What::Action { .. }));
    let counted = own.or_else(|| facts.iter().find(|fact| fact.visitor != VisitorId::NOBODY));
    outcome.head.limit = counted.map(|fact| visit.site.events_limit(fact.visitor));
    pack(&mut outcome, &visit.site, facts);
    outcome
}

/// Where nobody may be counted: the actions that name nobody, which their campaigns pay for as they do by the ads' addresses
/// (invariant 10), each once, and the answer.
fn of_nobody(texts: &[&str], mut reader: Reader<'_>, is_counted: bool) -> (Vec<Fact>, Answer) {
    let (mut facts, mut answer) = (Vec::new(), Answer::default());
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

fn rejected(index: usize, code: &'static str, message: &str) -> Rejected {
    Rejected { index, code, message: message.to_owned() }
}

/// The events' own texts, from a JSON array or from lines.
fn split(body: &[u8]) -> Result<Vec<&str>, Box<Outcome>> {
    if body.len() > limits::BODY_BYTES {
        return Err(Box::new(too_large()));
    }
    let malformed = |message: &str| Box::new(Outcome::error(400, "malformed", message, None));
    let texts: Vec<&str> = if body.trim_ascii_start().starts_with(b"[") {
        let text = std::str::from_utf8(body).map_err(|_| malformed("the body is not UTF-8"))?;
        let events: Vec<&RawValue> =
            serde_json::from_str(text).map_err(|error| malformed(&format!("the body is not a JSON array: {error}")))?;
        events.into_iter().map(RawValue::get).collect()
    } else {
        // A line that is no text is refused as an event that is none.
        let lines = body.split(|byte| *byte == b'\n').map(|line| std::str::from_utf8(line).unwrap_or("?").trim());
        lines.filter(|line| !line.is_empty()).collect()
    };
    match texts.len() {
        0 => Err(malformed("there is no event in the body")),
        n if n > limits::EVENTS => {
            let message = format!("{n} events; {} at most in one call", limits::EVENTS);
            Err(Box::new(Outcome::error(400, "out_of_bounds", &message, None)))
        }
        _ => Ok(texts),
    }
}

struct Reader<'a> {
    site: &'a Site,
    /// The cookie's.
    visitor: Option<VisitorId>,
    ledger: Option<&'a Ledger>,
    now: Millis,
    random: Random,
}

impl Reader<'_> {
    fn event(&mut self, text: &str) -> Result<(Fact, Option<Given>), Refusal> {
        if !text.starts_with('{') {
            return Err(("malformed", "an event is a JSON object".to_owned()));
        }
        let event: Event<'_> = serde_json::from_str(text).map_err(|error| ("malformed", error.to_string()))?;
        if event.id.as_deref().is_some_and(|id| !(1..=limits::MESSAGE_ID_BYTES).contains(&id.len())) {
            return Err(("too_long", format!("an event's id has 1 to {} bytes", limits::MESSAGE_ID_BYTES)));
        }
        if event.kind == "action" {
            return Ok((self.action(&event)?, None));
        }
        let nobody =
            || ("no_visitor", "only /v1/decide mints a visitor: call it first, and send its cookie".to_owned());
        let (visitor, received) = (self.visitor.ok_or_else(nobody)?, self.now);
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
            // They come when their names are known.
            Err(FactError::Attributes) if given.is_some() => {}
            checked => checked.map_err(|error| (error.code(), error.to_string()))?,
        }
        Ok((fact, given))
    }

    /// An action counts for the visitor that its insertion names, under an id of its own making: a message id of the
    /// client's would count a repeat twice.
    fn action(&self, event: &Event<'_>) -> Result<Fact, Refusal> {
        let missing = || ("malformed", "an action names its `insertion` and its `action`".to_owned());
        let (insertion, name) = event.insertion.as_deref().zip(event.action.as_deref()).ok_or_else(missing)?;
        let unknown = || ("unknown_action", "the tenant's words have no such verb".to_owned());
        let verb = self.site.tenant.vocabulary.verb(name).ok_or_else(unknown)?;
        let token = token::open(&self.site.keys.cookie, &self.site.id, insertion, self.now);
        let token = token.map_err(|error| (error.code(), error.to_string()))?;
        if token.strict && verb == Verb::IMPRESSION {
            return Err(strict());
        }
        Ok(pixel::action(&token, verb, self.now))
    }

    fn what(&self, event: Event<'_>, visitor: VisitorId) -> Result<What, Refusal> {
        match event.kind.as_ref() {
            "page" => Ok(What::Page { session: self.session(visitor) }),
            "track" => track(event, self.site.tenant.most_value_micros.unwrap_or(limits::VALUE_MICROS)),
            "segments" => segments(&event),
            "attributes" => Ok(What::Attributes { writes: Vec::new() }),
            _ => Err(("unknown_type", "the types are page, track, action, attributes, segments".to_owned())),
        }
    }

    /// The session of a page told here: the running one. No cookie of this answer would keep a new one, so that the pages of
    /// one half hour have one between them.
    fn session(&self, visitor: VisitorId) -> SessionId {
        let running = self.ledger.and_then(|ledger| ledger.running(self.now));
        running.unwrap_or_else(|| {
            let began = self.now - self.now % limits::SESSION_IDLE_MS;
            let [a, b, c, d, ..] = *FactId::of_message(visitor, &format!("session {began}")).as_bytes();
            SessionId::mint(began, [a, b, c, d])
        })
    }
}

/// What an event sets or removes, in the form of its type; nothing where it is not there.
fn part<T: Default + DeserializeOwned>(raw: Option<&RawValue>) -> Result<T, Refusal> {
    let read = raw.map(|raw| serde_json::from_str(raw.get())).transpose();
    Ok(read.map_err(|error| ("malformed", error.to_string()))?.unwrap_or_default())
}

fn attributes(event: &Event<'_>) -> Result<Given, Refusal> {
    let given = Given::read(event.set, event.remove);
    if given.writes.is_empty() && given.refused.is_empty() {
        return Err((FactError::Attributes.code(), FactError::Attributes.to_string()));
    }
    Ok(given)
}

fn segments(event: &Event<'_>) -> Result<What, Refusal> {
    let (set, remove): (Vec<Set>, Vec<u32>) = (part(event.set)?, part(event.remove)?);
    let written = set.len() + remove.len();
    if written == 0 || written > limits::SEGMENT_WRITES {
        return Err((FactError::Segments.code(), FactError::Segments.to_string()));
    }
    let held = |set: &Set| {
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

fn track(event: Event<'_>, most: Micros) -> Result<What, Refusal> {
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
