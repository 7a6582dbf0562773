//! The facts that a restored store must take from the store that it replaces, read part by part. A damaged page costs
//! only its part, and each unreadable part is reported. This module decides nothing and never fails, because an
//! unreadable store must not prevent a restore.

pub(crate) use crate::store::unread_parts::UnreadParts;
use std::path::Path;

use causeway_shared::base::ids::SnapshotVersion;
use rusqlite::Connection;

use crate::campaigns::catalogue::{self, TenantNumbers};
use crate::store::tables::{alternates, attribute_names, lookups, outbox, tenants, visitors};
use crate::store::{self, OpenError, StoreCounters, StoreError};

/// The data that a restored store takes from the store that it replaces.
#[derive(Debug, Clone, Default)]
pub struct ReplacedStore {
    pub(super) restore: u32,
    pub(super) version: u64,
    /// The newest log record that the store has folded.
    pub(super) folded: u64,
    tenants: Vec<(i64, String)>,
    pub(super) names: Vec<(i64, i64, String, i64)>,
    pub(super) catalogues: catalogue::ReplacedRows,
    pub(super) sends: crate::audience::carried_sends::ReplacedSends,
    /// Keys that may have a value in the KV: tenant, kind and subject as in the outbox.
    pub(super) subjects: Vec<(i64, u16, [u8; 16])>,
}

impl ReplacedStore {
    /// The data of another installation's store, of which only the restore epoch matters.
    #[must_use]
    pub fn issued(restore: u32) -> Self {
        Self { restore, ..Self::default() }
    }

    /// Reads the store in `data` as far as possible. A missing store gives the default.
    pub(super) fn of(data: &Path, unread: &mut UnreadParts) -> Self {
        match store::open_any(data) {
            Ok(conn) => Self::gather(&conn, unread),
            Err(OpenError::Missing(_)) => Self::default(),
            Err(why) => {
                unread.add("store", why);
                Self::default()
            }
        }
    }

    /// Reads an open store completely.
    ///
    /// # Errors
    /// [`OpenError`] of the first part that could not be read.
    pub fn of_conn(conn: &Connection) -> Result<Self, OpenError> {
        let mut unread = UnreadParts::default();
        let before = Self::gather(conn, &mut unread);
        unread.into_first().map_or(Ok(before), Err)
    }

    fn gather(conn: &Connection, unread: &mut UnreadParts) -> Self {
        // Tenant numbers of the catalogue are read first.
        let mut catalogues = catalogue::ReplacedRows::of(conn, unread);
        let counters = StoreCounters::load(conn).map(|counters| (counters.folded(), counters.version()));
        let (folded, SnapshotVersion { restore, counter: version }) = unread.or_none("counters", counters);
        let tenants = unread.or_none("tenants", list_tenants(conn));
        if unread.has("tenants") {
            // In the restored store, the number may belong to another tenant, which would get this tenant's rows.
            for part in catalogue::OF_TENANTS.into_iter().chain(["attribute_names", "sends", "keys"]) {
                unread.add(part, StoreError::Corrupt { what: "tenant's name" });
            }
            catalogues.leave_tenants();
            return Self { restore, version, folded, catalogues, ..Self::default() };
        }
        let names = unread.rows("attribute_names", conn, (attribute_names::ATTRIBUTE_NAMES_ALL, []), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        });
        // A part of a send's people is worse than none: the missing people would get a second delivery.
        let sends = unread.or_none("sends", crate::audience::carried_sends::ReplacedSends::of(conn));
        Self { restore, version, folded, tenants, names, catalogues, sends, subjects: list_keys(conn, unread) }
    }

    /// Maps the tenants' numbers to those of the copy, which may come from another origin. A tenant that the copy lacks
    /// gets a number.
    pub(super) fn numbers(&self, conn: &Connection) -> Result<TenantNumbers, StoreError> {
        let mut numbers = TenantNumbers::default();
        for (number, name) in &self.tenants {
            conn.execute(tenants::TENANTS_INSERT_WITH_NUMBER, (number, name))?;
            numbers.0.insert(*number, store::tenant_no(conn, name)?.0);
        }
        Ok(numbers)
    }
}

/// Reads the tenants from the covering index or, if that is damaged, from the table, because every other part depends
/// on them.
fn list_tenants(conn: &Connection) -> Result<Vec<(i64, String)>, StoreError> {
    let read = |all: &str| {
        let mut tenants = conn.prepare(all)?;
        tenants.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<Vec<_>, _>>()
    };
    Ok(read(tenants::TENANTS_ALL).or_else(|_| read(tenants::TENANTS_ALL_NOT_INDEXED))?)
}

/// The keys of the store and of its outbox. An earlier restore left keys in the outbox that are not in the store.
fn list_keys(conn: &Connection, unread: &mut UnreadParts) -> Vec<(i64, u16, [u8; 16])> {
    const SUBJECTS: [&str; 4] =
        [visitors::VISITORS_KEYS, lookups::LOOKUPS_KEYS, alternates::ALTERNATES_KEYS, outbox::OUTBOX_KEYS];
    let mut subjects = Vec::new();
    for read in SUBJECTS {
        subjects.extend(unread.rows("keys", conn, (read, []), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))));
    }
    subjects.extend(unread.or_none("keys", catalogue::standing_pointers(conn)));
    subjects
}
