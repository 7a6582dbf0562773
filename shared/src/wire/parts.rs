//! Parts of several forms, and conversions of single values.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

use super::WireError;
use crate::base::ids::{AltHash, SnapshotVersion, VisitorId};
use crate::base::packed::PackedReader;
use crate::facts::actions::{AdEntity, TimeWindow, WindowUnit};

/// An id or a hash of 16 bytes.
pub(super) type SixteenBytes = ByteArray<16>;

/// A [`SnapshotVersion`].
#[derive(Serialize, Deserialize)]
pub(super) struct VersionForm {
    #[serde(rename = "r")]
    restore: u32,
    #[serde(rename = "c")]
    counter: u64,
}

impl From<SnapshotVersion> for VersionForm {
    fn from(SnapshotVersion { restore, counter }: SnapshotVersion) -> Self {
        Self { restore, counter }
    }
}

impl From<VersionForm> for SnapshotVersion {
    fn from(VersionForm { restore, counter }: VersionForm) -> Self {
        Self { restore, counter }
    }
}

/// An ad with its ad group, campaign and advertiser.
#[derive(Serialize, Deserialize)]
pub(super) struct EntityForm {
    #[serde(rename = "a")]
    ad: u32,
    #[serde(rename = "g")]
    ad_group: u32,
    #[serde(rename = "c")]
    campaign: u32,
    #[serde(rename = "v")]
    advertiser: u32,
}

impl From<AdEntity> for EntityForm {
    fn from(AdEntity { ad, ad_group, campaign, advertiser }: AdEntity) -> Self {
        Self { ad, ad_group, campaign, advertiser }
    }
}

impl From<EntityForm> for AdEntity {
    fn from(EntityForm { ad, ad_group, campaign, advertiser }: EntityForm) -> Self {
        Self { ad, ad_group, campaign, advertiser }
    }
}

/// A time window. Unknown keys are refused, because the window restricts the audience of an ad.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowForm {
    /// The index in [`WindowUnit::ALL`].
    #[serde(rename = "u")]
    unit: u8,
    #[serde(rename = "i")]
    interval: u32,
}

impl From<TimeWindow> for WindowForm {
    fn from(TimeWindow { interval, unit }: TimeWindow) -> Self {
        let index = WindowUnit::ALL.iter().position(|one| *one == unit).unwrap_or_default();
        Self { unit: u8::try_from(index).unwrap_or_default(), interval }
    }
}

impl TryFrom<WindowForm> for TimeWindow {
    type Error = WireError;

    fn try_from(WindowForm { unit, interval }: WindowForm) -> Result<Self, WireError> {
        Ok(Self { interval, unit: *WindowUnit::ALL.get(usize::from(unit)).ok_or(WireError::Range)? })
    }
}

pub(super) fn put_visitor(visitor: VisitorId) -> SixteenBytes {
    ByteArray::new(*visitor.as_bytes())
}

pub(super) fn read_visitor(bytes: SixteenBytes) -> Result<VisitorId, WireError> {
    VisitorId::from_bytes(bytes.into_array()).map_err(|_| WireError::Range)
}

pub(super) fn put_visitors(visitors: &[VisitorId]) -> Vec<SixteenBytes> {
    visitors.iter().map(|visitor| put_visitor(*visitor)).collect()
}

pub(super) fn read_visitors(bytes: Vec<SixteenBytes>, most: usize) -> Result<Vec<VisitorId>, WireError> {
    read_list(bytes, most, read_visitor)
}

pub(super) fn put_hashes(hashes: &[AltHash]) -> Vec<SixteenBytes> {
    hashes.iter().map(|hash| ByteArray::new(hash.0)).collect()
}

pub(super) fn hash(bytes: SixteenBytes) -> AltHash {
    AltHash(bytes.into_array())
}

pub(super) fn read_hashes(bytes: Vec<SixteenBytes>, most: usize) -> Result<Vec<AltHash>, WireError> {
    read_list(bytes, most, |bytes| Ok(hash(bytes)))
}

/// Converts a list of at most `most` entries.
pub(super) fn read_list<F, T>(
    forms: Vec<F>,
    most: usize,
    read: impl FnMut(F) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    if forms.len() > most { Err(WireError::Range) } else { forms.into_iter().map(read).collect() }
}

/// Checks that a text has at most `most` bytes.
pub(super) fn read_text(text: String, most: usize) -> Result<String, WireError> {
    if text.len() > most { Err(WireError::TooLong) } else { Ok(text) }
}

/// Whether a number is 0, which is not written.
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Reads a packed number.
pub(super) fn read_number(from: &mut PackedReader<'_>) -> Result<u64, WireError> {
    from.number().ok_or(WireError::Malformed)
}
