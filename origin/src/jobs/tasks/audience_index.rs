//! The job `index`: requests a rebuild of the audience index by the serving process.

use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::JobRun;
use crate::store::job_error::JobError;
use crate::store::tables::{meta, people};
use serde_json::json;

/// The job `index`: requests a rebuild of the audience index by the serving process.
#[derive(Debug)]
pub(crate) struct IndexJob;

impl BackgroundJob for IndexJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        rebuild_index(context, run)
    }
}

/// Increments the epoch of the index. The follower then notices that its index is outdated.
fn rebuild_index(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let people: u64 =
        context.conn.query_row(people::PEOPLE_COUNT, [], |row| row.get(0).map(crate::base::integers::unsigned))?;
    if !run.request.dry_run {
        context.conn.execute(meta::META_NEXT_INDEX_EPOCH, [])?;
    }
    Ok(json!({ "people": people }).into())
}
