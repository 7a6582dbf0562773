//! An export back into an empty store: the same visitors, people, links and facts counted, so that another export of it has
//! the same rows. What is derived is made anew, and everything is due for publishing under versions above all that the
//! exported store had issued.
//!
//! The store is made whole in a folder of its own and then takes the place of the empty one: a run that was ended leaves
//! that folder, with which nobody serves, and the next run begins again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::wire::profile;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use super::file::{TableSource, file_digest};
use super::rows::{VisitorParts, profile_cells};
use super::tables::{ColumnKind, ExportColumn, ExportTable, FileCell, SCHEMA, TABLES, TENANT};
use super::{Entry, MANIFEST, Manifest};
use crate::ingest::log;
use crate::maintenance::backup::{self, BackupError, ReplacedStore};
use crate::store::{self, StoreError, TenantNo, names, tenant_no};

/// Rows in one transaction.
const AT_ONCE: usize = 5_000;
/// Longest manifest, in bytes.
const MANIFEST_BYTES: u64 = 1_024 * 1_024;

/// Highest restore epoch that another can follow: memberships have it in front of 32 bits of their own.
const RESTORE_EPOCH: u32 = i32::MAX as u32 - 1;

/// Why an export was not loaded. The store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Putting the new store in its place.
    #[error(transparent)]
    Place(#[from] BackupError),
    /// A file of the export.
    #[error("cannot read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The manifest says nothing that can be loaded.
    #[error("{}: {why}", path.display())]
    Manifest {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file is not as the manifest says.
    #[error("{}: {why}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A row is wrong.
    #[error("{}, row {row}: {why}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Which row, from 1.
        row: u64,
        /// What is wrong with it.
        why: String,
    },
    /// An export is loaded into an empty store only.
    #[error("the store in {} is not empty: it has {what}", path.display())]
    NotEmpty {
        /// The data directory.
        path: PathBuf,
        /// What it has.
        what: String,
    },
}

impl From<rusqlite::Error> for LoadError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

/// Reads what an export says it holds. Its files are not looked at.
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
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| wrong(format!("it is no manifest: {e}")))?;
    let named = manifest.tables.iter().map(|entry| (entry.name.as_str(), entry.file.clone()));
    if !named.eq(TABLES.iter().map(|table| (table.name, manifest.form.name(table.name)))) {
        return Err(wrong("its tables are not those of this schema, each with its file, in order".to_owned()));
    }
    if manifest.restore_epoch > RESTORE_EPOCH {
        return Err(wrong(format!("its restore epoch is above {RESTORE_EPOCH}")));
    }
    let tenants = &manifest.tenants;
    if tenants.len() > limits::TENANTS || !tenants.is_sorted_by(|a, b| a < b) {
        return Err(wrong(format!("its tenants are over {}, or not in order, each once", limits::TENANTS)));
    }
    Ok(manifest)
}

/// Checks that the files are as the manifest says. `progress` is told the table looked at and how many of its bytes are done.
///
/// # Errors
/// [`LoadError::File`], [`LoadError::ExportTable`].
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
            return Err(LoadError::Table { path, why: "it was changed: its sha256 is not the manifest's".to_owned() });
        }
        progress(name, found);
    }
    Ok(())
}

/// Checks that the store in `data` may be replaced: it is not there, or knows nothing yet.
///
/// # Errors
/// [`LoadError::NotEmpty`], [`LoadError::Store`].
pub fn check_empty(data: &Path) -> Result<(), LoadError> {
    let holds = |what: String| Err(LoadError::NotEmpty { path: data.to_owned(), what });
    let mut folded = 0;
    if store::store_file(data).exists() {
        let conn = store::open_readonly(data)?;
        for table in TABLES {
            // An earlier release has fewer tables.
            let any = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
            if conn.table_exists(None, table.name)? && conn.query_row(&any, [], |row| row.get(0))? {
                return holds(table.name.replace('_', " "));
            }
        }
        folded = store::StoreCounters::load(&conn)?.folded();
    }
    if log::has_unfolded(data, folded)? { holds("facts that wait in its log".to_owned()) } else { Ok(()) }
}

/// Loads an export into the empty store of `data`. `progress` is told the table and rows of it that are loaded.
///
/// # Errors
/// [`LoadError`]; the store is as it was.
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
        // What the empty store has is in its file when it is replaced.
        Connection::open(store::store_file(data))?.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    }
    let fresh = backup::make_store(data, |fresh| fill_store(data, fresh, from, manifest, now, progress))?;
    Ok(backup::take_place(data, &fresh)?)
}

/// Makes the store in its own folder, from the empty one if there is one: that has tokens, and numbers of tenants.
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
    // It is nobody's store yet, and synced as a whole before it is.
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
    // Memberships keep their order; `renew` lifts them all.
    let epochs = "UPDATE meta SET epoch_counter = max(epoch_counter, (SELECT ifnull(max(epoch), 0) FROM people)),
        version_counter = max(version_counter, 1)";
    conn.execute(epochs, [])?;
    backup::renew_store(&mut conn, &ReplacedStore::issued(manifest.restore_epoch), now)?;
    backup::finish_store(conn, fresh)?;
    Ok(())
}

/// One table on its way into the store.
struct TableLoad<'a> {
    table: &'a ExportTable,
    columns: Vec<ExportColumn>,
    tenants: &'a BTreeMap<String, TenantNo>,
    names: BTreeMap<TenantNo, NameDictionary>,
    path: PathBuf,
    /// Rows so far.
    row: u64,
    /// The visitor whose rows are gathered, and they.
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

    /// Loads all rows, and gives how many there were.
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

    /// Puts a row where it belongs.
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
        // What follows is for those who read files.
        values.truncate(statement.parameter_count());
        match statement.execute(params_from_iter(values)) {
            Ok(1) => Ok(()),
            Ok(_) => Err(self.wrong("what it belongs to is not in the export, or is there twice")),
            Err(rusqlite::Error::SqliteFailure(why, told)) if why.code == rusqlite::ErrorCode::ConstraintViolation => {
                Err(self.wrong(told.unwrap_or_else(|| why.to_string())))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The readable columns of a visitor say what its core does.
    fn check_core(&self, cells: &[FileCell]) -> Result<(), LoadError> {
        let at = self.columns.iter().position(|column| column.kind == ColumnKind::Bytes).unwrap_or_default();
        let Some(FileCell::Bytes(core)) = cells.get(at) else { return Err(self.wrong("`profile` is not there")) };
        let visitor =
            cells.iter().take(1).find_map(|cell| if let FileCell::Text(id) = cell { id.parse().ok() } else { None });
        let Some(visitor) = visitor else { return Err(self.wrong("`visitor` is not there")) };
        let core =
            profile::decode_profile(visitor, core).map_err(|e| self.wrong(format!("`profile` cannot be read: {e}")))?;
        if cells.get(at + 1..) != Some(profile_cells(&core).as_slice()) {
            return Err(self.wrong("the columns behind `profile` do not say what it does"));
        }
        Ok(())
    }

    /// Adds a row to its visitor's; rows of one visitor lie together, and are kept together.
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

    /// Keeps what was gathered.
    fn close(&mut self, conn: &Connection) -> Result<(), LoadError> {
        const FIND: &str = "SELECT row FROM visitors WHERE tenant = ?1 AND visitor = ?2";
        let Some(((tenant, visitor), parts)) = self.open.take() else { return Ok(()) };
        let row = conn.prepare_cached(FIND)?.query_row((tenant.0, visitor), |row| row.get(0)).optional()?;
        let Some(row) = row else { return Err(self.wrong("up to here: its visitor is not in the export")) };
        match parts.keep(conn, row) {
            Err(StoreError::Corrupt { what }) => Err(self.wrong(format!("up to here: no facts add up to the {what}"))),
            kept => Ok(kept?),
        }
    }
}
