//! A model's form: packed numbers, the form's own first. Of a part's weights all are listed, or those that are not 0,
//! whichever is shorter.

use super::WireError;
use super::parts::{number, small};
use crate::limits;
use crate::model::{BITS, FRACTION, Model, Part, Quality};
use crate::packed::{Packed, put, put_signed};
use crate::segments::SegmentId;

const FORM: u64 = 1;
/// Lists of weights.
const NONE: u64 = 0;
const ALL: u64 = 1;
const SOME: u64 = 2;

/// A model's bytes.
#[must_use]
pub fn encode(model: &Model) -> Vec<u8> {
    let Model { bits, trained_ms, expires_ms, segments, click, conversion, price, spread } = model;
    let mut to = Vec::new();
    put(&mut to, FORM);
    put(&mut to, u64::from(*bits));
    put(&mut to, *trained_ms);
    put(&mut to, *expires_ms);
    put(&mut to, segments.len() as u64);
    let mut before = 0;
    for SegmentId(id) in segments {
        put(&mut to, u64::from(id.saturating_sub(before)));
        before = *id;
    }
    [click, conversion, price].into_iter().for_each(|part| put_part(&mut to, part));
    put_signed(&mut to, i64::from(*spread));
    to
}

fn put_part(to: &mut Vec<u8>, Part { intercept, scale, weights, quality }: &Part) {
    put_signed(to, i64::from(*intercept));
    put(to, u64::from(*scale));
    put(to, u64::from(quality.is_some()));
    if let Some(Quality { examples, positives, loss_ppm, base_loss_ppm, auc_ppm, calibration_error_ppm }) = quality {
        for number in [examples, positives, loss_ppm, base_loss_ppm, auc_ppm, calibration_error_ppm] {
            put(to, u64::from(*number));
        }
    }
    if weights.is_empty() {
        return put(to, NONE);
    }
    let (mut all, mut some) = (Vec::new(), Vec::new());
    let mut gap = 0;
    put(&mut some, weights.iter().filter(|weight| **weight != 0).count() as u64);
    for weight in weights {
        put_signed(&mut all, i64::from(*weight));
        if *weight == 0 {
            gap += 1;
        } else {
            put(&mut some, gap);
            put_signed(&mut some, i64::from(*weight));
            gap = 0;
        }
    }
    let (list, weights) = if all.len() <= some.len() { (ALL, all) } else { (SOME, some) };
    put(to, list);
    to.extend(weights);
}

/// Reads a model and checks it whole: what is read can be scored with ([`Model::is_sound`]). Whether it may be used now
/// is another question ([`Model::used`]).
///
/// # Errors
/// [`WireError`].
pub fn decode(bytes: &[u8]) -> Result<Model, WireError> {
    if bytes.len() > limits::MODEL_BYTES {
        return Err(WireError::TooLong);
    }
    let mut from = Packed(bytes);
    if number(&mut from)? != FORM {
        return Err(WireError::UnknownForm);
    }
    let bits = u8::try_from(number(&mut from)?).ok().filter(|bits| BITS.contains(bits)).ok_or(WireError::Range)?;
    let (trained_ms, expires_ms) = (number(&mut from)?, number(&mut from)?);
    let segments = segments(&mut from)?;
    let [click, conversion, price] =
        [part(&mut from, 1 << bits)?, part(&mut from, 1 << bits)?, part(&mut from, 1 << bits)?];
    let spread = signed(&mut from)?;
    let model = Model { bits, trained_ms, expires_ms, segments, click, conversion, price, spread };
    if !from.is_empty() {
        return Err(WireError::Malformed);
    }
    if model.is_sound() { Ok(model) } else { Err(WireError::Range) }
}

fn signed(from: &mut Packed<'_>) -> Result<i32, WireError> {
    i32::try_from(from.signed().ok_or(WireError::Malformed)?).map_err(|_| WireError::Range)
}

fn weight(from: &mut Packed<'_>) -> Result<i16, WireError> {
    i16::try_from(signed(from)?).map_err(|_| WireError::Range)
}

fn segments(from: &mut Packed<'_>) -> Result<Vec<SegmentId>, WireError> {
    let count = from.count(limits::MODEL_SEGMENTS).ok_or(WireError::Range)?;
    let mut id = 0u32;
    let next = |_| {
        id = id.checked_add(small(from)?).ok_or(WireError::Range)?;
        Ok(SegmentId(id))
    };
    (0..count).map(next).collect()
}

fn part(from: &mut Packed<'_>, places: usize) -> Result<Part, WireError> {
    let intercept = signed(from)?;
    let scale = u8::try_from(number(from)?).ok().filter(|scale| *scale <= FRACTION).ok_or(WireError::Range)?;
    let quality = match number(from)? {
        0 => None,
        1 => Some(quality(from)?),
        _ => return Err(WireError::Malformed),
    };
    let weights = match number(from)? {
        NONE => Vec::new(),
        ALL => (0..places).map(|_| weight(from)).collect::<Result<_, _>>()?,
        SOME => sparse(from, places)?,
        _ => return Err(WireError::Malformed),
    };
    Ok(Part { intercept, scale, weights, quality })
}

fn sparse(from: &mut Packed<'_>, places: usize) -> Result<Vec<i16>, WireError> {
    let count = from.count(places).ok_or(WireError::Range)?;
    let mut weights = vec![0; places];
    let mut rest = weights.iter_mut();
    for _ in 0..count {
        let gap = from.count(places).ok_or(WireError::Range)?;
        let there = rest.nth(gap).ok_or(WireError::Range)?;
        *there = weight(from)?;
    }
    Ok(weights)
}

fn quality(from: &mut Packed<'_>) -> Result<Quality, WireError> {
    Ok(Quality {
        examples: small(from)?,
        positives: small(from)?,
        loss_ppm: small(from)?,
        base_loss_ppm: small(from)?,
        auc_ppm: small(from)?,
        calibration_error_ppm: small(from)?,
    })
}
