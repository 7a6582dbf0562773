//! Fold: adds new facts to the profile of the visitor that owns them, and to no other.
//!
//! Facts are grouped by visitor, so that its rows are read and written once. The core of a profile is one row; actions
//! are in [`buckets`], FactIds in [`FactIdRows`]. Parts without a new fact are not rewritten.

#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AlternateId, KindCode, Millis, VisitorId};
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::profiles::profile::{Profile, ProfileParts};
use causeway_shared::wire::profile;
use rusqlite::OptionalExtension as _;

use crate::base::integers::{signed, unsigned};
use crate::erasures::registry;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::profiles::dedup::FactIdRows;
use crate::profiles::parts::{stored_events, write_attributes, write_segments};
use crate::profiles::placed::{PlacedFact, hour_of_newest};
use crate::profiles::{buckets, purchases, quarantine};
use crate::store::tables::{people, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{CheckedBytes, PersonNo, StoreError, TenantNo, VisitorRow};

/// A visitor whose profile changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedVisitor {
    /// The tenant of the visitor.
    pub tenant: TenantNo,
    /// The visitor.
    pub visitor: VisitorId,
    /// Its person before this transaction links anything.
    pub person: PersonNo,
    /// Number of visitors of that person.
    pub devices: u32,
    /// Whether the visitor had withdrawn before; late facts are then stored and shown to no reader.
    pub withdrawn: bool,
}

/// New facts of one visitor that concern its identity, in order of arrival.
#[derive(Debug, Clone)]
pub struct IdentityFacts<'r> {
    /// The tenant of the visitor.
    pub tenant: TenantNo,
    /// The visitor.
    pub visitor: VisitorId,
    /// Its aliases, evidence, cancellations and withdrawals.
    pub facts: Vec<&'r Fact>,
}

/// The result of folding the records of one transaction.
#[derive(Debug, Default)]
pub struct FoldResult<'r> {
    /// The visitors with new facts, in order.
    pub changed: Vec<ChangedVisitor>,
    /// The visitors with new facts about their identity.
    pub linking: Vec<IdentityFacts<'r>>,
    /// The requested erasures.
    pub erasing: Vec<RequestedErasureFact<'r>>,
    /// Number of new facts of each record.
    pub new: Vec<u64>,
    /// The new facts of each changed visitor, for counts and payments of campaigns.
    pub visitors: Vec<FoldedVisitor<'r>>,
    /// Facts of erased visitors; only their offer codes stay assigned.
    pub of_erased: Vec<(TenantNo, &'r Fact)>,
    /// Facts without a visitor, each with the index of its record.
    pub anonymous: Vec<(usize, TenantNo, &'r Fact)>,
    /// Number of facts of erased visitors; they are not stored.
    pub erased: u64,
    /// Number of facts that wait, because their visitor or their tenant's catalogue cannot be read.
    pub quarantined: u64,
}

/// The new facts of one visitor.
#[derive(Debug)]
pub struct FoldedVisitor<'r> {
    /// The tenant of the visitor.
    pub tenant: TenantNo,
    /// The visitor's row.
    pub row: VisitorRow,
    /// The visitor's new facts.
    pub(crate) facts: Vec<PlacedFact<'r>>,
}

/// A requested erasure, and the newest log record that may hold data that it erases.
#[derive(Debug, Clone, Copy)]
pub struct RequestedErasureFact<'r> {
    /// The tenant of the erasure.
    pub tenant: TenantNo,
    /// The erasure as a fact.
    pub fact: &'r Fact,
    /// Newest record of the transaction, or the record's own bound; 0 if the log holds nothing of it.
    pub log_seq: u64,
    /// Whether the erasure is replayed from the journal.
    pub replayed: bool,
}

/// The columns of a visitor's row that the fold needs.
struct StoredVisitorRow {
    row: VisitorRow,
    profile: Vec<u8>,
    last_seen: Millis,
    actions: u32,
    /// The stored column, which is read only if new events arrived.
    events: Vec<u8>,
    changed: ChangedVisitor,
}

/// Folds new facts. A new visitor becomes a person of one. Facts of `held` tenants wait.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub fn fold<'r>(
    group: &mut WriteTxn<'_>,
    records: &'r [impl AsRef<LogRecord>],
    held: &BTreeSet<TenantNo>,
) -> Result<FoldResult<'r>, StoreError> {
    let mut folded = FoldResult { new: vec![0; records.len()], ..FoldResult::default() };
    bring_names(group, records)?;
    find_erasures(group, records, &mut folded)?;
    find_anonymous(group, records, held, &mut folded)?;
    let (unreadable, mut with_erased) = (quarantine::quarantined_rows(group.tx)?, BTreeSet::new());
    for (tenant, visitor, facts) in by_visitor(records) {
        let stored = load(group, tenant, visitor)?;
        let row = match &stored {
            None if held.contains(&tenant) => Some(insert(group, tenant, visitor, &[])?.0),
            stored => stored.as_ref().map(|stored| stored.row),
        };
        let waits = match &stored {
            Some(stored) if unreadable.contains(&stored.row) => true,
            // Facts of an erased visitor are dropped, even if its tenant's catalogue cannot be read.
            Some(StoredVisitorRow { changed, .. })
                if changed.withdrawn && registry::is_erased(group.tx, tenant, visitor)? =>
            {
                false
            }
            _ => held.contains(&tenant),
        };
        if let Some(row) = row.filter(|_| waits) {
            // A withdrawal does not wait.
            let leaves: Vec<_> =
                facts.iter().map(|of| of.fact).filter(|fact| fact.what == FactKind::Withdrawal).collect();
            folded.linking.extend((!leaves.is_empty()).then_some(IdentityFacts { tenant, visitor, facts: leaves }));
            folded.quarantined += quarantine::quarantine_facts(group.tx, row, facts, records, group.now)?;
            continue;
        }
        let done = fold_visitor(group, &mut folded, (tenant, visitor), stored, facts, &mut with_erased);
        done.map_err(|e| if let Some(row) = row { e.of_visitor(row) } else { e })?;
    }
    // The id of a pair identifies both of its visitors. If one of them is erased, the other's half, which arrives with
    // it, is dropped too.
    for IdentityFacts { tenant, facts, .. } in &mut folded.linking {
        facts.retain(|fact| pair(fact).is_none_or(|id| !with_erased.contains(&(*tenant, id))));
    }
    Ok(folded)
}

/// Folds one visitor's facts.
fn fold_visitor<'r>(
    group: &mut WriteTxn<'_>,
    folded: &mut FoldResult<'r>,
    (tenant, visitor): (TenantNo, VisitorId),
    stored: Option<StoredVisitorRow>,
    mut facts: Vec<PlacedFact<'r>>,
    with_erased: &mut BTreeSet<(TenantNo, AlternateId)>,
) -> Result<(), StoreError> {
    let seen = match &stored {
        Some(stored) => FactIdRows::load(group.tx, stored.row)?,
        None => FactIdRows::default(),
    };
    let withdrawn = stored.as_ref().is_some_and(|stored| stored.changed.withdrawn);
    let erased = withdrawn && !planted::is_active(PlantedBug::ErasedComesBack);
    if erased && crate::erasures::registry::is_erased(group.tx, tenant, visitor)? {
        folded.erased += facts.len() as u64;
        let all = || facts.iter().map(|placed| placed.fact);
        // Offer codes stay assigned, as they do after a later erasure.
        folded.of_erased.extend(all().map(|fact| (tenant, fact)));
        with_erased.extend(all().filter_map(pair).map(|id| (tenant, id)));
        return Ok(());
    }
    seen.retain_new(group.tx, &mut facts, |placed| placed.fact)?;
    if facts.is_empty() {
        return Ok(());
    }
    for placed in &facts {
        folded.new.iter_mut().skip(placed.record).take(1).for_each(|new| *new += 1);
    }
    let (row, changed) = match stored {
        Some(stored) => update(group, stored, &facts)?,
        None => insert(group, tenant, visitor, &facts)?,
    };
    let dated = facts.iter().map(PlacedFact::dated).max().unwrap_or(0).min(group.now);
    if seen.is_stale(dated) {
        FactIdRows::forget(group.tx, row, dated)?;
    }
    seen.keep(group.tx, row, facts.iter().map(|placed| placed.fact))?;
    folded.changed.push(changed);
    let links = |fact: &&Fact| {
        matches!(
            fact.what,
            FactKind::Alias { .. } | FactKind::Withdrawal | FactKind::Cancellation { .. } | FactKind::Evidence { .. }
        )
    };
    let linking: Vec<&Fact> = facts.iter().map(|placed| placed.fact).filter(links).collect();
    if !linking.is_empty() {
        folded.linking.push(IdentityFacts { tenant, visitor, facts: linking });
    }
    folded.visitors.push(FoldedVisitor { tenant, row, facts });
    Ok(())
}

/// The id of the pair that a fact is evidence for or against.
fn pair(fact: &Fact) -> Option<AlternateId> {
    match fact.what {
        FactKind::Evidence { id, .. } | FactKind::Cancellation { id } if id.kind == KindCode::PAIR => Some(id),
        _ => None,
    }
}

/// Collects erasures, which belong to no profile.
fn find_erasures<'r>(
    group: &WriteTxn<'_>,
    records: &'r [impl AsRef<LogRecord>],
    folded: &mut FoldResult<'r>,
) -> Result<(), StoreError> {
    let log_seq = records.iter().map(|record| record.as_ref().seq.max(record.as_ref().in_log)).max().unwrap_or(0);
    let mut seen = BTreeSet::new();
    for (record, new) in records.iter().zip(&mut folded.new) {
        let replayed = record.as_ref().attribution.as_ref().is_some_and(|said| said.by == crate::store::journal::BY);
        for CheckedFact { tenant, fact } in &record.as_ref().facts {
            if matches!(fact.what, FactKind::Erasure { .. }) {
                let known = crate::erasures::registry::erasure_progress(group.tx, *tenant, fact.id)?.is_some();
                *new += u64::from(!known && seen.insert((*tenant, fact.id)));
                folded.erasing.push(RequestedErasureFact { tenant: *tenant, fact, log_seq, replayed });
            }
        }
    }
    Ok(())
}

/// Collects facts without a visitor, which belong to no profile.
fn find_anonymous<'r>(
    group: &WriteTxn<'_>,
    records: &'r [impl AsRef<LogRecord>],
    held: &BTreeSet<TenantNo>,
    folded: &mut FoldResult<'r>,
) -> Result<(), StoreError> {
    for (record, of) in records.iter().enumerate() {
        let LogRecord { facts, admin, .. } = of.as_ref();
        for CheckedFact { tenant, fact } in
            facts.iter().filter(|checked| crate::ingest::intake::is_anonymous(&checked.fact))
        {
            if held.contains(tenant) {
                let placed = vec![PlacedFact { record, fact, admin: *admin }];
                folded.quarantined += quarantine::quarantine_facts(
                    group.tx,
                    quarantine::anonymous_row(*tenant),
                    placed,
                    records,
                    group.now,
                )?;
            } else {
                folded.anonymous.push((record, *tenant, fact));
            }
        }
    }
    Ok(())
}

/// Adds names of attributes and events in the order of the log, before its facts are sorted by visitor. A repeated fact
/// can only bring back a name that was removed since; a fact of an erased visitor adds none.
fn bring_names(group: &mut WriteTxn<'_>, records: &[impl AsRef<LogRecord>]) -> Result<(), StoreError> {
    let mut erased: BTreeMap<(TenantNo, VisitorId), bool> = BTreeMap::new();
    for record in records {
        let LogRecord { facts, admin, .. } = record.as_ref();
        for CheckedFact { tenant, fact } in facts {
            if !matches!(fact.what, FactKind::Attributes { .. } | FactKind::Track { .. }) {
                continue;
            }
            let is_erased = match erased.entry((*tenant, fact.visitor)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => *new.insert(registry::is_erased(group.tx, *tenant, fact.visitor)?),
            };
            if is_erased {
                continue;
            }
            if matches!(fact.what, FactKind::Attributes { .. }) {
                let policy = group.rules.tenants.by_no(*tenant)?.config.attribute_names;
                group.names.bring(group.tx, *tenant, fact, (!*admin).then_some(policy), group.now)?;
            }
            group.event_names.bring(group.tx, *tenant, fact, *admin, group.now)?;
        }
    }
    Ok(())
}

/// The records' facts by visitor, each visitor's facts in order of arrival.
fn by_visitor<'r>(records: &'r [impl AsRef<LogRecord>]) -> Vec<(TenantNo, VisitorId, Vec<PlacedFact<'r>>)> {
    let facts = records.iter().enumerate().flat_map(|(record, of)| {
        let placed = move |checked: &'r CheckedFact| {
            let CheckedFact { tenant, fact } = checked;
            ((*tenant, fact.visitor), PlacedFact { record, fact, admin: of.as_ref().admin })
        };
        let facts = of.as_ref().facts.iter();
        let has_visitor =
            |fact: &Fact| !matches!(fact.what, FactKind::Erasure { .. }) && !crate::ingest::intake::is_anonymous(fact);
        facts.filter(move |checked| has_visitor(&checked.fact)).map(placed)
    });
    let mut facts: Vec<_> = facts.collect();
    facts.sort_by_key(|(owner, _)| *owner);
    let of_one = facts.chunk_by(|(a, _), (b, _)| a == b);
    of_one
        .filter_map(|chunk| {
            let ((tenant, visitor), _) = chunk.first()?;
            Some((*tenant, *visitor, chunk.iter().map(|(_, placed)| *placed).collect()))
        })
        .collect()
}

fn load(group: &WriteTxn<'_>, tenant: TenantNo, visitor: VisitorId) -> Result<Option<StoredVisitorRow>, StoreError> {
    let mut statement = group.tx.prepare_cached(visitors::VISITORS_FOLDED_STATE)?;
    let found = statement
        .query_row((tenant.0, visitor.as_bytes()), |row| {
            let (withdrawn, person, devices) = (row.get(4)?, PersonNo(row.get(5)?), row.get(6)?);
            let changed = ChangedVisitor { tenant, visitor, person, devices, withdrawn };
            let (last_seen, events) = (unsigned(row.get(2)?), row.get(7)?);
            Ok(StoredVisitorRow {
                row: row.get(0)?,
                profile: row.get(1)?,
                last_seen,
                actions: row.get(3)?,
                events,
                changed,
            })
        })
        .optional()?;
    Ok(found)
}

fn update(
    group: &mut WriteTxn<'_>,
    stored: StoredVisitorRow,
    facts: &[PlacedFact<'_>],
) -> Result<(VisitorRow, ChangedVisitor), StoreError> {
    let StoredVisitorRow { row, profile, last_seen, actions, mut events, changed } = stored;
    let mut core = profile::decode_profile(changed.visitor, &profile)?;
    let newest = add(group, changed.tenant, &mut core, facts)?;
    let parts = core.take_parts();
    if !parts.events.is_empty() {
        let stored = stored_events(CheckedBytes::open(&events)?, last_seen)?;
        events = CheckedBytes::seal(&stored.plus(parts.events.clone()).pack());
    }
    let actions = keep_parts(group, row, actions, parts)?;
    purchases::add(group.tx, row, facts.iter().map(|placed| placed.fact))?;
    let version = group.next_version();
    let core = profile::encode_profile(changed.visitor, &core);
    group.tx.prepare_cached(visitors::VISITORS_SET_FOLDED)?.execute((
        row,
        core,
        signed(version.counter),
        version.restore,
        actions,
        events,
    ))?;
    if newest > last_seen {
        group.tx.prepare_cached(visitors::VISITORS_SET_LAST_SEEN)?.execute((row, signed(newest)))?;
    }
    Ok((row, changed))
}

/// Creates a row for a new visitor, and a person for it alone.
pub(crate) fn insert(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    facts: &[PlacedFact<'_>],
) -> Result<(VisitorRow, ChangedVisitor), StoreError> {
    let mut core = Profile::default();
    add(group, tenant, &mut core, facts)?;
    // Without other knowledge, the newest receipt is the last activity.
    let last_seen = hour_of_newest(facts.iter());
    let ProfileParts { actions, segments, attributes, exposures, offer_codes, events } = core.take_parts();
    let (version, epoch) = (group.next_version(), group.next_epoch());
    group.tx.prepare_cached(people::PEOPLE_INSERT_OF_ONE)?.execute((
        tenant.0,
        visitor.as_bytes(),
        signed(epoch.0),
        signed(version.counter),
        group.random.draw::<16>(),
    ))?;
    let person = PersonNo(group.tx.last_insert_rowid());
    group.tx.prepare_cached(visitors::VISITORS_INSERT)?.execute((
        tenant.0,
        visitor.as_bytes(),
        signed(last_seen),
        signed(version.counter),
        version.restore,
        person.0,
        profile::encode_profile(visitor, &core),
        u32::try_from(actions.len()).unwrap_or(u32::MAX),
        CheckedBytes(if segments.is_empty() { Vec::new() } else { segments.pack() }),
        CheckedBytes(attributes.pack()),
        CheckedBytes(events.pack()),
    ))?;
    let row = VisitorRow::from_number(group.tx.last_insert_rowid());
    buckets::add(group.tx, row, 0, actions)?;
    purchases::add(group.tx, row, facts.iter().map(|placed| placed.fact))?;
    if !exposures.is_empty() {
        crate::profiles::exposures::record_exposures(group.tx, row, exposures)?;
    }
    if !offer_codes.is_empty() {
        crate::profiles::offer_codes::keep_codes(group.tx, row, &offer_codes)?;
    }
    Ok((row, ChangedVisitor { tenant, visitor, person, devices: 1, withdrawn: false }))
}

/// Stores all new parts except events, and returns the visitor's number of actions.
fn keep_parts(group: &WriteTxn<'_>, row: VisitorRow, had: u32, parts: ProfileParts) -> Result<u32, StoreError> {
    let ProfileParts { actions, segments, attributes, exposures, offer_codes, events: _ } = parts;
    if !segments.is_empty() {
        write_segments(group.tx, row, segments)?;
    }
    if !attributes.is_empty() {
        write_attributes(group.tx, row, attributes)?;
    }
    if !exposures.is_empty() {
        crate::profiles::exposures::record_exposures(group.tx, row, exposures)?;
    }
    if !offer_codes.is_empty() {
        crate::profiles::offer_codes::keep_codes(group.tx, row, &offer_codes)?;
    }
    if actions.is_empty() { Ok(had) } else { buckets::add(group.tx, row, had, actions) }
}

/// Adds the facts and returns the hour of the newest receipt among them. A finer time would move the visitor in its
/// person's index at every page view.
fn add(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    profile: &mut Profile,
    facts: &[PlacedFact<'_>],
) -> Result<Millis, StoreError> {
    for placed in facts {
        let allowed = without_materialised(group, tenant, placed);
        let fact = allowed.as_ref().unwrap_or(placed.fact);
        let writes = if matches!(fact.what, FactKind::Attributes { .. }) {
            group.names.tokens(tenant, fact)
        } else {
            Vec::new()
        };
        if placed.is_report() {
            profile.apply_without_activity(|profile| profile.assign(fact, writes));
        } else {
            profile.assign(fact, writes);
        }
    }
    Ok(hour_of_newest(facts.iter().filter(|placed| !placed.is_report())))
}

/// A page's fact without its writes to segments of materialised audiences; `None` if it has no such write. The edge
/// refuses these writes as far as it knows the segments.
fn without_materialised(group: &WriteTxn<'_>, tenant: TenantNo, placed: &PlacedFact<'_>) -> Option<Fact> {
    let FactKind::Segments { writes } = &placed.fact.what else { return None };
    let materialised = group.materialised_of(tenant);
    if placed.admin || !writes.iter().any(|(segment, _)| materialised.contains(segment)) {
        return None;
    }
    let writes = writes.iter().filter(|(segment, _)| !materialised.contains(segment)).cloned().collect();
    Some(Fact { what: FactKind::Segments { writes }, ..placed.fact.clone() })
}
