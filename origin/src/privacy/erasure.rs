//! Erasure (invariant 12): finds the erased visitors and removes their data from the store. Links are recomputed as
//! after a withdrawal, so that the membership of every sibling cuts these visitors; then their rows are emptied.

use crate::identity::link::{VisitorSighting, canonical_id};
use crate::privacy::reach::{person_reach, seen_until};
use crate::store::tables::{self, cancellations, cuts, erased, erased_ids, erasures, visitors};
use causeway_shared::settings::config::ProofPolicy;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::profiles::profile::Profile;
use causeway_shared::wire::profile;

use crate::audience::{materialized, send};
use crate::base::integers::signed;
use crate::campaigns::{experiment, offers};
use crate::erasures::sweep::{self, PersonChange};
use crate::identity::changes::{LinkChanges, TouchedEvidence};
use crate::identity::evidence::{self, of_visitor};
use crate::identity::link::{held_unique, id_family};
use crate::identity::{alternates, people};
use crate::outbox::kv_key::KvKey;
use crate::profiles::fold::{self, RequestedErasureFact};
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo, find_visitor, journal, names};

/// The erasure that erases a visitor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErasureCause {
    pub(crate) at: Millis,
    pub(crate) receipt: FactId,
}

/// Visitors to be erased, each with its erasure.
pub(crate) type ErasedVisitors = BTreeMap<(TenantNo, VisitorId), ErasureCause>;

/// Carries out the erasures in `asked`, and erases visitors that earlier erasures reach through new observations.
pub(crate) fn apply_erasures(
    group: &mut WriteTxn<'_>,
    asked: &[RequestedErasureFact<'_>],
    sightings: Vec<VisitorSighting>,
    linked: &mut LinkChanges,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    // Links are up to date here: a browser of two members may belong to another one than before.
    let mut going = BTreeMap::new();
    for sighting in sightings {
        find_erased_before(group, &sighting, &mut going, linked)?;
    }
    if asked.is_empty() && going.is_empty() && linked.ended.is_empty() {
        return Ok(());
    }
    let mut erased = TouchedEvidence::default();
    carry_out(group, asked, going, linked, &mut erased)?;
    touched.ids.extend(erased.ids);
    touched.renamed.extend(erased.renamed);
    Ok(())
}

/// Carries out requested erasures, and those of visitors that earlier erasures reach.
fn carry_out(
    group: &mut WriteTxn<'_>,
    asked: &[RequestedErasureFact<'_>],
    mut going: ErasedVisitors,
    linked: &mut LinkChanges,
    touched: &mut TouchedEvidence,
) -> Result<(), StoreError> {
    let mut fresh = BTreeSet::new();
    for RequestedErasureFact { tenant, fact, log_seq, replayed } in asked {
        let by = ErasureCause { at: fact.received, receipt: fact.id };
        if note_erasure(group, *tenant, by, *log_seq)? {
            fresh.insert((*tenant, by.receipt));
        }
        let mut reached = reached_visitors(group, *tenant, fact, linked, touched)?;
        if *replayed && journal::is_end(fact) {
            // A restored store may lack the reason why the erasure spared some of them.
            reached.clear();
        }
        for visitor in reached {
            let earlier = match crate::erasures::registry::erased_by(group.tx, *tenant, visitor)? {
                Some(earlier) => earlier,
                None => going.entry((*tenant, visitor)).or_insert(by).receipt,
            };
            await_earlier(linked, *tenant, by.receipt, earlier);
        }
    }
    // One pass over the keys of each erasure, however many visitors it has.
    let mut keys: BTreeMap<(TenantNo, FactId), BTreeSet<KvKey>> = BTreeMap::new();
    for ((tenant, visitor), by) in &going {
        let keys = keys.entry((*tenant, by.receipt)).or_default();
        leave_person(group, *tenant, *visitor, *by, linked, touched, keys)?;
    }
    // A visitor with weaker evidence for an id than a login stays, without that evidence; a later visitor with the id
    // is a new one.
    for (tenant, id, until) in std::mem::take(&mut linked.ended) {
        // The id may have been united with another one.
        let id = crate::identity::canonical::canonical_id(group.tx, tenant, id)?.unwrap_or(id);
        evidence::end_until(group, tenant, id, until, touched)?;
    }
    people::recompute(group, touched, linked)?;
    for ((tenant, visitor), by) in &going {
        empty_visitor(group, *tenant, *visitor, *by)?;
        let name = group.rules.tenants.by_no(*tenant)?.id.to_string();
        linked.erased.push((name, journal::visitor_fact(by.receipt, *visitor, by.at)));
        // Their snapshots name the visitor as another person's, and may not be written yet.
        for former in crate::identity::link::former_people(group, *tenant, *visitor)? {
            republish_person(group, *tenant, by.receipt, former.person, linked)?;
        }
    }
    for ((tenant, receipt), keys) in &keys {
        schedule_keys(group, *tenant, *receipt, keys)?;
    }
    // In the order in which they were found, so that each erasure inherits everything that the previous one waits for.
    // A finished erasure stays finished.
    let behind = std::mem::take(&mut linked.behind).into_iter();
    for (tenant, receipt, earlier) in behind.filter(|(tenant, receipt, _)| fresh.contains(&(*tenant, *receipt))) {
        crate::erasures::registry::wait_for(group, tenant, receipt, earlier)?;
    }
    Ok(())
}

/// Finds the visitors that an earlier erasure of the id reaches because of a new observation: the observed visitor, if
/// its observation is older than the erasure and arrived late; and visitors seen with a hash that is only now known to
/// belong to the id.
fn find_erased_before(
    group: &WriteTxn<'_>,
    VisitorSighting { seen, hashes: also, received }: &VisitorSighting,
    going: &mut ErasedVisitors,
    linked: &mut LinkChanges,
) -> Result<(), StoreError> {
    let received = *received;
    let evidence::EvidenceSighting { tenant, visitor, id, by } = *seen;
    let proven = by == evidence::SightingSource::Page { proven: true };
    let hashes = || also.iter().copied().chain([id.hash]);
    let Some((at, receipt)) = crate::erasures::registry::id_erased(group.tx, tenant, id.kind, hashes())? else {
        return Ok(());
    };
    let by = ErasureCause { at, receipt };
    let id = canonical_id(group.tx, tenant, id)?.unwrap_or(id);
    for hash in hashes() {
        if crate::erasures::registry::id_erased(group.tx, tenant, id.kind, [hash])? != Some((at, receipt)) {
            for holder in end_id(group, tenant, id, hashes(), by, linked)? {
                going.entry((tenant, holder)).or_insert(by);
            }
            break;
        }
    }
    let unique = group.rules.tenants.by_no(tenant)?.config.is_unique(id.kind);
    let cancelled = evidence::last_cancellation(group.tx, tenant, visitor, id)?;
    // A browser that belongs to another member by now only saw the proof.
    let config = &group.rules.tenants.by_no(tenant)?.config;
    let trusted = config.member_proof == ProofPolicy::Trusted;
    let held = held_unique(group.tx, tenant, visitor, |kind| config.is_unique(kind))?;
    if received <= at {
        linked.ended.insert((tenant, id, at));
    }
    if unique && held.is_some_and(|held| held != id) {
        return Ok(());
    }
    if received <= at && (proven || !unique || trusted) && cancelled.is_none_or(|cancelled| received > cancelled) {
        going.entry((tenant, visitor)).or_insert(by);
    }
    Ok(())
}

fn await_earlier(linked: &mut LinkChanges, tenant: TenantNo, receipt: FactId, earlier: FactId) {
    let pair = (tenant, receipt, earlier);
    if receipt != earlier && !linked.behind.contains(&pair) {
        linked.behind.push(pair);
    }
}

/// Records an erasure and returns whether it is new. A known erasure in a later record waits for that record to leave
/// the log too.
fn note_erasure(group: &WriteTxn<'_>, tenant: TenantNo, by: ErasureCause, log_seq: u64) -> Result<bool, StoreError> {
    let is_new = !crate::erasures::registry::is_known(group.tx, tenant, by.receipt)?;
    let values = (tenant.0, by.receipt.as_bytes(), signed(by.at), signed(group.now), signed(log_seq));
    group.tx.prepare_cached(erasures::ERASURES_UPSERT)?.execute(values)?;
    Ok(is_new)
}

/// The visitors that an erasure names. Records the ids that end with it.
fn reached_visitors(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    fact: &Fact,
    linked: &mut LinkChanges,
    touched: &mut TouchedEvidence,
) -> Result<BTreeSet<VisitorId>, StoreError> {
    let FactKind::Erasure { scope, id, also } = &fact.what else { return Ok(BTreeSet::new()) };
    let by = ErasureCause { at: fact.received, receipt: fact.id };
    let known = group.rules.tenants.by_no(tenant)?;
    let (mut found, mut named) = (BTreeSet::new(), None);
    if fact.visitor != VisitorId::ANONYMOUS {
        found.insert(fact.visitor);
    }
    if let Some(id) = id {
        let canonical = alternates::resolve_ids(group, tenant, *id, also, touched)?;
        named = Some(canonical);
        found.extend(end_id(group, tenant, canonical, also.iter().copied().chain([id.hash]), by, linked)?);
    }
    if *scope == ErasureScope::Visitor {
        return Ok(found);
    }
    let (members, held) = person_reach(group.tx, known, &found, named, by.at)?;
    found.extend(members);
    // A late login of the person is erased too. Ids that are not unique may also belong to other people.
    for id in held {
        found.extend(end_id(group, tenant, id, [id.hash], by, linked)?);
    }
    Ok(found)
}

/// Ends an id's history under all of its hashes, and returns the visitors seen with it until then.
pub(crate) fn end_id(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    id: AlternateId,
    hashes: impl IntoIterator<Item = AltHash>,
    by: ErasureCause,
    linked: &mut LinkChanges,
) -> Result<Vec<VisitorId>, StoreError> {
    let known = group.rules.tenants.by_no(tenant)?;
    let all: BTreeSet<AltHash> = id_family(group.tx, tenant, id)?.into_iter().chain(hashes).collect();
    let earlier = crate::erasures::registry::id_erased(group.tx, tenant, id.kind, all.iter().copied())?;
    if let Some((_, earlier)) = earlier {
        await_earlier(linked, tenant, by.receipt, earlier);
    }
    linked.ended.insert((tenant, id, by.at));
    for hash in all {
        let values = (tenant.0, id.kind.0, &hash.0, signed(by.at), by.receipt.as_bytes());
        group.tx.prepare_cached(erased_ids::ERASED_IDS_UPSERT_NEWER)?.execute(values)?;
        linked.erased.push((known.id.to_string(), journal::id_fact(by.receipt, AlternateId { hash, ..id }, by.at)));
    }
    seen_until(group.tx, known, id, by.at)
}

/// Removes a visitor from everything that links it, and collects the KV keys that may name it. The keys of its person
/// are found when the change is announced.
fn leave_person(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    by: ErasureCause,
    linked: &mut LinkChanges,
    touched: &mut TouchedEvidence,
    keys: &mut BTreeSet<KvKey>,
) -> Result<(), StoreError> {
    if find_visitor(group.tx, tenant, visitor)?.is_none() {
        fold::insert(group, tenant, visitor, &[])?;
    }
    if let Some((person, ..)) = crate::identity::directory::visitor_position(group.tx, tenant, visitor)? {
        republish_person(group, tenant, by.receipt, person, linked)?;
    }
    keys.insert(KvKey::Snapshot(visitor));
    for row in of_visitor(group.tx, tenant, visitor)?.iter().filter(|row| row.evidence.id.kind != KindCode::PAIR) {
        let id = row.evidence.id;
        // Includes hashes under retired keys, because their KV values may still exist.
        keys.extend(id_family(group.tx, tenant, id)?.into_iter().map(|hash| KvKey::Lookup(id.kind, hash)));
    }
    group.tx.prepare_cached(visitors::VISITORS_WITHDRAW_ERASED)?.execute((
        tenant.0,
        visitor.as_bytes(),
        signed(by.at),
    ))?;
    evidence::end_evidence(group, tenant, visitor, touched)?;
    linked.withdrawn.insert((tenant, visitor));
    Ok(())
}

/// Deletes all data of a visitor except its tombstone.
fn empty_visitor(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
    by: ErasureCause,
) -> Result<(), StoreError> {
    let Some(row) = find_visitor(group.tx, tenant, visitor)? else { return Ok(()) };
    let version = group.next_version();
    let nothing = profile::encode_profile(visitor, &Profile::default());
    group.tx.prepare_cached(visitors::VISITORS_EMPTY)?.execute((
        row,
        nothing,
        signed(version.counter),
        version.restore,
    ))?;
    crate::profiles::quarantine::forget_visitor(group.tx, row)?;
    crate::profiles::buckets::drop_all(group.tx, row)?;
    crate::profiles::purchases::drop_all(group.tx, row)?;
    experiment::drop_all(group.tx, row)?;
    offers::drop_all(group.tx, row)?;
    crate::profiles::dedup::FactIdRows::drop_all(group.tx, row)?;
    let by_id = [
        (tables::evidence::EVIDENCE_DELETE_PAIRS_OF_VISITOR, tables::evidence::EVIDENCE_DELETE_OF_VISITOR),
        (cancellations::CANCELLATIONS_DELETE_PAIRS_OF_VISITOR, cancellations::CANCELLATIONS_DELETE_OF_VISITOR),
    ];
    for (pairs, own) in by_id {
        group.tx.prepare_cached(pairs)?.execute((tenant.0, visitor.as_bytes(), KindCode::PAIR.0))?;
        group.tx.prepare_cached(own)?.execute((tenant.0, visitor.as_bytes()))?;
    }
    materialized::forget_visitor(group.tx, tenant, visitor)?;
    names::forget_visitor(group.tx, tenant, visitor)?;
    send::forget_visitor(group.tx, tenant, visitor)?;
    group.tx.prepare_cached(cuts::CUTS_DELETE_OF_VISITORS_PERSON)?.execute([row])?;
    let values = (tenant.0, visitor.as_bytes(), signed(by.at), by.receipt.as_bytes());
    group.tx.prepare_cached(erased::ERASED_INSERT)?.execute(values)?;
    Ok(())
}

/// Schedules all snapshots of a person, because any of them may name the erased visitor. It is announced as a cut, once
/// per person.
fn republish_person(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    receipt: FactId,
    person: PersonNo,
    linked: &mut LinkChanges,
) -> Result<(), StoreError> {
    if sweep::await_person(group, tenant, receipt, person)? {
        linked.people.push(PersonChange { person, cut: true });
    }
    Ok(())
}

/// Puts the keys of erased visitors in the outbox, and adds them to the erasure.
fn schedule_keys(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    receipt: FactId,
    keys: &BTreeSet<KvKey>,
) -> Result<(), StoreError> {
    // A version above the one that is being written now.
    group.next_version();
    for key in keys {
        crate::outbox::queue::put_leaving(group, tenant, *key)?;
        crate::erasures::registry::note_key(group, tenant, receipt, *key)?;
    }
    Ok(())
}
