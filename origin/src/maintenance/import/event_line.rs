//! One event of an imported file.

use causeway_shared::actions::{Entity, Verb, ViewType};
use causeway_shared::config::Tenant;
use causeway_shared::fact::{Fact, PURCHASE, What};
use causeway_shared::ids::{FactId, InsertionId, Micros, Millis, VisitorId};
use causeway_shared::limits;
use causeway_shared::orders::OrderHash;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::rows::{Refusal, VisitorText, malformed};
use crate::store::tenants::no_word;

/// An event, from either form.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct EventLine {
    pub(super) visitor: VisitorText,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) id: Option<String>,
    pub(super) at_ms: Option<Millis>,
    pub(super) session: Option<u64>,
    pub(super) name: Option<String>,
    pub(super) value_micros: Option<Micros>,
    #[serde(deserialize_with = "read_order_id")]
    pub(super) order_id: Option<String>,
    pub(super) properties: Option<Map<String, Value>>,
    pub(super) action: Option<String>,
    pub(super) insertion: Option<String>,
    pub(super) view_type: Option<String>,
    pub(super) ad: u32,
    pub(super) ad_group: u32,
    pub(super) campaign: u32,
    pub(super) advertiser: u32,
}

/// An order id as text: a whole number is the same order as its digits, as it is for the edge.
fn read_order_id<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let order = Value::deserialize(from)?;
    match to_order_text(&order) {
        None if !order.is_null() => Err(D::Error::custom("an `order_id` is a text or a whole number")),
        order => Ok(order),
    }
}

fn to_order_text(order: &Value) -> Option<String> {
    match order {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

impl EventLine {
    /// The order that a purchase is of, from the line itself or from its properties. A bad one of the properties counts as
    /// absent, as it does at the edge.
    pub(super) fn order(&self) -> Result<Option<OrderHash>, Refusal> {
        let is_purchase = self.kind == "track" && self.name.as_deref() == Some(PURCHASE);
        let Some(order) = self.order_id.as_deref() else {
            let property = self.properties.as_ref().filter(|_| is_purchase).and_then(|all| all.get("order_id"));
            return Ok(property.and_then(to_order_text).and_then(|order| OrderHash::read(&order)));
        };
        if !is_purchase {
            return Err(malformed("only a purchase has an `order_id`"));
        }
        let too_long = || ("too_long", format!("an `order_id` has 1 to {} bytes", limits::MESSAGE_ID_BYTES));
        OrderHash::read(order).map(Some).ok_or_else(too_long)
    }

    /// A track self.
    pub(super) fn into_track(self, order: Option<OrderHash>) -> Result<What, Refusal> {
        let name = self.name.ok_or_else(|| malformed("a track event has a `name`"))?;
        if name == PURCHASE && self.value_micros.is_none() {
            return Err(malformed("a purchase has a `value_micros`"));
        }
        let properties = self.properties.filter(|p| !p.is_empty()).map(|p| Value::Object(p).to_string());
        Ok(What::Track { name, value: self.value_micros, properties, order })
    }

    /// An action's verb, and the type of its placement.
    pub(super) fn words(&self, tenant: &Tenant) -> Result<(Verb, ViewType), Refusal> {
        let name = self.action.as_deref().ok_or_else(|| malformed("an action names its `action`"))?;
        let verb = tenant.vocabulary.verb(name);
        let verb = verb.ok_or_else(|| ("unknown_action", no_word("verb")))?;
        let view_type = match self.view_type.as_deref() {
            None | Some("") => ViewType::default(),
            Some(name) => {
                tenant.vocabulary.view_type(name).ok_or_else(|| ("unknown_view_type", no_word("view_type")))?
            }
        };
        Ok((verb, view_type))
    }

    /// The same insertion named under several visitors counts once for their person (AdCP).
    pub(super) fn to_action(
        &self,
        visitor: VisitorId,
        received: Millis,
        at: Millis,
        verb: Verb,
        view_type: ViewType,
    ) -> Result<Fact, Refusal> {
        let text = self.insertion.as_deref().filter(|text| (1..=limits::MESSAGE_ID_BYTES).contains(&text.len()));
        let text =
            text.ok_or_else(|| malformed(format!("an insertion has 1 to {} bytes", limits::MESSAGE_ID_BYTES)))?;
        let mut insertion = InsertionId([0; 16]);
        insertion.0.iter_mut().zip(Sha256::digest(text)).for_each(|(to, from)| *to = from);
        let EventLine { ad, ad_group, campaign, advertiser, .. } = *self;
        let entity = Entity { ad, ad_group, campaign, advertiser };
        let id = FactId::of_action(visitor, insertion, verb.0, view_type.0, at);
        Ok(Fact { position: 0, id, visitor, received, at, what: What::Action { insertion, verb, view_type, entity } })
    }
}
