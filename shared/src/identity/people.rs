//! People: the connected components of evidence. The result is a pure function of the evidence as a set: neither the
//! order in which evidence arrived nor earlier links matter.

mod decide_claims;
mod forest;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{AlternateId, Millis, VisitorId};
use crate::facts::evidence::{EvidenceWeight, LinkClass};

pub use decide_claims::{DecidedClaims, NONE, SightingClaim, decide_claims};
pub use forest::Forest;

/// A tie of a visitor to an alternate id. Its weight and source never change; a cancellation ends it until newer
/// evidence arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evidence {
    /// The visitor.
    pub visitor: VisitorId,
    /// The alternate id that the visitor was seen with.
    pub id: AlternateId,
    /// The number of its source: [`crate::facts::evidence::EvidenceSource::code`], or that of a login or a page's
    /// claim.
    pub source: u8,
    /// Its weight.
    pub weight: EvidenceWeight,
    /// Time of the first receipt.
    pub first: Millis,
    /// Time of the last receipt.
    pub last: Millis,
    /// Time of the cancellation. Only evidence received after it counts.
    pub cancelled: Option<Millis>,
}

impl Evidence {
    /// Whether it counts: it was not cancelled, or was renewed afterwards.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.cancelled.is_none_or(|at| self.last > at)
    }

    /// Start of the time in which it counts: its first receipt, or the millisecond after its cancellation. Renewed
    /// evidence may have arrived a little later; this bound depends only on the facts, not on the order of their
    /// arrival.
    #[must_use]
    pub fn since(&self) -> Millis {
        self.cancelled.map_or(self.first, |at| self.first.max(at.saturating_add(1)))
    }
}

/// The combined weight of all evidence for one visitor and one id, and the start of its time; `None` if none counts.
///
/// With a login among it, the weight is a login's. Otherwise independent sources are combined by noisy-or (the
/// probability that not all of them are wrong), which stays below a login. Of one source only the greatest weight
/// counts.
#[must_use]
pub fn combine_evidence(evidence: impl IntoIterator<Item = Evidence>) -> Option<(EvidenceWeight, Millis)> {
    let mut counting: Vec<Evidence> =
        evidence.into_iter().filter(|e| e.stands() && e.weight > EvidenceWeight::NOTHING).collect();
    if counting.iter().any(|e| e.weight >= EvidenceWeight::LOGIN) {
        counting.retain(|e| e.weight >= EvidenceWeight::LOGIN);
    }
    let since = counting.iter().map(Evidence::since).min()?;
    // A fixed order, so that the order of the input does not affect the product.
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
    /// The oldest visitor, which has the smallest id.
    pub master: VisitorId,
    /// All its visitors, including the master.
    pub members: BTreeSet<VisitorId>,
}

/// The reason why evidence does not link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlagReason {
    /// The visitor has another id of this unique kind, received earlier.
    SecondUnique,
    /// It would join two people with different ids of a unique kind.
    JoinsTwoPeople,
    /// The id was seen with more visitors than one person can have (an oversized group).
    OversizedGroup,
}

impl FlagReason {
    /// Its permanent number in stores.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::SecondUnique => 1,
            Self::JoinsTwoPeople => 2,
            Self::OversizedGroup => 3,
        }
    }

    /// The reason with this number in a store.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        match number {
            1 => Self::SecondUnique,
            3 => Self::OversizedGroup,
            _ => Self::JoinsTwoPeople,
        }
    }

    /// Its permanent name in stores and reports.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::SecondUnique => "second_unique",
            Self::JoinsTwoPeople => "joins_two_people",
            Self::OversizedGroup => "oversized_group",
        }
    }
}

/// Evidence that counts but does not link, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvidenceFlag {
    /// The visitor.
    pub visitor: VisitorId,
    /// The alternate id that does not link it.
    pub id: AlternateId,
    /// The reason.
    pub reason: FlagReason,
}

/// The people that evidence connects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkedPeople {
    /// One person per connected component, ordered by master. An otherwise unconnected visitor is a person of one.
    pub people: Vec<LinkedPerson>,
    /// Evidence that does not link.
    pub flags: BTreeSet<EvidenceFlag>,
    /// The effective unique id of each visitor.
    pub unique: BTreeMap<VisitorId, AlternateId>,
    /// The weight of a visitor's link to its person, if it is below a login's.
    pub weights: BTreeMap<VisitorId, EvidenceWeight>,
}

/// Computes the people; see [`mod@decide_claims`]. `class` returns how an id links. Evidence of a visitor and an id
/// links only if its combined weight is at least `threshold`.
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
    all.binary_search(value).ok().and_then(|index| u32::try_from(index).ok())
}
