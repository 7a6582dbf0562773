//! The job `publish`: writes every key of the KV again.

use crate::campaigns::catalogue;
use crate::jobs::context::{BackgroundJob, JobContext, JobReport, SOME, count_visitors, so_far};
use crate::jobs::runs::{self, JobRun};
use crate::kv::publish;
use crate::kv::republish::RepublishCounts;
use crate::outbox::kv_key::KvKey;
use crate::store::job_error::JobError;
use crate::store::priority::Priority;
use crate::store::tenants::Tenants;
use crate::store::{StoreError, TenantNo, VisitorRow};
use rusqlite::Connection;
use serde_json::json;

/// The job `publish`: writes every key of the KV again.
#[derive(Debug)]
pub(crate) struct PublishJob;

impl BackgroundJob for PublishJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        publish_keys(context, run)
    }
}

/// Puts all keys into the outbox. Snapshots and lookups have a lower priority than keys that are due already.
fn publish_keys(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let all = count_visitors(context.conn)?;
    let (mut put, mut cursor): (RepublishCounts, VisitorRow) = (so_far(run), run.visitor_cursor());
    loop {
        let next = publish::visitor_page(context.conn, cursor, SOME)?;
        let Some((last, ..)) = next.last() else { break };
        cursor = *last;
        let mut subjects = Vec::new();
        for (_, tenant, visitor) in &next {
            let of = publish::keys_of_visitor(context.conn, &context.rules.tenants, *tenant, *visitor)?;
            put.count(&of);
            subjects.extend(of.into_iter().map(|subject| (*tenant, subject)));
        }
        if !run.request.dry_run {
            let given = (context.draw_inputs)()?;
            crate::store::write_txn::within_txn(context.conn, context.rules, context.metrics, given, |group| {
                // The new version must be higher than that of writes under way.
                group.next_version();
                group.priority = Priority::Bulk;
                subjects.into_iter().try_for_each(|(tenant, subject)| {
                    crate::outbox::queue::put_key(group, tenant, subject, group.now)
                })?;
                runs::save_cursor(group.tx, run.no, cursor.number(), &json!(put))
            })?;
        }
        (context.report_progress)(put.snapshots, all)?;
        (context.pause)();
    }
    put.of_tenants = if run.request.dry_run {
        of_tenants(context.conn, &context.rules.tenants)?.len() as u64
    } else {
        crate::store::write_txn::within_txn(
            context.conn,
            context.rules,
            context.metrics,
            (context.draw_inputs)()?,
            |group| {
                group.next_version();
                let all = of_tenants(group.tx, &group.rules.tenants)?;
                for (tenant, subject) in &all {
                    // The pointer waits for the value that it names.
                    if let KvKey::Catalogue(version) = subject {
                        catalogue::handed(group, *tenant, *version, None)?;
                    }
                    crate::outbox::queue::put_key(group, *tenant, *subject, group.now)?;
                }
                Ok::<_, StoreError>(all.len() as u64)
            },
        )?
    };
    Ok(json!(put).into())
}

/// Keys of whole tenants, without outdated catalogues, whose deletions are in the outbox already.
pub(crate) fn of_tenants(conn: &Connection, tenants: &Tenants) -> Result<Vec<(TenantNo, KvKey)>, StoreError> {
    let mut all = Vec::new();
    for (tenant, subject) in publish::of_tenants(conn, tenants)? {
        let leaves =
            matches!(subject, KvKey::Catalogue(version) if catalogue::outdated_since(conn, tenant, version)?.is_some());
        all.extend((!leaves).then_some((tenant, subject)));
    }
    Ok(all)
}
