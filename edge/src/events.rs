//! `POST /v1/events`: what happened on a page, one event beside the other. A bad event never sinks its
//! neighbours, and the answer comes once the queue has the good ones.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::fact::{Fact, FactError, PURCHASE, What};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::ids::{FactId, Micros, Millis};
use causeway_shared::ledger::Ledger;
use causeway_shared::limits;
use causeway_shared::random::Random;
use causeway_shared::segments::{SegmentId, State};
use causeway_shared::time::HourStamp;
use causeway_shared::token;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::answer::{Outcome, too_large};
use crate::cookies;
use crate::engine::{Incoming, Site, pack};
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
    #[serde(default)]
    set: Vec<Set>,
    #[serde(default)]
    remove: Vec<u32>,
}

/// A segment that the visitor is in from now on.
#[derive(Deserialize)]
struct Set {
    segment: u32,
    expires_ms: Millis,
    #[serde(default)]
    attributes: BTreeMap<u16, i32>,
}

#[derive(Serialize)]
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

/// Answers a call.
pub(crate) fn answer(incoming: &Incoming<'_>) -> Outcome {
    let texts = match split(incoming.body) {
        Ok(texts) => texts,
        Err(refused) => return *refused,
    };
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    let permission = permission::standing(incoming.request, &jar, site);
    if !permission.is_full() {
        let body = refuse_all(texts.len(), "no_consent", "there is no permission to count this visitor");
        let outcome = Outcome::json(202, &Answer { consent: Some(permission.code()), ..body });
        return permission::withdraw(outcome, &jar, site, now);
    }
    if incoming.request.uncounted().is_some() {
        return Outcome::json(202, &refuse_all(texts.len(), "not_counted", "bots and prefetches are not counted"));
    }
    let Some(cookie) = &jar.identity else {
        let message = "only /v1/decide mints a visitor: call it first, and send its cookie";
        return Outcome::json(202, &refuse_all(texts.len(), "no_visitor", message));
    };
    let mut reader = Reader { site, cookie, ledger: jar.ledger.as_ref(), now, random: incoming.random.clone() };
    let (mut facts, mut rejected, mut seen): (Vec<Fact>, Vec<Rejected>, BTreeSet<FactId>) = Default::default();
    let mut accepted = 0;
    for (index, text) in texts.into_iter().enumerate() {
        match reader.fact(text) {
            Ok(fact) => {
                accepted += 1;
                if seen.insert(fact.id) {
                    facts.push(fact);
                }
            }
            Err((code, message)) => rejected.push(Rejected { index, code, message }),
        }
    }
    let mut outcome = Outcome::json(202, &Answer { accepted, consent: None, rejected });
    outcome.head.ack = !facts.is_empty();
    pack(&mut outcome, site, facts);
    outcome
}

fn refuse_all(count: usize, code: &'static str, message: &str) -> Answer {
    let rejected = (0..count).map(|index| Rejected { index, code, message: message.to_owned() }).collect();
    Answer { accepted: 0, consent: None, rejected }
}

/// The events' own texts, from a JSON array or from lines.
fn split(body: &[u8]) -> Result<Vec<&str>, Box<Outcome>> {
    if body.len() > limits::BODY_BYTES {
        return Err(Box::new(too_large()));
    }
    let malformed = |message: &str| Box::new(Outcome::error(400, "malformed", message, None));
    let text = std::str::from_utf8(body).map_err(|_| malformed("the body is not UTF-8"))?.trim();
    let texts: Vec<&str> = if text.starts_with('[') {
        let events: Vec<&RawValue> =
            serde_json::from_str(text).map_err(|error| malformed(&format!("the body is not a JSON array: {error}")))?;
        events.into_iter().map(RawValue::get).collect()
    } else {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
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
    cookie: &'a IdentityCookie,
    ledger: Option<&'a Ledger>,
    now: Millis,
    random: Random,
}

impl Reader<'_> {
    fn fact(&mut self, text: &str) -> Result<Fact, Refusal> {
        if !text.starts_with('{') {
            return Err(("malformed", "an event is a JSON object".to_owned()));
        }
        let event: Event<'_> = serde_json::from_str(text).map_err(|error| ("malformed", error.to_string()))?;
        if event.kind == "action" {
            return self.action(&event);
        }
        let (visitor, received) = (self.cookie.visitor, self.now);
        let id = match event.id.as_deref() {
            None => FactId::from_bytes(self.random.draw()),
            Some(id) if !id.is_empty() && id.len() <= limits::MESSAGE_ID_BYTES => FactId::of_message(visitor, id),
            Some(_) => return Err(("too_long", format!("an event's id has 1 to {} bytes", limits::MESSAGE_ID_BYTES))),
        };
        let at = event.at_ms.unwrap_or(received);
        if at > received.saturating_add(limits::FACT_AHEAD_MS) {
            return Err((FactError::At.code(), FactError::At.to_string()));
        }
        let fact = Fact { id, visitor, received, at: at.min(received), what: self.what(event)? };
        fact.check(received).map_err(|error| (error.code(), error.to_string()))?;
        Ok(fact)
    }

    /// An action counts for the visitor that its insertion names, under an id of its own making: a message id of the
    /// client's would count a repeat twice.
    fn action(&self, event: &Event<'_>) -> Result<Fact, Refusal> {
        let missing = || ("malformed", "an action names its `insertion` and its `action`".to_owned());
        let (insertion, name) = event.insertion.as_deref().zip(event.action.as_deref()).ok_or_else(missing)?;
        let unknown = || ("unknown_action", "the tenant's catalogue has no verb of that name".to_owned());
        let verb = self.site.tenant.vocabulary.verb(name).ok_or_else(unknown)?;
        let token = token::open(&self.site.keys.cookie, &self.site.id, insertion, self.now);
        let token = token.map_err(|error| (error.code(), error.to_string()))?;
        Ok(pixel::action(&token, verb, self.now))
    }

    fn what(&mut self, event: Event<'_>) -> Result<What, Refusal> {
        match event.kind.as_ref() {
            "page" => {
                let random = self.random.draw();
                let ledger = self.ledger.filter(|l| l.visitor == self.cookie.visitor);
                let none = Ledger::new(self.cookie.visitor);
                Ok(What::Page { session: ledger.unwrap_or(&none).session_at(self.now, random) })
            }
            "track" => track(event),
            "segments" => segments(&event),
            "attributes" => Err(("unsupported_type", format!("`{}` events are not taken by this release", event.kind))),
            _ => Err(("unknown_type", "the types are page, track, action, attributes, segments".to_owned())),
        }
    }
}

fn segments(event: &Event<'_>) -> Result<What, Refusal> {
    let written = event.set.len() + event.remove.len();
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
    let removed = event.remove.iter().map(|id| Ok((SegmentId(*id), State::Removed)));
    Ok(What::Segments { writes: event.set.iter().map(held).chain(removed).collect::<Result<_, _>>()? })
}

fn track(event: Event<'_>) -> Result<What, Refusal> {
    let name = event.name.ok_or_else(|| ("malformed", "a track event has a name".to_owned()))?.into_owned();
    let mut properties = event.properties.unwrap_or_default();
    let value = match properties.remove("value_micros") {
        None => None,
        Some(value) => Some(amount(&value)?),
    };
    if name == PURCHASE && value.is_none() {
        return Err(("malformed", "a purchase has properties.value_micros".to_owned()));
    }
    let properties = (!properties.is_empty()).then(|| Value::Object(properties).to_string());
    Ok(What::Track { name, value, properties })
}

fn amount(value: &Value) -> Result<Micros, Refusal> {
    value.as_i64().ok_or_else(|| (FactError::Value.code(), FactError::Value.to_string()))
}
