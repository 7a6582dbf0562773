//! People: from evidence to connected components. A pure function of the evidence as a set; in which order
//! the evidence arrived, and what was linked before, do not matter (FIELD.md failures 1, 3, 6).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{AlternateId, KindCode, Millis, VisitorId};

/// A weight of evidence in thousandths: 1 to 1,000; 1,000 is a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(pub u16);

impl Weight {
    /// A login: certain.
    pub const LOGIN: Self = Self(1_000);
}

/// What ties a visitor to an alternate id. Never rewritten; a cancellation ends it until newer evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evidence {
    /// The visitor.
    pub visitor: VisitorId,
    /// The alternate id it was seen with.
    pub id: AlternateId,
    /// How sure it is.
    pub weight: Weight,
    /// First receipt.
    pub first: Millis,
    /// Last receipt.
    pub last: Millis,
    /// When it was cancelled: only evidence received after that counts.
    pub cancelled: Option<Millis>,
}

impl Evidence {
    /// Whether it counts: not cancelled, or renewed since.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.cancelled.is_none_or(|at| self.last > at)
    }

    /// Since when it counts: its first receipt, or the moment after it was cancelled. Of evidence renewed since, the first
    /// new receipt may be a little later; this bound depends on the facts alone, not on the order in which they came.
    #[must_use]
    pub fn since(&self) -> Millis {
        self.cancelled.map_or(self.first, |at| self.first.max(at.saturating_add(1)))
    }
}

/// One person: visitors connected by evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The oldest visitor, which is the smallest id.
    pub master: VisitorId,
    /// All its visitors, the master among them.
    pub members: BTreeSet<VisitorId>,
}

/// Why evidence was kept out of the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The visitor holds another id of this unique kind, received earlier.
    SecondUnique,
    /// It would join two people who hold different ids of a unique kind.
    JoinsTwoPeople,
}

impl Reason {
    /// A stable name for stores and reports.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::SecondUnique => "second_unique",
            Self::JoinsTwoPeople => "joins_two_people",
        }
    }
}

/// Evidence that stands but does not link, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flag {
    /// The visitor.
    pub visitor: VisitorId,
    /// The alternate id that does not link it.
    pub id: AlternateId,
    /// Why.
    pub reason: Reason,
}

/// The people that evidence makes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct People {
    /// One for every connected component, by master; a visitor with evidence alone is a person of one.
    pub people: Vec<Person>,
    /// Evidence kept out.
    pub flags: BTreeSet<Flag>,
    /// The unique id that each visitor effectively holds.
    pub unique: BTreeMap<VisitorId, AlternateId>,
}

/// Computes the people. `unique` says which kinds are; evidence under `threshold` links nothing.
///
/// A visitor effectively holds, of the unique kind, the id received earliest, then with the smaller hash.
/// Ids of unique kinds join first; then the others, earliest first, each kept out where it would bring two
/// holders of different unique ids together.
#[must_use]
pub fn people(evidence: &[Evidence], unique: impl Fn(KindCode) -> bool, threshold: Weight) -> People {
    let standing: Vec<&Evidence> = evidence.iter().filter(|e| e.stands() && e.weight >= threshold).collect();
    let mut found = People::default();
    let rank = |e: &Evidence| (e.since(), e.id.hash, e.id.kind);
    let mut holds: BTreeMap<VisitorId, &Evidence> = BTreeMap::new();
    for e in standing.iter().filter(|e| unique(e.id.kind)) {
        let held = holds.entry(e.visitor).or_insert(e);
        if rank(e) < rank(held) {
            *held = e;
        }
    }
    found.unique = holds.into_iter().map(|(visitor, e)| (visitor, e.id)).collect();
    for e in standing.iter().filter(|e| unique(e.id.kind) && found.unique.get(&e.visitor) != Some(&e.id)) {
        found.flags.insert(Flag { visitor: e.visitor, id: e.id, reason: Reason::SecondUnique });
    }
    let mut forest = Forest::new(evidence.iter().map(|e| e.visitor), &found.unique);
    for members in by_id(standing.iter().filter(|e| found.unique.get(&e.visitor) == Some(&e.id))) {
        found.flags.extend(forest.join(&members));
    }
    for members in by_id(standing.iter().filter(|e| !unique(e.id.kind))) {
        found.flags.extend(forest.join(&members));
    }
    found.people = forest.people();
    found
}

/// The evidence of each id, ids by their first receipt, visitors by theirs.
fn by_id<'a>(evidence: impl Iterator<Item = &'a &'a Evidence>) -> Vec<Vec<&'a Evidence>> {
    let mut groups: BTreeMap<AlternateId, Vec<&Evidence>> = BTreeMap::new();
    for e in evidence {
        groups.entry(e.id).or_default().push(e);
    }
    let mut groups: Vec<Vec<&Evidence>> = groups.into_values().collect();
    for group in &mut groups {
        group.sort_by_key(|e| (e.since(), e.visitor));
    }
    groups.sort_by_key(|group| group.first().map(|e| (e.since(), e.id)));
    groups
}

/// Union-find over visitors, in which every tree's root is its smallest visitor.
struct Forest<'a> {
    parent: BTreeMap<VisitorId, VisitorId>,
    holds: BTreeMap<VisitorId, &'a AlternateId>,
}

impl<'a> Forest<'a> {
    fn new(visitors: impl Iterator<Item = VisitorId>, unique: &'a BTreeMap<VisitorId, AlternateId>) -> Self {
        let holds = unique.iter().map(|(v, id)| (*v, id)).collect();
        Self { parent: visitors.map(|v| (v, v)).collect(), holds }
    }

    fn root(&mut self, visitor: VisitorId) -> VisitorId {
        let mut root = visitor;
        while let Some(up) = self.parent.get(&root).filter(|up| **up != root) {
            root = *up;
        }
        let mut at = visitor;
        while at != root {
            match self.parent.insert(at, root) {
                Some(up) => at = up,
                None => break,
            }
        }
        root
    }

    /// Joins the visitors of one id to the first of them that each may be joined with.
    fn join(&mut self, members: &[&Evidence]) -> Vec<Flag> {
        let mut flags = Vec::new();
        let Some(first) = members.first() else {
            return flags;
        };
        for e in members {
            let (a, b) = (self.root(first.visitor), self.root(e.visitor));
            let (low, high) = (a.min(b), a.max(b));
            match (self.holds.get(&low), self.holds.get(&high)) {
                (Some(x), Some(y)) if x != y => {
                    flags.push(Flag { visitor: e.visitor, id: e.id, reason: Reason::JoinsTwoPeople });
                    continue;
                }
                (None, Some(y)) => {
                    let y = *y;
                    self.holds.insert(low, y);
                }
                _ => {}
            }
            self.parent.insert(high, low);
        }
        flags
    }

    fn people(mut self) -> Vec<Person> {
        let visitors: Vec<VisitorId> = self.parent.keys().copied().collect();
        let mut people: BTreeMap<VisitorId, BTreeSet<VisitorId>> = BTreeMap::new();
        for visitor in visitors {
            people.entry(self.root(visitor)).or_default().insert(visitor);
        }
        people.into_iter().map(|(master, members)| Person { master, members }).collect()
    }
}
