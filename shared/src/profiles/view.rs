//! Views: the join of the profiles of one person's visitors, as a reader puts it together from snapshots.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{AltHash, Epoch, Millis, SnapshotVersion, VisitorId};
use crate::base::planted::{self, PlantedBug};
use crate::base::time::{HourStamp, Minute};
use crate::facts::actions::{ActionList, AdAction, PackedActions};
use crate::facts::attributes::{AttributeMap, NameToken, PackedAttributes};
use crate::facts::events::EventCount;
use crate::facts::exposures::Exposures;
use crate::facts::fact::PURCHASE;
use crate::facts::offer_slots::HeldSlots;
use crate::facts::orders::{self, OrderPurchase, VisitorOrders};
use crate::facts::segments::{self, PackedSegments, SegmentId};
use crate::profiles::activity::BestTime;
use crate::profiles::membership::{Membership, Memberships};
use crate::profiles::profile::{KnownVisitor, MissingParts, ProfileTotals, SubProfile};

/// A view as the KV holds it, under the key of one of its visitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Issued by the origin alone; only grows.
    pub version: SnapshotVersion,
    /// Whose snapshot it is.
    pub visitor: VisitorId,
    /// The unique id that the visitor's person holds, under every key it is known by; empty when it holds none.
    pub unique: Vec<AltHash>,
    /// The decision it was built under.
    pub membership: Membership,
    /// The visitors' sums, the visitor's own among them.
    pub profiles: BTreeMap<VisitorId, SubProfile>,
    /// When its person is best reached; `None` where too little is known of it.
    pub best: Option<BestTime>,
}

impl Snapshot {
    /// What of the person was left out for size.
    #[must_use]
    pub fn missing(&self) -> MissingParts {
        let of_visitors = self.profiles.values().fold(MissingParts::NONE, |all, sub| all.union(sub.missing()));
        let lacks_members = usize::try_from(self.membership.devices).is_ok_and(|devices| devices > self.profiles.len());
        of_visitors.union(MissingParts::MEMBERS.when(lacks_members))
    }

    /// The unique id that the visitor itself surely has; empty where only an unproven id ties it to that member, or nothing.
    #[must_use]
    pub fn surely_held(&self) -> &[AltHash] {
        if self.membership.unsure.contains(&self.visitor) { &[] } else { &self.unique }
    }

    /// The visitors that are as surely of the snapshot's member as its own visitor is; none where that is unsure.
    pub fn sure_members(&self) -> impl Iterator<Item = VisitorId> + '_ {
        let unsure = &self.membership.unsure;
        let is_sure = !self.surely_held().is_empty();
        self.profiles.keys().copied().filter(move |visitor| is_sure && !unsure.contains(visitor))
    }

    /// Makes it the snapshot of its visitor alone; the visitors that were cut from it stay cut.
    pub fn leave_person(&mut self) {
        let Membership { epoch, cuts, .. } = std::mem::take(&mut self.membership);
        self.keep_own();
        self.unique.clear();
        self.membership =
            Membership { epoch, devices: 1, admits: [self.visitor].into(), cuts, ..Membership::default() };
    }

    /// Drops what it says of anybody but its visitor. Whose visitor it is stays: that keeps two members apart.
    pub fn keep_own(&mut self) {
        self.membership = Membership::default();
        self.best = None;
        let own = self.visitor;
        self.profiles.retain(|visitor, _| *visitor == own);
    }
}

/// What is found under a visitor's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredValue {
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// The visitor was erased or withdrew: it is never recognised again.
    Tombstone,
}

/// What counts for one visitor of a view: its person, as far as the view knows.
#[derive(Debug, Clone)]
pub struct PersonView<'a> {
    own: VisitorId,
    members: Vec<VisitorId>,
    known: Vec<&'a KnownVisitor>,
    /// How many of the person's visitors do not count here.
    left_out: u32,
    view: &'a JoinedView,
}

impl<'a> PersonView<'a> {
    /// The visitors that count, the one itself always among them, in order.
    #[must_use]
    pub fn members(&self) -> &[VisitorId] {
        &self.members
    }

    /// The smallest of them, which all of a person's browsers agree on that know of one another.
    #[must_use]
    pub fn smallest(&self) -> VisitorId {
        self.members.first().copied().unwrap_or(self.own)
    }

    /// How often an event of theirs was, from one minute to before another: at least so often while some of them are missing;
    /// `None` of an event that no snapshot says it of.
    #[must_use]
    pub fn within(&self, name: &str, from: Minute, to: Minute) -> Option<EventCount> {
        let none = if self.missing().overlaps(MissingParts::MEMBERS) {
            EventCount::AtLeast(0)
        } else {
            EventCount::Exactly(0)
        };
        let sum = self.known.iter().try_fold(none, |sum, known| Some(sum.plus(known.within(name, from, to)?)))?;
        if name != PURCHASE {
            return Some(sum);
        }
        let repeats = self.repeats().into_iter().filter(|repeat| (from..to).contains(&repeat.at));
        Some(sum.minus(repeats.count() as u64))
    }

    /// Purchases of orders that another of the visitors made earlier: they do not count.
    fn repeats(&self) -> Vec<OrderPurchase> {
        if self.known.len() < 2 {
            return Vec::new();
        }
        let each: Vec<VisitorOrders> = self.known.iter().map(|known| known.orders()).collect();
        orders::find_repeats(&each).into_iter().map(|(_, repeat)| repeat).collect()
    }

    /// How many browsers the person has, at least those that count here.
    #[must_use]
    pub fn devices(&self) -> u32 {
        let here = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.view.memberships.devices(self.own, &self.members).saturating_sub(self.left_out).max(here)
    }

    /// What may be missing of the person's data: it is unknown, not absent.
    #[must_use]
    pub fn missing(&self) -> MissingParts {
        if planted::is_active(PlantedBug::UnknownIsAbsent) {
            return MissingParts::NONE;
        }
        let here = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let own = if self.view.known.contains_key(&self.own) { MissingParts::NONE } else { MissingParts::ALL };
        let own = own.union(self.view.missing).union(MissingParts::MEMBERS.when(self.devices() > here));
        self.known.iter().fold(own, |all, known| all.union(known.missing()))
    }

    /// The attributes whose value, or whose absence, is certain although these parts are missing; `None` for all.
    #[must_use]
    pub fn certain_attributes(&self, missing: MissingParts) -> Option<Vec<NameToken>> {
        let written =
            |known: &&KnownVisitor| known.attributes().into_iter().flat_map(|packed| packed.tokens()).collect();
        self.certain_everywhere(missing, MissingParts::ATTRIBUTES, written)
    }

    /// The segments that the person is certainly not in at a time although these parts are missing; `None` for all that are
    /// not among [`Self::segments`].
    #[must_use]
    pub fn certainly_not_in(&self, missing: MissingParts, now: Millis) -> Option<Vec<SegmentId>> {
        let written = |known: &&KnownVisitor| known.segments().into_iter().flat_map(|packed| packed.ids()).collect();
        let mut certain = self.certain_everywhere(missing, MissingParts::SEGMENTS, written)?;
        let held = self.segments(now);
        certain.retain(|id| held.binary_search(id).is_err());
        Some(certain)
    }

    /// The names that every visitor which lacks some of a part says something of; `None` where none lacks any.
    fn certain_everywhere<T: Ord>(
        &self,
        missing: MissingParts,
        part: MissingParts,
        written: impl Fn(&&'a KnownVisitor) -> BTreeSet<T>,
    ) -> Option<Vec<T>> {
        if missing.overlaps(MissingParts::MEMBERS) {
            return Some(Vec::new());
        }
        let lacking = self.known.iter().filter(|known| known.missing().overlaps(part));
        let certain =
            lacking.map(written).reduce(|all, one| all.into_iter().filter(|name| one.contains(name)).collect());
        certain.map(|certain| certain.into_iter().collect())
    }

    /// Whether there are others than the one itself.
    #[must_use]
    pub fn is_bridged(&self) -> bool {
        self.members.len() > 1
    }

    /// The sums over all; an order counts once.
    #[must_use]
    pub fn totals(&self) -> ProfileTotals {
        let sums = self.known.iter().fold(ProfileTotals::default(), |sum, known| sum.plus(known.totals()));
        sums.without(&self.repeats())
    }

    /// When the first and the last of their facts happened; `None` without any.
    #[must_use]
    pub fn seen(&self) -> Option<(Millis, Millis)> {
        let each = self.known.iter().filter_map(|known| known.seen());
        each.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// When the person is best reached, as the newest of their snapshots says.
    #[must_use]
    pub fn best(&self) -> Option<BestTime> {
        let said = self.view.best.iter().filter(|(visitor, _)| self.members.binary_search(visitor).is_ok());
        said.map(|(_, said)| *said).max().map(|(_, best)| best)
    }

    /// Their actions, each visitor's by themselves.
    #[must_use]
    pub fn actions(&self) -> Vec<PackedActions<'a>> {
        self.known.iter().filter_map(|known| known.actions()).collect()
    }

    /// The visitor's own reservations, packed: impressions to come that [`Self::actions`] do not hold, as if they came now.
    /// `None` for none. A cap counts over those and these beside them, as one more visitor's.
    #[must_use]
    pub fn reserved(&self, now: Minute) -> Option<Vec<u8>> {
        let mut reserved = self.view.known.get(&self.own)?.reserved();
        if reserved.is_empty() {
            return None;
        }
        self.actions().iter().for_each(|held| reserved.leave_out(held));
        // The impression may come at any time from the placing on: each window holds it.
        let seen_now: ActionList = reserved.iter().map(|action| AdAction { minute: now, ..action }).collect();
        (!seen_now.is_empty()).then(|| seen_now.pack_actions())
    }

    /// The segments that the person is in at a time, in order: of each the last write of any visitor counts.
    #[must_use]
    pub fn segments(&self, now: Millis) -> Vec<SegmentId> {
        let each: Vec<_> = self.known.iter().filter_map(|known| known.segments()).collect();
        segments::live_segments(&each, HourStamp::at(now))
    }

    /// Their attributes: of each the last write of any visitor.
    #[must_use]
    pub fn attributes(&self) -> AttributeMap {
        AttributeMap::of_person(self.known.iter().filter_map(|known| known.attributes()?.to_map()))
    }

    /// Their exposures: of each experiment the first of any visitor.
    #[must_use]
    pub fn exposures(&self) -> Exposures {
        self.known.iter().map(|known| known.exposures()).fold(Exposures::default(), Exposures::join)
    }

    /// Their units of limited offers: of each campaign the first that any visitor got.
    #[must_use]
    pub fn units(&self) -> HeldSlots {
        self.known.iter().map(|known| known.units()).fold(HeldSlots::default(), HeldSlots::join)
    }
}

/// The join of what snapshots and the ledger say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinedView {
    known: BTreeMap<VisitorId, KnownVisitor>,
    memberships: Memberships,
    /// What the newest snapshot of each says.
    best: BTreeMap<VisitorId, (SnapshotVersion, BestTime)>,
    /// What is missing in addition to what the snapshots say.
    missing: MissingParts,
}

impl JoinedView {
    /// Notes that something could not be read.
    pub fn note_missing(&mut self, missing: MissingParts) {
        self.missing = self.missing.union(missing);
    }

    /// Adds a snapshot.
    pub fn add_snapshot(&mut self, snapshot: Snapshot) {
        self.add_best(&snapshot);
        self.add_profiles(snapshot.profiles);
        self.memberships.add(snapshot.membership);
    }

    /// Adds the snapshots of visitors said to be of the person of `own`. First all that they decide; then whom each brings,
    /// but of none that a decision cut from `own`: it knows its own people, and they need not know of `own`.
    pub fn add_siblings(&mut self, own: VisitorId, mut siblings: Vec<(VisitorId, Snapshot)>) {
        for (_, snapshot) in &mut siblings {
            self.memberships.add(std::mem::take(&mut snapshot.membership));
        }
        siblings.retain(|(sibling, _)| self.memberships.counts(own, *sibling));
        for (_, snapshot) in siblings {
            self.add_best(&snapshot);
            self.add_profiles(snapshot.profiles);
        }
    }

    fn add_best(&mut self, snapshot: &Snapshot) {
        if let Some(best) = snapshot.best {
            let said = (snapshot.version, best);
            let newest = self.best.get(&snapshot.visitor).map_or(said, |before| said.max(*before));
            self.best.insert(snapshot.visitor, newest);
        }
    }

    fn add_profiles(&mut self, profiles: BTreeMap<VisitorId, SubProfile>) {
        for (visitor, sub) in profiles {
            self.add_known(visitor, KnownVisitor::from_sub(sub));
        }
    }

    /// Adds what is known of one visitor.
    pub fn add_known(&mut self, visitor: VisitorId, known: KnownVisitor) {
        match self.known.get_mut(&visitor) {
            Some(before) => *before = std::mem::take(before).join(known),
            None => drop(self.known.insert(visitor, known)),
        }
    }

    /// What counts for `own`: itself and all that belong with it.
    #[must_use]
    pub fn of(&self, own: VisitorId) -> PersonView<'_> {
        // Fewer were cut than there are: where none of them is here, all count.
        let is_here = |cut: VisitorId| cut == own || self.known.contains_key(&cut);
        let all = !self.memberships.cuts().any(is_here);
        let counting = self.known.iter().filter(|(visitor, _)| all || self.memberships.counts(own, **visitor));
        let (mut members, mut known) = (Vec::with_capacity(self.known.len()), Vec::with_capacity(self.known.len()));
        for (visitor, one) in counting {
            members.push(*visitor);
            known.push(one);
        }
        if let Err(place) = members.binary_search(&own) {
            members.insert(place, own);
        }
        PersonView { own, members, known, left_out: 0, view: self }
    }

    /// What counts for `own` of a set of visitors alone, itself among them.
    #[must_use]
    pub fn of_these(&self, own: VisitorId, these: &BTreeSet<VisitorId>) -> PersonView<'_> {
        let all = self.of(own);
        let kept = |visitor: &VisitorId| *visitor == own || these.contains(visitor);
        let known = self.known.iter().filter(|(visitor, _)| all.members.contains(visitor) && kept(visitor));
        let known = known.map(|(_, known)| known).collect();
        let members: Vec<VisitorId> = all.members.iter().copied().filter(kept).collect();
        let left_out =
            all.left_out.saturating_add(u32::try_from(all.members.len() - members.len()).unwrap_or(u32::MAX));
        PersonView { members, known, left_out, ..all }
    }

    /// The sums of one visitor alone.
    #[must_use]
    pub fn own(&self, visitor: VisitorId) -> ProfileTotals {
        self.known.get(&visitor).map(KnownVisitor::totals).unwrap_or_default()
    }

    /// What may be missing of the data of one visitor alone.
    #[must_use]
    pub fn missing_of(&self, visitor: VisitorId) -> MissingParts {
        self.known.get(&visitor).map_or(MissingParts::ALL, KnownVisitor::missing)
    }

    /// The segments of one visitor alone.
    #[must_use]
    pub fn segments_of(&self, visitor: VisitorId) -> Option<PackedSegments<'_>> {
        self.known.get(&visitor)?.segments()
    }

    /// The attributes of one visitor alone.
    #[must_use]
    pub fn attributes_of(&self, visitor: VisitorId) -> Option<PackedAttributes<'_>> {
        self.known.get(&visitor)?.attributes()
    }

    /// The exposures of one visitor alone.
    #[must_use]
    pub fn exposures_of(&self, visitor: VisitorId) -> Exposures {
        self.known.get(&visitor).map(KnownVisitor::exposures).unwrap_or_default()
    }

    /// The units of limited offers that one visitor got.
    #[must_use]
    pub fn units_of(&self, visitor: VisitorId) -> HeldSlots {
        self.known.get(&visitor).map(KnownVisitor::units).unwrap_or_default()
    }

    /// The actions of one visitor alone.
    #[must_use]
    pub fn actions_of(&self, visitor: VisitorId) -> Option<PackedActions<'_>> {
        self.known.get(&visitor)?.actions()
    }

    /// The highest epoch met of a decision about a visitor; 0 for none.
    #[must_use]
    pub fn epoch_of(&self, visitor: VisitorId) -> Epoch {
        self.memberships.epoch_of(visitor)
    }

    /// Whether nothing was read of who belongs together.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.memberships.is_silent()
    }

    /// What was decided of its visitors.
    #[must_use]
    pub fn memberships(&self) -> &Memberships {
        &self.memberships
    }

    /// The newest sub-profile met of a visitor that names its facts.
    #[must_use]
    pub fn named(&self, visitor: VisitorId) -> Option<&SubProfile> {
        self.known.get(&visitor).and_then(KnownVisitor::named)
    }
}
