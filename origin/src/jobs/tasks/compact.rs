//! The job `compact`: publishes what the visitors of a person do not know of one another yet.

use crate::base::job_kinds::JobKind;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, PEOPLE, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::store::StoreError;
use causeway_shared::base::ids::Millis;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The job `compact`: publishes what the visitors of a person do not know of one another yet.
#[derive(Debug)]
pub(crate) struct CompactJob;

impl BackgroundJob for CompactJob {
    fn kind(&self) -> JobKind {
        JobKind::Compact
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        compact_people(place, run)
    }
}

/// The people that wait are those of whom something is new, and no others are looked at: whatever waited when it began is put in
/// the outbox, before the pause of each is over.
fn compact_people(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    let mut compacted: CompactReport = so_far(run);
    let all = compacted.people + crate::outbox::queue::count_waiting(place.conn)?;
    if run.asked.dry_run {
        return Ok(json!({"people": all}).into());
    }
    loop {
        let given = (place.given)()?;
        let fired = crate::store::write_txn::within_txn(place.conn, place.rules, place.metrics, given, |group| {
            let (people, snapshots) = crate::outbox::queue::fire_timers(group, Millis::MAX, PEOPLE)?;
            compacted.people += people;
            compacted.snapshots += snapshots;
            runs::save_cursor(group.tx, run.no, run.cursor, &json!(compacted))?;
            Ok::<_, StoreError>(people)
        })?;
        (place.told)(compacted.people, all)?;
        if fired < PEOPLE.into() || compacted.people >= all {
            break;
        }
        (place.pause)();
    }
    Ok(json!(compacted).into())
}

/// What `compact` put in the outbox.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct CompactReport {
    people: u64,
    snapshots: u64,
}
