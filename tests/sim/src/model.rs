//! The plain model: every fact in a list, and what it adds up to worked out anew each time, with none of the product's
//! joins. What the world must come to is what this says.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AlternateId, FactId, KindCode, Millis, TenantId, VisitorId};
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::facts::segments::SegmentState;

use crate::setup::THRESHOLD;

/// The one kind of which a visitor holds one id at most.
pub const MEMBER: KindCode = KindCode(1);

/// A visitor of a tenant.
pub type Owner = (TenantId, VisitorId);

/// A fact, and what is known of where it went.
#[derive(Debug, Clone)]
pub struct Told {
    /// The fact.
    pub fact: Fact,
    /// The queue or the origin has it for good.
    pub acknowledged: bool,
    /// The origin has it for good.
    pub at_origin: bool,
    /// So had it when the backup was taken.
    pub in_backup: bool,
    /// It was told with another session too, by a retry: either may have come first.
    pub retold: bool,
    /// When it was received last, by a retry: any receipt may have come first.
    pub last: Millis,
    /// Between which times it happened, as each telling has it.
    pub at: [Millis; 2],
    /// How many facts were told before it: those of one call are told in the order of the call.
    pub place: u64,
}

impl Told {
    /// Whether it has one receipt and one time, whichever of its tellings came first.
    fn is_dated(&self) -> bool {
        self.last == self.fact.received && self.at == [self.fact.at; 2]
    }
}

/// All facts that any edge ever gave away.
#[derive(Debug, Default)]
pub struct Model {
    /// Who is erased, as the store found when the world had converged.
    pub erased: BTreeSet<Owner>,
    /// Until when ids are erased, as it found then.
    pub ended: BTreeMap<(TenantId, AlternateId), Millis>,
    /// Whose logins got lost, neither queue nor origin having taken them: an edge that saw the proof knows more.
    pub lost_logins: BTreeSet<Owner>,
    facts: BTreeMap<(TenantId, VisitorId, FactId), Told>,
    told: u64,
}

/// What a visitor's own facts add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// Page views.
    pub pages: u64,
    /// Sessions.
    pub sessions: u64,
    /// Purchases.
    pub purchases: u64,
    /// Their value in micros.
    pub revenue: i64,
    /// Actions: insertion, verb, view type and UTC day.
    pub actions: BTreeSet<([u8; 16], u8, u8, u64)>,
    /// Segments held or removed, by the last write; `None` where either of two writes may be the last.
    pub segments: BTreeMap<u32, Option<SegmentState>>,
    /// Events by name: how many, and between which times the last was.
    pub events: BTreeMap<String, (u64, [Millis; 2])>,
}

/// People as the model finds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Person {
    /// All visitors of it.
    pub members: BTreeSet<VisitorId>,
    /// The member id it holds.
    pub unique: Option<AlternateId>,
}

/// One visitor and one id: when it was first and last seen with it.
#[derive(Debug, Clone, Copy)]
struct Tie {
    visitor: VisitorId,
    id: AlternateId,
    first: Millis,
    weight: EvidenceWeight,
}

impl Model {
    /// A fact that an edge tried to give away.
    pub fn tell(&mut self, tenant: &TenantId, fact: &Fact, acknowledged: bool) -> &mut Told {
        let place = self.told;
        self.told += 1;
        let told = self.facts.entry((tenant.clone(), fact.visitor, fact.id)).or_insert_with(|| Told {
            fact: fact.clone(),
            acknowledged,
            at_origin: false,
            in_backup: false,
            retold: false,
            last: fact.received,
            at: [fact.at; 2],
            place,
        });
        told.last = told.last.max(fact.received);
        told.at = [told.at[0].min(fact.at), told.at[1].max(fact.at)];
        told.acknowledged |= acknowledged;
        told.retold |= told.fact.what != fact.what;
        told
    }

    /// A fact that the origin took.
    pub fn taken(&mut self, tenant: &TenantId, fact: &Fact) {
        self.tell(tenant, fact, true).at_origin = true;
    }

    /// A backup holds what the origin has.
    pub fn back_up(&mut self) {
        self.facts.values_mut().for_each(|told| told.in_backup = told.at_origin);
    }

    /// The origin has what the backup held, and what still waits in the queue will come.
    pub fn restore(&mut self) {
        // Erasures are in a journal, which no backup replaces.
        let lost =
            |told: &&mut Told| told.at_origin && !told.in_backup && !matches!(told.fact.what, FactKind::Erasure { .. });
        for told in self.facts.values_mut().filter(lost) {
            (told.acknowledged, told.at_origin) = (false, false);
        }
    }

    /// Facts of which only the store can say whether they came: neither queue nor origin said so. `holds` asks it.
    pub fn settle(&mut self, mut holds: impl FnMut(&TenantId, &Fact) -> bool) {
        let lost = &mut self.lost_logins;
        self.facts.retain(|(tenant, visitor, _), told| {
            let there = told.acknowledged || holds(tenant, &told.fact);
            if !there && matches!(told.fact.what, FactKind::Alias { .. }) {
                lost.insert((tenant.clone(), *visitor));
            }
            there
        });
    }

    /// All facts, in the order of visitors.
    pub fn facts(&self) -> impl Iterator<Item = (&TenantId, &Told)> {
        self.facts.iter().map(|((tenant, _, _), told)| (tenant, told))
    }

    /// Whether the sessions of a visitor are known for sure.
    #[must_use]
    pub fn knows_sessions(&self, owner: &Owner) -> bool {
        !self.facts().any(|(tenant, told)| told.retold && *tenant == owner.0 && told.fact.visitor == owner.1)
    }

    /// The segments that a visitor's last writes leave in such a state.
    #[must_use]
    pub fn held_segments(&self, owner: &Owner, is_held: impl Fn(&SegmentState) -> bool) -> BTreeSet<u32> {
        let last = self.last_segments(owner).into_iter();
        last.filter(|(_, state)| state.as_ref().is_some_and(&is_held)).map(|(segment, _)| segment).collect()
    }

    /// What the last write of each segment says: the one that happened last, of one time the one received last, of one receipt
    /// the one later in its call. `None` where a write was told with several receipts or times, so that either may be the last.
    fn last_segments(&self, owner: &Owner) -> BTreeMap<u32, Option<SegmentState>> {
        let mut written: BTreeMap<u32, Vec<(&Told, &SegmentState)>> = BTreeMap::new();
        for told in self.told_of(owner) {
            let FactKind::Segments { writes } = &told.fact.what else { continue };
            for (segment, state) in writes {
                written.entry(segment.0).or_default().push((told, state));
            }
        }
        let last = |writes: Vec<(&Told, &SegmentState)>| {
            let is_known = writes.len() == 1 || writes.iter().all(|(told, _)| told.is_dated());
            let last = writes.into_iter().max_by_key(|(told, _)| (told.fact.at, told.fact.received, told.place));
            last.filter(|_| is_known).map(|(_, state)| state.clone())
        };
        written.into_iter().map(|(segment, writes)| (segment, last(writes))).collect()
    }

    /// The facts of one visitor.
    pub fn of<'m>(&'m self, owner: &Owner) -> impl Iterator<Item = &'m Fact> + use<'m> {
        self.told_of(owner).map(|told| &told.fact)
    }

    fn told_of<'m>(&'m self, owner: &Owner) -> impl Iterator<Item = &'m Told> + use<'m> {
        let (tenant, visitor) = owner.clone();
        let from = (tenant.clone(), visitor, FactId::from_bytes([0; 16]));
        let facts = self.facts.range(from..).take_while(move |((t, v, _), _)| *t == tenant && *v == visitor);
        facts.map(|(_, told)| told)
    }

    /// The facts of all of a person's visitors that are not gone.
    #[must_use]
    pub fn of_person(&self, tenant: &TenantId, person: &Person) -> Vec<&Fact> {
        let owners = person.members.iter().map(|visitor| (tenant.clone(), *visitor));
        owners.filter(|owner| !self.is_gone(owner)).flat_map(|owner| self.of(&owner)).collect()
    }

    /// Whether it is known for sure when every purchase of a tenant's visitors was received.
    #[must_use]
    pub fn knows_purchases(&self, tenant: &TenantId) -> bool {
        let again = |told: &Told| told.last != told.fact.received;
        !self.facts().any(|(of, told)| of == tenant && again(told) && matches!(told.fact.what, FactKind::Track { .. }))
    }

    /// Every visitor that a fact is of, and that is not erased.
    #[must_use]
    pub fn owners(&self) -> BTreeSet<Owner> {
        let named = self.facts.keys().filter(|(_, visitor, _)| *visitor != VisitorId::NOBODY);
        named.map(|(tenant, visitor, _)| (tenant.clone(), *visitor)).filter(|o| !self.erased.contains(o)).collect()
    }

    /// Whether a visitor is another member's, or may be: what it was seen with first may have been cancelled.
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

    /// Visitors seen, with proof, with an id that was erased afterwards.
    #[must_use]
    pub fn named_by_erasures(&self) -> BTreeSet<Owner> {
        let mut named = BTreeSet::new();
        for (tenant, told) in self.facts() {
            let FactKind::Erasure { id: Some(erased), .. } = &told.fact.what else { continue };
            if !told.at_origin {
                continue;
            }
            let same = self.same_ids(tenant);
            let one = |id: &AlternateId| same.get(id).copied().unwrap_or(*id);
            for (_, seen) in self.facts().filter(|(of, seen)| *of == tenant && seen.acknowledged) {
                let FactKind::Alias { id, proven: true, .. } = &seen.fact.what else { continue };
                let owner = (tenant.clone(), seen.fact.visitor);
                // What was cancelled ties nobody to the id any more.
                let ends = |fact: &Fact| matches!(&fact.what, FactKind::Cancellation { id } if one(id) == one(erased));
                if self.of(&owner).any(ends) || self.holds_another(&owner, one(erased), &same) {
                    continue;
                }
                if one(id) == one(erased) && seen.fact.received < told.fact.received && seen.at_origin {
                    named.insert(owner);
                }
            }
        }
        named
    }

    /// What a visitor's own facts add up to.
    #[must_use]
    pub fn sums(&self, owner: &Owner) -> Sums {
        let mut sums = Sums::default();
        let mut sessions = BTreeSet::new();
        for Told { fact, at, .. } in self.told_of(owner) {
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
                    sums.revenue += value.unwrap_or(0);
                }
                FactKind::Action { insertion, verb, view_type, .. } => {
                    sums.actions.insert((insertion.0, verb.0, view_type.0, fact.received / 86_400_000));
                }
                _ => {}
            }
        }
        sums.sessions = sessions.len() as u64;
        sums.segments = self.last_segments(owner);
        sums
    }

    /// Whether a visitor took its permission back, or was erased.
    #[must_use]
    pub fn is_gone(&self, owner: &Owner) -> bool {
        self.of(owner).any(|fact| fact.what == FactKind::Withdrawal)
    }

    /// The people of a tenant: whom logins make one, no two of whom are two members. `same` says which hashes are one id.
    #[must_use]
    pub fn people(&self, tenant: &TenantId, same: &BTreeMap<AlternateId, AlternateId>) -> Vec<Person> {
        self.connected(tenant, same, THRESHOLD)
    }

    /// The people of a tenant by sure ties alone: over them a member is shown its data.
    #[must_use]
    pub fn sure_people(&self, tenant: &TenantId, same: &BTreeMap<AlternateId, AlternateId>) -> Vec<Person> {
        self.connected(tenant, same, EvidenceWeight::LOGIN)
    }

    /// The people by ties of this weight at least.
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
        // The surest matches first: of a chain between two members the weakest stays out.
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

    /// Every tie that stands, under the id that all its hashes are.
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

    /// Which hashes are one id: those that ever came together, all under the smallest of them.
    #[must_use]
    pub fn same_ids(&self, tenant: &TenantId) -> BTreeMap<AlternateId, AlternateId> {
        let mut groups: Vec<BTreeSet<AlternateId>> = Vec::new();
        for (_, told) in self.facts().filter(|(t, _)| *t == tenant) {
            if let FactKind::Alias { id, also, .. } = &told.fact.what {
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

/// Makes one person of two, unless they are two members.
fn join(people: &mut Vec<Person>, a: VisitorId, b: VisitorId) {
    let place = |people: &[Person], v| people.iter().position(|p| p.members.contains(&v));
    let (Some(one), Some(other)) = (place(people, a), place(people, b)) else { return };
    let unique = |people: &[Person], at: usize| people.get(at).and_then(|p| p.unique);
    let (x, y) = (unique(people, one), unique(people, other));
    if one == other || (x.is_some() && y.is_some() && x != y) {
        return;
    }
    let gone = people.swap_remove(other);
    if let Some(at) = place(people, a)
        && let Some(person) = people.get_mut(at)
    {
        person.members.extend(gone.members);
        person.unique = x.or(y);
    }
}
