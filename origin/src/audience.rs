//! Audiences: all people of each tenant in columns ([`causeway_shared::audience::index`]), kept beside the store, and what is asked
//! of them. The columns follow the store: each transaction notes whose row is another now ([`note`]), and a thread writes
//! these rows anew ([`follow`]). They hold nothing that the store does not: a process reads their file, or builds them.

pub mod best_times;

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
use crate::profiles::fold::Changed;
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo};

/// Changes that are kept for who follows them; who is further behind begins anew.
const KEPT: i64 = 5_000_000;

/// The columns of all tenants. Cloning gives another handle to the same ones.
#[derive(Debug, Clone, Default)]
pub struct Audience(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    columns: RwLock<Columns>,
    stopping: AtomicBool,
}

/// What follows the store.
#[derive(Debug, Default)]
pub struct Columns {
    /// Each tenant's people.
    pub of_tenant: BTreeMap<TenantNo, AudienceIndex>,
    /// People that cannot be read, with the tenant of each: they have no row.
    pub unreadable: BTreeMap<PersonNo, TenantNo>,
    /// Names of events that each tenant's people count.
    pub event_names: BTreeMap<TenantNo, BTreeSet<String>>,
    /// Up to when what was committed is in them; `None` while they are being built.
    pub as_of: Option<Millis>,
    /// How many people were read for them so far, and how many there are: while they are being built.
    pub building: (u64, u64),
}

impl Columns {
    /// How many people of a tenant have no row, as they cannot be read.
    #[must_use]
    pub fn unreadable_of(&self, tenant: TenantNo) -> u64 {
        self.unreadable.values().filter(|of| **of == tenant).count() as u64
    }
}

impl Audience {
    /// As they are now. Nobody writes them meanwhile.
    pub fn read(&self) -> RwLockReadGuard<'_, Columns> {
        self.0.columns.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Columns> {
        self.0.columns.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread that follows the store.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Relaxed)
    }
}

/// Notes whose row is another after this group.
///
/// # Errors
/// [`StoreError::Sqlite`]; then nothing of the group may be kept.
pub fn note(group: &WriteTxn<'_>, changed: &[Changed], linked: &LinkChanges) -> Result<(), StoreError> {
    const OF_VISITOR: &str = "SELECT person FROM visitors WHERE tenant = ?1 AND visitor = ?2";
    const NOTE: &str = "INSERT INTO people_changed (person) VALUES (?1)";
    // Columns of before it may hold somebody who is erased.
    const ERASED: &str =
        "UPDATE meta SET columns_erased = ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'people_changed'), 0)";
    let mut people: BTreeSet<PersonNo> = linked.rows.clone();
    people.extend(linked.people.iter().map(|change| change.person));
    people.extend(changed.iter().map(|changed| changed.person));
    for (tenant, visitor) in &linked.withdrawn {
        let place = (tenant.0, visitor.as_bytes());
        people
            .extend(group.tx.prepare_cached(OF_VISITOR)?.query_row(place, |row| row.get(0).map(PersonNo)).optional()?);
    }
    let mut note = group.tx.prepare_cached(NOTE)?;
    people.into_iter().try_for_each(|person| note.execute([person.0]).map(drop))?;
    if !linked.erased.is_empty() {
        group.tx.execute(ERASED, [])?;
    }
    forget(group.tx, KEPT)
}

/// Forgets all but the newest changes, so many.
fn forget(conn: &Connection, kept: i64) -> Result<(), StoreError> {
    const FORGET: &str = "DELETE FROM people_changed WHERE seq <= (SELECT max(seq) FROM people_changed) - ?1";
    Ok(conn.prepare_cached(FORGET)?.execute([kept]).map(drop)?)
}
