//! Who belongs together, over visitors and ids by their numbers: the same for the few around one visitor and for all
//! of a tenant.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{FlagReason, Forest};
use crate::base::ids::Millis;
use crate::base::planted::{self, PlantedBug};
use crate::facts::evidence::{EvidenceWeight, LinkClass};

/// Evidence that stands and is heavy enough: a visitor was seen with an id. Visitors are numbered in their order, ids in
/// that of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SightingClaim {
    /// Since when it counts.
    pub since: Millis,
    /// The visitor's number.
    pub visitor: u32,
    /// The id's.
    pub id: u32,
}

/// No id: of millions of visitors four bytes each are fewer than eight.
pub const NONE: u32 = u32::MAX;

/// What claims come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecidedClaims {
    /// The master of every visitor: the smallest number among those it is connected with.
    pub masters: Vec<u32>,
    /// The unique id that every visitor effectively holds; [`NONE`] for none.
    pub held: Vec<u32>,
    /// Claims that link nothing, and why: the visitor, the id. One may be there twice.
    pub flags: Vec<(u32, u32, FlagReason)>,
    /// Visitors that belong to their person less surely than by a login, and how surely: as the weakest link is on the way
    /// to who holds the person's unique id, or to its master where nobody does.
    pub weights: Vec<(u32, EvidenceWeight)>,
}

/// The claims of one id, by their places in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimGroup {
    /// Those of unique ids come first: `false` is before `true`.
    shared: bool,
    since: Millis,
    id: u32,
    start: u32,
    end: u32,
}

/// Decides over visitors 0 to `visitors`-1, and fewer than 2³² claims; a claim of another one is passed over. `class` says how each id links.
///
/// A visitor effectively holds, of the unique ids, the one received earliest, then the one with the smaller hash. Unique ids
/// join first, since no two visitors who hold the same can be two people's; then the others, earliest first, each kept out
/// where it would bring holders of two unique ids together. `unsure` claims come last, the surest first: where a chain of them
/// would join two members, its weakest link stays out. Orders `claims` by id, time and visitor, and `unsure` as they come.
#[must_use]
pub fn decide_claims(
    visitors: u32,
    claims: &mut [SightingClaim],
    unsure: &mut [(EvidenceWeight, SightingClaim)],
    class: impl Fn(u32) -> LinkClass,
) -> DecidedClaims {
    claims.sort_unstable_by_key(|claim| (claim.id, claim.since, claim.visitor));
    let unique = |id: u32| class(id) == LinkClass::Unique;
    let held = held_ids(visitors, claims, unique);
    let mut flags = Vec::new();
    let second = |claim: &&SightingClaim| unique(claim.id) && held.get(claim.visitor as usize) != Some(&claim.id);
    flags.extend(claims.iter().filter(second).map(|claim| (claim.visitor, claim.id, FlagReason::SecondUnique)));
    let crowded = claims.iter().filter(|claim| class(claim.id) == LinkClass::Crowded);
    flags.extend(crowded.map(|claim| (claim.visitor, claim.id, FlagReason::Crowded)));
    let mut groups: Vec<ClaimGroup> = Vec::new();
    let mut start = 0_u32;
    for same in claims.chunk_by(|one, next| one.id == next.id) {
        let end = u32::try_from(same.len()).map_or(NONE, |length| start.saturating_add(length));
        let ranked = same.iter().find(|claim| !second(claim) && class(claim.id) != LinkClass::Crowded);
        groups.extend(ranked.map(|claim| {
            let SightingClaim { since, id, .. } = *claim;
            ClaimGroup { shared: !unique(id), since, id, start, end }
        }));
        start = end;
    }
    groups.sort_unstable();
    let ids = IdVertices::of(visitors, unsure);
    let mut joining = HolderForest { forest: Forest::new(ids.end()), holders: held.clone() };
    joining.holders.extend(ids.all.iter().map(|id| if unique(*id) { *id } else { NONE }));
    for ClaimGroup { id, start, end, .. } in groups {
        let mut members =
            claims.get(start as usize..end as usize).unwrap_or_default().iter().filter(|claim| !second(claim));
        let Some(first) = members.next() else { continue };
        if let Some(vertex) = ids.vertex(id) {
            joining.join(first.visitor, vertex);
        }
        for claim in members {
            if !joining.join(first.visitor, claim.visitor) {
                flags.push((claim.visitor, claim.id, FlagReason::JoinsTwoPeople));
            }
        }
    }
    let weights = join_unsurely(&mut joining, visitors, unsure, &ids, &class, &mut flags);
    let mut masters = joining.forest.labels();
    masters.truncate(visitors as usize);
    DecidedClaims { masters, held, flags, weights }
}

/// Ids of unsure claims are vertices behind the visitors.
struct IdVertices {
    visitors: u32,
    all: Vec<u32>,
}

impl IdVertices {
    fn of(visitors: u32, unsure: &[(EvidenceWeight, SightingClaim)]) -> Self {
        let mut all: Vec<u32> = unsure.iter().map(|(_, claim)| claim.id).collect();
        all.sort_unstable();
        all.dedup();
        Self { visitors, all }
    }

    fn end(&self) -> u32 {
        u32::try_from(self.all.len()).map_or(NONE, |ids| self.visitors.saturating_add(ids))
    }

    fn vertex(&self, id: u32) -> Option<u32> {
        let place = self.all.binary_search(&id).ok()?;
        Some(self.visitors.saturating_add(u32::try_from(place).ok()?))
    }
}

/// Joins by unsure claims what logins left apart; gives how surely visitors belong to their people.
fn join_unsurely(
    joining: &mut HolderForest,
    visitors: u32,
    unsure: &mut [(EvidenceWeight, SightingClaim)],
    ids: &IdVertices,
    class: impl Fn(u32) -> LinkClass,
    flags: &mut Vec<(u32, u32, FlagReason)>,
) -> Vec<(u32, EvidenceWeight)> {
    if unsure.is_empty() {
        return Vec::new();
    }
    let mut sure = joining.forest.clone();
    let holders = joining.holders.clone();
    unsure.sort_unstable_by_key(|(weight, claim)| (Reverse(*weight), claim.since, claim.id, claim.visitor));
    if planted::is_active(PlantedBug::WeakestMatchFirst) {
        unsure.reverse();
    }
    // Between trees that logins made: a forest of trees.
    let mut links: BTreeMap<u32, Vec<(u32, EvidenceWeight)>> = BTreeMap::new();
    for (weight, SightingClaim { visitor, id, .. }) in unsure.iter() {
        let Some(vertex) = ids.vertex(*id).filter(|_| *visitor < visitors) else { continue };
        if class(*id) == LinkClass::Crowded {
            flags.push((*visitor, *id, FlagReason::Crowded));
        } else if joining.forest.root(*visitor) == joining.forest.root(vertex) {
            // A way that is as sure is there.
        } else if joining.join(*visitor, vertex) {
            let (a, b) = (sure.root(*visitor), sure.root(vertex));
            links.entry(a).or_default().push((b, *weight));
            links.entry(b).or_default().push((a, *weight));
        } else {
            flags.push((*visitor, *id, FlagReason::JoinsTwoPeople));
        }
    }
    let holds = |tree: u32| holders.get(tree as usize).is_some_and(|held| *held != NONE);
    let mut centres: BTreeMap<u32, u32> = BTreeMap::new();
    for tree in links.keys() {
        let person = joining.forest.root(*tree);
        let centre = centres.entry(person).or_insert_with(|| sure.root(person));
        if holds(*tree) {
            *centre = *tree;
        }
    }
    let mut weights: BTreeMap<u32, EvidenceWeight> =
        centres.values().map(|centre| (*centre, EvidenceWeight::LOGIN)).collect();
    let mut waiting: Vec<(u32, EvidenceWeight)> = weights.iter().map(|(tree, weight)| (*tree, *weight)).collect();
    while let Some((tree, weight)) = waiting.pop() {
        for (next, link) in links.get(&tree).into_iter().flatten() {
            if !weights.contains_key(next) {
                weights.insert(*next, weight.min(*link));
                waiting.push((*next, weight.min(*link)));
            }
        }
    }
    let mut weight =
        |visitor| weights.get(&sure.root(visitor)).copied().filter(|weight| *weight < EvidenceWeight::LOGIN);
    (0..visitors).map(&mut weight).zip(0..).filter_map(|(weight, visitor)| Some((visitor, weight?))).collect()
}

/// The id of each visitor's first claim of a unique one.
fn held_ids(visitors: u32, claims: &[SightingClaim], unique: impl Fn(u32) -> bool) -> Vec<u32> {
    let rank = |claim: &SightingClaim| (claim.since, claim.id);
    let mut first = vec![NONE; visitors as usize];
    for (place, claim) in (0..).zip(claims).filter(|(_, claim)| unique(claim.id)) {
        if let Some(slot) = first.get_mut(claim.visitor as usize)
            && claims
                .get(*slot as usize)
                .is_none_or(|held| (rank(claim) < rank(held)) != planted::is_active(PlantedBug::SecondMemberWins))
        {
            *slot = place;
        }
    }
    first.iter_mut().for_each(|slot| *slot = claims.get(*slot as usize).map_or(NONE, |claim| claim.id));
    first
}

/// A forest whose trees have one holder of a unique id at most, at the root.
struct HolderForest {
    forest: Forest,
    holders: Vec<u32>,
}

impl HolderForest {
    /// Whether the two are in one tree now, or were.
    fn join(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.forest.root(a), self.forest.root(b));
        let holder = |root: u32| self.holders.get(root as usize).copied().unwrap_or(NONE);
        let held = match (holder(a), holder(b)) {
            (NONE, held) | (held, NONE) => held,
            (one, other) if one == other => one,
            _ => return false,
        };
        if let Some(slot) = self.holders.get_mut(a.min(b) as usize) {
            *slot = held;
        }
        self.forest.join(a, b);
        true
    }
}
