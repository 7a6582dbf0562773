//! Rows that a restored store takes over from the store that it replaces: version numbers, codes, offer codes and
//! tokens are valid for ever, including those assigned since the backup.

use std::collections::BTreeMap;

use causeway_shared::base::ids::Millis;
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::base::integers::signed;
use crate::outbox::kv_key::KvKey;
use crate::store::StoreError;
use crate::store::tables::{catalogue_current, catalogues, models, traffic_allocation};
use crate::store::unread_parts::UnreadParts;

/// Tenant numbers of the restored store, by the tenant numbers of the replaced store.
#[derive(Debug, Default)]
pub struct TenantNumbers(pub BTreeMap<i64, i64>);

impl TenantNumbers {
    /// The number in the restored store; the same number if it has no mapping.
    #[must_use]
    pub fn of(&self, tenant: i64) -> i64 {
        self.0.get(&tenant).copied().unwrap_or(tenant)
    }
}

/// Names of the parts, for reports of parts that cannot be read.
const TOKENS: &str = "tokens";
const CATALOGUE: &str = "catalogue";
const SPEND: &str = "spend";
const OFFER_CODES: &str = "offer_codes";

/// The parts whose rows belong to tenants.
pub const OF_TENANTS: [&str; 3] = [CATALOGUE, SPEND, OFFER_CODES];

/// A table whose rows are taken over.
struct CarriedTable {
    part: &'static str,
    name: &'static str,
    /// Column names. The tenant column is the first if there is one.
    columns: &'static str,
    count: usize,
    /// Conflict clause for a row that both stores have.
    both: &'static str,
}

const TABLES: [CarriedTable; 6] = [
    // Token numbers keep their meaning in the audit trail, and a revoked token stays revoked.
    CarriedTable {
        part: TOKENS,
        name: "tokens",
        columns: "token, hash, role, name, created, revoked, tenant, expires, used",
        count: 9,
        both: "ON CONFLICT (token) DO UPDATE SET revoked = ifnull(revoked, excluded.revoked) WHERE hash = excluded.hash",
    },
    CarriedTable {
        part: CATALOGUE,
        name: "catalogues",
        columns: "tenant, version, document, sha256, experiments, budgets, limited, applied, by, replaced, handed, published",
        count: 12,
        both: OWN,
    },
    CarriedTable { part: CATALOGUE, name: "catalogue_current", columns: "tenant, version, since", count: 3, both: OWN },
    CarriedTable {
        part: CATALOGUE,
        name: "catalogue_codes",
        columns: "tenant, sort, id, code, conversion, conversion_until",
        count: 6,
        both: OWN,
    },
    CarriedTable {
        part: SPEND,
        name: "spend",
        columns: "tenant, campaign, day, nanos",
        count: 4,
        both: "ON CONFLICT DO UPDATE SET nanos = max(nanos, excluded.nanos)",
    },
    CarriedTable {
        part: OFFER_CODES,
        name: "offer_codes_given",
        columns: "tenant, campaign, number",
        count: 3,
        both: OWN,
    },
];
/// The row of the restored store is retained.
const OWN: &str = "ON CONFLICT DO NOTHING";

/// Rows of the replaced store, each with the index of its table in `TABLES`.
#[derive(Debug, Clone, Default)]
pub struct ReplacedRows(Vec<(usize, Vec<Value>)>);

impl ReplacedRows {
    /// Reads the rows that exist and are readable. A store of an earlier release may lack tables. Unreadable parts are
    /// added to `unread`.
    #[must_use]
    pub fn of(conn: &Connection, unread: &mut UnreadParts) -> Self {
        let mut before = Self::default();
        for (number, table) in TABLES.iter().enumerate() {
            if let Err(why) = before.read(conn, number, table) {
                unread.add(table.part, why);
            }
        }
        // A version without its codes, or a pointer without its version, is worse than none. The rows of other parts
        // are independent.
        if unread.has(CATALOGUE) {
            before.leave(&[CATALOGUE]);
        }
        before
    }

    fn read(&mut self, conn: &Connection, number: usize, table: &CarriedTable) -> Result<(), StoreError> {
        if !conn.table_exists(None, table.name)? {
            return Ok(());
        }
        // An earlier release had no budgets, no limited offers and no conversions of dropped experiments.
        let there = |column: &'static str| {
            let missing = if column.starts_with("conversion") { "NULL" } else { "'[]'" };
            Ok::<_, rusqlite::Error>(if conn.column_exists(None, table.name, column)? { column } else { missing })
        };
        let read = table.columns.split(", ").map(there).collect::<Result<Vec<_>, _>>()?.join(", ");
        // The table is read without its indexes, so that a damaged index does no harm.
        let mut statement = conn.prepare(&format!("SELECT {read} FROM {} NOT INDEXED", table.name))?;
        for row in statement.query_map([], |row| (0..table.count).map(|column| row.get(column)).collect())? {
            self.0.push((number, row?));
        }
        Ok(())
    }

    /// Drops all rows that belong to tenants.
    pub fn leave_tenants(&mut self) {
        self.leave(&OF_TENANTS);
    }

    fn leave(&mut self, parts: &[&str]) {
        self.0.retain(|(number, _)| TABLES.get(*number).is_some_and(|table| !parts.contains(&table.part)));
    }

    /// Inserts the rows into the restored store.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn bring(&self, conn: &Connection, numbers: &TenantNumbers) -> Result<(), StoreError> {
        for (number, row) in &self.0 {
            let Some(CarriedTable { name, columns, count, both, .. }) = TABLES.get(*number) else { continue };
            let mut row = row.clone();
            if columns.starts_with("tenant,")
                && let Some(Value::Integer(tenant)) = row.first_mut()
            {
                *tenant = numbers.of(*tenant);
            }
            let placeholders = vec!["?"; *count].join(", ");
            let put = format!("INSERT INTO {name} ({columns}) VALUES ({placeholders}) {both}");
            conn.prepare_cached(&put)?.execute(rusqlite::params_from_iter(row))?;
        }
        Ok(())
    }
}

/// Queues each tenant's current version for the KV again, value first, and the other pointers. Returns the outbox
/// entries to add.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn renew_pointers(conn: &Connection, now: Millis) -> Result<Vec<(i64, u16, [u8; 16])>, StoreError> {
    conn.execute(catalogues::CATALOGUES_MARK_OTHERS_REPLACED, [signed(now)])?;
    conn.execute(catalogues::CATALOGUES_CLEAR_HANDED_AFTER_RESTORE, [])?;
    let mut statement = conn.prepare(catalogue_current::CATALOGUE_CURRENT_ALL)?;
    let mut rows = statement.query([])?;
    let mut subjects = Vec::new();
    while let Some(row) = rows.next()? {
        // The pointer waits for the value. It is queued now so that a late write from before the restore is
        // overwritten.
        for (kind, subject) in [KvKey::Catalogue(row.get(1)?), KvKey::Pointer].map(|subject| subject.columns()) {
            subjects.push((row.get(0)?, kind, subject));
        }
    }
    subjects.extend(standing_pointers(conn)?);
    Ok(subjects)
}

/// The pointers of models and of traffic allocation that the KV may hold.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn standing_pointers(conn: &Connection) -> Result<Vec<(i64, u16, [u8; 16])>, StoreError> {
    let mut subjects = Vec::new();
    let tenants = [
        ("models", models::MODELS_TENANTS, KvKey::Model),
        ("traffic_allocation", traffic_allocation::TRAFFIC_ALLOCATION_TENANTS, KvKey::Allocation),
    ];
    for (table, read, of) in tenants {
        if conn.table_exists(None, table)? {
            let (kind, subject) = of.columns();
            let mut statement = conn.prepare(read)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, kind, subject)))?;
            subjects.extend(rows.collect::<Result<Vec<_>, _>>()?);
        }
    }
    Ok(subjects)
}
