//! Helpers of the domain's tests: builders of values, and generators of histories that can really occur.

use std::collections::BTreeSet;

use causeway_shared::base::ids::OrderHash;
use causeway_shared::base::ids::{
    AltHash, AlternateId, Epoch, FactId, InsertionId, KindCode, Micros, Millis, SessionId, SnapshotVersion, VisitorId,
};
use causeway_shared::base::time::{Day, HourStamp, Minute};
use causeway_shared::facts::actions::{ActionType, AdAction, AdEntity, InsertionHash, ViewType};
use causeway_shared::facts::attributes::{AttributeValue, NameToken};
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::profiles::activity::BestSendTime;
use causeway_shared::profiles::membership::{Membership, VisitorCut};
use causeway_shared::profiles::profile::{
    KnownVisitor, LaterPage, Profile, ProfileTotals, QueriedNames, SnapshotRoom, SubProfile,
};
use causeway_shared::profiles::view::Snapshot;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;

/// Cases per law.
pub(crate) const CASES: u32 = 10_000;
/// The time of the tests.
pub(crate) const NOW: Millis = 1_800_000_000_000;
/// The unique kind.
pub(crate) const MEMBER: KindCode = KindCode(1);
/// A kind that is not unique.
pub(crate) const PARTNER: KindCode = KindCode(2);

/// Ten thousand cases, and no file of failures next to the test.
pub(crate) fn law() -> Config {
    Config { cases: CASES, failure_persistence: None, ..Config::default() }
}

/// The `n`th visitor, older than the next one, minted a day before [`NOW`].
pub(crate) fn visitor(n: u8) -> VisitorId {
    VisitorId::mint(NOW - 86_400_000 + u64::from(n) * 1_000, [n; 10])
}

/// The hash of the `n`th value under a key.
pub(crate) fn hash(key: u8, n: u8) -> AltHash {
    let mut bytes = [n; 16];
    bytes[0] = key;
    AltHash(bytes)
}

/// An alternate id under key 1.
pub(crate) fn alternate(kind: KindCode, n: u8) -> AlternateId {
    AlternateId { kind, hash: hash(1, n) }
}

/// The `counter`th version.
pub(crate) fn version(counter: u64) -> SnapshotVersion {
    SnapshotVersion { restore: 0, counter }
}

/// A membership decision.
pub(crate) fn membership(
    epoch: u64,
    admits: impl IntoIterator<Item = VisitorId>,
    cuts: impl IntoIterator<Item = VisitorId>,
) -> Membership {
    let admits: BTreeSet<VisitorId> = admits.into_iter().collect();
    Membership {
        epoch: Epoch(epoch),
        devices: u32::try_from(admits.len()).unwrap_or(u32::MAX),
        admits,
        cuts: cuts.into_iter().map(|v| (v, VisitorCut { at: NOW, gone: false })).collect(),
        ..Membership::default()
    }
}

/// Pseudo-random bits from a number.
pub(crate) fn scramble(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n ^ (n >> 32)
}

/// The facts of one visitor, by receive time and by arrival at the origin, and the number of facts in each published
/// version.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) visitor: VisitorId,
    pub(crate) facts: Vec<Fact>,
    pub(crate) arrived: Vec<Fact>,
    pub(crate) published: Vec<usize>,
}

impl History {
    /// The sub-profile of the `i`th published version, at most the last one.
    pub(crate) fn sub(&self, i: usize, named: bool) -> SubProfile {
        let i = i.min(self.published.len() - 1);
        profile_of(&self.arrived[..self.published[i]]).sub_profile(version(i as u64 + 1), named)
    }

    /// The sub-profile in a snapshot that was too long: no actions, and one segment.
    pub(crate) fn cut(&self, i: usize) -> SubProfile {
        let i = i.min(self.published.len() - 1);
        let profile = profile_of(&self.arrived[..self.published[i]]);
        let queried = QueriedNames::default();
        let room = SnapshotRoom::whole(Day(0), &queried);
        let room = SnapshotRoom { actions: None, capped: None, events: false, segments: 1, ..room };
        profile.sub_profile_within(version(i as u64 + 1), false, &room)
    }

    /// Facts in the newest published version.
    pub(crate) fn newest(&self) -> &[Fact] {
        &self.arrived[..self.published[self.published.len() - 1]]
    }

    /// Facts in no published version.
    pub(crate) fn pending(&self) -> &[Fact] {
        &self.arrived[self.published[self.published.len() - 1]..]
    }
}

/// Folds a fact; attribute writes are assigned.
pub(crate) fn fold(profile: &mut Profile, fact: &Fact) {
    match &fact.what {
        FactKind::Attributes { writes } => profile.assign(fact, tokens(writes)),
        _ => profile.fold(fact),
    }
}

/// The profile of facts; a repeated id counts once.
pub(crate) fn profile_of<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> Profile {
    let (mut profile, mut seen) = (Profile::default(), BTreeSet::new());
    facts.into_iter().filter(|fact| seen.insert(fact.id)).for_each(|fact| fold(&mut profile, fact));
    profile
}

/// The writes with the tokens that these tests use for their names.
pub(crate) fn tokens(
    writes: &[(String, Option<AttributeValue>)],
) -> impl Iterator<Item = (NameToken, Option<AttributeValue>)> + '_ {
    writes.iter().map(|(name, value)| (NameToken(name.bytes().map(u16::from).sum()), value.clone()))
}

/// A write of one of six attributes: one of few values, or a removal.
fn attribute(bits: u64) -> (String, Option<AttributeValue>) {
    let value = (bits & 3 != 0).then(|| AttributeValue::Integer((bits >> 2 & 1).cast_signed()));
    (["a", "b", "c", "d", "e", "f"][(bits >> 8) as usize % 6].to_owned(), value)
}

/// The page of a fact, as stored in a ledger.
pub(crate) fn beyond(fact: &Fact) -> Option<LaterPage> {
    match fact.what {
        FactKind::Page { session } => Some(LaterPage { received: fact.received, short: fact.id.short(), session }),
        _ => None,
    }
}

/// A fact to generate: its kind, the time after the previous fact, and its delay to the origin.
type Spec = (u8, u8, u16);

fn facts_of(owner: u8, specs: &[Spec]) -> Vec<Fact> {
    let mut received = NOW;
    let mut session = SessionId::mint(received, [owner; 4]);
    let (mut facts, mut orders) = (Vec::new(), BTreeSet::new());
    for (i, (what, gap, _)) in specs.iter().enumerate() {
        received += if *gap == 9 { 40 * 60_000 } else { u64::from(*gap / 4) };
        if *gap == 9 {
            session = SessionId::mint(received, [owner; 4]);
        }
        let mut id = [owner; 16];
        id[..8].copy_from_slice(&scramble(i as u64 + 1_000 * u64::from(owner)).to_be_bytes());
        let track = |name: &str, value| FactKind::Track { name: name.to_owned(), value, properties: None, order: None };
        let what = match what {
            0..=5 => FactKind::Page { session },
            6 => track(PURCHASE, Some(Micros::new(i64::from(*gap) * 1_000_000))),
            // Few orders, so that visitors of a person report the same one, each with the same value. One visitor
            // reports it once, because a repeat is the same fact.
            7 => {
                let (order, name) = (OrderHash(u64::from(*gap % 4)), PURCHASE.to_owned());
                let value = Some(Micros::new(1_000_000 + i64::from(*gap % 4)));
                FactKind::Track { name, value, properties: None, order: orders.insert(order).then_some(order) }
            }
            8 => track("signup", Some(Micros::new(5))),
            10 => {
                let bits = scramble(i as u64 ^ u64::from(*gap) << 8);
                FactKind::Attributes { writes: (0..1 + bits % 3).map(|n| attribute(scramble(bits ^ n))).collect() }
            }
            // Few insertions, ads and segments, so that actions and writes of visitors collide.
            11 | 12 => {
                let bits = scramble(i as u64 ^ u64::from(*gap) << 8);
                let code = (bits % 3) as u32;
                let entity = AdEntity { ad: code, ad_group: code / 2, campaign: 1, advertiser: 1 };
                let insertion = InsertionId([(bits >> 8) as u8 % 12; 16]);
                let (action_type, view_type) =
                    (ActionType(1 + (bits >> 16) as u8 % 2), ViewType((bits >> 24) as u8 % 2));
                FactKind::Action { insertion, action_type, view_type, entity }
            }
            13 => {
                let bits = scramble(i as u64 ^ u64::from(*gap) << 8);
                let state = |n: u64| match (bits >> n) % 3 {
                    0 => SegmentState::Removed,
                    1 => SegmentState::held(HourStamp(71_000 + (bits >> n) as u32 % 5), []),
                    _ => SegmentState::held(HourStamp(71_002), [(1, (bits >> n) as i32 % 3)]),
                };
                let write = |n: u64| (SegmentId((bits >> (2 * n)) as u32 % 6), state(n));
                FactKind::Segments { writes: (0..1 + bits % 4).map(write).collect() }
            }
            // Few experiments and arms, so that a person sees two arms of one experiment.
            14 => {
                let bits = scramble(i as u64 ^ u64::from(*gap) << 8 ^ u64::from(owner) << 16);
                FactKind::Exposure { experiment: 1 + (bits % 3) as u32, arm: 1 + (bits >> 8) as u8 % 2 }
            }
            _ => FactKind::Alias { id: alternate(MEMBER, owner), also: Vec::new(), proven: true },
        };
        let at = received - u64::from(*gap);
        facts.push(Fact { position: 0, id: FactId::from_bytes(id), visitor: visitor(owner), received, at, what });
    }
    facts
}

fn history_of(owner: u8, specs: &[Spec], disorder: u16, cuts: &[prop::sample::Index]) -> History {
    let facts = facts_of(owner, specs);
    let mut order: Vec<(usize, &Fact)> =
        facts.iter().zip(specs).enumerate().map(|(i, (f, s))| (i + usize::from(s.2 % disorder), f)).collect();
    order.sort_by_key(|(place, _)| *place);
    let arrived: Vec<Fact> = order.into_iter().map(|(_, f)| f.clone()).collect();
    let published: BTreeSet<usize> = cuts.iter().map(|c| c.index(facts.len() + 1)).collect();
    History { visitor: visitor(owner), facts, arrived, published: published.into_iter().collect() }
}

/// A visitor's history: mostly a few facts, sometimes more than a sub-profile names, in order or not.
pub(crate) fn history(owner: u8) -> impl Strategy<Value = History> {
    let spec = || (0u8..15, 0u8..10, 0u16..1_000);
    let specs = prop_oneof![9 => vec(spec(), 0..12), 1 => vec(spec(), 60..140)];
    let disorder = prop_oneof![2 => Just(1u16), 2 => Just(4), 1 => Just(200)];
    let cuts = vec(any::<prop::sample::Index>(), 1..5);
    (specs, disorder, cuts).prop_map(move |(specs, disorder, cuts)| history_of(owner, &specs, disorder, &cuts))
}

/// The parts of a history that a reader has: bits for the versions read in the visitor's own snapshot, bits for those
/// read in a sibling's, and the pages in its ledger.
pub(crate) type Picked = (u8, u8, u64);

/// Any parts of a history.
pub(crate) fn picked() -> impl Strategy<Value = Picked> {
    let bits = || prop_oneof![7 => any::<u8>(), 1 => Just(255u8)];
    (bits(), bits(), any::<u64>())
}

/// The state of a reader with these parts.
pub(crate) fn known(history: &History, (named, unnamed, pages): Picked) -> KnownVisitor {
    let versions = 0..history.published.len();
    let met = |bits: u8, i: usize| bits >> i & 1 == 1;
    let own = versions.clone().filter(|i| met(named, *i)).map(|i| history.sub(i, true));
    let others = versions.filter(|i| met(unnamed, *i)).map(|i| history.sub(i, false));
    // Sometimes the origin was restored in between and has less than before.
    let restored = (named == 255 || unnamed == 255).then(|| restored(&history.sub(0, named == 255)));
    let cut =
        (0..history.published.len()).filter(|i| scramble(pages ^ 77 ^ *i as u64) & 4 == 4).map(|i| history.cut(i));
    let subs: Vec<SubProfile> = own.chain(others).chain(cut).chain(restored).collect();
    let remembered = history.facts.iter().enumerate().filter(|(i, _)| scramble(pages ^ *i as u64) & 1 == 1);
    let placed = (0..3u32).filter(|n| scramble(pages ^ u64::from(*n)) & 2 == 2).map(impression);
    let ledger = KnownVisitor::from_beyond(remembered.filter_map(|(_, f)| beyond(f))).reserving(placed);
    subs.into_iter().map(KnownVisitor::from_sub).fold(ledger, KnownVisitor::join)
}

/// The impression of the `n`th insertion, an hour after the previous one.
fn impression(n: u32) -> AdAction {
    let entity = AdEntity { ad: n, ..AdEntity::default() };
    let minute = Minute(Minute::at(NOW).0 + n * 60);
    AdAction {
        insertion: InsertionHash::default(),
        action_type: ActionType::IMPRESSION,
        view_type: ViewType(1),
        entity,
        minute,
    }
}

/// The same sub-profile after the store was restored from a backup.
pub(crate) fn restored(sub: &SubProfile) -> SubProfile {
    SubProfile::pack(SnapshotVersion { restore: 1, counter: 1 }, &sub.content().unwrap_or_default())
}

/// Sums over a list of facts without repetitions: the naive model of the tests.
pub(crate) fn naive(facts: &[&Fact]) -> ProfileTotals {
    let mut seen = BTreeSet::new();
    let mut sessions = BTreeSet::new();
    let mut orders = BTreeSet::new();
    let mut totals = ProfileTotals::default();
    for fact in facts.iter().filter(|f| seen.insert(f.id)) {
        match &fact.what {
            FactKind::Page { session } => {
                totals.pages += 1;
                sessions.insert((fact.visitor, *session));
            }
            // An order of a person counts once.
            FactKind::Track { order: Some(order), .. } if !orders.insert(*order) => {}
            FactKind::Track { name, value, .. } if name == PURCHASE => {
                totals.purchases += 1;
                totals.revenue = totals.revenue.saturating_add(value.unwrap_or_default());
            }
            _ => {}
        }
    }
    totals.sessions = sessions.len() as u64;
    totals
}

/// Histories of some visitors, and the snapshots published under changing decisions.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) histories: Vec<History>,
    pub(crate) snapshots: Vec<Snapshot>,
}

/// The snapshots of a person whose membership changes over time.
pub(crate) fn published() -> impl Strategy<Value = Published> {
    let steps = vec((0u8..3, 0u8..8, any::<bool>(), prop_oneof![2 => Just(7u8), 1 => 0u8..8]), 1..8);
    (history(0), history(1), history(2), steps).prop_map(|(a, b, c, steps)| {
        let histories = vec![a, b, c];
        let mut admitted = 7u8;
        let mut epoch = 1;
        let mut snapshots = Vec::new();
        for (step, (owner, admits, changes, part)) in steps.into_iter().enumerate() {
            if changes {
                admitted = admits;
                epoch += 1;
            }
            let mut snapshot = snapshot(&histories, usize::from(owner), step, admitted | 1 << owner, epoch);
            // The snapshots of a large person name different parts of one decision.
            let named = |v: &VisitorId| *v == visitor(owner) || (0..3).any(|i| part >> i & 1 == 1 && *v == visitor(i));
            snapshot.membership.admits.retain(|v| named(v));
            snapshot.membership.cuts.retain(|v, _| named(v));
            snapshot.profiles.retain(|v, _| named(v));
            snapshots.push(snapshot);
        }
        Published { histories, snapshots }
    })
}

fn snapshot(histories: &[History], owner: usize, step: usize, admitted: u8, epoch: u64) -> Snapshot {
    let (admits, cuts): (Vec<_>, Vec<_>) = histories.iter().enumerate().partition(|(i, _)| admitted >> i & 1 == 1);
    let profiles = admits.iter().map(|(i, h)| (h.visitor, h.sub(step, *i == owner))).collect();
    Snapshot {
        version: version(step as u64 + 1),
        visitor: histories[owner].visitor,
        unique: Vec::new(),
        // Decisions about different sets need different epochs, so the bits of the step are part of the epoch.
        membership: membership(
            epoch * 8 + u64::from(admitted),
            admits.iter().map(|(_, h)| h.visitor),
            cuts.iter().map(|(_, h)| h.visitor),
        ),
        profiles,
        best: (step % 3 != 2)
            .then(|| BestSendTime { utc_hour_of_week: scramble(step as u64) as u8 % 168, confidence: 50 }),
    }
}
