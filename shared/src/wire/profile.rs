//! The origin's stored profile.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::cbor::{self, FormBounds};
use super::{WireError, parts};
use crate::base::ids::{Micros, Millis, SessionId, VisitorId};
use crate::base::limits;
use crate::base::packed::{PackedReader, put};
use crate::facts::actions::PackedActions;
use crate::facts::attributes::{AttributeMap, PackedAttributes};
use crate::facts::events::VisitorEvents;
use crate::facts::orders::VisitorOrders;
use crate::facts::segments::{PackedSegments, SegmentMap};
use crate::profiles::activity::ActivityHistogram;
use crate::profiles::profile::{NewestFacts, Profile};

const FORM: u8 = 1;
/// The store wrote the bytes, so their length has no bound.
const PROFILE: FormBounds = FormBounds { bytes: usize::MAX, items: 64, levels: 8 };
/// Most sessions in a stored profile; a longer list is refused. A profile has fewer.
const SESSIONS: usize = 8_192;

/// [`Profile`]. Folding decodes and encodes it for each visitor of a batch, so its lists are columns.
#[derive(Serialize, Deserialize)]
struct ProfileForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "p")]
    pages: u64,
    #[serde(rename = "b")]
    purchases: u64,
    #[serde(rename = "v")]
    revenue: i64,
    /// Column: eight bytes per session.
    #[serde(rename = "s", default, skip_serializing_if = "<[u8]>::is_empty")]
    sessions: ByteBuf,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    seen: Option<NewestForm>,
    /// The time before which all received facts are contained.
    #[serde(rename = "o", default, skip_serializing_if = "parts::is_zero")]
    floor: u64,
    /// Column of the newest facts, oldest first: the receipt in milliseconds after the previous one, and the first
    /// eight bytes of the id.
    #[serde(rename = "n", default, skip_serializing_if = "<[u8]>::is_empty")]
    newest: ByteBuf,
    /// Column in the form of [`crate::facts::actions::ActionList::pack_actions`]. Empty in the store, which keeps
    /// actions in other rows.
    #[serde(rename = "a", default, skip_serializing_if = "<[u8]>::is_empty")]
    actions: ByteBuf,
    /// Column in the form of [`SegmentMap::pack`]. Empty in the store, which keeps segments in other rows.
    #[serde(rename = "g", default, skip_serializing_if = "<[u8]>::is_empty")]
    segments: ByteBuf,
    /// Column in the form of [`ActivityHistogram::pack`].
    #[serde(rename = "y", default, skip_serializing_if = "<[u8]>::is_empty")]
    activity: ByteBuf,
    /// Column in the form of [`VisitorOrders::pack`].
    #[serde(rename = "d", default, skip_serializing_if = "<[u8]>::is_empty")]
    orders: ByteBuf,
}

/// Times of a visitor's first and last fact.
#[derive(Serialize, Deserialize)]
struct NewestForm {
    #[serde(rename = "a")]
    first: u64,
    #[serde(rename = "z")]
    last: u64,
}

/// Length of the CRC-32 that follows a stored profile. It covers the visitor's id and the bytes, because damaged sums
/// still decode, and a damaged visitor id is another visitor's.
const SUM: usize = 4;

/// Encodes a visitor's stored profile, followed by its CRC-32. Attributes, exposures, offer codes and events are not
/// included; the store keeps them in other rows.
#[must_use]
pub fn encode_profile(visitor: VisitorId, profile: &Profile) -> Vec<u8> {
    let sessions: Vec<u8> = profile.sessions.iter().flat_map(|session| session.0.to_be_bytes()).collect();
    let actions = if profile.actions.is_empty() { Vec::new() } else { profile.actions.pack_actions() };
    let segments = if profile.segments.is_empty() { Vec::new() } else { profile.segments.pack() };
    let mut bytes = cbor::encode(&ProfileForm {
        form: FORM,
        pages: profile.pages,
        purchases: profile.purchases,
        revenue: profile.revenue.get(),
        sessions: ByteBuf::from(sessions),
        seen: profile.seen.map(|(first, last)| NewestForm { first, last }),
        floor: profile.newest.floor(),
        newest: ByteBuf::from(put_newest(&profile.newest)),
        actions: ByteBuf::from(actions),
        segments: ByteBuf::from(segments),
        activity: ByteBuf::from(profile.activity.pack()),
        orders: ByteBuf::from(profile.orders.pack()),
    });
    bytes.extend(sum_of(visitor, &bytes).to_be_bytes());
    bytes
}

fn sum_of(visitor: VisitorId, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(visitor.as_bytes());
    sum.update(bytes);
    sum.finalize()
}

/// Decodes a visitor's stored profile, without its attributes, exposures, offer codes and events.
///
/// # Errors
/// [`WireError::Checksum`] if the bytes are not what was stored for this visitor; otherwise [`WireError`] for an
/// invalid form.
pub fn decode_profile(visitor: VisitorId, bytes: &[u8]) -> Result<Profile, WireError> {
    let (bytes, sum) = bytes.split_last_chunk::<SUM>().ok_or(WireError::Malformed)?;
    if sum_of(visitor, bytes) != u32::from_be_bytes(*sum) {
        return Err(WireError::Checksum);
    }
    let form: ProfileForm = cbor::decode(bytes, FORM, PROFILE)?;
    let actions = PackedActions::read(&form.actions).ok_or(WireError::Malformed)?.iter().collect();
    let (sessions, rest) = form.sessions.as_chunks();
    if sessions.len() > SESSIONS {
        return Err(WireError::Range);
    }
    if !rest.is_empty() {
        return Err(WireError::Malformed);
    }
    Ok(Profile {
        pages: form.pages,
        purchases: form.purchases,
        revenue: Micros::new(form.revenue),
        sessions: sessions.iter().map(|session| SessionId(u64::from_be_bytes(*session))).collect(),
        seen: form.seen.map(|seen| (seen.first, seen.last)),
        newest: newest(&form.newest, form.floor)?,
        actions,
        segments: decode_segments(&form.segments)?,
        activity: ActivityHistogram::read(&form.activity).ok_or(WireError::Malformed)?,
        orders: VisitorOrders::read(&form.orders).ok_or(WireError::Malformed)?,
        ..Profile::default()
    })
}

/// Decodes segments from the store; no bytes stand for no segments.
///
/// # Errors
/// [`WireError::Malformed`] for any other bytes.
pub fn decode_segments(bytes: &[u8]) -> Result<SegmentMap, WireError> {
    if bytes.is_empty() {
        return Ok(SegmentMap::default());
    }
    PackedSegments::read(bytes).and_then(|packed| packed.to_map()).ok_or(WireError::Malformed)
}

/// Decodes attributes from the store, in the form of [`AttributeMap::pack`]; no bytes stand for no attributes.
///
/// # Errors
/// [`WireError::Malformed`] for any other bytes.
pub fn decode_attributes(bytes: &[u8]) -> Result<AttributeMap, WireError> {
    PackedAttributes::read(bytes).and_then(|packed| packed.to_map()).ok_or(WireError::Malformed)
}

/// Decodes events from the store, in the form of [`VisitorEvents::pack`].
///
/// # Errors
/// [`WireError::Malformed`] for any other bytes.
pub fn decode_events(bytes: &[u8]) -> Result<VisitorEvents, WireError> {
    VisitorEvents::read(bytes).ok_or(WireError::Malformed)
}

fn put_newest(newest: &NewestFacts) -> Vec<u8> {
    let (mut column, mut before) = (Vec::new(), 0);
    for (received, short) in newest.iter() {
        put(&mut column, received.saturating_sub(before));
        column.extend(short.to_be_bytes());
        before = received;
    }
    column
}

fn newest(column: &[u8], floor: Millis) -> Result<NewestFacts, WireError> {
    let (mut left, mut received) = (PackedReader(column), 0_u64);
    let mut facts = Vec::new();
    while !left.is_empty() {
        received = received.checked_add(parts::read_number(&mut left)?).ok_or(WireError::Range)?;
        facts.push((received, left.eight().ok_or(WireError::Malformed)?));
        if facts.len() > limits::NEWEST_FACTS {
            return Err(WireError::Range);
        }
    }
    Ok(NewestFacts::from_parts(facts, floor))
}
