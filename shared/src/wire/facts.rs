//! A batch of facts of one tenant: one queue message, and one element of a sync.

use minicbor::decode::Decoder;

use super::parts::{self, Encoder, WireError, Written};
use crate::actions::{Entity, Verb, ViewType};
use crate::attributes::Value;
use crate::fact::{Fact, Scope, What};
use crate::ids::{AltHash, AlternateId, InsertionId, KindCode, SessionId, TenantId};
use crate::limits;
use crate::person::{Source, Weight};
use crate::segments::{SegmentId, State};
use crate::time::HourStamp;

const FORM: u8 = 1;

/// The facts of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct FactBatch {
    /// Whose identity space they belong to.
    pub tenant: TenantId,
    /// The facts.
    pub facts: Vec<Fact>,
}

/// The batch's bytes.
#[must_use]
pub fn encode(batch: &FactBatch) -> Vec<u8> {
    parts::encode(|e| {
        e.array(3)?.u8(FORM)?.str(batch.tenant.as_str())?.array(batch.facts.len() as u64)?;
        batch.facts.iter().try_for_each(|fact| put_fact(e, fact))
    })
}

/// How many bytes of a batch a fact takes.
#[must_use]
pub fn bytes_of(fact: &Fact) -> usize {
    parts::encode(|e| put_fact(e, fact)).len()
}

/// Reads a batch.
///
/// # Errors
/// [`WireError`]; lists and texts over their bounds are refused before they are read.
pub fn decode(bytes: &[u8]) -> Result<FactBatch, WireError> {
    let (tenant, facts) = decode_each(bytes)?;
    Ok(FactBatch { tenant, facts: facts.into_iter().collect::<Result<_, _>>()? })
}

/// Reads a batch fact by fact: one that this release does not know, or that is not of its form, takes none with it.
///
/// # Errors
/// [`WireError`], where the batch itself cannot be read.
pub fn decode_each(bytes: &[u8]) -> Result<(TenantId, Vec<Result<Fact, WireError>>), WireError> {
    if bytes.len() > limits::SYNC_BYTES {
        return Err(WireError::TooLong);
    }
    parts::form(bytes, FORM, 2, |d| {
        let tenant = d.str()?.parse().map_err(|_| WireError::Range)?;
        Ok((tenant, parts::values(d, limits::SYNC_FACTS, one_of_many)?))
    })
}

/// Outside, whether the decoder knows where the next one begins.
fn one_of_many(d: &mut Decoder<'_>) -> Result<Result<Fact, WireError>, WireError> {
    let start = d.position();
    let read = fact(d);
    if read.is_err() {
        d.set_position(start);
        d.skip()?;
    }
    Ok(read)
}

fn put_fact(e: &mut Encoder<'_>, fact: &Fact) -> Written {
    e.array(5)?.bytes(fact.id.as_bytes())?.bytes(fact.visitor.as_bytes())?.u64(fact.received)?;
    e.u64(fact.received.saturating_sub(fact.at))?;
    match &fact.what {
        What::Page { session } => e.array(2)?.u8(0)?.u64(session.0)?,
        What::Alias { id, also, proven } => {
            e.array(5)?.u8(1)?.u8(id.kind.0)?.bytes(&id.hash.0)?.bool(*proven)?;
            put_hashes(e, also)?;
            e
        }
        What::Track { name, value, properties } => {
            e.array(4)?.u8(2)?.str(name)?;
            match value {
                Some(v) => e.i64(*v)?,
                None => e.null()?,
            };
            match properties {
                Some(p) => e.str(p)?,
                None => e.null()?,
            }
        }
        What::Withdrawal => e.array(1)?.u8(3)?,
        What::Action { insertion, verb, view_type, entity } => {
            let Entity { ad, ad_group, campaign, advertiser } = *entity;
            e.array(8)?.u8(4)?.bytes(&insertion.0)?.u8(verb.0)?.u8(view_type.0)?;
            e.u32(ad)?.u32(ad_group)?.u32(campaign)?.u32(advertiser)?
        }
        What::Segments { writes } => {
            e.array(2)?.u8(5)?.array(writes.len() as u64)?;
            writes.iter().try_for_each(|(id, state)| put_segment(e, *id, state))?;
            e
        }
        What::Attributes { writes } => {
            e.array(2)?.u8(6)?.array(writes.len() as u64)?;
            writes.iter().try_for_each(|(name, value)| put_attribute(e, name, value.as_ref()))?;
            e
        }
        What::Cancellation { id } => e.array(3)?.u8(7)?.u8(id.kind.0)?.bytes(&id.hash.0)?,
        What::Erasure { scope, id, also } => {
            e.array(3)?.u8(8)?.bool(*scope == Scope::Person)?;
            put_erased_id(e, id.as_ref(), also)?;
            e
        }
        What::Evidence { id, also, weight, source } => {
            e.array(if also.is_empty() { 5 } else { 6 })?.u8(11)?;
            e.u8(id.kind.0)?.bytes(&id.hash.0)?.u16(weight.0)?.u8(source.code())?;
            if !also.is_empty() {
                put_hashes(e, also)?;
            }
            e
        }
        What::Exposure { experiment, arm } => e.array(3)?.u8(9)?.u32(*experiment)?.u8(*arm)?,
        What::Unit { campaign, number } => e.array(3)?.u8(10)?.u32(*campaign)?.u32(*number)?,
    };
    Ok(())
}

/// An id with its other hashes, null where the erasure names none.
fn put_erased_id(e: &mut Encoder<'_>, id: Option<&AlternateId>, also: &[AltHash]) -> Written {
    let Some(id) = id else { return e.null().map(drop) };
    e.array(3)?.u8(id.kind.0)?.bytes(&id.hash.0)?;
    put_hashes(e, also)
}

fn put_hashes(e: &mut Encoder<'_>, hashes: &[AltHash]) -> Written {
    e.array(hashes.len() as u64)?;
    hashes.iter().try_for_each(|hash| e.bytes(&hash.0).map(drop))
}

/// An id alone where the segment is removed; else with its expiry, then tokens and values.
fn put_segment(e: &mut Encoder<'_>, id: SegmentId, state: &State) -> Written {
    let State::Held { expiry, attributes } = state else { return e.array(1)?.u32(id.0).map(drop) };
    e.array(2 + 2 * attributes.len() as u64)?.u32(id.0)?.u32(expiry.0)?;
    attributes.iter().try_for_each(|(token, value)| e.u16(*token)?.i32(*value).map(drop))
}

/// A name and a packed value, null where the attribute is removed.
fn put_attribute(e: &mut Encoder<'_>, name: &str, value: Option<&Value>) -> Written {
    e.array(2)?.str(name)?;
    match value {
        Some(value) => e.bytes(&value.pack())?,
        None => e.null()?,
    };
    Ok(())
}

fn attribute(d: &mut Decoder<'_>) -> Result<(String, Option<Value>), WireError> {
    parts::record(d, 2, |d| {
        let name = parts::text(d, limits::ATTRIBUTE_NAME_BYTES)?.to_owned();
        Ok((name, parts::option(d, |d| Value::read(d.bytes()?).ok_or(WireError::Range))?))
    })
}

fn segment(d: &mut Decoder<'_>) -> Result<(SegmentId, State), WireError> {
    let length = parts::list(d, 2 + 2 * limits::SEGMENT_ATTRIBUTES)?;
    let more = length.checked_sub(1).ok_or(WireError::Malformed)?;
    let id = SegmentId(d.u32()?);
    if more == 0 {
        return Ok((id, State::Removed));
    }
    let expiry = HourStamp(d.u32()?);
    if more % 2 == 0 {
        return Err(WireError::Malformed);
    }
    let pairs = (0..more / 2).map(|_| Ok::<_, WireError>((d.u16()?, d.i32()?)));
    let attributes = pairs.collect::<Result<Vec<_>, _>>()?;
    let state = State::held(expiry, attributes.iter().copied());
    // What is out of order or over its bound is not ours.
    if state == (State::Held { expiry, attributes }) { Ok((id, state)) } else { Err(WireError::Range) }
}

fn fact(d: &mut Decoder<'_>) -> Result<Fact, WireError> {
    parts::record(d, 5, |d| {
        let (id, visitor) = (parts::fact_id(d)?, parts::visitor(d)?);
        let received = d.u64()?;
        let at = received.checked_sub(d.u64()?).ok_or(WireError::Range)?;
        Ok(Fact { id, visitor, received, at, what: what(d)? })
    })
}

fn alternate(d: &mut Decoder<'_>) -> Result<AlternateId, WireError> {
    Ok(AlternateId { kind: KindCode(d.u8()?), hash: parts::alt_hash(d)? })
}

fn what(d: &mut Decoder<'_>) -> Result<What, WireError> {
    let fields = parts::list(d, 16)?;
    let code = d.u8()?;
    let (known, what) = match code {
        0 => (2, What::Page { session: SessionId(d.u64()?) }),
        1 => {
            let id = alternate(d)?;
            let proven = d.bool()?;
            let also = parts::values(d, limits::KEYS_A_PURPOSE, parts::alt_hash)?;
            (5, What::Alias { id, also, proven })
        }
        2 => {
            let name = parts::text(d, limits::NAME_BYTES)?.to_owned();
            let value = parts::option(d, |d| Ok(d.i64()?))?;
            let properties = parts::option(d, |d| Ok(parts::text(d, limits::PROPERTIES_BYTES)?.to_owned()))?;
            (4, What::Track { name, value, properties })
        }
        3 => (1, What::Withdrawal),
        4 => {
            let insertion = InsertionId(parts::sixteen(d)?);
            let (verb, view_type) = (Verb(d.u8()?), ViewType(d.u8()?));
            let entity = Entity { ad: d.u32()?, ad_group: d.u32()?, campaign: d.u32()?, advertiser: d.u32()? };
            (8, What::Action { insertion, verb, view_type, entity })
        }
        5 => (2, What::Segments { writes: parts::values(d, limits::SEGMENT_WRITES, segment)? }),
        6 => (2, What::Attributes { writes: parts::values(d, limits::ATTRIBUTE_WRITES, attribute)? }),
        7 => (3, What::Cancellation { id: alternate(d)? }),
        8 => {
            let scope = if d.bool()? { Scope::Person } else { Scope::Visitor };
            let named = parts::option(d, |d| {
                parts::record(d, 3, |d| Ok((alternate(d)?, parts::values(d, limits::KEYS_A_PURPOSE, parts::alt_hash)?)))
            })?;
            let (id, also) = named.map_or_else(Default::default, |(id, also)| (Some(id), also));
            (3, What::Erasure { scope, id, also })
        }
        9 => (3, What::Exposure { experiment: d.u32()?, arm: d.u8()? }),
        11 => {
            let (id, weight) = (alternate(d)?, Weight(d.u16()?));
            let source = Source::of_code(d.u8()?).ok_or(WireError::Range)?;
            if !(Weight(1)..=Weight::UNSURE).contains(&weight) {
                return Err(WireError::Range);
            }
            let has_others = fields > 5;
            let also = has_others.then(|| parts::values(d, limits::KEYS_A_PURPOSE, parts::alt_hash)).transpose()?;
            (if has_others { 6 } else { 5 }, What::Evidence { id, also: also.unwrap_or_default(), weight, source })
        }
        10 => (3, What::Unit { campaign: d.u32()?, number: d.u32()? }),
        _ => return Err(WireError::UnknownForm),
    };
    if fields < known {
        return Err(WireError::Malformed);
    }
    for _ in known..fields {
        d.skip()?;
    }
    Ok(what)
}

/// One fact's bytes, as the origin keeps them.
#[must_use]
pub fn encode_one(fact: &Fact) -> Vec<u8> {
    parts::encode(|e| put_fact(e, fact))
}

/// Reads one fact.
///
/// # Errors
/// [`WireError`], as for a batch.
pub fn decode_one(bytes: &[u8]) -> Result<Fact, WireError> {
    let mut d = Decoder::new(bytes);
    let fact = fact(&mut d)?;
    if d.position() == bytes.len() { Ok(fact) } else { Err(WireError::Malformed) }
}
