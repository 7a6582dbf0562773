//! One call of `/v1/sync`: facts in, acknowledgements of KV writes in, KV writes out; KV keys to read back out, and what was
//! read in.

use minicbor::decode::Decoder;

use super::parts::{self, Encoder, WireError, Written};
use crate::ids::{Millis, Version};
use crate::limits;

const FORM: u8 = 1;

/// Why a batch as a whole is not taken now, and an edge keeps it: somebody may configure its tenant yet.
pub const UNKNOWN_TENANT: &str = "unknown_tenant";

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
    /// What the KV had of the keys that were to be read back.
    pub read: Vec<Read>,
}

/// What a read of the KV gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
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
    pub rejected: Vec<Rejected>,
    /// KV writes to do, leased to this caller for a minute.
    pub publish: Vec<Publish>,
    /// Outbox entries that are due and not leased.
    pub pending: u64,
    /// The catalogue in force, if there is one.
    pub catalogue: Option<String>,
    /// KV keys to read back, in one bulk read.
    pub verify: Vec<Verify>,
}

/// A key to read back from the KV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verify {
    /// Its number, for the answer.
    pub entry: u64,
    /// The KV key.
    pub key: String,
}

/// A fact or batch that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
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
pub struct Publish {
    /// The outbox entry, to be acknowledged.
    pub entry: u64,
    /// The KV key.
    pub key: String,
    /// The version written.
    pub version: Version,
    /// The value; `None` deletes the key.
    pub value: Option<String>,
    /// When the key became due, in milliseconds since the epoch.
    pub due: Millis,
}

/// The request's bytes.
#[must_use]
pub fn encode_request(request: &SyncRequest) -> Vec<u8> {
    parts::encode(|e| {
        e.array(9)?.u8(FORM)?.str(&request.edge)?.bytes(&request.batch)?;
        e.array(request.facts.len() as u64)?;
        request.facts.iter().try_for_each(|f| e.bytes(f).map(drop))?;
        e.array(request.applied.len() as u64)?;
        request.applied.iter().try_for_each(|id| e.u64(*id).map(drop))?;
        e.u16(request.drain)?.u64(request.lost)?.u64(request.dead)?;
        e.array(request.read.len() as u64)?;
        request.read.iter().try_for_each(|read| put_read(e, read))
    })
}

/// Reads a request.
///
/// # Errors
/// [`WireError`]; over [`limits::SYNC_BYTES`], [`limits::SYNC_FACTS`], [`limits::SYNC_PUBLISH`] or [`limits::KV_KEYS`] it
/// is refused.
pub fn decode_request(bytes: &[u8]) -> Result<SyncRequest, WireError> {
    if bytes.len() > limits::SYNC_BYTES {
        return Err(WireError::TooLong);
    }
    decode_kept(bytes)
}

/// Reads a request that this side wrote itself, of whatever length: of one at the bound it may have written more bytes than
/// the edge did.
///
/// # Errors
/// [`WireError`], as [`decode_request`].
pub fn decode_kept(bytes: &[u8]) -> Result<SyncRequest, WireError> {
    // An edge of before reads nothing back.
    let reads = parts::fields(bytes) > 8;
    parts::form(bytes, FORM, if reads { 8 } else { 7 }, |d| {
        Ok(SyncRequest {
            edge: parts::text(d, limits::NAME_BYTES)?.to_owned(),
            batch: parts::sixteen(d)?,
            facts: parts::values(d, limits::SYNC_FACTS, |d| Ok(d.bytes()?.to_vec()))?,
            applied: parts::values(d, limits::SYNC_PUBLISH, |d| Ok(d.u64()?))?,
            drain: d.u16()?,
            lost: d.u64()?,
            dead: d.u64()?,
            read: if reads { parts::values(d, limits::KV_KEYS, read)? } else { Vec::new() },
        })
    })
}

/// The answer's bytes.
#[must_use]
pub fn encode_response(response: &SyncResponse) -> Vec<u8> {
    parts::encode(|e| {
        e.array(8)?.u8(FORM)?.u64(response.accepted)?.u64(response.duplicate)?;
        e.array(response.rejected.len() as u64)?;
        response.rejected.iter().try_for_each(|r| put_rejected(e, r))?;
        e.array(response.publish.len() as u64)?;
        response.publish.iter().try_for_each(|p| put_publish(e, p))?;
        e.u64(response.pending)?;
        put_text(e, response.catalogue.as_deref())?;
        e.array(response.verify.len() as u64)?;
        response.verify.iter().try_for_each(|v| e.array(2)?.u64(v.entry)?.str(&v.key).map(drop))
    })
}

/// Reads an answer.
///
/// # Errors
/// [`WireError`].
pub fn decode_response(bytes: &[u8]) -> Result<SyncResponse, WireError> {
    // An origin of before has nothing read back.
    let verifies = parts::fields(bytes) > 7;
    parts::form(bytes, FORM, if verifies { 7 } else { 6 }, |d| {
        Ok(SyncResponse {
            accepted: d.u64()?,
            duplicate: d.u64()?,
            rejected: parts::values(d, limits::SYNC_FACTS, rejected)?,
            publish: parts::values(d, limits::SYNC_PUBLISH, publish)?,
            pending: d.u64()?,
            catalogue: parts::option(d, |d| Ok(parts::text(d, limits::NAME_BYTES)?.to_owned()))?,
            verify: if verifies { parts::values(d, limits::KV_KEYS, verify)? } else { Vec::new() },
        })
    })
}

fn put_rejected(e: &mut Encoder<'_>, rejected: &Rejected) -> Written {
    e.array(4)?.u32(rejected.batch)?;
    match rejected.index {
        Some(index) => e.u32(index)?,
        None => e.null()?,
    };
    e.str(&rejected.code)?.str(&rejected.message)?;
    Ok(())
}

fn rejected(d: &mut Decoder<'_>) -> Result<Rejected, WireError> {
    parts::record(d, 4, |d| {
        Ok(Rejected {
            batch: d.u32()?,
            index: parts::option(d, |d| Ok(d.u32()?))?,
            code: d.str()?.to_owned(),
            message: d.str()?.to_owned(),
        })
    })
}

fn put_publish(e: &mut Encoder<'_>, publish: &Publish) -> Written {
    e.array(5)?.u64(publish.entry)?.str(&publish.key)?;
    parts::put_version(e, publish.version)?;
    put_text(e, publish.value.as_deref())?;
    e.u64(publish.due)?;
    Ok(())
}

fn publish(d: &mut Decoder<'_>) -> Result<Publish, WireError> {
    parts::record(d, 5, |d| {
        Ok(Publish {
            entry: d.u64()?,
            key: d.str()?.to_owned(),
            version: parts::version(d)?,
            value: parts::option(d, |d| Ok(d.str()?.to_owned()))?,
            due: d.u64()?,
        })
    })
}

fn put_read(e: &mut Encoder<'_>, read: &Read) -> Written {
    e.array(2)?.u64(read.entry)?;
    match &read.sha256 {
        Some(digest) => e.bytes(digest)?,
        None => e.null()?,
    };
    Ok(())
}

fn read(d: &mut Decoder<'_>) -> Result<Read, WireError> {
    let digest = |d: &mut Decoder<'_>| d.bytes()?.try_into().map_err(|_| WireError::Range);
    parts::record(d, 2, |d| Ok(Read { entry: d.u64()?, sha256: parts::option(d, digest)? }))
}

fn verify(d: &mut Decoder<'_>) -> Result<Verify, WireError> {
    parts::record(d, 2, |d| Ok(Verify { entry: d.u64()?, key: d.str()?.to_owned() }))
}

fn put_text(e: &mut Encoder<'_>, text: Option<&str>) -> Written {
    match text {
        Some(text) => e.str(text)?,
        None => e.null()?,
    };
    Ok(())
}
