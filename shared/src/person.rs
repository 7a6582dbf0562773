//! People: from evidence to connected components. A pure function of the evidence as a set; in which order
//! the evidence arrived, and what was linked before, do not matter (FIELD.md failures 1, 3, 6).

mod decided;
mod forest;

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{AlternateId, Millis, VisitorId};

pub use decided::{Claim, Class, Decided, NONE, decide};
pub use forest::Forest;

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
    /// The id was seen with more visitors than one person has: it is nobody's.
    Crowded,
}

impl Reason {
    /// A stable name for stores and reports.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::SecondUnique => "second_unique",
            Self::JoinsTwoPeople => "joins_two_people",
            Self::Crowded => "crowded",
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

/// Computes the people ([`decide`]). `class` says how each id links; evidence under `threshold` links nothing.
#[must_use]
pub fn people(evidence: &[Evidence], class: impl Fn(AlternateId) -> Class, threshold: Weight) -> People {
    let visitors = in_order(evidence.iter().map(|e| e.visitor));
    let ids = in_order(evidence.iter().map(|e| (e.id.hash, e.id.kind)));
    let claim = |e: &Evidence| {
        let (visitor, id) = (number(&visitors, &e.visitor)?, number(&ids, &(e.id.hash, e.id.kind))?);
        Some(Claim { since: e.since(), visitor, id })
    };
    let standing = evidence.iter().filter(|e| e.stands() && e.weight >= threshold);
    let mut claims: Vec<Claim> = standing.filter_map(claim).collect();
    let id_of = |number: u32| ids.get(number as usize).map(|&(hash, kind)| AlternateId { kind, hash });
    let class = |number: u32| id_of(number).map(&class).unwrap_or_default();
    let decided = decide(u32::try_from(visitors.len()).unwrap_or(u32::MAX), &mut claims, class);
    let mut found = People::default();
    let mut people: BTreeMap<u32, BTreeSet<VisitorId>> = BTreeMap::new();
    for ((visitor, master), held) in visitors.iter().zip(decided.masters).zip(decided.held) {
        people.entry(master).or_default().insert(*visitor);
        found.unique.extend(id_of(held).map(|id| (*visitor, id)));
    }
    let person = |members: BTreeSet<VisitorId>| Some(Person { master: *members.first()?, members });
    found.people = people.into_values().filter_map(person).collect();
    let flag = |(visitor, id, reason): (u32, u32, Reason)| {
        Some(Flag { visitor: *visitors.get(visitor as usize)?, id: id_of(id)?, reason })
    };
    found.flags = decided.flags.into_iter().filter_map(flag).collect();
    found
}

fn in_order<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

fn number<T: Ord>(all: &[T], value: &T) -> Option<u32> {
    all.binary_search(value).ok().and_then(|place| u32::try_from(place).ok())
}
