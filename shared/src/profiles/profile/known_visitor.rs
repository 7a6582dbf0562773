//! What a reader at the edge knows of one visitor: the sub-profiles it met, and what happened beyond them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{MissingParts, ProfileTotals, SubProfile};
use crate::base::ids::{Millis, SessionId};
use crate::base::time::Minute;
use crate::facts::actions::{ActionList, AdAction, PackedActions};
use crate::facts::attributes::PackedAttributes;
use crate::facts::events::EventCount;
use crate::facts::exposures::Exposures;
use crate::facts::fact::PAGE;
use crate::facts::offer_slots::HeldSlots;
use crate::facts::orders::VisitorOrders;
use crate::facts::segments::PackedSegments;

/// A page view that a reader knows of itself, beyond what a sub-profile holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaterPage {
    /// When the edge received it.
    pub received: Millis,
    /// The FactId's first eight bytes.
    pub short: u64,
    /// Its session.
    pub session: SessionId,
}

/// What a reader knows of one visitor: the newest sub-profile it met that names its facts, the newest that does not, and
/// what it knows beside them. Kept side by side, so that the join is a product of joins; what is held already is sorted out
/// when the sums are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownVisitor {
    unnamed: Option<SubProfile>,
    named: Option<SubProfile>,
    /// Of most visitors nothing; never there and empty.
    beside: Option<Box<UnsureFacts>>,
    /// Whether the visitor was minted by the reader's own request, so that there is nothing else to know.
    is_new: bool,
}

/// Pages, impressions, exposures and units of which it cannot be sure that a sub-profile holds them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct UnsureFacts {
    beyond: BTreeMap<(Millis, u64), SessionId>,
    reserved: ActionList,
    exposed: Exposures,
    got: HeldSlots,
}

impl UnsureFacts {
    fn is_empty(&self) -> bool {
        let Self { beyond, reserved, exposed, got } = self;
        beyond.is_empty() && reserved.is_empty() && exposed.is_empty() && got.is_empty()
    }

    fn join(self, other: Self) -> Self {
        let mut beyond = self.beyond;
        beyond.extend(other.beyond);
        let (exposed, got) = (self.exposed.join(other.exposed), self.got.join(other.got));
        Self { beyond, reserved: self.reserved.join(other.reserved), exposed, got }
    }
}

impl KnownVisitor {
    /// From a sub-profile alone.
    #[must_use]
    pub fn from_sub(sub: SubProfile) -> Self {
        if sub.is_named() {
            Self { named: Some(sub), ..Self::default() }
        } else {
            Self { unnamed: Some(sub), ..Self::default() }
        }
    }

    /// From pages alone.
    #[must_use]
    pub fn from_beyond(pages: impl IntoIterator<Item = LaterPage>) -> Self {
        let beyond = pages.into_iter().map(|p| ((p.received, p.short), p.session)).collect();
        Self::default().with(|beside| beside.beyond = beyond)
    }

    /// The same of a visitor that was minted just now: what is not known of it is absent.
    #[must_use]
    pub fn of_new_visitor(self) -> Self {
        Self { is_new: true, ..self }
    }

    /// The same with impressions that are to come, of insertions placed.
    #[must_use]
    pub fn reserving(self, impressions: impl IntoIterator<Item = AdAction>) -> Self {
        self.with(|beside| impressions.into_iter().for_each(|action| beside.reserved.insert(action)))
    }

    /// The same with exposures.
    #[must_use]
    pub fn exposing(self, exposures: &Exposures) -> Self {
        self.with(|beside| exposures.iter().for_each(|(code, exposure)| beside.exposed.insert(code, exposure)))
    }

    /// The same with units.
    #[must_use]
    pub fn getting(self, units: &HeldSlots) -> Self {
        self.with(|beside| units.iter().for_each(|(code, unit)| beside.got.insert(code, unit)))
    }

    fn with(mut self, add: impl FnOnce(&mut UnsureFacts)) -> Self {
        let mut beside = self.beside.take().unwrap_or_default();
        add(&mut beside);
        self.beside = Some(beside).filter(|beside| !beside.is_empty());
        self
    }

    /// The newest sub-profile met that names its facts.
    #[must_use]
    pub fn named(&self) -> Option<&SubProfile> {
        self.named.as_ref()
    }

    /// The actions of the newest sub-profile met.
    #[must_use]
    pub fn actions(&self) -> Option<PackedActions<'_>> {
        self.newest().and_then(SubProfile::actions)
    }

    /// Impressions that are to come, or have come.
    #[must_use]
    pub fn reserved(&self) -> ActionList {
        self.beside.as_ref().map(|beside| beside.reserved.clone()).unwrap_or_default()
    }

    /// When the first and the last facts of the newest sub-profile met happened.
    #[must_use]
    pub fn seen(&self) -> Option<(Millis, Millis)> {
        self.newest().and_then(SubProfile::seen)
    }

    /// The segments of the newest sub-profile met.
    #[must_use]
    pub fn segments(&self) -> Option<PackedSegments<'_>> {
        self.newest().and_then(SubProfile::segments)
    }

    /// The attributes of the newest sub-profile met.
    #[must_use]
    pub fn attributes(&self) -> Option<PackedAttributes<'_>> {
        self.newest().and_then(SubProfile::attributes)
    }

    /// The exposures of the newest sub-profile met, none where they are not of the form, and those beyond it.
    #[must_use]
    pub fn exposures(&self) -> Exposures {
        let held = self.newest().map(SubProfile::exposures).unwrap_or_default();
        self.beside.iter().fold(held, |held, beside| held.join(beside.exposed.clone()))
    }

    /// The units of the newest sub-profile met, none where they are not of the form, and those beyond it.
    #[must_use]
    pub fn units(&self) -> HeldSlots {
        let held = self.newest().map(SubProfile::units).unwrap_or_default();
        self.beside.iter().fold(held, |held, beside| held.join(beside.got.clone()))
    }

    /// The orders of the newest sub-profile met, none where they are not of the form.
    #[must_use]
    pub fn orders(&self) -> VisitorOrders {
        self.newest().map(SubProfile::orders).unwrap_or_default()
    }

    /// What may be missing of the visitor's data.
    #[must_use]
    pub fn missing(&self) -> MissingParts {
        match self.newest() {
            Some(sub) => sub.missing(),
            None => MissingParts::ALL.when(!self.is_new),
        }
    }

    /// The newer of the two; of the same version the one that misses less, then the one that names its facts.
    fn newest(&self) -> Option<&SubProfile> {
        let both = self.unnamed.iter().chain(&self.named);
        both.max_by_key(|sub| (sub.version(), Reverse(sub.missing().count())))
    }

    /// The join: commutative, associative, idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.unnamed = both(self.unnamed, other.unnamed, SubProfile::join);
        self.named = both(self.named, other.named, SubProfile::join);
        self.beside = both(self.beside, other.beside, |a, b| Box::new(a.join(*b)));
        self.is_new |= other.is_new;
        self
    }

    /// The sums: those of the newest sub-profile, or of the newest named one with the pages it does not hold,
    /// whichever is more. Both are sums over facts of this visitor, so that neither is ever too much. One of
    /// before a restore says nothing beside one of after it.
    #[must_use]
    pub fn totals(&self) -> ProfileTotals {
        let [named, unnamed] = self.latest();
        let [base, unnamed] = [named, unnamed].map(|sub| sub.map(SubProfile::totals).unwrap_or_default());
        let Some(UnsureFacts { beyond, .. }) = self.beside.as_deref() else { return base.most(unnamed) };
        let names = named.and_then(SubProfile::names);
        let unheld =
            || beyond.iter().filter(|((at, short), _)| !names.as_ref().is_some_and(|n| n.newest.holds(*at, *short)));
        let counted = |s: &SessionId| names.as_ref().is_some_and(|n| n.hold_session(*s, base.sessions));
        let sessions: BTreeSet<SessionId> = unheld().map(|(_, session)| *session).filter(|s| !counted(s)).collect();
        let beyond = ProfileTotals {
            pages: unheld().count() as u64,
            sessions: sessions.len() as u64,
            ..ProfileTotals::default()
        };
        base.plus(beyond).most(unnamed)
    }

    /// How often an event was, from one minute to before another, by the same rule; `None` of an event that no snapshot says it
    /// of. It is known exactly where the newest says it so, and no page is known beside it that it may hold or not.
    #[must_use]
    pub fn within(&self, name: &str, from: Minute, to: Minute) -> Option<EventCount> {
        let [named, unnamed] = self.latest();
        let of = |sub: Option<&SubProfile>| sub.map_or(Some(EventCount::Exactly(0)), |sub| sub.within(name, from, to));
        let (base, other) = (of(named)?, of(unnamed)?);
        let beyond = self.beside.iter().filter(|_| name == PAGE).flat_map(|beside| beside.beyond.iter());
        let mut pages: Vec<_> = beyond.filter(|((at, _), _)| (from..to).contains(&Minute::at(*at))).collect();
        if !pages.is_empty() {
            let names = named.and_then(SubProfile::names).unwrap_or_default();
            pages.retain(|((at, short), _)| !names.newest.holds(*at, *short));
        }
        let base = base.plus(EventCount::Exactly(pages.len() as u64));
        let is_newest = unnamed.map(SubProfile::version) <= named.map(SubProfile::version);
        let exact = if is_newest { base.exact() } else { other.exact().filter(|_| pages.is_empty()) };
        let least = base.least().max(other.least());
        Some(if exact.is_some() { EventCount::Exactly(least) } else { EventCount::AtLeast(least) })
    }

    /// The newest sub-profile that names its facts and the newest that does not, without one of before a restore beside one of
    /// after it.
    fn latest(&self) -> [Option<&SubProfile>; 2] {
        let restore = |sub: &SubProfile| sub.version().restore;
        let both = [self.named(), self.unnamed.as_ref()];
        let latest = both.iter().flatten().map(|sub| restore(sub)).max();
        both.map(|sub| sub.filter(|sub| Some(restore(sub)) == latest))
    }
}

fn both<T>(a: Option<T>, b: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}
