//! Quarantine of facts while their visitor's row, or a part of their tenant's catalogue, cannot be read. The facts were
//! acknowledged, so they wait; all other facts of their batch are folded.

use std::collections::BTreeSet;
use std::sync::Arc;

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::wire::facts;
use rusqlite::Connection;

use crate::base::attribution::Attribution;
use crate::base::integers::signed;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::profiles::dedup::FactIdRows;
use crate::profiles::placed::PlacedFact;
use crate::store::tables::{quarantined_facts, unreadable, visitors};
use crate::store::write_txn::TxnRules;
use crate::store::{CheckedBytes, StoreError, TenantNo, VisitorRow};

/// Records that a visitor's row cannot be read, so that folds put its facts into quarantine.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn quarantine_visitor(conn: &Connection, row: VisitorRow, why: &StoreError, now: Millis) -> Result<(), StoreError> {
    if conn.prepare_cached(unreadable::UNREADABLE_INSERT_NEW)?.execute((row, signed(now)))? == 1 {
        tracing::error!(row = row.number(), error = %crate::base::error_chain(why), "a visitor's row is damaged: its facts are quarantined");
    }
    Ok(())
}

/// The rows that cannot be read.
pub(crate) fn quarantined_rows(conn: &Connection) -> Result<BTreeSet<VisitorRow>, StoreError> {
    let mut statement = conn.prepare_cached(unreadable::UNREADABLE_ROWS)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether facts of a visitor are in quarantine.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn is_quarantined(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(visitors::VISITORS_HAS_QUARANTINED)?.exists((tenant.0, visitor.as_bytes()))?)
}

/// Row under which a tenant's facts without a visitor wait while its catalogue cannot be read; no visitor has a
/// negative row.
pub(super) fn anonymous_row(tenant: TenantNo) -> VisitorRow {
    VisitorRow::from_number(-tenant.0)
}

/// Puts facts into quarantine under a row, except facts that were counted before. Returns the number of added facts.
pub(super) fn quarantine_facts(
    conn: &Connection,
    row: VisitorRow,
    mut facts: Vec<PlacedFact<'_>>,
    records: &[impl AsRef<LogRecord>],
    now: Millis,
) -> Result<u64, StoreError> {
    match FactIdRows::load(conn, row) {
        Ok(seen) => seen.retain_new(conn, &mut facts, |placed| placed.fact)?,
        Err(e) if e.is_of_a_value() => {}
        Err(e) => return Err(e),
    }
    conn.prepare_cached(unreadable::UNREADABLE_INSERT_NEW)?.execute((row, signed(now)))?;
    let mut put = conn.prepare_cached(quarantined_facts::QUARANTINED_FACTS_INSERT_NEW)?;
    let mut new = 0;
    for PlacedFact { fact, admin, record } in facts {
        let said = records.get(record).and_then(|record| record.as_ref().attribution.as_ref());
        let said = said.map(|said| serde_json::json!(said).to_string());
        new += put.execute((row, fact.id.as_bytes(), CheckedBytes(facts::encode_one(fact)), admin, said))? as u64;
    }
    Ok(new)
}

pub(crate) fn has_any(conn: &Connection, row: VisitorRow) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(quarantined_facts::QUARANTINED_FACTS_HAS_OF_ROW)?.exists([row])?)
}

/// Removes an erased visitor from the quarantine; its row need not be read.
pub(crate) fn forget_visitor(conn: &Connection, row: VisitorRow) -> Result<(), StoreError> {
    conn.prepare_cached(quarantined_facts::QUARANTINED_FACTS_DELETE_OF_ROW)?.execute([row])?;
    conn.prepare_cached(unreadable::UNREADABLE_DELETE)?.execute([row])?;
    Ok(())
}

/// Number of facts in quarantine.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn count_facts(conn: &Connection) -> Result<u64, StoreError> {
    let count = |row: &rusqlite::Row<'_>| row.get(0).map(crate::base::integers::unsigned);
    Ok(conn.prepare_cached(quarantined_facts::QUARANTINED_FACTS_COUNT)?.query_row([], count)?)
}

/// Quarantined facts of a row, in order of arrival, as records of edges and of the admin API. Empty if the tenant is
/// not configured or its catalogue cannot be read.
pub(crate) fn records_of(
    conn: &Connection,
    rules: &TxnRules,
    held: &BTreeSet<TenantNo>,
    row: VisitorRow,
) -> Result<Vec<Arc<LogRecord>>, StoreError> {
    let mut statement = conn.prepare_cached(quarantined_facts::QUARANTINED_FACTS_OF_ROW)?;
    let mut found = statement.query([row])?;
    let mut records: Vec<LogRecord> = Vec::new();
    while let Some(one) = found.next()? {
        let (tenant, fact, admin) = (TenantNo(one.get(0)?), one.get::<_, CheckedBytes>(1)?, one.get(2)?);
        if rules.tenants.by_no(tenant).is_err() || held.contains(&tenant) {
            break;
        }
        let said: Option<String> = one.get(3)?;
        let said: Option<Attribution> = said.and_then(|said| serde_json::from_str(&said).ok());
        let checked = CheckedFact { tenant, fact: facts::decode_one(&fact.0)? };
        match records.last_mut().filter(|record| record.admin == admin && record.attribution == said) {
            Some(record) => record.facts.push(checked),
            None => records.push(LogRecord { admin, attribution: said, ..LogRecord::of(vec![checked]) }),
        }
    }
    Ok(records.into_iter().map(Arc::new).collect())
}
