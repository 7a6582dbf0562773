//! Turns one JSON event of `POST /v1/events` into a fact, or into the reason of its refusal.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{FactId, Micros, Millis, OrderHash, SessionId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::number;
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::base::random::Random;
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::actions::ActionType;
use causeway_shared::facts::fact::{Fact, FactError, FactKind, PURCHASE};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::keys::{ad_token, visitor_token};
use causeway_shared::profiles::ledger::Ledger;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::http::attributes::AttributeWrites;
use crate::http::body_text::shown_name;
use crate::http::whole_number::{WholeNumber, read_whole};
use crate::routes::pixel;
use crate::site::Site;

/// The fields of an event.
const FIELDS: [&str; 11] =
    ["type", "id", "at_ms", "visitor_token", "name", "order_id", "properties", "insertion", "action", "set", "remove"];

/// The fields of a segment to set.
const SEGMENT_FIELDS: [&str; 3] = ["segment", "expires_ms", "attributes"];

/// Codes of refusals for events that are invalid for any sender.
pub(super) const INVALID: [&str; 11] = [
    "visitor_token_forged",
    "visitor_token_late",
    "malformed",
    "too_long",
    "out_of_bounds",
    "unknown_type",
    "unknown_action",
    "reserved_name",
    "bad_name",
    "value_out_of_range",
    "expiry_out_of_range",
];

/// One event of the call.
#[derive(Deserialize)]
struct EventBody<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    /// The client's own id of the event: a text, or a whole number.
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    at_ms: Option<Value>,
    /// The visitor that the event happened to, as an answer of `/v1/decide` named it. Without it, the cookie's visitor.
    #[serde(borrow, default)]
    visitor_token: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    /// The shop's order of a purchase: a text, or a whole number.
    #[serde(default)]
    order_id: Option<Value>,
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
    segment: WholeNumber<u32>,
    expires_ms: WholeNumber<Millis>,
    #[serde(default)]
    attributes: Option<BTreeMap<u16, WholeNumber<i32>>>,
}

impl EventBody<'_> {
    fn is_purchase(&self) -> bool {
        self.kind == "track" && self.name.as_deref() == Some(PURCHASE)
    }

    /// The client's own id of the event. A value of another type is ignored, like an invalid order id.
    ///
    /// # Errors
    /// The refusal of an id that is empty or too long.
    fn read_id(&self) -> Result<Option<String>, Refusal> {
        let id = self.id.as_ref().and_then(id_text);
        if id.as_ref().is_some_and(|id| !(1..=limits::MESSAGE_ID_BYTES).contains(&id.len())) {
            return Err(("too_long", format!("an event's id must have 1 to {} bytes", limits::MESSAGE_ID_BYTES)));
        }
        Ok(id.map(Cow::into_owned))
    }

    /// The order of a purchase, from the event itself or from its properties, and a warning about an order id without
    /// effect. An invalid order id affects nothing else.
    fn read_order(&self) -> (Option<OrderHash>, Option<String>) {
        let property = || self.properties.as_ref()?.get("order_id").filter(|raw| !raw.is_null());
        let Some(raw) = self.order_id.as_ref().or_else(|| property().filter(|_| self.is_purchase())) else {
            return (None, None);
        };
        if !self.is_purchase() {
            return (None, Some("only a purchase has an `order_id`: it has no effect here".to_owned()));
        }
        match id_text(raw).and_then(|text| OrderHash::read(&text)) {
            Some(order) => (Some(order), None),
            None => {
                let most = limits::MESSAGE_ID_BYTES;
                let message = format!("`order_id` is ignored: expected a text of 1 to {most} bytes or a whole number");
                (None, Some(message))
            }
        }
    }
}

/// The text of an id that is a text or a whole number; `None` for any other value.
fn id_text(raw: &Value) -> Option<Cow<'_, str>> {
    match raw {
        Value::String(text) => Some(text.into()),
        Value::Number(number) if number.is_u64() => Some(number.to_string().into()),
        raw => read_whole(raw).filter(|whole| *whole >= 0).map(|whole| whole.to_string().into()),
    }
}

/// The code and the message of a refused event.
pub(super) type Refusal = (&'static str, String);

/// An event that was read.
#[derive(Debug)]
pub(super) struct ReadEvent {
    pub(super) fact: Fact,
    /// The writes of an attribute event, which are checked when the attribute names are known.
    pub(super) writes: Option<AttributeWrites>,
    /// The reason why the event counts at the time of its receipt instead of its `at_ms`.
    pub(super) adjusted: Option<String>,
    /// Warnings about fields without effect, each with its code.
    pub(super) warnings: Vec<Refusal>,
}

impl ReadEvent {
    /// The visitor that the event happened to; `None` for an action, which may belong to any visitor or to none.
    pub(super) fn owner(&self) -> Option<VisitorId> {
        (!matches!(self.fact.what, FactKind::Action { .. })).then_some(self.fact.visitor)
    }
}

pub(super) fn strict_refusal() -> Refusal {
    ("strict", "the impression of an ad under strict caps counts by its impression_url".to_owned())
}

/// The parser for the events of one call.
pub(super) struct EventReader<'a> {
    pub(super) site: &'a Site,
    /// The visitor of the cookie.
    pub(super) visitor: Option<VisitorId>,
    pub(super) ledger: Option<&'a Ledger>,
    pub(super) now: Millis,
    pub(super) random: Random,
}

impl EventReader<'_> {
    /// Reads one event; `position` is its index in the call.
    ///
    /// # Errors
    /// The code and the message of an event that gives no fact.
    pub(super) fn read_event(&mut self, position: u32, text: &str) -> Result<ReadEvent, Refusal> {
        if !text.starts_with('{') {
            return Err(("malformed", "expected a JSON object".to_owned()));
        }
        let event: EventBody<'_> = serde_json::from_str(text).map_err(|error| ("malformed", error.to_string()))?;
        let mut warnings = find_unknown_fields(text);
        warnings.extend(find_unknown_segment_fields(&event));
        let (order, note) = event.read_order();
        warnings.extend(note.map(|message| ("order_id", message)));
        let message_id = event.read_id()?;
        if message_id.is_none() && event.id.is_some() {
            let message = "`id` is ignored: expected a text or a whole number; each repetition counts";
            warnings.push(("id", message.to_owned()));
        }
        if event.kind == "action" {
            let fact = Fact { position, ..self.action(&event)? };
            return Ok(ReadEvent { fact, writes: None, adjusted: None, warnings });
        }
        let writes = if event.kind == "attributes" { Some(read_attributes(&event)?) } else { None };
        let (at, adjusted) = self.happened(event.at_ms.as_ref());
        let visitor = self.owner(event.visitor_token.as_deref())?;
        let id = match (message_id.as_deref(), &visitor) {
            (_, Ok(visitor)) if let Some(order) = order => FactId::of_order(*visitor, order),
            (Some(id), Ok(visitor)) => {
                FactId::of_event(*visitor, &event.kind, event.name.as_deref().unwrap_or_default(), id)
            }
            _ => FactId::from_bytes(self.random.draw()),
        };
        // An invalid event is refused for its own fault, whoever sends it.
        let owner = visitor.as_ref().copied().unwrap_or(VisitorId::ANONYMOUS);
        let received = self.now;
        let fact = Fact { id, visitor: owner, received, at, position, what: self.what(event, order, owner)? };
        match fact.check(received) {
            // The writes are added after their names are checked.
            Err(FactError::Attributes) if writes.is_some() => {}
            checked => checked.map_err(|error| (error.code(), error.to_string()))?,
        }
        visitor?;
        Ok(ReadEvent { fact, writes, adjusted, warnings })
    }

    /// The visitor that an event happened to: the one that its token names, otherwise the cookie's. The outer error is
    /// an invalid token; the inner error is a missing visitor.
    fn owner(&self, token: Option<&str>) -> Result<Result<VisitorId, Refusal>, Refusal> {
        let is_ignored = planted::is_active(PlantedBug::EventsOfWhoeverIsHere) && self.visitor.is_some();
        let Some(token) = token.filter(|_| !is_ignored) else {
            let message = "only /v1/decide mints a visitor: call it first, and send its cookie";
            return Ok(self.visitor.ok_or_else(|| ("no_visitor", message.to_owned())));
        };
        let named = visitor_token::open_visitor(&self.site.keys.cookie, &self.site.id, token, self.now);
        named.map(Ok).map_err(|error| (error.code(), error.to_string()))
    }

    /// The time of an event, and the reason if it differs from the page's. A time that is out of bounds or not in
    /// milliseconds affects nothing else.
    fn happened(&self, at_ms: Option<&Value>) -> (Millis, Option<String>) {
        let received = self.now;
        let Some(raw) = at_ms else { return (received, None) };
        let oldest = received.saturating_sub(limits::EVENT_AGE_MS);
        match read_whole(raw).and_then(|at| u64::try_from(at).ok()) {
            Some(at) if (oldest..=received).contains(&at) => (at, None),
            Some(at) if at > received && at <= received.saturating_add(limits::FACT_AHEAD_MS) => {
                (received, Some("at_ms is ahead of the receipt: the event counts at its receipt".to_owned()))
            }
            _ => {
                let days = limits::EVENT_AGE_MS / 86_400_000;
                let message = format!(
                    "at_ms is not a time in milliseconds of the last {days} days: the event counts at its receipt"
                );
                (received, Some(message))
            }
        }
    }

    /// The fact of an action, which counts for the visitor that its insertion names. Its id follows from the insertion,
    /// because a client's message id would count a repetition twice.
    fn action(&self, event: &EventBody<'_>) -> Result<Fact, Refusal> {
        let missing = || ("malformed", "an action needs an `insertion` and an `action`".to_owned());
        let (insertion, name) = event.insertion.as_deref().zip(event.action.as_deref()).ok_or_else(missing)?;
        let unknown = || ("unknown_action", "the tenant has no such action type".to_owned());
        let action_type = self.site.tenant.vocabulary.action_type(name).ok_or_else(unknown)?;
        let token = ad_token::open(&self.site.keys.cookie, &self.site.id, insertion, self.now);
        let token = token.map_err(|error| (error.code(), error.to_string()))?;
        if token.strict && action_type == ActionType::IMPRESSION {
            return Err(strict_refusal());
        }
        Ok(pixel::action_fact(&token, action_type, self.now))
    }

    fn what(&self, event: EventBody<'_>, order: Option<OrderHash>, visitor: VisitorId) -> Result<FactKind, Refusal> {
        match event.kind.as_ref() {
            "page" => Ok(FactKind::Page { session: self.session(visitor) }),
            "track" => read_track(event, order, self.site.tenant.most_value_micros.unwrap_or(limits::VALUE_MICROS)),
            "segments" => read_segments(&event),
            "attributes" => Ok(FactKind::Attributes { writes: Vec::new() }),
            _ => Err(("unknown_type", "unknown type: expected page, track, action, attributes or segments".to_owned())),
        }
    }

    /// The session of a page event: the running one. Without one, all page events of a half hour share a session,
    /// because two concurrent calls do not have each other's cookie.
    fn session(&self, visitor: VisitorId) -> SessionId {
        let ledger = self.ledger.filter(|ledger| ledger.visitor == visitor);
        let running = ledger.and_then(|ledger| ledger.running(self.now));
        running.unwrap_or_else(|| {
            let began = self.now - self.now % limits::SESSION_IDLE_MS;
            let [a, b, c, d, ..] = *FactId::of_message(visitor, &format!("session {began}")).as_bytes();
            SessionId::mint(began, [a, b, c, d])
        })
    }
}

/// Warnings about fields that no event has.
fn find_unknown_fields(text: &str) -> Vec<Refusal> {
    let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    let unknown = fields.into_keys().filter(|name| !FIELDS.contains(&name.as_ref()));
    let warning = |name: Cow<'_, str>| ("unknown_field", format!("an event has no field `{}`", shown_name(&name)));
    unknown.take(FIELDS.len()).map(warning).collect()
}

/// Warnings about fields that no segment in `set` has.
fn find_unknown_segment_fields(event: &EventBody<'_>) -> Vec<Refusal> {
    let set = event.set.filter(|_| event.kind == "segments").map(RawValue::get);
    let entries: Vec<BTreeMap<Cow<'_, str>, &RawValue>> =
        set.and_then(|set| serde_json::from_str(set).ok()).unwrap_or_default();
    let names = entries.into_iter().flat_map(BTreeMap::into_keys);
    let unknown: BTreeSet<Cow<'_, str>> = names.filter(|name| !SEGMENT_FIELDS.contains(&name.as_ref())).collect();
    let warning =
        |name: Cow<'_, str>| ("unknown_field", format!("a segment in `set` has no field `{}`", shown_name(&name)));
    unknown.into_iter().take(FIELDS.len()).map(warning).collect()
}

/// The values that an event sets or removes, in the form of its type; the default if the part is absent.
fn read_part<T: Default + DeserializeOwned>(raw: Option<&RawValue>) -> Result<T, Refusal> {
    let read = raw.map(|raw| serde_json::from_str(raw.get())).transpose();
    Ok(read.map_err(|error| ("malformed", error.to_string()))?.unwrap_or_default())
}

fn read_attributes(event: &EventBody<'_>) -> Result<AttributeWrites, Refusal> {
    let parsed = AttributeWrites::read(event.set, event.remove);
    if parsed.writes.is_empty() && parsed.refused.is_empty() {
        return Err((FactError::Attributes.code(), FactError::Attributes.to_string()));
    }
    Ok(parsed)
}

fn read_segments(event: &EventBody<'_>) -> Result<FactKind, Refusal> {
    let (set, remove): (Vec<SegmentBody>, Vec<WholeNumber<u32>>) = (read_part(event.set)?, read_part(event.remove)?);
    let written = set.len() + remove.len();
    if written == 0 || written > limits::SEGMENT_WRITES {
        return Err((FactError::Segments.code(), FactError::Segments.to_string()));
    }
    let held = |set: &SegmentBody| {
        let attributes = set.attributes.iter().flatten();
        let WholeNumber(expires_ms) = set.expires_ms;
        if attributes.clone().count() > limits::SEGMENT_ATTRIBUTES
            || expires_ms > HourStamp(limits::EXPIRY_HOURS).start_ms()
        {
            return Err((FactError::Expiry.code(), FactError::Expiry.to_string()));
        }
        // An expiry within an hour is extended to the end of that hour.
        let expiry = HourStamp::at(expires_ms.saturating_add(3_599_999));
        let attributes = attributes.map(|(token, value)| (*token, value.0));
        Ok((SegmentId(set.segment.0), SegmentState::held(expiry, attributes)))
    };
    let removed = remove.iter().map(|id| Ok((SegmentId(id.0), SegmentState::Removed)));
    Ok(FactKind::Segments { writes: set.iter().map(held).chain(removed).collect::<Result<_, _>>()? })
}

fn read_track(event: EventBody<'_>, order: Option<OrderHash>, most: Micros) -> Result<FactKind, Refusal> {
    let name = event.name.ok_or_else(|| ("malformed", "a track event needs a `name`".to_owned()))?.into_owned();
    let mut properties = event.properties.unwrap_or_default();
    let micros = properties.remove("value_micros").filter(|value| !value.is_null());
    let value = match (micros, properties.get("value")) {
        (Some(micros), _) => Some(read_amount(&micros, 1.0, most)?),
        // The common notation of shops: a decimal of the currency.
        (None, Some(value)) if name == PURCHASE => Some(read_amount(value, 1e6, most)?),
        (None, _) => None,
    };
    if name == PURCHASE && value.is_none() {
        let message = "a purchase needs properties.value_micros, or properties.value in units of the currency";
        return Err(("malformed", message.to_owned()));
    }
    let properties = (!properties.is_empty()).then(|| Value::Object(properties).to_string());
    Ok(FactKind::Track { name, value, properties, order })
}

/// Reads an amount in micros. `micros` is the number of micros in one unit of the value.
fn read_amount(value: &Value, micros: f64, most: Micros) -> Result<Micros, Refusal> {
    let refusal = || (FactError::Value.code(), format!("invalid value: expected a number from 0 to {most} micros"));
    number::amount_of(value, micros, most).ok_or_else(refusal)
}
