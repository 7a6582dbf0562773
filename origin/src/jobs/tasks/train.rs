//! The job `train`: trains a tenant's model and publishes it if it is better than the base rate.

use crate::campaigns::train::{self, Outcome, keep};
use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::JobRun;
use crate::store::StoreError;
use crate::store::job_error::JobError;
use causeway_shared::base::ids::Millis;
use serde_json::json;

/// The job `train`: trains a tenant's model.
#[derive(Debug)]
pub(crate) struct TrainJob;

impl BackgroundJob for TrainJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        train_models(context, run)
    }
}

/// Trains and stores the model. A model that is not better is an outcome, not a failure.
///
/// # Errors
/// [`JobError`].
fn train_models(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let tenant = run.request.tenant.ok_or(StoreError::Corrupt { what: "run of a training without its tenant" })?;
    context.rules.tenants.by_no(tenant)?;
    let now: Millis = (context.draw_inputs)()?.now;
    let outcome = train::run(context.data, tenant, now, context.training, context.report_progress)?;
    let version = match &outcome {
        Outcome::Trained(bytes, report) if !run.request.dry_run => {
            Some(keep(context.conn, context.rules, (context.draw_inputs)()?, tenant, bytes, report)?)
        }
        _ => None,
    };
    let mut report = json!(outcome.report());
    if let Some(object) = report.as_object_mut() {
        object.insert("outcome".to_owned(), outcome.code().into());
        object.insert("version".to_owned(), version.into());
    }
    Ok(report.into())
}
