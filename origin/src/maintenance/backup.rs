//! Backups, taken while the origin serves, and their restore. A restored store issues versions and epochs above all
//! that were ever issued. Its KV values therefore supersede the values that are still in caches.

mod error;
mod manifest;
mod part_file;
mod replaced_store;
mod verify;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::base::time::Minute;
use causeway_shared::facts::attributes::ForgottenName;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::base::integers::{signed, unsigned};
use crate::campaigns::catalogue::{self, TenantNumbers};
use crate::ingest::log;
use crate::kv::publish::Priority;
use crate::outbox::kv_key::names_subject;
use crate::outbox::queue::LATE_MS;
use crate::privacy::erasure_request;
use crate::store::tables::{attribute_names, erasure_keys, meta, outbox, people, visitors};
use crate::store::{self, EPOCHS_OF_A_RESTORE, OpenError, StoreCounters, StoreError};

pub use self::error::BackupError;
use self::error::io_failure;
pub use self::replaced_store::ReplacedStore;
pub use self::verify::verify_backup;
pub use crate::store::unread_parts::UnreadParts;

/// The names of the steps, as `step` reports them.
const COPYING: [(&str, &str); 2] =
    [(crate::store::data_fault::LOG, "copying the log"), (crate::store::data_fault::STORE, "copying the store")];
const CHECKING: &str = "checking";
const RENEWING: &str = "renewing";
/// Number of steps of a backup.
pub const STEPS_OF_BACKUP: u64 = 3;
/// Number of steps of a restore.
pub const STEPS_OF_RESTORE: u64 = 4;

/// Prefix of the folders in the data directory that hold replaced files; the time of the restore follows, in
/// milliseconds.
const ASIDE: &str = "before-restore-";

/// Copies the log and then the store of `data` into a new folder, each as one transaction sees it. Every fact
/// acknowledged before is in one of the two. A missing log is copied as an empty one. The copies are checked before
/// they get their final names. `step` is called with the name of each step that begins.
///
/// # Errors
/// [`BackupError`], and [`OpenError::Missing`] if there is no store. Nothing is left in the folder then.
pub fn take_backup(data: &Path, to: &Path, mut step: impl FnMut(&'static str)) -> Result<BackupContents, BackupError> {
    drop(store::open_readonly(data)?);
    // A restore replaces the store, and one that was interrupted has left it incomplete.
    let _beside = store::lock_writing(data, false)?;
    if data.join(store::RESTORING).exists() {
        return Err(OpenError::HalfRestored(data.to_owned()).into());
    }
    part_file::fill_part(to, |part| {
        // The log is copied first. A record folded in between is also in the store's copy, and the log drops it when it
        // is opened.
        for (file, name) in COPYING {
            let from = data.join(file);
            step(name);
            if from.exists() {
                copy_store(&from, &part.join(file))?;
            }
        }
        empty_log(part)?;
        step(CHECKING);
        let held = inspect_backup(part)?;
        manifest::write(part)?;
        Ok(held)
    })
}

/// Creates a log next to a store without one, because a folder without a log counts as one that has lost it.
fn empty_log(folder: &Path) -> Result<(), BackupError> {
    let path = folder.join(crate::store::data_fault::LOG);
    if !path.exists() {
        drop(log::FactLog::open(folder, 0)?);
        // The journal mode of the copies: a reader creates no files next to it.
        Connection::open(&path)?.pragma_update(None, "journal_mode", "DELETE")?;
        fs::File::open(&path).and_then(|file| file.sync_all()).map_err(io_failure("cannot write", &path))?;
    }
    Ok(())
}

/// Copies a SQLite file, including its write-ahead log, as one transaction sees it. Durable when it returns.
///
/// # Errors
/// [`BackupError`].
pub(crate) fn copy_store(from: &Path, to: &Path) -> Result<(), BackupError> {
    let conn = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.busy_timeout(store::LOCKED)?;
    let copied = conn.execute("VACUUM INTO ?1", [to.to_string_lossy()]);
    copied.map_err(|source| BackupError::Copy { from: from.to_owned(), to: to.to_owned(), source })?;
    fs::File::open(to).and_then(|file| file.sync_all()).map_err(io_failure("cannot write", to))
}

/// The contents of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupContents {
    /// Number of folded visitors.
    pub visitors: u64,
    /// Number of people.
    pub people: u64,
    /// Number of log records that are not folded yet.
    pub records: u64,
    /// Receipt of the newest folded fact, to the hour.
    pub newest: Millis,
}

/// Reads the contents of a backup and checks that it is complete.
///
/// # Errors
/// [`BackupError`].
pub fn inspect_backup(from: &Path) -> Result<BackupContents, BackupError> {
    let path = from.join(crate::store::data_fault::STORE);
    if !path.try_exists().map_err(io_failure("cannot read", &path))? {
        return Err(BackupError::None(from.to_owned()));
    }
    if !from.join(crate::store::data_fault::LOG).exists() {
        return Err(BackupError::Damaged(format!("{} is missing", from.join(crate::store::data_fault::LOG).display())));
    }
    manifest::check_folder(from)?;
    let conn = open(&path)?;
    if store::is_later(&conn)? {
        return Err(BackupError::Later(from.to_owned()));
    }
    backup_contents(&conn, Some(&open(&from.join(crate::store::data_fault::LOG))?))
}

fn backup_contents(store: &Connection, log: Option<&Connection>) -> Result<BackupContents, BackupError> {
    let [visitors, people, newest, folded] = store.query_row(visitors::VISITORS_AND_PEOPLE_SUMMARY, [], |row| {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?].map(unsigned))
    })?;
    let records = log
        .map(|log| log.query_row(store::tables::log::LOG_COUNT_AFTER, [signed(folded)], |row| row.get(0).map(unsigned)))
        .transpose()?;
    Ok(BackupContents { visitors, people, records: records.unwrap_or(0), newest })
}

/// The contents of the store that a restore into `data` would replace, without a check; `None` if there is no store.
///
/// # Errors
/// [`BackupError`] if the store cannot be read.
pub fn replaced_contents(data: &Path) -> Result<Option<BackupContents>, BackupError> {
    let cut = interrupted_folder(data)?;
    let there = cut.as_deref().unwrap_or(data);
    let store = match store::open_any(there) {
        Err(OpenError::Missing(_)) => return Ok(None),
        store => store?,
    };
    // Files that an interrupted restore has not moved yet are in their original folder.
    let log =
        [there, data].map(|folder| folder.join(crate::store::data_fault::LOG)).into_iter().find(|log| log.exists());
    let log = log.map(|log| Connection::open_with_flags(log, OpenFlags::SQLITE_OPEN_READ_ONLY)).transpose()?;
    backup_contents(&store, log.as_ref()).map(Some)
}

fn open(path: &Path) -> Result<Connection, BackupError> {
    open_checked(path, "PRAGMA quick_check(1)")
}

fn open_checked(path: &Path, check: &str) -> Result<Connection, BackupError> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let said: String = conn
        .query_row(check, [], |row| row.get(0))
        .map_err(|e| BackupError::Damaged(format!("{}: {e}", path.display())))?;
    if said == "ok" { Ok(conn) } else { Err(BackupError::Damaged(format!("{}: {said}", path.display()))) }
}

/// The result of a restore.
#[derive(Debug)]
pub struct RestoreReport {
    /// Folder of the replaced files, if there were any.
    pub moved_to: Option<PathBuf>,
    /// Parts of the replaced store that could not be read. For these parts, the restored store has only the backup's
    /// data.
    pub unread: UnreadParts,
}

/// Replaces the store in `data` with a backup and moves the replaced files to a folder in `data`. Every snapshot and
/// lookup is published again. `step` is called with the name of each step that begins.
///
/// # Errors
/// [`BackupError`], and [`LockError::InUse`](crate::store::LockError::InUse) while a process serves from `data`.
pub fn restore_backup(
    data: &Path,
    from: &Path,
    now: Millis,
    mut step: impl FnMut(&'static str),
) -> Result<RestoreReport, BackupError> {
    step(CHECKING);
    inspect_backup(from)?;
    let _lock = store::lock_folder(data)?;
    let _alone = store::lock_writing(data, true)?;
    let cut = interrupted_folder(data)?;
    if let Some(aside) = &cut {
        put_aside(data, aside)?;
    }
    let mut unread = UnreadParts::default();
    let before = ReplacedStore::of(cut.as_deref().unwrap_or(data), &mut unread);
    let fresh = make_store(data, |fresh| {
        for (file, name) in COPYING {
            step(name);
            copy_store(&from.join(file), &fresh.join(file))?;
        }
        step(RENEWING);
        let mut conn = store::open(fresh)?;
        renew_store(&mut conn, &before, now)?;
        crate::ingest::marker::renew_identity(&conn)?;
        if let Err(why) = take_over_log(cut.as_deref().unwrap_or(data), fresh, &conn, before.folded) {
            unread.add("log", why);
        }
        finish_store(conn, fresh)
    })?;
    // A damaged log must not prevent the restore.
    if let Err(why) = erasure_request::keep_unfolded(data, before.folded) {
        unread.add("log", why);
    }
    let moved_to = put_aside(data, &data.join(format!("{ASIDE}{now}")))?;
    take_place(data, &fresh)?;
    Ok(RestoreReport { moved_to: moved_to.or(cut), unread })
}

/// Adds the records of the replaced log that the replaced store has not folded to the restored log, because they were
/// acknowledged. If the replaced store is lost, that is the whole log; a fact that the backup also has counts once,
/// like any repeated fact.
fn take_over_log(replaced: &Path, fresh: &Path, restored: &Connection, folded: u64) -> Result<(), StoreError> {
    let Some(replaced) = log::open_existing(replaced)? else { return Ok(()) };
    let mut log = log::FactLog::of(
        Connection::open(fresh.join(crate::store::data_fault::LOG))?,
        StoreCounters::load(restored)?.folded(),
    )?;
    log.take_over(&replaced, folded)?;
    log.checkpoint()
}

/// The folder into which an interrupted restore had moved the store, or at least its file: the newest such folder.
fn interrupted_folder(data: &Path) -> Result<Option<PathBuf>, BackupError> {
    if store::store_file(data).exists() || !data.join(store::RESTORING).exists() {
        return Ok(None);
    }
    let folders = fs::read_dir(data).map_err(io_failure("cannot read", data))?;
    let aside = folders.flatten().filter_map(|folder| {
        let at: Millis = folder.file_name().to_str()?.strip_prefix(ASIDE)?.parse().ok()?;
        store::store_file(&folder.path()).exists().then(|| (at, folder.path()))
    });
    Ok(aside.max().map(|(_, path)| path))
}

/// Builds a complete store in a folder of its own before it replaces another. No origin starts while the folder exists;
/// another run finishes the work. If `fill` fails, the folder is removed, unless an earlier run was interrupted while
/// it moved the files.
pub(crate) fn make_store<E: From<BackupError>>(
    data: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let fresh = data.join(store::RESTORING);
    let was_there = fresh.exists();
    let is_moved = was_there && (!store::store_file(data).exists() || !store::store_file(&fresh).exists());
    if was_there {
        give_up(&fresh)?;
    }
    crate::base::folders::make_folder(&fresh).map_err(io_failure("cannot make", &fresh))?;
    let filled = fill(&fresh);
    if filled.is_err() && !is_moved {
        give_up(&fresh)?;
    }
    filled.map(|()| fresh)
}

fn give_up(fresh: &Path) -> Result<(), BackupError> {
    fs::remove_dir_all(fresh).map_err(io_failure("cannot remove", fresh))
}

/// Closes the store in that folder. All of its content is in its main file, durably.
pub(crate) fn finish_store(conn: Connection, fresh: &Path) -> Result<(), BackupError> {
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    drop(conn);
    let file = store::store_file(fresh);
    fs::File::open(&file).and_then(|file| file.sync_all()).map_err(io_failure("cannot write", &file))
}

/// Moves the folder's files to their final paths. The store comes last, so that a run after an interrupted one still
/// finds the replaced store. An existing store is replaced together with its write-ahead log.
pub(crate) fn take_place(data: &Path, fresh: &Path) -> Result<(), BackupError> {
    for file in [crate::store::data_fault::LOG, crate::store::data_fault::STORE] {
        if fresh.join(file).exists() {
            for end in ["-wal", "-shm"] {
                let old = data.join(format!("{file}{end}"));
                if old.exists() {
                    fs::remove_file(&old).map_err(io_failure("cannot remove", &old))?;
                }
            }
            fs::rename(fresh.join(file), data.join(file)).map_err(io_failure("cannot move", fresh))?;
        }
    }
    // No origin starts while the folder exists, so log, journal and marker are bound to the new store before it is
    // removed.
    crate::ingest::marker::bind_log(data, &Connection::open(store::store_file(data))?)?;
    give_up(fresh)?;
    fs::File::open(data).and_then(|folder| folder.sync_all()).map_err(io_failure("cannot write", data))
}

/// Raises an opened copy above all versions and epochs issued since it was taken, and makes every key due. Durable when
/// it returns.
///
/// # Errors
/// [`BackupError::Store`]; then the copy is unchanged.
pub fn renew_store(conn: &mut Connection, before: &ReplacedStore, now: Millis) -> Result<(), BackupError> {
    let tx = conn.transaction()?;
    let counters = StoreCounters::load(&tx)?;
    // The restore epoch is a minute, and at least one more than the last known. Minutes increase even if every trace of
    // an earlier restore is lost.
    let known = before.restore.max(counters.version().restore);
    let counters = if planted::is_active(PlantedBug::RestoreWithoutEpoch) {
        counters
    } else {
        counters.restored(Minute::at(now).0.max(known + 1), before.version)
    };
    // Memberships keep their relative order and supersede the ones that caches still hold.
    let base = counters.epoch().0 & !EPOCHS_OF_A_RESTORE;
    tx.execute(people::PEOPLE_LIFT_EPOCHS, [signed(base), signed(EPOCHS_OF_A_RESTORE)])?;
    // A cached value of a visitor is older than the restore, whatever its counter.
    tx.execute(visitors::VISITORS_SET_RESTORE_EPOCH, [counters.version().restore])?;
    // Codes are permanent: a code that was assigned since the backup keeps its meaning.
    let numbers = before.numbers(&tx)?;
    bring_names(&tx, before, &numbers)?;
    before.catalogues.bring(&tx, &numbers)?;
    before.sends.bring(&tx, &numbers)?;
    let waiting = waiting_keys(&tx)?;
    tx.execute(outbox::OUTBOX_DELETE_ALL, [])?;
    // A write that was handed out before the restore may still reach the KV after it.
    let times = [counters.version().counter, now, now.saturating_add(LATE_MS)].map(signed);
    tx.execute(outbox::OUTBOX_INSERT_ALL_KEYS, times)?;
    // The KV values of visitors that arrived after the backup are deleted, because no later write would replace them.
    let orphans = if planted::is_active(PlantedBug::RestoreKeepsOrphans) { &[][..] } else { &before.subjects[..] };
    for (tenant, kind, subject) in orphans {
        publish_key(&tx, numbers.of(*tenant), *kind, subject, Priority::News, times)?;
    }
    // Keys that the copy still had to delete or rewrite, such as keys of visitors lost in an earlier restore.
    for (tenant, kind, subject, priority) in waiting {
        publish_key(&tx, tenant, kind, &subject, priority, times)?;
    }
    for (tenant, kind, subject) in catalogue::renew_pointers(&tx, now)? {
        publish_key(&tx, tenant, kind, &subject, Priority::OfTenant, times)?;
    }
    publish_names(&tx, times)?;
    publish_erased(&tx, times)?;
    counters.save(&tx)?;
    tx.execute(meta::META_SET_RESTORE_EPOCH, [counters.version().restore])?;
    Ok(tx.commit()?)
}

/// A due key: tenant, kind and subject as in the outbox, and its priority.
type Waiting = (i64, u16, [u8; 16], Priority);

/// The due keys of visitors and ids in a store's outbox.
fn waiting_keys(tx: &Connection) -> Result<Vec<Waiting>, BackupError> {
    let mut waiting = tx.prepare(outbox::OUTBOX_WAITING_KEYS)?;
    let rows =
        waiting.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, Priority::of_column(row.get(3)?))))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Copies the attribute names that were assigned since the backup. A tenant's names are copied while they continue
/// those of the backup: in another history, a token may belong to another name, and tokens must have no gap.
fn bring_names(tx: &Connection, before: &ReplacedStore, numbers: &TenantNumbers) -> Result<(), BackupError> {
    let mut parted = BTreeSet::new();
    for (tenant, token, name, kind) in
        before.names.iter().map(|(of, token, name, kind)| (numbers.of(*of), token, name, kind))
    {
        let there: Option<String> = tx
            .query_row(attribute_names::ATTRIBUTE_NAMES_NAME_OF_TOKEN, (tenant, token), |row| row.get(0))
            .optional()?;
        let is_forgotten = |name: &str| ForgottenName::parse(name).is_some();
        let goes_on = match there {
            // A name that was removed since the backup comes back with its values. A name assigned since then to a free
            // token is copied.
            Some(_) if is_forgotten(name) => true,
            Some(there) if is_forgotten(&there) => {
                tx.execute(attribute_names::ATTRIBUTE_NAMES_REDEFINE, (tenant, token, name, kind))? == 1
            }
            Some(there) => there == *name,
            None => tx.execute(attribute_names::ATTRIBUTE_NAMES_APPEND, (tenant, token, name, kind))? == 1,
        };
        if !goes_on && parted.insert(tenant) {
            tracing::warn!(tenant, "newer attribute names belong to another history and are not restored");
        }
    }
    Ok(())
}

fn publish_names(tx: &Connection, times: [i64; 3]) -> Result<(), BackupError> {
    let mut pages = tx.prepare(attribute_names::ATTRIBUTE_NAMES_PAGES)?;
    let mut rows = pages.query([signed(limits::ATTRIBUTE_PAGE as u64)])?;
    while let Some(row) = rows.next()? {
        let (tenant, page): (i64, u16) = (row.get(0)?, row.get(1)?);
        let (kind, subject) = names_subject(page);
        publish_key(tx, tenant, kind, &subject, Priority::News, times)?;
    }
    Ok(())
}

/// Publishes the keys that an erasure still waits for, including lookups that no longer exist.
fn publish_erased(tx: &Connection, times: [i64; 3]) -> Result<(), BackupError> {
    let mut open = tx.prepare(erasure_keys::ERASURE_KEYS_DISTINCT_UNWRITTEN)?;
    let mut rows = open.query([])?;
    while let Some(row) = rows.next()? {
        publish_key(tx, row.get(0)?, row.get(1)?, &row.get(2)?, Priority::Leaving, times)?;
    }
    Ok(())
}

/// Makes one key due, with at least the given priority. The times are `changed`, `due` and `late` of the outbox.
fn publish_key(
    tx: &Connection,
    tenant: i64,
    kind: u16,
    subject: &[u8; 16],
    priority: Priority,
    [changed, due, late]: [i64; 3],
) -> Result<(), BackupError> {
    tx.prepare_cached(outbox::OUTBOX_INSERT_OR_RAISE)?.execute((
        tenant,
        kind,
        subject,
        changed,
        due,
        late,
        priority.of(kind) as u8,
    ))?;
    Ok(())
}

/// Moves the store, its main file first, and then the log. An interrupted move continues: a write-ahead log follows its
/// main file.
fn put_aside(data: &Path, aside: &Path) -> Result<Option<PathBuf>, BackupError> {
    let mut moved = None;
    for file in [crate::store::data_fault::STORE, crate::store::data_fault::LOG] {
        if data.join(file).exists() && aside.join(file).exists() {
            continue;
        }
        for end in ["", "-wal", "-shm"] {
            let old = data.join(format!("{file}{end}"));
            if old.exists() {
                crate::base::folders::make_folder(aside).map_err(io_failure("cannot make", aside))?;
                fs::rename(&old, aside.join(format!("{file}{end}"))).map_err(io_failure("cannot move", &old))?;
                moved = Some(aside.to_owned());
            }
        }
    }
    // The folder may be restored like any backup, which has a log.
    if store::store_file(aside).exists() {
        empty_log(aside)?;
    }
    Ok(moved)
}

#[cfg(test)]
mod tests;
