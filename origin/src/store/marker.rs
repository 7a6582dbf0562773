//! The marker of a data directory: it ties the store, its log and its journal of erasures to each other, so that a directory
//! from which one of them was removed, cut, or replaced by an older or a foreign one is not started over in silence.
//!
//! All three files hold the random identity of the store, and the marker repeats it with the names of the files that were
//! made. The log holds its highest record and the highest that it let go, its tail file (`log.db-tail`) the highest that was
//! acknowledged. A missing or older journal is no fault, because the origin completes it from the store when it starts.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{FILE as STORE, StoreError, file, unsigned};
use crate::ingest::log::{self, FILE as LOG, LogTail};
use crate::privacy::journal::{self, FILE as JOURNAL};

/// File name of the marker in the data directory.
pub const FILE: &str = "causeway.marker";
/// File name of the audience index, which only a directory with a store has.
const AUDIENCE_INDEX: &str = "columns";

/// The random name of a store, which its log and its journal repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreIdentity([u8; 16]);

impl StoreIdentity {
    pub(crate) fn from_column(bytes: Option<Vec<u8>>) -> Option<Self> {
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self)
    }

    /// As a column.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for StoreIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// What is wrong with the files of a data directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataFault {
    /// The store is missing, and other files say that there was one.
    #[error(
        "{STORE} is missing, and the directory had one: put it back, or restore a backup with `causeway restore --from FOLDER`. \
         To begin without any data, choose an empty directory"
    )]
    StoreMissing,
    /// The log is missing.
    #[error("{LOG} is missing: acknowledged facts that the store does not hold yet are in it{}", describe_lost(*.highest, *.folded))]
    LogMissing {
        /// The highest record that was acknowledged, where its tail file says so.
        highest: Option<u64>,
        /// The highest record that the store holds.
        folded: u64,
    },
    /// The log ends before what was acknowledged: it, or its write-ahead file, was cut or replaced by an older copy.
    #[error(
        "{LOG} ends with record {found}, and record {highest} was acknowledged: {LOG} or {LOG}-wal was cut or replaced"
    )]
    LogCut {
        /// The highest record that was acknowledged.
        highest: u64,
        /// The highest record in the log.
        found: u64,
    },
    /// The store is older than the log: records that it lacks were let go.
    #[error(
        "{STORE} holds the log's records up to {folded}, and {LOG} has let go those up to {let_go}: {STORE} was replaced by an \
         older copy. Put the right one back, or restore a backup with `causeway restore --from FOLDER`"
    )]
    StoreOlder {
        /// The highest record that the store holds.
        folded: u64,
        /// The highest record that the log let go.
        let_go: u64,
    },
    /// A file belongs to another store.
    #[error("{0} belongs to another store than {STORE}: put the right one back, or move it away")]
    ForeignFile(&'static str),
    /// The marker cannot be read.
    #[error("{FILE} cannot be read: {0}. Remove it if the other files are right")]
    UnreadableMarker(String),
}

fn describe_lost(highest: Option<u64>, folded: u64) -> String {
    match highest {
        Some(highest) if highest > folded => format!(" (records {} to {highest})", folded + 1),
        Some(_) => " (its tail file says that the store holds all of them)".to_owned(),
        None => String::new(),
    }
}

impl DataFault {
    /// Whether [`accept_loss`] can go on without what is lost.
    #[must_use]
    pub fn is_acceptable(&self) -> bool {
        !matches!(self, Self::StoreMissing | Self::ForeignFile(_) | Self::UnreadableMarker(_))
    }
}

/// The marker's document.
#[derive(Debug, Default, Serialize, Deserialize)]
struct MarkerDocument {
    /// The store's identity, 32 hexadecimal digits.
    identity: String,
    /// The files that were made.
    files: Vec<String>,
}

/// What the store says of itself and of its files.
struct StoreState {
    identity: StoreIdentity,
    folded: u64,
}

impl StoreState {
    fn load(store: &Connection) -> Result<Self, StoreError> {
        let read = "SELECT identity, folded FROM meta";
        let (identity, folded) = store.query_row(read, [], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
        let identity = StoreIdentity::from_column(identity).ok_or(StoreError::Corrupt { what: "identity" })?;
        Ok(Self { identity, folded })
    }
}

/// What the log says of itself.
struct LogState {
    identity: Option<StoreIdentity>,
    highest: u64,
    let_go: u64,
}

impl LogState {
    fn load(log: &Connection) -> Result<Self, StoreError> {
        let read = "SELECT identity, max(highest, ifnull((SELECT max(seq) FROM log), 0)), let_go FROM state";
        Ok(log.query_row(read, [], |row| {
            let identity = StoreIdentity::from_column(row.get(0)?);
            Ok(Self { identity, highest: unsigned(row.get(1)?), let_go: unsigned(row.get(2)?) })
        })?)
    }
}

/// Refuses to make a store in a directory that had one.
///
/// # Errors
/// [`StoreError::Data`].
pub(super) fn check_new(data: &Path) -> Result<(), StoreError> {
    let had_one = [FILE, LOG, JOURNAL, AUDIENCE_INDEX].iter().any(|name| data.join(name).exists());
    if had_one { Err(fault(data, DataFault::StoreMissing)) } else { Ok(()) }
}

/// Checks that store, log and journal belong together, makes those that were never made, and writes the marker.
///
/// # Errors
/// [`StoreError::Data`]: one of them is missing, cut, older or foreign. Nothing was changed then.
pub fn tie(data: &Path, store: &Connection) -> Result<(), StoreError> {
    match find_faults(data, store)?.into_iter().next() {
        Some(found) => Err(fault(data, found)),
        None => bind(data, store),
    }
}

/// Everything that is wrong with a data directory, whose store nobody needs to have opened.
///
/// # Errors
/// [`StoreError`]: a file cannot be read.
pub fn inspect(data: &Path) -> Result<Vec<DataFault>, StoreError> {
    if !file(data).exists() {
        let had_one = check_new(data).is_err();
        return Ok(had_one.then_some(DataFault::StoreMissing).into_iter().collect());
    }
    find_faults(data, &super::open_readonly(data)?)
}

/// Goes on without what is missing, cut or older. What the log still holds is kept.
///
/// # Errors
/// [`StoreError::Data`] for a fault that only the right file mends.
pub fn accept_loss(data: &Path) -> Result<Vec<DataFault>, StoreError> {
    let found = inspect(data)?;
    if let Some(other) = found.iter().find(|found| !found.is_acceptable()) {
        return Err(fault(data, other.clone()));
    }
    let store = super::open(data)?;
    bind(data, &store)?;
    Ok(found)
}

fn fault(data: &Path, fault: DataFault) -> StoreError {
    StoreError::Data { path: data.to_owned(), fault }
}

fn find_faults(data: &Path, store: &Connection) -> Result<Vec<DataFault>, StoreError> {
    let StoreState { identity, folded } = StoreState::load(store)?;
    let (mut found, mut made) = (Vec::new(), Vec::new());
    match read_marker(data) {
        Ok(Some(marker)) if marker.identity == identity.to_string() => made = marker.files,
        Ok(Some(_)) => found.push(DataFault::ForeignFile(FILE)),
        Ok(None) => {}
        Err(why) => found.push(DataFault::UnreadableMarker(why)),
    }
    let was_made = |name: &str| made.iter().any(|file| file == name);
    let is_other = |of: Option<StoreIdentity>| of.is_some_and(|of| of != identity);
    let highest = LogTail::read(data);
    match log::open_existing(data)?.map(|log| LogState::load(&log)).transpose()? {
        None if was_made(LOG) || folded > 0 => found.push(DataFault::LogMissing { highest, folded }),
        None => {}
        Some(log) if is_other(log.identity) => found.push(DataFault::ForeignFile(LOG)),
        Some(log) => {
            let acknowledged = highest.unwrap_or(0).max(folded);
            if acknowledged > log.highest {
                found.push(DataFault::LogCut { highest: acknowledged, found: log.highest });
            }
            if log.let_go > folded {
                found.push(DataFault::StoreOlder { folded, let_go: log.let_go });
            }
        }
    }
    if is_other(journal::store_of(data)?) {
        found.push(DataFault::ForeignFile(JOURNAL));
    }
    Ok(found)
}

/// Writes the store's identity into its log and its journal, which are made if need be, and then into the marker.
///
/// # Errors
/// [`StoreError`].
pub fn bind(data: &Path, store: &Connection) -> Result<(), StoreError> {
    let StoreState { identity, folded } = StoreState::load(store)?;
    log::Log::open(data, folded)?.bind(identity, folded)?;
    journal::bind(data, identity)?;
    let files = [STORE, LOG, JOURNAL].map(str::to_owned).to_vec();
    write_marker(data, &MarkerDocument { identity: identity.to_string(), files })
        .map_err(|source| StoreError::Directory { path: data.join(FILE), source })
}

/// Gives a store that takes another's place an identity of its own.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn renew_identity(store: &Connection) -> Result<(), StoreError> {
    store.execute("UPDATE meta SET identity = randomblob(16)", [])?;
    Ok(())
}

fn read_marker(data: &Path) -> Result<Option<MarkerDocument>, String> {
    match fs::read_to_string(data.join(FILE)) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| e.to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }
}

/// Writes the marker durably; it is there as a whole or as it was.
fn write_marker(data: &Path, marker: &MarkerDocument) -> io::Result<()> {
    let text = serde_json::to_string_pretty(marker)?;
    let path: PathBuf = data.join(FILE);
    if fs::read_to_string(&path).is_ok_and(|held| held == text) {
        return Ok(());
    }
    let part = path.with_extension("marker-part");
    let mut written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(&part, &path)?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests;
