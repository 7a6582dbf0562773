//! Export: everything the store knows for good, in files that others read, and back into an empty store exactly
//! ([`load`]). `docs/EXPORT.md` is the schema; [`tables`] is what both ways go by.
//!
//! What others could make again does not travel: indices, the outbox, versions. Nor does what belongs to one
//! installation: tokens, the log, imports under way.

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

use self::file::{HashedFile, TableSink};
use self::tables::{ExportTable, FileCell, PERSON, SCHEMA, TABLES};
use crate::base::folders::make_folder;
use crate::store::{StoreCounters, StoreError, TenantNo};

pub use self::file::ExportFormat;

/// File name of the manifest. It is written last: a folder without one is no export.
pub const MANIFEST: &str = "manifest.json";

/// Writes people to a file, as Parquet: one column, `person`.
///
/// # Errors
/// Where it cannot be written.
pub fn people(to: File, mut people: impl Iterator<Item = VisitorId>) -> io::Result<()> {
    let mut writer = parquet::ParquetWriter::new(HashedFile::of(to), vec![PERSON])?;
    people.try_for_each(|person| writer.put(vec![FileCell::Text(person.to_string())]))?;
    writer.finish()?.finish().map(drop)
}

/// Has a new file written beside, as `.part`, that gets its name once all of it is there and durable: half of one is not to be
/// taken for a whole one.
///
/// # Errors
/// That of `write`, or [`io::Error`] where the file is there already, another writes it, or it cannot be written.
pub fn whole<T, E: From<io::Error>>(path: &Path, write: impl FnOnce(&File) -> Result<T, E>) -> Result<T, E> {
    let part = partial(path);
    let is_new = || if path.try_exists()? { Err(io::Error::from(io::ErrorKind::AlreadyExists)) } else { Ok(()) };
    is_new()?;
    // One that a kill left is nobody's, and has no lock.
    let file = File::options().write(true).create(true).truncate(false).open(&part)?;
    file.try_lock().map_err(io::Error::from)?;
    let ended = || {
        file.set_len(0)?;
        let given = write(&file)?;
        file.sync_all()?;
        is_new()?;
        fs::rename(&part, path)?;
        // A bare name lies in the folder that is at hand.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
        Ok(given)
    };
    ended().inspect_err(|_| drop(fs::remove_file(&part)))
}

/// Why an export was not made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or folder.
    #[error("cannot write {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder is not empty, and an export never replaces one.
    #[error("{} is there already and not empty: choose another folder", .0.display())]
    NotEmpty(PathBuf),
    /// The store has no tenant of that name.
    #[error("the store has no tenant `{0}`")]
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

/// What an export holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Form of the tables: [`SCHEMA`].
    pub schema: u32,
    /// Form of the files.
    pub form: ExportFormat,
    /// When it was made.
    pub made_ms: Millis,
    /// How often the store came back from a backup, or an export: versions of later ones are above.
    pub restore_epoch: u32,
    /// Names of the tenants in it, in order.
    pub tenants: Vec<String>,
    /// From which weight on evidence links, per mille, of the configured tenants.
    pub link_thresholds: BTreeMap<String, u16>,
    /// The tables, in the order in which they are read.
    pub tables: Vec<Entry>,
}

/// One table of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The table.
    pub name: String,
    /// Its file.
    pub file: String,
    /// How many rows it has.
    pub rows: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Their digest, in hexadecimal digits.
    pub sha256: String,
}

/// What is exported, and where to.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// A new or empty folder.
    pub to: &'a Path,
    /// Form of the files.
    pub form: ExportFormat,
    /// One tenant alone.
    pub tenant: Option<&'a str>,
    /// From which weight on evidence links, by tenant.
    pub thresholds: &'a BTreeMap<String, u16>,
    /// The time.
    pub now: Millis,
}

/// From which weight on evidence links, per mille, by the tenants' names.
#[must_use]
pub fn thresholds(config: &EdgeConfig) -> BTreeMap<String, u16> {
    config.tenants.iter().map(|tenant| (tenant.name.clone(), tenant.threshold().0)).collect()
}

/// Exports what one transaction of the store sees. `progress` is told the table and rows of it that are written.
///
/// # Errors
/// [`ExportError`]; what is written by then has no manifest.
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

/// The tenants to export, by name.
fn tenants(conn: &Connection, only: Option<&str>) -> Result<Vec<(String, TenantNo)>, ExportError> {
    let mut statement = conn.prepare("SELECT name, tenant FROM tenants WHERE ?1 IS NULL OR name = ?1 ORDER BY name")?;
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

/// The name of a file that is not whole yet.
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
