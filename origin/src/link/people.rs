//! People: where evidence changed, the people around it are computed anew and compared with the store.
//!
//! Gather ([`gather`]) → decide (`causeway_shared::person::people`, [`plan`]) → apply ([`apply`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use causeway_shared::ids::{AlternateId, KindCode, Millis, VisitorId};
use causeway_shared::limits;
use causeway_shared::person::{Evidence, People, Person, Reason, Weight, people};
use rusqlite::OptionalExtension as _;

use super::evidence::{self, Row};
use super::{Linked, PersonChange, Touched};
use crate::group::Group;
use crate::read;
use crate::store::{PersonNo, StoreError, TenantNo, signed, unsigned, visitor_at};

/// The evidence around a visitor, and what the store says of everybody in it.
#[derive(Debug, Default)]
struct Around {
    rows: BTreeMap<(VisitorId, AlternateId), Row>,
    stored: BTreeMap<VisitorId, Stored>,
    /// Whether there is more.
    is_too_large: bool,
}

/// A visitor as the store has it.
#[derive(Debug, Clone, Copy)]
struct Stored {
    person: PersonNo,
    last_seen: Millis,
}

/// A person's row as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    master: VisitorId,
    devices: u64,
}

/// A person whose visitors are others than the store says.
#[derive(Debug)]
struct Planned {
    person: Person,
    /// Rows that its visitors point to now.
    from: BTreeSet<PersonNo>,
    /// The row it takes over; none: it needs a new one.
    row: Option<PersonNo>,
    /// The row whose random bytes it keeps.
    heir_of: Option<PersonNo>,
    /// Visitors that shared a person with one of its visitors and do not any more, the last active first.
    left: Vec<VisitorId>,
}

/// Recomputes the people around every visitor whose evidence changed.
pub(super) fn recompute(group: &mut Group<'_>, touched: &mut Touched, linked: &mut Linked) -> Result<(), StoreError> {
    let mut done = BTreeSet::new();
    for (tenant, visitor) in touched.visitors.clone() {
        if done.contains(&(tenant, visitor)) {
            continue;
        }
        let around = gather(group, tenant, visitor, touched)?;
        done.extend(around.stored.keys().map(|v| (tenant, *v)));
        if around.is_too_large {
            // It stays as it is, and `reconcile` tells of it; what withdrew must go now.
            group.metrics.people_too_large.add(1);
            tracing::warn!(limit = limits::PERSON_VISITORS, "a person is too large to be linked at once");
            if linked.withdrawn.contains(&(tenant, visitor)) {
                separate(group, tenant, visitor, linked)?;
            }
            continue;
        }
        let found = decide(group, tenant, &around)?;
        keep_flags(group, tenant, &around, &found, touched)?;
        for planned in plan(&around, &found, |row| known(group, tenant, row))? {
            linked.rows.extend(&planned.from);
            let change = apply(group, tenant, planned)?;
            linked.rows.insert(change.person);
            linked.people.push(change);
        }
    }
    Ok(())
}

/// Everything that evidence connects with a visitor, breadth first, until that is too much.
///
/// Of visitors whose evidence changed, all of it is followed, so that both the old person and the new one
/// are found whole; of others, what links them. Where rows may be wrong nothing that was decided is believed: what links is
/// found from the evidence, and the old person from who points to its row.
fn gather(group: &Group<'_>, tenant: TenantNo, start: VisitorId, touched: &Touched) -> Result<Around, StoreError> {
    let (mut around, mut ids, mut rows) = (Around::default(), BTreeSet::new(), BTreeSet::new());
    let mut waiting = VecDeque::from([start]);
    while let Some(visitor) = waiting.pop_front() {
        if around.stored.contains_key(&visitor) {
            continue;
        }
        let stored = match stored(group, tenant, visitor)? {
            Some(stored) => stored,
            // Evidence of a visitor that is not there links nobody.
            None if touched.of_rows => continue,
            None => return Err(StoreError::Corrupt { what: "visitor" }),
        };
        around.stored.insert(visitor, stored);
        if around.stored.len() > limits::PERSON_VISITORS {
            around.is_too_large = true;
            return Ok(around);
        }
        if touched.of_rows && rows.insert(stored.person) {
            waiting.extend(pointing(group, tenant, stored.person)?);
        }
        let follow_all = !touched.of_rows && touched.visitors.contains(&(tenant, visitor));
        let all = evidence::of_visitor(group.tx, tenant, visitor)?;
        let links = linking(group, tenant, &all, touched)?;
        for row in all.into_iter().filter(|row| row.evidence.weight >= Weight::LOGIN) {
            let id = row.evidence.id;
            if (follow_all || links.contains(&id)) && ids.insert(id) {
                waiting.extend(holders(group, tenant, id, touched)?);
            }
            // Of two kinds of evidence of one id the one that counts longer is enough.
            let before = around.rows.entry((visitor, id)).or_insert(row);
            let counts = |row: &Row| (!row.claims(), row.evidence.since());
            if counts(&row) < counts(before) {
                *before = row;
            }
        }
    }
    Ok(around)
}

/// Visitors that point to a row, one more than are looked at.
fn pointing(group: &Group<'_>, tenant: TenantNo, person: PersonNo) -> Result<Vec<VisitorId>, StoreError> {
    // By the other index all visitors of a tenant would be read.
    const READ: &str =
        "SELECT visitor FROM visitors INDEXED BY visitors_by_person WHERE person = ?1 AND tenant = ?2 LIMIT ?3";
    let most = signed(limits::PERSON_VISITORS as u64 + 1);
    let mut statement = group.tx.prepare_cached(READ)?;
    let rows = statement.query_map((person.0, tenant.0, most), |row| visitor_at(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The ids by which a visitor of this evidence is linked: all that stand but, of unique ones, the first.
fn linking(
    group: &Group<'_>,
    tenant: TenantNo,
    rows: &[Row],
    touched: &Touched,
) -> Result<BTreeSet<AlternateId>, StoreError> {
    if !touched.of_rows {
        let links = rows.iter().filter(|row| row.evidence.stands() && row.flag != Some(Reason::SecondUnique));
        return Ok(links.map(|row| row.evidence.id).collect());
    }
    let config = &group.rules.tenants.by_no(tenant)?.config;
    let claims = || rows.iter().filter(|row| row.claims()).map(|row| row.evidence);
    let (unique, others): (Vec<Evidence>, Vec<Evidence>) = claims().partition(|e| config.is_unique(e.id.kind));
    let held = unique.into_iter().min_by_key(|e| (e.since(), e.id.hash));
    Ok(others.into_iter().chain(held).map(|e| e.id).collect())
}

/// The visitors that an id leads to.
fn holders(
    group: &Group<'_>,
    tenant: TenantNo,
    id: AlternateId,
    touched: &Touched,
) -> Result<Vec<VisitorId>, StoreError> {
    let mut seen = 0;
    let mut found = Vec::new();
    evidence::each_newest(group.tx, tenant, id, |row| {
        let visitor = row.evidence.visitor;
        let links = row.claims() && (touched.of_rows || row.flag != Some(Reason::SecondUnique));
        if links || touched.visitors.contains(&(tenant, visitor)) {
            found.push(visitor);
        }
        seen += 1;
        seen <= limits::PERSON_VISITORS
    })?;
    if !touched.of_rows || !group.rules.tenants.by_no(tenant)?.config.is_unique(id.kind) {
        return Ok(found);
    }
    // Of visitors that hold another one this is a second, and links none of them.
    let mut links = Vec::with_capacity(found.len());
    for visitor in found {
        let rows = evidence::of_visitor(group.tx, tenant, visitor)?;
        if linking(group, tenant, &rows, touched)?.contains(&id) {
            links.push(visitor);
        }
    }
    Ok(links)
}

fn stored(group: &Group<'_>, tenant: TenantNo, visitor: VisitorId) -> Result<Option<Stored>, StoreError> {
    const READ: &str = "SELECT person, last_seen FROM visitors WHERE tenant = ?1 AND visitor = ?2";
    let mut statement = group.tx.prepare_cached(READ)?;
    let found = statement.query_row((tenant.0, visitor.as_bytes()), |row| {
        Ok(Stored { person: PersonNo(row.get(0)?), last_seen: unsigned(row.get(1)?) })
    });
    Ok(found.optional()?)
}

fn decide(group: &Group<'_>, tenant: TenantNo, around: &Around) -> Result<People, StoreError> {
    let config = &group.rules.tenants.by_no(tenant)?.config;
    let evidence: Vec<Evidence> = around.rows.values().map(|row| row.evidence).collect();
    let mut found = people(&evidence, |kind: KindCode| config.is_unique(kind), Weight::LOGIN);
    let known: BTreeSet<VisitorId> = evidence.iter().map(|evidence| evidence.visitor).collect();
    let without = around.stored.keys().filter(|visitor| !known.contains(visitor));
    found.people.extend(without.map(|visitor| Person { master: *visitor, members: [*visitor].into() }));
    Ok(found)
}

fn keep_flags(
    group: &Group<'_>,
    tenant: TenantNo,
    around: &Around,
    found: &People,
    touched: &mut Touched,
) -> Result<(), StoreError> {
    let reasons: BTreeMap<(VisitorId, AlternateId), Reason> =
        found.flags.iter().map(|f| ((f.visitor, f.id), f.reason)).collect();
    for ((visitor, id), row) in &around.rows {
        let reason = reasons.get(&(*visitor, *id)).copied();
        if row.flag != reason {
            evidence::flag(group, tenant, *visitor, *id, reason)?;
            touched.ids.insert((tenant, *id));
        }
    }
    Ok(())
}

/// The people that differ from the store, each with the row it takes over: the one with its master first,
/// else any that its visitors point to and nobody took.
fn plan(
    around: &Around,
    found: &People,
    known: impl Fn(PersonNo) -> Result<Option<Known>, StoreError>,
) -> Result<Vec<Planned>, StoreError> {
    let mut old: BTreeMap<PersonNo, BTreeSet<VisitorId>> = BTreeMap::new();
    for (visitor, stored) in &around.stored {
        old.entry(stored.person).or_default().insert(*visitor);
    }
    let activity = |v: &VisitorId| (std::cmp::Reverse(around.stored.get(v).map(|s| s.last_seen)), *v);
    let mut by_activity: BTreeMap<PersonNo, Vec<VisitorId>> = BTreeMap::new();
    for (row, members) in &old {
        let mut members: Vec<VisitorId> = members.iter().copied().collect();
        members.sort_by_key(activity);
        by_activity.insert(*row, members);
    }
    let mut planned: Vec<Planned> = Vec::new();
    for person in &found.people {
        let from: BTreeSet<PersonNo> =
            person.members.iter().filter_map(|v| around.stored.get(v)).map(|s| s.person).collect();
        let right = Known { master: person.master, devices: person.members.len() as u64 };
        if let Some(row) = from.first()
            && old.get(row) == Some(&person.members)
            && known(*row)? == Some(right)
        {
            continue;
        }
        // Each row's last active are enough: no more are named.
        let of_row = |row| by_activity.get(row).into_iter().flatten().filter(|v| !person.members.contains(v));
        let mut left: Vec<VisitorId> = from.iter().flat_map(|row| of_row(row).take(limits::CUTS)).copied().collect();
        left.sort_by_key(activity);
        planned.push(Planned { person: person.clone(), from, row: None, heir_of: None, left });
    }
    let mut taken = BTreeSet::new();
    for with_master in [true, false] {
        for p in planned.iter_mut().filter(|p| p.row.is_none()) {
            for row in &p.from {
                let fits = known(*row)?.is_some_and(|known| !with_master || known.master == p.person.master);
                if fits && taken.insert(*row) {
                    p.row = Some(*row);
                    break;
                }
            }
        }
    }
    // Of the people that become one the earliest row's random bytes stay, also when an older visitor joins (S4.3); but
    // never those of a row that goes on as somebody else.
    for p in &mut planned {
        for row in &p.from {
            if p.row == Some(*row) || (known(*row)?.is_some() && taken.insert(*row)) {
                p.heir_of = Some(*row);
                break;
            }
        }
    }
    Ok(planned)
}

fn known(group: &Group<'_>, tenant: TenantNo, person: PersonNo) -> Result<Option<Known>, StoreError> {
    const READ: &str = "SELECT master, devices FROM people WHERE person = ?1 AND tenant = ?2";
    let mut statement = group.tx.prepare_cached(READ)?;
    let known = statement.query_row((person.0, tenant.0), |row| {
        Ok(Known { master: visitor_at(row, 0)?, devices: unsigned(row.get(1)?) })
    });
    Ok(known.optional()?)
}

/// Writes one person: its row, its visitors' pointers, its cuts; rows that nobody points to any more go.
fn apply(group: &mut Group<'_>, tenant: TenantNo, planned: Planned) -> Result<PersonChange, StoreError> {
    const POINT: &str = "UPDATE visitors SET person = ?3
        WHERE tenant = ?1 AND visitor = ?2 AND person <> ?3";
    let cuts = cuts(group, &planned)?;
    let person = write_row(group, tenant, &planned)?;
    for visitor in &planned.person.members {
        group.tx.prepare_cached(POINT)?.execute((tenant.0, visitor.as_bytes(), person.0))?;
    }
    write_cuts(group, person, &cuts)?;
    for row in planned.from.iter().filter(|row| **row != person) {
        remove_if_empty(group, *row)?;
    }
    Ok(PersonChange { person, cut: !planned.left.is_empty() })
}

fn write_row(group: &mut Group<'_>, tenant: TenantNo, planned: &Planned) -> Result<PersonNo, StoreError> {
    const INSERT: &str = "INSERT INTO people (tenant, master, devices, epoch, changed, random)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    const UPDATE: &str = "UPDATE people SET tenant = ?1, master = ?2, devices = ?3, epoch = ?4,
        changed = ?5, random = coalesce((SELECT random FROM people WHERE person = ?7), random) WHERE person = ?6";
    let (epoch, version) = (group.next_epoch(), group.next_version());
    let devices = signed(planned.person.members.len() as u64);
    let (epoch, version) = (signed(epoch.0), signed(version.counter));
    let master = planned.person.master.as_bytes();
    match planned.row {
        Some(row) => {
            let heir_of = planned.heir_of.unwrap_or(row);
            let values = (tenant.0, master, devices, epoch, version, row.0, heir_of.0);
            group.tx.prepare_cached(UPDATE)?.execute(values)?;
            Ok(row)
        }
        None => {
            let values = (tenant.0, master, devices, epoch, version, group.random.draw::<16>());
            group.tx.prepare_cached(INSERT)?.execute(values)?;
            Ok(PersonNo(group.tx.last_insert_rowid()))
        }
    }
}

/// The person's cuts from now on: those of the rows it comes from and who left now, without who is back.
fn cuts(group: &Group<'_>, planned: &Planned) -> Result<Vec<(VisitorId, Millis)>, StoreError> {
    let mut all: BTreeMap<VisitorId, Millis> = BTreeMap::new();
    for row in &planned.from {
        for (visitor, cut) in read::cuts(group.tx, *row)? {
            let known = all.entry(visitor).or_insert(cut.at);
            *known = cut.at.max(*known);
        }
    }
    all.extend(planned.left.iter().take(limits::CUTS).map(|v| (*v, group.now)));
    all.retain(|visitor, _| !planned.person.members.contains(visitor));
    let mut newest: Vec<(VisitorId, Millis)> = all.into_iter().collect();
    newest.sort_by_key(|(visitor, at)| (std::cmp::Reverse(*at), *visitor));
    newest.truncate(limits::CUTS);
    Ok(newest)
}

fn write_cuts(group: &Group<'_>, person: PersonNo, cuts: &[(VisitorId, Millis)]) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO cuts (person, visitor, at) VALUES (?1, ?2, ?3)";
    group.tx.prepare_cached("DELETE FROM cuts WHERE person = ?1")?.execute([person.0])?;
    for (visitor, at) in cuts {
        group.tx.prepare_cached(INSERT)?.execute((person.0, visitor.as_bytes(), signed(*at)))?;
    }
    Ok(())
}

pub(super) fn remove_if_empty(group: &Group<'_>, person: PersonNo) -> Result<(), StoreError> {
    const REMOVE: &str = "DELETE FROM people WHERE person = ?1
        AND NOT EXISTS (SELECT 1 FROM visitors WHERE person = ?1)";
    if group.tx.prepare_cached(REMOVE)?.execute([person.0])? == 1 {
        group.tx.prepare_cached("DELETE FROM cuts WHERE person = ?1")?.execute([person.0])?;
    }
    Ok(())
}

/// Takes a visitor out of a person that is too large to be recomputed.
fn separate(
    group: &mut Group<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    linked: &mut Linked,
) -> Result<(), StoreError> {
    const SHRINK: &str = "UPDATE people SET devices = devices - 1, epoch = ?2, changed = ?3,
        master = (SELECT min(visitor) FROM visitors WHERE person = ?1) WHERE person = ?1";
    let Some(stored) = stored(group, tenant, visitor)? else {
        return Ok(());
    };
    let alone = Person { master: visitor, members: BTreeSet::from([visitor]) };
    let planned = Planned { person: alone, from: BTreeSet::new(), row: None, heir_of: None, left: Vec::new() };
    let alone = apply(group, tenant, planned)?;
    linked.rows.extend([alone.person, stored.person]);
    linked.people.push(alone);
    let (epoch, version) = (group.next_epoch(), group.next_version());
    let values = (stored.person.0, signed(epoch.0), signed(version.counter));
    group.tx.prepare_cached(SHRINK)?.execute(values)?;
    let known = read::cuts(group.tx, stored.person)?;
    let mut cuts: Vec<(VisitorId, Millis)> = known.into_iter().map(|(visitor, cut)| (visitor, cut.at)).collect();
    cuts.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
    cuts.truncate(limits::CUTS - 1);
    cuts.push((visitor, group.now));
    write_cuts(group, stored.person, &cuts)?;
    linked.people.push(PersonChange { person: stored.person, cut: true });
    Ok(())
}
