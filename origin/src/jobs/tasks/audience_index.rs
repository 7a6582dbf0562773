//! The job `columns`: requests a rebuild of the audience index by the serving process.

use crate::base::job_kinds::JobKind;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::JobRun;
use crate::store::StoreError;
use serde_json::json;

/// The job `columns`: requests a rebuild of the audience index by the serving process.
#[derive(Debug)]
pub(crate) struct IndexJob;

impl BackgroundJob for IndexJob {
    fn kind(&self) -> JobKind {
        JobKind::Index
    }

    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        rebuild_index(context, run)
    }
}

/// Increments the epoch of the index. The follower then notices that its index is outdated.
fn rebuild_index(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    const ANEW: &str = "UPDATE meta SET columns_epoch = columns_epoch + 1";
    let people: u64 = context
        .conn
        .query_row("SELECT count(*) FROM people", [], |row| row.get(0).map(crate::base::integers::unsigned))?;
    if !run.request.dry_run {
        context.conn.execute(ANEW, [])?;
    }
    Ok(json!({ "people": people }).into())
}
