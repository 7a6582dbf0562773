//! Deduplication of facts (invariant 7): FactIds by visitor and day of receipt, so that many facts of one visitor touch
//! its rows once. The first eight bytes of a FactId identify it among those of its visitor.
//!
//! The first FactIds of a day are in at most four packed rows. A visitor that sends more, as no person's browser does,
//! has one row for each further FactId; a fold therefore reads a bounded amount per visitor.

use std::collections::{BTreeSet, HashSet};

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::base::time::{Day, EPOCH_MS, Minute};
use causeway_shared::facts::fact::Fact;
use rusqlite::Connection;

use crate::store::tables::{fact_ids, fact_ids_over, visitors};
use crate::store::{CheckedBytes, StoreError, VisitorRow};

/// Most FactIds in one packed row.
const PART: usize = 4_096;
const ID: usize = 8;
/// Most packed rows of a day.
const PARTS: u32 = 4;
/// Most rows of single FactIds that one call deletes.
const SLICE: u16 = 10_000;
/// A day after every possible day.
const EVERY_DAY: u32 = 1 << u16::BITS;

/// The packed rows of one visitor.
#[derive(Debug, Default)]
pub struct FactIdRows {
    pub(crate) visitor: VisitorRow,
    parts: Vec<FactIdPart>,
}

/// One packed row of a day. Stores from earlier releases may have more of them than [`PARTS`].
#[derive(Debug)]
struct FactIdPart {
    day: u16,
    part: u32,
    ids: CheckedBytes,
}

impl FactIdPart {
    fn is_full(&self) -> bool {
        self.ids.0.len() >= PART * ID
    }
}

impl FactIdRows {
    /// Loads the packed rows of a visitor.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Form`] if a row's checksum does not match.
    pub fn load(conn: &Connection, visitor: VisitorRow) -> Result<Self, StoreError> {
        let mut statement = conn.prepare_cached(fact_ids::FACT_IDS_OF_VISITOR)?;
        let rows = statement
            .query_map([visitor], |row| Ok(FactIdPart { day: row.get(0)?, part: row.get(1)?, ids: row.get(2)? }))?;
        Ok(Self { visitor, parts: rows.collect::<Result<_, _>>()? })
    }

    /// Retains only facts that were never counted; of repeated facts the first one stays.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn retain_new<T>(
        &self,
        conn: &Connection,
        facts: &mut Vec<T>,
        fact: impl Fn(&T) -> &Fact,
    ) -> Result<(), StoreError> {
        if planted::is_active(PlantedBug::DropTheDedup) {
            return Ok(());
        }
        let mut wanted = HashSet::new();
        facts.retain(|of| wanted.insert(fact(of).id.short()));
        for part in &self.parts {
            for id in part.ids.0.as_chunks::<ID>().0 {
                wanted.remove(&u64::from_be_bytes(*id));
            }
        }
        let mut has = conn.prepare_cached(fact_ids_over::FACT_IDS_OVER_HAS)?;
        let full = |part: &&FactIdPart| part.part + 1 >= PARTS && part.is_full();
        for day in self.parts.iter().filter(full).map(|part| part.day).collect::<BTreeSet<_>>() {
            for id in wanted.clone() {
                if has.exists((self.visitor, day, id.cast_signed()))? {
                    wanted.remove(&id);
                }
            }
        }
        facts.retain(|of| wanted.contains(&fact(of).id.short()));
        Ok(())
    }

    /// Records new facts as counted.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn keep<'f>(
        mut self,
        conn: &Connection,
        visitor: VisitorRow,
        facts: impl IntoIterator<Item = &'f Fact>,
    ) -> Result<(), StoreError> {
        let mut changed = BTreeSet::new();
        let mut put_over = conn.prepare_cached(fact_ids_over::FACT_IDS_OVER_INSERT_NEW)?;
        for fact in facts {
            let day = receipt_day(fact.received);
            match self.open(day) {
                Some(part) => {
                    part.ids.0.extend(fact.id.short().to_be_bytes());
                    changed.insert((day, part.part));
                }
                None => drop(put_over.execute((visitor, day, fact.id.short().cast_signed()))?),
            }
        }
        let mut put = conn.prepare_cached(fact_ids::FACT_IDS_UPSERT)?;
        for part in self.parts.iter().filter(|part| changed.contains(&(part.day, part.part))) {
            put.execute((visitor, part.day, part.part, &part.ids))?;
        }
        Ok(())
    }

    /// The packed row of a day that has room; `None` if all its rows are full.
    fn open(&mut self, day: u16) -> Option<&mut FactIdPart> {
        let last = self.parts.iter().rposition(|part| part.day == day);
        let of_last = last.and_then(|index| self.parts.get(index)).map(|part| (part.part, part.is_full()));
        let index = match of_last {
            Some((_, false)) => last?,
            Some((part, true)) if part + 1 >= PARTS => return None,
            of_last => {
                self.parts.push(FactIdPart {
                    day,
                    part: of_last.map_or(0, |(part, _)| part + 1),
                    ids: CheckedBytes::default(),
                });
                self.parts.len() - 1
            }
        };
        self.parts.get_mut(index)
    }

    /// Deletes a visitor's FactIds that no acceptable fact can repeat, and all FactIds of an erased visitor, in bounded
    /// steps; packed rows come last. Returns whether more may remain.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn forget(conn: &Connection, visitor: VisitorRow, now: Millis) -> Result<bool, StoreError> {
        let is_erased = conn.prepare_cached(visitors::VISITORS_IS_ERASED)?.exists([visitor])?;
        Self::drop_before(conn, visitor, if is_erased { EVERY_DAY } else { oldest_day(now) })
    }

    /// Deletes all FactIds of an erased visitor; [`Self::forget`] deletes the rest of a very large number.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn drop_all(conn: &Connection, visitor: VisitorRow) -> Result<(), StoreError> {
        conn.prepare_cached(fact_ids::FACT_IDS_DELETE_OF_VISITOR)?.execute([visitor])?;
        Self::drop_before(conn, visitor, EVERY_DAY)?;
        Ok(())
    }

    fn drop_before(conn: &Connection, visitor: VisitorRow, day: u32) -> Result<bool, StoreError> {
        let more =
            conn.prepare_cached(fact_ids_over::FACT_IDS_OVER_DELETE_SOME_BEFORE)?.execute((visitor, day, SLICE))?
                == usize::from(SLICE);
        if !more {
            conn.prepare_cached(fact_ids::FACT_IDS_DELETE_BEFORE)?.execute((visitor, day))?;
        }
        Ok(more)
    }

    /// Whether [`Self::forget`] would delete some of them.
    #[must_use]
    pub fn is_stale(&self, now: Millis) -> bool {
        self.parts.first().is_some_and(|part| u32::from(part.day) < oldest_day(now))
    }
}

/// Day of a fact's receipt.
pub fn receipt_day(received: Millis) -> u16 {
    Minute::at(received).day().0
}

/// First day whose FactIds may still be repeated.
pub fn oldest_day(now: Millis) -> u32 {
    let Day(day) = Minute::at(now.saturating_sub(limits::FACT_ID_KEEP_MS).max(EPOCH_MS)).day();
    day.into()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use causeway_shared::base::time::DAY_MS;

    use super::*;
    use crate::testing::{NOW, Origin, page, visitor};

    #[test]
    fn fact_ids_outlive_the_oldest_fact_accepted_by_five_days() {
        let mut origin = Origin::new();
        let old = page(visitor(1), 1, NOW - limits::FACT_AGE_MS);
        assert_eq!(origin.send("demo", std::slice::from_ref(&old)).accepted, 1);
        let row = origin.row("demo", visitor(1)).row.unwrap();
        let days = |origin: &Origin| FactIdRows::load(&origin.conn, row).unwrap().parts.len();
        for (later, expected) in [(5 * DAY_MS, 2), (6 * DAY_MS, 2)] {
            origin.now = NOW + later;
            origin.send("demo", &[page(visitor(1), 2 + u32::try_from(later / DAY_MS).unwrap(), origin.now)]);
            assert_eq!(days(&origin), expected, "{later}");
        }
    }

    #[test]
    fn more_fact_ids_than_a_row_holds_are_all_remembered() {
        let mut origin = Origin::new();
        let facts: Vec<Fact> = (0..20_000).map(|n| page(visitor(1), n, NOW)).collect();
        for part in facts.chunks(3_000) {
            assert_eq!(origin.send("demo", part).duplicate, 0);
        }
        for part in facts.chunks(5_000) {
            assert_eq!(origin.send("demo", part).accepted, 0);
        }
        let row = origin.row("demo", visitor(1)).row.unwrap();
        let packed = usize::try_from(PARTS).unwrap() * PART;
        assert_eq!(over(&origin), 20_000 - i64::try_from(packed).unwrap());
        assert_eq!(origin.profile("demo", visitor(1)).totals().pages, 20_000);
        // No part of a fold grows with everything that was ever sent.
        let read: usize = FactIdRows::load(&origin.conn, row).unwrap().parts.iter().map(|part| part.ids.0.len()).sum();
        assert_eq!(read, packed * ID);
    }

    #[test]
    fn further_rows_of_a_day_as_stores_of_before_have_them_are_read() {
        let mut origin = Origin::new();
        let facts: Vec<Fact> = (0..16_388).map(|n| page(visitor(1), n, NOW)).collect();
        facts.chunks(5_000).for_each(|part| drop(origin.send("demo", part)));
        let row = origin.row("demo", visitor(1)).row.unwrap();
        let ids: Vec<u8> = facts[16_384..].iter().flat_map(|fact| fact.id.short().to_be_bytes()).collect();
        let further = "INSERT INTO fact_ids (visitor, day, part, ids) VALUES (?1, ?2, 4, ?3)";
        origin.conn.execute(further, (row, receipt_day(NOW), CheckedBytes(ids))).unwrap();
        origin.conn.execute("DELETE FROM fact_ids_over", []).unwrap();
        assert_eq!(origin.send("demo", &facts[14_000..]).accepted, 0);
        assert_eq!(origin.send("demo", &[page(visitor(1), 20_000, NOW)]).accepted, 1);
        assert_eq!(over(&origin), 0, "the last of them has room");
    }

    #[test]
    fn what_is_over_a_row_is_forgotten_after_it_some_at_a_time() {
        let mut origin = Origin::new();
        let facts: Vec<Fact> = (0..30_000).map(|n| page(visitor(1), n, NOW)).collect();
        facts.chunks(5_000).for_each(|part| drop(origin.send("demo", part)));
        origin.now = NOW + limits::FACT_ID_KEEP_MS + DAY_MS;
        let row = origin.row("demo", visitor(1)).row.unwrap();
        for (n, left) in [(1, 3_616), (2, 0), (3, 0)] {
            origin.send("demo", &[page(visitor(1), 40_000 + n, origin.now)]);
            assert_eq!(over(&origin), left);
            let days = FactIdRows::load(&origin.conn, row).unwrap().parts.len();
            assert_eq!(days, if left > 0 { 5 } else { 1 }, "the day's own rows go last");
        }
    }

    fn over(origin: &Origin) -> i64 {
        origin.conn.query_row("SELECT count(*) FROM fact_ids_over", [], |row| row.get(0)).unwrap()
    }
}
