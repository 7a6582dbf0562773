//! The store: one SQLite file. Opening it, its schema, its counters, and the forms its columns have.
//!
//! One thread writes ([`crate::pipeline::writer`]), a few read-only connections read ([`readers`]). Nothing here
//! decides anything.

pub mod names;
pub mod priority;
pub mod tenants;
pub mod write_txn;

mod checksum;
pub mod data_fault;
pub mod error;
pub mod files;
pub mod id_error;
pub mod identity;
pub mod job_reports;
pub mod journal;
mod locks;
pub mod unread_parts;

use crate::base::folders::make_folder;
pub(crate) use crate::base::integers::signed;
use crate::base::integers::unsigned;
pub use crate::store::error::StoreError;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use causeway_shared::base::ids::{AltHash, Epoch, SnapshotVersion, VisitorId};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, TransactionBehavior};
use rusqlite_migration::{M, Migrations};

pub use self::checksum::CheckedBytes;
pub use self::locks::{
    StoreLock, is_ready, is_served, lock_extension, lock_folder, lock_job, lock_ready, lock_writing,
};

/// How long a lock is waited for.
pub const LOCKED: Duration = Duration::from_secs(5);

/// Form of a column that names a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantNo(pub i64);

/// Form of a column that names a person's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersonNo(pub i64);

/// Each step from one schema of the store to the next, from its first one on.
static MIGRATIONS: LazyLock<Migrations<'static>> =
    LazyLock::new(|| Migrations::new(vec![M::up(include_str!("../sql/0001_store.sql"))]));

/// The store's file in a data directory.
#[must_use]
pub fn store_file(data: &Path) -> PathBuf {
    data.join(data_fault::STORE)
}

/// Opens the store for writing, made or brought up to date if need be.
///
/// # Errors
/// [`StoreError::Directory`], [`StoreError::File`], [`StoreError::Later`], [`StoreError::Earlier`]; [`StoreError::Data`]
/// where the directory had a store and has none.
pub fn open(data: &Path) -> Result<Connection, StoreError> {
    make_folder(data).map_err(|source| StoreError::Directory { path: data.to_owned(), source })?;
    if data.join(RESTORING).exists() {
        return Err(StoreError::HalfRestored(data.to_owned()));
    }
    let path = store_file(data);
    if !holds_bytes(&path)? {
        crate::store::files::check_new(data)?;
    }
    let opened = || {
        let mut conn = Connection::open(&path)?;
        conn.busy_timeout(LOCKED)?;
        if is_later(&conn)? {
            return Err(StoreError::Later(path.clone()));
        }
        if MIGRATIONS.pending_migrations(&conn)? > 0 && is_ready(data) {
            return Err(StoreError::Earlier(data.to_owned()));
        }
        prepare_store(&mut conn)?;
        Ok(conn)
    };
    opened().map_err(|e: StoreError| e.of_file(&path))
}

/// The store's file, of a store that is there.
///
/// # Errors
/// [`StoreError::Missing`]; [`StoreError::Directory`], where that cannot be told.
pub fn existing_file(data: &Path) -> Result<PathBuf, StoreError> {
    let path = store_file(data);
    if holds_bytes(&path)? { Ok(path) } else { Err(StoreError::Missing(path)) }
}

/// Whether a file is there and not empty: an empty file holds no store.
pub(crate) fn holds_bytes(path: &Path) -> Result<bool, StoreError> {
    match std::fs::metadata(path) {
        Ok(file) => Ok(file.len() > 0),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(StoreError::Directory { path: path.to_owned(), source }),
    }
}

/// Makes a connection to the store's file the one that writes, and brings the schema up to date. A file system without
/// shared memory needs `locking_mode=EXCLUSIVE` to be set before.
///
/// # Errors
/// [`StoreError::Foreign`], [`StoreError::Sqlite`], [`StoreError::Migration`].
pub fn prepare_store(conn: &mut Connection) -> Result<(), StoreError> {
    conn.busy_timeout(LOCKED)?;
    const FOREIGN: &str = "SELECT user_version = 0 AND EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_user_version";
    if conn.query_row(FOREIGN, [], |row| row.get(0))? {
        return Err(StoreError::Foreign);
    }
    // Durable at every commit (invariant 6): WAL alone would sync at checkpoints only.
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // What is deleted or written over is gone from the file: who is erased has been in rows that grew, too.
    conn.pragma_update(None, "secure_delete", "ON")?;
    conn.pragma_update(None, "cache_size", -512 * 1_024)?; // KiB, taken as they are needed
    conn.pragma_update(None, "wal_autocheckpoint", 8_000)?; // pages of 4 KiB
    // What a burst made of the write-ahead log goes when it begins from the start.
    conn.pragma_update(None, "journal_size_limit", 64 << 20)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(MIGRATIONS.to_latest(conn)?)
}

/// Moves all that is in a connection's write-ahead log into its file, and leaves nothing in it. `false`: not now, somebody reads
/// an older state or writes, and nobody waits for them.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn empty_wal(conn: &Connection) -> Result<bool, StoreError> {
    conn.busy_timeout(Duration::ZERO)?;
    let busy = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    conn.busy_timeout(LOCKED)?;
    Ok(!busy?)
}

/// The length of the store's write-ahead log, in bytes; 0 where there is none.
#[must_use]
pub fn wal_bytes(data: &Path) -> u64 {
    let log = store_file(data).with_extension("db-wal");
    std::fs::metadata(log).map_or(0, |file| file.len())
}

/// Whether a later release wrote a store.
///
/// # Errors
/// [`StoreError::Migration`].
pub fn is_later(conn: &Connection) -> Result<bool, StoreError> {
    Ok(MIGRATIONS.pending_migrations(conn)? < 0)
}

/// Opens the store for reading only.
///
/// # Errors
/// [`StoreError::Missing`], [`StoreError::File`], [`StoreError::Later`].
pub fn open_readonly(data: &Path) -> Result<Connection, StoreError> {
    let conn = open_any(data)?;
    let path = store_file(data);
    if is_later(&conn).map_err(|e| e.of_file(&path))? { Err(StoreError::Later(path)) } else { Ok(conn) }
}

/// The same, of whichever release wrote it.
///
/// # Errors
/// [`StoreError::Missing`], [`StoreError::Sqlite`].
pub(crate) fn open_any(data: &Path) -> Result<Connection, StoreError> {
    let path = existing_file(data)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(LOCKED)?;
    conn.pragma_update(None, "cache_size", -64 * 1_024)?; // KiB: the inner pages of every tree
    // Pages are read where the operating system has them, the first 2 GiB of the file: nothing is copied, nothing is kept
    // once for each connection. A disk that fails under it ends the process, which loses nothing that was acknowledged.
    conn.pragma_update(None, "mmap_size", 2_i64 << 30)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// The folder, in the data directory, of a restore under way.
pub const RESTORING: &str = "restoring";

/// The number of a tenant, given on first sight and kept for ever.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn tenant_no(conn: &Connection, name: &str) -> Result<TenantNo, StoreError> {
    conn.execute("INSERT OR IGNORE INTO tenants (name) VALUES (?1)", [name])?;
    find_tenant(conn, name)?.ok_or(StoreError::Corrupt { what: "tenant" })
}

/// The number of a tenant, if it has one yet.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn find_tenant(conn: &Connection, name: &str) -> Result<Option<TenantNo>, StoreError> {
    let find = "SELECT tenant FROM tenants WHERE name = ?1";
    Ok(conn.query_row(find, [name], |row| row.get(0).map(TenantNo)).optional()?)
}

/// The row of a visitor, if a fact of it ever came.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn find_visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Option<i64>, StoreError> {
    const FIND: &str = "SELECT row FROM visitors WHERE tenant = ?1 AND visitor = ?2";
    Ok(conn.prepare_cached(FIND)?.query_row((tenant.0, visitor.as_bytes()), |row| row.get(0)).optional()?)
}

/// The part of an epoch that counts on; the other is the restore's.
pub const EPOCHS_OF_A_RESTORE: u64 = u32::MAX as u64;

/// The counters that only grow. They are read when a transaction begins and written before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreCounters {
    restore: u32,
    version: u64,
    epoch: u64,
    folded: u64,
}

impl StoreCounters {
    /// As they stand.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn load(conn: &Connection) -> Result<Self, StoreError> {
        let read = "SELECT restore_epoch, version_counter, epoch_counter, folded FROM meta";
        let mut statement = conn.prepare_cached(read)?;
        Ok(statement.query_row([], |row| {
            let [version, epoch, folded] = [row.get(1)?, row.get(2)?, row.get(3)?].map(unsigned);
            Ok(Self { restore: row.get(0)?, version, epoch, folded })
        })?)
    }

    /// Reads them once all that the store says is durable. What a process that ended has written and never synced is read
    /// back as if it were committed, and goes with the power: nothing may be concluded from it, such as which records the
    /// log can do without, before a commit of one's own has synced it too.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn settled(conn: &mut Connection) -> Result<Self, StoreError> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut counters = Self::load(&tx)?;
        // A version that nobody gets: where nothing changes SQLite writes nothing, and syncs nothing.
        counters.next_version();
        counters.save(&tx)?;
        tx.commit()?;
        Ok(counters)
    }

    /// Keeps them.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn save(self, conn: &Connection) -> Result<(), StoreError> {
        let write = "UPDATE meta SET version_counter = ?1, epoch_counter = ?2, folded = ?3";
        conn.prepare_cached(write)?.execute([self.version, self.epoch, self.folded].map(signed))?;
        Ok(())
    }

    /// A version that was never issued.
    pub fn next_version(&mut self) -> SnapshotVersion {
        self.version += 1;
        self.version()
    }

    /// The version issued last.
    #[must_use]
    pub fn version(&self) -> SnapshotVersion {
        SnapshotVersion { restore: self.restore, counter: self.version }
    }

    /// An epoch that was never issued.
    pub fn next_epoch(&mut self) -> Epoch {
        self.epoch += 1;
        Epoch(self.epoch)
    }

    /// The epoch issued last.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// As they go on after a restore: everything issued from now on is above all that was issued before, and no lease has the
    /// number of one up to `version`, which may still be acknowledged.
    #[must_use]
    pub fn restored(self, restore: u32, version: u64) -> Self {
        let epoch = u64::from(restore) << 32 | self.epoch & EPOCHS_OF_A_RESTORE;
        Self { restore, epoch, version: self.version.max(version), ..self }
    }

    /// The newest record of the log that is in the store.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// Says that the log's records up to this one are in the store.
    pub fn fold_to(&mut self, seq: u64) {
        self.folded = self.folded.max(seq);
    }
}

/// A visitor from a column.
///
/// # Errors
/// When the column does not hold one.
pub fn visitor_at(row: &Row<'_>, column: usize) -> rusqlite::Result<VisitorId> {
    let bytes: [u8; 16] = row.get(column)?;
    VisitorId::from_bytes(bytes).map_err(|e| {
        let blob = rusqlite::types::Type::Blob;
        rusqlite::Error::FromSqlConversionFailure(column, blob, Box::new(e))
    })
}

/// A hash from a column.
///
/// # Errors
/// When the column does not hold one.
pub fn hash_at(row: &Row<'_>, column: usize) -> rusqlite::Result<AltHash> {
    row.get(column).map(AltHash)
}

#[cfg(test)]
mod tests;
