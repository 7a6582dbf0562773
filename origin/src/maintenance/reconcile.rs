//! Reconcile: who belongs together, found anew from all evidence and compared with the people that the store has (S5.6).
//!
//! Links are made as facts come, around the visitors concerned. This is the same decision (`causeway_shared::identity::people`) over
//! everything at once, so that what a fault, a repair by hand or a bound has left wrong is found and mended:
//! [`gather`] → decide → [`compare`] give a [`Plan`]; [`mend`] follows it in transactions of few people each, each of which
//! looks at the evidence again, so that the origin may serve meanwhile and a run that was ended is no harm.

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
use crate::store::tenants::Tenants;
use crate::store::write_txn::{TxnInputs, TxnRules};
use crate::store::{PersonNo, StoreError, TenantNo};

/// Visitors of people that are mended in one transaction, but for a single larger person or row.
const AT_ONCE: u64 = 1_000;

/// Told what is done, of how much; an error of it is the answer.
type Progress<'a> = &'a dyn Fn(u64, u64) -> Result<(), StoreError>;

/// What is wrong with a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Visitors that evidence connects are several people.
    Apart,
    /// Visitors that no evidence connects are one.
    Together,
    /// The master is not the oldest visitor.
    Master,
    /// The number of visitors is another.
    Devices,
    /// A visitor belongs to its person more, or less, surely.
    Weight,
    /// Visitors point to a row that is not there.
    NoRow,
    /// A row that no visitor points to.
    Empty,
    /// Evidence is flagged that links, or is not flagged and does not.
    Flag,
}

impl Cause {
    /// A stable name for reports and metrics.
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

/// A person that is not as its evidence says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// What is wrong.
    pub cause: Cause,
    /// Whose.
    pub tenant: TenantNo,
    /// The master that it should have; of an empty row the one it has.
    pub master: VisitorId,
    /// How many visitors it should have.
    pub visitors: u32,
    /// The visitor to look at: of a large person the one that is wrong, else the master.
    pub start: VisitorId,
    /// How many visitors are looked at then, about.
    around: u32,
    /// Whether it can only be told: shared ids chain more than [`causeway_shared::base::limits::AROUND_VISITORS`] visitors.
    pub is_too_large: bool,
    /// The row, of an empty one.
    pub row: Option<PersonNo>,
}

/// Who speaks for the unique id of a large person while it is mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaking {
    /// The person.
    pub tenant: TenantNo,
    /// Its master, as it should be.
    pub master: VisitorId,
    /// A visitor that holds the id.
    pub visitor: VisitorId,
    /// Whether most of the person's visitors are in its row, which then stays theirs.
    pub keeps_row: bool,
}

/// What there is, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Visitors looked at: those of configured tenants.
    pub visitors: u64,
    /// Pieces of evidence that may link.
    pub links: u64,
    /// People that the evidence makes.
    pub people: u64,
    /// What differs, the people in order; one may differ in several ways.
    pub differences: Vec<Difference>,
    /// For those of them that are large.
    pub speakers: Vec<Speaking>,
}

impl Plan {
    /// How many differences there are of each cause.
    #[must_use]
    pub fn causes(&self) -> BTreeMap<&'static str, u64> {
        let mut causes = BTreeMap::new();
        for difference in &self.differences {
            *causes.entry(difference.cause.code()).or_default() += 1;
        }
        causes
    }
}

/// Finds what differs, over all configured tenants. `conn` should be within one transaction, or what is written meanwhile
/// looks like a difference. Some 60 bytes of memory a visitor, and as many a link. `progress` is told rows read and rows
/// there are, both about; what it gives ends the plan.
///
/// # Errors
/// [`StoreError`].
pub fn plan(conn: &Connection, tenants: &Tenants, progress: Progress<'_>) -> Result<Plan, StoreError> {
    let gather::GatheredEvidence { visitors, mut claims, mut unsure, classes, flagged } =
        gather::gather_evidence(conn, tenants, progress)?;
    let count = gather::short_length(visitors.len())?;
    let class = |id: u32| classes.get(id as usize).copied().unwrap_or_default();
    let decided = decide_claims(count, &mut claims, &mut unsure, class);
    let links = (claims.len() + unsure.len()) as u64;
    drop((claims, unsure, classes));
    let plan = compare::compare_people(conn, tenants, &visitors, decided, flagged)?;
    Ok(Plan { visitors: visitors.len() as u64, links, ..plan })
}

/// Mends what differs and is not too large, from the evidence as it is by then; gives how many people were changed. `progress` is told
/// differences seen to and differences there are after each transaction; an error of it ends the mending.
///
/// # Errors
/// [`StoreError`]; transactions before it are kept.
pub fn mend(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    mut given: impl FnMut() -> Result<TxnInputs, StoreError>,
    plan: &Plan,
    progress: Progress<'_>,
) -> Result<u64, StoreError> {
    let (mut changed, mut done) = (0, 0);
    let mut speakers: BTreeMap<(TenantNo, VisitorId), Speaking> =
        plan.speakers.iter().map(|speaking| ((speaking.tenant, speaking.master), *speaking)).collect();
    let small: Vec<Difference> = plan.differences.iter().filter(|one| !one.is_too_large).copied().collect();
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
        // Of all: who is looked at may be in a row with visitors of another.
        wrong.speakers.extend(speakers.values().map(|one| (one.tenant, one.visitor, one.keeps_row)));
        changed += crate::store::write_txn::within_txn(conn, rules, metrics, given()?, |group| {
            mend::mend_people(group, &wrong)
        })?;
        // From now on its row is the right one.
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
