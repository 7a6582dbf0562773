//! One call of `/v1/sync`. The edge sends facts, acknowledgements of KV writes, and results of reads. The origin
//! answers with KV writes and with KV keys to read back.

use serde::{Deserialize, Serialize};
use serde_bytes::{ByteArray, ByteBuf};

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::{self, VersionForm, is_zero};
use crate::base::ids::{Millis, SnapshotVersion};
use crate::base::limits;

const FORM: u8 = 1;
/// A batch or an acknowledgement is one item, a result of a read five.
const REQUEST: FormBounds = FormBounds {
    bytes: limits::SYNC_BYTES,
    items: limits::SYNC_FACTS + limits::SYNC_PUBLISH + 8 * limits::KV_KEYS + 64,
    levels: 8,
};
/// A refusal has nine items, a KV write fifteen, a key to read back five. The origin is trusted, and the values alone
/// may have several megabytes.
const RESPONSE: FormBounds = FormBounds {
    bytes: 2 * limits::SYNC_BYTES,
    items: 16 * (limits::SYNC_FACTS + limits::SYNC_PUBLISH) + 8 * limits::KV_KEYS + 64,
    levels: 8,
};

/// The code of a batch that is refused for now. The edge retries it, because its tenant may still be configured.
pub const UNKNOWN_TENANT: &str = "unknown_tenant";

/// The reason why an edge answers a request without counting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterReason {
    /// The user agent declares itself a program.
    Bot,
    /// The browser prefetches a page that may never be visited.
    Prefetch,
    /// A HEAD request, whose answer is not displayed.
    Head,
}

impl FilterReason {
    /// All reasons, in the order of [`SyncRequest::filtered`].
    pub const ALL: [Self; 3] = [Self::Bot, Self::Prefetch, Self::Head];

    /// The reason's permanent name in notes and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bot => "bot",
            Self::Prefetch => "prefetch",
            Self::Head => "head",
        }
    }
}

/// The request of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncRequest {
    /// The edge's name, for logs.
    pub edge: String,
    /// The id of this call, for logs.
    pub batch: [u8; 16],
    /// Batches of facts, each one queue message encoded by [`super::facts`].
    pub facts: Vec<Vec<u8>>,
    /// Outbox entries whose writes the KV acknowledged.
    pub applied: Vec<u64>,
    /// Number of outbox entries wanted; 0 from all callers except the publish consumer.
    pub drain: u16,
    /// Number of facts lost since the edge's last sync: queue and origin both refused them, or the queue never
    /// answered.
    pub lost: u64,
    /// Number of queue messages given up since the edge's last sync; they are in the dead-letter queue.
    pub dead: u64,
    /// Number of requests answered but not counted since the edge's last sync, by reason in the order of
    /// [`FilterReason::ALL`].
    pub filtered: [u64; FilterReason::ALL.len()],
    /// Results of the reads that the origin asked for.
    pub read: Vec<ReadResult>,
}

/// The result of reading back one KV key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadResult {
    /// The number of the key in [`VerifyRequest::entry`].
    pub entry: u64,
    /// SHA-256 of the value; `None` if there is no value.
    pub sha256: Option<[u8; 32]>,
}

/// The answer of the origin, sent once all data is durable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncResponse {
    /// Number of new facts.
    pub accepted: u64,
    /// Number of facts that were counted before.
    pub duplicate: u64,
    /// Refused facts.
    pub rejected: Vec<RejectedFact>,
    /// KV writes, leased to this caller for one minute.
    pub publish: Vec<KvWrite>,
    /// Number of outbox entries that are due and not leased.
    pub pending: u64,
    /// The current catalogue, if there is one.
    pub catalogue: Option<String>,
    /// KV keys to read back in one bulk read.
    pub verify: Vec<VerifyRequest>,
}

/// A KV key to read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyRequest {
    /// Its number, which the result repeats.
    pub entry: u64,
    /// The KV key.
    pub key: String,
}

/// A refused fact or batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedFact {
    /// The index of its batch in the request's `facts`.
    pub batch: u32,
    /// The index of the fact in that batch; `None` if the batch as a whole is refused.
    pub index: Option<u32>,
    /// The permanent name of the reason.
    pub code: String,
    /// The reason as a text.
    pub message: String,
}

/// One write to the KV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvWrite {
    /// The outbox entry to acknowledge.
    pub entry: u64,
    /// The KV key.
    pub key: String,
    /// The version of the value.
    pub version: SnapshotVersion,
    /// The value; `None` deletes the key.
    pub value: Option<String>,
    /// Time at which the key became due, in milliseconds since the Unix epoch.
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

/// Encodes a request.
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

/// Decodes a request.
///
/// # Errors
/// [`WireError`] for an invalid request, or one over [`limits::SYNC_BYTES`], [`limits::SYNC_FACTS`],
/// [`limits::SYNC_PUBLISH`] or [`limits::KV_KEYS`].
pub fn decode_request(bytes: &[u8]) -> Result<SyncRequest, WireError> {
    cbor::decode::<SyncRequestForm>(bytes, FORM, REQUEST)?.try_into()
}

/// Decodes a request from the log, of any length: an acknowledged request must be readable, and one of the admin API
/// may be longer than an edge's.
///
/// # Errors
/// See [`decode_request`], except for [`limits::SYNC_BYTES`].
pub fn decode_stored(bytes: &[u8]) -> Result<SyncRequest, WireError> {
    cbor::decode::<SyncRequestForm>(bytes, FORM, FormBounds { bytes: usize::MAX, ..REQUEST })?.try_into()
}

/// Encodes an answer.
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

/// Decodes an answer.
///
/// # Errors
/// [`WireError`] for an invalid answer.
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
