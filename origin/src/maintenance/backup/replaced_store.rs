//! What a restored store must know of the one it replaces, part by part: a damaged page costs the part it is of, and what
//! could not be read is named. Decides nothing, and never fails: a store that cannot be read is no reason to stay without one.

pub(crate) use crate::store::unread_parts::UnreadParts;
use std::path::Path;

use causeway_shared::base::ids::SnapshotVersion;
use rusqlite::Connection;

use crate::campaigns::catalogue::{self, TenantNumbers};
use crate::store::{self, StoreCounters, StoreError};

/// What a restored store must know of the one it replaces.
#[derive(Debug, Clone, Default)]
pub struct ReplacedStore {
    pub(super) restore: u32,
    pub(super) version: u64,
    /// The newest record of the log that is in it.
    pub(super) folded: u64,
    tenants: Vec<(i64, String)>,
    pub(super) names: Vec<(i64, i64, String, i64)>,
    pub(super) catalogues: catalogue::ReplacedRows,
    pub(super) sends: crate::audience::carried_sends::ReplacedSends,
    /// What the KV may hold a value of: tenant, kind and subject as the outbox has them.
    pub(super) subjects: Vec<(i64, u16, [u8; 16])>,
}

impl ReplacedStore {
    /// Of another store: its restore epoch is all that matters here.
    #[must_use]
    pub fn issued(restore: u32) -> Self {
        Self { restore, ..Self::default() }
    }

    /// As far as the store in `data` can be read: nothing where there is none.
    pub(super) fn of(data: &Path, unread: &mut UnreadParts) -> Self {
        match store::open_any(data) {
            Ok(conn) => Self::gather(&conn, unread),
            Err(StoreError::Missing(_)) => Self::default(),
            Err(why) => {
                unread.add("store", why);
                Self::default()
            }
        }
    }

    /// Of an open store, all of it.
    ///
    /// # Errors
    /// [`StoreError`]: why the first part could not be read.
    pub fn of_conn(conn: &Connection) -> Result<Self, StoreError> {
        let mut unread = UnreadParts::default();
        let before = Self::gather(conn, &mut unread);
        unread.into_first().map_or(Ok(before), Err)
    }

    fn gather(conn: &Connection, unread: &mut UnreadParts) -> Self {
        // Tokens are among the first of these.
        let mut catalogues = catalogue::ReplacedRows::of(conn, unread);
        let counters = StoreCounters::load(conn).map(|counters| (counters.folded(), counters.version()));
        let (folded, SnapshotVersion { restore, counter: version }) = unread.or_none("counters", counters);
        let tenants = unread.or_none("tenants", list_tenants(conn));
        if unread.has("tenants") {
            // Another tenant may have the number in the store that comes back: what is a tenant's would be another's.
            for part in catalogue::OF_TENANTS.into_iter().chain(["attribute_names", "sends", "keys"]) {
                unread.add(part, StoreError::Corrupt { what: "tenant's name" });
            }
            catalogues.leave_tenants();
            return Self { restore, version, folded, catalogues, ..Self::default() };
        }
        let read = "SELECT tenant, token, name, kind FROM attribute_names ORDER BY tenant, token";
        let names = unread
            .rows("attribute_names", conn, (read, []), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
        // A part of those whom a send drew is worse than none: the others would be told twice.
        let sends = unread.or_none("sends", crate::audience::carried_sends::ReplacedSends::of(conn));
        Self { restore, version, folded, tenants, names, catalogues, sends, subjects: list_keys(conn, unread) }
    }

    /// The tenants' numbers in the copy, which may be of another origin: a name that it does not have gets one.
    pub(super) fn numbers(&self, conn: &Connection) -> Result<TenantNumbers, StoreError> {
        let mut numbers = TenantNumbers::default();
        for (number, name) in &self.tenants {
            conn.execute("INSERT OR IGNORE INTO tenants (tenant, name) VALUES (?1, ?2)", (number, name))?;
            numbers.0.insert(*number, store::tenant_no(conn, name)?.0);
        }
        Ok(numbers)
    }
}

/// From the index that holds all of it, or from the table: much hangs on them.
fn list_tenants(conn: &Connection) -> Result<Vec<(i64, String)>, StoreError> {
    let read = |from: &str| {
        let mut tenants = conn.prepare(&format!("SELECT tenant, name FROM {from}"))?;
        tenants.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<Vec<_>, _>>()
    };
    Ok(read("tenants").or_else(|_| read("tenants NOT INDEXED"))?)
}

/// What the outbox has is not all in the store: an earlier restore left it what came since its backup.
fn list_keys(conn: &Connection, unread: &mut UnreadParts) -> Vec<(i64, u16, [u8; 16])> {
    const SUBJECTS: [&str; 4] = [
        "SELECT tenant, 0, visitor FROM visitors",
        "SELECT tenant, kind, hash FROM lookups",
        "SELECT tenant, kind, hash FROM alternates",
        "SELECT tenant, kind, subject FROM outbox",
    ];
    let mut subjects = Vec::new();
    for read in SUBJECTS {
        subjects.extend(unread.rows("keys", conn, (read, []), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))));
    }
    subjects.extend(unread.or_none("keys", catalogue::standing_pointers(conn)));
    subjects
}
