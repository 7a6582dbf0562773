//! Loads an export into an empty store: the same visitors, people, links and counted facts, so that a new export of it
//! has the same rows. Derived data is rebuilt, and every key is due for publishing with versions above all that the
//! exported store had issued.
//!
//! The store is built completely in a folder of its own and then replaces the empty one. An interrupted run leaves that
//! folder, no origin starts while it exists, and the next run begins again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::wire::profile;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use super::file::TableSource;
use super::rows::{VisitorParts, profile_cells};
use super::tables::{ColumnKind, ExportColumn, ExportTable, FileCell, SCHEMA, TABLES, TENANT};
use super::{Entry, MANIFEST, Manifest};
use crate::ingest::log;
use crate::maintenance::backup::{self, BackupError, ReplacedStore};
use crate::maintenance::file_digest::file_digest;
use crate::store::tables::{meta, visitors};
use crate::store::{self, LockError, OpenError, StoreError, TenantNo, names, tenant_no};

/// Rows per transaction.
const AT_ONCE: usize = 5_000;
/// Longest manifest, in bytes.
const MANIFEST_BYTES: u64 = 1_024 * 1_024;

/// Highest restore epoch that can be followed by another. Epochs of memberships store it above 32 bits of their own.
const RESTORE_EPOCH: u32 = i32::MAX as u32 - 1;

/// The reason why an export was not loaded. The store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The data directory is locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The new store could not be moved to its final path.
    #[error(transparent)]
    Place(#[from] BackupError),
    /// A file of the export could not be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The manifest is invalid.
    #[error("{}: {why}", path.display())]
    Manifest {
        /// The manifest's file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A file does not match the manifest.
    #[error("{}: {why}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A row is invalid.
    #[error("{}, row {row}: {why}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Number of the row, from 1.
        row: u64,
        /// The fault.
        why: String,
    },
    /// The store is not empty, and an export is never merged into one.
    #[error("the store in {} is not empty: it has {what}", path.display())]
    NotEmpty {
        /// The data directory.
        path: PathBuf,
        /// The contents that were found.
        what: String,
    },
}

impl From<rusqlite::Error> for LoadError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

/// Reads and checks the manifest of an export, but not its files.
///
/// # Errors
/// [`LoadError::File`], [`LoadError::Manifest`].
pub fn read_manifest(from: &Path) -> Result<Manifest, LoadError> {
    let path = from.join(MANIFEST);
    let failed = |source| LoadError::File { path: path.clone(), source };
    let wrong = |why: String| LoadError::Manifest { path: path.clone(), why };
    if fs::metadata(&path).map_err(failed)?.len() > MANIFEST_BYTES {
        return Err(wrong(format!("it is longer than {MANIFEST_BYTES} bytes")));
    }
    let text = fs::read(&path).map_err(failed)?;
    let schema = serde_json::from_slice::<serde_json::Value>(&text).ok().and_then(|said| said.get("schema")?.as_u64());
    if schema.is_some_and(|schema| schema != u64::from(SCHEMA)) {
        return Err(wrong(format!("its schema is {}, this release reads {SCHEMA}", schema.unwrap_or_default())));
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| wrong(format!("it is not a manifest: {e}")))?;
    let named = manifest.tables.iter().map(|entry| (entry.name.as_str(), entry.file.clone()));
    if !named.eq(TABLES.iter().map(|table| (table.name, manifest.form.name(table.name)))) {
        return Err(wrong("its tables differ from the tables of this schema, or are not in its order".to_owned()));
    }
    if manifest.restore_epoch > RESTORE_EPOCH {
        return Err(wrong(format!("its restore epoch is above {RESTORE_EPOCH}")));
    }
    let tenants = &manifest.tenants;
    if tenants.len() > limits::TENANTS || !tenants.is_sorted_by(|a, b| a < b) {
        return Err(wrong(format!("its tenants are more than {}, not sorted, or not unique", limits::TENANTS)));
    }
    Ok(manifest)
}

/// Checks the files against the manifest. `progress` is called with the current table and the number of its bytes
/// checked.
///
/// # Errors
/// [`LoadError::File`], [`LoadError::Table`].
pub fn check_files(from: &Path, manifest: &Manifest, progress: &mut dyn FnMut(&str, u64)) -> Result<(), LoadError> {
    for Entry { name, file, bytes, sha256, .. } in &manifest.tables {
        progress(name, 0);
        let path = from.join(file);
        let (found, digest) = file_digest(&path).map_err(|source| LoadError::File { path: path.clone(), source })?;
        if found != *bytes {
            let why = format!("it has {found} bytes, the manifest says {bytes}");
            return Err(LoadError::Table { path, why });
        }
        if digest != *sha256 {
            return Err(LoadError::Table { path, why: "it was changed: its sha256 differs".to_owned() });
        }
        progress(name, found);
    }
    Ok(())
}

/// Checks that the store in `data` may be replaced: it is missing or empty.
///
/// # Errors
/// [`LoadError::NotEmpty`], [`LoadError::Store`].
pub fn check_empty(data: &Path) -> Result<(), LoadError> {
    let holds = |what: String| Err(LoadError::NotEmpty { path: data.to_owned(), what });
    let mut folded = 0;
    if store::store_file(data).exists() {
        let conn = store::open_readonly(data)?;
        for table in TABLES {
            // A store of an earlier release has fewer tables.
            let any = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
            if conn.table_exists(None, table.name)? && conn.query_row(&any, [], |row| row.get(0))? {
                return holds(table.name.replace('_', " "));
            }
        }
        folded = store::StoreCounters::load(&conn)?.folded();
    }
    if log::has_unfolded(data, folded)? { holds("facts that wait in its log".to_owned()) } else { Ok(()) }
}

/// Loads an export into the empty store of `data`. `progress` is called with the current table and the number of its
/// rows loaded.
///
/// # Errors
/// [`LoadError`]; the store is unchanged.
pub fn run(
    data: &Path,
    from: &Path,
    manifest: &Manifest,
    now: Millis,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<(), LoadError> {
    let _lock = store::lock_folder(data)?;
    let _alone = store::lock_writing(data, true)?;
    check_empty(data)?;
    if store::store_file(data).exists() {
        // The content of the empty store must be in its main file when that is replaced.
        Connection::open(store::store_file(data))?.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    }
    let fresh = backup::make_store(data, |fresh| fill_store(data, fresh, from, manifest, now, progress))?;
    Ok(backup::take_place(data, &fresh)?)
}

/// Builds the store in its own folder, from a copy of the empty store if there is one, which has tokens and tenant
/// numbers.
fn fill_store(
    data: &Path,
    fresh: &Path,
    from: &Path,
    manifest: &Manifest,
    now: Millis,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<(), LoadError> {
    if store::store_file(data).exists() {
        backup::copy_store(&store::store_file(data), &store::store_file(fresh))?;
    }
    let mut conn = store::open(fresh)?;
    // No process uses this store yet, and it is synced to disk before it is moved.
    conn.pragma_update(None, "synchronous", "OFF")?;
    let mut tenants = BTreeMap::new();
    for name in &manifest.tenants {
        tenants.insert(name.clone(), tenant_no(&conn, name)?);
    }
    for (table, entry) in TABLES.iter().zip(&manifest.tables) {
        progress(table.name, 0);
        let path = from.join(&entry.file);
        let wrong = |why| LoadError::Table { path: path.clone(), why };
        let source = TableSource::open(manifest.form, &path, table).map_err(wrong)?;
        let rows = TableLoad::new(&conn, table, &tenants, path.clone())?.all(&mut conn, source, progress)?;
        if rows != entry.rows {
            return Err(wrong(format!("it has {rows} rows, the manifest says {}", entry.rows)));
        }
    }
    // Memberships keep their order; [`backup::renew_store`] raises their epochs.
    conn.execute(meta::META_RAISE_COUNTERS, [])?;
    backup::renew_store(&mut conn, &ReplacedStore::issued(manifest.restore_epoch), now)?;
    backup::finish_store(conn, fresh)?;
    Ok(())
}

/// The load of one table.
struct TableLoad<'a> {
    table: &'a ExportTable,
    columns: Vec<ExportColumn>,
    tenants: &'a BTreeMap<String, TenantNo>,
    names: BTreeMap<TenantNo, NameDictionary>,
    path: PathBuf,
    /// Number of the current row.
    row: u64,
    /// The visitor whose rows are being gathered, and its parts.
    open: Option<((TenantNo, Value), VisitorParts)>,
}

impl<'a> TableLoad<'a> {
    fn new(
        conn: &Connection,
        table: &'a ExportTable,
        tenants: &'a BTreeMap<String, TenantNo>,
        path: PathBuf,
    ) -> Result<Self, LoadError> {
        let of = |tenant: &TenantNo| Ok((*tenant, names::load_dictionary(conn, *tenant)?));
        let packed = table.packed().is_some();
        let names = tenants.values().filter(|_| packed).map(of).collect::<Result<_, StoreError>>()?;
        Ok(Self { table, columns: table.columns(), tenants, names, path, row: 0, open: None })
    }

    fn wrong(&self, why: impl Into<String>) -> LoadError {
        LoadError::Row { path: self.path.clone(), row: self.row, why: why.into() }
    }

    /// Loads all rows and returns their number.
    fn all(
        mut self,
        conn: &mut Connection,
        mut source: TableSource,
        progress: &mut dyn FnMut(&str, u64),
    ) -> Result<u64, LoadError> {
        loop {
            let tx = conn.transaction()?;
            let mut ended = false;
            for _ in 0..AT_ONCE {
                self.row += 1;
                let Some(cells) = source.next().map_err(|why| self.wrong(why))? else {
                    self.row -= 1;
                    ended = true;
                    break;
                };
                self.one(&tx, &cells)?;
            }
            self.close(&tx)?;
            tx.commit()?;
            progress(self.table.name, self.row);
            if ended {
                return Ok(self.row);
            }
        }
    }

    fn one(&mut self, conn: &Connection, cells: &[FileCell]) -> Result<(), LoadError> {
        let Some((FileCell::Text(name), cells)) = cells.split_first() else {
            return Err(self.wrong(format!("`{}` is not a name", TENANT.name)));
        };
        let Some(tenant) = self.tenants.get(name).copied() else {
            return Err(self.wrong(format!("the manifest has no tenant `{name}`")));
        };
        let values = self.columns.iter().zip(cells).map(|(column, cell)| column.value(cell));
        let values = values.collect::<Result<Vec<_>, _>>().map_err(|why| self.wrong(why))?;
        match self.table.packed() {
            Some(packed) => self.gather(conn, tenant, values, || VisitorParts::new(packed)),
            None => self.put(conn, tenant, cells, values),
        }
    }

    /// Inserts one row.
    fn put(
        &self,
        conn: &Connection,
        tenant: TenantNo,
        cells: &[FileCell],
        values: Vec<Value>,
    ) -> Result<(), LoadError> {
        if self.table.name == "visitors" {
            self.check_core(cells)?;
        }
        let write = self.table.write().unwrap_or_default();
        let mut statement = conn.prepare_cached(&write)?;
        let mut values: Vec<Value> = std::iter::once(Value::Integer(tenant.0)).chain(values).collect();
        // The remaining columns are derived, for readers of the files only.
        values.truncate(statement.parameter_count());
        match statement.execute(params_from_iter(values)) {
            Ok(1) => Ok(()),
            Ok(_) => Err(self.wrong("the row that it refers to is not in the export, or is there twice")),
            Err(rusqlite::Error::SqliteFailure(why, text)) if why.code == rusqlite::ErrorCode::ConstraintViolation => {
                Err(self.wrong(text.unwrap_or_else(|| why.to_string())))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Checks that the readable columns of a visitor match its packed profile.
    fn check_core(&self, cells: &[FileCell]) -> Result<(), LoadError> {
        let at = self.columns.iter().position(|column| column.kind == ColumnKind::Bytes).unwrap_or_default();
        let Some(FileCell::Bytes(core)) = cells.get(at) else { return Err(self.wrong("`profile` is missing")) };
        let visitor =
            cells.iter().take(1).find_map(|cell| if let FileCell::Text(id) = cell { id.parse().ok() } else { None });
        let Some(visitor) = visitor else { return Err(self.wrong("`visitor` is missing")) };
        let core =
            profile::decode_profile(visitor, core).map_err(|e| self.wrong(format!("`profile` cannot be read: {e}")))?;
        if cells.get(at + 1..) != Some(profile_cells(&core).as_slice()) {
            return Err(self.wrong("the columns after `profile` differ from its content"));
        }
        Ok(())
    }

    /// Adds a row to the rows of its visitor, which are adjacent in the file and stored together.
    fn gather(
        &mut self,
        conn: &Connection,
        tenant: TenantNo,
        mut values: Vec<Value>,
        new: impl FnOnce() -> VisitorParts,
    ) -> Result<(), LoadError> {
        let rest = values.split_off(1);
        let owner = (tenant, values.pop().unwrap_or(Value::Null));
        if self.open.as_ref().is_some_and(|(open, _)| *open != owner) {
            self.close(conn)?;
        }
        let no_names = NameDictionary::default();
        let names = self.names.get(&tenant).unwrap_or(&no_names);
        let (_, parts) = self.open.get_or_insert_with(|| (owner, new()));
        let added = parts.add(names, &rest);
        added.map_err(|why| self.wrong(why))
    }

    /// Stores the gathered rows of a visitor.
    fn close(&mut self, conn: &Connection) -> Result<(), LoadError> {
        let Some(((tenant, visitor), parts)) = self.open.take() else { return Ok(()) };
        let row = conn
            .prepare_cached(visitors::VISITORS_ROW_OF_ID)?
            .query_row((tenant.0, visitor), |row| row.get(0))
            .optional()?;
        let Some(row) = row else { return Err(self.wrong("up to here: its visitor is not in the export")) };
        if parts.keep(conn, row)? {
            Ok(())
        } else {
            Err(self.wrong("up to here: no facts add up to the visitor's events"))
        }
    }
}
