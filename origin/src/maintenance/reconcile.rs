//! Reconcile: computes all people again from all evidence and compares them with the stored people.
//!
//! Links are decided as facts arrive, for the visitors concerned. This job takes the same decision
//! (`causeway_shared::identity::people`) over everything at once, and so finds and repairs damage from a fault, a
//! manual repair or a bound. [`gather`], the decision and [`compare`] give a [`ReconcilePlan`]. [`mod@mend`] carries it
//! out in transactions of few people each. Each transaction reads the evidence again, so the origin may serve in
//! parallel, and an interrupted run does no harm.

mod compare;
mod gather;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use causeway_shared::base::ids::VisitorId;
use causeway_shared::identity::people::decide_claims;
use rusqlite::Connection;

use crate::base::metrics::Metrics;
use crate::identity::link::SuspectPeople;
use crate::pipeline::mend;
use crate::store::job_error::JobError;
use crate::store::tenants::Tenants;
use crate::store::write_txn::{TxnInputs, TxnRules};
use crate::store::{PersonNo, StoreError, TenantNo};

/// Most visitors of people that are repaired in one transaction, except for a single larger person or row.
const AT_ONCE: u64 = 1_000;

/// Progress callback `(done, total)`. An error that it returns ends the run with that error.
type Progress<'a> = &'a dyn Fn(u64, u64) -> Result<(), JobError>;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceCause {
    /// Evidence connects visitors that are stored as several people.
    Apart,
    /// No evidence connects visitors that are stored as one person.
    Together,
    /// The master is not the oldest visitor.
    Master,
    /// The stored number of visitors is wrong.
    Devices,
    /// The stored weight of a visitor's link is wrong.
    Weight,
    /// Visitors refer to a missing row of `people`.
    NoRow,
    /// No visitor refers to the row.
    Empty,
    /// Evidence is flagged although it links, or is not flagged although it does not.
    Flag,
}

impl DifferenceCause {
    /// Stable name for reports and metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::Together => "together",
            Self::Master => "master",
            Self::Devices => "devices",
            Self::Weight => "weight",
            Self::NoRow => "no_row",
            Self::Empty => "empty",
            Self::Flag => "flag",
        }
    }
}

/// A stored person that differs from its evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonDifference {
    /// The kind of the difference.
    pub cause: DifferenceCause,
    /// The person's tenant.
    pub tenant: TenantNo,
    /// The master that the person should have; for an empty row, the stored one.
    pub master: VisitorId,
    /// The number of visitors that the person should have.
    pub visitors: u32,
    /// The visitor at which the repair starts: the wrong visitor of a large person, otherwise the master.
    pub start: VisitorId,
    /// Estimated number of visitors that the repair reads.
    around: u32,
    /// Whether the difference can only be reported, because shared ids chain more than
    /// [`causeway_shared::base::limits::AROUND_VISITORS`] visitors.
    pub is_too_large: bool,
    /// The row, if it is empty.
    pub row: Option<PersonNo>,
}

/// The representative of a large person's unique id while the person is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepresentativeRepair {
    /// The person's tenant.
    pub tenant: TenantNo,
    /// The person's correct master.
    pub master: VisitorId,
    /// A visitor that holds the id.
    pub visitor: VisitorId,
    /// Whether most of the person's visitors are in the representative's row, which the person then keeps.
    pub keeps_row: bool,
}

/// The differences between store and evidence, with totals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReconcilePlan {
    /// Number of visitors of configured tenants.
    pub visitors: u64,
    /// Number of pieces of evidence that may link.
    pub links: u64,
    /// Number of people that the evidence gives.
    pub people: u64,
    /// The differences, sorted by person. A person may have several.
    pub differences: Vec<PersonDifference>,
    /// The representatives of the large people among them.
    pub representatives: Vec<RepresentativeRepair>,
}

impl ReconcilePlan {
    /// Number of differences by cause.
    #[must_use]
    pub fn causes(&self) -> BTreeMap<&'static str, u64> {
        let mut causes = BTreeMap::new();
        for difference in &self.differences {
            *causes.entry(difference.cause.code()).or_default() += 1;
        }
        causes
    }
}

/// Finds all differences of the configured tenants. `conn` should be within one transaction, because concurrent writes
/// look like differences. The plan needs about 60 bytes of memory per visitor and per link. `progress` gets the
/// approximate rows read and in total; its error ends the plan.
///
/// # Errors
/// [`JobError`].
pub fn plan(conn: &Connection, tenants: &Tenants, progress: Progress<'_>) -> Result<ReconcilePlan, JobError> {
    let gather::GatheredEvidence { visitors, mut claims, mut unsure, classes, flagged } =
        gather::gather_evidence(conn, tenants, progress)?;
    let count = gather::short_length(visitors.len())?;
    let class = |id: u32| classes.get(id as usize).copied().unwrap_or_default();
    let decided = decide_claims(count, &mut claims, &mut unsure, class);
    let links = (claims.len() + unsure.len()) as u64;
    drop((claims, unsure, classes));
    let plan = compare::compare_people(conn, tenants, &visitors, decided, flagged)?;
    Ok(ReconcilePlan { visitors: visitors.len() as u64, links, ..plan })
}

/// Repairs the differences that are not too large, from the evidence at that time. Returns the number of changed
/// people. `progress` gets the differences done and in total after each transaction; its error ends the repair.
///
/// # Errors
/// [`JobError`]; earlier transactions stay committed.
pub fn mend(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    mut given: impl FnMut() -> Result<TxnInputs, StoreError>,
    plan: &ReconcilePlan,
    progress: Progress<'_>,
) -> Result<u64, JobError> {
    let (mut changed, mut done) = (0, 0);
    let mut speakers: BTreeMap<(TenantNo, VisitorId), RepresentativeRepair> =
        plan.representatives.iter().map(|speaking| ((speaking.tenant, speaking.master), *speaking)).collect();
    let small: Vec<PersonDifference> = plan.differences.iter().filter(|one| !one.is_too_large).copied().collect();
    let mut left = small.as_slice();
    while !left.is_empty() {
        let mut visitors = 0;
        let some = left.iter().take_while(|difference| {
            visitors += u64::from(difference.around.max(1));
            visitors <= AT_ONCE
        });
        let (now, later) = left.split_at(some.count().max(1));
        let mut wrong = SuspectPeople {
            empty: now.iter().filter_map(|difference| difference.row).collect(),
            ..SuspectPeople::default()
        };
        let of_people = now.iter().filter(|difference| difference.row.is_none());
        wrong.visitors.extend(of_people.map(|difference| (difference.tenant, difference.start)));
        // Representatives of all large people, because a visitor may be in a row with visitors of another.
        wrong.representatives.extend(speakers.values().map(|one| (one.tenant, one.visitor, one.keeps_row)));
        changed += crate::store::write_txn::within_txn(conn, rules, metrics, given()?, |group| {
            mend::mend_people(group, &wrong)
        })?;
        // After its first repair, the representative's row is the correct one.
        for difference in now {
            let speaking = speakers.get_mut(&(difference.tenant, difference.master));
            speaking.into_iter().for_each(|speaking| speaking.keeps_row = true);
        }
        done += now.len() as u64;
        progress(done, small.len() as u64)?;
        left = later;
    }
    Ok(changed)
}
