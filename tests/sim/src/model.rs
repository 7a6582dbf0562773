//! The plain model: a list of all facts, whose sums are computed from the beginning each time, without the product's
//! joins. It defines the state to which the world must converge.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AlternateId, FactId, KindCode, Micros, Millis, TenantId, VisitorId};
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::facts::segments::SegmentState;

use crate::setup::THRESHOLD;

/// The unique kind: a visitor has at most one id of it.
pub const MEMBER: KindCode = KindCode(1);

/// A visitor of a tenant.
pub type Owner = (TenantId, VisitorId);

/// A fact with its known delivery state.
#[derive(Debug, Clone)]
pub struct RecordedFact {
    /// The fact.
    pub fact: Fact,
    /// Whether the queue or the origin stored it durably.
    pub acknowledged: bool,
    /// Whether the origin stored it durably.
    pub at_origin: bool,
    /// Whether the origin had it when the backup was made.
    pub in_backup: bool,
    /// Whether a retry sent it with another session; either one may have arrived first.
    pub retold: bool,
    /// Time of the last receipt, which differs from that of `fact` after a retry; any receipt may have arrived first.
    pub last: Millis,
    /// Earliest and latest time of the event over all copies that were sent.
    pub at: [Millis; 2],
    /// Number of facts sent before it; the facts of one call are numbered in the order of the call.
    pub place: u64,
}

impl RecordedFact {
    /// Whether all copies have the same receipt and the same time.
    fn is_dated(&self) -> bool {
        self.last == self.fact.received && self.at == [self.fact.at; 2]
    }
}

/// All facts that any edge ever sent.
#[derive(Debug, Default)]
pub struct Model {
    /// Erased visitors, read from the store after the world has converged.
    pub erased: BTreeSet<Owner>,
    /// For each erased id, the time up to which its evidence is erased; read from the store after the world has
    /// converged.
    pub ended: BTreeMap<(TenantId, AlternateId), Millis>,
    /// Visitors with a login that neither the queue nor the origin stored; the edge that saw the proof knows more than
    /// the model.
    pub lost_logins: BTreeSet<Owner>,
    facts: BTreeMap<(TenantId, VisitorId, FactId), RecordedFact>,
    /// Number of facts sent so far, copies included.
    sent: u64,
}

/// The sums of one visitor's facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// Page views.
    pub pages: u64,
    /// Sessions.
    pub sessions: u64,
    /// Purchases.
    pub purchases: u64,
    /// Value of the purchases in micros.
    pub revenue: Micros,
    /// Actions: insertion, action type, view type and UTC day.
    pub actions: BTreeSet<([u8; 16], u8, u8, u64)>,
    /// State of each segment after its last write; `None` if either of two writes may be the last.
    pub segments: BTreeMap<u32, Option<SegmentState>>,
    /// Events by name: their number, and the earliest and latest time of the last one.
    pub events: BTreeMap<String, (u64, [Millis; 2])>,
}

/// A person of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Person {
    /// All visitors of the person.
    pub members: BTreeSet<VisitorId>,
    /// The member id of the person.
    pub unique: Option<AlternateId>,
}

/// A tie of one visitor to one id, with the time at which it began.
#[derive(Debug, Clone, Copy)]
struct Tie {
    visitor: VisitorId,
    id: AlternateId,
    first: Millis,
    weight: EvidenceWeight,
}

impl Model {
    /// Records a fact that an edge tried to send.
    pub fn tell(&mut self, tenant: &TenantId, fact: &Fact, acknowledged: bool) -> &mut RecordedFact {
        let place = self.sent;
        self.sent += 1;
        let record = self.facts.entry((tenant.clone(), fact.visitor, fact.id)).or_insert_with(|| RecordedFact {
            fact: fact.clone(),
            acknowledged,
            at_origin: false,
            in_backup: false,
            retold: false,
            last: fact.received,
            at: [fact.at; 2],
            place,
        });
        record.last = record.last.max(fact.received);
        record.at = [record.at[0].min(fact.at), record.at[1].max(fact.at)];
        record.acknowledged |= acknowledged;
        record.retold |= record.fact.what != fact.what;
        record
    }

    /// Records a fact that the origin stored.
    pub fn taken(&mut self, tenant: &TenantId, fact: &Fact) {
        self.tell(tenant, fact, true).at_origin = true;
    }

    /// A backup is made: it contains the facts that the origin has.
    pub fn back_up(&mut self) {
        self.facts.values_mut().for_each(|record| record.in_backup = record.at_origin);
    }

    /// A restore: the origin has the facts of the backup, and facts in the queue will still arrive.
    pub fn restore(&mut self) {
        // Erasures are in a journal that no restore replaces.
        let lost = |record: &&mut RecordedFact| {
            record.at_origin && !record.in_backup && !matches!(record.fact.what, FactKind::Erasure { .. })
        };
        for record in self.facts.values_mut().filter(lost) {
            (record.acknowledged, record.at_origin) = (false, false);
        }
    }

    /// Removes facts that are not stored. For a fact without an acknowledgement, `holds` looks into the store.
    pub fn settle(&mut self, mut holds: impl FnMut(&TenantId, &Fact) -> bool) {
        let lost = &mut self.lost_logins;
        self.facts.retain(|(tenant, visitor, _), record| {
            let there = record.acknowledged || holds(tenant, &record.fact);
            if !there && matches!(record.fact.what, FactKind::Alias { .. }) {
                lost.insert((tenant.clone(), *visitor));
            }
            there
        });
    }

    /// All facts, ordered by visitor.
    pub fn facts(&self) -> impl Iterator<Item = (&TenantId, &RecordedFact)> {
        self.facts.iter().map(|((tenant, _, _), record)| (tenant, record))
    }

    /// Whether the number of a visitor's sessions is certain.
    #[must_use]
    pub fn knows_sessions(&self, owner: &Owner) -> bool {
        !self.facts().any(|(tenant, record)| record.retold && *tenant == owner.0 && record.fact.visitor == owner.1)
    }

    /// The segments of a visitor whose last write fulfils `is_held`.
    #[must_use]
    pub fn held_segments(&self, owner: &Owner, is_held: impl Fn(&SegmentState) -> bool) -> BTreeSet<u32> {
        let last = self.last_segments(owner).into_iter();
        last.filter(|(_, state)| state.as_ref().is_some_and(&is_held)).map(|(segment, _)| segment).collect()
    }

    /// The last write of each segment: the latest by event time, then by receipt, then by position in the call. `None`
    /// if a write was sent with several receipts or times, so that any of the writes may be the last.
    fn last_segments(&self, owner: &Owner) -> BTreeMap<u32, Option<SegmentState>> {
        let mut written: BTreeMap<u32, Vec<(&RecordedFact, &SegmentState)>> = BTreeMap::new();
        for record in self.records_of(owner) {
            let FactKind::Segments { writes } = &record.fact.what else { continue };
            for (segment, state) in writes {
                written.entry(segment.0).or_default().push((record, state));
            }
        }
        let last = |writes: Vec<(&RecordedFact, &SegmentState)>| {
            let is_known = writes.len() == 1 || writes.iter().all(|(record, _)| record.is_dated());
            let last =
                writes.into_iter().max_by_key(|(record, _)| (record.fact.at, record.fact.received, record.place));
            last.filter(|_| is_known).map(|(_, state)| state.clone())
        };
        written.into_iter().map(|(segment, writes)| (segment, last(writes))).collect()
    }

    /// The facts of one visitor.
    pub fn of<'m>(&'m self, owner: &Owner) -> impl Iterator<Item = &'m Fact> + use<'m> {
        self.records_of(owner).map(|record| &record.fact)
    }

    fn records_of<'m>(&'m self, owner: &Owner) -> impl Iterator<Item = &'m RecordedFact> + use<'m> {
        let (tenant, visitor) = owner.clone();
        let from = (tenant.clone(), visitor, FactId::from_bytes([0; 16]));
        let facts = self.facts.range(from..).take_while(move |((t, v, _), _)| *t == tenant && *v == visitor);
        facts.map(|(_, record)| record)
    }

    /// The facts of a person's visitors, without visitors that withdrew.
    #[must_use]
    pub fn of_person(&self, tenant: &TenantId, person: &Person) -> Vec<&Fact> {
        let owners = person.members.iter().map(|visitor| (tenant.clone(), *visitor));
        owners.filter(|owner| !self.is_gone(owner)).flat_map(|owner| self.of(&owner)).collect()
    }

    /// Whether the receipt time of every purchase of a tenant is certain.
    #[must_use]
    pub fn knows_purchases(&self, tenant: &TenantId) -> bool {
        let again = |record: &RecordedFact| record.last != record.fact.received;
        !self
            .facts()
            .any(|(of, record)| of == tenant && again(record) && matches!(record.fact.what, FactKind::Track { .. }))
    }

    /// Every visitor with a fact, except erased visitors.
    #[must_use]
    pub fn owners(&self) -> BTreeSet<Owner> {
        let named = self.facts.keys().filter(|(_, visitor, _)| *visitor != VisitorId::ANONYMOUS);
        named.map(|(tenant, visitor, _)| (tenant.clone(), *visitor)).filter(|o| !self.erased.contains(o)).collect()
    }

    /// Whether a visitor belongs to another member, or may: its first evidence may have been cancelled.
    fn holds_another(&self, owner: &Owner, id: AlternateId, same: &BTreeMap<AlternateId, AlternateId>) -> bool {
        let proven = self.of(owner).filter_map(|fact| match &fact.what {
            FactKind::Alias { id, proven: true, .. } if id.kind == MEMBER => {
                Some((fact.received, same.get(id).copied().unwrap_or(*id)))
            }
            _ => None,
        });
        let cancelled = self.of(owner).any(|fact| matches!(fact.what, FactKind::Cancellation { .. }));
        cancelled || proven.min().is_some_and(|(_, first)| first != id)
    }

    /// Visitors that a proof tied to an id before that id was erased.
    #[must_use]
    pub fn named_by_erasures(&self) -> BTreeSet<Owner> {
        let mut named = BTreeSet::new();
        for (tenant, record) in self.facts() {
            let FactKind::Erasure { id: Some(erased), .. } = &record.fact.what else { continue };
            if !record.at_origin {
                continue;
            }
            let same = self.same_ids(tenant);
            let one = |id: &AlternateId| same.get(id).copied().unwrap_or(*id);
            for (_, seen) in self.facts().filter(|(of, seen)| *of == tenant && seen.acknowledged) {
                let FactKind::Alias { id, proven: true, .. } = &seen.fact.what else { continue };
                let owner = (tenant.clone(), seen.fact.visitor);
                // Cancelled evidence ties the visitor to the id no longer.
                let ends = |fact: &Fact| matches!(&fact.what, FactKind::Cancellation { id } if one(id) == one(erased));
                if self.of(&owner).any(ends) || self.holds_another(&owner, one(erased), &same) {
                    continue;
                }
                if one(id) == one(erased) && seen.fact.received < record.fact.received && seen.at_origin {
                    named.insert(owner);
                }
            }
        }
        named
    }

    /// The sums of a visitor's own facts.
    #[must_use]
    pub fn sums(&self, owner: &Owner) -> Sums {
        let mut sums = Sums::default();
        let mut sessions = BTreeSet::new();
        for RecordedFact { fact, at, .. } in self.records_of(owner) {
            let event = match &fact.what {
                FactKind::Page { .. } => Some("page"),
                FactKind::Track { name, .. } => Some(name.as_str()),
                _ => None,
            };
            if let Some(name) = event {
                let (count, last) = sums.events.entry(name.to_owned()).or_default();
                (*count, *last) = (*count + 1, [last[0].max(at[0]), last[1].max(at[1])]);
            }
            match &fact.what {
                FactKind::Page { session } => {
                    sums.pages += 1;
                    sessions.insert(format!("{session:?}"));
                }
                FactKind::Track { name, value, .. } if name == PURCHASE => {
                    sums.purchases += 1;
                    sums.revenue = sums.revenue.saturating_add(value.unwrap_or_default());
                }
                FactKind::Action { insertion, action_type, view_type, .. } => {
                    sums.actions.insert((insertion.0, action_type.0, view_type.0, fact.received / 86_400_000));
                }
                _ => {}
            }
        }
        sums.sessions = sessions.len() as u64;
        sums.segments = self.last_segments(owner);
        sums
    }

    /// Whether a visitor withdrew its permission.
    #[must_use]
    pub fn is_gone(&self, owner: &Owner) -> bool {
        self.of(owner).any(|fact| fact.what == FactKind::Withdrawal)
    }

    /// The people of a tenant, connected by evidence at or above the threshold; no person has two members. `same` maps
    /// each hash of an id to the same representative.
    #[must_use]
    pub fn people(&self, tenant: &TenantId, same: &BTreeMap<AlternateId, AlternateId>) -> Vec<Person> {
        self.connected(tenant, same, THRESHOLD)
    }

    /// The people of a tenant by ties of full weight only, over which a member sees its data.
    #[must_use]
    pub fn sure_people(&self, tenant: &TenantId, same: &BTreeMap<AlternateId, AlternateId>) -> Vec<Person> {
        self.connected(tenant, same, EvidenceWeight::LOGIN)
    }

    /// The people by ties of at least this weight.
    fn connected(
        &self,
        tenant: &TenantId,
        same: &BTreeMap<AlternateId, AlternateId>,
        least: EvidenceWeight,
    ) -> Vec<Person> {
        let visitors: Vec<VisitorId> = self.owners().into_iter().filter(|(t, _)| t == tenant).map(|(_, v)| v).collect();
        let ties = self.ties(tenant, &visitors, same);
        let mut holds: BTreeMap<VisitorId, (Millis, AlternateId)> = BTreeMap::new();
        for tie in ties.iter().filter(|tie| tie.id.kind == MEMBER) {
            let held = holds.entry(tie.visitor).or_insert((tie.first, tie.id));
            *held = (*held).min((tie.first, tie.id));
        }
        let mut people: Vec<Person> = visitors
            .iter()
            .map(|v| Person { members: BTreeSet::from([*v]), unique: holds.get(v).map(|(_, id)| *id) })
            .collect();
        let mut held: Vec<&Tie> =
            ties.iter().filter(|t| t.id.kind == MEMBER && holds.get(&t.visitor).map(|h| h.1) == Some(t.id)).collect();
        held.sort_by_key(|t| (t.id, t.first, t.visitor));
        let mut free: Vec<&Tie> =
            ties.iter().filter(|t| t.id.kind != MEMBER && t.weight == EvidenceWeight::LOGIN).collect();
        let begins = |id: AlternateId| ties.iter().filter(|t| t.id == id).map(|t| t.first).min();
        free.sort_by_key(|t| (begins(t.id), t.id, t.first, t.visitor));
        for ties in [held, free] {
            for of_id in ties.chunk_by(|a, b| a.id == b.id) {
                let Some((first, rest)) = of_id.split_first() else { continue };
                rest.iter().for_each(|tie| join(&mut people, first.visitor, tie.visitor));
            }
        }
        // Heavier matches come first: on a chain between two members, the weakest match is left out.
        let mut matches: Vec<&Tie> =
            ties.iter().filter(|t| t.weight < EvidenceWeight::LOGIN && t.weight >= least).collect();
        matches.sort_by_key(|t| (Reverse(t.weight), t.first, t.id, t.visitor));
        let mut one: BTreeMap<AlternateId, VisitorId> = BTreeMap::new();
        for tie in matches {
            let one = *one.entry(tie.id).or_insert(tie.visitor);
            join(&mut people, one, tie.visitor);
        }
        people
    }

    /// All ties that are in force, under the smallest hash of each id.
    fn ties(&self, tenant: &TenantId, visitors: &[VisitorId], same: &BTreeMap<AlternateId, AlternateId>) -> Vec<Tie> {
        let mut ties = Vec::new();
        for visitor in visitors {
            let owner = (tenant.clone(), *visitor);
            if self.is_gone(&owner) {
                continue;
            }
            let one = |id: &AlternateId| same.get(id).copied().unwrap_or(*id);
            let mut seen: BTreeMap<AlternateId, (Millis, Millis, EvidenceWeight)> = BTreeMap::new();
            let mut see = |id, at: Millis, weight: EvidenceWeight| {
                let (first, last, surest) = seen.entry(id).or_insert((at, at, weight));
                (*first, *last, *surest) = (at.min(*first), at.max(*last), weight.max(*surest));
            };
            let mut ended: BTreeMap<AlternateId, Millis> = BTreeMap::new();
            for ((_, id), until) in self.ended.iter().filter(|((of, _), _)| of == tenant) {
                let at = ended.entry(one(id)).or_insert(*until);
                *at = (*until).max(*at);
            }
            for fact in self.of(&owner) {
                match &fact.what {
                    FactKind::Alias { id, proven, .. } if *proven || id.kind != MEMBER => {
                        see(
                            one(id),
                            fact.received,
                            if *proven { EvidenceWeight::LOGIN } else { EvidenceWeight::CLAIM },
                        );
                    }
                    FactKind::Evidence { id, weight, .. } => see(one(id), fact.received, *weight),
                    FactKind::Cancellation { id } => {
                        let at = ended.entry(one(id)).or_insert(fact.received);
                        *at = fact.received.max(*at);
                    }
                    _ => {}
                }
            }
            for (id, (first, last, weight)) in seen {
                let since = ended.get(&id).map_or(first, |at| first.max(at + 1));
                if ended.get(&id).is_none_or(|at| last > *at) {
                    ties.push(Tie { visitor: *visitor, id, first: since, weight });
                }
            }
        }
        ties
    }

    /// Maps each hash of an id to the smallest hash of the same id. Hashes that came together in one fact are one id.
    #[must_use]
    pub fn same_ids(&self, tenant: &TenantId) -> BTreeMap<AlternateId, AlternateId> {
        let mut groups: Vec<BTreeSet<AlternateId>> = Vec::new();
        for (_, record) in self.facts().filter(|(t, _)| *t == tenant) {
            if let FactKind::Alias { id, also, .. } = &record.fact.what {
                let mut all: BTreeSet<AlternateId> =
                    also.iter().map(|hash| AlternateId { hash: *hash, ..*id }).collect();
                all.insert(*id);
                let (touching, apart): (Vec<_>, Vec<_>) =
                    groups.into_iter().partition(|group| !group.is_disjoint(&all));
                touching.into_iter().for_each(|group| all.extend(group));
                groups = apart;
                groups.push(all);
            }
        }
        let named = |group: BTreeSet<AlternateId>| {
            let smallest = group.first().copied();
            group.into_iter().filter_map(move |id| Some((id, smallest?))).collect::<Vec<_>>()
        };
        groups.into_iter().flat_map(named).collect()
    }
}

/// Joins the persons of two visitors, unless they are two members.
fn join(people: &mut Vec<Person>, a: VisitorId, b: VisitorId) {
    let position = |people: &[Person], v| people.iter().position(|p| p.members.contains(&v));
    let (Some(one), Some(other)) = (position(people, a), position(people, b)) else { return };
    let unique = |people: &[Person], at: usize| people.get(at).and_then(|p| p.unique);
    let (x, y) = (unique(people, one), unique(people, other));
    if one == other || (x.is_some() && y.is_some() && x != y) {
        return;
    }
    let gone = people.swap_remove(other);
    if let Some(at) = position(people, a)
        && let Some(person) = people.get_mut(at)
    {
        person.members.extend(gone.members);
        person.unique = x.or(y);
    }
}
