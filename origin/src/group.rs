//! One transaction of the writer, over the calls of several edges: intake → fold → link → publish.

use causeway_shared::ids::{Epoch, Millis, Version};
use causeway_shared::wire::sync::SyncResponse;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::intake::Incoming;
use crate::metrics::Metrics;
use crate::store::{Counters, StoreError};
use crate::tenants::Tenants;
use crate::{fold, intake, link, publish};

/// What all groups of one process have in common.
#[derive(Debug)]
pub struct Rules {
    /// The tenants served.
    pub tenants: Tenants,
    /// How long a person's siblings wait for news of one another.
    pub sibling_publish_ms: Millis,
}

/// The transaction under way, and what its steps need.
#[derive(Debug)]
pub struct Group<'a> {
    /// The transaction.
    pub tx: &'a Transaction<'a>,
    /// What all groups have in common.
    pub rules: &'a Rules,
    /// What is counted. Only things that stay true should the transaction fail are counted within it.
    pub metrics: &'a Metrics,
    /// The time of the whole group.
    pub now: Millis,
    counters: Counters,
}

impl Group<'_> {
    /// A version that was never issued.
    pub fn next_version(&mut self) -> Version {
        self.counters.next_version()
    }

    /// The version issued last.
    #[must_use]
    pub fn version(&self) -> Version {
        self.counters.version()
    }

    /// An epoch that was never issued.
    pub fn next_epoch(&mut self) -> Epoch {
        self.counters.next_epoch()
    }
}

/// Takes all calls into the store, durably, and gives their answers in order.
///
/// # Errors
/// [`StoreError`]; then nothing at all was kept, and no call may be acknowledged.
pub fn commit(
    conn: &mut Connection,
    rules: &Rules,
    metrics: &Metrics,
    now: Millis,
    calls: &[Incoming],
) -> Result<Vec<SyncResponse>, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let counters = Counters::load(&tx)?;
    let mut group = Group { tx: &tx, rules, metrics, now, counters };
    let (fresh, mut answers) = intake::take(&group, calls)?;
    let changed = fold::fold(&mut group, &fresh)?;
    let linked = link::link(&mut group, &fresh)?;
    publish::note(&mut group, &changed, &linked)?;
    for (call, answer) in calls.iter().zip(&mut answers) {
        publish::acknowledge(&group, &call.applied)?;
        answer.publish = publish::hand_out(&mut group, call.drain)?;
    }
    let pending = publish::pending(&group)?;
    answers.iter_mut().for_each(|answer| answer.pending = pending);
    group.counters.save(&tx)?;
    tx.commit()?;
    Ok(answers)
}
