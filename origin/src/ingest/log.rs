//! The log: one durable record per sync, in a SQLite file of its own next to the store, so that intake never waits for
//! folding. A record is deleted once the store holds its facts.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use causeway_shared::base::ids::{FactId, Millis, TenantId};
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::wire::facts;
use causeway_shared::wire::sync::{SyncRequest, UNKNOWN_TENANT, decode_stored, encode_request};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::base::integers::{signed, unsigned};
use crate::ingest::intake::{self, IncomingSync, LogRecord};
use crate::store::data_fault::{LOG, LOG_TAIL};
use crate::store::identity::StoreIdentity;
use crate::store::journal::{attribution_at, attribution_text};
use crate::store::tables::{log, state};
use crate::store::tenants::Tenants;
use crate::store::{self, StoreCounters, StoreError};

/// Value of a record's edge name for facts from the admin API.
pub(crate) const ADMIN: &str = "admin";

/// An error of reading the records of the log that wait to be folded.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Facts wait to be folded for a tenant that is not configured.
    #[error(
        "the log holds acknowledged facts of the tenant `{0}`, which the configuration lacks: configure it as it was and \
         start; after one start and stop of the origin the tenant may be removed"
    )]
    NoTenant(TenantId),
    /// The log failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The open log.
#[derive(Debug)]
pub struct FactLog {
    conn: Connection,
    last: u64,
    /// File with the highest acknowledged record; `None` for a log without a directory.
    tail: Option<LogTail>,
}

impl FactLog {
    /// Opens the log, or creates it. Deletes records up to `folded`, which are in the store.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(data: &Path, folded: u64) -> Result<Self, StoreError> {
        let log = Self::of(Connection::open(data.join(LOG))?, folded)?;
        Ok(Self { tail: Some(LogTail::of(data)), ..log })
    }

    /// The log on an open connection to its file.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of(conn: Connection, folded: u64) -> Result<Self, StoreError> {
        conn.busy_timeout(store::LOCKED)?;
        conn.pragma_update(None, "page_size", 16_384)?; // records are long
        conn.pragma_update(None, "journal_mode", "WAL")?;
        // Durable at every commit (invariant 6): WAL with a lower level would sync only at checkpoints.
        let synchronous = if planted::is_active(PlantedBug::AckBeforeFsync) { "OFF" } else { "FULL" };
        conn.pragma_update(None, "synchronous", synchronous)?;
        conn.execute_batch(
            "CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, taken INTEGER NOT NULL, body BLOB NOT NULL, said TEXT) STRICT;
            CREATE TABLE IF NOT EXISTS state (
                id       INTEGER PRIMARY KEY CHECK (id = 1),
                identity BLOB,              -- the store's; null until both are tied
                highest  INTEGER NOT NULL,  -- the highest record that was ever appended
                let_go   INTEGER NOT NULL   -- the highest record that was let go
            ) STRICT;
            INSERT OR IGNORE INTO state (id, highest, let_go) VALUES (1, 0, 0)",
        )?;
        conn.execute(log::LOG_DELETE_UP_TO, [signed(folded)])?;
        let last: i64 = conn.query_row(state::STATE_HIGHEST, [], |row| row.get(0))?;
        Ok(Self { conn, last: unsigned(last).max(folded), tail: None })
    }

    /// Binds the log to a store that holds the records up to `folded`, whatever it belonged to before. The log's
    /// records stay.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn bind(&mut self, store: StoreIdentity, folded: u64) -> Result<(), StoreError> {
        self.conn.execute(state::STATE_BIND, (store.as_bytes(), signed(self.last), signed(folded)))?;
        if let Some(tail) = &mut self.tail {
            tail.note(self.last);
        }
        Ok(())
    }

    /// Appends the records after `folded` of another log, in their order. Returns their number.
    ///
    /// # Errors
    /// [`StoreError`]; then no record was appended.
    pub fn take_over(&mut self, other: &Connection, folded: u64) -> Result<u64, StoreError> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut statement = other.prepare(log::LOG_CONTENTS_AFTER)?;
        let mut rows = statement.query([signed(folded)])?;
        let mut last = self.last;
        while let Some(row) = rows.next()? {
            last += 1;
            let (taken, body, said): (i64, Vec<u8>, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            tx.prepare_cached(log::LOG_INSERT)?.execute((signed(last), taken, body, said))?;
        }
        tx.execute(state::STATE_SET_HIGHEST, [signed(last)])?;
        tx.commit()?;
        let taken_over = last - self.last;
        self.last = last;
        Ok(taken_over)
    }

    /// Appends one record for each sync in one durable transaction, and deletes records up to `folded`. Returns the
    /// number of the first record; the others follow it.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing was appended.
    pub fn append<'i>(
        &mut self,
        syncs: impl IntoIterator<Item = &'i IncomingSync>,
        folded: u64,
    ) -> Result<u64, StoreError> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let folded = if planted::is_active(PlantedBug::TruncateTheLogTooEarly) { self.last } else { folded };
        tx.prepare_cached(log::LOG_DELETE_UP_TO)?.execute([signed(folded)])?;
        let mut last = self.last;
        for sync in syncs {
            last += 1;
            let edge = if sync.admin { ADMIN } else { "" }.to_owned();
            let body = encode_request(&SyncRequest { edge, facts: sync.batches.clone(), ..SyncRequest::default() });
            let said = sync.attribution.as_ref().map(attribution_text).transpose()?;
            tx.prepare_cached(log::LOG_INSERT)?.execute((signed(last), signed(sync.taken), body, said))?;
        }
        tx.prepare_cached(state::STATE_RAISE)?.execute([last, folded.min(last)].map(signed))?;
        tx.commit()?;
        let first = self.last + 1;
        self.last = last;
        if let Some(tail) = &mut self.tail {
            tail.note(last);
        }
        Ok(first)
    }

    /// Deletes all records up to `folded`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn truncate(&mut self, folded: u64) -> Result<(), StoreError> {
        self.append([], folded).map(drop)
    }

    /// Removes every byte of deleted records from the file and its write-ahead log. It takes time in proportion to the
    /// remaining records. Returns `false` while another connection reads an older state.
    ///
    /// # Errors
    /// [`StoreError`]; no remaining record is then lost.
    pub fn wipe(&self) -> Result<bool, StoreError> {
        self.conn.execute_batch("VACUUM")?;
        store::empty_wal(&self.conn)
    }

    /// The records after `folded`, to be folded. Their facts are acknowledged, so a tenant that was configured once and
    /// is missing now is an error: its facts would be lost (invariant 6). Facts of tenants that were never configured
    /// come from an earlier release and are skipped.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn unfolded_records(&self, folded: u64, tenants: &Tenants) -> Result<Vec<LogRecord>, LogError> {
        read_records(&self.conn, folded, tenants, |missing| {
            if tenants.had(missing.as_str()) {
                return Err(LogError::NoTenant(missing));
            }
            tracing::error!(tenant = missing.as_str(), "facts of a tenant that was never configured are not folded");
            Ok(())
        })
    }

    /// Moves the write-ahead log into the file.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        Ok(self.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?)
    }
}

/// The highest acknowledged record, in a small file of its own. SQLite reads a write-ahead file only up to its first
/// damage, so the log itself cannot show that its end was cut. The file is written after each commit and not synced: it
/// may be too low after a power failure, and is never too high.
#[derive(Debug)]
pub struct LogTail {
    path: PathBuf,
    file: Option<File>,
    has_failed: bool,
}

impl LogTail {
    /// Length of the file in bytes: 20 digits, a blank, the CRC-32 of the digits as 8 hexadecimal digits, a line end.
    const BYTES: usize = 30;

    fn of(data: &Path) -> Self {
        Self { path: data.join(LOG_TAIL), file: None, has_failed: false }
    }

    /// Number of the highest acknowledged record; `None` if the file is missing or damaged.
    #[must_use]
    pub fn read(data: &Path) -> Option<u64> {
        let text = std::fs::read_to_string(data.join(LOG_TAIL)).ok()?;
        let (digits, sum) = text.trim_end().split_once(' ')?;
        let is_whole = u32::from_str_radix(sum, 16).ok()? == crc32fast::hash(digits.as_bytes());
        is_whole.then(|| digits.parse().ok()).flatten()
    }

    /// Writes the highest record. A failure is logged once; only the check for a cut log is then missing.
    fn note(&mut self, highest: u64) {
        let digits = format!("{highest:020}");
        let line = format!("{digits} {:08x}\n", crc32fast::hash(digits.as_bytes()));
        debug_assert_eq!(line.len(), Self::BYTES);
        if let Err(e) = self.open().and_then(|file| file.write_all_at(line.as_bytes(), 0)) {
            if !self.has_failed {
                tracing::warn!(error = %e, file = %self.path.display(), "the tail file of the log cannot be written");
            }
            self.has_failed = true;
        }
    }

    fn open(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let mut options = File::options();
            self.file = Some(options.write(true).create(true).truncate(false).mode(0o600).open(&self.path)?);
        }
        self.file.as_ref().ok_or_else(|| io::Error::other("no file"))
    }
}

/// The records that are not in the store yet, for any process; facts of tenants that it does not know are skipped.
/// Empty if there is no log.
///
/// # Errors
/// [`StoreError`].
pub fn unfolded(data: &Path, folded: u64, tenants: &Tenants) -> Result<Vec<LogRecord>, StoreError> {
    open_existing(data)?.map_or(Ok(Vec::new()), |conn| read_records(&conn, folded, tenants, |_| Ok(())))
}

/// Whether the log has records that are not in the store.
///
/// # Errors
/// [`StoreError`].
pub fn has_unfolded(data: &Path, folded: u64) -> Result<bool, StoreError> {
    let Some(conn) = open_existing(data)? else { return Ok(false) };
    Ok(conn.query_row(log::LOG_ANY_AFTER, [signed(folded)], |row| row.get(0))?)
}

/// Number of the newest record of which the log may hold a byte, folded or not.
///
/// # Errors
/// [`StoreError`].
pub fn newest_record(data: &Path, store: &Connection) -> Result<u64, StoreError> {
    let folded = StoreCounters::load(store)?.folded();
    let Some(conn) = open_existing(data)? else { return Ok(folded) };
    let newest = conn.query_row(log::LOG_NEWEST, [], |row| row.get(0).map(unsigned))?;
    Ok(newest.max(folded))
}

/// Opens the log for reading, if it exists; any process may do so.
///
/// # Errors
/// [`StoreError`].
pub fn open_existing(data: &Path) -> Result<Option<Connection>, StoreError> {
    let path = data.join(LOG);
    if !path.exists() {
        return Ok(None);
    }
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(store::LOCKED)?;
    Ok(conn.table_exists(None, "log")?.then_some(conn))
}

fn read_records<E: From<StoreError>>(
    conn: &Connection,
    folded: u64,
    tenants: &Tenants,
    missing: impl Fn(TenantId) -> Result<(), E>,
) -> Result<Vec<LogRecord>, E> {
    let mut statement = conn.prepare(log::LOG_AFTER).map_err(StoreError::from)?;
    let rows = statement.query_map([signed(folded)], |row| {
        Ok((unsigned(row.get(0)?), unsigned(row.get(1)?), row.get::<_, Vec<u8>>(2)?, attribution_at(row, 3)?))
    });
    rows.map_err(StoreError::from)?
        .map(|row| {
            let (seq, taken, body, said) = row.map_err(StoreError::from)?;
            Ok(LogRecord { attribution: said, ..decode_record(seq, taken, &body, tenants, &missing)? })
        })
        .collect()
}

/// Decodes a record with its own time, so that facts refused at their arrival are refused again. Batches of tenants
/// that were unknown then are not in it.
fn decode_record<E: From<StoreError>>(
    seq: u64,
    taken: Millis,
    body: &[u8],
    tenants: &Tenants,
    missing: impl Fn(TenantId) -> Result<(), E>,
) -> Result<LogRecord, E> {
    let request = decode_stored(body).map_err(StoreError::from)?;
    let (admin, bytes) = (request.edge == ADMIN, body.len());
    let read = if admin { intake::read_admins } else { intake::read };
    let mut read = read(request, tenants, taken);
    let gone: Vec<_> = read.rejected.iter().filter(|refused| refused.code == UNKNOWN_TENANT).collect();
    if !gone.is_empty() {
        let batches = decode_stored(body).map_err(StoreError::from)?.facts;
        for batch in gone.iter().filter_map(|refused| batches.get(refused.batch as usize)) {
            missing(facts::decode_each(batch).map_err(StoreError::from)?.0)?;
        }
    }
    if planted::is_active(PlantedBug::FoldTwiceAfterACrash) {
        read.facts.iter_mut().for_each(|of| of.fact.id = FactId::of_job(of.fact.visitor, &of.fact.id.receipt()));
    }
    Ok(LogRecord { seq, facts: read.facts, admin, attribution: None, bytes, in_log: 0, bulk: false })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, fact, page, visitor};
    use causeway_shared::base::limits;
    use causeway_shared::facts::fact::FactKind;
    use causeway_shared::wire::sync::decode_request;

    fn taken(origin: &Origin, facts: Vec<Vec<u8>>) -> IncomingSync {
        intake::read(SyncRequest { facts, ..SyncRequest::default() }, &origin.rules.tenants, NOW)
    }

    #[test]
    fn acknowledged_facts_of_a_removed_tenant_are_not_skipped() {
        let mut origin = Origin::new();
        let of = |tenant| origin.batch(tenant, &[page(visitor(1), 1, NOW)]);
        let sync = taken(&origin, vec![of("demo"), of("nobody"), of("other")]);
        let mut log = FactLog::open(origin.data(), 0).unwrap();
        log.append([&sync], 0).unwrap();
        let held = log.unfolded_records(0, &origin.rules.tenants).unwrap();
        assert_eq!(
            held.iter().map(|record| record.facts.len()).collect::<Vec<_>>(),
            [2],
            "the unknown tenant's fact was refused"
        );
        origin.edge.tenants.retain(|tenant| tenant.name != "other");
        let without = Tenants::open(&origin.conn, &origin.edge, &origin.keys).unwrap();
        let refused = log.unfolded_records(0, &without).unwrap_err();
        assert!(matches!(&refused, LogError::NoTenant(name) if name.as_str() == "other"), "{refused}");
        // A caller that only reads gets the facts of tenants that it knows.
        assert_eq!(unfolded(origin.data(), 0, &without).unwrap().first().map(|record| record.facts.len()), Some(1));
        assert_eq!(log.unfolded_records(0, &origin.rules.tenants).unwrap().len(), 1, "it waits for its tenant");
        origin.conn.execute("DELETE FROM tenants WHERE name = 'other'", []).unwrap();
        let never = Tenants::open(&origin.conn, &origin.edge, &origin.keys).unwrap();
        assert_eq!(log.unfolded_records(0, &never).unwrap().first().map(|record| record.facts.len()), Some(1));
    }

    #[test]
    fn the_longest_sync_can_be_read_again() {
        let origin = Origin::new();
        let track = |n: u32, text: usize| {
            let properties = Some(format!(r#"{{"a":"{}"}}"#, "x".repeat(text)));
            fact(visitor(1), n, NOW, FactKind::Track { name: "t".to_owned(), value: None, properties, order: None })
        };
        let one = u32::try_from(facts::bytes_of(&track(0, 1_000))).unwrap();
        let many = (u32::try_from(limits::SYNC_BYTES).unwrap() - 2_000) / one;
        let body = |text| {
            let tracks: Vec<_> = (0..many).map(|n| track(n, 1_000)).chain([track(many, text)]).collect();
            encode_request(&SyncRequest { facts: vec![origin.batch("demo", &tracks)], ..SyncRequest::default() })
        };
        let body = body(300 + limits::SYNC_BYTES - body(300).len());
        assert_eq!(body.len(), limits::SYNC_BYTES);
        let sync = intake::read(decode_request(&body).unwrap(), &origin.rules.tenants, NOW);
        let mut log = FactLog::open(origin.data(), 0).unwrap();
        log.append([&sync], 0).unwrap();
        let held = log.unfolded_records(0, &origin.rules.tenants).unwrap();
        assert_eq!(held.iter().map(|record| record.facts.len()).collect::<Vec<_>>(), [many as usize + 1]);
    }
}
