//! The form of a model. The weights of a part are a column, because there are up to 16,384 of at most two bytes. The
//! column lists all weights or only those that are not 0, whichever is shorter.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::read_number;
use crate::ads::model::{BITS, FRACTION, Model, Part, Quality};
use crate::base::limits;
use crate::base::packed::{PackedReader, put, put_signed};
use crate::facts::segments::SegmentId;

const FORM: u8 = 1;
const MODEL: FormBounds = FormBounds { bytes: limits::MODEL_BYTES, items: limits::MODEL_SEGMENTS + 256, levels: 8 };
/// The two layouts of a weight column.
const ALL: u64 = 1;
const SOME: u64 = 2;

/// [`Model`].
#[derive(Serialize, Deserialize)]
struct ModelForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "b")]
    bits: u8,
    #[serde(rename = "t")]
    trained: u64,
    #[serde(rename = "e")]
    expires: u64,
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    segments: Vec<u32>,
    #[serde(rename = "c")]
    click: PartForm,
    #[serde(rename = "v")]
    conversion: PartForm,
    #[serde(rename = "p")]
    price: PartForm,
    #[serde(rename = "d")]
    spread: i32,
}

/// [`Part`].
#[derive(Serialize, Deserialize)]
struct PartForm {
    #[serde(rename = "i")]
    intercept: i32,
    #[serde(rename = "s")]
    scale: u8,
    /// Column: [`ALL`] and each weight; or [`SOME`], the number of weights, and each with the number of zeros before
    /// it.
    #[serde(rename = "w", default, skip_serializing_if = "<[u8]>::is_empty")]
    weights: ByteBuf,
    #[serde(rename = "q", skip_serializing_if = "Option::is_none")]
    quality: Option<QualityForm>,
}

/// [`Quality`].
#[derive(Serialize, Deserialize)]
struct QualityForm {
    #[serde(rename = "n")]
    examples: u32,
    #[serde(rename = "p")]
    positives: u32,
    #[serde(rename = "l")]
    loss_ppm: u32,
    #[serde(rename = "b")]
    base_loss_ppm: u32,
    #[serde(rename = "a")]
    auc_ppm: u32,
    #[serde(rename = "c")]
    calibration_error_ppm: u32,
}

/// Encodes a model.
#[must_use]
pub fn encode_model(model: &Model) -> Vec<u8> {
    let Model { bits, trained_ms, expires_ms, segments, click, conversion, price, spread } = model;
    cbor::encode(&ModelForm {
        form: FORM,
        bits: *bits,
        trained: *trained_ms,
        expires: *expires_ms,
        segments: segments.iter().map(|id| id.0).collect(),
        click: click.into(),
        conversion: conversion.into(),
        price: price.into(),
        spread: *spread,
    })
}

/// Decodes a model that is sound ([`Model::is_sound`]). The caller checks whether it may be used now ([`Model::used`]).
///
/// # Errors
/// [`WireError`] for an invalid model.
pub fn decode_model(bytes: &[u8]) -> Result<Model, WireError> {
    let form: ModelForm = cbor::decode(bytes, FORM, MODEL)?;
    if !BITS.contains(&form.bits) {
        return Err(WireError::Range);
    }
    let places = 1 << form.bits;
    let model = Model {
        bits: form.bits,
        trained_ms: form.trained,
        expires_ms: form.expires,
        segments: form.segments.into_iter().map(SegmentId).collect(),
        click: form.click.read(places)?,
        conversion: form.conversion.read(places)?,
        price: form.price.read(places)?,
        spread: form.spread,
    };
    if model.is_sound() { Ok(model) } else { Err(WireError::Range) }
}

impl From<&Part> for PartForm {
    fn from(Part { intercept, scale, weights, quality }: &Part) -> Self {
        let weights = ByteBuf::from(put_weights(weights));
        Self { intercept: *intercept, scale: *scale, weights, quality: quality.map(QualityForm::from) }
    }
}

impl PartForm {
    fn read(self, places: usize) -> Result<Part, WireError> {
        if self.scale > FRACTION {
            return Err(WireError::Range);
        }
        let (weights, quality) = (weights(&self.weights, places)?, self.quality.map(Quality::from));
        Ok(Part { intercept: self.intercept, scale: self.scale, weights, quality })
    }
}

impl From<Quality> for QualityForm {
    fn from(quality: Quality) -> Self {
        let Quality { examples, positives, loss_ppm, base_loss_ppm, auc_ppm, calibration_error_ppm } = quality;
        Self { examples, positives, loss_ppm, base_loss_ppm, auc_ppm, calibration_error_ppm }
    }
}

impl From<QualityForm> for Quality {
    fn from(form: QualityForm) -> Self {
        let QualityForm { examples, positives, loss_ppm, base_loss_ppm, auc_ppm, calibration_error_ppm } = form;
        Self { examples, positives, loss_ppm, base_loss_ppm, auc_ppm, calibration_error_ppm }
    }
}

fn put_weights(weights: &[i16]) -> Vec<u8> {
    if weights.is_empty() {
        return Vec::new();
    }
    let (mut all, mut some) = (Vec::new(), Vec::new());
    let mut gap = 0;
    put(&mut all, ALL);
    put(&mut some, SOME);
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
    if all.len() <= some.len() { all } else { some }
}

/// The weights of a column; an empty column has none.
fn weights(column: &[u8], places: usize) -> Result<Vec<i16>, WireError> {
    if column.is_empty() {
        return Ok(Vec::new());
    }
    let mut from = PackedReader(column);
    let weights = match read_number(&mut from)? {
        ALL => (0..places).map(|_| weight(&mut from)).collect::<Result<_, _>>()?,
        SOME => sparse(&mut from, places)?,
        _ => return Err(WireError::Malformed),
    };
    if from.is_empty() { Ok(weights) } else { Err(WireError::Malformed) }
}

fn weight(from: &mut PackedReader<'_>) -> Result<i16, WireError> {
    i16::try_from(from.signed().ok_or(WireError::Malformed)?).map_err(|_| WireError::Range)
}

fn sparse(from: &mut PackedReader<'_>, places: usize) -> Result<Vec<i16>, WireError> {
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
