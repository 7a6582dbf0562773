//! The job `compact`: publishes people whose visitors' snapshots do not contain all news of their siblings.

use crate::jobs::context::{BackgroundJob, JobContext, JobReport, PEOPLE, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::store::StoreError;
use crate::store::job_error::JobError;
use causeway_shared::base::ids::Millis;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The job `compact`: publishes people whose visitors' snapshots do not contain all news of their siblings.
#[derive(Debug)]
pub(crate) struct CompactJob;

impl BackgroundJob for CompactJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        compact_people(context, run)
    }
}

/// Puts all people with waiting news into the outbox, before their pauses end. Other people are not read.
fn compact_people(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let mut compacted: CompactReport = so_far(run);
    let all = compacted.people + crate::outbox::queue::count_waiting(context.conn)?;
    if run.request.dry_run {
        return Ok(json!({"people": all}).into());
    }
    loop {
        let given = (context.draw_inputs)()?;
        let fired =
            crate::store::write_txn::within_txn(context.conn, context.rules, context.metrics, given, |group| {
                let (people, snapshots) = crate::outbox::queue::fire_timers(group, Millis::MAX, PEOPLE)?;
                compacted.people += people;
                compacted.snapshots += snapshots;
                runs::save_cursor(group.tx, run.no, run.cursor, &json!(compacted))?;
                Ok::<_, StoreError>(people)
            })?;
        (context.report_progress)(compacted.people, all)?;
        if fired < PEOPLE.into() || compacted.people >= all {
            break;
        }
        (context.pause)();
    }
    Ok(json!(compacted).into())
}

/// Report of the job `compact`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct CompactReport {
    people: u64,
    snapshots: u64,
}
