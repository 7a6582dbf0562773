//! The store: one SQLite file. This module opens it, migrates its schema, and reads its counters and column forms.
//!
//! One thread writes ([`crate::pipeline::writer`]), and a few read-only connections read ([`crate::views::readers`]).
//! Nothing here decides anything.

pub mod names;
pub mod priority;
pub(crate) mod tables;
pub mod tenants;
pub mod write_txn;

mod checksum;
pub mod data_fault;
pub mod error;
pub mod files;
pub mod id_error;
pub mod identity;
pub mod job_error;
pub mod job_reports;
pub mod journal;
pub mod journal_error;
mod locks;
pub mod open_error;
mod row_numbers;
pub mod unread_parts;

use crate::base::folders::make_folder;
pub(crate) use crate::base::integers::signed;
use crate::base::integers::unsigned;
pub use crate::store::error::StoreError;
pub use crate::store::open_error::OpenError;
use crate::store::tables::{meta, sqlite_schema, visitors};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use causeway_shared::base::ids::{AltHash, Epoch, SnapshotVersion, VisitorId};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, TransactionBehavior};
use rusqlite_migration::{M, Migrations};

pub use self::checksum::CheckedBytes;
pub use self::locks::{
    LockError, StoreLock, is_ready, is_served, lock_extension, lock_folder, lock_job, lock_ready, lock_writing,
};
pub use self::row_numbers::{RunNo, SendNo, VisitorRow, minute_of_key};

/// Longest wait for a lock of SQLite.
pub const LOCKED: Duration = Duration::from_secs(5);

/// Number of a tenant, as columns store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantNo(pub i64);

/// Row number of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersonNo(pub i64);

/// Migrations of the store's schema, in order.
static MIGRATIONS: LazyLock<Migrations<'static>> =
    LazyLock::new(|| Migrations::new(vec![M::up(include_str!("../sql/0001_store.sql"))]));

/// Path of the store's file in a data directory.
#[must_use]
pub fn store_file(data: &Path) -> PathBuf {
    data.join(data_fault::STORE)
}

/// Opens the store for writing; creates or migrates it if necessary.
///
/// # Errors
/// [`OpenError::Directory`], [`OpenError::File`], [`OpenError::Later`], [`OpenError::Earlier`];
/// [`OpenError::Data`] if the directory had a store that is now missing.
pub fn open(data: &Path) -> Result<Connection, OpenError> {
    make_folder(data).map_err(|source| OpenError::Directory { path: data.to_owned(), source })?;
    if data.join(RESTORING).exists() {
        return Err(OpenError::HalfRestored(data.to_owned()));
    }
    let path = store_file(data);
    if !holds_bytes(&path)? {
        crate::store::files::check_new(data)?;
    }
    let opened = || {
        let mut conn = Connection::open(&path)?;
        conn.busy_timeout(LOCKED)?;
        if is_later(&conn)? {
            return Err(OpenError::Later(path.clone()));
        }
        if MIGRATIONS.pending_migrations(&conn)? > 0 && is_ready(data) {
            return Err(OpenError::Earlier(data.to_owned()));
        }
        prepare_store(&mut conn)?;
        Ok(conn)
    };
    opened().map_err(|e: OpenError| e.of_file(&path))
}

/// Path of the store's file, if the store exists.
///
/// # Errors
/// [`OpenError::Missing`]; [`OpenError::Directory`] if the file cannot be examined.
pub fn existing_file(data: &Path) -> Result<PathBuf, OpenError> {
    let path = store_file(data);
    if holds_bytes(&path)? { Ok(path) } else { Err(OpenError::Missing(path)) }
}

/// Whether a file exists and is not empty; an empty file holds no store.
pub(crate) fn holds_bytes(path: &Path) -> Result<bool, OpenError> {
    match std::fs::metadata(path) {
        Ok(file) => Ok(file.len() > 0),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(OpenError::Directory { path: path.to_owned(), source }),
    }
}

/// Configures a connection as the store's writer and migrates the schema. On a file system without shared memory, the
/// caller sets `locking_mode=EXCLUSIVE` first.
///
/// # Errors
/// [`OpenError::Foreign`], [`OpenError::Store`], [`OpenError::Migration`].
pub fn prepare_store(conn: &mut Connection) -> Result<(), OpenError> {
    conn.busy_timeout(LOCKED)?;
    if conn.query_row(sqlite_schema::SQLITE_SCHEMA_IS_FOREIGN, [], |row| row.get(0))? {
        return Err(OpenError::Foreign);
    }
    // Durable at every commit (invariant 6): WAL with a lower level would sync only at checkpoints.
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // Zeroes deleted and overwritten content, because an erased visitor was also in rows that were rewritten.
    conn.pragma_update(None, "secure_delete", "ON")?;
    conn.pragma_update(None, "cache_size", -512 * 1_024)?; // KiB, allocated on demand
    conn.pragma_update(None, "wal_autocheckpoint", 8_000)?; // pages of 4 KiB
    // Shrinks a write-ahead log that a burst enlarged, when it restarts from its beginning.
    conn.pragma_update(None, "journal_size_limit", 64 << 20)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(MIGRATIONS.to_latest(conn)?)
}

/// Moves the write-ahead log into the store's file and truncates it. Returns `false`, without waiting, while another
/// connection writes or reads an older state.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn empty_wal(conn: &Connection) -> Result<bool, StoreError> {
    conn.busy_timeout(Duration::ZERO)?;
    let busy = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    conn.busy_timeout(LOCKED)?;
    Ok(!busy?)
}

/// Length of the store's write-ahead log in bytes; 0 if there is none.
#[must_use]
pub fn wal_bytes(data: &Path) -> u64 {
    let log = store_file(data).with_extension("db-wal");
    std::fs::metadata(log).map_or(0, |file| file.len())
}

/// Whether a later release wrote the store.
///
/// # Errors
/// [`OpenError::Migration`].
pub fn is_later(conn: &Connection) -> Result<bool, OpenError> {
    Ok(MIGRATIONS.pending_migrations(conn)? < 0)
}

/// Opens the store for reading only.
///
/// # Errors
/// [`OpenError::Missing`], [`OpenError::File`], [`OpenError::Later`].
pub fn open_readonly(data: &Path) -> Result<Connection, OpenError> {
    let conn = open_any(data)?;
    let path = store_file(data);
    if is_later(&conn).map_err(|e| e.of_file(&path))? { Err(OpenError::Later(path)) } else { Ok(conn) }
}

/// Opens the store for reading only, whichever release wrote it.
///
/// # Errors
/// [`OpenError::Missing`], [`OpenError::Store`].
pub(crate) fn open_any(data: &Path) -> Result<Connection, OpenError> {
    let path = existing_file(data)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(LOCKED)?;
    conn.pragma_update(None, "cache_size", -64 * 1_024)?; // KiB: the inner pages of every tree
    // Maps the first 2 GiB of the file, so that connections use the operating system's page cache without copies of
    // their own. A disk error in that range ends the process, which loses nothing that was acknowledged.
    conn.pragma_update(None, "mmap_size", 2_i64 << 30)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// Name of the folder of a running restore, in the data directory.
pub const RESTORING: &str = "restoring";

/// Number of a tenant, assigned at its first use and permanent.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn tenant_no(conn: &Connection, name: &str) -> Result<TenantNo, StoreError> {
    conn.execute(tables::tenants::TENANTS_INSERT_NAME, [name])?;
    find_tenant(conn, name)?.ok_or(StoreError::Corrupt { what: "tenant" })
}

/// Number of a tenant; `None` if it has none yet.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn find_tenant(conn: &Connection, name: &str) -> Result<Option<TenantNo>, StoreError> {
    Ok(conn.query_row(tables::tenants::TENANTS_NUMBER_OF_NAME, [name], |row| row.get(0).map(TenantNo)).optional()?)
}

/// Row of a visitor; `None` if no fact of it ever arrived.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn find_visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Option<VisitorRow>, StoreError> {
    Ok(conn
        .prepare_cached(visitors::VISITORS_ROW_OF_ID)?
        .query_row((tenant.0, visitor.as_bytes()), |row| row.get(0))
        .optional()?)
}

/// Mask of the bits of an epoch that count up; the upper 32 bits hold the restore epoch.
pub const EPOCHS_OF_A_RESTORE: u64 = u32::MAX as u64;

/// Counters that only grow. A transaction reads them at its begin and saves them before its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreCounters {
    restore: u32,
    version: u64,
    epoch: u64,
    folded: u64,
}

impl StoreCounters {
    /// Reads the counters.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn load(conn: &Connection) -> Result<Self, StoreError> {
        let mut statement = conn.prepare_cached(meta::META_COUNTERS)?;
        Ok(statement.query_row([], |row| {
            let [version, epoch, folded] = [row.get(1)?, row.get(2)?, row.get(3)?].map(unsigned);
            Ok(Self { restore: row.get(0)?, version, epoch, folded })
        })?)
    }

    /// Reads the counters once everything in the store is durable. Data that an ended process wrote without a sync
    /// reads as committed, and a power failure can still lose it. Only after a commit of its own may a process draw
    /// conclusions from the store, such as which records of the log are no longer needed.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn settled(conn: &mut Connection) -> Result<Self, StoreError> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut counters = Self::load(&tx)?;
        // Consumes a version, because SQLite syncs nothing for a transaction that changes nothing.
        counters.next_version();
        counters.save(&tx)?;
        tx.commit()?;
        Ok(counters)
    }

    /// Saves the counters.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn save(self, conn: &Connection) -> Result<(), StoreError> {
        conn.prepare_cached(meta::META_SAVE_COUNTERS)?.execute([self.version, self.epoch, self.folded].map(signed))?;
        Ok(())
    }

    /// Issues the next version.
    pub fn next_version(&mut self) -> SnapshotVersion {
        self.version += 1;
        self.version()
    }

    /// The last issued version.
    #[must_use]
    pub fn version(&self) -> SnapshotVersion {
        SnapshotVersion { restore: self.restore, counter: self.version }
    }

    /// Issues the next epoch.
    pub fn next_epoch(&mut self) -> Epoch {
        self.epoch += 1;
        Epoch(self.epoch)
    }

    /// The last issued epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// The counters after a restore: every number issued from now on is above all numbers issued before. No lease
    /// reuses a number up to `version`, because such a lease may still be acknowledged.
    #[must_use]
    pub fn restored(self, restore: u32, version: u64) -> Self {
        let epoch = u64::from(restore) << 32 | self.epoch & EPOCHS_OF_A_RESTORE;
        Self { restore, epoch, version: self.version.max(version), ..self }
    }

    /// Number of the newest log record that the store contains.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// Records that the store contains the log's records up to `seq`.
    pub fn fold_to(&mut self, seq: u64) {
        self.folded = self.folded.max(seq);
    }
}

/// Reads a visitor from a column.
///
/// # Errors
/// The column holds no visitor id.
pub fn visitor_at(row: &Row<'_>, column: usize) -> rusqlite::Result<VisitorId> {
    let bytes: [u8; 16] = row.get(column)?;
    VisitorId::from_bytes(bytes).map_err(|e| {
        let blob = rusqlite::types::Type::Blob;
        rusqlite::Error::FromSqlConversionFailure(column, blob, Box::new(e))
    })
}

/// Reads the hash of an alternate id from a column.
///
/// # Errors
/// The column holds no hash.
pub fn hash_at(row: &Row<'_>, column: usize) -> rusqlite::Result<AltHash> {
    row.get(column).map(AltHash)
}

#[cfg(test)]
mod tests;
