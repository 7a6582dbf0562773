//! Training of models from stored actions: `causeway job run train`.
//!
//! An example is one impression with its features in the minutes before it, built by `causeway_shared::ads::model` as
//! at the edge, and its outcome. People are read as they are linked now: the actions of a sibling before the link count
//! as the person's past. Segments count from their last write on, so that a segment that was written because of a
//! conversion never explains it.
//!
//! The newest fifth of the examples is held out. A part of the model that is not significantly better on them than the
//! base rate is not published, and the base rate is used instead.

mod examples;
mod ftrl;
mod gather;
mod measure;
mod part;
mod person_history;
#[cfg(test)]
mod tests;

use std::path::Path;

use causeway_shared::ads::model::Model;
use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::{DAY_MS, Minute};
use causeway_shared::facts::actions::ActionType;
use causeway_shared::wire::model;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;

use self::gather::{GatherRequest, GatheredExamples};
pub use self::part::{ModelKind, PartReport, PartVerdict};
use crate::base::integers::signed;
use crate::base::metrics::Metrics;
use crate::outbox::kv_key::KvKey;
use crate::store::job_error::JobError;
use crate::store::tables::models;
use crate::store::write_txn::{TxnInputs, TxnRules};
use crate::store::{CheckedBytes, StoreError, TenantNo};

/// Progress callback `(done, total)`. Returning an error cancels the run with that error.
type Progress<'a> = &'a (dyn Fn(u64, u64) -> Result<(), JobError> + Sync);

/// Newest models that are stored for a tenant.
const KEPT: i64 = 10;

/// Options of a training.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Binary logarithm of the number of the model's weights, within `model::BITS`.
    pub bits: u8,
    /// Most actions read. A share of the people is drawn from a larger store. Each action takes 28 bytes of memory.
    pub most: u64,
    /// Lifetime of the model in milliseconds.
    pub life_ms: u64,
    /// Action types that are conversions, in addition to purchases within a day after a click. Only these purchases are
    /// paid for.
    pub conversions: Vec<ActionType>,
}

impl Default for Options {
    fn default() -> Self {
        Self { bits: 14, most: 20_000_000, life_ms: 14 * DAY_MS, conversions: Vec::new() }
    }
}

/// Result of a training.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A model to publish, in the form that the edge reads.
    Trained(Vec<u8>, Report),
    /// No part is significantly better than the base rate.
    NotBetter(Report),
    /// No part has enough examples.
    TooFew(Report),
}

impl Outcome {
    /// The report of the training.
    #[must_use]
    pub fn report(&self) -> &Report {
        match self {
            Self::Trained(_, report) | Self::NotBetter(report) | Self::TooFew(report) => report,
        }
    }

    /// Stable name of the outcome.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Trained(..) => "trained",
            Self::NotBetter(_) => "not_better",
            Self::TooFew(_) => "too_few",
        }
    }
}

/// Report of a training.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Time of the training.
    pub trained_ms: Millis,
    /// Time from which on the model is not used.
    pub expires_ms: Millis,
    /// People of the tenant.
    pub people: u64,
    /// Impressions found.
    pub impressions: u64,
    /// Segments that are features.
    pub segments: usize,
    /// Size of the model in bytes.
    pub bytes: usize,
    /// Reports of the parts.
    pub parts: Vec<PartReport>,
}

/// Trains a model from the data that the store in `data` holds of a tenant. Writes nothing; [`keep`] does.
///
/// `progress` receives the number of people read and of all people, from several threads. An error of it ends the
/// training.
///
/// # Errors
/// [`JobError`].
pub fn run(
    data: &Path,
    tenant: TenantNo,
    now: Millis,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Outcome, JobError> {
    let Options { bits, most, life_ms, conversions } = options;
    let request = GatherRequest { data, tenant, bits: *bits, most: *most, conversions };
    let GatheredExamples { people, segments, examples } = gather::gather_examples(&request, progress)?;
    let minute = Minute::at(now);
    let clicked = examples.clicked(minute);
    let priced = clicked.iter().copied().filter(|number| examples.value(*number).is_some()).collect();
    let sources =
        [(ModelKind::Click, examples.settled(minute)), (ModelKind::Conversion, clicked), (ModelKind::Price, priced)];
    let mut report = Report {
        trained_ms: now,
        expires_ms: now.saturating_add(*life_ms),
        people,
        impressions: examples.len() as u64,
        segments: segments.len(),
        bytes: 0,
        parts: Vec::new(),
    };
    let mut model = Model { bits: *bits, trained_ms: now, expires_ms: report.expires_ms, segments, ..Model::default() };
    for (kind, numbers) in sources {
        let trained = part::train_part(kind, &examples, numbers, *bits);
        *part::model_part(&mut model, kind) = trained.part;
        model.spread = model.spread.max(trained.spread);
        report.parts.push(trained.report);
    }
    let any = |verdict| report.parts.iter().any(|part| part.outcome == verdict);
    if any(PartVerdict::Trained) {
        let bytes = model::encode_model(&model);
        report.bytes = bytes.len();
        // The model is checked before it is published, in the same way as after it is read.
        let is_whole = model::decode_model(&bytes).is_ok_and(|back| back == model);
        return if is_whole { Ok(Outcome::Trained(bytes, report)) } else { Err(JobError::Check("model")) };
    }
    Ok(if any(PartVerdict::NotBetter) { Outcome::NotBetter(report) } else { Outcome::TooFew(report) })
}

/// Stores a trained model as the tenant's newest and queues it for the KV. Returns its version.
///
/// # Errors
/// [`StoreError`]; nothing was changed.
pub fn keep(
    conn: &mut Connection,
    rules: &TxnRules,
    given: TxnInputs,
    tenant: TenantNo,
    bytes: &[u8],
    report: &Report,
) -> Result<u64, StoreError> {
    crate::store::write_txn::within_txn(conn, rules, &Metrics::default(), given, |group| {
        let version: i64 = group.tx.query_row(models::MODELS_NEXT_VERSION, [tenant.0], |row| row.get(0))?;
        let report_json = serde_json::to_string(report).unwrap_or_default();
        group.tx.execute(
            models::MODELS_INSERT,
            (tenant.0, version, signed(report.trained_ms), CheckedBytes::seal(bytes), report_json),
        )?;
        group.tx.execute(models::MODELS_DELETE_UP_TO_VERSION, (tenant.0, version - KEPT))?;
        // Later hand-outs must have a higher version than earlier ones.
        group.next_version();
        crate::outbox::queue::put_key(group, tenant, KvKey::Model, group.now)?;
        Ok(version.unsigned_abs())
    })
}

/// The tenant's newest model and its report as JSON.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Form`] if the checksum does not match.
pub fn newest(conn: &Connection, tenant: TenantNo) -> Result<Option<(Vec<u8>, serde_json::Value)>, StoreError> {
    let found: Option<(CheckedBytes, String)> =
        conn.query_row(models::MODELS_NEWEST, [tenant.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((CheckedBytes(bytes), report)) = found else { return Ok(None) };
    let report = serde_json::from_str(&report).map_err(|_| StoreError::Corrupt { what: "report of a model" })?;
    Ok(Some((bytes, report)))
}
