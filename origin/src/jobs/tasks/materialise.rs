//! The job `materialise`: audiences that are kept as segments are made what their filters mean now ([`crate::audience::materialized`]). A run that
//! was cut finds what it wrote before to be as it should.

use crate::base::job_kinds::JobKind;
use crate::jobs::context::BackgroundJob;
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
use crate::jobs::context::{JobContext, JobReport, isolate_failure};
use crate::jobs::runs::JobRun;
use crate::pipeline::commit;
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo};

/// Audiences told in a report.
const TOLD: usize = 100;

/// What a refresh came to, or would.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RefreshReport {
    /// Whose.
    pub tenant: String,
    /// The segment.
    pub segment: u32,
    /// Who is in it.
    pub members: u64,
    /// Who was not.
    pub added: u64,
    /// Who was, and is meant no more.
    pub removed: u64,
    /// Whose time was half over.
    pub renewed: u64,
    /// How many people of the tenant cannot be read, and so are in no audience.
    pub unreadable: u64,
    /// Why it could not be refreshed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The job `materialise`: renews the audiences that are stored as segments.
#[derive(Debug)]
pub(crate) struct MaterialiseJob;

impl BackgroundJob for MaterialiseJob {
    fn kind(&self) -> JobKind {
        JobKind::Materialise
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        refresh_audiences(place, run)
    }
}

/// Refreshes all that are due, those too that become due meanwhile.
///
/// # Errors
/// [`StoreError`]. An audience that cannot be refreshed, as the store cannot give what it needs too, lets the others go on, and
/// fails the run; it is tried again in an hour.
fn refresh_audiences(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    let (mut done, mut all, mut failed) = (BTreeSet::new(), Vec::new(), None);
    loop {
        let now = (place.given)()?.now;
        let mut due = materialized::list_audiences(place.conn, None)?.into_iter().filter(|kept| kept.is_due(now));
        let Some(kept) = due.find(|kept| done.insert((kept.tenant, kept.segment))) else { break };
        // Of a tenant that is not configured now nothing is said.
        let Ok(known) = place.rules.tenants.by_no(kept.tenant) else {
            postpone_audience(place, run, &kept)?;
            continue;
        };
        let mut refreshed =
            RefreshReport { tenant: known.config.name.clone(), segment: kept.segment.0, ..RefreshReport::default() };
        if let Err(why) = isolate_failure(refresh_members(place, run, known, &kept, &mut refreshed))?.flatten() {
            postpone_audience(place, run, &kept)?;
            failed.get_or_insert_with(|| format!("segment {} of {}: {why}", kept.segment.0, refreshed.tenant));
            refreshed.error = Some(why);
        }
        if all.len() < TOLD {
            all.push(refreshed);
        }
    }
    Ok(JobReport { report: json!({ "audiences": done.len(), "refreshed": all }), failed })
}

/// Refreshes one; or why that cannot be.
fn refresh_members(
    place: &mut JobContext<'_>,
    run: &JobRun,
    known: &TenantContext,
    kept: &MaterializedAudience,
    refreshed: &mut RefreshReport,
) -> Result<Result<(), String>, StoreError> {
    let filter = kept.filter.as_ref().map(|text| query::parse_stored(place.conn, known, text)).transpose()?.transpose();
    let matching = match filter {
        Ok(Some(filter)) => audience_members(place, kept.tenant, &filter)?,
        Ok(None) => Ok(AllMembers::default()),
        Err(why) => Err(why),
    };
    let matching = match matching {
        Ok(matching) => matching,
        Err(why) => return Ok(Err(why)),
    };
    let holders = audience_members(place, kept.tenant, &members_filter(place.conn, known, kept.segment)?)?;
    match holders {
        Ok(holders) => {
            refreshed.unreadable = holders.unreadable.max(matching.unreadable);
            refresh_one(place, run, kept, &AudiencePeople::new(matching.members, holders.members), refreshed).map(Ok)
        }
        Err(why) => Ok(Err(why)),
    }
}

/// The filter of the people who are in a segment.
///
/// # Errors
/// [`StoreError`].
pub fn members_filter(conn: &Connection, known: &TenantContext, segment: SegmentId) -> Result<Filter, StoreError> {
    let filter = query::parse_filter(conn, known, &json!({ "segments": segment.0 }))?;
    filter.map_err(|_| StoreError::Corrupt { what: "filter of a segment" })
}

fn postpone_audience(place: &JobContext<'_>, run: &JobRun, kept: &MaterializedAudience) -> Result<(), StoreError> {
    if run.asked.dry_run { Ok(()) } else { materialized::postpone_refresh(place.conn, kept, (place.given)()?.now) }
}

/// Who is meant, in order; or why that cannot be said.
pub(crate) fn audience_members(
    place: &mut JobContext<'_>,
    tenant: TenantNo,
    filter: &Filter,
) -> Result<Result<AllMembers, String>, StoreError> {
    let audience = (place.audience)()?;
    loop {
        let now = (place.given)()?.now;
        match query::list_members(&audience, place.conn, tenant, filter, now) {
            Ok(mut everyone) => {
                everyone.members.sort_unstable();
                return Ok(Ok(everyone));
            }
            Err(AnswerError::Building { done, all }) => {
                (place.told)(done, all)?;
                (place.pause)();
            }
            Err(AnswerError::Store(e)) => return Err(e),
            Err(e) => return Ok(Err(e.to_string())),
        }
    }
}

fn refresh_one(
    place: &mut JobContext<'_>,
    run: &JobRun,
    kept: &MaterializedAudience,
    people: &AudiencePeople,
    refreshed: &mut RefreshReport,
) -> Result<(), StoreError> {
    let began = (place.given)()?.now;
    let (rules, metrics, all) = (place.rules, place.metrics, people.members());
    let (given, pause, told) = (place.given, place.pause, place.told);
    compare_members(place.conn, kept, people, began, refreshed, |conn, page, done| {
        if !run.asked.dry_run && !page.changes.is_empty() {
            let given = given()?;
            let facts = materialized::change_facts(kept, &page.changes, given.now);
            let facts = facts.into_iter().map(|fact| CheckedFact { tenant: kept.tenant, fact }).collect();
            let record = Arc::new(LogRecord::bulk(facts, Attribution::by("job:materialise")));
            let note = |tx: &Connection| materialized::note_changes(tx, kept, &page.changes);
            commit::commit_with(conn, rules, metrics, given, |_| Ok([record]), &[], note)?;
            pause();
        }
        told(done, all)
    })?;
    let ended = (place.given)()?.now;
    if run.asked.dry_run {
        Ok(())
    } else {
        materialized::note_refreshed(place.conn, kept, refreshed.members, (began, ended))
    }
}

/// Compares who is meant, in order, with what was written, a page at a time: `each` does what a page asks for, and is told how
/// many members were looked at.
///
/// # Errors
/// [`StoreError`].
pub fn compare_members(
    conn: &mut Connection,
    kept: &MaterializedAudience,
    people: &AudiencePeople,
    now: Millis,
    sums: &mut RefreshReport,
    mut each: impl FnMut(&mut Connection, &ComparedPage, u64) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = materialized::compare_page(conn, kept, people, after, now)?;
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
