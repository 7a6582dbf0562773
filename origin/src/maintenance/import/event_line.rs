//! One event of an imported file.

use causeway_shared::base::ids::{FactId, InsertionId, Micros, Millis, OrderHash, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::number;
use causeway_shared::facts::actions::{ActionType, AdEntity, ViewType};
use causeway_shared::facts::fact::{Fact, FactError, FactKind, PURCHASE};
use causeway_shared::settings::config::TenantConfig;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

use super::refusal::{Refusal, VisitorText, malformed_line};
use crate::store::tenants::no_word;

const NO_WHOLE: &str = "expected a whole number within its bounds";

/// An event of an NDJSON, Parquet or CSV file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventLine {
    pub(super) visitor: VisitorText,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) id: Option<String>,
    #[serde(deserialize_with = "read_optional_whole")]
    pub(super) at_ms: Option<Millis>,
    #[serde(deserialize_with = "read_optional_whole")]
    pub(super) session: Option<u64>,
    pub(super) name: Option<String>,
    #[serde(deserialize_with = "read_optional_whole")]
    pub(super) value_micros: Option<i64>,
    #[serde(deserialize_with = "read_order_id")]
    pub(super) order_id: Option<String>,
    pub(super) properties: Option<Map<String, Value>>,
    pub(super) action: Option<String>,
    pub(super) insertion: Option<String>,
    pub(super) view_type: Option<String>,
    #[serde(deserialize_with = "read_whole")]
    pub(super) ad: u32,
    #[serde(deserialize_with = "read_whole")]
    pub(super) ad_group: u32,
    #[serde(deserialize_with = "read_whole")]
    pub(super) campaign: u32,
    #[serde(deserialize_with = "read_whole")]
    pub(super) advertiser: u32,
}

/// Reads an order id as text. A whole number is the same order as its digits, as at the edge.
fn read_order_id<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let order = Value::deserialize(from)?;
    match to_order_text(&order) {
        None if !order.is_null() => Err(D::Error::custom("invalid `order_id`: expected a text or a whole number")),
        order => Ok(order),
    }
}

/// Reads a whole number in any JSON notation: 5, 5.0 or 5e0.
pub(super) fn read_whole<'de, D: Deserializer<'de>, T: TryFrom<i128>>(from: D) -> Result<T, D::Error> {
    to_whole(&Number::deserialize(from)?).ok_or_else(|| D::Error::custom(NO_WHOLE))
}

/// Like [`read_whole`]; `null` is no number.
pub(super) fn read_optional_whole<'de, D: Deserializer<'de>, T: TryFrom<i128>>(from: D) -> Result<Option<T>, D::Error> {
    let number = Option::<Number>::deserialize(from)?;
    number.map(|number| to_whole(&number).ok_or_else(|| D::Error::custom(NO_WHOLE))).transpose()
}

fn to_whole<T: TryFrom<i128>>(number: &Number) -> Option<T> {
    let exact = number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from));
    T::try_from(exact.or_else(|| whole_of(number.as_f64()?))?).ok()
}

/// The whole number that a float is; `None` beyond 2⁵³, where a float no longer identifies one whole number.
pub(super) fn whole_of(number: f64) -> Option<i128> {
    number::whole_of(number).map(i128::from)
}

/// Reads an amount in micros. `micros` is the number of micros in one unit of the value.
fn read_amount(value: &Value, micros: f64) -> Result<Micros, Refusal> {
    let refusal = || {
        (FactError::Value.code(), format!("invalid value: expected a number from 0 to {} micros", limits::VALUE_MICROS))
    };
    number::amount_of(value, micros, limits::VALUE_MICROS).ok_or_else(refusal)
}

fn to_order_text(order: &Value) -> Option<String> {
    match order {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => to_whole::<u64>(number).map(|number| number.to_string()),
        _ => None,
    }
}

impl EventLine {
    /// The order of a purchase, from the line itself or from its properties. An invalid one in the properties counts as
    /// absent, as at the edge.
    pub(super) fn order(&self) -> Result<Option<OrderHash>, Refusal> {
        let is_purchase = self.kind == "track" && self.name.as_deref() == Some(PURCHASE);
        let Some(order) = self.order_id.as_deref() else {
            let property = self.properties.as_ref().filter(|_| is_purchase).and_then(|all| all.get("order_id"));
            return Ok(property.and_then(to_order_text).and_then(|order| OrderHash::read(&order)));
        };
        if !is_purchase {
            return Err(malformed_line("only a purchase has an `order_id`"));
        }
        let too_long = || ("too_long", format!("`order_id` must have 1 to {} bytes", limits::MESSAGE_ID_BYTES));
        OrderHash::read(order).map(Some).ok_or_else(too_long)
    }

    /// The tracked event. Its value comes from the line or from its properties, which are read as at the edge.
    pub(super) fn into_track(self, order: Option<OrderHash>) -> Result<FactKind, Refusal> {
        let name = self.name.ok_or_else(|| malformed_line("a track event needs a `name`"))?;
        let mut properties = self.properties.unwrap_or_default();
        let micros = properties.remove("value_micros").filter(|value| !value.is_null());
        let value = match (self.value_micros, micros, properties.get("value")) {
            (Some(value), ..) => Some(Micros::new(value)),
            (None, Some(micros), _) => Some(read_amount(&micros, 1.0)?),
            (None, None, Some(value)) if name == PURCHASE => Some(read_amount(value, 1e6)?),
            (None, None, _) => None,
        };
        if name == PURCHASE && value.is_none() {
            return Err(malformed_line(
                "a purchase needs a `value_micros`, or properties.value in units of the currency",
            ));
        }
        let properties = (!properties.is_empty()).then(|| Value::Object(properties).to_string());
        Ok(FactKind::Track { name, value, properties, order })
    }

    /// The action type and the view type of an action.
    pub(super) fn words(&self, tenant: &TenantConfig) -> Result<(ActionType, ViewType), Refusal> {
        let name = self.action.as_deref().ok_or_else(|| malformed_line("an action needs an `action`"))?;
        let action_type = tenant.vocabulary.action_type(name);
        let action_type = action_type.ok_or_else(|| ("unknown_action", no_word("action_type")))?;
        let view_type = match self.view_type.as_deref() {
            None | Some("") => ViewType::default(),
            Some(name) => {
                tenant.vocabulary.view_type(name).ok_or_else(|| ("unknown_view_type", no_word("view_type")))?
            }
        };
        Ok((action_type, view_type))
    }

    /// The fact of an action. One insertion named under several visitors counts once for their person (AdCP).
    pub(super) fn to_action(
        &self,
        visitor: VisitorId,
        received: Millis,
        at: Millis,
        action_type: ActionType,
        view_type: ViewType,
    ) -> Result<Fact, Refusal> {
        let text = self.insertion.as_deref().filter(|text| (1..=limits::MESSAGE_ID_BYTES).contains(&text.len()));
        let text = text
            .ok_or_else(|| malformed_line(format!("an insertion must have 1 to {} bytes", limits::MESSAGE_ID_BYTES)))?;
        let mut insertion = InsertionId([0; 16]);
        insertion.0.iter_mut().zip(Sha256::digest(text)).for_each(|(to, from)| *to = from);
        let EventLine { ad, ad_group, campaign, advertiser, .. } = *self;
        let entity = AdEntity { ad, ad_group, campaign, advertiser };
        let id = FactId::of_action(visitor, insertion, action_type.0, view_type.0, at);
        Ok(Fact {
            position: 0,
            id,
            visitor,
            received,
            at,
            what: FactKind::Action { insertion, action_type, view_type, entity },
        })
    }
}
