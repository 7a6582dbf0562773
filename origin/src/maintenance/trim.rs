//! Deletes data that is no longer needed: expired segments and removals once no older fact can arrive, actions beyond
//! their days, and FactIds that no message can repeat. Works on one visitor, or in pages over all visitors. [`lookups`]
//! deletes the lookups of retired keys.

pub mod lookups;

use std::collections::BTreeSet;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::base::time::{DAY_MS, Day, HourStamp, Minute};
use causeway_shared::facts::segments::SegmentId;
use causeway_shared::wire::profile;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use serde::{Deserialize, Serialize};

use crate::base::integers::signed;
use crate::campaigns::experiment;
use crate::profiles::dedup::FactIdRows;
use crate::profiles::{buckets, purchases};
use crate::store::tables::visitors;
use crate::store::{CheckedBytes, StoreCounters, StoreError, VisitorRow};

/// The data deleted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrimReport {
    /// Visitors read.
    pub visitors: u64,
    /// Visitors with deleted data.
    pub changed: u64,
    /// Segments, including removed ones.
    pub segments: u64,
    /// Actions.
    pub actions: u64,
    /// Lookups under retired keys.
    #[serde(default)]
    pub lookups: u64,
    /// Attribute names whose values were deleted after the name was removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub names: u64,
    /// Visitors that cannot be read. All others are trimmed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreadable: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Trims at most `most` visitors after a row, within a transaction. Returns the last row, and the visitors with more
/// expired FactIds than one transaction deletes; `None` after the last visitor.
///
/// # Errors
/// [`StoreError`]; then nothing of the transaction may be committed.
pub fn trim_page(
    tx: &Connection,
    after: VisitorRow,
    most: u32,
    now: Millis,
    trimmed: &mut TrimReport,
) -> Result<Option<(VisitorRow, Vec<VisitorRow>)>, StoreError> {
    let rows: Vec<VisitorRow> = {
        let mut read = tx.prepare_cached(visitors::VISITORS_PAGE)?;
        let rows = read.query_map((after, most), |row| row.get(0))?;
        rows.collect::<Result<_, _>>()?
    };
    let (mut counters, mut unforgotten) = (StoreCounters::load(tx)?, Vec::new());
    for row in &rows {
        tx.execute_batch("SAVEPOINT visitor")?;
        match visitor_row(tx, &mut counters, *row, now, trimmed) {
            Err(e @ (StoreError::Form(_) | StoreError::Corrupt { .. })) => {
                tracing::error!(row = row.number(), error = %crate::base::error_chain(&e), "a visitor cannot be read and is not trimmed");
                trimmed.unreadable += 1;
                tx.execute_batch("ROLLBACK TO visitor")?;
            }
            done => done?,
        }
        tx.execute_batch("RELEASE visitor")?;
        if FactIdRows::forget(tx, *row, now)? {
            unforgotten.push(*row);
        }
    }
    counters.save(tx)?;
    Ok(rows.last().map(|last| (*last, unforgotten)))
}

/// Deletes the remaining expired FactIds of visitors with very many of them. `step` is called between two transactions.
///
/// # Errors
/// [`StoreError`], or the error of `step`; then the next run does the rest.
pub fn forget_more_ids<E: From<StoreError>>(
    conn: &Connection,
    visitors: &[VisitorRow],
    now: Millis,
    step: &dyn Fn() -> Result<(), E>,
) -> Result<(), E> {
    for visitor in visitors {
        while FactIdRows::forget(conn, *visitor, now)? {
            step()?;
        }
    }
    Ok(())
}

/// Trims one visitor.
///
/// # Errors
/// [`StoreError`]; then nothing was deleted, or everything except some FactIds.
pub fn trim_visitor(conn: &mut Connection, row: VisitorRow, now: Millis) -> Result<TrimReport, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut counters, mut trimmed) = (StoreCounters::load(&tx)?, TrimReport::default());
    visitor_row(&tx, &mut counters, row, now, &mut trimmed)?;
    counters.save(&tx)?;
    tx.commit()?;
    forget_more_ids::<StoreError>(conn, &[row], now, &|| Ok(()))?;
    Ok(trimmed)
}

fn visitor_row(
    tx: &Connection,
    counters: &mut StoreCounters,
    row: VisitorRow,
    now: Millis,
    trimmed: &mut TrimReport,
) -> Result<(), StoreError> {
    let found = tx
        .prepare_cached(visitors::VISITORS_SEGMENTS_AND_ACTIONS)?
        .query_row([row], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((packed, had)): Option<(Vec<u8>, u32)> = found else { return Ok(()) };
    trimmed.visitors += 1;
    experiment::trim_visitor(tx, row, now.saturating_sub(limits::CONVERSION_DAYS * DAY_MS))?;
    let before = Day(Minute::at(now).day().0.saturating_sub(limits::ACTION_DAYS - 1));
    let actions = buckets::trim_days(tx, row, had, before)?;
    purchases::trim_purchases(tx, row, before, now)?;
    let mut segments = profile::decode_segments(CheckedBytes::open(&packed)?)?;
    let (written, was_full) = (segments.len(), segments.is_full());
    let siblings = expired_siblings(tx, row, now)?;
    if let Some(siblings) = &siblings {
        segments.trim(now, siblings);
    }
    let gone = written - segments.len();
    if gone == 0 && actions == had && was_full == segments.is_full() {
        return Ok(());
    }
    let packed = if segments.is_empty() { Vec::new() } else { segments.pack() };
    let version = counters.next_version();
    tx.prepare_cached(visitors::VISITORS_SET_TRIMMED)?.execute((
        row,
        CheckedBytes(packed),
        actions,
        signed(version.counter),
        version.restore,
    ))?;
    trimmed.changed += 1;
    trimmed.segments += gone as u64;
    trimmed.actions += u64::from(had - actions);
    Ok(())
}

/// Segments that the visitor's siblings are in; `None` if there are more siblings than the bound, or one cannot be
/// read. A segment that expired in one profile must not become valid again through another.
fn expired_siblings(tx: &Connection, row: VisitorRow, now: Millis) -> Result<Option<BTreeSet<SegmentId>>, StoreError> {
    let mut statement = tx.prepare_cached(visitors::VISITORS_SEGMENTS_OF_SIBLINGS)?;
    let mut rows = statement.query((row, signed(limits::SNAPSHOT_VISITORS as u64)))?;
    let (mut ids, mut seen) = (BTreeSet::new(), 0);
    while let Some(row) = rows.next()? {
        let Ok(packed) = CheckedBytes::open_column(row.get_ref(0)?) else { return Ok(None) };
        let live = HourStamp(HourStamp::at(now).0.saturating_add(1))..HourStamp(u32::MAX);
        let Ok(segments) = profile::decode_segments(packed) else { return Ok(None) };
        ids.extend(segments.expiring(live).map(|(id, _)| id));
        seen += 1;
    }
    Ok((seen < limits::SNAPSHOT_VISITORS).then_some(ids))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, fact, page, visitor};
    use causeway_shared::facts::fact::FactKind;
    use causeway_shared::facts::segments::SegmentState;

    #[test]
    fn trim_removes_expired_segments_from_both_linked_visitors() {
        let mut origin = Origin::new();
        let over = SegmentState::held(HourStamp(HourStamp::at(NOW).0 + 24), []);
        for v in [1, 2] {
            let what = FactKind::Segments { writes: vec![(SegmentId(7), over.clone())] };
            let login = origin.login(visitor(v), 2, NOW, "ann");
            origin.send("demo", &[page(visitor(v), 1, NOW), login, fact(visitor(v), 3, NOW, what)]);
        }
        let trimmed = [1, 2].map(|v| {
            let row = origin.row("demo", visitor(v)).row.unwrap();
            trim_visitor(&mut origin.conn, row, NOW + 90 * DAY_MS).unwrap().segments
        });
        assert_eq!(trimmed, [1, 1]);
    }

    #[test]
    fn trimming_all_visitors_drops_expired_segments_and_restores_nothing() {
        let mut origin = Origin::new();
        let held = |expiry| SegmentState::held(HourStamp(expiry), []);
        let hour = HourStamp::at(NOW).0;
        let write =
            |v, n, at, id, state| fact(visitor(v), n, at, FactKind::Segments { writes: vec![(SegmentId(id), state)] });
        let facts = [
            page(visitor(1), 1, NOW - 3),
            write(1, 2, NOW - 2, 7, held(hour + 9_000)),
            write(2, 3, NOW - 1, 7, SegmentState::Removed),
            write(2, 4, NOW - 1, 8, held(hour + 1)),
            write(3, 5, NOW - 1, 7, SegmentState::Removed),
            write(4, 8, NOW - 1, 9, held(hour + 9_000)),
            write(4, 9, NOW - 1, 10, held(hour + 1)),
            origin.login(visitor(1), 6, NOW, "ann"),
            origin.login(visitor(2), 7, NOW, "ann"),
        ];
        origin.send("demo", &facts);
        let person = |origin: &Origin| {
            let maps = [1, 2].map(|v| origin.profile("demo", visitor(v)).segments().clone());
            let [a, b] = maps;
            a.join(b).newest(10)
        };
        assert_eq!(person(&origin), [SegmentId(8)]);
        let run = |origin: &mut Origin, now| {
            let (mut trimmed, mut row) = (TrimReport::default(), VisitorRow::default());
            while let Some((last, _)) = trim_page(&origin.conn, row, 2, now, &mut trimmed).unwrap() {
                row = last;
            }
            trimmed
        };
        assert_eq!(run(&mut origin, NOW + DAY_MS), TrimReport { visitors: 4, ..TrimReport::default() });
        let later = run(&mut origin, NOW + 90 * DAY_MS);
        assert_eq!((later.visitors, later.changed, later.segments), (4, 3, 3), "the expired, and the lone removal");
        let alone: Vec<SegmentId> = origin.profile("demo", visitor(4)).segments().ids().collect();
        assert_eq!(alone, [SegmentId(9)], "it is good for long");
        assert_eq!(person(&origin), [], "what a sibling removed stays removed");
        assert_eq!(run(&mut origin, NOW + 90 * DAY_MS).changed, 0);
    }
}
