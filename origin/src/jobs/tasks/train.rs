//! The job `train`: learns the model of a tenant again and publishes it if it is better.

use crate::base::job_kinds::JobKind;
use crate::campaigns::train::{self, Outcome, keep};
use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::JobRun;
use crate::store::StoreError;
use causeway_shared::base::ids::Millis;
use serde_json::json;

/// The job `train`: learns the model of a tenant again.
#[derive(Debug)]
pub(crate) struct TrainJob;

impl BackgroundJob for TrainJob {
    fn kind(&self) -> JobKind {
        JobKind::Train
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        train_models(place, run)
    }
}

/// A model that is not better is an outcome, not a failure.
///
/// # Errors
/// [`StoreError`].
fn train_models(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    let tenant = run.asked.tenant.ok_or(StoreError::Corrupt { what: "run of a training without its tenant" })?;
    place.rules.tenants.by_no(tenant)?;
    let now: Millis = (place.given)()?.now;
    let outcome = train::run(place.data, tenant, now, place.training, place.told)?;
    let version = match &outcome {
        Outcome::Trained(bytes, report) if !run.asked.dry_run => {
            Some(keep(place.conn, place.rules, (place.given)()?, tenant, bytes, report)?)
        }
        _ => None,
    };
    let mut told = json!(outcome.report());
    if let Some(object) = told.as_object_mut() {
        object.insert("outcome".to_owned(), outcome.code().into());
        object.insert("version".to_owned(), version.into());
    }
    Ok(told.into())
}
