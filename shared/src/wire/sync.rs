//! One call of `/v1/sync`: facts in, acknowledgements of KV writes in, KV writes out; KV keys to read back out, and what was
//! read in.

use serde::{Deserialize, Serialize};
use serde_bytes::{ByteArray, ByteBuf};

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::{self, VersionForm, is_zero};
use crate::base::ids::{Millis, SnapshotVersion};
use crate::base::limits;

const FORM: u8 = 1;
/// Batches and acknowledgements one item each, what was read back five.
const REQUEST: FormBounds = FormBounds {
    bytes: limits::SYNC_BYTES,
    items: limits::SYNC_FACTS + limits::SYNC_PUBLISH + 8 * limits::KV_KEYS + 64,
    levels: 8,
};
/// What was refused has nine items, a KV write fifteen, a key to read back five. Its origin is trusted: its values alone may
/// have some megabytes.
const RESPONSE: FormBounds = FormBounds {
    bytes: 2 * limits::SYNC_BYTES,
    items: 16 * (limits::SYNC_FACTS + limits::SYNC_PUBLISH) + 8 * limits::KV_KEYS + 64,
    levels: 8,
};

/// Why a batch as a whole is not taken now, and an edge keeps it: somebody may configure its tenant yet.
pub const UNKNOWN_TENANT: &str = "unknown_tenant";

/// Why an edge answers a request and does not count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterReason {
    /// The user agent declares a program.
    Bot,
    /// The browser fetches ahead of a visit that may not happen.
    Prefetch,
    /// A HEAD request: nobody sees its answer.
    Head,
}

impl FilterReason {
    /// All reasons, in the order of [`SyncRequest::filtered`].
    pub const ALL: [Self; 3] = [Self::Bot, Self::Prefetch, Self::Head];

    /// The reason's name in notes and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bot => "bot",
            Self::Prefetch => "prefetch",
            Self::Head => "head",
        }
    }
}

/// What the edge sends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncRequest {
    /// The edge's name, for the logs.
    pub edge: String,
    /// Names this call, for the logs.
    pub batch: [u8; 16],
    /// Batches of facts as [`super::facts`] encodes them, each one queue message.
    pub facts: Vec<Vec<u8>>,
    /// Outbox entries whose write was acknowledged by the KV.
    pub applied: Vec<u64>,
    /// Outbox entries wanted; 0 from every caller but the publish consumer.
    pub drain: u16,
    /// Facts this edge lost since its last sync (queue and origin both refused them, or the queue never answered).
    pub lost: u64,
    /// Queue messages that this edge gave up on since its last sync (they are in the dead-letter queue).
    pub dead: u64,
    /// Requests that this edge answered and did not count since its last sync, by reason as [`FilterReason::ALL`].
    pub filtered: [u64; FilterReason::ALL.len()],
    /// What the KV had of the keys that were to be read back.
    pub read: Vec<ReadResult>,
}

/// What a read of the KV gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadResult {
    /// Which key, by its number.
    pub entry: u64,
    /// SHA-256 of the value; `None`: there is none.
    pub sha256: Option<[u8; 32]>,
}

/// What the origin answers, once everything is durable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncResponse {
    /// Facts that were new.
    pub accepted: u64,
    /// Facts that were there already.
    pub duplicate: u64,
    /// Facts that were refused.
    pub rejected: Vec<RejectedFact>,
    /// KV writes to do, leased to this caller for a minute.
    pub publish: Vec<KvWrite>,
    /// Outbox entries that are due and not leased.
    pub pending: u64,
    /// The catalogue in force, if there is one.
    pub catalogue: Option<String>,
    /// KV keys to read back, in one bulk read.
    pub verify: Vec<VerifyRequest>,
}

/// A key to read back from the KV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyRequest {
    /// Its number, for the answer.
    pub entry: u64,
    /// The KV key.
    pub key: String,
}

/// A fact or batch that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedFact {
    /// Which of the request's `facts`.
    pub batch: u32,
    /// Which fact of that batch; `None`: the batch as a whole could not be read.
    pub index: Option<u32>,
    /// A stable name of the reason.
    pub code: String,
    /// The reason in words.
    pub message: String,
}

/// One write to the KV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvWrite {
    /// The outbox entry, to be acknowledged.
    pub entry: u64,
    /// The KV key.
    pub key: String,
    /// The version written.
    pub version: SnapshotVersion,
    /// The value; `None` deletes the key.
    pub value: Option<String>,
    /// When the key became due, in milliseconds since the epoch.
    pub due: Millis,
}

/// [`SyncRequest`].
#[derive(Serialize, Deserialize)]
struct SyncRequestForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "e")]
    edge: String,
    #[serde(rename = "b")]
    batch: ByteArray<16>,
    #[serde(rename = "q", default, skip_serializing_if = "Vec::is_empty")]
    facts: Vec<ByteBuf>,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    applied: Vec<u64>,
    #[serde(rename = "d", default, skip_serializing_if = "is_none_wanted")]
    drain: u16,
    #[serde(rename = "l", default, skip_serializing_if = "is_zero")]
    lost: u64,
    #[serde(rename = "x", default, skip_serializing_if = "is_zero")]
    dead: u64,
    #[serde(rename = "u", default, skip_serializing_if = "FilteredForm::is_empty")]
    filtered: FilteredForm,
    #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
    read: Vec<ReadForm>,
}

fn is_none_wanted(drain: &u16) -> bool {
    *drain == 0
}

/// [`SyncRequest::filtered`].
#[derive(Serialize, Deserialize, Default)]
struct FilteredForm {
    #[serde(rename = "b", default, skip_serializing_if = "is_zero")]
    bots: u64,
    #[serde(rename = "p", default, skip_serializing_if = "is_zero")]
    prefetches: u64,
    #[serde(rename = "h", default, skip_serializing_if = "is_zero")]
    heads: u64,
}

impl FilteredForm {
    fn is_empty(&self) -> bool {
        [self.bots, self.prefetches, self.heads].iter().all(is_zero)
    }
}

/// [`ReadResult`].
#[derive(Serialize, Deserialize)]
struct ReadForm {
    #[serde(rename = "e")]
    entry: u64,
    #[serde(rename = "h", skip_serializing_if = "Option::is_none")]
    sha256: Option<ByteArray<32>>,
}

/// [`SyncResponse`].
#[derive(Serialize, Deserialize)]
struct SyncResponseForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "a", default, skip_serializing_if = "is_zero")]
    accepted: u64,
    #[serde(rename = "d", default, skip_serializing_if = "is_zero")]
    duplicate: u64,
    #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
    rejected: Vec<RejectedForm>,
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    publish: Vec<PublishForm>,
    #[serde(rename = "n", default, skip_serializing_if = "is_zero")]
    pending: u64,
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    catalogue: Option<String>,
    #[serde(rename = "v", default, skip_serializing_if = "Vec::is_empty")]
    verify: Vec<VerifyForm>,
}

/// [`RejectedFact`].
#[derive(Serialize, Deserialize)]
struct RejectedForm {
    #[serde(rename = "b")]
    batch: u32,
    #[serde(rename = "i", skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    #[serde(rename = "c")]
    code: String,
    #[serde(rename = "m")]
    message: String,
}

/// [`KvWrite`].
#[derive(Serialize, Deserialize)]
struct PublishForm {
    #[serde(rename = "e")]
    entry: u64,
    #[serde(rename = "k")]
    key: String,
    #[serde(rename = "v")]
    version: VersionForm,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(rename = "d")]
    due: u64,
}

/// [`VerifyRequest`].
#[derive(Serialize, Deserialize)]
struct VerifyForm {
    #[serde(rename = "e")]
    entry: u64,
    #[serde(rename = "k")]
    key: String,
}

/// The request's bytes.
#[must_use]
pub fn encode_request(request: &SyncRequest) -> Vec<u8> {
    let SyncRequest { edge, batch, facts, applied, drain, lost, dead, filtered, read } = request;
    let [bots, prefetches, heads] = *filtered;
    cbor::encode(&SyncRequestForm {
        form: FORM,
        edge: edge.clone(),
        batch: ByteArray::new(*batch),
        facts: facts.iter().map(|batch| ByteBuf::from(batch.as_slice())).collect(),
        applied: applied.clone(),
        drain: *drain,
        lost: *lost,
        dead: *dead,
        filtered: FilteredForm { bots, prefetches, heads },
        read: read.iter().map(ReadForm::from).collect(),
    })
}

/// Reads a request.
///
/// # Errors
/// [`WireError`]; over [`limits::SYNC_BYTES`], [`limits::SYNC_FACTS`], [`limits::SYNC_PUBLISH`] or [`limits::KV_KEYS`] it
/// is refused.
pub fn decode_request(bytes: &[u8]) -> Result<SyncRequest, WireError> {
    cbor::decode::<SyncRequestForm>(bytes, FORM, REQUEST)?.try_into()
}

/// Reads a request that the log holds, of whatever length: what was acknowledged is read, also where the admin side said
/// more than an edge may.
///
/// # Errors
/// [`WireError`], as [`decode_request`].
pub fn decode_kept(bytes: &[u8]) -> Result<SyncRequest, WireError> {
    cbor::decode::<SyncRequestForm>(bytes, FORM, FormBounds { bytes: usize::MAX, ..REQUEST })?.try_into()
}

/// The answer's bytes.
#[must_use]
pub fn encode_response(response: &SyncResponse) -> Vec<u8> {
    let SyncResponse { accepted, duplicate, rejected, publish, pending, catalogue, verify } = response;
    cbor::encode(&SyncResponseForm {
        form: FORM,
        accepted: *accepted,
        duplicate: *duplicate,
        rejected: rejected.iter().map(RejectedForm::from).collect(),
        publish: publish.iter().map(PublishForm::from).collect(),
        pending: *pending,
        catalogue: catalogue.clone(),
        verify: verify.iter().map(VerifyForm::from).collect(),
    })
}

/// Reads an answer.
///
/// # Errors
/// [`WireError`].
pub fn decode_response(bytes: &[u8]) -> Result<SyncResponse, WireError> {
    cbor::decode::<SyncResponseForm>(bytes, FORM, RESPONSE)?.try_into()
}

impl TryFrom<SyncRequestForm> for SyncRequest {
    type Error = WireError;

    fn try_from(form: SyncRequestForm) -> Result<Self, WireError> {
        Ok(Self {
            edge: parts::read_text(form.edge, limits::NAME_BYTES)?,
            batch: form.batch.into_array(),
            facts: parts::read_list(form.facts, limits::SYNC_FACTS, |batch| Ok(batch.into_vec()))?,
            applied: parts::read_list(form.applied, limits::SYNC_PUBLISH, Ok)?,
            drain: form.drain,
            lost: form.lost,
            dead: form.dead,
            filtered: [form.filtered.bots, form.filtered.prefetches, form.filtered.heads],
            read: parts::read_list(form.read, limits::KV_KEYS, |read| Ok(read.into()))?,
        })
    }
}

impl TryFrom<SyncResponseForm> for SyncResponse {
    type Error = WireError;

    fn try_from(form: SyncResponseForm) -> Result<Self, WireError> {
        Ok(Self {
            accepted: form.accepted,
            duplicate: form.duplicate,
            rejected: parts::read_list(form.rejected, limits::SYNC_FACTS, |rejected| Ok(rejected.into()))?,
            publish: parts::read_list(form.publish, limits::SYNC_PUBLISH, |publish| Ok(publish.into()))?,
            pending: form.pending,
            catalogue: form.catalogue.map(|name| parts::read_text(name, limits::NAME_BYTES)).transpose()?,
            verify: parts::read_list(form.verify, limits::KV_KEYS, |verify| Ok(verify.into()))?,
        })
    }
}

impl From<&ReadResult> for ReadForm {
    fn from(ReadResult { entry, sha256 }: &ReadResult) -> Self {
        Self { entry: *entry, sha256: sha256.map(ByteArray::new) }
    }
}

impl From<ReadForm> for ReadResult {
    fn from(ReadForm { entry, sha256 }: ReadForm) -> Self {
        Self { entry, sha256: sha256.map(ByteArray::into_array) }
    }
}

impl From<&RejectedFact> for RejectedForm {
    fn from(RejectedFact { batch, index, code, message }: &RejectedFact) -> Self {
        Self { batch: *batch, index: *index, code: code.clone(), message: message.clone() }
    }
}

impl From<RejectedForm> for RejectedFact {
    fn from(RejectedForm { batch, index, code, message }: RejectedForm) -> Self {
        Self { batch, index, code, message }
    }
}

impl From<&KvWrite> for PublishForm {
    fn from(KvWrite { entry, key, version, value, due }: &KvWrite) -> Self {
        Self { entry: *entry, key: key.clone(), version: (*version).into(), value: value.clone(), due: *due }
    }
}

impl From<PublishForm> for KvWrite {
    fn from(PublishForm { entry, key, version, value, due }: PublishForm) -> Self {
        Self { entry, key, version: version.into(), value, due }
    }
}

impl From<&VerifyRequest> for VerifyForm {
    fn from(VerifyRequest { entry, key }: &VerifyRequest) -> Self {
        Self { entry: *entry, key: key.clone() }
    }
}

impl From<VerifyForm> for VerifyRequest {
    fn from(VerifyForm { entry, key }: VerifyForm) -> Self {
        Self { entry, key }
    }
}
