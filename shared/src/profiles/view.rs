//! Views: the join of the profiles of one person's visitors, as a reader assembles it from snapshots.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{AltHash, Epoch, Millis, SnapshotVersion, VisitorId};
use crate::base::planted::{self, PlantedBug};
use crate::base::time::{HourStamp, Minute};
use crate::facts::actions::{ActionList, AdAction, PackedActions};
use crate::facts::attributes::{AttributeMap, NameToken, PackedAttributes};
use crate::facts::events::EventCount;
use crate::facts::exposures::Exposures;
use crate::facts::fact::PURCHASE;
use crate::facts::offer_codes::HeldOfferCodes;
use crate::facts::orders::{self, OrderPurchase, VisitorOrders};
use crate::facts::segments::{self, PackedSegments, SegmentId};
use crate::profiles::activity::BestSendTime;
use crate::profiles::membership::{Membership, Memberships};
use crate::profiles::profile::{KnownVisitor, MissingParts, ProfileTotals, SubProfile};

/// A view in the KV, under the key of one of its visitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The version; only the origin issues it, and it only grows.
    pub version: SnapshotVersion,
    /// The visitor of the snapshot.
    pub visitor: VisitorId,
    /// The unique id of the visitor's person, hashed under every readable key; empty if it has none.
    pub unique: Vec<AltHash>,
    /// The membership that the view was built under.
    pub membership: Membership,
    /// The sub-profiles of the visitors, the visitor's own included.
    pub profiles: BTreeMap<VisitorId, SubProfile>,
    /// The person's best send time; `None` if too little is known.
    pub best: Option<BestSendTime>,
}

impl Snapshot {
    /// The parts of the person's data that were left out for size.
    #[must_use]
    pub fn missing(&self) -> MissingParts {
        let of_visitors = self.profiles.values().fold(MissingParts::NONE, |all, sub| all.union(sub.missing()));
        let lacks_members = usize::try_from(self.membership.devices).is_ok_and(|devices| devices > self.profiles.len());
        of_visitors.union(MissingParts::MEMBERS.when(lacks_members))
    }

    /// The unique id that the visitor itself surely has; empty if only an unproven id, or nothing, ties it to the
    /// member.
    #[must_use]
    pub fn surely_held(&self) -> &[AltHash] {
        if self.membership.unsure.contains(&self.visitor) { &[] } else { &self.unique }
    }

    /// The visitors that belong to the snapshot's member as surely as the snapshot's own visitor; none if that one is
    /// unsure.
    pub fn sure_members(&self) -> impl Iterator<Item = VisitorId> + '_ {
        let unsure = &self.membership.unsure;
        let is_sure = !self.surely_held().is_empty();
        self.profiles.keys().copied().filter(move |visitor| is_sure && !unsure.contains(visitor))
    }

    /// Reduces it to a snapshot of its visitor alone, without a member. Cuts stay.
    pub fn leave_person(&mut self) {
        let Membership { epoch, cuts, .. } = std::mem::take(&mut self.membership);
        self.keep_own();
        self.unique.clear();
        self.membership =
            Membership { epoch, devices: 1, admits: [self.visitor].into(), cuts, ..Membership::default() };
    }

    /// Drops all data of other visitors. The unique id stays, because it keeps two members apart.
    pub fn keep_own(&mut self) {
        self.membership = Membership::default();
        self.best = None;
        let own = self.visitor;
        self.profiles.retain(|visitor, _| *visitor == own);
    }
}

/// The value of a visitor's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredValue {
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// The visitor was erased or withdrew, so it is never recognised again.
    Tombstone,
}

/// The view of one visitor: the visitors that count for it, as far as is known.
#[derive(Debug, Clone)]
pub struct PersonView<'a> {
    own: VisitorId,
    members: Vec<VisitorId>,
    known: Vec<&'a KnownVisitor>,
    /// Number of the person's visitors that do not count here.
    left_out: u32,
    view: &'a JoinedView,
}

impl<'a> PersonView<'a> {
    /// The visitors that count, in order; the visitor itself is always included.
    #[must_use]
    pub fn members(&self) -> &[VisitorId] {
        &self.members
    }

    /// The smallest of them. All browsers of a person agree on it if they know of one another.
    #[must_use]
    pub fn smallest(&self) -> VisitorId {
        self.members.first().copied().unwrap_or(self.own)
    }

    /// The number of events of a name from minute `from` to before `to`, over all visitors that count. It is a lower
    /// bound while visitors are missing. `None` for an event that snapshots do not time.
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

    /// Purchases that do not count, because another visitor made a purchase of the same order earlier.
    fn repeats(&self) -> Vec<OrderPurchase> {
        if self.known.len() < 2 {
            return Vec::new();
        }
        let each: Vec<VisitorOrders> = self.known.iter().map(|known| known.orders()).collect();
        orders::find_repeats(&each).into_iter().map(|(_, repeat)| repeat).collect()
    }

    /// The person's number of devices, at least the number of visitors that count here.
    #[must_use]
    pub fn devices(&self) -> u32 {
        let here = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.view.memberships.devices(self.own, &self.members).saturating_sub(self.left_out).max(here)
    }

    /// The parts of the person's data that may be missing, which makes them unknown, not absent.
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

    /// The attributes whose value or absence is certain although these parts are missing; `None` for all attributes.
    #[must_use]
    pub fn certain_attributes(&self, missing: MissingParts) -> Option<Vec<NameToken>> {
        let written =
            |known: &&KnownVisitor| known.attributes().into_iter().flat_map(|packed| packed.tokens()).collect();
        self.certain_everywhere(missing, MissingParts::ATTRIBUTES, written)
    }

    /// The segments that the person is certainly not in at a time, although these parts are missing. `None` means all
    /// segments outside [`Self::segments`].
    #[must_use]
    pub fn certainly_not_in(&self, missing: MissingParts, now: Millis) -> Option<Vec<SegmentId>> {
        let written = |known: &&KnownVisitor| known.segments().into_iter().flat_map(|packed| packed.ids()).collect();
        let mut certain = self.certain_everywhere(missing, MissingParts::SEGMENTS, written)?;
        let held = self.segments(now);
        certain.retain(|id| held.binary_search(id).is_err());
        Some(certain)
    }

    /// The names that every visitor with a gap in `part` has a write of; `None` if no visitor has a gap.
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

    /// Whether other visitors count in addition to the visitor itself.
    #[must_use]
    pub fn is_bridged(&self) -> bool {
        self.members.len() > 1
    }

    /// The sums over all visitors; an order counts once.
    #[must_use]
    pub fn totals(&self) -> ProfileTotals {
        let sums = self.known.iter().fold(ProfileTotals::default(), |sum, known| sum.plus(known.totals()));
        sums.without(&self.repeats())
    }

    /// Times of the first and last fact; `None` without facts.
    #[must_use]
    pub fn seen(&self) -> Option<(Millis, Millis)> {
        let each = self.known.iter().filter_map(|known| known.seen());
        each.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The person's best send time, from the newest snapshot.
    #[must_use]
    pub fn best(&self) -> Option<BestSendTime> {
        let dated = self.view.best.iter().filter(|(visitor, _)| self.members.binary_search(visitor).is_ok());
        dated.map(|(_, dated)| *dated).max().map(|(_, best)| best)
    }

    /// The actions, one list per visitor.
    #[must_use]
    pub fn actions(&self) -> Vec<PackedActions<'a>> {
        self.known.iter().filter_map(|known| known.actions()).collect()
    }

    /// The visitor's own reservations, packed: expected impressions that [`Self::actions`] do not contain, with the
    /// minute `now`. `None` if there are none. A cap counts them in addition, like the actions of one more visitor.
    #[must_use]
    pub fn reserved(&self, now: Minute) -> Option<Vec<u8>> {
        let mut reserved = self.view.known.get(&self.own)?.reserved();
        if reserved.is_empty() {
            return None;
        }
        self.actions().iter().for_each(|held| reserved.leave_out(held));
        // The impression may happen at any time after the placement, so each window contains it.
        let seen_now: ActionList = reserved.iter().map(|action| AdAction { minute: now, ..action }).collect();
        (!seen_now.is_empty()).then(|| seen_now.pack_actions())
    }

    /// The segments that the person is in at a time, in order. Of each segment the last write of any visitor counts.
    #[must_use]
    pub fn segments(&self, now: Millis) -> Vec<SegmentId> {
        let each: Vec<_> = self.known.iter().filter_map(|known| known.segments()).collect();
        segments::live_segments(&each, HourStamp::at(now))
    }

    /// The attributes. Of each the last write of any visitor counts.
    #[must_use]
    pub fn attributes(&self) -> AttributeMap {
        AttributeMap::of_person(self.known.iter().filter_map(|known| known.attributes()?.to_map()))
    }

    /// The exposures: for each experiment the first of any visitor.
    #[must_use]
    pub fn exposures(&self) -> Exposures {
        self.known.iter().map(|known| known.exposures()).fold(Exposures::default(), Exposures::join)
    }

    /// The offer codes: for each campaign the first of any visitor.
    #[must_use]
    pub fn offer_codes(&self) -> HeldOfferCodes {
        self.known.iter().map(|known| known.offer_codes()).fold(HeldOfferCodes::default(), HeldOfferCodes::join)
    }
}

/// The join of snapshots and the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinedView {
    known: BTreeMap<VisitorId, KnownVisitor>,
    memberships: Memberships,
    /// The best send time in each visitor's newest snapshot.
    best: BTreeMap<VisitorId, (SnapshotVersion, BestSendTime)>,
    /// Missing parts in addition to those in the snapshots.
    missing: MissingParts,
}

impl JoinedView {
    /// Adds parts that could not be read.
    pub fn note_missing(&mut self, missing: MissingParts) {
        self.missing = self.missing.union(missing);
    }

    /// Adds a snapshot.
    pub fn add_snapshot(&mut self, snapshot: Snapshot) {
        self.add_best(&snapshot);
        self.add_profiles(snapshot.profiles);
        self.memberships.add(snapshot.membership);
    }

    /// Adds the snapshots of visitors that may be of `own`'s person. First all their memberships are added; then the
    /// profiles of each snapshot, unless a decision cuts its visitor from `own`. Such a visitor's snapshot has its own
    /// person, and need not know of `own`.
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
            let dated = (snapshot.version, best);
            let newest = self.best.get(&snapshot.visitor).map_or(dated, |before| dated.max(*before));
            self.best.insert(snapshot.visitor, newest);
        }
    }

    fn add_profiles(&mut self, profiles: BTreeMap<VisitorId, SubProfile>) {
        for (visitor, sub) in profiles {
            self.add_known(visitor, KnownVisitor::from_sub(sub));
        }
    }

    /// Joins data of one visitor.
    pub fn add_known(&mut self, visitor: VisitorId, known: KnownVisitor) {
        match self.known.get_mut(&visitor) {
            Some(before) => *before = std::mem::take(before).join(known),
            None => drop(self.known.insert(visitor, known)),
        }
    }

    /// The view of `own`: itself and all visitors that count for it.
    #[must_use]
    pub fn of(&self, own: VisitorId) -> PersonView<'_> {
        // There are fewer cuts than visitors. If no cut visitor is here, all visitors count.
        let is_here = |cut: VisitorId| cut == own || self.known.contains_key(&cut);
        let all = !self.memberships.cuts().any(is_here);
        let counting = self.known.iter().filter(|(visitor, _)| all || self.memberships.counts(own, **visitor));
        let (mut members, mut known) = (Vec::with_capacity(self.known.len()), Vec::with_capacity(self.known.len()));
        for (visitor, one) in counting {
            members.push(*visitor);
            known.push(one);
        }
        if let Err(index) = members.binary_search(&own) {
            members.insert(index, own);
        }
        PersonView { own, members, known, left_out: 0, view: self }
    }

    /// The view of `own`, restricted to itself and `these` visitors.
    #[must_use]
    pub fn of_these(&self, own: VisitorId, these: &BTreeSet<VisitorId>) -> PersonView<'_> {
        let all = self.of(own);
        let is_included = |visitor: &VisitorId| *visitor == own || these.contains(visitor);
        let known = self.known.iter().filter(|(visitor, _)| all.members.contains(visitor) && is_included(visitor));
        let known = known.map(|(_, known)| known).collect();
        let members: Vec<VisitorId> = all.members.iter().copied().filter(is_included).collect();
        let left_out =
            all.left_out.saturating_add(u32::try_from(all.members.len() - members.len()).unwrap_or(u32::MAX));
        PersonView { members, known, left_out, ..all }
    }

    /// The sums of one visitor alone.
    #[must_use]
    pub fn own(&self, visitor: VisitorId) -> ProfileTotals {
        self.known.get(&visitor).map(KnownVisitor::totals).unwrap_or_default()
    }

    /// The parts of one visitor's data that may be missing.
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

    /// The offer codes of one visitor alone.
    #[must_use]
    pub fn offer_codes_of(&self, visitor: VisitorId) -> HeldOfferCodes {
        self.known.get(&visitor).map(KnownVisitor::offer_codes).unwrap_or_default()
    }

    /// The actions of one visitor alone.
    #[must_use]
    pub fn actions_of(&self, visitor: VisitorId) -> Option<PackedActions<'_>> {
        self.known.get(&visitor)?.actions()
    }

    /// The highest known epoch of a decision about a visitor; 0 if there is none.
    #[must_use]
    pub fn epoch_of(&self, visitor: VisitorId) -> Epoch {
        self.memberships.epoch_of(visitor)
    }

    /// Whether no membership was read.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.memberships.is_silent()
    }

    /// The memberships of its visitors.
    #[must_use]
    pub fn memberships(&self) -> &Memberships {
        &self.memberships
    }

    /// The newest sub-profile of a visitor that names its newest facts.
    #[must_use]
    pub fn named(&self, visitor: VisitorId) -> Option<&SubProfile> {
        self.known.get(&visitor).and_then(KnownVisitor::named)
    }
}
