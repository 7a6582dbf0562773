//! The journal of erasures: a separate SQLite file next to the store. No backup copies it and no restore replaces it,
//! so that a store restored from before an erasure learns of the erasure.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use causeway_shared::base::ids::{AlternateId, FactId, Millis, VisitorId};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::wire::facts;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior};

use crate::base::attribution::Attribution;
use crate::base::integers::{signed, unsigned};
use crate::store::data_fault::JOURNAL;
use crate::store::identity::StoreIdentity;
use crate::store::journal_error::JournalError;
use crate::store::tables::{erasure_requests, identity, journal_erasures};
use crate::store::{self, StoreError};

/// The table with the identity of the store that the journal belongs to.
const IDENTITY: &str =
    "CREATE TABLE IF NOT EXISTS identity (id INTEGER PRIMARY KEY CHECK (id = 1), identity BLOB NOT NULL) STRICT";

/// Author of changes that are replayed from the journal.
pub const BY: &str = "journal";

/// The open journal. A store transaction that erases writes here before it commits.
#[derive(Debug)]
pub struct ErasureJournal(Mutex<Connection>);

impl ErasureJournal {
    /// Opens the journal in the data directory, or creates it, and reads it completely.
    ///
    /// # Errors
    /// [`JournalError`]: the journal exists and cannot be read.
    pub fn open(data: &Path) -> Result<Self, JournalError> {
        open_with(data, Self::new)
    }

    /// Opens the journal of a store that another process serves; that process has read it completely.
    ///
    /// # Errors
    /// [`JournalError`]: the journal cannot be opened.
    pub fn open_in(data: &Path) -> Result<Self, JournalError> {
        open_with(data, |conn| apply_settings(&conn).map(|()| Self(Mutex::new(conn))))
    }

    /// The journal in an open connection, read completely.
    ///
    /// # Errors
    /// [`StoreError`]: the file is damaged, or is no journal.
    pub fn new(conn: Connection) -> Result<Self, StoreError> {
        apply_settings(&conn)?;
        let said: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if said != "ok" {
            return Err(StoreError::Corrupt { what: "page" });
        }
        conn.execute_batch(
            "CREATE TABLE IF NOT EXISTS erasures (
                tenant TEXT NOT NULL,   -- by name: its number may be another one in another store
                fact   BLOB NOT NULL,   -- as it comes over the wire
                PRIMARY KEY (tenant, fact)
            ) STRICT, WITHOUT ROWID;
            CREATE TABLE IF NOT EXISTS erasure_requests (
                tenant  TEXT NOT NULL,
                receipt BLOB NOT NULL,
                at      INTEGER NOT NULL,
                said    TEXT NOT NULL,  -- by whom and why, as in the log
                PRIMARY KEY (tenant, receipt, at)
            ) STRICT, WITHOUT ROWID",
        )?;
        // Data that an ended process wrote without a sync could be lost with the power; this commit makes it durable.
        let starts: i32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        conn.pragma_update(None, "user_version", starts.wrapping_add(1))?;
        let journal = Self(Mutex::new(conn));
        journal.each(|_, _| Ok(()))?;
        journal.requested_erasures()?;
        Ok(journal)
    }

    /// Adds entries and requests for erasures durably; existing ones stay.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing was added.
    pub fn keep(&self, entries: &[(String, Fact)], asked: &[RequestedErasure]) -> Result<(), StoreError> {
        if entries.is_empty() && asked.is_empty() {
            return Ok(());
        }
        let mut conn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (tenant, fact) in entries {
            tx.prepare_cached(journal_erasures::JOURNAL_ERASURES_INSERT)?.execute((tenant, facts::encode_one(fact)))?;
        }
        for RequestedErasure { tenant, receipt, at, attribution: said } in asked {
            let said = crate::store::journal::attribution_text(said)?;
            tx.prepare_cached(erasure_requests::ERASURE_REQUESTS_INSERT)?.execute((
                tenant,
                receipt.as_bytes(),
                signed(*at),
                said,
            ))?;
        }
        Ok(tx.commit()?)
    }

    /// All requests for erasures.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn requested_erasures(&self) -> Result<Vec<RequestedErasure>, StoreError> {
        let conn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = conn.prepare(erasure_requests::ERASURE_REQUESTS_ALL)?;
        let rows = statement.query_map([], |row| {
            let (receipt, at) = (FactId::from_bytes(row.get(1)?), unsigned(row.get(2)?));
            let said = crate::store::journal::attribution_at(row, 3)?.unwrap_or_default();
            Ok(RequestedErasure { tenant: row.get(0)?, receipt, at, attribution: said })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Calls `each` for every entry, with the tenant's name and the erasure as a fact.
    ///
    /// # Errors
    /// [`StoreError`]: an entry cannot be read, or `each` failed.
    pub fn each(&self, mut each: impl FnMut(String, Fact) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let conn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = conn.prepare(journal_erasures::JOURNAL_ERASURES_ALL)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            each(row.get(0)?, facts::decode_one(&row.get::<_, Vec<u8>>(1)?)?)?;
        }
        Ok(())
    }
}

/// Identity of the store that the journal belongs to; `None` if the journal or its identity is missing.
///
/// # Errors
/// [`JournalError`].
pub fn store_of(data: &Path) -> Result<Option<StoreIdentity>, JournalError> {
    let path = data.join(JOURNAL);
    if !path.exists() {
        return Ok(None);
    }
    let read = || -> Result<Option<StoreIdentity>, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&path, flags)?;
        conn.busy_timeout(store::LOCKED)?;
        if !conn.table_exists(None, "identity")? {
            return Ok(None);
        }
        Ok(StoreIdentity::from_column(conn.query_row(identity::IDENTITY_STORE, [], |row| row.get(0)).optional()?))
    };
    read().map_err(|source| JournalError { path: path.clone(), source })
}

/// Binds the journal to a store; creates the journal if necessary.
///
/// # Errors
/// [`JournalError`].
pub fn bind_journal(data: &Path, store: StoreIdentity) -> Result<(), JournalError> {
    open_with(data, |conn| {
        apply_settings(&conn)?;
        conn.execute_batch(IDENTITY)?;
        conn.execute(identity::IDENTITY_UPSERT, [store.as_bytes()])?;
        Ok(())
    })
}

fn open_with<T>(data: &Path, by: impl FnOnce(Connection) -> Result<T, StoreError>) -> Result<T, JournalError> {
    let path = data.join(JOURNAL);
    let opened = Connection::open(&path).map_err(StoreError::from).and_then(by);
    opened.map_err(|source| JournalError { path, source })
}

fn apply_settings(conn: &Connection) -> Result<(), StoreError> {
    conn.busy_timeout(store::LOCKED)?;
    // Durable at every commit, the end of the rollback journal included.
    Ok(conn.pragma_update(None, "synchronous", "EXTRA")?)
}

/// Entry for an erased visitor.
#[must_use]
pub fn visitor_fact(receipt: FactId, visitor: VisitorId, at: Millis) -> Fact {
    let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
    Fact { position: 0, id: receipt, visitor, received: at, at, what }
}

/// Entry for one hash of an erased alternate id.
#[must_use]
pub fn id_fact(receipt: FactId, id: AlternateId, at: Millis) -> Fact {
    let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: Some(id), also: Vec::new() };
    Fact { position: 0, id: receipt, visitor: VisitorId::ANONYMOUS, received: at, at, what }
}

/// Whether an entry only ends an id's history. Each visitor that was erased with the id has its own entry.
#[must_use]
pub fn is_end(fact: &Fact) -> bool {
    matches!(&fact.what, FactKind::Erasure { scope: ErasureScope::Visitor, id: Some(_), also } if also.is_empty())
}

/// A request for an erasure, as the journal stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedErasure {
    /// The tenant's name.
    pub tenant: String,
    /// Receipt of the erasure.
    pub receipt: FactId,
    /// Time of the request.
    pub at: Millis,
    /// Author and reason.
    pub attribution: Attribution,
}

/// Attribution of a record, from a row. An unreadable attribution counts as absent, so that the record remains usable.
pub(crate) fn attribution_at(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<Attribution>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.and_then(|text| read_attribution(&text)))
}

/// An attribution as text.
pub(crate) fn attribution_text(said: &Attribution) -> Result<String, StoreError> {
    serde_json::to_string(said).map_err(|_| StoreError::Corrupt { what: "attribution" })
}

/// An attribution from its text; `None`, with a log line, if it cannot be read.
pub(crate) fn read_attribution(text: &str) -> Option<Attribution> {
    let said = serde_json::from_str(text);
    said.inspect_err(|e| tracing::error!(error = %e, "the attribution of a log record cannot be read")).ok()
}
