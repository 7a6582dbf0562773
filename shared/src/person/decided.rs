//! Who belongs together, over visitors and ids by their numbers: the same for the few around one visitor and for all
//! of a tenant.

use super::{Forest, Reason};
use crate::ids::Millis;

/// Evidence that stands and is heavy enough: a visitor was seen with an id. Visitors are numbered in their order, ids in
/// that of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Since when it counts.
    pub since: Millis,
    /// The visitor's number.
    pub visitor: u32,
    /// The id's.
    pub id: u32,
}

/// How an id links the visitors that were seen with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// All of them: they are one person's, and who holds another unique id is nobody's of these.
    Unique,
    /// All of them, as long as that brings no two unique ids together.
    #[default]
    Shared,
    /// None: it was seen with more visitors than one person has.
    Crowded,
}

/// No id: of millions of visitors four bytes each are fewer than eight.
pub const NONE: u32 = u32::MAX;

/// What claims come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decided {
    /// The master of every visitor: the smallest number among those it is connected with.
    pub masters: Vec<u32>,
    /// The unique id that every visitor effectively holds; [`NONE`] for none.
    pub held: Vec<u32>,
    /// Claims that link nothing, and why: the visitor, the id. One may be there twice.
    pub flags: Vec<(u32, u32, Reason)>,
}

/// The claims of one id, by their places in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
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
/// where it would bring holders of two unique ids together. Orders `claims` by id, time and visitor.
#[must_use]
pub fn decide(visitors: u32, claims: &mut [Claim], class: impl Fn(u32) -> Class) -> Decided {
    claims.sort_unstable_by_key(|claim| (claim.id, claim.since, claim.visitor));
    let unique = |id: u32| class(id) == Class::Unique;
    let held = held(visitors, claims, unique);
    let mut flags = Vec::new();
    let second = |claim: &&Claim| unique(claim.id) && held.get(claim.visitor as usize) != Some(&claim.id);
    flags.extend(claims.iter().filter(second).map(|claim| (claim.visitor, claim.id, Reason::SecondUnique)));
    let crowded = claims.iter().filter(|claim| class(claim.id) == Class::Crowded);
    flags.extend(crowded.map(|claim| (claim.visitor, claim.id, Reason::Crowded)));
    let mut groups: Vec<Group> = Vec::new();
    let mut start = 0_u32;
    for same in claims.chunk_by(|one, next| one.id == next.id) {
        let end = u32::try_from(same.len()).map_or(NONE, |length| start.saturating_add(length));
        let ranked = same.iter().find(|claim| !second(claim) && class(claim.id) != Class::Crowded);
        groups.extend(ranked.map(|claim| {
            let Claim { since, id, .. } = *claim;
            Group { shared: !unique(id), since, id, start, end }
        }));
        start = end;
    }
    groups.sort_unstable();
    let mut joining = Joining { forest: Forest::new(visitors), holders: held.clone() };
    for Group { start, end, .. } in groups {
        let mut members =
            claims.get(start as usize..end as usize).unwrap_or_default().iter().filter(|claim| !second(claim));
        let Some(first) = members.next() else { continue };
        for claim in members {
            if !joining.join(first.visitor, claim.visitor) {
                flags.push((claim.visitor, claim.id, Reason::JoinsTwoPeople));
            }
        }
    }
    Decided { masters: joining.forest.labels(), held, flags }
}

/// The id of each visitor's first claim of a unique one.
fn held(visitors: u32, claims: &[Claim], unique: impl Fn(u32) -> bool) -> Vec<u32> {
    let rank = |claim: &Claim| (claim.since, claim.id);
    let mut first = vec![NONE; visitors as usize];
    for (place, claim) in (0..).zip(claims).filter(|(_, claim)| unique(claim.id)) {
        if let Some(slot) = first.get_mut(claim.visitor as usize)
            && claims.get(*slot as usize).is_none_or(|held| rank(claim) < rank(held))
        {
            *slot = place;
        }
    }
    first.iter_mut().for_each(|slot| *slot = claims.get(*slot as usize).map_or(NONE, |claim| claim.id));
    first
}

/// A forest whose trees have one holder of a unique id at most, at the root.
struct Joining {
    forest: Forest,
    holders: Vec<u32>,
}

impl Joining {
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
