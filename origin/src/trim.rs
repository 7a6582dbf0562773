//! What is no longer needed goes (S2.4): expired segments and removals once no older fact can come, actions beyond their
//! days, FactIds that nothing can repeat. For one visitor, or a few thousand at a time over all.

use causeway_shared::ids::Millis;
use causeway_shared::limits;
use causeway_shared::time::{Day, Minute};
use causeway_shared::wire::profile;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use crate::fold::buckets;
use crate::fold::ids::Seen;
use crate::store::{Counters, StoreError, signed};

/// What went, so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trimmed {
    /// Visitors looked at.
    pub visitors: u64,
    /// Visitors of whom something went.
    pub changed: u64,
    /// Segments, removed ones among them.
    pub segments: u64,
    /// Actions.
    pub actions: u64,
}

/// Trims the visitors after a row, in one transaction, and gives the last of them; `None` behind the last of all.
///
/// # Errors
/// [`StoreError`]; then nothing of this call was kept.
pub fn some(
    conn: &mut Connection,
    after: i64,
    most: u32,
    now: Millis,
    trimmed: &mut Trimmed,
) -> Result<Option<i64>, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let rows: Vec<i64> = {
        let mut read = tx.prepare_cached("SELECT row FROM visitors WHERE row > ?1 ORDER BY row LIMIT ?2")?;
        let rows = read.query_map((after, most), |row| row.get(0))?;
        rows.collect::<Result<_, _>>()?
    };
    let mut sum = *trimmed;
    let mut counters = Counters::load(&tx)?;
    for row in &rows {
        visitor(&tx, &mut counters, *row, now, &mut sum)?;
    }
    counters.save(&tx)?;
    tx.commit()?;
    *trimmed = sum;
    Ok(rows.last().copied())
}

/// Trims one visitor.
///
/// # Errors
/// [`StoreError`]; then nothing was kept.
pub fn one(conn: &mut Connection, row: i64, now: Millis) -> Result<Trimmed, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut counters, mut trimmed) = (Counters::load(&tx)?, Trimmed::default());
    visitor(&tx, &mut counters, row, now, &mut trimmed)?;
    counters.save(&tx)?;
    tx.commit()?;
    Ok(trimmed)
}

fn visitor(
    tx: &Connection,
    counters: &mut Counters,
    row: i64,
    now: Millis,
    trimmed: &mut Trimmed,
) -> Result<(), StoreError> {
    const READ: &str = "SELECT segments, actions FROM visitors WHERE row = ?1";
    // A new version, as what it says is another now; the KV gets it with the next news of the visitor.
    const WRITE: &str = "UPDATE visitors SET segments = ?2, actions = ?3, version = ?4, restore = ?5 WHERE row = ?1";
    let found = tx.prepare_cached(READ)?.query_row([row], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((packed, had)): Option<(Vec<u8>, u32)> = found else { return Ok(()) };
    trimmed.visitors += 1;
    Seen::forget(tx, row, now)?;
    let before = Day(Minute::at(now).day().0.saturating_sub(limits::ACTION_DAYS - 1));
    let actions = buckets::trim(tx, row, had, before)?;
    let mut segments = profile::segments(&packed)?;
    let written = segments.len();
    segments.trim(now);
    let gone = written - segments.len();
    if gone == 0 && actions == had {
        return Ok(());
    }
    let packed = if segments.is_empty() { Vec::new() } else { segments.pack() };
    let version = counters.next_version();
    tx.prepare_cached(WRITE)?.execute((row, packed, actions, signed(version.counter), version.restore))?;
    trimmed.changed += 1;
    trimmed.segments += gone as u64;
    trimmed.actions += u64::from(had - actions);
    Ok(())
}
