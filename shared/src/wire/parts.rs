//! What all forms share: errors, bounded arrays, ids.

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error as DecodeError};
use minicbor::encode::Error as EncodeError;
use std::convert::Infallible;

use crate::ids::{AltHash, FactId, Version, VisitorId};
use crate::packed::Packed;

/// The encoder all forms use: into a vector, which cannot fail.
pub(super) type Encoder<'a> = minicbor::Encoder<&'a mut Vec<u8>>;
/// What writing gives.
pub(super) type Written = Result<(), EncodeError<Infallible>>;

/// Why bytes are not of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// More bytes than the form may have.
    #[error("too long")]
    TooLong,
    /// Not the CBOR that the form asks for.
    #[error("not of the form")]
    Malformed,
    /// A form that this release does not read.
    #[error("a form that this release does not know")]
    UnknownForm,
    /// The checksum does not fit: the value was cut, changed, or is another key's.
    #[error("the checksum does not fit")]
    Checksum,
    /// A value out of its range, or a list over its bound.
    #[error("a value out of its range")]
    Range,
}

impl WireError {
    /// A stable name for metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::UnknownForm => "unknown_form",
            Self::Checksum => "checksum",
            Self::Range => "range",
        }
    }
}

impl From<DecodeError> for WireError {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

/// Writes into a fresh vector.
pub(super) fn encode(write: impl FnOnce(&mut Encoder<'_>) -> Written) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    let written = write(&mut minicbor::Encoder::new(&mut bytes));
    // Writing into a vector cannot fail: the error type is uninhabited but for a message we never make.
    debug_assert!(written.is_ok());
    bytes
}

/// A list's length, refused over its bound before anything is allocated for it.
pub(super) fn list(d: &mut Decoder<'_>, most: usize) -> Result<usize, WireError> {
    let length = d.array()?.ok_or(WireError::Malformed)?;
    let length = usize::try_from(length).map_err(|_| WireError::Range)?;
    if length > most { Err(WireError::Range) } else { Ok(length) }
}

/// Reads a record: an array of at least `fields`; what a newer release added behind them is passed over.
pub(super) fn record<'b, T>(
    d: &mut Decoder<'b>,
    fields: usize,
    read: impl FnOnce(&mut Decoder<'b>) -> Result<T, WireError>,
) -> Result<T, WireError> {
    let length = list(d, 64)?;
    if length < fields {
        return Err(WireError::Malformed);
    }
    let value = read(d)?;
    for _ in fields..length {
        d.skip()?;
    }
    Ok(value)
}

/// How many fields a record has, the number of its form among them; 0 when it is none.
pub(super) fn fields(bytes: &[u8]) -> u64 {
    Decoder::new(bytes).array().ok().flatten().unwrap_or_default()
}

/// Reads a record whose first field is the number of its form.
pub(super) fn form<'b, T>(
    bytes: &'b [u8],
    number: u8,
    fields: usize,
    read: impl FnOnce(&mut Decoder<'b>) -> Result<T, WireError>,
) -> Result<T, WireError> {
    let mut d = Decoder::new(bytes);
    let value = record(&mut d, fields + 1, |d| {
        if d.u8()? != number {
            return Err(WireError::UnknownForm);
        }
        read(d)
    })?;
    if d.position() == bytes.len() { Ok(value) } else { Err(WireError::Malformed) }
}

/// A list of at most `most` values.
pub(super) fn values<'b, T>(
    d: &mut Decoder<'b>,
    most: usize,
    mut read: impl FnMut(&mut Decoder<'b>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    (0..list(d, most)?).map(|_| read(d)).collect()
}

/// A value or null.
pub(super) fn option<'b, T>(
    d: &mut Decoder<'b>,
    read: impl FnOnce(&mut Decoder<'b>) -> Result<T, WireError>,
) -> Result<Option<T>, WireError> {
    if d.datatype()? == Type::Null {
        d.null()?;
        return Ok(None);
    }
    read(d).map(Some)
}

pub(super) fn sixteen(d: &mut Decoder<'_>) -> Result<[u8; 16], WireError> {
    d.bytes()?.try_into().map_err(|_| WireError::Range)
}

pub(super) fn visitor(d: &mut Decoder<'_>) -> Result<VisitorId, WireError> {
    VisitorId::from_bytes(sixteen(d)?).map_err(|_| WireError::Range)
}

pub(super) fn alt_hash(d: &mut Decoder<'_>) -> Result<AltHash, WireError> {
    sixteen(d).map(AltHash)
}

pub(super) fn fact_id(d: &mut Decoder<'_>) -> Result<FactId, WireError> {
    sixteen(d).map(FactId::from_bytes)
}

pub(super) fn version(d: &mut Decoder<'_>) -> Result<Version, WireError> {
    record(d, 2, |d| Ok(Version { restore: d.u32()?, counter: d.u64()? }))
}

pub(super) fn put_version(e: &mut Encoder<'_>, version: Version) -> Written {
    e.array(2)?.u32(version.restore)?.u64(version.counter)?;
    Ok(())
}

/// A packed number.
pub(super) fn number(from: &mut Packed<'_>) -> Result<u64, WireError> {
    from.number().ok_or(WireError::Malformed)
}

/// A packed number of 32 bits.
pub(super) fn small(from: &mut Packed<'_>) -> Result<u32, WireError> {
    u32::try_from(number(from)?).map_err(|_| WireError::Range)
}

/// A bounded text.
pub(super) fn text<'b>(d: &mut Decoder<'b>, most: usize) -> Result<&'b str, WireError> {
    let text = d.str()?;
    if text.len() > most { Err(WireError::TooLong) } else { Ok(text) }
}
