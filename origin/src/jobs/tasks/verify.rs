//! The job `verify`: reads every key of the KV back and repairs differences.

use crate::jobs::context::{BackgroundJob, JobContext, JobReport, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::kv::verify::{self, VerifyPosition, VerifyStep};
use crate::store::job_error::JobError;
use rusqlite::Connection;
use serde_json::json;

/// Time without an answer from an edge after which the job fails, in milliseconds. A cron trigger calls an edge each
/// minute.
pub(crate) const SILENT_MS: u64 = 10 * 60_000;

/// The job `verify`: reads every key of the KV back and repairs differences.
#[derive(Debug)]
pub(crate) struct VerifyJob;

impl BackgroundJob for VerifyJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        verify_keys(context, run)
    }
}

/// Verifies all keys. A resumed run finds its unanswered requests in the store.
fn verify_keys(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    const SILENT: &str = "for ten minutes no edge reported the values of KV keys: check that the publish consumer runs; \
        `causeway_last_sync_age_seconds`, and `sync_failed` and `kv_read_failed` in the worker's log, show the cause; an edge of \
        an earlier release reads no keys back";
    let all = verify::count_keys(context.conn)?;
    let mut walk = VerifyPosition::from(run.cursor, so_far(run));
    // A later run, even a dry one, deleted this run's requests.
    if runs::is_behind(context.conn, run)? {
        walk = VerifyPosition::default();
    }
    if walk == VerifyPosition::default() {
        verify::forget_reads(context.conn)?;
    }
    let keep =
        |tx: &Connection, walk: &VerifyPosition| runs::save_cursor(tx, run.no, walk.cursor, &json!(walk.verified));
    let mut heard = (context.draw_inputs)()?.now;
    loop {
        let given = (context.draw_inputs)()?;
        heard = heard.min(given.now);
        let next = verify::verify_step(
            context.conn,
            context.rules,
            context.metrics,
            given,
            &mut walk,
            run.request.dry_run,
            &keep,
        )?;
        match next {
            VerifyStep::Looked => heard = given.now,
            VerifyStep::Asked => {}
            VerifyStep::Waits(due) if given.now <= heard.max(due).saturating_add(SILENT_MS) => {}
            VerifyStep::Waits(_) => {
                verify::forget_reads(context.conn)?;
                return Ok(JobReport { report: json!(walk.verified), failed: Some(SILENT.to_owned()) });
            }
            VerifyStep::Over => return Ok(json!(walk.verified).into()),
        }
        (context.report_progress)(walk.verified.keys, all)?;
        (context.pause)();
    }
}
