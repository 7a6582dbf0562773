//! The origin's stored profile.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::cbor::{self, FormBounds};
use super::{WireError, parts};
use crate::base::ids::{Millis, SessionId, VisitorId};
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
/// The store wrote it, so that its length has no bound of its own.
const PROFILE: FormBounds = FormBounds { bytes: usize::MAX, items: 64, levels: 8 };
/// More than the sessions a profile keeps; a longer list is not ours.
const SESSIONS: usize = 8_192;

/// [`Profile`]. Folding reads and writes it for each visitor of a batch, so that its lists are columns.
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
    /// Column: eight bytes a session.
    #[serde(rename = "s", default, skip_serializing_if = "<[u8]>::is_empty")]
    sessions: ByteBuf,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    seen: Option<NewestForm>,
    /// Facts received before this time are all held.
    #[serde(rename = "o", default, skip_serializing_if = "parts::is_zero")]
    floor: u64,
    /// Column: of each of the newest, the oldest first, its receipt in milliseconds after the previous one's, and the start of
    /// its id in eight bytes.
    #[serde(rename = "n", default, skip_serializing_if = "<[u8]>::is_empty")]
    newest: ByteBuf,
    /// Column, as [`crate::facts::actions::Actions::pack`] describes. The store keeps actions apart, and has none here.
    #[serde(rename = "a", default, skip_serializing_if = "<[u8]>::is_empty")]
    actions: ByteBuf,
    /// Column, as [`SegmentMap::pack`] describes. The store keeps segments apart, and has none here.
    #[serde(rename = "g", default, skip_serializing_if = "<[u8]>::is_empty")]
    segments: ByteBuf,
    /// Column, as [`ActivityHistogram::pack`] describes.
    #[serde(rename = "y", default, skip_serializing_if = "<[u8]>::is_empty")]
    rhythm: ByteBuf,
    /// Column, as [`VisitorOrders::pack`] describes.
    #[serde(rename = "d", default, skip_serializing_if = "<[u8]>::is_empty")]
    orders: ByteBuf,
}

/// When a visitor's first and last fact happened.
#[derive(Serialize, Deserialize)]
struct NewestForm {
    #[serde(rename = "a")]
    first: u64,
    #[serde(rename = "z")]
    last: u64,
}

/// Bytes of the CRC-32 after a stored profile, which is that of its visitor's id and its bytes: sums in which a bit
/// flipped have a form all the same, and a visitor's id in which one did is another visitor's.
const SUM: usize = 4;

/// The bytes of a visitor's stored profile, without its attributes, exposures, units and events: the store keeps them
/// apart. The CRC-32 follows.
#[must_use]
pub fn encode_profile(visitor: VisitorId, profile: &Profile) -> Vec<u8> {
    let sessions: Vec<u8> = profile.sessions.iter().flat_map(|session| session.0.to_be_bytes()).collect();
    let actions = if profile.actions.is_empty() { Vec::new() } else { profile.actions.pack_actions() };
    let segments = if profile.segments.is_empty() { Vec::new() } else { profile.segments.pack() };
    let mut bytes = cbor::encode(&ProfileForm {
        form: FORM,
        pages: profile.pages,
        purchases: profile.purchases,
        revenue: profile.revenue,
        sessions: ByteBuf::from(sessions),
        seen: profile.seen.map(|(first, last)| NewestForm { first, last }),
        floor: profile.newest.floor(),
        newest: ByteBuf::from(put_newest(&profile.newest)),
        actions: ByteBuf::from(actions),
        segments: ByteBuf::from(segments),
        rhythm: ByteBuf::from(profile.rhythm.pack()),
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

/// Reads a visitor's stored profile; its attributes, exposures, units and events are not in it.
///
/// # Errors
/// [`WireError`]; [`WireError::Checksum`] where the bytes are not what was stored of this visitor.
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
        revenue: form.revenue,
        sessions: sessions.iter().map(|session| SessionId(u64::from_be_bytes(*session))).collect(),
        seen: form.seen.map(|seen| (seen.first, seen.last)),
        newest: newest(&form.newest, form.floor)?,
        actions,
        segments: decode_segments(&form.segments)?,
        rhythm: ActivityHistogram::read(&form.rhythm).ok_or(WireError::Malformed)?,
        orders: VisitorOrders::read(&form.orders).ok_or(WireError::Malformed)?,
        ..Profile::default()
    })
}

/// Reads segments as the store keeps them; no bytes are none.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn decode_segments(bytes: &[u8]) -> Result<SegmentMap, WireError> {
    if bytes.is_empty() {
        return Ok(SegmentMap::default());
    }
    PackedSegments::read(bytes).and_then(|packed| packed.to_map()).ok_or(WireError::Malformed)
}

/// Reads attributes as the store keeps them, which is [`AttributeMap::pack`]; no bytes are none.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn decode_attributes(bytes: &[u8]) -> Result<AttributeMap, WireError> {
    PackedAttributes::read(bytes).and_then(|packed| packed.to_map()).ok_or(WireError::Malformed)
}

/// Reads events as the store keeps them, which is [`VisitorEvents::pack`].
///
/// # Errors
/// [`WireError::Malformed`].
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
