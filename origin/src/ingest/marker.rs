//! The marker of a data directory. It ties the store, its log and its journal of erasures together, so that a directory
//! in which one of them was removed, cut or replaced is not silently started without it.
//!
//! All three files hold the random identity of the store; the marker repeats it, with the names of the files that were
//! created. The log holds its highest record and the highest deleted one; its tail file (`log.db-tail`) holds the
//! highest acknowledged one. A missing or older journal is no fault, because the origin completes it from the store at
//! its start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::base::integers::unsigned;
use crate::ingest::log::{self, LogTail};
use crate::store::data_fault::{DataFault, MARKER};
use crate::store::data_fault::{JOURNAL, LOG, STORE};
use crate::store::files::{check_new, data_fault};
use crate::store::identity::StoreIdentity;
use crate::store::tables::{meta, state};
use crate::store::{OpenError, StoreError, journal, store_file};

/// The marker's document.
#[derive(Debug, Default, Serialize, Deserialize)]
struct MarkerDocument {
    /// The store's identity, 32 hexadecimal digits.
    identity: String,
    /// Names of the files that were created.
    files: Vec<String>,
}

/// The store's identity and its highest record.
struct StoreState {
    identity: StoreIdentity,
    folded: u64,
}

impl StoreState {
    fn load(store: &Connection) -> Result<Self, StoreError> {
        let (identity, folded) =
            store.query_row(meta::META_IDENTITY_AND_FOLDED, [], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
        let identity = StoreIdentity::from_column(identity).ok_or(StoreError::Corrupt { what: "identity" })?;
        Ok(Self { identity, folded })
    }
}

/// The log's identity and its bounds.
struct LogState {
    identity: Option<StoreIdentity>,
    highest: u64,
    let_go: u64,
}

impl LogState {
    fn load(log: &Connection) -> Result<Self, StoreError> {
        Ok(log.query_row(state::STATE_ALL, [], |row| {
            let identity = StoreIdentity::from_column(row.get(0)?);
            Ok(Self { identity, highest: unsigned(row.get(1)?), let_go: unsigned(row.get(2)?) })
        })?)
    }
}

/// Checks that store, log and journal belong together, creates those that never existed, and writes the marker.
///
/// # Errors
/// [`OpenError::Data`]: one of them is missing, cut, older or foreign. Nothing was changed then.
pub fn tie_files(data: &Path, store: &Connection) -> Result<(), OpenError> {
    match find_faults(data, store)?.into_iter().next() {
        Some(found) => Err(data_fault(data, found)),
        None => bind_log(data, store),
    }
}

/// All faults of a data directory; the store need not be open.
///
/// # Errors
/// [`OpenError`]: a file cannot be read.
pub fn inspect_folder(data: &Path) -> Result<Vec<DataFault>, OpenError> {
    if !crate::store::holds_bytes(&store_file(data))? {
        let had_one = check_new(data).is_err();
        return Ok(had_one.then_some(DataFault::StoreMissing).into_iter().collect());
    }
    find_faults(data, &crate::store::open_readonly(data)?)
}

/// Continues without the missing, cut or older file. Records that the log still holds stay.
///
/// # Errors
/// [`OpenError::Data`] for a fault that only the right file repairs.
pub fn accept_loss(data: &Path) -> Result<Vec<DataFault>, OpenError> {
    let found = inspect_folder(data)?;
    if let Some(other) = found.iter().find(|found| !found.is_acceptable()) {
        return Err(data_fault(data, other.clone()));
    }
    let store = crate::store::open(data)?;
    bind_log(data, &store)?;
    Ok(found)
}

fn find_faults(data: &Path, store: &Connection) -> Result<Vec<DataFault>, OpenError> {
    let StoreState { identity, folded } = StoreState::load(store)?;
    let (mut found, mut made) = (Vec::new(), Vec::new());
    match read_marker(data) {
        Ok(Some(marker)) if marker.identity == identity.to_string() => made = marker.files,
        Ok(Some(_)) => found.push(DataFault::ForeignFile(MARKER)),
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

/// Writes the store's identity into its log and its journal, which are created if necessary, and then into the marker.
///
/// # Errors
/// [`OpenError`].
pub fn bind_log(data: &Path, store: &Connection) -> Result<(), OpenError> {
    let StoreState { identity, folded } = StoreState::load(store)?;
    log::FactLog::open(data, folded)?.bind(identity, folded)?;
    journal::bind_journal(data, identity)?;
    let files = [STORE, LOG, JOURNAL].map(str::to_owned).to_vec();
    write_marker(data, &MarkerDocument { identity: identity.to_string(), files })
        .map_err(|source| OpenError::Directory { path: data.join(MARKER), source })
}

/// Gives a new identity to a store that replaces another one.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn renew_identity(store: &Connection) -> Result<(), StoreError> {
    store.execute(meta::META_RENEW_IDENTITY, [])?;
    Ok(())
}

fn read_marker(data: &Path) -> Result<Option<MarkerDocument>, String> {
    match fs::read_to_string(data.join(MARKER)) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| e.to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }
}

/// Writes the marker durably and atomically.
fn write_marker(data: &Path, marker: &MarkerDocument) -> io::Result<()> {
    let text = serde_json::to_string_pretty(marker)?;
    let path: PathBuf = data.join(MARKER);
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
