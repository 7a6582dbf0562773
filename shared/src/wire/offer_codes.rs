//! Forms of limited offers: the calls and answers of an object, and its stored rows. The row `stock` has the number of
//! given codes and the limit up to which no object has any left. One row per visitor has the record of that visitor.

use base64_simd::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::{self, SixteenBytes};
use crate::base::ids::VisitorId;
use crate::base::limits;
use crate::facts::offer_codes::{
    GivenOfferCode, OfferCall, OfferCodeRows, OfferCodeStock, OfferCodeWrites, RANGES, VisitorOfferCodes,
};

const FORM: u8 = 1;
const STOCK: &str = "stock";
/// A call has at most [`limits::STRICT_MEMBERS`] visitors of 17 bytes.
const CALL: FormBounds = FormBounds { bytes: 4_096, items: limits::STRICT_MEMBERS + 64, levels: 8 };

/// [`OfferCall`].
#[derive(Serialize, Deserialize)]
struct OfferCallForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "t")]
    tenant: String,
    #[serde(rename = "c")]
    campaign: u32,
    #[serde(rename = "l")]
    limit: u32,
    #[serde(rename = "r")]
    range: u8,
    #[serde(rename = "a")]
    asked: u8,
    #[serde(rename = "g", default, skip_serializing_if = "std::ops::Not::not")]
    again: bool,
    #[serde(rename = "o")]
    own: SixteenBytes,
    #[serde(rename = "m", default)]
    members: Vec<SixteenBytes>,
}

/// An answer: an offer code or none.
#[derive(Serialize, Deserialize)]
struct OfferAnswerForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    given: Option<GivenForm>,
}

/// [`GivenOfferCode`].
#[derive(Serialize, Deserialize)]
struct GivenForm {
    #[serde(rename = "n")]
    number: u32,
    #[serde(rename = "h")]
    holder: SixteenBytes,
}

/// [`OfferCodeStock`].
#[derive(Serialize, Deserialize)]
struct StockForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "g")]
    given: u32,
    #[serde(rename = "e")]
    empty: u32,
}

/// [`VisitorOfferCodes`]: an offer code; without one, the call was forwarded to another object.
#[derive(Serialize, Deserialize)]
struct RowForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    given: Option<GivenForm>,
}

/// Encodes a call.
#[must_use]
pub fn encode_call(call: &OfferCall) -> Vec<u8> {
    let OfferCall { tenant, campaign, limit, range, asked, again, own, members } = call;
    cbor::encode(&OfferCallForm {
        form: FORM,
        tenant: tenant.to_string(),
        campaign: *campaign,
        limit: *limit,
        range: *range,
        asked: *asked,
        again: *again,
        own: parts::put_visitor(*own),
        members: parts::put_visitors(members),
    })
}

/// Decodes a call; `None` if it is malformed.
#[must_use]
pub fn decode_call(bytes: &[u8]) -> Option<OfferCall> {
    cbor::decode::<OfferCallForm>(bytes, FORM, CALL).ok()?.try_into().ok()
}

/// Encodes an answer: an offer code or none.
#[must_use]
pub fn encode_answer(answer: Option<GivenOfferCode>) -> Vec<u8> {
    cbor::encode(&OfferAnswerForm { form: FORM, given: answer.map(GivenForm::from) })
}

/// Decodes an answer; the outer `None` means that it is malformed.
#[must_use]
pub fn decode_answer(bytes: &[u8]) -> Option<Option<GivenOfferCode>> {
    let form: OfferAnswerForm = cbor::decode(bytes, FORM, CALL).ok()?;
    form.given.map(GivenOfferCode::try_from).transpose().ok()
}

/// The keys of the rows that a call needs: the stock's, then those of its members.
#[must_use]
pub fn stock_keys(call: &OfferCall) -> Vec<String> {
    [STOCK.to_owned()].into_iter().chain(call.members.iter().map(ToString::to_string)).collect()
}

/// Decodes the rows of these keys: one line of base64 each, empty for a missing row. `None` if a row is malformed.
#[must_use]
pub fn decode_rows(call: &OfferCall, lines: &[u8]) -> Option<(OfferCodeStock, OfferCodeRows)> {
    let mut lines = lines.split(|byte| *byte == b'\n');
    let stock = match lines.next().unwrap_or_default() {
        [] => OfferCodeStock::default(),
        text => read_stock(text)?,
    };
    let there = call.members.iter().zip(lines).filter(|(_, text)| !text.is_empty());
    let rows = there.map(|(member, text)| Some((*member, read_visitor(text)?))).collect::<Option<_>>()?;
    Some((stock, rows))
}

/// Encodes the rows to write: one line per row with its key and its base64; without base64, the row is deleted.
#[must_use]
pub fn encode_rows(stock: OfferCodeStock, writes: &OfferCodeWrites) -> String {
    let OfferCodeStock { given, empty } = stock;
    let stock = STANDARD_NO_PAD.encode_to_string(cbor::encode(&StockForm { form: FORM, given, empty }));
    let line = |(visitor, row): (&VisitorId, &Option<VisitorOfferCodes>)| {
        let text = row.map(|row| STANDARD_NO_PAD.encode_to_string(cbor::encode(&RowForm::from(row))));
        format!("\n{visitor} {}", text.unwrap_or_default())
    };
    format!("{STOCK} {stock}") + &writes.iter().map(line).collect::<String>()
}

fn read_stock(text: &[u8]) -> Option<OfferCodeStock> {
    let form: StockForm = cbor::decode(&STANDARD_NO_PAD.decode_to_vec(text).ok()?, FORM, CALL).ok()?;
    Some(OfferCodeStock { given: form.given, empty: form.empty })
}

fn read_visitor(text: &[u8]) -> Option<VisitorOfferCodes> {
    let form: RowForm = cbor::decode(&STANDARD_NO_PAD.decode_to_vec(text).ok()?, FORM, CALL).ok()?;
    let given = form.given.map(GivenOfferCode::try_from).transpose().ok()?;
    Some(given.map_or(VisitorOfferCodes::Asked, VisitorOfferCodes::Given))
}

impl TryFrom<OfferCallForm> for OfferCall {
    type Error = WireError;

    fn try_from(form: OfferCallForm) -> Result<Self, WireError> {
        if form.range >= RANGES || form.asked >= RANGES {
            return Err(WireError::Range);
        }
        Ok(Self {
            tenant: form.tenant.parse().map_err(|_| WireError::Range)?,
            campaign: form.campaign,
            limit: form.limit,
            range: form.range,
            asked: form.asked,
            again: form.again,
            own: parts::read_visitor(form.own)?,
            members: parts::read_visitors(form.members, limits::STRICT_MEMBERS)?,
        })
    }
}

impl From<GivenOfferCode> for GivenForm {
    fn from(GivenOfferCode { number, holder }: GivenOfferCode) -> Self {
        Self { number, holder: parts::put_visitor(holder) }
    }
}

impl TryFrom<GivenForm> for GivenOfferCode {
    type Error = WireError;

    fn try_from(form: GivenForm) -> Result<Self, WireError> {
        Ok(Self { number: form.number, holder: parts::read_visitor(form.holder)? })
    }
}

impl From<VisitorOfferCodes> for RowForm {
    fn from(row: VisitorOfferCodes) -> Self {
        let given = match row {
            VisitorOfferCodes::Given(given) => Some(given.into()),
            VisitorOfferCodes::Asked => None,
        };
        Self { form: FORM, given }
    }
}
