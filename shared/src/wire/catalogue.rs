//! A tenant's catalogue in the edge KV: the document of each version, written once, the pointer to the current one, the
//! newest model, and how traffic is steered.
//! All are text as [`super::kv`] describes; the document is a [`super::flat`], packed by LZ4 (the block format).
//!
//! A reader that does not know a document's form refuses it: to leave out a part of what limits an ad would show the ad to
//! whom it is not meant for. It goes on with the catalogue it has.

use bytes::Bytes;
use std::collections::BTreeMap;

use minicbor::decode::Decoder;

use super::kv::{open_within, seal};
use super::model;
use super::parts::{self, WireError};
use crate::ids::Version;
use crate::limits;
use crate::model::Model;
use crate::steering::{Pace, Steering};

const FORM: u8 = 1;
const DOCUMENT: &str = "k1";
const POINTER: &str = "p1";
const MODEL: &str = "w1";
const STEERING: &str = "s1";

/// The first 16 bytes of the SHA-256 of a document's file form, as JSON.
pub type Digest = [u8; 16];

/// Which version of a catalogue is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// Of the publication: it grows with each, back to an older version too. One that is lower is older news.
    pub published: Version,
    /// The version, from 1 on.
    pub version: u32,
    /// Of its document: a version of this number with another one is not the one that is meant.
    pub digest: Digest,
}

/// The value of the pointer's key.
#[must_use]
pub fn encode_pointer(key: &str, pointer: &Pointer) -> String {
    let bytes = parts::encode(|e| {
        e.array(4)?.u8(FORM)?;
        parts::put_version(e, pointer.published)?;
        e.u32(pointer.version)?.bytes(&pointer.digest)?;
        Ok(())
    });
    seal(POINTER, key, &bytes)
}

/// Reads the value of the pointer's key.
///
/// # Errors
/// [`WireError`].
pub fn decode_pointer(key: &str, value: &[u8]) -> Result<Pointer, WireError> {
    let bytes = open_within(limits::KV_VALUE_CHARS, POINTER, key, value)?;
    parts::form(&bytes, FORM, 3, |d| {
        Ok(Pointer { published: parts::version(d)?, version: d.u32()?, digest: parts::sixteen(d)? })
    })
}

/// The value of the model's key: a model in its own form ([`super::model`]), published under this version.
#[must_use]
pub fn encode_model(key: &str, published: Version, model: &[u8]) -> String {
    let bytes = parts::encode(|e| {
        e.array(3)?.u8(FORM)?;
        parts::put_version(e, published)?;
        e.bytes(model)?;
        Ok(())
    });
    seal(MODEL, key, &bytes)
}

/// Reads the value of the model's key. Whether the model may be used now is another question.
///
/// # Errors
/// [`WireError`].
pub fn decode_model(key: &str, value: &[u8]) -> Result<(Version, Model), WireError> {
    let bytes = open_within(limits::MODEL_CHARS, MODEL, key, value)?;
    parts::form(&bytes, FORM, 2, |d| Ok((parts::version(d)?, model::decode(d.bytes()?)?)))
}

/// The value of the steering's key, published under this version.
///
/// # Errors
/// [`WireError::TooLong`] over [`limits::STEERING_CHARS`].
pub fn encode_steering(key: &str, published: Version, steering: &Steering) -> Result<String, WireError> {
    let Steering { at, shares, paces, given_out } = steering;
    let bytes = parts::encode(|e| {
        e.array(6)?.u8(FORM)?;
        parts::put_version(e, published)?;
        e.u64(*at)?.array(shares.len() as u64)?;
        for (experiment, shares) in shares {
            e.array(1 + shares.len() as u64)?.u32(*experiment)?;
            shares.iter().try_for_each(|share| e.u32(*share).map(drop))?;
        }
        e.array(3 * paces.len() as u64)?;
        paces.iter().try_for_each(|(campaign, Pace { from, to })| e.u32(*campaign)?.u32(*from)?.u32(*to).map(drop))?;
        e.array(given_out.len() as u64)?;
        given_out.iter().try_for_each(|campaign| e.u32(*campaign).map(drop))
    });
    let value = seal(STEERING, key, &bytes);
    if value.len() > limits::STEERING_CHARS { Err(WireError::TooLong) } else { Ok(value) }
}

/// Reads the value of the steering's key.
///
/// # Errors
/// [`WireError`].
pub fn decode_steering(key: &str, value: &[u8]) -> Result<(Version, Steering), WireError> {
    let bytes = open_within(limits::STEERING_CHARS, STEERING, key, value)?;
    let given = parts::fields(&bytes) > 5;
    parts::form(&bytes, FORM, if given { 5 } else { 4 }, |d| {
        let (published, at) = (parts::version(d)?, d.u64()?);
        let shares = parts::values(d, limits::EXPERIMENTS, |d| {
            let count = parts::list(d, 1 + limits::EXPERIMENT_ARMS)?;
            let experiment = d.u32()?;
            let shares = (1..count).map(|_| d.u32()).collect::<Result<_, _>>()?;
            Ok((experiment, shares))
        })?;
        let mut paces = BTreeMap::new();
        for _ in 0..parts::list(d, 3 * limits::CATALOGUE_ROWS)? / 3 {
            paces.insert(d.u32()?, Pace { from: d.u32()?, to: d.u32()? });
        }
        let given_out = if given { parts::values(d, limits::CATALOGUE_ROWS, |d| Ok(d.u32()?))? } else { Vec::new() };
        Ok((
            published,
            Steering { at, shares: shares.into_iter().collect(), paces, given_out: given_out.into_iter().collect() },
        ))
    })
}

/// The value of a version's key: its document with its digest.
///
/// # Errors
/// [`WireError::TooLong`] over [`limits::CATALOGUE_BYTES`] or [`limits::CATALOGUE_CHARS`] of text.
pub fn encode_document(key: &str, digest: &Digest, document: &[u8]) -> Result<String, WireError> {
    let length = u32::try_from(document.len()).map_err(|_| WireError::TooLong)?;
    if document.len() > limits::CATALOGUE_BYTES {
        return Err(WireError::TooLong);
    }
    let packed = lz4_flex::block::compress(document);
    let bytes = parts::encode(|e| {
        e.array(4)?.u8(FORM)?.bytes(digest)?.u32(length)?.bytes(&packed)?;
        Ok(())
    });
    let value = seal(DOCUMENT, key, &bytes);
    if value.len() > limits::CATALOGUE_CHARS { Err(WireError::TooLong) } else { Ok(value) }
}

/// Reads the value of a version's key: the document of this digest.
///
/// # Errors
/// [`WireError::Range`] for another document's value and for one over [`limits::CATALOGUE_BYTES`], of which nothing is
/// unpacked; else [`WireError`].
pub fn decode_document(key: &str, digest: &Digest, value: &[u8]) -> Result<Bytes, WireError> {
    let bytes = open_within(limits::CATALOGUE_CHARS, DOCUMENT, key, value)?;
    parts::form(&bytes, FORM, 3, |d| document(d, digest)).map(Bytes::from)
}

fn document(d: &mut Decoder<'_>, digest: &Digest) -> Result<Vec<u8>, WireError> {
    let same = parts::sixteen(d)? == *digest;
    let length = usize::try_from(d.u32()?).map_err(|_| WireError::Range)?;
    if !same || length > limits::CATALOGUE_BYTES {
        return Err(WireError::Range);
    }
    let document = lz4_flex::block::decompress(d.bytes()?, length).map_err(|_| WireError::Malformed)?;
    if document.len() == length { Ok(document) } else { Err(WireError::Malformed) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KEY: &str = "c:pub:7";

    /// A value that is sealed, whatever is in it.
    fn sealed(digest: &Digest, length: u32, packed: &[u8]) -> String {
        let bytes = parts::encode(|e| {
            e.array(4)?.u8(FORM)?.bytes(digest)?.u32(length)?.bytes(packed)?;
            Ok(())
        });
        seal(DOCUMENT, KEY, &bytes)
    }

    #[test]
    fn a_document_comes_back_and_another_ones_value_does_not() {
        let text = br#"{"ad":[]}"#.repeat(1_000);
        let value = encode_document(KEY, &[7; 16], &text).unwrap();
        assert!(value.len() < 200 && !value.contains('\n'));
        assert_eq!(decode_document(KEY, &[7; 16], value.as_bytes()).unwrap(), text);
        assert_eq!(decode_document(KEY, &[8; 16], value.as_bytes()), Err(WireError::Range));
        assert_eq!(decode_document("c:pub:8", &[7; 16], value.as_bytes()), Err(WireError::Checksum));
        assert_eq!(encode_document(KEY, &[7; 16], &vec![b' '; limits::CATALOGUE_BYTES + 1]), Err(WireError::TooLong));
    }

    #[test]
    fn a_steering_has_these_bytes_and_comes_back() {
        let published = Version { restore: 1, counter: 2 };
        let shares = [(3, vec![4, 5])].into();
        let given_out = [24, 25].into();
        let steering = Steering { at: 6, shares, paces: [(7, Pace { from: 8, to: 9 })].into(), given_out };
        let value = encode_steering(KEY, published, &steering).unwrap();
        let bytes = [0x86, 1, 0x82, 1, 2, 6, 0x81, 0x83, 3, 4, 5, 0x83, 7, 8, 9, 0x82, 0x18, 24, 0x18, 25];
        assert_eq!(value, seal(STEERING, KEY, &bytes));
        assert_eq!(decode_steering(KEY, value.as_bytes()).unwrap(), (published, steering.clone()));
        // Of an earlier release.
        let earlier = seal(STEERING, KEY, &[&[0x85], &bytes[1..15]].concat());
        let known = Steering { given_out: BTreeSet::new(), ..steering };
        assert_eq!(decode_steering(KEY, earlier.as_bytes()).unwrap(), (published, known));
        assert_eq!(decode_steering("c:pub:8", value.as_bytes()), Err(WireError::Checksum));
        // All that there may be has room.
        let shares = |n| (u32::MAX - n, vec![10_000; limits::EXPERIMENT_ARMS]);
        let pace = |n| (u32::MAX - n, Pace { from: 999_999, to: 1_000_000 });
        let steering = Steering {
            at: u64::MAX,
            shares: (0..u32::try_from(limits::EXPERIMENTS).unwrap()).map(shares).collect(),
            paces: (0..u32::try_from(limits::CATALOGUE_ROWS).unwrap()).map(pace).collect(),
            given_out: (0..u32::try_from(limits::CATALOGUE_ROWS).unwrap()).map(|n| u32::MAX - n).collect(),
        };
        let value = encode_steering(KEY, published, &steering).unwrap();
        assert_eq!(decode_steering(KEY, value.as_bytes()).unwrap(), (published, steering));
    }

    #[test]
    fn what_unpacks_to_more_or_less_than_it_says_is_refused() {
        let text = vec![b'x'; 1_000];
        let packed = lz4_flex::block::compress(&text);
        for (length, expected) in [
            (999, WireError::Malformed),
            (1_001, WireError::Malformed),
            (u32::MAX, WireError::Range),
            (0, WireError::Malformed),
        ] {
            let value = sealed(&[7; 16], length, &packed);
            assert_eq!(decode_document(KEY, &[7; 16], value.as_bytes()), Err(expected), "{length}");
        }
        let cut = sealed(&[7; 16], 1_000, packed.get(..5).unwrap());
        assert_eq!(decode_document(KEY, &[7; 16], cut.as_bytes()), Err(WireError::Malformed));
    }
}
