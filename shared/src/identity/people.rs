//! People: from evidence to connected components. A pure function of the evidence as a set; in which order
//! the evidence arrived, and what was linked before, do not matter (FIELD.md failures 1, 3, 6).

mod decide_claims;
mod forest;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{AlternateId, Millis, VisitorId};
use crate::facts::evidence::{EvidenceWeight, LinkClass};

pub use decide_claims::{DecidedClaims, NONE, SightingClaim, decide_claims};
pub use forest::Forest;

/// What ties a visitor to an alternate id. Never rewritten; a cancellation ends it until newer evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evidence {
    /// The visitor.
    pub visitor: VisitorId,
    /// The alternate id it was seen with.
    pub id: AlternateId,
    /// The number of its source: [`EvidenceSource::code`], or of what pages say.
    pub source: u8,
    /// How sure it is.
    pub weight: EvidenceWeight,
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

/// How surely all evidence of one visitor and one id ties them, and since when: as sure as a login where one is among it,
/// else as independent sources are together (noisy-or: the chance that not all of them are wrong), which is never sure. Of
/// one source the surest counts. `None`: nothing of it counts.
#[must_use]
pub fn combine_evidence(evidence: impl IntoIterator<Item = Evidence>) -> Option<(EvidenceWeight, Millis)> {
    let mut counting: Vec<Evidence> =
        evidence.into_iter().filter(|e| e.stands() && e.weight > EvidenceWeight::NOTHING).collect();
    if counting.iter().any(|e| e.weight >= EvidenceWeight::LOGIN) {
        counting.retain(|e| e.weight >= EvidenceWeight::LOGIN);
    }
    let since = counting.iter().map(Evidence::since).min()?;
    // In one order, whatever order it came in.
    counting.sort_unstable_by_key(|e| (e.source, Reverse(e.weight)));
    counting.dedup_by_key(|e| e.source);
    counting.sort_unstable_by_key(|e| e.weight);
    let wrong: f64 = counting.iter().map(|e| 1.0 - e.weight.as_f64()).product();
    let most = if wrong <= 0.0 { EvidenceWeight::LOGIN } else { EvidenceWeight::UNSURE };
    Some((EvidenceWeight::new(1.0 - wrong).unwrap_or(most).min(most), since))
}

/// One person: visitors connected by evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedPerson {
    /// The oldest visitor, which is the smallest id.
    pub master: VisitorId,
    /// All its visitors, the master among them.
    pub members: BTreeSet<VisitorId>,
}

/// Why evidence was kept out of the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlagReason {
    /// The visitor holds another id of this unique kind, received earlier.
    SecondUnique,
    /// It would join two people who hold different ids of a unique kind.
    JoinsTwoPeople,
    /// The id was seen with more visitors than one person has: it is nobody's.
    Crowded,
}

impl FlagReason {
    /// Its number in stores. For ever.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::SecondUnique => 1,
            Self::JoinsTwoPeople => 2,
            Self::Crowded => 3,
        }
    }

    /// The reason of a number in a store.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        match number {
            1 => Self::SecondUnique,
            3 => Self::Crowded,
            _ => Self::JoinsTwoPeople,
        }
    }

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
pub struct EvidenceFlag {
    /// The visitor.
    pub visitor: VisitorId,
    /// The alternate id that does not link it.
    pub id: AlternateId,
    /// Why.
    pub reason: FlagReason,
}

/// The people that evidence makes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkedPeople {
    /// One for every connected component, by master; a visitor with evidence alone is a person of one.
    pub people: Vec<LinkedPerson>,
    /// Evidence kept out.
    pub flags: BTreeSet<EvidenceFlag>,
    /// The unique id that each visitor effectively holds.
    pub unique: BTreeMap<VisitorId, AlternateId>,
    /// How surely a visitor belongs to its person, where that is less than sure.
    pub weights: BTreeMap<VisitorId, EvidenceWeight>,
}

/// Computes the people ([`decide`]). `class` says how each id links; where all evidence of a visitor and an id comes to less
/// than `threshold`, it links nothing.
#[must_use]
pub fn link_people(
    evidence: &[Evidence],
    class: impl Fn(AlternateId) -> LinkClass,
    threshold: EvidenceWeight,
) -> LinkedPeople {
    let visitors = in_order(evidence.iter().map(|e| e.visitor));
    let ids = in_order(evidence.iter().map(|e| (e.id.hash, e.id.kind)));
    let mut pairs: BTreeMap<(u32, u32), Vec<Evidence>> = BTreeMap::new();
    for e in evidence {
        let pair = number(&visitors, &e.visitor).zip(number(&ids, &(e.id.hash, e.id.kind)));
        pair.into_iter().for_each(|pair| pairs.entry(pair).or_default().push(*e));
    }
    let (mut claims, mut unsure) = (Vec::new(), Vec::new());
    for ((visitor, id), evidence) in pairs {
        let Some((weight, since)) = combine_evidence(evidence).filter(|(weight, _)| *weight >= threshold) else {
            continue;
        };
        let claim = SightingClaim { since, visitor, id };
        if weight >= EvidenceWeight::LOGIN { claims.push(claim) } else { unsure.push((weight, claim)) }
    }
    let id_of = |number: u32| ids.get(number as usize).map(|&(hash, kind)| AlternateId { kind, hash });
    let class = |number: u32| id_of(number).map(&class).unwrap_or_default();
    let decided = decide_claims(u32::try_from(visitors.len()).unwrap_or(u32::MAX), &mut claims, &mut unsure, class);
    let mut found = LinkedPeople::default();
    let mut people: BTreeMap<u32, BTreeSet<VisitorId>> = BTreeMap::new();
    for ((visitor, master), held) in visitors.iter().zip(decided.masters).zip(decided.held) {
        people.entry(master).or_default().insert(*visitor);
        found.unique.extend(id_of(held).map(|id| (*visitor, id)));
    }
    let person = |members: BTreeSet<VisitorId>| Some(LinkedPerson { master: *members.first()?, members });
    found.people = people.into_values().filter_map(person).collect();
    let flag = |(visitor, id, reason): (u32, u32, FlagReason)| {
        Some(EvidenceFlag { visitor: *visitors.get(visitor as usize)?, id: id_of(id)?, reason })
    };
    let weight = |(visitor, weight): (u32, EvidenceWeight)| Some((*visitors.get(visitor as usize)?, weight));
    found.weights = decided.weights.into_iter().filter_map(weight).collect();
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
