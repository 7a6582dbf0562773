//! Values of the edge KV, as text (the platform's bulk read gives text): a two-letter tag with the form's
//! number, then base64 of a CRC-32 and the CBOR. The CRC covers the key too, so that a value under another
//! key is refused like a flipped bit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use minicbor::decode::Decoder;

use super::parts::{self, Encoder, WireError, Written};
use super::profile;
use crate::ids::{Epoch, VisitorId};
use crate::limits;
use crate::membership::{Cut, Membership};
use crate::view::{Snapshot, Stored};

const FORM: u8 = 1;
const SNAPSHOT: &str = "s1";
const TOMBSTONE: &str = "t1";
const LOOKUP: &str = "l1";

/// The value of a visitor's key.
///
/// # Errors
/// [`WireError::TooLong`] when it is over [`limits::SNAPSHOT_BYTES`]: leave visitors out. [`WireError::Range`] when
/// a list is over its bound, or the visitor itself is not in it: no reader would take it.
pub fn encode_stored(key: &str, stored: &Stored) -> Result<String, WireError> {
    let Stored::Snapshot(snapshot) = stored else { return Ok(seal(TOMBSTONE, key, &[])) };
    if !is_whole(snapshot) {
        return Err(WireError::Range);
    }
    let bytes = parts::encode(|e| put_snapshot(e, snapshot));
    if bytes.len() > limits::SNAPSHOT_BYTES { Err(WireError::TooLong) } else { Ok(seal(SNAPSHOT, key, &bytes)) }
}

fn is_whole(snapshot: &Snapshot) -> bool {
    let Snapshot { visitor, unique, membership, profiles, .. } = snapshot;
    profiles.contains_key(visitor)
        && membership.admits.contains(visitor)
        && profiles.len().max(membership.admits.len()) <= limits::SNAPSHOT_VISITORS
        && membership.cuts.len() <= limits::CUTS
        && unique.len() <= limits::KEYS_A_PURPOSE
}

/// Reads the value of a visitor's key.
///
/// # Errors
/// [`WireError`]; a value that is not whole, not ours or not this key's is an error, never a guess.
pub fn decode_stored(key: &str, visitor: VisitorId, value: &[u8]) -> Result<Stored, WireError> {
    if value.starts_with(TOMBSTONE.as_bytes()) {
        return open(TOMBSTONE, key, value).map(|_| Stored::Tombstone);
    }
    let bytes = open(SNAPSHOT, key, value)?;
    let snapshot = parts::form(&bytes, FORM, 6, snapshot)?;
    let whole = snapshot.visitor == visitor && is_whole(&snapshot);
    if whole { Ok(Stored::Snapshot(Box::new(snapshot))) } else { Err(WireError::Range) }
}

/// The value of an alternate id's key: the visitors last seen with it, newest first.
///
/// # Errors
/// [`WireError::Range`] for more than [`limits::LOOKUP_VISITORS`].
pub fn encode_lookup(key: &str, visitors: &[VisitorId]) -> Result<String, WireError> {
    if visitors.len() > limits::LOOKUP_VISITORS {
        return Err(WireError::Range);
    }
    let bytes = parts::encode(|e| {
        e.array(2)?.u8(FORM)?.array(visitors.len() as u64)?;
        visitors.iter().try_for_each(|v| e.bytes(v.as_bytes()).map(drop))
    });
    Ok(seal(LOOKUP, key, &bytes))
}

/// Reads the value of an alternate id's key.
///
/// # Errors
/// [`WireError`].
pub fn decode_lookup(key: &str, value: &[u8]) -> Result<Vec<VisitorId>, WireError> {
    let bytes = open(LOOKUP, key, value)?;
    parts::form(&bytes, FORM, 1, |d| parts::values(d, limits::LOOKUP_VISITORS, parts::visitor))
}

fn put_snapshot(e: &mut Encoder<'_>, snapshot: &Snapshot) -> Written {
    e.array(7)?.u8(FORM)?;
    parts::put_version(e, snapshot.version)?;
    e.bytes(snapshot.visitor.as_bytes())?.array(snapshot.unique.len() as u64)?;
    snapshot.unique.iter().try_for_each(|hash| e.bytes(&hash.0).map(drop))?;
    put_membership(e, &snapshot.membership)?;
    e.array(snapshot.profiles.len() as u64)?;
    for (visitor, sub) in &snapshot.profiles {
        e.array(2)?.bytes(visitor.as_bytes())?;
        profile::put_sub(e, sub)?;
    }
    e.bool(snapshot.truncated)?;
    Ok(())
}

fn snapshot(d: &mut Decoder<'_>) -> Result<Snapshot, WireError> {
    Ok(Snapshot {
        version: parts::version(d)?,
        visitor: parts::visitor(d)?,
        unique: parts::values(d, limits::KEYS_A_PURPOSE, parts::alt_hash)?,
        membership: membership(d)?,
        profiles: parts::values(d, limits::SNAPSHOT_VISITORS, |d| {
            parts::record(d, 2, |d| Ok((parts::visitor(d)?, profile::sub(d)?)))
        })?
        .into_iter()
        .collect(),
        truncated: d.bool()?,
    })
}

fn put_membership(e: &mut Encoder<'_>, membership: &Membership) -> Written {
    e.array(4)?.u64(membership.epoch.0)?.u32(membership.devices)?.array(membership.admits.len() as u64)?;
    membership.admits.iter().try_for_each(|v| e.bytes(v.as_bytes()).map(drop))?;
    e.array(membership.cuts.len() as u64)?;
    membership
        .cuts
        .iter()
        .try_for_each(|(v, cut)| e.array(3)?.bytes(v.as_bytes())?.u64(cut.at)?.bool(cut.gone).map(drop))
}

fn membership(d: &mut Decoder<'_>) -> Result<Membership, WireError> {
    parts::record(d, 4, |d| {
        Ok(Membership {
            epoch: Epoch(d.u64()?),
            devices: d.u32()?,
            admits: parts::values(d, limits::SNAPSHOT_VISITORS, parts::visitor)?.into_iter().collect(),
            cuts: parts::values(d, limits::CUTS, cut)?.into_iter().collect(),
        })
    })
}

fn cut(d: &mut Decoder<'_>) -> Result<(VisitorId, Cut), WireError> {
    parts::record(d, 3, |d| Ok((parts::visitor(d)?, Cut { at: d.u64()?, gone: d.bool()? })))
}

fn seal(tag: &str, key: &str, bytes: &[u8]) -> String {
    let mut framed = checksum(tag, key, bytes).to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    let mut text = String::with_capacity(tag.len() + framed.len() / 3 * 4 + 4);
    text.push_str(tag);
    STANDARD_NO_PAD.encode_string(&framed, &mut text);
    text
}

fn open(tag: &str, key: &str, value: &[u8]) -> Result<Vec<u8>, WireError> {
    if value.len() > limits::KV_VALUE_CHARS {
        return Err(WireError::TooLong);
    }
    let text = value.strip_prefix(tag.as_bytes()).ok_or(WireError::UnknownForm)?;
    let mut framed = STANDARD_NO_PAD.decode(text).map_err(|_| WireError::Malformed)?;
    let (sum, bytes) = framed.split_first_chunk::<4>().ok_or(WireError::Malformed)?;
    if u32::from_be_bytes(*sum) != checksum(tag, key, bytes) {
        return Err(WireError::Checksum);
    }
    framed.drain(..4);
    Ok(framed)
}

fn checksum(tag: &str, key: &str, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(tag.as_bytes());
    crc.update(key.as_bytes());
    crc.update(&[0]);
    crc.update(bytes);
    crc.finalize()
}
