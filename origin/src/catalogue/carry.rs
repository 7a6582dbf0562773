//! What a store that comes back from a backup takes over from the one it replaces: numbers of versions, codes, units and
//! tokens are for ever, also those given since the backup.

use std::collections::BTreeMap;

use causeway_shared::ids::Millis;
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::publish::Subject;
use crate::store::{StoreError, signed};

/// The numbers that tenants have in a store, by those that they have in the one it replaces.
#[derive(Debug, Default)]
pub struct Numbers(pub BTreeMap<i64, i64>);

impl Numbers {
    /// Of one that has none here its own.
    #[must_use]
    pub fn of(&self, tenant: i64) -> i64 {
        self.0.get(&tenant).copied().unwrap_or(tenant)
    }
}

/// Tables, their columns, the tenant's first where it has one, and what becomes of a row that both stores have.
const TABLES: [(&str, &str, usize, &str); 6] = [
    (
        "catalogues",
        "tenant, version, document, sha256, experiments, budgets, limited, applied, by, replaced, handed, published",
        12,
        OWN,
    ),
    ("catalogue_current", "tenant, version, since", 3, OWN),
    ("catalogue_codes", "tenant, sort, id, code, conversion, conversion_until", 6, OWN),
    ("spend", "tenant, campaign, day, nanos", 4, "ON CONFLICT DO UPDATE SET nanos = max(nanos, excluded.nanos)"),
    ("units_given", "tenant, campaign, number", 3, OWN),
    // Numbers stay whose they are in the audit trail, and what was revoked stays revoked.
    (
        "tokens",
        "token, hash, role, name, created, revoked",
        6,
        "ON CONFLICT (token) DO UPDATE SET revoked = ifnull(revoked, excluded.revoked) WHERE hash = excluded.hash",
    ),
];
/// That of the store that comes back stays.
const OWN: &str = "ON CONFLICT DO NOTHING";

/// The rows of the store that is replaced, by table.
#[derive(Debug, Clone, Default)]
pub struct Before(Vec<(usize, Vec<Value>)>);

impl Before {
    /// As far as the store has them: a release before this one's has none.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn of(conn: &Connection) -> Result<Self, StoreError> {
        let mut rows = Vec::new();
        for (table, (name, columns, count, _)) in TABLES.into_iter().enumerate() {
            if !conn.table_exists(None, name)? {
                continue;
            }
            // An earlier release had no budgets, no limited offers, and did not know what old experiments count.
            let there = |column: &'static str| {
                let missing = if column.starts_with("conversion") { "NULL" } else { "'[]'" };
                Ok::<_, rusqlite::Error>(if conn.column_exists(None, name, column)? { column } else { missing })
            };
            let read = columns.split(", ").map(there).collect::<Result<Vec<_>, _>>()?.join(", ");
            let mut statement = conn.prepare(&format!("SELECT {read} FROM {name}"))?;
            let found = statement.query_map([], |row| (0..count).map(|column| row.get(column)).collect())?;
            for row in found {
                rows.push((table, row?));
            }
        }
        Ok(Self(rows))
    }

    /// Puts into a store what it does not have.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn bring(&self, conn: &Connection, numbers: &Numbers) -> Result<(), StoreError> {
        for (table, row) in &self.0 {
            let Some((name, columns, count, both)) = TABLES.get(*table) else { continue };
            let mut row = row.clone();
            if columns.starts_with("tenant,")
                && let Some(Value::Integer(tenant)) = row.first_mut()
            {
                *tenant = numbers.of(*tenant);
            }
            let places = vec!["?"; *count].join(", ");
            let put = format!("INSERT INTO {name} ({columns}) VALUES ({places}) {both}");
            conn.prepare_cached(&put)?.execute(rusqlite::params_from_iter(row))?;
        }
        Ok(())
    }
}

/// Has the current version of every tenant published anew, its value first, and what stands beside it: gives what goes into the outbox.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn renew(conn: &Connection, now: Millis) -> Result<Vec<(i64, u16, [u8; 16])>, StoreError> {
    // That which was current before the restore is so no more.
    const REPLACED: &str = "UPDATE catalogues SET replaced = ?1
        WHERE replaced IS NULL AND (tenant, version) NOT IN (SELECT tenant, version FROM catalogue_current)";
    // Entries of before the restore mean nothing any more.
    const UNKNOWN: &str = "UPDATE catalogues SET handed = NULL, published = NULL
        WHERE published IS NULL OR (tenant, version) IN (SELECT tenant, version FROM catalogue_current)";
    conn.execute(REPLACED, [signed(now)])?;
    conn.execute(UNKNOWN, [])?;
    let mut statement = conn.prepare("SELECT tenant, version FROM catalogue_current")?;
    let mut rows = statement.query([])?;
    let mut subjects = Vec::new();
    while let Some(row) = rows.next()? {
        // The pointer waits for the value; it is there already so that a late write of before is followed by another.
        for (kind, subject) in [Subject::Catalogue(row.get(1)?), Subject::Pointer].map(|subject| subject.columns()) {
            subjects.push((row.get(0)?, kind, subject));
        }
    }
    subjects.extend(standing(conn)?);
    Ok(subjects)
}

/// The models and the steering of a store, as far as it has any, as what the KV may hold.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn standing(conn: &Connection) -> Result<Vec<(i64, u16, [u8; 16])>, StoreError> {
    let mut subjects = Vec::new();
    for (table, of) in [("models", Subject::Model), ("steering", Subject::Steering)] {
        if conn.table_exists(None, table)? {
            let (kind, subject) = of.columns();
            let mut statement = conn.prepare(&format!("SELECT DISTINCT tenant FROM {table}"))?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, kind, subject)))?;
            subjects.extend(rows.collect::<Result<Vec<_>, _>>()?);
        }
    }
    Ok(subjects)
}
