//! The job `columns`: has the audience index built again, by whoever serves it.

use crate::base::job_kinds::JobKind;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::JobRun;
use crate::store::StoreError;
use serde_json::json;

/// The job `columns`: has the audience index built again, by whoever serves it.
#[derive(Debug)]
pub(crate) struct ColumnsJob;

impl BackgroundJob for ColumnsJob {
    fn kind(&self) -> JobKind {
        JobKind::Columns
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        rebuild_index(place, run)
    }
}

/// Whoever keeps people in columns finds that they are to be built anew.
fn rebuild_index(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    const ANEW: &str = "UPDATE meta SET columns_epoch = columns_epoch + 1";
    let people: u64 = place
        .conn
        .query_row("SELECT count(*) FROM people", [], |row| row.get(0).map(crate::base::integers::unsigned))?;
    if !run.asked.dry_run {
        place.conn.execute(ANEW, [])?;
    }
    Ok(json!({ "people": people }).into())
}
