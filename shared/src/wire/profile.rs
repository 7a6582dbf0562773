//! The origin's stored profile.

use minicbor::decode::Decoder;

use super::parts::{self, Encoder, WireError, Written};
use crate::actions::PackedActions;
use crate::attributes::{AttributeMap, PackedAttributes};
use crate::events::Events;
use crate::experiment::Exposures;
use crate::ids::{Millis, SessionId};
use crate::limits;
use crate::profile::{Newest, Profile};
use crate::rhythm::Rhythm;
use crate::segments::{PackedSegments, SegmentMap};
use crate::units::Units;

const FORM: u8 = 1;
/// More than the sessions a profile keeps; a longer list is not ours.
const SESSIONS: usize = 8_192;

/// A stored profile's bytes, without its attributes, exposures, units and events: the store keeps them apart.
#[must_use]
pub fn encode(profile: &Profile) -> Vec<u8> {
    parts::encode(|e| {
        e.array(10)?.u8(FORM)?.u64(profile.pages)?.u64(profile.purchases)?.i64(profile.revenue)?;
        e.array(profile.sessions.len() as u64)?;
        profile.sessions.iter().try_for_each(|s| e.u64(s.0).map(drop))?;
        put_seen(e, profile.seen)?;
        put_newest(e, &profile.newest)?;
        // The store keeps these apart (`Profile::take_parts`), and leaves nothing of them here.
        let actions = if profile.actions.is_empty() { Vec::new() } else { profile.actions.pack() };
        let segments = if profile.segments.is_empty() { Vec::new() } else { profile.segments.pack() };
        e.bytes(&actions)?.bytes(&segments)?;
        e.bytes(&profile.rhythm.pack())?;
        Ok(())
    })
}

/// Reads a stored profile; its attributes, exposures, units and events are not in it.
///
/// # Errors
/// [`WireError`].
pub fn decode(bytes: &[u8]) -> Result<Profile, WireError> {
    parts::form(bytes, FORM, 9, |d| {
        Ok(Profile {
            pages: d.u64()?,
            purchases: d.u64()?,
            revenue: d.i64()?,
            sessions: parts::values(d, SESSIONS, |d| Ok(SessionId(d.u64()?)))?.into_iter().collect(),
            seen: seen(d)?,
            newest: newest(d)?,
            actions: PackedActions::read(d.bytes()?).ok_or(WireError::Malformed)?.iter().collect(),
            segments: segments(d.bytes()?)?,
            rhythm: Rhythm::read(d.bytes()?).ok_or(WireError::Malformed)?,
            attributes: AttributeMap::default(),
            exposures: Exposures::default(),
            units: Units::default(),
            events: Events::default(),
        })
    })
}

/// Reads segments as the store keeps them; no bytes are none.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn segments(bytes: &[u8]) -> Result<SegmentMap, WireError> {
    if bytes.is_empty() {
        return Ok(SegmentMap::default());
    }
    PackedSegments::read(bytes).and_then(|packed| packed.to_map()).ok_or(WireError::Malformed)
}

/// Reads attributes as the store keeps them, which is [`AttributeMap::pack`]; no bytes are none.
///
/// # Errors
/// [`WireError::Malformed`].
pub fn attributes(bytes: &[u8]) -> Result<AttributeMap, WireError> {
    PackedAttributes::read(bytes).and_then(|packed| packed.to_map()).ok_or(WireError::Malformed)
}

/// Reads events as the store keeps them, which is [`Events::pack`].
///
/// # Errors
/// [`WireError::Malformed`].
pub fn events(bytes: &[u8]) -> Result<Events, WireError> {
    Events::read(bytes).ok_or(WireError::Malformed)
}

fn put_seen(e: &mut Encoder<'_>, seen: Option<(Millis, Millis)>) -> Written {
    match seen {
        Some((first, last)) => e.array(2)?.u64(first)?.u64(last)?,
        None => e.null()?,
    };
    Ok(())
}

fn seen(d: &mut Decoder<'_>) -> Result<Option<(Millis, Millis)>, WireError> {
    parts::option(d, |d| parts::record(d, 2, |d| Ok((d.u64()?, d.u64()?))))
}

/// A flat list: the floor, then receipt and id of each.
fn put_newest(e: &mut Encoder<'_>, newest: &Newest) -> Written {
    e.array(1 + 2 * newest.iter().len() as u64)?.u64(newest.floor())?;
    newest.iter().try_for_each(|(received, short)| e.u64(received)?.u64(short).map(drop))
}

fn newest(d: &mut Decoder<'_>) -> Result<Newest, WireError> {
    let length = parts::list(d, 1 + 2 * limits::NEWEST_FACTS)?;
    if length % 2 == 0 {
        return Err(WireError::Malformed);
    }
    let floor = d.u64()?;
    let pairs: Vec<(Millis, u64)> =
        (0..length / 2).map(|_| Ok::<_, WireError>((d.u64()?, d.u64()?))).collect::<Result<_, _>>()?;
    Ok(Newest::from_parts(pairs, floor))
}
