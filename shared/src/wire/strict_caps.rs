//! Forms of strict caps: the state of an object, its calls and its answers.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::{self, EntityForm, SixteenBytes, WindowForm};
use crate::ads::strict_caps::{
    Answer, Candidate, CapCall, CapClaim, CapEntry, CapObject, CapRequest, Entries, KnownLinks, SeenImpression,
    StrictCap, WantedPlacement,
};
use crate::base::ids::{Epoch, TenantId};
use crate::base::limits;
use crate::base::time::Minute;
use crate::facts::actions::{AdLevel, InsertionHash};

const FORM: u8 = 1;
/// Entries of every object on the way to the deciding one. Each object of a person forwards at most once.
const ENTRIES: usize = limits::STRICT_ENTRIES * limits::STRICT_MEMBERS;
/// Entries are most of it, with 18 items and at most 60 bytes each.
const OBJECT: FormBounds = FormBounds { bytes: 64 * ENTRIES, items: 20 * ENTRIES, levels: 12 };

/// [`CapObject`].
#[derive(Serialize, Deserialize)]
struct ObjectForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "l")]
    latest: u32,
    #[serde(rename = "e")]
    epoch: u64,
    #[serde(rename = "o", skip_serializing_if = "Option::is_none")]
    forward: Option<SixteenBytes>,
    #[serde(rename = "t", default, skip_serializing_if = "std::ops::Not::not")]
    has_entries: bool,
    #[serde(rename = "n", default, skip_serializing_if = "Vec::is_empty")]
    entries: Vec<EntryForm>,
    #[serde(rename = "u")]
    full_until: u32,
}

/// [`CapEntry`] with its insertion.
#[derive(Serialize, Deserialize)]
struct EntryForm {
    #[serde(rename = "i")]
    insertion: ByteArray<6>,
    #[serde(rename = "e")]
    entity: EntityForm,
    #[serde(rename = "m")]
    minute: u32,
    #[serde(rename = "c", default, skip_serializing_if = "std::ops::Not::not")]
    confirmed: bool,
    #[serde(rename = "k")]
    keep: u32,
}

/// [`CapCall`] with the tenant of the called object.
#[derive(Serialize, Deserialize)]
struct CapCallForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "t")]
    tenant: String,
    #[serde(rename = "o")]
    to: SixteenBytes,
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    links: Option<LinksForm>,
    #[serde(rename = "n", default, skip_serializing_if = "Vec::is_empty")]
    entries: Vec<EntryForm>,
    #[serde(rename = "a")]
    ask: AskForm,
}

/// [`KnownLinks`].
#[derive(Serialize, Deserialize)]
struct LinksForm {
    #[serde(rename = "e")]
    epoch: u64,
    #[serde(rename = "m", default)]
    members: Vec<SixteenBytes>,
}

/// [`CapRequest`].
#[derive(Serialize, Deserialize)]
enum AskForm {
    #[serde(rename = "l")]
    Claim(ClaimForm),
    #[serde(rename = "i")]
    Confirm(ByteArray<6>),
}

/// [`CapClaim`].
#[derive(Serialize, Deserialize)]
struct ClaimForm {
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<CandidateForm>,
    #[serde(rename = "w", default, skip_serializing_if = "Vec::is_empty")]
    wanted: Vec<WantedForm>,
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    seen: Vec<SeenRowsForm>,
}

/// [`Candidate`].
#[derive(Serialize, Deserialize)]
struct CandidateForm {
    #[serde(rename = "e")]
    entity: EntityForm,
    #[serde(rename = "c", default)]
    caps: Vec<StrictCapForm>,
}

/// [`StrictCap`].
#[derive(Serialize, Deserialize)]
struct StrictCapForm {
    /// The index in [`AdLevel::ALL`].
    #[serde(rename = "l")]
    level: u8,
    #[serde(rename = "m")]
    limit: u32,
    #[serde(rename = "w")]
    window: WindowForm,
}

/// [`WantedPlacement`].
#[derive(Serialize, Deserialize)]
struct WantedForm {
    #[serde(rename = "i")]
    insertion: ByteArray<6>,
    #[serde(rename = "c", default)]
    choices: Vec<u32>,
}

/// [`SeenImpression`].
#[derive(Serialize, Deserialize)]
struct SeenRowsForm {
    #[serde(rename = "i")]
    insertion: ByteArray<6>,
    #[serde(rename = "e")]
    entity: EntityForm,
    #[serde(rename = "m")]
    minute: u32,
}

/// [`Answer`].
#[derive(Serialize, Deserialize)]
struct CapAnswerForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    granted: Vec<EntryForm>,
}

/// Encodes the state of an object.
#[must_use]
pub fn encode_object(object: &CapObject) -> Vec<u8> {
    let CapObject { latest, epoch, forward, has_entries, entries, full_until } = object;
    cbor::encode(&ObjectForm {
        form: FORM,
        latest: latest.0,
        epoch: epoch.0,
        forward: forward.map(parts::put_visitor),
        has_entries: *has_entries,
        entries: put_entries(entries),
        full_until: full_until.0,
    })
}

/// Decodes the state of an object; no bytes are a new object. `None` if the bytes are malformed.
#[must_use]
pub fn decode_object(bytes: &[u8]) -> Option<CapObject> {
    if bytes.is_empty() {
        return Some(CapObject::default());
    }
    cbor::decode::<ObjectForm>(bytes, FORM, OBJECT).ok()?.try_into().ok()
}

/// Encodes a call with the tenant of the called object.
#[must_use]
pub fn encode_call(tenant: &TenantId, call: &CapCall) -> Vec<u8> {
    let links = call
        .links
        .as_ref()
        .map(|KnownLinks { epoch, members }| LinksForm { epoch: epoch.0, members: parts::put_visitors(members) });
    cbor::encode(&CapCallForm {
        form: FORM,
        tenant: tenant.to_string(),
        to: parts::put_visitor(call.to),
        links,
        entries: put_entries(&call.entries),
        ask: match &call.ask {
            CapRequest::Confirm(insertion) => AskForm::Confirm(ByteArray::new(insertion.0)),
            CapRequest::Claim(claim) => AskForm::Claim(claim.into()),
        },
    })
}

/// Decodes a call; `None` if it is malformed.
#[must_use]
pub fn decode_call(bytes: &[u8]) -> Option<(TenantId, CapCall)> {
    let form: CapCallForm = cbor::decode(bytes, FORM, OBJECT).ok()?;
    let tenant = form.tenant.parse().ok()?;
    let links = form.links.map(|links| {
        let members = parts::read_visitors(links.members, limits::STRICT_MEMBERS)?;
        Ok::<_, WireError>(KnownLinks { epoch: Epoch(links.epoch), members })
    });
    let ask = match form.ask {
        AskForm::Confirm(insertion) => CapRequest::Confirm(InsertionHash(insertion.into_array())),
        AskForm::Claim(claim) => CapRequest::Claim(claim.try_into().ok()?),
    };
    let to = parts::read_visitor(form.to).ok()?;
    Some((tenant, CapCall { to, links: links.transpose().ok()?, entries: entries(form.entries).ok()?, ask }))
}

/// Encodes an answer.
#[must_use]
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    cbor::encode(&CapAnswerForm { form: FORM, granted: put_entries(&answer.granted) })
}

/// Decodes an answer; `None` if it is malformed.
#[must_use]
pub fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let form: CapAnswerForm = cbor::decode(bytes, FORM, OBJECT).ok()?;
    Some(Answer { granted: entries(form.granted).ok()? })
}

impl TryFrom<ObjectForm> for CapObject {
    type Error = WireError;

    fn try_from(form: ObjectForm) -> Result<Self, WireError> {
        Ok(Self {
            latest: Minute(form.latest),
            epoch: Epoch(form.epoch),
            forward: form.forward.map(parts::read_visitor).transpose()?,
            has_entries: form.has_entries,
            entries: entries(form.entries)?,
            full_until: Minute(form.full_until),
        })
    }
}

fn put_entries(entries: &Entries) -> Vec<EntryForm> {
    let put = |(insertion, entry): (&InsertionHash, &CapEntry)| EntryForm {
        insertion: ByteArray::new(insertion.0),
        entity: entry.entity.into(),
        minute: entry.minute.0,
        confirmed: entry.confirmed,
        keep: entry.keep,
    };
    entries.iter().map(put).collect()
}

fn entries(forms: Vec<EntryForm>) -> Result<Entries, WireError> {
    let entry = |EntryForm { insertion, entity, minute, confirmed, keep }| {
        let entry = CapEntry { entity: EntityForm::into(entity), minute: Minute(minute), confirmed, keep };
        Ok((InsertionHash(ByteArray::into_array(insertion)), entry))
    };
    Ok(parts::read_list(forms, ENTRIES, entry)?.into_iter().collect())
}

impl From<&CapClaim> for ClaimForm {
    fn from(CapClaim { candidates, wanted, seen }: &CapClaim) -> Self {
        let candidates = candidates.iter().map(|Candidate { entity, caps }| CandidateForm {
            entity: (*entity).into(),
            caps: caps.iter().map(StrictCapForm::from).collect(),
        });
        let index = |index: &usize| u32::try_from(*index).unwrap_or(u32::MAX);
        let wanted = wanted.iter().map(|WantedPlacement { insertion, choices }| WantedForm {
            insertion: ByteArray::new(insertion.0),
            choices: choices.iter().map(index).collect(),
        });
        let seen = seen.iter().map(|SeenImpression { insertion, entity, minute }| SeenRowsForm {
            insertion: ByteArray::new(insertion.0),
            entity: (*entity).into(),
            minute: minute.0,
        });
        Self { candidates: candidates.collect(), wanted: wanted.collect(), seen: seen.collect() }
    }
}

impl TryFrom<ClaimForm> for CapClaim {
    type Error = WireError;

    fn try_from(form: ClaimForm) -> Result<Self, WireError> {
        let candidate = |CandidateForm { entity, caps }| {
            let caps = parts::read_list(caps, limits::CAPS * AdLevel::ALL.len(), StrictCap::try_from)?;
            Ok(Candidate { entity: EntityForm::into(entity), caps })
        };
        let wanted = |WantedForm { insertion, choices }| {
            let choices = parts::read_list(choices, limits::STRICT_CANDIDATES, |choice| {
                usize::try_from(choice).ok().filter(|at| *at <= limits::STRICT_CANDIDATES).ok_or(WireError::Range)
            })?;
            Ok(WantedPlacement { insertion: InsertionHash(ByteArray::into_array(insertion)), choices })
        };
        let seen = |SeenRowsForm { insertion, entity, minute }| {
            let insertion = InsertionHash(ByteArray::into_array(insertion));
            Ok(SeenImpression { insertion, entity: EntityForm::into(entity), minute: Minute(minute) })
        };
        Ok(Self {
            candidates: parts::read_list(form.candidates, limits::STRICT_CANDIDATES, candidate)?,
            wanted: parts::read_list(form.wanted, limits::PLACEMENTS, wanted)?,
            seen: parts::read_list(form.seen, limits::STRICT_SEEN, seen)?,
        })
    }
}

impl From<&StrictCap> for StrictCapForm {
    fn from(StrictCap { level, limit, window }: &StrictCap) -> Self {
        Self { level: *level as u8, limit: *limit, window: (*window).into() }
    }
}

impl TryFrom<StrictCapForm> for StrictCap {
    type Error = WireError;

    fn try_from(form: StrictCapForm) -> Result<Self, WireError> {
        let level = *AdLevel::ALL.get(usize::from(form.level)).ok_or(WireError::Range)?;
        Ok(Self { level, limit: form.limit, window: form.window.try_into()? })
    }
}
