//! The job `materialise`: updates the segments of materialised audiences to the current matches of their filters
//! ([`crate::audience::materialized`]). After an interruption, the next run compares again and writes only the
//! remaining differences.

use std::collections::BTreeSet;
use std::sync::Arc;

use causeway_shared::base::ids::Millis;
use causeway_shared::facts::segments::SegmentId;
use causeway_shared::targeting::filter::Filter;
use rusqlite::Connection;
use serde::Serialize;
use serde_json::json;

use crate::audience::materialized::{self, AudiencePeople, ComparedPage, MaterializedAudience};
use crate::audience::query::{self, AllMembers, AnswerError};
use crate::base::attribution::Attribution;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::jobs::context::BackgroundJob;
use crate::jobs::context::{JobContext, JobReport, isolate_failure};
use crate::jobs::runs::JobRun;
use crate::pipeline::commit;
use crate::store::job_error::JobError;
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo};

/// Most audiences named in a report.
const REPORTED: usize = 100;

/// Report of a refresh. A dry run reports what it would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RefreshReport {
    /// Name of the tenant.
    pub tenant: String,
    /// The segment.
    pub segment: u32,
    /// Members of the audience.
    pub members: u64,
    /// People who were added.
    pub added: u64,
    /// People who were removed because they no longer match.
    pub removed: u64,
    /// Members whose expiry was renewed.
    pub renewed: u64,
    /// People of the tenant that are left out because their stored values cannot be read.
    pub unreadable: u64,
    /// Reason why the refresh failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The job `materialise`: refreshes the materialised audiences.
#[derive(Debug)]
pub(crate) struct MaterialiseJob;

impl BackgroundJob for MaterialiseJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        refresh_audiences(context, run)
    }
}

/// Refreshes all audiences that are due, including audiences that become due during the run.
///
/// # Errors
/// [`JobError`]. A failed audience does not stop the others; it fails the run and is tried again after an hour.
fn refresh_audiences(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let (mut done, mut all, mut failed) = (BTreeSet::new(), Vec::new(), None);
    loop {
        let now = (context.draw_inputs)()?.now;
        let mut due =
            materialized::list_audiences(context.conn, None)?.into_iter().filter(|audience| audience.is_due(now));
        let Some(audience) = due.find(|audience| done.insert((audience.tenant, audience.segment))) else { break };
        // An audience of a tenant that is not configured is postponed without a report.
        let Ok(known) = context.rules.tenants.by_no(audience.tenant) else {
            postpone_audience(context, run, &audience)?;
            continue;
        };
        let mut refreshed = RefreshReport {
            tenant: known.config.name.clone(),
            segment: audience.segment.0,
            ..RefreshReport::default()
        };
        if let Err(why) = isolate_failure(refresh_members(context, run, known, &audience, &mut refreshed))?.flatten() {
            postpone_audience(context, run, &audience)?;
            failed.get_or_insert_with(|| format!("segment {} of {}: {why}", audience.segment.0, refreshed.tenant));
            refreshed.error = Some(why);
        }
        if all.len() < REPORTED {
            all.push(refreshed);
        }
    }
    Ok(JobReport { report: json!({ "audiences": done.len(), "refreshed": all }), failed })
}

/// Refreshes one audience. The inner error is the reason why it failed.
fn refresh_members(
    context: &mut JobContext<'_>,
    run: &JobRun,
    known: &TenantContext,
    audience: &MaterializedAudience,
    refreshed: &mut RefreshReport,
) -> Result<Result<(), String>, JobError> {
    let filter =
        audience.filter.as_ref().map(|text| query::parse_stored(context.conn, known, text)).transpose()?.transpose();
    let matching = match filter {
        Ok(Some(filter)) => audience_members(context, audience.tenant, &filter)?,
        Ok(None) => Ok(AllMembers::default()),
        Err(why) => Err(why),
    };
    let matching = match matching {
        Ok(matching) => matching,
        Err(why) => return Ok(Err(why)),
    };
    let holders = audience_members(context, audience.tenant, &members_filter(context.conn, known, audience.segment)?)?;
    match holders {
        Ok(holders) => {
            refreshed.unreadable = holders.unreadable.max(matching.unreadable);
            refresh_one(context, run, audience, &AudiencePeople::new(matching.members, holders.members), refreshed)
                .map(Ok)
        }
        Err(why) => Ok(Err(why)),
    }
}

/// Filter of the people who are in a segment.
///
/// # Errors
/// [`StoreError`].
pub fn members_filter(conn: &Connection, known: &TenantContext, segment: SegmentId) -> Result<Filter, StoreError> {
    let filter = query::parse_filter(conn, known, &json!({ "segments": segment.0 }))?;
    filter.map_err(|_| StoreError::Corrupt { what: "filter of a segment" })
}

fn postpone_audience(context: &JobContext<'_>, run: &JobRun, audience: &MaterializedAudience) -> Result<(), JobError> {
    if run.request.dry_run {
        Ok(())
    } else {
        Ok(materialized::postpone_refresh(context.conn, audience, (context.draw_inputs)()?.now)?)
    }
}

/// The people who match a filter, sorted. The inner error is the reason why there is no answer.
pub(crate) fn audience_members(
    context: &mut JobContext<'_>,
    tenant: TenantNo,
    filter: &Filter,
) -> Result<Result<AllMembers, String>, JobError> {
    let audience = (context.audience)()?;
    loop {
        let now = (context.draw_inputs)()?.now;
        match query::list_members(&audience, context.conn, tenant, filter, now) {
            Ok(mut everyone) => {
                everyone.members.sort_unstable();
                return Ok(Ok(everyone));
            }
            Err(AnswerError::Building { done, all }) => {
                (context.report_progress)(done, all)?;
                (context.pause)();
            }
            Err(AnswerError::Store(e)) => return Err(e.into()),
            Err(AnswerError::Panicked) => return Err(JobError::Panicked),
            Err(e) => return Ok(Err(e.to_string())),
        }
    }
}

fn refresh_one(
    context: &mut JobContext<'_>,
    run: &JobRun,
    audience: &MaterializedAudience,
    people: &AudiencePeople,
    refreshed: &mut RefreshReport,
) -> Result<(), JobError> {
    let began = (context.draw_inputs)()?.now;
    let (rules, metrics, all) = (context.rules, context.metrics, people.members());
    let (given, pause, told) = (context.draw_inputs, context.pause, context.report_progress);
    compare_members(context.conn, audience, people, began, refreshed, |conn, page, done| {
        if !run.request.dry_run && !page.changes.is_empty() {
            let given = given()?;
            let facts = materialized::change_facts(audience, &page.changes, given.now);
            let facts = facts.into_iter().map(|fact| CheckedFact { tenant: audience.tenant, fact }).collect();
            let record = Arc::new(LogRecord::bulk(facts, Attribution::by("job:materialise")));
            let note = |tx: &Connection| materialized::note_changes(tx, audience, &page.changes);
            commit::commit_with(conn, rules, metrics, given, |_| Ok([record]), &[], note)?;
            pause();
        }
        told(done, all)
    })?;
    let ended = (context.draw_inputs)()?.now;
    if run.request.dry_run {
        Ok(())
    } else {
        Ok(materialized::note_refreshed(context.conn, audience, refreshed.members, (began, ended))?)
    }
}

/// Compares the matching people with the written rows, one page at a time. `each` applies a page and receives the
/// number of members compared so far.
///
/// # Errors
/// [`StoreError`], or the error of `each`.
pub fn compare_members<E: From<StoreError>>(
    conn: &mut Connection,
    audience: &MaterializedAudience,
    people: &AudiencePeople,
    now: Millis,
    sums: &mut RefreshReport,
    mut each: impl FnMut(&mut Connection, &ComparedPage, u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut after = None;
    loop {
        let page = materialized::compare_page(conn, audience, people, after, now)?;
        sums.members += page.members;
        sums.added += page.added;
        sums.removed += page.removed;
        sums.renewed += page.renewed;
        each(conn, &page, sums.members)?;
        after = page.last;
        if after.is_none() {
            return Ok(());
        }
    }
}
