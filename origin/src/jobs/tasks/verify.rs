//! The job `verify`: reads every key of the KV back and mends what differs.

use crate::base::job_kinds::JobKind;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::kv::verify::{self, VerifyPosition, VerifyStep};
use crate::store::StoreError;
use causeway_shared::base::ids::Millis;
use rusqlite::Connection;
use serde_json::json;

/// No edge said anything for so long: a cron wakes one each minute.
pub(crate) const SILENT_MS: Millis = 10 * 60_000;

/// The job `verify`: reads every key of the KV back and mends what differs.
#[derive(Debug)]
pub(crate) struct VerifyJob;

impl BackgroundJob for VerifyJob {
    fn kind(&self) -> JobKind {
        JobKind::Verify
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        verify_keys(place, run)
    }
}

/// What was asked for and not answered is still there for a run that goes on.
fn verify_keys(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    const SILENT: &str = "for ten minutes no edge said what the KV has: does the publish consumer run? \
        `causeway_last_sync_age_seconds`, and `sync_failed` and `kv_read_failed` in the worker's log, say more; an edge of \
        a release before this one reads nothing back";
    let all = verify::count_keys(place.conn)?;
    let mut walk = VerifyPosition::from(run.cursor, so_far(run));
    // Another run, if only a dry one, forgot what this one had asked for.
    if runs::is_behind(place.conn, run)? {
        walk = VerifyPosition::default();
    }
    if walk == VerifyPosition::default() {
        verify::forget_reads(place.conn)?;
    }
    let keep =
        |tx: &Connection, walk: &VerifyPosition| runs::save_cursor(tx, run.no, walk.cursor, &json!(walk.verified));
    let mut heard = (place.given)()?.now;
    loop {
        let given = (place.given)()?;
        heard = heard.min(given.now);
        let next =
            verify::verify_step(place.conn, place.rules, place.metrics, given, &mut walk, run.asked.dry_run, &keep)?;
        match next {
            VerifyStep::Looked => heard = given.now,
            VerifyStep::Asked => {}
            VerifyStep::Waits(due) if given.now <= heard.max(due).saturating_add(SILENT_MS) => {}
            VerifyStep::Waits(_) => {
                verify::forget_reads(place.conn)?;
                return Ok(JobReport { report: json!(walk.verified), failed: Some(SILENT.to_owned()) });
            }
            VerifyStep::Over => return Ok(json!(walk.verified).into()),
        }
        (place.told)(walk.verified.keys, all)?;
        (place.pause)();
    }
}
