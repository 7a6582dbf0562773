//! Caps: an ad is not placed if the data that its decision had to know says that the limit is reached. The decision had
//! to know two things: the snapshots that it was given, for the visitors that it counted; and the ads that the
//! browser's own answers placed within the serve window, as far as the request's cookies name them. Impressions that it
//! could not know are the overshoot, which `--caps` measures. Strict caps are exact among the browsers that their
//! object has learned of.

use std::collections::{BTreeMap, BTreeSet};

use causeway_edge::HttpAnswer;
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::facts::actions::{ActionType, InsertionHash};
use causeway_shared::facts::fact::FactKind;
use causeway_shared::profiles::profile::SubProfile;
use serde_json::Value;

use crate::browser::Kind;
use crate::edge::Call;
use crate::model::MEMBER;
use crate::setup::{self, LIMITS};
use crate::sync::facts_of_answer;

/// A reservation counts for ten minutes, rounded to whole minutes; the checker leaves out the last minute.
const KNOWN_MS: u64 = 9 * 60_000;
/// Number of reservations that certainly fit into a ledger.
const ROOM: usize = 12;

/// One placed ad.
#[derive(Debug, Clone)]
struct Placed {
    call: u64,
    visitor: VisitorId,
    ad: u32,
    insertion: InsertionHash,
    at: Millis,
}

/// Placed ads and counted impressions.
#[derive(Debug, Default)]
pub struct Caps {
    calls: u64,
    placed: Vec<Placed>,
    /// Counted impressions by ad.
    seen: BTreeMap<u32, BTreeMap<InsertionHash, VisitorId>>,
    /// By the first visitor of the person, which names the object of strict caps: the visitors that the object has
    /// learned of.
    learned: BTreeMap<String, BTreeSet<String>>,
    /// Whether a member's visitors stay together; otherwise a visitor that left a person counts separately again.
    pub only_grows: bool,
    /// Visitors that belong to a person by an id of a kind that is not unique; a login may move them to another person.
    loose: BTreeSet<VisitorId>,
}

impl Caps {
    /// Numbers a call.
    pub fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Indexes of the ads that a call placed.
    #[must_use]
    pub fn placed_on(&self, call: u64) -> Vec<usize> {
        let ads = self.placed.iter().enumerate().rev().take(400).filter(|(_, placed)| placed.call == call);
        ads.map(|(index, _)| index).collect()
    }

    /// Impressions of an ad by all people.
    #[must_use]
    pub fn impressions(&self, ad: u32) -> usize {
        self.seen.get(&ad).map_or(0, BTreeMap::len)
    }

    /// Impressions of an ad by these visitors.
    #[must_use]
    pub fn seen_by(&self, ad: u32, of: &BTreeSet<VisitorId>) -> usize {
        self.seen.get(&ad).map_or(0, |seen| seen.values().filter(|visitor| of.contains(visitor)).count())
    }

    /// Checks an answer and records its placed ads and impressions.
    pub fn emitted(&mut self, call: &Call, answer: &HttpAnswer) -> Vec<String> {
        for fact in facts_of_answer(answer) {
            if let FactKind::Action { insertion, action_type: ActionType::IMPRESSION, entity, .. } = fact.what {
                self.seen.entry(entity.ad).or_default().insert(InsertionHash::of(insertion), fact.visitor);
            }
            if let FactKind::Alias { id, .. } = fact.what
                && id.kind != MEMBER
            {
                self.loose.insert(fact.visitor);
            }
        }
        if call.asked.kind != Kind::Decide {
            return Vec::new();
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let Some(visitor) = body["visitor"].as_str().and_then(|text| text.parse().ok()) else { return Vec::new() };
        let counted = super::people::counted(&body);
        let mut found = Vec::new();
        let mut earlier: Vec<Placed> = Vec::new();
        for decision in body["decisions"].as_array().into_iter().flatten() {
            let Some((name, ad, limit)) = LIMITS.into_iter().find(|(name, ..)| decision["ad"]["id"] == *name) else {
                continue;
            };
            let token = decision["insertion"].as_str().unwrap_or_default();
            let Some(insertion) = setup::insertion(call.tenant, token) else { continue };
            let known = self.known(call, ad, visitor, &body, &earlier);
            if known.len() >= limit {
                found.push(format!(
                    "{name} is placed for {visitor}, which is known to have had it {} times",
                    known.len()
                ));
            }
            let placed = Placed { call: call.asked_as, visitor, ad, insertion, at: call.received };
            earlier.push(placed);
            if name == "green" {
                found.extend(self.strict(visitor, ad, limit, &counted));
            }
        }
        self.placed.extend(earlier);
        found
    }

    /// The impressions and reserved placements that a decision had to know.
    fn known(
        &self,
        call: &Call,
        ad: u32,
        visitor: VisitorId,
        answer: &Value,
        earlier: &[Placed],
    ) -> BTreeSet<InsertionHash> {
        let own = call.placed().iter().rev().take(ROOM).filter_map(|place| self.placed.get(*place));
        let in_flight = own.filter(|p| p.at + KNOWN_MS > call.received && p.at <= call.received).chain(earlier);
        let mut known: BTreeSet<InsertionHash> =
            in_flight.filter(|p| p.ad == ad && p.visitor == visitor).map(|p| p.insertion).collect();
        let counted = super::people::counted(answer);
        let snapshots: Vec<_> = call.given.iter().filter(|given| super::answers::is_used(answer, given)).collect();
        for snapshot in &snapshots {
            let Some(own) = snapshot.profiles.get(&snapshot.visitor).filter(|_| counted.contains(&snapshot.visitor))
            else {
                continue;
            };
            // A sibling's snapshot may hold a newer profile of this visitor, which has fewer actions after a restore.
            let newest =
                snapshots.iter().filter_map(|s| s.profiles.get(&snapshot.visitor)).map(SubProfile::version).max();
            if newest == Some(own.version()) {
                let actions = own.actions().into_iter().flat_map(|actions| actions.iter().collect::<Vec<_>>());
                known.extend(
                    actions
                        .filter(|a| a.entity.ad == ad && a.action_type == ActionType::IMPRESSION)
                        .map(|a| a.insertion),
                );
            }
        }
        known
    }

    /// Checks a granted strict ad: the object knew every impression that the visitors which called it had counted.
    fn strict(&mut self, visitor: VisitorId, ad: u32, limit: usize, counted: &BTreeSet<VisitorId>) -> Option<String> {
        let root = counted.first()?;
        let learned = self.learned.entry(root.to_string()).or_default();
        learned.extend([root.to_string(), visitor.to_string()]);
        let stays = |v: &&VisitorId| learned.contains(&v.to_string()) && !self.loose.contains(v);
        let asked: BTreeSet<VisitorId> = counted.iter().filter(stays).copied().collect();
        let (all, own) = (self.seen_by(ad, &asked), self.seen_by(ad, &BTreeSet::from([visitor])));
        let over = own >= limit || (self.only_grows && !self.loose.contains(root) && all >= limit);
        over.then(|| format!("a strict ad is granted to {visitor} after {own} impressions, {all} of {asked:?}"))
    }
}

/// No visitor alone has more impressions of a strict ad than its limit.
#[must_use]
pub fn converged(world: &mut crate::world::World) -> Vec<String> {
    let [_, (name, ad, limit)] = LIMITS;
    let mut of: BTreeMap<VisitorId, usize> = BTreeMap::new();
    for visitor in world.check.caps.seen.get(&ad).into_iter().flat_map(BTreeMap::values) {
        *of.entry(*visitor).or_default() += 1;
    }
    let over = of.into_iter().filter(|(_, seen)| *seen > limit);
    over.map(|(visitor, seen)| format!("{visitor} had {name} {seen} times, its strict limit is {limit}")).collect()
}
