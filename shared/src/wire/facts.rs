//! Facts: a batch of one tenant, which is one queue message and one element of a sync; and a single fact, which is a
//! row of the origin's store.
//!
//! Each fact of a batch is a byte string, and so is the body of its kind. A fact that is malformed, or of a kind from a
//! later release, therefore affects no other fact of its batch.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteArray, ByteBuf};

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::{self, EntityForm, SixteenBytes, is_zero};
use crate::base::ids::{AltHash, AlternateId, FactId, InsertionId, KindCode, Micros, OrderHash, SessionId, TenantId};
use crate::base::limits;
use crate::base::time::HourStamp;
use crate::facts::actions::{ActionType, ViewType};
use crate::facts::attributes::AttributeValue;
use crate::facts::evidence::{EvidenceSource, EvidenceWeight};
use crate::facts::fact::{ErasureScope, Fact, FactKind};
use crate::facts::segments::{SegmentId, SegmentState};

const FORM: u8 = 1;
/// Each fact is one item.
const BATCH: FormBounds = FormBounds { bytes: limits::SYNC_BYTES, items: limits::SYNC_FACTS + 64, levels: 8 };
/// The body of a fact is one item.
const FACT: FormBounds = FormBounds { bytes: limits::SYNC_BYTES, items: 64, levels: 8 };
/// The longest body is one of segments, each of which has an id, an expiry and a list of pairs.
const BODY: FormBounds = FormBounds {
    bytes: limits::SYNC_BYTES,
    items: limits::SEGMENT_WRITES * (8 + 6 * limits::SEGMENT_ATTRIBUTES) + 64,
    levels: 8,
};

/// The facts of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct FactBatch {
    /// The tenant of the facts.
    pub tenant: TenantId,
    /// The facts.
    pub facts: Vec<Fact>,
}

/// A [`FactBatch`].
#[derive(Serialize, Deserialize)]
struct BatchForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "t")]
    tenant: String,
    /// A [`FactForm`] each.
    #[serde(rename = "q", default)]
    facts: Vec<ByteBuf>,
}

/// The fields of facts of all kinds. `w` is a reserved key, for the owner of a waiting event.
#[derive(Serialize, Deserialize)]
struct FactForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "i")]
    id: SixteenBytes,
    #[serde(rename = "v")]
    visitor: SixteenBytes,
    #[serde(rename = "r")]
    received: u64,
    /// Milliseconds from the event to its receipt.
    #[serde(rename = "d", default, skip_serializing_if = "is_zero")]
    delay: u64,
    #[serde(rename = "n", default, skip_serializing_if = "is_first")]
    position: u32,
    #[serde(rename = "k")]
    kind: u8,
    /// The form of its kind; empty for a kind without fields.
    #[serde(rename = "b", default, skip_serializing_if = "<[u8]>::is_empty")]
    body: ByteBuf,
}

/// Whether the position has its default, which is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_first(position: &u32) -> bool {
    *position == 0
}

/// Permanent codes of kinds. A code is never reused.
mod kind {
    pub(super) const PAGE: u8 = 0;
    pub(super) const ALIAS: u8 = 1;
    pub(super) const TRACK: u8 = 2;
    pub(super) const WITHDRAWAL: u8 = 3;
    pub(super) const ACTION: u8 = 4;
    pub(super) const SEGMENTS: u8 = 5;
    pub(super) const ATTRIBUTES: u8 = 6;
    pub(super) const CANCELLATION: u8 = 7;
    pub(super) const ERASURE: u8 = 8;
    pub(super) const EXPOSURE: u8 = 9;
    pub(super) const OFFER_CODE: u8 = 10;
    pub(super) const EVIDENCE: u8 = 11;
}

#[derive(Serialize, Deserialize)]
struct PageForm {
    #[serde(rename = "s")]
    session: u64,
}

/// An alternate id.
#[derive(Serialize, Deserialize)]
struct AlternateForm {
    #[serde(rename = "k")]
    kind: u8,
    #[serde(rename = "h")]
    hash: SixteenBytes,
}

#[derive(Serialize, Deserialize)]
struct AliasForm {
    #[serde(rename = "i")]
    id: AlternateForm,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<SixteenBytes>,
    #[serde(rename = "p")]
    proven: bool,
}

/// A tracked event.
#[derive(Serialize, Deserialize)]
struct TrackForm {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "v", skip_serializing_if = "Option::is_none")]
    value: Option<i64>,
    #[serde(rename = "p", skip_serializing_if = "Option::is_none")]
    properties: Option<String>,
    /// The order id of a purchase, hashed.
    #[serde(rename = "o", skip_serializing_if = "Option::is_none")]
    order: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct ActionForm {
    #[serde(rename = "i")]
    insertion: SixteenBytes,
    #[serde(rename = "v")]
    action_type: u8,
    #[serde(rename = "t")]
    view_type: u8,
    #[serde(rename = "e")]
    entity: EntityForm,
}

#[derive(Serialize, Deserialize)]
struct SegmentsForm {
    #[serde(rename = "w")]
    writes: Vec<SegmentForm>,
}

/// One segment. Without an expiry, the segment is removed.
#[derive(Serialize, Deserialize)]
struct SegmentForm {
    #[serde(rename = "s")]
    id: u32,
    #[serde(rename = "x", skip_serializing_if = "Option::is_none")]
    expiry: Option<u32>,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<SegmentAttributeForm>,
}

#[derive(Serialize, Deserialize)]
struct SegmentAttributeForm {
    #[serde(rename = "t")]
    token: u16,
    #[serde(rename = "v")]
    value: i32,
}

#[derive(Serialize, Deserialize)]
struct AttributesForm {
    #[serde(rename = "w")]
    writes: Vec<AttributeWriteForm>,
}

/// One attribute. The value is packed as in a snapshot; without a value, the attribute is removed.
#[derive(Serialize, Deserialize)]
struct AttributeWriteForm {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "v", skip_serializing_if = "Option::is_none")]
    value: Option<ByteBuf>,
}

#[derive(Serialize, Deserialize)]
struct CancellationForm {
    #[serde(rename = "i")]
    id: AlternateForm,
}

#[derive(Serialize, Deserialize)]
struct ErasureForm {
    #[serde(rename = "p", default, skip_serializing_if = "std::ops::Not::not")]
    person: bool,
    #[serde(rename = "i", skip_serializing_if = "Option::is_none")]
    id: Option<AlternateForm>,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<SixteenBytes>,
}

#[derive(Serialize, Deserialize)]
struct ExposureForm {
    #[serde(rename = "e")]
    experiment: u32,
    #[serde(rename = "a")]
    arm: u8,
}

#[derive(Serialize, Deserialize)]
struct OfferCodeForm {
    #[serde(rename = "c")]
    campaign: u32,
    #[serde(rename = "n")]
    number: u32,
}

#[derive(Serialize, Deserialize)]
struct EvidenceForm {
    #[serde(rename = "i")]
    id: AlternateForm,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<SixteenBytes>,
    #[serde(rename = "w")]
    weight: u16,
    #[serde(rename = "s")]
    source: u8,
}

/// Encodes a batch.
#[must_use]
pub fn encode_batch(batch: &FactBatch) -> Vec<u8> {
    let facts = batch.facts.iter().map(|fact| ByteBuf::from(encode_one(fact))).collect();
    cbor::encode(&BatchForm { form: FORM, tenant: batch.tenant.to_string(), facts })
}

/// The bytes that a fact takes in a batch.
#[must_use]
pub fn bytes_of(fact: &Fact) -> usize {
    cbor::encode(&ByteBuf::from(encode_one(fact))).len()
}

/// Decodes a batch.
///
/// # Errors
/// [`WireError`] if the batch or one of its facts is invalid. Lists and texts over their bounds are refused.
pub fn decode_batch(bytes: &[u8]) -> Result<FactBatch, WireError> {
    let (tenant, facts) = decode_each(bytes)?;
    Ok(FactBatch { tenant, facts: facts.into_iter().collect::<Result<_, _>>()? })
}

/// Decodes a batch fact by fact. An unknown or malformed fact is an error of its own and does not affect the others.
///
/// # Errors
/// [`WireError`] if the batch itself is invalid.
pub fn decode_each(bytes: &[u8]) -> Result<(TenantId, Vec<Result<Fact, WireError>>), WireError> {
    let form: BatchForm = cbor::decode(bytes, FORM, BATCH)?;
    if form.facts.len() > limits::SYNC_FACTS {
        return Err(WireError::Range);
    }
    let tenant = form.tenant.parse().map_err(|_| WireError::Range)?;
    Ok((tenant, form.facts.iter().map(|fact| decode_one(fact)).collect()))
}

/// Encodes one fact for the origin's store.
#[must_use]
pub fn encode_one(fact: &Fact) -> Vec<u8> {
    cbor::encode(&FactForm::from(fact))
}

/// Decodes one fact.
///
/// # Errors
/// [`WireError`] for an invalid fact.
pub fn decode_one(bytes: &[u8]) -> Result<Fact, WireError> {
    cbor::decode::<FactForm>(bytes, FORM, FACT)?.try_into()
}

impl From<&Fact> for FactForm {
    fn from(fact: &Fact) -> Self {
        let (kind, body) = put_what(&fact.what);
        Self {
            form: FORM,
            id: ByteArray::new(*fact.id.as_bytes()),
            visitor: parts::put_visitor(fact.visitor),
            received: fact.received,
            delay: fact.received.saturating_sub(fact.at),
            position: fact.position,
            kind,
            body: ByteBuf::from(body),
        }
    }
}

impl TryFrom<FactForm> for Fact {
    type Error = WireError;

    fn try_from(form: FactForm) -> Result<Self, WireError> {
        Ok(Self {
            id: FactId::from_bytes(form.id.into_array()),
            visitor: parts::read_visitor(form.visitor)?,
            received: form.received,
            at: form.received.checked_sub(form.delay).ok_or(WireError::Range)?,
            position: form.position,
            what: fact_kind(form.kind, &form.body)?,
        })
    }
}

fn put_what(what: &FactKind) -> (u8, Vec<u8>) {
    match what {
        FactKind::Page { session } => (kind::PAGE, cbor::encode(&PageForm { session: session.0 })),
        FactKind::Alias { id, also, proven } => {
            let form = AliasForm { id: (*id).into(), also: parts::put_hashes(also), proven: *proven };
            (kind::ALIAS, cbor::encode(&form))
        }
        FactKind::Track { name, value, properties, order } => {
            let order = order.map(|order| order.0);
            let form =
                TrackForm { name: name.clone(), value: value.map(Micros::get), properties: properties.clone(), order };
            (kind::TRACK, cbor::encode(&form))
        }
        FactKind::Withdrawal => (kind::WITHDRAWAL, Vec::new()),
        FactKind::Action { insertion, action_type, view_type, entity } => {
            let insertion = ByteArray::new(insertion.0);
            let form =
                ActionForm { insertion, action_type: action_type.0, view_type: view_type.0, entity: (*entity).into() };
            (kind::ACTION, cbor::encode(&form))
        }
        FactKind::Segments { writes } => {
            let writes = writes.iter().map(|(id, state)| put_segment(*id, state)).collect();
            (kind::SEGMENTS, cbor::encode(&SegmentsForm { writes }))
        }
        FactKind::Attributes { writes } => {
            let put = |(name, value): &(String, Option<AttributeValue>)| AttributeWriteForm {
                name: name.clone(),
                value: value.as_ref().map(|value| ByteBuf::from(value.pack())),
            };
            (kind::ATTRIBUTES, cbor::encode(&AttributesForm { writes: writes.iter().map(put).collect() }))
        }
        FactKind::Cancellation { id } => (kind::CANCELLATION, cbor::encode(&CancellationForm { id: (*id).into() })),
        FactKind::Erasure { scope, id, also } => {
            let form = ErasureForm {
                person: *scope == ErasureScope::Person,
                id: id.map(AlternateForm::from),
                // Without an id, there are no other hashes of it.
                also: if id.is_some() { parts::put_hashes(also) } else { Vec::new() },
            };
            (kind::ERASURE, cbor::encode(&form))
        }
        FactKind::Exposure { experiment, arm } => {
            (kind::EXPOSURE, cbor::encode(&ExposureForm { experiment: *experiment, arm: *arm }))
        }
        FactKind::OfferCode { campaign, number } => {
            (kind::OFFER_CODE, cbor::encode(&OfferCodeForm { campaign: *campaign, number: *number }))
        }
        FactKind::Evidence { id, also, weight, source } => {
            let (id, also) = ((*id).into(), parts::put_hashes(also));
            (kind::EVIDENCE, cbor::encode(&EvidenceForm { id, also, weight: weight.0, source: source.code() }))
        }
    }
}

fn fact_kind(kind: u8, body: &[u8]) -> Result<FactKind, WireError> {
    Ok(match kind {
        kind::PAGE => FactKind::Page { session: SessionId(read::<PageForm>(body)?.session) },
        kind::ALIAS => {
            let AliasForm { id, also, proven } = read(body)?;
            FactKind::Alias { id: id.into(), also: others(also)?, proven }
        }
        kind::TRACK => {
            let TrackForm { name, value, properties, order } = read(body)?;
            let properties = properties.map(|text| parts::read_text(text, limits::PROPERTIES_BYTES)).transpose()?;
            let name = parts::read_text(name, limits::NAME_BYTES)?;
            FactKind::Track { name, value: value.map(Micros::new), properties, order: order.map(OrderHash) }
        }
        kind::WITHDRAWAL => FactKind::Withdrawal,
        kind::ACTION => {
            let ActionForm { insertion, action_type, view_type, entity } = read(body)?;
            let insertion = InsertionId(insertion.into_array());
            FactKind::Action {
                insertion,
                action_type: ActionType(action_type),
                view_type: ViewType(view_type),
                entity: entity.into(),
            }
        }
        kind::SEGMENTS => {
            let SegmentsForm { writes } = read(body)?;
            FactKind::Segments { writes: parts::read_list(writes, limits::SEGMENT_WRITES, segment_write)? }
        }
        kind::ATTRIBUTES => {
            let AttributesForm { writes } = read(body)?;
            FactKind::Attributes { writes: parts::read_list(writes, limits::ATTRIBUTE_WRITES, attribute_write)? }
        }
        kind::CANCELLATION => FactKind::Cancellation { id: read::<CancellationForm>(body)?.id.into() },
        kind::ERASURE => erasure_kind(read(body)?)?,
        kind::EXPOSURE => {
            let ExposureForm { experiment, arm } = read(body)?;
            FactKind::Exposure { experiment, arm }
        }
        kind::OFFER_CODE => {
            let OfferCodeForm { campaign, number } = read(body)?;
            FactKind::OfferCode { campaign, number }
        }
        kind::EVIDENCE => evidence_kind(read(body)?)?,
        _ => return Err(WireError::UnknownForm),
    })
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    cbor::decode_part(body, BODY)
}

fn others(hashes: Vec<SixteenBytes>) -> Result<Vec<AltHash>, WireError> {
    parts::read_hashes(hashes, limits::KEYS_A_PURPOSE)
}

impl From<AlternateId> for AlternateForm {
    fn from(id: AlternateId) -> Self {
        Self { kind: id.kind.0, hash: ByteArray::new(id.hash.0) }
    }
}

impl From<AlternateForm> for AlternateId {
    fn from(form: AlternateForm) -> Self {
        Self { kind: KindCode(form.kind), hash: parts::hash(form.hash) }
    }
}

fn put_segment(id: SegmentId, state: &SegmentState) -> SegmentForm {
    let SegmentState::Held { expiry, attributes } = state else {
        return SegmentForm { id: id.0, expiry: None, attributes: Vec::new() };
    };
    let attributes = attributes.iter().map(|(token, value)| SegmentAttributeForm { token: *token, value: *value });
    SegmentForm { id: id.0, expiry: Some(expiry.0), attributes: attributes.collect() }
}

fn segment_write(form: SegmentForm) -> Result<(SegmentId, SegmentState), WireError> {
    let id = SegmentId(form.id);
    let attributes: Vec<_> = form.attributes.into_iter().map(|pair| (pair.token, pair.value)).collect();
    let Some(expiry) = form.expiry.map(HourStamp) else {
        return if attributes.is_empty() { Ok((id, SegmentState::Removed)) } else { Err(WireError::Malformed) };
    };
    let state = SegmentState::held(expiry, attributes.iter().copied());
    // Attributes out of order or over their bound are not of our making.
    if state == (SegmentState::Held { expiry, attributes }) { Ok((id, state)) } else { Err(WireError::Range) }
}

fn attribute_write(form: AttributeWriteForm) -> Result<(String, Option<AttributeValue>), WireError> {
    let value = form.value.map(|packed| AttributeValue::read(&packed).ok_or(WireError::Range)).transpose()?;
    Ok((parts::read_text(form.name, limits::ATTRIBUTE_NAME_BYTES)?, value))
}

fn erasure_kind(form: ErasureForm) -> Result<FactKind, WireError> {
    let scope = if form.person { ErasureScope::Person } else { ErasureScope::Visitor };
    if form.id.is_none() && !form.also.is_empty() {
        return Err(WireError::Malformed);
    }
    Ok(FactKind::Erasure { scope, id: form.id.map(AlternateId::from), also: others(form.also)? })
}

fn evidence_kind(form: EvidenceForm) -> Result<FactKind, WireError> {
    let (weight, source) = (EvidenceWeight(form.weight), EvidenceSource::of_code(form.source).ok_or(WireError::Range)?);
    if !(EvidenceWeight(1)..=EvidenceWeight::UNSURE).contains(&weight) {
        return Err(WireError::Range);
    }
    Ok(FactKind::Evidence { id: form.id.into(), also: others(form.also)?, weight, source })
}
