//! Values of a tenant's catalogue in the edge KV: the document of each version (written once), the pointer to the
//! current one, the newest model, and the traffic allocation. All are text as in [`super::kv`]; the document is a
//! [`super::flat`], compressed by LZ4 (the block format).
//!
//! A reader refuses a document whose form it does not know, and continues with its current catalogue. Otherwise an ad
//! could be shown to people that an unknown restriction excludes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteArray, ByteBuf};

use super::cbor::{self, FormBounds};
use super::kv::{open_within, seal_value};
use super::parts::{self, VersionForm};
use super::{WireError, model};
use crate::ads::allocation::{CampaignPace, TrafficAllocation};
use crate::ads::model::Model;
use crate::base::ids::SnapshotVersion;
use crate::base::limits;

const FORM: u8 = 1;
const DOCUMENT: &str = "k1";
const POINTER: &str = "p1";
const MODEL: &str = "w1";
const ALLOCATION: &str = "s1";
/// Bounds of a pointer, and of the envelope of a model or a document: some numbers and one byte string. The text has
/// its own bound.
const ENVELOPE: FormBounds = FormBounds { bytes: limits::CATALOGUE_CHARS, items: 64, levels: 8 };
/// Per campaign, a pace has seven items and a sold-out code one.
const SHARES: FormBounds = FormBounds {
    bytes: limits::ALLOCATION_CHARS,
    items: 8 * limits::CATALOGUE_ROWS + limits::EXPERIMENTS * (limits::EXPERIMENT_ARMS + 8) + 64,
    levels: 8,
};

/// The first 16 bytes of the SHA-256 of a document's file form, as JSON.
pub type Digest = [u8; 16];

/// The pointer to the current version of a catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CataloguePointer {
    /// The version of the publication. It grows with each publication, even one of an older catalogue; a lower one is
    /// outdated.
    pub published: SnapshotVersion,
    /// The catalogue's version, from 1 on.
    pub version: u32,
    /// The digest of the document. A document of this version with another digest is refused.
    pub digest: Digest,
}

/// [`CataloguePointer`].
#[derive(Serialize, Deserialize)]
struct PointerForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "p")]
    published: VersionForm,
    #[serde(rename = "v")]
    version: u32,
    #[serde(rename = "d")]
    digest: ByteArray<16>,
}

/// A model in the form of [`model`], with the version of its publication.
#[derive(Serialize, Deserialize)]
struct PublishedModelForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "p")]
    published: VersionForm,
    #[serde(rename = "m")]
    model: ByteBuf,
}

/// [`TrafficAllocation`], with the version of its publication.
#[derive(Serialize, Deserialize)]
struct AllocationForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "p")]
    published: VersionForm,
    #[serde(rename = "a")]
    at: u64,
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    shares: Vec<SharesForm>,
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    paces: Vec<PaceForm>,
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    given_out: Vec<u32>,
    #[serde(rename = "m", default, skip_serializing_if = "Vec::is_empty")]
    materialised: Vec<u32>,
}

/// The shares of an experiment's arms.
#[derive(Serialize, Deserialize)]
struct SharesForm {
    #[serde(rename = "x")]
    experiment: u32,
    #[serde(rename = "s", default)]
    shares: Vec<u32>,
}

/// The [`CampaignPace`] of a campaign.
#[derive(Serialize, Deserialize)]
struct PaceForm {
    #[serde(rename = "c")]
    campaign: u32,
    #[serde(rename = "f")]
    from: u32,
    #[serde(rename = "t")]
    to: u32,
}

/// A document compressed by LZ4, its digest, and its uncompressed length in bytes.
#[derive(Serialize, Deserialize)]
struct DocumentForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "d")]
    digest: ByteArray<16>,
    #[serde(rename = "n")]
    length: u32,
    #[serde(rename = "b")]
    packed: ByteBuf,
}

/// Encodes the value of the pointer's key.
#[must_use]
pub fn encode_pointer(key: &str, pointer: &CataloguePointer) -> String {
    let CataloguePointer { published, version, digest } = *pointer;
    let form = PointerForm { form: FORM, published: published.into(), version, digest: ByteArray::new(digest) };
    seal_value(POINTER, key, &cbor::encode(&form))
}

/// Decodes the value of the pointer's key.
///
/// # Errors
/// [`WireError`] for an invalid value.
pub fn decode_pointer(key: &str, value: &[u8]) -> Result<CataloguePointer, WireError> {
    let bytes = open_within(limits::KV_VALUE_CHARS, POINTER, key, value)?;
    let form: PointerForm = cbor::decode(&bytes, FORM, ENVELOPE)?;
    Ok(CataloguePointer { published: form.published.into(), version: form.version, digest: form.digest.into_array() })
}

/// Encodes the value of the model's key: a model in its own form ([`super::model`]), published under this version.
#[must_use]
pub fn encode_model(key: &str, published: SnapshotVersion, model: &[u8]) -> String {
    let form = PublishedModelForm { form: FORM, published: published.into(), model: ByteBuf::from(model) };
    seal_value(MODEL, key, &cbor::encode(&form))
}

/// Decodes the value of the model's key. The caller checks whether the model may be used now ([`Model::used`]).
///
/// # Errors
/// [`WireError`] for an invalid value.
pub fn decode_model(key: &str, value: &[u8]) -> Result<(SnapshotVersion, Model), WireError> {
    let bytes = open_within(limits::MODEL_CHARS, MODEL, key, value)?;
    let form: PublishedModelForm = cbor::decode(&bytes, FORM, ENVELOPE)?;
    Ok((form.published.into(), model::decode_model(&form.model)?))
}

/// Encodes the value of the traffic allocation's key, published under this version.
///
/// # Errors
/// [`WireError::TooLong`] over [`limits::ALLOCATION_CHARS`].
pub fn encode_allocation(
    key: &str,
    published: SnapshotVersion,
    allocation: &TrafficAllocation,
) -> Result<String, WireError> {
    let TrafficAllocation { at, shares, paces, given_out, materialised } = allocation;
    let shares =
        shares.iter().map(|(experiment, shares)| SharesForm { experiment: *experiment, shares: shares.clone() });
    let paces = paces.iter().map(|(campaign, CampaignPace { from, to })| PaceForm {
        campaign: *campaign,
        from: *from,
        to: *to,
    });
    let bytes = cbor::encode(&AllocationForm {
        form: FORM,
        published: published.into(),
        at: *at,
        shares: shares.collect(),
        paces: paces.collect(),
        given_out: given_out.iter().copied().collect(),
        materialised: materialised.iter().copied().collect(),
    });
    let value = seal_value(ALLOCATION, key, &bytes);
    if value.len() > limits::ALLOCATION_CHARS { Err(WireError::TooLong) } else { Ok(value) }
}

/// Decodes the value of the traffic allocation's key.
///
/// # Errors
/// [`WireError`] for an invalid value.
pub fn decode_allocation(key: &str, value: &[u8]) -> Result<(SnapshotVersion, TrafficAllocation), WireError> {
    let bytes = open_within(limits::ALLOCATION_CHARS, ALLOCATION, key, value)?;
    let form: AllocationForm = cbor::decode(&bytes, FORM, SHARES)?;
    let shares = parts::read_list(form.shares, limits::EXPERIMENTS, |SharesForm { experiment, shares }| {
        Ok((experiment, parts::read_list(shares, limits::EXPERIMENT_ARMS, Ok)?))
    })?;
    let paces = parts::read_list(form.paces, limits::CATALOGUE_ROWS, |PaceForm { campaign, from, to }| {
        Ok((campaign, CampaignPace { from, to }))
    })?;
    let given_out = parts::read_list(form.given_out, limits::CATALOGUE_ROWS, Ok)?;
    let materialised = parts::read_list(form.materialised, limits::AUDIENCES, Ok)?;
    let allocation = TrafficAllocation {
        at: form.at,
        shares: shares.into_iter().collect(),
        paces: paces.into_iter().collect(),
        given_out: given_out.into_iter().collect(),
        materialised: materialised.into_iter().collect(),
    };
    Ok((form.published.into(), allocation))
}

/// Encodes the value of a version's key: the document with its digest.
///
/// # Errors
/// [`WireError::TooLong`] over [`limits::CATALOGUE_BYTES`] or [`limits::CATALOGUE_CHARS`] of text.
pub fn encode_document(key: &str, digest: &Digest, document: &[u8]) -> Result<String, WireError> {
    let length = u32::try_from(document.len()).map_err(|_| WireError::TooLong)?;
    if document.len() > limits::CATALOGUE_BYTES {
        return Err(WireError::TooLong);
    }
    let packed = lz4_flex::block::compress(document);
    let form = DocumentForm { form: FORM, digest: ByteArray::new(*digest), length, packed: ByteBuf::from(packed) };
    let value = seal_value(DOCUMENT, key, &cbor::encode(&form));
    if value.len() > limits::CATALOGUE_CHARS { Err(WireError::TooLong) } else { Ok(value) }
}

/// Decodes the value of a version's key: the document with this digest.
///
/// # Errors
/// [`WireError::Range`] for a document with another digest or longer than [`limits::CATALOGUE_BYTES`]; neither is
/// decompressed. Otherwise [`WireError`] for an invalid value.
pub fn decode_document(key: &str, digest: &Digest, value: &[u8]) -> Result<Bytes, WireError> {
    let bytes = open_within(limits::CATALOGUE_CHARS, DOCUMENT, key, value)?;
    let form: DocumentForm = cbor::decode(&bytes, FORM, ENVELOPE)?;
    let length = usize::try_from(form.length).map_err(|_| WireError::Range)?;
    if *form.digest != *digest || length > limits::CATALOGUE_BYTES {
        return Err(WireError::Range);
    }
    let document = lz4_flex::block::decompress(&form.packed, length).map_err(|_| WireError::Malformed)?;
    if document.len() == length { Ok(document.into()) } else { Err(WireError::Malformed) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const KEY: &str = "c:pub:7";

    /// A sealed value with any content.
    fn sealed(digest: &Digest, length: u32, packed: &[u8]) -> String {
        let (digest, packed) = (ByteArray::new(*digest), ByteBuf::from(packed));
        seal_value(DOCUMENT, KEY, &cbor::encode(&DocumentForm { form: FORM, digest, length, packed }))
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
    fn an_allocation_has_these_bytes_and_comes_back() {
        let published = SnapshotVersion { restore: 1, counter: 2 };
        let shares = [(3, vec![4, 5])].into();
        let given_out = [24, 25].into();
        let paces = [(7, CampaignPace { from: 8, to: 9 })].into();
        let allocation = TrafficAllocation { at: 6, shares, paces, given_out, materialised: [10].into() };
        let value = encode_allocation(KEY, published, &allocation).unwrap();
        let bytes = b"\xa7\x61f\x01\x61p\xa2\x61r\x01\x61c\x02\x61a\x06\x61s\x81\xa2\x61x\x03\x61s\x82\x04\x05\x61c\x81\xa3\x61c\x07\x61f\x08\x61t\x09\x61g\x82\x18\x18\x18\x19\x61m\x81\x0a";
        assert_eq!(value, seal_value(ALLOCATION, KEY, bytes));
        assert_eq!(decode_allocation(KEY, value.as_bytes()).unwrap(), (published, allocation));
        assert_eq!(decode_allocation("c:pub:8", value.as_bytes()), Err(WireError::Checksum));
        // The largest possible value fits.
        let shares = |n| (u32::MAX - n, vec![10_000; limits::EXPERIMENT_ARMS]);
        let pace = |n| (u32::MAX - n, CampaignPace { from: 999_999, to: 1_000_000 });
        let allocation = TrafficAllocation {
            at: u64::MAX,
            shares: (0..u32::try_from(limits::EXPERIMENTS).unwrap()).map(shares).collect(),
            paces: (0..u32::try_from(limits::CATALOGUE_ROWS).unwrap()).map(pace).collect(),
            given_out: (0..u32::try_from(limits::CATALOGUE_ROWS).unwrap()).map(|n| u32::MAX - n).collect(),
            materialised: (0..u32::try_from(limits::AUDIENCES).unwrap()).map(|n| u32::MAX - n).collect(),
        };
        let value = encode_allocation(KEY, published, &allocation).unwrap();
        assert_eq!(decode_allocation(KEY, value.as_bytes()).unwrap(), (published, allocation));
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
