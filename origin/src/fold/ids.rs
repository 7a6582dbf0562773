//! Which facts were counted already (invariant 7): FactIds by visitor, so that folding many facts of one visitor
//! touches its rows once. A FactId's first eight bytes tell it apart from all others of its visitor.

use std::collections::{BTreeSet, HashSet};

use causeway_shared::fact::Fact;
use causeway_shared::ids::Millis;
use causeway_shared::limits;
use causeway_shared::time::{Day, EPOCH_MS, Minute};
use rusqlite::Connection;

use crate::store::StoreError;

/// FactIds in one row.
const PART: usize = 4_096;
const ID: usize = 8;

/// The rows of one visitor.
#[derive(Debug, Default)]
pub struct Seen(Vec<Part>);

#[derive(Debug)]
struct Part {
    day: u16,
    part: u32,
    ids: Vec<u8>,
}

impl Seen {
    /// All of a visitor's.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn load(conn: &Connection, visitor: i64) -> Result<Self, StoreError> {
        const READ: &str = "SELECT day, part, ids FROM fact_ids WHERE visitor = ?1";
        let mut statement = conn.prepare_cached(READ)?;
        let rows =
            statement.query_map([visitor], |row| Ok(Part { day: row.get(0)?, part: row.get(1)?, ids: row.get(2)? }))?;
        Ok(Self(rows.collect::<Result<_, _>>()?))
    }

    /// Leaves the facts that were never seen, each once: of repeats the first.
    pub fn retain_new<T>(&self, facts: &mut Vec<T>, fact: impl Fn(&T) -> &Fact) {
        let mut wanted = HashSet::new();
        facts.retain(|of| wanted.insert(fact(of).id.short()));
        for part in &self.0 {
            for id in part.ids.as_chunks::<ID>().0 {
                wanted.remove(&u64::from_be_bytes(*id));
            }
        }
        facts.retain(|of| wanted.contains(&fact(of).id.short()));
    }

    /// Remembers new facts.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn keep<'f>(
        mut self,
        conn: &Connection,
        visitor: i64,
        facts: impl IntoIterator<Item = &'f Fact>,
    ) -> Result<(), StoreError> {
        const PUT: &str = "INSERT INTO fact_ids (visitor, day, part, ids) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (visitor, day, part) DO UPDATE SET ids = excluded.ids";
        let mut changed = BTreeSet::new();
        for fact in facts {
            let place = self.open(day(fact.received));
            if let Some(part) = self.0.get_mut(place) {
                part.ids.extend(fact.id.short().to_be_bytes());
                changed.insert(place);
            }
        }
        let mut put = conn.prepare_cached(PUT)?;
        for part in changed.into_iter().filter_map(|place| self.0.get(place)) {
            put.execute((visitor, part.day, part.part, &part.ids))?;
        }
        Ok(())
    }

    /// The place of a day's row that has room.
    fn open(&mut self, day: u16) -> usize {
        let last = self.0.iter().rposition(|part| part.day == day);
        let room = |place: &usize| self.0.get(*place).is_some_and(|part| part.ids.len() < PART * ID);
        if let Some(place) = last.filter(room) {
            return place;
        }
        let part = last.and_then(|place| self.0.get(place)).map_or(0, |part| part.part + 1);
        self.0.push(Part { day, part, ids: Vec::new() });
        self.0.len() - 1
    }

    /// Forgets a visitor's that no fact of now can repeat any more.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn forget(conn: &Connection, visitor: i64, now: Millis) -> Result<(), StoreError> {
        const DROP: &str = "DELETE FROM fact_ids WHERE visitor = ?1 AND day < ?2";
        conn.prepare_cached(DROP)?.execute((visitor, oldest(now)))?;
        Ok(())
    }

    /// Whether some could be forgotten.
    #[must_use]
    pub fn is_stale(&self, now: Millis) -> bool {
        self.0.first().is_some_and(|part| part.day < oldest(now))
    }
}

/// The day of a fact's receipt.
pub fn day(received: Millis) -> u16 {
    Minute::at(received).day().0
}

/// The first day whose FactIds may still come again.
pub fn oldest(now: Millis) -> u16 {
    let Day(day) = Minute::at(now.saturating_sub(limits::FACT_ID_KEEP_MS).max(EPOCH_MS)).day();
    day
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, page, visitor};

    const DAY_MS: Millis = 86_400_000;

    #[test]
    fn fact_ids_outlive_the_oldest_fact_accepted_by_five_days() {
        let mut origin = Origin::new();
        let old = page(visitor(1), 1, NOW - limits::FACT_AGE_MS);
        assert_eq!(origin.send("demo", std::slice::from_ref(&old)).accepted, 1);
        let row = origin.row("demo", visitor(1)).row.unwrap();
        let days = |origin: &Origin| Seen::load(&origin.conn, row).unwrap().0.len();
        for (later, kept) in [(5 * DAY_MS, 2), (6 * DAY_MS, 2)] {
            origin.now = NOW + later;
            origin.send("demo", &[page(visitor(1), 2 + u32::try_from(later / DAY_MS).unwrap(), origin.now)]);
            assert_eq!(days(&origin), kept, "{later}");
        }
    }

    #[test]
    fn field_15_more_facts_than_a_row_holds_are_all_remembered() {
        let mut origin = Origin::new();
        let facts: Vec<Fact> = (0..10_000).map(|n| page(visitor(1), n, NOW)).collect();
        for part in facts.chunks(3_000) {
            assert_eq!(origin.send("demo", part).duplicate, 0);
        }
        for part in facts.chunks(5_000) {
            assert_eq!(origin.send("demo", part).accepted, 0);
        }
        let row = origin.row("demo", visitor(1)).row.unwrap();
        assert_eq!(Seen::load(&origin.conn, row).unwrap().0.len(), 10_000_usize.div_ceil(PART));
        assert_eq!(origin.profile("demo", visitor(1)).totals().pages, 10_000);
    }
}
