//! Values of the edge KV, as text (the platform's bulk read gives text): a two-letter tag with the form's
//! number, then base64 of a CRC-32 and the CBOR, of a page of names the packed page. The CRC covers the key too, so that a value under another
//! key is refused like a flipped bit.

use std::collections::BTreeMap;

use base64_simd::STANDARD_NO_PAD;
use minicbor::decode::Decoder;

use super::parts::{self, Encoder, WireError, Written};
use crate::attributes::{self, Kind};
use crate::ids::{Epoch, Version, VisitorId};
use crate::limits;
use crate::membership::{Cut, Membership};
use crate::packed::{self, Packed, Shared};
use crate::profile::SubProfile;
use crate::rhythm::BestTime;
use crate::view::{Snapshot, Stored};

const FORM: u8 = 1;
const SNAPSHOT: &str = "s1";
const TOMBSTONE: &str = "t1";
const LOOKUP: &str = "l1";
const NAMES: &str = "n1";

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
        && profiles.keys().eq(&membership.admits)
        && profiles.len() <= limits::SNAPSHOT_VISITORS
        && membership.cuts.len() <= limits::CUTS
        && unique.len() <= limits::KEYS_A_PURPOSE
}

/// Reads the value of a visitor's key.
///
/// # Errors
/// [`WireError`]; a value that is not whole, not ours or not this key's is an error, never a guess.
pub fn decode_stored(key: &str, visitor: VisitorId, value: &[u8]) -> Result<Stored, WireError> {
    open_stored(key, value)?.read(visitor)
}

/// A visitor's value, known to be whole and its key's: what is kept of one that may be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// A snapshot's CBOR.
    Snapshot(Shared),
    /// A tombstone.
    Tombstone,
}

/// Opens the value of a visitor's key.
///
/// # Errors
/// [`WireError`], as [`decode_stored`].
pub fn open_stored(key: &str, value: &[u8]) -> Result<Opened, WireError> {
    if value.starts_with(TOMBSTONE.as_bytes()) {
        return open(TOMBSTONE, key, value).map(|_| Opened::Tombstone);
    }
    open(SNAPSHOT, key, value).map(Opened::Snapshot)
}

impl Opened {
    /// Reads it.
    ///
    /// # Errors
    /// [`WireError`], as [`decode_stored`].
    pub fn read(&self, visitor: VisitorId) -> Result<Stored, WireError> {
        let Self::Snapshot(bytes) = self else { return Ok(Stored::Tombstone) };
        let has_best = parts::fields(bytes) > 7;
        let snapshot = parts::form(bytes, FORM, 6 + usize::from(has_best), |d| {
            let mut read = snapshot(d, bytes)?;
            if has_best {
                read.best = Some(BestTime::read(d.u16()?).ok_or(WireError::Range)?);
            }
            Ok(read)
        })?;
        // All else that makes it whole holds of all that is read.
        let whole = snapshot.visitor == visitor && snapshot.profiles.contains_key(&visitor);
        if whole { Ok(Stored::Snapshot(Box::new(snapshot))) } else { Err(WireError::Range) }
    }
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

/// The value of a page's key: names of attributes, and the kind of each.
///
/// # Errors
/// [`WireError::Range`] for more than [`limits::ATTRIBUTE_PAGE`], for a name that is bad and for one that is there twice.
pub fn encode_names(key: &str, page: &[(String, Kind)]) -> Result<String, WireError> {
    let bytes = attributes::encode_page(page);
    if attributes::decode_page(&bytes).is_none() {
        return Err(WireError::Range);
    }
    Ok(seal(NAMES, key, &bytes))
}

/// Reads the value of a page's key.
///
/// # Errors
/// [`WireError`].
pub fn decode_names(key: &str, value: &[u8]) -> Result<Vec<(String, Kind)>, WireError> {
    attributes::decode_page(&open(NAMES, key, value)?).ok_or(WireError::Malformed)
}

fn put_snapshot(e: &mut Encoder<'_>, snapshot: &Snapshot) -> Written {
    // What is not there takes no place, so that these are the bytes of the releases before.
    e.array(if snapshot.best.is_some() { 8 } else { 7 })?.u8(FORM)?;
    parts::put_version(e, snapshot.version)?;
    e.bytes(snapshot.visitor.as_bytes())?.array(snapshot.unique.len() as u64)?;
    snapshot.unique.iter().try_for_each(|hash| e.bytes(&hash.0).map(drop))?;
    put_membership(e, &snapshot.membership)?;
    let mut rows = Vec::new();
    for (visitor, sub) in &snapshot.profiles {
        rows.extend_from_slice(visitor.as_bytes());
        packed::put(&mut rows, u64::from(sub.version().restore));
        packed::put(&mut rows, sub.version().counter);
        packed::put_row(&mut rows, sub.packed());
    }
    e.bytes(&rows)?.bool(snapshot.truncated)?;
    snapshot.best.map_or(Ok(()), |best| e.u16(best.pack()).map(drop))
}

fn snapshot(d: &mut Decoder<'_>, all: &Shared) -> Result<Snapshot, WireError> {
    let version = parts::version(d)?;
    let visitor = parts::visitor(d)?;
    let unique = parts::values(d, limits::KEYS_A_PURPOSE, parts::alt_hash)?;
    let mut membership = membership(d)?;
    let profiles = rows(d.bytes()?, limits::SNAPSHOT_VISITORS, |rows| {
        let visitor = rows.visitor()?;
        let version = Version { restore: rows.number()?.try_into().ok()?, counter: rows.number()? };
        Some((visitor, SubProfile::from_packed(version, all.part(rows.row()?))))
    })?;
    membership.admits = profiles.keys().copied().collect();
    Ok(Snapshot { version, visitor, unique, membership, profiles, best: None, truncated: d.bool()? })
}

/// The admitted visitors are those that have profiles, and are not written again.
fn put_membership(e: &mut Encoder<'_>, membership: &Membership) -> Written {
    let mut cuts = Vec::new();
    for (visitor, cut) in &membership.cuts {
        cuts.extend_from_slice(visitor.as_bytes());
        packed::put(&mut cuts, cut.at);
        packed::put(&mut cuts, u64::from(cut.gone));
    }
    e.array(3)?.u64(membership.epoch.0)?.u32(membership.devices)?.bytes(&cuts)?;
    Ok(())
}

fn membership(d: &mut Decoder<'_>) -> Result<Membership, WireError> {
    parts::record(d, 3, |d| {
        let (epoch, devices) = (Epoch(d.u64()?), d.u32()?);
        let cuts = rows(d.bytes()?, limits::CUTS, |rows| {
            Some((rows.visitor()?, Cut { at: rows.number()?, gone: rows.count(1)? == 1 }))
        })?;
        Ok(Membership { epoch, devices, cuts, ..Membership::default() })
    })
}

/// Packed rows, at most `most`, written in the order of their visitors, each once.
fn rows<T>(
    bytes: &[u8],
    most: usize,
    mut read: impl FnMut(&mut Packed<'_>) -> Option<(VisitorId, T)>,
) -> Result<BTreeMap<VisitorId, T>, WireError> {
    let mut left = Packed(bytes);
    let mut all = Vec::with_capacity(if bytes.is_empty() { 0 } else { most });
    while !left.is_empty() {
        let (visitor, row) = read(&mut left).ok_or(WireError::Malformed)?;
        if all.len() == most {
            return Err(WireError::Range);
        }
        if all.last().is_some_and(|(before, _)| *before >= visitor) {
            return Err(WireError::Malformed);
        }
        all.push((visitor, row));
    }
    Ok(all.into_iter().collect())
}

pub(super) fn seal(tag: &str, key: &str, bytes: &[u8]) -> String {
    let mut framed = checksum(tag, key, bytes).to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    let mut text = String::with_capacity(tag.len() + framed.len() / 3 * 4 + 4);
    text.push_str(tag);
    STANDARD_NO_PAD.encode_append(&framed, &mut text);
    text
}

fn open(tag: &str, key: &str, value: &[u8]) -> Result<Shared, WireError> {
    open_within(limits::KV_VALUE_CHARS, tag, key, value)
}

/// Opens a value of at most `most` characters.
pub(super) fn open_within(most: usize, tag: &str, key: &str, value: &[u8]) -> Result<Shared, WireError> {
    if value.len() > most {
        return Err(WireError::TooLong);
    }
    let text = value.strip_prefix(tag.as_bytes()).ok_or(WireError::UnknownForm)?;
    let framed = Shared::from(STANDARD_NO_PAD.decode_to_vec(text).map_err(|_| WireError::Malformed)?);
    let (sum, bytes) = framed.split_first_chunk::<4>().ok_or(WireError::Malformed)?;
    if u32::from_be_bytes(*sum) != checksum(tag, key, bytes) {
        return Err(WireError::Checksum);
    }
    Ok(framed.part(bytes))
}

fn checksum(tag: &str, key: &str, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    [tag.as_bytes(), key.as_bytes(), &[0], bytes].into_iter().for_each(|part| sum.update(part));
    sum.finalize()
}
