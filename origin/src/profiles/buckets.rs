//! A visitor's actions in buckets: key `[visitor][bucket]`, value packed actions.

use std::collections::BTreeMap;

use causeway_shared::base::limits;
use causeway_shared::base::time::{DAY_MINUTES, Day, Minute};
use causeway_shared::facts::actions::{ActionBucket, ActionList, PackedActions};
use rusqlite::{Connection, OptionalExtension as _};

use crate::store::tables::actions;
use crate::store::{CheckedBytes, StoreError, VisitorRow, minute_of_key};

/// Joins new actions with a visitor's `had` actions and returns the new number. The visitor keeps the newest
/// [`limits::ACTIONS`] of [`limits::ACTION_DAYS`] days, as in [`ActionList`].
///
/// # Errors
/// [`StoreError`].
pub fn add(conn: &Connection, visitor: VisitorRow, had: u32, new: ActionList) -> Result<u32, StoreError> {
    let mut days: BTreeMap<Day, ActionList> = BTreeMap::new();
    new.iter().for_each(|action| days.entry(action.minute.day()).or_default().insert(action));
    let mut count = had;
    for (day, new) in days {
        count = count.saturating_add_signed(change_day(conn, visitor, day, |stored| stored.join(new))?);
    }
    if let Some((first, last)) = days_of(conn, visitor)? {
        let oldest = Day(last.0.saturating_sub(limits::ACTION_DAYS - 1));
        if first < oldest {
            count = count.saturating_sub(drop_before(conn, visitor, oldest)?);
        }
    }
    while count as usize > limits::ACTIONS
        && let Some((first, _)) = days_of(conn, visitor)?
    {
        let over = count as usize - limits::ACTIONS;
        // Within one day, the actions with the greatest insertions stay, in the order of `Actions`.
        let changed = change_day(conn, visitor, first, |stored| stored.iter().skip(over).collect())?;
        count = count.saturating_add_signed(changed);
    }
    Ok(count)
}

/// Reads packed actions without a copy.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn packed_actions(bytes: &[u8]) -> Result<PackedActions<'_>, StoreError> {
    PackedActions::read(bytes).ok_or(StoreError::Corrupt { what: "bucket of actions" })
}

/// Rewrites the changed buckets of one day and returns the difference in the number of actions.
fn change_day(
    conn: &Connection,
    visitor: VisitorRow,
    day: Day,
    with: impl FnOnce(ActionList) -> ActionList,
) -> Result<i32, StoreError> {
    let mut stored: BTreeMap<Minute, (u32, Vec<u8>)> = BTreeMap::new();
    let mut actions = ActionList::default();
    for_each_bucket(conn, visitor, day.start(), Minute(day.start().0 + DAY_MINUTES), |start, minutes, body| {
        packed_actions(&body)?.iter().for_each(|action| actions.insert(action));
        stored.insert(start, (minutes, body));
        Ok(())
    })?;
    let had = i32::try_from(actions.len()).unwrap_or(i32::MAX);
    let actions = with(actions);
    for ActionBucket { start, span, count, packed } in actions.buckets() {
        let same = stored.remove(&start) == Some((span.minutes(), packed.clone()));
        if !same {
            conn.prepare_cached(actions::ACTIONS_REPLACE_BUCKET)?.execute((
                visitor.minute_key(start),
                span.minutes(),
                count,
                CheckedBytes(packed),
            ))?;
        }
    }
    for start in stored.into_keys() {
        conn.prepare_cached(actions::ACTIONS_DELETE_BUCKET)?.execute([visitor.minute_key(start)])?;
    }
    Ok(i32::try_from(actions.len()).unwrap_or(i32::MAX) - had)
}

fn drop_before(conn: &Connection, visitor: VisitorRow, day: Day) -> Result<u32, StoreError> {
    let places = [visitor.minute_key(Minute(0)), visitor.minute_key(day.start())];
    let gone = conn.prepare_cached(actions::ACTIONS_COUNT_IN_RANGE)?.query_row(places, |row| row.get(0))?;
    conn.prepare_cached(actions::ACTIONS_DELETE_IN_RANGE)?.execute(places)?;
    Ok(gone)
}

/// Deletes a visitor's actions before a day and returns the number that remains of `had`.
///
/// # Errors
/// [`StoreError`].
pub fn trim_days(conn: &Connection, visitor: VisitorRow, had: u32, before: Day) -> Result<u32, StoreError> {
    Ok(had.saturating_sub(drop_before(conn, visitor, before)?))
}

/// Deletes all actions of a visitor.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn drop_all(conn: &Connection, visitor: VisitorRow) -> Result<(), StoreError> {
    conn.prepare_cached(actions::ACTIONS_DELETE_IN_RANGE)?.execute(visitor.minute_keys())?;
    Ok(())
}

/// The first and the last day with actions.
fn days_of(conn: &Connection, visitor: VisitorRow) -> Result<Option<(Day, Day)>, StoreError> {
    let places = visitor.minute_keys();
    let day = |read| -> Result<Option<Day>, StoreError> {
        let found: Option<i64> = conn.prepare_cached(read)?.query_row(places, |row| row.get(0)).optional()?;
        Ok(found.map(|place| minute_of_key(place).day()))
    };
    Ok(day(actions::ACTIONS_FIRST_IN_RANGE)?.zip(day(actions::ACTIONS_LAST_IN_RANGE)?))
}

/// Packed actions of the buckets that overlap the minutes `from` (inclusive) to `to` (exclusive).
///
/// # Errors
/// [`StoreError`].
pub fn actions_within(
    conn: &Connection,
    visitor: VisitorRow,
    from: Minute,
    to: Minute,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut bodies = Vec::new();
    for_each_bucket(conn, visitor, from, to, |_, _, body| {
        bodies.push(body);
        Ok(())
    })?;
    Ok(bodies)
}

fn for_each_bucket(
    conn: &Connection,
    visitor: VisitorRow,
    from: Minute,
    to: Minute,
    mut found: impl FnMut(Minute, u32, Vec<u8>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(actions::ACTIONS_IN_RANGE)?;
    let mut rows = statement.query([visitor.minute_key(from.day().start()), visitor.minute_key(to)])?;
    while let Some(row) = rows.next()? {
        let (start, minutes) = (minute_of_key(row.get(0)?), row.get(1)?);
        if start.0 + minutes > from.0 {
            found(start, minutes, row.get::<_, CheckedBytes>(2)?.0)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use causeway_shared::facts::actions::{ActionType, AdAction, AdEntity, InsertionHash, ViewType};

    use super::*;
    use crate::store;
    use crate::testing::Numbers;

    const VISITOR: VisitorRow = VisitorRow::from_number(1);

    fn action(numbers: &mut Numbers, insertions: u32, minutes: u32) -> AdAction {
        let [a, b, c, d] = numbers.below(insertions).to_be_bytes();
        let ad = numbers.below(20);
        let minute = Minute(Day(2_900).start().0 + numbers.below(minutes));
        let entity = AdEntity { ad, ad_group: ad / 2, campaign: ad / 4, advertiser: ad / 8 };
        let insertion = InsertionHash([0, 0, a, b, c, d]);
        AdAction { insertion, action_type: ActionType(1 + u8::from(ad == 3)), view_type: ViewType(1), entity, minute }
    }

    fn read(conn: &Connection, from: Minute, to: Minute) -> Vec<AdAction> {
        let parts = actions_within(conn, VISITOR, from, to).unwrap();
        parts.iter().flat_map(|body| PackedActions::read(body).unwrap().iter().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn buckets_equal_the_set_of_actions_and_a_range_reads_only_its_buckets() {
        let folder = tempfile::tempdir().unwrap();
        let conn = store::open(folder.path()).unwrap();
        conn.execute_batch("BEGIN").unwrap();
        let mut numbers = Numbers(88_172_645_463_325_252);
        // A busy afternoon, a few days, and four months of which the oldest actions are deleted.
        for (insertions, minutes, batches) in [(100_000, 300, 40), (3_000, 5_000, 60), (2_000_000, 170_000, 300)] {
            let mut all = ActionList::default();
            let mut count = 0;
            for _ in 0..batches {
                let size = numbers.below(90);
                let new: ActionList = (0..size).map(|_| action(&mut numbers, insertions, minutes)).collect();
                all = all.join(new.clone());
                count = add(&conn, VISITOR, count, new).unwrap();
            }
            assert_eq!(usize::try_from(count).unwrap(), all.len());
            let stored: ActionList = read(&conn, Minute(0), Minute(u32::MAX)).into_iter().collect();
            assert_eq!(stored, all);
            for _ in 0..50 {
                let from = Minute(Day(2_900).start().0 + numbers.below(minutes));
                let to = Minute(from.0 + numbers.below(3_000));
                let found = read(&conn, from, to);
                let inside = |a: &&AdAction| (from..to).contains(&a.minute);
                assert_eq!(found.iter().filter(inside).count(), all.iter().filter(|a| inside(&a)).count());
                // Nothing outside the days that the range touches.
                let days = from.day().start()..Minute(to.0 + DAY_MINUTES);
                assert!(found.iter().all(|a| days.contains(&a.minute)));
            }
            conn.execute("DELETE FROM actions", []).unwrap();
        }
    }

    #[test]
    fn a_full_day_is_stored_in_hours_and_a_full_hour_in_minutes() {
        let folder = tempfile::tempdir().unwrap();
        let conn = store::open(folder.path()).unwrap();
        let at = |n: u32, minute: u32| AdAction {
            insertion: InsertionHash([0, 0, 0, 0, n.to_be_bytes()[2], n.to_be_bytes()[3]]),
            action_type: ActionType(1),
            view_type: ViewType(1),
            entity: AdEntity::default(),
            minute: Minute(Day(2_900).start().0 + minute),
        };
        let spans = |conn: &Connection| -> Vec<(u32, u32)> {
            let mut read = conn.prepare("SELECT minutes, count FROM actions ORDER BY place").unwrap();
            let rows = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            rows.collect::<Result<_, _>>().unwrap()
        };
        let count = add(&conn, VISITOR, 0, (0..128).map(|n| at(n, n)).collect()).unwrap();
        assert_eq!(spans(&conn), [(DAY_MINUTES, 128)]);
        let count = add(&conn, VISITOR, count, [at(128, 128)].into_iter().collect()).unwrap();
        assert_eq!(spans(&conn), [(60, 60), (60, 60), (60, 9)]);
        let count = add(&conn, VISITOR, count, (200..400).map(|n| at(n, 125 + n % 2)).collect()).unwrap();
        // The third hour is full: its minutes 120 to 128, two of them with a hundred more.
        let minutes = [1, 1, 1, 1, 1, 101, 101, 1, 1].map(|count| (1, count));
        assert_eq!(spans(&conn), [&[(60, 60), (60, 60)][..], &minutes].concat());
        assert_eq!(count, 329);
        assert_eq!(read(&conn, at(0, 125).minute, at(0, 126).minute).len(), 101, "one minute is read alone");
    }
}
