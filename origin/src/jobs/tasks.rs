//! The jobs, one file for each, and their list.

mod activity;
mod audience_index;
mod compact;
pub mod deliver;
pub mod dispatch;
pub mod materialise;
mod publish;
mod reconcile;
pub mod retention;
mod rollup;
pub mod scrub;
pub mod train;
mod trim;
mod verify;

use self::activity::ActivityJob;
use self::audience_index::IndexJob;
use self::compact::CompactJob;
use self::deliver::SendJob;
use self::materialise::MaterialiseJob;
use self::publish::PublishJob;
use self::reconcile::ReconcileJob;
use self::retention::RetentionJob;
use self::rollup::RollupJob;
use self::scrub::ScrubJob;
use self::train::TrainJob;
use self::trim::TrimJob;
use self::verify::VerifyJob;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::JobRun;
use crate::store::StoreError;
use crate::store::job_error::JobError;

/// All jobs in the order of their kinds.
const TASKS: [&dyn BackgroundJob; 13] = [
    &TrimJob,
    &RetentionJob,
    &ReconcileJob,
    &TrainJob,
    &PublishJob,
    &CompactJob,
    &RollupJob,
    &VerifyJob,
    &IndexJob,
    &MaterialiseJob,
    &ActivityJob,
    &SendJob,
    &ScrubJob,
];

/// Executes a run from its cursor.
///
/// # Errors
/// [`JobError`]; earlier transactions stay committed. [`JobError::Stopped`] reports an interruption, not a failure.
pub(crate) fn run_job(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let job = TASKS.iter().find(|job| job.kind() == run.request.job);
    job.ok_or(StoreError::Corrupt { what: "job of a run" })?.run(context, run)
}

#[cfg(test)]
mod tests {
    use super::TASKS;
    use crate::base::job_kinds::JobKind;

    #[test]
    fn every_kind_of_job_has_one_task() {
        assert_eq!(TASKS.map(|job| job.kind()), JobKind::ALL);
    }
}
