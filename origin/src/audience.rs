//! Audiences: the audience index, which holds all people of each tenant in memory
//! ([`causeway_shared::audience::index`]), and the queries over it. The index follows the store: each transaction notes
//! the people whose rows changed ([`note`]), and a thread rewrites these rows ([`index_follower`]). The index holds no
//! data of its own: a process loads it from its file or builds it from the store.

pub mod answers;
pub mod best_send_times;

pub mod carried_sends;
mod column_file;
pub mod index_follower;
pub mod materialized;
pub mod person_row;
pub mod query;
pub mod schedule;
pub mod send;
#[cfg(test)]
mod tests;
pub(crate) mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use causeway_shared::audience::index::AudienceIndex;
use causeway_shared::base::ids::Millis;
use rusqlite::{Connection, OptionalExtension as _};

use crate::identity::changes::LinkChanges;
use crate::profiles::fold::ChangedVisitor;
use crate::store::tables::{meta, people_changed, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo};

/// Number of newest changes that the store retains for followers. A follower that is further behind rebuilds its index.
const KEPT: i64 = 5_000_000;

/// Audience indexes of all tenants. A clone is another handle to the same indexes.
#[derive(Debug, Clone, Default)]
pub struct Audience(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    indexes: RwLock<AudienceIndexes>,
    stopping: AtomicBool,
}

/// The indexes, and the state that belongs to them.
#[derive(Debug, Default)]
pub struct AudienceIndexes {
    /// Each tenant's people.
    pub of_tenant: BTreeMap<TenantNo, AudienceIndex>,
    /// People whose stored values cannot be read, with their tenant. They have no row in the index.
    pub unreadable: BTreeMap<PersonNo, TenantNo>,
    /// Event names that each tenant's index counts.
    pub event_names: BTreeMap<TenantNo, BTreeSet<String>>,
    /// Time up to which committed changes are in the indexes; `None` while they are being built.
    pub as_of: Option<Millis>,
    /// Progress of a build: the number of people read so far, and the number of all people.
    pub building: (u64, u64),
}

impl AudienceIndexes {
    /// Number of a tenant's people without a row because their stored values cannot be read.
    #[must_use]
    pub fn unreadable_of(&self, tenant: TenantNo) -> u64 {
        self.unreadable.values().filter(|of| **of == tenant).count() as u64
    }
}

impl Audience {
    /// Read access to the indexes. The guard blocks writers.
    pub fn read(&self) -> RwLockReadGuard<'_, AudienceIndexes> {
        self.0.indexes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, AudienceIndexes> {
        self.0.indexes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the thread that follows the store.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Relaxed)
    }
}

/// Notes the people whose index rows this transaction changes.
///
/// # Errors
/// [`StoreError::Sqlite`]; the caller must roll the transaction back.
pub fn note(group: &WriteTxn<'_>, changed: &[ChangedVisitor], linked: &LinkChanges) -> Result<(), StoreError> {
    let mut people: BTreeSet<PersonNo> = linked.rows.clone();
    people.extend(linked.people.iter().map(|change| change.person));
    people.extend(changed.iter().map(|changed| changed.person));
    for (tenant, visitor) in &linked.withdrawn {
        let key = (tenant.0, visitor.as_bytes());
        people.extend(
            group
                .tx
                .prepare_cached(visitors::VISITORS_PERSON_OF_ID)?
                .query_row(key, |row| row.get(0).map(PersonNo))
                .optional()?,
        );
    }
    let mut note = group.tx.prepare_cached(people_changed::PEOPLE_CHANGED_INSERT)?;
    people.into_iter().try_for_each(|person| note.execute([person.0]).map(drop))?;
    if !linked.erased.is_empty() {
        group.tx.execute(meta::META_MARK_INDEX_ERASED, [])?;
    }
    forget(group.tx, KEPT)
}

/// Deletes all but the newest `retained` changes.
fn forget(conn: &Connection, retained: i64) -> Result<(), StoreError> {
    Ok(conn.prepare_cached(people_changed::PEOPLE_CHANGED_TRIM)?.execute([retained]).map(drop)?)
}
