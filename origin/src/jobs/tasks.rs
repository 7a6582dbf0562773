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
use crate::base::job_kinds::JobKind;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::JobRun;
use crate::store::job_error::JobError;

/// The task of a kind of job.
fn task_of(kind: JobKind) -> &'static dyn BackgroundJob {
    match kind {
        JobKind::Trim => &TrimJob,
        JobKind::Retention => &RetentionJob,
        JobKind::Reconcile => &ReconcileJob,
        JobKind::Train => &TrainJob,
        JobKind::Publish => &PublishJob,
        JobKind::Compact => &CompactJob,
        JobKind::Rollup => &RollupJob,
        JobKind::Verify => &VerifyJob,
        JobKind::Index => &IndexJob,
        JobKind::Materialise => &MaterialiseJob,
        JobKind::Activity => &ActivityJob,
        JobKind::Send => &SendJob,
        JobKind::Scrub => &ScrubJob,
    }
}

/// Executes a run from its cursor.
///
/// # Errors
/// [`JobError`]; earlier transactions stay committed. [`JobError::Stopped`] reports an interruption, not a failure.
pub(crate) fn run_job(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    task_of(run.request.job).run(context, run)
}
