//! Values of the edge KV, as text because the platform's bulk read returns text: a tag of a letter and a digit, then
//! base64 of a CRC-32 and the CBOR. The CRC includes the key, so that a value under another key is refused like a
//! damaged one.

use std::collections::BTreeMap;

use base64_simd::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::{self, SixteenBytes, VersionForm};
use crate::base::ids::{Epoch, SnapshotVersion, VisitorId};
use crate::base::limits;
use crate::base::packed::{self, PackedReader, SharedBytes};
use crate::facts::attributes::{self, ValueKind};
use crate::profiles::activity::BestSendTime;
use crate::profiles::membership::{Membership, VisitorCut};
use crate::profiles::profile::SubProfile;
use crate::profiles::view::{Snapshot, StoredValue};

const FORM: u8 = 1;
const SNAPSHOT: &str = "s1";
const TOMBSTONE: &str = "t1";
const LOOKUP: &str = "l1";
const NAMES: &str = "n1";
/// Profiles and cuts are one column each.
const STORED: FormBounds = FormBounds { bytes: limits::SNAPSHOT_BYTES, items: 128, levels: 8 };
/// At most [`limits::LOOKUP_VISITORS`] visitors.
const VISITORS: FormBounds = FormBounds { bytes: limits::SNAPSHOT_BYTES, items: 64, levels: 8 };
/// The page is one item.
const PAGE: FormBounds = FormBounds { bytes: limits::KV_VALUE_CHARS, items: 32, levels: 8 };

/// [`Snapshot`]. Every decision reads one, with up to [`limits::SNAPSHOT_VISITORS`] visitors, so the profile of each is
/// read in place.
#[derive(Serialize, Deserialize)]
struct SnapshotForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "v")]
    version: VersionForm,
    #[serde(rename = "i")]
    visitor: SixteenBytes,
    #[serde(rename = "u", default, skip_serializing_if = "Vec::is_empty")]
    unique: Vec<SixteenBytes>,
    #[serde(rename = "m")]
    membership: MembershipForm,
    /// Column, by visitor: its id, its version, its packed profile.
    #[serde(rename = "p")]
    profiles: ByteBuf,
    /// In the form of [`BestSendTime::pack`].
    #[serde(rename = "b", skip_serializing_if = "Option::is_none")]
    best: Option<u16>,
}

/// [`Membership`]. The admitted visitors are not written, because they are the visitors with profiles.
#[derive(Serialize, Deserialize)]
struct MembershipForm {
    #[serde(rename = "e")]
    epoch: u64,
    #[serde(rename = "d")]
    devices: u32,
    /// Column, by visitor: its id, the time of its cut, and whether it is gone.
    #[serde(rename = "c", default, skip_serializing_if = "<[u8]>::is_empty")]
    cuts: ByteBuf,
    /// Column: the ids of admitted visitors that are not sure.
    #[serde(rename = "w", default, skip_serializing_if = "<[u8]>::is_empty")]
    unsure: ByteBuf,
}

/// The visitors last seen with an alternate id, newest first.
#[derive(Serialize, Deserialize)]
struct LookupForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "v", default)]
    visitors: Vec<SixteenBytes>,
}

/// A page of attribute names.
#[derive(Serialize, Deserialize)]
struct NamesForm {
    #[serde(rename = "f")]
    form: u8,
    /// Column in the form of [`attributes::encode_page`]: up to [`limits::ATTRIBUTE_PAGE`] names, each with its kind.
    #[serde(rename = "n")]
    page: ByteBuf,
}

/// Encodes the value of a visitor's key.
///
/// # Errors
/// [`WireError::TooLong`] over [`limits::SNAPSHOT_BYTES`]; the caller must leave visitors out. [`WireError::Range`] if
/// a list is over its bound or the visitor itself is missing, because every reader would refuse it.
pub fn encode_stored(key: &str, stored: &StoredValue) -> Result<String, WireError> {
    let StoredValue::Snapshot(snapshot) = stored else { return Ok(seal_value(TOMBSTONE, key, &[])) };
    if !is_whole(snapshot) {
        return Err(WireError::Range);
    }
    let bytes = cbor::encode(&SnapshotForm::from(snapshot.as_ref()));
    if bytes.len() > limits::SNAPSHOT_BYTES { Err(WireError::TooLong) } else { Ok(seal_value(SNAPSHOT, key, &bytes)) }
}

fn is_whole(snapshot: &Snapshot) -> bool {
    let Snapshot { visitor, unique, membership, profiles, .. } = snapshot;
    profiles.contains_key(visitor)
        && profiles.keys().eq(&membership.admits)
        && profiles.len() <= limits::SNAPSHOT_VISITORS
        && membership.unsure.is_subset(&membership.admits)
        && membership.cuts.len() <= limits::CUTS
        && unique.len() <= limits::KEYS_A_PURPOSE
}

/// Decodes the value of a visitor's key.
///
/// # Errors
/// [`WireError`] if the value is damaged, unknown, or of another key.
pub fn decode_stored(key: &str, visitor: VisitorId, value: &[u8]) -> Result<StoredValue, WireError> {
    open_stored(key, value)?.read(visitor)
}

/// A visitor's value after the check of its checksum and key. It can be stored and read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenedValue {
    /// The CBOR of a snapshot.
    Snapshot(SharedBytes),
    /// A tombstone.
    Tombstone,
}

/// Opens the value of a visitor's key.
///
/// # Errors
/// See [`decode_stored`].
pub fn open_stored(key: &str, value: &[u8]) -> Result<OpenedValue, WireError> {
    if value.starts_with(TOMBSTONE.as_bytes()) {
        return open(TOMBSTONE, key, value).map(|_| OpenedValue::Tombstone);
    }
    open(SNAPSHOT, key, value).map(OpenedValue::Snapshot)
}

impl OpenedValue {
    /// Decodes the value.
    ///
    /// # Errors
    /// See [`decode_stored`].
    pub fn read(&self, visitor: VisitorId) -> Result<StoredValue, WireError> {
        let Self::Snapshot(bytes) = self else { return Ok(StoredValue::Tombstone) };
        let snapshot = Snapshot::try_from(cbor::decode::<SnapshotForm>(bytes, FORM, STORED)?)?;
        // The conversion has checked the other conditions of a complete snapshot.
        let whole = snapshot.visitor == visitor && snapshot.profiles.contains_key(&visitor);
        if whole { Ok(StoredValue::Snapshot(Box::new(snapshot))) } else { Err(WireError::Range) }
    }
}

/// Encodes the value of an alternate id's key: the visitors last seen with it, newest first.
///
/// # Errors
/// [`WireError::Range`] for more than [`limits::LOOKUP_VISITORS`].
pub fn encode_lookup(key: &str, visitors: &[VisitorId]) -> Result<String, WireError> {
    if visitors.len() > limits::LOOKUP_VISITORS {
        return Err(WireError::Range);
    }
    let form = LookupForm { form: FORM, visitors: parts::put_visitors(visitors) };
    Ok(seal_value(LOOKUP, key, &cbor::encode(&form)))
}

/// Decodes the value of an alternate id's key.
///
/// # Errors
/// [`WireError`] for an invalid value.
pub fn decode_lookup(key: &str, value: &[u8]) -> Result<Vec<VisitorId>, WireError> {
    let form: LookupForm = cbor::decode(&open(LOOKUP, key, value)?, FORM, VISITORS)?;
    parts::read_visitors(form.visitors, limits::LOOKUP_VISITORS)
}

/// Encodes the value of a page's key: attribute names with their kinds.
///
/// # Errors
/// [`WireError::Range`] for more than [`limits::ATTRIBUTE_PAGE`] names, an invalid name or a repeated name.
pub fn encode_names(key: &str, page: &[(String, ValueKind)]) -> Result<String, WireError> {
    let page = attributes::encode_page(page);
    if attributes::decode_page(&page).is_none() {
        return Err(WireError::Range);
    }
    Ok(seal_value(NAMES, key, &cbor::encode(&NamesForm { form: FORM, page: ByteBuf::from(page) })))
}

/// Decodes the value of a page's key.
///
/// # Errors
/// [`WireError`] for an invalid value.
pub fn decode_names(key: &str, value: &[u8]) -> Result<Vec<(String, ValueKind)>, WireError> {
    let form: NamesForm = cbor::decode(&open(NAMES, key, value)?, FORM, PAGE)?;
    attributes::decode_page(&form.page).ok_or(WireError::Malformed)
}

impl From<&Snapshot> for SnapshotForm {
    fn from(snapshot: &Snapshot) -> Self {
        let mut profiles = Vec::new();
        for (visitor, sub) in &snapshot.profiles {
            profiles.extend_from_slice(visitor.as_bytes());
            packed::put(&mut profiles, u64::from(sub.version().restore));
            packed::put(&mut profiles, sub.version().counter);
            packed::put_row(&mut profiles, sub.packed());
        }
        Self {
            form: FORM,
            version: snapshot.version.into(),
            visitor: parts::put_visitor(snapshot.visitor),
            unique: parts::put_hashes(&snapshot.unique),
            membership: MembershipForm::from(&snapshot.membership),
            profiles: ByteBuf::from(profiles),
            best: snapshot.best.map(BestSendTime::pack),
        }
    }
}

impl TryFrom<SnapshotForm> for Snapshot {
    type Error = WireError;

    fn try_from(form: SnapshotForm) -> Result<Self, WireError> {
        let mut membership = Membership::try_from(form.membership)?;
        let column = SharedBytes::from(form.profiles.into_vec());
        let profiles = read_rows(&column, limits::SNAPSHOT_VISITORS, |rows| {
            let visitor = rows.visitor()?;
            let version = SnapshotVersion { restore: rows.number()?.try_into().ok()?, counter: rows.number()? };
            Some((visitor, SubProfile::from_packed(version, column.part(rows.row()?))))
        })?;
        membership.admits = profiles.keys().copied().collect();
        if !membership.unsure.is_subset(&membership.admits) {
            return Err(WireError::Range);
        }
        Ok(Self {
            version: form.version.into(),
            visitor: parts::read_visitor(form.visitor)?,
            unique: parts::read_hashes(form.unique, limits::KEYS_A_PURPOSE)?,
            membership,
            profiles,
            best: form.best.map(|packed| BestSendTime::read(packed).ok_or(WireError::Range)).transpose()?,
        })
    }
}

impl From<&Membership> for MembershipForm {
    fn from(membership: &Membership) -> Self {
        let mut cuts = Vec::new();
        for (visitor, cut) in &membership.cuts {
            cuts.extend_from_slice(visitor.as_bytes());
            packed::put(&mut cuts, cut.at);
            packed::put(&mut cuts, u64::from(cut.gone));
        }
        let unsure: Vec<u8> = membership.unsure.iter().flat_map(|visitor| *visitor.as_bytes()).collect();
        Self {
            epoch: membership.epoch.0,
            devices: membership.devices,
            cuts: ByteBuf::from(cuts),
            unsure: ByteBuf::from(unsure),
        }
    }
}

impl TryFrom<MembershipForm> for Membership {
    type Error = WireError;

    fn try_from(form: MembershipForm) -> Result<Self, WireError> {
        let cuts = read_rows(&form.cuts, limits::CUTS, |rows| {
            Some((rows.visitor()?, VisitorCut { at: rows.number()?, gone: rows.count(1)? == 1 }))
        })?;
        let unsure = read_rows(&form.unsure, limits::SNAPSHOT_VISITORS, |rows| Some((rows.visitor()?, ())))?;
        let unsure = unsure.into_keys().collect();
        Ok(Self { epoch: Epoch(form.epoch), devices: form.devices, unsure, cuts, ..Self::default() })
    }
}

/// Reads at most `most` packed rows, in ascending order of their visitors.
fn read_rows<T>(
    bytes: &[u8],
    most: usize,
    mut read: impl FnMut(&mut PackedReader<'_>) -> Option<(VisitorId, T)>,
) -> Result<BTreeMap<VisitorId, T>, WireError> {
    let mut left = PackedReader(bytes);
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

pub(super) fn seal_value(tag: &str, key: &str, bytes: &[u8]) -> String {
    let mut framed = value_checksum(tag, key, bytes).to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    let mut text = String::with_capacity(tag.len() + framed.len() / 3 * 4 + 4);
    text.push_str(tag);
    STANDARD_NO_PAD.encode_append(&framed, &mut text);
    text
}

fn open(tag: &str, key: &str, value: &[u8]) -> Result<SharedBytes, WireError> {
    open_within(limits::KV_VALUE_CHARS, tag, key, value)
}

/// Opens a value of at most `most` characters.
pub(super) fn open_within(most: usize, tag: &str, key: &str, value: &[u8]) -> Result<SharedBytes, WireError> {
    if value.len() > most {
        return Err(WireError::TooLong);
    }
    let text = value.strip_prefix(tag.as_bytes()).ok_or(WireError::UnknownForm)?;
    let framed = SharedBytes::from(STANDARD_NO_PAD.decode_to_vec(text).map_err(|_| WireError::Malformed)?);
    let (sum, bytes) = framed.split_first_chunk::<4>().ok_or(WireError::Malformed)?;
    if u32::from_be_bytes(*sum) != value_checksum(tag, key, bytes) {
        return Err(WireError::Checksum);
    }
    Ok(framed.part(bytes))
}

fn value_checksum(tag: &str, key: &str, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    [tag.as_bytes(), key.as_bytes(), &[0], bytes].into_iter().for_each(|part| sum.update(part));
    sum.finalize()
}
