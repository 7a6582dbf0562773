//! Steps from one form of the store to the next that SQL alone cannot take.

use causeway_shared::profile::Parts;
use causeway_shared::wire::{facts, profile};
use rusqlite::{Connection, Transaction};

use super::{StoreError, TenantNo, find_visitor};
use crate::fold::{buckets, ids};

/// Facts become FactIds by visitor; actions and segments move out of the profiles into records of their own.
///
/// # Errors
/// [`StoreError`]; the store stays as it was.
pub(super) fn parts(tx: &Transaction<'_>) -> Result<(), StoreError> {
    // However long: a day's row that is full is only read.
    const REMEMBER: &str = "INSERT INTO fact_ids (visitor, day, part, ids) VALUES (?1, ?2, 0, ?3)
        ON CONFLICT (visitor, day, part) DO UPDATE SET ids = CAST(ids || excluded.ids AS BLOB)";
    split_profiles(tx)?;
    let mut facts = tx.prepare("SELECT tenant, body FROM facts ORDER BY received")?;
    let mut rows = facts.query([])?;
    while let Some(row) = rows.next()? {
        let (tenant, body): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        let fact = facts::decode_one(&body)?;
        if let Some(visitor) = find_visitor(tx, TenantNo(tenant), fact.visitor)? {
            let row = (visitor, ids::day(fact.received), fact.id.short().to_be_bytes());
            tx.prepare_cached(REMEMBER)?.execute(row)?;
        }
    }
    Ok(tx.execute_batch("DROP TABLE facts")?)
}

fn split_profiles(tx: &Transaction<'_>) -> Result<(), StoreError> {
    const WRITE: &str = "UPDATE visitors SET profile = ?2, segments = ?3, actions = ?4 WHERE row = ?1";
    let rows: Vec<i64> = rows(tx)?;
    for row in rows {
        let body: Vec<u8> =
            tx.prepare_cached("SELECT profile FROM visitors WHERE row = ?1")?.query_row([row], |row| row.get(0))?;
        let mut core = profile::decode(&body)?;
        let Parts { actions, segments, .. } = core.take_parts();
        let count = buckets::add(tx, row, 0, actions)?;
        let segments = if segments.is_empty() { Vec::new() } else { segments.pack() };
        tx.prepare_cached(WRITE)?.execute((row, profile::encode(&core), segments, count))?;
    }
    Ok(())
}

fn rows(conn: &Connection) -> Result<Vec<i64>, StoreError> {
    let mut statement = conn.prepare("SELECT row FROM visitors")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
