//! Export: all durable data of the store, in files that other programs can read and that [`load`] reads back exactly
//! into an empty store. `docs/EXPORT.md` is the schema; [`tables`] is used in both directions.
//!
//! Derived data is not exported: indices, the outbox, versions. Data of one installation is not exported either:
//! tokens, the log, running imports.

mod csv;
mod file;
pub mod hashed_file;
pub mod load;
mod ndjson;
pub(crate) mod parquet;
mod rows;
pub mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::settings::config::EdgeConfig;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use self::file::TableSink;
use self::hashed_file::HashedFile;
use self::tables::{ExportTable, FileCell, PERSON, SCHEMA, TABLES};
use crate::base::folders::make_folder;
use crate::store::tables::tenants;
use crate::store::{StoreCounters, StoreError, TenantNo};

pub use self::file::ExportFormat;

/// File name of the manifest. It is written last, so a folder without one is no export.
pub const MANIFEST: &str = "manifest.json";

/// Writes people to a file, as Parquet: one column, `person`.
///
/// # Errors
/// [`io::Error`] if the file cannot be written.
pub fn people(to: File, mut people: impl Iterator<Item = VisitorId>) -> io::Result<()> {
    let mut writer = parquet::ParquetWriter::new(HashedFile::of(to), vec![PERSON])?;
    people.try_for_each(|person| writer.put(vec![FileCell::Text(person.to_string())]))?;
    writer.finish()?.finish().map(drop)
}

/// Writes a new file under the name `.part` and renames it when it is complete and durable. A half-written file is
/// therefore never taken for a complete one.
///
/// # Errors
/// The error of `write`, or [`io::Error`] if the file exists, another process writes it, or it cannot be written.
pub fn whole<T, E: From<io::Error>>(path: &Path, write: impl FnOnce(&File) -> Result<T, E>) -> Result<T, E> {
    let part = partial(path);
    let is_new = || if path.try_exists()? { Err(io::Error::from(io::ErrorKind::AlreadyExists)) } else { Ok(()) };
    is_new()?;
    // A file left by a killed process has no lock.
    let file = File::options().write(true).create(true).truncate(false).open(&part)?;
    file.try_lock().map_err(io::Error::from)?;
    let ended = || {
        file.set_len(0)?;
        let given = write(&file)?;
        file.sync_all()?;
        is_new()?;
        fs::rename(&part, path)?;
        // A bare file name is in the current directory.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
        Ok(given)
    };
    ended().inspect_err(|_| drop(fs::remove_file(&part)))
}

/// The reason why an export was not made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or folder could not be written.
    #[error("cannot write {}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The folder is not empty, and an export never replaces one.
    #[error("{} exists and is not empty: choose another folder", .0.display())]
    NotEmpty(PathBuf),
    /// The store has no tenant of that name.
    #[error("tenant `{0}` not found in the store")]
    Tenant(String),
}

impl From<rusqlite::Error> for ExportError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    move |source| ExportError::File { path: path.to_owned(), source }
}

/// The contents of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the schema: [`SCHEMA`].
    pub schema: u32,
    /// Format of the files.
    pub form: ExportFormat,
    /// Time of the export.
    pub made_ms: Millis,
    /// Number of times that the store came back from a backup or an export. Later versions are above it.
    pub restore_epoch: u32,
    /// Names of the exported tenants, sorted.
    pub tenants: Vec<String>,
    /// Least weight at which evidence links, per mille, by configured tenant.
    pub link_thresholds: BTreeMap<String, u16>,
    /// The tables, in reading order.
    pub tables: Vec<Entry>,
}

/// One table in the manifest of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The table's name.
    pub name: String,
    /// The name of its file.
    pub file: String,
    /// Number of rows.
    pub rows: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
}

/// The options of an export.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// A new or empty folder.
    pub to: &'a Path,
    /// Format of the files.
    pub form: ExportFormat,
    /// The only tenant to export; `None` for all.
    pub tenant: Option<&'a str>,
    /// Least weight at which evidence links, per mille, by tenant.
    pub thresholds: &'a BTreeMap<String, u16>,
    /// The time.
    pub now: Millis,
}

/// The least weight at which evidence links, per mille, by tenant name.
#[must_use]
pub fn thresholds(config: &EdgeConfig) -> BTreeMap<String, u16> {
    config.tenants.iter().map(|tenant| (tenant.name.clone(), tenant.threshold().0)).collect()
}

/// Exports the store as one transaction sees it. `progress` is called with the current table and the number of its rows
/// written.
///
/// # Errors
/// [`ExportError`]; the files written until then have no manifest.
pub fn run(conn: &mut Connection, job: Job<'_>, progress: &mut dyn FnMut(&str, u64)) -> Result<Manifest, ExportError> {
    let tx = conn.transaction()?;
    let tenants = tenants(&tx, job.tenant)?;
    make_folder(job.to).map_err(failed(job.to))?;
    if fs::read_dir(job.to).map_err(failed(job.to))?.next().is_some() {
        return Err(ExportError::NotEmpty(job.to.to_owned()));
    }
    let restore_epoch = StoreCounters::load(&tx)?.version().restore;
    let tables = TABLES.iter().map(|table| one(&tx, &job, table, &tenants, progress)).collect::<Result<_, _>>()?;
    let tenants: Vec<String> = tenants.into_iter().map(|(name, _)| name).collect();
    let link_thresholds = job.thresholds.clone().into_iter().filter(|(name, _)| tenants.contains(name)).collect();
    let (schema, form, made_ms) = (SCHEMA, job.form, job.now);
    let manifest = Manifest { schema, form, made_ms, restore_epoch, tenants, link_thresholds, tables };
    let text = serde_json::to_string_pretty(&manifest).map_err(io::Error::from).map_err(failed(job.to))?;
    let path = job.to.join(MANIFEST);
    write_whole(&path, text.as_bytes()).map_err(failed(&path))?;
    fs::File::open(job.to).and_then(|folder| folder.sync_all()).map_err(failed(job.to))?;
    Ok(manifest)
}

/// The tenants to export, sorted by name.
fn tenants(conn: &Connection, only: Option<&str>) -> Result<Vec<(String, TenantNo)>, ExportError> {
    let mut statement = conn.prepare(tenants::TENANTS_BY_NAME)?;
    let rows = statement.query_map([only], |row| Ok((row.get(0)?, TenantNo(row.get(1)?))))?;
    let found: Vec<_> = rows.collect::<Result<_, _>>()?;
    match only {
        Some(name) if found.is_empty() => Err(ExportError::Tenant(name.to_owned())),
        _ => Ok(found),
    }
}

fn one(
    conn: &Connection,
    job: &Job<'_>,
    table: &ExportTable,
    tenants: &[(String, TenantNo)],
    progress: &mut dyn FnMut(&str, u64),
) -> Result<Entry, ExportError> {
    let file = job.form.name(table.name);
    let path = job.to.join(&file);
    let part = partial(&path);
    let mut sink = TableSink::create(job.form, &part, table).map_err(failed(&part))?;
    let mut count = 0;
    progress(table.name, 0);
    for (name, tenant) in tenants {
        rows::read(conn, table, *tenant, &mut |mut row| {
            row.insert(0, FileCell::Text(name.clone()));
            sink.put(row).map_err(failed(&part))?;
            count += 1;
            if count % 10_000 == 0 {
                progress(table.name, count);
            }
            Ok::<_, ExportError>(())
        })?;
    }
    let (bytes, sha256) = sink.finish().map_err(failed(&part))?;
    fs::rename(&part, &path).map_err(failed(&path))?;
    Ok(Entry { name: table.name.to_owned(), file, rows: count, bytes, sha256 })
}

/// The name of an incomplete file.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = partial(path);
    fs::write(&part, bytes)?;
    File::open(&part)?.sync_all()?;
    fs::rename(&part, path)
}
