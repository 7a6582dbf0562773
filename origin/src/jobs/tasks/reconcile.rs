//! The job `reconcile`: computes all people again from all evidence and corrects the differences.

use crate::jobs::context::{BackgroundJob, JobContext, JobReport};
use crate::jobs::runs::JobRun;
use crate::maintenance::reconcile::{self, PersonDifference, ReconcilePlan};
use crate::store::job_error::JobError;
use crate::store::tenants::Tenants;
use serde_json::Value;
use serde_json::json;

/// Differences named in a report.
pub(crate) const NAMED: usize = 20;

/// The job `reconcile`: computes all people again from all evidence and corrects the differences.
#[derive(Debug)]
pub(crate) struct ReconcileJob;

impl BackgroundJob for ReconcileJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        reconcile_people(context, run)
    }
}

/// A resumed run plans again, because corrected differences no longer appear. Differences that remain after the
/// correction fail the run, so that an operator looks at them.
fn reconcile_people(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let plan = make_plan(context)?;
    let tenants = &context.rules.tenants;
    let mut report = describe_plan(&plan, tenants);
    if run.request.dry_run {
        return Ok(report.into());
    }
    let step = |done, all| {
        (context.pause)();
        (context.report_progress)(done, all)
    };
    let mended =
        reconcile::mend(context.conn, context.rules, context.metrics, || (context.draw_inputs)(), &plan, &step)?;
    let left = if plan.differences.is_empty() { plan } else { make_plan(context)? };
    let (large, small): (Vec<&PersonDifference>, Vec<_>) = left.differences.iter().partition(|one| one.is_too_large);
    if let Some(report) = report.as_object_mut() {
        report.insert("mended".to_owned(), mended.into());
        report.insert("left".to_owned(), json!(left.causes()));
        report.insert("too_large".to_owned(), large.len().into());
    }
    let failed = (!small.is_empty()).then(|| {
        let left = small.len();
        format!("{left} differences are left that should not be: run it again, and look at what `first` names")
    });
    Ok(JobReport { report, failed })
}

pub(crate) fn make_plan(context: &mut JobContext<'_>) -> Result<ReconcilePlan, JobError> {
    // The plan reads everything once. Memory-mapped pages would stay in this process's memory.
    context.conn.pragma_update(None, "mmap_size", 0)?;
    context.conn.pragma_update(None, "cache_size", -64 * 1_024)?; // KiB
    let snapshot = context.conn.transaction()?;
    reconcile::plan(&snapshot, &context.rules.tenants, context.report_progress)
}

pub(crate) fn describe_plan(plan: &ReconcilePlan, tenants: &Tenants) -> Value {
    let name =
        |of: &PersonDifference| tenants.by_no(of.tenant).map(|known| known.config.name.clone()).unwrap_or_default();
    let named = |of: &PersonDifference| json!({"tenant": name(of), "cause": of.cause.code(), "master": of.master.to_string(), "visitors": of.visitors});
    json!({
        "visitors": plan.visitors, "links": plan.links, "people": plan.people, "differences": plan.causes(),
        "first": plan.differences.iter().take(NAMED).map(named).collect::<Vec<_>>(),
    })
}
