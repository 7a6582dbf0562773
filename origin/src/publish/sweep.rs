//! Sweeps: all snapshots of a person of whom somebody left, put in the outbox bit by bit. However many visitors it has, no
//! transaction puts more than a few of them.

use std::collections::BTreeSet;

use causeway_shared::limits;
use rusqlite::OptionalExtension as _;

use super::{Subject, later, put};
use crate::group::Group;
use crate::link::PersonChange;
use crate::store::{PersonNo, StoreError, TenantNo, signed, visitor_at};

/// A membership changed: who joined waits as any news of a sibling does; a cut does not wait, and reaches
/// every visitor of the person, as any snapshot may hold the one that left. Of many the last active are put now, and a sweep
/// puts the others; one that goes on goes round once more, and needs the room.
pub(super) fn announce(group: &Group<'_>, change: PersonChange) -> Result<(), StoreError> {
    const BEGIN: &str = "INSERT INTO sweeps (person, before, last_seen, visitor) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET before = excluded.before, again = 1";
    if !change.cut {
        return later(group, change.person);
    }
    let before = signed(group.version().counter);
    let goes_on = !swept(group, &[change.person].into())?.is_empty();
    let now = if goes_on { limits::SNAPSHOT_VISITORS as u64 } else { limits::CROWD.into() };
    if let Some((last_seen, visitor)) = sweep(group, change.person, before, START, now)? {
        group.tx.prepare_cached(BEGIN)?.execute((change.person.0, before, last_seen, visitor))?;
    }
    Ok(())
}

/// Those of these rows whose visitors' snapshots are not all put yet: who goes on as another row takes that along.
pub(crate) fn swept(group: &Group<'_>, rows: &BTreeSet<PersonNo>) -> Result<BTreeSet<PersonNo>, StoreError> {
    let mut statement = group.tx.prepare_cached("SELECT 1 FROM sweeps WHERE person = ?1")?;
    let mut found = BTreeSet::new();
    for row in rows {
        if statement.exists([row.0])? {
            found.insert(*row);
        }
    }
    Ok(found)
}

/// Where a sweep is among a person's visitors: when the last one was active, and its row.
type At = (i64, i64);
/// Before the one that was active last.
const START: At = (i64::MAX, 0);

/// Puts the next visitors of a person, whose snapshots are older than a version, in the outbox; gives where it has come to,
/// unless that is the end.
fn sweep(group: &Group<'_>, person: PersonNo, before: i64, at: At, most: u64) -> Result<Option<At>, StoreError> {
    // In the order of its index, so that a bit costs as much of a million as of three.
    const NEXT: &str = "SELECT tenant, visitor, published, last_seen, row FROM visitors
        WHERE person = ?1 AND last_seen <= ?2 AND (last_seen < ?2 OR row > ?3) ORDER BY last_seen DESC, row LIMIT ?4";
    let (mut at, mut seen) = (at, 0);
    let mut statement = group.tx.prepare_cached(NEXT)?;
    let mut rows = statement.query((person.0, at.0, at.1, signed(most)))?;
    while let Some(row) = rows.next()? {
        let published: i64 = row.get(2)?;
        if published < before {
            put(group, TenantNo(row.get(0)?), Subject::Snapshot(visitor_at(row, 1)?), group.now)?;
        }
        (at, seen) = ((row.get(3)?, row.get(4)?), seen + 1);
    }
    Ok((seen == most).then_some(at))
}

/// Goes on with the person whose turn it is, of those whose snapshots must all be written, once what was put before is handed
/// out.
pub(super) fn go_on(group: &Group<'_>) -> Result<(), StoreError> {
    const NEXT: &str = "SELECT person, before, last_seen, visitor, again FROM sweeps ORDER BY turn LIMIT 1";
    const GO_ON: &str = "UPDATE sweeps SET last_seen = ?2, visitor = ?3, again = ?4,
        turn = (SELECT max(turn) + 1 FROM sweeps) WHERE person = ?1";
    let at = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, (row.get(2)?, row.get(3)?), row.get(4)?));
    let next: Option<(i64, i64, At, bool)> = group.tx.prepare_cached(NEXT)?.query_row([], at).optional()?;
    let Some((person, before, at, again)) = next else { return Ok(()) };
    let (at, again) = match sweep(group, PersonNo(person), before, at, limits::CROWD.into())? {
        Some(at) => (at, again),
        None if again => (START, false),
        None => {
            group.tx.prepare_cached("DELETE FROM sweeps WHERE person = ?1")?.execute([person])?;
            return Ok(());
        }
    };
    group.tx.prepare_cached(GO_ON)?.execute((person, at.0, at.1, again))?;
    Ok(())
}
