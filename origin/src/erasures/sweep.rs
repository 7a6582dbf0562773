//! Sweeps: put all snapshots of a person that lost a visitor in the outbox, in steps. A step has a bounded number of
//! visitors, however many the person has.

use causeway_shared::base::ids::VisitorId;
use std::collections::BTreeSet;

use causeway_shared::base::ids::FactId;
use causeway_shared::base::limits;
use rusqlite::OptionalExtension as _;

use crate::base::integers::signed;
use crate::outbox::kv_key::KvKey;
use crate::outbox::queue::{put_leaving, schedule_siblings};
use crate::store::tables::{erasure_sweeps, sweeps, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};

/// Publishes a change of a membership. A visitor that joined is news for its siblings, after the usual pause. A cut
/// does not wait and reaches every visitor of the person, because any snapshot may hold the cut visitor. The most
/// recently active visitors are put in the outbox now, and a sweep puts the others. A sweep that is already running
/// makes another round; fewer visitors are then put now, because the sweep needs the room.
pub(crate) fn announce_change(group: &WriteTxn<'_>, change: PersonChange) -> Result<(), StoreError> {
    if !change.cut {
        return schedule_siblings(group, change.person);
    }
    let before = signed(group.version().counter);
    let goes_on = !unswept_people(group, &[change.person].into())?.is_empty();
    // A running sweep notes the keys of new erasures in its next round.
    let erasures = if goes_on { Vec::new() } else { awaiting_erasures(group, change.person)? };
    let now = if goes_on { limits::SNAPSHOT_VISITORS as u64 } else { step_size(&erasures) };
    match sweep_people(group, change.person, before, START, now, &erasures)? {
        Some((last_seen, visitor)) => {
            let values = (change.person.0, before, last_seen, visitor, signed(group.now));
            group.tx.prepare_cached(sweeps::SWEEPS_START_OR_REPEAT)?.execute(values)?;
        }
        None if !goes_on => drop(end_round(group, change.person)?),
        None => {}
    }
    Ok(())
}

/// Pause after which the next sweep continues, however many keys are due, in milliseconds.
const OVERDUE_MS: u64 = 60_000;

/// An erasure: its tenant and receipt.
type Erasure = (TenantNo, FactId);

/// Makes an erasure wait until all snapshots of a person are written, because any of them may hold an erased visitor.
/// Returns `true` if the erasure did not wait for that already; the caller must then announce the person in this
/// transaction.
pub(crate) fn await_person(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    receipt: FactId,
    person: PersonNo,
) -> Result<bool, StoreError> {
    Ok(group.tx.prepare_cached(erasure_sweeps::ERASURE_SWEEPS_AWAIT_PERSON)?.execute((
        tenant.0,
        receipt.as_bytes(),
        person.0,
    ))? > 0)
}

/// Transfers the waiting erasures of persons that were merged into the person `to`. Returns whether there are any; the
/// caller must then announce `to` in this transaction.
pub(crate) fn await_with(group: &WriteTxn<'_>, from: &BTreeSet<PersonNo>, to: PersonNo) -> Result<bool, StoreError> {
    let mut any = false;
    for row in from.iter().filter(|row| **row != to) {
        any |= group.tx.prepare_cached(erasure_sweeps::ERASURE_SWEEPS_COPY_TO_PERSON)?.execute([row.0, to.0])? > 0;
    }
    Ok(any)
}

/// Erasures whose keys the current round notes.
fn awaiting_erasures(group: &WriteTxn<'_>, person: PersonNo) -> Result<Vec<Erasure>, StoreError> {
    let mut statement = group.tx.prepare_cached(erasure_sweeps::ERASURE_SWEEPS_OF_CURRENT_ROUND)?;
    let erasure = |row: &rusqlite::Row<'_>| Ok((TenantNo(row.get(0)?), FactId::from_bytes(row.get(1)?)));
    let rows = statement.query_map([person.0], erasure)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Number of visitors per step; smaller with more erasures, because each visitor's key is noted for each of them.
fn step_size(erasures: &[Erasure]) -> u64 {
    let most = u64::from(limits::GROUP_LIMIT) / (erasures.len() as u64).max(1);
    most.max(limits::SNAPSHOT_VISITORS as u64)
}

/// Ends a round that reached all visitors: the erasures that waited for it now wait for their keys only. Returns
/// whether other erasures wait for the next round.
fn end_round(group: &WriteTxn<'_>, person: PersonNo) -> Result<bool, StoreError> {
    group.tx.prepare_cached(erasure_sweeps::ERASURE_SWEEPS_DELETE_CURRENT_ROUND)?.execute([person.0])?;
    Ok(group.tx.prepare_cached(erasure_sweeps::ERASURE_SWEEPS_ADVANCE_ROUND)?.execute([person.0])? > 0)
}

/// Notes the keys of visitors that became active for waiting erasures, because activity moves a visitor to a part that
/// a sweep may have passed.
pub(crate) fn note_moved(
    group: &WriteTxn<'_>,
    changed: impl Iterator<Item = (TenantNo, VisitorId)>,
) -> Result<(), StoreError> {
    if !group.tx.prepare_cached(erasure_sweeps::ERASURE_SWEEPS_ANY)?.exists([])? {
        return Ok(());
    }
    let mut statement = group.tx.prepare_cached(visitors::VISITORS_SWEEPS_OF_ID)?;
    for (tenant, visitor) in changed {
        let key = KvKey::Snapshot(visitor);
        let mut rows = statement.query((tenant.0, visitor.as_bytes()))?;
        while let Some(row) = rows.next()? {
            put_leaving(group, tenant, key)?;
            crate::erasures::registry::note_key(group, tenant, FactId::from_bytes(row.get(0)?), key)?;
        }
    }
    Ok(())
}

/// The persons among `rows` with a running sweep.
pub(crate) fn unswept_people(
    group: &WriteTxn<'_>,
    rows: &BTreeSet<PersonNo>,
) -> Result<BTreeSet<PersonNo>, StoreError> {
    let mut statement = group.tx.prepare_cached(sweeps::SWEEPS_EXISTS)?;
    let mut found = BTreeSet::new();
    for row in rows {
        if statement.exists([row.0])? {
            found.insert(*row);
        }
    }
    Ok(found)
}

/// Position of a sweep among a person's visitors: time of last activity, and row.
type At = (i64, i64);
/// Position before the most recently active visitor.
const START: At = (i64::MAX, 0);

/// Puts the next visitors of a person in the outbox, if their snapshots are older than the version `before`, and notes
/// their keys for the erasures. Returns the new position; `None` at the end.
fn sweep_people(
    group: &WriteTxn<'_>,
    person: PersonNo,
    before: i64,
    at: At,
    most: u64,
    erasures: &[Erasure],
) -> Result<Option<At>, StoreError> {
    let (mut at, mut seen) = (at, 0);
    let mut statement = group.tx.prepare_cached(visitors::VISITORS_PAGE_OF_PERSON_DOWNWARD)?;
    let mut rows = statement.query((person.0, at.0, at.1, signed(most)))?;
    while let Some(row) = rows.next()? {
        let (tenant, key) = (TenantNo(row.get(0)?), KvKey::Snapshot(visitor_at(row, 1)?));
        // A value handed out since may still be on its way, so an erasure waits for a write of its own.
        if row.get::<_, i64>(2)? < before || !erasures.is_empty() {
            put_leaving(group, tenant, key)?;
        }
        for (_, receipt) in erasures.iter().filter(|(of, _)| *of == tenant) {
            crate::erasures::registry::note_key(group, tenant, *receipt, key)?;
        }
        (at, seen) = ((row.get(3)?, row.get(4)?), seen + 1);
    }
    Ok((seen == most).then_some(at))
}

/// Whether the next sweep has paused for over a minute. An outbox that never empties must not keep an erased or cut
/// visitor in the KV.
pub(crate) fn is_overdue(group: &WriteTxn<'_>) -> Result<bool, StoreError> {
    let since = signed(group.now.saturating_sub(OVERDUE_MS));
    let read = |row: &rusqlite::Row<'_>| row.get::<_, Option<bool>>(0);
    Ok(group
        .tx
        .prepare_cached(sweeps::SWEEPS_IS_OVERDUE)?
        .query_row((since, signed(group.now)), read)?
        .unwrap_or(false))
}

/// Continues the next sweep. Called after the keys of its previous step were handed out.
pub(crate) fn go_on(group: &WriteTxn<'_>) -> Result<(), StoreError> {
    let at = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, (row.get(2)?, row.get(3)?), row.get(4)?));
    let next: Option<(i64, i64, At, bool)> =
        group.tx.prepare_cached(sweeps::SWEEPS_NEXT)?.query_row([], at).optional()?;
    let Some((person, before, at, again)) = next else { return Ok(()) };
    let erasures = awaiting_erasures(group, PersonNo(person))?;
    let (at, again) = match sweep_people(group, PersonNo(person), before, at, step_size(&erasures), &erasures)? {
        Some(at) => (at, again),
        None if end_round(group, PersonNo(person))? || again => (START, false),
        None => {
            group.tx.prepare_cached(sweeps::SWEEPS_DELETE)?.execute([person])?;
            return Ok(());
        }
    };
    group.tx.prepare_cached(sweeps::SWEEPS_SET_POSITION)?.execute((person, at.0, at.1, again, signed(group.now)))?;
    Ok(())
}

/// A change of a person's membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonChange {
    /// The person.
    pub person: PersonNo,
    /// Whether visitors left the person; then no snapshot may wait.
    pub cut: bool,
}
