//! The decision which visitors are one person, over numbered visitors and ids. It serves both the neighbourhood of one
//! visitor and all visitors of a tenant.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{FlagReason, Forest};
use crate::base::ids::Millis;
use crate::base::planted::{self, PlantedBug};
use crate::facts::evidence::{EvidenceWeight, LinkClass};

/// A sighting of a visitor with an id, with sufficient weight. Visitors are numbered in their order, ids in the order
/// of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SightingClaim {
    /// Start of the time in which it counts.
    pub since: Millis,
    /// The visitor's number.
    pub visitor: u32,
    /// The id's number.
    pub id: u32,
}

/// The number that stands for no id. An `Option<u32>` would take eight bytes instead of four, for millions of visitors.
pub const NONE: u32 = u32::MAX;

/// The result of a decision over claims.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecidedClaims {
    /// The master of each visitor: the smallest number among the visitors that it is connected with.
    pub masters: Vec<u32>,
    /// The effective unique id of each visitor; [`NONE`] for none.
    pub held: Vec<u32>,
    /// Claims that link nothing, as visitor, id and reason. A claim may occur twice.
    pub flags: Vec<(u32, u32, FlagReason)>,
    /// Visitors linked to their person less surely than by a login, with the weight. It is the weight of the weakest
    /// link on the path to a holder of the person's unique id, or to its master if there is no holder.
    pub weights: Vec<(u32, EvidenceWeight)>,
}

/// The claims of one id, as a range of indexes. Groups are sorted by these fields, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimGroup {
    /// Unique ids come first, because `false` sorts before `true`.
    shared: bool,
    since: Millis,
    id: u32,
    start: u32,
    end: u32,
}

/// Decides over the visitors 0 to `visitors`-1 and fewer than 2³² claims. Claims of other visitors are ignored. `class`
/// returns how an id links.
///
/// The effective unique id of a visitor is the one received earliest, then the one with the smaller hash.
///
/// 1. Unique ids join first, because visitors with the same one always belong together.
/// 2. Other ids join next, earliest first. A claim is left out if it would join two unique ids.
/// 3. `unsure` claims join last, greatest weight first. If a chain of them would join two members, its weakest link is
///    left out.
///
/// Sorts `claims` by id, time and visitor, and `unsure` in the order of their use.
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
    let oversized = claims.iter().filter(|claim| class(claim.id) == LinkClass::OversizedGroup);
    flags.extend(oversized.map(|claim| (claim.visitor, claim.id, FlagReason::OversizedGroup)));
    let mut groups: Vec<ClaimGroup> = Vec::new();
    let mut start = 0_u32;
    for same in claims.chunk_by(|one, next| one.id == next.id) {
        let end = u32::try_from(same.len()).map_or(NONE, |length| start.saturating_add(length));
        let ranked = same.iter().find(|claim| !second(claim) && class(claim.id) != LinkClass::OversizedGroup);
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

/// Vertices of the ids of unsure claims; their numbers follow those of the visitors.
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
        let index = self.all.binary_search(&id).ok()?;
        Some(self.visitors.saturating_add(u32::try_from(index).ok()?))
    }
}

/// Joins trees by unsure claims; returns the weights of visitors that are linked less surely than by a login.
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
    // Links between the trees of logins; they form a forest over these trees.
    let mut links: BTreeMap<u32, Vec<(u32, EvidenceWeight)>> = BTreeMap::new();
    for (weight, SightingClaim { visitor, id, .. }) in unsure.iter() {
        let Some(vertex) = ids.vertex(*id).filter(|_| *visitor < visitors) else { continue };
        if class(*id) == LinkClass::OversizedGroup {
            flags.push((*visitor, *id, FlagReason::OversizedGroup));
        } else if joining.forest.root(*visitor) == joining.forest.root(vertex) {
            // A path of at least this weight already exists.
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

/// The id of each visitor's earliest claim of a unique id.
fn held_ids(visitors: u32, claims: &[SightingClaim], unique: impl Fn(u32) -> bool) -> Vec<u32> {
    let order = |claim: &SightingClaim| (claim.since, claim.id);
    let mut first = vec![NONE; visitors as usize];
    for (index, claim) in (0..).zip(claims).filter(|(_, claim)| unique(claim.id)) {
        if let Some(slot) = first.get_mut(claim.visitor as usize)
            && claims
                .get(*slot as usize)
                .is_none_or(|held| (order(claim) < order(held)) != planted::is_active(PlantedBug::SecondMemberWins))
        {
            *slot = index;
        }
    }
    first.iter_mut().for_each(|slot| *slot = claims.get(*slot as usize).map_or(NONE, |claim| claim.id));
    first
}

/// A forest in which each tree has at most one unique id, stored at the root.
struct HolderForest {
    forest: Forest,
    holders: Vec<u32>,
}

impl HolderForest {
    /// Joins the trees of two vertices. Returns false, without a change, if they have different unique ids.
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
