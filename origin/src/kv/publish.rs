//! Publish: which KV keys must be written, and what is written there.
//!
//! The outbox holds one row a key, whatever happened to it since its last write; values are built when they
//! are handed out, from the newest state ([`value`]). A row is leased to one consumer, and stays until the
//! write is acknowledged (invariant 5, DESIGN "Publishing").

use crate::kv::sweep;
use crate::kv::value;
use crate::outbox::fair_queue;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::ids::{AltHash, KindCode, Millis, VisitorId};
use causeway_shared::limits;
use causeway_shared::planted::{self, PlantedBug};
use causeway_shared::wire::sync::Publish;

use crate::audience::rhythm::Told;
use crate::base::chain;
use crate::campaigns::catalogue;
use crate::identity::link::Linked;
use crate::identity::link::PersonChange;
use crate::identity::link::family;
use crate::identity::link::of_visitor;
pub use crate::kv::republish::{Put, of_tenants, some, subjects};
pub(crate) use crate::kv::sweep::{await_person, await_with, swept};
use crate::kv::value::{Built, ValueError};
pub use crate::outbox::clock_rollback::{is_ahead, set_back};
use crate::outbox::fair_queue::Due;
pub use crate::outbox::fair_queue::{Rank, depth, pending};
use crate::pipeline::group::Group;
use crate::privacy::erase;
use crate::profiles::fold::Changed;
use crate::store::PersonNo;
use crate::store::StoreError;
use crate::store::TenantNo;
use crate::store::signed;
use crate::store::unsigned;
use crate::store::visitor_at;

/// How long a consumer may take to acknowledge what it was handed, in milliseconds.
pub const LEASE_MS: Millis = 60_000;
/// How long after it was handed out a write that nobody acknowledged may still land, in milliseconds: the platform ends
/// a consumer after 15 minutes.
pub const LATE_MS: Millis = 15 * 60_000;
/// Shortest time between two writes of a key, in milliseconds (the platform allows one a second).
pub const KEY_PAUSE_MS: Millis = 1_000;
/// A clock that is set back by less is waited for, in milliseconds: it may be right again before what it noted is over.
pub const STEP_MS: Millis = LATE_MS;
/// When a value that could not be built is tried again, in milliseconds.
const RETRY_MS: Millis = 60_000;
/// People whose siblings are put in the outbox in one call at most.
const TIMERS: u32 = 64;

/// Column value of `outbox.kind` for a snapshot; lookups have their kind, which is never 0.
const SNAPSHOT: u16 = 0;
/// Column value of `outbox.kind` for a page of names: above all kinds of alternate ids.
const NAMES: u16 = 256;
/// The same for a version of the catalogue, and for the pointer to the current one.
pub(crate) const CATALOGUE: u16 = 257;
const POINTER: u16 = 258;
/// The same for the newest model.
const MODEL: u16 = 259;
/// The same for the steering.
const STEERING: u16 = 260;

/// The columns of a page of names.
#[must_use]
pub fn names_subject(page: u16) -> (u16, [u8; 16]) {
    (NAMES, u128::from(page).to_be_bytes())
}

/// A KV key by what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A visitor's snapshot or tombstone.
    Snapshot(VisitorId),
    /// A lookup, under one of the id's hashes.
    Lookup(KindCode, AltHash),
    /// A page of the tenant's names of attributes.
    Names(u16),
    /// A version of the tenant's catalogue.
    Catalogue(u32),
    /// The pointer to the current one.
    Pointer,
    /// The tenant's newest model.
    Model,
    /// How its traffic is steered.
    Steering,
}

impl Subject {
    pub(crate) fn columns(&self) -> (u16, [u8; 16]) {
        match self {
            Self::Snapshot(visitor) => (SNAPSHOT, *visitor.as_bytes()),
            Self::Lookup(kind, hash) => (kind.0.into(), hash.0),
            Self::Names(page) => names_subject(*page),
            Self::Catalogue(version) => (CATALOGUE, u128::from(*version).to_be_bytes()),
            Self::Pointer => (POINTER, [0; 16]),
            Self::Model => (MODEL, [0; 16]),
            Self::Steering => (STEERING, [0; 16]),
        }
    }

    pub(crate) fn of_columns(kind: u16, row: &rusqlite::Row<'_>, subject: usize) -> rusqlite::Result<Self> {
        match (kind, u8::try_from(kind)) {
            (SNAPSHOT, _) => visitor_at(row, subject).map(Self::Snapshot),
            (_, Ok(kind)) => Ok(Self::Lookup(KindCode(kind), AltHash(row.get(subject)?))),
            (CATALOGUE, _) => {
                let [.., a, b, c, d]: [u8; 16] = row.get(subject)?;
                Ok(Self::Catalogue(u32::from_be_bytes([a, b, c, d])))
            }
            (POINTER, _) => Ok(Self::Pointer),
            (MODEL, _) => Ok(Self::Model),
            (STEERING, _) => Ok(Self::Steering),
            (_, Err(_)) => {
                let [.., high, low]: [u8; 16] = row.get(subject)?;
                Ok(Self::Names(u16::from_be_bytes([high, low])))
            }
        }
    }
}

impl Subject {
    /// A key of a tenant as a whole: the number is that of a page of names, or of a catalogue.
    pub(crate) fn of_tenant(kind: u16, number: u32) -> Option<Self> {
        match kind {
            NAMES => u16::try_from(number).ok().map(Self::Names),
            CATALOGUE => Some(Self::Catalogue(number)),
            POINTER => Some(Self::Pointer),
            MODEL => Some(Self::Model),
            STEERING => Some(Self::Steering),
            _ => None,
        }
    }
}

/// Puts in the outbox what this group changed: a visitor's own snapshot at once, its siblings' when their
/// person's time comes, everybody's at once where somebody left.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn note(group: &mut Group<'_>, changed: &[Changed], linked: &Linked) -> Result<(), StoreError> {
    let now = group.now;
    for (tenant, page) in std::mem::take(&mut group.names.changed) {
        put(group, tenant, Subject::Names(page), now)?;
    }
    for (tenant, visitor) in &linked.withdrawn {
        put_leaving(group, *tenant, Subject::Snapshot(*visitor))?;
    }
    for c in changed.iter().filter(|c| !c.withdrawn) {
        put(group, c.tenant, Subject::Snapshot(c.visitor), now)?;
        if c.devices > 1 {
            later(group, c.person)?;
        }
    }
    // Of all who leave a person in this group its snapshots are told once.
    let mut people: BTreeMap<PersonNo, bool> = BTreeMap::new();
    linked.people.iter().for_each(|change| *people.entry(change.person).or_default() |= change.cut);
    for (person, cut) in people {
        sweep::announce(group, PersonChange { person, cut })?;
    }
    sweep::moved(group, changed)?;
    let mut leaves = BTreeSet::new();
    for (tenant, visitor) in &linked.withdrawn {
        leaves.extend(of_visitor(group.tx, *tenant, *visitor)?.into_iter().map(|row| (*tenant, row.evidence.id)));
    }
    for (tenant, id) in &linked.lookups {
        let known = group.rules.tenants.by_no(*tenant)?;
        for hash in family(group.tx, *tenant, *id)? {
            let key = Subject::Lookup(id.kind, hash);
            match known.is_readable(hash) {
                true if leaves.contains(&(*tenant, *id)) => put_leaving(group, *tenant, key)?,
                true => put(group, *tenant, key, now)?,
                false => {}
            }
        }
    }
    Ok(())
}

/// Has a key written by `due` at the latest, in its turn.
pub(crate) fn put(group: &Group<'_>, tenant: TenantNo, subject: Subject, due: Millis) -> Result<(), StoreError> {
    put_as(group, tenant, subject, due, group.rank)
}

/// The same, at once, of what may name who left: it waits behind no news, but where it is one of very many.
pub(crate) fn put_leaving(group: &Group<'_>, tenant: TenantNo, subject: Subject) -> Result<(), StoreError> {
    let rank = if group.rank == Rank::Bulk { Rank::Bulk } else { Rank::Leaving };
    put_as(group, tenant, subject, group.now, rank)
}

fn put_as(group: &Group<'_>, tenant: TenantNo, subject: Subject, due: Millis, rank: Rank) -> Result<(), StoreError> {
    const PUT: &str =
        "INSERT INTO outbox (tenant, kind, subject, changed, due, lease_change, leased_until, handed, rank)
        VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, 0, ?6)
        ON CONFLICT (tenant, kind, subject) DO UPDATE SET changed = excluded.changed,
            rank = iif(due IS NULL, excluded.rank, min(rank, excluded.rank)),
            due = min(ifnull(due, excluded.due), excluded.due)";
    // One that is due and handed to nobody is written as all is by then: nothing is touched.
    const WAITS: &str = "SELECT 1 FROM outbox
        WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due <= ?4 AND rank <= ?5 AND lease IS NULL";
    // A row that is due already stays where it is: no index is touched.
    const AGAIN: &str = "UPDATE outbox SET changed = ?4
        WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due <= ?5 AND rank <= ?6";
    let (kind, subject) = subject.columns();
    let (due, rank) = (signed(due), rank.of(kind) as u8);
    if group.tx.prepare_cached(WAITS)?.exists((tenant.0, kind, subject, due, rank))? {
        return Ok(());
    }
    let version = signed(group.version().counter);
    let values = (tenant.0, kind, subject, version, due, rank);
    if group.tx.prepare_cached(AGAIN)?.execute(values)? == 0 {
        group.tx.prepare_cached(PUT)?.execute(values)?;
    }
    Ok(())
}

/// Has all snapshots of a tenant that left something out written again, behind news.
pub(crate) fn put_truncated(group: &Group<'_>, tenant: TenantNo) -> Result<(), StoreError> {
    const READ: &str = "SELECT visitor FROM visitors INDEXED BY visitors_truncated WHERE tenant = ?1 AND truncated";
    let mut statement = group.tx.prepare_cached(READ)?;
    for visitor in statement.query_map([tenant.0], |row| visitor_at(row, 0))? {
        put_as(group, tenant, Subject::Snapshot(visitor?), group.now, Rank::Bulk)?;
    }
    Ok(())
}

/// Whether a key is to be written, now or later.
pub(crate) fn waits(group: &Group<'_>, tenant: TenantNo, subject: Subject) -> Result<bool, StoreError> {
    const READ: &str = "SELECT 1 FROM outbox WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due IS NOT NULL";
    let (kind, subject) = subject.columns();
    Ok(group.tx.prepare_cached(READ)?.exists((tenant.0, kind, subject))?)
}

/// Has a person's siblings published when the pause is over, unless that is planned already.
pub(crate) fn later(group: &Group<'_>, person: PersonNo) -> Result<(), StoreError> {
    const LATER: &str = "UPDATE people SET changed = ?2, siblings_due = ifnull(siblings_due, ?3)
        WHERE person = ?1 AND devices > 1";
    let due = group.now.saturating_add(group.rules.sibling_publish_ms);
    let values = (person.0, signed(group.version().counter), signed(due));
    group.tx.prepare_cached(LATER)?.execute(values)?;
    Ok(())
}

/// Settles the rows whose write the KV acknowledged, unless something changed since they were handed out. Where a consumer
/// of before may still write an older value, the row comes once more when it cannot any longer. The key's pause begins
/// again: the write may have come long after its entry was handed out, and the platform counts from the write. What changed
/// since it was handed out waits since then, not since its first change (`causeway_outbox_age_seconds`). Gives how many these
/// are: an acknowledgement that comes twice, or is of no entry, settles nothing.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn acknowledge(group: &Group<'_>, applied: &[u64]) -> Result<u64, StoreError> {
    const SETTLE: &str = "UPDATE outbox SET lease = NULL, leased_until = 0, handed = ?2,
            due = iif(changed = lease_change, iif(late > ?2, late, NULL), max(due, handed)) WHERE lease = ?1";
    const SETTLE_ALL: &str = "UPDATE outbox SET lease = NULL, leased_until = 0, handed = ?2,
            due = iif(late > ?2, late, NULL) WHERE lease = ?1";
    let settle = if planted::is_active(PlantedBug::LoseAcknowledgedOutboxChange) { SETTLE_ALL } else { SETTLE };
    erase::written(group, applied)?;
    catalogue::written(group, applied)?;
    let mut settled = 0;
    for entry in applied {
        settled += group.tx.prepare_cached(settle)?.execute([signed(*entry), signed(group.now)])? as u64;
    }
    Ok(settled)
}

/// Leases up to `wanted` keys that are due to one consumer, snapshots before the lookups that name them.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn hand_out(group: &mut Group<'_>, wanted: u16) -> Result<Vec<Publish>, StoreError> {
    if wanted == 0 {
        return Ok(Vec::new());
    }
    forget_settled(group)?;
    fire_timers(group, group.now, TIMERS)?;
    let wanted = usize::from(wanted).min(limits::SYNC_PUBLISH);
    let mut writes = Vec::new();
    let mut all = fair_queue::due(group, wanted)?;
    if all.len() < wanted || sweep::is_overdue(group)? {
        sweep::go_on(group)?;
        all = fair_queue::due(group, wanted)?;
    }
    let (mut best, mut bytes) = (Told::default(), 0);
    for due in all {
        if bytes > limits::PUBLISH_BYTES {
            break;
        }
        if let Some(write) = lease(group, &due, &mut best)? {
            bytes += write.value.as_ref().map_or(0, String::len);
            writes.push((matches!(due.subject, Subject::Lookup(..)), write));
        }
    }
    writes.sort_by_key(|(is_lookup, write)| (*is_lookup, write.entry));
    Ok(writes.into_iter().map(|(_, write)| write).collect())
}

/// Settled rows are kept for the key's pause only.
fn forget_settled(group: &Group<'_>) -> Result<(), StoreError> {
    const FORGET: &str = "DELETE FROM outbox WHERE due IS NULL AND handed <= ?1";
    let pause_over = signed(group.now.saturating_sub(KEY_PAUSE_MS));
    group.tx.prepare_cached(FORGET)?.execute([pause_over])?;
    Ok(())
}

/// Puts in the outbox the siblings of people whose pause is over by a time: of each the visitors last active, where
/// their snapshot is older than the person's last change. Gives how many people and snapshots these were.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn fire_timers(group: &Group<'_>, until: Millis, most: u32) -> Result<(u64, u64), StoreError> {
    const READ: &str = "SELECT person, tenant FROM people WHERE siblings_due <= ?1
        ORDER BY siblings_due LIMIT ?2";
    // Bound, the limit has SQLite plan the statement anew each time.
    let siblings = format!(
        "SELECT v.visitor FROM
            (SELECT visitor, published FROM visitors WHERE person = ?1 ORDER BY last_seen DESC LIMIT {}) v
        WHERE v.published < (SELECT changed FROM people WHERE person = ?1)",
        limits::SNAPSHOT_VISITORS
    );
    const DONE: &str = "UPDATE people SET siblings_due = NULL WHERE person = ?1";
    let people: Vec<(i64, i64)> = {
        let mut statement = group.tx.prepare_cached(READ)?;
        let rows = statement.query_map((signed(until), most), |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let (fired, mut put_now) = (people.len() as u64, 0);
    for (person, tenant) in people {
        let mut statement = group.tx.prepare_cached(&siblings)?;
        let siblings: Vec<VisitorId> =
            statement.query_map([person], |row| visitor_at(row, 0))?.collect::<Result<_, _>>()?;
        put_now += siblings.len() as u64;
        for visitor in siblings {
            if planted::is_active(PlantedBug::ForgetTheSiblings) {
                continue;
            }
            put(group, TenantNo(tenant), Subject::Snapshot(visitor), group.now)?;
        }
        group.tx.prepare_cached(DONE)?.execute([person])?;
    }
    Ok((fired, put_now))
}

/// People whose siblings wait for news of one another.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn waiting(conn: &rusqlite::Connection) -> Result<u64, StoreError> {
    const COUNT: &str = "SELECT count(*) FROM people WHERE siblings_due IS NOT NULL";
    Ok(conn.query_row(COUNT, [], |row| row.get(0).map(unsigned))?)
}

/// Has a row wait until then.
pub(crate) fn put_off(group: &Group<'_>, due: &Due, until: i64) -> Result<(), StoreError> {
    group.tx.prepare_cached("UPDATE outbox SET due = ?2 WHERE row = ?1")?.execute((due.row, until))?;
    Ok(())
}

/// Builds a row's value and leases the row under the value's version. `None` when there is nothing to write: the value
/// could not be built.
fn lease(group: &mut Group<'_>, due: &Due, best: &mut Told) -> Result<Option<Publish>, StoreError> {
    const LEASE: &str = "UPDATE outbox SET lease = ?2, lease_change = changed, leased_until = ?3,
        handed = ?4, late = iif(lease IS NULL, late, ?5) WHERE row = ?1";
    let rules = group.rules;
    let tenant = rules.tenants.by_no(due.tenant)?;
    let told = match due.subject {
        Subject::Snapshot(visitor) => best.tell(group.tx, tenant, visitor, group.now),
        _ => Ok(()),
    };
    let version = group.next_version();
    let retry = signed(group.now.saturating_add(RETRY_MS));
    let built =
        told.map_err(ValueError::from).and_then(|()| value::build(group.tx, tenant, due.subject, version, group.now));
    let Built { key, value, is_truncated } = match built {
        Ok(built) => built,
        Err(ValueError::NotYet) => {
            put_off(group, due, retry)?;
            return Ok(None);
        }
        // What is stored of one person keeps back no other's.
        Err(ValueError::Store(e)) if !e.is_of_a_value() => return Err(e),
        Err(e) => {
            group.metrics.bad_values.add(1);
            tracing::error!(error = %chain(&e), "a KV value cannot be made, or failed its check, and is put off");
            put_off(group, due, retry)?;
            return Ok(None);
        }
    };
    let late = if planted::is_active(PlantedBug::ForgetLateWrites) { 0 } else { LATE_MS };
    let [until, late] = [LEASE_MS, late].map(|after| signed(group.now.saturating_add(after)));
    let row = (due.row, signed(version.counter), until, signed(group.now), late);
    group.tx.prepare_cached(LEASE)?.execute(row)?;
    match due.subject {
        Subject::Snapshot(visitor) => published(group, due.tenant, visitor, version.counter, is_truncated)?,
        Subject::Catalogue(number) => {
            let entry = value.is_some().then_some(version.counter);
            catalogue::handed(group, due.tenant, number, entry)?;
        }
        Subject::Pointer | Subject::Model | Subject::Steering => stands(group, due, version.counter)?,
        Subject::Lookup(..) | Subject::Names(_) => {}
    }
    Ok(Some(Publish { entry: version.counter, key, version, value, due: due.due }))
}

fn published(
    group: &Group<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    counter: u64,
    is_truncated: bool,
) -> Result<(), StoreError> {
    const MARK: &str = "UPDATE visitors SET published = ?3, truncated = ?4 WHERE tenant = ?1 AND visitor = ?2";
    group.tx.prepare_cached(MARK)?.execute((tenant.0, visitor.as_bytes(), signed(counter), is_truncated))?;
    Ok(())
}

/// Notes the version that such a value was handed out under: it is part of the value.
fn stands(group: &Group<'_>, due: &Due, counter: u64) -> Result<(), StoreError> {
    const PUT: &str = "INSERT INTO standing (tenant, kind, published) VALUES (?1, ?2, ?3)
        ON CONFLICT DO UPDATE SET published = excluded.published";
    let (kind, _) = due.subject.columns();
    group.tx.prepare_cached(PUT)?.execute((due.tenant.0, kind, signed(counter)))?;
    Ok(())
}

#[cfg(test)]
#[path = "publish/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "publish/unknown_tests.rs"]
mod unknown_tests;
